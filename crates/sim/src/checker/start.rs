//! How an array starts from the bytes of its devices, as a loop does it.

use stripewise_engine::assembly::{Assembly, AssemblyError, Candidate, Options, SlotState, assemble};
use stripewise_engine::metadata::{BitmapConfig, MemberMetadata, MetadataConfig, SAFE_MODE_DELAY};
use stripewise_engine::units::{MemberIndex, SECTOR_BYTES, SectorRange, Slot};
use stripewise_engine::volume::VolumeConfig;
use stripewise_format::bad_blocks::{self, BadRange};
use stripewise_format::bitmap::{BitmapSuperblock, Bits, SUPERBLOCK_BYTES};
use stripewise_format::superblock::Superblock;
use stripewise_format::superblock_0::Superblock0;
use stripewise_format::superblock_1::MAX_SECTOR;
use stripewise_format::time::Timestamp;

use super::array::ArrayPlan;
use super::failure::Failure;
use super::logs::follow;
use crate::faults::MemberStorage;

/// An array that can be started.
#[derive(Clone, Debug)]
pub struct Start {
    /// For the engine.
    pub config: VolumeConfig,
    /// The device of each member.
    pub devices: Vec<Option<usize>>,
    /// Parity may be wrong and was needed: the array started by force.
    pub forced: bool,
    /// The bitmap as it was found.
    pub bitmap: Option<BitmapConfig>,
}

impl Start {
    /// Whether the metadata say that a sector of the sync range may be out of sync.
    pub fn is_suspect(&self, sync_sector: u64) -> bool {
        self.config.resync_from.is_some_and(|from| sync_sector >= from)
            && self.bitmap.as_ref().is_none_or(|b| {
                b.bits.is_set(sync_sector / (u64::from(b.superblock.chunk_bytes) / SECTOR_BYTES))
            })
    }
}

/// What devices say of their array, and which device each is.
struct Found {
    candidates: Vec<Candidate>,
    owners: Vec<usize>,
    /// What their bad-block logs list; none of those without a log.
    bad_blocks: Vec<Option<Vec<BadRange>>>,
}

impl Found {
    fn of(plan: &ArrayPlan, devices: &[Option<&MemberStorage>]) -> Self {
        let read = |(index, device): (usize, Option<&MemberStorage>)| {
            device.and_then(|device| candidate(plan, index, device)).map(|candidate| (candidate, index))
        };
        let (candidates, owners): (Vec<Candidate>, Vec<usize>) =
            devices.iter().copied().enumerate().filter_map(read).unzip();
        let listed = |(candidate, owner): (&Candidate, &usize)| {
            let device = devices[*owner].expect("candidates are of devices that answer");
            bad_blocks(&candidate.superblock, candidate.at_sector, device)
        };
        let bad_blocks = candidates.iter().zip(&owners).map(listed).collect();
        Self { candidates, owners, bad_blocks }
    }

    /// A member's metadata as they were found, or called clean.
    fn metadata(&self, candidate: usize, is_called_clean: bool) -> MemberMetadata {
        let Candidate { superblock, at_sector, .. } = &self.candidates[candidate];
        let mut superblock = superblock.clone();
        match &mut superblock {
            Superblock::V0(superblock) if is_called_clean => superblock.state |= Superblock0::CLEAN,
            Superblock::V1(superblock) if is_called_clean => superblock.resync_offset_sectors = MAX_SECTOR,
            _ => {}
        }
        MemberMetadata { superblock, sector: *at_sector, bad_blocks: self.bad_blocks[candidate].clone() }
    }
}

impl ArrayPlan {
    /// How it starts from its devices; those of none do not answer. With `writes_left`, power fails before the write that comes after
    /// so many of those that following its logs takes: nothing is answered then.
    ///
    /// # Errors
    /// Why it does not.
    pub fn start(
        &self,
        devices: &mut [Option<&mut MemberStorage>],
        writes_left: Option<u64>,
    ) -> Result<Option<Start>, Failure> {
        let seen: Vec<Option<&MemberStorage>> = devices.iter().map(|device| device.as_deref()).collect();
        let found = Found::of(self, &seen);
        let options = Options { run: true, ..Options::default() };
        let (assembly, forced) = match assemble(&found.candidates, options) {
            Err(AssemblyError::DirtyDegraded { .. }) => {
                (assemble(&found.candidates, Options { force: true, ..options }), true)
            }
            result => (result, false),
        };
        let assembly = assembly.map_err(|error| Failure::NotStarted(error.to_string()))?;
        let is_called_clean = forced && assembly.is_clean;
        let slots = assembly.slots.iter().map(|state| state.candidate());
        let behind = assembly.spares.iter().copied().chain(assembly.replacements.iter().map(|r| r.candidate));
        let members: Vec<Option<usize>> = slots.chain(behind.map(Some)).collect();
        let bitmap = self.bitmap(&assembly, &found, &seen)?;
        let mut is_right = assembly.is_clean;
        if self.ppl().is_some() {
            let mut storages: Vec<_> = devices.iter_mut().map(Option::as_deref_mut).collect();
            let storages = members.iter().map(|c| c.and_then(|c| storages[found.owners[c]].take()));
            let Found { candidates, bad_blocks, .. } = &found;
            let report = follow(&assembly, candidates, &members, bad_blocks, storages, writes_left)?;
            let Some(report) = report else { return Ok(None) };
            is_right |= report.made_parity_right(&assembly);
        }
        let metadata = MetadataConfig {
            members: members.iter().map(|c| c.map(|c| found.metadata(c, is_called_clean))).collect(),
            bitmap: bitmap.clone(),
            journal: None,
            clock_start: Timestamp::from_seconds(1_700_000_000),
            safe_mode_delay: SAFE_MODE_DELAY,
        };
        let config = VolumeConfig {
            metadata: Some(metadata),
            resync_from: (!is_right).then_some(assembly.resync_offset_sectors),
            ..self.config(&assembly, MemberIndex((assembly.slots.len() + assembly.spares.len()) as u16))
        };
        let devices = members.into_iter().map(|c| c.map(|c| found.owners[c])).collect();
        Ok(Some(Start { config, devices, forced, bitmap }))
    }

