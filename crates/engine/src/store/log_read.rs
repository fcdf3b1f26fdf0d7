//! Reading the log from its disks: batch by batch, and the proof that it ends where it seems to.
//!
//! Batches that lie side by side come with one call, and all log disks are asked side by side.
//!
//! Invariants
//! 1. A batch counts where it is sound on any log disk; the others get it. Each copy is looked at, so that one which
//!    lacks it is known.
//! 2. A batch whose successor counts was durable: if it cannot be read, the log is damaged beyond its redundancy and
//!    the pool does not open. It is looked for wherever one may begin: as far as the batch before it may reach, which
//!    the labels say of batches since they do (`BatchBound`), and of none from before.
//! 3. What was read ahead of a disk is what it had then: nothing that is read from there was written since.
//! 4. Each disk's copies are looked for behind those that it has of earlier batches, as far as they may lie behind
//!    their positions (`log_places.rs`); a copy that is brought to a disk lies behind those, too.

use super::{Store, join};
use crate::error::Result;
use crate::fail;
use crate::format::FEATURE_SPREAD;
use crate::format::batch::{BatchHead, Expected, decode_head, find_head, may_lie, spread, verify};
use crate::io::{Buf, DiskError};
use crate::mutant::{self, Mutant};
use crate::units::{BLOCK, ByteCount, DiskNo, DiskOffset};
use alloc::collections::BTreeMap;
use alloc::vec;
use alloc::vec::Vec;
use core::cell::RefCell;
use core::ops::Range;

/// Bytes that are read at once where the end of the log is proven: a power of two of blocks.
const PIECE: u64 = 4 << 20;
/// Bytes that are read with the first batch that is found; with each that was not among them twice as many.
const AHEAD_MIN: u64 = 128 << 10;
/// The most bytes that are read with one batch.
const AHEAD_MAX: u64 = 4 << 20;

/// What was read ahead of the log, by disk.
#[derive(Default)]
pub(super) struct LogAhead {
    pieces: RefCell<BTreeMap<DiskNo, Piece>>,
    /// Before here nothing claims to be a batch that is still looked for: a disk that lacks one often lacks many, and
    /// is not to be looked through for each of them.
    bare: RefCell<BTreeMap<DiskNo, u64>>,
}

/// A piece of the log.
struct Piece {
    position: u64,
    bytes: Buf,
}

impl LogAhead {
    /// These bytes, if they were read.
    fn get(&self, no: DiskNo, position: u64, len: u64) -> Option<Buf> {
        self.with(no, position, |bytes| bytes.get(..len as usize).map(Buf::copy_of)).flatten()
    }

    /// What `look` makes of what was read from `position` on, if anything was.
    fn with<T>(&self, no: DiskNo, position: u64, look: impl FnOnce(&[u8]) -> T) -> Option<T> {
        let pieces = self.pieces.borrow();
        let piece = pieces.get(&no)?;
        let from = position.checked_sub(piece.position)? as usize;
        piece.bytes.get(from..).filter(|bytes| bytes.len() >= BLOCK as usize).map(look)
    }

    /// How many bytes are to be read next.
    fn next_len(&self, no: DiskNo) -> u64 {
        let before = self.pieces.borrow().get(&no).map_or(0, |piece| piece.bytes.len() as u64);
        (before * 2).clamp(AHEAD_MIN, AHEAD_MAX)
    }
}

impl Store {
    /// What is known of batch `number` before it is read, where the one before ended at `from`.
    pub(super) fn expected(&self, from: u64, number: u64) -> Expected {
        Expected { pool: self.id, number, from, ring: self.ring_len(), spread: self.log_spread() }
    }

    /// The most bytes that copies of batches lie behind their positions, and positions behind the batch before.
    pub(super) fn log_spread(&self) -> u64 {
        if self.labels.features.get() & FEATURE_SPREAD == 0 { 0 } else { spread(self.ring_len()) }
    }

    /// The batch that is expected, with this chain, from any log disk that has it; the others get it.
    pub(super) async fn find_batch(&self, next: &Expected, chain: u32, ahead: &LogAhead) -> Option<(BatchHead, Buf)> {
        for round in 0..2 {
            let mut found: Option<(BatchHead, Buf)> = None;
            let mut lacking = Vec::new();
            let read = |no| async move {
                let [here, there] = next.places(self.log_places.end_on(no).unwrap_or(0));
                let places = if round == 0 { here } else { there };
                (no, self.read_next(no, next, places, chain, ahead).await)
            };
            for (no, batch) in join(self.loggers().into_iter().map(read)).await {
                match batch {
                    Some((at, head, batch)) => {
                        self.log_places.lies(no, head.number, at..at + head.ring_len());
                        found = found.or(Some((head, batch)));
                    }
                    None => lacking.push(no),
                }
            }
            if let Some((head, batch)) = found {
                self.bring_batch(lacking, &head, &batch).await;
                return Some((head, batch));
            }
        }
        None
    }

