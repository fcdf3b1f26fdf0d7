//! Compaction: where a virtual disk needs slabs and there are none, segments of which little is in use are emptied, and
//! their slabs go back to the pool. What is discarded, or overwritten under another layout, leaves holes everywhere;
//! without this they would be room for their own table alone.
//!
//! Invariants
//! 1. It is done only for somebody who lacks slabs, a table or a slot that is to be rebuilt: a pool that has some is
//!    left as it is.
//! 2. Each segment that is emptied is a gain (`segment/hollow.rs`). One that could not be is not tried again before the
//!    pool has changed. So who waits for it is answered.
//! 3. Who waits is woken whenever a segment was emptied, or could not be.

use super::Store;
use crate::disk_set::DiskSet;
use crate::error::Result;
use crate::sync::{Signal, Turn};
use crate::units::{SegmentNo, TableNo};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::rc::Rc;
use alloc::vec::Vec;
use core::cell::{Cell, RefCell};

/// Stripes that are moved at once, at most.
const AT_ONCE: u64 = 64;
/// How often the stripes of a segment are looked for: some are not durable yet when they are found.
const ROUNDS: usize = 3;
/// Pages of a table that are looked through before others have a turn.
const PAGES: usize = 64;
/// How often it is looked whether the last reader of an emptied segment is gone.
const LOOKS: usize = 100;

/// Who lacks slabs, and what was tried.
#[derive(Default)]
pub struct Compaction {
    /// Tables that need segments.
    wanting: RefCell<BTreeSet<TableNo>>,
    /// Somebody needs some, or the pool stops.
    pub asked: Signal,
    /// Something is being done about it.
    running: Cell<bool>,
    /// Tables for which nothing could be done, and the state of the pool in which that was so.
    in_vain: RefCell<BTreeMap<TableNo, u64>>,
    /// Segments that could not be emptied, and the state of the pool ([`Store::changed`]) in which that was so.
    tried: RefCell<(u64, BTreeSet<SegmentNo>)>,
    /// One segment is emptied at a time.
    turn: Turn,
    /// Stripes that lie elsewhere now, of which their virtual disks were not told yet.
    moved: RefCell<Vec<Elsewhere>>,
    /// Segments that were emptied since the pool was opened.
    pub segments: Cell<u64>,
    /// Bytes of data that were moved out of them.
    pub bytes: Cell<u64>,
}

/// A stripe that lies elsewhere without its virtual disk's doing.
pub(crate) struct Elsewhere {
    /// The table that maps it.
    pub table: TableNo,
    /// Its number.
    pub stripe: u64,
    /// Whether it lies in a fast tier.
    pub is_fast: bool,
}

impl Compaction {
    /// Whether something is being done for somebody.
    pub fn is_running(&self) -> bool {
        self.running.get()
    }

    /// Takes note of a stripe for its virtual disk.
    pub(super) fn note_moved(&self, stripe: Elsewhere) {
        self.moved.borrow_mut().push(stripe);
        self.asked.notify();
    }

    /// The stripes that were noted since this was asked last.
    pub(crate) fn take_moved(&self) -> Vec<Elsewhere> {
        self.moved.take()
    }
}

impl Store {
    /// Asks for slabs for `table`, where there are none, none drain, and hollow segments can give some. `false`:
    /// nothing will come of that.
    pub fn asks_for_slabs(&self, table: TableNo) -> bool {
        if !self.map.borrow().lacks_segments(table, true) || !self.may_compact() {
            return false;
        }
        let in_vain = self.compaction.in_vain.borrow().get(&table) == Some(&self.signals.changes.get());
        let comes = self.compaction.running.get() || !in_vain || self.has_hollow_for(table);
        if comes {
            self.compaction.wanting.borrow_mut().insert(table);
            self.compaction.asked.notify();
        }
        comes
    }

    /// Waits until `table` does not lack slabs, or nothing more will come. Says which.
    pub async fn slabs_come(&self, table: TableNo) -> bool {
        loop {
            let room = self.signals.room.changed();
            if !self.map.borrow().lacks_segments(table, false) {
                return true;
            }
            let drains = self.map.borrow().is_draining() && self.may_compact();
            if !self.asks_for_slabs(table) && !drains {
                return false;
            }
            self.log.demand();
            self.signals.drains.notify();
            room.await;
        }
    }

    /// Whether anything may be moved for anybody's sake.
    fn may_compact(&self) -> bool {
        self.check_changeable().is_ok() && !self.is_closing() && !self.stopping.get()
    }

    fn has_hollow_for(&self, table: TableNo) -> bool {
        self.disks_of(table).is_some_and(|disks| self.next_hollow(disks).is_some())
    }

    /// The disks (none: any) that a table is restricted to.
    fn disks_of(&self, table: TableNo) -> Option<DiskSet> {
        self.map.borrow().tables.get(&table).map(|table| table.record.disks)
    }

