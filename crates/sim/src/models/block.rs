//! The block layer above each member.

use super::{Model, ModelError, ModelKind};

/// Limits of the queue of requests above each member.
#[derive(Clone, Debug, PartialEq)]
pub struct BlockModel {
    /// The model as loaded.
    pub model: Model,
    /// Sectors of the largest request after merging.
    pub request_sectors_max: u64,
    /// Requests queued or outstanding, for reads and for writes each.
    pub nr_requests: u32,
    /// How long a read may be queued before it goes next.
    pub read_expire_ns: u64,
    /// The same for a write.
    pub write_expire_ns: u64,
    /// Requests served in order of sectors from such a one on, it among them.
    pub expire_batch: u32,
    /// Threads dm-crypt has for one device; none for one on every core.
    pub crypt_threads: Option<u32>,
}

impl BlockModel {
    /// Makes the typed model of a loaded one.
    pub fn new(model: &Model) -> Result<Self, ModelError> {
        model.expect_kind(ModelKind::Block)?;
        Ok(Self {
            request_sectors_max: model.kib_sectors("request_size_max"),
            nr_requests: model.number("nr_requests") as u32,
            read_expire_ns: (model.number("read_expire") * 1e6) as u64,
            write_expire_ns: (model.number("write_expire") * 1e6) as u64,
            expire_batch: model.number("expire_batch") as u32,
            crypt_threads: match model.number("crypt_threads") as u32 {
                0 => None,
                threads => Some(threads),
            },
            model: model.clone(),
        })
    }
}
