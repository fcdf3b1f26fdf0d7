//! The slabs of read caches. They are in no segment: what lies there is a copy of what lies elsewhere, so nothing has
//! to check, repair or move it, and no virtual disk is the less healthy where it is gone.
//!
//! Invariants
//! 1. A slab of a read cache is neither free, nor in a segment, nor in another read cache.
//! 2. A slab that a cache lets go of drains as those of segments do: it is free once the record that says so is
//!    durable, and whoever reads or writes there has ended.
//! 3. Nothing lacks redundancy for the sake of copies: where a slot finds no home, a read cache lets go of a slab.

use super::Map;
use super::allocate::SLABS_KEPT;
use super::drain::{Former, Known};
use super::shelf::Shelf;
use crate::disk_set::DiskSet;
use crate::error::Result;
use crate::fail;
use crate::format::record::{READ_CACHE_RUNS_MAX, ReadCacheRecord, Record, SlabAt, SlabRun};
use crate::mutant::{self, Mutant};
use crate::stripe::table::Place;
use crate::units::{ByteCount, DiskNo, SegmentNo, VdiskNo};
use alloc::collections::BTreeMap;
use alloc::rc::Rc;
use alloc::vec;
use alloc::vec::Vec;

/// A read cache: what is on record of it, and what lies in it.
pub struct ReadCache {
    /// See [`ReadCacheRecord`].
    pub record: ReadCacheRecord,
    /// See [`Shelf`].
    pub shelf: Shelf,
}

impl ReadCacheRecord {
    /// That there is none.
    pub fn none(vdisk: VdiskNo) -> ReadCacheRecord {
        ReadCacheRecord { vdisk, size: ByteCount::ZERO, disks: DiskSet::EMPTY, born: 0, runs: Vec::new() }
    }

    /// Its slabs.
    pub fn slabs(&self) -> impl Iterator<Item = SlabAt> {
        self.runs.iter().flat_map(|run| (run.first..run.first + run.count).map(|slab| SlabAt { disk: run.disk, slab }))
    }

    /// How many these are.
    pub fn slab_count(&self) -> u64 {
        self.runs.iter().map(|run| u64::from(run.count)).sum()
    }
}

impl Map {
    /// Applies what is on record of a read cache.
    pub(super) fn apply_read_cache(&mut self, record: ReadCacheRecord) -> Result<()> {
        if record.slab_count() > 1 << 30 {
            return fail!(Corrupt, "the read cache of virtual disk {} has more slabs than can be", record.vdisk);
        }
        self.read_caches.remove(&record.vdisk);
        if !record.runs.is_empty() {
            let shelf = Shelf::new(record.size, self.shelf_memory);
            self.read_caches.insert(record.vdisk, ReadCache { record, shelf });
        }
        Ok(())
    }

    /// Takes the slabs of read caches out of what is free, and proves that nothing else has them.
    pub(super) fn take_read_caches(&mut self) -> Result<()> {
        for (vdisk, cache) in &mut self.read_caches {
            if !self.vdisks.contains_key(vdisk) {
                return fail!(Corrupt, "virtual disk {vdisk}, which does not exist, has a read cache");
            }
            for at in cache.record.slabs() {
                let slab = at.slab as usize;
                let room = self.disks.get_mut(&at.disk).map(|disk| &mut disk.free);
                match room.filter(|free| slab < free.len() && free.contains(slab)) {
                    Some(_) if mutant::active(Mutant::ShelfSlabsFree) => {}
                    Some(free) => free.remove(slab..slab + 1),
                    None => {
                        return fail!(Corrupt, "slab {slab} of disk {} is claimed twice or does not exist", at.disk);
                    }
                }
            }
            cache.shelf.set_slabs(cache.record.slabs(), self.slab);
        }
        Ok(())
    }

    /// How many slabs `disks` have for a read cache that has these already: each disk keeps some for others.
    pub fn read_cache_room(&self, disks: DiskSet, have: &[SlabRun]) -> u64 {
        let free = |no: DiskNo| self.free_soon(no).saturating_sub(SLABS_KEPT) as u64;
        let own = |no: DiskNo| have.iter().filter(|run| run.disk == no).map(|run| u64::from(run.count)).sum::<u64>();
        self.disks_for(disks).map(|disk| free(disk.record.no) + own(disk.record.no)).sum()
    }

