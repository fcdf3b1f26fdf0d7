//! The tree of metadata on the pool's disks: storms, crashes at every disk operation, and damage to its pages, each
//! beside a model of what the tree should hold.

pub mod crash;
pub mod damage;
pub mod storm;

use crate::disk::{DiskImage, SimDisk};
use crate::rig::Rig;
use crate::rng::Rng;
use crate::timing::{Latencies, Random};
use crate::world::{Scheduling, SimWorld};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use weft_engine::format::record::OWNER_METADATA;
use weft_engine::io::{Disk, DiskShape};
use weft_engine::pool::Pool;
use weft_engine::store::Store;
use weft_engine::store::meta::room::place_of;
use weft_engine::tree::{At, Key, KeyRange, Place};
use weft_engine::units::{BLOCK, ByteCount, DiskNo, DiskOffset, Nanos};

/// What a run found wrong, by its own judgement or by an assertion.
fn finding<T>(run: impl FnOnce() -> Result<T, String>) -> Option<String> {
    match catch_unwind(AssertUnwindSafe(run)) {
        Ok(judged) => judged.err(),
        Err(panic) => {
            let text = panic.downcast_ref::<String>().cloned();
            Some(text.or_else(|| panic.downcast_ref::<&str>().map(|text| String::from(*text))).unwrap_or_default())
        }
    }
}

/// What is found wrong by storms, for who plants a bug.
pub fn found_by_storms() -> Option<String> {
    (0..40).find_map(|seed| finding(|| storm::storm(seed)).map(|why| format!("tree storm {seed}: {why}")))
}

/// What is found wrong by readers that are slower than checkpoints.
pub fn found_by_slow_readers() -> Option<String> {
    (0..60).find_map(|seed| finding(|| storm::slow_readers(seed)).map(|why| format!("slow readers {seed}: {why}")))
}

/// What is found wrong by crashes.
pub fn found_by_crashes() -> Option<String> {
    finding(|| crash::everywhere(5))
}

/// What is found wrong by disks that blink.
pub fn found_by_blinks() -> Option<String> {
    finding(|| crash::blinks_everywhere(5))
}

/// What is found wrong by damage.
pub fn found_by_damage() -> Option<String> {
    finding(|| damage::all_but_one(1, 10))
}

/// Entries as they should be.
pub type Model = BTreeMap<Key, Vec<u8>>;

/// Disks of the pools here: each has a copy of all metadata.
pub const DISKS: usize = 3;
const CAPACITY: ByteCount = ByteCount::mib(16);
/// The kind of their entries.
const KIND: u16 = 77;

/// A change of the tree.
#[derive(Clone, Debug)]
enum Change {
    Put(Key, Vec<u8>),
    Delete(Key),
    Clear(KeyRange),
}

impl Change {
    fn draw(rng: &mut Rng) -> Change {
        let key = key(rng);
        match rng.below(50) {
            0 => Change::Clear(KeyRange::new(key, Key::new(key.kind, key.major, key.middle + rng.below(60), 0))),
            1..12 => Change::Delete(key),
            _ => Change::Put(key, (0..rng.below(400)).map(|_| rng.next_u64() as u8).collect()),
        }
    }

    fn apply(&self, model: &mut Model) {
        match self {
            Change::Put(key, value) => drop(model.insert(*key, value.clone())),
            Change::Delete(key) => drop(model.remove(key)),
            Change::Clear(range) => model.retain(|key, _| !range.contains(*key)),
        }
    }
}

fn key(rng: &mut Rng) -> Key {
    Key::new(KIND, rng.below(3), rng.below(150), 0)
}

/// What the tree should hold.
#[derive(Default)]
struct Expected {
    /// Now.
    head: Model,
    /// With the last checkpoint that came to its end.
    durable: Model,
    /// What changed since, in that order: a checkpoint that was cut short may have any first part of it.
    since: Vec<Change>,
}

impl Expected {
    /// Does a change to both.
    fn change(&mut self, store: &Store, change: Change) {
        let tree = store.tree();
        match &change {
            Change::Put(key, value) => tree.put(*key, value),
            Change::Delete(key) => tree.delete(*key),
            Change::Clear(range) => tree.clear(*range),
        }
        change.apply(&mut self.head);
        self.since.push(change);
    }

    /// Takes note that a checkpoint that was begun after `changes` changes came to its end.
    fn is_durable(&mut self, changes: usize) {
        for change in self.since.drain(..changes) {
            change.apply(&mut self.durable);
        }
    }

    /// Takes over what a pool that was opened again has, if it may.
    fn reopened(&mut self, found: &Model) -> Result<(), String> {
        let mut may = std::mem::take(&mut self.durable);
        let since = std::mem::take(&mut self.since);
        for change in [None].into_iter().chain(since.into_iter().map(Some)) {
            change.into_iter().for_each(|change| change.apply(&mut may));
            if may == *found {
                (self.head, self.durable) = (may.clone(), may);
                return Ok(());
            }
        }
        Err(format!("{} entries, which it never had since its last checkpoint", found.len()))
    }
}

