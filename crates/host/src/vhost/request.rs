//! One request in the machine's memory: a header of 16 bytes, data, a byte for the status (virtio 1.2, 5.2.6). They may be
//! cut into descriptors in any way.

use stripewise_engine::io::Op;
use stripewise_engine::units::{SECTOR_BYTES, SectorRange};
use virtio_bindings::virtio_blk as blk;
use virtio_queue::DescriptorChain;
use vm_memory::{Bytes, GuestAddress, GuestMemoryMmap};

use super::protocol::REQUEST_BYTES_MAX;
use crate::drive::Kept;

/// The header: type, priority, first sector.
const HEADER_BYTES: usize = 16;
/// What is moved at once; a descriptor may name more than anybody has memory for.
const PIECE_BYTES: usize = 64 << 10;

/// How a request ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Status {
    Done = blk::VIRTIO_BLK_S_OK as isize,
    Failed = blk::VIRTIO_BLK_S_IOERR as isize,
    Unsupported = blk::VIRTIO_BLK_S_UNSUPP as isize,
}

/// What a request asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Asked {
    Drive { op: Op, range: SectorRange },
    Name,
}

/// Pieces of memory in order: where they begin, and their bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Runs(Vec<(GuestAddress, usize)>);

impl Runs {
    fn bytes(&self) -> usize {
        self.0.iter().map(|(_, bytes)| bytes).sum()
    }

    /// Cuts the first bytes off; none if there are fewer.
    fn take_front(&mut self, count: usize) -> Option<Self> {
        if self.bytes() < count {
            return None;
        }
        let mut front = Vec::new();
        let mut left = count;
        while left > 0 {
            let (at, bytes) = self.0[0];
            let here = bytes.min(left);
            front.push((at, here));
            left -= here;
            if here == bytes {
                self.0.remove(0);
            } else {
                self.0[0] = (GuestAddress(at.0 + here as u64), bytes - here);
            }
        }
        Some(Self(front))
    }

    /// Cuts the last byte off.
    fn take_last(&mut self) -> Option<GuestAddress> {
        self.0.retain(|(_, bytes)| *bytes > 0);
        let (at, bytes) = self.0.last_mut()?;
        *bytes -= 1;
        Some(GuestAddress(at.0 + *bytes as u64))
    }
}

/// A request taken from the queue.
#[derive(Clone, Debug)]
pub(super) struct BlockRequest {
    /// Its name in the queue.
    pub(super) head: u16,
    /// What is to be done, or why nothing is.
    pub(super) asked: Result<Asked, Status>,
    data: Runs,
    status: Option<GuestAddress>,
}

impl BlockRequest {
    /// Reads a request to a disk of so many sectors.
    pub(super) fn new(chain: &DescriptorChain<&GuestMemoryMmap>, sectors: u64) -> Self {
        let (head, memory) = (chain.head_index(), chain.memory());
        let (mut readable, mut writable) = (Runs::default(), Runs::default());
        for descriptor in chain.clone() {
            let runs = if descriptor.is_write_only() { &mut writable } else { &mut readable };
            // An end beyond the last address is in no machine's memory.
            if descriptor.addr().0.checked_add(u64::from(descriptor.len())).is_some() {
                runs.0.push((descriptor.addr(), descriptor.len() as usize));
            }
        }
        let status = writable.take_last();
        let mut header = [0; HEADER_BYTES];
        let has_header =
            readable.take_front(HEADER_BYTES).is_some_and(|runs| gather(memory, &runs, &mut header));
        if !has_header || status.is_none() {
            return Self { head, asked: Err(Status::Failed), data: Runs::default(), status };
        }
        let kind = u32::from_le_bytes(header[..4].try_into().expect("four bytes"));
        let first = u64::from_le_bytes(header[8..].try_into().expect("eight bytes"));
        let data = if kind == blk::VIRTIO_BLK_T_OUT { readable } else { writable };
        let asked = judge(kind, first, data.bytes() as u64, sectors);
        Self { head, asked, data, status }
    }

    /// Moves what is kept between the disk and the machine's memory.
    pub(super) fn carry_out(&self, memory: &GuestMemoryMmap, kept: &mut Kept, name: &[u8]) -> Status {
        match self.asked {
            Err(status) => return status,
            Ok(Asked::Name) => {
                let mut text = [0; blk::VIRTIO_BLK_ID_BYTES as usize];
                let length = name.len().min(text.len());
                text[..length].copy_from_slice(&name[..length]);
                let mut done = 0;
                for &(at, bytes) in &self.data.0 {
                    let part = &text[done..(done + bytes).min(text.len())];
                    done += part.len();
                    if memory.write_slice(part, at).is_err() {
                        return Status::Failed;
                    }
                }
            }
            Ok(Asked::Drive { op, range }) => {
                let mut offset = range.start * SECTOR_BYTES;
                for &(at, bytes) in &self.data.0 {
                    let is_moved = match op {
                        Op::Read => pieces(bytes).all(|(done, count)| {
                            let mut piece = vec![0; count];
                            kept.read(offset + done, &mut piece);
                            memory.write_slice(&piece, GuestAddress(at.0 + done)).is_ok()
                        }),
                        Op::Write if kept.keeps(offset, bytes as u64) => {
                            pieces(bytes).all(|(done, count)| {
                                let mut piece = vec![0; count];
                                let is_read =
                                    memory.read_slice(&mut piece, GuestAddress(at.0 + done)).is_ok();
                                if is_read {
                                    kept.write(offset + done, &piece);
                                }
                                is_read
                            })
                        }
                        _ => true,
                    };
                    if !is_moved {
                        return Status::Failed;
                    }
                    offset += bytes as u64;
                }
            }
        }
        Status::Done
    }

