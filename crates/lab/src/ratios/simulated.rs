//! The measurement of one layout on disks of one class, in virtual time.

use super::{Random, Ratios};
use crate::disks::Class;
use crate::spaces::array::Kind;
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use weft_engine::format::record::Media;
use weft_engine::geometry::Layout;
use weft_engine::io::{Buf, Disk};
use weft_engine::limits::SLAB_DEFAULT;
use weft_engine::store::{Tuning, join};
use weft_engine::units::{BLOCK, ByteCount, DiskNo, DiskOffset, Nanos, VirtualOffset};
use weft_engine::world::World;
use weft_sim::disk::SimDisk;
use weft_sim::random_writes::{self, Load, SERVED_SHARE};
use weft_sim::rebuild;
use weft_sim::rng::Rng;
use weft_sim::streams::{Bench, Case, LOG, Shape};
use weft_sim::world::{Scheduling, SimWorld};

/// Bytes that each disk gets in a measurement, and that are read from each.
const PER_DISK: ByteCount = ByteCount::mib(192);
/// Requests of a client of streams.
const REQUEST: ByteCount = ByteCount::mib(1);
/// Requests of a client that it has under way while a disk is rebuilt.
const DEPTH: u64 = 16;
/// Random reads in flight for each disk, and how many of them are measured.
const READS: (u64, u64) = (8, 400);
/// Random writes between two flushes, and for how long they go on.
const WRITES: (u64, Nanos) = (32, Nanos::secs(25));

/// How long random writes go on before a rebuild beside them begins: until the log is full.
const WARM_UP: Nanos = Nanos::secs(10);

/// What a client does.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    /// Reads a stream.
    Read,
    /// Writes a stream.
    Write,
    /// Reads 4 KiB anywhere, 8 at once for each disk.
    ReadAnywhere,
    /// Writes 4 KiB anywhere, and flushes after 32 of them.
    WriteAnywhere,
}

/// Measures a layout on as many simulated disks as it takes; none where the class is of shingled disks.
pub fn simulate(layout: Layout, class: Class) -> Option<Ratios> {
    let (kind, quick) = (kind_of(class)?, simulate_quickly(layout, class)?);
    let layout = with_interleave_for(layout, &kind);
    let most = one_disk(&kind, class) * layout.data_columns() as f64;
    let [rebuilding, rebuilding_write] = match layout.failures() {
        0 => [0.0; 2],
        _ => [Way::Read, Way::Write].map(|way| while_rebuilding(&kind, layout, way) / most),
    };
    let (packed_write, write_p99) = random_writes_of(&kind, layout, false).unwrap_or_default();
    let packed_write = packed_write / raw_random_reads(&kind);
    Some(Ratios { rebuilding, rebuilding_write, packed_write, write_p99, ..quick })
}

/// Measures what takes a second or two: nothing that is rebuilt meanwhile, and no random writes.
pub fn simulate_quickly(layout: Layout, class: Class) -> Option<Ratios> {
    let kind = kind_of(class)?;
    let layout = with_interleave_for(layout, &kind);
    let most = one_disk(&kind, class) * layout.data_columns() as f64;
    let (bench, case) = bench_of(&kind, layout, 0, Tuning::default());
    let write = bench.pass(case, 1.0, 1).rate / most;
    let read = bench.read(case) / most;
    let (reads, read_p99) = random_reads(&bench, layout);
    let random_read = reads / (raw_random_reads(&kind) * layout.slots() as f64);
    let (mut degraded, mut degraded_write) = (0.0, 0.0);
    if layout.failures() > 0 {
        lose_a_disk(&bench);
        degraded = bench.read(case) / most;
        degraded_write = bench.pass(case, 1.0, 2).rate / most;
    }
    bench.world.halt();
    Some(Ratios { write, read, degraded, degraded_write, random_read, read_p99, ..Ratios::default() })
}

/// Measures random requests with a disk missing, and while it is rebuilt, beside what they are with all disks; none
/// where no disk may be missing.
pub fn simulate_random(layout: Layout, class: Class) -> Option<Random> {
    let kind = kind_of(class).filter(|_| layout.failures() > 0)?;
    let layout = with_interleave_for(layout, &kind);
    let (bench, case) = bench_of(&kind, layout, 0, Tuning::default());
    bench.pass(case, 1.0, 1);
    let (reads, _) = random_reads(&bench, layout);
    lose_a_disk(&bench);
    let (degraded, _) = random_reads(&bench, layout);
    bench.world.halt();
    let (writes, _) = random_writes_of(&kind, layout, false)?;
    let (degraded_writes, _) = random_writes_of(&kind, layout, true)?;
    let rebuilding = |way| while_rebuilding(&kind, layout, way) / BLOCK as f64;
    Some(Random {
        degraded_read: degraded / reads,
        rebuilding_read: rebuilding(Way::ReadAnywhere) / reads,
        degraded_write: degraded_writes / writes,
        rebuilding_write: rebuilding(Way::WriteAnywhere) / writes,
    })
}

