//! Packing: partial stripes that have to leave give their units, with their like, to packed stripes. Nothing is read
//! because of that but the rest of a 4 KiB block of which only a part was written.
//!
//! The story
//! 1. Of the stripes that are to leave, those that are nearly whole are merged; the others are sorted by their
//!    addresses and cut into packed stripes, so that what lies beside each other there is read together later.
//! 2. Their buffers are closed, in one step: they fly from now on, and what is written meanwhile gathers in new ones.
//! 3. The packed stripes are written, and committed (`parcel.rs`).
//!
//! Invariants
//! 1. Nothing is packed above a version of its stripe that is not durable, or not read: if that were committed anew, it
//!    would replace what is newer.
//! 2. The rest of a block is read only where no version of its stripe is in flight: that one would be its past.

use super::destage::{By, each_of};
use super::parcel::{Parcel, SEGMENTS_LEFT};
use super::{Vdisk, add};
use crate::error::Result;
use crate::mutant::{self, Mutant};
use crate::segment::Map;
use crate::segment::fine::{Spot, UNIT};
use crate::segment::taken::Taken;
use crate::store::budget::Budget;
use crate::stripe::buffer::StripeBuffer;
use crate::stripe::landed::Landed;
use crate::units::Nanos;
use alloc::collections::BTreeSet;
use alloc::rc::Rc;
use alloc::vec;
use alloc::vec::Vec;
use core::cell::RefCell;

/// Bytes of packed stripes that are written, and flushed, together.
const TOGETHER: u64 = 16 << 20;
/// The part of the log that the records of packed stripes may take, as a divisor, and of their memory; half as much
/// again is room for what is half empty.
const LOG_SHARE: u64 = 16;
const MEMORY_SHARE: (u64, u64) = (2, 3);

/// What counts as full in [`Vdisk::pack_fill`].
pub(crate) const WHOLE: u64 = 1 << 10;
/// What counts as full there. Packed stripes that hold little have room beside the share of a virtual disk; beside the
/// size of a cache they have hardly any.
const FULL: Full = Full { units: (4, 5), stripes: (5, 3) };
const CACHE_FULL: Full = Full { units: (2, 3), stripes: (6, 5) };

/// There is ample room where there are places for so many times the packed stripes that there may be.
const AMPLE: u64 = 4;

/// The part of the packed stripes that there may be from which on those which hold little are brought together: of a
/// virtual disk, so that the mover does it alone where there is room, and of a cache.
const THIN: (u64, u64) = (4, 3);
const CACHE_THIN: (u64, u64) = (9, 8);

/// Parts (numerator and denominator) of the packed stripes that a virtual disk may have.
struct Full {
    units: (u64, u64),
    stripes: (u64, u64),
}

impl Vdisk {
    /// Packs what is to leave of `stripes`, as far as that can be done. Returns those that have to leave otherwise.
    pub(crate) async fn pack(self: &Rc<Self>, mut stripes: Vec<u64>, budget: &Budget, by: By) -> Vec<u64> {
        if !self.may_pack() {
            return stripes;
        }
        stripes.sort_unstable();
        let (mut chosen, mut rest) = self.choose(stripes);
        self.packing.set(self.packing.get() + 1);
        if !chosen.is_empty() && !self.store.announce_packs().await {
            rest.extend(chosen.iter());
            chosen.clear();
        }
        let chosen = self.fill_blocks(chosen, &mut rest).await;
        rest.extend(&chosen);
        self.make_room_for(&chosen, budget, by).await;
        let mut packed = BTreeSet::new();
        // Some were lifted, or packed, while there was no room.
        let stale = mutant::active(Mutant::OneUnpackableEndsAll);
        let mut groups = self.cut(if stale { chosen } else { self.choose(chosen).0 });
        while !groups.is_empty() {
            let raw = self.packs_layout().raw_len().0;
            let most = (TOGETHER / raw).max(1) as usize;
            let later = groups.split_off(groups.len().min(most));
            let group = core::mem::replace(&mut groups, later);
            let _lease = budget.take(raw * group.len() as u64).await;
            if !self.pack_group(group, by, &mut packed).await {
                break;
            }
        }
        rest.retain(|stripe| !packed.contains(stripe));
        self.end_packing();
        rest.sort_unstable();
        rest
    }

