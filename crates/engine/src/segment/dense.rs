//! A sorted list of many small entries in memory, dense whatever comes and goes.
//!
//! What a general tree spends on each entry (a key and a value of whole words, nodes half full) is several times what
//! the entry says. Here entries lie side by side in *leaves*, and only leaves are in a tree: a B+-tree of two levels,
//! whose leaves are kept fuller than usual by sharing with both neighbours, as in a B*-tree (Knuth, The Art of Computer
//! Programming, volume 3, section 6.2.4).
//!
//! Invariants
//! 1. Keys ascend within a leaf and from leaf to leaf, and none is there twice. A leaf is found by a key that none of
//!    its own is below; all keys of the leaf before are.
//! 2. No leaf is empty, none has more than [`LEAF`] entries, and where there are three leaves or more, each has
//!    [`LEAST`] or more.
//! 3. What follows from that: the memory of `n` entries is [`memory_of`] each at most, and two leaves more.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::ops::Range;

/// The most entries of a leaf: moving half of them costs less than finding the leaf in memory that is not cached.
const LEAF: usize = 128;
/// The fewest, where there are leaves to share with: two thirds.
const LEAST: usize = LEAF * 2 / 3;
/// How full leaves are made: between both, so that neither comes soon.
const USUAL: usize = LEAF * 5 / 6;

/// Something small with a key.
pub trait Entry: Copy {
    /// What it is sorted by, and found by.
    type Key: Ord + Copy;

    /// Its key.
    fn key(&self) -> Self::Key;
}

/// Bytes of memory of an entry of `size` bytes, at most: a leaf may be two thirds full, and its place in the tree of
/// leaves, with a key of two words and half of a node unused, takes less than 2 bytes of each of the entries.
pub const fn memory_of(size: usize) -> u64 {
    (size * 3).div_ceil(2) as u64 + 2
}

/// A sorted list of entries.
pub struct Dense<E: Entry> {
    leaves: BTreeMap<E::Key, Vec<E>>,
    len: u64,
}

impl<E: Entry> Dense<E> {
    /// Nothing.
    pub fn new() -> Dense<E> {
        Dense { leaves: BTreeMap::new(), len: 0 }
    }

    /// How many entries there are.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The entry of a key.
    pub fn get(&self, key: E::Key) -> Option<E> {
        let (_, leaf) = self.leaves.range(..=key).next_back()?;
        leaf.binary_search_by_key(&key, E::key).ok().map(|at| leaf[at])
    }

    /// The entries of `keys`, in order.
    pub fn range(&self, keys: Range<E::Key>) -> impl Iterator<Item = E> + '_ {
        let Range { start, end } = keys;
        // The first of them may lie in the leaf that begins before.
        let first = self.leaves.range(..start).next_back().map_or(&[][..], |(_, leaf)| leaf);
        let first = first[first.partition_point(|entry| entry.key() < start)..].iter();
        let more = self.leaves.range(start..).flat_map(|(_, leaf)| leaf.iter());
        first.chain(more).take_while(move |entry| entry.key() < end).copied()
    }

    /// All entries, in order.
    pub fn iter(&self) -> impl Iterator<Item = E> + '_ {
        self.leaves.values().flatten().copied()
    }

    /// Adds an entry. Returns the one that had its key before.
    pub fn insert(&mut self, entry: E) -> Option<E> {
        let key = entry.key();
        let no = self.leaf_for(key);
        let leaf = self.leaves.entry(no).or_default();
        match leaf.binary_search_by_key(&key, E::key) {
            Ok(at) => return Some(core::mem::replace(&mut leaf[at], entry)),
            Err(at) if leaf.len() < LEAF => leaf.insert(at, entry),
            Err(_) => self.share(no, Some(entry)),
        }
        self.len += 1;
        None
    }

    /// Takes the entry of a key away.
    pub fn remove(&mut self, key: E::Key) -> Option<E> {
        let (no, leaf) = self.leaves.range_mut(..=key).next_back()?;
        let (no, at) = (*no, leaf.binary_search_by_key(&key, E::key).ok()?);
        let gone = leaf.remove(at);
        self.len -= 1;
        if leaf.is_empty() || leaf.len() < LEAST && self.leaves.len() > 1 {
            self.share(no, None);
        }
        Some(gone)
    }

    /// By which the leaf is found that `key` belongs to. The first leaf begins with it where it is below all others.
    fn leaf_for(&mut self, key: E::Key) -> E::Key {
        if let Some((no, _)) = self.leaves.range(..=key).next_back() {
            return *no;
        }
        if let Some((_, first)) = self.leaves.pop_first() {
            self.leaves.insert(key, first);
        }
        key
    }

    /// Lets a leaf share what it has, with one `more`, evenly with two neighbours, in as many leaves as that takes.
    fn share(&mut self, no: E::Key, more: Option<E>) {
        // One of each side; where there is none on one side, two of the other.
        let mut from = self.leaves.range(..no).next_back().map_or(no, |(before, _)| *before);
        if self.leaves.range(no..).nth(1).is_none() {
            from = self.leaves.range(..from).next_back().map_or(from, |(before, _)| *before);
        }
        let shared: Vec<E::Key> = self.leaves.range(from..).take(3).map(|(no, _)| *no).collect();
        let mut entries: Vec<E> = Vec::with_capacity(3 * LEAF + 1);
        for no in shared {
            entries.extend(self.leaves.remove(&no).into_iter().flatten());
        }
        if let Some(more) = more {
            let at = entries.partition_point(|entry| entry.key() < more.key());
            entries.insert(at, more);
        }
        let leaves = leaves_for(entries.len());
        for nth in 0..leaves {
            let part = &entries[entries.len() * nth / leaves..entries.len() * (nth + 1) / leaves];
            let mut leaf = Vec::with_capacity(LEAF);
            leaf.extend_from_slice(part);
            self.leaves.insert(part[0].key(), leaf);
        }
    }
}

