//! The engine's disks on Linux: plain files and block devices, through io_uring or through a pool of threads.
//!
//! A request is an `Op` that owns its buffers. [`HostDisk`] validates it, books it in the disk's list of requests in
//! flight, and hands it to the `Driver`; the driver brings it back complete, and the booking is answered.
//!
//! Invariants
//! 1. Buffers belong to the driver from submission until the kernel is done with them, whatever becomes of the future
//!    that waits: dropping a future never frees memory the kernel may still use.
//! 2. Once a disk is gone it stays gone: every request in flight is answered [`DiskError::Gone`] at that moment, and
//!    every later one at once, also where the kernel would still have obeyed (an unlinked file).
//! 3. Nothing is written beyond the size the disk had when it was opened.
//! 4. A disk is open at most once on a machine (`file.rs`), and stays claimed until its last request has come back.

mod alarm;
mod belled;
mod driver;
pub mod file;
mod geometry;
pub mod onlooker;
mod op;
mod threads;
pub mod ublk;
mod uring;
mod watch;

pub use driver::{Backend, BackendChoice};
pub use file::{DiskOptions, OpenDisk};

pub(crate) use alarm::Alarm;
pub(crate) use driver::{Driver, choose};
pub(crate) use geometry::is_rotational;
pub(crate) use watch::Watcher;

use op::{Op, Transfer};
use slab::Slab;
use socket2::Socket;
use std::cell::{Cell, RefCell};
use std::path::Path;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::time::{Duration, Instant};
use weft_engine::error::Result;
use weft_engine::io::{Buf, Disk, DiskError, DiskShape, IoFuture, IoSlice, WriteCache};
use weft_engine::sync::{Promise, Signal, promise};
use weft_engine::units::{BLOCK, ByteCount, DiskOffset};

/// How long the end of the thread waits for requests nobody waits for.
const DRAIN_MAX: Duration = Duration::from_secs(2);

/// One disk of this machine, for the engine. Lives on the engine's thread.
pub struct HostDisk {
    state: Rc<DiskState>,
}

/// All disks of one engine thread, and the driver they share.
pub(crate) struct Disks {
    driver: Rc<dyn Driver>,
    watcher: Watcher,
    open: RefCell<Vec<Weak<DiskState>>>,
    /// Whether any request has ended.
    moved: Rc<Cell<bool>>,
}

/// What the future, the driver and the watcher's news share.
struct DiskState {
    file: Arc<OpenDisk>,
    driver: Rc<dyn Driver>,
    in_flight: RefCell<Slab<Promise<core::result::Result<Op, DiskError>>>>,
    gone: Signal,
    on_gone: RefCell<Vec<Box<dyn FnOnce()>>>,
    moved: Rc<Cell<bool>>,
}

/// The booking of one submitted request; the driver gives it back with the outcome.
pub(crate) struct Done {
    disk: Rc<DiskState>,
    key: usize,
}

impl HostDisk {
    /// Whether the disk was found to be gone.
    pub fn is_gone(&self) -> bool {
        self.state.file.presence().is_gone()
    }

    /// Completes when the disk is gone (at once, when it already is).
    pub fn until_gone(&self) -> impl Future<Output = ()> + 'static {
        let state = self.state.clone();
        async move { state.gone.until(|| state.file.presence().is_gone()).await }
    }

    /// Calls `callback` once on the engine's thread when the disk is found to be gone (at once, when it already is).
    pub fn on_gone(&self, callback: impl FnOnce() + 'static) {
        if self.is_gone() {
            callback();
        } else {
            self.state.on_gone.borrow_mut().push(Box::new(callback));
        }
    }

    /// Looks at once, instead of at the watcher's next round, whether the disk is still there; says whether it is gone.
    pub fn look(&self) -> bool {
        if self.state.file.presence().look() {
            self.state.lose();
        }
        self.is_gone()
    }

    /// How the disk was opened: its path, its kind, direct or buffered.
    pub fn file(&self) -> &OpenDisk {
        &self.state.file
    }
}

impl Disk for HostDisk {
    fn shape(&self) -> DiskShape {
        self.state.file.shape()
    }

    fn read(&self, at: DiskOffset, into: Buf) -> IoFuture<Buf> {
        assert_blocks(at, into.len() as u64);
        let state = self.state.clone();
        Box::pin(async move {
            match state.perform(Op::Read { at: at.0, buf: into }).await? {
                Op::Read { buf, .. } => Ok(buf),
                _ => unreachable!("a driver gives back the request it was given"),
            }
        })
    }