    /// Whether small writes are packed, as things stand now.
    pub(super) fn may_pack(&self) -> bool {
        !self.removed.get()
            && (self.fine_share() > 0 || self.cache().is_some())
            && self.layout().data_len().0 > UNIT
            && !self.drains()
            && !self.packs_are_in_the_way()
            && self.unpackable.get() != Some(self.store.signals.changes.get())
            && self.failure().is_none()
            && (self.pack_room() > 0 || self.cache().is_some())
    }

    /// How many packed stripes this virtual disk may have: its share, as far as log, memory and free stripes take them
    /// beside all others of the pool.
    pub(crate) fn packs_max(&self) -> u64 {
        let map = self.store.map.borrow();
        let have = map.fine(self.table_of(&map)).map_or(0, |fine| fine.stripes());
        let places = have + self.places_for_packs(&map);
        let places = if mutant::active(Mutant::PacksCountNoRoom) { u64::MAX } else { places };
        // Those that hold little count whole: they may be half as many again.
        self.packs_shared().min(have + self.packs_left(map.fine_takes(), false)).min(places / 3 * 2)
    }

    /// How many more packed stripes there are free stripes for. Those of a cache have its disks.
    fn places_for_packs(&self, map: &Map) -> u64 {
        if map.vdisks.get(&self.id).is_some_and(|vdisk| vdisk.cache.is_some()) {
            return u64::MAX / 2;
        }
        let table = self.table_of(map);
        let packs = map.fine(table).and_then(|fine| map.tables.get(&fine.packs));
        let free = packs.map_or(0, |packs| packs.free.saturating_sub(packs.claims + 1));
        free + map.segments_left(table).saturating_sub(SEGMENTS_LEFT) * map.stripes_in(table)
    }

    /// How many packed stripes it would have beside those it has if there were free stripes for all of them.
    fn packs_wanted(&self) -> u64 {
        let map = self.store.map.borrow();
        let have = map.fine(self.table_of(&map)).map_or(0, |fine| fine.stripes());
        (self.packs_shared() / 2 * 3).saturating_sub(have).min(self.packs_left(map.fine_takes(), true))
    }

    /// Whether what gathers is to be packed before a segment more is made for it: it has claimed half as many stripes
    /// as a segment has, and there are hardly more segments than packed stripes may want.
    pub(super) fn is_packed_first(&self) -> bool {
        let (per_segment, left) = {
            let map = self.store.map.borrow();
            let table = &map.tables[&self.table_of(&map)];
            let per_segment = map.stripes_in(table.record.id);
            if table.free > table.claims + per_segment / 4 || table.claims * 2 < per_segment {
                return false;
            }
            (per_segment, map.segments_left(table.record.id))
        };
        let wanted = SEGMENTS_LEFT + 1 + self.packs_wanted().div_ceil(per_segment);
        left <= wanted && self.cache().is_none() && self.may_pack() && !mutant::active(Mutant::GathersLastSegments)
    }

    /// How full its packed stripes are, in parts of [`WHOLE`]: by the units that they hold, or by their number,
    /// whichever is more. A sweep of the mover takes units from all of them, and frees hardly one before it has come by
    /// all addresses: by their number alone it would hurry all the way, and then rest for long.
    pub(crate) fn pack_fill(&self) -> u64 {
        if self.removed.get() {
            return 0;
        }
        let (units, stripes, most) = self.packed();
        if mutant::active(Mutant::MoverCountsStripes) {
            return stripes * WHOLE / most.max(1);
        }
        let full = if self.cache().is_some() { CACHE_FULL } else { FULL };
        let fill = |have: u64, most: u64, (part, of): (u64, u64)| have * WHOLE * of / (most * part).max(1);
        let coming = if self.counts_what_gathers(stripes, most) { self.stripes.borrow().len() as u64 } else { 0 };
        fill(units + coming, most * self.packs_places(), full.units).max(fill(stripes, most, full.stripes))
    }

