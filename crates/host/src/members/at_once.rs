//! I/O of files in memory (tmpfs) that is carried out where it is asked for.
//!
//! The kernel cannot say beforehand that such I/O would not wait, so that `io_uring` gives each to a thread of its own: two
//! hand-offs, which cost many times what a short copy does. Long ones are worth them, as they go on beside this thread.

use stripewise_engine::io::{Area, IoError, IoResult, MemberIo, Op};
use stripewise_engine::units::SECTOR_BYTES;

use super::{FileMember, Route};
use crate::error::io_error_from_errno;
use crate::iovecs;

/// Segments of one call.
const SEGMENTS_MAX: usize = 16;

/// The longest I/O. At 4 KiB it saves a fifth of a request's time, at 64 KiB it costs as much.
const AT_ONCE_SECTORS_MAX: u64 = (16 << 10) / SECTOR_BYTES;

impl FileMember {
    /// Whether [`at_once`](Self::at_once) is the way of an I/O.
    pub(crate) fn is_at_once(&self, io: &MemberIo) -> bool {
        self.is_in_memory()
            && match io.op {
                Op::Read | Op::Write => io.range.count <= AT_ONCE_SECTORS_MAX,
                Op::Flush => true,
                Op::Discard | Op::WriteZeroes => false,
            }
    }

    /// Carries out an I/O. There is nothing more durable than this memory, so that a flush has nothing to do.
    ///
    /// # Safety
    /// Each buffer is that many readable bytes, of a read writable, that nothing else uses but, for a write, other readers;
    /// together they are as long as the range.
    pub(crate) unsafe fn at_once(
        &self,
        io: &MemberIo,
        buffers: impl Iterator<Item = (*mut u8, usize)>,
    ) -> IoResult {
        if io.op == Op::Flush {
            return Ok(());
        }
        if io.op == Op::Read {
            // SAFETY: upheld by the caller.
            unsafe { self.move_all(io, buffers)? };
            return if self.may_be_hole() { Err(IoError::Gone) } else { Ok(()) };
        }
        if self.is_cut() {
            return Err(IoError::Gone);
        }
        self.begin_write();
        // SAFETY: upheld by the caller.
        let result = unsafe { self.move_all(io, buffers) };
        // Cut meanwhile, it may have grown again.
        let result = if self.is_cut() { Err(IoError::Gone) } else { result };
        self.end_write();
        result
    }

