//! Outages in which disks come back as older copies of themselves first, any number at once, and later as they are.
//!
//! A pool takes copies only where it can do without the disks themselves, so that nothing is lost with them: but where
//! it has taken some, and other disks go. Nothing is ever wrong, and the pool does its work again once all its disks
//! are there. When a machine dies the copies go: `damage.rs` has openings with copies.

use super::clients::Strain;
use super::daemon::Daemon;
use super::outage::{Kind, Outages, Sky, span};
use crate::disk::{DiskImage, SimDisk};
use crate::rng::Rng;
use crate::world::SimWorld;
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use weft_engine::units::Nanos;
use weft_engine::world::World;

/// The most copies of one disk that are kept.
const COPIES: usize = 4;

/// The copies that were made of disks, and what those are like, and which file, that are away while a copy is in their
/// place.
#[derive(Default)]
pub(super) struct Copies {
    /// By disk, the oldest first.
    made: RefCell<BTreeMap<usize, Vec<DiskImage>>>,
    away: RefCell<BTreeMap<usize, (DiskImage, u64)>>,
    /// How many were put in place of a disk.
    put: Cell<u64>,
    /// One that the pool had taken, and not proven, went while disks were missing: what was written to all of them may
    /// be gone with more than the pool survives.
    pub(super) took_some: Cell<bool>,
}

impl Copies {
    /// Whether a copy is in the place of disk `at`.
    pub(super) fn is_copy(&self, at: usize) -> bool {
        self.away.borrow().contains_key(&at)
    }

    /// Keeps a copy of disk `at` as it is now.
    fn make(&self, at: usize, disk: &SimDisk) {
        let mut made = self.made.borrow_mut();
        let of_it = made.entry(at).or_default();
        if of_it.len() == COPIES {
            of_it.remove(COPIES / 2);
        }
        of_it.push(disk.image());
    }

    /// Puts a copy in the place of disk `at`, which has vanished. `false`: there is none.
    fn put(&self, at: usize, disk: &SimDisk, rng: &mut Rng) -> bool {
        let Some(copy) = self.made.borrow().get(&at).map(|of_it| rng.pick(of_it).clone()) else { return false };
        self.away.borrow_mut().insert(at, (disk.image(), disk.file()));
        disk.return_as(&copy);
        self.put.set(self.put.get() + 1);
        // A device that was rolled back is the same device.
        if rng.chance(0.5) {
            disk.set_file(self.put.get());
        }
        true
    }

    /// The copy in the place of disk `at` goes, and the disk itself, which is still away, comes next. One that was
    /// brought up to date, or had all that was durable when it was taken, is the disk from then on: the other one is
    /// older.
    fn end(&self, at: usize, disk: &SimDisk, daemon: &Daemon, strain: &Strain) {
        let is_the_disk = daemon.is_disk(at);
        if daemon.has_taken(at) && !is_the_disk && strain.is_now() {
            self.took_some.set(true);
        }
        disk.vanish();
        if let Some((image, file)) = self.away.borrow_mut().remove(&at).filter(|_| !is_the_disk) {
            disk.return_as(&image);
            disk.set_file(file);
            disk.vanish();
        }
    }

    /// All disks are themselves again, in a machine that dies.
    pub(super) fn end_all(&self, disks: &[SimDisk], daemon: &Daemon, strain: &Strain) {
        let copies: Vec<usize> = self.away.borrow().keys().copied().collect();
        for at in copies {
            self.end(at, &disks[at], daemon, strain);
        }
    }
}

impl Outages {
    /// Copies of all disks are made, now and while clients work.
    pub(super) fn start_copies(&mut self) {
        let (world, disks, sky) = (self.rig.world.clone(), self.rig.disks.clone(), self.sky.clone());
        let (pool, mut rng) = (self.rig.pool(), Rng::new(self.rng.next_u64()));
        let copying = async move {
            while !pool.store().stopping.get() {
                let at = rng.below(disks.len() as u64) as usize;
                if !disks[at].is_gone() && !sky.copies.is_copy(at) {
                    sky.copies.make(at, &disks[at]);
                }
                world.sleep(Nanos(rng.below(1_000_000_000))).await;
            }
        };
        self.rig.world.spawn("copies", Box::pin(copying));
    }
}

impl Sky {
    /// Copies come in the place of some of `hit`, which have vanished, and go again one by one, or together.
    pub(super) async fn come_as_copies(
        &self,
        (world, daemon): (&SimWorld, &Daemon),
        disks: &[SimDisk],
        hit: &[usize],
        (rng, strain): (&mut Rng, &Strain),
    ) {
        if self.kind != Kind::Copied {
            return;
        }
        world.sleep(span(rng)).await;
        let mut put = hit.to_vec();
        put.retain(|at| rng.chance(0.7) && self.copies.put(*at, &disks[*at], rng));
        if !put.is_empty() && strain.is_now() {
            // What the disks themselves had not made durable is gone with their power.
            self.lossy.set(true);
        }
        let together = rng.chance(0.5).then(|| span(rng));
        let came = world.now();
        for at in put {
            let stays = together.unwrap_or_else(|| span(rng));
            world.sleep((came + stays).since(world.now())).await;
            self.copies.end(at, &disks[at], daemon, strain);
        }
        world.sleep(span(rng)).await;
    }
}