    /// Whether what gathers, and is packed soon, counts as packed. By what is packed alone, the mover would rest while
    /// much comes in, and then be at work for long. In a pool with little room beside what may be packed it would begin
    /// too early, and small writes would wait when thin packed stripes are brought together.
    fn counts_what_gathers(&self, stripes: u64, most: u64) -> bool {
        let places = stripes + self.places_for_packs(&self.store.map.borrow());
        places >= AMPLE * most && !mutant::active(Mutant::MoverSeesNoneComing)
    }

    /// How many packed stripes it may have beside those it has.
    fn pack_room(&self) -> u64 {
        self.packs_wanted().min(self.places_for_packs(&self.store.map.borrow()))
    }

    /// The share of its size that may lie in packed stripes, in thousandths: its own, or what holds for all.
    pub fn fine_share(&self) -> u64 {
        self.own_share().map_or(self.store.tuning.fine_share, u64::from)
    }

    /// The share of it that somebody said, in thousandths.
    fn own_share(&self) -> Option<u16> {
        self.store.map.borrow().vdisks.get(&self.id).and_then(|vdisk| vdisk.fine_share)
    }

    /// The share of a virtual disk, or the size of its cache, in packed stripes.
    fn packs_shared(&self) -> u64 {
        if let Some(cache) = self.cache() {
            return cache.size.0 / cache.layout.data_len().0;
        }
        let stripes = |share: u64| self.size().0 / 1000 * share / self.layout().data_len().0;
        let (share, on_flash) = (self.fine_share(), self.store.tuning.fine_share_flash);
        let usual = stripes(share).max((share > 0) as u64 * 2);
        if share == 0 || on_flash <= share || self.own_share().is_some() || self.seeks() {
            return usual;
        }
        // Others are to find room, too.
        let map = self.store.map.borrow();
        let have = map.fine(self.table_of(&map)).map_or(0, |fine| fine.stripes());
        let places = have + self.places_for_packs(&map);
        let ample = if mutant::active(Mutant::PacksTakeTheRoom) { u64::MAX } else { places / AMPLE };
        stripes(on_flash).min(ample).max(usual)
    }

    /// How many more packed stripes of this layout log and memory of the pool take, where they have `taken` so much;
    /// `all`: the room for what is half empty, too.
    pub(super) fn packs_left(&self, taken: Taken, all: bool) -> u64 {
        let each = Taken::by_stripe(self.packs_places());
        if each.log > self.store.log.record_max() {
            return 0;
        }
        let (memory, log) = (self.store.tuning.fine_memory, self.store.log.fill().1 / LOG_SHARE);
        let (memory, log) = if all { (memory, log / 2 * 3) } else { (memory / MEMORY_SHARE.1 * MEMORY_SHARE.0, log) };
        let (memory, log) = (memory.saturating_sub(taken.memory), log.saturating_sub(taken.log));
        match mutant::active(Mutant::PackMemoryUncounted) {
            true => log / each.log,
            false => (memory / each.memory).min(log / each.log),
        }
    }

    /// Moves down what lies in packed stripes, where the units of `stripes` would be more than there may be; and brings
    /// together what lies in those that hold little, where there are not enough others.
    async fn make_room_for(self: &Rc<Self>, stripes: &[u64], budget: &Budget, by: By) {
        let units = |stripe: &u64| self.with_filling(*stripe, |buffer| buffer.blocks().count()).unwrap_or(0) as u64;
        let coming: u64 = stripes.iter().map(units).sum();
        let (places, most) = (self.packs_places(), self.packs_max());
        while self.packed().0 + coming > most * places && self.move_down(budget, by).await > 0 {}
        while self.pack_room() <= coming / places && self.repack(budget, by).await {}
    }

