//! A ring whose thread can be woken while it sleeps in it: a read of an alarm's eventfd is among what it waits for.
//!
//! Invariants
//! 1. While the thread sleeps in the ring, the bell's read is in the kernel; its room lives until that has come back.
//! 2. At most [`PLACES`] entries of others are in the kernel, which whoever pushes sees to. So neither ring overflows.

use super::alarm::Alarm;
use io_uring::types::{Fd, SubmitArgs, Timespec};
use io_uring::{IoUring, opcode, squeue};
use std::io;
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::time::Duration;

/// Places in the submission queue.
const ENTRIES: u32 = 512;
/// Entries that may be in the kernel at once; leaves room for the bell.
pub(super) const PLACES: usize = 480;
/// The mark of the bell's entry; no other may have it.
const BELL: u64 = u64::MAX;
/// How long a ring that ends waits for its bell.
const BELL_MAX: Duration = Duration::from_secs(2);

pub(super) struct BelledRing {
    ring: IoUring,
    alarm: Arc<Alarm>,
    room: Box<[u8; 8]>,
    armed: bool,
}

impl BelledRing {
    /// A ring for the thread that makes it.
    pub(super) fn new(alarm: Arc<Alarm>) -> io::Result<BelledRing> {
        Ok(BelledRing { ring: set_up()?, alarm, room: Box::default(), armed: false })
    }

    /// Queues an entry; the next turn submits it.
    ///
    /// # Safety
    /// Its descriptor and the memory it points to must stay until a turn has given back its mark.
    pub(super) unsafe fn push(&mut self, entry: &squeue::Entry) {
        // SAFETY: as promised to this function.
        let pushed = unsafe { self.ring.submission().push(entry) };
        pushed.expect("there are more places than requests in the kernel");
    }

    /// Submits, and takes in completions: their marks and results. With `wait` it sleeps until there is one, the alarm
    /// rings or the time is over, unless `quiet`, the last look at all places for work, says that there is some.
    pub(super) fn turn(&mut self, wait: Option<Duration>, quiet: impl Fn() -> bool) -> Vec<(u64, i32)> {
        let nothing_yet = self.ring.completion().is_empty();
        match wait {
            Some(wait) if nothing_yet && self.alarm.doze(quiet) => {
                self.arm();
                self.enter(Some(wait));
                self.alarm.awake();
            }
            _ => self.enter(None),
        }
        let mut seen = Vec::new();
        for entry in self.ring.completion() {
            match entry.user_data() {
                BELL => self.armed = false,
                mark => seen.push((mark, entry.result())),
            }
        }
        seen
    }

    fn arm(&mut self) {
        if !self.armed {
            let bell = Fd(self.alarm.bell().as_raw_fd());
            let entry = opcode::Read::new(bell, self.room.as_mut_ptr(), 8).build().user_data(BELL);
            // SAFETY: the alarm and the room are this ring's, and its end waits for the bell or leaves the room behind.
            unsafe { self.push(&entry) };
            self.armed = true;
        }
    }

    /// Submits, and takes in completions; waits for one at most `wait`. Makes no system call when there is no reason
    /// to.
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

impl Drop for BelledRing {
    fn drop(&mut self) {
        if self.armed {
            self.alarm.strike();
            self.enter(Some(BELL_MAX));
            self.armed = !self.ring.completion().any(|entry| entry.user_data() == BELL);
        }
        if self.armed {
            // Invariant 1: the kernel may still come back to this memory, and to the alarm's descriptor.
            std::mem::forget(std::mem::take(&mut self.room));
            std::mem::forget(self.alarm.clone());
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
