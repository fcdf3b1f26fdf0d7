//! The calls to the disks, and what follows when one fails or takes too long.
//!
//! Invariants
//! 1. An answer counts only while the disk is the one that was asked and was not lost in between: what a lost disk says
//!    later is not believed.
//! 2. A disk that keeps a write or a flush waiting for the write timeout is taken out, but only if everything that is
//!    on it is safe without it; else it is waited for, and named once.
//! 3. A lost disk is used again only after all that was asked of it has ended: a late write would else fall on newer
//!    data.

use super::last_writes::Written;
use super::quorum;
use super::timeout::{Late, Reply, Timeout};
use super::{DiskCounters, Member, Store, join};
use crate::error::Result;
use crate::event::Event;
use crate::fail;
use crate::io::{Buf, Disk, DiskError, IoFuture, IoSlice};
use crate::mutant::{self, Mutant};
use crate::sync::begin;
use crate::units::{ByteCount, DiskNo, DiskOffset};
use alloc::format;
use alloc::rc::Rc;
use alloc::vec::Vec;
use core::future::Future;

/// The error of a write that was not answered within the write timeout, as Linux numbers it (`ETIMEDOUT`).
const TIMED_OUT: DiskError = DiskError::Os(110);

type Done<T> = core::result::Result<T, DiskError>;

/// A disk as it was when something was asked of it.
struct Asked {
    no: DiskNo,
    disk: Rc<dyn Disk>,
    losses: u64,
}

/// What may be done about a disk that takes too long.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Stall {
    /// It may be taken out.
    TakenOut,
    /// It is waited for.
    Waited,
}

/// While a pool is opened, what is to be read comes from records that are not proven yet: a disk is not asked for what
/// it does not have.
fn check_range(asked: &Asked, at: DiskOffset, len: usize) -> Done<()> {
    let end = at.0.checked_add(len as u64);
    if end.is_some_and(|end| end <= asked.disk.shape().capacity.0) { Ok(()) } else { Err(DiskError::Media) }
}

/// A disk that seeks gets its reads in the order in which they were asked: in which order tasks run nobody knows.
async fn begin_if(seeks: bool, read: &mut IoFuture<Buf>) -> Option<Done<Buf>> {
    if seeks && !mutant::active(Mutant::ReadsOutOfOrder) { begin(read).await } else { None }
}

impl Store {
    /// Reads `len` bytes at `at` of disk `no`, however long that takes.
    pub async fn disk_read(&self, no: DiskNo, at: DiskOffset, len: usize) -> Done<Buf> {
        let asked = self.asked(no)?;
        check_range(&asked, at, len)?;
        let (seeks, mut read) = (self.is_rotational(no), asked.disk.read(at, self.traffic.spare.take(len)));
        let reads = async {
            match begin_if(seeks, &mut read).await {
                Some(told) => told,
                None => self.in_time(&asked, "a read", Stall::Waited, read).await,
            }
        };
        let result = self.timed(no, seeks, reads).await;
        self.count_read(no, len, false);
        if let Err(DiskError::Gone) = result {
            self.call_failed(&asked, DiskError::Gone, "it answers no more");
        }
        result
    }

    /// Reads `len` bytes at `at` of disk `no`, but waits no longer than the read timeout: `Ok(None)`.
    pub async fn disk_read_in_time(&self, no: DiskNo, at: DiskOffset, len: usize) -> Done<Option<Buf>> {
        let asked = self.asked(no)?;
        check_range(&asked, at, len)?;
        let (seeks, mut read) = (self.is_rotational(no), asked.disk.read(at, self.traffic.spare.take(len)));
        let reads = async {
            match begin_if(seeks, &mut read).await {
                Some(told) => Reply::Answered(told),
                None => self.ask(&asked, &self.traffic.read_timeout, read).await,
            }
        };
        let read = self.timed(no, seeks, reads).await;
        self.count_read(no, len, matches!(read, Reply::Overdue(_)));
        match read {
            Reply::Answered(Ok(buf)) => Ok(Some(buf)),
            Reply::Answered(Err(error)) => {
                if error == DiskError::Gone {
                    self.call_failed(&asked, error, "it answers no more");
                }
                Err(error)
            }
            Reply::Overdue(_) => Ok(None),
        }
    }

    /// Whether requests of disk `no` are overdue.
    pub fn is_stalled(&self, no: DiskNo) -> bool {
        self.members.borrow().get(&no).is_some_and(|member| member.stalled.get() > 0)
    }

