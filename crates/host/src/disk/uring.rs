//! The driver for io_uring: one ring, used by the engine's thread alone.
//!
//! Invariants
//! 1. Everything the kernel was given the address of (buffers, iovecs, the bell's room) lies on the heap and is owned
//!    by this ring's slab from the push of the entry until its completion was seen; it does not move and is not freed
//!    in between. (A booking holds the ring: one that never comes back leaks the ring rather than free the memory.)
//! 2. At most [`IN_KERNEL_MAX`] requests are in the kernel; the rest waits here in order. So neither ring overflows.
//! 3. While the engine's thread sleeps in the ring, a read of the alarm's eventfd is among what it waits for.

use super::Done;
use super::alarm::Alarm;
use super::driver::Driver;
use super::file::DiskKind;
use super::op::{Op, Step, Transfer};
use super::threads::Pool;
use io_uring::types::{Fd, FsyncFlags, SubmitArgs, Timespec};
use io_uring::{IoUring, opcode, squeue};
use rustix::fs::FallocateFlags;
use rustix::io::Errno;
use slab::Slab;
use std::cell::RefCell;
use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::sync::Arc;
use std::time::Duration;

/// Places in the submission queue.
const ENTRIES: u32 = 512;
/// Requests in the kernel at once; leaves room for the bell.
const IN_KERNEL_MAX: usize = 480;
/// The mark of the bell's entry; requests are marked with their place in the slab.
const BELL: u64 = u64::MAX;
/// How long a ring that ends waits for its bell.
const BELL_MAX: Duration = Duration::from_secs(2);

pub(super) struct Ring {
    inner: RefCell<Inner>,
    alarm: Arc<Alarm>,
    /// For what io_uring cannot do everywhere: discarding on block devices; and anything on file systems where to submit a request may be to
    /// wait for somebody.
    helper: Pool,
}

struct Inner {
    ring: IoUring,
    pending: Slab<Pending>,
    waiting: VecDeque<usize>,
    in_kernel: usize,
    bell: Box<[u8; 8]>,
    bell_armed: bool,
}

struct Pending {
    transfer: Transfer,
    done: Done,
    iovecs: Vec<libc::iovec>,
}

impl Ring {
    pub(super) fn new(helper_threads: usize, alarm: Arc<Alarm>) -> io::Result<Ring> {
        let inner = Inner {
            ring: set_up()?,
            pending: Slab::new(),
            waiting: VecDeque::new(),
            in_kernel: 0,
            bell: Box::default(),
            bell_armed: false,
        };
        Ok(Ring { inner: RefCell::new(inner), helper: Pool::new(helper_threads, alarm.clone()), alarm })
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
        let nothing_yet = inner.ring.completion().is_empty();
        match wait {
            Some(wait) if nothing_yet && self.alarm.doze(|| quiet() && self.helper.is_quiet()) => {
                inner.arm_bell(&self.alarm);
                inner.enter(Some(wait));
                self.alarm.awake();
            }
            _ => inner.enter(None),
        }
        let mut seen: Vec<(u64, i32)> = Vec::new();
        seen.extend(inner.ring.completion().map(|entry| (entry.user_data(), entry.result())));
        drop(inner);
        for (mark, result) in seen {
            match mark {
                BELL => self.inner.borrow_mut().bell_armed = false,
                key => self.finish(key as usize, result),
            }
        }
        self.helper.answer();
    }

    fn in_flight(&self) -> usize {
        self.inner.borrow().pending.len() + self.helper.in_flight()
    }
}

impl Inner {
    fn push_waiting(&mut self) {
        while self.in_kernel < IN_KERNEL_MAX
            && let Some(key) = self.waiting.pop_front()
        {
            let entry = self.pending[key].entry().user_data(key as u64);
            self.push(entry);
            self.in_kernel += 1;
        }
    }

    fn arm_bell(&mut self, alarm: &Alarm) {
        if !self.bell_armed {
            let room = self.bell.as_mut_ptr();
            self.push(opcode::Read::new(Fd(alarm.bell().as_raw_fd()), room, 8).build().user_data(BELL));
            self.bell_armed = true;
        }
    }

    fn push(&mut self, entry: squeue::Entry) {
        // SAFETY: the entry's descriptor and memory are owned by `pending[key]` (by `bell` and the alarm for the bell)
        // and stay there until its completion is seen: invariant 1.
        let pushed = unsafe { self.ring.submission().push(&entry) };
        pushed.expect("there are more places than requests in the kernel");
    }

    /// Submits, and takes in completions; waits for one at most `wait`. Makes no system call when there is no reason to.
    fn enter(&mut self, wait: Option<Duration>) {
        let entered = match wait {
            Some(wait) => {
                let timeout = Timespec::from(wait);
                self.ring.submitter().submit_with_args(1, &SubmitArgs::new().timespec(&timeout))
            }
            None => {
                let queue = self.ring.submission();
                let needed = !queue.is_empty() || queue.taskrun() || queue.cq_overflow();
                drop(queue);
                if needed { self.ring.submit() } else { Ok(0) }
            }
        };
        match entered.map_err(|why| why.raw_os_error()) {
            // Time is up, a signal, or the kernel wants completions to be taken first.
            Ok(_) | Err(Some(libc::ETIME | libc::EINTR | libc::EBUSY | libc::EAGAIN)) => {}
            Err(errno) => panic!("io_uring_enter failed with error {errno:?}"),
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
        let inner = self.inner.get_mut();
        assert!(inner.pending.is_empty(), "a request holds its driver");
        if inner.bell_armed {
            self.alarm.strike();
            inner.enter(Some(BELL_MAX));
            inner.bell_armed = inner.ring.completion().next().is_none();
        }
        if inner.bell_armed {
            // Invariant 1: the kernel may still come back to this memory.
            std::mem::forget(std::mem::take(&mut inner.bell));
        }
    }
}

/// A ring with the best manners the kernel knows: completions are worked off only when this thread asks for them
/// (6.1), without interrupting it (5.19), or as they come. Waiting with a time limit (5.11) is a must.
fn set_up() -> io::Result<IoUring> {
    let deferred = IoUring::builder()
        .setup_cqsize(2 * ENTRIES)
        .setup_single_issuer()
        .setup_defer_taskrun()
        .setup_taskrun_flag()
        .build(ENTRIES);
    let cooperative =
        || IoUring::builder().setup_cqsize(2 * ENTRIES).setup_coop_taskrun().setup_taskrun_flag().build(ENTRIES);
    let plain = || IoUring::builder().setup_cqsize(2 * ENTRIES).build(ENTRIES);
    let ring = deferred.or_else(|_| cooperative()).or_else(|_| plain())?;
    if !ring.params().is_feature_ext_arg() || !ring.params().is_feature_nodrop() {
        return Err(io::Error::other("this kernel's io_uring is too old (5.11 is needed)"));
    }
    Ok(ring)
}
