//! Disks that are to become members of a pool: validated before anything is changed, then made ready.

use super::Daemon;
use super::backend::NewMember;
use super::engine::labels;
use super::find::{self, Look};
use super::probe::{self, Ends};
use crate::api::error::{Answer, ApiError, Kind};
use crate::api::pool::{DiskState, Media, PoolInfo};
use crate::api::size::{Size, typed};
use crate::api::validate;
use crate::disk::file::DiskKind;
use crate::disk::is_rotational;
use crate::ops::disk::DiskList;
use crate::ops::line::on_path;
use crate::ops::pool::PoolShow;
use rustix::fs::{FlockOperation, fcntl_lock, flock};
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{Seek, SeekFrom};
use std::os::fd::OwnedFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};
use weft_engine::limits;
use weft_engine::units::ByteCount;

/// How long a file may stay locked that nobody uses any more.
const UNLOCKED_WITHIN: Duration = Duration::from_secs(1);

/// How disks were asked to become members.
pub(super) struct Asked<'a> {
    /// The disks, as absolute paths.
    pub(super) disks: &'a [PathBuf],
    /// Make files that are missing, of this size.
    pub(super) create_size: Option<ByteCount>,
    /// Overwrite what is on them.
    pub(super) force: bool,
    /// The command that asked, with these disks and more.
    pub(super) again: &'a dyn Fn(Vec<PathBuf>, More) -> String,
}

/// What a command also needs to be taken.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum More {
    Nothing,
    CreateSize,
    Force,
}

impl More {
    /// The size of files that are made, when `size` was asked for.
    pub(super) fn create_size(self, size: Option<Size>) -> Option<Size> {
        if self == More::CreateSize { Some(Size::Bytes(ByteCount::gib(10))) } else { size }
    }
}

/// A disk that can become a member, and what that would do to it.
pub(super) struct Candidate {
    pub(super) path: PathBuf,
    /// The size it has, or will have.
    pub(super) capacity: ByteCount,
    /// Make the file.
    create: bool,
    /// Overwrite what is on it.
    holds: Option<String>,
}

impl Asked<'_> {
    /// Refuses paths that are not absolute, and disks that are named twice.
    pub(super) fn validate(&self) -> Answer<()> {
        for (n, path) in self.disks.iter().enumerate() {
            if !path.is_absolute() {
                let message = format!("{} is no absolute path", path.display());
                return Err(ApiError::new(Kind::InvalidInput, message));
            }
            let same =
                |other: &PathBuf| other == path || place_of(path).is_some_and(|place| place_of(other) == Some(place));
            if let Some(twin) = self.disks[..n].iter().find(|other| same(other)) {
                let message = format!("{} and {} are the same disk", twin.display(), path.display());
                let others = [&self.disks[..n], &self.disks[n + 1..]].concat();
                return Err(ApiError::new(Kind::InvalidInput, message).hint((self.again)(others, More::Nothing)));
            }
        }
        Ok(())
    }

    fn hint(&self, more: More) -> String {
        (self.again)(self.disks.to_vec(), more)
    }
}

impl Daemon {
    /// Validates the disks that were asked for, changing nothing.
    pub(super) fn candidates(&self, asked: &Asked, open: &[PoolInfo]) -> Answer<Vec<Candidate>> {
        asked.disks.iter().map(|path| self.candidate(asked, path, open)).collect()
    }

    fn candidate(&self, asked: &Asked, path: &Path, open: &[PoolInfo]) -> Answer<Candidate> {
        let shown = path.display();
        match (find::look(path), asked.create_size) {
            (Look::File(_) | Look::Block, _) => {}
            (Look::Missing, Some(size)) if path.parent().is_some_and(Path::is_dir) => {
                can_be_made(path, size).map_err(|error| cannot_prepare(path, &error))?;
                return Ok(Candidate { path: path.into(), create: true, capacity: size, holds: None });
            }
            (Look::Missing, Some(_)) => {
                let dir = path.parent().unwrap_or(path);
                return Err(ApiError::new(Kind::NotFound, format!("{shown}: no directory {}", dir.display()))
                    .hint(on_path("mkdir -p", dir)));
            }
            (Look::Missing, None) => {
                let hint = asked.hint(More::CreateSize);
                return Err(ApiError::new(Kind::NotFound, format!("no disk {shown}")).hint(hint));
            }
            (Look::Other, _) => {
                let message = format!("{shown} is no disk; block devices and regular files are");
                return Err(ApiError::new(Kind::NotPossible, message).offer(&DiskList::default()));
            }
        }
        in_use(path, open)?;
        let unreadable = |error: std::io::Error| {
            ApiError::new(Kind::NotPossible, format!("cannot read {shown}: {error}")).offer(&DiskList::default())
        };
        let ends = Ends::read(path).map_err(unreadable)?;
        let label = labels::of(&ends)?;
        let mut holds = ends.look().map_err(unreadable)?;
        if let Some(label) = label {
            let name = self.member_name(&label.disk_id).unwrap_or(label.disk_name);
            holds = vec![format!("disk {name} of pool {}", label.pool_name)];
        }
        let holds = (!holds.is_empty()).then(|| holds.join(" and "));
        match holds {
            Some(holds) if !asked.force => {
                let message = format!("{shown} holds {holds}; only --force overwrites it");
                Err(ApiError::new(Kind::NotPossible, message).hint(asked.hint(More::Force)))
            }
            holds => Ok(Candidate { path: path.into(), create: false, capacity: ByteCount(ends.size()), holds }),
        }
    }

