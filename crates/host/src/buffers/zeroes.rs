//! Zeroes to read from.

use super::Mapping;
use crate::error::HostError;

/// Length of the run of zeroes; longer runs repeat it.
pub(crate) const ZEROES_BYTES: usize = 1 << 20;

/// A run of zeroes that costs one page of memory: it is mapped read-only and never made present.
#[derive(Debug)]
pub(crate) struct Zeroes(Mapping);

impl Zeroes {
    pub(crate) fn new() -> Result<Self, HostError> {
        Mapping::read_only(ZEROES_BYTES, "zeroes").map(Self)
    }

    /// The address of the run. It must not be written to.
    pub(crate) fn address(&self) -> *mut u8 {
        self.0.base()
    }
}
