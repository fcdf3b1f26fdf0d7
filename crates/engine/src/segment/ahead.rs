//! What was read ahead of stripes, by the place where they lie.
//!
//! Invariants
//! 1. A place holds one version of one stripe from its commit until it is free. What was read from it is true as long,
//!    and goes when it is free: a write, a discard or a removal needs no word here, for reading looks at buffers and
//!    tables first, and these name another place then, or none.
//! 2. A place that is being read ahead is pinned, as for any reader. What has arrived pins nothing: nobody waits for
//!    room because of it.
//! 3. What arrived has had its checksums proven, or was computed from what has.

use crate::io::IoSlice;
use crate::stripe::table::Place;
use crate::sync::Signal;
use crate::units::SegmentNo;
use alloc::collections::BTreeMap;
use alloc::rc::Rc;
use alloc::vec::Vec;
use core::cell::Cell;

/// Some stripes that are being read ahead together.
#[derive(Default)]
pub struct Fetch {
    /// Somebody waits for it: it goes before others.
    pub urgent: Cell<bool>,
    /// Nobody wants it any more.
    pub cancelled: Cell<bool>,
    /// The stream that it is ahead of.
    pub stream: Cell<Option<u64>>,
    /// How many bytes of one copy are read from one disk before another copy has its turn.
    pub chunk: Cell<u64>,
    ended: Cell<bool>,
    end: Signal,
}

impl Fetch {
    /// Tells those who wait that nothing more will come.
    pub fn end(&self) {
        self.ended.set(true);
        self.end.notify();
    }

    /// Whether nothing more will come.
    pub fn has_ended(&self) -> bool {
        self.ended.get()
    }

    /// Waits until nothing more will come.
    pub async fn until_ended(&self) {
        self.end.until(|| self.ended.get()).await;
    }
}

/// A stripe that was read ahead, or will have been.
#[derive(Clone)]
pub enum Found {
    /// It is on its way.
    Coming(Rc<Fetch>),
    /// The strips of its data columns.
    There(Rc<Vec<IoSlice>>),
}

struct Entry {
    found: Found,
    len: u64,
    /// Bytes that nobody has read yet.
    left: u64,
}

/// The stripes of a pool that were read ahead.
#[derive(Default)]
pub struct Ahead {
    stripes: BTreeMap<Place, Entry>,
    used: u64,
    peak: u64,
}

impl Ahead {
    /// Bytes that are there, or coming: now, and the most so far.
    pub fn memory(&self) -> (u64, u64) {
        (self.used, self.peak)
    }

    /// The stripe at `place`, if somebody reads it ahead.
    pub fn get(&self, place: Place) -> Option<Found> {
        self.stripes.get(&place).map(|entry| entry.found.clone())
    }

    /// The stripe at `place`, of `len` bytes, will come with `fetch`.
    pub fn expect(&mut self, place: Place, len: u64, fetch: Rc<Fetch>) {
        self.forget(place);
        self.stripes.insert(place, Entry { found: Found::Coming(fetch), len, left: len });
        self.used += len;
        self.peak = self.peak.max(self.used);
    }

    /// What came with `fetch`; none: nothing did.
    pub fn arrived(&mut self, place: Place, fetch: &Rc<Fetch>, strips: Option<Vec<IoSlice>>) {
        let Some(entry) = self.stripes.get_mut(&place) else { return };
        // Somebody else may be about to read it anew.
        if !matches!(&entry.found, Found::Coming(coming) if Rc::ptr_eq(coming, fetch)) {
            return;
        }
        match strips {
            Some(strips) => entry.found = Found::There(Rc::new(strips)),
            None => self.forget(place),
        }
    }

    /// `len` bytes of the stripe were read. What was read once from end to end is forgotten.
    pub fn served(&mut self, place: Place, len: u64) {
        let Some(entry) = self.stripes.get_mut(&place) else { return };
        entry.left = entry.left.saturating_sub(len);
        if entry.left == 0 {
            self.forget(place);
        }
    }

    /// Forgets the stripe at `place`.
    pub fn forget(&mut self, place: Place) {
        if let Some(entry) = self.stripes.remove(&place) {
            self.used -= entry.len;
        }
    }

    /// Forgets all stripes of a segment.
    pub fn forget_segment(&mut self, segment: SegmentNo) {
        let all = Place::at(segment, 0)..=Place::at(segment, u32::MAX);
        let places: Vec<Place> = self.stripes.range(all).map(|(place, _)| *place).collect();
        places.into_iter().for_each(|place| self.forget(place));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::io::Buf;

    #[test]
    fn what_arrives_for_a_place_that_was_given_up_or_is_read_anew_is_not_kept() {
        let (mut ahead, place) = (Ahead::default(), Place::at(SegmentNo(1), 2));
        let (old, new) = (Rc::new(Fetch::default()), Rc::new(Fetch::default()));
        let strips = || Some(alloc::vec![Buf::zeroed(4096).freeze()]);
        ahead.expect(place, 4096, old.clone());
        ahead.forget(place);
        ahead.arrived(place, &old, strips());
        assert!(ahead.get(place).is_none() && ahead.memory() == (0, 4096));
        ahead.expect(place, 4096, new.clone());
        ahead.arrived(place, &old, strips());
        assert!(matches!(ahead.get(place), Some(Found::Coming(_))));
        ahead.arrived(place, &new, strips());
        assert!(matches!(ahead.get(place), Some(Found::There(_))));
        ahead.served(place, 4095);
        assert!(ahead.get(place).is_some());
        ahead.served(place, 1);
        assert!(ahead.get(place).is_none() && ahead.memory().0 == 0);
    }
}