/// All entries of the head but those of the pool.
async fn entries(pool: &Pool) -> Result<Model, String> {
    let mut found = Model::new();
    let mut rest = Some(KeyRange::ALL);
    while let Some(range) = rest {
        let scanned = pool.store().tree().scan(At::Head, range, 64).await.map_err(|error| format!("{error}"))?;
        found.extend(scanned.entries.into_iter().map(|(key, value)| (key, value.to_vec())));
        rest = scanned.next.map(|next| KeyRange::new(next, range.last));
    }
    found.retain(|key, _| key.kind == KIND);
    Ok(found)
}

/// Where the copies of each page of the root lie.
pub fn copies(pool: &Pool) -> Vec<(Place, Vec<(usize, DiskOffset)>)> {
    let store = pool.store();
    let map = store.map.borrow();
    let taken = store.tree_places();
    let mut pages = Vec::new();
    for segment in map.segments.values().filter(|found| found.record.owner == OWNER_METADATA) {
        for block in store.tree_blocks_in(segment.record.id) {
            let place = place_of(segment.record.id, block);
            if !taken.contains(&place) {
                continue;
            }
            let slabs = segment.record.slabs.iter().flatten();
            let at = |at| store.slab_offset(at, u64::from(block));
            pages.push((place, slabs.map(|slab| (slab.disk.0 as usize, at(*slab))).collect()));
        }
    }
    pages
}

/// Whether these disks have all pages of the tree as they should be.
fn copies_are_right(rig: &Rig, disks: std::ops::Range<usize>) -> Result<(), String> {
    let pool = rig.pool();
    let refs = rig.run(async move { pool.store().tree().reached().await }).map_err(|error| format!("{error}"))?;
    let copies: BTreeMap<Place, _> = copies(&rig.pool()).into_iter().collect();
    for (place, page) in refs {
        let copies = copies.get(&place).ok_or_else(|| format!("{place:?} is not taken"))?;
        for (disk, at) in copies.iter().filter(|(disk, _)| disks.contains(disk)) {
            let image = rig.disks[*disk].peek(*at, PAGE).map_err(|error| format!("{error}"))?;
            let proven = page.proves(&weft_engine::store::meta::shape(), &image);
            proven.map_err(|why| format!("{place:?} on disk {disk}: {why}"))?;
        }
        if copies.len() != DISKS {
            return Err(format!("{place:?} has {} copies", copies.len()));
        }
    }
    Ok(())
}

/// The finding of a pool that should be sound.
async fn judge(pool: &Pool) -> Result<(), String> {
    let report = pool.check(false).await.map_err(|error| format!("checking: {error}"))?;
    if report.problems.is_empty() { Ok(()) } else { Err(format!("it is not sound: {:?}", report.problems)) }
}

fn rig_of(images: &[DiskImage], seed: u64, scheduling: Scheduling) -> Rig {
    let latencies = match scheduling {
        Scheduling::Fifo => Latencies::constant(Nanos(100_000)),
        Scheduling::Random => Latencies::default(),
    };
    rig_with(images, seed, scheduling, &latencies)
}

fn rig_with(images: &[DiskImage], seed: u64, scheduling: Scheduling, latencies: &Latencies) -> Rig {
    let world = SimWorld::new(seed, scheduling);
    let disk = |(no, image): (usize, &DiskImage)| {
        let timing = Random::new(latencies.clone(), world.rng(&format!("timing {no}")));
        SimDisk::from_image(&world, image, Box::new(timing))
    };
    let disks = images.iter().enumerate().map(disk).collect();
    Rig::with_disks(world, disks)
}

/// A new pool.
fn new_rig(seed: u64, scheduling: Scheduling) -> Rig {
    let shape = DiskShape { capacity: CAPACITY, physical_sector: 512, rotational: false };
    let rig = rig_of(&vec![DiskImage::blank(shape); DISKS], seed, scheduling);
    rig.create(ByteCount::mib(1)).expect("a pool can be made");
    rig
}

/// Puts `no` back where it was taken from.
async fn attach(pool: &Rc<Pool>, no: usize, disk: &SimDisk) -> Result<(), String> {
    if pool.store().has_disk(DiskNo(no as u16)) {
        pool.store().disk_lost(DiskNo(no as u16), "it was gone for a moment");
    }
    let disk: Rc<dyn Disk> = Rc::new(disk.clone());
    pool.attach(disk).await.map(|_| ()).map_err(|error| format!("attaching disk {no}: {error}"))
}

/// Shared by what goes on beside each other.
type Shared = Rc<RefCell<Expected>>;

const PAGE: ByteCount = ByteCount(BLOCK);
