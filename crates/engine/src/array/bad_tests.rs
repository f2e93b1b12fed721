//! What is listed as bad of members that refuse some sectors.

use std::cell::RefCell;
use std::collections::VecDeque;

use stripewise_format::bad_blocks::BadRange;
use stripewise_format::superblock::Superblock;

use crate::array::members::READ_ERRORS_MAX;
use crate::array::recorded::{DATA_OFFSET, config};
use crate::geometry::Geometry;
use crate::io::{
    Action, ActionQueue, AdminCommand, AdminReply, Area, ArrayEvent, Flags, Input, IoError, IoResult,
    MemberIo, Op, Request, RequestId, SyncAction, Verdict,
};
use crate::level::Level;
use crate::units::{Instant, MemberIndex, SectorRange, Slot};
use crate::volume::{Volume, VolumeConfig};

const LEVELS: [(Level, u16); 5] =
    [(Level::Raid1, 2), (Level::Raid4, 4), (Level::Raid5, 4), (Level::Raid6, 6), (Level::Raid10, 4)];
/// Chunks of the array, and the page of its members that is bad.
const CHUNK: u64 = 128;
const BAD: SectorRange = SectorRange::new(40, 8);

/// An array and its members, of which some refuse what is said.
struct Bench<R: Fn(&MemberIo) -> bool> {
    volume: Volume,
    refuses: R,
    events: Vec<ArrayEvent>,
    /// What members were asked, in order.
    asked: Vec<MemberIo>,
    /// How much of that went before the last answer to a request.
    asked_before_answer: usize,
}

impl<R: Fn(&MemberIo) -> bool> Bench<R> {
    fn new(config: &VolumeConfig, refuses: R) -> Self {
        Self {
            volume: Volume::new(config).unwrap(),
            refuses,
            events: Vec::new(),
            asked: Vec::new(),
            asked_before_answer: 0,
        }
    }

    /// Answers how the request ended, if it was one.
    fn input(&mut self, input: Input) -> Option<IoResult> {
        let mut completed = None;
        let mut inputs = VecDeque::from([input]);
        while let Some(input) = inputs.pop_front() {
            let mut out = ActionQueue::default();
            self.volume.handle(Instant::ZERO, input, &mut out);
            self.volume.check_invariants();
            for action in &out.actions {
                match *action {
                    Action::Io(io) => {
                        self.asked.push(io);
                        let is_refused = io.area == Area::Data && (self.refuses)(&io);
                        let result = if is_refused { Err(IoError::Media) } else { Ok(()) };
                        inputs.push_back(Input::IoDone { tag: io.tag, result });
                    }
                    Action::Compute(c) => {
                        inputs.push_back(Input::Computed { tag: c.tag, verdict: Verdict::Consistent });
                    }
                    Action::Complete { result, .. } => {
                        self.asked_before_answer = self.asked.len();
                        completed = Some(result);
                    }
                    Action::Replied { reply, .. } => assert_eq!(reply, AdminReply::Done),
                    Action::Event(event) => self.events.push(event),
                }
            }
        }
        completed
    }

    fn request(&mut self, op: Op, start: u64, count: u64) -> IoResult {
        let range = SectorRange::new(start, count);
        let request = Request { id: RequestId(0), op, range, flags: Flags::default() };
        self.input(Input::Request(request)).unwrap()
    }

    fn admin(&mut self, command: AdminCommand) {
        self.input(Input::Admin { id: 0, command });
    }

    /// The sectors of data that its list says a member does not hold.
    fn listed(&self, member: u16) -> Vec<SectorRange> {
        self.volume.listed_bad(MemberIndex(member)).collect()
    }
}

fn is_bad(io: &MemberIo, member: u16) -> bool {
    io.member.0 == member && io.range.start < BAD.end() && io.range.end() > BAD.start
}

fn first_slot(level: Level, members: u16) -> u16 {
    Geometry::new(&all_there(level, members).geometry).unwrap().place(0, 0).slot.0
}

fn all_there(level: Level, members: u16) -> VolumeConfig {
    config(level, members, &vec![false; members.into()])
}