    /// What the engine is told, but for the metadata. Replacements follow the spares in the table of members.
    fn config(&self, assembly: &Assembly, first_replacement: MemberIndex) -> VolumeConfig {
        let slots = || (0..).map(Slot).zip(&assembly.slots);
        let recovering = slots().filter_map(|(slot, state)| match *state {
            SlotState::Recovering { offset_sectors, .. } => Some((slot, offset_sectors)),
            SlotState::InSync { .. } | SlotState::Missing => None,
        });
        let replacements = assembly.replacements.iter().enumerate().map(|(index, replacement)| {
            let member = MemberIndex(first_replacement.0 + index as u16);
            (replacement.slot, member, replacement.offset_sectors)
        });
        VolumeConfig {
            stripe_cache_size: self.stripe_cache_size,
            failed: slots()
                .filter(|(_, state)| **state == SlotState::Missing)
                .map(|(slot, _)| slot)
                .collect(),
            recovering: recovering.collect(),
            spares: assembly.spares.len() as u16,
            replacements: replacements.collect(),
            sync: self.sync,
            discard: self.discard,
            rotational: self.rotational,
            ..VolumeConfig::new(assembly.geometry.clone(), self.policy.clone())
        }
    }

    /// The bitmap of the freshest member, all set if it is out of date.
    fn bitmap(
        &self,
        assembly: &Assembly,
        found: &Found,
        devices: &[Option<&MemberStorage>],
    ) -> Result<Option<BitmapConfig>, Failure> {
        if !self.has_bitmap() {
            return Ok(None);
        }
        let freshest = &found.candidates[assembly.freshest];
        let device = devices[found.owners[assembly.freshest]].expect("candidates are of devices that answer");
        let refused = |error: &dyn std::fmt::Display| Failure::NotStarted(format!("bitmap: {error}"));
        let sector = freshest
            .superblock
            .bitmap_sector(freshest.at_sector)
            .ok_or_else(|| refused(&"the freshest superblock names none"))?;
        let page = device.bytes(SectorRange::new(sector, 8));
        let superblock = BitmapSuperblock::parse(page).map_err(|e| refused(&e))?;
        let count = superblock.bits();
        let mut bits = Bits::from_bytes(&page[SUPERBLOCK_BYTES..], count).map_err(|e| refused(&e))?;
        if superblock.events < freshest.superblock.events() {
            bits.set(0..count);
        }
        Ok(Some(BitmapConfig { superblock, bits }))
    }

    /// Whether a device that is out of the array misses no more of a slot than the bitmap says.
    pub fn is_re_addable(&self, devices: &[Option<&MemberStorage>], device: usize, slot: Slot) -> bool {
        let found = Found::of(self, devices);
        let options =
            Options { run: true, force: true, readonly: true, forgets_bitmap: false, raid0_layout: None };
        assemble(&found.candidates, options).is_ok_and(|assembly| {
            assembly.stale.iter().any(|s| found.owners[s.candidate] == device && s.re_addable == Some(slot))
        })
    }
}

/// What a device's bad-block log lists. Logs here are of one sector, which is written whole or not at all.
///
/// # Panics
/// If it holds what is no log: nothing else is ever written there.
fn bad_blocks(superblock: &Superblock, at_sector: u64, device: &MemberStorage) -> Option<Vec<BadRange>> {
    let Superblock::V1(superblock) = superblock else { return None };
    let sector = at_sector.checked_add_signed(superblock.bblog_offset_sectors.into())?;
    superblock.has_bad_block_log().then(|| {
        let bytes = device.bytes(SectorRange::new(sector, superblock.bblog_size_sectors.into()));
        bad_blocks::parse(bytes, superblock.bblog_shift).expect("the engine writes logs")
    })
}

fn candidate(plan: &ArrayPlan, index: usize, device: &MemberStorage) -> Option<Candidate> {
    let at_sector = plan.superblock_sector();
    let block = device.read(SectorRange::new(at_sector, 8)).ok()?;
    let superblock = Superblock::parse(plan.metadata, block, at_sector).ok()?;
    let bitmap = superblock.bitmap_sector(at_sector).map(|sector| {
        BitmapSuperblock::parse(device.bytes(SectorRange::new(sector, 8))).map_err(|e| e.to_string())
    });
    Some(Candidate {
        label: format!("device {index}"),
        device_sectors: device.sectors(),
        at_sector,
        superblock,
        bitmap,
    })
}
