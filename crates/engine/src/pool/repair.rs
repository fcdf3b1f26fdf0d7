//! Repair: every segment gets all its slots on disks that are there, and a disk that missed updates is brought up to date.
//!
//! Giving a slot of a segment another home, in order:
//! 1. Freeze the segment: nothing new is written into it; wait for the writes under way.
//! 2. Compute the slot's strips of every stripe in use and write them to the new slab. Stripes are immutable, so nothing moves underneath.
//! 3. Flush the new disk. One record makes the new home the truth; make it durable; thaw the segment.
//! 4. When the last reader that knew the old slab is done, the old slab is free.
//!
//! A crash before 3 leaves a slab that nobody refers to: free again at the next opening.
//!
//! Invariants
//! 1. A segment's record never names a slab whose strips are not durable there.
//! 2. A disk is called current only after every metadata page on it is.

use super::Pool;
use crate::error::Result;
use crate::event::{DiskNo, Event};
use crate::fail;
use crate::format::page::{PageId, PageKind};
use crate::format::record::{OWNER_METADATA, PageRun, SlabAt};
use crate::io::IoSlice;
use crate::segment::PAGE_PAIR;
use crate::store::join;
use crate::store::pages::table_page;
use crate::stripe::execute::Target;
use crate::stripe::plan::Want;
use crate::stripe::table::{CHUNK_PAGES, Place};
use crate::units::BLOCK;
use alloc::format;
use alloc::rc::Rc;
use alloc::vec;
use alloc::vec::Vec;

/// Stripes rebuilt at once.
const AT_ONCE: u32 = 16;

/// What a repair did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RepairReport {
    /// Slots that got another home.
    pub rehomed: u64,
    /// Slots that should have, and for which no disk has room.
    pub homeless: u64,
    /// Bytes written to new homes.
    pub written: u64,
    /// Stripes that could not be computed: more was lost than the redundancy covers.
    pub lost_stripes: u64,
    /// Disks that were brought up to date.
    pub readmitted: u64,
}

impl Pool {
    /// Brings the pool back to full redundancy, as far as there are disks for it.
    pub async fn repair(&self) -> Result<RepairReport> {
        self.store.check_writable()?;
        let mut report = RepairReport::default();
        for no in self.stale_disks() {
            self.readmit(no).await?;
            report.readmitted += 1;
        }
        self.store.refill_loggers().await?;
        // It lets disks vote that did not before.
        self.checkpoint().await?;
        // Metadata first, then the segments with the least redundancy left.
        for (segment, slot) in self.homeless_slots() {
            let Some(to) = self.store.map.borrow_mut().place_slot(segment) else {
                report.homeless += 1;
                continue;
            };
            self.rehome(segment, slot, to, &mut report).await?;
        }
        self.store.flush_all(self.store.unflushed()).await;
        self.store.write_labels().await?;
        Ok(report)
    }

    /// Gives `slot` of `segment` the slab `to` as its home.
    async fn rehome(&self, segment: u32, slot: usize, to: SlabAt, report: &mut RepairReport) -> Result<()> {
        let metadata =
            self.store.map.borrow().segments.get(&segment).is_some_and(|found| found.record.owner == OWNER_METADATA);
        // Page images are written by checkpoints only: none runs while a metadata segment moves.
        let _turn = if metadata { Some(self.checkpointing.take().await) } else { None };
        let Some(old) = self.freeze(segment).await else {
            self.store.map.borrow_mut().free_slab(to);
            return Ok(());
        };
        let lost_before = report.lost_stripes;
        let moved = if metadata {
            self.copy_pages(segment, to).await
        } else {
            self.rebuild_slot(segment, slot, to, report).await
        };
        let moved = match moved {
            // Its old slab, on a disk that is away, may hold the only copy of these: it keeps its home.
            Ok(()) if report.lost_stripes > lost_before => {
                report.homeless += 1;
                let mut map = self.store.map.borrow_mut();
                map.free_slab(to);
                if let Some(segment) = map.segments.get_mut(&segment) {
                    segment.frozen = false;
                }
                return Ok(());
            }
            Ok(()) if self.store.disk_flush(to.disk).await.is_ok() => Ok(()),
            Ok(()) => fail!(NotPossible, "disk {} failed while a slab was rebuilt on it", to.disk),
            Err(error) => Err(error),
        };
        if moved.is_err() {
            let mut map = self.store.map.borrow_mut();
            map.free_slab(to);
            if let Some(segment) = map.segments.get_mut(&segment) {
                segment.frozen = false;
            }
            return moved;
        }
        let record = self.store.map.borrow_mut().rehome(segment, slot, to);
        if let Some(record) = record {
            self.store.log.append(&record);
        }
        if let Some(segment) = self.store.map.borrow_mut().segments.get_mut(&segment) {
            segment.frozen = false;
        }
        self.store.log.make_durable(self.store.log.seq()).await?;
        while Rc::strong_count(&old) > 1 {
            self.store.pause().await;
        }
        if let Some(at) = old[slot] {
            self.store.map.borrow_mut().free_slab(at);
        }
        report.rehomed += 1;
        Ok(())
    }

