//! The rules a request is validated by without looking at any pool. The command line applies them before it touches
//! anything; the daemon applies the same ones again to whatever arrives on its socket.

use super::error::BadValue;
use super::size::typed;
use weft_engine::limits;
use weft_engine::pool::plan::check_name;
use weft_engine::units::{BLOCK, ByteCount, SECTOR};

/// A name of a pool, a disk or a virtual disk, by the engine's rule.
pub fn name(text: &str) -> Result<(), BadValue> {
    check_name(text).map_err(|error| BadValue::new(error.context, nearest_name(text)))
}

/// The name nearest to `text` that the rule takes.
pub fn nearest_name(text: &str) -> String {
    let mut name = String::new();
    for c in text.chars() {
        let c = if c.is_alphanumeric() || "._-+".contains(c) { c } else { '-' };
        if name.len() + c.len_utf8() > limits::NAME_MAX {
            break;
        }
        if !name.is_empty() || c.is_alphanumeric() {
            name.push(c);
        }
    }
    if name.is_empty() { "tank".into() } else { name.trim_end_matches('-').into() }
}

/// An interleave: a multiple of 4 KiB from 4 KiB to 4 MiB.
pub fn interleave(bytes: ByteCount) -> Result<(), BadValue> {
    within(bytes, limits::INTERLEAVE_MIN, limits::INTERLEAVE_MAX, BLOCK, "interleave")
}

/// A unit of class log: a multiple of 4 KiB from 4 KiB to 64 KiB.
pub fn unit(bytes: ByteCount) -> Result<(), BadValue> {
    within(bytes, limits::INTERLEAVE_MIN, limits::UNIT_MAX, BLOCK, "unit")
}

/// A slab size: a power of two from 1 MiB to 1 GiB.
pub fn slab_size(bytes: ByteCount) -> Result<(), BadValue> {
    let (min, max) = (limits::SLAB_MIN, limits::SLAB_MAX);
    if (min..=max).contains(&bytes) && bytes.0.is_power_of_two() {
        return Ok(());
    }
    let nearest = ByteCount(bytes.0.clamp(min.0, max.0).next_power_of_two());
    let message = format!("{} is no slab size; powers of two from {} to {} are", typed(bytes), typed(min), typed(max));
    Err(BadValue::new(message, typed(nearest)))
}

/// How much memory a daemon takes: a multiple of 1 MiB from 64 MiB on. How much it may be the machine decides.
pub fn memory(bytes: ByteCount) -> Result<(), BadValue> {
    let least = ByteCount::mib(64);
    if bytes >= least && bytes.is_multiple_of(1 << 20) {
        return Ok(());
    }
    let nearest = ByteCount(bytes.0.max(least.0) >> 20 << 20);
    let message = format!("{} is no amount of memory; multiples of 1MiB from {} on are", typed(bytes), typed(least));
    Err(BadValue::new(message, typed(nearest)))
}

/// The size of a virtual disk with sectors of `sector` bytes: at least one 4 KiB block, whole sectors, at most 64 PiB.
pub fn vdisk_size(bytes: ByteCount, sector: u64) -> Result<(), BadValue> {
    within(bytes, ByteCount(BLOCK), limits::VDISK_SIZE_MAX, sector, "size of a virtual disk")
}

/// A place or a length on a virtual disk, in whole sectors.
pub fn request_range(bytes: ByteCount) -> Result<(), BadValue> {
    within(bytes, ByteCount::ZERO, limits::VDISK_SIZE_MAX, SECTOR, "offset or length")
}

/// A number of columns, parity columns counted, copies not.
pub fn columns(columns: u8) -> Result<(), BadValue> {
    counted(columns, 1, limits::COLUMNS_MAX, "columns")
}

/// A number of copies of a mirror.
pub fn copies(copies: u8) -> Result<(), BadValue> {
    counted(copies, 2, limits::COPIES_MAX, "copies")
}

/// A number of disk failures to survive.
pub fn failures(failures: u8) -> Result<(), BadValue> {
    counted(failures, 1, limits::PARITY_MAX, "failures")
}

/// A sector size.
pub fn sector(bytes: u16) -> Result<(), BadValue> {
    match bytes {
        512 | 4096 => Ok(()),
        _ => Err(BadValue::new(
            format!("a sector of {bytes} bytes is not offered; 512 and 4096 are"),
            if bytes < 4096 { "512" } else { "4096" },
        )),
    }
}

fn counted(n: u8, min: u8, max: u8, what: &str) -> Result<(), BadValue> {
    if (min..=max).contains(&n) {
        return Ok(());
    }
    Err(BadValue::new(format!("{n} {what} are not offered; {min} to {max} are"), n.clamp(min, max).to_string()))
}

fn within(bytes: ByteCount, min: ByteCount, max: ByteCount, unit: u64, what: &str) -> Result<(), BadValue> {
    if bytes >= min && bytes <= max && bytes.is_multiple_of(unit) {
        return Ok(());
    }
    let nearest = bytes.0.clamp(min.0, max.0).next_multiple_of(unit).min(max.0);
    Err(BadValue::new(
        format!(
            "{} is no {what}; multiples of {} from {} to {} are",
            typed(bytes),
            typed(ByteCount(unit)),
            typed(min),
            typed(max)
        ),
        typed(ByteCount(nearest)),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interleave_need_not_be_a_power_of_two_but_whole_blocks() {
        assert!(interleave(ByteCount::kib(24)).is_ok());
        let bad = interleave(ByteCount::kib(5)).unwrap_err();
        assert_eq!(bad.nearest.as_deref(), Some("8KiB"));
        assert!(bad.message.contains("4KiB to 4MiB"), "{}", bad.message);
        assert_eq!(interleave(ByteCount::mib(5)).unwrap_err().nearest.as_deref(), Some("4MiB"));
        assert_eq!(interleave(ByteCount::ZERO).unwrap_err().nearest.as_deref(), Some("4KiB"));
    }

    #[test]
    fn the_nearest_name_is_a_name() {
        for text in ["", "/", "-x", "a b", "tank/media/deep", "@@@", &"x".repeat(60), "ü ü"] {
            assert!(name(text).is_err(), "{text}");
            assert!(name(&nearest_name(text)).is_ok(), "{text}: {}", nearest_name(text));
        }
        assert!(name("größe-1.img").is_ok());
    }

    #[test]
    fn virtual_disks_are_whole_sectors() {
        assert!(vdisk_size(ByteCount(10 << 30), 4096).is_ok());
        assert!(vdisk_size(ByteCount((10 << 30) + 512), 512).is_ok());
        assert!(vdisk_size(ByteCount((10 << 30) + 512), 4096).is_err());
        assert!(vdisk_size(ByteCount::ZERO, 512).is_err());
    }
}
