//! The tasks that make room before anybody has to wait for it long: one in the log, one in memory and among the
//! stripes. And the one that keeps the log and the votes on the disks that are best for them.
//!
//! Invariants
//! 1. The log's keeper waits for nothing that waits for room in the log: it destages landed stripes only, and those
//!    have a reserve of the ring and a queue of their own (`Room::Destage`), and memory of their own. Where even that
//!    reserve is full, it moves the oldest landed data to the log's head, for which the log keeps room in any case
//!    (invariant 4 of `log.rs`).
//! 2. No keeper goes round without waiting, or without having made what is left to do smaller. Where what cannot leave
//!    holds the log, its keeper rests until that changes, and who waits for room is told (`vdisk/pins.rs`).

use super::Pool;
use crate::error::Result;
use crate::exec::LocalBoxFuture;
use crate::mutant::{self, Mutant};
use crate::units::{Nanos, VdiskNo};
use crate::vdisk::Vdisk;
use crate::vdisk::destage::{By, each_of};
use alloc::boxed::Box;
use alloc::rc::Rc;
use alloc::vec::Vec;

/// The part of the ring that is emptied in one go, as a divisor: small, so that nobody waits long for the tail to move.
const STEP: u64 = 32;
/// What is emptied in one go where that holds few stripes, because much of each landed: so many that the checkpoint
/// after them hardly counts ...
const STEP_STRIPES: usize = 256;
/// ... but no more than this part of the ring, as a divisor.
const STEP_MAX: u64 = 8;

/// The part of the ring that emptying it has to gain where some of it cannot leave, as a divisor.
const GAIN_MIN: u64 = 8;

/// Emptying the log once round, since it last gained a step, be it that clients have had it since.
struct Round {
    /// Bytes in use then.
    used: u64,
    /// Where the tail was.
    tail: u64,
    /// Bytes that had landed.
    landed: u64,
}

