//! A new newest table for a virtual disk that is used: the moment in which it comes.
//!
//! The story
//! 1. The gate is closed: requests that come wait, those that are inside end ([`super::gate`]).
//! 2. What gathers leaves, to the old table or its packed stripes, and what flies is waited for, until all of it is
//!    durable: the log has nothing landed of the virtual disk any more, and nothing of it may be withdrawn.
//! 3. In one step the new table is on top, and a record says that whatever landed before is part of older ones.
//!
//! Where that cannot be had in time, because disks are away for instance, the gate is opened and nothing has changed.

use super::destage::By;
use super::gate::Closed;
use super::{Vdisk, partial_discards};
use crate::error::Result;
use crate::fail;
use crate::format::record::Record;
use crate::geometry::Layout;
use crate::mutant::{self, Mutant};
use crate::segment::stack::retire_all;
use crate::units::Nanos;
use alloc::rc::Rc;
use alloc::vec::Vec;

/// How long clients wait at most.
const PATIENCE: Nanos = Nanos::secs(10);
/// How often it is looked whether all is calm.
const LOOKS: Nanos = Nanos::millis(5);

impl Vdisk {
    /// Waits, behind a gate that it closes, until nothing of it is under way, or in memory, or only in the log.
    pub(crate) async fn calm(self: &Rc<Self>) -> Result<Closed<'_>> {
        // Most of what gathers leaves before anybody has to wait.
        self.drain().await;
        let closed = self.gate.close();
        let since = self.store.world.now();
        while !self.is_calm() {
            self.check_there()?;
            self.store.check_writable()?;
            if let Some(error) = self.failure() {
                return Err(error);
            }
            let late = self.store.world.now().since(since) >= PATIENCE;
            if late || self.store.is_closing() || self.waits_since().is_some() && self.store.misses_disks() {
                return fail!(
                    NotPossible,
                    "requests of its clients are under way that wait for something, disks or room perhaps; try again \
                     when they are answered"
                );
            }
            if self.gate.is_empty() {
                self.drain().await;
                self.store.make_durable(self.store.log.seq()).await?;
            }
            self.store.world.sleep(LOOKS).await;
        }
        Ok(closed)
    }

    /// Has everything leave that gathers.
    async fn drain(self: &Rc<Self>) {
        let budget = &self.store.traffic.budgets.merges;
        let rest = self.pack(self.gathering(), budget, By::Anybody).await;
        super::destage::each_of(rest, |stripe| async move {
            // What cannot leave is found there.
            let _ = self.merge(stripe, budget, By::Anybody).await;
        })
        .await;
    }

    /// Something that moved, or was packed, is on its way no more: who waits for a free stripe looks again.
    pub(super) fn end_packing(&self) {
        self.packing.set(self.packing.get() - 1);
        self.moved.notify();
        self.store.signals.room.notify();
    }

    /// Whether it is there, and nothing is under way, or in memory, or only in the log, or not durable.
    pub(crate) fn is_calm(&self) -> bool {
        if self.removed.get() {
            return false;
        }
        let flies = self.packing.get() > 0 || self.merging.get() > 0 || self.waiting.get() > 0;
        let queues = self.queue.is_idle() && self.landed_queue.is_idle();
        let memory = self.stripes.borrow().is_empty() && self.kept.borrow().is_empty();
        let landed = self.store.commits.landings.borrow().iter().any(|(_, vdisk, _)| *vdisk == self.id);
        let settled = self.abandoned.borrow().is_empty() && self.store.limbo.unsettled(self.table()).is_empty();
        self.gate.is_empty() && !flies && queues && memory && !landed && settled
    }

    /// Puts a table of `layout` on top, of which `segments` are made now. Synchronous; it is calm.
    pub(crate) fn put_on_top(&self, layout: Layout, segments: u64) -> Result<()> {
        assert!(self.is_calm(), "a table is put on top of what is at rest");
        let mut records = Vec::new();
        let pushed = self.store.map.borrow_mut().push_table(self.id, layout, segments, &mut records);
        if let Ok(table) = pushed
            && !mutant::active(Mutant::NewTableRetiresNothing)
        {
            records.push(retire_all(table, layout, self.store.log.seq()));
        }
        self.store.append_all(records);
        pushed?;
        // All that is counted in stripes.
        self.store.forget_streams(Some(self.id));
        *self.partial_discards.borrow_mut() = partial_discards::PartialDiscards::default();
        self.set_aside.borrow_mut().clear();
        self.hold.forget();
        self.forget_packed_ahead();
        self.sweep.take();
        self.rise.take();
        self.order.take();
        Ok(())
    }

    /// The older tables of its stack have lost something, or are gone.
    pub(crate) fn drop_older(&self) {
        if self.removed.get() {
            return;
        }
        let records: Vec<Record<'static>> = self.store.map.borrow_mut().drop_older(self.id);
        self.store.append_all(records);
    }
}
