//! Pools and their disks: finding and opening, making and removing.

use super::backend::{Label, NewMember, NewPool, OpenHow};
use super::find::{self, Look};
use super::{Daemon, lock, probe};
use crate::api::error::{Answer, ApiError, Kind};
use crate::api::judge;
use crate::api::pool::{ChangeQuery, DiskCounters, DiskInfo, DiskState, Media, PoolCreate, PoolInfo, PoolQuery};
use crate::api::size::{Size, typed};
use crate::api::watch::{Change, Outcome};
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{Seek, SeekFrom};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};
use weft_engine::limits;
use weft_engine::units::ByteCount;

/// How often a disk that is still claimed is tried again.
const CLAIM_EVERY: Duration = Duration::from_millis(20);

/// A pool that was found and could not be opened.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Unopened {
    pub(super) name: String,
    pub(super) id: String,
    pub(super) reason: String,
}

/// What a new pool would do to one disk.
struct Candidate {
    path: PathBuf,
    /// Make the file, of this size.
    create: Option<ByteCount>,
    /// Overwrite what is on it.
    holds: Option<String>,
}

impl Daemon {
    /// The open pools, with where their virtual disks are offered.
    pub(super) fn pools(&self) -> Answer<Vec<PoolInfo>> {
        let mut pools = self.parts.engine.pools()?;
        let state = lock(&self.state);
        for vdisk in pools.iter_mut().flat_map(|pool| &mut pool.vdisks) {
            let offered = state.exports.iter().filter(|export| export.vdisk == vdisk.name);
            vdisk.exports = offered.map(|export| export.nbd.to_string()).collect();
        }
        Ok(pools)
    }

    /// One open pool. A pool that is not open is looked for once more.
    pub(super) fn pool(&self, name: &str) -> Answer<PoolInfo> {
        judge::name(name)?;
        if let Some(pool) = self.pools()?.into_iter().find(|pool| pool.name == name) {
            return Ok(pool);
        }
        self.rescan(Instant::now());
        let pools = self.pools()?;
        let known = pools.iter().map(|pool| pool.name.clone()).collect::<Vec<_>>();
        if let Some(pool) = pools.into_iter().find(|pool| pool.name == name) {
            return Ok(pool);
        }
        if let Some(unopened) = lock(&self.unopened).iter().find(|unopened| unopened.name == name) {
            let message = format!("pool {name} was found but is not open: {}", unopened.reason);
            return Err(ApiError::new(Kind::NotPossible, message).hint("weft disk list"));
        }
        let (message, hint) = match known.as_slice() {
            [] => (format!("no pool {name}; there are no pools"), format!("weft pool create {name} DISK...")),
            [only] => (format!("no pool {name}; there is {only}"), format!("weft pool show {only}")),
            _ => (format!("no pool {name}; there are {}", known.join(", ")), "weft pool list".into()),
        };
        Err(ApiError::new(Kind::NotFound, message).hint(hint))
    }

    /// Opens every pool that is found and not open. What cannot be opened is kept with the reason. Disks that are claimed
    /// by somebody are waited for until `patience` is over.
    pub(super) fn open_found_pools(&self, patience: Instant) {
        let Ok(open) = self.parts.engine.pools() else { return };
        let mut found: BTreeMap<String, Vec<(PathBuf, Label)>> = BTreeMap::new();
        for (path, label) in self.labelled(&open) {
            if let Ok(Some(label)) = label {
                found.entry(label.pool_id.clone()).or_default().push((path, label));
            }
        }
        found.retain(|id, _| open.iter().all(|pool| pool.id != *id));
        let mut names: Vec<String> = open.iter().map(|pool| pool.name.clone()).collect();
        let mut unopened = Vec::new();
        for (id, members) in found {
            let name = members[0].1.pool_name.clone();
            let opened = self.open_pool(&name, &names, &members, patience);
            match opened {
                Ok(()) => {
                    self.parts.journal.note(Some(&name), format!("pool {name} found on {} disks", members.len()));
                    names.push(name);
                }
                Err(error) => unopened.push(Unopened { name, id, reason: error.message }),
            }
        }
        let mut before = lock(&self.unopened);
        for pool in unopened.iter().filter(|pool| !before.contains(pool)) {
            self.parts.journal.warn(Some(&pool.name), format!("pool {} not opened: {}", pool.name, pool.reason));
        }
        *before = unopened;
    }

