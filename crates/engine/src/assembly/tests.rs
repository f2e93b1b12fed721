//! A table of situations, each on superblocks made here, and assembly of whatever damage leaves readable.

use stripewise_format::bitmap::BitmapSuperblock;
use stripewise_format::superblock::Superblock;
use stripewise_format::superblock_1::{Features, MAX_SECTOR, Role, Superblock1};
use stripewise_format::uuid::Uuid;

use super::{
    Assembly, AssemblyError, Candidate, Consistency, Options, SlotState, StaleReason, Wanted, assemble,
    wanted,
};
use crate::draws::draws;
use crate::level::{Level, Raid0Layout};
use crate::units::Slot;

const SIZE: u64 = 4096;
const OFFSET: u64 = 2048;
pub(super) const FORCE: Options =
    Options { run: true, force: true, readonly: false, forgets_bitmap: false, raid0_layout: None };
pub(super) const RUN: Options =
    Options { run: true, force: false, readonly: false, forgets_bitmap: false, raid0_layout: None };

/// The members of a clean array at ten events.
pub(super) fn array(level: Level, members: u16) -> Vec<Candidate> {
    (0..members).map(|slot| member(level, members, slot)).collect()
}

fn member(level: Level, members: u16, slot: u16) -> Candidate {
    let mut superblock = Superblock1::new(level, members.into(), 0, Uuid([7; 16]));
    superblock.layout = if level == Level::Raid5 { 2 } else { 0 };
    superblock.chunk_sectors = if level.has_chunks() { 128 } else { 0 };
    superblock.size_sectors = if level == Level::Raid0 { 0 } else { SIZE };
    superblock.data_offset_sectors = OFFSET;
    superblock.data_size_sectors = SIZE;
    superblock.super_offset_sectors = 8;
    superblock.dev_number = slot.into();
    superblock.events = 10;
    for number in 0..members {
        superblock.dev_roles[usize::from(number)] = Role::Slot(number);
    }
    Candidate {
        label: format!("m{slot}"),
        device_sectors: OFFSET + SIZE,
        at_sector: 8,
        superblock: Superblock::V1(Box::new(superblock)),
        bitmap: None,
    }
}

pub(super) fn change(candidate: &mut Candidate, change: impl FnOnce(&mut Superblock1)) {
    let Superblock::V1(superblock) = &mut candidate.superblock else { panic!("made of version 1") };
    change(superblock);
}

pub(super) fn change_all(members: &mut [Candidate], by: impl Fn(&mut Superblock1)) {
    for member in members {
        change(member, &by);
    }
}

fn labels(members: &[Candidate], assembly: &Assembly) -> Vec<String> {
    let label = |state: &SlotState| state.candidate().map_or("-".to_owned(), |c| members[c].label.clone());
    assembly.slots.iter().map(label).collect()
}

#[test]
fn members_are_put_in_their_slots_whatever_their_order() {
    let mut members = array(Level::Raid5, 4);
    members.swap(0, 3);
    members.rotate_left(1);
    let assembly = assemble(&members, Options::default()).unwrap();
    assert_eq!(labels(&members, &assembly), ["m0", "m1", "m2", "m3"]);
    assert!(assembly.is_clean && !assembly.is_degraded());
    assert_eq!(assembly.consistency, Consistency::Resync);
    assert_eq!(assembly.geometry.member_sectors, [SIZE; 4]);
}

#[test]
fn force_starts_without_a_member_as_run_does() {
    let members = &array(Level::Raid5, 3)[..2];
    assert!(matches!(assemble(members, Options::default()), Err(AssemblyError::NeedsRun { .. })));
    for options in [RUN, Options { run: false, ..FORCE }] {
        assert_eq!(labels(members, &assemble(members, options).unwrap()), ["m0", "m1", "-"], "{options:?}");
    }
}

#[test]
fn one_event_fewer_is_current_and_two_are_stale() {
    let mut members = array(Level::Raid5, 3);
    change(&mut members[2], |s| s.events = 9);
    assert_eq!(assemble(&members, Options::default()).unwrap().in_sync_count(), 3);
    change(&mut members[2], |s| s.events = 8);
    assert!(matches!(assemble(&members, Options::default()), Err(AssemblyError::NeedsRun { .. })));
    let assembly = assemble(&members, RUN).unwrap();
    assert_eq!(labels(&members, &assembly), ["m0", "m1", "-"]);
    assert_eq!(assembly.stale[0].why, StaleReason::Events { found: 8, freshest: 10 });
    assert_eq!(assembly.stale[0].re_addable, None);
}

