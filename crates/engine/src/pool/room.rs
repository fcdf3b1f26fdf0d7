//! What of free space a layout cannot use because disks are unequal, and what would help. Pure arithmetic.
//!
//! A segment takes one slab on each of `slots` different disks. With `s` segments no disk can give more than `s` slabs,
//! so `s` are possible exactly if the disks' free slabs, each counted up to `s`, add up to `slots * s`; always taking
//! the emptiest disks gets there. What a disk has above `s` is of no use to the layout.

use super::Pool;
use crate::geometry::Layout;
use crate::segment::segments_on;
use crate::units::ByteCount;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

/// Room that a disk has.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Room {
    /// The disk's name.
    pub name: String,
    /// Its free bytes.
    pub free: ByteCount,
}

/// The bytes of `disks` that `layout` cannot use, and a sentence about them: where they are and what would help; empty
/// if there are none. Less than a slab, of `slab` bytes, per slot is nothing.
pub fn unusable(layout: Layout, disks: &[Room], slab: ByteCount) -> (ByteCount, String) {
    let free: Vec<u64> = disks.iter().map(|disk| disk.free.0 / slab.0).collect();
    let slots = layout.slots() as u64;
    let segments = segments_on(&free, slots);
    let stranded = free.iter().sum::<u64>() - segments * slots;
    if stranded < slots {
        return (ByteCount::ZERO, String::new());
    }
    let too_large = disks.iter().zip(&free).filter(|(_, free)| **free > segments);
    let names: Vec<&str> = too_large.map(|(disk, _)| disk.name.as_str()).collect();
    let (usable, bytes) = (user_bytes(layout, &free, slab), slab * stranded);
    let mut sentence = if segments == 0 {
        format!("{layout} needs room on {slots} disks; {} have some: {bytes} cannot be used", names.len())
    } else {
        format!("{layout} cannot use {bytes} on {}: the others are too small or too few for it", names.join(", "))
    };
    if let Some((size, gain)) = disk_to_add(layout, &free, slab) {
        sentence += &format!("; another disk of {size} would make {gain} more usable");
    }
    if let Some((columns, more)) = better_columns(layout, &free, slab).filter(|(_, more)| *more > usable) {
        sentence += &format!(
            "; --columns {columns} would hold {more} of data there, --columns {} holds {usable}",
            layout.columns()
        );
    }
    (bytes, sentence)
}

/// The smallest disk that gives the most, and how much more user data there would be room for.
fn disk_to_add(layout: Layout, free: &[u64], slab: ByteCount) -> Option<(ByteCount, ByteCount)> {
    let slots = layout.slots() as u64;
    let with = |size: u64| {
        let all: Vec<u64> = free.iter().copied().chain([size]).collect();
        segments_on(&all, slots)
    };
    // A disk gives a segment one slab: it need not be larger than there are segments.
    let size = with(free.iter().sum::<u64>().max(1));
    let gain = with(size) - segments_on(free, slots);
    (gain > 0).then(|| (slab * size, slab * gain * layout.data_columns() as u64))
}

/// The number of columns, of the same resiliency and interleave, that would hold the most user data, and how much; the
/// fewest of those.
fn better_columns(layout: Layout, free: &[u64], slab: ByteCount) -> Option<(usize, ByteCount)> {
    let least = layout.resiliency().columns_min() as usize;
    let widths = least..=(free.len() / layout.copies()).min(crate::limits::COLUMNS_MAX as usize);
    let layouts =
        widths.filter_map(|columns| Layout::new(layout.resiliency(), columns as u8, layout.interleave()).ok());
    let held = layouts.map(|layout| (layout.columns(), user_bytes(layout, free, slab)));
    held.max_by_key(|(columns, bytes)| (*bytes, core::cmp::Reverse(*columns)))
}

fn user_bytes(layout: Layout, free: &[u64], slab: ByteCount) -> ByteCount {
    slab * segments_on(free, layout.slots() as u64) * layout.data_columns() as u64
}

