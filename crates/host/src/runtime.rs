//! The engine's thread: it owns the tasks, the timers and the way to the disks, and sleeps when none of them has work.
//!
//! Everything of the engine lives on this thread. The rest of the process holds a [`Handle`], which carries closures
//! in; a closure builds what may not leave the thread (tasks, `Rc`s) where it will live. A waker may be used from any
//! thread, but does not end the thread's sleep by itself: other threads wake a task with
//! `handle.run(move |_| waker.wake())`.
//!
//! Invariants
//! 1. Nothing ready, nothing submitted, nothing complete: the thread sleeps in one system call until a completion, the
//!    next timer or the alarm. It never polls.
//! 2. Work from outside is never lost: it is put in the inbox first, then the alarm rings (see `disk/alarm.rs`), at
//!    once or, where several come together, behind the last.
//! 3. No task is dropped half-way: a stop waits for all tasks, and those that outlive its deadline are leaked.
//! 4. A panic on this thread is a broken assertion of the engine: the process ends (unless [`Options::unwind`]).

mod world;

use crate::disk::{Alarm, Backend, BackendChoice, DiskOptions, Disks, HostDisk, choose};
use crate::export::{GUEST_BYTES, PayloadPool, Visit, gather, push_all};
use slab::Slab;
use std::any::Any;
use std::cell::RefCell;
use std::future::Future;
use std::mem;
use std::ops::ControlFlow;
use std::path::Path;
use std::rc::Rc;
use std::sync::mpsc;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle, ThreadId};
use std::time::{Duration, Instant};
use weft_engine::error::{Error, ErrorKind, Result};
use weft_engine::event::Event;
use weft_engine::exec::Task;
use weft_engine::world::World;
use world::HostWorld;

/// How to run the engine's thread.
#[derive(Clone, Debug)]
pub struct Options {
    /// The way to the disks.
    pub io: BackendChoice,
    /// The most I/O threads: all of them with the `threads` backend, discarding ones only with io_uring.
    pub threads: usize,
    /// Whether a panic on the engine's thread ends that thread only, as tests like it, and not the process.
    pub unwind: bool,
}

/// The engine's thread as its own tasks see it. `S` is what the application keeps there (its open pools).
pub struct Local<S = ()> {
    world: Rc<HostWorld>,
    disks: Disks,
    backend: Backend,
    /// What is read from the sockets of guests, one at a time; empty before the first one.
    scratch: RefCell<Vec<u8>>,
    state: S,
}

/// The engine's thread as all other threads see it.
pub struct Handle<S: 'static = ()> {
    shared: Arc<Shared<S>>,
}

/// How a stop ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Stopped {
    /// The names of the tasks that had not ended at the deadline.
    pub unfinished: Vec<&'static str>,
    /// Whether the engine's thread had panicked.
    pub panicked: bool,
}

/// What runs on the engine's thread on behalf of another.
type Job<S> = Box<dyn FnOnce(&Rc<Local<S>>) + Send>;

struct Shared<S> {
    alarm: Arc<Alarm>,
    inbox: Mutex<Inbox<S>>,
    calls: Mutex<Slab<Arc<dyn Any + Send + Sync>>>,
    backend: Backend,
    thread: ThreadId,
    ending: Mutex<Ending>,
}

struct Inbox<S> {
    jobs: Vec<Job<S>>,
    /// No tasks are taken from outside any more; the thread ends at this moment at the latest.
    stop_by: Option<Instant>,
    /// Timers are not waited for at the end.
    timers_end: bool,
    /// Something here changed since the engine's thread last looked.
    news: bool,
    /// The thread has ended: no jobs either.
    closed: bool,
}

