//! Finds the superblocks of a file or device, and what they point to.

use std::cmp::Reverse;
use std::fmt;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use stripewise_format::bad_blocks::{self, BadBlocksError, BadRange};
use stripewise_format::bitmap::{BitmapError, BitmapSuperblock, Bits, MAGIC, SUPERBLOCK_BYTES};
use stripewise_format::placement::Metadata;
use stripewise_format::superblock::{self, Superblock, SuperblockError};

use super::paths::is_storage;
use crate::error::{HostError, MemberProblem};
use crate::members::size_of;

const SECTOR_BYTES: u64 = 512;
/// What is read of a superblock's place: its largest size.
const BLOCK_BYTES: u64 = 4096;
/// The most bytes of bits that are read. mdadm keeps 128 KiB at most.
const BITS_BYTES_MAX: u64 = 16 << 20;

/// Where a member's bytes are read from: the member itself, or what lies over it.
pub trait Source {
    /// Fills `bytes` from an offset; fewer are an error.
    fn read_exact_at(&self, bytes: &mut [u8], offset_bytes: u64) -> io::Result<()>;
}

impl Source for File {
    fn read_exact_at(&self, bytes: &mut [u8], offset_bytes: u64) -> io::Result<()> {
        FileExt::read_exact_at(self, bytes, offset_bytes)
    }
}

/// What a file or device holds of md.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Probe {
    /// Its path, as given.
    pub path: PathBuf,
    /// Its length; a rest of less than a sector is left out.
    pub device_sectors: u64,
    /// Superblocks: those that read well first, the array created last before others, as mdadm chooses.
    pub found: Vec<Found>,
}

/// A place where a superblock's magic number is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// The version whose place it is.
    pub metadata: Metadata,
    /// The place.
    pub at_sector: u64,
    /// The superblock, which names nothing beyond the device's end; or why it is refused.
    pub superblock: Result<Superblock, SuperblockError>,
}

impl Probe {
    /// The superblock that the device goes by, if one reads well.
    pub fn superblock(&self) -> Option<&Superblock> {
        self.found.first()?.superblock.as_ref().ok()
    }
}

/// Opens a file or block device for reading and finds its length in sectors.
pub fn open(path: &Path) -> Result<(File, u64), HostError> {
    let problem = |e: io::Error| MemberProblem::from_io(&e, 0).at(path);
    if !is_storage(&std::fs::metadata(path).map_err(problem)?) {
        return Err(MemberProblem::WrongKind.at(path));
    }
    let file = OpenOptions::new().read(true).custom_flags(libc::O_CLOEXEC).open(path).map_err(problem)?;
    let sectors = size_of(&file).map_err(problem)? / SECTOR_BYTES;
    Ok((file, sectors))
}

/// Finds the superblocks of a file or device. Finding none is no error.
pub fn probe(path: &Path) -> Result<Probe, HostError> {
    let (file, device_sectors) = open(path)?;
    probe_source(path, device_sectors, &file)
}

/// Finds the superblocks among the bytes of a source that stands for the device of a path. A place that does not read is passed over
/// if there is one that reads well in another.
pub fn probe_source(path: &Path, device_sectors: u64, source: &dyn Source) -> Result<Probe, HostError> {
    let mut found = Vec::new();
    let mut unread = None;
    for (metadata, at_sector) in superblock::places(device_sectors) {
        let length = ((device_sectors - at_sector) * SECTOR_BYTES).min(BLOCK_BYTES);
        let mut block = vec![0; length as usize];
        if let Err(e) = source.read_exact_at(&mut block, at_sector * SECTOR_BYTES) {
            unread = Some(MemberProblem::from_io(&e, 0).at(path));
            continue;
        }
        let superblock = Superblock::parse(metadata, &block, at_sector).and_then(|superblock| {
            superblock.check_on_device(device_sectors)?;
            Ok(superblock)
        });
        if !superblock.as_ref().is_err_and(SuperblockError::is_absent) {
            found.push(Found { metadata, at_sector, superblock });
        }
    }
    found.sort_by_key(|found| {
        Reverse(match &found.superblock {
            Ok(Superblock::V0(superblock)) => Some(u64::from(superblock.ctime_seconds)),
            Ok(Superblock::V1(superblock)) => Some(superblock.ctime.seconds()),
            Err(_) => None,
        })
    });
    let probe = Probe { path: path.to_owned(), device_sectors, found };
    match unread {
        Some(error) if probe.superblock().is_none() => Err(error),
        _ => Ok(probe),
    }
}

