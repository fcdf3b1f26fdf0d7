//! What a request would do now, for people; see `weft explain`. Nothing here changes anything.

use super::Vdisk;
use super::read::{Extent, resolve, wants};
use crate::error::Result;
use crate::exec::LocalBoxFuture;
use crate::geometry::Layout;
use crate::segment::shelf::Hit;
use crate::units::{BLOCK, ByteCount, DiskNo, SegmentNo, VirtualOffset};
use alloc::boxed::Box;
use alloc::format;
use alloc::rc::Rc;
use alloc::string::String;
use alloc::vec::Vec;
use core::ops::Range;

/// What decides about a write to one stripe.
#[derive(Debug)]
struct WriteCase {
    layout: Layout,
    /// The bytes of the stripe that are written.
    range: Range<usize>,
    /// The bytes of the stripe that memory does not hold before the write, in order.
    holes: Vec<Range<usize>>,
    /// Bytes in memory that the log does not hold yet, and that this write does not replace.
    unlanded: usize,
    /// An older version of the stripe is on its way to the disks.
    in_flight: bool,
    /// Bytes that a merge would read from the disks.
    merge_reads: u64,
    /// Small writes leave packed where so many bytes of a stripe, or fewer, are there; 0: never.
    packs: usize,
    /// The disks of the cache that they go to; none: those of the layout.
    cache: Vec<DiskNo>,
    /// The disks that carry the log: each gets a copy of every record.
    loggers: Vec<DiskNo>,
    /// The longest log record, in bytes.
    record_max: u64,
}

