//! Following the partial parity logs, or the write journal, of an array that is about to be opened for writing.

use std::path::Path;

use stripewise_engine::assembly::Consistency;
use stripewise_engine::geometry::Geometry;
use stripewise_engine::io::IoResult;
use stripewise_engine::ppl::{LogPlace, MemberStorage, recover};
use stripewise_engine::units::MemberIndex;

use super::assemble::{AssembleError, Assembled};
use crate::error::{HostError, MemberProblem};
use crate::members::{self, Access, Member, MemberSpec};

impl Assembled {
    /// Makes parity, and with a write journal data, right where writes were under way when the array was last used, and empties
    /// the logs. To be called before [`Self::config`], which needs to know; arrays without such logs are left as they are.
    ///
    /// # Errors
    /// A member cannot be opened, read or written; or somebody wrote to it meanwhile. The logs are then as they were. A write
    /// journal that is damaged is given up only by force.
    pub fn follow_logs(&mut self, access: impl Fn(&Path) -> Access) -> Result<(), AssembleError> {
        match self.assembly.consistency {
            Consistency::Ppl => self.follow_partial_parity(access),
            Consistency::Journal => self.follow_journal(access),
            Consistency::None | Consistency::Resync | Consistency::Bitmap => Ok(()),
        }
    }

    fn follow_partial_parity(&mut self, access: impl Fn(&Path) -> Access) -> Result<(), AssembleError> {
        let geometry = Geometry::new(&self.assembly.geometry).map_err(HostError::Geometry)?;
        let table = self.table();
        let spec = |index: usize| self.found.spec(index, access(&self.found.paths[index]));
        let specs = table.iter().map(|candidate| candidate.map_or(Ok(MemberSpec::Missing), spec));
        let specs: Vec<MemberSpec> = specs.collect::<Result<_, _>>()?;
        let members = members::open_all(&specs, &self.assembly.geometry.member_sectors, 1)?;
        self.check_unchanged()?;
        let place = |(index, candidate): (usize, &Option<usize>)| {
            candidate.map_or(Ok(None), |candidate| self.log_place(index, candidate))
        };
        let places: Vec<_> = table.iter().enumerate().map(place).collect::<Result<_, _>>()?;
        let is_clean = self.assembly.is_clean;
        let mut devices = Devices::new(&members);
        let report = recover(&geometry, &self.assembly.uuid, &places, is_clean, &mut devices);
        let named = |error| match devices.failed.and_then(|index| table[index]) {
            Some(candidate) => HostError::Member {
                path: self.found.paths[candidate].clone(),
                problem: MemberProblem::Log(error),
            },
            None => HostError::Io(error),
        };
        self.logs = Some(report.map_err(named)?);
        Ok(())
    }

    /// Whether parity is right everywhere though the array was not stopped cleanly, because partial parity logs were followed.
    pub(super) fn logs_made_parity_right(&self) -> bool {
        self.logs.is_some_and(|report| report.made_parity_right(&self.assembly))
    }

    /// Where a member of the table keeps its log.
    fn log_place(&self, index: usize, candidate: usize) -> Result<Option<LogPlace>, AssembleError> {
        let bad = self.bad_blocks(candidate)?.unwrap_or_default();
        Ok(LogPlace::of(&self.found.candidates[candidate], self.assembly.slots.get(index), bad))
    }
}

/// Members, those of the slots first, each as a whole device.
pub(super) struct Devices<'a> {
    members: &'a [Member],
    /// The last that refused.
    pub(super) failed: Option<usize>,
}

impl<'a> Devices<'a> {
    pub(super) const fn new(members: &'a [Member]) -> Self {
        Self { members, failed: None }
    }

    fn noted(&mut self, member: MemberIndex, result: IoResult) -> IoResult {
        if result.is_err() {
            self.failed = Some(member.index());
        }
        result
    }
}

impl MemberStorage for Devices<'_> {
    fn read(&mut self, member: MemberIndex, sector: u64, bytes: &mut [u8]) -> IoResult {
        let result = self.members[member.index()].read_device(sector, bytes);
        self.noted(member, result)
    }

    fn write(&mut self, member: MemberIndex, sector: u64, bytes: &[u8]) -> IoResult {
        let result = self.members[member.index()].write_device(sector, bytes);
        self.noted(member, result)
    }

    fn flush(&mut self, member: MemberIndex) -> IoResult {
        let result = self.members[member.index()].flush_device();
        self.noted(member, result)
    }
}
