//! What a virtual disk may hold: the judge of every read.
//!
//! Per unit (one logical sector) it keeps the contents that the disk may have, oldest first. Without a crash a unit
//! holds the newest. After a crash it may hold any of them: the flushed one is the oldest kept, so "flushed -> at least
//! that; unflushed -> old or new, as a whole unit" is the rule.
//!
//! A write that ended with an error may be there or not: until a later one succeeds, a read may see what was there
//! before it, or it.
//!
//! A pool that a person opened with disks of which nobody knows whether they are the newest may have gone back in time:
//! then a unit holds whatever was written to it once, or cannot be read, and that is the truth from then on.
//!
//! A content is a tag: the unit is filled with that 64-bit number. Tag 0 is zeros.

use crate::rng::fold;
use std::collections::BTreeSet;
use std::ops::Range;

/// The contents one unit may have.
#[derive(Clone, Debug)]
struct Unit {
    /// Oldest first.
    versions: Vec<Version>,
    /// How many versions were dropped at the front.
    dropped: u64,
    /// It could not be read when the pool went back in time, and nothing newer was flushed since.
    inherited: bool,
}

/// What one write left.
#[derive(Clone, Debug)]
struct Version {
    /// Tags that are equally right: a discard leaves old data or zeros.
    tags: Vec<u64>,
    /// Whether it may be missing even without a crash: the write, or a flush of it, ended with an error.
    doubtful: bool,
}

impl Version {
    fn new(tags: Vec<u64>) -> Version {
        Version { tags, doubtful: false }
    }
}

impl Unit {
    fn of(tag: u64) -> Unit {
        Unit { versions: vec![Version::new(vec![tag])], dropped: 0, inherited: false }
    }

    /// The newest version up to `limit` that is there for certain. The oldest one always is.
    fn certain(&self, limit: usize) -> usize {
        self.versions[..=limit].iter().rposition(|version| !version.doubtful).unwrap_or(0)
    }

    /// What came before `first` is over.
    fn forget_before(&mut self, first: usize) {
        self.versions.drain(..first);
        self.dropped += first as u64;
        self.inherited &= first == 0;
    }
}

/// The judge of one virtual disk.
#[derive(Clone)]
pub struct Oracle {
    unit: u64,
    units: Vec<Unit>,
    /// All that was ever written to each unit, where that is to be known.
    ever: Option<Vec<BTreeSet<u64>>>,
}

/// Where each unit stood at some moment: what a flush that begins now makes durable.
pub struct Mark(Vec<u64>);

impl Oracle {
    /// A disk of `size` bytes of zeros, judged in units of `unit` bytes.
    pub fn new(size: u64, unit: u64) -> Oracle {
        Oracle { unit, units: vec![Unit::of(0); (size / unit) as usize], ever: None }
    }

    /// Bytes of a unit.
    pub fn unit(&self) -> u64 {
        self.unit
    }

    /// A hash of all that may be there: equal judges have equal ones.
    pub fn fingerprint(&self) -> u64 {
        let version = |hash: u64, version: &Version| {
            version.tags.iter().fold(fold(hash, version.doubtful as u64 + 2), |hash, tag| fold(hash, *tag))
        };
        let unit = |hash: u64, unit: &Unit| unit.versions.iter().fold(fold(hash, 1), version);
        self.units.iter().fold(self.unit, unit)
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
        if let Some(ever) = &mut self.ever {
            ever[units.clone()].iter_mut().for_each(|tags| _ = tags.insert(tag));
        }
        self.units[units].iter_mut().for_each(|unit| unit.versions.push(Version::new(vec![tag])));
    }

    /// Keeps all that is written from now on, for a pool that may go back in time.
    pub fn keep_all(&mut self) {
        self.ever = Some(vec![BTreeSet::from([0]); self.units.len()]);
    }

    /// Judges what is there after the pool went back in time, and takes it as the truth from now on.
    pub fn judge_gone_back(&mut self, first: usize, bytes: &[u8]) -> Result<(), String> {
        let ever = self.ever.as_ref().expect("all that was written is kept");
        for (nth, unit) in bytes.chunks_exact(self.unit as usize).enumerate() {
            let at = first + nth;
            let tag = tag_of(unit).map_err(|why| format!("unit {at}: {why}"))?;
            if !ever[at].contains(&tag) {
                return Err(format!("unit {at} holds {tag:#x}, which was never written there"));
            }
            self.units[at] = Unit::of(tag);
        }
        Ok(())
    }

    /// These units could not be read after the pool went back in time: whatever was written there may come to light.
    pub fn inherit(&mut self, units: Range<usize>) {
        let ever = self.ever.as_ref().expect("all that was written is kept");
        for at in units {
            let version = Version::new(ever[at].iter().copied().collect());
            self.units[at] = Unit { inherited: true, ..Unit::of(0) };
            self.units[at].versions = vec![version];
        }
    }

