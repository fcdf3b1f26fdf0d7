//! A read: buffers first (the gathering one, then the one in flight), then the tables from the newest down, then zeros.
//! What the tables name is copied from what was read ahead of that place, if it was; the rest is read from the disks,
//! all of a request together.
//!
//! Invariants
//! 1. What a read takes from buffers and where it will look on the disks is decided in one step; later writes do not
//!    mix in.
//! 2. A stripe on the disks is pinned from that step until it has been read, so its place cannot be given to anything
//!    else meanwhile.

use super::answer::{Answer, AnswerPart};
use super::{Vdisk, add};
use crate::error::{ErrorKind, Result};
use crate::exec::LocalBoxFuture;
use crate::format::record::Record;
use crate::geometry::Layout;
use crate::io::IoSlice;
use crate::mutant::{self, Mutant};
use crate::segment::Map;
use crate::segment::ahead::Found;
use crate::segment::fine::{Fine, Spot, UNIT};
use crate::store::execute::Target;
use crate::store::join;
use crate::store::shelf::READ_MAX;
use crate::store::table_pages::HeldTable;
use crate::store::together::Part;
use crate::stripe::plan::Want;
use crate::stripe::table::Place;
use crate::units::{BLOCK, TableNo, VirtualOffset};
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::rc::Rc;
use alloc::vec::Vec;
use core::ops::Range;

/// Bytes of the virtual disk that have one source.
pub(super) struct Extent {
    /// Virtual bytes.
    pub(super) range: Range<u64>,
    /// The stripe that holds them, and the byte in it where they start; none: zeros.
    pub(super) source: Option<(Target, usize)>,
    /// Whether that is a packed stripe.
    pub(super) packed: bool,
}

/// A part of a request within one stripe: the stripe, the byte in it, and the range of the request's bytes.
type Piece = (u64, usize, Range<usize>);

/// A part of a request that lies on the disks, pinned.
struct Source {
    /// Which piece it belongs to.
    piece: usize,
    /// Which of the request's bytes.
    range: Range<usize>,
    target: Target,
    /// The byte in the stripe where it starts.
    at: usize,
    /// The byte of the virtual disk that this is.
    address: u64,
}

/// What a range of a virtual disk is made of, for clients that ask.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Allocation {
    /// Bytes.
    pub len: u64,
    /// Whether there is data; else it reads as zeros and takes no space.
    pub data: bool,
}

impl Source {
    fn part(&self) -> Part {
        Part { target: self.target.clone(), wants: wants(self.target.layout, self.at, self.range.len()) }
    }
}

impl Vdisk {
    /// Fills `into` from `offset`.
    pub async fn read(self: &Rc<Self>, offset: VirtualOffset, into: &mut [u8]) -> Result<()> {
        let len = into.len();
        self.read_into(offset, len, &mut Answer::Filled(into)).await
    }

    /// Reads `len` bytes from `offset` and hands on what the disks gave as far as that is worth while, without a copy.
    pub async fn read_shared(self: &Rc<Self>, offset: VirtualOffset, len: usize) -> Result<Vec<AnswerPart>> {
        let mut answer = Answer::Shared(BTreeMap::new());
        self.read_into(offset, len, &mut answer).await?;
        Ok(answer.into_parts(|slice| self.store.traffic.spare.give(slice)))
    }

    /// Takes back what [`Vdisk::read_shared`] handed on: the next read fills it again.
    pub fn reuse(&self, slice: IoSlice) {
        self.store.traffic.spare.give(slice);
    }

    async fn read_into(self: &Rc<Self>, offset: VirtualOffset, len: usize, into: &mut Answer<'_>) -> Result<()> {
        let _pass = self.enter().await;
        // Before it is admitted: what is admitted is begun in the same step.
        let _held = self.store.traffic.budgets.reads.take(len as u64).await;
        self.admit(offset, len)?;
        let seeks = self.count([&self.counters.reads, &self.counters.read], offset, len as u64);
        self.follow(offset.0, len as u64);
        let pieces: Vec<Piece> = self.pieces(offset, len).collect();
        let seen = (self.store.signals.changes.get(), self.counters.gathered_again.get());
        let read = self.read_pieces(&pieces, into, seeks && len <= READ_MAX).await;
        for (piece, read) in pieces.into_iter().zip(read) {
            if read.is_err() {
                self.or_wait(piece, read, seen, into).await?;
            }
        }
        Ok(())
    }

