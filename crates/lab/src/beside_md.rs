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
use crate::spaces::drive::Policy;
use crate::spaces::rows::Shape;
use crate::volume::{Done, Volume};
use crate::workload::{Ask, drive, in_order, rest};
use std::fmt::Write;
use std::rc::Rc;
use weft_engine::units::{ByteCount, Nanos};
use weft_engine::world::World;
use weft_sim::timing::{HddClass, SsdClass};
use weft_sim::world::SimWorld;

const MEASURED: &str = include_str!("md.tsv");
/// Bytes of each disk that are used.
const EACH: u64 = 448 << 20;
/// Between two loads: so long the guest takes to begin the next, about.
const PAUSE: Nanos = Nanos(100_000_000);
/// What the guest's processor takes for a request, on the clock of the disks: what is left of one of 64 KiB to a mirror
/// (211 microseconds) when the disks have taken theirs.
const PROCESSOR: u64 = 60_000;
/// And to sum a block for the log of an array with a journal: what is left of an aligned write of 256 KiB, which reads
/// nothing (1.55 milliseconds beside 0.25 without a journal), when the disks and one of 4 KiB have had theirs.
const SUM: u64 = 2_500;
/// Bytes of a disk in a stripe.
const CHUNK: u64 = 64 << 10;
/// Bytes of a block of the log.
const BLOCK: u64 = 4096;
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

/// How it writes back.
const POLICY: Policy = Policy { class: EMULATED, idle: 1_000_000, chunk: 1536 << 10, compared: 16 };

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
        follows: 0.0,
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
        rates.extend(array.iter().zip(1..).map(|(load, nth)| run(&volume, load, size, nth)));
    }
    rates
}

/// Runs the `nth` load on an array. Each draws places of its own: what the load before it had left in the stripe cache
/// would spare it reads.
fn run(volume: &Rc<dyn Volume>, load: &Measured, size: u64, nth: u64) -> f64 {
    let first = load.first;
    let shifted = move |ask| match ask {
        Ask::Write(at, len) => Ask::Write(at + first, len),
        Ask::WriteThrough(at, len) => Ask::WriteThrough(at + first, len),
        Ask::Read(at, len) => Ask::Read(at + first, len),
        other => other,
    };
    let asks = load.line.drawn(size - (1 << 20), nth).map(shifted);
    let flush = load.line.writes > 0.0 && !load.line.durable;
    rest(volume, PAUSE);
    drive(volume, asks, load.line.depth, load.line.span, flush).per_second()
}

/// An array behind the guest's processor, which takes its time for each request.
struct Guest {
    raid: Raid,
    /// What it takes for each byte that is written, in nanoseconds.
    byte: f64,
}

impl Guest {
    fn then(&self, writes: u64, what: Done) -> Done {
        let (world, span) = (self.raid.world(), Nanos(PROCESSOR + (self.byte * writes as f64) as u64));
        Box::pin(async move {
            world.sleep(span).await;
            what.await;
        })
    }
}

impl Volume for Guest {
    fn world(&self) -> SimWorld {
        self.raid.world()
    }

    fn write(&self, at: u64, len: u64, durable: bool) -> Done {
        self.then(len, self.raid.write(at, len, durable))
    }

    fn read(&self, at: u64, len: u64) -> Done {
        self.then(0, self.raid.read(at, len))
    }

    fn flush(&self) -> Done {
        self.raid.flush()
    }

    fn forget(&self, at: u64, len: u64) -> Done {
        self.raid.forget(at, len)
    }

    fn moved(&self) -> (u64, u64) {
        self.raid.moved()
    }
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
    let logged = shape.columns as f64 / (shape.columns - shape.parity) as f64 * SUM as f64 / BLOCK as f64;
    let byte = if journal.is_some() { logged } else { 0.0 };
    (Rc::new(Guest { raid: Raid::new(&vec![Kind::Waits(POLICY); load.disks], shape, journal, size), byte }), size)
}

/// `docs/evidence/raid.md`.
pub fn document() -> String {
    format!("{HEAD}{}{TAIL}", table())
}

