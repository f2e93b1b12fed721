//! The devices' numbers, by which the others know them.

use std::collections::BTreeSet;

use super::{ROLES_MAX, Role, Superblock1};

/// Gives numbers to devices whose own is past their table of roles, or one's before them: nothing is known by those. The kernel takes
/// the former for spares and numbers them anew likewise. A number that a table has a slot for is not given, for a member that is not
/// there may have it. Where
/// the tables have no row left a device gets a number past them, and stays a spare that the others do not list. Answers which devices
/// got another number.
pub fn number_anew(devices: &mut [&mut Superblock1], raid_disks: u32) -> Vec<usize> {
    let mut taken = BTreeSet::new();
    let mut without = Vec::new();
    for (index, device) in devices.iter().enumerate() {
        let has_row = (device.dev_number as usize) < device.dev_roles.len();
        if !has_row || !taken.insert(device.dev_number) {
            without.push(index);
        }
    }
    for index in &without {
        let has_slot = |number: u32| {
            let roles = devices.iter().filter_map(|device| device.dev_roles.get(number as usize));
            roles.copied().any(|role| matches!(role, Role::Slot(_)))
        };
        let is_free = |number: &u32| !taken.contains(number) && !has_slot(*number);
        let number = (raid_disks..u32::MAX).find(is_free).expect("there are fewer devices than numbers");
        taken.insert(number);
        let device = &mut *devices[*index];
        device.dev_number = number;
        if (device.dev_roles.len()..ROLES_MAX).contains(&(number as usize)) {
            device.dev_roles.resize(number as usize + 1, Role::Spare);
        }
    }
    without
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::level::Level;
    use crate::uuid::Uuid;

    #[test]
    fn whoever_finds_the_tables_full_is_not_listed() {
        let device = || Superblock1::new(Level::Raid1, ROLES_MAX as u32, 0, Uuid([7; 16]));
        let mut devices = [device(), device(), device()];
        assert_eq!(number_anew(&mut devices.each_mut(), ROLES_MAX as u32), [1, 2]);
        assert_eq!(devices.each_ref().map(|device| device.dev_number), [0, 1920, 1921]);
        assert!(devices.iter().all(|device| device.to_bytes().len() == 4096));
        assert_eq!(devices[1].role(), Role::Spare);
    }

    #[test]
    fn a_number_is_one_devices_and_no_missing_members() {
        let device = |number: u32| {
            let mut device = Superblock1::new(Level::Raid5, 3, 0, Uuid([7; 16]));
            device.dev_number = number;
            device.dev_roles =
                [0, 1, 0xffff, 0xffff, 2].map(|role| Role::from_number(role).unwrap()).to_vec();
            device
        };
        let mut devices = [0, 1, 3, 3, 2000].map(device);
        let renumbered = number_anew(&mut devices.each_mut(), 3);
        assert_eq!(renumbered, [3, 4]);
        assert_eq!(devices.each_ref().map(|device| device.dev_number), [0, 1, 3, 5, 6]);
        assert!(devices[2..].iter().all(|device| device.role() == Role::Spare));
    }
}
