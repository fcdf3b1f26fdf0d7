//! Reading the log after a crash (or after a clean stop: there is no other way to open).
//!
//! Validity: a batch counts if its head names this pool, the expected number and position, its CRC holds, it carries
//! the CRC of the batch before it, and it was not left behind: where an opening has ended the log at some number once,
//! batches from there on must carry that opening's random number. The first batch that does not count on any log disk
//! ends the log: it was being written when the power went, and nobody was told that it was durable. Copies that lack a
//! batch which counts elsewhere get it now, so that what was replayed stays replayable.
//!
//! Invariants
//! 1. Before `log_redo` only landed data counts (and what retires it); from there on every record does.
//! 2. What is rebuilt from the log gets versions above every image on the disks: an unfinished checkpoint must not win
//!    over a later one.
//! 3. No metadata page is read before the whole log is: only its end knows where each of them lies.
//! 4. What the end of the log is, is proven (`log_read.rs`).

use super::landed::LandedIndex;
use super::log_read::LogAhead;
use super::page_place::table_page;
use super::rolled_back::Committed;
use super::table_pages::For;
use super::{Store, join};
use crate::error::Result;
use crate::fail;
use crate::format::batch::BATCH_HEAD;
use crate::format::label::Anchor;
use crate::format::page::{CHUNK_ENTRIES, CHUNK_PAGES};
use crate::format::record::{self, ChunkRecord, CommitRecord, LandedRecord, Record};
use crate::limits::CHUNKS_MAX;
use crate::log::{BatchInfo, Touched};
use crate::mutant::{self, Mutant};
use crate::stripe::table::{Place, Table};
use crate::units::{DiskNo, SegmentNo, TableNo, VdiskNo};
use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec::Vec;
use core::ops::Range;

/// Stripes whose checksums are brought up to date at once: so many pages that disks which seek can sort them.
const SUMS_AT_ONCE: usize = 512;
/// Changes of stripe tables that are applied at once.
const CHANGES_AT_ONCE: usize = 2048;

/// What a replay found.
#[derive(Default)]
pub struct Replayed {
    /// Landed data that no stripe holds yet, oldest first.
    pub landed: Vec<Landed>,
    /// Batches applied.
    pub batches: u64,
    /// Whether the log ended in a batch that had been begun.
    pub torn: bool,
    /// The last stripes that each disk has strips of, of those that the log speaks of.
    pub last: BTreeMap<DiskNo, Vec<Committed>>,
    /// The segments that the log says were written to, or changed, since the checkpoint.
    pub segments: BTreeSet<SegmentNo>,
}

/// Data of one landed record.
pub struct Landed {
    /// The record's sequence number.
    pub seq: u64,
    /// The virtual disk.
    pub vdisk: VdiskNo,
    /// Where on it, in bytes.
    pub offset: u64,
    /// The bytes.
    pub data: Vec<u8>,
}

/// The checksums of a stripe, and whose it is: its table, and its number there.
type Sums = ((TableNo, u64), Vec<u32>);

/// What a record of the log says of stripes of a table, from `first` on.
pub(super) enum Change {
    /// The first one is here now.
    Moved(Place),
    /// This many are nowhere, or zero.
    Unmapped { count: u64, zero: bool },
}

/// What a replay has gathered on its way.
#[derive(Default)]
struct Redo {
    landed: LandedIndex,
    /// What changed in stripe tables, in its order.
    changes: Vec<(TableNo, u64, Change)>,
    /// The checksums of the stripes that were committed, for the checksum pages.
    sums: BTreeMap<Place, Sums>,
    /// Chunks that no checkpoint knows.
    chunks: Vec<ChunkRecord>,
    /// Segments that were written to, or whose slots were brought strips.
    segments: BTreeSet<SegmentNo>,
}

impl Store {
    /// Reads the log from the anchor on, applies it to the map and the pages, and leaves the log ready to go on after
    /// it.
    pub async fn replay(&self, anchor: &Anchor) -> Result<Replayed> {
        let mut found = Replayed::default();
        let mut redo = Redo::default();
        let (mut batches, ahead) = (VecDeque::new(), LogAhead::default());
        let (mut position, mut number) = (anchor.log_tail, anchor.log_tail_batch);
        let (mut chain, mut seq) = (anchor.log_chain, anchor.log_seq);
        if self.loggers().is_empty() {
            return fail!(Lost, "none of the disks that carry the log is there: what was flushed last cannot be known");
        }
        loop {
            let next = self.expected(position, number);
            let Some((head, batch)) = self.find_batch(&next, chain, &ahead).await else { break };
            batches.push_back(BatchInfo { first_seq: head.first_seq, position: head.position, number, chain });
            let mut rest = &batch[BATCH_HEAD..BATCH_HEAD + head.payload_len as usize];
            seq = head.first_seq;
            for _ in 0..head.records {
                let record = record::decode(&mut rest)?;
                self.redo(record, seq, head.position >= anchor.log_redo, &mut redo)?;
                seq += 1;
            }
            found.batches += 1;
            position = head.position + head.ring_len();
            number += 1;
            chain = head.crc;
        }
        self.redo_pages(redo.sums, redo.chunks).await?;
        self.redo_changes(&redo.changes).await?;
        found.last = self.last_on_each_disk(&redo.changes);
        found.segments = redo.segments;
        found.landed = redo.landed.into_landed();
        found.torn = self.prove_end(&self.expected(position, number)).await?;
        self.log.resume(batches, position, number, chain, seq, self.log_places.last_end(&self.loggers()));
        Ok(found)
    }

