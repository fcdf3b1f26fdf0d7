//! Reading: one key, or a range of keys, at the head or in a version.
//!
//! Invariants
//! 1. A page is used only if it is the one that its parent, or the root, refers to, and on the level and for the keys
//!    of the way to it. Otherwise the keys of that way are lost, and named; nothing is answered for them.
//! 2. What memory decides needs no page: a key that changed since can be read although its page is lost.
//! 3. A lookup answers as of the moment at which it was called. A scan answers each page's stretch of keys as of one
//!    moment: memory and root are looked at in the same step.
//! 4. While somebody reads, no place that a root since freed is given out again.

use super::changes::{Changes, Value};
use super::error::{Lost, Result, TreeError, Which, Why};
use super::key::{Key, KeyRange};
use super::mutant::{Mutant, active};
use super::page::Page;
use super::store::{PageStore, RootRef};
use super::{Spot, State, Tree};
use crate::error::ErrorKind;
use alloc::rc::Rc;
use alloc::vec::Vec;

/// Which state is read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum At {
    /// The newest, with all changes that are in memory.
    Head,
    /// That of the version with this number.
    Version(u64),
}

/// What a scan found.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Scanned {
    /// The entries in the order of their keys.
    pub entries: Vec<(Key, Value)>,
    /// Where to go on; nothing is left if absent.
    pub next: Option<Key>,
}

/// What a scan reads.
#[derive(Clone, Copy)]
pub(super) enum Source {
    /// The newest state, of which a part is in memory.
    Head,
    /// What is below a root.
    Tree(Which, Option<RootRef>),
}

/// Kept while somebody reads.
pub(super) struct Reading<'a, S: PageStore> {
    tree: &'a Tree<S>,
    number: u64,
}

impl<S: PageStore> Tree<S> {
    /// The value of `key`.
    pub async fn get(&self, at: At, key: Key) -> Result<Option<Value>> {
        let _reading = self.begin_reading();
        let root = match at {
            At::Version(number) => self.version(number).await?,
            At::Head => {
                let state = self.state.borrow();
                if let Some(decided) = state.layers().rev().find_map(|layer| layer.get(key)) {
                    return Ok(decided.cloned());
                }
                state.root.content
            }
        };
        let Some((page, _)) = self.leaf_of(Which::Content, root, key).await? else { return Ok(None) };
        Ok(page.find(key).map(|no| page.value(no).into()))
    }

    /// The first `limit` entries of `range`. An error of what is lost comes when no entry can be told before the lost
    /// range: whoever wants the rest goes on behind that.
    pub async fn scan(&self, at: At, range: KeyRange, limit: usize) -> Result<Scanned> {
        let _reading = self.begin_reading();
        let source = match at {
            At::Head => Source::Head,
            At::Version(number) => Source::Tree(Which::Content, self.version(number).await?),
        };
        self.scan_source(source, range, limit).await
    }

    /// The first `limit` entries of `range` in `source`.
    pub(super) async fn scan_source(&self, source: Source, range: KeyRange, limit: usize) -> Result<Scanned> {
        let mut found = Scanned { entries: Vec::new(), next: Some(range.first) };
        while let Some(first) = found.next.filter(|_| found.entries.len() < limit) {
            let rest = KeyRange::new(first, range.last);
            found.next = match self.scan_stretch(source, rest, limit, &mut found.entries).await {
                Ok(next) => next.filter(|next| range.contains(*next)),
                Err(TreeError::Lost(_)) if !found.entries.is_empty() => break,
                Err(error) => return Err(error),
            };
        }
        Ok(found)
    }

    /// Goes through the keys from the beginning of `rest` to the end of the page there; the key behind what was looked
    /// at.
    async fn scan_stretch(
        &self,
        source: Source,
        rest: KeyRange,
        limit: usize,
        entries: &mut Vec<(Key, Value)>,
    ) -> Result<Option<Key>> {
        let (which, root) = match source {
            Source::Tree(which, root) => (which, root),
            Source::Head => {
                let state = self.state.borrow();
                // Nothing below counts in a cleared range.
                let cleared = state.layers().find_map(|layer| layer.cleared_around(rest.first));
                if let Some(stretch) = cleared.and_then(|cleared| cleared.common(&rest)) {
                    return Ok(merge(None, stretch, &state, limit, entries));
                }
                (Which::Content, state.root.content)
            }
        };
        let leaf = self.leaf_of(which, root, rest.first).await?;
        let (page, range) = leaf.map_or((None, KeyRange::ALL), |(page, range)| (Some(page), range));
        let stretch = range.common(&rest).expect("the page is on the way of its first key");
        match source {
            Source::Tree(..) => Ok(merge(page.as_deref(), stretch, &State::default(), limit, entries)),
            Source::Head => {
                let state = self.state.borrow();
                if state.root.content != root {
                    // A checkpoint has moved changes from memory into pages meanwhile: look again.
                    return Ok(Some(rest.first));
                }
                Ok(merge(page.as_deref(), stretch, &state, limit, entries))
            }
        }
    }

