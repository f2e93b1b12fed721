//! The layers above an array: a page cache, and the cipher of an encrypted payload.

use std::sync::Arc;

use stripewise_crypt::cipher::SectorCipher;
use stripewise_engine::cache::{CacheConfig, CacheStats};
use stripewise_engine::crypt::CryptConfig;
use stripewise_engine::stack::NewLayers;
use stripewise_engine::units::{PAGE_BYTES, SECTOR_BYTES};

use crate::array::Array;
use crate::buffers::Pages;
use crate::error::HostError;
use crate::shard::Shard;

/// What is put above an array: requests meet the page cache, then the cipher, then the array.
#[derive(Clone, Debug, Default)]
pub struct Layers {
    /// The array carries an encrypted payload.
    pub crypt: Option<CryptLayer>,
    /// The page cache.
    pub cache: Option<CacheConfig>,
}

/// An encrypted payload.
#[derive(Clone, Debug)]
pub struct CryptLayer {
    /// Its cipher, over sectors from its start.
    pub cipher: Arc<SectorCipher>,
    /// The array's sector it begins at.
    pub start_sector: u64,
    /// Its length.
    pub sectors: u64,
}

/// The layers of a shard that are not above its array yet, with their memory.
#[derive(Debug)]
pub(crate) struct RaisedLayers {
    pub(crate) engine: NewLayers,
    pub(crate) frames: Option<Pages>,
    pub(crate) crypt_pages: Option<Pages>,
    pub(crate) cipher: Option<Arc<SectorCipher>>,
}

impl CryptLayer {
    pub(crate) fn config(&self) -> CryptConfig {
        CryptConfig {
            start_sector: self.start_sector,
            sectors: self.sectors,
            unit_sectors: u64::from(self.cipher.sector_bytes()) / SECTOR_BYTES,
            buffer_bytes: CryptConfig::BUFFER_BYTES,
        }
    }
}

/// A page cache as it stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CacheStatus {
    /// What it did so far.
    pub stats: CacheStats,
    /// Bytes it may hold.
    pub bytes_max: u64,
    /// Bytes it holds.
    pub bytes: u64,
    /// Bytes that the array has not got yet.
    pub dirty_bytes: u64,
}

impl Shard {
    /// The page cache as it stands.
    pub(crate) fn cache_status(&self) -> Option<CacheStatus> {
        self.stack().cache().map(|cache| CacheStatus {
            stats: cache.stats(),
            bytes_max: u64::from(cache.frames_max()) * PAGE_BYTES,
            bytes: u64::from(cache.pages()) * PAGE_BYTES,
            dirty_bytes: cache.dirty_pages() * PAGE_BYTES,
        })
    }
}

impl Array {
    /// Puts layers above the array, once, while nothing uses it. Afterwards requests count sectors from the start of
    /// the encrypted payload, and buffered ones go through the page cache.
    ///
    /// A page cache is of one shard: readahead would fetch what another serves. So are encrypted sectors that shards' parts of the
    /// array would cut.
    ///
    /// # Errors
    /// A layer that cannot be, no memory for it, or layers above the array already. The array is as it was.
    pub fn raise(&mut self, layers: &Layers) -> Result<(), HostError> {
        if layers.cache.is_some() && self.shard_count() > 1 {
            return Err(HostError::ShardsWithCache { given: self.shard_count() as u32 });
        }
        if let Some(crypt) = layers.crypt.as_ref().map(CryptLayer::config)
            && self.shard_count() > 1
            && !crypt.start_sector.is_multiple_of(crypt.unit_sectors)
        {
            let CryptConfig { start_sector, unit_sectors, .. } = crypt;
            return Err(HostError::ShardsWithCrypt {
                given: self.shard_count() as u32,
                start_sector,
                unit_sectors,
            });
        }
        self.raise_shards(layers)
    }

    /// Sectors that requests may ask for.
    pub fn sectors(&self) -> u64 {
        self.first().stack().sectors()
    }

    /// The page cache as it stands.
    pub fn cache_status(&self) -> Option<CacheStatus> {
        self.first().cache_status()
    }

    /// Bytes of the smallest request, of which each is a multiple and begins at one: 512, or an encrypted sector's, unless a page
    /// cache takes parts of one.
    pub fn block_bytes(&self) -> u64 {
        let stack = self.first().stack();
        let unit_sectors = stack.crypt().map_or(1, |crypt| crypt.config().unit_sectors);
        if stack.cache().is_some() { SECTOR_BYTES } else { unit_sectors * SECTOR_BYTES }
    }
}
