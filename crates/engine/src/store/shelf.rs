//! Read caches: what is read from them, and how they are filled. The index is in `segment/shelf.rs`.
//!
//! Invariants
//! 1. Nothing leaves a read cache that did not match the checksums of its stripe, the very ones that a read of the
//!    disks is proven with. What does not is dropped, and the disks are read as if it had not been there: so a crash,
//!    a torn write or a disk that was put back from a copy can cost hits, and nothing else.
//! 2. A read waits for a disk of the cache no longer than the read timeout, and for none that is stalled already.
//! 3. What is written here nobody waits for, and nothing depends on: no commit flushes a disk for its sake, a frozen
//!    pool does without, and what comes while the disks are busy is not kept.
//! 4. A check, a scrub or a repair reads the disks: only clients' reads look here.

use super::execute::Target;
use super::together::Part;
use super::{Store, join};
use crate::checksum::block_checksums;
use crate::disk_set::DiskSet;
use crate::exec::LocalBoxFuture;
use crate::format::record::{Media, SlabAt};
use crate::format::zone::{self, Listed, ZONE_ENTRIES, ZoneName};
use crate::io::{Buf, DiskError, IoSlice};
use crate::mutant::{self, Mutant};
use crate::segment::Map;
use crate::segment::shelf::{ENTRY_MEMORY, Fill, Hit, PIECE_MAX, ShelfCounters, ZoneNo};
use crate::stripe::plan::{SlotRead, Want};
use crate::stripe::table::Place;
use crate::units::{BLOCK, ByteCount, Nanos, VdiskNo};
use alloc::boxed::Box;
use alloc::rc::Rc;
use alloc::vec;
use alloc::vec::Vec;
use core::ops::Range;

/// The most bytes that are written with one call.
const LONG: usize = 1 << 20;
/// How long what is less than that waits for more.
const GATHERS: Nanos = Nanos::millis(50);
/// Requests that read more are not worth it: what a seek costs hardly shows.
pub const READ_MAX: usize = 256 << 10;
/// Reads of indexes, or of what is written again, that are under way at once.
const AT_ONCE: usize = 16;

/// What there is to say of a read cache.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ShelfInfo {
    /// The size that was asked for.
    pub size: ByteCount,
    /// Bytes of its slabs.
    pub capacity: ByteCount,
    /// The disks that it may lie on.
    pub disks: DiskSet,
    /// Bytes that lie in it.
    pub held: ByteCount,
    /// Bytes of memory of its index.
    pub memory: u64,
    /// See [`ShelfCounters`].
    pub counters: ShelfCounters,
}

/// Fills the read caches of a pool until it stops or fails.
async fn keeper(store: Rc<Store>) {
    let vdisks: Vec<VdiskNo> = store.map.borrow().read_caches.keys().copied().collect();
    for vdisk in vdisks {
        store.load_shelf(vdisk).await;
    }
    loop {
        let filled = store.signals.fills.changed();
        if store.is_done_filling() {
            return;
        }
        let waits: Vec<(VdiskNo, u64)> = {
            let map = store.map.borrow();
            let waits = map.read_caches.iter().map(|(vdisk, cache)| (*vdisk, cache.shelf.waits()));
            waits.filter(|(_, bytes)| *bytes > 0).collect()
        };
        if waits.is_empty() {
            filled.await;
            continue;
        }
        if waits.iter().all(|(_, bytes)| *bytes < LONG as u64) {
            store.world.sleep(GATHERS).await;
        }
        for (vdisk, _) in waits {
            store.fill_shelf(vdisk).await;
        }
    }
}

impl Store {
    /// Has somebody fill the read caches, where there are any.
    pub fn start_shelves(self: &Rc<Store>) {
        let any = !self.map.borrow().read_caches.is_empty();
        if any && self.writing.get() && !self.traffic.fills.replace(true) {
            self.world.spawn("read cache keeper", Box::pin(keeper(self.clone())));
        }
    }

