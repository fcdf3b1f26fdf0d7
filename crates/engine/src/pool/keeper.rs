//! The tasks that make room before anybody has to wait for it long: one in the log, one in memory and among the stripes. And the one that keeps
//! the log and the votes on the disks that are best for them.
//!
//! Invariants
//! 1. The log's keeper waits for nothing that waits for room in the log: it destages landed stripes only, and those have a reserve of the ring and a
//!    queue of their own (`Room::Destage`).

use super::Pool;
use crate::error::Result;
use crate::store::join;
use crate::vdisk::Vdisk;
use crate::vdisk::destage::destaged_at_once;
use alloc::rc::Rc;
use alloc::vec::Vec;

/// The part of the ring that is emptied in one go, as a divisor: small, so that nobody waits long for the tail to move.
const STEP: u64 = 32;
/// What is emptied in one go where that holds few stripes, because much of each landed: so many that the checkpoint after them hardly counts ...
const STEP_STRIPES: usize = 256;
/// ... but no more than this part of the ring, as a divisor.
const STEP_MAX: u64 = 8;

/// Relieves the log whenever it fills, until the pool stops or fails.
pub async fn log_keeper(pool: Rc<Pool>) {
    loop {
        let pressed = pool.store.log.pressure.changed();
        if pool.store.stopping.get() || pool.store.log.failure().is_some() {
            return;
        }
        if let Err(error) = pool.relieve_log().await {
            // A virtual disk that fails keeps that to itself; what fails here is the pool's.
            pool.store.fail(error);
            return;
        }
        pressed.await;
    }
}

/// Lets the log and the votes move whenever that is for the better, until the pool stops or fails.
pub async fn metadata_keeper(pool: Rc<Pool>) {
    loop {
        let changed = pool.store.work.changed();
        if pool.store.stopping.get() || pool.store.log.failure().is_some() {
            return;
        }
        if let Err(error) = pool.settle_metadata().await {
            pool.store.fail(error);
            return;
        }
        changed.await;
    }
}

/// Relieves memory and free stripes whenever they get scarce, until the pool stops or fails.
pub async fn memory_keeper(pool: Rc<Pool>) {
    loop {
        let pressed = pool.store.log.pressure.changed();
        if pool.store.stopping.get() || pool.store.log.failure().is_some() {
            return;
        }
        if let Err(error) = pool.relieve_memory().await {
            pool.store.fail(error);
            return;
        }
        pressed.await;
    }
}

impl Pool {
    /// Lets the disks carry the log, and vote, that are best for it, as far as that can be done now.
    pub(super) async fn settle_metadata(&self) -> Result<()> {
        let store = &self.store;
        while !store.is_settled() && !store.stopping.get() {
            let before = (store.loggers(), store.voters());
            store.move_log().await?;
            // Each takes the votes one step further.
            self.checkpoint().await?;
            if before == (store.loggers(), store.voters()) {
                break;
            }
        }
        Ok(())
    }

    async fn relieve_log(&self) -> Result<()> {
        let store = &self.store;
        loop {
            let (used, ring) = store.log.fill();
            if used <= ring / 8 * 3 {
                return Ok(());
            }
            // The oldest of what pins the log's tail goes to stripes; then the tail can move.
            let (least, most) = (store.log.seq_after(ring / STEP), store.log.seq_after(ring / STEP_MAX));
            let landings: Vec<(u32, u64)> = {
                let landings = store.landings.borrow();
                let oldest = landings.iter().enumerate();
                let oldest = oldest.take_while(|(nth, (seq, ..))| *seq < least || *nth < STEP_STRIPES && *seq < most);
                oldest.map(|(_, (_, vdisk, stripe))| (*vdisk, *stripe)).collect()
            };
            self.destage_all(landings).await;
            self.checkpoint().await?;
            if store.log.fill().0 >= used {
                return Ok(());
            }
        }
    }

    async fn relieve_memory(&self) -> Result<()> {
        let store = &self.store;
        loop {
            // Sealed stripes leave by themselves. To merge partial ones only because many are on their way would cost reads, and tear
            // the stripe that a stream is just filling.
            let (limit, buffered) = (store.tuning.buffer_memory, store.buffered.get());
            let partial = buffered.saturating_sub(store.flying.get());
            if buffered >= limit / 8 * 7 && partial >= limit / 2 && self.destage_oldest().await {
                continue;
            }
            if store.wants_stripes.replace(false) {
                let everything = self
                    .vdisks()
                    .iter()
                    .flat_map(|vdisk| vdisk.gathering().into_iter().map(|stripe| (vdisk.id(), stripe)))
                    .collect();
                self.destage_all(everything).await;
                store.log.make_durable(store.log.seq()).await?;
                // Stripes that still fly wake the waiting writer when they are down, and what drains when it is free; to wake it before would be
                // to spin.
                if store.flying.get() == 0 && !store.map.borrow().is_draining() {
                    store.room.notify();
                }
            }
            return Ok(());
        }
    }

    /// Destages the buffers that were not touched for the longest time, a quarter of them. `false`: there are none.
    async fn destage_oldest(&self) -> bool {
        let mut oldest = Vec::new();
        for vdisk in self.vdisks() {
            let gathering = vdisk.gathering();
            oldest.extend(gathering.iter().take(gathering.len() / 4 + 1).map(|stripe| (vdisk.id(), *stripe)));
        }
        let some = !oldest.is_empty();
        self.destage_all(oldest).await;
        some
    }

    /// Destages stripes in the order in which they lie on their virtual disks: neighbours there are mostly neighbours on the disks.
    async fn destage_all(&self, mut stripes: Vec<(u32, u64)>) {
        stripes.sort_unstable();
        let len = |vdisk: u32| self.vdisks.borrow().get(&vdisk).map_or(1, |vdisk| vdisk.stripe_len().0);
        let mut rest = stripes.into_iter().peekable();
        while let Some((vdisk, _)) = rest.peek() {
            let at_once = destaged_at_once(len(*vdisk));
            join(rest.by_ref().take(at_once).map(|(vdisk, stripe)| self.destage(vdisk, stripe))).await;
        }
    }

    async fn destage(&self, vdisk: u32, stripe: u64) {
        let vdisk: Option<Rc<Vdisk>> = self.vdisks.borrow().get(&vdisk).cloned();
        if let Some(vdisk) = vdisk {
            // What cannot be merged (its old blocks are lost) stays in its buffer. In the log it moves to the head, or it would keep everything
            // behind it there, too.
            if vdisk.destage_and_wait(stripe).await.is_err() {
                vdisk.land_again(stripe);
            }
            vdisk.land_kept(stripe);
        }
    }
}
