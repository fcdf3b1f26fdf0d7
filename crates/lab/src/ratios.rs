//! What of the disks' own rates clients get, layout by layout: measured on the engine in virtual time.
//!
//! A measurement takes seconds, so the layouts that a plan considers are measured beforehand on each class of disks
//! and kept in `ratios.tsv` (`make ratios` makes it anew); [`simulate`] does it again for one layout and class. A test
//! holds the file to the engine.

mod simulated;

use crate::disks::Class;
use serde::Serialize;
pub use simulated::{simulate, simulate_quickly, simulate_random};
use weft_engine::geometry::{Layout, Resiliency};
use weft_engine::units::ByteCount;

/// Shares of what the disks do by themselves.
#[derive(Clone, Copy, PartialEq, Serialize, Default, Debug)]
pub struct Ratios {
    /// Sequential writes, of data columns x a disk's sequential rate.
    pub write: f64,
    /// Sequential reads, of the same.
    pub read: f64,
    /// Sequential reads with a disk missing, of the same; 0 where a disk may not be missing.
    pub degraded: f64,
    /// Sequential writes with a disk missing, of the same.
    pub degraded_write: f64,
    /// Sequential reads while a lost disk is rebuilt onto others, of the same.
    pub rebuilding: f64,
    /// Sequential writes meanwhile, of the same.
    pub rebuilding_write: f64,
    /// Random reads of 4 KiB, of slots x a disk's random reads.
    pub random_read: f64,
    /// 99 of 100 of them take no longer, with 8 under way for each disk, in milliseconds.
    pub read_p99: f64,
    /// Random writes of 4 KiB that last, of one client that flushes after 32 of them, where as much of what it writes
    /// to is packed as may be; of a disk's random reads. 0: not measured (solid-state disks).
    pub packed_write: f64,
    /// 99 of 100 rounds of 32 of them and a flush take no longer, in milliseconds.
    pub write_p99: f64,
}

impl Ratios {
    /// In the order of the table.
    fn fields(&self) -> [f64; 10] {
        let Ratios { write, read, degraded, random_read, .. } = *self;
        let [a, b, c] = [self.degraded_write, self.rebuilding, self.rebuilding_write];
        [write, read, degraded, random_read, a, b, c, self.read_p99, self.packed_write, self.write_p99]
    }

    fn of(fields: [f64; 10]) -> Ratios {
        let [write, read, degraded, random_read, degraded_write, rebuilding, ..] = fields;
        let [.., rebuilding_write, read_p99, packed_write, write_p99] = fields;
        Ratios {
            write,
            read,
            degraded,
            degraded_write,
            rebuilding,
            rebuilding_write,
            random_read,
            read_p99,
            packed_write,
            write_p99,
        }
    }
}

/// What is left of random requests, of what they are with all disks. It is measured on 7200 rpm disks only: what the
/// others are asked in place of one that is missing is the same whatever they are.
#[derive(Clone, Copy, PartialEq, Serialize, Debug)]
pub struct Random {
    /// Reads, with a disk missing.
    pub degraded_read: f64,
    /// Reads, while that disk is rebuilt onto one that had nothing.
    pub rebuilding_read: f64,
    /// Writes that are packed, with a disk missing.
    pub degraded_write: f64,
    /// Writes that are packed, while that disk is rebuilt.
    pub rebuilding_write: f64,
}

/// Every layout that a plan considers, with the interleave that weft chooses for hard disks.
pub fn layouts() -> Vec<Layout> {
    let of = |resiliency, columns: std::ops::RangeInclusive<u8>| {
        columns
            .map(move |columns| Layout::new(resiliency, columns, ByteCount::kib(256)).expect("these layouts are valid"))
    };
    let mirrors = [2, 3].map(|copies| of(Resiliency::Mirror { copies }, 1..=4)).into_iter().flatten();
    let simple = of(Resiliency::Simple, 1..=8);
    let single = of(Resiliency::Parity { parity: 1 }, 3..=8);
    simple.chain(mirrors).chain(single).chain(of(Resiliency::Parity { parity: 2 }, 4..=10)).collect()
}

/// The classes that were measured. Another one is taken to be like the first.
pub const CLASSES: [Class; 6] = [Class::Hdd7200, Class::Hdd5400, Class::Hdd10k, Class::Hdd15k, Class::Ssd, Class::Nvme];

/// The class whose shares are taken for this one.
pub fn like(class: Class) -> Class {
    match class {
        Class::Measured(measured) => like(measured.like()),
        class if CLASSES.contains(&class) => class,
        _ => CLASSES[0],
    }
}

/// What was measured beforehand for this resiliency and number of columns, if it is one of [`layouts`].
pub fn known(layout: Layout, class: Class) -> Option<Ratios> {
    let (wanted, class) = (key(layout), like(class).to_string());
    include_str!("ratios.tsv").lines().find_map(|line| {
        let mut fields = line.split('\t');
        if fields.next()? != class || fields.next()? != wanted {
            return None;
        }
        let numbers: Vec<f64> = fields.map_while(|field| field.parse().ok()).collect();
        Some(Ratios::of(numbers.try_into().ok()?))
    })
}

/// What was measured beforehand of random requests with a disk missing (`random.tsv`), where one may be missing.
pub fn known_random(layout: Layout) -> Option<Random> {
    let wanted = key(layout);
    include_str!("random.tsv").lines().find_map(|line| {
        let mut fields = line.split('\t');
        if fields.next()? != wanted {
            return None;
        }
        let mut number = || fields.next()?.parse::<f64>().ok();
        let (degraded_read, rebuilding_read) = (number()?, number()?);
        Some(Random { degraded_read, rebuilding_read, degraded_write: number()?, rebuilding_write: number()? })
    })
}

/// A row of `random.tsv`.
pub fn random_row(layout: Layout, random: Random) -> String {
    let Random { degraded_read, rebuilding_read, degraded_write, rebuilding_write } = random;
    format!("{}\t{degraded_read:.3}\t{rebuilding_read:.3}\t{degraded_write:.3}\t{rebuilding_write:.3}", key(layout))
}

/// A row of `ratios.tsv`.
pub fn row(layout: Layout, class: Class, ratios: Ratios) -> String {
    let numbers = ratios.fields().map(|number| format!("\t{number:.3}")).concat();
    format!("{class}\t{}{numbers}", key(layout))
}

fn key(layout: Layout) -> String {
    format!("{} x{}", layout.resiliency(), layout.columns())
}
