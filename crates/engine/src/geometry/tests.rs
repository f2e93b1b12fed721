//! Every layout on small arrays: there and back for every sector, and the published tables.

use super::*;
use crate::io::Role;
use crate::level::{FarSets, ParityLayout, Raid0Layout, Raid10Layout};

const CHUNK: u64 = 8;

fn spec(level: Level, layout: Layout, members: &[u64]) -> GeometrySpec {
    GeometrySpec { level, layout, chunk_sectors: CHUNK, member_sectors: members.to_vec() }
}

/// Every array sector has its copies on distinct members, every member sector that holds one names it, and
/// nothing is claimed twice.
fn round_trip(spec: &GeometrySpec) {
    let g = Geometry::new(spec).unwrap_or_else(|e| panic!("{spec:?}: {e}"));
    let mut claimed = std::collections::BTreeSet::new();
    for sector in (0..g.array_sectors()).step_by(4) {
        let mut slots = std::collections::BTreeSet::new();
        for copy in 0..g.copies() {
            let place = g.place(sector, copy);
            assert!(slots.insert(place.slot), "{spec:?}: two copies of {sector} on one member");
            assert!(place.sector < g.used_sectors(place.slot), "{spec:?}: {sector} beyond the member");
            assert!(g.used_sectors(place.slot) <= spec.member_sectors[place.slot.index()], "{spec:?}");
            assert!(claimed.insert((place.slot, place.sector)), "{spec:?}: {place:?} holds two sectors");
            assert_eq!(g.holds(place), Holds::Data(sector), "{spec:?}: {place:?}");
            let run = g.contiguous(sector).min(g.array_sectors() - sector);
            let last = g.place(sector + run - 1, copy);
            assert_eq!((last.slot, last.sector), (place.slot, place.sector + run - 1), "{spec:?}");
        }
    }
    for slot in (0..g.raid_disks()).map(Slot) {
        for sector in (0..g.used_sectors(slot)).step_by(4) {
            let place = Place { slot, sector };
            assert_eq!(
                matches!(g.holds(place), Holds::Data(_)),
                claimed.contains(&(slot, sector)),
                "{spec:?}"
            );
        }
    }
}

#[test]
fn every_parity_layout_maps_there_and_back() {
    for members in 2..=9u64 {
        let sizes = vec![CHUNK * members * 3 + 5; members as usize];
        for layout in ParityLayout::ALL {
            let layout = Layout::Parity(layout);
            if Layout::parse(Level::Raid5, &layout.to_string()).is_ok() {
                round_trip(&spec(Level::Raid5, layout, &sizes));
            }
            if members >= 4 {
                round_trip(&spec(Level::Raid6, layout, &sizes));
            }
        }
        round_trip(&spec(Level::Raid4, Layout::default_of(Level::Raid4), &sizes));
    }
}

#[test]
fn every_raid10_layout_maps_there_and_back() {
    for members in 2..=9u16 {
        for near in 1..=3u16 {
            for far in 1..=3u16 {
                for offset in [false, true] {
                    let is_refused = offset && !members.is_multiple_of(near);
                    if near * far > members || near * far == 1 || (offset && far == 1) || is_refused {
                        continue;
                    }
                    let layout = Raid10Layout { near, far, offset, far_sets: FarSets::Original };
                    let sizes = vec![CHUNK * 13 + 3; members.into()];
                    round_trip(&spec(Level::Raid10, Layout::Raid10(layout), &sizes));
                }
            }
        }
    }
}

