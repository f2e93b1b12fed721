//! One I/O of a ring: its submissions, and what their results mean.

use io_uring::{opcode, squeue, types};
use stripewise_engine::io::{IoError, IoResult, Op, Tag};
use stripewise_engine::units::{MemberIndex, SECTOR_BYTES};

use crate::buffers::{Mapping, ZEROES_BYTES};
use crate::error::io_error_from_errno;
use crate::iovecs;
use crate::members::{FileMember, Route};
use crate::report::MemberError;

/// Attempts at an I/O that ends in `EAGAIN` or `EINTR`.
pub(super) const RETRIES_MAX: u32 = 1000;
/// Segments in one submission (`UIO_MAXIOV`).
const IOVECS_MAX: usize = 1024;
/// Runs of zeroes in one submission.
const ZERO_RUNS_MAX: u64 = 64;

/// What an I/O is, and which fallback it has reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    Read,
    Write,
    Flush,
    /// `fallocate` with this mode; on refusal, zeroes are written.
    Allocate(i32),
    Zeroes,
}

#[derive(Debug)]
pub(super) struct RingOp {
    pub(super) tag: Tag,
    pub(super) member: MemberIndex,
    pub(super) step: Step,
    pub(super) fua: bool,
    pub(super) route: Route,
    /// Offset in the file of what is left.
    pub(super) offset: u64,
    /// Bytes left.
    pub(super) left: u64,
    pub(super) iovecs: Vec<libc::iovec>,
    /// The first segment that is not done.
    pub(super) next: usize,
    pub(super) retries: u32,
    /// A copy of metadata to be written.
    pub(super) own: Option<Mapping>,
}

// SAFETY: the addresses in `iovecs` are of buffers that outlive the I/O and belong to it.
unsafe impl Send for RingOp {}

/// A run of memory the kernel has pinned.
#[derive(Clone, Copy, Debug)]
pub(super) struct Region {
    pub(super) start: usize,
    pub(super) end: usize,
}

impl RingOp {
    pub(super) fn idle() -> Self {
        Self {
            tag: Tag(0),
            member: MemberIndex(0),
            step: Step::Flush,
            fua: false,
            route: Route::Buffered,
            offset: 0,
            left: 0,
            iovecs: Vec::new(),
            next: 0,
            retries: 0,
            own: None,
        }
    }

    /// Writes from a copy of the runs instead of the runs themselves.
    ///
    /// # Safety
    /// The runs are readable.
    pub(super) unsafe fn keep_own_copy(&mut self) {
        let bytes: usize = self.iovecs.iter().map(|v| v.iov_len).sum();
        if self.own.as_ref().is_none_or(|own| own.bytes() < bytes) {
            self.own = Some(Mapping::new(bytes, "metadata").expect("some pages of memory for metadata"));
        }
        let Some(own) = &self.own else { return };
        let mut to = own.base();
        for run in &self.iovecs {
            // SAFETY: the copy is as long as the runs together, and the runs are readable.
            unsafe {
                to.copy_from_nonoverlapping(run.iov_base.cast(), run.iov_len);
                to = to.add(run.iov_len);
            }
        }
        self.iovecs.clear();
        self.iovecs.push(libc::iovec { iov_base: own.base().cast(), iov_len: bytes });
    }

