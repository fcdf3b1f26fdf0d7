//! Moves: one slot of a segment gets another slab, or its own is brought up to date. Every job that changes where data
//! lies is made of these.
//!
//! The steps of a move, in order:
//! 1. From now on note which stripes of the segment are written anew.
//! 2. Copy the slot's strips of every committed stripe: read and proven where they are, computed from the others where
//!    they cannot be. Stripes are immutable, so nothing moves underneath; clients read and write the segment all the
//!    while.
//! 3. Freeze the segment: nothing new goes into it; wait for the writes under way; copy what was noted in 1.
//! 4. Flush the disk. One record makes the new home the truth (or says that nothing is missing any more); thaw; make
//!    the record durable.
//! 5. The old slab drains (`segment/drain.rs`).
//!
//! Metadata: its pages are copied while no checkpoint runs, and one is taken before its old slab drains.
//!
//! A disk that is lost, and back, before the flush of 4 has not what was written to it before: the move has failed.
//! Metadata goes to no disk that has not caught up.
//!
//! A crash before the record leaves a slab that nobody refers to: free again at the next opening.
//!
//! Invariants
//! 1. A segment's record never names a slab whose strips are not durable there, but for the slots it says are missing
//!    some.
//! 2. Of one segment, one slot moves at a time.
//! 3. A strip is read only while a committed stripe lies there, which is pinned in the same step: what is being written
//!    proves nothing.
//! 4. Of one segment, no two slots move to the same disk, but copies of metadata that have no other place.
//! 5. A slot whose strips cannot all be computed keeps its home: that may be the only copy.

use super::Pool;
use super::job::{Halt, Ticket};
use crate::error::Result;
use crate::fail;
use crate::format::page::CHUNK_PAGES;
use crate::format::page::{PageId, PageKind};
use crate::format::record::{OWNER_METADATA, PageRun, SlabAt};
use crate::geometry::Layout;
use crate::io::{Buf, IoSlice};
use crate::mutant::{self, Mutant};
use crate::segment::PAGE_PAIR;
use crate::segment::drain::Known;
use crate::store::execute::Target;
use crate::store::join;
use crate::store::page_place::{first_block, slot_of, table_page};
use crate::stripe::table::Place;
use crate::units::{BLOCK, SegmentNo};
use alloc::rc::Rc;
use alloc::vec;
use alloc::vec::Vec;

/// The most slots that move at once. A move keeps the disks it reads from busy, or the one it writes to: as many as
/// there are disks keep all busy.
const MOVES_MAX: usize = 24;
/// The most bytes of a disk that a move reads before it lets another one have the arm: long enough that seeks hardly
/// count.
const GROUP_BYTES: u64 = 8 << 20;
/// The most stripes of a group, however small their strips are.
const GROUP_STRIPES: u64 = 256;

/// Pages of metadata that are copied or proven at once: among the requests of busy clients the arm comes by for all of
/// them and not for each.
pub(super) const PAGES_AT_ONCE: usize = 256;

/// A metadata page, its run, and which page of that it is.
pub(super) type Homed = (PageId, (PageRun, u32));

/// How a move ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Moved {
    /// The slot is sound, in its new home or its own.
    Done,
    /// The segment, or what was to be moved of it, is gone meanwhile.
    Moot,
    /// Stripes could not be computed: the slot stays as it is.
    Lost,
    /// The disk that was written to failed.
    Failed,
}

