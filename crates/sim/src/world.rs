//! The deterministic world: one thread, a virtual clock, tasks run in an order drawn from the seed.
//!
//! Invariants
//! 1. Time moves only when no task is ready; it then jumps to the next timer. Computing costs no time.
//! 2. All timers of one moment fire before any task runs, in the order they were set; which of the ready tasks runs
//!    next is the scheduler's choice, drawn from the seed (or oldest first).
//! 3. After a crash point nothing happens any more: no disk takes or ends an operation and no task is run, until
//!    [`SimWorld::halt`] has dropped every task and every timer.
//! 4. Every scheduling decision and every disk operation is folded into the trace hash: equal hashes, equal runs.

use crate::rng::{Rng, fold};
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::future::Future;
use std::pin::Pin;
use std::rc::{Rc, Weak};
use std::sync::LazyLock;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};
use weft_engine::event::Event;
use weft_engine::exec::{Executor, Task, TaskNo};
use weft_engine::units::Nanos;
use weft_engine::world::World;

/// The most task runs at one moment, all tasks together, before the world calls it a livelock. (One that runs too often
/// alone is found earlier.)
const RUNS_AT_ONE_MOMENT_MAX: u64 = 4_000_000;
/// How much virtual time [`SimWorld::block_on`] gives.
const BLOCK_ON_LIMIT: Nanos = Nanos::secs(24 * 3600);

/// The order in which ready tasks run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Scheduling {
    /// One of the ready tasks, by seed: finds what depends on order.
    Random,
    /// Round by round, oldest slot first: for timing runs, as `weft-host` does it.
    Fifo,
}

/// Why the world stopped running.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stop {
    /// The condition holds.
    Done,
    /// No task is ready and no timer is set: idle, or a deadlock if something was expected.
    Idle,
    /// The span of virtual time is over.
    Limit,
    /// The crash point set by [`SimWorld::crash_at`] was reached.
    Crashed,
    /// Tasks wake each other for ever while time stands still.
    Livelock,
}

/// A world in virtual time. A handle: clones are the same world. Tasks usually hold their world, so one that is given
/// up while tasks live is never freed: call [`SimWorld::halt`] at the end.
#[derive(Clone)]
pub struct SimWorld(Rc<Inner>);

struct Inner {
    seed: Rng,
    scheduling: Scheduling,
    order: RefCell<Rng>,
    executor: RefCell<Rc<Executor>>,
    ready: RefCell<Vec<TaskNo>>,
    round: RefCell<VecDeque<TaskNo>>,
    runs_at_this_moment: Cell<u64>,
    spinning: Cell<Option<&'static str>>,
    /// Time of the processor that tasks took, where that is measured.
    polled: Cell<Option<Duration>>,
    now: Cell<Nanos>,
    timers: RefCell<BTreeMap<(Nanos, u64), Timer>>,
    timers_set: Cell<u64>,
    events: RefCell<Vec<(Nanos, Event)>>,
    devices: RefCell<Vec<Weak<dyn Device>>>,
    protected: Cell<f64>,
    trace: Cell<u64>,
    operations: Cell<u64>,
    crash_at: Cell<Option<u64>>,
    crashed: Cell<bool>,
}

enum Timer {
    Task(Waker),
    Device(Weak<dyn Device>),
}

/// What a disk is to the world.
pub(crate) trait Device {
    /// The moment the device asked for has come.
    fn due(&self);
    /// Nobody waits for the device's answers any more; what was under way hangs in the air.
    fn abandon(&self);
}

/// The moment at which a device is called next.
#[derive(Default)]
pub(crate) struct Alarm(Option<Nanos>);

impl Alarm {
    /// Has `device` called at `next`, unless that is earlier already.
    pub(crate) fn set(&mut self, next: Nanos, world: &SimWorld, device: &Weak<impl Device + 'static>) {
        if self.0.is_none_or(|set| next < set) {
            self.0 = Some(next);
            world.wake_device_at(next, device.clone());
        }
    }

