//! Commands and speeds, with members that answer at once.

use std::cell::Cell;
use std::collections::VecDeque;

use stripewise_format::device_flags::DeviceFlags;

use super::speed::{Speed, SpeedLimits};
use super::{SyncConfig, SyncStatus};
use crate::array::core::Core;
use crate::geometry::{Geometry, GeometrySpec};
use crate::io::{
    Action, ActionQueue, AdminCommand, AdminReply, ArrayEvent, Flags, Input, IoError, Kernel, Op, Request,
    RequestId, SyncAction, Tag, Verdict,
};
use crate::level::{Layout, Level};
use crate::policy::Policy;
use crate::units::{Instant, MemberIndex, Nanos, SectorRange, Slot};
use crate::volume::{Volume, VolumeConfig};

const SECTORS: u64 = 1 << 14;

fn spec(level: Level, members: u16) -> GeometrySpec {
    GeometrySpec {
        level,
        layout: Layout::default_of(level),
        chunk_sectors: if level.has_chunks() { 128 } else { 0 },
        member_sectors: vec![SECTORS; members.into()],
    }
}

fn volume(level: Level, members: u16, spares: u16) -> Volume {
    let config = VolumeConfig { spares, ..VolumeConfig::new(spec(level, members), Policy::stripewise()) };
    Volume::new(&config).unwrap()
}

/// Gives an input, and what is answered to all that it leads to, until nothing is left.
fn drive(volume: &mut Volume, first: Input, mut answer: impl FnMut(&Action, &mut VecDeque<Input>)) {
    let mut inputs = VecDeque::from([first]);
    while let Some(input) = inputs.pop_front() {
        let mut out = ActionQueue::default();
        volume.handle(Instant::ZERO, input, &mut out);
        out.actions.iter().for_each(|action| answer(action, &mut inputs));
    }
}

/// Gives a command and answers members so many times; the command's answer and what happened.
fn command(volume: &mut Volume, command: AdminCommand, answers: usize) -> (AdminReply, Vec<ArrayEvent>) {
    let (mut inputs, mut reply, mut events) = (vec![Input::Admin { id: 1, command }], None, Vec::new());
    let mut left = answers + 1;
    while let (false, Some(_)) = (inputs.is_empty(), left.checked_sub(1)) {
        left -= 1;
        let mut out = ActionQueue::default();
        volume.handle(Instant::ZERO, inputs.remove(0), &mut out);
        for action in &out.actions {
            match *action {
                Action::Io(io) => inputs.push(Input::IoDone { tag: io.tag, result: Ok(()) }),
                Action::Compute(c) => {
                    inputs.push(Input::Computed { tag: c.tag, verdict: Verdict::Consistent });
                }
                Action::Replied { reply: said, .. } => reply = Some(said),
                Action::Event(event) => events.push(event),
                Action::Complete { .. } => unreachable!("nobody asked for anything"),
            }
        }
    }
    (reply.expect("commands are answered at once"), events)
}

/// What a refusal must leave as it is.
fn state(volume: &Volume) -> (Vec<Option<MemberIndex>>, Option<SyncStatus>) {
    let slots = (0..volume.geometry().raid_disks()).map(Slot);
    (slots.map(|slot| volume.member_of(slot)).collect(), volume.sync_status())
}

