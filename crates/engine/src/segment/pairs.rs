//! Page pairs that the tree takes of metadata segments, one at a time: two of its pages lie in each.
//!
//! Invariants
//! 1. As many pairs are kept free for the tree as a checkpoint takes at most, and as the tree grows by. Sheets leave
//!    them alone: so what is promised to virtual disks does not depend on when checkpoints come. Chunks, without which
//!    a stripe cannot be written, take them where nothing else is left; a checkpoint that finds too few is a whole one
//!    (`store/checkpoint.rs`).

use super::{Map, PAGE_PAIR};
use crate::format::record::{OWNER_METADATA, PageRun, Record};
use crate::units::{BLOCK, SegmentNo};
use alloc::vec::Vec;

/// A page pair: its metadata segment, and its number there.
pub type Pair = (SegmentNo, u32);

impl Map {
    /// Takes a free pair: the last one of the first metadata segment that has any, for sheets and chunks take runs from
    /// the beginning; else one of a new segment, whose record is added to `records`. None where there is no room for a
    /// segment.
    pub fn take_pair(&mut self, records: &mut Vec<Record<'static>>) -> Option<Pair> {
        let id = match self.first_with(1) {
            Some(id) => id,
            None => {
                let id = self.new_metadata_segment().ok()?;
                records.push(Record::Segment(self.segments[&id].record.clone()));
                id
            }
        };
        let free = &mut self.segments.get_mut(&id)?.free;
        let last = free.last()?;
        free.remove(last..last + 1);
        self.relist(id);
        self.tree_pairs += 1;
        Some((id, last as u32))
    }

    /// Takes this pair. `false`: it does not exist, or is somebody's.
    pub fn claim_pair(&mut self, (id, pair): Pair) -> bool {
        let segment = self.segments.get_mut(&id).filter(|segment| segment.record.owner == OWNER_METADATA);
        let Some(segment) = segment else { return false };
        let pair = pair as usize;
        if pair >= segment.free.len() || !segment.free.contains(pair) {
            return false;
        }
        segment.free.remove(pair..pair + 1);
        self.relist(id);
        self.tree_pairs += 1;
        true
    }

    /// Gives a pair back.
    pub fn give_pair_back(&mut self, (segment, first): Pair) {
        self.tree_pairs -= 1;
        self.put_pages_back(PageRun { segment, first, count: 1 });
    }

    /// How many pairs are kept free for the tree, when records of so many bytes are in it and there are so many
    /// metadata segments (invariant 1): together with those it has, for all of its pages beside all of them; and for
    /// all of them once, where it was larger before.
    pub(super) fn pairs_kept(&self, bulk: u64, metadata: u64) -> u64 {
        /// Pairs for the upper levels of small trees.
        const BESIDE: u64 = 8;
        /// A page is a quarter full at least, and a third of that may be the keys of entries.
        const LEAST: u64 = BLOCK / 6;
        // The entries that say which places are taken: the tree's pages may be in all pieces.
        let room = metadata * room_entries_len(self.tree_blocks() as u64);
        let leaves = (bulk + room).div_ceil(LEAST);
        // A page above has twenty children at least.
        let pages = leaves + leaves / 16 + BESIDE;
        pages.saturating_sub(self.tree_pairs).max(pages / 2)
    }

    /// Whether so many pairs may be taken by others than the tree.
    pub(super) fn may_take_pairs(&self, count: u64) -> bool {
        self.free_pairs() >= count + self.pairs_kept(self.bulk, self.metadata.len() as u64)
    }

    /// Whether so many bytes more of entries leave all free that is kept for the others.
    pub fn tree_may_grow(&self, bytes: u64) -> bool {
        self.free_pairs() >= self.pairs_kept(self.bulk + bytes, self.metadata.len() as u64)
    }

    /// How many pages of the tree a metadata segment has room for.
    pub fn tree_blocks(&self) -> usize {
        ((self.slab.0 / PAGE_PAIR) * (PAGE_PAIR / BLOCK)) as usize
    }
}

/// Bytes of the entries for a metadata segment of so many blocks, in which the tree has pages everywhere.
fn room_entries_len(blocks: u64) -> u64 {
    const PIECE: u64 = 4096;
    const KEY: u64 = 32;
    blocks.div_ceil(PIECE) * KEY + blocks / 8
}
