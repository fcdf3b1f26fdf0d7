//! Judges redundancy before anything heals it: every strip that is not there, or not what it should be, has a reason,
//! or it was lost in silence.
//!
//! The reasons: its slot has no disk, or one that is away; its slot is on record as one that missed strips; its disk is
//! on record as one of which nobody knows what it lacks; or the disk harmed it, and owns up to that in its ledger
//! ([`SimDisk::harmed`](crate::disk::SimDisk::harmed)).

use crate::rig::Rig;
use std::collections::BTreeSet;
use std::rc::Rc;
use weft_engine::format::record::Away;
use weft_engine::pool::Pool;
use weft_engine::pool::check::CheckReport;
use weft_engine::pool::job::has_ended;
use weft_engine::store::execute::Target;
use weft_engine::store::table_pages::For;
use weft_engine::stripe::table::Place;
use weft_engine::units::{BLOCK, ByteCount, DiskNo, DiskOffset, TableNo};

/// How often a strip that seems to be lacking is looked at again: a read may fail once, and once more.
const LOOKS: usize = 4;

/// A strip that is not there.
#[derive(PartialEq, Eq)]
struct Lack {
    slot: usize,
    disk: DiskNo,
    at: DiskOffset,
    len: u64,
}

/// Judges what a check found of a pool that says that it is well: nothing.
pub(super) fn judge_check(report: &CheckReport) -> Result<(), String> {
    match report.is_sound() {
        true => Ok(()),
        false => Err(format!("it says that it is well, but the check finds {report:?}")),
    }
}

/// Finds strips that are lacking without a reason. `place_of` tells which simulated disk a member is; those in `liars`
/// may lack anything.
pub(super) fn judge(
    rig: &Rig,
    place_of: impl Fn(DiskNo) -> Option<usize>,
    liars: &BTreeSet<usize>,
) -> Result<(), String> {
    let pool = rig.pool();
    let tables: Vec<TableNo> = pool.store().map.borrow().tables.keys().copied().collect();
    for table in tables {
        let mut next = 0;
        while let Some((stripe, place)) = pin_next(rig, table, next)? {
            next = stripe + 1;
            let found = judge_stripe(rig, place, &place_of, liars);
            let records = pool.store().map.borrow_mut().unpin(place);
            pool.store().append_all(records);
            if let Some(lack) = found? {
                return Err(format!(
                    "slot {} of stripe {stripe} at {place:?} lacks its strip on disk {} at {:?} without any record or harm: redundancy was lost in silence",
                    lack.slot, lack.disk, lack.at
                ));
            }
        }
    }
    Ok(())
}

/// The first stripe of `table` from `from` on, pinned where it lies.
fn pin_next(rig: &Rig, table: TableNo, from: u64) -> Result<Option<(u64, Place)>, String> {
    let pool = rig.pool();
    rig.world
        .block_on_within(crate::rig::TIMEOUT, async move { pool.store().pin_next(table, from, For::Look).await })
        .map_err(|stop| format!("reading a stripe table hangs ({stop:?}): {:?}", rig.world.tasks()))?
        .map_err(|error| format!("reading a stripe table: {error}"))
}

/// A strip of this stripe that is lacking without a reason. A job may mend a strip, or move its slot, after it was seen
/// to lack and before the ledger is asked: what is found is looked at again, with the ledger of before and of after.
fn judge_stripe(
    rig: &Rig,
    place: Place,
    place_of: &impl Fn(DiskNo) -> Option<usize>,
    liars: &BTreeSet<usize>,
) -> Result<Option<Lack>, String> {
    let owned = |lack: &Lack| {
        let overlaps = |at: DiskOffset| at < DiskOffset(lack.at.0 + lack.len) && at.0 + BLOCK > lack.at.0;
        place_of(lack.disk)
            .is_none_or(|disk| liars.contains(&disk) || rig.disks[disk].harmed().iter().any(|(at, _)| overlaps(*at)))
    };
    let mut suspects = look(rig, place)?;
    suspects.retain(|lack| !owned(lack));
    if suspects.is_empty() {
        return Ok(None);
    }
    for _ in 0..LOOKS {
        let again = look(rig, place)?;
        suspects.retain(|lack| again.contains(lack) && !owned(lack));
        if suspects.is_empty() {
            break;
        }
    }
    Ok(suspects.pop())
}

