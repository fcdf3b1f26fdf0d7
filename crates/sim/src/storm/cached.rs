//! Write-back caches and read caches that come, grow, shrink, move to other disks and go while clients work. None of it
//! may cost a byte, nor any redundancy.

use super::clients::Shared;
use crate::rng::Rng;
use crate::world::SimWorld;
use std::rc::Rc;
use weft_engine::disk_set::DiskSet;
use weft_engine::error::ErrorKind;
use weft_engine::format::record::{CacheChoice, Media};
use weft_engine::pool::cache::CacheAsk;
use weft_engine::pool::read_cache::ReadCacheAsk;
use weft_engine::pool::{DiskChange, Pool};
use weft_engine::units::{ByteCount, Nanos};
use weft_engine::world::World;

/// Sets caches of virtual disk `name` at random until its clients are done. `risky`: some survive less than what lies
/// below them.
pub(super) fn start(
    world: &SimWorld,
    pool: &Rc<Pool>,
    shared: &Rc<Shared>,
    (name, risky): (&str, bool),
    rng: &mut Rng,
) {
    let (world, pool, shared, name) = (world.clone(), pool.clone(), shared.clone(), name.to_string());
    let Some(stripe) = pool.vdisk(&name).map(|vdisk| vdisk.stripe_len().max(ByteCount::kib(64))) else { return };
    // On two disks there is hardly any place for one.
    if pool.info().disks.len() > 2 {
        read_caches(&world, &pool, &shared, &name, rng.fork("read caches"));
    }
    let mut risk = rng.fork("risk");
    let mut rng = Rng::new(rng.next_u64());
    world.clone().spawn(
        "cache keeper",
        Box::pin(async move {
            while shared.clients_left.get() > 0 && shared.failure.borrow().is_none() {
                let may_lose = risky && risk.chance(0.5);
                let ask = rng.chance(0.75).then(|| CacheAsk { may_lose, ..any_cache(&pool, stripe, &mut rng) });
                match pool.vdisk_set_cache(&name, ask.as_ref(), CacheChoice::Typed).await {
                    Err(error) if error.kind == ErrorKind::Corrupt => {
                        shared.failure.borrow_mut().get_or_insert(format!("setting a cache: {error}"));
                    }
                    // Too large, or for too few disks; or the pool is frozen, or the virtual disk gone.
                    Ok(()) | Err(_) => {}
                }
                world.sleep(Nanos(rng.below(400_000_000))).await;
            }
        }),
    );
}

/// A few stripes, on any disks.
fn any_cache(pool: &Pool, stripe: ByteCount, rng: &mut Rng) -> CacheAsk {
    let named = pool.info().disks.into_iter().filter(|_| rng.chance(0.6)).map(|disk| disk.no).collect();
    let size = stripe * *rng.pick(&[2, 4, 16]);
    CacheAsk { size, disks: if rng.chance(0.3) { DiskSet::EMPTY } else { named }, may_lose: false }
}

/// Sets read caches of virtual disk `name` at random until its clients are done. Some disks count as hard disks, which
/// read caches are for.
fn read_caches(world: &SimWorld, pool: &Rc<Pool>, shared: &Rc<Shared>, name: &str, mut rng: Rng) {
    let (host, world) = (world, world.clone());
    let (pool, shared, name) = (pool.clone(), shared.clone(), name.to_string());
    let setting = async move {
        for disk in pool.info().disks {
            if rng.chance(0.6) {
                let hdd = DiskChange { media: Some(Media::Hdd), ..DiskChange::default() };
                let _ = pool.disk_set(disk.no, hdd).await;
            }
        }
        while shared.clients_left.get() > 0 && shared.failure.borrow().is_none() {
            let named = pool.info().disks.into_iter().filter(|_| rng.chance(0.4)).map(|disk| disk.no).collect();
            let size = ByteCount::mib(1 + rng.below(3));
            let ask = rng.chance(0.85).then_some(ReadCacheAsk { size, disks: named });
            match pool.vdisk_set_read_cache(&name, ask.as_ref()).await {
                Err(error) if error.kind == ErrorKind::Corrupt => {
                    shared.failure.borrow_mut().get_or_insert(format!("setting a read cache: {error}"));
                }
                // Its disks have no room, or there are none; or the pool is frozen, or the virtual disk gone.
                Ok(()) | Err(_) => {}
            }
            world.sleep(Nanos(rng.below(900_000_000))).await;
        }
    };
    host.spawn("read cache setter", Box::pin(setting));
}