    fn open_pool(&self, name: &str, open: &[String], members: &[(PathBuf, Label)], patience: Instant) -> Answer<()> {
        if open.iter().any(|other| other == name) {
            return Err(ApiError::new(Kind::AlreadyExists, format!("another pool is named {name}")));
        }
        let mut by_disk: BTreeMap<&str, &Path> = BTreeMap::new();
        for (path, label) in members {
            if let Some(twin) = by_disk.insert(&label.disk_id, path) {
                let (one, other) = (twin.display(), path.display());
                let message = format!("its disk {} is there twice, as {one} and as {other}", label.disk_name);
                return Err(ApiError::new(Kind::NotPossible, message));
            }
        }
        let paths: Vec<PathBuf> = members.iter().map(|(path, _)| path.clone()).collect();
        loop {
            let opened = self.parts.engine.pool_open(&paths, OpenHow { read_only: false, degraded: self.degraded });
            match opened {
                Err(error) if error.kind == Kind::AlreadyExists && Instant::now() < patience => {
                    thread::sleep(CLAIM_EVERY)
                }
                opened => return opened,
            }
        }
    }

    /// The labels on everything found that is of no open pool.
    fn labelled(&self, open: &[PoolInfo]) -> Vec<(PathBuf, Answer<Option<Label>>)> {
        let members = open.iter().flat_map(|pool| &pool.disks).filter_map(|disk| disk.path.as_deref());
        let taken: Vec<_> = members.filter_map(find::identity).collect();
        let hints = lock(&self.state).disks.clone();
        let found = find::scan(self.places.as_deref(), &hints).into_iter();
        let free = found.filter(|path| find::identity(path).is_some_and(|identity| !taken.contains(&identity)));
        free.map(|path| {
            let label = self.parts.engine.probe(&path);
            (path, label)
        })
        .collect()
    }

    pub(super) fn close_pools(&self) -> Answer<()> {
        let mut result = Ok(());
        for pool in self.parts.engine.pools()? {
            let closed = self.parts.engine.pool_close(&pool.name);
            result = result.and(closed);
        }
        result
    }

    pub(super) fn create_pool(&self, request: &PoolCreate) -> Answer<Change> {
        let (create_size, slab_size) = judge_create(request)?;
        let open = self.pools()?;
        if open.iter().any(|pool| pool.name == request.name) {
            let message = format!("a pool named {} is there already", request.name);
            let other = create_command(request, &format!("{}2", request.name), "");
            return Err(ApiError::new(Kind::AlreadyExists, message).hint(other));
        }
        let mut candidates = Vec::new();
        for path in &request.disks {
            candidates.push(self.candidate(request, path, create_size, &open)?);
        }
        let members = name_members(&candidates);
        let mut change = Change::new(Outcome::Created, format!("pool {}", request.name), request.dry_run);
        for (candidate, member) in candidates.iter().zip(&members) {
            change = change.line(candidate.describe(&member.name));
        }
        change = change.line(format!("slab size {}", typed(slab_size)));
        if !request.dry_run {
            let new = NewPool { name: request.name.clone(), slab_size, members };
            self.make_pool(&new, &candidates)?;
        }
        Ok(change)
    }

    /// Makes the pool; when that fails, takes the files back that were made for it.
    fn make_pool(&self, new: &NewPool, candidates: &[Candidate]) -> Answer<()> {
        let mut made = Vec::new();
        let result = make_ready(candidates, &mut made).and_then(|()| self.parts.engine.pool_create(new));
        if result.is_err() {
            for path in made {
                let _ = fs::remove_file(path);
            }
            return result;
        }
        let found = find::scan(self.places.as_deref(), &[]);
        let outside: Vec<PathBuf> = candidates
            .iter()
            .map(|candidate| candidate.path.clone())
            .filter(|path| !found.iter().any(|found| find::identity(found) == find::identity(path)))
            .collect();
        if outside.is_empty() {
            return Ok(());
        }
        self.remember(|state| {
            state.disks.extend(outside);
            state.disks.sort();
            state.disks.dedup();
        })
    }

