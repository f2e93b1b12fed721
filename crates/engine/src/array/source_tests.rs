//! Which member is read where a slot has two: its own and the one that is to replace it.

use std::collections::VecDeque;

use crate::geometry::{Geometry, GeometrySpec};
use crate::io::{
    Action, ActionQueue, AdminCommand, AdminReply, ArrayEvent, Flags, Input, IoError, IoResult, Kernel,
    MemberIo, Op, Request, RequestId, SyncAction, Verdict,
};
use crate::level::{Layout, Level};
use crate::policy::Policy;
use crate::units::{Instant, MemberIndex, Nanos, SectorRange, Slot};
use crate::volume::{Volume, VolumeConfig};

const LEVELS: [(Level, u16); 5] =
    [(Level::Raid1, 2), (Level::Raid4, 3), (Level::Raid5, 4), (Level::Raid6, 5), (Level::Raid10, 4)];
/// So many sectors of its slot a replacement holds, if not said otherwise.
const FILLED: u64 = 64;
const SECTORS: u64 = 1 << 12;

/// What came of an input.
struct Ran {
    result: Option<IoResult>,
    /// What members were asked for, in order.
    ios: Vec<MemberIo>,
    events: Vec<ArrayEvent>,
    /// Bytes of each member's that lost blocks were rebuilt from.
    rebuilt_bytes: u64,
}

impl Ran {
    fn asked(&self, op: Op) -> Vec<u16> {
        self.ios.iter().filter(|io| io.op == op).map(|io| io.member.0).collect()
    }
}

/// An array whose first data slot is being replaced by the member after those of the slots, which does nothing by itself; with
/// that slot's member and its replacement.
fn volume(level: Level, members: u16, filled: u64) -> (Volume, u16, u16) {
    let geometry = GeometrySpec {
        level,
        layout: Layout::default_of(level),
        chunk_sectors: if level.has_chunks() { 128 } else { 0 },
        member_sectors: vec![SECTORS; members.into()],
    };
    let mut config = VolumeConfig::new(geometry, Policy::stripewise());
    let slot = Geometry::new(&config.geometry).unwrap().place(0, 0).slot;
    config.replacements = vec![(slot, MemberIndex(members), filled)];
    config.sync.start = false;
    (Volume::new(&config).unwrap(), slot.0, members)
}

/// Gives an input and answers the members, which refuse what they are said to.
fn run(volume: &mut Volume, input: Input, refuses: impl Fn(&MemberIo) -> Option<IoError>) -> Ran {
    let mut ran = Ran { result: None, ios: Vec::new(), events: Vec::new(), rebuilt_bytes: 0 };
    let mut inputs = VecDeque::from([input]);
    while let Some(input) = inputs.pop_front() {
        let mut out = ActionQueue::default();
        volume.handle(Instant::ZERO, input, &mut out);
        volume.check_invariants();
        for action in &out.actions {
            match *action {
                Action::Io(io) => {
                    ran.ios.push(io);
                    inputs.push_back(Input::IoDone { tag: io.tag, result: refuses(&io).map_or(Ok(()), Err) });
                }
                Action::Compute(c) => {
                    ran.rebuilt_bytes += if c.kernel == Kernel::Recover { c.bytes } else { 0 };
                    inputs.push_back(Input::Computed { tag: c.tag, verdict: Verdict::Consistent });
                }
                Action::Complete { result, .. } => ran.result = Some(result),
                Action::Event(event) => ran.events.push(event),
                Action::Replied { reply, .. } => assert_eq!(reply, AdminReply::Done),
            }
        }
    }
    ran
}

fn request(op: Op, start: u64, count: u64) -> Input {
    let range = SectorRange::new(start, count);
    Input::Request(Request { id: RequestId(0), op, range, flags: Flags::default() })
}

#[test]
fn a_replacement_is_read_for_what_it_holds() {
    for (level, members) in LEVELS {
        for (start, is_held) in [(0, true), (FILLED - 8, true), (FILLED - 4, false), (FILLED, false)] {
            let (mut volume, own, replacement) = volume(level, members, FILLED);
            let ran = run(&mut volume, request(Op::Read, start, 8), |_| None);
            let source = if is_held { replacement } else { own };
            assert_eq!((ran.result, ran.asked(Op::Read)), (Some(Ok(())), vec![source]), "{level} {start}");
        }
    }
}