    /// Moves the bytes of an I/O.
    ///
    /// # Safety
    /// As of [`at_once`](Self::at_once).
    unsafe fn move_all(&self, io: &MemberIo, buffers: impl Iterator<Item = (*mut u8, usize)>) -> IoResult {
        let before = if io.area == Area::Data { self.data_offset_bytes() } else { 0 };
        let mut offset = before + io.range.start * SECTOR_BYTES;
        let mut runs = [libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 }; SEGMENTS_MAX];
        let mut count = 0;
        for (base, bytes) in buffers {
            if count == SEGMENTS_MAX {
                // SAFETY: upheld by the caller.
                unsafe { self.transfer(io.op, &mut runs, &mut offset)? };
                count = 0;
            }
            runs[count] = libc::iovec { iov_base: base.cast(), iov_len: bytes };
            count += 1;
        }
        // SAFETY: upheld by the caller.
        unsafe { self.transfer(io.op, &mut runs[..count], &mut offset) }
    }

    /// Moves the bytes of runs, and the offset behind them.
    ///
    /// # Safety
    /// As of [`at_once`](Self::at_once).
    unsafe fn transfer(&self, op: Op, mut runs: &mut [libc::iovec], offset: &mut u64) -> IoResult {
        let fd = self.fd(Route::Buffered);
        while !runs.is_empty() {
            let (first, count, at) = (runs.as_ptr(), runs.len() as i32, *offset as i64);
            // SAFETY: upheld by the caller.
            let moved = unsafe {
                match op {
                    Op::Write => libc::pwritev(fd, first, count, at),
                    _ => libc::preadv(fd, first, count, at),
                }
            };
            if moved < 0 {
                match std::io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO) {
                    libc::EINTR => continue,
                    errno => return Err(io_error_from_errno(errno)),
                }
            }
            if moved == 0 {
                // The file ends before the sectors do: somebody cut it short.
                self.has_ended_early();
                return Err(IoError::Gone);
            }
            *offset += moved as u64;
            let done = iovecs::pass(runs, moved as usize);
            runs = &mut runs[done..];
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::fs::OpenOptions;

    use stripewise_engine::io::{SegList, Tag};
    use stripewise_engine::units::{MemberIndex, SectorRange};

    use super::super::FileSpec;
    use super::*;

    fn io(op: Op, start: u64, count: u64) -> MemberIo {
        let range = SectorRange::new(start, count);
        MemberIo {
            tag: Tag(0),
            member: MemberIndex(0),
            op,
            area: Area::Data,
            range,
            fua: false,
            segs: SegList::default(),
        }
    }

    #[test]
    fn a_device_is_not_in_memory_though_its_node_is() {
        let node = std::fs::File::open("/dev/null").unwrap();
        assert!(!super::super::file::is_tmpfs(&node));
        assert!(super::super::file::is_tmpfs(&tempfile::tempfile_in("/dev/shm").unwrap()));
    }

    #[test]
    fn short_io_in_many_pieces_moves_and_a_cut_file_is_gone() {
        let work = tempfile::tempdir_in("/dev/shm").unwrap();
        let path = work.path().join("member");
        let file = OpenOptions::new().create_new(true).write(true).open(&path).unwrap();
        file.set_len(1 << 20).unwrap();
        let spec = FileSpec { data_offset_sectors: 8, ..FileSpec::new(&path) };
        let member = FileMember::open(&spec, 1024, 1).unwrap();
        let (write, read) = (io(Op::Write, 3, 32), io(Op::Read, 3, 32));
        assert!(
            member.is_at_once(&write) && member.is_at_once(&read) && member.is_at_once(&io(Op::Flush, 0, 0))
        );
        assert!(!member.is_at_once(&io(Op::Read, 3, 33)) && !member.is_at_once(&io(Op::WriteZeroes, 3, 1)));
        let mut bytes: Vec<u8> = (0..32_u32 * 512).map(|place| (place / 5) as u8).collect();
        let mut back = vec![0; bytes.len()];
        // More pieces than one call takes.
        let runs =
            |bytes: &mut [u8]| bytes.chunks_mut(512).map(|c| (c.as_mut_ptr(), c.len())).collect::<Vec<_>>();
        // SAFETY: the runs are of locals, and as long as the range.
        unsafe {
            member.at_once(&write, runs(&mut bytes).into_iter()).unwrap();
            member.at_once(&read, runs(&mut back).into_iter()).unwrap();
        }
        assert!(bytes == back && std::fs::read(&path).unwrap()[11 * 512..43 * 512] == bytes);
        file.set_len(12 * 512).unwrap();
        // SAFETY: as above.
        let ends = unsafe {
            [
                member.at_once(&write, runs(&mut bytes).into_iter()),
                member.at_once(&read, runs(&mut back).into_iter()),
            ]
        };
        assert_eq!(ends, [Err(IoError::Gone), Err(IoError::Gone)]);
        assert_eq!(file.metadata().unwrap().len(), 12 * 512, "a write does not lengthen it again");
        file.set_len(1 << 20).unwrap();
        // SAFETY: as above.
        let ends = unsafe { member.at_once(&read, runs(&mut back).into_iter()) };
        assert_eq!(ends, Err(IoError::Gone), "nor do others bring back what it held");
    }

    #[test]
    fn a_hole_of_a_file_that_was_cut_and_grew_in_part_is_not_read() {
        cut_and_grown_in_part(true);
        cut_and_grown_in_part(false);
    }

    fn cut_and_grown_in_part(is_under_way: bool) {
        let work = tempfile::tempdir_in("/dev/shm").unwrap();
        let path = work.path().join("member");
        std::fs::write(&path, vec![7; 1 << 20]).unwrap();
        let member = FileMember::open(&FileSpec::new(&path), 2048, 1).unwrap();
        // As a write does that is under way when the file is cut.
        let file = OpenOptions::new().write(true).open(&path).unwrap();
        file.set_len(0).unwrap();
        file.set_len(1 << 19).unwrap();
        let mut back = vec![0; 4096];
        let mut read = || {
            let run = std::iter::once((back.as_mut_ptr(), 4096));
            // SAFETY: the run is of a local, and as long as the range.
            unsafe { member.at_once(&io(Op::Read, 8, 8), run) }
        };
        if is_under_way {
            member.begin_write();
            assert_eq!(read(), Err(IoError::Gone));
            member.end_write();
        }
        let gone = (0..64).filter(|_| read() == Err(IoError::Gone)).count();
        assert!(gone > 0 && (gone == 64) == is_under_way, "once seen it is final");
    }
}
