//! Checkpoints: after one, the log before its anchor is needed no more.
//!
//! The steps, in their order:
//! 1. note the sequence number `redo` and the configuration as it is now: what comes later is in the log from `redo`
//!    on, so a configuration never names a page that was not written;
//! 2. make the log durable, write every dirty page (an image never runs ahead of the durable log), and the pages of
//!    what changed in the tree (`meta/mod.rs`);
//! 3. write the configuration, and the root of the tree, to every voter (of another set than before, if it is time for
//!    a step to a better one), in the checkpoint area that the last checkpoint did not use;
//! 4. flush; then the labels, with the new anchor; then the ring before the anchor is free.
//!
//! A disk that goes or comes during 2 and 3 has them done again: what was written may be missing on it. While the pool
//! is frozen, none of it happens.
//!
//! Where the tree cannot take what changed, because no page is free or one that must be changed is lost on all disks,
//! the checkpoint is a **whole** one: it has all of the configuration itself, for which there is always room
//! (invariant 4 of `segment/mod.rs`), and no tree. That gives every page of the tree back, and the next checkpoint puts
//! everything into it anew. So a checkpoint never fails for want of pages. (It is also how a pool that was written
//! before there was a tree comes to have one.)

use super::{Store, join};
use crate::checksum::crc32c;
use crate::disk_set::DiskSet;
use crate::error::Result;
use crate::fail;
use crate::format::label::Anchor;
use crate::format::page::PageId;
use crate::format::record::{Record, TreeRecord};
use crate::io::{Buf, IoSlice};
use crate::log::BatchInfo;
use crate::mutant::{self, Mutant};
use crate::segment::chunk_record;
use crate::store::meta::PoolPages;
use crate::store::meta::conf::is_configuration_stuck;
use crate::tree::{Prepared, Tree, TreeError};
use crate::units::{ByteCount, DiskNo, SegmentNo};
use alloc::collections::BTreeMap;
use alloc::vec;
use alloc::vec::Vec;

/// What a checkpoint began with.
struct Draft {
    records: Vec<Record<'static>>,
    /// The disks of each metadata segment, as the records have them: where one moved to meanwhile is in the log alone.
    homes: BTreeMap<SegmentNo, DiskSet>,
    redo: u64,
    /// How often disks had come and gone.
    seen: u64,
    whole: bool,
}

/// A configuration that is durable, and that no label names yet.
struct Written {
    anchor: Anchor,
    voters: DiskSet,
    /// The oldest batch that is still needed.
    tail: BatchInfo,
    /// The disks of each metadata segment.
    homes: BTreeMap<SegmentNo, DiskSet>,
    /// What it says of the tree.
    root: Option<TreeRecord>,
}

/// How an attempt at a checkpoint ended.
enum Tried {
    Taken,
    /// Disks went or came meanwhile, and what was written may not be on all of them.
    Disturbed,
    /// The tree cannot take what changed.
    TreeFails,
}

impl Store {
    /// Takes a checkpoint. `oldest_landing` tells, when asked, the oldest log record with data that is nowhere else.
    pub async fn checkpoint(&self, oldest_landing: impl Fn() -> Option<u64>) -> Result<()> {
        let mut whole = self.takes_tree_to_begin_anew();
        self.put_heat().await;
        loop {
            self.thawed().await?;
            match self.try_checkpoint(&oldest_landing, whole).await? {
                Tried::Taken => return Ok(()),
                Tried::Disturbed => {}
                Tried::TreeFails => whole = true,
            }
        }
    }

    /// Takes a checkpoint; a `whole` one has all of the configuration itself, and the tree is empty with it.
    async fn try_checkpoint(&self, oldest_landing: &impl Fn() -> Option<u64>, whole: bool) -> Result<Tried> {
        let seen = self.commits.comings_and_goings.get();
        let redo = self.log.seq();
        let records = if whole { self.map.borrow().records() } else { self.map.borrow().few_records() };
        let homes = self.metadata_homes();
        if !whole {
            self.put_touched();
            if mutant::active(Mutant::SpacePutEarly) {
                self.put_space();
            }
        }
        self.note_packs(redo);
        self.commits.pages_unwritten.set(false);
        let pages = self.write_dirty_pages().await?;
        let tree = self.tree();
        let prepared = match whole {
            true => tree.prepare_empty().await.map(Some),
            false => self.prepare_tree(&tree, &pages).await,
        };
        let prepared = match prepared {
            Ok(prepared) => prepared,
            Err(error) => {
                self.pages_written(&pages, false);
                let disturbed = seen != self.commits.comings_and_goings.get();
                let full = error == TreeError::Full;
                return if disturbed {
                    Ok(Tried::Disturbed)
                } else if full {
                    Ok(Tried::TreeFails)
                } else {
                    Err(error.into())
                };
            }
        };
        let draft = Draft { records, homes, redo, seen, whole };
        let written = self.write_configuration(draft, prepared.as_ref(), oldest_landing).await;
        let written = match written {
            Ok(Some(written)) => written,
            not_written => {
                let stuck = prepared.as_ref().is_some_and(is_configuration_stuck);
                prepared.into_iter().for_each(|prepared| tree.cancel(prepared));
                self.pages_written(&pages, false);
                let undisturbed = seen == self.commits.comings_and_goings.get();
                let tried = if stuck && undisturbed { Tried::TreeFails } else { Tried::Disturbed };
                return not_written.map(|_| tried);
            }
        };
        self.name_checkpoint(written, &tree, prepared, &pages, whole).await?;
        Ok(Tried::Taken)
    }

