//! Clients that write in order and one that reads, at the same time and on the same simulated hard disks: what each
//! gets of what it gets alone, and how long reads take.
//!
//! Every row measures three times on one pool: the reader alone, the writers alone, all together. Shares that add up to
//! one say that nothing was lost by sharing; what is lost are seeks.

use crate::rig::Rig;
use crate::rng::Rng;
use crate::stream_reads::Client;
use crate::streams::{Bench, CLASS, LOG, Shape, block_on, pattern, per_second, stream_at};
use crate::timing::HddClass;
use crate::world::{Scheduling, SimWorld};
use std::cell::{Cell, RefCell};
use std::fmt;
use std::rc::Rc;
use weft_engine::geometry::{Layout, Resiliency};
use weft_engine::limits::SLAB_DEFAULT;
use weft_engine::pool::OpenOptions;
use weft_engine::store::Tuning;
use weft_engine::sync::{Promise, promise};
use weft_engine::units::{ByteCount, Nanos, VirtualOffset};
use weft_engine::world::World;

/// What a reader, and the writers, are held to: of what they get alone.
pub const LEAST: f64 = 0.35;
/// What both shares together are held to.
pub const LEAST_TOGETHER: f64 = 0.80;
/// What writers keep beside a reader of a few bytes here and there, which makes every disk seek for each of them.
pub const LEAST_BESIDE_RANDOM: f64 = 0.25;
/// The longest that 99 of 100 reads may take beside writers: each may wait for what the disks have taken.
pub const READ_P99_MAX: Nanos = Nanos::millis(300);

/// What the writers do: large requests, several at once.
const WRITER: Client = Client { request: ByteCount::mib(1), depth: 4 };
/// Where each of the writers writes, one behind the other.
const AREA: u64 = 16 << 30;

/// What is run.
#[derive(Clone, Debug)]
pub struct Mix {
    /// The disks.
    pub class: HddClass,
    /// Layout of the virtual disk; there are as many disks as it uses.
    pub layout: Layout,
    /// How many clients write.
    pub writers: u64,
    /// How the one that reads does so.
    pub reader: Client,
    /// It reads anywhere, not in order.
    pub random: bool,
    /// Bytes that it reads, again and again.
    pub range: ByteCount,
    /// How long each of the three is measured, after as long a time that is not.
    pub span: Nanos,
}

/// What one measurement gave.
#[derive(Clone, Debug, Default)]
pub struct Seen {
    /// Bytes read per second.
    pub read: f64,
    /// Bytes written per second.
    pub written: f64,
    /// How long reads took, sorted.
    pub reads: Vec<Nanos>,
    /// How long writes took, sorted.
    pub writes: Vec<Nanos>,
}

/// The three measurements.
#[derive(Clone, Debug)]
pub struct MixOutcome {
    /// What was run.
    pub mix: Mix,
    /// The reader alone.
    pub reader: Seen,
    /// The writers alone.
    pub writers: Seen,
    /// All at once.
    pub both: Seen,
}

/// One of `sorted` times: the one that `per_mille` of 1000 do not exceed.
pub fn quantile(sorted: &[Nanos], per_mille: usize) -> Nanos {
    sorted.get((sorted.len() * per_mille / 1000).min(sorted.len().saturating_sub(1))).copied().unwrap_or(Nanos(0))
}

impl MixOutcome {
    /// What the reader, and the writers, got of what they get alone.
    pub fn shares(&self) -> (f64, f64) {
        (self.both.read / self.reader.read, self.both.written / self.writers.written)
    }

    /// What does not hold.
    pub fn complaints(&self) -> Vec<String> {
        let (read, written) = self.shares();
        let mut found = Vec::new();
        let mut hold = |what: &str, value: f64, least: f64| {
            if value < least {
                found.push(format!("{what} {value:.3} of what there is alone, not {least}"));
            }
        };
        hold("the reader gets", read, LEAST);
        hold("the writers get", written, if self.mix.random { LEAST_BESIDE_RANDOM } else { LEAST });
        if !self.mix.random {
            hold("together they get", read + written, LEAST_TOGETHER);
        }
        let p99 = quantile(&self.both.reads, 990);
        if p99 > READ_P99_MAX {
            found.push(format!("one read of a hundred takes {} ms or longer", p99.0 / 1_000_000));
        }
        found
    }
}

/// Counts what ends between two moments.
struct Meter {
    from: Nanos,
    until: Nanos,
    bytes: Cell<u64>,
    took: RefCell<Vec<Nanos>>,
}

impl Meter {
    fn new(from: Nanos, until: Nanos) -> Rc<Meter> {
        Rc::new(Meter { from, until, bytes: Cell::new(0), took: RefCell::default() })
    }

    fn count(&self, began: Nanos, now: Nanos, len: u64) {
        if now >= self.from && now <= self.until {
            self.bytes.set(self.bytes.get() + len);
            self.took.borrow_mut().push(now.since(began));
        }
    }

    fn result(&self) -> (f64, Vec<Nanos>) {
        let mut took = self.took.take();
        took.sort_unstable();
        (per_second(self.bytes.get(), self.until.since(self.from)), took)
    }
}

