//! The order in which members are told, with members that answer at once and in order.

use std::collections::VecDeque;

use stripewise_format::bitmap::{BitmapSuperblock, Bits};
use stripewise_format::level::{Layout, Level};
use stripewise_format::superblock::Superblock;
use stripewise_format::superblock_1::{Features, MAX_SECTOR, Role, Superblock1};
use stripewise_format::time::Timestamp;
use stripewise_format::uuid::Uuid;

use super::{BitmapConfig, MemberMetadata, MetadataConfig, SAFE_MODE_DELAY};
use crate::geometry::GeometrySpec;
use crate::io::{
    Action, ActionQueue, AdminCommand, AdminReply, Area, Flags, Input, IoError, IoResult, Kernel, Op,
    Request, RequestId, SyncAction, Verdict,
};
use crate::policy::Policy;
use crate::units::{Instant, MemberIndex, Nanos, SectorRange, Slot};
use crate::volume::{Volume, VolumeConfig};

const SUPERBLOCK_SECTOR: u64 = 8;
const BITMAP_SECTOR: u64 = 16;

/// What was asked of members, in order; parity and data alike are `Data`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Told {
    Flush,
    Bitmap,
    Superblock { events: u64, is_clean: bool },
    Data,
    Answer(IoResult),
    Stopped,
}

struct Bench {
    volume: Volume,
    now: Instant,
    told: Vec<(u16, Told)>,
    /// A member that fails whatever it is asked.
    broken: Option<u16>,
    superblocks: Vec<Vec<u8>>,
    /// Recovery offsets as superblocks said them, by member.
    recovered: Vec<(u16, u64)>,
    /// Comparisons of rows.
    checks: usize,
    /// Answers to what is asked for the metadata's sake, while they are kept back.
    kept_back: Option<VecDeque<Input>>,
    ids: u32,
}

fn superblock(level: Level, member: u16, members: u16, has_bitmap: bool) -> Superblock1 {
    let mut superblock = Superblock1::new(level, members.into(), 0, Uuid([7; 16]));
    superblock.layout = Layout::default_of(level).number() as u32;
    superblock.chunk_sectors = 128;
    superblock.size_sectors = 1 << 14;
    superblock.data_offset_sectors = 2048;
    superblock.data_size_sectors = 1 << 14;
    superblock.super_offset_sectors = SUPERBLOCK_SECTOR;
    superblock.dev_number = member.into();
    superblock.events = 10;
    for slot in 0..members {
        superblock.dev_roles[usize::from(slot)] = Role::Slot(slot);
    }
    if has_bitmap {
        superblock.set_bitmap((BITMAP_SECTOR - SUPERBLOCK_SECTOR) as i32);
    }
    superblock
}

fn bench(members: u16, has_bitmap: bool) -> Bench {
    bench_of(members, has_bitmap, |_| {})
}

/// As [`bench`], of an array that is not as it should be.
fn bench_of(members: u16, has_bitmap: bool, change: impl FnOnce(&mut VolumeConfig)) -> Bench {
    let geometry = GeometrySpec {
        level: Level::Raid5,
        layout: Layout::default_of(Level::Raid5),
        chunk_sectors: 128,
        member_sectors: vec![1 << 14; members.into()],
    };
    let metadata = MetadataConfig {
        members: (0..members)
            .map(|m| {
                let superblock = superblock(Level::Raid5, m, members, has_bitmap);
                Some(MemberMetadata {
                    bad_blocks: None,
                    superblock: Superblock::V1(Box::new(superblock)),
                    sector: SUPERBLOCK_SECTOR,
                })
            })
            .collect(),
        bitmap: has_bitmap.then(|| {
            let mut superblock = BitmapSuperblock::new(Uuid([7; 16]), 1 << 14, 1 << 20);
            superblock.events = 10;
            BitmapConfig { superblock, bits: Bits::clear(8) }
        }),
        journal: None,
        clock_start: Timestamp::from_seconds(1_000),
        safe_mode_delay: SAFE_MODE_DELAY,
    };
    let mut config =
        VolumeConfig { metadata: Some(metadata), ..VolumeConfig::new(geometry, Policy::stripewise()) };
    change(&mut config);
    Bench {
        volume: Volume::new(&config).unwrap(),
        now: Instant::ZERO,
        told: Vec::new(),
        broken: None,
        superblocks: vec![Vec::new(); members.into()],
        recovered: Vec::new(),
        checks: 0,
        kept_back: None,
        ids: 0,
    }
}

