//! A CPU.

use super::{Model, ModelError, ModelKind};

/// A CPU as servers with rates (picoseconds a byte) and costs (nanoseconds).
#[derive(Clone, Debug, PartialEq)]
pub struct CpuModel {
    /// The model as loaded.
    pub model: Model,
    /// Cores.
    pub cores: usize,
    /// Xor, per byte of a block.
    pub xor_byte_ps: u64,
    /// P and Q, per byte of data.
    pub pq_byte_ps: u64,
    /// Memory, per byte touched.
    pub memory_byte_ps: u64,
    /// Copy, per byte of one side.
    pub copy_byte_ps: u64,
    /// What passes the memory that all cores share, per byte copied.
    pub copy_passing_ps: u64,
    /// AES-256 in CBC mode, encryption, per byte.
    pub aes_cbc_encrypt_byte_ps: u64,
    /// AES-256 in CBC mode, decryption, per byte.
    pub aes_cbc_decrypt_byte_ps: u64,
    /// AES-256 in XTS mode, per byte.
    pub aes_xts_byte_ps: u64,
    /// Submitting a request.
    pub request_submit_ns: u64,
    /// Completing a request.
    pub request_complete_ns: u64,
    /// Each page of a request.
    pub page_ns: u64,
    /// A request that the page cache answers, besides its pages and the copy.
    pub cached_request_ns: u64,
    /// Each page of it.
    pub cached_page_ns: u64,
    /// Each I/O to a member.
    pub member_io_ns: u64,
    /// Each page beyond the first of one that passes the stripe cache.
    pub row_io_ns: u64,
    /// Each command to a drive.
    pub command_ns: u64,
    /// Each row of which parity is computed.
    pub row_ns: u64,
    /// Each row whose parity is brought up to date instead, which is handled before and after it is read.
    pub row_update_ns: u64,
}

impl CpuModel {
    /// Makes the typed model of a loaded one.
    pub fn new(model: &Model) -> Result<Self, ModelError> {
        model.expect_kind(ModelKind::Cpu)?;
        Ok(Self {
            cores: model.number("cores") as usize,
            xor_byte_ps: model.picoseconds_per_byte("xor_rate"),
            pq_byte_ps: model.picoseconds_per_byte("pq_rate"),
            memory_byte_ps: model.picoseconds_per_byte("memory_rate"),
            copy_byte_ps: model.picoseconds_per_byte("copy_rate"),
            copy_passing_ps: (model.number("copy_traffic") * 1e6 / model.number("memory_rate")).round()
                as u64,
            aes_cbc_encrypt_byte_ps: model.picoseconds_per_byte("aes_cbc_encrypt_rate"),
            aes_cbc_decrypt_byte_ps: model.picoseconds_per_byte("aes_cbc_decrypt_rate"),
            aes_xts_byte_ps: model.picoseconds_per_byte("aes_xts_rate"),
            request_submit_ns: model.microseconds("request_submit"),
            request_complete_ns: model.microseconds("request_complete"),
            page_ns: model.microseconds("page_cost"),
            cached_request_ns: model.microseconds("cached_request"),
            cached_page_ns: model.microseconds("cached_page"),
            member_io_ns: model.microseconds("member_io_cost"),
            row_io_ns: model.microseconds("row_io_cost"),
            command_ns: model.microseconds("command_cost"),
            row_ns: model.microseconds("row_cost"),
            row_update_ns: model.microseconds("row_update_cost"),
            model: model.clone(),
        })
    }
}
