//! The engine behind the daemon: one engine thread owns all open pools, and everything asked of them is a task there.
//!
//! Read [`HostEngine`] first: each of its methods is one call into the thread. [`open`] makes, opens and closes pools,
//! [`volume`] carries the requests of clients, [`exports`] offers volumes over NBD and FUSE, [`info`] says what there
//! is.
//!
//! Invariants
//! 1. Pools, virtual disks and disks never leave the engine's thread; what comes out are plain values.
//! 2. A pool is in [`Pools`] exactly while its disks are claimed.
//! 3. Whatever runs code of a pool runs inside its [`border`]: a panic there closes that pool, and the others go on.

mod border;
mod exports;
mod fuse_exports;
mod history;
mod info;
pub(super) mod labels;
mod open;
mod socket;
mod ublk_exports;
mod upkeep;
pub(in crate::daemon) mod vdisks;
mod volume;
mod world;

pub use exports::HostExports;

use super::backend::{DiskChange, NewMember, NewPool, OpenHow, Run};
use super::events::Journal;
use crate::api::error::{Answer, ApiError, Kind};
use crate::api::job::{JobAction, StartKind};
use crate::api::name::VdiskName;
use crate::api::pool::{CheckReport, PoolInfo};
use crate::api::pool::{Media, PoolSettings, Usage};
use crate::api::share::FineShare;
use crate::api::vdisk::{Operation, VdiskPiece};
use crate::disk::BackendChoice;
use crate::export::{PayloadPool, Returns};
use crate::ops::pool::PoolList;
use crate::ops::vdisk::Explain;
use crate::ops::vdisk_map::PIECES_MAX;
use crate::ops::watch::EventList;
use crate::runtime::{Handle, Local, Options, start};
use border::Border;
use history::History;
use open::{FailedDisk, OpenPool};
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::ops::{ControlFlow, Range};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use upkeep::DiskTurn;
use vdisks::{Above, CacheWanted, Planned};
use weft_engine::event::Event;
use weft_engine::format::Id;
use weft_engine::format::record::{CacheRecord, TierRecord};
use weft_engine::heat::Curve;
use weft_engine::pool::cache::CacheTurn;
use weft_engine::pool::change::{ChangeAsk, ChangePlan};
use weft_engine::pool::create::plan_pool;
use weft_engine::pool::read_cache::{ReadCacheAsk, ReadCachePlan};
use weft_engine::pool::tier::TierAsk;
use weft_engine::pool::{Amount, Growth, Instead, Leaving, PoolOptions, Refusal, Wanted};
use weft_engine::store::Tuning;
use weft_engine::units::{ByteCount, DiskNo, VirtualOffset};
use weft_engine::vdisk::Vdisk;
use world::named;

/// How long the end of the daemon waits for tasks of the engine that disks keep. Its pools are closed by then: what is
/// left but those are timers that find nothing to do.
const STOP_MAX: Duration = Duration::from_millis(250);

/// The engine's thread with what lives on it.
pub type Thread = Handle<Pools>;

/// Bytes of memory for reads that is kept between them, for all volumes together.
const READ_BUFFERS: usize = 32 << 20;

/// What lives on the engine's thread.
pub struct Pools {
    open: RefCell<BTreeMap<String, Rc<OpenPool>>>,
    /// The virtual disks that clients use, by the number their volume was given.
    served: RefCell<BTreeMap<u64, Served>>,
    /// The identities of pools in which there was a panic: they are not opened again in this life of the daemon.
    broken: RefCell<BTreeSet<String>>,
    served_next: Cell<u64>,
    tuning: Tuning,
    memory: Memory,
}

/// Where the bytes of answers lie, those of all volumes.
#[derive(Clone)]
struct Memory {
    /// Those that are copied.
    buffers: Arc<PayloadPool>,
    /// Those that the disks gave, when they were sent.
    returns: Arc<Returns>,
}

/// A virtual disk that a client uses.
#[derive(Clone)]
struct Served {
    vdisk: Rc<Vdisk>,
    border: Rc<Border>,
}

impl Default for Pools {
    fn default() -> Pools {
        Pools {
            open: RefCell::default(),
            served: RefCell::default(),
            broken: RefCell::default(),
            served_next: Cell::default(),
            tuning: Tuning::default(),
            memory: Memory { buffers: PayloadPool::new(READ_BUFFERS), returns: Arc::default() },
        }
    }
}

/// The pools of this machine, on a thread of their own.
pub struct HostEngine {
    // Ends first: it uses the thread.
    _history: History,
    thread: Thread,
    journal: Arc<Journal>,
}

