//! Arrays with a write journal: which device is it, and what if it is not there.

use stripewise_format::superblock_1::{Features, Role};

use super::tests::{FORCE, RUN, array, change, change_all};
use super::{AssemblyError, Candidate, Consistency, Journal, Options, StaleReason, assemble};
use crate::level::Level;

const READ: Options =
    Options { run: false, force: false, readonly: true, forgets_bitmap: false, raid0_layout: None };

/// Three members and their journal, device 3, which is the last.
fn journaled() -> Vec<Candidate> {
    let mut devices = array(Level::Raid5, 3);
    let mut journal = devices[2].clone();
    journal.label = "journal".to_owned();
    change(&mut journal, |s| s.dev_number = 3);
    devices.push(journal);
    change_all(&mut devices, |s| {
        s.features |= Features::JOURNAL;
        s.dev_roles[3] = Role::Journal;
    });
    devices
}

#[test]
fn the_journal_is_found_whatever_the_order_and_one_event_apart() {
    let mut devices = journaled();
    devices.rotate_right(1);
    for events in [9, 10, 11] {
        change(&mut devices[0], |s| s.events = events);
        let assembly = assemble(&devices, Options::default()).unwrap();
        assert_eq!(assembly.journal, Some(Journal::Device { candidate: 0 }), "{events} events");
        assert_eq!((assembly.consistency, assembly.in_sync_count()), (Consistency::Journal, 3));
        assert_eq!(assembly.stale, []);
    }
    // The members lack what was recorded in between.
    change(&mut devices[0], |s| s.events = 12);
    assert!(matches!(assemble(&devices, RUN), Err(AssemblyError::JournalLost { .. })));
}

#[test]
fn a_journal_may_be_smaller_than_the_members_and_lies_on_its_device() {
    let mut devices = journaled();
    devices[3].device_sectors = 2048 + 256;
    change(&mut devices[3], |s| s.data_size_sectors = 256);
    assert!(assemble(&devices, Options::default()).is_ok());
    devices[3].device_sectors -= 1;
    let refused = assemble(&devices, Options::default()).unwrap_err();
    assert!(refused.to_string().starts_with("journal: "), "{refused}");
}

#[test]
fn without_its_journal_an_array_is_read_or_the_journal_is_given_up() {
    let stale = |devices: &mut Vec<Candidate>| change(&mut devices[3], |s| s.events = 8);
    let missing = |devices: &mut Vec<Candidate>| drop(devices.pop());
    for what in ["stale", "missing"] {
        let mut devices = journaled();
        if what == "stale" {
            stale(&mut devices);
        } else {
            missing(&mut devices);
        }
        for options in [Options::default(), RUN] {
            let refused = assemble(&devices, options).unwrap_err();
            let AssemblyError::JournalLost { stale } = &refused else { panic!("{what}: {refused:?}") };
            assert_eq!(stale.contains(&"journal".to_owned()), what == "stale");
            assert!(refused.to_string().contains("--force"), "{refused}");
        }
        for options in [READ, FORCE] {
            let assembly = assemble(&devices, options).unwrap();
            assert_eq!(assembly.journal, Some(Journal::Lost), "{what}, {options:?}");
            assert!(!assembly.is_degraded());
        }
    }
}

#[test]
fn of_two_journals_the_one_with_more_events_counts_and_two_alike_are_refused() {
    let mut devices = journaled();
    let mut other = devices[3].clone();
    other.label = "other".to_owned();
    devices.insert(0, other);
    let refused = assemble(&devices, Options::default());
    assert!(matches!(refused, Err(AssemblyError::JournalTwice { .. })), "{refused:?}");
    for (older, newer) in [(0, 4), (4, 0)] {
        change(&mut devices[older], |s| s.events = 9);
        change(&mut devices[newer], |s| s.events = 10);
        let assembly = assemble(&devices, Options::default()).unwrap();
        assert_eq!(assembly.journal, Some(Journal::Device { candidate: newer }));
        assert_eq!(assembly.stale[0].candidate, older);
    }
}

#[test]
fn what_only_itself_or_only_the_others_call_a_journal_is_none() {
    let mut devices = journaled();
    change(&mut devices[3], |s| s.dev_roles[3] = Role::Spare);
    let assembly = assemble(&devices, READ).unwrap();
    assert_eq!((assembly.journal, assembly.stale[0].why), (Some(Journal::Lost), StaleReason::NotItsSlot));
    let mut devices = journaled();
    change_all(&mut devices[..3], |s| s.dev_roles[3] = Role::Faulty);
    let assembly = assemble(&devices, READ).unwrap();
    assert_eq!((assembly.journal, assembly.stale[0].why), (Some(Journal::Lost), StaleReason::Faulty));
}

#[test]
fn a_journal_that_was_given_up_is_left_out_and_no_spare() {
    for role in [Role::Journal, Role::Spare] {
        let mut devices = journaled();
        change_all(&mut devices[..3], |s| {
            s.features = s.features.without(Features::JOURNAL);
            s.dev_roles[3] = role;
        });
        let assembly = assemble(&devices, Options::default()).unwrap();
        assert_eq!((assembly.journal, assembly.consistency), (None, Consistency::Resync));
        assert_eq!((assembly.spares.len(), assembly.stale[0].why), (0, StaleReason::FormerJournal));
    }
}

/// Giving it up was cut off between two members.
#[test]
fn the_freshest_says_whether_there_is_a_journal() {
    let mut devices = journaled();
    change(&mut devices[0], |s| {
        s.features = s.features.without(Features::JOURNAL);
        s.events = 11;
    });
    let assembly = assemble(&devices, Options::default()).unwrap();
    assert_eq!((assembly.journal, assembly.in_sync_count()), (None, 3));
}

#[test]
fn a_resync_that_had_not_ended_needs_all_members_as_without_a_journal() {
    let mut devices = journaled();
    change_all(&mut devices, |s| s.resync_offset_sectors = 128);
    assert_eq!(assemble(&devices, RUN).unwrap().resync_offset_sectors, 128);
    devices.remove(1);
    assert!(matches!(assemble(&devices, RUN), Err(AssemblyError::DirtyDegraded { .. })));
}