    /// Says whether it rings, and is not set any more if so. One that was set before an earlier one replaced it has
    /// nothing to say.
    pub(crate) fn rings(&mut self, now: Nanos) -> bool {
        let rings = self.0.is_some_and(|set| set <= now);
        if rings {
            self.0 = None;
        }
        rings
    }
}

impl SimWorld {
    /// A world at time 0 in which everything follows from `seed`.
    pub fn new(seed: u64, scheduling: Scheduling) -> SimWorld {
        let seed = Rng::new(seed);
        SimWorld(Rc::new(Inner {
            scheduling,
            order: RefCell::new(seed.fork("schedule")),
            seed,
            executor: RefCell::default(),
            ready: RefCell::default(),
            round: RefCell::default(),
            runs_at_this_moment: Cell::new(0),
            spinning: Cell::new(None),
            polled: Cell::new(None),
            now: Cell::new(Nanos(0)),
            timers: RefCell::default(),
            timers_set: Cell::new(0),
            events: RefCell::default(),
            devices: RefCell::default(),
            protected: Cell::new(0.0),
            trace: Cell::new(0),
            operations: Cell::new(0),
            crash_at: Cell::new(None),
            crashed: Cell::new(false),
        }))
    }

    /// The stream named `label` of this world's seed; see [`Rng::fork`].
    pub fn rng(&self, label: &str) -> Rng {
        self.0.seed.fork(label)
    }

    /// Takes one step: runs one ready task, or lets time jump to the next timer. `None`: the step was taken.
    pub fn step(&self) -> Option<Stop> {
        self.step_until(Nanos(u64::MAX))
    }

    /// Steps until `condition` holds; it is looked at after every step. Gives up `limit` of virtual time from now.
    pub fn run_until(&self, limit: Nanos, mut condition: impl FnMut() -> bool) -> Stop {
        let deadline = Nanos(self.0.now.get().0.saturating_add(limit.0));
        loop {
            if condition() {
                return Stop::Done;
            }
            if let Some(stop) = self.step_until(deadline) {
                return stop;
            }
        }
    }

    /// Steps until nothing is left to do ([`Stop::Idle`]) or `limit` of virtual time has passed.
    pub fn run_until_idle(&self, limit: Nanos) -> Stop {
        self.run_until(limit, || false)
    }

