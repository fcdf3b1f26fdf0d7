//! A write, from arrival to the disks. The story, in the order of the code:
//!
//! 1. The gate judges the request once.
//! 2. Its bytes are copied into the buffers of the stripes they fall in (`vdisk/gather.rs`). The write is complete now:
//!    the cache is volatile until a flush.
//! 3. A stripe that is whole is sealed: parity is computed, and it queues for the disks. That of a client who flushes
//!    after every little waits for others (`vdisk/hold.rs`).
//! 4. Queued stripes leave in runs, by their addresses: consecutive free stripes of one segment, one call per column
//!    for the whole run, all columns at once. No reads.
//! 5. When the columns are written, one step makes it true: checksums and table are changed and the commit record is
//!    appended. The old place is free once that record is durable (see `store/commit.rs` for the order).

use super::{Gathering, Queue, Vdisk};
use crate::error::Result;
use crate::log::Room;
use crate::mutant::{self, Mutant};
use crate::segment::{Map, commit_record};
use crate::store::execute::Target;
use crate::store::limbo::{Fresh, StripeOf};
use crate::store::lost;
use crate::stripe::buffer::StripeBuffer;
use crate::stripe::sealed::{Home, Sealed};
use crate::stripe::table::Place;
use crate::units::{ByteCount, Nanos, TableNo, VirtualOffset};
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::rc::{Rc, Weak};
use alloc::vec::Vec;

/// Runs that begin without enough stripes to fill them.
const RUNS_AT_LEAST: usize = 2;
/// How often a run is tried again at most while all disks are there.
const TRIES: u32 = 100;
/// How often whole stripes that wait for disks look for them.
pub(super) const RETRY: Nanos = Nanos::millis(100);

impl Vdisk {
    /// Writes `data` at `offset`. It is durable after a later flush, or on return if `fua`.
    pub async fn write(self: &Rc<Self>, offset: VirtualOffset, data: &[u8], fua: bool) -> Result<()> {
        let _pass = self.enter().await;
        // What is admitted is begun in the same step.
        let _held = self.store.traffic.budgets.writes.take(data.len() as u64).await;
        self.admit_write(offset, data.len())?;
        self.count([&self.counters.writes, &self.counters.written], offset, data.len() as u64);
        self.hold_wrote(data.len() as u64);
        for (stripe, at, range) in self.pieces(offset, data.len()) {
            self.gather(stripe, at, &data[range], true).await?;
        }
        self.start_idle_timer();
        match fua {
            true => self.persist(self.pieces(offset, data.len()).map(|(stripe, ..)| stripe).collect()).await,
            false => Ok(()),
        }
    }

    /// Seals `stripe` if it is whole and no older version of it is in flight.
    pub(super) fn seal_if_whole(self: &Rc<Self>, stripe: u64) {
        let mut stripes = self.stripes.borrow_mut();
        let Some(gathering) = stripes.get_mut(&stripe) else { return };
        // A blank one is about to be unmapped.
        let leaves = |buffer: &mut StripeBuffer| buffer.is_whole() && !buffer.is_blank();
        let none_flies = gathering.in_flight.is_none();
        let Some(buffer) = gathering.filling.take_if(|buffer| none_flies && leaves(buffer)) else { return };
        let home = self.home_of(&buffer);
        let sealed = Rc::new(buffer.seal(self.store.log.seq(), home));
        self.store.in_flight_changed(sealed.charged() as i64);
        let room = room_for(&sealed);
        gathering.in_flight = Some(sealed);
        drop(stripes);
        self.queue_for(room).stripes.borrow_mut().push_back(stripe);
        self.pump(room);
    }

    pub(super) fn queue_for(&self, room: Room) -> &Queue {
        if room == Room::Destage { &self.landed_queue } else { &self.queue }
    }

    /// Sends queued stripes to the disks, as many runs at once as may be. A run takes its stripes only when it begins:
    /// what becomes whole in the same moment leaves in order. While others are on their way, it is worth waiting for a
    /// full one.
    fn pump(self: &Rc<Self>, room: Room) {
        let queue = self.queue_for(room);
        let per_run = (self.store.tuning.run_bytes / self.layout().interleave().0).max(1) as usize;
        while queue.runs.get() < self.store.tuning.runs_in_flight {
            let free = queue.len().saturating_sub(queue.begun.get() * per_run);
            if free == 0 || free < per_run && queue.runs.get() >= RUNS_AT_LEAST {
                return;
            }
            queue.runs.set(queue.runs.get() + 1);
            queue.begun.set(queue.begun.get() + 1);
            let vdisk = self.clone();
            self.store.world.spawn("stripe run", Box::pin(async move { vdisk.write_run(per_run, room).await }));
        }
    }

