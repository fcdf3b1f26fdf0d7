//! The models of arrays that write in place beside what they are models of: md, the kernel's own RAID, on emulated hard
//! disks. `docs/evidence/raid.md` is written from this.
//!
//! Invariants
//! 1. The model does what was measured: the same disks by their parameters, the same loads in the same order, each for
//!    as long, every rate with the last flush.
//! 2. What was measured is in `md.tsv`, as `scripts/md` writes it; nothing here is fitted to it.

use crate::command_line::Line;
use crate::raid::Raid;
use crate::spaces::array::Kind;
use crate::spaces::rows::Shape;
use crate::volume::Volume;
use crate::workload::{Ask, drive, in_order};
use std::fmt::Write;
use std::rc::Rc;
use weft_engine::units::{ByteCount, Nanos};
use weft_sim::timing::{HddClass, SsdClass};

const MEASURED: &str = include_str!("md.tsv");
/// Bytes of each disk that are used.
const EACH: u64 = 448 << 20;
/// Bytes of a disk in a stripe.
const CHUNK: u64 = 64 << 10;
/// Times that a model may be off.
pub const WITHIN: f64 = 0.20;

/// The hard disk that was emulated.
const EMULATED: HddClass = HddClass {
    name: "emulated",
    capacity: ByteCount::gib(1),
    outer_rate: 180_000_000,
    inner_rate: 180_000_000,
    settle: 800_000,
    seek_root: 12_500_000,
    seek_linear: 2_200_000,
    write_settle: 400_000,
    overhead: 30_000,
    write_cache: ByteCount::mib(32),
    read_ahead: ByteCount::mib(2),
    ..HddClass::HDD_7200_8TB
};

/// The solid-state disk that was emulated, for journals.
const EMULATED_SSD: SsdClass = SsdClass {
    name: "emulated",
    program_rate: 480_000_000,
    buffer: ByteCount::mib(64),
    flush: 400_000,
    flush_exclusive: false,
    ..SsdClass::SATA_SSD
};

/// One load on one array: what md did.
#[derive(Clone, PartialEq, Debug)]
pub struct Measured {
    /// The array, by the name that `scripts/md` has for it.
    pub array: &'static str,
    disks: usize,
    line: Line,
    /// Where the first request begins.
    first: u64,
    /// Requests per second: the median, the least, the most.
    pub rates: [f64; 3],
}

impl Measured {
    /// The load, in words.
    pub fn words(&self) -> String {
        let Line { writes, len, random, depth, durable, .. } = self.line;
        let size = if len < 1 << 20 { format!("{} KiB", len >> 10) } else { format!("{} MiB", len >> 20) };
        let what = match (random, writes > 0.0) {
            (true, true) => "random writes",
            (true, false) => "random reads",
            (false, true) => "writes in order",
            (false, false) => "reads in order",
        };
        let shifted = if self.first > 0 { format!(", from {} KiB on", self.first >> 10) } else { String::new() };
        format!("{}{what}, {size}, {depth} at once{shifted}", if durable { "durable " } else { "" })
    }

    /// A rate as it is told: MB/s of what is in order, requests per second of what is not.
    fn told(&self, rate: f64) -> String {
        match (self.line.random, rate * self.line.len as f64 / 1e6) {
            (false, mb) if mb < 99.5 => format!("{mb:.1} MB/s"),
            (false, mb) => format!("{mb:.0} MB/s"),
            (true, _) => format!("{rate:.0}/s"),
        }
    }
}

/// Everything that was measured, in the order in which it was.
pub fn measured() -> Vec<Measured> {
    let lines = MEASURED.lines().filter(|line| !line.starts_with('#'));
    lines.map(|line| read(line).unwrap_or_else(|| panic!("md.tsv: {line}"))).collect()
}

fn read(line: &'static str) -> Option<Measured> {
    let mut words = line.split('\t');
    let (array, disks, way) = (words.next()?, words.next()?.parse().ok()?, words.next()?);
    let numbers: Vec<f64> = words.map(|word| word.parse().ok()).collect::<Option<_>>()?;
    let [len, depth, durable, first, seconds, rates @ ..] = &numbers[..] else { return None };
    let line = Line {
        writes: if way.ends_with("write") { 1.0 } else { 0.0 },
        len: *len as u64,
        random: way.starts_with("rand"),
        depth: *depth as usize,
        durable: *durable > 0.0,
        span: Some(Nanos((seconds * 1e9) as u64)),
    };
    Some(Measured { array, disks, line, first: *first as u64, rates: rates.try_into().ok()? })
}

/// What the model does of every load, in requests per second.
pub fn modelled(measured: &[Measured]) -> Vec<f64> {
    let mut rates = Vec::new();
    for array in measured.chunk_by(|a, b| a.array == b.array) {
        let (volume, size) = model(&array[0]);
        drive(&volume, in_order(0, size, 1 << 20), 8, None, true);
        rates.extend(array.iter().map(|load| run(&volume, load, size)));
    }
    rates
}

fn run(volume: &Rc<dyn Volume>, load: &Measured, size: u64) -> f64 {
    let first = load.first;
    let shifted = move |ask| match ask {
        Ask::Write(at, len) => Ask::Write(at + first, len),
        Ask::WriteThrough(at, len) => Ask::WriteThrough(at + first, len),
        Ask::Read(at, len) => Ask::Read(at + first, len),
        other => other,
    };
    let asks = load.line.requests(size - (1 << 20)).map(shifted);
    let flush = load.line.writes > 0.0 && !load.line.durable;
    drive(volume, asks, load.line.depth, load.line.span, flush).per_second()
}

/// The model of an array, and how many bytes of it are used.
fn model(load: &Measured) -> (Rc<dyn Volume>, u64) {
    let shape = |columns, parity, copies| Shape { columns, parity, copies, interleave: CHUNK };
    let columns = load.disks as u64;
    let shape = match load.array {
        "disk" => shape(1, 0, 1),
        "mirror" => shape(columns / 2, 0, 2),
        "raid6" => shape(columns, 2, 1),
        _ => shape(columns, 1, 1),
    };
    let journal = load.array.contains("journal").then_some(Kind::Ssd(EMULATED_SSD));
    let size = EACH * (shape.columns - shape.parity);
    (Rc::new(Raid::new(&vec![Kind::Hdd(EMULATED); load.disks], shape, journal, size)), size)
}

/// Every load in Markdown: what md did, what the model does.
pub fn table() -> String {
    let measured = measured();
    let mut text = String::new();
    for (load, rate) in measured.iter().zip(modelled(&measured)) {
        let [median, least, most] = load.rates;
        let (told, range) = (load.told(median), format!("{} to {}", load.told(least), load.told(most)));
        let array = load.array.replace("raid", "RAID ");
        writeln!(text, "| {array} | {} | {told} | {range} | {} | {:.2} |", load.words(), load.told(rate), rate / median)
            .expect("a string grows");
    }
    text
}
