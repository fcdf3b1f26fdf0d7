//! The memory that all NBD clients of a daemon share: payloads on their way in, and replies on their way out.
//!
//! Invariants
//! 1. Bytes are counted before they are there, and given back when they are gone, however the connection ends.
//! 2. Every connection has [`OWN`] bytes that nobody can take from it: small requests never wait for what others hold.
//! 3. Beyond that all of them together hold at most the limit. Who was first in the queue exceeds it alone, so that a
//!    large payload that is half there never waits for another that is half there.
//! 4. Buffers that are not used stay with the clients that do: when one leaves, as many are kept as the others hold or
//!    may hold without asking.
//! 5. While somebody waits, a client that lets the server wait for longer than its timeout, for the rest of a payload
//!    or for room to send replies, loses its connection, and with it what it held.

use crate::export::PayloadPool;
use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Bytes that each connection may hold without asking.
pub const OWN: usize = 256 << 10;
/// Bytes that all may hold beyond that, unless a daemon says otherwise.
const SHARED: usize = 256 << 20;
/// How long a client may keep the server waiting while others want what it holds.
const TIMEOUT: Duration = Duration::from_secs(5);
/// Bytes a second that it must take or send beside that.
const PACE: u64 = 1 << 20;
/// The part of the limit that unused buffers may have.
const KEPT_PART: usize = 2;

/// What the clients of a daemon hold, and may.
pub struct Room {
    limit: usize,
    timeout: Duration,
    born: Instant,
    buffers: Arc<PayloadPool>,
    state: Mutex<State>,
    /// Told when something was given back, or a connection ends.
    given: Condvar,
}

#[derive(Default)]
struct State {
    used: usize,
    peak: usize,
    next: u64,
    tickets: u64,
    waiting: VecDeque<u64>,
    /// The connection that exceeds the limit.
    beyond: Option<u64>,
    connections: BTreeMap<u64, Entry>,
}

struct Entry {
    held: usize,
    closed: bool,
    awaited: Arc<Awaited>,
    hangup: Box<dyn Fn() + Send + Sync>,
}

/// Until when the server is willing to wait for a client, in milliseconds since the room was made; 0: it does not wait.
#[derive(Default)]
struct Awaited {
    incoming: AtomicU64,
    outgoing: AtomicU64,
}

/// Which way the server waits for a client.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Way {
    /// For the rest of a payload.
    In,
    /// For it to take replies.
    Out,
}

/// Whether a client does anything: it sends requests whole, or takes replies, or waits for the volume.
pub(super) struct Pulse {
    born: Instant,
    /// When it did last, in nanoseconds since it was born.
    last: AtomicU64,
    /// Requests that the volume has.
    asked: AtomicUsize,
}

/// One connection's part of a [`Room`]; dropping it gives everything back.
pub struct Account {
    room: Arc<Room>,
    no: u64,
    awaited: Arc<Awaited>,
    pulse: Arc<Pulse>,
}

impl Room {
    /// A room of the usual size.
    pub fn usual() -> Arc<Room> {
        Room::new(SHARED)
    }

    /// A room of `limit` bytes.
    pub fn new(limit: usize) -> Arc<Room> {
        Room::with_timeout(limit, TIMEOUT)
    }

    /// Makes a room whose clients wait at most `timeout`.
    pub fn with_timeout(limit: usize, timeout: Duration) -> Arc<Room> {
        let buffers = PayloadPool::of_many_threads(limit / KEPT_PART);
        let (state, given) = (Mutex::default(), Condvar::new());
        Arc::new(Room { limit, timeout, born: Instant::now(), buffers, state, given })
    }

    /// An account for a new connection; `hangup` ends it.
    pub fn open(self: &Arc<Self>, hangup: Box<dyn Fn() + Send + Sync>) -> Account {
        let awaited = Arc::new(Awaited::default());
        let mut state = self.lock();
        let no = state.next;
        state.next += 1;
        state.connections.insert(no, Entry { held: 0, closed: false, awaited: awaited.clone(), hangup });
        let pulse = Arc::new(Pulse { born: Instant::now(), last: AtomicU64::new(0), asked: AtomicUsize::new(0) });
        Account { room: self.clone(), no, awaited, pulse }
    }

    /// The most bytes, those held now, and the most that were: without what is each connection's own.
    pub fn memory(&self) -> (usize, usize, usize) {
        let state = self.lock();
        (self.limit, state.used, state.peak)
    }