    /// Keeps new writes out of a segment and waits for those under way. Returns its present slabs; `None`: it is gone.
    async fn freeze(&self, segment: u32) -> Option<Rc<[Option<SlabAt>]>> {
        loop {
            {
                let mut map = self.store.map.borrow_mut();
                let found = map.segments.get_mut(&segment)?;
                found.frozen = true;
                if found.writing == 0 {
                    return Some(found.record.slabs.clone());
                }
            }
            self.store.pause().await;
        }
    }

    /// Computes one slot's strips of every stripe in use and writes them to `to`.
    async fn rebuild_slot(&self, segment: u32, slot: usize, to: SlabAt, report: &mut RepairReport) -> Result<()> {
        let (layout, indexes) = {
            let map = self.store.map.borrow();
            let Some(found) = map.segments.get(&segment) else { return Ok(()) };
            (found.record.layout, found.free.len() as u32)
        };
        let mut next = 0;
        while next < indexes {
            let group: Vec<u32> = {
                let map = self.store.map.borrow();
                let Some(found) = map.segments.get(&segment) else { return Ok(()) };
                found
                    .free
                    .runs(next as usize..indexes as usize, false)
                    .into_iter()
                    .flatten()
                    .take(AT_ONCE as usize)
                    .map(|index| index as u32)
                    .collect()
            };
            let Some(last) = group.last() else { break };
            next = last + 1;
            let strips =
                join(group.iter().map(|index| self.compute_strip(Place { segment, index: *index }, slot))).await;
            let mut writes = Vec::new();
            for (index, strip) in group.iter().zip(strips) {
                let Some(strip) = strip else {
                    report.lost_stripes += 1;
                    continue;
                };
                let at = self.store.slab_offset(to, *index as u64 * layout.strip_blocks() as u64);
                report.written += strip.len() as u64;
                writes.push((at, strip));
            }
            let written =
                join(writes.into_iter().map(|(at, strip)| self.store.disk_write(to.disk, at, vec![strip]))).await;
            if written.iter().any(|written| written.is_err()) {
                return fail!(NotPossible, "disk {} failed while a slab was rebuilt on it", to.disk);
            }
        }
        Ok(())
    }

    /// The strip of `slot` of one stripe, from wherever it can be had. `None`: it is lost, or no stripe of anybody.
    async fn compute_strip(&self, place: Place, slot: usize) -> Option<IoSlice> {
        let target = Target::new(&self.store, place)?;
        self.store.map.borrow_mut().pin(place);
        let want = Want { column: target.layout.column(place.index, slot), blocks: 0..target.layout.strip_blocks() };
        let read = self.store.read_stripe(&target, &[want]).await;
        let records = self.store.map.borrow_mut().unpin(place);
        self.store.append_all(records);
        read.ok()?.pop().map(|buf| buf.freeze())
    }

    /// Writes the newest image of every page of a metadata segment to `to`.
    async fn copy_pages(&self, segment: u32, to: SlabAt) -> Result<()> {
        for (id, home) in self.pages_of(segment) {
            // A page without an image was never checkpointed; there is nothing to copy.
            let Some((version, block)) = self.store.read_page(id, home).await else { continue };
            let pair = (home.0.first + home.1) as u64 * PAGE_PAIR / BLOCK;
            let at = self.store.slab_offset(to, pair + version % 2);
            if self.store.disk_write(to.disk, at, vec![block.freeze()]).await.is_err() {
                return fail!(NotPossible, "disk {} failed while metadata was copied to it", to.disk);
            }
        }
        Ok(())
    }

