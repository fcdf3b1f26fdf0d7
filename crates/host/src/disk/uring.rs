//! The driver for io_uring: one ring, used by the engine's thread alone.
//!
//! Invariants
//! 1. Everything the kernel was given the address of (buffers, iovecs) lies on the heap and is owned by this ring's
//!    slab from the push of the entry until its completion was seen; it does not move and is not freed in between. (A
//!    booking holds the ring: one that never comes back leaks the ring rather than free the memory.)
//! 2. At most [`PLACES`] requests are in the kernel; the rest waits here in order.
//! 3. A socket that is polled is open until its poll has come back.
//! 4. Nothing waits on this thread but the thread itself. What is short and only copied from or to memory is done here:
//!    io_uring would hand it to a thread of the kernel, which costs more than the copying. It is done at a turn, and
//!    little at each, so that whoever asks for more at once leaves room for everybody else.

use super::Done;
use super::alarm::Alarm;
use super::belled::{BelledRing, PLACES};
use super::driver::Driver;
use super::file::DiskKind;
use super::op::{Op, Step, Transfer};
use super::threads::{Pool, finish};
use io_uring::types::{Fd, FsyncFlags};
use io_uring::{opcode, squeue};
use rustix::fs::FallocateFlags;
use rustix::io::Errno;
use slab::Slab;
use socket2::Socket;
use std::cell::RefCell;
use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::sync::Arc;
use std::time::Duration;
use weft_engine::units::BLOCK;

/// Bytes that are copied from or to files in memory at one turn.
const SHORT_TURN: u64 = 256 << 10;
/// Polls that are begun at one turn: so many places are left for them.
const POLLS_TURN: usize = 24;
/// How many turns polls wait for one that sleeps: both are one call to the kernel then.
const POLLS_WAIT: u32 = 4;
/// What the marks of polls have; those of requests do not.
const POLL: u64 = 1 << 62;

pub(super) struct Ring {
    inner: RefCell<Inner>,
    /// Requests to files in memory.
    short: RefCell<VecDeque<(Transfer, Done)>>,
    /// For what io_uring cannot do everywhere: discarding on block devices; and anything on file systems where to
    /// submit a request may be to wait for somebody.
    helper: Pool,
}

struct Inner {
    ring: BelledRing,
    pending: Slab<Pending>,
    waiting: VecDeque<usize>,
    in_kernel: usize,
    polls: Slab<Poll>,
    /// Polls that have not begun, and for how many turns.
    unpolled: VecDeque<usize>,
    unpolled_for: u32,
}

/// A socket, and what is to be done when there is something to read.
struct Poll {
    socket: Arc<Socket>,
    ready: Box<dyn FnOnce()>,
}

struct Pending {
    transfer: Transfer,
    done: Done,
    iovecs: Vec<libc::iovec>,
}

impl Ring {
    pub(super) fn new(helper_threads: usize, alarm: Arc<Alarm>) -> io::Result<Ring> {
        let inner = Inner {
            ring: BelledRing::new(alarm.clone())?,
            pending: Slab::new(),
            waiting: VecDeque::new(),
            in_kernel: 0,
            polls: Slab::new(),
            unpolled: VecDeque::new(),
            unpolled_for: 0,
        };
        Ok(Ring { inner: RefCell::new(inner), short: RefCell::default(), helper: Pool::new(helper_threads, alarm) })
    }

    /// Does some of the short requests.
    fn copy_some(&self) {
        let mut left = SHORT_TURN;
        while left > 0 {
            let Some((transfer, done)) = self.short.borrow_mut().pop_front() else { return };
            left = left.saturating_sub(transfer.op.len().max(BLOCK));
            let (op, outcome) = finish(transfer);
            done.complete(op, outcome);
        }
    }

    fn is_ready(&self, key: usize) {
        let poll = self.inner.borrow_mut().polls.remove(key);
        (poll.ready)();
    }

    fn finish(&self, key: usize, result: i32) {
        let mut inner = self.inner.borrow_mut();
        inner.in_kernel -= 1;
        let answer = if result < 0 { Err(Errno::from_raw_os_error(-result)) } else { Ok(result as usize) };
        match inner.pending[key].transfer.advance(answer) {
            Step::Again => inner.waiting.push_back(key),
            Step::End(outcome) => {
                let Pending { transfer, done, .. } = inner.pending.remove(key);
                drop(inner);
                done.complete(transfer.op, outcome);
            }
        }
    }
}