    /// Whether one of these units could not be read when the pool went back in time, and was not flushed anew since.
    pub fn is_inherited(&self, units: Range<usize>) -> bool {
        self.units[units].iter().any(|unit| unit.inherited)
    }

    /// A discard was begun: the units hold what they held, or zeros.
    pub fn begin_discard(&mut self, units: Range<usize>) {
        for unit in &mut self.units[units] {
            let held = &unit.versions[unit.certain(unit.versions.len() - 1)..];
            let mut tags: Vec<u64> = held.iter().flat_map(|version| version.tags.clone()).collect();
            tags.push(0);
            unit.versions.push(Version::new(tags));
        }
    }

    /// The newest write of these units ended with an error: it may be there or not.
    pub fn failed(&mut self, units: Range<usize>) {
        let newest = self.units[units].iter_mut().filter_map(|unit| unit.versions.last_mut());
        newest.for_each(|version| version.doubtful = true);
    }

    /// A flush ended with an error: whatever no other flush covers may be there or not.
    pub fn flush_failed(&mut self) {
        let unflushed = self.units.iter_mut().flat_map(|unit| unit.versions.iter_mut().skip(1));
        unflushed.for_each(|version| version.doubtful = true);
    }

    /// After a crash these units cannot be read for now: what comes to light later may be any of what a crash may
    /// leave.
    pub fn unseen(&mut self, units: Range<usize>) {
        let unflushed = self.units[units].iter_mut().flat_map(|unit| unit.versions.iter_mut().skip(1));
        unflushed.for_each(|version| version.doubtful = true);
    }

    /// Whether all that was written to these units is flushed.
    pub fn is_flushed(&self, units: Range<usize>) -> bool {
        self.units[units].iter().all(|unit| unit.versions.len() == 1)
    }

    /// Grows to `size` bytes; what is new is zeros.
    pub fn grow(&mut self, size: u64) {
        self.units.resize((size / self.unit) as usize, Unit::of(0));
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
            unit.forget_before(unit.certain(older as usize));
        }
    }

    /// A write of these units is durable (FUA).
    pub fn durable(&mut self, units: Range<usize>) {
        for unit in &mut self.units[units] {
            unit.forget_before(unit.versions.len() - 1);
        }
    }

    /// Judges bytes read without a crash since the last write.
    pub fn judge(&self, first: usize, bytes: &[u8]) -> Result<(), String> {
        for (nth, unit) in bytes.chunks_exact(self.unit as usize).enumerate() {
            let state = &self.units[first + nth];
            let tag = tag_of(unit).map_err(|why| format!("unit {}: {why}", first + nth))?;
            let allowed = &state.versions[state.certain(state.versions.len() - 1)..];
            if !allowed.iter().any(|version| version.tags.contains(&tag)) {
                return Err(format!("unit {} holds {tag:#x}, it must hold one of {}", first + nth, list(allowed)));
            }
        }
        Ok(())
    }

    /// Judges what is there after a crash, and takes it as the truth from now on.
    pub fn judge_after_crash(&mut self, first: usize, bytes: &[u8]) -> Result<(), String> {
        for (nth, unit) in bytes.chunks_exact(self.unit as usize).enumerate() {
            let state = &mut self.units[first + nth];
            let tag = tag_of(unit).map_err(|why| format!("unit {}: {why}", first + nth))?;
            if !state.versions.iter().any(|version| version.tags.contains(&tag)) {
                return Err(format!(
                    "after a crash unit {} holds {tag:#x}, it may hold one of {} (the first is flushed)",
                    first + nth,
                    list(&state.versions)
                ));
            }
            // It is in the pool's hands now: a further crash must not bring another version back.
            *state = Unit::of(tag);
        }
        Ok(())
    }
}

fn list(versions: &[Version]) -> String {
    let tags: Vec<&Vec<u64>> = versions.iter().map(|version| &version.tags).collect();
    format!("{tags:x?}")
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
    fn a_write_that_failed_may_be_there_or_not_until_the_next_one_succeeds() {
        let mut oracle = Oracle::new(4096, 4096);
        oracle.begin(0..1, 7);
        oracle.begin(0..1, 8);
        oracle.failed(0..1);
        let seen = |tag: u64| Oracle::new(4096, 4096).bytes(tag, 1);
        assert!(oracle.judge(0, &seen(7)).is_ok() && oracle.judge(0, &seen(8)).is_ok());
        assert!(oracle.judge(0, &seen(0)).is_err());
        let mark = oracle.mark(&[]);
        oracle.flushed(&mark);
        assert!(oracle.judge(0, &seen(7)).is_ok() && oracle.clone().judge_after_crash(0, &seen(0)).is_err());
        oracle.begin(0..1, 9);
        assert!(oracle.judge(0, &seen(8)).is_err() && oracle.judge(0, &seen(9)).is_ok());
        oracle.flush_failed();
        assert!(oracle.judge(0, &seen(8)).is_ok() && oracle.judge(0, &seen(9)).is_ok());
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
