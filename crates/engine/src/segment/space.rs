//! Which stripes of each segment are in use: those that its table maps, a bit for each. A checkpoint keeps the bits of
//! the segments that changed (`store/meta/space.rs`), so an opening counts free space without a look into any table.
//!
//! Invariants
//! 1. A bit changes in the step in which its table does, be it by a commit, an unmapping, a withdrawal or a replay.
//! 2. What changed since the last checkpoint that is the truth is touched, until one has written it.
//! 3. Segments of which nobody can tell the bits are counted from their table.

use super::{Map, Segment};
use crate::bits::BitSet;
use crate::error::Result;
use crate::fail;
use crate::format::record::{OWNER_METADATA, Record};
use crate::mutant::{self, Mutant};
use crate::stripe::table::{Entry, Place};
use crate::units::{SegmentNo, TableNo};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use core::ops::Range;

/// Which segments changed their bits.
#[derive(Default)]
pub(super) struct Touched {
    /// Since they were last put into the tree.
    now: BTreeSet<SegmentNo>,
    /// Before: they are in the tree of a checkpoint that is not the truth yet.
    leaving: BTreeSet<SegmentNo>,
    /// What a checkpoint has of segments is in the map: those that come now are new, and hold nothing yet.
    loaded: bool,
    /// Places that changed hands while somebody watched, and how many do.
    seen: BTreeSet<Place>,
    watchers: u32,
}

/// What is wrong with the bits of a segment: the stripes of which they say the contrary of what the table says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Contradiction {
    /// Nothing maps what counts as in use: its room is lost.
    Idle(Place),
    /// A table maps what does not count as in use: it may be given away.
    Unseen(Place),
}

impl Map {
    /// Sets the entry of `stripe` of `table`, and returns where it was.
    pub fn remap(&mut self, table: TableNo, stripe: u64, entry: impl Into<Entry>) -> Option<Place> {
        let entry = entry.into();
        let found = self.tables.get_mut(&table).expect("a stripe is mapped by a table that exists");
        let before = found.set(stripe, entry).place();
        if let Some(before) = before {
            self.note_unused(before);
        }
        if let Some(place) = entry.place() {
            self.note_use(place, true);
        }
        before
    }

    /// Unmaps `stripes` of `table`, or makes them `zero`. Returns where some of them were.
    pub fn remap_all(&mut self, table: TableNo, stripes: Range<u64>, zero: bool) -> Vec<Place> {
        let found = self.tables.get_mut(&table).expect("stripes are unmapped in a table that exists");
        let places = found.set_all(stripes, zero);
        places.iter().for_each(|place| self.note_unused(*place));
        places
    }

    fn note_unused(&mut self, place: Place) {
        if !mutant::active(Mutant::FreedStaysInUse) {
            self.note_use(place, false);
        }
    }

    /// Notes whether a table maps this place.
    pub(super) fn note_use(&mut self, place: Place, used: bool) {
        let index = place.index as usize;
        if self.touched.watchers > 0 {
            self.touched.seen.insert(place);
        }
        let Some(segment) = self.segments.get_mut(&place.segment) else { return };
        if index >= segment.mapped.len() || segment.mapped.contains(index) == used {
            return;
        }
        match used {
            true => segment.mapped.insert(index..index + 1),
            false => segment.mapped.remove(index..index + 1),
        }
        if let Some(table) = self.tables.get_mut(&segment.record.owner) {
            table.mapped = if used { table.mapped + 1 } else { table.mapped.saturating_sub(1) };
        }
        self.touched.now.insert(place.segment);
    }

    /// Notes that the next checkpoint is to have the bits of a segment.
    pub fn touch_space(&mut self, segment: SegmentNo) {
        self.touched.now.insert(segment);
    }

    /// Has the next checkpoint write the bits of all segments.
    pub fn touch_all_space(&mut self) {
        let data = self.segments.values().filter(|found| found.record.owner != OWNER_METADATA);
        self.touched.now.extend(data.map(|found| found.record.id));
    }

    /// The segments whose bits a checkpoint is to write, those included that one which was given up had written.
    pub fn take_touched_space(&mut self) -> BTreeSet<SegmentNo> {
        let Touched { now, leaving, .. } = &mut self.touched;
        leaving.append(now);
        leaving.clone()
    }

    /// The checkpoint that has them is the truth.
    pub fn space_written(&mut self) {
        self.touched.leaving.clear();
    }

    /// Takes the bits of a segment from the checkpoint.
    pub fn load_space(&mut self, segment: SegmentNo, bits: BitSet) {
        if let Some(found) = self.segments.get_mut(&segment).filter(|found| found.mapped.len() == bits.len()) {
            (found.mapped, found.told) = (bits, true);
        }
    }

    /// Has the segments of a table counted, whatever the checkpoint says of them.
    pub fn distrust_space(&mut self, table: TableNo) {
        let held = self.with_tiers(&[table]);
        let held = |found: &&mut Segment| held.contains(&found.record.owner);
        self.segments.values_mut().filter(held).for_each(|found| found.told = false);
    }

    /// Whether all that the checkpoint has was applied: what comes now is new.
    pub(super) fn is_loaded(&self) -> bool {
        self.touched.loaded
    }

    /// All that the checkpoint has of segments was applied.
    pub fn space_loaded(&mut self) {
        self.touched.loaded = true;
    }

