//! Flush: every write that completed before it is durable after it, on whichever connection either came.
//!
//! 1. What gathers in a partial stripe is landed: its new bytes go to the log. The buffer stays, so the stripe can
//!    still leave whole a moment later. Where that would be much, long partial stripes that seem to be finished are
//!    merged and leave instead: that writes them once.
//! 2. Stripes that fly are waited for, but for those of which the log holds all that was written into them: what is
//!    moved, or merged after it was landed. Where the log lies on other disks, what it lacks of them is landed, too.
//! 3. The log is made durable; that brings the data of the stripes in flight with it (see `store/commit.rs`).

use super::write::RETRY;
use super::{Gathering, Vdisk, add};
use crate::error::{ErrorKind, Result};
use crate::exec::LocalBoxFuture;
use crate::format::record::{LandedRecord, Record};
use crate::log::Room;
use crate::mutant::{self, Mutant};
use crate::segment::allocate::Claim;
use crate::stripe::buffer::in_pieces;
use crate::stripe::landed::Landed;
use crate::stripe::sealed::Sealed;
use crate::units::{BLOCK, Nanos};
use alloc::borrow::Cow;
use alloc::boxed::Box;
use alloc::rc::Rc;
use alloc::vec;
use alloc::vec::Vec;
use core::ops::Range;

/// The most bytes of stripes that landed while they were in flight, and are not down yet. A quarter of the memory for
/// buffers may be less. Who flushes more waits for disks: these are what is short then, and nobody waits long.
const IN_FLIGHT_MAX: u64 = 64 << 20;

