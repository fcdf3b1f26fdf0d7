//! Arrays that write in place, as references: RAID 5 and 6, with and without a journal, and mirrors, as the kernel's md
//! has them. `docs/evidence/raid.md` compares them with md.
//!
//! The model
//! 1. What is written goes through a cache of rows of 4 KiB from each disk ([`heads`]). A row that requests cover
//!    wholly is written with its parity, and nothing is read.
//! 2. Of another row either what is overwritten and the parity are read, or the rest of the row, whichever is less
//!    ([`Heads::missing`]); what the cache has is not read again. What else is wanted of a row by the time that it was
//!    read is written with it. One such work at a time for each row.
//! 3. Reading begins when a request comes, and does not wait for what would complete the row: so md does for requests
//!    that pass the page cache (`REQ_SYNC`). Rows are begun in their order; reads do not come first.
//! 4. With a journal, data and parity go to it first, on a solid-state disk, and are durable there before they go on:
//!    that closes the write hole. So a flush has nothing to do; a durable write is durable on the disks, too. Eight
//!    rows have one head in the log; what is begun together is written by requests as long as the disk takes, and each
//!    goes on to the disks after the next flush of the log, of which there is one at a time.
//! 5. A mirror writes every copy. A strip is read from a disk that has nothing else to do, the first such one; else
//!    from the one that was nearest at the end of its last read.

mod heads;

use crate::spaces::array::{Array, Kind, Part, merged};
use crate::spaces::rows::{Rows, SLAB, Shape, Slabs};
use crate::volume::{Done, Volume};
use heads::{BLOCK, Columns, Heads, RowNo};
use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::ops::Range;
use std::rc::Rc;
use weft_engine::store::join;
use weft_engine::sync::Signal;
use weft_engine::world::World;
use weft_sim::world::SimWorld;

/// An array that writes in place. A handle: clones are the same.
#[derive(Clone)]
pub struct Raid(Rc<Inner>);

struct Inner {
    array: Rc<Array>,
    rows: Rows,
    /// Disks of the array itself.
    disks: usize,
    /// Where the journal goes on, if there is one: on the disk behind those of the array.
    journal: Option<Cell<u64>>,
    heads: RefCell<Heads<Request>>,
    /// Some row was written.
    written: Signal,
    /// How the disks of a mirror are being read.
    arms: Vec<Arm>,
}

/// What is known of a disk that is read.
#[derive(Default)]
struct Arm {
    under_way: Cell<usize>,
    /// Where its last read ended.
    at: Cell<u64>,
}

/// A write that waits for its rows.
struct Request {
    rows_left: Cell<usize>,
    durable: bool,
}

/// Bytes of a journal, used in turn.
const JOURNAL: u64 = 512 << 20;
/// Rows of the cache: what md has unless it is told otherwise (`stripe_cache_size`).
const CACHE: usize = 256;
/// Rows that md works on together; those of one batch have one block of the log as their head.
const BATCH: usize = 8;
/// Blocks of the log that are written with one request: what a virtual disk takes at once.
const UNIT: u64 = 254;

impl Raid {
    /// An array of this shape on these disks, with a journal on `journal`, for `size` bytes.
    pub fn new(disks: &[Kind], shape: Shape, journal: Option<Kind>, size: u64) -> Raid {
        let mut rows = Rows::new(shape, (0..disks.len()).collect());
        let mut slabs = Slabs::new(disks.len());
        (0..size.div_ceil(shape.row())).for_each(|row| rows.add(row, &mut slabs));
        let kinds: Vec<Kind> = disks.iter().cloned().chain(journal.clone()).collect();
        let journal = journal.map(|_| Cell::new(0));
        let heads = RefCell::new(Heads::new(CACHE, shape.columns - shape.parity, shape.parity));
        let arms = disks.iter().map(|_| Arm::default()).collect();
        let (array, written) = (Array::new(&kinds), Signal::new());
        Raid(Rc::new(Inner { array, rows, disks: disks.len(), journal, heads, written, arms }))
    }
}

