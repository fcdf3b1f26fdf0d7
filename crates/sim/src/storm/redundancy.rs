//! Judges redundancy before anything heals it: every strip that is not there, or not what it should be, has a reason, or it was lost in silence.
//!
//! The reasons: its slot has no disk, or one that is away; its slot is on record as one that missed strips; its disk is on record as one of which nobody knows
//! what it lacks; or the disk harmed it, and owns up to that in its ledger ([`SimDisk::harmed`](crate::disk::SimDisk::harmed)).

use crate::rig::Rig;
use std::collections::BTreeSet;
use std::rc::Rc;
use weft_engine::format::record::Away;
use weft_engine::pool::Pool;
use weft_engine::stripe::execute::Target;
use weft_engine::stripe::table::Place;
use weft_engine::units::{BLOCK, ByteCount, DiskOffset};

/// A strip that is not there.
struct Lack {
    stripe: u64,
    place: Place,
    slot: usize,
    disk: u16,
    at: DiskOffset,
    len: u64,
}

/// Finds strips that are lacking without a reason. `place_of` tells which simulated disk a member is; those in `liars` may lack anything.
pub(super) fn judge(rig: &Rig, place_of: impl Fn(u16) -> Option<usize>, liars: &BTreeSet<usize>) -> Result<(), String> {
    let pool = rig.pool();
    let lacks = rig
        .world
        .block_on_within(crate::rig::PATIENCE, async move { lacks_without_record(&pool).await })
        .map_err(|stop| format!("proving every strip hangs ({stop:?}): {:?}", rig.world.tasks()))?;
    for lack in lacks.map_err(|error| format!("proving every strip: {error}"))? {
        let Some(disk) = place_of(lack.disk) else { continue };
        let harmed = |at: &DiskOffset| *at < DiskOffset(lack.at.0 + lack.len) && at.0 + BLOCK > lack.at.0;
        if !liars.contains(&disk) && !rig.disks[disk].harmed().iter().any(|(at, _)| harmed(at)) {
            return Err(format!(
                "slot {} of stripe {} at {:?} lacks its strip on disk {disk} without any record or harm: redundancy was lost in silence",
                lack.slot, lack.stripe, lack.place
            ));
        }
    }
    Ok(())
}

async fn lacks_without_record(pool: &Rc<Pool>) -> weft_engine::error::Result<Vec<Lack>> {
    let store = pool.store();
    let mut lacks = Vec::new();
    let tables: Vec<u32> = store.map.borrow().tables.keys().copied().collect();
    for table in tables {
        let mut next = 0;
        loop {
            let (stripe, place) = {
                let mut map = store.map.borrow_mut();
                let Some((stripe, place)) = map.tables.get(&table).and_then(|table| table.mapped_from(next).next())
                else {
                    break;
                };
                map.pin(place);
                (stripe, place)
            };
            next = stripe + 1;
            // A repair may mend a strip, and say so, between the look at the strip and the look at the records.
            let before = excused(pool, place);
            let target = Target::new(store, place);
            let lacking = match &target {
                Some(target) => store.slots_lacking(target).await,
                None => Ok(0),
            };
            let excused = before | excused(pool, place);
            let records = store.map.borrow_mut().unpin(place);
            store.append_all(records);
            let (Some(target), lacking) = (target, lacking? & !excused) else { continue };
            for slot in (0..target.layout.slots()).filter(|slot| lacking >> slot & 1 == 1) {
                let Some((at, block)) = target.locate(slot, 0) else { continue };
                let len = target.layout.interleave().0.next_multiple_of(ByteCount(BLOCK).0);
                let offset = store.slab_offset(at, block);
                lacks.push(Lack { stripe, place, slot, disk: at.disk, at: offset, len });
            }
        }
    }
    Ok(lacks)
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
