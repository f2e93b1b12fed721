//! What the messages set up: features, memory, the queue's places, descriptors (QEMU's vhost-user specification).

use std::fs::File;

use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use stripewise_engine::units::SECTOR_BYTES;
use virtio_bindings::virtio_blk as blk;
use virtio_bindings::virtio_config::VIRTIO_F_VERSION_1;
use virtio_bindings::virtio_ring::{VIRTIO_RING_F_EVENT_IDX, VIRTIO_RING_F_INDIRECT_DESC};
use virtio_queue::QueueT;
use vm_memory::{FileOffset, GuestAddress, GuestMemoryMmap, GuestRegionMmap, MmapRegion};

use super::device::{Device, QUEUE_SIZE_MAX};
use super::message::Message;

/// Messages by their numbers.
mod request {
    pub(super) const GET_FEATURES: u32 = 1;
    pub(super) const SET_FEATURES: u32 = 2;
    pub(super) const SET_OWNER: u32 = 3;
    pub(super) const RESET_OWNER: u32 = 4;
    pub(super) const SET_MEM_TABLE: u32 = 5;
    pub(super) const SET_VRING_NUM: u32 = 8;
    pub(super) const SET_VRING_ADDR: u32 = 9;
    pub(super) const SET_VRING_BASE: u32 = 10;
    pub(super) const GET_VRING_BASE: u32 = 11;
    pub(super) const SET_VRING_KICK: u32 = 12;
    pub(super) const SET_VRING_CALL: u32 = 13;
    pub(super) const SET_VRING_ERR: u32 = 14;
    pub(super) const GET_PROTOCOL_FEATURES: u32 = 15;
    pub(super) const SET_PROTOCOL_FEATURES: u32 = 16;
    pub(super) const SET_VRING_ENABLE: u32 = 18;
    pub(super) const SET_BACKEND_REQ_FD: u32 = 21;
    pub(super) const GET_CONFIG: u32 = 24;
}

/// `VHOST_USER_F_PROTOCOL_FEATURES`, among the features of virtio.
const PROTOCOL_FEATURES: u64 = 1 << 30;
/// `VHOST_USER_PROTOCOL_F_REPLY_ACK`, `_BACKEND_REQ` and `_CONFIG`.
const REPLY_ACK: u64 = 1 << 3;
const BACKEND_REQ: u64 = 1 << 5;
const CONFIG: u64 = 1 << 9;
/// The only queue.
const QUEUE: u32 = 0;
/// With the queue's number: no descriptor comes with it.
const NO_FILE: u64 = 1 << 8;
/// Header of a configuration's message: offset, size, flags.
const CONFIG_HEADER_BYTES: usize = 12;
/// The disk's configuration space; the fields that are not offered are zero.
const CONFIG_BYTES: usize = 256;
/// Largest segment of a request in bytes,
const SEGMENT_BYTES_MAX: u32 = 1 << 20;
/// and segments of a request: the queue's descriptors but those of header and status.
const SEGMENTS_MAX: u32 = QUEUE_SIZE_MAX as u32 - 2;
/// What a request moves at most: a longer one would keep the loop to itself.
pub(super) const REQUEST_BYTES_MAX: u64 = SEGMENT_BYTES_MAX as u64 * SEGMENTS_MAX as u64;
/// A memory region in its table: where the machine has it, bytes, where its process has it, offset in its file.
const REGION_BYTES: usize = 32;
const REGIONS_AT: usize = 8;

/// A part of the machine's memory.
#[derive(Clone, Copy, Debug)]
pub(super) struct Region {
    machine: u64,
    bytes: u64,
    process: u64,
}

/// What a message is answered with.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Answer {
    /// That it was done, if that was asked.
    Done,
    Bytes(Vec<u8>),
}

impl Answer {
    fn number(number: u64) -> Self {
        Self::Bytes(number.to_ne_bytes().to_vec())
    }
}

