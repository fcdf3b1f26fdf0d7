//! Memory for the bytes of requests.
//!
//! Invariants
//! 1. Buffers have few lengths, so that what comes back is what is asked for next; at most a third of one lies idle.
//! 2. A pool that many threads share takes its memory on one thread. An allocator gives every thread pages of its own,
//!    of up to 4 MiB for a buffer of 128 KiB: 200 connections with one such buffer each took 1.2 GiB.
//! 3. What is let go can leave the process: that thread ends when nobody asks. As long as it lives the allocator keeps
//!    pages for it, also those whose buffers have all come back, on other threads.

use std::collections::{BTreeMap, VecDeque};
use std::ops::{Deref, DerefMut};
use std::sync::mpsc::{Sender, SyncSender, channel, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;
use weft_engine::io::Buf;
use weft_engine::units::BLOCK;

/// Bytes of a long request that lie in one piece of memory: what the allocator finds room for again and again.
pub const PART: usize = 4 << 20;
/// What is longer is a page of its own, whichever thread asks for it.
const SHARES_A_PAGE: usize = 512 << 10;
/// The stack of a thread that does nothing but ask for memory.
const STACK: usize = 128 << 10;
/// How long it waits for the next who needs some.
const IDLE: Duration = Duration::from_millis(100);

/// The bytes of a write or a read, in memory that goes back to its [`PayloadPool`] when it is dropped.
pub struct Payload {
    // `None` only while it is being dropped.
    buf: Option<Buf>,
    len: usize,
    home: Option<Arc<PayloadPool>>,
}

/// Buffers that were used and will be used again, so that a stream of requests neither allocates nor clears memory.
pub struct PayloadPool {
    kept: Mutex<Kept>,
    kept_max: usize,
    /// The thread that asks for memory; `None`: each thread does so itself.
    source: Option<Source>,
}

/// A thread that asks for memory, while there is need for it: where orders go.
#[derive(Default)]
struct Source(Mutex<Option<Sender<Order>>>);

/// The length that is asked for, and where the memory is waited for.
type Order = (usize, SyncSender<Buf>);

/// Unused buffers. Of each length the last to come back is the first to be used again; the first to have come back
/// makes room.
#[derive(Default)]
struct Kept {
    by_length: BTreeMap<usize, VecDeque<(u64, Buf)>>,
    bytes: usize,
    /// The number of the next that comes back.
    next: u64,
}

impl PayloadPool {
    /// A pool for one thread, or a few, that keeps at most `kept_max` unused bytes.
    pub fn new(kept_max: usize) -> Arc<PayloadPool> {
        Arc::new(PayloadPool { kept: Mutex::default(), kept_max, source: None })
    }

    /// A pool for hundreds of threads (invariant 2).
    pub fn of_many_threads(kept_max: usize) -> Arc<PayloadPool> {
        Arc::new(PayloadPool { kept: Mutex::default(), kept_max, source: Some(Source::default()) })
    }

    /// `len` bytes of whatever was in them before.
    pub fn take(self: &Arc<Self>, len: usize) -> Payload {
        let length = length_for(len);
        let kept = self.kept().take(length);
        let buf = kept.or_else(|| self.ordered(length)).unwrap_or_else(|| Buf::zeroed(length));
        Payload { buf: Some(buf), len, home: Some(self.clone()) }
    }

    /// A buffer that the pool's thread asked for; `None` where there is none, or it would make no difference.
    fn ordered(&self, length: usize) -> Option<Buf> {
        let source = self.source.as_ref().filter(|_| length <= SHARES_A_PAGE)?;
        // It may have ended just now; then another one is asked.
        (0..2).find_map(|_| source.ask(length))
    }

    /// Lets unused buffers go, those first that were not used for the longest time, until `max` bytes are left.
    pub fn shrink(&self, max: usize) {
        let gone = self.kept().shrink(max);
        // What is let go is let go outside the lock.
        drop(gone);
    }

    /// Bytes of unused buffers.
    #[cfg(test)]
    pub(crate) fn unused(&self) -> usize {
        self.kept().bytes
    }

    fn give(&self, buf: Buf) {
        let gone = self.kept().give(buf, self.kept_max);
        drop(gone);
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Source {
    /// A buffer of this length; `None` where the thread has ended, or none is to be had.
    fn ask(&self, length: usize) -> Option<Buf> {
        let orders = self.orders().get_or_insert_with(fill_orders).clone();
        let (filled, filling) = sync_channel(1);
        let sent = orders.send((length, filled)).ok();
        let buf = sent.and_then(|()| filling.recv().ok());
        if buf.is_none() {
            *self.orders() = None;
        }
        buf
    }

    fn orders(&self) -> MutexGuard<'_, Option<Sender<Order>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Starts a thread that fills orders until nobody has any, or its pool is gone. Where no thread is to be had, orders
/// lead nowhere.
fn fill_orders() -> Sender<Order> {
    let (sender, orders) = channel::<Order>();
    let _ = thread::Builder::new().name("payloads".into()).stack_size(STACK).spawn(move || {
        while let Ok((length, filled)) = orders.recv_timeout(IDLE) {
            // Whoever ordered waits for it.
            let _ = filled.send(Buf::zeroed(length));
        }
    });
    sender
}

/// The length of a buffer for `len` bytes: a power of two, or three quarters of one, in whole blocks.
fn length_for(len: usize) -> usize {
    let whole = len.next_power_of_two().max(BLOCK as usize);
    let less = whole / 4 * 3;
    if len <= less && less.is_multiple_of(BLOCK as usize) { less } else { whole }
}

impl Kept {
    fn take(&mut self, length: usize) -> Option<Buf> {
        let (_, buf) = self.by_length.get_mut(&length)?.pop_back()?;
        self.bytes -= length;
        Some(buf)
    }

    fn give(&mut self, buf: Buf, kept_max: usize) -> Vec<Buf> {
        if buf.len() > kept_max {
            return vec![buf];
        }
        self.bytes += buf.len();
        self.by_length.entry(buf.len()).or_default().push_back((self.next, buf));
        self.next += 1;
        self.shrink(kept_max)
    }

    fn shrink(&mut self, max: usize) -> Vec<Buf> {
        let mut gone = Vec::new();
        while self.bytes > max {
            let oldest = |bufs: &VecDeque<(u64, Buf)>| bufs.front().map_or(u64::MAX, |(no, _)| *no);
            let Some(bufs) = self.by_length.values_mut().min_by_key(|bufs| oldest(bufs)) else { break };
            let Some((_, buf)) = bufs.pop_front() else { break };
            self.bytes -= buf.len();
            gone.push(buf);
        }
        gone
    }
}

impl Payload {
    /// A copy of `bytes`.
    pub fn copy_of(bytes: &[u8]) -> Payload {
        Payload { buf: Some(Buf::copy_of(bytes)), len: bytes.len(), home: None }
    }
}

impl Deref for Payload {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        self.buf.as_ref().map_or(&[], |buf| &buf[..self.len])
    }
}

impl DerefMut for Payload {
    fn deref_mut(&mut self) -> &mut [u8] {
        let len = self.len;
        self.buf.as_mut().map_or(&mut [], |buf| &mut buf[..len])
    }
}

impl Drop for Payload {
    fn drop(&mut self) {
        if let (Some(buf), Some(home)) = (self.buf.take(), &self.home) {
            home.give(buf);
        }
    }
}

impl std::fmt::Debug for Payload {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Payload({} bytes)", self.len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lengths(pool: &PayloadPool) -> Vec<usize> {
        pool.kept().by_length.iter().flat_map(|(length, bufs)| vec![*length; bufs.len()]).collect()
    }

    #[test]
    fn a_payload_goes_home_and_is_used_again_but_the_pool_keeps_no_more_than_its_share() {
        for pool in [PayloadPool::new(12 << 10), PayloadPool::of_many_threads(12 << 10)] {
            let first = pool.take(5000);
            let at = first.as_ptr();
            drop(first);
            let again = pool.take(8000);
            assert_eq!((again.as_ptr(), again.len()), (at, 8000));
            let other = pool.take(5000);
            drop((again, other));
            assert_eq!(lengths(&pool), [8192]);
        }
    }

    #[test]
    fn what_is_not_asked_for_any_more_is_let_go() {
        let pool = PayloadPool::new(1 << 20);
        drop(pool.take(1 << 20));
        (0..300).map(|_| pool.take(4096)).collect::<Vec<_>>().clear();
        assert_eq!(lengths(&pool), vec![4096; 256]);
        // However many there are of what was asked for before.
        drop(pool.take(512 << 10));
        drop(pool.take(512 << 10));
        let both = (pool.take(512 << 10), pool.take(512 << 10));
        drop(both);
        assert_eq!(lengths(&pool), [512 << 10; 2]);
    }

    #[test]
    fn what_was_not_used_for_the_longest_time_is_let_go_first() {
        let pool = PayloadPool::new(1 << 20);
        let all: Vec<_> = [4096, 8192, 16_384].map(|length| pool.take(length)).into();
        drop(all);
        pool.shrink(16_384 + 4096);
        assert_eq!(lengths(&pool), [16_384]);
        pool.shrink(0);
        assert!(lengths(&pool).is_empty());
    }

    #[test]
    fn at_most_a_third_of_a_buffer_lies_idle() {
        for len in (4096..300_000).step_by(512) {
            let length = length_for(len);
            assert!(length >= len && length.is_multiple_of(BLOCK as usize), "{len}");
            assert!(length - len <= (length / 3).max(BLOCK as usize), "{len}: {length}");
        }
        assert_eq!([1, 4096, 8193, 70_000, PART].map(length_for), [4096, 4096, 12_288, 98_304, PART]);
    }

    #[test]
    fn memory_for_many_threads_is_asked_for_by_one() {
        let pool = PayloadPool::of_many_threads(1 << 20);
        let taken: Vec<_> = thread::scope(|scope| {
            let each: Vec<_> = (0..8)
                .map(|n| {
                    scope.spawn({
                        let pool = &pool;
                        move || pool.take(4096 << n)
                    })
                })
                .collect();
            each.into_iter().map(|one| one.join().unwrap()).collect()
        });
        assert!(taken.iter().enumerate().all(|(n, one)| one.len() == 4096 << n));
        // It ends when nobody asks, and then another one is there for who does.
        let source = pool.source.as_ref().unwrap();
        while source.ask(4096).is_some() {
            thread::sleep(IDLE * 2);
        }
        assert!(source.ask(4096).is_some());
        drop(taken);
        // A pool that goes takes its thread along: nothing waits for it.
    }
}
