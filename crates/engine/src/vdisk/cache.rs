//! The write-back cache: packed stripes that lie on disks of their own choice, solid-state ones as a rule, with a
//! layout of their own. Small writes rest there until the mover (`down.rs`) brings them to the table below; whole
//! stripes, and so streams, go around it.
//!
//! Invariants
//! 1. What lies in a cache has at least the redundancy of the table below, unless its owner said that it may have less
//!    ([`crate::pool::cache::CacheAsk::may_lose`]). A cache that lacks some of what it is to have takes nothing, and
//!    empties itself, until it is whole again.
//! 2. Another size holds at once. Where a cache is to lie elsewhere, or to be no more, nothing goes there from then on,
//!    and the mover empties it.

use super::Vdisk;
use crate::disk_set::DiskSet;
use crate::format::record::CacheRecord;
use crate::geometry::Layout;
use crate::mutant::{self, Mutant};
use crate::segment::fine::UNIT;
use crate::units::{DiskNo, SegmentNo};
use alloc::vec::Vec;

impl Vdisk {
    /// Its write-back cache, if it has one.
    pub fn cache(&self) -> Option<CacheRecord> {
        self.store.map.borrow().vdisks.get(&self.id).and_then(|vdisk| vdisk.cache)
    }

    /// Whether a segment is one of its packed stripes.
    pub(crate) fn has_packed_in(&self, segment: SegmentNo) -> bool {
        let map = self.store.map.borrow();
        map.segments_of_packs(self.table_of(&map)).any(|record| record.id == segment)
    }

    /// Segments that its cache has.
    pub(crate) fn segments_of_cache(&self) -> u64 {
        let map = self.store.map.borrow();
        map.segments_of_packs(self.table_of(&map)).count() as u64
    }

    /// The layout of its packed stripes: of those that are there, or of those to come.
    pub(crate) fn packs_layout(&self) -> Layout {
        let map = self.store.map.borrow();
        let table = self.table_of(&map);
        let packs = map.fine(table).and_then(|fine| map.tables.get(&fine.packs));
        packs.map_or_else(|| map.packs_wanted(table).0, |packs| packs.record.layout)
    }

    /// The disks that its cache lies on.
    pub(super) fn disks_of_cache(&self) -> Vec<DiskNo> {
        let disks = self.cache().map_or(DiskSet::EMPTY, |cache| cache.disks);
        disks.iter().collect()
    }

    /// The most bytes of a partial stripe that are packed: to read less than what there is, and merge it, is better
    /// than to write it twice, but not than to write it to a cache.
    pub(super) fn packs_at_most(&self) -> usize {
        match self.cache() {
            Some(_) => self.packs_layout().data_len().as_usize(),
            None => self.layout().data_len().as_usize() / 2,
        }
    }

    /// Units that a packed stripe has room for.
    pub(super) fn packs_places(&self) -> u64 {
        self.packs_layout().data_len().0 / UNIT
    }

    /// Whether its packed stripes are of another layout, or lie elsewhere, than they are to.
    pub(crate) fn is_recast(&self) -> bool {
        if self.removed.get() {
            return false;
        }
        let map = self.store.map.borrow();
        !map.packs_fit(self.table_of(&map))
    }

    /// Whether what lies packed is to leave, whoever else wants the disks: it is not what it is to be, or the cache
    /// lacks redundancy, or disks.
    pub(crate) fn drains(&self) -> bool {
        if self.removed.get() || self.is_recast() {
            return !self.removed.get();
        }
        let map = self.store.map.borrow();
        let table = self.table_of(&map);
        let Some(cache) = map.vdisks[&self.id].cache else { return false };
        let few = map.disks_for(cache.disks).count() < cache.layout.slots();
        let lacks = few || map.segments_of_packs(table).any(|segment| map.unsound(segment) > 0);
        lacks && !mutant::active(Mutant::CacheThinTaken)
    }
}
