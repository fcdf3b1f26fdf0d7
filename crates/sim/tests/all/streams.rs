//! Sequential streams run at the rate of the disks: any parity layout, any request size, off every stripe border, first
//! fill and second overwrite alike; and so do sequential reads of what they wrote. Time is virtual, so these figures do
//! not depend on the machine. This is a sample: `make streams` runs every case.

use weft_engine::geometry::{Layout, Resiliency};
use weft_engine::units::{ByteCount, Nanos};
use weft_sim::mixed::{self, Mix, a_writer_beside_readers_that_never_rest};
use weft_sim::sample::sample as part;
use weft_sim::stream_reads::{self, Client, ReadCase};
use weft_sim::streams::{Case, HEADING, INTERLEAVES, LEAST, REQUESTS, layouts, run, sample};

/// Runs the cases, prints the table, and says what does not hold.
fn table(cases: impl Iterator<Item = Case>, least: Option<f64>) -> Vec<String> {
    println!("{HEADING}");
    let mut broken = Vec::new();
    for case in cases {
        let outcome = run(case);
        println!("{outcome}");
        broken.extend(outcome.complaints(least).into_iter().map(|what| format!("{outcome}: {what}")));
    }
    broken
}

fn assert_none(broken: Vec<String>) {
    assert!(broken.is_empty(), "\n{}", broken.join("\n"));
}

#[test]
fn single_parity_streams_run_at_the_rate_of_the_disks_with_any_columns_and_interleave() {
    let single = |case: &Case| case.layout.parity() == 1;
    assert_none(table(part(sample(ByteCount::mib(128)).filter(single)), Some(LEAST)));
}

#[test]
fn dual_parity_streams_run_at_the_rate_of_the_disks_with_any_columns_and_interleave() {
    let dual = |case: &Case| case.layout.parity() == 2;
    assert_none(table(part(sample(ByteCount::mib(128)).filter(dual)), Some(LEAST)));
}

#[test]
fn a_stream_of_many_commits_keeps_its_rate() {
    let layout = Layout::new(Resiliency::Parity { parity: 1 }, 4, ByteCount::kib(96)).unwrap();
    let case = Case { layout, request: ByteCount::mib(1), per_disk: ByteCount::gib(1), flush_stripes: None };
    let outcome = run(case);
    println!("{HEADING}\n{outcome}");
    assert!(outcome.first.batches >= 4 && outcome.second.batches >= 4, "{outcome:?}");
    assert_none(outcome.complaints(Some(LEAST)));
}

#[test]
fn flushes_eight_stripes_apart_leave_every_stripe_whole_and_read_nothing() {
    let mut cases = Vec::new();
    for nth in 0..layouts(INTERLEAVES[0]).len() {
        let interleave = INTERLEAVES[nth % INTERLEAVES.len()];
        let layout = layouts(interleave)[nth];
        let (request, per_disk) = (REQUESTS[nth / 3 % REQUESTS.len()], interleave * 512);
        cases.push(Case { layout, request, per_disk, flush_stripes: Some(8) });
    }
    assert_none(table(part(cases), None));
}

#[test]
fn sequential_reads_run_at_the_rate_of_the_disks_whatever_was_under_way_when_they_were_written() {
    let single = Resiliency::Parity { parity: 1 };
    let dual = Resiliency::Parity { parity: 2 };
    println!("{}", stream_reads::HEADING);
    let mut broken = Vec::new();
    for (resiliency, columns, depth) in [(single, 4, 8), (single, 5, 32), (dual, 6, 8)] {
        let layout = Layout::new(resiliency, columns, ByteCount::kib(256)).unwrap();
        let writer = Client { request: ByteCount::mib(1), depth };
        let outcome = stream_reads::run(ReadCase { layout, writer, per_disk: ByteCount::mib(128) });
        println!("{outcome}");
        broken.extend(outcome.complaints().into_iter().map(|what| format!("{outcome}: {what}")));
    }
    assert_none(broken);
}

#[test]
fn no_reader_is_passed_over_for_long() {
    stream_reads::no_reader_is_passed_over_for_long();
}

#[test]
fn the_disks_of_a_mirror_begin_their_turns_at_the_beginning() {
    stream_reads::the_disks_of_a_mirror_begin_their_turns_at_the_beginning();
}

#[test]
fn a_stream_waits_once_for_a_disk_that_stalls() {
    stream_reads::a_stream_waits_once_for_a_disk_that_stalls();
}

#[test]
fn a_disk_with_more_to_do_is_not_slow() {
    stream_reads::a_disk_with_more_to_do_is_not_slow();
}

/// Two writers and a reader on the same disks.
fn mix(resiliency: Resiliency, columns: u8, reader: Client, random: bool) {
    let layout = Layout::new(resiliency, columns, ByteCount::kib(256)).unwrap();
    let range = ByteCount::mib(384) * layout.data_columns() as u64;
    let mix =
        Mix { class: weft_sim::streams::CLASS, layout, writers: 2, reader, random, range, span: Nanos::millis(2000) };
    let outcome = mixed::run(&mix);
    println!("{}\n{outcome}", mixed::HEADING);
    assert_none(outcome.complaints().into_iter().map(|what| format!("{outcome}: {what}")).collect());
}

#[test]
fn a_stream_of_reads_beside_streams_of_writes_gets_its_share_of_the_disks_and_waits_for_no_full_cache() {
    mix(Resiliency::Parity { parity: 1 }, 3, Client { request: ByteCount::mib(1), depth: 4 }, false);
}

#[test]
fn reads_here_and_there_beside_streams_of_writes_get_their_share_of_the_disks_and_wait_for_no_full_cache() {
    mix(Resiliency::Mirror { copies: 2 }, 1, Client { request: ByteCount::kib(64), depth: 16 }, true);
}

#[test]
fn a_writer_waits_for_readers_that_never_rest_but_never_long() {
    assert_eq!(a_writer_beside_readers_that_never_rest(), None);
}
