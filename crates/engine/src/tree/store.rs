//! The seam below the tree: who keeps its pages.
//!
//! The tree knows neither disks nor copies nor how places are found; the store knows neither keys nor versions. What
//! they agree on:
//!
//! 1. A place is given out by `allocate` once, until a root that is durable has freed it *and* `reuse` says that no
//!    reader of an older root is left. So the successor of a page is the truth before its place holds anything else.
//! 2. What `publish` makes durable, it makes durable as one: the root, that the places given out since the last root
//!    are taken, and that the places it frees are free. After a crash the store's list of places is that of the root
//!    it opens with: what an unfinished checkpoint took is free.
//! 3. `read` tries copy after copy, within its limits of time, until [`PageRef::proves`] one. The tree compares again:
//!    it believes no store.
//! 4. A write that completed is volatile until a later `flush` completes, as everywhere in the engine.

use super::page::PageRef;
use crate::error::Error;
use crate::format::doc::{Field, layout};
use crate::io::{Buf, IoSlice};
use alloc::boxed::Box;
use alloc::collections::BTreeSet;
use alloc::vec::Vec;
use core::future::Future;
use core::pin::Pin;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// The answer of a store, later. Owns all it needs; must be driven to its end once polled.
pub type StoreFuture<T> = Pin<Box<dyn Future<Output = Result<T, Error>>>>;

/// What a store brings of several pages, later, in their order: absent is what did not come.
pub type Images = Pin<Box<dyn Future<Output = Vec<Option<Buf>>>>>;

/// Where a page lies: a number that only the store understands.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Place(pub u64);

/// Who keeps pages.
pub trait PageStore {
    /// Fills a buffer with the copy of a page that `want` proves. An error of the kinds `Lost` and `Corrupt` says that
    /// there is none; any other one, that it cannot be told now.
    fn read(&self, want: PageRef) -> StoreFuture<Buf>;

    /// Fills buffers with copies of these pages, many at once, if the store has a way to: whoever needs one that does
    /// not come reads it.
    fn read_ahead(&self, wants: Vec<PageRef>) -> Images {
        Box::pin(async move { wants.iter().map(|_| None).collect() })
    }

    /// Writes a page to all its copies.
    fn write(&self, place: Place, image: IoSlice) -> StoreFuture<()>;

    /// Makes every write that has completed durable.
    fn flush(&self) -> StoreFuture<()>;

    /// Gives out a free place; none when all are taken.
    fn allocate(&self) -> Option<Place>;

    /// Takes back places that were given out since the last root, for a checkpoint that did not come to its end.
    /// Nothing refers to them.
    fn abandon(&self, places: &[Place]);

    /// Makes `root` the truth, and `freed` free, durably and as one. After an error neither the store nor the tree
    /// knows which root is the truth.
    fn publish(&self, root: Root, freed: Vec<Place>) -> StoreFuture<()>;

    /// Tells that what roots up to this number freed may be given out again.
    fn reuse(&self, number: u64);

    /// Every place that is given out, as of the newest root. Only a check of everything asks for it.
    fn allocated(&self) -> BTreeSet<Place>;
}

/// What everything is reached from: one state of both trees.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Root {
    /// The checkpoint that made it. Grows from root to root.
    pub number: u64,
    /// The entries; none at all if absent.
    pub content: Option<RootRef>,
    /// Versions and dead lists.
    pub ledger: Option<RootRef>,
}

/// The top page of one tree.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RootRef {
    /// What proves it.
    pub page: PageRef,
    /// How far above the leaves it is.
    pub level: u16,
}

/// A root as it stands on a disk.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct RootBytes {
    number: u64,
    content: TopBytes,
    ledger: TopBytes,
}

/// The top page of a tree as it stands on a disk; all ones where there is none.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct TopBytes {
    place: u64,
    birth: u64,
    sum: u64,
    level: u64,
}

/// Bytes of a [`Root`].
pub const ROOT_LEN: usize = size_of::<RootBytes>();
const _: () = assert!(ROOT_LEN == crate::format::record::ROOT_LEN);
/// Bytes of a top page's reference.
pub(super) const TOP_LEN: usize = size_of::<TopBytes>();

impl Root {
    /// The bytes of it.
    pub fn to_bytes(self) -> [u8; ROOT_LEN] {
        let bytes = RootBytes { number: self.number, content: top_bytes(self.content), ledger: top_bytes(self.ledger) };
        bytes.as_bytes().try_into().expect("its own length")
    }

    /// The root of these bytes, unless they are none.
    pub fn from_bytes(bytes: &[u8]) -> Option<Root> {
        let RootBytes { number, content, ledger } = RootBytes::read_from_bytes(bytes).ok()?;
        Some(Root { number, content: top_of(content)?, ledger: top_of(ledger)? })
    }
}

/// The bytes of a top page's reference.
pub(super) fn top_to_bytes(top: Option<RootRef>) -> [u8; TOP_LEN] {
    top_bytes(top).as_bytes().try_into().expect("its own length")
}

/// The top page's reference of these bytes, unless they are none.
pub(super) fn top_from_bytes(bytes: &[u8]) -> Option<Option<RootRef>> {
    top_of(TopBytes::read_from_bytes(bytes).ok()?)
}

/// What stands on the disks, for the test that holds the document against it.
pub(super) fn layouts() -> Vec<(&'static str, Vec<Field>)> {
    alloc::vec![layout!(RootBytes { number content ledger }), layout!(TopBytes { place birth sum level }),]
}

fn top_bytes(top: Option<RootRef>) -> TopBytes {
    const NONE: u64 = u64::MAX;
    match top {
        None => TopBytes { place: NONE, birth: NONE, sum: NONE, level: NONE },
        Some(RootRef { page: PageRef { place, birth, sum }, level }) => {
            TopBytes { place: place.0, birth, sum, level: level.into() }
        }
    }
}

fn top_of(bytes: TopBytes) -> Option<Option<RootRef>> {
    let TopBytes { place, birth, sum, level } = bytes;
    if [place, birth, sum, level] == [u64::MAX; 4] {
        return Some(None);
    }
    let page = PageRef { place: Place(place), birth, sum };
    Some(Some(RootRef { page, level: u16::try_from(level).ok()? }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_root_comes_back_from_its_bytes_and_no_other_bytes_are_one() {
        let top = RootRef { page: PageRef { place: Place(7), birth: 1 << 40, sum: 9 }, level: 3 };
        for root in [Root::default(), Root { number: 5, content: Some(top), ledger: None }] {
            assert_eq!(Root::from_bytes(&root.to_bytes()), Some(root));
        }
        let mut bytes = Root { number: 5, content: Some(top), ledger: None }.to_bytes();
        bytes[8 + 24 + 2] = 1;
        assert_eq!(Root::from_bytes(&bytes), None, "a level of more than 16 bits");
        assert_eq!(Root::from_bytes(&bytes[1..]), None);
    }
}