#[test]
fn commands_that_are_refused_change_nothing() {
    let replace = |slot: u16, with| AdminCommand::Replace { slot: Slot(slot), with };
    let re_add =
        |slot: u16, member: u16| AdminCommand::ReAdd { slot: Slot(slot), member: MemberIndex(member) };
    let speed = |min_kib, max_kib| AdminCommand::SetSpeed { min_kib, max_kib };
    let flags =
        |member| AdminCommand::SetFlags { member: MemberIndex(member), flags: DeviceFlags::default() };
    let refusals = [
        (AdminCommand::Fail(Slot(9)), AdminReply::NoSuchSlot),
        (AdminCommand::Fail(Slot(1)), AdminReply::AlreadyFailed),
        (AdminCommand::Remove(MemberIndex(0)), AdminReply::InUse),
        (AdminCommand::Remove(MemberIndex(77)), AdminReply::NoSuchMember),
        (AdminCommand::AddSpare(MemberIndex(0)), AdminReply::InUse),
        (replace(9, None), AdminReply::NoSuchSlot),
        (replace(1, None), AdminReply::AlreadyFailed),
        (replace(0, None), AdminReply::NoSpare),
        (replace(0, Some(MemberIndex(2))), AdminReply::InUse),
        (replace(0, Some(MemberIndex(77))), AdminReply::NoSuchMember),
        (re_add(0, 1), AdminReply::InUse),
        (re_add(1, 0), AdminReply::InUse),
        (re_add(9, 1), AdminReply::NoSuchSlot),
        (flags(1), AdminReply::AlreadyFailed),
        (flags(77), AdminReply::NoSuchMember),
        (speed(0, 10), AdminReply::BadSpeed),
        (speed(11, 10), AdminReply::BadSpeed),
    ];
    let mut volume = volume(Level::Raid5, 4, 0);
    command(&mut volume, AdminCommand::Fail(Slot(1)), 0);
    let before = state(&volume);
    for (refused, why) in refusals {
        let (reply, events) = command(&mut volume, refused, 0);
        assert_eq!((reply, &events[..]), (why, &[][..]), "{refused:?}");
        assert_eq!(state(&volume), before, "{refused:?}");
    }
    let mut striped = self::volume(Level::Raid0, 2, 0);
    for refused in [AdminCommand::Sync(SyncAction::Check), flags(0)] {
        assert_eq!(command(&mut striped, refused, 0).0, AdminReply::NoRedundancy, "{refused:?}");
    }
}

#[test]
fn a_check_says_how_far_it_is_and_a_second_one_waits_its_turn() {
    let mut volume = volume(Level::Raid6, 5, 0);
    assert_eq!(command(&mut volume, AdminCommand::Sync(SyncAction::Check), 100).0, AdminReply::Done);
    let status = volume.sync_status().unwrap();
    assert_eq!((status.action, status.total_sectors), (SyncAction::Check, SECTORS));
    assert!(status.done_sectors > 0 && status.done_sectors < SECTORS, "{status:?}");
    let before = state(&volume);
    let (reply, _) = command(&mut volume, AdminCommand::Sync(SyncAction::Repair), 0);
    assert_eq!(reply, AdminReply::Busy);
    assert_eq!(state(&volume), before);
}

/// Checks a read-only volume to the end, its members and comparisons answering alike; what happened, the sectors that were
/// read, and how many were found. A member that is named cannot read its first sectors.
fn checked(volume: &mut Volume, verdict: Verdict, refused: Option<Slot>) -> (Vec<ArrayEvent>, u64, u64) {
    let refused: Vec<(Slot, u64)> = refused.into_iter().map(|slot| (slot, 0)).collect();
    let found = checked_but(volume, verdict, &refused, false);
    (found.events, found.read, found.mismatch_sectors)
}

/// What a check did, in sectors.
struct Checked {
    events: Vec<ArrayEvent>,
    read: u64,
    compared: u64,
    written: u64,
    mismatch_sectors: u64,
    unread_sectors: u64,
}

/// The same with sectors that members cannot read; and the sectors that were compared.
fn checked_but(volume: &mut Volume, verdict: Verdict, refused: &[(Slot, u64)], may_write: bool) -> Checked {
    let (mut compared, mut written) = (0, 0);
    let command = AdminCommand::Sync(SyncAction::Check);
    let (mut events, mut read) = (Vec::new(), 0);
    drive(volume, Input::Admin { id: 1, command }, |action, inputs| match *action {
        Action::Io(io) => {
            if io.op == Op::Write {
                assert!(may_write, "nothing is written to members that are only read");
                written += io.range.count;
            } else {
                read += io.range.count;
            }
            let is_bad = refused.iter().any(|(slot, sector)| {
                io.member.index() == slot.index() && (io.range.start..io.range.end()).contains(sector)
            });
            let result = if is_bad { Err(IoError::Media) } else { Ok(()) };
            inputs.push_back(Input::IoDone { tag: io.tag, result });
        }
        Action::Compute(compute) => {
            compared += if compute.kernel == Kernel::Check { compute.bytes / 512 } else { 0 };
            inputs.push_back(Input::Computed { tag: compute.tag, verdict });
        }
        Action::Event(event) => events.push(event),
        Action::Replied { reply, .. } => assert_eq!(reply, AdminReply::Done),
        Action::Complete { .. } => unreachable!("nobody asked for anything"),
    });
    let SyncStatus { mismatch_sectors, unread_sectors, .. } = volume.sync_status().unwrap();
    Checked { events, read, compared, written, mismatch_sectors, unread_sectors }
}

