//! Rising: what lies in older tables of a stack comes into the newest one, many stripes at once, in the order of their
//! addresses; then the older ones let go of it.
//!
//! The story
//! 1. The next stripes of older tables are looked for, and the stripes of the newest table that they lie under. Those
//!    that the newest one does not tell are lifted as units of packed stripes are ([`super::down`]): into buffers, by
//!    way of the read that proves every block. What clients write meanwhile lies above that.
//! 2. They leave as whole stripes, and are made durable.
//! 3. Stripes of older tables that are hidden now are unmapped.
//!
//! Invariants
//! 1. A stripe of an older table is let go of only when all that hides it is durable, and cannot be withdrawn
//!    (`segment/stack.rs`).
//! 2. What is lifted takes no room that is not there: else it waits, until what has left older tables was put together
//!    (`store/compact.rs`), and so gives room again. What is kept for it no client takes (`segment/hollow.rs`).
//! 3. A client that overwrites what an older table has is refused only where that cannot rise either.

use super::destage::By;
use super::down::Lift;
use super::{Vdisk, discard};
use crate::error::{Error, ErrorKind, Result};
use crate::format::record::{Record, UnmapRecord};
use crate::log::Room;
use crate::mutant::{self, Mutant};
use crate::segment::stack::Below;
use crate::store::budget::Budget;
use crate::stripe::table::Entry;
use crate::units::{TableNo, VirtualOffset};
use alloc::boxed::Box;
use alloc::collections::BTreeSet;
use alloc::format;
use alloc::rc::Rc;
use alloc::vec::Vec;
use core::ops::Range;

/// Stripes of the newest table that rise at once, at most.
const AT_ONCE: usize = 256;
/// Runs of stripes that are unmapped at once.
const RUNS: usize = 64;
/// Stripes of the newest table that are left to overwrites of what has risen.
const LEFT: u64 = 1;
/// How often a client that finds no room has its stripe rise before it is refused.
const RISES: usize = 3;
/// Stripes that rise beside one for which a client waits, at most.
const AROUND: u64 = 64;

/// Where the sweep over the older tables goes on.
#[derive(Default)]
pub(super) struct Rise {
    /// The next byte.
    next: u64,
    /// Stripes that could not be lifted in this sweep.
    left: u64,
}

/// The outcome of one step.
pub(crate) enum Risen {
    /// Bytes that left older tables.
    Bytes(u64),
    /// The sweep has come to the end of the virtual disk; so many stripes could not be lifted on the way.
    End(u64),
    /// There is no room for more, as things stand.
    NoRoom,
}

impl Vdisk {
    /// Whether there are older tables below its newest one.
    pub fn is_stacked(&self) -> bool {
        !self.removed.get() && !self.has_one_table()
    }

    /// Bytes that lie in older tables.
    pub fn bytes_in_older(&self) -> u64 {
        self.store.map.borrow().bytes_in_older(self.id)
    }

    /// Brings the next stripes of the sweep up, and lets go of what they hide.
    pub(crate) async fn rise(self: &Rc<Self>, budget: &Budget) -> Result<Risen> {
        self.check_there()?;
        if let Some(error) = self.failure() {
            return Err(error);
        }
        let Some((range, stripes)) = self.next_to_rise(budget.limit()) else {
            return Ok(Risen::End(core::mem::take(&mut self.rise.borrow_mut().left)));
        };
        if stripes.is_empty() && !range.is_empty() {
            self.rise.borrow_mut().next = range.end;
            return self.let_go(range).await.map(Risen::Bytes);
        }
        let Some(stripes) = self.as_many_as_fit(stripes) else { return Ok(Risen::NoRoom) };
        let len = self.stripe_len().0;
        let end = (stripes.last().expect("some fit") + 1) * len;
        let went = self.raise(&stripes, range.start..end, budget).await;
        {
            let mut rise = self.rise.borrow_mut();
            (rise.next, rise.left) = (range.end.min(end), rise.left + (stripes.len() - went) as u64);
        }
        self.check_there()?;
        self.store.make_logged(self.store.log.seq()).await?;
        self.let_go(range.start..end).await.map(Risen::Bytes)
    }

    /// Lifts stripes of the newest table, below which older ones have `range`. Says how many went.
    async fn raise(self: &Rc<Self>, stripes: &[u64], range: Range<u64>, budget: &Budget) -> usize {
        self.packing.set(self.packing.get() + 1);
        let lease = budget.take(stripes.len() as u64 * self.cost_of_lift()).await;
        if mutant::active(Mutant::OlderFreedEarly) {
            self.unmap_below(range);
        }
        let went = if self.removed.get() { 0 } else { self.lift(stripes, By::Anybody, Lift::Away).await };
        drop(lease);
        self.end_packing();
        went
    }

