//! A virtual disk that lost writes is put back to work: by itself where memory still has them, else when its owner says
//! so.
//!
//! A version that was lost before it was durable, and of which the log holds some, is in memory as well. It gathers
//! again as soon as anybody finds it lost, and is written once more: nothing is lost then, and nobody is told so.
//!
//! Other lost versions fail the virtual disk. Every flush of it fails from then on, and what was lost is an error to
//! read: nobody takes an older version for what was written. What is flushed and could be written nowhere gathers again
//! when the virtual disk is cleared, as it would after the pool was opened anew. What was never flushed is given up
//! then, and told by range: what was there before is read there again.
//!
//! Invariants
//! 1. What gathers again lies below all that was written since, in flight or not.
//! 2. A flush that a version had to be down for is done only when that has landed after it gathered again.

use super::Vdisk;
use crate::error::Result;
use crate::fail;
use crate::mutant::{self, Mutant};
use crate::segment::allocate::Claim;
use crate::stripe::sealed::Sealed;
use alloc::collections::BTreeSet;
use alloc::rc::Rc;
use alloc::vec;
use alloc::vec::Vec;
use core::ops::Range;

impl Vdisk {
    /// Finds the ranges, in bytes, whose last writes [`Vdisk::clear`] would give up. Changes nothing.
    pub fn plan_clear(&self) -> Vec<Range<u64>> {
        let (len, size) = (self.layout().data_len().0, self.size().0);
        let mut ranges: Vec<Range<u64>> = Vec::new();
        for stripe in self.lost_stripes().into_iter().filter(|stripe| !self.keeps_newest(*stripe)) {
            let range = stripe * len..(stripe * len + len).min(size);
            match ranges.last_mut().filter(|last| last.end == range.start) {
                Some(last) => last.end = range.end,
                None => ranges.push(range),
            }
        }
        ranges
    }

    /// Lets it serve again after writes were lost for good. Returns the ranges, in bytes, whose last writes are given
    /// up. Fails, and changes as little as that, where there is no room for flushed data to gather in.
    pub fn clear(self: &Rc<Self>) -> Result<Vec<Range<u64>>> {
        self.check_clearable()?;
        let given_up = self.plan_clear();
        for stripe in self.lost_stripes() {
            self.restore_newest(stripe)?;
        }
        *self.failed.borrow_mut() = None;
        // What lies below may be within reach now.
        self.set_aside.borrow_mut().clear();
        self.goes_on();
        Ok(given_up)
    }

    /// Has lost stripes gather again whose newest content is in memory, and that no run gave up. Where one finds no
    /// free stripe to gather in it stays lost until this is called again, or the virtual disk is cleared.
    pub(crate) fn gather_lost(self: &Rc<Self>) {
        if self.removed.get() || self.store.read_only || !self.store.limbo.has_lost(self.table()) {
            return;
        }
        let abandoned = |stripe: &u64| self.abandoned.borrow().contains(stripe);
        let mut lost = self.store.limbo.lost_of(self.table());
        lost.retain(|stripe| !abandoned(stripe) && self.keeps_newest(*stripe) && !mutant::active(Mutant::KeptIsLost));
        let mut again = 0;
        for stripe in lost {
            again += self.restore_newest(stripe).is_ok() as u64;
        }
        if again > 0 {
            self.counters.gathered_again.set(self.counters.gathered_again.get() + again);
            self.goes_on();
        }
    }

    /// Wakes who waits for what has just gathered again.
    fn goes_on(self: &Rc<Self>) {
        self.start_idle_timer();
        self.moved.notify();
        self.store.signals.room.notify();
    }

    /// Has the newest version of a lost stripe that memory has gather again, if there is one. It is lost no more.
    fn restore_newest(self: &Rc<Self>, stripe: u64) -> Result<()> {
        let table = self.table();
        let kept = self.kept.borrow().get(&stripe).cloned();
        let below = self.store.limbo.landed(table, stripe);
        self.gather_again(stripe, kept.iter().chain(&below))?;
        // Its buffer holds from here on what the log does.
        if let Some(sealed) = self.kept.borrow_mut().remove(&stripe) {
            self.store.traffic.budgets.kept.give(sealed.memory() as u64);
        }
        // Nothing takes its place but what is in the log already: no flush waits for a record that may never come.
        drop(self.store.limbo.forget(table, stripe, self.store.log.seq().saturating_sub(1)));
        self.store.map.borrow_mut().fine_given_up(table, stripe);
        self.abandoned.borrow_mut().remove(&stripe);
        self.seal_if_whole(stripe);
        Ok(())
    }

    /// Refuses whatever [`Vdisk::clear`] would refuse, but for want of room.
    pub fn check_clearable(&self) -> Result<()> {
        self.check_there()?;
        self.store.check_writable()
    }

    fn lost_stripes(&self) -> BTreeSet<u64> {
        let abandoned = self.abandoned.borrow();
        abandoned.iter().copied().chain(self.store.limbo.lost_of(self.table())).collect()
    }

    /// Whether the newest content of a stripe is still in memory, since the log holds some of it.
    fn keeps_newest(&self, stripe: u64) -> bool {
        let kept = self.kept.borrow().contains_key(&stripe);
        let landed = || self.store.limbo.landed(self.table(), stripe).is_some();
        kept || !self.abandoned.borrow().contains(&stripe) && landed()
    }

    /// Puts the content of a stripe, of which the log holds some, into its buffer, below what gathers there already.
    /// `versions`: the newest first.
    fn gather_again<'a>(&self, stripe: u64, mut versions: impl Iterator<Item = &'a Rc<Sealed>> + Clone) -> Result<()> {
        let all = versions.clone();
        let Some(newest) = versions.next() else { return Ok(()) };
        if self.with_filling(stripe, |_| ()).is_none() {
            let (table, mut records) = (self.table(), Vec::new());
            let claimed = {
                let mut map = self.store.map.borrow_mut();
                map.ensure_chunk(table, stripe, &mut records).is_ok()
                    && map.claim(table, Claim::Overwrite, &mut records)
            };
            self.store.append_all(records);
            if !claimed {
                return fail!(
                    NoSpace,
                    "flushed data waits for a free stripe of {}, and there is none; add a disk or delete data first",
                    self.layout()
                );
            }
            self.open_buffer(stripe);
        }
        for hole in self.with_filling(stripe, |buffer| buffer.holes()).unwrap_or_default() {
            let mut bytes = vec![0; hole.len()];
            newest.get(hole.start, &mut bytes);
            if let Some(newer) = self.in_flight(stripe).filter(|_| !mutant::active(Mutant::GathersOverNewer)) {
                newer.get(hole.start, &mut bytes);
            }
            let growth = self.with_filling(stripe, |buffer| {
                let growth = buffer.growth(hole.start, bytes.len());
                buffer.put(hole.start, &bytes, false);
                growth
            });
            self.store.buffered_changed(growth.unwrap_or(0) as i64);
            self.unlanded.borrow_mut().insert(stripe);
        }
        // The log keeps what it holds of the stripe until all of it is on the disks: under the name of the buffer.
        for sealed in all {
            let listed = self.with_filling(stripe, |buffer| {
                buffer.written = true;
                let before = buffer.landed.oldest();
                buffer.landed.take_over(&sealed.landed.borrow());
                (before, buffer.landed.oldest())
            });
            let Some((before, now)) = listed else { continue };
            self.store.relist(self.id, stripe, sealed.landed_from(), None);
            self.store.relist(self.id, stripe, before, now);
        }
        Ok(())
    }
}
