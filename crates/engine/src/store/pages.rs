//! Metadata pages on the disks, and the checksum pages ("sheets") kept in memory.
//!
//! Invariants
//! 1. A dirty sheet page stays in memory until a checkpoint has written it (not: has begun to); a clean one that nobody
//!    holds may be dropped at any time.
//! 2. Images are read only from current disks: a copy on a disk that missed updates is never believed.
//! 3. Version `v` of a page is written to slot `v % 2` of every copy; the largest version that verifies is the page.
//! 4. A page that cannot be read is an error, and never taken for one that was never written.
//! 5. An image that reached no current disk was not written: its page stays dirty.
//! 6. An image is the page only if it is no older than the tree says (`meta/sheets.rs`): an older one is what a write
//!    left that all disks lost. What it held is lost, then, and no older checksum verifies anything.
//! 7. While an image is not known to be durable, the next one of its page goes to the same slot: the other slot has the
//!    last that is.

use super::page_copies::Copied;
use super::page_place::{first_block, parts, same_slot, slot_of, table_page};
use super::{Store, join};
use crate::error::Result;
use crate::exec::LocalBoxFuture;
use crate::fail;
use crate::format::page::CHUNK_PAGES;
use crate::format::page::{self, PAGE_SUMS, PageId, PageKind};
use crate::format::record::PageRun;
use crate::io::Buf;
use crate::mutant::{self, Mutant};
use crate::units::{BLOCK, SegmentNo, TableNo};
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::vec;
use alloc::vec::Vec;
use core::cell::{Cell, RefCell};
use core::ops::Range;

/// Bytes of dirty checksum pages for which no checkpoint is taken, however little memory they have.
const DIRTY_MIN: u64 = 64 << 10;

/// The checksum pages in memory, by (segment, page).
#[derive(Default)]
pub struct Pages {
    sheets: RefCell<BTreeMap<(SegmentNo, u32), Sheet>>,
    /// Pages that somebody is about to use, and by how many.
    held: RefCell<BTreeMap<(SegmentNo, u32), u32>>,
    /// Segments and tables whose pages are being read from the disks, or written there, and by how many.
    used: RefCell<BTreeMap<(PageKind, u32), u32>>,
    uses: Cell<u64>,
    /// Those, and pages of stripe tables, that were found behind on some disk while the pool was being opened.
    pub suspects: RefCell<Vec<(PageId, (PageRun, u32))>>,
    /// A page of a stripe table lies in an image that no checkpoint names: the opening is to end with one.
    pub outrun: Cell<bool>,
    /// How many of them are dirty, and the most that were in memory.
    dirty: Cell<usize>,
    peak: Cell<usize>,
}

struct Sheet {
    sums: Box<[u32]>,
    version: u64,
    dirty: bool,
    /// Its image is on its way to the disks.
    leaving: bool,
    used: u64,
}

/// Checksum pages that stay in memory while this lives.
pub struct Held<'a> {
    pages: &'a Pages,
    segment: SegmentNo,
    range: Range<u64>,
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        let mut held = self.pages.held.borrow_mut();
        for (number, _) in parts(self.range.clone()) {
            if let Some(count) = held.get_mut(&(self.segment, number)) {
                *count -= 1;
                if *count == 0 {
                    held.remove(&(self.segment, number));
                }
            }
        }
    }
}

/// Lives as long as a page is being read from the disks, or written there: its place is nobody else's before.
pub(super) struct Using<'a> {
    pages: &'a Pages,
    owner: (PageKind, u32),
}

impl Drop for Using<'_> {
    fn drop(&mut self) {
        let mut used = self.pages.used.borrow_mut();
        if let Some(count) = used.get_mut(&self.owner) {
            *count -= 1;
            if *count == 0 {
                used.remove(&self.owner);
            }
        }
    }
}

/// The image of a page that is to be written.
pub struct Image {
    /// Which page.
    pub id: PageId,
    /// Where its run is, and which page of it.
    pub home: (PageRun, u32),
    /// Its version.
    pub version: u64,
    /// Its block.
    pub block: Buf,
}

impl Pages {
    /// Puts blank pages into memory for a segment that was just made: nothing on the disks is worth reading.
    pub fn add_blank(&self, segment: SegmentNo, count: u32) {
        let mut sheets = self.sheets.borrow_mut();
        for number in 0..count {
            let sums = vec![0; PAGE_SUMS].into_boxed_slice();
            let sheet = Sheet { sums, version: 0, dirty: false, leaving: false, used: self.uses.get() };
            let before = sheets.insert((segment, number), sheet);
            self.dirty.set(self.dirty.get() - before.is_some_and(|before| before.dirty) as usize);
        }
        self.peak.set(self.peak.get().max(sheets.len()));
    }

