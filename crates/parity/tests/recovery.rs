//! Recovery of every pair of blocks, and the location of wrong ones, by every kernel set that runs here.

use stripewise_parity::{Change, Kernels, Lost, RecoverError, Role, Stripe, Verdict};

mod model;
use model::{Blocks, model_pq};

/// A stripe with its parity, from which blocks are taken away.
struct Whole<'a> {
    data: Vec<Option<&'a [u8]>>,
    p: Vec<u8>,
    q: Vec<u8>,
}

impl<'a> Whole<'a> {
    fn new(blocks: &'a Blocks, gaps: &[usize], len: usize) -> Self {
        let data = blocks.optional(gaps);
        let (p, q) = model_pq(&data, len);
        Self { data, p, q }
    }

    /// Returns the blocks there are: gaps cannot be lost.
    fn roles(&self) -> Vec<Role> {
        let present = (0..self.data.len()).filter(|&index| self.data[index].is_some());
        present.map(|index| Role::Data(index as u16)).chain([Role::P, Role::Q]).collect()
    }

    fn block(&self, role: Role) -> &[u8] {
        match role {
            Role::Data(index) => self.data[usize::from(index)].expect("a gap cannot be lost"),
            Role::P => &self.p,
            Role::Q => &self.q,
        }
    }

    /// Loses `lost`, recovers those of them that are `wanted`, and compares.
    fn lose_and_recover(
        &self,
        kernels: &Kernels,
        lost: &[Role],
        wanted: &[Role],
    ) -> Result<(), RecoverError> {
        let data: Vec<_> = (0..self.data.len())
            .map(|index| self.data[index].filter(|_| !lost.contains(&Role::Data(index as u16))))
            .collect();
        let p = (!lost.contains(&Role::P)).then_some(&self.p[..]);
        let q = (!lost.contains(&Role::Q)).then_some(&self.q[..]);
        let stripe = Stripe { data: &data, p, q };
        let len = self.p.len();
        // Miri has no instructions that stream.
        let ways = [(false, 0), (true, 0), (true, 8)];
        for (is_streaming, apart) in ways.into_iter().take(if cfg!(miri) { 1 } else { 3 }) {
            let mut arenas = vec![vec![0xEE; len + 128]; lost.len()];
            // Streams take aligned targets; the last is so or not.
            let mut targets: Vec<&mut [u8]> = arenas
                .iter_mut()
                .enumerate()
                .map(|(index, arena)| {
                    let apart = if index + 1 == lost.len() { apart } else { 0 };
                    let start = arena.as_ptr().align_offset(64) + apart;
                    &mut arena[start..start + len]
                })
                .collect();
            let losses = lost.iter().zip(&mut targets).map(|(&role, target)| {
                if wanted.contains(&role) { Lost::wanted(role, target) } else { Lost::unwanted(role) }
            });
            let mut losses: Vec<Lost<'_>> = losses.collect();
            if is_streaming {
                kernels.recover_streaming(&stripe, &mut losses)?;
            } else {
                kernels.recover(&stripe, &mut losses)?;
            }
            for (role, target) in lost.iter().zip(&targets) {
                if wanted.contains(role) {
                    assert!(*target == self.block(*role), "{role:?} of lost {lost:?} by {kernels:?}");
                } else {
                    assert!(target.iter().all(|&byte| byte == 0xEE), "{role:?} was not wanted");
                }
            }
        }
        Ok(())
    }
}

fn assert_all_pairs_recover(width: usize, gaps: &[usize], len: usize) {
    let blocks = Blocks::random(width, len, 3, width as u64 + 7);
    let whole = Whole::new(&blocks, gaps, len);
    let roles = whole.roles();
    for kernels in Kernels::all() {
        for &first in &roles {
            whole.lose_and_recover(&kernels, &[first], &[first]).unwrap();
            for &second in roles.iter().filter(|&&second| second != first) {
                let lost = [first, second];
                whole.lose_and_recover(&kernels, &lost, &lost).unwrap();
                whole.lose_and_recover(&kernels, &lost, &[first]).unwrap();
            }
        }
    }
}

