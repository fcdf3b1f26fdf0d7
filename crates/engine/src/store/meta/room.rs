//! Which blocks of the metadata segments are pages of the tree: a bitmap for each segment.
//!
//! What is durable of it lies in the tree itself, a **root behind**: an entry for every piece of a segment says which
//! blocks of it the root before took, and the record of a root says what that one takes and frees beside it
//! (`TREE` in `docs/on-disk-format.md`). The entries of the pieces that changed are part of the next checkpoint. So the
//! list of a root is durable with that root, as one, and a checkpoint writes of it what changed.
//!
//! ```text
//!   free ---allocate---> born ---publish---> taken ---publish---> waiting ---reuse---> free
//!                          '-----abandon-----------------------------------------------^
//! ```
//!
//! Invariants
//! 1. A block is given out only if it is free: no root since the last one that is durable has it, nor a reader of an
//!    older one, nor anybody else the page pair in which it lies.
//! 2. A pair is the tree's while one of its blocks is not free; then it is anybody's again.
//! 3. A piece of which nobody can tell what is taken is taken, as far as nobody else has it: to give out a page that is
//!    somebody's would be worse.

use crate::bits::BitSet;
use crate::error::Result;
use crate::fail;
use crate::format::record::{OWNER_METADATA, PageChange, Record};
use crate::mutant::{self, Mutant};
use crate::segment::Map;
use crate::tree::{Key, KeyRange, Place};
use crate::units::SegmentNo;
use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec;
use alloc::vec::Vec;

/// The kind of the tree's entries that say which places are taken.
pub const ROOM: u16 = 4;
/// Blocks of a piece: its bits fit one entry.
const PIECE: usize = 4096;

/// The blocks that are pages of the tree.
#[derive(Default)]
pub struct Room {
    /// What is not free, by segment.
    taken: BTreeMap<SegmentNo, BitSet>,
    /// The part of it that was given out since the last root.
    born: BTreeSet<Place>,
    /// And those that roots freed, not yet to be given out again: by root, and all together.
    waiting: VecDeque<(u64, Vec<Place>)>,
    gone: BTreeSet<Place>,
    /// Free blocks of pairs that are the tree's.
    spare: BTreeSet<Place>,
    /// Pieces (segment, number) whose entries are not those of the present root.
    soiled: BTreeSet<(SegmentNo, u32)>,
    /// Where the last page was given out: the next one lies behind it, if there is room.
    cursor: u64,
}

/// The place of a block of a metadata segment.
pub fn place_of(segment: SegmentNo, block: u32) -> Place {
    Place(u64::from(segment.0) << 32 | u64::from(block))
}

/// The segment and the block of a place.
pub fn block_of(place: Place) -> (SegmentNo, u32) {
    (SegmentNo((place.0 >> 32) as u32), place.0 as u32)
}

impl Room {
    /// Gives out a free block. Records of what had to be made for it are added to `records`.
    pub fn allocate(&mut self, map: &mut Map, records: &mut Vec<Record<'static>>) -> Option<Place> {
        let behind = self.spare.range(Place(self.cursor)..).next().or(self.spare.first()).copied();
        let place = match behind {
            Some(place) => {
                self.spare.remove(&place);
                place
            }
            None => {
                let (segment, pair) = map.take_pair(records)?;
                self.spare.insert(place_of(segment, pair * 2 + 1));
                place_of(segment, pair * 2)
            }
        };
        self.cursor = place.0 + 1;
        let (segment, block) = block_of(place);
        let blocks = map.tree_blocks();
        let bits = self.taken.entry(segment).or_insert_with(|| BitSet::empty(blocks));
        bits.insert(block as usize..block as usize + 1);
        self.born.insert(place);
        Some(place)
    }

    /// Takes back what was given out since the last root.
    pub fn abandon(&mut self, map: &mut Map, places: &[Place]) {
        for place in places {
            if self.born.remove(place) && !mutant::active(Mutant::TreePlacesNotGivenBack) {
                self.free(map, *place);
            }
        }
    }

    /// Takes note that root `number` is the truth, and frees these.
    pub fn publish(&mut self, number: u64, freed: Vec<Place>) {
        // The pieces of the root before are in this one.
        self.soiled = self.born.iter().chain(&freed).map(|place| piece_of(*place)).collect();
        self.born.clear();
        self.gone.extend(&freed);
        self.waiting.push_back((number, freed));
    }

