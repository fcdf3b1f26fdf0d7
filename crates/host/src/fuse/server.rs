//! Mounting the directory, and ending it.

use super::gate::Gate;
use super::mounts::{self, SOURCE};
use super::tree::{Shared, Tree};
use crate::export::{Exports, PayloadPool};
use fuser::{BackgroundSession, MountOption, Session, SessionACL};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use weft_engine::error::{Error, ErrorKind, Result};

/// The limits of a server.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// Threads that take requests from the kernel.
    pub threads: usize,
    /// Bytes of reads and writes under way; one request may exceed it alone.
    pub bytes: usize,
    /// How long ending waits for requests under way.
    pub drain: Duration,
}

impl Default for Config {
    fn default() -> Config {
        let cores = std::thread::available_parallelism().map_or(2, usize::from);
        Config { threads: cores.clamp(2, 4), bytes: 64 << 20, drain: Duration::from_secs(10) }
    }
}

/// One mounted directory with its file. Dropping it unmounts.
pub struct Server {
    dir: PathBuf,
    shared: Arc<Shared>,
    config: Config,
    session: Option<BackgroundSession>,
}

impl Server {
    /// Mounts on `dir`, an empty directory, and serves the export `name` as the file `file` in it. What a daemon that
    /// died left mounted there goes first.
    ///
    /// Errors: [`ErrorKind::NotFound`] when there is no such directory or export, [`ErrorKind::AlreadyExists`] when
    /// something is in it or mounted on it, [`ErrorKind::NotPossible`] when the system refuses.
    pub fn start(dir: &Path, exports: Arc<dyn Exports>, name: &str, file: &str, config: Config) -> Result<Server> {
        mounts::clear_dead(dir).map_err(|error| refused(dir, &error))?;
        let dir = free_directory(dir)?;
        if exports.open(name).is_none() {
            return Err(Error::new(ErrorKind::NotFound, format!("there is no {name} to offer")));
        }
        let shared = Arc::new(Shared {
            exports,
            name: name.into(),
            file: file.into(),
            gate: Gate::new(config.bytes),
            buffers: PayloadPool::new(config.bytes / 2),
            closing: AtomicBool::new(false),
        });
        let mut options = fuser::Config::default();
        options.mount_options = vec![
            MountOption::FSName(format!("{SOURCE}{name}")),
            MountOption::DefaultPermissions,
            MountOption::NoAtime,
            MountOption::NoExec,
        ];
        options.acl = SessionACL::Owner;
        options.n_threads = Some(config.threads);
        options.clone_fd = true;
        let mounted = Session::new(Tree::new(shared.clone()), &dir, &options).and_then(Session::spawn);
        let session = mounted.map_err(|error| {
            let why = if error.kind() == io::ErrorKind::NotFound { NO_FUSE.into() } else { error.to_string() };
            Error::new(ErrorKind::NotPossible, format!("cannot mount on {}: {why}", dir.display()))
        })?;
        Ok(Server { dir, shared, config, session: Some(session) })
    }

    /// Whether it is still mounted; somebody else may have unmounted it.
    pub fn is_mounted(&self) -> bool {
        self.session.as_ref().is_some_and(|session| !session.guard.is_finished())
    }

    /// Unmounts. Requests under way are answered first. Whoever still uses the file gets errors from now on.
    pub fn stop(mut self) {
        self.finish();
    }

    fn finish(&mut self) {
        let Some(session) = self.session.take() else { return };
        if session.guard.is_finished() || mounts::unmount_unused(&self.dir).is_ok() {
            let _ = session.join();
            return;
        }
        // In use: nothing new is taken, what is under way is completed, then the users lose it.
        self.shared.closing.store(true, Ordering::Release);
        self.shared.gate.idle(self.config.drain);
        let aborted = mounts::detach(&self.dir, true).is_ok() && rustix::process::geteuid().is_root();
        if aborted {
            let _ = session.join();
            return;
        }
        // The threads end with the last user; until then they refuse. Dropping the session would unmount once more,
        // whatever is on the directory by then.
        std::mem::forget(session);
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.finish();
    }
}

const NO_FUSE: &str = "there is no /dev/fuse, or no fusermount3 for users other than root; \
    `modprobe fuse` and the package fuse3 bring them";

/// Refuses, with the errors of [`Server::start`], a directory that could not be mounted on; changes nothing.
pub fn validate(dir: &Path) -> Result<()> {
    let ours =
        || mounts::mounted_at(dir).is_ok_and(|found| found.is_some_and(|found| found.source.starts_with(SOURCE)));
    if mounts::is_dead(dir) && ours() { Ok(()) } else { free_directory(dir).map(drop) }
}

fn refused(dir: &Path, error: &io::Error) -> Error {
    let kind = match error.kind() {
        io::ErrorKind::NotFound => ErrorKind::NotFound,
        _ => ErrorKind::NotPossible,
    };
    Error::new(kind, format!("cannot mount on {}: {error}", dir.display()))
}

/// The directory without symbolic links, if it can be mounted on.
fn free_directory(dir: &Path) -> Result<PathBuf> {
    let shown = dir.display();
    let failed = |error| refused(dir, &error);
    let dir = dir.canonicalize().map_err(failed)?;
    if let Some(found) = mounts::mounted_at(&dir).map_err(failed)? {
        let context = format!("{} is mounted on {shown} already", found.source);
        return Err(Error::new(ErrorKind::AlreadyExists, context));
    }
    if dir.read_dir().map_err(failed)?.next().is_some() {
        return Err(Error::new(
            ErrorKind::AlreadyExists,
            format!("{shown} is not empty; what is in it would be hidden"),
        ));
    }
    Ok(dir)
}
