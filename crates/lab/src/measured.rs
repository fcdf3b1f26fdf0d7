//! A disk that was measured, as a class: a model that is fitted to what was measured by reading.
//!
//! Invariants
//! 1. The model is fitted to the rates of long reads and to the time of one random read alone; what 32 at once give on
//!    a hard disk follows from it, and can be compared with what was measured.
//! 2. What cannot be measured without writing (write rates, caches, flushes) is that of the nearest class; for
//!    solid-state disks, in the proportion of their reads.
//! 3. What a disk does counts, not what it says: whether it seeks follows from the time of a random read.

use crate::disks::{Class, random_reads};
use crate::spaces::array::Kind;
use serde::{Deserialize, Serialize};
use std::cmp::Ordering;
use weft_engine::units::{BLOCK, ByteCount};
use weft_sim::timing::{HddClass, SsdClass};

/// From so many nanoseconds for a random read on, it seeks.
const SEEKS: f64 = 1_000_000.0;
/// Rates of SATA end here; whoever is faster is like an NVMe disk.
const SATA: f64 = 700e6;
/// Bytes per second that no disk falls below, and that none exceeds, be it a file without blocks in memory.
const RATES: std::ops::RangeInclusive<f64> = 1e6..=1e12;

/// What was measured of a disk, by reading only.
#[derive(Serialize, Deserialize, Clone, PartialEq, Debug)]
pub struct Figures {
    /// Bytes it has.
    pub size: u64,
    /// Whether it says that it seeks.
    pub rotational: bool,
    /// Long reads, from the first bytes to the last.
    pub streams: Vec<Stream>,
    /// Random reads of 4 KiB, one at a time.
    pub alone: Random,
    /// Random reads of 4 KiB, 32 at once.
    pub together: Option<Random>,
}

/// Long reads at one place.
#[derive(Serialize, Deserialize, Clone, Copy, PartialEq, Debug)]
pub struct Stream {
    /// Where.
    pub at: u64,
    /// Bytes per second.
    pub rate: f64,
}

/// Random reads of 4 KiB.
#[derive(Serialize, Deserialize, Clone, Copy, PartialEq, Debug)]
pub struct Random {
    /// How many per second.
    pub per_second: f64,
    /// The mean time that one took, in nanoseconds.
    pub mean: u64,
    /// 99 of 100 took no longer, in nanoseconds.
    pub p99: u64,
}

/// A class that was made from figures.
#[derive(Clone, Debug)]
pub struct Measured {
    name: String,
    figures: Figures,
    kind: Kind,
    like: Class,
}

impl Measured {
    /// Fits a model.
    pub fn fit(name: &str, figures: Figures) -> Result<Measured, String> {
        let rates: Vec<f64> = figures.streams.iter().map(|stream| stream.rate).collect();
        let latency = figures.alone.mean as f64;
        if rates.is_empty() || rates.iter().any(|rate| !RATES.contains(rate)) || !(100.0..60e9).contains(&latency) {
            return Err(format!("the figures of `{name}` are not those of a disk: {figures:?}"));
        }
        if figures.size < 64 << 20 {
            return Err(format!("`{name}` has {} bytes; a disk of a pool has 64 MiB at least", figures.size));
        }
        let (like, kind) = match latency >= SEEKS {
            true => hard_disk(&figures, &rates, latency),
            false => solid_state(&figures, &rates, latency),
        };
        Ok(Measured { name: name.into(), figures, kind, like })
    }

    /// Makes a class of it, for as long as the program runs.
    pub fn class(self) -> Class {
        Class::Measured(Box::leak(Box::new(self)))
    }

    /// What it was called.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What it stands on.
    pub fn figures(&self) -> &Figures {
        &self.figures
    }

    /// The model.
    pub fn kind(&self) -> &Kind {
        &self.kind
    }

    /// The class whose caches and writes it has been given.
    pub fn like(&self) -> Class {
        self.like
    }

    /// Random reads of 4 KiB per second, 32 at once, that the model gives.
    pub fn together(&self) -> f64 {
        random_reads(&self.kind, 32, 640)
    }
}

/// The nearest spindle, with seeks scaled so that one random read takes what it took.
fn hard_disk(figures: &Figures, rates: &[f64], latency: f64) -> (Class, Kind) {
    let spindles = [Class::Hdd5400, Class::Hdd7200, Class::Hdd10k, Class::Hdd15k];
    let with_class = spindles.map(|class| (class, class.hdd().expect("these are hard disks")));
    let far = |class: &HddClass| (access(class, 1.0) - latency).abs();
    let nearest = with_class.into_iter().min_by(|(_, a), (_, b)| far(a).total_cmp(&far(b)));
    let (like, base) = nearest.expect("there are four");
    let outer = rates.iter().copied().fold(0.0, f64::max);
    let inner = rates.iter().copied().fold(f64::MAX, f64::min);
    let mut class = HddClass {
        name: "measured",
        capacity: ByteCount(figures.size / BLOCK * BLOCK),
        outer_rate: outer as u64,
        inner_rate: inner as u64,
        ..base
    };
    let (still, moving) = (access(&class, 0.0), access(&class, 1.0) - access(&class, 0.0));
    let scale = (latency - still) / moving;
    if scale < 0.0 {
        // Less than half a turn: no spindle of ours is that fast, or its cache answers.
        class.revolution = (class.revolution as f64 * latency / still) as u64;
        class.settle = (class.settle as f64 * latency / still) as u64;
    }
    let scaled = |nanos: u64| (nanos as f64 * scale.max(0.0)) as u64;
    (class.seek_root, class.seek_linear) = (scaled(class.seek_root), scaled(class.seek_linear));
    (like, Kind::Hdd(class))
}