    /// Bytes of pages in memory: now, and at most so far.
    pub fn memory(&self) -> (u64, u64) {
        (self.sheets.borrow().len() as u64 * BLOCK, self.peak.get() as u64 * BLOCK)
    }

    /// Forgets the pages of a segment that is no more.
    pub fn forget(&self, segment: SegmentNo) {
        let mut sheets = self.sheets.borrow_mut();
        let gone: Vec<(SegmentNo, u32)> =
            sheets.range((segment, 0)..=(segment, u32::MAX)).map(|(key, _)| *key).collect();
        for sheet in gone.iter().filter_map(|key| sheets.remove(key)) {
            self.dirty.set(self.dirty.get() - sheet.dirty as usize);
        }
    }

    /// The checksums `range` of `segment`, if all their pages are in memory.
    pub fn get(&self, segment: SegmentNo, range: Range<u64>) -> Option<Vec<u32>> {
        self.uses.set(self.uses.get() + 1);
        let mut sheets = self.sheets.borrow_mut();
        let mut sums = Vec::with_capacity((range.end - range.start) as usize);
        for (number, part) in parts(range) {
            let sheet = sheets.get_mut(&(segment, number))?;
            sheet.used = self.uses.get();
            sums.extend_from_slice(&sheet.sums[part]);
        }
        Some(sums)
    }

    /// Sets checksums from `first` on; their pages must be in memory.
    pub fn set(&self, segment: SegmentNo, first: u64, sums: &[u32]) {
        let mut sheets = self.sheets.borrow_mut();
        let mut rest = sums;
        for (number, part) in parts(first..first + sums.len() as u64) {
            let sheet = sheets.get_mut(&(segment, number)).expect("pages are loaded before they change");
            let (now, later) = rest.split_at(part.len());
            sheet.sums[part].copy_from_slice(now);
            self.dirty.set(self.dirty.get() + !core::mem::replace(&mut sheet.dirty, true) as usize);
            rest = later;
        }
    }

    /// Whether pages of this owner are being read from the disks, or written there.
    pub fn is_used(&self, kind: PageKind, owner: u32) -> bool {
        self.used.borrow().contains_key(&(kind, owner))
    }

