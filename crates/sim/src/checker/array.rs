//! The array under test: what it is made of, and how it starts from the bytes of its members.

use stripewise_engine::assembly::{Assembly, AssemblyError, Candidate, Options, SlotState, assemble};
use stripewise_engine::geometry::{Geometry, GeometryError, GeometrySpec};
use stripewise_engine::level::{Layout, Level};
use stripewise_engine::metadata::{BitmapConfig, MemberMetadata, MetadataConfig, SAFE_MODE_DELAY};
use stripewise_engine::policy::Policy;
use stripewise_engine::units::{SECTOR_BYTES, SectorRange, Slot};
use stripewise_engine::volume::VolumeConfig;
use stripewise_format::bitmap::{BitmapSuperblock, Bits, SUPERBLOCK_BYTES};
use stripewise_format::placement::Metadata;
use stripewise_format::superblock::Superblock;
use stripewise_format::superblock_1::{Minor, Role, Superblock1};
use stripewise_format::time::Timestamp;
use stripewise_format::uuid::Uuid;

use super::failure::Failure;
use crate::faults::MemberStorage;

const SUPERBLOCK_SECTOR: u64 = 8;
const BITMAP_SECTOR: u64 = 16;
/// A page of bitmap lies before the data.
const DATA_SECTOR: u64 = 24;
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
    /// Bytes that a bit of the write-intent bitmap stands for, if there is one.
    pub bitmap_chunk_bytes: Option<u32>,
}

