//! The log moves to other disks: to journal disks that come, from disks that go, to where a lost copy is replaced.
//!
//! The steps, in their order:
//! 1. while the log goes on, copy its live part to the disks that are to carry it and do not;
//! 2. hold the committer: no batch is written. Copy what came meanwhile, and flush;
//! 3. name the new set in the labels; let the committer go on.
//!
//! A crash before 3 leaves the old set, with everything; a crash during 3 one of the two, both with everything.
//!
//! Invariants
//! 1. A disk is named as carrying the log only once all of the live part is durable there.
//! 2. There are never fewer copies than before, but for those whose disks are lost, and where fast ones are enough:
//!    then one of the others follows (`follow.rs`).
//! 3. What is copied is proven: a batch that is damaged on one disk is taken from another.
//! 4. A disk that carries the log is written by the committer alone.

use super::Store;
use crate::disk_set::DiskSet;
use crate::error::Result;
use crate::event::Event;
use crate::format::batch::{BatchHead, decode_head, find_head, may_lie, verify};
use crate::io::{Buf, IoSlice};
use crate::log::{BatchInfo, Run};
use crate::units::{BLOCK, DiskNo};
use alloc::vec;
use alloc::vec::Vec;

/// Bytes that are copied with one call.
const PIECE: u64 = 1 << 20;
/// Step 1 is repeated until so little is left that nobody minds waiting for it, in bytes,
const LITTLE: u64 = 4 << 20;
/// but no more often than this.
const ROUNDS: usize = 4;

/// A disk that the log is copied to.
pub(super) struct Target {
    pub no: DiskNo,
    /// How often the disk had been lost when copying began: what was written before a loss counts for nothing.
    pub losses: u64,
    /// The live part up to this position is there.
    pub until: u64,
}

impl Store {
    /// Lets the log be carried by the disks that are best for it. Those that cannot be copied to stay without it.
    pub async fn move_log(&self) -> Result<()> {
        let moving = self.labels.moving.take().await;
        let have: DiskSet = self.loggers().into_iter().collect();
        let want = self.loggers_wanted(|_| true);
        if have == want || have.is_empty() {
            return Ok(());
        }
        let mut targets = self.targets(want - have);
        for _ in 0..ROUNDS {
            let (_, head) = self.log.live();
            if targets.iter().all(|target| head.saturating_sub(target.until) <= LITTLE) {
                break;
            }
            self.copy_to(&mut targets, head).await;
        }
        // The committer may be waiting for disks, and what follows the log be what it waits for.
        drop(moving);
        let _turn = self.commits.committing.take().await;
        let _moving = self.labels.moving.take().await;
        targets.retain(|target| !self.labels.loggers.get().contains(target.no));
        let (_, head) = self.log.live();
        self.copy_to(&mut targets, head).await;
        let mut carrying: DiskSet = self.loggers().into_iter().collect();
        for target in targets {
            let flushed = self.disk_flush(target.no).await.is_ok();
            if flushed && self.losses(target.no) == target.losses {
                carrying.insert(target.no);
            }
        }
        let next = self.loggers_wanted(|no| carrying.contains(no));
        // Also where copies are fewer than before because a disk was lost meanwhile.
        if !next.is_empty() && next != self.loggers().into_iter().collect() {
            self.labels.loggers.set(next);
            self.begin_to_follow(carrying);
            self.labels.outdated.set(true);
            self.write_labels().await?;
            let disks = next.iter().collect();
            self.world.emit(Event::LogMoved { disks });
        }
        Ok(())
    }

    fn targets(&self, set: DiskSet) -> Vec<Target> {
        let (tail, _) = self.log.live();
        let all = set.iter().inspect(|no| self.log_places.forget(*no));
        all.map(|no| Target { no, losses: self.losses(no), until: tail }).collect()
    }

    /// Copies the live part up to `head` to every target; those that fail are targets no more.
    async fn copy_to(&self, targets: &mut Vec<Target>, head: u64) {
        let mut copied = Vec::new();
        for mut target in targets.drain(..) {
            if self.copy_log(&mut target, head).await {
                copied.push(target);
            }
        }
        *targets = copied;
    }

