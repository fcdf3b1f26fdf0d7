//! Patience: a read that takes too long is given up, so that its answer can be computed from other disks; the disk goes on with it.
//!
//! Invariants
//! 1. No future of the engine is dropped half-way: the read goes on in a task of its own, and its buffer with it.
//! 2. A disk is stalled from the moment one of its reads is overdue until all that are have ended.
//! 3. Every read that is waited for is answered once: by the disk, or by the watchdog.

use crate::io::{Buf, Disk, DiskError};
use crate::sync::{Promise, promise};
use crate::units::{DiskOffset, Nanos};
use crate::world::World;
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::rc::Rc;
use core::cell::{Cell, RefCell};

/// What became of a read.
pub enum Patient {
    /// The disk answered in time.
    Answered(Result<Buf, DiskError>),
    /// It did not, yet.
    Overdue,
}

/// The reads of a pool that are waited for, oldest first, and who looks after them.
pub struct Patience {
    world: Rc<dyn World>,
    limit: Nanos,
    waiting: RefCell<VecDeque<Waiting>>,
    watched: Cell<bool>,
}

struct Waiting {
    due: Nanos,
    promise: Rc<Cell<Option<Promise<Patient>>>>,
    stalled: Rc<Cell<u32>>,
}

impl Patience {
    /// Nothing is waited for; a read is overdue after `limit`.
    pub fn new(world: Rc<dyn World>, limit: Nanos) -> Rc<Patience> {
        Rc::new(Patience { world, limit, waiting: RefCell::default(), watched: Cell::new(false) })
    }

    /// Reads from `disk`, and waits no longer than the limit. `stalled` counts the disk's overdue reads.
    pub async fn read(
        self: &Rc<Self>,
        disk: Rc<dyn Disk>,
        at: DiskOffset,
        into: Buf,
        stalled: Rc<Cell<u32>>,
    ) -> Patient {
        let (given, answer) = promise();
        let given = Rc::new(Cell::new(Some(given)));
        {
            let mut waiting = self.waiting.borrow_mut();
            while waiting.front().is_some_and(Waiting::is_over) {
                waiting.pop_front();
            }
            let due = Nanos(self.world.now().0 + self.limit.0);
            waiting.push_back(Waiting { due, promise: given.clone(), stalled: stalled.clone() });
        }
        self.watch();
        self.world.spawn(
            "read",
            Box::pin(async move {
                let read = disk.read(at, into).await;
                match given.take() {
                    Some(promise) => promise.keep(Patient::Answered(read)),
                    None => stalled.set(stalled.get() - 1),
                }
            }),
        );
        answer.wait().await
    }

    /// Sees to it that somebody looks at the clock as long as anything is waited for.
    fn watch(self: &Rc<Self>) {
        if self.watched.replace(true) {
            return;
        }
        let patience = self.clone();
        self.world.spawn(
            "watchdog",
            Box::pin(async move {
                while let Some(due) = patience.next_due() {
                    patience.world.sleep(due.since(patience.world.now())).await;
                }
                patience.watched.set(false);
            }),
        );
    }

    /// Answers what is overdue. Returns when the next one will be.
    fn next_due(&self) -> Option<Nanos> {
        let now = self.world.now();
        let mut waiting = self.waiting.borrow_mut();
        while let Some(front) = waiting.front() {
            if !front.is_over() && front.due > now {
                return Some(front.due);
            }
            let front = waiting.pop_front()?;
            if let Some(promise) = front.promise.take() {
                front.stalled.set(front.stalled.get() + 1);
                promise.keep(Patient::Overdue);
            }
        }
        None
    }
}

impl Waiting {
    fn is_over(&self) -> bool {
        let promise = self.promise.take();
        let over = promise.is_none();
        self.promise.set(promise);
        over
    }
}
