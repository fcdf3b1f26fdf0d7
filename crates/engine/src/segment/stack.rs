//! Stacks of tables: a virtual disk with older tables below its newest one, which have other layouts.
//!
//! Writing goes to the newest table. Reading looks there, then in the next older one, and so on, until an entry ends
//! the search: a place, or zero. An older table only ever loses entries: its stripes are *hidden*, and then unmapped,
//! once newer tables tell all of their bytes; when it has none left it is dropped.
//!
//! Invariants
//! 1. A stripe of an older table is unmapped only where every byte of it is told by an entry of a newer table that is
//!    settled: one whose record cannot be withdrawn any more. The record of the unmapping follows that one in the log.
//! 2. An older table is dropped only when it maps nothing, has no packed stripes, and all of its segments are given
//!    back.
//! 3. All pages of the tables of a stack are in memory: whoever puts a table on top holds those of the one below, an
//!    opening loads them, and none of them is evicted.
//! 4. What is unmapped in the newest table above something that an older one has becomes zero, in the same record.

use super::Map;
use crate::disk_set::DiskSet;
use crate::error::Result;
use crate::format::record::{Record, TABLE_LEN, TableRecord, UnmapRecord};
use crate::geometry::Layout;
use crate::limits::VDISK_SIZE_MAX;
use crate::mutant::{self, Mutant};
use crate::segment::fine::UNIT;
use crate::stripe::table::{Entry, Table};
use crate::units::{DiskNo, SegmentNo, TableNo, VdiskNo};
use alloc::collections::BTreeSet;
use alloc::vec::Vec;
use core::ops::Range;

/// Bytes of a virtual disk that an older table has, next to each other in that table.
pub struct Below {
    /// The table.
    pub table: TableNo,
    /// The stripe of it.
    pub stripe: u64,
    /// Its bytes on the virtual disk.
    pub range: Range<u64>,
}

impl Map {
    /// Puts a new table on top of the stack of a virtual disk, on the disks that the one below may lie on. Of a fixed
    /// one, the room is reserved from then on for the new table, and no more for the older ones. The caller has asked
    /// whether there is room for the record.
    pub fn push_table(
        &mut self,
        id: VdiskNo,
        layout: Layout,
        segments: u64,
        records: &mut Vec<Record<'static>>,
    ) -> Result<TableNo> {
        self.check_config_room(TABLE_LEN as u64)?;
        let mut vdisk = self.vdisks[&id].clone();
        let disks = self.tables[&vdisk.tables[0]].record.disks;
        let table = self.notes.next.take_table();
        let record = TableRecord { id: table, layout, disks, packs: None, tier: None };
        let mut fresh = Table::new(record);
        fresh.fixed = vdisk.fixed;
        self.tables.insert(table, fresh);
        let mut made = alloc::vec![Record::Pool(self.notes.next), Record::Table(record)];
        for _ in 0..segments {
            if let Err(error) = self.new_segment(table, &mut made) {
                // A metadata segment that was made on the way stays.
                made.extend(self.drop_table(table));
                records.extend(made);
                return Err(error);
            }
        }
        for older in &vdisk.tables {
            self.tables.get_mut(older).expect("a virtual disk has its tables").fixed = false;
        }
        vdisk.tables.insert(0, table);
        self.vdisks.insert(id, vdisk.clone());
        records.extend(made);
        records.push(Record::Vdisk(vdisk));
        Ok(table)
    }

    /// The tables of virtual disks that have several: all of their pages stay in memory.
    pub fn stacked(&self) -> BTreeSet<TableNo> {
        let stacks = self.vdisks.values().filter(|vdisk| vdisk.tables.len() > 1);
        stacks.flat_map(|vdisk| vdisk.tables.iter().copied()).collect()
    }

    /// Whether there are older tables below `table`.
    pub fn is_stacked(&self, table: TableNo) -> bool {
        !self.older(table).is_empty()
    }

    /// The older tables of the stack whose newest one is `table`, the newest of them first.
    pub fn older(&self, table: TableNo) -> &[TableNo] {
        let of = self.vdisks.values().find(|vdisk| vdisk.tables.first() == Some(&table));
        of.map_or(&[], |vdisk| &vdisk.tables[1..])
    }

    /// Whether a stripe of `table` is zeros, whatever older tables have.
    pub fn is_zero(&self, table: TableNo, stripe: u64) -> bool {
        let zero = self.tables[&table].entry(stripe) == Entry::Zero;
        zero && !mutant::active(Mutant::ZeroFallsThrough)
    }