    /// Has a stripe rise for a client that finds no room to write to it, with all that lies in the same stripes of
    /// older tables: so these are hidden, and what they leave makes up for what that took. `false`: nothing more comes
    /// of that; `times` counts how often it was tried.
    pub(super) async fn rises_for(self: &Rc<Self>, stripe: u64, times: &mut usize) -> bool {
        let Some((range, stripes)) = self.around(stripe).filter(|_| *times < RISES) else { return false };
        let Some(stripes) = self.as_many_as_fit(stripes) else { return false };
        *times += 1;
        let budget = &self.store.traffic.budgets.merges;
        if Box::pin(self.raise(&stripes, range.clone(), budget)).await == 0 || self.check_there().is_err() {
            return false;
        }
        let logged = self.store.make_logged(self.store.log.seq()).await;
        logged.is_ok() && self.let_go(range).await.is_ok()
    }

    /// The bytes of all older stripes that lie below one of the newest table, and of those beside them that share a
    /// stripe with them; and the stripes of the newest table that have to rise for that. None: nothing lies below it,
    /// or it has risen.
    fn around(&self, stripe: u64) -> Option<(Range<u64>, Vec<u64>)> {
        let map = self.store.map.borrow();
        let tables = &map.vdisks.get(&self.id)?.tables;
        let (newest, older, len) = (&map.tables[&tables[0]], &tables[1..], map.data_len(tables[0]));
        let own = stripe * len..(stripe + 1) * len;
        if older.is_empty() || newest.entry(stripe) != Entry::Unmapped || map.span_below(older, own.clone()).is_none() {
            return None;
        }
        let lens: Vec<u64> = tables.iter().map(|table| map.data_len(*table)).collect();
        let mut range = own;
        loop {
            let wider =
                lens.iter().fold(range.clone(), |range, len| range.start / len * len..range.end.next_multiple_of(*len));
            if wider == range || (wider.end - wider.start) / len > AROUND {
                break;
            }
            range = wider;
        }
        let lies = |stripe: &u64| {
            let unmapped = newest.entry(*stripe) == Entry::Unmapped;
            unmapped && map.span_below(older, *stripe * len..(*stripe + 1) * len).is_some()
        };
        let end = range.end.min(map.vdisks[&self.id].size.0).div_ceil(len);
        let stripes = (range.start / len..end).filter(lies).collect();
        Some((range, stripes))
    }

    /// The next bytes that older tables have, and the stripes of the newest one that have to rise for them: as many as
    /// half of `memory` takes. None: there is nothing before the end.
    fn next_to_rise(&self, memory: u64) -> Option<(Range<u64>, Vec<u64>)> {
        let most = ((memory / 2 / self.cost_of_lift()) as usize).clamp(1, AT_ONCE);
        let (map, mut rise) = (self.store.map.borrow(), self.rise.borrow_mut());
        let tables = &map.vdisks[&self.id].tables;
        let (newest, older, len) = (&map.tables[&tables[0]], &tables[1..], map.data_len(tables[0]));
        let mut stripes = BTreeSet::new();
        let mut range: Option<Range<u64>> = None;
        let mut at = rise.next;
        while stripes.len() < most {
            let Some(Below { range: bytes, .. }) = map.next_below(older, at, u64::MAX) else { break };
            // Those before have had their turn in this sweep.
            let under = bytes.start.max(rise.next) / len..bytes.end.min(map.vdisks[&self.id].size.0).div_ceil(len);
            // What is hidden already is let go of without a wait.
            let fresh: Vec<u64> = under.filter(|stripe| newest.entry(*stripe) == Entry::Unmapped).collect();
            if fresh.is_empty() != stripes.is_empty() && range.is_some() {
                break;
            }
            stripes.extend(fresh);
            range = Some(range.map_or(bytes.start..bytes.end, |range| range.start..bytes.end));
            at = bytes.end;
            if stripes.is_empty() && at - range.as_ref().map_or(at, |range| range.start) > AT_ONCE as u64 * len {
                break;
            }
        }
        if range.is_none() {
            rise.next = 0;
        }
        range.map(|range| (range, stripes.into_iter().collect()))
    }

    /// The first of `stripes` for which there are places, and room beside them. None: there is room for none.
    fn as_many_as_fit(&self, mut stripes: Vec<u64>) -> Option<Vec<u64>> {
        let map = self.store.map.borrow();
        let table = &map.tables[&self.table_of(&map)];
        let layout = table.record.layout;
        let per_segment = layout.segment_stripes(map.slab) as u64;
        let fresh = map.segments_possible_now(layout, table.record.disks) * per_segment;
        let room = (table.free + if table.fixed { 0 } else { fresh }).saturating_sub(table.claims + LEFT);
        stripes.truncate(room.min(AT_ONCE as u64) as usize);
        (!stripes.is_empty()).then_some(stripes)
    }

