//! What members may be, and what is said when they may not.

mod common;

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use common::{SECTOR, Verify, files, memory, volume};
use stripewise_engine::array::members::Standing;
use stripewise_engine::io::{ArrayEvent, Flags, IoResult, Op, Request, RequestId};
use stripewise_engine::level::{Layout, Level, ParityLayout};
use stripewise_engine::units::{Instant, MemberIndex, SectorRange, Slot};
use stripewise_engine::volume::VolumeConfig;
use stripewise_engine::workload::{Next, Workload};
use stripewise_host::{
    Access, Array, ArrayConfig, FileSpec, Fill, HostError, MemberProblem, MemberSpec, Note, Payload,
    create_member_file, member_file_sectors,
};

const SECTORS: u64 = 4096;

fn raid5_on(folder: &Path) -> (ArrayConfig, Vec<PathBuf>) {
    let members = files(folder, 4, SECTORS);
    let paths = (0..4).map(|slot| folder.join(format!("member{slot}"))).collect();
    let volume = volume(Level::Raid5, Layout::Parity(ParityLayout::LeftSymmetric), 4, 16, SECTORS);
    (ArrayConfig::new(volume, members), paths)
}

fn problem(result: Result<Array, HostError>) -> (MemberProblem, String) {
    match result.map(|_| ()) {
        Err(e @ HostError::Member { .. }) => {
            let text = e.to_string();
            let HostError::Member { problem, .. } = e else { unreachable!() };
            (problem, text)
        }
        other => panic!("{other:?} is no complaint about a member"),
    }
}

#[test]
fn a_file_that_is_too_small_is_refused_with_both_sizes() {
    let folder = tempfile::tempdir().unwrap();
    let (config, paths) = raid5_on(folder.path());
    std::fs::File::options().write(true).open(&paths[2]).unwrap().set_len(4096).unwrap();
    let (what, text) = problem(Array::open(config));
    assert_eq!(what, MemberProblem::TooSmall { have: 4096, need: SECTORS * 512 });
    assert!(text.contains("member2") && text.contains("4096") && text.contains("2097152"), "{text}");
}

#[test]
fn missing_files_folders_and_duplicates_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let (config, paths) = raid5_on(folder.path());
    let with = |path: &Path| {
        let mut config = config.clone();
        config.members[1] = MemberSpec::File(FileSpec::new(path));
        problem(Array::open(config)).0
    };
    assert_eq!(with(&folder.path().join("nothing")), MemberProblem::NotFound);
    assert_eq!(with(folder.path()), MemberProblem::WrongKind);
    assert_eq!(with(Path::new("/dev/null")), MemberProblem::WrongKind);
    assert_eq!(with(&paths[0]), MemberProblem::Twice);
    let mut short = config.clone();
    short.members.pop();
    assert!(matches!(Array::open(short), Err(HostError::MemberCount { given: 3, needed: 4 })));
}

#[test]
fn spares_and_replacements_that_are_not_given_are_missed_at_once() {
    let volume = || volume(Level::Raid5, Layout::Parity(ParityLayout::LeftSymmetric), 4, 16, SECTORS);
    let spares = VolumeConfig { spares: 2, ..volume() };
    let replacements = vec![(Slot(1), MemberIndex(5), 0)];
    let replaced = VolumeConfig { spares: 1, replacements, ..volume() };
    for volume in [spares, replaced] {
        let error = Array::open(ArrayConfig::new(volume.clone(), memory(5))).err();
        assert!(matches!(error, Some(HostError::MemberCount { given: 5, needed: 6 })), "{error:?}");
        Array::open(ArrayConfig::new(volume, memory(6))).unwrap();
    }
}

#[test]
fn a_size_that_is_no_multiple_of_a_sector_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("odd");
    std::fs::write(&path, vec![0; 1000]).unwrap();
    let text = member_file_sectors(&path).unwrap_err().to_string();
    assert!(text.contains("1000") && text.contains("512 bytes would be"), "{text}");
    std::fs::write(&path, vec![0; 1024]).unwrap();
    assert_eq!(member_file_sectors(&path).unwrap(), 2);
}

#[test]
fn creating_in_a_folder_that_cannot_be_written_to_or_over_a_file_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("member");
    create_member_file(&path, 8, Fill::Written).unwrap();
    assert_eq!(std::fs::metadata(&path).unwrap().len(), 4096);
    let again = create_member_file(&path, 8, Fill::Sparse).unwrap_err();
    assert!(matches!(again, HostError::Member { problem: MemberProblem::Exists, .. }));

    std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o555)).unwrap();
    let other = folder.path().join("other");
    // Root may write anywhere; then there is nothing to see here.
    if let Err(error) = create_member_file(&other, 8, Fill::Sparse) {
        assert!(matches!(error, HostError::Member { problem: MemberProblem::NoPermission, .. }));
        assert!(!other.exists());
    }
    std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    let sysfs = create_member_file(Path::new("/proc/member"), 8, Fill::Sparse).unwrap_err().to_string();
    assert!(sysfs.contains("/proc/member"), "{sysfs}");
}

