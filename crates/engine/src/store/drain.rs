//! The one task that lets things drain (`segment/drain.rs`), and those that tell the disks what they need not keep.
//!
//! Invariants
//! 1. One slab of each disk is discarded at a time, in pieces, so that clients wait for none of it.
//! 2. A slab is free again only after its discard has ended, however it ended: a disk that knows no discards, or fails
//!    one, still holds bytes that nobody reads.

use super::Store;
use crate::format::record::SlabAt;
use crate::io::DiskError;
use crate::mutant::{self, Mutant};
use crate::units::{BLOCK, ByteCount, DiskNo, Nanos};
use alloc::boxed::Box;
use alloc::collections::BTreeSet;
use alloc::rc::Rc;
use core::cell::{Cell, RefCell};

/// Who is told of slabs, and when somebody looks for more.
#[derive(Default)]
pub struct Discards {
    /// Disks that are told of slabs just now.
    on: RefCell<BTreeSet<DiskNo>>,
    /// When the timer ends that was set last.
    timer: Cell<Nanos>,
}

/// Bytes that a disk is told of with one call.
const PIECE: ByteCount = ByteCount::mib(64);

/// Lets things drain until the pool stops.
pub async fn drainer(store: Rc<Store>) {
    loop {
        let woken = store.signals.drains.changed();
        if store.stopping.get() {
            return;
        }
        let (durable, now) = (store.log.durable(), store.world.now());
        let is_used = |kind, owner| store.pages.is_used(kind, owner);
        let settled = store.map.borrow_mut().settle_drained(durable, now, is_used);
        store.tell_disks(now);
        // Without a rest all of it is being discarded already.
        if settled.freed && store.tuning.discard_rest > Nanos(0) {
            store.signals.room.notify();
            store.changed();
        }
        if settled.used {
            // Whoever reads there ends without a word.
            store.pause().await;
        } else {
            woken.await;
        }
    }
}

impl Store {
    /// Begins to tell the disks of slabs that have rested, and sets a timer for those that rest.
    fn tell_disks(self: &Rc<Self>, now: Nanos) {
        let rest = self.tuning.discard_rest;
        let (disks, next) = {
            let mut map = self.map.borrow_mut();
            if now >= rest {
                map.end_rests(now.since(rest), None);
            }
            (map.disks_to_tell(), map.rests_since().map(|since| since + rest))
        };
        for no in disks {
            if self.discards.on.borrow_mut().insert(no) {
                let store = self.clone();
                self.world.spawn("discards", Box::pin(async move { store.discard_on(no).await }));
            }
        }
        if let Some(next) = next.filter(|_| self.discards.timer.get() <= now) {
            self.discards.timer.set(next);
            // A pool that was closed is not kept by it.
            let (store, world) = (Rc::downgrade(self), self.world.clone());
            let look = async move {
                world.sleep(next.since(now)).await;
                if let Some(store) = store.upgrade() {
                    store.signals.drains.notify();
                }
            };
            self.world.spawn("discard timer", Box::pin(look));
        }
    }

    /// Discards what has rested on disk `no`, slab by slab; each is free then.
    async fn discard_on(&self, no: DiskNo) {
        while !self.stopping.get() {
            let next = self.map.borrow_mut().take_rested(no);
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
        self.discards.on.borrow_mut().remove(&no);
        self.signals.drains.notify();
        self.changed();
    }

    async fn discard(&self, at: SlabAt) {
        let mut done = ByteCount::ZERO;
        while done < self.slab {
            let Ok(disk) = self.disk(at.disk) else { return };
            let len = PIECE.min(self.slab - done);
            let from = self.slab_offset(at, done.0 / BLOCK);
            self.write_ends(at.disk, from, len);
            match disk.discard(from, len).await {
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

    /// Waits until nothing drains, or what drains cannot, and all disks know what they need not keep.
    pub async fn drained_all(&self) {
        while self.hurry_drains(None) && self.log.failure().is_none() && self.frozen().is_none() {
            self.log.demand();
            self.signals.drains.notify();
            self.pause().await;
        }
    }

    /// Ends all rests. Says whether anything still drains, or a disk (`only`: that one) does not know yet what it need
    /// not keep.
    pub fn hurry_drains(&self, only: Option<DiskNo>) -> bool {
        let mut map = self.map.borrow_mut();
        map.end_rests(self.world.now(), only);
        let telling = || map.disks_to_tell().iter().any(|no| only.is_none_or(|only| only == *no));
        only.map_or_else(|| map.is_draining(), |only| map.draining_on(only) > 0) || telling()
    }
}