#[test]
fn the_bitmap_says_whether_a_stale_member_can_come_back() {
    let mut members = array(Level::Raid1, 2);
    change_all(&mut members, |s| s.set_bitmap(8));
    change(&mut members[1], |s| s.events = 5);
    let mut bitmap = BitmapSuperblock::new(Uuid([7; 16]), SIZE, 65536);
    for (cleared, slot) in [(5, Some(Slot(1))), (6, None)] {
        bitmap.events_cleared = cleared;
        members[0].bitmap = Some(Ok(bitmap.clone()));
        let assembly = assemble(&members, RUN).unwrap();
        assert_eq!(assembly.stale[0].re_addable, slot);
        assert_eq!(assembly.consistency, Consistency::Bitmap);
    }
    (bitmap.events_cleared, bitmap.state) = (5, BitmapSuperblock::STATE_STALE);
    members[0].bitmap = Some(Ok(bitmap));
    assert_eq!(assemble(&members, RUN).unwrap().stale[0].re_addable, None, "it is out of date");
}

#[test]
fn a_stale_member_does_not_come_back_to_a_slot_that_another_has() {
    let mut members = array(Level::Raid1, 2);
    let mut former = members[1].clone();
    change_all(&mut members, |s| s.dev_roles[2] = Role::Faulty);
    change(&mut former, |s| {
        (s.dev_number, s.events) = (2, 5);
        s.dev_roles[2] = Role::Slot(1);
    });
    members.push(former);
    change_all(&mut members, |s| s.set_bitmap(8));
    let mut bitmap = BitmapSuperblock::new(Uuid([7; 16]), SIZE, 65536);
    bitmap.events_cleared = 5;
    members[0].bitmap = Some(Ok(bitmap));
    assert_eq!(assemble(&members, RUN).unwrap().stale[0].re_addable, None);
    members.remove(1);
    assert_eq!(assemble(&members, RUN).unwrap().stale[0].re_addable, Some(Slot(1)));
}

/// A RAID-1 of which the second member missed five events that the bitmap knows.
fn with_a_member_that_missed_writes() -> Vec<Candidate> {
    let mut members = array(Level::Raid1, 2);
    change_all(&mut members, |s| s.set_bitmap(8));
    change(&mut members[1], |s| s.events = 5);
    let mut bitmap = BitmapSuperblock::new(Uuid([7; 16]), SIZE, 65536);
    bitmap.events_cleared = 5;
    members[0].bitmap = Some(Ok(bitmap));
    members
}

#[test]
fn a_stale_member_is_taken_back_unless_something_else_is_doubtful() {
    let members = with_a_member_that_missed_writes();
    let mut assembly = assemble(&members, RUN).unwrap();
    assert!(!assembly.take_back(&members, 0), "it is not stale");
    assert!(assembly.take_back(&members, 1));
    assert_eq!(assembly.slots[1], SlotState::Recovering { candidate: 1, offset_sectors: 0 });
    assert_eq!(assembly.returned, [Slot(1)]);
    assert!(assembly.stale.is_empty() && !assembly.take_back(&members, 1));

    let mut dirty = members.clone();
    change(&mut dirty[0], |s| s.resync_offset_sectors = 0);
    assert!(!assemble(&dirty, RUN).unwrap().take_back(&dirty, 1), "a resync is due");
    let mut other = members.clone();
    change(&mut other[1], |s| s.size_sectors = SIZE / 2);
    assert!(!assemble(&other, RUN).unwrap().take_back(&other, 1), "it tells of another array");
}

#[test]
fn a_stale_member_that_tells_of_another_array_is_not_promised_its_slot() {
    type Change = fn(&mut Superblock1);
    let changes: [(&str, Change); 4] = [
        ("size in sectors", |s| s.size_sectors = SIZE / 2),
        ("chunk size in sectors", |s| s.chunk_sectors = 64),
        ("layout", |s| s.layout = 1),
        ("level", |s| s.level = Level::Raid5),
    ];
    let alike = with_a_member_that_missed_writes();
    let assembly = assemble(&alike, RUN).unwrap();
    assert_eq!((assembly.stale[0].re_addable, assembly.difference(&alike, 1)), (Some(Slot(1)), None));
    for (field, by) in changes {
        let mut members = alike.clone();
        change(&mut members[1], by);
        let assembly = assemble(&members, RUN).unwrap();
        assert_eq!(assembly.stale[0].re_addable, None, "{field}");
        let difference = assembly.difference(&members, 1).unwrap().to_string();
        assert!(difference.contains(field) && difference.starts_with("m1"), "{field}: {difference}");
    }
}

