//! A drive that only takes its time: what its servers have in common. What a command moves is not kept, when it ends is
//! exact.
//!
//! # Contract
//! *Time.* A command ends when the drive says so, and begins when it has arrived, with its bytes. A server sleeps until
//! shortly before and then looks at the clock. *Bytes.* See [`Kept`]. *Order.* As the drive ends the commands. *Stopping.*
//! Clients are let go at once: there is nothing to be made durable.

mod kept;

use std::os::fd::RawFd;

use stripewise_engine::io::Op;
use stripewise_engine::units::{Instant, Nanos, SectorRange};

use crate::clock::Clock;

pub(crate) use kept::Kept;

/// How long before an end the server stops sleeping: the system wakes it late by about as much.
const AWAKE_BEFORE: Nanos = Nanos::from_micros(60);
/// How often the stop flag is looked at.
const LOOK_AT_STOP: Nanos = Nanos::from_millis(50);
/// Descriptors a server waits for at most.
const DESCRIPTORS_MAX: usize = 3;

/// A command to a drive that is served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DriveCommand {
    /// The server's handle.
    pub id: u32,
    /// What is asked.
    pub op: Op,
    /// Where.
    pub range: SectorRange,
    /// Acknowledged only when it is on the medium.
    pub fua: bool,
}

/// A drive that says when commands end. The time is the caller's and never goes back.
pub trait TimedDrive {
    /// Takes a command that arrived just now.
    fn submit(&mut self, now: Instant, command: DriveCommand);
    /// When something is due next.
    fn next_time(&self) -> Option<Instant>;
    /// Lets happen what is due; the commands that have ended are added to `ended`.
    fn advance(&mut self, now: Instant, ended: &mut Vec<u32>);
}

/// What is served.
#[derive(Clone, Copy, Debug)]
pub struct DriveExport<'a> {
    /// The export's name; clients may also use the empty name.
    pub name: &'a str,
    /// Its description.
    pub description: &'a str,
    /// Its size.
    pub sectors: u64,
    /// Bytes at the start, and at the end, that are kept.
    pub kept_bytes: [u64; 2],
    /// Whether it has a write cache that a power cut empties. Clients of another send neither flushes nor forced writes.
    pub volatile_cache: bool,
    /// What its medium is written by: a power of two, 512 or more. Only a virtual machine is told.
    pub physical_bytes: u64,
}

/// What a server of a drive did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DriveReport {
    /// Commands.
    pub commands: u64,
    /// Of which it learned the end later than it was by more than so many microseconds: 100, 1000.
    pub late: [u64; 2],
}

impl DriveReport {
    /// Lets happen in the drive what is due, and takes note of how late it is for that.
    pub(crate) fn advance(&mut self, clock: Clock, drive: &mut dyn TimedDrive, ended: &mut Vec<u32>) {
        let due = drive.next_time();
        let now = clock.now();
        if let Some(late) = due.filter(|due| *due <= now).map(|due| now.since(due)) {
            self.late[0] += u64::from(late > Nanos::from_micros(100));
            self.late[1] += u64::from(late > Nanos::from_micros(1000));
        }
        drive.advance(now, ended);
    }
}

/// How a server's thread waits: to the nanosecond, as far as the system goes.
#[derive(Debug)]
pub(crate) struct Pace(());

impl Pace {
    /// Has the system wake this thread when asked instead of within 50 µs of it.
    pub(crate) fn of_this_thread() -> Self {
        let one_nanosecond: libc::c_ulong = 1;
        // SAFETY: the call takes no pointers and concerns this thread alone.
        unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, one_nanosecond) };
        Self(())
    }

    /// Waits until one of at most [`DESCRIPTORS_MAX`] descriptors is readable, until shortly before something is due, or
    /// until the stop flag is to be looked at. Answers which are readable, by place.
    #[expect(clippy::unused_self, reason = "made where the thread was told to be precise")]
    pub(crate) fn wait(&self, clock: Clock, due: Option<Instant>, fds: &[RawFd]) -> [bool; DESCRIPTORS_MAX] {
        let now = clock.now();
        let left = due.map_or(LOOK_AT_STOP, |due| due.since(now.min(due)));
        let at_most = Nanos(left.0.saturating_sub(AWAKE_BEFORE.0)).min(LOOK_AT_STOP);
        readable(fds, at_most)
    }
}

/// Waits until a descriptor is readable, at most that long; negative ones are passed over.
fn readable(fds: &[RawFd], at_most: Nanos) -> [bool; DESCRIPTORS_MAX] {
    let mut polls = [libc::pollfd { fd: -1, events: libc::POLLIN, revents: 0 }; DESCRIPTORS_MAX];
    for (poll, &fd) in polls.iter_mut().zip(fds) {
        poll.fd = fd;
    }
    let timeout = libc::timespec {
        tv_sec: (at_most.0 / 1_000_000_000) as libc::time_t,
        tv_nsec: (at_most.0 % 1_000_000_000) as libc::c_long,
    };
    let count = DESCRIPTORS_MAX as libc::nfds_t;
    // SAFETY: both structures are locals, of that many elements; no signal mask is given.
    let found = unsafe { libc::ppoll(polls.as_mut_ptr(), count, &raw const timeout, std::ptr::null()) };
    // Interrupted: nothing is known of the descriptors.
    polls.map(|poll| found > 0 && poll.revents != 0)
}
