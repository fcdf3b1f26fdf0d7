//! The one task that lets things drain (`segment/drain.rs`), and those that tell the disks what they need not keep.
//!
//! Invariants
//! 1. One slab of each disk is discarded at a time, in pieces, so that clients wait for none of it.
//! 2. A slab is free only after its discard has ended, however it ended: a disk that knows no discards, or fails one,
//!    still holds bytes that nobody reads.

use super::Store;
use crate::format::record::SlabAt;
use crate::io::DiskError;
use crate::mutant::{self, Mutant};
use crate::units::{BLOCK, ByteCount, DiskNo};
use alloc::boxed::Box;
use alloc::rc::Rc;

/// Bytes that a disk is told of with one call.
const PIECE: ByteCount = ByteCount::mib(64);

/// Lets things drain until the pool stops.
pub async fn drainer(store: Rc<Store>) {
    loop {
        let woken = store.signals.drains.changed();
        if store.stopping.get() {
            return;
        }
        let durable = store.log.durable();
        let used = store.map.borrow_mut().settle_drained(durable, |kind, owner| store.pages.is_used(kind, owner));
        let disks = store.map.borrow().undiscarded();
        for no in disks {
            if store.discarding.borrow_mut().insert(no) {
                let (telling, world) = (store.clone(), store.world.clone());
                world.spawn("discards", Box::pin(async move { telling.discard_on(no).await }));
            }
        }
        if used {
            // Whoever reads there ends without a word.
            store.pause().await;
        } else {
            woken.await;
        }
    }
}

impl Store {
    /// Discards what may be discarded on disk `no`, slab by slab; each is free then.
    async fn discard_on(&self, no: DiskNo) {
        while !self.stopping.get() {
            let next = self.map.borrow_mut().take_undiscarded(no);
            let Some(at) = next else { break };
            if mutant::active(Mutant::DiscardAfterReuse) {
                self.map.borrow_mut().end_drain(at);
                self.signals.room.notify();
                self.pause().await;
            }
            self.discard(at).await;
            self.map.borrow_mut().end_drain(at);
            self.signals.room.notify();
        }
        self.discarding.borrow_mut().remove(&no);
        self.signals.drains.notify();
        self.changed();
    }

    async fn discard(&self, at: SlabAt) {
        let mut done = ByteCount::ZERO;
        while done < self.slab {
            let Ok(disk) = self.disk(at.disk) else { return };
            let len = PIECE.min(self.slab - done);
            match disk.discard(self.slab_offset(at, done.0 / BLOCK), len).await {
                Ok(()) => done += len,
                Err(DiskError::Gone) => return self.disk_failed(at.disk, &disk, DiskError::Gone, "it answers no more"),
                Err(_) => return,
            }
        }
    }

    /// Waits until something that drains is free; asks for the record that it may wait for.
    pub async fn drained_some(&self) {
        let room = self.signals.room.changed();
        self.log.demand();
        self.signals.drains.notify();
        room.await;
    }

    /// Waits until nothing drains, or what drains cannot.
    pub async fn drained_all(&self) {
        while self.map.borrow().is_draining() && self.log.failure().is_none() && self.frozen().is_none() {
            self.log.demand();
            self.pause().await;
        }
    }
}
