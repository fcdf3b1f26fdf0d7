//! The merge: a sorted batch of changes goes into a tree, once through it, from the leaves up.
//!
//! Only pages on the way to a change are read, and only those are made anew, at free places. A page is made when it is
//! sure that it will not be joined with its neighbour, so all of its children have their places before it, and it can
//! say what proves them.
//!
//! Invariants
//! 1. A page that any root refers to is never changed: what the merge makes lies at places that no root knows.
//! 2. Every page of the result but its top is at least a quarter full (`node.rs`), except beside a page that cannot be
//!    read.
//! 3. What no change concerns keeps its page: `k` changes make at most `k` x height pages, and one more for each split.
//! 4. Changes whose leaf cannot be read are not made, and named ("stuck"); all others are.
//! 5. A subtree of which everything goes is dropped without reading its leaves: the pages above them say their places.
//!    What cannot be read there is lost anyway, and so are its places until a check counts them ("leaked").

use super::changes::{Changes, Touch};
use super::error::{Lost, Result, TreeError};
use super::key::KeyRange;
use super::mutant::{Mutant, active};
use super::node::{Draft, Item, Piece, What};
use super::page::{Making, Page, PageRef};
use super::store::{PageStore, Place, RootRef};
use super::{Spot, Tree, Which};
use alloc::boxed::Box;
use alloc::rc::Rc;
use alloc::vec;
use alloc::vec::Vec;
use core::cell::RefCell;
use core::future::Future;
use core::pin::Pin;

/// A merge of one batch into one tree.
pub(super) struct Merge<'a, S> {
    tree: &'a Tree<S>,
    which: Which,
    birth: u64,
    changes: &'a Changes,
    made: RefCell<Made>,
}

/// What a merge did.
#[derive(Default)]
pub(super) struct Made {
    /// Places that were given out.
    pub born: Vec<Place>,
    /// Pages that the result has no more.
    pub died: Vec<PageRef>,
    /// Pages that could not be read, below which changes were not made.
    pub stuck: Vec<Lost>,
    /// Dropped pages that could not be read, below which pages may be that nobody could name.
    pub leaked: Vec<Lost>,
    /// Pages that became several.
    pub splits: u64,
    /// Pages that became one with a neighbour.
    pub joins: u64,
}

/// What became of a page.
enum Edited {
    /// It stays.
    Same,
    /// These are in its stead: none, one, or several, which follow each other and each fit a page.
    Drafts(Vec<Draft>),
}

/// The children of a page that is being made, as they come, from left to right.
struct Row {
    level: u16,
    /// Those that have their places, as entries of the page above.
    items: Vec<Item>,
    /// The last one, which may have to be joined with the next.
    tail: Option<Piece>,
}

type EditFuture<'a, T> = Pin<Box<dyn Future<Output = Result<T>> + 'a>>;

