//! Where the bytes of an array lie: rows of slabs, columns, interleave, rotating parity.
//!
//! Facts (STORAGE_SPACES.md)
//! 1. 1.8: space is given in slabs of 256 MiB; a row is one slab for each column and copy.
//! 2. 1.2: data begin 528 MiB from the start of a disk (the partition, and the pool's database before slab 0).
//! 3. 1.6: rows may lie on different disks. Which ones is not known (RE); here the disks with the fewest slabs.
//! 4. 1.5: of C columns with r of parity, the parity of stripe s begins at column (C - r - r s) mod C, data follow it;
//!    with r = 1 that is left-symmetric RAID 5.
//! 5. 1.7: a stripe takes `interleave` bytes of each column.

use super::array::{Part, merged};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

/// Bytes of a slab.
pub const SLAB: u64 = 256 << 20;
/// Where slab 0 begins.
const FIRST: u64 = 528 << 20;

/// The shape of an array.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Shape {
    /// Columns, those of parity included.
    pub columns: u64,
    /// Columns of parity among them.
    pub parity: u64,
    /// Copies of each column.
    pub copies: u64,
    /// Bytes of a column in a stripe.
    pub interleave: u64,
}

impl Shape {
    /// Bytes of data in a stripe.
    pub fn stripe(self) -> u64 {
        (self.columns - self.parity) * self.interleave
    }

    /// Bytes of data in a row of slabs.
    pub fn row(self) -> u64 {
        (self.columns - self.parity) * SLAB
    }

    /// Slabs in a row.
    pub fn slabs(self) -> usize {
        (self.columns * self.copies) as usize
    }

    fn stripes_per_row(self) -> u64 {
        SLAB / self.interleave
    }
}

/// Which slabs of the disks are taken.
pub struct Slabs {
    /// Per disk: the lowest one never taken.
    next: Vec<u64>,
    freed: Vec<BTreeSet<u64>>,
    given: u64,
}

impl Slabs {
    /// All free.
    pub fn new(disks: usize) -> Slabs {
        Slabs { next: vec![0; disks], freed: vec![BTreeSet::new(); disks], given: 0 }
    }

    /// Takes so many of each disk, for data that are not looked at.
    pub fn skip(&mut self, count: u64) {
        self.next.iter_mut().for_each(|next| *next += count);
    }

    /// Takes one slab from each of `count` of the disks `among`.
    fn take(&mut self, count: usize, among: &[usize]) -> Vec<(usize, u64)> {
        assert!(count <= among.len(), "{count} columns and copies do not fit on {} disks", among.len());
        let turn = self.given;
        self.given += 1;
        let used = |disk: usize| self.next[disk] - self.freed[disk].len() as u64;
        let mut order: Vec<usize> = (0..among.len()).collect();
        order.sort_by_key(|nth| (used(among[*nth]), (*nth as u64 + turn) % among.len() as u64));
        let mut taken: Vec<usize> = order[..count].iter().map(|nth| among[*nth]).collect();
        taken.sort_unstable();
        let slab = |disk: usize| match self.freed[disk].pop_first() {
            Some(slab) => (disk, slab),
            None => {
                self.next[disk] += 1;
                (disk, self.next[disk] - 1)
            }
        };
        taken.into_iter().map(slab).collect()
    }
}

/// Where an array lies.
pub struct Rows {
    /// Its shape.
    pub shape: Shape,
    /// The disks it may use.
    among: Vec<usize>,
    rows: BTreeMap<u64, Vec<(usize, u64)>>,
}

impl Rows {
    /// An array that has no row yet.
    pub fn new(shape: Shape, among: Vec<usize>) -> Rows {
        Rows { shape, among, rows: BTreeMap::new() }
    }

    /// Whether the row has slabs.
    pub fn has(&self, row: u64) -> bool {
        self.rows.contains_key(&row)
    }

    /// Gives the row slabs.
    pub fn add(&mut self, row: u64, slabs: &mut Slabs) {
        self.rows.insert(row, slabs.take(self.shape.slabs(), &self.among));
    }

    /// Takes them away.
    pub fn remove(&mut self, row: u64, slabs: &mut Slabs) {
        for (disk, slab) in self.rows.remove(&row).into_iter().flatten() {
            slabs.freed[disk].insert(slab);
        }
    }

