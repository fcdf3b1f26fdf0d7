//! Health as pure tables: from what is known of a disk, a virtual disk or a pool to the one word that people are told.
//! `docs/vocabulary.md` sets them beside the words of Storage Spaces.

use crate::format::record::Usage;
use crate::units::Nanos;

/// How well the pool, or a part of it, is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Health {
    /// Everything has its full redundancy.
    Healthy,
    /// Something is missing; data is complete.
    Warning,
    /// Data is lost, or writes are refused.
    Unhealthy,
}

/// What a disk is to the pool now.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DiskState {
    /// In use.
    Ok,
    /// In use, and much slower than its peers.
    Slow,
    /// In use, but it missed updates while it was away, and gets them.
    Stale,
    /// There, and for nothing new; what it holds moves elsewhere.
    Retired,
    /// Taken out by a person, for a while.
    Maintenance,
    /// Not there, or taken out after a failure.
    Missing,
}

/// What is known of a disk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DiskFacts {
    /// It answers.
    pub there: bool,
    /// It lacks metadata or strips.
    pub behind: bool,
    /// A person took it out.
    pub maintenance: bool,
    /// See [`is_slow`].
    pub slow: bool,
    /// What it is used for.
    pub usage: Usage,
}

/// The state of a disk.
pub fn disk_state(facts: DiskFacts) -> DiskState {
    match facts {
        DiskFacts { there: false, maintenance: true, .. } => DiskState::Maintenance,
        DiskFacts { there: false, .. } => DiskState::Missing,
        DiskFacts { behind: true, .. } => DiskState::Stale,
        DiskFacts { usage: Usage::Retired, .. } => DiskState::Retired,
        DiskFacts { slow: true, .. } => DiskState::Slow,
        _ => DiskState::Ok,
    }
}

/// The health of a disk in that state.
pub fn disk_health(state: DiskState) -> Health {
    match state {
        DiskState::Ok => Health::Healthy,
        DiskState::Slow | DiskState::Stale | DiskState::Retired | DiskState::Maintenance => Health::Warning,
        DiskState::Missing => Health::Unhealthy,
    }
}

/// The health of a virtual disk whose worst stripe lacks `missing` strips of a layout that survives `failures`.
/// `failed`: writes were lost for good.
pub fn vdisk_health(missing: usize, failures: usize, failed: bool) -> Health {
    match () {
        () if failed || missing > failures => Health::Unhealthy,
        () if missing > 0 => Health::Warning,
        () => Health::Healthy,
    }
}

/// The health of a pool: as bad as its worst virtual disk; a disk that is not well is worth a warning; a pool that
/// takes no writes is unhealthy.
pub fn pool_health(failed: bool, worst_disk: Health, worst_vdisk: Health) -> Health {
    if failed { Health::Unhealthy } else { worst_vdisk.max(worst_disk.min(Health::Warning)) }
}

/// Whether a disk is an outlier: nine of ten requests take four times what they take on the median of its peers, and
/// long enough to matter.
pub fn is_slow(own: Nanos, median_of_peers: Nanos) -> bool {
    const MATTERS: Nanos = Nanos::millis(20);
    own >= MATTERS && own.0 >= median_of_peers.0.saturating_mul(4)
}

#[cfg(test)]
mod tests {
    use super::*;

    const USAGES: [Usage; 5] =
        [Usage::AutoSelect, Usage::ManualSelect, Usage::HotSpare, Usage::Journal, Usage::Retired];

    fn all_facts() -> impl Iterator<Item = DiskFacts> {
        (0..16u8).flat_map(|bits| {
            USAGES.map(|usage| DiskFacts {
                there: bits & 1 > 0,
                behind: bits & 2 > 0,
                maintenance: bits & 4 > 0,
                slow: bits & 8 > 0,
                usage,
            })
        })
    }

    #[test]
    fn every_disk_has_the_state_that_matters_most() {
        for facts in all_facts() {
            let state = disk_state(facts);
            assert_eq!(matches!(state, DiskState::Missing | DiskState::Maintenance), !facts.there, "{facts:?}");
            assert_eq!(state == DiskState::Maintenance, !facts.there && facts.maintenance, "{facts:?}");
            assert_eq!(state == DiskState::Stale, facts.there && facts.behind, "{facts:?}");
            let retired = facts.usage == Usage::Retired;
            assert_eq!(state == DiskState::Retired, facts.there && !facts.behind && retired, "{facts:?}");
            assert_eq!(state == DiskState::Slow, facts.there && !facts.behind && !retired && facts.slow, "{facts:?}");
            let well = facts.there && !facts.behind && !retired && !facts.slow;
            assert_eq!(disk_health(state) == Health::Healthy, well, "{facts:?}");
            assert_eq!(disk_health(state) == Health::Unhealthy, state == DiskState::Missing, "{facts:?}");
        }
    }

    #[test]
    fn a_virtual_disk_is_unhealthy_exactly_when_data_is_lost() {
        for failures in 0..=2 {
            for missing in 0..=4 {
                for failed in [false, true] {
                    let health = vdisk_health(missing, failures, failed);
                    assert_eq!(health == Health::Unhealthy, failed || missing > failures);
                    assert_eq!(health == Health::Healthy, !failed && missing == 0);
                }
            }
        }
    }

    #[test]
    fn a_pool_is_as_well_as_its_data_and_never_healthy_with_an_unwell_disk() {
        let all = [Health::Healthy, Health::Warning, Health::Unhealthy];
        for disk in all {
            for vdisk in all {
                assert_eq!(pool_health(true, disk, vdisk), Health::Unhealthy);
                let health = pool_health(false, disk, vdisk);
                assert!(health >= vdisk);
                assert_eq!(health == Health::Healthy, disk == Health::Healthy && vdisk == Health::Healthy);
                assert_eq!(
                    health == Health::Unhealthy,
                    vdisk == Health::Unhealthy,
                    "a missing disk alone loses no data"
                );
            }
        }
    }

    #[test]
    fn only_an_outlier_that_matters_is_slow() {
        assert!(!is_slow(Nanos::millis(19), Nanos::millis(1)), "too short to matter");
        assert!(is_slow(Nanos::millis(40), Nanos::millis(10)));
        assert!(!is_slow(Nanos::millis(39), Nanos::millis(10)), "they are all like that");
    }
}
