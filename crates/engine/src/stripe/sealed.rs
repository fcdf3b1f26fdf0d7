//! What a stripe is while it travels to the disks.
//!
//! Invariants
//! 1. Its data never changes: later writes to the same stripe gather in a new buffer. Where it is to be written may
//!    change, as long as nothing of it is on its way.
//! 2. `landed` tells the log records that hold data of it which nothing else does.
//! 3. What lands while it is on its way lands before anything that is newer, and its commit retires that, too.

use super::buffer::{StripeBuffer, chunks_per_strip, in_pieces_of, pieces, with_parity};
use crate::bits::BitSet;
use crate::checksum::{BlockAddress, block_checksums};
use crate::geometry::Layout;
use crate::io::{Buf, IoSlice};
use crate::mutant::{self, Mutant};
use crate::parity;
use crate::stripe::landed::Landed;
use crate::units::{BLOCK, SECTOR, SegmentNo, TableNo};
use alloc::vec;
use alloc::vec::Vec;
use core::cell::{Cell, RefCell};
use core::ops::Range;

/// Where stripes of a virtual disk lie.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Tier {
    /// In segments of its fast tier.
    Fast,
    /// In segments of its table.
    Base,
}

/// Where a stripe is to be written: the table whose places it takes, and the layout that it has there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Home {
    /// The table: that of the stripe, or its fast tier.
    pub table: TableNo,
    /// The layout.
    pub layout: Layout,
}

/// A stripe on its way to the disks: a whole one, or what there is of one that leaves in packed stripes.
pub struct Sealed {
    /// The layout that it was gathered in.
    layout: Layout,
    home: Cell<Home>,
    /// The data columns of `layout`; each the chunks of one strip.
    data: Vec<Vec<IoSlice>>,
    /// The parity columns of `layout`, where its home has that layout.
    parity: RefCell<Vec<Vec<IoSlice>>>,
    retires: Cell<u64>,
    /// The log records that keep this data durable until the stripe is committed.
    pub landed: RefCell<Landed>,
    /// See [`StripeBuffer::merged`].
    pub merged: bool,
    /// See [`StripeBuffer::ordered`].
    pub ordered: bool,
    /// See [`StripeBuffer::relocated`].
    pub relocated: bool,
    /// Whether it is a copy of what its tables told when it was sealed: whoever loses it has lost nothing.
    pub copied: bool,
    /// Whether the log held some of it when it was closed: then it leaves with those that make room there.
    pub empties_log: bool,
    /// Whether some of it landed while it was on its way.
    pub landed_in_flight: Cell<bool>,
    /// The sectors that somebody wrote, and that no log record holds yet.
    unlanded: RefCell<BitSet>,
    lent: usize,
    /// What there is of one that is not whole; it has no columns.
    part: Option<StripeBuffer>,
}

impl StripeBuffer {
    /// The whole stripe, closed for changes, to be written there. A home of another layout has no parity, and as many
    /// bytes of data.
    pub fn seal(mut self, retires: u64, home: Home) -> Sealed {
        assert!(self.is_whole(), "only a whole stripe is sealed");
        assert_eq!(self.layout.data_len(), home.layout.data_len(), "a stripe has the same data wherever it lies");
        let per_strip = chunks_per_strip(self.layout);
        let chunks = core::mem::take(&mut self.chunks).into_iter();
        let mut chunks = chunks.map(|chunk| chunk.expect("a whole stripe has every chunk").freeze());
        let data = (0..self.layout.data_columns()).map(|_| chunks.by_ref().take(per_strip).collect()).collect();
        let StripeBuffer { ordered, relocated, copied, .. } = self;
        let sealed = Sealed { data, ordered, relocated, copied, ..self.closed(retires, home) };
        sealed.protect();
        sealed
    }

    /// What there is of the stripe, closed for changes, to leave in packed stripes.
    pub fn close(mut self, retires: u64, home: Home) -> Sealed {
        let closed = self.closed(retires, home);
        Sealed { part: Some(self), ..closed }
    }