    /// What was out of reach because disks had just gone is waited for: they may be back in a moment. What was lost,
    /// and has gathered again, is read there. `seen`: how often the disks had changed, and lost stripes gathered again.
    fn or_wait<'a>(
        self: &'a Rc<Self>,
        piece: Piece,
        mut read: Result<()>,
        mut seen: (u64, u64),
        into: &'a mut Answer<'_>,
    ) -> LocalBoxFuture<'a, Result<()>> {
        Box::pin(async move {
            loop {
                if !read.as_ref().is_err_and(|error| error.kind == ErrorKind::Lost) {
                    return read;
                }
                self.gather_lost();
                let gathered = self.counters.gathered_again.get() != seen.1;
                if !gathered && (self.failure().is_some() || !self.store.await_disks(seen.0).await) {
                    return read;
                }
                self.check_there()?;
                seen = (self.store.signals.changes.get(), self.counters.gathered_again.get());
                into.forget(piece.2.clone());
                read = self
                    .read_pieces(core::slice::from_ref(&piece), into, false)
                    .await
                    .pop()
                    .expect("one answer for one piece");
            }
        })
    }

    /// Reads pieces of stripes, each into its range of `into`. `seeks`: a hard disk would seek for them.
    async fn read_pieces(&self, pieces: &[Piece], into: &mut Answer<'_>, seeks: bool) -> Vec<Result<()>> {
        // What the tables say of all of them is in memory before the first one is looked at.
        let held = self.load_pieces(pieces).await;
        let mut sources = Vec::new();
        let mut results = Vec::with_capacity(pieces.len());
        for ((nth, piece), held) in pieces.iter().enumerate().zip(&held) {
            let looked = match held {
                Ok(_) => self.check_there().and_then(|()| self.look(nth, piece, into, &mut sources)),
                Err(error) => Err(error.clone()),
            };
            results.push(looked);
        }
        drop(held);
        self.read_sources(sources, into, &mut results, seeks).await;
        results
    }

    /// Brings what the tables say of each piece into memory, and keeps it there; what of them cannot be read is an
    /// error for its pieces.
    async fn load_pieces(&self, pieces: &[Piece]) -> Vec<Result<Vec<HeldTable<'_>>>> {
        if let (Some((first, ..)), Some((last, ..))) = (pieces.first(), pieces.last())
            && let Ok(held) = self.load_places(*first..*last + 1).await
        {
            let others = core::iter::repeat_with(|| Ok(Vec::new()));
            return core::iter::once(Ok(held)).chain(others).take(pieces.len()).collect();
        }
        let mut held = Vec::with_capacity(pieces.len());
        for (stripe, ..) in pieces {
            held.push(self.load_places(*stripe..*stripe + 1).await);
        }
        held
    }

    /// Takes what buffers hold of a piece, and zeros where nothing is; the rest goes to `sources`, pinned.
    fn look(&self, nth: usize, piece: &Piece, into: &mut Answer<'_>, sources: &mut Vec<Source>) -> Result<()> {
        let (stripe, at, range) = piece;
        self.check_not_lost(*stripe)?;
        let start = stripe * self.layout().data_len().0;
        let stripes = self.stripes.borrow();
        let gathering = stripes.get(stripe);
        let holes = match gathering.and_then(|gathering| gathering.filling.as_ref()) {
            Some(buffer) => buffer.get(*at, into.room(range.clone())),
            None => alloc::vec![*at..*at + range.len()],
        };
        let in_flight = gathering.and_then(|gathering| gathering.in_flight.as_ref());
        let holes = holes.into_iter().flat_map(|hole| match in_flight {
            Some(sealed) => {
                let into = into.room(range.clone());
                sealed.get(hole.start, &mut into[hole.start - at..hole.end - at])
            }
            None => alloc::vec![hole],
        });
        let holes: Vec<Range<usize>> = holes.collect();
        for hole in holes {
            for extent in self.resolve(start + hole.start as u64..start + hole.end as u64) {
                let first = (extent.range.start - start) as usize - at;
                let len = (extent.range.end - extent.range.start) as usize;
                add(&self.counters.read_packed, len as u64 * extent.packed as u64);
                let first = range.start + first;
                match extent.source {
                    None => into.zeros(first..first + len),
                    Some((target, at)) => {
                        let (address, is_fast) = (extent.range.start, self.store.map.borrow().is_fast(target.place));
                        add(&self.counters.read_fast, len as u64 * is_fast as u64);
                        sources.push(Source { piece: nth, range: first..first + len, target, at, address });
                    }
                }
            }
        }
        Ok(())
    }

    /// Reads what lies on the disks, from memory where it was read ahead, and unpins it.
    async fn read_sources(&self, sources: Vec<Source>, into: &mut Answer<'_>, results: &mut [Result<()>], seeks: bool) {
        let (mut direct, mut coming) = (Vec::new(), Vec::new());
        for source in sources {
            let found = self.store.map.borrow().ahead.get(source.target.place);
            match found {
                Some(Found::There(strips)) => self.serve(source, strips, into),
                Some(Found::Coming(fetch)) => {
                    self.store.traffic.lanes.hurry(&fetch);
                    coming.push((source, fetch));
                }
                None => direct.push(source),
            }
        }
        let direct = self.read_kept(direct, into).await;
        self.read_direct(direct, into, results, seeks).await;
        let mut missed = Vec::new();
        for (source, fetch) in coming {
            fetch.until_ended().await;
            let found = self.store.map.borrow().ahead.get(source.target.place);
            match found {
                Some(Found::There(strips)) => self.serve(source, strips, into),
                _ => missed.push(source),
            }
        }
        self.read_direct(missed, into, results, false).await;
    }

    /// Takes what was read ahead. Its buffers are of use again once all of it was read.
    fn serve(&self, source: Source, strips: Rc<Vec<IoSlice>>, into: &mut Answer<'_>) {
        let wants = wants(source.target.layout, source.at, source.range.len());
        let bytes = wants.iter().map(|want| (want.column, 0, &strips[want.column]));
        hand_on(source.target.layout, source.at, bytes, into, source.range.clone());
        self.store.map.borrow_mut().ahead.served(source.target.place, source.range.len() as u64);
        if let Ok(strips) = Rc::try_unwrap(strips) {
            strips.into_iter().for_each(|strip| self.store.traffic.spare.give(strip));
        }
        self.release(source.target.place);
    }

    /// Takes what the read cache has, and unpins it. Returns the rest.
    async fn read_kept(&self, sources: Vec<Source>, into: &mut Answer<'_>) -> Vec<Source> {
        if self.store.map.borrow().read_caches.is_empty() {
            return sources;
        }
        let (mut found, mut rest) = (Vec::new(), Vec::new());
        for source in sources {
            let part = source.part();
            match self.store.find_kept(self.id, &part.target, &part.wants) {
                Some(hits) => found.push((source, part, hits)),
                None => rest.push(source),
            }
        }
        let read = join(found.iter().map(|(_, part, hits)| self.store.read_kept(self.id, part, hits))).await;
        for ((source, part, _), read) in found.into_iter().zip(read) {
            let Some(slices) = read else {
                rest.push(source);
                continue;
            };
            add(&self.counters.kept_hits, 1);
            add(&self.counters.read_kept, source.range.len() as u64);
            self.take(source, &part, slices, into);
        }
        rest
    }

    /// Takes what was read of a stripe, and unpins it.
    fn take(&self, source: Source, part: &Part, slices: Vec<IoSlice>, into: &mut Answer<'_>) {
        self.take_read(part, slices, source.at, into, source.range);
        self.release(part.target.place);
    }

    /// Takes what was read of a stripe from byte `at` of it on, for these bytes of a request.
    fn take_read(&self, part: &Part, slices: Vec<IoSlice>, at: usize, into: &mut Answer<'_>, range: Range<usize>) {
        let bytes = part.wants.iter().zip(&slices).map(|(want, slice)| (want.column, want.blocks.start, slice));
        hand_on(part.target.layout, at, bytes, into, range);
        slices.into_iter().for_each(|slice| self.store.traffic.spare.give(slice));
    }

    /// These bytes of a stripe, of which they were read.
    pub(super) fn bytes_of(&self, part: &Part, slices: Vec<IoSlice>, range: Range<usize>) -> Vec<u8> {
        let mut bytes = alloc::vec![0; range.len()];
        let whole = 0..bytes.len();
        self.take_read(part, slices, range.start, &mut Answer::Filled(&mut bytes), whole);
        bytes
    }

    async fn read_direct(&self, sources: Vec<Source>, into: &mut Answer<'_>, results: &mut [Result<()>], seeks: bool) {
        if sources.is_empty() {
            return;
        }
        let parts: Vec<Part> = sources.iter().map(Source::part).collect();
        let read = self.store.read_together(&parts, None).await;
        for ((source, part), read) in sources.into_iter().zip(parts).zip(read) {
            match read {
                Ok(slices) => {
                    if seeks && self.missed(&part, source.address) {
                        self.store.keep(self.id, &part, &slices);
                        if mutant::active(Mutant::ShelfFillDelays) {
                            self.store.fill_shelf(self.id).await;
                        }
                    }
                    self.take(source, &part, slices, into);
                }
                Err(error) => {
                    results[source.piece] = Err(error);
                    self.release(part.target.place);
                }
            }
        }
    }

    /// Counts that the read cache, if there is one, lacked something. Whether it is to have it from now on.
    fn missed(&self, part: &Part, address: u64) -> bool {
        let there = self.store.map.borrow().read_caches.contains_key(&self.id);
        add(&self.counters.kept_misses, there as u64);
        there && self.store.is_worth_keeping(self.id, part, address)
    }

    /// Fails for a stripe whose newest version was lost: what the tables say of it is not what clients were told.
    pub(super) fn check_not_lost(&self, stripe: u64) -> Result<()> {
        let lost = self.abandoned.borrow().contains(&stripe) || self.store.limbo.is_lost(self.table(), stripe);
        match self.failure() {
            Some(error) if lost => Err(error),
            _ => Ok(()),
        }
    }

    /// Reads virtual bytes from the tables alone, as a merge needs them. Returns how many came from the disks.
    pub(super) async fn read_below(&self, range: Range<u64>, into: &mut [u8]) -> Result<u64> {
        let data_len = self.layout().data_len().0;
        let _held = self.load_places(range.start / data_len..range.end.div_ceil(data_len)).await?;
        self.check_there()?;
        let extents = self.resolve(range.clone());
        self.read_extents(extents, range.start, into).await
    }

    /// Brings what the tables say of these stripes into memory, and keeps it there.
    pub(super) async fn load_places(&self, stripes: Range<u64>) -> Result<Vec<HeldTable<'_>>> {
        self.check_there()?;
        let (data_len, tables) = {
            let map = self.store.map.borrow();
            (self.layout_of(&map).data_len().0, map.vdisks[&self.id].tables.clone())
        };
        let mut held = Vec::with_capacity(tables.len());
        for table in tables {
            let each =
                self.store.map.borrow().tables.get(&table).map_or(data_len, |found| found.record.layout.data_len().0);
            let within = stripes.start * data_len / each..(stripes.end * data_len).div_ceil(each);
            held.push(self.store.load_table(table, within).await?);
        }
        Ok(held)
    }

    /// Does what [`Vdisk::load_places`] does; disks that have just gone are waited for.
    pub(super) async fn load_or_wait(&self, stripes: Range<u64>) -> Result<Vec<HeldTable<'_>>> {
        loop {
            let changes = self.store.signals.changes.get();
            match self.load_places(stripes.clone()).await {
                Err(error) if error.kind == ErrorKind::Lost && self.store.await_disks(changes).await => {}
                loaded => return loaded,
            }
            self.check_there()?;
        }
    }

    /// Where virtual bytes are on the disks, from the newest table down; the stripes are pinned. What the tables say of
    /// them is in memory ([`Vdisk::load_places`]).
    pub(super) fn resolve(&self, range: Range<u64>) -> Vec<Extent> {
        let mut map = self.store.map.borrow_mut();
        let tables = map.vdisks[&self.id].tables.clone();
        let mut extents = Vec::new();
        resolve(&map, &tables, range, &mut extents);
        for extent in &extents {
            if let Some((target, _)) = &extent.source {
                map.pin(target.place);
            }
        }
        extents
    }

    /// Reads extents that [`Vdisk::resolve`] pinned, and unpins them. `into` starts at virtual byte `start`.
    async fn read_extents(&self, extents: Vec<Extent>, start: u64, into: &mut [u8]) -> Result<u64> {
        let mut from_disks = 0;
        let mut result = Ok(());
        for extent in extents {
            let part = &mut into[(extent.range.start - start) as usize..(extent.range.end - start) as usize];
            let Some((target, at)) = extent.source else {
                part.fill(0);
                continue;
            };
            if result.is_ok() {
                result = self.read_target(&target, at, part).await;
            }
            from_disks += part.len() as u64;
            self.release(target.place);
        }
        result.map(|()| from_disks)
    }

    /// Unpins a stripe on the disks.
    pub(super) fn release(&self, place: Place) {
        let records: Vec<Record<'static>> = self.store.map.borrow_mut().unpin(place);
        if !records.is_empty() {
            self.store.append_all(records);
            self.store.signals.room.notify();
        }
    }

    async fn read_target(&self, target: &Target, at: usize, into: &mut [u8]) -> Result<()> {
        let wants = wants(target.layout, at, into.len());
        let slices = self.store.read_stripe(target, &wants).await?;
        let bytes = wants.iter().zip(&slices).map(|(want, slice)| (want.column, want.blocks.start, slice));
        copy(target.layout, at, bytes, into);
        slices.into_iter().for_each(|slice| self.store.traffic.spare.give(slice));
        Ok(())
    }

    /// What `len` bytes from `offset` are made of, neighbours of a kind joined.
    pub fn allocation(&self, offset: VirtualOffset, len: u64) -> LocalBoxFuture<'_, Result<Vec<Allocation>>> {
        Box::pin(async move {
            self.admit(offset, len as usize)?;
            let data_len = self.layout().data_len().0;
            let _held = self.load_places(offset.0 / data_len..(offset.0 + len).div_ceil(data_len)).await?;
            self.check_there()?;
            let map = self.store.map.borrow();
            let stripes = self.stripes.borrow();
            let data_len = self.layout_of(&map).data_len().0;
            let tables = &map.vdisks[&self.id].tables;
            let mut found: Vec<Allocation> = Vec::new();
            let mut at = offset.0;
            while at < offset.0 + len {
                let end = (at / data_len * data_len + data_len).min(offset.0 + len);
                let mut extents = Vec::new();
                if stripes.contains_key(&(at / data_len)) {
                    push(&mut found, end - at, true);
                } else {
                    resolve(&map, tables, at..end, &mut extents);
                }
                extents.iter().for_each(|extent| {
                    push(&mut found, extent.range.end - extent.range.start, extent.source.is_some())
                });
                at = end;
            }
            Ok(found)
        })
    }

    fn layout_of(&self, map: &Map) -> Layout {
        map.tables[&map.vdisks[&self.id].tables[0]].record.layout
    }
}

