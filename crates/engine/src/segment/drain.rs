//! Draining: the way of slabs and metadata pages that nobody owns any more back to what is free.
//!
//! 1. The record that lets go of them becomes durable: before that, a crash brings their owner back.
//! 2. The last reader that knew them ends.
//! 3. They are free.
//! 4. A slab that nobody takes for a while (`discard_rest` of the tuning) is discarded on its disk, and is not free
//!    meanwhile; pages lie among others and are not. What is soon written again would only be made anew by whoever
//!    keeps the disk: a file would get a hole, and fill it again elsewhere.
//!
//! No checkpoint has to come before 3, although an opening reads table pages where the last checkpoint says they are,
//! before it reads the log: images are written only after the log is durable, so whoever finds a page overwritten finds
//! the record that dropped its table, too. Metadata segments that move are different: their pages are still somebody's
//! (`pool/moves.rs`).
//!
//! Invariants
//! 1. A slab that drains, or is being discarded, is neither free nor in a segment.
//! 2. A slab is discarded after 3 only, and only if it is free when that begins: never while a crash could bring its
//!    owner back, never while it is somebody else's.

use super::Map;
use crate::format::page::PageKind;
use crate::format::record::{PageRun, SlabAt};
use crate::mutant::{self, Mutant};
use crate::units::{DiskNo, Nanos, SegmentNo, TableNo, VdiskNo};
use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::rc::Weak;
use alloc::vec::Vec;

/// Whose pages and slabs they were.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Former {
    /// A segment's, by its number.
    Segment(SegmentNo),
    /// A stripe table's, by its number.
    Table(TableNo),
    /// A read cache's, by the number of its virtual disk.
    ReadCache(VdiskNo),
    /// A slot's that moved.
    Slot,
}

impl Former {
    /// What its pages are named by.
    fn pages(self) -> Option<(PageKind, u32)> {
        match self {
            Former::Segment(id) => Some((PageKind::Sheet, id.0)),
            Former::Table(id) => Some((PageKind::Table, id.0)),
            Former::ReadCache(_) | Former::Slot => None,
        }
    }
}

/// All that drains.
#[derive(Default)]
pub struct Draining {
    /// What is dropped, and in no log yet.
    unlogged: BTreeMap<Former, Drained>,
    /// What waits for its record to be durable, or for its readers.
    waiting: Vec<Drained>,
    /// Slabs that became free and whose disks were not told: when that was last.
    untold: BTreeMap<SlabAt, Nanos>,
    /// Each time a slab became free, in order; times that are not in `untold` count no more.
    resting: VecDeque<(Nanos, SlabAt)>,
    /// Slabs that rested for long enough. Some may have been taken since.
    rested: BTreeSet<SlabAt>,
    /// Every slab that drains, those that are being discarded included.
    slabs: BTreeSet<SlabAt>,
}

/// What came of letting things drain.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Settled {
    /// Something waits for its last reader only.
    pub used: bool,
    /// Slabs became free.
    pub freed: bool,
}

struct Drained {
    former: Former,
    /// The sequence number of the record that lets go of it.
    record: u64,
    slabs: Vec<SlabAt>,
    known: Known,
    pages: Vec<PageRun>,
}

impl Drained {
    fn new(former: Former) -> Drained {
        Drained { former, record: u64::MAX, slabs: Vec::new(), known: Vec::new(), pages: Vec::new() }
    }
}

/// What those hold who may read or write in slabs: the lists of a segment's slabs, as it had them one after the other.
pub type Known = Vec<Weak<[Option<SlabAt>]>>;

impl Map {
    /// Lets go of what `former` had, once the record of that is durable; [`Map::is_dropped_at`] tells which one it is.
    pub(super) fn drain(&mut self, former: Former, slabs: Vec<SlabAt>, known: Known, pages: Vec<PageRun>) {
        if mutant::active(Mutant::SlabsFreedBeforeDrop) {
            slabs.iter().for_each(|at| self.put_back(*at));
            pages.iter().for_each(|run| self.put_pages_back(*run));
            return;
        }
        self.draining.slabs.extend(&slabs);
        if mutant::active(Mutant::DiscardBeforeDrop) {
            self.draining.rested.extend(&slabs);
        }
        // A read cache may let go of slabs more than once before that is logged.
        let drained = self.draining.unlogged.entry(former).or_insert_with(|| Drained::new(former));
        drained.slabs.extend(slabs);
        drained.known.extend(known);
        drained.pages.extend(pages);
    }

    /// The record that drops `former` has this sequence number.
    pub fn is_dropped_at(&mut self, former: Former, record: u64) {
        let drained = self.draining.unlogged.remove(&former);
        self.draining.waiting.extend(drained.map(|drained| Drained { record, ..drained }));
    }

    /// Lets go of a slab that a slot left, or did not come to, and that no durable record names any more.
    pub fn drain_slab(&mut self, at: SlabAt, known: Known) {
        self.in_transit.remove(&at);
        self.draining.slabs.insert(at);
        let (former, slabs, pages) = (Former::Slot, alloc::vec![at], Vec::new());
        self.draining.waiting.push(Drained { former, record: 0, slabs, known, pages });
    }

