//! A store for tests: one copy of each page, writes that are volatile until they are flushed, crashes and errors at any
//! operation, slow answers, and a memory of all that ever lay at a place.

extern crate std;
use super::super::{Images, PageRef, PageStore, Place, Root, StoreFuture};
use super::Rng;
use crate::error::{Error, ErrorKind, Result};
use crate::io::{Buf, IoSlice};
use std::boxed::Box;
use std::cell::{Ref, RefCell, RefMut};
use std::collections::{BTreeMap, BTreeSet};
use std::future::poll_fn;
use std::rc::Rc;
use std::task::Poll;
use std::vec::Vec;

/// The store; its clones are the same one.
#[derive(Clone)]
pub struct Disk(Rc<RefCell<Inner>>);

/// What is in it.
#[derive(Clone)]
pub struct Inner {
    page_len: usize,
    /// What is durable, by place.
    pub pages: BTreeMap<Place, Vec<u8>>,
    /// What was written since the last flush, in that order.
    volatile: Vec<(Place, Vec<u8>)>,
    /// Every image that was ever written to a place.
    pub past: BTreeMap<Place, Vec<Vec<u8>>>,
    /// The root that is durable.
    pub root: Root,
    /// Places that are given out, now and as of the durable root.
    taken: BTreeSet<Place>,
    taken_durable: BTreeSet<Place>,
    free: BTreeSet<Place>,
    /// What roots freed, not yet to be given out again.
    waiting: Vec<(u64, Vec<Place>)>,
    pub capacity: u64,
    ever_given: u64,
    /// Places that cannot be read.
    pub unreadable: BTreeSet<Place>,
    /// Writes, flushes and roots so far.
    pub operations: u64,
    /// The operation at which the power goes.
    pub crash_at: Option<u64>,
    /// The operation that fails once.
    pub fail_at: Option<u64>,
    pub is_dead: bool,
    pub reads: u64,
    /// Pages that were brought ahead of their reading.
    pub brought: u64,
    pub writes: u64,
    /// Whether answers take their time.
    pub is_slow: bool,
    rng: Rng,
}

impl Disk {
    /// An empty store.
    pub fn new(page_len: usize, seed: u64) -> Disk {
        Disk(Rc::new(RefCell::new(Inner {
            page_len,
            pages: BTreeMap::new(),
            volatile: Vec::new(),
            past: BTreeMap::new(),
            root: Root::default(),
            taken: BTreeSet::new(),
            taken_durable: BTreeSet::new(),
            free: BTreeSet::new(),
            waiting: Vec::new(),
            capacity: u64::MAX,
            ever_given: 0,
            unreadable: BTreeSet::new(),
            operations: 0,
            crash_at: None,
            fail_at: None,
            is_dead: false,
            reads: 0,
            brought: 0,
            writes: 0,
            is_slow: false,
            rng: Rng(seed),
        })))
    }

    /// Another store with the same in it.
    pub fn copy(&self) -> Disk {
        Disk(Rc::new(RefCell::new(self.0.borrow().clone())))
    }

    /// Another store of which only one place was ever written, beside a few others.
    pub fn copy_of(&self, place: Place) -> Disk {
        let from = self.get();
        let copy = Disk::new(from.page_len, 0);
        {
            let mut to = copy.set();
            to.root = from.root;
            let others = from.pages.iter().take(20).chain(from.pages.get_key_value(&place));
            to.pages = others.map(|(place, image)| (*place, image.clone())).collect();
            to.past.extend(from.past.get_key_value(&place).map(|(place, past)| (*place, past.clone())));
        }
        copy
    }

    pub fn get(&self) -> Ref<'_, Inner> {
        self.0.borrow()
    }

    pub fn set(&self) -> RefMut<'_, Inner> {
        self.0.borrow_mut()
    }

    /// The power comes back: writes that were not flushed are there, or not, or in part.
    pub fn reboot(&self) {
        let inner = &mut *self.0.borrow_mut();
        for (place, image) in std::mem::take(&mut inner.volatile) {
            match inner.rng.below(3) {
                0 => {}
                1 => drop(inner.pages.insert(place, image)),
                _ => {
                    let torn = inner.rng.below(inner.page_len as u64) as usize;
                    let page = inner.pages.entry(place).or_insert_with(|| std::vec![0; image.len()]);
                    page[..torn].copy_from_slice(&image[..torn]);
                }
            }
        }
        inner.taken = inner.taken_durable.clone();
        inner.free = (0..inner.ever_given).map(Place).filter(|place| !inner.taken.contains(place)).collect();
        inner.waiting.clear();
        (inner.is_dead, inner.crash_at, inner.fail_at) = (false, None, None);
    }

    /// Does something after a while.
    fn later<T: 'static>(&self, slow: u64, act: impl FnOnce(&mut Inner) -> Result<T> + 'static) -> StoreFuture<T> {
        let disk = self.clone();
        Box::pin(async move {
            let rounds = {
                let inner = &mut *disk.0.borrow_mut();
                if inner.is_slow { inner.rng.below(slow) } else { 0 }
            };
            pause(rounds).await;
            act(&mut disk.0.borrow_mut())
        })
    }
}