#[test]
fn a_read_only_array_is_checked_without_a_write_and_not_repaired() {
    for level in [Level::Raid1, Level::Raid4, Level::Raid5, Level::Raid6, Level::Raid10] {
        let config =
            VolumeConfig { read_only: true, ..VolumeConfig::new(spec(level, 4), Policy::stripewise()) };
        let done = [ArrayEvent::SyncStarted(SyncAction::Check), ArrayEvent::SyncDone(SyncAction::Check)];
        let mut volume = Volume::new(&config).unwrap();
        let (events, read, found) = checked(&mut volume, Verdict::Consistent, None);
        assert_eq!((&events[..], read, found), (&done[..], 4 * SECTORS, 0), "{level}");
        let (events, _, found) = checked(&mut volume, Verdict::Unlocated, None);
        assert_eq!((&events[..], found > 0), (&done[..], true), "{level}");
        // What one member cannot read is left as it is, too.
        let (events, _, _) = checked(&mut volume, Verdict::Consistent, Some(Slot(1)));
        assert_eq!(events, done, "{level}");
        for action in [SyncAction::Repair, SyncAction::RepairLocated, SyncAction::Resync, SyncAction::Recover]
        {
            let (reply, events) = command(&mut volume, AdminCommand::Sync(action), 0);
            assert_eq!((reply, &events[..]), (AdminReply::ArrayFailed, &[][..]), "{level} {action:?}");
        }
        (0..4).for_each(|slot| drop(command(&mut volume, AdminCommand::Fail(Slot(slot)), 0)));
        let (reply, _) = command(&mut volume, AdminCommand::Sync(SyncAction::Check), 0);
        assert_eq!(reply, AdminReply::ArrayFailed, "{level}: too little is left");
    }
}

/// A row or page that a member cannot read keeps no other from being compared.
#[test]
fn a_read_only_check_leaves_out_no_more_than_what_cannot_be_read() {
    for level in [Level::Raid1, Level::Raid4, Level::Raid5, Level::Raid6, Level::Raid10] {
        let members = if level == Level::Raid1 { 2 } else { 4 };
        let config =
            VolumeConfig { read_only: true, ..VolumeConfig::new(spec(level, members), Policy::stripewise()) };
        let check =
            |bad: &[_]| checked_but(&mut Volume::new(&config).unwrap(), Verdict::Consistent, bad, false);
        let (whole, found) = (check(&[]), check(&[(Slot(1), 81)]));
        // Two parities show what disagrees without the block, too.
        let left_out = if level == Level::Raid6 { 0 } else { 8 };
        let expected = (whole.compared - left_out, 0);
        assert_eq!((found.compared, found.mismatch_sectors), expected, "{level}: {:?}", found.events);
    }
}

/// What cannot be written either is listed as bad: a row, not all that was read with it.
#[test]
fn a_check_rewrites_no_more_than_what_cannot_be_read() {
    for level in [Level::Raid1, Level::Raid4, Level::Raid5, Level::Raid6, Level::Raid10] {
        let mut volume = volume(level, 4, 0);
        let found = checked_but(&mut volume, Verdict::Consistent, &[(Slot(1), 81)], true);
        assert_eq!((found.written, found.mismatch_sectors), (8, 0), "{level}: {:?}", found.events);
    }
}