    /// Runs the world until `future` ends, and gives its answer. `None`: it cannot end (a deadlock), or did not within
    /// 24 hours of virtual time, or the crash point came first.
    pub fn block_on<T: 'static>(&self, future: impl Future<Output = T> + 'static) -> Option<T> {
        self.block_on_within(BLOCK_ON_LIMIT, future).ok()
    }

    /// Runs like [`SimWorld::block_on`], within `limit` of virtual time; on failure, says why.
    pub fn block_on_within<T: 'static>(
        &self,
        limit: Nanos,
        future: impl Future<Output = T> + 'static,
    ) -> Result<T, Stop> {
        let answer = Rc::new(Cell::new(None));
        let place = answer.clone();
        let done = Rc::new(Cell::new(false));
        let flag = done.clone();
        self.spawn(
            "block_on",
            Box::pin(async move {
                place.set(Some(future.await));
                flag.set(true);
            }),
        );
        match self.run_until(limit, || done.get()) {
            Stop::Done => Ok(answer.take().expect("the answer is put before the flag is set")),
            stop => Err(stop),
        }
    }

    /// Pulls the plug: every task is dropped where it stands, every timer forgotten, and what the disks were doing is
    /// left in the air ([`crate::disk::SimDisk::power_cut`] decides about it). The clock goes on, and the world can be
    /// used again. Must not be called from inside a task.
    pub fn halt(&self) {
        let tasks = self.0.executor.take();
        self.0.crashed.set(true); // what the dropped tasks' destructors may still ask of the disks has no effect
        drop(tasks);
        self.0.executor.take();
        self.0.round.borrow_mut().clear();
        self.0.timers.borrow_mut().clear();
        for device in self.0.devices.borrow().iter().filter_map(Weak::upgrade) {
            device.abandon();
        }
        self.0.crash_at.set(None);
        self.0.crashed.set(false);
        self.0.runs_at_this_moment.set(0);
        self.trace(0x4a17, 0, 0);
    }

    /// Makes the disk operation number `n` (see [`SimWorld::operations`]; the first is 1) the last thing that happens.
    pub fn crash_at(&self, n: u64) {
        assert!(n > self.0.operations.get(), "operation {n} is over");
        self.0.crash_at.set(Some(n));
    }

    /// How many disk operations happened so far, over all disks: submissions and completions of writes and discards,
    /// starts and ends of flushes. These are the points between which a power cut makes a difference.
    pub fn operations(&self) -> u64 {
        self.0.operations.get()
    }

    /// Whether the crash point was reached and [`SimWorld::halt`] not yet called.
    pub fn crashed(&self) -> bool {
        self.0.crashed.get()
    }

    /// What the engine told so far, oldest first.
    pub fn events(&self) -> Vec<(Nanos, Event)> {
        self.0.events.borrow().clone()
    }

    /// Takes the events told so far out of the log.
    pub fn take_events(&self) -> Vec<(Nanos, Event)> {
        self.0.events.take()
    }

    /// A hash of everything that happened: two runs of one seed must have equal ones.
    pub fn trace_hash(&self) -> u64 {
        self.0.trace.get()
    }

    /// The names of the living tasks: what a deadlock is made of.
    pub fn tasks(&self) -> Vec<&'static str> {
        self.0.executor.borrow().names()
    }

    /// The task that was found to spin.
    pub fn spinning(&self) -> Option<&'static str> {
        self.0.spinning.get()
    }

    /// The real time that tasks have taken since this was first asked: that of the engine, without that of the
    /// simulated disks. Nothing that a seed decides may depend on it.
    pub fn polled(&self) -> Duration {
        let polled = self.0.polled.get().unwrap_or_default();
        self.0.polled.set(Some(polled));
        polled
    }

    fn step_until(&self, deadline: Nanos) -> Option<Stop> {
        if self.0.crashed.get() {
            return Some(Stop::Crashed);
        }
        if let Some(task) = self.choose() {
            let runs = self.0.runs_at_this_moment.get() + 1;
            self.0.runs_at_this_moment.set(runs);
            if runs > RUNS_AT_ONE_MOMENT_MAX {
                return Some(Stop::Livelock);
            }
            let executor = self.0.executor.borrow().clone();
            let began = self.0.polled.get().map(|_| Instant::now());
            executor.run(task);
            if let (Some(polled), Some(began)) = (self.0.polled.get(), began) {
                self.0.polled.set(Some(polled + began.elapsed()));
            }
            if let Some((task, polls)) = executor.take_spinning() {
                self.0.spinning.set(Some(task));
                self.emit(Event::TaskSpins { task, polls });
                return Some(Stop::Livelock);
            }
            return self.0.crashed.get().then_some(Stop::Crashed);
        }
        let next = self.0.timers.borrow().keys().next().map(|(at, _)| *at);
        match next {
            None => Some(Stop::Idle),
            Some(at) if at > deadline => {
                self.0.now.set(deadline);
                Some(Stop::Limit)
            }
            Some(at) => {
                self.0.now.set(at.max(self.0.now.get()));
                self.0.runs_at_this_moment.set(0);
                self.0.executor.borrow().moved_on();
                self.fire();
                self.0.crashed.get().then_some(Stop::Crashed)
            }
        }
    }

    /// The task to run next, if any is ready.
    fn choose(&self) -> Option<TaskNo> {
        let executor = self.0.executor.borrow().clone();
        let mut ready = self.0.ready.borrow_mut();
        let chosen = match self.0.scheduling {
            Scheduling::Random => {
                executor.ready(&mut ready);
                if ready.is_empty() {
                    return None;
                }
                let choice = self.0.order.borrow_mut().below(ready.len() as u64);
                self.trace(0x4b1c, ready.len() as u64, choice);
                ready[choice as usize]
            }
            Scheduling::Fifo => {
                let mut round = self.0.round.borrow_mut();
                if round.is_empty() {
                    executor.ready(&mut ready);
                    self.trace(0x4b1c, ready.len() as u64, 0);
                    round.extend(ready.iter());
                }
                round.pop_front()?
            }
        };
        Some(chosen)
    }

    /// Fires every timer that is due.
    fn fire(&self) {
        let now = self.0.now.get();
        while !self.0.crashed.get() {
            let mut timers = self.0.timers.borrow_mut();
            let Some(entry) = timers.first_entry().filter(|entry| entry.key().0 <= now) else { return };
            let timer = entry.remove();
            drop(timers);
            match timer {
                Timer::Task(waker) => waker.wake(),
                Timer::Device(device) => {
                    if let Some(device) = device.upgrade() {
                        device.due();
                    }
                }
            }
        }
    }

    fn set_timer(&self, at: Nanos, timer: Timer) -> (Nanos, u64) {
        let no = self.0.timers_set.get();
        self.0.timers_set.set(no + 1);
        self.0.timers.borrow_mut().insert((at, no), timer);
        (at, no)
    }

    /// Gives disks that are made from now on caches that are not volatile, with this chance.
    pub fn protect(&self, chance: f64) {
        self.0.protected.set(chance);
    }

    /// Whether some disks have caches that are not volatile.
    pub fn protects(&self) -> bool {
        self.0.protected.get() > 0.0
    }

    /// Whether disk `no` is one of them.
    pub(crate) fn draws_protected(&self, no: u64) -> bool {
        self.protects() && self.rng(&format!("cache {no}")).chance(self.0.protected.get())
    }

    pub(crate) fn attach(&self, device: Weak<dyn Device>) -> usize {
        let mut devices = self.0.devices.borrow_mut();
        devices.push(device);
        devices.len() - 1
    }

    fn wake_device_at(&self, at: Nanos, device: Weak<dyn Device>) {
        self.set_timer(at, Timer::Device(device));
    }

    /// Counts a disk operation that has just taken effect; reaching the crash point stops the world.
    pub(crate) fn count_operation(&self) {
        let n = self.0.operations.get() + 1;
        self.0.operations.set(n);
        if self.0.crash_at.get() == Some(n) {
            self.0.crashed.set(true);
        }
    }

    pub(crate) fn trace(&self, what: u64, a: u64, b: u64) {
        let hash = fold(self.0.trace.get(), what ^ self.0.now.get().0.rotate_left(20));
        self.0.trace.set(fold(fold(hash, a), b));
    }
}

