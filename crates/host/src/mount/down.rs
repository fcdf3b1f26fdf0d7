//! `weft unmount`, and clearing away what a daemon that died left mounted.

use super::device::{self, Below};
use super::tools::{Tool, UMOUNT};
use super::{State, only_root, state};
use crate::api::error::{Answer, ApiError, Kind};
use crate::api::mount::{MountInfo, Via};
use crate::api::watch::{Change, Outcome};
use crate::fuse::mounts;
use crate::ops::Perform;
use crate::ops::line::Line;
use crate::ops::mount::{MountForget, MountList};
use crate::ops::vdisk::VdiskList;
use crate::wire::client::Client;
use rustix::fs::{AtFlags, CWD, StatxFlags, statx};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

const SYNC: Tool = Tool { name: "sync", package: "coreutils" };
/// A file system that has discarded nothing for so long has nothing more to discard.
const QUIET: Duration = Duration::from_millis(100);
/// A device that has done nothing for so long although there is something to do.
const STUCK: Duration = Duration::from_secs(10);
/// What comes later is left to `fstrim`.
const LONGEST: Duration = Duration::from_secs(60);

/// What to unmount, and how.
#[derive(Clone, Debug)]
pub struct Request {
    /// The directory; absolute.
    pub dir: PathBuf,
    /// Also when processes use it: they lose it.
    pub force: bool,
    /// The daemon shall mount it again when it starts.
    pub keep: bool,
    /// Only say what would change.
    pub dry_run: bool,
}

/// A process that uses a file system.
pub(super) struct User {
    pid: u32,
    name: String,
}

/// Unmounts a virtual disk. Everything written is durable in it before.
pub fn unmount(weft: &Client, socket: &Path, request: &Request) -> Answer<Change> {
    let shown = request.dir.display();
    only_root(Line::new("unmount").word(shown.to_string()))?;
    let dir = mounts::resolved(&request.dir).unwrap_or_else(|_| request.dir.clone());
    let known = match weft.perform(&MountList {}) {
        Err(error) if error.kind == Kind::Unreachable => return without_daemon(socket, &dir, request, error),
        known => known?,
    };
    let Some(mount) = known.into_iter().find(|mount| mount.dir == dir) else {
        let message = format!("weft has mounted nothing on {shown}");
        return Err(ApiError::new(Kind::NotFound, message).offer(&VdiskList::default()));
    };
    let change = Change::new(Outcome::Removed, format!("mount of {} on {shown}", mount.vdisk), request.dry_run)
        .line(format!("{}, {}", mount.device.display(), mount.filesystem));
    if request.dry_run {
        let used = state(weft, &mount, socket) == State::Alive && !request.force;
        return match used.then(|| users_of_device(&mount.device)).filter(|users| !users.is_empty()) {
            None => Ok(change),
            Some(users) => Err(busy(&mount.dir, &users, String::new())),
        };
    }
    match state(weft, &mount, socket) {
        State::Alive => {
            // One that is in use is refused at once, or goes on being written to.
            if users_of_device(&mount.device).is_empty() {
                give_back(&mount)?;
            }
            end(&mount, request.force)?;
        }
        State::Dead | State::Gone => end_dead(&mount),
    }
    if !request.keep {
        weft.perform(&MountForget { dir: mount.dir.clone() })?;
        if let Some(place) = mount.place() {
            device::withdraw(weft, &mount.vdisk, &place);
        }
    }
    Ok(change)
}

/// Writes everything out and lets the file system tell what was deleted: ext4 does that in the background after each
/// commit, and what it has not come to when it is unmounted it forgets; that space would stay taken.
fn give_back(mount: &MountInfo) -> Answer<()> {
    SYNC.run(["--file-system".as_ref(), mount.dir.as_os_str()])?;
    let begun = Instant::now();
    let (mut quiet, mut before) = (begun, None);
    while let Some(now) = Discards::of(&mount.device) {
        if before != Some(now) {
            (quiet, before) = (Instant::now(), Some(now));
        }
        if quiet.elapsed() > if now.under_way { STUCK } else { QUIET } || begun.elapsed() > LONGEST {
            break;
        }
        std::thread::sleep(QUIET / 5);
    }
    Ok(())
}

/// What a block device counts.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Discards {
    done: u64,
    /// Whether any request is, of whatever kind.
    under_way: bool,
}

impl Discards {
    /// Those of a whole device, no partition. Source: the kernel's `Documentation/block/stat.rst`.
    fn of(device: &Path) -> Option<Discards> {
        let words = fs::read_to_string(Path::new("/sys/block").join(device.file_name()?).join("stat")).ok()?;
        let number = |nth: usize| words.split_whitespace().nth(nth)?.parse::<u64>().ok();
        Some(Discards { done: number(11)?, under_way: number(8)? > 0 })
    }
}