impl Vdisk {
    /// Makes every completed write durable.
    pub fn flush(self: &Rc<Self>) -> LocalBoxFuture<'_, Result<()>> {
        Box::pin(async move {
            let _pass = self.enter().await;
            self.flush_now().await
        })
    }

    /// [`Vdisk::flush`] for who is inside already.
    pub(super) async fn flush_now(self: &Rc<Self>) -> Result<()> {
        self.admit(crate::units::VirtualOffset(0), 0)?;
        if self.store.read_only {
            return Ok(());
        }
        let stripes = match mutant::active(Mutant::FlushWaitsForMoved) {
            true => self.stripes.borrow().keys().copied().collect(),
            false => self.unlanded.borrow().iter().copied().collect(),
        };
        self.persist(stripes).await
    }

    /// Makes what is in the buffers of `stripes` now durable.
    pub(super) fn persist(self: &Rc<Self>, mut stripes: Vec<u64>) -> LocalBoxFuture<'_, Result<()>> {
        Box::pin(async move {
            add(&self.counters.flushes, 1);
            self.hold_flushed();
            loop {
                let seen = self.counters.gathered_again.get();
                self.flushes_waiting.set(self.flushes_waiting.get() + 1);
                self.store.flush_begins();
                let left = self.leave_buffers(stripes).await;
                self.flushes_waiting.set(self.flushes_waiting.get() - 1);
                left?;
                let waits = self.store.flush_waits();
                self.until_durable().await?;
                drop(waits);
                self.gather_lost();
                if self.counters.gathered_again.get() == seen || mutant::active(Mutant::GatheredAgainForgotten) {
                    break;
                }
                stripes = self.unlanded.borrow().iter().copied().collect();
            }
            match self.failure() {
                Some(error) => Err(error),
                None => Ok(()),
            }
        })
    }

    /// Whether a flush waits for stripes of this virtual disk.
    pub(super) fn is_flushed(&self) -> bool {
        self.flushes_waiting.get() > 0 && !mutant::active(Mutant::FlushWaitsForItself)
    }

    /// Waits until what is in the buffers of `stripes` now is in the log, or written and committed there.
    async fn leave_buffers(self: &Rc<Self>, stripes: Vec<u64>) -> Result<()> {
        let since = self.store.world.now();
        self.destage_bulk(&stripes).await;
        let mut rest = stripes.clone();
        while !rest.is_empty() {
            for stripe in &rest {
                self.land_in_flight(*stripe).await?;
                self.land(*stripe, since).await?;
            }
            // Looked at only now: what gathered behind a version in flight may be sealed since others were landed.
            let in_flight = rest.iter().filter_map(|stripe| Some((*stripe, self.in_flight(*stripe)?)));
            let in_flight: Vec<_> = in_flight.filter(|(_, sealed)| !sealed.is_landed()).collect();
            rest.clear();
            for (stripe, sealed) in in_flight {
                while self.in_flight(stripe).is_some_and(|now| Rc::ptr_eq(&now, &sealed)) && !sealed.is_landed() {
                    self.check_flows()?;
                    self.moved.changed().await;
                    self.land_in_flight(stripe).await?;
                }
                // What could not be packed gathers again.
                rest.extend(sealed.part().map(|_| stripe));
            }
        }
        stripes.into_iter().for_each(|stripe| self.note_landed(stripe));
        Ok(())
    }

    /// Notes that flushes need not look at a stripe, where that is so: the log has all that was written into its
    /// buffers, or it has none.
    pub(super) fn note_landed(&self, stripe: u64) {
        let stripes = self.stripes.borrow();
        let has_landed = stripes.get(&stripe).is_none_or(|Gathering { filling, in_flight }| {
            let gathers = filling.as_ref().is_some_and(|buffer| buffer.unlanded_len() > 0);
            let gathers = gathers && !mutant::active(Mutant::GatheredForgotten);
            !gathers && in_flight.as_ref().is_none_or(|sealed| sealed.is_landed())
        });
        if has_landed {
            self.unlanded.borrow_mut().remove(&stripe);
        }
    }

    /// Waits until the log is durable as far as it goes now, and with it what it speaks of.
    async fn until_durable(&self) -> Result<()> {
        let (log, limbo) = (&self.store.log, &self.store.limbo);
        let mut until = log.seq();
        loop {
            self.store.make_durable(until).await?;
            self.check_there()?;
            // What was written to disks that are missing now is durable only once they are back.
            if limbo.since(self.table()).is_some() {
                self.check_flows()?;
                self.store.world.sleep(RETRY).await;
                self.check_there()?;
                until = log.seq();
                continue;
            }
            // What took its place meanwhile came after what was waited for.
            until = limbo.successors_until(self.table());
            if until <= log.durable() {
                return Ok(());
            }
        }
    }

    /// Appends what the log does not have yet of a gathering stripe. More than the log takes in one record leaves as a
    /// stripe instead. The flush began to land `since`.
    async fn land(self: &Rc<Self>, stripe: u64, since: Nanos) -> Result<()> {
        let unlanded = self.with_filling(stripe, |buffer| buffer.unlanded_len()).unwrap_or(0) as u64;
        if unlanded == 0 {
            return Ok(());
        }
        if unlanded + 4096 > self.store.log.record_max() {
            loop {
                match self.destage_and_wait(stripe).await {
                    Err(error) if error.kind == ErrorKind::Frozen => {
                        self.check_flows()?;
                        self.store.world.sleep(RETRY).await;
                        self.check_there()?;
                    }
                    other => return other,
                }
            }
        }
        // What is whole waits for no room: it leaves, and the flush waits for it like for others in flight.
        if !self.lands_at_once(unlanded + 4096) && self.with_filling(stripe, |buffer| buffer.is_whole()) == Some(true) {
            self.seal_if_whole(stripe);
            // It gathers on behind a version in flight.
            let left = self.with_filling(stripe, |buffer| buffer.unlanded_len()).unwrap_or(0);
            if left == 0 || mutant::active(Mutant::WholeGathersUnlanded) {
                return Ok(());
            }
        }
        self.reserve_landing(unlanded + 4096, since).await?;
        self.land_now(stripe);
        self.store.log.unreserve(unlanded + 4096);
        Ok(())
    }

    /// Appends what the log does not have yet of a stripe in flight, where that has room: who flushes need not wait for
    /// its disks then.
    async fn land_in_flight(&self, stripe: u64) -> Result<()> {
        let lands = || self.in_flight(stripe).filter(|sealed| self.lands_in_flight(stripe, sealed));
        let Some(sealed) = lands() else { return Ok(()) };
        let len = sealed.unlanded_len() as u64 + 4096;
        if len > self.store.log.record_max() || !self.store.log.has_room(len, Room::Landing) {
            return Ok(());
        }
        self.store.log.reserve(len, Room::Landing).await?;
        if lands().is_some_and(|now| Rc::ptr_eq(&now, &sealed)) {
            let before = sealed.landed_from();
            self.append_landing(stripe, sealed.land(self.store.log.piece()), |seq, range| {
                if !mutant::active(Mutant::LandedInFlightForgotten) {
                    sealed.landed.borrow_mut().add(seq, range);
                }
            });
            if !mutant::active(Mutant::LandedInFlightNotRetired) {
                sealed.retire_below(self.store.log.seq());
            }
            self.store.relist(self.id, stripe, before, sealed.landed_from());
            sealed.landed_in_flight.set(true);
            self.landed_in_flight.set(self.landed_in_flight.get() + sealed.memory() as u64);
        }
        self.store.log.unreserve(len);
        Ok(())
    }

    /// Whether the rest of a stripe in flight is landed by who flushes: there are not too many such, nothing else has
    /// him wait for its disks, and nothing that was written after it has landed.
    fn lands_in_flight(&self, stripe: u64, sealed: &Sealed) -> bool {
        let newer = || self.with_filling(stripe, |buffer| buffer.landed.oldest()).flatten();
        let is_newest = || newer().is_none() || mutant::active(Mutant::OlderLandsLater);
        let waits = || self.store.limbo.has_unflushed() || !self.store.is_log_apart(sealed.home().table);
        let most = IN_FLIGHT_MAX.min(self.store.traffic.budgets.buffers.limit() / 4);
        let few = self.landed_in_flight.get() < most || mutant::active(Mutant::LandsAnyBacklog);
        let is_whole = sealed.part().is_none() && !self.removed.get();
        is_whole && sealed.unlanded_len() > 0 && few && is_newest() && !waits()
    }

    /// Moves what log records below `bound` hold of a stripe to the log's head, as far as there is room for that: what
    /// gathers, what is on its way, and what waits in limbo or could be written nowhere.
    pub(crate) fn move_landed(&self, stripe: u64, bound: u64) {
        if self.removed.get() {
            return;
        }
        let kept = self.kept.borrow().get(&stripe).cloned();
        let in_limbo = self.store.limbo.landed(self.table(), stripe);
        for sealed in [kept, in_limbo, self.in_flight(stripe)].into_iter().flatten() {
            let mut landed = core::mem::take(&mut *sealed.landed.borrow_mut());
            // Its newest content, so that no older one follows what was landed since.
            let newest = self.in_flight(stripe).unwrap_or_else(|| sealed.clone());
            self.move_below(stripe, bound, &mut landed, |at, bytes| {
                // One that is not whole has some of it only.
                sealed.get(at, bytes);
                newest.get(at, bytes);
                self.with_filling(stripe, |buffer| drop(buffer.get(at, bytes)));
            });
            *sealed.landed.borrow_mut() = landed;
        }
        let landed = self.with_filling(stripe, |buffer| core::mem::take(&mut buffer.landed));
        let Some(mut landed) = landed else { return };
        self.move_below(stripe, bound, &mut landed, |at, bytes| {
            self.with_filling(stripe, |buffer| drop(buffer.get(at, bytes)));
        });
        self.with_filling(stripe, |buffer| buffer.landed = landed);
    }

    fn move_below(&self, stripe: u64, bound: u64, landed: &mut Landed, content: impl Fn(usize, &mut [u8])) {
        let before = landed.oldest();
        let runs = landed.below(bound);
        let pieces: Vec<_> = runs.into_iter().flat_map(|run| in_pieces(run, self.store.log.piece())).collect();
        for piece in pieces {
            if !self.store.log.has_room(piece.len() as u64 + BLOCK, Room::Moving) {
                break;
            }
            let mut bytes = vec![0; piece.len()];
            content(piece.start, &mut bytes);
            landed.add(self.append_landed(stripe, piece.start, bytes), piece);
        }
        self.store.relist(self.id, stripe, before, landed.oldest());
    }

    fn append_landed(&self, stripe: u64, at: usize, bytes: Vec<u8>) -> u64 {
        let start = stripe * self.layout().data_len().0;
        // The last stripe may reach beyond the disk's end.
        let len = (bytes.len() as u64).min(self.size().0.saturating_sub(start + at as u64)) as usize;
        let data = Cow::Owned(bytes[..len].to_vec());
        self.store.log.append(&Record::Landed(LandedRecord { vdisk: self.id, offset: start + at as u64, data }))
    }

    fn land_now(&self, stripe: u64) {
        // It may have been removed while the log had no room.
        if self.removed.get() {
            return;
        }
        let piece = self.store.log.piece();
        let landing = self.with_filling(stripe, |buffer| (buffer.landed.oldest(), buffer.land(piece)));
        let Some((before, landing)) = landing else { return };
        self.append_landing(stripe, landing, |seq, range| {
            self.with_filling(stripe, |buffer| buffer.landed.add(seq, range));
        });
        let now = self.with_filling(stripe, |buffer| buffer.landed.oldest()).flatten();
        self.store.relist(self.id, stripe, before, now);
    }

    /// Appends what lands of a stripe; tells which record has which bytes.
    fn append_landing(&self, stripe: u64, landing: Vec<(usize, Vec<u8>)>, has: impl Fn(u64, Range<usize>)) {
        for (at, bytes) in landing {
            add(&self.counters.landed, bytes.len() as u64);
            let range = at..at + bytes.len();
            has(self.append_landed(stripe, at, bytes), range);
        }
    }

    /// Takes landed data from the log after a crash: it is durable, and belongs into a stripe.
    pub(crate) fn restore_landed(self: &Rc<Self>, seq: u64, offset: u64, data: &[u8]) -> Result<()> {
        self.admit(crate::units::VirtualOffset(offset), data.len())?;
        let (layout, table) = (self.layout(), self.table());
        for (stripe, at, range) in self.pieces(crate::units::VirtualOffset(offset), data.len()) {
            let mut stripes = self.stripes.borrow_mut();
            let gathering = stripes.entry(stripe).or_default();
            let fresh = gathering.filling.is_none();
            self.buffers.set(self.buffers.get() + fresh as u64);
            let now = self.store.world.now();
            let id = self.buffers.get();
            let buffer =
                gathering.filling.get_or_insert_with(|| crate::stripe::buffer::StripeBuffer::new(layout, id, now));
            let len = range.len();
            self.store.buffered_changed(buffer.growth(at, len) as i64);
            buffer.put(at, &data[range], true);
            buffer.written = true;
            let before = buffer.landed.oldest();
            buffer.landed.add(seq, at..at + len);
            self.store.relist(self.id, stripe, before, buffer.landed.oldest());
            drop(stripes);
            if fresh {
                let mut records = Vec::new();
                let mut map = self.store.map.borrow_mut();
                map.ensure_chunk(table, stripe, &mut records)?;
                // It had its claim before the crash, so there is room; an overwrite may take the last.
                map.claim(table, Claim::Overwrite, &mut records);
                drop(map);
                self.store.append_all(records);
            }
        }
        Ok(())
    }

    /// Looks at the gathering buffer of `stripe`.
    pub(super) fn with_filling<T>(
        &self,
        stripe: u64,
        look: impl FnOnce(&mut crate::stripe::buffer::StripeBuffer) -> T,
    ) -> Option<T> {
        let mut stripes = self.stripes.borrow_mut();
        stripes.get_mut(&stripe).and_then(|gathering| gathering.filling.as_mut()).map(look)
    }
}
