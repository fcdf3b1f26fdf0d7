//! Gathering: the bytes of a write are copied into the buffers of the stripes they fall in. A new buffer first gets
//! memory, and a claim on a free stripe.
//!
//! Invariants
//! 1. Whoever opens a buffer has claimed a free stripe for it: what is gathered can leave.
//! 2. Who waits for memory, or for a free stripe, waits only while something is on its way that may bring some, or
//!    while disks may be back in a moment. Then he is refused.
//! 3. The last segments are not made for what gathers while they are enough to pack it: packed, it needs one stripe
//!    where it had claimed hundreds, but nobody packs where no stripe is left.

use super::Vdisk;
use super::write::RETRY;
use crate::error::Result;
use crate::exec::LocalBoxFuture;
use crate::fail;
use crate::segment::allocate::Claim;
use crate::store::budget::{Budget, Ticket};
use crate::store::freeze::frozen;
use crate::store::lost;
use crate::stripe::buffer::StripeBuffer;
use crate::units::Nanos;
use alloc::boxed::Box;
use alloc::format;
use alloc::rc::Rc;
use alloc::string::String;
use alloc::vec::Vec;

impl Vdisk {
    /// Copies bytes into the buffer of `stripe`, which is opened if need be, once there are memory and a free stripe
    /// for it. `keep`: a stripe of nothing but zeros takes space, too.
    pub(super) async fn gather(self: &Rc<Self>, stripe: u64, at: usize, bytes: &[u8], keep: bool) -> Result<()> {
        if self.has_room(stripe, at, bytes.len(), None) && self.put(stripe, at, bytes, keep) {
            return Ok(());
        }
        self.gather_waiting(stripe, at, bytes, keep).await
    }

