//! The tables that packed stripes lie in: their layout, and where they may lie.
//!
//! Invariants
//! 1. A table has one table of packed stripes at most. Where they are to be of another layout, or elsewhere, it is
//!    dropped, once it holds nothing, before there is another.

use super::Map;
use super::fine::{Fine, UNIT};
use crate::disk_set::DiskSet;
use crate::format::record::{CHUNK_LEN, Record, SegmentRecord, TABLE_LEN, TableRecord};
use crate::geometry::Layout;
use crate::mutant::{self, Mutant};
use crate::stripe::table::Table;
use crate::units::TableNo;
use alloc::vec::Vec;

impl Map {
    /// The table of `table`'s packed stripes, which is made if there is none.
    pub fn packs_of(&mut self, table: TableNo, records: &mut Vec<Record<'static>>) -> TableNo {
        if let Some(fine) = self.fine.get(&table) {
            return fine.packs;
        }
        let id = self.notes.next.take_table();
        let (layout, disks) = self.packs_wanted(table);
        let record = TableRecord { id, packs: Some(table), tier: None, layout, disks };
        self.tables.insert(id, Table::new(record));
        records.extend([Record::Pool(self.notes.next), Record::Table(record)]);
        self.make_fine();
        id
    }

    /// The layout that packed stripes of `table` are to have, and the disks that they may lie on (none: all): those
    /// of its write-back cache, or its own.
    pub fn packs_wanted(&self, table: TableNo) -> (Layout, DiskSet) {
        let cache = self.vdisks.values().find(|vdisk| vdisk.tables.contains(&table)).and_then(|vdisk| vdisk.cache);
        match cache {
            Some(cache) => (cache.layout, cache.disks),
            None => (self.tables[&table].record.layout, self.tables[&table].record.disks),
        }
    }

    /// Whether packed stripes of `table`, if there are any, are what they are to be now.
    pub fn packs_fit(&self, table: TableNo) -> bool {
        let is = self.fine.get(&table).and_then(|fine| self.tables.get(&fine.packs)).map(|packs| packs.record);
        is.is_none_or(|is| (is.layout, is.disks) == self.packs_wanted(table))
    }

    /// Whether the table of `table`'s packed stripes, and a chunk of it, are there or have room.
    pub fn may_have_packs(&self, table: TableNo) -> bool {
        self.fine.contains_key(&table) || self.has_config_room_for_packs(TABLE_LEN as u64 + CHUNK_LEN)
    }

    /// Has a list of fine units for each table that has a table of packed stripes.
    pub fn make_fine(&mut self) {
        for table in self.tables.values() {
            let TableRecord { id, layout, packs, .. } = table.record;
            let Some(below) = packs.and_then(|packs| self.tables.get(&packs)) else { continue };
            let (per_stripe, places) = (below.record.layout.data_len().0 / UNIT, layout.data_len().0 / UNIT);
            self.fine.entry(below.record.id).or_insert_with(|| Fine::new(id, per_stripe, places));
        }
    }

    /// Drops the table of `table`'s packed stripes, if there is nothing of them and nobody reads what was there.
    pub fn drop_packs(&mut self, table: TableNo) -> Vec<Record<'static>> {
        let full = mutant::active(Mutant::CacheDroppedFull) && !self.packs_fit(table);
        let Some(fine) = self.fine.get(&table).filter(|fine| fine.is_blank() || full) else { return Vec::new() };
        let packs = fine.packs;
        let is_done = |found: &Table| {
            let pinned = found.segments.iter().any(|segment| self.is_pinned(*segment));
            found.mapped == 0 && found.claims == 0 && !pinned
        };
        if !self.tables.get(&packs).is_some_and(is_done) && !full {
            return Vec::new();
        }
        self.fine.remove(&table);
        self.drop_table(packs)
    }

    /// Whether any table has packed stripes.
    pub fn has_packs(&self) -> bool {
        self.tables.values().any(|table| table.record.packs.is_some())
    }

    /// Segments of `table`'s packed stripes, where there are any.
    pub fn segments_of_packs(&self, table: TableNo) -> impl Iterator<Item = &SegmentRecord> {
        let packs = self.fine(table).and_then(|fine| self.tables.get(&fine.packs));
        packs.into_iter().flat_map(|packs| packs.segments.iter().map(|id| &self.segments[id].record))
    }
}