impl Bench {
    /// Gives an input and answers what it leads to.
    fn input(&mut self, input: Input) {
        let mut inputs = VecDeque::from([input]);
        while let Some(input) = inputs.pop_front() {
            let mut out = ActionQueue::default();
            self.volume.handle(self.now, input, &mut out);
            self.volume.check_invariants();
            for action in &out.actions {
                match *action {
                    Action::Io(io) => {
                        let told = match (io.area, io.op) {
                            (_, Op::Flush) => Told::Flush,
                            (Area::Data, _) => Told::Data,
                            (Area::Device, _) if io.range.start == SUPERBLOCK_SECTOR => {
                                let segs = out.segs(io.segs);
                                assert_eq!(segs.len(), 1);
                                let bytes = out.metadata[..].to_vec();
                                let offset = match segs[0].buf {
                                    crate::io::Buf::Metadata { offset } => offset as usize,
                                    other => panic!("{other:?} in a superblock"),
                                };
                                let bytes = &bytes[offset..offset + segs[0].bytes as usize];
                                let place = io.member.index();
                                let places = self.superblocks.len().max(place + 1);
                                self.superblocks.resize(places, Vec::new());
                                self.superblocks[place] = bytes.to_vec();
                                let mut block = bytes.to_vec();
                                block.resize(4096, 0);
                                let parsed = Superblock1::parse(&block, SUPERBLOCK_SECTOR).unwrap();
                                assert!(io.fua, "a superblock is durable when it is written");
                                self.recovered.extend(parsed.recovered_sectors().map(|s| (io.member.0, s)));
                                Told::Superblock { events: parsed.events, is_clean: parsed.is_clean() }
                            }
                            (Area::Device, _) => Told::Bitmap,
                        };
                        self.told.push((io.member.0, told));
                        let result =
                            if self.broken == Some(io.member.0) { Err(IoError::Gone) } else { Ok(()) };
                        let answer = Input::IoDone { tag: io.tag, result };
                        match &mut self.kept_back {
                            Some(kept) if io.area == Area::Device => kept.push_back(answer),
                            _ => inputs.push_back(answer),
                        }
                    }
                    Action::Compute(compute) => {
                        self.checks += usize::from(compute.kernel == Kernel::Check);
                        inputs.push_back(Input::Computed { tag: compute.tag, verdict: Verdict::Consistent });
                    }
                    Action::Complete { result, .. } => self.told.push((0, Told::Answer(result))),
                    Action::Replied { reply, .. } => {
                        assert_eq!(reply, AdminReply::Done);
                        self.told.push((0, Told::Stopped));
                    }
                    Action::Event(_) => {}
                }
            }
        }
    }

    fn write(&mut self, sector: u64) -> Vec<Told> {
        self.ask(Op::Write, SectorRange::new(sector, 8), Flags { sync: true, ..Flags::default() })
    }

    fn read(&mut self, sector: u64) -> Vec<Told> {
        self.ask(Op::Read, SectorRange::new(sector, 8), Flags::default())
    }

    fn ask(&mut self, op: Op, range: SectorRange, flags: Flags) -> Vec<Told> {
        self.ids += 1;
        self.input(Input::Request(Request { id: RequestId(self.ids), op, range, flags }));
        self.take()
    }

    /// What was told since, each kind once for a run of them.
    fn take(&mut self) -> Vec<Told> {
        let mut told: Vec<Told> = self.told.drain(..).map(|(_, told)| told).collect();
        told.dedup();
        told
    }

    /// Lets time pass until the engine has nothing to do.
    fn rest(&mut self) -> Vec<Told> {
        self.rest_without_taking();
        self.take()
    }

    fn rest_without_taking(&mut self) {
        for _ in 0..100 {
            let Some(deadline) = self.volume.next_deadline() else { break };
            self.now = self.now.max(deadline);
            self.input(Input::Timer);
        }
    }

