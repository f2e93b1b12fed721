//! Arrays that keep their state on their members, for tests.

use stripewise_format::device_flags::DeviceFlags;
use stripewise_format::superblock::Superblock;
use stripewise_format::superblock_1::{Role, Superblock1};
use stripewise_format::time::Timestamp;
use stripewise_format::uuid::Uuid;

use crate::geometry::GeometrySpec;
use crate::level::{Layout, Level};
use crate::metadata::{MemberMetadata, MetadataConfig, SAFE_MODE_DELAY};
use crate::policy::Policy;
use crate::volume::VolumeConfig;

/// A member's sectors of data.
pub(crate) const SECTORS: u64 = 1 << 14;
/// Where they begin.
pub(crate) const DATA_OFFSET: u64 = 2048;

/// A member's superblock; the first `members` hold the slots, others are spares.
pub(crate) fn superblock(level: Level, member: u16, members: u16, is_write_mostly: bool) -> Superblock {
    let mut superblock = Superblock1::new(level, members.into(), 1, Uuid([7; 16]));
    superblock.layout = Layout::default_of(level).number() as u32;
    superblock.chunk_sectors = if level.has_chunks() { 128 } else { 0 };
    superblock.size_sectors = SECTORS;
    superblock.data_offset_sectors = DATA_OFFSET;
    superblock.data_size_sectors = SECTORS;
    superblock.super_offset_sectors = 8;
    superblock.bblog_offset_sectors = 8;
    superblock.bblog_size_sectors = 8;
    superblock.dev_number = member.into();
    superblock.events = 10;
    (0..members).for_each(|slot| superblock.dev_roles[usize::from(slot)] = Role::Slot(slot));
    superblock.set_device_flags(DeviceFlags { is_write_mostly, is_failfast: false });
    Superblock::V1(Box::new(superblock))
}

/// An array whose members are write-mostly where it says so; those beyond `slots` are spares. It does nothing by itself
/// unless changed to.
pub(crate) fn config(level: Level, slots: u16, write_mostly: &[bool]) -> VolumeConfig {
    let geometry = GeometrySpec {
        level,
        layout: Layout::default_of(level),
        chunk_sectors: if level.has_chunks() { 128 } else { 0 },
        member_sectors: vec![SECTORS; slots.into()],
    };
    let member = |(index, is_write_mostly): (u16, &bool)| {
        let superblock = superblock(level, index, slots, *is_write_mostly);
        Some(MemberMetadata { superblock, sector: 8, bad_blocks: Some(Vec::new()) })
    };
    let metadata = MetadataConfig {
        members: (0..).zip(write_mostly).map(member).collect(),
        bitmap: None,
        journal: None,
        clock_start: Timestamp::from_seconds(1_000),
        safe_mode_delay: SAFE_MODE_DELAY,
    };
    let mut config = VolumeConfig::new(geometry, Policy::stripewise());
    config.spares = write_mostly.len() as u16 - slots;
    config.metadata = Some(metadata);
    config.sync.start = false;
    config
}
