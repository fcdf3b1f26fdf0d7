//! Arrays that write in place, as references: RAID 5 and 6, with and without a journal.
//!
//! The model
//! 1. A stripe that a request covers wholly is written with its parity, and nothing is read.
//! 2. Of another stripe either what is overwritten and the parity are read, or the rest of the stripe, whichever is
//!    less; then data and parity are written. One such write at a time for each stripe.
//! 3. With a journal, data and parity go to it first, one after the other, on a solid-state disk; what must be durable
//!    is durable there.
//! 4. Requests are not held back in the hope that others complete their stripes, as md's stripe cache does for buffered
//!    writes.

use crate::spaces::array::{Array, Kind, Part, merged};
use crate::spaces::rows::{Rows, SLAB, Shape, Slabs};
use crate::volume::{Done, Volume};
use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::ops::Range;
use std::rc::Rc;
use weft_engine::store::join;
use weft_engine::sync::Signal;
use weft_sim::world::SimWorld;

/// An array with parity that writes in place. A handle: clones are the same.
#[derive(Clone)]
pub struct Raid(Rc<Inner>);

struct Inner {
    array: Rc<Array>,
    rows: Rows,
    /// Disks of the array itself.
    disks: usize,
    /// Where the journal goes on, if there is one: on the disk behind those of the array.
    journal: Option<Cell<u64>>,
    /// Stripes that are being merged.
    locked: RefCell<BTreeSet<u64>>,
    unlocked: Signal,
}

/// Bytes of a journal, used in turn.
const JOURNAL: u64 = 4 << 30;

impl Raid {
    /// An array of this shape on these disks, with a journal on `journal`, for `size` bytes.
    pub fn new(disks: &[Kind], shape: Shape, journal: Option<Kind>, size: u64) -> Raid {
        let mut rows = Rows::new(shape, (0..disks.len()).collect());
        let mut slabs = Slabs::new(disks.len());
        (0..size.div_ceil(shape.row())).for_each(|row| rows.add(row, &mut slabs));
        let kinds: Vec<Kind> = disks.iter().cloned().chain(journal.clone()).collect();
        let journal = journal.map(|_| Cell::new(0));
        let (array, locked) = (Array::new(&kinds), RefCell::default());
        Raid(Rc::new(Inner { array, rows, disks: disks.len(), journal, locked, unlocked: Signal::new() }))
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
        Box::pin(async move { raid.array.read(&raid.rows.data(at..at + len, false)).await })
    }

    fn flush(&self) -> Done {
        let raid = self.0.clone();
        Box::pin(async move { raid.array.flush_all().await })
    }

    fn forget(&self, _: u64, _: u64) -> Done {
        Box::pin(std::future::ready(()))
    }

    fn moved(&self) -> (u64, u64) {
        self.0.array.moved()
    }
}

impl Inner {
    async fn write(&self, bytes: Range<u64>, durable: bool) {
        let stripe = self.rows.shape.stripe();
        let whole = bytes.start.next_multiple_of(stripe)..bytes.end / stripe * stripe;
        if whole.start >= whole.end {
            let border = (bytes.start / stripe + 1) * stripe;
            let (head, tail) = (bytes.start..bytes.end.min(border), border..bytes.end.max(border));
            join([head, tail].map(|part| self.merge(part, durable)).into_iter()).await;
            return;
        }
        let ends = [bytes.start..whole.start, whole.end..bytes.end];
        let merges = join(ends.into_iter().map(|part| self.merge(part, durable)));
        let parts = self.rows.whole(whole.start / stripe..whole.end / stripe);
        let straight = self.put(parts, durable);
        join(
            [Box::pin(async { drop(merges.await) }) as std::pin::Pin<Box<dyn Future<Output = ()>>>, Box::pin(straight)]
                .into_iter(),
        )
        .await;
    }

    /// Writes a part of one stripe.
    async fn merge(&self, part: Range<u64>, durable: bool) {
        if part.start == part.end {
            return;
        }
        let stripe_len = self.rows.shape.stripe();
        let stripe = part.start / stripe_len;
        self.unlocked.until(|| self.locked.borrow_mut().insert(stripe)).await;
        let new = self.rows.data(part.clone(), true);
        let parity = self.parity(stripe, &new);
        let rest = [stripe * stripe_len..part.start, part.end..(stripe + 1) * stripe_len];
        let rest: Vec<Part> = rest
            .into_iter()
            .filter(|part| part.start < part.end)
            .flat_map(|part| self.rows.data(part, false))
            .collect();
        let sum = |parts: &[Part]| parts.iter().map(|part| part.len).sum::<u64>();
        let old: Vec<Part> = new.iter().chain(&parity).copied().collect();
        self.array.read(&merged(if sum(&old) <= sum(&rest) { old.clone() } else { rest })).await;
        self.put(old, durable).await;
        self.locked.borrow_mut().remove(&stripe);
        self.unlocked.notify();
    }

    /// The parity of these parts of a stripe: of one strip what is written of it, of more the whole.
    fn parity(&self, stripe: u64, new: &[Part]) -> Vec<Part> {
        let whole = self.rows.parity(stripe);
        let [one] = new else { return whole };
        let into = one.at % self.rows.shape.interleave;
        whole.into_iter().map(|part| Part { at: part.at + into, len: one.len, ..part }).collect()
    }

    async fn put(&self, parts: Vec<Part>, durable: bool) {
        if let Some(next) = &self.journal {
            let len: u64 = parts.iter().map(|part| part.len).sum::<u64>() + 4096;
            let at = if next.get() + len > JOURNAL { 0 } else { next.get() };
            next.set(at + len);
            self.array.write(&[Part { disk: self.disks, at: at + SLAB, len }]).await;
            if durable {
                self.array.flush([self.disks].into_iter()).await;
            }
        }
        self.array.write(&merged(parts.clone())).await;
        if durable && self.journal.is_none() {
            let disks: BTreeSet<usize> = parts.iter().map(|part| part.disk).collect();
            self.array.flush(disks.into_iter()).await;
        }
    }
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
        let small = drive(&volume, (0..100).map(|nth| Ask::Write((nth * 300) << 12, 4096)), 1, None, true);
        assert_eq!((small.disk_read, small.disk_written), (100 * 8192, 100 * 8192));
        // Three of four strips: the fourth is less to read than three and the parity.
        let most = drive(&volume, [Ask::Write(0, 192 << 10)].into_iter(), 1, None, true);
        assert_eq!((most.disk_read, most.disk_written), (64 << 10, 256 << 10));
    }

    #[test]
    fn a_journal_makes_small_durable_writes_faster() {
        let [without, with] = [false, true].map(|journal| {
            let asks = (0..200).map(|nth| Ask::WriteThrough((nth * 7919 % 500_000) << 12, 4096));
            drive(&raid(journal), asks, 8, None, false).per_second()
        });
        assert!(with > 1.2 * without, "{with} {without}");
    }
}
