//! Damage: the classic storm, in which victims are also put back from older copies, from a history that another machine
//! made of them, or blank; reads fail once in a while; and a power cut leaves junk, and blocks that cannot be read,
//! where something was being written.
//!
//! A disk that was put back is noticed, and brought what it lacks, if two labels or more were written to it since the
//! copy was made, and a disk knows of two that is never put back itself. A copy that is younger
//! cannot be told from the disk itself by anything that is on either: such a disk may lack what it likes until the next
//! proof of all strips (it counts as a *liar*), but everything can still be read.

use super::classic::Storm;
use super::upkeep::Care;
use crate::disk::{DiskImage, SimDisk};
use crate::rig::TIMEOUT;
use crate::rng::Rng;
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use weft_engine::error::{Error, ErrorKind};
use weft_engine::format::Id;
use weft_engine::format::label::{DiskPlan, Label};
use weft_engine::pool::Pool;
use weft_engine::units::{BLOCK, ByteCount, DiskNo, DiskOffset, Nanos, VirtualOffset};
use weft_engine::world::World;

/// The most copies of one disk that are kept.
const COPIES: usize = 6;

/// What was done to the disks, and what they were like before.
#[derive(Default)]
pub(super) struct Past {
    /// The disks that may be put back; what only they were told, nobody may know of afterwards.
    victims: RefCell<Vec<usize>>,
    /// Copies of each disk, oldest first.
    copies: RefCell<Vec<Vec<DiskImage>>>,
    /// Disks that are blank: the pool will never see them again as what they were.
    strange: RefCell<BTreeSet<usize>>,
    /// Disks that another machine used, as they were then. They are away until they come back as that.
    elsewhere: RefCell<BTreeMap<usize, DiskImage>>,
    /// The labels that were written to each disk, by its place and identity.
    told: RefCell<BTreeMap<(usize, Id), Told>>,
    /// Disks that came back as that while the pool was not open.
    diverged: RefCell<BTreeSet<usize>>,
}

/// The labels that were written to a disk.
#[derive(Clone, Copy, Default)]
struct Told {
    /// The newest epoch that another disk knew of, too.
    epoch: u64,
    /// The newest serial.
    serial: u64,
}

impl Past {
    /// Keeps a copy of disk `at` as it is now.
    fn keep(&self, at: usize, disk: &SimDisk) {
        let mut copies = self.copies.borrow_mut();
        if copies.len() <= at {
            copies.resize_with(at + 1, Vec::new);
        }
        if copies[at].len() == COPIES {
            copies[at].remove(COPIES / 2);
        }
        copies[at].push(disk.image());
    }

    /// Whether fewer than two labels were written to disk `at`, or fewer than two to it and to another one that
    /// is no victim, since this copy of it was made.
    fn is_young(&self, at: usize, copy: &DiskImage, disks: &[SimDisk]) -> bool {
        let Some(label) = newest_label(copy, |place| copy.read(place, ByteCount(BLOCK)).ok()) else { return false };
        let told = self.told_now(at, label.disk_id, disks);
        label.epoch + 2 > told.epoch || label.serial + 2 > told.serial
    }

    /// Notes the labels that disk `at` has. Nothing may be in its cache only.
    fn note(&self, at: usize, disks: &[SimDisk]) {
        if let Some(own) = label_of(&disks[at]) {
            let told = self.told_now(at, own.disk_id, disks);
            self.told.borrow_mut().insert((at, own.disk_id), told);
        }
    }

