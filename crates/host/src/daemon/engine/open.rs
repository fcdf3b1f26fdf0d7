//! Making, opening and closing pools, on the engine's thread.

use super::border::Border;
use super::labels::hex;
use super::socket::Sockets;
use super::world::PoolWorld;
use super::{Pools, history, info, labels, upkeep};
use crate::api::error::{Answer, ApiError, Kind};
use crate::api::name::VdiskName;
use crate::api::pool::PoolInfo;
use crate::daemon::backend::{Label, NewMember, NewPool, OpenHow, Run};
use crate::daemon::events::{Journal, now_ms};
use crate::daemon::find::{self, Thing};
use crate::daemon::opening::wall_clock;
use crate::disk::{DiskOptions, HostDisk};
use crate::ops::vdisk::VdiskList;
use crate::ops::watch::EventList;
use crate::runtime::Local;
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use weft_engine::error::{Error, ErrorKind};
use weft_engine::format::Id;
use weft_engine::format::record::Media;
use weft_engine::io::Disk;
use weft_engine::pool::create::{self, NewDisk, PoolOptions};
use weft_engine::pool::{OpenOptions, Pool};
use weft_engine::units::{DiskNo, Nanos, VdiskNo};
use weft_engine::vdisk::Vdisk;

/// How often people are told at most that clients are refused for want of room.
const ROOM_TOLD_EVERY: Nanos = Nanos::secs(60);

/// A pool that is open, with what only the host knows of it.
pub struct OpenPool {
    pub pool: Rc<Pool>,
    /// Everything that runs code of the pool runs inside.
    pub border: Rc<Border>,
    /// Where its disks are plugged in.
    pub sockets: Rc<Sockets>,
    /// Where its disks were found, by their numbers.
    pub paths: RefCell<BTreeMap<DiskNo, PathBuf>>,
    /// What was there when they were opened.
    identities: RefCell<BTreeMap<DiskNo, Option<Thing>>>,
    /// What they were when they were up to date last, of those that were looked for since.
    whole: RefCell<BTreeMap<DiskNo, Option<Thing>>>,
    /// Other files with the labels of its disks that were not taken for them, and what they were.
    copies: RefCell<BTreeMap<DiskNo, (PathBuf, Option<Thing>)>>,
    /// The disks that went away while it was open.
    pub gone: Rc<RefCell<BTreeSet<DiskNo>>>,
    /// How often each disk was found. Requests to the file of an earlier time may still be under way, and tell late
    /// that it is gone.
    found: Rc<RefCell<BTreeMap<DiskNo, u64>>>,
    /// When it was opened.
    pub opened: Nanos,
    /// When it was opened by the wall clock, in milliseconds since 1970 UTC.
    begun: u64,
    pub(super) journal: Arc<Journal>,
    /// When it was last told that clients are refused for want of room.
    refused_for_room: Cell<Option<Nanos>>,
    /// Tells its events, and knows the names of disks that have left it.
    world: Rc<PoolWorld>,
}

/// A disk that was taken out because it failed: nobody watches it any more.
pub struct FailedDisk {
    id: Id,
    path: PathBuf,
    identity: Option<Thing>,
}

impl FailedDisk {
    /// Whether something else, or nothing, is where it was opened.
    pub fn is_pulled(&self) -> bool {
        find::thing(&self.path) != self.identity
    }
}

impl OpenPool {
    /// What a disk of the pool is called, or was; its number when that is not known.
    pub fn disk_name(&self, no: DiskNo) -> String {
        self.world.disk_name(no)
    }

    /// What a virtual disk of the pool is called, if it is there.
    pub fn vdisk_name(&self, no: VdiskNo) -> Option<String> {
        self.pool.store().map.borrow().vdisks.get(&no).map(|vdisk| vdisk.name.clone())
    }

    /// What disks were called that may have left.
    pub fn know_names(&self, names: BTreeMap<DiskNo, String>) {
        self.world.know_names(names);
    }

    /// Whether a disk is a file, and another disk of the pool is one on the same device: how long it takes tells
    /// nothing of it.
    pub fn shares_its_device(&self, no: DiskNo) -> bool {
        self.world.shares_its_device(no)
    }

