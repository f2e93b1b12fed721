//! The reference kernels: eight bytes at a time in safe code, one loop for each operation, for any CPU.

use crate::field::{NIBBLES, POLYNOMIAL_LOW, exp};
use crate::simd::set::{Data, Set, SolveBoth, SolveP, SolveQ};
use crate::{Change, Copied};

/// The scalar kernels.
pub(crate) static SCALAR: Set = Set {
    name: "scalar",
    xor,
    xor_into,
    xor_streaming: xor,
    copy: <[u8]>::copy_from_slice,
    copy_streaming: <[u8]>::copy_from_slice,
    fence: || {},
    pq,
    pq_streaming: pq,
    q,
    q_streaming: q,
    solve_both,
    solve_q,
    solve_p,
    differs,
    update,
    copying,
};

const WORD: usize = size_of::<u64>();

/// Returns the word at `offset`, zero-padded at the end of the block.
fn load(block: &[u8], offset: usize) -> u64 {
    if let Some(word) = block[offset..].first_chunk() {
        return u64::from_le_bytes(*word);
    }
    let mut word = [0; WORD];
    word[..block.len() - offset].copy_from_slice(&block[offset..]);
    u64::from_le_bytes(word)
}

/// Writes the word at `offset`, cut at the end of the block.
fn store(block: &mut [u8], offset: usize, value: u64) {
    if let Some(word) = block[offset..].first_chunk_mut() {
        *word = value.to_le_bytes();
        return;
    }
    let bytes = block.len() - offset;
    block[offset..].copy_from_slice(&value.to_le_bytes()[..bytes]);
}

/// Doubles each byte of a word.
fn double(word: u64) -> u64 {
    let overflow = word & 0x8080_8080_8080_8080;
    // Each byte's overflow bit 0x80 becomes 0x100 - 0x01 = 0xFF.
    let mask = (overflow << 1).wrapping_sub(overflow >> 7);
    let reduction = mask & (u64::from(POLYNOMIAL_LOW) * 0x0101_0101_0101_0101);
    ((word & 0x7F7F_7F7F_7F7F_7F7F) << 1) ^ reduction
}

/// Multiplies each byte of a word.
fn mul(word: u64, factor: u8) -> u64 {
    let table = &NIBBLES.0[factor as usize];
    let product = word.to_le_bytes().map(|byte| table[byte as usize & 15] ^ table[16 + (byte as usize >> 4)]);
    u64::from_le_bytes(product)
}

/// Returns the plain and the weighted sum of the data at `offset`.
fn sums(data: Data<'_>, offset: usize) -> (u64, u64) {
    data.iter().rev().fold((0, 0), |(p, q), block| {
        let word = block.map_or(0, |block| load(block, offset));
        (p ^ word, double(q) ^ word)
    })
}

fn xor_sources(sources: &[&[u8]], offset: usize) -> u64 {
    sources.iter().fold(0, |sum, source| sum ^ load(source, offset))
}

fn xor(target: &mut [u8], sources: &[&[u8]]) {
    for offset in (0..target.len()).step_by(WORD) {
        store(target, offset, xor_sources(sources, offset));
    }
}

fn xor_into(target: &mut [u8], sources: &[&[u8]]) {
    for offset in (0..target.len()).step_by(WORD) {
        let sum = load(target, offset) ^ xor_sources(sources, offset);
        store(target, offset, sum);
    }
}

fn copying(data: &mut [Copied<'_>], p: &mut [u8], q: Option<&mut [u8]>) {
    for one in data.iter_mut() {
        one.copy.iter_mut().for_each(|copy| copy.copy_from_slice(one.block));
    }
    for offset in (0..p.len()).step_by(WORD) {
        let sum = data.iter().fold(0, |sum, one| sum ^ load(one.block, offset));
        store(p, offset, sum);
    }
    if let Some(q) = q {
        for offset in (0..q.len()).step_by(WORD) {
            let sum = data.iter().rev().fold(0, |sum, one| double(sum) ^ load(one.block, offset));
            store(q, offset, sum);
        }
    }
}

fn pq(p: &mut [u8], q: &mut [u8], data: Data<'_>) {
    for offset in (0..q.len()).step_by(WORD) {
        let (p_sum, q_sum) = sums(data, offset);
        store(p, offset, p_sum);
        store(q, offset, q_sum);
    }
}

fn q(q: &mut [u8], data: Data<'_>) {
    for offset in (0..q.len()).step_by(WORD) {
        store(q, offset, sums(data, offset).1);
    }
}

fn solve_both(data: Data<'_>, mut solve: SolveBoth<'_>) {
    for offset in (0..solve.q.len()).step_by(WORD) {
        let (p_sum, q_sum) = sums(data, offset);
        let p = p_sum ^ load(solve.p, offset);
        let q = q_sum ^ load(solve.q, offset);
        let x = mul(p, solve.a) ^ mul(q, solve.b);
        if let Some(target) = &mut solve.x {
            store(target, offset, x);
        }
        if let Some(target) = &mut solve.y {
            store(target, offset, x ^ p);
        }
    }
}

fn solve_q(data: Data<'_>, mut solve: SolveQ<'_>) {
    for offset in (0..solve.q.len()).step_by(WORD) {
        let (p_sum, q_sum) = sums(data, offset);
        let x = mul(q_sum ^ load(solve.q, offset), solve.b);
        if let Some(target) = &mut solve.x {
            store(target, offset, x);
        }
        if let Some(target) = &mut solve.new_p {
            store(target, offset, x ^ p_sum);
        }
    }
}

fn solve_p(data: Data<'_>, mut solve: SolveP<'_>) {
    for offset in (0..solve.p.len()).step_by(WORD) {
        let (p_sum, q_sum) = sums(data, offset);
        let x = p_sum ^ load(solve.p, offset);
        if let Some(target) = &mut solve.x {
            store(target, offset, x);
        }
        store(solve.new_q, offset, q_sum ^ mul(x, solve.factor));
    }
}

fn differs(data: Data<'_>, p: &[u8], q: Option<&[u8]>) -> (bool, bool) {
    (0..p.len()).step_by(WORD).fold((false, false), |(p_differs, q_differs), offset| {
        let (p_sum, q_sum) = sums(data, offset);
        (p_differs | (p_sum != load(p, offset)), q_differs | q.is_some_and(|q| q_sum != load(q, offset)))
    })
}

fn update(mut p: Option<&mut [u8]>, q: &mut [u8], changes: &[Change<'_>]) {
    for offset in (0..q.len()).step_by(WORD) {
        let (mut p_change, mut q_change) = (0, 0);
        for change in changes {
            let difference = load(change.old, offset) ^ load(change.new, offset);
            p_change ^= difference;
            q_change ^= mul(difference, exp(usize::from(change.index)));
        }
        if let Some(p) = &mut p {
            let sum = load(p, offset) ^ p_change;
            store(p, offset, sum);
        }
        let sum = load(q, offset) ^ q_change;
        store(q, offset, sum);
    }
}
