//! dm-crypt between a workload and its array: time only, no bytes.
//!
//! # Contract
//! *Place.* The payload of a container begins some sectors into the array; requests are moved by that much.
//! *Time.* A write reaches the array when all of it is encrypted; a read is told when all of it is decrypted. The
//! cipher runs on as many threads as the kernel has for one device (one up to 3.2, then one per CPU), each of which
//! takes one request after another and needs a core.

use crate::cpu::Cpu;
use crate::models::{BlockModel, CpuModel};

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

/// An encrypted container.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CryptConfig {
    /// The cipher.
    pub cipher: Cipher,
    /// Sectors of the array before the payload.
    pub payload_sectors: u64,
}

/// The threads of one device.
#[derive(Debug)]
pub(crate) struct Crypt {
    pub(crate) payload_sectors: u64,
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
        Self {
            payload_sectors: config.payload_sectors,
            encrypt_byte_ps,
            decrypt_byte_ps,
            free_ns: vec![0; threads.max(1)],
        }
    }

    /// Encrypts; returns the end.
    pub(crate) fn encrypt(&mut self, cpu: &mut Cpu, now_ns: u64, bytes: u64) -> u64 {
        self.serve(cpu, now_ns, bytes * self.encrypt_byte_ps / 1000)
    }

    /// Decrypts and, on the same core, completes the request; returns the end.
    pub(crate) fn decrypt(&mut self, cpu: &mut Cpu, now_ns: u64, bytes: u64) -> u64 {
        self.serve(cpu, now_ns, bytes * self.decrypt_byte_ps / 1000 + cpu.completion_ns())
    }

    fn serve(&mut self, cpu: &mut Cpu, now_ns: u64, cost_ns: u64) -> u64 {
        let free = self.free_ns.iter_mut().min().expect("a device has a thread");
        let end = cpu.serve(now_ns.max(*free), cost_ns);
        *free = end;
        end
    }
}