/// Every mix: two writers and one reader, of large requests, of small ones, and of small ones anywhere; parity and
/// mirrors.
pub fn mixes() -> Vec<Mix> {
    let layouts = [(Resiliency::Parity { parity: 1 }, 3), (Resiliency::Parity { parity: 1 }, 5)]
        .into_iter()
        .chain([(Resiliency::Mirror { copies: 2 }, 1)]);
    let layouts = layouts.map(|(resiliency, columns)| {
        Layout::new(resiliency, columns, ByteCount::kib(256)).expect("these layouts are valid")
    });
    let mut mixes = Vec::new();
    for layout in layouts {
        let mix = |request: ByteCount, depth: u64, random: bool| Mix {
            class: CLASS,
            layout,
            writers: 2,
            reader: Client { request, depth },
            random,
            range: ByteCount::mib(512) * layout.data_columns() as u64,
            span: Nanos::secs(4),
        };
        mixes.extend([
            mix(ByteCount::mib(1), 4, false),
            mix(ByteCount::kib(64), 1, false),
            mix(ByteCount::kib(4), 1, true),
            mix(ByteCount::kib(64), 16, true),
        ]);
    }
    mixes
}

/// Runs a mix.
pub fn run(mix: &Mix) -> MixOutcome {
    let (layout, size) = (mix.layout, ByteCount(AREA * (mix.writers + 1)));
    let bench = Bench::of(&Shape {
        class: mix.class.clone(),
        disks: layout.slots(),
        layout,
        size,
        slab: SLAB_DEFAULT,
        log: LOG,
        tuning: Tuning::default(),
    });
    fill(&bench, mix);
    let reader = measure(&bench, mix, true, 0);
    let writers = measure(&bench, mix, false, mix.writers);
    let both = measure(&bench, mix, true, mix.writers);
    bench.world.halt();
    MixOutcome { mix: mix.clone(), reader, writers, both }
}

/// Writes what will be read.
fn fill(bench: &Bench, mix: &Mix) {
    let (vdisk, data) = (bench.vdisk.clone(), Rc::new(pattern(1, ByteCount::mib(1))));
    let one = move |at: u64| {
        let (vdisk, data) = (vdisk.clone(), data.clone());
        async move { vdisk.write(VirtualOffset(at), &data, false).await.expect("a sound pool takes writes") }
    };
    let (host, vdisk, len) = (bench.world.clone(), bench.vdisk.clone(), mix.range.0);
    block_on(&bench.world, async move {
        stream_at(&host, 0..len, 1 << 20, 8, one).await;
        vdisk.flush().await.expect("a sound pool flushes");
        host.sleep(Nanos::secs(20)).await;
    });
}

/// Runs a reader, if there is to be one, and `writers` writers, all at once.
fn measure(bench: &Bench, mix: &Mix, reads: bool, writers: u64) -> Seen {
    bench.pool.store().forget_streams(None);
    let from = Nanos(bench.world.now().0 + mix.span.0);
    let (read, written) = (Meter::new(from, Nanos(from.0 + mix.span.0)), Meter::new(from, Nanos(from.0 + mix.span.0)));
    let mut ends = Vec::new();
    if reads {
        start_reader(bench, mix, &read, &mut ends);
    }
    for writer in 1..=writers {
        start_writer(bench, writer, &written, &mut ends);
    }
    let (host, vdisk) = (bench.world.clone(), bench.vdisk.clone());
    block_on(&bench.world, async move {
        for end in ends {
            end.wait().await;
        }
        vdisk.flush().await.expect("a sound pool flushes");
        host.sleep(Nanos::secs(20)).await;
    });
    let ((read, reads), (written, writes)) = (read.result(), written.result());
    Seen { read, written, reads, writes }
}

type Ends = Vec<weft_engine::sync::Answer<()>>;

fn start_reader(bench: &Bench, mix: &Mix, meter: &Rc<Meter>, ends: &mut Ends) {
    let (next, rng) = (Rc::new(Cell::new(0)), Rc::new(RefCell::new(Rng::new(5))));
    let (len, range, random) = (mix.reader.request.0, mix.range.0, mix.random);
    for _ in 0..mix.reader.depth {
        let (ended, end): (Promise<()>, _) = promise();
        ends.push(end);
        let (world, vdisk, meter) = (bench.world.clone(), bench.vdisk.clone(), meter.clone());
        let (next, rng) = (next.clone(), rng.clone());
        let task = async move {
            let mut into = vec![0; len as usize];
            while world.now() < meter.until {
                let at = match random {
                    true => rng.borrow_mut().below(range / len) * len,
                    false => next.replace((next.get() + len) % (range / len * len)),
                };
                let began = world.now();
                vdisk.read(VirtualOffset(at), &mut into).await.expect("what was written can be read");
                meter.count(began, world.now(), len);
            }
            ended.keep(());
        };
        bench.world.spawn("reader", Box::pin(task));
    }
}