/// In how many leaves so many entries are kept.
fn leaves_for(entries: usize) -> usize {
    let most = entries / LEAST;
    ((entries + USUAL / 2) / USUAL).min(most).max(entries.div_ceil(LEAF))
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::BTreeMap as Model;
    use proptest::prelude::*;

    impl Entry for (u32, u32) {
        type Key = u32;

        fn key(&self) -> u32 {
            self.0
        }
    }

    impl<E: Entry> Dense<E> {
        fn prove(&self) {
            let mut before: Option<E::Key> = None;
            for (no, leaf) in &self.leaves {
                assert!(before.is_none_or(|before| before < *no) && *no <= leaf[0].key(), "a leaf is found elsewhere");
                assert!(leaf.windows(2).all(|two| two[0].key() < two[1].key()), "keys do not ascend");
                let fits = leaf.len() <= LEAF && (self.leaves.len() < 3 || leaf.len() >= LEAST);
                assert!(fits, "{} entries in one of {} leaves", leaf.len(), self.leaves.len());
                before = leaf.last().map(Entry::key);
            }
            assert_eq!(self.leaves.values().map(Vec::len).sum::<usize>() as u64, self.len);
            // A place in the tree of leaves takes twice what it has to where nodes are half full.
            let places = self.leaves.len() * 2 * (size_of::<E::Key>() + size_of::<Vec<E>>());
            let bytes = places + self.leaves.values().map(|leaf| leaf.capacity() * size_of::<E>()).sum::<usize>();
            let most = self.len * memory_of(size_of::<E>()) + 2 * (LEAF * size_of::<E>()) as u64;
            assert!(bytes as u64 <= most, "{bytes} bytes for {} entries", self.len);
        }
    }

    /// What is done to a list: keys, from the first on, each a step after the one before it.
    #[derive(Clone, Debug)]
    struct Step {
        adds: bool,
        first: u32,
        count: u32,
        step: u32,
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let step = (any::<bool>(), 0..4000u32, 1..600u32, prop_oneof![Just(1u32), Just(7), Just(0x1_0001)])
            .prop_map(|(adds, first, count, step)| Step { adds, first, count, step });
        prop::collection::vec(step, 1..40)
    }

    proptest! {
        #[test]
        fn it_is_what_a_general_tree_is(steps in steps()) {
            let (mut dense, mut model) = (Dense::new(), Model::new());
            for (word, Step { adds, first, count, step }) in (0..).zip(steps) {
                for key in (0..count).map(|nth| (first + nth.wrapping_mul(step)) % 4096) {
                    let (found, expected) = match adds {
                        true => (dense.insert((key, word)), model.insert(key, word)),
                        false => (dense.remove(key), model.remove(&key)),
                    };
                    prop_assert_eq!(found.map(|entry| entry.1), expected);
                }
                dense.prove();
                prop_assert!(dense.iter().eq(model.iter().map(|(key, word)| (*key, *word))));
                for key in [first, first + count, 0, 4095] {
                    prop_assert_eq!(dense.get(key).map(|entry| entry.1), model.get(&key).copied());
                    let end = key.saturating_add(count);
                    let expected = model.range(key..end).map(|(key, word)| (*key, *word));
                    prop_assert!(dense.range(key..end).eq(expected));
                }
            }
        }
    }

    #[test]
    fn leaves_are_two_thirds_full_whatever_comes_and_goes() {
        for entries in 2 * LEAST + LEAST - 1..=3 * LEAF + 1 {
            let leaves = leaves_for(entries);
            let (least, most) = (entries / leaves, entries.div_ceil(leaves));
            assert!(most <= LEAF && least >= LEAST, "{entries} entries in {leaves} leaves");
        }
        let mut dense = Dense::new();
        let keys = |nth: u32| nth.wrapping_mul(0x9e37_79b9) >> 8;
        for nth in 0..60_000 {
            dense.insert((keys(nth), nth));
        }
        dense.prove();
        for nth in 0..59_000 {
            dense.remove(keys(nth));
        }
        dense.prove();
    }
}
