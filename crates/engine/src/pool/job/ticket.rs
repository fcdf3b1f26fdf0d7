//! A running job: how far it is, what it is told, and how much of the time it leaves to clients.

use crate::error::{Error, ErrorKind};
use crate::format::record::{JobKind, JobRecord};
use crate::store::Store;
use crate::units::{JobNo, Nanos};
use alloc::string::String;
use core::cell::{Cell, RefCell};

/// Work is taken to have lasted this long at most: a disk that stalls must not make a job rest for minutes.
const WORK_MAX: Nanos = Nanos::secs(1);
/// A rate is taken over about this long.
const RATE_OVER: Nanos = Nanos::secs(5);

/// Why a job stops before its end.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Halt {
    /// Another one has its turn, or the pool is being closed.
    Yield,
    /// A person wants it to wait.
    Pause,
    /// A person wants it to end.
    Cancel,
    /// It cannot be done.
    Failed(Error),
}

impl From<Error> for Halt {
    fn from(error: Error) -> Halt {
        Halt::Failed(error)
    }
}

/// What a running job works with: its progress, and what it is told.
pub struct Ticket {
    pub(super) id: JobNo,
    pub(super) kind: JobKind,
    order: RefCell<Option<Halt>>,
    pub(super) done: Cell<u64>,
    pub(super) total: Cell<u64>,
    pub(super) cursor: Cell<u32>,
    pub(super) bad: Cell<u64>,
    pub(super) healed: Cell<u64>,
    /// When the last rate was taken, and how much was done then.
    mark: Cell<(Nanos, u64)>,
    rate: Cell<u64>,
    /// When the last rest ended, and how many requests of clients there had been.
    rested: Cell<(Nanos, u64)>,
    /// Until when everything that works for this job rests.
    rest: Cell<Nanos>,
}

impl Ticket {
    pub(in crate::pool) fn new(record: &JobRecord, store: &Store) -> Ticket {
        let now = store.world.now();
        Ticket {
            id: record.id,
            kind: record.kind,
            order: RefCell::new(None),
            done: Cell::new(record.done),
            total: Cell::new(record.total),
            cursor: Cell::new(record.cursor),
            bad: Cell::new(record.bad),
            healed: Cell::new(record.healed),
            mark: Cell::new((now, record.done)),
            rate: Cell::new(0),
            rested: Cell::new((now, store.traffic.requests.get())),
            rest: Cell::new(now),
        }
    }

    /// `bytes` more are done. Obeys orders, and leaves clients their share of the time if there are any.
    pub async fn step(&self, store: &Store, bytes: u64) -> core::result::Result<(), Halt> {
        self.advance(store, bytes)?;
        self.leave_clients_their_share(store).await;
        self.obey()
    }

    /// Notes `bytes` as done, without a rest: clients wait for the job just now.
    pub fn advance(&self, store: &Store, bytes: u64) -> core::result::Result<(), Halt> {
        self.done.set(self.done.get() + bytes);
        self.total.set(self.total.get().max(self.done.get()));
        let now = store.world.now();
        let (then, before) = self.mark.get();
        if now.since(then) >= RATE_OVER {
            self.rate.set(per_second(self.done.get() - before, now.since(then)));
            self.mark.set((now, self.done.get()));
        }
        self.obey()
    }

    /// Work and rest take turns, for all that work for this job together: whoever ends a piece of work while the others
    /// rest joins them, and the rest is counted from the last one on. So disks are left to clients for their whole
    /// share of the time. Without clients there is no rest.
    async fn leave_clients_their_share(&self, store: &Store) {
        let now = store.world.now();
        let (rested, seen) = self.rested.get();
        let share = store.map.borrow().notes.settings.foreground_share.min(90) as u64;
        if store.traffic.requests.get() == seen || share == 0 {
            if now >= self.rest.get() {
                self.rested.set((now, store.traffic.requests.get()));
            }
            return;
        }
        let worked = now.since(rested).min(WORK_MAX);
        self.rest.set(now + Nanos(worked.0 * share / (100 - share)));
        while self.rest.get() > store.world.now() {
            store.world.sleep(self.rest.get().since(store.world.now())).await;
        }
        if self.rested.get().0 == rested {
            // The first one to wake ends the rest for all.
            self.rested.set((store.world.now(), store.traffic.requests.get()));
        }
    }

    /// Bytes per second: as last taken, or since the job went on.
    pub(super) fn rate_now(&self, now: Nanos) -> u64 {
        let (then, before) = self.mark.get();
        match self.rate.get() {
            0 => per_second(self.done.get() - before, now.since(then)),
            rate => rate,
        }
    }

    /// Says how much there is to do beside what is done.
    pub(super) fn expect(&self, left: u64) {
        self.total.set(self.done.get() + left);
    }

    fn obey(&self) -> core::result::Result<(), Halt> {
        match self.order.borrow().clone() {
            Some(halt) => Err(halt),
            None => Ok(()),
        }
    }

    pub(super) fn order(&self, halt: Halt) {
        // What a person says counts more than that another has its turn.
        let mut order = self.order.borrow_mut();
        if order.is_none() || *order == Some(Halt::Yield) {
            *order = Some(halt);
        }
    }
}

/// Fails a job that leaves something undone, for this kind of reason, in these words.
pub fn stuck<T>(kind: ErrorKind, context: String) -> core::result::Result<T, Halt> {
    Err(Halt::Failed(Error::new(kind, context)))
}

fn per_second(bytes: u64, span: Nanos) -> u64 {
    if span.0 == 0 { 0 } else { (bytes as u128 * 1_000_000_000 / span.0 as u128) as u64 }
}
