//! The report: every claim in three columns, what was assumed, and rates over time.

use super::lab::{Case, Disk, GIB, MIB, OFF, mb, twice};
use super::{Course, Finding, Lab, NOT_REPEATED, Verdict, all};
use crate::arrays::ARRAYS;
use crate::spaces::cache::{Flushes, Style, Unit};
use crate::spaces::{Mechanisms, Space, Spec};
use crate::volume::Volume;
use crate::workload::{Ask, at_random, drive, in_order};
use std::fmt::Write;
use std::rc::Rc;
use weft_engine::units::Nanos;

/// The report.
pub struct Report {
    /// In Markdown: what `docs/evidence/lab.md` is.
    pub text: String,
    /// The pictures that it shows, by the names of their files beside it.
    pub plots: Vec<(String, String)>,
}

/// Makes it. `progress` is told what was found, one after the other.
pub fn report(mut progress: impl FnMut(&Finding)) -> Report {
    let lab = Lab::default();
    let findings: Vec<Finding> = all()
        .into_iter()
        .map(|claim| {
            let finding = claim.run(&lab);
            progress(&finding);
            finding
        })
        .collect();
    let mut text = String::from(HEAD);
    text += &summary(&findings);
    text += TABLE;
    findings.iter().for_each(|finding| text += &row(finding));
    text += "\n## What is not repeated\n\n| | why |\n|---|---|\n";
    NOT_REPEATED.iter().for_each(|(id, why)| text += &format!("| {id} | {why} |\n"));
    text += "\n## What was assumed, and what is not known\n\n";
    let noted = findings.iter().filter(|finding| !finding.note.is_empty());
    noted.for_each(|finding| text += &wrapped(&format!("- **{}** {}", finding.id, finding.note)));
    text += READINGS;
    text += &readings();
    text += REFERENCES;
    text += &references();
    text += COURSES;
    let moving = || findings.iter().filter(|finding| !finding.courses.is_empty());
    moving().for_each(|finding| text += &drawn(finding));
    text += PARAMETERS;
    Report { text, plots: moving().map(|finding| (plot_of(finding), plot(finding))).collect() }
}

/// Where the picture of a finding lies, beside the document.
fn plot_of(finding: &Finding) -> String {
    format!("lab/{}.svg", finding.id)
}

fn plot(finding: &Finding) -> String {
    crate::plot::svg(&format!("{}: {}", finding.id, finding.about), finding.says, &finding.courses)
}

/// A row of the table of claims.
pub fn row(finding: &Finding) -> String {
    let Finding { id, about, says, spaces, weft, verdict, .. } = finding;
    format!("| {id} | {about} | {says} | {spaces} | {weft} | {verdict} |\n")
}

fn summary(findings: &[Finding]) -> String {
    let count = |holds: &dyn Fn(&Finding) -> bool| findings.iter().filter(|finding| holds(finding)).count();
    let exact = count(&|finding| finding.verdict == Verdict::Exact(true));
    let near = count(&|finding| matches!(finding.verdict, Verdict::Factor(_)) && finding.verdict.holds());
    let kind = count(&|finding| finding.verdict == Verdict::Order(true));
    let not = count(&|finding| !finding.verdict.holds());
    format!(
        "{} of 68 claims in three columns: {exact} exact, {near} within a factor of 1.5, {kind} in kind (the source\n\
         gives an order or a behaviour), {not} not reproduced. {} are not repeated.\n\n",
        findings.len(),
        NOT_REPEATED.len(),
    )
}

/// What the collapse depends on that nobody knows.
fn readings() -> String {
    let mut text = String::new();
    let units = [
        ("one stripe at once", Unit::Stripes(1)),
        ("what a slot names", Unit::Slot),
        ("244 stripes at once", Unit::Stripes(244)),
    ];
    let cases = [Case::parity(Disk::Hdd(150), 4, 4, 1, 256), Case::parity(Disk::Hdd(150), 5, 5, 1, 16)];
    for (name, unit) in units {
        for (when, flushes) in [("recorded each time", Flushes::Each), ("recorded at the end", Flushes::Last)] {
            let rates = cases.map(|case| {
                let style = Style::Wraps(unit, flushes);
                let volume: Rc<dyn Volume> = Rc::new(Space::new(&Spec { style, ..case.spec() }));
                // Aligned with the stripes of the second case only, which was filled before.
                twice(&volume, 0, 6 * GIB)[1].rate_after(GIB)
            });
            let chosen = if (unit, flushes) == (Unit::Slot, Flushes::Each) { " (the model)" } else { "" };
            writeln!(text, "| {name}, {when}{chosen} | {} | {} |", mb(rates[0]), mb(rates[1])).expect("a string grows");
        }
    }
    text += "\nAnd what each mechanism is for: the case of Q14 (5 columns, 16 KiB, aligned, MB/s new, then used) with\n\
             one of them taken out.\n\n| | new | used | read from the disks, used |\n|---|---|---|---|\n";
    let out = [
        ("all as documented", Mechanisms::ALL),
        ("no bypass", Mechanisms { bypass: false, ..Mechanisms::ALL }),
        ("stripes may be rewritten in place", Mechanisms { consistent: false, ..Mechanisms::ALL }),
    ];
    for (name, mechanisms) in out {
        let spec = Spec { mechanisms, ..cases[1].spec() };
        let [new, used] = &twice(&(Rc::new(Space::new(&spec)) as Rc<dyn Volume>), 0, 6 * GIB)[..] else { continue };
        let read = format!("{:.2} for each byte", used.disk_read as f64 / used.bytes as f64);
        writeln!(text, "| {name} | {} | {} | {read} |", mb(new.rate()), mb(used.rate_after(GIB)))
            .expect("a string grows");
    }
    text
}

