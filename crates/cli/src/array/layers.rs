//! What `stripewise serve` puts above an array: a page cache, and the cipher of a LUKS container on it.

use std::cell::RefCell;
use std::io;
use std::sync::Arc;

use anyhow::{Context, Result};
use clap::{Args, ValueEnum};
use stripewise_crypt::container::{OpenError, read_header, unlock};
use stripewise_crypt::kdf::Limits;
use stripewise_crypt::key::Secret;
use stripewise_crypt::store::Store;
use stripewise_engine::cache::{CacheConfig, CachePolicy, DirtyLimit, WriteMode};
use stripewise_engine::units::{Nanos, SECTOR_BYTES};
use stripewise_host::{Array, CryptLayer, Layers};

use super::Size;
use super::select::impossible;
use crate::luks::passphrase::KeyArgs;

/// When a write to a cached array is answered.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum CacheMode {
    /// Once it is in the cache; a flush or FUA makes it durable.
    Writeback,
    /// Once it is on the array.
    Writethrough,
}

/// Options of the page cache have the names of Linux's, and mean the same.
#[derive(Debug, Args)]
#[command(next_help_heading = "Page cache")]
pub(crate) struct CacheArgs {
    /// Put a page cache of this size in front of the array: it caches reads, reads ahead and gathers writes [default:
    /// none].
    #[arg(long, value_name = "SIZE")]
    cache: Option<Size>,
    /// When to acknowledge a write.
    #[arg(long, value_enum, default_value = "writeback", requires = "cache")]
    cache_mode: CacheMode,
    /// Readahead in sectors of 512 bytes (blockdev --setra) [default: md's, two stripes of data, at least 256].
    #[arg(long, value_name = "SECTORS", requires = "cache")]
    readahead: Option<u64>,
    /// Dirty memory at which writers wait, in percent of the cache (`vm.dirty_ratio`) [default: 20].
    #[arg(long, value_name = "PERCENT", requires = "cache")]
    dirty_ratio: Option<u8>,
    /// The limit of --dirty-ratio as a size (`vm.dirty_bytes`).
    #[arg(long, value_name = "SIZE", requires = "cache", conflicts_with = "dirty_ratio")]
    dirty_bytes: Option<Size>,
    /// Dirty memory above which write-back runs, in percent of the cache (`vm.dirty_background_ratio`) [default: 10].
    #[arg(long, value_name = "PERCENT", requires = "cache")]
    dirty_background_ratio: Option<u8>,
    /// The limit of --dirty-background-ratio as a size (`vm.dirty_background_bytes`).
    #[arg(long, value_name = "SIZE", requires = "cache", conflicts_with = "dirty_background_ratio")]
    dirty_background_bytes: Option<Size>,
    /// Age at which dirty memory is written back, in hundredths of a second (`vm.dirty_expire_centisecs`)
    /// [default: 3000].
    #[arg(long, value_name = "N", requires = "cache", value_parser = centiseconds)]
    dirty_expire_centisecs: Option<Nanos>,
    /// Interval between checks of the age, in hundredths of a second (`vm.dirty_writeback_centisecs`) [default: 500].
    #[arg(long, value_name = "N", requires = "cache", value_parser = centiseconds)]
    dirty_writeback_centisecs: Option<Nanos>,
}

/// Hundredths of a second, up to a day.
fn centiseconds(text: &str) -> Result<Nanos, String> {
    match text.parse() {
        Ok(count @ 1..=8_640_000) => Ok(Nanos::from_millis(count * 10)),
        _ => Err("must be 1 to 8640000 (hundredths of a second)".to_owned()),
    }
}

impl CacheArgs {
    /// The page cache that is asked for.
    pub(crate) fn config(&self) -> Result<Option<CacheConfig>> {
        let Some(Size(memory)) = self.cache else { return Ok(None) };
        let limit = |percent: Option<u8>, size: Option<Size>| {
            percent.map(DirtyLimit::Ratio).or(size.map(|Size(bytes)| DirtyLimit::Bytes(bytes)))
        };
        let mut policy = CachePolicy::stripewise();
        policy.dirty_expire = self.dirty_expire_centisecs.unwrap_or(policy.dirty_expire);
        policy.dirty_writeback = self.dirty_writeback_centisecs.unwrap_or(policy.dirty_writeback);
        let config = CacheConfig {
            readahead_sectors: self.readahead,
            dirty: limit(self.dirty_ratio, self.dirty_bytes),
            dirty_background: limit(self.dirty_background_ratio, self.dirty_background_bytes),
            mode: match self.cache_mode {
                CacheMode::Writeback => WriteMode::Back,
                CacheMode::Writethrough => WriteMode::Through,
            },
            ..CacheConfig::new(policy, memory)
        };
        config.check().map_err(|error| impossible(format!("--cache: {error}")))?;
        Ok(Some(config))
    }
}

