//! Versions and dead lists: which pages may be freed when a version goes.
//!
//! A version is a root that is kept. It shares with the head, and with other versions, every page that has not changed
//! between them. When the head gives a page up, its birth tells whether a version reaches it: none does if the page is
//! younger than all versions. Otherwise it is **dead**, and stands in the ledger until the last version that reaches
//! it goes:
//!
//! ```text
//!   DEAD (group, death, place) -> birth        group: the newest version older than the page, when it died
//!                                              death: the checkpoint that gave it up
//! ```
//!
//! A version `v` reaches the dead page exactly if `birth <= v < death`. So when `v` goes, with `u` before it and `w`
//! behind it (the head if none), what nobody else reaches was born after `u` and gone at `w`:
//!
//! ```text
//!         u          v          w
//!    -----|----------|----------|-----> checkpoints
//!           birth ^      ^ death            group in u..v, death in v+1..=w: one stretch of keys for each group
//! ```
//!
//! This is what ZFS does with a dead list for each snapshot, but without moving entries between lists: versions that go
//! make intervals of groups wider, and no entry changes. Groups are numbers of versions, so between `u` and `v` lie
//! `u` itself and versions that went before, and only those of which pages are still dead cost a look.
//!
//! The ledger is a tree of its own behind the same root. It has no versions: what it gives up is free with the next
//! root. So a root has one size, whatever the number of versions, and a version goes in time O(what it frees + groups).
//!
//! Invariants
//! 1. A page is freed when no version and not the head reaches it, in the checkpoint in which that comes true.
//! 2. A version is made or dropped whole: a checkpoint that cannot note all of that does not take place.
//! 3. A dead page that could not be noted, for its part of the ledger cannot be read, stays in memory to be noted by a
//!    later checkpoint; after a crash its place is taken for nothing until a check counts places.

use super::changes::Changes;
use super::error::{Result, TreeError, Which};
use super::key::{Key, KeyRange};
use super::mutant::{Mutant, active};
use super::page::PageRef;
use super::read::Source;
use super::store::{PageStore, Place, RootRef, top_from_bytes, top_to_bytes};
use super::{Tree, error::Lost, error::Why};
use alloc::collections::BTreeMap;
use alloc::vec::Vec;

/// The kind of the ledger's entries for versions.
const VERSION: u16 = 1;
/// The kind of the ledger's entries for dead pages.
const DEAD: u16 = 2;
/// How many entries of the ledger are read at once.
const BATCH: usize = 256;

/// The roots of all versions, by number.
pub(super) type Versions = BTreeMap<u64, Option<RootRef>>;

/// A dead page, as the ledger has it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Dead {
    pub group: u64,
    pub death: u64,
    pub place: Place,
    pub birth: u64,
}

impl<S: PageStore> Tree<S> {
    /// The numbers of all versions, the oldest first.
    pub async fn versions(&self) -> Result<Vec<u64>> {
        let _reading = self.begin_reading();
        self.read_versions().await?;
        Ok(self.versions.borrow().iter().flat_map(|versions| versions.keys().copied()).collect())
    }

    /// The root of a version.
    pub(super) async fn version(&self, number: u64) -> Result<Option<RootRef>> {
        self.read_versions().await?;
        let versions = self.versions.borrow();
        versions.as_ref().and_then(|versions| versions.get(&number).copied()).ok_or(TreeError::NoVersion(number))
    }

    /// Reads the list of versions, if nobody has yet.
    pub(super) async fn read_versions(&self) -> Result<()> {
        if self.versions.borrow().is_some() {
            return Ok(());
        }
        let source = Source::Tree(Which::Ledger, self.root().ledger);
        let mut found = Versions::new();
        let mut rest = Some(KeyRange::of_kind(VERSION));
        while let Some(range) = rest {
            let scanned = self.scan_source(source, range, BATCH).await?;
            for (key, value) in scanned.entries {
                let top = top_from_bytes(&value).ok_or_else(|| self.no_ledger_entry(key))?;
                found.insert(key.major, top);
            }
            rest = scanned.next.map(|next| KeyRange::new(next, range.last));
        }
        // A checkpoint that came to its end meanwhile knows better.
        self.versions.borrow_mut().get_or_insert(found);
        Ok(())
    }

