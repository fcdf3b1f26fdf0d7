//! How full a pool is, and when that needs a person.

use super::concern;
use crate::api::pool::PoolInfo;
use crate::api::watch::Attention;
use crate::ops::disk::DiskAdd;
use crate::ops::line::ToLine;
use weft_engine::units::ByteCount;

/// What is said of a pool that takes no new segment, or one at most.
pub(super) const NO_ROOM: &str = "new data has no room, or hardly any";

/// What is said of a pool that is fuller than its owner wants to be told.
pub(super) fn of_pool(pool: &PoolInfo) -> Option<Attention> {
    let full = percent(pool);
    if full < f64::from(pool.settings.full[0]) {
        return None;
    }
    let room = pool.free.saturating_sub(pool.unusable);
    // One slab of each disk is kept for metadata, and a stripe needs some on several.
    let mut message = match full >= f64::from(pool.settings.full[2]) {
        true if room <= 2 * pool.slab_size * pool.disks.len() as u64 => format!("{full:.0} % full: {NO_ROOM}"),
        true => format!("{full:.0} % full: new data will soon have no room"),
        false => format!("{full:.0} % full"),
    };
    if pool.promised > room {
        let beyond = ByteCount(pool.promised - room);
        message += &format!("; its virtual disks may take {beyond} more than there is room for");
    }
    Some(concern(format!("pool {}", pool.name), message, DiskAdd::some(&pool.name).line()))
}

/// How full a pool is, 0 to 100. What is not there, and what its layouts cannot use, is no room.
pub(in crate::daemon) fn percent(pool: &PoolInfo) -> f64 {
    match pool.capacity.saturating_sub(pool.unusable) {
        0 => 0.0,
        usable => pool.allocated as f64 / usable as f64 * 100.0,
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{disk, pool, told};
    use crate::api::pool::{Frozen, Usage};

    #[test]
    fn a_pool_that_refuses_changes_is_offered_none_however_full_and_ill_it_is() {
        let mut tank = pool(vec![disk("d0", 10), disk("d1", 10), disk("d2", 1200)]);
        (tank.allocated, tank.free) = (360, 40);
        (tank.disks[1].usage, tank.disks[2].slow) = (Some(Usage::Retired), true);
        let offered = |tank: &_| told(tank).iter().filter(|line| !line.ends_with(" --pool tank")).count();
        assert_eq!((told(&tank).len(), offered(&tank)), (3, 3), "{:?}", told(&tank));
        tank.frozen = Some(Frozen { reason: "why".into(), seconds: 12, missing: Vec::new() });
        assert_eq!((told(&tank).len(), offered(&tank)), (4, 0), "{:?}", told(&tank));
        (tank.frozen, tank.read_only) = (None, true);
        assert_eq!((told(&tank).len(), offered(&tank)), (4, 1), "its events are shown: {:?}", told(&tank));
    }
}