/// Without flushes a machine takes the disk for one that writes through.
pub(super) fn offered(has_volatile_cache: bool) -> u64 {
    let always = [
        blk::VIRTIO_BLK_F_SIZE_MAX,
        blk::VIRTIO_BLK_F_SEG_MAX,
        blk::VIRTIO_BLK_F_BLK_SIZE,
        blk::VIRTIO_BLK_F_TOPOLOGY,
        VIRTIO_F_VERSION_1,
        VIRTIO_RING_F_INDIRECT_DESC,
        VIRTIO_RING_F_EVENT_IDX,
    ];
    let flush = has_volatile_cache.then_some(blk::VIRTIO_BLK_F_FLUSH);
    always.into_iter().chain(flush).fold(PROTOCOL_FEATURES, |all, bit| all | 1 << bit)
}

/// Places of fields as in `struct virtio_blk_config`.
fn config(sectors: u64, physical_bytes: u64) -> [u8; CONFIG_BYTES] {
    let mut config = [0; CONFIG_BYTES];
    config[0..8].copy_from_slice(&sectors.to_le_bytes());
    config[8..12].copy_from_slice(&SEGMENT_BYTES_MAX.to_le_bytes());
    config[12..16].copy_from_slice(&SEGMENTS_MAX.to_le_bytes());
    config[20..24].copy_from_slice(&(SECTOR_BYTES as u32).to_le_bytes());
    // Blocks of two to this power to a physical one.
    config[24] = (physical_bytes / SECTOR_BYTES).max(1).ilog2() as u8;
    config
}

impl Device {
    /// Does what a message says. None: it makes no sense, or is not known here.
    pub(super) fn obey(&mut self, message: Message) -> Option<Answer> {
        match message.request {
            request::GET_FEATURES => return Some(Answer::number(self.offered)),
            request::GET_PROTOCOL_FEATURES => return Some(Answer::number(REPLY_ACK | BACKEND_REQ | CONFIG)),
            request::GET_CONFIG => return self.config(&message).map(Answer::Bytes),
            request::GET_VRING_BASE => {
                only_queue(message.u32_at(0)?)?;
                self.end_all();
                self.queue.set_ready(false);
                (self.kick, self.call) = (None, None);
                self.set_up();
                let base = [QUEUE, self.queue.next_avail().into()].map(u32::to_ne_bytes);
                return Some(Answer::Bytes(base.as_flattened().to_vec()));
            }
            request::SET_FEATURES => self.set_features(message.u64_at(0)?)?,
            request::SET_PROTOCOL_FEATURES => self.acknowledges = message.u64_at(0)? & REPLY_ACK != 0,
            // Nothing is ever asked of the machine, but user-mode-linux 6.1 has no interrupt for a disk without that socket.
            request::SET_BACKEND_REQ_FD => self.requests = message.files.into_iter().next(),
            request::SET_OWNER => {}
            request::RESET_OWNER => self.release(),
            request::SET_MEM_TABLE => self.set_memory(&message)?,
            request::SET_VRING_NUM => {
                only_queue(message.u32_at(0)?)?;
                self.queue.try_set_size(message.u32_at(4)?.try_into().ok()?).ok()?;
            }
            request::SET_VRING_ADDR => self.set_places(&message)?,
            request::SET_VRING_BASE => {
                only_queue(message.u32_at(0)?)?;
                self.queue.set_next_avail(message.u32_at(4)?.try_into().ok()?);
            }
            request::SET_VRING_KICK => {
                self.kick = its_file(message)?;
                self.queue.set_ready(true);
                self.set_up();
            }
            request::SET_VRING_CALL => {
                self.call = its_file(message)?;
            }
            request::SET_VRING_ERR => {
                self.error = its_file(message)?;
            }
            request::SET_VRING_ENABLE => {
                only_queue(message.u32_at(0)?)?;
                self.is_enabled = message.u32_at(4)? != 0;
            }
            _ => return None,
        }
        Some(Answer::Done)
    }

    fn set_features(&mut self, features: u64) -> Option<()> {
        if features & !self.offered != 0 {
            return None;
        }
        self.queue.set_event_idx(features & 1 << VIRTIO_RING_F_EVENT_IDX != 0);
        // Without the protocol's features, queues cannot be enabled by message and always are.
        self.is_enabled |= features & PROTOCOL_FEATURES == 0;
        Some(())
    }

