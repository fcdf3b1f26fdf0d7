//! What a pool shows of itself: plain values, from which text and JSON are drawn outside.

use super::Pool;
use super::leaving::{Instead, losses_without, survivable};
use super::mover::moves_beside_clients;
use super::plan::Class;
use crate::format::Id;
use crate::format::record::{Away, CacheChoice, CacheRecord, Media, OWNER_METADATA, TierRecord, Usage};
use crate::geometry::Layout;
use crate::health::{DiskFacts, disk_health, disk_state, pool_health, vdisk_health};
use crate::io::WriteCache;
use crate::segment::fine::UNIT;
use crate::store::DiskCounters;
use crate::store::power::Power;
use crate::store::shelf::ShelfInfo;
use crate::units::Nanos;
use crate::units::{ByteCount, DiskNo};
use crate::vdisk::VdiskCounters;
use crate::vdisk::tier::TierFill;
use alloc::string::String;
use alloc::vec::Vec;

pub use crate::health::{DiskState, Health};

/// A pool.
#[derive(Clone, Debug)]
pub struct PoolInfo {
    /// Its identity.
    pub id: Id,
    /// Its name.
    pub name: String,
    /// See [`Health`].
    pub health: Health,
    /// Whether writes are refused.
    pub read_only: bool,
    /// Bytes of a slab.
    pub slab: ByteCount,
    /// Bytes of all slabs.
    pub capacity: ByteCount,
    /// Bytes of slabs in segments.
    pub allocated: ByteCount,
    /// Allocated bytes that are in metadata segments.
    pub metadata: ByteCount,
    /// Bytes of free slabs, and of those that were let go and are free in a moment.
    pub free: ByteCount,
    /// The label epoch.
    pub epoch: u64,
    /// Log bytes in use, and the size of the log.
    pub log: (ByteCount, ByteCount),
    /// Bytes in stripe buffers.
    pub buffered: ByteCount,
    /// Log batches and checkpoints since the pool was opened.
    pub batches: u64,
    /// Log bytes written since, one copy.
    pub log_written: u64,
    /// Checkpoints that were taken since the pool was opened.
    pub checkpoints: u64,
    /// Damaged metadata copies rewritten since.
    pub metadata_healed: u64,
    /// Its disks.
    pub disks: Vec<DiskInfo>,
    /// Its virtual disks.
    pub vdisks: Vec<VdiskInfo>,
}

/// A disk of a pool.
#[derive(Clone, Debug)]
pub struct DiskInfo {
    /// Its number.
    pub no: DiskNo,
    /// Its name.
    pub name: String,
    /// Its identity.
    pub id: Id,
    /// Bytes weft uses of it.
    pub size: ByteCount,
    /// Bytes of its slabs.
    pub capacity: ByteCount,
    /// Bytes of its slabs in segments.
    pub allocated: ByteCount,
    /// See [`DiskState`].
    pub state: DiskState,
    /// See [`Media`].
    pub media: Media,
    /// See [`Usage`].
    pub usage: Usage,
    /// What may fail with it; empty: nothing.
    pub domain: String,
    /// Whether it carries the log.
    pub logs: bool,
    /// Whether it gets the log a moment later than those that carry it, for them to be lost together.
    pub follows: bool,
    /// Its room for the log.
    pub log_len: ByteCount,
    /// Whether it votes: a majority of those that do opens the pool.
    pub votes: bool,
    /// What is known of its cache: whether it is flushed.
    pub power: Power,
    /// See [`DiskCounters`].
    pub counters: DiskCounters,
    /// How long its last thousand reads and writes took.
    pub latency: Latency,
    /// Whether it was taken out because there was no room below it.
    pub out_of_room: bool,
    /// The virtual disks whose layouts would find too few disks without it; only of disks that take nothing new, and so
    /// could leave.
    pub needed_by: Vec<String>,
}

/// How long requests take.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Latency {
    /// Half of them no longer than this.
    pub median: Nanos,
    /// 99 of 100 no longer than this.
    pub p99: Nanos,
    /// The slowest since the pool was opened.
    pub slowest: Nanos,
}

