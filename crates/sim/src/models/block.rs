//! The block layer above each member.

use super::{Model, ModelError, ModelKind};

/// Time slices of processes that read on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SliceModel {
    /// A process's turn.
    pub slice_ns: u64,
    /// What all turns together should take at most, if they are shortened for that; 0 if not.
    pub target_ns: u64,
    /// How long the drive is kept for a process that has nothing queued.
    pub idle_ns: u64,
    /// The turn of all other requests.
    pub others_ns: u64,
    /// Sectors between two reads of a process that reads on.
    pub near_sectors: u64,
    /// Sectors up to which another process's read is close enough to go on instead.
    pub close_sectors: u64,
}

/// Limits of the queue of requests above each member.
#[derive(Clone, Debug, PartialEq)]
pub struct BlockModel {
    /// The model as loaded.
    pub model: Model,
    /// Sectors of the largest request after merging.
    pub request_sectors_max: u64,
    /// Requests queued or outstanding, for reads and for writes each.
    pub nr_requests: u32,
    /// A forced write is one command; if not, a write and a flush.
    pub fua: bool,
    /// How long a read may be queued before it goes next.
    pub read_expire_ns: u64,
    /// The same for a write.
    pub write_expire_ns: u64,
    /// Requests served in order of sectors from such a one on, it among them.
    pub expire_batch: u32,
    /// The time slices of processes that read on, if the scheduler has them.
    pub slices: Option<SliceModel>,
    /// Threads dm-crypt has for one device; none for one on every core.
    pub crypt_threads: Option<u32>,
    /// Bytes of writes that dm-crypt has encrypted and under way at most, if that is bounded.
    pub crypt_buffer_bytes: Option<u64>,
}

impl BlockModel {
    /// Makes the typed model of a loaded one.
    pub fn new(model: &Model) -> Result<Self, ModelError> {
        model.expect_kind(ModelKind::Block)?;
        let nanos = |name| (model.number(name) * 1e6) as u64;
        let slices = SliceModel {
            slice_ns: nanos("slice_sync"),
            target_ns: nanos("slice_target"),
            idle_ns: nanos("slice_idle"),
            others_ns: nanos("slice_async"),
            near_sectors: model.kib_sectors("slice_near"),
            close_sectors: model.kib_sectors("slice_close"),
        };
        Ok(Self {
            request_sectors_max: model.kib_sectors("request_size_max"),
            nr_requests: model.number("nr_requests") as u32,
            fua: model.number("fua") > 0.5,
            read_expire_ns: nanos("read_expire"),
            write_expire_ns: nanos("write_expire"),
            expire_batch: model.number("expire_batch") as u32,
            slices: (slices.slice_ns > 0).then_some(slices),
            crypt_threads: match model.number("crypt_threads") as u32 {
                0 => None,
                threads => Some(threads),
            },
            crypt_buffer_bytes: match model.number("crypt_buffer") as u64 {
                0 => None,
                mib => Some(mib << 20),
            },
            model: model.clone(),
        })
    }
}
