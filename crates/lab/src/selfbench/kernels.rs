//! Parity kernels, beside plain copies of as many bytes in the same place.

use std::time::Duration;

use anyhow::Result;
use stripewise_host::Memory;
use stripewise_parity::{Lost, Role, Stripe, kernels};

use super::Scale;
use super::clock::{interleaved, steps_per_second};
use super::table::{Row, Unit};

/// Where the bytes of a stripe lie: name, bytes of all stripes together, bytes of a block.
const PLACES: [(&str, usize, usize); 3] =
    [("L2", 256 << 10, 4096), ("L3", 8 << 20, 64 << 10), ("DRAM", 256 << 20, 64 << 10)];
/// Blocks at a power of two from each other share the sets of a cache; this much further they do not.
const DISPLACEMENT_BYTES: usize = 1792;

#[derive(Clone, Copy)]
enum Operation {
    Xor,
    Pq,
    RecoverTwo,
}

impl Operation {
    const fn parities(self) -> usize {
        if matches!(self, Self::Xor) { 1 } else { 2 }
    }

    const fn name(self) -> &'static str {
        match self {
            Self::Xor => "xor",
            Self::Pq => "P+Q",
            Self::RecoverTwo => "recovery of 2,",
        }
    }

    /// Computes once; the parity blocks come first.
    fn compute(self, blocks: &mut [&mut [u8]], is_streamed: bool) {
        let (targets, data) = blocks.split_at_mut(self.parities());
        let data: Vec<&[u8]> = data.iter().map(|block| &**block).collect();
        let mut optional: Vec<Option<&[u8]>> = data.iter().copied().map(Some).collect();
        match (self, targets) {
            (Self::Xor, [p]) if is_streamed => kernels().xor_streaming(p, &data),
            (Self::Xor, [p]) => kernels().xor(p, &data),
            (Self::Pq, [p, q]) if is_streamed => kernels().pq_streaming(p, q, &optional),
            (Self::Pq, [p, q]) => kernels().pq(p, q, &optional),
            (Self::RecoverTwo, [x, y]) => {
                // The last two stand for P and Q.
                let last = data.len() - 1;
                (optional[last - 1], optional[last]) = (None, None);
                let stripe = Stripe { data: &optional, p: Some(data[last - 1]), q: Some(data[last]) };
                let lost = &mut [
                    Lost::wanted(Role::Data(last as u16 - 1), x),
                    Lost::wanted(Role::Data(last as u16), y),
                ];
                assert!(kernels().recover(&stripe, lost).is_ok(), "two blocks are lost");
            }
            _ => unreachable!("there are as many targets as parities"),
        }
    }
}

pub(super) fn rows(scale: &Scale) -> Result<Vec<Row>> {
    let mut memory = Memory::new(scale.probe_bytes)?;
    let mut rows = Vec::new();
    let sample = scale.sample / 4;
    for (operation, width) in [
        (Operation::Xor, 4),
        (Operation::Xor, 22),
        (Operation::Pq, 4),
        (Operation::Pq, 22),
        (Operation::RecoverTwo, 8),
    ] {
        for (place, bytes, block_bytes) in PLACES {
            let memory = &mut memory[..bytes.min(scale.probe_bytes)];
            let shape = Shape { blocks: width + operation.parities(), block_bytes };
            let memory = std::cell::RefCell::new(memory);
            let is_streamed = place == "DRAM";
            let [ours, copy] = interleaved(
                scale.rounds,
                [
                    &mut |_| {
                        let bytes = (width * block_bytes) as f64;
                        bytes
                            * shape.stripes_per_second(&mut memory.borrow_mut(), sample, |blocks| {
                                operation.compute(blocks, is_streamed);
                            })
                    },
                    &mut |_| {
                        // A copy reads one byte for each it writes; of a stripe `width` bytes are read.
                        let copied = shape.stripes_per_second(&mut memory.borrow_mut(), sample, |blocks| {
                            let (to, from) = blocks.split_at_mut(shape.blocks / 2);
                            to.iter_mut().zip(from).for_each(|(to, from)| to.copy_from_slice(from));
                        });
                        copied * (shape.blocks / 2 * 2 * block_bytes) as f64 * width as f64
                            / shape.blocks as f64
                    },
                ],
            );
            let name = format!("{} {width}+{}, {place}", operation.name(), operation.parities());
            rows.push(
                Row::new(name, Unit::GbPerSecond, ours)
                    .beside("plain copies that read and write as many bytes", copy)
                    .noted(
                        "beside ISA-L and reed-solomon-erasure: cargo bench -p stripewise-lab --bench parity",
                    ),
            );
        }
    }
    Ok(rows)
}

/// A stripe as it lies in memory.
#[derive(Clone, Copy)]
struct Shape {
    blocks: usize,
    block_bytes: usize,
}

impl Shape {
    fn stripes_per_second(
        self,
        memory: &mut [u8],
        time: Duration,
        mut step: impl FnMut(&mut [&mut [u8]]),
    ) -> f64 {
        let stride = self.block_bytes + DISPLACEMENT_BYTES;
        let stripes = (memory.len() / (self.blocks * stride)).max(1);
        let mut next = 0;
        steps_per_second(time, 4, || {
            let start = next * self.blocks * stride;
            next = (next + 1) % stripes;
            let stripe = &mut memory[start..start + self.blocks * stride];
            let mut blocks: Vec<&mut [u8]> =
                stripe.chunks_exact_mut(stride).map(|block| &mut block[..self.block_bytes]).collect();
            step(&mut blocks);
        })
    }
}