/// Sets of members for far copies. The first kind has as many sets as copies (md's `disks / fc`), the second sets as large
/// as all copies; the tables are what Linux 6.1 read of such arrays with a member missing.
#[test]
fn far_copies_rotate_in_their_sets() {
    let slots = |far_sets, near, far, members: u16| {
        let layout = Raid10Layout { near, far, offset: false, far_sets };
        let sizes = vec![CHUNK * 16; members.into()];
        let geometry = Geometry::new(&spec(Level::Raid10, Layout::Raid10(layout), &sizes))?;
        round_trip(&spec(Level::Raid10, Layout::Raid10(layout), &sizes));
        let last = near * far - 1;
        let second = |chunk: u16| geometry.place(u64::from(chunk) * CHUNK, last).slot.0;
        Ok::<_, GeometryError>((0..members / near).map(second).collect::<Vec<_>>())
    };
    assert_eq!(slots(FarSets::ByFarCopies, 1, 2, 6).unwrap(), [1, 2, 0, 4, 5, 3]);
    assert_eq!(slots(FarSets::ByFarCopies, 1, 2, 8).unwrap(), [1, 2, 3, 0, 5, 6, 7, 4]);
    assert_eq!(slots(FarSets::ByFarCopies, 1, 2, 5).unwrap(), [1, 0, 3, 4, 2]);
    assert_eq!(slots(FarSets::ByCopies, 1, 2, 6).unwrap(), [1, 0, 3, 2, 5, 4]);
    assert_eq!(slots(FarSets::ByCopies, 1, 2, 5).unwrap(), [1, 0, 3, 4, 2]);
    for (far_sets, near, far, members) in
        [(FarSets::ByFarCopies, 1, 3, 7), (FarSets::ByFarCopies, 2, 2, 6), (FarSets::ByCopies, 2, 2, 9)]
    {
        let refused = slots(far_sets, near, far, members).unwrap_err();
        assert!(matches!(refused, GeometryError::CopiesMeet { .. }), "{far_sets:?} {near} {far} {members}");
    }
    let offset = |near, far, members| {
        let layout = Raid10Layout { near, far, offset: true, far_sets: FarSets::Original };
        Geometry::new(&spec(Level::Raid10, Layout::Raid10(layout), &vec![CHUNK * 16; members]))
    };
    // Near copies that go on in the next row lie one chunk down in Linux, where the offset copies of the row are.
    for (near, far, members) in [(2, 2, 5), (2, 2, 7), (3, 2, 7), (2, 3, 7)] {
        let refused = offset(near, far, members).unwrap_err();
        assert!(matches!(refused, GeometryError::BlocksMeet { .. }), "{near} {far} {members}: {refused}");
        assert!(refused.to_string().contains(&format!("multiple of {near}")), "{refused}");
    }
    for (near, far, members) in [(2, 2, 4), (2, 2, 6), (3, 2, 6), (1, 2, 5), (1, 3, 5), (2, 1, 5)] {
        assert!(offset(near, far, members).is_ok(), "{near} {far} {members}");
    }
    for (near, far, offset) in [(1, 1, false), (1, 1, true)] {
        let layout = Raid10Layout { near, far, offset, far_sets: FarSets::Original };
        let refused =
            Geometry::new(&spec(Level::Raid10, Layout::Raid10(layout), &[CHUNK * 16; 4])).unwrap_err();
        assert!(refused.to_string().contains("one copy"), "{refused}");
    }
}

/// The first as Linux 6.1 made it; the others are what the rule gives where it cuts nothing off.
#[test]
fn raid0_ends_where_linux_ends_it_with_a_chunk_that_is_no_power_of_two() {
    for (chunk, members, linux) in [
        (40, &[30_776, 38_912, 47_105][..], 116_624),
        (40, &[81_920, 81_920], 163_840),
        (128, &[30_776, 38_912, 47_105], 116_736),
    ] {
        let layout = Layout::Raid0(Raid0Layout::Alternate);
        let spec = GeometrySpec { chunk_sectors: chunk, ..spec(Level::Raid0, layout, members) };
        assert_eq!(Geometry::new(&spec).unwrap().array_sectors(), linux, "{chunk} {members:?}");
        round_trip(&spec);
    }
}

#[test]
fn unequal_members_map_there_and_back() {
    let sizes = [CHUNK * 3, CHUNK * 7 + 5, CHUNK * 7, CHUNK * 4 + 1];
    for layout in [Raid0Layout::Original, Raid0Layout::Alternate] {
        round_trip(&spec(Level::Raid0, Layout::Raid0(layout), &sizes));
        round_trip(&spec(Level::Raid0, Layout::Raid0(layout), &sizes[..1]));
    }
    round_trip(&spec(Level::Linear, Layout::None, &sizes));
    round_trip(&spec(Level::Raid1, Layout::None, &sizes));
    let odd_chunk = GeometrySpec {
        chunk_sectors: 24,
        ..spec(Level::Raid0, Layout::Raid0(Raid0Layout::Original), &[100, 200, 170])
    };
    round_trip(&odd_chunk);
}

