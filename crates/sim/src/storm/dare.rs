//! Dares: harm beyond what the pool survives, done to copies of its disks. The pool may refuse to open, or to read;
//! what it does read is right.
//!
//! 1. *A hole in the log*: one batch is damaged on every disk that has it, while later ones are not. The log must not
//!    seem to end there.
//! 2. *A page out of date*: the newest image of a page is damaged wherever it lies. The one before must not pass for
//!    it. If the page holds checksums, blocks whose last write was lost are made unreadable, too, and disks that are
//!    behind are away: an old block and its old checksum agree, and nothing above them says that there were newer ones.
//!
//! Besides, a pool that says that it is whole is taken at its word: [`Storm::lose_others`].

use super::classic::Storm;
use super::clients::read_all;
use super::damage::newest_label;
use crate::disk::{DiskImage, Harm, SimDisk};
use crate::rig::TIMEOUT;
use std::collections::BTreeMap;
use weft_engine::format::batch::BATCH_MAGIC;
use weft_engine::format::label::{DiskPlan, Label};
use weft_engine::format::page::{PAGE_MAGIC, PageKind};
use weft_engine::units::{BLOCK, ByteCount, DiskOffset};

/// How many of the newest batches may be the damaged one: most of the older ones are not read any more.
const NEWEST: usize = 6;

/// Where something lies: (disk, place).
type Places = Vec<(usize, DiskOffset)>;

impl Storm {
    /// Does one of them, and puts the disks back as they were. To be called after a power cut, while the pool is not
    /// open; it knew that the disks `behind` lack what was written last.
    pub(super) fn dare(&mut self, behind: &[usize]) -> Result<(), String> {
        let there: Vec<usize> = (0..self.rig.disks.len()).filter(|at| !self.rig.disks[*at].is_gone()).collect();
        let images: Vec<(usize, DiskImage)> = there.iter().map(|at| (*at, self.rig.disks[*at].image())).collect();
        let (what, places) = match self.rng.chance(0.5) {
            true => ("a hole in the log", self.hole(&images)),
            false => ("a page out of date", self.newest_of_a_page(&images)),
        };
        self.end_lies(&images, &places, behind);
        places.iter().for_each(|(at, place)| self.rig.disks[*at].rot(*place));
        let judged = self.open_dared();
        self.rig.halt();
        for (at, image) in images {
            self.rig.disks[at].return_as(&image);
        }
        judged.map_err(|why| format!("with {what}: {why}"))
    }

    /// A pool that is whole survives the loss of any disks that the layout can do without: it opens, and reads all.
    /// Puts the disks back as they were. To be called after a clean stop.
    pub(super) fn lose_others(&mut self) -> Result<(), String> {
        let images: Vec<DiskImage> = self.rig.disks.iter().map(|disk| disk.image()).collect();
        for _ in 0..self.scene.layout.failures() {
            let at = self.rng.below(images.len() as u64) as usize;
            if !self.rig.disks[at].is_gone() {
                self.rig.disks[at].vanish();
            }
        }
        let gone: Vec<usize> = (0..images.len()).filter(|at| self.rig.disks[*at].is_gone()).collect();
        let judged = self.rig.open(&mut self.rng).map_err(|error| format!("opening: {error}")).and_then(|_| {
            let seen = read_all(&self.rig, "vdisk", self.scene.size.0, self.scene.sector as u64)?;
            seen.judge_lost(self.scene.sector as u64, |_| false)?;
            seen.judge(&mut self.shared.oracle.borrow().clone(), false)
        });
        self.rig.halt();
        for (disk, image) in self.rig.disks.iter().zip(&images) {
            disk.return_as(image);
        }
        judged.map_err(|why| format!("it was whole; without disks {gone:?}: {why}"))
    }

    /// Makes blocks of data unreadable whose last write was lost, if what is to be damaged is a page of checksums; and
    /// takes away disks that are behind.
    fn end_lies(&self, images: &[(usize, DiskImage)], places: &Places, behind: &[usize]) {
        let holds_sums = |(at, place): &(usize, DiskOffset)| {
            let block = self.rig.disks[*at].peek(*place, ByteCount(BLOCK)).ok();
            block.is_some_and(|block| {
                block.starts_with(&PAGE_MAGIC) && block[24..26] == (PageKind::Sheet as u16).to_le_bytes()
            })
        };
        if !places.iter().any(holds_sums) {
            return;
        }
        for (at, image) in images {
            let disk = &self.rig.disks[*at];
            let Some(plan) = plan_of(disk, image) else { continue };
            let lost =
                disk.harmed().into_iter().filter(|(place, harm)| *harm == Harm::Missed && *place >= plan.data_at);
            lost.for_each(|(place, _)| disk.spoil(place));
        }
        let label = |image: &DiskImage| newest_label(image, |at| image.read(at, ByteCount(BLOCK)).ok());
        let epochs: Vec<u64> = images.iter().map(|(_, image)| label(image).map_or(0, |label| label.epoch)).collect();
        let newest = epochs.iter().copied().max().unwrap_or(0);
        let older = images.iter().zip(&epochs).filter(|(_, epoch)| **epoch < newest).map(|((at, _), _)| at);
        older.chain(behind).for_each(|at| self.rig.disks[*at].vanish());
    }

