//! Finding pools and opening them, and taking disks back into pools that are open.
//!
//! Invariants
//! 1. A pool that a person closed is opened only by importing it, also over a restart.
//! 2. A disk is offered to an open pool only when the pool misses it: a second copy of a disk, or one that the pool has
//!    given up, is never looked into.
//! 3. A pool that did not open is tried again when anything about its disks is another than it was, and now and then
//!    where nothing is (`tried.rs`); people are told once why it does not open.

mod tried;

use super::backend::{Label, OpenHow, Run};
use super::engine::labels;
use super::events::since_1970;
use super::state::{MemberRecord, PoolRecord, State, Wanted};
use super::{Daemon, find, lock};
use crate::api::error::{Answer, ApiError, Kind};
use crate::api::pool::Importable;
use crate::api::pool::{DiskState, PoolInfo};
use crate::ops::disk::DiskList;
use crate::ops::line::ToLine;
use crate::ops::pool::PoolImport;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};
use tried::Tried;
use weft_engine::units::DiskNo;

/// How often a disk that is still claimed is tried again.
const CLAIM_EVERY: Duration = Duration::from_millis(20);

/// A pool that was found and is not open.
#[derive(Clone, Debug)]
pub(super) struct Unopened {
    pub(super) found: Importable,
    pub(super) why: Why,
    /// What stopped it, whichever disks are there now.
    cause: String,
    /// What it was tried with.
    tried: Tried,
    /// Whether they are enough to read it.
    readable: bool,
}

/// Why a pool that was found is not open; `reason` says it to people.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Why {
    /// A person closed it.
    Exported,
    /// Nobody asked for it yet.
    Unasked,
    /// It was tried, and somebody else has a disk of it, or its name.
    Busy,
    /// It was tried, or there is nothing to try.
    Failed,
}

/// Why something is looked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Looking {
    /// The daemon starts, or a person asks: every pool that is found is opened.
    Asked,
    /// Something appeared: only pools that were open here before are.
    Around,
    /// Nothing appeared by its name: the same, and what failed is tried again only where the disks are not as they were
    /// the last time, or that was a while ago.
    Again,
    /// To say what is there: nothing is opened.
    Survey,
}

type Found = (PathBuf, Label);

/// How pools that are found are opened.
#[derive(Clone, Copy)]
struct Attempt {
    looking: Looking,
    /// Until when disks are waited for that are claimed by somebody.
    deadline: Instant,
    /// Without those that are claimed even then.
    partly: bool,
}

/// What became of the disks that open pools miss.
#[derive(Default)]
struct Back {
    /// One was given back to its pool.
    attached: bool,
    /// One is still claimed by somebody: it is to be tried again at once.
    claimed: bool,
}

impl Unopened {
    /// The command that would open it, or tell more.
    pub(super) fn hint(&self) -> String {
        let import = PoolImport::of(&self.found.name);
        match self.why {
            Why::Exported | Why::Unasked => import.line(),
            Why::Failed if self.readable => PoolImport { read_only: true, degraded: true, ..import }.line(),
            Why::Busy | Why::Failed => DiskList::default().line(),
        }
    }

    /// Whether it is to be open, and is not.
    pub(super) fn is_wanted(&self) -> bool {
        matches!(self.why, Why::Busy | Why::Failed)
    }

    /// Takes over what came of trying to open it, from what was known of it before it was only looked at. Which of its
    /// disks are there may have changed since.
    fn take_what_is_known(&mut self, known: &Unopened) {
        if self.why == Why::Exported || known.why == Why::Exported {
            return;
        }
        (self.why, self.tried) = (known.why, known.tried.clone());
        self.readable = known.readable && known.tried.was_with(&self.found.disks);
        // What was said of a pool without any disk is not true of one that has some now.
        self.cause = match known.found.disks.is_empty() && !self.found.disks.is_empty() {
            true => String::from("too few of its disks were there"),
            false => known.cause.clone(),
        };
        self.found.reason = waiting(&self.cause, self.why, &self.found.missing, &self.tried);
    }