fn start_writer(bench: &Bench, writer: u64, meter: &Rc<Meter>, ends: &mut Ends) {
    let (next, len) = (Rc::new(Cell::new(writer * AREA)), WRITER.request.0);
    let data = Rc::new(pattern(writer, WRITER.request));
    for _ in 0..WRITER.depth {
        let (ended, end): (Promise<()>, _) = promise();
        ends.push(end);
        let (world, vdisk, meter) = (bench.world.clone(), bench.vdisk.clone(), meter.clone());
        let (next, data) = (next.clone(), data.clone());
        let task = async move {
            while world.now() < meter.until {
                let at = next.replace(next.get() + len);
                let began = world.now();
                vdisk.write(VirtualOffset(at), &data, false).await.expect("a sound pool takes writes");
                meter.count(began, world.now(), len);
            }
            ended.keep(());
        };
        bench.world.spawn("writer", Box::pin(task));
    }
}

/// How long the readers of the story below read, and the longest that the writer may take.
const READ_FOR: Nanos = Nanos::secs(60);
const WRITTEN_WITHIN: Nanos = Nanos::secs(20);

/// Readers that never rest, and a writer who wants the same disks and flushes at the end: it waits for them now and
/// then, and never long. What does not hold.
pub fn a_writer_beside_readers_that_never_rest() -> Option<String> {
    const READ: u64 = 1 << 20;
    let world = SimWorld::new(3, Scheduling::Random);
    let mut rng = world.rng("story");
    let layout = Layout::new(Resiliency::Parity { parity: 1 }, 3, ByteCount::kib(16)).expect("the layout is valid");
    let mut rig = Rig::of_kind(world.clone(), layout.slots(), ByteCount::mib(48), true);
    let tuning = Tuning { turn_bytes: 64 << 10, turn_time: Nanos::millis(20), ..Tuning::default() };
    rig.options = OpenOptions { tuning, ..OpenOptions::default() };
    rig.create(ByteCount::mib(1)).expect("a pool can be made");
    let pool = rig.open(&mut rng).expect("it opens");
    rig.make_vdisk(layout, ByteCount::mib(16), 4096, true).expect("there is room");
    let vdisk = pool.vdisk("vdisk").expect("it was just made");
    let until = Nanos(world.now().0 + READ_FOR.0);
    let (filler, host) = (vdisk.clone(), world.clone());
    rig.run(async move {
        filler.write(VirtualOffset(0), &vec![1; READ as usize], true).await.expect("it can be written");
        for reader in 0..4 {
            let (vdisk, world, mut rng) = (filler.clone(), host.clone(), Rng::new(reader));
            let read = async move {
                let mut into = vec![0; 4096];
                while world.now() < until {
                    vdisk.read(VirtualOffset(rng.below(READ / 4096) * 4096), &mut into).await.expect("it can be read");
                }
            };
            host.spawn("reader", Box::pin(read));
        }
    });
    let (writer, host) = (vdisk.clone(), world.clone());
    let took = rig.run(async move {
        let began = host.now();
        for at in (2 * READ..6 * READ).step_by(64 << 10) {
            writer.write(VirtualOffset(at), &vec![2; 64 << 10], false).await.expect("it can be written");
        }
        writer.flush().await.expect("it can be flushed");
        host.now().since(began)
    });
    let held = pool.store().traffic.turns.held.get();
    // Nobody reads from a pool that is closed.
    world.run_until(READ_FOR, || false);
    drop((vdisk, pool));
    rig.close().expect("the pool closes");
    if took > WRITTEN_WITHIN {
        return Some(format!("4 MiB took {} ms beside readers", took.0 / 1_000_000));
    }
    (held == 0).then(|| "no run of stripes has waited for reads".into())
}

/// The heading of a table of [`MixOutcome`]s.
pub const HEADING: &str = concat!(
    "layout                                    writers  reader           alone MB/s: reads  writes",
    "    together: reads  writes    shares: reads  writes    read ms: p50  p99  most    write ms: p99  most"
);

impl fmt::Display for MixOutcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Mix { layout, writers, reader, random, .. } = &self.mix;
        let order = if *random { "anywhere" } else { "in order" };
        let reader = format!("{} q{} {order}", reader.request, reader.depth);
        write!(f, "{:42} {writers:6}  {reader:20}", layout.to_string())?;
        let mb = |rate: f64| rate / 1e6;
        write!(f, " {:13.1} {:7.1}", mb(self.reader.read), mb(self.writers.written))?;
        write!(f, " {:18.1} {:7.1}", mb(self.both.read), mb(self.both.written))?;
        let (read, written) = self.shares();
        write!(f, " {read:16.3} {written:7.3}")?;
        let ms = |took: Nanos| took.0 as f64 / 1e6;
        let [p50, p99, most] = [500, 990, 1000].map(|part| ms(quantile(&self.both.reads, part)));
        write!(f, " {p50:15.1} {p99:5.0} {most:5.0}")?;
        let [p99, most] = [990, 1000].map(|part| ms(quantile(&self.both.writes, part)));
        write!(f, " {p99:15.0} {most:5.0}")
    }
}