    fn is_done_filling(&self) -> bool {
        self.stopping.get() || self.log.failure().is_some()
    }

    /// What there is to say of the read cache of a virtual disk, if it has one.
    pub fn shelf_info(&self, vdisk: VdiskNo) -> Option<ShelfInfo> {
        let map = self.map.borrow();
        let cache = map.read_caches.get(&vdisk)?;
        let (record, shelf) = (&cache.record, &cache.shelf);
        Some(ShelfInfo {
            size: record.size,
            capacity: self.slab * record.slab_count(),
            disks: record.disks,
            held: shelf.held(),
            memory: shelf.memory(),
            counters: shelf.counters,
        })
    }

    /// Bytes that the indexes of read caches take, and what waits to be written there: now, the most so far, and the
    /// most that they may.
    pub(super) fn shelves_memory(&self) -> (u64, u64, u64) {
        let map = self.map.borrow();
        let all = map.read_caches.values().map(|cache| &cache.shelf);
        all.fold((0, 0, 0), |(used, peak, limit), shelf| {
            (used + shelf.memory(), peak + shelf.peak, limit + shelf.memory_max())
        })
    }

    /// Where all that is wanted of a stripe lies in the read cache of `vdisk`, on disks that answer; none: it does not.
    pub fn find_kept(&self, vdisk: VdiskNo, target: &Target, wants: &[Want]) -> Option<Vec<Vec<Hit>>> {
        let map = self.map.borrow();
        let shelf = &map.read_caches.get(&vdisk)?.shelf;
        let find = |want: &Want| shelf.find(target.place, want.column, &want.blocks);
        let found: Vec<Vec<Hit>> = wants.iter().map(find).collect::<Option<_>>()?;
        let answers = |hit: &Hit| hit.slab[0].is_some_and(|at| self.answers(at));
        found.iter().flatten().all(answers).then_some(found)
    }

    fn answers(&self, at: SlabAt) -> bool {
        self.has_disk(at.disk) && (!self.is_stalled(at.disk) || mutant::active(Mutant::ShelfWaits))
    }

