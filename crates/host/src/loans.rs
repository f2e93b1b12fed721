//! Bytes of members that a read was not given copies of: they are sent from where they lie.
//!
//! A read of a file in memory would be copied into the request's buffer and from there to whoever asked. Where that is the
//! kernel ([`crate::fuse`]), it copies from the file as well. Whatever else wants the bytes has them fetched first
//! ([`Loans::fetch`]). What is written there before the answer is sent, was asked for before it: the read may see either, as
//! every read beside a write. No work of the array's own moves data to where other data lay.

use std::ops::Range;
use std::sync::Arc;

use crate::members::Member;

/// Bytes that belong into a request's buffer and were left where they lie.
#[derive(Debug)]
pub(crate) struct Loan {
    /// Their place in the buffer.
    pub(crate) to: *mut u8,
    pub(crate) bytes: usize,
    /// Where they lie: for the kernel to read, see [`crate::members::FileMember::lent`].
    pub(crate) from: *const u8,
    /// Whose they are, from which sector of the whole file on.
    pub(crate) member: Arc<Member>,
    pub(crate) sector: u64,
}

impl Loan {
    fn place(&self) -> Range<*mut u8> {
        self.to..self.to.wrapping_add(self.bytes)
    }
}

/// The loans of a shard's requests that are not answered yet.
#[derive(Debug, Default)]
pub(crate) struct Loans {
    loans: Vec<Loan>,
    /// What [`sent_as`](Self::sent_as) answers.
    runs: Vec<libc::iovec>,
}

// SAFETY: places belong to requests of the shard whose loans these are, and go with it; what they are lent is for the kernel
// to read.
unsafe impl Send for Loans {}

impl Loans {
    pub(crate) fn is_empty(&self) -> bool {
        self.loans.is_empty()
    }

    pub(crate) fn push(&mut self, loan: Loan) {
        self.loans.push(loan);
    }

    /// Passes on those with bytes in a run.
    pub(crate) fn pass(&mut self, run: &Range<*mut u8>, to: &mut Self) {
        to.loans.extend(self.loans.extract_if(.., |loan| overlap(&loan.place(), run)));
    }

    /// Ends those with bytes in a run.
    pub(crate) fn end(&mut self, run: Range<*mut u8>) {
        self.loans.retain(|loan| !overlap(&loan.place(), &run));
    }

    /// Ends those with bytes in a run, and gives these places their bytes. Answers whether all were to be had.
    ///
    /// # Safety
    /// The places of loans are writable and nothing else uses them.
    #[must_use]
    pub(crate) unsafe fn fetch(&mut self, run: Range<*mut u8>) -> bool {
        let mut are_there = true;
        for loan in self.loans.extract_if(.., |loan| overlap(&loan.place(), &run)) {
            // SAFETY: upheld by the caller.
            let place = unsafe { std::slice::from_raw_parts_mut(loan.to, loan.bytes) };
            are_there &= loan.member.read_device(loan.sector, place).is_ok();
        }
        are_there
    }

    /// What a header and the bytes of a buffer are sent from: in place of what was lent, which is all within it or without,
    /// where that lies.
    pub(crate) fn sent_as(&mut self, header: &[u8], buffer: Range<*mut u8>) -> &[libc::iovec] {
        self.loans.sort_unstable_by_key(|loan| loan.to);
        self.runs.clear();
        let mut add = |base: *const u8, bytes: usize| {
            if bytes > 0 {
                self.runs.push(libc::iovec { iov_base: base.cast_mut().cast(), iov_len: bytes });
            }
        };
        add(header.as_ptr(), header.len());
        let mut at = buffer.start;
        for loan in self.loans.iter().filter(|loan| overlap(&loan.place(), &buffer)) {
            add(at, loan.to.addr() - at.addr());
            add(loan.from, loan.bytes);
            at = loan.place().end;
        }
        add(at, buffer.end.addr() - at.addr());
        &self.runs
    }
}

fn overlap(a: &Range<*mut u8>, b: &Range<*mut u8>) -> bool {
    a.start < b.end && b.start < a.end
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::members::{FileSpec, MemberSpec, open_all};

    const SECTOR: usize = 512;

    /// A member of 16 sectors, each full of its number, that begin at sector 8 of its file.
    fn member(folder: &std::path::Path) -> Arc<Member> {
        let path = folder.join("member");
        let content: Vec<u8> = (0..24 * SECTOR).map(|place| (place / SECTOR) as u8).collect();
        std::fs::write(&path, content).unwrap();
        let spec = FileSpec { data_offset_sectors: 8, ..FileSpec::new(path) };
        Arc::new(open_all(&[MemberSpec::File(spec)], &[16], 1).unwrap().remove(0))
    }

    #[test]
    fn what_is_lent_is_sent_in_its_place_and_fetched_when_wanted() {
        let folder = tempfile::tempdir().unwrap();
        let member = member(folder.path());
        let lying = [0xEE_u8; 4 * SECTOR];
        let mut buffer = [0_u8; 8 * SECTOR];
        let base = buffer.as_mut_ptr();
        let place = |sectors: Range<usize>| {
            base.wrapping_add(sectors.start * SECTOR)..base.wrapping_add(sectors.end * SECTOR)
        };
        let mut loans = Loans::default();
        let mut lend = |to: usize, from: usize| {
            let (to, from) = (base.wrapping_add(to * SECTOR), lying[from * SECTOR..].as_ptr());
            loans.push(Loan { to, bytes: SECTOR, from, member: Arc::clone(&member), sector: 9 });
        };
        // Out of order, and two that follow each other.
        lend(6, 0);
        lend(2, 1);
        lend(3, 3);
        let header = [1, 2, 3];
        let sent = |loans: &mut Loans, sectors: Range<usize>| -> Vec<(usize, usize)> {
            let runs = loans.sent_as(&header, place(sectors));
            assert_eq!((runs[0].iov_base as usize, runs[0].iov_len), (header.as_ptr() as usize, 3));
            runs[1..].iter().map(|run| (run.iov_base as usize, run.iov_len / SECTOR)).collect()
        };
        let at = |sector: usize| base as usize + sector * SECTOR;
        let lent = |sector: usize| lying.as_ptr() as usize + sector * SECTOR;
        let all = [(at(0), 2), (lent(1), 1), (lent(3), 1), (at(4), 2), (lent(0), 1), (at(7), 1)];
        assert_eq!(sent(&mut loans, 0..8), all);
        assert_eq!(sent(&mut loans, 3..4), [(lent(3), 1)]);
        assert_eq!(sent(&mut loans, 4..6), [(at(4), 2)]);
        // SAFETY: the buffer is a local.
        assert!(unsafe { loans.fetch(place(2..3)) });
        loans.end(place(5..7));
        assert_eq!(sent(&mut loans, 0..8), [(at(0), 3), (lent(3), 1), (at(4), 4)]);
        std::fs::File::options().write(true).open(member.path().unwrap()).unwrap().set_len(9 * 512).unwrap();
        // SAFETY: as above.
        assert!(!unsafe { loans.fetch(place(0..8)) } && loans.is_empty());
        assert!(buffer[2 * SECTOR..3 * SECTOR] == [9; SECTOR] && buffer[..2 * SECTOR] == [0; 2 * SECTOR]);
    }
}
