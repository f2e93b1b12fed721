//! A member under an overlay: read from the file or device where nothing was written, written to the overlay alone.
//! I/O is carried out at once, on the thread that asks.

use std::path::Path;

use stripewise_engine::io::{Area, IoError, IoResult};
use stripewise_engine::units::{SECTOR_BYTES, SectorRange};

use super::io_error;
use crate::error::{HostError, MemberProblem};
use crate::md::overlay::OverlayMember;

/// A member under an overlay.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OverlaySpec {
    /// The file or device as the overlay has it.
    pub member: OverlayMember,
    /// Sectors before the member's data (md's `data_offset`).
    pub data_offset_sectors: u64,
}

/// See the module's description.
#[derive(Debug)]
pub(crate) struct OverlaidMember {
    member: OverlayMember,
    data_offset_bytes: u64,
}

impl OverlaidMember {
    pub(crate) fn open(spec: &OverlaySpec, sectors: u64) -> Result<Self, HostError> {
        let have = spec.member.size_bytes();
        let need = spec.data_offset_sectors.saturating_add(sectors).saturating_mul(SECTOR_BYTES);
        if have < need {
            return Err(MemberProblem::TooSmall { have, need }.at(spec.member.path()));
        }
        let data_offset_bytes = spec.data_offset_sectors * SECTOR_BYTES;
        Ok(Self { member: spec.member.clone(), data_offset_bytes })
    }

    /// The file or device as the overlay has it.
    pub(crate) fn device(&self) -> &OverlayMember {
        &self.member
    }

    /// The path of what lies below.
    pub(crate) fn path(&self) -> &Path {
        self.member.path()
    }

    /// Bytes before an area.
    pub(crate) fn start_bytes(&self, area: Area) -> u64 {
        match area {
            Area::Data => self.data_offset_bytes,
            Area::Device => 0,
        }
    }

    /// Reads sectors from `base_bytes` on into the buffers, in order.
    ///
    /// # Safety
    /// Each buffer is that many writable bytes that nothing else uses; together they are as long as the range.
    pub(crate) unsafe fn read(
        &self,
        base_bytes: u64,
        range: SectorRange,
        buffers: impl Iterator<Item = (*mut u8, usize)>,
    ) -> IoResult {
        let mut offset = offset_of(base_bytes, range)?;
        for (to, bytes) in buffers {
            // SAFETY: upheld by the caller.
            let to = unsafe { std::slice::from_raw_parts_mut(to, bytes) };
            self.member.read_at(offset, to).map_err(io_error)?;
            offset += bytes as u64;
        }
        Ok(())
    }

    /// Writes the buffers, in order, to sectors from `base_bytes` on.
    ///
    /// # Safety
    /// Each buffer is that many readable bytes that nothing writes; together they are as long as the range.
    pub(crate) unsafe fn write(
        &self,
        base_bytes: u64,
        range: SectorRange,
        buffers: impl Iterator<Item = (*mut u8, usize)>,
    ) -> IoResult {
        let mut offset = offset_of(base_bytes, range)?;
        for (from, bytes) in buffers {
            // SAFETY: upheld by the caller.
            let from = unsafe { std::slice::from_raw_parts(from, bytes) };
            self.member.write_at(offset, from).map_err(io_error)?;
            offset += bytes as u64;
        }
        Ok(())
    }

    /// Makes sectors read as zeroes.
    pub(crate) fn zero(&self, base_bytes: u64, range: SectorRange) -> IoResult {
        const PIECE_BYTES: u64 = 8 << 10;
        let mut offset = offset_of(base_bytes, range)?;
        let end = offset + range.count * SECTOR_BYTES;
        let zeroes = [0; PIECE_BYTES as usize];
        while offset < end {
            let piece = (end - offset).min(PIECE_BYTES);
            self.member.write_at(offset, &zeroes[..piece as usize]).map_err(io_error)?;
            offset += piece;
        }
        Ok(())
    }

    /// Makes what was written last.
    pub(crate) fn flush(&self) -> IoResult {
        self.member.flush().map_err(io_error)
    }
}

fn offset_of(base_bytes: u64, range: SectorRange) -> Result<u64, IoError> {
    let end = range.start.checked_add(range.count).and_then(|sector| sector.checked_mul(SECTOR_BYTES));
    end.and_then(|end| end.checked_add(base_bytes)).ok_or(IoError::Range)?;
    Ok(base_bytes + range.start * SECTOR_BYTES)
}