    fn redo(&self, record: Record<'_>, seq: u64, all: bool, redo: &mut Redo) -> Result<()> {
        let landed = &mut redo.landed;
        if all && !mutant::active(Mutant::TreeReplayUntold) {
            self.log.touch(Touched::by(&record));
        }
        match record {
            Record::Landed(LandedRecord { vdisk, offset, data }) => {
                landed.add(Landed { seq, vdisk, offset, data: data.into_owned() });
                Ok(())
            }
            Record::Commit(commit) => {
                self.retire(landed, commit.table, commit.stripe, 1, commit.retires);
                self.redo_fine(commit.table, commit.stripe, 1);
                if all { self.redo_commit(commit, redo) } else { Ok(()) }
            }
            Record::Move(moved) => {
                if mutant::active(Mutant::MoveVoidsUnits) {
                    self.redo_fine(moved.table, moved.stripe, 1);
                }
                if all { self.redo_commit(moved, redo) } else { Ok(()) }
            }
            Record::Unmap(unmap) => {
                self.retire(landed, unmap.table, unmap.first, unmap.count, unmap.retires);
                self.redo_fine(unmap.table, unmap.first, unmap.count);
                self.map.borrow_mut().pack_unmapped(unmap.table, unmap.first, unmap.count);
                if all {
                    redo.changes.push((
                        unmap.table,
                        unmap.first,
                        Change::Unmapped { count: unmap.count, zero: unmap.zero },
                    ));
                }
                Ok(())
            }
            Record::Pack(pack) => {
                for stripe in self.stripes_of(&pack) {
                    self.retire(landed, stripe.0, stripe.1, 1, pack.retires);
                }
                self.map.borrow_mut().pack(&pack, seq)
            }
            Record::VdiskDrop(id) => {
                landed.retire_vdisk(id);
                if all { self.map.borrow_mut().apply(Record::VdiskDrop(id)) } else { Ok(()) }
            }
            Record::SegmentDrop(id) if all => {
                self.pages.forget(id);
                self.map.borrow_mut().apply(Record::SegmentDrop(id))
            }
            Record::Chunk(chunk) if all => self.redo_chunk(chunk, &mut redo.chunks),
            Record::Segment(segment) if all => {
                redo.segments.insert(segment.id);
                self.map.borrow_mut().apply(Record::Segment(segment))
            }
            config if all => self.map.borrow_mut().apply(config),
            _ => Ok(()),
        }
    }

    /// A chunk that no checkpoint knows starts empty; what it maps is in the log.
    fn redo_chunk(&self, chunk: ChunkRecord, fresh: &mut Vec<ChunkRecord>) -> Result<()> {
        if self.map.borrow().has_chunk(chunk.table, chunk.chunk) {
            return Ok(());
        }
        self.map.borrow_mut().apply(Record::Chunk(chunk))?;
        if !self.map.borrow().has_chunk(chunk.table, chunk.chunk) {
            return Ok(()); // its table was dropped by a later record, and the configuration read first knows that already
        }
        self.map.borrow().prove_chunk_room()?;
        fresh.push(chunk);
        Ok(())
    }

    /// Landed records of these stripes below `retires` are part of a stripe now, or void.
    fn retire(&self, landed: &mut LandedIndex, table: TableNo, first: u64, count: u64, retires: u64) {
        let map = self.map.borrow();
        let Some(data_len) = map.tables.get(&table).map(|table| table.record.layout.data_len().0) else { return };
        let Some(vdisk) = map.vdisks.values().find(|vdisk| vdisk.tables.contains(&table)) else { return };
        let range = first.saturating_mul(data_len)..first.saturating_add(count).saturating_mul(data_len);
        landed.retire(vdisk.id, range, retires);
    }

