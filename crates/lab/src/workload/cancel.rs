//! Ending early what issues requests.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// A flag of the caller's that ends a workload once it is set; by itself it never is.
#[derive(Clone, Debug, Default)]
pub(crate) struct Cancel(Option<Arc<AtomicBool>>);

impl Cancel {
    pub(crate) const fn by(flag: Arc<AtomicBool>) -> Self {
        Self(Some(flag))
    }

    pub(crate) fn is_set(&self) -> bool {
        self.0.as_ref().is_some_and(|flag| flag.load(Ordering::Relaxed))
    }
}
