//! How often the ranges of a virtual disk are sought out: what a fast tier, or a cache, would be good for.
//!
//! Counted are requests that a disk would have to seek for. One that begins where another has just ended is the next of
//! a stream, which hard disks serve as well as any other: so to read or write everything once, in order, heats nothing,
//! however many streams do that at once.
//!
//! Heat fades: of what was counted half is forgotten in a day of service. That is done by steps of an hour, for each
//! stretch of ranges when it is looked at next.
//!
//! Invariants
//! 1. Memory: four bytes for each range of the stretches that were ever sought out; a virtual disk has [`RANGES_MAX`]
//!    ranges at most, whatever its size.
//! 2. What was loaded adds to what was counted before it came; nothing is counted twice.

use crate::units::{ByteCount, VirtualOffset};
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;

/// The most ranges of a virtual disk.
pub const RANGES_MAX: u64 = 1 << 18;
/// The smallest range.
const RANGE_MIN: u64 = 1 << 20;
/// Ranges that are kept, and written, together.
pub const STRETCH: usize = 128;
/// Bytes of a stretch as it is written: the hour it was last looked at, the power of two that is its range, and a count
/// of four bytes for each of its ranges; all little-endian.
pub const STRETCH_LEN: usize = 16 + STRETCH * 4;
/// What one request counts.
const ONE: u32 = 256;
/// What an hour leaves, in 65536ths: 2^(-1/24).
const AN_HOUR_LEAVES: u64 = 63_671;
/// After so many hours nothing is left of any count.
const FORGOTTEN: u64 = 24 * 32;
/// Ends of requests that are remembered, to tell streams: one for each request that clients have under way at once.
const ENDS: usize = 64;

/// What is known of a virtual disk.
pub struct Heat {
    /// A range has two to the power of this many bytes.
    shift: u32,
    stretches: BTreeMap<u32, Stretch>,
    ends: Vec<u64>,
    next_end: usize,
}

/// The counts of some ranges side by side.
struct Stretch {
    /// The hour for which they count.
    hour: u64,
    counts: Box<[u32; STRETCH]>,
    changed: bool,
}

/// What of all that is sought out a fast tier would catch, if it held the hottest ranges.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Curve {
    /// Bytes of a range.
    pub range: ByteCount,
    /// Requests that were counted, and are not forgotten.
    pub seeks: u64,
    /// For sizes that double, from one range on: (bytes of the tier, the seeks among `seeks` that go to those).
    pub points: Vec<(ByteCount, u64)>,
}

impl Heat {
    /// Knows nothing yet of a virtual disk of this size.
    pub fn new(size: ByteCount) -> Heat {
        Heat { shift: shift_of(size), stretches: BTreeMap::new(), ends: Vec::new(), next_end: 0 }
    }

    /// Bytes of a range.
    pub fn range(&self) -> ByteCount {
        ByteCount(1 << self.shift)
    }

    /// Takes note of a request, in this hour of service. Whether a hard disk would seek for it.
    pub fn note(&mut self, offset: VirtualOffset, len: u64, hour: u64) -> bool {
        let end = offset.0 + len;
        if let Some(known) = self.ends.iter_mut().find(|known| **known == offset.0) {
            *known = end;
            return false;
        }
        if self.ends.len() < ENDS {
            self.ends.push(end);
        } else {
            self.ends[self.next_end] = end;
            self.next_end = (self.next_end + 1) % ENDS;
        }
        let range = offset.0 >> self.shift;
        let stretch = self.stretches.entry((range / STRETCH as u64) as u32).or_insert_with(|| Stretch::new(hour));
        stretch.fade(hour);
        let count = &mut stretch.counts[range as usize % STRETCH];
        *count = count.saturating_add(ONE);
        stretch.changed = true;
        true
    }

    /// How hot the range is that has this byte, in 256ths of a request.
    pub fn of(&self, offset: VirtualOffset, hour: u64) -> u32 {
        let range = offset.0 >> self.shift;
        let stretch = self.stretches.get(&((range / STRETCH as u64) as u32));
        stretch.map_or(0, |stretch| faded(stretch.counts[range as usize % STRETCH], hour.saturating_sub(stretch.hour)))
    }

    /// The ranges that are not forgotten: how hot each is, and its number.
    pub fn ranges(&self, hour: u64) -> Vec<(u32, u64)> {
        let all = self.stretches.iter().flat_map(|(no, stretch)| {
            let hours = hour.saturating_sub(stretch.hour);
            let first = u64::from(*no) * STRETCH as u64;
            let counts = stretch.counts.iter().enumerate();
            counts.map(move |(nth, count)| (faded(*count, hours), first + nth as u64))
        });
        all.filter(|(heat, _)| *heat > 0).collect()
    }