    fn open_dared(&mut self) -> Result<(), String> {
        let opening = self.rig.opening(&mut self.rng);
        match self.rig.world.block_on_within(TIMEOUT, opening) {
            Ok(Ok(pool)) => self.rig.pool = Some(pool),
            Ok(Err(_)) => return Ok(()),
            Err(stop) => return Err(format!("opening hangs ({stop:?})")),
        }
        // Without its virtual disk it is not to be had, which is no wrong data.
        if self.rig.pool().vdisk("vdisk").is_none() {
            return Err("the virtual disk is gone".into());
        }
        let seen = read_all(&self.rig, "vdisk", self.scene.size.0, self.scene.sector as u64)?;
        let mut oracle = self.shared.oracle.borrow().clone();
        seen.judge(&mut oracle, true)
    }

    /// Every copy of one batch that has two successors.
    fn hole(&mut self, images: &[(usize, DiskImage)]) -> Places {
        // By (number, CRC): the chain to the one before, and where it lies.
        let mut batches: BTreeMap<(u64, u32), (u32, Places)> = BTreeMap::new();
        for (disk, image) in images {
            let Some(plan) = plan_of(&self.rig.disks[*disk], image) else { continue };
            for (at, block) in blocks(image, plan.log_at, plan.log_len) {
                if block.starts_with(&BATCH_MAGIC) {
                    let key = (u64_at(&block, 32), u32_at(&block, 68));
                    let found = batches.entry(key).or_insert((u32_at(&block, 64), Vec::new()));
                    found.1.push((*disk, at));
                }
            }
        }
        let next = |(number, crc): (u64, u32)| {
            let after = batches.range((number + 1, 0)..=(number + 1, u32::MAX));
            after.filter(|(_, (chain, _))| *chain == crc).map(|(key, _)| *key).next()
        };
        let inner: Vec<&Places> = batches
            .iter()
            .rev()
            .filter(|(key, _)| next(**key).and_then(next).is_some())
            .map(|(_, (_, at))| at)
            .collect();
        match inner.len().min(NEWEST) {
            0 => Vec::new(),
            some => inner[self.rng.below(some as u64) as usize].clone(),
        }
    }

    /// Every copy of the newest image of one page that was written twice.
    fn newest_of_a_page(&mut self, images: &[(usize, DiskImage)]) -> Places {
        // By kind, owner and number: images by version.
        let mut pages: BTreeMap<[u8; 12], BTreeMap<u64, Places>> = BTreeMap::new();
        for (disk, image) in images {
            let Some(plan) = plan_of(&self.rig.disks[*disk], image) else { continue };
            for (at, block) in blocks(image, plan.data_at, ByteCount(plan.disk_len.0 - plan.data_at.0)) {
                if block.starts_with(&PAGE_MAGIC) {
                    let id = block[24..36].try_into().expect("twelve bytes");
                    let versions = pages.entry(id).or_default();
                    versions.entry(u64_at(&block, 40)).or_default().push((*disk, at));
                }
            }
        }
        let twice: Vec<&BTreeMap<u64, Places>> = pages.values().filter(|versions| versions.len() > 1).collect();
        if twice.is_empty() {
            return Vec::new();
        }
        let versions = self.rng.pick(&twice);
        versions.values().next_back().cloned().unwrap_or_default()
    }
}

fn plan_of(disk: &SimDisk, image: &DiskImage) -> Option<DiskPlan> {
    let slots = DiskPlan::label_slots(image.shape().capacity);
    let read = |at: &DiskOffset| disk.peek(*at, ByteCount(BLOCK)).ok();
    slots.iter().filter_map(read).find_map(|block| Label::decode(&block).ok().flatten()).map(|label| label.plan)
}

fn blocks(image: &DiskImage, from: DiskOffset, len: ByteCount) -> impl Iterator<Item = (DiskOffset, Vec<u8>)> {
    let end = (from.0 + len.0).min(image.shape().capacity.0) / BLOCK * BLOCK;
    let places = (from.0..end).step_by(BLOCK as usize).map(DiskOffset);
    places.filter_map(|at| Some((at, image.read(at, ByteCount(BLOCK)).ok()?)))
}

fn u64_at(block: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(block[at..at + 8].try_into().expect("eight bytes"))
}

fn u32_at(block: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(block[at..at + 4].try_into().expect("four bytes"))
}