    /// Judges one disk of a new pool, changing nothing.
    fn candidate(
        &self,
        request: &PoolCreate,
        path: &Path,
        create_size: Option<ByteCount>,
        open: &[PoolInfo],
    ) -> Answer<Candidate> {
        let shown = path.display();
        match (find::look(path), create_size) {
            (Look::File(_) | Look::Block, _) => {}
            (Look::Missing, Some(size)) if path.parent().is_some_and(Path::is_dir) => {
                return Ok(Candidate { path: path.into(), create: Some(size), holds: None });
            }
            (Look::Missing, Some(_)) => {
                let dir = path.parent().unwrap_or(path).display();
                return Err(ApiError::new(Kind::NotFound, format!("{shown}: no directory {dir}"))
                    .hint(format!("mkdir -p {dir}")));
            }
            (Look::Missing, None) => {
                let hint = create_command(request, &request.name, "--create-size 10GiB");
                return Err(ApiError::new(Kind::NotFound, format!("no disk {shown}")).hint(hint));
            }
            (Look::Other, _) => {
                let message = format!("{shown} is no disk; block devices and regular files are");
                return Err(ApiError::new(Kind::NotPossible, message).hint("weft disk list"));
            }
        }
        in_use(path, open)?;
        let label = self.parts.engine.probe(path)?;
        let mut holds = probe::look(path).map_err(|error| {
            ApiError::new(Kind::NotPossible, format!("cannot read {shown}: {error}")).hint("weft disk list")
        })?;
        if let Some(label) = label {
            holds = vec![format!("disk {} of pool {}", label.disk_name, label.pool_name)];
        }
        let holds = (!holds.is_empty()).then(|| holds.join(" and "));
        match holds {
            Some(holds) if !request.force => {
                let message = format!("{shown} holds {holds}; only --force overwrites it");
                let hint = create_command(request, &request.name, "--force");
                Err(ApiError::new(Kind::NotPossible, message).hint(hint))
            }
            holds => Ok(Candidate { path: path.into(), create: None, holds }),
        }
    }

    pub(super) fn remove_pool(&self, name: &str, how: ChangeQuery) -> Answer<Change> {
        let pool = self.pools()?.into_iter().find(|pool| pool.name == name);
        let pool = pool.ok_or_else(|| ApiError::new(Kind::NotFound, format!("no pool {name}")))?;
        if let Some(vdisk) = pool.vdisks.iter().find(|vdisk| !vdisk.exports.is_empty()) {
            let message =
                format!("{} is offered on {}; its clients would lose it", vdisk.name, vdisk.exports.join(", "));
            return Err(ApiError::new(Kind::NotPossible, message).hint(format!("weft export remove {}", vdisk.name)));
        }
        let mut change = Change::new(Outcome::Removed, format!("pool {name}"), how.dry_run);
        for vdisk in &pool.vdisks {
            let (size, used) = (ByteCount(vdisk.size), ByteCount(vdisk.used));
            change = change.line(format!("vdisk {}: {size}, {used} of data", vdisk.name));
        }
        for disk in &pool.disks {
            change = change.line(format!("disk {} is free for other use", disk.name));
        }
        if !how.dry_run {
            self.parts.engine.pool_remove(name)?;
            let gone: Vec<PathBuf> = pool.disks.into_iter().filter_map(|disk| disk.path).collect();
            self.remember(|state| state.disks.retain(|disk| !gone.contains(disk)))?;
        }
        Ok(change)
    }

    /// The disks of the open pools, then, unless one pool is asked for, everything else that was found.
    pub(super) fn disks(&self, query: &PoolQuery) -> Answer<Vec<DiskInfo>> {
        if let Some(pool) = &query.pool {
            return Ok(self.pool(pool)?.disks);
        }
        let open = self.pools()?;
        let others = self.labelled(&open);
        let mut disks: Vec<DiskInfo> = open.into_iter().flat_map(|pool| pool.disks).collect();
        disks.extend(others.into_iter().map(|(path, label)| unclaimed(path, label)));
        Ok(disks)
    }

