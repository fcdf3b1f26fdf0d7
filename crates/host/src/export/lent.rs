//! What disks gave, lent to whoever sends it: memory that the engine wants back, from whichever thread.
//!
//! Invariant: what lies here unused is bounded, for all clients together; the rest goes back to the allocator.

use std::ops::Deref;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use weft_engine::io::IoSlice;

/// Bytes of slices that wait to be fetched, at most.
const WAITING_MAX: usize = 8 << 20;

/// Bytes that a disk gave. Dropping them gives them back.
#[derive(Debug)]
pub struct Lent {
    // `None` only while it is being dropped.
    slice: Option<IoSlice>,
    home: Arc<Returns>,
}

/// Where slices come back to, for the engine's thread to fetch.
#[derive(Default, Debug)]
pub struct Returns(Mutex<Waiting>);

#[derive(Default, Debug)]
struct Waiting {
    slices: Vec<IoSlice>,
    bytes: usize,
}

impl Lent {
    /// `slice`, to come back to `home`.
    pub fn new(slice: IoSlice, home: &Arc<Returns>) -> Lent {
        Lent { slice: Some(slice), home: home.clone() }
    }
}

impl Deref for Lent {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        self.slice.as_deref().unwrap_or_default()
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        let Some(slice) = self.slice.take() else { return };
        let mut waiting = self.home.lock();
        // Some go by while others hold parts of the same buffer: the last one gives it back.
        if waiting.bytes + slice.len() <= WAITING_MAX {
            waiting.bytes += slice.len();
            waiting.slices.push(slice);
        }
    }
}

impl Returns {
    /// What has come back.
    pub fn fetch(&self) -> Vec<IoSlice> {
        let mut waiting = self.lock();
        waiting.bytes = 0;
        std::mem::take(&mut waiting.slices)
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weft_engine::io::Buf;

    #[test]
    fn what_is_sent_comes_back_but_never_more_than_may_wait() {
        let home = Arc::new(Returns::default());
        let lend = |len: usize| Lent::new(Buf::zeroed(len).freeze(), &home);
        let (one, other) = (lend(4096), lend(8192));
        assert_eq!((one.len(), home.fetch().len()), (4096, 0));
        std::thread::spawn(move || drop((one, other))).join().unwrap();
        let lens: Vec<usize> = home.fetch().iter().map(|slice| slice.len()).collect();
        assert_eq!(lens, [4096, 8192]);
        (0..3 * WAITING_MAX / (1 << 20)).for_each(|_| drop(lend(1 << 20)));
        assert_eq!(home.fetch().len(), WAITING_MAX / (1 << 20));
    }
}
