//! What the daemon needs of the engine and of the export servers: two narrow traits, so that everything above them is
//! tested without disks. Calls block and may come from any thread; changing calls come one at a time.

use crate::api::error::Answer;
use crate::api::export::{Place, Terms};
use crate::api::job::{JobAction, StartKind};
use crate::api::name::VdiskName;
use crate::api::pool::{CheckReport, Media, MemoryBudget, PoolInfo};
use crate::api::pool::{PoolSettings, Usage};
use crate::api::vdisk::{Layout, Provisioning, Resiliency};
use crate::ops::vdisk::Explain;
use std::collections::BTreeMap;
use std::ops::Range;
use std::path::{Path, PathBuf};
use weft_engine::pool::{Instead, Leaving};
use weft_engine::units::ByteCount;

/// The pools, as the daemon drives them.
pub trait Engine: Send + Sync {
    /// The label on a disk, if there is one. The disk is of no open pool.
    fn probe(&self, disk: &Path) -> Answer<Option<Label>>;

    /// Refuses whatever making a pool of disks with these capacities would refuse.
    fn pool_create_judge(&self, name: &str, slab_size: ByteCount, capacities: &[ByteCount]) -> Answer<()>;

    /// Writes a new pool on its disks, and opens it.
    fn pool_create(&self, new: &NewPool) -> Answer<()>;

    /// Opens the pool whose members these are, in any order.
    fn pool_open(&self, members: &[PathBuf], how: OpenHow) -> Answer<()>;

    /// What disks of a pool were called by their numbers, when it was last open: those that left it are told of by
    /// name.
    fn disk_names(&self, _pool: &str, _names: BTreeMap<u16, String>) {}

    /// Closes a pool cleanly.
    fn pool_close(&self, pool: &str) -> Answer<()>;

    /// Closes a pool and takes the labels off its disks.
    fn pool_remove(&self, pool: &str) -> Answer<()>;

    /// The open pools, by name, with paths but without exports.
    fn pools(&self) -> Answer<Vec<PoolInfo>>;

    /// Proves that a pool is sound, or says where it is not.
    fn pool_check(&self, pool: &str, repair: bool) -> Answer<CheckReport>;

    /// Gives a pool another name.
    fn pool_rename(&self, pool: &str, name: &str) -> Answer<()>;

    /// Changes what a pool does by itself; when it was scrubbed is kept.
    fn pool_set(&self, pool: &str, settings: &PoolSettings) -> Answer<()>;

    /// Starts a job at the moment `now` (seconds since 1970 UTC); one of its kind that has not ended is it already. Its
    /// number.
    fn job_start(&self, pool: &str, kind: StartKind, now: u64) -> Answer<u32>;

    /// Pauses, resumes or cancels a job.
    fn job_steer(&self, pool: &str, id: u32, action: JobAction) -> Answer<()>;

    /// Refuses whatever making a disk of `capacity` a member called `name` would refuse.
    fn disk_add_judge(&self, pool: &str, capacity: ByteCount, name: &str) -> Answer<()>;

    /// Makes a disk a member of a pool. Its number.
    fn disk_add(&self, pool: &str, member: &NewMember, usage: Usage) -> Answer<u16>;

    /// How much would move off the disk, when it could, and what virtual disks would lose by it: `NoSpace` and
    /// `NotPossible` say what is missing.
    fn disk_remove_judge(&self, pool: &str, disk: u16, instead: Instead) -> Answer<Leaving>;

    /// Starts the job, at the moment `now`, that moves everything off a disk, onto `to` alone if given, and forgets the
    /// disk at the end. Its number.
    fn disk_remove(&self, pool: &str, disk: u16, to: Option<u16>, now: u64) -> Answer<u32>;

    /// Changes what a pool knows of a disk.
    fn disk_set(&self, pool: &str, disk: u16, change: &DiskChange) -> Answer<()>;

    /// Refuses whatever [`Engine::disk_offline`] would refuse.
    fn disk_offline_judge(&self, pool: &str, disk: u16) -> Answer<()>;

    /// Lets nothing be read from a disk or written to it, until it is online again.
    fn disk_offline(&self, pool: &str, disk: u16) -> Answer<()>;

    /// Uses a disk again that was offline: what it missed is brought to it.
    fn disk_online(&self, pool: &str, disk: u16) -> Answer<()>;

    /// A member that was missing, or failed, is at `path`: what it missed is brought to it. Its number.
    fn disk_attach(&self, pool: &str, path: &Path) -> Answer<u16>;

