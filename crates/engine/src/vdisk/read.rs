//! A read: buffers first (the gathering one, then the flying one), then the tables from the newest down, then zeros.
//!
//! Invariants
//! 1. What a read takes from buffers and where it will look on the disks is decided in one step; later writes do not mix in.
//! 2. A stripe on the disks is pinned from that step until it has been read, so its place cannot be given to anything else meanwhile.

use super::{Vdisk, add};
use crate::error::{ErrorKind, Result};
use crate::format::record::Record;
use crate::segment::Map;
use crate::store::join;
use crate::stripe::execute::Target;
use crate::stripe::geometry::Layout;
use crate::stripe::plan::Want;
use crate::stripe::table::Place;
use crate::units::{BLOCK, VirtualOffset};
use alloc::rc::Rc;
use alloc::vec::Vec;
use core::ops::Range;

/// Bytes of the virtual disk that have one source.
pub(super) struct Extent {
    /// Virtual bytes.
    pub(super) range: Range<u64>,
    /// The stripe that holds them, and the byte in it where they start; none: zeros.
    pub(super) source: Option<(Target, usize)>,
}

/// What a range of a virtual disk is made of, for clients that ask.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Allocation {
    /// Bytes.
    pub len: u64,
    /// Whether there is data; else it reads as zeros and takes no space.
    pub data: bool,
}

impl Vdisk {
    /// Fills `into` from `offset`.
    pub async fn read(&self, offset: VirtualOffset, into: &mut [u8]) -> Result<()> {
        self.admit(offset, into.len())?;
        add(&self.counters.reads, 1);
        add(&self.store.requests, 1);
        add(&self.counters.read, into.len() as u64);
        let _held = self.store.budgets.requests.hold(into.len() as u64);
        let mut rest = into;
        let mut parts = Vec::new();
        for (stripe, at, range) in self.pieces(offset, rest.len()) {
            let (now, later) = core::mem::take(&mut rest).split_at_mut(range.len());
            rest = later;
            parts.push(self.read_or_wait(stripe, at, now));
        }
        join(parts.into_iter()).await.into_iter().collect()
    }

    /// Reads bytes of one stripe. What is out of reach because disks have just gone is waited for: they may be back in a moment.
    async fn read_or_wait(&self, stripe: u64, at: usize, into: &mut [u8]) -> Result<()> {
        loop {
            let changes = self.store.changes.get();
            let read = self.read_piece(stripe, at, into).await;
            let lost = read.as_ref().is_err_and(|error| error.kind == ErrorKind::Lost) && self.failure().is_none();
            if !lost || !self.store.await_disks(changes).await {
                return read;
            }
            self.check_there()?;
        }
    }

    /// Reads bytes of one stripe.
    async fn read_piece(&self, stripe: u64, at: usize, into: &mut [u8]) -> Result<()> {
        self.check_not_lost(stripe)?;
        let start = stripe * self.layout().data_len().0;
        let mut extents = Vec::new();
        {
            let stripes = self.stripes.borrow();
            let gathering = stripes.get(&stripe);
            let holes = match gathering.and_then(|gathering| gathering.filling.as_ref()) {
                Some(buffer) => buffer.get(at, into),
                None => alloc::vec![at..at + into.len()],
            };
            for hole in holes {
                match gathering.and_then(|gathering| gathering.flying.as_ref()) {
                    Some(sealed) => sealed.get(hole.start, &mut into[hole.start - at..hole.end - at]),
                    None => extents.extend(self.resolve(start + hole.start as u64..start + hole.end as u64)),
                }
            }
        }
        self.read_extents(extents, start + at as u64, into).await.map(|_| ())
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
        let extents = self.resolve(range.clone());
        self.read_extents(extents, range.start, into).await
    }

    /// Where virtual bytes are on the disks, from the newest table down; the stripes are pinned.
    fn resolve(&self, range: Range<u64>) -> Vec<Extent> {
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
            self.store.room.notify();
        }
    }

    async fn read_target(&self, target: &Target, at: usize, into: &mut [u8]) -> Result<()> {
        let wants = wants(target.layout, at, into.len());
        let bufs = self.store.read_stripe(target, &wants).await?;
        let interleave = target.layout.interleave().as_usize();
        for (want, buf) in wants.iter().zip(&bufs) {
            let first = want.column * interleave + want.blocks.start * BLOCK as usize;
            let from = first.max(at);
            let to = (first + buf.len()).min(at + into.len());
            into[from - at..to - at].copy_from_slice(&buf[from - first..to - first]);
        }
        Ok(())
    }

    /// What `len` bytes from `offset` are made of, neighbours of a kind joined.
    pub fn allocation(&self, offset: VirtualOffset, len: u64) -> Result<Vec<Allocation>> {
        self.admit(offset, len as usize)?;
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
            extents
                .iter()
                .for_each(|extent| push(&mut found, extent.range.end - extent.range.start, extent.source.is_some()));
            at = end;
        }
        Ok(found)
    }

    fn layout_of(&self, map: &Map) -> Layout {
        map.tables[&map.vdisks[&self.id].tables[0]].record.layout
    }
}

/// Looks `range` up in the first of `tables`; what is unmapped there falls through to the others, and to zeros at last.
pub(super) fn resolve(map: &Map, tables: &[u32], range: Range<u64>, extents: &mut Vec<Extent>) {
    let Some((first, below)) = tables.split_first() else {
        extents.push(Extent { range, source: None });
        return;
    };
    let table = &map.tables[first];
    let data_len = table.record.layout.data_len().0;
    let mut at = range.start;
    while at < range.end {
        let stripe = at / data_len;
        let end = (stripe * data_len + data_len).min(range.end);
        match map.place_of(*first, stripe) {
            Some(place) => {
                let slabs = map.segments.get(&place.segment).map(|segment| segment.record.slabs.clone());
                let target = Target { place, layout: table.record.layout, slabs: slabs.unwrap_or_else(|| Rc::new([])) };
                extents.push(Extent { range: at..end, source: Some((target, (at % data_len) as usize)) });
            }
            None => resolve(map, below, at..end, extents),
        }
        at = end;
    }
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

fn push(found: &mut Vec<Allocation>, len: u64, data: bool) {
    match found.last_mut().filter(|last| last.data == data) {
        Some(last) => last.len += len,
        None => found.push(Allocation { len, data }),
    }
}
