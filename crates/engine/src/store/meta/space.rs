//! Which stripes are in use, as entries of the tree: an opening counts free space from them, not from stripe tables.
//!
//! An entry is (`TREE_SPACE`, segment, piece, 0): how many stripes of the piece are in use, and a bit for each, zeros
//! at the end left out. Every piece of every segment has one. The `TREE` record says that they are there: a weft that
//! knows nothing of them leaves that out, and what it left in the tree is not believed.
//!
//! Invariants
//! 1. The bits are those of the moment after the last image of a stripe table was taken for the checkpoint, and no
//!    commit of which they speak is withdrawn later: else the checkpoint begins anew. A replay that begins with the
//!    images which the checkpoint names finds what each of its records let go of.
//! 2. Bits that are missing, or contradict themselves, are no bits: the segment is counted from its table.
//! 3. A checkpoint without the bits of a segment that changed is none: where a page of them is lost, a whole one is
//!    taken.

use crate::bits::BitSet;
use crate::error::Result;
use crate::format::record::OWNER_METADATA;
use crate::mutant::{self, Mutant};
use crate::segment::Map;
use crate::store::Store;
use crate::store::table_pages::For;
use crate::tree::{Ahead, Key, KeyRange, TreeError};
use crate::units::SegmentNo;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;

/// The kind of the tree's entries that say which stripes are in use.
pub const SPACE: u16 = 6;
/// Stripes of a piece: its bits fit one entry.
const PIECE: usize = 4096;
/// Bytes before the bits.
const HEAD: usize = 4;
/// Entries that are read at once.
const BATCH: usize = 256;

fn key(segment: SegmentNo, piece: usize) -> Key {
    Key::new(SPACE, segment.0.into(), piece as u64, 0)
}

impl Store {
    /// Puts into the tree which stripes are in use now, of the segments of which that changed.
    pub(in crate::store) fn put_space(&self) {
        let tree = self.tree();
        let mut map = self.map.borrow_mut();
        for id in map.take_touched_space() {
            let Some(bits) = bits_of(&map, id) else { continue };
            let pieces = (0..bits.len()).step_by(PIECE).enumerate();
            pieces.for_each(|(no, first)| tree.put(key(id, no), &encode(bits, first)));
        }
        self.commits.withdrawn_before.set(self.limbo.withdrawals());
    }

    /// Has the tree forget the bits of a segment that is no more.
    pub(super) fn clear_space(&self, segment: SegmentNo) {
        self.tree().clear(KeyRange::new(key(segment, 0), key(segment, u32::MAX as usize)));
    }

    /// Takes the bits from the tree, of segments that the checkpoint has.
    pub async fn load_space(&self) -> Result<()> {
        let said = self.meta.said.borrow().as_ref().is_some_and(|said| said.space);
        let said = said || mutant::active(Mutant::OldSpaceBelieved);
        let mut found: BTreeMap<usize, Vec<u8>> = BTreeMap::new();
        let mut of = SegmentNo(0);
        let (mut rest, mut ahead) = (Some(KeyRange::of_kind(SPACE)).filter(|_| said), Ahead::default());
        while let Some(range) = rest {
            match self.tree().scan_on(range, BATCH, &mut ahead).await {
                Ok(scanned) => {
                    for (key, value) in scanned.entries {
                        let segment = SegmentNo(key.major as u32);
                        if segment != of {
                            self.take_bits(of, core::mem::take(&mut found));
                            of = segment;
                        }
                        found.insert(key.middle as usize, value.to_vec());
                    }
                    rest = scanned.next.map(|next| KeyRange::new(next, range.last));
                }
                // Their segments lack pieces, and are counted.
                Err(TreeError::Lost(lost)) => {
                    let next = lost.range.last.next().filter(|next| *next <= range.last);
                    rest = next.map(|next| KeyRange::new(next, range.last));
                }
                Err(error) => return Err(error.into()),
            }
        }
        self.take_bits(of, found);
        self.map.borrow_mut().space_loaded();
        Ok(())
    }

    /// Counts, from the tables, what is in use of the segments whose bits nobody can tell.
    pub async fn count_untold_space(&self) -> Result<()> {
        let untold = self.map.borrow().untold();
        for table in untold {
            self.map.borrow_mut().begin_count(table);
            let mut from = 0;
            while let Some(stripes) = self.next_page(table, from) {
                from = stripes.end;
                match self.load_pages(table, stripes.clone(), For::Count).await {
                    Ok(_held) => self.map.borrow_mut().count(table, stripes)?,
                    Err(_) => self.map.borrow_mut().take_untold(table),
                }
            }
        }
        Ok(())
    }

    /// Takes the pieces of a segment, if all are there.
    fn take_bits(&self, segment: SegmentNo, pieces: BTreeMap<usize, Vec<u8>>) {
        let mut map = self.map.borrow_mut();
        let Some(len) = bits_of(&map, segment).map(BitSet::len) else { return };
        let mut bits = BitSet::empty(len);
        let mut all = (0..len).step_by(PIECE).enumerate();
        let decoded = all.try_for_each(|(no, first)| decode(pieces.get(&no)?, first, &mut bits));
        if decoded.is_some() {
            map.load_space(segment, bits);
        }
    }
}

/// The bits of a segment, if it is one for data.
fn bits_of(map: &Map, id: SegmentNo) -> Option<&BitSet> {
    map.segments.get(&id).filter(|found| found.record.owner != OWNER_METADATA).map(|found| &found.mapped)
}

/// The entry of the piece that begins at `first`.
fn encode(bits: &BitSet, first: usize) -> Vec<u8> {
    let end = bits.len().min(first + PIECE);
    let mut bytes = alloc::vec![0; PIECE / 8];
    let mut count = 0u32;
    for index in bits.runs(first..end, true).into_iter().flatten() {
        bytes[(index - first) / 8] |= 1 << (index % 8);
        count += 1;
    }
    let used = bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
    let mut entry = count.to_le_bytes().to_vec();
    entry.extend_from_slice(&bytes[..used]);
    entry
}

/// Adds the bits of an entry. `None`: it contradicts itself.
fn decode(entry: &[u8], first: usize, bits: &mut BitSet) -> Option<()> {
    let (head, bytes) = entry.split_at_checked(HEAD)?;
    let end = bits.len().min(first + PIECE);
    let before = bits.count();
    for (at, byte) in bytes.iter().enumerate() {
        for bit in (0..8).filter(|bit| byte >> bit & 1 == 1) {
            let index = first + at * 8 + bit;
            if index >= end {
                return None;
            }
            bits.insert(index..index + 1);
        }
    }
    let count = u32::from_le_bytes(head.try_into().ok()?);
    (bits.count() - before == count as usize).then_some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_read_back_and_those_that_contradict_themselves_do_not() {
        let mut bits = BitSet::empty(PIECE + 100);
        [3..9, 4000..4096, 4100..4101, 4195..4196].into_iter().for_each(|run| bits.insert(run));
        let mut again = BitSet::empty(bits.len());
        for first in [0, PIECE] {
            decode(&encode(&bits, first), first, &mut again).unwrap();
        }
        assert_eq!(again, bits);
        assert_eq!(encode(&BitSet::empty(10), 0), [0; 4]);
        let mut entry = encode(&bits, 0);
        entry[4] ^= 1;
        assert_eq!(decode(&entry, 0, &mut BitSet::empty(5000)), None, "the count is another");
        assert_eq!(decode(&[1, 0, 0, 0, 0, 1], 0, &mut BitSet::empty(8)), None, "beyond the segment");
        assert_eq!(decode(&[1, 0], 0, &mut BitSet::empty(8)), None);
    }
}
