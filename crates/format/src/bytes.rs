//! Numbers at fixed places of a block. Offsets are constants of the structure, lengths are checked by the caller
//! once for the whole structure; a place outside the block is a broken invariant and panics.

pub(crate) fn array_at<const N: usize>(block: &[u8], offset: usize) -> [u8; N] {
    block[offset..offset + N].try_into().expect("the range has N bytes")
}

pub(crate) fn u16_at(block: &[u8], offset: usize) -> u16 {
    u16::from_le_bytes(array_at(block, offset))
}

pub(crate) fn u32_at(block: &[u8], offset: usize) -> u32 {
    u32::from_le_bytes(array_at(block, offset))
}

pub(crate) fn u64_at(block: &[u8], offset: usize) -> u64 {
    u64::from_le_bytes(array_at(block, offset))
}

pub(crate) fn put(block: &mut [u8], offset: usize, bytes: impl AsRef<[u8]>) {
    let bytes = bytes.as_ref();
    block[offset..offset + bytes.len()].copy_from_slice(bytes);
}