    /// Whether there are so many packed stripes that those which hold little are to be brought together.
    pub(crate) fn has_thin_packs(&self) -> bool {
        if self.removed.get() {
            return false;
        }
        let (_, stripes, most) = self.packed();
        let (part, of) = if self.cache().is_some() { CACHE_THIN } else { THIN };
        stripes * of >= most * part && self.may_pack()
    }

    /// Tells stripes that are packed from those that are not.
    fn choose(&self, stripes: Vec<u64>) -> (Vec<u64>, Vec<u64>) {
        let unsettled = self.store.limbo.unsettled(self.table());
        stripes.into_iter().partition(|stripe| self.is_packable(*stripe, &unsettled))
    }

    /// Whether the buffer of a stripe can be packed, and is worth it.
    fn is_packable(&self, stripe: u64, unsettled: &BTreeSet<u64>) -> bool {
        let most = self.packs_at_most();
        let look = |buffer: &mut StripeBuffer| {
            let blocks = buffer.blocks().count() * UNIT as usize;
            blocks > 0 && blocks <= most && buffer.lent == 0
        };
        let settled = !unsettled.contains(&stripe) && !self.abandoned.borrow().contains(&stripe);
        settled && self.in_flight(stripe).is_none() && self.with_filling(stripe, look).unwrap_or(false)
    }

    /// Whether what a stripe landed in records below `bound` is short, and would be packed if no version of it were in
    /// flight.
    pub(crate) fn is_packable_soon(&self, stripe: u64, bound: u64) -> bool {
        let Some(sealed) = self.in_flight(stripe).filter(|_| self.may_pack()) else { return false };
        let len = |landed: &Landed| landed.below(bound).iter().map(|bytes| bytes.len()).sum::<usize>();
        let gathering = self.with_filling(stripe, |buffer| len(&buffer.landed)).unwrap_or(0);
        let in_flight = len(&sealed.landed.borrow());
        gathering + in_flight <= self.packs_at_most()
    }

    /// Reads what is missing of blocks of which only a part was written. What cannot be read goes to `rest`.
    async fn fill_blocks(self: &Rc<Self>, stripes: Vec<u64>, rest: &mut Vec<u64>) -> Vec<u64> {
        let (good, bad) = (RefCell::new(Vec::new()), RefCell::new(Vec::new()));
        each_of(stripes, |stripe| {
            let (good, bad) = (&good, &bad);
            async move {
                let filled = self.fill_blocks_of(stripe).await.is_ok();
                if filled { good.borrow_mut().push(stripe) } else { bad.borrow_mut().push(stripe) }
            }
        })
        .await;
        rest.extend(bad.into_inner());
        let mut good = good.into_inner();
        good.sort_unstable();
        good
    }

    async fn fill_blocks_of(self: &Rc<Self>, stripe: u64) -> Result<()> {
        let look = |buffer: &mut StripeBuffer| (buffer.id, buffer.blocks().filter(|(_, whole)| !whole).collect());
        let Some((id, partial)): Option<(u64, Vec<(usize, bool)>)> = self.with_filling(stripe, look) else {
            return Ok(());
        };
        // The buffer that was chosen may have left meanwhile, and this one have begun above it: what belongs under it
        // cannot be read yet.
        if self.in_flight(stripe).is_some() && !mutant::active(Mutant::BlockFilledTooEarly) {
            return Ok(());
        }
        let start = stripe * self.layout().data_len().0;
        for (block, _) in partial {
            let at = block as u64 * UNIT;
            let mut bytes = vec![0; UNIT as usize];
            let read = self.read_below(start + at..start + at + UNIT, &mut bytes).await?;
            self.check_not_lost(stripe)?;
            add(&self.counters.read_for_write, read);
            let fill = |buffer: &mut StripeBuffer| {
                // Another buffer has another past.
                if buffer.id == id {
                    let (merged, before) = (buffer.merged, buffer.memory());
                    buffer.fill(at as usize, &bytes);
                    buffer.merged = merged;
                    return buffer.memory() - before;
                }
                0
            };
            let growth = self.with_filling(stripe, fill).unwrap_or(0);
            self.store.buffered_changed(growth as i64);
        }
        Ok(())
    }