impl Pool {
    /// Gives `slot` of `segment` the slab `to` as its home; or brings its own up to date, if that is `None`.
    pub(super) async fn move_slot(
        &self,
        segment: SegmentNo,
        slot: usize,
        to: Option<SlabAt>,
        ticket: &Ticket,
    ) -> core::result::Result<Moved, Halt> {
        let metadata =
            self.store.map.borrow().segments.get(&segment).is_some_and(|found| found.record.owner == OWNER_METADATA);
        // Page images are written by checkpoints only: none runs while a metadata segment moves.
        let turn = if metadata { Some(self.checkpointing.take().await) } else { None };
        let old = self.begin_move(segment).await;
        // Another slot of the segment may have moved to that very disk since it was chosen: a disk takes one column of
        // a stripe only.
        let others = |old: &Rc<[Option<SlabAt>]>| {
            let other = |at: &usize| *at != slot && old[*at].is_some_and(|at| to.is_some_and(|to| to.disk == at.disk));
            (0..old.len()).any(|at| other(&at))
        };
        let moved = match &old {
            Some(old) if others(old) && !self.store.map.borrow().may_double(segment, slot) => Ok(Moved::Failed),
            Some(old) => self.copy_slot(segment, slot, to.or(old[slot]), to.is_none(), ticket).await,
            None => Ok(Moved::Moot),
        };
        // From here to the record it is one step: what was proven in the copying holds.
        let (moved, known) = self.end_move(segment, slot, to, old.is_some(), moved);
        drop(turn);
        match (moved, to, old.and_then(|old| old[slot])) {
            (Ok(Moved::Done), Some(_), Some(left)) => self.give_up(left, known, metadata).await,
            (Ok(Moved::Done), Some(_), None) => Ok(Moved::Done),
            (moved, Some(to), _) => {
                // Nobody was told of it.
                self.store.map.borrow_mut().drain_slab(to, Known::new());
                self.store.signals.drains.notify();
                moved
            }
            (moved, None, _) => moved,
        }
    }

    /// Makes the new home the truth, if all went well; from then on another slot of the segment may move. Returns how
    /// the move ended, and what those hold who know the old slab.
    fn end_move(
        &self,
        segment: SegmentNo,
        slot: usize,
        to: Option<SlabAt>,
        begun: bool,
        moved: core::result::Result<Moved, Halt>,
    ) -> (core::result::Result<Moved, Halt>, Known) {
        let mut map = self.store.map.borrow_mut();
        let there = map.segments.contains_key(&segment);
        // Its virtual disk may have been removed meanwhile, and its slabs with it.
        let moved = moved.map(|moved| if moved == Moved::Done && !there { Moved::Moot } else { moved });
        let known = map.segments.get(&segment).map_or(Known::new(), |found| found.known());
        let record = match (&moved, to) {
            (Ok(Moved::Done), Some(to)) => map.rehome(segment, slot, to),
            (Ok(Moved::Done), None) => map.clear_missed(segment, slot),
            _ => None,
        };
        if let Some(found) = map.segments.get_mut(&segment).filter(|_| begun) {
            (found.frozen, found.moving) = (false, None);
        }
        drop(map);
        self.store.append_changes(record);
        (moved, known)
    }

    /// Step 5: the old slab of a slot, once that it moved is durable.
    async fn give_up(&self, left: SlabAt, known: Known, metadata: bool) -> core::result::Result<Moved, Halt> {
        self.store.make_logged(self.store.log.seq()).await?;
        if metadata {
            // An opening reads the pages where the last checkpoint says they are, before it reads the log.
            self.checkpoint().await?;
        }
        self.store.map.borrow_mut().drain_slab(left, known);
        self.store.signals.drains.notify();
        Ok(Moved::Done)
    }

    /// Gives up a copy of metadata that leaves its disk and finds no other place, if it may.
    pub(super) async fn give_up_copy(&self, segment: SegmentNo, slot: usize) -> core::result::Result<Moved, Halt> {
        let turn = self.checkpointing.take().await;
        let given_up = self.store.map.borrow_mut().give_up_copy(segment, slot);
        let Some((record, left, known)) = given_up else { return Ok(Moved::Failed) };
        self.store.append_changes(Some(record));
        drop(turn);
        self.give_up(left, known, true).await
    }

