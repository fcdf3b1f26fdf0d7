//! The engine's [`World`] on Linux: the monotonic clock, a heap of timers, the executor, and the listeners to events.

use std::cell::{Cell, RefCell};
use std::cmp::Ordering;
use std::collections::{BTreeSet, BinaryHeap};
use std::future::Future;
use std::ops::ControlFlow;
use std::pin::Pin;
use std::rc::Rc;
use std::time::{Duration, Instant};
use weft_engine::event::Event;
use weft_engine::exec::{Executor, Task, TaskNo};
use weft_engine::sync::{Promise, promise};
use weft_engine::units::Nanos;
use weft_engine::world::World;

type Listener = Rc<dyn Fn(&Event) -> ControlFlow<()>>;

/// The longest that tasks keep the thread before the disks get a turn, by the task: some copies of 256 KiB.
const BURST: Duration = Duration::from_micros(200);

/// Lives on the engine's thread. Its clock starts with it.
pub(super) struct HostWorld {
    start: Instant,
    executor: Executor,
    timers: RefCell<BinaryHeap<Timer>>,
    timers_made: Cell<u64>,
    listeners: RefCell<Vec<Listener>>,
    /// Tasks that were found to spin.
    told: RefCell<BTreeSet<&'static str>>,
}

/// Ordered so that the earliest is the heap's greatest; of the same moment, the one made first.
struct Timer {
    due: Nanos,
    no: u64,
    promise: Promise<()>,
}

impl HostWorld {
    pub(super) fn new() -> HostWorld {
        HostWorld {
            start: Instant::now(),
            executor: Executor::new(),
            timers: RefCell::default(),
            timers_made: Cell::new(0),
            listeners: RefCell::default(),
            told: RefCell::default(),
        }
    }

    /// Wakes the sleepers whose time has come.
    pub(super) fn fire_timers(&self) {
        if self.timers.borrow().is_empty() {
            return;
        }
        let now = self.now();
        let mut timers = self.timers.borrow_mut();
        while timers.peek().is_some_and(|timer| timer.due <= now) {
            if let Some(timer) = timers.pop() {
                self.executor.moved_on();
                timer.promise.keep(());
            }
        }
    }

    /// The time until the next timer.
    pub(super) fn until_timer(&self) -> Option<Duration> {
        let due = self.timers.borrow().peek()?.due;
        Some(Duration::from_nanos(due.since(self.now()).0))
    }

    /// Runs every ready task once; says whether there was any. Calls `between` whenever they have kept the thread for a
    /// [`BURST`], so that what they gave to the disks is on its way while the others still compute.
    pub(super) fn run_ready(&self, scratch: &mut Vec<TaskNo>, between: impl Fn()) -> bool {
        self.executor.ready(scratch);
        let mut begun = Instant::now();
        for no in scratch.iter() {
            self.executor.run(*no);
            if begun.elapsed() >= BURST {
                between();
                begun = Instant::now();
            }
        }
        !scratch.is_empty()
    }

    /// A disk, or somebody outside, has moved on.
    pub(super) fn moved_on(&self) {
        self.executor.moved_on();
    }

    /// Tells about a task that spins, once for each name.
    pub(super) fn tell_spinning(&self) {
        if let Some((task, polls)) = self.executor.take_spinning()
            && self.told.borrow_mut().insert(task)
        {
            self.emit(Event::TaskSpins { task, polls });
        }
    }

    pub(super) fn alive(&self) -> usize {
        self.executor.alive()
    }

    pub(super) fn names(&self) -> Vec<&'static str> {
        self.executor.names()
    }

    pub(super) fn listen(&self, listener: Listener) {
        self.listeners.borrow_mut().push(listener);
    }
}

impl World for HostWorld {
    fn now(&self) -> Nanos {
        Nanos(self.start.elapsed().as_nanos() as u64)
    }

    fn sleep(&self, span: Nanos) -> Pin<Box<dyn Future<Output = ()>>> {
        let (promise, answer) = promise();
        let no = self.timers_made.get();
        self.timers_made.set(no + 1);
        let due = Nanos(self.now().0.saturating_add(span.0));
        self.timers.borrow_mut().push(Timer { due, no, promise });
        Box::pin(answer.wait())
    }

    fn spawn(&self, name: &'static str, task: Task) {
        self.executor.spawn(name, task);
    }

    fn emit(&self, event: Event) {
        // A listener may add listeners; it is not called for the event it was added in.
        let listeners = self.listeners.borrow().clone();
        for listener in listeners {
            if listener(&event).is_break() {
                self.listeners.borrow_mut().retain(|other| !Rc::ptr_eq(other, &listener));
            }
        }
    }
}

impl Ord for Timer {
    fn cmp(&self, other: &Timer) -> Ordering {
        (other.due, other.no).cmp(&(self.due, self.no))
    }
}

impl PartialOrd for Timer {
    fn partial_cmp(&self, other: &Timer) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Timer {
    fn eq(&self, other: &Timer) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Timer {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timers_come_out_earliest_first_and_in_order_of_making() {
        let world = HostWorld::new();
        for span in [30, 10, 20, 10] {
            drop(world.sleep(Nanos::secs(span)));
        }
        let order: Vec<u64> = std::iter::from_fn(|| world.timers.borrow_mut().pop()).map(|timer| timer.no).collect();
        assert_eq!(order, [1, 3, 2, 0]);
    }

    #[test]
    fn a_task_that_spins_is_told_once() {
        let world = HostWorld::new();
        let heard = Rc::new(Cell::new(0));
        let count = heard.clone();
        world.listen(Rc::new(move |event| {
            count.set(count.get() + matches!(event, Event::TaskSpins { task: "spins", .. }) as u32);
            ControlFlow::Continue(())
        }));
        let spin = std::future::poll_fn(|context| {
            context.waker().wake_by_ref();
            std::task::Poll::Pending
        });
        world.spawn("spins", Box::pin(spin));
        let mut scratch = Vec::new();
        for turn in 0..3 {
            (0..100_000).for_each(|_| assert!(world.run_ready(&mut scratch, || {})));
            world.tell_spinning();
            assert_eq!(heard.get(), 1, "turn {turn}");
            world.moved_on();
        }
    }

    #[test]
    fn a_listener_hears_events_until_it_breaks_off() {
        let world = HostWorld::new();
        let heard = Rc::new(Cell::new(0));
        let count = heard.clone();
        world.listen(Rc::new(move |_| {
            count.set(count.get() + 1);
            if count.get() == 2 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        }));
        for _ in 0..3 {
            world.emit(Event::PoolFailed { reason: String::new() });
        }
        assert_eq!(heard.get(), 2);
    }
}