    /// A disk of the pool was opened at `path`.
    pub fn found(&self, no: DiskNo, path: PathBuf, disk: &HostDisk) {
        self.identities.borrow_mut().insert(no, find::thing(&path));
        let places = self.identities.borrow().iter().map(|(no, thing)| (*no, thing.map(|thing| thing.place))).collect();
        self.world.know_sharing(sharing(&places));
        self.paths.borrow_mut().insert(no, path);
        self.gone.borrow_mut().remove(&no);
        self.copies.borrow_mut().remove(&no);
        let mine = {
            let mut found = self.found.borrow_mut();
            let times = found.entry(no).or_default();
            *times += 1;
            *times
        };
        let (pool, gone, found) = (Rc::downgrade(&self.pool), self.gone.clone(), self.found.clone());
        let border = self.border.clone();
        // The pool would else notice only when it next uses the disk.
        disk.on_gone(move || {
            if found.borrow().get(&no) != Some(&mine) {
                return;
            }
            gone.borrow_mut().insert(no);
            if let Some(pool) = pool.upgrade() {
                border.look(|| pool.store().disk_lost(no, "its file or device is gone"));
            }
        });
    }

    /// Whether the member of this identity was another file when it was last open, and up to date.
    pub fn is_another_file(&self, id: &str, path: &Path) -> bool {
        let members = self.pool.store().members.borrow();
        let Some((no, member)) = members.iter().find(|(_, member)| hex(member.id) == id) else { return false };
        let last = self.identities.borrow().get(no).copied().flatten();
        let mut whole = self.whole.borrow_mut();
        // A copy that never became the pool's disk says nothing of the file that is.
        if member.left_current || !whole.contains_key(no) {
            whole.insert(*no, last);
        }
        matches!((whole[no], find::thing(path)), (Some(before), Some(now)) if now.is_another_file_than(before))
    }

    /// Notes that what is at `path` was not taken for the member of this identity, where the pool cannot do without the
    /// member itself.
    pub fn note_copy(&self, id: &str, path: &Path) {
        let members = self.pool.store().members.borrow();
        let member = members.iter().find(|(_, member)| hex(member.id) == id);
        if let Some((no, _)) = member.filter(|(_, member)| member.copy_refused) {
            self.copies.borrow_mut().insert(*no, (path.into(), find::thing(path)));
        }
    }

    /// The other file that is there in place of a disk, and was not taken for it.
    pub fn copy_of(&self, no: DiskNo) -> Option<PathBuf> {
        let copies = self.copies.borrow();
        let (path, what) = copies.get(&no)?;
        (what.is_some() && find::thing(path) == *what).then(|| path.clone())
    }

    /// A write to a virtual disk found no room: told, unless that was told a moment ago.
    pub fn refused_for_room(&self, vdisk: &str, now: Nanos) {
        if self.refused_for_room.get().is_some_and(|last| now.since(last) < ROOM_TOLD_EVERY) {
            return;
        }
        self.refused_for_room.set(Some(now));
        let pool = self.pool.name();
        let text = format!(
            "the pool is full: writes of clients to {pool}/{vdisk} fail with \"no space left\"; add a disk, or delete \
            or discard data"
        );
        self.journal.warn(Some(&pool), text);
    }

    /// The disks that failed and were not seen to go.
    pub fn failed_disks(&self) -> Vec<FailedDisk> {
        let members = self.pool.store().members.borrow();
        let (paths, identities, gone) = (self.paths.borrow(), self.identities.borrow(), self.gone.borrow());
        let failed = members.iter().filter(|(no, member)| member.disk.is_none() && !gone.contains(no));
        failed
            .filter_map(|(no, member)| {
                let (path, identity) = (paths.get(no)?.clone(), *identities.get(no)?);
                Some(FailedDisk { id: member.id, path, identity })
            })
            .collect()
    }

    /// These are no longer there: when they are back, they are not those that failed any more.
    pub fn note_pulled(&self, pulled: &[FailedDisk]) {
        let members = self.pool.store().members.borrow();
        let gone = members
            .iter()
            .filter(|(_, member)| member.disk.is_none() && pulled.iter().any(|disk| disk.id == member.id));
        self.gone.borrow_mut().extend(gone.map(|(no, _)| *no));
    }

    pub fn vdisk(&self, name: &VdiskName) -> Answer<Rc<Vdisk>> {
        let found = self.pool.vdisk(&name.vdisk);
        found.ok_or_else(|| {
            ApiError::new(Kind::NotFound, format!("no virtual disk {name}")).offer(&VdiskList::default())
        })
    }
}