    fn superblock(&self, member: u16) -> Superblock1 {
        let mut block = self.superblocks[usize::from(member)].clone();
        block.resize(4096, 0);
        Superblock1::parse(&block, SUPERBLOCK_SECTOR).unwrap()
    }
}

const fn active(events: u64) -> Told {
    Told::Superblock { events, is_clean: false }
}

const fn clean(events: u64) -> Told {
    Told::Superblock { events, is_clean: true }
}

/// The superblock of a member of the configuration.
fn superblock_of(config: &mut VolumeConfig, member: usize) -> &mut Superblock1 {
    match &mut config.metadata.as_mut().unwrap().members[member].as_mut().unwrap().superblock {
        Superblock::V1(superblock) => superblock,
        Superblock::V0(_) => panic!("made of version 1"),
    }
}

#[test]
fn what_was_recovered_is_on_the_medium_before_superblocks_say_so() {
    let mut bench = bench_of(3, false, |config| {
        config.recovering = vec![(Slot(2), 0)];
        superblock_of(config, 2).features |= Features::RECOVERY_OFFSET;
    });
    let told = bench.rest();
    let last = |kind: Told| told.iter().rposition(|told| *told == kind).unwrap();
    let said = told.iter().rposition(|told| matches!(told, Told::Superblock { .. })).unwrap();
    assert!(last(Told::Data) < last(Told::Flush) && last(Told::Flush) < said, "{told:?}");
    assert_eq!(bench.superblock(2).recovered_sectors(), None);
    assert_eq!(bench.superblock(2).role(), Role::Slot(2));
}

/// A spare was recovered and failed, and another took its slot, all before the first superblock of it was written.
#[test]
fn who_is_said_to_be_recovered_was_flushed_though_another_has_the_slot_by_now() {
    let mut bench = bench_of(3, false, |config| {
        config.spares = 2;
        let members = &mut config.metadata.as_mut().unwrap().members;
        for spare in 3..5 {
            let mut superblock = superblock(Level::Raid5, 0, 3, false);
            superblock.dev_number = spare;
            let superblock = Superblock::V1(Box::new(superblock));
            members.push(Some(MemberMetadata { bad_blocks: None, superblock, sector: SUPERBLOCK_SECTOR }));
        }
    });
    let fail = Input::Admin { id: 0, command: AdminCommand::Fail(Slot(1)) };
    bench.kept_back = Some(VecDeque::new());
    bench.input(fail);
    assert_eq!(bench.volume.recovered_sectors(Slot(1)), None, "a spare is recovered");
    bench.input(fail);
    assert_eq!(bench.volume.recovered_sectors(Slot(1)), None, "another is recovered");
    for answer in bench.kept_back.take().unwrap() {
        bench.input(answer);
    }
    bench.rest_without_taking();
    let said = |member: u16, told: &[(u16, Told)]| told.contains(&(member, Told::Flush));
    for (member, sectors) in bench.recovered.clone() {
        let named: Vec<_> = bench.told.iter().filter(|(m, _)| *m == member).collect();
        assert!(sectors == 0 || said(member, &bench.told), "member {member} at {sectors}: {named:?}");
    }
    assert!(bench.recovered.iter().any(|(_, sectors)| *sectors > 0), "{:?}", bench.recovered);
}

#[test]
fn a_recovery_by_the_bitmap_is_called_so_until_it_ends() {
    let mut bench = bench_of(3, true, |config| {
        config.recovering = vec![(Slot(2), 0)];
        config.returned = vec![Slot(2)];
        config.sync.start = false;
        let superblock = superblock_of(config, 2);
        superblock.features |= Features::RECOVERY_OFFSET | Features::RECOVERY_BITMAP;
        superblock.events = 4;
    });
    bench.input(Input::Admin { id: 0, command: AdminCommand::Stop });
    assert!(bench.superblock(2).features.contains(Features::RECOVERY_BITMAP));
    assert_eq!(bench.superblock(0).events, bench.superblock(2).events, "its own was of another time");
}

#[test]
fn superblocks_of_different_times_are_written_anew_and_others_are_left_alone() {
    let mut alike = bench(3, false);
    assert_eq!(alike.rest(), []);
    let mut apart = bench_of(3, false, |config| superblock_of(config, 1).events = 9);
    apart.input(Input::Timer);
    assert_eq!(apart.told, [(1, clean(10)), (0, clean(11)), (1, clean(11)), (2, clean(11))]);
}

