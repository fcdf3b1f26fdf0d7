//! What a virtual disk may hold: the judge of every read.
//!
//! Per unit (one logical sector) it keeps the contents that the disk may have, oldest first. Without a crash a unit holds the newest. After a crash it may
//! hold any of them: the flushed one is the oldest kept, so "flushed -> at least that; unflushed -> old or new, as a whole unit" is the rule.
//!
//! A content is a tag: the unit is filled with that 64-bit number. Tag 0 is zeros.

use std::ops::Range;

/// The contents one unit may have.
#[derive(Clone, Debug)]
struct Unit {
    /// Oldest first; each a set of tags that are equally right (a discard leaves old data or zeros).
    versions: Vec<Vec<u64>>,
    /// How many versions were dropped at the front.
    dropped: u64,
    /// Whether a write failed here: then any version may be what a read sees.
    uncertain: bool,
}

/// The judge of one virtual disk.
#[derive(Clone)]
pub struct Oracle {
    unit: u64,
    units: Vec<Unit>,
}

/// Where each unit stood at some moment: what a flush that begins now makes durable.
pub struct Mark(Vec<u64>);

impl Oracle {
    /// A disk of `size` bytes of zeros, judged in units of `unit` bytes.
    pub fn new(size: u64, unit: u64) -> Oracle {
        let blank = Unit { versions: vec![vec![0]], dropped: 0, uncertain: false };
        Oracle { unit, units: vec![blank; (size / unit) as usize] }
    }

    /// Bytes of a unit.
    pub fn unit(&self) -> u64 {
        self.unit
    }

    /// How many units.
    pub fn units(&self) -> usize {
        self.units.len()
    }

    /// The bytes of a write of `tag` to `units`.
    pub fn bytes(&self, tag: u64, units: usize) -> Vec<u8> {
        tag.to_le_bytes().repeat(units * self.unit as usize / 8)
    }

    /// A write of `tag` was begun: from now on a crash may leave it.
    pub fn begin(&mut self, units: Range<usize>, tag: u64) {
        self.units[units].iter_mut().for_each(|unit| unit.versions.push(vec![tag]));
    }

    /// A discard was begun: the units hold what they held, or zeros.
    pub fn begin_discard(&mut self, units: Range<usize>) {
        for unit in &mut self.units[units] {
            let mut tags: Vec<u64> = unit.versions.last().cloned().unwrap_or_default();
            tags.push(0);
            unit.versions.push(tags);
        }
    }

    /// The write ended with an error: it may be there or not.
    pub fn failed(&mut self, units: Range<usize>) {
        self.units[units].iter_mut().for_each(|unit| unit.uncertain = true);
    }

    /// Where things stand, for a flush that begins now. Writes that are under way (`busy`) are not part of it.
    pub fn mark(&self, busy: &[Range<usize>]) -> Mark {
        let newest = |(at, unit): (usize, &Unit)| {
            let under_way = busy.iter().any(|range| range.contains(&at)) as u64;
            unit.dropped + unit.versions.len() as u64 - 1 - under_way.min(unit.versions.len() as u64 - 1)
        };
        Mark(self.units.iter().enumerate().map(newest).collect())
    }

    /// The flush succeeded: nothing older than the mark may ever be seen again.
    pub fn flushed(&mut self, mark: &Mark) {
        for (unit, newest) in self.units.iter_mut().zip(&mark.0) {
            let older = newest.saturating_sub(unit.dropped).min(unit.versions.len() as u64 - 1);
            if unit.uncertain && older > 0 {
                continue;
            }
            unit.versions.drain(..older as usize);
            unit.dropped += older;
        }
    }

    /// A write of these units is durable (FUA).
    pub fn durable(&mut self, units: Range<usize>) {
        for unit in self.units[units].iter_mut().filter(|unit| !unit.uncertain) {
            let older = unit.versions.len() - 1;
            unit.versions.drain(..older);
            unit.dropped += older as u64;
        }
    }

    /// Judges bytes read without a crash since the last write.
    pub fn judge(&self, first: usize, bytes: &[u8]) -> Result<(), String> {
        for (nth, unit) in bytes.chunks_exact(self.unit as usize).enumerate() {
            let state = &self.units[first + nth];
            let tag = tag_of(unit).map_err(|why| format!("unit {}: {why}", first + nth))?;
            let newest = state.versions.last().is_some_and(|tags| tags.contains(&tag));
            let right = newest || state.uncertain && state.versions.iter().any(|tags| tags.contains(&tag));
            if !right {
                return Err(format!(
                    "unit {} holds {tag:#x}, it must hold one of {:x?}",
                    first + nth,
                    state.versions.last()
                ));
            }
        }
        Ok(())
    }

    /// Judges what is there after a crash, and takes it as the truth from now on.
    pub fn judge_after_crash(&mut self, first: usize, bytes: &[u8]) -> Result<(), String> {
        for (nth, unit) in bytes.chunks_exact(self.unit as usize).enumerate() {
            let state = &mut self.units[first + nth];
            let tag = tag_of(unit).map_err(|why| format!("unit {}: {why}", first + nth))?;
            if !state.versions.iter().any(|tags| tags.contains(&tag)) {
                return Err(format!(
                    "after a crash unit {} holds {tag:#x}, it may hold one of {:x?} (the first is flushed)",
                    first + nth,
                    state.versions
                ));
            }
            // It is in the pool's hands now: a further crash must not bring another version back.
            *state = Unit { versions: vec![vec![tag]], dropped: 0, uncertain: false };
        }
        Ok(())
    }
}

/// The one tag a unit is filled with.
fn tag_of(unit: &[u8]) -> Result<u64, String> {
    let tag = u64::from_le_bytes(unit[..8].try_into().expect("eight bytes"));
    match unit.chunks_exact(8).all(|word| word == tag.to_le_bytes()) {
        true => Ok(tag),
        false => Err(format!("is torn: it begins with {tag:#x} and goes on with something else")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flushed_contents_must_stay_and_unflushed_ones_may_go() {
        let mut oracle = Oracle::new(4096 * 4, 4096);
        oracle.begin(0..2, 7);
        let mark = oracle.mark(&[]);
        oracle.begin(0..1, 8);
        oracle.flushed(&mark);
        let seen = |tag: u64| oracle.bytes(tag, 1);
        assert!(oracle.judge(0, &seen(8)).is_ok());
        assert!(oracle.judge(0, &seen(7)).is_err());
        let (seven, eight, zero) = (seen(7), seen(8), seen(0));
        assert!(oracle.judge_after_crash(0, &zero).is_err());
        assert!(oracle.judge_after_crash(1, &zero).is_err());
        assert!(oracle.judge_after_crash(1, &seven).is_ok());
        assert!(oracle.judge_after_crash(0, &eight).is_ok());
        assert!(oracle.judge_after_crash(0, &seven).is_err(), "what was seen after a crash stays");
    }

    #[test]
    fn a_torn_unit_is_never_right() {
        let mut oracle = Oracle::new(4096, 4096);
        oracle.begin(0..1, 7);
        let mut bytes = oracle.bytes(7, 1);
        bytes[2048..].fill(0);
        assert!(oracle.judge_after_crash(0, &bytes).unwrap_err().contains("torn"));
    }
}