/// One load on every kind of array.
fn references() -> String {
    let mut text = String::new();
    for (name, make) in ARRAYS {
        let volume = make();
        let rates = [0, 4 * GIB + OFF].map(|at| mb(drive(&volume, in_order(at, 2 * GIB, MIB), 1, None, true).rate()));
        let again = mb(drive(&volume, in_order(0, 2 * GIB, MIB), 1, None, true).rate());
        let small = at_random(1, 2 * GIB, 4096, Ask::WriteThrough);
        let small = drive(&volume, small, 32, Some(Nanos::secs(20)), false).per_second();
        writeln!(text, "| {name} | {} | {} | {again} | {small:.0} |", rates[0], rates[1]).expect("a string grows");
    }
    text
}

/// An item of a list, in lines of at most 120 characters.
fn wrapped(item: &str) -> String {
    let mut lines = vec![String::new()];
    for word in item.split_whitespace() {
        let line = lines.last_mut().expect("there is one");
        if line.len() + word.len() + 1 > 120 {
            lines.push(format!("  {word}"));
        } else {
            *line += if line.is_empty() { "" } else { " " };
            *line += word;
        }
    }
    lines.join("\n") + "\n"
}

/// Rates over time, as bars.
fn drawn(finding: &Finding) -> String {
    const BARS: [char; 9] = [' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    let Finding { id, about, says, .. } = finding;
    let mut text = format!("### {id}: {about}\n\nThe source: {says}.\n\n![{id}]({})\n\n```\n", plot_of(finding));
    for Course { of, rates, seconds } in &finding.courses {
        let rates: Vec<f64> =
            rates.chunks(rates.len() / 60).map(|part| part.iter().sum::<f64>() / part.len() as f64).collect();
        let course = Course { of: of.clone(), rates, seconds: *seconds };
        let (rates, top) = (&course.rates, course.top(3.0));
        let bar = |rate: &f64| BARS[if *rate <= 0.0 { 0 } else { (1 + (rate / top * 7.999) as usize).min(8) }];
        let bars: String = rates.iter().map(bar).collect();
        writeln!(text, "{of} ({seconds:.0} s; full height: {} and more)\n|{bars}|", mb(top)).expect("a string grows");
    }
    text + "```\n\n"
}

const HEAD: &str = "# Claims about Storage Spaces, repeated

What people published about Storage Spaces, what a model of it gives, and what weft gives: the same workloads on the
same simulated disks, in virtual time. `weft lab run Q5 Q14` repeats some, `make lab` writes this document; the same
program writes the same bytes on every machine, and a test holds some of the rows to it.

The model has the mechanisms that are documented or were measured from outside (cache, log, bypass, consistent stripes,
slabs), and no figure of a claim: knees and collapses follow, or do not, and then this says by how much.

";

const TABLE: &str = "## The claims

MB are 10^6 bytes. `holds` compares the model with the source; x1.2 is the worst factor between a figure of one and of
the other.

| | about | the source says | model of Storage Spaces | weft | holds |
|---|---|---|---|---|---|
";

const READINGS: &str = "
## What decides the collapse

How many stripes Storage Spaces destages at once, and how often it flushes, is not known. The model takes what one slot
of the log names, flushes, and then records that the slot is free, each time. The other readings, on disks of 150
MB/s, all places used before:

| | 4 columns, 256 KiB | 5 columns, 16 KiB, aligned |
|---|---|---|
";

const REFERENCES: &str = "
## Beside arrays that write in place

Disks of 150 MB/s, strips of 64 KiB (mirror: 256 KiB); copies of 2 GiB by requests of 1 MiB, one at a time; then random
durable writes of 4 KiB to what was copied, 32 at once.

| | copy, aligned | shifted by 20 KiB | over the first copy | durable writes per second |
|---|---|---|---|---|
";

const COURSES: &str = "
## Rates over time

A picture of each, and sixty equal parts as bars. A gap: nothing moved. At first disks take more than their rate, into
their own caches; the gap at the end of short runs is the flush, in which they write that.

";

const PARAMETERS: &str = "## Where the parameters come from

Sections are those of the collection of facts and claims (STORAGE_SPACES.md) that this stands on.

| parameter | value | from |
|---|---|---|
| slab | 256 MiB | 1.8 |
| first byte of data on a disk | 528 MiB | 1.2 |
| rotation of parity | (C - r - r s) mod C | 1.5 |
| cache of parity without SSDs | 1 GiB, on the same disks, as many copies as parity columns and one | 1.10, 1.21 |
| columns of the cache's container | as many as the disks give, interleave 256 KiB | 1.6, 1.7; inferred |
| slots of the log, entries of one | 1024, 244 | 1.10 |
| chunk of the cache | one stripe of data | 1.10 |
| destaged when | no slot or no chunk is free: everything | 1.10; the chunk inferred |
| destaged at once | what one slot names, then a flush, then a record in a checkpoint | not known; see above |
| cache on SSDs (2012 R2) | destaged from half full to a quarter; requests up to 256 KiB | 1.10 |
| destaged at once from it | one chunk, then a flush and a record | not known; from Q61 and Q62 |
| durable writes | write-through commands | 1.14 |
| bypass | whole stripes never written, by request | 1.10 |
| update of the pool's database | 4 KiB on up to five disks for each new row | 1.8, 1.12 |
| dirty-region log of mirrors | one record before the first write to a row | 1.13 |
| hard disks, where the source is silent | 7200 rpm, 150 MB/s, seeks of 8 ms | section 3 |
| SSDs, where the source is silent | 500/450 MB/s, 40k/30k per second | section 3 |
| a flush of an SSD | 1 ms on SATA; on SAS a command (Q57, Q62) | the class; not in the collection |
| a copy | one request of 1 MiB at a time | usual; not in the collection |
";