/// The last is a spare.
fn with_spare(level: Level, members: u16) -> VolumeConfig {
    let mut config = config(level, members, &vec![false; usize::from(members) + 1]);
    config.sync.start = true;
    config
}

#[test]
fn of_a_long_write_only_the_page_that_a_member_refuses_is_listed() {
    for (level, members) in LEVELS {
        let slot = first_slot(level, members);
        for count in [64, CHUNK, CHUNK * 12, CHUNK * 24] {
            let mut bench =
                Bench::new(&all_there(level, members), |io| io.op == Op::Write && is_bad(io, slot));
            assert_eq!(bench.request(Op::Write, 0, count), Ok(()), "{level} {count}");
            assert_eq!(bench.listed(slot), [BAD], "{level} {count}");
            assert_eq!(bench.events, [], "{level} {count}");
        }
    }
}

#[test]
fn of_a_long_read_only_the_page_that_a_member_does_not_give_and_cannot_be_made_to_is_listed() {
    for ((level, members), takes) in LEVELS.into_iter().flat_map(|level| [(level, false), (level, true)]) {
        let slot = first_slot(level, members);
        let what = format!("{level} {}", if takes { "takes it" } else { "refuses it" });
        for count in [64, CHUNK, CHUNK * 12] {
            let refuses = |io: &MemberIo| is_bad(io, slot) && (io.op == Op::Read || !takes);
            let mut bench = Bench::new(&all_there(level, members), refuses);
            // Copies are read in turn.
            for _ in 0..if matches!(level, Level::Raid1 | Level::Raid10) { 2 } else { 1 } {
                assert_eq!(bench.request(Op::Read, 0, count), Ok(()), "{what} {count}");
            }
            assert_eq!((bench.listed(slot), &bench.events[..]), (vec![BAD], &[][..]), "{what} {count}");
        }
    }
}

#[test]
fn neither_is_more_of_a_member_that_lost_blocks_are_rebuilt_from() {
    for takes in [false, true] {
        let mut config = all_there(Level::Raid6, 6);
        let lost = first_slot(Level::Raid6, 6);
        config.failed = vec![Slot(lost)];
        let from = lost + 1;
        let mut bench = Bench::new(&config, |io| is_bad(io, from) && (io.op == Op::Read || !takes));
        assert_eq!(bench.request(Op::Read, 0, CHUNK), Ok(()), "{takes}");
        assert_eq!((bench.listed(from), &bench.events[..]), (vec![BAD], &[][..]), "{takes}");
    }
}

#[test]
fn of_a_recovery_only_the_page_that_the_new_member_refuses_is_listed() {
    for (level, members) in LEVELS {
        let slot = first_slot(level, members);
        let mut bench =
            Bench::new(&with_spare(level, members), |io| io.op == Op::Write && is_bad(io, members));
        bench.admin(AdminCommand::Fail(Slot(slot)));
        assert_eq!(bench.events.last(), Some(&ArrayEvent::SyncDone(SyncAction::Recover)), "{level}");
        assert_eq!(bench.volume.member_of(Slot(slot)), Some(MemberIndex(members)), "{level}");
        assert_eq!(bench.listed(members), [BAD], "{level}");
    }
}

#[test]
fn a_recovery_lists_no_more_of_those_that_it_reads() {
    // The first members list some sectors of a page, the last is filled.
    let at = |start_sector: u64, length_sectors| BadRange {
        start_sector: DATA_OFFSET + start_sector,
        length_sectors,
    };
    let cases: [(_, _, &[_], _); 5] = [
        // What one has is not lost, and the other takes it.
        (Level::Raid1, 3, &[at(64, 16), at(70, 3)], SectorRange::new(70, 3)),
        (Level::Raid1, 3, &[at(63, 2), at(64, 9)], SectorRange::new(64, 1)),
        // Rows are made of pages.
        (Level::Raid4, 4, &[at(67, 1)], SectorRange::new(64, 8)),
        (Level::Raid5, 4, &[at(67, 1)], SectorRange::new(64, 8)),
        (Level::Raid6, 5, &[at(67, 1), at(69, 1)], SectorRange::new(64, 8)),
    ];
    for (level, members, lists, lost) in cases {
        let last = members - 1;
        let mut config = with_spare(level, members);
        let metadata = config.metadata.as_mut().unwrap();
        for (member, list) in metadata.members.iter_mut().flatten().zip(lists) {
            member.bad_blocks = Some(vec![*list]);
        }
        let mut bench = Bench::new(&config, |_| false);
        bench.admin(AdminCommand::Fail(Slot(last)));
        assert_eq!(bench.listed(members), [lost], "{level}");
        for (member, list) in (0..).zip(lists) {
            let as_before = SectorRange::new(list.start_sector - DATA_OFFSET, list.length_sectors);
            let listed = if level == Level::Raid1 { lost } else { as_before };
            assert_eq!(bench.listed(member), [listed], "{level}");
        }
    }
}

