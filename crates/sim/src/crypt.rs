//! dm-crypt's threads: what ciphering takes.
//!
//! # Contract
//! *Place.* The engine's layer is where the payload is, and asks for each piece to be ciphered.
//! *Time.* The cipher runs on as many threads as the kernel has for one device (one up to 3.2, then one per CPU), each
//! of which takes one piece after another and needs a core.

use crate::cpu::Cpu;
use crate::models::{BlockModel, CpuModel};
use stripewise_engine::crypt::CryptConfig as Payload;
use stripewise_engine::io::{Compute, Kernel};

/// How sectors are encrypted, with a key of 256 bit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cipher {
    /// `aes-cbc-essiv:sha256`
    AesCbc,
    /// `aes-xts-plain64`
    AesXts,
}

impl Cipher {
    /// Every cipher.
    pub const ALL: [Self; 2] = [Self::AesCbc, Self::AesXts];

    /// The name in dm-crypt's tables.
    pub const fn name(self) -> &'static str {
        match self {
            Self::AesCbc => "aes-cbc-essiv:sha256",
            Self::AesXts => "aes-xts-plain64",
        }
    }
}

/// More than is ever under way: what the page cache writes back at a time, or all requests of a job.
const UNBOUNDED_BYTES: u64 = 2 << 30;

/// An encrypted container.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CryptConfig {
    /// The cipher.
    pub cipher: Cipher,
    /// Sectors of the array before the payload.
    pub payload_sectors: u64,
}

impl CryptConfig {
    /// The payload on an array of so many sectors; one that begins beyond it is refused by the engine.
    pub(crate) fn payload(self, array_sectors: u64, block: &BlockModel) -> Payload {
        Payload {
            start_sector: self.payload_sectors,
            sectors: array_sectors.saturating_sub(self.payload_sectors),
            unit_sectors: 1,
            buffer_bytes: block.crypt_buffer_bytes.unwrap_or(UNBOUNDED_BYTES),
        }
    }
}

/// The threads of one device.
#[derive(Debug)]
pub(crate) struct Crypt {
    encrypt_byte_ps: u64,
    decrypt_byte_ps: u64,
    free_ns: Vec<u64>,
}

impl Crypt {
    pub(crate) fn new(config: CryptConfig, cpu: &CpuModel, block: &BlockModel) -> Self {
        let (encrypt_byte_ps, decrypt_byte_ps) = match config.cipher {
            Cipher::AesCbc => (cpu.aes_cbc_encrypt_byte_ps, cpu.aes_cbc_decrypt_byte_ps),
            Cipher::AesXts => (cpu.aes_xts_byte_ps, cpu.aes_xts_byte_ps),
        };
        let threads = block.crypt_threads.map_or(cpu.cores, |threads| threads as usize);
        Self { encrypt_byte_ps, decrypt_byte_ps, free_ns: vec![0; threads.max(1)] }
    }

    /// Ciphers a piece; returns the end.
    pub(crate) fn compute(&mut self, cpu: &mut Cpu, now_ns: u64, compute: &Compute) -> u64 {
        let is_read = matches!(compute.kernel, Kernel::Decrypt { .. });
        let byte_ps = if is_read { self.decrypt_byte_ps } else { self.encrypt_byte_ps };
        let cost_ns = compute.bytes * byte_ps / 1000;
        let free = self.free_ns.iter_mut().min().expect("a device has a thread");
        let end = cpu.serve(now_ns.max(*free), cost_ns);
        *free = end;
        end
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::models::Model;

    #[test]
    fn what_is_under_way_is_bounded_by_kernels_that_bound_it() {
        let config = CryptConfig { cipher: Cipher::AesXts, payload_sectors: 4096 };
        let bytes = |name: &str| {
            let block = BlockModel::new(&Model::load(name).unwrap()).unwrap();
            config.payload(1 << 30, &block).buffer_bytes
        };
        assert_eq!(bytes("linux-block-6.1"), 82 << 20);
        for name in ["linux-block-2.6.18", "linux-block-2.6.27", "linux-block-3.2"] {
            assert_eq!(bytes(name), UNBOUNDED_BYTES, "{name}");
        }
    }
}