/// A resync that was stopped on its way: a write before that place is under way, and the superblock must not say that all is
/// in sync there.
#[test]
fn an_array_that_was_stopped_during_a_resync_is_active_before_its_first_write() {
    for has_bitmap in [false, true] {
        let mut bench = bench_of(3, has_bitmap, |config| {
            (0..3).for_each(|member| superblock_of(config, member).resync_offset_sectors = 64);
            (config.resync_from, config.sync.start) = (Some(64), false);
            if let Some(bitmap) = config.metadata.as_mut().unwrap().bitmap.as_mut() {
                bitmap.bits.set(0..bitmap.bits.count());
            }
        });
        let told = bench.write(0);
        let data = told.iter().position(|told| *told == Told::Data).unwrap();
        assert!(told[..data].contains(&active(11)), "{told:?}");
        assert_eq!(bench.superblock(0).resync_offset_sectors, 0);
        bench.input(Input::Admin { id: 0, command: AdminCommand::Stop });
        assert_eq!(bench.superblock(0).resync_offset_sectors, 64, "it goes on from there");
    }
}

/// What a member that comes back has missed is less than what may disagree, and both go by the same bits.
#[test]
fn a_resync_that_is_due_is_not_over_with_a_recovery_by_the_bitmap() {
    let mut bench = bench_of(3, true, |config| {
        (0..3).for_each(|member| superblock_of(config, member).resync_offset_sectors = 0);
        (config.resync_from, config.sync.start) = (Some(0), false);
        config.metadata.as_mut().unwrap().bitmap.as_mut().unwrap().bits.set(0..1);
    });
    let (slot, member) = (Slot(1), MemberIndex(1));
    bench.input(Input::Admin { id: 0, command: AdminCommand::Fail(slot) });
    bench.input(Input::Admin { id: 0, command: AdminCommand::ReAdd { slot, member } });
    assert_eq!(bench.checks, 0);
    bench.input(Input::Admin { id: 0, command: AdminCommand::Sync(SyncAction::Idle) });
    assert_eq!((bench.volume.recovered_sectors(slot), bench.volume.resync_due_from()), (None, None));
    assert!(bench.checks > 0, "rows are compared");
}

/// Gives a RAID-5 of three a spare.
fn add_spare(config: &mut VolumeConfig, has_bitmap: bool) {
    let mut own = superblock(Level::Raid5, 3, 3, has_bitmap);
    own.dev_roles.resize(4, Role::Spare);
    let superblock = Superblock::V1(Box::new(own));
    let spare = MemberMetadata { superblock, sector: SUPERBLOCK_SECTOR, bad_blocks: None };
    config.metadata.as_mut().unwrap().members.push(Some(spare));
    config.spares = 1;
}

#[test]
fn a_spare_does_not_say_whether_the_array_is_clean() {
    let mut bench = bench_of(3, true, |config| {
        for member in 0..3 {
            superblock_of(config, member).resync_offset_sectors = 0;
        }
        config.resync_from = Some(0);
        config.metadata.as_mut().unwrap().bitmap.as_mut().unwrap().bits.set(0..1);
        add_spare(config, true);
    });
    bench.input(Input::Timer);
    assert!(bench.told.iter().any(|(_, told)| *told == Told::Data), "what the bit stands for is compared");
}

#[test]
fn a_member_that_takes_anothers_slot_is_told_before_the_others() {
    let mut bench = bench_of(3, false, |config| add_spare(config, false));
    bench.input(Input::Admin { id: 0, command: AdminCommand::Replace { slot: Slot(1), with: None } });
    while let Some(deadline) = bench.volume.next_deadline() {
        bench.now = bench.now.max(deadline);
        bench.input(Input::Timer);
    }
    // All are told once more, so that the one that left is two events behind.
    let events = bench.superblock(3).events - 1;
    let told = bench.told.iter().filter(|(_, told)| *told == clean(events)).map(|(member, _)| *member);
    assert_eq!(told.collect::<Vec<_>>(), [3, 0, 2]);
    assert_eq!((bench.superblock(3).role(), bench.superblock(0).dev_roles[1]), (Role::Slot(1), Role::Faulty));
}

