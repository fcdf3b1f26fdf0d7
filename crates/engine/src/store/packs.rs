//! The records of packed stripes: what they pin, how they are written anew, what a replay makes of them.
//! `segment/fine.rs` says what they are about.

use super::Store;
use crate::error::Result;
use crate::format::record::{PackRecord, Record, UnmapRecord, VdiskRecord};
use crate::format::{
    FEATURE_CACHES, FEATURE_MOVES, FEATURE_PACKS, FEATURE_READ_CACHES, FEATURE_SPREAD, FEATURE_STACKS, FEATURE_TIERS,
    FEATURE_WIDE,
};
use crate::log::Room;
use crate::mutant::{self, Mutant};
use crate::segment::fine::UNIT;
use crate::stripe::table::Entry;
use crate::units::TableNo;
use alloc::collections::BTreeSet;
use alloc::vec::Vec;
use core::cell::Cell;

/// How often it is tried to write records anew that are in a shadow.
const RELISTS: usize = 2;

/// What labels and log say of packed stripes.
pub struct PacksSaid {
    /// The features that the labels of all disks say there may be (bits).
    announced: Cell<u64>,
    /// From this record on the log has nothing of them: a checkpoint began there, and there were none.
    gone: Cell<Option<u64>>,
}

impl PacksSaid {
    /// The newest label has these `features`: nothing is written before those of this opening are on all disks.
    pub fn new(features: u64) -> PacksSaid {
        PacksSaid { announced: Cell::new(features), gone: Cell::new(None) }
    }
}

impl Store {
    /// Has the labels of all disks say that there may be packed stripes, before the first of their records is written.
    /// `false`: they cannot now.
    pub async fn announce_packs(&self) -> bool {
        if mutant::active(Mutant::PackBitUnannounced) {
            return true;
        }
        self.announce(FEATURE_PACKS).await.is_ok()
    }

    /// Has the labels of all disks say that there may be write-back caches, before the first record of one is written.
    /// They say so for ever.
    pub async fn announce_caches(&self) -> Result<()> {
        self.announce(FEATURE_CACHES).await
    }

    /// Has the labels of all disks say that there may be stacks of tables, before the first record of one is written.
    /// They say so for ever.
    pub async fn announce_stacks(&self) -> Result<()> {
        if mutant::active(Mutant::StackBitUnannounced) {
            return Ok(());
        }
        self.announce(FEATURE_STACKS).await
    }

    /// Has the labels of all disks say that there may be fast tiers, before the first record of one is written. They
    /// say so for ever.
    pub async fn announce_tiers(&self) -> Result<()> {
        if mutant::active(Mutant::TierBitUnannounced) {
            return Ok(());
        }
        self.announce(FEATURE_TIERS).await
    }

    /// Drops the fast tiers of which nothing is left, and which are to be no more.
    pub fn drop_tiers(&self) {
        let tables: Vec<TableNo> = self.map.borrow().vdisks.values().map(|vdisk| vdisk.tables[0]).collect();
        for table in tables {
            let records = self.map.borrow_mut().drop_tier(table);
            self.append_all(records);
        }
    }

    /// Has the labels of all disks say that there may be read caches, before the first record of one is written. They
    /// say so for ever.
    pub async fn announce_read_caches(&self) -> Result<()> {
        if mutant::active(Mutant::ReadCacheBitUnannounced) {
            return Ok(());
        }
        self.announce(FEATURE_READ_CACHES).await
    }

    /// Has the labels of all disks say that there may be stripes that were moved, before the first record of one is
    /// written. They say so for ever.
    pub(super) async fn announce_moves(&self) -> Result<()> {
        if mutant::active(Mutant::MoveBitUnannounced) {
            return Ok(());
        }
        self.announce(FEATURE_MOVES).await
    }

    /// Gives the labels of all disks annexes, before the first disk joins whose number needs them. They keep them for
    /// ever.
    pub async fn announce_wide(&self) -> Result<()> {
        self.announce(FEATURE_WIDE).await
    }

    /// Has the labels of all disks say that copies of batches may lie behind their positions, before the first does.
    /// They say so for ever.
    pub(super) async fn announce_spread(&self) -> Result<()> {
        if mutant::active(Mutant::SpreadUnannounced) {
            return Ok(());
        }
        self.announce(FEATURE_SPREAD).await
    }

    /// Whether they do.
    pub(super) fn is_spread_announced(&self) -> bool {
        self.packs_said.announced.get() & FEATURE_SPREAD != 0 || mutant::active(Mutant::SpreadUnannounced)
    }

    async fn announce(&self, feature: u64) -> Result<()> {
        let (features, announced) = (&self.labels.features, &self.packs_said.announced);
        if features.get() & feature == 0 {
            features.set(features.get() | feature);
            announced.set(announced.get() & !feature);
            self.labels.outdated.set(true);
        }
        if announced.get() & feature == 0 {
            self.write_labels().await?;
            announced.set(announced.get() | feature);
        }
        Ok(())
    }

    /// A checkpoint began at `redo`: from there on the log has nothing of packed stripes, if there are none.
    pub(super) fn note_packs(&self, redo: u64) {
        let gone = self.packs_said.gone.get().or(Some(redo));
        self.packs_said.gone.set(gone.filter(|_| !self.map.borrow().has_packs()));
    }

