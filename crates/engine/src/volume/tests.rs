use super::*;
use crate::level::{Layout, Level};

/// A RAID-5 of four slots, with one spare.
fn config() -> VolumeConfig {
    let geometry = GeometrySpec {
        level: Level::Raid5,
        layout: Layout::default_of(Level::Raid5),
        chunk_sectors: 16,
        member_sectors: vec![256; 4],
    };
    VolumeConfig { spares: 1, ..VolumeConfig::new(geometry, Policy::stripewise()) }
}

fn refusal(config: &VolumeConfig) -> Option<VolumeError> {
    Volume::new(config).err()
}

#[test]
fn a_slot_that_the_array_has_not_has_no_member() {
    let mut config = config();
    config.recovering = vec![(Slot(3), 100)];
    let volume = Volume::new(&config).unwrap();
    assert_eq!(
        (volume.member_of(Slot(3)), volume.recovered_sectors(Slot(3))),
        (Some(MemberIndex(3)), Some(100))
    );
    for slot in [4, 999, u16::MAX].map(Slot) {
        assert_eq!(volume.member_of(slot), None);
        assert_eq!((volume.recovered_sectors(slot), volume.replaced_sectors(slot)), (None, None));
    }
}

#[test]
fn a_replacement_is_a_member_of_its_own_behind_the_slots() {
    let with = |replacements: &[(u16, u16)]| {
        let replacements = replacements.iter().map(|r| (Slot(r.0), MemberIndex(r.1), 0)).collect();
        refusal(&VolumeConfig { replacements, ..config() })
    };
    let refused = |slot, member, end| {
        Some(VolumeError::Replacement { slot: Slot(slot), member: MemberIndex(member), behind: (4, end) })
    };
    assert_eq!(with(&[(1, 5)]), None);
    assert_eq!(with(&[(1, 4)]), None, "a spare");
    assert_eq!(with(&[(1, 6), (2, 5)]), None);
    assert_eq!(with(&[(1, 1)]), refused(1, 1, 6), "the slot's own");
    assert_eq!(with(&[(1, 2)]), refused(1, 2, 6), "another slot's");
    assert_eq!(with(&[(1, 6)]), refused(1, 6, 6), "there are no more");
    assert_eq!(with(&[(1, 5), (1, 6)]), refused(1, 6, 7), "the slot has one");
    assert_eq!(with(&[(1, 5), (2, 5)]), refused(2, 5, 7), "it has a slot");
    assert_eq!(with(&[(4, 5)]), Some(VolumeError::NoSuchSlot(Slot(4))));
    let text = with(&[(1, 2)]).unwrap().to_string();
    assert!(text.starts_with("member 2 cannot replace slot 1's") && text.ends_with("are 4 to 5"), "{text}");
}

#[test]
fn slots_that_are_not_there_are_not_taken_up() {
    let no_such = |slot| Some(VolumeError::NoSuchSlot(Slot(slot)));
    assert_eq!(refusal(&VolumeConfig { recovering: vec![(Slot(4), 0)], ..config() }), no_such(4));
    assert_eq!(refusal(&VolumeConfig { returned: vec![Slot(9000)], ..config() }), no_such(9000));
    assert_eq!(refusal(&VolumeConfig { recovering: vec![(Slot(3), u64::MAX)], ..config() }), None);
}