impl World for SimWorld {
    fn now(&self) -> Nanos {
        self.0.now.get()
    }

    fn sleep(&self, span: Nanos) -> Pin<Box<dyn Future<Output = ()>>> {
        let until = Nanos(self.0.now.get().0.saturating_add(span.0));
        Box::pin(Sleep { world: Rc::downgrade(&self.0), until, timer: None })
    }

    fn spawn(&self, name: &'static str, task: Task) {
        let executor = self.0.executor.borrow().clone();
        executor.spawn(name, task);
    }

    fn emit(&self, event: Event) {
        if *TELLS {
            eprintln!("{:?} {event:?}", self.0.now.get());
        }
        self.0.events.borrow_mut().push((self.0.now.get(), event));
    }
}

/// Whether events are printed as they happen: for whoever follows a failure (`WEFT_SIM_EVENTS=1`).
static TELLS: LazyLock<bool> = LazyLock::new(|| std::env::var_os("WEFT_SIM_EVENTS").is_some());

/// A sleep keeps only a weak hold of its world: a world owns its tasks, so a strong one would keep both for ever.
struct Sleep {
    world: Weak<Inner>,
    until: Nanos,
    timer: Option<(Nanos, u64)>,
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let Some(inner) = self.world.upgrade() else { return Poll::Pending };
        let world = SimWorld(inner);
        if world.now() >= self.until {
            return Poll::Ready(());
        }
        let timer = Timer::Task(context.waker().clone());
        match self.timer {
            Some(key) => {
                world.0.timers.borrow_mut().insert(key, timer);
            }
            None => self.timer = Some(world.set_timer(self.until, timer)),
        }
        Poll::Pending
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weft_engine::sync::{Signal, join_all};

