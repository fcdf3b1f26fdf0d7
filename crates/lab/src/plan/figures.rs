//! The figures of one layout, and what each follows from.

use super::advice::packed_working_set;
use super::{Choice, Facts, GROWTH_STEPS, Growth, LayoutPlan, decimal, name_of, options_of, ratios_of};
use crate::capacity::Space;
use crate::disks::{Class, PlannedDisk};
use crate::ratios::{self, Ratios};
use crate::survival::Risk;
use std::collections::{BTreeMap, BTreeSet};
use weft_engine::geometry::Layout;
use weft_engine::stripe::fronts::fronts_of;

/// A rebuild takes so many times what the bytes take at the disks' own rate: 1.4 to 1.5 on 6 and 12 disks, more on 24
/// (`weft-sim rebuild`, `docs/guide/repair.md`).
const REBUILD: f64 = 1.5;
/// Minutes until a missing disk is rebuilt without being asked.
const REPAIR_AFTER_HOURS: f64 = 5.0 / 60.0;
/// What several groups of disks lose of what each does by itself, for each group after the first: 0.02 to 0.05 of
/// writes, 0.05 to 0.06 of reads were measured on 2, 3, 4 and 8 groups (`examples/wide.rs`, `docs/evidence/speed.md`).
const LOST: f64 = 0.04;
/// What each of several groups adds to reads of mirrors, which have all copies at work already: 0.78 to 1.04 where they
/// have two columns, 0.70 and 0.72 where they have one.
const READS_OF_MIRRORS: f64 = 0.65;

/// How many times as fast as on one group of disks a stream is on several.
pub(super) fn beside(groups: usize) -> f64 {
    groups as f64 * (1.0 - LOST * (groups - 1) as f64)
}

/// How many times as fast as on one group of disks a stream is read from several.
fn reads_beside(groups: usize, layout: Layout) -> f64 {
    if groups > 1 && layout.copies() > 1 { groups as f64 * READS_OF_MIRRORS } else { beside(groups) }
}

