//! Rebuilding one lost disk on simulated hard disks: how long it takes beside a classic spare, what it reads and
//! writes, and what clients notice. Virtual time is exact, so the figures are the same on every machine.
//!
//! The disks are small, so that a run is short, but whole: [`small`] keeps the mechanics of the class and shrinks its
//! platters. All zones are used, and an arm that crosses the disk crosses all of it.
//!
//! The classic rebuild is the best that one spare disk can do: the bytes that the lost disk held, written in one
//! sequential stream from its first slab on; what the others read meanwhile costs nothing.

use crate::disk::SimDisk;
use crate::rng::Rng;
use crate::streams::{Bench, CLASS, Shape, block_on, pattern, per_second, stream};
use crate::timing::{Hdd, HddClass};
use crate::world::{Scheduling, SimWorld};
use std::cell::Cell;
use std::fmt;
use std::rc::Rc;
use weft_engine::format::label::DiskPlan;
use weft_engine::format::record::{JobKind, JobState, OWNER_METADATA, SettingsRecord};
use weft_engine::geometry::{Layout, Resiliency};
use weft_engine::io::{Buf, Disk};
use weft_engine::store::Tuning;
use weft_engine::units::{ByteCount, DiskNo, Nanos, VirtualOffset};
use weft_engine::world::World;

/// Bytes of a request of the fill, and of the classic stream.
const REQUEST: ByteCount = ByteCount::mib(1);

/// What is to be lost and rebuilt.
#[derive(Clone, Copy, Debug)]
pub struct Case {
    /// Disks of the pool, all alike.
    pub disks: usize,
    /// Bytes of each.
    pub capacity: ByteCount,
    /// Bytes of a slab.
    pub slab: ByteCount,
    /// Layout of the one virtual disk.
    pub layout: Layout,
    /// Bytes of user data.
    pub data: ByteCount,
    /// What clients do meanwhile.
    pub clients: Option<Clients>,
}

/// Clients that read at random places.
#[derive(Clone, Copy, Debug)]
pub struct Clients {
    /// Requests under way.
    pub depth: u64,
    /// Bytes of one.
    pub request: ByteCount,
    /// What jobs leave them, in percent.
    pub share: u8,
}

/// What came of it.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// What was run.
    pub case: Case,
    /// Bytes in use on the lost disk.
    pub lost: ByteCount,
    /// From the order to repair to its end.
    pub took: Nanos,
    /// The classic rebuild.
    pub classic: Nanos,
    /// Bytes that the other disks read meanwhile, and wrote; metadata and log included.
    pub read: ByteCount,
    /// Bytes that the rebuild wrote.
    pub written: ByteCount,
    /// The most that one of them read and wrote, over the mean.
    pub uneven: f64,
    /// What clients read per second, if there were any: with all disks, without the lost one, and during the rebuild.
    pub clients: Option<[f64; 3]>,
}

/// A disk of `capacity` with the mechanics of [`CLASS`].
pub fn small(capacity: ByteCount) -> HddClass {
    HddClass { capacity, ..CLASS }
}

/// The layout of the tables: single parity on five columns.
pub fn four_and_one(interleave: ByteCount) -> Layout {
    Layout::new(Resiliency::Parity { parity: 1 }, 5, interleave).expect("this layout is valid")
}

/// Pools of 6, 12 and 24 disks of 8 GiB with `per_disk` of raw data on each, in 64 slabs.
pub fn by_disks(per_disk: ByteCount, clients: Option<Clients>) -> impl Iterator<Item = Case> {
    let layout = four_and_one(ByteCount::kib(256));
    [6, 12, 24].into_iter().map(move |disks| {
        let raw = per_disk.0 * disks as u64;
        let data = ByteCount(raw / layout.slots() as u64 * layout.data_columns() as u64 / REQUEST.0 * REQUEST.0);
        Case { disks, capacity: ByteCount::gib(8), slab: ByteCount(per_disk.0 / 64), layout, data, clients }
    })
}

/// Six disks of 1 TB that hold `data` only.
pub fn little(data: ByteCount) -> Case {
    let layout = four_and_one(ByteCount::kib(256));
    let capacity = ByteCount(1_000_000_000_000 / 4096 * 4096);
    Case { disks: 6, capacity, slab: ByteCount::mib(64), layout, data, clients: None }
}

