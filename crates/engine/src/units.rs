//! Lengths, offsets and numbers of things are types, so that only meaningful arithmetic compiles.
//!
//! A [`ByteCount`] is a length. [`VirtualOffset`] is a place on a virtual disk, [`DiskOffset`] a place on one physical
//! disk. Offset + length = offset; offset - offset = length; offsets of different kinds never meet. Neither do the
//! numbers of different things: nothing is computed with them but the next one.

use core::fmt;
use core::ops::{Add, AddAssign, Mul, Sub};

/// The unit of checksums, of atomicity and of every disk access: 4096 bytes.
pub const BLOCK: u64 = 4096;
/// The smallest unit a client may address: 512 bytes.
pub const SECTOR: u64 = 512;

/// A length in bytes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Hash)]
pub struct ByteCount(pub u64);

/// A place on a virtual disk, in bytes from its start.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Hash)]
pub struct VirtualOffset(pub u64);

/// A place on one physical disk, in bytes from its start.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Hash)]
pub struct DiskOffset(pub u64);

/// A moment or a span on the world's monotonic clock, in nanoseconds.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Hash, Debug)]
pub struct Nanos(pub u64);

/// The version of a stripe that an entry of a table speaks of: the number of its commit, as far as [`BIRTH_BITS`] tell
/// it from others. Two versions of one stripe that lay in one place share theirs once in about 16,000. 0: from before
/// there were births.
#[derive(Clone, Copy, PartialEq, Eq, Default, Hash, Debug)]
pub struct Birth(pub u16);

/// Bits of an index of a segment. On the disks a birth stands above it in one word of 32.
pub const INDEX_BITS: u32 = 18;
/// Bits of a birth.
pub const BIRTH_BITS: u32 = u32::BITS - INDEX_BITS;

impl Birth {
    /// No birth is known.
    pub const NONE: Birth = Birth(0);

    /// The birth of what record `seq` commits; never [`Birth::NONE`].
    pub const fn of(seq: u64) -> Birth {
        Birth(1 + (seq % ((1 << BIRTH_BITS) - 1)) as u16)
    }

    /// The word that has this birth above `index`.
    pub const fn above(self, index: u32) -> u32 {
        (self.0 as u32) << INDEX_BITS | index
    }

    /// Takes such a word apart.
    pub const fn split(word: u32) -> (u32, Birth) {
        (word & ((1 << INDEX_BITS) - 1), Birth((word >> INDEX_BITS) as u16))
    }
}

