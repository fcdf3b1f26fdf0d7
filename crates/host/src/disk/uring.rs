//! The driver for io_uring: one ring, used by the engine's thread alone.
//!
//! Invariants
//! 1. Everything the kernel was given the address of (buffers, iovecs) lies on the heap and is owned by this ring's
//!    slab from the push of the entry until its completion was seen; it does not move and is not freed in between. (A
//!    booking holds the ring: one that never comes back leaks the ring rather than free the memory.)
//! 2. At most [`PLACES`] requests are in the kernel; the rest waits here in order.

use super::Done;
use super::alarm::Alarm;
use super::belled::{BelledRing, PLACES};
use super::driver::Driver;
use super::file::DiskKind;
use super::op::{Op, Step, Transfer};
use super::threads::Pool;
use io_uring::types::{Fd, FsyncFlags};
use io_uring::{opcode, squeue};
use rustix::fs::FallocateFlags;
use rustix::io::Errno;
use slab::Slab;
use std::cell::RefCell;
use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::sync::Arc;
use std::time::Duration;

pub(super) struct Ring {
    inner: RefCell<Inner>,
    /// For what io_uring cannot do everywhere: discarding on block devices; and anything on file systems where to
    /// submit a request may be to wait for somebody.
    helper: Pool,
}

struct Inner {
    ring: BelledRing,
    pending: Slab<Pending>,
    waiting: VecDeque<usize>,
    in_kernel: usize,
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
        };
        Ok(Ring { inner: RefCell::new(inner), helper: Pool::new(helper_threads, alarm) })
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
        let mut inner = self.inner.borrow_mut();
        let key = inner.pending.insert(Pending { transfer, done, iovecs: Vec::new() });
        inner.waiting.push_back(key);
    }

    fn turn(&self, wait: Option<Duration>, quiet: &dyn Fn() -> bool) {
        let mut inner = self.inner.borrow_mut();
        inner.push_waiting();
        let seen = inner.ring.turn(wait, || quiet() && self.helper.is_quiet());
        drop(inner);
        for (key, result) in seen {
            self.finish(key as usize, result);
        }
        self.helper.answer();
    }

    fn in_flight(&self) -> usize {
        self.inner.borrow().pending.len() + self.helper.in_flight()
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
