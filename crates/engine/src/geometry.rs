//! Layouts: how a stripe lies on its columns. Pure arithmetic.
//!
//! Invariants
//! 1. A [`Layout`] that exists is valid: columns, parity, copies and interleave lie within [`crate::limits`].
//! 2. `data_len` = interleave x data columns; `raw_len` = interleave x slots, parity and copies included.
//! 3. For every stripe index, column -> slot is a bijection onto the slots (copies of a column are neighbours).

use crate::error::Result;
use crate::fail;
use crate::limits::*;
use crate::units::{BLOCK, ByteCount};
use core::fmt;

/// What a virtual disk survives, and how.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Resiliency {
    /// One copy; survives nothing.
    Simple,
    /// `copies` (2 or 3) of every column; survives the loss of `copies - 1` disks.
    Mirror {
        /// 2 or 3.
        copies: u8,
    },
    /// `parity` (1 or 2) parity columns per stripe; survives the loss of `parity` disks.
    Parity {
        /// 1 or 2.
        parity: u8,
    },
}

/// Resiliency + columns + interleave. `columns` counts parity columns, never copies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Layout {
    resiliency: Resiliency,
    columns: u8,
    interleave: u32,
}

impl Resiliency {
    /// How many disks may be lost.
    pub const fn failures(self) -> u8 {
        match self {
            Resiliency::Simple => 0,
            Resiliency::Mirror { copies } => copies - 1,
            Resiliency::Parity { parity } => parity,
        }
    }

    /// The fewest columns.
    pub const fn columns_min(self) -> u8 {
        match self {
            Resiliency::Simple | Resiliency::Mirror { .. } => 1,
            Resiliency::Parity { parity } => 2 + parity,
        }
    }

    /// Copies of every column: 1 but for mirrors.
    pub const fn copies(self) -> u8 {
        match self {
            Resiliency::Mirror { copies } => copies,
            _ => 1,
        }
    }

    /// What suits `disks` disks where nothing is asked for but, perhaps, how many failures to survive: simple on one, a
    /// mirror on two, parity from three on, and from eight on parity that survives two failures.
    pub fn chosen(disks: usize, failures: Option<u8>) -> Resiliency {
        match (failures, disks) {
            (Some(failures), disks) if disks < failures as usize + 2 => {
                Resiliency::Mirror { copies: failures.saturating_add(1) }
            }
            (Some(failures), _) => Resiliency::Parity { parity: failures },
            (None, 0 | 1) => Resiliency::Simple,
            (None, 2) => Resiliency::Mirror { copies: 2 },
            (None, 3..=7) => Resiliency::Parity { parity: 1 },
            (None, _) => Resiliency::Parity { parity: 2 },
        }
    }
}

impl Layout {
    /// A layout, if it is valid; else an error that names the allowed range.
    pub fn new(resiliency: Resiliency, columns: u8, interleave: ByteCount) -> Result<Layout> {
        match resiliency {
            Resiliency::Mirror { copies } if !(2..=COPIES_MAX).contains(&copies) => {
                return fail!(InvalidInput, "a mirror has 2 or {COPIES_MAX} copies, not {copies}");
            }
            Resiliency::Parity { parity } if !(1..=PARITY_MAX).contains(&parity) => {
                return fail!(InvalidInput, "parity survives 1 or {PARITY_MAX} failures, not {parity}");
            }
            _ => {}
        }
        let columns_min = resiliency.columns_min();
        if !(columns_min..=COLUMNS_MAX).contains(&columns) {
            return fail!(InvalidInput, "{resiliency} takes {columns_min} to {COLUMNS_MAX} columns, not {columns}");
        }
        if !(INTERLEAVE_MIN..=INTERLEAVE_MAX).contains(&interleave) || !interleave.is_multiple_of(INTERLEAVE_MIN.0) {
            return fail!(
                InvalidInput,
                "the interleave is a multiple of {INTERLEAVE_MIN} from {INTERLEAVE_MIN} to {INTERLEAVE_MAX}, not {} \
                 bytes",
                interleave.0
            );
        }
        Ok(Layout { resiliency, columns, interleave: interleave.0 as u32 })
    }

    /// The layout weft chooses for `disks` disks when nothing else is asked for.
    ///
    /// Columns: all disks, up to 8 (10 for dual parity, 4 per copy for mirrors). Interleave: 256 KiB on disks that
    /// seek, 64 KiB on those that do not.
    pub fn default_for(resiliency: Resiliency, disks: usize, rotational: bool) -> Result<Layout> {
        let columns_max = match resiliency {
            Resiliency::Simple | Resiliency::Parity { parity: 1 } => 8,
            Resiliency::Parity { .. } => 10,
            Resiliency::Mirror { .. } => 4,
        };
        let columns = (disks / resiliency.copies() as usize).min(columns_max) as u8;
        let interleave = if rotational { ByteCount::kib(256) } else { ByteCount::kib(64) };
        Layout::new(resiliency, columns.max(resiliency.columns_min()), interleave)
    }

