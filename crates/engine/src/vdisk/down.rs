//! Moving down: units of packed stripes come into whole stripes again, many stripes at once, in the order of their
//! addresses. What lies beside each other is read together: units that were packed together are neighbours.
//!
//! Invariants
//! 1. Every stripe that is moved has a buffer from before it is read until it is whole. As long as it is that buffer,
//!    nothing below it has changed: nothing that is newer is replaced by what was read.
//! 2. A stripe that cannot be read is set aside until the pool has changed. One that is passed by for another reason is
//!    taken again with the next batches: a few units in each packed stripe would keep all of them for a whole sweep.
//! 3. What is lifted just to lie in order is left where it is once a client asks for anything, but for what is in a
//!    buffer already.

use super::destage::{By, each_of};
use super::packed_ahead::PackedAhead;
use super::{Vdisk, add};
use crate::mutant::{self, Mutant};
use crate::segment::ahead::Found;
use crate::segment::allocate::Claim;
use crate::store::budget::Budget;
use crate::store::execute::Target;
use crate::store::together::Part;
use crate::stripe::sealed::Tier;
use crate::stripe::table::Place;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::rc::Rc;
use alloc::vec;
use alloc::vec::Vec;
use core::cell::Cell;
use core::ops::Range;

/// Stripes that are moved at once, at most.
const AT_ONCE: usize = 256;

/// How often a stripe that is passed by is taken again, before it waits for the next sweep.
const PASSES: u32 = 8;

/// Stripes that are lifted just to lie in order: so many are read, and twice as many sent, before it is looked whether
/// a client has asked for anything.
const BEFORE_A_LOOK: usize = 32;

/// What stripes are lifted for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Lift {
    /// They must leave where they are: their units lie packed, or they lie in older tables.
    Away,
    /// They do not lie in order ([`super::order`]), and clients have asked for so much so far.
    Order {
        /// Requests of clients.
        asked: u64,
    },
    /// They are to lie in another tier ([`super::tier`]).
    Tier {
        /// Which.
        to: Tier,
        /// What clients have asked for so far, if the move is to give way to them.
        asked: Option<u64>,
    },
}

impl Lift {
    fn is_for_order(self) -> bool {
        matches!(self, Lift::Order { .. })
    }

    /// Whether it is done for nothing but a better place: what was discarded meanwhile takes none again, and what is
    /// read counts for no write.
    fn is_for_place(self) -> bool {
        !matches!(self, Lift::Away)
    }

    /// What clients have asked for so far, if the move gives way to them.
    fn gives_way(self) -> Option<u64> {
        match self {
            Lift::Away => None,
            Lift::Order { asked } => Some(asked),
            Lift::Tier { asked, .. } => asked,
        }
    }

    /// How many stripes are read before it is looked again; twice as many are sent.
    fn before_a_look(self) -> usize {
        if self.gives_way().is_some() { BEFORE_A_LOOK } else { usize::MAX / 2 }
    }
}

/// What is under way, and where the sweep goes on.
#[derive(Default)]
pub(super) struct Sweep {
    /// The next unit.
    next: u64,
    /// What was read ahead of it.
    pub(super) ahead: PackedAhead,
    under_way: BTreeSet<u64>,
    /// What batches passed by, because it was in flight or could not leave, and how often: the next one takes it first.
    passed_by: BTreeMap<u64, u32>,
    /// What could not be read, and the state of the pool ([`crate::store::Store::changes`]) in which that was so.
    aside: BTreeSet<u64>,
    changes: u64,
}

/// Where bytes of a stripe come from: the first of them, how many, and the byte of which stripe on the disks; none:
/// zeros.
type Piece = (usize, usize, Option<(Target, usize)>);

/// A stripe that is moved, its buffer, where each of its bytes is to come from, and how many of them lie packed.
struct Lifted {
    stripe: u64,
    id: u64,
    from: Vec<Piece>,
    packed: u64,
}

impl Vdisk {
    /// How many fine units there are, how many packed stripes, and how many of these there may be.
    pub fn packed(&self) -> (u64, u64, u64) {
        if self.removed.get() {
            return (0, 0, 0);
        }
        let map = self.store.map.borrow();
        let found = map.fine(self.table_of(&map)).map_or((0, 0), |fine| (fine.len(), fine.stripes()));
        (found.0, found.1, self.packs_max())
    }