enum Ending {
    Running(JoinHandle<Vec<&'static str>>),
    Ended(Stopped),
}

/// Ready tasks are run through this many times before the disks get a turn.
const PASSES_MAX: usize = 16;
/// The longest sleep, when there is no timer.
const SLEEP_MAX: Duration = Duration::from_secs(3600);
/// What a grace beyond the clock's range is cut to: a century.
const FOREVER: Duration = Duration::from_secs(100 * 365 * 86_400);

impl Default for Options {
    fn default() -> Options {
        Options { io: BackendChoice::Auto, threads: 32, unwind: false }
    }
}

/// Starts an engine thread. `state` is called on it, once, before anything else.
///
/// Errors: `NotPossible` when the backend that was asked for cannot be had, or no thread.
pub fn start<S: 'static>(options: Options, state: impl FnOnce() -> S + Send + 'static) -> Result<Handle<S>> {
    let impossible = |what: &str, why: &dyn std::fmt::Display| {
        Error::new(ErrorKind::NotPossible, format!("cannot start the engine: no {what}: {why}"))
    };
    let alarm = Arc::new(Alarm::new().map_err(|why| impossible("eventfd", &why))?);
    let (report, started) = mpsc::sync_channel(1);
    let (give, take) = mpsc::sync_channel::<Arc<Shared<S>>>(1);
    let thread_alarm = alarm.clone();
    let thread = thread::Builder::new().name("weft-engine".into()).spawn(move || {
        let _guard = AbortOnPanic { armed: !options.unwind };
        let driver = match choose(options.io, options.threads, &thread_alarm) {
            Ok((driver, backend)) => {
                let _ = report.send(Ok(backend.clone()));
                (driver, backend)
            }
            Err(why) => {
                let _ = report.send(Err(why));
                return Vec::new();
            }
        };
        let Ok(shared) = take.recv() else { return Vec::new() };
        let _closer = CloseInbox(shared.clone());
        let (driver, backend) = driver;
        let disks = Disks::new(driver, thread_alarm);
        let local =
            Local { world: Rc::new(HostWorld::new()), disks, backend, scratch: RefCell::default(), state: state() };
        run(&shared, Rc::new(local))
    });
    let thread = thread.map_err(|why| impossible("thread", &why))?;
    let backend = started.recv().map_err(|why| impossible("answer from its thread", &why))??;
    let shared = Arc::new(Shared {
        alarm,
        inbox: Mutex::new(Inbox { jobs: Vec::new(), stop_by: None, timers_end: false, news: false, closed: false }),
        calls: Mutex::default(),
        backend,
        thread: thread.thread().id(),
        ending: Mutex::new(Ending::Running(thread)),
    });
    let _ = give.send(shared.clone());
    Ok(Handle { shared })
}

/// The loop. Returns the names of the tasks that were left.
fn run<S: 'static>(shared: &Shared<S>, local: Rc<Local<S>>) -> Vec<&'static str> {
    let mut scratch = Vec::new();
    let world = local.world.clone();
    loop {
        let (jobs, stop_by) = shared.take_jobs();
        if !jobs.is_empty() || local.disks.take_moved() {
            world.moved_on();
        }
        let between = || {
            push_all();
            local.disks.turn(None, &|| shared.is_quiet());
        };
        let mut passes = 0;
        // What is answered goes out before the thread rests, and before it does anything for long.
        gather(|| {
            for job in jobs {
                job(&local);
            }
            world.fire_timers();
            while passes < PASSES_MAX && world.run_ready(&mut scratch, between) {
                passes += 1;
            }
        });
        world.tell_spinning();
        let now = Instant::now();
        // Neither a task nor a disk has anything to do.
        let rests = || passes < PASSES_MAX && local.disks.is_idle() && shared.ends_with_timers();
        if let Some(stop_by) = stop_by
            && (now >= stop_by || ((world.alive() == 0 || rests()) && shared.is_quiet()))
        {
            break;
        }
        let wait = (passes < PASSES_MAX).then(|| {
            let until_stop = stop_by.map_or(SLEEP_MAX, |stop_by| stop_by.saturating_duration_since(now));
            world.until_timer().unwrap_or(SLEEP_MAX).min(until_stop).min(SLEEP_MAX)
        });
        local.disks.turn(wait, &|| shared.is_quiet());
    }
    let unfinished = world.names();
    if unfinished.is_empty() {
        local.disks.end();
    } else {
        // Invariant 3; the process is about to end.
        mem::forget(local);
    }
    unfinished
}