    /// The disks of all rows.
    pub fn disks(&self) -> BTreeSet<usize> {
        self.rows.values().flatten().map(|(disk, _)| *disk).collect()
    }

    /// What holds these bytes: every copy of them, or one. Rows without slabs hold nothing.
    pub fn data(&self, bytes: Range<u64>, every_copy: bool) -> Vec<Part> {
        let Shape { columns, parity, copies, interleave } = self.shape;
        let mut parts = Vec::new();
        let mut at = bytes.start;
        while at < bytes.end {
            let (strip, into) = (at / interleave, at % interleave);
            let len = (interleave - into).min(bytes.end - at);
            let (stripe, nth) = (strip / (columns - parity), strip % (columns - parity));
            let column = (self.parity_at(stripe) + parity + nth) % columns;
            let chosen = if every_copy { 0..copies } else { stripe % copies..stripe % copies + 1 };
            parts.extend(chosen.filter_map(|copy| self.part(stripe, column * copies + copy, into, len)));
            at += len;
        }
        merged(parts)
    }

    /// What holds these stripes whole, parity included.
    pub fn whole(&self, stripes: Range<u64>) -> Vec<Part> {
        let slots = 0..self.shape.slabs() as u64;
        let one = |stripe| slots.clone().filter_map(move |slot| self.part(stripe, slot, 0, self.shape.interleave));
        merged(stripes.flat_map(one).collect())
    }

    /// What holds the parity of a stripe.
    pub fn parity(&self, stripe: u64) -> Vec<Part> {
        let first = self.parity_at(stripe);
        let column = |nth| (first + nth) % self.shape.columns;
        (0..self.shape.parity).filter_map(|nth| self.part(stripe, column(nth), 0, self.shape.interleave)).collect()
    }

    /// The rows that these bytes lie in.
    pub fn of(&self, bytes: &Range<u64>) -> Range<u64> {
        bytes.start / self.shape.row()..(bytes.end - 1) / self.shape.row() + 1
    }

    fn parity_at(&self, stripe: u64) -> u64 {
        let Shape { columns, parity, .. } = self.shape;
        let turned = parity * stripe % columns;
        (2 * columns - parity - turned) % columns
    }

    fn part(&self, stripe: u64, slot: u64, into: u64, len: u64) -> Option<Part> {
        let per_row = self.shape.stripes_per_row();
        let (disk, slab) = self.rows.get(&(stripe / per_row))?[slot as usize];
        Some(Part { disk, at: FIRST + slab * SLAB + stripe % per_row * self.shape.interleave + into, len })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stripe_covers_each_disk_once_and_parity_goes_round() {
        for (columns, parity) in [(3, 1), (5, 1), (10, 2), (8, 0)] {
            let shape = Shape { columns, parity, copies: 1, interleave: 64 << 10 };
            let (mut rows, mut slabs) =
                (Rows::new(shape, (0..columns as usize).collect()), Slabs::new(columns as usize));
            rows.add(0, &mut slabs);
            let mut holders = BTreeSet::new();
            for stripe in 0..columns {
                let start = stripe * shape.stripe();
                let mut parts = rows.data(start..start + shape.stripe(), true);
                parts.extend(rows.parity(stripe));
                holders.extend(rows.parity(stripe).iter().map(|part| part.disk));
                parts.sort_unstable();
                assert_eq!(parts, rows.whole(stripe..stripe + 1));
                assert_eq!(parts.len() as u64, columns);
            }
            assert_eq!(holders.len() as u64, if parity == 0 { 0 } else { columns });
            assert_eq!(rows.whole(0..16).len() as u64, columns, "stripes next to each other are one part of each disk");
        }
    }

    #[test]
    fn slabs_that_were_given_back_are_used_again() {
        let shape = Shape { columns: 3, parity: 1, copies: 1, interleave: 64 << 10 };
        let (mut rows, mut slabs) = (Rows::new(shape, vec![0, 1, 2, 3]), Slabs::new(4));
        (0..4).for_each(|row| rows.add(row, &mut slabs));
        assert_eq!(slabs.next, [3, 3, 3, 3], "four disks carry three columns evenly");
        rows.remove(1, &mut slabs);
        assert!(!rows.has(1));
        rows.add(4, &mut slabs);
        assert_eq!(slabs.next, [3, 3, 3, 3]);
    }
}