impl Volume for Raid {
    fn world(&self) -> SimWorld {
        self.0.array.world.clone()
    }

    fn write(&self, at: u64, len: u64, durable: bool) -> Done {
        let raid = self.0.clone();
        Box::pin(async move { raid.write(at..at + len, durable).await })
    }

    fn read(&self, at: u64, len: u64) -> Done {
        let raid = self.0.clone();
        Box::pin(async move { raid.read(at..at + len).await })
    }

    fn flush(&self) -> Done {
        let raid = self.0.clone();
        Box::pin(async move {
            if raid.journal.is_none() {
                raid.array.flush_all().await;
            }
        })
    }

    fn forget(&self, _: u64, _: u64) -> Done {
        Box::pin(std::future::ready(()))
    }

    fn moved(&self) -> (u64, u64) {
        self.0.array.moved()
    }
}

impl Inner {
    async fn write(self: &Rc<Inner>, bytes: Range<u64>, durable: bool) {
        if self.rows.shape.parity == 0 {
            return self.put(self.rows.data(bytes, true), durable).await;
        }
        let rows = self.rows_of(bytes);
        let request = Rc::new(Request { rows_left: Cell::new(rows.len()), durable });
        for (row, columns) in rows {
            while !self.heads.borrow_mut().want(row, columns, &request) {
                self.work();
                self.written.changed().await;
            }
        }
        self.work();
        self.written.until(|| request.rows_left.get() == 0).await;
    }

    /// The rows that bytes lie in, and which columns of each they cover.
    fn rows_of(&self, bytes: Range<u64>) -> Vec<(RowNo, Columns)> {
        let Shape { columns, parity, interleave, .. } = self.rows.shape;
        let (data, per_strip) = (columns - parity, interleave / BLOCK);
        let mut rows = std::collections::BTreeMap::new();
        for block in bytes.start / BLOCK..bytes.end.div_ceil(BLOCK) {
            let strip = block / per_strip;
            *rows.entry(strip / data * per_strip + block % per_strip).or_default() |= 1 << (strip % data);
        }
        rows.into_iter().collect()
    }

    /// Begins what waits, in the order of the rows, which is the order in which a request brings them: what is written
    /// whole can be on its way to a disk before another row of the same request asks it to read.
    fn work(self: &Rc<Inner>) {
        let waiting = self.heads.borrow().waiting();
        self.together(waiting).into_iter().for_each(|rows| self.spawn(rows));
    }

    /// Puts rows that follow each other together, if nothing has to be read for them; or if they lie in one strip and
    /// need the same read: the disks are asked for that together.
    fn together(&self, rows: Vec<RowNo>) -> Vec<Vec<RowNo>> {
        let (heads, per_strip) = (self.heads.borrow(), self.rows.shape.interleave / BLOCK);
        let mut groups: Vec<Vec<RowNo>> = Vec::new();
        for row in rows {
            let missing = heads.missing(row);
            let follows = |last: RowNo| {
                let strip = last + 1 == row && !row.is_multiple_of(per_strip);
                heads.missing(last) == missing && (missing == 0 || strip)
            };
            match groups.last_mut().filter(|group| group.last().is_some_and(|last| follows(*last))) {
                Some(group) => group.push(row),
                None => groups.push(vec![row]),
            }
        }
        groups
    }

    /// Begins to work on rows. What has to be read is decided now: what comes a moment later comes too late for that.
    fn spawn(self: &Rc<Inner>, rows: Vec<RowNo>) {
        let raid = self.clone();
        let missing = self.missing(&rows);
        rows.iter().for_each(|row| self.heads.borrow_mut().begin(*row));
        self.array.world.spawn("rows of a stripe", Box::pin(async move { raid.rewrite(rows, missing).await }));
    }

