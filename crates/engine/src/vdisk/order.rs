//! Putting in order: ranges of a virtual disk whose stripes lie anywhere on disks that seek come to lie one stripe
//! after the other, as a stream would have left them. Random writes leave them anywhere, and so does what the mover
//! brings out of packed stripes.
//!
//! The story
//! 1. The ranges that were written to are looked at, one after the other, while nobody asks for anything. One that lies
//!    in few runs stays where it is.
//! 2. Whatever is mapped in another one is lifted as units of packed stripes are ([`super::down`]): into buffers, by
//!    way of the read that proves every block. What clients write meanwhile lies above that.
//! 3. They leave as whole stripes, in order, to places that follow each other ([`crate::segment::run`]). Their former
//!    places are free as after any overwriting, and segments that are empty then are given back.
//!
//! Invariants
//! 1. A range that was looked at, or put in order, is left alone until something of it was committed that this did not
//!    move: so it ends, whatever could not be read or moved.
//! 2. It takes no room that clients need (`segment/run.rs`); where there is none it waits until the pool has changed,
//!    or something is written.
//! 3. It stops as soon as a client asks for anything: what is in no buffer yet stays where it is.
//! 4. What was written while a stripe was read is never replaced by what was read (`vdisk/down.rs`).
//! 5. It moves everything once after an opening, and from there on no more than [`PER_COMMITTED`] times as much as was
//!    committed for other reasons: a few small writes now and then do not keep disks at work for days.

use super::destage::By;
use super::down::Lift;
use super::{Vdisk, add};
use crate::bits::BitSet;
use crate::error::Result;
use crate::exec::LocalBoxFuture;
use crate::format::record::JobState;
use crate::mutant::{self, Mutant};
use crate::segment::run::Runs;
use crate::store::budget::Budget;
use crate::stripe::sealed::Sealed;
use crate::units::TableNo;
use alloc::boxed::Box;
use alloc::rc::Rc;
use alloc::vec::Vec;
use core::ops::Range;

/// Stripes of a range, at most.
const AT_ONCE: u64 = 256;
/// Runs in which a range may lie at each front if it stays where it is.
const RUNS: u64 = 2;
/// Ranges that are looked at before others have a turn.
const LOOKS: usize = 32;

/// Bytes that may be moved for each one that was committed for another reason.
const PER_COMMITTED: u64 = 4;

/// Which ranges need no look.
#[derive(Default)]
pub(super) struct Order {
    /// The table whose ranges they are.
    table: Option<TableNo>,
    /// Those of which nothing was written since they were looked at.
    seen: Option<BitSet>,
    /// Stripes of each.
    each: u64,
    /// Where the sweep over them goes on.
    next: usize,
    /// Bytes that may still be moved.
    credit: u64,
    /// The state of the pool ([`crate::store::Store::changed`]) in which nothing can be done.
    rests: Option<u64>,
}

/// What one step came to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Ordered {
    /// Something was looked at, or moved: there may be more.
    GoesOn,
    /// Nothing can be done as things stand.
    Rests,
}

impl Runs {
    /// Whether so many seeks are worth a move. More than half of the neighbours that lie apart are, too, in a range
    /// that is short. One run of each front is none.
    fn is_scattered(self) -> bool {
        let short = (self.runs + 1).saturating_sub(self.fronts) * 2 > self.stripes;
        let apart = self.runs > RUNS * self.fronts || self.stripes > self.fronts && short;
        apart || self.stripes > 0 && mutant::active(Mutant::OrderNeverRests)
    }
}

impl Vdisk {
    /// Whether some of its ranges are to be looked at.
    pub fn is_to_be_ordered(&self) -> bool {
        if self.removed.get() || !self.seeks() {
            return false;
        }
        let order = self.order.borrow();
        let stripes = self.size().0.div_ceil(self.stripe_len().0);
        // One that grew has ranges that are none of these.
        let is_all = |seen: &BitSet| seen.is_full() && seen.len() as u64 * order.each >= stripes;
        let all = order.table == Some(self.table()) && order.seen.as_ref().is_some_and(is_all);
        !all && order.rests != Some(self.store.signals.changes.get())
    }