#[test]
fn a_recovery_by_the_bitmap_is_gone_on_with_and_one_in_full_is_not() {
    let mut members = with_a_member_that_missed_writes();
    let recovering = Features::RECOVERY_OFFSET;
    for (features, returned) in [(recovering, &[][..]), (recovering | Features::RECOVERY_BITMAP, &[Slot(1)])]
    {
        change(&mut members[1], |s| {
            s.events = 10;
            s.features = s.features.without(Features::RECOVERY_BITMAP) | features;
            s.recovery_offset_sectors = 64;
        });
        let assembly = assemble(&members, RUN).unwrap();
        assert_eq!(assembly.slots[1], SlotState::Recovering { candidate: 1, offset_sectors: 64 });
        assert_eq!(assembly.returned, returned);
    }
}

#[test]
fn a_spare_without_room_is_left_out() {
    let mut members = array(Level::Raid5, 3);
    let mut spare = member(Level::Raid5, 3, 3);
    change(&mut spare, |s| s.data_size_sectors = SIZE - 8);
    members.push(spare);
    let assembly = assemble(&members, Options::default()).unwrap();
    assert!(assembly.spares.is_empty());
    assert_eq!(assembly.stale[0].why, StaleReason::SmallSpare { sectors: SIZE - 8, needed: SIZE });
    change(&mut members[3], |s| s.data_size_sectors = SIZE);
    assert_eq!(assemble(&members, Options::default()).unwrap().spares, [3]);
}

#[test]
fn a_member_that_the_freshest_calls_faulty_is_out_though_its_events_are_close() {
    let mut members = array(Level::Raid5, 3);
    for survivor in [0, 1] {
        change(&mut members[survivor], |s| s.dev_roles[2] = Role::Faulty);
    }
    change(&mut members[2], |s| s.events = 9);
    // The others expect nobody in that slot, so nothing has to be asked for.
    let assembly = assemble(&members, Options::default()).unwrap();
    assert_eq!(labels(&members, &assembly), ["m0", "m1", "-"]);
    assert_eq!(assembly.stale[0].why, StaleReason::Faulty);
}

/// After a start by force with another in its place: its content is all that is left of what that one missed.
#[test]
fn a_member_that_the_freshest_knows_in_no_slot_does_not_become_a_spare() {
    let mut members = array(Level::Raid5, 3);
    for taken in [0, 2] {
        change(&mut members[taken], |s| s.dev_roles[1] = Role::Spare);
    }
    change(&mut members[1], |s| {
        s.events -= 1;
        s.dev_roles[2] = Role::Faulty;
    });
    for order in [[0, 1, 2], [2, 1, 0], [1, 0, 2]] {
        let members = order.map(|index| members[index].clone());
        let assembly = assemble(&members, RUN).unwrap();
        assert_eq!((assembly.spares.len(), assembly.in_sync_count()), (0, 2));
        assert!(matches!(assembly.stale[0].why, StaleReason::LetGo | StaleReason::Disagrees));
        assert_eq!(assembly.stale[0].re_addable, None);
    }
}

#[test]
fn halves_that_were_used_apart_are_refused_by_both_names() {
    let mut members = array(Level::Raid1, 2);
    change(&mut members[0], |s| s.dev_roles[1] = Role::Faulty);
    change(&mut members[1], |s| s.dev_roles[0] = Role::Faulty);
    let text = assemble(&members, FORCE).unwrap_err().to_string();
    assert!(text.contains("m0") && text.contains("m1"), "{text}");
}

/// Each was assembled while the other was not there: to either the other is missing, not faulty.
#[test]
fn halves_that_were_started_apart_are_refused_in_either_order() {
    let mut members = array(Level::Raid1, 2);
    change(&mut members[0], |s| s.dev_roles[1] = Role::Spare);
    change(&mut members[1], |s| s.dev_roles[0] = Role::Spare);
    for order in [[0, 1], [1, 0]] {
        let members = order.map(|index| members[index].clone());
        for options in [Options::default(), FORCE] {
            let refused = assemble(&members, options).unwrap_err();
            assert!(matches!(refused, AssemblyError::SplitBrain { .. }), "{refused:?}");
            let text = refused.to_string();
            assert!(text.contains("m0") && text.contains("m1") && text.contains("add"), "{text}");
        }
    }
    // Where one has gone on for longer, that one is the array.
    change(&mut members[1], |s| s.events += 1);
    let assembly = assemble(&members, RUN).unwrap();
    assert_eq!(
        (labels(&members, &assembly), assembly.stale[0].candidate),
        (vec!["-".into(), "m1".into()], 0)
    );
    let why = assembly.stale[0].why;
    assert_eq!(why, StaleReason::Disagrees);
    assert!(why.to_string().contains("missing"), "it is not faulty to it: {why}");
}

