//! Reading ahead: whoever goes through a range of keys has the pages below it brought many at once, where one leaf
//! after the other would cost a disk that seeks a turn each.
//!
//! Invariants
//! 1. A page that is brought is proven as any other. What does not come is left to the reading of that page alone,
//!    which knows what to do about it.
//! 2. It takes at most half of the memory for pages, so that what was brought is still there when it is needed.

use super::error::{Result, Which};
use super::key::{Key, KeyRange};
use super::mutant::{Mutant, active};
use super::page::{Page, PageRef};
use super::read::{At, Scanned};
use super::store::PageStore;
use super::{Spot, Tree};
use crate::io::Buf;
use alloc::rc::Rc;
use alloc::vec;
use alloc::vec::Vec;

/// How far somebody who goes through a range has had its pages brought.
#[derive(Default)]
pub struct Ahead {
    begun: bool,
    /// From this key on they were not; absent: all were.
    until: Option<Key>,
}

impl<S: PageStore> Tree<S> {
    /// Does what [`Tree::scan`] does at the head, for somebody who goes through all of `range`, with one `ahead` for
    /// all its steps.
    pub async fn scan_on(&self, range: KeyRange, limit: usize, ahead: &mut Ahead) -> Result<Scanned> {
        if !ahead.begun || ahead.until.is_some_and(|until| range.first >= until) {
            *ahead = Ahead { begun: true, until: self.read_ahead(range).await };
        }
        self.scan(At::Head, range, limit).await
    }

    /// Brings the pages that lead to the first keys of `range`, level by level. The key from which on leaves were not
    /// brought, for want of memory.
    async fn read_ahead(&self, range: KeyRange) -> Option<Key> {
        let _reading = self.begin_reading();
        let most = self.cache.borrow().room_ahead();
        let top = self.state.borrow().root.content?;
        let (mut spots, mut until) = (vec![Spot::top(Which::Content, top)], None);
        loop {
            self.bring(&spots).await;
            if spots.first().is_none_or(|spot| spot.level == 0) {
                return until;
            }
            let children = spots.iter().flat_map(|spot| self.children_of(spot, range));
            let mut children: Vec<Spot> = children.take(most + 1).collect();
            if children.len() > most {
                until = children.pop().map(|spot| spot.range.first);
            }
            spots = children;
        }
    }

    /// The children of a page that lead to keys of `range`. None, if the page is not in memory.
    fn children_of(&self, spot: &Spot, range: KeyRange) -> Vec<Spot> {
        let held = self.cache.borrow_mut().get(&spot.page);
        let Some(page) = held.filter(|page| page.fits(spot)) else { return Vec::new() };
        let first = page.first_from(range.first.next()).saturating_sub(1);
        let children = (first..page.count).map(|no| page.spot(spot.tree, no, spot.range));
        children.take_while(|child| child.range.first <= range.last).collect()
    }

    /// Brings those of these pages that are not in memory.
    pub(super) async fn bring(&self, spots: &[Spot]) {
        let absent = |spot: &&Spot| self.cache.borrow_mut().get(&spot.page).is_none();
        let absent: Vec<&Spot> = spots.iter().filter(absent).collect();
        if let [spot] = absent[..] {
            // What is wrong with it is for its reader to say.
            let _ = self.load(*spot).await;
            return;
        }
        let images = self.store.read_ahead(absent.iter().map(|spot| spot.page).collect()).await;
        for (spot, image) in absent.into_iter().zip(images) {
            if let Some(page) = image.and_then(|image| self.proven(spot, image)) {
                self.cache.borrow_mut().insert_clean(Rc::new(page));
            }
        }
    }

    /// The page at `spot`, if `image` is that (invariant 1).
    fn proven(&self, spot: &Spot, image: Buf) -> Option<Page> {
        let want = match active(Mutant::BroughtBelieved) {
            true => PageRef::claimed(&self.shape, spot.page.place, &image)?,
            false => spot.page,
        };
        let page = Page::decode(&self.shape, want, image.freeze()).ok()?;
        Some(Page { at: spot.page, ..page }).filter(|page| page.fits(spot))
    }
}
