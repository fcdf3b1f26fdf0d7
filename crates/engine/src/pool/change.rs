//! Another layout for a virtual disk that is used: what that would come to, and its beginning. A table of the new
//! layout comes on top of the one there is (`vdisk/restack.rs`), and a job empties that (`job/reshape.rs`).

use super::plan::check_fits_tables;
use super::{Pool, Refusal, segments_for};
use crate::disk_set::DiskSet;
use crate::error::Result;
use crate::exec::LocalBoxFuture;
use crate::fail;
use crate::format::record::{JOB_LEN, JobKind, JobState, TABLE_LEN, VdiskRecord};
use crate::geometry::{Layout, Resiliency};
use crate::segment::Map;
use crate::store::table_pages::HeldTable;
use crate::units::{ByteCount, JobNo, VdiskNo};
use alloc::boxed::Box;
use alloc::rc::Rc;

/// Segments of the new layout for which there is room, at least, when it begins: one to fill, one for clients.
const SEGMENTS_MIN: u64 = 2;

/// Another layout that is asked for; what is left out stays, as far as it suits the rest.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct ChangeAsk {
    /// What protects the data.
    pub resiliency: Option<Resiliency>,
    /// Columns.
    pub columns: Option<u8>,
    /// Interleave.
    pub interleave: Option<ByteCount>,
}

/// What a change of layout comes to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ChangePlan {
    /// How it lies: as a whole, or what is still to be moved.
    pub from: Layout,
    /// How it will lie.
    pub to: Layout,
    /// Bytes of data that are to be moved.
    pub moves: ByteCount,
    /// Whether the change has begun before, and goes on.
    pub goes_on: bool,
}

impl ChangePlan {
    /// Whether nothing is to be done.
    pub fn is_already_so(&self) -> bool {
        self.from == self.to && !self.goes_on
    }
}

impl Pool {
    /// Plans another layout for the virtual disk `name`.
    pub fn plan_vdisk_change<'a>(
        &'a self,
        name: &'a str,
        ask: &'a ChangeAsk,
    ) -> LocalBoxFuture<'a, core::result::Result<ChangePlan, Refusal>> {
        Box::pin(async move {
            let _held = self.hold_table_of(name).await?;
            self.plan_change(name, ask)
        })
    }

    /// Brings the newest table of a virtual disk into memory, which is looked through as a whole.
    async fn hold_table_of(&self, name: &str) -> core::result::Result<HeldTable<'_>, Refusal> {
        let Some(vdisk) = self.vdisk(name) else { return Err(Refusal::Unknown(name.into())) };
        let table = self.store.map.borrow().vdisks[&vdisk.id()].tables[0];
        Ok(self.store.hold_whole_table(table).await?)
    }

    /// Does what [`Pool::plan_vdisk_change`] does, with the table in memory.
    fn plan_change(&self, name: &str, ask: &ChangeAsk) -> core::result::Result<ChangePlan, Refusal> {
        self.store.check_changeable()?;
        let Some(vdisk) = self.vdisk(name) else { return Err(Refusal::Unknown(name.into())) };
        if let Some(error) = vdisk.failure() {
            return Err(error.into());
        }
        let map = self.store.map.borrow();
        let record = &map.vdisks[&vdisk.id()];
        let (layout, disks) = (vdisk.layout(), vdisk.disks());
        if record.tables.len() > 1 {
            let from = map.tables[&record.tables[1]].record.layout;
            let moves = ByteCount(map.bytes_in_older(record.id));
            return Ok(going_on(&map, layout, disks, ask).map(|to| ChangePlan { from, to, moves, goes_on: true })?);
        }
        let to = wanted(&map, layout, disks, ask)?;
        let moves = layout.data_len() * map.tables[&record.tables[0]].mapped;
        let plan = ChangePlan { from: layout, to, moves, goes_on: false };
        if plan.is_already_so() {
            return Ok(plan);
        }
        let there = map.disks_for(disks).count();
        if to.slots() > there {
            return Err(Refusal::TooFewDisks { layout: to, there, named: !disks.is_empty() });
        }
        if to.interleave() > map.slab {
            let (interleave, slab) = (to.interleave(), map.slab);
            fail!(InvalidInput, "the interleave {interleave} is larger than the pool's slabs of {slab}")?;
        }
        if record.tier.is_some() || map.tier_of(record.tables[0]).is_some() {
            fail!(
                NotPossible,
                "{name} has a fast tier: it is to have none while it is given another layout, and can get one \
                 afterwards"
            )?;
        }
        if let Some(cache) = record.cache.filter(|cache| cache.layout.failures() < to.failures()) {
            fail!(
                NotPossible,
                "its write-back cache survives {} failures, and {to} survives {}: it is to have none, or a larger one \
                 afterwards",
                cache.layout.failures(),
                to.failures()
            )?;
        }
        check_fits_tables(to, record.size)?;
        map.check_config_room((TABLE_LEN + JOB_LEN) as u64)?;
        check_room(&map, record, to, disks)?;
        Ok(plan)
    }

    /// Gives a virtual disk another layout, while it is used; `at` is the time in Unix seconds. The number of the job
    /// that brings its data there; none: it is so already.
    pub fn vdisk_change<'a>(
        &'a self,
        name: &'a str,
        ask: &'a ChangeAsk,
        at: u64,
    ) -> LocalBoxFuture<'a, Result<Option<JobNo>>> {
        Box::pin(async move {
            let plan = self.plan_vdisk_change(name, ask).await?;
            if plan.is_already_so() {
                return Ok(None);
            }
            if !plan.goes_on {
                self.store.announce_stacks().await?;
            }
            let id = self.change_layout(name, ask, at).await?;
            self.store.make_durable(self.store.log.seq()).await?;
            Ok(id)
        })
    }

    async fn change_layout(&self, name: &str, ask: &ChangeAsk, at: u64) -> Result<Option<JobNo>> {
        let Some(vdisk) = self.vdisk(name) else { return Err(Refusal::Unknown(name.into()).into()) };
        let kind = JobKind::Reshape(vdisk.id());
        let _held = self.hold_table_of(name).await?;
        if self.plan_change(name, ask)?.goes_on {
            return Ok(Some(self.go_on(kind, at)));
        }
        while self.change_waits_for_slabs(vdisk.id(), self.plan_change(name, ask)?.to) {
            self.store.drained_some().await;
        }
        let _closed = vdisk.calm().await?;
        // Another one may be called so by now.
        if self.vdisk(name).is_none_or(|now| !Rc::ptr_eq(&now, &vdisk)) {
            return fail!(NotFound, "there is no virtual disk named {name} any more");
        }
        // Nothing waits from here to the job: a crash finds all of it, or nothing.
        let ChangePlan { to, goes_on, .. } = self.plan_change(name, ask)?;
        if goes_on {
            return Ok(Some(self.go_on(kind, at)));
        }
        let segments = {
            let map = self.store.map.borrow();
            let record = &map.vdisks[&vdisk.id()];
            if record.fixed { segments_for(to, record.size, map.slab) } else { 0 }
        };
        vdisk.put_on_top(to, segments)?;
        let job = self.begin_job(kind, at);
        // It may need more copies of the log than there are: clients wait for those.
        self.store.move_log().await?;
        self.store.make_durable(self.store.log.seq()).await?;
        Ok(Some(job))
    }

    /// The job that goes on with a change: one that waits, also for a person, or another one.
    fn go_on(&self, kind: JobKind, at: u64) -> JobNo {
        let id = self.begin_job(kind, at);
        self.wake_job(id, JobState::Paused);
        id
    }

    /// Whether there is room for a fixed virtual disk, but some of it still drains.
    fn change_waits_for_slabs(&self, id: VdiskNo, to: Layout) -> bool {
        let map = self.store.map.borrow();
        let Some(record) = map.vdisks.get(&id).filter(|record| record.fixed && map.is_draining()) else { return false };
        let disks = map.tables[&record.tables[0]].record.disks;
        map.segments_reservable_now(to, disks) < segments_for(to, record.size, map.slab)
    }
}

