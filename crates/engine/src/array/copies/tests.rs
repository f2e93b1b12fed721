//! Which copy is read, of members that md's write-mostly says to spare.

use std::collections::VecDeque;

use stripewise_format::bad_blocks::BadRange;
use stripewise_format::device_flags::DeviceFlags;

use crate::array::recorded::{DATA_OFFSET, config, superblock};
use crate::io::{
    Action, ActionQueue, AdminCommand, Area, Buf, Flags, Input, IoError, IoResult, MemberIo, Op, Request,
    RequestId, Verdict,
};
use crate::level::Level;
use crate::metadata::MemberMetadata;
use crate::units::{Instant, MemberIndex, SectorRange, Slot};
use crate::volume::{Volume, VolumeConfig};

struct Bench {
    volume: Volume,
    /// Reads of data that were sent, in order, answered or not; with the slot whose page they are read to if they are the
    /// array's own.
    reads: Vec<(MemberIo, Option<Slot>)>,
    /// Writes of data, likewise.
    writes: Vec<(MemberIo, Option<Slot>)>,
    completed: Vec<IoResult>,
    /// Members that give no data.
    refusing: Vec<u16>,
    verdict: Verdict,
}

impl Bench {
    fn new(config: &VolumeConfig) -> Self {
        Self {
            volume: Volume::new(config).unwrap(),
            reads: Vec::new(),
            writes: Vec::new(),
            completed: Vec::new(),
            refusing: Vec::new(),
            verdict: Verdict::Consistent,
        }
    }

    /// Gives an input and answers what it leads to.
    fn input(&mut self, input: Input) {
        let mut inputs = VecDeque::from([input]);
        while let Some(input) = inputs.pop_front() {
            for io in self.step(input, &mut inputs) {
                let is_refused = io.op == Op::Read && self.refusing.contains(&io.member.0);
                let result = if is_refused { Err(IoError::Media) } else { Ok(()) };
                inputs.push_back(Input::IoDone { tag: io.tag, result });
            }
        }
    }

    /// Gives an input; what members are asked for is left to be answered.
    fn step(&mut self, input: Input, inputs: &mut VecDeque<Input>) -> Vec<MemberIo> {
        let mut out = ActionQueue::default();
        self.volume.handle(Instant::ZERO, input, &mut out);
        self.volume.check_invariants();
        let mut ios = Vec::new();
        for action in &out.actions {
            match *action {
                Action::Io(io) => {
                    ios.push(io);
                    let page_of = |io: &MemberIo| match out.segs(io.segs).first()?.buf {
                        Buf::Page { slot, .. } => Some(slot),
                        _ => None,
                    };
                    match (io.area, io.op) {
                        (Area::Data, Op::Read) => self.reads.push((io, page_of(&io))),
                        (Area::Data, Op::Write) => self.writes.push((io, page_of(&io))),
                        _ => {}
                    }
                }
                Action::Compute(c) => {
                    inputs.push_back(Input::Computed { tag: c.tag, verdict: self.verdict });
                }
                Action::Complete { result, .. } => self.completed.push(result),
                Action::Replied { .. } | Action::Event(_) => {}
            }
        }
        ios
    }

    fn answer(&mut self, ios: &[MemberIo]) {
        for io in ios {
            self.input(Input::IoDone { tag: io.tag, result: Ok(()) });
        }
    }

    fn request(op: Op, id: u32, sector: u64) -> Input {
        let range = SectorRange::new(sector, 8);
        Input::Request(Request { id: RequestId(id), op, range, flags: Flags::default() })
    }

    /// Reads a page and says which members were asked for it, in order.
    fn read(&mut self, sector: u64) -> Vec<u16> {
        self.reads.clear();
        self.input(Self::request(Op::Read, 1, sector));
        let asked = self.reads.iter().filter(|(_, page_of)| page_of.is_none());
        asked.map(|(io, _)| io.member.0).collect()
    }

    /// Members that many reads here and there go to, which all are under way at once.
    fn readers(&mut self) -> Vec<u16> {
        let ios: Vec<_> = (0..64)
            .flat_map(|n| {
                let sector = (n * 5 + 1) % 32 * 8;
                self.step(Self::request(Op::Read, n as u32 + 10, sector), &mut VecDeque::new())
            })
            .collect();
        self.answer(&ios);
        let mut members: Vec<u16> = ios.iter().map(|io| io.member.0).collect();
        members.sort_unstable();
        members.dedup();
        members
    }

