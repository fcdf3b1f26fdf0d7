//! What happened: the last ten thousand events in memory, numbered from 1. `event_log.rs` keeps them over restarts.
//!
//! Invariants
//! 1. Numbers rise by one and are never given twice, also over restarts (but for events that a crash took).
//! 2. Taking note never waits for a disk: the engine's thread does it.

use crate::api::watch::{EventInfo, EventPage};
use crate::ops::watch::EventList;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use weft_engine::format::record::EventRecord;

/// Events in memory.
pub(super) const EVENTS_MAX: usize = 10_000;
const PAGE_MAX: usize = 1_000;
const WAIT_MAX: Duration = Duration::from_secs(30);
/// The longest text, in bytes; what is beyond is cut off.
const TEXT_MAX: usize = 4_096;

/// The events, and those who wait for the next one.
#[derive(Default)]
pub struct Journal {
    inner: Mutex<Inner>,
    news: Condvar,
}

#[derive(Default)]
struct Inner {
    events: VecDeque<EventInfo>,
    next: u64,
    closed: bool,
}

/// The wall clock, in milliseconds since 1970 UTC.
pub(super) fn now_ms() -> u64 {
    since_1970().as_millis() as u64
}

/// The wall clock, since 1970 UTC. A clock that says an earlier time is wrong, and pools are served all the same: then
/// it is 1970.
pub(super) fn since_1970() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

/// Whether a pool's record tells of this event: by its moment, and by its number in the pool's history if it came from
/// there, or else by the number that it has here. Records of earlier versions of weft have no such number.
fn is_of(event: &EventInfo, record: &EventRecord) -> bool {
    event.at_ms == record.at_ms
        && match (event.in_pool, record.told) {
            (Some(in_pool), _) => in_pool == record.no,
            (None, 0) => true,
            (None, told) => told == EventRecord::told_as(event.no),
        }
}

impl Inner {
    fn add(&mut self, event: EventInfo) {
        if self.events.len() == EVENTS_MAX {
            self.events.pop_front();
        }
        self.events.push_back(event);
    }
}

impl Journal {
    /// Takes note of something that happened to `pool`, or to the daemon. Its number.
    pub fn note(&self, pool: Option<&str>, text: impl Into<String>) -> u64 {
        self.push(pool, false, text.into())
    }

    /// Takes note of something that a person should look at. Its number.
    pub fn warn(&self, pool: Option<&str>, text: impl Into<String>) -> u64 {
        self.push(pool, true, text.into())
    }

    /// The events asked for; waits for one when asked to.
    pub fn page(&self, query: &EventList) -> EventPage {
        let wanted = |event: &EventInfo| {
            event.no > query.after && query.pool.as_ref().is_none_or(|pool| event.pool.as_ref() == Some(pool))
        };
        let nothing_new = |inner: &mut Inner| !inner.closed && !inner.events.iter().any(wanted);
        let wait = Duration::from_millis(query.wait_ms).min(WAIT_MAX);
        let waited = self.news.wait_timeout_while(self.lock(), wait, nothing_new);
        let (inner, _) = waited.unwrap_or_else(PoisonError::into_inner);
        let events: Vec<EventInfo> =
            inner.events.iter().filter(|event| wanted(event)).take(PAGE_MAX).cloned().collect();
        let next = match events.last() {
            Some(last) if events.len() == PAGE_MAX => last.no,
            _ => inner.next.max(query.after),
        };
        EventPage { events, next }
    }

    /// The number of the last event.
    pub(super) fn newest(&self) -> u64 {
        self.lock().next
    }

    /// Whether there are events of this pool.
    pub fn knows(&self, pool: &str) -> bool {
        self.lock().events.iter().any(|event| event.pool.as_deref() == Some(pool))
    }

    /// Lets nobody wait any more: the daemon is stopping. Events may follow.
    pub fn close(&self) {
        self.lock().closed = true;
        self.news.notify_all();
    }

    /// Puts the events of earlier runs before those of this one, which are numbered anew. The number of the last of
    /// them.
    pub(super) fn restore(&self, earlier: Vec<EventInfo>) -> u64 {
        let mut inner = self.lock();
        let last = earlier.last().map_or(0, |event| event.no);
        for event in &mut inner.events {
            event.no += last;
        }
        inner.next += last;
        for event in earlier.into_iter().rev() {
            if inner.events.len() < EVENTS_MAX {
                inner.events.push_front(event);
            }
        }
        last
    }

    /// Takes note of what `pool` remembers and this daemon does not, under new numbers.
    pub(super) fn adopt(&self, pool: &str, remembered: Vec<EventRecord>) {
        let mut inner = self.lock();
        for record in remembered {
            if inner.events.iter().any(|event| is_of(event, &record)) {
                continue;
            }
            inner.next += 1;
            let EventRecord { no: in_pool, at_ms, warning, text, .. } = record;
            let (no, pool, in_pool) = (inner.next, Some(pool.to_string()), Some(in_pool));
            inner.add(EventInfo { no, at_ms, pool, warning, text, in_pool, fresh: false });
        }
        self.news.notify_all();
    }

    /// What is known of a pool, oldest first.
    pub(super) fn of_pool(&self, pool: &str) -> Vec<EventInfo> {
        self.lock().events.iter().filter(|event| event.pool.as_deref() == Some(pool)).cloned().collect()
    }