    /// The first stripe that one of `tables` has at byte `from` or beyond, a whole one, or fine units of it; what
    /// begins at `end`, or beyond, need not be found.
    pub fn next_below(&self, tables: &[TableNo], from: u64, end: u64) -> Option<Below> {
        let next = |table: &TableNo| {
            let len = self.data_len(*table);
            let mapped = self.tables[table].mapped_in(from / len..end.div_ceil(len)).next().map(|(stripe, _)| stripe);
            let fine = self.fine(*table).and_then(|fine| fine.next(from / len * (len / UNIT)));
            let stripe = mapped.into_iter().chain(fine.map(|unit| unit / (len / UNIT))).min()?;
            Some(Below { table: *table, stripe, range: stripe * len..(stripe + 1) * len })
        };
        tables.iter().filter_map(next).min_by_key(|below| (below.range.start, below.table))
    }

    /// The part of `range`, in bytes, outside of which none of `tables` has anything.
    pub fn span_below(&self, tables: &[TableNo], range: Range<u64>) -> Option<Range<u64>> {
        let mut span: Option<Range<u64>> = None;
        for table in tables {
            let mut at = range.start;
            while let Some(below) = self.next_below(core::slice::from_ref(table), at, range.end) {
                if below.range.start >= range.end {
                    break;
                }
                let (start, end) = (below.range.start.max(range.start), below.range.end.min(range.end));
                span = Some(span.map_or(start..end, |span| span.start.min(start)..span.end.max(end)));
                at = below.range.end;
            }
        }
        span
    }

    /// Whether entries of the tables `above` tell all bytes of `range`, each of them `settled`.
    pub fn is_told(&self, above: &[TableNo], range: Range<u64>, settled: &impl Fn(TableNo, u64) -> bool) -> bool {
        let Some((first, others)) = above.split_first() else { return range.is_empty() };
        let len = self.data_len(*first);
        (range.start / len..range.end.div_ceil(len)).all(|stripe| {
            let tells = self.tables[first].entry(stripe) != Entry::Unmapped && settled(*first, stripe);
            let part = (stripe * len).max(range.start)..((stripe + 1) * len).min(range.end);
            tells || self.is_told(others, part, settled)
        })
    }

    /// Stripes of older tables of a virtual disk that lie in `range` and are hidden, as runs of at most `most` in all:
    /// they may be unmapped.
    pub fn hidden_in(
        &self,
        id: VdiskNo,
        range: Range<u64>,
        most: usize,
        settled: &impl Fn(TableNo, u64) -> bool,
    ) -> Vec<(TableNo, Range<u64>)> {
        let Some(vdisk) = self.vdisks.get(&id) else { return Vec::new() };
        let mut runs: Vec<(TableNo, Range<u64>)> = Vec::new();
        for nth in 1..vdisk.tables.len() {
            let (above, own) = (&vdisk.tables[..nth], &vdisk.tables[nth..nth + 1]);
            let mut at = range.start;
            while let Some(Below { table, stripe, range: bytes }) = self.next_below(own, at, range.end) {
                if bytes.start >= range.end {
                    break;
                }
                at = bytes.end;
                if !self.is_told(above, bytes.start..bytes.end.min(vdisk.size.0), settled) {
                    continue;
                }
                let full = runs.len() == most;
                match runs.last_mut().filter(|(of, run)| *of == table && run.end == stripe) {
                    Some((_, run)) => run.end += 1,
                    None if full => return runs,
                    None => runs.push((table, stripe..stripe + 1)),
                }
            }
        }
        runs
    }

    /// Unmaps stripes of `table`, or makes them `zero`, by record `seq`: they, and versions of them in limbo, are free
    /// when that is durable.
    pub fn unmap(&mut self, table: TableNo, stripes: Range<u64>, zero: bool, seq: u64) {
        let places = self.remap_all(table, stripes.clone(), zero);
        let keys: Vec<_> =
            self.limbo.range((table, stripes.start)..(table, stripes.end)).map(|(key, _)| *key).collect();
        let in_limbo: Vec<_> = keys.into_iter().filter_map(|key| self.limbo.remove(&key)).collect();
        self.freeing.extend(places.into_iter().chain(in_limbo).map(|place| (seq, place)));
    }

