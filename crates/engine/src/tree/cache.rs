//! Pages in memory, under a budget.
//!
//! Invariants
//! 1. A page that is not durable yet ("dirty") stays until it is: nobody else has it.
//! 2. Clean pages leave, longest unused first, until the budget is kept. A page counts as used later the higher it is
//!    above the leaves, so that the upper levels stay, but not those of versions that nobody reads.
//! 3. Dirty pages have at most half of the budget: whoever makes more has them written first ([`Cache::is_pressed`]).
//!    So the budget is kept but for the pages that are in somebody's hand.
//! 4. A page is found by all that proves it. What lay at its place at another time is not it.

use super::mutant::{Mutant, active};
use super::page::{Page, PageRef};
use super::store::Place;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::rc::Rc;
use alloc::vec::Vec;

/// Memory for a page beside its image.
const OVERHEAD: usize = 256;
/// By how many uses a page seems younger than one a level below.
const LEVEL_BONUS: u64 = 1 << 16;

/// Pages in memory.
pub(super) struct Cache {
    budget: usize,
    page_cost: usize,
    slots: BTreeMap<Place, Slot>,
    /// Clean pages by their rank: the first leaves first.
    clean: BTreeSet<(u64, Place)>,
    dirty: BTreeSet<Place>,
    uses: u64,
}

struct Slot {
    page: Rc<Page>,
    rank: u64,
}

impl Cache {
    /// A cache of at most `budget` bytes, for pages whose images have `image_len` bytes.
    pub fn new(budget: usize, image_len: usize) -> Cache {
        let (slots, clean, dirty) = Default::default();
        Cache { budget, page_cost: image_len + OVERHEAD, slots, clean, dirty, uses: 0 }
    }

    /// Bytes in use.
    pub fn bytes(&self) -> usize {
        self.slots.len() * self.page_cost
    }

    /// The page that `want` proves, if it is here.
    pub fn get(&mut self, want: &PageRef) -> Option<Rc<Page>> {
        let slot = self.slots.get_mut(&want.place)?;
        if slot.page.at != *want {
            return None;
        }
        let page = slot.page.clone();
        self.uses += 1;
        let before = core::mem::replace(&mut slot.rank, rank(self.uses, page.level));
        if self.clean.remove(&(before, want.place)) {
            self.clean.insert((slot.rank, want.place));
        }
        Some(page)
    }

    /// Keeps a page that was read.
    pub fn insert_clean(&mut self, page: Rc<Page>) {
        assert!(!self.dirty.contains(&page.at.place) || active(Mutant::ReusedBeforeSuccessor), "a place has one page");
        let place = page.at.place;
        let rank = self.insert(page);
        self.clean.insert((rank, place));
        self.evict();
    }

    /// Keeps a page that was made, until it is durable and longer.
    pub fn insert_dirty(&mut self, page: Rc<Page>) {
        let place = page.at.place;
        let rank = self.insert(page);
        self.dirty.insert(place);
        if active(Mutant::DirtyEvicted) {
            self.clean.insert((rank, place));
        }
        self.evict();
    }

    /// Forgets what lay at `place`.
    pub fn remove(&mut self, place: Place) {
        if let Some(slot) = self.slots.remove(&place) {
            self.clean.remove(&(slot.rank, place));
            self.dirty.remove(&place);
        }
    }

    /// How many pages may be brought before they are needed: half of the budget.
    pub fn room_ahead(&self) -> usize {
        (self.budget / 2 / self.page_cost).max(1)
    }

    /// Whether dirty pages have their share of the budget.
    pub fn is_pressed(&self) -> bool {
        self.dirty.len() * self.page_cost > self.budget / 2
    }

    /// The pages that are not durable yet.
    pub fn dirty_pages(&self) -> Vec<Rc<Page>> {
        self.dirty.iter().map(|place| self.slots[place].page.clone()).collect()
    }

