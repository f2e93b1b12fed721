//! Memory the loop owns: page-aligned mappings, the stripe-cache arena, the buffers of requests.

mod arena;
mod mapping;
mod memory;
mod pages;
mod pool;
mod zeroes;

pub(crate) use arena::Arena;
pub(crate) use mapping::Mapping;
pub use memory::Memory;
pub(crate) use pages::Pages;
pub(crate) use pool::RequestPool;
pub(crate) use zeroes::{ZEROES_BYTES, Zeroes};

use stripewise_engine::units::PAGE_BYTES;

/// The page size as a length of memory.
pub(crate) const PAGE: usize = PAGE_BYTES as usize;
