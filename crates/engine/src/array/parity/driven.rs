//! An array with parity driven to the end of a request, for tests.

use crate::geometry::GeometrySpec;
use crate::io::{
    Action, ActionQueue, Flags, Input, IoResult, Kernel, MemberIo, Op, Request, RequestId, Verdict,
};
use crate::level::{Layout, Level};
use crate::policy::Policy;
use crate::units::{Instant, MemberIndex, SectorRange};
use crate::volume::{Volume, VolumeConfig};

/// What came of it.
pub(super) struct Driven {
    /// How the request ended.
    pub(super) result: IoResult,
    pub(super) computed: Vec<Kernel>,
    /// The members that were read.
    pub(super) read: Vec<MemberIndex>,
    /// The members that were written to.
    pub(super) written: Vec<MemberIndex>,
}

/// A write of the first sectors.
pub(super) fn write(sectors: u64) -> Input {
    let range = SectorRange::new(0, sectors);
    Input::Request(Request { id: RequestId(0), op: Op::Write, range, flags: Flags::default() })
}

/// An array of so many members.
pub(super) fn config(level: Level, members: usize) -> VolumeConfig {
    let geometry = GeometrySpec {
        level,
        layout: Layout::default_of(level),
        chunk_sectors: 128,
        member_sectors: vec![1 << 16; members],
    };
    VolumeConfig::new(geometry, Policy::stripewise())
}

/// Gives a RAID-5 of so many members its inputs, of which one is a request, and answers what it asks for: its members as it is
/// said, refusals first.
pub(super) fn drive(members: usize, inputs: Vec<Input>, answer: impl Fn(&MemberIo) -> IoResult) -> Driven {
    drive_one(&config(Level::Raid5, members), inputs, answer)
}

/// As [`drive`], any array.
pub(super) fn drive_one(
    config: &VolumeConfig,
    mut inputs: Vec<Input>,
    answer: impl Fn(&MemberIo) -> IoResult,
) -> Driven {
    let mut volume = Volume::new(config).unwrap();
    let (mut out, mut computed) = (ActionQueue::default(), Vec::new());
    let (mut read, mut written) = (Vec::new(), Vec::new());
    let mut ended = None;
    while !inputs.is_empty() {
        volume.handle(Instant::ZERO, inputs.remove(0), &mut out);
        let first = inputs.len();
        for action in &out.actions {
            match action {
                Action::Io(io) => {
                    match io.op {
                        Op::Read => read.push(io.member),
                        Op::Write => written.push(io.member),
                        _ => {}
                    }
                    let result = answer(io);
                    let place = if result.is_ok() { inputs.len() } else { first };
                    inputs.insert(place, Input::IoDone { tag: io.tag, result });
                }
                Action::Compute(compute) => {
                    assert!(!out.operands(compute.targets).is_empty(), "{compute:?}");
                    computed.push(compute.kernel);
                    inputs.push(Input::Computed { tag: compute.tag, verdict: Verdict::Consistent });
                }
                Action::Complete { result, .. } => ended = Some(*result),
                Action::Replied { .. } | Action::Event(_) => {}
            }
        }
        out.clear();
    }
    volume.check_invariants();
    Driven { result: ended.expect("a request ends"), computed, read, written }
}