    fn redo_commit(&self, commit: CommitRecord<'_>, redo: &mut Redo) -> Result<()> {
        let place = Place { segment: commit.segment, index: commit.index, birth: commit.birth };
        let map = self.map.borrow();
        // The table was dropped by a later record, and the configuration read first knows that already.
        let Some(table) = map.tables.get(&commit.table) else { return Ok(()) };
        if commit.stripe / CHUNK_ENTRIES >= CHUNKS_MAX as u64 {
            return fail!(Corrupt, "stripe {} of table {} is beyond all stripes", commit.stripe, commit.table);
        }
        if !table.chunks.contains_key(&Table::chunk_of(commit.stripe)) {
            return fail!(Corrupt, "stripe {} of table {} is committed without a chunk", commit.stripe, commit.table);
        }
        redo.changes.push((commit.table, commit.stripe, Change::Moved(place)));
        redo.segments.insert(commit.segment);
        let Some(segment) = map.segments.get(&commit.segment) else { return Ok(()) };
        if commit.sums.len() != segment.record.layout.stripe_sums() || commit.index >= map.indexes(&segment.record) {
            return fail!(Corrupt, "a commit to {place:?} does not fit its segment");
        }
        // Both, or the entry would keep the birth of what lay there before.
        redo.sums.remove(&place);
        redo.sums.insert(place, ((commit.table, commit.stripe), commit.sums.into_owned()));
        Ok(())
    }

    /// Brings the metadata pages up to what the log says: checksums, and the versions of pages that no checkpoint
    /// knows. A checkpoint that a crash cut short may have written images of those: the next ones must count as newer.
    async fn redo_pages(&self, mut sums: BTreeMap<Place, Sums>, fresh: Vec<ChunkRecord>) -> Result<()> {
        for chunk in fresh {
            let of = |page| self.page_version(table_page(chunk.table, chunk.chunk, page), (chunk.pages, page));
            if !self.map.borrow().has_chunk(chunk.table, chunk.chunk) {
                continue; // its table was dropped by a later record
            }
            let versions = join((0..CHUNK_PAGES).map(of)).await;
            let mut map = self.map.borrow_mut();
            let found = map.tables.get_mut(&chunk.table).and_then(|table| table.chunks.get_mut(&chunk.chunk));
            found.expect("nothing is dropped meanwhile").versions.copy_from_slice(&versions);
        }
        while !sums.is_empty() {
            let group: Vec<(Place, Sums)> = core::iter::from_fn(|| sums.pop_first()).take(SUMS_AT_ONCE).collect();
            let set = |(place, (owner, sums)): (Place, Sums)| async move {
                if !self.map.borrow().segments.contains_key(&place.segment) {
                    return Ok(()); // it was dropped by a later record
                }
                let _held = match self.load_sums_at(place, 1).await {
                    // Who only reads gets what is there: the stripes of this page are errors, as the page is.
                    Err(_) if self.read_only => return Ok(()),
                    held => held?,
                };
                self.set_sums(place, owner, &sums);
                Ok(())
            };
            join(group.into_iter().map(set)).await.into_iter().collect::<Result<()>>()?;
        }
        Ok(())
    }

    /// Brings the stripe tables up to what the log says. A page of which the log says something, and that cannot be
    /// read, ends the opening: what it would say from now on is older than what was flushed.
    async fn redo_changes(&self, changes: &[(TableNo, u64, Change)]) -> Result<()> {
        for group in changes.chunks(CHANGES_AT_ONCE) {
            let moved = group.iter().filter(|(.., change)| matches!(change, Change::Moved(_)));
            let pages: BTreeSet<(TableNo, u32)> =
                moved.map(|(table, first, _)| (*table, Table::pages_of(&(*first..*first + 1)).start)).collect();
            let loads =
                pages.into_iter().map(|(table, page)| self.load_pages(table, Table::stripes_of(page), For::Replay));
            let _held = join(loads).await.into_iter().collect::<Result<Vec<_>>>()?;
            for (table, first, change) in group {
                match change {
                    // A later record may have dropped the table.
                    Change::Moved(place) if self.map.borrow().has_chunk(*table, Table::chunk_of(*first)) => {
                        self.map.borrow_mut().remap(*table, *first, Some(*place));
                    }
                    Change::Moved(_) => {}
                    Change::Unmapped { count, zero } => {
                        self.redo_unmap(*table, *first..first.saturating_add(*count), *zero).await?;
                    }
                }
            }
        }
        Ok(())
    }

    async fn redo_unmap(&self, table: TableNo, stripes: Range<u64>, zero: bool) -> Result<()> {
        let mut from = stripes.start;
        while let Some(page) = self.next_page(table, from).filter(|page| page.start < stripes.end) {
            let within = page.start..page.end.min(stripes.end);
            let _held = self.load_pages(table, within.clone(), For::Replay).await?;
            self.map.borrow_mut().remap_all(table, within, zero);
            from = page.end;
        }
        Ok(())
    }
}