    /// Puts a segment into the map of which a record tells. It keeps its bits, if it was there; one that the log has
    /// made has none yet.
    pub(super) fn put_segment_again(&mut self, mut segment: Segment) {
        segment.told = self.touched.loaded;
        let before = self.segments.remove(&segment.record.id);
        if let Some(before) = before.filter(|before| before.mapped.len() == segment.mapped.len()) {
            (segment.mapped, segment.told) = (before.mapped, before.told);
        }
        self.put_segment(segment);
    }

    /// The tables of which segments are to be counted, for nobody can tell their bits.
    pub fn untold(&self) -> BTreeSet<TableNo> {
        if mutant::active(Mutant::LostSpaceIsFree) {
            return BTreeSet::new();
        }
        let untold = self.segments.values().filter(|found| !found.told && found.record.owner != OWNER_METADATA);
        untold.map(|found| self.holder(found.record.owner)).collect()
    }

    /// Works out which stripes are free from the bits of their segments, all of which are known.
    pub(super) fn take_mapped(&mut self) -> Result<()> {
        self.prove_loaded()?;
        self.tables.values_mut().for_each(|table| table.mapped = 0);
        for segment in self.segments.values_mut().filter(|found| found.record.owner != OWNER_METADATA) {
            segment.told = true;
            let len = segment.mapped.len();
            segment.mapped.runs(0..len, true).into_iter().for_each(|run| segment.free.remove(run));
            if let Some(table) = self.tables.get_mut(&segment.record.owner) {
                table.mapped += segment.mapped.count() as u64;
            }
        }
        Ok(())
    }

    /// Begins to count what a table maps in those of its segments that nobody can tell.
    pub fn begin_count(&mut self, table: TableNo) {
        self.tables_counted += 1;
        let held = self.with_tiers(&[table]);
        for segment in self.segments.values_mut().filter(|found| !found.told && held.contains(&found.record.owner)) {
            segment.mapped = BitSet::empty(segment.mapped.len());
            self.touched.now.insert(segment.record.id);
        }
    }

    /// Counts what a table says of these stripes, whose pages are in memory.
    pub fn count(&mut self, id: TableNo, stripes: Range<u64>) -> Result<()> {
        let Some(table) = self.tables.get(&id) else { return Ok(()) };
        let held = self.with_tiers(&[id]);
        for (stripe, place) in table.mapped_in(stripes) {
            let index = place.index as usize;
            let segment = self.segments.get_mut(&place.segment).filter(|segment| held.contains(&segment.record.owner));
            let Some(segment) = segment.filter(|segment| index < segment.mapped.len()) else {
                return fail!(Corrupt, "stripe {stripe} of table {id} is at {place:?}, which is not its own");
            };
            if segment.told {
                continue;
            }
            if segment.mapped.contains(index) {
                return fail!(Corrupt, "stripe {stripe} of table {id} is at {place:?}, where another one is");
            }
            segment.mapped.insert(index..index + 1);
        }
        Ok(())
    }

    /// What a table says of its segments that nobody can tell is lost in part: all of them count as in use.
    pub fn take_untold(&mut self, table: TableNo) {
        let held = self.with_tiers(&[table]);
        for segment in self.segments.values_mut().filter(|found| !found.told && held.contains(&found.record.owner)) {
            let len = segment.mapped.len();
            segment.mapped.insert(0..len);
        }
    }

    /// Puts right what the bits of a segment say contrary to its table. Returns records, as [`Map::free`] does.
    pub fn mend_space(&mut self, found: Contradiction) -> Vec<Record<'static>> {
        let (place, used) = match found {
            Contradiction::Idle(place) => (place, false),
            Contradiction::Unseen(place) => (place, true),
        };
        let Some(segment) = self.segments.get_mut(&place.segment) else { return Vec::new() };
        let (index, was) = (place.index as usize, segment.mapped.contains(place.index as usize));
        if was == used {
            return Vec::new();
        }
        let is_free = segment.free.contains(index);
        if used && is_free {
            segment.free.remove(index..index + 1);
            let (owner, counted) = (segment.record.owner, u64::from(!segment.emptying));
            self.tables.get_mut(&owner).into_iter().for_each(|table| table.free -= counted);
            self.relist(place.segment);
        }
        self.note_use(place, used);
        if used || is_free { Vec::new() } else { self.free(place) }
    }

    /// Notes from now on which places tables map anew or let go of, or no more.
    pub fn watch_space(&mut self, watches: bool) {
        self.touched.watchers = if watches { self.touched.watchers + 1 } else { self.touched.watchers - 1 };
        if self.touched.watchers == 0 {
            self.touched.seen.clear();
        }
    }

    /// Where the bits of the segments of a table contradict `seen`, which is what its pages said, but for places that
    /// changed hands meanwhile.
    pub fn contradictions(&self, table: TableNo, seen: &BTreeMap<SegmentNo, BitSet>) -> Vec<Contradiction> {
        let mut found = Vec::new();
        for segment in self.segments.values().filter(|found| self.holder(found.record.owner) == table) {
            let (none, id) = (BitSet::empty(segment.mapped.len()), segment.record.id);
            let seen = seen.get(&id).unwrap_or(&none);
            let differs = (0..seen.len()).filter(|index| seen.contains(*index) != segment.mapped.contains(*index));
            let places = differs.map(|index| Place::at(id, index as u32));
            found.extend(places.filter(|place| !self.touched.seen.contains(place)).map(|place| {
                if seen.contains(place.index as usize) {
                    Contradiction::Unseen(place)
                } else {
                    Contradiction::Idle(place)
                }
            }));
        }
        found
    }

    /// Whether a place changed hands since it is watched ([`Map::watch_space`]).
    pub fn changed_hands(&self, place: Place) -> bool {
        self.touched.seen.contains(&place)
    }
}
