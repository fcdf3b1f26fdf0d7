//! Where a stripe is gathered until it is whole, and what it is while it travels to the disks.
//!
//! Invariants
//! 1. `unlanded` is a subset of `have`; a sector outside `have` is never read from the buffer.
//! 2. The data of a sealed stripe never changes: later writes to the same stripe gather in a new buffer. Where it is to
//!    be written may change, as long as nothing of it is on its way.
//! 3. `landed` tells the log records that hold data of this buffer which nothing else does.

use crate::bits::BitSet;
use crate::checksum::{BlockAddress, block_checksums};
use crate::geometry::Layout;
use crate::io::{Buf, IoSlice};
use crate::mutant::{self, Mutant};
use crate::parity;
use crate::stripe::landed::Landed;
use crate::units::{BLOCK, Nanos, SECTOR, SegmentNo, TableNo};
use alloc::vec;
use alloc::vec::Vec;
use core::cell::{Cell, RefCell};
use core::ops::Range;

/// Buffers grow by pieces of at most this many bytes, so that a small write into a large stripe costs little memory.
const CHUNK: usize = 32 << 10;

/// A stripe being gathered.
pub struct StripeBuffer {
    layout: Layout,
    chunks: Vec<Option<Buf>>,
    have: BitSet,
    unlanded: BitSet,
    /// Tells this buffer from an earlier one of the same stripe.
    pub id: u64,
    /// Whether part of it was read from the disks (or is zeros that nobody wrote) to make it whole.
    pub merged: bool,
    /// Whether it is on its way just to lie in order.
    pub ordered: bool,
    /// The tier that it is to lie in, where that was decided when it was read: it is moved, or merged.
    pub bound: Option<Tier>,
    /// Whether it is on its way just to lie in another tier.
    pub relocated: bool,
    /// Whether all that it has lies below it as well: nobody has written anything into it.
    copied: bool,
    /// Whether somebody wrote into it: bytes that are to be kept as they are, zeros or not.
    pub written: bool,
    /// The log records with live data of this buffer.
    pub landed: Landed,
    /// When it was last written to.
    pub touched: Nanos,
    /// Bytes of its memory that a merge has taken from a budget of its own.
    pub lent: usize,
}

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
    /// Landed records below this sequence number are part of it.
    pub retires: u64,
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
    /// Whether the log held all that was written into it when it was closed.
    is_landed: bool,
    lent: usize,
    /// What there is of one that is not whole; it has no columns.
    part: Option<StripeBuffer>,
}

impl StripeBuffer {
    /// An empty buffer for one stripe of `layout`.
    pub fn new(layout: Layout, id: u64, now: Nanos) -> StripeBuffer {
        let sectors = (layout.data_len().0 / SECTOR) as usize;
        StripeBuffer {
            layout,
            chunks: (0..chunks_per_strip(layout) * layout.data_columns()).map(|_| None).collect(),
            have: BitSet::empty(sectors),
            unlanded: BitSet::empty(sectors),
            id,
            merged: false,
            ordered: false,
            bound: None,
            relocated: false,
            copied: false,
            written: false,
            landed: Landed::default(),
            touched: now,
            lent: 0,
        }
    }

    /// Takes `bytes` (whole sectors) at byte `at` of the stripe. `landed`: the log holds them already.
    pub fn put(&mut self, at: usize, bytes: &[u8], landed: bool) {
        let sectors = sectors_of(at, bytes.len());
        self.copy_in(at, bytes);
        self.copied &= mutant::active(Mutant::WrittenCopyForgiven);
        self.have.insert(sectors.clone());
        if landed {
            self.unlanded.remove(sectors);
        } else {
            self.unlanded.insert(sectors);
        }
    }

    /// What is filled in from here on comes from below, all of it: if it is still empty, it becomes a copy of that.
    pub fn begin_copy(&mut self) {
        self.copied |= self.have_len() == 0 || mutant::active(Mutant::WrittenCopyForgiven);
    }

    /// Takes `bytes` at `at` where the buffer has nothing of its own: what lies on the disks, for a merge.
    pub fn fill(&mut self, at: usize, bytes: &[u8]) {
        let within = sectors_of(at, bytes.len());
        for run in self.have.runs(within, false) {
            let start = run.start * SECTOR as usize;
            self.copy_in(start, &bytes[start - at..run.end * SECTOR as usize - at]);
            self.have.insert(run);
            self.merged = true;
        }
    }