/// The strips of a stripe that are lacking, but for those that the pool knows of.
fn look(rig: &Rig, place: Place) -> Result<Vec<Lack>, String> {
    let pool = rig.pool();
    rig.world
        .block_on_within(crate::rig::TIMEOUT, async move { lacks_without_record(&pool, place).await })
        .map_err(|stop| format!("proving every strip hangs ({stop:?}): {:?}", rig.world.tasks()))?
        .map_err(|error| format!("proving every strip: {error}"))
}

async fn lacks_without_record(pool: &Rc<Pool>, place: Place) -> weft_engine::error::Result<Vec<Lack>> {
    let store = pool.store();
    // A repair may mend a strip, and say so, between the look at the strip and the look at the records.
    let before = excused(pool, place);
    let Some(target) = Target::new(store, place) else { return Ok(Vec::new()) };
    let lacking = store.slots_lacking(&target).await? & !(before | excused(pool, place));
    let lacks = (0..target.layout.slots()).filter(|slot| lacking >> slot & 1 == 1).filter_map(|slot| {
        let (at, block) = target.locate(slot, 0)?;
        let len = target.layout.interleave().0.next_multiple_of(BLOCK);
        Some(Lack { slot, disk: at.disk, at: store.slab_offset(at, block), len })
    });
    Ok(lacks.collect())
}

/// The slots (bits) that may lack strips, as far as the pool knows.
fn excused(pool: &Rc<Pool>, place: Place) -> u128 {
    let store = pool.store();
    let map = store.map.borrow();
    let Some(segment) = map.segments.get(&place.segment) else { return u128::MAX };
    let slots = segment.record.slabs.iter().enumerate().filter(|(_, at)| {
        at.is_none_or(|at| {
            let away = map.disks.get(&at.disk).is_none_or(|disk| disk.record.away == Away::Unknown);
            away || !store.has_disk(at.disk)
        })
    });
    slots.fold(segment.record.missed, |set, (slot, _)| set | 1 << slot)
}

/// Whether the pool goes on without the disks `hit`: nothing else is missing or behind, the layout can do without them,
/// and so can the votes and the log.
pub(super) fn survives(pool: &Pool, hit: &[usize], failures: usize) -> bool {
    let store = pool.store();
    let well = store.members.borrow().iter().all(|(_, member)| member.disk.is_some() && member.current);
    if !well || pool.unsound_bytes() != ByteCount::ZERO || hit.len() > failures {
        return false;
    }
    let members = store.members.borrow();
    let is_hit =
        |no: DiskNo| hit.iter().any(|at| members.get(&no).is_some_and(|member| member.id.0 == [*at as u8 + 1; 16]));
    let left = |disks: Vec<DiskNo>| (disks.iter().filter(|no| !is_hit(**no)).count(), disks.len());
    let goes_on = |(votes, voters): (usize, usize)| votes * 2 >= voters;
    // Those of the last durable label count, too: the next one may be on its way.
    let durable = store.labels.durable.get().voters;
    let durable = durable.iter().collect();
    let (logs, _) = left(store.loggers());
    // While a job runs, metadata that it has moved may be known by its old place only.
    let current = members.keys().copied().filter(|no| store.is_current(*no) && !is_hit(*no)).collect();
    let found = !pool.jobs().iter().any(|job| !has_ended(job.state)) || store.metadata_beyond(current).is_none();
    goes_on(left(store.voters())) && goes_on(left(durable)) && logs > 0 && found
}