/// What no copy gives is not on the replacement either: it must not be read from there.
#[test]
fn of_a_replacement_what_no_copy_gives_is_listed() {
    for (level, members, other) in [(Level::Raid1, 2, 1), (Level::Raid10, 4, 1)] {
        for is_known in [false, true] {
            let mut config = with_spare(level, members);
            if is_known {
                for member in [0, other] {
                    let known =
                        config.metadata.as_mut().unwrap().members[usize::from(member)].as_mut().unwrap();
                    let start_sector = known.superblock.data_offset_sectors() + BAD.start;
                    known.bad_blocks = Some(vec![BadRange { start_sector, length_sectors: BAD.count }]);
                }
            }
            let refuses = |io: &MemberIo| io.op == Op::Read && (is_bad(io, 0) || is_bad(io, other));
            let mut bench = Bench::new(&config, refuses);
            bench.admin(AdminCommand::Replace { slot: Slot(0), with: None });
            assert_eq!(bench.volume.member_of(Slot(0)), Some(MemberIndex(members)), "{level}");
            assert_eq!(bench.listed(members), [BAD], "{level}");
            assert_eq!(bench.request(Op::Read, BAD.start, BAD.count), Err(IoError::Media), "{level}");
        }
    }
}

/// A member that is replaced refuses a write, and its replacement takes it: the slot lacks nothing.
#[test]
fn what_a_replacement_took_is_not_missed() {
    for (level, members) in [(Level::Raid4, 4), (Level::Raid5, 4)] {
        let mut config = config(level, members, &vec![false; usize::from(members) + 1]);
        config.replacements = vec![(Slot(0), MemberIndex(members), 2 * CHUNK)];
        let other = members - 1;
        for (start, count) in [(BAD.start, 8), (0, 64), (0, CHUNK * 3)] {
            let mut bench =
                Bench::new(&config, |io| io.op == Op::Write && (is_bad(io, 0) || is_bad(io, other)));
            assert_eq!(bench.request(Op::Write, start, count), Ok(()), "{level} {count}");
            assert_eq!(bench.events, [], "{level} {count}");
            assert_eq!((bench.listed(0), bench.listed(other)), (vec![BAD], vec![BAD]), "{level} {count}");
        }
    }
}

#[test]
fn of_a_member_that_is_copied_from_only_the_page_that_it_does_not_give_and_cannot_be_made_to_is_listed() {
    for (level, members, from) in [(Level::Raid1, 3, 0), (Level::Raid6, 6, 2)] {
        for takes in [false, true] {
            let refuses = |io: &MemberIo| is_bad(io, from) && (io.op == Op::Read || !takes);
            let mut bench = Bench::new(&with_spare(level, members), refuses);
            bench.admin(AdminCommand::Fail(Slot(1)));
            assert_eq!(bench.events.last(), Some(&ArrayEvent::SyncDone(SyncAction::Recover)), "{level}");
            assert_eq!((bench.listed(from), bench.listed(members)), (vec![BAD], vec![]), "{level} {takes}");
        }
    }
}