    /// Reads from a read cache what [`Store::find_kept`] found; none: it is not there, or not what it should be.
    pub fn read_kept<'a>(
        &'a self,
        vdisk: VdiskNo,
        part: &'a Part,
        found: &'a [Vec<Hit>],
    ) -> LocalBoxFuture<'a, Option<Vec<IoSlice>>> {
        Box::pin(async move {
            let Part { target, wants } = part;
            let sums = self.sums_of(target).await.ok()?;
            let read = join(found.iter().map(|hits| self.read_hits(hits))).await;
            let mut slices = Vec::with_capacity(read.len());
            for ((want, slice), hits) in wants.iter().zip(read).zip(found) {
                match slice {
                    Ok(slice) if is_proven(target, want, &slice, &sums) => slices.push(slice),
                    // It may come in time the next time.
                    Err(None | Some(DiskError::Gone)) => return None,
                    Ok(_) | Err(Some(_)) => {
                        self.drop_kept(vdisk, target.place, want, hits);
                        return None;
                    }
                }
            }
            let mut map = self.map.borrow_mut();
            let shelf = map.read_caches.get_mut(&vdisk).map(|cache| &mut cache.shelf);
            shelf.into_iter().for_each(|shelf| {
                wants.iter().for_each(|want| shelf.want(target.place, want.column, &want.blocks));
            });
            Some(slices)
        })
    }

    /// Forgets what was not what it should be, unless something else has taken its room since it was found.
    fn drop_kept(&self, vdisk: VdiskNo, place: Place, want: &Want, hits: &[Hit]) {
        let mut map = self.map.borrow_mut();
        let Some(shelf) = map.read_caches.get_mut(&vdisk).map(|cache| &mut cache.shelf) else { return };
        let now = shelf.find(place, want.column, &want.blocks);
        let lies = |hit: &Hit| (hit.slab[0], hit.block);
        if now.is_some_and(|now| now.iter().map(lies).eq(hits.iter().map(lies))) {
            shelf.counters.unproven += 1;
            shelf.forget_blocks(place, want.column, &want.blocks);
        }
    }

    /// The blocks of these places, one after the other. `Err(None)`: their disk takes too long.
    async fn read_hits(&self, hits: &[Hit]) -> Result<IoSlice, Option<DiskError>> {
        let mut parts = join(hits.iter().map(|hit| self.read_hit(hit))).await;
        if parts.len() == 1 {
            return parts.pop().expect("there is one");
        }
        let mut whole = Buf::zeroed(hits.iter().map(|hit| hit.count).sum::<usize>() * BLOCK as usize);
        let mut at = 0;
        for part in parts {
            let part = part?;
            whole[at..at + part.len()].copy_from_slice(&part);
            at += part.len();
        }
        Ok(whole.freeze())
    }

    async fn read_hit(&self, hit: &Hit) -> Result<IoSlice, Option<DiskError>> {
        let at = hit.slab[0].ok_or(DiskError::Gone)?;
        let (offset, len) = (self.slab_offset(at, hit.block), hit.count * BLOCK as usize);
        let read = match mutant::active(Mutant::ShelfWaits) {
            true => self.disk_read(at.disk, offset, len).await.map(Some),
            false => self.disk_read_in_time(at.disk, offset, len).await,
        };
        if let Err(DiskError::Media | DiskError::Os(_)) = read {
            self.bad_block(at.disk, offset, false);
        }
        read?.map(Buf::freeze).ok_or(None)
    }

    /// Takes note that a client sought out `address` of a virtual disk, and did not find it in the read cache. Whether
    /// what is read there is worth keeping: not the first time, and not where it lies on solid-state disks.
    pub fn is_worth_keeping(&self, vdisk: VdiskNo, part: &Part, address: u64) -> bool {
        let bytes: usize = part.wants.iter().map(|want| want.blocks.len() * BLOCK as usize).sum();
        let mut map = self.map.borrow_mut();
        let seeks = |at: &SlabAt| map.disks.get(&at.disk).is_some_and(|disk| disk.record.media != Media::Ssd);
        if !part.target.slabs.iter().flatten().any(seeks) {
            return false;
        }
        let shelf = map.read_caches.get_mut(&vdisk).map(|cache| &mut cache.shelf);
        shelf.is_some_and(|shelf| shelf.missed(address) && shelf.may_wait(bytes as u64))
    }

    /// Has what was read of a stripe, and proven, written to the read cache of a virtual disk, later.
    pub fn keep(&self, vdisk: VdiskNo, part: &Part, slices: &[IoSlice]) {
        let mut map = self.map.borrow_mut();
        let Some(shelf) = map.read_caches.get_mut(&vdisk).map(|cache| &mut cache.shelf) else { return };
        for (want, slice) in part.wants.iter().zip(slices) {
            for (nth, bytes) in slice.chunks(PIECE_MAX * BLOCK as usize).enumerate() {
                let block = want.blocks.start + nth * PIECE_MAX;
                let (place, column) = (part.target.place, want.column);
                shelf.wait(Fill { place, column, block, bytes: Buf::copy_of(bytes) });
            }
        }
        self.signals.fills.notify();
    }

    /// Writes what waits to the read cache of a virtual disk.
    pub async fn fill_shelf(&self, vdisk: VdiskNo) {
        let _turn = self.traffic.filling.take().await;
        loop {
            if self.frozen().is_some() || self.is_done_filling() {
                return self.pass_by(vdisk);
            }
            let is_open = self.map.borrow().read_caches.get(&vdisk).is_some_and(|cache| cache.shelf.is_open());
            if !is_open && !self.begin_zone(vdisk).await {
                return self.pass_by(vdisk);
            }
            let taken = self.map.borrow_mut().read_caches.get_mut(&vdisk).and_then(|cache| cache.shelf.take(LONG));
            let Some((spot, fills)) = taken else { return };
            let Some(at) = spot.slab[0] else { return };
            let bytes = fills.iter().map(|fill| fill.bytes.clone().freeze()).collect();
            if self.disk_write_aside(at.disk, self.slab_offset(at, spot.block), bytes).await.is_err() {
                return self.pass_by(vdisk);
            }
            if let Some(cache) = self.map.borrow_mut().read_caches.get_mut(&vdisk) {
                cache.shelf.written(&spot, &fills);
                cache.shelf.trim();
            }
            self.save_index(vdisk, false).await;
        }
    }

    fn pass_by(&self, vdisk: VdiskNo) {
        if let Some(cache) = self.map.borrow_mut().read_caches.get_mut(&vdisk) {
            cache.shelf.forget_waiting();
        }
    }

    /// Begins the next zone; what was asked for of those that lie there waits to be written again. `false`: there is
    /// none.
    async fn begin_zone(&self, vdisk: VdiskNo) -> bool {
        let again = {
            let mut map = self.map.borrow_mut();
            let Some(shelf) = map.read_caches.get_mut(&vdisk).map(|cache| &mut cache.shelf) else { return false };
            let Some(zone) = shelf.next_zone(|at| self.answers(at)) else { return false };
            shelf.begin_zone(zone)
        };
        for group in again.chunks(AT_ONCE) {
            let read = join(group.iter().map(|(hit, ..)| self.read_hit(hit))).await;
            let mut map = self.map.borrow_mut();
            for ((_, place, column, block), slice) in group.iter().zip(read) {
                let lies = map.segments.get(&place.segment).is_some_and(|found| found.has_stripe(place.index));
                let shelf = map.read_caches.get_mut(&vdisk).map(|cache| &mut cache.shelf);
                let (Ok(slice), Some(shelf), true) = (slice, shelf, lies) else { continue };
                let bytes = slice.into_buf().expect("nobody else has it");
                shelf.wait_again(Fill { place: *place, column: *column, block: *block, bytes });
            }
        }
        true
    }

    /// Writes the index of the zone that is being filled, where it is worth it; `all`: where anything was written.
    async fn save_index(&self, vdisk: VdiskNo, all: bool) {
        let saving = {
            let map = self.map.borrow();
            let Some(cache) = map.read_caches.get(&vdisk) else { return };
            cache.shelf.saving(all).map(|(zone, saving)| (zone, saving, cache.record.born))
        };
        let Some((no, saving, born)) = saving else { return };
        let Some(slab) = saving.slab[0] else { return };
        let name = ZoneName { pool: self.id, vdisk, born, slab, first: saving.first };
        let blocks = saving.pieces.chunks(ZONE_ENTRIES).enumerate();
        let blocks = blocks.map(|(nth, pieces)| {
            let number = saving.from + nth;
            zone::encode(&name, saving.serial, number as u16, pieces).freeze()
        });
        let at = self.slab_offset(slab, u64::from(saving.first) + saving.from as u64);
        let written = self.disk_write_aside(slab.disk, at, blocks.collect()).await;
        if let (Ok(()), Some(cache)) = (written, self.map.borrow_mut().read_caches.get_mut(&vdisk)) {
            cache.shelf.saved(no, &saving);
        }
    }

    /// Writes what waits, and the indexes, so that an opening finds all of it.
    pub async fn save_shelves(&self) {
        let vdisks: Vec<VdiskNo> = self.map.borrow().read_caches.keys().copied().collect();
        for vdisk in vdisks {
            self.fill_shelf(vdisk).await;
            let _turn = self.traffic.filling.take().await;
            if self.frozen().is_none() && !self.is_done_filling() {
                self.save_index(vdisk, true).await;
            }
        }
    }

    /// Finds what the disks have of a read cache, the newest as far as there is memory for it.
    async fn load_shelf(&self, vdisk: VdiskNo) {
        let _turn = self.traffic.filling.take().await;
        let (unread, born) = match self.map.borrow().read_caches.get(&vdisk) {
            Some(cache) => (cache.shelf.unread(), cache.record.born),
            None => return,
        };
        let mut heads = Vec::new();
        for group in unread.chunks(AT_ONCE) {
            let read =
                join(group.iter().map(|(_, slab, first, _)| self.read_index(vdisk, born, slab, *first, 0..1))).await;
            let found = group.iter().zip(read).filter_map(|(zone, mut read)| Some((zone, read.pop()?)));
            heads.extend(found);
            if self.is_done_filling() {
                return;
            }
        }
        heads.sort_by_key(|(_, (serial, _))| core::cmp::Reverse(*serial));
        let (mut whole, mut left): (Vec<(ZoneNo, u64, Vec<Listed>)>, _) = (Vec::new(), self.tuning.shelf_memory);
        for ((no, slab, first, blocks), (serial, mut pieces)) in heads {
            if pieces.len() == ZONE_ENTRIES && *blocks > 1 {
                let more = self.read_index(vdisk, born, slab, *first, 1..*blocks as u16).await;
                pieces.extend(more.into_iter().take_while(|(other, _)| *other == serial).flat_map(|(_, more)| more));
            }
            let takes = pieces.len() as u64 * ENTRY_MEMORY;
            if takes > left || self.is_done_filling() {
                break;
            }
            left -= takes;
            whole.push((*no, serial, pieces));
        }
        // The newest last: what it says holds.
        let mut map = self.map.borrow_mut();
        for (no, serial, pieces) in whole.into_iter().rev() {
            let Map { segments, read_caches, .. } = &mut *map;
            let there =
                |listed: &Listed| segments.get(&listed.segment).is_some_and(|found| found.has_stripe(listed.index));
            if let Some(cache) = read_caches.get_mut(&vdisk) {
                cache.shelf.load(no, serial, pieces, there);
            }
        }
    }

    /// Blocks of the index of a zone, up to the first that is none.
    async fn read_index(
        &self,
        vdisk: VdiskNo,
        born: u64,
        slab: &Rc<[Option<SlabAt>]>,
        first: u32,
        blocks: Range<u16>,
    ) -> Vec<(u64, Vec<Listed>)> {
        let hit = Hit { slab: slab.clone(), block: u64::from(first) + u64::from(blocks.start), count: blocks.len() };
        let (Ok(bytes), Some(slab)) = (self.read_hit(&hit).await, slab[0]) else { return vec![] };
        let name = ZoneName { pool: self.id, vdisk, born, slab, first };
        let read = bytes.chunks(BLOCK as usize).zip(blocks).map(|(block, number)| zone::decode(block, &name, number));
        read.map_while(|block| block).collect()
    }

    /// What some read cache has of these blocks, believed.
    pub(super) async fn kept_anywhere(&self, target: &Target, read: &SlotRead) -> Option<IoSlice> {
        let wants = [Want { column: read.column, blocks: read.blocks.clone() }];
        let vdisks: Vec<VdiskNo> = self.map.borrow().read_caches.keys().copied().collect();
        let found = vdisks.into_iter().find_map(|vdisk| self.find_kept(vdisk, target, &wants))?;
        self.read_hits(&found[0]).await.ok()
    }
}

/// Whether these are the wanted blocks of a stripe with these checksums.
fn is_proven(target: &Target, want: &Want, bytes: &[u8], sums: &[u32]) -> bool {
    if mutant::active(Mutant::ShelfUnproven) || mutant::active(Mutant::ShelfOutlivesPlace) {
        return true;
    }
    let slot = target.layout.slot(target.place.index, want.column, 0);
    let mut computed = vec![0; want.blocks.len()];
    block_checksums(target.address(slot, want.blocks.start), bytes, &mut computed);
    want.blocks.clone().zip(computed).all(|(block, sum)| sums[target.sum_of(slot, block)] == sum)
}