    /// Gives virtual disk `vdisk` a read cache of `size` on `disks`, or none, where these are none. What lies in
    /// slabs that it keeps stays. Returns the record of it; the slabs that go drain. `born`: a number that no cache of
    /// the pool had.
    pub fn set_read_cache(
        &mut self,
        vdisk: VdiskNo,
        size: ByteCount,
        disks: DiskSet,
        born: u64,
    ) -> Result<Record<'static>> {
        let count = if disks.is_empty() { 0 } else { size.0.div_ceil(self.slab.0) };
        let old = self.read_caches.get(&vdisk).map(|cache| cache.record.clone());
        let old = old.unwrap_or(ReadCacheRecord { born, ..ReadCacheRecord::none(vdisk) });
        let shares = self.read_cache_shares(disks, count, &old.runs);
        let (mut runs, mut taken, mut left) = (Vec::new(), Vec::new(), Vec::new());
        for (no, share) in &shares {
            let own: Vec<SlabRun> = old.runs.iter().filter(|run| run.disk == *no).copied().collect();
            let (kept, gone) = cut(&own, *share);
            let missing = share - kept.iter().map(|run| u64::from(run.count)).sum::<u64>();
            let more = self.free_runs(*no, missing);
            runs.extend(kept.into_iter().chain(more.iter().copied()));
            taken.extend(more);
            left.extend(gone);
        }
        left.extend(old.runs.iter().filter(|run| !shares.contains_key(&run.disk)));
        let got: u64 = runs.iter().map(|run| u64::from(run.count)).sum();
        if got < count || runs.len() > READ_CACHE_RUNS_MAX {
            return fail!(NoSpace, "the disks have not so many free slabs beside each other: {got} of {count}");
        }
        self.check_config_room(runs.len() as u64 * size_of::<SlabRun>() as u64 * 2)?;
        for run in &taken {
            let free = &mut self.disks.get_mut(&run.disk).expect("it was just looked at").free;
            free.remove(run.first as usize..(run.first + run.count) as usize);
        }
        let record = match count {
            0 => ReadCacheRecord::none(vdisk),
            _ => ReadCacheRecord { vdisk, size, disks, born: old.born, runs },
        };
        Ok(self.change_read_cache(record, &left))
    }

    /// Lets the slabs of all read caches on disk `no` go. Returns the records of it.
    pub fn leave_read_caches(&mut self, no: DiskNo) -> Vec<Record<'static>> {
        let on = |record: &ReadCacheRecord| record.runs.iter().any(|run| run.disk == no);
        let caches = self.read_caches.values().map(|cache| &cache.record).filter(|record| on(record));
        let caches: Vec<ReadCacheRecord> = caches.cloned().collect();
        let leave = |mut record: ReadCacheRecord| {
            let left: Vec<SlabRun> = record.runs.extract_if(.., |run| run.disk == no).collect();
            let record = if record.runs.is_empty() { ReadCacheRecord::none(record.vdisk) } else { record };
            self.change_read_cache(record, &left)
        };
        caches.into_iter().map(leave).collect()
    }

    /// A disk on which a slot of `segment` could have a home if a read cache let go of a slab there.
    pub fn home_in_read_cache(&self, segment: SegmentNo) -> Option<DiskNo> {
        self.homes_if_free(segment).find(|no| self.has_read_cache_on(*no))
    }

    /// Has a read cache let go of a slab on disk `no`: what needs a place and has none goes before copies. Returns the
    /// record of it.
    pub fn yield_read_cache(&mut self, no: DiskNo) -> Option<Record<'static>> {
        let on = |run: &SlabRun| run.disk == no;
        let cache = self.read_caches.values().find(|cache| cache.record.runs.iter().any(on))?;
        let mut record = cache.record.clone();
        let run = record.runs.iter_mut().rfind(|run| run.disk == no)?;
        run.count -= 1;
        let left = SlabRun { disk: no, first: run.first + run.count, count: 1 };
        record.runs.retain(|run| run.count > 0);
        let record = if record.runs.is_empty() { ReadCacheRecord::none(record.vdisk) } else { record };
        Some(self.change_read_cache(record, &[left]))
    }

    /// Slabs that read caches have on disk `no`.
    pub fn read_caches_on(&self, no: DiskNo) -> u64 {
        let runs = self.read_caches.values().flat_map(|cache| &cache.record.runs);
        runs.filter(|run| run.disk == no).map(|run| u64::from(run.count)).sum()
    }

    /// Whether a read cache has slabs on disk `no`.
    pub fn has_read_cache_on(&self, no: DiskNo) -> bool {
        self.read_caches_on(no) > 0
    }

    /// Lets the read cache of a virtual disk go, which is no more.
    pub(super) fn drop_read_cache(&mut self, vdisk: VdiskNo) -> Option<Record<'static>> {
        let left = self.read_caches.get(&vdisk)?.record.runs.clone();
        Some(self.change_read_cache(ReadCacheRecord::none(vdisk), &left))
    }

    /// Puts in place what is on record of a read cache from now on, which lets go of `left`.
    fn change_read_cache(&mut self, record: ReadCacheRecord, left: &[SlabRun]) -> Record<'static> {
        let vdisk = record.vdisk;
        let shelf = self.read_caches.remove(&vdisk).map(|cache| cache.shelf);
        let mut shelf = shelf.unwrap_or_else(|| Shelf::new(record.size, self.shelf_memory));
        let left = ReadCacheRecord { runs: left.to_vec(), ..ReadCacheRecord::none(vdisk) };
        let left: Vec<SlabAt> = left.slabs().collect();
        let mut known = Known::new();
        if !mutant::active(Mutant::ShelfSlabsFreedEarly) {
            known.extend(left.iter().filter_map(|at| shelf.known(*at)).map(|slab| Rc::downgrade(&slab)));
        }
        shelf.set_slabs(record.slabs(), self.slab);
        if !left.is_empty() {
            self.drain(Former::ReadCache(vdisk), left, known, vec![]);
        }
        if !record.runs.is_empty() {
            self.read_caches.insert(vdisk, ReadCache { record: record.clone(), shelf });
        }
        Record::ReadCache(record)
    }

    /// How many slabs each of `disks` has of `count`: as equal as can be.
    fn read_cache_shares(&self, disks: DiskSet, count: u64, have: &[SlabRun]) -> BTreeMap<DiskNo, u64> {
        let own = |no: DiskNo| have.iter().filter(|run| run.disk == no).map(|run| u64::from(run.count)).sum::<u64>();
        let (mut shares, mut left) = (BTreeMap::new(), count);
        if disks.is_empty() {
            return shares;
        }
        let room = |free: usize, no: DiskNo| free.saturating_sub(SLABS_KEPT) as u64 + own(no);
        let mut rooms: Vec<(u64, DiskNo)> =
            self.disks_for(disks).map(|disk| (room(disk.free.count(), disk.record.no), disk.record.no)).collect();
        // The smallest first: what it has no room for is shared by those that are left.
        rooms.sort_unstable();
        for (nth, (room, no)) in rooms.iter().enumerate() {
            let share = left.div_ceil((rooms.len() - nth) as u64).min(*room);
            left -= share;
            shares.insert(*no, share);
        }
        shares
    }

    /// Runs of free slabs of disk `no`, `count` slabs at most, the longest first.
    fn free_runs(&self, no: DiskNo, mut count: u64) -> Vec<SlabRun> {
        let free = &self.disks[&no].free;
        let mut runs = free.runs(0..free.len(), true);
        runs.sort_by_key(|run| core::cmp::Reverse(run.len()));
        let mut taken = Vec::new();
        for run in runs {
            let most = (run.len() as u64).min(count);
            if most > 0 {
                taken.push(SlabRun { disk: no, first: run.start as u32, count: most as u32 });
            }
            count -= most;
        }
        taken
    }

    /// Forgets what read caches have of the stripe at a place.
    pub(super) fn forget_kept(&mut self, place: Place) {
        if !mutant::active(Mutant::ShelfOutlivesPlace) {
            self.read_caches.values_mut().for_each(|cache| cache.shelf.forget(place));
        }
    }

    /// Forgets what read caches have of a segment.
    pub(super) fn forget_kept_segment(&mut self, segment: SegmentNo) {
        if !mutant::active(Mutant::ShelfOutlivesPlace) {
            self.read_caches.values_mut().for_each(|cache| cache.shelf.forget_segment(segment));
        }
    }
}

/// The first `count` slabs of these runs, and the others.
fn cut(runs: &[SlabRun], mut count: u64) -> (Vec<SlabRun>, Vec<SlabRun>) {
    let (mut kept, mut gone) = (Vec::new(), Vec::new());
    for run in runs {
        let stays = count.min(run.count.into()) as u32;
        count -= u64::from(stays);
        if stays > 0 {
            kept.push(SlabRun { count: stays, ..*run });
        }
        if stays < run.count {
            gone.push(SlabRun { first: run.first + stays, count: run.count - stays, ..*run });
        }
    }
    (kept, gone)
}
