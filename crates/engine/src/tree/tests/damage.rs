//! Pages that are lost, stale, swapped, damaged or from another history: each is found whenever it is read, what is
//! lost with it is named, and everything else reads.

extern crate std;
use super::super::page::{SUM_AT, sum_of};
use super::super::{Ahead, At, Finding, PageStore, Place, Spot, TreeError, Which, Why, Wishes};
use super::crash::history;
use super::world::{State, World, same};
use super::*;
use std::format;

/// What may lie where a page should.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Fault {
    /// Nothing that can be read.
    Unreadable,
    /// Zeros: the page was never written, or discarded.
    Zeros,
    /// The page with one bit changed.
    Bit,
    /// What lay there before: the write was lost, or the disk rolled back.
    Stale,
    /// What lay there before, with a sum that is the page's by bad luck.
    StaleWithItsSum,
    /// Another page: the write went astray.
    Other,
    /// A page of this place and time that another machine made.
    Foreign,
}

/// Every fault; first the one that only the birth tells from the page.
const FAULTS: [Fault; 7] =
    [Fault::StaleWithItsSum, Fault::Unreadable, Fault::Zeros, Fault::Bit, Fault::Stale, Fault::Other, Fault::Foreign];

/// Puts a fault where the page at `spot` is; what it should be taken for, or nothing if that is not possible there.
fn inflict(disk: &Disk, spot: &Spot, fault: Fault, rng: &mut Rng) -> Option<Why> {
    let place = spot.page.place;
    let mut inner = disk.set();
    let mut image = inner.pages[&place].clone();
    let older = |past: &[Vec<u8>]| past.iter().rev().find(|old| **old != image).cloned();
    let why = match fault {
        Fault::Unreadable => {
            inner.unreadable.insert(place);
            Why::Unreadable
        }
        Fault::Zeros => {
            image.fill(0);
            Why::Damaged
        }
        Fault::Bit => {
            let bit = rng.below(TINY as u64 * 8) as usize;
            image[bit / 8] ^= 1 << (bit % 8);
            Why::Damaged
        }
        Fault::Stale => {
            image = older(&inner.past[&place])?;
            Why::Stale
        }
        Fault::StaleWithItsSum => {
            image = with_sum(older(&inner.past[&place])?, spot.page.sum)?;
            Why::Stale
        }
        Fault::Other => {
            let others: Vec<Place> = inner.pages.keys().copied().filter(|other| *other != place).collect();
            image = inner.pages[&others[rng.below(others.len() as u64) as usize]].clone();
            Why::Misplaced
        }
        Fault::Foreign => {
            // Another writer's number, and a sum that is right.
            image[40] ^= 0xff;
            let sum = sum_of(&image[..TINY]);
            image[SUM_AT..SUM_AT + 8].copy_from_slice(&sum.to_le_bytes());
            Why::Foreign
        }
    };
    inner.pages.insert(place, image);
    Some(why)
}

/// `image` with its last four bytes such that its sum is `sum`; none if they are in use.
fn with_sum(mut image: Vec<u8>, sum: u64) -> Option<Vec<u8>> {
    let len = u32::from_le_bytes(image[48..52].try_into().unwrap()) as usize;
    if len > TINY - 4 {
        return None;
    }
    image[SUM_AT..SUM_AT + 8].copy_from_slice(&sum.to_le_bytes());
    let mut sum_with = |tail: u32| {
        image[TINY - 4..TINY].copy_from_slice(&tail.to_le_bytes());
        sum_of(&image[..TINY]) as u32
    };
    // A sum is linear: each bit of the tail flips certain bits of it. Which of them give what is missing?
    let zero = sum_with(0);
    let mut rows: Vec<(u32, u32)> = Vec::new();
    for bit in 0..32 {
        let mut row = (sum_with(1 << bit) ^ zero, 1 << bit);
        for (flips, tail) in &rows {
            if row.0 ^ flips < row.0 {
                row = (row.0 ^ flips, row.1 ^ tail);
            }
        }
        rows.push(row);
    }
    let (mut missing, mut tail) = (sum as u32 ^ zero, 0);
    for (flips, part) in rows {
        if missing ^ flips < missing {
            (missing, tail) = (missing ^ flips, tail ^ part);
        }
    }
    (sum_with(tail) as u64 == sum).then_some(image)
}

