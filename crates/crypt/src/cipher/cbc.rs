//! AES-CBC with encrypted salt-sector initial vectors (ESSIV).

use aes::cipher::array::{Array, ArraySize};
use aes::cipher::consts::U16;
use aes::cipher::inout::InOutBuf;
use aes::cipher::{
    BlockCipherDecBackend, BlockCipherDecClosure, BlockCipherDecrypt, BlockCipherEncBackend,
    BlockCipherEncClosure, BlockCipherEncrypt, BlockSizeUser,
};
use aes::{Aes256, Block};

use super::{Decrypting, Direction, Instructions, Run, xor};

pub(super) struct Cbc<C> {
    data_cipher: C,
    vector_cipher: Aes256,
}

impl<C: BlockCipherEncrypt + BlockCipherDecrypt + BlockSizeUser<BlockSize = U16>> Cbc<C> {
    pub(super) fn new(data_cipher: C, vector_cipher: Aes256) -> Self {
        Self { data_cipher, vector_cipher }
    }

    pub(super) fn run(&self, direction: Direction, mut run: Run<'_, '_>) {
        run.encrypt_vectors(&self.vector_cipher);
        match direction {
            Direction::Encrypt => self.data_cipher.encrypt_with_backend(EncryptPass(run)),
            Direction::Decrypt => self.data_cipher.decrypt_with_backend(DecryptPass(run)),
        }
    }
}

struct EncryptPass<'a, 'v>(Run<'a, 'v>);

impl BlockSizeUser for EncryptPass<'_, '_> {
    type BlockSize = U16;
}

impl BlockCipherEncClosure for EncryptPass<'_, '_> {
    #[inline(always)]
    fn call<B: BlockCipherEncBackend<BlockSize = U16>>(self, backend: &B) {
        let Run { mut blocks, vectors, blocks_each } = self.0;
        let lanes_max = <B::ParBlocksSize as aes::cipher::typenum::Unsigned>::USIZE;
        for vectors in vectors.chunks(lanes_max) {
            let (now, later) = blocks.split_at(vectors.len() * blocks_each);
            encrypt_side_by_side(backend, now, vectors, blocks_each);
            blocks = later;
        }
    }
}

/// Encrypts up to as many sectors side by side as the instructions take blocks.
#[inline(always)]
fn encrypt_side_by_side<B: BlockCipherEncBackend<BlockSize = U16>>(
    backend: &B,
    mut blocks: InOutBuf<'_, '_, Block>,
    vectors: &[Block],
    blocks_each: usize,
) {
    let lanes = vectors.len();
    let mut chain: Array<Block, B::ParBlocksSize> = Array::default();
    chain[..lanes].copy_from_slice(vectors);
    for place in 0..blocks_each {
        let mut plain: Array<Block, B::ParBlocksSize> = Array::default();
        for (lane, block) in plain[..lanes].iter_mut().enumerate() {
            *block = blocks.get(lane * blocks_each + place).clone_in();
        }
        xor(&mut chain, &plain);
        // Below this the wide instructions, which cost the same for any number of lanes, lose to single blocks.
        if lanes <= 4 {
            for block in &mut chain[..lanes] {
                backend.encrypt_block(block.into());
            }
        } else {
            backend.encrypt_par_blocks((&mut chain).into());
        }
        for (lane, block) in chain[..lanes].iter().enumerate() {
            *blocks.get(lane * blocks_each + place).get_out() = *block;
        }
    }
}

struct DecryptPass<'a, 'v>(Run<'a, 'v>);

impl BlockSizeUser for DecryptPass<'_, '_> {
    type BlockSize = U16;
}

impl BlockCipherDecClosure for DecryptPass<'_, '_> {
    #[inline(always)]
    fn call<B: BlockCipherDecBackend<BlockSize = U16>>(self, backend: &B) {
        decrypt::<B::ParBlocksSize>(self.0, &Decrypting(backend));
    }
}

/// Decrypts across sectors.
#[inline(always)]
fn decrypt<N: ArraySize>(run: Run<'_, '_>, cipher: &impl Instructions<N>) {
    let Run { blocks, vectors, blocks_each } = run;
    let mut previous = Previous { vectors, blocks_each, done: 0, last: Block::default() };
    let (chunks, mut rest) = blocks.into_chunks::<N>();
    for mut chunk in chunks {
        let source = chunk.clone_in();
        let before = previous.of(&source, N::USIZE);
        let mut work = source;
        cipher.apply(&mut work);
        xor(&mut work, &before);
        *chunk.get_out() = work;
    }
    if !rest.is_empty() {
        let count = rest.len();
        let mut work: Array<Block, N> = Array::default();
        work[..count].copy_from_slice(rest.get_in());
        let before = previous.of(&work, count);
        cipher.apply(&mut work);
        xor(&mut work, &before);
        rest.get_out().copy_from_slice(&work[..count]);
    }
}

/// The ciphertext before each block, kept aside as the target may be the source.
struct Previous<'v> {
    vectors: &'v [Block],
    blocks_each: usize,
    done: usize,
    last: Block,
}

impl Previous<'_> {
    /// What stands before the first `count` of these blocks: the block before, or the sector's initial vector.
    #[inline(always)]
    fn of<N: ArraySize>(&mut self, blocks: &Array<Block, N>, count: usize) -> Array<Block, N> {
        let mut before: Array<Block, N> = Array::default();
        before[1..].copy_from_slice(&blocks[..N::USIZE - 1]);
        before[0] = self.last;
        self.last = blocks[count - 1];
        let mut sector = self.done.div_ceil(self.blocks_each);
        while sector * self.blocks_each < self.done + count {
            before[sector * self.blocks_each - self.done] = self.vectors[sector];
            sector += 1;
        }
        self.done += count;
        before
    }
}