    /// What roots up to `number` freed is free.
    pub fn reuse(&mut self, map: &mut Map, number: u64) {
        while let Some((_, places)) = self.waiting.pop_front_if(|(freed, _)| *freed <= number) {
            for place in places {
                self.gone.remove(&place);
                self.free(map, place);
            }
        }
    }

    /// What the root that is about to come takes, and frees.
    pub fn changes(&self, freed: &[Place]) -> Vec<PageChange> {
        let freed: BTreeSet<Place> = freed.iter().copied().collect();
        let mut changes = Vec::new();
        for (places, taken) in [(&self.born, true), (&freed, false)] {
            for (segment, block) in places.iter().map(|place| block_of(*place)) {
                match changes.last_mut() {
                    Some(PageChange { segment: last, first, count, taken: same })
                        if (*last, *first + *count, *same) == (segment, block, taken) =>
                    {
                        *count += 1;
                    }
                    _ => changes.push(PageChange { segment, first: block, count: 1, taken }),
                }
            }
        }
        changes
    }

    /// The entries that the next checkpoint is to have: of each piece that changed, what the present root takes of it.
    /// None where it takes nothing.
    pub fn entries(&self) -> Vec<(Key, Option<Vec<u8>>)> {
        let entry = |(segment, piece): &(SegmentNo, u32)| {
            let mut bytes = vec![0; PIECE / 8];
            let first = *piece as usize * PIECE;
            let bits = self.taken.get(segment);
            let end = bits.map_or(first, |bits| bits.len().min(first + PIECE));
            for run in bits.map_or(Vec::new(), |bits| bits.runs(first.min(end)..end, true)) {
                for block in run.filter(|block| self.is_rooted(place_of(*segment, *block as u32))) {
                    bytes[(block - first) / 8] |= 1 << (block % 8);
                }
            }
            let len = bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
            bytes.truncate(len);
            (Key::new(ROOM, u64::from(segment.0), u64::from(*piece), 0), (len > 0).then_some(bytes))
        };
        self.soiled.iter().map(entry).collect()
    }

    /// Every place that the present root takes.
    pub fn rooted(&self) -> BTreeSet<Place> {
        self.all().filter(|place| self.is_rooted(*place)).collect()
    }

    /// The blocks of a segment that are not free.
    pub fn blocks_in(&self, segment: SegmentNo) -> Vec<u32> {
        let runs = self.taken.get(&segment).map_or(Vec::new(), |bits| bits.runs(0..bits.len(), true));
        runs.into_iter().flatten().map(|block| block as u32).collect()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.taken.values().all(|bits| bits.is_empty())
    }

    /// Whether a page that the present root has may lie here.
    pub fn is_rooted(&self, place: Place) -> bool {
        self.is_taken(place) && !self.born.contains(&place) && !self.gone.contains(&place)
    }

    fn all(&self) -> impl Iterator<Item = Place> {
        let places = |(segment, bits): (&SegmentNo, &BitSet)| {
            let segment = *segment;
            let runs = bits.runs(0..bits.len(), true).into_iter().flatten();
            runs.map(move |block| place_of(segment, block as u32))
        };
        self.taken.iter().flat_map(places)
    }

    fn is_taken(&self, place: Place) -> bool {
        let (segment, block) = block_of(place);
        let bits = self.taken.get(&segment);
        bits.is_some_and(|bits| (block as usize) < bits.len() && bits.contains(block as usize))
    }

    fn free(&mut self, map: &mut Map, place: Place) {
        let (segment, block) = block_of(place);
        let Some(bits) = self.taken.get_mut(&segment) else { return };
        bits.remove(block as usize..block as usize + 1);
        let other = block ^ 1;
        if bits.contains(other as usize) {
            self.spare.insert(place);
        } else {
            self.spare.remove(&place_of(segment, other));
            map.give_pair_back((segment, block / 2));
        }
    }
}

