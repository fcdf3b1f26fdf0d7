//! The executor: carries out plans against the disks, proves every block it reads, and knows nothing of RAID.
//!
//! Invariants
//! 1. Nothing leaves here that did not match its checksum, or was not computed from blocks that did.
//! 2. A bad block whose content could be computed is rewritten where it lies; its content is the same as ever, so
//!    nothing immutable changes.
//! 3. Nothing is rewritten in a slab that the segment has given up since the read was planned: it may be somebody
//!    else's.
//! 4. Where the reader knows whose stripe it wants, the mark at its place says that it lies there: a place that came to
//!    be another's is an error, however sound its blocks are.
//! 5. Who only looks at a stripe changes nothing: no block, no copy of its checksums, and nobody's count of bad blocks.

use super::lanes::CHUNK;
use super::together::Part;
use super::{Store, join, lost};
use crate::checksum::{BlockAddress, block_checksums, owner_mark, zero_checksums};
use crate::error::Result;
use crate::event::Event;
use crate::exec::LocalBoxFuture;
use crate::format::record::{SegmentRecord, SlabAt};
use crate::geometry::Layout;
use crate::io::{Buf, DiskError, IoSlice};
use crate::mutant::{self, Mutant};
use crate::parity;
use crate::stripe::plan::{self, Plan, SlotRead, Want};
use crate::stripe::table::Place;
use crate::units::{BLOCK, TableNo};
use alloc::boxed::Box;
use alloc::collections::BTreeSet;
use alloc::format;
use alloc::rc::Rc;
use alloc::vec;
use alloc::vec::Vec;
use core::ops::Range;

/// A stripe on the disks, as the executor needs it.
#[derive(Clone)]
pub struct Target {
    /// Where it is.
    pub place: Place,
    /// Its layout.
    pub layout: Layout,
    /// The slabs of its segment, as they were when this was made.
    pub slabs: Rc<[Option<SlabAt>]>,
    /// Whether its checksums are followed by the mark of its owner.
    pub owners: bool,
    /// The mark of whose stripe it is, if whoever reads it knows.
    pub owner: Option<u32>,
    /// The slots (bits) that could lack strips when this was made ([`Map::may_lack`](crate::segment::Map::may_lack)).
    /// What is read there may be old, though they have all of them by the time that it arrives.
    pub may_lack: u128,
    /// Whether it is only looked at: what is found bad is counted against no disk, told to nobody, and left as it is.
    pub looks: bool,
}

/// What the proof of one stripe found.
pub struct Proven {
    /// Blocks that cannot be read, or are not what was written.
    bad: BTreeSet<Block>,
    /// Blocks whose disk is away.
    pub absent: u64,
    /// Bad blocks that were rewritten from redundancy.
    pub healed: u64,
}

impl Proven {
    /// How many blocks cannot be read, or are not what was written.
    pub fn bad(&self) -> u64 {
        self.bad.len() as u64
    }
}

/// A block of a stripe: (slot, block within the strip).
type Block = (usize, usize);

/// What reading for a plan gave: for every read, its bytes, or the blocks of it that are bad.
pub(super) enum Outcome {
    /// All of it.
    Sound(Vec<IoSlice>),
    /// These blocks cannot be read, or are not what was written.
    Bad(Vec<Block>),
    /// A disk takes too long.
    Overdue,
}

impl Target {
    /// The stripe at `place`, if its segment exists.
    pub fn new(store: &Store, place: Place) -> Option<Target> {
        let map = store.map.borrow();
        let record = &map.segments.get(&place.segment)?.record;
        let SegmentRecord { layout, owners, slabs, .. } = record;
        let (layout, owners, slabs, may_lack) = (*layout, *owners, slabs.clone(), map.may_lack(record));
        Some(Target { place, layout, slabs, owners, owner: None, may_lack, looks: false })
    }

