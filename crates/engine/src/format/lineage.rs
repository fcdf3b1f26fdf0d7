//! The lineage of a pool: which opening for writing followed which. Every opening has a number, one more than any that
//! was promised before it, and a random number of its own. Two machines that go on from the same disks have different
//! random numbers, so what either wrote can be told apart.
//!
//! Invariants
//! 1. The random number of an opening never changes; `numbers[n]` is that of opening `opened - n`.
//! 2. An opening number that was promised and never used has the random number 0, which no opening has.

/// Openings whose random numbers are kept. Older ones are believed: nobody can say any more whether they were another
/// history's.
pub const LINEAGE_KEPT: usize = 128;

/// The last openings of a pool, as a label lists them.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Lineage {
    /// The number of the newest opening.
    pub opened: u64,
    /// The random numbers of the openings, newest first.
    pub numbers: [u64; LINEAGE_KEPT],
}

impl Lineage {
    /// The lineage of a pool that was never opened.
    pub fn founded() -> Lineage {
        Lineage { opened: 0, numbers: [0; LINEAGE_KEPT] }
    }

    /// The random number of the newest opening.
    pub fn number(&self) -> u64 {
        self.numbers[0]
    }

    /// Whether opening `opened` with the random number `number` is one of these, or too old to tell.
    pub fn includes(&self, opened: u64, number: u64) -> bool {
        match self.opened.checked_sub(opened) {
            None => false,
            Some(ago) => self.numbers.get(ago as usize).is_none_or(|known| *known == number),
        }
    }

    /// Whether this history goes on from where `other` ended, or is the same.
    pub fn follows(&self, other: &Lineage) -> bool {
        self.includes(other.opened, other.number())
    }

    /// The lineage after an opening with the number `opened`, larger than the newest here, and the random number
    /// `number`.
    pub fn opened_as(&self, opened: u64, number: u64) -> Lineage {
        assert!(opened > self.opened, "openings are counted upwards");
        let mut numbers = [0; LINEAGE_KEPT];
        let ago = (opened - self.opened).min(LINEAGE_KEPT as u64) as usize;
        numbers[ago..].copy_from_slice(&self.numbers[..LINEAGE_KEPT - ago]);
        numbers[0] = number;
        Lineage { opened, numbers }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_history_includes_its_own_openings_and_no_others() {
        let root = Lineage::founded().opened_as(1, 11).opened_as(2, 22);
        let left = root.opened_as(3, 33).opened_as(5, 55);
        let right = root.opened_as(3, 34);
        assert!(left.includes(1, 11) && left.includes(2, 22) && left.includes(3, 33) && left.includes(5, 55));
        assert!(!left.includes(3, 34) && !left.includes(4, 44) && !left.includes(6, 0));
        assert!(left.follows(&root) && right.follows(&root) && left.follows(&left));
        assert!(!left.follows(&right) && !right.follows(&left) && !root.follows(&left));
    }

    #[test]
    fn what_is_older_than_the_list_is_believed() {
        let mut lineage = Lineage::founded();
        (1..=200).for_each(|opened| lineage = lineage.opened_as(opened, 1000 + opened));
        assert!(lineage.includes(200 - 127, 1000 + 73) && !lineage.includes(200 - 127, 7));
        assert!(lineage.includes(200 - 128, 7));
        assert_eq!(lineage.opened_as(5000, 1).numbers[1..], [0; LINEAGE_KEPT - 1]);
    }
}