impl<'a, S: PageStore> Merge<'a, S> {
    /// A merge of `changes` into one of the trees of `tree`, whose pages are born at `birth`.
    pub fn new(tree: &'a Tree<S>, which: Which, birth: u64, changes: &'a Changes) -> Merge<'a, S> {
        Merge { tree, which, birth, changes, made: RefCell::default() }
    }

    /// Merges into the tree below `root`; gives what the root is then, and what was done. Also after an error the
    /// places that were given out are told.
    pub async fn run(self, root: Option<RootRef>) -> (Result<Option<RootRef>>, Made) {
        let root = self.merge(root).await;
        (root, self.made.into_inner())
    }

    async fn merge(&self, root: Option<RootRef>) -> Result<Option<RootRef>> {
        let Some(top) = root else {
            let leaf = Draft { grown: true, ..Draft::new(0, KeyRange::ALL, self.new_items(KeyRange::ALL)) };
            return if leaf.items.is_empty() { Ok(None) } else { self.plant(leaf.cut(&self.tree.shape)).await };
        };
        let spot = Spot::top(self.which, top);
        match self.changes.touch(KeyRange::ALL) {
            Touch::Nothing => Ok(root),
            Touch::Gone => self.forget(spot).await.map(|()| None),
            Touch::Some => match self.edit(spot).await? {
                Edited::Same => Ok(root),
                Edited::Drafts(drafts) => self.plant(drafts).await,
            },
        }
    }

    /// Makes the top of the tree of which `drafts` are all of one level.
    async fn plant(&self, mut drafts: Vec<Draft>) -> Result<Option<RootRef>> {
        loop {
            let Some(first) = drafts.first() else { return Ok(None) };
            let level = first.level;
            if drafts.len() > 1 {
                let mut row = Row::new(level);
                for draft in drafts {
                    row.push(self, Piece::Draft(draft)).await?;
                }
                drafts = Draft::new(level + 1, KeyRange::ALL, row.finish(self).await?).cut(&self.tree.shape);
                continue;
            }
            let mut only = drafts.remove(0);
            if level == 0 || only.items.len() > 1 {
                let page = self.save(only).await?;
                return Ok(Some(RootRef { page, level }));
            }
            // A page with one child is not needed at the top.
            match only.items.remove(0).what {
                What::Child(page) => return Ok(Some(RootRef { page, level: level - 1 })),
                What::Open(child) => drafts = vec![child.leading(KeyRange::ALL)],
                What::New(_) | What::Kept(..) => unreachable!("a page above the leaves has children"),
            }
        }
    }

    /// Merges into the page at `spot` and all below it.
    fn edit(&self, spot: Spot) -> EditFuture<'_, Edited> {
        Box::pin(async move {
            let page = match self.tree.load(spot).await {
                Ok(page) => page,
                Err(TreeError::Lost(lost)) => {
                    self.made.borrow_mut().stuck.push(lost);
                    return Ok(Edited::Same);
                }
                Err(error) => return Err(error),
            };
            let draft = match page.level {
                0 => self.edit_leaf(&page, spot),
                _ => self.edit_inner(&page, spot).await?,
            };
            let Some(draft) = draft else { return Ok(Edited::Same) };
            self.buried(page.at);
            if draft.items.is_empty() {
                return Ok(Edited::Drafts(Vec::new()));
            }
            let drafts = draft.cut(&self.tree.shape);
            self.made.borrow_mut().splits += drafts.len() as u64 - 1;
            Ok(Edited::Drafts(drafts))
        })
    }

    /// The entries of a leaf with the changes, unless there is none.
    fn edit_leaf(&self, page: &Rc<Page>, spot: Spot) -> Option<Draft> {
        let mut items = Vec::with_capacity(page.count);
        let mut changed = false;
        let mut points = self.changes.points(spot.range).peekable();
        for no in 0..page.count {
            let key = page.key(no);
            while let Some((key, value)) = points.next_if(|(point, _)| *point < key) {
                changed |= value.is_some();
                items.extend(value.map(|value| Item { key, what: What::New(value.clone()) }));
            }
            match points.next_if(|(point, _)| *point == key) {
                Some((_, Some(value))) => {
                    changed |= page.value(no) != &value[..];
                    items.push(Item { key, what: What::New(value.clone()) });
                }
                Some((_, None)) => changed = true,
                None if self.changes.cleared_around(key).is_some() => changed = true,
                None => items.push(Item { key, what: What::Kept(page.clone(), no) }),
            }
        }
        let before = items.len();
        items.extend(points.filter_map(|(key, value)| Some(Item { key, what: What::New(value?.clone()) })));
        let longer = items.len() > before;
        let draft = Draft { grown: longer && !changed, ..Draft::new(0, spot.range, items) };
        (longer || changed).then_some(draft)
    }

    /// The children of a page with the changes below it, unless there is none.
    async fn edit_inner(&self, page: &Rc<Page>, spot: Spot) -> Result<Option<Draft>> {
        let mut row = Row::new(page.level - 1);
        let mut changed = false;
        let mut next = self.changes.first_from(spot.range.first);
        let mut brought = 0;
        for no in 0..page.count {
            let child = page.spot(self.which, no, spot.range);
            if next.is_none_or(|next| child.range.last < next) {
                row.push(self, Piece::Kept(child)).await?;
                continue;
            }
            next = child.range.last.next().and_then(|behind| self.changes.first_from(behind));
            match self.changes.touch(child.range) {
                Touch::Nothing => row.push(self, Piece::Kept(child)).await?,
                Touch::Gone => {
                    changed = true;
                    self.forget(child).await?;
                }
                Touch::Some => match self.edit_child(page, no, spot, &mut brought).await? {
                    Edited::Same => row.push(self, Piece::Kept(child)).await?,
                    Edited::Drafts(drafts) => {
                        changed = true;
                        for draft in drafts {
                            row.push(self, Piece::Draft(draft)).await?;
                        }
                    }
                },
            }
        }
        if !changed {
            return Ok(None);
        }
        let items = row.finish(self).await?;
        let grown = matches!(items.get(page.count - 1), Some(item) if item.key == page.key(page.count - 1));
        Ok(Some(Draft { grown, ..Draft::new(page.level, spot.range, items) }))
    }

    /// Merges into child `no` of a page. Children below number `brought` were brought into memory, as far as that can
    /// be done. This one and the next ones that are needed are brought now, many at once: one by one would cost a
    /// disk that seeks a turn each.
    async fn edit_child(&self, page: &Rc<Page>, no: usize, spot: Spot, brought: &mut usize) -> Result<Edited> {
        if no >= *brought {
            let room = (self.tree.cache.borrow().room_ahead() / 2).max(1);
            let mut needed = Vec::new();
            *brought = no;
            while *brought < page.count && needed.len() < room {
                let child = page.spot(self.which, *brought, spot.range);
                needed.extend((self.changes.touch(child.range) == Touch::Some).then_some(child));
                *brought += 1;
            }
            if needed.len() > 1 {
                self.tree.bring(&needed).await;
            }
        }
        self.edit(page.spot(self.which, no, spot.range)).await
    }

    /// Values that come to `range`.
    fn new_items(&self, range: KeyRange) -> Vec<Item> {
        let points = self.changes.points(range);
        points.filter_map(|(key, value)| Some(Item { key, what: What::New(value?.clone()) })).collect()
    }

    /// Drops the page at `spot` and all below it (invariant 5).
    fn forget(&self, spot: Spot) -> EditFuture<'_, ()> {
        Box::pin(async move {
            self.buried(spot.page);
            if spot.level == 0 || active(Mutant::SubtreesLeak) {
                return Ok(());
            }
            let page = match self.tree.load(spot).await {
                Ok(page) => page,
                Err(TreeError::Lost(lost)) => {
                    self.made.borrow_mut().leaked.push(lost);
                    return Ok(());
                }
                Err(error) => return Err(error),
            };
            for no in 0..page.count {
                self.forget(page.spot(self.which, no, spot.range)).await?;
            }
            Ok(())
        })
    }

    /// Takes note that the result has `page` no more.
    fn buried(&self, page: PageRef) {
        if active(Mutant::ReusedBeforeSuccessor) {
            self.tree.store.abandon(&[page.place]);
            return;
        }
        if page.birth == self.birth {
            // Made and joined in one merge: nobody needs to write it.
            self.tree.cache.borrow_mut().remove(page.place);
        }
        self.made.borrow_mut().died.push(page);
    }

    /// Two neighbours as one draft, if the page of the one that has its place can be read.
    async fn join(&self, left: Piece, right: Piece) -> Result<core::result::Result<Draft, (Piece, Piece)>> {
        let (left, right) = match (left, right) {
            (Piece::Draft(left), Piece::Draft(right)) => (left, right),
            (Piece::Draft(left), Piece::Kept(spot)) => match self.reopen(spot).await? {
                Some(right) => (left, right),
                None => return Ok(Err((Piece::Draft(left), Piece::Kept(spot)))),
            },
            (Piece::Kept(spot), Piece::Draft(right)) => match self.reopen(spot).await? {
                Some(left) => (left, right),
                None => return Ok(Err((Piece::Kept(spot), Piece::Draft(right)))),
            },
            (Piece::Kept(_), Piece::Kept(_)) => unreachable!("one of them is too thin, and so a draft"),
        };
        self.made.borrow_mut().joins += 1;
        let joined = left.followed_by(right);
        if joined.has_open() { Ok(Ok(self.close(joined).await?)) } else { Ok(Ok(joined)) }
    }

    /// The entries of a page that had its place, which it gives up.
    async fn reopen(&self, spot: Spot) -> Result<Option<Draft>> {
        match self.tree.load(spot).await {
            Ok(page) => {
                self.buried(page.at);
                Ok(Some(Draft::of(&page, spot.range)))
            }
            Err(TreeError::Lost(_)) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Joins the open entries of a draft with their neighbours, which are in the same draft now.
    fn close(&self, draft: Draft) -> EditFuture<'_, Draft> {
        Box::pin(async move {
            let (level, range) = (draft.level, draft.range);
            let mut row = Row::new(level - 1);
            for piece in draft.into_pieces(self.which) {
                row.push(self, piece).await?;
            }
            Ok(Draft::new(level, range, row.finish(self).await?))
        })
    }

    /// Gives a draft its place, after its children, and keeps its page until it is durable.
    fn save(&self, mut draft: Draft) -> EditFuture<'_, PageRef> {
        Box::pin(async move {
            for item in &mut draft.items {
                // An open one that found no neighbour which can be read.
                if let What::Open(_) = item.what {
                    let What::Open(child) = core::mem::replace(&mut item.what, What::Child(PageRef::NOWHERE)) else {
                        unreachable!("it was just looked at")
                    };
                    item.what = What::Child(self.save(*child).await?);
                }
            }
            let tree = self.tree;
            let place = tree.store.allocate().ok_or(TreeError::Full)?;
            self.made.borrow_mut().born.push(place);
            let (birth, writer) = (self.birth, tree.writer);
            let making = Making { place, birth, writer, level: draft.level, range: draft.range };
            let page = Rc::new(draft.to_page(&tree.shape, making));
            let at = page.at;
            tree.cache.borrow_mut().insert_dirty(page);
            let pressed = tree.cache.borrow().is_pressed();
            if pressed {
                tree.write_out().await?;
            }
            Ok(at)
        })
    }
}

