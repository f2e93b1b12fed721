//! The buffers of requests: made when needed, kept for the next request, page-aligned for direct I/O.

use crate::buffers::{Mapping, PAGE};

/// Bytes kept for later requests; what is beyond goes back to the system.
const KEPT_BYTES_MAX: usize = 64 << 20;
/// Bytes that the requests of all clients may hold together, from their arrival until their replies are sent, before
/// those of more than their share wait.
const HELD_BYTES_MAX: u64 = 256 << 20;
/// Bytes that the requests of a client may hold in any case: as much as many clients at once take without being asked.
pub(crate) const SHARE_BYTES: u64 = 1 << 20;
/// Sizes: a page times each power of two, up to the longest request.
const CLASSES: usize = 14;

/// The buffer of a request.
#[derive(Debug)]
pub(crate) struct Buffer {
    mapping: Mapping,
    class: usize,
}

impl Buffer {
    /// The first byte.
    pub(crate) fn base(&self) -> *mut u8 {
        self.mapping.base()
    }

    /// The length, at least what was asked for.
    pub(crate) fn bytes(&self) -> usize {
        PAGE << self.class
    }
}

/// Buffers not in use, by size.
#[derive(Debug, Default)]
pub(crate) struct Buffers {
    free: [Vec<Mapping>; CLASSES],
    kept_bytes: usize,
    /// What the clients' requests hold.
    held_bytes: u64,
    /// A request waits until they hold less.
    is_short: bool,
}

impl Buffers {
    /// Requests are about to be taken, while the clients' requests hold so many bytes.
    pub(crate) fn begin_round(&mut self, held_bytes: u64) {
        (self.held_bytes, self.is_short) = (held_bytes, false);
    }

    /// Whether there is room for a request of so many bytes, of a client whose requests hold so many; if so, it has it.
    pub(crate) fn has_room(&mut self, client_bytes: u64, bytes: u64) -> bool {
        let has_room =
            client_bytes + bytes <= SHARE_BYTES || self.held_bytes + bytes <= HELD_BYTES_MAX || bytes == 0;
        if has_room {
            self.held_bytes += bytes;
        } else {
            self.is_short = true;
        }
        has_room
    }

    /// Whether a request of this round waits until others hold less.
    pub(crate) fn is_short(&self) -> bool {
        self.is_short
    }

    /// A buffer of at least so many bytes; nothing if there is no memory.
    pub(crate) fn take(&mut self, bytes: usize) -> Option<Buffer> {
        let class = bytes.div_ceil(PAGE).next_power_of_two().trailing_zeros() as usize;
        let mapping = match self.free.get_mut(class)?.pop() {
            Some(mapping) => {
                self.kept_bytes -= PAGE << class;
                mapping
            }
            None => Mapping::new(PAGE << class, "a request").ok()?,
        };
        Some(Buffer { mapping, class })
    }

    /// Keeps a buffer for later.
    pub(crate) fn give(&mut self, buffer: Buffer) {
        if self.kept_bytes + buffer.bytes() <= KEPT_BYTES_MAX {
            self.kept_bytes += buffer.bytes();
            self.free[buffer.class].push(buffer.mapping);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::export::REQUEST_BYTES_MAX;
    use super::*;

    #[test]
    fn a_buffer_is_long_enough_and_used_again() {
        let mut buffers = Buffers::default();
        for bytes in [0, 1, 4096, 4097, 300_000, REQUEST_BYTES_MAX as usize] {
            let buffer = buffers.take(bytes).unwrap();
            assert!(buffer.bytes() >= bytes && buffer.bytes() < 2 * bytes.max(PAGE));
            let base = buffer.base();
            buffers.give(buffer);
            assert_eq!(buffers.take(bytes).unwrap().base(), base);
        }
        assert!(buffers.take(REQUEST_BYTES_MAX as usize + 1).is_none());
    }

    #[test]
    fn what_is_held_is_bounded_but_for_each_clients_share() {
        let mut buffers = Buffers::default();
        buffers.begin_round(HELD_BYTES_MAX - 4096);
        assert!(buffers.has_room(1 << 30, 4096) && !buffers.is_short());
        assert!(buffers.has_room(0, SHARE_BYTES) && buffers.has_room(1 << 30, 0));
        assert!(!buffers.has_room(SHARE_BYTES, 512) && buffers.is_short());
        buffers.begin_round(0);
        assert!(buffers.has_room(0, u64::from(REQUEST_BYTES_MAX)) && !buffers.is_short());
    }

    #[test]
    fn what_is_kept_is_bounded() {
        let mut buffers = Buffers::default();
        let taken: Vec<_> = (0..4).map(|_| buffers.take(32 << 20).unwrap()).collect();
        for buffer in taken {
            buffers.give(buffer);
        }
        assert_eq!(buffers.kept_bytes, KEPT_BYTES_MAX);
    }
}