    /// Copies what the buffer has of `at..at + into.len()` and returns the byte runs (of the stripe) that it has not.
    pub fn get(&self, at: usize, into: &mut [u8]) -> Vec<Range<usize>> {
        let within = sectors_of(at, into.len());
        for run in self.have.runs(within.clone(), true) {
            let (start, end) = (run.start * SECTOR as usize, run.end * SECTOR as usize);
            self.copy_out(start, &mut into[start - at..end - at]);
        }
        bytes_of(self.have.runs(within, false))
    }

    /// The byte runs the buffer has not.
    pub fn holes(&self) -> Vec<Range<usize>> {
        bytes_of(self.have.runs(0..(self.layout.data_len().0 / SECTOR) as usize, false))
    }

    /// Whether it has anything of these bytes (whole sectors).
    pub fn has_any(&self, bytes: Range<usize>) -> bool {
        self.have.first(sectors_of(bytes.start, bytes.len())).is_some()
    }

    /// Bytes that no log record holds yet.
    pub fn unlanded_len(&self) -> usize {
        self.unlanded.count() * SECTOR as usize
    }

    /// Unlanded bytes outside `range`.
    pub fn unlanded_outside(&self, range: Range<usize>) -> usize {
        let inside = self.unlanded.runs(sectors_of(range.start, range.len()), true);
        self.unlanded_len() - inside.iter().map(|run| run.len()).sum::<usize>() * SECTOR as usize
    }

    /// Hands out the unlanded runs, in pieces of at most `piece` bytes, as (byte offset in the stripe, bytes) and
    /// counts them as landed.
    pub fn land(&mut self, piece: usize) -> Vec<(usize, Vec<u8>)> {
        let runs = bytes_of(self.unlanded.runs(0..(self.layout.data_len().0 / SECTOR) as usize, true));
        let runs = runs.into_iter().flat_map(|run| in_pieces(run, piece));
        self.unlanded.remove(0..(self.layout.data_len().0 / SECTOR) as usize);
        let copy = |run: Range<usize>| {
            let mut bytes = vec![0; run.len()];
            self.copy_out(run.start, &mut bytes);
            (run.start, bytes)
        };
        runs.map(copy).collect()
    }

    /// Whether every sector is there.
    pub fn is_whole(&self) -> bool {
        self.have.is_full()
    }

    /// Whether it is whole, and nothing but zeros that nobody asked to be kept.
    pub fn is_blank(&self) -> bool {
        let zeros = |chunk: &Buf| chunk.iter().all(|byte| *byte == 0);
        !self.written && self.is_whole() && self.chunks.iter().flatten().all(zeros)
    }

    /// Bytes that are there.
    pub fn have_len(&self) -> usize {
        self.have.count() * SECTOR as usize
    }

    /// Bytes of memory it takes, those of the parity of what is there included: sealing takes no more.
    pub fn memory(&self) -> usize {
        with_parity(self.layout, self.chunks.iter().flatten().map(|chunk| chunk.len()).sum())
    }

    /// Bytes held that no merge has taken from a budget of its own.
    pub fn charged(&self) -> usize {
        self.memory() - self.lent
    }

    /// How much more it takes once `len` bytes at `at` are put.
    pub fn growth(&self, at: usize, len: usize) -> usize {
        let there = self.chunks.iter().flatten().map(|chunk| chunk.len()).sum();
        let new: usize = pieces(self.layout, at, len)
            .filter(|(chunk, ..)| self.chunks[*chunk].is_none())
            .map(|(chunk, ..)| chunk_len(self.layout, chunk))
            .sum();
        with_parity(self.layout, there + new) - with_parity(self.layout, there)
    }

    /// How much an empty one takes once `len` bytes at `at` are put.
    pub fn memory_for(layout: Layout, at: usize, len: usize) -> usize {
        with_parity(layout, pieces(layout, at, len).map(|(chunk, ..)| chunk_len(layout, chunk)).sum())
    }