    /// In how many runs the stripes of all of it lie that are mapped, as far as the pages that tell are in memory.
    pub fn runs(&self) -> LocalBoxFuture<'_, Result<Runs>> {
        Box::pin(async move {
            self.check_there()?;
            let table = self.table();
            let all = 0..self.size().0.div_ceil(self.stripe_len().0);
            let _held = self.store.load_table(table, all.clone()).await?;
            self.check_there()?;
            Ok(self.store.map.borrow().runs(table, all))
        })
    }

    /// Looks at the next ranges, and puts the first in order that is not, unless a client has asked for anything since
    /// there were `asked` requests.
    pub(crate) async fn put_in_order(self: &Rc<Self>, budget: &Budget, asked: u64) -> Ordered {
        for _ in 0..LOOKS {
            if !self.may_order() {
                return Ordered::Rests;
            }
            let table = self.table();
            let Some((number, stripes)) = self.next_to_order(table, budget.limit()) else { return self.rests() };
            let held = self.store.load_table(table, stripes.clone()).await;
            if self.removed.get() || self.table() != table {
                return Ordered::GoesOn;
            }
            // What cannot be read is not tried again; what is written from here on makes it due again.
            self.set_seen(number, true);
            if held.is_err() || !self.store.map.borrow().runs(table, stripes.clone()).is_scattered() {
                continue;
            }
            let mapped: Vec<u64> = self.store.map.borrow().in_base(table, stripes).map(|(stripe, _)| stripe).collect();
            let cost = mapped.len() as u64 * self.layout().data_len().0;
            if self.order.borrow().credit < cost && !mutant::active(Mutant::OrderCostsAnything) {
                self.set_seen(number, false);
                return self.rests();
            }
            self.packing.set(self.packing.get() + 1);
            let moved = self.lift_in_order(&mapped, budget, asked).await;
            self.end_packing();
            if moved < mapped.len() && !self.removed.get() {
                self.set_seen(number, false);
                return if self.is_asked(asked) { Ordered::GoesOn } else { self.rests() };
            }
            return Ordered::GoesOn;
        }
        Ordered::GoesOn
    }

    /// Moves stripes, in order, to places that follow each other. Says with how many of them it is done, be it that
    /// they cannot be read: it stops where there is no room, or where a client asks for anything.
    async fn lift_in_order(self: &Rc<Self>, stripes: &[u64], budget: &Budget, asked: u64) -> usize {
        let _lease = budget.take(stripes.len() as u64 * self.cost_of_lift()).await;
        let mut done = 0;
        while done < stripes.len() && !self.is_asked(asked) {
            let (table, mut records) = (self.table(), Vec::new());
            let count = self.store.map.borrow_mut().begin_run(table, (stripes.len() - done) as u64, &mut records);
            self.store.append_all(records);
            if count == 0 {
                break;
            }
            let now = &stripes[done..done + count as usize];
            self.lift(now, By::Anybody, Lift::Order { asked }).await;
            if self.is_asked(asked) {
                break;
            }
            done += now.len();
        }
        done
    }

    /// Counts a stripe that was committed; its range is due for a look, unless it was moved just for its place.
    pub(super) fn count_committed(&self, table: TableNo, stripe: u64, sealed: &Sealed) {
        let counters = &self.counters;
        let len = self.layout().data_len().0;
        match (sealed.ordered, sealed.merged) {
            // It was counted with what moves between tiers.
            _ if sealed.relocated => {}
            (true, _) => add(&counters.ordered, len),
            (false, true) => add(&counters.merged, len),
            (false, false) => add(&counters.whole, len),
        }
        if sealed.ordered {
            let order = &mut *self.order.borrow_mut();
            order.credit = order.credit.saturating_sub(len);
        }
        if !sealed.ordered || mutant::active(Mutant::OrderNeverRests) {
            self.note_elsewhere(table, stripe);
        }
    }

    /// Takes note that a stripe lies elsewhere than it did, for another reason than order: its range is to be looked
    /// at.
    pub(crate) fn note_elsewhere(&self, table: TableNo, stripe: u64) {
        let len = self.layout().data_len().0;
        let order = &mut *self.order.borrow_mut();
        order.credit = (order.credit + PER_COMMITTED * len).min(self.size().0 + len);
        let rested = order.rests.take().is_some();
        let number = stripe / order.each.max(1);
        let of_this = order.seen.as_mut().filter(|seen| order.table == Some(table) && number < seen.len() as u64);
        let was_full = of_this.is_some_and(|seen| {
            let was_full = seen.is_full();
            seen.remove(number as usize..number as usize + 1);
            was_full
        });
        if rested || was_full {
            self.store.signals.packed.notify();
        }
    }

    /// The next range that is to be looked at: its number, and its stripes, as many as half of `memory` takes. None:
    /// there is none.
    fn next_to_order(&self, table: TableNo, memory: u64) -> Option<(usize, Range<u64>)> {
        let each = (memory / 2 / self.cost_of_lift()).clamp(1, AT_ONCE);
        let stripes = self.size().0.div_ceil(self.stripe_len().0);
        let ranges = stripes.div_ceil(each) as usize;
        let order = &mut *self.order.borrow_mut();
        let known = order.seen.as_ref().is_some_and(|seen| seen.len() == ranges);
        let credit = if order.table == Some(table) { order.credit } else { stripes * self.stripe_len().0 };
        if order.table != Some(table) || order.each != each || !known {
            *order = Order { table: Some(table), each, seen: Some(BitSet::empty(ranges)), credit, ..Order::default() };
        }
        let seen = order.seen.as_mut().expect("it was just made");
        while !seen.is_full() {
            let mut at = seen.first_absent(order.next.min(ranges)..ranges);
            if at == ranges {
                at = seen.first_absent(0..ranges);
            }
            // Where nothing is mapped, nothing is to be looked at.
            let mapped = self.store.next_page(table, at as u64 * each).map(|page| (page.start / each) as usize);
            let until = mapped.map_or(ranges, |mapped| mapped.min(ranges));
            if until > at {
                seen.insert(at..until);
                continue;
            }
            order.next = at + 1;
            let first = at as u64 * each;
            return Some((at, first..(first + each).min(stripes)));
        }
        None
    }

    fn set_seen(&self, number: usize, is_seen: bool) {
        let mut order = self.order.borrow_mut();
        let Some(seen) = order.seen.as_mut().filter(|seen| number < seen.len()) else { return };
        match is_seen {
            true => seen.insert(number..number + 1),
            false => seen.remove(number..number + 1),
        }
    }

    /// Rests until something is written, or the pool has changed.
    fn rests(&self) -> Ordered {
        self.order.borrow_mut().rests = Some(self.store.signals.changes.get());
        Ordered::Rests
    }

    /// Whether anything may be moved just for its place: not while disks are missing, or jobs move it for a better
    /// reason.
    fn may_order(&self) -> bool {
        if self.removed.get() || self.store.is_closing() {
            return false;
        }
        let at_work = |state| matches!(state, JobState::Waiting | JobState::Running);
        if self.store.map.borrow().notes.jobs.values().any(|job| at_work(job.state)) {
            return false;
        }
        let stuck = self.is_stacked() || self.waits_since().is_some() || self.failure().is_some();
        if stuck || self.store.misses_disks() || self.store.check_changeable().is_err() {
            self.rests();
            return false;
        }
        true
    }

    /// Whether a client has asked for anything since there were `asked` requests, or the pool is to stop.
    pub(super) fn is_asked(&self, asked: u64) -> bool {
        let store = &self.store;
        store.traffic.requests.get() != asked || store.is_closing() || store.stopping.get() || self.removed.get()
    }

    /// Whether it may lie on disks that seek.
    pub(super) fn seeks(&self) -> bool {
        let map = self.store.map.borrow();
        let disks = map.tables[&self.table_of(&map)].record.disks;
        map.disks_for(disks).any(|disk| self.store.is_rotational(disk.record.no))
    }
}