/// Every load in Markdown: what md did, what the model does.
pub fn table() -> String {
    let measured = measured();
    let mut text = String::new();
    for (load, rate) in measured.iter().zip(modelled(&measured)) {
        let [median, least, most] = load.rates;
        let (told, range) = (load.told(median), format!("{} to {}", load.told(least), load.told(most)));
        let array = load.array.replace("raid", "RAID ");
        writeln!(
            text,
            "| {array} | {} | {told} | {range} | {} | {:.2} |",
            load.words(),
            load.told(rate),
            rate / median
        )
        .expect("a string grows");
    }
    text
}

const HEAD: &str = "# Models of RAID beside md

Arrays that write in place are references for weft (`crates/lab/src/raid.rs`): RAID 5, with and without a journal, RAID
6, and mirrors. Here each is beside what it is a model of: md, the RAID of the Linux kernel (6.1, User-Mode Linux), on
emulated hard disks of 1 GiB that turn 7200 times a minute, move 180 MB/s, and cache 32 MiB of writes. The model has the
same disks by their parameters (`crates/lab/src/spaces/drive.rs`), and does the same loads in the same order, each for 2
seconds (random writes 4); every rate has the last flush in it. Strips are 64 KiB; 448 MiB of each disk are used.

    LAB=../shared/lab scripts/md 3 >crates/lab/src/md.tsv    # measures md: half an hour, root
    make lab                                                 # writes this page

Each cell of md was measured up to three times, in a new guest each time, on a machine that compiled beside it: the
emulator and the guest ran at real-time priority, everything took four times as long as on the disks that are meant, and
figures are of those disks. `disk` is one disk without md. A test holds this page to the program, and each model to
within 20 % of md.

| array | load | md, median | least to most | model | model of md |
|---|---|---|---|---|---|
";

const TAIL: &str = "
## What made the models agree

The first models, without these, were off by up to three times:

- **The stripe cache.** md works on rows of 4 KiB from every disk and keeps 256 of them. A small write in order finds
  the parity, and what was written before it, in memory: RAID 5 reads for three of four requests of 64 KiB.
- **What is read.** What is overwritten and the parity, or the rest of the row, whichever is less; the rest when both
  are the same. So dual parity of four data columns never reads its parity for one block.
- **Direct requests do not wait.** Those that pass the page cache are marked so that md reads for their rows at once,
  though the next request would have completed them: 64 KiB in order, 32 at once, get a third of the disks' rate.
- **The log.** A flush of an array with a journal does nothing, as the log is durable already; a durable write is made
  durable on the disks, too, so that a journal closes the write hole and makes nothing faster. Eight rows have a head in
  the log; a write of 1 MiB is two requests to it and two flushes, one flush at a time, and rows go on to the disks as
  soon as theirs is over.
- **Order.** Rows are begun in their order: a disk may already be writing back the first of a request when the last of
  it asks for a read.
- **Mirrors** read from a disk that has nothing else to do, else from the nearest.
- **The drive waits** a millisecond for its host before it writes back, reading on meanwhile. One that writes back at
  once misses a turn for each small read between writes.

## Writes off every border

Writes in order that begin 20 KiB off every border, one at a time, read at the end of each: what is overwritten and the
parity, on two disks, 256 KiB behind what the request before had read there. Each waits for the disks to turn: 9.8 ms,
one turn and those 256 KiB; or 1.5 ms, those 256 KiB alone, when a request comes while both disks still read on. RAID 5
alternates between the two, RAID 6 and RAID 5 with a journal always miss the turn. All three follow: RAID 5, as long as
rows are begun in their order; RAID 5 with a journal, as its log and the guest's sums of 320 blocks take more than the
millisecond after which a drive that has something to write back stops reading on.

Durable writes of 4 KiB, 32 at once, had seemed 16 to 20 % too fast in an earlier model of every array with parity. The
loads had all drawn the same places, so that rows of the one before were still in the stripe cache; fio draws new ones.
";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn models_do_within_a_fifth_what_md_does() {
        let measured = measured();
        assert!(measured.len() >= 60);
        for (load, rate) in measured.iter().zip(modelled(&measured)) {
            let share = rate / load.rates[0];
            assert!(
                (share - 1.0).abs() <= WITHIN,
                "{}, {}: {rate:.1} a second, and md does {:.1}",
                load.array,
                load.words(),
                load.rates[0]
            );
        }
    }
}
