//! What things cost, counted in pages.

extern crate std;
use super::super::{Ahead, At, Outcome, Wishes};
use super::*;

fn height(tree: &Tree<Disk>) -> u64 {
    tree.root().content.map_or(0, |top| u64::from(top.level) + 1)
}

fn checkpoint(tree: &Tree<Disk>, wishes: Wishes) -> Outcome {
    run(tree.checkpoint(wishes)).unwrap()
}

/// A tree of `entries` entries with consecutive numbers and values of `len` bytes.
fn filled(page_len: usize, budget_pages: usize, entries: u64, len: usize) -> (Disk, Tree<Disk>) {
    let disk = Disk::new(page_len, 1);
    let tree = open(&disk, page_len, 1, budget_pages);
    (0..entries).for_each(|n| tree.put(Key::new(1, 1, n, 0), &std::vec![n as u8; len]));
    checkpoint(&tree, Wishes::default());
    (disk, tree)
}

#[test]
fn opening_reads_nothing_and_a_lookup_at_most_one_page_of_each_level() {
    let (disk, tree) = filled(TINY, 100, 2000, 16);
    assert!(height(&tree) >= 4);
    let mut rng = Rng(1);
    for n in 2..50 {
        disk.set().reads = 0;
        let tree = open(&disk, TINY, n, 100);
        assert_eq!(disk.get().reads, 0);
        assert!(run(tree.get(At::Head, Key::new(1, 1, rng.below(2000), 0))).unwrap().is_some());
        assert!(disk.get().reads <= height(&tree), "{} pages", disk.get().reads);
        disk.set().reads = 0;
        run(tree.get(At::Head, Key::new(1, 1, rng.below(2000), 0))).unwrap();
        assert!(disk.get().reads < height(&tree), "the top is known");
    }
}

#[test]
fn whoever_goes_through_a_range_has_its_pages_brought_and_reads_few_of_them_alone() {
    let (disk, written) = filled(TINY, 400, 2000, 16);
    let height = height(&written);
    let tree = open(&disk, TINY, 2, 400);
    (disk.set().reads, disk.set().brought) = (0, 0);
    let (mut rest, mut ahead, mut entries) = (Some(KeyRange::of_kind(1)), Ahead::default(), Vec::new());
    while let Some(range) = rest {
        let scanned = run(tree.scan_on(range, 100, &mut ahead)).unwrap();
        entries.extend(scanned.entries);
        rest = scanned.next.map(|next| KeyRange::new(next, range.last));
    }
    assert!(entries.iter().map(|(key, _)| key.middle).eq(0..2000), "{} entries", entries.len());
    let (read, brought) = (disk.get().reads, disk.get().brought);
    assert!(brought > 150, "{brought} pages were brought");
    // One of eleven does not come, and each time anew there is the way down.
    assert!(read <= height + brought / 4, "{read} pages were read alone, {brought} brought");
}

#[test]
fn a_checkpoint_has_the_pages_brought_that_it_changes_and_reads_few_of_them_alone() {
    let (disk, written) = filled(TINY, 400, 2000, 16);
    let height = height(&written);
    for (budget, most) in [(400, 4), (60, 3)] {
        let tree = open(&disk.copy(), TINY, 2, budget);
        let disk = tree.store();
        (disk.set().reads, disk.set().brought) = (0, 0);
        (0..2000).step_by(20).for_each(|n| tree.put(Key::new(1, 1, n, 0), &[9; 16]));
        checkpoint(&tree, Wishes::default());
        let (read, brought) = (disk.get().reads, disk.get().brought);
        assert!(brought > 100, "{brought} pages were brought with memory for {budget}");
        assert!(read <= height + brought / most, "{read} pages were read alone, {brought} brought");
        assert!(run(tree.verify()).unwrap().findings.is_empty());
    }
}

#[test]
fn a_batch_writes_no_more_pages_than_its_changes_times_the_height_and_one_for_each_split() {
    let (disk, tree) = filled(TINY, 100, 2000, 16);
    let mut rng = Rng(7);
    for changes in [1, 1, 2, 5, 10, 40, 160] {
        let height = height(&tree);
        (0..changes).for_each(|_| tree.put(Key::new(1, 1, rng.below(2000), rng.below(3)), &rng.value(36)));
        let before = disk.get().writes;
        let outcome = checkpoint(&tree, Wishes::default());
        assert_eq!(outcome.written, disk.get().writes - before, "every page is written once");
        let most = changes * height + outcome.splits + 1;
        assert!(outcome.written <= most, "{} pages for {changes} changes, not {most}", outcome.written);
        assert!(outcome.joins == 0, "nothing was deleted");
    }
}

