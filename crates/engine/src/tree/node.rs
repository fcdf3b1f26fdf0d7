//! Drafts: the entries of pages that are being made, how they are cut into pages and joined.
//!
//! Invariants
//! 1. An entry is at most a sixth of a page, so entries of more than a page can be cut into pages each of which is at
//!    least a quarter full: with entries of at most `e` and pages of `c`, `n = ceil(total / (c - e))` pages end at the
//!    first entry behind each nth of the total, which makes each at least `(c - e) / 2 - e = c / 4`.
//! 2. Two neighbours, one of them less than a quarter full, become one page or, if that is too much, two of more than
//!    a quarter: their total is more than a page then, and each half of it more than `c / 2 - e = c / 3`.
//! 3. A draft above the leaves whose only entry is an open one is less than a quarter full itself, so that it is joined
//!    with its neighbour, and the open one with a neighbour from there.

use super::changes::Value;
use super::key::{Key, KeyRange};
use super::mutant::{Mutant, active};
use super::page::{Making, Page, PageRef, Shape, inner, leaf};
use super::{Spot, Which};
use alloc::boxed::Box;
use alloc::rc::Rc;
use alloc::vec;
use alloc::vec::Vec;

/// Entries of one page, or of more than fit one.
pub(super) struct Draft {
    /// How far above the leaves.
    pub level: u16,
    /// The keys that lead to it.
    pub range: KeyRange,
    /// The entries in the order of their keys.
    pub items: Vec<Item>,
    /// Whether it became longer at its end only: keys come in their order, and pages are left full.
    pub grown: bool,
}

/// One entry.
pub(super) struct Item {
    /// Its key; of a child, the first key that leads to it.
    pub key: Key,
    /// What it holds.
    pub what: What,
}

/// What an entry holds.
pub(super) enum What {
    /// A new value.
    New(Value),
    /// The value of an entry of a page.
    Kept(Rc<Page>, usize),
    /// A child that has its place.
    Child(PageRef),
    /// A child that is less full than it may be, and the only one: it waits for a neighbour.
    Open(Box<Draft>),
}

impl Item {
    /// Bytes of it in a page.
    fn len(&self) -> usize {
        match &self.what {
            What::New(value) => Shape::leaf_entry(value.len()),
            What::Kept(page, no) => Shape::leaf_entry(page.value(*no).len()),
            What::Child(_) | What::Open(_) => Shape::child_entry(),
        }
    }

    fn value(&self) -> &[u8] {
        match &self.what {
            What::New(value) => value,
            What::Kept(page, no) => page.value(*no),
            What::Child(_) | What::Open(_) => unreachable!("a leaf has values"),
        }
    }

    fn child(&self) -> PageRef {
        match &self.what {
            What::Child(page) => *page,
            _ => unreachable!("every child has its place before its parent is made"),
        }
    }
}

impl Draft {
    /// A draft of these entries for the keys of `range`.
    pub fn new(level: u16, range: KeyRange, items: Vec<Item>) -> Draft {
        let mut draft = Draft { level, range, items, grown: false };
        draft.begin_at_range();
        draft
    }

    /// The entries of `page`, to which the keys of `range` lead.
    pub fn of(page: &Rc<Page>, range: KeyRange) -> Draft {
        let items = (0..page.count).map(|no| {
            let what = if page.level == 0 { What::Kept(page.clone(), no) } else { What::Child(page.child(no)) };
            Item { key: page.key(no), what }
        });
        Draft::new(page.level, range, items.collect())
    }

    /// This draft where the keys of `range` lead to it: what was beside it may have gone.
    pub fn leading(mut self, range: KeyRange) -> Draft {
        self.range = range;
        if !active(Mutant::GapsForgotten) {
            self.begin_at_range();
        }
        self
    }

    /// This draft and its right neighbour as one.
    pub fn followed_by(mut self, right: Draft) -> Draft {
        self.items.extend(right.items);
        self.range.last = right.range.last;
        self.grown = false;
        self
    }

    /// Bytes of its entries.
    pub fn len(&self) -> usize {
        self.items.iter().map(Item::len).sum()
    }

    /// Whether it is less full than a page may be.
    pub fn is_thin(&self, shape: &Shape) -> bool {
        self.len() < shape.fill_min()
    }

    /// Whether one of its entries is open.
    pub fn has_open(&self) -> bool {
        self.items.iter().any(|item| matches!(item.what, What::Open(_)))
    }

    /// Its entries as children, each with the keys that lead to it.
    pub fn into_pieces(self, tree: Which) -> impl Iterator<Item = Piece> {
        let Draft { level, range, items, .. } = self;
        let firsts: Vec<Key> = items.iter().map(|item| item.key).collect();
        items.into_iter().enumerate().map(move |(no, item)| {
            let last = firsts.get(no + 1).map_or(range.last, |next| next.prior().expect("keys rise"));
            let range = KeyRange::new(firsts[no], last);
            match item.what {
                What::Open(draft) => Piece::Draft(draft.leading(range)),
                What::Child(page) => Piece::Kept(Spot { tree, page, level: level - 1, range }),
                What::New(_) | What::Kept(..) => unreachable!("a page above the leaves has children"),
            }
        })
    }

