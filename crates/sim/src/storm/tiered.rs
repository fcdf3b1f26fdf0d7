//! Fast tiers that come, grow, shrink, move to other disks and go while clients work, with pieces pinned to them. None
//! of it may cost a byte, nor any redundancy.

use super::clients::Shared;
use crate::rng::Rng;
use crate::world::SimWorld;
use std::rc::Rc;
use weft_engine::disk_set::DiskSet;
use weft_engine::error::{ErrorKind, Result};
use weft_engine::pool::Pool;
use weft_engine::pool::job::JobKind;
use weft_engine::pool::tier::TierAsk;
use weft_engine::units::{ByteCount, Nanos};
use weft_engine::world::World;

/// Sets tiers of virtual disk `name` at random until its clients are done.
pub(super) fn start(world: &SimWorld, pool: &Rc<Pool>, shared: &Rc<Shared>, name: &str, rng: &mut Rng) {
    let (world, pool, shared, name) = (world.clone(), pool.clone(), shared.clone(), name.to_string());
    let mut rng = Rng::new(rng.next_u64());
    world.clone().spawn(
        "tier keeper",
        Box::pin(async move {
            while shared.clients_left.get() > 0 && shared.failure.borrow().is_none() {
                match meddle(&pool, &name, &mut rng).await {
                    Err(error) if error.kind == ErrorKind::Corrupt => {
                        shared.failure.borrow_mut().get_or_insert(format!("setting a tier: {error}"));
                    }
                    // Too large, or for too few disks; or the pool is frozen, or the virtual disk gone.
                    Ok(()) | Err(_) => {}
                }
                world.sleep(Nanos(rng.below(400_000_000))).await;
            }
        }),
    );
}

async fn meddle(pool: &Rc<Pool>, name: &str, rng: &mut Rng) -> Result<()> {
    let Some(vdisk) = pool.vdisk(name) else { return Ok(()) };
    let (stripe, size) = (vdisk.stripe_len(), vdisk.size().0);
    match rng.below(10) {
        0..=4 => pool.vdisk_set_tier(name, Some(&any_tier(pool, stripe, rng))).await,
        5 => pool.vdisk_set_tier(name, None).await,
        6 => pool.job_start(JobKind::Optimize(vdisk.id()), 0).await.map(drop),
        nth => {
            let offset = rng.below(size);
            let len = (1 + rng.below(size / 4)).min(size - offset);
            let piece = offset..offset + len;
            pool.vdisk_pin(name, core::slice::from_ref(&piece), nth < 9).await
        }
    }
}

/// A few stripes, on any disks.
fn any_tier(pool: &Pool, stripe: ByteCount, rng: &mut Rng) -> TierAsk {
    let named = pool.info().disks.into_iter().filter(|_| rng.chance(0.6)).map(|disk| disk.no).collect();
    let size = stripe * *rng.pick(&[8, 16, 64]);
    TierAsk { size, disks: if rng.chance(0.3) { DiskSet::EMPTY } else { named }, resiliency: None, columns: None }
}