    async fn write_run(self: Rc<Self>, per_run: usize, room: Room) {
        let queue = self.queue_for(room);
        queue.begun.set(queue.begun.get() - 1);
        let run = queue.take(per_run);
        if !run.is_empty() {
            self.write_or_wait(run, room).await;
        }
        queue.runs.set(queue.runs.get() - 1);
        self.pump(room);
        self.moved.notify();
        self.store.signals.room.notify();
    }

    /// Writes a run. While it can be written nowhere for want of disks, it stays in memory and waits for them; it is
    /// abandoned only where none is missing, or where nobody can wait any longer.
    async fn write_or_wait(self: &Rc<Self>, mut run: Vec<u64>, room: Room) {
        let mut in_vain = 0;
        let queued = run.iter().map(|stripe| (*stripe, self.in_flight(*stripe).as_ref().map(Rc::downgrade)));
        let queued: BTreeMap<u64, _> = queued.collect();
        loop {
            let changes = self.store.signals.changes.get();
            let Err(error) = self.write_stripes(&run, room).await else { break };
            // A newer version of a stripe that is down may fly in another run: that is none of this one's business.
            run.retain(|stripe| {
                let queued = queued[stripe].as_ref().map_or(core::ptr::null(), Weak::as_ptr);
                self.in_flight(*stripe).is_some_and(|now| Rc::as_ptr(&now) == queued)
            });
            // Disks that went meanwhile may be back already.
            let changed = self.store.signals.changes.get() != changes && in_vain < TRIES;
            in_vain = if self.store.misses_disks() { 0 } else { in_vain + 1 };
            self.waiting.set(self.waiting.get() + 1);
            let goes_on = self.wait_for_disks(changed).await;
            self.waiting.set(self.waiting.get() - 1);
            if !goes_on {
                self.abandon(&run, error);
                break;
            }
        }
        self.stuck.set(None);
    }

    /// Waits until something changes about the disks, or a moment only, if something has `changed`. `false`: it is no
    /// use to wait.
    async fn wait_for_disks(&self, changed: bool) -> bool {
        let changes = self.store.signals.changes.get();
        let since = self.stuck.get().unwrap_or_else(|| self.store.world.now());
        self.stuck.set(Some(since));
        // Whoever waits for stripes of this disk waits for disks now.
        self.moved.notify();
        loop {
            let away = self.store.members.borrow().values().any(|member| member.disk.is_none());
            let over = self.store.is_timeout_over(since);
            if !(away || changed) || self.store.is_closing() || self.removed.get() || self.store.log.failure().is_some()
            {
                return false;
            }
            if over {
                self.moved.notify();
                self.store.signals.room.notify();
                self.store.log.moved.notify();
            }
            self.store.world.sleep(RETRY).await;
            if changed || self.store.signals.changes.get() != changes {
                return true;
            }
        }
    }

    async fn write_stripes(self: &Rc<Self>, run: &[u64], room: Room) -> Result<()> {
        let sums = self.most_sums();
        let log_len = run.len() as u64 * (64 + sums as u64 * 4);
        self.reserve_for(log_len, room).await?;
        let written = self.write_by_home(run, room).await;
        self.store.log.unreserve(log_len);
        written
    }

    /// Writes stripes to places of one table, which they have claims to. Those that are not in flight any more were
    /// written by an earlier attempt.
    pub(super) async fn write_home(self: &Rc<Self>, home: Home, stripes: &[u64], room: Room) -> Result<()> {
        let mut rest = stripes;
        while !rest.is_empty() {
            let (place, count) = self.take_stripes(home.table, rest.len() as u32).await?;
            let (now, later) = rest.split_at(count as usize);
            rest = later;
            let _turn = self.store.await_turn(place, count, room, || self.is_flushed()).await;
            self.write_part(place, now).await?;
        }
        Ok(())
    }

    /// Waits for room in the log. Whoever empties the log is told, and does not wait for these stripes.
    async fn reserve_for(&self, len: u64, room: Room) -> Result<()> {
        if self.store.log.has_room(len, room) {
            return self.store.log.reserve(len, room).await;
        }
        let held = &self.queue_for(room).held;
        held.set(held.get() + 1);
        self.moved.notify();
        let refused = || self.check_there().and_then(|()| self.store.check_not_closing());
        let reserved = self.store.log.reserve_unless(len, room, refused).await;
        held.set(held.get() - 1);
        reserved
    }