/// Rows of a published table: each stripe's slots, `P`, `Q` or the number of the data chunk in array order.
fn table(level: Level, layout: ParityLayout, members: usize, stripes: u64) -> Vec<String> {
    let sizes = vec![CHUNK * 64; members];
    let g = Geometry::new(&spec(level, Layout::Parity(layout), &sizes)).unwrap();
    let Shape::Parity(shape) = g.shape() else { panic!("a parity level") };
    (0..stripes)
        .map(|s| {
            let map = shape.stripe(s);
            (0..members as u16)
                .map(|slot| match map.role(Slot(slot)) {
                    StripeRole::P => "P".to_owned(),
                    StripeRole::Q => "Q".to_owned(),
                    StripeRole::Data(d) => (s * u64::from(shape.data_disks()) + u64::from(d)).to_string(),
                })
                .collect::<Vec<_>>()
                .join(" ")
        })
        .collect()
}

#[test]
fn raid5_tables_as_in_the_md_manual() {
    use ParityLayout as L;
    assert_eq!(
        table(Level::Raid5, L::LeftSymmetric, 5, 5),
        ["0 1 2 3 P", "5 6 7 P 4", "10 11 P 8 9", "15 P 12 13 14", "P 16 17 18 19"]
    );
    assert_eq!(table(Level::Raid5, L::LeftAsymmetric, 4, 4), ["0 1 2 P", "3 4 P 5", "6 P 7 8", "P 9 10 11"]);
    assert_eq!(table(Level::Raid5, L::RightAsymmetric, 4, 4), ["P 0 1 2", "3 P 4 5", "6 7 P 8", "9 10 11 P"]);
    assert_eq!(table(Level::Raid5, L::RightSymmetric, 4, 4), ["P 0 1 2", "5 P 3 4", "7 8 P 6", "9 10 11 P"]);
    assert_eq!(table(Level::Raid5, L::ParityFirst, 4, 2), ["P 0 1 2", "P 3 4 5"]);
    assert_eq!(table(Level::Raid5, L::ParityLast, 4, 2), ["0 1 2 P", "3 4 5 P"]);
}

#[test]
fn raid6_tables() {
    use ParityLayout as L;
    assert_eq!(
        table(Level::Raid6, L::LeftSymmetric, 5, 5),
        ["Q 0 1 2 P", "3 4 5 P Q", "7 8 P Q 6", "11 P Q 9 10", "P Q 12 13 14"]
    );
    assert_eq!(table(Level::Raid6, L::LeftAsymmetric, 5, 2), ["Q 0 1 2 P", "3 4 5 P Q"]);
    assert_eq!(
        table(Level::Raid6, L::RightAsymmetric, 5, 5),
        ["P Q 0 1 2", "3 P Q 4 5", "6 7 P Q 8", "9 10 11 P Q", "Q 12 13 14 P"]
    );
    assert_eq!(table(Level::Raid6, L::RightSymmetric, 5, 2), ["P Q 0 1 2", "5 P Q 3 4"]);
    assert_eq!(table(Level::Raid6, L::DdfNRestart, 5, 2), ["0 1 2 P Q", "3 4 P Q 5"]);
    assert_eq!(table(Level::Raid6, L::DdfNContinue, 5, 3), ["0 1 2 Q P", "4 5 Q P 3", "8 Q P 6 7"]);
    assert_eq!(table(Level::Raid6, L::LeftSymmetric6, 5, 3), ["0 1 2 P Q", "4 5 P 3 Q", "8 P 6 7 Q"]);
    assert_eq!(table(Level::Raid6, L::RightSymmetric6, 5, 2), ["P 0 1 2 Q", "5 P 3 4 Q"]);
    assert_eq!(table(Level::Raid6, L::RightAsymmetric6, 5, 2), ["P 0 1 2 Q", "3 P 4 5 Q"]);
    assert_eq!(table(Level::Raid6, L::LeftAsymmetric6, 5, 2), ["0 1 2 P Q", "3 4 P 5 Q"]);
    assert_eq!(table(Level::Raid6, L::ParityFirst6, 5, 1), ["P 0 1 2 Q"]);
}

#[test]
fn q_coefficients_count_from_the_slot_after_q() {
    let roles = |layout, stripe| {
        let g = Geometry::new(&spec(Level::Raid6, Layout::Parity(layout), &[CHUNK * 64; 6])).unwrap();
        let Shape::Parity(shape) = g.shape() else { panic!("a parity level") };
        let map = shape.stripe(stripe);
        (0..6)
            .map(|s| match map.operand_role(Slot(s)) {
                Role::Data(i) => i.to_string(),
                Role::P => "P".to_owned(),
                Role::Q => "Q".to_owned(),
            })
            .collect::<Vec<_>>()
            .join(" ")
    };
    // Symmetric: the same as the data order. Asymmetric: not, unless parity is at the ends.
    assert_eq!(roles(ParityLayout::LeftSymmetric, 2), "1 2 3 P Q 0");
    assert_eq!(roles(ParityLayout::LeftAsymmetric, 2), "1 2 3 P Q 0");
    assert_eq!(roles(ParityLayout::ParityFirst, 0), "P Q 0 1 2 3");
    assert_eq!(roles(ParityLayout::LeftAsymmetric6, 2), "0 1 P 2 3 Q");
    assert_eq!(roles(ParityLayout::DdfZeroRestart, 2), "0 1 P Q 4 5");
}

