//! Recovery of lost blocks of one stripe.
//!
//! Every combination is one pass over the surviving blocks. Source of the formulas: H. Peter Anvin,
//! "The mathematics of RAID-6".

use std::fmt;

use crate::field::{exp, inverse, mul};
use crate::simd::set::{SolveBoth, SolveP, SolveQ};
use crate::{INDEX_MAX, Kernels};

/// Which block of a stripe.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Role {
    /// The data block at this index, which is its power of 2 in Q.
    Data(u16),
    /// The xor.
    P,
    /// The weighted sum.
    Q,
}

/// What survives of a stripe.
#[derive(Clone, Copy, Debug)]
pub struct Stripe<'a> {
    /// Data blocks by index; `None` is a lost block if it is among the lost ones, else zeroes (a gap).
    pub data: &'a [Option<&'a [u8]>],
    /// P; `None` if it is lost.
    pub p: Option<&'a [u8]>,
    /// Q; `None` if it is lost or the level has none.
    pub q: Option<&'a [u8]>,
}

/// A lost block, and where its contents go if they are wanted.
#[derive(Debug)]
pub struct Lost<'a> {
    role: Role,
    target: Option<&'a mut [u8]>,
}

impl<'a> Lost<'a> {
    /// A lost block to be recovered into `target`.
    pub fn wanted(role: Role, target: &'a mut [u8]) -> Self {
        Self { role, target: Some(target) }
    }

    /// A lost block whose contents are of no interest, though its absence matters: the second block
    /// in a read of the first.
    pub fn unwanted(role: Role) -> Self {
        Self { role, target: None }
    }
}

/// Why a stripe cannot be recovered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecoverError {
    /// More data blocks are lost than parity blocks survive.
    TooManyLost {
        /// Lost data blocks.
        data: usize,
        /// Surviving parity blocks.
        parity: usize,
    },
}

impl fmt::Display for RecoverError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self::TooManyLost { data, parity } = self;
        write!(f, "{data} data blocks of the stripe are lost and {parity} parity blocks survive")
    }
}

impl std::error::Error for RecoverError {}

/// A lost data block's index, and its target if it is wanted.
type LostData<'a> = (u16, Option<&'a mut [u8]>);

/// The lost blocks sorted by role, targets taken out.
#[derive(Default)]
struct Targets<'a> {
    /// The first two lost data blocks, lower index first.
    first: Option<LostData<'a>>,
    second: Option<LostData<'a>>,
    data_lost: usize,
    p: Option<&'a mut [u8]>,
    q: Option<&'a mut [u8]>,
}

impl<'a> Targets<'a> {
    #[expect(
        clippy::inline_always,
        reason = "returned through memory, it is written in parts and read whole, which waits until the sums before are written"
    )]
    #[inline(always)]
    fn sort(stripe: &Stripe<'_>, lost: &'a mut [Lost<'_>]) -> Self {
        let mut targets = Self::default();
        for index in 0..lost.len() {
            let role = lost[index].role;
            assert!(lost[..index].iter().all(|other| other.role != role), "{role:?} is lost twice");
        }
        for Lost { role, target } in lost {
            let target = target.as_deref_mut();
            match *role {
                Role::Data(index) => targets.add_data(stripe, index, target),
                Role::P => {
                    assert!(stripe.p.is_none(), "P is both lost and given");
                    targets.p = target;
                }
                Role::Q => {
                    assert!(stripe.q.is_none(), "Q is both lost and given");
                    targets.q = target;
                }
            }
        }
        if let (Some((first, _)), Some((second, _))) = (&targets.first, &targets.second)
            && first > second
        {
            std::mem::swap(&mut targets.first, &mut targets.second);
        }
        if targets.q.is_some() {
            for (index, _) in [&targets.first, &targets.second].into_iter().flatten() {
                assert!(*index <= INDEX_MAX, "data index {index} is above {INDEX_MAX}");
            }
        }
        targets
    }

    #[inline]
    fn add_data(&mut self, stripe: &Stripe<'_>, index: u16, target: Option<&'a mut [u8]>) {
        let block = stripe.data.get(usize::from(index));
        assert!(block.is_some(), "data index {index} is outside the stripe");
        assert!(block == Some(&None), "data block {index} is both lost and given");
        assert!(index <= INDEX_MAX || stripe.q.is_none(), "data index {index} is above {INDEX_MAX}");
        match self.data_lost {
            0 => self.first = Some((index, target)),
            1 => self.second = Some((index, target)),
            _ => {}
        }
        self.data_lost += 1;
    }
}