/// An array of three with a spare, written to, whose answers are given one by one.
fn with_a_spare_by_steps() -> Bench {
    let mut bench = bench_of(3, false, |config| add_spare(config, false));
    bench.write(8192);
    bench.kept_back = Some(VecDeque::new());
    bench
}

#[test]
fn a_member_that_fails_as_it_joins_is_two_events_behind() {
    let mut bench = with_a_spare_by_steps();
    bench.input(Input::Admin { id: 0, command: AdminCommand::Replace { slot: Slot(1), with: None } });
    let has_joined = |bench: &Bench| {
        !bench.superblocks[3].is_empty()
            && bench.superblock(3).role() == Role::Slot(1)
            && !bench.superblock(3).features.contains(Features::REPLACEMENT)
    };
    while !has_joined(&bench) {
        match bench.kept_back.as_mut().unwrap().pop_front() {
            Some(answer) => bench.input(answer),
            // Keeps the array active.
            None => drop(bench.write(8192)),
        }
    }
    let joined_at = bench.superblock(3).events;
    assert!(joined_at > bench.superblock(0).events, "it is told first");
    bench.input(Input::Admin { id: 0, command: AdminCommand::Fail(Slot(1)) });
    for answer in bench.kept_back.take().unwrap() {
        bench.input(answer);
    }
    bench.write(0);
    assert_eq!((bench.superblock(3).events, bench.superblock(0).events), (joined_at, joined_at + 2));
}

#[test]
fn that_a_replacement_is_missing_is_said_before_anything_is_written() {
    let mut bench = bench_of(3, false, |config| {
        for member in 0..3 {
            superblock_of(config, member).dev_roles[3] = Role::Slot(1);
        }
    });
    assert_eq!(bench.write(0)[..4], [active(11), active(12), active(13), Told::Data]);
    assert_eq!(bench.superblock(0).dev_roles[3], Role::Spare);
}

#[test]
fn a_replacement_is_filled_again_where_writes_may_have_been_under_way() {
    for (has_bitmap, is_clean, first) in
        [(true, false, 2048), (false, false, 0), (true, true, 4096), (false, true, 4096)]
    {
        let mut bench = bench_of(3, has_bitmap, |config| {
            for member in 0..3 {
                superblock_of(config, member).resync_offset_sectors = if is_clean { MAX_SECTOR } else { 0 };
            }
            let mut own = superblock(Level::Raid5, 3, 3, has_bitmap);
            own.dev_roles[3] = Role::Slot(1);
            own.features |= Features::REPLACEMENT | Features::RECOVERY_OFFSET;
            own.recovery_offset_sectors = 4096;
            let superblock = Superblock::V1(Box::new(own));
            let replacement = MemberMetadata { superblock, sector: SUPERBLOCK_SECTOR, bad_blocks: None };
            let metadata = config.metadata.as_mut().unwrap();
            metadata.members.push(Some(replacement));
            if let Some(bitmap) = &mut metadata.bitmap {
                bitmap.bits.set(1..2);
            }
            config.replacements = vec![(Slot(1), MemberIndex(3), 4096)];
        });
        // What is told first is how far it was filled, whatever it comes to later.
        bench.write(0);
        bench.rest();
        assert_eq!(bench.recovered.first(), Some(&(3, first)), "bitmap {has_bitmap}, clean {is_clean}");
        assert!(bench.recovered.is_sorted(), "{:?}", bench.recovered);
        assert_eq!(
            (bench.superblock(3).role(), bench.superblock(3).recovered_sectors()),
            (Role::Slot(1), None)
        );
    }
}

#[test]
fn that_a_member_is_missing_is_said_before_anything_is_written() {
    for is_clean in [false, true] {
        let mut bench = bench_of(5, false, |config| {
            for member in 0..5 {
                superblock_of(config, member).resync_offset_sectors = if is_clean { MAX_SECTOR } else { 0 };
            }
            // It is back after the next crash, with ten events, or eleven if the last round reached it alone: mdadm takes a member
            // that is one event behind as up to date.
            config.metadata.as_mut().unwrap().members[4] = None;
            config.failed = vec![Slot(4)];
        });
        let told = bench.write(0);
        assert_eq!(told[..4], [active(11), active(12), active(13), Told::Data], "clean {is_clean}");
        assert_eq!(bench.superblock(0).dev_roles[4], Role::Spare, "as Linux calls one that it does not see");
    }
}