impl Vdisk {
    /// The plan for reading a range as things stand now, line by line.
    pub fn explain_read(&self, offset: VirtualOffset, len: usize) -> LocalBoxFuture<'_, Result<Vec<String>>> {
        Box::pin(async move {
            self.admit(offset, len)?;
            let mut lines = Vec::new();
            for (stripe, at, range) in self.pieces(offset, len) {
                let _held = self.load_places(stripe..stripe + 1).await?;
                self.check_there()?;
                lines.push(format!("stripe {stripe}, bytes {at} to {}", at + range.len()));
                let within = at..at + range.len();
                let holes = self.holes_in_memory(stripe);
                let holes: Vec<_> =
                    holes.into_iter().map(|hole| cut(&hole, &within)).filter(|hole| !hole.is_empty()).collect();
                let held = range.len() - holes.iter().map(|hole| hole.len()).sum::<usize>();
                if held > 0 {
                    lines.push(format!("  {held} bytes from memory, where they are gathered"));
                }
                if self.in_flight(stripe).is_some() {
                    if held < range.len() {
                        lines.push(format!("  {} bytes from memory, on their way to the disks", range.len() - held));
                    }
                    continue;
                }
                for extent in holes.into_iter().flat_map(|hole| self.below(stripe, hole)) {
                    self.explain_extent(extent, &mut lines);
                }
            }
            Ok(lines)
        })
    }

    /// What writing a range would do as things stand now, line by line.
    pub fn explain_write(
        self: &Rc<Self>,
        offset: VirtualOffset,
        len: usize,
    ) -> LocalBoxFuture<'_, Result<Vec<String>>> {
        Box::pin(async move {
            self.admit_write(offset, len)?;
            let mut lines = Vec::new();
            for (stripe, at, range) in self.pieces(offset, len) {
                let _held = self.load_places(stripe..stripe + 1).await?;
                self.check_there()?;
                let range = at..at + range.len();
                lines.push(format!("stripe {stripe}, bytes {} to {}", range.start, range.end));
                let holes = self.holes_in_memory(stripe);
                let missing = without(&holes, &range);
                let merge = missing.first().zip(missing.last()).map(|(first, last)| first.start..last.end);
                // What an older version has brought down by then, a merge reads back from there.
                let in_flight = self.in_flight(stripe).is_some();
                let merge_reads = match merge {
                    Some(merge) if in_flight => merge.len() as u64,
                    Some(merge) => {
                        let below = self.below(stripe, merge);
                        below
                            .iter()
                            .filter(|part| part.source.is_some())
                            .map(|part| part.range.end - part.range.start)
                            .sum()
                    }
                    None => 0,
                };
                let case = WriteCase {
                    layout: self.layout(),
                    unlanded: self.with_filling(stripe, |buffer| buffer.unlanded_outside(range.clone())).unwrap_or(0),
                    range,
                    holes,
                    in_flight,
                    merge_reads,
                    packs: if self.may_pack() { self.packs_at_most() } else { 0 },
                    cache: self.disks_of_cache(),
                    loggers: self.store.loggers(),
                    record_max: self.store.log.record_max(),
                };
                lines.extend(self.explain_tier(&case).map(|line| format!("  {line}")));
                lines.extend(explain_stripe(&case).into_iter().map(|line| format!("  {line}")));
            }
            Ok(lines)
        })
    }

    /// Whether a stripe that is whole goes to the fast tier, where there is one.
    fn explain_tier(&self, case: &WriteCase) -> Option<String> {
        let fill = self.tier_fill().filter(|_| without(&case.holes, &case.range).is_empty())?;
        let (used, size, len) = (ByteCount(fill.used), ByteCount(fill.size), case.layout.data_len().0);
        Some(match (fill.drains, fill.used + len > fill.size) {
            (true, _) => format!("not to the fast tier, which empties itself ({used} are left)"),
            (false, true) => format!("not to the fast tier, which is full ({used} of {size})"),
            (false, false) => format!("to the fast tier ({used} of {size} lie there)"),
        })
    }

    /// What the gathering buffer of a stripe does not hold: all of it, when there is none.
    pub(super) fn holes_in_memory(&self, stripe: u64) -> Vec<Range<usize>> {
        let all = core::iter::once(0..self.layout().data_len().as_usize());
        self.with_filling(stripe, |buffer| buffer.holes()).unwrap_or_else(|| all.collect())
    }

    /// Where bytes of a stripe are on the disks.
    pub(super) fn below(&self, stripe: u64, bytes: Range<usize>) -> Vec<Extent> {
        let start = stripe * self.layout().data_len().0;
        let mut extents = Vec::new();
        let map = self.store.map.borrow();
        let tables = &map.vdisks[&self.id].tables;
        resolve(&map, tables, start + bytes.start as u64..start + bytes.end as u64, &mut extents);
        extents
    }

    /// Whether a segment is of packed stripes.
    pub(super) fn is_packed(&self, segment: SegmentNo) -> bool {
        let map = self.store.map.borrow();
        let owner = map.segments.get(&segment).and_then(|segment| map.tables.get(&segment.record.owner));
        owner.is_some_and(|table| table.record.packs.is_some())
    }

    /// Whether a segment is of an older table of the stack: what lies there is to come into the newest one.
    pub(super) fn is_older(&self, segment: SegmentNo) -> bool {
        let map = self.store.map.borrow();
        let owner = map.segments.get(&segment).map(|segment| segment.record.owner);
        let older = map.vdisks.get(&self.id).map_or(&[][..], |vdisk| &vdisk.tables[1..]);
        owner.is_some_and(|owner| map.with_packs(older).contains(&owner))
    }

    fn explain_extent(&self, extent: Extent, lines: &mut Vec<String>) {
        let len = (extent.range.end - extent.range.start) as usize;
        let Some((target, at)) = extent.source else {
            lines.push(format!("  {len} bytes are not mapped: zeros, no disk is read"));
            return;
        };
        let place = target.place;
        let is_fast = self.store.map.borrow().is_fast(place);
        let of = match self.is_packed(place.segment) {
            true => "packed stripe",
            false if is_fast => "fast tier, stripe",
            false => "stripe",
        };
        let of = if self.is_older(place.segment) { format!("older {of}") } else { String::from(of) };
        lines.push(format!("  {len} bytes from segment {}, {of} {}: {}", place.segment, place.index, target.layout));
        let wanted = wants(target.layout, at, len);
        if let Some(found) = self.store.find_kept(self.id, &target, &wanted) {
            let from: Vec<String> = found.iter().flatten().map(|hit| self.explain_hit(hit)).collect();
            lines.push(format!("  read cache hit: {}", from.join("; ")));
            return;
        }
        let Some(plan) = self.store.plan_read(&target, &wanted, &Default::default()) else {
            lines.push(String::from("  lost: more disks failed than the layout survives"));
            return;
        };
        lines.extend(format!("{plan}").lines().map(|line| format!("  {line}")));
        for read in &plan.reads {
            if let Some((slab, block)) = target.locate(read.slot, read.blocks.start) {
                let at = self.store.slab_offset(slab, block).0;
                lines.push(format!("  column {}: disk {} at {at}", read.column, slab.disk));
            }
        }
    }
}