    pub(super) fn disk(&self, wanted: &str) -> Answer<DiskInfo> {
        let is_wanted = |disk: &DiskInfo| {
            let in_pool = disk.pool.as_ref().is_some_and(|pool| format!("{pool}/{}", disk.name) == wanted);
            let by_path = disk.path.as_ref().is_some_and(|path| {
                path == Path::new(wanted)
                    || wanted.starts_with('/') && find::identity(path) == find::identity(Path::new(wanted))
            });
            in_pool || by_path || disk.name == wanted || disk.id.as_deref() == Some(wanted)
        };
        let mut found: Vec<DiskInfo> = self.disks(&PoolQuery::default())?.into_iter().filter(is_wanted).collect();
        match found.len() {
            0 => Err(ApiError::new(
                Kind::NotFound,
                format!("no disk {wanted}; its path, identity, name or POOL/NAME finds one"),
            )
            .hint("weft disk list")),
            1 => Ok(found.remove(0)),
            n => {
                let path = found[0].path.clone().unwrap_or_default();
                let message = format!("{n} disks are named {wanted}; a path names one");
                Err(ApiError::new(Kind::InvalidInput, message).hint(format!("weft disk show {}", path.display())))
            }
        }
    }
}

impl Candidate {
    fn describe(&self, name: &str) -> String {
        let path = self.path.display();
        match (&self.create, &self.holds) {
            (Some(size), _) => format!("disk {name}: {path}, a new sparse file of {}", typed(*size)),
            (None, Some(holds)) => format!("disk {name}: {path}, overwriting {holds}"),
            (None, None) => format!("disk {name}: {path}"),
        }
    }
}

fn judge_create(request: &PoolCreate) -> Answer<(Option<ByteCount>, ByteCount)> {
    judge::name(&request.name)?;
    let fixed = |size: Option<Size>, what: &str| match size {
        None => Ok(None),
        Some(Size::Bytes(bytes)) => Ok(Some(bytes)),
        Some(size) => Err(ApiError::new(Kind::InvalidInput, format!("{size} is no {what}; a size such as 10GiB is"))),
    };
    let slab_size = fixed(request.slab_size, "slab size")?.unwrap_or(limits::SLAB_DEFAULT);
    judge::slab_size(slab_size)?;
    let create_size = fixed(request.create_size, "size of a file")?;
    if request.disks.is_empty() || request.disks.len() > limits::DISKS_MAX {
        let message = format!("a pool of {} disks is not offered; 1 to {} are", request.disks.len(), limits::DISKS_MAX);
        return Err(
            ApiError::new(Kind::InvalidInput, message).hint(format!("weft pool create {} DISK...", request.name))
        );
    }
    for (n, path) in request.disks.iter().enumerate() {
        if !path.is_absolute() {
            let message = format!("{} is no absolute path", path.display());
            return Err(ApiError::new(Kind::InvalidInput, message));
        }
        let same =
            |other: &PathBuf| other == path || find::identity(path).is_some_and(|id| find::identity(other) == Some(id));
        if let Some(twin) = request.disks[..n].iter().find(|other| same(other)) {
            let message = format!("{} and {} are the same disk", twin.display(), path.display());
            let others =
                PoolCreate { disks: [&request.disks[..n], &request.disks[n + 1..]].concat(), ..request.clone() };
            return Err(ApiError::new(Kind::InvalidInput, message).hint(create_command(&others, &request.name, "")));
        }
    }
    Ok((create_size, slab_size))
}