    /// What a whole one and a part have in common: all but the bytes.
    fn closed(&mut self, retires: u64, home: Home) -> Sealed {
        let landed = core::mem::take(&mut self.landed);
        Sealed {
            layout: self.layout,
            home: Cell::new(home),
            data: Vec::new(),
            parity: RefCell::default(),
            retires: Cell::new(retires),
            empties_log: landed.oldest().is_some(),
            landed: RefCell::new(landed),
            merged: self.merged,
            ordered: false,
            relocated: false,
            copied: false,
            landed_in_flight: Cell::new(false),
            unlanded: RefCell::new(self.unlanded.clone()),
            lent: self.lent,
            part: None,
        }
    }
}

impl Sealed {
    /// Where it is to be written.
    pub fn home(&self) -> Home {
        self.home.get()
    }

    /// Has it written elsewhere than it was to be. Nothing of it is on its way.
    pub fn send_to(&self, home: Home) {
        assert_eq!(self.layout.data_len(), home.layout.data_len(), "a stripe has the same data wherever it lies");
        self.home.set(home);
        self.protect();
    }

    /// Computes the parity columns, where there are to be some.
    fn protect(&self) {
        let parity_columns = self.home().layout.parity();
        if parity_columns == 0 || !self.parity.borrow().is_empty() {
            return;
        }
        assert_eq!(self.layout, self.home().layout, "a stripe has parity in the layout that it was gathered in");
        let mut columns = alloc::vec![Vec::new(); parity_columns];
        for chunk in 0..chunks_per_strip(self.layout) {
            let len = self.data[0][chunk].len();
            let mut made: Vec<Buf> = (0..parity_columns).map(|_| Buf::zeroed(len)).collect();
            let data: Vec<&[u8]> = self.data.iter().map(|column| &*column[chunk]).collect();
            let mut parity: Vec<&mut [u8]> = made.iter_mut().map(|buf| &mut **buf).collect();
            if !parity.is_empty() {
                parity::generate(&data, &mut parity);
            }
            for (column, buf) in columns.iter_mut().zip(made) {
                column.push(buf.freeze());
            }
        }
        *self.parity.borrow_mut() = columns;
    }

    /// The pieces of one column's strip, in the layout of its home.
    pub fn strip(&self, column: usize) -> Vec<IoSlice> {
        let home = self.home().layout;
        if home == self.layout {
            let data_columns = self.data.len();
            return match column.checked_sub(data_columns) {
                Some(column) => self.parity.borrow()[column].clone(),
                None => self.data[column].clone(),
            };
        }
        let len = home.interleave().as_usize();
        let per_strip = chunks_per_strip(self.layout);
        let piece = |(chunk, place, range): (usize, usize, Range<usize>)| {
            self.data[chunk / per_strip][chunk % per_strip].slice(place..place + range.len())
        };
        pieces(self.layout, column * len, len).map(piece).collect()
    }

    /// The checksums of all blocks, slot after slot, for a stripe at `index` of `segment`.
    pub fn sums(&self, segment: SegmentNo, index: u32) -> Vec<u32> {
        let layout = self.home().layout;
        let mut sums = vec![0; layout.stripe_sums()];
        for (slot, sums) in sums.chunks_exact_mut(layout.strip_blocks()).enumerate() {
            let mut block = 0;
            for chunk in self.strip(layout.column(index, slot)) {
                let blocks = chunk.len() / BLOCK as usize;
                let first = BlockAddress {
                    segment,
                    slot: slot as u32,
                    block: index as u64 * layout.strip_blocks() as u64 + block as u64,
                };
                block_checksums(first, &chunk, &mut sums[block..block + blocks]);
                block += blocks;
            }
        }
        sums
    }

    /// The oldest log record that keeps this data durable.
    pub fn landed_from(&self) -> Option<u64> {
        self.landed.borrow().oldest()
    }

    /// What there is of one that is not whole.
    pub fn part(&self) -> Option<&StripeBuffer> {
        self.part.as_ref()
    }

    /// Whether it is durable without its commit: the log holds all that was written into it, and the rest, where it was
    /// merged, is what the tables say.
    pub fn is_landed(&self) -> bool {
        let is_landed = self.unlanded.borrow().is_empty() && !mutant::active(Mutant::FlushWaitsForMoved);
        is_landed || mutant::active(Mutant::SealedIsLanded)
    }

    /// Bytes that no log record holds yet.
    pub fn unlanded_len(&self) -> usize {
        self.unlanded.borrow().count() * SECTOR as usize
    }

