//! The pool's tree: `crates/engine/src/tree/mod.rs` on the pool's metadata segments.
//!
//! A page of the tree is a block of a metadata segment, whose slabs are copies of each other on different disks; its
//! place is that segment and block. Which blocks are taken is kept by `room.rs`, the copies are read, proven, healed
//! and moved by `copies.rs`. The root is part of the checkpoint (`store/checkpoint.rs`): what that makes the truth, it
//! makes the truth as one.
//!
//! ```text
//!   changes --> tree.prepare: pages durable --> checkpoint area: root, and what it takes and frees --> labels
//!                     |  disks went or came, or there is no room: cancelled                              |
//!                     '<--------------------------------------------------------------------------------'  then
//!                                                                                 tree.publish: places freed, reused
//! ```
//!
//! Invariants
//! 1. The checkpoint names every metadata segment in which a page of its root lies, also those that were made for it:
//!    an opening reads the tree before it reads the log.
//! 2. No disk went or came between the first page of a root and its label, or the checkpoint begins anew: a copy that a
//!    disk missed while it was away would be missing for ever.
//! 3. What a root frees is given out again when the labels that name it are durable, and no reader is older.

pub mod conf;
pub mod copies;
pub mod room;
mod runs;
pub mod sheets;
pub mod space;

use super::Store;
use crate::disk_set::DiskSet;
use crate::error::{Error, ErrorKind, Result};
use crate::fail;
use crate::format::page::PageId;
use crate::format::record::{Record, SlabAt, TreeRecord};
use crate::io::{Buf, IoSlice};
use crate::mutant::{self, Mutant};
use crate::sync::Turn;
use crate::tree::{
    Ahead, Images, KeyRange, Opening, PageRef, PageStore, Place, Prepared, Root, Shape, StoreFuture, Tree, TreeError,
    Wishes,
};
use crate::units::{BLOCK, SegmentNo};
use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::rc::{Rc, Weak};
use alloc::vec::Vec;
use core::cell::{Cell, OnceCell, RefCell};
use room::{ROOM, Room};

/// The part of the memory for metadata that pages of the tree may take, as a divisor.
const MEMORY_SHARE: u64 = 4;
/// The least they get.
const MEMORY_MIN: u64 = 256 << 10;
/// No root has a number beyond this by counting.
const NUMBERS_MAX: u64 = 1 << 62;
/// Entries that are read at once.
const BATCH: usize = 256;

/// How large the pages of a pool's tree are.
pub fn shape() -> Shape {
    Shape::new(BLOCK as usize)
}

/// The tree and its places.
#[derive(Default)]
pub struct Meta {
    tree: RefCell<Option<Rc<Tree<PoolPages>>>>,
    room: RefCell<Room>,
    /// What the newest checkpoint says of the tree.
    said: RefCell<Option<TreeRecord>>,
    /// A page is lost on all disks: the next checkpoint is to be a whole one, and the tree to begin anew.
    begins_anew: Cell<bool>,
    /// Pages that were found wrong while the pool was being opened, and where.
    suspects: RefCell<Vec<(PageRef, Vec<SlabAt>)>>,
    /// The disks of each metadata segment as the newest checkpoint has it: an opening reads the pages there
    /// before it reads the log.
    pub homes: RefCell<BTreeMap<SegmentNo, DiskSet>>,
    /// How many only look at the tree just now: what is found wrong meanwhile is left as it is.
    looked_at: Cell<u32>,
}

/// Somebody only looks at the tree as long as this lives.
struct Looks<'a>(&'a Cell<u32>);

impl Meta {
    fn looks(&self) -> Looks<'_> {
        self.looked_at.set(self.looked_at.get() + !mutant::active(Mutant::CheckHeals) as u32);
        Looks(&self.looked_at)
    }
}

impl Drop for Looks<'_> {
    fn drop(&mut self) {
        self.0.set(self.0.get().saturating_sub(1));
    }
}

/// The pool's disks as a store of pages.
pub struct PoolPages {
    store: Weak<Store>,
}

/// Who refers to what, asked once, and only where it matters.
#[derive(Default)]
struct Refs {
    found: OnceCell<BTreeMap<Place, PageRef>>,
    turn: Turn,
}

impl Refs {
    async fn get(&self, store: &Store) -> Result<&BTreeMap<Place, PageRef>> {
        let _turn = self.turn.take().await;
        match self.found.get() {
            Some(found) => Ok(found),
            None => {
                let found = store.tree().reached().await?;
                Ok(self.found.get_or_init(|| found))
            }
        }
    }
}

impl Store {
    /// The pool's tree.
    pub fn tree(&self) -> Rc<Tree<PoolPages>> {
        self.meta.tree.borrow().clone().expect("the tree is opened with the pool")
    }

