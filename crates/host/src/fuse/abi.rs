//! The bytes of the kernel's FUSE protocol, version 7 (`linux/fuse.h`): what is read of requests, what answers are made of.
//! All numbers are in the machine's byte order; places are bytes from the start of the named structure.

/// The protocol's version spoken here.
pub(super) const MAJOR: u32 = 7;
pub(super) const MINOR: u32 = 38;
/// The oldest that has what is needed: `FUSE_MAX_PAGES` came with 7.28 (Linux 4.20).
pub(super) const MINOR_MIN: u32 = 28;

/// `struct fuse_in_header`.
pub(super) const IN_HEADER_BYTES: usize = 40;
/// `struct fuse_out_header`.
pub(super) const OUT_HEADER_BYTES: usize = 16;
/// `struct fuse_write_in`, and `struct fuse_read_in`, which has the same places.
pub(super) const WRITE_IN_BYTES: usize = 40;

/// The root directory, and the one file.
pub(super) const ROOT: u64 = 1;
pub(super) const FILE: u64 = 2;

pub(super) mod opcode {
    pub(crate) const LOOKUP: u32 = 1;
    pub(crate) const FORGET: u32 = 2;
    pub(crate) const GETATTR: u32 = 3;
    pub(crate) const SETATTR: u32 = 4;
    pub(crate) const SYMLINK: u32 = 6;
    pub(crate) const MKNOD: u32 = 8;
    pub(crate) const MKDIR: u32 = 9;
    pub(crate) const UNLINK: u32 = 10;
    pub(crate) const RMDIR: u32 = 11;
    pub(crate) const RENAME: u32 = 12;
    pub(crate) const LINK: u32 = 13;
    pub(crate) const OPEN: u32 = 14;
    pub(crate) const READ: u32 = 15;
    pub(crate) const WRITE: u32 = 16;
    pub(crate) const STATFS: u32 = 17;
    pub(crate) const RELEASE: u32 = 18;
    pub(crate) const FSYNC: u32 = 20;
    pub(crate) const INIT: u32 = 26;
    pub(crate) const OPENDIR: u32 = 27;
    pub(crate) const READDIR: u32 = 28;
    pub(crate) const RELEASEDIR: u32 = 29;
    pub(crate) const FSYNCDIR: u32 = 30;
    pub(crate) const CREATE: u32 = 35;
    pub(crate) const DESTROY: u32 = 38;
    pub(crate) const BATCH_FORGET: u32 = 42;
    pub(crate) const FALLOCATE: u32 = 43;
    pub(crate) const RENAME2: u32 = 45;
    pub(crate) const TMPFILE: u32 = 51;
}

/// Bits of `fuse_init_in.flags` and `fuse_init_out.flags`.
pub(super) mod init {
    pub(crate) const ASYNC_READ: u32 = 1 << 0;
    pub(crate) const BIG_WRITES: u32 = 1 << 5;
    pub(crate) const ASYNC_DIO: u32 = 1 << 15;
    pub(crate) const PARALLEL_DIROPS: u32 = 1 << 18;
    pub(crate) const MAX_PAGES: u32 = 1 << 22;
}

/// `FOPEN_DIRECT_IO`: the kernel keeps no pages of the file.
pub(super) const OPEN_DIRECT_IO: u32 = 1 << 0;
/// `FOPEN_PARALLEL_DIRECT_WRITES`: writes need not wait for each other.
pub(super) const OPEN_PARALLEL_WRITES: u32 = 1 << 6;
/// `FATTR_MODE`, `FATTR_UID` and `FATTR_GID` of `fuse_setattr_in.valid`.
pub(super) const SET_MODE: u32 = 1 << 0;
pub(super) const SET_UID: u32 = 1 << 1;
pub(super) const SET_GID: u32 = 1 << 2;
/// `FATTR_SIZE`: the file is to be cut or lengthened.
pub(super) const SET_SIZE: u32 = 1 << 3;

/// The notice that what the kernel keeps of a file holds no more.
pub(super) const NOTIFY_INVAL_INODE: i32 = 2;

/// Reads a structure's numbers; what is beyond its end reads as zero.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fields<'a>(pub(super) &'a [u8]);

impl Fields<'_> {
    pub(super) fn u32_at(self, at: usize) -> u32 {
        self.0.get(at..at + 4).and_then(|b| b.try_into().ok()).map_or(0, u32::from_ne_bytes)
    }

    pub(super) fn u64_at(self, at: usize) -> u64 {
        self.0.get(at..at + 8).and_then(|b| b.try_into().ok()).map_or(0, u64::from_ne_bytes)
    }
}

/// `struct fuse_in_header`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct InHeader {
    pub(super) bytes: u32,
    pub(super) opcode: u32,
    pub(super) unique: u64,
    pub(super) node: u64,
}

impl InHeader {
    pub(super) fn parse(header: &[u8; IN_HEADER_BYTES]) -> Self {
        let fields = Fields(header);
        Self {
            bytes: fields.u32_at(0),
            opcode: fields.u32_at(4),
            unique: fields.u64_at(8),
            node: fields.u64_at(16),
        }
    }
}

/// `struct fuse_out_header` of an answer with a body of so many bytes; `errno` is 0 for success.
pub(super) fn out_header(unique: u64, errno: i32, body_bytes: usize) -> [u8; OUT_HEADER_BYTES] {
    let mut header = [0; OUT_HEADER_BYTES];
    header[..4].copy_from_slice(&((OUT_HEADER_BYTES + body_bytes) as u32).to_ne_bytes());
    header[4..8].copy_from_slice(&(-errno).to_ne_bytes());
    header[8..].copy_from_slice(&unique.to_ne_bytes());
    header
}

/// An answer's body, put together field by field.
#[derive(Debug, Default)]
pub(super) struct Body(pub(super) Vec<u8>);

impl Body {
    pub(super) fn u16s(mut self, numbers: &[u16]) -> Self {
        self.0.extend(numbers.iter().flat_map(|number| number.to_ne_bytes()));
        self
    }

    pub(super) fn u32s(mut self, numbers: &[u32]) -> Self {
        self.0.extend(numbers.iter().flat_map(|number| number.to_ne_bytes()));
        self
    }

    pub(super) fn u64s(mut self, numbers: &[u64]) -> Self {
        self.0.extend(numbers.iter().flat_map(|number| number.to_ne_bytes()));
        self
    }

    /// `struct fuse_dirent`, whose place in the directory ends at `next`.
    pub(super) fn entry(mut self, node: u64, next: u64, kind: u32, name: &[u8]) -> Self {
        self = self.u64s(&[node, next]).u32s(&[name.len() as u32, kind]);
        self.0.extend(name);
        let padded = self.0.len().next_multiple_of(8);
        self.0.resize(padded, 0);
        self
    }
}
