//! Timeouts: a request that takes too long is told to be overdue, so that whoever asked can do without the answer; the
//! disk goes on with it.
//!
//! Invariants
//! 1. No future of the engine is dropped half-way: a request runs in a task of its own, and its buffers with it.
//! 2. A disk is stalled from the moment one of its requests is overdue until all that are have ended.
//! 3. Whoever waits is told once: by the disk, by the watchdog, or because the disk was lost.

use crate::io::{Disk, DiskError};
use crate::sync::{Promise, promise};
use crate::units::Nanos;
use crate::world::World;
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::rc::Rc;
use core::cell::{Cell, RefCell};
use core::future::Future;

/// What became of a request.
pub enum Reply<T> {
    /// The disk answered in time, or was lost meanwhile.
    Answered(Result<T, DiskError>),
    /// It did not, yet. Dropping this gives the answer up; [`Timeout::again`] waits on.
    Overdue(Late<T>),
}

/// A request whose answer is still to come.
pub struct Late<T>(Rc<Request<T>>);

/// The requests of a pool that are waited for no longer than a limit, oldest first, and who looks after them.
pub struct Timeout {
    world: Rc<dyn World>,
    limit: Nanos,
    waiting: RefCell<VecDeque<Waiting>>,
    watched: Cell<bool>,
}

struct Waiting {
    due: Nanos,
    request: Rc<dyn Watched>,
}

struct Request<T> {
    /// Whom it asked; none once it has ended, so that nobody's disk is kept open by what is over.
    disk: RefCell<Option<Rc<dyn Disk>>>,
    /// Who waits now.
    promise: Cell<Option<Promise<Told<T>>>>,
    /// What the disk said while nobody waited.
    answer: Cell<Option<Result<T, DiskError>>>,
    /// How many requests of the disk are overdue, and whether this is one of them.
    stalled: Rc<Cell<u32>>,
    overdue: Cell<bool>,
}

enum Told<T> {
    Answered(Result<T, DiskError>),
    Overdue,
}

/// A request, whatever it asked for.
trait Watched {
    fn is_over(&self) -> bool;
    fn is_of(&self, disk: &Rc<dyn Disk>) -> bool;
    fn tell_overdue(&self);
    fn tell_lost(&self);
}

impl Timeout {
    /// Nothing is waited for; a request is overdue after `limit`.
    pub fn new(world: Rc<dyn World>, limit: Nanos) -> Rc<Timeout> {
        Rc::new(Timeout { world, limit, waiting: RefCell::default(), watched: Cell::new(false) })
    }

    /// How long a request may take.
    pub fn limit(&self) -> Nanos {
        self.limit
    }

    /// Runs `io`, a request to `disk`, and waits no longer than the limit. `stalled` counts the disk's overdue
    /// requests, `in_flight` is one higher until the disk has ended it.
    pub async fn ask<T: 'static>(
        self: &Rc<Self>,
        disk: Rc<dyn Disk>,
        io: impl Future<Output = Result<T, DiskError>> + 'static,
        stalled: Rc<Cell<u32>>,
        in_flight: Rc<Cell<u32>>,
    ) -> Reply<T> {
        let request = Rc::new(Request {
            disk: RefCell::new(Some(disk)),
            promise: Cell::new(None),
            answer: Cell::new(None),
            stalled,
            overdue: Cell::new(false),
        });
        let asked = request.clone();
        in_flight.set(in_flight.get() + 1);
        self.world.spawn(
            "disk request",
            Box::pin(async move {
                let result = io.await;
                in_flight.set(in_flight.get() - 1);
                asked.ended(result);
            }),
        );
        self.again(Late(request)).await
    }

    /// Waits once more for the answer to an overdue request, no longer than the limit from now.
    pub async fn again<T: 'static>(self: &Rc<Self>, late: Late<T>) -> Reply<T> {
        let Late(request) = late;
        if let Some(result) = request.answer.take() {
            return Reply::Answered(result);
        }
        let (given, answer) = promise();
        request.promise.set(Some(given));
        {
            let mut waiting = self.waiting.borrow_mut();
            while waiting.front().is_some_and(|front| front.request.is_over()) {
                waiting.pop_front();
            }
            let due = Nanos(self.world.now().0.saturating_add(self.limit.0));
            waiting.push_back(Waiting { due, request: request.clone() });
        }
        self.watch();
        match answer.wait().await {
            Told::Answered(result) => Reply::Answered(result),
            Told::Overdue => Reply::Overdue(Late(request)),
        }
    }

    /// Tells everybody who waits for `disk` that it is gone. What it was asked for goes on without them.
    pub fn lost(&self, disk: &Rc<dyn Disk>) {
        let waiting = self.waiting.borrow();
        waiting.iter().filter(|waiting| waiting.request.is_of(disk)).for_each(|waiting| waiting.request.tell_lost());
    }

    /// Sees to it that somebody looks at the clock as long as anything is waited for.
    fn watch(self: &Rc<Self>) {
        if self.watched.replace(true) {
            return;
        }
        let timeout = self.clone();
        self.world.spawn(
            "watchdog",
            Box::pin(async move {
                while let Some(due) = timeout.next_due() {
                    timeout.world.sleep(due.since(timeout.world.now())).await;
                }
                timeout.watched.set(false);
            }),
        );
    }

    /// Tells about what is overdue. Returns when the next one will be.
    fn next_due(&self) -> Option<Nanos> {
        let now = self.world.now();
        let mut waiting = self.waiting.borrow_mut();
        while let Some(front) = waiting.front() {
            if !front.request.is_over() && front.due > now {
                return Some(front.due);
            }
            waiting.pop_front()?.request.tell_overdue();
        }
        None
    }
}

impl<T> Request<T> {
    fn ended(&self, result: Result<T, DiskError>) {
        self.disk.take();
        if self.overdue.get() {
            self.stalled.set(self.stalled.get() - 1);
        }
        match self.promise.take() {
            Some(promise) => promise.keep(Told::Answered(result)),
            None => self.answer.set(Some(result)),
        }
    }
}

impl<T> Watched for Request<T> {
    fn is_over(&self) -> bool {
        let promise = self.promise.take();
        let over = promise.is_none();
        self.promise.set(promise);
        over
    }

    fn is_of(&self, disk: &Rc<dyn Disk>) -> bool {
        self.disk.borrow().as_ref().is_some_and(|asked| Rc::ptr_eq(asked, disk))
    }

    fn tell_overdue(&self) {
        if let Some(promise) = self.promise.take() {
            if !self.overdue.replace(true) {
                self.stalled.set(self.stalled.get() + 1);
            }
            promise.keep(Told::Overdue);
        }
    }

    fn tell_lost(&self) {
        if let Some(promise) = self.promise.take() {
            promise.keep(Told::Answered(Err(DiskError::Gone)));
        }
    }
}
