//! Moving stripes to other places of their table, as they are: what keeps room, or packed units above them, stays as it
//! was.
//!
//! The story
//! 1. Stripes are read, by way of the read that proves every block, and pinned where they lie.
//! 2. They are written to free places that were claimed for them, and the disks of those are flushed.
//! 3. One step makes it true, for each of them that still lies where it was read.
//!
//! Invariants
//! 1. What was moved is durable before its record is: so that is never withdrawn (`store/limbo.rs`).
//! 2. A stripe that was written, or unmapped, meanwhile stays as it is now. One of which a version is not durable, or
//!    in limbo, is not moved: nobody knows yet what it is.
//! 3. A move retires nothing: neither what landed of a stripe, nor the packed units above it.
//! 4. Nothing is moved where it would have less redundancy than it was promised.

use super::Store;
use super::compact::Elsewhere;
use super::execute::Target;
use super::strips::Written;
use super::together::Part;
use crate::format::record::{CommitRecord, Record};
use crate::log::Room;
use crate::mutant::{self, Mutant};
use crate::stripe::buffer::StripeBuffer;
use crate::stripe::plan::Want;
use crate::stripe::sealed::{Home, Sealed};
use crate::stripe::table::Place;
use crate::sync::join;
use crate::units::{SegmentNo, TableNo};
use alloc::borrow::Cow;
use alloc::collections::BTreeSet;
use alloc::rc::Rc;
use alloc::vec::Vec;

/// A stripe that is being moved.
struct Moving {
    stripe: u64,
    from: Place,
    sealed: Rc<Sealed>,
}

impl Store {
    /// Bytes of memory that a stripe of `table` takes while it is moved.
    pub(super) fn cost_of_move(&self, table: TableNo) -> u64 {
        let map = self.map.borrow();
        map.tables.get(&table).map_or(0, |table| table.record.layout.data_len().0 + table.record.layout.raw_len().0)
    }

    /// Moves those of `stripes` of `table` that lie in `segment` to places of other segments, which are claimed. Says
    /// how many were.
    pub(super) async fn move_stripes(self: &Rc<Self>, table: TableNo, segment: SegmentNo, stripes: &[u64]) -> u64 {
        let pinned = self.pin_in(table, segment, stripes).await;
        let moving = self.read_for_move(table, &pinned).await;
        let moved = self.move_read(table, moving).await;
        for (_, place) in pinned {
            let records = self.map.borrow_mut().unpin(place);
            self.append_all(records);
        }
        moved
    }

    /// Pins those of `stripes` that lie in `segment`, and may be moved. Returns where.
    async fn pin_in(&self, table: TableNo, segment: SegmentNo, stripes: &[u64]) -> Vec<(u64, Place)> {
        let mut pinned = Vec::new();
        for stripe in stripes {
            let Ok(_held) = self.load_table(table, *stripe..*stripe + 1).await else { continue };
            let mut map = self.map.borrow_mut();
            let place = map.tables.get(&table).and_then(|table| table.get(*stripe));
            if let Some(place) = place.filter(|place| place.segment == segment) {
                map.pin(place);
                pinned.push((*stripe, place));
            }
        }
        pinned
    }

    /// Reads stripes as a whole; those that cannot be read are left where they are.
    async fn read_for_move(&self, table: TableNo, pinned: &[(u64, Place)]) -> Vec<Moving> {
        let target = |(stripe, place): &(u64, Place)| {
            let target = Target::new(self, *place)?.owned_by(table, *stripe);
            let layout = target.layout;
            let want = |column| Want { column, blocks: 0..layout.strip_blocks() };
            Some(Part { wants: (0..layout.data_columns()).map(want).collect(), target })
        };
        let parts: Option<Vec<Part>> = pinned.iter().map(target).collect();
        let Some(parts) = parts else { return Vec::new() };
        let read = self.read_together(&parts, None).await;
        let mut moving = Vec::new();
        for (((stripe, from), part), read) in pinned.iter().zip(&parts).zip(read) {
            let Ok(slices) = read else { continue };
            let layout = part.target.layout;
            let mut buffer = StripeBuffer::new(layout, 0, self.world.now());
            for (column, slice) in slices.into_iter().enumerate() {
                buffer.put(column * layout.interleave().as_usize(), &slice, true);
                self.traffic.spare.give(slice);
            }
            let sealed = Rc::new(buffer.seal(0, Home { table, layout }));
            moving.push(Moving { stripe: *stripe, from: *from, sealed });
        }
        moving
    }