    /// Writes a batch to the disks that lack it.
    async fn bring_batch(&self, lacking: Vec<DiskNo>, head: &BatchHead, batch: &Buf) {
        for no in &lacking {
            self.commits.lacked.borrow_mut().entry(*no).or_insert(head.number);
        }
        for no in lacking.into_iter().filter(|_| !self.read_only) {
            let end = self.log_places.end_on(no).filter(|_| !mutant::active(Mutant::BroughtAtPosition));
            let at = end.unwrap_or(0).max(head.position);
            // No weft leaves a batch without its place; who forges them gets nothing written elsewhere.
            if !may_lie(head, at, self.ring_len(), self.log_spread()) {
                continue;
            }
            self.metadata_healed(no, "log batch");
            let to = self.log_offset(no, at);
            let written = self.disk_write(no, to, vec![batch.clone().freeze()]).await;
            self.log_places.lies(no, head.number, at..at + head.ring_len());
            // A disk that fails is taken out by the calls themselves.
            if written.is_ok() {
                let _ = self.disk_flush(no).await;
            }
        }
    }

    /// The batch that is expected, if a copy of it begins in `places` of disk `no`, and where: for somebody who goes on
    /// to the next one, which may come with this one.
    async fn read_next(
        &self,
        no: DiskNo,
        next: &Expected,
        places: Range<u64>,
        chain: u32,
        ahead: &LogAhead,
    ) -> Option<(u64, BatchHead, Buf)> {
        let mut from = places.start.max(ahead.bare.borrow().get(&no).copied().unwrap_or(0));
        let mut bare = true;
        while from < places.end {
            if ahead.with(no, from, |_| ()).is_none() && self.read_log_ahead(no, from, BLOCK, ahead).await.is_none() {
                if !self.has_disk(no) {
                    return None;
                }
                (from, bare) = (from + BLOCK, false);
                continue;
            }
            let look = |bytes: &[u8]| {
                let bytes = &bytes[..(places.end - from).min(bytes.len() as u64 / BLOCK * BLOCK) as usize];
                (bytes.len() as u64, next.find(from, bytes), next.is_reached(bytes))
            };
            let (len, found, is_reached) = ahead.with(no, from, look)?;
            let Some((at, head)) = found else {
                from += len;
                bare &= !is_reached;
                if bare && !mutant::active(Mutant::LackingLookedThrough) {
                    ahead.bare.borrow_mut().insert(no, from);
                }
                continue;
            };
            if let Some(batch) = self.read_found(no, at, &head, chain, ahead).await {
                return Some((at, head, batch));
            }
            (from, bare) = (at + BLOCK, false);
        }
        None
    }

    /// The batch with this head at `at`, if it counts and all of it is sound.
    async fn read_found(&self, no: DiskNo, at: u64, head: &BatchHead, chain: u32, ahead: &LogAhead) -> Option<Buf> {
        if !self.may_count(head, chain) {
            return None;
        }
        let batch = match ahead.get(no, at, head.ring_len()) {
            Some(batch) => batch,
            None => self.read_log_ahead(no, at, head.ring_len(), ahead).await?,
        };
        verify(head, &batch).then_some(batch)
    }

    /// Reads `len` bytes of the log of disk `no`, and keeps what came with them.
    async fn read_log_ahead(&self, no: DiskNo, position: u64, len: u64, ahead: &LogAhead) -> Option<Buf> {
        let left = self.ring_len() - position % self.ring_len();
        let more = ahead.next_len(no).max(len).min(left);
        match self.disk_read(no, self.log_offset(no, position), more as usize).await {
            Ok(bytes) => {
                ahead.pieces.borrow_mut().insert(no, Piece { position, bytes });
                ahead.get(no, position, len)
            }
            // Something of what lies behind it cannot be read.
            Err(_) => {
                let bytes = self.read_log(no, position, len).await.ok()?;
                ahead.pieces.borrow_mut().insert(no, Piece { position, bytes: Buf::copy_of(&bytes) });
                Some(bytes)
            }
        }
    }

    /// Reads `len` bytes of the log of disk `no`. A read that fails is tried once more: on the last log disk that is
    /// there, an error that does not last would else keep the pool from opening.
    async fn read_log(&self, no: DiskNo, position: u64, len: u64) -> core::result::Result<Buf, DiskError> {
        let at = self.log_offset(no, position);
        match self.disk_read(no, at, len as usize).await {
            Err(error) if error != DiskError::Gone => self.disk_read(no, at, len as usize).await,
            told => told,
        }
    }

    /// Whether a batch with this head counts, if all of it is sound.
    pub(super) fn may_count(&self, head: &BatchHead, chain: u32) -> bool {
        let from = self.labels.opened_batch.get();
        let left_behind = head.number >= from && head.lineage != self.labels.lineage.borrow().number();
        let left_behind = left_behind && !mutant::active(Mutant::LeftBehindBatchesCount);
        !left_behind && head.chain == chain
    }