/// Takes a disk away, and waits until that was noticed: how long it takes is no matter of the layout. What is read for
/// it is little, as disks remember what they have just read.
fn lose_a_disk(bench: &Bench) {
    bench.disks[0].vanish();
    let (host, vdisk) = (bench.world.clone(), bench.vdisk.clone());
    let noticed = bench.world.block_on(async move {
        let mut some = vec![0; REQUEST.as_usize() * 4];
        vdisk.read(VirtualOffset(0), &mut some).await.expect("a pool with one disk less serves");
        host.sleep(Nanos::secs(20)).await;
    });
    noticed.expect("it ends");
}

/// The model of a class, if the engine can be measured on it in reasonable time.
fn kind_of(class: Class) -> Option<Kind> {
    match class.kind() {
        kind @ (Kind::Hdd(_) | Kind::Ssd(_)) => Some(kind),
        Kind::Smr(_) | Kind::Waits(_) => None,
    }
}

/// The rate of one disk where a measurement puts its data, that shares are of.
fn one_disk(kind: &Kind, class: Class) -> f64 {
    match kind {
        Kind::Hdd(class) => class.outer_rate as f64,
        _ => class.raw().sequential,
    }
}

/// The layout with the interleave that weft chooses for such disks.
fn with_interleave_for(layout: Layout, kind: &Kind) -> Layout {
    let interleave = if kind.shape().rotational { ByteCount::kib(256) } else { ByteCount::kib(64) };
    Layout::new(layout.resiliency(), layout.columns() as u8, interleave).expect("both interleaves are valid")
}

/// A pool of as many disks as a layout takes and `more`, with one virtual disk, and the stream it is measured with.
fn bench_of(kind: &Kind, layout: Layout, more: usize, tuning: Tuning) -> (Bench, Case) {
    let shape = Shape {
        class: weft_sim::streams::CLASS,
        disks: layout.slots() + more,
        layout,
        size: ByteCount::gib(4) * layout.data_columns() as u64,
        slab: SLAB_DEFAULT,
        log: LOG,
        tuning,
    };
    let world = SimWorld::new(1, Scheduling::Fifo);
    let disks = (0..shape.disks).map(|nth| SimDisk::new(&world, kind.shape(), kind.timing_among(nth))).collect();
    let media = if kind.shape().rotational { Media::Hdd } else { Media::Ssd };
    let bench = Bench::on(world, disks, media, &shape);
    // Each copy of what a mirror holds is to be read for a while.
    let per_disk = PER_DISK * layout.copies() as u64;
    (bench, Case { layout, request: REQUEST, per_disk, flush_stripes: None })
}

/// Bytes per second of clients that go on while a lost disk is rebuilt onto one that had nothing.
fn while_rebuilding(kind: &Kind, layout: Layout, way: Way) -> f64 {
    // Metadata finds a third disk, too.
    let more = 4_usize.saturating_sub(layout.slots()).max(1);
    let fine_share = if way == Way::WriteAnywhere { SERVED_SHARE } else { 0 };
    let (bench, case) = bench_of(kind, layout, more, Tuning { auto_jobs: false, fine_share, ..Tuning::default() });
    bench.pass(case, 1.0, 1);
    let victim = rebuild::a_disk_with_data(&bench);
    bench.disks[victim].vanish();
    bench.pool.store().disk_lost(DiskNo(victim as u16), "it was pulled");
    let clients = Rc::new(Clients::default());
    clients.start(&bench, layout, way);
    if way == Way::WriteAnywhere {
        let host = bench.world.clone();
        bench.world.block_on(async move { host.sleep(WARM_UP).await }).expect("it ends");
    }
    let before = clients.done.get();
    let took = rebuild::repair(&bench);
    let done = clients.done.get() - before;
    bench.world.halt();
    done as f64 * 1e9 / took.0 as f64
}

/// Clients that go on for ever.
#[derive(Default)]
struct Clients {
    /// Bytes that they read or wrote.
    done: Cell<u64>,
    /// Where the next request of a stream goes.
    next: Cell<u64>,
}

