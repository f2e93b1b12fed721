//! Members come and go while clients read and write.

mod common;

use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use common::load::{self, Control, Load};
use common::md::{MEMBER_BYTES, blank, create_array, create_with, found, open};
use stripewise_engine::array::members::Standing;
use stripewise_engine::io::{ArrayEvent, SyncAction};
use stripewise_engine::level::{Layout, Level};
use stripewise_engine::units::Slot;
use stripewise_format::device_flags::FlagsChange;
use stripewise_format::placement::{Consistency, Metadata};
use stripewise_format::superblock::Superblock;
use stripewise_format::superblock_1::{Features, Minor, Superblock1};
use stripewise_host::{AddHow, Array, ArrayConfig, Manage, ManageError, Managed, NotReAddable, TimedEvent};

const BITMAP: Consistency = Consistency::Bitmap { chunk_bytes: Some(64 << 10) };
const BLOCK: usize = 4096;

fn add(path: &Path, how: AddHow) -> Manage {
    add_with(path, how, FlagsChange::default())
}

fn add_with(path: &Path, how: AddHow, flags: FlagsChange) -> Manage {
    Manage::Add { member: path.to_owned(), how, force: false, destroy: false, flags }
}

/// Serves an array under load while `manage` runs; answers what the clients know.
fn under_load(array: &mut Array, folder: &Path, manage: impl FnOnce(&mut Control)) -> Vec<Load> {
    let loads = Load::of_each_third(array);
    load::serve_under_load(loads, folder, |server| drop(server.serve(array).unwrap()), manage)
}

/// Everything is there, now and after the array is put together anew, and its redundancy agrees.
fn verify(mut array: Array, members: &[PathBuf], loads: &[Load]) {
    for load in loads {
        load.verify(&mut array);
    }
    array.close().unwrap();
    drop(array);
    let assembled = found(members);
    assert_eq!(assembled.assembly.in_sync_count(), assembled.assembly.slots.len(), "no slot is empty");
    assert!(assembled.assembly.is_clean);
    let mut array = open(members, true);
    for load in loads {
        load.verify(&mut array);
    }
    assert_eq!(mismatches(&mut array), 0);
}

fn mismatches(array: &mut Array) -> u64 {
    assert_eq!(array.manage(&Manage::Sync(SyncAction::Check)).unwrap(), Managed::Sync(SyncAction::Check));
    array.sync(|_| ()).unwrap();
    array.status().sync.unwrap().mismatch_sectors
}

/// Fails a member and removes it.
fn leave(array: &mut Array, member: &Path) {
    array.manage(&Manage::Fail(member.to_owned())).unwrap();
    array.manage(&Manage::Remove(member.to_owned())).unwrap();
}

fn standing(array: &Array, path: &Path) -> Option<Standing> {
    let status = array.status();
    status.members.iter().find(|member| member.path.as_deref() == Some(path)).map(|member| member.standing)
}

#[test]
fn a_spare_takes_over_while_clients_write() {
    let cases = [
        (Level::Raid1, 2, BITMAP),
        (Level::Raid10, 4, Consistency::Resync),
        (Level::Raid5, 4, Consistency::Ppl),
        (Level::Raid4, 3, BITMAP),
    ];
    for (level, slots, consistency) in cases {
        let folder = tempfile::tempdir().unwrap();
        let mut members = create_array(folder.path(), level, slots, consistency);
        let spare = blank(folder.path(), "spare", MEMBER_BYTES);
        let mut array = open(&members, true);
        let loads = under_load(&mut array, folder.path(), |control| {
            control.done("add-spare", &spare);
            control.done("fail", &members[1]);
            control.done("remove", &members[1]);
            control.whole();
        });
        assert_eq!(standing(&array, &spare), Some(Standing::InSlot(Slot(1))), "{level}");
        members[1] = spare;
        verify(array, &members, &loads);
    }
}

#[test]
fn a_raid6_loses_two_members_under_load_and_gets_two_others() {
    let folder = tempfile::tempdir().unwrap();
    let mut members = create_array(folder.path(), Level::Raid6, 5, BITMAP);
    let spares = ["s0", "s1"].map(|name| blank(folder.path(), name, MEMBER_BYTES));
    let mut array = open(&members, true);
    let loads = under_load(&mut array, folder.path(), |control| {
        control.done("fail", &members[0]);
        control.done("fail", &members[3]);
        let last = control.member("fail", &members[1]);
        assert!(last["error"].as_str().unwrap().contains("does not survive"), "{last}");
        control.done("add", &spares[0]);
        control.done("add", &spares[1]);
        control.whole();
    });
    let [first, second] = spares;
    (members[0], members[3]) = (first, second);
    verify(array, &members, &loads);
}