impl Vdisk {
    fn explain_hit(&self, hit: &Hit) -> String {
        let len = ByteCount(hit.count as u64 * BLOCK);
        match hit.slab[0] {
            Some(slab) => format!("{len} at {} of disk {}", self.store.slab_offset(slab, hit.block).0, slab.disk),
            None => format!("{len}"),
        }
    }
}

/// What one stripe of a write goes through.
fn explain_stripe(case: &WriteCase) -> Vec<String> {
    let layout = case.layout;
    let missing = without(&case.holes, &case.range);
    let mut lines = Vec::new();
    if missing.is_empty() {
        let alone = case.range.len() as u64 == layout.data_len().0;
        let why = if alone { "a whole stripe" } else { "completes a stripe that is gathered in memory" };
        let wait = if case.in_flight { ", once the version before it is down" } else { "" };
        let parity = match layout.parity() {
            0 => String::new(),
            1 => String::from("1 parity column, "),
            n => format!("{n} parity columns, "),
        };
        let blocks = layout.raw_len().0 / BLOCK;
        lines.push(format!("{why}: leaves at once{wait}"));
        lines.push(format!("compute {parity}the checksums of {blocks} blocks"));
        lines.push(format!(
            "write   {} strips of {} to a free place, all together",
            layout.slots(),
            layout.interleave()
        ));
        lines.push(String::from("commit  one log record; the place before it is free once that is durable"));
        lines.push(String::from("read    nothing"));
        return lines;
    }
    let left: usize = missing.iter().map(|hole| hole.len()).sum();
    lines.push(format!("part of a stripe: gathers in memory; {} of it are still missing then", ByteCount(left as u64)));
    let landing = (case.unlanded + case.range.len()) as u64;
    if landing + BLOCK > case.record_max {
        lines.push(String::from("flush   too much for a log record: leaves as a merged stripe, as below"));
    } else {
        let disks: Vec<String> = case.loggers.iter().map(|no| format!("disk {no}")).collect();
        let (landing, copies) = (ByteCount(landing), disks.len());
        lines.push(format!("flush   lands {landing} in the log, {copies} copies: {}", disks.join(", ")));
    }
    lines.push(String::from("filled  when the rest is written: leaves whole, nothing is read"));
    if case.packs > 0 && layout.data_len().as_usize() - left <= case.packs {
        let disks: Vec<String> = case.cache.iter().map(|no| format!("disk {no}")).collect();
        let to = if disks.is_empty() { String::new() } else { format!(", to the cache: {}", disks.join(", ")) };
        lines.push(format!("packed  if it must leave before: with other small writes, nothing is read{to}"));
        return lines;
    }
    lines.push(match case.merge_reads {
        0 => String::from("merged  if it must leave before: the rest is not mapped, nothing is read"),
        bytes => format!("merged  if it must leave before: {} are read from the disks", ByteCount(bytes)),
    });
    lines
}

