//! A file in memory (tmpfs) as it lies there, so that the kernel can send its bytes from where they are.
//!
//! This process never looks at them itself: a page that somebody has cut off meanwhile is an error to the kernel
//! (`EFAULT`), but the end of a process that touches it. Whether a page is there the system is asked once
//! ([`Present`]); how long the file is, of every run.

use std::fs::File;
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::ptr::NonNull;

use rustix::fs::{SeekFrom, fstat, seek};

use super::present::Present;
use crate::buffers::PAGE;

/// The longest run that is looked for, in pages: a transfer of 1 MiB, wherever it begins, and what is around it.
const PAGES_MAX: usize = 257 + 2 * 63;

/// See the module's description.
#[derive(Debug)]
pub(super) struct View {
    base: NonNull<u8>,
    bytes: usize,
    present: Present,
}

// SAFETY: the mapping is this value's own, and only its addresses are given away.
unsafe impl Send for View {}
// SAFETY: as above.
unsafe impl Sync for View {}

impl View {
    /// The first so many bytes of a file that is open for writing: of others the system does not say what is there. Nothing
    /// if it does not map it.
    pub(super) fn of(file: &File, bytes: u64) -> Option<Self> {
        let bytes = usize::try_from(bytes).ok().filter(|bytes| *bytes > 0)?;
        let (protection, flags) = (libc::PROT_READ, libc::MAP_SHARED);
        // SAFETY: a new mapping, placed by the system.
        let base = unsafe { libc::mmap(std::ptr::null_mut(), bytes, protection, flags, file.as_raw_fd(), 0) };
        let base = if base == libc::MAP_FAILED { None } else { NonNull::new(base.cast()) };
        base.map(|base| Self { base, bytes, present: Present::none(bytes.div_ceil(PAGE)) })
    }

    /// Where a run of the file that this is of lies, if it is all there. Of a hole the kernel would make memory. The file's
    /// own position moves.
    pub(super) fn address(&self, file: &File, offset: u64, bytes: u64) -> Option<*const u8> {
        let end = offset.checked_add(bytes).filter(|end| *end <= self.bytes as u64)?;
        if seek(file, SeekFrom::End(0)).ok()? < end {
            self.present.forget();
            return None;
        }
        if self.present.is_due() {
            self.present.has_blocks(fstat(file).ok()?.st_blocks as u64);
        }
        let run = offset as usize / PAGE..(end as usize).div_ceil(PAGE);
        if !self.present.has(run.clone()) {
            self.look(run.clone());
            if !self.present.has(run.clone()) {
                return None;
            }
            self.look(self.present.around(run));
        }
        Some(self.base.as_ptr().wrapping_add(offset as usize).cast_const())
    }

    /// Asks the system for the pages of a run, if it is not too long.
    fn look(&self, run: Range<usize>) {
        let mut are_there = [0; PAGES_MAX];
        let Some(are_there) = are_there.get_mut(..run.len()) else { return };
        let first = self.base.as_ptr().wrapping_add(run.start * PAGE);
        // SAFETY: the run is within the mapping, and there is a byte for each of its pages.
        if unsafe { libc::mincore(first.cast(), run.len() * PAGE, are_there.as_mut_ptr()) } == 0 {
            self.present.note(run.zip(are_there).filter(|(_, there)| **there & 1 != 0).map(|(page, _)| page));
        }
    }
}

impl Drop for View {
    fn drop(&mut self) {
        // SAFETY: the mapping is this value's own; who was given an address keeps the member.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.bytes) };
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::os::unix::fs::FileExt;

    use super::*;

    /// What the kernel sends from an address.
    fn sent(from: *const u8, bytes: usize) -> std::io::Result<Vec<u8>> {
        let (mut reader, writer) = std::io::pipe()?;
        // SAFETY: the kernel answers for the address.
        let moved = unsafe { libc::write(writer.as_raw_fd(), from.cast(), bytes) };
        if moved < 0 {
            return Err(std::io::Error::last_os_error());
        }
        drop(writer);
        let mut all = Vec::new();
        reader.read_to_end(&mut all)?;
        Ok(all)
    }

    #[test]
    fn no_more_is_looked_for_at_once_than_a_transfer() {
        let mut file = tempfile::tempfile_in("/dev/shm").unwrap();
        file.write_all(&vec![1; 2 << 20]).unwrap();
        let view = View::of(&file, 2 << 20).unwrap();
        assert!(view.address(&file, 512, 1 << 20).is_some() && view.address(&file, 512, 3 << 19).is_none());
    }

    #[test]
    fn what_is_there_is_lent_and_neither_holes_nor_what_was_cut_off() {
        let mut file = tempfile::tempfile_in("/dev/shm").unwrap();
        let bytes: Vec<u8> = (0..16384_u32).map(|place| (place / 7) as u8).collect();
        file.write_all(&bytes).unwrap();
        file.set_len(1 << 20).unwrap();
        let view = View::of(&file, 1 << 20).unwrap();
        let at = view.address(&file, 4096, 8192).unwrap();
        assert!(sent(at, 8192).unwrap() == bytes[4096..12288]);
        file.write_all_at(b"new", 5000).unwrap();
        assert_eq!(sent(at.wrapping_add(904), 3).unwrap(), b"new", "it is the file, not a copy");

        assert!(view.address(&file, 12288, 4096).is_some() && view.address(&file, 12288, 4097).is_none());
        assert!(view.address(&file, 1 << 19, 4096).is_none(), "a hole");
        file.set_len(2 << 20).unwrap();
        assert!(view.address(&file, (1 << 20) - 512, 1024).is_none(), "beyond what was mapped");
        assert!(
            view.address(&file, 0, 2 << 20).is_none() && view.address(&file, 512, 15872).is_some(),
            "whole sectors anywhere"
        );
        file.set_len(4096).unwrap();
        assert!(view.address(&file, 4096, 512).is_none(), "cut off");
        assert_eq!(sent(at, 8192).unwrap_err().raw_os_error(), Some(libc::EFAULT));
        file.set_len(1 << 20).unwrap();
        assert!(view.address(&file, 4096, 512).is_none(), "a hole where there was something");
    }

    #[test]
    fn what_was_found_once_and_then_made_a_hole_is_not_lent() {
        let mut file = tempfile::tempfile_in("/dev/shm").unwrap();
        file.write_all(&vec![1; 1 << 16]).unwrap();
        let view = View::of(&file, 1 << 16).unwrap();
        assert!(view.address(&file, 8192, 4096).is_some() && view.address(&file, 16384, 4096).is_some());
        let how = rustix::fs::FallocateFlags::PUNCH_HOLE | rustix::fs::FallocateFlags::KEEP_SIZE;
        rustix::fs::fallocate(&file, how, 8192, 4096).unwrap();
        let asked = (1..1000).find(|_| view.address(&file, 8192, 4096).is_none());
        assert!(asked.is_some_and(|asked| asked <= 64), "{asked:?}");
        assert!(view.address(&file, 16384, 4096).is_some());
    }
}