    /// Takes up to `count` free stripes. Where all of them are in segments whose move ends just now, it waits for that.
    async fn take_stripes(&self, table: TableNo, count: u32) -> Result<(Place, u32)> {
        loop {
            let mut records = Vec::new();
            let taken = self.store.map.borrow_mut().take_stripes(table, count, &mut records);
            self.store.append_all(records);
            if taken.is_ok() || !self.store.map.borrow().is_frozen(table) {
                return taken;
            }
            self.store.pause().await;
        }
    }

    /// Writes stripes to consecutive places from `place` on, and commits them.
    async fn write_part(self: &Rc<Self>, place: Place, stripes: &[u64]) -> Result<()> {
        let sealed: Vec<Rc<Sealed>> = stripes.iter().filter_map(|stripe| self.in_flight(*stripe)).collect();
        assert_eq!(sealed.len(), stripes.len(), "a queued stripe is in flight until it is committed");
        let Some(target) = Target::new(&self.store, place) else {
            self.store.map.borrow_mut().end_write(place, stripes.len() as u32);
            return Err(lost(format!("segment {} is gone", place.segment)));
        };
        let layout = target.layout;
        let written = self.store.write_places(place, &sealed).await;
        let flushed = self.store.flushes_first(&written, &sealed);
        if flushed && !mutant::active(Mutant::MergedUnflushed) {
            self.store.flush_written(core::iter::once(&written)).await;
        }
        let missed = if flushed { written.lacking(&self.store) } else { written.missed() };
        let missing = missed.count_ones() as usize;
        if missing > layout.failures() {
            // Never committed, so never read: the places can be used again at once.
            self.store.give_up(place, stripes.len() as u32);
            return self.write_elsewhere(place, stripes, missing).await;
        }
        let _held = match self.store.load_for_commit(self.table(), stripes, place).await {
            Ok(held) => held,
            Err(error) => {
                self.store.give_up(place, stripes.len() as u32);
                return Err(error);
            }
        };
        // No await from here on: one step makes it true. What these slots lack is on record before the stripes are.
        let gone = |slot: &usize| !target.slabs[*slot].is_some_and(|at| self.store.has_disk(at.disk));
        let missed = (0..layout.slots()).filter(gone).fold(missed, |set, slot| set | 1 << slot);
        if !mutant::active(Mutant::MissedStripsForgotten) {
            self.store.note_missed(place.segment, missed);
        }
        for (nth, (stripe, sealed)) in stripes.iter().zip(&sealed).enumerate() {
            self.commit(*stripe, sealed, Place { index: place.index + nth as u32, ..place }, flushed);
        }
        self.store.map.borrow_mut().end_write(place, stripes.len() as u32);
        self.store.stripes_written(layout.interleave().0 * stripes.len() as u64);
        if self.store.has_too_many_dirty_pages() {
            self.store.log.pressure.notify();
        }
        if mutant::active(Mutant::ReuseBeforeCommit) {
            self.store.release_freed(u64::MAX);
        }
        Ok(())
    }

    /// Disks failed under a write. Where other disks can take it, they do.
    async fn write_elsewhere(self: &Rc<Self>, place: Place, stripes: &[u64], missing: usize) -> Result<()> {
        let mut records = Vec::new();
        let Some(table) = self.store.map.borrow().segments.get(&place.segment).map(|found| found.record.owner) else {
            return Err(lost(format!("segment {} is gone", place.segment)));
        };
        let layout = self.store.map.borrow().tables[&table].record.layout;
        let healthy = {
            let mut map = self.store.map.borrow_mut();
            let better = map.has_healthy_beside(table, place.segment);
            let made = |map: &mut Map, records: &mut Vec<_>| {
                map.can_place_whole(table)
                    && map.new_segment(table, records).is_ok_and(|id| map.is_healthy(&map.segments[&id]))
            };
            better || made(&mut map, &mut records)
        };
        self.store.append_all(records);
        if !healthy {
            return Err(lost(format!("{missing} disks of a stripe failed, {} survives {}", layout, layout.failures())));
        }
        let mut rest = stripes;
        while !rest.is_empty() {
            let (place, count) = self.take_stripes(table, rest.len() as u32).await?;
            let (now, later) = rest.split_at(count as usize);
            rest = later;
            Box::pin(self.write_part(place, now)).await?;
        }
        Ok(())
    }