    /// What tiers of all sizes would catch.
    pub fn curve(&self, hour: u64) -> Curve {
        let all = self.stretches.values().flat_map(|stretch| {
            let hours = hour.saturating_sub(stretch.hour);
            stretch.counts.iter().map(move |count| u64::from(faded(*count, hours)))
        });
        let mut hot: Vec<u64> = all.filter(|count| *count > 0).collect();
        hot.sort_unstable_by(|a, b| b.cmp(a));
        let seeks = hot.iter().sum::<u64>();
        let (mut points, mut caught, mut ranges) = (Vec::new(), 0, 0);
        for most in (0..=hot.len().next_power_of_two().trailing_zeros()).map(|power| 1usize << power) {
            let most = most.min(hot.len());
            caught += hot[ranges..most].iter().sum::<u64>();
            ranges = most;
            if !hot.is_empty() && points.last().is_none_or(|(bytes, _)| *bytes < self.range() * ranges as u64) {
                points.push((self.range() * ranges as u64, caught / u64::from(ONE)));
            }
        }
        Curve { range: self.range(), seeks: seeks / u64::from(ONE), points }
    }

    /// The stretches that changed since they were taken last, as they are to be written.
    pub fn take_changed(&mut self) -> Vec<(u32, [u8; STRETCH_LEN])> {
        let shift = self.shift;
        let changed = self.stretches.iter_mut().filter(|(_, stretch)| stretch.changed);
        let taken = changed.map(|(no, stretch)| {
            stretch.changed = false;
            (*no, stretch.to_bytes(shift))
        });
        taken.collect()
    }

    /// Has all of it written anew.
    pub fn touch(&mut self) {
        self.stretches.values_mut().for_each(|stretch| stretch.changed = true);
    }

    /// How many stretches there are.
    pub fn stretches(&self) -> usize {
        self.stretches.len()
    }

    /// Goes on from hour `past` of service, at which this virtual disk was left: what was counted meanwhile was counted
    /// from hour 0 on.
    pub fn resume(&mut self, past: u64) {
        self.stretches.values_mut().for_each(|stretch| stretch.hour += past);
    }

    /// Adds what was written of a stretch. What is of another size, or beyond all sense, says nothing.
    pub fn load(&mut self, no: u32, bytes: &[u8]) {
        let Some((shift, mut loaded)) = Stretch::from_bytes(bytes) else { return };
        if shift != self.shift || u64::from(no) >= RANGES_MAX {
            return;
        }
        let Some(here) = self.stretches.get_mut(&no) else {
            self.stretches.insert(no, loaded);
            return;
        };
        let hour = here.hour.max(loaded.hour);
        here.fade(hour);
        loaded.fade(hour);
        here.counts.iter_mut().zip(loaded.counts.iter()).for_each(|(here, more)| *here = here.saturating_add(*more));
        here.changed = true;
    }
}

/// The hour that a stretch was written in.
pub fn hour_of(bytes: &[u8]) -> Option<u64> {
    Stretch::from_bytes(bytes).map(|(_, stretch)| stretch.hour)
}

impl Stretch {
    fn new(hour: u64) -> Stretch {
        Stretch { hour, counts: Box::new([0; STRETCH]), changed: false }
    }

    /// Forgets what is to be forgotten by this hour.
    fn fade(&mut self, hour: u64) {
        let hours = hour.saturating_sub(self.hour);
        if hours > 0 {
            self.counts.iter_mut().for_each(|count| *count = faded(*count, hours));
            self.hour = hour;
        }
    }

    fn to_bytes(&self, shift: u32) -> [u8; STRETCH_LEN] {
        let mut bytes = [0; STRETCH_LEN];
        bytes[..8].copy_from_slice(&self.hour.to_le_bytes());
        bytes[8..12].copy_from_slice(&shift.to_le_bytes());
        for (bytes, count) in bytes[16..].chunks_exact_mut(4).zip(self.counts.iter()) {
            bytes.copy_from_slice(&count.to_le_bytes());
        }
        bytes
    }

    fn from_bytes(bytes: &[u8]) -> Option<(u32, Stretch)> {
        let bytes: &[u8; STRETCH_LEN] = bytes.try_into().ok()?;
        let word = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"));
        let mut stretch = Stretch::new(u64::from_le_bytes(bytes[..8].try_into().expect("eight bytes")));
        stretch.counts.iter_mut().enumerate().for_each(|(no, count)| *count = word(16 + no * 4));
        // No pool has served for so long.
        (stretch.hour < 1 << 32).then_some((word(8), stretch))
    }
}