    /// Every page that lives in a metadata segment, with its home.
    fn pages_of(&self, metadata: u32) -> Vec<(PageId, (PageRun, u32))> {
        let map = self.store.map.borrow();
        let mut pages = Vec::new();
        for segment in
            map.segments.values().filter(|found| found.record.sheet.count > 0 && found.record.sheet.segment == metadata)
        {
            let run = segment.record.sheet;
            let id = |number| PageId { kind: PageKind::Sheet, owner: segment.record.id, number };
            pages.extend((0..run.count).map(|number| (id(number), (run, number))));
        }
        for table in map.tables.values() {
            for (number, chunk) in table.chunks.iter().filter(|(_, chunk)| chunk.pages.segment == metadata) {
                pages.extend(
                    (0..CHUNK_PAGES).map(|page| (table_page(table.record.id, *number, page), (chunk.pages, page))),
                );
            }
        }
        pages
    }

    /// Slots without a disk that is there: metadata first, then by how little redundancy is left.
    fn homeless_slots(&self) -> Vec<(u32, usize)> {
        let map = self.store.map.borrow();
        let mut found = Vec::new();
        for segment in map.segments.values() {
            let there =
                |at: &Option<SlabAt>| at.is_some_and(|at| map.disks.get(&at.disk).is_some_and(|disk| disk.healthy));
            let homeless: Vec<usize> =
                (0..segment.record.slabs.len()).filter(|slot| !there(&segment.record.slabs[*slot])).collect();
            let data = segment.record.owner != OWNER_METADATA;
            let left = segment.record.layout.failures() as i64 - homeless.len() as i64;
            found.extend(homeless.into_iter().map(|slot| (data, left, segment.record.id, slot)));
        }
        found.sort_unstable();
        found.into_iter().map(|(_, _, segment, slot)| (segment, slot)).collect()
    }

    fn stale_disks(&self) -> Vec<u16> {
        let members = self.store.members.borrow();
        members.iter().filter(|(_, member)| member.disk.is_some() && !member.current).map(|(no, _)| *no).collect()
    }

    /// Brings a disk that missed updates up to date: its metadata at once, its strips stripe by stripe.
    async fn readmit(&self, no: u16) -> Result<()> {
        {
            let _turn = self.checkpointing.take().await;
            for (segment, at) in self.slots_on(no, true) {
                self.copy_pages(segment, at).await?;
            }
            if self.store.disk_flush(no).await.is_err() {
                return fail!(NotPossible, "disk {no} failed while it was brought up to date");
            }
            if let Some(member) = self.store.members.borrow_mut().get_mut(&no) {
                member.current = member.disk.is_some();
            }
            self.store.labels.outdated.set(true);
            self.store.write_labels().await?;
        }
        for (segment, _) in self.slots_on(no, false) {
            self.prove_segment(segment).await?;
        }
        self.store.world.emit(Event::Job {
            name: format!("resync of {}", DiskNo(no)),
            done: crate::units::ByteCount(1),
            total: crate::units::ByteCount(1),
        });
        Ok(())
    }

    fn slots_on(&self, no: u16, metadata: bool) -> Vec<(u32, SlabAt)> {
        let map = self.store.map.borrow();
        let segments = map.segments.values().filter(|found| (found.record.owner == OWNER_METADATA) == metadata);
        segments
            .flat_map(|found| {
                found.record.slabs.iter().flatten().filter(|at| at.disk == no).map(|at| (found.record.id, *at))
            })
            .collect()
    }

    /// Reads every stripe in use of a segment, and rewrites what is bad.
    async fn prove_segment(&self, segment: u32) -> Result<()> {
        let mut next = 0;
        loop {
            let place = {
                let mut map = self.store.map.borrow_mut();
                let Some(found) = map.segments.get(&segment) else { return Ok(()) };
                let run = found.free.runs(next as usize..found.free.len(), false).into_iter().next();
                let Some(run) = run else { return Ok(()) };
                let place = Place { segment, index: run.start as u32 };
                map.pin(place);
                place
            };
            next = place.index + 1;
            let proven = match Target::new(&self.store, place) {
                Some(target) => self.store.prove_stripe(&target, true).await.map(|_| ()),
                None => Ok(()),
            };
            let records = self.store.map.borrow_mut().unpin(place);
            self.store.append_all(records);
            proven?;
        }
    }
}