    /// Steps 2 and 3, and the flush of 4: everything of the slot is at `home` then.
    async fn copy_slot(
        &self,
        segment: SegmentNo,
        slot: usize,
        home: Option<SlabAt>,
        in_place: bool,
        ticket: &Ticket,
    ) -> core::result::Result<Moved, Halt> {
        let Some(home) = home else { return Ok(Moved::Moot) };
        let losses = self.store.losses(home.disk);
        let metadata =
            self.store.map.borrow().segments.get(&segment).is_some_and(|found| found.record.owner == OWNER_METADATA);
        // It may have gone, and come, since it was chosen. Then it is read only once it has caught up: from nobody, if
        // the last copy has moved there.
        let is_stale = metadata && !in_place && !self.store.is_current(home.disk);
        if is_stale && !mutant::active(Mutant::MetadataMovesToStale) {
            return Ok(Moved::Failed);
        }
        let copied = if metadata {
            self.copy_pages(segment, home).await.is_ok()
        } else {
            match self.copy_strips(segment, slot, home, in_place, ticket).await? {
                Moved::Done => true,
                Moved::Failed => false,
                other => return Ok(other),
            }
        };
        let flushed = copied
            && (mutant::active(Mutant::RehomedWithoutFlush) || self.store.disk_flush(home.disk).await.is_ok())
            && (self.store.losses(home.disk) == losses || mutant::active(Mutant::MoveForgetsLosses));
        if flushed {
            // A copy of the disk that has its last label need not have them.
            self.store.touched(home.disk, segment);
        }
        Ok(if flushed { Moved::Done } else { Moved::Failed })
    }

    /// Step 1, once no other slot of the segment moves. Returns its present slabs; `None`: it is gone.
    async fn begin_move(&self, segment: SegmentNo) -> Option<Rc<[Option<SlabAt>]>> {
        loop {
            {
                let mut map = self.store.map.borrow_mut();
                let found = map.segments.get_mut(&segment)?;
                if found.moving.is_none() {
                    // What is in flight now is not committed yet: it counts as written anew.
                    found.moving = Some(found.in_flight.clone());
                    return Some(found.record.slabs.clone());
                }
            }
            self.store.pause().await;
        }
    }

    /// Steps 2 and 3.
    async fn copy_strips(
        &self,
        segment: SegmentNo,
        slot: usize,
        home: SlabAt,
        in_place: bool,
        ticket: &Ticket,
    ) -> core::result::Result<Moved, Halt> {
        let mut next = 0;
        loop {
            let group = self.next_group(segment, next, false);
            let Some(last) = group.last() else { break };
            next = last + 1;
            match self.copy_group(segment, slot, home, in_place, &group, ticket).await? {
                Moved::Done => ticket.step(&self.store, 0).await?,
                other => return Ok(other),
            }
        }
        while !self.freeze(segment) {
            self.store.pause().await;
        }
        next = if mutant::active(Mutant::MoveForgetsNewStripes) { u32::MAX } else { 0 };
        loop {
            let group = self.next_group(segment, next, true);
            let Some(last) = group.last() else { return Ok(Moved::Done) };
            next = last + 1;
            match self.copy_group(segment, slot, home, in_place, &group, ticket).await? {
                Moved::Done => {}
                other => return Ok(other),
            }
        }
    }

    /// How many slots of different segments are moved at once.
    pub(super) fn moves_at_once(&self) -> usize {
        self.store.map.borrow().disks.len().clamp(2, MOVES_MAX)
    }

    /// Some committed stripes of a segment from `from` on: those that were noted in step 1, or the others.
    fn next_group(&self, segment: SegmentNo, from: u32, noted: bool) -> Vec<u32> {
        let map = self.store.map.borrow();
        let Some(found) = map.segments.get(&segment) else { return Vec::new() };
        let is_noted = |index: u32| found.moving.as_ref().is_some_and(|moving| moving.contains(index as usize));
        let indexes = from..found.free.len() as u32;
        let most = group_stripes(found.record.layout, self.store.tuning.move_memory / self.moves_at_once() as u64);
        indexes.filter(|index| found.in_use(*index) && is_noted(*index) == noted).take(most).collect()
    }

