//! The proof that a pool is sound: everything that is recorded is there, agrees with everything else, and verifies.
//!
//! Invariants
//! 1. A check that does not repair changes nothing: no block of data or metadata, and nobody's count of bad blocks.
//! 2. What it counts as curable, a repair right after it heals, and nothing else.
//! 3. No copy counts as sound whose disk has not answered: it is waited for as long as for a write, and named then.

use super::Pool;
use super::moves::{Homed, PAGES_AT_ONCE};
use crate::bits::BitSet;
use crate::error::{ErrorKind, Result};
use crate::exec::LocalBoxFuture;
use crate::fail;
use crate::format::page::PageId;
use crate::format::record::OWNER_METADATA;
use crate::mutant::{self, Mutant};
use crate::segment::space::Contradiction;
use crate::store::execute::Target;
use crate::store::join;
use crate::store::meta::copies::TreeProof;
use crate::store::proof::Proof;
use crate::store::table_pages::For;
use crate::stripe::table::Place;
use crate::tree;
use crate::units::{ByteCount, DiskNo, Nanos, SegmentNo, TableNo};
use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

/// What a check found.
#[derive(Clone, Debug, Default)]
pub struct CheckReport {
    /// Stripes proven.
    pub stripes: u64,
    /// Raw bytes read and proven.
    pub bytes: ByteCount,
    /// Blocks that are missing, unreadable or wrong, but covered by redundancy.
    pub bad_blocks: u64,
    /// Bad blocks that can be computed and rewritten where they lie.
    pub curable_blocks: u64,
    /// Bad blocks that were rewritten from redundancy.
    pub healed_blocks: u64,
    /// Pages of metadata that some copy, or every copy of what is in memory, lacks.
    pub bad_pages: u64,
    /// Those of them whose copies were put right.
    pub healed_pages: u64,
    /// Stripes with data beyond the redundancy.
    pub lost_stripes: u64,
    /// Disks that took too long to tell what they have of the metadata.
    pub silent: BTreeSet<DiskNo>,
    /// Whatever should never be: sentences for people.
    pub problems: Vec<String>,
}

impl CheckReport {
    /// Whether nothing at all is wrong.
    pub fn is_sound(&self) -> bool {
        let healed = self.bad_blocks == self.healed_blocks && self.bad_pages == self.healed_pages;
        self.problems.is_empty() && self.silent.is_empty() && healed && self.lost_stripes == 0
    }
}

/// Pages of which a copy was found wrong, each once.
#[derive(Default)]
struct Damaged {
    pages: BTreeSet<PageId>,
    tree: BTreeSet<tree::Place>,
}

impl Damaged {
    fn count(&self) -> u64 {
        (self.pages.len() + self.tree.len()) as u64
    }
}

