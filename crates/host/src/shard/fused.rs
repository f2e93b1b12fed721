//! Stripes written to members in memory: what is computed is so while it is written.
//!
//! The engine asks for a stripe's parity, or its lost blocks, first and for the writes of blocks afterwards. Where members
//! are in memory the computation is put off for that short while: the engine is told that it is done, names the writes, and
//! all is carried out together. The data of a stripe that is written whole are read once, for P, with Q or without, and for
//! their copies, and what is computed goes straight to its member, whose bytes are lent to the pages that it was asked for. A parity that
//! is lost with a block of data, and asked for when that is, joins it: both come from the same blocks, read once. Whatever
//! else could see what is computed has it computed first.

use stripewise_engine::io::{ActionQueue, Buf, Compute, Kernel, Operand, Role, Seg, Tag};
use stripewise_engine::units::Slot;
use stripewise_parity::{Copied, kernels};

use super::Bytes;
use crate::buffers::PAGE;
use crate::compute::{Piece, recover};
use crate::members::STREAM_BYTES_MIN;

/// A run of bytes.
type Run = (*mut u8, usize);

/// A block of the stripe.
#[derive(Clone, Copy, Debug)]
struct Block {
    role: Role,
    /// Its bytes are these of the runs.
    first_run: usize,
    runs: usize,
    /// Where they are written to, and the tag of that write.
    write: Option<(*mut u8, Tag)>,
    /// It is computed to there.
    is_direct: bool,
    /// The run that is being worked on, and how far.
    at: (usize, usize),
}

/// Whole pages that follow each other in the stripe cache and become a member's.
#[derive(Clone, Copy, Debug)]
pub(super) struct Lent {
    pub(super) entry: u32,
    pub(super) slot: Slot,
    pub(super) bytes: u32,
    pub(super) from: *mut u8,
}

/// A computation that waits for the writes of its blocks; see the module's description.
#[derive(Debug, Default)]
pub(super) struct Fused {
    bytes: usize,
    /// What it is computed from, and behind `targets` what is computed: data by index, then P, then Q if data are
    /// copied. Empty if nothing waits.
    blocks: Vec<Block>,
    targets: usize,
    /// It is P, or P and Q, of all data, and the data that are written are copied on the way.
    copies_data: bool,
    runs: Vec<Run>,
    /// Pages of targets, with the block that they are of.
    pages: Vec<(usize, Lent)>,
    copied: Vec<Copied<'static>>,
    pieces: Vec<Piece>,
    data: Vec<Option<&'static [u8]>>,
}

// SAFETY: the addresses are only followed by `finish`, whose caller answers for them, and nothing waits between two inputs;
// the lists may move to another thread.
unsafe impl Send for Fused {}

impl Fused {
    /// Takes up a computation of parities from all data, or of lost data, if it is into whole pages and long enough.
    /// Answers whether it did.
    pub(super) fn begin(&mut self, compute: &Compute, queue: &ActionQueue, bytes: &Bytes<'_>) -> bool {
        let (sources, targets) = (queue.operands(compute.sources), queue.operands(compute.targets));
        let (p, q) = (is_of(Role::P), is_of(Role::Q));
        self.copies_data = match (compute.kernel, targets) {
            (Kernel::Generate, [one]) if p(one) => true,
            (Kernel::Generate, [one, two]) if p(one) && q(two) || q(one) && p(two) => true,
            (Kernel::Generate, [one]) if q(one) => false,
            (Kernel::Recover, targets) if !targets.iter().any(|target| p(target) || q(target)) => false,
            _ => return false,
        };
        if compute.bytes < STREAM_BYTES_MIN as u64 {
            return false;
        }
        self.runs.clear();
        self.blocks.clear();
        for (index, operand) in sources.iter().enumerate() {
            let by_index = |source: &&Operand| source.role == Role::Data(index as u16);
            let operand = if self.copies_data { sources.iter().find(by_index) } else { Some(operand) };
            let Some(operand) = operand else {
                self.blocks.clear();
                return false;
            };
            self.add(operand, queue, bytes);
        }
        self.targets = sources.len();
        self.pages.clear();
        self.bytes = compute.bytes as usize;
        // P is the first of two, wherever their slots are.
        for target in
            targets.iter().filter(|target| p(target)).chain(targets.iter().filter(|target| !p(target)))
        {
            if !queue.segs(target.segs).iter().all(|seg| whole_pages(seg).is_some()) {
                self.blocks.clear();
                return false;
            }
            self.add_target(target, queue, bytes);
        }
        true
    }

