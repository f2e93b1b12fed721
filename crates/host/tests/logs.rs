//! Partial parity logs when an array is opened for writing.

mod common;

use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use common::md::{SUPERBLOCK_SECTOR, create_array, create_with_spares, file, found, superblock};
use stripewise_engine::level::Level;
use stripewise_format::placement::{Consistency, Metadata};
use stripewise_format::ppl::{PplEntry, PplHeader, signature};
use stripewise_format::superblock_1::Minor;
use stripewise_format::uuid::Uuid;
use stripewise_host::Access;
use stripewise_host::md::assemble::AssembleError;

/// The array that `create_with_spares` makes of this level.
const UUID: Uuid = Uuid([5; 16]);

fn array(folder: &Path) -> Vec<PathBuf> {
    let metadata = Metadata::V1(Minor::Start4K);
    create_with_spares(folder, Level::Raid5, 3, 1, Consistency::Ppl, metadata)
}

/// The member's log area, first byte and length.
fn area(path: &Path) -> (u64, usize) {
    let area = superblock(path).ppl().unwrap();
    let sector = SUPERBLOCK_SECTOR.checked_add_signed(area.offset_sectors.into()).unwrap();
    (sector * 512, usize::from(area.size_sectors) * 512)
}

/// A log of a write of the whole first stripe.
fn log(generation: u64) -> Vec<u8> {
    let entry = PplEntry { data_bytes: 128 << 10, parity_disk: 2, ..PplEntry::default() };
    PplHeader { signature: signature(&UUID), generation, entries: vec![entry] }.to_bytes()
}

/// Leaves the array as a crash in its first write does.
fn crash(paths: &[PathBuf]) {
    for path in paths {
        let mut superblock = superblock(path);
        superblock.resync_offset_sectors = 0;
        file(path).write_all_at(&superblock.to_bytes(), SUPERBLOCK_SECTOR * 512).unwrap();
    }
    file(&paths[2]).write_all_at(&log(7), area(&paths[2]).0).unwrap();
}

/// Follows the logs; answers from where on a resync is due.
fn resync_from(paths: &[PathBuf]) -> Option<u64> {
    let mut assembled = found(paths);
    assembled.follow_logs(|_| Access::ReadWrite).unwrap();
    assembled.config(false, |_| Access::ReadWrite).unwrap().volume.resync_from
}

/// Without them parity is wrong where writes were under way; those of an array that was stopped would be taken for the next
/// crash's.
#[test]
fn an_array_whose_logs_were_not_followed_is_not_written_to() {
    let folder = tempfile::tempdir().unwrap();
    let paths = array(folder.path());
    for is_dirty in [false, true] {
        if is_dirty {
            crash(&paths);
        }
        let mut assembled = found(&paths);
        let refused = assembled.config(false, |_| Access::ReadWrite).unwrap_err();
        assert!(matches!(refused, AssembleError::LogsNotFollowed(_)), "{refused}");
        assert!(assembled.config(true, |_| Access::ReadOnly).is_ok());
        assert!(assembled.open(true, |_| Access::ReadWrite, |_| ()).is_ok());
        assembled.open(false, |_| Access::ReadWrite, |_| ()).unwrap().read_at(0, &mut [0; 512]).unwrap();
        assert_eq!(assembled.logs.unwrap().entries, u64::from(is_dirty));
    }
}

/// What is found is some time old when it is opened.
#[test]
fn members_that_somebody_wrote_to_since_they_were_found_are_not_opened() {
    let folder = tempfile::tempdir().unwrap();
    let paths = create_array(folder.path(), Level::Raid1, 2, Consistency::Resync);
    let mut early = found(&paths);
    let mut array = found(&paths).open(false, |_| Access::ReadWrite, |_| ()).unwrap();
    array.write_at(0, &[1; 512]).unwrap();
    array.close().unwrap();
    drop(array);
    for read_only in [true, false] {
        let refused = early.open(read_only, |_| Access::ReadWrite, |_| ()).unwrap_err();
        assert!(matches!(refused, AssembleError::Changed(_)), "{refused}");
    }
}

/// Logs of several in one area are followed one after the other: what lies behind an empty one would be taken for newer.
#[test]
fn a_spares_old_logs_are_gone_before_it_can_take_a_slot() {
    let folder = tempfile::tempdir().unwrap();
    let paths = array(folder.path());
    let (start, length) = area(&paths[3]);
    file(&paths[3]).write_all_at(&log(1_000), start).unwrap();
    file(&paths[3]).write_all_at(&log(1_001), start + 8192).unwrap();
    resync_from(&paths);
    let mut bytes = vec![1; length];
    file(&paths[3]).read_exact_at(&mut bytes, start).unwrap();
    assert_eq!(PplHeader::parse(&bytes, signature(&UUID)).unwrap().entries, []);
    assert!(bytes[4096..].iter().all(|byte| *byte == 0));
}

/// What a member without a log was being written is not known, as in Linux (`mismatch_count`).
#[test]
fn a_member_whose_log_is_damaged_has_the_array_resynced_and_one_that_is_missing_has_not() {
    for (what, damaged, missing, expected) in [
        ("all logs are whole", None, None, None),
        ("one is damaged", Some(0), None, Some(0)),
        ("the spare's is damaged", Some(3), None, None),
        ("one is missing", None, Some(0), None),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let mut paths = array(folder.path());
        crash(&paths);
        if let Some(damaged) = damaged {
            let path: &PathBuf = &paths[damaged];
            file(path).write_all_at(&[0x55; 64], area(path).0 + 700).unwrap();
        }
        if let Some(missing) = missing {
            paths.remove(missing);
        }
        assert_eq!(resync_from(&paths), expected, "{what}");
        if missing.is_none() {
            crash(&paths);
            assert_eq!(resync_from(&paths), None, "{what}: every log is whole again");
        }
    }
}
