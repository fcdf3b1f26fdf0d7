//! What workloads run against: a model of an array, or a virtual disk of weft, each with its clock.

use crate::spaces::array::Kind;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use weft_engine::disk_set::DiskSet;
use weft_engine::format::Id;
use weft_engine::format::record::{CacheChoice, Media, Usage};
use weft_engine::geometry::Layout;
use weft_engine::io::Disk;
use weft_engine::limits::SLAB_DEFAULT;
use weft_engine::pool::cache::CacheAsk;
use weft_engine::pool::create::create;
use weft_engine::pool::{NewDisk, OpenOptions, Pool, PoolOptions, VdiskSpec};
use weft_engine::store::Tuning;
use weft_engine::units::{ByteCount, VirtualOffset};
use weft_engine::vdisk::Vdisk;
use weft_engine::world::World;
use weft_sim::disk::{DiskImage, SimDisk};
use weft_sim::random_writes::SERVED_SHARE;
use weft_sim::world::{Scheduling, SimWorld};

/// Ends when what was asked for has been done.
pub type Done = Pin<Box<dyn Future<Output = ()>>>;

/// What everything written consists of; simulated disks keep a block of one word in little memory.
const WORD: u64 = 0x5eed_0123_4567_89ab;
/// The longest request.
pub const REQUEST_MAX: u64 = 16 << 20;

/// A block device in virtual time. What it holds does not matter.
pub trait Volume {
    /// Its clock.
    fn world(&self) -> SimWorld;
    /// Writes; `durable`: ends when it would survive a power cut.
    fn write(&self, at: u64, len: u64, durable: bool) -> Done;
    /// Reads.
    fn read(&self, at: u64, len: u64) -> Done;
    /// Makes all that was written durable.
    fn flush(&self) -> Done;
    /// Forgets bytes (TRIM).
    fn forget(&self, at: u64, len: u64) -> Done;
    /// Bytes that all disks have read so far, and written.
    fn moved(&self) -> (u64, u64);
}

/// What solid-state disks are good for that join a pool of hard disks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Flash {
    /// They carry the log, and nothing else.
    Journals,
    /// A write-back cache of so many bytes lies on them, and the log.
    Cache(u64),
}

/// A thin virtual disk of weft.
pub struct OnWeft {
    world: SimWorld,
    disks: Vec<SimDisk>,
    pool: Rc<Pool>,
    vdisk: Rc<Vdisk>,
    data: Rc<Vec<u8>>,
}

impl OnWeft {
    /// A new pool of these disks, and a virtual disk with such sectors in it. `log`: bytes of its log.
    pub fn new(kinds: &[Kind], layout: Layout, size: u64, sector: u32, log: ByteCount) -> OnWeft {
        let world = SimWorld::new(1, Scheduling::Fifo);
        let (disks, new): (Vec<SimDisk>, Vec<NewDisk>) = blank(&world, kinds, 0).unzip();
        let members: Vec<Rc<dyn Disk>> = new.iter().map(|new| new.disk.clone()).collect();
        let host: Rc<dyn World> = Rc::new(world.clone());
        let spec = VdiskSpec {
            name: "vdisk".into(),
            size: ByteCount(size),
            resiliency: layout.resiliency(),
            columns: Some(layout.columns() as u8),
            interleave: Some(layout.interleave()),
            fixed: false,
            sector,
            disks: DiskSet::EMPTY,
        };
        let made = world.block_on(async move {
            let id = Id([0xEE; 16]);
            let options = PoolOptions { id, name: "pool".into(), slab: SLAB_DEFAULT, log_len: Some(log) };
            create(new, &options).await.expect("a pool can be made");
            // What the daemon does unless it is told otherwise.
            let tuning = Tuning { fine_share: SERVED_SHARE, ..Tuning::default() };
            let options = OpenOptions { tuning, ..OpenOptions::default() };
            let pool = Pool::open(host, members, options).await.expect("the pool opens");
            let vdisk = pool.vdisk_create(&spec).await.expect("there is room");
            (pool, vdisk)
        });
        let (pool, vdisk) = made.expect("making a pool ends");
        let data = Rc::new(WORD.to_le_bytes().repeat(REQUEST_MAX as usize / 8));
        OnWeft { world, disks, pool, vdisk, data }
    }

    /// Has these disks join, and be used so.
    pub fn behind(mut self, kinds: &[Kind], flash: Flash) -> OnWeft {
        let (disks, new): (Vec<SimDisk>, Vec<NewDisk>) = blank(&self.world, kinds, self.disks.len()).unzip();
        self.disks.extend(disks);
        let pool = self.pool.clone();
        let joins = async move {
            let usage = if flash == Flash::Journals { Usage::Journal } else { Usage::ManualSelect };
            let mut disks = DiskSet::EMPTY;
            for disk in new {
                disks.insert(pool.disk_add(disk, usage).await.expect("it joins"));
            }
            match flash {
                Flash::Journals => Ok(()),
                Flash::Cache(size) => {
                    let ask = CacheAsk { size: ByteCount(size), disks, may_lose: false };
                    pool.vdisk_set_cache("vdisk", Some(&ask), CacheChoice::Typed).await
                }
            }
        };
        let set = self.world.block_on(joins).expect("disks join");
        set.expect("there is room");
        self
    }
}

/// New disks of these kinds, numbered from `first` on.
fn blank(world: &SimWorld, kinds: &[Kind], first: usize) -> impl Iterator<Item = (SimDisk, NewDisk)> {
    kinds.iter().enumerate().map(move |(nth, kind)| {
        let disk = SimDisk::new(world, kind.shape(), kind.timing());
        // One whose cache is not volatile says so, and the pool sends it no flush.
        disk.protect(kind.is_protected());
        let no = first + nth;
        let new = NewDisk {
            disk: Rc::new(disk.clone()),
            id: Id([no as u8 + 1; 16]),
            name: format!("d{no}"),
            media: if kind.shape().rotational { Media::Hdd } else { Media::Ssd },
        };
        (disk, new)
    })
}

impl Volume for OnWeft {
    fn world(&self) -> SimWorld {
        self.world.clone()
    }

    fn write(&self, at: u64, len: u64, durable: bool) -> Done {
        let (vdisk, data) = (self.vdisk.clone(), self.data.clone());
        Box::pin(async move {
            vdisk.write(VirtualOffset(at), &data[..len as usize], durable).await.expect("a sound pool takes writes");
        })
    }

    fn read(&self, at: u64, len: u64) -> Done {
        let vdisk = self.vdisk.clone();
        Box::pin(async move {
            let mut into = vec![0; len as usize];
            vdisk.read(VirtualOffset(at), &mut into).await.expect("a sound pool can be read");
        })
    }

    fn flush(&self) -> Done {
        let vdisk = self.vdisk.clone();
        Box::pin(async move { vdisk.flush().await.expect("a sound pool flushes") })
    }

    fn forget(&self, at: u64, len: u64) -> Done {
        let vdisk = self.vdisk.clone();
        Box::pin(async move {
            vdisk.discard(VirtualOffset(at), len, false).await.expect("a sound pool forgets");
        })
    }

    fn moved(&self) -> (u64, u64) {
        let stats = self.disks.iter().map(SimDisk::stats);
        stats.fold((0, 0), |(read, written), one| (read + one.read_bytes.0, written + one.written_bytes.0))
    }
}

impl Drop for OnWeft {
    fn drop(&mut self) {
        self.world.halt();
        // An engine that was cut off may keep its disks; what they hold, and have not flushed, is large.
        self.disks.iter().for_each(|disk| disk.return_as(&DiskImage::blank(disk.shape())));
    }
}
