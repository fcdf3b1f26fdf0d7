//! What moves slots while disks vanish: disks are retired and used again, and jobs begin.

use super::outage::{Kind, Outages};
use crate::rng::Rng;
use weft_engine::format::record::{JobKind, Usage};
use weft_engine::pool::DiskChange;
use weft_engine::units::{DiskNo, Nanos};
use weft_engine::world::World;

impl Outages {
    /// Slots move while the clients work: disks are retired and used again, jobs begin.
    pub(super) fn start_moves(&mut self) {
        let (pool, shared, world) = (self.rig.pool(), self.shared.clone(), self.rig.world.clone());
        let mut rng = Rng::new(self.rng.next_u64());
        let moving = async move {
            while !shared.is_over() {
                world.sleep(Nanos(rng.below(300_000_000))).await;
                let numbers: Vec<DiskNo> = pool.store().members.borrow().keys().copied().collect();
                let usage = *rng.pick(&[Usage::Retired, Usage::AutoSelect]);
                // Refused is as good as done: nothing depends on it.
                let _ = match rng.below(4) {
                    0 => pool.job_start(JobKind::Rebalance, 0).await.map(|_| ()),
                    1 => pool.job_start(JobKind::Repair, 0).await.map(|_| ()),
                    _ => {
                        let change = DiskChange { usage: Some(usage), ..DiskChange::default() };
                        pool.disk_set(*rng.pick(&numbers), change).await
                    }
                };
            }
        };
        self.rig.world.spawn("moves", Box::pin(moving));
    }

    /// Ends every retirement.
    pub(super) fn use_all_disks(&self) {
        if self.sky.kind != Kind::Blink {
            return;
        }
        let pool = self.rig.pool();
        let retired: Vec<DiskNo> = {
            let map = pool.store().map.borrow();
            map.disks.values().filter(|disk| disk.record.usage == Usage::Retired).map(|disk| disk.record.no).collect()
        };
        self.rig.run(async move {
            for no in retired {
                let change = DiskChange { usage: Some(Usage::AutoSelect), ..DiskChange::default() };
                // Where that fails, it is tried again a second later.
                let _ = pool.disk_set(no, change).await;
            }
        });
    }
}