    /// Takes bytes for connection `no`; waits for them. `false`: the connection has ended.
    fn take(&self, no: u64, bytes: usize) -> bool {
        let mut state = self.lock();
        let ticket = state.tickets;
        state.tickets += 1;
        state.waiting.push_back(ticket);
        let entered = loop {
            if state.connections.get(&no).is_none_or(|entry| entry.closed) {
                break false;
            }
            if state.waiting.front() == Some(&ticket) {
                let fits = state.used + bytes <= self.limit;
                if fits || state.beyond.is_none() || state.beyond == Some(no) {
                    if !fits {
                        state.beyond = Some(no);
                    }
                    break true;
                }
            }
            let now = self.now();
            let next = state.cut_late(now).map_or(1000, |due| due.saturating_sub(now) + 1);
            let waited = self.given.wait_timeout(state, Duration::from_millis(next.min(1000)));
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        };
        state.waiting.retain(|other| *other != ticket);
        if entered {
            state.used += bytes;
            state.peak = state.peak.max(state.used);
            if let Some(entry) = state.connections.get_mut(&no) {
                entry.held += bytes;
            }
        }
        drop(state);
        self.given.notify_all();
        entered
    }

    /// Takes bytes for connection `no` if nobody has to be waited for.
    fn try_take(&self, no: u64, bytes: usize) -> bool {
        let mut state = self.lock();
        if !state.waiting.is_empty() || state.used + bytes > self.limit {
            return false;
        }
        let Some(entry) = state.connections.get_mut(&no).filter(|entry| !entry.closed) else { return false };
        entry.held += bytes;
        state.used += bytes;
        state.peak = state.peak.max(state.used);
        true
    }

    fn give(&self, no: u64, bytes: usize) {
        if bytes == 0 {
            return;
        }
        let mut state = self.lock();
        let Some(entry) = state.connections.get_mut(&no) else { return };
        assert!(entry.held >= bytes, "memory is counted exactly");
        entry.held -= bytes;
        state.used -= bytes;
        if state.used <= self.limit {
            state.beyond = None;
        }
        drop(state);
        self.given.notify_all();
    }

    fn now(&self) -> u64 {
        self.born.elapsed().as_millis() as u64
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Hangs up on those whose time is over (invariant 5). When the next one's is.
    fn cut_late(&mut self, now: u64) -> Option<u64> {
        let mut next: Option<u64> = None;
        for entry in self.connections.values_mut().filter(|entry| entry.held > 0 && !entry.closed) {
            let dues = [&entry.awaited.incoming, &entry.awaited.outgoing].map(|due| due.load(Ordering::Relaxed));
            let Some(due) = dues.into_iter().filter(|due| *due > 0).min() else { continue };
            if due <= now {
                entry.closed = true;
                (entry.hangup)();
            } else {
                next = Some(next.map_or(due, |other| other.min(due)));
            }
        }
        next
    }
}

impl Pulse {
    /// The volume has a request of it.
    pub(super) fn asks(&self) {
        self.asked.fetch_add(1, Ordering::Relaxed);
        self.beat();
    }

    /// The volume has answered one.
    pub(super) fn answered(&self) {
        self.beat();
        self.asked.fetch_sub(1, Ordering::Relaxed);
    }

    /// For how long it has done nothing; `None` while the volume has a request of it.
    pub(super) fn idle_for(&self) -> Option<Duration> {
        let since = Duration::from_nanos(self.last.load(Ordering::Relaxed));
        (self.asked.load(Ordering::Relaxed) == 0).then(|| self.born.elapsed().saturating_sub(since))
    }

    fn beat(&self) {
        self.last.store(self.born.elapsed().as_nanos() as u64, Ordering::Relaxed);
    }
}

impl Account {
    /// Takes bytes beyond [`OWN`]; waits for them. `false`: the connection has ended.
    pub(super) fn take(&self, bytes: usize) -> bool {
        bytes == 0 || self.room.take(self.no, bytes)
    }

    /// Takes bytes beyond [`OWN`] if nobody has to be waited for.
    pub(super) fn try_take(&self, bytes: usize) -> bool {
        bytes == 0 || self.room.try_take(self.no, bytes)
    }

    /// Gives bytes back.
    pub(super) fn give(&self, bytes: usize) {
        self.room.give(self.no, bytes);
    }

    /// From now on the server waits for this client to send, or to take, `len` bytes.
    pub(super) fn wait_for(&self, way: Way, len: usize) {
        let pace = Duration::from_millis(len as u64 * 1000 / PACE);
        let due = self.room.now() + (self.room.timeout + pace).as_millis() as u64;
        self.due(way).store(due.max(1), Ordering::Relaxed);
    }