    /// The labels that were written to disk `at` as far as is noted, and by what it has now.
    fn told_now(&self, at: usize, id: Id, disks: &[SimDisk]) -> Told {
        let told = self.told.borrow().get(&(at, id)).copied().unwrap_or_default();
        let Some(own) = label_of(&disks[at]).filter(|own| own.disk_id == id) else { return told };
        let victims = self.victims.borrow();
        let others = disks.iter().enumerate().filter(|(other, disk)| !victims.contains(other) && !disk.is_gone());
        // A label that only this disk had when the power went is none that others know, whatever they were told since.
        let others = others.filter_map(|(_, disk)| label_of(disk)).filter(|label| label.lineage == own.lineage);
        let known = others.map(|label| label.epoch).max().unwrap_or(0).min(own.epoch);
        // Nor is it one that the disk failed to answer for: that it has the one before it is all that others know.
        let before = labels_of(&disks[at]).into_iter().filter(|label| label.serial < own.serial);
        let before = before.max_by_key(|label| label.serial).map_or(own.epoch, |label| label.epoch + 1);
        let known = known.min(before);
        Told { epoch: told.epoch.max(known), serial: told.serial.max(own.serial) }
    }

    /// Whether some other disk has a history that this copy of disk `at` is no part of.
    fn has_diverged(&self, at: usize, copy: &DiskImage, disks: &[SimDisk]) -> bool {
        let label = newest_label(copy, |place| copy.read(place, ByteCount(BLOCK)).ok());
        let others = disks.iter().enumerate().filter(|(other, _)| *other != at);
        let mut others = others.filter_map(|(_, disk)| label_of(disk));
        label.is_some_and(|label| {
            others.any(|other| !other.lineage.follows(&label.lineage) && !label.lineage.follows(&other.lineage))
        })
    }

    /// Disk `at` is as this image from now on.
    fn replace(&self, at: usize, disk: &SimDisk, image: &DiskImage) {
        disk.return_as(image);
        if let Some(label) = newest_label(image, |place| image.read(place, ByteCount(BLOCK)).ok()) {
            self.told.borrow_mut().entry((at, label.disk_id)).or_default().serial = label.serial;
        }
    }

    fn pick(&self, at: usize, rng: &mut Rng) -> Option<DiskImage> {
        let copies = self.copies.borrow();
        let copies = copies.get(at).filter(|copies| !copies.is_empty())?;
        Some(rng.pick(copies).clone())
    }

    /// What disk `at` comes back as: what another machine made of it, or an older copy.
    fn pick_return(&self, at: usize, rng: &mut Rng) -> Option<DiskImage> {
        let elsewhere = self.elsewhere.borrow_mut().remove(&at);
        elsewhere.or_else(|| self.pick(at, rng))
    }
}

impl Storm {
    /// More can go wrong than in the classic storm.
    pub(super) fn worsen(&mut self) {
        let often = |rng: &mut Rng, most: f64| if rng.chance(0.5) { most * rng.below(100) as f64 / 100.0 } else { 0.0 };
        let mut rng = self.rng.fork("damage");
        self.scene.faults.transient = often(&mut rng, 0.01);
        self.scene.faults.ruin = often(&mut rng, 1.0);
        self.past = Some(Rc::default());
    }

    /// Copies of the victims are made, now and while clients work; and one that is away may come back as an older one.
    pub(super) fn start_copies(&mut self) {
        let Some(past) = self.past.clone() else { return };
        past.victims.replace(self.scene.victims.clone());
        self.shared.may_freeze.set(self.scene.victims.len() > 1);
        for at in self.scene.victims.clone() {
            past.keep(at, &self.rig.disks[at]);
            let (world, disks, pool) = (self.rig.world.clone(), self.rig.disks.clone(), self.rig.pool());
            let disk = disks[at].clone();
            let (past, ids, liars) = (past.clone(), self.ids.clone(), self.liars.clone());
            let mut rng = Rng::new(self.rng.next_u64());
            let job = async move {
                loop {
                    world.sleep(Nanos(rng.below(400_000_000))).await;
                    let Some(no) = ids.member(&pool, at) else { return };
                    if !disk.is_gone() {
                        past.keep(at, &disk);
                    } else if !pool.store().has_disk(no)
                        && let Some(copy) = past.pick_return(at, &mut rng).filter(|copy| ids.is_its_own(at, copy))
                    {
                        if past.is_young(at, &copy, &disks) {
                            liars.borrow_mut().insert(at);
                        }
                        past.replace(at, &disk, &copy);
                        // Until its label is written anew, an opening finds two histories.
                        past.diverged.borrow_mut().insert(at);
                        ids.is_copy(at);
                        // Refused is as good: it comes back when the pool is opened.
                        let _ = pool.attach_copy(Rc::new(disk.clone())).await;
                        return;
                    }
                    if pool.store().stopping.get() {
                        return;
                    }
                }
            };
            self.rig.world.spawn("copies", Box::pin(job));
        }
    }

