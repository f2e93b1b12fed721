//! AES-XTS (IEEE 1619-2007) over whole blocks: sectors have no part blocks to steal from.

use aes::Block;
use aes::cipher::array::{Array, ArraySize};
use aes::cipher::consts::U16;
use aes::cipher::{
    BlockCipherDecBackend, BlockCipherDecClosure, BlockCipherDecrypt, BlockCipherEncBackend,
    BlockCipherEncClosure, BlockCipherEncrypt, BlockSizeUser,
};

use super::{Decrypting, Direction, Encrypting, Instructions, Run, xor};

pub(super) struct Xts<C> {
    data_cipher: C,
    tweak_cipher: C,
}

impl<C: BlockCipherEncrypt + BlockCipherDecrypt + BlockSizeUser<BlockSize = U16>> Xts<C> {
    pub(super) fn new(data_cipher: C, tweak_cipher: C) -> Self {
        Self { data_cipher, tweak_cipher }
    }

    pub(super) fn run(&self, direction: Direction, mut run: Run<'_, '_>) {
        run.encrypt_vectors(&self.tweak_cipher);
        match direction {
            Direction::Encrypt => self.data_cipher.encrypt_with_backend(Pass(run)),
            Direction::Decrypt => self.data_cipher.decrypt_with_backend(Pass(run)),
        }
    }
}

struct Pass<'a, 'v>(Run<'a, 'v>);

impl BlockSizeUser for Pass<'_, '_> {
    type BlockSize = U16;
}

impl BlockCipherEncClosure for Pass<'_, '_> {
    #[inline(always)]
    fn call<B: BlockCipherEncBackend<BlockSize = U16>>(self, backend: &B) {
        pass::<B::ParBlocksSize>(self.0, &Encrypting(backend));
    }
}

impl BlockCipherDecClosure for Pass<'_, '_> {
    #[inline(always)]
    fn call<B: BlockCipherDecBackend<BlockSize = U16>>(self, backend: &B) {
        pass::<B::ParBlocksSize>(self.0, &Decrypting(backend));
    }
}

/// Whitens, ciphers and whitens again, as many blocks at a time as the instructions take.
///
/// The tweaks of the next blocks are made before these are ciphered: their arithmetic fills the gaps of the cipher's
/// instructions, and they have left the store buffer when they are read in wider words.
#[inline(always)]
fn pass<N: ArraySize>(run: Run<'_, '_>, cipher: &impl Instructions<N>) {
    let Run { blocks, vectors, blocks_each } = run;
    let mut tweaks = Tweaks { sectors: vectors.iter(), left_in_sector: 0, blocks_each, next: 0 };
    let mut left = blocks.len();
    let (chunks, mut rest) = blocks.into_chunks::<N>();
    let mut ahead: Array<Block, N> = Array::default();
    tweaks.fill(&mut ahead[..N::USIZE.min(left)]);
    for mut chunk in chunks {
        let whitening = ahead.clone();
        left -= N::USIZE;
        tweaks.fill(&mut ahead[..N::USIZE.min(left)]);
        let mut work = chunk.clone_in();
        xor(&mut work, &whitening);
        cipher.apply(&mut work);
        xor(&mut work, &whitening);
        *chunk.get_out() = work;
    }
    if !rest.is_empty() {
        // Filled up to the full number: cheaper than one by one.
        let mut work: Array<Block, N> = Array::default();
        work[..left].copy_from_slice(rest.get_in());
        xor(&mut work, &ahead);
        cipher.apply(&mut work);
        xor(&mut work, &ahead);
        rest.get_out().copy_from_slice(&work[..left]);
    }
}

/// The tweaks of one block after the other, across sectors.
struct Tweaks<'v> {
    sectors: std::slice::Iter<'v, Block>,
    left_in_sector: usize,
    blocks_each: usize,
    next: u128,
}

impl Tweaks<'_> {
    #[inline(always)]
    fn fill(&mut self, mut target: &mut [Block]) {
        while !target.is_empty() {
            if self.left_in_sector == 0 {
                let first = self.sectors.next().expect("each sector has its tweak");
                self.next = u128::from_le_bytes(first.0);
                self.left_in_sector = self.blocks_each;
            }
            let (now, later) = target.split_at_mut(self.left_in_sector.min(target.len()));
            let mut next = self.next;
            for block in now.iter_mut() {
                block.0 = next.to_le_bytes();
                next = doubled(next);
            }
            self.next = next;
            self.left_in_sector -= now.len();
            target = later;
        }
    }
}

/// Multiplies by x in GF(2¹²⁸) modulo x¹²⁸ + x⁷ + x² + x + 1.
#[inline(always)]
fn doubled(tweak: u128) -> u128 {
    (tweak << 1) ^ ((tweak as i128 >> 127) as u128 & 0x87)
}
