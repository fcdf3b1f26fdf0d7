//! A pool on simulated disks: what the storm, the exhaustive search and the stories share.

use crate::disk::SimDisk;
use crate::rng::Rng;
use crate::timing::{Latencies, Random, Timing};
use crate::world::SimWorld;
use std::rc::Rc;
use weft_engine::disk_set::DiskSet;
use weft_engine::error::Result;
use weft_engine::format::Id;
use weft_engine::format::record::Media;
use weft_engine::geometry::{Layout, Resiliency};
use weft_engine::io::{Disk, DiskShape};
use weft_engine::limits::BATCH_MAX;
use weft_engine::pool::create::create;
use weft_engine::pool::{NewDisk, OpenOptions, Pool, PoolOptions, VdiskSpec};
use weft_engine::units::{ByteCount, Nanos};
use weft_engine::world::World;

/// Virtual time after which something that should have ended counts as hung.
pub const TIMEOUT: Nanos = Nanos::secs(3600);

/// Bounds of batches that wefts have; 0: none.
const BOUNDS: [u64; 4] = [0, 16 << 10, 64 << 10, BATCH_MAX.0];

/// Disks in a world, and the pool on them while it is open.
pub struct Rig {
    /// Clock and scheduler.
    pub world: SimWorld,
    /// The disks, by number.
    pub disks: Vec<SimDisk>,
    /// The pool.
    pub pool: Option<Rc<Pool>>,
    /// How it is opened.
    pub options: OpenOptions,
    /// How many of the disks a new pool is made of: the first ones.
    pub members: usize,
    /// The log's size; none: as the engine chooses it.
    pub log_len: Option<ByteCount>,
    /// Whether the pool gets handles that stay dead once their disk was gone; see [`SimDisk::plugged`].
    pub plugged: bool,
    /// Whether each opening bounds batches of the log otherwise, or not at all, as wefts of several ages.
    pub any_bound: bool,
    /// Runs of stripes that waited for reads, in all openings until now.
    pub held: u64,
}

impl Rig {
    /// `count` blank disks of `capacity` bytes with random latencies.
    pub fn new(world: SimWorld, count: usize, capacity: ByteCount) -> Rig {
        Rig::of_kind(world, count, capacity, false)
    }

    /// `count` blank disks; whether they say that they seek is drawn, and wefts of several ages open the pool.
    pub fn of_any_kind(world: SimWorld, count: usize, capacity: ByteCount) -> Rig {
        let rotational = world.rng("rotational").chance(0.5);
        Rig { any_bound: true, ..Rig::of_kind(world, count, capacity, rotational) }
    }

    /// `count` blank disks. `rotational`: they say that they seek.
    pub fn of_kind(world: SimWorld, count: usize, capacity: ByteCount, rotational: bool) -> Rig {
        let shape = DiskShape { capacity, physical_sector: 512, rotational };
        let timing = |no: usize| -> Box<dyn Timing> {
            Box::new(Random::new(Latencies::default(), world.rng(&format!("timing {no}"))))
        };
        let disks = (0..count).map(|no| SimDisk::new(&world, shape, timing(no))).collect();
        Rig::with_disks(world, disks)
    }

    /// A rig of these disks.
    pub fn with_disks(world: SimWorld, disks: Vec<SimDisk>) -> Rig {
        let members = disks.len();
        Rig {
            world,
            disks,
            pool: None,
            options: OpenOptions::default(),
            members,
            log_len: None,
            plugged: false,
            any_bound: false,
            held: 0,
        }
    }