impl HostEngine {
    /// Starts the engine's thread; no pool is open yet. What happens to pools goes to `journal`.
    ///
    /// Errors: `InvalidInput` when `WEFT_IO` asks for no way to the disks, `NotPossible` when it cannot be had.
    pub fn start(journal: Arc<Journal>, tuning: Tuning) -> Answer<HostEngine> {
        let options = Options { io: BackendChoice::from_env()?, ..Options::default() };
        let thread = start(options, move || Pools { tuning, ..Pools::default() })?;
        journal.note(None, format!("disks are reached through {}", thread.backend()));
        let heard = journal.clone();
        thread.run(move |local| {
            // Pools tell of themselves; this is what the thread tells.
            local.listen(move |event| {
                if matches!(event, Event::TaskSpins { .. }) {
                    heard.warn(None, event.to_string());
                }
                ControlFlow::Continue(())
            });
        })?;
        let history = History::start(journal.clone(), thread.clone())?;
        Ok(HostEngine { _history: history, thread, journal })
    }

    /// The thread, for those who serve its virtual disks.
    pub fn thread(&self) -> Thread {
        self.thread.clone()
    }

    /// Runs `ask` as a task of the engine's thread and waits for its answer.
    fn ask<T, F>(&self, name: &'static str, ask: impl FnOnce(Rc<Local<Pools>>) -> F + Send + 'static) -> Answer<T>
    where
        T: Send + 'static,
        F: Future<Output = Answer<T>> + 'static,
    {
        #[cfg(test)]
        TRIPS.set(TRIPS.get() + 1);
        self.thread.call(name, ask)?
    }

    /// Asks one open pool.
    fn ask_pool<T, F>(
        &self,
        pool: &str,
        name: &'static str,
        ask: impl FnOnce(Rc<OpenPool>) -> F + Send + 'static,
    ) -> Answer<T>
    where
        T: Send + 'static,
        F: Future<Output = Answer<T>> + 'static,
    {
        self.ask_of(pool, name, move |local, pool| async move { ask(local.state().pool(&pool)?).await })
    }

    /// Runs `ask`, which looks for the open pool itself, inside the border of that pool.
    fn ask_of<T, F>(
        &self,
        pool: &str,
        name: &'static str,
        ask: impl FnOnce(Rc<Local<Pools>>, String) -> F + Send + 'static,
    ) -> Answer<T>
    where
        T: Send + 'static,
        F: Future<Output = Answer<T>> + 'static,
    {
        let pool = pool.to_string();
        self.ask(name, move |local| async move {
            let border = local.state().pool(&pool)?.border.clone();
            border.guard(ask(local, pool.clone())).await.unwrap_or_else(|| Err(broken(&pool)))
        })
    }
}

impl HostEngine {
    /// Refuses whatever making a pool of disks with these capacities would refuse.
    pub fn pool_create_judge(&self, name: &str, slab_size: ByteCount, capacities: &[ByteCount]) -> Answer<()> {
        let options = PoolOptions { id: Id::default(), name: name.into(), slab: slab_size, log_len: None };
        plan_pool(capacities, &options)?;
        Ok(())
    }

    /// Writes a new pool on its disks, and opens it. The pool.
    pub fn pool_create(&self, new: &NewPool) -> Answer<PoolInfo> {
        let (new, journal) = (new.clone(), self.journal.clone());
        self.ask("pool create", move |local| open::create(local, new, journal))
    }

    /// Opens the pool whose members these are, in any order. Returns why it was opened without some of them.
    pub fn pool_open(&self, members: &[PathBuf], how: OpenHow) -> Answer<Vec<String>> {
        let (members, journal) = (members.to_vec(), self.journal.clone());
        match how.run {
            Run::Dry => self.ask("pool open", move |local| open::plan(local, members, how)),
            Run::Real => self.ask("pool open", move |local| open::open(local, members, how, journal)),
        }
    }

    /// What disks of a pool were called by their numbers, when it was last open: those that left it are told of by
    /// name.
    pub fn disk_names(&self, pool: &str, names: BTreeMap<DiskNo, String>) {
        // Where the pool is gone again, nobody asks for them.
        let _ = self.ask_pool(pool, "disk names", move |open| async move {
            open.know_names(names);
            Ok(())
        });
    }

    /// Closes a pool cleanly.
    pub fn pool_close(&self, pool: &str) -> Answer<()> {
        self.ask_of(pool, "pool close", move |local, pool| async move { open::close(local, &pool, false).await })
    }