    #[test]
    fn time_jumps_to_the_next_timer_and_sleeps_end_in_order() {
        let world = SimWorld::new(1, Scheduling::Random);
        let log = Rc::new(RefCell::new(Vec::new()));
        for span in [30, 10, 20] {
            let (world_in, log) = (world.clone(), log.clone());
            let task = async move {
                world_in.sleep(Nanos::secs(span)).await;
                log.borrow_mut().push((span, world_in.now()));
            };
            world.spawn("sleeper", Box::pin(task));
        }
        assert_eq!(world.run_until_idle(Nanos::secs(60)), Stop::Idle);
        assert_eq!(*log.borrow(), [(10, Nanos::secs(10)), (20, Nanos::secs(20)), (30, Nanos::secs(30))]);
    }

    #[test]
    fn a_sleep_polled_by_its_neighbours_keeps_one_timer() {
        let world = SimWorld::new(1, Scheduling::Fifo);
        let inside = world.clone();
        let ended = world.block_on(async move {
            let sleeps: Vec<Pin<Box<dyn Future<Output = ()>>>> =
                (1..=5).map(|s| inside.sleep(Nanos::secs(s))).collect();
            join_all(sleeps).await;
            inside.now()
        });
        assert_eq!(ended, Some(Nanos::secs(5)));
        assert_eq!(world.0.timers_set.get(), 5);
    }

    #[test]
    fn a_deadlock_a_limit_and_a_livelock_are_told_apart() {
        let world = SimWorld::new(1, Scheduling::Random);
        let never = Signal::new();
        assert_eq!(world.block_on_within(Nanos::secs(1), async move { never.changed().await }), Err(Stop::Idle));
        assert_eq!(world.tasks(), ["block_on"]);
        let inside = world.clone();
        let slow = async move { inside.sleep(Nanos::secs(5)).await };
        assert_eq!(world.block_on_within(Nanos::secs(1), slow), Err(Stop::Limit));
        assert_eq!(world.now(), Nanos::secs(1));
        let spinning = std::future::poll_fn(|context| {
            context.waker().wake_by_ref();
            Poll::<()>::Pending
        });
        assert_eq!(world.block_on_within(Nanos::secs(1), spinning), Err(Stop::Livelock));
    }

    #[test]
    fn halting_drops_tasks_and_timers_and_the_world_goes_on() {
        let world = SimWorld::new(1, Scheduling::Random);
        let held = Rc::new(());
        let (inside, hold) = (world.clone(), held.clone());
        world.spawn(
            "holder",
            Box::pin(async move {
                inside.sleep(Nanos::secs(10)).await;
                drop(hold);
            }),
        );
        assert_eq!(world.run_until_idle(Nanos::secs(1)), Stop::Limit);
        world.halt();
        assert_eq!(Rc::strong_count(&held), 1);
        assert_eq!(world.run_until_idle(Nanos::secs(100)), Stop::Idle);
        assert_eq!(world.now(), Nanos::secs(1));
        assert_eq!(world.block_on(async { 7 }), Some(7));
    }

    #[test]
    fn the_seed_chooses_the_order_of_ready_tasks() {
        let order = |seed| {
            let world = SimWorld::new(seed, Scheduling::Random);
            let log = Rc::new(RefCell::new(Vec::new()));
            for no in 0..8 {
                let log = log.clone();
                world.spawn("writer", Box::pin(async move { log.borrow_mut().push(no) }));
            }
            world.run_until_idle(Nanos::secs(1));
            (log.take(), world.trace_hash())
        };
        assert_eq!(order(5), order(5));
        assert_ne!(order(5).0, order(6).0);
        assert_ne!(order(5).1, order(6).1);
    }
}
