//! The table of one instruction set's kernels, and the checks that make calling them safe.

use crate::{Change, Copied, INDEX_MAX};

/// The data blocks of a stripe by index; `None` counts as zeroes.
pub(crate) type Data<'a> = &'a [Option<&'a [u8]>];

/// Lost data blocks `x` and `y` from P and Q: `x = a·(p + P) + b·(q + Q)`, `y = x + p + P`, where `p` and
/// `q` are the sums of the data at hand. An absent `x` or `y` is not wanted.
pub(crate) struct SolveBoth<'a> {
    pub(crate) p: &'a [u8],
    pub(crate) q: &'a [u8],
    pub(crate) a: u8,
    pub(crate) b: u8,
    pub(crate) x: Option<&'a mut [u8]>,
    pub(crate) y: Option<&'a mut [u8]>,
    /// Past the caches.
    pub(crate) streaming: bool,
}

/// A lost data block `x = b·(q + Q)` from Q, and the lost P with it: `new_p = x + p`. What is absent is not
/// wanted.
pub(crate) struct SolveQ<'a> {
    pub(crate) q: &'a [u8],
    pub(crate) b: u8,
    pub(crate) x: Option<&'a mut [u8]>,
    pub(crate) new_p: Option<&'a mut [u8]>,
    /// Past the caches.
    pub(crate) streaming: bool,
}

/// A lost data block `x = p + P` from P, and the lost Q with it: `new_q = q + factor·x`.
pub(crate) struct SolveP<'a> {
    pub(crate) p: &'a [u8],
    pub(crate) factor: u8,
    pub(crate) x: Option<&'a mut [u8]>,
    pub(crate) new_q: &'a mut [u8],
    /// Past the caches.
    pub(crate) streaming: bool,
}

