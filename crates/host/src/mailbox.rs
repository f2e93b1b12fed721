//! Messages between shards, and waking a shard that sleeps.
//!
//! *Bound.* A mailbox holds at most the parts of all requests in flight, which workloads bound, and one
//! message per member and shard. *Order.* Messages of one sender arrive in order.

use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use stripewise_engine::io::{Flags, IoResult, Op};
use stripewise_engine::units::{Nanos, SectorRange, Slot};

use crate::error::HostError;
use crate::report::MemberError;

/// The buffer of a part, which stays the sender's.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PartBuffer {
    pub(crate) base: *mut u8,
    pub(crate) bytes: u64,
    /// What is read may be left where it lies, in [`crate::loans`]: whoever asks looks there.
    pub(crate) takes_loans: bool,
}

// SAFETY: the sender keeps the buffer alive and leaves it alone until the part is answered.
unsafe impl Send for PartBuffer {}

/// What one shard tells another.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Message {
    /// Serve this part of a request.
    Part {
        op: Op,
        range: SectorRange,
        flags: Flags,
        buffer: PartBuffer,
        /// The shard to answer.
        from: u32,
        /// The sender's handle.
        whole: u32,
    },
    /// A part has ended.
    PartDone { whole: u32, result: IoResult },
    /// The member failed in another shard.
    Failed(Slot, Option<MemberError>),
}

/// A shard's incoming messages.
#[derive(Debug)]
pub(crate) struct Mailbox {
    messages: Mutex<Vec<Message>>,
    filled: AtomicBool,
    sleeping: AtomicBool,
    /// Wake-ups that are still to be collected: who wakes clears the flag first, and may write later.
    owed: AtomicU64,
    wake: OwnedFd,
}

impl Mailbox {
    pub(crate) fn new() -> Result<Self, HostError> {
        // SAFETY: the call takes no pointers.
        let fd = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
        if fd < 0 {
            let errno = std::io::Error::last_os_error().raw_os_error().unwrap_or(libc::EMFILE);
            return Err(HostError::Wake { errno });
        }
        // SAFETY: the descriptor was just opened and is owned by nothing else.
        let wake = unsafe { OwnedFd::from_raw_fd(fd) };
        Ok(Self {
            messages: Mutex::new(Vec::new()),
            filled: AtomicBool::new(false),
            sleeping: AtomicBool::new(false),
            owed: AtomicU64::new(0),
            wake,
        })
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Message>> {
        self.messages.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Moves messages here and wakes the shard if it sleeps.
    pub(crate) fn deliver(&self, messages: &mut Vec<Message>) {
        self.lock().append(messages);
        self.filled.store(true, Ordering::SeqCst);
        self.wake_if_asleep();
    }

    /// Wakes the shard if it sleeps, so that it looks at the state shared by the shards again.
    pub(crate) fn wake_if_asleep(&self) {
        // Either this sees the flag that `fall_asleep` set, or `fall_asleep` sees what was stored before:
        // both sides store, then load, in one total order.
        if self.sleeping.swap(false, Ordering::SeqCst) {
            let one = 1u64;
            // SAFETY: writes eight bytes of a local. A full counter means that a wake-up is pending.
            unsafe { libc::write(self.wake.as_raw_fd(), (&raw const one).cast(), 8) };
        }
    }

    /// Takes the messages into `into`, which must be empty.
    pub(crate) fn take(&self, into: &mut Vec<Message>) {
        if self.filled.swap(false, Ordering::SeqCst) {
            std::mem::swap(&mut *self.lock(), into);
        }
    }

    /// Whether there are messages to take.
    pub(crate) fn is_filled(&self) -> bool {
        self.filled.load(Ordering::Relaxed)
    }

    /// Drops all messages: the buffers they name are gone.
    pub(crate) fn clear(&self) {
        self.filled.store(false, Ordering::SeqCst);
        self.lock().clear();
    }

    /// Announces sleep; answers whether the shard may sleep, that is, no message has come in between.
    pub(crate) fn fall_asleep(&self) -> bool {
        self.sleeping.store(true, Ordering::SeqCst);
        if self.filled.load(Ordering::SeqCst) {
            self.awake();
            return false;
        }
        true
    }

    /// Ends sleep and forgets wake-ups. One that has yet to be written is collected after the next sleep, which it ends;
    /// left where it is it would end every sleep.
    pub(crate) fn awake(&self) {
        let is_woken = !self.sleeping.swap(false, Ordering::SeqCst);
        // Only the sleeper counts.
        let owed = self.owed.load(Ordering::Relaxed) + u64::from(is_woken);
        let mut count = 0u64;
        if owed > 0 {
            // SAFETY: reads eight bytes into a local, or nothing; the descriptor does not block.
            unsafe { libc::read(self.wake.as_raw_fd(), (&raw mut count).cast(), 8) };
        }
        self.owed.store(owed.saturating_sub(count), Ordering::Relaxed);
    }

    /// Sleeps until a wake-up or the end of the time, for shards without a ring.
    pub(crate) fn sleep(&self, timeout: Nanos) {
        let mut poll = libc::pollfd { fd: self.wake.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        let timeout = libc::timespec {
            tv_sec: (timeout.0 / 1_000_000_000) as _,
            tv_nsec: (timeout.0 % 1_000_000_000) as _,
        };
        // SAFETY: both pointers are to locals. Whatever ends the sleep, the caller looks around anew.
        unsafe { libc::ppoll(&raw mut poll, 1, &raw const timeout, std::ptr::null()) };
    }

    /// The descriptor that becomes readable when the shard is woken.
    pub(crate) fn wake_fd(&self) -> RawFd {
        self.wake.as_raw_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_readable(mailbox: &Mailbox) -> bool {
        let mut poll = libc::pollfd { fd: mailbox.wake_fd(), events: libc::POLLIN, revents: 0 };
        // SAFETY: one local.
        unsafe { libc::poll(&raw mut poll, 1, 0) == 1 }
    }

    #[test]
    fn a_wake_up_ends_one_sleep() {
        let mailbox = Mailbox::new().unwrap();
        assert!(mailbox.fall_asleep());
        mailbox.wake_if_asleep();
        assert!(is_readable(&mailbox));
        mailbox.awake();
        mailbox.wake_if_asleep();
        assert!(!is_readable(&mailbox), "nobody sleeps");
    }

    #[test]
    fn a_wake_up_that_is_written_late_ends_one_sleep_more() {
        let mailbox = Mailbox::new().unwrap();
        assert!(mailbox.fall_asleep());
        assert!(mailbox.sleeping.swap(false, Ordering::SeqCst), "somebody is about to write");
        mailbox.awake();
        let one = 1u64;
        // SAFETY: writes eight bytes of a local.
        unsafe { libc::write(mailbox.wake_fd(), (&raw const one).cast(), 8) };
        assert!(mailbox.fall_asleep());
        assert!(is_readable(&mailbox));
        mailbox.awake();
        assert!(!is_readable(&mailbox), "the next sleep lasts");
        assert!(mailbox.fall_asleep());
        mailbox.wake_if_asleep();
        mailbox.awake();
        assert!(!is_readable(&mailbox));
    }
}