/// Clears away a mount that is dead or was ended by somebody else. Its export stays for the next mount. It is forgotten
/// unless it is mounted `again`: then what is remembered of it is replaced when that has worked.
pub(super) fn clear(weft: &Client, mount: &MountInfo, again: bool) -> Answer<()> {
    end_dead(mount);
    if !again {
        weft.perform(&MountForget { dir: mount.dir.clone() })?;
    }
    Ok(())
}

/// Unmounts what lives: writes everything out, and leaves no device.
fn end(mount: &MountInfo, force: bool) -> Answer<()> {
    let ran = UMOUNT.output([&mount.dir])?;
    if !ran.status.success() {
        let said = String::from_utf8_lossy(&ran.stderr).trim().replace('\n', "; ");
        if !force {
            return Err(busy(&mount.dir, &users_of_device(&mount.device), said));
        }
        // What was written since, by whoever keeps it busy.
        SYNC.run(["--file-system".as_ref(), mount.dir.as_os_str()])?;
        UMOUNT.run(["--lazy".as_ref(), mount.dir.as_os_str()])?;
        Below::from(mount).release();
        return Ok(());
    }
    let below = Below::from(mount);
    below.release();
    below.gone()
}

/// The error of a file system that is in use: by whom, or what `umount` said.
fn busy(dir: &Path, users: &[User], said: String) -> ApiError {
    let shown = dir.display();
    let names: Vec<String> = users.iter().map(|user| format!("{} ({})", user.name, user.pid)).collect();
    let by = if names.is_empty() { said } else { format!("used by {}", names.join(", ")) };
    ApiError::new(Kind::NotPossible, format!("{shown} is busy: {by}"))
        .hint(Line::new("unmount").word(shown).word("--force"))
}

/// Unmounts what is dead, as far as it goes: whoever still uses it keeps the rest of it until they let go. Where
/// somebody else unmounted it already, its device is what is left.
fn end_dead(mount: &MountInfo) {
    let ours = |found: mounts::Mounted| mount.is_of(&found.source);
    let there = mounts::mounted_at(&mount.dir).ok().flatten().is_some_and(ours);
    let below = Below::from(mount);
    if !there {
        // A loop device went by itself, and its number may be somebody else's by now.
        if mount.via != Via::Loop {
            below.release();
        }
        return;
    }
    below.abort();
    let unmounted = UMOUNT.output([&mount.dir]).is_ok_and(|ran| ran.status.success());
    if !unmounted {
        let _ = UMOUNT.run(["--lazy".as_ref(), mount.dir.as_os_str()]);
    }
    below.release();
    if unmounted {
        let _ = below.gone();
    }
}

/// Nobody remembers what is mounted, but what lies below the socket's directory is weft's.
fn without_daemon(socket: &Path, dir: &Path, request: &Request, unreachable: ApiError) -> Answer<Change> {
    let found = mounts::mounted_at(dir).ok().flatten();
    let Some(below) = found.and_then(|found| device::without_daemon(socket, Path::new(&found.source))) else {
        return Err(unreachable);
    };
    let shown = dir.display();
    let change = Change::new(Outcome::Removed, format!("mount on {shown}, whose daemon is gone"), request.dry_run)
        .line(below.device.display().to_string());
    if request.dry_run {
        return Ok(change);
    }
    below.abort();
    if UMOUNT.run([dir]).is_err() {
        UMOUNT.run(["--lazy".as_ref(), dir.as_os_str()])?;
    }
    below.release();
    below.forget();
    Ok(change)
}

/// The processes that have files of the file system on `device` open, or work in it.
pub(super) fn users_of_device(device: &Path) -> Vec<User> {
    let Ok(device) = rustix::fs::stat(device) else { return Vec::new() };
    let number = (rustix::fs::major(device.st_rdev), rustix::fs::minor(device.st_rdev));
    // Asked without waiting: another file system may not answer.
    let on_it = |path: PathBuf| {
        let asked = statx(CWD, path, AtFlags::STATX_DONT_SYNC, StatxFlags::TYPE);
        asked.is_ok_and(|found| (found.stx_dev_major, found.stx_dev_minor) == number)
    };
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    let users = processes.filter_map(|process| {
        let (path, pid) = (process.path(), process.file_name().to_str()?.parse().ok()?);
        let files = fs::read_dir(path.join("fd")).into_iter().flatten().flatten().map(|file| file.path());
        let uses = files.chain(["cwd", "root", "exe"].map(|name| path.join(name))).any(on_it);
        let name = fs::read_to_string(path.join("comm")).unwrap_or_default();
        uses.then(|| User { pid, name: name.trim().into() })
    });
    users.collect()
}

/// The numbers of processes, as a command takes them.
pub(super) fn pids(users: &[User]) -> String {
    users.iter().map(|user| user.pid.to_string()).collect::<Vec<_>>().join(" ")
}
