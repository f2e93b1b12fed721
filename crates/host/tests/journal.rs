//! A write journal when an array is opened.

mod common;

use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use common::md::{MEMBER_BYTES, SUPERBLOCK_SECTOR, create_array, file, found, open, superblock};
use stripewise_engine::array::members::Standing;
use stripewise_engine::assembly::{Consistency, Journal, Options, StaleReason, Wanted};
use stripewise_engine::io::{IoError, Op};
use stripewise_engine::level::Level;
use stripewise_format::journal::{BLOCK_BYTES, MetaBlock, Payload, Seed};
use stripewise_format::placement;
use stripewise_format::superblock_1::{Features, Role, Superblock1};
use stripewise_host::md::assemble::{AssembleError, Assembled, Selection, find};
use stripewise_host::md::journal::Pending;
use stripewise_host::{Access, Array, HostError};

const TAIL: u64 = 16;

fn change(path: &Path, change: impl FnOnce(&mut Superblock1)) {
    let mut superblock = superblock(path);
    change(&mut superblock);
    file(path).write_all_at(&superblock.to_bytes(), SUPERBLOCK_SECTOR * 512).unwrap();
}

/// A RAID-6 of zeroes whose first row is 0x11 and 0x22, of which the journal, its last device, has no parity.
fn array(folder: &Path) -> Vec<PathBuf> {
    let mut paths = create_array(folder, Level::Raid6, 4, placement::Consistency::Resync);
    let journal = folder.join("journal");
    std::fs::copy(&paths[0], &journal).unwrap();
    paths.push(journal);
    for (number, path) in paths.iter().enumerate() {
        change(path, |superblock| {
            superblock.features |= Features::JOURNAL;
            superblock.dev_number = number as u32;
            superblock.dev_roles[4] = Role::Journal;
            superblock.events = 7;
            superblock.recovery_offset_sectors = if number == 4 { TAIL } else { 0 };
        });
    }
    log(&paths[4]);
    paths
}

fn log(journal: &Path) {
    let superblock = superblock(journal);
    let seed = Seed::of(&superblock.set_uuid);
    let blocks = [vec![0x11; BLOCK_BYTES], vec![0x22; BLOCK_BYTES]];
    let data = |array_sector: u64, bytes: &[u8]| Payload::Data {
        array_sector,
        checksums: vec![seed.checksum(bytes)],
    };
    let meta = MetaBlock {
        sequence: 5,
        position_sectors: TAIL,
        payloads: vec![data(0, &blocks[0]), data(128, &blocks[1])],
    };
    let bytes = [meta.to_bytes(seed), blocks.concat()].concat();
    file(journal).write_all_at(&bytes, (superblock.data_offset_sectors + TAIL) * 512).unwrap();
}

fn follow(paths: &[PathBuf]) -> Result<Assembled, AssembleError> {
    let mut assembled = found(paths);
    assembled.follow_logs(|_| Access::ReadWrite)?;
    Ok(assembled)
}

fn by_force(paths: &[PathBuf]) -> Assembled {
    let options = Options { force: true, ..Options::default() };
    let selection =
        Selection { members: paths.to_vec(), scan: None, wanted: Wanted::Only, options, overlay: None };
    let mut assembled = find(&selection).unwrap().assemble(options).unwrap();
    assembled.follow_logs(|_| Access::ReadWrite).unwrap();
    assembled
}

/// The first bytes of the first two chunks of the array, which is only read.
fn read(assembled: &Assembled) -> [u8; 2] {
    let config = assembled.config(true, |_| Access::ReadOnly).unwrap();
    let mut array = Array::open(config).unwrap();
    [0, 128].map(|sector| {
        let mut bytes = vec![0; BLOCK_BYTES];
        array.read_at(sector, &mut bytes).unwrap();
        assert!(bytes.iter().all(|byte| *byte == bytes[0]));
        bytes[0]
    })
}

const NEW: [u8; 2] = [0x11, 0x22];

#[test]
fn data_alone_are_brought_to_the_members_with_both_parities() {
    let folder = tempfile::tempdir().unwrap();
    let paths = array(folder.path());
    assert_eq!(found(&paths).journal_pending().unwrap(), Pending::Rows(1));
    let assembled = follow(&paths).unwrap();
    let report = assembled.replayed.unwrap();
    assert_eq!((report.rows, report.data_only_rows, report.without_parity), (0, 1, 0));
    assert_eq!(found(&paths).journal_pending().unwrap(), Pending::Rows(0));
    assert_eq!(superblock(&paths[4]).journal_tail_sectors(), Some(TAIL + 24));
    assert!(paths[..4].iter().all(|path| superblock(path).events == 7), "nobody is missing");
    for lost in [[0, 1], [0, 2], [0, 3], [1, 2], [1, 3], [2, 3]] {
        let rest: Vec<_> = (0..5).filter(|n| !lost.contains(n)).map(|n| paths[n].clone()).collect();
        assert_eq!(read(&found(&rest)), NEW, "without {lost:?}");
    }
}