impl Room {
    /// The blocks that a root takes, from the entries of the root before (`entries`; those in `lost` cannot be read)
    /// and from what its record says beside. All that others have is taken in `map`.
    pub fn load(map: &mut Map, entries: &[(Key, Vec<u8>)], lost: &[KeyRange], changes: &[PageChange]) -> Result<Room> {
        let mut room = Room::default();
        for (key, bytes) in entries {
            let (segment, first) = (SegmentNo(key.major as u32), key.middle as usize * PIECE);
            for at in (0..bytes.len() * 8).filter(|at| bytes[at / 8] >> (at % 8) & 1 == 1) {
                room.note(map, segment, first + at, true)?;
            }
        }
        for PageChange { segment, first, count, taken } in changes {
            for block in u64::from(*first)..u64::from(*first) + u64::from(*count) {
                room.note(map, *segment, block as usize, *taken)?;
                room.soiled.insert((*segment, block as u32 / PIECE as u32));
            }
        }
        room.claim_known(map)?;
        room.claim_unknown(map, lost);
        Ok(room)
    }

    fn note(&mut self, map: &Map, segment: SegmentNo, block: usize, taken: bool) -> Result<()> {
        let home = map.segments.get(&segment).filter(|found| found.record.owner == OWNER_METADATA);
        if home.is_none() || block >= map.tree_blocks() {
            return fail!(Corrupt, "a page of the tree lies at block {block} of segment {segment}, which has none");
        }
        let bits = self.taken.entry(segment).or_insert_with(|| BitSet::empty(map.tree_blocks()));
        match taken {
            true => bits.insert(block..block + 1),
            false => bits.remove(block..block + 1),
        }
        Ok(())
    }

    fn claim_known(&mut self, map: &mut Map) -> Result<()> {
        for (segment, bits) in &self.taken {
            for pair in 0..bits.len() / 2 {
                let (one, other) = (bits.contains(pair * 2), bits.contains(pair * 2 + 1));
                if !one && !other {
                    continue;
                }
                if !map.claim_pair((*segment, pair as u32)) {
                    return fail!(Corrupt, "metadata pages {pair} of segment {segment} are claimed twice");
                }
                if one != other {
                    self.spare.insert(place_of(*segment, (pair * 2 + one as usize) as u32));
                }
            }
        }
        Ok(())
    }

    /// Invariant 3.
    fn claim_unknown(&mut self, map: &mut Map, lost: &[KeyRange]) {
        if lost.is_empty() {
            return;
        }
        let metadata = map.metadata_segments();
        let metadata: Vec<SegmentNo> = metadata.map(|found| found.record.id).collect();
        let blocks = map.tree_blocks();
        for segment in metadata {
            for piece in 0..blocks.div_ceil(PIECE) {
                let key = Key::new(ROOM, u64::from(segment.0), piece as u64, 0);
                if !lost.iter().any(|range| range.contains(key)) {
                    continue;
                }
                let bits = self.taken.entry(segment).or_insert_with(|| BitSet::empty(blocks));
                for pair in piece * PIECE / 2..((piece + 1) * PIECE).min(blocks) / 2 {
                    let ours = bits.contains(pair * 2) || bits.contains(pair * 2 + 1);
                    if ours || map.claim_pair((segment, pair as u32)) {
                        bits.insert(pair * 2..pair * 2 + 2);
                    }
                    self.spare.remove(&place_of(segment, pair as u32 * 2));
                    self.spare.remove(&place_of(segment, pair as u32 * 2 + 1));
                }
            }
        }
    }
}

