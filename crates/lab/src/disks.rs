//! Disks as a buyer names them: a size and a class.

use crate::measured::Measured;
use crate::spaces::array::Kind;
use crate::spaces::drive::Policy;
use serde::{Serialize, Serializer};
use std::fmt;
use std::str::FromStr;
use weft_engine::io::{Buf, Disk};
use weft_engine::units::{BLOCK, ByteCount, DiskOffset};
use weft_engine::world::World;
use weft_sim::disk::SimDisk;
use weft_sim::rng::Rng;
use weft_sim::timing::{HddClass, SmrClass, SsdClass};
use weft_sim::world::{Scheduling, SimWorld};

/// A class of disks, as a model in the simulator.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Class {
    /// A hard disk with shingled tracks, for archives.
    Smr,
    /// A hard disk for archives and small servers.
    Hdd5400,
    /// A hard disk for servers.
    Hdd7200,
    /// A small hard disk with a fast spindle.
    Hdd10k,
    /// A hard disk with the fastest spindle there was.
    Hdd15k,
    /// A SATA solid-state disk.
    Ssd,
    /// An NVMe solid-state disk.
    Nvme,
    /// A disk that was measured. Few are, and each lives as long as the program.
    Measured(&'static Measured),
}

/// Every class that has a model, with the words that name it; the first is how it is written.
pub const CLASSES: [(Class, &[&str]); 7] = [
    (Class::Hdd7200, &["hdd", "7200", "hdd7200"]),
    (Class::Hdd5400, &["5400", "hdd5400"]),
    (Class::Hdd10k, &["10k", "10000", "hdd10k"]),
    (Class::Hdd15k, &["15k", "15000", "hdd15k"]),
    (Class::Smr, &["smr"]),
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

/// A 10,000 rpm SAS disk of 600 GB, the class of Seagate Savvio 10K.4. Its manual says: 135 to 72 MB/s, average seek
/// 3.8 ms (write 4.4), single track 0.30 ms, full stroke 7.8 ms, controller overhead 0.2 ms, latency 3.0 ms.
const HDD_10K: HddClass = HddClass {
    name: "HDD_10K_600GB",
    capacity: ByteCount(600_127_266_816),
    revolution: 6_000_000,
    outer_rate: 135_000_000,
    inner_rate: 72_000_000,
    settle: 300_000,
    seek_root: 5_000_000,
    seek_linear: 2_510_000,
    write_settle: 600_000,
    overhead: 200_000,
    write_cache: ByteCount::mib(12),
    ..HddClass::HDD_7200_8TB
};

/// A 15,000 rpm SAS disk of 600 GB, the class of Seagate Cheetah 15K.7. Its manual says: 204 to 122 MB/s, average seek
/// 3.4 ms (write 3.9), latency 2.0 ms.
const HDD_15K: HddClass = HddClass {
    name: "HDD_15K_600GB",
    capacity: ByteCount(600_127_266_816),
    revolution: 4_000_000,
    outer_rate: 204_000_000,
    inner_rate: 122_000_000,
    settle: 200_000,
    seek_root: 5_300_000,
    seek_linear: 1_100_000,
    write_settle: 500_000,
    overhead: 100_000,
    write_cache: ByteCount::mib(12),
    ..HddClass::HDD_7200_8TB
};

/// A shingled disk of 8 TB, the class of Seagate Archive HDD v2: 5900 rpm, 190 MB/s outside and 150 on average, average
/// seek 12 ms by its data sheet; a cache of almost 20 GB on the medium by reviews. Bands and the entries of its map are
/// stated by nobody: what was published of measurements of its sister of 5 TB is taken, as remembered: some 30 MiB and
/// 250,000.
fn smr_8tb() -> SmrClass {
    let hdd = HddClass {
        name: "SMR_5900_8TB",
        revolution: 10_169_492,
        outer_rate: 190_000_000,
        inner_rate: 105_000_000,
        settle: 350_000,
        seek_root: 18_500_000,
        seek_linear: 5_000_000,
        write_settle: 900_000,
        write_cache: ByteCount::mib(96),
        ..HddClass::HDD_7200_8TB
    };
    SmrClass { hdd, cache: ByteCount::gib(20), entries: 250_000, band: ByteCount::mib(30), idle: 1_000_000_000 }
}

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
    /// Its model.
    pub fn kind(self) -> Kind {
        match self {
            Class::Smr => Kind::Smr(smr_8tb()),
            Class::Hdd5400 => Kind::Hdd(HDD_5400),
            Class::Hdd7200 => Kind::Hdd(HddClass::HDD_7200_8TB),
            Class::Hdd10k => Kind::Hdd(HDD_10K),
            Class::Hdd15k => Kind::Hdd(HDD_15K),
            Class::Ssd => Kind::Ssd(SsdClass::SATA_SSD),
            Class::Nvme => Kind::Ssd(SsdClass::NVME_SSD),
            Class::Measured(measured) => measured.kind().clone(),
        }
    }

    /// Whether it has an arm that seeks.
    pub fn rotational(self) -> bool {
        self.kind().shape().rotational
    }

    /// The model of a hard disk that writes in place.
    pub fn hdd(self) -> Option<HddClass> {
        match self.kind() {
            Kind::Hdd(class) => Some(class),
            Kind::Smr(_) | Kind::Ssd(_) | Kind::Waits(_) => None,
        }
    }

    /// How many of a hundred disks fail in a year, when nobody says: published field figures of large fleets lie at 0.9
    /// to 2 for hard disks and at about 1 for solid-state disks.
    pub fn failures_percent(self) -> f64 {
        if self.rotational() { 1.5 } else { 1.0 }
    }

    /// Measures the model.
    pub fn raw(self) -> Raw {
        let sequential = match self.kind() {
            Kind::Hdd(hdd) | Kind::Smr(SmrClass { hdd, .. }) => over_all_zones(&hdd),
            Kind::Ssd(ssd) => ssd.program_rate.min(ssd.read_rate) as f64,
            Kind::Waits(Policy { class, .. }) => over_all_zones(&class),
        };
        Raw { sequential, random_reads: random_reads(&self.kind(), 32, 640) }
    }
}