    /// The whole stripe, closed for changes, to be written there. A home of another layout has no parity, and as many
    /// bytes of data.
    pub fn seal(self, retires: u64, home: Home) -> Sealed {
        assert!(self.is_whole(), "only a whole stripe is sealed");
        let per_strip = chunks_per_strip(self.layout);
        assert_eq!(self.layout.data_len(), home.layout.data_len(), "a stripe has the same data wherever it lies");
        let is_landed = self.unlanded_len() == 0 && !mutant::active(Mutant::FlushWaitsForMoved);
        let StripeBuffer { layout, landed, merged, ordered, relocated, copied, lent, chunks, .. } = self;
        let mut chunks = chunks.into_iter().map(|chunk| chunk.expect("a whole stripe has every chunk").freeze());
        let data = (0..layout.data_columns()).map(|_| chunks.by_ref().take(per_strip).collect()).collect();
        let (home, parity, landed) = (Cell::new(home), RefCell::default(), RefCell::new(landed));
        let part = None;
        let sealed = Sealed {
            layout,
            home,
            data,
            parity,
            retires,
            landed,
            merged,
            ordered,
            relocated,
            copied,
            is_landed,
            lent,
            part,
        };
        sealed.protect();
        sealed
    }

    /// What there is of the stripe, closed for changes, to leave in packed stripes.
    pub fn close(mut self, retires: u64, home: Home) -> Sealed {
        let landed = RefCell::new(core::mem::take(&mut self.landed));
        let is_landed = self.unlanded_len() == 0;
        let StripeBuffer { layout, merged, lent, .. } = self;
        Sealed {
            layout,
            home: Cell::new(home),
            data: Vec::new(),
            parity: RefCell::default(),
            retires,
            landed,
            merged,
            ordered: false,
            relocated: false,
            copied: false,
            is_landed,
            lent,
            part: Some(self),
        }
    }

    /// Takes what an older buffer of the stripe holds, where this one has nothing.
    pub fn take_below(&mut self, older: &StripeBuffer) {
        for hole in self.have.runs(0..self.have.len(), false) {
            for run in older.have.runs(hole, true) {
                let mut bytes = vec![0; run.len() * SECTOR as usize];
                older.copy_out(run.start * SECTOR as usize, &mut bytes);
                self.copy_in(run.start * SECTOR as usize, &bytes);
                self.have.insert(run.clone());
                older.unlanded.runs(run, true).into_iter().for_each(|run| self.unlanded.insert(run));
            }
        }
        self.written |= older.written;
        self.merged |= older.merged;
        self.copied = false;
    }