    /// What rows lack, of those that lack something.
    fn missing(&self, rows: &[RowNo]) -> Vec<(RowNo, Columns)> {
        let lacks = |row: &RowNo| (*row, self.heads.borrow().missing(*row));
        rows.iter().map(lacks).filter(|(_, columns)| *columns != 0).collect()
    }

    /// Reads what rows lack, and writes what is wanted of them.
    async fn rewrite(self: Rc<Inner>, rows: Vec<RowNo>, mut missing: Vec<(RowNo, Columns)>) {
        while !missing.is_empty() {
            self.array.read(&self.parts(&missing)).await;
            missing.iter().for_each(|(row, columns)| self.heads.borrow_mut().was_read(*row, *columns));
            missing = self.missing(&rows);
        }
        let mut requests = Vec::new();
        let taken = rows.iter().map(|row| {
            let (columns, clients) = self.heads.borrow_mut().take(*row);
            requests.extend(clients);
            (*row, columns)
        });
        let taken: Vec<_> = taken.collect();
        let durable = requests.iter().any(|request| request.durable);
        match &self.journal {
            Some(next) => {
                join(units(&taken).map(|unit| self.put_logged(next, unit, durable))).await;
            }
            None => self.put(self.parts(&taken), durable).await,
        }
        rows.iter().for_each(|row| self.heads.borrow_mut().end(*row));
        requests.iter().for_each(|request| request.rows_left.set(request.rows_left.get() - 1));
        self.work();
        self.written.notify();
    }

    /// Where columns of rows lie.
    fn parts(&self, rows: &[(RowNo, Columns)]) -> Vec<Part> {
        let Shape { columns, parity, interleave, .. } = self.rows.shape;
        let (data, per_strip) = (columns - parity, interleave / BLOCK);
        let mut parts = Vec::new();
        for (row, wanted) in rows {
            let (stripe, into) = (row / per_strip, row % per_strip * BLOCK);
            for nth in (0..data).filter(|nth| wanted >> nth & 1 == 1) {
                let at = (stripe * data + nth) * interleave + into;
                parts.extend(self.rows.data(at..at + BLOCK, true));
            }
            let parities = self.rows.parity(stripe).into_iter().enumerate();
            let wanted = parities.filter(|(nth, _)| wanted >> (data + *nth as u64) & 1 == 1);
            parts.extend(wanted.map(|(_, part)| Part { at: part.at + into, len: BLOCK, ..part }));
        }
        merged(parts)
    }

    /// Writes rows to the log, durably, and then to their places.
    async fn put_logged(&self, next: &Cell<u64>, unit: &[(RowNo, Columns)], durable: bool) {
        let len = blocks(unit) * BLOCK;
        let at = if next.get() + len > JOURNAL { 0 } else { next.get() };
        next.set(at + len);
        self.array.write(&[Part { disk: self.disks, at: at + SLAB, len }]).await;
        self.array.flush([self.disks].into_iter()).await;
        self.put(self.parts(unit), durable).await;
    }

    async fn put(&self, parts: Vec<Part>, durable: bool) {
        self.array.write(&parts).await;
        if durable {
            let disks: BTreeSet<usize> = parts.iter().map(|part| part.disk).collect();
            self.array.flush(disks.into_iter()).await;
        }
    }

    async fn read(&self, bytes: Range<u64>) {
        let Shape { copies, interleave, .. } = self.rows.shape;
        if copies == 1 {
            return self.array.read(&self.rows.data(bytes, false)).await;
        }
        let (mut at, mut parts) = (bytes.start, Vec::new());
        while at < bytes.end {
            let end = bytes.end.min((at / interleave + 1) * interleave);
            let held = self.rows.data(at..end, true);
            let Some(part) = held.into_iter().min_by_key(|part| self.way_to(part)) else { return };
            self.arms[part.disk].under_way.update(|reads| reads + 1);
            parts.push(part);
            at = end;
        }
        let reads = merged(parts.clone()).into_iter().map(|part| async move {
            self.array.read(&[part]).await;
            self.arms[part.disk].at.set(part.at + part.len);
        });
        join(reads).await;
        parts.iter().for_each(|part| self.arms[part.disk].under_way.update(|reads| reads - 1));
    }