    /// Keeps new writes out of a segment. `false`: some are still under way.
    fn freeze(&self, segment: SegmentNo) -> bool {
        let mut map = self.store.map.borrow_mut();
        let Some(found) = map.segments.get_mut(&segment) else { return true };
        found.frozen = true;
        found.in_flight.is_empty()
    }

    async fn copy_group(
        &self,
        segment: SegmentNo,
        slot: usize,
        home: SlabAt,
        in_place: bool,
        group: &[u32],
        ticket: &Ticket,
    ) -> core::result::Result<Moved, Halt> {
        let layout = self.store.map.borrow().segments.get(&segment).map(|found| found.record.layout);
        let memory = layout.map_or(0, |layout| group.len() as u64 * strip_memory(layout));
        let _lease = self.store.traffic.budgets.moves.take(memory).await;
        let strips = join(group.iter().map(|index| self.strip(Place::at(segment, *index), slot, in_place))).await;
        let (mut writes, mut pinned) = (Vec::new(), Vec::new());
        let mut bytes = 0;
        let mut lost = false;
        for (index, strip) in group.iter().zip(strips) {
            match strip {
                Strip::Lost => lost = true,
                Strip::Moot => {}
                Strip::There(len) => bytes += len,
                Strip::Read(strip) => {
                    bytes += strip.len() as u64;
                    let blocks = strip.len() as u64 / BLOCK;
                    pinned.push(Place::at(segment, *index));
                    writes.push((self.store.slab_offset(home, *index as u64 * blocks), strip));
                }
            }
        }
        if lost {
            writes.clear();
        }
        let written = join(writes.into_iter().map(|(at, strip)| self.store.disk_write(home.disk, at, vec![strip])));
        let failed = written.await.iter().any(|written| written.is_err());
        for place in pinned {
            let records = self.store.map.borrow_mut().unpin(place);
            self.store.append_all(records);
        }
        match (lost, failed) {
            (true, _) => return Ok(Moved::Lost),
            (_, true) => return Ok(Moved::Failed),
            _ => {}
        }
        ticket.advance(&self.store, bytes)?;
        Ok(Moved::Done)
    }

    /// The strip of `slot` of one stripe, from wherever it can be had; then it is pinned, until it has been written: in
    /// its own slab it would else be written over what came to that place meanwhile. `in_place`: nothing is to be done
    /// if it is where it belongs.
    async fn strip(&self, place: Place, slot: usize, in_place: bool) -> Strip {
        {
            let mut map = self.store.map.borrow_mut();
            if !map.segments.get(&place.segment).is_some_and(|found| found.in_use(place.index)) {
                return Strip::Moot;
            }
            map.pin(place);
        }
        let strip = match Target::new(&self.store, place) {
            None => Strip::Moot,
            Some(target) => match self.store.rebuild_strip(&target, slot, in_place).await {
                Ok(Some(strip)) => Strip::Read(strip),
                Ok(None) => Strip::There(target.layout.interleave().0),
                Err(_) => Strip::Lost,
            },
        };
        if !matches!(strip, Strip::Read(_)) {
            let records = self.store.map.borrow_mut().unpin(place);
            self.store.append_all(records);
        }
        strip
    }

    /// Does what [`Pool::copy_pages`] does, while checkpoints go on: they write to every copy that is there, and so
    /// keep up to date what was copied.
    pub(super) async fn copy_pages_in_turns(&self, segment: SegmentNo, to: SlabAt) -> Result<()> {
        for group in self.pages_of(segment).chunks(PAGES_AT_ONCE) {
            let _turn = self.checkpointing.take().await;
            // A run that was given to somebody else meanwhile is written by the next checkpoint.
            let still = group.iter().filter(|(id, home)| self.store.is_home(*id, home.0));
            let copies = still.map(|(id, home)| self.copy_page(*id, *home, to));
            join(copies).await.into_iter().collect::<Result<()>>()?;
        }
        for blocks in self.store.tree_blocks_in(segment).chunks(PAGES_AT_ONCE) {
            let _turn = self.checkpointing.take().await;
            self.store.copy_tree_pages(segment, blocks, to).await?;
        }
        Ok(())
    }