#[test]
fn a_long_write_that_a_member_refuses_counts_as_one_error() {
    for (level, members) in LEVELS {
        let config = all_there(level, members);
        let slot = first_slot(level, members);
        let mut bench = Bench::new(&config, |io| io.op == Op::Write && io.member.0 == slot);
        let geometry = Geometry::new(&config.geometry).unwrap();
        let chunks =
            (0..).map(|chunk| chunk * CHUNK).filter(|start| geometry.place(*start, 0).slot.0 == slot);
        let mut writes = chunks.take(READ_ERRORS_MAX as usize + 1);
        for start in writes.by_ref().take(READ_ERRORS_MAX as usize) {
            assert_eq!(bench.request(Op::Write, start, 64), Ok(()), "{level}");
        }
        assert_eq!(bench.events, [], "{level}");
        assert_eq!(bench.request(Op::Write, writes.next().unwrap(), 64), Ok(()), "{level}");
        assert_eq!(bench.events, [ArrayEvent::MemberFailed { slot: Slot(slot) }], "{level}");
    }
}

#[test]
fn what_is_asked_for_again_row_by_row_is_not_corrected_yet() {
    let mut config = all_there(Level::Raid5, 4);
    config.failed = vec![Slot(1)];
    let mut bench = Bench::new(&config, |io| io.op == Op::Read && is_bad(io, 0));
    assert_eq!(
        bench.request(Op::Write, 0, 64),
        Err(IoError::Media),
        "there is nothing to make its parity from"
    );
    assert_eq!(bench.events, []);
}

#[test]
fn other_rows_than_those_of_a_bad_page_are_written_and_read_as_ever() {
    for (level, members) in LEVELS {
        let slot = first_slot(level, members);
        let asked = RefCell::new(Vec::new());
        let refuses = |io: &MemberIo| {
            asked.borrow_mut().push(*io);
            io.op == Op::Write && is_bad(io, slot)
        };
        let mut bench = Bench::new(&all_there(level, members), refuses);
        assert_eq!(bench.request(Op::Write, 0, CHUNK), Ok(()), "{level}");
        assert_eq!(bench.listed(slot), [BAD], "{level}");
        asked.borrow_mut().clear();
        assert_eq!(bench.request(Op::Write, CHUNK * 12, CHUNK), Ok(()), "{level}");
        assert_eq!(bench.request(Op::Read, CHUNK * 12, CHUNK * 2), Ok(()), "{level}");
        assert!(asked.borrow().iter().all(|io| io.range.count >= CHUNK), "{level}: {asked:?}");
    }
}

#[test]
fn the_log_is_struck_of_what_is_durable_alone_and_first_where_nobody_else_has_it() {
    let write = Request { id: RequestId(0), op: Op::Write, range: BAD, flags: Flags::default() };
    let write = Input::Request(write);
    let repair = Input::Admin { id: 0, command: AdminCommand::Sync(SyncAction::Repair) };
    for (level, members) in LEVELS {
        for (is_degraded, input) in [(false, write), (false, repair), (true, write)] {
            let mut config = all_there(level, members);
            if is_degraded {
                config.failed.push(Slot(members - 1));
                config.metadata.as_mut().unwrap().members[usize::from(members) - 1] = None;
            }
            let slot = first_slot(level, members);
            let known = config.metadata.as_mut().unwrap().members[usize::from(slot)].as_mut().unwrap();
            let listed = BadRange { start_sector: DATA_OFFSET + BAD.start, length_sectors: BAD.count };
            known.bad_blocks = Some(vec![listed]);
            let Superblock::V1(superblock) = &known.superblock else { unreachable!("of version 1") };
            let log_sector = known.sector + superblock.bblog_offset_sectors as u64;
            let mut bench = Bench::new(&config, |_| false);
            bench.input(input);
            assert_eq!(bench.listed(slot), [], "{level}");
            let last = |area, op, start: Option<u64>| {
                let is_it = |io: &MemberIo| {
                    io.member.0 == slot
                        && io.area == area
                        && io.op == op
                        && start.is_none_or(|s| s == io.range.start)
                };
                bench.asked.iter().rposition(is_it).unwrap()
            };
            let data = last(Area::Data, Op::Write, None);
            let log = last(Area::Device, Op::Write, Some(log_sector));
            let is_flush = |io: &MemberIo| io.member.0 == slot && io.op == Op::Flush;
            let asked = &bench.asked;
            assert!(asked[data..log].iter().any(is_flush), "{level} {input:?}: {asked:#?}");
            assert!(!is_degraded || bench.asked_before_answer > log, "{level}: {asked:#?}");
        }
    }
}