/// Whether nobody has a file open: then, and only then, the system lets its reader forbid all others.
fn is_closed(path: &Path) -> bool {
    let file = std::fs::File::open(path).unwrap();
    // SAFETY: the descriptor is open, and the command takes no pointer.
    unsafe { libc::fcntl(file.as_raw_fd(), libc::F_SETLEASE, libc::F_WRLCK) == 0 }
}

#[test]
fn a_removed_member_is_closed_though_another_came_before_it() {
    let folder = tempfile::tempdir().unwrap();
    let members = create_array(folder.path(), Level::Raid1, 4, BITMAP);
    let spare = blank(folder.path(), "spare", MEMBER_BYTES);
    let mut array = open(&members, true);
    under_load(&mut array, folder.path(), |control| {
        assert!(!is_closed(&members[2]));
        control.done("fail", &members[1]);
        control.done("remove", &members[1]);
        control.done("add", &spare);
        control.done("fail", &members[2]);
        control.done("remove", &members[2]);
        let until = Instant::now() + Duration::from_secs(10);
        while !is_closed(&members[2]) {
            assert!(Instant::now() < until, "it is open still");
            std::thread::sleep(Duration::from_millis(20));
        }
    });
}

#[test]
fn a_member_cut_to_nothing_is_failed_and_a_spare_takes_over() {
    for level in [Level::Raid5, Level::Raid1] {
        let folder = tempfile::tempdir().unwrap();
        let mut members = create_array(folder.path(), level, 3, BITMAP);
        let spare = blank(folder.path(), "spare", MEMBER_BYTES);
        let mut array = open(&members, true);
        array.manage(&add(&spare, AddHow::Spare)).unwrap();
        let loads = under_load(&mut array, folder.path(), |control| {
            std::fs::OpenOptions::new().write(true).open(&members[2]).unwrap().set_len(0).unwrap();
            std::fs::remove_file(&members[2]).unwrap();
            let until = Instant::now() + Duration::from_secs(30);
            while control.member("remove", &members[2])["done"].is_null() {
                assert!(Instant::now() < until, "its loss is not noticed");
                std::thread::sleep(Duration::from_millis(10));
            }
            control.whole();
        });
        members[2] = spare;
        verify(array, &members, &loads);
    }
}

#[test]
fn a_member_is_replaced_under_load_without_losing_redundancy() {
    for level in [Level::Raid5, Level::Raid10] {
        let folder = tempfile::tempdir().unwrap();
        let mut members = create_array(folder.path(), level, 4, Consistency::Resync);
        let spare = blank(folder.path(), "spare", MEMBER_BYTES);
        let mut array = open(&members, true);
        let loads = under_load(&mut array, folder.path(), |control| {
            control.done("add-spare", &spare);
            control.done("replace", &members[2]);
            control.whole();
            control.done("remove", &members[2]);
        });
        assert_eq!(standing(&array, &spare), Some(Standing::InSlot(Slot(2))));
        members[2] = spare;
        verify(array, &members, &loads);
    }
}

#[test]
fn a_former_member_comes_back_by_the_bitmap_with_what_it_missed() {
    let folder = tempfile::tempdir().unwrap();
    let members = create_array(folder.path(), Level::Raid5, 3, BITMAP);
    let data_end = found(&members).assembly.geometry.member_sectors[0];
    let mut array = open(&members, true);
    array.write_at(0, &vec![1; 64 << 10]).unwrap();
    leave(&mut array, &members[1]);
    assert_eq!(standing(&array, &members[1]), None);
    array.write_at(1024, &vec![2; 256 << 10]).unwrap();
    // What nobody wrote to meanwhile is not read and not written: damage there stays, and is found afterwards.
    let file = std::fs::OpenOptions::new().read(true).write(true).open(&members[1]).unwrap();
    let start = MEMBER_BYTES - data_end * 512;
    file.write_all_at(&[9; 4096], start + (data_end - 128) * 512).unwrap();
    drop(file);
    let back = array.manage(&add(&members[1], AddHow::ReAdd)).unwrap();
    assert_eq!(back, Managed::ReAdded(members[1].clone(), Slot(1)));
    array.sync(|_| ()).unwrap();
    assert_eq!(array.status().failed, []);
    assert_eq!(mismatches(&mut array), 8);
    let sync = array.status().sync.unwrap();
    assert_eq!(sync.mismatches[0].member.start, data_end - 128);
    let mut bytes = vec![0; 256 << 10];
    array.read_at(1024, &mut bytes).unwrap();
    assert!(bytes.iter().all(|byte| *byte == 2));
    array.close().unwrap();
}