/// The layout that is asked for, of one that is `now`.
fn wanted(map: &Map, now: Layout, disks: DiskSet, ask: &ChangeAsk) -> Result<Layout> {
    let resiliency = ask.resiliency.unwrap_or(now.resiliency());
    let there = map.disks_for(disks).count();
    let rotational = map.seeks(disks);
    let columns = match ask.columns {
        Some(columns) => columns,
        None if resiliency == now.resiliency() => now.columns() as u8,
        None => Layout::default_for(resiliency, there, rotational)?.columns() as u8,
    };
    Layout::new(resiliency, columns, ask.interleave.unwrap_or(now.interleave()))
}

/// The layout of a change that is under way: no other may be asked for.
fn going_on(map: &Map, to: Layout, disks: DiskSet, ask: &ChangeAsk) -> Result<Layout> {
    match wanted(map, to, disks, ask) {
        Ok(layout) if layout == to => Ok(to),
        _ => fail!(
            NotPossible,
            "a change to {to} is under way; when that has ended, it can be given another layout (`weft job list` says \
             how far it is)"
        ),
    }
}

/// Refuses a change for which there is no room: for all of a fixed virtual disk at once, or else for what is mapped,
/// where what is moved makes room for the next.
fn check_room(map: &Map, record: &VdiskRecord, to: Layout, disks: DiskSet) -> core::result::Result<(), Refusal> {
    if record.fixed {
        let room = map.room_for(to, 0, disks);
        return match segments_for(to, record.size, map.slab) > map.segments_reservable(to, disks) {
            true => Err(Refusal::NoRoom { layout: to, size: Some(record.size), room }),
            false => Ok(()),
        };
    }
    let per_segment = to.segment_stripes(map.slab) as u64;
    let stripes = map.stripes_above(&record.tables, to.data_len().0, record.size.0);
    let possible = map.segments_without(&record.tables, to, disks);
    let needed = stripes.div_ceil(per_segment) + SEGMENTS_MIN - 1;
    if needed > possible || map.segments_possible(to, disks) < SEGMENTS_MIN {
        let room = match needed > possible {
            true => to.data_len() * per_segment * possible.saturating_sub(SEGMENTS_MIN - 1),
            false => map.room_for(to, 0, disks),
        };
        return Err(Refusal::NoRoom { layout: to, size: Some(to.data_len() * stripes), room });
    }
    Ok(())
}