impl Pool {
    /// Proves the pool sound. With `repair`, blocks that can be computed are rewritten; else nothing is changed
    /// (invariant 1).
    pub fn check(&self, repair: bool) -> LocalBoxFuture<'_, Result<CheckReport>> {
        Box::pin(async move {
            if repair {
                self.store.check_changeable()?;
            }
            let mut report = CheckReport::default();
            self.check_space(&mut report);
            self.check_use(repair, &mut report).await?;
            let losses = self.store.losses_of_all();
            let tables: Vec<TableNo> = self.store.map.borrow().tables.keys().copied().collect();
            for table in tables {
                self.check_table(table, repair, &mut report).await?;
            }
            let mut damaged = Damaged::default();
            self.prove_pages(repair, &mut damaged, &mut report).await?;
            if !repair && damaged.count() > 0 {
                // What was given back, or to somebody else, while it was looked at is nobody's any more.
                self.store.pause().await;
                let mut still = Damaged::default();
                self.prove_pages(false, &mut still, &mut CheckReport::default()).await?;
                damaged.pages.retain(|page| still.pages.contains(page));
                damaged.tree.retain(|place| still.tree.contains(place));
            }
            report.bad_pages = damaged.count();
            report.problems.extend(self.store.check_tree().await?);
            if repair {
                report.healed_pages = report.bad_pages;
                // What counts as healed must stay so when the power goes.
                self.store.flush_all(self.store.unflushed()).await;
                if self.store.losses_of_all() != losses {
                    // Which of them a disk has that was lost meanwhile, nobody knows.
                    report.healed_blocks = 0;
                    report.healed_pages = 0;
                }
            }
            Ok(report)
        })
    }

    /// Proves every metadata page; a repair puts right what is wrong with its copies.
    async fn prove_pages(&self, repair: bool, damaged: &mut Damaged, report: &mut CheckReport) -> Result<()> {
        let metadata: Vec<SegmentNo> = {
            let map = self.store.map.borrow();
            let segments = map.metadata_segments();
            segments.map(|found| found.record.id).collect()
        };
        self.prove_pages_in(&metadata, repair, damaged, report).await
    }

    /// Brings up to date the copies of metadata on a disk that counts as such already, and may have been put back from
    /// an older copy of itself. Its copies may be the last good ones: each is proven, and written only where it lacks
    /// what another one has.
    pub(super) async fn mend_pages_on(&self, no: DiskNo) -> Result<()> {
        if mutant::active(Mutant::PutBackPagesBelieved) {
            return Ok(());
        }
        let segments: Vec<SegmentNo> = self.metadata_on(no).into_iter().map(|(segment, _)| segment).collect();
        let (mut damaged, mut report) = (Damaged::default(), CheckReport::default());
        self.prove_pages_in(&segments, true, &mut damaged, &mut report).await?;
        match report.silent.first() {
            Some(silent) => fail!(NotPossible, "disk {silent} takes too long to tell what it has of the metadata"),
            None => Ok(()),
        }
    }

    /// Proves the pages of some segments of metadata; else as [`Pool::prove_pages`] does.
    async fn prove_pages_in(
        &self,
        segments: &[SegmentNo],
        repair: bool,
        damaged: &mut Damaged,
        report: &mut CheckReport,
    ) -> Result<()> {
        // When a page was written anew, the other slot of each copy may still be damaged.
        if self.prove_pages_once(segments, repair, damaged, report).await? && repair {
            self.prove_pages_once(segments, repair, damaged, report).await?;
        }
        Ok(())
    }

    /// Proves each of these pages once. Says whether some are to be written anew from memory, which a repair has done.
    async fn prove_pages_once(
        &self,
        segments: &[SegmentNo],
        repair: bool,
        damaged: &mut Damaged,
        report: &mut CheckReport,
    ) -> Result<bool> {
        let mut dirty = false;
        for &segment in segments {
            for group in self.pages_of(segment).chunks(PAGES_AT_ONCE) {
                dirty |= self.prove_group_in_time(group, repair, damaged, report).await;
            }
            for blocks in self.store.tree_blocks_in(segment).chunks(PAGES_AT_ONCE) {
                dirty |= self.prove_tree_in_time(segment, blocks, repair, damaged, report).await?;
            }
        }
        if dirty && repair {
            self.checkpoint().await?;
        }
        Ok(dirty)
    }

    /// Proves some metadata pages. A disk that stalls is waited for as long as for a write. Says whether some are to be
    /// written anew from memory.
    async fn prove_group_in_time(
        &self,
        group: &[Homed],
        repair: bool,
        damaged: &mut Damaged,
        report: &mut CheckReport,
    ) -> bool {
        let (began, mut left, mut behind) = (self.store.world.now(), group.to_vec(), false);
        loop {
            let (proofs, again) = self.prove_group(&left, repair).await;
            behind |= proofs.iter().any(|(_, proof)| matches!(proof, Ok(Proof::Behind { .. })));
            let is_wrong = |proof: &Proof| matches!(proof, Proof::Damaged | Proof::Behind { awaited: false });
            let wrong = proofs.iter().filter(|(_, proof)| proof.as_ref().is_ok_and(is_wrong));
            damaged.pages.extend(wrong.map(|(id, _)| *id));
            let errors = proofs.into_iter().filter_map(|(_, proof)| proof.err());
            report.problems.extend(errors.map(|error| error.context));
            if !self.goes_on(began, again.iter().map(|(no, _)| *no), report).await {
                return behind;
            }
            left = again.into_iter().map(|(_, page)| page).collect();
        }
    }

    /// Proves some pages of the tree, and waits as [`Pool::prove_group_in_time`] does. Says whether some are lost.
    async fn prove_tree_in_time(
        &self,
        segment: SegmentNo,
        blocks: &[u32],
        repair: bool,
        damaged: &mut Damaged,
        report: &mut CheckReport,
    ) -> Result<bool> {
        let (began, mut left, mut lost) = (self.store.world.now(), blocks.to_vec(), false);
        loop {
            let proof = self.prove_tree_group(segment, &left, repair).await?;
            lost |= !proof.lost.is_empty();
            damaged.tree.extend(proof.damaged.into_iter().chain(proof.lost));
            if !self.goes_on(began, proof.late.iter().map(|(no, _)| *no), report).await {
                return Ok(lost);
            }
            left = proof.late.into_iter().map(|(_, block)| block).collect();
        }
    }

    /// Whether disks that were too slow to tell what they have are asked once more, a moment later, as they have not
    /// been waited for long enough since `began`. Else they are silent.
    async fn goes_on(&self, began: Nanos, late: impl Iterator<Item = DiskNo>, report: &mut CheckReport) -> bool {
        let late: BTreeSet<DiskNo> = late.collect();
        if late.is_empty() || self.store.world.now().since(began) > self.store.tuning.write_limit {
            report.silent.extend(late);
            return false;
        }
        self.store.pause().await;
        true
    }

    /// Proves some pages of the tree. What those held that no copy has is in memory: where it `mends`, the tree begins
    /// anew with the next checkpoint.
    pub(super) async fn prove_tree_group(&self, segment: SegmentNo, blocks: &[u32], mends: bool) -> Result<TreeProof> {
        // No checkpoint writes a page that is just being proven.
        let _turn = self.checkpointing.take().await;
        let proof = self.store.prove_tree_pages(segment, blocks, mends).await?;
        if mends && !proof.lost.is_empty() {
            self.store.begin_tree_anew();
        }
        Ok(proof)
    }

    /// Proves some pages of a metadata segment, as far as they still live there. Returns those, too, of which a disk
    /// takes too long to tell.
    pub(super) async fn prove_group(
        &self,
        group: &[Homed],
        mends: bool,
    ) -> (Vec<(PageId, Result<Proof>)>, Vec<(DiskNo, Homed)>) {
        // No checkpoint writes a page that is just being proven.
        let _turn = self.checkpointing.take().await;
        let still: Vec<Homed> = group.iter().copied().filter(|(id, home)| self.store.is_home(*id, home.0)).collect();
        let proofs = join(still.iter().map(|(id, home)| self.store.prove_page(*id, *home, mends))).await;
        let late = still.iter().zip(&proofs).filter_map(|(page, proof)| match proof {
            Ok(Proof::Late(no)) => Some((*no, *page)),
            _ => None,
        });
        let late = late.collect();
        (still.into_iter().map(|(id, _)| id).zip(proofs).collect(), late)
    }

    /// Every slab, stripe and page is owned at most once, and what is free is what nobody owns.
    fn check_space(&self, report: &mut CheckReport) {
        self.store.map.borrow_mut().check_lists(&mut report.problems);
        let map = self.store.map.borrow();
        let mut slabs = BTreeSet::new();
        for segment in map.segments.values() {
            for at in segment.record.slabs.iter().flatten() {
                if !slabs.insert(*at) {
                    report.problems.push(format!("slab {} of disk {} is in two segments", at.slab, at.disk));
                }
                let free = map.disks.get(&at.disk).is_some_and(|disk| disk.free.contains(at.slab as usize));
                if free {
                    report.problems.push(format!("slab {} of disk {} is used and counted as free", at.slab, at.disk));
                }
            }
            let owner = segment.record.owner;
            // The copies of metadata share the disk of a pool that has one only.
            let disks: BTreeSet<DiskNo> = segment.record.slabs.iter().flatten().map(|at| at.disk).collect();
            if owner != OWNER_METADATA && disks.len() < segment.record.slabs.iter().flatten().count() {
                report
                    .problems
                    .push(format!("a disk holds two columns of the stripes of segment {}", segment.record.id));
            }
            if owner != OWNER_METADATA && !map.tables.contains_key(&owner) {
                report
                    .problems
                    .push(format!("segment {} belongs to table {owner}, which does not exist", segment.record.id));
            }
        }
        for at in map.read_caches.values().flat_map(|cache| cache.record.slabs()) {
            let free = map.disks.get(&at.disk).is_some_and(|disk| disk.free.contains(at.slab as usize));
            if free || !slabs.insert(at) {
                let slab = at.slab;
                report.problems.push(format!("slab {slab} of disk {} is a read cache's and somebody else's", at.disk));
            }
        }
        let taken: usize = map.disks.values().map(|disk| disk.record.slabs as usize - disk.free.count()).sum();
        let (moving, draining) = (map.in_transit.len(), map.draining_slabs().len());
        if taken != slabs.len() + moving + draining {
            let held = slabs.len();
            report
                .problems
                .push(format!("{taken} slabs are taken, segments hold {held}, {moving} move, {draining} drain"));
        }
        for at in map.draining_slabs().iter().filter(|at| slabs.contains(at)) {
            report.problems.push(format!("slab {} of disk {} drains and is in a segment", at.slab, at.disk));
        }
        for vdisk in self.vdisks() {
            let claimed = map.vdisks.get(&vdisk.id()).and_then(|vdisk| map.tables.get(vdisk.tables.first()?));
            // What is moved out of a segment has claims, too.
            let claimed = claimed.filter(|table| !table.segments.iter().any(|id| map.segments[id].emptying));
            let claimed = claimed.map_or(0, |table| table.claims);
            if let Some(claims) = vdisk.claims().filter(|claims| *claims < claimed) {
                report.problems.push(format!("{claimed} stripes are claimed for {claims} buffers"));
            }
            let table = map.vdisks.get(&vdisk.id()).and_then(|vdisk| vdisk.tables.first().copied());
            let tier = table.and_then(|table| map.tier_of(table)).and_then(|tier| map.tables.get(&tier));
            if let Some(tier) = tier.filter(|tier| tier.claims > 0 && vdisk.claims().is_some()) {
                report.problems.push(format!("{} stripes of a fast tier are claimed for none", tier.claims));
            }
        }
        for table in map.tables.values() {
            let segments = || table.segments.iter().map(|id| &map.segments[id]);
            let free: usize = segments().filter(|found| !found.emptying).map(|found| found.free.count()).sum();
            let mapped: usize = segments().map(|found| found.mapped.count()).sum();
            if (free as u64, mapped as u64) != (table.free, table.mapped) {
                let (no, counted) = (table.record.id, (table.free, table.mapped));
                report
                    .problems
                    .push(format!("table {no} has {free} free stripes and {mapped} mapped, it counts {counted:?}"));
            }
        }
    }

    /// What counts as in use is what tables map, stripe by stripe, whatever changes meanwhile; a repair puts it right.
    async fn check_use(&self, repair: bool, report: &mut CheckReport) -> Result<()> {
        let tables: Vec<TableNo> = self.store.map.borrow().tables.keys().copied().collect();
        for table in tables {
            self.store.map.borrow_mut().watch_space(true);
            let what_for = if repair { For::Use } else { For::Look };
            let seen = self.look_through(table, what_for, report).await;
            let found = seen.map_or(Vec::new(), |seen| self.store.map.borrow().contradictions(table, &seen));
            self.store.map.borrow_mut().watch_space(false);
            for contradiction in found {
                let put_right = if repair { ", which was put right" } else { "" };
                report.problems.push(match contradiction {
                    Contradiction::Idle(place) => {
                        format!("{place:?} counts as in use, and no table maps it{put_right}")
                    }
                    Contradiction::Unseen(place) => format!("{place:?} is mapped, and counts as not in use{put_right}"),
                });
                if repair {
                    let records = self.store.map.borrow_mut().mend_space(contradiction);
                    self.store.append_all(records);
                }
            }
        }
        for place in core::mem::take(&mut self.store.map.borrow_mut().unseen) {
            report.problems.push(format!("{place:?} was mapped, and counted as not in use, which was put right"));
        }
        Ok(())
    }

    /// Which places a table maps, by segment. None where not all of it can be read.
    async fn look_through(
        &self,
        table: TableNo,
        what_for: For,
        report: &mut CheckReport,
    ) -> Option<BTreeMap<SegmentNo, BitSet>> {
        let (mut seen, mut whole, mut from): (BTreeMap<SegmentNo, BitSet>, bool, u64) = (BTreeMap::new(), true, 0);
        while let Some(stripes) = self.store.next_page(table, from) {
            from = stripes.end;
            let _held = match self.store.load_pages(table, stripes.clone(), what_for).await {
                Ok(held) => held,
                Err(error) => {
                    report.problems.push(error.context);
                    whole = false;
                    continue;
                }
            };
            let map = self.store.map.borrow();
            let found = map.tables.get(&table)?;
            for (stripe, place) in found.mapped_in(stripes) {
                let Some(segment) = map.segments.get(&place.segment) else { continue };
                let bits = seen.entry(place.segment).or_insert_with(|| BitSet::empty(segment.mapped.len()));
                let index = place.index as usize;
                if bits.contains(index) && !map.changed_hands(place) {
                    report.problems.push(format!("{place:?} holds two stripes, one of them {stripe}"));
                }
                bits.insert(index..index + 1);
            }
        }
        whole.then_some(seen)
    }

    async fn check_table(&self, table: TableNo, repair: bool, report: &mut CheckReport) -> Result<()> {
        let mut next = 0;
        while let Some(page) = self.store.next_page(table, next) {
            // One stripe at a time, pinned while it is read: the pool may be in use.
            let (stripe, place) =
                match self.store.pin_next(table, next, if repair { For::Use } else { For::Look }).await {
                    Ok(Some(found)) => found,
                    Ok(None) => return Ok(()),
                    // It was told when what is in use was looked at.
                    Err(_) => {
                        next = page.end;
                        continue;
                    }
                };
            next = stripe + 1;
            let proven = self.check_stripe(place, (table, stripe), repair, report).await;
            let records = self.store.map.borrow_mut().unpin(place);
            self.store.append_all(records);
            proven?;
        }
        Ok(())
    }

    async fn check_stripe(
        &self,
        place: Place,
        (table, stripe): (TableNo, u64),
        repair: bool,
        report: &mut CheckReport,
    ) -> Result<()> {
        let target = if repair { Target::new(&self.store, place) } else { Target::to_look_at(&self.store, place) };
        let Some(target) = target else { return Ok(()) };
        let target = target.owned_by(table, stripe);
        report.stripes += 1;
        report.bytes += target.layout.raw_len();
        let proven = match self.store.prove_stripe(&target).await {
            Err(error) if error.kind == ErrorKind::Lost => {
                report.lost_stripes += 1;
                report.problems.push(format!("stripe {stripe} of table {table}: {}", error.context));
                return Ok(());
            }
            proven => proven?,
        };
        report.bad_blocks += proven.bad() + proven.absent;
        report.curable_blocks += self.store.curable(&target, &proven);
        report.healed_blocks += proven.healed;
        report.lost_stripes += self.store.is_lost(&target, &proven) as u64;
        Ok(())
    }
}