    /// The layout of a virtual disk that is written in small units, each of which is a stripe
    /// ([`crate::pool::Class::Log`]), as far as `columns` and `unit` leave it open.
    ///
    /// Unit: 64 KiB on disks that seek, 16 KiB on those that do not, or what comes next to it that the columns divide.
    /// Columns: one for simple and mirrors, so that a unit takes one disk, or one for each copy; with parity the most
    /// for data that divide a unit into blocks, and that there are disks for.
    pub fn in_units(
        resiliency: Resiliency,
        disks: usize,
        rotational: bool,
        columns: Option<u8>,
        unit: Option<ByteCount>,
    ) -> Result<Layout> {
        let block = INTERLEAVE_MIN.0;
        let most = UNIT_MAX.0 / block;
        if unit.is_some_and(|unit| unit == ByteCount::ZERO || unit > UNIT_MAX || !unit.is_multiple_of(block)) {
            return fail!(InvalidInput, "a unit is a multiple of {INTERLEAVE_MIN} up to {UNIT_MAX}");
        }
        let usual = if rotational { UNIT_MAX } else { ByteCount::kib(16) };
        let blocks = unit.unwrap_or(usual).0 / block;
        let parity = if let Resiliency::Parity { parity } = resiliency { u64::from(parity) } else { 0 };
        let chosen = || match resiliency {
            Resiliency::Parity { .. } => {
                let there = (disks as u64).saturating_sub(parity).min(blocks);
                (2..=there).rev().find(|data| blocks.is_multiple_of(*data)).unwrap_or(2)
            }
            _ => 1,
        };
        let data = columns.map_or_else(chosen, |columns| u64::from(columns).saturating_sub(parity)).max(1);
        if data > most {
            return fail!(
                InvalidInput,
                "units of up to {UNIT_MAX} are for {most} data columns at most, not for {data}"
            );
        }
        if unit.is_some() && !blocks.is_multiple_of(data) {
            let (each, last) = (ByteCount(data * block), ByteCount(most / data * data * block));
            return fail!(
                InvalidInput,
                "{data} data columns do not divide a unit of {}; they divide multiples of {each} up to {last}",
                ByteCount(blocks * block)
            );
        }
        Layout::new(resiliency, (data + parity) as u8, ByteCount((blocks / data).max(1) * block))
    }

    /// Its resiliency.
    pub const fn resiliency(self) -> Resiliency {
        self.resiliency
    }

    /// Columns, parity counted, copies not.
    pub const fn columns(self) -> usize {
        self.columns as usize
    }

    /// Bytes of one strip.
    pub const fn interleave(self) -> ByteCount {
        ByteCount(self.interleave as u64)
    }

    /// Columns that hold data.
    pub const fn data_columns(self) -> usize {
        self.columns as usize - self.parity()
    }

    /// Columns that hold parity.
    pub const fn parity(self) -> usize {
        match self.resiliency {
            Resiliency::Parity { parity } => parity as usize,
            _ => 0,
        }
    }

    /// Copies of every column.
    pub const fn copies(self) -> usize {
        self.resiliency.copies() as usize
    }

    /// Slabs of a segment: columns x copies, each on another disk.
    pub const fn slots(self) -> usize {
        self.columns() * self.copies()
    }

    /// How many slots may be lost without losing data.
    pub const fn failures(self) -> usize {
        self.resiliency.failures() as usize
    }

    /// Bytes of user data in a stripe.
    pub const fn data_len(self) -> ByteCount {
        ByteCount(self.interleave as u64 * self.data_columns() as u64)
    }

    /// Bytes of a stripe on the disks.
    pub const fn raw_len(self) -> ByteCount {
        ByteCount(self.interleave as u64 * self.slots() as u64)
    }

    /// 4 KiB blocks of one strip.
    pub const fn strip_blocks(self) -> usize {
        (self.interleave as u64 / BLOCK) as usize
    }

    /// Checksums of one stripe: one per block of every slot.
    pub const fn stripe_sums(self) -> usize {
        self.strip_blocks() * self.slots()
    }

    /// Stripes that fit a segment of slabs of `slab` bytes.
    pub const fn segment_stripes(self, slab: ByteCount) -> u32 {
        (slab.0 / self.interleave as u64) as u32
    }

