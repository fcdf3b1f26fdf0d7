//! The tree against a map in memory: in storms of changes, versions, crashes and errors (`storm.rs`), with a crash at
//! every single operation (`crash.rs`), with damaged pages (`damage.rs`), and by what it costs (`costs.rs`). Planted
//! bugs show that these notice what they are for (`mutants.rs`).

extern crate std;

mod costs;
mod crash;
mod damage;
mod disk;
mod mutants;
mod storm;
mod world;

use super::{Key, KeyRange, Opening, Root, Shape, Tree};
use disk::Disk;
use std::collections::BTreeMap;
use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::vec::Vec;

/// Entries as they should be.
type Model = BTreeMap<Key, Vec<u8>>;

/// A reason why a run is not as it should be.
type Judged<T> = Result<T, std::string::String>;

/// Ends a run that is not as it should be.
macro_rules! ensure {
    ($holds:expr, $($text:tt)*) => {
        if !$holds {
            return Err(std::format!($($text)*));
        }
    };
}
pub(super) use ensure;

/// Small pages: trees of few keys are deep.
const TINY: usize = 512;
/// Kinds, majors and middles of the keys that are used: few enough to meet again.
const KINDS: u64 = 3;
const MAJORS: u64 = 3;
const MIDDLES: u64 = 130;

/// Random numbers that a seed repeats.
#[derive(Clone, Copy)]
struct Rng(u64);

impl Rng {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, end: u64) -> u64 {
        self.next() % end.max(1)
    }

    fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }

    fn key(&mut self) -> Key {
        Key::new(1 + self.below(KINDS) as u16, self.below(MAJORS), self.below(MIDDLES), 0)
    }

    fn value(&mut self, max: usize) -> Vec<u8> {
        let len = self.below(max as u64 + 1) as usize;
        (0..len).map(|_| self.next() as u8).collect()
    }

    /// A range of keys: mostly short, sometimes one thing, or all of a kind.
    fn range(&mut self) -> KeyRange {
        let key = self.key();
        match self.below(8) {
            0 => KeyRange::of_kind(key.kind),
            1..=2 => {
                KeyRange::new(Key::new(key.kind, key.major, 0, 0), Key::new(key.kind, key.major, u64::MAX, u64::MAX))
            }
            _ => {
                let len = self.below(40);
                KeyRange::new(key, Key::new(key.kind, key.major, key.middle + len, 0))
            }
        }
    }
}

/// How many seeds a test goes through: so many, or what `WEFT_TREE_SEEDS` says.
fn seeds(usual: u64) -> u64 {
    std::env::var("WEFT_TREE_SEEDS").ok().and_then(|seeds| seeds.parse().ok()).unwrap_or(usual)
}

/// Every key that is used.
fn all_keys() -> impl Iterator<Item = Key> {
    (1..=KINDS).flat_map(|kind| {
        (0..MAJORS).flat_map(move |major| (0..MIDDLES).map(move |middle| Key::new(kind as u16, major, middle, 0)))
    })
}

/// Drives a future to its end.
fn run<T>(future: impl Future<Output = T>) -> T {
    run_both(future, async {}).0
}

/// Drives two futures to their ends, by turns; the first one begins.
fn run_both<A, B>(one: impl Future<Output = A>, other: impl Future<Output = B>) -> (A, B) {
    let (mut one, mut other) = (pin!(one), pin!(other));
    let (mut first, mut second) = (None, None);
    let mut context = Context::from_waker(Waker::noop());
    for _ in 0..10_000_000 {
        if first.is_none()
            && let Poll::Ready(value) = one.as_mut().poll(&mut context)
        {
            first = Some(value);
        }
        if second.is_none()
            && let Poll::Ready(value) = other.as_mut().poll(&mut context)
        {
            second = Some(value);
        }
        if first.is_some() && second.is_some() {
            break;
        }
    }
    (first.expect("it comes to its end"), second.expect("it comes to its end"))
}

/// A tree of `page_len` bytes per page on `disk`, as its `n`th opening.
fn open(disk: &Disk, page_len: usize, n: u64, budget_pages: usize) -> Tree<Disk> {
    let root: Root = disk.get().root;
    let shape = Shape::new(page_len);
    let budget = budget_pages * (shape.image_len() + 256);
    let opening = Opening { shape, budget, first: n << 32, writer: n.wrapping_mul(0x1234_5678_9abc_def1) };
    Tree::open(disk.clone(), root, opening)
}