    /// What making this virtual disk would give; refuses whatever making it would refuse, but for its size.
    fn vdisk_judge(&self, pool: &str, spec: &VdiskSpec) -> Answer<Judged>;

    /// Makes a virtual disk of `size`.
    fn vdisk_create(&self, pool: &str, spec: &VdiskSpec, size: ByteCount) -> Answer<()>;

    /// The largest size that a virtual disk could grow to with the room there is.
    fn vdisk_size_max(&self, vdisk: &VdiskName) -> Answer<ByteCount>;

    /// Gives a virtual disk another size.
    fn vdisk_resize(&self, vdisk: &VdiskName, size: ByteCount) -> Answer<()>;

    /// Gives a virtual disk another name within its pool.
    fn vdisk_rename(&self, vdisk: &VdiskName, name: &str) -> Answer<()>;

    /// Removes a virtual disk with all it holds.
    fn vdisk_remove(&self, vdisk: &VdiskName) -> Answer<()>;

    /// Lets a virtual disk serve again that lost writes. The ranges, in bytes, whose last writes are given up; with
    /// `dry_run` only those.
    fn vdisk_clear(&self, vdisk: &VdiskName, dry_run: bool) -> Answer<Vec<Range<u64>>>;

    /// The plan of one request, line by line.
    fn explain(&self, request: &Explain) -> Answer<Vec<String>>;
}

/// The export servers, as the daemon drives them.
pub trait ExportServer: Send + Sync {
    /// Offers `vdisk` under its name on `at`, beside whatever else is offered there.
    fn start(&self, vdisk: &VdiskName, at: &Place, terms: &Terms) -> Answer<()>;

    /// Stops offering `vdisk` on `at`: its clients are disconnected.
    fn stop(&self, vdisk: &VdiskName, at: &Place) -> Answer<()>;

    /// Whether what was started is still served; somebody else may have ended it.
    fn serves(&self, vdisk: &VdiskName, at: &Place) -> bool;

    /// What clients' requests hold in memory, of all pools.
    fn memory(&self) -> Vec<MemoryBudget> {
        Vec::new()
    }

    /// How many connections clients have to it, where clients connect.
    fn connections(&self, _vdisk: &VdiskName, _at: &Place) -> Option<usize> {
        None
    }
}

/// What a disk's label says.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Label {
    /// The pool's identity, 32 hexadecimal digits.
    pub pool_id: String,
    /// The pool's name.
    pub pool_name: String,
    /// The disk's identity, 32 hexadecimal digits.
    pub disk_id: String,
    /// The disk's name within the pool.
    pub disk_name: String,
    /// Whether the disk is as long as when it joined. A file that is still being copied is not, nor is one that was cut
    /// off.
    pub whole: bool,
}

/// A pool to make.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NewPool {
    /// Its name.
    pub name: String,
    /// Its unit of allocation on one disk.
    pub slab_size: ByteCount,
    /// Its disks.
    pub members: Vec<NewMember>,
}

/// A disk of a pool to make.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NewMember {
    /// Where it is.
    pub path: PathBuf,
    /// Its name within the pool.
    pub name: String,
}

/// What a pool shall know of a disk from now on. What is `None` stays.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct DiskChange {
    /// What it is used for.
    pub usage: Option<Usage>,
    /// What kind of medium it is.
    pub media: Option<Media>,
    /// Its name within the pool.
    pub name: Option<String>,
    /// What it fails together with; empty for nothing.
    pub domain: Option<String>,
}

/// How to open a pool.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OpenHow {
    /// Write nothing.
    pub read_only: bool,
    /// Open although disks are missing.
    pub degraded: bool,
    /// Do without members that somebody else has, or that cannot be opened, if the others are enough.
    pub partly: bool,
}

/// A virtual disk to make, without its size. What is `None` the engine chooses.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct VdiskSpec {
    /// Its name within the pool.
    pub name: String,
    /// What protects the data.
    pub resiliency: Resiliency,
    /// Columns, parity columns counted, copies not.
    pub columns: Option<u8>,
    /// Bytes of one stripe on one column.
    pub interleave: Option<ByteCount>,
    /// Whether room is reserved.
    pub provisioning: Provisioning,
    /// Its sector as clients see it.
    pub sector: u16,
    /// Only these disks, by number; all when empty.
    pub disks: Vec<u16>,
}

/// What a virtual disk would be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Judged {
    /// How it would lie on the disks.
    pub layout: Layout,
    /// How much data of this layout there is room for.
    pub room: ByteCount,
}