    /// Drops a version: notes so in `ledger`, and names the places that nobody reaches without it.
    pub(super) async fn drop_version(
        &self,
        number: u64,
        versions: &mut Versions,
        ledger: &mut Changes,
        freed: &mut Vec<Place>,
    ) -> Result<()> {
        if versions.remove(&number).is_none() {
            return Err(TreeError::NoVersion(number));
        }
        let before = versions.range(..number).next_back().map_or(0, |(before, _)| *before);
        let mut behind = versions.range(number..).next().map_or(u64::MAX, |(behind, _)| *behind);
        if active(Mutant::DropTakesTooMuch) {
            behind = u64::MAX;
        }
        let source = Source::Tree(Which::Ledger, self.root().ledger);
        let end = dead_key(number - 1, u64::MAX, u64::MAX);
        let mut next = Some(dead_key(before, number + 1, 0));
        while let Some(first) = next.filter(|first| *first <= end) {
            let scanned = self.scan_source(source, KeyRange::new(first, end), BATCH).await?;
            next = scanned.next;
            for (key, _) in scanned.entries {
                let (group, death) = (key.major, key.middle);
                if death <= number || death > behind {
                    // The next stretch: of this group, or of the next one.
                    let group = if death <= number { group } else { group + 1 };
                    next = Some(dead_key(group, number + 1, 0));
                    break;
                }
                ledger.delete(key);
                freed.push(Place(key.minor));
            }
        }
        ledger.delete(version_key(number));
        Ok(())
    }

    /// Every dead page of the ledger. Only a check of everything asks for it.
    pub(super) async fn read_dead(&self) -> Result<Vec<Dead>> {
        let source = Source::Tree(Which::Ledger, self.root().ledger);
        let scanned = self.scan_source(source, KeyRange::of_kind(DEAD), usize::MAX).await?;
        if let Some(next) = scanned.next {
            // What stopped it.
            self.scan_source(source, KeyRange::new(next, KeyRange::of_kind(DEAD).last), 1).await?;
        }
        let dead = scanned.entries.iter().map(|(key, value)| {
            let birth = <[u8; 8]>::try_from(&value[..]).map_err(|_| self.no_ledger_entry(*key))?;
            let (group, death, place) = (key.major, key.middle, Place(key.minor));
            Ok(Dead { group, death, place, birth: u64::from_le_bytes(birth) })
        });
        dead.collect()
    }

    fn no_ledger_entry(&self, key: Key) -> TreeError {
        let (tree, range, level) = (Which::Ledger, KeyRange::new(key, key), 0);
        TreeError::Lost(Lost { tree, range, level, place: PageRef::NOWHERE.place, why: Why::Malformed })
    }
}

/// Notes a version.
pub(super) fn note_version(ledger: &mut Changes, number: u64, content: Option<RootRef>) {
    ledger.put(version_key(number), top_to_bytes(content)[..].into());
}

/// Sees off a page that the head gave up at checkpoint `death`: frees its place, or notes that it is dead.
pub(super) fn bury(page: PageRef, death: u64, versions: &Versions, ledger: &mut Changes, freed: &mut Vec<Place>) {
    let newest = versions.keys().next_back().copied().unwrap_or(0);
    if page.birth > newest || active(Mutant::VersionsForgotten) {
        freed.push(page.place);
    } else if !(active(Mutant::DeadListForgets) && page.place.0.is_multiple_of(5)) {
        let group = group_of(page.birth, versions);
        ledger.put(dead_key(group, death, page.place.0), page.birth.to_le_bytes()[..].into());
    }
}

/// The newest version that is older than a page of this birth; 0 if none is.
pub(super) fn group_of(birth: u64, versions: &Versions) -> u64 {
    versions.range(..birth).next_back().map_or(0, |(number, _)| *number)
}

fn version_key(number: u64) -> Key {
    Key::new(VERSION, number, 0, 0)
}

fn dead_key(group: u64, death: u64, place: u64) -> Key {
    Key::new(DEAD, group, death, place)
}