/// Relieves the log whenever it fills, until the pool stops or fails.
pub async fn log_keeper(pool: Rc<Pool>) {
    pool.store.log.let_through(false);
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

/// Lets the log and the votes move whenever that is for the better, and what was lost before it was durable gather
/// again, until the pool stops or fails.
pub async fn metadata_keeper(pool: Rc<Pool>) {
    loop {
        let changed = pool.store.signals.work.changed();
        if pool.store.stopping.get() || pool.store.log.failure().is_some() {
            return;
        }
        pool.vdisks().iter().for_each(Vdisk::gather_lost);
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
            store.start_follower();
            // Each takes the votes one step further.
            self.checkpoint().await?;
            if before == (store.loggers(), store.voters()) {
                break;
            }
        }
        store.start_follower();
        Ok(())
    }

    async fn relieve_log(&self) -> Result<()> {
        let store = &self.store;
        let mut round = Round { used: store.log.fill().0, tail: store.log.live().0, landed: self.count_landed() };
        loop {
            let (used, ring) = store.log.fill();
            let full = used > ring / 8 * 3;
            let pins = if full { self.count_pins() } else { 0 };
            let pinned = pins > 0 && self.is_in_vain(&mut round, pins);
            store.note_pinned(pinned);
            let full = full && !pinned;
            if !full && !store.has_too_many_dirty_pages() {
                return Ok(());
            }
            // What frees it must not wait for anything then.
            let (tight, (tail, _)) = (full && used > ring / 16 * 11, store.log.live());
            if tight {
                // Stripes would have to wait for room to be committed.
                let least = store.log.seq_within(ring / STEP);
                let oldest = self.landings_below(|_, seq| seq < least);
                oldest.into_iter().for_each(|(vdisk, stripe)| self.move_landed(vdisk, stripe, least));
            } else if full {
                // The oldest of what pins the log's tail goes to stripes; then the tail can move.
                let (least, most) = (store.log.seq_after(ring / STEP), store.log.seq_after(ring / STEP_MAX));
                let oldest = self.landings_below(|nth, seq| seq < least || nth < STEP_STRIPES && seq < most);
                self.destage_all(oldest, For::Log(most)).await;
            }
            store.log.let_through(true);
            let taken = self.pass_packs().await;
            store.log.let_through(false);
            taken?;
            store.trim_pages();
            // It goes on only where that has brought something. Landed data that moves fills again what it frees, but
            // less than that.
            let moved = (tight || pins > 0) && store.log.live().0 > tail;
            if !full || store.log.fill().0 >= used && !moved {
                return Ok(());
            }
            if pins > 0 {
                // Who waits for what was freed goes first, or what moves next would have it.
                store.world.sleep(Nanos::millis(1)).await;
            }
        }
    }

    /// Whether nothing is to be gained by going on with `round`: `pins` bytes of the log cannot leave it.
    fn is_in_vain(&self, round: &mut Round, pins: u64) -> bool {
        let (store, changes) = (&self.store, self.store.signals.changes.get());
        let ((used, ring), (tail, _), landed) = (store.log.fill(), store.log.live(), self.count_landed());
        let busy = !mutant::active(Mutant::BusyLogIsInVain);
        if busy && (used + ring / STEP <= round.used || landed.saturating_sub(round.landed) >= ring / STEP) {
            *round = Round { used, tail, landed };
        }
        // What waits for disks that have just gone is not known to be among what cannot leave.
        let state = [changes, pins, store.awaits_disks().into()];
        if tail - round.tail >= ring {
            store.signals.gone_round.set(Some((state, used, landed)));
        }
        let same = |(then, left, had): ([u64; 3], u64, u64)| {
            then == state && (!busy || used <= left + ring / STEP && landed.saturating_sub(had) < ring / STEP)
        };
        // What is left would not do for much, and nobody waits for it who pins nothing.
        let little = used.saturating_sub(pins) < ring / GAIN_MIN;
        let waits = || self.vdisks().iter().any(|vdisk| vdisk.flushes_without_pins());
        let in_vain = store.signals.gone_round.get().is_some_and(same) || little && !waits();
        in_vain && !mutant::active(Mutant::PinsMoveForEver)
    }

    /// Bytes that flushes have landed since the pool was opened, by the virtual disks that there are.
    fn count_landed(&self) -> u64 {
        self.vdisks().iter().map(|vdisk| vdisk.counters.landed.get()).sum()
    }

    /// Bytes that the log holds of what cannot leave. Moved to the head it would fill again what that frees, round
    /// after round, for as long as disks are away.
    fn count_pins(&self) -> u64 {
        self.vdisks().iter().map(|vdisk| vdisk.count_pins()).sum()
    }

    /// Takes a checkpoint, after which no record of a packed stripe is in the way of as much as is emptied in one go.
    async fn pass_packs(&self) -> Result<()> {
        let (log, step) = (&self.store.log, self.store.log.fill().1 / STEP_MAX);
        self.store.relist_packs(log.seq_after(step), log.seq_after(step / 2 * 3)).await?;
        self.checkpoint().await
    }

    /// Stripes with landed data, the oldest first, as long as their place among them and their oldest log record are to
    /// be `taken`.
    fn landings_below(&self, taken: impl Fn(usize, u64) -> bool) -> Vec<(VdiskNo, u64)> {
        let landings = self.store.commits.landings.borrow();
        let oldest = landings.iter().enumerate().take_while(|(nth, (seq, ..))| taken(*nth, *seq));
        oldest.map(|(_, (_, vdisk, stripe))| (*vdisk, *stripe)).collect()
    }

    fn move_landed(&self, vdisk: VdiskNo, stripe: u64, bound: u64) {
        let vdisk: Option<Rc<Vdisk>> = self.vdisks.borrow().get(&vdisk).cloned();
        if let Some(vdisk) = vdisk {
            vdisk.move_landed(stripe, bound);
        }
    }

    async fn relieve_memory(&self) -> Result<()> {
        let store = &self.store;
        let buffers = &store.traffic.budgets.buffers;
        loop {
            // Sealed stripes leave by themselves. To merge partial ones only because many are on their way would cost
            // reads, and tear the stripe that a stream is just filling; unless somebody waits, and nothing leaves by
            // itself.
            let (limit, used, in_flight) = (buffers.limit(), buffers.used(), store.commits.in_flight.get());
            let partial = used.saturating_sub(in_flight);
            let full = used >= limit / 8 * 7 && partial >= limit / 2;
            let pressed = full || buffers.is_wanted() && in_flight == 0 && partial > 0;
            // Whatever could not be merged is set aside, so that this ends.
            if pressed && self.destage_oldest().await {
                continue;
            }
            if pressed || buffers.has_stuck() {
                self.note_stuck(pressed);
            }
            break;
        }
        if store.signals.wants_packing.replace(false) {
            self.pack_oldest().await;
        }
        if store.signals.wants_stripes.replace(false) {
            self.relieve_stripes().await?;
        }
        Ok(())
    }

    /// Packs what gathers, but for the quarter that was touched last: there streams may go on.
    async fn pack_oldest(&self) {
        let mut oldest = Vec::new();
        for vdisk in self.vdisks() {
            let gathering = vdisk.mergeable();
            oldest.extend(gathering.iter().take(gathering.len() / 4 * 3).map(|stripe| (vdisk.id(), *stripe)));
        }
        oldest.sort_unstable();
        self.pack_all(oldest, For::Memory).await;
        self.store.signals.room.notify();
    }

    /// Has everything leave that may leave a free stripe behind, for a write that waits for one. Where some come
    /// anyway, that is done again only once something has changed: who waits, and what is tried in vain, wake each
    /// other.
    async fn relieve_stripes(&self) -> Result<()> {
        let store = &self.store;
        let comes = || self.vdisks().iter().any(|vdisk| vdisk.awaits_places());
        let in_vain = store.signals.relieved_at.get() == Some(self.state_of_room());
        if comes() && in_vain && !mutant::active(Mutant::RelievesInVain) {
            return Ok(());
        }
        let everything = self
            .vdisks()
            .iter()
            .flat_map(|vdisk| vdisk.gathering().into_iter().map(|stripe| (vdisk.id(), stripe)))
            .collect();
        self.destage_all(everything, For::Memory).await;
        store.make_logged(store.log.seq()).await?;
        for vdisk in self.vdisks().into_iter().filter(|vdisk| vdisk.is_stacked()) {
            // What is hidden is let go of whether a job runs or not.
            let _ = vdisk.let_go(0..u64::MAX).await;
        }
        if self.move_everything_down().await > 0 {
            // What it replaced is void, and then free.
            store.make_logged(store.log.seq()).await?;
            store.make_logged(store.log.seq()).await?;
        }
        store.signals.reliefs.set(store.signals.reliefs.get() + 1);
        store.signals.relieved_at.set(Some(self.state_of_room()));
        // What still comes wakes the waiting writer by itself; to wake it before would be to spin.
        if !comes() {
            store.signals.room.notify();
        }
        Ok(())
    }

    /// What there is of what may become free places: equal as long as nothing has come, or changed.
    fn state_of_room(&self) -> [u64; 6] {
        let (store, log) = (&self.store, &self.store.log);
        let (gathers, in_flight) = (store.traffic.budgets.buffers.used(), store.commits.in_flight.get());
        let freeing = store.map.borrow().count_freeing() as u64;
        [log.seq(), log.durable(), gathers, in_flight, freeing, store.signals.changes.get()]
    }

    /// Has everything that gathers leave, as far as it can.
    pub fn destage_everything(&self) -> LocalBoxFuture<'_, ()> {
        Box::pin(async move {
            let all = self.vdisks();
            let all = all.iter().flat_map(|vdisk| vdisk.gathering().into_iter().map(|stripe| (vdisk.id(), stripe)));
            let all = all.collect();
            self.destage_all(all, For::Memory).await;
        })
    }

    /// Notes how much is held by stripes that cannot be merged. `pressed`, and all as it was: whoever waits to add to
    /// them waits in vain.
    fn note_stuck(&self, pressed: bool) {
        let store = &self.store;
        let stuck = self.vdisks().iter().map(|vdisk| vdisk.count_stuck()).sum();
        let waits = self.vdisks().iter().any(|vdisk| vdisk.waits_since().is_some());
        let vain = pressed && store.commits.in_flight.get() == 0 && !waits;
        if store.traffic.budgets.buffers.note_stuck(stuck, vain.then_some(store.signals.changes.get())) {
            store.signals.room.notify();
        }
    }

    /// Destages the buffers that were not touched for the longest time, a quarter of them. `false`: there are none that
    /// can be.
    async fn destage_oldest(&self) -> bool {
        let mut oldest = Vec::new();
        for vdisk in self.vdisks() {
            let gathering = vdisk.mergeable();
            oldest.extend(gathering.iter().take(gathering.len() / 4 + 1).map(|stripe| (vdisk.id(), *stripe)));
        }
        let some = !oldest.is_empty();
        self.destage_all(oldest, For::Memory).await;
        some
    }

    /// Destages stripes in the order in which they lie on their virtual disks: neighbours there are mostly neighbours
    /// on the disks.
    async fn destage_all(&self, mut stripes: Vec<(VdiskNo, u64)>, why: For) {
        stripes.sort_unstable();
        self.pass_by(&mut stripes, why);
        let mut stripes = self.pack_all(stripes, why).await;
        // Some are in flight by now: others pack, too.
        self.pass_by(&mut stripes, why);
        each_of(stripes, |(vdisk, stripe)| self.destage(vdisk, stripe, why)).await;
    }

    /// Takes out what is short and waits for a version of it that is in flight: while the mover is at work there are
    /// always some, and to wait for its batches would be to wait for all of the disks. In the log it moves to the head.
    fn pass_by(&self, stripes: &mut Vec<(VdiskNo, u64)>, why: For) {
        let For::Log(bound) = why else { return };
        if mutant::active(Mutant::ShortWaitsForMover) {
            return;
        }
        let vdisks = self.vdisks.borrow();
        stripes.retain(|(vdisk, stripe)| {
            let Some(vdisk) = vdisks.get(vdisk).filter(|vdisk| vdisk.is_packable_soon(*stripe, bound)) else {
                return true;
            };
            vdisk.move_landed(*stripe, bound);
            false
        });
    }

    /// Packs what can be packed of `stripes`. Returns the others.
    async fn pack_all(&self, stripes: Vec<(VdiskNo, u64)>, why: For) -> Vec<(VdiskNo, u64)> {
        let mut rest = Vec::new();
        for group in stripes.chunk_by(|a, b| a.0 == b.0) {
            let of: Vec<u64> = group.iter().map(|(_, stripe)| *stripe).collect();
            let vdisk: Option<Rc<Vdisk>> = self.vdisks.borrow().get(&group[0].0).cloned();
            let budgets = &self.store.traffic.budgets;
            let left = match vdisk {
                Some(vdisk) if vdisk.waits_since().is_none() => match why {
                    For::Memory => vdisk.pack(of, &budgets.merges, By::Anybody).await,
                    For::Log(_) => vdisk.pack(of, &budgets.log_merges, By::LogKeeper).await,
                },
                _ => of,
            };
            rest.extend(left.into_iter().map(|stripe| (group[0].0, stripe)));
        }
        rest
    }

    async fn destage(&self, vdisk: VdiskNo, stripe: u64, why: For) {
        let vdisk: Option<Rc<Vdisk>> = self.vdisks.borrow().get(&vdisk).cloned();
        let Some(vdisk) = vdisk else { return };
        let budgets = &self.store.traffic.budgets;
        match why {
            // It waits for disks: to wait for it would be to wait for them. Its landed data moves on with the log.
            _ if vdisk.waits_since().is_some() => {
                if let For::Log(bound) = why {
                    vdisk.move_landed(stripe, bound);
                }
            }
            For::Memory => {
                vdisk.merge_or_set_aside(stripe, &budgets.merges, By::Anybody).await;
            }
            For::Log(bound) => {
                // What cannot be merged (its old blocks are lost) stays in its buffer. In the log it moves to the head,
                // or it would keep everything behind it there, too.
                if !vdisk.is_set_aside(stripe) {
                    vdisk.merge_or_set_aside(stripe, &budgets.log_merges, By::LogKeeper).await;
                }
                vdisk.move_landed(stripe, bound);
            }
        }
    }
}

/// What stripes are destaged for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum For {
    Memory,
    /// What landed in records below this one is to leave the log.
    Log(u64),
}
