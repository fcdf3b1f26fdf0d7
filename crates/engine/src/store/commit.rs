//! The one task that writes the log, and the order that must never be broken.
//!
//! Invariants
//! 1. Data before record: before a batch is written, what its records speak of is durable. Commits speak of their
//!    stripes: the disks that have unflushed strips in the segments of those are flushed, and no others. Stripes that
//!    were flushed before they were committed need none (`strips.rs`). Landed data is in the batch itself. Whatever
//!    else a record says (a stripe is packed, a slot has moved, a disk lacks nothing any more), whoever appends it has
//!    flushed before.
//! 2. Record before reuse: what a batch lets go of is free only after the batch is durable on every log disk that is
//!    left.
//! 3. A disk that did not take the data a batch speaks of is named as behind before the batch is written, or what it
//!    lacks is in that batch (`limbo.rs`).
//! 4. Membership before acknowledgement: if a disk was taken out, the labels say so before anything is called durable.
//! 5. While the pool is frozen no batch is written, and none that was being written is called durable (`freeze.rs`).
//! 6. No commit is durable whose stripe is not (`limbo.rs`).

use super::log_places::Planned;
use super::{Member, Store, join};
use crate::error::{ErrorKind, Result};
use crate::fail;
use crate::format::batch::{self, BatchHead};
use crate::io::IoSlice;
use crate::log::{BatchInfo, Taken};
use crate::mutant::{self, Mutant};
use crate::units::{BLOCK, DiskNo, Nanos};
use alloc::boxed::Box;
use alloc::collections::BTreeSet;
use alloc::rc::Rc;
use alloc::vec;
use alloc::vec::Vec;

/// Writes batches until the pool stops or fails.
pub async fn committer(store: Rc<Store>) {
    loop {
        let (some, now) = store.log.pending();
        let outdated =
            store.labels.outdated.get() && !store.read_only || store.limbo.is_due(store.signals.changes.get());
        let cut_short = store.commits.cut_short.borrow().is_some();
        if store.log.failure().is_some() || store.stopping.get() && !some && !outdated && !cut_short {
            return;
        }
        if store.limbo.is_undecided() {
            start_limbo_timer(&store);
        }
        if !store.limbo.is_empty() && !store.limbo.watch(true) {
            start_limbo_watch(&store);
        }
        let due = now || outdated || cut_short || some && store.stopping.get();
        if !due {
            let woken = store.log.wake.changed();
            if some {
                start_timer(&store);
            }
            woken.await;
            continue;
        }
        let (moved, changed) = (store.log.moved.changed(), store.signals.work.changed());
        match store.commit_once().await {
            Ok(true) => {}
            Ok(false) if store.log.failure().is_some() => return,
            // The ring is full, but for what is kept to free it: wait for a checkpoint to move the tail.
            Ok(false) => {
                store.log.pressure.notify();
                moved.await
            }
            // It is being closed while disks are missing: nobody waits for them, but they may come back all the same.
            Err(error) if error.kind == ErrorKind::Frozen && store.stopping.get() => return,
            Err(error) if error.kind == ErrorKind::Frozen => changed.await,
            Err(error) => store.fail(error),
        }
    }
}

/// Nobody waits for what is pending: commit it when the interval is over all the same.
fn start_timer(store: &Rc<Store>) {
    let interval = store.tuning.commit_interval;
    if store.log.timer_set() {
        return;
    }
    let store = store.clone();
    let world = store.world.clone();
    world.spawn(
        "commit timer",
        Box::pin(async move {
            // A commit that came for another reason meanwhile puts the next one off.
            let mut left = interval;
            while left > Nanos(0) && !store.stopping.get() {
                store.world.sleep(left).await;
                let due = store.commits.committed_at.get() + interval;
                left = due.since(store.world.now());
            }
            store.log.timer_done();
            store.log.demand();
        }),
    );
}

/// What is in limbo and could not be judged is looked at again, although no disk comes or goes: it may have been its
/// metadata that was not up to date.
fn start_limbo_timer(store: &Rc<Store>) {
    const LATER: Nanos = Nanos::millis(500);
    let store = store.clone();
    let world = store.world.clone();
    let later = async move {
        store.world.sleep(LATER).await;
        store.limbo.look_again();
        store.log.wake.notify();
        store.log.moved.notify();
    };
    world.spawn("limbo timer", Box::pin(later));
}

