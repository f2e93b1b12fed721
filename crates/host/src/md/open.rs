//! From chosen members to what an array is opened with.

use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use stripewise_engine::assembly::{Candidate, Consistency, Journal, SlotState};
use stripewise_engine::journal::JournalStart;
use stripewise_engine::metadata::{BitmapConfig, MemberMetadata, MetadataConfig, SAFE_MODE_DELAY};
use stripewise_engine::policy::Policy;
use stripewise_engine::units::{MemberIndex, Slot};
use stripewise_engine::volume::VolumeConfig;
use stripewise_format::bad_blocks::BadRange;
use stripewise_format::superblock::Superblock;
use stripewise_format::superblock_1::Features;
use stripewise_format::time::Timestamp;

use super::assemble::{AssembleError, Assembled, Found, look};
use super::probe;
use crate::array::{Array, ArrayConfig};
use crate::members::{Access, MemberSpec};

impl Assembled {
    /// Opens the array, with what `configure` changes of its [configuration](Self::config). `access` is what may happen to each
    /// member's path; to those of an array that is `read_only` nothing but reads may. Nothing is written but by following the logs
    /// of an array that is not.
    ///
    /// An array that is `read_only` is taken as its members are: what a write journal holds and what partial parity logs would
    /// correct is not there.
    ///
    /// # Errors
    /// As [`follow_logs`](Self::follow_logs), [`config`](Self::config), [`Array::open`] and
    /// [`check_unchanged`](Self::check_unchanged), which are called in this order.
    pub fn open(
        &mut self,
        read_only: bool,
        access: impl Fn(&Path) -> Access,
        configure: impl FnOnce(&mut ArrayConfig),
    ) -> Result<Array, AssembleError> {
        let access = |path: &Path| if read_only { Access::ReadOnly } else { access(path) };
        if !read_only {
            self.follow_logs(access)?;
        }
        let mut config = self.config(read_only, access)?;
        configure(&mut config);
        let array = Array::open(config)?;
        self.check_unchanged()?;
        Ok(array)
    }

    /// What to open the array with. `access` is allowed for each member's path. An array that is not `read_only`
    /// keeps its superblocks and bitmap up to date, and does by itself what is due: resync, recovery, replacement.
    /// [`crate::Array::close`] leaves it clean.
    ///
    /// [`open`](Self::open) does all of it. Who does it by hand calls, in this order, [`follow_logs`](Self::follow_logs) if the array
    /// is to be written to, `config`, [`Array::open`], which locks the members, and [`check_unchanged`](Self::check_unchanged):
    /// without that, what another program has written since the members were found is not noticed, and stale data are read.
    ///
    /// # Errors
    /// The overlay cannot take a member, the bitmap no longer reads, or the array is to be written to and its write journal or its
    /// partial parity logs have not been [followed](Self::follow_logs).
    pub fn config(
        &self,
        read_only: bool,
        access: impl Fn(&Path) -> Access,
    ) -> Result<ArrayConfig, AssembleError> {
        let Self { found, assembly, .. } = self;
        if !read_only && assembly.consistency == Consistency::Ppl && self.logs.is_none() {
            return Err(AssembleError::LogsNotFollowed(found.paths[assembly.freshest].clone()));
        }
        let journal = if read_only { None } else { self.journal()? };
        let spec = |index: usize| found.spec(index, access(&found.paths[index]));
        let table = self.table();
        let members = table.iter().map(|candidate| candidate.map_or(Ok(MemberSpec::Missing), spec));
        let mut members = members.collect::<Result<Vec<_>, _>>()?;
        if let Some((candidate, _)) = journal {
            members.push(spec(candidate)?);
        }
        let mut volume = VolumeConfig::new(assembly.geometry.clone(), Policy::stripewise());
        let slots = || (0..).map(Slot).zip(&assembly.slots);
        volume.failed =
            slots().filter(|(_, state)| state.candidate().is_none()).map(|(slot, _)| slot).collect();
        volume.recovering =
            slots().filter_map(|(slot, state)| Some((slot, self.recovered(*state)?))).collect();
        volume.returned.clone_from(&assembly.returned);
        volume.read_only = read_only;
        if assembly.consistency != Consistency::None {
            volume.metadata = Some(self.metadata(&table, journal, read_only)?);
        }
        if !read_only && assembly.consistency != Consistency::None {
            volume.spares = assembly.spares.len() as u16;
            let first = assembly.slots.len() + assembly.spares.len();
            volume.replacements = (first..)
                .zip(&assembly.replacements)
                .map(|(index, r)| {
                    (r.slot, MemberIndex(index as u16), r.offset_sectors.min(self.used_sectors()))
                })
                .collect();
        }
        // Whoever only reads resyncs nothing, and is to read the copies that a resync would keep.
        let is_in_sync = assembly.resync_offset_sectors == u64::MAX || self.logs_made_parity_right();
        volume.resync_from = (!is_in_sync).then_some(assembly.resync_offset_sectors);
        Ok(ArrayConfig::new(volume, members))
    }

    /// The write journal, and how its log is written on, if the array has one.
    fn journal(&self) -> Result<Option<(usize, JournalStart)>, AssembleError> {
        let (candidate, start) = match self.assembly.journal {
            None => return Ok(None),
            Some(Journal::Device { candidate }) => (candidate, self.replayed.and_then(|report| report.start)),
            Some(Journal::Lost) => (self.assembly.freshest, None),
        };
        let path = || self.found.paths[candidate].clone();
        Ok(Some((candidate, start.ok_or_else(|| AssembleError::Journaled(path()))?)))
    }