    /// Cuts stripes, in the order of their addresses, into what fits a packed stripe each.
    fn cut(&self, stripes: Vec<u64>) -> Vec<Vec<u64>> {
        let places = self.packs_places() as usize;
        let mut groups: Vec<Vec<u64>> = Vec::new();
        let mut left = 0;
        for stripe in stripes {
            let units = self.with_filling(stripe, |buffer| buffer.blocks().count()).unwrap_or(0);
            if units > left {
                groups.push(Vec::new());
                left = places;
            }
            if let Some(group) = groups.last_mut() {
                group.push(stripe);
                left = left.saturating_sub(units);
            }
        }
        groups.truncate(self.pack_room() as usize);
        groups
    }

    /// Writes a packed stripe for each of `groups`, and adds to `packed` whose units they hold. `false`: not all could
    /// be written.
    async fn pack_group(self: &Rc<Self>, groups: Vec<Vec<u64>>, by: By, packed: &mut BTreeSet<u64>) -> bool {
        let count = groups.len();
        let close = || {
            let mut parcels = Vec::new();
            for group in groups {
                let place = if self.removed.get() || self.pack_room() == 0 { None } else { self.claim_pack() };
                let Some(number) = place else { break };
                let parcel = self.close_buffers(number, group);
                // One of which nothing can be packed any more leaves its place to others.
                if parcel.is_none() && mutant::active(Mutant::OneUnpackableEndsAll) {
                    break;
                }
                parcels.extend(parcel);
            }
            parcels
        };
        self.write_packs(count, close, by, packed).await
    }

    /// Closes the buffers of `stripes`, as far as they can still be packed, into the packed stripe of this number.
    /// Synchronous. None: none can be, and the number is given back.
    fn close_buffers(self: &Rc<Self>, number: u64, stripes: Vec<u64>) -> Option<Parcel> {
        let unsettled = self.store.limbo.unsettled(self.table());
        let (layout, retires) = (self.packs_layout(), self.store.log.seq());
        let (per_stripe, places) = (self.layout().data_len().0 / UNIT, layout.data_len().0 / UNIT);
        let mut buffer = StripeBuffer::new(layout, 0, Nanos(0));
        let (mut units, mut parts): (Vec<(u64, Option<Spot>)>, Vec<_>) = (Vec::new(), Vec::new());
        for stripe in stripes {
            let fits = |buffer: &mut StripeBuffer| {
                units.len() + buffer.blocks().count() <= places as usize && buffer.blocks().all(|(_, whole)| whole)
            };
            if !self.is_packable(stripe, &unsettled) || !self.with_filling(stripe, fits).unwrap_or(false) {
                continue;
            }
            let mut stripes = self.stripes.borrow_mut();
            let gathering = stripes.get_mut(&stripe).expect("it gathers");
            let part = Rc::new(gathering.filling.take().expect("it gathers").close(retires, self.base()));
            gathering.in_flight = Some(part.clone());
            drop(stripes);
            self.store.in_flight_changed(part.charged() as i64);
            for (block, _) in part.part().expect("it is none").blocks() {
                let mut bytes = [0; UNIT as usize];
                part.get(block * UNIT as usize, &mut bytes);
                buffer.put(units.len() * UNIT as usize, &bytes, true);
                units.push((stripe * per_stripe + block as u64, None));
            }
            parts.push((stripe, part));
        }
        if parts.is_empty() {
            self.unclaim_pack(number);
            return None;
        }
        let sealed = self.seal_pack(buffer, units.len(), retires);
        Some(Parcel { number, sealed, parts, units, retires })
    }
}