/// Each half was used without the other, one for longer: the bitmap of that one does not have what the other wrote.
#[test]
fn a_half_that_was_used_apart_for_a_shorter_time_does_not_come_back_by_the_bitmap() {
    let mut members = with_a_member_that_missed_writes();
    assert_eq!(assemble(&members, RUN).unwrap().stale[0].re_addable, Some(Slot(1)));
    change(&mut members[1], |s| s.dev_roles[0] = Role::Spare);
    let assembly = assemble(&members, RUN).unwrap();
    assert_eq!((assembly.stale[0].why, assembly.stale[0].re_addable), (StaleReason::Disagrees, None));
}

#[test]
fn two_members_of_one_slot_are_refused_by_both_names() {
    let mut members = array(Level::Raid5, 3);
    change(&mut members[2], |s| s.dev_number = 1);
    members[2].label = "copy".to_owned();
    let error = assemble(&members, RUN).unwrap_err();
    let expected =
        AssemblyError::SlotTwice { slot: Slot(1), first: "m1".to_owned(), second: "copy".to_owned() };
    assert_eq!(error, expected);
}

#[test]
fn members_that_disagree_are_refused_by_name_and_field() {
    type Change = fn(&mut Superblock1);
    let changes: [(&str, Change); 4] = [
        ("level", |s| s.level = Level::Raid4),
        ("layout", |s| s.layout = 1),
        ("chunk size in sectors", |s| s.chunk_sectors = 64),
        ("size in sectors", |s| s.size_sectors = 2048),
    ];
    for (field, by) in changes {
        let mut members = array(Level::Raid5, 3);
        change(&mut members[1], by);
        match assemble(&members, Options::default()) {
            Err(AssemblyError::Differs { field: found, label, .. }) => {
                assert_eq!((found, &*label), (field, "m1"));
            }
            other => panic!("{field}: {other:?}"),
        }
    }
}

#[test]
fn members_of_another_creation_are_refused_whatever_their_events() {
    let force = Options { force: true, run: true, ..Options::default() };
    for events in [1, 1_000_000] {
        let mut members = array(Level::Raid5, 3);
        change(&mut members[1], |s| {
            s.ctime.0 += 1;
            s.events = events;
        });
        let error = assemble(&members, force).unwrap_err();
        assert!(matches!(&error, AssemblyError::CreatedTwice { second, .. } if second == "m1"), "{error}");
    }
}

#[test]
fn what_lies_beyond_the_device_is_refused() {
    let mut members = array(Level::Raid5, 3);
    members[1].device_sectors = OFFSET + 8;
    let text = assemble(&members, Options::default()).unwrap_err().to_string();
    assert!(text.starts_with("m1") && text.contains("data_offset"), "{text}");
    let mut members = array(Level::Raid5, 3);
    change(&mut members[1], |s| s.data_offset_sectors = 1 << 60);
    assert!(assemble(&members, Options::default()).is_err());
}

#[test]
fn what_is_not_served_is_refused_by_name() {
    let features: [(Features, &str); 2] =
        [(Features::RESHAPE_ACTIVE, "reshape"), (Features::BITMAP_VERSIONED, "cluster")];
    for (feature, word) in features {
        let mut members = array(Level::Raid5, 3);
        change(&mut members[2], |s| s.features |= feature);
        let text = assemble(&members, FORCE).unwrap_err().to_string();
        assert!(text.contains("m2") && text.contains(word), "{text}");
    }
}

#[test]
fn what_a_stale_member_says_is_over_unless_it_is_needed() {
    let feature = Features::RESHAPE_ACTIVE;
    let mut members = array(Level::Raid6, 5);
    change(&mut members[1], |s| (s.features, s.events) = (s.features | feature, 4));
    let assembly = assemble(&members, RUN).unwrap();
    assert_eq!(labels(&members, &assembly), ["m0", "-", "m2", "m3", "m4"]);
    assert_eq!(assembly.stale[0].why, StaleReason::Events { found: 4, freshest: 10 });
    // Two others are missing.
    members.drain(3..);
    assert!(assemble(&members, FORCE).is_err());
}

#[test]
fn what_left_in_a_reshape_does_not_come_back_by_the_bitmap() {
    for feature in [Features::RESHAPE_ACTIVE, Features::BITMAP_VERSIONED] {
        let mut members = with_a_member_that_missed_writes();
        change(&mut members[1], |s| s.features |= feature);
        let mut assembly = assemble(&members, RUN).unwrap();
        assert_eq!(assembly.stale[0].re_addable, None);
        assert!(!assembly.take_back(&members, 1));
    }
}

