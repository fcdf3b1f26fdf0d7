//! The records of packed stripes: what they pin, how they are written anew, what a replay makes of them.
//! `segment/fine.rs` says what they are about.

use super::Store;
use crate::format::record::{PackRecord, Record, UnmapRecord};
use crate::log::Room;
use crate::mutant::{self, Mutant};
use crate::segment::fine::UNIT;
use alloc::collections::BTreeSet;

impl Store {
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
            let unmap = UnmapRecord { table, first, count: 1, retires: 0 };
            let seq = self.log.append(&Record::Unmap(unmap));
            map.commit(table, first, None, seq);
        }
    }

    /// The oldest log record that says something which nothing else does, beside what is in the checkpoint.
    pub fn oldest_needed(&self) -> Option<u64> {
        let landed = self.landings.borrow().first().map(|(seq, ..)| *seq);
        landed.into_iter().chain(self.map.borrow().oldest_pack()).min()
    }

    /// Writes the records of packed stripes anew that lie below `bound`, as far as there is room: the tail can pass
    /// them then. Synchronous.
    pub fn relist_packs(&self, bound: u64) {
        let stale = self.map.borrow().stale_packs(bound);
        for (table, stripe, record) in stale {
            let record = Record::Pack(record);
            if !self.log.has_room(record.encoded_len() as u64, Room::Moving) {
                return;
            }
            let seq = self.log.append(&record);
            self.map.borrow_mut().relisted(table, stripe, seq);
        }
    }

    /// A replay finds that whole stripes were replaced, or unmapped.
    pub(super) fn redo_fine(&self, table: u32, first: u64, count: u64) {
        if !mutant::active(Mutant::ReplayKeepsUnits) {
            self.map.borrow_mut().fine_released(table, first..first.saturating_add(count));
        }
    }

    /// The stripes, each with its table, that the units of a packed stripe are of.
    pub(super) fn stripes_of(&self, pack: &PackRecord) -> BTreeSet<(u32, u64)> {
        let map = self.map.borrow();
        let Some(table) = map.tables.get(&pack.table) else { return BTreeSet::new() };
        let per_stripe = table.record.layout.data_len().0 / UNIT;
        let Some(of) = table.record.packs else { return BTreeSet::new() };
        // More than a stripe's worth is refused with the record.
        let units = pack.runs.iter().flat_map(|run| run.unit..run.unit + (run.count as u64).min(per_stripe));
        units.map(|unit| (of, unit / per_stripe)).collect()
    }
}