    /// Takes the first three steps for all that can take them `now`, the log being durable up to `durable`. `is_used`
    /// says of whose pages some are being read or written.
    pub fn settle_drained(&mut self, durable: u64, now: Nanos, is_used: impl Fn(PageKind, u32) -> bool) -> Settled {
        let mut settled = Settled::default();
        for drained in core::mem::take(&mut self.draining.waiting) {
            let recorded = drained.record < durable;
            let known = drained.known.iter().any(|slabs| slabs.strong_count() > 0)
                || drained.former.pages().is_some_and(|(kind, owner)| is_used(kind, owner));
            if !recorded || known {
                settled.used |= recorded;
                self.draining.waiting.push(drained);
                continue;
            }
            drained.pages.iter().for_each(|run| self.put_pages_back(*run));
            for at in drained.slabs {
                settled.freed |= self.end_drain(at);
                self.draining.untold.insert(at, now);
                self.draining.resting.push_back((now, at));
            }
        }
        settled
    }

    /// Ends the rest of slabs of disk `only` (none: of all) that were free at `moment`.
    pub fn end_rests(&mut self, moment: Nanos, only: Option<DiskNo>) {
        let draining = &mut self.draining;
        let mut others = VecDeque::new();
        while let Some((since, at)) = draining.resting.pop_front_if(|(since, _)| *since <= moment) {
            if only.is_some_and(|only| only != at.disk) {
                others.push_back((since, at));
            } else if draining.untold.get(&at) == Some(&since) {
                draining.untold.remove(&at);
                draining.rested.insert(at);
            }
        }
        others.append(&mut draining.resting);
        draining.resting = others;
    }

    /// Since when the slab rests that has done so for the longest.
    pub fn rests_since(&self) -> Option<Nanos> {
        self.draining.resting.front().map(|(since, _)| *since)
    }

    /// Takes a slab of disk `no` that has rested, to be discarded now; [`Map::end_drain`] makes it free again.
    pub fn take_rested(&mut self, no: DiskNo) -> Option<SlabAt> {
        let all = SlabAt { disk: no, slab: 0 }..=SlabAt { disk: no, slab: u32::MAX };
        loop {
            let at = self.draining.rested.range(all.clone()).next().copied()?;
            self.draining.rested.remove(&at);
            let slab = at.slab as usize;
            let free = self.disks.get_mut(&no).map(|disk| &mut disk.free);
            match free.filter(|free| slab < free.len() && free.contains(slab)) {
                Some(free) => free.remove(slab..slab + 1),
                None if mutant::active(Mutant::DiscardBeforeDrop) => return Some(at),
                None if mutant::active(Mutant::DiscardsWhatIsTaken) => return Some(at),
                None => continue,
            }
            self.draining.slabs.insert(at);
            return Some(at);
        }
    }

    /// The disks that are to be told of slabs.
    pub fn disks_to_tell(&self) -> BTreeSet<DiskNo> {
        self.draining.rested.iter().map(|at| at.disk).collect()
    }

    /// A slab that drains, or is discarded, is free. `false`: it is not.
    pub fn end_drain(&mut self, at: SlabAt) -> bool {
        let early = mutant::active(Mutant::DiscardBeforeDrop)
            && self.draining.unlogged.values().chain(&self.draining.waiting).any(|drained| drained.slabs.contains(&at));
        let ends = !early && self.draining.slabs.remove(&at);
        if ends {
            self.put_back(at);
        }
        ends
    }

    /// Whether anything drains.
    pub fn is_draining(&self) -> bool {
        !(self.draining.slabs.is_empty() && self.draining.waiting.is_empty() && self.draining.unlogged.is_empty())
    }

    /// Every slab that drains.
    pub fn draining_slabs(&self) -> &BTreeSet<SlabAt> {
        &self.draining.slabs
    }

    /// How many slabs of disk `no` drain.
    pub fn draining_on(&self, no: DiskNo) -> usize {
        self.draining.slabs.range(SlabAt { disk: no, slab: 0 }..=SlabAt { disk: no, slab: u32::MAX }).count()
    }

    /// Slabs of disk `no` that are free, or will be in a moment.
    pub fn free_soon(&self, no: DiskNo) -> usize {
        self.disks.get(&no).map_or(0, |disk| disk.free.count()) + self.draining_on(no)
    }

    pub(super) fn put_back(&mut self, at: SlabAt) {
        if let Some(disk) = self.disks.get_mut(&at.disk) {
            disk.free.insert(at.slab as usize..at.slab as usize + 1);
        }
    }

    pub(super) fn put_pages_back(&mut self, run: PageRun) {
        if run.count > 0
            && let Some(home) = self.segments.get_mut(&run.segment)
        {
            home.free.insert(run.first as usize..(run.first + run.count) as usize);
            self.relist_beside(run.segment, run.count);
        }
    }
}