    /// How far a disk is from what it would read.
    fn way_to(&self, part: &Part) -> u64 {
        let arm = &self.arms[part.disk];
        if arm.under_way.get() == 0 { 0 } else { arm.at.get().abs_diff(part.at) }
    }
}

/// Divides rows into what goes to the log with one request each.
fn units(rows: &[(RowNo, Columns)]) -> impl Iterator<Item = &[(RowNo, Columns)]> {
    let mut left = rows;
    std::iter::from_fn(move || {
        let batches = left.len().div_ceil(BATCH);
        let fit = (1..=batches).rev().map(|batches| (batches * BATCH).min(left.len()));
        let unit = fit.into_iter().find(|rows| blocks(&left[..*rows]) <= UNIT).unwrap_or(BATCH.min(left.len()));
        let (unit, rest) = left.split_at(unit);
        left = rest;
        (!unit.is_empty()).then_some(unit)
    })
}

/// Counts the blocks that rows are in the log.
fn blocks(rows: &[(RowNo, Columns)]) -> u64 {
    rows.iter().map(|(_, columns)| u64::from(columns.count_ones())).sum::<u64>() + rows.len().div_ceil(BATCH) as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::{Ask, drive, in_order};
    use weft_sim::timing::{HddClass, SsdClass};

    fn raid(journal: bool) -> Rc<dyn Volume> {
        let shape = Shape { columns: 5, parity: 1, copies: 1, interleave: 64 << 10 };
        let journal = journal.then_some(Kind::Ssd(SsdClass::SATA_SSD));
        Rc::new(Raid::new(&vec![Kind::Hdd(HddClass::HDD_7200_8TB); 5], shape, journal, 4 << 30))
    }

    #[test]
    fn whole_stripes_read_nothing_and_a_small_write_reads_as_much_as_it_writes() {
        let volume = raid(false);
        let whole = drive(&volume, in_order(0, 64 << 20, 1 << 20), 1, None, true);
        assert_eq!((whole.disk_read, whole.disk_written), (0, 80 << 20));
        let small = drive(&volume, (100..200).map(|nth| Ask::Write((nth * 300) << 12, 4096)), 1, None, true);
        assert_eq!((small.disk_read, small.disk_written), (100 * 8192, 100 * 8192));
        // Three of four strips: the fourth is less to read than three and the parity.
        let most = drive(&volume, [Ask::Write(0, 192 << 10)].into_iter(), 1, None, true);
        assert_eq!((most.disk_read, most.disk_written), (64 << 10, 256 << 10));
    }

    #[test]
    fn a_journal_makes_flushes_free_and_durable_writes_no_faster() {
        let [without, with] = [false, true].map(|journal| {
            let volume = raid(journal);
            let of = |one: fn(u64, u64) -> Ask, flush| {
                let asks = (0..200).map(move |nth| one((nth * 7919 % 500_000) << 12, 4096));
                drive(&volume, asks, 8, None, flush).per_second()
            };
            (of(Ask::WriteThrough, false), of(Ask::Write, true))
        });
        assert!(with.0 < 1.05 * without.0 && with.1 > 1.1 * without.1, "{with:?} {without:?}");
    }

    #[test]
    fn the_cache_spares_reads_of_what_lies_in_order() {
        // 64 KiB each: what is overwritten and the parity; what is overwritten; the rest; nothing.
        let four = drive(&raid(false), in_order(0, 256 << 10, 64 << 10), 1, None, true);
        assert_eq!((four.disk_read, four.disk_written), (256 << 10, 4 * (128 << 10)));
    }
}
