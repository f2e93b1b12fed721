//! The bits of a bitmap: one for each chunk, set while the chunk may be out of sync.

use std::ops::Range;

use super::BitmapError;

/// Bits over bytes that were read. The bits past the last chunk, which mdadm leaves set, are kept and not counted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bits {
    bytes: Vec<u8>,
    count: u64,
}

impl Bits {
    /// The first `count` bits of bytes read from after the bitmap's superblock; at most `bytes` are copied.
    pub fn from_bytes(bytes: &[u8], count: u64) -> Result<Self, BitmapError> {
        let found = (bytes.len() as u64).saturating_mul(8);
        if found < count {
            return Err(BitmapError::BitsCutOff { found, right: count });
        }
        Ok(Self { bytes: bytes[..count.div_ceil(8) as usize].to_vec(), count })
    }

    /// So many bits, all clear.
    pub fn clear(count: u64) -> Self {
        Self { bytes: vec![0; count.div_ceil(8) as usize], count }
    }

    /// The bytes to write after the bitmap's superblock.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// How many bits there are.
    pub const fn count(&self) -> u64 {
        self.count
    }

    /// How many bits are set.
    pub fn dirty_count(&self) -> u64 {
        let whole = (self.count / 8) as usize;
        let ones: u64 = self.bytes[..whole].iter().map(|byte| u64::from(byte.count_ones())).sum();
        let rest = self.count % 8;
        let last = if rest == 0 { 0 } else { self.bytes[whole] & ((1 << rest) - 1) };
        ones + u64::from(last.count_ones())
    }

    /// Whether a chunk's bit is set; panics past the last.
    pub fn is_set(&self, bit: u64) -> bool {
        assert!(bit < self.count, "bit {bit} of {}", self.count);
        self.bytes[(bit / 8) as usize] & 1 << (bit % 8) != 0
    }

    /// Sets the bits of a range; panics past the last.
    pub fn set(&mut self, range: Range<u64>) {
        self.change(range, |byte, mask| *byte |= mask);
    }

    /// Clears the bits of a range; panics past the last.
    pub fn unset(&mut self, range: Range<u64>) {
        self.change(range, |byte, mask| *byte &= !mask);
    }

    fn change(&mut self, range: Range<u64>, change: impl Fn(&mut u8, u8)) {
        assert!(range.end <= self.count, "bits {range:?} of {}", self.count);
        let mut bit = range.start;
        while bit < range.end {
            let end = (bit - bit % 8 + 8).min(range.end);
            let width = (end - bit) as u32;
            let mask = ((1_u16 << width) - 1) << (bit % 8);
            change(&mut self.bytes[(bit / 8) as usize], mask as u8);
            bit = end;
        }
    }

    /// The ranges of set bits, in order.
    pub fn dirty_ranges(&self) -> impl Iterator<Item = Range<u64>> {
        let mut bit = 0;
        std::iter::from_fn(move || {
            bit = self.next(bit, true)?;
            let start = bit;
            bit = self.next(bit, false).unwrap_or(self.count);
            Some(start..bit)
        })
    }

    /// The first bit from `bit` on that is set or not.
    pub fn next(&self, mut bit: u64, set: bool) -> Option<u64> {
        let dull = if set { 0 } else { 0xff };
        while bit < self.count {
            if bit.is_multiple_of(8) && self.bytes[(bit / 8) as usize] == dull {
                bit += 8;
            } else if self.is_set(bit) == set {
                return Some(bit);
            } else {
                bit += 1;
            }
        }
        None
    }
}
