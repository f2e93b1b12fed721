//! The layers above an array, as one machine: a loop runs a [`Stack`] as it runs a [`Volume`].
//!
//! A request enters at the top: the page cache, then the cipher, then the array; either layer may be absent. What a
//! layer asks of the one below carries numbers of its own; bytes that the layer below names by such a number are
//! named as the one above knows them before they leave.

use crate::cache::{Cache, CacheConfig, CacheError};
use crate::crypt::{Crypt, CryptConfig, CryptError};
use crate::io::{Action, ActionQueue, Buf, Input, Operand, OperandList, Request, RequestId, Seg, SegList};
use crate::metadata::MemberMetadata;
use crate::units::{Instant, MemberIndex};
use crate::volume::{Volume, VolumeConfig, VolumeError};

/// Why there can be no such stack.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StackError {
    /// The array is not possible.
    Volume(VolumeError),
    /// The encrypted payload is not possible.
    Crypt(CryptError),
    /// The page cache is not possible.
    Cache(CacheError),
}

impl std::fmt::Display for StackError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Volume(error) => error.fmt(f),
            Self::Crypt(error) => error.fmt(f),
            Self::Cache(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for StackError {}

/// An array with the layers above it.
#[derive(Debug)]
pub struct Stack {
    lower: Lower,
    cached: Option<Box<Cached>>,
}

/// The array with what is below the page cache.
#[derive(Debug)]
struct Lower {
    volume: Volume,
    crypted: Option<Box<Crypted>>,
}

/// The page cache, and what is asked for below before its names are translated.
#[derive(Debug)]
struct Cached {
    cache: Cache,
    inner: ActionQueue,
}

/// The encrypted payload, and what the array asks for before its names are translated.
#[derive(Debug)]
struct Crypted {
    crypt: Crypt,
    inner: ActionQueue,
}

/// Layers that are not above their array yet.
#[derive(Debug)]
pub struct NewLayers {
    crypted: Option<Box<Crypted>>,
    cached: Option<Box<Cached>>,
}

impl NewLayers {
    /// The page frames that the page cache names, in pages; none without a page cache.
    pub fn cache_frames(&self) -> Option<u32> {
        self.cached.as_ref().map(|cached| cached.cache.frames_max())
    }
}

impl Stack {
    /// Makes an array, with a page cache above it if one is given. Nothing is read or written.
    ///
    /// # Errors
    /// What is impossible about a layer's configuration.
    pub fn new(volume: &VolumeConfig, cache: Option<&CacheConfig>) -> Result<Self, StackError> {
        let mut stack = Self::of(Volume::new(volume).map_err(StackError::Volume)?);
        stack.raise(None, cache)?;
        Ok(stack)
    }

    /// An array without layers above it.
    pub const fn of(volume: Volume) -> Self {
        Self { lower: Lower { volume, crypted: None }, cached: None }
    }

    /// Puts layers above an array that has none and no request in flight. Requests are then counted from the start
    /// of the encrypted payload.
    ///
    /// # Errors
    /// What is impossible about a layer; the stack is as it was.
    ///
    /// # Panics
    /// If there are layers already.
    pub fn raise(
        &mut self,
        crypt: Option<&CryptConfig>,
        cache: Option<&CacheConfig>,
    ) -> Result<(), StackError> {
        let layers = self.layers(crypt, cache)?;
        self.put(layers);
        Ok(())
    }

    /// Makes the layers that [`Self::put`] puts above this array, so that memory for them can be had first.
    ///
    /// # Errors
    /// What is impossible about a layer.
    pub fn layers(
        &self,
        crypt: Option<&CryptConfig>,
        cache: Option<&CacheConfig>,
    ) -> Result<NewLayers, StackError> {
        let geometry = self.lower.volume.geometry();
        let crypt =
            crypt.map(|c| Crypt::new(c, geometry.array_sectors())).transpose().map_err(StackError::Crypt)?;
        let sectors = crypt.as_ref().map_or(geometry.array_sectors(), |c| c.config().sectors);
        let unit_sectors = crypt.as_ref().map_or(1, |c| c.config().unit_sectors);
        let cache = cache.map(|c| Cache::of_part(c, geometry, sectors)).transpose();
        let cache = cache.map_err(StackError::Cache)?.map(|cache| cache.above_units(unit_sectors));
        Ok(NewLayers {
            crypted: crypt.map(|crypt| Box::new(Crypted { crypt, inner: ActionQueue::default() })),
            cached: cache.map(|cache| Box::new(Cached { cache, inner: ActionQueue::default() })),
        })
    }

    /// As [`Self::raise`], with layers that were made for this array.
    ///
    /// # Panics
    /// If there are layers already.
    pub fn put(&mut self, layers: NewLayers) {
        assert!(!self.has_layers(), "layers are put above an array once");
        (self.lower.crypted, self.cached) = (layers.crypted, layers.cached);
    }

    /// Whether there are layers above the array.
    pub const fn has_layers(&self) -> bool {
        self.cached.is_some() || self.lower.crypted.is_some()
    }

    /// Takes an input; what is to be done is added to `out`.
    #[inline]
    pub fn handle(&mut self, now: Instant, input: Input, out: &mut ActionQueue) {
        match &mut self.cached {
            None => self.lower.handle(now, input, out),
            Some(cached) => cached.handle(&mut self.lower, now, input, out),
        }
    }

    /// When [`Input::Timer`] is due, if ever.
    #[inline]
    pub fn next_deadline(&self) -> Option<Instant> {
        let volume = self.lower.volume.next_deadline();
        let Some(cached) = &self.cached else { return volume };
        [cached.cache.next_deadline(), volume].into_iter().flatten().min()
    }

    /// The array.
    pub const fn volume(&self) -> &Volume {
        &self.lower.volume
    }

    /// Names the superblock of a member that the next command adds.
    pub fn introduce(&mut self, member: MemberIndex, metadata: MemberMetadata) {
        self.lower.volume.introduce(member, metadata);
    }

    /// Sectors that requests may ask for.
    pub fn sectors(&self) -> u64 {
        self.crypt().map_or_else(|| self.volume().geometry().array_sectors(), |c| c.config().sectors)
    }

    /// The encrypted payload.
    pub fn crypt(&self) -> Option<&Crypt> {
        self.lower.crypted.as_ref().map(|c| &c.crypt)
    }

    /// The page cache.
    pub fn cache(&self) -> Option<&Cache> {
        self.cached.as_ref().map(|c| &c.cache)
    }

    /// The page cache, to tell it of an opened file.
    pub fn cache_mut(&mut self) -> Option<&mut Cache> {
        self.cached.as_mut().map(|c| &mut c.cache)
    }

    /// Whether no request is in flight. Pages of a cache may still be dirty: a flush writes them back.
    pub fn is_idle(&self) -> bool {
        self.volume().is_idle()
            && self.crypt().is_none_or(Crypt::is_idle)
            && self.cache().is_none_or(Cache::is_idle)
    }

    /// Panics if a layer contradicts itself. Costs time in proportion to what they hold.
    pub fn check_invariants(&self) {
        self.volume().check_invariants();
        if let Some(crypt) = self.crypt() {
            crypt.check_invariants();
        }
        if let Some(cache) = self.cache() {
            cache.check_invariants();
        }
    }
}

impl Lower {
    #[inline]
    fn handle(&mut self, now: Instant, input: Input, out: &mut ActionQueue) {
        match &mut self.crypted {
            None => self.volume.handle(now, input, out),
            Some(crypted) => crypted.handle(&mut self.volume, now, input, out),
        }
    }
}

impl Cached {
    fn handle(&mut self, lower: &mut Lower, now: Instant, input: Input, out: &mut ActionQueue) {
        match input {
            Input::Request(request) => {
                if !self.cache.request(now, request, out) {
                    return;
                }
            }
            Input::Computed { tag, .. } if Cache::owns(tag) => {
                if !self.cache.computed(tag, out) {
                    return;
                }
            }
            Input::Timer => {
                self.cache.timer(now);
                if lower.volume.next_deadline().is_some_and(|deadline| deadline <= now) {
                    self.below(lower, now, input, out);
                }
            }
            _ => self.below(lower, now, input, out),
        }
        loop {
            self.cache.settle(now, out);
            let Some(request) = self.cache.next_below() else { return };
            self.ask(lower, now, request, out);
        }
    }

    /// Hands all that the cache asks for to the layer below.
    fn ask(&mut self, lower: &mut Lower, now: Instant, first: Request, out: &mut ActionQueue) {
        let mut next = Some(first);
        while let Some(request) = next {
            self.below(lower, now, Input::Request(request), out);
            next = self.cache.next_below();
        }
    }

    /// Lets the layer below handle an input. What it asks for goes out under the loop's names; what it completes
    /// goes back to the cache.
    fn below(&mut self, lower: &mut Lower, now: Instant, input: Input, out: &mut ActionQueue) {
        lower.handle(now, input, &mut self.inner);
        let Self { cache, inner } = self;
        let metadata = take_metadata(inner, out);
        for action in &inner.actions {
            let names = Names::new(inner, metadata, |id, at, bytes, segs| cache.name(id, at, bytes, segs));
            match names.pass_on(action, out) {
                Some(Action::Complete { id, result }) => cache.below_ended(id, result, out),
                Some(other) => out.push(other),
                None => {}
            }
        }
        inner.clear();
    }
}

impl Crypted {
    fn handle(&mut self, volume: &mut Volume, now: Instant, input: Input, out: &mut ActionQueue) {
        match input {
            Input::Request(request) => self.crypt.request(request, out),
            Input::Computed { tag, .. } if Crypt::owns(tag) => self.crypt.computed(tag, out),
            _ => self.below(volume, now, input, out),
        }
        while let Some(request) = self.crypt.next_below() {
            self.below(volume, now, Input::Request(request), out);
        }
    }

    /// As [`Cached::below`], above the array.
    fn below(&mut self, volume: &mut Volume, now: Instant, input: Input, out: &mut ActionQueue) {
        volume.handle(now, input, &mut self.inner);
        let Self { crypt, inner } = self;
        let metadata = take_metadata(inner, out);
        for action in &inner.actions {
            let names = Names::new(inner, metadata, |id, at, bytes, segs| crypt.name(id, at, bytes, segs));
            match names.pass_on(action, out) {
                Some(Action::Complete { id, result }) => crypt.below_ended(id, result, out),
                Some(other) => out.push(other),
                None => {}
            }
        }
        inner.clear();
    }
}

/// Moves the metadata's bytes to the queue above; answers where they begin there.
fn take_metadata(inner: &ActionQueue, out: &mut ActionQueue) -> u32 {
    let start = out.metadata.len() as u32;
    out.metadata.extend_from_slice(&inner.metadata);
    start
}

/// How the names in a lower layer's actions are translated.
struct Names<'a, F> {
    inner: &'a ActionQueue,
    /// Where its metadata begin above.
    metadata: u32,
    /// Names a part of a request's bytes.
    of: F,
}

