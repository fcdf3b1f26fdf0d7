//! Sequential streams run at the rate of the disks: any parity layout, any request size, off every stripe border, first fill and second
//! overwrite alike. Time is virtual, so these figures do not depend on the machine.

use weft_engine::stripe::geometry::{Layout, Resiliency};
use weft_engine::units::ByteCount;
use weft_sim::streams::{Case, HEADING, INTERLEAVES, Outcome, REQUESTS, cases, layouts, run};

/// Of data columns x one disk's rate.
const LEAST: f64 = 0.90;

/// Runs the cases, prints the table, and says what does not hold.
fn table(cases: impl Iterator<Item = Case>, least: Option<f64>) -> Vec<String> {
    println!("{HEADING}");
    let mut broken = Vec::new();
    for case in cases {
        let outcome = run(case);
        println!("{outcome}");
        broken.extend(complaints(&outcome, least).into_iter().map(|what| format!("{outcome}: {what}")));
    }
    broken
}

fn complaints(outcome: &Outcome, least: Option<f64>) -> Vec<String> {
    let mut found = Vec::new();
    for (pass, name) in [(outcome.first, "first fill"), (outcome.second, "second overwrite")] {
        let mut hold = |holds: bool, what: String| {
            if !holds {
                found.push(format!("{name}: {what}"));
            }
        };
        hold(least.is_none_or(|least| pass.ratio >= least), format!("{:.3} of the disks' rate", pass.ratio));
        hold(pass.whole >= 0.99, format!("{:.2} % left in whole stripes", pass.whole * 100.0));
        hold(pass.merged == 0, format!("{} bytes left merged with old ones", pass.merged));
        hold(pass.read_for_write == 0, format!("{} bytes were read because of writes", pass.read_for_write));
        hold(pass.disk_read == 0, format!("{} bytes were read from the disks", pass.disk_read));
    }
    found
}

fn assert_none(broken: Vec<String>) {
    assert!(broken.is_empty(), "\n{}", broken.join("\n"));
}

#[test]
fn single_parity_streams_run_at_the_rate_of_the_disks_with_any_columns_and_interleave() {
    let single = |case: &Case| case.layout.parity() == 1;
    assert_none(table(cases(false, ByteCount::mib(128)).into_iter().filter(single), Some(LEAST)));
}

#[test]
fn dual_parity_streams_run_at_the_rate_of_the_disks_with_any_columns_and_interleave() {
    let dual = |case: &Case| case.layout.parity() == 2;
    assert_none(table(cases(false, ByteCount::mib(128)).into_iter().filter(dual), Some(LEAST)));
}

#[test]
fn a_stream_of_many_commits_keeps_its_rate() {
    let layout = Layout::new(Resiliency::Parity { parity: 1 }, 4, ByteCount::kib(96)).unwrap();
    let case = Case { layout, request: ByteCount::mib(1), per_disk: ByteCount::gib(1), flush_stripes: None };
    let outcome = run(case);
    println!("{HEADING}\n{outcome}");
    assert!(outcome.first.batches >= 4 && outcome.second.batches >= 4, "{outcome:?}");
    assert_none(complaints(&outcome, Some(LEAST)));
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
    assert_none(table(cases.into_iter(), None));
}
