//! Stripes written to members in memory: parity is computed while the blocks are copied to the members, so that the
//! caller's bytes are read from memory once.
//!
//! The engine asks for a stripe's parity first and for the writes of its blocks afterwards. Where members are in memory
//! the computation is put off for that short while: the engine is told that it is done, names the writes, and both are
//! carried out together. Whatever else could see the parity has it computed first.

use stripewise_engine::io::{ActionQueue, Compute, Role, Tag};
use stripewise_parity::{Copied, Made, kernels};

use crate::members::STREAM_BYTES_MIN;
use crate::shard::Bytes;

/// A run of bytes.
type Run = (*mut u8, usize);

/// A block of the stripe.
#[derive(Clone, Copy, Debug)]
struct Block {
    /// Its bytes are these of the runs.
    first_run: usize,
    runs: usize,
    /// Where they are copied to, and the tag of that write.
    write: Option<(*mut u8, Tag)>,
    /// The run that is being worked on, and how far.
    at: (usize, usize),
}

/// A computation of parity that waits for the writes of its blocks; see the module's description.
#[derive(Debug, Default)]
pub(crate) struct Fused {
    bytes: usize,
    /// Data by index, then P, then Q if there is one; empty if nothing waits.
    blocks: Vec<Block>,
    has_q: bool,
    runs: Vec<Run>,
    data: Vec<Copied<'static>>,
}

// SAFETY: the addresses are only followed by `finish`, whose caller answers for them, and nothing waits between two inputs;
// the lists may move to another thread.
unsafe impl Send for Fused {}

impl Fused {
    /// Takes up a computation of parities. Answers whether it did: if it is of all data, and long enough.
    pub(crate) fn begin(&mut self, compute: &Compute, queue: &ActionQueue, bytes: &Bytes<'_>) -> bool {
        let (sources, targets) = (queue.operands(compute.sources), queue.operands(compute.targets));
        self.has_q = match targets {
            [p] if p.role == Role::P => false,
            [p, q] if p.role == Role::P && q.role == Role::Q => true,
            _ => return false,
        };
        if compute.bytes < STREAM_BYTES_MIN as u64 {
            return false;
        }
        self.runs.clear();
        self.blocks.clear();
        for index in 0..sources.len() + targets.len() {
            let is_it = |role: Role| role == Role::Data(index as u16);
            let operand = match index.checked_sub(sources.len()) {
                Some(target) => Some(&targets[target]),
                None => sources.iter().find(|source| is_it(source.role)),
            };
            let Some(operand) = operand else {
                self.blocks.clear();
                return false;
            };
            let first_run = self.runs.len();
            push_joined(&mut self.runs, first_run, bytes.runs(queue.segs(operand.segs)));
            let runs = self.runs.len() - first_run;
            self.blocks.push(Block { first_run, runs, write: None, at: (first_run, 0) });
        }
        self.bytes = compute.bytes as usize;
        true
    }

    /// Whether a computation waits.
    pub(crate) fn is_pending(&self) -> bool {
        !self.blocks.is_empty()
    }

    /// Takes up a write, if it is one of the blocks that are waited for.
    pub(crate) fn take(&mut self, tag: Tag, to: *mut u8, from: impl Iterator<Item = Run>) -> bool {
        let known = self.runs.len();
        push_joined(&mut self.runs, known, from);
        let (blocks, written) = self.runs.split_at(known);
        let is_it = |block: &&mut Block| {
            block.write.is_none() && blocks[block.first_run..block.first_run + block.runs] == *written
        };
        let found = self.blocks.iter_mut().find(is_it);
        let is_taken = found.map(|block| block.write = Some((to, tag))).is_some();
        self.runs.truncate(known);
        is_taken
    }

    /// Computes and writes, and hands the tags of the writes to `ended`.
    ///
    /// # Safety
    /// Every block, and every place that one is written to, is readable, and writable by nobody else, as the engine has
    /// it between asking and being answered.
    pub(crate) unsafe fn finish(&mut self, mut ended: impl FnMut(Tag)) {
        let mut left = self.bytes;
        let mut done = 0;
        while left > 0 && self.is_pending() {
            let run_left = |block: &Block| self.runs[block.at.0].1 - block.at.1;
            let length = self.blocks.iter().map(run_left).fold(left, usize::min);
            let parities = 1 + usize::from(self.has_q);
            let first_parity = self.blocks.len() - parities;
            let (data, parity) = self.blocks.split_at_mut(first_parity);
            // SAFETY: upheld by the caller; slices are not used after the call that they are made for.
            unsafe {
                let places = |block: &mut Block| {
                    let (run, used) = block.at;
                    let (address, run_bytes) = self.runs[run];
                    block.at = if used + length == run_bytes { (run + 1, 0) } else { (run, used + length) };
                    let copy = block
                        .write
                        .map(|(to, _)| std::slice::from_raw_parts_mut(to.wrapping_add(done), length));
                    (address.wrapping_add(used), copy)
                };
                self.data.clear();
                self.data.extend(data.iter_mut().map(|block| {
                    let (address, copy) = places(block);
                    Copied { block: std::slice::from_raw_parts(address, length), copy }
                }));
                let made = |block: &mut Block| {
                    let (address, copy) = places(block);
                    Made { block: std::slice::from_raw_parts_mut(address, length), copy }
                };
                let p = made(&mut parity[0]);
                let q = parity.get_mut(1).map(made);
                kernels().generate_copying(&mut self.data, p, q);
            }
            left -= length;
            done += length;
        }
        self.data.clear();
        for block in self.blocks.drain(..) {
            block.write.into_iter().for_each(|(_, tag)| ended(tag));
        }
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
