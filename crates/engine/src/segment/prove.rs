//! What a pool says of itself is proven before anything is made of it: whoever can write a disk can write records, and
//! a number that contradicts another must end the opening, not the engine.
//!
//! Invariants
//! 1. After [`Map::recount`] every number refers to something that exists, no number is given to two things, and the
//!    next to be given out is free.
//! 2. The pages of a chunk are proven to be its own before they are read.

use super::Map;
use crate::error::Result;
use crate::fail;
use crate::format::is_name;
use crate::format::page::CHUNK_PAGES;
use crate::format::page::PAGE_SUMS;
use crate::format::record::{JobKind, OWNER_METADATA};
use crate::limits::{DISKS_MAX, VDISK_SIZE_MAX};
use crate::units::{BLOCK, DiskNo};
use alloc::collections::BTreeSet;

/// Numbers that are still to be given out, at least: a pool that has fewer has reached them by no counting.
const NUMBERS_LEFT: u32 = 1 << 24;
/// The most slabs of all disks: a thousand million, each a MiB at least.
const SLABS_MAX: u64 = 1 << 30;
/// Chunks that a log may make beside those that the metadata segments of the moment have room for.
const CHUNKS_BESIDE: u64 = 64;

impl Map {
    /// What is numbered next has a number of its own.
    pub(super) fn prove_numbers(&mut self) -> Result<()> {
        let next = &mut self.notes.next;
        next.next_segment =
            next.next_segment.max(self.segments.keys().next_back().map(|last| last.next()).unwrap_or_default());
        next.next_table =
            next.next_table.max(self.tables.keys().next_back().map(|last| last.next()).unwrap_or_default());
        next.next_vdisk =
            next.next_vdisk.max(self.vdisks.keys().next_back().map(|last| last.next()).unwrap_or_default());
        next.next_job =
            next.next_job.max(self.notes.jobs.keys().next_back().map(|last| last.next()).unwrap_or_default());
        if next.next_disk.0 as usize > DISKS_MAX {
            next.next_disk = DiskNo(0);
        }
        let numbers = [next.next_segment.0, next.next_table.0, next.next_vdisk.0, next.next_job.0];
        if numbers.iter().any(|next| *next > u32::MAX - NUMBERS_LEFT) {
            return fail!(Corrupt, "the numbers of the pool are at their end: {next:?}");
        }
        let beyond = |no: &DiskNo, slabs: u32| self.slabs_max.get(no).is_some_and(|max| slabs > *max);
        if let Some(no) = self.disks.iter().find_map(|(no, disk)| beyond(no, disk.record.slabs).then_some(no)) {
            return fail!(Corrupt, "disk {no} is smaller than the record of it says");
        }
        if self.disks.values().map(|disk| disk.record.slabs as u64).sum::<u64>() > SLABS_MAX {
            return fail!(Corrupt, "the disks of the pool have more slabs than can be");
        }
        let disk = |no: DiskNo| (no.0 as usize) < DISKS_MAX;
        for job in self.notes.jobs.values() {
            if let JobKind::Evacuate { disk: no, to, .. } = job.kind
                && !(disk(no) && to.is_none_or(disk))
            {
                return fail!(Corrupt, "job {} is about disk {no}, which cannot be", job.id);
            }
        }
        Ok(())
    }

    /// What people call things is fit to be shown to them, and means one thing.
    pub(super) fn prove_names(&self) -> Result<()> {
        let disks = self.disks.values().map(|disk| &disk.record.name);
        let domains = self.disks.values().map(|disk| &disk.record.domain).filter(|domain| !domain.is_empty());
        if let Some(name) = disks.clone().chain(domains).find(|name| !is_name(name)) {
            return fail!(Corrupt, "{name:?} is no name of a disk");
        }
        let vdisks = self.vdisks.values().map(|vdisk| &vdisk.name);
        if let Some(name) = vdisks.clone().find(|name| !is_name(name)) {
            return fail!(Corrupt, "{name:?} is no name of a virtual disk");
        }
        if disks.collect::<BTreeSet<_>>().len() < self.disks.len() {
            return fail!(Corrupt, "two disks of the pool have one name");
        }
        if vdisks.collect::<BTreeSet<_>>().len() < self.vdisks.len() {
            return fail!(Corrupt, "two virtual disks of the pool have one name");
        }
        Ok(())
    }

