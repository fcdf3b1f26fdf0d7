//! What the parts of an open pool keep beside each other, by what it is about: requests on their way to the disks,
//! records on their way to being durable, and what tasks wait for.

use super::budget::Budgets;
use super::flush_turns::FlushTurns;
use super::lanes::Lanes;
use super::spare::Spare;
use super::streams::Streams;
use super::timeout::Timeout;
use super::tuning::Tuning;
use super::turns::Turns;
use crate::log::Taken;
use crate::sync::{Signal, Turn};
use crate::units::{DiskNo, Nanos, VdiskNo};
use crate::world::World;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::rc::Rc;
use core::cell::{Cell, RefCell};

/// Requests on their way to the disks: how long they may take, who goes first, and what they hold.
pub struct Traffic {
    /// Reads that are given up after the read timeout.
    pub read_timeout: Rc<Timeout>,
    /// Requests that are waited for longer than that: writes, flushes, and reads that nothing else can answer.
    pub write_timeout: Rc<Timeout>,
    /// What is held in memory.
    pub budgets: Budgets,
    /// The ways to the disks, for reads.
    pub lanes: Lanes,
    /// Whose turn it is on each disk.
    pub turns: Turns,
    /// What streams write beside clients that flush.
    pub flush_turns: FlushTurns,
    /// Clients that read in order.
    pub streams: RefCell<Streams>,
    /// Held by whoever writes to read caches.
    pub filling: Turn,
    /// Whether somebody fills them.
    pub fills: Cell<bool>,
    /// Buffers to read into.
    pub spare: Spare,
    /// Requests of clients, counted.
    pub requests: Cell<u64>,
}

impl Traffic {
    /// Nothing is on its way yet.
    pub fn new(world: &Rc<dyn World>, tuning: &Tuning) -> Traffic {
        Traffic {
            read_timeout: Timeout::new(world.clone(), tuning.read_timeout),
            write_timeout: Timeout::new(world.clone(), tuning.write_limit),
            budgets: Budgets::new(tuning),
            lanes: Lanes::default(),
            turns: Turns::default(),
            flush_turns: FlushTurns::default(),
            streams: RefCell::default(),
            filling: Turn::default(),
            fills: Cell::new(false),
            spare: Spare::new(tuning.ahead_memory / 4),
            requests: Cell::new(0),
        }
    }
}

/// What was written, or noted, and is not durable yet.
#[derive(Default)]
pub struct Commits {
    /// Bytes of sealed stripes in the stripe buffers: they leave by themselves.
    pub in_flight: Cell<u64>,
    /// Stripe bytes per disk written since the last commit was begun.
    pub uncommitted: Cell<u64>,
    /// When the last commit was begun.
    pub committed_at: Cell<Nanos>,
    /// Held by whoever writes the log.
    pub committing: Turn,
    /// The next batch, where it was cut short.
    pub cut_short: RefCell<Option<Taken>>,
    /// Log records with data that is nowhere else: (sequence number, virtual disk, stripe).
    pub landings: RefCell<BTreeSet<(u64, VdiskNo, u64)>>,
    /// Log disks that lacked batches when the pool was opened: the number of the first.
    pub lacked: RefCell<BTreeMap<DiskNo, u64>>,
    /// Pages could not be written since the last checkpoint was begun: it must begin anew.
    pub pages_unwritten: Cell<bool>,
    /// How many commits had been withdrawn when a checkpoint looked at which stripes are in use.
    pub withdrawn_before: Cell<u64>,
    /// Counts disks that were lost, or came back: what was being made durable may not be on those.
    pub comings_and_goings: Cell<u64>,
}

/// What tasks wait for, and what tells them whether it is worth another look.
#[derive(Default)]
pub struct Signals {
    /// Room was made: buffers, stripes or the log moved on.
    pub room: Signal,
    /// There may be something to do for a job.
    pub work: Signal,
    /// There may be something to do for the mover, or the pool stops.
    pub packed: Signal,
    /// Something that drains may be a step further.
    pub drains: Signal,
    /// There is something to write to a read cache, or the pool stops.
    pub fills: Signal,
    /// A write waits for a free stripe.
    pub wants_stripes: Cell<bool>,
    /// A write that opens a buffer wants others packed: each leaves the free stripe that it had claimed.
    pub wants_packing: Cell<bool>,
    /// How often everything that gathers was asked to leave for a free stripe, and has, as far as it could.
    pub reliefs: Cell<u64>,
    /// What there was of what may become free places when that had been done last; see [`crate::pool`].
    pub relieved_at: Cell<Option<[u64; 6]>>,
    /// The state of the pool ([`Signals::changes`]) in which nothing can make room in the log, if it was found so.
    pub pinned: Cell<Option<u64>>,
    /// How things were when the log had last been gone through in vain, the bytes of it in use then, and those that had
    /// landed; see [`crate::pool`].
    pub gone_round: Cell<Option<([u64; 3], u64, u64)>>,
    /// Counts what may make possible what was not: disks come and go, slabs become free.
    pub changes: Cell<u64>,
}