    /// Whether people were told of it, and why it is not open, when they were told of `other`.
    fn is_told_with(&self, other: &Unopened) -> bool {
        (&self.found.id, self.why, &self.found.reason) == (&other.found.id, other.why, &other.found.reason)
    }
}

/// Why a pool is not open, and which disks it waits for.
fn waiting(cause: &str, why: Why, missing: &[String], tried: &Tried) -> String {
    match why {
        Why::Failed if !missing.is_empty() => {
            format!("{cause} (not found: {}); it opens by itself when enough of them are back", missing.join(", "))
        }
        Why::Failed if tried.is_hindered() => {
            format!("{cause}; it opens by itself when enough of its disks can be opened")
        }
        _ => cause.into(),
    }
}

impl Daemon {
    /// Opens every pool that is found and not open, and gives disks back to those that are. What cannot be opened is
    /// kept with the reason. Disks that are claimed by somebody are waited for until `deadline`. Says whether
    /// somebody still claims a disk that an open pool misses.
    pub(super) fn open_found_pools(&self, deadline: Instant, looking: Looking) -> bool {
        let Ok(open) = self.parts.engine.pools() else { return false };
        let how = Attempt { looking, deadline, partly: Instant::now() < deadline };
        let mut found: BTreeMap<String, Vec<Found>> = BTreeMap::new();
        for (path, label) in self.labelled(&open) {
            if let Ok(Some(label)) = label
                && label.whole
            {
                found.entry(label.pool_id.clone()).or_default().push((path, label));
            }
        }
        let mut names: Vec<String> = open.iter().map(|pool| pool.name.clone()).collect();
        let mut unopened = self.without_disks(&open, &found);
        let (mut opened_now, mut back) = (Vec::new(), Back::default());
        for (id, members) in found {
            if let Some(pool) = open.iter().find(|pool| pool.id == id) {
                self.take_back(pool, &members, &mut back);
                continue;
            }
            match self.open_found(&id, &members, &names, how) {
                Some(left) => unopened.push(left),
                None => {
                    names.push(members[0].1.pool_name.clone());
                    opened_now.push((id, members));
                }
            }
        }
        // What was found beside the disks that a pool took.
        let open = if opened_now.is_empty() { open } else { self.parts.engine.pools().unwrap_or_default() };
        for (id, members) in opened_now {
            for pool in open.iter().filter(|pool| pool.id == id) {
                self.take_back(pool, &members, &mut back);
            }
        }
        self.keep_unopened(unopened, looking);
        match back.attached {
            true => self.note_pools(),
            false => self.note_open(&open),
        }
        back.claimed
    }

    /// Opens a pool that was found, if it is to be open. What is left of it when it is not.
    fn open_found(&self, id: &str, members: &[Found], open: &[String], how: Attempt) -> Option<Unopened> {
        let Attempt { looking, deadline, partly } = how;
        if let Some(tried) = self.tried(id, members).filter(|_| looking == Looking::Again) {
            return Some(tried);
        }
        let record = lock(&self.state).pools.iter().find(|record| record.id == id).cloned();
        let name = members[0].1.pool_name.clone();
        let left = |why, reason: &str| Err((why, reason.to_string()));
        let (begun, mut mistake) = (Instant::now(), false);
        let opened = match record.as_ref().map(|record| record.wanted) {
            Some(Wanted::Closed) => left(Why::Exported, "it was exported"),
            None if matches!(looking, Looking::Around | Looking::Again) => {
                left(Why::Unasked, "it appeared while the daemon ran")
            }
            _ if looking == Looking::Survey => left(Why::Unasked, "it was not asked for yet"),
            wanted => self
                .open_pool(&name, open, members, self.how(wanted.unwrap_or(Wanted::Open)), deadline, partly)
                .map_err(|error| {
                    mistake = error.kind == Kind::Internal;
                    (if error.kind == Kind::AlreadyExists { Why::Busy } else { Why::Failed }, error.message)
                }),
        };
        match opened {
            Ok(()) => {
                self.parts.journal.note(Some(&name), format!("pool {name} found on {} disks", members.len()));
                None
            }
            Err((why, reason)) => {
                let mut left = not_open(name, id.into(), members, record.as_ref(), why, reason);
                left.readable = why == Why::Failed && self.can_be_read(&left.found.disks);
                left.tried.took(begun.elapsed(), mistake);
                Some(left)
            }
        }
    }