    fn set_memory(&mut self, message: &Message) -> Option<()> {
        let count = message.u32_at(0)? as usize;
        let mut regions = Vec::with_capacity(message.files.len());
        let mut mapped = Vec::with_capacity(message.files.len());
        if count != message.files.len() {
            return None;
        }
        for index in 0..count {
            let field = |number: usize| message.u64_at(REGIONS_AT + index * REGION_BYTES + 8 * number);
            let region = Region { machine: field(0)?, bytes: field(1)?, process: field(2)? };
            let offset = field(3)?;
            region.process.checked_add(region.bytes)?;
            let file = message.files[index].try_clone().ok()?;
            let length = usize::try_from(region.bytes).ok()?;
            // Beyond the file's end there would be no memory.
            let end = offset.checked_add(region.bytes)?;
            if file.metadata().ok()?.len() < end {
                return None;
            }
            let mapping = MmapRegion::from_file(FileOffset::new(file, offset), length).ok()?;
            mapped.push(GuestRegionMmap::new(mapping, GuestAddress(region.machine))?);
            regions.push(region);
        }
        self.memory = Some(GuestMemoryMmap::from_regions(mapped).ok()?);
        self.regions = regions;
        Some(())
    }

    /// The machine's own address of a place in its process.
    fn address(&self, process: u64) -> Option<GuestAddress> {
        let region = self.regions.iter().find(|r| process >= r.process && process - r.process < r.bytes)?;
        Some(GuestAddress(process - region.process + region.machine))
    }

    fn set_places(&mut self, message: &Message) -> Option<()> {
        only_queue(message.u32_at(0)?)?;
        let [descriptors, used, available] =
            [8, 16, 24].map(|at| message.u64_at(at).and_then(|process| self.address(process)));
        self.queue.try_set_desc_table_address(descriptors?).ok()?;
        self.queue.try_set_used_ring_address(used?).ok()?;
        self.queue.try_set_avail_ring_address(available?).ok()?;
        let next = self.queue.used_idx(self.memory.as_ref()?, std::sync::atomic::Ordering::Relaxed).ok()?;
        self.queue.set_next_used(next.0);
        Some(())
    }

    fn config(&self, message: &Message) -> Option<Vec<u8>> {
        let (first, count) = (message.u32_at(0)? as usize, message.u32_at(4)? as usize);
        let config = config(self.sectors, self.physical_bytes);
        let part = config.get(first..first.checked_add(count)?)?;
        Some([message.payload.get(..CONFIG_HEADER_BYTES)?, part].concat())
    }
}

fn only_queue(index: u32) -> Option<()> {
    (index == QUEUE).then_some(())
}

/// The descriptor that a message of the queue comes with, if it says so: to tell or be told by, which nothing waits for.
/// Outer nothing: it does not make sense.
#[expect(clippy::option_option, reason = "none where none is said to be makes sense")]
fn its_file(message: Message) -> Option<Option<File>> {
    let number = message.u64_at(0)?;
    only_queue(u32::from(number as u8))?;
    let file = message.files.into_iter().next();
    if file.is_none() != (number & NO_FILE != 0) {
        return None;
    }
    if let Some(file) = &file {
        let flags = fcntl_getfl(file).ok()?;
        fcntl_setfl(file, flags | OFlags::NONBLOCK).ok()?;
    }
    Some(file)
}

#[cfg(test)]
mod tests {
    use std::os::fd::OwnedFd;

    use super::*;

    #[test]
    fn nothing_waits_for_a_descriptor_that_a_machine_gives() {
        let message = |number: u64, files| Message {
            request: request::SET_VRING_CALL,
            payload: number.to_ne_bytes().to_vec(),
            files,
            wants_reply: false,
        };
        let (_reader, writer) = std::io::pipe().unwrap();
        let file = File::from(OwnedFd::from(writer));
        let given = its_file(message(0, vec![file.try_clone().unwrap()])).unwrap().unwrap();
        assert!(fcntl_getfl(&given).unwrap().contains(OFlags::NONBLOCK));
        assert!(its_file(message(NO_FILE, Vec::new())).is_some_and(|none| none.is_none()));
        for nonsense in [message(0, Vec::new()), message(NO_FILE, vec![file]), message(1, Vec::new())] {
            assert!(its_file(nonsense).is_none());
        }
    }
}