    /// Cuts it into drafts of at most a page and, where there are several, at least a quarter of one (invariant 1).
    pub fn cut(self, shape: &Shape) -> Vec<Draft> {
        let (room, total) = (shape.room(), self.len());
        if total <= room {
            return vec![self];
        }
        let lens: Vec<usize> = self.items.iter().map(Item::len).collect();
        // How many bytes go before each cut.
        let mut ends = Vec::new();
        let mut done = 0;
        if self.grown {
            let mut sums = lens.iter().scan(0, |sum, len| {
                let before = *sum;
                *sum += len;
                Some((before, *sum))
            });
            // Full pages, while more than enough is left for the last one.
            while total - done > room + shape.fill_min() {
                done = sums.find(|(_, behind)| *behind > done + room).map_or(total, |(before, _)| before);
                ends.push(done);
            }
        }
        let rest = total - done;
        let pieces = if rest <= room { 1 } else { rest.div_ceil(room - shape.entry_max()).max(2) };
        ends.extend((1..pieces).map(|no| done + rest * no / pieces));
        self.cut_behind(&ends, &lens)
    }

    /// Cuts it behind the first entry that reaches each of `ends`.
    fn cut_behind(self, ends: &[usize], lens: &[usize]) -> Vec<Draft> {
        let Draft { level, range, items, .. } = self;
        let mut drafts: Vec<Draft> = Vec::with_capacity(ends.len() + 1);
        let (mut sum, mut open) = (0, Draft::new(level, range, Vec::new()));
        let mut ends = ends.iter().peekable();
        for (item, len) in items.into_iter().zip(lens) {
            if ends.next_if(|end| sum >= **end).is_some() {
                let before = item.key.prior().expect("an entry is before it");
                let next = KeyRange::new(item.key, range.last);
                let mut full = core::mem::replace(&mut open, Draft::new(level, next, Vec::new()));
                full.range.last = before;
                drafts.push(full);
            }
            sum += len;
            open.items.push(item);
        }
        drafts.push(open);
        drafts
    }

    /// The page of it.
    pub fn to_page(&self, shape: &Shape, making: Making) -> Page {
        match self.level {
            0 => leaf(shape, making, self.items.iter().map(|item| (item.key, item.value()))),
            _ => inner(shape, making, self.items.iter().map(|item| (item.key, item.child()))),
        }
    }

    /// Above the leaves the first entry stands for all keys from the beginning on.
    fn begin_at_range(&mut self) {
        if let (true, Some(item)) = (self.level > 0, self.items.first_mut()) {
            item.key = self.range.first;
        }
    }
}

/// A child of a page that is being made.
pub(super) enum Piece {
    /// A page as it is.
    Kept(Spot),
    /// One that is being made; it fits a page.
    Draft(Draft),
}

impl Piece {
    /// Whether it is less full than a page may be. What has its place never is.
    pub fn is_thin(&self, shape: &Shape) -> bool {
        matches!(self, Piece::Draft(draft) if draft.is_thin(shape))
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use proptest::prelude::*;

    fn draft(lens: &[usize]) -> Draft {
        let item = |(no, len): (usize, &usize)| Item {
            key: Key::new(0, 0, no as u64 * 2, 0),
            what: What::New(vec![0; *len].into()),
        };
        Draft::new(0, KeyRange::ALL, lens.iter().enumerate().map(item).collect())
    }

    proptest! {
        #[test]
        fn whatever_is_cut_fits_and_is_a_quarter_full_and_the_ranges_follow_each_other(
            lens in proptest::collection::vec(0usize..37, 1..200),
            grown: bool,
        ) {
            let shape = Shape::new(512);
            prop_assert_eq!(shape.value_max(), 36);
            let all = Draft { grown, ..draft(&lens) };
            let (total, keys) = (all.len(), all.items.len());
            let parts = all.cut(&shape);
            prop_assert_eq!(parts.iter().map(|part| part.items.len()).sum::<usize>(), keys);
            let mut first = Some(Key::MIN);
            for part in &parts {
                prop_assert_eq!(Some(part.range.first), first);
                prop_assert!(part.items.iter().all(|item| part.range.contains(item.key)));
                prop_assert!(part.len() <= shape.room(), "{} bytes", part.len());
                prop_assert!(parts.len() == 1 || part.len() >= shape.fill_min(), "{} bytes of {}", part.len(), total);
                first = part.range.last.next();
            }
            prop_assert_eq!(first, None);
        }
    }

    #[test]
    fn what_grows_at_its_end_leaves_full_pages_behind() {
        let shape = Shape::new(512);
        let parts = Draft { grown: true, ..draft(&[20; 100]) }.cut(&shape);
        let (last, full) = parts.split_last().unwrap();
        assert!(full.iter().all(|part| part.items.len() == 8), "8 x 50 bytes fill 400");
        assert_eq!(last.items.len() + 8 * full.len(), 100);
    }
}