#[test]
fn a_member_without_room_is_refused_and_removed() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("huge");
    let error = create_member_file(&path, 1 << 43, Fill::Written).unwrap_err();
    assert!(matches!(error, HostError::Member { problem: MemberProblem::NoRoom { .. }, .. }), "{error}");
    assert!(!path.exists());
}

#[test]
fn the_status_has_the_members_in_memory_too_and_no_empty_slots() {
    let volume = volume(Level::Raid5, Layout::Parity(ParityLayout::LeftSymmetric), 4, 16, SECTORS);
    let mut members = memory(4);
    members[1] = MemberSpec::Missing;
    let mut array = Array::open(ArrayConfig::new(volume, members)).unwrap();
    array.fail(Slot(2)).unwrap();
    let status = array.status();
    let standings: Vec<_> = status.members.iter().map(|member| (&member.path, member.standing)).collect();
    let slot = |slot| Standing::InSlot(Slot(slot));
    assert_eq!(standings, [(&None, slot(0)), (&None, Standing::Failed), (&None, slot(3))]);
    assert_eq!(status.failed, [Slot(1), Slot(2)]);
}

/// It would be written until the file system is full.
#[test]
fn a_member_longer_than_files_can_be_is_refused_at_once_and_removed() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("long");
    for sectors in [u64::MAX, 1 << 54, (1 << 54) - 1] {
        let refused = create_member_file(&path, sectors, Fill::Written).unwrap_err();
        let problem = matches!(refused, HostError::Member { problem: MemberProblem::NoRoom { .. }, .. });
        assert!(problem && !path.exists(), "{refused}");
    }
}

#[test]
fn memory_that_is_not_there_is_refused() {
    let volume = volume(Level::Raid0, Layout::default_of(Level::Raid0), 2, 16, 1 << 36);
    assert!(matches!(Array::open(ArrayConfig::new(volume, memory(2))), Err(HostError::NoMemory { .. })));
}

#[test]
fn a_file_system_without_direct_io_is_used_buffered_with_a_note() {
    let Ok(folder) = tempfile::tempdir_in("/dev/shm") else { return };
    let (config, paths) = raid5_on(folder.path());
    let mut array = Array::open(config).unwrap();
    assert_eq!(array.notes()[3], Note::Buffered { path: paths[3].clone() });
    let zone = SectorRange::new(0, array.geometry().array_sectors());
    let (report, workloads) = array.run_with_payload(vec![Verify::new(zone, 200, 300, 8, 5)]).unwrap();
    assert_eq!(report.notes.len(), 4);
    workloads[0].verify(&mut array);
}

#[test]
fn data_begins_at_the_members_data_offset() {
    let folder = tempfile::tempdir().unwrap();
    let (mut config, paths) = raid5_on(folder.path());
    for (slot, path) in paths.iter().enumerate() {
        std::fs::write(path, vec![0xAA; (SECTORS + 24) as usize * SECTOR]).unwrap();
        let spec = FileSpec { data_offset_sectors: 24, ..FileSpec::new(path) };
        config.members[slot] = MemberSpec::File(spec);
    }
    let mut array = Array::open(config).unwrap();
    let bytes = vec![0x55; array.geometry().array_sectors() as usize * SECTOR];
    array.write_at(0, &bytes).unwrap();
    drop(array);
    for path in &paths {
        let image = std::fs::read(path).unwrap();
        assert!(image[..24 * SECTOR].iter().all(|b| *b == 0xAA));
        assert!(image[24 * SECTOR..].iter().all(|b| *b != 0xAA));
    }
}

#[test]
fn a_read_only_member_is_read_and_given_up_at_the_first_write() {
    let folder = tempfile::tempdir().unwrap();
    let (mut config, paths) = raid5_on(folder.path());
    config.members[0] = MemberSpec::File(FileSpec { access: Access::ReadOnly, ..FileSpec::new(&paths[0]) });
    let mut array = Array::open(config).unwrap();
    let mut bytes = vec![1; 64 * SECTOR];
    array.read_at(0, &mut bytes).unwrap();
    assert!(bytes.iter().all(|b| *b == 0));
    array.write_at(0, &vec![3; 64 * SECTOR]).unwrap();
    array.read_at(0, &mut bytes).unwrap();
    assert!(bytes.iter().all(|b| *b == 3));
    assert!(std::fs::read(&paths[0]).unwrap().iter().all(|b| *b == 0));
}

#[test]
fn requests_outside_the_array_or_of_odd_length_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let (config, _) = raid5_on(folder.path());
    let mut array = Array::open(config).unwrap();
    let end = array.geometry().array_sectors();
    assert!(matches!(array.read_at(end, &mut [0; 512]), Err(HostError::Io(_))));
    assert!(matches!(array.write_at(u64::MAX, &[0; 1024]), Err(HostError::Io(_))));
    assert!(matches!(array.read_at(0, &mut [0; 100]), Err(HostError::Unaligned { bytes: 100 })));
    array.read_at(end - 1, &mut [0; 512]).unwrap();
}

