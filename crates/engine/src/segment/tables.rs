//! The stripe tables of the map: which of their pages are in memory, and what those say is proven.
//!
//! Invariants
//! 1. What a page says that was loaded is within the segments of its table; one that says anything else is an error
//!    for its stripes, and not in memory. What it maps counts as in use from then on; where it did not, a check tells.

use super::Map;
use super::space::Contradiction;
use crate::error::Result;
use crate::fail;
use crate::format::page::CHUNK_PAGES;
use crate::format::record::{ChunkRecord, PageRun};
use crate::limits::CHUNKS_MAX;
use crate::stripe::table::{Chunk, Place, Table};
use crate::units::TableNo;
use alloc::vec::Vec;
use core::ops::Range;

impl Map {
    /// Applies the record of a chunk. The pages of one that a checkpoint has lie on the disks; one that the log makes
    /// maps nothing yet.
    pub(super) fn apply_chunk(&mut self, record: ChunkRecord) -> Result<()> {
        if record.chunk >= CHUNKS_MAX {
            return fail!(Corrupt, "chunk {} of table {} is beyond all stripes", record.chunk, record.table);
        }
        let is_new = self.is_loaded();
        let Some(table) = self.tables.get_mut(&record.table) else { return Ok(()) };
        table.chunks.entry(record.chunk).or_insert_with(|| {
            let pages = record.pages;
            let mut chunk = if is_new { Chunk::new(pages) } else { Chunk::on_disks(pages) };
            chunk.versions = record.versions.map(u64::from);
            chunk
        });
        Ok(())
    }

    /// Those of these pages of a table that are not in memory, `max` at most. The others are asked for now.
    pub fn absent_pages(&mut self, table: TableNo, pages: Range<u32>, max: usize) -> Vec<u32> {
        self.asked += 1;
        let now = self.asked;
        self.tables.get_mut(&table).map_or(Vec::new(), |table| table.absent_in(pages, max, now))
    }

    /// Where a page of a table lies that is not in memory, and the version of its last image.
    pub fn absent_page(&self, table: TableNo, page: u32) -> Option<(PageRun, u64)> {
        let chunk = self.tables.get(&table)?.chunks.get(&(page / CHUNK_PAGES))?;
        let within = page % CHUNK_PAGES;
        (!chunk.is_there(within)).then(|| (chunk.pages, chunk.versions[within as usize]))
    }

    /// Pages of all tables that take memory, and how many of them are dirty.
    pub fn table_pages(&self) -> (u64, u64) {
        let all = self.tables.values().map(Table::in_memory);
        all.fold((0, 0), |(loaded, dirty), (more, soiled)| (loaded + more, dirty + soiled))
    }

    /// Proves what a page says that was just loaded (invariant 1).
    pub fn prove_page(&mut self, table: TableNo, page: u32) -> Result<()> {
        let Some(found) = self.tables.get(&table) else { return Ok(()) };
        let places: Vec<(u64, Place)> = found.mapped_in(Table::stripes_of(page)).collect();
        for (stripe, place) in places {
            if self.is_ours(table, place) {
                continue;
            }
            // Nobody has it: what counts as in use lacks it.
            if self.is_unseen(table, place) && self.segments[&place.segment].free.contains(place.index as usize) {
                self.mend_space(Contradiction::Unseen(place));
                self.unseen.insert(place);
                continue;
            }
            self.tables.get_mut(&table).expect("looked up before").unload_page(page);
            return fail!(Corrupt, "stripe {stripe} of table {table} is at {place:?}, which is not its own");
        }
        Ok(())
    }

    /// Proves what the pages say that an opening has loaded.
    pub(super) fn prove_loaded(&mut self) -> Result<()> {
        let mut unseen = Vec::new();
        for table in self.tables.values() {
            let id = table.record.id;
            for (stripe, place) in table.mapped_from(0).filter(|(_, place)| !self.is_ours(id, *place)) {
                if !self.is_unseen(id, place) {
                    return fail!(Corrupt, "stripe {stripe} of table {id} is at {place:?}, which is not its own");
                }
                unseen.push(place);
            }
        }
        for place in unseen {
            self.note_use(place, true);
            self.unseen.insert(place);
        }
        Ok(())
    }

    /// Whether a place is in a segment of this table, and counts as in use.
    fn is_ours(&self, table: TableNo, place: Place) -> bool {
        let segment = self.segments.get(&place.segment).filter(|segment| self.holder(segment.record.owner) == table);
        let index = place.index as usize;
        segment.is_some_and(|segment| index < segment.mapped.len() && segment.mapped.contains(index))
    }

    /// Whether a place is in a segment of this table, and does not count as in use.
    fn is_unseen(&self, table: TableNo, place: Place) -> bool {
        let segment = self.segments.get(&place.segment).filter(|segment| self.holder(segment.record.owner) == table);
        let index = place.index as usize;
        segment.is_some_and(|segment| index < segment.mapped.len() && !segment.mapped.contains(index))
    }
}
