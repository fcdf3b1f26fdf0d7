//! Discard and zeroes. Whole stripes are unmapped: they read as zeros and their space is free once that is durable.
//! What is left at the edges is kept by a discard (it is advice), and written as zeros by a zeroing (it is a promise),
//! until nothing else is left in its stripe (see [`super::given`]).
//!
//! Above older tables of a stack an unmapped stripe becomes zero: they would else be read.

use super::{Vdisk, add};
use crate::error::{ErrorKind, Result};
use crate::exec::LocalBoxFuture;
use crate::format::page::CHUNK_ENTRIES;
use crate::format::record::{Record, UnmapRecord};
use crate::log::Room;
use crate::mutant::{self, Mutant};
use crate::units::VirtualOffset;
use alloc::boxed::Box;
use alloc::collections::BTreeSet;
use alloc::rc::Rc;
use alloc::vec;
use alloc::vec::Vec;
use core::ops::Range;

/// Bytes of the log that an unmapping is given: of a range of which a part lies above older tables.
pub(super) const RECORD_LEN: u64 = 128;
/// Zeros are gathered in pieces of this many bytes.
const ZEROS: usize = 64 << 10;

impl Vdisk {
    /// Forgets the whole stripes inside the range, and those of which the rest was given back before.
    pub fn discard(self: &Rc<Self>, offset: VirtualOffset, len: u64, fua: bool) -> LocalBoxFuture<'_, Result<()>> {
        Box::pin(async move {
            let _pass = self.enter().await;
            self.admit_write(offset, len as usize)?;
            let whole = self.whole_stripes(offset, len);
            let mut unmapped = match self.unmap(whole.clone()).await {
                // It is advice: where there is no room to remember it, all stays as it is.
                Err(error) if error.kind == ErrorKind::NoSpace => return Ok(()),
                other => other?,
            };
            for edge in self.edges(offset, len, whole) {
                self.check_there()?;
                for (stripe, at, bytes) in self.pieces(VirtualOffset(edge.start), (edge.end - edge.start) as usize) {
                    unmapped |=
                        !self.reads_zeros(stripe).await? && self.give_back(stripe, at..at + bytes.len()).await?;
                }
            }
            if fua && unmapped { self.store.make_durable(self.store.log.seq()).await } else { Ok(()) }
        })
    }

    /// Makes the range read as zeros. `keep`: its space stays taken.
    pub fn write_zeroes(
        self: &Rc<Self>,
        offset: VirtualOffset,
        len: u64,
        keep: bool,
        fua: bool,
    ) -> LocalBoxFuture<'_, Result<()>> {
        Box::pin(async move {
            let _pass = self.enter().await;
            self.admit_write(offset, len as usize)?;
            add(&self.counters.writes, 1);
            if keep {
                self.hold_wrote(len);
            }
            let whole = if keep { 0..0 } else { self.whole_stripes(offset, len) };
            self.unmap(whole.clone()).await?;
            for edge in self.edges(offset, len, whole) {
                self.gather_zeros(edge, keep).await?;
            }
            if fua { self.flush_now().await } else { Ok(()) }
        })
    }

    async fn gather_zeros(self: &Rc<Self>, range: Range<u64>, keep: bool) -> Result<()> {
        self.check_there()?;
        let zeros = vec![0; ZEROS];
        for (stripe, at, bytes) in self.pieces(VirtualOffset(range.start), (range.end - range.start) as usize) {
            if !keep && (self.reads_zeros(stripe).await? || self.give_back(stripe, at..at + bytes.len()).await?) {
                continue;
            }
            let mut done = 0;
            while done < bytes.len() {
                let take = ZEROS.min(bytes.len() - done);
                self.gather(stripe, at + done, &zeros[..take], keep).await?;
                done += take;
            }
            self.forget_blank(stripe, || self.check_flows()).await?;
        }
        Ok(())
    }

    /// Whether nothing is where `stripe` would be: it reads as zeros.
    async fn reads_zeros(&self, stripe: u64) -> Result<bool> {
        self.check_there()?;
        let _held = self.load_or_wait(stripe..stripe + 1).await?;
        self.check_there()?;
        let (map, len) = (self.store.map.borrow(), self.layout().data_len().0);
        Ok(!self.stripes.borrow().contains_key(&stripe)
            && map.place_of(self.table(), stripe).is_none()
            && !map.has_fine(self.table(), stripe)
            && (map.is_zero(self.table(), stripe) || !self.lies_below(VirtualOffset(stripe * len), len)))
    }

    /// Unmaps `stripe` if its buffer is whole and nothing but zeros that nobody wrote. Says whether it was.
    pub(super) async fn forget_blank(&self, stripe: u64, admitted: impl Fn() -> Result<()>) -> Result<bool> {
        let blank = || self.with_filling(stripe, |buffer| buffer.is_blank()).unwrap_or(false);
        if !blank() {
            return Ok(false);
        }
        while self.in_flight(stripe).is_some() {
            admitted()?;
            self.moved.changed().await;
        }
        self.forget_if(stripe, blank, admitted).await
    }

    /// Unmaps `stripe`, no version of which is in flight, if it is still `so` when there is room for that in the log.
    /// Says whether it was. `admitted`: an error where whoever asks may wait no longer.
    pub(super) async fn forget_if(
        &self,
        stripe: u64,
        so: impl Fn() -> bool,
        admitted: impl Fn() -> Result<()>,
    ) -> Result<bool> {
        let landed = self.with_filling(stripe, |buffer| buffer.landed.oldest().is_some()).unwrap_or(false);
        let room = if landed { Room::Destage } else { Room::Commit };
        let _held = match self.load_places(stripe..stripe + 1).await {
            Ok(held) => held,
            // It stays what it is: whoever needs to know its place is told.
            Err(_) => return Ok(false),
        };
        if self.removed.get() {
            return Ok(false);
        }
        self.store.log.reserve_unless(RECORD_LEN, room, admitted).await?;
        // Somebody may have written into it meanwhile.
        let still = so() && self.in_flight(stripe).is_none() && !self.removed.get();
        let forgotten = if still { self.forget(stripe..stripe + 1) } else { Ok(false) };
        self.store.log.unreserve(RECORD_LEN);
        forgotten.map(|_| still)
    }

    /// The stripes that lie wholly inside a range. The disk's last stripe counts as whole when the range reaches the
    /// disk's end.
    fn whole_stripes(&self, offset: VirtualOffset, len: u64) -> Range<u64> {
        let data_len = self.layout().data_len().0;
        let end = offset.0 + len;
        let last = if end == self.size().0 { end.div_ceil(data_len) } else { end / data_len };
        let first = offset.0.div_ceil(data_len);
        first..last.max(first)
    }

    /// What is left of a range before and behind its whole stripes.
    fn edges(&self, offset: VirtualOffset, len: u64, whole: Range<u64>) -> impl Iterator<Item = Range<u64>> + use<> {
        let (data_len, end) = (self.layout().data_len().0, offset.0 + len);
        let edges = if whole.is_empty() {
            [offset.0..end, end..end]
        } else {
            [offset.0..whole.start * data_len, (whole.end * data_len).min(end)..end]
        };
        edges.into_iter().filter(|edge| !edge.is_empty())
    }

    /// Unmaps stripes, buffers included. Returns whether there was anything to forget.
    async fn unmap(&self, stripes: Range<u64>) -> Result<bool> {
        let (mut unmapped, mut from) = (false, stripes.start);
        while from < stripes.end {
            self.check_there()?;
            // No more of it than one page of the table tells of, or than there is none for.
            let page = self.store.next_page(self.table(), from);
            let until = page.map_or(stripes.end, |page| if page.start > from { page.start } else { page.end });
            let part = from..until.min(stripes.end);
            from = part.end;
            // The record needs its room in the log like any other, or a flood of discards would fill it.
            self.store.log.reserve_unless(RECORD_LEN, Room::Commit, || self.check_flows()).await?;
            let done = self.unmap_now(part).await;
            self.store.log.unreserve(RECORD_LEN);
            unmapped |= done?;
        }
        Ok(unmapped)
    }

    async fn unmap_now(&self, stripes: Range<u64>) -> Result<bool> {
        let in_flight =
            || self.stripes.borrow().range(stripes.clone()).any(|(_, gathering)| gathering.in_flight.is_some());
        let _held = loop {
            while in_flight() {
                self.check_flows()?;
                self.moved.changed().await;
            }
            self.check_there()?;
            let held = self.load_or_wait(stripes.clone()).await?;
            if !in_flight() {
                break held;
            }
        };
        self.store.check_writable()?;
        self.check_there()?;
        // No await from here on.
        self.forget(stripes)
    }

    /// The rest of it: synchronous, none of the stripes is in flight, and what the tables say of them is in memory.
    /// Returns whether there was anything to forget.
    fn forget(&self, stripes: Range<u64>) -> Result<bool> {
        let table = self.table();
        let zero = self.zeros_in(stripes.clone());
        self.make_chunks(zero.clone())?;
        self.partial_discards.borrow_mut().forget(stripes.clone());
        let dropped = self.drop_buffers(stripes.clone());
        let mapped: BTreeSet<u64> = {
            let map = self.store.map.borrow();
            let mapped = map.tables[&table].mapped_in(stripes.clone()).map(|(stripe, _)| stripe);
            let in_limbo =
                map.limbo.range((table, stripes.start)..(table, stripes.end)).map(|((_, stripe), _)| *stripe);
            mapped.chain(in_limbo).collect()
        };
        let some_fine = self.store.map.borrow().has_fine_in(table, stripes.clone());
        if mapped.is_empty() && !dropped && !some_fine && zero.is_empty() {
            return Ok(false);
        }
        // Each stripe changes with one record: it never says, meanwhile, what lies below.
        for (part, zero) in [(stripes.start..zero.start, false), (zero.clone(), true), (zero.end..stripes.end, false)] {
            if part.is_empty() {
                continue;
            }
            let (first, count) = (part.start, part.end - part.start);
            let unmap = UnmapRecord { table, first, count, retires: self.store.log.seq(), zero };
            let seq = self.store.log.append(&Record::Unmap(unmap));
            self.store.map.borrow_mut().unmap(table, part.clone(), zero, seq);
            for stripe in mapped.range(part) {
                let forgotten = self.store.limbo.forget(table, *stripe, seq);
                self.store.relist(self.id, *stripe, forgotten.and_then(|sealed| sealed.landed_from()), None);
            }
        }
        if !mutant::active(Mutant::DiscardKeepsUnits) {
            self.store.map.borrow_mut().fine_released(table, stripes);
        }
        self.store.free_empty_packs();
        Ok(true)
    }

    /// Those of `stripes` that are to be zero when they are unmapped, as one run: outside of it older tables have
    /// nothing. Where there are none, the run is empty, and at the end.
    fn zeros_in(&self, stripes: Range<u64>) -> Range<u64> {
        let (len, map) = (self.layout().data_len().0, self.store.map.borrow());
        let older = &map.vdisks[&self.id].tables[1..];
        let bytes = stripes.start * len..(stripes.end * len).min(self.size().0);
        let span = if older.is_empty() { None } else { map.span_below(older, bytes) };
        span.map_or(stripes.end..stripes.end, |span| span.start / len..span.end.div_ceil(len).min(stripes.end))
    }

    /// Makes the chunks of stripes that are to be zero, where they are missing.
    fn make_chunks(&self, stripes: Range<u64>) -> Result<()> {
        let table = self.table();
        let mut at = stripes.start;
        while at < stripes.end {
            let mut records = Vec::new();
            let made = {
                let mut map = self.store.map.borrow_mut();
                map.ensure_chunk(table, at, &mut records)
            };
            self.store.append_all(records);
            made?;
            at = (at / CHUNK_ENTRIES + 1) * CHUNK_ENTRIES;
        }
        Ok(())
    }

    pub(super) fn has_one_table(&self) -> bool {
        self.store.map.borrow().vdisks.get(&self.id).is_some_and(|vdisk| vdisk.tables.len() == 1)
    }

    /// Drops the gathering buffers of stripes, their claims and their landings.
    fn drop_buffers(&self, stripes: Range<u64>) -> bool {
        let table = self.table();
        let gone: Vec<(u64, super::Gathering)> = {
            let mut all = self.stripes.borrow_mut();
            let keys: Vec<u64> = all.range(stripes).map(|(stripe, _)| *stripe).collect();
            keys.into_iter().filter_map(|stripe| Some((stripe, all.remove(&stripe)?))).collect()
        };
        let any = !gone.is_empty();
        for (stripe, gathering) in gone {
            self.note_landed(stripe);
            let Some(buffer) = gathering.filling else { continue };
            self.store.map.borrow_mut().unclaim(table);
            self.store.buffered_changed(-(buffer.charged() as i64));
            self.store.relist(self.id, stripe, buffer.landed.oldest(), None);
        }
        any
    }
}
