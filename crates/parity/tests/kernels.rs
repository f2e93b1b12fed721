//! Every kernel set that runs on this CPU against a byte-by-byte model written from the definition.

use proptest::prelude::*;
use stripewise_parity::{Change, Copied, Kernels};

mod model;
use model::{Blocks, model_pq, mul_by_hand, power_of_two};

/// Widths around the number of blocks read side by side, and the extremes.
fn widths() -> impl Strategy<Value = usize> {
    prop_oneof![8 => 1usize..30, 1 => Just(64usize), 1 => Just(255usize)]
}

/// Lengths around the registers and around the strip of 4 KiB.
fn lengths() -> impl Strategy<Value = usize> {
    prop_oneof![4 => 0usize..300, 2 => 4090usize..4110, 1 => 8000usize..9000, 1 => Just(4096usize)]
}

/// And around what is copied at several places at a time: 4 of up to 16 KiB, in steps of up to 1 KiB, of 16 KiB and
/// more.
fn copied_lengths() -> impl Strategy<Value = usize> {
    prop_oneof![
        2 => lengths(),
        1 => 16_000usize..21_000,
        1 => 65_000usize..67_000,
        1 => 131_000usize..160_000,
        1 => Just(131_072usize)
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn xor_equals_the_model(width in widths(), len in lengths(), offset in 0usize..65, seed: u64) {
        let blocks = Blocks::random(width, len, offset, seed);
        let sources = blocks.slices();
        let (sum, _) = model_pq(&blocks.optional(&[]), len);
        for kernels in Kernels::all() {
            let mut target = Blocks::random(1, len, offset / 2, !seed);
            let before = target.get(0).to_vec();

            kernels.xor_into(target.get_mut(0), &sources);
            let expected: Vec<u8> = before.iter().zip(&sum).map(|(a, b)| a ^ b).collect();
            prop_assert_eq!(target.get(0), &expected, "xor_into by {:?}", kernels);

            kernels.xor(target.get_mut(0), &sources);
            prop_assert_eq!(target.get(0), &sum, "xor by {:?}", kernels);

            target.get_mut(0).fill(0xEE);
            kernels.xor_streaming(target.get_mut(0), &sources);
            prop_assert_eq!(target.get(0), &sum, "xor_streaming by {:?}", kernels);

            target.assert_guards();
        }
    }

    #[test]
    fn copies_equal_their_source(len in copied_lengths(), offset in 0usize..65, seed: u64) {
        let source = Blocks::random(1, len, offset, seed);
        for kernels in Kernels::all() {
            for to_offset in [0, offset] {
                let mut target = Blocks::random(1, len, to_offset, !seed);
                kernels.copy(target.get_mut(0), source.get(0));
                prop_assert_eq!(target.get(0), source.get(0), "copy by {:?}", kernels);

                target.get_mut(0).fill(0xEE);
                kernels.copy_streaming(target.get_mut(0), source.get(0));
                prop_assert_eq!(target.get(0), source.get(0), "copy_streaming by {:?}", kernels);

                target.get_mut(0).fill(0xEE);
                // SAFETY: the fence follows.
                unsafe { kernels.copy_streaming_unfenced(target.get_mut(0), source.get(0)) };
                kernels.fence();
                prop_assert_eq!(target.get(0), source.get(0), "copy_streaming_unfenced by {:?}", kernels);
                target.assert_guards();
            }
        }
    }

    #[test]
    fn pq_with_gaps_equals_the_model(
        width in widths(),
        gaps in proptest::collection::vec(0usize..255, 0..6),
        len in lengths(),
        offset in 0usize..65,
        seed: u64,
    ) {
        let blocks = Blocks::random(width, len, offset, seed);
        let data = blocks.optional(&gaps);
        let (p, q) = model_pq(&data, len);
        for kernels in Kernels::all() {
            let mut parity = Blocks::random(2, len, offset / 3, !seed);
            let [p_target, q_target] = parity.get_two_mut();
            kernels.pq(p_target, q_target, &data);
            prop_assert_eq!(&*p_target, &p, "P by {:?}", kernels);
            prop_assert_eq!(&*q_target, &q, "Q by {:?}", kernels);

            p_target.fill(0xEE);
            q_target.fill(0xEE);
            kernels.pq_streaming(p_target, q_target, &data);
            prop_assert_eq!(&*p_target, &p, "streamed P by {:?}", kernels);
            prop_assert_eq!(&*q_target, &q, "streamed Q by {:?}", kernels);
            parity.assert_guards();
        }
    }

    #[test]
    fn parity_made_while_copying_equals_the_model(
        width in widths(),
        missing in proptest::collection::vec(0usize..255, 0..3),
        len in lengths(),
        offset in prop_oneof![Just(0usize), 0usize..65],
        parity_apart in prop_oneof![Just(0usize), 1usize..65],
        with_q: bool,
        seed: u64,
    ) {
        let blocks = Blocks::random(width, len, offset / 2, seed);
        let (p, q) = model_pq(&blocks.optional(&[]), len);
        for kernels in Kernels::all() {
            // At a stride that keeps every copy as aligned as the first; P and Q as well, or otherwise.
            let stride = len.next_multiple_of(64) + 128;
            let start = |index: usize| if index < width { 0 } else { parity_apart };
            let mut copies = vec![0xEE; (width + 2) * stride + 128];
            let first = copies.as_ptr().align_offset(64) + offset;
            let strides = copies[first..].chunks_mut(stride).take(width + 2).enumerate();
            let mut places: Vec<Option<&mut [u8]>> =
                strides.map(|(index, place)| Some(&mut place[start(index)..][..len])).collect();
            for index in &missing {
                places[index % width] = None;
            }
            let q_made = places.pop().unwrap();
            let p_made = places.pop().unwrap().unwrap();
            let mut data: Vec<Copied<'_>> =
                blocks.slices().into_iter().zip(places).map(|(block, copy)| Copied { block, copy }).collect();

            kernels.generate_copying(&mut data, p_made, q_made.filter(|_| with_q));

            let expected = blocks.slices().into_iter().chain([&p[..], &q[..]]);
            for (index, (place, expected)) in copies[first..].chunks(stride).zip(expected).enumerate() {
                let is_made = !missing.iter().any(|m| m % width == index) && (with_q || index <= width);
                let expected = if is_made { expected } else { &vec![0xEE; len] };
                let (before, place) = place.split_at(start(index));
                let (place, beyond) = place.split_at(len);
                prop_assert_eq!(place, expected, "place {} by {:?}", index, kernels);
                let is_guard = |byte: &u8| *byte == 0xEE;
                prop_assert!(before.iter().chain(beyond).all(is_guard), "around place {} by {:?}", index, kernels);
            }
        }
    }

    #[test]
    fn an_update_equals_parity_of_the_new_contents(
        indexes in proptest::collection::btree_set(0u16..40, 0..12),
        len in lengths(),
        offset in 0usize..65,
        seed: u64,
    ) {
        let old = Blocks::random(40, len, offset, seed);
        let new = Blocks::random(40, len, offset / 2, !seed);
        let changes: Vec<Change<'_>> = indexes
            .iter()
            .map(|&index| Change { index, old: old.get(usize::from(index)), new: new.get(usize::from(index)) })
            .collect();
        let mut data = old.optional(&[]);
        let (old_p, old_q) = model_pq(&data, len);
        for change in &changes {
            data[usize::from(change.index)] = Some(change.new);
        }
        let (p, q) = model_pq(&data, len);
        for kernels in Kernels::all() {
            for (with_p, with_q) in [(true, true), (true, false), (false, true), (false, false)] {
                let (mut p_target, mut q_target) = (old_p.clone(), old_q.clone());
                let p_given = with_p.then_some(&mut p_target[..]);
                let q_given = with_q.then_some(&mut q_target[..]);
                kernels.pq_update(p_given, q_given, &changes);
                prop_assert_eq!(&p_target, if with_p { &p } else { &old_p }, "P by {:?}", kernels);
                prop_assert_eq!(&q_target, if with_q { &q } else { &old_q }, "Q by {:?}", kernels);
            }
        }
    }
}

#[test]
fn a_stripe_worked_by_hand() {
    // Columns: zero; ones; the top bit, which overflows when doubled; unlike values.
    // Q = D0 + 2·D1 + 4·D2. Last column: P = 57+83+A1 = 75; 2·83 = 106+11D = 1B;
    // 4·A1 = 2·(142+11D) = 2·5F = BE; Q = 57+1B+BE = F2.
    let (d0, d1, d2) = ([0x00, 0x01, 0x80, 0x57], [0x00, 0x01, 0x80, 0x83], [0x00, 0x01, 0x80, 0xA1]);
    for kernels in Kernels::all() {
        let (mut p, mut q) = ([0; 4], [0; 4]);
        kernels.pq(&mut p, &mut q, &[Some(&d0), Some(&d1), Some(&d2)]);
        assert_eq!(p, [0x00, 0x01, 0x80, 0x75], "{kernels:?}");
        assert_eq!(q, [0x00, 0x07, 0x80 ^ 0x1D ^ 0x3A, 0xF2], "{kernels:?}");
    }
}

#[test]
fn every_index_has_its_own_coefficient_in_every_kernel() {
    let one = [0x01; 70];
    for kernels in Kernels::all() {
        for index in 0..255u16 {
            let mut data = vec![None; usize::from(index) + 1];
            data[usize::from(index)] = Some(&one[..]);
            let (mut p, mut q) = ([0; 70], [0; 70]);
            kernels.pq(&mut p, &mut q, &data);
            assert_eq!(p, one);
            assert_eq!(q, [power_of_two(index); 70], "index {index} by {kernels:?}");
        }
    }
}

#[test]
fn every_product_is_right_in_every_kernel() {
    let values: Vec<u8> = (0..=255).collect();
    let zeroes = [0; 256];
    for kernels in Kernels::all() {
        for index in 0..255 {
            let mut q = [0; 256];
            kernels.pq_update(None, Some(&mut q), &[Change { index, old: &zeroes, new: &values }]);
            let factor = power_of_two(index);
            for (value, product) in (0..=255).zip(q) {
                assert_eq!(product, mul_by_hand(factor, value), "{factor:#x} * {value:#x} by {kernels:?}");
            }
        }
    }
}

#[test]
fn no_data_at_all_is_zero_parity() {
    for kernels in Kernels::all() {
        for data in [vec![], vec![None; 5]] {
            let (mut p, mut q) = ([1; 100], [2; 100]);
            kernels.pq(&mut p, &mut q, &data);
            assert_eq!((p, q), ([0; 100], [0; 100]), "{kernels:?}");
        }
    }
}

#[test]
fn the_race_names_its_winners_and_reports_every_runnable_set_twice() {
    let chosen = stripewise_parity::kernels();
    let names: Vec<_> = Kernels::all().iter().map(Kernels::xor_name).collect();
    assert!(names.contains(&chosen.xor_name()) && names.contains(&chosen.pq_name()));
    assert_eq!(chosen.race_results().len(), 2 * names.len());
    for heat in chosen.race_results() {
        println!("{heat}");
    }
    println!("chosen: {chosen}");
}

#[test]
#[should_panic(expected = "differs in length")]
fn blocks_of_unequal_length_panic() {
    kernels_pq_of(&[0; 4], &[0; 5]);
}

#[test]
#[should_panic(expected = "is above 254")]
fn an_index_without_a_coefficient_panics() {
    let block = [0; 4];
    Kernels::scalar().pq(&mut [0; 4], &mut [0; 4], &[Some(&block[..]); 256]);
}

fn kernels_pq_of(a: &[u8], b: &[u8]) {
    stripewise_parity::kernels().pq(&mut [0; 4], &mut [0; 4], &[Some(a), Some(b)]);
}