impl Kernels {
    /// Recovers the `lost` blocks of a stripe into their targets.
    ///
    /// Any two of data, P and Q may be lost; lost P and Q are computed anew. `lost` names every data
    /// block that is lost, wanted or not. On an error no target is written.
    ///
    /// # Errors
    /// More data blocks are lost than parity blocks survive.
    ///
    /// # Panics
    /// If a block is both lost and given, lost twice or outside the stripe, or of another length, or if Q is given or wanted and a
    /// data index is above [`INDEX_MAX`].
    pub fn recover(&self, stripe: &Stripe<'_>, lost: &mut [Lost<'_>]) -> Result<(), RecoverError> {
        self.recover_by::<false>(stripe, lost)
    }

    /// As [`recover`](Self::recover), writing past the caches: for blocks that are not read soon.
    ///
    /// Wins when the blocks come from memory, the more the fewer there are (on Zen 3 a fifth with 4, a tenth with 8, little
    /// with 22); in a cache it loses.
    pub fn recover_streaming(&self, stripe: &Stripe<'_>, lost: &mut [Lost<'_>]) -> Result<(), RecoverError> {
        self.recover_by::<true>(stripe, lost)
    }

    fn recover_by<const STREAM: bool>(
        &self,
        stripe: &Stripe<'_>,
        lost: &mut [Lost<'_>],
    ) -> Result<(), RecoverError> {
        let Targets { first, second, data_lost, p, q } = Targets::sort(stripe, lost);
        let parity = usize::from(stripe.p.is_some()) + usize::from(stripe.q.is_some());
        match (data_lost, first, second) {
            (0, ..) => self.recompute::<STREAM>(stripe, p, q),
            (1, Some(x), _) if parity >= 1 => self.recover_one::<STREAM>(stripe, x, p, q),
            (2, Some(x), Some(y)) if parity == 2 => self.recover_two::<STREAM>(stripe, x, y),
            _ => return Err(RecoverError::TooManyLost { data: data_lost, parity }),
        }
        Ok(())
    }

    fn recompute<const STREAM: bool>(&self, stripe: &Stripe<'_>, p: Option<&mut [u8]>, q: Option<&mut [u8]>) {
        match (p, q) {
            (Some(p), Some(q)) if STREAM => self.pq_set.pq_streaming(p, q, stripe.data),
            (Some(p), Some(q)) => self.pq_set.pq(p, q, stripe.data),
            (Some(p), None) => self.sum_of::<STREAM>(stripe.data, None, p),
            (None, Some(q)) if STREAM => self.pq_set.q_streaming(q, stripe.data),
            (None, Some(q)) => self.pq_set.q(q, stripe.data),
            (None, None) => {}
        }
    }

    /// Recovers one data block and recomputes the parity that is wanted; one parity block survives.
    fn recover_one<const STREAM: bool>(
        &self,
        stripe: &Stripe<'_>,
        (index, target): LostData<'_>,
        p_target: Option<&mut [u8]>,
        q_target: Option<&mut [u8]>,
    ) {
        let power = usize::from(index);
        match (stripe.p, stripe.q, q_target) {
            (Some(p), _, Some(new_q)) => {
                let solve = SolveP { p, factor: exp(power), x: target, new_q, streaming: STREAM };
                self.pq_set.solve_p(stripe.data, solve);
            }
            (Some(p), _, None) => {
                if let Some(target) = target {
                    self.sum_of::<STREAM>(stripe.data, Some(p), target);
                }
            }
            (None, Some(q), _) => {
                let solve =
                    SolveQ { q, b: inverse(exp(power)), x: target, new_p: p_target, streaming: STREAM };
                self.pq_set.solve_q(stripe.data, solve);
            }
            (None, None, _) => unreachable!("a parity block survives"),
        }
    }

    /// Recovers data blocks `x` and `y` from P and Q, both of which survive.
    ///
    /// With `p' = x + y` and `q' = 2^i·x + 2^j·y` the errors left by the survivors,
    /// `x = (2^j·p' + q') / (2^i + 2^j)`.
    fn recover_two<const STREAM: bool>(
        &self,
        stripe: &Stripe<'_>,
        (x_index, x): LostData<'_>,
        (y_index, y): LostData<'_>,
    ) {
        let (g_x, g_y) = (exp(usize::from(x_index)), exp(usize::from(y_index)));
        let b = inverse(g_x ^ g_y);
        let (p, q) = stripe.p.zip(stripe.q).expect("both parity blocks survive");
        self.pq_set.solve_both(stripe.data, SolveBoth { p, q, a: mul(g_y, b), b, x, y, streaming: STREAM });
    }

    /// Sets `target` to the xor of the data at hand and of P if given.
    fn sum_of<const STREAM: bool>(&self, data: &[Option<&[u8]>], p: Option<&[u8]>, target: &mut [u8]) {
        // Sized for common stripes first: clearing a longer array costs more than the xor of small blocks.
        let mut few: [&[u8]; 32] = [&[]; 32];
        let mut many: Vec<&[u8]>;
        let blocks = || data.iter().copied().flatten().chain(p);
        let sources = if data.len() < few.len() {
            let mut count = 0;
            for block in blocks() {
                few[count] = block;
                count += 1;
            }
            &few[..count]
        } else {
            many = Vec::with_capacity(data.len() + 1);
            many.extend(blocks());
            &many[..]
        };
        if sources.is_empty() {
            target.fill(0);
        } else if STREAM {
            self.xor_set.xor_streaming(target, sources);
        } else {
            self.xor_set.xor(target, sources);
        }
    }
}