    /// Lets go of the stripes of older tables in `range` that are hidden. Returns their bytes.
    pub(crate) async fn let_go(&self, range: Range<u64>) -> Result<u64> {
        let before = self.bytes_in_older();
        while !self.hidden(range.clone()).is_empty() {
            let len = RUNS as u64 * discard::RECORD_LEN;
            self.store.log.reserve_unless(len, Room::Commit, || self.store.check_not_closing()).await?;
            let gone = self.check_there();
            if gone.is_ok() {
                self.unmap_hidden(range.clone());
            }
            self.store.log.unreserve(len);
            gone?;
        }
        // Who waits for places is woken when they are free.
        self.drop_older();
        Ok(before.saturating_sub(self.bytes_in_older()))
    }

    fn hidden(&self, range: Range<u64>) -> Vec<(TableNo, Range<u64>)> {
        let map = self.store.map.borrow();
        let Some(vdisk) = map.vdisks.get(&self.id) else { return Vec::new() };
        let unsettled: BTreeSet<(TableNo, u64)> = vdisk
            .tables
            .iter()
            .flat_map(|table| self.store.limbo.unsettled(*table).into_iter().map(|stripe| (*table, stripe)))
            .collect();
        map.hidden_in(self.id, range, RUNS, &|table, stripe| {
            !unsettled.contains(&(table, stripe)) || mutant::active(Mutant::UnsettledHides)
        })
    }

    /// Synchronous.
    fn unmap_hidden(&self, range: Range<u64>) {
        for (table, run) in self.hidden(range) {
            self.unmap_run(table, run);
        }
        self.store.free_empty_packs();
    }

    fn unmap_run(&self, table: TableNo, run: Range<u64>) {
        let (first, count) = (run.start, run.end - run.start);
        let unmap = UnmapRecord { table, first, count, retires: 0, zero: false };
        let seq = self.store.log.append(&Record::Unmap(unmap));
        let mut map = self.store.map.borrow_mut();
        map.unmap(table, run.clone(), false, seq);
        map.fine_released(table, run);
    }

    /// Unmaps what older tables have in a range, hidden or not: for a mutant.
    fn unmap_below(&self, range: Range<u64>) {
        let runs: Vec<(TableNo, u64)> = {
            let map = self.store.map.borrow();
            let older = &map.vdisks[&self.id].tables[1..];
            let mut at = range.start;
            let next = || {
                let below = map.next_below(older, at, range.end).filter(|below| below.range.end <= range.end)?;
                at = below.range.end;
                Some((below.table, below.stripe))
            };
            core::iter::from_fn(next).collect()
        };
        runs.into_iter().for_each(|(table, stripe)| self.unmap_run(table, stripe..stripe + 1));
    }

    /// Whether its packed stripes take slabs that what rises needs: they are to leave, and none is to come.
    pub(crate) fn packs_are_in_the_way(&self) -> bool {
        if self.removed.get() || self.cache().is_some() {
            return false;
        }
        let map = self.store.map.borrow();
        map.is_stacked(self.table_of(&map)) && map.keeps_for_rising()
    }

    /// Why nothing rises any more, in words.
    pub(crate) fn no_room_to_rise(&self) -> Error {
        let context = format!(
            "there is no room for more stripes of {}: what is left is kept for clients; {} still lie as before, and \
             all of it is used as ever. Add a disk, or delete or discard data, and ask for the change again",
            self.layout(),
            crate::units::ByteCount(self.bytes_in_older())
        );
        Error::new(ErrorKind::NoSpace, context)
    }

    /// What cannot rise, in words.
    pub(crate) fn cannot_rise(&self, stripes: u64) -> Error {
        let context = format!(
            "{stripes} stripes of {} cannot be read, or written: {} still lie as before, and all of it is used as \
             ever. `weft pool check` names what is lost; ask for the change again when that is put right",
            self.layout(),
            crate::units::ByteCount(self.bytes_in_older())
        );
        Error::new(ErrorKind::Lost, context)
    }

    /// Whether bytes of the virtual disk lie in older tables.
    pub(super) fn lies_below(&self, offset: VirtualOffset, len: u64) -> bool {
        let map = self.store.map.borrow();
        let Some(vdisk) = map.vdisks.get(&self.id) else { return false };
        map.span_below(&vdisk.tables[1..], offset.0..offset.0 + len).is_some()
    }
}
