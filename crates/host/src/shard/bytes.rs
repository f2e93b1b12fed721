//! What the engine names: its requests in flight, and the bytes of its buffers.

use stripewise_engine::io::{ActionQueue, Buf, RequestId, Seg};

use super::Context;
use crate::buffers::{Arena, Pages, ZEROES_BYTES, Zeroes};
use crate::mailbox::PartBuffer;

/// Who is told when a request of the engine ends.
#[derive(Clone, Copy, Debug)]
pub(super) enum Origin {
    Own { whole: u32 },
    Other { shard: u32, whole: u32 },
}

/// A request of the engine in flight, by its id.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entry {
    pub(super) buffer: PartBuffer,
    pub(super) origin: Origin,
    /// Bytes that were lent to it could not be had.
    pub(super) is_spoilt: bool,
}

/// The requests of an engine in flight, with ids as small as possible.
#[derive(Debug, Default)]
pub(super) struct Entries {
    entries: Vec<Option<Entry>>,
    free: Vec<u32>,
}

impl Entries {
    pub(super) fn insert(&mut self, entry: Entry) -> RequestId {
        let id = self.free.pop().unwrap_or_else(|| {
            self.entries.push(None);
            self.entries.len() as u32 - 1
        });
        self.entries[id as usize] = Some(entry);
        RequestId(id)
    }

    pub(super) fn get(&self, id: RequestId) -> Entry {
        self.entries[id.0 as usize].expect("the engine names requests in flight")
    }

    /// Notes that a request's bytes are not what was read.
    pub(super) fn spoil(&mut self, id: RequestId) {
        self.entries[id.0 as usize].as_mut().expect("the engine names requests in flight").is_spoilt = true;
    }

    pub(super) fn remove(&mut self, id: RequestId) -> Entry {
        let entry = self.entries[id.0 as usize].take().expect("the engine answers a request once");
        self.free.push(id.0);
        entry
    }
}

/// The buffers of a shard that the engine has names for.
#[derive(Debug, Default)]
pub(super) struct Buffers {
    /// Requests in flight, with their callers' buffers.
    pub(super) entries: Entries,
    pub(super) arena: Option<Arena>,
    /// Of the page cache.
    pub(super) frames: Option<Pages>,
    /// What writes are encrypted into.
    pub(super) crypt_pages: Option<Pages>,
}

impl Buffers {
    /// Finds the bytes that a queue of actions names.
    pub(super) fn named<'a>(&'a self, queue: &'a ActionQueue, context: &'a Context<'_>) -> Bytes<'a> {
        Bytes { buffers: self, zeroes: context.zeroes, metadata: &queue.metadata }
    }
}

/// Finds the bytes the engine names.
#[derive(Debug)]
pub(crate) struct Bytes<'a> {
    pub(super) buffers: &'a Buffers,
    pub(super) zeroes: &'a Zeroes,
    pub(super) metadata: &'a [u8],
}

impl Bytes<'_> {
    /// The longest run that is contiguous whatever its name.
    pub(crate) const RUN_BYTES_MAX: u64 = ZEROES_BYTES as u64;

    /// The address of `bytes` from `skip` on. Zeroes must not be asked for in runs longer than
    /// [`RUN_BYTES_MAX`](Self::RUN_BYTES_MAX), nor written to.
    ///
    /// # Panics
    /// If the run is not within the named buffer.
    pub(crate) fn address(&self, buf: Buf, skip: u32, bytes: u32) -> *mut u8 {
        match buf {
            Buf::Request { id, offset } => {
                let PartBuffer { base, bytes: length, .. } = self.buffers.entries.get(id).buffer;
                let start = offset + u64::from(skip);
                assert!(start + u64::from(bytes) <= length, "the engine keeps to the request's buffer");
                base.wrapping_add(start as usize)
            }
            Buf::Page { entry, slot, offset } => {
                let arena =
                    self.buffers.arena.as_ref().expect("only an engine with a stripe cache names its pages");
                arena.address(entry, slot, offset + skip, bytes)
            }
            Buf::CachePage { frame, offset } => {
                let frames =
                    self.buffers.frames.as_ref().expect("only a stack with a page cache names its frames");
                frames.address(frame, offset + skip, bytes)
            }
            Buf::CryptPage { page, offset } => {
                let pages =
                    self.buffers.crypt_pages.as_ref().expect("only a stack with a cipher names its pages");
                pages.address(page, offset + skip, bytes)
            }
            Buf::Metadata { offset } => {
                let start = (offset + skip) as usize;
                self.metadata[start..start + bytes as usize].as_ptr().cast_mut()
            }
            Buf::Zero => {
                assert!(bytes as usize <= ZEROES_BYTES, "longer runs of zeroes are cut");
                self.zeroes.address()
            }
        }
    }

    /// How many of `bytes` from `skip` on follow each other in memory.
    pub(crate) fn contiguous(&self, buf: Buf, skip: u32, bytes: u32) -> u32 {
        match buf {
            Buf::Page { entry, slot, offset } => self
                .buffers
                .arena
                .as_ref()
                .map_or(bytes, |arena| arena.contiguous(entry, slot, offset + skip, bytes)),
            Buf::Zero => bytes.min(ZEROES_BYTES as u32),
            _ => bytes,
        }
    }

    /// The contiguous runs of a list of segments.
    pub(crate) fn runs<'b>(&'b self, segs: &'b [Seg]) -> impl Iterator<Item = (*mut u8, usize)> + 'b {
        segs.iter().flat_map(move |seg| {
            let mut skip = 0;
            std::iter::from_fn(move || {
                let bytes = self.contiguous(seg.buf, skip, seg.bytes - skip);
                let run = (bytes > 0).then(|| (self.address(seg.buf, skip, bytes), bytes as usize));
                skip += bytes;
                run
            })
        })
    }
}
