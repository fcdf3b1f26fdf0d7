//! The daemon: owns the pools, serves exports and the control API.
//!
//! Starting and stopping are the same steps in opposite order:
//! state directory and its lock -> socket and its lock -> pools found and opened -> exports restored -> API answers.
//!
//! Invariants
//! 1. A changing operation runs alone; asking ones run beside it.
//! 2. What a changing operation would refuse it refuses before it changed anything, `dry_run` or not.
//! 3. An export that is remembered is served whenever its virtual disk is there.

pub mod backend;
pub mod config;
mod control;
mod engine;
pub mod events;
mod exports;
pub mod find;
pub mod lock;
pub mod notify;
mod plug;
mod pools;
pub mod probe;
pub mod serve;
mod state;
mod vdisks;
mod watch;

use crate::api::error::Answer;
use crate::api::server::Server;
use crate::api::{Control, error::ApiError, error::Kind};
use backend::{Engine, ExportServer};
use config::Options;
use events::Journal;
use lock::{Lock, Socket};
pub use plug::parts;
use pools::Unopened;
use state::{State, StateDir};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How long a daemon that starts waits for disks that somebody claims. A daemon that was killed is gone before its last
/// requests are: the kernel ends those first, and only then the claims. Until then its disks must not be opened, or an
/// old write could follow a new one; that moment must not cost the pool either.
const CLAIMS_END_WITHIN: Duration = Duration::from_secs(10);

/// What a daemon is made of. The engine and the export servers write to the same journal.
#[derive(Clone)]
pub struct Parts {
    /// The pools.
    pub engine: Arc<dyn Engine>,
    /// The export servers.
    pub exports: Arc<dyn ExportServer>,
    /// What happened.
    pub journal: Arc<Journal>,
}

/// A daemon that answers.
pub struct Running {
    daemon: Arc<Daemon>,
    server: Server,
    _socket: Socket,
    _state_lock: Lock,
}

/// What the operations work on. The submodules implement one noun each.
pub(crate) struct Daemon {
    parts: Parts,
    state_dir: StateDir,
    places: Option<Vec<PathBuf>>,
    degraded: bool,
    started: Instant,
    /// Held for the length of a changing operation (invariant 1).
    changing: Mutex<()>,
    state: Mutex<State>,
    unopened: Mutex<Vec<Unopened>>,
    /// Why an export that is remembered is not served.
    idle: Mutex<Vec<(state::ExportRecord, String)>>,
    /// Whether the exports of the last run were started once.
    restored: Mutex<bool>,
}

/// Starts a daemon: returns when its pools are open, its exports restored, and its socket answers.
pub fn start(options: &Options, parts: Parts) -> Answer<Running> {
    let state_dir = StateDir::open(&options.state)?;
    let state_lock =
        Lock::take(&state_dir.path().join("lock"), &format!("the state directory {}", options.state.display()))
            .map_err(|error| error.hint("weft serve --state DIR --socket PATH"))?;
    let (socket, listener) = Socket::listen(&options.socket)?;
    let state = state_dir.load()?;
    let daemon = Arc::new(Daemon {
        parts,
        state_dir,
        places: options.places.clone(),
        degraded: options.degraded,
        started: Instant::now(),
        changing: Mutex::new(()),
        state: Mutex::new(state),
        unopened: Mutex::new(Vec::new()),
        idle: Mutex::new(Vec::new()),
        restored: Mutex::new(false),
    });
    daemon.rescan(Instant::now() + CLAIMS_END_WITHIN);
    let server = Server::start(listener, daemon.clone() as Arc<dyn Control>);
    let server = server.map_err(|error| ApiError::new(Kind::Internal, format!("cannot serve the socket: {error}")))?;
    Ok(Running { daemon, server, _socket: socket, _state_lock: state_lock })
}

impl Running {
    /// Stops cleanly: answers what was asked, ends the exports, closes the pools.
    pub fn stop(self) -> Answer<()> {
        self.daemon.parts.journal.close();
        self.server.stop();
        let _alone = lock(&self.daemon.changing);
        self.daemon.stop_exports();
        self.daemon.close_pools()
    }
}

impl Daemon {
    /// Looks for pools and exports that could be there now and were not before. Disks that are claimed by somebody are
    /// waited for until `patience` is over.
    fn rescan(&self, patience: Instant) {
        let _alone = lock(&self.changing);
        self.open_found_pools(patience);
        self.restore_exports();
    }

    /// Changes what is remembered, durably; what is remembered stays as it was when that fails.
    fn remember(&self, change: impl FnOnce(&mut State)) -> Answer<()> {
        let mut state = lock(&self.state);
        let mut next = state.clone();
        change(&mut next);
        self.state_dir.save(&next)?;
        *state = next;
        Ok(())
    }
}

/// A panic in one operation does not stop the others: the data under these locks is replaced whole.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
