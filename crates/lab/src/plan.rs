//! Layouts compared for given disks: which to choose, what it gives, and why.
//!
//! Invariants
//! 1. Room is what the engine counts ([`crate::capacity`]); every other figure says, in [`Choice::reasons`], what it
//!    follows from.
//! 2. The same question has the same answer, byte for byte.
//! 3. A layout is listed unless another one survives as many failures and is worse in nothing.

mod advice;
mod figures;
mod own;
mod rank;

use crate::capacity::Space;
use crate::disks::{Class, PlannedDisk, Raw};
use crate::jobs::Job;
use crate::ratios::Ratios;
use crate::spaces::array::Kind;
pub use own::JobPlan;
use serde::Serialize;
use std::collections::BTreeMap;
use weft_engine::error::Result;
use weft_engine::fail;
use weft_engine::geometry::{Layout, Resiliency};
use weft_engine::units::ByteCount;

/// The most disks that a plan of growth adds.
const GROWTH_STEPS: usize = 4;
/// How many layouts are recommended.
const BEST: usize = 3;

/// What the virtual disk is for.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Debug)]
#[serde(rename_all = "lowercase")]
pub enum Workload {
    /// Large files, written once and read often.
    Media,
    /// Images of virtual machines.
    Vm,
    /// Small pages at random places, and flushes.
    Database,
    /// Long streams, mostly written.
    Backup,
    /// A little of everything.
    Mixed,
    /// What the jobs of the question do.
    Own,
}

/// What is asked.
#[derive(Clone, PartialEq, Debug)]
pub struct Question {
    /// The disks of the pool.
    pub disks: Vec<PlannedDisk>,
    /// Disks that may be added later, one after the other; none: more of the commonest kind.
    pub grow: Vec<PlannedDisk>,
    /// The failures that have to be survived.
    pub failures: u8,
    /// What for.
    pub workload: Workload,
    /// What [`Workload::Own`] consists of; what each job would get is answered.
    pub jobs: Vec<Job>,
    /// Whether rates are simulated now for these very layouts and classes, and not taken from the table of 7200 rpm
    /// disks.
    pub exact: bool,
    /// Disks of a hundred that fail in a year, if not what is usual for the class.
    pub failures_percent: Option<f64>,
    /// Hours until a failed disk is replaced where the pool has no room to rebuild it.
    pub replace_hours: f64,
}

/// The answer.
#[derive(Clone, PartialEq, Serialize, Debug)]
pub struct Answer {
    /// How many disks there are.
    pub disks: usize,
    /// Their bytes together.
    pub raw: u64,
    /// What they are, in words.
    pub described: String,
    /// What for.
    pub workload: Workload,
    /// Whether rates are estimates (a table measured on simulated disks of the class) and not a simulation made now.
    pub estimate: bool,
    /// The best layouts, the best first; one of each resiliency.
    pub best: Vec<Choice>,
    /// Every layout that makes sense, the best first.
    pub layouts: Vec<LayoutPlan>,
    /// What to buy beside the disks, for the best layout: memory, journals, and what a cache would be for.
    pub advice: Vec<Advice>,
    /// What else a buyer should know.
    pub notes: Vec<String>,
}

/// Something to buy beside the disks, or not to.
#[derive(Clone, PartialEq, Serialize, Debug)]
pub struct Advice {
    /// What it is about: `memory`, `journal` or `cache`.
    pub about: &'static str,
    /// How many bytes of it, where there is a number.
    pub bytes: Option<u64>,
    /// In a sentence or two.
    pub words: String,
}