    /// Whether a computation is that of a lost parity from the data of which the lost block is being waited for.
    pub(super) fn is_joined_by(&mut self, compute: &Compute, queue: &ActionQueue, bytes: &Bytes<'_>) -> bool {
        let (sources, targets) = (queue.operands(compute.sources), queue.operands(compute.targets));
        let (known, lost) = self.blocks.split_at(usize::min(self.targets, self.blocks.len()));
        let ([lost], [parity]) = (lost, targets) else { return false };
        let data = known.iter().filter(|block| matches!(block.role, Role::Data(_))).count();
        let fits = !self.copies_data
            && matches!(lost.role, Role::Data(_))
            && lost.write.is_none()
            && compute.kernel == Kernel::Generate
            && known.iter().all(|block| block.role != parity.role)
            && queue.segs(parity.segs).iter().all(|seg| whole_pages(seg).is_some())
            && sources.len() == data + 1;
        fits && sources.iter().all(|source| {
            let known = self.runs.len();
            push_joined(&mut self.runs, known, bytes.runs(queue.segs(source.segs)));
            let (blocks, runs) = self.runs.split_at(known);
            let is_it = self.blocks.iter().any(|block| {
                block.role == source.role
                    && matches!(block.role, Role::Data(_))
                    && blocks[block.first_run..block.first_run + block.runs] == *runs
            });
            self.runs.truncate(known);
            is_it
        })
    }

    /// Takes up the parity that [joins](Self::is_joined_by) the block that is waited for.
    pub(super) fn join(&mut self, compute: &Compute, queue: &ActionQueue, bytes: &Bytes<'_>) {
        self.add_target(&queue.operands(compute.targets)[0], queue, bytes);
    }

    /// Adds a block of whole pages that is computed.
    fn add_target(&mut self, target: &Operand, queue: &ActionQueue, bytes: &Bytes<'_>) {
        let block = self.blocks.len();
        self.add(target, queue, bytes);
        let pages = queue.segs(target.segs).iter().filter_map(whole_pages);
        self.pages.extend(pages.map(|pages| (block, pages)));
    }

    fn add(&mut self, operand: &Operand, queue: &ActionQueue, bytes: &Bytes<'_>) {
        let first_run = self.runs.len();
        push_joined(&mut self.runs, first_run, bytes.runs(queue.segs(operand.segs)));
        let runs = self.runs.len() - first_run;
        self.blocks.push(Block {
            role: operand.role,
            first_run,
            runs,
            write: None,
            is_direct: false,
            at: (first_run, 0),
        });
    }

    /// Whether a computation waits.
    pub(super) fn is_pending(&self) -> bool {
        !self.blocks.is_empty()
    }

    /// Takes up a write, if it is one of the blocks that are waited for.
    pub(super) fn take(&mut self, tag: Tag, to: *mut u8, from: impl Iterator<Item = Run>) -> bool {
        let known = self.runs.len();
        push_joined(&mut self.runs, known, from);
        let (blocks, written) = self.runs.split_at(known);
        let is_it = |block: &&mut Block| {
            block.write.is_none() && blocks[block.first_run..block.first_run + block.runs] == *written
        };
        // Other data are written by themselves, to where they are copied.
        let first = if self.copies_data { 0 } else { self.targets };
        let found = self.blocks[first..].iter_mut().find(is_it);
        let is_taken = found.map(|block| block.write = Some((to, tag))).is_some();
        self.runs.truncate(known);
        is_taken
    }

    /// Computes and writes. Hands the pages that become a member's to `lend`, and the tags of the writes to `ended`.
    ///
    /// # Safety
    /// Every block, and every place that one is written to, is readable, and writable by nobody else. The engine has it so
    /// until the input is handled that it asked in: whatever else it asks for meanwhile is carried out after this.
    pub(super) unsafe fn finish(&mut self, lend: impl FnMut(Lent), mut ended: impl FnMut(Tag)) {
        if !self.is_pending() {
            return;
        }
        self.put_directly(lend);
        let is_copying = self.blocks.iter().any(|block| block.write.is_some() && !block.is_direct);
        let (mut left, mut done) = (self.bytes, 0);
        while left > 0 {
            let run_left = |block: &Block| self.runs[block.at.0].1 - block.at.1;
            let length = self.blocks.iter().map(run_left).fold(left, usize::min);
            // SAFETY: upheld by the caller.
            unsafe {
                if is_copying {
                    self.copy_piece(done, length);
                } else {
                    self.compute_piece(length);
                }
            }
            left -= length;
            done += length;
        }
        for block in self.blocks.drain(..) {
            block.write.into_iter().for_each(|(_, tag)| ended(tag));
        }
    }

