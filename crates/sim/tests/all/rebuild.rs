//! What a rebuild costs: it moves only what is written, it is faster the more disks there are, and it leaves clients
//! their share. And how much of unequal disks the layouts can use. Time is virtual, so these figures do not depend on
//! the machine.

use weft_engine::units::ByteCount;
use weft_sim::capacity;
use weft_sim::rebuild::{Case, Clients, HEADING, Outcome, by_disks, little, run};

/// Raw bytes on every disk.
const PER_DISK: ByteCount = ByteCount::mib(512);

fn show(case: Case) -> Outcome {
    let outcome = run(case);
    println!("{HEADING}\n{outcome}");
    outcome
}

#[test]
fn a_rebuild_reads_and_writes_only_what_was_written() {
    let data = ByteCount::mib(96);
    let Outcome { lost, read, written, .. } = show(little(data));
    assert_eq!(lost, ByteCount(data.0 / 4), "it all fits one segment: a quarter of it is on each of its five disks");
    // Metadata, labels and the log beside it: some MiB on disks of 1 TB.
    let beside = 8 << 20;
    assert!((lost.0 * 4..lost.0 * 4 + beside).contains(&read.0), "{read} read for {lost}");
    assert!((lost.0..lost.0 + beside).contains(&written.0), "{written} written for {lost}");
}

#[test]
fn the_more_disks_there_are_the_sooner_one_of_them_is_rebuilt() {
    let ratios: Vec<f64> = by_disks(PER_DISK, None)
        .map(|case| {
            let outcome = show(case);
            outcome.took.0 as f64 / outcome.classic.0 as f64
        })
        .collect();
    // With so little on the disk, what comes before and after the copying weighs more: `weft-sim rebuild` says 1.5.
    assert!(ratios[0] < 2.2, "{ratios:?}: six disks need more than twice as long as a classic spare");
    assert!(ratios[1] < ratios[0] * 0.7 && ratios[2] < ratios[1] * 0.85, "{ratios:?}");
}

#[test]
fn clients_keep_half_of_what_they_had_while_a_disk_is_rebuilt() {
    let clients = Clients { depth: 8, request: ByteCount::mib(1), share: 50 };
    let case = by_disks(PER_DISK, Some(clients)).find(|case| case.disks == 12).expect("there is one of twelve disks");
    let [_, degraded, during] = show(case).clients.expect("there were clients");
    assert!(during >= degraded * 0.5, "{during:.0} of {degraded:.0} bytes per second are left");
}

#[test]
fn a_stream_that_fills_several_segments_at_once_gets_all_of_unequal_disks() {
    capacity::a_stream_fills_unequal_disks();
}

#[test]
fn unequal_disks_are_used_to_within_two_percent_of_what_is_possible() {
    println!("{}", capacity::HEADING);
    for layout in capacity::layouts() {
        let outcome = capacity::run(layout);
        println!("{outcome}");
        assert!(outcome.allocated >= outcome.possible * 0.98, "{outcome}");
        assert!(outcome.allocated <= outcome.promised, "{outcome}: {} promised", outcome.promised);
        let raw: u64 = capacity::MIXED_GB.iter().sum();
        let share = layout.data_columns() as f64 / layout.slots() as f64;
        let all = raw as f64 * 1e9 * share;
        assert_eq!(outcome.possible < all * 0.999, !outcome.sentence.is_empty(), "{outcome}");
    }
}