    /// [`StripeBuffer::land`], of one that is whole.
    pub fn land(&self, piece: usize) -> Vec<(usize, Vec<u8>)> {
        in_pieces_of(&mut self.unlanded.borrow_mut(), piece, |at, bytes| drop(self.get(at, bytes)))
    }

    /// Landed records below this sequence number are part of it.
    pub fn retires(&self) -> u64 {
        self.retires.get()
    }

    /// What landed below this sequence number is part of it, too: nothing that was written after it landed yet.
    pub fn retire_below(&self, seq: u64) {
        self.retires.set(seq);
    }

    /// Copies user bytes `at..at + into.len()` of the stripe, and returns the byte runs that it has not: none, where it
    /// is whole.
    pub fn get(&self, at: usize, into: &mut [u8]) -> Vec<Range<usize>> {
        if let Some(part) = &self.part {
            return part.get(at, into);
        }
        for (chunk, place, range) in pieces(self.layout, at, into.len()) {
            let per_strip = chunks_per_strip(self.layout);
            let len = range.len();
            into[range].copy_from_slice(&self.data[chunk / per_strip][chunk % per_strip][place..place + len]);
        }
        Vec::new()
    }

    /// Bytes of memory it takes.
    pub fn memory(&self) -> usize {
        let whole = || with_parity(self.layout, self.layout.data_len().as_usize());
        self.part.as_ref().map_or_else(whole, |part| part.memory())
    }

    /// Bytes held that no merge has taken from a budget of its own.
    pub fn charged(&self) -> usize {
        self.memory() - self.lent
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::geometry::Resiliency;
    use crate::units::{ByteCount, Nanos};

    fn layout() -> Layout {
        Layout::new(Resiliency::Parity { parity: 1 }, 4, ByteCount::kib(40)).unwrap()
    }

    #[test]
    fn a_sealed_stripe_reads_back_and_its_parity_is_the_sum_of_its_columns() {
        let layout = layout();
        let mut buffer = StripeBuffer::new(layout, 0, Nanos(0));
        let data: Vec<u8> = (0..layout.data_len().as_usize()).map(|at| (at * 31 / 7) as u8).collect();
        buffer.put(0, &data, false);
        let sealed = buffer.seal(0, Home { table: TableNo(1), layout });
        let mut back = vec![0; data.len()];
        sealed.get(0, &mut back);
        assert_eq!(back, data);
        assert_parity_is_the_sum(&sealed, layout);
    }

    #[test]
    fn a_stripe_has_the_same_bytes_in_the_layout_of_a_tier_and_parity_when_it_goes_to_the_table_after_all() {
        let layout = layout();
        let mut buffer = StripeBuffer::new(layout, 0, Nanos(0));
        let data: Vec<u8> = (0..layout.data_len().as_usize()).map(|at| (at * 31 / 7) as u8).collect();
        buffer.put(0, &data, false);
        let columns = 2;
        let interleave = ByteCount(layout.data_len().0 / columns as u64);
        let fast = Layout::new(Resiliency::Mirror { copies: 2 }, columns, interleave).unwrap();
        let sealed = buffer.seal(0, Home { table: TableNo(2), layout: fast });
        let bytes =
            |column: usize| -> Vec<u8> { sealed.strip(column).iter().flat_map(|piece| piece.to_vec()).collect() };
        assert_eq!([bytes(0), bytes(1)].concat(), data);
        assert_eq!(sealed.sums(SegmentNo(1), 0).len(), fast.stripe_sums());
        sealed.send_to(Home { table: TableNo(1), layout });
        assert_eq!([bytes(0), bytes(1), bytes(2)].concat(), data);
        assert_parity_is_the_sum(&sealed, layout);
    }

    /// Three columns of data, one of parity.
    fn assert_parity_is_the_sum(sealed: &Sealed, layout: Layout) {
        let strip = |column| -> Vec<u8> { sealed.strip(column).iter().flat_map(|piece| piece.to_vec()).collect() };
        let [a, b, c, parity] = [0, 1, 2, 3].map(strip);
        for at in 0..layout.interleave().as_usize() {
            assert_eq!(a[at] ^ b[at] ^ c[at], parity[at]);
        }
    }
}