    /// Whether a pool of which these disks are there, and which they do not open, can be read. It is read as an opening
    /// reads it: which disks carry the log, and which are out of date, is not to be guessed.
    pub(super) fn can_be_read(&self, disks: &[PathBuf]) -> bool {
        let how = OpenHow { read_only: true, degraded: true, partly: true, run: Run::Dry };
        self.parts.engine.pool_open(disks, how).is_ok()
    }

    /// Keeps what was found and is not open in place of what was known, and tells of what is new.
    fn keep_unopened(&self, mut unopened: Vec<Unopened>, looking: Looking) {
        let mut before = lock(&self.unopened);
        if looking == Looking::Survey {
            // What was tried before is known better.
            for pool in &mut unopened {
                if let Some(known) = before.iter().find(|known| known.found.id == pool.found.id) {
                    pool.take_what_is_known(known);
                }
            }
        }
        let is_news = |pool: &&Unopened| !before.iter().any(|known| pool.is_told_with(known));
        for pool in unopened.iter().filter(is_news).filter(|pool| pool.why != Why::Exported) {
            let Importable { name, reason, .. } = &pool.found;
            self.parts.journal.warn(Some(name), format!("pool {name} not opened: {reason}"));
        }
        *before = unopened;
    }

    /// What is known of a pool that could not be opened with these very disks, as they are.
    fn tried(&self, id: &str, members: &[Found]) -> Option<Unopened> {
        let unopened = lock(&self.unopened);
        let known = unopened.iter().find(|known| known.found.id == id && known.why == Why::Failed)?;
        (!known.tried.is_worth_another(members)).then(|| known.clone())
    }

    /// The pools that were open here, are to be, and of which no disk is there.
    fn without_disks(&self, open: &[PoolInfo], found: &BTreeMap<String, Vec<Found>>) -> Vec<Unopened> {
        let state = lock(&self.state);
        let records = state.pools.iter().filter(|record| record.wanted != Wanted::Closed && !record.disks.is_empty());
        let absent =
            records.filter(|record| !found.contains_key(&record.id) && open.iter().all(|pool| pool.id != record.id));
        absent
            .map(|record| {
                let reason = "none of its disks is there".into();
                not_open(record.name.clone(), record.id.clone(), &[], Some(record), Why::Failed, reason)
            })
            .collect()
    }

    /// How a pool is opened that a person wants so.
    fn how(&self, wanted: Wanted) -> OpenHow {
        OpenHow {
            partly: false,
            run: Run::Real,
            read_only: matches!(wanted, Wanted::ReadOnly | Wanted::ReadOnlyDegraded),
            degraded: self.degraded || wanted == Wanted::ReadOnlyDegraded,
        }
    }

