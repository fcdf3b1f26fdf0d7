//! Page pairs that the tree takes of metadata segments, one at a time: two of its pages lie in each.

use super::{Map, PAGE_PAIR};
use crate::format::record::{OWNER_METADATA, PageRun, Record};
use crate::units::BLOCK;
use alloc::vec::Vec;

/// A page pair: its metadata segment, and its number there.
pub type Pair = (u32, u32);

impl Map {
    /// Takes a free pair: the first one from `from` on, else the first of all, else one of a new segment, whose record
    /// is added to `records`. None where there is no room for a segment.
    pub fn take_pair(&mut self, from: Pair, records: &mut Vec<Record<'static>>) -> Option<Pair> {
        let all = self.segments.values().filter(|segment| segment.record.owner == OWNER_METADATA);
        let free = all.filter(|segment| !segment.free.is_empty()).map(|segment| {
            let (id, len) = (segment.record.id, segment.free.len());
            let start = if id == from.0 { (from.1 as usize).min(len) } else { 0 };
            // Pairs before `from` in its own segment come last of all.
            match segment.free.first(start..len) {
                Some(pair) => (id < from.0, id, pair),
                None => (true, u32::MAX, segment.free.first(0..start).expect("one of them is free")),
            }
        });
        let found = free.min().map(|(_, id, pair)| (if id == u32::MAX { from.0 } else { id }, pair as u32));
        let (id, pair) = match found {
            Some(found) => found,
            None => {
                let id = self.new_metadata_segment().ok()?;
                records.push(Record::Segment(self.segments[&id].record.clone()));
                (id, 0)
            }
        };
        self.segments.get_mut(&id)?.free.remove(pair as usize..pair as usize + 1);
        Some((id, pair))
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
        true
    }

    /// Gives a pair back.
    pub fn give_pair_back(&mut self, (segment, first): Pair) {
        self.put_pages_back(PageRun { segment, first, count: 1 });
    }

    /// How many pages of the tree a metadata segment has room for.
    pub fn tree_blocks(&self) -> usize {
        ((self.slab.0 / PAGE_PAIR) * (PAGE_PAIR / BLOCK)) as usize
    }
}