/// Every page that the tree reaches: from the head (no number), or from a version; or the ledger.
fn spots(tree: &Tree<Disk>) -> Vec<(Option<u64>, Spot)> {
    let root = tree.root();
    let mut tops = std::vec![(None, Which::Content, root.content), (None, Which::Ledger, root.ledger)];
    for number in run(tree.versions()).unwrap() {
        tops.push((Some(number), Which::Content, run(tree.version(number)).unwrap()));
    }
    let mut found = Vec::new();
    for (from, which, top) in tops {
        let mut open: Vec<Spot> = top.map(|top| Spot::top(which, top)).into_iter().collect();
        while let Some(spot) = open.pop() {
            let page = run(tree.load(spot)).unwrap();
            found.push((from, spot));
            open.extend((0..if page.level == 0 { 0 } else { page.count }).map(|no| page.spot(which, no, spot.range)));
        }
    }
    found
}

/// A scene: a disk of which one page is not what it should be.
struct Scene<'a> {
    state: &'a State,
    spot: Spot,
    why: Why,
    /// The keys that are lost, for the head and for versions.
    lost: Vec<(Option<u64>, KeyRange)>,
}

impl Scene<'_> {
    fn lost_of(&self, from: Option<u64>) -> Option<KeyRange> {
        self.lost.iter().find(|(lost, _)| *lost == from).map(|(_, range)| *range)
    }

    /// Whether an error is that of this scene.
    fn names(&self, error: &TreeError, range: KeyRange) -> bool {
        let Scene { spot, why, .. } = self;
        matches!(error, TreeError::Lost(lost) if lost.range == range && lost.place == spot.page.place
            && lost.why == *why && lost.level == spot.level && lost.tree == spot.tree)
    }

    /// Reads every key one by one.
    fn keys(&self, tree: &Tree<Disk>, from: Option<u64>, model: &Model) -> Judged<()> {
        let at = from.map_or(At::Head, At::Version);
        for key in all_keys() {
            let answer = run(tree.get(at, key));
            let expected = model.get(&key);
            match (self.lost_of(from).filter(|range| range.contains(key)), answer) {
                (Some(range), Err(error)) if self.names(&error, range) => {}
                (None, Ok(value)) if value.as_deref() == expected.map(|value| &value[..]) => {}
                (_, Err(TreeError::Lost(lost))) if from.is_some() && lost.tree == Which::Ledger => {}
                (lost, answer) => return Err(format!("{at:?} {key:?}: {answer:?} for {expected:?}, lost: {lost:?}")),
            }
        }
        Ok(())
    }

    /// Scans the head around what is lost, and has pages brought ahead of that.
    fn scan(&self, tree: &Tree<Disk>) -> Judged<()> {
        let (lost, mut ahead) = (self.lost_of(None), Ahead::default());
        let (mut rest, mut entries) = (Some(KeyRange::ALL), Vec::new());
        while let Some(range) = rest {
            let next = match run(tree.scan_on(range, 50, &mut ahead)) {
                Ok(scanned) => {
                    entries.extend(scanned.entries);
                    scanned.next
                }
                Err(error) if lost.is_some_and(|lost| self.names(&error, lost)) => {
                    lost.and_then(|lost| lost.last.next())
                }
                Err(error) => return Err(format!("scan: {error}")),
            };
            rest = next.map(|next| KeyRange::new(next, KeyRange::ALL.last));
        }
        let mut model = self.state.head.clone();
        model.retain(|key, _| !lost.is_some_and(|lost| lost.contains(*key)));
        ensure!(same(&model, KeyRange::ALL, &entries), "a scan around what is lost gives the rest");
        Ok(())
    }

    /// Changes a lost key and another one: the first stays in memory, until the page is back.
    fn change(&self, disk: &Disk, healthy: &Disk) -> Judged<()> {
        let Some(lost) = self.lost_of(None) else { return Ok(()) };
        let world = World::of(disk.copy(), self.state.clone(), 9, 400);
        let of_both = |lies_in: bool| all_keys().find(|key| lost.contains(*key) == lies_in);
        for key in [of_both(true), of_both(false)].into_iter().flatten() {
            world.tree.put(key, b"new");
            world.head.borrow_mut().insert(key, b"new".to_vec());
        }
        let outcome = run(world.tree.checkpoint(Wishes::default())).map_err(|error| format!("{error}"))?;
        world.note_root(self.state);
        let stuck = of_both(true).is_some();
        ensure!(outcome.stuck.iter().map(|lost| lost.range).eq(stuck.then_some(lost)), "{:?}", outcome.stuck);
        ensure!(world.tree.changed() == usize::from(stuck), "{} changes in memory", world.tree.changed());
        for key in all_keys().filter(|key| !lost.contains(*key) || Some(*key) == of_both(true)) {
            let value = run(world.tree.get(At::Head, key)).map_err(|error| format!("{error}"))?;
            ensure!(value.as_deref() == world.head.borrow().get(&key).map(|value| &value[..]), "{key:?}: {value:?}");
        }
        let place = self.spot.page.place;
        world.disk.set().unreadable.clear();
        world.disk.set().pages.insert(place, healthy.get().pages[&place].clone());
        ensure!(run(world.checkpoint(Wishes::default()))?.is_some(), "the page is back");
        world.judge()
    }

    /// Deletes most of what is not lost, so that pages beside what is lost would have to be joined with it.
    fn shrink(&self, disk: &Disk, rng: &mut Rng) -> Judged<()> {
        let Some(lost) = self.lost_of(None) else { return Ok(()) };
        let tree = open(&disk.copy(), TINY, 9, 400);
        let mut model = self.state.head.clone();
        model.retain(|key, _| !lost.contains(*key));
        for key in all_keys().filter(|key| !lost.contains(*key)) {
            if rng.below(8) > 0 {
                tree.delete(key);
                model.remove(&key);
            }
        }
        let outcome = run(tree.checkpoint(Wishes::default())).map_err(|error| format!("{error}"))?;
        ensure!(outcome.stuck.is_empty() || outcome.stuck.len() == 1, "{:?}", outcome.stuck);
        for key in all_keys().filter(|key| !lost.contains(*key)) {
            let expected = model.get(&key).map(|value| &value[..]);
            match run(tree.get(At::Head, key)) {
                Ok(value) => ensure!(value.as_deref() == expected, "{key:?}: {value:?}"),
                // Keys of a neighbour that went lead to the lost page now. None of them has a value.
                Err(TreeError::Lost(wider)) => {
                    let named = wider.place == self.spot.page.place && wider.range.contains(key);
                    ensure!(named && expected.is_none(), "{key:?}: {wider:?}");
                }
                Err(error) => return Err(format!("{key:?}: {error}")),
            }
        }
        let report = run(tree.verify()).map_err(|error| format!("{error}"))?;
        let allowed = |finding: &Finding| matches!(finding, Finding::Thin(_)) || is_loss(finding);
        ensure!(report.findings.iter().all(allowed), "{:?}", report.findings);
        Ok(())
    }

    /// Clears what is lost: the rest is whole again.
    fn clear(&self, disk: &Disk) -> Judged<()> {
        let Some(lost) = self.lost_of(None) else { return Ok(()) };
        let tree = open(&disk.copy(), TINY, 9, 400);
        tree.clear(lost);
        let outcome = run(tree.checkpoint(Wishes::default())).map_err(|error| format!("{error}"))?;
        ensure!(outcome.stuck.is_empty(), "{:?}", outcome.stuck);
        ensure!(outcome.leaked.is_empty() == (self.spot.level == 0), "leaves have nothing below: {:?}", outcome.leaked);
        let scanned = run(tree.scan(At::Head, KeyRange::ALL, usize::MAX)).map_err(|error| format!("{error}"))?;
        let mut model = self.state.head.clone();
        model.retain(|key, _| !lost.contains(*key));
        ensure!(same(&model, KeyRange::ALL, &scanned.entries), "what was not lost is there");
        let shared = self.lost.len() > 1;
        // What was below a page that nobody can read is known to no dead list either.
        let below = |finding: &Finding| matches!(finding, Finding::Leaked(_) | Finding::NotDead(_));
        let leaks = |finding: &Finding| below(finding) && self.spot.level > 0;
        let report = run(tree.verify()).map_err(|error| format!("{error}"))?;
        let wrong = report.findings.iter().find(|finding| !leaks(finding) && (!shared || !is_loss(finding)));
        ensure!(wrong.is_none(), "{wrong:?}");
        Ok(())
    }

    /// The check of everything tells just this.
    fn verify(&self, tree: &Tree<Disk>) -> Judged<()> {
        let report = run(tree.verify()).map_err(|error| format!("{error}"))?;
        ensure!(report.findings == [Finding::Lost(self.spot.page.place)], "{:?}", report.findings);
        let lost = run(tree.lost()).map_err(|error| format!("{error}"))?;
        let ranges: Vec<KeyRange> = lost.iter().map(|lost| lost.range).collect();
        ensure!(ranges.contains(&self.spot.range), "{lost:?}");
        Ok(())
    }
}

