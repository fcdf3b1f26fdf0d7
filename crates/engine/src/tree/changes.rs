//! Changes in memory, above the pages: what the next checkpoint merges into them.
//!
//! Invariants
//! 1. Cleared ranges come first, points after them: a point in a cleared range was put there later, and is a value.
//! 2. Cleared ranges neither overlap nor touch.
//! 3. Merging the newer of two layers into the older one answers every key as asking the newer first did.

use super::key::{Key, KeyRange};
use super::mutant::{Mutant, active};
use alloc::collections::BTreeMap;
use alloc::rc::Rc;
use alloc::vec::Vec;

/// The bytes of an entry. Shared between the layers of memory and whoever reads.
pub type Value = Rc<[u8]>;

/// One layer of changes.
#[derive(Clone, Default, Debug)]
pub(super) struct Changes {
    /// A value, or none where a key is deleted.
    points: BTreeMap<Key, Option<Value>>,
    /// Ranges of which nothing older is left: first key, last key.
    cleared: BTreeMap<Key, Key>,
}

/// What a layer does to a range of keys.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Touch {
    /// Nothing.
    Nothing,
    /// All that is older goes, and nothing comes.
    Gone,
    /// Something else.
    Some,
}

impl Changes {
    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.points.is_empty() && self.cleared.is_empty()
    }

    /// How many keys and ranges change.
    pub fn len(&self) -> usize {
        self.points.len() + self.cleared.len()
    }

    /// Gives `key` a value.
    pub fn put(&mut self, key: Key, value: Value) {
        self.points.insert(key, Some(value));
    }

    /// Takes the value of `key` away.
    pub fn delete(&mut self, key: Key) {
        if self.cleared_around(key).is_some() {
            self.points.remove(&key);
        } else {
            self.points.insert(key, None);
        }
    }

    /// Takes the values of all keys of `range` away.
    pub fn clear(&mut self, range: KeyRange) {
        let KeyRange { mut first, mut last } = range;
        let inside: Vec<Key> = self.points.range(first..=last).map(|(key, _)| *key).collect();
        for key in inside {
            self.points.remove(&key);
        }
        // Ranges that overlap or touch become one.
        let reach = last.next().unwrap_or(last);
        while let Some((&from, &to)) = self.cleared.range(..=reach).next_back() {
            if to < first && to.next() != Some(first) {
                break;
            }
            self.cleared.remove(&from);
            (first, last) = (first.min(from), last.max(to));
        }
        self.cleared.insert(first, last);
    }

    /// What this layer says of `key`: a value, that there is none, or nothing.
    pub fn get(&self, key: Key) -> Option<Option<&Value>> {
        match self.points.get(&key) {
            Some(value) => Some(value.as_ref()),
            None => self.cleared_around(key).map(|_| None),
        }
    }

    /// The cleared range in which `key` lies.
    pub fn cleared_around(&self, key: Key) -> Option<KeyRange> {
        let (&first, &last) = self.cleared.range(..=key).next_back()?;
        (key <= last).then_some(KeyRange { first, last })
    }

    /// The first key from `from` on that changes.
    pub fn first_from(&self, from: Key) -> Option<Key> {
        if self.cleared_around(from).is_some() {
            return Some(from);
        }
        let point = self.points.range(from..).next().map(|(key, _)| *key);
        let cleared = self.cleared.range(from..).next().map(|(first, _)| *first);
        point.into_iter().chain(cleared).min()
    }

    /// The points of `range` in the order of their keys.
    pub fn points(&self, range: KeyRange) -> impl Iterator<Item = (Key, Option<&Value>)> {
        self.points.range(range.first..=range.last).map(|(key, value)| (*key, value.as_ref()))
    }

    /// What this layer does to the keys of `range`.
    pub fn touch(&self, range: KeyRange) -> Touch {
        let all_cleared = self.cleared_around(range.first).is_some_and(|cleared| cleared.covers(&range));
        let pointed = self.points.range(range.first..=range.last).next().is_some();
        if all_cleared && (!pointed || active(Mutant::ClearTakesLaterPuts)) {
            return Touch::Gone;
        }
        let cleared = self.cleared.range(..=range.last).next_back().is_some_and(|(_, &last)| last >= range.first);
        if pointed || cleared { Touch::Some } else { Touch::Nothing }
    }

    /// Takes the changes of a newer layer in.
    pub fn absorb(&mut self, newer: Changes) {
        for (first, last) in newer.cleared {
            self.clear(KeyRange { first, last });
        }
        for (key, value) in newer.points {
            match value {
                Some(value) => self.put(key, value),
                None => self.delete(key),
            }
        }
    }

    /// What of it is about keys of `ranges`.
    pub fn within(&self, ranges: &[KeyRange]) -> Changes {
        let mut found = Changes::default();
        for range in ranges {
            let cleared = self.cleared.iter().map(|(&first, &last)| KeyRange { first, last });
            for common in cleared.filter_map(|cleared| cleared.common(range)) {
                found.clear(common);
            }
        }
        for range in ranges {
            found.points.extend(self.points.range(range.first..=range.last).map(|(key, value)| (*key, value.clone())));
        }
        found
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use proptest::prelude::*;

    fn key(n: u64) -> Key {
        Key::new(1, 0, n, 0)
    }

    fn apply(changes: &mut Changes, (what, at, len): (u8, u64, u64)) {
        match what {
            0 => changes.put(key(at), [at as u8, len as u8][..].into()),
            1 => changes.delete(key(at)),
            _ => changes.clear(KeyRange::new(key(at), key(at + len))),
        }
    }

    /// What a layer of `steps` says of every key: by going through them one by one.
    fn expected(steps: &[(u8, u64, u64)], n: u64) -> Option<Option<[u8; 2]>> {
        steps.iter().fold(None, |before, &(what, at, len)| match what {
            0 if at == n => Some(Some([at as u8, len as u8])),
            1 if at == n => Some(None),
            2 if (at..=at + len).contains(&n) => Some(None),
            _ => before,
        })
    }

    fn said(changes: &Changes, n: u64) -> Option<Option<[u8; 2]>> {
        changes.get(key(n)).map(|value| value.map(|value| [value[0], value[1]]))
    }

    proptest! {
        #[test]
        fn a_layer_answers_as_its_steps_one_by_one_and_two_layers_merged_as_one_above_the_other(
            older in proptest::collection::vec((0u8..3, 0u64..40, 0u64..8), 0..30),
            newer in proptest::collection::vec((0u8..3, 0u64..40, 0u64..8), 0..30),
        ) {
            let (mut low, mut high) = (Changes::default(), Changes::default());
            older.iter().for_each(|step| apply(&mut low, *step));
            newer.iter().for_each(|step| apply(&mut high, *step));
            for n in 0..50 {
                prop_assert_eq!(said(&low, n), expected(&older, n), "key {}", n);
            }
            let some = low.within(&[KeyRange::new(key(5), key(9)), KeyRange::new(key(20), key(29))]);
            for n in 0..50 {
                let inside = (5..=9).contains(&n) || (20..=29).contains(&n);
                prop_assert_eq!(said(&some, n), if inside { said(&low, n) } else { None });
            }
            let mut merged = low.clone();
            merged.absorb(high.clone());
            for n in 0..50 {
                prop_assert_eq!(said(&merged, n), said(&high, n).or(said(&low, n)), "key {}", n);
            }
            for first in 0..50 {
                let next = (first..50).find(|n| said(&low, *n).is_some());
                prop_assert_eq!(low.first_from(key(first)), next.map(key));
                for last in first..50 {
                    let all = (first..=last).map(|n| said(&low, n));
                    match low.touch(KeyRange::new(key(first), key(last))) {
                        Touch::Nothing => prop_assert!(all.clone().all(|said| said.is_none())),
                        Touch::Gone => prop_assert!(all.clone().all(|said| said == Some(None))),
                        Touch::Some => prop_assert!(all.clone().any(|said| said.is_some())),
                    }
                }
            }
        }
    }
}