/// Why what a superblock points to cannot be read.
#[derive(Debug)]
pub enum PointedError {
    /// The system's error.
    Io(io::Error),
    /// A bitmap is refused.
    Bitmap(BitmapError),
    /// A bad-block log is refused.
    BadBlocks(BadBlocksError),
    /// It would end past the device or is larger than any that is made.
    Beyond {
        /// What it is.
        what: &'static str,
        /// Where it begins.
        at_sector: u64,
        /// Its bytes.
        bytes: u64,
        /// The device's length.
        device_sectors: u64,
    },
}

impl fmt::Display for PointedError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(error) => error.fmt(f),
            Self::Bitmap(error) => error.fmt(f),
            Self::BadBlocks(error) => error.fmt(f),
            Self::Beyond { what, at_sector, bytes, device_sectors } => write!(
                f,
                "{what} of {bytes} bytes at sector {at_sector}; it must lie within the device's {device_sectors} \
                 sectors and have at most {BITS_BYTES_MAX} bytes"
            ),
        }
    }
}

impl std::error::Error for PointedError {}

fn read(
    source: &dyn Source,
    device_sectors: u64,
    what: &'static str,
    at_sector: u64,
    bytes: u64,
) -> Result<Vec<u8>, PointedError> {
    let beyond = PointedError::Beyond { what, at_sector, bytes, device_sectors };
    let room = device_sectors.checked_sub(at_sector).map(|sectors| sectors.saturating_mul(SECTOR_BYTES));
    if bytes > BITS_BYTES_MAX || room.is_none_or(|room| bytes > room) {
        return Err(beyond);
    }
    let mut block = vec![0; bytes as usize];
    source.read_exact_at(&mut block, at_sector * SECTOR_BYTES).map_err(PointedError::Io)?;
    Ok(block)
}

/// Reads the internal bitmap of a superblock found at a sector; nothing if it has none.
pub fn read_bitmap(
    source: &dyn Source,
    device_sectors: u64,
    superblock: &Superblock,
    at_sector: u64,
) -> Result<Option<(BitmapSuperblock, Bits)>, PointedError> {
    let sector = superblock.bitmap_sector(at_sector);
    sector.map(|sector| read_bitmap_at(source, device_sectors, sector)).transpose()
}

fn read_bitmap_at(
    source: &dyn Source,
    device_sectors: u64,
    sector: u64,
) -> Result<(BitmapSuperblock, Bits), PointedError> {
    let head = read(source, device_sectors, "a bitmap's superblock", sector, SUPERBLOCK_BYTES as u64)?;
    let head = BitmapSuperblock::parse(&head).map_err(PointedError::Bitmap)?;
    let length = head.bits().div_ceil(8) + SUPERBLOCK_BYTES as u64;
    let area = read(source, device_sectors, "a bitmap", sector, length)?;
    let bits = Bits::from_bytes(&area[SUPERBLOCK_BYTES..], head.bits()).map_err(PointedError::Bitmap)?;
    Ok((head, bits))
}

/// Reads the file of an external bitmap, which ends where the bits do; nothing if it is none.
///
/// # Errors
/// What is wrong with it.
pub fn read_bitmap_file(
    file: &dyn Source,
    device_sectors: u64,
) -> Result<Option<(BitmapSuperblock, Bits)>, PointedError> {
    let mut magic = [0; 4];
    if file.read_exact_at(&mut magic, 0).is_err() || magic != MAGIC.to_le_bytes() {
        return Ok(None);
    }
    // The last sector need not be whole.
    read_bitmap_at(file, device_sectors + 1, 0).map(Some)
}

