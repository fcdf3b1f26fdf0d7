//! What became of a workload on something real.

use crate::load::{Latency, Outcome};
use crate::ops::table::Style;
use crate::ops::text::Text;
use serde::Serialize;

/// Jobs that were run.
#[derive(Serialize)]
pub struct Outcomes(pub Vec<Outcome>);

impl Text for Outcomes {
    fn text(&self, style: Style) -> String {
        self.0.iter().map(|outcome| one(outcome, style.verbose)).collect()
    }
}

fn one(outcome: &Outcome, verbose: bool) -> String {
    let Outcome { job, requests, bytes, nanos, latency, seconds } = outcome;
    let span = (*nanos).max(1) as f64 / 1e9;
    let (rate, often) = (*bytes as f64 / 1e6 / span, *requests as f64 / span);
    let mut text = format!("{job}: {rate:.1} MB/s, {often:.0} requests a second for {span:.1} s\n");
    let Latency { mean, p50, p99, p999, max, histogram } = latency;
    let [mean, p50, p99, p999, max] = [mean, p50, p99, p999, max].map(|nanos| time(*nanos));
    text += &format!("  latency      {mean} on average; half within {p50}, 99 % {p99}, 99.9 % {p999}, all {max}\n");
    let rates: Vec<String> = seconds.iter().map(|bytes| format!("{:.0}", *bytes as f64 / 1e6)).collect();
    text += &format!("  each second  {} MB\n", rates.join(" "));
    if verbose {
        for bucket in histogram {
            text += &format!("  {:>9} within {}\n", bucket.count, time(bucket.up_to));
        }
    }
    text
}

fn time(nanos: u64) -> String {
    match nanos {
        0..1_000_000 => format!("{:.0} us", nanos as f64 / 1e3),
        _ => format!("{:.1} ms", nanos as f64 / 1e6),
    }
}