#[test]
fn a_change_that_changes_nothing_writes_nothing_but_a_root() {
    let (_, tree) = filled(TINY, 100, 500, 16);
    let content = tree.root().content;
    tree.put(Key::new(1, 1, 77, 0), &[77; 16]);
    tree.delete(Key::new(1, 1, 77, 1));
    tree.clear(KeyRange::of_kind(2));
    let outcome = checkpoint(&tree, Wishes::default());
    assert_eq!((outcome.written, outcome.freed, tree.root().content), (0, 0, content));
}

#[test]
fn changes_side_by_side_share_their_pages() {
    let (_, tree) = filled(TINY, 200, 2000, 16);
    (1000..1200).for_each(|n| tree.put(Key::new(1, 1, n, 0), &[1; 16]));
    let outcome = checkpoint(&tree, Wishes::default());
    let leaves = 200 / 8 + 2;
    assert!(outcome.written <= leaves + leaves / 2 + 2 * height(&tree), "{} pages", outcome.written);
}

#[test]
fn a_range_is_cleared_without_reading_its_leaves() {
    let (disk, tree) = filled(TINY, 30, 4000, 16);
    let pages = tree.store().get().pages.len() as u64;
    tree.forget_pages();
    disk.set().reads = 0;
    tree.clear(KeyRange::new(Key::new(1, 1, 100, 0), Key::new(1, 1, 3900, 0)));
    let outcome = checkpoint(&tree, Wishes::default());
    assert!(outcome.freed > pages * 9 / 10, "{} of {pages} pages are free", outcome.freed);
    assert!(disk.get().reads < pages / 5, "{} of {pages} pages were read", disk.get().reads);
    assert!(outcome.written < 4 * height(&tree), "{} pages", outcome.written);
    assert!(run(tree.verify()).unwrap().findings.is_empty());
}

#[test]
fn a_scan_over_a_range_that_was_just_cleared_reads_no_page_of_it() {
    let (disk, tree) = filled(TINY, 30, 4000, 16);
    tree.forget_pages();
    disk.set().reads = 0;
    tree.clear(KeyRange::new(Key::new(1, 1, 100, 0), Key::new(1, 1, 3900, 0)));
    let scanned = run(tree.scan(At::Head, KeyRange::ALL, usize::MAX)).unwrap();
    assert_eq!(scanned.entries.len(), 4000 - 3801);
    assert!(disk.get().reads < 60, "{} pages", disk.get().reads);
}

#[test]
fn keys_that_come_in_their_order_fill_their_pages() {
    let disk = Disk::new(4096, 1);
    let tree = open(&disk, 4096, 1, 1000);
    for n in 0..20_000 {
        tree.put(Key::new(1, 1, n, 0), &[0; 32]);
        if n % 700 == 0 {
            checkpoint(&tree, Wishes::default());
        }
    }
    checkpoint(&tree, Wishes::default());
    let report = run(tree.verify()).unwrap();
    assert!(report.findings.is_empty());
    let least = 20_000 / ((4096 - 112) / 62) + 1;
    assert!(report.pages <= least * 108 / 100, "{} pages, and {least} leaves would do", report.pages);
}

#[test]
fn a_tree_from_which_all_is_deleted_has_no_page_and_one_that_shrinks_loses_levels() {
    let (_, tree) = filled(TINY, 100, 2000, 16);
    let tall = height(&tree);
    let mut rng = Rng(3);
    let mut left: Vec<u64> = (0..2000).collect();
    while left.len() > 5 {
        let n = left.swap_remove(rng.below(left.len() as u64) as usize);
        tree.delete(Key::new(1, 1, n, 0));
        if left.len().is_multiple_of(37) {
            checkpoint(&tree, Wishes::default());
            assert!(run(tree.verify()).unwrap().findings.is_empty());
        }
    }
    checkpoint(&tree, Wishes::default());
    assert!(tall >= 4 && height(&tree) == 1, "{} levels of {tall}", height(&tree));
    left.drain(..).for_each(|n| tree.delete(Key::new(1, 1, n, 0)));
    checkpoint(&tree, Wishes::default());
    assert_eq!((tree.root().content, run(tree.verify()).unwrap().pages), (None, 0));
}