    /// Takes note that `pages` are durable.
    pub fn settle(&mut self, pages: &[Rc<Page>]) {
        for page in pages {
            let place = page.at.place;
            if self.dirty.remove(&place) {
                self.clean.insert((self.slots[&place].rank, place));
            }
        }
        self.evict();
    }

    /// Forgets every clean page.
    pub fn forget_clean(&mut self) {
        while let Some((_, place)) = self.clean.pop_first() {
            self.slots.remove(&place);
        }
    }

    fn insert(&mut self, page: Rc<Page>) -> u64 {
        let place = page.at.place;
        self.remove(place);
        self.uses += 1;
        let rank = rank(self.uses, page.level);
        self.slots.insert(place, Slot { page, rank });
        rank
    }

    fn evict(&mut self) {
        while self.bytes() > self.budget {
            let Some((_, place)) = self.clean.pop_first() else { break };
            self.slots.remove(&place);
            self.dirty.remove(&place);
        }
    }
}

fn rank(uses: u64, level: u16) -> u64 {
    uses + LEVEL_BONUS * u64::from(level)
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::super::key::{Key, KeyRange};
    use super::super::page::{Making, Shape, inner, leaf};
    use super::*;

    fn page(place: u64, birth: u64, level: u16) -> Rc<Page> {
        let shape = Shape::new(512);
        let making = Making { place: Place(place), birth, writer: 0, level, range: KeyRange::ALL };
        Rc::new(match level {
            0 => leaf(&shape, making, [(Key::MIN, &b"x"[..])].into_iter()),
            _ => inner(&shape, making, [(Key::MIN, PageRef { place: Place(0), birth, sum: 0 })].into_iter()),
        })
    }

    fn cache_of(pages: usize) -> Cache {
        Cache::new(pages * (4096 + OVERHEAD), 4096)
    }

    fn places(cache: &Cache) -> Vec<u64> {
        cache.slots.keys().map(|place| place.0).collect()
    }

    #[test]
    fn what_was_not_used_for_longest_leaves_first_and_upper_levels_stay() {
        let mut cache = cache_of(3);
        let top = page(1, 1, 1);
        cache.insert_clean(top);
        for place in 2..=3 {
            cache.insert_clean(page(place, 1, 0));
        }
        assert!(cache.get(&page(2, 1, 0).at).is_some());
        cache.insert_clean(page(4, 1, 0));
        assert_eq!(places(&cache), [1, 2, 4]);
        assert_eq!(cache.bytes(), cache.budget);
    }

    #[test]
    fn an_upper_page_that_is_not_used_for_very_long_leaves_in_the_end() {
        let mut cache = cache_of(2);
        cache.insert_clean(page(1, 1, 1));
        let leaf = page(2, 1, 0);
        cache.insert_clean(leaf.clone());
        for _ in 0..LEVEL_BONUS {
            cache.get(&leaf.at);
        }
        cache.insert_clean(page(3, 1, 0));
        assert_eq!(places(&cache), [2, 3]);
    }

    #[test]
    fn dirty_pages_stay_until_they_are_durable_whatever_the_budget() {
        let mut cache = cache_of(2);
        for place in 1..=5 {
            cache.insert_dirty(page(place, 1, 0));
        }
        assert!(cache.is_pressed());
        assert_eq!(places(&cache), [1, 2, 3, 4, 5]);
        let made = cache.dirty_pages();
        cache.settle(&made);
        assert_eq!((places(&cache), cache.dirty_pages().len()), (std::vec![4, 5], 0));
    }

    #[test]
    fn a_page_of_another_time_is_not_found_in_its_place() {
        let mut cache = cache_of(2);
        cache.insert_clean(page(1, 1, 0));
        assert!(cache.get(&page(1, 2, 0).at).is_none());
        cache.insert_clean(page(1, 2, 0));
        assert!(cache.get(&page(1, 2, 0).at).is_some());
        assert_eq!(cache.bytes(), 4096 + OVERHEAD);
    }
}