/// What they lack is nowhere else once the log is empty.
#[test]
fn members_that_are_missing_are_out_of_date_before_the_log_is_empty() {
    for lost in [[0, 1], [0, 2], [0, 3], [1, 2], [1, 3], [2, 3]] {
        let folder = tempfile::tempdir().unwrap();
        let paths = array(folder.path());
        let rest: Vec<_> = (0..5).filter(|n| !lost.contains(n)).map(|n| paths[n].clone()).collect();
        assert_eq!(read(&follow(&rest).unwrap()), NEW, "without {lost:?}");
        let all = found(&paths);
        assert_eq!(all.assembly.stale.len(), 2, "without {lost:?}");
        assert!(all.assembly.stale.iter().all(|s| s.why == StaleReason::Events { found: 7, freshest: 9 }));
        assert_eq!(read(&all), NEW, "without {lost:?}");
        follow(&rest).unwrap();
        assert_eq!(superblock(&rest[0]).events, 9, "once is enough");
    }
}

#[test]
fn nothing_is_written_to_an_array_before_its_journal_is_followed() {
    let folder = tempfile::tempdir().unwrap();
    let assembled = found(&array(folder.path()));
    let refused = assembled.config(false, |_| Access::ReadWrite).unwrap_err();
    assert!(matches!(&refused, AssembleError::Journaled(path) if path.ends_with("journal")), "{refused}");
}

#[test]
fn a_damaged_log_is_left_alone_and_given_up_by_force() {
    let folder = tempfile::tempdir().unwrap();
    let paths = array(folder.path());
    let place = (superblock(&paths[4]).data_offset_sectors + TAIL) * 512;
    file(&paths[4]).write_all_at(&[0x55; 512], place).unwrap();
    assert_eq!(found(&paths).journal_pending().unwrap(), Pending::Damaged);
    let refused = follow(&paths).unwrap_err();
    assert!(matches!(refused, AssembleError::JournalDamaged(_)), "{refused}");
    assert_eq!(superblock(&paths[0]).events, 7);
    given_up(&paths, &by_force(&paths));
}

#[test]
fn a_journal_that_is_missing_is_given_up_by_force() {
    let folder = tempfile::tempdir().unwrap();
    let paths = array(folder.path());
    given_up(&paths, &by_force(&paths[..4]));
}

/// Without it the array is one like others, and its parity is to be resynced.
fn given_up(paths: &[PathBuf], assembled: &Assembled) {
    assert!(assembled.has_given_up_journal);
    let config = assembled.config(false, |_| Access::ReadWrite).unwrap();
    assert_eq!(config.volume.resync_from, Some(0));
    for path in &paths[..4] {
        let superblock = superblock(path);
        assert_eq!((superblock.has_journal(), superblock.resync_offset_sectors), (false, 0));
    }
    let again = found(paths);
    assert_eq!((again.assembly.journal, again.assembly.consistency), (None, Consistency::Resync));
    assert_eq!(again.assembly.stale[0].why, StaleReason::FormerJournal);
}

/// Power was cut while the journal was given up: the members that were told are one event ahead.
#[test]
fn once_one_member_is_told_that_there_is_no_journal_all_are() {
    let folder = tempfile::tempdir().unwrap();
    let paths = array(folder.path());
    change(&paths[2], |superblock| {
        superblock.features = superblock.features.without(Features::JOURNAL);
        superblock.events += 1;
    });
    let mut array = open(&paths, false);
    array.write_at(0, &[5; BLOCK_BYTES]).unwrap();
    array.close().unwrap();
    drop(array);
    assert!(paths[..4].iter().all(|path| !superblock(path).has_journal()));
}

#[test]
fn a_journal_without_a_slot_may_be_shorter_than_the_members() {
    let folder = tempfile::tempdir().unwrap();
    let paths = array(folder.path());
    let data_offset = superblock(&paths[4]).data_offset_sectors;
    change(&paths[4], |superblock| superblock.data_size_sectors = 64);
    file(&paths[4]).set_len((data_offset + 64) * 512).unwrap();
    assert!((data_offset + 64) * 512 < MEMBER_BYTES);
    let assembled = follow(&paths).unwrap();
    assert_eq!(assembled.assembly.journal, Some(Journal::Device { candidate: 4 }));
    assert_eq!(read(&assembled), NEW);
}

#[test]
fn an_array_whose_journal_failed_is_broken_and_says_why() {
    let folder = tempfile::tempdir().unwrap();
    let paths = array(folder.path());
    let mut config = follow(&paths).unwrap().config(false, |_| Access::ReadWrite).unwrap();
    config.volume.sync.start = false;
    let mut array = Array::open(config).unwrap();
    array.write_at(0, &[1; BLOCK_BYTES]).unwrap();
    assert!(!array.status().is_broken && !array.status().has_journal_failed);
    file(&paths[4]).set_len(0).unwrap();
    array.write_at(8, &[2; BLOCK_BYTES]).unwrap_err();
    let status = array.status();
    assert!(status.is_broken && status.has_journal_failed, "{status:?}");
    let journal = status.members.iter().find(|member| member.path.as_ref() == Some(&paths[4])).unwrap();
    assert_eq!(journal.standing, Standing::Journal, "the superblocks go on naming it");
    let why = journal.error.unwrap();
    assert_eq!((why.op, why.error), (Op::Write, IoError::Gone), "{why}");
    assert!(status.members.iter().filter(|member| member.error.is_some()).count() == 1, "{status:?}");
    let mut bytes = [0; BLOCK_BYTES];
    array.read_at(0, &mut bytes).unwrap();
    assert!(bytes == [1; BLOCK_BYTES]);
    let closed = array.close();
    assert!(matches!(closed, Err(HostError::Io(IoError::ReadOnly))), "{closed:?}");
}