/// A virtual disk.
#[derive(Clone, Debug)]
pub struct VdiskInfo {
    /// Its name.
    pub name: String,
    /// Its size.
    pub size: ByteCount,
    /// Bytes of its logical sector.
    pub sector: u32,
    /// Its layout: that of its newest table, which is written to.
    pub layout: Layout,
    /// The layouts of its older tables, and the bytes that still lie in them, newest first.
    pub older: Vec<(Layout, ByteCount)>,
    /// Whether its slabs were reserved when it was made.
    pub fixed: bool,
    /// Bytes of mapped stripes (user data).
    pub mapped: ByteCount,
    /// Bytes of its slabs.
    pub footprint: ByteCount,
    /// Bytes of it that lie in packed stripes, above the others.
    pub packed: ByteCount,
    /// What it makes of writes that are smaller than its stripes.
    pub class: Class,
    /// The share of its size that may lie in packed stripes, in thousandths, where it has one of its own.
    pub fine_share: Option<u16>,
    /// Its write-back cache.
    pub cache: Option<CacheRecord>,
    /// Who says what that is, also where there is none.
    pub cache_choice: CacheChoice,
    /// Its fast tier.
    pub tier: Option<TierRecord>,
    /// How that is filled, or one that it had and that still holds something.
    pub tier_fill: Option<TierFill>,
    /// Whether that takes nothing now, and empties itself.
    pub drains: bool,
    /// Its read cache.
    pub read_cache: Option<ShelfInfo>,
    /// How many bytes packed stripes of it may have, as things stand now; 0: small writes are merged.
    pub packed_max: ByteCount,
    /// Whether what lies there is brought down although clients ask for something.
    pub moves: bool,
    /// Whether some of it may have to be put in order when nobody asks for anything.
    pub to_be_ordered: bool,
    /// See [`Health`].
    pub health: Health,
    /// Segments with a missing slot or disk.
    pub degraded_segments: u64,
    /// How many more disks its worst segment can lose, and the pool's metadata with them.
    pub failures_left: u32,
    /// How many disks what is written from now on can lose; none: it finds too few disks to be written at all.
    pub failures_new: Option<u32>,
    /// Why writes were lost for good, if they were.
    pub failure: Option<String>,
    /// See [`crate::vdisk::VdiskCounters`].
    pub counters: VdiskStat,
}

/// [`crate::vdisk::VdiskCounters`] as plain numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct VdiskStat {
    pub read: u64,
    pub written: u64,
    pub reads: u64,
    pub writes: u64,
    pub flushes: u64,
    pub whole: u64,
    pub merged: u64,
    pub landed: u64,
    pub read_for_write: u64,
    pub packed: u64,
    pub read_packed: u64,
    pub packed_parts: u64,
    pub repacked: u64,
    pub destaged: u64,
    pub destaged_stripes: u64,
    pub ordered: u64,
    pub promoted: u64,
    pub demoted: u64,
    pub read_fast: u64,
    pub read_kept: u64,
    pub kept_hits: u64,
    pub kept_misses: u64,
}

impl Pool {
    /// Everything the pool shows of itself, as of now.
    pub fn info(&self) -> PoolInfo {
        let store = &self.store;
        let disks = self.disk_infos();
        let vdisks: Vec<VdiskInfo> = self.vdisks().iter().map(|vdisk| self.vdisk_info(vdisk)).collect();
        let map = store.map.borrow();
        let worst_disk = disks.iter().map(|disk| disk_health(disk.state)).max().unwrap_or(Health::Healthy);
        let worst = vdisks.iter().map(|vdisk| vdisk.health).max().unwrap_or(Health::Healthy);
        let failed = store.log.failure().is_some();
        let health = pool_health(failed, worst_disk, worst);
        let slabs = |count: usize| store.slab * count as u64;
        let capacity: ByteCount = slabs(map.disks.values().map(|disk| disk.free.len()).sum());
        let free = slabs(map.disks.keys().map(|no| map.free_soon(*no)).sum());
        let metadata = slabs(map.slabs_of(OWNER_METADATA) as usize);
        let (log_used, log_len) = store.log.fill();
        PoolInfo {
            id: store.id,
            name: self.name(),
            health,
            read_only: store.read_only,
            slab: store.slab,
            capacity,
            allocated: capacity - free,
            metadata,
            free,
            epoch: store.labels.epoch.get(),
            log: (ByteCount(log_used), ByteCount(log_len)),
            buffered: ByteCount(store.traffic.budgets.buffers.used()),
            batches: store.counters.batches.get(),
            log_written: store.counters.log_bytes.get(),
            checkpoints: store.counters.checkpoints.get(),
            metadata_healed: store.counters.metadata_healed.get(),
            disks,
            vdisks,
        }
    }

    fn disk_infos(&self) -> Vec<DiskInfo> {
        let (loggers, voters) = (self.store.loggers(), self.store.voters());
        let members = self.store.members.borrow();
        let map = self.store.map.borrow();
        let info = |(no, member): (&DiskNo, &crate::store::Member)| {
            let room = map.disks.get(no)?;
            let could_leave = member.disk.is_none() || room.record.usage == Usage::Retired;
            let losses = if could_leave { losses_without(&map, *no, Instead::Nothing) } else { Vec::new() };
            let state = disk_state(DiskFacts {
                there: member.disk.is_some(),
                behind: !member.current || room.record.away != Away::No,
                maintenance: room.record.maintenance,
                slow: member.slow || member.stalled.get() > 0,
                usage: room.record.usage,
            });
            Some(DiskInfo {
                no: *no,
                name: room.record.name.clone(),
                id: member.id,
                size: room.record.disk_len,
                capacity: self.store.slab * room.free.len() as u64,
                allocated: self.store.slab * (room.free.len() - map.free_soon(*no)) as u64,
                state,
                media: room.record.media,
                usage: room.record.usage,
                domain: room.record.domain.clone(),
                logs: loggers.contains(no),
                follows: self.store.follower.reached().is_some_and(|(follows, _)| follows == *no),
                log_len: member.plan.log_len,
                votes: voters.contains(no),
                power: Power {
                    said: room.record.power,
                    cache: member.disk.as_ref().map_or(WriteCache::Unknown, |disk| disk.write_cache()),
                },
                counters: member.counters,
                latency: Latency {
                    median: member.latency.quantile(500),
                    p99: member.latency.quantile(990),
                    slowest: member.latency.slowest(),
                },
                out_of_room: member.disk.is_none() && member.out_of_room,
                needed_by: losses.into_iter().map(|loss| loss.vdisk).collect(),
            })
        };
        members.iter().filter_map(info).collect()
    }

