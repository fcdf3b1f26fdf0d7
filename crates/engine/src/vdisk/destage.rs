//! Destage: a stripe that is still partial is merged with what is on the disks and leaves as a new whole stripe. This
//! is the only place where a write causes a read.

use super::write::room_for;
use super::{Vdisk, add};
use crate::error::{Error, ErrorKind, Result};
use crate::exec::LocalBoxFuture;
use crate::store::budget::Budget;
use crate::store::freeze::frozen;
use crate::store::join;
use crate::stripe::buffer::StripeBuffer;
use alloc::boxed::Box;
use alloc::rc::Rc;
use alloc::vec;
use alloc::vec::Vec;
use core::cell::RefCell;
use core::future::Future;

/// The most stripes that are merged at once: enough of them that a disk can put their reads in order. Memory may allow
/// fewer.
const AT_ONCE: usize = 64;
/// Stripes with more bytes than this together are too many for a flush to write them twice, first to the log.
const MANY: u64 = 8 << 20;
/// How many of the stripes that were written to last may be where streams go on.
const STREAMS: usize = 16;

/// A stripe that could not be merged, as it and the pool were then: it is not tried again before one of them has
/// changed.
#[derive(Clone, Copy)]
pub(super) struct SetAside {
    id: u64,
    have: usize,
    changes: u64,
}

/// Who merges a stripe.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum By {
    /// Somebody who may wait for room in the log.
    Anybody,
    /// Who makes that room.
    LogKeeper,
}

/// Does `what` for each of `items`, many at once, begun in their order.
pub async fn each_of<T, F: Future<Output = ()>>(items: Vec<T>, what: impl Fn(T) -> F) {
    let workers = items.len().min(AT_ONCE);
    let items = RefCell::new(items.into_iter());
    let work = || async {
        loop {
            let item = items.borrow_mut().next();
            let Some(item) = item else { return };
            what(item).await;
        }
    };
    join((0..workers).map(|_| work())).await;
}

/// Bytes that it takes to merge a stripe: what is read, as blocks and as bytes, and what the buffer grows by.
fn merge_memory(buffer: &StripeBuffer) -> u64 {
    let holes = buffer.holes();
    let (Some(first), Some(last)) = (holes.first(), holes.last()) else { return 0 };
    let growth: usize = buffer.growth(first.start, last.end - first.start);
    (2 * (last.end - first.start) + growth) as u64
}

impl Vdisk {
    /// Destages those of `stripes` that a flush would land at length, where there is much to land: what was written at
    /// the edges of large files, for one. They are on their way when this returns, or as they were.
    pub(super) async fn destage_bulk(self: &Rc<Self>, stripes: &[u64]) {
        let unlanded = |stripe: &u64| {
            let look = |buffer: &mut StripeBuffer| (buffer.unlanded_len() as u64, (buffer.touched, buffer.id));
            let (unlanded, touched) = self.with_filling(*stripe, look)?;
            (unlanded > 0).then_some((touched, *stripe, unlanded))
        };
        let mut partial: Vec<_> = stripes.iter().filter_map(unlanded).collect();
        if partial.iter().map(|(.., unlanded)| unlanded).sum::<u64>() < MANY {
            return;
        }
        partial.sort_unstable();
        partial.truncate(partial.len().saturating_sub(STREAMS));
        let len = self.stripe_len().0;
        let long = partial.into_iter().filter(|(.., unlanded)| *unlanded >= len / 4);
        let mut bulk: Vec<u64> = long.map(|(_, stripe, _)| stripe).collect();
        // In the order of their places: neighbours here are mostly neighbours on the disks.
        bulk.sort_unstable();
        // One that cannot be merged is landed, like all others.
        each_of(bulk, |stripe| async move {
            let _ = self.destage_and_wait(stripe).await;
        })
        .await;
    }