    /// That one, as the version of stripe `stripe` of `table` that its place names: if another one lies there, or
    /// another's, no byte of it is read.
    pub fn owned_by(self, table: TableNo, stripe: u64) -> Target {
        Target { owner: Some(owner_mark(table, stripe, self.place.birth)), ..self }
    }

    /// The stripe at `place`, if its segment exists, for whoever only looks (invariant 5).
    pub fn to_look_at(store: &Store, place: Place) -> Option<Target> {
        Target::new(store, place).map(|target| Target { looks: !mutant::active(Mutant::CheckHeals), ..target })
    }

    /// The disk and the block of its slab at which `block` of `slot` lies.
    pub fn locate(&self, slot: usize, block: usize) -> Option<(SlabAt, u64)> {
        self.slabs[slot].map(|at| (at, self.address(slot, block).block))
    }

    /// The first of the stripe's checksums within its segment's sheet, and one past the last, the mark of its owner
    /// included.
    pub(crate) fn sums_range(&self) -> Range<u64> {
        let each = self.layout.stripe_sums() as u64 + u64::from(self.owners);
        u64::from(self.place.index) * each..(u64::from(self.place.index) + 1) * each
    }

    /// Whether `sums`, those of the stripe, are those of zeros for all blocks of `wants`. The blocks may be others all
    /// the same.
    pub fn seem_zeros(&self, wants: &[Want], sums: &[u32]) -> bool {
        wants.iter().all(|want| {
            let slot = self.layout.slot(self.place.index, want.column, 0);
            want.blocks
                .clone()
                .zip(zero_checksums(self.address(slot, want.blocks.start)))
                .all(|(block, zeros)| sums[self.sum_of(slot, block)] == zeros)
        })
    }

    pub(super) fn sum_of(&self, slot: usize, block: usize) -> usize {
        slot * self.layout.strip_blocks() + block
    }

    /// What the checksum of `block` of a slot begins with.
    pub(super) fn address(&self, slot: usize, block: usize) -> BlockAddress {
        let block = self.place.index as u64 * self.layout.strip_blocks() as u64 + block as u64;
        BlockAddress { segment: self.place.segment, slot: slot as u32, block }
    }
}

impl Store {
    /// Reads `wants` (at most one per column) of a stripe. The caller has pinned it. The answers are in the order of
    /// the wants.
    pub async fn read_stripe(&self, target: &Target, wants: &[Want]) -> Result<Vec<IoSlice>> {
        let part = Part { target: target.clone(), wants: wants.to_vec() };
        self.read_together(&[part], None).await.pop().expect("one answer for one part")
    }