    fn fail(&mut self, slot: u16) {
        self.input(Input::Admin { id: 0, command: AdminCommand::Fail(Slot(slot)) });
    }
}

fn bench(level: Level, write_mostly: &[bool]) -> Bench {
    Bench::new(&config(level, write_mostly.len() as u16, write_mostly))
}

#[test]
fn reads_spare_members_that_are_write_mostly_and_writes_do_not() {
    assert_eq!(bench(Level::Raid1, &[false; 3]).readers(), [0, 1, 2]);
    assert_eq!(bench(Level::Raid1, &[true, false, false]).readers(), [1, 2]);
    assert_eq!(bench(Level::Raid1, &[false, true, true]).readers(), [0]);
    let mut bench = bench(Level::Raid1, &[true, false, false]);
    bench.input(Bench::request(Op::Write, 1, 0));
    assert_eq!(bench.writes.iter().map(|(io, _)| io.member.0).collect::<Vec<_>>(), [0, 1, 2]);
}

#[test]
fn zeroes_of_four_gibibytes_are_written_in_parts_whose_lengths_fit() {
    let sectors = (4 << 30) / 512;
    let mut config = config(Level::Raid1, 2, &[false; 2]);
    config.metadata = None;
    config.geometry.member_sectors = vec![sectors + 8; 2];
    let mut bench = Bench::new(&config);
    let range = SectorRange::new(0, sectors + 8);
    bench.input(Input::Request(Request {
        id: RequestId(1),
        op: Op::WriteZeroes,
        range,
        flags: Flags::default(),
    }));
    assert_eq!(bench.completed, [Ok(())]);
    let counts = |member: u16| {
        bench.writes.iter().filter(move |(io, _)| io.member.0 == member).map(|(io, _)| io.range.count)
    };
    assert_eq!(counts(0).sum::<u64>(), sectors + 8);
    assert!(counts(1).all(|count| count * 512 < 1 << 32));
}

#[test]
fn the_first_of_those_to_be_spared_is_read_when_nobody_else_is_left() {
    assert_eq!(bench(Level::Raid1, &[true; 3]).readers(), [0]);
    for (refusing, asked) in
        [(vec![2], vec![2, 3]), (vec![2, 3], vec![2, 3, 0]), (vec![0, 2, 3], vec![2, 3, 0, 1])]
    {
        let mut bench = bench(Level::Raid1, &[true, true, false, false]);
        bench.refusing = refusing;
        assert_eq!(bench.read(0), asked);
        assert_eq!(bench.completed, [Ok(())]);
        // What a member refuses is rewritten, from the same.
        let from = bench.writes.first().and_then(|(_, page_of)| *page_of);
        assert_eq!(from, asked.last().map(|member| Slot(*member)));
    }
    let mut bench = bench(Level::Raid1, &[true, true, false, false]);
    bench.fail(2);
    assert_eq!(bench.readers(), [3]);
    bench.fail(3);
    assert_eq!(bench.readers(), [0]);
    bench.fail(0);
    assert_eq!(bench.readers(), [1]);
}

#[test]
fn no_flush_is_done_of_an_array_that_lost_more_than_it_survives() {
    for (level, members, losses) in
        [(Level::Raid0, 2, 1), (Level::Raid1, 2, 2), (Level::Raid5, 3, 2), (Level::Raid6, 4, 3)]
    {
        for has_metadata in [false, true] {
            let mut config = config(level, members, &vec![false; members.into()]);
            config.metadata = config.metadata.filter(|_| has_metadata);
            let mut bench = Bench::new(&config);
            let flush = || Bench::request(Op::Flush, 1, 0);
            for slot in 0..losses {
                bench.input(flush());
                assert_eq!(bench.completed.pop(), Some(Ok(())), "{level} {slot}");
                bench.fail(slot);
            }
            bench.input(flush());
            assert!(bench.completed.pop().is_some_and(|result| result.is_err()), "{level} {has_metadata}");
        }
    }
}