#[test]
fn zeroes_are_written_where_asked() {
    for has_discard in [false, true] {
        let folder = tempfile::tempdir().unwrap();
        let (mut config, _) = raid5_on(folder.path());
        config.volume.discard = has_discard;
        let mut array = Array::open(config).unwrap();
        let sectors = array.geometry().array_sectors();
        let mut bytes = vec![7; sectors as usize * SECTOR];
        array.write_at(0, &bytes).unwrap();
        array.write_zeroes(SectorRange::new(37, 3000)).unwrap();
        bytes[37 * SECTOR..3037 * SECTOR].fill(0);
        let mut read = vec![1; bytes.len()];
        array.read_at(0, &mut read).unwrap();
        common::assert_same(&read, &bytes, 0);
    }
}

/// Cuts a member file short after some completions of the workload it wraps, which only reads from then on:
/// a write would lengthen the file again, and a hole reads as zeroes without any error.
struct Cutter {
    inner: Verify,
    left: u32,
    path: PathBuf,
}

impl Workload for Cutter {
    fn in_flight_max(&self) -> u32 {
        self.inner.in_flight_max()
    }
    fn request_bytes_max(&self) -> u64 {
        self.inner.request_bytes_max()
    }
    fn next(&mut self, now: Instant) -> Next {
        self.inner.next(now)
    }
    fn complete(&mut self, now: Instant, id: RequestId, result: IoResult) {
        self.left = self.left.saturating_sub(1);
        if self.left == 0 {
            std::fs::File::options().write(true).open(&self.path).unwrap().set_len(0).unwrap();
            self.left = u32::MAX;
            self.inner.writes = false;
        }
        self.inner.complete(now, id, result);
    }
}

impl Payload for Cutter {
    fn fill(&mut self, request: &Request, bytes: &mut [u8]) {
        self.inner.fill(request, bytes);
    }
    fn check(&mut self, request: &Request, bytes: &[u8]) {
        self.inner.check(request, bytes);
    }
}

#[test]
fn a_member_cut_short_in_a_run_costs_no_byte() {
    let folder = tempfile::tempdir().unwrap();
    let (config, paths) = raid5_on(folder.path());
    let mut array = Array::open(config).unwrap();
    let zone = SectorRange::new(0, array.geometry().array_sectors());
    let inner = Verify::new(zone, 200, 600, 1, 5);
    let cutter = Cutter { inner, left: 300, path: paths[1].clone() };
    let (report, mut workloads) = array.run_with_payload(vec![cutter]).unwrap();
    let inner = workloads.remove(0).inner;
    assert_eq!(inner.errors, []);
    assert!(report.members[1].errors > 0);
    let failed = ArrayEvent::MemberFailed { slot: Slot(1) };
    assert!(report.events.iter().any(|e| e.event == failed), "{:?}", report.events);
    inner.verify(&mut array);
}

#[test]
fn a_member_that_was_cut_and_grew_in_part_is_not_read() {
    let folder = tempfile::tempdir().unwrap();
    let (config, paths) = raid5_on(folder.path());
    let mut array = Array::open(config).unwrap();
    let written = vec![7; array.geometry().array_sectors() as usize * SECTOR];
    array.write_at(0, &written).unwrap();
    // As a write does that is under way when the file is cut.
    let file = std::fs::File::options().write(true).open(&paths[1]).unwrap();
    file.set_len(0).unwrap();
    file.set_len(SECTORS / 2 * 512).unwrap();
    let mut read = vec![0; written.len() / 4];
    array.read_at(0, &mut read).unwrap();
    assert!(read.iter().all(|byte| *byte == 7), "a hole was taken for data");
    assert_eq!(array.failed_slots(), [Slot(1)]);
}

/// Reads for ever, and sets the stop flag on the way.
struct Endless {
    stop: Arc<AtomicBool>,
    completed: u32,
    is_in_flight: bool,
}

impl Workload for Endless {
    fn in_flight_max(&self) -> u32 {
        1
    }
    fn request_bytes_max(&self) -> u64 {
        4096
    }
    fn next(&mut self, _: Instant) -> Next {
        if std::mem::replace(&mut self.is_in_flight, true) {
            return Next::Wait;
        }
        let range = SectorRange::new(0, 8);
        Next::Issue(Request { id: RequestId(0), op: Op::Read, range, flags: Flags::default() })
    }
    fn complete(&mut self, _: Instant, _: RequestId, _: IoResult) {
        self.is_in_flight = false;
        self.completed += 1;
        if self.completed == 10 {
            self.stop.store(true, Ordering::Relaxed);
        }
    }
}

#[test]
fn the_stop_flag_ends_all_shards() {
    let volume = volume(Level::Raid0, Layout::default_of(Level::Raid0), 2, 16, 1 << 16);
    let config = ArrayConfig { shards: 2, ..ArrayConfig::new(volume, memory(2)) };
    let stop = Arc::clone(&config.stop);
    let mut array = Array::open(config).unwrap();
    assert!(array.run(vec![Endless { stop, completed: 0, is_in_flight: false }]).unwrap().0.stopped);
}
