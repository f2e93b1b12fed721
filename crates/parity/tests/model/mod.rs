//! What the tests share: parity computed byte by byte from its definition, and blocks to compute it of.

// Each test binary uses its own part of this module.
#![allow(dead_code)]

const GUARD: u8 = 0xC3;
const GUARD_BYTES: usize = 64;

/// Schoolbook product reduced by 0x11D.
pub(crate) fn mul_by_hand(a: u8, b: u8) -> u8 {
    let mut product = 0u16;
    for bit in 0..8 {
        if b & (1 << bit) != 0 {
            product ^= u16::from(a) << bit;
        }
    }
    for bit in (8..16).rev() {
        if product & (1 << bit) != 0 {
            product ^= 0x11D << (bit - 8);
        }
    }
    product as u8
}

/// Returns `2^power` by repeated multiplication.
pub(crate) fn power_of_two(power: u16) -> u8 {
    (0..power).fold(1, |value, _| mul_by_hand(value, 2))
}

/// Computes P and Q by the definition, as sums of products.
pub(crate) fn model_pq(data: &[Option<&[u8]>], len: usize) -> (Vec<u8>, Vec<u8>) {
    let (mut p, mut q) = (vec![0; len], vec![0; len]);
    for (index, block) in data.iter().enumerate() {
        let coefficient = power_of_two(index as u16);
        let products: Vec<u8> = (0..=255).map(|value| mul_by_hand(coefficient, value)).collect();
        for (offset, &byte) in block.iter().flat_map(|block| block.iter().enumerate()) {
            p[offset] ^= byte;
            q[offset] ^= products[usize::from(byte)];
        }
    }
    (p, q)
}

/// Blocks of one length at chosen alignments, each between guard bytes.
pub(crate) struct Blocks {
    arena: Vec<u8>,
    first: usize,
    stride: usize,
    len: usize,
    count: usize,
}

impl Blocks {
    /// Makes `count` blocks of pseudo-random bytes, the first `offset` bytes past a 64-byte boundary.
    pub(crate) fn random(count: usize, len: usize, offset: usize, seed: u64) -> Self {
        let stride = len + GUARD_BYTES;
        let mut arena = vec![GUARD; 2 * GUARD_BYTES + offset + count * stride];
        let first = arena.as_ptr().align_offset(64) % 64 + GUARD_BYTES + offset;
        let mut blocks = Self { arena: Vec::new(), first, stride, len, count };
        let mut state = seed | 1;
        for index in 0..count {
            let start = first + index * stride;
            for byte in &mut arena[start..start + len] {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                *byte = (state >> 56) as u8;
            }
        }
        blocks.arena = arena;
        blocks
    }

    pub(crate) fn get(&self, index: usize) -> &[u8] {
        let start = self.first + index * self.stride;
        &self.arena[start..start + self.len]
    }

    pub(crate) fn get_mut(&mut self, index: usize) -> &mut [u8] {
        let start = self.first + index * self.stride;
        &mut self.arena[start..start + self.len]
    }

    /// Returns the first two blocks.
    pub(crate) fn get_two_mut(&mut self) -> [&mut [u8]; 2] {
        let (first, len, stride) = (self.first, self.len, self.stride);
        let (head, tail) = self.arena.split_at_mut(first + stride);
        [&mut head[first..first + len], &mut tail[..len]]
    }

    pub(crate) fn slices(&self) -> Vec<&[u8]> {
        (0..self.count).map(|index| self.get(index)).collect()
    }

    /// Returns the blocks by index, without those at `gaps`.
    pub(crate) fn optional(&self, gaps: &[usize]) -> Vec<Option<&[u8]>> {
        (0..self.count).map(|index| (!gaps.contains(&index)).then(|| self.get(index))).collect()
    }

    /// Asserts that nothing was written between the blocks.
    pub(crate) fn assert_guards(&self) {
        let mut arena = self.arena.clone();
        for index in 0..self.count {
            let start = self.first + index * self.stride;
            arena[start..start + self.len].fill(GUARD);
        }
        assert!(arena.iter().all(|&byte| byte == GUARD), "a kernel wrote outside its target");
    }
}