/// Changes a member's superblock behind the array's back.
fn rewrite(member: &Path, change: impl FnOnce(&mut Superblock1)) {
    let probe = stripewise_host::md::probe::probe(member).unwrap();
    let found = &probe.found[0];
    let Ok(Superblock::V1(mut superblock)) = found.superblock.clone() else { panic!("{probe:?}") };
    change(&mut superblock);
    let file = std::fs::OpenOptions::new().write(true).open(member).unwrap();
    file.write_all_at(&superblock.to_bytes(), found.at_sector * 512).unwrap();
}

/// What it holds is of another geometry than the array by then.
#[test]
fn a_member_that_left_in_a_reshape_does_not_come_back_by_the_bitmap() {
    let folder = tempfile::tempdir().unwrap();
    let members = create_array(folder.path(), Level::Raid5, 3, BITMAP);
    let mut array = open(&members, true);
    array.sync(|_| ()).unwrap();
    leave(&mut array, &members[1]);
    rewrite(&members[1], |superblock| {
        superblock.features |= Features::RESHAPE_ACTIVE;
        superblock.new_level = 5;
        superblock.new_layout = superblock.layout;
        superblock.new_chunk_sectors = superblock.chunk_sectors * 2;
    });
    let refused = array.manage(&add(&members[1], AddHow::ReAdd));
    assert!(matches!(refused, Err(ManageError::ReAdd(_, NotReAddable::Reshaped))), "{refused:?}");
    array.close().unwrap();
}

/// Its superblock is of the array, and of what the array was.
#[test]
fn a_member_that_does_not_come_back_for_what_it_says_of_the_array_is_told_so() {
    let folder = tempfile::tempdir().unwrap();
    let members = create_array(folder.path(), Level::Raid5, 3, BITMAP);
    let mut array = open(&members, true);
    array.sync(|_| ()).unwrap();
    leave(&mut array, &members[1]);
    let mut half = 0;
    rewrite(&members[1], |superblock| {
        superblock.size_sectors /= 2;
        half = superblock.size_sectors;
    });
    let refused = array.manage(&add(&members[1], AddHow::ReAdd)).unwrap_err().to_string();
    let whole = half * 2;
    assert!(refused.contains(&format!("size in sectors is {half}; the array's says {whole}")), "{refused}");
    array.close().unwrap();
}

/// What a member was written to without the others is in no bitmap of theirs.
#[test]
fn a_former_member_that_went_its_own_way_comes_back_as_a_new_one_alone() {
    let folder = tempfile::tempdir().unwrap();
    let members = create_array(folder.path(), Level::Raid1, 2, BITMAP);
    let mut array = open(&members, true);
    array.sync(|_| ()).unwrap();
    array.close().unwrap();
    drop(array);
    for (member, byte, start) in [(0, 1, 0), (1, 2, 8192)] {
        let mut array = open(&members[member..=member], true);
        array.write_at(start, &vec![byte; 64 << 10]).unwrap();
        array.close().unwrap();
    }
    let mut array = open(&members[..1], true);
    let refused = array.manage(&add(&members[1], AddHow::ReAdd));
    assert!(matches!(refused, Err(ManageError::ReAdd(_, NotReAddable::WentItsWay))), "{refused:?}");
    assert_eq!(array.manage(&add(&members[1], AddHow::Any)).unwrap(), Managed::Added(members[1].clone()));
    array.sync(|_| ()).unwrap();
    assert_eq!(mismatches(&mut array), 0);
    array.close().unwrap();
}

#[test]
fn a_former_member_without_a_bitmap_is_added_anew() {
    let folder = tempfile::tempdir().unwrap();
    for metadata in [Metadata::V0, Metadata::V1(Minor::End), Metadata::V1(Minor::Start)] {
        let members = create_with(folder.path(), Level::Raid5, 3, Consistency::Resync, metadata);
        let mut array = open(&members, true);
        array.write_at(0, &vec![3; 64 << 10]).unwrap();
        array.manage(&Manage::Fail(members[0].clone())).unwrap();
        array.manage(&Manage::Remove(members[0].clone())).unwrap();
        let refused = array.manage(&add(&members[0], AddHow::ReAdd));
        assert!(matches!(refused, Err(ManageError::ReAdd(_, NotReAddable::NoBitmap))), "{refused:?}");
        assert_eq!(array.manage(&add(&members[0], AddHow::Any)).unwrap(), Managed::Added(members[0].clone()));
        // Whatever lets the array go on may see the recovery's end, of which nobody has told by then.
        let mut page = [0; 4096];
        let deadline = Instant::now() + Duration::from_secs(20);
        let is_busy = |array: &Array| array.status().sync.is_some_and(|sync| sync.action != SyncAction::Idle);
        while is_busy(&array) && Instant::now() < deadline {
            array.read_at(0, &mut page).unwrap();
        }
        let report = array.sync(|_| ()).unwrap();
        let is_end = |timed: &TimedEvent| timed.event == ArrayEvent::SyncDone(SyncAction::Recover);
        assert!(report.events.iter().any(is_end), "{:?}", report.events);
        verify(array, &members, &[]);
    }
}