/// It neither agrees nor can it be repaired: that is said, of no more than that.
#[test]
fn what_too_few_members_give_is_counted_as_unread() {
    for (level, members, bad) in [
        (Level::Raid1, 2, 2),
        (Level::Raid1, 3, 3),
        (Level::Raid4, 4, 2),
        (Level::Raid5, 4, 2),
        (Level::Raid6, 5, 3),
        (Level::Raid10, 4, 2),
    ] {
        for read_only in [false, true] {
            let config =
                VolumeConfig { read_only, ..VolumeConfig::new(spec(level, members), Policy::stripewise()) };
            let check = |bad: u16| {
                let refused: Vec<(Slot, u64)> = (0..bad).map(|slot| (Slot(slot), 81)).collect();
                let mut volume = Volume::new(&config).unwrap();
                checked_but(&mut volume, Verdict::Consistent, &refused, !read_only)
            };
            let found = check(bad);
            let counts = (found.mismatch_sectors, found.unread_sectors, found.written);
            assert_eq!(counts, (8, 8, 0), "{level} of {members}, {bad} refuse, read-only {read_only}");
            let found = check(bad - 1);
            assert_eq!(
                (found.mismatch_sectors, found.unread_sectors),
                (0, 0),
                "{level} of {members}, {bad} less one"
            );
        }
    }
}

/// As in Linux: what is left has nothing to be compared with, and the array can be left clean.
#[test]
fn a_resync_is_over_when_no_redundancy_is_left() {
    let arrays = [(Level::Raid5, 4, 1), (Level::Raid6, 5, 2), (Level::Raid1, 2, 1), (Level::Raid1, 3, 2)];
    for (level, members, failures) in arrays {
        // At work by itself, it would have ended before the second failure.
        for start in [false, true].into_iter().take(3 - failures) {
            let sync = SyncConfig { start, ..SyncConfig::DEFAULT };
            let new = VolumeConfig::new(spec(level, members), Policy::stripewise());
            let config = VolumeConfig { sync, resync_from: Some(128), ..new };
            let mut volume = Volume::new(&config).unwrap();
            for failed in 0..failures {
                assert!(volume.resync_due_from().is_some(), "{level} without {failed}");
                command(&mut volume, AdminCommand::Fail(Slot(failed as u16)), 64);
            }
            assert_eq!(volume.resync_due_from(), None, "{level}, at work by itself: {start}");
            let action = volume.sync_status().unwrap().action;
            assert!(matches!(action, SyncAction::Idle | SyncAction::Frozen), "{level}: {action:?}");
        }
    }
}

#[test]
fn a_spare_takes_the_slot_of_a_member_that_fails() {
    for level in [Level::Raid1, Level::Raid5, Level::Raid6, Level::Raid10] {
        let mut volume = volume(level, 4, 1);
        let (reply, events) = command(&mut volume, AdminCommand::Fail(Slot(2)), 1_000_000);
        assert_eq!(reply, AdminReply::Done);
        let expected = [
            ArrayEvent::MemberFailed { slot: Slot(2) },
            ArrayEvent::SyncStarted(SyncAction::Recover),
            ArrayEvent::MemberInSync { slot: Slot(2) },
            ArrayEvent::SyncDone(SyncAction::Recover),
        ];
        assert_eq!(events, expected, "{level}");
        assert_eq!(volume.member_of(Slot(2)), Some(MemberIndex(4)));
        assert_eq!(volume.recovered_sectors(Slot(2)), None);
    }
}

/// Sectors that each member of a RAID-6 of five gives for the recovery of another.
fn read_to_recover(policy: Policy) -> Vec<u64> {
    let config = VolumeConfig { spares: 1, ..VolumeConfig::new(spec(Level::Raid6, 5), policy) };
    let mut volume = Volume::new(&config).unwrap();
    let mut read = vec![0; 6];
    let fail = Input::Admin { id: 1, command: AdminCommand::Fail(Slot(1)) };
    drive(&mut volume, fail, |action, inputs| match action {
        Action::Io(io) => {
            if io.op == Op::Read {
                read[io.member.0 as usize] += io.range.count;
            }
            inputs.push_back(Input::IoDone { tag: io.tag, result: Ok(()) });
        }
        Action::Compute(c) => inputs.push_back(Input::Computed { tag: c.tag, verdict: Verdict::Consistent }),
        _ => {}
    });
    read
}