#[test]
fn too_few_members_never_start_and_force_takes_the_newest_stale_ones() {
    let mut members = array(Level::Raid5, 4);
    change(&mut members[2], |s| s.events = 5);
    change(&mut members[3], |s| s.events = 7);
    assert!(matches!(assemble(&members, RUN), Err(AssemblyError::NotEnough { .. })));
    let assembly = assemble(&members, FORCE).unwrap();
    assert_eq!(labels(&members, &assembly), ["m0", "m1", "-", "m3"]);
    assert_eq!(assembly.forced[0].events, 7);
    assert!(matches!(assemble(&members[..2], FORCE), Err(AssemblyError::NotEnough { .. })));
}

#[test]
fn a_dirty_degraded_array_needs_force_and_is_read_without() {
    let mut members = array(Level::Raid5, 3);
    change_all(&mut members, |s| s.resync_offset_sectors = 0);
    assert!(!assemble(&members, Options::default()).unwrap().is_clean);
    let two = &members[..2];
    assert!(matches!(assemble(two, RUN), Err(AssemblyError::DirtyDegraded { .. })));
    assert!(!assemble(two, Options { readonly: true, ..RUN }).unwrap().is_clean);
    let forced = assemble(two, FORCE).unwrap();
    assert!(forced.is_clean && forced.forced_clean);
}

/// P and Q may say different things of what is missing, and so may the rows of a member that is recovered in part.
#[test]
fn what_force_leaves_to_be_compared_is_resynced() {
    for (level, members, missing, recovered, is_clean) in [
        (Level::Raid5, 3, 1, None, true),
        (Level::Raid5, 3, 0, Some(0), true),
        (Level::Raid5, 3, 0, Some(64), false),
        (Level::Raid6, 4, 1, None, false),
        (Level::Raid6, 4, 1, Some(0), true),
        (Level::Raid6, 4, 1, Some(64), false),
        (Level::Raid6, 4, 2, None, true),
    ] {
        let mut members = array(level, members);
        change_all(&mut members, |s| s.resync_offset_sectors = 8);
        if let Some(recovered) = recovered {
            change(&mut members[0], |s| {
                s.features |= Features::RECOVERY_OFFSET;
                s.recovery_offset_sectors = recovered;
            });
        }
        members.truncate(members.len() - missing);
        let forced = assemble(&members, FORCE).unwrap();
        let what = format!("{level} without {missing}, {recovered:?} recovered");
        assert!(forced.forced_clean, "{what}");
        let from = if is_clean { u64::MAX } else { 8 };
        assert_eq!((forced.is_clean, forced.resync_offset_sectors), (is_clean, from), "{what}");
    }
}

#[test]
fn an_array_is_dirty_if_any_of_its_freshest_members_says_so() {
    for dirty in 0..3 {
        let mut members = array(Level::Raid5, 3);
        change(&mut members[dirty], |s| s.resync_offset_sectors = 64);
        let assembly = assemble(&members, Options::default()).unwrap();
        assert_eq!((assembly.is_clean, assembly.resync_offset_sectors), (false, 64), "{dirty}");
        members.remove((dirty + 1) % 3);
        assert!(matches!(assemble(&members, RUN), Err(AssemblyError::DirtyDegraded { .. })), "{dirty}");
        // One that is behind has not heard that it was called clean.
        change_all(&mut members, |s| s.events += u64::from(s.resync_offset_sectors == u64::MAX));
        assert!(assemble(&members, RUN).unwrap().is_clean, "{dirty}");
    }
}

/// A RAID-5 with a device "new" that is to replace the member of slot 1, and has a part of its data.
fn with_a_half_copied_replacement() -> Vec<Candidate> {
    let mut members = array(Level::Raid5, 3);
    let mut replacement = members[1].clone();
    replacement.label = "new".to_owned();
    change(&mut replacement, |s| {
        s.features |= Features::REPLACEMENT | Features::RECOVERY_OFFSET;
        s.dev_number = 3;
        s.recovery_offset_sectors = 64;
    });
    members.push(replacement);
    change_all(&mut members, |s| s.dev_roles[3] = Role::Slot(1));
    members
}