    /// Makes the candidates ready, then does `make` with them; when either fails, takes the files back that were made.
    /// Those outside the daemon's own places are remembered.
    pub(super) fn with_candidates<T>(&self, candidates: &[Candidate], make: impl FnOnce() -> Answer<T>) -> Answer<T> {
        let mut made = Vec::new();
        let result = make_ready(candidates, &mut made).and_then(|()| make());
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
        if !outside.is_empty() {
            self.remember(|state| {
                state.disks.extend(outside);
                state.disks.sort();
                state.disks.dedup();
            })?;
        }
        result
    }
}

impl Candidate {
    /// What it is made of, by what the kernel says of it or of the file system that it will be on.
    pub(super) fn media(&self) -> Media {
        let (at, kind) = match find::look(&self.path) {
            Look::Block => (Some(self.path.as_path()), DiskKind::Block),
            Look::File(_) => (Some(self.path.as_path()), DiskKind::File),
            _ => (self.path.parent(), DiskKind::File),
        };
        let fd = at.and_then(|at| File::open(at).ok()).map(OwnedFd::from);
        if fd.is_some_and(|fd| is_rotational(&fd, kind)) { Media::Hdd } else { Media::Ssd }
    }

    pub(super) fn describe(&self, name: &str) -> String {
        let path = self.path.display();
        match (self.create, &self.holds) {
            (true, _) => format!("disk {name}: {path}, a new sparse file of {}", typed(self.capacity)),
            (false, Some(holds)) => format!("disk {name}: {path}, overwriting {holds}"),
            (false, None) => format!("disk {name}: {path}"),
        }
    }
}

/// Files that are to be made, and are larger together than what their file systems have room for: one line for each of
/// these.
pub(super) fn beyond_room(candidates: &[Candidate]) -> Vec<String> {
    let mut wanted: BTreeMap<u64, (u64, &Path)> = BTreeMap::new();
    for candidate in candidates.iter().filter(|candidate| candidate.create) {
        let dir = candidate.path.parent().unwrap_or(&candidate.path);
        if let Some((device, _)) = find::identity(dir) {
            wanted.entry(device).or_insert((0, dir)).0 += candidate.capacity.0;
        }
    }
    let over = wanted.into_values().filter_map(|(sum, dir)| {
        let free = find::room_below(dir)?;
        (sum > free).then(|| {
            format!(
                "they may grow to {}, and the file system of {} has {} free: when it is full, the pool waits until it \
                has room",
                ByteCount(sum),
                dir.display(),
                ByteCount(free)
            )
        })
    });
    over.collect()
}

/// The size of a disk or file; 0 when it cannot be told.
pub(super) fn size_of_disk(path: &Path) -> u64 {
    File::open(path).and_then(|mut file| file.seek(SeekFrom::End(0))).unwrap_or(0)
}

/// A size that depends on nothing.
pub(super) fn fixed_size(size: Option<Size>, what: &str) -> Answer<Option<ByteCount>> {
    match size {
        None => Ok(None),
        Some(Size::Bytes(bytes)) => Ok(Some(bytes)),
        Some(size) => Err(ApiError::new(Kind::InvalidInput, format!("{size} is no {what}; a size such as 10GiB is"))),
    }
}