    /// Reads what reading together with others did not give, and says what the checksums are. `is_bad`: some of its
    /// blocks are.
    pub(super) fn read_alone<'a>(
        &'a self,
        target: &'a Target,
        wants: &'a [Want],
        sums: &'a [u32],
        is_bad: bool,
    ) -> LocalBoxFuture<'a, Result<Vec<IoSlice>>> {
        Box::pin(async move {
            // Each turn finds at least one more disk stalled, until no plan does without those that are.
            while !is_bad && let Some(plan) = self.plan_read(target, wants, &BTreeSet::new()) {
                match self.run_in_time(target, &plan, sums).await {
                    Outcome::Sound(slices) => return Ok(answer(target.layout, &plan, wants, slices)),
                    Outcome::Overdue => {}
                    Outcome::Bad(_) => break,
                }
            }
            // Something is bad. Block by block, each with its own plan, what can be had is had.
            let mut bad = BTreeSet::new();
            let mut answers = Vec::with_capacity(wants.len());
            for want in wants {
                let mut whole = Buf::zeroed(want.blocks.len() * BLOCK as usize);
                for (at, block) in want.blocks.clone().enumerate() {
                    let bytes = self.read_block(target, want.column, block, sums, &mut bad).await?;
                    whole[at * BLOCK as usize..][..BLOCK as usize].copy_from_slice(&bytes);
                }
                answers.push(whole.freeze());
            }
            self.heal(target, sums, bad).await;
            Ok(answers)
        })
    }

    /// The plan for such a read as things stand now, without stalled disks where that is possible; `None`: the data is
    /// lost.
    pub fn plan_read(&self, target: &Target, wants: &[Want], bad: &BTreeSet<Block>) -> Option<Plan> {
        self.plan_read_in(target, wants, bad, CHUNK[0])
    }

    /// Plans a read in which one of several copies goes on for `chunk` bytes.
    pub(super) fn plan_read_in(
        &self,
        target: &Target,
        wants: &[Want],
        bad: &BTreeSet<Block>,
        chunk: u64,
    ) -> Option<Plan> {
        let some_stall = target.slabs.iter().flatten().any(|at| self.is_stalled(at.disk));
        let without = if some_stall { self.plan_read_from(target, wants, bad, chunk, true) } else { None };
        without.or_else(|| self.plan_read_from(target, wants, bad, chunk, false))
    }

    fn plan_read_from(
        &self,
        target: &Target,
        wants: &[Want],
        bad: &BTreeSet<Block>,
        chunk: u64,
        without_stalled: bool,
    ) -> Option<Plan> {
        let usable = |slot: usize, blocks: &Range<usize>| {
            let there = target.slabs[slot]
                .is_some_and(|at| self.has_disk(at.disk) && !(without_stalled && self.is_stalled(at.disk)));
            there && (bad.is_empty() || !blocks.clone().any(|block| bad.contains(&(slot, block))))
        };
        // Among several copies, one on a current disk that misses nothing, then the one whose disk is best placed.
        let cost = |slot: usize| {
            let members = self.members.borrow();
            let Some((at, member)) = target.slabs[slot].and_then(|at| Some((at, members.get(&at.disk)?))) else {
                return u64::MAX;
            };
            let stale = (self.misses(target, slot) || !member.current) as u64;
            let first = target.place.index as u64 * target.layout.interleave().0;
            let strip = member.plan.data_at.0 + self.slab.0 * at.slab as u64 + first;
            let rank = self.traffic.lanes.rank(at.disk, strip, target.layout.interleave().0, chunk);
            stale << 63 | (member.slow as u64) << 62 | rank
        };
        plan::read(target.layout, target.place.index, wants, usable, cost)
    }

    /// One block of one column, whatever it takes; blocks found bad are added to `bad`.
    async fn read_block(
        &self,
        target: &Target,
        column: usize,
        block: usize,
        sums: &[u32],
        bad: &mut BTreeSet<Block>,
    ) -> Result<IoSlice> {
        let wants = [Want { column, blocks: block..block + 1 }];
        loop {
            let Some(plan) = self.plan_read(target, &wants, bad) else {
                self.report_lost(target, bad);
                let Place { segment, index, .. } = target.place;
                return Err(lost(format!(
                    "block {block} of column {column} of stripe {index} of segment {segment} is lost: more failed \
                     than {} survives",
                    target.layout
                )));
            };
            match self.run(target, &plan, sums).await {
                Outcome::Sound(bufs) => {
                    let mut answers = answer(target.layout, &plan, &wants, bufs);
                    return Ok(answers.swap_remove(0));
                }
                // A failing disk was taken out meanwhile, or these blocks are bad: the next plan does without them.
                Outcome::Bad(blocks) => {
                    let known = bad.len();
                    bad.extend(blocks);
                    if bad.len() == known {
                        // A disk goes and comes back just now: nothing was learned, and the same at once would be to
                        // spin.
                        self.pause().await;
                    }
                }
                Outcome::Overdue => {}
            }
        }
    }

    /// Reads all of a plan's blocks at once and checks them.
    async fn run(&self, target: &Target, plan: &Plan, sums: &[u32]) -> Outcome {
        let reads = join(plan.reads.iter().map(|read| self.run_read(target, read))).await;
        self.prove(target, plan, sums, reads)
    }

    /// [`Store::run`], but a disk that takes too long is not waited for where the plan could do without it.
    async fn run_in_time(&self, target: &Target, plan: &Plan, sums: &[u32]) -> Outcome {
        if !self.may_do_without(target, plan) {
            return self.run(target, plan, sums).await;
        }
        let reads = join(plan.reads.iter().map(|read| self.run_read_in_time(target, read))).await;
        let mut answered = Vec::with_capacity(reads.len());
        for read in reads {
            match read {
                Ok(Some(buf)) => answered.push(Ok(buf)),
                Ok(None) => return Outcome::Overdue,
                Err(error) => answered.push(Err(error)),
            }
        }
        self.prove(target, plan, sums, answered)
    }

    /// Whether a disk of a plan that takes too long need not be waited for: a plan with a stalled disk in it is one
    /// that needs it.
    pub(super) fn may_do_without(&self, target: &Target, plan: &Plan) -> bool {
        let needed = plan.reads.iter().any(|read| target.slabs[read.slot].is_some_and(|at| self.is_stalled(at.disk)));
        !needed && target.layout.failures() > 0
    }

    /// What reads gave, block by block compared with the checksums.
    pub(super) fn prove(
        &self,
        target: &Target,
        plan: &Plan,
        sums: &[u32],
        reads: Vec<core::result::Result<IoSlice, DiskError>>,
    ) -> Outcome {
        let mut sound = Vec::with_capacity(reads.len());
        let mut bad = Vec::new();
        for (read, result) in plan.reads.iter().zip(reads) {
            match result {
                Ok(buf) => {
                    let wrong = self.verify(target, read, &buf, sums);
                    bad.extend(wrong.into_iter().map(|block| (read.slot, block)));
                    sound.push(buf);
                }
                Err(DiskError::Gone) => bad.push((read.slot, usize::MAX)),
                Err(_) if read.blocks.len() == 1 => {
                    if let Some((at, block)) = target.locate(read.slot, read.blocks.start)
                        && !target.looks
                    {
                        self.bad_block(at.disk, self.slab_offset(at, block), false);
                    }
                    bad.push((read.slot, read.blocks.start));
                }
                // Which of the blocks it is, single reads will tell.
                Err(_) => bad.push((read.slot, usize::MAX)),
            }
        }
        if bad.is_empty() { Outcome::Sound(sound) } else { Outcome::Bad(bad) }
    }

    async fn run_read_in_time(
        &self,
        target: &Target,
        read: &SlotRead,
    ) -> core::result::Result<Option<IoSlice>, DiskError> {
        let (at, block) = target.locate(read.slot, read.blocks.start).ok_or(DiskError::Gone)?;
        let len = read.blocks.len() * BLOCK as usize;
        let read = self.disk_read_in_time(at.disk, self.slab_offset(at, block), len).await;
        read.map(|read| read.map(Buf::freeze))
    }

    async fn run_read(&self, target: &Target, read: &SlotRead) -> core::result::Result<IoSlice, DiskError> {
        if mutant::active(Mutant::CheckReadsShelf)
            && let Some(kept) = self.kept_anywhere(target, read).await
        {
            return Ok(kept);
        }
        let (at, block) = target.locate(read.slot, read.blocks.start).ok_or(DiskError::Gone)?;
        let read = self.disk_read(at.disk, self.slab_offset(at, block), read.blocks.len() * BLOCK as usize).await;
        read.map(Buf::freeze)
    }

    /// The blocks of a read that do not match their checksums.
    fn verify(&self, target: &Target, read: &SlotRead, buf: &[u8], sums: &[u32]) -> Vec<usize> {
        let Some((at, first)) = target.locate(read.slot, read.blocks.start) else { return Vec::new() };
        if mutant::active(Mutant::ReadsUnproven) {
            return Vec::new();
        }
        let mut computed = vec![0; read.blocks.len()];
        block_checksums(target.address(read.slot, read.blocks.start), buf, &mut computed);
        // That a slot lacks what it may have missed is no news.
        let tell = !self.misses(target, read.slot) && !target.looks;
        let mut wrong = Vec::new();
        for (nth, block) in read.blocks.clone().enumerate() {
            if computed[nth] != sums[target.sum_of(read.slot, block)] {
                if tell {
                    self.bad_block(at.disk, self.slab_offset(at, first + nth as u64), true);
                }
                wrong.push(block);
            }
        }
        wrong
    }

    /// Rewrites the bad blocks whose disks are still there.
    async fn heal(&self, target: &Target, sums: &[u32], bad: BTreeSet<Block>) {
        if self.read_only || target.looks {
            return;
        }
        let blocks: Vec<Block> = bad.iter().filter(|(_, block)| *block != usize::MAX).copied().collect();
        for (slot, block) in blocks {
            self.heal_block(target, slot, block, sums, &bad).await;
        }
    }

    /// Computes one bad block from the others and rewrites it. `false`: it could not be computed, or not be written.
    async fn heal_block(
        &self,
        target: &Target,
        slot: usize,
        block: usize,
        sums: &[u32],
        bad: &BTreeSet<Block>,
    ) -> bool {
        let Some((at, offset)) = target.locate(slot, block) else { return false };
        if !self.has_disk(at.disk) {
            return false;
        }
        let mut bad = bad.clone();
        bad.insert((slot, block));
        let column = target.layout.column(target.place.index, slot);
        let Ok(bytes) = self.read_block(target, column, block, sums, &mut bad).await else { return false };
        // Another slot of the segment may have moved: that is no matter of this one.
        let is_home = self.map.borrow().segments.get(&target.place.segment).is_some_and(|now| {
            let others_count = mutant::active(Mutant::MovesStopHealing);
            now.record.slabs[slot] == Some(at) && (!others_count || Rc::ptr_eq(&now.record.slabs, &target.slabs))
        });
        if !is_home {
            return false;
        }
        let to = self.slab_offset(at, offset);
        let healed = self.disk_write(at.disk, to, vec![bytes]).await.is_ok();
        if healed {
            // A disk that is lost before a flush has it no more: that is on record then.
            self.touched(at.disk, target.place.segment);
            self.healed_block(at.disk, to);
        }
        healed
    }

    /// The strip of `slot`, to be written somewhere: read where it is, or computed from the others. `Ok(None)`: with
    /// `in_place`, it is where it belongs. The caller has pinned the stripe.
    pub async fn rebuild_strip(&self, target: &Target, slot: usize, in_place: bool) -> Result<Option<IoSlice>> {
        let sums = self.sums_of(target).await?;
        let blocks = 0..target.layout.strip_blocks();
        let column = target.layout.column(target.place.index, slot);
        let missed = self.misses(target, slot);
        // A strip that is known to be missing is not worth a look; but one of a slot that misses some may be there.
        if target.slabs[slot].is_some_and(|at| self.has_disk(at.disk)) && (in_place || !missed) {
            let own = Plan { reads: vec![SlotRead { slot, column, blocks: blocks.clone() }], ..Plan::default() };
            if let Outcome::Sound(mut bufs) = self.run(target, &own, &sums).await {
                return Ok(if in_place { None } else { bufs.pop() });
            }
        }
        let wants = [Want { column, blocks: blocks.clone() }];
        let mut bad: BTreeSet<Block> = blocks.clone().map(|block| (slot, block)).collect();
        if let Some(plan) = self.plan_read(target, &wants, &bad)
            && let Outcome::Sound(bufs) = self.run(target, &plan, &sums).await
        {
            return Ok(answer(target.layout, &plan, &wants, bufs).pop());
        }
        // Block by block, the slot's own included where they are sound.
        bad.clear();
        let mut whole = Buf::zeroed(blocks.len() * BLOCK as usize);
        for block in blocks {
            let bytes = self.read_block(target, column, block, &sums, &mut bad).await?;
            whole[block * BLOCK as usize..][..BLOCK as usize].copy_from_slice(&bytes);
        }
        Ok(Some(whole.freeze()))
    }

    /// Reads every strip of a stripe, parity included, and proves it. Bad blocks are rewritten, unless it is only
    /// looked at. The caller has pinned the stripe, and it is committed.
    pub async fn prove_stripe(&self, target: &Target) -> Result<Proven> {
        let sums = self.sums_of(target).await?;
        let proven = join((0..target.layout.slots()).map(|slot| self.prove_strip(target, slot, &sums))).await;
        let blocks = target.layout.strip_blocks() as u64;
        let absent = proven.iter().filter(|proven| proven.is_none()).count() as u64 * blocks;
        let bad: BTreeSet<Block> = proven.into_iter().flatten().flatten().collect();
        let mut healed = 0;
        if !target.looks {
            for (slot, block) in &bad {
                healed += self.heal_block(target, *slot, *block, &sums, &bad).await as u64;
            }
        }
        Ok(Proven { bad, absent, healed })
    }

    /// How many of the bad blocks can be computed from what is left of their stripe.
    pub fn curable(&self, target: &Target, proven: &Proven) -> u64 {
        let can_be_had = |(slot, block): &&Block| {
            let column = target.layout.column(target.place.index, *slot);
            self.plan_read(target, &[Want { column, blocks: *block..*block + 1 }], &proven.bad).is_some()
        };
        proven.bad.iter().filter(can_be_had).count() as u64
    }

    /// Whether some of the stripe's data cannot be had any more.
    pub fn is_lost(&self, target: &Target, proven: &Proven) -> bool {
        if proven.bad.is_empty() && proven.absent == 0 {
            return false;
        }
        let rows: BTreeSet<usize> = proven.bad.iter().map(|(_, block)| *block).collect();
        // Rows that nothing is wrong with but absent disks are all alike.
        let other = (0..target.layout.strip_blocks()).find(|block| !rows.contains(block));
        rows.into_iter().chain(other).any(|block| {
            let want = |column| Want { column, blocks: block..block + 1 };
            let wants: Vec<Want> = (0..target.layout.data_columns()).map(want).collect();
            self.plan_read(target, &wants, &proven.bad).is_none()
        })
    }

    /// The slots (bits) whose strip has no disk, or is not all there. The caller has pinned the stripe, and it is
    /// committed.
    pub async fn slots_lacking(&self, target: &Target) -> Result<u128> {
        let sums = self.sums_of(target).await?;
        let proven = join((0..target.layout.slots()).map(|slot| self.prove_strip(target, slot, &sums))).await;
        let lacks = |proven: &Option<Vec<Block>>| proven.as_ref().is_none_or(|bad| !bad.is_empty());
        Ok(proven.iter().enumerate().fold(0, |set, (slot, proven)| set | (lacks(proven) as u128) << slot))
    }

    /// The bad blocks of one strip; `None`: it has no disk, or lost it meanwhile, and what was not answered then is no
    /// finding.
    async fn prove_strip(&self, target: &Target, slot: usize, sums: &[u32]) -> Option<Vec<Block>> {
        let at = target.slabs[slot].filter(|at| self.has_disk(at.disk))?;
        let losses = self.losses(at.disk);
        let bad = self.bad_in_strip(target, slot, sums).await;
        (self.losses(at.disk) == losses || mutant::active(Mutant::GoneCountsAsBad)).then_some(bad)
    }

    async fn bad_in_strip(&self, target: &Target, slot: usize, sums: &[u32]) -> Vec<Block> {
        let column = target.layout.column(target.place.index, slot);
        let blocks = target.layout.strip_blocks();
        let plan = |blocks: Range<usize>| Plan { reads: vec![SlotRead { slot, column, blocks }], ..Plan::default() };
        let Outcome::Bad(found) = self.run(target, &plan(0..blocks), sums).await else { return Vec::new() };
        if found.iter().all(|(_, block)| *block != usize::MAX) {
            return found;
        }
        let mut bad = Vec::new();
        for block in 0..blocks {
            if let Outcome::Bad(_) = self.run(target, &plan(block..block + 1), sums).await {
                bad.push((slot, block));
            }
        }
        bad
    }

    /// Whether a slot holds another strip than that of these checksums: all of it can be read, and nothing is right but
    /// zeros, which may have been there before. Where some is right, a block rotted.
    pub(super) async fn holds_another(&self, target: &Target, slot: usize, sums: &[u32]) -> bool {
        let column = target.layout.column(target.place.index, slot);
        let all = 0..target.layout.strip_blocks();
        let reads = vec![SlotRead { slot, column, blocks: all.clone() }];
        let Outcome::Bad(wrong) = self.run(target, &Plan { reads, ..Plan::default() }, sums).await else {
            return false;
        };
        let zeros = zero_checksums(target.address(slot, 0));
        wrong.iter().all(|(_, block)| *block != usize::MAX)
            && all
                .zip(zeros)
                .all(|(block, zeros)| wrong.contains(&(slot, block)) || sums[target.sum_of(slot, block)] == zeros)
    }

    /// Whether this slot may lack strips, or could when somebody set out to read there.
    fn misses(&self, target: &Target, slot: usize) -> bool {
        let map = self.map.borrow();
        let now = map.segments.get(&target.place.segment).map_or(0, |segment| map.may_lack(&segment.record));
        let before = if mutant::active(Mutant::LateReadAccuses) { 0 } else { target.may_lack };
        (before | now) >> slot & 1 == 1
    }

    fn report_lost(&self, target: &Target, bad: &BTreeSet<Block>) {
        for (slot, block) in bad.iter().filter(|(_, block)| *block != usize::MAX) {
            if let Some((at, block)) = target.locate(*slot, *block) {
                self.world.emit(Event::BlockLost { disk: at.disk, at: self.slab_offset(at, block) });
            }
        }
    }
}

