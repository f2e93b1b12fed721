//! AES-CBC with encrypted salt-sector initial vectors (ESSIV).
//!
//! Sectors are decrypted by the crate `cbc`, one after the other: the blocks of one are many enough for the widest
//! instructions. It encrypts block after block, so that is done here, several sectors side by side.

use aes::cipher::array::Array;
use aes::cipher::consts::U16;
use aes::cipher::inout::InOutBuf;
use aes::cipher::{
    BlockCipherDecrypt, BlockCipherEncBackend, BlockCipherEncClosure, BlockCipherEncrypt, BlockModeDecrypt,
    BlockSizeUser, InnerIvInit,
};
use aes::{Aes256, Block};

use super::{Direction, Run, xor};

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
            Direction::Decrypt => self.decrypt(run),
        }
    }

    fn decrypt(&self, run: Run<'_, '_>) {
        let Run { mut blocks, vectors, blocks_each } = run;
        for vector in vectors.iter() {
            let (sector, later) = blocks.split_at(blocks_each);
            cbc::Decryptor::inner_iv_init(&self.data_cipher, vector).decrypt_blocks_inout(sector);
            blocks = later;
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
