//! Virtual disks of which some data cannot be read, or may not be readable.

use super::concern;
use crate::api::pool::{DiskState, Health, PoolInfo};
use crate::api::vdisk::VdiskInfo;
use crate::api::watch::Attention;
use crate::ops::disk::DiskList;
use crate::ops::line::ToLine;
use crate::ops::pool::PoolCheck;
use crate::ops::vdisk::VdiskClear;

/// What is said of them.
pub(super) fn of_pool(pool: &PoolInfo) -> impl Iterator<Item = Attention> + '_ {
    pool.vdisks.iter().filter(|vdisk| vdisk.health == Health::Failed).map(|vdisk| of_vdisk(pool, vdisk))
}

fn of_vdisk(pool: &PoolInfo, vdisk: &VdiskInfo) -> Attention {
    let list = || DiskList::of(&pool.name).line();
    let away = names(pool, |state| matches!(state, DiskState::Missing | DiskState::Failed));
    let returning = names(pool, |state| state == DiskState::Returning);
    let (message, hint) = match (&vdisk.failure, away.as_str(), returning.as_str()) {
        (Some(failure), ..) => {
            let message = format!("{failure}; it takes no writes until it is cleared");
            (message, VdiskClear::of(&vdisk.name).line())
        }
        // More went at once than the layout survives: nobody knows yet what each of them has, mostly all.
        (None, "", returning) if !returning.is_empty() => {
            let message = format!("whether all of its data can be read is known when {returning} are up to date again");
            (message, list())
        }
        (None, "", _) => ("some of its data cannot be read".to_string(), PoolCheck::of(&pool.name).line()),
        // What their return brings back needs no check, and a check would only find it missing.
        (None, away, _) => (format!("some of its data cannot be read without {away}"), list()),
    };
    concern(format!("vdisk {}", vdisk.name), message, hint)
}

fn names(pool: &PoolInfo, of: impl Fn(DiskState) -> bool) -> String {
    let names = pool.disks.iter().filter(|disk| of(disk.state)).map(|disk| disk.name.as_str());
    names.collect::<Vec<&str>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::super::tests::{disk, pool, told};
    use super::*;

    #[test]
    fn disks_that_are_back_and_not_proven_yet_are_no_loss() {
        let mut tank = pool(vec![disk("d0", 1), disk("d1", 1)]);
        tank.vdisks[0].health = Health::Failed;
        assert_eq!(told(&tank)[0], "vdisk tank/media: some of its data cannot be read | weft pool check tank");
        tank.disks.iter_mut().for_each(|disk| disk.state = DiskState::Returning);
        let known = "whether all of its data can be read is known when d0, d1 are up to date again";
        assert_eq!(told(&tank)[0], format!("vdisk tank/media: {known} | weft disk list --pool tank"));
        tank.disks[1].state = DiskState::Missing;
        assert!(told(&tank)[0].starts_with("vdisk tank/media: some of its data cannot be read without d1"));
    }
}