    /// Copies the live part up to `head` to a disk. It counts once that is flushed, which is for the caller to see to:
    /// no commit does it, so that nobody waits for a copy.
    pub(super) async fn copy_log(&self, target: &mut Target, head: u64) -> bool {
        while let Some(run) = self.log.run_from(target.until, PIECE).filter(|run| run.start < head) {
            let Some(piece) = self.read_run(&run).await else { return false };
            // It may have been lost meanwhile, or have left the pool.
            if self.losses(target.no) != target.losses {
                return false;
            }
            let to = self.log_offset(target.no, run.start);
            self.count_logged(target.no, piece.len());
            if self.disk_write_aside(target.no, to, vec![piece]).await.is_err() {
                return false;
            }
            target.until = run.end;
        }
        target.until = target.until.max(head);
        true
    }

    /// The bytes of a run. `None`: a batch of it that is still needed can be had nowhere.
    async fn read_run(&self, run: &Run) -> Option<IoSlice> {
        if let Some(bytes) = self.follower.read(run) {
            return Some(bytes);
        }
        let len = (run.end - run.start) as usize;
        for no in self.loggers() {
            if !self.has_disk(no) {
                continue;
            }
            let more = (self.log_spread() + run.end).min(run.start - run.start % self.ring_len() + self.ring_len());
            let whole = self.disk_read(no, self.log_offset(no, run.start), (more - run.start) as usize).await;
            if let Ok(piece) = whole
                && let Some(whole) = self.sound_run(run, &piece)
            {
                return Some(whole);
            }
        }
        let mut whole = Buf::zeroed(len);
        for batch in &run.batches {
            let mut found = None;
            for no in self.loggers() {
                if found.is_none() && self.has_disk(no) {
                    found = self.read_batch(no, batch).await;
                }
            }
            match found {
                Some(bytes) => {
                    let at = (batch.position - run.start) as usize;
                    whole[at..at + bytes.len()].copy_from_slice(&bytes);
                }
                // Something else lies there by now if it is needed no more.
                None if batch.position < self.log.live().0 => {}
                None => return None,
            }
        }
        Some(whole.freeze())
    }

    /// A run whose batches are all sound in `piece`, which was read from where it begins on.
    fn sound_run(&self, run: &Run, piece: &[u8]) -> Option<IoSlice> {
        let mut whole = Buf::zeroed((run.end - run.start) as usize);
        let mut from = 0;
        for batch in &run.batches {
            let at = (batch.position - run.start) as usize;
            from = from.max(at);
            let (found, bytes) = self.copy_in(batch, run.start + from as u64, piece.get(from..)?)?;
            whole[at..at + bytes.len()].copy_from_slice(bytes);
            from += found + bytes.len();
        }
        Some(whole.freeze())
    }

    /// A sound copy of a batch in `bytes`, which lie at `at`, and how far from there it begins.
    fn copy_in<'a>(&self, batch: &BatchInfo, at: u64, bytes: &'a [u8]) -> Option<(usize, &'a [u8])> {
        let (found, head) = find_head(at, bytes, |at, block| self.decode_copy(batch, at, block))?;
        let from = (found - at) as usize;
        let whole = bytes.get(from..from + head.ring_len() as usize)?;
        verify(&head, whole).then_some((from, whole))
    }

    /// A sound copy of a batch on disk `no`.
    async fn read_batch(&self, no: DiskNo, batch: &BatchInfo) -> Option<Buf> {
        let ring = self.ring_len();
        let round = batch.position - batch.position % ring + ring;
        let places = batch.position..round.min(batch.position + self.log_spread() + BLOCK);
        self.find_sound(no, places, |at, block| self.decode_copy(batch, at, block)).await
    }

    /// The head at the start of `block`, which lies at `at`, if it claims to be that of this batch.
    fn decode_copy(&self, batch: &BatchInfo, at: u64, block: &[u8]) -> Option<BatchHead> {
        let head = decode_head(self.id, batch.number, block)?;
        let lies = head.position == batch.position && may_lie(&head, at, self.ring_len(), self.log_spread());
        (lies && self.may_count(&head, batch.chain)).then_some(head)
    }
}
