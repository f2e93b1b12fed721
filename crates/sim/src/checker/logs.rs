//! Following the partial parity logs of an array that is about to start, as a loop does it.

use stripewise_engine::assembly::{Assembly, Candidate};
use stripewise_engine::geometry::Geometry;
use stripewise_engine::io::{IoError, IoResult};
use stripewise_engine::ppl::{LogPlace, MemberStorage as Storage, PplReport, recover};
use stripewise_engine::units::{MemberIndex, SECTOR_BYTES, SectorRange};
use stripewise_format::bad_blocks::BadRange;

use super::failure::Failure;
use crate::faults::{CommandWrite, MemberStorage};

/// The devices of the members, those of the slots first.
struct Devices<'a> {
    storages: Vec<Option<&'a mut MemberStorage>>,
    /// How many more writes are answered before the power fails.
    writes_left: Option<u64>,
}

impl Devices<'_> {
    fn of(&mut self, member: MemberIndex) -> Result<&mut MemberStorage, IoError> {
        self.storages[member.index()].as_deref_mut().ok_or(IoError::Gone)
    }
}

impl Storage for Devices<'_> {
    fn read(&mut self, member: MemberIndex, sector: u64, bytes: &mut [u8]) -> IoResult {
        let range = SectorRange::new(sector, bytes.len() as u64 / SECTOR_BYTES);
        bytes.copy_from_slice(self.of(member)?.read(range)?);
        Ok(())
    }

    fn write(&mut self, member: MemberIndex, sector: u64, bytes: &[u8]) -> IoResult {
        self.writes_left = match self.writes_left {
            Some(0) => return Err(IoError::Gone),
            left => left.map(|left| left - 1),
        };
        self.of(member)?.write(CommandWrite { sector, bytes: bytes.to_vec() }, false);
        Ok(())
    }

    fn flush(&mut self, member: MemberIndex) -> IoResult {
        let storage = self.of(member)?;
        storage.flush(storage.flush_point());
        Ok(())
    }
}

/// Follows the logs. `members` are candidates by member, those of the slots first; `storages` their devices, and `bad` what is
/// listed of them. With `writes_left` the power fails before the write that comes after so many; nothing is answered then.
///
/// # Errors
/// The logs cannot be followed.
pub(super) fn follow<'a>(
    assembly: &Assembly,
    candidates: &[Candidate],
    members: &[Option<usize>],
    bad: &[Option<Vec<BadRange>>],
    storages: impl Iterator<Item = Option<&'a mut MemberStorage>>,
    writes_left: Option<u64>,
) -> Result<Option<PplReport>, Failure> {
    let not_started = |error: &dyn std::fmt::Display| Failure::NotStarted(format!("logs: {error}"));
    let geometry = Geometry::new(&assembly.geometry).map_err(|e| not_started(&e))?;
    let place = |(index, candidate): (usize, &Option<usize>)| {
        let candidate = (*candidate)?;
        let bad = bad[candidate].clone().unwrap_or_default();
        LogPlace::of(&candidates[candidate], assembly.slots.get(index), bad)
    };
    let places: Vec<_> = members.iter().enumerate().map(place).collect();
    let mut devices = Devices { storages: storages.collect(), writes_left };
    match recover(&geometry, &assembly.uuid, &places, assembly.is_clean, &mut devices) {
        Ok(report) => Ok(Some(report)),
        Err(_) if devices.writes_left == Some(0) => Ok(None),
        Err(error) => Err(not_started(&error)),
    }
}