impl<'a, F: Fn(RequestId, u64, u32, &mut Vec<Seg>)> Names<'a, F> {
    const fn new(inner: &'a ActionQueue, metadata: u32, of: F) -> Self {
        Self { inner, metadata, of }
    }

    /// Adds an action that names bytes to the queue above; gives others back.
    fn pass_on(&self, action: &Action, out: &mut ActionQueue) -> Option<Action> {
        match *action {
            Action::Io(mut io) => {
                io.segs = self.segs(io.segs, out);
                out.push(Action::Io(io));
                None
            }
            Action::Compute(mut compute) => {
                compute.sources = self.operands(compute.sources, out);
                compute.targets = self.operands(compute.targets, out);
                out.push(Action::Compute(compute));
                None
            }
            other => Some(other),
        }
    }

    fn segs(&self, list: SegList, out: &mut ActionQueue) -> SegList {
        let first = out.segs.len() as u32;
        for seg in self.inner.segs(list) {
            match *seg {
                Seg { buf: Buf::Request { id, offset }, bytes } => {
                    (self.of)(id, offset, bytes, &mut out.segs);
                }
                Seg { buf: Buf::Metadata { offset }, bytes } => {
                    out.segs.push(Seg { buf: Buf::Metadata { offset: self.metadata + offset }, bytes });
                }
                other => out.segs.push(other),
            }
        }
        SegList { first, count: out.segs.len() as u32 - first }
    }

    fn operands(&self, list: OperandList, out: &mut ActionQueue) -> OperandList {
        let first = out.operands.len() as u32;
        for operand in self.inner.operands(list) {
            let segs = self.segs(operand.segs, out);
            out.operands.push(Operand { segs, ..*operand });
        }
        OperandList { first, count: list.count }
    }
}
