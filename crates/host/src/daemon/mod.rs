//! The daemon: owns the pools, serves exports and the control API.
//!
//! Starting and stopping are the same steps in opposite order:
//! state directory and its lock -> socket and its lock -> pools found and opened -> exports restored -> API answers ->
//! mounts restored.
//!
//! Invariants
//! 1. A changing operation runs alone; asking ones run beside it.
//! 2. What a changing operation would refuse it refuses before it changed anything, `dry_run` or not.
//! 3. An export that is remembered is served whenever its virtual disk is there.
//! 4. A disk that an open pool misses is given back to it soon after it appears.

pub mod backend;
mod candidates;
mod concerns;
pub mod config;
mod engine;
mod event_log;
pub mod events;
pub mod find;
mod hook;
mod keeper;
mod lives;
pub mod lock;
mod memory;
pub mod notify;
mod opening;
mod perform;
mod plug;
pub mod probe;
pub(crate) mod say;
pub mod serve;
mod sockets;
mod state;
mod teller;

use crate::api::error::Answer;
use crate::api::{error::ApiError, error::Kind};
use crate::ops::line::Line;
use crate::wire::server::Server;
use config::Options;
use engine::{HostEngine, HostExports};
use event_log::EventLog;
use events::Journal;
use hook::Hook;
use keeper::Keeper;
use lives::Lives;
use lock::{Lock, Socket};
use opening::{Looking, Unopened};
pub use plug::parts;
use state::{State, StateDir};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use teller::Teller;

/// How long a daemon that starts waits for disks that somebody claims. A daemon that was killed is gone before its last
/// requests are: the kernel ends those first, and only then the claims. Until then its disks must not be opened, or an
/// old write could follow a new one; that moment must not cost the pool either.
const CLAIMS_END_WITHIN: Duration = Duration::from_secs(10);

/// What a daemon is made of. The engine and the export servers write to the same journal.
#[derive(Clone)]
pub struct Parts {
    /// The pools.
    engine: Arc<HostEngine>,
    /// The export servers.
    exports: Arc<HostExports>,
    /// What happened.
    journal: Arc<Journal>,
}

/// A daemon that answers.
pub struct Running {
    daemon: Arc<Daemon>,
    server: Server,
    keeper: Keeper,
    hook: Option<Hook>,
    teller: Teller,
    event_log: EventLog,
    _socket: Socket,
    _state_lock: Lock,
}

/// What the operations work on. The submodules of `perform` do those of one noun each.
pub(crate) struct Daemon {
    parts: Parts,
    state_dir: StateDir,
    /// The control socket, for processes that are started to ask this daemon.
    socket: PathBuf,
    places: Option<Vec<PathBuf>>,
    degraded: bool,
    started: Instant,
    /// Held for the length of a changing operation (invariant 1).
    changing: Mutex<()>,
    state: Mutex<State>,
    unopened: Mutex<Vec<Unopened>>,
    /// Why disks that were found are not given to their pools, as people were told; empty for those that were.
    refused: Mutex<BTreeMap<PathBuf, String>>,
    /// Why an export that is remembered is not served.
    idle: Mutex<Vec<(state::ExportRecord, perform::Idle)>>,
    /// The directories of mounts that do not work, and why: an earlier daemon served their device, for one.
    lost: Mutex<Vec<(PathBuf, String)>>,
    /// Whether the exports of the last run were started once.
    restored: Mutex<bool>,
    /// How much of their lives its disks have used.
    lives: Lives,
}

/// Starts a daemon: returns when its pools are open, its exports restored, and its socket answers.
pub fn start(options: &Options, parts: Parts) -> Answer<Running> {
    let state_dir = StateDir::open(&options.state)?;
    let state_lock =
        Lock::take(&state_dir.path().join("lock"), &format!("the state directory {}", options.state.display()))
            .map_err(|error| error.hint(Line::serve(&[("state", &"DIR"), ("socket", &"PATH")])))?;
    let (socket, listener) = Socket::listen(&options.socket)?;
    let state = state_dir.load()?;
    let event_log = EventLog::open(state_dir.path(), parts.journal.clone())?;
    let teller = Teller::start(parts.journal.clone())?;
    let hook =
        options.hook.as_ref().map(|hook| Hook::start(hook, &options.socket, parts.journal.clone())).transpose()?;
    let daemon = Arc::new(Daemon {
        parts,
        state_dir,
        socket: options.socket.clone(),
        places: options.places.clone(),
        degraded: options.degraded,
        started: Instant::now(),
        changing: Mutex::new(()),
        state: Mutex::new(state),
        unopened: Mutex::new(Vec::new()),
        refused: Mutex::default(),
        idle: Mutex::new(Vec::new()),
        lost: Mutex::new(Vec::new()),
        restored: Mutex::new(false),
        lives: Lives::default(),
    });
    daemon.meet_old_mounts()?;
    let seen = daemon.seen();
    daemon.rescan(Instant::now() + CLAIMS_END_WITHIN, Looking::Asked);
    let server = Server::start(listener, daemon.clone());
    let server = server.map_err(|error| ApiError::new(Kind::Internal, format!("cannot serve the socket: {error}")))?;
    let keeper = Keeper::start(daemon.clone(), seen)?;
    Ok(Running { daemon, server, keeper, hook, teller, event_log, _socket: socket, _state_lock: state_lock })
}

impl Running {
    /// Mounts again what was mounted to persist; what cannot be is said in the journal.
    pub fn restore_mounts(&self) {
        self.daemon.restore_mounts();
    }

    /// Stops cleanly: unmounts, answers what was asked, ends the exports, closes the pools.
    pub fn stop(self) -> Answer<()> {
        self.daemon.end_mounts();
        self.daemon.parts.journal.close();
        self.server.stop();
        self.keeper.stop();
        let alone = lock(&self.daemon.changing);
        self.daemon.stop_exports();
        let closed = self.daemon.close_pools();
        drop(alone);
        // What happened until now is told and kept.
        if let Some(hook) = self.hook {
            hook.stop();
        }
        self.teller.stop();
        self.event_log.stop();
        closed
    }
}

impl Daemon {
    /// Looks for pools and exports that could be there now and were not before. Disks that are claimed by somebody are
    /// waited for until `deadline`. Says whether one that an open pool misses is claimed even then.
    fn rescan(&self, deadline: Instant, looking: Looking) -> bool {
        let _alone = lock(&self.changing);
        self.look_around(deadline, looking)
    }

    /// Looks as [`Daemon::rescan`] does, for who keeps others from changing anything.
    fn look_around(&self, deadline: Instant, looking: Looking) -> bool {
        let claimed = self.open_found_pools(deadline, looking);
        if let Ok(pools) = self.parts.engine.pools() {
            self.restore_exports(&pools);
        }
        claimed
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
