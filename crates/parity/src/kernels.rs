//! The kernels as callers see them.

use std::fmt;
use std::sync::OnceLock;

use crate::race::{self, Heat};
use crate::scalar::SCALAR;
use crate::simd::set::Set;
use crate::{Change, Copied};

/// A set of kernels for xor and one for P+Q, which may be of different instruction sets.
///
/// Copies are cheap, and every method may be called from any thread.
#[derive(Clone)]
pub struct Kernels {
    pub(crate) xor_set: &'static Set,
    pub(crate) pq_set: &'static Set,
    race: Vec<Heat>,
}

/// Returns the kernels that won the race on this CPU.
///
/// The first call runs the race, which takes a few milliseconds; call it once at start.
pub fn kernels() -> &'static Kernels {
    static CHOSEN: OnceLock<Kernels> = OnceLock::new();
    CHOSEN.get_or_init(|| {
        let result = race::run(&Kernels::sets());
        Kernels { xor_set: result.xor_set, pq_set: result.pq_set, race: result.heats }
    })
}

impl Kernels {
    /// Returns every set of kernels this CPU runs, the scalar one first.
    pub fn all() -> Vec<Self> {
        Self::sets().into_iter().map(Self::of).collect()
    }

    /// Returns the reference kernels, which run on any CPU.
    pub fn scalar() -> Self {
        Self::of(&SCALAR)
    }

    fn of(set: &'static Set) -> Self {
        Self { xor_set: set, pq_set: set, race: Vec::new() }
    }

    pub(crate) fn sets() -> Vec<&'static Set> {
        let mut sets = vec![&SCALAR];
        sets.extend(crate::simd::runnable());
        sets
    }

    /// Names the instruction set of the xor kernels, such as `avx2`.
    pub fn xor_name(&self) -> &'static str {
        self.xor_set.name
    }

    /// Names the instruction set of the P+Q kernels.
    pub fn pq_name(&self) -> &'static str {
        self.pq_set.name
    }

    /// Names the kernels in one word: `avx2`, or `avx2+ssse3` if xor and P+Q differ.
    pub fn name(&self) -> String {
        if self.xor_name() == self.pq_name() {
            self.xor_name().to_owned()
        } else {
            format!("{}+{}", self.xor_name(), self.pq_name())
        }
    }

    /// Returns what the race measured; empty for kernels that were not chosen by it.
    pub fn race_results(&self) -> &[Heat] {
        &self.race
    }

    /// Sets `target` to the xor of `sources`, of which there is at least one.
    pub fn xor(&self, target: &mut [u8], sources: &[&[u8]]) {
        self.xor_set.xor(target, sources);
    }

    /// Adds the xor of `sources` to `target`.
    pub fn xor_into(&self, target: &mut [u8], sources: &[&[u8]]) {
        if !sources.is_empty() {
            self.xor_set.xor_into(target, sources);
        }
    }

    /// As [`xor`](Self::xor), writing `target` past the caches: for a target that is not read soon.
    ///
    /// Wins when the blocks come from memory rather than from a cache, the more the fewer the sources
    /// (on Zen 3 by a fifth with 4, by a few percent with 22); on blocks in L2 it loses a third to a tenth.
    pub fn xor_streaming(&self, target: &mut [u8], sources: &[&[u8]]) {
        self.xor_set.xor_streaming(target, sources);
    }

    /// Copies `source`, a long block that comes from memory, to `target`: with AVX-512 faster than a `memcpy`, without it one.
    pub fn copy(&self, target: &mut [u8], source: &[u8]) {
        self.xor_set.copy(target, source);
    }

    /// As [`copy`](Self::copy), past the caches: for a target that is not read soon.
    ///
    /// Between blocks in memory 1.3 to 1.4 times as fast as a `memcpy` on Zen 3; in a cache, slower.
    pub fn copy_streaming(&self, target: &mut [u8], source: &[u8]) {
        // SAFETY: the fence follows.
        unsafe { self.copy_streaming_unfenced(target, source) };
        self.fence();
    }

    /// As [`copy_streaming`](Self::copy_streaming), for several copies in a row: what is written may be on its way still.
    ///
    /// # Safety
    /// This thread calls [`fence`](Self::fence) before it lets another look at `target`.
    pub unsafe fn copy_streaming_unfenced(&self, target: &mut [u8], source: &[u8]) {
        // SAFETY: upheld by the caller.
        unsafe { self.xor_set.copy_streaming(target, source) };
    }

    /// Has all that this thread wrote past the caches be there for others before what it writes next.
    pub fn fence(&self) {
        self.xor_set.fence();
    }

    /// Computes P and Q of `data`; block `i` has the coefficient `2^i`, `None` counts as zeroes.
    pub fn pq(&self, p: &mut [u8], q: &mut [u8], data: &[Option<&[u8]>]) {
        self.pq_set.pq(p, q, data);
    }

    /// As [`pq`](Self::pq), writing past the caches: for P and Q that are not read soon.
    ///
    /// Wins when the data come from memory (on Zen 3 a third with 4 blocks, a quarter with 8, a twentieth with 22); on
    /// blocks in L2 it loses a third with 4, little with 22.
    pub fn pq_streaming(&self, p: &mut [u8], q: &mut [u8], data: &[Option<&[u8]>]) {
        self.pq_set.pq_streaming(p, q, data);
    }

    /// Copies the blocks of `data`, of which there is one or more, where that is wanted, and makes P, and Q if given: as
    /// [`xor`](Self::xor) or [`pq`](Self::pq) and [`copy_streaming`](Self::copy_streaming) of every block, reading
    /// each once. Block `i` has the coefficient `2^i`. Past the caches if all that is written is aligned to 64 bytes.
    ///
    /// A stripe of 4+1 in memory is written 1.5 times as fast as in two passes (Zen 3).
    pub fn generate_copying(&self, data: &mut [Copied<'_>], p: &mut [u8], q: Option<&mut [u8]>) {
        let set = if q.is_some() { self.pq_set } else { self.xor_set };
        set.copying(data, p, q);
    }

    /// Brings P and Q, where given, from the old to the new contents of `changes` (read-modify-write).
    pub fn pq_update(&self, p: Option<&mut [u8]>, q: Option<&mut [u8]>, changes: &[Change<'_>]) {
        match (p, q) {
            (p, Some(q)) => self.pq_set.update(p, q, changes),
            (Some(p), None) => {
                for change in changes {
                    self.xor_set.xor_into(p, &[change.old, change.new]);
                }
            }
            (None, None) => {}
        }
    }
}

impl fmt::Display for Kernels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "xor {}, P+Q {}", self.xor_name(), self.pq_name())
    }
}

impl fmt::Debug for Kernels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Kernels({self})")
    }
}