    /// Writes `from` at `at` of disk `no`. A disk that fails a write is taken out.
    pub async fn disk_write(&self, no: DiskNo, at: DiskOffset, from: Vec<IoSlice>) -> Done<()> {
        let last = Written::last_of(at, &from);
        let written = self.disk_write_aside(no, at, from).await;
        if let (Ok(()), Some(member)) = (&written, self.members.borrow_mut().get_mut(&no)) {
            member.completed += 1;
            last.into_iter().for_each(|last| member.last.complete(last));
        }
        written
    }

    /// Writes what nothing depends on, so that no commit has to flush the disk for it.
    pub async fn disk_write_aside(&self, no: DiskNo, at: DiskOffset, from: Vec<IoSlice>) -> Done<()> {
        let asked = self.asked(no)?;
        let len: usize = from.iter().map(|slice| slice.len()).sum();
        self.write_ends(no, at, ByteCount(len as u64));
        let write = asked.disk.write(at, from);
        let result =
            self.timed(no, self.is_rotational(no), self.in_time(&asked, "a write", Stall::TakenOut, write)).await;
        self.count(no, |counters| {
            counters.writes += 1;
            counters.written += len as u64;
        });
        let result = self.believed(&asked, result);
        match result {
            Ok(()) => {
                if let Some(member) = self.members.borrow_mut().get_mut(&no) {
                    member.named &= member.stalled.get() > 0;
                }
            }
            Err(error) => {
                let reason = format!("a write of {len} bytes at {} failed: {error}", at.0);
                self.call_failed(&asked, error, &reason);
            }
        }
        result
    }

    /// Makes durable all that was written to disk `no`: nothing is to be done for that where it needs no flush. A disk
    /// that fails a flush is taken out: nobody knows what it lost.
    pub async fn disk_flush(&self, no: DiskNo) -> Done<()> {
        let asked = self.asked(no)?;
        let spared = self.needs_no_flush(no);
        let (covered, last) = match self.members.borrow_mut().get_mut(&no) {
            Some(member) => {
                member.counters.flushes += !spared as u64;
                member.counters.spared += spared as u64;
                (member.completed, member.last.flush())
            }
            None => (0, 0),
        };
        let result = match spared {
            true => Ok(()),
            false => self.in_time(&asked, "a flush", Stall::TakenOut, asked.disk.flush()).await,
        };
        let result = self.believed(&asked, result);
        self.turn_flushed(no);
        match result {
            Ok(()) => {
                if let Some(member) = self.members.borrow_mut().get_mut(&no) {
                    member.flushed = member.flushed.max(covered);
                    member.last.flushed(last);
                    member.named &= member.stalled.get() > 0;
                    if mutant::active(Mutant::LossForgetsLabel) {
                        member.touched.retain(|_, completed| *completed > covered);
                    }
                }
            }
            Err(error) => self.call_failed(&asked, error, &format!("a flush failed: {error}")),
        }
        result
    }

    /// Makes durable what was written to disk `no` until now. Those who come while it is being flushed share the next
    /// flush.
    pub async fn flush_shared(&self, no: DiskNo) {
        let state = |member: &Member| (member.flushing.clone(), member.completed, member.losses);
        let Some((turn, completed, losses)) = self.members.borrow().get(&no).map(state) else { return };
        let _turn = turn.take().await;
        let covers = |member: &Member| member.flushed >= completed && member.losses == losses;
        let covered = self.members.borrow().get(&no).is_some_and(covers);
        if !covered {
            // A disk that fails is taken out; who asked looks at who is left.
            let _ = self.disk_flush(no).await;
        }
    }

    /// Flushes all of `disks` at once. Failures take the disk out; the caller looks at who is left.
    pub async fn flush_all(&self, disks: Vec<DiskNo>) {
        join(disks.into_iter().map(|no| self.disk_flush(no))).await;
    }

    /// Waits until all that was asked of disk `no` before it was lost has ended. Fails where that takes longer than the
    /// write timeout.
    pub async fn late_requests_end(&self, no: DiskNo) -> Result<()> {
        let began = self.world.now();
        loop {
            let left = {
                let members = self.members.borrow();
                members.get(&no).filter(|member| member.disk.is_none()).map_or(0, |member| member.in_flight.get())
            };
            if left == 0 {
                return Ok(());
            }
            if self.world.now().since(began) > self.tuning.write_limit {
                return fail!(
                    NotPossible,
                    "disk {no} still works on {left} requests from before it was lost; attach it again when they have ended"
                );
            }
            self.pause().await;
        }
    }