    fn write(&self, at: DiskOffset, from: Vec<IoSlice>) -> IoFuture<()> {
        assert_blocks(at, from.iter().map(|slice| slice.len() as u64).sum());
        let state = self.state.clone();
        Box::pin(async move { state.perform(Op::Write { at: at.0, slices: from }).await.map(drop) })
    }

    fn flush(&self) -> IoFuture<()> {
        let state = self.state.clone();
        Box::pin(async move { state.perform(Op::Flush).await.map(drop) })
    }

    fn discard(&self, at: DiskOffset, len: ByteCount) -> IoFuture<()> {
        assert_blocks(at, len.0);
        let state = self.state.clone();
        Box::pin(async move { state.perform(Op::Discard { at: at.0, len: len.0 }).await.map(drop) })
    }

    fn write_cache(&self) -> WriteCache {
        self.state.file.write_cache()
    }
}

/// A misaligned request is our own mistake (the seam's invariant 2), not the disk's.
fn assert_blocks(at: DiskOffset, len: u64) {
    assert!(at.is_multiple_of(BLOCK) && len.is_multiple_of(BLOCK), "not whole blocks: {len} bytes at {at:?}");
}

impl DiskState {
    async fn perform(self: Rc<Self>, op: Op) -> core::result::Result<Op, DiskError> {
        if self.file.presence().is_gone() {
            self.lose();
            return Err(DiskError::Gone);
        }
        if let Err(errno) = op.validate(&self.file) {
            return Err(DiskError::Os(errno.raw_os_error()));
        }
        if op.is_nothing(&self.file) {
            return Ok(op);
        }
        let (promise, answer) = promise();
        let key = self.in_flight.borrow_mut().insert(promise);
        self.driver.submit(Transfer::new(self.file.clone(), op), Done { disk: self.clone(), key });
        answer.wait().await
    }

    /// The disk is gone: answers all that is in flight and tells whoever asked. Does nothing the second time.
    fn lose(&self) {
        self.file.presence().lose();
        let in_flight = std::mem::take(&mut *self.in_flight.borrow_mut());
        for (_, promise) in in_flight {
            promise.keep(Err(DiskError::Gone));
        }
        let callbacks = self.on_gone.take();
        self.gone.notify();
        for callback in callbacks {
            callback();
        }
    }
}

impl Done {
    /// Answers the request, unless its disk was lost in the meantime and it is answered already.
    pub(crate) fn complete(self, op: Op, outcome: core::result::Result<(), DiskError>) {
        self.disk.moved.set(true);
        let presence = self.disk.file.presence();
        // A pulled disk often reports a plain I/O error first; look before the engine draws conclusions from it.
        let gone = presence.is_gone() || outcome == Err(DiskError::Gone) || (outcome.is_err() && presence.look());
        if gone {
            self.disk.lose();
            return;
        }
        let promise = self.disk.in_flight.borrow_mut().try_remove(self.key);
        if let Some(promise) = promise {
            promise.keep(outcome.map(|()| op));
        }
    }
}

impl Disks {
    pub(crate) fn new(driver: Rc<dyn Driver>, alarm: Arc<Alarm>) -> Disks {
        Disks { driver, watcher: Watcher::new(alarm), open: RefCell::default(), moved: Rc::default() }
    }

    pub(crate) fn open(&self, path: &Path, options: &DiskOptions) -> Result<Rc<HostDisk>> {
        let file = Arc::new(OpenDisk::open(path, options)?);
        self.watcher.add(file.presence());
        let state = Rc::new(DiskState {
            file,
            driver: self.driver.clone(),
            in_flight: RefCell::default(),
            gone: Signal::new(),
            on_gone: RefCell::default(),
            moved: self.moved.clone(),
        });
        let mut open = self.open.borrow_mut();
        open.retain(|disk| disk.strong_count() > 0);
        open.push(Rc::downgrade(&state));
        Ok(Rc::new(HostDisk { state }))
    }

    /// Submits, takes completions and the watcher's news; with `wait`, sleeps until something of that, the alarm, or
    /// the end of the time. `quiet` says whether nothing else is waiting for this thread.
    pub(crate) fn turn(&self, wait: Option<Duration>, quiet: &dyn Fn() -> bool) {
        self.driver.turn(wait, &|| quiet() && !self.watcher.has_news());
        if self.watcher.take_news() {
            let lost: Vec<_> = self.open.borrow().iter().filter_map(Weak::upgrade).collect();
            for disk in lost.into_iter().filter(|disk| disk.file.presence().is_gone()) {
                disk.lose();
            }
        }
    }

    /// Calls `ready` once when `socket` has something to read; see [`Driver::poll`].
    pub(crate) fn poll(&self, socket: Arc<Socket>, ready: Box<dyn FnOnce()>) {
        self.driver.poll(socket, ready);
    }