    /// Does so where it may have to wait.
    fn gather_waiting<'a>(
        self: &'a Rc<Self>,
        stripe: u64,
        at: usize,
        bytes: &'a [u8],
        keep: bool,
    ) -> LocalBoxFuture<'a, Result<()>> {
        Box::pin(async move {
            let store = self.store.clone();
            let mut ticket = None;
            let gathered =
                self.gather_later(stripe, at, bytes, keep, &store.traffic.budgets.buffers, &mut ticket).await;
            if ticket.take().is_some() {
                // Whoever is next in the queue may look again.
                store.signals.room.notify();
            }
            gathered
        })
    }

    async fn gather_later<'a>(
        self: &Rc<Self>,
        stripe: u64,
        at: usize,
        bytes: &[u8],
        keep: bool,
        budget: &'a Budget,
        ticket: &mut Option<Ticket<'a>>,
    ) -> Result<()> {
        loop {
            // From here to the copying nothing waits: the room that was found is still there.
            if !self.has_room(stripe, at, bytes.len(), ticket.as_ref()) {
                let fresh = self.with_filling(stripe, |_| ()).is_none();
                // Those of a virtual disk that holds what cannot leave do not make others wait.
                ticket.get_or_insert_with(|| budget.wait(fresh && self.stuck_bytes.get() == 0));
                self.wait_for_room().await?;
                continue;
            }
            if self.put(stripe, at, bytes, keep) {
                return Ok(());
            }
            self.claim(stripe).await?;
            // Another write may have opened the buffer, or have taken the room, while this one waited.
            let there = self.with_filling(stripe, |_| ()).is_some();
            if there || !self.has_room(stripe, at, bytes.len(), ticket.as_ref()) {
                let table = self.table();
                self.store.map.borrow_mut().unclaim(table);
                continue;
            }
            self.open_buffer(stripe);
        }
    }

    /// Whether there is memory for `len` bytes at `at` of `stripe`.
    fn has_room(&self, stripe: u64, at: usize, len: usize, ticket: Option<&Ticket<'_>>) -> bool {
        let look = |buffer: &mut StripeBuffer| (buffer.growth(at, len), buffer.memory());
        let (growth, own) =
            self.with_filling(stripe, look).unwrap_or_else(|| (StripeBuffer::memory_for(self.layout(), at, len), 0));
        growth == 0
            || self.store.traffic.budgets.buffers.admits(growth as u64, own as u64, self.stuck_bytes.get() == 0, ticket)
    }

    /// Waits until there may be more room than before. Fails where too much of what is held cannot leave.
    async fn wait_for_room(&self) -> Result<()> {
        let stuck = self.stuck_bytes.get();
        if stuck > 0 && self.store.traffic.budgets.buffers.is_hopeless(self.store.signals.changes.get()) {
            // Disks that have just gone may be back in a moment, and what lies there with them.
            if self.store.awaits_disks() {
                self.store.world.sleep(RETRY).await;
                return Ok(());
            }
            return Err(lost(format!(
                "there is no memory for the write: {stuck} bytes of it are partial stripes of this virtual disk that \
                 cannot be merged, for what lies below them is out of reach"
            )));
        }
        // Who comes here once clients are refused is not woken any more.
        self.check_flows()?;
        let room = self.store.signals.room.changed();
        self.store.log.pressure.notify();
        room.await;
        self.store.check_writable()?;
        self.check_flows()?;
        self.check_there()
    }

    /// Copies bytes into the gathering buffer of `stripe`. `false`: there is none.
    fn put(self: &Rc<Self>, stripe: u64, at: usize, bytes: &[u8], keep: bool) -> bool {
        let now = self.store.world.now();
        let mut stripes = self.stripes.borrow_mut();
        let Some(buffer) = stripes.get_mut(&stripe).and_then(|gathering| gathering.filling.as_mut()) else {
            return false;
        };
        self.store.buffered_changed(buffer.growth(at, bytes.len()) as i64);
        buffer.put(at, bytes, false);
        self.unlanded.borrow_mut().insert(stripe);
        if keep {
            buffer.written = true;
            self.partial_discards.borrow_mut().wrote(stripe, at..at + bytes.len());
        }
        buffer.touched = now;
        self.touched.set(now);
        drop(stripes);
        self.seal_or_hold(stripe);
        true
    }

    /// Opens a gathering buffer for `stripe`, for which a free stripe was claimed.
    pub(super) fn open_buffer(&self, stripe: u64) {
        let (layout, now) = (self.layout(), self.store.world.now());
        self.buffers.set(self.buffers.get() + 1);
        let mut stripes = self.stripes.borrow_mut();
        stripes.entry(stripe).or_default().filling = Some(StripeBuffer::new(layout, self.buffers.get(), now));
    }

    /// Claims a free stripe for `stripe`; waits while some may still become free.
    async fn claim(self: &Rc<Self>, stripe: u64) -> Result<()> {
        let (mut reliefs, mut rises) = (None, 0);
        let (mut waits, mut asked) = (None, false);
        loop {
            self.store.check_writable()?;
            self.check_flows()?;
            let _held = self.load_or_wait(stripe..stripe + 1).await?;
            self.check_there()?;
            if !asked && self.is_packed_first() {
                let room = self.store.signals.room.changed();
                asked = true;
                self.store.signals.wants_packing.set(true);
                self.store.log.pressure.notify();
                room.await;
                continue;
            }
            let table = self.table();
            let mut records = Vec::new();
            let claimed = {
                let mut map = self.store.map.borrow_mut();
                let overwrites = map.place_of(table, stripe).is_some();
                let what = if overwrites { Claim::Overwrite } else { Claim::New };
                map.ensure_chunk(table, stripe, &mut records).is_ok() && map.claim(table, what, &mut records)
            };
            self.store.append_all(records);
            if claimed {
                return Ok(());
            }
            if self.rises_for(stripe, &mut rises).await {
                continue;
            }
            if let Some(reason) = self.lacks_disks() {
                // Not full: there is nothing to write to until they are back.
                if !self.wait_a_moment_for_disks(&mut waits).await {
                    return Err(frozen(reason));
                }
                continue;
            }
            // What is read ahead keeps no place from those who need it.
            self.store.forget_streams(None);
            // Stripes that fly, or move, and records that are to be durable, tell by themselves when they are. Partial
            // ones have to be asked to leave; where even that has brought nothing, nothing will.
            let room = self.store.signals.room.changed();
            if self.store.asks_for_slabs(table) {
                room.await;
                continue;
            }
            let in_flight = self.awaits_places();
            let gathers = self.is_stacked() || self.stripes.borrow().values().any(|now| now.filling.is_some());
            // One may have been under way when this began to wait.
            let all = self.store.signals.reliefs.get();
            let relieved = all - *reliefs.get_or_insert(all) >= 2;
            if !in_flight && (!gathers || relieved) {
                // Full is what the disks are that are there; others may be back in a moment.
                if self.store.awaits_room() && self.wait_a_moment_for_disks(&mut waits).await {
                    continue;
                }
                return fail!(
                    NoSpace,
                    "the pool is full: no stripe of {} is free; add a disk, delete data, or discard",
                    self.layout()
                );
            }
            self.store.signals.wants_stripes.set(true);
            self.store.log.demand();
            self.store.log.pressure.notify();
            room.await;
        }
    }

    /// Whether free places come by themselves, and tell so: stripes fly, or move, or what they replaced is about to be
    /// free.
    pub(crate) fn awaits_places(&self) -> bool {
        self.packing.get() > 0 || self.store.commits.in_flight.get() > 0 || self.store.map.borrow().is_freeing()
    }

    /// Waits for disks for a moment. `false`: it did so since `since` for as long as anybody may.
    async fn wait_a_moment_for_disks(&self, since: &mut Option<Nanos>) -> bool {
        if self.store.is_timeout_over(*since.get_or_insert(self.store.world.now())) {
            return false;
        }
        self.store.world.sleep(RETRY).await;
        true
    }

    /// What is missing where stripes of this layout can be written nowhere, because disks are away.
    fn lacks_disks(&self) -> Option<String> {
        let map = self.store.map.borrow();
        let record = &map.tables[&self.table_of(&map)].record;
        let (there, needed) = (map.disks_for(record.disks).count(), record.layout.slots() - record.layout.failures());
        let away = self.store.members.borrow().values().any(|member| member.disk.is_none());
        (away && there < needed)
            .then(|| format!("{} takes at least {needed} disks to be written, {there} are there", record.layout))
    }
}