    fn vdisk_info(&self, vdisk: &crate::vdisk::Vdisk) -> VdiskInfo {
        self.store.map.borrow_mut().see_disks();
        let map = self.store.map.borrow();
        let record = &map.vdisks[&vdisk.id()];
        let table = &map.tables[&record.tables[0]];
        let layout = table.record.layout;
        let tables = map.with_packs(&record.tables);
        // Segments that hold no stripe cannot lose any. Tables of a stack survive more or less.
        let held = tables.iter().flat_map(|table| {
            let failures = map.tables[table].record.layout.failures();
            map.unsound_of(*table).map(move |(unsound, count)| (unsound, count, failures))
        });
        let left = held.clone().map(|(unsound, _, failures)| failures.checked_sub(unsound));
        let left = left.min().unwrap_or(Some(layout.failures()));
        let degraded_segments = held.filter(|(unsound, ..)| *unsound > 0).map(|(_, count, _)| count).sum::<u64>();
        let (lacking, borne) = (degraded_segments.min(1) as usize, left.is_some() as usize);
        let in_tier = map.tier_of(record.tables[0]).map_or(0, |tier| map.tables[&tier].mapped);
        let older = record.tables[1..].iter().map(|id| {
            let (table, fine) = (&map.tables[id], map.fine(*id).map_or(0, |fine| fine.len() * UNIT));
            (table.record.layout, table.record.layout.data_len() * table.mapped + ByteCount(fine))
        });
        let new = survivable(layout, map.places_for(table.record.disks, layout.slots(), None, None));
        // A cache that lacks disks takes nothing.
        let takes = record.cache.filter(|_| !vdisk.drains());
        let cached = takes.map_or(new, |cache| Some(cache.layout.failures() as u32));
        let failure = vdisk.failure().map(|error| error.context);
        let metadata = map.metadata_failures_left().unwrap_or(u32::MAX);
        let health = vdisk_health(lacking, borne, failure.is_some());
        let (units, _, stripes_max) = vdisk.packed();
        VdiskInfo {
            name: record.name.clone(),
            size: record.size,
            sector: record.sector,
            layout,
            older: older.collect(),
            fixed: record.fixed,
            mapped: layout.data_len() * (table.mapped + in_tier) + ByteCount(map.bytes_in_older(record.id)),
            footprint: self.store.slab * tables.iter().map(|table| map.slabs_of(*table)).sum::<u64>(),
            packed: ByteCount(units * UNIT),
            class: Class::of(layout, vdisk.fine_share() > 0 || record.cache.is_some()),
            fine_share: record.fine_share,
            packed_max: vdisk.packs_layout().data_len() * stripes_max,
            moves: moves_beside_clients(vdisk),
            to_be_ordered: vdisk.is_to_be_ordered(),
            cache: record.cache,
            tier: record.tier.clone(),
            tier_fill: vdisk.tier_fill(),
            cache_choice: record.cache_choice,
            drains: vdisk.drains(),
            read_cache: self.store.shelf_info(vdisk.id()),
            health,
            degraded_segments,
            failures_left: (left.unwrap_or(0) as u32).min(metadata),
            failures_new: new.min(cached),
            failure,
            counters: stat_of(&vdisk.counters),
        }
    }
}

fn stat_of(counters: &VdiskCounters) -> VdiskStat {
    VdiskStat {
        read: counters.read.get(),
        written: counters.written.get(),
        reads: counters.reads.get(),
        writes: counters.writes.get(),
        flushes: counters.flushes.get(),
        whole: counters.whole.get(),
        merged: counters.merged.get(),
        landed: counters.landed.get(),
        read_for_write: counters.read_for_write.get(),
        packed: counters.packed.get(),
        read_packed: counters.read_packed.get(),
        packed_parts: counters.packed_parts.get(),
        repacked: counters.repacked.get(),
        destaged: counters.destaged.get(),
        destaged_stripes: counters.destaged_stripes.get(),
        ordered: counters.ordered.get(),
        promoted: counters.promoted.get(),
        demoted: counters.demoted.get(),
        read_fast: counters.read_fast.get(),
        read_kept: counters.read_kept.get(),
        kept_hits: counters.kept_hits.get(),
        kept_misses: counters.kept_misses.get(),
    }
}