/// A layout on these disks.
#[derive(Clone, PartialEq, Serialize, Debug)]
pub struct LayoutPlan {
    /// What it is, in words.
    pub name: String,
    /// Columns, parity counted, copies not.
    pub columns: usize,
    /// Bytes of a strip.
    pub interleave: u64,
    /// How many disks may fail.
    pub failures: usize,
    /// User bytes that fit.
    pub usable: u64,
    /// `usable` of all bytes, 0 to 1.
    pub efficiency: f64,
    /// User bytes that still have full redundancy after the largest disk failed and was rebuilt without a new one; none
    /// where that takes a new disk.
    pub usable_after_failure: Option<u64>,
    /// `usable_after_failure` after one, two, ... of the largest disks failed, as many as may.
    pub usable_after_failures: Vec<Option<u64>>,
    /// Bytes that the layout cannot use because disks are unequal.
    pub stranded: u64,
    /// Where they are, and what would free them.
    pub stranded_why: Option<String>,
    /// Groups of as many disks as a stripe has slots, to which a stream goes at once.
    pub groups: usize,
    /// One long write, MB/s.
    pub write_mb_s: f64,
    /// One long read, MB/s.
    pub read_mb_s: f64,
    /// One long read with a disk missing, MB/s; none where nothing may be missing.
    pub degraded_read_mb_s: Option<f64>,
    /// One long write with a disk missing, MB/s.
    pub degraded_write_mb_s: Option<f64>,
    /// One long read while a lost disk is rebuilt onto the others, MB/s.
    pub rebuilding_read_mb_s: Option<f64>,
    /// One long write meanwhile, MB/s.
    pub rebuilding_write_mb_s: Option<f64>,
    /// Reads of 4 KiB at random places of all of it, per second, 8 under way for each disk.
    pub random_reads: f64,
    /// 99 of 100 of them take no longer, in milliseconds.
    pub random_read_p99_ms: f64,
    /// Lasting writes of 4 KiB at random places of all of it, per second.
    pub random_writes: f64,
    /// Lasting writes of 4 KiB, per second, at random places of no more than `packed_working_set` bytes, by one client
    /// that flushes after 32 of them; none where it was not measured.
    pub packed_writes: Option<f64>,
    /// 99 of 100 rounds of 32 such writes and their flush take no longer, in milliseconds.
    pub packed_write_p99_ms: Option<f64>,
    /// How many bytes may be written to at random at that rate, with the memory that weft takes by itself.
    pub packed_working_set: u64,
    /// `random_reads` with a disk missing.
    pub degraded_random_reads: Option<f64>,
    /// `random_reads` while a lost disk is rebuilt onto the others.
    pub rebuilding_random_reads: Option<f64>,
    /// `packed_writes` with a disk missing.
    pub degraded_packed_writes: Option<f64>,
    /// `packed_writes` while a lost disk is rebuilt onto the others.
    pub rebuilding_packed_writes: Option<f64>,
    /// Hours to rebuild the largest disk of a full pool, once that begins.
    pub rebuild_hours: f64,
    /// The probability of losing data in a year, 0 to 1.
    pub loss_per_year: f64,
    /// The options of `weft vdisk create` that make it.
    pub options: String,
    #[serde(skip)]
    layout: Layout,
}

/// A layout that is recommended.
#[derive(Clone, PartialEq, Serialize, Debug)]
pub struct Choice {
    /// The layout.
    #[serde(flatten)]
    pub layout: LayoutPlan,
    /// What it means, in sentences.
    pub words: Vec<String>,
    /// What each figure follows from: its name, and the reason.
    pub reasons: BTreeMap<&'static str, String>,
    /// What each job of the question would get.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub jobs: Vec<JobPlan>,
    /// With as many disks as there are now, and with one more each time.
    pub growth: Vec<Growth>,
}

/// A layout on more disks.
#[derive(Clone, Copy, PartialEq, Serialize, Debug)]
pub struct Growth {
    /// How many disks there are.
    pub disks: usize,
    /// User bytes that fit, with the same columns.
    pub usable: u64,
    /// User bytes of the same resiliency with the number of columns that holds most.
    pub usable_best: u64,
    /// One long write with those columns, MB/s, where the disks have the rate of the ones that are there.
    pub write_mb_s: f64,
}

/// What the figures of a plan follow from.
struct Facts<'a> {
    question: &'a Question,
    space: Space,
    /// Raw figures of the slowest class.
    raw: Raw,
    class: Class,
}

/// Compares the layouts.
pub fn plan(question: &Question) -> Result<Answer> {
    let Some((class, raw)) = slowest(&question.disks) else {
        return fail!(InvalidInput, "there are no disks to plan with");
    };
    if question.exact && matches!(class.kind(), Kind::Smr(_) | Kind::Waits(_)) {
        return fail!(NotPossible, "shingled disks are not simulated exactly; leave --exact out for an estimate");
    }
    if question.workload == Workload::Own && question.jobs.is_empty() {
        return fail!(InvalidInput, "the workload has no jobs");
    }
    let facts = Facts { question, space: Space::new(&question.disks)?, raw, class };
    let candidates = candidates(question, class);
    if candidates.is_empty() {
        let least = if question.failures == 1 { 2 } else { 3 };
        return fail!(
            NotPossible,
            "no layout survives {} failures on {} disks; it takes at least {least}, or --failures {}",
            question.failures,
            question.disks.len(),
            question.disks.len().saturating_sub(1).min(2)
        );
    }
    let mut layouts: Vec<LayoutPlan> = candidates.iter().filter_map(|layout| facts.of(*layout, None)).collect();
    if layouts.is_empty() {
        return fail!(NoSpace, "no layout has room on these disks; a disk needs some slabs of 64 MiB beyond its log");
    }
    rank::drop_dominated(&mut layouts);
    rank::sort(&mut layouts, &rank::Weights::of(question, raw));
    let mut chosen: Vec<LayoutPlan> = Vec::new();
    for layout in &layouts {
        if chosen.len() < BEST && chosen.iter().all(|other| other.layout.resiliency() != layout.layout.resiliency()) {
            chosen.push(layout.clone());
        }
    }
    if question.exact {
        for layout in chosen.iter_mut() {
            let exact = crate::ratios::simulate(layout.layout, class).expect("all others are simulated");
            *layout = facts.of(layout.layout, Some(exact)).expect("there was room for it");
        }
        layouts.retain(|layout| chosen.iter().any(|exact| exact.layout == layout.layout));
        layouts.iter_mut().for_each(|layout| {
            *layout = chosen.iter().find(|exact| exact.layout == layout.layout).expect("the others are gone").clone();
        });
    }
    let advice = facts.advice(&chosen[0]);
    let best = chosen.into_iter().map(|layout| facts.choice(layout)).collect();
    Ok(Answer {
        disks: question.disks.len(),
        raw: question.disks.iter().map(|disk| disk.size).sum(),
        described: described(&question.disks),
        workload: question.workload,
        estimate: !question.exact,
        best,
        layouts,
        advice,
        notes: facts.notes(),
    })
}