    /// The log begins at `tail` from now on: where there is nothing of packed stripes in it, and nothing will be, the
    /// labels say so again, and who does not know them may read the pool.
    pub(super) fn revoke_packs(&self, tail: u64) {
        let gone = self.packs_said.gone.get().is_some_and(|gone| gone <= tail);
        let gone = gone || mutant::active(Mutant::PackBitGoesEarly);
        if gone && !self.packs_any() {
            self.labels.features.set(self.labels.features.get() & !FEATURE_PACKS);
        }
    }

    /// Whether small writes of some virtual disk are to be packed.
    fn packs_any(&self) -> bool {
        self.map.borrow().vdisks.values().any(|vdisk| self.packs(vdisk))
    }

    fn packs(&self, vdisk: &VdiskRecord) -> bool {
        vdisk.cache.is_some() || vdisk.fine_share.map_or(self.tuning.fine_share, u64::from) > 0
    }

    /// Drops the tables of packed stripes of which nothing is left, where nothing is packed any more, or will be packed
    /// otherwise.
    pub fn drop_packs(&self) {
        let any = self.packs_any();
        let tables: Vec<TableNo> = {
            let map = self.map.borrow();
            let tables = map.vdisks.values().flat_map(|vdisk| vdisk.tables.clone());
            tables.filter(|table| !any || !map.packs_fit(*table)).collect()
        };
        for table in tables {
            let records = self.map.borrow_mut().drop_packs(table);
            self.append_all(records);
        }
    }

    /// Brings the tables of packed stripes, and those of stacks, into memory, where they stay.
    pub async fn load_kept_tables(&self) -> Result<()> {
        let kept: Vec<TableNo> = {
            let map = self.map.borrow();
            let packs = map.tables.values().filter(|table| table.record.packs.is_some());
            packs.map(|table| table.record.id).chain(map.stacked()).collect()
        };
        for table in kept {
            self.load_whole_table(table).await?;
        }
        Ok(())
    }

    /// Records below `durable` are the truth: what they replaced is void.
    pub(super) fn settle_packs(&self, durable: u64) {
        self.map.borrow_mut().settle_fine(durable);
        self.free_empty_packs();
    }

    /// Unmaps packed stripes that hold nothing any more. Synchronous.
    pub fn free_empty_packs(&self) {
        loop {
            let mut map = self.map.borrow_mut();
            let Some((table, first)) = map.take_emptied() else { return };
            let unmap = UnmapRecord { table, first, count: 1, retires: 0, zero: false };
            let seq = self.log.append(&Record::Unmap(unmap));
            map.commit(table, first, Entry::Unmapped, seq);
            self.signals.packed.notify();
        }
    }

    /// The oldest log record that says something which nothing else does, beside what is in the checkpoint.
    pub fn oldest_needed(&self) -> Option<u64> {
        let landed = self.commits.landings.borrow().first().map(|(seq, ..)| *seq);
        landed.into_iter().chain(self.map.borrow().oldest_pack()).min()
    }

    /// Writes the records of packed stripes anew that lie below `bound`, as far as there is room: the tail can pass
    /// them then. One that is in the shadow of a commit cannot be yet, and while the mover sweeps over what lies in the
    /// oldest of them there is always one that is. So those below `early` are written, too, where they can be; and what
    /// is left below `bound` is waited for, some times.
    pub async fn relist_packs(&self, bound: u64, early: u64) -> Result<()> {
        // What is written anew here is not written once more.
        let (bound, early) = (bound.min(self.log.seq()), early.min(self.log.seq()));
        let waits = !mutant::active(Mutant::ShadowPinsTail);
        self.relist_settled(if waits { early } else { bound });
        for _ in 0..RELISTS {
            if self.relist_settled(bound) || !waits {
                break;
            }
            self.make_logged(self.log.seq()).await?;
        }
        Ok(())
    }

    /// Writes those of them anew that are in no shadow. Says whether there are no others that could be. Synchronous.
    fn relist_settled(&self, bound: u64) -> bool {
        let (stale, shaded) = self.map.borrow().stale_packs(bound);
        for (table, stripe, record) in stale {
            let record = Record::Pack(record);
            if !self.log.has_room(record.encoded_len() as u64, Room::Moving) {
                return true;
            }
            let seq = self.log.append(&record);
            self.map.borrow_mut().relisted(table, stripe, seq);
        }
        shaded == 0
    }

    /// A replay finds that whole stripes were replaced, or unmapped.
    pub(super) fn redo_fine(&self, table: TableNo, first: u64, count: u64) {
        if !mutant::active(Mutant::ReplayKeepsUnits) {
            self.map.borrow_mut().fine_released(table, first..first.saturating_add(count));
        }
    }

    /// The stripes, each with its table, that the units of a packed stripe are of.
    pub(super) fn stripes_of(&self, pack: &PackRecord) -> BTreeSet<(TableNo, u64)> {
        let map = self.map.borrow();
        let Some(table) = map.tables.get(&pack.table) else { return BTreeSet::new() };
        let places = table.record.layout.data_len().0 / UNIT;
        let Some(of) = table.record.packs else { return BTreeSet::new() };
        let Some(per_stripe) = map.tables.get(&of).map(|of| of.record.layout.data_len().0 / UNIT) else {
            return BTreeSet::new();
        };
        let per_stripe = if mutant::active(Mutant::CacheUnitsMiscounted) { places } else { per_stripe };
        // More than a stripe's worth is refused with the record.
        let units = pack.runs.iter().flat_map(|run| run.unit..run.unit + (run.count as u64).min(places));
        units.map(|unit| (of, unit / per_stripe)).collect()
    }
}