/// What is left of a count after some hours.
fn faded(count: u32, hours: u64) -> u32 {
    if hours >= FORGOTTEN {
        return 0;
    }
    (0..hours).fold(u64::from(count), |count, _| (count * AN_HOUR_LEAVES) >> 16) as u32
}

/// The size of a range, as a power of two, so that a virtual disk has no more of them than it may.
fn shift_of(size: ByteCount) -> u32 {
    size.0.div_ceil(RANGES_MAX).max(RANGE_MIN).next_power_of_two().trailing_zeros()
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn seek(heat: &mut Heat, mib: u64, times: u64, hour: u64) {
        for nth in 0..times {
            heat.note(VirtualOffset(mib * MIB + 8192 * (nth % 100)), 4096, hour);
        }
    }

    #[test]
    fn the_curve_says_what_the_hottest_ranges_catch() {
        let mut heat = Heat::new(ByteCount::gib(1));
        for (mib, times) in [(5, 80), (900, 10), (7, 6), (300, 4)] {
            seek(&mut heat, mib, times, 0);
        }
        let curve = heat.curve(0);
        assert_eq!((curve.range, curve.seeks), (ByteCount::mib(1), 100));
        assert_eq!(
            curve.points,
            [(ByteCount::mib(1), 80), (ByteCount::mib(2), 90), (ByteCount::mib(4), 100)],
            "each twice as large as the one before"
        );
        assert_eq!(Heat::new(ByteCount::gib(1)).curve(0).points, []);
    }

    #[test]
    fn streams_heat_nothing_however_many_there_are() {
        let mut heat = Heat::new(ByteCount::gib(64));
        seek(&mut heat, 3, 50, 0);
        for at in 0..2000 {
            for stream in 0..32 {
                heat.note(VirtualOffset(stream * 2048 * MIB + at * MIB), MIB, 0);
            }
        }
        // Where each of them began counts once.
        assert_eq!(heat.curve(0).seeks, 50 + 32);
        assert_eq!(heat.curve(0).points[0], (ByteCount::mib(1), 50));
    }

    #[test]
    fn half_is_forgotten_in_a_day_and_all_in_the_end() {
        let mut heat = Heat::new(ByteCount::gib(1));
        seek(&mut heat, 3, 1000, 7);
        assert_eq!(heat.curve(7).seeks, 1000);
        assert!((495..=500).contains(&heat.curve(7 + 24).seeks), "{:?}", heat.curve(7 + 24));
        assert!((245..=250).contains(&heat.curve(7 + 48).seeks));
        seek(&mut heat, 3, 500, 7 + 24);
        assert!((990..=1000).contains(&heat.curve(7 + 24).seeks), "what is looked at fades just once");
        assert_eq!(heat.curve(7 + FORGOTTEN + 48).seeks, 0);
    }

    #[test]
    fn what_was_written_adds_to_what_was_counted_since() {
        let (size, mut before) = (ByteCount::gib(1), Heat::new(ByteCount::gib(1)));
        seek(&mut before, 3, 100, 30);
        seek(&mut before, 500, 7, 30);
        let written = before.take_changed();
        assert_eq!(written.len(), 2);
        assert_eq!(before.take_changed().len(), 0, "each once");
        let mut after = Heat::new(size);
        seek(&mut after, 3, 10, 0);
        let past = written.iter().filter_map(|(_, bytes)| hour_of(bytes)).max().unwrap();
        after.resume(past);
        written.iter().for_each(|(no, bytes)| after.load(*no, bytes));
        assert_eq!(after.curve(past).points, [(ByteCount::mib(1), 110), (ByteCount::mib(2), 117)]);
        assert_eq!(after.take_changed().len(), 1, "what was only loaded is written already");
    }

    #[test]
    fn what_is_damaged_or_of_another_size_says_nothing() {
        let mut heat = Heat::new(ByteCount::gib(1));
        seek(&mut heat, 3, 100, 30);
        let (no, bytes) = heat.take_changed()[0];
        let mut larger = Heat::new(ByteCount(RANGES_MAX << 21));
        larger.load(no, &bytes);
        larger.load(0, &bytes[1..]);
        larger.load(u32::MAX, &bytes);
        larger.load(0, &[0xff; STRETCH_LEN]);
        assert_eq!(larger.curve(30).seeks, 0);
    }

    #[test]
    fn a_disk_of_any_size_has_no_more_ranges_than_it_may() {
        for size in [ByteCount(0), ByteCount::mib(1), ByteCount::gib(256), ByteCount((256 << 30) + 1)] {
            let range = Heat::new(size).range();
            assert!(range >= ByteCount::mib(1) && size.0.div_ceil(range.0) <= RANGES_MAX, "{size:?}: {range:?}");
        }
    }
}