    /// What refers to something refers to something that exists and fits.
    pub(super) fn prove_references(&self) -> Result<()> {
        let mut owned = BTreeSet::new();
        for vdisk in self.vdisks.values() {
            let tables = vdisk.tables.iter().all(|table| self.tables.contains_key(table) && owned.insert(*table));
            let size = vdisk.size.0 > 0 && vdisk.size <= VDISK_SIZE_MAX && vdisk.size.is_multiple_of(BLOCK);
            if !tables || vdisk.tables.is_empty() || !size || ![512, 4096].contains(&vdisk.sector) {
                return fail!(Corrupt, "the record of virtual disk {} contradicts itself", vdisk.name);
            }
            if vdisk.tier.as_ref().is_some_and(|tier| tier.layout.segment_stripes(self.slab) == 0) {
                return fail!(Corrupt, "a stripe of the fast tier of virtual disk {} does not fit a slab", vdisk.name);
            }
            if vdisk.cache.is_some_and(|cache| cache.layout.segment_stripes(self.slab) == 0) {
                return fail!(Corrupt, "a stripe of the cache of virtual disk {} does not fit a slab", vdisk.name);
            }
        }
        let mut tiers = BTreeSet::new();
        for table in self.tables.values() {
            if table.record.layout.segment_stripes(self.slab) == 0 {
                return fail!(Corrupt, "a stripe of table {} does not fit a slab", table.record.id);
            }
            let Some(of) = table.record.tier else { continue };
            let below =
                self.tables.get(&of).filter(|below| below.record.tier.is_none() && below.record.packs.is_none());
            let fits = below.is_some_and(|below| below.record.layout.data_len() == table.record.layout.data_len());
            if !fits || !tiers.insert(of) || owned.contains(&table.record.id) || !table.chunks.is_empty() {
                return fail!(Corrupt, "table {} is no fast tier of table {of}", table.record.id);
            }
        }
        for segment in self.segments.values() {
            let slots = segment.record.slabs.len() as u32;
            if segment.record.missed.checked_shr(slots).is_some_and(|beyond| beyond != 0) {
                return fail!(Corrupt, "segment {} lacks slots that it does not have", segment.record.id);
            }
        }
        for segment in self.segments.values().filter(|segment| segment.record.owner != OWNER_METADATA) {
            let Some(table) = self.tables.get(&segment.record.owner) else {
                return fail!(Corrupt, "segment {} belongs to a table that does not exist", segment.record.id);
            };
            let sums = segment.record.sums_range(0, self.indexes(&segment.record)).end;
            let sheet = segment.record.sheet.count as u64 >= sums.div_ceil(PAGE_SUMS as u64);
            if table.record.layout != segment.record.layout || !sheet {
                return fail!(Corrupt, "segment {} does not fit its table", segment.record.id);
            }
        }
        let mut chunks = self.tables.values().flat_map(|table| table.chunks.values());
        if chunks.any(|chunk| chunk.pages.count != CHUNK_PAGES) {
            return fail!(Corrupt, "a chunk of a stripe table has not {CHUNK_PAGES} pages");
        }
        Ok(())
    }

    /// Proves the chunks of a checkpoint, all of whose records were applied (invariant 2).
    pub fn prove_chunks(&mut self) -> Result<()> {
        self.prove_references()?;
        self.take_pages()
    }

    /// Proves that the metadata segments of the moment may have room for the chunks, one of which the log has made.
    pub fn prove_chunk_room(&self) -> Result<()> {
        let metadata = self.metadata_segments();
        let pages: u64 = metadata.map(|segment| segment.free.len() as u64).sum();
        let chunks: u64 = self.tables.values().map(|table| table.chunks.len() as u64).sum();
        if chunks > 2 * (pages / CHUNK_PAGES as u64) + CHUNKS_BESIDE {
            return fail!(Corrupt, "the log has {chunks} chunks of stripe tables, more than the metadata has room for");
        }
        Ok(())
    }
}