    /// Has targets that are whole pages computed to where they are written.
    fn put_directly(&mut self, mut lend: impl FnMut(Lent)) {
        for &(index, pages) in &self.pages {
            let block = &mut self.blocks[index];
            let Some((to, _)) = block.write else { continue };
            if !block.is_direct {
                block.is_direct = true;
                block.runs = 1;
                self.runs[block.first_run] = (to, 0);
            }
            let run = &mut self.runs[block.first_run];
            lend(Lent { from: run.0.wrapping_add(run.1), ..pages });
            run.1 += pages.bytes as usize;
        }
    }

    /// The next bytes of a block, and where they are copied to, if that is elsewhere.
    fn next(&mut self, index: usize, done: usize, length: usize) -> (*mut u8, Option<*mut u8>) {
        let block = &mut self.blocks[index];
        let (run, used) = block.at;
        let (address, run_bytes) = self.runs[run];
        block.at = if used + length == run_bytes { (run + 1, 0) } else { (run, used + length) };
        let address = address.wrapping_add(used);
        // What a member lends is where it is to be.
        let is_there = |to: &*mut u8| block.is_direct || *to == address;
        let copy = block.write.map(|(to, _)| to.wrapping_add(done)).filter(|to| !is_there(to));
        (address, copy)
    }

    /// Copies a piece of all data that are written, and computes their parity.
    ///
    /// # Safety
    /// As [`finish`](Self::finish).
    unsafe fn copy_piece(&mut self, done: usize, length: usize) {
        // SAFETY: upheld by the caller; slices are not used after the call that they are made for.
        unsafe {
            let place = |copy: Option<*mut u8>| copy.map(|to| std::slice::from_raw_parts_mut(to, length));
            self.copied.clear();
            for index in 0..self.targets {
                let (from, copy) = self.next(index, done, length);
                let block = std::slice::from_raw_parts(from, length);
                self.copied.push(Copied { block, copy: place(copy) });
            }
            let (p, targets) = (self.targets, self.blocks.len() - self.targets);
            let mut made = |target| std::slice::from_raw_parts_mut(self.next(target, done, length).0, length);
            let (p, q) = (made(p), (targets > 1).then(|| made(p + 1)));
            kernels().generate_copying(&mut self.copied, p, q);
        }
        self.copied.clear();
    }

    /// Computes a piece of the targets alone.
    ///
    /// # Safety
    /// As [`finish`](Self::finish).
    unsafe fn compute_piece(&mut self, length: usize) {
        self.pieces.clear();
        for index in 0..self.blocks.len() {
            let (address, _) = self.next(index, 0, length);
            self.pieces.push(Piece { role: self.blocks[index].role, address });
        }
        let (sources, targets) = self.pieces.split_at(self.targets);
        let is_past_caches = self.blocks[self.targets..].iter().all(|block| block.is_direct);
        // SAFETY: upheld by the caller.
        unsafe { recover(kernels(), sources, targets, length, &mut self.data, is_past_caches) };
    }
}

/// Tells operands of a role.
fn is_of(role: Role) -> impl Fn(&Operand) -> bool {
    move |operand| operand.role == role
}

/// The pages that a segment is, if it is whole pages.
fn whole_pages(seg: &Seg) -> Option<Lent> {
    match *seg {
        Seg { buf: Buf::Page { entry, slot, offset: 0 }, bytes } if (bytes as usize).is_multiple_of(PAGE) => {
            Some(Lent { entry, slot, bytes, from: std::ptr::null_mut() })
        }
        _ => None,
    }
}

/// Adds runs behind `from`, those that follow each other in memory as one.
fn push_joined(runs: &mut Vec<Run>, from: usize, more: impl Iterator<Item = Run>) {
    for (address, bytes) in more {
        match runs[from..].last_mut() {
            Some(last) if last.0.wrapping_add(last.1) == address => last.1 += bytes,
            _ => runs.push((address, bytes)),
        }
    }
}