    /// Tells the machine how it ended. Answers with the bytes written in its memory.
    pub(super) fn end(&self, memory: &GuestMemoryMmap, status: Status) -> u32 {
        let Some(at) = self.status else { return 0 };
        if memory.write_obj(status as u8, at).is_err() {
            return 0;
        }
        match (self.asked, status) {
            (Ok(Asked::Name | Asked::Drive { op: Op::Read, .. }), Status::Done) => {
                (self.data.bytes() as u64 + 1).try_into().unwrap_or(u32::MAX)
            }
            _ => 1,
        }
    }
}

/// Pieces of so many bytes: where each begins, and its length.
fn pieces(bytes: usize) -> impl Iterator<Item = (u64, usize)> {
    (0..bytes).step_by(PIECE_BYTES).map(move |done| (done as u64, PIECE_BYTES.min(bytes - done)))
}

/// Reads runs into a buffer of their length.
fn gather(memory: &GuestMemoryMmap, runs: &Runs, buffer: &mut [u8]) -> bool {
    let mut rest = buffer;
    runs.0.iter().all(|&(at, bytes)| {
        let (here, after) = std::mem::take(&mut rest).split_at_mut(bytes);
        rest = after;
        memory.read_slice(here, at).is_ok()
    })
}

fn judge(kind: u32, first: u64, bytes: u64, sectors: u64) -> Result<Asked, Status> {
    let range = SectorRange::new(first, bytes / SECTOR_BYTES);
    let is_within = bytes > 0
        && bytes <= REQUEST_BYTES_MAX
        && bytes.is_multiple_of(SECTOR_BYTES)
        && first.checked_add(range.count).is_some_and(|end| end <= sectors);
    let moved = |op| if is_within { Ok(Asked::Drive { op, range }) } else { Err(Status::Failed) };
    match kind {
        blk::VIRTIO_BLK_T_IN => moved(Op::Read),
        blk::VIRTIO_BLK_T_OUT => moved(Op::Write),
        blk::VIRTIO_BLK_T_FLUSH => Ok(Asked::Drive { op: Op::Flush, range: SectorRange::new(0, 0) }),
        blk::VIRTIO_BLK_T_GET_ID if bytes >= u64::from(blk::VIRTIO_BLK_ID_BYTES) => Ok(Asked::Name),
        blk::VIRTIO_BLK_T_GET_ID => Err(Status::Failed),
        _ => Err(Status::Unsupported),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_are_cut_across_descriptors() {
        let run = |at, bytes| (GuestAddress(at), bytes);
        let mut runs = Runs(vec![run(100, 10), run(200, 20), run(300, 1)]);
        assert_eq!(runs.take_front(16), Some(Runs(vec![run(100, 10), run(200, 6)])));
        assert_eq!(runs.take_last(), Some(GuestAddress(300)));
        assert_eq!(runs.take_last(), Some(GuestAddress(219)));
        assert_eq!(runs.bytes(), 13);
        assert_eq!(runs.take_front(14), None);
    }

    #[test]
    fn pieces_are_all_of_it_once() {
        assert_eq!(pieces(PIECE_BYTES + 1).collect::<Vec<_>>(), [(0, PIECE_BYTES), (PIECE_BYTES as u64, 1)]);
        assert_eq!((pieces(PIECE_BYTES).count(), pieces(0).count()), (1, 0));
    }

    #[test]
    fn requests_are_judged() {
        let read = |first, bytes| judge(blk::VIRTIO_BLK_T_IN, first, bytes, 100);
        assert_eq!(read(92, 4096), Ok(Asked::Drive { op: Op::Read, range: SectorRange::new(92, 8) }));
        for (first, bytes) in [(93, 4096), (0, 0), (0, 100), (u64::MAX, 512)] {
            assert_eq!(read(first, bytes), Err(Status::Failed), "{first} {bytes}");
        }
        let large = |bytes| judge(blk::VIRTIO_BLK_T_IN, 0, bytes, u64::MAX);
        assert!(large(REQUEST_BYTES_MAX).is_ok(), "all segments of a queue, as long as may be");
        assert_eq!(large(REQUEST_BYTES_MAX + 512), Err(Status::Failed));
        assert_eq!(judge(blk::VIRTIO_BLK_T_GET_ID, 0, 20, 100), Ok(Asked::Name));
        assert_eq!(judge(blk::VIRTIO_BLK_T_GET_ID, 0, 19, 100), Err(Status::Failed));
        assert_eq!(judge(blk::VIRTIO_BLK_T_DISCARD, 0, 16, 100), Err(Status::Unsupported));
    }
}