impl ArrayPlan {
    /// A small array of a level in its default layout.
    pub fn small(level: Level, members: u16, policy: Policy) -> Self {
        let chunk_sectors = if level.has_chunks() { 8 } else { 0 };
        Self {
            level,
            layout: Layout::default_of(level),
            members,
            chunk_sectors,
            data_sectors: 48,
            policy,
            stripe_cache_size: 17,
            discard: false,
            bitmap_chunk_bytes: None,
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

    fn is_redundant(&self) -> bool {
        !matches!(self.level, Level::Linear | Level::Raid0)
    }

    /// The superblock of a slot's member.
    fn superblock(&self, slot: u16, size_sectors: u64) -> Superblock1 {
        let mut superblock = Superblock1::new(self.level, self.members.into(), 0, SET_UUID);
        superblock.layout = self.layout.number() as u32;
        superblock.chunk_sectors = self.chunk_sectors as u32;
        superblock.size_sectors = if self.is_redundant() { size_sectors } else { 0 };
        superblock.data_offset_sectors = DATA_SECTOR;
        superblock.data_size_sectors = self.data_sectors;
        superblock.super_offset_sectors = SUPERBLOCK_SECTOR;
        superblock.dev_number = slot.into();
        superblock.device_uuid = Uuid([slot as u8 + 1; 16]);
        superblock.events = 1;
        for slot in 0..self.members {
            superblock.dev_roles[usize::from(slot)] = Role::Slot(slot);
        }
        if self.bitmap_chunk_bytes.is_some() && self.is_redundant() {
            superblock.set_bitmap((BITMAP_SECTOR - SUPERBLOCK_SECTOR) as i32);
        }
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
        let device = |slot| {
            let mut device = MemberStorage::new(DATA_SECTOR + self.data_sectors);
            let mut block = self.superblock(slot, size_sectors).to_bytes();
            block.resize(block.len().next_multiple_of(SECTOR_BYTES as usize), 0);
            device.put(SUPERBLOCK_SECTOR, &block);
            if let Some(chunk_bytes) = self.bitmap_chunk_bytes {
                let mut page = BitmapSuperblock::new(SET_UUID, sync_sectors, chunk_bytes).to_bytes();
                page.resize(page.len().next_multiple_of(SECTOR_BYTES as usize), 0);
                device.put(BITMAP_SECTOR, &page);
            }
            device
        };
        Ok((0..self.members).map(device).collect())
    }

    /// How it starts from its devices; those of none do not answer.
    ///
    /// # Errors
    /// Why it does not.
    pub fn start(&self, devices: &[Option<&MemberStorage>]) -> Result<Start, Failure> {
        let mut owners = Vec::new();
        let mut candidates = Vec::new();
        for (index, device) in devices.iter().enumerate() {
            if let Some(candidate) = device.and_then(|d| candidate(index, d)) {
                owners.push(index);
                candidates.push(candidate);
            }
        }
        let options = Options { run: true, ..Options::default() };
        let (assembly, forced) = match assemble(&candidates, options) {
            Err(AssemblyError::DirtyDegraded { .. }) => {
                (assemble(&candidates, Options { force: true, ..options }), true)
            }
            result => (result, false),
        };
        let assembly = assembly.map_err(|error| Failure::NotStarted(error.to_string()))?;
        let slot_candidate = |state: &SlotState| match *state {
            SlotState::InSync { candidate } => Some(candidate),
            SlotState::Recovering { .. } | SlotState::Missing => None,
        };
        let members: Vec<Option<usize>> = assembly.slots.iter().map(slot_candidate).collect();
        let bitmap = self.bitmap(&assembly, &candidates, &owners, devices)?;
        let metadata = MetadataConfig {
            members: members.iter().map(|c| c.map(|c| member_metadata(&candidates[c]))).collect(),
            bitmap: bitmap.clone(),
            clock_start: Timestamp::from_seconds(1_700_000_000),
            safe_mode_delay: SAFE_MODE_DELAY,
        };
        let config = VolumeConfig {
            stripe_cache_size: self.stripe_cache_size,
            failed: assembly.out_of_sync().collect(),
            discard: self.discard,
            metadata: Some(metadata),
            resync_from: (assembly.resync_offset_sectors != u64::MAX)
                .then_some(assembly.resync_offset_sectors),
            ..VolumeConfig::new(assembly.geometry.clone(), self.policy.clone())
        };
        Ok(Start {
            config,
            devices: members.into_iter().map(|c| c.map(|c| owners[c])).collect(),
            data_offset_sectors: DATA_SECTOR,
            is_clean: assembly.is_clean,
            forced,
            bitmap,
        })
    }

    /// The bitmap of the freshest member, all set if it is out of date.
    fn bitmap(
        &self,
        assembly: &Assembly,
        candidates: &[Candidate],
        owners: &[usize],
        devices: &[Option<&MemberStorage>],
    ) -> Result<Option<BitmapConfig>, Failure> {
        if self.bitmap_chunk_bytes.is_none() || !self.is_redundant() {
            return Ok(None);
        }
        let device = devices[owners[assembly.freshest]].expect("candidates are of devices that answer");
        let page = device.bytes(SectorRange::new(BITMAP_SECTOR, 8));
        let refused = |error: &dyn std::fmt::Display| Failure::NotStarted(format!("bitmap: {error}"));
        let superblock = BitmapSuperblock::parse(page).map_err(|e| refused(&e))?;
        let count = superblock.sync_size_sectors.div_ceil(u64::from(superblock.chunk_bytes) / SECTOR_BYTES);
        let mut bits = Bits::from_bytes(&page[SUPERBLOCK_BYTES..], count).map_err(|e| refused(&e))?;
        if superblock.events < candidates[assembly.freshest].superblock.events() && superblock.events > 0 {
            bits.set(0..count);
        }
        Ok(Some(BitmapConfig { superblock, bits }))
    }
}

fn candidate(index: usize, device: &MemberStorage) -> Option<Candidate> {
    let block = device.read(SectorRange::new(SUPERBLOCK_SECTOR, 8)).ok()?;
    let superblock = Superblock::parse(Metadata::V1(Minor::Start4K), block, SUPERBLOCK_SECTOR).ok()?;
    let bitmap = superblock.bitmap_sector(SUPERBLOCK_SECTOR).map(|sector| {
        BitmapSuperblock::parse(device.bytes(SectorRange::new(sector, 8))).map_err(|e| e.to_string())
    });
    Some(Candidate {
        label: format!("device {index}"),
        device_sectors: device.sectors(),
        at_sector: SUPERBLOCK_SECTOR,
        superblock,
        bitmap,
    })
}

fn member_metadata(candidate: &Candidate) -> MemberMetadata {
    MemberMetadata { superblock: candidate.superblock.clone(), sector: candidate.at_sector, bad_blocks: None }
}

/// An array that can be started.
#[derive(Clone, Debug)]
pub struct Start {
    /// For the engine.
    pub config: VolumeConfig,
    /// The device of each member.
    pub devices: Vec<Option<usize>>,
    /// Where devices' data begin.
    pub data_offset_sectors: u64,
    /// The superblocks say that nothing was being written.
    pub is_clean: bool,
    /// Parity may be wrong and was needed: the array started by force.
    pub forced: bool,
    /// The bitmap as it was found.
    pub bitmap: Option<BitmapConfig>,
}

impl Start {
    /// Whether the metadata say that a sector of the sync range may be out of sync.
    pub fn is_suspect(&self, sync_sector: u64) -> bool {
        !self.is_clean
            && self.bitmap.as_ref().is_none_or(|b| {
                b.bits.is_set(sync_sector / (u64::from(b.superblock.chunk_bytes) / SECTOR_BYTES))
            })
    }
}
