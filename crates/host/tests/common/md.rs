//! md arrays on small files.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use stripewise_engine::assembly::{Options, Wanted};
use stripewise_engine::level::{Layout, Level};
use stripewise_format::create::{NewMember, Request, create};
use stripewise_format::device_flags::DeviceFlags;
use stripewise_format::placement::{Consistency, Metadata, Plan};
use stripewise_format::superblock_1::{Minor, Superblock1};
use stripewise_format::time::Timestamp;
use stripewise_format::uuid::Uuid;
use stripewise_host::md::assemble::{Assembled, Selection, find};
use stripewise_host::md::create::{Candidate, MemberWrite, write};
use stripewise_host::{Access, Array, ArrayConfig};

/// Bytes of each member: a header of 1 MiB and room for some stripes.
pub const MEMBER_BYTES: u64 = 6 << 20;

/// Where metadata 1.2 has its superblock.
pub const SUPERBLOCK_SECTOR: u64 = 8;

/// A member, to read and write by place.
pub fn file(path: &Path) -> File {
    File::options().read(true).write(true).open(path).unwrap()
}

/// The superblock of a member with metadata 1.2.
pub fn superblock(path: &Path) -> Superblock1 {
    let mut block = vec![0; 4096];
    file(path).read_exact_at(&mut block, SUPERBLOCK_SECTOR * 512).unwrap();
    Superblock1::parse(&block, SUPERBLOCK_SECTOR).unwrap()
}

/// Makes a sparse file for a member.
pub fn blank(folder: &Path, name: &str, bytes: u64) -> PathBuf {
    let path = folder.join(name);
    File::create(&path).unwrap().set_len(bytes).unwrap();
    path
}

/// Makes an array of zeroes that is in sync, of members `m0`, `m1` and so on.
pub fn create_array(folder: &Path, level: Level, slots: u32, consistency: Consistency) -> Vec<PathBuf> {
    create_with(folder, level, slots, consistency, Metadata::V1(Minor::Start4K))
}

/// As [`create_array`], of any version.
pub fn create_with(
    folder: &Path,
    level: Level,
    slots: u32,
    consistency: Consistency,
    metadata: Metadata,
) -> Vec<PathBuf> {
    create_with_spares(folder, level, slots, 0, consistency, metadata)
}

/// As [`create_with`], with spares behind the slots' members.
pub fn create_with_spares(
    folder: &Path,
    level: Level,
    slots: u32,
    spares: u32,
    consistency: Consistency,
    metadata: Metadata,
) -> Vec<PathBuf> {
    let members = 0..slots + spares;
    let paths: Vec<_> = members.map(|slot| blank(folder, &format!("m{slot}"), MEMBER_BYTES)).collect();
    let candidates = Candidate::open_all(&paths, &[]).unwrap();
    let member = |candidate: &Candidate| NewMember {
        device_sectors: candidate.probe.device_sectors,
        device_uuid: Uuid([3; 16]),
        device_number: (0, 0),
        flags: DeviceFlags::default(),
    };
    let request = Request {
        plan: Plan {
            level,
            layout: Layout::default_of(level),
            raid_disks: slots,
            chunk_sectors: if level.has_chunks() { 128 } else { 0 },
            metadata,
            consistency,
            data_offset_sectors: None,
        },
        auto_bitmap: false,
        size_sectors: None,
        assume_clean: true,
        force: false,
        spares,
        members: candidates.iter().map(|candidate| Some(member(candidate))).collect(),
        journal: None,
        set_uuid: Uuid([level.number() as u8; 16]),
        name: "test".into(),
        homehost: None,
        created: Timestamp::from_seconds(1_700_000_000),
    };
    let array = create(&request).unwrap();
    let writes: Vec<_> = array
        .labels
        .iter()
        .map(|label| MemberWrite {
            candidate: &candidates[label.member],
            clears: true,
            logs: &label.logs,
            superblock: &label.superblock_area,
        })
        .collect();
    write(&writes).unwrap();
    paths
}

/// Finds the array of these members.
pub fn found(paths: &[PathBuf]) -> Assembled {
    let options = Options { run: true, ..Options::default() };
    let selection =
        Selection { members: paths.to_vec(), scan: None, wanted: Wanted::Only, options, overlay: None };
    find(&selection).unwrap().assemble(options).unwrap()
}

/// Opens the array of these members; `start` says whether it works by itself.
pub fn open(paths: &[PathBuf], start: bool) -> Array {
    let configure = |config: &mut ArrayConfig| config.volume.sync.start = start;
    found(paths).open(false, |_| Access::ReadWrite, configure).unwrap()
}
