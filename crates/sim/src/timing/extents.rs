//! A set of byte ranges that do not touch each other: what is dirty in a write cache.

use std::collections::BTreeMap;
use std::ops::Range;

#[derive(Clone, Default)]
pub struct Extents {
    /// Start -> end.
    ranges: BTreeMap<u64, u64>,
    bytes: u64,
}

impl Extents {
    /// Adds a range, merging what overlaps or touches; returns how many bytes were new.
    pub fn insert(&mut self, range: Range<u64>) -> u64 {
        let before = self.bytes;
        let (mut start, mut end) = (range.start, range.end);
        while let Some((&at, &until)) = self.ranges.range(..=end).next_back() {
            if until < start {
                break;
            }
            self.ranges.remove(&at);
            self.bytes -= until - at;
            (start, end) = (start.min(at), end.max(until));
        }
        self.ranges.insert(start, end);
        self.bytes += end - start;
        self.bytes - before
    }

    /// Takes a range out; returns how many bytes of it were there.
    pub fn remove(&mut self, range: Range<u64>) -> u64 {
        let before = self.bytes;
        while let Some((&at, &until)) = self.ranges.range(..range.end).next_back() {
            if until <= range.start {
                break;
            }
            self.ranges.remove(&at);
            self.bytes -= until - at;
            for left in [at..range.start.max(at), range.end.min(until)..until] {
                if !left.is_empty() {
                    self.bytes += left.end - left.start;
                    self.ranges.insert(left.start, left.end);
                }
            }
        }
        before - self.bytes
    }

    /// Whether the whole range is there.
    pub fn covers(&self, range: Range<u64>) -> bool {
        self.ranges.range(..=range.start).next_back().is_some_and(|(_, until)| *until >= range.end)
    }

    /// Whether adding the range would make no new entry.
    pub fn would_merge(&self, range: &Range<u64>) -> bool {
        self.ranges.range(..=range.end).next_back().is_some_and(|(_, until)| *until >= range.start)
    }

    /// Up to `count` ranges in the order of an elevator that starts at `from` and goes up, then once more from the
    /// bottom. A range around `from` is cut there: its rest comes first.
    pub fn upwards(&self, from: u64, count: usize) -> impl Iterator<Item = Range<u64>> {
        let around =
            self.ranges.range(..from).next_back().map(|(_, until)| from..*until).filter(|rest| !rest.is_empty());
        let above = self.ranges.range(from..).map(|(at, until)| *at..*until);
        let below = self.ranges.range(..from).map(move |(at, until)| *at..(*until).min(from));
        around.into_iter().chain(above).chain(below).take(count)
    }

    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    pub fn count(&self) -> usize {
        self.ranges.len()
    }

    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Rng;

    #[test]
    fn extents_agree_with_a_bitmap() {
        let mut rng = Rng::new(1);
        let mut extents = Extents::default();
        let mut bitmap = [false; 200];
        for _ in 0..5_000 {
            let start = rng.below(199);
            let range = start..rng.range(start + 1..(start + 30).min(200) + 1);
            let bits = &mut bitmap[range.start as usize..range.end as usize];
            let set = bits.iter().filter(|bit| **bit).count() as u64;
            if rng.chance(0.5) {
                assert_eq!(extents.insert(range.clone()), bits.len() as u64 - set);
                bits.fill(true);
            } else {
                assert_eq!(extents.remove(range.clone()), set);
                bits.fill(false);
            }
            assert_eq!(extents.bytes(), bitmap.iter().filter(|bit| **bit).count() as u64);
            let whole = bitmap[range.start as usize..range.end as usize].iter().all(|bit| *bit);
            assert_eq!(extents.covers(range), whole);
            let from = rng.below(200);
            let mut met: Vec<u64> = extents.upwards(from, usize::MAX).flatten().collect();
            assert!(met.iter().map(|at| (*at + 200 - from) % 200).is_sorted());
            met.sort_unstable();
            let set: Vec<u64> = (0..200).filter(|at| bitmap[*at as usize]).collect();
            assert_eq!(met, set);
        }
    }
}
