//! The mover: brings what lies in packed stripes down into whole ones, before these are too many, and whenever nobody
//! asks for anything. When nothing is packed any more, and still nobody does, it puts in order what does not lie so.
//!
//! Invariants
//! 1. It rests where there is nothing to do: where packed stripes are few and clients are busy, and where nothing could
//!    be moved until the pool has changed. What drains it moves whoever is busy.
//! 2. It comes to an end: what lies in order is not touched, and no disk is either, until something is written.

use super::Pool;
use crate::exec::LocalBoxFuture;
use crate::store::Store;
use crate::units::Nanos;
use crate::vdisk::Vdisk;
use crate::vdisk::destage::By;
use crate::vdisk::order::Ordered;
use alloc::boxed::Box;
use alloc::rc::Rc;
use alloc::vec::Vec;

/// From this part of its packed stripes on those of a virtual disk are moved beside its clients, in eighths.
const BEGINS: u64 = 6;
/// From this part on nothing is left to the clients, in eighths.
const HURRIES: u64 = 7;
/// An eighth in [`Vdisk::pack_fill`].
const EIGHTH: u64 = crate::vdisk::pack::WHOLE / 8;
/// How long it rests where nothing can be done.
const RESTS: Nanos = Nanos::secs(1);

/// How long nobody has asked for anything.
pub(super) struct Lull {
    /// How many requests there had been when it was looked at last.
    pub asked: u64,
    since: Nanos,
}

impl Lull {
    /// Begins one now.
    pub fn begin(store: &Store) -> Lull {
        Lull { asked: store.traffic.requests.get(), since: store.world.now() }
    }

    /// Whether nobody has asked for anything for a while.
    pub fn lasts(&mut self, store: &Store) -> bool {
        if store.traffic.requests.get() != self.asked {
            *self = Lull::begin(store);
        }
        store.world.now().since(self.since) >= store.tuning.idle_land
    }
}

/// Moves what is packed, until the pool stops or fails.
pub async fn mover(pool: Rc<Pool>) {
    let store = pool.store.clone();
    let mut lull = Lull::begin(&store);
    loop {
        let packed = store.signals.packed.changed();
        if store.stopping.get() || store.is_closing() || store.log.failure().is_some() {
            return;
        }
        store.drop_packs();
        let idle = lull.lasts(&store);
        let vdisks = pool.vdisks();
        if vdisks.iter().all(|vdisk| vdisk.packed().0 == 0) {
            // Somebody may still read what was in the old one.
            let is_recast = vdisks.iter().any(|vdisk| vdisk.is_recast());
            let scattered: Vec<Rc<Vdisk>> = vdisks.into_iter().filter(|vdisk| vdisk.is_to_be_ordered()).collect();
            match (scattered.is_empty(), idle) {
                (true, _) if !is_recast => packed.await,
                (true, _) => store.world.sleep(RESTS).await,
                (false, false) => store.world.sleep(store.tuning.idle_land.min(RESTS)).await,
                (false, true) => order(&store, &scattered, lull.asked).await,
            }
            continue;
        }
        let mut moved = 0;
        for vdisk in &vdisks {
            if !idle && !moves_beside_clients(vdisk) || vdisk.packed().0 == 0 {
                vdisk.forget_packed_ahead();
                continue;
            }
            if !is_due(vdisk, HURRIES) && !has_to_leave(vdisk) {
                until_relieved(&store).await;
            }
            let began = store.world.now();
            if vdisk.has_thin_packs() {
                vdisk.repack(&store.traffic.budgets.merges, By::Anybody).await;
            }
            moved += vdisk.move_down(&store.traffic.budgets.merges, By::Anybody).await;
            if !idle {
                store.world.sleep(pause(vdisk, store.world.now().since(began))).await;
            }
        }
        if moved == 0 {
            store.world.sleep(store.tuning.idle_land.min(RESTS)).await;
        }
    }
}

/// Puts something of each in order, as long as there have been no more than `asked` requests; or rests, where nothing
/// can be done.
async fn order(store: &Store, vdisks: &[Rc<Vdisk>], asked: u64) {
    let mut goes_on = false;
    for vdisk in vdisks {
        goes_on |= vdisk.put_in_order(&store.traffic.budgets.merges, asked).await == Ordered::GoesOn;
    }
    match goes_on {
        true => store.pause().await,
        false => store.world.sleep(store.tuning.idle_land.min(RESTS)).await,
    }
}

/// Waits while the log's keeper takes a checkpoint for which clients will wait soon: it has the disks for itself.
async fn until_relieved(store: &Store) {
    let is_awaited = || {
        let (used, ring) = store.log.fill();
        store.log.lets_through() && used > ring / 16 * 7
    };
    store.log.moved.until(|| !is_awaited()).await;
}

/// How long clients have the disks for themselves after the mover had them for `took`. The fuller the packed stripes,
/// the shorter: so there is a fill at which what comes and what is moved are the same, and no second is unlike the
/// next.
fn pause(vdisk: &Vdisk, took: Nanos) -> Nanos {
    if has_to_leave(vdisk) {
        return took;
    }
    let (fill, whole) = (vdisk.pack_fill(), EIGHTH * 8);
    let (over, under) = ((fill * 8).saturating_sub(whole * BEGINS), (whole * HURRIES).saturating_sub(fill * 8));
    Nanos((took.0 as u128 * under as u128 / over.max(1) as u128).min(RESTS.0 as u128) as u64)
}

/// Whether what lies packed is moved although clients ask for something.
pub(super) fn moves_beside_clients(vdisk: &Vdisk) -> bool {
    is_due(vdisk, BEGINS) || has_to_leave(vdisk)
}

/// Whether what lies packed is to leave, whoever else wants the disks.
fn has_to_leave(vdisk: &Vdisk) -> bool {
    vdisk.drains() || vdisk.packs_are_in_the_way()
}

/// Whether so many eighths of what a virtual disk may have packed are in use.
fn is_due(vdisk: &Vdisk, eighths: u64) -> bool {
    vdisk.pack_fill() >= EIGHTH * eighths
}

impl Pool {
    /// Moves down what is packed now, as far as that can be done. Says how many stripes were.
    pub fn move_everything_down(&self) -> LocalBoxFuture<'_, usize> {
        Box::pin(async move {
            let mut moved = 0;
            for vdisk in self.vdisks() {
                let mut left = vdisk.packed().0;
                while left > 0 && vdisk.move_down(&self.store.traffic.budgets.merges, By::Anybody).await > 0 {
                    moved += 1;
                    left = left.min(vdisk.packed().0.saturating_sub(1));
                }
            }
            moved
        })
    }
}