/// Runs a case. Panics if the pool is not whole again afterwards, or does not read as it was written with yet another
/// disk gone.
pub fn run(case: Case) -> Outcome {
    let bench = fill(case);
    let load = case.clients.map(|clients| Load::new(&bench, case, clients));
    let span = Nanos::secs(5);
    let healthy = load.as_ref().map(|load| load.rate_over(&bench, span));

    let store = bench.pool.store().clone();
    let victim = a_disk_with_data(&bench);
    bench.disks[victim].vanish();
    store.disk_lost(DiskNo(victim as u16), "it was pulled");
    let lost = bench.pool.unsound_bytes();
    let degraded = load.as_ref().map(|load| load.rate_over(&bench, span));

    let before = seen(&bench, victim);
    let read_before = load.as_ref().map(Load::bytes);
    let took = repair(&bench);
    let during = load.as_ref().map(|load| per_second(load.bytes() - read_before.unwrap_or(0), took));
    let work: Vec<(u64, u64)> = seen(&bench, victim)
        .into_iter()
        .zip(before)
        .map(|(after, before)| (after.0 - before.0, after.1 - before.1))
        .collect();

    if let Some(load) = &load {
        load.stop(&bench);
    }
    prove(&bench, case, victim);
    bench.world.halt();
    let all: u64 = work.iter().map(|(read, written)| read + written).sum();
    let most = work.iter().map(|(read, written)| read + written).max().unwrap_or(0);
    Outcome {
        case,
        lost,
        took,
        classic: classic(case, lost),
        read: ByteCount(work.iter().map(|(read, _)| read).sum()),
        written: ByteCount(work.iter().map(|(_, written)| written).sum()),
        uneven: most as f64 * (case.disks - 1) as f64 / all as f64,
        clients: healthy.zip(degraded).zip(during).map(|((healthy, degraded), during)| [healthy, degraded, during]),
    }
}

/// The time one disk takes to write `lost` bytes one after the other.
fn classic(case: Case, lost: ByteCount) -> Nanos {
    let world = SimWorld::new(1, Scheduling::Fifo);
    let class = small(case.capacity);
    let disk = SimDisk::new(&world, class.shape(class.capacity), Box::new(Hdd::new(class.clone())));
    let plan = DiskPlan::new(case.capacity, case.slab, Some(log_len(case.capacity)));
    let data_at = plan.expect("the disk is large enough").data_at;
    let slice = Buf::copy_of(&pattern(1, REQUEST)).freeze();
    let host = world.clone();
    block_on(&world, async move {
        let start = host.now();
        let writer = disk.clone();
        let one = move |at: u64| {
            let (disk, slice) = (writer.clone(), slice.clone());
            async move { disk.write(data_at + ByteCount(at), vec![slice]).await.expect("a sound disk works") }
        };
        stream(&host, 0..lost.0 / REQUEST.0 * REQUEST.0, REQUEST.0, one).await;
        disk.flush().await.expect("a sound disk works");
        host.now().since(start)
    })
}

/// A pool with the data of the case, at rest.
fn fill(case: Case) -> Bench {
    let tuning = Tuning { auto_jobs: false, ..Tuning::default() };
    let bench = Bench::of(&Shape {
        class: small(case.capacity),
        disks: case.disks,
        layout: case.layout,
        size: ByteCount::gib(1024),
        slab: case.slab,
        log: log_len(case.capacity),
        tuning,
    });
    let (vdisk, pool, host) = (bench.vdisk.clone(), bench.pool.clone(), bench.world.clone());
    block_on(&bench.world, async move {
        let writer = vdisk.clone();
        let one = move |at: u64| {
            let vdisk = writer.clone();
            async move {
                let data = pattern(word_at(at), REQUEST);
                vdisk.write(VirtualOffset(at), &data, false).await.expect("a sound pool takes writes")
            }
        };
        stream(&host, 0..case.data.0, REQUEST.0, one).await;
        vdisk.flush().await.expect("a sound pool flushes");
        pool.checkpoint().await.expect("a sound pool takes checkpoints");
        let share = case.clients.map_or(0, |clients| clients.share);
        let settings = SettingsRecord { foreground_share: share, ..pool.settings() };
        pool.set(settings).await.expect("these settings are allowed");
    });
    bench
}

/// The disk of the first slot of the first segment with data.
pub fn a_disk_with_data(bench: &Bench) -> usize {
    let map = bench.pool.store().map.borrow();
    let first = map.segments.values().find(|segment| segment.record.owner != OWNER_METADATA);
    first.and_then(|segment| segment.slab(0)).expect("something was written, and it has a place").disk.0 as usize
}

/// Repairs what a lost disk had; the time it took.
pub fn repair(bench: &Bench) -> Nanos {
    let (pool, host) = (bench.pool.clone(), bench.world.clone());
    block_on(&bench.world, async move {
        let start = host.now();
        let job = pool.job_start(JobKind::Repair, 0).await.expect("a repair can be begun");
        let ended = pool.job_wait(job).await.expect("a repair ends");
        assert_eq!(ended.state, JobState::Done, "{ended:?}");
        host.now().since(start)
    })
}

