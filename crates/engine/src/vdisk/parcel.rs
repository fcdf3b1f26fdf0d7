//! Packed stripes on their way: their places, their writing, and the step that makes them the truth.
//!
//! The story
//! 1. They get numbers and places, and the log reserves room for their records.
//! 2. They are written, and their disks flushed.
//! 3. One step makes them true: commits, and records that say what they hold, which retire the landed data.
//!
//! Invariants
//! 1. A packed stripe is committed only once it is durable on enough of its disks: so its commit is never withdrawn
//!    (`store/limbo.rs`), and what it retires is never needed again.
//! 2. What cannot be written gathers again, under what was written since, with all that the log holds of it; what was
//!    read from another packed stripe stays there.
//! 3. They wait for no room in the log.
//! 4. What was read from another packed stripe is named only if it still lies there, in the step in which that becomes
//!    true: nothing that is newer is replaced.

use super::destage::By;
use super::{Vdisk, add};
use crate::format::record::{PackRecord, PackRun, Record};
use crate::log::Room;
use crate::mutant::{self, Mutant};
use crate::segment::allocate::Claim;
use crate::segment::commit_record;
use crate::segment::fine::{Fine, Spot, UNIT, add_unit};
use crate::segment::taken::Taken;
use crate::store::strips::Written;
use crate::stripe::buffer::StripeBuffer;
use crate::stripe::sealed::{Home, Sealed};
use crate::stripe::table::Place;
use crate::units::{Nanos, TableNo};
use alloc::collections::BTreeSet;
use alloc::rc::Rc;
use alloc::vec;
use alloc::vec::Vec;

/// Segments that packed stripes leave free: what is written whole goes on.
pub(super) const SEGMENTS_LEFT: u64 = 2;

/// A packed stripe on its way.
pub(super) struct Parcel {
    /// Its number.
    pub(super) number: u64,
    /// Its bytes.
    pub(super) sealed: Rc<Sealed>,
    /// The stripes whose units it holds, and what was in their buffers.
    pub(super) parts: Vec<(u64, Rc<Sealed>)>,
    /// The units that it holds, one after the other, and where each was read from: it counts only if it still lies
    /// there then. None: it comes from a buffer.
    pub(super) units: Vec<(u64, Option<Spot>)>,
    /// What landed in records below this number is in it.
    pub(super) retires: u64,
}

impl Vdisk {
    /// Writes the packed stripes, `count` at most, that `make` makes once the log has room for their records, and adds
    /// to `packed` whose units they hold. `false`: not all could be written.
    pub(super) async fn write_packs(
        self: &Rc<Self>,
        count: usize,
        make: impl FnOnce() -> Vec<Parcel>,
        by: By,
        packed: &mut BTreeSet<u64>,
    ) -> bool {
        // A record that is written anew may be longer, but says less.
        let sums = self.packs_layout().stripe_sums() as u64 * 4;
        let each = Taken::by_stripe(self.packs_places());
        let log_len = count as u64 * (128 + sums + each.log);
        let room = if by == By::LogKeeper { Room::Destage } else { Room::Commit };
        if !self.store.log.has_room(log_len, room) || self.store.log.reserve(log_len, room).await.is_err() {
            return false;
        }
        let parcels = make();
        let written = !parcels.is_empty() && self.write_parcels(parcels, packed).await;
        self.store.log.unreserve(log_len);
        self.store.signals.room.notify();
        written
    }

    /// Seals the buffer of a packed stripe that has so many units.
    pub(super) fn seal_pack(&self, mut buffer: StripeBuffer, units: usize, retires: u64) -> Rc<Sealed> {
        let (layout, from) = (self.packs_layout(), units * UNIT as usize);
        buffer.fill(from, &vec![0; layout.data_len().as_usize() - from]);
        Rc::new(buffer.seal(retires, Home { table: self.packs_table(), layout }))
    }

    /// Packed stripes of units that were read, each from where it says: all of them, or none, where there is no place
    /// or no memory for one.
    pub(super) fn parcels_of(&self, groups: &[&[(u64, Spot, &[u8])]]) -> Vec<Parcel> {
        let mut parcels = Vec::new();
        for read in groups {
            let Some(parcel) = self.parcel_of(read) else {
                parcels.into_iter().for_each(|Parcel { number, .. }| self.unclaim_pack(number));
                return Vec::new();
            };
            parcels.push(parcel);
        }
        parcels
    }