#[test]
fn md_reads_all_members_of_a_raid_6_to_recover_one() {
    // As far as it comes before it rests, for which no time passes here.
    let whole = read_to_recover(Policy::linux_6_1());
    let each = whole[0];
    assert!(each > 0);
    assert_eq!(whole, [each, 0, each, each, each, 0]);
    let needed: u64 = read_to_recover(Policy::stripewise()).iter().sum();
    assert_eq!(needed, 3 * SECTORS, "as many as there are data");
}

#[test]
fn what_is_written_back_is_not_read_again_from_a_member_that_took_the_slot_since() {
    for level in [Level::Raid1, Level::Raid5, Level::Raid6, Level::Raid10] {
        let mut volume = volume(level, 4, 1);
        let spare = MemberIndex(4);
        let range = SectorRange::new(0, 8);
        let read = Request { id: RequestId(0), op: Op::Read, range, flags: Flags::default() };
        let (mut first, mut failed) = (None, false);
        drive(&mut volume, Input::Request(read), |action, inputs| match *action {
            Action::Io(io) => {
                assert!(io.member != spare || io.op == Op::Write, "{level}: {io:?} before it is filled");
                let bad = *first.get_or_insert(io.member);
                let is_bad = io.member == bad && io.op == Op::Read && !failed;
                if io.member == bad && io.op == Op::Write && !failed {
                    failed = true;
                    inputs.push_back(Input::Admin { id: 0, command: AdminCommand::Fail(Slot(bad.0)) });
                }
                let result = if is_bad { Err(IoError::Media) } else { Ok(()) };
                inputs.push_back(Input::IoDone { tag: io.tag, result });
            }
            Action::Compute(c) => {
                inputs.push_back(Input::Computed { tag: c.tag, verdict: Verdict::Consistent });
            }
            Action::Complete { result, .. } => assert_eq!(result, Ok(()), "{level}"),
            Action::Replied { .. } | Action::Event(_) => {}
        });
        assert!(failed, "{level}: it was written back");
        let slot = Slot(first.unwrap().0);
        assert_eq!((volume.member_of(slot), volume.recovered_sectors(slot)), (Some(spare), None), "{level}");
    }
}

/// A recovery's second job cannot be had, and its first ends when so much is out that nothing more is written.
#[test]
fn what_an_array_that_failed_did_not_write_does_not_count_as_recovered() {
    for level in [Level::Raid1, Level::Raid5, Level::Raid10] {
        let members = if level == Level::Raid1 { 2 } else { 4 };
        let mut volume = volume(level, members, 1);
        let (writes, first_read) = (Cell::new(0), Cell::new(None));
        let answer = |action: &Action, inputs: &mut VecDeque<Input>| match *action {
            Action::Io(io) if io.op == Op::Read && first_read.get().is_none() => first_read.set(Some(io.tag)),
            Action::Io(io) => {
                writes.update(|writes| writes + u64::from(io.op == Op::Write));
                let result = if io.op == Op::Read { Err(IoError::Media) } else { Ok(()) };
                inputs.push_back(Input::IoDone { tag: io.tag, result });
            }
            Action::Compute(c) => {
                inputs.push_back(Input::Computed { tag: c.tag, verdict: Verdict::Consistent });
            }
            Action::Complete { .. } | Action::Replied { .. } | Action::Event(_) => {}
        };
        drive(&mut volume, Input::Admin { id: 0, command: AdminCommand::Fail(Slot(1)) }, answer);
        // The first read of the jobs is answered last, and by a member that is gone.
        let tag = first_read.get().expect("another member is read");
        drive(&mut volume, Input::IoDone { tag, result: Err(IoError::Gone) }, answer);
        assert_eq!(writes.get(), 0, "{level}");
        assert_eq!(volume.recovered_sectors(Slot(1)), Some(0), "{level}");
    }
}