#[test]
fn a_recovering_member_is_no_data_and_a_replacement_stands_in() {
    let mut members = array(Level::Raid5, 3);
    change(&mut members[1], |s| {
        s.features |= Features::RECOVERY_OFFSET;
        s.recovery_offset_sectors = 512;
    });
    let assembly = assemble(&members, Options::default()).unwrap();
    assert_eq!(assembly.slots[1], SlotState::Recovering { candidate: 1, offset_sectors: 512 });
    let mut members = with_a_half_copied_replacement();
    let assembly = assemble(&members, Options::default()).unwrap();
    assert_eq!(labels(&members, &assembly), ["m0", "m1", "m2"]);
    assert_eq!((assembly.replacements[0].slot, assembly.replacements[0].offset_sectors), (Slot(1), 64));
    let mut dirty = members.clone();
    dirty.remove(0);
    change_all(&mut dirty, |s| s.resync_offset_sectors = 0);
    let forced = assemble(&dirty, FORCE).unwrap();
    assert_eq!(forced.replacements[0].offset_sectors, 0, "what was under way may be on one of the two");
    members.remove(1);
    assert_eq!(labels(&members, &assemble(&members, RUN).unwrap()), ["m0", "new", "m2"]);
}

/// As Linux leaves it whose power fails between the end of a recovery and the superblocks that call the member in sync.
#[test]
fn a_member_whose_recovery_has_ended_is_in_sync() {
    let mut members = array(Level::Raid5, 3);
    change(&mut members[1], |s| {
        s.features |= Features::RECOVERY_OFFSET;
        s.recovery_offset_sectors = MAX_SECTOR;
    });
    let assembly = assemble(&members, Options::default()).unwrap();
    assert_eq!(assembly.slots[1], SlotState::InSync { candidate: 1 });
    assert!(!assembly.is_degraded());
    change(&mut members[1], |s| s.recovery_offset_sectors = SIZE + 1);
    let text = assemble(&members, Options::default()).unwrap_err().to_string();
    assert!(text.starts_with("m1") && text.contains("recovery_offset"), "{text}");
}

/// As mdadm, which counts both of a slot's members and what is rebuilt apart.
#[test]
fn a_half_copied_replacement_is_not_the_member_it_replaces() {
    let mut members = with_a_half_copied_replacement();
    members.remove(1);
    let refused = assemble(&members, Options::default()).unwrap_err();
    assert_eq!(
        refused,
        AssemblyError::NeedsRun {
            absent: vec![Slot(1)],
            replaced: vec![Slot(1)],
            stale: Vec::new(),
            slots: 3,
            present: 2
        }
    );
    assert!(refused.to_string().contains("only a replacement of slot 1"), "{refused}");
    for options in [RUN, Options { run: false, ..FORCE }] {
        assert_eq!(labels(&members, &assemble(&members, options).unwrap()), ["m0", "new", "m2"]);
    }

    // The member failed and is known as such: the copy goes on as a recovery.
    let mut failed = members.clone();
    change_all(&mut failed, |s| s.dev_roles[1] = Role::Faulty);
    assert_eq!(labels(&failed, &assemble(&failed, Options::default()).unwrap()), ["m0", "new", "m2"]);
    // And so does an ordinary recovery.
    change(&mut failed[2], |s| s.features = s.features.without(Features::REPLACEMENT));
    assert_eq!(labels(&failed, &assemble(&failed, Options::default()).unwrap()), ["m0", "new", "m2"]);
    // A replacement that is copied to the end is as good as the member.
    change(&mut members[2], |s| s.features = s.features.without(Features::RECOVERY_OFFSET));
    assert!(!assemble(&members, Options::default()).unwrap().is_degraded());
}

#[test]
fn a_raid0_of_several_zones_needs_its_layout_said_once() {
    let mut members = array(Level::Raid0, 3);
    assert!(assemble(&members, Options::default()).is_ok(), "one zone");
    change(&mut members[0], |s| s.data_size_sectors = SIZE / 2);
    assert!(matches!(assemble(&members, RUN), Err(AssemblyError::Raid0LayoutUnknown { .. })));
    let options = Options { raid0_layout: Some(Raid0Layout::Original), ..Options::default() };
    assert_eq!(assemble(&members, options).unwrap().geometry.layout.number(), 1);
    change_all(&mut members, |s| {
        s.features |= Features::RAID0_LAYOUT;
        s.layout = 2;
    });
    assert_eq!(assemble(&members, Options::default()).unwrap().geometry.layout.number(), 2);
    assert!(matches!(assemble(&members, options), Err(AssemblyError::Raid0LayoutRecorded { .. })));
    assert!(matches!(assemble(&members[1..], FORCE), Err(AssemblyError::NotEnough { .. })));
}