    /// Writes the newest image of every page of a metadata segment to `to`.
    pub(super) async fn copy_pages(&self, segment: SegmentNo, to: SlabAt) -> Result<()> {
        for group in self.pages_of(segment).chunks(PAGES_AT_ONCE) {
            join(group.iter().map(|(id, home)| self.copy_page(*id, *home, to)))
                .await
                .into_iter()
                .collect::<Result<()>>()?;
        }
        for blocks in self.store.tree_blocks_in(segment).chunks(PAGES_AT_ONCE) {
            self.store.copy_tree_pages(segment, blocks, to).await?;
        }
        Ok(())
    }

    async fn copy_page(&self, id: PageId, home: (PageRun, u32), to: SlabAt) -> Result<()> {
        // A page without an image was never checkpointed.
        let Some((version, block)) = self.store.read_page(id, home).await? else {
            return self.blank_page(home, to).await;
        };
        // Both slots: what lies in the other one may be of another history, and look newer.
        let mut both = Buf::zeroed(PAGE_PAIR as usize);
        both[slot_of(version) as usize * BLOCK as usize..][..BLOCK as usize].copy_from_slice(&block);
        self.write_pair(home, to, both).await
    }

    async fn blank_page(&self, home: (PageRun, u32), to: SlabAt) -> Result<()> {
        self.write_pair(home, to, Buf::zeroed(PAGE_PAIR as usize)).await
    }

    async fn write_pair(&self, home: (PageRun, u32), to: SlabAt, both: Buf) -> Result<()> {
        let pair = first_block(home);
        let at = self.store.slab_offset(to, pair);
        if self.store.disk_write(to.disk, at, vec![both.freeze()]).await.is_err() {
            return fail!(NotPossible, "disk {} failed while metadata was copied to it", to.disk);
        }
        Ok(())
    }

    /// Every page that lives in a metadata segment, with its home, in the order in which they lie.
    pub(super) fn pages_of(&self, metadata: SegmentNo) -> Vec<Homed> {
        let map = self.store.map.borrow();
        let mut pages = Vec::new();
        for segment in
            map.segments.values().filter(|found| found.record.sheet.count > 0 && found.record.sheet.segment == metadata)
        {
            let run = segment.record.sheet;
            let id = |number| PageId { kind: PageKind::Sheet, owner: segment.record.id.0, number };
            pages.extend((0..run.count).map(|number| (id(number), (run, number))));
        }
        for table in map.tables.values() {
            for (number, chunk) in table.chunks.iter().filter(|(_, chunk)| chunk.pages.segment == metadata) {
                pages.extend(
                    (0..CHUNK_PAGES).map(|page| (table_page(table.record.id, *number, page), (chunk.pages, page))),
                );
            }
        }
        pages.sort_unstable_by_key(|(_, (run, number))| run.first + number);
        pages
    }
}

/// How many strips a move may copy at once if it is to hold `memory` bytes: those it computes them from, and the strips
/// themselves.
fn group_stripes(layout: Layout, memory: u64) -> usize {
    let most = (GROUP_BYTES / layout.interleave().0).clamp(1, GROUP_STRIPES);
    (memory / strip_memory(layout)).clamp(1, most) as usize
}

/// Bytes that one strip takes while it moves: what it is computed from, and itself.
fn strip_memory(layout: Layout) -> u64 {
    (layout.data_columns() as u64 + 1) * layout.interleave().0
}

/// What there is of one strip.
enum Strip {
    /// These bytes; they are to be written.
    Read(IoSlice),
    /// It is where it belongs: so many bytes.
    There(u64),
    /// No stripe of anybody lies there any more.
    Moot,
    /// It cannot be computed.
    Lost,
}
