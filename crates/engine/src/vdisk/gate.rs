//! The gate of a virtual disk: while its stack of tables gets another newest one, what is counted in stripes means
//! something else before than after. No request may be in the middle of it: those that come wait for a moment.
//!
//! Invariants
//! 1. A request of a client is let in before it looks at the layout, and counts until it is answered.
//! 2. Whoever closes the gate opens it again, whatever comes of it; a virtual disk that was removed lets everybody in,
//!    to be refused.

use crate::sync::Signal;
use core::cell::Cell;

/// Who is inside, and whether others may come in.
#[derive(Default)]
pub(super) struct Gate {
    inside: Cell<u64>,
    closed: Cell<bool>,
    changed: Signal,
}

/// A request that is inside.
pub(super) struct Pass<'a>(&'a Gate);

/// A gate that is closed as long as this is held.
pub(crate) struct Closed<'a>(&'a Gate);

impl Gate {
    /// Waits until the gate is open, or there is no reason to wait any more.
    pub async fn enter(&self, is_over: impl Fn() -> bool) -> Pass<'_> {
        while self.closed.get() && !is_over() {
            self.changed.changed().await;
        }
        self.inside.set(self.inside.get() + 1);
        Pass(self)
    }

    /// Lets nobody in from now on.
    pub fn close(&self) -> Closed<'_> {
        self.closed.set(true);
        Closed(self)
    }

    /// Whether nobody is inside.
    pub fn is_empty(&self) -> bool {
        self.inside.get() == 0
    }

    /// Has whoever waits look again.
    pub fn notify(&self) {
        self.changed.notify();
    }
}

impl Drop for Pass<'_> {
    fn drop(&mut self) {
        self.0.inside.set(self.0.inside.get() - 1);
    }
}

impl Drop for Closed<'_> {
    fn drop(&mut self) {
        self.0.closed.set(false);
        self.0.changed.notify();
    }
}