/// The class that the others wait for, and what it does.
fn slowest(disks: &[PlannedDisk]) -> Option<(Class, Raw)> {
    let classes: std::collections::BTreeSet<Class> = disks.iter().map(|disk| disk.class).collect();
    let rated = classes.into_iter().map(|class| (class, class.raw()));
    rated.min_by(|(_, a), (_, b)| a.sequential.total_cmp(&b.sequential).then(a.random_reads.total_cmp(&b.random_reads)))
}

/// Every layout that the disks allow and that survives what it has to.
fn candidates(question: &Question, class: Class) -> Vec<Layout> {
    let interleave = if class.rotational() { ByteCount::kib(256) } else { ByteCount::kib(64) };
    let all = crate::ratios::layouts()
        .into_iter()
        .filter(|layout| layout.slots() <= question.disks.len() && layout.failures() >= usize::from(question.failures));
    // One disk that survives nothing is simple with one column; that is asked for with --failures 0.
    all.map(|layout| {
        Layout::new(layout.resiliency(), layout.columns() as u8, interleave).expect("the interleave is a valid one")
    })
    .collect()
}

/// What the disks are, in words, the largest first.
fn described(disks: &[PlannedDisk]) -> String {
    let mut kinds: BTreeMap<(std::cmp::Reverse<u64>, Class), usize> = BTreeMap::new();
    disks.iter().for_each(|disk| *kinds.entry((std::cmp::Reverse(disk.size), disk.class)).or_default() += 1);
    let one = |((size, class), count): (&(std::cmp::Reverse<u64>, Class), &usize)| {
        format!("{count} x {} {class}", decimal(size.0))
    };
    kinds.iter().map(one).collect::<Vec<_>>().join(", ")
}

/// Bytes in the units that disks are sold in.
pub fn decimal(bytes: u64) -> String {
    let units = [(1e12, "TB"), (1e9, "GB"), (1e6, "MB")];
    let (unit, name) = units.into_iter().find(|(unit, _)| bytes as f64 >= *unit).unwrap_or((1.0, "B"));
    let number = format!("{:.2}", bytes as f64 / unit);
    format!("{} {name}", number.trim_end_matches('0').trim_end_matches('.'))
}

/// A layout as a buyer calls it.
fn name_of(layout: Layout) -> String {
    let columns = layout.columns();
    match layout.resiliency() {
        Resiliency::Simple => format!("simple, {columns} columns"),
        Resiliency::Mirror { copies } => format!("{copies}-way mirror, {columns} columns"),
        Resiliency::Parity { parity: 1 } => format!("single parity, {columns} columns"),
        Resiliency::Parity { .. } => format!("dual parity, {columns} columns"),
    }
    .replace(" 1 columns", " 1 column")
}

fn options_of(layout: Layout) -> String {
    let columns = layout.columns();
    match layout.resiliency() {
        Resiliency::Simple => format!("--resiliency simple --columns {columns}"),
        Resiliency::Mirror { copies } => format!("--resiliency mirror --copies {copies} --columns {columns}"),
        Resiliency::Parity { parity } => format!("--resiliency parity --failures {parity} --columns {columns}"),
    }
}

/// The measured shares for a layout; what is asked for explicitly wins over the table.
fn ratios_of(layout: Layout, class: Class, exact: Option<Ratios>) -> Ratios {
    exact.or_else(|| crate::ratios::known(layout, class)).expect("every candidate is in the table")
}

#[cfg(test)]
mod tests;
