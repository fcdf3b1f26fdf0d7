//! The models of disks beside the data sheets of the drives that they are named after: the table of
//! `docs/evidence/disks.md`.

use crate::disks::{Class, random_reads};
use crate::spaces::array::Kind;
use std::fmt::Write;
use std::rc::Rc;
use weft_engine::units::{BLOCK, ByteCount, DiskOffset};
use weft_engine::world::World;
use weft_sim::rng::Rng;
use weft_sim::timed::TimedDisk;
use weft_sim::timing::Op;
use weft_sim::world::{Scheduling, SimWorld};

/// A figure of a data sheet.
pub struct Specified {
    /// The class.
    pub class: Class,
    /// The drive.
    pub drive: &'static str,
    /// What it is about.
    pub what: What,
    /// What the data sheet says, in MB/s or per second.
    pub says: f64,
    /// Where that is from, if not straight from the data sheet.
    pub from: &'static str,
}

/// What a figure is about.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum What {
    /// Long reads of the first bytes, MB/s.
    Outer,
    /// Long reads of the last bytes, MB/s.
    Inner,
    /// Long reads of all bytes, MB/s.
    Mean,
    /// Long writes of the first bytes, MB/s.
    Writes,
    /// Random reads of 4 KiB per second, so many at once.
    RandomReads(u64),
    /// Random writes of 4 KiB per second, so many at once.
    RandomWrites(u64),
}

impl What {
    fn words(self) -> String {
        match self {
            What::Outer => "long reads, first bytes, MB/s".into(),
            What::Inner => "long reads, last bytes, MB/s".into(),
            What::Mean => "long reads, all of it, MB/s".into(),
            What::Writes => "long writes, first bytes, MB/s".into(),
            What::RandomReads(depth) => format!("random reads of 4 KiB, {depth} at once, per second"),
            What::RandomWrites(depth) => format!("random writes of 4 KiB, {depth} at once, per second"),
        }
    }

    /// What the model of a class does.
    pub fn of(self, class: Class) -> f64 {
        let kind = class.kind();
        let last = kind.shape().capacity.0 - (8 << 30);
        match self {
            What::Outer => long_reads(&kind, 0) / 1e6,
            What::Inner => long_reads(&kind, last) / 1e6,
            What::Mean => class.raw().sequential / 1e6,
            What::Writes => {
                timed(&kind, 32, 16_384, |nth| Op::Write(DiskOffset(nth * (128 << 10)), ByteCount::kib(128)))
                    * (128 << 10) as f64
                    / 1e6
            }
            What::RandomReads(depth) => random_reads(&kind, depth, 64 * depth.max(16)),
            What::RandomWrites(depth) => {
                let (mut rng, blocks) = (Rng::new(depth), kind.shape().capacity.0 / BLOCK);
                timed(&kind, depth, 200_000, move |_| {
                    Op::Write(DiskOffset(rng.below(blocks) * BLOCK), ByteCount(BLOCK))
                })
            }
        }
    }
}

/// Bytes per second of long reads from a place on, 1 MiB each, 4 at once.
pub(crate) fn long_reads(kind: &Kind, at: u64) -> f64 {
    timed(kind, 4, 2048, move |nth| Op::Read(DiskOffset(at + (nth << 20)), ByteCount::mib(1))) * (1 << 20) as f64
}

/// Operations per second of so many, so many at once.
fn timed(kind: &Kind, depth: u64, count: u64, op: impl FnMut(u64) -> Op + 'static) -> f64 {
    let world = SimWorld::new(1, Scheduling::Fifo);
    let disk = TimedDisk::new(&world, kind.timing());
    let source = Rc::new(std::cell::RefCell::new((0, op)));
    let host = world.clone();
    let took = world.block_on(async move {
        let client = |_| {
            let (source, disk) = (source.clone(), disk.clone());
            async move {
                loop {
                    let next = {
                        let (nth, op) = &mut *source.borrow_mut();
                        *nth += 1;
                        (*nth <= count).then(|| op(*nth - 1))
                    };
                    let Some(next) = next else { break };
                    disk.submit(next).await;
                }
            }
        };
        weft_engine::store::join((0..depth).map(client)).await;
        host.now().0
    });
    count as f64 * 1e9 / took.expect("a sound disk answers") as f64
}