    /// Opens the tree that the checkpoint names, to read.
    pub fn open_tree(self: &Rc<Self>) -> Result<()> {
        let record = self.map.borrow_mut().tree.take();
        let root = match &record {
            Some(record) => Root::from_bytes(&record.root).filter(|root| root.number < NUMBERS_MAX),
            None => Some(Root::default()),
        };
        let Some(root) = root else { return fail!(Corrupt, "the root of the tree contradicts itself") };
        *self.meta.said.borrow_mut() = record;
        self.set_tree(root, 0, 0);
        Ok(())
    }

    /// Opens the tree to write, too, for an opening of this number and random number.
    pub fn open_tree_for_writing(self: &Rc<Self>, opening: u64, lineage: u64) {
        let root = self.tree().root();
        self.set_tree(root, (opening % (1 << 29)) << 32, lineage);
    }

    fn set_tree(self: &Rc<Self>, root: Root, first: u64, writer: u64) {
        let budget = (self.tuning.sheet_memory / MEMORY_SHARE).max(MEMORY_MIN) as usize;
        let pages = PoolPages { store: Rc::downgrade(self) };
        let tree = Tree::open(pages, root, Opening { shape: shape(), budget, first, writer });
        *self.meta.tree.borrow_mut() = Some(Rc::new(tree));
    }

    /// Reads which places the tree takes, and takes them in the map, in which all others have theirs already.
    pub async fn load_tree_room(&self) -> Result<()> {
        let (tree, mut entries, mut lost) = (self.tree(), Vec::new(), Vec::new());
        let (mut rest, mut ahead) = (Some(KeyRange::of_kind(ROOM)), Ahead::default());
        while let Some(range) = rest {
            match tree.scan_on(range, BATCH, &mut ahead).await {
                Ok(scanned) => {
                    entries.extend(scanned.entries.into_iter().map(|(key, value)| (key, value.to_vec())));
                    rest = scanned.next.map(|next| KeyRange::new(next, range.last));
                }
                Err(TreeError::Lost(found)) => {
                    lost.push(found.range);
                    let next = found.range.last.next().filter(|next| *next <= range.last);
                    rest = next.map(|next| KeyRange::new(next, range.last));
                }
                Err(error) => return Err(error.into()),
            }
        }
        let said = self.meta.said.borrow();
        let changes = said.as_ref().map_or(&[][..], |said| &said.changes);
        let room = Room::load(&mut self.map.borrow_mut(), &entries, &lost, changes)?;
        *self.meta.room.borrow_mut() = room;
        Ok(())
    }

    /// Has the next checkpoint be a whole one, after which the tree begins anew: all that it holds is in memory.
    pub fn begin_tree_anew(&self) {
        self.meta.begins_anew.set(true);
    }

    /// Whether it is time for that.
    pub(super) fn takes_tree_to_begin_anew(&self) -> bool {
        self.meta.begins_anew.take()
    }

    /// Heals the pages that were found wrong while the pool was being opened.
    pub(super) async fn heal_tree_suspects(&self) {
        for (want, bad) in self.meta.suspects.take() {
            // What cannot be read now is an error for whoever needs it.
            let _ = self.read_tree_page_but(want, bad).await;
        }
    }

    /// The blocks of a metadata segment that pages of the tree take.
    pub fn tree_blocks_in(&self, segment: SegmentNo) -> Vec<u32> {
        self.meta.room.borrow().blocks_in(segment)
    }

    /// Every place that the tree's root takes.
    pub fn tree_places(&self) -> BTreeSet<Place> {
        self.meta.room.borrow().rooted()
    }

