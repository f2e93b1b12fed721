//! The write journal of an array that is about to be opened: its log brought to the members, or the journal given up.

mod storage;
mod told;

use std::path::Path;

use stripewise_engine::assembly::{Journal, SlotState};
use stripewise_engine::geometry::Geometry;
use stripewise_engine::io::IoError;
use stripewise_engine::journal::{JournalPlace, JournalReport, RowMember, pending, recover};
use stripewise_engine::units::{MemberIndex, Slot};
use stripewise_format::bad_blocks::BadRange;
use stripewise_format::superblock::Superblock;

use self::storage::Devices;
use super::assemble::{AssembleError, Assembled};
use crate::error::{HostError, MemberProblem};
use crate::members::{self, Access, Member, MemberSpec};

/// What the members lack that a write journal has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pending {
    /// So many rows of a page; none if all is on the members.
    Rows(u64),
    /// Nobody knows: the journal is missing.
    Lost,
    /// Nobody knows: there is no log where the journal's superblock says that it begins.
    Damaged,
}

impl Assembled {
    /// Brings what the write journal has to the members, and empties it. A journal that is missing, or has no log, is given up if
    /// that was asked for by force; so is one under an overlay once it is empty, because the overlay's writes do not go through it.
    pub(super) fn follow_journal(&mut self, access: impl Fn(&Path) -> Access) -> Result<(), AssembleError> {
        let Some(journal) = self.assembly.journal else { return Ok(()) };
        let Journal::Device { candidate } = journal else {
            let devices = self.devices(None, &access)?;
            return self.give_up_journal(&devices, true);
        };
        let devices = self.devices(Some(candidate), &access)?;
        if self.is_to_be_told() {
            self.tell_who_is_there(&devices)?;
        }
        let report = self.recover(candidate, &devices)?;
        if report.is_damaged {
            if !self.by_force {
                return Err(AssembleError::JournalDamaged(self.found.paths[candidate].clone()));
            }
            return self.give_up_journal(&devices, true);
        }
        self.replayed = Some(report);
        if self.found.overlay.is_some() {
            self.give_up_journal(&devices, false)?;
        }
        Ok(())
    }

    /// Has the members say that there is no journal; to be called once its log is empty.
    pub(super) fn leave_journal(&mut self, access: impl Fn(&Path) -> Access) -> Result<(), AssembleError> {
        let Some(candidate) = self.assembly.journal_device() else { return Ok(()) };
        let devices = self.devices(Some(candidate), &access)?;
        self.give_up_journal(&devices, false)
    }

    /// What the members lack that the write journal has; nothing for arrays without one. Nothing is written.
    ///
    /// # Errors
    /// A device cannot be opened or read.
    pub fn journal_pending(&self) -> Result<Pending, AssembleError> {
        let candidate = match self.assembly.journal {
            None => return Ok(Pending::Rows(0)),
            Some(Journal::Lost) => return Ok(Pending::Lost),
            Some(Journal::Device { candidate }) => candidate,
        };
        let devices = self.devices(Some(candidate), &|_| Access::ReadOnly)?;
        let geometry = self.journaled_geometry()?;
        let mut storage = self.storage(candidate, &devices)?;
        // A bad-block log that does not read is in the way of those who write.
        let members = self.row_members(|candidate| Ok(self.bad_blocks(candidate).unwrap_or_default()))?;
        let journal = self.journal_place(candidate);
        let found = pending(&geometry, &self.assembly.uuid, &journal, &members, &mut storage);
        let failed = storage.failed();
        Ok(found
            .map_err(|error| self.named(candidate, failed, error))?
            .map_or(Pending::Damaged, Pending::Rows))
    }

    fn recover(&mut self, candidate: usize, devices: &[Member]) -> Result<JournalReport, AssembleError> {
        let geometry = self.journaled_geometry()?;
        let mut storage = self.storage(candidate, devices)?;
        let members = self.row_members(|candidate| self.bad_blocks(candidate))?;
        let journal = self.journal_place(candidate);
        let report = recover(&geometry, &self.assembly.uuid, &journal, &members, &mut storage);
        let (failed, superblock) = (storage.failed(), storage.into_superblock());
        let report = report.map_err(|error| self.named(candidate, failed, error))?;
        self.found.candidates[candidate].superblock = Superblock::V1(Box::new(superblock));
        Ok(report)
    }