/// Reads the bad-block log of a superblock; nothing if it has none. A log whose feature bit is clear is empty,
/// whatever lies in its place.
pub fn read_bad_blocks(
    source: &dyn Source,
    device_sectors: u64,
    superblock: &Superblock,
) -> Result<Option<Vec<BadRange>>, PointedError> {
    use stripewise_format::superblock_1::Features;
    let Superblock::V1(superblock) = superblock else { return Ok(None) };
    if !superblock.has_bad_block_log() {
        return Ok(None);
    }
    if !superblock.features.contains(Features::BAD_BLOCKS) {
        return Ok(Some(Vec::new()));
    }
    let what = "a bad-block log";
    let bytes = u64::from(superblock.bblog_size_sectors) * SECTOR_BYTES;
    let at_sector = superblock.bad_block_log_sector().unwrap_or(u64::MAX);
    let log = read(source, device_sectors, what, at_sector, bytes)?;
    bad_blocks::parse(&log, superblock.bblog_shift).map(Some).map_err(PointedError::BadBlocks)
}

#[cfg(test)]
mod tests {
    use stripewise_format::level::Level;
    use stripewise_format::superblock_1::Superblock1;
    use stripewise_format::uuid::Uuid;

    use super::*;

    /// Bytes of which one sector does not read.
    struct Worn(Vec<u8>, u64);

    impl Source for Worn {
        fn read_exact_at(&self, bytes: &mut [u8], offset_bytes: u64) -> io::Result<()> {
            let (bad, end) = (self.1 * SECTOR_BYTES, offset_bytes + bytes.len() as u64);
            if (offset_bytes..end).contains(&bad) {
                return Err(io::Error::from_raw_os_error(libc::EIO));
            }
            bytes.copy_from_slice(&self.0[offset_bytes as usize..end as usize]);
            Ok(())
        }
    }

    #[test]
    fn a_member_is_known_though_the_place_of_another_superblock_does_not_read() {
        let sectors = 4096;
        let mut superblock = Superblock1::new(Level::Raid1, 2, 0, Uuid([3; 16]));
        (superblock.super_offset_sectors, superblock.data_offset_sectors) = (8, 64);
        (superblock.size_sectors, superblock.data_size_sectors) = (2048, 2048);
        let mut bytes = vec![0; (sectors * SECTOR_BYTES) as usize];
        let block = Superblock::V1(Box::new(superblock)).to_bytes();
        bytes[4096..4096 + block.len()].copy_from_slice(&block);
        let mut worn = Worn(bytes, 0);
        for (_, place) in superblock::places(sectors) {
            worn.1 = place;
            let found = probe_source(Path::new("x"), sectors, &worn);
            assert_eq!(found.is_ok_and(|probe| probe.superblock().is_some()), place != 8, "{place}");
        }
        let none = Worn(vec![0; worn.0.len()], worn.1);
        assert!(probe_source(Path::new("x"), sectors, &none).is_err(), "there may be one");
    }

    #[test]
    fn the_file_of_an_external_bitmap_ends_with_its_bits() {
        let file = tempfile::tempfile().unwrap();
        let head = BitmapSuperblock::new(Uuid([3; 16]), 1 << 20, 64 << 10);
        file.write_all_at(&[1; 4096], 0).unwrap();
        assert!(read_bitmap_file(&file, 2).unwrap().is_none(), "something else");
        file.set_len(0).unwrap();
        assert!(read_bitmap_file(&file, 2).unwrap().is_none(), "nothing");
        file.write_all_at(&head.to_bytes(), 0).unwrap();
        file.set_len(SUPERBLOCK_BYTES as u64 + 1024).unwrap();
        file.write_all_at(&[0b101], SUPERBLOCK_BYTES as u64 + 1023).unwrap();
        let (found, bits) = read_bitmap_file(&file, 2).unwrap().unwrap();
        assert_eq!((found, bits.count(), bits.dirty_count()), (head, 8192, 2));
        file.set_len(SUPERBLOCK_BYTES as u64 + 1023).unwrap();
        assert!(read_bitmap_file(&file, 2).is_err(), "bits are missing");
    }
}