/// The wanted bytes from what a plan read, missing columns computed.
pub(super) fn answer(layout: Layout, plan: &Plan, wants: &[Want], slices: Vec<IoSlice>) -> Vec<IoSlice> {
    let computed = compute(layout, plan, &slices);
    let of = |want: &Want| {
        if let Some(at) = plan.compute.iter().position(|column| *column == want.column) {
            return cut(&computed[at], &plan.over, &want.blocks);
        }
        let read = plan.reads.iter().position(|read| read.column == want.column);
        let at = read.expect("a plan reads what it does not compute");
        cut(&slices[at], &plan.reads[at].blocks, &want.blocks)
    };
    wants.iter().map(of).collect()
}

fn compute(layout: Layout, plan: &Plan, slices: &[IoSlice]) -> Vec<IoSlice> {
    if plan.compute.is_empty() {
        return Vec::new();
    }
    let len = plan.over.len() * BLOCK as usize;
    let have: Vec<(usize, &[u8])> = plan
        .reads
        .iter()
        .zip(slices)
        .filter(|(read, _)| read.blocks.start <= plan.over.start && plan.over.end <= read.blocks.end)
        .map(|(read, slice)| (read.column, &slice[(plan.over.start - read.blocks.start) * BLOCK as usize..][..len]))
        .take(layout.data_columns())
        .collect();
    let mut made: Vec<Buf> = plan.compute.iter().map(|_| Buf::zeroed(len)).collect();
    let mut want: Vec<(usize, &mut [u8])> =
        plan.compute.iter().copied().zip(made.iter_mut().map(|buf| &mut **buf)).collect();
    parity::reconstruct(layout.data_columns(), &have, &mut want);
    made.into_iter().map(Buf::freeze).collect()
}

fn cut(slice: &IoSlice, from: &Range<usize>, want: &Range<usize>) -> IoSlice {
    slice.slice((want.start - from.start) * BLOCK as usize..(want.end - from.start) * BLOCK as usize)
}