/// A member may have been written to since, where it could not be read.
#[test]
fn a_recovery_that_was_given_up_begins_again_when_it_is_asked_to() {
    for (asked, begins) in
        [(SyncAction::Idle, true), (SyncAction::Recover, true), (SyncAction::Frozen, false)]
    {
        let mut volume = volume(Level::Raid1, 2, 1);
        let fail = Input::Admin { id: 0, command: AdminCommand::Fail(Slot(1)) };
        let mut events = Vec::new();
        drive(&mut volume, fail, |action, inputs| match *action {
            Action::Io(io) => {
                let result = if io.op == Op::Read { Err(IoError::Media) } else { Ok(()) };
                inputs.push_back(Input::IoDone { tag: io.tag, result });
            }
            Action::Event(event) => events.push(event),
            _ => {}
        });
        let is_given_up =
            |event: &ArrayEvent| matches!(event, ArrayEvent::SyncFailed { action: SyncAction::Recover, .. });
        assert!(events.last().is_some_and(is_given_up), "{events:?}");
        let started = [ArrayEvent::SyncStarted(SyncAction::Recover)];
        let expected = if begins { &started[..] } else { &[] };
        assert_eq!(command(&mut volume, AdminCommand::Sync(asked), 0).1, expected, "{asked:?}");
    }
}

/// Whether the next window may begin after so many milliseconds and sectors done, with others' sectors meanwhile.
fn goes_on(limits: SpeedLimits, ms: u64, done: u64, others: u64) -> bool {
    let geometry = Geometry::new(&spec(Level::Raid5, 3)).unwrap();
    let mut core = Core::new(geometry, Policy::stripewise(), false, 0);
    let mut speed = Speed::new(limits);
    speed.start(&core);
    core.now = Instant::ZERO + Nanos::from_millis(ms);
    core.foreground_sectors[1] += others;
    speed.may_begin(&core, done, done, true)
}

/// As md since 4.1: beside others what is under way ends first, and nothing is waited for but that.
#[test]
fn above_the_least_speed_beside_others_what_is_under_way_ends_first() {
    let geometry = Geometry::new(&spec(Level::Raid5, 3)).unwrap();
    let mut core = Core::new(geometry, Policy::linux_6_1(), false, 0);
    let mut speed = Speed::new(SpeedLimits { min_kib: 1_000, max_kib: 10_000 });
    speed.start(&core);
    core.now = Instant::ZERO + Nanos::from_millis(9_000);
    core.foreground_sectors[1] += 65;
    assert!(!speed.may_begin(&core, 40_000, 39_000, true), "others are busy");
    assert!(!speed.may_begin(&core, 40_000, 39_900, true) && speed.paused_until().is_none());
    assert!(speed.may_begin(&core, 40_000, 40_000, true), "all has ended");
    assert!(speed.may_begin(&core, 40_128, 40_000, true), "until the next look");
    core.foreground_sectors[1] += 65;
    assert!(!speed.may_begin(&core, 40_256, 40_000, true), "they are busy again");
    assert!(speed.may_begin(&core, 40_256, 40_256, true));
    assert!(
        !speed.may_begin(&core, 400_000, 400_000, true) && speed.paused_until().is_some(),
        "above the greatest"
    );
}

/// md counts all that ended, less what it began itself: what it has under way is missing.
#[test]
fn what_is_under_way_is_taken_from_what_others_did() {
    let geometry = Geometry::new(&spec(Level::Raid5, 3)).unwrap();
    let mut core = Core::new(geometry, Policy::linux_6_1(), false, 0);
    let mut speed = Speed::new(SpeedLimits { min_kib: 1_000, max_kib: 10_000 });
    speed.start(&core);
    core.now = Instant::ZERO + Nanos::from_millis(9_000);
    core.foreground_sectors[1] += 500;
    core.own_sectors[1] = 436;
    assert!(speed.may_begin(&core, 40_000, 39_000, true), "64 more than at the start");
    core.own_sectors[1] = 435;
    assert!(!speed.may_begin(&core, 40_256, 39_000, true), "65 more");
    core.own_sectors[1] = 500;
    assert!(speed.may_begin(&core, 40_512, 40_512, true), "65 fewer than then");
    assert!(!speed.may_begin(&core, 40_768, 40_512, false), "what is under way does not count");
}