/// Whether P, and whether Q where given, differs from what the data make it.
pub(crate) type Differs = unsafe fn(Data<'_>, &[u8], Option<&[u8]>) -> (bool, bool);

/// One kernel for each operation.
///
/// Contract of every field: the CPU supports the instruction set, every block is as long as every
/// other, and the xors have a source. The CPU is vouched for by how a set is come by: through
/// [`runnable`](super::runnable), or it is the scalar one. The methods check the lengths.
pub(crate) struct Set {
    pub(crate) name: &'static str,
    pub(crate) xor: unsafe fn(&mut [u8], &[&[u8]]),
    pub(crate) xor_into: unsafe fn(&mut [u8], &[&[u8]]),
    pub(crate) xor_streaming: unsafe fn(&mut [u8], &[&[u8]]),
    pub(crate) copy: unsafe fn(&mut [u8], &[u8]),
    /// Before another thread looks at the target comes `fence`.
    pub(crate) copy_streaming: unsafe fn(&mut [u8], &[u8]),
    pub(crate) fence: unsafe fn(),
    pub(crate) pq: unsafe fn(&mut [u8], &mut [u8], Data<'_>),
    pub(crate) pq_streaming: unsafe fn(&mut [u8], &mut [u8], Data<'_>),
    pub(crate) q: unsafe fn(&mut [u8], Data<'_>),
    pub(crate) q_streaming: unsafe fn(&mut [u8], Data<'_>),
    pub(crate) solve_both: unsafe fn(Data<'_>, SolveBoth<'_>),
    pub(crate) solve_q: unsafe fn(Data<'_>, SolveQ<'_>),
    pub(crate) solve_p: unsafe fn(Data<'_>, SolveP<'_>),
    pub(crate) differs: Differs,
    pub(crate) update: unsafe fn(Option<&mut [u8]>, &mut [u8], &[Change<'_>]),
    pub(crate) copying: unsafe fn(&mut [Copied<'_>], &mut [u8], Option<&mut [u8]>),
}

/// Asserts that the blocks of `data` are `len` bytes long and have indexes Q can weigh.
fn assert_data(data: Data<'_>, len: usize) {
    assert_data_lens(data, len);
    let highest = data.iter().rposition(Option::is_some).unwrap_or(0);
    assert!(highest <= usize::from(INDEX_MAX), "data index {highest} is above {INDEX_MAX}");
}

/// Asserts that the blocks of `data` are `len` bytes long.
fn assert_data_lens(data: Data<'_>, len: usize) {
    for (index, block) in data.iter().enumerate() {
        let fits = block.is_none_or(|block| block.len() == len);
        assert!(fits, "data block {index} differs in length");
    }
}

fn assert_sources(sources: &[&[u8]], len: usize) {
    assert!(!sources.is_empty(), "xor needs a source");
    assert!(sources.iter().all(|source| source.len() == len), "sources differ in length");
}

fn assert_len(block: Option<&[u8]>, len: usize) {
    assert!(block.is_none_or(|block| block.len() == len), "a parity or target block differs in length");
}

// SAFETY of every block below: the contract of the fields; lengths are asserted before each call.
#[expect(clippy::undocumented_unsafe_blocks, reason = "one justification holds for all, see above")]
impl Set {
    pub(crate) fn xor(&self, target: &mut [u8], sources: &[&[u8]]) {
        assert_sources(sources, target.len());
        unsafe { (self.xor)(target, sources) }
    }

    pub(crate) fn xor_into(&self, target: &mut [u8], sources: &[&[u8]]) {
        assert_sources(sources, target.len());
        unsafe { (self.xor_into)(target, sources) }
    }

    pub(crate) fn xor_streaming(&self, target: &mut [u8], sources: &[&[u8]]) {
        assert_sources(sources, target.len());
        unsafe { (self.xor_streaming)(target, sources) }
    }

    pub(crate) fn copy(&self, target: &mut [u8], source: &[u8]) {
        assert_sources(&[source], target.len());
        unsafe { (self.copy)(target, source) }
    }

    /// # Safety
    /// [`fence`](Self::fence) comes before another thread looks at `target`.
    pub(crate) unsafe fn copy_streaming(&self, target: &mut [u8], source: &[u8]) {
        assert_sources(&[source], target.len());
        unsafe { (self.copy_streaming)(target, source) }
    }

    pub(crate) fn fence(&self) {
        unsafe { (self.fence)() }
    }

    pub(crate) fn pq(&self, p: &mut [u8], q: &mut [u8], data: Data<'_>) {
        assert_len(Some(p), q.len());
        assert_data(data, q.len());
        unsafe { (self.pq)(p, q, data) }
    }

    pub(crate) fn pq_streaming(&self, p: &mut [u8], q: &mut [u8], data: Data<'_>) {
        assert_len(Some(p), q.len());
        assert_data(data, q.len());
        unsafe { (self.pq_streaming)(p, q, data) }
    }

    pub(crate) fn q(&self, q: &mut [u8], data: Data<'_>) {
        assert_data(data, q.len());
        unsafe { (self.q)(q, data) }
    }

    pub(crate) fn q_streaming(&self, q: &mut [u8], data: Data<'_>) {
        assert_data(data, q.len());
        unsafe { (self.q_streaming)(q, data) }
    }

    pub(crate) fn solve_both(&self, data: Data<'_>, solve: SolveBoth<'_>) {
        let len = solve.q.len();
        assert_len(Some(solve.p), len);
        assert_len(solve.x.as_deref(), len);
        assert_len(solve.y.as_deref(), len);
        assert_data(data, len);
        unsafe { (self.solve_both)(data, solve) }
    }

    pub(crate) fn solve_q(&self, data: Data<'_>, solve: SolveQ<'_>) {
        let len = solve.q.len();
        assert_len(solve.x.as_deref(), len);
        assert_len(solve.new_p.as_deref(), len);
        assert_data(data, len);
        unsafe { (self.solve_q)(data, solve) }
    }

    pub(crate) fn solve_p(&self, data: Data<'_>, solve: SolveP<'_>) {
        let len = solve.p.len();
        assert_len(solve.x.as_deref(), len);
        assert_len(Some(solve.new_q), len);
        assert_data(data, len);
        unsafe { (self.solve_p)(data, solve) }
    }

    pub(crate) fn differs(&self, data: Data<'_>, p: &[u8], q: Option<&[u8]>) -> (bool, bool) {
        assert_len(q, p.len());
        if q.is_some() {
            assert_data(data, p.len());
        } else {
            assert_data_lens(data, p.len());
        }
        unsafe { (self.differs)(data, p, q) }
    }

    pub(crate) fn update(&self, p: Option<&mut [u8]>, q: &mut [u8], changes: &[Change<'_>]) {
        let len = q.len();
        assert_len(p.as_deref(), len);
        for change in changes {
            assert!(change.index <= INDEX_MAX, "data index {} is above {INDEX_MAX}", change.index);
            assert_len(Some(change.old), len);
            assert_len(Some(change.new), len);
        }
        unsafe { (self.update)(p, q, changes) }
    }

    pub(crate) fn copying(&self, data: &mut [Copied<'_>], p: &mut [u8], q: Option<&mut [u8]>) {
        let len = p.len();
        assert!(!data.is_empty(), "parity is made of a block or more");
        let fits = |made: &Option<&mut [u8]>| made.as_ref().is_none_or(|made| made.len() == len);
        let data_fit = data.iter().all(|one| one.block.len() == len && fits(&one.copy));
        assert!(data_fit && fits(&q), "blocks and copies differ in length");
        let is_weighable = q.is_none() || data.len() <= usize::from(INDEX_MAX) + 1;
        assert!(is_weighable, "{} data blocks are more than Q can weigh", data.len());
        unsafe { (self.copying)(data, p, q) }
    }
}
