//! Checkpoints: after one, the log before its anchor is needed no more.
//!
//! The steps, in their order:
//! 1. note the sequence number `redo` and the configuration as it is now: what comes later is in the log from `redo` on, so a configuration never names a page
//!    that was not written;
//! 2. make the log durable, write every dirty page (an image never runs ahead of the durable log);
//! 3. write the configuration to every voter (of another set than before, if it is time for a step to a better one), in the checkpoint area that the last checkpoint did not use;
//! 4. flush; then the labels, with the new anchor; then the ring before the anchor is free.

use super::{Store, join};
use crate::checksum::crc32c;
use crate::error::Result;
use crate::fail;
use crate::format::label::Anchor;
use crate::io::{Buf, IoSlice};
use crate::mutant::{self, Mutant};
use crate::units::ByteCount;
use alloc::vec;
use alloc::vec::Vec;

impl Store {
    /// Takes a checkpoint. `oldest_landing` tells, when asked, the oldest log record with data that is nowhere else.
    pub async fn checkpoint(&self, oldest_landing: impl Fn() -> Option<u64>) -> Result<()> {
        let redo = self.log.seq();
        let mut blob = Vec::new();
        self.map.borrow().records().iter().for_each(|record| record.encode(&mut blob));
        self.write_dirty_pages().await?;
        let tail = oldest_landing()
            .filter(|_| !mutant::active(Mutant::LandingRetiredEarly))
            .map_or(redo, |landing| landing.min(redo));
        self.log.make_durable(self.log.seq()).await?;
        if !mutant::active(Mutant::LabelBeforeCheckpoint) {
            self.flush_all(self.unflushed()).await;
        }
        let tail = self.log.batch_of(tail);
        let anchor = Anchor {
            checkpoint_no: self.labels.anchor.get().checkpoint_no + 1,
            checkpoint_len: blob.len() as u64,
            checkpoint_crc: crc32c(&blob),
            log_tail: tail.position,
            log_tail_batch: tail.number,
            log_chain: tail.chain,
            log_redo: self.log.batch_of(redo).position,
            log_seq: tail.first_seq,
        };
        let voters = self.voters_next();
        self.write_blob(voters, &anchor, blob).await?;
        self.labels.voters.set(voters);
        self.labels.anchor.set(anchor);
        self.labels.outdated.set(true);
        self.write_labels().await?;
        self.log.cut(tail);
        self.counters.checkpoints.set(self.counters.checkpoints.get() + 1);
        Ok(())
    }

    /// Writes the configuration to the disks of `voters` and makes it durable there.
    async fn write_blob(&self, voters: u64, anchor: &Anchor, blob: Vec<u8>) -> Result<()> {
        let disks: Vec<u16> = self.present_in(voters);
        let room = {
            let members = self.members.borrow();
            disks.iter().map(|no| members[no].plan.blob_len).min().unwrap_or(ByteCount::ZERO)
        };
        if blob.len() as u64 > room.0 {
            return fail!(NoSpace, "the configuration takes {} bytes, the checkpoint area has {}", blob.len(), room.0);
        }
        let slice = Buf::copy_of(&blob).freeze();
        join(disks.iter().map(|no| self.write_blob_to(*no, anchor, slice.clone()))).await;
        Ok(())
    }

    async fn write_blob_to(&self, no: u16, anchor: &Anchor, slice: IoSlice) {
        let at = {
            let members = self.members.borrow();
            let plan = &members[&no].plan;
            plan.blob_at + plan.blob_len * (anchor.checkpoint_no % 2)
        };
        let written = self.disk_write(no, at, vec![slice]).await;
        if written.is_ok() && !mutant::active(Mutant::LabelBeforeCheckpoint) {
            // A failed flush takes the disk out; the labels then name it no more.
            let _ = self.disk_flush(no).await;
        }
    }

    fn present_in(&self, set: u64) -> Vec<u16> {
        let members = self.members.borrow();
        let there = members.iter().filter(|(no, member)| set >> **no & 1 == 1 && member.disk.is_some());
        there.map(|(no, _)| *no).collect()
    }
}
