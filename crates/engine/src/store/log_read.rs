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

use super::{Store, join};
use crate::error::Result;
use crate::fail;
use crate::format::batch::{BatchHead, decode_head, verify};
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
pub(super) struct LogAhead(RefCell<BTreeMap<DiskNo, Piece>>);

/// A piece of the log.
struct Piece {
    position: u64,
    bytes: Buf,
}

impl LogAhead {
    /// These bytes, if they were read.
    fn get(&self, no: DiskNo, position: u64, len: u64) -> Option<Buf> {
        let pieces = self.0.borrow();
        let piece = pieces.get(&no)?;
        let from = position.checked_sub(piece.position)? as usize;
        piece.bytes.get(from..from + len as usize).map(Buf::copy_of)
    }

    /// How many bytes are to be read next.
    fn next_len(&self, no: DiskNo) -> u64 {
        let before = self.0.borrow().get(&no).map_or(0, |piece| piece.bytes.len() as u64);
        (before * 2).clamp(AHEAD_MIN, AHEAD_MAX)
    }
}

impl Store {
    /// The batch with this number at this position, from any log disk that has it; the others get it.
    pub(super) async fn find_batch(
        &self,
        position: u64,
        number: u64,
        chain: u32,
        ahead: &LogAhead,
    ) -> Option<(BatchHead, Buf)> {
        let mut found: Option<(BatchHead, Buf)> = None;
        let mut lacking = Vec::new();
        let read = |no| async move { (no, self.read_batch_ahead(no, (position, number, chain), ahead).await) };
        for (no, batch) in join(self.loggers().into_iter().map(read)).await {
            match batch {
                Some(batch) => found = found.or(Some(batch)),
                None => lacking.push(no),
            }
        }
        let (head, batch) = found?;
        for no in &lacking {
            self.commits.lacked.borrow_mut().entry(*no).or_insert(number);
        }
        for no in lacking.into_iter().filter(|_| !self.read_only) {
            self.metadata_healed(no, "log batch");
            let to = self.log_offset(no, position);
            let written = self.disk_write(no, to, vec![batch.clone().freeze()]).await;
            // A disk that fails is taken out by the calls themselves.
            if written.is_ok() {
                let _ = self.disk_flush(no).await;
            }
        }
        Some((head, batch))
    }

    /// The batch with this number at this position of disk `no`.
    pub(super) async fn read_batch(
        &self,
        no: DiskNo,
        position: u64,
        number: u64,
        chain: u32,
    ) -> Option<(BatchHead, Buf)> {
        let first = self.read_log(no, position, BLOCK).await.ok()?;
        let head = self.head_in(&first, (position, number, chain))?;
        let len = head.ring_len();
        let batch = if len == BLOCK { first } else { self.read_log(no, position, len).await.ok()? };
        verify(&head, &batch).then_some((head, batch))
    }

    /// Does what [`Store::read_batch`] does, for somebody who goes on to the next one: it may come with this one.
    async fn read_batch_ahead(
        &self,
        no: DiskNo,
        (position, number, chain): (u64, u64, u32),
        ahead: &LogAhead,
    ) -> Option<(BatchHead, Buf)> {
        let first = match ahead.get(no, position, BLOCK) {
            Some(first) => first,
            None => self.read_log_ahead(no, position, BLOCK, ahead).await?,
        };
        let head = self.head_in(&first, (position, number, chain))?;
        let len = head.ring_len();
        let batch = match ahead.get(no, position, len) {
            Some(batch) => batch,
            None => self.read_log_ahead(no, position, len, ahead).await?,
        };
        verify(&head, &batch).then_some((head, batch))
    }

    /// Reads `len` bytes of the log of disk `no`, and keeps what came with them.
    async fn read_log_ahead(&self, no: DiskNo, position: u64, len: u64, ahead: &LogAhead) -> Option<Buf> {
        let left = self.ring_len() - position % self.ring_len();
        let more = ahead.next_len(no).max(len).min(left);
        match self.disk_read(no, self.log_offset(no, position), more as usize).await {
            Ok(bytes) => {
                ahead.0.borrow_mut().insert(no, Piece { position, bytes });
                ahead.get(no, position, len)
            }
            // Something of what lies behind it cannot be read.
            Err(_) => self.read_log(no, position, len).await.ok(),
        }
    }

