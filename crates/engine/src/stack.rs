//! The layers above an array, as one machine: a loop runs a [`Stack`] as it runs a [`Volume`].
//!
//! A request enters at the top. What a layer asks of the one below carries numbers of its own; bytes that the
//! array names by such a number are named as the loop knows them before they leave.

use crate::cache::{Cache, CacheConfig, CacheError};
use crate::io::{Action, ActionQueue, Buf, Input, Operand, OperandList, Request, Seg, SegList};
use crate::units::Instant;
use crate::volume::{Volume, VolumeConfig, VolumeError};

/// Why there can be no such stack.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StackError {
    /// The array is not possible.
    Volume(VolumeError),
    /// The page cache is not possible.
    Cache(CacheError),
}

impl std::fmt::Display for StackError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Volume(error) => error.fmt(f),
            Self::Cache(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for StackError {}

/// An array with the layers above it.
#[derive(Debug)]
pub struct Stack {
    volume: Volume,
    cached: Option<Box<Cached>>,
}

/// The page cache, and what the array below asks for before its names are translated.
#[derive(Debug)]
struct Cached {
    cache: Cache,
    inner: ActionQueue,
}

impl Stack {
    /// Makes an array, with a page cache above it if one is given. Nothing is read or written.
    ///
    /// # Errors
    /// What is impossible about a layer's configuration.
    pub fn new(volume: &VolumeConfig, cache: Option<&CacheConfig>) -> Result<Self, StackError> {
        let volume = Volume::new(volume).map_err(StackError::Volume)?;
        Self::over(volume, cache).map_err(StackError::Cache)
    }

    /// Puts layers above an array.
    ///
    /// # Errors
    /// What is impossible about the cache.
    pub fn over(volume: Volume, cache: Option<&CacheConfig>) -> Result<Self, CacheError> {
        let cached = match cache {
            Some(config) => {
                let cache = Cache::new(config, volume.geometry())?;
                Some(Box::new(Cached { cache, inner: ActionQueue::default() }))
            }
            None => None,
        };
        Ok(Self { volume, cached })
    }

    /// Takes an input; what is to be done is added to `out`.
    #[inline]
    pub fn handle(&mut self, now: Instant, input: Input, out: &mut ActionQueue) {
        match &mut self.cached {
            None => self.volume.handle(now, input, out),
            Some(cached) => cached.handle(&mut self.volume, now, input, out),
        }
    }

    /// When [`Input::Timer`] is due, if ever.
    pub fn next_deadline(&self) -> Option<Instant> {
        let cache = self.cached.as_ref().and_then(|c| c.cache.next_deadline());
        [cache, self.volume.next_deadline()].into_iter().flatten().min()
    }

    /// The array.
    pub const fn volume(&self) -> &Volume {
        &self.volume
    }

    /// The page cache.
    pub fn cache(&self) -> Option<&Cache> {
        self.cached.as_ref().map(|c| &c.cache)
    }

    /// Whether no request is in flight. Pages of a cache may still be dirty: a flush writes them back.
    pub fn is_idle(&self) -> bool {
        self.volume.is_idle() && self.cache().is_none_or(Cache::is_idle)
    }

    /// Panics if a layer contradicts itself. Costs time in proportion to what they hold.
    pub fn check_invariants(&self) {
        self.volume.check_invariants();
        if let Some(cache) = self.cache() {
            cache.check_invariants();
        }
    }
}

impl Cached {
    fn handle(&mut self, volume: &mut Volume, now: Instant, input: Input, out: &mut ActionQueue) {
        match input {
            Input::Request(request) => self.cache.request(now, request, out),
            Input::Computed { tag, .. } if Cache::owns(tag) => self.cache.computed(tag, out),
            Input::Timer => {
                self.cache.timer(now);
                if volume.next_deadline().is_some_and(|deadline| deadline <= now) {
                    self.below(volume, now, input, out);
                }
            }
            _ => self.below(volume, now, input, out),
        }
        loop {
            self.cache.settle(now, out);
            let Some(request) = self.cache.next_below() else { return };
            self.ask(volume, now, request, out);
        }
    }

    /// Hands all that the cache asks for to the array.
    fn ask(&mut self, volume: &mut Volume, now: Instant, first: Request, out: &mut ActionQueue) {
        let mut next = Some(first);
        while let Some(request) = next {
            self.below(volume, now, Input::Request(request), out);
            next = self.cache.next_below();
        }
    }

    /// Lets the array handle an input. What it asks for goes out under the loop's names; what it completes
    /// goes back to the cache.
    fn below(&mut self, volume: &mut Volume, now: Instant, input: Input, out: &mut ActionQueue) {
        volume.handle(now, input, &mut self.inner);
        let metadata = out.metadata.len() as u32;
        out.metadata.extend_from_slice(&self.inner.metadata);
        for index in 0..self.inner.actions.len() {
            match self.inner.actions[index] {
                Action::Io(mut io) => {
                    io.segs = self.name(io.segs, metadata, out);
                    out.push(Action::Io(io));
                }
                Action::Compute(mut compute) => {
                    compute.sources = self.name_operands(compute.sources, metadata, out);
                    compute.targets = self.name_operands(compute.targets, metadata, out);
                    out.push(Action::Compute(compute));
                }
                Action::Complete { id, result } => self.cache.below_ended(id, result, out),
                other => out.push(other),
            }
        }
        self.inner.clear();
    }

    /// Names segments as the loop knows them; the array's metadata begin at `metadata`.
    fn name(&self, list: SegList, metadata: u32, out: &mut ActionQueue) -> SegList {
        let first = out.segs.len() as u32;
        for seg in self.inner.segs(list) {
            match *seg {
                Seg { buf: Buf::Request { id, offset }, bytes } => {
                    self.cache.name(id, offset, bytes, &mut out.segs);
                }
                Seg { buf: Buf::Metadata { offset }, bytes } => {
                    out.segs.push(Seg { buf: Buf::Metadata { offset: metadata + offset }, bytes });
                }
                other => out.segs.push(other),
            }
        }
        SegList { first, count: out.segs.len() as u32 - first }
    }

    fn name_operands(&self, list: OperandList, metadata: u32, out: &mut ActionQueue) -> OperandList {
        let first = out.operands.len() as u32;
        for operand in self.inner.operands(list) {
            let segs = self.name(operand.segs, metadata, out);
            out.operands.push(Operand { segs, ..*operand });
        }
        OperandList { first, count: list.count }
    }
}
