//! The proof that a pool is sound: everything that is recorded is there, agrees with everything else, and verifies.

use super::Pool;
use super::moves::{Homed, PAGES_AT_ONCE};
use crate::error::Result;
use crate::format::record::OWNER_METADATA;
use crate::store::join;
use crate::store::proof::Proof;
use crate::stripe::execute::Target;
use crate::stripe::table::Place;
use crate::units::ByteCount;
use alloc::collections::BTreeSet;
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
    /// Bad blocks that were rewritten from redundancy.
    pub healed_blocks: u64,
    /// Stripes with data beyond the redundancy.
    pub lost_stripes: u64,
    /// Whatever should never be: sentences for people.
    pub problems: Vec<String>,
}

impl CheckReport {
    /// Whether nothing at all is wrong.
    pub fn is_sound(&self) -> bool {
        self.problems.is_empty() && self.bad_blocks == self.healed_blocks && self.lost_stripes == 0
    }
}

impl Pool {
    /// Proves the pool sound. With `repair`, blocks that can be computed are rewritten; else nothing is changed.
    pub async fn check(&self, repair: bool) -> Result<CheckReport> {
        let mut report = CheckReport::default();
        self.check_space(&mut report);
        report.problems.extend(self.store.check_tree().await?);
        let losses = self.store.losses_of_all();
        let tables: Vec<u32> = self.store.map.borrow().tables.keys().copied().collect();
        for table in tables {
            self.check_table(table, repair, &mut report).await?;
        }
        if repair {
            // When a page was written anew, the other slot of each copy may still be damaged.
            if self.prove_pages(&mut report).await? {
                self.prove_pages(&mut report).await?;
            }
            // What counts as healed must stay so when the power goes.
            self.store.flush_all(self.store.unflushed()).await;
            if self.store.losses_of_all() != losses {
                // Which of them a disk has that was lost meanwhile, nobody knows.
                report.healed_blocks = 0;
            }
        }
        Ok(report)
    }

    /// Proves every metadata page, and puts right what is wrong with its copies. Says whether some were written anew
    /// from memory.
    async fn prove_pages(&self, report: &mut CheckReport) -> Result<bool> {
        let metadata: Vec<u32> = {
            let map = self.store.map.borrow();
            let segments = map.segments.values().filter(|found| found.record.owner == OWNER_METADATA);
            segments.map(|found| found.record.id).collect()
        };
        let mut dirty = false;
        for segment in metadata {
            let mut late = BTreeSet::new();
            for group in self.pages_of(segment).chunks(PAGES_AT_ONCE) {
                let (began, mut left) = (self.store.world.now(), group.to_vec());
                loop {
                    let (proofs, again) = self.prove_group(&left).await;
                    dirty |= proofs.iter().any(|proof| matches!(proof, Ok(Proof::Dirty)));
                    report
                        .problems
                        .extend(proofs.into_iter().filter_map(|proof| proof.err()).map(|error| error.context));
                    // A disk that stalls is waited for as long as for a write.
                    let waited = self.store.world.now().since(began);
                    if again.is_empty() || waited > self.store.tuning.write_limit {
                        late.extend(again.into_iter().map(|(no, _)| no));
                        break;
                    }
                    self.store.pause().await;
                    left = again.into_iter().map(|(_, page)| page).collect();
                }
            }
            for blocks in self.store.tree_blocks_in(segment).chunks(PAGES_AT_ONCE) {
                dirty |= self.prove_tree_group(segment, blocks).await?;
            }
            let unproven = |no: u16| format!("disk {no} does not answer: its metadata is not proven");
            report.problems.extend(late.into_iter().map(unproven));
        }
        if dirty {
            self.checkpoint().await?;
        }
        Ok(dirty)
    }

    /// Proves some pages of the tree. Says whether there are some that no copy has: what they held is in memory, and
    /// the tree begins anew with the next checkpoint.
    pub(super) async fn prove_tree_group(&self, segment: u32, blocks: &[u32]) -> Result<bool> {
        // No checkpoint writes a page that is just being proven.
        let _turn = self.checkpointing.take().await;
        let lost = !self.store.prove_tree_pages(segment, blocks).await?.is_empty();
        if lost {
            self.store.begin_tree_anew();
        }
        Ok(lost)
    }

