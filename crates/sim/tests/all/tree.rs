//! The tree of metadata on the pool's disks.

use weft_sim::tree::{crash, damage, storm};

fn seeds(usual: u64) -> u64 {
    std::env::var("WEFT_TREE_SEEDS").ok().and_then(|seeds| seeds.parse().ok()).unwrap_or(usual)
}

#[test]
fn storms_of_changes_disks_and_power_cuts_take_nothing_from_the_tree() {
    let mut whole = storm::Tally::default();
    for seed in 0..seeds(40) {
        let tally = storm::storm(seed).unwrap_or_else(|why| panic!("seed {seed}: {why}"));
        whole.checkpoints += tally.checkpoints;
        whole.cuts += tally.cuts;
        whole.damaged += tally.damaged;
        whole.gone += tally.gone;
        whole.pages = whole.pages.max(tally.pages);
    }
    println!("{whole:?}");
    assert!(whole.checkpoints > 400 && whole.damaged > 400 && whole.gone > 40 && whole.pages > 20, "{whole:?}");
}

#[test]
fn a_reader_that_is_slower_than_checkpoints_reads_what_was_there_when_it_began() {
    for seed in 0..seeds(20) {
        storm::slow_readers(seed).unwrap_or_else(|why| panic!("seed {seed}: {why}"));
    }
}

#[test]
fn a_crash_at_any_disk_operation_leaves_the_tree_of_one_checkpoint_and_its_free_places() {
    let opened = crash::everywhere(1).unwrap_or_else(|why| panic!("{why}"));
    println!("{opened} pools opened");
    assert!(opened > 800, "{opened} pools opened");
}

#[test]
fn a_disk_that_blinks_at_any_disk_operation_has_every_page_of_the_tree_afterwards() {
    let points = crash::blinks_everywhere(1).unwrap_or_else(|why| panic!("{why}"));
    println!("{points} points");
    assert!(points > 150, "{points} points");
}

#[test]
fn pages_that_are_damaged_on_all_copies_but_one_are_found_and_put_right() {
    let mut covered = 0;
    for seed in 0..seeds(30) {
        covered += damage::all_but_one(seed, 20).unwrap_or_else(|why| panic!("seed {seed}: {why}")).covered;
    }
    println!("{covered} pages");
    assert!(covered > 10_000, "{covered} pages");
}

#[test]
fn pages_that_are_damaged_on_all_copies_are_errors_that_name_their_keys_and_nothing_else() {
    let mut whole = damage::Tally::default();
    for seed in 0..seeds(10) {
        let tally = damage::all(seed, 15).unwrap_or_else(|why| panic!("seed {seed}: {why}"));
        whole.beyond += tally.beyond;
        whole.closed += tally.closed;
        whole.refused += tally.refused;
        whole.right += tally.right;
    }
    println!("{whole:?}");
    assert!(whole.beyond > 150 && whole.refused > 300 && whole.right > 10_000 && whole.closed < 50, "{whole:?}");
}
