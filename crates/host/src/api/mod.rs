//! The control API: one method per operation, one type per request and per answer. An answer is one value: what
//! `--json` prints, what the text is drawn from, what goes over the socket.
//!
//! [`Control`] is implemented twice: by the daemon, which does it, and by [`client::Client`], which asks a daemon over
//! its socket. The command line only knows the trait.

pub mod client;
pub mod error;
pub mod export;
pub mod job;
pub mod judge;
pub mod mount;
pub mod name;
pub mod pool;
pub mod server;
pub mod size;
pub mod span;
pub mod upkeep;
pub mod vdisk;
pub mod watch;

use error::Answer;
use export::{ExportAdd, ExportInfo, ExportRemove};
use job::{JobInfo, JobStart, JobSteer};
use mount::{MountForget, MountInfo};
use name::VdiskName;
use pool::{ChangeQuery, CheckQuery, CheckReport, DiskInfo, PoolCreate, PoolInfo, PoolQuery};
use upkeep::{DiskAdd, DiskRemove, DiskReplace, DiskSet, Importable, PoolImport, PoolSet, Rename};
use vdisk::{ExplainQuery, Explanation, VdiskCreate, VdiskInfo, VdiskResize};
use watch::{Change, EventPage, EventQuery, Stat, StatQuery, Status, Version};

/// The version of this API, the first part of every path but the document's own.
pub const API_VERSION: &str = "v1";

/// Everything weft can be asked. Calls block until they are answered and may come from any thread.
pub trait Control: Send + Sync {
    /// Who answers.
    fn version(&self) -> Answer<Version>;
    /// How everything is, and what needs a person.
    fn status(&self, query: &PoolQuery) -> Answer<Status>;
    /// All counters at this moment.
    fn stat(&self, query: &StatQuery) -> Answer<Stat>;
    /// What happened.
    fn events(&self, query: &EventQuery) -> Answer<EventPage>;

    /// The pools that are open.
    fn pool_list(&self) -> Answer<Vec<PoolInfo>>;
    /// One pool.
    fn pool_show(&self, pool: &str) -> Answer<PoolInfo>;
    /// Makes a pool of disks.
    fn pool_create(&self, request: &PoolCreate) -> Answer<Change>;
    /// Removes a pool with all it holds.
    fn pool_remove(&self, pool: &str, how: ChangeQuery) -> Answer<Change>;
    /// Proves that a pool is sound, or says where it is not.
    fn pool_check(&self, pool: &str, how: CheckQuery) -> Answer<CheckReport>;
    /// Gives a pool another name.
    fn pool_rename(&self, pool: &str, request: &Rename) -> Answer<Change>;
    /// Changes what a pool does by itself.
    fn pool_set(&self, pool: &str, request: &PoolSet) -> Answer<Change>;
    /// Closes a pool, until it is imported.
    fn pool_export(&self, pool: &str, how: ChangeQuery) -> Answer<Change>;
    /// The pools that were found and are not open.
    fn importable(&self) -> Answer<Vec<Importable>>;
    /// Opens a pool that was found and is not open.
    fn pool_import(&self, request: &PoolImport) -> Answer<Change>;

    /// The jobs of the open pools.
    fn job_list(&self, query: &PoolQuery) -> Answer<Vec<JobInfo>>;
    /// One job: `POOL/N`, or `N` where only one pool has it.
    fn job_show(&self, job: &str) -> Answer<JobInfo>;
    /// Starts a job, unless there is one of its kind.
    fn job_start(&self, pool: &str, request: JobStart) -> Answer<Change>;
    /// Pauses, resumes or cancels a job.
    fn job_steer(&self, job: &str, request: JobSteer) -> Answer<Change>;

    /// The disks that were found.
    fn disk_list(&self, query: &PoolQuery) -> Answer<Vec<DiskInfo>>;
    /// One disk: by path, by identity, by name, or by `POOL/NAME`.
    fn disk_show(&self, disk: &str) -> Answer<DiskInfo>;
    /// Makes disks members of a pool.
    fn disk_add(&self, pool: &str, request: &DiskAdd) -> Answer<Change>;
    /// Takes a disk out of its pool: a job moves what is on it, then it is forgotten.
    fn disk_remove(&self, pool: &str, disk: &str, how: DiskRemove) -> Answer<Change>;
    /// Puts one disk in the place of another: a job moves what is on it.
    fn disk_replace(&self, pool: &str, disk: &str, request: &DiskReplace) -> Answer<Change>;
    /// Changes what a pool knows of one of its disks.
    fn disk_set(&self, pool: &str, disk: &str, request: &DiskSet) -> Answer<Change>;

    /// The virtual disks of the open pools.
    fn vdisk_list(&self, query: &PoolQuery) -> Answer<Vec<VdiskInfo>>;
    /// One virtual disk.
    fn vdisk_show(&self, vdisk: &VdiskName) -> Answer<VdiskInfo>;
    /// Makes a virtual disk.
    fn vdisk_create(&self, request: &VdiskCreate) -> Answer<Change>;
    /// Gives a virtual disk another size.
    fn vdisk_resize(&self, vdisk: &VdiskName, request: &VdiskResize) -> Answer<Change>;
    /// Gives a virtual disk another name.
    fn vdisk_rename(&self, vdisk: &VdiskName, request: &Rename) -> Answer<Change>;
    /// Removes a virtual disk with all it holds.
    fn vdisk_remove(&self, vdisk: &VdiskName, how: ChangeQuery) -> Answer<Change>;
    /// Lets a virtual disk serve again that lost writes.
    fn vdisk_clear(&self, vdisk: &VdiskName, how: ChangeQuery) -> Answer<Change>;
    /// The plan for one request.
    fn explain(&self, vdisk: &VdiskName, query: ExplainQuery) -> Answer<Explanation>;

    /// The exports.
    fn export_list(&self) -> Answer<Vec<ExportInfo>>;
    /// Offers a virtual disk to clients.
    fn export_add(&self, request: &ExportAdd) -> Answer<Change>;
    /// Stops offering a virtual disk.
    fn export_remove(&self, vdisk: &VdiskName, how: &ExportRemove) -> Answer<Change>;

    /// The mounted virtual disks.
    fn mount_list(&self) -> Answer<Vec<MountInfo>>;
    /// Remembers that a virtual disk was mounted.
    fn mount_note(&self, mount: &MountInfo) -> Answer<Change>;
    /// Forgets a mount.
    fn mount_forget(&self, which: &MountForget) -> Answer<Change>;
}
