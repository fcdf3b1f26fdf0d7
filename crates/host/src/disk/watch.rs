//! Noticing that a disk went away although the kernel still obeys: an unlinked or replaced file, a pulled device.
//!
//! Invariants
//! 1. The watching thread holds no descriptor, only what it compares: it never keeps a disk claimed.
//! 2. It never touches the engine's state: it sets a flag, leaves word, and rings.

use super::alarm::Alarm;
use super::geometry::device_name;
use rustix::fs::{self, FileType};
use rustix::io::Errno;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

/// How often the watcher looks at every open disk.
pub(crate) const WATCH_EVERY: Duration = Duration::from_millis(200);

/// What tells that a path still leads to the disk that was opened.
pub(crate) struct Presence {
    path: PathBuf,
    identity: Identity,
    gone: AtomicBool,
}

/// While the descriptor is open neither an inode number nor a device number can be given to something else.
#[derive(PartialEq, Eq)]
enum Identity {
    File { dev: u64, inode: u64 },
    Block { dev: u64, sysfs: Option<PathBuf> },
}

impl Presence {
    pub(super) fn of(fd: &OwnedFd, path: PathBuf) -> Result<Presence, (PathBuf, Errno)> {
        let stat = match fs::fstat(fd) {
            Ok(stat) => stat,
            Err(errno) => return Err((path, errno)),
        };
        let identity = match FileType::from_raw_mode(stat.st_mode) {
            FileType::BlockDevice => {
                let sysfs = Path::new("/sys/dev/block").join(device_name(stat.st_rdev));
                // Where sysfs is not mounted its silence means nothing.
                Identity::Block { dev: stat.st_rdev, sysfs: sysfs.exists().then_some(sysfs) }
            }
            _ => Identity::File { dev: stat.st_dev, inode: stat.st_ino },
        };
        Ok(Presence { path, identity, gone: AtomicBool::new(false) })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Whether the disk was found, or declared, to be gone.
    pub(super) fn is_gone(&self) -> bool {
        self.gone.load(Ordering::Acquire)
    }

    /// Declares the disk gone.
    pub(super) fn lose(&self) {
        self.gone.store(true, Ordering::Release);
    }

    /// Looks now; says whether the disk is gone.
    pub(super) fn look(&self) -> bool {
        if !self.is_gone() && self.is_missing() {
            self.lose();
        }
        self.is_gone()
    }

    fn is_missing(&self) -> bool {
        match (&self.identity, fs::stat(&self.path)) {
            (Identity::File { dev, inode }, Ok(stat)) => (stat.st_dev, stat.st_ino) != (*dev, *inode),
            (Identity::Block { dev, sysfs }, Ok(stat)) => {
                stat.st_rdev != *dev || sysfs.as_ref().is_some_and(|sysfs| !sysfs.exists())
            }
            (_, Err(errno)) => leads_nowhere(errno),
        }
    }
}

/// Whether a name of which `stat` says this leads to no disk. One that may not be looked at (`EACCES` on the way) may
/// well lead to it: the disk works as long as the kernel obeys.
fn leads_nowhere(errno: Errno) -> bool {
    matches!(
        errno,
        Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::NAMETOOLONG | Errno::NODEV | Errno::NXIO | Errno::STALE
    )
}

/// The watching thread of one engine thread; it starts with the first disk and ends with the watcher.
pub(crate) struct Watcher {
    shared: Arc<Shared>,
}

struct Shared {
    alarm: Arc<Alarm>,
    news: AtomicBool,
    watched: Mutex<Watched>,
    changed: Condvar,
}

#[derive(Default)]
struct Watched {
    disks: Vec<Weak<Presence>>,
    started: bool,
    stopped: bool,
}

impl Watcher {
    pub(crate) fn new(alarm: Arc<Alarm>) -> Watcher {
        let (news, watched, changed) = (AtomicBool::new(false), Mutex::default(), Condvar::new());
        Watcher { shared: Arc::new(Shared { alarm, news, watched, changed }) }
    }

    pub(super) fn add(&self, disk: &Arc<Presence>) {
        let mut watched = self.shared.lock();
        watched.disks.push(Arc::downgrade(disk));
        if !watched.started {
            watched.started = true;
            let shared = self.shared.clone();
            let thread = std::thread::Builder::new().name("weft-watch".into()).spawn(move || shared.watch());
            drop(thread.expect("a process that can run weft can start a thread"));
        }
        self.shared.changed.notify_one();
    }

    /// Whether a disk was found to be gone since the last [`Watcher::take_news`].
    pub(crate) fn has_news(&self) -> bool {
        self.shared.news.load(Ordering::SeqCst)
    }

    pub(crate) fn take_news(&self) -> bool {
        self.has_news() && self.shared.news.swap(false, Ordering::SeqCst)
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        // Not joined: it may hang in a stat on a dead file server, and it holds nothing that anybody waits for.
        self.shared.lock().stopped = true;
        self.shared.changed.notify_one();
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Watched> {
        self.watched.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn watch(&self) {
        while let Some(disks) = self.next_round() {
            let lost = disks.iter().filter(|disk| !disk.is_gone() && disk.look()).count();
            if lost > 0 {
                self.news.store(true, Ordering::SeqCst);
                self.alarm.ring();
            }
        }
    }

    /// Sleeps until the next round; `None`: the end.
    fn next_round(&self) -> Option<Vec<Arc<Presence>>> {
        let watched = self.lock();
        let (watched, _) = self
            .changed
            .wait_timeout_while(watched, WATCH_EVERY, |watched| !watched.stopped)
            .unwrap_or_else(PoisonError::into_inner);
        let mut watched = self
            .changed
            .wait_while(watched, |watched| {
                watched.disks.retain(|disk| disk.strong_count() > 0);
                watched.disks.is_empty() && !watched.stopped
            })
            .unwrap_or_else(PoisonError::into_inner);
        (!watched.stopped).then(|| std::mem::take(&mut watched.disks)).map(|disks| {
            let disks: Vec<_> = disks.iter().filter_map(Weak::upgrade).collect();
            watched.disks = disks.iter().map(Arc::downgrade).collect();
            disks
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn a_disk_is_gone_when_its_name_leads_elsewhere_or_nowhere() {
        let dir = tempfile::tempdir().unwrap();
        let [path, away] = ["disk", "away"].map(|name| dir.path().join(name));
        let open = |path: &Path| {
            let fd = OwnedFd::from(std::fs::File::open(path).unwrap());
            Presence::of(&fd, path.into()).ok().unwrap()
        };
        std::fs::write(&path, "a disk").unwrap();
        let disk = open(&path);
        assert!(!disk.look());
        std::fs::rename(&path, &away).unwrap();
        symlink(&away, &path).unwrap();
        assert!(!disk.look(), "it leads to the disk still");
        let long = "x".repeat(300);
        for target in [path.as_path(), Path::new("nowhere"), Path::new("away/below"), Path::new(&long)] {
            std::fs::remove_file(&path).unwrap();
            symlink(&away, &path).unwrap();
            let disk = open(&path);
            std::fs::remove_file(&path).unwrap();
            symlink(target, &path).unwrap();
            assert!(disk.look(), "{}", target.display());
        }
    }
}