/// Zones hold the same number of bytes, so that the mean over all bytes is the mean of the times.
fn over_all_zones(hdd: &HddClass) -> f64 {
    let fall = (hdd.outer_rate - hdd.inner_rate) as f64 / (hdd.zones - 1) as f64;
    let rates = (0..hdd.zones).map(|zone| hdd.outer_rate as f64 - zone as f64 * fall);
    hdd.zones as f64 / rates.map(|rate| 1.0 / rate).sum::<f64>()
}

/// Reads of 4 KiB per second at random places of a whole disk, so many at once, so many in all.
pub(crate) fn random_reads(kind: &Kind, depth: u64, reads: u64) -> f64 {
    let world = SimWorld::new(1, Scheduling::Fifo);
    let shape = kind.shape();
    let disk = SimDisk::new(&world, shape, kind.timing());
    let host = world.clone();
    let took = world.block_on(async move {
        let start = host.now();
        let reader = |nth| {
            let (mut rng, disk) = (Rng::new(nth + 1), disk.clone());
            async move {
                for _ in 0..reads / depth {
                    let at = DiskOffset(rng.below(shape.capacity.0 / BLOCK) * BLOCK);
                    disk.read(at, Buf::zeroed(BLOCK as usize)).await.expect("a sound disk can be read");
                }
            }
        };
        weft_engine::store::join((0..depth).map(reader)).await;
        host.now().since(start)
    });
    (reads / depth * depth) as f64 * 1e9 / took.expect("a sound disk answers").0 as f64
}

impl FromStr for Class {
    type Err = String;

    fn from_str(text: &str) -> Result<Class, String> {
        let found = CLASSES.iter().find(|(_, words)| words.contains(&text));
        found
            .map(|(class, _)| *class)
            .ok_or_else(|| format!("`{text}` is no class of disks; hdd, 5400, 10k, 15k, smr, ssd and nvme are"))
    }
}

impl fmt::Display for Class {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Class::Measured(measured) = self {
            return f.write_str(measured.name());
        }
        let (_, words) = CLASSES.iter().find(|(class, _)| class == self).expect("every class is in the list");
        f.write_str(words[0])
    }
}

impl Serialize for Class {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
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
        assert!("floppy".parse::<Class>().unwrap_err().contains("hdd, 5400, 10k, 15k, smr, ssd and nvme"));
    }

    #[test]
    fn models_do_what_their_classes_are_known_for() {
        let [slow, fast, ssd, nvme] = [Class::Hdd5400, Class::Hdd7200, Class::Ssd, Class::Nvme].map(Class::raw);
        assert!((100e6..120e6).contains(&slow.sequential) && (170e6..190e6).contains(&fast.sequential));
        assert!(slow.random_reads < fast.random_reads && fast.random_reads < 300.0, "{slow:?} {fast:?}");
        let [quick, quicker, shingled] = [Class::Hdd10k, Class::Hdd15k, Class::Smr].map(Class::raw);
        assert!(fast.random_reads < quick.random_reads && quick.random_reads < quicker.random_reads);
        assert!(shingled.random_reads < fast.random_reads && Class::Smr.rotational() && Class::Smr.hdd().is_none());
        assert!((80e3..110e3).contains(&ssd.random_reads) && nvme.random_reads > 300e3, "{ssd:?} {nvme:?}");
    }
}