    pub(super) fn using(&self, id: PageId) -> Using<'_> {
        let owner = (id.kind, id.owner);
        *self.used.borrow_mut().entry(owner).or_insert(0) += 1;
        Using { pages: self, owner }
    }

    /// Keeps the pages of `range` in memory, once they are there.
    fn hold(&self, segment: SegmentNo, range: Range<u64>) -> Held<'_> {
        let mut held = self.held.borrow_mut();
        parts(range.clone()).for_each(|(number, _)| *held.entry((segment, number)).or_insert(0) += 1);
        Held { pages: self, segment, range }
    }

    /// The pages of `range` that are not in memory.
    fn absent(&self, segment: SegmentNo, range: Range<u64>) -> Vec<u32> {
        let sheets = self.sheets.borrow();
        parts(range).map(|(number, _)| number).filter(|number| !sheets.contains_key(&(segment, *number))).collect()
    }

    /// Images of up to `max` dirty pages from `from` on, which then count as clean, and where to go on.
    fn take_dirty(&self, store: &Store, from: (SegmentNo, u32), max: usize) -> (Vec<Image>, Option<(SegmentNo, u32)>) {
        let map = store.map.borrow();
        let mut sheets = self.sheets.borrow_mut();
        let mut images = Vec::new();
        for (key, sheet) in sheets.range_mut(from..).filter(|(_, sheet)| sheet.dirty) {
            if images.len() == max {
                return (images, Some(*key));
            }
            let Some(segment) = map.segments.get(&key.0) else { continue };
            let id = PageId { kind: PageKind::Sheet, owner: key.0.0, number: key.1 };
            sheet.version += 1;
            sheet.dirty = false;
            self.dirty.set(self.dirty.get() - 1);
            sheet.leaving = true;
            let lineage = store.labels.lineage.borrow();
            let sums = zerocopy::IntoBytes::as_bytes(&*sheet.sums);
            let block = page::encode(store.id, &lineage, id, sheet.version, sums);
            images.push(Image { id, home: (segment.record.sheet, key.1), version: sheet.version, block });
        }
        (images, None)
    }

    /// The images of these pages are durable; or, if not `safe`, they are to be written again.
    fn arrived(&self, ids: &[PageId], safe: bool) {
        let mut sheets = self.sheets.borrow_mut();
        for id in ids.iter().filter(|id| id.kind == PageKind::Sheet) {
            if let Some(sheet) = sheets.get_mut(&(SegmentNo(id.owner), id.number)) {
                sheet.leaving = false;
                if !safe {
                    sheet.version = same_slot(sheet.version);
                    self.dirty.set(self.dirty.get() + !core::mem::replace(&mut sheet.dirty, true) as usize);
                }
            }
        }
    }

    /// The checksum pages in memory of which the disks have the newest image.
    pub(super) fn clean(&self) -> Vec<PageId> {
        let sheets = self.sheets.borrow();
        let clean = sheets.iter().filter(|(_, sheet)| sheet.version > 0 && !sheet.dirty && !sheet.leaving);
        clean.map(|(key, _)| PageId { kind: PageKind::Sheet, owner: key.0.0, number: key.1 }).collect()
    }

    /// The version of the last image of a checksum page, and whether another one is due, if the page is in memory.
    pub(super) fn written(&self, id: PageId) -> Option<(u64, bool)> {
        self.sheets.borrow().get(&(SegmentNo(id.owner), id.number)).map(|sheet| (sheet.version, sheet.dirty))
    }

    /// The next checkpoint writes this checksum page, if it is in memory.
    pub(super) fn soil(&self, id: PageId) {
        if let Some(sheet) = self.sheets.borrow_mut().get_mut(&(SegmentNo(id.owner), id.number)) {
            self.dirty.set(self.dirty.get() + !core::mem::replace(&mut sheet.dirty, true) as usize);
        }
    }

    /// Drops clean pages, the longest unused first, until about `limit` bytes are left.
    fn shrink(&self, limit: u64) {
        let mut sheets = self.sheets.borrow_mut();
        let max = (limit / BLOCK) as usize;
        if sheets.len() <= max {
            return;
        }
        let held = self.held.borrow();
        let mut clean: Vec<(u64, (SegmentNo, u32))> = sheets
            .iter()
            .filter(|(key, sheet)| !sheet.dirty && !sheet.leaving && !held.contains_key(key))
            .map(|(key, sheet)| (sheet.used, *key))
            .collect();
        clean.sort_unstable();
        // An eighth more than needed, so that this is not done for every page.
        let excess = sheets.len() - max + max / 8;
        for (_, key) in clean.into_iter().take(excess) {
            sheets.remove(&key);
        }
    }
}

