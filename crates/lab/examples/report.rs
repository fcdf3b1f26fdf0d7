//! Prints `docs/evidence/lab.md` anew (`make lab`); what is found on the way goes to stderr.

fn main() {
    let mut clock = std::time::Instant::now();
    let report = weft_lab::claims::report(|finding| {
        let took = clock.elapsed().as_secs_f64();
        clock = std::time::Instant::now();
        eprintln!("{took:5.1} s  {}: {} | {} | {}", finding.id, finding.spaces, finding.weft, finding.verdict);
    });
    print!("{report}");
}
