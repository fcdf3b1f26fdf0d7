//! Where a fine unit lies, and what replaced it, in as few bytes as they need: there are millions of them.

use super::UNIT;
use crate::limits::{COLUMNS_MAX, INTERLEAVE_MAX, VDISK_SIZE_MAX};
use crate::segment::dense::{Entry, memory_of};

/// Where a unit lies.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Spot {
    /// The packed stripe.
    pub stripe: u64,
    /// Which of its units.
    pub index: u32,
}

const _: () = assert!(VDISK_SIZE_MAX.0 / UNIT <= 1 << 48 && COLUMNS_MAX as u64 * INTERLEAVE_MAX.0 / UNIT <= 1 << 16);

/// A unit, and where it lies: 12 bytes. Its number has 48 bits, and that of a packed stripe 32 (`format/record`).
#[derive(Clone, Copy)]
pub(super) struct Unit {
    low: u32,
    stripe: u32,
    high: u16,
    index: u16,
}

impl Unit {
    pub(super) fn new(unit: u64, spot: Spot) -> Unit {
        Unit { low: unit as u32, stripe: spot.stripe as u32, high: (unit >> 32) as u16, index: spot.index as u16 }
    }

    pub(super) fn no(&self) -> u64 {
        u64::from(self.high) << 32 | u64::from(self.low)
    }

    pub(super) fn spot(&self) -> Spot {
        Spot { stripe: self.stripe.into(), index: self.index.into() }
    }
}

impl Entry for Unit {
    type Key = u64;

    fn key(&self) -> u64 {
        self.no()
    }
}

/// A unit that record `seq` replaces: 20 bytes.
#[derive(Clone, Copy)]
pub(super) struct Shade {
    pub(super) unit: Unit,
    seq: [u32; 2],
}

impl Shade {
    pub(super) fn new(unit: Unit, seq: u64) -> Shade {
        Shade { unit, seq: [(seq >> 32) as u32, seq as u32] }
    }

    pub(super) fn seq(&self) -> u64 {
        u64::from(self.seq[0]) << 32 | u64::from(self.seq[1])
    }
}

impl Entry for Shade {
    type Key = (u64, Spot);

    fn key(&self) -> (u64, Spot) {
        (self.unit.no(), self.unit.spot())
    }
}

/// Bytes of memory of a unit at most, wherever it is. In a shadow it takes more than elsewhere: what is replaced never
/// takes more than was counted.
pub(in crate::segment) const UNIT_MEMORY: u64 = memory_of(size_of::<Shade>());