    fn parcel_of(&self, read: &[(u64, Spot, &[u8])]) -> Option<Parcel> {
        let takes = self.store.map.borrow().fine_takes();
        if self.removed.get() || self.packs_left(takes, true) == 0 {
            return None;
        }
        let number = self.claim_pack()?;
        let mut buffer = StripeBuffer::new(self.packs_layout(), 0, Nanos(0));
        for (index, (.., bytes)) in read.iter().enumerate() {
            buffer.put(index * UNIT as usize, bytes, true);
        }
        let units = read.iter().map(|(unit, spot, _)| (*unit, Some(*spot))).collect();
        let retires = if mutant::active(Mutant::RepackedRetires) { self.store.log.seq() } else { 0 };
        let sealed = self.seal_pack(buffer, read.len(), retires);
        Some(Parcel { number, sealed, parts: Vec::new(), units, retires })
    }

    /// Claims a place for a packed stripe, and a number.
    pub(super) fn claim_pack(&self) -> Option<u64> {
        let mut records = Vec::new();
        let number = {
            let mut map = self.store.map.borrow_mut();
            let table = self.table_of(&map);
            // A table more is a record more in every checkpoint.
            if !map.may_have_packs(table) {
                return None;
            }
            let packs = map.packs_of(table, &mut records);
            let found = &map.tables[&packs];
            // What is not packed is merged, onto the same disks: it costs reads, and is no safer.
            let may = found.free > found.claims + 1 || map.segments_left(packs) > SEGMENTS_LEFT;
            let number = map.take_pack(table);
            let claimed = may
                && map.ensure_chunk(packs, number, &mut records).is_ok()
                && map.claim(packs, Claim::New, &mut records);
            if !claimed {
                map.untake_pack(table, number);
            }
            claimed.then_some(number)
        };
        self.store.append_all(records);
        number
    }

    /// Gives number and claim back.
    pub(super) fn unclaim_pack(&self, number: u64) {
        let mut map = self.store.map.borrow_mut();
        let table = self.table_of(&map);
        map.untake_pack(table, number);
        if let Some(packs) = map.fine(table).map(|fine| fine.packs) {
            map.unclaim(packs);
        }
    }

    /// Writes packed stripes and commits them; what cannot be written gathers again. Says whether all were.
    async fn write_parcels(self: &Rc<Self>, parcels: Vec<Parcel>, packed: &mut BTreeSet<u64>) -> bool {
        let table = self.packs_table();
        let mut rest = parcels;
        let mut written = Vec::new();
        while !rest.is_empty() {
            // What is frozen waits for what was taken before: nothing here waits for it.
            let mut records = Vec::new();
            let taken = self.store.map.borrow_mut().take_stripes(table, rest.len() as u32, &mut records);
            self.store.append_all(records);
            let Ok((place, count)) = taken else { break };
            let later = rest.split_off(count as usize);
            let now = core::mem::replace(&mut rest, later);
            let _turn = self.store.await_turn(place, count, Room::Destage, || true).await;
            let sealed: Vec<Rc<Sealed>> = now.iter().map(|parcel| parcel.sealed.clone()).collect();
            written.push((self.store.write_places(place, &sealed).await, now));
        }
        let mut sound = rest.is_empty();
        if !sound {
            self.unpackable.set(Some(self.store.signals.changes.get()));
        }
        for parcel in rest {
            self.unclaim_pack(parcel.number);
            self.gather_parts(parcel);
        }
        if !mutant::active(Mutant::PackUnflushed) {
            self.store.flush_written(written.iter().map(|(written, _)| written)).await;
        }
        for (written, parcels) in written {
            let of: Vec<u64> =
                parcels.iter().flat_map(|parcel| parcel.parts.iter().map(|(stripe, _)| *stripe)).collect();
            match self.commit_parcels(written, parcels).await {
                true => packed.extend(of),
                false => sound = false,
            }
        }
        sound
    }

    fn packs_table(&self) -> TableNo {
        let map = self.store.map.borrow();
        map.fine(self.table_of(&map)).expect("it packs").packs
    }