/// On levels of copies, as md: no request is let in while any of the array's own work is under way, and that begins when the
/// requests that were let in have ended.
#[test]
fn under_mds_policies_requests_and_own_work_take_turns_on_copies() {
    let read = |id| {
        let range = SectorRange::new(SECTORS - 128, 8);
        Input::Request(Request { id: RequestId(id), op: Op::Read, range, flags: Flags::default() })
    };
    let turns = |level, policy: Policy| {
        let config =
            VolumeConfig { failed: vec![Slot(3)], spares: 1, ..VolumeConfig::new(spec(level, 4), policy) };
        let mut volume = Volume::new(&config).unwrap();
        let mut handle = |input| {
            let mut out = ActionQueue::default();
            volume.handle(Instant::ZERO, input, &mut out);
            out.actions
        };
        let ios = |actions: &[Action]| -> Vec<Input> {
            let ended = |action: &Action| match action {
                Action::Io(io) => Some(Input::IoDone { tag: io.tag, result: Ok(()) }),
                _ => None,
            };
            actions.iter().filter_map(ended).collect()
        };
        let own = ios(&handle(Input::Timer));
        assert!(!own.is_empty(), "the recovery begins");
        let asked = ios(&handle(read(7)));
        if !asked.is_empty() {
            return false;
        }
        // All of its own work ends, and the read is let in before more of it begins.
        let (mut left, mut next) = (VecDeque::from(own), None);
        while let Some(input) = left.pop_front() {
            let begun = ios(&handle(input));
            if left.is_empty() && begun.len() == 1 {
                next = begun.into_iter().next();
                break;
            }
            left.extend(begun);
        }
        let answer = handle(next.expect("the read's"));
        assert!(answer.iter().any(|a| matches!(a, Action::Complete { id: RequestId(7), result: Ok(()) })));
        true
    };
    assert!(turns(Level::Raid10, Policy::linux_6_1()));
    assert!(turns(Level::Raid10, Policy::linux_2_6_18()));
    assert!(turns(Level::Raid1, Policy::linux_3_2()));
    assert!(!turns(Level::Raid1, Policy::linux_6_1()));
    assert!(!turns(Level::Raid10, Policy::stripewise()));
}

/// md's thread that slept until its turn came begins one piece; who was woken with it has asked for the next turn by then.
#[test]
fn own_work_that_waited_for_its_turn_begins_one_piece() {
    let config = VolumeConfig {
        failed: vec![Slot(3)],
        spares: 1,
        ..VolumeConfig::new(spec(Level::Raid10, 4), Policy::linux_6_1())
    };
    let mut volume = Volume::new(&config).unwrap();
    let mut ios = |now, input| -> Vec<Tag> {
        let mut out = ActionQueue::default();
        volume.handle(now, input, &mut out);
        let tag = |action: &Action| match action {
            Action::Io(io) => Some(io.tag),
            _ => None,
        };
        out.actions.iter().filter_map(tag).collect()
    };
    let range = SectorRange::new(0, 8);
    let read = Request { id: RequestId(1), op: Op::Read, range, flags: Flags::default() };
    let asked = ios(Instant::ZERO, Input::Request(read));
    assert_eq!(ios(Instant::ZERO, Input::Timer), [], "it waits for the read");
    let first = ios(Instant(1), Input::IoDone { tag: asked[0], result: Ok(()) });
    assert_eq!(first.len(), 1);
    // Members may take no time at all.
    let written = ios(Instant(1), Input::IoDone { tag: first[0], result: Ok(()) });
    assert_eq!(written.len(), 1);
    let more = ios(Instant(1), Input::IoDone { tag: written[0], result: Ok(()) });
    assert!(more.len() > 2, "nobody came: the pieces that follow");
}

#[test]
fn speed_is_full_when_idle_least_under_load_and_never_above_the_greatest() {
    let limits = SpeedLimits { min_kib: 1_000, max_kib: 10_000 };
    // After 9 s, as md counts with a second more: 20,000 KiB are 2,000 KiB/s, 5,000 are 500, 200,000 are 20,000.
    assert!(goes_on(limits, 9_000, 40_000, 0), "idle, between the bounds");
    assert!(!goes_on(limits, 9_000, 40_000, 65), "above the least, and others are busy");
    assert!(goes_on(limits, 9_000, 40_000, 64), "so few sectors count as idle");
    assert!(goes_on(limits, 9_000, 10_000, 1_000_000), "below the least, whatever others do");
    assert!(!goes_on(limits, 9_000, 400_000, 0), "above the greatest, even idle");
}