/// Small enough for Miri, which can run instruction sets this CPU lacks; more blocks than are read side
/// by side, a gap, and a length of an unrolled register, one more, and a part of one in every set.
#[test]
fn one_short_stripe_goes_through_every_operation() {
    let len = 4 * 64 + 64 + 9;
    let blocks = Blocks::random(9, len, 3, 7);
    let whole = Whole::new(&blocks, &[4], len);
    let present: Vec<&[u8]> = whole.data.iter().copied().flatten().collect();
    for kernels in Kernels::all() {
        println!("{kernels}");
        let (mut p, mut q) = (vec![0; len], vec![0; len]);
        kernels.pq(&mut p, &mut q, &whole.data);
        assert!(p == whole.p && q == whole.q, "P+Q by {kernels:?}");
        kernels.xor(&mut p, &present);
        assert!(p == whole.p, "xor by {kernels:?}");
        kernels.xor_into(&mut p, &present);
        assert!(p == vec![0; len], "xor_into by {kernels:?}");

        for lost in [[Role::Data(1), Role::Data(7)], [Role::Data(5), Role::P], [Role::Data(8), Role::Q]] {
            whole.lose_and_recover(&kernels, &lost, &lost).unwrap();
        }
        assert_eq!(kernels.check(&whole.data, &whole.p, Some(&whole.q)), Verdict::Consistent);

        // Block 6 takes the contents of block 2, and back.
        let (mut p, mut q) = (whole.p.clone(), whole.q.clone());
        let (old, new) = (blocks.get(6), blocks.get(2));
        kernels.pq_update(Some(&mut p), Some(&mut q), &[Change { index: 6, old, new }]);
        assert_eq!(kernels.check(&whole.data, &p, Some(&q)), Verdict::Data(6));
        kernels.pq_update(Some(&mut p), Some(&mut q), &[Change { index: 6, old: new, new: old }]);
        assert!(p == whole.p && q == whole.q, "update by {kernels:?}");
    }
}

#[test]
fn every_pair_of_lost_blocks_is_recovered_at_every_width_to_26() {
    for width in 1..=26 {
        assert_all_pairs_recover(width, &[], 37);
    }
}

#[test]
fn every_pair_of_lost_blocks_is_recovered_in_stripes_with_gaps() {
    assert_all_pairs_recover(6, &[5], 300);
    assert_all_pairs_recover(6, &[0], 300);
    assert_all_pairs_recover(8, &[2, 3], 300);
    assert_all_pairs_recover(24, &[0, 1, 9, 22, 23], 130);
}

#[test]
fn blocks_longer_than_a_strip_are_recovered() {
    for width in [4, 22] {
        assert_all_pairs_recover(width, &[], 4096 + 133);
    }
}

#[test]
fn the_widest_stripe_loses_its_outermost_blocks() {
    let blocks = Blocks::random(255, 70, 0, 1);
    let whole = Whole::new(&blocks, &[], 70);
    for kernels in Kernels::all() {
        for lost in [[Role::Data(0), Role::Data(254)], [Role::Data(254), Role::P], [Role::Data(254), Role::Q]]
        {
            whole.lose_and_recover(&kernels, &lost, &lost).unwrap();
        }
    }
}

#[test]
fn losing_more_than_parity_covers_is_an_error() {
    let blocks = Blocks::random(5, 40, 0, 1);
    let whole = Whole::new(&blocks, &[], 40);
    let kernels = stripewise_parity::kernels();
    let [a, b, c] = [0, 1, 2].map(Role::Data);
    for (lost, data, parity) in [
        (vec![a, b, c], 3, 2),
        (vec![a, b, Role::P], 2, 1),
        (vec![a, b, Role::Q], 2, 1),
        (vec![a, Role::P, Role::Q], 1, 0),
        (vec![a, b, c, Role::P, Role::Q], 3, 0),
    ] {
        let result = whole.lose_and_recover(kernels, &lost, &lost);
        assert_eq!(result, Err(RecoverError::TooManyLost { data, parity }));
    }
}