/// Every slot is sound, and a part of the data reads back although one more disk is gone.
fn prove(bench: &Bench, case: Case, victim: usize) {
    assert_eq!(bench.pool.unsound_bytes(), ByteCount::ZERO, "nothing is left to repair");
    bench.disks[(victim + 1) % case.disks].vanish();
    let vdisk = bench.vdisk.clone();
    let places: Vec<u64> = (0..64).map(|no| case.data.0 / REQUEST.0 * no / 64 * REQUEST.0).collect();
    block_on(&bench.world, async move {
        for at in places {
            let mut into = vec![0; REQUEST.as_usize()];
            vdisk.read(VirtualOffset(at), &mut into).await.expect("what was written can be read");
            assert!(into == pattern(word_at(at), REQUEST), "the bytes at {at} are others than were written");
        }
    });
}

/// Bytes read and written so far by every disk but the lost one.
fn seen(bench: &Bench, victim: usize) -> Vec<(u64, u64)> {
    let others = bench.disks.iter().enumerate().filter(|(no, _)| *no != victim);
    others.map(|(_, disk)| (disk.stats().read_bytes.0, disk.stats().written_bytes.0)).collect()
}

fn word_at(at: u64) -> u64 {
    at / REQUEST.0 + 1
}

fn log_len(capacity: ByteCount) -> ByteCount {
    // What the engine chooses, in whole MiB.
    ByteCount((capacity.0 / 32).clamp(1 << 20, 1 << 30) >> 20 << 20)
}

/// Readers that go on until they are told to stop.
struct Load {
    bytes: Rc<Cell<u64>>,
    stopped: Rc<Cell<bool>>,
    running: Rc<Cell<u64>>,
}

impl Load {
    fn new(bench: &Bench, case: Case, clients: Clients) -> Load {
        let load = Load { bytes: Rc::default(), stopped: Rc::default(), running: Rc::new(Cell::new(clients.depth)) };
        for no in 0..clients.depth {
            let (bytes, stopped, running) = (load.bytes.clone(), load.stopped.clone(), load.running.clone());
            let (vdisk, mut rng) = (bench.vdisk.clone(), Rng::new(no + 1));
            let task = async move {
                let mut into = vec![0; clients.request.as_usize()];
                while !stopped.get() {
                    let at = VirtualOffset(rng.below(case.data.0 / clients.request.0) * clients.request.0);
                    vdisk.read(at, &mut into).await.expect("what was written can be read");
                    bytes.set(bytes.get() + clients.request.0);
                }
                running.set(running.get() - 1);
            };
            bench.world.spawn("client", Box::pin(task));
        }
        load
    }

    fn bytes(&self) -> u64 {
        self.bytes.get()
    }

    /// Bytes per second over the next `span`.
    fn rate_over(&self, bench: &Bench, span: Nanos) -> f64 {
        let (host, before) = (bench.world.clone(), self.bytes());
        block_on(&bench.world, async move { host.sleep(span).await });
        per_second(self.bytes() - before, span)
    }

    fn stop(&self, bench: &Bench) {
        self.stopped.set(true);
        let (host, running) = (bench.world.clone(), self.running.clone());
        block_on(&bench.world, async move {
            while running.get() > 0 {
                host.sleep(Nanos::millis(1)).await;
            }
        });
    }
}

/// The heading of a table of [`Outcome`]s.
pub const HEADING: &str =
    "disks  on the lost disk     took   MB/s  classic  ratio  bytes read  bytes written  busiest disk over mean";

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (took, classic) = (self.took.0 as f64 / 1e9, self.classic.0 as f64 / 1e9);
        let mib = |bytes: ByteCount| format!("{} MiB", bytes.0 >> 20);
        write!(
            f,
            "{:5}  {:>16} {took:7.1}s {:6.0} ",
            self.case.disks,
            mib(self.lost),
            per_second(self.lost.0, self.took) / 1e6
        )?;
        write!(f, "{classic:7.1}s {:6.2}  {:>10} {:>14}", took / classic, mib(self.read), mib(self.written))?;
        write!(f, "  {:.2}", self.uneven)?;
        if let Some(rates) = self.clients {
            let [healthy, degraded, during] = rates.map(|rate| rate / 1e6);
            write!(f, "  clients MB/s: {healthy:.1} {degraded:.1} {during:.1}")?;
        }
        Ok(())
    }
}