/// Refuses a disk that somebody uses; `--force` does not help.
fn in_use(path: &Path, open: &[PoolInfo]) -> Answer<()> {
    let shown = path.display();
    let identity = find::identity(path);
    let members = open.iter().flat_map(|pool| pool.disks.iter().map(move |disk| (pool, disk)));
    for (pool, disk) in members {
        if disk.path.as_deref().is_some_and(|member| find::identity(member) == identity) {
            let message = format!("{shown} is in use: it is disk {} of pool {}", disk.name, pool.name);
            return Err(ApiError::new(Kind::NotPossible, message).hint(format!("weft pool show {}", pool.name)));
        }
    }
    let mut options = File::options();
    options.read(true).write(true);
    if find::look(path) == Look::Block {
        // On a block device this fails while a file system, a RAID or another exclusive user has it.
        options.custom_flags(rustix::fs::OFlags::EXCL.bits() as i32);
    }
    match options.open(path) {
        Ok(_) => Ok(()),
        Err(error) if error.raw_os_error() == Some(rustix::io::Errno::BUSY.raw_os_error()) => {
            let message = format!("{shown} is in use: mounted, or part of something that is");
            Err(ApiError::new(Kind::NotPossible, message).hint(format!("lsblk {shown}")))
        }
        Err(error) => {
            let message = format!("cannot open {shown} for writing: {error}");
            Err(ApiError::new(Kind::NotPossible, message).hint("weft disk list"))
        }
    }
}

fn make_ready(candidates: &[Candidate], made: &mut Vec<PathBuf>) -> Answer<()> {
    for candidate in candidates {
        let shown = candidate.path.display();
        let result = match (candidate.create, &candidate.holds) {
            (Some(size), _) => File::create_new(&candidate.path).and_then(|file| {
                made.push(candidate.path.clone());
                file.set_len(size.0)
            }),
            (None, Some(_)) => probe::wipe(&candidate.path),
            (None, None) => Ok(()),
        };
        result.map_err(|error| ApiError::new(Kind::NotPossible, format!("cannot prepare {shown}: {error}")))?;
    }
    Ok(())
}

/// Names disks after their files or devices, each name once.
fn name_members(candidates: &[Candidate]) -> Vec<NewMember> {
    let mut members: Vec<NewMember> = Vec::new();
    for candidate in candidates {
        let file_name = candidate.path.file_name().unwrap_or_default().to_string_lossy();
        let plain = judge::nearest_name(&file_name);
        let mut name = plain.clone();
        for n in 2.. {
            if members.iter().all(|member| member.name != name) {
                break;
            }
            let suffix = format!("-{n}");
            let mut stem = plain.clone();
            while stem.len() + suffix.len() > limits::NAME_MAX {
                stem.pop();
            }
            name = stem + &suffix;
        }
        members.push(NewMember { path: candidate.path.clone(), name });
    }
    members
}

/// A disk of no open pool.
fn unclaimed(path: PathBuf, label: Answer<Option<Label>>) -> DiskInfo {
    let (state, holds, label) = match label {
        Ok(Some(label)) => (DiskState::Closed, Some(format!("pool {}", label.pool_name)), Some(label)),
        Ok(None) => match probe::look(&path) {
            Ok(holds) if holds.is_empty() => (DiskState::Available, None, None),
            Ok(holds) => (DiskState::Foreign, Some(holds.join(" and ")), None),
            Err(error) => (DiskState::Failed, Some(error.to_string()), None),
        },
        Err(error) => (DiskState::Failed, Some(error.message), None),
    };
    let capacity = File::open(&path).and_then(|mut file| file.seek(SeekFrom::End(0))).unwrap_or(0);
    let file_name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    DiskInfo {
        name: label.as_ref().map_or(file_name, |label| label.disk_name.clone()),
        pool: label.as_ref().map(|label| label.pool_name.clone()),
        no: None,
        id: label.map(|label| label.disk_id),
        path: Some(path),
        capacity,
        allocated: 0,
        state,
        media: Media::Unspecified,
        holds,
        counters: DiskCounters::default(),
    }
}

/// The command that asks for `request` under `name` with `more` flags.
fn create_command(request: &PoolCreate, name: &str, more: &str) -> String {
    let mut command = format!("weft pool create {name}");
    for disk in &request.disks {
        command += &format!(" {}", disk.display());
    }
    let flags = [("--create-size", request.create_size), ("--slab-size", request.slab_size)];
    for (flag, size) in flags {
        if let Some(size) = size {
            command += &format!(" {flag} {size}");
        }
    }
    if request.force && more != "--force" {
        command += " --force";
    }
    if more.is_empty() { command } else { format!("{command} {more}") }
}
