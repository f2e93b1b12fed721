//! The bytes that an array moves, moved by a bare loop: the same copies and sums, in the same kinds of places, by the same
//! kernels, and nothing decided.

use std::time::Duration;

use stripewise_engine::io::Op;
use stripewise_host::{HostError, Memory};
use stripewise_parity::{Change, kernels};

use super::clock::steps_per_second;
use super::loops::{Job, Places};

const PAGE_BYTES: usize = 4096;

/// The most data chunks of a full stripe.
const WIDTH_MAX: usize = 8;

/// As the array does, longer copies go past the caches; see the host's memory members.
const STREAM_BYTES_MIN: usize = 16 << 10;

/// Memory and buffers to copy between.
#[derive(Debug)]
pub(super) struct Copies {
    memory: Memory,
    buffers: Memory,
}

impl Copies {
    /// As much memory as an array has.
    ///
    /// # Errors
    /// There is not that much.
    pub(super) fn new(span_bytes: u64, jobs: &[Job]) -> Result<Self, HostError> {
        let buffered = jobs.iter().map(|job| u64::from(job.buffers) * buffer_stride(*job) as u64).max();
        Ok(Self {
            memory: Memory::new(span_bytes as usize)?,
            buffers: Memory::new(buffered.unwrap_or(0) as usize)?,
        })
    }

    /// Bytes a second of plain copies of the job's blocks to or from its buffers.
    pub(super) fn rate(&mut self, job: Job, seed: u64, time: Duration) -> f64 {
        let length = job.bytes as usize;
        let stride = buffer_stride(job);
        let mut places = Places::new(self.memory.len() as u64 / job.bytes, job.is_random, seed);
        let mut turn = 0;
        let batch = if length <= PAGE_BYTES { 64 } else { 1 };
        let (memory, buffers) = (&mut *self.memory, &mut *self.buffers);
        let steps = steps_per_second(time, batch, || {
            let block = &mut memory[places.draw() as usize * length..][..length];
            let buffer = &mut buffers[turn * stride..][..length];
            turn = if turn + 1 == job.buffers as usize { 0 } else { turn + 1 };
            if job.op == Op::Read {
                buffer.copy_from_slice(block);
            } else {
                block.copy_from_slice(buffer);
            }
        });
        steps * job.bytes as f64
    }
}

/// Buffers lie a page apart, as the array's do.
fn buffer_stride(job: Job) -> usize {
    job.bytes as usize + PAGE_BYTES
}

/// Members, and what a stripe cache and requests need.
#[derive(Debug)]
pub(super) struct Members {
    slots: Vec<Memory>,
    parities: usize,
    requests: Memory,
    pages: Memory,
}

impl Members {
    /// So many members, of which every stripe has `parities` with parity; buffers for the jobs' requests.
    ///
    /// # Errors
    /// There is not that much memory.
    pub(super) fn new(
        count: usize,
        parities: usize,
        member_bytes: u64,
        jobs: &[Job],
    ) -> Result<Self, HostError> {
        let buffered = jobs.iter().map(|job| u64::from(job.buffers) * buffer_stride(*job) as u64).max();
        Ok(Self {
            slots: (0..count).map(|_| Memory::new(member_bytes as usize)).collect::<Result<_, _>>()?,
            parities,
            requests: Memory::new(buffered.unwrap_or(0) as usize)?,
            pages: Memory::new(256 * (parities + 1) * (PAGE_BYTES + DISPLACEMENT_BYTES))?,
        })
    }

    /// Read-modify-writes of a page anywhere: bytes of requests a second.
    ///
    /// Old data and old parity are copied out, parity is brought up to date, new data and parity are copied in.
    pub(super) fn update_rate(&mut self, job: Job, seed: u64, time: Duration) -> f64 {
        let count = self.slots.len() as u64;
        let rows = self.slots[0].len() as u64 / PAGE_BYTES as u64;
        let data_slots = count - self.parities as u64;
        let mut places = Places::new(rows * data_slots, true, seed);
        let mut turn = 0;
        let steps = steps_per_second(time, 64, || {
            let place = places.draw();
            let (row, index) = (place / data_slots, place % data_slots);
            let at = row as usize * PAGE_BYTES;
            // The parity of chunk after chunk moves from member to member.
            let first_parity = (row / 32) % count;
            let slot = |n: u64| ((first_parity + n) % count) as usize;
            let data = slot(self.parities as u64 + index);
            let set = turn % 256 * (self.parities + 1) * PAGE_STRIDE;
            let pages = &mut self.pages[set..][..(self.parities + 1) * PAGE_STRIDE];
            let new = &self.requests[turn % job.buffers as usize * (2 * PAGE_BYTES)..][..PAGE_BYTES];
            turn += 1;
            let mut pages = pages.chunks_mut(PAGE_STRIDE).map(|page| &mut page[..PAGE_BYTES]);
            let (old, p, q) = (pages.next(), pages.next(), pages.next());
            let (Some(old), Some(p)) = (old, p) else {
                unreachable!("there are as many pages as parities and one")
            };
            old.copy_from_slice(&self.slots[data][at..][..PAGE_BYTES]);
            p.copy_from_slice(&self.slots[slot(0)][at..][..PAGE_BYTES]);
            if let Some(q) = q {
                q.copy_from_slice(&self.slots[slot(1)][at..][..PAGE_BYTES]);
                let change = Change { index: index as u16, old, new };
                kernels().pq_update(Some(p), Some(q), &[change]);
                self.slots[slot(1)][at..][..PAGE_BYTES].copy_from_slice(q);
            } else {
                kernels().xor_into(p, &[old, new]);
            }
            self.slots[data][at..][..PAGE_BYTES].copy_from_slice(new);
            self.slots[slot(0)][at..][..PAGE_BYTES].copy_from_slice(p);
        });
        steps * PAGE_BYTES as f64
    }