fn flags_of(array: &Array, path: &Path) -> (bool, bool) {
    let members = array.status().members;
    let member = members.into_iter().find(|member| member.path.as_deref() == Some(path)).unwrap();
    let flags = member.metadata.unwrap().superblock.device_flags();
    (flags.is_write_mostly, flags.is_failfast)
}

#[test]
fn a_member_comes_in_with_the_flags_it_is_given_and_is_spared_at_once_and_after_the_next_start() {
    for metadata in [Metadata::V0, Metadata::V1(Minor::Start4K)] {
        let folder = tempfile::tempdir().unwrap();
        let members = create_with(folder.path(), Level::Raid1, 2, BITMAP, metadata);
        let data_start = found(&members).found.candidates[0].superblock.data_offset_sectors() * 512;
        let mut array = open(&members, true);
        let bytes: Vec<u8> = (0..256 << 10).map(|byte: u32| (byte >> 9) as u8).collect();
        array.write_at(0, &bytes).unwrap();
        let again = |array: &mut Array, flags| {
            array.manage(&Manage::Fail(members[0].clone())).unwrap();
            array.manage(&Manage::Remove(members[0].clone())).unwrap();
            let back = array.manage(&add_with(&members[0], AddHow::ReAdd, flags)).unwrap();
            assert_eq!(back, Managed::ReAdded(members[0].clone(), Slot(0)));
            array.sync(|_| ()).unwrap();
        };
        again(&mut array, FlagsChange { write_mostly: Some(true), failfast: Some(true) });
        assert_eq!(flags_of(&array, &members[0]), (true, true));
        assert_eq!(flags_of(&array, &members[1]), (false, false));
        again(&mut array, FlagsChange { write_mostly: None, failfast: Some(false) });
        assert_eq!(flags_of(&array, &members[0]), (true, false), "what is not asked for stays");
        let file = std::fs::OpenOptions::new().write(true).open(&members[0]).unwrap();
        file.write_all_at(&vec![0xee; bytes.len()], data_start).unwrap();
        drop(file);
        let reads_right = |array: &mut Array| {
            for at in (0..bytes.len()).step_by(BLOCK) {
                let mut read = vec![0; BLOCK];
                array.read_at(at as u64 / 512, &mut read).unwrap();
                assert!(read == bytes[at..at + BLOCK], "{metadata}: byte {at} is of the member to be spared");
            }
        };
        reads_right(&mut array);
        array.close().unwrap();
        drop(array);
        let mut array = open(&members, true);
        assert_eq!(flags_of(&array, &members[0]), (true, false));
        reads_right(&mut array);
        again(&mut array, FlagsChange { write_mostly: Some(false), failfast: None });
        assert_eq!(flags_of(&array, &members[0]), (false, false));
        let set = |array: &mut Array, write_mostly, failfast| {
            let (member, change) = (members[0].clone(), FlagsChange { write_mostly, failfast });
            array.manage(&Manage::SetFlags { member, change }).unwrap().to_string()
        };
        let said = |flags: &str| format!("flags of {} are {flags}", members[0].display());
        assert_eq!(set(&mut array, Some(true), None), said("write-mostly"));
        assert_eq!(set(&mut array, None, Some(true)), said("write-mostly failfast"));
        reads_right(&mut array);
        let on_disk = || found(&members).found.candidates[0].superblock.device_flags();
        assert!(
            on_disk().is_write_mostly && on_disk().is_failfast,
            "a command is answered when it is on record"
        );
        assert_eq!(set(&mut array, Some(false), Some(false)), said("none"));
        let spare = blank(folder.path(), "spare", MEMBER_BYTES);
        let failfast = FlagsChange { write_mostly: None, failfast: Some(true) };
        array.manage(&add_with(&spare, AddHow::Spare, failfast)).unwrap();
        assert_eq!(flags_of(&array, &spare), (false, true));
        array.close().unwrap();
    }
}