fn is_loss(finding: &Finding) -> bool {
    matches!(finding, Finding::Lost(_))
}

/// Every page of a disk with every fault that is possible there is found where it is read; some are looked at from all
/// sides. How many there were.
pub fn damage(seed: u64, closer: u64) -> Judged<[u64; FAULTS.len()]> {
    let (healthy, state) = history(seed, 16)?;
    let mut rng = Rng(seed);
    let all = spots(&open(&healthy, TINY, 5, 400));
    let mut found = [0; FAULTS.len()];
    for fault in FAULTS {
        for (_, spot) in &all {
            let disk = healthy.copy_of(spot.page.place);
            let Some(why) = inflict(&disk, spot, fault, &mut rng) else { continue };
            let answer = run(open(&disk, TINY, 6, 400).load(*spot));
            let lost: Vec<_> = all
                .iter()
                .filter(|(_, other)| other.page == spot.page)
                .map(|(from, spot)| (*from, spot.range))
                .collect();
            let lost = if spot.tree == Which::Content { lost } else { Vec::new() };
            let scene = Scene { state: &state, spot: *spot, why, lost };
            match answer.err() {
                Some(error) if scene.names(&error, spot.range) => found[fault as usize] += 1,
                other => return Err(format!("{fault:?} at {spot:?}: {other:?}, not {why:?}")),
            }
            if rng.below(all.len() as u64 * FAULTS.len() as u64) < closer {
                let disk = healthy.copy();
                inflict(&disk, spot, fault, &mut rng);
                look_closer(&scene, &disk, &healthy, &mut rng)
                    .map_err(|wrong| format!("{fault:?} at {spot:?}: {wrong}"))?;
            }
        }
    }
    Ok(found)
}