#[test]
fn a_bitmap_that_does_not_fit_is_refused_and_read_around() {
    let mut members = array(Level::Raid1, 2);
    change_all(&mut members, |s| s.set_bitmap(8));
    let other = BitmapSuperblock::new(Uuid([9; 16]), SIZE, 65536);
    for member in &mut members {
        member.bitmap = Some(Ok(other.clone()));
    }
    let text = assemble(&members, RUN).unwrap_err().to_string();
    assert!(text.contains("m0") && text.contains("uuid"), "{text}");
    assert!(assemble(&members, Options { readonly: true, ..RUN }).unwrap().bitmap_damage.is_some());
}

#[test]
fn a_bitmap_ends_before_the_bad_block_log() {
    let mut members = array(Level::Raid1, 2);
    // 256 bytes of superblock and a bit for each sector: two sectors, the second to a half.
    let bitmap = BitmapSuperblock::new(Uuid([7; 16]), SIZE, 512);
    change_all(&mut members, |s| {
        s.set_bitmap(8);
        s.bblog_offset_sectors = 10;
        s.bblog_size_sectors = 1;
    });
    for member in &mut members {
        member.bitmap = Some(Ok(bitmap.clone()));
    }
    assert!(assemble(&members, RUN).is_ok());
    change_all(&mut members, |s| s.bblog_offset_sectors -= 1);
    let text = assemble(&members, RUN).unwrap_err().to_string();
    assert!(text.contains("do not fit"), "{text}");
}

#[test]
fn several_arrays_are_told_apart_by_uuid_and_name() {
    let mut members = array(Level::Raid1, 2);
    change(&mut members[0], |s| s.set_name(Some("host"), "one"));
    change(&mut members[1], |s| {
        s.set_uuid = Uuid([8; 16]);
        s.set_name(Some("host"), "two");
    });
    let text = wanted(&members, &Wanted::Only).unwrap_err().to_string();
    assert!(text.contains("host:one") && text.contains("host:two"), "{text}");
    assert_eq!(wanted(&members, &Wanted::Name("two".to_owned())), Ok(vec![1]));
    assert_eq!(wanted(&members, &Wanted::Name("host:one".to_owned())), Ok(vec![0]));
    assert_eq!(wanted(&members, &Wanted::Uuid(Uuid([8; 16]))), Ok(vec![1]));
    assert!(wanted(&members, &Wanted::Name("three".to_owned())).is_err());
    assert!(wanted(&[], &Wanted::Only).is_err());
}

/// Words of superblocks are replaced at random; what still reads is assembled, and must not panic. What assembles
/// has a geometry that is possible and lies on the devices.
#[test]
fn damaged_superblocks_assemble_or_are_refused() {
    let mut draw = draws(1);
    let (mut taken, mut refused) = (0, 0);
    for round in 0..4000 {
        let level = Level::ALL[round % Level::ALL.len()];
        let mut members = array(level, 4);
        if level == Level::Raid10 {
            change_all(&mut members, |s| s.layout = 0x102);
        }
        let victim = draw(4) as usize;
        let mut bytes = members[victim].superblock.to_bytes();
        let at = 72 + draw(bytes.len() as u64 - 72) as usize;
        bytes[at] = draw(256) as u8;
        // Its checksum is made right again, as an attacker would.
        bytes[216..220].copy_from_slice(&[0; 4]);
        let metadata = members[victim].superblock.metadata();
        let Err(error) = Superblock::parse(metadata, &bytes, 8) else { continue };
        let text = error.to_string();
        let Some(right) = text.split("sum to ").nth(1) else { continue };
        let sum = u32::from_str_radix(right, 16).unwrap();
        bytes[216..220].copy_from_slice(&sum.to_le_bytes());
        let Ok(superblock) = Superblock::parse(metadata, &bytes, 8) else { continue };
        members[victim].superblock = superblock;
        let options = Options {
            run: round % 2 == 0,
            force: round % 3 == 0,
            readonly: round % 5 == 0,
            forgets_bitmap: round % 7 == 0,
            raid0_layout: None,
        };
        match assemble(&members, options) {
            Ok(assembly) => {
                taken += 1;
                assert!(crate::geometry::Geometry::new(&assembly.geometry).is_ok());
                for candidate in assembly.slots.iter().filter_map(|s| s.candidate()) {
                    let Candidate { superblock, device_sectors, .. } = &members[candidate];
                    let used = assembly.geometry.member_sectors[0].min(superblock.data_size_sectors(8));
                    assert!(superblock.data_offset_sectors() + used <= *device_sectors);
                }
            }
            Err(error) => {
                refused += 1;
                assert!(!error.to_string().is_empty());
            }
        }
    }
    assert!(taken > 100 && refused > 100, "{taken} taken, {refused} refused");
}