    /// Moves the next stripes of the sweep down. Says how many were.
    pub(crate) async fn move_down(self: &Rc<Self>, budget: &Budget, by: By) -> usize {
        if self.removed.get() || self.waits_since().is_some() || self.failure().is_some() {
            return 0;
        }
        let again = core::mem::take(&mut self.sweep.borrow_mut().passed_by);
        let (stripes, swept) = self.next_of_sweep(&again, budget.limit());
        if stripes.is_empty() {
            return 0;
        }
        self.packing.set(self.packing.get() + 1);
        let _lease = budget.take(stripes.len() as u64 * self.cost_of_lift()).await;
        self.read_packed_ahead(swept, stripes.len()).await;
        let moved = self.lift(&stripes, by, Lift::Away).await;
        self.end_batch(&stripes, &again);
        self.end_packing();
        moved
    }

    /// Bytes that a stripe takes while it is moved, without its packed units.
    pub(super) fn cost_of_lift(&self) -> u64 {
        self.layout().data_len().0 + self.layout().raw_len().0
    }

    /// Notes which stripes of a batch have fine units yet, but for those that were passed by too often.
    fn end_batch(&self, batch: &[u64], again: &BTreeMap<u64, u32>) {
        let map = self.store.map.borrow();
        let fine = if self.removed.get() { None } else { map.fine(self.table_of(&map)) };
        let mut sweep = self.sweep.borrow_mut();
        for stripe in batch {
            sweep.under_way.remove(stripe);
            let times = again.get(stripe).map_or(1, |times| times + 1);
            let is_left = fine.is_some_and(|fine| fine.has(*stripe)) && !mutant::active(Mutant::PassedByForgotten);
            if is_left && times <= PASSES {
                sweep.passed_by.insert(*stripe, times);
            }
        }
    }

    /// The next stripes that have fine units, those of `again` first, as many as half of `memory` takes; and the units
    /// that the sweep came by.
    fn next_of_sweep(&self, again: &BTreeMap<u64, u32>, memory: u64) -> (Vec<u64>, Range<u64>) {
        let most = ((memory / 2 / self.cost_of_lift()) as usize).clamp(1, AT_ONCE);
        let mut sweep = self.sweep.borrow_mut();
        let changes = self.store.signals.changes.get();
        if sweep.changes != changes {
            (sweep.changes, sweep.aside) = (changes, BTreeSet::new());
        }
        let map = self.store.map.borrow();
        let Some(fine) = map.fine(self.table_of(&map)) else { return (Vec::new(), 0..0) };
        let per_stripe = fine.per_stripe();
        let is_free = |sweep: &Sweep, stripe| !sweep.under_way.contains(&stripe) && !sweep.aside.contains(&stripe);
        let taken = again.keys().copied().filter(|stripe| fine.has(*stripe) && is_free(&sweep, *stripe));
        let mut stripes: Vec<u64> = taken.take(most / 2).collect();
        let (mut at, mut wrapped) = (sweep.next, false);
        let mut from = at;
        while stripes.len() < most {
            let Some(unit) = fine.next(at) else {
                if wrapped || !stripes.is_empty() {
                    break;
                }
                (at, from, wrapped) = (0, 0, true);
                continue;
            };
            let stripe = unit / per_stripe;
            if wrapped && stripe * per_stripe >= sweep.next {
                break;
            }
            let is_taken = again.contains_key(&stripe) && stripes.contains(&stripe);
            if is_free(&sweep, stripe) && !is_taken {
                stripes.push(stripe);
            }
            at = (stripe + 1) * per_stripe;
        }
        sweep.next = at;
        sweep.under_way.extend(&stripes);
        (stripes, from..at)
    }

