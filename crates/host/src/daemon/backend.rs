//! What the daemon needs of the engine and of the export servers: two narrow traits, so that everything above them is
//! tested without disks. Calls block and may come from any thread; changing calls come one at a time.

use crate::api::error::Answer;
use crate::api::export::{Place, Terms};
use crate::api::job::{JobAction, StartKind};
use crate::api::name::VdiskName;
use crate::api::pool::{CheckReport, Media, MemoryBudget, PoolInfo};
use crate::api::pool::{PoolSettings, Usage};
pub use crate::ops::Run;
use crate::ops::vdisk::Explain;
use std::collections::BTreeMap;
use std::ops::Range;
use std::path::{Path, PathBuf};
use weft_engine::pool::{Amount, Growth, Instead, Leaving, Refusal, VdiskPlan, Wanted};
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
    fn pool_remove(&self, pool: &str, run: Run) -> Answer<()>;

    /// The open pools, by name, with paths but without exports.
    fn pools(&self) -> Answer<Vec<PoolInfo>>;

    /// Proves that a pool is sound, or says where it is not.
    fn pool_check(&self, pool: &str, repair: bool) -> Answer<CheckReport>;

    /// Gives a pool another name.
    fn pool_rename(&self, pool: &str, name: &str, run: Run) -> Answer<()>;

    /// Changes what a pool does by itself; when it was scrubbed is kept.
    fn pool_set(&self, pool: &str, settings: &PoolSettings, run: Run) -> Answer<()>;

    /// Starts a job at the moment `now` (seconds since 1970 UTC); one of its kind that has not ended is it already. Its
    /// number, when it was started.
    fn job_start(&self, pool: &str, kind: StartKind, now: u64, run: Run) -> Answer<Option<u32>>;

    /// Pauses, resumes or cancels a job.
    fn job_steer(&self, pool: &str, id: u32, action: JobAction, run: Run) -> Answer<()>;

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
    fn disk_set(&self, pool: &str, disk: u16, change: &DiskChange, run: Run) -> Answer<()>;

    /// Lets nothing be read from a disk or written to it, until it is online again.
    fn disk_offline(&self, pool: &str, disk: u16, run: Run) -> Answer<()>;

    /// Uses a disk again that was offline: what it missed is brought to it.
    fn disk_online(&self, pool: &str, disk: u16, run: Run) -> Answer<()>;

    /// A member that was missing, or failed, is at `path`: what it missed is brought to it. Its number.
    fn disk_attach(&self, pool: &str, path: &Path) -> Answer<u16>;

    /// Makes a virtual disk: what it is, or why it cannot be.
    fn vdisk_create(&self, pool: &str, wanted: &Wanted, run: Run) -> Answer<Result<VdiskPlan, Refusal>>;

    /// Makes a virtual disk larger: what it is, or why it cannot be.
    fn vdisk_resize(&self, vdisk: &VdiskName, size: Amount, run: Run) -> Answer<Result<Growth, Refusal>>;

    /// Gives a virtual disk another name within its pool.
    fn vdisk_rename(&self, vdisk: &VdiskName, name: &str, run: Run) -> Answer<()>;

    /// Removes a virtual disk with all it holds.
    fn vdisk_remove(&self, vdisk: &VdiskName, run: Run) -> Answer<()>;

    /// Lets a virtual disk serve again that lost writes. The ranges, in bytes, whose last writes are given up.
    fn vdisk_clear(&self, vdisk: &VdiskName, run: Run) -> Answer<Vec<Range<u64>>>;

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
    /// Open it for good, or only to see that it opens: nothing is written then, and it is closed again.
    pub run: Run,
}