    /// Closes a pool and takes the labels off its disks.
    pub fn pool_remove(&self, pool: &str, run: Run) -> Answer<()> {
        self.ask_of(pool, "pool remove", move |local, pool| open::remove(local, pool, run))
    }

    /// The open pools, by name, with paths but without exports.
    pub fn pools(&self) -> Answer<Vec<PoolInfo>> {
        let look = |local: Rc<Local<Pools>>| async move {
            let failed = local.state().look(OpenPool::failed_disks);
            Ok((look_at_all(&local), failed.into_iter().flatten().collect::<Vec<FailedDisk>>()))
        };
        let (pools, failed) = self.ask("pool info", look)?;
        // Not on the engine's thread: where a disk hangs, to look for it may take long.
        let pulled: Vec<FailedDisk> = failed.into_iter().filter(FailedDisk::is_pulled).collect();
        if pulled.is_empty() {
            return Ok(pools);
        }
        self.ask("pool info", move |local| async move {
            local.state().look(|open| open.note_pulled(&pulled));
            Ok(look_at_all(&local))
        })
    }

    /// Proves that a pool is sound, or says where it is not.
    pub fn pool_check(&self, pool: &str, repair: bool) -> Answer<CheckReport> {
        self.ask_pool(pool, "pool check", move |open| async move {
            let report = open.pool.check(repair).await?;
            Ok(info::check_report(&open, repair, &report))
        })
    }

    /// Gives a pool another name. The pool as it is then.
    pub fn pool_rename(&self, pool: &str, name: &str, run: Run) -> Answer<PoolInfo> {
        let name = name.to_string();
        self.ask_of(pool, "pool rename", move |local, pool| upkeep::rename(local, pool, name, run))
    }

    /// Changes what a pool does by itself; when it was scrubbed is kept.
    pub fn pool_set(&self, pool: &str, settings: &PoolSettings, run: Run) -> Answer<()> {
        let settings = *settings;
        self.ask_pool(pool, "pool set", move |open| upkeep::set(open, settings, run))
    }

    /// Starts a job at the moment `now` (seconds since 1970 UTC); one of its kind that has not ended is it already. Its
    /// number, when it was started.
    pub fn job_start(&self, pool: &str, kind: StartKind, now: u64, run: Run) -> Answer<Option<u32>> {
        self.ask_pool(pool, "job start", move |open| upkeep::start(open, kind, now, run))
    }

    /// Pauses, resumes or cancels a job.
    pub fn job_steer(&self, pool: &str, id: u32, action: JobAction, run: Run) -> Answer<()> {
        self.ask_pool(pool, "job steer", move |open| upkeep::steer(open, id, action, run))
    }

    /// Refuses whatever making disks with these capacities and names members would refuse.
    pub fn disk_add_judge(
        &self,
        pool: &str,
        new: Vec<(ByteCount, Media, String)>,
        usage: Usage,
    ) -> Answer<Vec<CacheTurn>> {
        self.ask_pool(pool, "validate disk add", move |open| upkeep::validate_add(open, new, usage))
    }

    /// Chooses the write-back caches anew that are the pool's to choose. Those that changed.
    pub fn review_caches(&self, pool: &str) -> Answer<Vec<CacheTurn>> {
        self.ask_pool(pool, "review caches", upkeep::review_caches)
    }

    /// Refuses whatever making a disk with this capacity and name a member would refuse; then says what it comes to
    /// when the disk takes the place of another, as [`HostEngine::validate_disk_removal`] does.
    pub fn validate_disk_replacement(
        &self,
        pool: &str,
        disk: DiskNo,
        new: (ByteCount, String),
    ) -> Answer<Answer<Leaving>> {
        self.ask_pool(pool, "validate disk replace", move |open| upkeep::validate_replacement(open, disk, new))
    }

    /// Makes a disk a member of a pool. Its number, and the pool as it is then.
    pub fn disk_add(&self, pool: &str, member: &NewMember, usage: Usage) -> Answer<(DiskNo, PoolInfo)> {
        let member = member.clone();
        self.ask_of(pool, "disk add", move |local, pool| upkeep::add(local, pool, member, usage))
    }

    /// How much would move off the disk, when it could, and what virtual disks would lose by it: `NoSpace` and
    /// `NotPossible` say what is missing.
    pub fn validate_disk_removal(&self, pool: &str, disk: DiskNo, instead: Instead) -> Answer<Leaving> {
        self.ask_pool(pool, "validate disk remove", move |open| upkeep::validate_removal(open, disk, instead))
    }