impl Store {
    /// Brings the checksum pages of `range` into memory and keeps them there; copies that lack a page are left so
    /// unless it `heals`.
    pub(super) async fn load(&self, segment: SegmentNo, range: Range<u64>, heals: bool) -> Result<Held<'_>> {
        let held = self.pages.hold(segment, range.clone());
        loop {
            let absent = self.pages.absent(segment, range.clone());
            if absent.is_empty() {
                return Ok(held);
            }
            self.pages.shrink(self.tuning.sheet_memory.saturating_sub(absent.len() as u64 * BLOCK));
            let loaded = join(absent.into_iter().map(|number| self.load_sheet(segment, number, heals))).await;
            loaded.into_iter().collect::<Result<()>>()?;
        }
    }

    fn load_sheet(&self, segment: SegmentNo, number: u32, heals: bool) -> LocalBoxFuture<'_, Result<()>> {
        Box::pin(async move {
            let home = match self.map.borrow().segments.get(&segment) {
                Some(segment) => (segment.record.sheet, number),
                None => (PageRun { segment: SegmentNo(u32::MAX), first: 0, count: 0 }, number),
            };
            let id = PageId { kind: PageKind::Sheet, owner: segment.0, number };
            let least = self.least_version(id, heals).await;
            let image = self.read_page_and(id, home, least, heals).await?;
            // No image: no stripe of this page was ever checkpointed, or every copy is damaged, or older than the last
            // one that was durable. The sums are 0 then, which verifies nothing.
            let (version, sums) = image.map_or((least, vec![0; PAGE_SUMS]), |(version, block)| {
                let words = block[64..].chunks_exact(4);
                (version, words.map(|word| u32::from_le_bytes(word.try_into().expect("four bytes"))).collect())
            });
            let used = self.pages.uses.get();
            let sheet = Sheet { sums: sums.into_boxed_slice(), version, dirty: false, leaving: false, used };
            let mut sheets = self.pages.sheets.borrow_mut();
            sheets.entry((segment, number)).or_insert(sheet);
            self.pages.peak.set(self.pages.peak.get().max(sheets.len()));
            Ok(())
        })
    }

    /// Drops checksum pages that are too many, as far as they are clean.
    pub fn trim_pages(&self) {
        self.pages.shrink(self.tuning.sheet_memory);
    }

    /// Whether so much of the memory for checksum pages, or for stripe tables, is dirty that a checkpoint is due: dirty
    /// pages cannot be dropped.
    pub fn has_too_many_dirty_pages(&self) -> bool {
        let too_many = self.has_too_many_dirty_tables();
        too_many || self.pages.dirty.get() as u64 * BLOCK > (self.tuning.sheet_memory / 2).max(DIRTY_MIN)
    }

    /// The newest sound image of a page on the current disks. Copies that lack it are brought up to date on the way;
    /// while the pool is being opened they are only noted, for where the page lies is not known for sure before the log
    /// was read ([`Store::heal_suspects`]). `Ok(None)`: it was never written. An error: no copy of it can be read that
    /// must have it.
    pub async fn read_page(&self, id: PageId, home: (PageRun, u32)) -> Result<Option<(u64, Buf)>> {
        let least = self.least_version(id, true).await;
        self.read_page_and(id, home, least, true).await
    }

    /// [`Store::read_page`], of an image that has version `least` at least; but unless it `heals` the copies are left
    /// as they are.
    pub(super) async fn read_page_and(
        &self,
        id: PageId,
        home: (PageRun, u32),
        least: u64,
        heals: bool,
    ) -> Result<Option<(u64, Buf)>> {
        // Held until the last write below: a slab, or a page of it, is nobody else's as long as somebody knows it.
        let _used = self.pages.using(id);
        let _slabs = self.map.borrow().segments.get(&home.0.segment).map(|segment| segment.record.slabs.clone());
        if heals && let Some(image) = self.read_one_copy(id, home, least).await {
            return Ok(Some(image));
        }
        let (copies, found) = self.read_copies(id, home, least, true).await;
        let pair = first_block(home);
        let is_torn = |found: &Copied| matches!(found, Copied::Unreadable | Copied::Partly(..));
        let newest = found.iter().filter_map(Copied::image).max_by_key(|(version, _)| *version);
        let newest = newest.filter(|(version, _)| *version >= least);
        // A copy that cannot be read whole may hold what none of the others has.
        if found.iter().all(is_torn) || newest.is_none() && least > 0 && found.iter().any(is_torn) {
            let (PageId { kind, owner, number }, copies) = (id, copies.len());
            return fail!(
                Lost,
                "metadata page {number} of {kind:?} {owner} cannot be read: {copies} copies were tried"
            );
        }
        let Some((best, block)) = newest else { return Ok(None) };
        let (best, block) = (*best, block.clone());
        let lacks =
            |found: &Copied| !matches!(found, Copied::Late) && found.image().is_none_or(|(version, _)| *version < best);
        let lacking = found.iter().any(lacks);
        if lacking && heals && !self.writing.get() {
            self.pages.suspects.borrow_mut().push((id, home));
        } else if lacking && heals {
            for (at, found) in copies.iter().zip(&found) {
                if lacks(found) {
                    self.metadata_healed(at.disk, "metadata page");
                    // A disk that fails this write is taken out; the page has other copies.
                    let to = self.slab_offset(*at, pair + slot_of(best));
                    let _ = self.disk_write(at.disk, to, vec![block.clone().freeze()]).await;
                }
            }
        }
        Ok(Some((best, block)))
    }

    /// Whether a page lives in this run, as things stand now.
    pub fn is_home(&self, id: PageId, run: PageRun) -> bool {
        let map = self.map.borrow();
        match id.kind {
            PageKind::Sheet => {
                map.segments.get(&SegmentNo(id.owner)).is_some_and(|segment| segment.record.sheet == run)
            }
            PageKind::Table => map.tables.get(&TableNo(id.owner)).is_some_and(|table| {
                table.chunks.get(&(id.number / CHUNK_PAGES)).is_some_and(|chunk| chunk.pages == run)
            }),
        }
    }

    /// Writes the image to every copy of its page. The disks are left unflushed. Says whether a current disk took it.
    pub async fn write_page(&self, image: Image) -> bool {
        let _used = self.pages.using(image.id);
        let _slabs = self.map.borrow().segments.get(&image.home.0.segment).map(|segment| segment.record.slabs.clone());
        let copies = self.page_copies(image.home.0.segment, false);
        let at = first_block(image.home) + slot_of(image.version);
        let slice = image.block.freeze();
        let writes =
            copies.iter().map(|copy| self.disk_write(copy.disk, self.slab_offset(*copy, at), vec![slice.clone()]));
        // A disk that fails is taken out by the call itself.
        let written = join(writes).await;
        copies.iter().zip(written).any(|(copy, written)| written.is_ok() && self.is_current(copy.disk))
    }

    /// Writes every page that is dirty now. What the images speak of is made durable first. Pages that become dirty
    /// meanwhile may wait for the next sweep: under a steady stream there are always some, and this must end. Returns
    /// the pages; they are clean once [`Store::pages_written`] was told.
    pub async fn write_dirty_pages(&self) -> Result<Vec<PageId>> {
        /// Images held at once: each group of them costs a commit, so they are many.
        const GROUP: usize = 4096;
        let mut written = Vec::new();
        let mut from = (SegmentNo(0), 0);
        loop {
            let (images, next) = self.pages.take_dirty(self, from, GROUP);
            self.write_images(images, &mut written).await?;
            let Some(next) = next else { break };
            from = next;
        }
        let mut from = (TableNo(0), 0);
        loop {
            let (images, next) = self.take_dirty_table_pages(from, GROUP);
            self.write_images(images, &mut written).await?;
            let Some(next) = next else { return Ok(written) };
            from = next;
        }
    }

    /// These pages were written, and are durable if `safe`; else they are dirty again.
    pub fn pages_written(&self, ids: &[PageId], safe: bool) {
        self.pages.arrived(ids, safe);
        let mut map = self.map.borrow_mut();
        for id in ids.iter().filter(|id| id.kind == PageKind::Table) {
            let Some((table, number, page)) = map.chunk_of(*id) else { continue };
            match safe {
                true => table.has_left(number, page),
                false => table.is_behind(number, page, same_slot(table.chunks[&number].versions[page as usize])),
            }
        }
    }

    async fn write_images(&self, images: Vec<Image>, written: &mut Vec<PageId>) -> Result<()> {
        /// Pages written at once.
        const AT_ONCE: usize = 128;
        if images.is_empty() {
            return Ok(());
        }
        let ids: Vec<PageId> = images.iter().map(|image| image.id).collect();
        let withdrawals = self.limbo.withdrawals();
        if !mutant::active(Mutant::PagesAheadOfLog)
            && let Err(error) = self.make_logged(self.log.seq()).await
        {
            self.pages_written(&ids, false);
            return Err(error);
        }
        if withdrawals != self.limbo.withdrawals() {
            // They speak of what was taken back meanwhile: the next sweep tells the truth.
            self.pages_written(&ids, false);
            self.commits.pages_unwritten.set(true);
            return Ok(());
        }
        written.extend_from_slice(&ids);
        let mut images = images.into_iter().peekable();
        let mut nowhere = false;
        while images.peek().is_some() {
            let group: Vec<Image> = images.by_ref().take(AT_ONCE).collect();
            nowhere |= join(group.into_iter().map(|image| self.write_page(image))).await.contains(&false);
        }
        // Where the disks with its copies went, the pool is frozen, and the checkpoint begins anew.
        self.commits.pages_unwritten.set(self.commits.pages_unwritten.get() || nowhere);
        Ok(())
    }

    /// Images of dirty table pages from chunk `from` (table, number) on, at least `max` of them while there are so
    /// many, and where to go on.
    fn take_dirty_table_pages(&self, from: (TableNo, u32), max: usize) -> (Vec<Image>, Option<(TableNo, u32)>) {
        let mut images = Vec::new();
        let lineage = self.labels.lineage.borrow();
        for (owner, table) in self.map.borrow_mut().tables.range_mut(from.0..) {
            let first = if *owner == from.0 { from.1 } else { 0 };
            let dirty = table.chunks.range(first..).filter(|(_, chunk)| chunk.dirty != 0);
            let dirty: Vec<(u32, u32, PageRun)> =
                dirty.map(|(number, chunk)| (*number, chunk.dirty, chunk.pages)).collect();
            for (number, mut left, run) in dirty {
                if images.len() >= max {
                    return (images, Some((*owner, number)));
                }
                while left != 0 {
                    let page = left.trailing_zeros();
                    left &= left - 1;
                    let Some((version, entries)) = table.take_image(number, page) else { continue };
                    let id = table_page(*owner, number, page);
                    let block = page::encode(self.id, &lineage, id, version, zerocopy::IntoBytes::as_bytes(entries));
                    images.push(Image { id, home: (run, page), version, block });
                }
            }
        }
        (images, None)
    }
}