    /// The slot of copy `copy` of `column` in the stripe with this index in its segment. Parity rotates: it moves one
    /// slot on with every stripe, so that reads of consecutive stripes use all disks.
    pub const fn slot(self, index: u32, column: usize, copy: usize) -> usize {
        match self.resiliency {
            Resiliency::Parity { .. } => (column + index as usize) % self.columns(),
            _ => column * self.copies() + copy,
        }
    }

    /// The column that lies in `slot` of the stripe with this index.
    pub const fn column(self, index: u32, slot: usize) -> usize {
        match self.resiliency {
            Resiliency::Parity { .. } => {
                let columns = self.columns();
                (slot + columns - index as usize % columns) % columns
            }
            _ => slot / self.copies(),
        }
    }
}

impl fmt::Display for Resiliency {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Resiliency::Simple => f.write_str("simple"),
            Resiliency::Mirror { copies } => write!(f, "mirror with {copies} copies"),
            Resiliency::Parity { parity: 1 } => f.write_str("single parity"),
            Resiliency::Parity { .. } => f.write_str("dual parity"),
        }
    }
}

impl fmt::Display for Layout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, {} columns, interleave {}", self.resiliency, self.columns, self.interleave())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;
    use alloc::vec;

    #[test]
    fn interleave_need_not_be_a_power_of_two_but_a_multiple_of_4_kib() {
        let parity = Resiliency::Parity { parity: 1 };
        assert_eq!(Layout::new(parity, 4, ByteCount::kib(24)).unwrap().data_len(), ByteCount::kib(72));
        for wrong in [ByteCount::kib(5), ByteCount(0), ByteCount::mib(5), ByteCount(4097)] {
            assert_eq!(Layout::new(parity, 4, wrong).unwrap_err().kind, ErrorKind::InvalidInput);
        }
    }

    #[test]
    fn columns_outside_the_range_of_a_resiliency_are_refused() {
        for (resiliency, too_few) in [
            (Resiliency::Parity { parity: 1 }, 2),
            (Resiliency::Parity { parity: 2 }, 3),
            (Resiliency::Mirror { copies: 2 }, 0),
            (Resiliency::Simple, 0),
        ] {
            assert!(Layout::new(resiliency, too_few, ByteCount::kib(64)).is_err());
            assert!(Layout::new(resiliency, too_few + 1, ByteCount::kib(64)).is_ok());
            assert!(Layout::new(resiliency, 33, ByteCount::kib(64)).is_err());
        }
    }

    #[test]
    fn units_are_stripes_that_the_columns_divide() {
        let (parity, dual) = (Resiliency::Parity { parity: 1 }, Resiliency::Parity { parity: 2 });
        let mirror = Resiliency::Mirror { copies: 2 };
        // What is asked for, on so many disks that seek or do not: columns, and KiB of a stripe.
        for (resiliency, disks, rotational, columns, unit, expected) in [
            (parity, 5, true, None, None, (5, 64)),
            (parity, 5, false, None, None, (5, 16)),
            (parity, 4, true, None, None, (3, 64)),
            (parity, 4, true, Some(4), None, (4, 60)),
            (parity, 4, true, None, Some(24), (4, 24)),
            (parity, 24, false, None, Some(8), (3, 8)),
            (dual, 12, true, None, None, (10, 64)),
            (mirror, 6, false, None, Some(4), (1, 4)),
            (mirror, 6, true, Some(2), None, (2, 64)),
        ] {
            let layout = Layout::in_units(resiliency, disks, rotational, columns, unit.map(ByteCount::kib)).unwrap();
            assert_eq!((layout.columns(), layout.data_len()), (expected.0, ByteCount::kib(expected.1)), "{layout}");
        }
        for (columns, unit) in [(Some(4), 16), (None, 4), (None, 0), (None, 68), (None, 6), (Some(18), 64)] {
            assert!(
                Layout::in_units(parity, 32, true, columns, Some(ByteCount::kib(unit))).is_err(),
                "{columns:?} {unit}"
            );
        }
    }

    #[test]
    fn every_slot_holds_exactly_one_column_in_every_stripe() {
        for resiliency in [Resiliency::Simple, Resiliency::Mirror { copies: 3 }, Resiliency::Parity { parity: 2 }] {
            let layout = Layout::new(resiliency, 5, ByteCount::kib(4)).unwrap();
            for index in 0..11 {
                let mut seen = vec![false; layout.slots()];
                for column in 0..layout.columns() {
                    for copy in 0..layout.copies() {
                        let slot = layout.slot(index, column, copy);
                        assert_eq!(layout.column(index, slot), column);
                        assert!(!core::mem::replace(&mut seen[slot], true));
                    }
                }
                assert!(seen.iter().all(|seen| *seen));
            }
        }
    }
}