    /// The blocks of which something is there, and whether all of it is.
    pub fn blocks(&self) -> impl Iterator<Item = (usize, bool)> + '_ {
        let per_block = (BLOCK / SECTOR) as usize;
        let mut next = 0;
        core::iter::from_fn(move || {
            let block = self.have.first(next..self.have.len())? / per_block;
            next = (block + 1) * per_block;
            let holes = self.have.runs(block * per_block..next, false);
            Some((block, holes.is_empty()))
        })
    }

    fn copy_in(&mut self, at: usize, bytes: &[u8]) {
        for (chunk, place, range) in pieces(self.layout, at, bytes.len()) {
            let len = chunk_len(self.layout, chunk);
            if self.chunks[chunk].is_none() && range.len() == len {
                self.chunks[chunk] = Some(Buf::copy_of(&bytes[range]));
                continue;
            }
            let buf = self.chunks[chunk].get_or_insert_with(|| Buf::zeroed(len));
            buf[place..place + range.len()].copy_from_slice(&bytes[range]);
        }
    }

    fn copy_out(&self, at: usize, into: &mut [u8]) {
        for (chunk, place, range) in pieces(self.layout, at, into.len()) {
            let buf = self.chunks[chunk].as_ref().expect("a sector that is held has its chunk");
            let len = range.len();
            into[range].copy_from_slice(&buf[place..place + len]);
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
        self.is_landed || mutant::active(Mutant::SealedIsLanded)
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

/// Cuts a run of bytes into pieces of at most `piece`.
pub fn in_pieces(run: Range<usize>, piece: usize) -> impl Iterator<Item = Range<usize>> {
    run.clone().step_by(piece).map(move |at| at..run.end.min(at + piece))
}

/// `data` bytes and their share of the parity.
fn with_parity(layout: Layout, data: usize) -> usize {
    data + data * layout.parity() / layout.data_columns()
}

fn chunks_per_strip(layout: Layout) -> usize {
    layout.interleave().as_usize().div_ceil(CHUNK)
}

/// Bytes of chunk `chunk` (counted through the stripe): all are full but the last of a strip.
fn chunk_len(layout: Layout, chunk: usize) -> usize {
    let start = chunk % chunks_per_strip(layout) * CHUNK;
    CHUNK.min(layout.interleave().as_usize() - start)
}

/// Cuts stripe bytes `at..at + len` at chunk borders: (chunk, place in it, range of the caller's bytes).
fn pieces(layout: Layout, at: usize, len: usize) -> impl Iterator<Item = (usize, usize, Range<usize>)> {
    let interleave = layout.interleave().as_usize();
    let mut done = 0;
    core::iter::from_fn(move || {
        if done == len {
            return None;
        }
        let (strip, in_strip) = ((at + done) / interleave, (at + done) % interleave);
        let chunk = strip * chunks_per_strip(layout) + in_strip / CHUNK;
        let place = in_strip % CHUNK;
        let take = (chunk_len(layout, chunk) - place).min(len - done);
        let range = done..done + take;
        done += take;
        Some((chunk, place, range))
    })
}

fn sectors_of(at: usize, len: usize) -> Range<usize> {
    let sector = SECTOR as usize;
    assert!(at.is_multiple_of(sector) && len.is_multiple_of(sector), "whole sectors, not {len} bytes at {at}");
    at / sector..(at + len) / sector
}

fn bytes_of(runs: Vec<Range<usize>>) -> Vec<Range<usize>> {
    runs.into_iter().map(|run| run.start * SECTOR as usize..run.end * SECTOR as usize).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::geometry::Resiliency;
    use crate::units::ByteCount;
    use proptest::prelude::*;

    fn layout() -> Layout {
        Layout::new(Resiliency::Parity { parity: 1 }, 4, ByteCount::kib(40)).unwrap()
    }

    proptest! {
        #[test]
        fn what_was_put_last_is_read_and_the_rest_is_named_as_missing(
            puts in prop::collection::vec((0usize..240, 1usize..120, any::<u8>()), 0..12),
        ) {
            let mut buffer = StripeBuffer::new(layout(), 0, Nanos(0));
            let mut model = vec![None; 240 * 512];
            for (sector, count, value) in puts {
                let count = count.min(240 - sector);
                buffer.put(sector * 512, &vec![value; count * 512], false);
                model[sector * 512..(sector + count) * 512].fill(Some(value));
            }
            let mut bytes = vec![0xEE; 240 * 512];
            for hole in buffer.get(0, &mut bytes) {
                prop_assert!(model[hole.clone()].iter().all(Option::is_none));
                bytes[hole].fill(0xEE);
            }
            for (byte, expected) in bytes.iter().zip(&model) {
                prop_assert_eq!(*byte, expected.unwrap_or(0xEE));
            }
        }
    }

    #[test]
    fn filling_never_overwrites_what_was_put() {
        let mut buffer = StripeBuffer::new(layout(), 0, Nanos(0));
        buffer.put(512, &[1; 512], false);
        buffer.fill(0, &[2; 2048]);
        let mut bytes = [0; 2048];
        assert!(buffer.get(0, &mut bytes).is_empty());
        assert_eq!((bytes[0], bytes[512], bytes[1024]), (2, 1, 2));
    }

    #[test]
    fn landing_hands_out_each_byte_once() {
        let mut buffer = StripeBuffer::new(layout(), 0, Nanos(0));
        buffer.put(1024, &[7; 1024], false);
        assert_eq!(buffer.land(4096), vec![(1024, vec![7; 1024])]);
        assert!(buffer.land(4096).is_empty());
        buffer.put(1024, &[8; 512], false);
        assert_eq!(buffer.land(4096), vec![(1024, vec![8; 512])]);
        buffer.put(0, &[9; 1536], false);
        assert_eq!(buffer.land(1024), vec![(0, vec![9; 1024]), (1024, vec![9; 512])]);
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