#[test]
fn what_others_are_known_not_to_hold_is_read_from_a_member_to_be_spared() {
    let mut config = config(Level::Raid1, 2, &[true, false]);
    let bad = BadRange { start_sector: DATA_OFFSET + 16, length_sectors: 8 };
    config.metadata.as_mut().unwrap().members[1].as_mut().unwrap().bad_blocks = Some(vec![bad]);
    let mut bench = Bench::new(&config);
    assert_eq!((bench.read(8), bench.read(16), bench.read(24)), (vec![1], vec![0], vec![1]));
}

#[test]
fn what_a_replacement_is_known_not_to_hold_is_read_from_the_member_it_replaces() {
    let mut config = config(Level::Raid1, 2, &[false, false, false]);
    let bad = BadRange { start_sector: DATA_OFFSET + 16, length_sectors: 8 };
    config.metadata.as_mut().unwrap().members[2].as_mut().unwrap().bad_blocks = Some(vec![bad]);
    (config.spares, config.replacements) = (0, vec![(Slot(0), MemberIndex(2), 64)]);
    let mut bench = Bench::new(&config);
    bench.fail(1);
    assert_eq!((bench.read(8), bench.read(16), bench.read(24)), (vec![2], vec![0], vec![2]));
    bench.reads.clear();
    let range = SectorRange::new(8, 64);
    bench.input(Input::Request(Request { id: RequestId(1), op: Op::Read, range, flags: Flags::default() }));
    let parts: Vec<_> =
        bench.reads.iter().map(|(io, _)| (io.member.0, io.range.start, io.range.count)).collect();
    assert_eq!(parts, [(2, 8, 8), (0, 16, 8), (2, 24, 40), (0, 64, 8)]);
}

#[test]
fn a_member_to_be_spared_is_read_where_another_is_not_recovered_yet_and_not_to_recover_it_unless_it_is_the_only_one()
 {
    let mut one = config(Level::Raid1, 2, &[true, false]);
    one.recovering = vec![(Slot(1), 64)];
    let mut bench = Bench::new(&one);
    assert_eq!((bench.read(0), bench.read(64)), (vec![1], vec![0]));
    for (write_mostly, source) in [([true, false, false], 1), ([true, true, false], 0)] {
        let mut config = config(Level::Raid1, 3, &write_mostly);
        config.recovering = vec![(Slot(2), 64)];
        config.sync.start = true;
        let mut bench = Bench::new(&config);
        bench.input(Input::Timer);
        assert!(!bench.reads.is_empty());
        assert!(bench.reads.iter().all(|(io, _)| io.member == MemberIndex(source)), "{write_mostly:?}");
        assert_eq!(bench.volume.recovered_sectors(Slot(2)), None);
    }
}

#[test]
fn what_is_not_resynced_is_read_from_the_copy_that_the_resync_will_keep() {
    for (write_mostly, right) in [
        ([false, false, false], 0),
        ([true, false, false], 1),
        ([true, true, false], 2),
        ([true, true, true], 0),
    ] {
        let mut config = config(Level::Raid1, 3, &write_mostly);
        config.resync_from = Some(0);
        let mut bench = Bench::new(&config);
        assert_eq!(bench.readers(), [right], "{write_mostly:?}");
        config.sync.start = true;
        let mut bench = Bench::new(&config);
        bench.verdict = Verdict::Unlocated;
        bench.input(Input::Timer);
        assert_eq!(bench.volume.resync_due_from(), None);
        let from: Vec<_> = bench.writes.iter().map(|(_, page_of)| *page_of).collect();
        assert!(!from.is_empty() && from.iter().all(|slot| *slot == Some(Slot(right))), "{write_mostly:?}");
        assert!(bench.writes.iter().all(|(io, _)| io.member.0 != right), "{write_mostly:?}");
    }
}

#[test]
fn an_array_that_is_only_read_reads_what_its_resync_would_keep_and_waits_for_nothing() {
    for (level, readers) in [(Level::Raid1, &[0][..]), (Level::Raid10, &[0, 2])] {
        let mut config = config(level, 4, &[false; 4]);
        (config.resync_from, config.read_only, config.sync.start) = (Some(0), true, true);
        let mut bench = Bench::new(&config);
        assert_eq!(bench.readers(), readers, "{level}");
        assert_eq!(bench.volume.next_deadline(), None, "{level}: nothing is to be done");
    }
}