    /// Whether everything that is on disk `no` is safe without it: its data, the log, and the votes.
    pub fn can_do_without(&self, no: DiskNo) -> bool {
        let left = self.current_set().without(no);
        let safe = self.data_is_safe_without(no)
            && self.metadata_beyond(left).is_none()
            && self.attempted_beyond(left).is_none();
        safe && !(self.labels.loggers.get() & left).is_empty()
            && quorum::may_go_on(self.labels.durable.get().voters, left)
    }

    /// Whether everything in segments on disk `no` is there without it.
    pub fn data_is_safe_without(&self, no: DiskNo) -> bool {
        let map = self.map.borrow();
        map.segments.values().all(|segment| map.is_safe_without(segment, no))
    }

    /// What lies here of disk `no` is about to be written over, or discarded.
    pub fn write_ends(&self, no: DiskNo, at: DiskOffset, len: ByteCount) {
        if let Some(member) = self.members.borrow_mut().get_mut(&no) {
            member.last.end(at, len);
        }
    }

    fn asked(&self, no: DiskNo) -> Done<Asked> {
        let members = self.members.borrow();
        let member = members.get(&no).ok_or(DiskError::Gone)?;
        let disk = member.disk.clone().ok_or(DiskError::Gone)?;
        Ok(Asked { no, disk, losses: member.losses })
    }

    /// Whether the disk is the one that was asked, and was there all the time.
    fn is_still(&self, asked: &Asked) -> bool {
        let members = self.members.borrow();
        members.get(&asked.no).is_some_and(|member| {
            member.losses == asked.losses && member.disk.as_ref().is_some_and(|disk| Rc::ptr_eq(disk, &asked.disk))
        })
    }

    fn believed<T>(&self, asked: &Asked, result: Done<T>) -> Done<T> {
        if result.is_ok() && !self.is_still(asked) { Err(DiskError::Gone) } else { result }
    }

    fn call_failed(&self, asked: &Asked, error: DiskError, reason: &str) {
        if self.is_still(asked) {
            self.disk_failed(asked.no, &asked.disk, error, reason);
        }
    }

    async fn ask<T: 'static>(
        &self,
        asked: &Asked,
        timeout: &Rc<Timeout>,
        io: impl Future<Output = Done<T>> + 'static,
    ) -> Reply<T> {
        let (stalled, in_flight) = match self.members.borrow().get(&asked.no) {
            Some(member) => (member.stalled.clone(), member.in_flight.clone()),
            None => Default::default(),
        };
        timeout.ask(asked.disk.clone(), io, stalled, in_flight).await
    }

    /// The answer to `io`. Each time the write timeout is over, something is done about the disk.
    async fn in_time<T: 'static>(
        &self,
        asked: &Asked,
        what: &str,
        stall: Stall,
        io: impl Future<Output = Done<T>> + 'static,
    ) -> Done<T> {
        let mut reply = self.ask(asked, &self.traffic.write_timeout, io).await;
        loop {
            let late: Late<T> = match reply {
                Reply::Answered(result) => return result,
                Reply::Overdue(late) => late,
            };
            self.is_overdue(asked, what, stall);
            if !self.is_still(asked) {
                return Err(DiskError::Gone);
            }
            reply = self.traffic.write_timeout.again(late).await;
        }
    }

    /// Takes out a disk that stalls, or names it.
    fn is_overdue(&self, asked: &Asked, what: &str, stall: Stall) {
        if !self.is_still(asked) {
            return;
        }
        let limit = self.traffic.write_timeout.limit();
        if stall == Stall::TakenOut && self.writing.get() && self.can_do_without(asked.no) {
            let reason = format!(
                "it has not answered {what} for {} seconds; everything on it is safe on other disks",
                limit.0 / 1_000_000_000
            );
            self.disk_failed(asked.no, &asked.disk, TIMED_OUT, &reason);
            return;
        }
        let named = |member: &mut Member| core::mem::replace(&mut member.named, true);
        if self.members.borrow_mut().get_mut(&asked.no).is_some_and(|member| !named(member)) {
            self.world.emit(Event::DiskStalled { disk: asked.no, waited: limit });
        }
    }

    fn count_read(&self, no: DiskNo, len: usize, overdue: bool) {
        self.count(no, |counters: &mut DiskCounters| {
            counters.reads += 1;
            counters.read += len as u64;
            counters.overdue += overdue as u64;
        });
    }
}