/// A spare of the array; none of the members has heard of it.
fn spare(level: Level, members: u16, events: u64) -> Candidate {
    let mut spare = member(level, members, members);
    spare.label = "s".to_owned();
    change(&mut spare, |s| s.events = events);
    spare
}

/// Power failed after the first superblock of a reshape, which was a spare's; then the members were used.
#[test]
fn a_reshape_that_a_spare_alone_tells_of_has_not_begun() {
    for events in [9, 10] {
        let mut members = array(Level::Raid5, 3);
        members.push(spare(Level::Raid5, 3, events));
        change(&mut members[3], |s| {
            s.features |= Features::RESHAPE_ACTIVE;
            (s.new_level, s.new_layout, s.new_chunk_sectors) = (5, 2, 32);
        });
        assert!(members[3].superblock.is_reshaped());
        let assembly = assemble(&members, Options::default()).unwrap();
        assert_eq!((assembly.in_sync_count(), &*assembly.spares), (3, [3].as_slice()));
        change(&mut members[3], |s| s.events = 11);
        let assembly = assemble(&members, Options::default()).unwrap();
        assert_eq!(assembly.stale[0].why, StaleReason::StraySpare);
    }
}

#[test]
fn a_spare_without_a_place_for_the_arrays_logs_is_left_out() {
    for (log, is_taken) in [(32, true), (8, false)] {
        let mut members = array(Level::Raid1, 2);
        change_all(&mut members, |s| s.set_bitmap(8));
        let mut bitmap = BitmapSuperblock::new(Uuid([7; 16]), SIZE, 65536);
        bitmap.events = 10;
        for member in &mut members {
            member.bitmap = Some(Ok(bitmap.clone()));
        }
        members.push(spare(Level::Raid1, 2, 10));
        change(&mut members[2], |s| (s.bblog_offset_sectors, s.bblog_size_sectors) = (log, 8));
        let assembly = assemble(&members, Options::default()).unwrap();
        assert_eq!(assembly.spares.is_empty(), !is_taken);
        assert_eq!(
            assembly.stale.first().map(|stale| stale.why),
            (!is_taken).then_some(StaleReason::UnlikeSpare)
        );
    }
}

/// Which of the members have a reshape's last superblocks, or those of a size: whatever is wrong with the array, the same way leads out.
#[test]
fn what_a_cut_off_change_did_not_reach_is_told_apart_from_what_is_missing() {
    for told in 1..4 {
        for options in [Options::default(), FORCE] {
            let mut members = array(Level::Raid5, 4);
            let (ended, reshaped) = members.split_at_mut(told);
            change_all(ended, |s| (s.events, s.chunk_sectors) = (12, 32));
            change_all(reshaped, |s| {
                s.features |= Features::RESHAPE_ACTIVE;
                (s.new_level, s.new_layout, s.new_chunk_sectors) = (5, 2, 32);
            });
            let untold: Vec<String> = reshaped.iter().map(|member| member.label.clone()).collect();
            match assemble(&members, options) {
                Err(error) => {
                    assert_eq!(error, AssemblyError::ReshapeEnded { untold }, "{told}");
                    assert!(error.to_string().contains("`stripewise grow --continue`"), "{error}");
                }
                Ok(assembly) => {
                    assert_eq!((told, options), (3, FORCE));
                    assert_eq!(assembly.stale[0].why, StaleReason::ReshapeEnded);
                }
            }
            let mut members = array(Level::Raid5, 4);
            for member in &mut members {
                member.device_sectors *= 2;
            }
            change_all(&mut members[..told], |s| (s.events, s.size_sectors) = (11, SIZE + 128));
            change_all(&mut members[..told], |s| s.data_size_sectors = SIZE + 128);
            let behind: Vec<String> = members[told..].iter().map(|member| member.label.clone()).collect();
            let error = assemble(&members, options).unwrap_err();
            let finish = format!("--size {}K", SIZE / 2 + 64);
            assert!(error.to_string().contains(&format!("`stripewise grow {finish}`")), "{error}");
            assert_eq!(error, AssemblyError::CutOff { behind, finish }, "{told}");
        }
    }
}

#[test]
fn what_differs_otherwise_was_not_cut_off() {
    let mut members = array(Level::Raid5, 3);
    change(&mut members[2], |s| s.size_sectors = SIZE - 128);
    assert!(matches!(assemble(&members, Options::default()), Err(AssemblyError::Differs { .. })));
    change(&mut members[2], |s| s.events = 8);
    assert!(matches!(assemble(&members, Options::default()), Err(AssemblyError::NeedsRun { .. })));
}