/// The mean time of a random read of 4 KiB, in nanoseconds, with seeks of so many times the class's: between two random
/// places lies a third of the stroke, and 8/15 of its root.
fn access(class: &HddClass, seeks: f64) -> f64 {
    let seek = class.seek_root as f64 * 8.0 / 15.0 + class.seek_linear as f64 / 3.0;
    let transfer = BLOCK as f64 * 1e9 / class.inner_rate as f64;
    (2 * class.overhead + class.settle) as f64 + seeks * seek + class.revolution as f64 / 2.0 + transfer
}

fn solid_state(figures: &Figures, rates: &[f64], latency: f64) -> (Class, Kind) {
    let rate = rates.iter().sum::<f64>() / rates.len() as f64;
    let like = if rate > SATA { Class::Nvme } else { Class::Ssd };
    let Kind::Ssd(base) = like.kind() else { unreachable!("both are solid-state disks") };
    let command = figures.together.map_or(base.command as f64, |random| 1e9 / random.per_second).clamp(100.0, latency);
    let transfer = BLOCK as f64 * 1e9 / rate;
    let part = rate / base.read_rate as f64;
    let class = SsdClass {
        name: "measured",
        capacity: ByteCount(figures.size / BLOCK * BLOCK),
        die_read: (latency - command - transfer).max(1000.0) as u64,
        command: command as u64,
        write_command: (command * base.write_command as f64 / base.command as f64) as u64,
        read_rate: rate as u64,
        write_rate: (base.write_rate as f64 * part) as u64,
        program_rate: (base.program_rate as f64 * part) as u64,
        ..base
    };
    (like, Kind::Ssd(class))
}

impl PartialEq for Measured {
    fn eq(&self, other: &Measured) -> bool {
        self.name == other.name && self.figures == other.figures
    }
}

impl Eq for Measured {}

impl PartialOrd for Measured {
    fn partial_cmp(&self, other: &Measured) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Measured {
    fn cmp(&self, other: &Measured) -> Ordering {
        self.name.cmp(&other.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::specifications::long_reads;

    /// What a measurement of this model would find.
    fn figures(kind: &Kind) -> Figures {
        let size = kind.shape().capacity.0;
        let places = (0..5).map(|nth| (size - (8 << 30)) / 4 * nth / BLOCK * BLOCK);
        let random = |depth, reads| {
            let per_second = random_reads(kind, depth, reads);
            let mean = (depth as f64 * 1e9 / per_second) as u64;
            Random { per_second, mean, p99: 2 * mean }
        };
        Figures {
            size,
            rotational: kind.shape().rotational,
            streams: places.map(|at| Stream { at, rate: long_reads(kind, at) }).collect(),
            alone: random(1, 400),
            together: Some(random(32, 1600)),
        }
    }

    #[test]
    fn a_model_that_is_fitted_to_what_a_disk_does_does_the_same() {
        let near = |what: &str, a: f64, b: f64| assert!((a / b - 1.0).abs() < 0.15, "{what}: {a} beside {b}");
        for class in [Class::Hdd5400, Class::Hdd7200, Class::Hdd10k, Class::Hdd15k, Class::Ssd, Class::Nvme] {
            let seen = figures(&class.kind());
            let fitted = Measured::fit("it", seen.clone()).unwrap();
            assert_eq!(fitted.like(), class, "{seen:?}");
            let again = figures(fitted.kind());
            for (a, b) in seen.streams.iter().zip(&again.streams) {
                near("stream", a.rate, b.rate);
            }
            near("alone", seen.alone.per_second, again.alone.per_second);
            near("together", seen.together.unwrap().per_second, fitted.together());
        }
    }

    #[test]
    fn a_disk_between_two_classes_gets_its_own_seeks() {
        let Kind::Hdd(class) = Class::Hdd7200.kind() else { panic!("it is a hard disk") };
        let slow = HddClass { seek_root: class.seek_root * 5 / 4, outer_rate: 210_000_000, ..class };
        let seen = figures(&Kind::Hdd(slow));
        let fitted = Measured::fit("it", seen.clone()).unwrap();
        let found = random_reads(fitted.kind(), 1, 400);
        assert!((found / seen.alone.per_second - 1.0).abs() < 0.05, "{found} beside {:?}", seen.alone);
    }

    #[test]
    fn figures_that_no_disk_has_are_refused() {
        let good = figures(&Class::Ssd.kind());
        for wrong in [
            Figures { streams: Vec::new(), ..good.clone() },
            Figures { streams: vec![Stream { at: 0, rate: f64::NAN }], ..good.clone() },
            Figures { size: 1 << 20, ..good.clone() },
            Figures { alone: Random { mean: 0, ..good.alone }, ..good.clone() },
        ] {
            assert!(Measured::fit("it", wrong).is_err());
        }
        // What memory answers is quick, and still a model.
        let streams = vec![Stream { at: 0, rate: 2e11 }];
        let quick = Figures { streams, alone: Random { mean: 900, p99: 1000, per_second: 1e6 }, ..good };
        assert!(Measured::fit("it", quick).is_ok());
    }
}
