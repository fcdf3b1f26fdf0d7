//! Where the answers of a connection go out, and when.
//!
//! A thread that answers many requests in one go says so ([`gather`]): what is answered meanwhile goes out together at
//! the end, on that thread, as far as nobody has to be waited for. Anywhere else an answer is left to a thread of the
//! connection.
//!
//! Invariant: an outlet that was told to be pushed is pushed before the thread that gathers rests.

use std::cell::RefCell;
use std::sync::Arc;

/// A connection's way out.
pub trait Outlet: Send + Sync {
    /// Sends what has gathered. Never waits: what does not go out at once is left to others.
    fn push(&self);
}

thread_local! {
    /// The outlets that have something, while this thread gathers.
    static GATHERED: RefCell<Option<Vec<Arc<dyn Outlet>>>> = const { RefCell::new(None) };
}

/// Runs `work`; then pushes the outlets that were told to be pushed later.
pub fn gather<T>(work: impl FnOnce() -> T) -> T {
    GATHERED.with_borrow_mut(|gathered| _ = gathered.get_or_insert_default());
    let result = work();
    push_all();
    result
}

/// Pushes the outlets that were told to be pushed later, now.
pub fn push_all() {
    let gathered = GATHERED.with_borrow_mut(|gathered| gathered.as_mut().map(std::mem::take));
    gathered.into_iter().flatten().for_each(|outlet| outlet.push());
}

/// Has `outlet` pushed when this thread has done what it does. `false`: it does not gather.
pub fn push_later(outlet: &Arc<impl Outlet + 'static>) -> bool {
    GATHERED.with_borrow_mut(|gathered| {
        let Some(gathered) = gathered else { return false };
        let known = |other: &Arc<dyn Outlet>| Arc::as_ptr(other).addr() == Arc::as_ptr(outlet).addr();
        if !gathered.iter().any(known) {
            gathered.push(outlet.clone());
        }
        true
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    #[derive(Default)]
    struct Counts(AtomicUsize);

    impl Outlet for Counts {
        fn push(&self) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn an_outlet_is_pushed_once_when_the_thread_has_done_what_it_does_and_a_thread_that_does_not_gather_says_so() {
        let outlets = [Arc::new(Counts::default()), Arc::new(Counts::default())];
        let pushed = || outlets.each_ref().map(|outlet| outlet.0.load(Ordering::Relaxed));
        std::thread::scope(|scope| scope.spawn(|| assert!(!push_later(&outlets[0]))).join().unwrap());
        gather(|| {
            assert!(push_later(&outlets[0]) && push_later(&outlets[0]));
            assert_eq!(pushed(), [0, 0]);
        });
        assert_eq!(pushed(), [1, 0]);
        gather(|| assert!(push_later(&outlets[1])));
        assert_eq!(pushed(), [1, 1]);
    }
}
