//! The events of a pool are kept in the pool, so that they go where its disks go (`weft_engine::pool::history`).
//!
//! Invariants
//! 1. A pool is given the events of this run of the daemon only, in their order, each once: those of earlier runs it
//!    has.
//! 2. The journal takes over what a pool remembers and it does not, when the pool is opened: another machine's past,
//!    for one. That happened long ago, and no hook is told of it.

use super::{Pools, Thread};
use crate::api::error::{Answer, ApiError, Kind};
use crate::api::watch::EventInfo;
use crate::daemon::events::Journal;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::thread::{self, JoinHandle};
use weft_engine::pool::Pool;

/// The thread that hands events on to their pools, soon after they happened.
pub(super) struct History {
    journal: Arc<Journal>,
    ended: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl History {
    pub(super) fn start(journal: Arc<Journal>, engine: Thread) -> Answer<History> {
        let ended = Arc::new(AtomicBool::new(false));
        let (told, end) = (journal.clone(), ended.clone());
        let hand_on = move || {
            let mut after = 0;
            loop {
                let events = told.follow(after, &end);
                let Some(last) = events.last() else { return };
                after = last.no;
                // Between two tasks: whatever told of the event is done with the pool by then. A pool that is not open
                // is given it when it closes, or was.
                if engine.run(move |local| hand_to_all(local.state(), &events)).is_err() {
                    return;
                }
            }
        };
        let thread = thread::Builder::new().name("weft-history".into()).spawn(hand_on);
        let thread = thread.map_err(|error| ApiError::new(Kind::Internal, format!("no thread for events: {error}")))?;
        Ok(History { journal, ended, thread: Some(thread) })
    }
}

impl Drop for History {
    fn drop(&mut self) {
        self.journal.end(&self.ended);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// A pool was opened, and nothing of that was told yet: the journal learns what it does not know of it.
pub(super) fn adopt(pool: &Pool, journal: &Journal) {
    journal.adopt(&pool.name(), pool.events());
}

/// Gives a pool what happened since `begun` (milliseconds since 1970 UTC), when it was opened, and it was not given
/// yet. What bore its name before that was another pool.
pub(super) fn catch_up(pool: &Pool, journal: &Journal, begun: u64) {
    journal.of_pool(&pool.name()).iter().filter(|event| event.at_ms >= begun).for_each(|event| hand_on(pool, event));
}

fn hand_to_all(pools: &Pools, events: &[EventInfo]) {
    let open = pools.open.borrow();
    for event in events {
        if let Some(open) = event.pool.as_ref().and_then(|pool| open.get(pool)) {
            open.border.look(|| hand_on(&open.pool, event));
        }
    }
}

fn hand_on(pool: &Pool, event: &EventInfo) {
    let newest = pool.store().map.borrow().notes.events.last_key_value().map_or(0, |(_, newest)| newest.at_ms);
    if event.fresh && event.at_ms >= newest {
        pool.note_event(event.at_ms, event.no, event.warning, event.text.clone());
    }
}
