//! What happened, kept in memory: the last ten thousand events, numbered from 1 since the daemon started.

use crate::api::watch::{EventInfo, EventPage, EventQuery};
use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

const EVENTS_MAX: usize = 10_000;
const PAGE_MAX: usize = 1_000;
const WAIT_MAX: Duration = Duration::from_secs(30);

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

impl Journal {
    /// Takes note of something that happened to `pool`, or to the daemon.
    pub fn note(&self, pool: Option<&str>, text: impl Into<String>) {
        self.push(pool, false, text.into());
    }

    /// Takes note of something that a person should look at.
    pub fn warn(&self, pool: Option<&str>, text: impl Into<String>) {
        self.push(pool, true, text.into());
    }

    /// The events asked for; waits for one when asked to.
    pub fn page(&self, query: &EventQuery) -> EventPage {
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

    /// Lets nobody wait any more: the daemon is stopping.
    pub fn close(&self) {
        self.lock().closed = true;
        self.news.notify_all();
    }

    fn push(&self, pool: Option<&str>, warning: bool, text: String) {
        let at_ms = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64);
        let mut inner = self.lock();
        inner.next += 1;
        if inner.events.len() == EVENTS_MAX {
            inner.events.pop_front();
        }
        let no = inner.next;
        inner.events.push_back(EventInfo { no, at_ms, pool: pool.map(Into::into), warning, text });
        self.news.notify_all();
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
        let mut query = EventQuery { pool: Some("tank".into()), ..EventQuery::default() };
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
        let (mut seen, mut query) = (0, EventQuery::default());
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
            move || journal.page(&EventQuery { wait_ms: 30_000, ..EventQuery::default() })
        });
        journal.close();
        assert!(waiting.join().unwrap().events.is_empty());
    }
}