    /// While the pool is not open, victims are replaced by what they were, by what another machine made of them, or by
    /// nothing.
    pub(super) fn put_back(&mut self) {
        let Some(past) = self.past.clone() else { return };
        past.victims.replace(self.scene.victims.clone());
        // With two disks that cannot be believed beside it, one that can be is no majority: then only the owner could
        // say which of them to go on from.
        let alone = self.scene.victims.len() == 1 && self.scene.disks > 2;
        for at in self.scene.victims.clone() {
            past.note(at, &self.rig.disks);
            if !self.rng.chance(0.35) {
                continue;
            }
            if past.elsewhere.borrow().contains_key(&at) {
                if alone && let Some(image) = past.pick_return(at, &mut self.rng) {
                    past.replace(at, &self.rig.disks[at], &image);
                    past.diverged.borrow_mut().insert(at);
                }
                continue;
            }
            let disk = self.rig.disks[at].clone();
            match self.rng.below(10) {
                0 => {
                    let blank = DiskImage::blank(disk.image().shape());
                    past.replace(at, &disk, &blank);
                    past.strange.borrow_mut().insert(at);
                    past.diverged.borrow_mut().remove(&at);
                }
                1 => self.diverge(at, &past),
                _ => {
                    // One with an identity that the disk no longer has may be a member that is missing: then one disk
                    // would be two.
                    let copy = past.pick(at, &mut self.rng).filter(|copy| self.ids.is_its_own(at, copy));
                    let Some(copy) = copy else { continue };
                    if past.is_young(at, &copy, &self.rig.disks) {
                        self.liars.borrow_mut().insert(at);
                    }
                    // It may have been made of what another machine had made of the disk.
                    if past.has_diverged(at, &copy, &self.rig.disks) {
                        past.diverged.borrow_mut().insert(at);
                    } else {
                        past.diverged.borrow_mut().remove(&at);
                    }
                    past.replace(at, &disk, &copy);
                    past.strange.borrow_mut().remove(&at);
                }
            }
        }
    }

    /// Another machine opens the pool with this disk alone, and writes. It stays away for now.
    fn diverge(&mut self, at: usize, past: &Past) {
        if past.strange.borrow().contains(&at) {
            return;
        }
        let before: Vec<(bool, DiskImage)> = self.rig.disks.iter().map(|disk| (disk.is_gone(), disk.image())).collect();
        let shape = self.rig.disks[at].image();
        self.rig.disks[at].return_as(&shape);
        self.rig.disks.iter().enumerate().filter(|(other, _)| *other != at).for_each(|(_, disk)| disk.vanish());
        let opening = self.rig.opening(&mut self.rng);
        let size = self.scene.size.0;
        let used = self.rig.world.block_on_within(TIMEOUT, async move {
            let pool = opening.await?;
            if let Some(vdisk) = pool.vdisk("vdisk") {
                let len = vdisk.stripe_len().0.min(size).next_multiple_of(4096).min(size);
                // Whatever comes of it.
                let _ = vdisk.write(VirtualOffset(0), &vec![0x66; len as usize], true).await;
            }
            let _ = pool.close().await;
            Ok::<(), Error>(())
        });
        self.rig.halt();
        let image = self.rig.disks[at].image();
        for (disk, (gone, image)) in self.rig.disks.iter().zip(&before) {
            disk.return_as(image);
            if *gone {
                disk.vanish();
            }
        }
        if matches!(used, Ok(Ok(()))) {
            self.rig.disks[at].vanish();
            past.elsewhere.borrow_mut().insert(at, image);
        }
    }

