//! A fixed-size set of small numbers: sectors a buffer holds, stripes and slabs that are free.

use alloc::vec;
use alloc::vec::Vec;
use core::ops::Range;

/// A fixed-size set of small numbers, kept as bits.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BitSet {
    words: Vec<u64>,
    len: usize,
    count: usize,
    /// The first word that has any.
    low: usize,
}

impl BitSet {
    /// The empty set of numbers below `len`.
    pub fn empty(len: usize) -> BitSet {
        let words = len.div_ceil(64);
        BitSet { words: vec![0; words], len, count: 0, low: words }
    }

    /// How many are in it.
    pub fn count(&self) -> usize {
        self.count
    }

    /// Numbers below this may be in it.
    pub fn len(&self) -> usize {
        self.len
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
        self.words[at / 64] >> (at % 64) & 1 == 1
    }

    /// Adds a range.
    pub fn insert(&mut self, range: Range<usize>) {
        if !range.is_empty() {
            self.low = self.low.min(range.start / 64);
        }
        self.update(range, |word, mask| word | mask);
    }

    /// Takes a range out.
    pub fn remove(&mut self, range: Range<usize>) {
        self.update(range, |word, mask| word & !mask);
        while self.words.get(self.low) == Some(&0) {
            self.low += 1;
        }
    }

    /// The smallest number in `within` that is in the set.
    pub fn first(&self, within: Range<usize>) -> Option<usize> {
        let at = self.seek(within.start.max(self.low * 64)..within.end, true);
        (at < within.end).then_some(at)
    }

    /// The largest number in the set.
    pub fn last(&self) -> Option<usize> {
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
            let word = if present { self.words[at / 64] } else { !self.words[at / 64] };
            let left = word >> (at % 64);
            if left != 0 {
                return (at + left.trailing_zeros() as usize).min(within.end);
            }
            at = (at / 64 + 1) * 64;
        }
        within.end
    }

    fn update(&mut self, range: Range<usize>, change: impl Fn(u64, u64) -> u64) {
        assert!(range.end <= self.len, "{} in a set below {}", range.end, self.len);
        let mut at = range.start;
        while at < range.end {
            let in_word = (range.end - at).min(64 - at % 64);
            let mask = (u64::MAX >> (64 - in_word)) << (at % 64);
            let word = &mut self.words[at / 64];
            let before = word.count_ones() as usize;
            *word = change(*word, mask);
            self.count = self.count - before + word.count_ones() as usize;
            at += in_word;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::BTreeSet;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn it_agrees_with_a_plain_set(steps in prop::collection::vec((0usize..200, 0usize..200, any::<bool>()), 0..20)) {
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