impl Driver for Ring {
    fn submit(&self, transfer: Transfer, done: Done) {
        let discard = matches!(transfer.op, Op::Discard { .. }) && transfer.file.kind() == DiskKind::Block;
        if discard || transfer.file.may_block() {
            return self.helper.submit(transfer, done);
        }
        if transfer.file.is_in_memory() && transfer.op.is_short() {
            return self.short.borrow_mut().push_back((transfer, done));
        }
        let mut inner = self.inner.borrow_mut();
        let key = inner.pending.insert(Pending { transfer, done, iovecs: Vec::new() });
        inner.waiting.push_back(key);
    }

    fn turn(&self, wait: Option<Duration>, quiet: &dyn Fn() -> bool) {
        let mut inner = self.inner.borrow_mut();
        let wait = wait.filter(|_| self.short.borrow().is_empty());
        inner.push_waiting();
        inner.push_polls(wait.is_some());
        let wait = wait.filter(|_| inner.unpolled.is_empty());
        let seen = inner.ring.turn(wait, || quiet() && self.helper.is_quiet());
        drop(inner);
        self.copy_some();
        for (mark, result) in seen {
            match mark & POLL {
                0 => self.finish(mark as usize, result),
                _ => self.is_ready((mark ^ POLL) as usize),
            }
        }
        self.helper.answer();
    }

    fn in_flight(&self) -> usize {
        self.inner.borrow().pending.len() + self.short.borrow().len() + self.helper.in_flight()
    }

    fn poll(&self, socket: Arc<Socket>, ready: Box<dyn FnOnce()>) {
        let mut inner = self.inner.borrow_mut();
        let key = inner.polls.insert(Poll { socket, ready });
        inner.unpolled.push_back(key);
    }
}

impl Inner {
    fn push_waiting(&mut self) {
        while self.in_kernel < PLACES
            && let Some(key) = self.waiting.pop_front()
        {
            let entry = self.pending[key].entry().user_data(key as u64);
            // SAFETY: descriptor and memory are owned by `pending[key]` until `finish`: invariant 1.
            unsafe { self.ring.push(&entry) };
            self.in_kernel += 1;
        }
    }

    /// Begins polls. `sleeps`: this turn is about to.
    fn push_polls(&mut self, sleeps: bool) {
        if !sleeps && self.unpolled_for < POLLS_WAIT {
            self.unpolled_for += !self.unpolled.is_empty() as u32;
            return;
        }
        self.unpolled_for = 0;
        let begun = self.unpolled.len().min(POLLS_TURN);
        for key in self.unpolled.drain(..begun) {
            let socket = Fd(self.polls[key].socket.as_raw_fd());
            let entry = opcode::PollAdd::new(socket, libc::POLLIN as u32).build().user_data(key as u64 | POLL);
            // SAFETY: the socket is kept by `polls[key]` until the poll has come back: invariant 3. No memory is named.
            unsafe { self.ring.push(&entry) };
        }
    }
}

impl Pending {
    /// The entry for the next call of this request; its memory is this request's.
    fn entry(&mut self) -> squeue::Entry {
        let fd = Fd(self.transfer.file.as_fd().as_raw_fd());
        let at = self.transfer.next_at();
        match &self.transfer.op {
            Op::Read { .. } => {
                let room = self.transfer.next_room();
                opcode::Read::new(fd, room.as_mut_ptr(), room.len() as u32).offset(at).build()
            }
            Op::Write { .. } => {
                self.iovecs.clear();
                self.iovecs.extend(
                    self.transfer
                        .next_pieces()
                        .map(|piece| libc::iovec { iov_base: piece.as_ptr().cast_mut().cast(), iov_len: piece.len() }),
                );
                match self.iovecs.as_slice() {
                    [one] => opcode::Write::new(fd, one.iov_base.cast(), one.iov_len as u32).offset(at).build(),
                    all => opcode::Writev::new(fd, all.as_ptr(), all.len() as u32).offset(at).build(),
                }
            }
            Op::Flush => opcode::Fsync::new(fd).flags(FsyncFlags::DATASYNC).build(),
            Op::Discard { len, .. } => {
                let mode = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
                opcode::Fallocate::new(fd, *len).offset(at).mode(mode.bits() as i32).build()
            }
        }
    }
}

impl Drop for Ring {
    /// Only the bell can still be in the kernel: a request's booking holds this driver, so a ring with requests is
    /// never dropped.
    fn drop(&mut self) {
        assert!(self.inner.get_mut().pending.is_empty(), "a request holds its driver");
    }
}
