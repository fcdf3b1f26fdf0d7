//! A check of everything: walks all pages that any root reaches, and compares what is reached with what is taken.
//!
//! What each page must be is proven at every reading (`page.rs`: order, sum, place, birth; `read.rs`: level and keys of
//! the way). This walk proves what no single page shows:
//!
//! 1. Every page but a tree's top is at least a quarter full.
//! 2. No page is younger than the page above it, or than its root.
//! 3. No page is reached twice from one root, nor any place as two different pages.
//! 4. What is taken is reached by the head, by a version or by the ledger, and nothing else is.
//! 5. A page is in the dead lists exactly if a version reaches it and the head does not, with the right birth, and
//!    between the right versions.
//!
//! It remembers every page that is reached, and walks each root whole: it is for tests, and for whoever has the time.

use super::error::{Lost, Result, TreeError, Which};
use super::store::{PageStore, Place, RootRef};
use super::version::{Dead, Versions, group_of};
use super::{PageRef, Spot, Tree};
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::future::Future;
use core::pin::Pin;

/// What a check found.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Report {
    /// Pages that are reached, each counted once.
    pub pages: u64,
    /// Pages that only versions reach.
    pub dead: u64,
    /// Entries of the head.
    pub entries: u64,
    /// What is not as it must be.
    pub findings: Vec<Finding>,
}

/// Something that is not as it must be.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Finding {
    /// A page is less full than a page may be.
    Thin(Place),
    /// A page is younger than the page above it or than its root.
    Young(Place),
    /// A place is reached twice from one root, or as two different pages.
    Twice(Place),
    /// A page is reached whose place is free.
    Free(Place),
    /// A place is taken, and nothing reaches it.
    Leaked(Place),
    /// A page that only versions reach is in no dead list.
    NotDead(Place),
    /// A dead list has a page that it must not have, or has it with a wrong birth, or between the wrong versions.
    WrongDead(Place),
    /// A page cannot be read: where it was looked for. [`Tree::lost`] names its keys.
    Lost(Place),
}

/// Stands for the head among the numbers of versions.
const HEAD: u64 = u64::MAX;

struct Walk<'a, S> {
    tree: &'a Tree<S>,
    reached: BTreeMap<Place, Reached>,
    lost: Vec<Lost>,
    report: Report,
}

/// How a page is reached.
struct Reached {
    page: PageRef,
    which: Which,
    /// The last root that reaches it: a version's number, or the head.
    last: u64,
}

impl<S: PageStore> Tree<S> {
    /// Checks everything that is in pages. What is only in memory is not looked at.
    pub async fn verify(&self) -> Result<Report> {
        let (walk, dead) = self.walk().await?;
        Ok(walk.conclude(dead.as_deref()))
    }

    /// Every page that no copy has, with the keys that are lost with it, in the head, in versions and in the ledger.
    pub async fn lost(&self) -> Result<Vec<Lost>> {
        Ok(self.walk().await?.0.lost)
    }

    /// What proves each page that any root reaches, by its place. What lies below a page that no copy has is not there.
    pub async fn reached(&self) -> Result<BTreeMap<Place, PageRef>> {
        let (walk, _) = self.walk().await?;
        Ok(walk.reached.into_iter().map(|(place, reached)| (place, reached.page)).collect())
    }

    /// Walks all roots, and reads the dead lists unless they are lost.
    async fn walk(&self) -> Result<(Walk<'_, S>, Option<Vec<Dead>>)> {
        let _turn = self.turn.take().await;
        let _reading = self.begin_reading();
        let mut walk = Walk { tree: self, reached: BTreeMap::new(), lost: Vec::new(), report: Report::default() };
        let root = self.root();
        walk.root(Which::Ledger, root.ledger, HEAD, root.number).await?;
        match self.read_versions().await {
            Ok(()) => {
                let versions = self.versions.borrow().clone().expect("it was just read");
                for (number, content) in versions {
                    walk.root(Which::Content, content, number, number).await?;
                }
            }
            Err(TreeError::Lost(_)) => {}
            Err(error) => return Err(error),
        }
        walk.root(Which::Content, root.content, HEAD, root.number).await?;
        match self.read_dead().await {
            Ok(dead) => Ok((walk, Some(dead))),
            Err(TreeError::Lost(_)) => Ok((walk, None)),
            Err(error) => Err(error),
        }
    }
}

