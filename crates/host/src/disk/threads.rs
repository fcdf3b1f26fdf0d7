//! The driver for kernels that grant no io_uring: threads that call preadv and pwritev.
//!
//! Invariants
//! 1. A request and its memory travel: to a worker and back. Nothing is shared but the two queues.
//! 2. Bookings ([`Done`]) never leave the engine's thread.
//! 3. A worker holds no disk after it has given a request back.
//! 4. One disk has a quarter of the workers at most: when it hangs, the others go on.

use super::Done;
use super::alarm::Alarm;
use super::driver::Driver;
use super::op::{Op, Step, Transfer};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{FallocateFlags, fallocate, fdatasync};
use rustix::io::{Errno, preadv, pwritev};
use slab::Slab;
use socket2::Socket;
use std::cell::RefCell;
use std::collections::VecDeque;
use std::io::{IoSlice, IoSliceMut};
use std::os::fd::AsFd;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use weft_engine::io::DiskError;

/// A pool of threads; they start as they are needed.
pub(super) struct Pool {
    shared: Arc<Shared>,
    booked: RefCell<Slab<Done>>,
    threads_max: usize,
}

struct Shared {
    alarm: Arc<Alarm>,
    /// The most workers that are busy with one disk.
    share: usize,
    asked: Mutex<Asked>,
    work: Condvar,
    finished: Mutex<Vec<Finished>>,
}

#[derive(Default)]
struct Asked {
    queue: Queue,
    idle: usize,
    threads: usize,
    closed: bool,
}

/// What waits for a worker, disk by disk.
#[derive(Default)]
struct Queue {
    /// The disk whose turn it is first.
    disks: VecDeque<Waiting>,
    /// Requests in all.
    len: usize,
}

/// The requests of one disk, known by its address: it stays there while any of them is under way.
struct Waiting {
    disk: usize,
    requests: VecDeque<(usize, Transfer)>,
    /// Workers that are busy with it.
    workers: usize,
}

impl Queue {
    fn push(&mut self, key: usize, transfer: Transfer) {
        let disk = address(&transfer);
        self.len += 1;
        match self.disks.iter_mut().find(|waiting| waiting.disk == disk) {
            Some(waiting) => waiting.requests.push_back((key, transfer)),
            None => self.disks.push_back(Waiting { disk, requests: [(key, transfer)].into(), workers: 0 }),
        }
    }

    /// A request of a disk that fewer than `most` workers are busy with; disks take turns.
    fn pop(&mut self, most: usize) -> Option<(usize, Transfer)> {
        for _ in 0..self.disks.len() {
            self.disks.rotate_left(1);
            let waiting = self.disks.back_mut()?;
            if waiting.workers < most
                && let Some(request) = waiting.requests.pop_front()
            {
                waiting.workers += 1;
                self.len -= 1;
                return Some(request);
            }
        }
        None
    }

    /// A worker is done with a request of `disk`.
    fn end(&mut self, disk: usize) {
        self.disks.iter_mut().filter(|waiting| waiting.disk == disk).for_each(|waiting| waiting.workers -= 1);
        self.disks.retain(|waiting| waiting.workers > 0 || !waiting.requests.is_empty());
    }
}

struct Finished {
    key: usize,
    op: Op,
    outcome: Result<(), DiskError>,
}

impl Pool {
    pub(super) fn new(threads_max: usize, alarm: Arc<Alarm>) -> Pool {
        let (asked, work, finished) = (Mutex::default(), Condvar::new(), Mutex::default());
        let threads_max = threads_max.max(1);
        let shared = Arc::new(Shared { alarm, share: (threads_max / 4).max(1), asked, work, finished });
        Pool { shared, booked: RefCell::default(), threads_max }
    }

    /// Whether no answer is waiting to be taken.
    pub(super) fn is_quiet(&self) -> bool {
        lock(&self.shared.finished).is_empty()
    }

    /// Hands out the answers that are there.
    pub(super) fn answer(&self) {
        let finished = std::mem::take(&mut *lock(&self.shared.finished));
        for Finished { key, op, outcome } in finished {
            let done = self.booked.borrow_mut().remove(key);
            done.complete(op, outcome);
        }
    }

    fn start_worker(&self, asked: &mut Asked) {
        let shared = self.shared.clone();
        let thread = std::thread::Builder::new().name("weft-io".into()).spawn(move || shared.work());
        match thread {
            Ok(_) => asked.threads += 1,
            // Fewer workers are slower, none is the end.
            Err(why) => assert!(asked.threads > 0, "cannot start a single I/O thread: {why}"),
        }
    }
}

impl Driver for Pool {
    fn submit(&self, transfer: Transfer, done: Done) {
        let key = self.booked.borrow_mut().insert(done);
        let mut asked = lock(&self.shared.asked);
        asked.queue.push(key, transfer);
        if asked.queue.len > asked.idle && asked.threads < self.threads_max {
            self.start_worker(&mut asked);
        }
        drop(asked);
        self.shared.work.notify_one();
    }

