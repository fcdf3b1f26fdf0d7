//! The proof of a metadata page: every copy of it can be read, in both slots, and has its newest image. It is mended,
//! or only looked at.
//!
//! A slot that cannot be read is damage even where the other one holds the newest image: nobody can tell from that copy
//! alone that the lost slot held nothing newer, so a pool that has only that copy left does not open.
//!
//! Invariants
//! 1. No checkpoint runs while a page is proven: the slot that is made blank is the one that the next image goes to.
//! 2. The only good image of a page is never overwritten: where its copy is damaged, only the other slot is written.
//! 3. What is in memory is the page, whatever became of its copies: where they are all behind it, the next checkpoint
//!    writes it anew, and a second proof puts right what that leaves.
//! 4. Damage is a copy that lacks what was promised: of a page of a stripe table, the version that was written last, as
//!    memory or the tree has it; of a checksum page, the version that the tree says, or any where the tree says nothing
//!    and stripes of the page are in use. A newer image on some disks only, which a checkpoint left that the power cut
//!    off, is no damage; where it mends, all copies get it.

use super::Store;
use super::page_copies::Copied;
use super::page_place::{first_block, slot_of};
use crate::error::Result;
use crate::fail;
use crate::format::page::{PAGE_SUMS, PageId, PageKind};
use crate::format::record::{PageRun, SlabAt};
use crate::io::Buf;
use crate::mutant::{self, Mutant};
use crate::segment::PAGE_PAIR;
use crate::stripe::table::Table;
use crate::units::{BLOCK, DiskNo, SegmentNo, TableNo};

/// How the proof of a page ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Proof {
    /// Every copy on the current disks is what it should be.
    Sound,
    /// Some copies were not what they should be; those that are mended are now.
    Damaged,
    /// No copy has what is in memory, or what the tree says that they have. The next checkpoint writes it: it was about
    /// to anyway, or the page is mended.
    Behind {
        /// A checkpoint was about to write it anyway.
        awaited: bool,
    },
    /// This disk takes longer to tell than the read timeout.
    Late(DiskNo),
}

impl Store {
    /// Proves a page; what is wrong with its copies is put right where it `mends`. An error: what it held is lost. No
    /// checkpoint may run meanwhile.
    pub async fn prove_page(&self, id: PageId, home: (PageRun, u32), mends: bool) -> Result<Proof> {
        let _used = self.pages.using(id);
        let _slabs = self.map.borrow().segments.get(&home.0.segment).map(|segment| segment.record.slabs.clone());
        let least = self.least_version(id, mends).await.max(self.table_version(id));
        let (copies, found) = self.read_copies(id, home, least, true).await;
        if let Some((at, _)) = copies.iter().zip(&found).find(|(_, found)| matches!(found, Copied::Late)) {
            return Ok(Proof::Late(at.disk));
        }
        let newest = found.iter().filter_map(Copied::image).max_by_key(|(version, _)| *version);
        let best = newest.map_or(0, |(version, _)| *version);
        let certain = found.iter().any(|found| matches!(found, Copied::Whole(_) | Copied::Blank));
        match self.page_written(id) {
            Some((written, awaited)) if best < written => {
                if mends {
                    self.write_again(id);
                }
                return Ok(Proof::Behind { awaited });
            }
            None if certain && best < least && id.kind == PageKind::Sheet => {
                if mends {
                    // What the page held is lost, and known as that once it is in memory.
                    let first = u64::from(id.number) * PAGE_SUMS as u64;
                    let _held = self.load_sums(SegmentNo(id.owner), first..first + 1).await?;
                    self.write_again(id);
                }
                return Ok(Proof::Behind { awaited: false });
            }
            None if !certain || best < least => {
                let (PageId { kind, owner, number }, copies) = (id, copies.len());
                return fail!(
                    Lost,
                    "metadata page {number} of {kind:?} {owner} cannot be read: {copies} copies were tried"
                );
            }
            _ => {}
        }
        let due = self.version_due(id, least, best);
        let mut proof = Proof::Sound;
        for (at, found) in copies.iter().zip(&found) {
            let (lacks, unreadable) = wrong_with(found, newest);
            let is_damaged = unreadable || lacks && found.image().map_or(0, |(version, _)| *version) < due;
            if is_damaged {
                proof = Proof::Damaged;
            }
            if is_damaged && mends {
                self.metadata_healed(at.disk, "metadata page");
            }
            if mends && (lacks || unreadable) {
                self.mend_copy(*at, first_block(home), found, newest).await;
            }
        }
        Ok(proof)
    }