#[test]
fn raid10_tables_as_in_the_md_manual() {
    let rows = |name: &str, members: usize, rows: u64| {
        let layout = Layout::parse(Level::Raid10, name).unwrap();
        let g = Geometry::new(&spec(Level::Raid10, layout, &vec![CHUNK * 6; members])).unwrap();
        (0..rows)
            .map(|row| {
                (0..members as u16)
                    .map(|slot| match g.holds(Place { slot: Slot(slot), sector: row * CHUNK }) {
                        Holds::Data(s) => (s / CHUNK).to_string(),
                        _ => "-".to_owned(),
                    })
                    .collect::<Vec<_>>()
                    .join(" ")
            })
            .collect::<Vec<_>>()
    };
    assert_eq!(rows("n2", 4, 2), ["0 0 1 1", "2 2 3 3"]);
    assert_eq!(rows("n2", 3, 2), ["0 0 1", "1 2 2"]);
    assert_eq!(rows("o2", 3, 4), ["0 1 2", "2 0 1", "3 4 5", "5 3 4"]);
    assert_eq!(rows("f2", 3, 6), ["0 1 2", "3 4 5", "6 7 8", "2 0 1", "5 3 4", "8 6 7"]);
}

#[test]
fn impossible_geometries_say_what_would_be_right() {
    let error = |s: &GeometrySpec| Geometry::new(s).unwrap_err().to_string();
    let raid6 = spec(Level::Raid6, Layout::default_of(Level::Raid6), &[1000; 3]);
    assert_eq!(error(&raid6), "raid6 on 3 members: it needs at least 4");
    let none = spec(Level::Raid5, Layout::default_of(Level::Raid5), &[]);
    assert!(error(&none).contains("0 members"));
    let chunk = GeometrySpec {
        chunk_sectors: 96,
        ..spec(Level::Raid5, Layout::default_of(Level::Raid5), &[1000; 5])
    };
    assert_eq!(error(&chunk), "chunk of 48 KiB: raid5 needs a power of two, such as 32K or 64K");
    let zero = GeometrySpec { chunk_sectors: 0, ..chunk.clone() };
    assert!(error(&zero).contains("multiple of 4K"));
    let small = spec(Level::Raid5, Layout::default_of(Level::Raid5), &[7; 5]);
    assert!(error(&small).contains("at least 8"), "{}", error(&small));
    let foreign = spec(Level::Raid5, Layout::None, &[1000; 5]);
    assert!(error(&foreign).contains("left-symmetric"));
    for (level, layout) in [
        (Level::Raid4, ParityLayout::LeftSymmetric),
        (Level::Raid5, ParityLayout::LeftSymmetric6),
        (Level::Raid5, ParityLayout::DdfZeroRestart),
    ] {
        let layout = Layout::Parity(layout);
        let foreign = spec(level, layout, &[1000; 5]);
        assert_eq!(Geometry::new(&foreign), Err(GeometryError::LayoutOfAnotherLevel { level, layout }));
    }
    let copies = spec(Level::Raid10, Layout::parse(Level::Raid10, "n4").unwrap(), &[1000; 3]);
    assert!(error(&copies).contains("4 copies on 3 members"));
}

#[test]
fn an_array_has_no_more_bytes_than_a_signed_number_counts() {
    let spec = |level, members| GeometrySpec {
        level,
        layout: Layout::default_of(level),
        chunk_sectors: 1024,
        member_sectors: vec![MEMBER_SECTORS_MAX; members],
    };
    assert!(Geometry::new(&spec(Level::Raid0, 15)).is_ok());
    for level in [Level::Raid0, Level::Linear] {
        let error = Geometry::new(&spec(level, 40)).unwrap_err();
        assert!(matches!(error, GeometryError::ArrayTooLarge { .. }), "{error}");
    }
    assert!(Geometry::new(&spec(Level::Raid1, 40)).is_ok());
}
