//! Numbers that are given out, the lowest first, and come back: those of packed stripes.
//!
//! Invariants
//! 1. Every number below `next` is given out, or in `free`; none is in both.

use alloc::collections::BTreeSet;

/// The most numbers that are looked for among those that are given out already: what lies far apart leaves the rest of
/// the gap unused.
const GAPS_MAX: usize = 1 << 16;

/// What is given out, as far as it is not in use any more.
#[derive(Default)]
pub struct Numbers {
    next: u64,
    free: BTreeSet<u64>,
}

impl Numbers {
    /// All numbers but those `used`, which come in order.
    pub fn but(used: impl Iterator<Item = u64>) -> Numbers {
        let mut numbers = Numbers::default();
        for number in used {
            let gap = numbers.next..number;
            numbers.free.extend(gap.take(GAPS_MAX.saturating_sub(numbers.free.len())));
            numbers.next = number.saturating_add(1);
        }
        numbers
    }

    /// Takes the lowest number that is not in use.
    pub fn take(&mut self) -> u64 {
        self.free.pop_first().unwrap_or_else(|| {
            self.next += 1;
            self.next - 1
        })
    }

    /// Gives a number back.
    pub fn give(&mut self, number: u64) {
        self.free.insert(number);
        while self.next > 0 && self.free.last() == Some(&(self.next - 1)) {
            self.free.pop_last();
            self.next -= 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lowest_number_that_is_not_in_use_is_taken() {
        let mut numbers = Numbers::default();
        assert_eq!([numbers.take(), numbers.take(), numbers.take()], [0, 1, 2]);
        numbers.give(1);
        numbers.give(0);
        assert_eq!([numbers.take(), numbers.take(), numbers.take()], [0, 1, 3]);
        (0..4).for_each(|number| numbers.give(number));
        assert!(numbers.free.is_empty() && numbers.next == 0, "nothing is remembered of what is all given back");
    }

    #[test]
    fn numbers_that_lie_far_apart_cost_little() {
        let mut numbers = Numbers::but([0, 3, 1 << 60].into_iter());
        assert_eq!([numbers.take(), numbers.take(), numbers.take()], [1, 2, 4]);
        assert!(numbers.free.len() < GAPS_MAX);
    }
}