/// Writes that wait for memory, or for room in the log, wait for what is in limbo, and so for disks: they look again
/// whenever disks may have been waited for long enough.
fn start_limbo_watch(store: &Rc<Store>) {
    let store = store.clone();
    let world = store.world.clone();
    let pause = store.tuning.freeze_limit.max(Nanos::millis(100));
    let watch = async move {
        while !store.limbo.is_empty() && !store.stopping.get() {
            store.world.sleep(pause).await;
            store.signals.room.notify();
            store.log.moved.notify();
        }
        store.limbo.watch(false);
    };
    world.spawn("limbo watch", Box::pin(watch));
}

impl Store {
    /// Writes one batch. `Ok(false)`: the ring has no room for it.
    async fn commit_once(&self) -> Result<bool> {
        let _turn = self.commits.committing.take().await;
        self.thawed().await?;
        if let Some(taken) = self.commits.cut_short.take() {
            self.commit_taken(taken, Planned::default()).await?;
            return Ok(true);
        }
        self.settle_limbo().await;
        let seen = self.commits.comings_and_goings.get();
        let Some(bound) = self.log.next_batch() else {
            let nothing_pending = !self.log.pending().0;
            if self.labels.outdated.get() {
                self.write_labels().await?;
                return Ok(true);
            }
            return Ok(nothing_pending);
        };
        self.commits.uncommitted.set(0);
        self.commits.committed_at.set(self.world.now());
        if !mutant::active(Mutant::CommitBeforeData) {
            let mut disks = self.unflushed_below(bound);
            if mutant::active(Mutant::FlushForgetsDisk) {
                disks.pop();
            }
            self.flush_all(disks).await;
        }
        // What was lost with a disk is on record by now, above the bound: the batch is to have it, too. That disk may
        // be back, and count as one that was never away.
        let is_stale = || seen != self.commits.comings_and_goings.get() && !mutant::active(Mutant::NotesAfterCommits);
        if is_stale() {
            return Ok(true);
        }
        if !self.is_spread_announced() && self.plan_places(self.log.len_below(bound)).is_any() {
            self.announce_spread().await?;
        }
        self.withdraw_unsafe(bound).await;
        if self.labels.outdated.get() && !mutant::active(Mutant::NoLabelsBeforeAck) {
            // A disk was lost with strips that this batch speaks of: if the power goes now, it must not pass for one
            // that has them.
            self.write_labels().await?;
        }
        if is_stale() {
            return Ok(true);
        }
        let (planned, first) = (self.plan_places(self.log.len_below(bound)), self.log.earliest(None));
        let taken = self.log.take(bound, planned.position);
        self.log_goes_on(first, &taken);
        self.commit_taken(taken, planned).await?;
        Ok(true)
    }

    /// The disks that are to be flushed before the records below `bound` are written (invariant 1).
    fn unflushed_below(&self, bound: u64) -> Vec<DiskNo> {
        let mut disks = self.unflushed();
        if disks.is_empty() || mutant::active(Mutant::CommitsFlushAll) {
            return disks;
        }
        let committed = self.limbo.segments_below(bound);
        let members = self.members.borrow();
        disks.retain(|no| {
            let Member { touched, flushed, .. } = &members[no];
            committed.iter().any(|segment| touched.get(segment).is_some_and(|completed| completed > flushed))
        });
        disks
    }

    /// Writes a batch that was taken. One that is cut short, for the pool is being closed without its disks, is the
    /// next one again if they come back all the same, and not another one: some disks may have it.
    async fn commit_taken(&self, taken: Taken, planned: Planned) -> Result<()> {
        let crc = match self.write_batch(&taken, &planned).await {
            Ok(crc) => crc,
            Err(error) => {
                if !mutant::active(Mutant::CutBatchForgotten) {
                    *self.commits.cut_short.borrow_mut() = Some(taken);
                }
                return Err(error);
            }
        };
        self.flush_turn_ended();
        self.log.written(&taken, crc, self.log_places.last_end(&self.loggers()));
        self.limbo.durable(self.log.durable());
        self.settle_packs(self.log.durable());
        self.counters.batches.set(self.counters.batches.get() + 1);
        self.counters.log_bytes.set(self.counters.log_bytes.get() + batch::batch_len(taken.payload.len()));
        if !mutant::active(Mutant::ReuseBeforeCommit) {
            self.release_freed(self.log.durable());
        }
        Ok(())
    }