#[test]
fn whatever_stretch_is_left_of_a_tall_tree_is_a_sound_tree() {
    let (disk, tree) = filled(TINY, 400, 1500, 16);
    assert!(height(&tree) >= 4);
    let key = |n| Key::new(1, 1, n, 0);
    for first in (1..1500).step_by(61) {
        for len in [1, 5, 9, 17, 60, 300] {
            let last = (first + len).min(1499);
            let tree = open(&disk.copy(), TINY, 2, 400);
            tree.clear(KeyRange::new(Key::MIN, key(first - 1)));
            tree.clear(KeyRange::new(key(last), Key::MAX));
            checkpoint(&tree, Wishes::default());
            let report = run(tree.verify()).unwrap();
            assert_eq!((report.entries, report.findings.len()), (last - first, 0), "{first}..{last}");
            tree.put(Key::MIN, b"before all");
            tree.put(key(7), b"far before");
            checkpoint(&tree, Wishes::default());
            assert!(run(tree.verify()).unwrap().findings.is_empty(), "{first}..{last}");
            assert!(run(tree.get(At::Head, key(7))).unwrap().is_some());
        }
    }
}

#[test]
fn a_version_costs_a_key_and_goes_in_a_time_that_what_it_frees_decides() {
    let disk = Disk::new(TINY, 1);
    let tree = open(&disk, TINY, 1, 4000);
    (0..3000).for_each(|n| tree.put(Key::new(1, 1, n, 0), &[0; 16]));
    checkpoint(&tree, Wishes { keep: true, drop: Vec::new() });
    // Thirty versions, each of which changes a stretch of its own; one of them, one key only.
    let mut versions = Vec::new();
    for no in 0..30 {
        let keys = if no == 15 { 0..1 } else { no * 100..no * 100 + 100 };
        keys.for_each(|n| tree.put(Key::new(1, 1, n, 0), &[no as u8; 16]));
        versions.push(checkpoint(&tree, Wishes { keep: true, drop: Vec::new() }).number);
    }
    let empty = checkpoint(&tree, Wishes { keep: true, drop: Vec::new() });
    assert!(empty.written <= 5, "{} pages for a version in which nothing changed", empty.written);
    let dead = run(tree.verify()).unwrap().dead;
    assert!(dead > 400, "{dead} dead pages");
    tree.forget_pages();
    disk.set().reads = 0;
    let outcome = checkpoint(&tree, Wishes { keep: false, drop: [versions[15]].into() });
    assert!((1..40).contains(&outcome.freed), "{} places", outcome.freed);
    assert!(disk.get().reads < 60, "{} pages were read to free {} of {dead}", disk.get().reads, outcome.freed);
    assert!(run(tree.verify()).unwrap().findings.is_empty());
}

#[test]
fn memory_stays_within_its_budget_while_a_tree_of_many_times_that_is_made_and_read() {
    let disk = Disk::new(TINY, 1);
    let (budget, tree) = (40 * (4096 + 256), open(&disk, TINY, 1, 40));
    let mut rng = Rng(5);
    (0..5000).for_each(|n| tree.put(Key::new(1, 1, n, 0), &rng.value(36)));
    checkpoint(&tree, Wishes::default());
    assert!(disk.get().pages.len() > 15 * 40 && tree.cached() <= budget, "{} bytes", tree.cached());
    for _ in 0..500 {
        run(tree.get(At::Head, Key::new(1, 1, rng.below(5000), 0))).unwrap();
        assert!(tree.cached() <= budget);
    }
    // The levels above the leaves are few enough to stay: a lookup reads what is below them.
    disk.set().reads = 0;
    (0..100).for_each(|_| drop(run(tree.get(At::Head, Key::new(1, 1, rng.below(5000), 0))).unwrap()));
    assert!(disk.get().reads <= 230, "{} pages for 100 lookups in {} levels", disk.get().reads, height(&tree));
}

#[test]
fn the_height_of_a_real_tree_is_what_the_arithmetic_says() {
    let (_, tree) = filled(4096, 3000, 100_000, 32);
    // 64 entries of 62 bytes in a leaf, 79 children of 50 bytes in a page above.
    let leaves = 100_000u64.div_ceil(64);
    let above = leaves.div_ceil(79);
    assert!(above > 1 && above <= 79);
    assert_eq!(height(&tree), 3);
    assert_eq!(run(tree.verify()).unwrap().entries, 100_000);
}