    /// Step 4.
    async fn name_checkpoint(
        &self,
        written: Written,
        tree: &Tree<PoolPages>,
        prepared: Option<Prepared<'_>>,
        pages: &[PageId],
        whole: bool,
    ) -> Result<()> {
        // From here on the disks that are there have all of it; one that comes back does not.
        let Written { anchor, voters, tail, homes, root } = written;
        self.labels.forget_absent(self.current_set());
        self.labels.voters.set(voters);
        self.labels.anchor.set(anchor);
        self.revoke_packs(anchor.log_seq);
        self.labels.outdated.set(true);
        if let Err(error) = self.write_labels().await {
            prepared.into_iter().for_each(|prepared| drop(tree.doubt(prepared, error.clone())));
            return Err(error);
        }
        *self.meta.homes.borrow_mut() = homes;
        self.pages_written(pages, true);
        self.trim_tables();
        if !whole {
            self.map.borrow_mut().space_written();
        }
        self.publish_tree(tree, prepared, root).await?;
        if whole {
            self.counters.whole_checkpoints.set(self.counters.whole_checkpoints.get() + 1);
            self.touch_everything();
            self.touch_heat();
            self.put_sheet_versions(&self.pages.clean());
        }
        self.log.cut(tail);
        self.counters.checkpoints.set(self.counters.checkpoints.get() + 1);
        Ok(())
    }

    /// The rest of step 2, and step 3. None: disks went or came meanwhile, or what is prepared has not all of the
    /// configuration.
    async fn write_configuration(
        &self,
        draft: Draft,
        prepared: Option<&Prepared<'_>>,
        oldest_landing: &impl Fn() -> Option<u64>,
    ) -> Result<Option<Written>> {
        let Draft { mut records, homes, redo, seen, whole } = draft;
        if prepared.is_some_and(is_configuration_stuck) {
            return Ok(None);
        }
        let tail = oldest_landing().map_or(redo, |landing| landing.min(redo));
        self.make_logged(self.log.seq()).await?;
        // A commit that was taken back meanwhile needs its landed data again.
        let tail = oldest_landing().map_or(tail, |landing| landing.min(tail));
        let tail = if mutant::active(Mutant::LandingRetiredEarly) { redo } else { tail };
        if !mutant::active(Mutant::LabelBeforeCheckpoint) {
            self.flush_all(self.unflushed()).await;
        }
        let forgets = mutant::active(Mutant::CheckpointForgetsLosses);
        if !whole && self.commits.withdrawn_before.get() != self.limbo.withdrawals() {
            // What is said of space in use may speak of what was taken back.
            return Ok(None);
        }
        if self.commits.pages_unwritten.get() || seen != self.commits.comings_and_goings.get() && !forgets {
            return Ok(None);
        }
        let root = match whole {
            true => {
                self.note_versions(&mut records);
                None
            }
            false => self.add_tree(prepared, &mut records),
        };
        let mut blob = Vec::new();
        records.iter().for_each(|record| record.encode(&mut blob));
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
        if seen != self.commits.comings_and_goings.get() && !forgets {
            return Ok(None);
        }
        Ok(Some(Written { anchor, voters, tail, homes, root }))
    }

    /// Notes in the records of chunks which version of each page is on the disks now.
    fn note_versions(&self, records: &mut [Record<'static>]) {
        let map = self.map.borrow();
        for record in records {
            let Record::Chunk(chunk) = record else { continue };
            let found = map.tables.get(&chunk.table).and_then(|table| table.chunks.get(&chunk.chunk));
            if let Some(Record::Chunk(now)) = found.map(|found| chunk_record(chunk.table, chunk.chunk, found)) {
                chunk.versions = now.versions;
            }
        }
    }

    /// Writes the configuration to the disks of `voters` and makes it durable there.
    async fn write_blob(&self, voters: DiskSet, anchor: &Anchor, blob: Vec<u8>) -> Result<()> {
        let disks: Vec<DiskNo> = self.present_in(voters);
        let room = {
            let members = self.members.borrow();
            disks.iter().map(|no| members[no].plan.blob_len).min().unwrap_or(ByteCount::ZERO)
        };
        if blob.len() as u64 > room.0 && !disks.is_empty() {
            return fail!(NoSpace, "the configuration takes {} bytes, the checkpoint area has {}", blob.len(), room.0);
        }
        let slice = Buf::copy_of(&blob).freeze();
        join(disks.iter().map(|no| self.write_blob_to(*no, anchor, slice.clone()))).await;
        Ok(())
    }

    async fn write_blob_to(&self, no: DiskNo, anchor: &Anchor, slice: IoSlice) {
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

    fn present_in(&self, set: DiskSet) -> Vec<DiskNo> {
        let members = self.members.borrow();
        let there = members.iter().filter(|(no, member)| set.contains(**no) && member.disk.is_some());
        there.map(|(no, _)| *no).collect()
    }
}