    /// Full stripes one after another: bytes of requests a second.
    ///
    /// Parity is computed straight into its member and every chunk copied to its own, all past the caches.
    pub(super) fn full_stripe_rate(&mut self, job: Job, chunk_bytes: usize, time: Duration) -> f64 {
        assert!(
            self.parities == 1 && self.slots.len() <= WIDTH_MAX + 1,
            "P alone is computed, of a few chunks"
        );
        assert!(chunk_bytes >= STREAM_BYTES_MIN, "chunks are long enough to go past the caches");
        let count = self.slots.len();
        let stripe_bytes = chunk_bytes * (count - 1);
        let stripes = job.bytes as usize / stripe_bytes;
        let mut places = Places::new((self.slots[0].len() / (chunk_bytes * stripes)) as u64, false, 0);
        let mut turn = 0;
        let steps = steps_per_second(time, 1, || {
            let first = places.draw() as usize * stripes;
            let buffer =
                &self.requests[turn % job.buffers as usize * buffer_stride(job)..][..job.bytes as usize];
            turn += 1;
            for (stripe, bytes) in (first..).zip(buffer.chunks_exact(stripe_bytes)) {
                let parity = stripe % count;
                let at = stripe * chunk_bytes;
                // Pages at a time, so that what is copied is still in a cache for its sum.
                for page in (0..chunk_bytes).step_by(PAGE_BYTES) {
                    let source = |n| {
                        if n + 1 < count { &bytes[n * chunk_bytes + page..][..PAGE_BYTES] } else { &[] }
                    };
                    let sources: [&[u8]; WIDTH_MAX] = std::array::from_fn(source);
                    let sources = &sources[..count - 1];
                    kernels().xor_streaming(&mut self.slots[parity][at + page..][..PAGE_BYTES], sources);
                    for (index, source) in sources.iter().enumerate() {
                        let slot = (parity + 1 + index) % count;
                        kernels().copy_streaming(&mut self.slots[slot][at + page..][..PAGE_BYTES], source);
                    }
                }
            }
        });
        steps * job.bytes as f64
    }
}

/// Pages of a stripe cache do not lie at strides of a power of two, or they would share the sets of a cache.
const DISPLACEMENT_BYTES: usize = 1792;
const PAGE_STRIDE: usize = PAGE_BYTES + DISPLACEMENT_BYTES;

#[cfg(test)]
mod tests {
    use super::*;

    const MEMBER_BYTES: u64 = 256 << 10;

    #[test]
    fn full_stripes_leave_members_that_add_up_to_nothing() {
        let job = Job::sequential(Op::Write, 128 << 10);
        let mut members = Members::new(5, 1, MEMBER_BYTES, &[job]).unwrap();
        members.requests.iter_mut().zip(0_u64..).for_each(|(byte, n)| *byte = ((n * n) >> 7) as u8);
        assert!(members.full_stripe_rate(job, 32 << 10, Duration::from_millis(5)) > 0.0);
        assert!(members.slots[0].iter().any(|&byte| byte != 0));
        for at in 0..MEMBER_BYTES as usize {
            assert_eq!(members.slots.iter().fold(0, |sum, member| sum ^ member[at]), 0, "byte {at}");
        }
    }

    #[test]
    fn updates_keep_the_parity_of_every_row() {
        let job = Job::random(Op::Write);
        let mut members = Members::new(5, 1, MEMBER_BYTES, &[job]).unwrap();
        members.requests.iter_mut().zip(0_u64..).for_each(|(byte, n)| *byte = ((n * n) >> 7) as u8);
        assert!(members.update_rate(job, 3, Duration::from_millis(5)) > 0.0);
        assert!(members.slots[0].iter().any(|&byte| byte != 0));
        for at in 0..MEMBER_BYTES as usize {
            assert_eq!(members.slots.iter().fold(0, |sum, member| sum ^ member[at]), 0, "byte {at}");
        }
    }

    #[test]
    fn plain_copies_copy() {
        let job = Job::random(Op::Write);
        let mut copies = Copies::new(1 << 20, &[job]).unwrap();
        copies.buffers.fill(9);
        assert!(copies.rate(job, 1, Duration::from_millis(5)) > 0.0);
        assert!(copies.memory.contains(&9));
    }
}