    /// Whether any request has ended since this was asked last.
    pub(crate) fn take_moved(&self) -> bool {
        self.moved.take()
    }

    /// Whether every request that was made has been answered.
    pub(crate) fn is_idle(&self) -> bool {
        self.driver.in_flight() == 0
    }

    /// At the end of the thread: waits a while for requests whose futures were dropped, so that their memory and their
    /// disks are given back. What does not come back in that time is leaked (invariant 1).
    pub(crate) fn end(&self) {
        let begun = Instant::now();
        while !self.is_idle() && begun.elapsed() < DRAIN_MAX {
            self.turn(Some(DRAIN_MAX / 10), &|| true);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weft_engine::exec::Executor;

    /// A driver that keeps everything until the test completes it.
    #[derive(Default)]
    struct Held(RefCell<Vec<(Transfer, Done)>>);

    impl Driver for Held {
        fn submit(&self, transfer: Transfer, done: Done) {
            self.0.borrow_mut().push((transfer, done));
        }

        fn turn(&self, _: Option<Duration>, _: &dyn Fn() -> bool) {}

        fn in_flight(&self) -> usize {
            self.0.borrow().len()
        }

        fn poll(&self, _: Arc<Socket>, _: Box<dyn FnOnce()>) {}
    }

    struct Bench {
        dir: tempfile::TempDir,
        held: Rc<Held>,
        disk: Rc<HostDisk>,
        executor: Executor,
        answer: Rc<Cell<Option<core::result::Result<(), DiskError>>>>,
    }

    impl Bench {
        /// A disk with one write in flight.
        fn new() -> Bench {
            let dir = tempfile::tempdir().expect("a scratch directory");
            let held = Rc::new(Held::default());
            let disks = Disks::new(held.clone(), Arc::new(Alarm::new().expect("an eventfd")));
            let options = DiskOptions { create: Some(ByteCount::mib(1)), ..DiskOptions::default() };
            let disk = disks.open(&dir.path().join("disk"), &options).expect("a scratch disk");
            let (executor, answer) = (Executor::new(), Rc::new(Cell::new(None)));
            let (write, put) = (disk.write(DiskOffset(0), vec![Buf::zeroed(4096).freeze()]), answer.clone());
            executor.spawn("write", Box::pin(async move { put.set(Some(write.await)) }));
            let bench = Bench { dir, held, disk, executor, answer };
            bench.settle();
            assert_eq!((bench.held.0.borrow().len(), bench.answer.get()), (1, None));
            bench
        }

        fn settle(&self) {
            while self.executor.run_ready(&mut Vec::new()) {}
        }

        fn complete(&self, outcome: core::result::Result<(), DiskError>) {
            let (transfer, done) = self.held.0.borrow_mut().pop().expect("a write is in flight");
            done.complete(transfer.op, outcome);
            self.settle();
        }

        fn unlink(&self) {
            std::fs::remove_file(self.dir.path().join("disk")).expect("the file is there");
        }
    }

    #[test]
    fn a_request_the_kernel_never_answers_is_answered_when_its_disk_is_gone() {
        let bench = Bench::new();
        let told = Rc::new(Cell::new(false));
        let tell = told.clone();
        bench.disk.on_gone(move || tell.set(true));
        bench.unlink();
        assert!(bench.disk.look());
        bench.settle();
        assert_eq!(bench.answer.get(), Some(Err(DiskError::Gone)));
        assert!(told.get());
        // The late completion finds nobody and frees the memory.
        bench.complete(Ok(()));
        assert_eq!(bench.answer.get(), Some(Err(DiskError::Gone)));
    }

    #[test]
    fn an_error_of_a_disk_that_is_away_means_gone_and_of_one_that_is_there_itself() {
        for (unlinked, expected) in [(false, DiskError::Media), (true, DiskError::Gone)] {
            let bench = Bench::new();
            if unlinked {
                bench.unlink();
            }
            bench.complete(Err(DiskError::Media));
            assert_eq!((bench.answer.get(), bench.disk.is_gone()), (Some(Err(expected)), unlinked));
        }
    }

    #[test]
    fn a_disk_that_says_it_is_gone_is_not_asked_again() {
        let bench = Bench::new();
        bench.complete(Err(DiskError::Gone));
        let (flush, put) = (bench.disk.flush(), bench.answer.clone());
        bench.executor.spawn("flush", Box::pin(async move { put.set(Some(flush.await)) }));
        bench.answer.set(None);
        bench.settle();
        assert_eq!(bench.answer.get(), Some(Err(DiskError::Gone)));
        assert!(bench.held.0.borrow().is_empty());
    }
}