/// Refuses a disk that somebody uses; `--force` does not help.
fn in_use(path: &Path, open: &[PoolInfo]) -> Answer<()> {
    let shown = path.display();
    let identity = find::identity(path);
    let members = open.iter().flat_map(|pool| pool.disks.iter().map(move |disk| (pool, disk)));
    // What lies where a missing disk was last seen is another disk.
    for (pool, disk) in members.filter(|(_, disk)| disk.state != DiskState::Missing) {
        if disk.path.as_deref().is_some_and(|member| find::identity(member) == identity) {
            let message = format!("{shown} is in use: it is disk {} of pool {}", disk.name, pool.name);
            return Err(ApiError::new(Kind::NotPossible, message).offer(&PoolShow::of(&pool.name)));
        }
    }
    if let Some((user, hint)) = find::user_of(path) {
        let message = format!("{shown} is in use: {user}");
        return Err(ApiError::new(Kind::NotPossible, message).hint(hint));
    }
    let mut options = File::options();
    options.read(true).write(true);
    if find::look(path) == Look::Block {
        // On a block device this fails while a file system, a RAID or another exclusive user has it.
        options.custom_flags(rustix::fs::OFlags::EXCL.bits() as i32);
    }
    match options.open(path) {
        Ok(file) => unclaimed(&file, path),
        Err(error) if error.raw_os_error() == Some(Errno::BUSY.raw_os_error()) => {
            let message = format!("{shown} is in use: mounted, or part of something that is");
            Err(ApiError::new(Kind::NotPossible, message).hint(on_path("lsblk", path)))
        }
        Err(error) => {
            let message = format!("cannot open {shown} for writing: {error}");
            Err(ApiError::new(Kind::NotPossible, message).offer(&DiskList::default()))
        }
    }
}

/// Refuses a file that another program has locked: a virtual machine that runs on it, or another daemon. One that a
/// pool of this daemon has just given back is waited for.
fn unclaimed(file: &File, path: &Path) -> Answer<()> {
    let locked = |tried: rustix::io::Result<()>| matches!(tried, Err(Errno::WOULDBLOCK | Errno::ACCESS));
    let given_up = Instant::now() + UNLOCKED_WITHIN;
    while locked(flock(file, FlockOperation::NonBlockingLockExclusive))
        || locked(fcntl_lock(file, FlockOperation::NonBlockingLockExclusive))
    {
        if Instant::now() < given_up {
            thread::sleep(UNLOCKED_WITHIN / 50);
            continue;
        }
        let shown = path.display();
        let message = format!("{shown} is in use: another program has locked it");
        return Err(ApiError::new(Kind::NotPossible, message).hint(on_path("fuser -v", path)));
    }
    // To close the file would not be enough: see `OpenDisk`.
    let _ = flock(file, FlockOperation::NonBlockingUnlock);
    Ok(())
}

/// What a path leads to: the file, or where in which directory there will be one.
fn place_of(path: &Path) -> Option<((u64, u64), Option<&OsStr>)> {
    let missing = || Some((find::identity(path.parent()?)?, Some(path.file_name()?)));
    find::identity(path).map(|there| (there, None)).or_else(missing)
}

/// Tries a file of this size that has no name and is gone at once. Where the file system has no such files, nothing is
/// known before.
fn can_be_made(path: &Path, size: ByteCount) -> std::io::Result<()> {
    let dir = path.parent().unwrap_or(path);
    let nameless = File::options().write(true).custom_flags(rustix::fs::OFlags::TMPFILE.bits() as i32).open(dir);
    match nameless {
        Ok(file) => file.set_len(size.0),
        Err(error) if matches!(Errno::from_io_error(&error), Some(Errno::OPNOTSUPP | Errno::ISDIR | Errno::INVAL)) => {
            Ok(())
        }
        Err(error) => Err(error),
    }
}

fn cannot_prepare(path: &Path, error: &std::io::Error) -> ApiError {
    ApiError::new(Kind::NotPossible, format!("cannot prepare {}: {error}", path.display()))
}

/// A new file for the owner only.
fn create_private(path: &Path) -> std::io::Result<File> {
    File::options().read(true).write(true).create_new(true).mode(0o600).open(path)
}

fn make_ready(candidates: &[Candidate], made: &mut Vec<PathBuf>) -> Answer<()> {
    for candidate in candidates {
        let result = match (candidate.create, &candidate.holds) {
            (true, _) => create_private(&candidate.path).and_then(|file| {
                made.push(candidate.path.clone());
                file.set_len(candidate.capacity.0)
            }),
            (false, Some(_)) => probe::wipe(&candidate.path),
            (false, None) => Ok(()),
        };
        result.map_err(|error| cannot_prepare(&candidate.path, &error))?;
    }
    Ok(())
}

/// Names disks after their files or devices, each name once, and none as one of `taken` is.
pub(super) fn name_members(candidates: &[Candidate], taken: &[String]) -> Vec<NewMember> {
    let mut members: Vec<NewMember> = Vec::new();
    for candidate in candidates {
        let file_name = candidate.path.file_name().unwrap_or_default().to_string_lossy();
        let plain = validate::nearest_name(&file_name);
        let mut name = plain.clone();
        for n in 2.. {
            if members.iter().all(|member| member.name != name) && !taken.contains(&name) {
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