impl Facts<'_> {
    /// The plan of a layout; none where it has no room.
    pub(super) fn of(&self, layout: Layout, exact: Option<Ratios>) -> Option<LayoutPlan> {
        let usable = self.space.room(layout).0;
        if usable == 0 {
            return None;
        }
        let disks = &self.question.disks;
        let raw: u64 = disks.iter().map(|disk| disk.size).sum();
        let ratios = ratios_of(layout, self.class, exact);
        let (data, slots) = (layout.data_columns() as f64, disks.len() as f64);
        let one = self.raw.sequential * data / 1e6;
        let writes = |away: usize| one * beside(self.groups(layout, away));
        let reads = |away: usize| one * reads_beside(self.groups(layout, away), layout);
        let (stranded, why) = self.space.stranded(layout);
        let rebuild_hours = self.rebuild_hours(layout, usable);
        let redundant = |rate: f64| (layout.failures() > 0).then_some(rate);
        let packed = |figure: f64| (ratios.packed_write > 0.0).then_some(figure);
        let after = self.usable_after_failures(layout);
        let random_reads = self.raw.random_reads * slots * ratios.random_read;
        let packed_writes = packed(self.raw.random_reads * ratios.packed_write);
        let left = ratios::known_random(layout).filter(|_| layout.failures() > 0);
        let mut plan = LayoutPlan {
            name: name_of(layout),
            columns: layout.columns(),
            interleave: layout.interleave().0,
            failures: layout.failures(),
            usable,
            efficiency: usable as f64 / raw as f64,
            usable_after_failure: after.first().copied().flatten(),
            usable_after_failures: after,
            stranded: stranded.0,
            stranded_why: (stranded.0 > 0).then_some(why),
            groups: self.groups(layout, 0),
            write_mb_s: writes(0) * ratios.write,
            read_mb_s: reads(0) * ratios.read,
            degraded_read_mb_s: redundant(reads(1) * ratios.degraded),
            degraded_write_mb_s: redundant(writes(1) * ratios.degraded_write),
            // They were measured with one disk more than the others.
            rebuilding_read_mb_s: redundant(reads(1) * ratios.rebuilding.min(ratios.read)),
            rebuilding_write_mb_s: redundant(writes(1) * ratios.rebuilding_write.min(ratios.write)),
            random_reads,
            degraded_random_reads: left.map(|left| random_reads * left.degraded_read),
            rebuilding_random_reads: left.map(|left| random_reads * left.rebuilding_read.min(1.0)),
            random_read_p99_ms: ratios.read_p99,
            random_writes: self.random_writes(layout),
            packed_writes,
            degraded_packed_writes: left.zip(packed_writes).map(|(left, rate)| rate * left.degraded_write),
            rebuilding_packed_writes: left.zip(packed_writes).map(|(left, rate)| rate * left.rebuilding_write.min(1.0)),
            packed_write_p99_ms: packed(ratios.write_p99),
            packed_working_set: 0,
            rebuild_hours,
            loss_per_year: self.risk(layout, rebuild_hours).per_year(),
            options: options_of(layout),
            layout,
        };
        plan.packed_working_set = packed_working_set(&plan);
        Some(plan)
    }

    pub(super) fn choice(&self, layout: LayoutPlan) -> Choice {
        let (words, reasons) = (self.words(&layout), self.reasons(&layout));
        Choice { words, reasons, jobs: self.jobs(&layout), growth: self.growth(&layout), layout }
    }

    /// Room on all disks but the largest, but the two largest, and so on, as many as may fail one after the other.
    fn usable_after_failures(&self, layout: Layout) -> Vec<Option<u64>> {
        let mut left = self.question.disks.clone();
        left.sort_by_key(|disk| disk.size);
        let room = |left: &[PlannedDisk]| match left.len() < layout.slots() {
            true => None,
            false => Some(Space::new(left).ok()?.room(layout).0).filter(|room| *room > 0),
        };
        let after = |_| {
            left.pop();
            room(&left)
        };
        (0..layout.failures()).map(after).collect()
    }

    /// Hours to bring back what the largest disk holds in a full pool: where there are more disks than slots, all
    /// others read and write; else a new disk takes all of it.
    fn rebuild_hours(&self, layout: Layout, usable: u64) -> f64 {
        let lost = self.lost(layout, usable) as f64;
        let others = (self.question.disks.len() - 1) as f64;
        let per_disk = if self.question.disks.len() > layout.slots() {
            let reads = if layout.copies() > 1 { 1.0 } else { layout.data_columns() as f64 };
            (lost * (reads + 1.0) / others).max(lost / others)
        } else {
            lost
        };
        per_disk * REBUILD / self.raw.sequential / 3600.0
    }

    /// Bytes of a full pool on its largest disk: no disk holds more than one slab of each segment.
    fn lost(&self, layout: Layout, usable: u64) -> u64 {
        self.largest().size.min(usable / layout.data_columns() as u64)
    }

    /// Small writes that last longer than memory and log can gather, at places so far apart that no two share a stripe:
    /// each becomes a rewrite of its stripe, for which every disk of it reads a strip at a random place and writes one
    /// in sequence.
    fn random_writes(&self, layout: Layout) -> f64 {
        let strip = layout.interleave().0 as f64 / self.raw.sequential;
        let side_by_side = (self.question.disks.len() / layout.slots()) as f64;
        side_by_side / (1.0 / self.raw.random_reads + 2.0 * strip)
    }

    /// How many groups of as many disks as a stripe has slots a stream goes to at once while the `away` largest disks
    /// are missing. Where one disk is much larger than the others, nearly all segments need it. Solid-state disks are
    /// not counted on: several groups of them are faster than a processor computes parity and checksums.
    fn groups(&self, layout: Layout, away: usize) -> usize {
        if !self.class.rotational() {
            return 1;
        }
        let mut sizes: Vec<u64> = self.question.disks.iter().map(|disk| disk.size).collect();
        sizes.sort_unstable_by(|a, b| b.cmp(a));
        let left = sizes.get(away..).unwrap_or_default();
        let alike = left.iter().sum::<u64>() / left.first().copied().unwrap_or(1).max(1);
        fronts_of(alike as usize, layout.slots())
    }

    fn risk(&self, layout: Layout, rebuild_hours: f64) -> Risk {
        let at_once = self.question.disks.len() > layout.slots();
        let waits = if at_once { REPAIR_AFTER_HOURS } else { self.question.replace_hours };
        let usual = self.question.disks.iter().map(|disk| disk.class.failures_percent()).fold(0.0, f64::max);
        Risk {
            disks: self.question.disks.len(),
            failures: layout.failures(),
            percent: self.question.failures_percent.unwrap_or(usual),
            repair_hours: waits + rebuild_hours,
        }
    }

    fn largest(&self) -> PlannedDisk {
        *self.question.disks.iter().max_by_key(|disk| disk.size).expect("there are disks")
    }

    /// What a buyer understands.
    fn words(&self, plan: &LayoutPlan) -> Vec<String> {
        let survives = match plan.failures {
            0 => "no disk may fail: it is for what exists elsewhere, too".to_string(),
            1 => "any one disk may fail without a loss".to_string(),
            more => format!("any {more} disks may fail without a loss"),
        };
        let mut words =
            vec![format!("{} of your {} hold data; {survives}.", decimal(plan.usable), decimal(self.raw_bytes()))];
        words.push(format!("Copying large files: {:.0} MB/s in, {:.0} MB/s out.", plan.write_mb_s, plan.read_mb_s));
        words.extend(with_one_less(plan));
        let packed = plan.packed_writes.map_or(String::new(), |rate| {
            format!(", {rate:.0} where they go to {} or less", decimal(plan.packed_working_set))
        });
        words.push(format!(
            "Small requests at random places of all of it: {:.0} reads a second (99 of 100 within {:.1} ms) or {:.0} writes{packed}.",
            plan.random_reads, plan.random_read_p99_ms, plan.random_writes
        ));
        if plan.failures > 0 {
            let after = match plan.usable_after_failure {
                Some(room) if room < plan.usable => {
                    format!("into the room that is left, while at most {} are used", decimal(room))
                }
                Some(_) => "into the room that is left".to_string(),
                None => "onto a new disk, or one that is kept as a hot spare".to_string(),
            };
            words.push(format!("A full disk that failed is rebuilt in about {}, {after}.", hours(plan.rebuild_hours)));
        }
        if let Some(why) = &plan.stranded_why {
            words.push(format!("{}.", capitalised(why)));
        }
        words
    }

    fn reasons(&self, plan: &LayoutPlan) -> BTreeMap<&'static str, String> {
        let layout = plan.layout;
        let (data, disks) = (layout.data_columns(), self.question.disks.len());
        let rate = self.raw.sequential / 1e6;
        let source = if self.question.exact {
            "simulated now on this layout and class".to_string()
        } else {
            format!("measured on the engine with simulated {} disks", ratios::like(self.class))
        };
        let sequential = |what: f64, away: usize| {
            let groups = self.groups(layout, away);
            let beside = if groups > 1 { format!("{groups} groups of disks x ") } else { String::new() };
            format!(
                "{beside}{data} data columns x {rate:.0} MB/s (mean over a whole {} disk) x {:.2} ({source})",
                self.class,
                what / (rate * (groups * data) as f64)
            )
        };
        let all = disks as f64 * self.raw.random_reads;
        let random = |what: f64| {
            format!("{disks} disks x {:.0} random reads a second x {:.3} ({source})", self.raw.random_reads, what / all)
        };
        let risk = self.risk(layout, plan.rebuild_hours);
        let mut reasons = BTreeMap::from([
            (
                "usable",
                "what the engine's allocator fits into a new pool of these disks, log and metadata set aside"
                    .to_string(),
            ),
            ("write_mb_s", sequential(plan.write_mb_s, 0)),
            ("read_mb_s", sequential(plan.read_mb_s, 0)),
            ("random_reads", random(plan.random_reads)),
            (
                "rebuild_hours",
                format!(
                    "{} on the largest disk of a full pool, read and written at {rate:.0} MB/s by the disks that take part, x {REBUILD}",
                    decimal(self.lost(layout, plan.usable))
                ),
            ),
            (
                "loss_per_year",
                format!(
                    "{} disks of which {} % fail in a year, whole again after {}, {} failures survived: see docs/guide/planning.md",
                    risk.disks,
                    risk.percent,
                    hours(risk.repair_hours),
                    risk.failures
                ),
            ),
        ]);
        for (figure, rate) in [
            ("degraded_read_mb_s", plan.degraded_read_mb_s),
            ("degraded_write_mb_s", plan.degraded_write_mb_s),
            ("rebuilding_read_mb_s", plan.rebuilding_read_mb_s),
            ("rebuilding_write_mb_s", plan.rebuilding_write_mb_s),
        ] {
            reasons.extend(rate.map(|rate| (figure, sequential(rate, 1))));
        }
        reasons.extend(self.reasons_of_random(plan, &source));
        reasons
    }

    /// What the figures of random requests follow from, but that of reads with all disks.
    fn reasons_of_random(&self, plan: &LayoutPlan, source: &str) -> Vec<(&'static str, String)> {
        let words = "each lasting small write becomes a rewrite of its stripe: every disk of it reads a strip at a \
                     random place and writes one in sequence";
        let mut reasons = vec![
            ("random_writes", words.to_string()),
            ("random_read_p99_ms", format!("8 reads under way for each disk ({source})")),
        ];
        for (figure, rate, whole) in [
            ("degraded_random_reads", plan.degraded_random_reads, Some(plan.random_reads)),
            ("rebuilding_random_reads", plan.rebuilding_random_reads, Some(plan.random_reads)),
            ("degraded_packed_writes", plan.degraded_packed_writes, plan.packed_writes),
            ("rebuilding_packed_writes", plan.rebuilding_packed_writes, plan.packed_writes),
        ] {
            reasons.extend(rate.zip(whole).map(|(rate, whole)| {
                let share = rate / whole;
                (figure, format!("{share:.2} of what it is with all disks (measured with simulated hdd disks)"))
            }));
        }
        if let Some(rate) = plan.packed_writes {
            let (raw, times) = (self.raw.random_reads, rate / self.raw.random_reads);
            let words = format!(
                "{raw:.0} random reads a second of a disk x {times:.2}: one client, a flush after 32 writes, a tenth \
                 of what is written to lies packed ({source})"
            );
            reasons.push(("packed_writes", words.clone()));
            reasons.push(("packed_write_p99_ms", words));
            let memory = "what packed stripes may take of memory (64 MiB), and the tenth of a virtual disk that may \
                          lie there";
            reasons.push(("packed_working_set", memory.to_string()));
        }
        reasons
    }

    /// Plans the pool with one disk more each time.
    fn growth(&self, plan: &LayoutPlan) -> Vec<Growth> {
        let mut disks = self.question.disks.clone();
        let commonest = *disks
            .iter()
            .max_by_key(|one| (disks.iter().filter(|disk| disk == one).count(), one.size))
            .expect("there are disks");
        let added: Vec<PlannedDisk> =
            if self.question.grow.is_empty() { vec![commonest; GROWTH_STEPS] } else { self.question.grow.clone() };
        let mut growth = Vec::new();
        for next in std::iter::once(None).chain(added.into_iter().map(Some)) {
            disks.extend(next);
            let Ok(space) = Space::new(&disks) else { break };
            let same =
                |layout: &Layout| layout.resiliency() == plan.layout.resiliency() && layout.slots() <= disks.len();
            let widest = ratios::layouts().into_iter().filter(same).max_by_key(|layout| space.room(*layout));
            let best = widest.unwrap_or(plan.layout);
            let ratio = ratios::known(best, self.class).map_or(0.0, |ratios| ratios.write);
            growth.push(Growth {
                disks: disks.len(),
                usable: space.room(plan.layout).0,
                usable_best: space.room(best).0,
                write_mb_s: self.raw.sequential / 1e6 * best.data_columns() as f64 * ratio,
            });
        }
        growth
    }

    pub(super) fn notes(&self) -> Vec<String> {
        let mut notes = vec![
            "Stripes are written whole whatever the size of requests: columns, interleave and the cluster size of the file system need no formula.".to_string(),
        ];
        let classes: Vec<_> = self.question.disks.iter().map(|disk| disk.class).collect();
        if classes.iter().any(|class| *class != self.class) {
            notes.push(format!("The disks differ: rates are those of the slowest, {}.", self.class));
        }
        if classes.contains(&Class::Smr) {
            let words = "Shingled disks (smr) write at their rate what comes in order from the beginning of a band; \
                         anything else fills a cache of about 20 GB, and then waits for whole bands to be read and \
                         written. Rates here are those of streams.";
            notes.push(words.to_string());
        }
        for measured in classes
            .iter()
            .filter_map(|class| if let Class::Measured(one) = class { Some(*one) } else { None })
            .collect::<BTreeSet<_>>()
        {
            notes.push(format!(
                "`{}` was measured by reading; its caches and what it writes are taken to be like those of {}.",
                measured.name(),
                measured.like()
            ));
        }
        if !self.class.rotational() {
            let words = "Rates of solid-state disks are those of a fresh one: what garbage collection costs an aged \
                         one is in no model here.";
            notes.push(words.to_string());
        }
        notes
    }

    fn raw_bytes(&self) -> u64 {
        self.question.disks.iter().map(|disk| disk.size).sum()
    }
}

/// What it does with a disk missing, in words.
fn with_one_less(plan: &LayoutPlan) -> Option<String> {
    let ways = |write: Option<f64>, read: Option<f64>, random: Option<f64>| {
        let random = random.map_or(String::new(), |random| format!(" and {random:.0} random reads a second"));
        Some(format!("{:.0} MB/s in, {:.0} out{random}", write?, read?))
    };
    let degraded = ways(plan.degraded_write_mb_s, plan.degraded_read_mb_s, plan.degraded_random_reads)?;
    let rebuilding = ways(plan.rebuilding_write_mb_s, plan.rebuilding_read_mb_s, plan.rebuilding_random_reads)?;
    Some(format!("With a disk missing: {degraded}; while it is rebuilt: {rebuilding}."))
}

/// A time that a person can use.
fn hours(hours: f64) -> String {
    match hours {
        short if short < 1.0 => format!("{:.0} minutes", (short * 60.0).max(1.0)),
        long if long < 48.0 => format!("{long:.1} hours"),
        days => format!("{:.1} days", days / 24.0),
    }
}

fn capitalised(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or(String::new(), |first| first.to_uppercase().chain(letters).collect())
}