impl<S: 'static> Local<S> {
    /// The seam, for the engine.
    pub fn world(&self) -> Rc<dyn World> {
        self.world.clone()
    }

    /// What the application keeps on this thread.
    pub fn state(&self) -> &S {
        &self.state
    }

    /// Opens and claims a disk (briefly blocking this thread); see [`crate::disk::OpenDisk::open`] for the errors.
    pub fn open_disk(&self, path: &Path, options: &DiskOptions) -> Result<Rc<HostDisk>> {
        self.disks.open(path, options)
    }

    /// Runs `task` to its end. `name` is for people.
    pub fn spawn(&self, name: &'static str, task: impl Future<Output = ()> + 'static) {
        self.world.spawn(name, Box::pin(task));
    }

    /// Calls `listener` for every event, until it answers `Break`.
    pub fn listen(&self, listener: impl Fn(&Event) -> ControlFlow<()> + 'static) {
        self.world.listen(Rc::new(listener));
    }

    /// Takes the requests of a guest from its socket whenever there are some, until it wants its input back; their
    /// bytes go to `buffers`.
    pub fn host(self: &Rc<Self>, visit: Visit, buffers: Arc<PayloadPool>) {
        let (socket, local) = (visit.guest().socket(), Rc::downgrade(self));
        let ready = move || {
            let Some(local) = local.upgrade() else { return };
            let mut scratch = local.scratch.borrow_mut();
            scratch.resize(GUEST_BYTES, 0);
            let stays = visit.guest().serve(&mut scratch, &buffers);
            drop(scratch);
            if stays {
                local.host(visit, buffers);
            }
        };
        self.disks.poll(socket, Box::new(ready));
    }

    /// The way to the disks that is used.
    pub fn backend(&self) -> &Backend {
        &self.backend
    }

    /// The names of the living tasks, for people.
    pub fn tasks(&self) -> Vec<&'static str> {
        self.world.names()
    }
}