    /// Brings stripes into buffers, and sends them on their way. Says how many went.
    pub(super) async fn lift(self: &Rc<Self>, stripes: &[u64], by: By, lift: Lift) -> usize {
        let mut lifted = Vec::new();
        for stripe in stripes {
            if self.removed.get() {
                break;
            }
            if let Ok(_held) = self.load_places(*stripe..*stripe + 1).await {
                lifted.extend(self.open_for_lift(*stripe, lift));
            }
        }
        let bytes = self.read_lifted(&lifted, lift).await;
        let went = Cell::new(0);
        let mut lifted = lifted.into_iter();
        while lifted.len() > 0 {
            let gives_up = self.gives_up(lift);
            let mut whole = Vec::new();
            for Lifted { stripe, id, from, packed } in lifted.by_ref().take(2 * lift.before_a_look()) {
                let filled = !gives_up && self.fill_lifted(stripe, id, &from, &bytes, lift);
                if filled { whole.push((stripe, packed)) } else { self.drop_unused(stripe, id) }
            }
            self.send_lifted(whole, by, &went).await;
        }
        went.get()
    }

    /// Whether what is lifted is left where it is: a client asks for something.
    fn gives_up(&self, lift: Lift) -> bool {
        let asks = lift.gives_way().is_some_and(|asked| self.is_asked(asked));
        asks && !mutant::active(Mutant::OrderOverwritesNewer)
    }

    /// Sends stripes on their way that are whole now, and counts those that went.
    async fn send_lifted(self: &Rc<Self>, whole: Vec<(u64, u64)>, by: By, went: &Cell<usize>) {
        each_of(whole, |(stripe, packed)| async move {
            // One that cannot leave now gathers on.
            if self.send(stripe, by).await.is_ok() {
                went.set(went.get() + 1);
                add(&self.counters.destaged, packed);
                add(&self.counters.destaged_stripes, (packed > 0) as u64);
            }
            let left = self.with_filling(stripe, |buffer| core::mem::take(&mut buffer.lent));
            self.store.buffered_changed(left.unwrap_or(0) as i64);
        })
        .await;
    }

    /// Has a stripe gather, claims included, and looks where its bytes are. Synchronous. None: it cannot be moved now.
    fn open_for_lift(&self, stripe: u64, lift: Lift) -> Option<Lifted> {
        // What was discarded meanwhile is to take no place again.
        let lies = || self.store.map.borrow().place_of(self.table(), stripe).is_some();
        if self.removed.get() || lift.is_for_place() && !lies() {
            return None;
        }
        if self.in_flight(stripe).is_some() || self.check_not_lost(stripe).is_err() {
            return None;
        }
        if self.with_filling(stripe, |_| ()).is_none() {
            let (table, mut records) = (self.table(), Vec::new());
            let claimed = {
                let mut map = self.store.map.borrow_mut();
                let chunk = map.ensure_chunk(table, stripe, &mut records);
                let rises = map.place_of(table, stripe).is_none() && map.is_stacked(table);
                let what = if rises { Claim::Rise } else { Claim::Overwrite };
                chunk.is_ok() && map.claim(table, what, &mut records)
            };
            self.store.append_all(records);
            if !claimed {
                return None;
            }
            self.open_buffer(stripe);
        }
        let bound = match lift {
            Lift::Tier { to, .. } => Some(to),
            _ => self.tier_now(stripe),
        };
        let (id, holes) = self.with_filling(stripe, |buffer| (buffer.id, buffer.holes()))?;
        self.with_filling(stripe, |buffer| buffer.bound = bound.or(buffer.bound));
        let start = stripe * self.layout().data_len().0;
        let (mut from, mut packed) = (Vec::new(), 0);
        for hole in holes {
            for extent in self.resolve(start + hole.start as u64..start + hole.end as u64) {
                let (at, len) = (extent.range.start - start, extent.range.end - extent.range.start);
                packed += len * extent.packed as u64;
                from.push((at as usize, len as usize, extent.source));
            }
        }
        Some(Lifted { stripe, id, from, packed })
    }

