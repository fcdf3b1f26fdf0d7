//! A fixed-size set of small numbers: sectors a buffer holds, stripes and slabs that are free.

use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;
use core::ops::Range;

/// A fixed-size set of small numbers, kept as bits. One that has all of them, or none, takes no memory for that: most
/// segments of a pool are full, and nothing is under way to them.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BitSet {
    /// None where all numbers are in it, or none is.
    words: Box<[u64]>,
    len: u32,
    count: u32,
    /// The first word that has any.
    low: u32,
}

impl BitSet {
    /// The empty set of numbers below `len`.
    pub fn empty(len: usize) -> BitSet {
        let len = u32::try_from(len).expect("numbers are small");
        BitSet { words: Box::default(), len, count: 0, low: len.div_ceil(64) }
    }

    /// How many are in it.
    pub fn count(&self) -> usize {
        self.count as usize
    }

    /// Numbers below this may be in it.
    pub fn len(&self) -> usize {
        self.len as usize
    }

    /// Whether none is in it.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Whether all are in it.
    pub fn is_full(&self) -> bool {
        self.count == self.len
    }

    /// Whether `at` is in it.
    pub fn contains(&self, at: usize) -> bool {
        at < self.len() && self.word(at / 64) >> (at % 64) & 1 == 1
    }

    /// Bytes that it takes beside its own.
    pub fn heap_bytes(&self) -> usize {
        size_of_val(&*self.words)
    }

    /// Adds a range.
    pub fn insert(&mut self, range: Range<usize>) {
        if !range.is_empty() {
            self.low = self.low.min((range.start / 64) as u32);
        }
        self.update(range, true);
    }

    /// Takes a range out.
    pub fn remove(&mut self, range: Range<usize>) {
        self.update(range, false);
        while self.words.get(self.low as usize) == Some(&0) {
            self.low += 1;
        }
    }

    /// The smallest number in `within` that is in the set.
    pub fn first(&self, within: Range<usize>) -> Option<usize> {
        let at = self.seek(within.start.max(self.low as usize * 64)..within.end, true);
        (at < within.end).then_some(at)
    }

    /// The largest number in the set.
    pub fn last(&self) -> Option<usize> {
        if self.is_full() {
            return self.len().checked_sub(1);
        }
        let (at, word) = self.words.iter().enumerate().rfind(|(_, word)| **word != 0)?;
        Some(at * 64 + word.ilog2() as usize)
    }

    /// The smallest number in `within` that is not in the set, or its end.
    pub fn first_absent(&self, within: Range<usize>) -> usize {
        self.seek(within, false)
    }

    /// The runs inside `within` of numbers that are in the set (`present`) or are not.
    pub fn runs(&self, within: Range<usize>, present: bool) -> Vec<Range<usize>> {
        let mut runs = Vec::new();
        let mut at = within.start;
        while at < within.end {
            let start = self.seek(at..within.end, present);
            if start == within.end {
                break;
            }
            at = self.seek(start..within.end, !present);
            runs.push(start..at);
        }
        runs
    }

    /// The first number in `within` whose membership is `present`, or its end.
    fn seek(&self, within: Range<usize>, present: bool) -> usize {
        let mut at = within.start;
        while at < within.end {
            let word = if present { self.word(at / 64) } else { !self.word(at / 64) };
            let left = word >> (at % 64);
            if left != 0 {
                return (at + left.trailing_zeros() as usize).min(within.end);
            }
            at = (at / 64 + 1) * 64;
        }
        within.end
    }

    /// The bits of a word; those beyond the last number are anything.
    fn word(&self, at: usize) -> u64 {
        match self.count {
            0 => 0,
            all if all == self.len => u64::MAX,
            _ => self.words[at],
        }
    }

    fn update(&mut self, range: Range<usize>, present: bool) {
        assert!(range.end <= self.len(), "{} in a set below {}", range.end, self.len);
        let is_so = if present { self.is_full() } else { self.is_empty() };
        if range.is_empty() || is_so {
            return;
        }
        if range.len() == self.len() {
            return self.make_all(present);
        }
        self.keep_words();
        let mut at = range.start;
        while at < range.end {
            let in_word = (range.end - at).min(64 - at % 64);
            let mask = (u64::MAX >> (64 - in_word)) << (at % 64);
            let word = &mut self.words[at / 64];
            let before = word.count_ones();
            *word = if present { *word | mask } else { *word & !mask };
            self.count = self.count - before + word.count_ones();
            at += in_word;
        }
        if self.is_full() || self.is_empty() {
            self.make_all(present);
        }
    }

    fn make_all(&mut self, present: bool) {
        self.words = Box::default();
        (self.count, self.low) = if present { (self.len, 0) } else { (0, self.len.div_ceil(64)) };
    }

    /// Has words for what it has none of yet.
    fn keep_words(&mut self) {
        if !self.words.is_empty() {
            return;
        }
        let mut words = vec![if self.is_empty() { 0 } else { u64::MAX }; self.len().div_ceil(64)];
        if let (Some(last), false) = (words.last_mut(), self.len.is_multiple_of(64)) {
            *last &= (1 << (self.len % 64)) - 1;
        }
        self.words = words.into_boxed_slice();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::BTreeSet;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn it_agrees_with_a_plain_set(steps in prop::collection::vec((0usize..=200, 0usize..=200, any::<bool>()), 0..20)) {
            let mut set = BitSet::empty(200);
            let mut model = BTreeSet::new();
            for (a, b, add) in steps {
                let range = a.min(b)..a.max(b);
                if add {
                    set.insert(range.clone());
                    model.extend(range);
                } else {
                    set.remove(range.clone());
                    model.retain(|at| !range.contains(at));
                }
            }
            prop_assert_eq!(set.count(), model.len());
            prop_assert_eq!(set.heap_bytes() == 0, [0, 200].contains(&model.len()));
            let mut again = BitSet::empty(200);
            model.iter().for_each(|at| again.insert(*at..*at + 1));
            prop_assert_eq!(&again, &set, "sets of the same numbers are equal");
            prop_assert_eq!((set.first(0..200), set.last()), (model.first().copied(), model.last().copied()));
            prop_assert_eq!(set.first(70..90), model.range(70..90).next().copied());
            let listed: BTreeSet<usize> = set.runs(3..190, true).into_iter().flatten().collect();
            let absent: BTreeSet<usize> = set.runs(3..190, false).into_iter().flatten().collect();
            for at in 3..190 {
                prop_assert_eq!(listed.contains(&at), model.contains(&at));
                prop_assert_eq!(absent.contains(&at), !model.contains(&at));
            }
        }
    }
}