    /// Proves some pages of a metadata segment, as far as they still live there. Returns those, too, of which a disk
    /// takes too long to tell.
    pub(super) async fn prove_group(&self, group: &[Homed]) -> (Vec<Result<Proof>>, Vec<(u16, Homed)>) {
        // No checkpoint writes a page that is just being proven.
        let _turn = self.checkpointing.take().await;
        let still: Vec<Homed> = group.iter().copied().filter(|(id, home)| self.store.is_home(*id, home.0)).collect();
        let proofs = join(still.iter().map(|(id, home)| self.store.prove_page(*id, *home))).await;
        let late = still.iter().zip(&proofs).filter_map(|(page, proof)| match proof {
            Ok(Proof::Late(no)) => Some((*no, *page)),
            _ => None,
        });
        let late = late.collect();
        (proofs, late)
    }

    /// Every slab, stripe and page is owned at most once, and what is free is what nobody owns.
    fn check_space(&self, report: &mut CheckReport) {
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
            let disks: BTreeSet<u16> = segment.record.slabs.iter().flatten().map(|at| at.disk).collect();
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
            let claimed = claimed.map_or(0, |table| table.claims);
            if let Some(claims) = vdisk.claims().filter(|claims| *claims < claimed) {
                report.problems.push(format!("{claimed} stripes are claimed for {claims} buffers"));
            }
        }
        for table in map.tables.values() {
            let mut places = BTreeSet::new();
            for (stripe, place) in table.mapped_from(0) {
                let segment =
                    map.segments.get(&place.segment).filter(|segment| segment.record.owner == table.record.id);
                match segment {
                    None => report
                        .problems
                        .push(format!("stripe {stripe} is in segment {}, which is not its table's", place.segment)),
                    Some(segment) if segment.free.contains(place.index as usize) => {
                        report.problems.push(format!("stripe {stripe} is at {place:?}, which is counted as free"));
                    }
                    Some(_) => {}
                }
                if !places.insert(place) {
                    report.problems.push(format!("{place:?} holds two stripes, one of them {stripe}"));
                }
            }
            if places.len() as u64 != table.mapped {
                report.problems.push(format!(
                    "table {} maps {} stripes and counts {}",
                    table.record.id,
                    places.len(),
                    table.mapped
                ));
            }
            let free: u64 = table.segments.iter().map(|id| map.segments[id].free.count() as u64).sum();
            if free != table.free {
                report
                    .problems
                    .push(format!("table {} has {free} free stripes and counts {}", table.record.id, table.free));
            }
        }
    }

    async fn check_table(&self, table: u32, repair: bool, report: &mut CheckReport) -> Result<()> {
        let mut next = 0;
        loop {
            // One stripe at a time, pinned while it is read: the pool may be in use.
            let (stripe, place) = {
                let mut map = self.store.map.borrow_mut();
                let found = map.tables.get(&table).and_then(|table| table.mapped_from(next).next());
                let Some((stripe, place)) = found else { return Ok(()) };
                map.pin(place);
                (stripe, place)
            };
            next = stripe + 1;
            let proven = self.check_stripe(place, repair, report).await;
            let records = self.store.map.borrow_mut().unpin(place);
            self.store.append_all(records);
            proven?;
        }
    }

    async fn check_stripe(&self, place: Place, repair: bool, report: &mut CheckReport) -> Result<()> {
        let Some(target) = Target::new(&self.store, place) else { return Ok(()) };
        let (bad, healed) = self.store.prove_stripe(&target, repair).await?;
        report.stripes += 1;
        report.bytes += target.layout.raw_len();
        report.bad_blocks += bad;
        report.healed_blocks += healed;
        if bad > 0 && !repair {
            let all = crate::stripe::plan::Want { column: 0, blocks: 0..target.layout.strip_blocks() };
            let wants: Vec<_> = (0..target.layout.data_columns())
                .map(|column| crate::stripe::plan::Want { column, ..all.clone() })
                .collect();
            report.lost_stripes += self.store.read_stripe(&target, &wants).await.is_err() as u64;
        }
        Ok(())
    }
}
