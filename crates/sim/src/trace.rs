//! Hashes: of what happens in a run, and of what a model says.

/// A running hash over every event, command and completion of a run. Two runs with the same inputs and seed
/// have the same hash; it is no protection against intent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceHash(u64);

impl TraceHash {
    /// The hash of nothing.
    pub const fn new() -> Self {
        Self(0x9E37_79B9_7F4A_7C15)
    }

    /// Takes in a word.
    #[inline]
    pub const fn add(&mut self, word: u64) {
        let mixed = (self.0 ^ word).wrapping_mul(0xD6E8_FEB8_6659_FD93);
        self.0 = mixed ^ (mixed >> 32);
    }

    /// The hash so far.
    pub const fn value(self) -> u64 {
        self.0
    }
}

impl Default for TraceHash {
    fn default() -> Self {
        Self::new()
    }
}

/// FNV-1a over 64 bits, for the content of models.
pub(crate) struct Fnv(u64);

impl Fnv {
    pub(crate) const fn new() -> Self {
        Self(0xCBF2_9CE4_8422_2325)
    }

    pub(crate) fn word(&mut self, word: u64) {
        word.to_le_bytes().into_iter().for_each(|b| self.byte(b));
    }

    /// Takes in a text and its end, so that "ab" + "c" differs from "a" + "bc".
    pub(crate) fn text(&mut self, text: &str) {
        text.bytes().for_each(|b| self.byte(b));
        self.byte(0xFF);
    }

    fn byte(&mut self, byte: u8) {
        self.0 = (self.0 ^ u64::from(byte)).wrapping_mul(0x0100_0000_01B3);
    }

    pub(crate) const fn finish(&self) -> u64 {
        self.0
    }
}