    pub(super) fn open_pool(
        &self,
        name: &str,
        open: &[String],
        members: &[Found],
        how: OpenHow,
        deadline: Instant,
        partly: bool,
    ) -> Answer<()> {
        if open.iter().any(|other| other == name) {
            return Err(ApiError::new(Kind::AlreadyExists, format!("another pool is named {name}")));
        }
        let mut by_disk: BTreeMap<&str, &Path> = BTreeMap::new();
        for (path, label) in members {
            if let Some(twin) = by_disk.insert(&label.disk_id, path) {
                let (one, other) = (twin.display(), path.display());
                let disk = self.member_name(&label.disk_id).unwrap_or(label.disk_name.clone());
                let message = format!("its disk {disk} is there twice, as {one} and as {other}");
                return Err(ApiError::new(Kind::NotPossible, message));
            }
        }
        let paths: Vec<PathBuf> = members.iter().map(|(path, _)| path.clone()).collect();
        let without = self.open_members(&paths, how, deadline, partly)?;
        if how.run == Run::Dry {
            return Ok(());
        }
        for why in without {
            let text = format!("pool {name} was opened without a disk that cannot be had: {why}");
            self.parts.journal.warn(Some(name), text);
        }
        let names = lock(&self.state).pools.iter().find(|pool| pool.name == name).map(|pool| pool.names.clone());
        let names = names.unwrap_or_default().into_iter().map(|(no, name)| (DiskNo(no), name)).collect();
        self.parts.engine.disk_names(name, names);
        Ok(())
    }

    /// Opens a pool, and says why those disks cannot be had that it is open without.
    fn open_members(&self, paths: &[PathBuf], how: OpenHow, deadline: Instant, partly: bool) -> Answer<Vec<String>> {
        loop {
            match self.parts.engine.pool_open(paths, how) {
                Err(error) if error.kind == Kind::AlreadyExists && Instant::now() < deadline => {
                    thread::sleep(CLAIM_EVERY)
                }
                // One that somebody else has must not keep the others away from whoever needs them.
                Err(error) if partly && error.kind == Kind::AlreadyExists => {
                    return self.parts.engine.pool_open(paths, OpenHow { partly, ..how }).map_err(|_| error);
                }
                opened => return opened,
            }
        }
    }

    /// Gives the disks that were found to the open pool that misses them (invariant 2).
    fn take_back(&self, pool: &PoolInfo, found: &[Found], back: &mut Back) {
        for (path, label) in found {
            let member = pool.disks.iter().find(|disk| disk.id.as_ref() == Some(&label.disk_id));
            let shown = path.display();
            let refused = match member {
                Some(disk) if disk.state == DiskState::Missing => {
                    match self.parts.engine.disk_attach(&pool.name, path) {
                        Ok(_) => {
                            let text = format!("disk {} was found as {shown}", disk.name);
                            self.parts.journal.note(Some(&pool.name), text);
                            back.attached = true;
                            None
                        }
                        // Its last requests still hold it: the next look will find it free.
                        Err(error) if error.kind == Kind::AlreadyExists => {
                            back.claimed = true;
                            continue;
                        }
                        Err(error) => Some(format!("disk {} is back as {shown}, but: {}", disk.name, error.message)),
                    }
                }
                Some(disk) if disk.state == DiskState::Maintenance || disk.path.as_ref() == Some(path) => None,
                Some(disk) => Some(format!("{shown} is a copy of disk {}, which is there; it is not used", disk.name)),
                None => Some(format!("{shown} was a disk of this pool and is none any more; it is not used")),
            };
            let mut told = lock(&self.refused);
            let before = told.insert(path.clone(), refused.clone().unwrap_or_default());
            if let Some(text) = refused.filter(|text| before.as_ref() != Some(text)) {
                self.parts.journal.warn(Some(&pool.name), text);
            }
        }
    }

    /// The labels on everything found that is of no open pool. All those of one pool call it what its newest one does.
    pub(super) fn labelled(&self, open: &[PoolInfo]) -> Vec<(PathBuf, Answer<Option<Label>>)> {
        let there = |state: DiskState| !matches!(state, DiskState::Missing | DiskState::Maintenance);
        let members = open.iter().flat_map(|pool| &pool.disks).filter(|disk| there(disk.state));
        let taken: Vec<_> = members.filter_map(|disk| disk.path.as_deref()).filter_map(find::identity).collect();
        let free = self.scanned().into_iter();
        let free = free.filter(|path| find::identity(path).is_some_and(|identity| !taken.contains(&identity)));
        let read = |path: PathBuf| {
            let label = labels::probe(&path);
            (path, label)
        };
        let mut found: Vec<_> = free.map(read).collect();
        labels::agree(found.iter_mut().filter_map(|(_, label)| label.as_mut().ok()?.as_mut()).collect());
        found
    }

