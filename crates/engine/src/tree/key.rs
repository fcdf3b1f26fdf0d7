//! Keys: what the tree is ordered by, and ranges of them.
//!
//! A key is one kind and three numbers, compared in this order; the tree gives them no meaning. Fixed-size keys make a
//! page an array: a search touches no other memory, a split moves no prefixes, and how many fit is arithmetic.

use crate::format::doc::{Field, layout};
use alloc::vec::Vec;
use core::fmt;
use zerocopy::little_endian::{U16, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// What an entry is found by.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Key {
    /// Which kind of thing: keys of one kind lie side by side.
    pub kind: u16,
    /// Which thing: a table, a segment, an object of the configuration.
    pub major: u64,
    /// Where in it: a unit, a stripe.
    pub middle: u64,
    /// Which part of that.
    pub minor: u64,
}

impl Key {
    /// The first of all keys.
    pub const MIN: Key = Key::new(0, 0, 0, 0);
    /// The last of all keys.
    pub const MAX: Key = Key::new(u16::MAX, u64::MAX, u64::MAX, u64::MAX);

    /// A key of its four parts.
    pub const fn new(kind: u16, major: u64, middle: u64, minor: u64) -> Key {
        Key { kind, major, middle, minor }
    }

    /// The key right behind this one; none behind the last.
    pub fn next(self) -> Option<Key> {
        let Key { kind, major, middle, minor } = self;
        let counted = [minor.checked_add(1), middle.checked_add(1), major.checked_add(1)];
        match counted {
            [Some(minor), _, _] => Some(Key::new(kind, major, middle, minor)),
            [None, Some(middle), _] => Some(Key::new(kind, major, middle, 0)),
            [None, None, Some(major)] => Some(Key::new(kind, major, 0, 0)),
            _ => kind.checked_add(1).map(|kind| Key::new(kind, 0, 0, 0)),
        }
    }

    /// The key right before this one; none before the first.
    pub fn prior(self) -> Option<Key> {
        const END: u64 = u64::MAX;
        let Key { kind, major, middle, minor } = self;
        let counted = [minor.checked_sub(1), middle.checked_sub(1), major.checked_sub(1)];
        match counted {
            [Some(minor), _, _] => Some(Key::new(kind, major, middle, minor)),
            [None, Some(middle), _] => Some(Key::new(kind, major, middle, END)),
            [None, None, Some(major)] => Some(Key::new(kind, major, END, END)),
            _ => kind.checked_sub(1).map(|kind| Key::new(kind, END, END, END)),
        }
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}/{}/{}", self.kind, self.major, self.middle, self.minor)
    }
}

/// Keys from `first` to `last`, both included: so the range of all keys needs no key behind the last.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct KeyRange {
    /// The first key.
    pub first: Key,
    /// The last key; not before the first.
    pub last: Key,
}

impl KeyRange {
    /// Every key.
    pub const ALL: KeyRange = KeyRange { first: Key::MIN, last: Key::MAX };

    /// From `first` to `last`, both included.
    ///
    /// # Panics
    /// When `last` is before `first`.
    pub fn new(first: Key, last: Key) -> KeyRange {
        assert!(first <= last, "a range from {first:?} back to {last:?}");
        KeyRange { first, last }
    }

    /// Every key of one kind.
    pub const fn of_kind(kind: u16) -> KeyRange {
        KeyRange { first: Key::new(kind, 0, 0, 0), last: Key::new(kind, u64::MAX, u64::MAX, u64::MAX) }
    }

    /// Whether `key` lies in it.
    pub fn contains(&self, key: Key) -> bool {
        self.first <= key && key <= self.last
    }

    /// Whether all of `other` lies in it.
    pub fn covers(&self, other: &KeyRange) -> bool {
        self.first <= other.first && other.last <= self.last
    }

    /// What both have in common.
    pub fn common(&self, other: &KeyRange) -> Option<KeyRange> {
        let (first, last) = (self.first.max(other.first), self.last.min(other.last));
        (first <= last).then_some(KeyRange { first, last })
    }
}

/// A key as it stands on a disk.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned, Clone, Copy)]
#[repr(C)]
pub(super) struct KeyBytes {
    kind: U16,
    major: U64,
    middle: U64,
    minor: U64,
}

/// What stands on the disks, for the test that holds the document against it.
pub(super) fn layouts() -> Vec<(&'static str, Vec<Field>)> {
    alloc::vec![layout!(KeyBytes { kind major middle minor })]
}

impl From<Key> for KeyBytes {
    fn from(key: Key) -> KeyBytes {
        let Key { kind, major, middle, minor } = key;
        KeyBytes { kind: kind.into(), major: major.into(), middle: middle.into(), minor: minor.into() }
    }
}

impl From<KeyBytes> for Key {
    fn from(bytes: KeyBytes) -> Key {
        Key::new(bytes.kind.get(), bytes.major.get(), bytes.middle.get(), bytes.minor.get())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_next_key_and_the_one_before_carry_over_all_parts() {
        let end = u64::MAX;
        for (key, next) in [
            (Key::MIN, Key::new(0, 0, 0, 1)),
            (Key::new(3, 4, 5, end), Key::new(3, 4, 6, 0)),
            (Key::new(3, 4, end, end), Key::new(3, 5, 0, 0)),
            (Key::new(3, end, end, end), Key::new(4, 0, 0, 0)),
        ] {
            assert!(key < next);
            assert_eq!((key.next(), next.prior()), (Some(next), Some(key)));
        }
        assert_eq!((Key::MAX.next(), Key::MIN.prior()), (None, None));
    }
}
