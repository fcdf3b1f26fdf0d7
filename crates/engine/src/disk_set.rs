//! Sets of disks.
//!
//! Invariants
//! 1. A set holds numbers below [`DISKS_MAX`] only: one that no disk can have is in no set, whoever claims it.

use crate::limits::DISKS_MAX;
use crate::units::DiskNo;
use core::fmt;
use core::ops::{BitAnd, BitAndAssign, BitOr, BitOrAssign, Sub, SubAssign};

/// Words of 64 bits that a set takes.
pub const SET_WORDS: usize = DISKS_MAX / 64;

/// A set of disks, by their numbers in the pool.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct DiskSet {
    words: [u64; SET_WORDS],
}

impl DiskSet {
    /// The set of no disks.
    pub const EMPTY: DiskSet = DiskSet { words: [0; SET_WORDS] };

    /// The disks whose bits are set, bit 0 of word 0 being disk 0; further words are left out.
    pub fn from_words(words: &[u64]) -> DiskSet {
        let mut set = DiskSet::EMPTY;
        set.words.iter_mut().zip(words).for_each(|(own, word)| *own = *word);
        set
    }

    /// One bit for each disk, as [`DiskSet::from_words`] takes them.
    pub fn words(&self) -> [u64; SET_WORDS] {
        self.words
    }

    /// The set of disk `no` alone.
    pub fn only(no: DiskNo) -> DiskSet {
        DiskSet::EMPTY.with(no)
    }

    /// This set and disk `no`.
    pub fn with(mut self, no: DiskNo) -> DiskSet {
        self.insert(no);
        self
    }

    /// This set but for disk `no`.
    pub fn without(self, no: DiskNo) -> DiskSet {
        self - DiskSet::only(no)
    }

    /// Adds a disk.
    pub fn insert(&mut self, no: DiskNo) {
        if let Some(word) = self.words.get_mut(no.0 as usize / 64) {
            *word |= 1 << (no.0 % 64);
        }
    }

    /// Whether the disk is one of them.
    #[inline]
    pub fn contains(&self, no: DiskNo) -> bool {
        self.words.get(no.0 as usize / 64).is_some_and(|word| word >> (no.0 % 64) & 1 == 1)
    }

    /// Whether there are none.
    #[inline]
    pub fn is_empty(&self) -> bool {
        *self == DiskSet::EMPTY
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.words.iter().map(|word| word.count_ones() as usize).sum()
    }

    /// Whether all of them are in `other`, too.
    pub fn is_subset(&self, other: DiskSet) -> bool {
        (*self - other).is_empty()
    }

    /// Their numbers, ascending.
    pub fn iter(&self) -> impl Iterator<Item = DiskNo> + Clone + use<> {
        let set = *self;
        (0..SET_WORDS).flat_map(move |at| {
            let left = |word: &u64| Some(word & (word - 1)).filter(|left| *left != 0);
            let words = core::iter::successors(Some(set.words[at]).filter(|word| *word != 0), left);
            words.map(move |word| DiskNo(at as u16 * 64 + word.trailing_zeros() as u16))
        })
    }
}

impl FromIterator<DiskNo> for DiskSet {
    fn from_iter<I: IntoIterator<Item = DiskNo>>(disks: I) -> DiskSet {
        disks.into_iter().fold(DiskSet::EMPTY, DiskSet::with)
    }
}

impl Extend<DiskNo> for DiskSet {
    fn extend<I: IntoIterator<Item = DiskNo>>(&mut self, disks: I) {
        disks.into_iter().for_each(|no| self.insert(no));
    }
}

impl BitOr for DiskSet {
    type Output = DiskSet;
    fn bitor(mut self, other: DiskSet) -> DiskSet {
        self |= other;
        self
    }
}

impl BitOrAssign for DiskSet {
    fn bitor_assign(&mut self, other: DiskSet) {
        self.words.iter_mut().zip(other.words).for_each(|(own, other)| *own |= other);
    }
}

impl BitAnd for DiskSet {
    type Output = DiskSet;
    fn bitand(mut self, other: DiskSet) -> DiskSet {
        self &= other;
        self
    }
}

impl BitAndAssign for DiskSet {
    fn bitand_assign(&mut self, other: DiskSet) {
        self.words.iter_mut().zip(other.words).for_each(|(own, other)| *own &= other);
    }
}

/// What is in the first set and not in the second.
impl Sub for DiskSet {
    type Output = DiskSet;
    fn sub(mut self, other: DiskSet) -> DiskSet {
        self -= other;
        self
    }
}

impl SubAssign for DiskSet {
    fn sub_assign(&mut self, other: DiskSet) {
        self.words.iter_mut().zip(other.words).for_each(|(own, other)| *own &= !other);
    }
}

impl fmt::Debug for DiskSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.iter().map(|no| no.0)).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::BTreeSet;
    use alloc::vec::Vec;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_set_is_what_a_set_of_the_library_is(
            a in prop::collection::btree_set(0..DISKS_MAX as u16 + 9, 0..40),
            b in prop::collection::btree_set(0..DISKS_MAX as u16 + 9, 0..40),
            no in 0..DISKS_MAX as u16 + 9,
        ) {
            let set = |numbers: &BTreeSet<u16>| numbers.iter().copied().map(DiskNo).collect::<DiskSet>();
            let known = |numbers: BTreeSet<u16>| {
                numbers.into_iter().filter(|no| (*no as usize) < DISKS_MAX).collect::<Vec<u16>>()
            };
            let listed = |set: DiskSet| set.iter().map(|no| no.0).collect::<Vec<u16>>();
            let (x, y, one) = (set(&a), set(&b), BTreeSet::from([no]));
            prop_assert_eq!(listed(x), known(a.clone()));
            prop_assert_eq!((x.len(), x.is_empty()), (listed(x).len(), listed(x).is_empty()));
            prop_assert_eq!(x.contains(DiskNo(no)), listed(x).contains(&no));
            prop_assert_eq!(listed(x | y), known(&a | &b));
            prop_assert_eq!(listed(x & y), known(&a & &b));
            prop_assert_eq!(listed(x - y), known(&a - &b));
            prop_assert_eq!(listed(x.with(DiskNo(no))), known(&a | &one));
            prop_assert_eq!(listed(x.without(DiskNo(no))), known(&a - &one));
            prop_assert_eq!(x.is_subset(y), listed(x - y).is_empty());
            prop_assert_eq!(DiskSet::from_words(&x.words()), x);
        }
    }
}