    /// Sectors of each member that redundancy covers.
    fn used_sectors(&self) -> u64 {
        self.found.candidates[self.assembly.freshest].superblock.size_sectors()
    }

    fn recovered(&self, state: SlotState) -> Option<u64> {
        match state {
            SlotState::Recovering { offset_sectors, .. } => Some(offset_sectors.min(self.used_sectors())),
            SlotState::InSync { .. } | SlotState::Missing => None,
        }
    }

    /// The candidates by member index: those of the slots, then spares, then replacements. An array without redundancy
    /// has none of the latter two.
    pub(super) fn table(&self) -> Vec<Option<usize>> {
        let assembly = &self.assembly;
        let mut table: Vec<_> = assembly.slots.iter().map(|state| state.candidate()).collect();
        if assembly.consistency != Consistency::None {
            table.extend(assembly.spares.iter().copied().map(Some));
            table.extend(assembly.replacements.iter().map(|replacement| Some(replacement.candidate)));
        }
        table
    }

    /// What the members that are in use hold about the array.
    fn metadata(
        &self,
        table: &[Option<usize>],
        journal: Option<(usize, JournalStart)>,
        read_only: bool,
    ) -> Result<MetadataConfig, AssembleError> {
        let behind = journal.map(|(candidate, _)| Some(candidate));
        let members = table.iter().chain(behind.as_ref()).enumerate().map(|(index, candidate)| {
            let Some(candidate) = *candidate else { return Ok(None) };
            let found = &self.found.candidates[candidate];
            let mut superblock = found.superblock.clone();
            let slot = Slot(index as u16);
            if let Superblock::V1(superblock) = &mut superblock
                && self.assembly.returned.contains(&slot)
                && superblock.recovered_sectors().is_none()
            {
                // It comes back: from now on its superblock says that it lacks what the bitmap names.
                superblock.features |= Features::RECOVERY_OFFSET | Features::RECOVERY_BITMAP;
                superblock.recovery_offset_sectors = 0;
            }
            if let Superblock::V1(superblock) = &mut superblock
                && self.assembly.consistency != Consistency::Journal
            {
                // A member may say so yet, if power was cut while the journal was given up.
                superblock.features = superblock.features.without(Features::JOURNAL);
            }
            let bad_blocks = match self.bad_blocks(candidate) {
                Err(_) if read_only => None,
                read => read?,
            };
            Ok(Some(MemberMetadata { superblock, sector: found.at_sector, bad_blocks }))
        });
        let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Ok(MetadataConfig {
            members: members.collect::<Result<_, AssembleError>>()?,
            bitmap: if read_only { None } else { self.bitmap()? },
            journal: journal.map(|(_, start)| start),
            clock_start: Timestamp::from_seconds(since_1970.as_secs()),
            safe_mode_delay: SAFE_MODE_DELAY,
        })
    }

    /// What a member's bad-block log lists.
    pub(super) fn bad_blocks(&self, index: usize) -> Result<Option<Vec<BadRange>>, AssembleError> {
        let Found { paths, candidates, overlay, .. } = &self.found;
        let (_, source) = look(&paths[index], overlay.as_ref())?;
        let Candidate { device_sectors, superblock, .. } = &candidates[index];
        probe::read_bad_blocks(&*source, *device_sectors, superblock)
            .map_err(|error| AssembleError::BadBlocks(paths[index].clone(), error))
    }

    /// The bitmap of a member in sync: the freshest's, or the first that reads.
    pub(super) fn bitmap(&self) -> Result<Option<BitmapConfig>, AssembleError> {
        let Self { found, assembly, .. } = self;
        if assembly.consistency != Consistency::Bitmap {
            return Ok(None);
        }
        let mut in_sync: Vec<usize> =
            assembly.slots.iter().filter(|s| s.is_in_sync()).filter_map(|s| s.candidate()).collect();
        in_sync.sort_by_key(|candidate| *candidate != assembly.freshest);
        for index in in_sync {
            let candidate = &found.candidates[index];
            let matching = |uuid| uuid == candidate.superblock.bitmap_uuid();
            if !matches!(&candidate.bitmap, Some(Ok(head)) if matching(head.uuid)) {
                continue;
            }
            let (_, source) = look(&found.paths[index], found.overlay.as_ref())?;
            let read = probe::read_bitmap(
                &*source,
                candidate.device_sectors,
                &candidate.superblock,
                candidate.at_sector,
            );
            if let Ok(Some((superblock, bits))) = read {
                return Ok(Some(BitmapConfig { superblock, bits }));
            }
        }
        Err(AssembleError::Changed(found.paths[assembly.freshest].clone()))
    }

    /// Takes stale members back that the bitmap allows to, of those that were named one by one. To be called before
    /// the array is opened for writing.
    pub fn take_back_named(&mut self) {
        let candidates: Vec<usize> = self.assembly.stale.iter().map(|stale| stale.candidate).collect();
        for candidate in candidates.into_iter().filter(|candidate| self.found.named[*candidate]) {
            self.assembly.take_back(&self.found.candidates, candidate);
        }
    }

    /// Looks at the members again once [`Array::open`] has opened and locked them: what was decided holds only if nobody wrote to
    /// them meanwhile.
    ///
    /// # Errors
    /// A superblock is not what it was.
    pub fn check_unchanged(&self) -> Result<(), AssembleError> {
        for index in self.table().into_iter().chain([self.assembly.journal_device()]).flatten() {
            if self.found.has_changed(index)? {
                return Err(AssembleError::Changed(self.found.paths[index].clone()));
            }
        }
        Ok(())
    }
}