/// `holes` without what lies in `range`.
fn without(holes: &[Range<usize>], range: &Range<usize>) -> Vec<Range<usize>> {
    let parts = holes.iter().flat_map(|hole| {
        [hole.start..hole.end.min(range.start).max(hole.start), hole.start.max(range.end).min(hole.end)..hole.end]
    });
    parts.filter(|part| !part.is_empty()).collect()
}

pub(super) fn cut(hole: &Range<usize>, within: &Range<usize>) -> Range<usize> {
    let start = hole.start.clamp(within.start, within.end);
    start..hole.end.clamp(start, within.end)
}

#[cfg(test)]
#[expect(clippy::single_range_in_vec_init, reason = "a list of holes may have one")]
mod tests {
    use super::*;
    use crate::geometry::Resiliency;
    use alloc::vec;

    fn case(range: Range<usize>, holes: Vec<Range<usize>>) -> WriteCase {
        let layout = Layout::new(Resiliency::Parity { parity: 1 }, 3, ByteCount::kib(64)).unwrap();
        WriteCase {
            layout,
            range,
            holes,
            unlanded: 0,
            in_flight: false,
            merge_reads: 0,
            packs: 0,
            cache: Vec::new(),
            loggers: vec![DiskNo(0), DiskNo(1), DiskNo(4)],
            record_max: 1 << 20,
        }
    }

    #[test]
    fn a_write_that_fills_the_last_hole_leaves_at_once_and_reads_nothing() {
        for (range, holes) in [(0..131072, vec![0..131072]), (4096..8192, vec![4096..8192]), (0..8192, vec![])] {
            let lines = explain_stripe(&case(range, holes));
            assert!(lines[0].ends_with("leaves at once"), "{lines:?}");
            assert!(lines.contains(&"compute 1 parity column, the checksums of 48 blocks".into()), "{lines:?}");
            assert_eq!(lines.last().unwrap(), "read    nothing");
        }
    }

    #[test]
    fn a_write_that_leaves_holes_gathers_and_a_merge_reads_only_what_is_mapped() {
        let mut partial = case(4096..8192, vec![0..131072]);
        let lines = explain_stripe(&partial);
        assert!(lines[0].contains("124 KiB of it are still missing"), "{lines:?}");
        assert_eq!(lines[1], "flush   lands 4 KiB in the log, 3 copies: disk 0, disk 1, disk 4");
        assert!(lines.last().unwrap().ends_with("not mapped, nothing is read"), "{lines:?}");
        partial.merge_reads = 131072;
        assert!(explain_stripe(&partial).last().unwrap().ends_with("128 KiB are read from the disks"));
        partial.packs = 65536;
        assert!(explain_stripe(&partial).last().unwrap().ends_with("nothing is read"), "{partial:?}");
        let cached = WriteCase { cache: vec![DiskNo(3), DiskNo(5)], ..case(4096..8192, vec![0..131072]) };
        let cached = WriteCase { packs: 65536, ..cached };
        assert!(explain_stripe(&cached).last().unwrap().ends_with("to the cache: disk 3, disk 5"), "{cached:?}");
        let nearly = WriteCase { packs: 65536, ..case(4096..8192, vec![0..12288]) };
        assert!(explain_stripe(&nearly).last().unwrap().starts_with("merged"), "{nearly:?}");
        partial.record_max = 4096;
        assert!(explain_stripe(&partial)[1].contains("too much for a log record"));
    }

    #[test]
    fn holes_are_cut_exactly() {
        assert_eq!(without(&[0..10, 20..30], &(5..25)), [0..5, 25..30]);
        assert_eq!(without(&[0..10], &(10..20)), [0..10]);
        assert_eq!(without(&[10..20], &(0..30)), []);
        assert_eq!(cut(&(0..10), &(5..7)), 5..7);
        assert!(cut(&(0..5), &(5..7)).is_empty());
    }
}
