//! What happened to a pool, as people are told of it. It lies in the pool, so that it goes where the disks go.
//!
//! The words, and what is worth keeping, are the host's: it knows the time and the names of things.
//!
//! Invariants
//! 1. Taking note waits for nothing. An event is durable with the commit after it; a crash may take the last ones.
//! 2. The newest `EVENTS_MAX` are kept, in pools with small checkpoint areas fewer.

use super::Pool;
use crate::format::record::{EVENT_TEXT_MAX, EventRecord, Record};
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;

impl Pool {
    /// Remembers that something happened at `at_ms` (milliseconds since 1970 UTC), which has the number `number` where
    /// it was told; a text of more than [`EVENT_TEXT_MAX`] bytes is cut. What is remembered already, by its moment and
    /// its number, is left as it is, and a pool that takes no writes remembers nothing new.
    pub fn note_event(&self, at_ms: u64, number: u64, warning: bool, mut text: String) {
        let told = EventRecord::told_as(number);
        text.truncate(text.floor_char_boundary(EVENT_TEXT_MAX));
        if self.store.check_writable().is_err() {
            return;
        }
        let event = {
            let mut map = self.store.map.borrow_mut();
            if map.notes.events.values().rev().any(|event| event.at_ms == at_ms && event.told == told) {
                return;
            }
            let no = map.notes.events.last_key_value().map_or(1, |(last, _)| last + 1);
            let event = EventRecord { no, at_ms, told, warning, text };
            map.notes.note_event(event.clone());
            event
        };
        self.store.append_all(vec![Record::Event(event)]);
    }

    /// What is remembered, oldest first.
    pub fn events(&self) -> Vec<EventRecord> {
        self.store.map.borrow().notes.events.values().cloned().collect()
    }
}