#[test]
fn the_flag_goes_with_the_member_and_not_with_the_slot() {
    let mut config = config(Level::Raid1, 2, &[false, false, true]);
    config.sync.start = true;
    let mut bench = Bench::new(&config);
    assert_eq!(bench.readers(), [0, 1]);
    bench.input(Input::Admin { id: 1, command: AdminCommand::Replace { slot: Slot(0), with: None } });
    assert_eq!(bench.volume.member_of(Slot(0)), Some(MemberIndex(2)));
    assert_eq!(bench.readers(), [1]);
    bench.input(Input::Admin { id: 2, command: AdminCommand::Remove(MemberIndex(0)) });
    let returning = MemberMetadata {
        superblock: superblock(Level::Raid1, 3, 2, true),
        sector: 8,
        bad_blocks: Some(Vec::new()),
    };
    bench.volume.introduce(MemberIndex(0), returning);
    bench.fail(1);
    bench.input(Input::Admin { id: 3, command: AdminCommand::AddSpare(MemberIndex(0)) });
    assert_eq!(bench.volume.member_of(Slot(1)), Some(MemberIndex(0)));
    assert_eq!(bench.readers(), [2], "both are to be spared, and the first slot's is read");
}

/// While a read goes from copy to copy, a spare takes the slot of the first that refused it.
#[test]
fn what_took_the_slot_of_a_member_that_was_tried_is_read() {
    let mut config = config(Level::Raid1, 2, &[false, false, false]);
    config.sync.start = true;
    let mut bench = Bench::new(&config);
    let gone = |io: &MemberIo| Input::IoDone { tag: io.tag, result: Err(IoError::Gone) };
    let first = bench.step(Bench::request(Op::Read, 1, 0), &mut VecDeque::new());
    let mut inputs = VecDeque::new();
    let ios = bench.step(gone(&first[0]), &mut inputs);
    let (second, others): (Vec<MemberIo>, Vec<MemberIo>) =
        ios.into_iter().partition(|io| io.area == Area::Data && io.range.count == 8);
    assert_eq!((second.len(), first[0].member == second[0].member), (1, false));
    bench.answer(&others);
    assert_eq!(bench.volume.member_of(Slot(first[0].member.0)), Some(MemberIndex(2)), "and is recovered");
    bench.input(gone(&second[0]));
    assert_eq!((&bench.completed[..], bench.reads.last().unwrap().0.member), (&[Ok(())][..], MemberIndex(2)));
}

#[test]
fn other_levels_read_all_their_members_alike() {
    assert_eq!(bench(Level::Raid10, &[true, false, false, false]).readers(), [0, 1, 2, 3]);
}

#[test]
fn flags_that_a_running_array_is_given_are_heeded_at_once_and_recorded() {
    let flags = |is_write_mostly, is_failfast| DeviceFlags { is_write_mostly, is_failfast };
    for level in [Level::Raid1, Level::Raid5] {
        let mut bench = Bench::new(&config(level, 3, &[false, false, false, false]));
        let on_members = |bench: &Bench| -> Vec<DeviceFlags> {
            let members = bench.volume.superblocks();
            members.iter().flatten().map(|member| member.superblock.device_flags()).collect()
        };
        for (member, given, readers) in [
            (0, flags(true, false), vec![1, 2]),
            (3, flags(true, true), vec![1, 2]),
            (0, flags(false, true), vec![0, 1, 2]),
        ] {
            let before = on_members(&bench);
            let command = AdminCommand::SetFlags { member: MemberIndex(member), flags: given };
            let ios = bench.step(Input::Admin { id: 1, command }, &mut VecDeque::new());
            if level == Level::Raid1 {
                assert_eq!(bench.readers(), readers);
            }
            assert!(!bench.volume.is_recorded());
            bench.answer(&ios);
            assert!(bench.volume.is_recorded());
            let after = on_members(&bench);
            assert_eq!(after[usize::from(member)], given);
            let others = |flags: &[DeviceFlags]| -> Vec<DeviceFlags> {
                (0..4).filter(|n| *n != usize::from(member)).map(|n| flags[n]).collect()
            };
            assert_eq!(others(&before), others(&after));
        }
    }
}