#[test]
fn a_level_without_q_recovers_one_block_of_any_width() {
    let blocks = Blocks::random(300, 50, 1, 9);
    let mut data = blocks.optional(&[]);
    let (p, _) = model_pq(&data, 50);
    data[299] = None;
    for kernels in Kernels::all() {
        let mut target = [0; 50];
        let stripe = Stripe { data: &data, p: Some(&p), q: None };
        kernels.recover(&stripe, &mut [Lost::wanted(Role::Data(299), &mut target)]).unwrap();
        assert_eq!(target, blocks.get(299));

        let whole = blocks.optional(&[]);
        assert_eq!(kernels.check(&whole, &p, None), Verdict::Consistent);
        assert_eq!(kernels.check(&data, &p, None), Verdict::Unlocated);

        let mut target = [0; 50];
        let stripe = Stripe { data: &whole, p: None, q: None };
        kernels.recover(&stripe, &mut [Lost::wanted(Role::P, &mut target)]).unwrap();
        assert_eq!(target[..], p);
    }
}

#[test]
fn nothing_lost_is_nothing_done() {
    let stripe = Stripe { data: &[], p: None, q: None };
    assert_eq!(stripewise_parity::kernels().recover(&stripe, &mut []), Ok(()));
}

#[test]
#[should_panic(expected = "is above 254")]
fn a_lost_index_that_q_has_no_coefficient_for_panics() {
    let (block, mut q) = ([1; 8], [0; 8]);
    let mut data = vec![None; 301];
    data[0] = Some(&block[..]);
    let stripe = Stripe { data: &data, p: Some(&block), q: None };
    let _ = Kernels::scalar()
        .recover(&stripe, &mut [Lost::unwanted(Role::Data(300)), Lost::wanted(Role::Q, &mut q)]);
}

#[test]
#[should_panic(expected = "both lost and given")]
fn a_block_both_lost_and_given_panics() {
    let block = [0; 8];
    let stripe = Stripe { data: &[Some(&block[..])], p: Some(&block), q: None };
    let _ = Kernels::scalar().recover(&stripe, &mut [Lost::unwanted(Role::Data(0))]);
}

#[test]
fn a_check_names_the_wrong_block() {
    for (width, gaps, len) in [(4, vec![], 100), (22, vec![7, 20], 4096 + 5), (255, vec![], 33)] {
        let mut blocks = Blocks::random(width, len, 5, 3);
        let (p, q) = model_pq(&blocks.optional(&gaps), len);
        for kernels in Kernels::all() {
            let check =
                |blocks: &Blocks, p: &[u8], q: Option<&[u8]>| kernels.check(&blocks.optional(&gaps), p, q);
            assert_eq!(check(&blocks, &p, Some(&q)), Verdict::Consistent);
            assert_eq!(check(&blocks, &p, None), Verdict::Consistent);
            for offset in [0, len / 2, len - 1] {
                let (mut bad_p, mut bad_q) = (p.clone(), q.clone());
                bad_p[offset] ^= 0x40;
                bad_q[offset] ^= 0x01;
                assert_eq!(check(&blocks, &bad_p, Some(&q)), Verdict::P);
                assert_eq!(check(&blocks, &p, Some(&bad_q)), Verdict::Q);
                assert_eq!(check(&blocks, &bad_p, None), Verdict::Unlocated);

                for index in [0, 1, width - 1] {
                    blocks.get_mut(index)[offset] ^= 0x81;
                    assert_eq!(check(&blocks, &p, Some(&q)), Verdict::Data(index as u16));
                    blocks.get_mut(index)[offset] ^= 0x81;
                }
            }
        }
    }
}

#[test]
fn a_check_does_not_name_a_block_when_two_are_wrong() {
    let mut blocks = Blocks::random(6, 64, 0, 3);
    let (p, q) = model_pq(&blocks.optional(&[3]), 64);
    blocks.get_mut(0)[10] ^= 1;
    blocks.get_mut(4)[20] ^= 1;
    let kernels = stripewise_parity::kernels();
    assert_eq!(kernels.check(&blocks.optional(&[3]), &p, Some(&q)), Verdict::Unlocated);

    // Errors that point at the gap, index 3, or past the stripe, index 9, are no block's.
    let blocks = Blocks::random(6, 64, 0, 3);
    for index in [3, 9] {
        let (mut bad_p, mut bad_q) = (p.clone(), q.clone());
        bad_p[5] ^= 1;
        bad_q[5] ^= model::power_of_two(index);
        assert_eq!(kernels.check(&blocks.optional(&[3]), &bad_p, Some(&bad_q)), Verdict::Unlocated);
    }
}