    /// The next events after number `after`, as soon as there are any; none when `ended` is set and all were given.
    pub(super) fn follow(&self, after: u64, ended: &AtomicBool) -> Vec<EventInfo> {
        let nothing_new = |inner: &mut Inner| inner.next <= after && !ended.load(Ordering::Acquire);
        let inner = self.news.wait_while(self.lock(), nothing_new).unwrap_or_else(PoisonError::into_inner);
        inner.events.iter().filter(|event| event.no > after).take(PAGE_MAX).cloned().collect()
    }

    /// Sets `ended` and lets those who follow see it.
    pub(super) fn end(&self, ended: &AtomicBool) {
        let _inner = self.lock();
        ended.store(true, Ordering::Release);
        self.news.notify_all();
    }

    fn push(&self, pool: Option<&str>, warning: bool, mut text: String) -> u64 {
        let at_ms = now_ms();
        text.truncate(text.floor_char_boundary(TEXT_MAX));
        let mut inner = self.lock();
        inner.next += 1;
        let no = inner.next;
        inner.add(EventInfo { no, at_ms, pool: pool.map(Into::into), warning, text, in_pool: None, fresh: true });
        self.news.notify_all();
        no
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[test]
    fn a_follower_sees_every_event_of_its_pool_once() {
        let journal = Journal::default();
        journal.note(Some("tank"), "one");
        journal.note(Some("pond"), "two");
        journal.warn(Some("tank"), "three");
        let mut query = EventList { pool: Some("tank".into()), ..EventList::default() };
        let page = journal.page(&query);
        assert_eq!(page.events.iter().map(|event| event.text.as_str()).collect::<Vec<_>>(), ["one", "three"]);
        query.after = page.next;
        assert!(journal.page(&query).events.is_empty());
    }

    #[test]
    fn the_oldest_events_are_forgotten_and_a_long_list_comes_in_pages() {
        let journal = Journal::default();
        for n in 1..=EVENTS_MAX as u64 + 5 {
            journal.note(None, n.to_string());
        }
        let (mut seen, mut query) = (0, EventList::default());
        loop {
            let page = journal.page(&query);
            if page.events.is_empty() {
                break;
            }
            assert_eq!(page.events[0].no, if seen == 0 { 6 } else { query.after + 1 });
            seen += page.events.len();
            query.after = page.next;
        }
        assert_eq!(seen, EVENTS_MAX);
    }

    #[test]
    fn closing_lets_the_waiting_go() {
        let journal = Arc::new(Journal::default());
        let waiting = std::thread::spawn({
            let journal = journal.clone();
            move || journal.page(&EventList { wait_ms: 30_000, ..EventList::default() })
        });
        journal.close();
        assert!(waiting.join().unwrap().events.is_empty());
    }

    #[test]
    fn events_of_earlier_runs_come_first_and_numbers_go_on() {
        let earlier = Journal::default();
        earlier.note(Some("tank"), "one");
        earlier.note(None, "two");
        let journal = Journal::default();
        journal.note(None, "three");
        assert_eq!(journal.restore(earlier.page(&EventList::default()).events), 2);
        assert_eq!(journal.note(None, "x".repeat(2 * TEXT_MAX)), 4);
        let events = journal.page(&EventList::default()).events;
        assert_eq!(events.iter().map(|event| event.no).collect::<Vec<_>>(), [1, 2, 3, 4]);
        assert_eq!((events[2].text.as_str(), events[3].text.len()), ("three", TEXT_MAX));
        assert!(journal.knows("tank") && !journal.knows("pond"));
    }

    #[test]
    fn what_a_pool_remembers_is_taken_over_once_whatever_its_words_are() {
        let journal = Journal::default();
        let own = journal.note(Some("tank"), "one");
        let at_ms = journal.of_pool("tank")[0].at_ms;
        let record = |no, at_ms, told, text: &str| EventRecord { no, at_ms, told, warning: false, text: text.into() };
        let remembered = vec![
            record(1, at_ms, EventRecord::told_as(own), "on"),
            // On another machine, in the very same millisecond, with the very same words.
            record(2, at_ms, EventRecord::told_as(own + 7), "one"),
            record(3, at_ms, EventRecord::told_as(own + 8), "one"),
            record(4, at_ms + 1, EventRecord::told_as(own), "one"),
        ];
        let numbers = || journal.of_pool("tank").into_iter().map(|event| event.in_pool).collect::<Vec<_>>();
        for _ in 0..2 {
            journal.adopt("tank", remembered.clone());
            assert_eq!(numbers(), [None, Some(2), Some(3), Some(4)]);
        }
        // By a version of weft whose records have no numbers of their tellers.
        journal.adopt("tank", vec![record(5, at_ms, 0, "one"), record(6, at_ms + 2, 0, "two")]);
        assert_eq!(numbers(), [None, Some(2), Some(3), Some(4), Some(6)]);
    }

    #[test]
    fn who_follows_gets_everything_and_then_the_end() {
        let (journal, ended) = (Journal::default(), AtomicBool::new(false));
        journal.note(None, "one");
        journal.close();
        journal.note(None, "two");
        journal.end(&ended);
        assert_eq!(journal.follow(0, &ended).len(), 2);
        assert!(journal.follow(2, &ended).is_empty());
    }
}