#[test]
fn an_array_is_not_said_to_be_clean_with_a_member_that_did_not_flush() {
    let mut bench = bench(5, false);
    bench.write(0);
    bench.broken = Some(4);
    assert_eq!(bench.rest(), [Told::Flush, clean(12), clean(13)]);
    assert_eq!(bench.superblock(0).dev_roles[4], Role::Faulty);
}

#[test]
fn the_array_is_active_before_its_first_write_and_clean_after_a_rest() {
    let mut bench = bench(5, false);
    assert_eq!(bench.write(0), [active(11), Told::Data, Told::Answer(Ok(()))]);
    bench.now = bench.now + Nanos::from_millis(100);
    bench.input(Input::Timer);
    assert_eq!(bench.write(4096), [Told::Data, Told::Answer(Ok(()))], "still active");
    let before = bench.now;
    assert_eq!(bench.rest(), [Told::Flush, clean(12)]);
    assert_eq!(bench.now, before + SAFE_MODE_DELAY);
    assert_eq!(bench.superblock(3).utime.seconds(), 1_000, "the clock has not yet passed a second");
    assert_eq!(bench.write(0)[0], active(13));
}

#[test]
fn bits_are_on_the_members_before_a_write_and_cleared_after_a_flush() {
    let mut bench = bench(5, true);
    let told = bench.write(0);
    assert_eq!(told, [Told::Bitmap, active(11), Told::Data, Told::Answer(Ok(()))]);
    assert_eq!(bench.write(8), [Told::Data, Told::Answer(Ok(()))], "the same bit");
    let told = bench.write(20_000);
    assert_eq!(told, [Told::Bitmap, Told::Data, Told::Answer(Ok(()))], "another bit");
    let told = bench.rest();
    assert_eq!(told[..3], [Told::Flush, Told::Bitmap, clean(12)]);
    assert_eq!(told[3..], [Told::Flush, Told::Bitmap], "cleared when nothing was written for two rounds");
    assert!(bench.volume.is_idle());
}

#[test]
fn a_write_that_saw_a_member_fail_is_acknowledged_after_the_others_say_so() {
    let mut bench = bench(5, false);
    bench.write(0);
    bench.broken = Some(4);
    let told = bench.write(0);
    assert!(told.starts_with(&[Told::Data]), "{told:?}");
    assert_eq!(told[told.len() - 3..], [active(12), active(13), Told::Answer(Ok(()))]);
    assert_eq!(bench.superblock(0).dev_roles[4], Role::Faulty);
    assert_eq!(
        bench.superblock(4).events,
        11,
        "the failed member is not told, and two events behind when it is answered"
    );
}

#[test]
fn a_member_that_takes_no_superblock_fails_and_the_others_say_so() {
    let mut bench = bench(4, false);
    bench.broken = Some(1);
    let told = bench.write(0);
    assert_eq!(told.last(), Some(&Told::Answer(Ok(()))));
    let superblocks: Vec<u64> = told
        .iter()
        .filter_map(|t| if let Told::Superblock { events, .. } = t { Some(*events) } else { None })
        .collect();
    assert_eq!(superblocks, [11, 12, 13]);
    assert_eq!(bench.superblock(3).dev_roles[1], Role::Faulty);
}

#[test]
fn a_stop_leaves_the_array_clean_and_takes_no_more_writes() {
    let mut bench = bench(5, true);
    bench.write(0);
    bench.input(Input::Admin { id: 1, command: AdminCommand::Stop });
    let told = bench.take();
    assert_eq!(told.last(), Some(&Told::Stopped));
    assert!(told.contains(&clean(12)));
    let bitmap = told.iter().rposition(|t| *t == Told::Bitmap).unwrap();
    assert!(told[..bitmap].contains(&Told::Flush), "bits are cleared after a flush");
    assert_eq!(bench.write(0), [Told::Answer(Err(IoError::ReadOnly))]);
    assert_eq!(bench.superblock(4).resync_offset_sectors, MAX_SECTOR);
}