    /// The segment that is most worth being emptied of those on some of `disks` (none: any), with its table.
    fn next_hollow(&self, disks: DiskSet) -> Option<(TableNo, SegmentNo)> {
        let changes = self.signals.changes.get();
        let tried = &mut *self.compaction.tried.borrow_mut();
        if tried.0 != changes {
            *tried = (changes, BTreeSet::new());
        }
        self.map.borrow_mut().most_hollow(disks, &tried.1)
    }

    /// The next table that lacks segments. One that lacks none any more, or whose turn it cannot be, is forgotten.
    pub(crate) fn next_wanting(&self) -> Option<TableNo> {
        loop {
            let table = self.compaction.wanting.borrow().first().copied()?;
            if self.map.borrow().lacks_segments(table, true) && self.may_compact() {
                return Some(table);
            }
            self.compaction.wanting.borrow_mut().remove(&table);
            self.signals.room.notify();
        }
    }

    /// Nothing can be done for a table that lacks segments, as the pool is now.
    pub(crate) fn gives_up_on(&self, table: TableNo) {
        self.compaction.wanting.borrow_mut().remove(&table);
        let tables = &self.map.borrow().tables;
        let mut in_vain = self.compaction.in_vain.borrow_mut();
        in_vain.retain(|table, _| tables.contains_key(table));
        in_vain.insert(table, self.signals.changes.get());
        self.signals.room.notify();
    }

    /// Has those who wait know whether something is being done for them.
    pub(crate) fn compacts(&self, is_running: bool) {
        self.compaction.running.set(is_running);
        self.signals.room.notify();
    }

    /// Empties the segment that is best for a table which lacks some. `false`: there is none.
    pub(crate) async fn compact_for(self: &Rc<Self>, table: TableNo) -> bool {
        match self.disks_of(table) {
            Some(disks) => self.compact_on(disks).await,
            None => false,
        }
    }

    /// Empties the segment that is best for whoever lacks slabs on some of `disks` (none: any): those are free in a
    /// moment. `false`: there is none.
    pub(crate) async fn compact_on(self: &Rc<Self>, disks: DiskSet) -> bool {
        let _turn = self.compaction.turn.take().await;
        if !self.may_compact() {
            return false;
        }
        let Some((of, segment)) = self.next_hollow(disks) else { return false };
        let emptied = match self.announce_moves().await {
            Ok(()) => self.empty(of, segment).await,
            Err(_) => false,
        };
        match emptied {
            true => self.compaction.segments.set(self.compaction.segments.get() + 1),
            false => drop(self.compaction.tried.borrow_mut().1.insert(segment)),
        }
        true
    }

    /// Moves what lies in a segment elsewhere, and gives it back. `false`: some of it stays.
    async fn empty(self: &Rc<Self>, table: TableNo, segment: SegmentNo) -> bool {
        let begun = self.map.borrow_mut().begin_emptying(segment);
        let Some(mut claims) = begun else { return false };
        for _ in 0..ROUNDS {
            let Ok(stripes) = self.stripes_in(table, segment).await else { break };
            if stripes.is_empty() {
                break;
            }
            let cost = self.cost_of_move(table).max(1);
            let each = (self.traffic.budgets.merges.limit() / 2 / cost).clamp(1, AT_ONCE) as usize;
            let mut moved = 0;
            for group in stripes.chunks(each) {
                if !self.may_compact() {
                    break;
                }
                let _lease = self.traffic.budgets.merges.take(cost * group.len() as u64).await;
                moved += self.move_stripes(table, segment, group).await.min(claims - moved);
            }
            claims -= moved;
            let len = self.map.borrow().tables.get(&table).map_or(0, |table| table.record.layout.data_len().0);
            self.compaction.bytes.set(self.compaction.bytes.get() + moved * len);
            // What is not durable yet is next time; and so is what these leave.
            if self.make_durable(self.log.seq()).await.is_err() {
                break;
            }
        }
        self.await_end(segment).await;
        let records = self.map.borrow_mut().end_emptying(table, segment, claims);
        self.append_all(records);
        !self.map.borrow().segments.contains_key(&segment)
    }

    /// Waits for who still reads what lay in a segment that holds nothing any more.
    async fn await_end(&self, segment: SegmentNo) {
        for _ in 0..LOOKS {
            let is_empty = self.map.borrow().segments.get(&segment).is_some_and(|found| found.mapped.is_empty());
            if !is_empty || self.stopping.get() || self.is_closing() {
                return;
            }
            self.pause().await;
        }
    }

    /// The stripes of `table` that lie in `segment`, as its table says.
    async fn stripes_in(&self, table: TableNo, segment: SegmentNo) -> Result<Vec<u64>> {
        let (mut found, mut from, mut pages) = (Vec::new(), 0, 0);
        while let Some(page) = self.next_page(table, from) {
            from = page.end;
            pages += 1;
            if pages % PAGES == 0 {
                self.pause().await;
            }
            let _held = self.load_table(table, page.clone()).await?;
            let map = self.map.borrow();
            let Some(table) = map.tables.get(&table) else { break };
            found.extend(table.mapped_in(page).filter(|(_, place)| place.segment == segment).map(|(stripe, _)| stripe));
        }
        Ok(found)
    }
}