    /// Starts the job, at the moment `now`, that moves everything off a disk, onto `to` alone if given, and forgets the
    /// disk at the end. Its number.
    pub fn disk_remove(&self, pool: &str, disk: DiskNo, to: Option<DiskNo>, now: u64) -> Answer<u32> {
        self.ask_pool(pool, "disk remove", move |open| upkeep::remove(open, disk, to, now))
    }

    /// Changes what a pool knows of a disk, and whether it is in maintenance: what comes of it.
    pub fn disk_set(&self, pool: &str, disk: DiskNo, change: &DiskChange, run: Run) -> Answer<DiskTurn> {
        let change = change.clone();
        self.ask_of(pool, "disk set", move |local, pool| upkeep::set_disk(local, pool, disk, change, run))
    }

    /// A member that was missing, or failed, is at `path`: what it missed is brought to it. Its number.
    pub fn disk_attach(&self, pool: &str, path: &Path) -> Answer<DiskNo> {
        let path = path.to_path_buf();
        self.ask_of(pool, "disk attach", move |local, pool| upkeep::attach(local, pool, path))
    }

    /// Makes a virtual disk: what it is, or why it cannot be.
    pub fn vdisk_create(
        &self,
        pool: &str,
        wanted: &Wanted,
        above: Above,
        run: Run,
    ) -> Answer<Result<Planned, Refusal>> {
        let wanted = wanted.clone();
        self.ask_pool(pool, "vdisk create", move |open| vdisks::create(open, wanted, above, run))
    }

    /// Changes the fast tier of a virtual disk: what it is then.
    pub fn vdisk_set_tier(&self, vdisk: &VdiskName, ask: Option<TierAsk>, run: Run) -> Answer<Option<TierRecord>> {
        let name = vdisk.clone();
        self.ask_pool(&vdisk.pool, "vdisk set", move |open| vdisks::set_tier(open, name, ask, run))
    }

    /// Pins pieces of a virtual disk to its fast tier, or lets go of them: whether that changes anything, and what is
    /// pinned then.
    pub fn tier_pin(
        &self,
        vdisk: &VdiskName,
        pieces: Vec<Range<u64>>,
        pinned: bool,
        run: Run,
    ) -> Answer<(bool, TierRecord)> {
        let name = vdisk.clone();
        self.ask_pool(&vdisk.pool, "tier pin", move |open| vdisks::pin(open, name, pieces, pinned, run))
    }

    /// Has the tiers of a virtual disk put right now, at the moment `now`: the job.
    pub fn tier_optimize(&self, vdisk: &VdiskName, now: u64, run: Run) -> Answer<Option<u32>> {
        let name = vdisk.clone();
        self.ask_pool(&vdisk.pool, "tier optimize", move |open| vdisks::optimize(open, name, now, run))
    }

    /// Changes the read cache of a virtual disk: what it is then.
    pub fn vdisk_set_read_cache(
        &self,
        vdisk: &VdiskName,
        ask: Option<ReadCacheAsk>,
        run: Run,
    ) -> Answer<Option<ReadCachePlan>> {
        let name = vdisk.clone();
        self.ask_pool(&vdisk.pool, "vdisk set", move |open| vdisks::set_read_cache(open, name, ask, run))
    }

    /// Changes the write-back cache of a virtual disk: what it is then.
    pub fn vdisk_set_cache(&self, vdisk: &VdiskName, cache: CacheWanted, run: Run) -> Answer<Option<CacheRecord>> {
        let name = vdisk.clone();
        self.ask_pool(&vdisk.pool, "vdisk set", move |open| vdisks::set_cache(open, name, cache, run))
    }

    /// Makes a virtual disk larger: what it is, or why it cannot be.
    pub fn vdisk_resize(&self, vdisk: &VdiskName, size: Amount, run: Run) -> Answer<Result<Growth, Refusal>> {
        let name = vdisk.vdisk.clone();
        self.ask_pool(&vdisk.pool, "vdisk resize", move |open| vdisks::resize(open, name, size, run))
    }

    /// Gives a virtual disk another layout, at the moment `now`: what it comes to, or why it cannot be; and the job.
    pub fn vdisk_change(
        &self,
        vdisk: &VdiskName,
        ask: ChangeAsk,
        now: u64,
        run: Run,
    ) -> Answer<Result<(ChangePlan, Option<u32>), Refusal>> {
        let name = vdisk.vdisk.clone();
        self.ask_pool(&vdisk.pool, "vdisk change", move |open| vdisks::change(open, name, ask, now, run))
    }