impl<'a, S: PageStore> Walk<'a, S> {
    async fn root(&mut self, which: Which, top: Option<RootRef>, from: u64, birth_max: u64) -> Result<()> {
        match top {
            Some(top) => self.page(Spot::top(which, top), from, birth_max, true).await,
            None => Ok(()),
        }
    }

    /// Goes through the page at `spot` and all below it, on the way from root `from`.
    fn page<'w>(
        &'w mut self,
        spot: Spot,
        from: u64,
        birth_max: u64,
        is_top: bool,
    ) -> Pin<Box<dyn Future<Output = Result<()>> + 'w>>
    where
        'a: 'w,
    {
        Box::pin(async move {
            let (place, birth) = (spot.page.place, spot.page.birth);
            if birth > birth_max {
                self.report.findings.push(Finding::Young(place));
            }
            let before = self.reached.insert(place, Reached { page: spot.page, which: spot.tree, last: from });
            let is_same = |before: &Reached| (before.page, before.which) == (spot.page, spot.tree);
            if before.as_ref().is_some_and(|before| before.last == from || !is_same(before)) {
                self.report.findings.push(Finding::Twice(place));
                return Ok(());
            }
            let page = match self.tree.load(spot).await {
                Ok(page) => page,
                Err(TreeError::Lost(lost)) => {
                    self.lost.push(lost);
                    self.report.findings.push(Finding::Lost(place));
                    return Ok(());
                }
                Err(error) => return Err(error),
            };
            if before.is_none() && !is_top && page.filled < self.tree.shape.fill_min() {
                self.report.findings.push(Finding::Thin(place));
            }
            if page.level == 0 {
                let of_head = spot.tree == Which::Content && from == HEAD;
                self.report.entries += if of_head { page.count as u64 } else { 0 };
                return Ok(());
            }
            for no in 0..page.count {
                self.page(page.spot(spot.tree, no, spot.range), from, birth, false).await?;
            }
            Ok(())
        })
    }

    /// Compares what was reached with what is taken, and with the dead lists.
    fn conclude(self, dead: Option<&[Dead]>) -> Report {
        let Walk { tree, reached, lost, mut report } = self;
        let taken = tree.store.allocated();
        report.pages = reached.len() as u64;
        report
            .findings
            .extend(reached.keys().filter(|place| !taken.contains(place)).map(|place| Finding::Free(*place)));
        // Below what is lost there may be anything.
        let all_seen = lost.iter().all(|lost| lost.level == 0 && lost.tree == Which::Content);
        if all_seen {
            let unreached = taken.iter().filter(|place| !reached.contains_key(place));
            report.findings.extend(unreached.map(|place| Finding::Leaked(*place)));
        }
        let held_by_versions =
            reached.iter().filter(|(_, reached)| reached.which == Which::Content && reached.last != HEAD);
        let mut expected: BTreeMap<Place, &Reached> =
            held_by_versions.map(|(place, reached)| (*place, reached)).collect();
        report.dead = expected.len() as u64;
        if let (Some(dead), Some(versions), true) = (dead, tree.versions.borrow().as_ref(), all_seen) {
            for entry in dead {
                let known = expected.remove(&entry.place);
                if !known.is_some_and(|reached| is_right(entry, reached, versions)) {
                    report.findings.push(Finding::WrongDead(entry.place));
                }
            }
            report.findings.extend(expected.keys().map(|place| Finding::NotDead(*place)));
        }
        report.findings.sort_unstable();
        report.findings.dedup();
        report
    }
}

/// Whether a dead page's entry is what its birth, and the last version that reaches it, make it.
fn is_right(entry: &Dead, reached: &Reached, versions: &Versions) -> bool {
    let newest_at_death = group_of(entry.death, versions);
    // Groups that went count for the version before them.
    let group = group_of(entry.group.saturating_add(1), versions);
    entry.birth == reached.page.birth && group == group_of(entry.birth, versions) && newest_at_death == reached.last
}
