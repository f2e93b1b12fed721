//! The array under test: what it is made of, and the labels of its devices.

use stripewise_engine::array::sync::SyncConfig;
use stripewise_engine::geometry::{Geometry, GeometryError, GeometrySpec};
use stripewise_engine::level::{Layout, Level};
use stripewise_engine::policy::Policy;
use stripewise_engine::units::{SECTOR_BYTES, Slot};
use stripewise_format::bitmap::BitmapSuperblock;
use stripewise_format::placement::Metadata;
use stripewise_format::ppl;
use stripewise_format::superblock::Superblock;
use stripewise_format::superblock_0::{Disk, RESERVED_SECTORS, Superblock0};
use stripewise_format::superblock_1::{Minor, PplArea, Role, Superblock1};
use stripewise_format::uuid::Uuid;

use crate::faults::MemberStorage;

/// Superblock and bitmap take a page each, before the data or behind them, and so does a bad-block log.
const LABEL_SECTORS: u64 = 24;
/// From the superblock to the bitmap.
const BITMAP_OFFSET_SECTORS: u64 = 8;
/// A log that few errors fill.
const BAD_BLOCK_LOG_SECTORS: u16 = 1;
const SET_UUID: Uuid = Uuid([0x51; 16]);

/// What an array is made of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ArrayPlan {
    /// Level.
    pub level: Level,
    /// Layout.
    pub layout: Layout,
    /// Slots.
    pub members: u16,
    /// Devices that wait to take a slot.
    pub spares: u16,
    /// Chunk in sectors; 0 for levels without.
    pub chunk_sectors: u64,
    /// Sectors of each member's data.
    pub data_sectors: u64,
    /// Whose behaviour.
    pub policy: Policy,
    /// Stripe-cache entries.
    pub stripe_cache_size: u32,
    /// Members take discards.
    pub discard: bool,
    /// Version of the superblocks.
    pub metadata: Metadata,
    /// Bytes that a bit of the write-intent bitmap stands for, if there is one.
    pub bitmap_chunk_bytes: Option<u32>,
    /// Members have bad-block logs.
    pub bad_block_log: bool,
    /// Sectors of each member's partial parity logs, if it has some.
    pub ppl_sectors: Option<u16>,
    /// Members have heads: of copies the nearest, or the lowest, is read.
    pub rotational: bool,
    /// How it works by itself.
    pub sync: SyncConfig,
}

impl ArrayPlan {
    /// A small array of a level in its default layout.
    pub fn small(level: Level, members: u16, policy: Policy) -> Self {
        let chunk_sectors = if level.has_chunks() { 8 } else { 0 };
        Self {
            level,
            layout: Layout::default_of(level),
            members,
            spares: 0,
            chunk_sectors,
            data_sectors: 48,
            policy,
            stripe_cache_size: 17,
            discard: false,
            metadata: Metadata::DEFAULT,
            bitmap_chunk_bytes: None,
            bad_block_log: false,
            ppl_sectors: None,
            rotational: false,
            sync: SyncConfig::DEFAULT,
        }
    }

    fn spec(&self) -> GeometrySpec {
        GeometrySpec {
            level: self.level,
            layout: self.layout,
            chunk_sectors: self.chunk_sectors,
            member_sectors: vec![self.data_sectors; self.members.into()],
        }
    }

    /// Its geometry.
    ///
    /// # Errors
    /// If there is no such array.
    pub fn geometry(&self) -> Result<Geometry, GeometryError> {
        Geometry::new(&self.spec())
    }

    /// Whether members hold the same content, or parity of it.
    pub(super) const fn is_redundant(&self) -> bool {
        self.keeps_state() && self.members > 1
    }

    /// Whether the level keeps its superblocks up to date.
    const fn keeps_state(&self) -> bool {
        !matches!(self.level, Level::Linear | Level::Raid0)
    }

    pub(super) const fn has_bitmap(&self) -> bool {
        self.bitmap_chunk_bytes.is_some() && self.keeps_state() && self.ppl().is_none()
    }

    /// The partial parity logs: behind all else that is before the data, or before all else that is behind them.
    pub(super) const fn ppl(&self) -> Option<PplArea> {
        let (Level::Raid5, Metadata::V1(minor), Some(size_sectors)) =
            (self.level, self.metadata, self.ppl_sectors)
        else {
            return None;
        };
        let offset_sectors = if matches!(minor, Minor::End) { -8 - size_sectors as i16 } else { 24 };
        Some(PplArea { offset_sectors, size_sectors, multiple: false })
    }

    /// From the superblock to the bad-block log, if there is one: behind the bitmap, or before the superblock.
    const fn bad_block_log_offset_sectors(&self) -> Option<i32> {
        match self.metadata {
            Metadata::V1(minor) if self.bad_block_log && self.keeps_state() => {
                Some(if matches!(minor, Minor::End) { -8 } else { 16 })
            }
            _ => None,
        }
    }

    /// What is not data of a device with superblock 1.
    const fn label_sectors(&self) -> u64 {
        let logs = if let Some(area) = self.ppl() { area.size_sectors as u64 } else { 0 };
        let has_more = self.bad_block_log_offset_sectors().is_some() || self.ppl().is_some();
        LABEL_SECTORS + if has_more { 8 } else { 0 } + logs
    }

    /// Where devices' data begin.
    pub(super) const fn data_offset_sectors(&self) -> u64 {
        match self.metadata {
            Metadata::V0 | Metadata::V1(Minor::End) => 0,
            Metadata::V1(Minor::Start | Minor::Start4K) => self.label_sectors(),
        }
    }