impl Row {
    fn new(level: u16) -> Row {
        Row { level, items: Vec::new(), tail: None }
    }

    /// Takes the next child. One that is too thin becomes one with its neighbour.
    async fn push<S: PageStore>(&mut self, merge: &Merge<'_, S>, piece: Piece) -> Result<()> {
        let shape = &merge.tree.shape;
        let Some(tail) = self.tail.take() else {
            self.tail = Some(piece);
            return Ok(());
        };
        let thin = (tail.is_thin(shape) || piece.is_thin(shape)) && !active(Mutant::ThinPagesStay);
        if !thin {
            self.settle(merge, tail).await?;
            self.tail = Some(piece);
            return Ok(());
        }
        match merge.join(tail, piece).await? {
            Ok(joined) => {
                let mut parts = joined.cut(shape);
                self.tail = parts.pop().map(Piece::Draft);
                for part in parts {
                    self.settle(merge, Piece::Draft(part)).await?;
                }
            }
            Err((tail, piece)) => {
                self.settle(merge, tail).await?;
                self.tail = Some(piece);
            }
        }
        Ok(())
    }

    /// The entries of the page above. A single child that is too thin has no place yet.
    async fn finish<S: PageStore>(mut self, merge: &Merge<'_, S>) -> Result<Vec<Item>> {
        match self.tail.take() {
            Some(Piece::Draft(draft)) if self.items.is_empty() && draft.is_thin(&merge.tree.shape) => {
                self.items.push(Item { key: draft.range.first, what: What::Open(Box::new(draft)) });
            }
            Some(tail) => self.settle(merge, tail).await?,
            None => {}
        }
        Ok(self.items)
    }

    async fn settle<S: PageStore>(&mut self, merge: &Merge<'_, S>, piece: Piece) -> Result<()> {
        let (key, page) = match piece {
            Piece::Kept(spot) => (spot.range.first, spot.page),
            Piece::Draft(draft) => (draft.range.first, merge.save(draft).await?),
        };
        debug_assert!(self.items.last().is_none_or(|item| item.key < key), "children of level {} rise", self.level);
        self.items.push(Item { key, what: What::Child(page) });
        Ok(())
    }
}