    /// The version that every copy of a page must have, whose newest image has version `newest`. A checkpoint that was
    /// cut off leaves newer images on some of their disks (invariant 4).
    fn version_due(&self, id: PageId, least: u64, newest: u64) -> u64 {
        match id.kind {
            PageKind::Table => match self.page_written(id) {
                // The next checkpoint writes all copies, whatever they have.
                Some((_, true)) => 0,
                Some((written, false)) => written,
                None if least > 0 => least,
                None => newest,
            },
            PageKind::Sheet if mutant::active(Mutant::SheetDamageOverlooked) => 0,
            PageKind::Sheet if least > 0 => least,
            PageKind::Sheet => {
                let map = self.map.borrow();
                let segment = map.segments.get(&SegmentNo(id.owner));
                if segment.is_some_and(|segment| segment.uses_sheet(id.number)) { newest } else { 0 }
            }
        }
    }

    /// Brings up to date the copies that were found behind while the pool was being opened. Where one of their disks
    /// does not answer in time now, the next checkpoint writes the page anew. No checkpoint may run meanwhile.
    pub async fn heal_suspects(&self) {
        for (id, home) in self.pages.suspects.take() {
            if !self.is_home(id, home.0) {
                continue;
            }
            // What cannot be read now is an error for whoever needs it.
            if let Ok(Proof::Late(no)) = self.prove_page(id, home, true).await
                && !mutant::active(Mutant::LateCopyForgotten)
            {
                self.metadata_healed(no, "metadata page");
                if id.kind == PageKind::Table {
                    let (table, page) = (TableNo(id.owner), id.number);
                    let _held = self.load_table(table, Table::stripes_of(page)).await;
                    self.write_again(id);
                } else {
                    self.write_again(id);
                }
            }
        }
        self.heal_tree_suspects().await;
    }

    /// Writes what is wrong in one copy, whose pair of slots begins at block `pair`. A disk that fails this is taken
    /// out; the page has other copies.
    async fn mend_copy(&self, at: SlabAt, pair: u64, found: &Copied, newest: Option<&(u64, Buf)>) {
        let best = newest.map_or(0, |(version, _)| *version);
        let (lacks, unreadable) = wrong_with(found, newest);
        let block = |slot: u64| match newest {
            Some((version, block)) if slot_of(*version) == slot => block.clone(),
            _ => Buf::zeroed(BLOCK as usize),
        };
        let (first, slots) = match (lacks, matches!(found, Copied::Partly(_))) {
            (true, _) if !unreadable => (slot_of(best), 1),
            (false, true) => (1 - slot_of(best), 1),
            _ => (0, PAGE_PAIR / BLOCK),
        };
        let slices = (first..first + slots).map(|slot| block(slot).freeze()).collect();
        let _ = self.disk_write(at.disk, self.slab_offset(at, pair + first), slices).await;
    }

    /// The version of the last image of a page of a stripe table that is not in memory; 0: it is, or is another one.
    fn table_version(&self, id: PageId) -> u64 {
        let absent = self.map.borrow().absent_page(TableNo(id.owner), id.number);
        absent.filter(|_| id.kind == PageKind::Table).map_or(0, |(_, version)| version)
    }

    /// The version of the last image that was written of a page, and whether another one is due, if it is in memory.
    fn page_written(&self, id: PageId) -> Option<(u64, bool)> {
        match id.kind {
            PageKind::Sheet => self.pages.written(id),
            PageKind::Table => {
                let mut map = self.map.borrow_mut();
                let (table, number, page) = map.chunk_of(id)?;
                let chunk = &table.chunks[&number];
                chunk.is_there(page).then(|| (chunk.versions[page as usize], chunk.dirty >> page & 1 == 1))
            }
        }
    }

    /// The next checkpoint writes this page, which is in memory.
    fn write_again(&self, id: PageId) {
        match id.kind {
            PageKind::Sheet => self.pages.soil(id),
            PageKind::Table => {
                if let Some((table, number, page)) = self.map.borrow_mut().chunk_of(id) {
                    table.soil(number, page);
                }
            }
        }
    }
}

/// Whether a copy lacks the newest image of its page, if there is one, and whether something of it cannot be read.
fn wrong_with(found: &Copied, newest: Option<&(u64, Buf)>) -> (bool, bool) {
    let lacks = newest.is_some_and(|(best, _)| found.image().is_none_or(|(version, _)| version < best));
    (lacks, matches!(found, Copied::Partly(_) | Copied::Unreadable))
}
