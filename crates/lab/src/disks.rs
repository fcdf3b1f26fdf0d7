//! Disks as a buyer names them: a size and a class.

use serde::Serialize;
use std::fmt;
use std::str::FromStr;
use weft_engine::io::{Buf, Disk};
use weft_engine::units::{BLOCK, ByteCount, DiskOffset};
use weft_engine::world::World;
use weft_sim::disk::SimDisk;
use weft_sim::rng::Rng;
use weft_sim::timing::{Hdd, HddClass, Ssd, SsdClass, Timing};
use weft_sim::world::{Scheduling, SimWorld};

/// A class of disks, as a model in the simulator.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Debug)]
#[serde(rename_all = "lowercase")]
pub enum Class {
    /// A hard disk for archives and small servers.
    Hdd5400,
    /// A hard disk for servers.
    Hdd7200,
    /// A SATA solid-state disk.
    Ssd,
    /// An NVMe solid-state disk.
    Nvme,
}

/// Every class, with the words that name it; the first is how it is written.
pub const CLASSES: [(Class, &[&str]); 4] = [
    (Class::Hdd7200, &["hdd", "7200", "hdd7200"]),
    (Class::Hdd5400, &["5400", "hdd5400"]),
    (Class::Ssd, &["ssd", "sata"]),
    (Class::Nvme, &["nvme"]),
];

/// A 5400 rpm disk of 4 TB, the class of WD Red WD40EFRX: 150 MB/s on its outermost tracks by its data sheet, about
/// half of that on the innermost. Seeks are those of the 7200 rpm class, half as long again, which is usual and not
/// stated by the data sheet.
const HDD_5400: HddClass = HddClass {
    name: "HDD_5400_4TB",
    capacity: ByteCount(4_000_787_030_016),
    revolution: 11_111_111,
    outer_rate: 150_000_000,
    inner_rate: 75_000_000,
    settle: 350_000,
    seek_root: 18_000_000,
    seek_linear: 5_000_000,
    write_settle: 900_000,
    write_cache: ByteCount::mib(48),
    ..HddClass::HDD_7200_8TB
};

/// What one disk of a class does, alone.
#[derive(Clone, Copy, PartialEq, Serialize, Debug)]
pub struct Raw {
    /// Bytes per second of one long transfer over the whole disk.
    pub sequential: f64,
    /// Reads of 4 KiB at random places per second, 32 of them in flight.
    pub random_reads: f64,
}

/// A disk of a plan.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Debug)]
pub struct PlannedDisk {
    /// Its size, in bytes.
    pub size: u64,
    /// What it is.
    pub class: Class,
}

impl Class {
    /// Whether it has an arm that seeks.
    pub fn rotational(self) -> bool {
        matches!(self, Class::Hdd5400 | Class::Hdd7200)
    }

    /// The model of a hard disk.
    pub fn hdd(self) -> Option<HddClass> {
        match self {
            Class::Hdd5400 => Some(HDD_5400),
            Class::Hdd7200 => Some(HddClass::HDD_7200_8TB),
            Class::Ssd | Class::Nvme => None,
        }
    }

    fn ssd(self) -> SsdClass {
        if self == Class::Nvme { SsdClass::NVME_SSD } else { SsdClass::SATA_SSD }
    }

    /// How many of a hundred disks fail in a year, when nobody says: published field figures of large fleets lie at 0.9
    /// to 2 for hard disks and at about 1 for solid-state disks.
    pub fn failures_percent(self) -> f64 {
        if self.rotational() { 1.5 } else { 1.0 }
    }

    /// Measures the model.
    pub fn raw(self) -> Raw {
        let sequential = match self.hdd() {
            // Zones hold the same number of bytes, so that the mean over all bytes is the mean of the times.
            Some(hdd) => {
                let fall = (hdd.outer_rate - hdd.inner_rate) as f64 / (hdd.zones - 1) as f64;
                let rates = (0..hdd.zones).map(|zone| hdd.outer_rate as f64 - zone as f64 * fall);
                hdd.zones as f64 / rates.map(|rate| 1.0 / rate).sum::<f64>()
            }
            None => self.ssd().program_rate.min(self.ssd().read_rate) as f64,
        };
        Raw { sequential, random_reads: self.random_reads() }
    }

    fn random_reads(self) -> f64 {
        const READS: u64 = 640;
        const DEPTH: u64 = 32;
        let world = SimWorld::new(1, Scheduling::Fifo);
        let (shape, model): (_, Box<dyn Timing>) = match self.hdd() {
            Some(hdd) => (hdd.shape(hdd.capacity), Box::new(Hdd::new(hdd))),
            None => (self.ssd().shape(self.ssd().capacity), Box::new(Ssd::new(self.ssd()))),
        };
        let disk = SimDisk::new(&world, shape, model);
        let host = world.clone();
        let took = world.block_on(async move {
            let start = host.now();
            let reader = |nth| {
                let (mut rng, disk) = (Rng::new(nth + 1), disk.clone());
                async move {
                    for _ in 0..READS / DEPTH {
                        let at = DiskOffset(rng.below(shape.capacity.0 / BLOCK) * BLOCK);
                        disk.read(at, Buf::zeroed(BLOCK as usize)).await.expect("a sound disk can be read");
                    }
                }
            };
            weft_engine::store::join((0..DEPTH).map(reader)).await;
            host.now().since(start)
        });
        READS as f64 * 1e9 / took.expect("a sound disk answers").0 as f64
    }
}

impl FromStr for Class {
    type Err = String;

    fn from_str(text: &str) -> Result<Class, String> {
        let found = CLASSES.iter().find(|(_, words)| words.contains(&text));
        found
            .map(|(class, _)| *class)
            .ok_or_else(|| format!("`{text}` is no class of disks; hdd, 5400, ssd and nvme are"))
    }
}

impl fmt::Display for Class {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (_, words) = CLASSES.iter().find(|(class, _)| class == self).expect("every class is in the list");
        f.write_str(words[0])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_are_read_as_they_are_written() {
        for (class, words) in CLASSES {
            assert_eq!(class.to_string().parse(), Ok(class));
            assert!(words.iter().all(|word| word.parse() == Ok(class)));
        }
        assert!("floppy".parse::<Class>().unwrap_err().contains("hdd, 5400, ssd and nvme"));
    }

    #[test]
    fn models_do_what_their_classes_are_known_for() {
        let [slow, fast, ssd, nvme] = [Class::Hdd5400, Class::Hdd7200, Class::Ssd, Class::Nvme].map(Class::raw);
        assert!((100e6..120e6).contains(&slow.sequential) && (170e6..190e6).contains(&fast.sequential));
        assert!(slow.random_reads < fast.random_reads && fast.random_reads < 300.0, "{slow:?} {fast:?}");
        assert!((80e3..110e3).contains(&ssd.random_reads) && nvme.random_reads > 300e3, "{ssd:?} {nvme:?}");
    }
}