    /// Reads what stripes are made of, each stripe on the disks once, if it was not read ahead; `None`: it cannot be
    /// read.
    async fn read_lifted(&self, lifted: &[Lifted], lift: Lift) -> BTreeMap<Place, Option<(usize, Vec<u8>)>> {
        let mut wanted: BTreeMap<Place, (&Target, usize, usize)> = BTreeMap::new();
        for (_, len, source) in lifted.iter().flat_map(|lifted| &lifted.from) {
            let Some((target, at)) = source else { continue };
            let (_, from, to) = wanted.entry(target.place).or_insert((target, *at, at + len));
            (*from, *to) = ((*from).min(*at), (*to).max(at + len));
        }
        let mut found = BTreeMap::new();
        let mut wanted = wanted.into_iter();
        while wanted.len() > 0 && !self.gives_up(lift) {
            let (mut parts, mut ranges) = (Vec::new(), Vec::new());
            for (place, (target, from, to)) in wanted.by_ref().take(lift.before_a_look()) {
                let wants = super::read::wants(target.layout, from, to - from);
                let ahead = self.store.map.borrow().ahead.get(place);
                if let Some(Found::There(strips)) = ahead {
                    let mut bytes = vec![0; to - from];
                    let strips = wants.iter().map(|want| (want.column, 0, &strips[want.column]));
                    super::read::copy(target.layout, from, strips, &mut bytes);
                    found.insert(place, Some((from, bytes)));
                    continue;
                }
                parts.push(Part { target: target.clone(), wants });
                ranges.push((place, from, to));
            }
            let read = self.store.read_together(&parts, None).await;
            for ((part, (place, from, to)), read) in parts.into_iter().zip(ranges).zip(read) {
                let bytes = read.ok().map(|slices| {
                    let bytes = self.bytes_of(&part, slices, from..to);
                    add(&self.counters.read_for_write, if lift.is_for_place() { 0 } else { (to - from) as u64 });
                    (from, bytes)
                });
                found.insert(place, bytes);
            }
        }
        for (.., source) in lifted.iter().flat_map(|lifted| &lifted.from) {
            if let Some((target, _)) = source {
                self.release(target.place);
            }
        }
        found
    }

    /// Fills the buffer of a stripe with what was read, if it is still the same one. Says whether it is whole.
    fn fill_lifted(
        &self,
        stripe: u64,
        id: u64,
        from: &[Piece],
        bytes: &BTreeMap<Place, Option<(usize, Vec<u8>)>>,
        lift: Lift,
    ) -> bool {
        let there = |source: &Option<(Target, usize)>| {
            source.as_ref().is_none_or(|(target, _)| bytes.get(&target.place).is_some_and(|bytes| bytes.is_some()))
        };
        if !from.iter().all(|(.., source)| there(source)) || self.check_not_lost(stripe).is_err() {
            self.sweep.borrow_mut().aside.insert(stripe);
            return false;
        }
        let fill = |buffer: &mut crate::stripe::buffer::StripeBuffer| {
            if buffer.id != id && !mutant::active(Mutant::MoverOverwrites) {
                return false;
            }
            let (before, orders) = (buffer.memory(), lift.is_for_order());
            let overwrites = orders && mutant::active(Mutant::OrderOverwritesNewer)
                || matches!(lift, Lift::Tier { .. }) && mutant::active(Mutant::TierMoveOverwrites);
            buffer.begin_copy();
            for (at, len, source) in from {
                match source.as_ref().and_then(|(target, from)| Some((*from, bytes.get(&target.place)?.as_ref()?))) {
                    Some((from, (first, read))) if overwrites => {
                        buffer.put(*at, &read[from - first..from - first + len], false)
                    }
                    Some((from, (first, read))) => buffer.fill(*at, &read[from - first..from - first + len]),
                    None => buffer.fill(*at, &vec![0; *len]),
                }
            }
            buffer.written = true;
            buffer.ordered = orders;
            buffer.relocated = matches!(lift, Lift::Tier { .. });
            buffer.lent += buffer.memory() - before;
            buffer.is_whole()
        };
        self.with_filling(stripe, fill).unwrap_or(false)
    }

    /// Lets go of a buffer that was opened for a move and holds nothing.
    fn drop_unused(&self, stripe: u64, id: u64) {
        let unused = |buffer: &mut crate::stripe::buffer::StripeBuffer| buffer.id == id && buffer.have_len() == 0;
        if !self.with_filling(stripe, unused).unwrap_or(false) || self.removed.get() {
            return;
        }
        let mut stripes = self.stripes.borrow_mut();
        let gathering = stripes.get_mut(&stripe).expect("it was looked up");
        let buffer = gathering.filling.take().expect("it was looked up");
        if gathering.in_flight.is_none() {
            stripes.remove(&stripe);
        }
        drop(stripes);
        self.store.buffered_changed(-(buffer.charged() as i64));
        let table = self.table();
        self.store.map.borrow_mut().unclaim(table);
        self.store.signals.room.notify();
    }
}