/// Looks `range` up in the first of `tables`; what is unmapped there falls through to the others, and to zeros at last.
pub(super) fn resolve(map: &Map, tables: &[TableNo], range: Range<u64>, extents: &mut Vec<Extent>) {
    let Some((first, below)) = tables.split_first() else {
        extents.push(Extent { range, source: None, packed: false });
        return;
    };
    let table = &map.tables[first];
    let data_len = table.record.layout.data_len().0;
    let mut at = range.start;
    while at < range.end {
        let stripe = at / data_len;
        let mut end = (stripe * data_len + data_len).min(range.end);
        if let Some(fine) = map.fine(*first).filter(|fine| !falls_through(map, fine)) {
            if let Some(source) = fine_source(map, fine, at, &mut end) {
                extents.push(Extent { range: at..end, source: Some(source), packed: true });
                at = end;
                continue;
            }
            end = fine.next(at / UNIT).map_or(end, |unit| end.min(unit * UNIT));
        }
        match map.place_of(*first, stripe) {
            Some(place) => {
                let target = target_at(map, place, (*first, stripe));
                let source = Some((target, (at % data_len) as usize));
                extents.push(Extent { range: at..end, source, packed: false });
            }
            None if map.is_zero(*first, stripe) => {
                extents.push(Extent { range: at..end, source: None, packed: false });
            }
            None => resolve(map, below, at..end, extents),
        }
        at = end;
    }
}