#[test]
fn what_only_a_replacement_has_is_had() {
    for (level, members) in LEVELS {
        let (mut volume, _, replacement) = volume(level, members, FILLED);
        let ran = run(&mut volume, request(Op::Read, 8, 8), |io| {
            (io.op == Op::Read && io.member.0 != replacement).then_some(IoError::Media)
        });
        assert_eq!((ran.result, &ran.events[..]), (Some(Ok(())), &[][..]), "{level}");
    }
}

#[test]
fn a_replacement_that_does_not_give_what_it_holds_is_given_up_and_the_member_is_read() {
    for (level, members) in LEVELS {
        for error in [IoError::Media, IoError::Gone] {
            let (mut volume, own, replacement) = volume(level, members, FILLED);
            let ran = run(&mut volume, request(Op::Read, 8, 8), |io| match io.member.0 {
                member if member == own => None,
                member if member == replacement => Some(error),
                _ => Some(IoError::Media),
            });
            assert_eq!(ran.result, Some(Ok(())), "{level} {error}");
            assert_eq!(ran.asked(Op::Read), [replacement, own], "{level} {error}");
            let given_up = [ArrayEvent::ReplacementFailed { slot: Slot(own) }];
            assert_eq!((&ran.events[..], ran.asked(Op::Write)), (&given_up[..], vec![]), "{level} {error}");
            assert_eq!(volume.member_of(Slot(own)), Some(MemberIndex(own)));
        }
    }
}

#[test]
fn old_data_are_read_from_it_too_and_from_the_member_when_it_fails() {
    for (level, members) in [(Level::Raid5, 6), (Level::Raid6, 8)] {
        for refuses in [false, true] {
            let (mut volume, own, replacement) = volume(level, members, FILLED);
            let ran = run(&mut volume, request(Op::Write, 0, 8), |io| {
                (refuses && io.op == Op::Read && io.member.0 == replacement).then_some(IoError::Media)
            });
            assert_eq!(ran.result, Some(Ok(())), "{level}");
            let is_of_slot = |member: &u16| [own, replacement].contains(member);
            let read: Vec<u16> = ran.asked(Op::Read).into_iter().filter(is_of_slot).collect();
            let expected = if refuses { vec![replacement, own] } else { vec![replacement] };
            assert_eq!(read, expected, "{level}");
            let written = ran.asked(Op::Write);
            assert_eq!((written.contains(&own), written.contains(&replacement)), (true, !refuses), "{level}");
        }
    }
}

/// As any member that leaves ends it.
#[test]
fn a_replacement_that_fails_in_a_check_ends_it_and_disagrees_with_nobody() {
    for (level, members) in LEVELS {
        let (mut volume, own, replacement) = volume(level, members, SECTORS / 2);
        let check = Input::Admin { id: 1, command: AdminCommand::Sync(SyncAction::Check) };
        let ran = run(&mut volume, check, |io| {
            (io.op == Op::Read && io.member.0 == replacement).then_some(IoError::Media)
        });
        let events = [
            ArrayEvent::SyncStarted(SyncAction::Check),
            ArrayEvent::ReplacementFailed { slot: Slot(own) },
            ArrayEvent::SyncInterrupted(SyncAction::Check),
        ];
        assert_eq!((&ran.events[..], ran.asked(Op::Write)), (&events[..], vec![]), "{level}");
        assert!(
            ran.asked(Op::Read).contains(&own),
            "{level}: what it did not give is compared, all the same"
        );
        assert_eq!(volume.sync_status().unwrap().mismatch_sectors, 0, "{level}");
    }
}

/// Where the members disagreed before, it would write what makes them disagree again.
#[test]
fn a_member_that_left_is_rebuilt_from_the_others_and_not_from_the_cache() {
    let geometry = GeometrySpec {
        level: Level::Raid5,
        layout: Layout::default_of(Level::Raid5),
        chunk_sectors: 128,
        member_sectors: vec![SECTORS; 4],
    };
    // What is written and read stays in the cache. No time passes.
    let mut policy = Policy::linux_6_1();
    policy.sync.full_rest = Nanos(0);
    let config = VolumeConfig { spares: 1, ..VolumeConfig::new(geometry, policy) };
    let mut volume = Volume::new(&config).unwrap();
    run(&mut volume, request(Op::Write, 0, 128), |_| None);
    let ran = run(&mut volume, Input::Admin { id: 1, command: AdminCommand::Fail(Slot(0)) }, |_| None);
    assert_eq!(ran.events.last(), Some(&ArrayEvent::SyncDone(SyncAction::Recover)));
    // It has parity in a quarter of the stripes.
    assert_eq!(ran.rebuilt_bytes, SECTORS * 512 / 4 * 3);
}