/// The key is asked for on the terminal, or is the first line of standard input, unless a key file is given.
#[derive(Debug, Args)]
#[command(next_help_heading = "Encryption")]
pub(crate) struct LuksArgs {
    /// Serve the decrypted payload of the LUKS container on the array; --luks-key-file implies it.
    #[arg(long)]
    luks: bool,
    /// Try only this keyslot, whatever its priority.
    #[arg(long, value_name = "N")]
    luks_key_slot: Option<u32>,
    /// Maximum memory in KiB that Argon2 may take for a keyslot.
    #[arg(long, value_name = "KIB", default_value_t = Limits::default().argon2_memory_kib)]
    luks_pbkdf_memory_max: u32,
    #[command(flatten)]
    key: KeyArgs,
}

impl LuksArgs {
    /// Whether a container is to be decrypted.
    pub(crate) fn decrypts(&self) -> bool {
        self.luks || self.key.is_given()
    }

    /// Reads the key, before the array is touched.
    pub(crate) fn passphrase(&self) -> Result<Option<Secret>> {
        if !self.decrypts() {
            return match self.luks_key_slot {
                Some(_) => Err(impossible("--luks-key-slot: needs --luks or --luks-key-file")),
                None => Ok(None),
            };
        }
        self.key.read(false).map(Some)
    }

    /// Opens the container on an array.
    fn unlock(&self, array: &mut Array, passphrase: &Secret) -> Result<CryptLayer> {
        const WHAT: &str = "the LUKS container on the array";
        let explain = |error: OpenError| match error {
            OpenError::Io(error) => anyhow::Error::from(error).context(WHAT),
            error => impossible(format!("{WHAT}: {error}")),
        };
        let store = OnArray(RefCell::new(array));
        let header = read_header(&store).map_err(explain)?;
        let limits = Limits { argon2_memory_kib: self.luks_pbkdf_memory_max, ..Limits::default() };
        let unlocked =
            unlock(&store, &header, passphrase.bytes(), self.luks_key_slot, limits).map_err(explain)?;
        let payload = unlocked.payload;
        Ok(CryptLayer {
            start_sector: payload.offset_bytes / SECTOR_BYTES,
            sectors: payload.len_bytes / SECTOR_BYTES,
            cipher: Arc::new(payload.cipher),
        })
    }
}

/// Puts the layers above an array that nothing uses yet.
pub(crate) fn raise(
    array: &mut Array,
    cache: Option<CacheConfig>,
    luks: &LuksArgs,
    passphrase: Option<&Secret>,
) -> Result<()> {
    let crypt = passphrase.map(|passphrase| luks.unlock(array, passphrase)).transpose()?;
    array.raise(&Layers { crypt, cache }).context("the array cannot be served with these options")
}

/// An array as what a container lies on.
struct OnArray<'a>(RefCell<&'a mut Array>);

impl OnArray<'_> {
    /// The whole sectors that a run of bytes is in: the first, their number of bytes, and where the run begins there.
    fn sectors(offset_bytes: u64, length: usize) -> (u64, usize, usize) {
        let skip = (offset_bytes % SECTOR_BYTES) as usize;
        let bytes = (skip + length).next_multiple_of(SECTOR_BYTES as usize);
        (offset_bytes / SECTOR_BYTES, bytes, skip)
    }
}

impl Store for OnArray<'_> {
    fn len_bytes(&self) -> io::Result<u64> {
        Ok(self.0.borrow().sectors() * SECTOR_BYTES)
    }

    fn read_at(&self, offset_bytes: u64, target: &mut [u8]) -> io::Result<()> {
        let (first, bytes, skip) = Self::sectors(offset_bytes, target.len());
        let mut whole = Secret::zeroed(bytes);
        self.0.borrow_mut().read_at(first, whole.bytes_mut()).map_err(io::Error::other)?;
        target.copy_from_slice(&whole.bytes()[skip..skip + target.len()]);
        Ok(())
    }

    fn write_at(&self, offset_bytes: u64, source: &[u8]) -> io::Result<()> {
        let (first, bytes, skip) = Self::sectors(offset_bytes, source.len());
        let mut whole = Secret::zeroed(bytes);
        let mut array = self.0.borrow_mut();
        array.read_at(first, whole.bytes_mut()).map_err(io::Error::other)?;
        whole.bytes_mut()[skip..skip + source.len()].copy_from_slice(source);
        array.write_at(first, whole.bytes()).map_err(io::Error::other)
    }

    fn flush(&self) -> io::Result<()> {
        self.0.borrow_mut().flush().map_err(io::Error::other)
    }
}
