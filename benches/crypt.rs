//! Sector ciphers in MB/s of one core, beside the crates `xts-mode` and `cbc`, OpenSSL and memcpy.
//!
//! `cargo bench -p stripewise-crypt` takes about twenty seconds, `-- --quick` a few; `-- WORD` runs only the cases
//! whose name contains the word. Every contender does the same requests in interleaved rounds, so a slow spell of the
//! machine hits all alike. Printed per contender: the median rate, its ratio to the peer's, and every round's rate.
//! `openssl speed` is run once where it is installed: one call per 16 KiB, in place, no sectors.

use std::hint::black_box;
use std::process::Command;
use std::time::{Duration, Instant};

use aes::cipher::consts::U16;
use aes::cipher::{
    BlockCipherDecrypt, BlockCipherEncrypt, BlockModeDecrypt, BlockModeEncrypt, BlockSizeUser, InnerIvInit,
    KeyInit,
};
use aes::{Aes128, Aes256, Block};
use stripewise_crypt::cipher::{SECTOR_BYTES, SectorCipher, instructions};
use stripewise_format::luks::Encryption;
use xts_mode::{Xts128, get_tweak_default};

/// A request of a served array, and a working set that no cache holds.
const REQUEST_BYTES: usize = 128 << 10;
const DRAM_BYTES: usize = 256 << 20;

#[derive(Clone, Copy, PartialEq)]
enum Contender {
    InPlace,
    ToTarget,
    Peer,
    Memcpy,
}

impl Contender {
    fn name(self, encryption: Encryption) -> &'static str {
        match (self, encryption) {
            (Self::InPlace, _) => "in place",
            (Self::ToTarget, _) => "source to target",
            (Self::Peer, Encryption::AesXtsPlain64) => "xts-mode 0.6",
            (Self::Peer, Encryption::AesCbcEssivSha256) => "cbc 0.2",
            (Self::Memcpy, _) => "memcpy",
        }
    }
}

struct Case {
    encryption: Encryption,
    key: Vec<u8>,
    sector_bytes: u32,
    decrypts: bool,
    working_set_bytes: usize,
    cipher: SectorCipher,
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|argument| argument != "--bench").collect();
    let quick = arguments.iter().any(|argument| argument == "--quick");
    let word = arguments.iter().find(|argument| !argument.starts_with("--"));
    print_machine();
    let source: Vec<u8> =
        (0..if quick { 8 << 20 } else { DRAM_BYTES }).map(|i: usize| (i ^ (i >> 9)) as u8).collect();
    let mut target = source.clone();
    for encryption in Encryption::ALL {
        for key_bytes in encryption.key_bytes() {
            for (sector_bytes, working_set_bytes) in
                [(512, REQUEST_BYTES), (4096, REQUEST_BYTES), (4096, source.len())]
            {
                for decrypts in [false, true] {
                    let key: Vec<u8> = (0..key_bytes).map(|i| i as u8).collect();
                    let cipher =
                        SectorCipher::new(encryption, &key, sector_bytes, 0).expect("key and sector fit");
                    let case = Case { encryption, key, sector_bytes, decrypts, working_set_bytes, cipher };
                    if word.is_none_or(|word| case.name().contains(word.as_str())) {
                        run_case(&case, &source, &mut target, quick);
                    }
                }
            }
        }
    }
    if word.is_none() && !quick {
        print_openssl();
    }
}

impl Case {
    fn name(&self) -> String {
        format!(
            "{} {} bit, sectors of {}, {}, working set {} KiB",
            self.encryption,
            self.key.len() * 8,
            self.sector_bytes,
            if self.decrypts { "decrypt" } else { "encrypt" },
            self.working_set_bytes >> 10
        )
    }

    /// Does one request.
    fn request(&self, contender: Contender, offset: usize, source: &[u8], target: &mut [u8]) {
        let sector = (offset / SECTOR_BYTES) as u64;
        match (contender, self.decrypts) {
            (Contender::InPlace, false) => self.cipher.encrypt_in_place(sector, target),
            (Contender::InPlace, true) => self.cipher.decrypt_in_place(sector, target),
            (Contender::ToTarget, false) => self.cipher.encrypt(sector, source, target),
            (Contender::ToTarget, true) => self.cipher.decrypt(sector, source, target),
            (Contender::Peer, _) => self.peer(sector, target),
            (Contender::Memcpy, _) => target.copy_from_slice(source),
        }
        black_box(target);
    }

    fn peer(&self, sector: u64, data: &mut [u8]) {
        let size = self.sector_bytes as usize;
        match (self.encryption, self.key.len()) {
            (Encryption::AesXtsPlain64, 32) => {
                peer_xts::<Aes128>(&self.key, size, sector, self.decrypts, data);
            }
            (Encryption::AesXtsPlain64, _) => {
                peer_xts::<Aes256>(&self.key, size, sector, self.decrypts, data);
            }
            (_, 16) => peer_cbc::<Aes128>(&self.key, size, self.decrypts, data),
            (_, _) => peer_cbc::<Aes256>(&self.key, size, self.decrypts, data),
        }
    }
}