    /// Gives a virtual disk another name within its pool.
    pub fn vdisk_rename(&self, vdisk: &VdiskName, name: &str, run: Run) -> Answer<()> {
        let (old, new) = (vdisk.vdisk.clone(), name.to_string());
        self.ask_pool(&vdisk.pool, "vdisk rename", move |open| vdisks::rename(open, old, new, run))
    }

    /// Changes how much of a virtual disk may lie in packed stripes.
    pub fn vdisk_set_fine_share(&self, vdisk: &VdiskName, share: FineShare, run: Run) -> Answer<()> {
        let name = vdisk.vdisk.clone();
        self.ask_pool(&vdisk.pool, "vdisk set", move |open| vdisks::set_fine_share(open, name, share, run))
    }

    /// Removes a virtual disk with all it holds.
    pub fn vdisk_remove(&self, vdisk: &VdiskName, run: Run) -> Answer<()> {
        let name = vdisk.vdisk.clone();
        self.ask_pool(&vdisk.pool, "vdisk remove", move |open| vdisks::remove(open, name, run))
    }

    /// Lets a virtual disk serve again that lost writes. The ranges, in bytes, whose last writes are given up.
    pub fn vdisk_clear(&self, vdisk: &VdiskName, run: Run) -> Answer<Vec<Range<u64>>> {
        let name = vdisk.clone();
        self.ask_pool(&vdisk.pool, "vdisk clear", move |open| vdisks::clear(open, name, run))
    }

    /// What fast tiers of all sizes would catch of what is asked of a virtual disk.
    pub fn tier_report(&self, vdisk: &VdiskName) -> Answer<Curve> {
        let name = vdisk.clone();
        self.ask_pool(&vdisk.pool, "tier report", move |open| async move { Ok(open.vdisk(&name)?.heat_curve().await?) })
    }

    /// Which disks hold the bytes of `range` of a virtual disk, from its start on, and as far as was looked at once.
    pub fn vdisk_map(&self, vdisk: &VdiskName, range: Range<u64>) -> Answer<Vec<VdiskPiece>> {
        let name = vdisk.clone();
        self.ask_pool(&vdisk.pool, "vdisk map", move |open| async move {
            let pieces = open.vdisk(&name)?.pieces_placed(range, PIECES_MAX).await?;
            Ok(pieces.into_iter().map(|piece| vdisks::piece(&open, piece)).collect())
        })
    }

    /// The plan of one request, line by line.
    pub fn explain(&self, request: &Explain) -> Answer<Vec<String>> {
        let asked = request.clone();
        self.ask_pool(&request.vdisk.pool, "explain", move |open| async move {
            let vdisk = open.vdisk(&asked.vdisk)?;
            let (offset, len) = (VirtualOffset(asked.offset), asked.length as usize);
            let lines = match asked.operation {
                Operation::Read => vdisk.explain_read(offset, len).await?,
                Operation::Write => vdisk.explain_write(offset, len).await?,
            };
            Ok(lines.iter().map(|line| named(line, &|no| open.disk_name(no))).collect())
        })
    }
}

impl Drop for HostEngine {
    fn drop(&mut self) {
        self.thread.end(STOP_MAX);
    }
}

impl Pools {
    fn pool(&self, name: &str) -> Answer<Rc<OpenPool>> {
        let found = self.open.borrow().get(name).cloned();
        found.ok_or_else(|| ApiError::new(Kind::NotFound, format!("no pool {name}")).offer(&PoolList {}))
    }
}

impl Pools {
    /// Looks at every open pool, each inside its border.
    fn look<T>(&self, mut look: impl FnMut(&OpenPool) -> T) -> Vec<T> {
        // Where a look ends in a panic, the pool is taken away a moment later.
        let open = self.open.borrow();
        open.values().filter_map(|open| open.border.look(|| look(open))).collect()
    }
}

#[cfg(test)]
thread_local! {
    /// How often this thread has waited for an answer of an engine's.
    pub static TRIPS: Cell<usize> = const { Cell::new(0) };
}

fn look_at_all(local: &Local<Pools>) -> Vec<PoolInfo> {
    let now = local.world().now();
    local.state().look(|open| info::pool(open, now))
}

fn broken(pool: &str) -> ApiError {
    ApiError::new(Kind::Internal, format!("pool {pool} was closed, by a mistake of weft")).offer(&EventList::default())
}