/// Comes back after so many polls.
pub async fn pause(mut rounds: u64) {
    poll_fn(move |context| {
        if rounds == 0 {
            return Poll::Ready(());
        }
        rounds -= 1;
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

impl Inner {
    /// Counts an operation. It may be the one at which the power goes, or which fails.
    fn operate(&mut self) -> Result<()> {
        if self.is_dead {
            return Err(Error::new(ErrorKind::Closed, "there is no power"));
        }
        let operation = self.operations;
        self.operations += 1;
        if self.crash_at == Some(operation) {
            self.is_dead = true;
            return Err(Error::new(ErrorKind::Closed, "the power went"));
        }
        if self.fail_at == Some(operation) {
            return Err(Error::new(ErrorKind::Frozen, "not now"));
        }
        Ok(())
    }

    /// Has other luck from now on.
    pub fn reseed(&mut self, seed: u64) {
        self.rng = Rng(seed);
    }

    fn image(&self, place: Place) -> Option<&Vec<u8>> {
        let newest = self.volatile.iter().rev().find(|(written, _)| *written == place);
        newest.map(|(_, image)| image).or_else(|| self.pages.get(&place))
    }

    fn make_root(&mut self, root: Root, freed: Vec<Place>) {
        assert!(root.number > self.root.number, "roots have rising numbers");
        for place in &freed {
            assert!(self.taken.remove(place), "{place:?} is freed twice");
        }
        self.waiting.push((root.number, freed));
        self.root = root;
        self.taken_durable = self.taken.clone();
    }
}

impl PageStore for Disk {
    fn read(&self, want: PageRef) -> StoreFuture<Buf> {
        // Now and then one is very slow.
        let slow = if want.place.0.is_multiple_of(7) { 400 } else { 4 };
        self.later(slow, move |inner| {
            inner.reads += 1;
            if inner.is_dead {
                return Err(Error::new(ErrorKind::Closed, "there is no power"));
            }
            let image = inner.image(want.place).filter(|_| !inner.unreadable.contains(&want.place));
            image.map(|image| Buf::copy_of(image)).ok_or_else(|| Error::new(ErrorKind::Lost, "no copy"))
        })
    }

    /// Whatever lies there; now and then one does not come.
    fn read_ahead(&self, wants: Vec<PageRef>) -> Images {
        let disk = self.clone();
        Box::pin(async move {
            let inner = &mut *disk.0.borrow_mut();
            let bring = |want: PageRef| {
                let comes =
                    !inner.is_dead && !inner.unreadable.contains(&want.place) && !want.place.0.is_multiple_of(11);
                inner.image(want.place).filter(|_| comes).map(|image| Buf::copy_of(image))
            };
            let images: Vec<Option<Buf>> = wants.into_iter().map(bring).collect();
            inner.brought += images.iter().flatten().count() as u64;
            images
        })
    }

    fn write(&self, place: Place, image: IoSlice) -> StoreFuture<()> {
        self.later(4, move |inner| {
            let done = inner.operate();
            // What fails, or goes with the power, may have happened.
            if done.is_ok() || inner.rng.below(2) == 0 {
                inner.writes += 1;
                inner.volatile.push((place, image.to_vec()));
                inner.past.entry(place).or_default().push(image.to_vec());
            }
            done
        })
    }

    fn flush(&self) -> StoreFuture<()> {
        self.later(4, |inner| {
            inner.operate()?;
            let written = std::mem::take(&mut inner.volatile);
            inner.pages.extend(written);
            Ok(())
        })
    }

    fn allocate(&self) -> Option<Place> {
        let inner = &mut *self.0.borrow_mut();
        let place = inner.free.pop_first().or_else(|| {
            inner.ever_given += 1;
            (inner.ever_given <= inner.capacity).then(|| Place(inner.ever_given - 1))
        });
        let Some(place) = place else {
            inner.ever_given -= 1;
            return None;
        };
        assert!(inner.taken.insert(place), "{place:?} is given out twice");
        Some(place)
    }

    fn abandon(&self, places: &[Place]) {
        let inner = &mut *self.0.borrow_mut();
        for place in places {
            assert!(inner.taken.remove(place), "{place:?} is given back twice");
            inner.free.insert(*place);
        }
    }

    fn publish(&self, root: Root, freed: Vec<Place>) -> StoreFuture<()> {
        self.later(4, move |inner| {
            let done = inner.operate();
            if done.is_ok() || inner.rng.below(2) == 0 {
                inner.make_root(root, freed);
            }
            done
        })
    }

    fn reuse(&self, number: u64) {
        let inner = &mut *self.0.borrow_mut();
        let (now, later) = std::mem::take(&mut inner.waiting).into_iter().partition(|(freed, _)| *freed <= number);
        inner.waiting = later;
        let now: Vec<(u64, Vec<Place>)> = now;
        inner.free.extend(now.into_iter().flat_map(|(_, places)| places));
    }

    fn allocated(&self) -> BTreeSet<Place> {
        self.0.borrow().taken.clone()
    }
}