fn peer_xts<C>(key: &[u8], sector_bytes: usize, sector: u64, decrypts: bool, data: &mut [u8])
where
    C: KeyInit + BlockCipherEncrypt + BlockCipherDecrypt + BlockSizeUser<BlockSize = U16>,
{
    let cipher = |key: &[u8]| C::new_from_slice(key).expect("half a key");
    let xts = Xts128::new(cipher(&key[..key.len() / 2]), cipher(&key[key.len() / 2..]));
    let first = u128::from(sector) * SECTOR_BYTES as u128 / sector_bytes as u128;
    if decrypts {
        xts.decrypt_area(data, sector_bytes, first, get_tweak_default);
    } else {
        xts.encrypt_area(data, sector_bytes, first, get_tweak_default);
    }
}

/// The initial vectors are left out: they are not what the peer is measured for.
fn peer_cbc<C>(key: &[u8], sector_bytes: usize, decrypts: bool, data: &mut [u8])
where
    C: KeyInit + BlockCipherEncrypt + BlockCipherDecrypt + BlockSizeUser<BlockSize = U16>,
{
    let cipher = C::new_from_slice(key).expect("a key");
    for sector in data.chunks_exact_mut(sector_bytes) {
        let (blocks, _) = Block::slice_as_chunks_mut(sector);
        if decrypts {
            cbc::Decryptor::inner_iv_init(&cipher, &Block::default()).decrypt_blocks(blocks);
        } else {
            cbc::Encryptor::inner_iv_init(&cipher, &Block::default()).encrypt_blocks(blocks);
        }
    }
}

fn run_case(case: &Case, source: &[u8], target: &mut [u8], quick: bool) {
    let contenders = [Contender::InPlace, Contender::ToTarget, Contender::Peer, Contender::Memcpy];
    let (rounds, round_time) =
        if quick { (3, Duration::from_millis(2)) } else { (7, Duration::from_millis(25)) };
    let mut samples = vec![Vec::new(); contenders.len()];
    for _ in 0..rounds {
        for (contender, samples) in contenders.into_iter().zip(&mut samples) {
            samples.push(round(case, contender, source, target, round_time));
        }
    }
    let medians: Vec<f64> = samples.iter().map(|samples| median(samples)).collect();
    println!("\n{}", case.name());
    for ((contender, samples), rate) in contenders.into_iter().zip(&samples).zip(&medians) {
        let raw: Vec<String> = samples.iter().map(|sample| format!("{sample:.0}")).collect();
        println!(
            "  {:17} {rate:7.0} MB/s  {:5.2} x {}   [{}]",
            contender.name(case.encryption),
            rate / medians[2],
            Contender::Peer.name(case.encryption),
            raw.join(" ")
        );
    }
}

/// Walks the working set, request after request, for about `time`; returns MB/s.
fn round(case: &Case, contender: Contender, source: &[u8], target: &mut [u8], time: Duration) -> f64 {
    let requests = case.working_set_bytes / REQUEST_BYTES;
    let mut run = |request: usize| {
        let offset = request * REQUEST_BYTES;
        let range = offset..offset + REQUEST_BYTES;
        case.request(contender, offset, &source[range.clone()], &mut target[range]);
    };
    run(0);
    let start = Instant::now();
    let mut done = 0;
    while start.elapsed() < time {
        run((done + 1) % requests);
        done += 1;
    }
    (done * REQUEST_BYTES) as f64 / start.elapsed().as_secs_f64() / 1e6
}

fn print_machine() {
    let cpu = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let field = |name: &str| {
        let line = cpu.lines().find(|line| line.starts_with(name))?;
        Some(line.split(':').nth(1)?.trim().to_owned())
    };
    let commit = Command::new("git").args(["describe", "--always", "--dirty"]).output();
    let commit = commit.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned());
    println!(
        "machine    {} (family {}, model {}), {}; {}",
        field("model name").unwrap_or_else(|| "unknown CPU".to_owned()),
        field("cpu family").unwrap_or_default(),
        field("model\t").unwrap_or_default(),
        std::env::consts::ARCH,
        instructions()
    );
    println!("commit     {}", commit.unwrap_or_else(|_| "unknown".to_owned()));
}

fn print_openssl() {
    println!();
    for cipher in ["aes-128-xts", "aes-256-xts", "aes-128-cbc", "aes-256-cbc"] {
        for decrypts in [false, true] {
            let mut command = Command::new("openssl");
            command.args(["speed", "-elapsed", "-mr", "-seconds", "1", "-bytes", "16384", "-evp", cipher]);
            if decrypts {
                command.arg("-decrypt");
            }
            let Ok(output) = command.output() else {
                println!("openssl is not installed (Debian: apt-get install openssl); not compared");
                return;
            };
            let text = String::from_utf8_lossy(&output.stdout);
            let rate =
                text.lines().find(|line| line.starts_with("+F:")).and_then(|line| line.rsplit(':').next());
            let Some(rate) = rate.and_then(|rate| rate.parse::<f64>().ok()) else {
                println!("openssl speed printed no rate for {cipher}");
                continue;
            };
            let what = if decrypts { "decrypt" } else { "encrypt" };
            println!("openssl speed {cipher} {what}: {:.0} MB/s", rate / 1e6);
        }
    }
}

fn median(samples: &[f64]) -> f64 {
    let mut sorted = samples.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted[sorted.len() / 2]
}