    /// Makes a written stripe the truth. Synchronous.
    fn commit(self: &Rc<Self>, stripe: u64, sealed: &Rc<Sealed>, place: Place, flushed: bool) {
        let sums = sealed.sums(place.segment, place.index);
        let table = self.table();
        let place = place.born(self.store.log.seq());
        self.store.set_sums(place, (table, stripe), &sums);
        let seq = self.store.log.append(&commit_record(table, stripe, place, sealed.retires(), &sums));
        let before = {
            let mut map = self.store.map.borrow_mut();
            let before = map.tables[&table].entry(stripe);
            map.commit(table, stripe, Some(place), seq);
            map.fine_replaced(table, stripe, seq);
            before
        };
        let stripe_of = StripeOf { table, stripe, vdisk: self.id };
        let (retires, copied) = (sealed.retires(), sealed.copied);
        let fresh = Fresh { seq, stripe: stripe_of, place, before, retires, landed: None, copied, flushed };
        let (landed, kept) = (sealed.landed_from(), self.forget_kept(stripe, sealed));
        let in_limbo = self.store.limbo.committed(fresh, sealed);
        // The record retires them all.
        [landed, kept, in_limbo].into_iter().for_each(|seq| self.store.relist(self.id, stripe, seq, None));
        self.note_tier(stripe, sealed);
        self.count_committed(table, stripe, sealed);
        self.is_down(stripe, sealed);
    }

    /// A stripe in flight is down: its buffers go, and what gathered meanwhile may follow.
    pub(super) fn is_down(self: &Rc<Self>, stripe: u64, sealed: &Sealed) {
        let mut stripes = self.stripes.borrow_mut();
        let gathering = stripes.get_mut(&stripe).expect("a stripe in flight has its buffers");
        gathering.in_flight = None;
        if gathering.filling.is_none() {
            stripes.remove(&stripe);
        }
        drop(stripes);
        self.note_landed(stripe);
        self.forget_sealed(sealed);
        self.moved.notify();
        self.seal_if_whole(stripe);
    }

    fn forget_sealed(&self, sealed: &Sealed) {
        if sealed.landed_in_flight.get() {
            self.landed_in_flight.set(self.landed_in_flight.get() - sealed.memory() as u64);
        }
        self.store.in_flight_changed(-(sealed.charged() as i64));
        self.store.buffered_changed(-(sealed.charged() as i64));
    }

    /// Stripes that can be written nowhere: the disk fails, and says so from now on.
    fn abandon(self: &Rc<Self>, run: &[u64], error: crate::error::Error) {
        self.failed.borrow_mut().get_or_insert(error);
        for stripe in run {
            if let Some(sealed) = self.in_flight(*stripe) {
                self.store.map.borrow_mut().unclaim(sealed.home().table);
                self.abandoned.borrow_mut().insert(*stripe);
                if sealed.landed_from().is_some() {
                    self.store.traffic.budgets.kept.add(sealed.memory() as u64);
                    self.kept.borrow_mut().insert(*stripe, sealed.clone());
                }
                let mut stripes = self.stripes.borrow_mut();
                if let Some(gathering) = stripes.get_mut(stripe) {
                    *gathering = Gathering { filling: gathering.filling.take(), in_flight: None };
                }
                drop(stripes);
                self.forget_sealed(&sealed);
            }
        }
    }

    /// A newer version than one that could be written nowhere is down: what the log holds of that one must not move on,
    /// and so come after it. Returns the oldest record of it.
    fn forget_kept(&self, stripe: u64, newer: &Sealed) -> Option<u64> {
        let kept = self.kept.borrow_mut().remove(&stripe)?;
        self.store.traffic.budgets.kept.give(kept.memory() as u64);
        newer.landed.borrow_mut().take_over(&kept.landed.borrow());
        kept.landed_from()
    }

    pub(super) fn in_flight(&self, stripe: u64) -> Option<Rc<Sealed>> {
        self.stripes.borrow().get(&stripe).and_then(|gathering| gathering.in_flight.clone())
    }

    /// Data that nobody flushes is landed once the disk has been idle for a while.
    pub(super) fn start_idle_timer(self: &Rc<Self>) {
        if self.idle_timer.replace(true) {
            return;
        }
        let vdisk = self.clone();
        let world = self.store.world.clone();
        world.spawn(
            "idle timer",
            Box::pin(async move {
                let idle = vdisk.store.tuning.idle_land;
                while vdisk.store.world.now().since(vdisk.touched.get()) < idle && !vdisk.store.stopping.get() {
                    vdisk.store.world.sleep(idle).await;
                }
                vdisk.idle_timer.set(false);
                if !vdisk.removed.get() && !vdisk.store.stopping.get() {
                    // A failure stays on record and is told at the next flush of a client.
                    let _ = vdisk.flush().await;
                    vdisk.release_held();
                }
            }),
        );
    }

    /// Bytes of user data per stripe.
    pub fn stripe_len(&self) -> ByteCount {
        self.layout().data_len()
    }
}

/// Which room in the log a stripe waits for that leaves.
pub(super) fn room_for(sealed: &Sealed) -> Room {
    if sealed.empties_log { Room::Destage } else { Room::Commit }
}