fn piece_of(place: Place) -> (SegmentNo, u32) {
    let (segment, block) = block_of(place);
    (segment, block / PIECE as u32)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::record::{Away, DiskRecord, Media, PowerProtected, Usage};
    use crate::units::{ByteCount, DiskNo};
    use alloc::string::String;
    use proptest::prelude::*;

    /// A map of two disks of so many slabs of 1 MiB, as they are before anything lies on them.
    fn map_of(slabs: u32) -> Map {
        let mut map = Map::new(ByteCount::mib(1));
        for no in 0..2 {
            let record = DiskRecord {
                no: DiskNo(no),
                media: Media::Hdd,
                usage: Usage::AutoSelect,
                slabs,
                disk_len: ByteCount::mib(u64::from(slabs)),
                name: alloc::format!("d{no}"),
                domain: String::new(),
                away: Away::No,
                maintenance: false,
                retired_from: Usage::AutoSelect,
                power: PowerProtected::Auto,
            };
            map.add_disk(record, ByteCount::gib(1));
        }
        map
    }

    /// Another map with the same segments, in which nobody has a page.
    fn blank(map: &Map, slabs: u32) -> Map {
        let mut blank = map_of(slabs);
        for segment in map.segments.values() {
            blank.apply(Record::Segment(segment.record.clone())).unwrap();
        }
        blank
    }

    fn free_pairs(map: &Map) -> usize {
        map.segments.values().map(|segment| segment.free.count()).sum()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        /// Each step is a checkpoint: how many pages it takes, which part of the root's it frees, whether it comes to
        /// its end, and whether a reader keeps what it frees.
        #[test]
        fn a_pool_that_is_opened_again_has_the_places_of_its_root(
            steps in prop::collection::vec((0usize..90, 1usize..6, 0u8..4, any::<bool>()), 1..14),
        ) {
            let (mut map, mut room, mut records) = (map_of(8), Room::default(), Vec::new());
            let (mut root, mut stored) = (BTreeSet::new(), BTreeMap::<Key, Vec<u8>>::new());
            for (number, (takes, part, ends, read)) in steps.into_iter().enumerate() {
                let entries = room.entries();
                let mut born = Vec::new();
                for _ in 0..takes {
                    let place = room.allocate(&mut map, &mut records).expect("there is room");
                    prop_assert!(!root.contains(&place) && !born.contains(&place), "{place:?} is somebody's");
                    born.push(place);
                }
                if ends == 0 {
                    room.abandon(&mut map, &born);
                    prop_assert_eq!(room.rooted(), root.clone());
                    continue;
                }
                for (key, value) in entries {
                    match value {
                        Some(value) => drop(stored.insert(key, value)),
                        None => drop(stored.remove(&key)),
                    }
                }
                let freed: Vec<Place> = root.iter().copied().step_by(part).collect();
                let changes = room.changes(&freed);
                root.retain(|place| !freed.contains(place));
                root.extend(born);
                room.publish(number as u64, freed);
                if !read {
                    room.reuse(&mut map, number as u64);
                }
                let entries: Vec<_> = stored.clone().into_iter().collect();
                let mut again = blank(&map, 8);
                let loaded = Room::load(&mut again, &entries, &[], &changes).unwrap();
                prop_assert_eq!(loaded.rooted(), root.clone());
                let pairs: BTreeSet<(SegmentNo, u32)> =
                    root.iter().map(|place| block_of(*place)).map(|(segment, block)| (segment, block / 2)).collect();
                prop_assert_eq!(free_pairs(&again), again.segments.len() * again.tree_blocks() / 2 - pairs.len());
                if !read {
                    prop_assert_eq!(free_pairs(&map), free_pairs(&again));
                }
            }
        }
    }

    #[test]
    fn what_nobody_can_tell_of_is_not_given_out() {
        let (mut map, mut room, mut records) = (map_of(8), Room::default(), Vec::new());
        let place = room.allocate(&mut map, &mut records).unwrap();
        let changes = room.changes(&[]);
        let mut again = blank(&map, 8);
        let (segment, _) = block_of(place);
        // Somebody else's.
        assert!(again.claim_pair((segment, 7)));
        let mut loaded = Room::load(&mut again, &[], &[KeyRange::of_kind(ROOM)], &changes).unwrap();
        assert_eq!(free_pairs(&again), 0);
        assert_eq!(loaded.blocks_in(segment).len(), again.tree_blocks() - 2);
        let next = loaded.allocate(&mut again, &mut records).unwrap();
        assert_ne!(block_of(next).0, segment, "a new segment is made");
    }

    #[test]
    fn places_that_are_somebody_elses_or_do_not_exist_are_refused() {
        let (mut map, mut room, mut records) = (map_of(8), Room::default(), Vec::new());
        let (segment, block) = block_of(room.allocate(&mut map, &mut records).unwrap());
        let change = |segment, first| [PageChange { segment, first, count: 1, taken: true }];
        let load = |changes: &[PageChange], claimed: u32| {
            let mut again = blank(&map, 8);
            assert!(again.claim_pair((segment, claimed)));
            Room::load(&mut again, &[], &[], changes).map(|_| ())
        };
        assert!(load(&change(segment, block), 5).is_ok());
        assert!(load(&change(segment, block), block / 2).is_err(), "claimed twice");
        assert!(load(&change(segment, 256), 5).is_err(), "beyond its slabs");
        assert!(load(&change(segment.next(), 0), 5).is_err(), "of no segment");
    }
}
