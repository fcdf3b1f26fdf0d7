//! What the daemon needs of the engine and of the export servers: two narrow traits, so that everything above them is
//! tested without disks. Calls block and may come from any thread; changing calls come one at a time.

use crate::api::error::Answer;
use crate::api::export::Address;
use crate::api::name::VdiskName;
use crate::api::pool::{CheckReport, PoolInfo};
use crate::api::vdisk::{ExplainQuery, Layout, Provisioning, Resiliency};
use std::path::{Path, PathBuf};
use weft_engine::units::ByteCount;

/// The pools, as the daemon drives them.
pub trait Engine: Send + Sync {
    /// The label on a disk, if there is one. The disk is of no open pool.
    fn probe(&self, disk: &Path) -> Answer<Option<Label>>;

    /// Writes a new pool on its disks, and opens it.
    fn pool_create(&self, new: &NewPool) -> Answer<()>;

    /// Opens the pool whose members these are, in any order.
    fn pool_open(&self, members: &[PathBuf], how: OpenHow) -> Answer<()>;

    /// Closes a pool cleanly.
    fn pool_close(&self, pool: &str) -> Answer<()>;

    /// Closes a pool and takes the labels off its disks.
    fn pool_remove(&self, pool: &str) -> Answer<()>;

    /// The open pools, by name, with paths but without exports.
    fn pools(&self) -> Answer<Vec<PoolInfo>>;

    /// Proves that a pool is sound, or says where it is not.
    fn pool_check(&self, pool: &str, repair: bool) -> Answer<CheckReport>;

    /// What making this virtual disk would give; refuses whatever making it would refuse, but for its size.
    fn vdisk_judge(&self, pool: &str, spec: &VdiskSpec) -> Answer<Judged>;

    /// Makes a virtual disk of `size`.
    fn vdisk_create(&self, pool: &str, spec: &VdiskSpec, size: ByteCount) -> Answer<()>;

    /// The largest size that a virtual disk could grow to with the room there is.
    fn vdisk_size_max(&self, vdisk: &VdiskName) -> Answer<ByteCount>;

    /// Gives a virtual disk another size.
    fn vdisk_resize(&self, vdisk: &VdiskName, size: ByteCount) -> Answer<()>;

    /// Removes a virtual disk with all it holds.
    fn vdisk_remove(&self, vdisk: &VdiskName) -> Answer<()>;

    /// The plan of one request, line by line.
    fn explain(&self, vdisk: &VdiskName, query: ExplainQuery) -> Answer<Vec<String>>;
}

/// The export servers, as the daemon drives them.
pub trait ExportServer: Send + Sync {
    /// Offers `vdisk` under its name on `at`, beside whatever else is offered there.
    fn start(&self, vdisk: &VdiskName, at: &Address) -> Answer<()>;

    /// Stops offering `vdisk` on `at`: its clients are disconnected.
    fn stop(&self, vdisk: &VdiskName, at: &Address) -> Answer<()>;
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

/// How to open a pool.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OpenHow {
    /// Write nothing.
    pub read_only: bool,
    /// Open although disks are missing.
    pub degraded: bool,
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