    /// Counts a batch that was taken, which could have begun at `first`.
    fn log_goes_on(&self, first: u64, taken: &Taken) {
        let ring = self.ring_len();
        // What is left of a round that another begins after is nobody's.
        let same_round = taken.info.position / ring == first / ring;
        let passed = if same_round { taken.info.position - first } else { 0 };
        self.log_places.gone_on(passed, batch::batch_len(taken.payload.len()), ring);
    }

    /// Makes free what records below `durable` let go of, and tells who waits for room.
    pub fn release_freed(&self, durable: u64) {
        let records = self.map.borrow_mut().release(durable);
        self.append_all(records);
        self.signals.drains.notify();
        self.signals.room.notify();
    }

    /// Writes the batch to every log disk and makes it durable there, labels included. Returns its CRC. While the pool
    /// is frozen it waits: disks that come back get the batch, too.
    async fn write_batch(&self, taken: &Taken, planned: &Planned) -> Result<u32> {
        let head = BatchHead {
            magic: [0; 8],
            pool_id: self.id.0,
            lineage: self.log.lineage(),
            number: taken.info.number,
            position: taken.info.position,
            first_seq: taken.info.first_seq,
            payload_len: 0,
            records: taken.records,
            chain: taken.info.chain,
            crc: 0,
        };
        let (buf, crc) = batch::encode(head, &taken.payload);
        let slice = buf.freeze();
        let mut have = BTreeSet::new();
        loop {
            self.thawed().await?;
            let lacking: Vec<DiskNo> = self.loggers().into_iter().filter(|no| !have.contains(no)).collect();
            let write = |no: &DiskNo| self.write_log(*no, &taken.info, planned, slice.clone());
            let took = join(lacking.iter().map(write)).await;
            have.extend(lacking.into_iter().zip(took).filter(|(_, took)| *took).map(|(no, _)| no));
            // Also when somebody else is just writing them: it waits for its turn, and so for them.
            if !mutant::active(Mutant::NoLabelsBeforeAck) {
                self.write_labels().await?;
            }
            let loggers = self.loggers();
            if loggers.is_empty() && self.frozen().is_none() {
                // Losses freeze the pool: nobody lost these, they were taken away.
                return fail!(Closed, "no disk is left to write the log to");
            }
            let all_have = loggers.iter().all(|no| have.contains(no)) || mutant::active(Mutant::BatchNotRepeated);
            if self.frozen().is_none() && all_have {
                self.follower.note(taken.info.position, slice);
                return Ok(crc);
            }
        }
    }

    /// Writes a batch to one log disk. Says whether it is durable there.
    async fn write_log(&self, no: DiskNo, batch: &BatchInfo, planned: &Planned, slice: IoSlice) -> bool {
        let began = self.world.now();
        let len = slice.len() as u64;
        let at = self.place_on(no, batch, len, planned);
        let to = self.log_offset(no, at);
        debug_assert!(to.is_multiple_of(BLOCK));
        self.count_logged(no, slice.len());
        // A failed write or flush takes the disk out; `loggers` no longer names it then.
        let unflushed = mutant::active(Mutant::LoggerUnflushed) && self.loggers().first() == Some(&no);
        let written = self.disk_write(no, to, vec![slice]).await.is_ok();
        let durable = written && (unflushed || self.disk_flush(no).await.is_ok());
        if durable {
            self.copy_durable(no, at..at + len, planned, began);
        }
        durable
    }

    /// Asks for a commit once enough was written since the last one; `per_disk` bytes more have been.
    pub fn stripes_written(&self, per_disk: u64) {
        let total = self.commits.uncommitted.get() + per_disk;
        self.commits.uncommitted.set(total);
        if total >= self.tuning.commit_bytes {
            self.log.demand();
        }
    }

    /// Waits for a while that a person would not notice.
    pub async fn pause(&self) {
        self.world.sleep(Nanos::millis(10)).await;
    }
}