/// Every figure.
pub fn specified() -> Vec<Specified> {
    let seek = "from its average seek and latency";
    let row = |class, drive, what, says, from| Specified { class, drive, what, says, from };
    let random = What::RandomReads(1);
    let (red, exos, savvio, cheetah) =
        ("WD Red WD40EFRX", "HGST Ultrastar DC HC310", "Seagate Savvio 10K.4", "Seagate Cheetah 15K.7");
    let (archive, evo, plus) = ("Seagate Archive HDD v2", "Samsung 870 EVO 1 TB", "Samsung 970 EVO Plus 1 TB");
    vec![
        row(Class::Hdd5400, red, What::Outer, 150.0, ""),
        row(Class::Hdd7200, exos, What::Outer, 250.0, "the class; its sisters say 249 to 255"),
        row(Class::Hdd7200, exos, random, 1e3 / (7.4 + 4.16), seek),
        row(Class::Hdd10k, savvio, What::Outer, 135.0, ""),
        row(Class::Hdd10k, savvio, What::Inner, 72.0, ""),
        row(Class::Hdd10k, savvio, random, 1e3 / (4.0 + 3.0), "from its average access and latency"),
        row(Class::Hdd15k, cheetah, What::Outer, 204.0, ""),
        row(Class::Hdd15k, cheetah, What::Inner, 122.0, ""),
        row(Class::Hdd15k, cheetah, random, 1e3 / (3.4 + 2.0), seek),
        row(Class::Smr, archive, What::Outer, 190.0, ""),
        row(Class::Smr, archive, What::Mean, 150.0, ""),
        row(Class::Smr, archive, random, 1e3 / (12.0 + 5.1), seek),
        row(Class::Ssd, evo, What::Outer, 560.0, ""),
        row(Class::Ssd, evo, What::Writes, 530.0, ""),
        row(Class::Ssd, evo, random, 13e3, ""),
        row(Class::Ssd, evo, What::RandomReads(32), 98e3, ""),
        row(Class::Ssd, evo, What::RandomWrites(1), 36e3, ""),
        row(Class::Ssd, evo, What::RandomWrites(32), 88e3, ""),
        row(Class::Nvme, plus, What::Outer, 3500.0, ""),
        row(Class::Nvme, plus, What::Writes, 3300.0, ""),
        row(Class::Nvme, plus, random, 19e3, ""),
        row(Class::Nvme, plus, What::RandomWrites(1), 60e3, ""),
    ]
}

/// `docs/evidence/disks.md`.
pub fn document() -> String {
    let [quick, slow] = shingled();
    format!("{HEAD}{}\n{SHINGLED}| until its cache is full | {quick:.0} |\n| from then on | {slow:.1} |\n", table())
}

/// Scattered writes of 4 KiB per second to the shingled class, one at a time: until its cache is full, and then.
fn shingled() -> [f64; 2] {
    let Kind::Smr(class) = Class::Smr.kind() else { unreachable!("the class is shingled") };
    let seconds = |count: u64| {
        let (mut rng, blocks) = (Rng::new(1), class.hdd.capacity.0 / BLOCK);
        let scattered = move |_| Op::Write(DiskOffset(rng.below(blocks) * BLOCK), ByteCount(BLOCK));
        count as f64 / timed(&Class::Smr.kind(), 1, count, scattered)
    };
    let (full, more) = (class.entries, 40);
    let until = seconds(full);
    [full as f64 / until, more as f64 / (seconds(full + more) - until)]
}

/// All figures, in Markdown.
fn table() -> String {
    let mut table = String::from(
        "| class | drive | | data sheet | model | model of data sheet | |\n|---|---|---|---|---|---|---|\n",
    );
    for Specified { class, drive, what, says, from } in specified() {
        let does = what.of(class);
        let (words, share) = (what.words(), does / says);
        let line = format!("| {class} | {drive} | {words} | {says:.0} | {does:.0} | {share:.2} | {from} |");
        writeln!(table, "{}", line.replace("|  |", "| |")).expect("a string grows");
    }
    table
}

const HEAD: &str = "# Model disks beside their data sheets

What the models that `weft plan` and `weft lab` stand on do in virtual time, and what the data sheets of the drives that
they are named after say. `make lab` writes this document; a test holds it to the program, and each figure to a tenth.
Where a data sheet gives an average seek and a latency, a random read takes their sum. `weft disk measure` makes a model
of a disk that you have.

All of the Savvio's figures and the rates of the Cheetah were looked up in their manuals. The others are quoted as they
are commonly known, and were not looked up again.

";

const SHINGLED: &str = "The shingled class writes what comes in order from the beginning of a band as fast as it reads.
Anything else goes to a cache on the medium, which nothing on a data sheet describes: its size is from reviews; its map
(250,000 entries) and its bands (30 MiB) are what was published of measurements of its sister, as remembered. Scattered
writes of 4 KiB over all of it, one at a time, per second:

| | model |
|---|---|
";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn models_do_within_a_tenth_what_the_data_sheets_say() {
        for Specified { class, drive, what, says, .. } in specified() {
            let does = what.of(class);
            assert!(
                (does / says - 1.0).abs() <= 0.10,
                "{drive}, {what:?}: {does:.1}, and its data sheet says {says:.1}"
            );
        }
    }
}
