//! The configuration as entries of the tree: what comes with data, segments and chunks.
//!
//! An entry is (`TREE_CONF`, kind of record, number, number within it), and the record itself. A checkpoint writes
//! those of which a record of the log said something since the checkpoint before: O(what changed). Each is written as
//! it is when the checkpoint is begun, as all of the configuration is; what changes later is in the log from there on.
//!
//! Invariants
//! 1. Whatever changes a segment or a chunk appends a record of it ([`crate::segment`], invariant 7), or is a version
//!    of a page that was just written: so nothing that changed is forgotten.
//! 2. A chunk comes with all of its pages: one that was made after the checkpoint was begun is in it only if they were
//!    written. One that was dropped since then is in it, too: what the log says of it comes before it says that.

use super::PoolPages;
use super::space::SPACE;
use crate::error::Result;
use crate::fail;
use crate::format::page::CHUNK_PAGES;
use crate::format::page::{PageId, PageKind};
use crate::format::record::{self, OWNER_METADATA, Record};
use crate::log::Touched;
use crate::mutant::{self, Mutant};
use crate::segment::{Map, chunk_record};
use crate::store::Store;
use crate::tree::{Ahead, Key, KeyRange, Prepared, Tree};
use crate::units::{SegmentNo, TableNo};
use alloc::collections::BTreeSet;
use alloc::vec::Vec;

/// The kind of the tree's entries for the configuration.
pub const CONF: u16 = 3;
/// The part of a key that says: a segment.
pub const SEGMENT: u64 = 7;
/// The part of a key that says: a chunk.
pub const CHUNK: u64 = 9;
/// Entries that are read at once.
const BATCH: usize = 256;
/// The most bytes of a record in one entry: that of a segment with many slots has several, one after the other.
const PART: usize = 512;
/// The most parts of a record.
const PARTS_MAX: usize = 4;

fn segment_key(id: SegmentNo, part: usize) -> Key {
    Key::new(CONF, SEGMENT, id.0.into(), part as u64)
}

fn chunk_key(table: TableNo, chunk: u32) -> Key {
    Key::new(CONF, CHUNK, table.0.into(), chunk.into())
}

impl Store {
    /// Puts into the tree what changed of segments and chunks, as they are now, and of tables that are no more.
    pub(in crate::store) fn put_touched(&self) {
        let (tree, mut map) = (self.tree(), self.map.borrow_mut());
        for touched in self.log.take_touched() {
            match touched {
                Touched::Segment(id) => match map.segments.get(&id) {
                    Some(found) if found.record.owner == OWNER_METADATA => {}
                    Some(found) => {
                        let bytes = bytes_of(&Record::Segment(found.record.clone()));
                        bytes.chunks(PART).enumerate().for_each(|(no, part)| tree.put(segment_key(id, no), part));
                        map.touch_space(id);
                    }
                    None => {
                        (0..PARTS_MAX).for_each(|part| tree.delete(segment_key(id, part)));
                        self.clear_sheet_versions(id);
                        self.clear_space(id);
                    }
                },
                Touched::Table(id) if !map.tables.contains_key(&id) => {
                    tree.clear(KeyRange::new(chunk_key(id, 0), chunk_key(id, u32::MAX)));
                }
                Touched::Table(_) => {}
                Touched::Vdisk(id) => self.clear_heat(id),
                Touched::Chunk(..) if mutant::active(Mutant::ChunkPutLate) => {}
                Touched::Chunk(table, chunk) => put_chunk(&tree, &map, table, chunk),
            }
        }
    }

    /// Notes in the tree which versions the pages of chunks have on the disks now, of which these were written. A chunk
    /// that was made since the checkpoint began is the log's to tell of: the tree may still have who had its pages
    /// before.
    pub(in crate::store) fn put_versions(&self, pages: &[PageId]) {
        let (tree, map) = (self.tree(), self.map.borrow());
        let tables = pages.iter().filter(|page| page.kind == PageKind::Table);
        let chunks: BTreeSet<(TableNo, u32)> =
            tables.map(|page| (TableNo(page.owner), page.number / CHUNK_PAGES)).collect();
        let is_fresh = |(table, chunk)| {
            self.log.is_touched(Touched::Chunk(table, chunk)) && !mutant::active(Mutant::FreshChunkPutEarly)
        };
        let known = chunks.into_iter().filter(|chunk| !is_fresh(*chunk));
        known.for_each(|(table, chunk)| put_chunk(&tree, &map, table, chunk));
    }

    /// Has the next checkpoint put all of the configuration into the tree, which has nothing of it.
    pub fn touch_everything(&self) {
        if !mutant::active(Mutant::TreeBegunAnewEmpty) {
            self.map.borrow().records().iter().for_each(|record| self.log.touch(Touched::by(record)));
            self.map.borrow_mut().touch_all_space();
        }
    }

    /// Applies what the tree has of the configuration.
    pub async fn load_configuration(&self) -> Result<()> {
        let tree = self.tree();
        let (mut rest, mut ahead) = (Some(KeyRange::of_kind(CONF)), Ahead::default());
        let (mut of, mut parts) = (Key::MIN, Vec::new());
        while let Some(range) = rest {
            let scanned = tree.scan_on(range, BATCH, &mut ahead).await?;
            for (key, value) in scanned.entries {
                if (key.major, key.middle) != (of.major, of.middle) || key.major != SEGMENT {
                    self.apply_whole(of, core::mem::take(&mut parts))?;
                    of = key;
                }
                parts.extend_from_slice(&value);
            }
            rest = scanned.next.map(|next| KeyRange::new(next, range.last));
        }
        self.apply_whole(of, parts)
    }

    /// Applies the record of these parts, all of which are there, and which must be what its key says.
    fn apply_whole(&self, key: Key, bytes: Vec<u8>) -> Result<()> {
        if bytes.is_empty() {
            return Ok(());
        }
        let record = record::decode(&mut &bytes[..])?;
        let expected = match &record {
            Record::Segment(segment) if segment.owner != OWNER_METADATA => segment_key(segment.id, 0),
            Record::Chunk(chunk) => chunk_key(chunk.table, chunk.chunk),
            _ => return fail!(Corrupt, "the tree has a record that does not belong there"),
        };
        if key != expected {
            return fail!(Corrupt, "a record of the tree is not what its key says");
        }
        self.map.borrow_mut().apply(record)
    }
}

/// Whether what is prepared lacks changes of the configuration, or of what is in use, because pages are lost that they
/// belong to.
pub fn is_configuration_stuck(prepared: &Prepared<'_>) -> bool {
    let stuck = [CONF, SPACE].into_iter().any(|kind| prepared.is_stuck(KeyRange::of_kind(kind)));
    stuck && !mutant::active(Mutant::TreeStuckIgnored)
}

/// Puts a chunk, unless it is no more: who drops it says so in a record of its own.
fn put_chunk(tree: &Tree<PoolPages>, map: &Map, table: TableNo, number: u32) {
    let found = map.tables.get(&table).and_then(|table| table.chunks.get(&number));
    if let Some(chunk) = found {
        tree.put(chunk_key(table, number), &bytes_of(&chunk_record(table, number, chunk)));
    }
}

fn bytes_of(record: &Record<'_>) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(record.encoded_len());
    record.encode(&mut bytes);
    bytes
}