    /// Commits packed stripes whose disks were flushed, if enough of them have them; else they gather again.
    async fn commit_parcels(self: &Rc<Self>, written: Written, parcels: Vec<Parcel>) -> bool {
        let (layout, place) = (self.packs_layout(), written.place);
        let held = match written.target {
            Some(_) => self.store.load_sums_at(place, parcels.len()).await.ok(),
            None => None,
        };
        // No await from here on.
        let lacking = written.lacking(&self.store);
        let durable = lacking.count_ones() as usize <= layout.failures() || mutant::active(Mutant::PackUnflushed);
        if held.is_none() || !durable || self.removed.get() {
            self.store.give_up(place, parcels.len() as u32);
            for parcel in parcels {
                self.unclaim_pack(parcel.number);
                self.gather_parts(parcel);
            }
            self.unpackable.set(Some(self.store.signals.changes.get()));
            return false;
        }
        self.store.note_missed(place.segment, lacking);
        let count = parcels.len();
        for (nth, parcel) in parcels.into_iter().enumerate() {
            self.commit_parcel(parcel, Place { index: place.index + nth as u32, ..place });
        }
        self.store.map.borrow_mut().end_write(place, count as u32);
        self.store.free_empty_packs();
        self.store.signals.packed.notify();
        self.store.stripes_written(layout.interleave().0 * count as u64);
        true
    }

    /// Makes a packed stripe the truth. Synchronous.
    fn commit_parcel(self: &Rc<Self>, parcel: Parcel, place: Place) {
        let runs = self.store.map.borrow().fine(self.table()).map_or_else(Vec::new, |fine| parcel.runs(fine));
        let Parcel { number: stripe, sealed, parts, units, retires } = parcel;
        let (table, sums) = (self.packs_table(), sealed.sums(place.segment, place.index));
        let place = place.born(self.store.log.seq());
        self.store.set_sums(place, (table, stripe), &sums);
        let seq = self.store.log.append(&commit_record(table, stripe, place, 0, &sums));
        self.store.map.borrow_mut().commit(table, stripe, Some(place), seq);
        let from_buffers = units.iter().filter(|(_, spot)| spot.is_none()).count() as u64;
        let record = PackRecord { table, stripe, retires, runs };
        let seq = self.store.log.append(&Record::Pack(record.clone()));
        let packed = self.store.map.borrow_mut().pack(&record, seq);
        packed.expect("a packed stripe holds what fits");
        add(&self.counters.packed, from_buffers * UNIT);
        add(&self.counters.packed_parts, parts.len() as u64);
        for (stripe, part) in parts {
            self.store.relist(self.id, stripe, part.landed_from(), None);
            let table = self.table();
            self.store.map.borrow_mut().unclaim(table);
            self.is_down(stripe, &part);
        }
    }

    /// What was closed to be packed gathers again, under what was written since.
    fn gather_parts(self: &Rc<Self>, parcel: Parcel) {
        for (stripe, part) in parcel.parts {
            if self.removed.get() {
                self.is_down(stripe, &part);
                continue;
            }
            if self.with_filling(stripe, |_| ()).is_some() {
                // It has a claim of its own.
                let table = self.table();
                self.store.map.borrow_mut().unclaim(table);
            } else {
                self.open_buffer(stripe);
            }
            self.store.relist(self.id, stripe, part.landed_from(), None);
            let taken = self.with_filling(stripe, |buffer| {
                let (before, memory) = (buffer.landed.oldest(), buffer.memory());
                buffer.take_below(part.part().expect("it is none"));
                buffer.landed.take_over(&part.landed.borrow());
                (before, buffer.landed.oldest(), buffer.memory() - memory)
            });
            let (before, now, growth) = taken.expect("it was just opened");
            self.store.buffered_changed(growth as i64);
            self.store.relist(self.id, stripe, before, now);
            self.is_down(stripe, &part);
        }
    }
}

impl Parcel {
    /// What its record says: those of its units that are the newest.
    fn runs(&self, fine: &Fine) -> Vec<PackRun> {
        let mut runs: Vec<PackRun> = Vec::new();
        for (index, (unit, spot)) in self.units.iter().enumerate() {
            if spot.is_none() || fine.get(*unit) == *spot || mutant::active(Mutant::RepackedReplacesNewer) {
                add_unit(&mut runs, *unit, index as u32);
            }
        }
        runs
    }
}