/// The disks that are files on the device of another of them. A block device is a device of its own.
fn sharing(identities: &BTreeMap<DiskNo, Option<(u64, u64)>>) -> BTreeSet<DiskNo> {
    let device = |no: &DiskNo| {
        identities.get(no).copied().flatten().map(|(device, _)| device).filter(|device| *device != u64::MAX)
    };
    let together = |no: &DiskNo| {
        device(no).is_some_and(|own| identities.keys().any(|other| other != no && device(other) == Some(own)))
    };
    identities.keys().copied().filter(together).collect()
}

/// Writes a new pool on its disks, and opens it.
pub async fn create(local: Rc<Local<Pools>>, new: NewPool, journal: Arc<Journal>) -> Answer<PoolInfo> {
    let mut disks = Vec::new();
    let mut members = Vec::new();
    for member in &new.members {
        let (disk, new) = new_disk(&local, member)?;
        members.push((member.path.clone(), disk));
        disks.push(new);
    }
    let options = PoolOptions { id: random_id()?, name: new.name, slab: new.slab_size, log_len: None };
    create::create(disks, &options).await?;
    open_disks(&local, members, OpenOptions::default(), journal).await?;
    Ok(info::pool(&*local.state().pool(&options.name)?, local.world().now()))
}

/// Claims a disk that is to become a member.
pub fn new_disk(local: &Local<Pools>, member: &NewMember) -> Answer<(Rc<HostDisk>, NewDisk)> {
    let disk = local.open_disk(&member.path, &DiskOptions::default())?;
    let media = if disk.shape().rotational { Media::Hdd } else { Media::Ssd };
    let new = NewDisk { disk: disk.clone(), id: random_id()?, name: member.name.clone(), media };
    Ok((disk, new))
}

/// Opens the pool that `members` carry. Returns why it was opened without some of them.
pub async fn open(
    local: Rc<Local<Pools>>,
    members: Vec<PathBuf>,
    how: OpenHow,
    journal: Arc<Journal>,
) -> Answer<Vec<String>> {
    let (disks, without) = claim(&local, members, how)?;
    let options = OpenOptions { read_only: how.read_only, degraded: how.degraded, ..OpenOptions::default() };
    open_disks(&local, disks, options, journal).await.map_err(|error| not_with(error, &without))?;
    Ok(without)
}

/// The members that were claimed, and where they are.
type Claimed = Vec<(PathBuf, Rc<HostDisk>)>;

/// Claims those of `members` that can be had, and says why the others cannot: a disk that cannot be opened is no more
/// to its pool than one that is gone. One that somebody else has may be free in a moment, so that it is missed only
/// where it was waited for.
fn claim(local: &Local<Pools>, members: Vec<PathBuf>, how: OpenHow) -> Answer<(Claimed, Vec<String>)> {
    let (mut disks, mut without) = (Vec::new(), Vec::new());
    let options = DiskOptions { read_only: how.read_only, ..DiskOptions::default() };
    for path in members {
        match local.open_disk(&path, &options) {
            Ok(disk) => disks.push((path, disk)),
            Err(error) if error.kind == ErrorKind::AlreadyExists && !how.partly => return Err(error.into()),
            Err(error) => without.push(error),
        }
    }
    match (disks.is_empty(), without.first()) {
        (true, Some(error)) => Err(error.clone().into()),
        _ => Ok((disks, without.into_iter().map(|error| error.context).collect())),
    }
}

/// Says of a pool that does not open which disks it was to be opened without.
fn not_with(error: ApiError, without: &[String]) -> ApiError {
    match without {
        [] => error,
        _ => ApiError { message: format!("{}; {}", without.join("; "), error.message), ..error },
    }
}

/// Sees that the pool which `members` carry opens: all of it is read as an opening reads it, nothing is written, and
/// the disks are free again. Returns why it would be opened without some of them.
pub async fn plan(local: Rc<Local<Pools>>, members: Vec<PathBuf>, how: OpenHow) -> Answer<Vec<String>> {
    let border = Rc::new(Border::default());
    let planned = border.guard(plan_inside(local, members, how)).await;
    let mistake = || Err(ApiError::new(Kind::Internal, "the pool cannot be opened, by a mistake of weft"));
    planned.unwrap_or_else(mistake)
}

async fn plan_inside(local: Rc<Local<Pools>>, members: Vec<PathBuf>, how: OpenHow) -> Answer<Vec<String>> {
    let (claimed, without) = claim(&local, members, how)?;
    let mut disks: Vec<Rc<dyn Disk>> = Vec::new();
    for (path, disk) in claimed {
        disks.push(disk);
        not_broken(&local, labels::probe(&path)?.as_ref())?;
    }
    let tuning = local.state().tuning;
    let options = OpenOptions { read_only: true, degraded: how.degraded, tuning, ..OpenOptions::default() };
    let pool = Pool::open(local.world(), disks, options).await;
    let pool = pool.map_err(|error| not_with(said_by_disks(error).into(), &without))?;
    let closed = pool.close().await;
    drop(pool.release());
    closed?;
    Ok(without)
}

