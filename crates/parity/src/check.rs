//! Comparison of a stripe's parity with its data.

use crate::Kernels;
use crate::field;

/// What a stripe's parity says about its blocks.
///
/// The culprits are named on the premise that one block of the stripe is wrong and the others are
/// right; two or more wrong blocks can look like another single one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Data and parity agree.
    Consistent,
    /// Q agrees, P does not: P is wrong.
    P,
    /// P agrees, Q does not: Q is wrong.
    Q,
    /// Neither agrees, in the way a wrong data block at this index makes them disagree.
    Data(u16),
    /// They disagree, and no single block explains it; without Q, nothing can be located.
    Unlocated,
}

impl Kernels {
    /// Compares P, and Q where the level has one, with `data`, and locates a single wrong block.
    ///
    /// A stripe that agrees, the common case, costs one pass and writes nothing; one in which both
    /// disagree is read twice and two blocks are allocated.
    pub fn check(&self, data: &[Option<&[u8]>], p: &[u8], q: Option<&[u8]>) -> Verdict {
        match (self.pq_set.differs(data, p, q), q) {
            ((false, false), _) => Verdict::Consistent,
            ((false, true), _) => Verdict::Q,
            ((true, false), Some(_)) => Verdict::P,
            ((true, true), Some(q)) => self.locate(data, p, q).map_or(Verdict::Unlocated, Verdict::Data),
            ((true, _), None) => Verdict::Unlocated,
        }
    }

    /// Returns the index `z` for which the error in Q is `2^z` times the error in P at every byte.
    fn locate(&self, data: &[Option<&[u8]>], p: &[u8], q: &[u8]) -> Option<u16> {
        let mut p_error = vec![0; p.len()];
        let mut q_error = vec![0; q.len()];
        self.pq_set.pq(&mut p_error, &mut q_error, data);
        self.xor_set.xor_into(&mut p_error, &[p]);
        self.xor_set.xor_into(&mut q_error, &[q]);

        let mut index = None;
        for (&p, &q) in p_error.iter().zip(&q_error) {
            if p == 0 && q == 0 {
                continue;
            }
            if p == 0 || q == 0 {
                return None;
            }
            let pointed_to = (field::log(q) + field::ORDER - field::log(p)) % field::ORDER;
            if *index.get_or_insert(pointed_to) != pointed_to {
                return None;
            }
        }
        let index = index?;
        data.get(index)?.map(|_| index as u16)
    }
}