/// Whether packed stripes that lost a disk are passed by: a planted bug.
fn falls_through(map: &Map, fine: &Fine) -> bool {
    mutant::active(Mutant::LostFallsThrough) && map.unsound_of(fine.packs).any(|(unsound, _)| unsound > 0)
}

/// Where byte `at` lies if it is of a fine unit, and in `end` how far those go that lie beside it.
fn fine_source(map: &Map, fine: &Fine, at: u64, end: &mut u64) -> Option<(Target, usize)> {
    let unit = at / UNIT;
    let Spot { stripe, index } = fine.get(unit)?;
    let beside = |nth: &u64| fine.get(unit + nth) == Some(Spot { stripe, index: index + *nth as u32 });
    let last = (1..end.div_ceil(UNIT) - unit).take_while(beside).last().unwrap_or(0);
    *end = (*end).min((unit + last + 1) * UNIT);
    let place = map.place_of(fine.packs, stripe).expect("a packed stripe that holds units is mapped");
    Some((target_at(map, place, (fine.packs, stripe)), (index as u64 * UNIT + at % UNIT) as usize))
}

pub(super) fn target_at(map: &Map, place: Place, (table, stripe): (TableNo, u64)) -> Target {
    let record = map.segments.get(&place.segment).map(|segment| &segment.record);
    let layout = record.map_or_else(|| map.tables[&table].record.layout, |record| record.layout);
    let slabs = record.map_or_else(|| Rc::new([]) as Rc<[_]>, |record| record.slabs.clone());
    let owners = record.is_some_and(|record| record.owners);
    let may_lack = record.map_or(0, |record| map.may_lack(record));
    Target { place, layout, slabs, owners, owner: None, may_lack, looks: false }.owned_by(table, stripe)
}