/// Refuses a pool that was closed after a panic in it.
fn not_broken(local: &Local<Pools>, label: Option<&Label>) -> Answer<()> {
    if label.is_some_and(|label| local.state().broken.borrow().contains(&label.pool_id)) {
        let message = "it was closed after a mistake of weft; a restart of the daemon opens it again";
        return Err(ApiError::new(Kind::NotPossible, message).offer(&EventList::default()));
    }
    Ok(())
}

async fn open_disks(
    local: &Rc<Local<Pools>>,
    members: Vec<(PathBuf, Rc<HostDisk>)>,
    options: OpenOptions,
    journal: Arc<Journal>,
) -> Answer<()> {
    let border = Rc::new(Border::default());
    let why = Rc::new(RefCell::new(String::new()));
    let told = why.clone();
    border.on_death(move |words| *told.borrow_mut() = words);
    let sockets: Rc<Sockets> = Rc::default();
    let opening = open_inside(local.clone(), border.clone(), members, sockets.clone(), options, journal);
    match border.guard(opening).await {
        Some(opened) => opened,
        None => {
            sockets.unplug();
            let why = why.borrow();
            Err(ApiError::new(Kind::Internal, format!("the pool cannot be opened, by a mistake of weft: {why}")))
        }
    }
}

/// Opens a pool inside its own border, where a panic ends.
async fn open_inside(
    local: Rc<Local<Pools>>,
    border: Rc<Border>,
    members: Vec<(PathBuf, Rc<HostDisk>)>,
    sockets: Rc<Sockets>,
    options: OpenOptions,
    journal: Arc<Journal>,
) -> Answer<()> {
    let begun = now_ms();
    // The engine knows disks by what they carry; where they are is kept beside it, by identity.
    let mut found = BTreeMap::new();
    for (path, disk) in &members {
        if let Some(label) = labels::probe(path)? {
            not_broken(&local, Some(&label))?;
            found.insert(label.disk_id, (path.clone(), disk.clone()));
        }
    }
    let world = PoolWorld::new(local.world(), journal.clone(), border.clone());
    let disks = members.iter().map(|(_, disk)| sockets.plug(disk.clone())).collect();
    // What this opening writes is told apart by it from what another machine may write.
    let lineage = u64::from_le_bytes(random()?);
    let options = OpenOptions { tuning: local.state().tuning, lineage, ..options };
    let pool = Pool::open(world.clone(), disks, options).await.map_err(said_by_disks)?;
    let info = pool.info();
    history::adopt(&pool, &journal);
    world.introduce(&pool);
    history::catch_up(&pool, &journal, begun);
    pool.set_unix_now(wall_clock());
    let (weak, at_hand) = (Rc::downgrade(&local), sockets.clone());
    border.on_death(move |why| {
        at_hand.unplug();
        if let Some(local) = weak.upgrade() {
            let task = bury(local.clone(), why);
            local.spawn("bury", task);
        }
    });
    let open = OpenPool {
        pool,
        border,
        sockets,
        paths: RefCell::default(),
        identities: RefCell::default(),
        whole: RefCell::default(),
        copies: RefCell::default(),
        gone: Rc::default(),
        found: Rc::default(),
        opened: local.world().now(),
        begun,
        journal,
        refused_for_room: Cell::new(None),
        world,
    };
    for member in &info.disks {
        let Some((path, disk)) = found.remove(&hex(member.id)) else { continue };
        open.found(member.no, path, &disk);
    }
    let open = Rc::new(open);
    local.state().open.borrow_mut().insert(info.name.clone(), open.clone());
    if !options.read_only {
        upkeep::resume_maintenance(&open).await?;
    }
    Ok(())
}

/// Takes pools away in which there was a panic. Nothing of them is dropped: what is wrong with them is not known.
async fn bury(local: Rc<Local<Pools>>, why: String) {
    let state = local.state();
    let dead: Vec<(String, Rc<OpenPool>)> = {
        let mut open = state.open.borrow_mut();
        open.extract_if(.., |_, open| open.border.is_dead()).collect()
    };
    for (name, open) in dead {
        let served: Vec<_> = {
            let mut served = state.served.borrow_mut();
            served.extract_if(.., |_, served| Rc::ptr_eq(&served.border, &open.border)).collect()
        };
        std::mem::forget(served);
        state.broken.borrow_mut().insert(hex(open.pool.store().id));
        let text =
            format!("pool {name} was closed, by a mistake of weft: {why}; a restart of the daemon opens it again");
        open.journal.warn(Some(&name), text);
        std::mem::forget(open);
    }
}