    /// Completes the gathering buffer of `stripe`, if there is one, and waits until it is committed (not: durable).
    pub fn destage_and_wait(self: &Rc<Self>, stripe: u64) -> LocalBoxFuture<'_, Result<()>> {
        Box::pin(async move { self.merge(stripe, &self.store.traffic.budgets.merges, By::Anybody).await })
    }

    /// [`Vdisk::destage_and_wait`] with memory from `budget`, until it is down.
    pub(crate) async fn merge(self: &Rc<Self>, stripe: u64, budget: &Budget, by: By) -> Result<()> {
        self.merging.set(self.merging.get() + 1);
        let merged = self.merge_now(stripe, budget, by).await;
        self.merging.set(self.merging.get() - 1);
        merged
    }

    async fn merge_now(self: &Rc<Self>, stripe: u64, budget: &Budget, by: By) -> Result<()> {
        // An older version that is in flight must be the truth before the merge can read it.
        self.until_down(stripe, by, || self.in_flight(stripe).is_none()).await?;
        let Some(cost) = self.with_filling(stripe, |buffer| merge_memory(buffer)) else { return Ok(()) };
        let _lease = if cost > 0 { Some(budget.take(cost).await) } else { None };
        self.until_down(stripe, by, || self.in_flight(stripe).is_none()).await?;
        let Some((id, holes)) = self.with_filling(stripe, |buffer| (buffer.id, buffer.holes())) else { return Ok(()) };
        if let (Some(first), Some(last)) = (holes.first(), holes.last()) {
            let (from, to) = (first.start, last.end);
            let start = stripe * self.layout().data_len().0;
            let mut bytes = vec![0; to - from];
            let read = self.read_below(start + from as u64..start + to as u64, &mut bytes).await?;
            let lies = self.tier_at(stripe).await?;
            // Below a version that was lost lies an older one: it must not come back under what was written since.
            self.check_not_lost(stripe)?;
            add(&self.counters.read_for_write, read);
            self.with_filling(stripe, |buffer| {
                // A discard may have ended the buffer meanwhile, and a later write begun another: what was read is not
                // its past.
                if buffer.id == id {
                    let before = buffer.memory();
                    buffer.fill(from, &bytes);
                    buffer.bound = buffer.bound.or(lies);
                    buffer.lent += buffer.memory() - before;
                }
            });
        }
        let sent = self.send(stripe, by).await;
        // What is still there is held no longer in the name of this merge.
        let left =
            self.with_filling(stripe, |buffer| if buffer.id == id { core::mem::take(&mut buffer.lent) } else { 0 });
        self.store.buffered_changed(left.unwrap_or(0) as i64);
        sent
    }

    /// Sends a stripe that was completed on its way, and waits until it is down; or forgets it, if it is blank.
    pub(super) async fn send(self: &Rc<Self>, stripe: u64, by: By) -> Result<()> {
        let admitted = || if by == By::LogKeeper { Err(self.waits_for_log()) } else { self.check_flows() };
        if !self.forget_blank(stripe, admitted).await? {
            self.seal_if_whole(stripe);
        }
        if let Some(sealed) = self.in_flight(stripe) {
            self.until_down(stripe, by, || !self.in_flight(stripe).is_some_and(|now| Rc::ptr_eq(&now, &sealed)))
                .await?;
        }
        Ok(())
    }

    /// [`Vdisk::merge`] to make room. What cannot be merged is set aside until it, or the pool, has changed. Says
    /// whether it was merged.
    pub(crate) async fn merge_or_set_aside(self: &Rc<Self>, stripe: u64, budget: &Budget, by: By) -> bool {
        let before = self.with_filling(stripe, |buffer| buffer.id);
        // What comes while it is being merged may be just what it lacked.
        let changes = self.store.signals.changes.get();
        let merged = match self.merge(stripe, budget, by).await {
            // The log's keeper waits for nothing: what waits for room, or for disks, is not what cannot be merged.
            Err(error) if by == By::LogKeeper && error.kind == ErrorKind::Frozen => return false,
            merged => merged.is_ok(),
        };
        let after = self.with_filling(stripe, |buffer| SetAside { id: buffer.id, have: buffer.have_len(), changes });
        match after.filter(|after| Some(after.id) == before) {
            Some(after) => self.set_aside.borrow_mut().insert(stripe, after),
            None => self.set_aside.borrow_mut().remove(&stripe),
        };
        merged
    }

    /// Waits until something of `stripe` is `down`. An error where it would have to wait for disks that are missing,
    /// or, as the log's keeper, for room in the log.
    async fn until_down(&self, stripe: u64, by: By, down: impl Fn() -> bool) -> Result<()> {
        while !down() {
            self.check_there()?;
            if self.stuck_since().is_some() {
                return Err(frozen(alloc::format!("stripes of {} wait for disks that are missing", self.layout())));
            }
            if by == By::LogKeeper && self.is_held(stripe) {
                return Err(self.waits_for_log());
            }
            self.moved.changed().await;
        }
        Ok(())
    }

    /// Whether the version of `stripe` that is in flight waits for room in the log, or behind others that do.
    fn is_held(&self, stripe: u64) -> bool {
        self.in_flight(stripe).is_some_and(|sealed| self.queue_for(room_for(&sealed)).held.get() > 0)
    }

    fn waits_for_log(&self) -> Error {
        frozen(alloc::format!("stripes of {} wait for room in the log", self.layout()))
    }

    /// [`Vdisk::gathering`] without what was set aside; nothing, where stripes wait for disks.
    pub(crate) fn mergeable(&self) -> Vec<u64> {
        if self.waits_since().is_some() {
            return Vec::new();
        }
        let mut gathering = self.gathering();
        gathering.retain(|stripe| !self.is_set_aside(*stripe));
        gathering
    }

    /// Counts, and remembers, the bytes of what is set aside.
    pub(crate) fn count_stuck(&self) -> u64 {
        let all: Vec<u64> = self.set_aside.borrow().keys().copied().collect();
        let (aside, others): (Vec<u64>, Vec<u64>) = all.into_iter().partition(|stripe| self.is_set_aside(*stripe));
        for stripe in others {
            self.set_aside.borrow_mut().remove(&stripe);
        }
        let charged = |stripe: &u64| self.with_filling(*stripe, |buffer| buffer.charged() as u64);
        self.stuck_bytes.set(aside.iter().filter_map(charged).sum());
        self.stuck_bytes.get()
    }

    /// Whether `stripe` could not be merged, and nothing about that has changed.
    pub(crate) fn is_set_aside(&self, stripe: u64) -> bool {
        let Some(aside) = self.set_aside.borrow().get(&stripe).copied() else { return false };
        let same = |buffer: &mut StripeBuffer| buffer.id == aside.id && buffer.have_len() == aside.have;
        aside.changes == self.store.signals.changes.get() && self.with_filling(stripe, same).unwrap_or(false)
    }

    /// Stripes with a gathering buffer, the longest untouched first.
    pub fn gathering(&self) -> Vec<u64> {
        let stripes = self.stripes.borrow();
        let mut found: Vec<_> = stripes
            .iter()
            .filter_map(|(stripe, gathering)| Some((gathering.filling.as_ref()?.touched, *stripe)))
            .collect();
        found.sort_unstable();
        found.into_iter().map(|(_, stripe)| stripe).collect()
    }
}