    /// Runs `future` to its end in virtual time; a hang is a panic that says what runs.
    pub fn run<T: 'static>(&self, future: impl Future<Output = T> + 'static) -> T {
        match self.world.block_on_within(TIMEOUT, future) {
            Ok(value) => value,
            Err(stop) => panic!(
                "it never ended ({stop:?}); spinning: {:?}; still there: {:?}",
                self.world.spinning(),
                self.world.tasks()
            ),
        }
    }

    /// Makes a pool named `pool` of the first [`Rig::members`] disks.
    pub fn create(&self, slab: ByteCount) -> Result<()> {
        let disks = self.disks[..self.members].iter().enumerate().map(|(no, disk)| NewDisk {
            disk: Rc::new(disk.clone()),
            id: id_of(no),
            name: format!("d{no}"),
            media: Media::Ssd,
        });
        let disks: Vec<NewDisk> = disks.collect();
        let options = PoolOptions { id: Id([0xEE; 16]), name: "pool".into(), slab, log_len: self.log_len };
        self.run(async move { create(disks, &options).await })
    }

    /// Opens the pool with the disks that are there, in an order that `rng` chooses.
    pub fn open(&mut self, rng: &mut Rng) -> Result<Rc<Pool>> {
        let opening = self.opening(rng);
        let pool = self.run(opening)?;
        self.pool = Some(pool.clone());
        Ok(pool)
    }

    /// The opening of the pool as a future, so that a crash can come in its midst.
    pub fn opening(&self, rng: &mut Rng) -> impl Future<Output = Result<Rc<Pool>>> + use<> {
        let mut disks: Vec<Rc<dyn Disk>> = self
            .disks
            .iter()
            .filter(|disk| !disk.is_gone())
            .map(|disk| if self.plugged { disk.plugged() } else { Rc::new(disk.clone()) as Rc<dyn Disk> })
            .collect();
        for at in (1..disks.len()).rev() {
            disks.swap(at, rng.below(at as u64 + 1) as usize);
        }
        let world: Rc<dyn World> = Rc::new(self.world.clone());
        let mut options = OpenOptions { lineage: rng.next_u64() | 1, ..self.options };
        if self.any_bound {
            options.tuning.batch_bytes = BOUNDS[(options.lineage >> 8) as usize % BOUNDS.len()];
        }
        Pool::open(world, disks, options)
    }

    /// How many requests the disks have had.
    pub fn requests(&self) -> u64 {
        requests_to(&self.disks)
    }

    /// Has disk `no` answer nothing for `span` from the request `nth` of all disks on, counted from now.
    pub fn slow_from(&self, no: usize, nth: u64, span: Nanos) {
        let (world, disks, first) = (self.world.clone(), self.disks.clone(), self.requests() + nth);
        let turns_slow = async move {
            while requests_to(&disks) < first {
                world.sleep(Nanos(10_000)).await;
            }
            disks[no].stall(span);
        };
        self.world.spawn("turns slow", Box::pin(turns_slow));
    }

    /// The open pool.
    pub fn pool(&self) -> Rc<Pool> {
        self.pool.clone().expect("the pool is open")
    }

    /// Makes the virtual disk `vdisk` of the open pool.
    pub fn make_vdisk(&self, layout: Layout, size: ByteCount, sector: u32, fixed: bool) -> Result<()> {
        self.make_vdisk_named("vdisk", layout, size, sector, fixed)
    }

    /// Makes the virtual disk `name` of the open pool.
    pub fn make_vdisk_named(
        &self,
        name: &str,
        layout: Layout,
        size: ByteCount,
        sector: u32,
        fixed: bool,
    ) -> Result<()> {
        let pool = self.pool();
        let spec = VdiskSpec {
            name: name.into(),
            size,
            resiliency: layout.resiliency(),
            columns: Some(layout.columns() as u8),
            interleave: Some(layout.interleave()),
            fixed,
            sector,
            disks: DiskSet::EMPTY,
        };
        self.run(async move { pool.vdisk_create(&spec).await.map(|_| ()) })
    }

    /// Stops the engine where it is, as a kill or a power cut does. The disks have to be told which it was.
    pub fn halt(&mut self) {
        self.forget_pool();
        self.world.halt();
    }

    fn forget_pool(&mut self) {
        self.held += self.pool.take().map_or(0, |pool| pool.store().traffic.turns.held.get());
    }

    /// A power cut: the engine stops, each disk loses what it will of its cache.
    pub fn power_cut(&mut self, rng: &mut Rng) {
        self.halt();
        self.disks.iter().for_each(|disk| disk.power_cut(rng));
    }

    /// Closes the pool as a clean stop does.
    pub fn close(&mut self) -> Result<()> {
        let pool = self.pool();
        let released = pool.clone();
        let closed = self.run(async move { pool.close().await });
        drop(released.release());
        self.forget_pool();
        self.world.run_until_idle(self.world.now() + TIMEOUT);
        closed
    }
}

/// The identity of disk `no`, other for each of the disks that a pool may have.
pub fn id_of(no: usize) -> Id {
    let mut id = [(no % 250) as u8 + 1; 16];
    if no >= 250 {
        id[15] = 0;
    }
    Id(id)
}

fn requests_to(disks: &[SimDisk]) -> u64 {
    let of = |disk: &SimDisk| {
        let stats = disk.stats();
        stats.reads + stats.writes + stats.discards + stats.flushes
    };
    disks.iter().map(of).sum()
}

/// Every resiliency, with its fewest columns.
pub fn resiliencies() -> [Resiliency; 5] {
    [
        Resiliency::Simple,
        Resiliency::Mirror { copies: 2 },
        Resiliency::Mirror { copies: 3 },
        Resiliency::Parity { parity: 1 },
        Resiliency::Parity { parity: 2 },
    ]
}