    const fn device_sectors(&self) -> u64 {
        match self.metadata {
            Metadata::V0 => self.data_sectors.next_multiple_of(RESERVED_SECTORS) + RESERVED_SECTORS,
            Metadata::V1(_) => self.data_sectors + self.label_sectors(),
        }
    }

    /// The device's sector of the superblock.
    pub(super) fn superblock_sector(&self) -> u64 {
        self.metadata.sector(self.device_sectors()).expect("devices have room for their superblock")
    }

    /// The superblock of a device: of a slot's member, behind them of a spare.
    fn superblock(&self, index: u16, size_sectors: u64) -> Superblock {
        match self.metadata {
            Metadata::V0 => Superblock::V0(Box::new(self.superblock_0(index, size_sectors))),
            Metadata::V1(_) => Superblock::V1(Box::new(self.superblock_1(index, size_sectors))),
        }
    }

    fn superblock_1(&self, index: u16, size_sectors: u64) -> Superblock1 {
        let mut superblock = Superblock1::new(self.level, self.members.into(), self.spares.into(), SET_UUID);
        superblock.layout = self.layout.number() as u32;
        superblock.chunk_sectors = self.chunk_sectors as u32;
        superblock.size_sectors = if self.keeps_state() { size_sectors } else { 0 };
        superblock.data_offset_sectors = self.data_offset_sectors();
        superblock.data_size_sectors = self.data_sectors;
        superblock.super_offset_sectors = self.superblock_sector();
        superblock.dev_number = index.into();
        superblock.device_uuid = Uuid([index as u8 + 1; 16]);
        superblock.events = 1;
        for slot in 0..self.members {
            superblock.dev_roles[usize::from(slot)] = Role::Slot(slot);
        }
        if self.has_bitmap() {
            superblock.set_bitmap(BITMAP_OFFSET_SECTORS as i32);
        }
        if let Some(area) = self.ppl() {
            superblock.set_ppl(area);
        }
        if let Some(offset) = self.bad_block_log_offset_sectors() {
            superblock.bblog_offset_sectors = offset;
            superblock.bblog_size_sectors = BAD_BLOCK_LOG_SECTORS;
        }
        superblock
    }

    fn superblock_0(&self, index: u16, size_sectors: u64) -> Superblock0 {
        let mut superblock = Superblock0::new(self.level, self.members.into(), SET_UUID);
        superblock.layout = self.layout.number() as u32;
        superblock.chunk_bytes = (self.chunk_sectors * SECTOR_BYTES) as u32;
        superblock.size_kib = if self.keeps_state() { (size_sectors / 2) as u32 } else { 0 };
        superblock.events = 1;
        superblock.state = Superblock0::CLEAN;
        if self.has_bitmap() {
            superblock.state |= Superblock0::BITMAP_PRESENT;
        }
        let (members, spares) = (u32::from(self.members), u32::from(self.spares));
        superblock.nr_disks = members + spares;
        superblock.working_disks = members + spares;
        superblock.active_disks = members;
        superblock.spare_disks = spares;
        for number in 0..members + spares {
            let state = if number < members { Disk::ACTIVE | Disk::SYNC } else { 0 };
            superblock.disks[number as usize] = Disk { number, raid_disk: number, state, ..Disk::default() };
        }
        superblock.this_disk = superblock.disks[usize::from(index)];
        superblock
    }

    /// Labelled devices for it, clean and all zeroes.
    ///
    /// # Errors
    /// If there is no such array.
    pub fn devices(&self) -> Result<Vec<MemberStorage>, GeometryError> {
        let geometry = self.geometry()?;
        let size_sectors = geometry.used_sectors(Slot(0));
        let sync_sectors = if self.level == Level::Raid10 { geometry.array_sectors() } else { size_sectors };
        let device = |index| {
            let mut device = MemberStorage::new(self.device_sectors());
            let sector = self.superblock_sector();
            let superblock = self.superblock(index, size_sectors);
            put(&mut device, sector, superblock.to_bytes());
            if self.metadata == Metadata::V0 {
                device.keep_whole(sector);
            }
            self.empty_log(&mut device);
            if let Some(offset) = self.bad_block_log_offset_sectors() {
                let empty = vec![0xff; usize::from(BAD_BLOCK_LOG_SECTORS) * SECTOR_BYTES as usize];
                put(&mut device, sector.saturating_add_signed(offset.into()), empty);
            }
            if let Some(chunk_bytes) = self.bitmap_chunk_bytes.filter(|_| self.has_bitmap()) {
                let mut bitmap = BitmapSuperblock::new(superblock.bitmap_uuid(), sync_sectors, chunk_bytes);
                bitmap.events = 1;
                bitmap.events_cleared = 1;
                put(&mut device, sector + BITMAP_OFFSET_SECTORS, bitmap.to_bytes());
            }
            device
        };
        Ok((0..self.members + self.spares).map(device).collect())
    }
}

impl ArrayPlan {
    /// Empties the partial parity log of a device that comes in, as whoever adds it does; answers whether it has one.
    pub(super) fn empty_log(&self, device: &mut MemberStorage) -> bool {
        let Some(area) = self.ppl() else { return false };
        let sector = self.superblock_sector().saturating_add_signed(area.offset_sectors.into());
        put(device, sector, ppl::empty_log(&SET_UUID, area));
        true
    }
}

fn put(device: &mut MemberStorage, sector: u64, mut bytes: Vec<u8>) {
    bytes.resize(bytes.len().next_multiple_of(SECTOR_BYTES as usize), 0);
    device.put(sector, &bytes);
}
