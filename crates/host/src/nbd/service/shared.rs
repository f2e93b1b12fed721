//! What the shards of a server share.

use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use stripewise_engine::io::ArrayEvent;
use stripewise_engine::units::{Instant, Nanos, Slot};

use super::super::control::ServeStatus;
use super::super::export::Export;
use super::super::server::ServeConfig;
use crate::clock::Clock;
use crate::manage::ArrayStatus;
use crate::route::Router;

/// A client's socket, and how many clients came before.
pub(super) type Dealt = (OwnedFd, u32);

/// What the shards of a server share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) export: Export,
    pub(crate) config: ServeConfig,
    /// Somebody is there who changes the array.
    pub(super) may_change: bool,
    /// By how much the server's clock is ahead of the array's, which begins anew when the array is opened again.
    clock_ahead: Nanos,
    pub(super) router: Router,
    /// Clients dealt to a shard that has not yet taken them.
    pub(super) dealt: Vec<Mutex<Vec<Dealt>>>,
    /// Failures that the owner was told of, where several shards hear of each.
    pub(super) said: Mutex<Vec<ArrayEvent>>,
    /// Slots of which the owner was told that their member had an error and stays in use.
    pub(super) had_errors: Mutex<Vec<Slot>>,
    pub(super) connections: AtomicUsize,
    pub(super) connections_total: AtomicU64,
    pub(super) requests: AtomicU64,
    pub(super) read_bytes: AtomicU64,
    pub(super) write_bytes: AtomicU64,
}

impl Shared {
    pub(crate) fn new(
        export: Export,
        config: ServeConfig,
        may_change: bool,
        router: Router,
        shards: usize,
    ) -> Self {
        Self {
            export,
            config,
            may_change,
            clock_ahead: Nanos(0),
            router,
            dealt: (0..shards).map(|_| Mutex::default()).collect(),
            said: Mutex::default(),
            had_errors: Mutex::default(),
            connections: AtomicUsize::new(0),
            connections_total: AtomicU64::new(0),
            requests: AtomicU64::new(0),
            read_bytes: AtomicU64::new(0),
            write_bytes: AtomicU64::new(0),
        }
    }

    /// The array was opened anew.
    pub(crate) fn renew(&mut self, export: Export, router: Router, clock_ahead: Nanos) {
        (self.export, self.router, self.clock_ahead) = (export, router, clock_ahead);
        self.had_errors.get_mut().unwrap_or_else(PoisonError::into_inner).clear();
    }

    /// The time since the server's first array was opened.
    pub(super) fn time(&self, clock: Clock) -> Instant {
        clock.now() + self.clock_ahead
    }

    pub(crate) fn status(&self, array: ArrayStatus) -> ServeStatus {
        ServeStatus {
            connections: self.connections.load(Ordering::Relaxed) as u64,
            connections_total: self.connections_total.load(Ordering::Relaxed),
            requests: self.requests.load(Ordering::Relaxed),
            read_bytes: self.read_bytes.load(Ordering::Relaxed),
            write_bytes: self.write_bytes.load(Ordering::Relaxed),
            failed: array.failed.clone(),
            array,
        }
    }

    pub(super) fn is_one_shard(&self) -> bool {
        self.dealt.len() == 1
    }

    pub(super) fn take_dealt(&self, shard: usize) -> Vec<Dealt> {
        std::mem::take(&mut *self.dealt[shard].lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub(super) fn has_dealt(&self, shard: usize) -> bool {
        !self.dealt[shard].lock().unwrap_or_else(PoisonError::into_inner).is_empty()
    }
}