#[test]
fn an_array_that_lost_too_much_records_nothing_more() {
    let mut bench = bench(5, false);
    bench.write(0);
    for slot in [0, 1] {
        bench.input(Input::Admin { id: 1, command: AdminCommand::Fail(Slot(slot)) });
    }
    bench.take();
    let told = bench.write(0);
    assert_eq!(told, [Told::Answer(Err(IoError::ReadOnly))]);
    assert_eq!(bench.superblock(4).dev_roles[0], Role::Faulty, "the first failure was recorded");
    assert_eq!(bench.superblock(4).dev_roles[1], Role::Slot(1), "the last one is not: --force can go back");
    assert_eq!(bench.rest(), []);
}

fn two_copies(has_bitmap: bool) -> Bench {
    bench_of(2, has_bitmap, |config| {
        config.geometry.level = Level::Raid1;
        config.geometry.layout = Layout::default_of(Level::Raid1);
        config.geometry.chunk_sectors = 0;
        for (number, member) in (0..).zip(&mut config.metadata.as_mut().unwrap().members) {
            let superblock = superblock(Level::Raid1, number, 2, has_bitmap);
            member.as_mut().unwrap().superblock = Superblock::V1(Box::new(superblock));
        }
    })
}

/// Two copies of everything, of which the first has failed and is recorded.
fn last_copy() -> Bench {
    let mut bench = two_copies(true);
    bench.write(0);
    bench.input(Input::Admin { id: 1, command: AdminCommand::Fail(Slot(0)) });
    bench.take();
    bench
}

/// As Linux does: what it has nobody else has.
#[test]
fn the_last_copy_takes_no_more_writes_and_is_read() {
    let mut bench = last_copy();
    bench.broken = Some(1);
    assert_eq!(bench.write(8), [Told::Data, Told::Answer(Err(IoError::Gone))]);
    bench.broken = None;
    assert_eq!(bench.write(8), [Told::Answer(Err(IoError::ReadOnly))]);
    assert_eq!(bench.read(0), [Told::Data, Told::Answer(Ok(()))]);
    let flushed = bench.ask(Op::Flush, SectorRange::new(0, 0), Flags::default());
    assert_eq!(flushed, [Told::Flush, Told::Answer(Err(IoError::ReadOnly))], "what was written may be lost");
    assert_eq!(bench.superblock(1).dev_roles[1], Role::Slot(1));
    bench.input(Input::Admin { id: 2, command: AdminCommand::Fail(Slot(1)) });
    assert!(bench.volume.member_of(Slot(1)).is_none(), "as asked");
}

#[test]
fn the_last_copy_does_not_fail_for_its_metadata() {
    let mut bench = last_copy();
    bench.broken = Some(1);
    // A bit of the bitmap that is not set yet.
    assert_eq!(bench.write(1 << 13), [Told::Bitmap, Told::Answer(Err(IoError::ReadOnly))]);
    bench.broken = None;
    assert_eq!(bench.read(0), [Told::Data, Told::Answer(Ok(()))]);
}

/// A failure that is never recorded, for which nothing may be said to be done: the member would come back with its old
/// content.
#[test]
fn what_waits_for_a_record_that_is_never_made_was_not_done() {
    let mut bench = two_copies(false);
    bench.write(0);
    bench.take();
    bench.broken = Some(0);
    bench.kept_back = Some(VecDeque::new());
    let told = bench.write(8);
    assert!(!told.iter().any(|told| matches!(told, Told::Answer(_))), "{told:?}");
    // The superblock that says so does not reach the other.
    bench.broken = Some(1);
    let kept = bench.kept_back.take().unwrap();
    for answer in kept {
        let Input::IoDone { tag, .. } = answer else { panic!("{answer:?}") };
        bench.input(Input::IoDone { tag, result: Err(IoError::Gone) });
    }
    assert_eq!(bench.take(), [Told::Answer(Err(IoError::ReadOnly))]);
}

