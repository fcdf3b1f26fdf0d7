//! How other threads wake the engine's thread: one flag, and one eventfd that is written only while that thread sleeps.
//!
//! Invariants
//! 1. No wake is lost: whoever rings *after* putting work where the sleeper looks either is seen by the sleeper's last
//!    look, or sees the flag and writes the eventfd. (The places are guarded by locks, which order look and put.)
//! 2. Ringing costs no system call while the engine's thread is awake, and one while it sleeps.

use rustix::event::{EventfdFlags, eventfd};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};

pub(crate) struct Alarm {
    asleep: AtomicBool,
    bell: OwnedFd,
}

impl Alarm {
    pub(crate) fn new() -> rustix::io::Result<Alarm> {
        Ok(Alarm { asleep: AtomicBool::new(false), bell: eventfd(0, EventfdFlags::CLOEXEC)? })
    }

    /// Wakes the engine's thread if it sleeps. Call after the work is where it looks.
    pub(crate) fn ring(&self) {
        if self.asleep.swap(false, Ordering::SeqCst) {
            self.strike();
        }
    }

    /// Makes the eventfd readable, asleep or not.
    pub(crate) fn strike(&self) {
        // It can only fail when 2^64 - 1 strikes were never read.
        let struck = rustix::io::write(&self.bell, &1u64.to_ne_bytes());
        debug_assert!(struck.is_ok());
    }

    /// The engine's thread is about to sleep; says whether it may (`quiet` is the last look at all places for work).
    pub(crate) fn doze(&self, quiet: impl Fn() -> bool) -> bool {
        self.asleep.store(true, Ordering::SeqCst);
        if quiet() {
            return true;
        }
        self.awake();
        false
    }

    /// The engine's thread is up again.
    pub(crate) fn awake(&self) {
        self.asleep.store(false, Ordering::SeqCst);
    }

    /// What to wait on while dozing; readable after [`Alarm::ring`]. It blocks: read it only when readable.
    pub(crate) fn bell(&self) -> BorrowedFd<'_> {
        self.bell.as_fd()
    }
}