    /// The members by index, and the journal behind them, each as a whole device. Somebody may have written to them since they
    /// were looked at.
    fn devices(
        &self,
        journal: Option<usize>,
        access: &impl Fn(&Path) -> Access,
    ) -> Result<Vec<Member>, AssembleError> {
        let table = self.table();
        let spec = |index: usize| self.found.spec(index, access(&self.found.paths[index]));
        let candidates = table.iter().copied().chain(journal.map(Some));
        let specs = candidates.map(|candidate| candidate.map_or(Ok(MemberSpec::Missing), spec));
        let specs: Vec<MemberSpec> = specs.collect::<Result<_, _>>()?;
        let slots = &self.assembly.geometry.member_sectors;
        let sectors = members::sizes_to_journal(slots, journal.map(|_| table.len()));
        let devices = members::open_all(&specs, &sectors, 1)?;
        self.check_unchanged()?;
        Ok(devices)
    }

    fn journaled_geometry(&self) -> Result<Geometry, HostError> {
        Geometry::new(&self.assembly.geometry).map_err(HostError::Geometry)
    }

    fn storage<'a>(&self, candidate: usize, devices: &'a [Member]) -> Result<Devices<'a>, AssembleError> {
        let found = &self.found.candidates[candidate];
        match &found.superblock {
            Superblock::V1(superblock) => {
                Ok(Devices::new(devices, found.at_sector, superblock.as_ref().clone()))
            }
            Superblock::V0(_) => Err(AssembleError::JournalDamaged(self.found.paths[candidate].clone())),
        }
    }

    fn journal_place(&self, candidate: usize) -> JournalPlace {
        let found = &self.found.candidates[candidate];
        let tail = match &found.superblock {
            Superblock::V1(superblock) => superblock.journal_tail_sectors(),
            Superblock::V0(_) => None,
        };
        JournalPlace {
            member: MemberIndex(self.table().len() as u16),
            data_offset_sectors: found.superblock.data_offset_sectors(),
            data_sectors: found.superblock.data_size_sectors(found.at_sector),
            tail_sectors: tail.unwrap_or(0),
        }
    }

    /// The members that rows are written to: those of slots, and replacements, which are not read.
    fn row_members(
        &self,
        bad: impl Fn(usize) -> Result<Option<Vec<BadRange>>, AssembleError>,
    ) -> Result<Vec<RowMember>, AssembleError> {
        let assembly = &self.assembly;
        let slots = (0..).map(Slot).zip(&assembly.slots).filter_map(|(slot, state)| match *state {
            SlotState::InSync { candidate } => Some((slot.0, slot, candidate, u64::MAX)),
            SlotState::Recovering { candidate, offset_sectors } => {
                Some((slot.0, slot, candidate, offset_sectors))
            }
            SlotState::Missing => None,
        });
        let first = (assembly.slots.len() + assembly.spares.len()) as u16;
        let replacements =
            (first..).zip(&assembly.replacements).map(|(index, r)| (index, r.slot, r.candidate, 0));
        let member = |(index, slot, candidate, valid_sectors): (u16, Slot, usize, u64)| {
            Ok(RowMember {
                member: MemberIndex(index),
                slot,
                data_offset_sectors: self.found.candidates[candidate].superblock.data_offset_sectors(),
                valid_sectors,
                bad: bad(candidate)?.unwrap_or_default(),
            })
        };
        slots.chain(replacements).map(member).collect()
    }

    /// The error with the path of the device that refused.
    fn named(&self, journal: usize, failed: Option<usize>, error: IoError) -> AssembleError {
        let table = self.table();
        let candidate = failed.map(|index| table.get(index).copied().flatten().unwrap_or(journal));
        match (error, candidate) {
            (IoError::NoSpace, None) => AssembleError::JournalFull(self.found.paths[journal].clone()),
            (error, None) => HostError::Io(error).into(),
            (error, Some(candidate)) => HostError::Member {
                path: self.found.paths[candidate].clone(),
                problem: MemberProblem::Journal(error),
            }
            .into(),
        }
    }
}