    /// Every place where a disk may be now.
    pub(super) fn scanned(&self) -> Vec<PathBuf> {
        let hints = lock(&self.state).disks.clone();
        find::scan(self.places.as_deref(), &hints)
    }

    /// Remembers what open pools and their disks are called, and where they are.
    pub(super) fn remember_open(&self, open: &[PoolInfo]) -> Answer<()> {
        let mut next = lock(&self.state).clone();
        open.iter().for_each(|pool| note_pool(&mut next, pool));
        if *lock(&self.state) == next { Ok(()) } else { self.remember(|state| *state = next) }
    }

    /// Notes the pools, where failing to is no reason to fail: names and last places are a comfort.
    pub(super) fn note_pools(&self) {
        let open = self.parts.engine.pools().unwrap_or_default();
        self.note_open(&open);
    }

    /// Notes the pools that are open, in the state in which they were seen just now.
    pub(super) fn note_open(&self, open: &[PoolInfo]) {
        if let Err(error) = self.remember_open(open) {
            self.parts.journal.warn(None, format!("what the pools are like is not remembered: {}", error.message));
        }
    }

    /// What the disk of this identity was called in its pool, when the pool was last open here.
    pub(super) fn member_name(&self, id: &str) -> Option<String> {
        let state = lock(&self.state);
        let mut disks = state.pools.iter().flat_map(|pool| &pool.disks);
        disks.find(|disk| disk.id == id).map(|disk| disk.name.clone())
    }
}

/// Seconds since 1970 UTC.
pub(super) fn wall_clock() -> u64 {
    since_1970().as_secs()
}

fn not_open(
    name: String,
    id: String,
    members: &[Found],
    record: Option<&PoolRecord>,
    why: Why,
    cause: String,
) -> Unopened {
    let here = |disk: &&MemberRecord| members.iter().any(|(_, label)| label.disk_id == disk.id);
    let known = record.map(|record| record.disks.as_slice()).unwrap_or_default();
    let missing: Vec<String> = known.iter().filter(|disk| !here(disk)).map(|disk| disk.name.clone()).collect();
    let disks = in_order(members);
    let tried = if matches!(why, Why::Busy | Why::Failed) { Tried::with(members) } else { Tried::default() };
    let reason = waiting(&cause, why, &missing, &tried);
    Unopened { found: Importable { name, id, disks, missing, reason }, why, cause, tried, readable: false }
}

/// Where the disks are, by name.
fn in_order(members: &[Found]) -> Vec<PathBuf> {
    let mut disks: Vec<PathBuf> = members.iter().map(|(path, _)| path.clone()).collect();
    disks.sort();
    disks
}

fn note_pool(state: &mut State, pool: &PoolInfo) {
    let no = state.pools.iter().position(|record| record.id == pool.id).unwrap_or_else(|| {
        state.pools.push(PoolRecord {
            id: pool.id.clone(),
            name: String::new(),
            wanted: Wanted::Open,
            since: wall_clock(),
            disks: Vec::new(),
            names: BTreeMap::new(),
        });
        state.pools.len() - 1
    });
    let record = &mut state.pools[no];
    let before = std::mem::take(&mut record.disks);
    record.name = pool.name.clone();
    for disk in &pool.disks {
        let Some(id) = disk.id.clone() else { continue };
        record.names.extend(disk.no.map(|no| (no, disk.name.clone())));
        let last = before.iter().find(|known| known.id == id).and_then(|known| known.path.clone());
        record.disks.push(MemberRecord { id, name: disk.name.clone(), path: disk.path.clone().or(last) });
    }
}