/// Nobody typed what stands on disks: where it is not valid, they are damaged, and no command is wrong.
fn said_by_disks(error: Error) -> Error {
    match error.kind {
        ErrorKind::InvalidInput => {
            Error::new(ErrorKind::Corrupt, format!("its disks say what cannot be: {}", error.context))
        }
        _ => error,
    }
}

/// Removes a pool: its disks carry it no more.
pub async fn remove(local: Rc<Local<Pools>>, name: String, run: Run) -> Answer<()> {
    local.state().pool(&name)?.pool.plan_remove()?;
    if run == Run::Real { close(local, &name, true).await } else { Ok(()) }
}

/// Closes a pool and gives its disks back; with `wipe` they carry it no more.
pub async fn close(local: Rc<Local<Pools>>, name: &str, wipe: bool) -> Answer<()> {
    let open = local.state().pool(name)?;
    local.state().served.borrow_mut().retain(|_, served| !Rc::ptr_eq(&served.border, &open.border));
    history::catch_up(&open.pool, &open.journal, open.begun);
    let closed = open.pool.close().await;
    local.state().open.borrow_mut().remove(name);
    // Tasks that end a moment later still hold the pool; the disks are free at once.
    let disks = open.pool.release();
    if wipe {
        for (disk, plan) in &disks {
            create::give_back(disk, plan).await?;
        }
        return Ok(());
    }
    Ok(closed?)
}

fn random_id() -> Answer<Id> {
    Ok(Id(random()?))
}

fn random<const N: usize>() -> Answer<[u8; N]> {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes)
        .map_err(|error| ApiError::new(Kind::Internal, format!("the system gives no random numbers: {error}")))?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::super::{HostEngine, info};
    use super::*;
    use crate::ops::watch::EventList;
    use std::fs::File;
    use weft_engine::event::Event;
    use weft_engine::pool::info::DiskState;
    use weft_engine::store::Tuning;
    use weft_engine::units::ByteCount;
    use weft_engine::world::World;

    #[test]
    fn files_share_a_device_and_block_devices_are_their_own() {
        let block = |number| Some((u64::MAX, number));
        let identities = BTreeMap::from([
            (0, Some((8, 1))),
            (1, Some((8, 2))),
            (2, Some((9, 1))),
            (3, block(1)),
            (4, block(2)),
            (5, None),
        ]);
        let identities = identities.into_iter().map(|(no, place)| (DiskNo(no), place)).collect();
        assert_eq!(sharing(&identities), BTreeSet::from([DiskNo(0), DiskNo(1)]));
    }

    #[test]
    fn a_disk_that_shares_its_device_is_never_called_slow_and_one_of_its_own_is() {
        let dir = tempfile::tempdir().unwrap();
        let journal = Arc::new(Journal::default());
        let engine = HostEngine::start(journal.clone(), Tuning::default()).unwrap();
        let member = |name: &str| {
            let path = dir.path().join(name);
            File::create(&path).unwrap().set_len(64 << 20).unwrap();
            NewMember { path, name: name.into() }
        };
        let members = ["a", "b"].map(member).to_vec();
        engine.pool_create(&NewPool { name: "p".into(), slab_size: ByteCount::mib(1), members }).unwrap();
        let told = || {
            let page = journal.page(&EventList::default());
            page.events.iter().filter(|event| event.text.contains("slow")).count()
        };
        // Whether the engine's finding that the first of them is slow is shown.
        let finds = |devices: Option<BTreeSet<DiskNo>>| {
            engine.ask_pool("p", "finds", move |open| async move {
                if let Some(devices) = devices {
                    open.world.know_sharing(devices);
                }
                let (own, median) = (Nanos::secs(1), Nanos(1_000_000));
                open.world.emit(Event::DiskSlow { disk: DiskNo(0), slow: true, own, median });
                let mut slow = open.pool.info().disks[0].clone();
                slow.state = DiskState::Slow;
                Ok(info::disk(&open, "p", &slow, true).slow)
            })
        };
        assert_eq!((finds(None).unwrap(), told()), (false, 0));
        assert_eq!((finds(Some(BTreeSet::new())).unwrap(), told()), (true, 1));
    }
}