    /// Has the changes of the tree written to pages, if there are any, after these `pages` of stripe tables; the root
    /// is not the truth yet.
    pub(super) async fn prepare_tree<'a>(
        &self,
        tree: &'a Tree<PoolPages>,
        pages: &[PageId],
    ) -> core::result::Result<Option<Prepared<'a>>, TreeError> {
        self.put_versions(pages);
        self.put_sheet_versions(pages);
        match mutant::active(Mutant::SpacePutEarly) {
            false => self.put_space(),
            true => drop(self.map.borrow_mut().take_touched_space()),
        }
        if tree.changed() == 0 {
            return Ok(None);
        }
        for (key, bytes) in self.meta.room.borrow().entries() {
            match bytes {
                Some(bytes) => tree.put(key, &bytes),
                None => tree.delete(key),
            }
        }
        tree.prepare(Wishes::default()).await
    }

    /// What the checkpoint is to say of the tree: its root, and the metadata segments that are not in `records`
    /// already (invariant 1).
    pub(super) fn add_tree(
        &self,
        prepared: Option<&Prepared<'_>>,
        records: &mut Vec<Record<'static>>,
    ) -> Option<TreeRecord> {
        let record = match prepared {
            None => self.meta.said.borrow().clone(),
            Some(prepared) => {
                let forgets = mutant::active(Mutant::TreeRoomForgotten);
                let changes = if forgets { Vec::new() } else { self.meta.room.borrow().changes(prepared.freed()) };
                Some(TreeRecord { root: prepared.root().to_bytes(), changes, space: true })
            }
        };
        let record = record?;
        let named: BTreeSet<SegmentNo> = records
            .iter()
            .filter_map(|record| match record {
                Record::Segment(segment) => Some(segment.id),
                _ => None,
            })
            .collect();
        let map = self.map.borrow();
        let metadata = map.metadata_segments();
        let unnamed = mutant::active(Mutant::TreeHomeUnnamed);
        let made = metadata.filter(|found| !named.contains(&found.record.id) && !unnamed);
        records.extend(made.map(|found| Record::Segment(found.record.clone())));
        records.push(Record::Tree(record.clone()));
        Some(record)
    }

    /// The labels name the checkpoint that has `record`.
    pub(super) async fn publish_tree(
        &self,
        tree: &Tree<PoolPages>,
        prepared: Option<Prepared<'_>>,
        record: Option<TreeRecord>,
    ) -> Result<()> {
        let Some(prepared) = prepared else { return Ok(()) };
        tree.publish(prepared).await?;
        *self.meta.said.borrow_mut() = record;
        Ok(())
    }

    /// What is wrong with the tree, its pages or its places: sentences for people. Nothing is put right.
    pub async fn check_tree(&self) -> Result<Vec<alloc::string::String>> {
        let _looks = self.meta.looks();
        let tree = self.tree();
        let report = tree.verify().await?;
        Ok(report.findings.iter().map(|finding| alloc::format!("the tree of metadata: {finding:?}")).collect())
    }
}

impl PoolPages {
    fn store(&self) -> Result<Rc<Store>> {
        self.store.upgrade().ok_or_else(|| Error::new(ErrorKind::Closed, "the pool is closed"))
    }

    fn later<T: 'static, F>(&self, act: impl FnOnce(Rc<Store>) -> F + 'static) -> StoreFuture<T>
    where
        F: Future<Output = Result<T>> + 'static,
    {
        let store = self.store();
        Box::pin(async move { act(store?).await })
    }

    /// Does something with the places and the map.
    fn with_room<T>(&self, act: impl FnOnce(&Store, &mut Room) -> T) -> Option<T> {
        let store = self.store().ok()?;
        let mut room = store.meta.room.borrow_mut();
        Some(act(&store, &mut room))
    }
}

impl PageStore for PoolPages {
    fn read(&self, want: PageRef) -> StoreFuture<Buf> {
        self.later(move |store| async move { store.read_tree_page(want).await })
    }

    fn read_ahead(&self, wants: Vec<PageRef>) -> Images {
        let store = self.store.upgrade();
        Box::pin(async move {
            match store {
                Some(store) => store.read_tree_pages(&wants).await,
                None => wants.iter().map(|_| None).collect(),
            }
        })
    }

    fn write(&self, place: Place, image: IoSlice) -> StoreFuture<()> {
        self.later(move |store| async move { store.write_tree_page(place, image).await })
    }

    /// A disk that fails it is taken out, and the checkpoint begins anew.
    fn flush(&self) -> StoreFuture<()> {
        self.later(|store| async move {
            store.flush_all(store.unflushed()).await;
            Ok(())
        })
    }

    fn allocate(&self) -> Option<Place> {
        let mut records = Vec::new();
        let place = self.with_room(|store, room| room.allocate(&mut store.map.borrow_mut(), &mut records))?;
        self.store().ok()?.append_all(records);
        place
    }

    fn abandon(&self, places: &[Place]) {
        self.with_room(|store, room| room.abandon(&mut store.map.borrow_mut(), places));
    }

    /// The checkpoint has made the root the truth already.
    fn publish(&self, root: Root, freed: Vec<Place>) -> StoreFuture<()> {
        self.with_room(|store, room| {
            room.publish(root.number, freed);
            if mutant::active(Mutant::TreeReusedEarly) {
                room.reuse(&mut store.map.borrow_mut(), root.number);
            }
        });
        Box::pin(async { Ok(()) })
    }

    fn reuse(&self, number: u64) {
        self.with_room(|store, room| room.reuse(&mut store.map.borrow_mut(), number));
    }

    fn allocated(&self) -> BTreeSet<Place> {
        self.with_room(|_, room| room.rooted()).unwrap_or_default()
    }
}
