//! Whose turn it is: a table that is filled at several fronts ([`crate::segment::fronts`]) goes from one to the next.
//!
//! Invariants
//! 1. The turn follows from nothing but how many stripes were taken: what the next ones come to is known beforehand.

use crate::geometry::Layout;
use crate::units::SegmentNo;
use alloc::vec::Vec;

/// Bytes that go to each disk of a front before it is the turn of the next one.
const TURN: u64 = 1 << 20;
/// Fronts of one table, at most: each keeps runs of stripes in memory, and a segment that is partly filled.
pub const FRONTS_MAX: usize = 8;

/// Where a table is being filled.
#[derive(Default)]
pub struct Fronts {
    /// The segment of each front that has one.
    segments: Vec<Option<SegmentNo>>,
    /// Stripes that were taken so far: they say whose turn it is.
    taken: u64,
}

/// Whose turn it is to take stripes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Turn {
    /// How many fronts there are.
    pub fronts: usize,
    /// Stripes of one turn.
    pub each: u64,
    /// The front whose turn it is.
    pub front: usize,
    /// How many stripes are left of its turn; any number where there is one front.
    pub left: u64,
}

impl Fronts {
    /// Whose turn it is, where there are so many fronts of a table of this layout.
    pub fn turn(&self, fronts: usize, layout: Layout) -> Turn {
        let each = (TURN / layout.interleave().0).max(1);
        let left = if fronts > 1 { each - self.taken % each } else { u64::MAX };
        Turn { fronts, each, front: (self.taken / each) as usize % fronts, left }
    }

    /// The segment of a front. None where it has none yet, or where there were fewer fronts, or more, until now: all of
    /// them begin anew then.
    pub fn at(&self, turn: Turn, front: usize) -> Option<SegmentNo> {
        self.segments.get(front).copied().flatten().filter(|_| self.segments.len() == turn.fronts)
    }

    /// How many fronts there were when stripes were taken last.
    pub fn count(&self) -> usize {
        self.segments.len()
    }

    /// Whether a segment is being filled.
    pub fn has(&self, segment: SegmentNo) -> bool {
        self.segments.contains(&Some(segment))
    }

    /// A front is filled with this segment from now on.
    pub fn set(&mut self, turn: Turn, front: usize, segment: SegmentNo) {
        if self.segments.len() != turn.fronts {
            self.segments = alloc::vec![None; turn.fronts];
        }
        self.segments[front] = Some(segment);
    }

    /// Takes note that `count` stripes were taken.
    pub fn took(&mut self, count: u64) {
        self.taken += count;
    }

    /// A segment is no more.
    pub fn forget(&mut self, segment: SegmentNo) {
        self.segments.iter_mut().for_each(|at| *at = at.filter(|at| *at != segment));
    }
}

impl Turn {
    /// How many of the next `count` stripes are taken from each front.
    pub fn shares(self, count: u64) -> Vec<u64> {
        let mut shares = alloc::vec![0; self.fronts];
        let (mut front, mut left, mut rest) = (self.front, self.left, count);
        while rest > 0 {
            let now = rest.min(left);
            shares[front] += now;
            rest -= now;
            (front, left) = ((front + 1) % self.fronts, self.each);
        }
        shares
    }

    /// The most of the next `count` stripes of which `front` takes no more than `room`.
    pub fn most(self, count: u64, front: usize, room: u64) -> u64 {
        let (mut low, mut high) = (0, count);
        while low < high {
            let middle = high - (high - low) / 2;
            if self.shares(middle)[front] <= room { low = middle } else { high = middle - 1 }
        }
        low
    }
}

/// For how many fronts there are `disks`, where a stripe has `slots`.
pub fn fronts_of(disks: usize, slots: usize) -> usize {
    (disks / slots).clamp(1, FRONTS_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_each_front_takes_of_the_next_stripes_adds_up() {
        for turn in [Turn { fronts: 3, each: 4, front: 1, left: 2 }, Turn { fronts: 1, each: 4, front: 0, left: 9 }] {
            for count in 0..40 {
                let shares = turn.shares(count);
                assert_eq!(shares.iter().sum::<u64>(), count);
                for (front, share) in shares.iter().enumerate() {
                    assert!(turn.most(count, front, *share) == count);
                    let fewer = turn.most(count, front, share.saturating_sub(1));
                    assert!(*share == 0 || fewer < count && turn.shares(fewer)[front] == share - 1);
                }
            }
        }
    }
}