    /// It did.
    pub(super) fn came(&self, way: Way) {
        self.due(way).store(0, Ordering::Relaxed);
        self.pulse.beat();
    }

    /// Whether this client does anything.
    pub(super) fn pulse(&self) -> &Arc<Pulse> {
        &self.pulse
    }

    /// Nobody waits for memory for this connection any more.
    pub(super) fn close(&self) {
        if let Some(entry) = self.room.lock().connections.get_mut(&self.no) {
            entry.closed = true;
        }
        self.room.given.notify_all();
    }

    /// The buffers that all connections share.
    pub(super) fn buffers(&self) -> &Arc<PayloadPool> {
        &self.room.buffers
    }

    fn due(&self, way: Way) -> &AtomicU64 {
        match way {
            Way::In => &self.awaited.incoming,
            Way::Out => &self.awaited.outgoing,
        }
    }
}

impl Drop for Account {
    fn drop(&mut self) {
        let mut state = self.room.lock();
        if let Some(entry) = state.connections.remove(&self.no) {
            state.used -= entry.held;
        }
        if state.used <= self.room.limit {
            state.beyond = None;
        }
        let theirs = state.used + state.connections.len() * OWN;
        drop(state);
        self.room.given.notify_all();
        self.room.buffers.shrink(theirs);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicBool;
    use std::thread;

    fn quiet(room: &Arc<Room>) -> Account {
        room.open(Box::new(|| {}))
    }

    fn wait_until(holds: impl Fn() -> bool) {
        while !holds() {
            thread::yield_now();
        }
    }

    #[test]
    fn what_one_gives_back_the_next_in_the_queue_gets_and_an_end_gives_back_all() {
        let room = Room::new(1000);
        let (one, other) = (quiet(&room), quiet(&room));
        assert!(one.take(900) && one.take(50));
        // The first beyond the limit is let in alone.
        assert!(other.take(500));
        assert_eq!(room.memory(), (1000, 1450, 1450));
        let third = quiet(&room);
        thread::scope(|scope| {
            let waiting = scope.spawn(|| third.take(600));
            wait_until(|| room.lock().waiting.len() == 1);
            one.give(50);
            assert_eq!(room.lock().waiting.len(), 1);
            drop(one);
            drop(other);
            assert!(waiting.join().unwrap());
        });
        drop(third);
        assert_eq!(room.memory(), (1000, 0, 1450));
    }

    #[test]
    fn who_lets_others_wait_is_hung_up_on_and_who_waits_itself_is_not() {
        let room = Room::with_timeout(1000, Duration::from_millis(20));
        let cut = Arc::new(AtomicBool::new(false));
        let told = cut.clone();
        let idle = room.open(Box::new(move || told.store(true, Ordering::Relaxed)));
        assert!(idle.take(1000));
        idle.wait_for(Way::In, 0);
        let beyond = quiet(&room);
        assert!(beyond.take(1));
        let third = quiet(&room);
        thread::scope(|scope| {
            let waiting = scope.spawn(|| third.take(1));
            wait_until(|| cut.load(Ordering::Relaxed));
            drop(idle);
            assert!(waiting.join().unwrap());
        });
    }

    #[test]
    fn who_leaves_takes_along_the_memory_that_nobody_else_has_a_use_for() {
        let room = Room::new(16 * OWN);
        let (one, other) = (quiet(&room), quiet(&room));
        let use_some = || drop((0..8).map(|_| one.buffers().take(OWN)).collect::<Vec<_>>());
        use_some();
        assert_eq!(room.buffers.unused(), 8 * OWN);
        assert!(other.take(3 * OWN));
        drop(quiet(&room));
        assert_eq!(room.buffers.unused(), 5 * OWN, "what one holds, and what each may without asking");
        use_some();
        drop(other);
        assert_eq!(room.buffers.unused(), OWN);
        drop(one);
        assert_eq!(room.buffers.unused(), 0);
    }

    #[test]
    fn a_connection_that_ends_waits_for_nothing() {
        let room = Room::new(10);
        let (one, beyond, last) = (quiet(&room), quiet(&room), quiet(&room));
        assert!(one.take(10) && beyond.take(10));
        thread::scope(|scope| {
            let waiting = scope.spawn(|| last.take(10));
            wait_until(|| room.lock().waiting.len() == 1);
            last.close();
            assert!(!waiting.join().unwrap());
        });
    }
}
