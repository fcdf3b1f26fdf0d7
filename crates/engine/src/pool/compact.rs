//! The compactor: makes room for whoever lacks slabs while the pool has some that are of no use to him. It empties
//! hollow segments (`store/compact.rs`); where there are none, it moves slabs from full disks to others, so that as
//! many disks as a stripe needs have some.
//!
//! Invariants
//! 1. It does nothing unless somebody asks, and stops when he lacks none.
//! 2. It comes to an end: each segment that is emptied is a gain, and each slab that moves makes the disks more even.

use super::Pool;
use super::job::repair::Tally;
use super::job::{JobKind, Ticket};
use crate::format::record::{JobRecord, JobState};
use crate::mutant::{self, Mutant};
use crate::segment::allocate::SLABS_KEPT;
use crate::store::compact::Elsewhere;
use crate::units::{DiskNo, JobNo, SegmentNo};
use alloc::rc::Rc;

/// Makes room until the pool stops or fails.
pub async fn compactor(pool: Rc<Pool>) {
    let store = pool.store.clone();
    loop {
        let asked = store.compaction.asked.changed();
        if store.stopping.get() || store.log.failure().is_some() {
            return;
        }
        pool.note_moved();
        let Some(table) = store.next_wanting() else {
            asked.await;
            continue;
        };
        store.compacts(true);
        let went = store.compact_for(table).await || pool.level().await;
        store.compacts(false);
        if !went {
            store.gives_up_on(table);
        }
    }
}

impl Pool {
    /// Tells virtual disks which of their stripes lie elsewhere: they look at them for order, and for tiers.
    fn note_moved(&self) {
        let moved = self.store.compaction.take_moved();
        for vdisk in self.vdisks() {
            for Elsewhere { table, stripe, is_fast } in moved.iter().filter(|found| found.table == vdisk.table()) {
                vdisk.note_elsewhere(*table, *stripe);
                if *is_fast && !mutant::active(Mutant::RestoredUnknownToTier) {
                    vdisk.note_fast(*table, *stripe);
                }
            }
        }
    }

    /// Moves a slab from a disk that is full to an emptier one. `false`: there is none, or it cannot.
    async fn level(&self) -> bool {
        let is_full = |(segment, slot, _): &(SegmentNo, usize, DiskNo)| {
            let map = self.store.map.borrow();
            let from = map.segments.get(segment).and_then(|found| found.slab(*slot));
            from.is_some_and(|from| map.free_soon(from.disk) <= SLABS_KEPT)
        };
        let shift = self.next_shift().filter(|shift| is_full(shift) && !self.store.misses_disks());
        let Some((segment, slot, to)) = shift else { return false };
        let (kind, state) = (JobKind::Rebalance, JobState::Running);
        let record = JobRecord { id: JobNo(0), kind, state, began: 0, done: 0, total: 0, cursor: 0, bad: 0, healed: 0 };
        let (tally, ticket) = (Tally::default(), Ticket::new(&record, &self.store));
        self.find_home(segment, slot, Some(to), &tally, &ticket).await.is_ok() && tally.is_clean()
    }
}
