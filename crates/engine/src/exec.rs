//! The executor: one thread, straight-line tasks, no timers and no I/O of its own. The world that owns it decides the
//! order in which ready tasks run (`host`: oldest first; `sim`: by seed), which is the only freedom there is.
//!
//! Invariants
//! 1. A task is polled only by `run`, never from inside another task's poll.
//! 2. A wake is never lost: a task woken while it runs is ready again afterwards.
//! 3. Wakes may come from any thread; everything else stays on one.
//! 4. A task that is run very often although neither time nor any disk has moved on is found and named. (One that never
//!    waits at all cannot be seen from here: no loop of the engine may go round without waiting, or without having made
//!    what is left to do smaller.)

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::task::Wake;
use alloc::vec::Vec;
use core::cell::{Cell, RefCell};
use core::future::Future;
use core::pin::Pin;
use core::sync::atomic::{AtomicBool, Ordering};
use core::task::{Context, Waker};

/// What a world runs.
pub type Task = Pin<Box<dyn Future<Output = ()>>>;

/// What an operation that is called from other crates returns. Code of a plain `async fn` is compiled anew in each
/// crate that awaits it, with all that it awaits in turn: the whole engine ten times over. Code behind this is compiled
/// once, here. Reads and writes are asked for too often to be boxed each time: they are plain, and what is rare in them
/// is boxed.
pub type LocalBoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + 'a>>;

/// The number of a task, while it lives.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct TaskNo(usize);

/// The tasks of one world.
#[derive(Default)]
pub struct Executor {
    slots: RefCell<Vec<Slot>>,
    free: RefCell<Vec<usize>>,
    alive: Cell<usize>,
    woken: Arc<AnyWoken>,
    turn: Cell<u64>,
    spinning: Cell<Option<(&'static str, u64)>>,
}

/// How often a task may be run in one turn; see [`Executor::moved_on`].
const POLLS_MAX: u64 = 100_000;

/// Set by any wake, so that an idle executor need not look at every task.
#[derive(Default)]
struct AnyWoken(AtomicBool);

struct Slot {
    name: &'static str,
    task: Option<Task>,
    ready: Arc<Ready>,
    waker: Waker,
    /// In which turn it was run last, and how often in that.
    polls: (u64, u64),
}

struct Ready {
    woken: AtomicBool,
    any: Arc<AnyWoken>,
}

impl Wake for Ready {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.woken.store(true, Ordering::Release);
        self.any.0.store(true, Ordering::Release);
    }
}

impl Executor {
    /// An executor with no tasks.
    pub fn new() -> Executor {
        Executor::default()
    }

    /// Adds a task; it is ready at once.
    pub fn spawn(&self, name: &'static str, task: Task) {
        self.alive.set(self.alive.get() + 1);
        let ready = Arc::new(Ready { woken: AtomicBool::new(true), any: self.woken.clone() });
        let waker = Waker::from(ready.clone());
        self.woken.0.store(true, Ordering::Release);
        let slot = Slot { name, task: Some(task), ready, waker, polls: (0, 0) };
        match self.free.borrow_mut().pop() {
            Some(no) => self.slots.borrow_mut()[no] = slot,
            None => self.slots.borrow_mut().push(slot),
        }
    }

    /// Puts the ready tasks' numbers into `into` (emptied first), lowest first, and leaves them ready.
    pub fn ready(&self, into: &mut Vec<TaskNo>) {
        into.clear();
        if !self.woken.0.swap(false, Ordering::AcqRel) {
            return;
        }
        for (no, slot) in self.slots.borrow().iter().enumerate() {
            if slot.task.is_some() && slot.ready.woken.load(Ordering::Acquire) {
                into.push(TaskNo(no));
            }
        }
        if !into.is_empty() {
            // They stay ready until they are run.
            self.woken.0.store(true, Ordering::Release);
        }
    }

    /// Runs one task until it waits or ends. A task that is not ready is left alone.
    pub fn run(&self, no: TaskNo) {
        let (mut task, waker) = {
            let mut slots = self.slots.borrow_mut();
            let slot = &mut slots[no.0];
            if !slot.ready.woken.swap(false, Ordering::AcqRel) {
                return;
            }
            let Some(task) = slot.task.take() else { return };
            let (turn, polls) = slot.polls;
            slot.polls = (self.turn.get(), if turn == self.turn.get() { polls + 1 } else { 1 });
            if slot.polls.1 == POLLS_MAX {
                self.spinning.set(Some((slot.name, POLLS_MAX)));
            }
            (task, slot.waker.clone())
        };
        let done = task.as_mut().poll(&mut Context::from_waker(&waker)).is_ready();
        if done {
            drop(task);
            self.alive.set(self.alive.get() - 1);
            self.free.borrow_mut().push(no.0);
        } else {
            self.slots.borrow_mut()[no.0].task = Some(task);
        }
    }

    /// Runs every ready task once, oldest slot first; says whether there was any.
    pub fn run_ready(&self, scratch: &mut Vec<TaskNo>) -> bool {
        self.ready(scratch);
        for no in scratch.iter() {
            self.run(*no);
        }
        !scratch.is_empty()
    }

    /// Time, or a disk, or somebody outside has moved on: a new turn begins.
    pub fn moved_on(&self) {
        self.turn.set(self.turn.get() + 1);
    }

    /// A task that was run too often in one turn, and how often that was. Each turn's is told once.
    pub fn take_spinning(&self) -> Option<(&'static str, u64)> {
        self.spinning.take()
    }

    /// How many tasks live.
    pub fn alive(&self) -> usize {
        self.alive.get()
    }

    /// The names of the living tasks, for people.
    pub fn names(&self) -> Vec<&'static str> {
        self.slots.borrow().iter().filter(|slot| slot.task.is_some()).map(|slot| slot.name).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::rc::Rc;
    use core::task::Poll;

    #[test]
    fn a_task_that_wakes_itself_runs_again_and_then_ends() {
        let executor = Rc::new(Executor::new());
        let left = Rc::new(Cell::new(3));
        let counter = left.clone();
        executor.spawn(
            "count down",
            Box::pin(core::future::poll_fn(move |context| {
                counter.set(counter.get() - 1);
                if counter.get() == 0 {
                    return Poll::Ready(());
                }
                context.waker().wake_by_ref();
                Poll::Pending
            })),
        );
        let mut scratch = Vec::new();
        while executor.run_ready(&mut scratch) {}
        assert_eq!((left.get(), executor.alive()), (0, 0));
    }

    #[test]
    fn a_task_that_spins_is_named_and_one_that_waits_in_between_is_not() {
        let executor = Executor::new();
        for name in ["spins", "works"] {
            executor.spawn(
                name,
                Box::pin(core::future::poll_fn(|context| {
                    context.waker().wake_by_ref();
                    Poll::Pending
                })),
            );
        }
        for _ in 0..2 * POLLS_MAX {
            executor.run(TaskNo(1));
            executor.moved_on();
        }
        assert_eq!(executor.take_spinning(), None);
        for _ in 0..POLLS_MAX {
            executor.run(TaskNo(0));
        }
        assert_eq!((executor.take_spinning(), executor.take_spinning()), (Some(("spins", POLLS_MAX)), None));
    }
}
