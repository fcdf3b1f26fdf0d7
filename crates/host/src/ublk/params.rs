//! What the block layer is told of a virtual disk, and what is made of that.
//!
//! - Logical block: the sector. Physical block: weft's, 4 KiB: writes of whole ones need no reading.
//! - `minimum_io_size` is a strip, `optimal_io_size` a stripe, as with any RAID: from these two `mkfs.ext4` and
//!   `mkfs.xfs` take stride and stripe width, LVM and `parted` where data begins, and the kernel how far it reads ahead
//!   (two stripes) and how long requests may get. Weft itself needs no alignment. The kernel takes powers of two only:
//!   for the strip the largest that divides it, so that its borders stay borders; for the stripe the next above, so
//!   that one request keeps all columns busy. Not more than [`REQUEST`], the longest request.
//! - Discards have the grain in which room is given back, whole stripes, so that the kernel splits long ones at
//!   the borders of stripes (of the largest power of two that divides them, which is as close as the kernel's
//!   arithmetic comes).

use crate::disk::ublk::{
    ATTR_FUA, ATTR_READ_ONLY, ATTR_ROTATIONAL, ATTR_VOLATILE_CACHE, PARAM_BASIC, PARAM_DISCARD, Params,
};
use crate::export::VolumeShape;
use weft_engine::units::BLOCK;

/// The longest request in bytes.
pub(super) const REQUEST: u32 = 4 << 20;
/// The block layer's unit.
pub(super) const SECTOR: u64 = 512;
/// Discards and zeroings of one request are below this many bytes: the kernel counts them in 32 bits.
const RANGE_MAX: u64 = 1 << 32;
/// The largest grain of discards: what is freed is to be a good part of one request at least.
const GRAIN_MAX: u64 = 1 << 30;

/// What the block layer is told of a disk of this shape.
pub(super) fn params(shape: &VolumeShape) -> Params {
    let block = BLOCK;
    let io_min = divisor(shape.strip).clamp(block, REQUEST.into());
    let io_opt = shape.preferred.next_power_of_two().clamp(io_min, REQUEST.into());
    let grain = divisor(shape.preferred).clamp(block, GRAIN_MAX);
    let range = (RANGE_MAX - 1) / shape.preferred.max(block) * shape.preferred.max(block);
    let range = if range == 0 { RANGE_MAX - grain } else { range };
    let attribute = |is: bool, bit| if is { bit } else { 0 };
    Params {
        types: PARAM_BASIC | PARAM_DISCARD,
        attributes: ATTR_VOLATILE_CACHE
            | ATTR_FUA
            | attribute(shape.read_only, ATTR_READ_ONLY)
            | attribute(shape.rotational, ATTR_ROTATIONAL),
        logical_block_shift: exponent(shape.sector.into()),
        physical_block_shift: exponent(block),
        io_min_shift: exponent(io_min),
        io_opt_shift: exponent(io_opt),
        request_max: REQUEST / SECTOR as u32,
        size: shape.size / SECTOR,
        discard_granularity: grain as u32,
        discard_max: (range / SECTOR) as u32,
        write_zeroes_max: (range / SECTOR) as u32,
        discard_segments_max: 1,
        ..Params::default()
    }
}

/// The largest power of two that divides `n`.
fn divisor(n: u64) -> u64 {
    n & n.wrapping_neg()
}

fn exponent(power_of_two: u64) -> u8 {
    power_of_two.trailing_zeros() as u8
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(strip: u64, preferred: u64, sector: u32) -> Params {
        params(&VolumeShape { size: 1 << 30, sector, preferred, strip, read_only: false, rotational: true })
    }

    #[test]
    fn stripes_of_powers_of_two_are_told_as_they_are() {
        let params = told(256 << 10, 1 << 20, 512);
        assert_eq!((params.logical_block_shift, params.physical_block_shift), (9, 12));
        assert_eq!((params.io_min_shift, params.io_opt_shift), (18, 20));
        assert_eq!(
            (params.discard_granularity, params.discard_max),
            (1 << 20, (((1u64 << 32) - (1 << 20)) >> 9) as u32)
        );
        assert_eq!(params.attributes, ATTR_VOLATILE_CACHE | ATTR_FUA | ATTR_ROTATIONAL);
        assert_eq!((params.size, params.request_max), (1 << 21, 8192));
    }

    #[test]
    fn others_are_told_so_that_borders_stay_borders_and_a_request_reaches_all_columns() {
        let params = told(96 << 10, 3 * (96 << 10), 4096);
        assert_eq!((params.logical_block_shift, params.io_min_shift, params.io_opt_shift), (12, 15, 19));
        assert_eq!(params.discard_granularity, 32 << 10);
        assert!((u64::from(params.discard_max) * SECTOR).is_multiple_of(3 * (96 << 10)));
        assert!(params.discard_max > (1 << 23) - (1 << 10));
    }

    #[test]
    fn the_widest_and_the_narrowest_stripes_stay_within_what_the_kernel_takes() {
        for (strip, preferred) in [(4096, 4096), (4 << 20, 31 * (4 << 20)), (1 << 30, 1 << 35), (4096, 12 << 10)] {
            let params = told(strip, preferred, 512);
            assert!(params.io_min_shift <= params.io_opt_shift && params.io_opt_shift <= 22);
            assert!(params.discard_granularity.is_power_of_two() && params.discard_granularity >= 4096);
            assert!(u64::from(params.discard_max) * SECTOR >= u64::from(params.discard_granularity));
            assert!(u64::from(params.discard_max) * SECTOR < 1 << 32);
        }
    }
}
