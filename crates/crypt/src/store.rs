//! What a container lies on.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

/// A file, a device or an array: bytes at offsets.
pub trait Store {
    /// Its length in bytes.
    fn len_bytes(&self) -> io::Result<u64>;
    /// Fills `target` from `offset_bytes` on; an end before that is an error.
    fn read_at(&self, offset_bytes: u64, target: &mut [u8]) -> io::Result<()>;
    /// Writes all of `source`.
    fn write_at(&self, offset_bytes: u64, source: &[u8]) -> io::Result<()>;
    /// Makes durable what was written.
    fn flush(&self) -> io::Result<()>;
}

impl Store for File {
    fn len_bytes(&self) -> io::Result<u64> {
        // A block device has no length of its own; its end has an offset.
        io::Seek::seek(&mut &*self, io::SeekFrom::End(0))
    }

    fn read_at(&self, offset_bytes: u64, target: &mut [u8]) -> io::Result<()> {
        self.read_exact_at(target, offset_bytes)
    }

    fn write_at(&self, offset_bytes: u64, source: &[u8]) -> io::Result<()> {
        self.write_all_at(source, offset_bytes)
    }

    fn flush(&self) -> io::Result<()> {
        self.sync_all()
    }
}