impl Pool {
    /// [`unusable`] for the free slabs of the disks that take new data, as of now.
    pub fn unusable(&self, layout: Layout) -> (ByteCount, String) {
        let map = self.store.map.borrow();
        let room = |disk: &crate::segment::DiskRoom| Room {
            name: disk.record.name.clone(),
            free: self.store.slab * map.free_soon(disk.record.no) as u64,
        };
        unusable(layout, &map.writable_disks().map(room).collect::<Vec<_>>(), self.store.slab)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::geometry::Resiliency;

    const SLAB: ByteCount = ByteCount::gib(1);

    fn rooms(gib: &[u64]) -> Vec<Room> {
        let room = |(no, gib): (usize, &u64)| Room { name: format!("d{no}"), free: ByteCount::gib(*gib) };
        gib.iter().enumerate().map(room).collect()
    }

    fn parity(columns: u8) -> Layout {
        Layout::new(Resiliency::Parity { parity: 1 }, columns, ByteCount::kib(256)).unwrap()
    }

    /// Takes one slab of each of the fullest disks, as long as that goes.
    fn one_by_one(free: &[u64], slots: usize) -> u64 {
        let (mut free, mut segments) = (free.to_vec(), 0);
        loop {
            free.sort_unstable_by(|a, b| b.cmp(a));
            if free.len() < slots || free[slots - 1] == 0 {
                return segments;
            }
            free[..slots].iter_mut().for_each(|left| *left -= 1);
            segments += 1;
        }
    }

    #[test]
    fn the_formula_counts_what_taking_slabs_one_by_one_gives() {
        let mut state = 1u64;
        let mut random = |below: u64| {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (state >> 33) % below
        };
        for _ in 0..2000 {
            let free: Vec<u64> = (0..random(9)).map(|_| random(30)).collect();
            let slots = 1 + random(6);
            assert_eq!(segments_on(&free, slots), one_by_one(&free, slots as usize), "{free:?} {slots}");
        }
    }

    #[test]
    fn equal_disks_leave_nothing() {
        assert_eq!(unusable(parity(5), &rooms(&[100; 5]), SLAB), (ByteCount::ZERO, String::new()));
        assert_eq!(unusable(parity(5), &rooms(&[100; 12]), SLAB).0, ByteCount::ZERO);
    }

    #[test]
    fn one_large_disk_is_named_with_the_disk_that_would_help() {
        let (bytes, sentence) = unusable(parity(3), &rooms(&[100, 100, 400]), SLAB);
        assert_eq!(bytes, ByteCount::gib(300));
        assert!(sentence.contains("300 GiB on d2"), "{sentence}");
        assert!(sentence.contains("another disk of 200 GiB would make 200 GiB more usable"), "{sentence}");
        assert!(!sentence.contains("would hold"), "{sentence}");
    }

    #[test]
    fn a_layout_that_is_too_wide_for_unequal_disks_is_told_the_better_one() {
        let (bytes, sentence) = unusable(parity(6), &rooms(&[100, 100, 100, 400, 400, 400]), SLAB);
        assert_eq!(bytes, ByteCount::gib(900));
        assert!(
            sentence.contains("--columns 3 would hold 1000 GiB of data there, --columns 6 holds 500 GiB"),
            "{sentence}"
        );
    }

    #[test]
    fn too_few_disks_are_said_to_be_too_few() {
        let (bytes, sentence) = unusable(parity(3), &rooms(&[100, 100]), SLAB);
        assert_eq!(bytes, ByteCount::gib(200));
        assert!(sentence.contains("needs room on 3 disks; 2 have some"), "{sentence}");
        assert!(sentence.contains("another disk of 100 GiB would make 200 GiB more usable"), "{sentence}");
        assert_eq!(unusable(parity(3), &[], SLAB).0, ByteCount::ZERO);
    }
}
