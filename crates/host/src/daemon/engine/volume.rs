//! A virtual disk as a [`Volume`]: every request is one task of the engine's thread.
//!
//! Invariants
//! 1. Every request is answered exactly once: where its task cannot start, or is thrown away, the answer is `Closed`.
//! 2. All volumes of a virtual disk share it, so a flush through one covers what was answered through any other.

use super::{Memory, Pools, Served, Thread};
use crate::api::name::VdiskName;
use crate::disk::Backend;
use crate::export::{
    Done, Extent, ExtentKind, Guest, Lent, Op, PART, Pieces, Reply, Returns, Visit, Volume, VolumeShape,
};
use crate::runtime::Local;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use weft_engine::error::{Error, ErrorKind, Result};
use weft_engine::store::join;
use weft_engine::units::VirtualOffset;
use weft_engine::vdisk::{AnswerPart, Vdisk};

/// How many stripes one question about allocation looks at; it runs between two tasks and must be short.
const STRIPES_PER_STATUS: u64 = 1 << 14;

/// Reads of so many bytes hand on what the disks gave; shorter ones are copied.
const SHARED_MIN: usize = 64 << 10;

/// One virtual disk, for one client.
pub struct VdiskVolume {
    thread: Thread,
    /// Its number in [`Pools::served`].
    no: u64,
    shape: VolumeShape,
    memory: Memory,
    /// Something was queued since the engine's thread was woken.
    queued: AtomicBool,
}

impl VdiskVolume {
    /// The virtual disk called `name`, as it is now; clients can only read it if `read_only`.
    pub fn open(thread: &Thread, name: VdiskName, read_only: bool) -> Option<VdiskVolume> {
        let opened = thread.call("volume open", move |local| async move {
            let state = local.state();
            let open = state.pool(&name.pool).ok()?;
            let border = open.border.clone();
            let (vdisk, shape) = border.look(|| {
                let vdisk = open.vdisk(&name).ok()?;
                let store = open.pool.store();
                let rotational = store.members.borrow().keys().any(|no| store.is_rotational(*no));
                let shape = VolumeShape {
                    size: vdisk.size().0,
                    sector: vdisk.sector(),
                    preferred: vdisk.stripe_len().0,
                    strip: vdisk.layout().interleave().0,
                    read_only: read_only || vdisk.is_read_only(),
                    rotational,
                };
                Some((vdisk, shape))
            })??;
            let no = state.served_next.get();
            state.served_next.set(no + 1);
            state.served.borrow_mut().insert(no, Served { vdisk, border });
            Some((no, shape, state.memory.clone()))
        });
        let (no, shape, memory) = opened.ok().flatten()?;
        Some(VdiskVolume { thread: thread.clone(), no, shape, memory, queued: AtomicBool::new(false) })
    }
}

impl Drop for VdiskVolume {
    fn drop(&mut self) {
        let no = self.no;
        // When the thread has ended there is nothing to give back.
        let _ = self.thread.run(move |local| drop(local.state().served.borrow_mut().remove(&no)));
    }
}

impl Volume for VdiskVolume {
    fn shape(&self) -> VolumeShape {
        self.shape
    }

    fn submit(&self, op: Op, done: Done) {
        self.queue(op, done);
        self.kick();
    }

    fn queue(&self, op: Op, done: Done) {
        let (no, memory, answer) = (self.no, self.memory.clone(), Answer(Some(done)));
        let _ = self.thread.queue("request", move |local| {
            let local = local.clone();
            Box::pin(async move {
                let done = perform(&local, no, op, &memory).await;
                if done.as_ref().is_err_and(|error| error.kind == ErrorKind::NoSpace) {
                    tell_of_no_space(&local, no);
                }
                answer.give(done);
            })
        });
        // Only now: whoever kicks meanwhile, for another client, need not have seen it.
        self.queued.store(true, Ordering::Release);
    }

    fn host(&self, guest: Arc<dyn Guest>) -> bool {
        if *self.thread.backend() != Backend::Uring {
            return false;
        }
        let (visit, buffers) = (Visit::new(guest), self.memory.buffers.clone());
        self.thread.run(move |local| local.host(visit, buffers)).is_ok()
    }

    fn kick(&self) {
        if self.queued.swap(false, Ordering::AcqRel) {
            self.thread.kick();
        }
    }
}

/// Where an answer goes (invariant 1).
struct Answer(Option<Done>);

impl Answer {
    fn give(mut self, answer: Result<Reply>) {
        if let Some(done) = self.0.take() {
            done(answer.map_err(|error| error.kind));
        }
    }
}

impl Drop for Answer {
    fn drop(&mut self) {
        if let Some(done) = self.0.take() {
            done(Err(ErrorKind::Closed));
        }
    }
}