/// The blocks of each data column that cover bytes `at..at + len` of a stripe.
pub(super) fn wants(layout: Layout, at: usize, len: usize) -> Vec<Want> {
    let (interleave, block) = (layout.interleave().as_usize(), BLOCK as usize);
    let columns = at / interleave..(at + len).div_ceil(interleave);
    let want = |column: usize| {
        let from = at.max(column * interleave) - column * interleave;
        let to = (at + len).min((column + 1) * interleave) - column * interleave;
        Want { column, blocks: from / block..to.div_ceil(block) }
    };
    columns.map(want).collect()
}

/// Copies the bytes of a stripe from `at` on from its strips: (column, first block, blocks).
pub(super) fn copy<'a>(
    layout: Layout,
    at: usize,
    strips: impl Iterator<Item = (usize, usize, &'a IoSlice)>,
    into: &mut [u8],
) {
    let whole = 0..into.len();
    hand_on(layout, at, strips, &mut Answer::Filled(into), whole);
}

/// Has `range` of an answer take the bytes of a stripe from `at` on from its strips: (column, first block, blocks).
fn hand_on<'a>(
    layout: Layout,
    at: usize,
    strips: impl Iterator<Item = (usize, usize, &'a IoSlice)>,
    into: &mut Answer<'_>,
    range: Range<usize>,
) {
    let interleave = layout.interleave().as_usize();
    for (column, block, slice) in strips {
        let first = column * interleave + block * BLOCK as usize;
        let (from, to) = (first.max(at), (first + slice.len()).min(at + range.len()));
        into.takes(range.start + from - at, slice, from - first..to - first);
    }
}

fn push(found: &mut Vec<Allocation>, len: u64, data: bool) {
    match found.last_mut().filter(|last| last.data == data) {
        Some(last) => last.len += len,
        None => found.push(Allocation { len, data }),
    }
}