    /// The head of a batch that counts, if all of it is sound.
    fn head_in(&self, block: &[u8], (position, number, chain): (u64, u64, u32)) -> Option<BatchHead> {
        decode_head(self.id, position, number, block).filter(|head| self.may_count(head, chain))
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
        let ring = self.ring_len();
        !left_behind && head.chain == chain && head.position % ring + head.ring_len() <= ring
    }

    /// Whether a batch was begun at the end that was found; and invariant 2: no successor of it counts. The log disks
    /// are asked side by side.
    pub(super) async fn prove_end(&self, position: u64, number: u64) -> Result<bool> {
        let end = self.successors_end(position, number);
        let (mut torn, mut readable) = (false, false);
        for told in join(self.loggers().into_iter().map(|no| self.prove_end_on(no, position..end, number))).await {
            let (begun, read) = told?;
            torn |= begun;
            readable |= read;
        }
        if !readable {
            return fail!(
                Lost,
                "the place of log batch {number} cannot be read on any disk: whether it was written cannot be known"
            );
        }
        Ok(torn)
    }

    /// Where the places end at which the successor of batch `number` may begin, if that was to lie at `position`, or,
    /// where it did not fit before the ring's end, at its start.
    fn successors_end(&self, position: u64, number: u64) -> u64 {
        let ring = self.ring_len();
        let longest = match self.labels.batch_bound.get().of(number) {
            Some(most) => most,
            None if mutant::active(Mutant::BatchBoundBelieved) => self.tuning.batch_bytes,
            // An eighth of the ring, or one record.
            None => (ring / 8).max(self.longest_record()) + BLOCK,
        };
        let round = position.next_multiple_of(ring);
        let from = if round < position.saturating_add(longest.saturating_mul(2)) { round } else { position };
        from.saturating_add(longest + BLOCK).min(position + ring)
    }

    /// Whether batch `number` was begun on log disk `no`, where `range` begins, and whether that can be read there. An
    /// error: its successor lies in `range`.
    async fn prove_end_on(&self, no: DiskNo, range: Range<u64>, number: u64) -> Result<(bool, bool)> {
        let (ring, position) = (self.ring_len(), range.start);
        let (mut torn, mut readable) = (false, false);
        for start in [position, position.next_multiple_of(ring)] {
            let first = self.read_log(no, start, BLOCK).await;
            readable |= first.is_ok() && start == position;
            torn |= first.is_ok_and(|block| decode_head(self.id, start, number, &block).is_some());
        }
        let mut at = position + BLOCK;
        let mut most = PIECE;
        while at < range.end {
            let len = most.min(ring - at % ring).min(range.end - at);
            let piece = self.read_log(no, at, len).await;
            if piece.is_err() && len > BLOCK && self.has_disk(no) {
                // Some block of it cannot be read; the others may hold what is looked for.
                most = (len / 2 / BLOCK * BLOCK).max(BLOCK);
                continue;
            }
            if let Ok(piece) = piece
                && !mutant::active(Mutant::LogEndsInItsMiddle)
                && self.holds_batch(no, at, number + 1, &piece).await
            {
                return fail!(
                    Corrupt,
                    "log batch {number} cannot be read on any disk, but its successor can: the log is damaged \
                     beyond its redundancy"
                );
            }
            at += len;
            most = (most * 2).min(PIECE);
        }
        Ok((torn, readable))
    }

    /// The most bytes of one record: a commit of the table with the most checksums, or landed data.
    fn longest_record(&self) -> u64 {
        let map = self.map.borrow();
        let sums = map.tables.values().map(|table| table.record.layout.stripe_sums() as u64 * 4).max().unwrap_or(0);
        (sums + 4096).max(self.ring_len() / 8)
    }

    /// Whether a sound batch `number` begins anywhere in `piece`, which lies at `position`.
    async fn holds_batch(&self, no: DiskNo, position: u64, number: u64, piece: &[u8]) -> bool {
        for (block, bytes) in piece.chunks_exact(BLOCK as usize).enumerate() {
            let there = position + block as u64 * BLOCK;
            if let Some(head) = decode_head(self.id, there, number, bytes)
                && self.read_batch(no, there, number, head.chain).await.is_some()
            {
                return true;
            }
        }
        false
    }

    pub(super) fn ring_len(&self) -> u64 {
        self.members.borrow().values().next().map_or(BLOCK, |member| member.plan.log_len.0)
    }

    pub(super) fn log_offset(&self, no: DiskNo, position: u64) -> DiskOffset {
        let plan = &self.members.borrow()[&no].plan;
        plan.log_at + ByteCount(position % plan.log_len.0)
    }
}