#[test]
fn a_member_that_comes_in_gets_its_superblock_and_with_its_slot_the_bitmap() {
    let mut bench = bench(3, true);
    let mut own = superblock(Level::Raid5, 5, 3, true);
    own.dev_number = 5;
    own.dev_roles.resize(6, Role::Spare);
    let superblock = Superblock::V1(Box::new(own));
    let member = MemberIndex(3);
    bench
        .volume
        .introduce(member, MemberMetadata { superblock, sector: SUPERBLOCK_SECTOR, bad_blocks: None });
    bench.input(Input::Admin { id: 1, command: AdminCommand::AddSpare(member) });
    assert!(bench.told.contains(&(3, Told::Superblock { events: 11, is_clean: true })), "{:?}", bench.told);
    assert!(!bench.told.contains(&(3, Told::Bitmap)), "a spare's bitmap says nothing");
    assert!(bench.volume.is_recorded());
    let role = |bench: &Bench, of: usize, number: usize| {
        let mut block = bench.superblocks[of].clone();
        block.resize(4096, 0);
        Superblock1::parse(&block, SUPERBLOCK_SECTOR).unwrap().dev_roles[number]
    };
    assert_eq!(role(&bench, 0, 5), Role::Spare);
    bench.told.clear();
    bench.input(Input::Admin { id: 2, command: AdminCommand::Fail(Slot(1)) });
    assert!(bench.told.contains(&(3, Told::Bitmap)), "{:?}", bench.told);
    assert_eq!(bench.volume.member_of(Slot(1)), Some(member));
    assert_eq!((role(&bench, 0, 1), role(&bench, 0, 5)), (Role::Faulty, Role::Slot(1)));
    assert_eq!(role(&bench, 3, 5), Role::Slot(1));
}

#[test]
fn a_number_without_a_row_or_of_another_device_is_given_anew() {
    let with_spares = |config: &mut VolumeConfig| {
        let members = &mut config.metadata.as_mut().unwrap().members;
        for number in [2000, u32::MAX, 1] {
            let mut own = superblock(Level::Raid5, 0, 3, false);
            own.dev_number = number;
            own.dev_roles.fill(Role::Spare);
            let superblock = Superblock::V1(Box::new(own));
            members.push(Some(MemberMetadata { bad_blocks: None, superblock, sector: SUPERBLOCK_SECTOR }));
        }
    };
    let mut bench = bench_of(3, false, with_spares);
    bench.write(0);
    let numbers: Vec<u32> = (0..6).map(|member| bench.superblock(member).dev_number).collect();
    assert_eq!(numbers, [0, 1, 2, 3, 4, 5]);
    let roles = bench.superblock(1).dev_roles;
    assert_eq!(roles[..3], [Role::Slot(0), Role::Slot(1), Role::Slot(2)]);
    assert!(roles[3..].iter().all(|role| *role == Role::Spare));
    assert!(roles.len() <= 384, "{}", roles.len());
}

/// A change of the array was cut off before its spare's superblock, or was begun with it alone.
#[test]
fn a_spare_says_of_the_array_what_the_members_say() {
    for events in [9, 10, 11] {
        let mut bench = bench_of(3, true, |config| {
            let mut own = superblock(Level::Raid5, 3, 3, false);
            (own.events, own.size_sectors, own.chunk_sectors) = (events, 1 << 13, 32);
            own.features |= Features::RESHAPE_ACTIVE;
            (own.new_level, own.new_layout, own.new_chunk_sectors) = (5, 2, 64);
            own.dev_roles.fill(Role::Spare);
            own.device_uuid = Uuid([9; 16]);
            let superblock = Superblock::V1(Box::new(own));
            let spare = MemberMetadata { bad_blocks: None, superblock, sector: SUPERBLOCK_SECTOR };
            config.metadata.as_mut().unwrap().members.push(Some(spare));
            config.spares = 1;
        });
        bench.write(0);
        bench.input(Input::Admin { id: 1, command: AdminCommand::Fail(Slot(1)) });
        assert!(bench.told.contains(&(3, Told::Bitmap)), "{events}: it has the array's bitmap with the slot");
        bench.rest();
        let (spare, member) = (bench.superblock(3), bench.superblock(0));
        let array = |of: &Superblock1| (of.as_it_is(), of.bitmap_offset_sectors(), of.reshape().is_some());
        assert_eq!(array(&spare), array(&member), "{events}");
        assert_eq!((spare.role(), spare.device_uuid), (Role::Slot(1), Uuid([9; 16])));
    }
}