fn look_closer(scene: &Scene, disk: &Disk, healthy: &Disk, rng: &mut Rng) -> Judged<()> {
    let tree = open(disk, TINY, 6, 400);
    scene.keys(&tree, None, &scene.state.head)?;
    for (number, model) in &scene.state.versions {
        scene.keys(&tree, Some(*number), model)?;
    }
    scene.scan(&tree)?;
    scene.scan(&open(disk, TINY, 6, 400))?;
    scene.scan(&open(disk, TINY, 6, 12))?;
    scene.verify(&open(disk, TINY, 7, 400))?;
    scene.change(disk, healthy)?;
    scene.shrink(disk, rng)?;
    scene.clear(disk)
}

#[test]
fn every_page_that_is_lost_stale_swapped_damaged_or_foreign_is_found_and_named_and_all_else_reads() {
    let mut found = [0; FAULTS.len()];
    for seed in 0..seeds(8) {
        let more = damage(seed, 30).unwrap_or_else(|why| panic!("seed {seed}: {why}"));
        found = std::array::from_fn(|fault| found[fault] + more[fault]);
    }
    assert!(found.iter().sum::<u64>() > 10_000 && found.iter().all(|faults| *faults > 1000), "{found:?}");
}

#[test]
fn a_version_is_made_and_dropped_whole_or_not_at_all_while_a_page_is_lost() {
    let (healthy, state) = history(1, 12).unwrap();
    let version = *state.versions.keys().next().unwrap();
    for (from, spot) in spots(&open(&healthy, TINY, 5, 400)) {
        if from.is_some() || spot.level > 0 {
            continue;
        }
        let disk = healthy.copy();
        inflict(&disk, &spot, Fault::Zeros, &mut Rng(1));
        let tree = open(&disk, TINY, 6, 400);
        let before = (tree.root(), disk.get().root, tree.store().allocated());
        all_keys().for_each(|key| tree.put(key, b"all of it changes"));
        let answer = run(tree.checkpoint(Wishes { keep: true, drop: [version].into() }));
        let lost = matches!(&answer, Err(TreeError::Lost(lost)) if lost.place == spot.page.place);
        assert!(lost || (spot.tree == Which::Ledger && answer.is_ok()), "{answer:?}");
        if lost {
            assert_eq!((tree.root(), disk.get().root, tree.store().allocated()), before);
            assert_eq!(
                run(tree.get(At::Head, Key::new(1, 0, 0, 0))).unwrap().as_deref(),
                Some(&b"all of it changes"[..])
            );
        }
    }
}