#[test]
fn a_command_that_is_refused_changes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let members = create_array(folder.path(), Level::Raid5, 3, BITMAP);
    let small = blank(folder.path(), "small", 2 << 20);
    let other = tempfile::tempdir().unwrap();
    let foreign = create_array(other.path(), Level::Raid1, 2, Consistency::Resync);
    let swap = blank(folder.path(), "swap", MEMBER_BYTES);
    let mut header = vec![0; 4096];
    header[4086..].copy_from_slice(b"SWAPSPACE2");
    std::fs::write(&swap, &header).unwrap();
    std::fs::OpenOptions::new().write(true).open(&swap).unwrap().set_len(MEMBER_BYTES).unwrap();
    let mut array = open(&members, true);
    array.manage(&Manage::Fail(members[2].clone())).unwrap();
    let everyone: Vec<&PathBuf> = members.iter().chain(&foreign).chain([&small, &swap]).collect();
    let images = || -> Vec<Vec<u8>> { everyone.iter().map(|path| std::fs::read(path).unwrap()).collect() };
    let before = (images(), array.status());
    let nowhere = folder.path().join("nowhere");
    let refused = [
        (Manage::Fail(nowhere.clone()), "is no member"),
        (Manage::Fail(members[2].clone()), "has failed already"),
        (Manage::Fail(members[0].clone()), "does not survive"),
        (Manage::Remove(members[0].clone()), "fail it first"),
        (Manage::Remove(small.clone()), "is no member"),
        (add(&small, AddHow::Any), "needs"),
        (add(&foreign[0], AddHow::Any), "raid1"),
        (add(&swap, AddHow::Any), "swap"),
        (add(&swap, AddHow::ReAdd), "cannot be re-added"),
        (add(&members[0], AddHow::Any), "is a member"),
        (add(&nowhere, AddHow::Any), "no such file"),
        (Manage::Replace { member: members[0].clone(), with: None }, "no spare"),
        (Manage::Replace { member: members[0].clone(), with: Some(small.clone()) }, "not a spare"),
        (Manage::Replace { member: members[2].clone(), with: None }, "has failed already"),
        (Manage::SetSpeed { min_kib: Some(9), max_kib: Some(8) }, "least speed"),
    ];
    for (command, why) in refused {
        let error = array.manage(&command).unwrap_err().to_string();
        assert!(error.contains(why), "{command:?}: {error}");
    }
    assert!(images() == before.0, "an image has changed");
    assert_eq!(array.status(), before.1);
    array.close().unwrap();
}

#[test]
fn an_array_that_lost_too_much_takes_nobody_in() {
    let folder = tempfile::tempdir().unwrap();
    let members = create_array(folder.path(), Level::Raid5, 3, BITMAP);
    let spare = blank(folder.path(), "spare", MEMBER_BYTES);
    let mut array = open(&members, true);
    for path in &members[1..] {
        std::fs::OpenOptions::new().write(true).open(path).unwrap().set_len(0).unwrap();
    }
    let mut stripe = vec![0; 128 << 10];
    assert!(array.read_at(0, &mut stripe).is_err());
    let before = std::fs::read(&members[0]).unwrap();
    for command in [
        add(&spare, AddHow::Any),
        Manage::Replace { member: members[0].clone(), with: None },
        Manage::Sync(SyncAction::Repair),
    ] {
        let error = array.manage(&command).unwrap_err().to_string();
        assert!(error.contains("too many members failed"), "{command:?}: {error}");
    }
    assert!(!array.status().lost.ranges.is_empty(), "what is lost is named");
    assert!(
        std::fs::read(&members[0]).unwrap() == before
            && std::fs::read(&spare).unwrap().iter().all(|b| *b == 0)
    );
}

#[test]
fn a_command_does_not_wait_for_the_sync_that_it_begins() {
    // These members answer at once.
    let layout = Layout::default_of(Level::Raid5);
    let mut volume = common::volume(Level::Raid5, layout, 3, 128, 128 << 10);
    volume.sync.speed.max_kib = 100_000_000;
    let mut array = Array::open(ArrayConfig::new(volume, common::memory(3))).unwrap();
    array.manage(&Manage::Sync(SyncAction::Check)).unwrap();
    let sync = array.status().sync.unwrap();
    assert_eq!(sync.action, SyncAction::Check, "it goes on: {sync:?}");
    array.sync(|_| ()).unwrap();
    assert_eq!(array.status().sync.unwrap().action, SyncAction::Idle);
}