    /// Whether a batch was begun at the end that was found; and invariant 2: no successor of it counts. The log disks
    /// are asked side by side.
    pub(super) async fn prove_end(&self, next: &Expected) -> Result<bool> {
        let end = self.successors_end(next);
        let (mut torn, mut readable) = (false, false);
        for told in join(self.loggers().into_iter().map(|no| self.prove_end_on(no, next, end))).await {
            let (begun, read) = told?;
            torn |= begun;
            readable |= read;
        }
        if !readable {
            return fail!(
                Lost,
                "the place of log batch {} cannot be read on any disk: whether it was written cannot be known",
                next.number
            );
        }
        Ok(torn)
    }

    /// Where the places end at which the successor of the batch that was expected may begin: behind that, or, where it
    /// did not fit before the ring's end, in the next round.
    fn successors_end(&self, next: &Expected) -> u64 {
        let ring = next.ring;
        let longest = match self.labels.batch_bound.get().of(next.number) {
            Some(most) => most,
            None if mutant::active(Mutant::BatchBoundBelieved) => self.tuning.batch_bytes,
            // An eighth of the ring, or one record.
            None => (ring / 8).max(self.longest_record()) + BLOCK,
        };
        // Both may lie a spread behind the end of the one before, and their copies as much behind that.
        let reach = longest.saturating_add(3 * next.spread);
        let round = next.from.next_multiple_of(ring);
        let from = if round < next.from.saturating_add(reach.saturating_mul(2)) { round } else { next.from };
        from.saturating_add(reach + BLOCK).min(next.from + ring)
    }

    /// Whether the batch that was expected was begun on log disk `no`, and whether all can be read there where it may
    /// have been. An error: its successor lies before `end`.
    async fn prove_end_on(&self, no: DiskNo, next: &Expected, end: u64) -> Result<(bool, bool)> {
        let [here, there] = next.places(self.log_places.end_on(no).unwrap_or(0));
        let mut begun = false;
        let mut note = |at: u64, bytes: &[u8]| {
            begun |= next.find(at, bytes).is_some();
            None::<()>
        };
        let (_, readable) = self.scan_log(no, here, &mut note).await;
        self.scan_log(no, there, &mut note).await;
        let successor = |at: u64, block: &[u8]| {
            let head = decode_head(self.id, next.number + 1, block)?;
            (may_lie(&head, at, next.ring, next.spread) && self.may_count(&head, head.chain)).then_some(head)
        };
        if !mutant::active(Mutant::LogEndsInItsMiddle)
            && self.find_sound(no, next.from + BLOCK..end, successor).await.is_some()
        {
            return fail!(
                Corrupt,
                "log batch {} cannot be read on any disk, but its successor can: the log is damaged beyond its \
                 redundancy",
                next.number
            );
        }
        Ok((begun, readable && self.has_disk(no)))
    }

    /// The first sound batch that begins in `range` of the log of disk `no` and whose head `decode` finds.
    pub(super) async fn find_sound(
        &self,
        no: DiskNo,
        mut range: Range<u64>,
        decode: impl Fn(u64, &[u8]) -> Option<BatchHead>,
    ) -> Option<Buf> {
        loop {
            let (found, _) = self.scan_log(no, range.clone(), |at, bytes| find_head(at, bytes, &decode)).await;
            let (at, head) = found?;
            if let Ok(batch) = self.read_log(no, at, head.ring_len()).await
                && verify(&head, &batch)
            {
                return Some(batch);
            }
            range.start = at + BLOCK;
        }
    }

    /// The first thing that `look` finds in what can be read of `range` of the log of disk `no`, and whether all that
    /// came before it can be.
    async fn scan_log<T>(
        &self,
        no: DiskNo,
        range: Range<u64>,
        mut look: impl FnMut(u64, &[u8]) -> Option<T>,
    ) -> (Option<T>, bool) {
        let ring = self.ring_len();
        let (mut at, mut most, mut readable) = (range.start, PIECE, true);
        while at < range.end {
            let len = most.min(ring - at % ring).min(range.end - at);
            match self.read_log(no, at, len).await.map(|bytes| look(at, &bytes)) {
                Ok(None) => {}
                Ok(found) => return (found, readable),
                // Some block of it cannot be read; the others may hold what is looked for.
                Err(_) if len > BLOCK && self.has_disk(no) => {
                    most = (len / 2 / BLOCK * BLOCK).max(BLOCK);
                    continue;
                }
                Err(_) => readable = false,
            }
            at += len;
            most = (most * 2).min(PIECE);
        }
        (None, readable)
    }

    /// The most bytes of one record: a commit of the table with the most checksums, or landed data.
    fn longest_record(&self) -> u64 {
        let map = self.map.borrow();
        let sums = map.tables.values().map(|table| table.record.layout.stripe_sums() as u64 * 4).max().unwrap_or(0);
        (sums + 4096).max(self.ring_len() / 8)
    }

    pub(super) fn ring_len(&self) -> u64 {
        self.members.borrow().values().next().map_or(BLOCK, |member| member.plan.log_len.0)
    }

    pub(super) fn log_offset(&self, no: DiskNo, position: u64) -> DiskOffset {
        let plan = &self.members.borrow()[&no].plan;
        plan.log_at + ByteCount(position % plan.log_len.0)
    }
}