    /// The leaf to which `key` leads, and the keys that lead to it.
    async fn leaf_of(&self, which: Which, root: Option<RootRef>, key: Key) -> Result<Option<(Rc<Page>, KeyRange)>> {
        let Some(top) = root else { return Ok(None) };
        let mut spot = Spot::top(which, top);
        loop {
            let page = self.load(spot).await?;
            if page.level == 0 {
                return Ok(Some((page, spot.range)));
            }
            spot = page.spot_of(which, key, spot.range);
        }
    }

    /// The page at `spot`: from memory, or read and proven (invariant 1).
    pub(super) async fn load(&self, spot: Spot) -> Result<Rc<Page>> {
        let Spot { tree, page: want, level, range } = spot;
        let lost = |why| TreeError::Lost(Lost { tree, range, level, place: want.place, why });
        let held = self.cache.borrow_mut().get(&want);
        let page = match held {
            Some(page) => page,
            None => {
                let image = self.store.read(want).await.map_err(|error| match error.kind {
                    ErrorKind::Lost | ErrorKind::Corrupt => lost(Why::Unreadable),
                    _ => TreeError::Failed(error),
                })?;
                let page = Rc::new(Page::decode(&self.shape, want, image.freeze()).map_err(lost)?);
                self.cache.borrow_mut().insert_clean(page.clone());
                page
            }
        };
        if page.fits(&spot) { Ok(page) } else { Err(lost(Why::OutOfPlace)) }
    }

    /// Takes note that somebody reads from now on what the present root refers to.
    pub(super) fn begin_reading(&self) -> Reading<'_, S> {
        let mut state = self.state.borrow_mut();
        let number = state.root.number;
        *state.readers.entry(number).or_insert(0) += 1;
        Reading { tree: self, number }
    }

    /// Tells the store what may be given out again: what roots freed that no reader is older than.
    pub(super) fn release(&self) {
        let number = {
            let mut state = self.state.borrow_mut();
            let oldest = state.readers.keys().next().copied().filter(|_| !active(Mutant::ReadersForgotten));
            let number = oldest.unwrap_or(state.root.number);
            if number <= state.reusable {
                return;
            }
            state.reusable = number;
            number
        };
        self.store.reuse(number);
    }
}

impl<S: PageStore> Drop for Reading<'_, S> {
    fn drop(&mut self) {
        let mut state = self.tree.state.borrow_mut();
        let readers = state.readers.get_mut(&self.number).expect("it was counted");
        *readers -= 1;
        if *readers == 0 {
            state.readers.remove(&self.number);
        }
        drop(state);
        self.tree.release();
    }
}

impl State {
    /// The layers of changes in memory, the oldest first.
    pub(super) fn layers(&self) -> impl DoubleEndedIterator<Item = &Changes> {
        let frozen = self.frozen.as_deref().filter(|_| !active(Mutant::FrozenUnread));
        frozen.into_iter().chain([&self.active])
    }
}

/// Adds the entries of `stretch` to `entries`, up to `limit` in all: those of the page below, as the layers of memory
/// change them. The key to go on with.
fn merge(
    page: Option<&Page>,
    stretch: KeyRange,
    state: &State,
    limit: usize,
    entries: &mut Vec<(Key, Value)>,
) -> Option<Key> {
    let behind = page.map_or(0, |page| page.first_from(stretch.last.next()));
    let mut numbers = page.map_or(0..0, |page| page.first_from(Some(stretch.first))..behind).peekable();
    let mut layers: Vec<_> = state.layers().map(|layer| (layer, layer.points(stretch).peekable())).collect();
    loop {
        let below = numbers.peek().zip(page).map(|(no, page)| page.key(*no));
        let above = layers.iter_mut().filter_map(|(_, points)| points.peek().map(|(key, _)| *key));
        let Some(key) = above.chain(below).min() else { return stretch.last.next() };
        if entries.len() == limit {
            return Some(key);
        }
        let mut value: Option<Value> = None;
        if below == Some(key) {
            value = numbers.next().zip(page).map(|(no, page)| page.value(no).into());
        }
        for (layer, points) in &mut layers {
            if let Some((_, point)) = points.next_if(|(point, _)| *point == key) {
                value = point.cloned();
            } else if layer.cleared_around(key).is_some() {
                value = None;
            }
        }
        entries.extend(value.map(|value| (key, value)));
    }
}
