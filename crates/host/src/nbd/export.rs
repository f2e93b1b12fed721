//! What a client is told of the export.

use stripewise_engine::geometry::Geometry;
use stripewise_engine::units::SECTOR_BYTES;

use super::wire::transmission_flag;

/// The most bytes a read or a write moves, as NBD clients assume where nothing is said.
pub(crate) const REQUEST_BYTES_MAX: u32 = 32 << 20;
/// The largest block size called preferred.
const PREFERRED_BYTES_MAX: u64 = 1 << 20;
/// The smallest block size called preferred: the height of a row.
const PREFERRED_BYTES_MIN: u64 = 4096;

/// An export, fixed while it is served.
#[derive(Clone, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "facts that are independent of each other")]
pub(crate) struct Export {
    /// Its name; the empty name means it too.
    pub(crate) name: String,
    /// For people; may be empty.
    pub(crate) description: String,
    /// Its size.
    pub(crate) bytes: u64,
    /// The least that is read or written.
    pub(crate) min_bytes: u32,
    /// The block size to be preferred.
    pub(crate) preferred_bytes: u32,
    /// Whether writes are refused.
    pub(crate) read_only: bool,
    /// Whether zeroing is faster than writing zeroes.
    pub(crate) fast_zero: bool,
    /// Whether reads and writes go through a page cache.
    pub(crate) buffered: bool,
    /// Whether flushes and forced writes make a difference.
    pub(crate) volatile: bool,
}

impl Export {
    /// The transmission flags for a client whose replies are structured, or are not: others cannot be told of fragments.
    ///
    /// Several connections see the same bytes: a write is acknowledged once it is in the one page cache or on the
    /// members, and a flush of any connection reaches every member.
    pub(crate) fn flags(&self, structured: bool) -> u16 {
        use transmission_flag as flag;
        let (flush, fua) = if self.volatile { (flag::SEND_FLUSH, flag::SEND_FUA) } else { (0, 0) };
        let common = flag::HAS_FLAGS | flush | flag::CAN_MULTI_CONN;
        let common = if structured { common | flag::SEND_DF } else { common };
        if self.read_only {
            return common | flag::READ_ONLY;
        }
        common | fua | flag::SEND_TRIM | flag::SEND_WRITE_ZEROES | flag::SEND_FAST_ZERO
    }

    /// Whether a client that asks for this name means the export.
    pub(crate) fn is_named(&self, name: &[u8]) -> bool {
        name.is_empty() || name == self.name.as_bytes()
    }
}

/// The block size to prefer: a whole stripe of data, so that parity needs no reading; a chunk where stripes
/// are too large or not a power of two, which NBD requires; a page where chunks are neither.
pub(crate) fn preferred_bytes(geometry: &Geometry) -> u32 {
    let chunk = geometry.chunk_sectors().saturating_mul(SECTOR_BYTES);
    let stripe = chunk.saturating_mul(u64::from(geometry.data_disks()));
    let fits = |b: &u64| b.is_power_of_two() && (PREFERRED_BYTES_MIN..=PREFERRED_BYTES_MAX).contains(b);
    let chosen = [stripe, chunk].into_iter().find(fits);
    chosen.unwrap_or(PREFERRED_BYTES_MIN) as u32
}