    /// Whether `error` is the demand to take away disks that another machine used; they are taken away, then.
    pub(super) fn take_away_diverged(&mut self, error: &Error) -> bool {
        let Some(past) = self.past.clone().filter(|_| error.kind == ErrorKind::NotPossible) else { return false };
        let diverged = past.diverged.borrow();
        let there: Vec<&SimDisk> =
            diverged.iter().map(|at| &self.rig.disks[*at]).filter(|disk| !disk.is_gone()).collect();
        there.iter().for_each(|disk| disk.vanish());
        let some = !there.is_empty();
        drop(there);
        if some {
            self.rig.halt();
            let mut rng = self.rng.fork("taken away");
            self.rig.disks.iter().filter(|disk| !disk.is_gone()).for_each(|disk| disk.survive_kill(&mut rng));
        }
        some
    }

    /// In the calm, all that is not attached is; and what the pool will never see again is replaced. `false`: there is
    /// no room for that.
    pub(super) fn replace_strange(&mut self) -> Result<bool, String> {
        let Some(past) = self.past.clone() else { return Ok(true) };
        let pool = self.rig.pool();
        let mut rng = self.rng.fork("attached");
        let elsewhere = past.elsewhere.take();
        for at in past.diverged.take().into_iter().chain(elsewhere.keys().copied()) {
            let (disk, pool) = (self.rig.disks[at].clone(), pool.clone());
            let Some(no) = self.ids.member(&pool, at).filter(|_| !past.strange.borrow().contains(&at)) else {
                continue;
            };
            if let Some(image) = elsewhere.get(&at).filter(|image| self.ids.is_its_own(at, image)) {
                disk.vanish();
                pool.store().disk_lost(no, "its device is gone");
                disk.return_as(image);
            }
            if disk.is_gone() {
                disk.come_back(&mut rng);
            }
            if !pool.store().has_disk(no) {
                self.rig
                    .run(async move { pool.attach(Rc::new(disk)).await })
                    .map_err(|error| format!("attaching disk {at}, which another machine used: {error}"))?;
            }
        }
        for at in past.strange.take() {
            let Some(no) = self.ids.member(&pool, at).filter(|no| !pool.store().has_disk(*no)) else { continue };
            let mut care = self.caretaker();
            let pool = pool.clone();
            let replaced = self.rig.run(async move { replace(&mut care, &pool, at, no).await });
            match replaced {
                Ok(()) => {}
                Err(error) if error.kind == ErrorKind::NoSpace => return Ok(false),
                Err(error) => return Err(format!("replacing disk {at}: {error}")),
            }
        }
        Ok(true)
    }
}

async fn replace(care: &mut Care, pool: &Rc<Pool>, at: usize, no: DiskNo) -> weft_engine::error::Result<()> {
    let to = care.add(at).await?;
    pool.disk_remove(no, Some(to), 0).await.map(drop)
}

fn label_of(disk: &SimDisk) -> Option<Label> {
    newest_label(&disk.image(), |at| disk.peek(at, ByteCount(BLOCK)).ok())
}

/// The labels in all slots of a disk.
fn labels_of(disk: &SimDisk) -> Vec<Label> {
    let slots = DiskPlan::label_slots(disk.image().shape().capacity).into_iter();
    let blocks = slots.filter_map(|at| disk.peek(at, ByteCount(BLOCK)).ok());
    blocks.filter_map(|block| Label::decode(&block).ok().flatten()).collect()
}

/// The newest label among the blocks that `read` gives of a disk like this one.
pub(super) fn newest_label(like: &DiskImage, read: impl Fn(DiskOffset) -> Option<Vec<u8>>) -> Option<Label> {
    let slots = DiskPlan::label_slots(like.shape().capacity).into_iter();
    let labels = slots.filter_map(|at| Label::decode(&read(at)?).ok().flatten());
    labels.max_by_key(|label| (label.epoch, label.serial))
}