impl Clients {
    fn start(self: &Rc<Clients>, bench: &Bench, layout: Layout, way: Way) {
        let total = PER_DISK.0 * layout.data_columns() as u64;
        let count = match way {
            Way::Read | Way::Write => DEPTH,
            Way::ReadAnywhere => READS.0 * layout.slots() as u64,
            Way::WriteAnywhere => 1,
        };
        for nth in 0..count {
            let (clients, vdisk) = (self.clone(), bench.vdisk.clone());
            let client = async move {
                let mut rng = Rng::new(nth + 1);
                let mut stream = vec![1; REQUEST.as_usize()];
                let mut block = vec![1; BLOCK as usize];
                loop {
                    let in_order = VirtualOffset(clients.next.replace((clients.next.get() + REQUEST.0) % total));
                    let anywhere: Vec<u64> = (0..WRITES.0).map(|_| rng.below(total / BLOCK) * BLOCK).collect();
                    let moved = match way {
                        Way::Read => vdisk.read(in_order, &mut stream).await.map(|()| REQUEST.0),
                        Way::Write => vdisk.write(in_order, &stream, false).await.map(|()| REQUEST.0),
                        Way::ReadAnywhere => vdisk.read(VirtualOffset(anywhere[0]), &mut block).await.map(|()| BLOCK),
                        Way::WriteAnywhere => {
                            let write = |at: &u64| vdisk.write(VirtualOffset(*at), &block, false);
                            let written: Result<(), _> = join(anywhere.iter().map(write)).await.into_iter().collect();
                            written.expect("a sound pool takes writes");
                            vdisk.flush().await.map(|()| WRITES.0 * BLOCK)
                        }
                    };
                    clients.done.set(clients.done.get() + moved.expect("a pool with one disk less serves"));
                }
            };
            bench.world.spawn("client", Box::pin(client));
        }
    }
}

/// Random writes of 4 KiB per second that last, and how long 99 of 100 rounds take at most, in milliseconds.
fn random_writes_of(kind: &Kind, layout: Layout, without_one: bool) -> Option<(f64, f64)> {
    if !kind.shape().rotational {
        return None;
    }
    let (bench, fill) = bench_of(kind, layout, 0, Tuning { fine_share: SERVED_SHARE, ..Tuning::default() });
    bench.pass(fill, 1.0, 1);
    if without_one {
        bench.disks[0].vanish();
    }
    let random = random_writes::on_bench(
        &bench,
        Load {
            fill,
            len: ByteCount::kib(4),
            per_flush: WRITES.0,
            span: WRITES.1,
            fine_share: SERVED_SHARE,
            cached_on: 0,
        },
    );
    bench.world.halt();
    Some((random.lasting(), random.round().0.0 as f64 / 1e6))
}

/// Random reads of 4 KiB per second of what a measurement wrote, and how long 99 of 100 take at most, in milliseconds.
fn random_reads(bench: &Bench, layout: Layout) -> (f64, f64) {
    let blocks = PER_DISK.0 * layout.data_columns() as u64 / 2 / BLOCK;
    let readers = READS.0 * layout.slots() as u64;
    let (host, vdisk) = (bench.world.clone(), bench.vdisk.clone());
    let times: Rc<RefCell<Vec<u64>>> = Rc::default();
    let noted = times.clone();
    let took = bench.world.block_on(async move {
        let start = host.now();
        let reader = |nth: u64| {
            let (vdisk, host, noted, mut rng) = (vdisk.clone(), host.clone(), noted.clone(), Rng::new(nth + 1));
            async move {
                for _ in 0..READS.1 / READS.0 {
                    let mut into = vec![0; BLOCK as usize];
                    let at = VirtualOffset((blocks / 2 + rng.below(blocks)) * BLOCK);
                    let began = host.now();
                    vdisk.read(at, &mut into).await.expect("what was written can be read");
                    noted.borrow_mut().push(host.now().since(began).0);
                }
            }
        };
        join((0..readers).map(reader)).await;
        host.now().since(start)
    });
    let mut times = times.take();
    times.sort_unstable();
    let p99 = times[times.len() * 99 / 100] as f64 / 1e6;
    (times.len() as f64 * 1e9 / took.expect("it ends").0 as f64, p99)
}

/// Measures one disk alone, over as many bytes.
fn raw_random_reads(kind: &Kind) -> f64 {
    let world = SimWorld::new(1, Scheduling::Fifo);
    let disk = SimDisk::new(&world, kind.shape(), kind.timing());
    let host = world.clone();
    let took = world.block_on(async move {
        let start = host.now();
        let reader = |nth: u64| {
            let (disk, mut rng) = (disk.clone(), Rng::new(nth + 1));
            async move {
                for _ in 0..READS.1 / READS.0 {
                    let at = DiskOffset(ByteCount::gib(2).0 + rng.below(PER_DISK.0 / BLOCK) * BLOCK);
                    disk.read(at, Buf::zeroed(BLOCK as usize)).await.expect("a sound disk can be read");
                }
            }
        };
        join((0..READS.0).map(reader)).await;
        host.now().since(start)
    });
    READS.1 as f64 * 1e9 / took.expect("it ends").0 as f64
}