    /// Writes what was read to other places, and says that it lies there. Says how many were moved.
    async fn move_read(self: &Rc<Self>, table: TableNo, moving: Vec<Moving>) -> u64 {
        let sums = moving.first().map_or(0, |moving| moving.sealed.home().layout.stripe_sums());
        let log_len = moving.len() as u64 * (64 + sums as u64 * 4);
        let admitted = || self.check_not_closing();
        if moving.is_empty() || self.log.reserve_unless(log_len, Room::Commit, admitted).await.is_err() {
            return 0;
        }
        let mut parcels = Vec::new();
        let mut rest = moving;
        while !rest.is_empty() {
            let taken = {
                let mut map = self.map.borrow_mut();
                let exists = map.tables.contains_key(&table);
                if exists { map.take_for_move(table, rest.len() as u32) } else { None }
            };
            let Some((place, count)) = taken else { break };
            let later = rest.split_off(count as usize);
            parcels.push((place, core::mem::replace(&mut rest, later)));
        }
        let write = |(place, moving): (Place, Vec<Moving>)| async move {
            let _turn = self.await_turn(place, moving.len() as u32, Room::Destage, || true).await;
            let sealed: Vec<Rc<Sealed>> = moving.iter().map(|moving| moving.sealed.clone()).collect();
            (self.write_places(place, &sealed).await, moving)
        };
        let written = join(parcels.into_iter().map(write)).await;
        if !mutant::active(Mutant::MoveUnflushed) {
            self.flush_written(written.iter().map(|(written, _)| written)).await;
        }
        let mut moved = 0;
        for (written, moving) in written {
            moved += self.commit_moved(table, written, moving).await;
        }
        self.log.unreserve(log_len);
        moved
    }

    /// Says of stripes that were written, and flushed, that they lie there now. Says of how many.
    async fn commit_moved(&self, table: TableNo, written: Written, moving: Vec<Moving>) -> u64 {
        let (place, count) = (written.place, moving.len() as u32);
        let stripes: Vec<u64> = moving.iter().map(|moving| moving.stripe).collect();
        let held = match written.target {
            Some(_) => self.load_for_commit(table, &stripes, place).await.ok(),
            None => None,
        };
        // No await from here on.
        let lacking = written.lacking(self);
        let is_thin = lacking != 0 && !mutant::active(Mutant::MoveUnflushed);
        if held.is_none() || is_thin || !self.map.borrow().tables.contains_key(&table) {
            self.give_up(place, count);
            return 0;
        }
        let unsettled = self.limbo.unsettled(table);
        let mut moved = 0;
        for (nth, moving) in moving.into_iter().enumerate() {
            let to = Place { index: place.index + nth as u32, ..place };
            if self.is_as_read(table, &moving, &unsettled) || mutant::active(Mutant::MoveReplacesNewer) {
                self.commit_move(table, &moving, to);
                self.map.borrow_mut().end_write(to, 1);
                self.compaction.note_moved(Elsewhere { table, stripe: moving.stripe, is_fast: false });
                moved += 1;
            } else {
                self.give_up(to, 1);
            }
        }
        let layout = written.target.expect("it was looked at").layout;
        self.stripes_written(layout.interleave().0 * u64::from(count));
        if self.has_too_many_dirty_pages() {
            self.log.pressure.notify();
        }
        moved
    }

    /// Whether a stripe is still what was read, and that for good (invariant 2).
    fn is_as_read(&self, table: TableNo, moving: &Moving, unsettled: &BTreeSet<u64>) -> bool {
        let map = self.map.borrow();
        let lies = map.tables[&table].get(moving.stripe) == Some(moving.from);
        lies && !map.limbo.contains_key(&(table, moving.stripe)) && !unsettled.contains(&moving.stripe)
    }

    /// Makes it the truth that a stripe lies there. Synchronous.
    fn commit_move(&self, table: TableNo, moving: &Moving, place: Place) {
        let sums = moving.sealed.sums(place.segment, place.index);
        let place = place.born(self.log.seq());
        self.set_sums(place, (table, moving.stripe), &sums);
        let seq = self.log.append(&Record::Move(CommitRecord {
            table,
            stripe: moving.stripe,
            segment: place.segment,
            index: place.index,
            birth: place.birth,
            retires: 0,
            sums: Cow::Borrowed(&sums),
        }));
        self.map.borrow_mut().commit(table, moving.stripe, Some(place), seq);
    }
}