impl<S: 'static> Handle<S> {
    /// Runs `job` on the engine's thread, soon, between two tasks. It must be short.
    ///
    /// Errors: `Closed` when the thread has ended. Jobs are taken during a stop too: tasks may depend on them.
    pub fn run(&self, job: impl FnOnce(&Rc<Local<S>>) + Send + 'static) -> Result<()> {
        let posted = self.post(Box::new(job), true);
        self.kick();
        posted
    }

    /// Runs the task that `build` makes on the engine's thread. `name` is for people.
    ///
    /// Errors: `Closed` when a stop has begun.
    pub fn spawn(&self, name: &'static str, build: impl FnOnce(&Rc<Local<S>>) -> Task + Send + 'static) -> Result<()> {
        let queued = self.queue(name, build);
        self.kick();
        queued
    }

    /// Does what [`Handle::spawn`] does, but perhaps no sooner than [`Handle::kick`] is called: a thread that sleeps is
    /// not woken.
    pub fn queue(&self, name: &'static str, build: impl FnOnce(&Rc<Local<S>>) -> Task + Send + 'static) -> Result<()> {
        self.post(Box::new(move |local| local.world.spawn(name, build(local))), false)
    }

    /// Wakes the engine's thread if it sleeps: something was queued.
    pub fn kick(&self) {
        self.shared.alarm.ring();
    }

    /// Runs the task that `build` makes, and waits for its answer. Not for the engine's own thread.
    ///
    /// Errors: `Closed` when a stop has begun, or cut the task off.
    pub fn call<T, F>(&self, name: &'static str, build: impl FnOnce(Rc<Local<S>>) -> F + Send + 'static) -> Result<T>
    where
        T: Send + 'static,
        F: Future<Output = T> + 'static,
    {
        self.assert_elsewhere();
        let (give, take) = mpsc::sync_channel(1);
        // The only lasting owner of the giving end is `calls`, which the end of the thread empties: a task that is
        // leaked then must not leave its caller waiting.
        let give = Arc::new(give);
        let weak = Arc::downgrade(&give);
        let key = lock(&self.shared.calls).insert(give);
        let spawned = self.spawn(name, move |local| {
            let answer = build(local.clone());
            Box::pin(async move {
                let answer = answer.await;
                if let Some(give) = weak.upgrade() {
                    // Whoever asked may have given up; that is not the task's concern.
                    let _ = give.send(answer);
                }
            })
        });
        let answer = spawned.and_then(|()| take.recv().map_err(|_| closed()));
        lock(&self.shared.calls).try_remove(key);
        answer
    }

    /// Takes no more tasks from outside, waits up to `grace` for those there are, and ends the thread. Every call
    /// gives the same answer. Not for the engine's own thread: see [`Handle::begin_stop`].
    pub fn stop(&self, grace: Duration) -> Stopped {
        self.assert_elsewhere();
        self.begin_stop(grace);
        let mut ending = lock(&self.shared.ending);
        let ended = Ending::Ended(Stopped { unfinished: Vec::new(), panicked: true });
        let stopped = match mem::replace(&mut *ending, ended) {
            Ending::Running(thread) => match thread.join() {
                Ok(unfinished) => Stopped { unfinished, panicked: false },
                Err(_) => Stopped { unfinished: Vec::new(), panicked: true },
            },
            Ending::Ended(stopped) => stopped,
        };
        *ending = Ending::Ended(stopped.clone());
        stopped
    }

    /// Ends the thread as [`Handle::stop`] does, but does not wait for timers: as soon as none of the tasks that are
    /// left is ready, and no disk has anything to do.
    pub fn end(&self, grace: Duration) -> Stopped {
        lock(&self.shared.inbox).timers_end = true;
        self.stop(grace)
    }

    /// Begins what [`Handle::stop`] waits for. Of several deadlines the earliest holds.
    pub fn begin_stop(&self, grace: Duration) {
        let now = Instant::now();
        let by = now.checked_add(grace).unwrap_or(now + FOREVER);
        let mut inbox = lock(&self.shared.inbox);
        inbox.stop_by = Some(inbox.stop_by.map_or(by, |earlier| earlier.min(by)));
        inbox.news = true;
        drop(inbox);
        self.shared.alarm.ring();
    }

    /// The way to the disks that is used.
    pub fn backend(&self) -> &Backend {
        &self.shared.backend
    }

    fn post(&self, job: Job<S>, while_stopping: bool) -> Result<()> {
        let mut inbox = lock(&self.shared.inbox);
        if inbox.closed || (inbox.stop_by.is_some() && !while_stopping) {
            return Err(closed());
        }
        inbox.jobs.push(job);
        inbox.news = true;
        Ok(())
    }

    fn assert_elsewhere(&self) {
        assert_ne!(self.shared.thread, thread::current().id(), "the engine's thread would wait for itself");
    }
}

impl<S: 'static> Clone for Handle<S> {
    fn clone(&self) -> Handle<S> {
        Handle { shared: self.shared.clone() }
    }
}

impl<S> Shared<S> {
    fn take_jobs(&self) -> (Vec<Job<S>>, Option<Instant>) {
        let mut inbox = lock(&self.inbox);
        inbox.news = false;
        (mem::take(&mut inbox.jobs), inbox.stop_by)
    }

    fn ends_with_timers(&self) -> bool {
        lock(&self.inbox).timers_end
    }

    fn is_quiet(&self) -> bool {
        !lock(&self.inbox).news
    }
}

fn closed() -> Error {
    Error::new(ErrorKind::Closed, "the engine has stopped")
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Closes the inbox when the thread ends, however it ends, so that nobody waits for an answer that cannot come.
struct CloseInbox<S>(Arc<Shared<S>>);

impl<S> Drop for CloseInbox<S> {
    fn drop(&mut self) {
        let mut inbox = lock(&self.0.inbox);
        inbox.closed = true;
        let left = mem::take(&mut inbox.jobs);
        drop(inbox);
        drop(left);
        drop(mem::take(&mut *lock(&self.0.calls)));
    }
}

struct AbortOnPanic {
    armed: bool,
}

impl Drop for AbortOnPanic {
    fn drop(&mut self) {
        if self.armed && thread::panicking() {
            std::process::abort();
        }
    }
}