/// Defines the number of a thing: it prints as the bare number.
macro_rules! number {
    ($(#[$doc:meta])* $name:ident($raw:ty)) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Hash)]
        pub struct $name(pub $raw);

        impl $name {
            /// The number after this one.
            pub const fn next(self) -> $name {
                $name(self.0.saturating_add(1))
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(&self.0, f)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Debug::fmt(&self.0, f)
            }
        }
    };
}

number! {
    /// The number of a job within its pool; never reused.
    JobNo(u32)
}

number! {
    /// The number of a virtual disk within its pool; never reused.
    VdiskNo(u32)
}

number! {
    /// The number of a stripe table within its pool; never reused.
    TableNo(u32)
}

number! {
    /// The number of a segment within its pool; never reused.
    SegmentNo(u32)
}

number! {
    /// The number of a disk within its pool; never reused.
    DiskNo(u16)
}

impl ByteCount {
    /// No bytes.
    pub const ZERO: ByteCount = ByteCount(0);

    /// `n` KiB.
    pub const fn kib(n: u64) -> ByteCount {
        ByteCount(n << 10)
    }

    /// `n` MiB.
    pub const fn mib(n: u64) -> ByteCount {
        ByteCount(n << 20)
    }

    /// `n` GiB.
    pub const fn gib(n: u64) -> ByteCount {
        ByteCount(n << 30)
    }

    /// The length as an index of memory.
    pub const fn as_usize(self) -> usize {
        self.0 as usize
    }

    /// Whether this is a whole number of `unit`s.
    pub const fn is_multiple_of(self, unit: u64) -> bool {
        self.0.is_multiple_of(unit)
    }
}

impl DiskOffset {
    /// Whether this place is a multiple of `unit` bytes from the start.
    pub const fn is_multiple_of(self, unit: u64) -> bool {
        self.0.is_multiple_of(unit)
    }
}

impl Nanos {
    /// `n` milliseconds.
    pub const fn millis(n: u64) -> Nanos {
        Nanos(n * 1_000_000)
    }

    /// `n` seconds.
    pub const fn secs(n: u64) -> Nanos {
        Nanos(n * 1_000_000_000)
    }

    /// The span from `earlier` to this moment; zero when it is later.
    pub const fn since(self, earlier: Nanos) -> Nanos {
        Nanos(self.0.saturating_sub(earlier.0))
    }
}

impl Add<Nanos> for Nanos {
    type Output = Nanos;
    fn add(self, span: Nanos) -> Nanos {
        Nanos(self.0 + span.0)
    }
}

impl Add for ByteCount {
    type Output = ByteCount;
    fn add(self, other: ByteCount) -> ByteCount {
        ByteCount(self.0 + other.0)
    }
}

impl AddAssign for ByteCount {
    fn add_assign(&mut self, other: ByteCount) {
        self.0 += other.0;
    }
}

impl Sub for ByteCount {
    type Output = ByteCount;
    fn sub(self, other: ByteCount) -> ByteCount {
        ByteCount(self.0 - other.0)
    }
}

impl Mul<u64> for ByteCount {
    type Output = ByteCount;
    fn mul(self, times: u64) -> ByteCount {
        ByteCount(self.0 * times)
    }
}

impl Add<ByteCount> for VirtualOffset {
    type Output = VirtualOffset;
    fn add(self, len: ByteCount) -> VirtualOffset {
        VirtualOffset(self.0 + len.0)
    }
}

impl Sub for VirtualOffset {
    type Output = ByteCount;
    fn sub(self, from: VirtualOffset) -> ByteCount {
        ByteCount(self.0 - from.0)
    }
}

impl Add<ByteCount> for DiskOffset {
    type Output = DiskOffset;
    fn add(self, len: ByteCount) -> DiskOffset {
        DiskOffset(self.0 + len.0)
    }
}

impl Sub for DiskOffset {
    type Output = ByteCount;
    fn sub(self, from: DiskOffset) -> ByteCount {
        ByteCount(self.0 - from.0)
    }
}

impl fmt::Display for ByteCount {
    /// Binary units, at most one decimal: `64 KiB`, `1.5 GiB`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const UNITS: [&str; 7] = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
        let mut unit = 0;
        while unit + 1 < UNITS.len() && self.0 >> (10 * (unit + 1)) > 0 {
            unit += 1;
        }
        let scale = 1u128 << (10 * unit);
        let tenths = (self.0 as u128 * 10 + scale / 2) / scale;
        if tenths.is_multiple_of(10) {
            write!(f, "{} {}", tenths / 10, UNITS[unit])
        } else {
            write!(f, "{}.{} {}", tenths / 10, tenths % 10, UNITS[unit])
        }
    }
}

impl fmt::Debug for ByteCount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}B", self.0)
    }
}

impl fmt::Debug for VirtualOffset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "v+{:#x}", self.0)
    }
}

impl fmt::Debug for DiskOffset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "d+{:#x}", self.0)
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use std::string::ToString;

    #[test]
    fn byte_counts_print_in_binary_units() {
        assert_eq!(ByteCount(512).to_string(), "512 B");
        assert_eq!(ByteCount::kib(64).to_string(), "64 KiB");
        assert_eq!(ByteCount::mib(1536).to_string(), "1.5 GiB");
        assert_eq!(ByteCount(u64::MAX).to_string(), "16 EiB");
    }
}