    fn turn(&self, wait: Option<Duration>, quiet: &dyn Fn() -> bool) {
        if let Some(wait) = wait
            && self.shared.alarm.doze(|| quiet() && self.is_quiet())
        {
            let timeout = Timespec { tv_sec: wait.as_secs() as i64, tv_nsec: i64::from(wait.subsec_nanos()) };
            let bell = self.shared.alarm.bell();
            // Any outcome, an interruption too, is a reason to look around.
            if poll(&mut [PollFd::new(&bell, PollFlags::IN)], Some(&timeout)) == Ok(1) {
                let read = rustix::io::read(bell, &mut [0; 8]);
                debug_assert!(read.is_ok());
            }
            self.shared.alarm.awake();
        }
        self.answer();
    }

    fn in_flight(&self) -> usize {
        self.booked.borrow().len()
    }

    fn poll(&self, _: Arc<Socket>, _: Box<dyn FnOnce()>) {}
}

impl Drop for Pool {
    fn drop(&mut self) {
        // Not joined: a worker may hang in a dead disk. It owns what it uses.
        lock(&self.shared.asked).closed = true;
        self.shared.work.notify_all();
    }
}

impl Shared {
    fn work(&self) {
        let mut ended = None;
        while let Some((key, transfer)) = self.next(ended) {
            ended = Some(address(&transfer));
            let (op, outcome) = finish(transfer);
            lock(&self.finished).push(Finished { key, op, outcome });
            self.alarm.ring();
        }
    }

    /// The next request, once the one before, of disk `ended`, is done.
    fn next(&self, ended: Option<usize>) -> Option<(usize, Transfer)> {
        let mut asked = lock(&self.asked);
        ended.into_iter().for_each(|disk| asked.queue.end(disk));
        loop {
            if let Some(next) = asked.queue.pop(self.share) {
                return Some(next);
            }
            if asked.closed {
                return None;
            }
            asked.idle += 1;
            asked = self.work.wait(asked).unwrap_or_else(PoisonError::into_inner);
            asked.idle -= 1;
        }
    }
}

fn address(transfer: &Transfer) -> usize {
    Arc::as_ptr(&transfer.file).addr()
}

/// Does all of a request, on this thread. Its disk is let go of.
pub(super) fn finish(mut transfer: Transfer) -> (Op, Result<(), DiskError>) {
    loop {
        let answer = call(&mut transfer);
        if let Step::End(outcome) = transfer.advance(answer) {
            return (transfer.op, outcome);
        }
    }
}

/// One call to the kernel: the next part of the request.
fn call(transfer: &mut Transfer) -> Result<usize, Errno> {
    let file = transfer.file.clone();
    let at = transfer.next_at();
    match &transfer.op {
        Op::Read { .. } => preadv(&*file, &mut [IoSliceMut::new(transfer.next_room())], at),
        Op::Write { .. } => {
            let pieces: Vec<_> = transfer.next_pieces().map(IoSlice::new).collect();
            pwritev(&*file, &pieces, at)
        }
        Op::Flush => fdatasync(&*file).map(|()| 0),
        Op::Discard { at, len } => match file.kind() {
            super::file::DiskKind::File => punch_hole(&*file, *at, *len),
            super::file::DiskKind::Block => discard_device(&*file, *at, *len),
        },
    }
}

fn punch_hole(file: impl AsFd, at: u64, len: u64) -> Result<usize, Errno> {
    fallocate(file, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, at, len).map(|()| 0)
}

/// `BLKDISCARD`: fallocate on a block device would be write-zeroes, which a disk may do far slower than forgetting.
fn discard_device(file: impl AsFd, at: u64, len: u64) -> Result<usize, Errno> {
    use rustix::ioctl::{Setter, ioctl, opcode};
    const BLKDISCARD: rustix::ioctl::Opcode = opcode::none(0x12, 119);
    // SAFETY: BLKDISCARD reads two u64 (start, length) at the pointer it is given, which is what this pattern passes,
    // and writes nothing back; the descriptor is a block device that this process has claimed for itself.
    unsafe { ioctl(file, Setter::<BLKDISCARD, [u64; 2]>::new([at, len])) }.map(|()| 0)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::super::file::{DiskOptions, OpenDisk};
    use super::*;
    use weft_engine::units::ByteCount;

    #[test]
    fn a_disk_that_hangs_has_its_share_of_the_workers_and_disks_take_turns() {
        let dir = tempfile::tempdir().expect("a scratch directory");
        let options = DiskOptions { create: Some(ByteCount::mib(1)), ..DiskOptions::default() };
        let open = |name: &str| Arc::new(OpenDisk::open(&dir.path().join(name), &options).expect("a scratch disk"));
        let (hung, well) = (open("hung"), open("well"));
        let mut queue = Queue::default();
        (0..10).for_each(|key| queue.push(key, Transfer::new(hung.clone(), Op::Flush)));
        (10..13).for_each(|key| queue.push(key, Transfer::new(well.clone(), Op::Flush)));
        let mut taken = Vec::new();
        while let Some((key, transfer)) = queue.pop(2) {
            if Arc::ptr_eq(&transfer.file, &well) {
                queue.end(address(&transfer));
            }
            taken.push(key);
        }
        taken.sort_unstable();
        assert_eq!(taken, [0, 1, 10, 11, 12], "two workers hang, the other disk goes on");
        queue.end(Arc::as_ptr(&hung).addr());
        assert_eq!(queue.pop(2).map(|(key, _)| key), Some(2));
        assert_eq!((queue.len, queue.disks.len()), (7, 1));
    }
}