/// A client was refused for want of room: people are told, of each pool once in a while.
fn tell_of_no_space(local: &Local<Pools>, no: u64) {
    let state = local.state();
    let Some(Served { vdisk, border }) = state.served.borrow().get(&no).cloned() else { return };
    let open = state.open.borrow();
    let Some(pool) = open.values().find(|open| Rc::ptr_eq(&open.border, &border)) else { return };
    border.look(|| pool.refused_for_room(&vdisk.name(), local.world().now()));
}

async fn perform(local: &Rc<Local<Pools>>, no: u64, op: Op, memory: &Memory) -> Result<Reply> {
    let closed = || Error::new(ErrorKind::Closed, "the pool was closed");
    let Served { vdisk, border } = local.state().served.borrow().get(&no).cloned().ok_or_else(closed)?;
    border.guard(perform_inside(local.clone(), vdisk, op, memory.clone())).await.unwrap_or_else(|| Err(closed()))
}

async fn perform_inside(local: Rc<Local<Pools>>, vdisk: Rc<Vdisk>, op: Op, memory: Memory) -> Result<Reply> {
    let (local, at) = (&local, VirtualOffset);
    match op {
        Op::Read { offset, len } => {
            return match len as usize {
                SHARED_MIN.. => read_shared(&vdisk, offset, len as usize, &memory.returns).await,
                len => {
                    let mut bytes = memory.buffers.take(len);
                    // A read that succeeds fills all of it: what was there before never leaves.
                    vdisk.read(at(offset), &mut bytes).await?;
                    let mut pieces = Pieces::new();
                    pieces.push_pooled(bytes);
                    Ok(Reply::Data(pieces))
                }
            };
        }
        Op::Write { offset, data, fua } => vdisk.write(at(offset), &data, fua).await?,
        Op::Flush => vdisk.flush().await?,
        Op::Trim { offset, len, fua } => vdisk.discard(at(offset), len, fua).await?,
        Op::WriteZeroes { offset, len, no_hole, fast, fua } => {
            // The room of a fixed disk is its own: unmapping gives none of it away.
            let keep = no_hole && !is_fixed(local, &vdisk);
            if fast && (keep || !has_whole_stripe(&vdisk, offset, len)) {
                return Err(Error::new(ErrorKind::NotPossible, "zeroes for less than a stripe are written as data"));
            }
            vdisk.write_zeroes(at(offset), len, keep, fua).await?;
        }
        Op::Status { offset, len, limit } => return status(local, &vdisk, offset, len, limit).await,
    }
    Ok(Reply::Done)
}

/// Reads so that what the disks gave goes to the client as it is.
async fn read_shared(vdisk: &Rc<Vdisk>, offset: u64, len: usize, returns: &Arc<Returns>) -> Result<Reply> {
    returns.fetch().into_iter().for_each(|slice| vdisk.reuse(slice));
    let part = |from: usize| vdisk.read_shared(VirtualOffset(offset + from as u64), (len - from).min(PART));
    let mut pieces = Pieces::new();
    for parts in join((0..len).step_by(PART).map(part)).await {
        for part in parts? {
            match part {
                AnswerPart::Slice(slice) => pieces.push_lent(Lent::new(slice, returns)),
                AnswerPart::Bytes(bytes) => pieces.push_owned(bytes),
                AnswerPart::Zeros(len) => pieces.push_zeroes(len as u64),
            }
        }
    }
    Ok(Reply::Data(pieces))
}

/// Whether zeroing the range unmaps at least one stripe. Those take no writing at all; the edges around them, less than
/// a stripe at either end, are written in any case. Where there is no whole stripe zeroing is only a write.
fn has_whole_stripe(vdisk: &Vdisk, offset: u64, len: u64) -> bool {
    let (stripe, end) = (vdisk.stripe_len().0, offset + len);
    let last = if end == vdisk.size().0 { end.div_ceil(stripe) } else { end / stripe };
    offset.div_ceil(stripe) < last
}

fn is_fixed(local: &Local<Pools>, vdisk: &Rc<Vdisk>) -> bool {
    let open = local.state().open.borrow();
    let own = open.values().find(|open| open.pool.vdisks().iter().any(|other| Rc::ptr_eq(other, vdisk)));
    own.is_some_and(|open| open.pool.store().map.borrow().vdisks.get(&vdisk.id()).is_some_and(|record| record.fixed))
}

async fn status(local: &Local<Pools>, vdisk: &Rc<Vdisk>, offset: u64, len: u64, limit: usize) -> Result<Reply> {
    let empty = if is_fixed(local, vdisk) { ExtentKind::Zero } else { ExtentKind::Hole };
    let len = len.min(vdisk.stripe_len().0 * STRIPES_PER_STATUS);
    let extents = vdisk.allocation(VirtualOffset(offset), len).await?.into_iter().take(limit.max(1));
    let kind = |data: bool| if data { ExtentKind::Data } else { empty };
    Ok(Reply::Extents(extents.map(|extent| Extent { len: extent.len, kind: kind(extent.data) }).collect()))
}
