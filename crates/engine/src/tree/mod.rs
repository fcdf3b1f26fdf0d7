//! The tree: a copy-on-write B+tree that proves itself, keeps versions, and knows nothing of storage.
//!
//! It maps [`Key`]s to short values. Its pages lie in a [`PageStore`], which finds places for them, keeps copies and
//! tells what is durable; the tree gives the store no meaning, and the store gives keys none. The pool's is in
//! `crates/engine/src/store/meta/mod.rs`, its root in the pool's checkpoints. Of the configuration (CONF) it has
//! segments and chunks so far; the rest of it, what is free and who owns what (SPACE) and the stripe tables (MAP) are
//! to be entries (`docs/decisions/one-tree-for-all-metadata.md` has the plan), with the log as what happened since the
//! root.
//!
//! The life of a change:
//!
//! ```text
//!   put, delete, clear      the active layer, in memory (changes.rs)                     nothing is written
//!   checkpoint              the layer becomes a batch, and is merged into pages           checkpoint.rs
//!                             from the leaves up, at free places                          edit.rs, node.rs
//!                             what died is freed, or dead while a version reaches it      version.rs
//!                             pages are written, flushed; then the root is the truth      cache.rs, page.rs
//!   get, scan               layers first, then pages from the root down, each proven      read.rs, ahead.rs
//!   verify                  everything at once                                            verify.rs
//! ```
//!
//! Invariants
//! 1. A page is written once, at a place that no root refers to, and never changed. So the state of each root that was
//!    published stays whole until its successor is the truth, and that of a version until the version goes.
//! 2. A crash at any moment leaves the state of the last root that was published, all of it and nothing else. What
//!    changed since is the log's matter.
//! 3. What is read is what was written, or an error that names the keys which are lost; other keys are not affected.
//!    Never a wrong value, nor a missing one ([`PageRef::proves`], and invariant 1 of `read.rs`).
//! 4. A place is free when nothing reaches it any more, and given out again when that is durable and no reader is left.
//! 5. Costs: a lookup reads at most height pages; a batch of `k` changes writes at most `k` x height pages and one for
//!    each split; opening reads nothing; a version costs a key; dropping one, what it frees.
//! 6. Memory: pages have a budget. Changes since the last checkpoint have none: whoever puts them bounds them
//!    ([`Tree::changed`]).
//!
//! One thread; calls may run side by side, checkpoints one after the other.

mod ahead;
mod cache;
mod changes;
mod checkpoint;
mod edit;
mod error;
mod key;
mod mutant;
mod node;
mod page;
mod read;
mod store;
mod verify;
mod version;

#[cfg(test)]
mod tests;

pub use ahead::Ahead;
pub use changes::Value;
pub use checkpoint::{Outcome, Prepared, Wishes};
pub use error::{Lost, Result, TreeError, Which, Why};
pub use key::{Key, KeyRange};
pub use page::{PageRef, Shape};
pub use read::{At, Scanned};
pub use store::{Images, PageStore, Place, ROOT_LEN, Root, RootRef, StoreFuture};
pub use verify::{Finding, Report};

use crate::error::Error;
use crate::format::doc::Field;
use crate::sync::Turn;
use alloc::collections::BTreeMap;
use alloc::rc::Rc;
use alloc::vec::Vec;
use cache::Cache;
use changes::Changes;
use core::cell::{Cell, RefCell};
use version::Versions;

/// Every structure of the tree that stands on a disk, with its fields in their order.
pub fn layouts() -> Vec<(&'static str, Vec<Field>)> {
    [key::layouts(), page::layouts(), store::layouts()].concat()
}

/// Who opens a tree, and how.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Opening {
    /// The size of pages: that with which the tree was made.
    pub shape: Shape,
    /// Bytes of memory for pages.
    pub budget: usize,
    /// The number of the first checkpoint: larger than any that an opening before this one may have used, so that no
    /// two pages ever have both place and birth in common. (An opening's number in the upper half will do.)
    pub first: u64,
    /// A random number, which tells this opening's pages from those of another history.
    pub writer: u64,
}

/// A tree with its versions.
pub struct Tree<S> {
    store: S,
    shape: Shape,
    writer: u64,
    state: RefCell<State>,
    /// Read when first needed, so that opening needs no page.
    versions: RefCell<Option<Versions>>,
    cache: RefCell<Cache>,
    /// Who may write pages.
    turn: Turn,
    /// Pages written since it was opened.
    written: Cell<u64>,
}

/// What changes from call to call.
#[derive(Default)]
struct State {
    /// The truth.
    root: Root,
    /// The number of the next checkpoint.
    next: u64,
    /// What changed since the last checkpoint began.
    active: Changes,
    /// What the running checkpoint writes.
    frozen: Option<Rc<Changes>>,
    /// Dead pages that could not be noted yet.
    owed: Changes,
    /// How many read at which root.
    readers: BTreeMap<u64, usize>,
    /// What the store was told that it may give out again.
    reusable: u64,
    /// Why it is not known which root is durable, if so.
    in_doubt: Option<Error>,
}

/// A page on the way from a root, not read yet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Spot {
    tree: Which,
    /// What proves it.
    page: PageRef,
    /// Its level.
    level: u16,
    /// The keys that lead to it. The page may have been made for fewer: what was beside it may have gone.
    range: KeyRange,
}

impl Spot {
    /// The top of a tree.
    fn top(tree: Which, top: RootRef) -> Spot {
        Spot { tree, page: top.page, level: top.level, range: KeyRange::ALL }
    }
}

impl<S: PageStore> Tree<S> {
    /// The tree of `root`: [`Root::default`] for a new one. Reads nothing.
    pub fn open(store: S, root: Root, opening: Opening) -> Tree<S> {
        let Opening { shape, budget, first, writer } = opening;
        let next = first.max(root.number + 1);
        let state = State { root, next, reusable: root.number, ..State::default() };
        Tree {
            store,
            shape,
            writer,
            state: RefCell::new(state),
            versions: RefCell::default(),
            cache: RefCell::new(Cache::new(budget, shape.image_len())),
            turn: Turn::default(),
            written: Cell::new(0),
        }
    }

    /// Gives `key` a value, in memory until the next checkpoint.
    ///
    /// # Panics
    /// When the value is longer than [`Shape::value_max`].
    pub fn put(&self, key: Key, value: &[u8]) {
        let max = self.shape.value_max();
        assert!(value.len() <= max, "a value has up to {max} bytes, not {}", value.len());
        self.state.borrow_mut().active.put(key, value.into());
    }

    /// Takes the value of `key` away, in memory until the next checkpoint.
    pub fn delete(&self, key: Key) {
        self.state.borrow_mut().active.delete(key);
    }

    /// Takes the values of all keys of `range` away, in memory until the next checkpoint. That frees all its pages at
    /// once: a very long range is better cleared in parts, each with a checkpoint of its own.
    pub fn clear(&self, range: KeyRange) {
        self.state.borrow_mut().active.clear(range);
    }

    /// How many changes are in memory.
    pub fn changed(&self) -> usize {
        self.state.borrow().layers().map(Changes::len).sum()
    }

    /// The root that is the truth.
    pub fn root(&self) -> Root {
        self.state.borrow().root
    }

    /// Bytes of memory that pages take.
    pub fn cached(&self) -> usize {
        self.cache.borrow().bytes()
    }

    /// Forgets the pages in memory that can be read again.
    pub fn forget_pages(&self) {
        self.cache.borrow_mut().forget_clean();
    }

    /// The store.
    pub fn store(&self) -> &S {
        &self.store
    }
}