    /// The next submission. Reads and writes of one run take the pinned form where the run is pinned.
    pub(super) fn entry(&self, fd: types::Fd, regions: &[Region]) -> squeue::Entry {
        let iovecs = &self.iovecs[self.next..];
        let count = iovecs.len().min(IOVECS_MAX) as u32;
        let flags = if self.fua { libc::RWF_DSYNC } else { 0 };
        let pinned = match iovecs {
            [one] => {
                region_of(one, regions).map(|region| (one.iov_base.cast::<u8>(), one.iov_len as u32, region))
            }
            _ => None,
        };
        match (self.step, pinned) {
            (Step::Flush, _) => opcode::Fsync::new(fd).flags(types::FsyncFlags::DATASYNC).build(),
            (Step::Allocate(mode), _) => {
                opcode::Fallocate::new(fd, self.left).offset(self.offset).mode(mode).build()
            }
            (Step::Read, Some((base, bytes, region))) => {
                opcode::ReadFixed::new(fd, base, bytes, region).offset(self.offset).build()
            }
            (Step::Read, None) => opcode::Readv::new(fd, iovecs.as_ptr(), count).offset(self.offset).build(),
            (Step::Write | Step::Zeroes, Some((base, bytes, region))) => {
                opcode::WriteFixed::new(fd, base, bytes, region).offset(self.offset).rw_flags(flags).build()
            }
            (Step::Write | Step::Zeroes, None) => {
                opcode::Writev::new(fd, iovecs.as_ptr(), count).offset(self.offset).rw_flags(flags).build()
            }
        }
    }

    /// The error that it ended with, where it had come to.
    #[cold]
    pub(super) fn error(&self, error: IoError) -> MemberError {
        let op = match self.step {
            Step::Read => Op::Read,
            Step::Write => Op::Write,
            Step::Flush => Op::Flush,
            Step::Allocate(mode) if mode & libc::FALLOC_FL_PUNCH_HOLE != 0 => Op::Discard,
            Step::Allocate(_) | Step::Zeroes => Op::WriteZeroes,
        };
        let sector = (op != Op::Flush).then_some(self.offset / SECTOR_BYTES);
        MemberError { op, sector, error }
    }

    /// Takes note of a submission's result; answers the I/O's result, or nothing if it must go on.
    pub(super) fn advance(&mut self, result: i32, file: &FileMember) -> Option<IoResult> {
        if result >= 0 {
            return self.progress(result as u64, file);
        }
        let errno = -result;
        match (errno, self.step) {
            (libc::EINTR | libc::EAGAIN, _) if self.retries < RETRIES_MAX => {
                self.retries += 1;
                None
            }
            (libc::EINVAL, Step::Read | Step::Write | Step::Zeroes) if self.route == Route::Direct => {
                file.refuse_direct();
                self.route = Route::Buffered;
                None
            }
            (libc::EOPNOTSUPP | libc::EINVAL | libc::ENOSYS | libc::EPERM, Step::Allocate(_)) => {
                self.step = Step::Zeroes;
                None
            }
            _ => Some(Err(io_error_from_errno(errno))),
        }
    }

    fn progress(&mut self, bytes: u64, file: &FileMember) -> Option<IoResult> {
        if matches!(self.step, Step::Flush | Step::Allocate(_)) {
            return Some(Ok(()));
        }
        if bytes == 0 && self.left > 0 {
            // The file ends before the sectors do: somebody cut it short. Writing what is missing anew would
            // lengthen it with a hole that reads as zeroes, so the member is given up.
            file.has_ended_early();
            return Some(Err(IoError::Gone));
        }
        self.offset += bytes;
        self.left -= bytes;
        if self.left == 0 {
            return Some(Ok(()));
        }
        self.next += iovecs::pass(&mut self.iovecs[self.next..], bytes as usize);
        None
    }

    pub(super) fn lay_out_zeroes(&mut self, zeroes: usize) {
        self.iovecs.clear();
        self.next = 0;
        let run = ZEROES_BYTES as u64;
        let mut bytes = self.left.min(ZERO_RUNS_MAX * run);
        while bytes > 0 {
            let length = bytes.min(run);
            self.iovecs.push(libc::iovec { iov_base: zeroes as *mut _, iov_len: length as usize });
            bytes -= length;
        }
    }
}

fn region_of(segment: &libc::iovec, regions: &[Region]) -> Option<u16> {
    let start = segment.iov_base as usize;
    let end = start + segment.iov_len;
    regions.iter().position(|r| r.start <= start && end <= r.end).map(|index| index as u16)
}
