//! Fast tiers: stripes of a table that lie in segments of another layout, on other disks.
//!
//! A fast tier is a table that maps nothing: it has segments, free places and claims, as every table has, and the
//! entries of the table that it is the tier of name those places. A stripe has as many bytes of data there as in that
//! table, so to move one is to write it once more, and one commit.
//!
//! Invariants
//! 1. A place in a segment of a fast tier is mapped by the table that it is the tier of, and by no other
//!    ([`Map::holder`]).
//! 2. A table has one fast tier at most. One of another layout, or on other disks, comes when the one before holds
//!    nothing and is dropped.
//! 3. A tier takes no more than its size, and on disks that its table may lie on, too, it leaves an eighth free.
//! 4. A table has a free stripe for each that lies in its fast tier: what lies there can always leave, and be
//!    overwritten, wherever that goes. So a tier makes a virtual disk faster, not larger.

use super::Map;
use super::allocate::Claim;
use crate::disk_set::DiskSet;
use crate::format::record::{Record, TABLE_LEN, TableRecord, TierRecord};
use crate::geometry::Layout;
use crate::mutant::{self, Mutant};
use crate::stripe::table::{Place, Table};
use crate::units::{DiskNo, TableNo};
use alloc::vec::Vec;

/// The part of the slabs of disks that a tier shares with its table which stays free of it, as a divisor.
const LEFT_FREE: usize = 8;

impl Map {
    /// The table that maps what lies in segments of `owner`.
    pub fn holder(&self, owner: TableNo) -> TableNo {
        self.tables.get(&owner).and_then(|table| table.record.tier).unwrap_or(owner)
    }

    /// The fast tier of `table`, where there is one.
    pub fn tier_of(&self, table: TableNo) -> Option<TableNo> {
        self.tiers.get(&table).copied()
    }

    /// Whether any virtual disk has a fast tier, or something that lies in one.
    pub fn any_tier(&self) -> bool {
        !self.tiers.is_empty() || self.vdisks.values().any(|vdisk| vdisk.tier.is_some())
    }

    /// Whether a place is one of a fast tier.
    pub fn is_fast(&self, place: Place) -> bool {
        let owner = self.segments.get(&place.segment).and_then(|segment| self.tables.get(&segment.record.owner));
        owner.is_some_and(|owner| owner.record.tier.is_some())
    }

    /// What the fast tier of `table` is to be, if it is to have one.
    pub fn tier_wanted(&self, table: TableNo) -> Option<&TierRecord> {
        self.vdisks.values().find(|vdisk| vdisk.tables.first() == Some(&table)).and_then(|vdisk| vdisk.tier.as_ref())
    }

    /// Whether the fast tier of `table`, if there is one, is what it is to be.
    pub fn tier_fits(&self, table: TableNo) -> bool {
        let is = self.tier_of(table).and_then(|tier| self.tables.get(&tier)).map(|tier| tier.record);
        let wanted = self.tier_wanted(table);
        is.is_none_or(|is| wanted.is_some_and(|wanted| (is.layout, is.disks) == (wanted.layout, wanted.disks)))
    }

    /// Promises a place in the fast tier of `table` and says which table and layout that is; makes the tier, and
    /// segments, where they are needed. None: it takes nothing now.
    pub fn claim_fast(&mut self, table: TableNo, records: &mut Vec<Record<'static>>) -> Option<(TableNo, Layout)> {
        let wanted = self.tier_wanted(table)?;
        let (size, layout, disks) = (wanted.size, wanted.layout, wanted.disks);
        self.see_disks();
        if !self.tier_fits(table) || self.tier_lacks(table) {
            return None;
        }
        let tier = match self.tier_of(table) {
            Some(tier) => tier,
            None => self.make_tier(table, layout, disks, records)?,
        };
        let (state, len) = (&self.tables[&tier], layout.data_len());
        let is_full = (self.held_in_tier(tier) + 1) * len.0 > size.0;
        if is_full && !mutant::active(Mutant::TierSizeIgnored) {
            return None;
        }
        if state.free <= state.claims && !self.leaves_room(table, disks) {
            return None;
        }
        self.claim(tier, Claim::Overwrite, records).then_some((tier, layout))
    }

    /// Places of a fast tier that are taken, promised, or not free yet.
    pub fn held_in_tier(&self, tier: TableNo) -> u64 {
        let Some(tier) = self.tables.get(&tier) else { return 0 };
        let each = tier.record.layout.segment_stripes(self.slab) as u64;
        (tier.segments.len() as u64 * each).saturating_sub(tier.free) + tier.claims
    }

    /// Free stripes of `table` that are kept for what lies in its fast tier, or is on its way there (invariant 4).
    pub(super) fn kept_for_tier(&self, table: TableNo) -> u64 {
        self.tier_of(table).map_or(0, |tier| self.held_in_tier(tier)) * !mutant::active(Mutant::TierTakesRoom) as u64
    }

    /// Whether the disks of the fast tier of `table` are too few, or some of what lies there lacks redundancy: it takes
    /// nothing then, and what it holds leaves. The lists are those of the disks that are there ([`Map::see_disks`]).
    pub fn tier_lacks(&self, table: TableNo) -> bool {
        let Some(wanted) = self.tier_wanted(table) else { return false };
        let few = self.disks_for(wanted.disks).count() < wanted.layout.slots();
        let thin = || self.tier_of(table).is_some_and(|tier| self.unsound_of(tier).any(|(unsound, _)| unsound > 0));
        (few || thin()) && !mutant::active(Mutant::TierThinTaken)
    }

    /// Whether a fast tier on `disks` may take another segment (invariant 3).
    fn leaves_room(&self, table: TableNo, disks: DiskSet) -> bool {
        let own = self.tables[&table].record.disks;
        let shared = |no: DiskNo| own.is_empty() || own.contains(no);
        self.disks_for(disks).filter(|disk| shared(disk.record.no)).all(|disk| {
            let free = disk.free.count();
            free > disk.record.slabs as usize / LEFT_FREE
        })
    }

    fn make_tier(
        &mut self,
        table: TableNo,
        layout: Layout,
        disks: DiskSet,
        records: &mut Vec<Record<'static>>,
    ) -> Option<TableNo> {
        self.check_config_room(TABLE_LEN as u64).ok()?;
        let id = self.notes.next.take_table();
        let record = TableRecord { id, layout, disks, packs: None, tier: Some(table) };
        self.tables.insert(id, Table::new(record));
        self.tiers.insert(table, id);
        records.extend([Record::Pool(self.notes.next), Record::Table(record)]);
        Some(id)
    }

    /// Drops the fast tier of `table`, if it holds nothing and is not what it is to be.
    pub fn drop_tier(&mut self, table: TableNo) -> Vec<Record<'static>> {
        let Some(tier) = self.tier_of(table).filter(|_| !self.tier_fits(table)) else { return Vec::new() };
        let is_done = self.tables.get(&tier).is_some_and(|found| {
            let pinned = found.segments.iter().any(|segment| self.is_pinned(*segment));
            let empty = found.segments.iter().all(|id| self.segments[id].free.is_full());
            found.mapped == 0 && found.claims == 0 && empty && !pinned
        });
        if !is_done && !mutant::active(Mutant::TierDroppedFull) {
            return Vec::new();
        }
        self.drop_table(tier)
    }

    /// These tables, and their fast tiers.
    pub(super) fn with_tiers(&self, tables: &[TableNo]) -> Vec<TableNo> {
        let tiers = tables.iter().filter_map(|table| self.tier_of(*table));
        tiers.chain(tables.iter().copied()).collect()
    }
}
