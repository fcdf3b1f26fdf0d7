//! What the configuration says of a pool beside its space: what its owner set, what it does and did, and which numbers
//! come next.

use crate::format::record::{EVENT_LEN, EventRecord, JobRecord, PoolRecord, SettingsRecord};
use crate::units::{ByteCount, JobNo};
use alloc::collections::BTreeMap;

/// Events that are remembered, at most.
pub const EVENTS_MAX: usize = 512;

/// All of it.
#[derive(Default)]
pub struct Notes {
    /// Numbers to give out next.
    pub next: PoolRecord,
    /// What the owner set.
    pub settings: SettingsRecord,
    /// Jobs: those that have not ended, and the last that did.
    pub jobs: BTreeMap<JobNo, JobRecord>,
    /// The last things that happened, by number.
    pub events: BTreeMap<u64, EventRecord>,
}

impl Notes {
    /// The events that a checkpoint keeps in `room`, newest first: they leave room for what matters more.
    pub fn newest_events(&self, room: ByteCount) -> impl Iterator<Item = &EventRecord> {
        let mut room = room.0;
        self.events.values().rev().take_while(move |event| {
            let len = EVENT_LEN + event.text.len() as u64 + 8;
            let fits = len <= room;
            room = room.saturating_sub(len);
            fits
        })
    }

    /// Remembers an event, and forgets the oldest where there are too many.
    pub fn note_event(&mut self, event: EventRecord) {
        self.events.insert(event.no, event);
        while self.events.len() > EVENTS_MAX {
            self.events.pop_first();
        }
    }
}
