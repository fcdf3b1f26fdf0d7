//! A set of bytes, as ranges that do not touch.

use std::collections::BTreeMap;
use std::ops::Range;

/// A set of bytes.
#[derive(Clone, Default, Debug)]
pub struct Ranges(BTreeMap<u64, u64>);

impl Ranges {
    /// Adds these.
    pub fn insert(&mut self, range: Range<u64>) {
        let (mut start, mut end) = (range.start, range.end);
        while let Some((&from, &to)) = self.0.range(..=end).next_back().filter(|(_, to)| **to >= start) {
            self.0.remove(&from);
            (start, end) = (start.min(from), end.max(to));
        }
        self.0.insert(start, end);
    }

    /// Takes these away.
    pub fn remove(&mut self, range: Range<u64>) {
        while let Some((&from, &to)) = self.0.range(..range.end).next_back().filter(|(_, to)| **to > range.start) {
            self.0.remove(&from);
            for left in [from..range.start, range.end..to] {
                if left.start < left.end {
                    self.0.insert(left.start, left.end);
                }
            }
        }
    }

    /// Whether all of these are in it.
    pub fn covers(&self, range: &Range<u64>) -> bool {
        self.0.range(..=range.start).next_back().is_some_and(|(_, to)| *to >= range.end)
    }

    /// Whether any of these is in it.
    pub fn meets(&self, range: &Range<u64>) -> bool {
        self.0.range(..range.end).next_back().is_some_and(|(_, to)| *to > range.start)
    }

    /// What of these is in it.
    pub fn within(&self, range: Range<u64>) -> Vec<Range<u64>> {
        let before = self.0.range(..range.start).next_back();
        let met = before.into_iter().chain(self.0.range(range.start..range.end));
        met.map(|(from, to)| *from.max(&range.start)..*to.min(&range.end))
            .filter(|left| left.start < left.end)
            .collect()
    }

    /// What of these is not in it.
    pub fn missing(&self, range: Range<u64>) -> Vec<Range<u64>> {
        let mut missing = Vec::new();
        let mut at = range.start;
        for there in self.within(range.clone()) {
            if at < there.start {
                missing.push(at..there.start);
            }
            at = there.end;
        }
        if at < range.end {
            missing.push(at..range.end);
        }
        missing
    }

    /// The first range, and whichever begins at `from` or after it.
    pub fn first_from(&self, from: u64) -> Option<Range<u64>> {
        self.0.range(from..).next().or_else(|| self.0.iter().next()).map(|(from, to)| *from..*to)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weft_sim::rng::Rng;

    #[test]
    fn ranges_agree_with_a_bitmap() {
        let (mut rng, mut ranges, mut bits) = (Rng::new(1), Ranges::default(), [false; 100]);
        for _ in 0..4_000 {
            let start = rng.below(99);
            let range = start..rng.range(start + 1..101);
            let adds = rng.chance(0.5);
            bits[range.start as usize..range.end as usize].fill(adds);
            if adds {
                ranges.insert(range)
            } else {
                ranges.remove(range)
            }
            let start = rng.below(99);
            let asked = start..rng.range(start + 1..101);
            let count = |set| (asked.start..asked.end).filter(|at| bits[*at as usize] == set).count() as u64;
            let sum = |ranges: Vec<Range<u64>>| ranges.iter().map(|range| range.end - range.start).sum::<u64>();
            assert_eq!(sum(ranges.within(asked.clone())), count(true));
            assert_eq!(sum(ranges.missing(asked.clone())), count(false));
            assert_eq!(ranges.covers(&asked), count(false) == 0);
            assert_eq!(ranges.meets(&asked), count(true) > 0);
        }
    }
}