    /// Drops the older tables of a virtual disk that have nothing left.
    pub fn drop_older(&mut self, id: VdiskNo) -> Vec<Record<'static>> {
        let Some(vdisk) = self.vdisks.get(&id) else { return Vec::new() };
        let older: Vec<TableNo> = vdisk.tables.iter().skip(1).copied().collect();
        let mut records = Vec::new();
        for table in older {
            records.extend(self.drop_empty_segments_of(table));
            if !self.is_done_with(table) {
                continue;
            }
            let vdisk = self.vdisks.get_mut(&id).expect("looked up before");
            vdisk.tables.retain(|other| *other != table);
            records.push(Record::Vdisk(vdisk.clone()));
            if let Some(packs) = self.fine.remove(&table).map(|fine| fine.packs) {
                records.extend(self.drop_table(packs));
            }
            records.extend(self.drop_table(table));
        }
        records
    }

    /// Whether nothing of an older table is left, and nobody reads what was there.
    fn is_done_with(&self, table: TableNo) -> bool {
        let few = if mutant::active(Mutant::OlderTableDroppedEarly) { 64 } else { 0 };
        let blank = |table: &Table| table.mapped <= few && table.claims == 0 && (table.segments.is_empty() || few > 0);
        let packs = self.fine(table).is_none_or(|fine| fine.is_blank() && blank(&self.tables[&fine.packs]));
        packs && blank(&self.tables[&table])
    }

    /// Gives back segments of an older table that hold nothing: those of a fixed virtual disk are kept until then.
    fn drop_empty_segments_of(&mut self, table: TableNo) -> Vec<Record<'static>> {
        let empty = |id: &SegmentNo| {
            let segment = &self.segments[id];
            segment.free.is_full() && segment.in_flight.is_empty() && segment.moving.is_none()
        };
        let own = self.tables[&table].segments.iter().copied();
        let packs = self.fine(table).map(|fine| fine.packs).filter(|packs| self.tables[packs].claims == 0);
        let packs = packs.into_iter().flat_map(|packs| self.tables[&packs].segments.iter().copied());
        let empty: Vec<SegmentNo> = own.chain(packs).filter(empty).collect();
        empty.into_iter().map(|id| self.drop_segment(id)).collect()
    }

    /// Bytes that lie in older tables of a virtual disk.
    pub fn bytes_in_older(&self, id: VdiskNo) -> u64 {
        let Some(vdisk) = self.vdisks.get(&id) else { return 0 };
        let older = vdisk.tables.iter().skip(1);
        let bytes = |table: &TableNo| {
            let fine = self.fine(*table).map_or(0, |fine| fine.len() * UNIT);
            self.tables[table].mapped * self.data_len(*table) + fine
        };
        older.map(bytes).sum()
    }

    /// How many stripes of `data_len` bytes have to rise for all that `tables` have of a virtual disk of `size`.
    pub fn stripes_above(&self, tables: &[TableNo], data_len: u64, size: u64) -> u64 {
        let (mut count, mut at, mut until) = (0, 0, 0);
        while let Some(Below { range, .. }) = self.next_below(tables, at, u64::MAX) {
            let under = (range.start / data_len).max(until)..range.end.min(size).div_ceil(data_len);
            count += under.end.saturating_sub(under.start);
            until = under.end.max(until);
            at = range.end;
        }
        count
    }

    /// How many segments of `layout` could be made on `disks` (none: any) beside those that are there, if these
    /// tables had given theirs back.
    pub fn segments_without(&self, tables: &[TableNo], layout: Layout, disks: DiskSet) -> u64 {
        let theirs = |no: DiskNo| {
            let all = self.with_packs(tables);
            let segments = all.iter().flat_map(|table| &self.tables[table].segments).map(|id| &self.segments[id]);
            segments.filter(|segment| segment.record.slabs.iter().flatten().any(|at| at.disk == no)).count()
        };
        self.segments_with(layout, disks, |disk| self.free_soon(disk.record.no) + theirs(disk.record.no))
    }

    /// Bytes of the virtual disk in a stripe of `table`.
    pub fn data_len(&self, table: TableNo) -> u64 {
        self.tables[&table].record.layout.data_len().0
    }
}

/// The record of a new table's first step: whatever landed before belongs to older ones, and is part of these.
pub fn retire_all(table: TableNo, layout: Layout, seq: u64) -> Record<'static> {
    let count = VDISK_SIZE_MAX.0.div_ceil(layout.data_len().0);
    Record::Unmap(UnmapRecord { table, first: 0, count, retires: seq, zero: false })
}
