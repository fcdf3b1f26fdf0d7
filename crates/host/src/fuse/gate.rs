//! What may be under way at the same time: any number of whole-sector operations within a share of memory, or one write
//! of parts of sectors alone.
//!
//! Invariants
//! 1. While an [`Alone`] lives there is no [`Pass`], and the other way round.
//! 2. The bytes of all passes stay within the share, unless one exceeds it alone.
//! 3. Who waits for [`Gate::alone`] is let in before passes that come later.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

pub(super) struct Gate {
    bytes_max: usize,
    inside: Mutex<Inside>,
    left: Condvar,
}

#[derive(Default)]
struct Inside {
    passes: usize,
    bytes: usize,
    alone: bool,
    waiting_for_alone: usize,
}

/// Leave to have one operation under way; gone when it is dropped, on any thread.
pub(super) struct Pass {
    gate: Arc<Gate>,
    bytes: usize,
}

/// Leave to be the only one.
pub(super) struct Alone<'a>(&'a Gate);

impl Gate {
    /// A gate for operations of at most `bytes_max` bytes together.
    pub fn new(bytes_max: usize) -> Arc<Gate> {
        Arc::new(Gate { bytes_max, inside: Mutex::default(), left: Condvar::new() })
    }

    /// Waits until an operation that holds `bytes` may start.
    pub fn enter(self: &Arc<Self>, bytes: usize) -> Pass {
        let full = |inside: &mut Inside| {
            let too_much = inside.bytes > 0 && inside.bytes + bytes > self.bytes_max;
            inside.alone || inside.waiting_for_alone > 0 || too_much
        };
        let mut inside = self.wait_while(self.lock(), full);
        inside.passes += 1;
        inside.bytes += bytes;
        Pass { gate: self.clone(), bytes }
    }

    /// Waits until nothing is under way, and keeps it so.
    pub fn alone(&self) -> Alone<'_> {
        let mut inside = self.lock();
        inside.waiting_for_alone += 1;
        let mut inside = self.wait_while(inside, |inside| inside.alone || inside.passes > 0);
        inside.waiting_for_alone -= 1;
        inside.alone = true;
        Alone(self)
    }

    /// Waits until nothing is under way, at most for `timeout`; whether that is so.
    pub fn idle(&self, timeout: Duration) -> bool {
        let busy = |inside: &mut Inside| inside.alone || inside.passes > 0;
        let waited = self.left.wait_timeout_while(self.lock(), timeout, busy);
        !waited.unwrap_or_else(PoisonError::into_inner).1.timed_out()
    }

    fn wait_while<'a>(
        &self,
        inside: MutexGuard<'a, Inside>,
        condition: impl FnMut(&mut Inside) -> bool,
    ) -> MutexGuard<'a, Inside> {
        self.left.wait_while(inside, condition).unwrap_or_else(PoisonError::into_inner)
    }

    fn lock(&self) -> MutexGuard<'_, Inside> {
        self.inside.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Pass {
    fn drop(&mut self) {
        let mut inside = self.gate.lock();
        inside.passes -= 1;
        inside.bytes -= self.bytes;
        drop(inside);
        self.gate.left.notify_all();
    }
}

impl Drop for Alone<'_> {
    fn drop(&mut self) {
        self.0.lock().alone = false;
        self.0.left.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;
    use std::thread::{scope, yield_now};

    #[test]
    fn who_is_alone_is_let_in_when_all_left_and_before_those_who_come_later() {
        let gate = Gate::new(100);
        let first = gate.enter(10);
        let (told, order) = channel();
        scope(|scope| {
            let (here, said) = (gate.clone(), told.clone());
            scope.spawn(move || {
                let alone = here.alone();
                said.send("alone").unwrap();
                drop(alone);
            });
            while gate.lock().waiting_for_alone == 0 {
                yield_now();
            }
            let (here, said) = (gate.clone(), told.clone());
            scope.spawn(move || {
                let _pass = here.enter(1);
                said.send("later").unwrap();
            });
            assert!(order.try_recv().is_err());
            drop(first);
        });
        assert_eq!(order.try_iter().collect::<Vec<_>>(), ["alone", "later"]);
        assert!(gate.idle(Duration::ZERO));
    }

    #[test]
    fn the_share_holds_and_one_operation_may_exceed_it_alone() {
        let gate = Gate::new(100);
        let large = gate.enter(1000);
        assert!(!gate.idle(Duration::ZERO));
        scope(|scope| {
            let here = gate.clone();
            let waiting = scope.spawn(move || drop(here.enter(1)));
            assert_eq!(gate.lock().bytes, 1000);
            drop(large);
            waiting.join().unwrap();
        });
        let inside = gate.lock();
        assert_eq!((inside.passes, inside.bytes), (0, 0));
    }
}
