//! What the engine shows, in the words of the API.

use super::labels::hex;
use super::open::OpenPool;
use super::upkeep;
use super::world::named;
use crate::api::cache::CacheInfo;
use crate::api::name::VdiskName;
use crate::api::pool::Usage;
use crate::api::pool::{
    CheckReport, Compaction, DiskCounters, DiskInfo, DiskState, Frozen, Health, Keeping, Latency, Media, MemoryBudget,
    PoolInfo,
};
use crate::api::power::{PowerProtection, PowerSetting, WriteCache};
use crate::api::read_cache::ReadCacheInfo;
use crate::api::share::FineShare;
use crate::api::tier::{Piece, TierInfo};
use crate::api::vdisk::{Layout, OlderTable, Provisioning, VdiskCounters, VdiskInfo};
use weft_engine::disk_set::DiskSet;
use weft_engine::format::record;
use weft_engine::format::record::{CacheChoice, TierRecord};
use weft_engine::io;
use weft_engine::pool::{check, info};
use weft_engine::store::budget::{self, BudgetInfo};
use weft_engine::store::compact;
use weft_engine::store::power::Power;
use weft_engine::store::shelf::ShelfInfo;
use weft_engine::units::{DiskNo, Nanos};
use weft_engine::vdisk::tier::TierFill;

/// One open pool at the moment `now`.
pub fn pool(open: &OpenPool, now: Nanos) -> PoolInfo {
    let shown = open.pool.info();
    // What is free on a disk that takes nothing new is no room.
    let idle = |disk: &&info::DiskInfo| disk.usage == record::Usage::Retired;
    let idle: u64 = shown.disks.iter().filter(idle).map(|disk| disk.capacity.0 - disk.allocated.0).sum();
    let capacity = shown.disks.iter().map(|disk| disk.size.0).sum::<u64>() - idle;
    let free = shown.free.0.saturating_sub(idle);
    let store = open.pool.store();
    let frozen = store.frozen().map(|reason| Frozen {
        reason: named(&reason, &|no| open.disk_name(no)),
        seconds: store.frozen_for().unwrap_or_default().0 / 1_000_000_000,
        missing: shown
            .disks
            .iter()
            .filter(|disk| disk.state == info::DiskState::Missing)
            .map(|disk| disk.name.clone())
            .collect(),
    });
    // Until it thaws it is written no more than one that is open for reading only; but it is not.
    let writable = frozen.is_some() || store.check_writable().is_ok();
    let parts = [
        shown.vdisks.iter().map(|vdisk| health(vdisk.health)).max().unwrap_or(Health::Healthy),
        // A slow or a retired disk takes no redundancy away.
        match shown.disks.iter().all(|disk| works(disk.state)) {
            true => Health::Healthy,
            false => Health::Degraded,
        },
        if writable { Health::Healthy } else { Health::ReadOnly },
    ];
    // The layout in use that leaves the most counts: a disk is to be bought for that one.
    let layouts = shown.vdisks.iter().map(|vdisk| open.pool.unusable(vdisk.layout));
    let (unusable, unusable_why) = layouts.max_by_key(|(bytes, _)| bytes.0).unwrap_or_default();
    let mut vdisks: Vec<VdiskInfo> = shown.vdisks.iter().map(|info| vdisk(&shown, info)).collect();
    vdisks.sort_by(|a, b| a.name.cmp(&b.name));
    PoolInfo {
        id: hex(shown.id),
        // What cannot be read meanwhile is not lost.
        health: match frozen.is_some() {
            true => Health::Frozen,
            false => parts.into_iter().max().unwrap_or(Health::Healthy),
        },
        read_only: !writable,
        frozen,
        slab_size: shown.slab.0,
        capacity,
        allocated: capacity - free,
        used: shown.vdisks.iter().map(|vdisk| vdisk.mapped.0).sum(),
        free,
        promised: vdisks.iter().map(promised).sum(),
        unusable: unusable.0,
        unusable_why: (unusable.0 > 0).then_some(unusable_why),
        settings: upkeep::settings(&open.pool.settings()),
        log_fill: shown.log.0.0 as f64 / shown.log.1.0.max(1) as f64,
        compaction: compaction(&open.pool.store().compaction),
        memory: open.pool.store().memory().into_iter().map(memory).collect(),
        open_nanos: now.since(open.opened).0,
        disks: shown.disks.iter().map(|info| disk(open, &shown.name, info, writable)).collect(),
        vdisks,
        jobs: upkeep::jobs(open, &shown.name),
        name: shown.name,
    }
}

fn compaction(done: &compact::Compaction) -> Compaction {
    Compaction { running: done.is_running(), segments: done.segments.get(), bytes: done.bytes.get() }
}

/// Bytes of the pool's disks that a virtual disk may still take. One that is fixed has them already.
fn promised(vdisk: &VdiskInfo) -> u64 {
    match vdisk.provisioning {
        Provisioning::Fixed => 0,
        Provisioning::Thin => (vdisk.size.saturating_sub(vdisk.used) as f64 / vdisk.efficiency) as u64,
    }
}

fn memory(budget: BudgetInfo) -> MemoryBudget {
    MemoryBudget {
        name: budget.name.into(),
        keeping: match budget.keeping {
            budget::Keeping::Waits => Keeping::Enforced,
            budget::Keeping::Trims => Keeping::Trimmed,
            budget::Keeping::Counts => Keeping::Counted,
        },
        limit: (budget.limit > 0).then_some(budget.limit),
        used: budget.used,
        peak: budget.peak,
    }
}

/// One disk of it.
pub fn disk(open: &OpenPool, pool: &str, disk: &info::DiskInfo, writable: bool) -> DiskInfo {
    let path = open.paths.borrow().get(&disk.no).cloned();
    let away = path.is_none() || open.gone.borrow().contains(&disk.no);
    DiskInfo {
        name: disk.name.clone(),
        pool: Some(pool.to_string()),
        no: Some(disk.no.0),
        id: Some(hex(disk.id)),
        path,
        hindrance: None,
        copy_at: open.copy_of(disk.no).filter(|_| disk.state == info::DiskState::Missing),
        capacity: disk.size.0,
        allocated: disk.size.0 - (disk.capacity.0 - disk.allocated.0),
        state: match disk.state {
            // Slow is a word of its own, retired shows in its usage.
            info::DiskState::Ok | info::DiskState::Slow | info::DiskState::Retired => DiskState::Healthy,
            info::DiskState::Stale if writable => DiskState::Returning,
            info::DiskState::Stale => DiskState::Stale,
            info::DiskState::Maintenance => DiskState::Maintenance,
            info::DiskState::Missing if away => DiskState::Missing,
            // It is there, and was taken out because it answered with errors.
            info::DiskState::Missing => DiskState::Failed,
        },
        media: match disk.media {
            record::Media::Hdd => Media::Hdd,
            record::Media::Ssd => Media::Ssd,
            record::Media::Unspecified => Media::Unspecified,
        },
        usage: Some(match disk.usage {
            record::Usage::AutoSelect => Usage::Auto,
            record::Usage::ManualSelect => Usage::Manual,
            record::Usage::HotSpare => Usage::Spare,
            record::Usage::Journal => Usage::Journal,
            record::Usage::Retired => Usage::Retired,
        }),
        slow: disk.state == info::DiskState::Slow && !open.shares_its_device(disk.no),
        logs: disk.logs,
        log_follows: disk.follows,
        log_bytes: disk.log_len.0,
        votes: disk.votes,
        power_protected: Some(power(disk.power)),
        domain: (!disk.domain.is_empty()).then(|| disk.domain.clone()),
        latency: (disk.latency.slowest > Nanos(0)).then_some(Latency {
            p50_nanos: disk.latency.median.0,
            p99_nanos: disk.latency.p99.0,
            max_nanos: disk.latency.slowest.0,
        }),
        holds: None,
        counters: DiskCounters {
            reads: disk.counters.reads,
            writes: disk.counters.writes,
            read_bytes: disk.counters.read,
            written_bytes: disk.counters.written,
            errors: disk.counters.bad_blocks + disk.counters.failures,
            busy_nanos: disk.counters.busy,
            log_written_bytes: disk.counters.logged,
            flushes: disk.counters.flushes,
            flushes_left_out: disk.counters.spared,
        },
        out_of_room: disk.out_of_room,
        needed_by: disk.needed_by.clone(),
        wear: None,
    }
}

fn power(power: Power) -> PowerProtection {
    PowerProtection {
        said: match power.said {
            record::PowerProtected::Auto => PowerSetting::Auto,
            record::PowerProtected::Yes => PowerSetting::Yes,
            record::PowerProtected::No => PowerSetting::No,
        },
        write_cache: match power.cache {
            io::WriteCache::Unknown => WriteCache::Unknown,
            io::WriteCache::Volatile => WriteCache::Volatile,
            io::WriteCache::NonVolatile => WriteCache::NonVolatile,
            io::WriteCache::Host => WriteCache::Host,
        },
        protected: power.is_protected(),
    }
}

fn works(state: info::DiskState) -> bool {
    matches!(state, info::DiskState::Ok | info::DiskState::Slow | info::DiskState::Retired)
}

fn vdisk(pool: &info::PoolInfo, vdisk: &info::VdiskInfo) -> VdiskInfo {
    let layout = Layout::from(vdisk.layout);
    let counted = counted(&vdisk.counters);
    VdiskInfo {
        name: VdiskName { pool: pool.name.clone(), vdisk: vdisk.name.clone() },
        size: vdisk.size.0,
        layout,
        older: vdisk
            .older
            .iter()
            .map(|(layout, bytes)| OlderTable { layout: (*layout).into(), used: bytes.0 })
            .collect(),
        class: vdisk.class.into(),
        provisioning: if vdisk.fixed { Provisioning::Fixed } else { Provisioning::Thin },
        sector: vdisk.sector as u16,
        used: vdisk.mapped.0,
        footprint: vdisk.footprint.0,
        packed: vdisk.packed.0,
        fine_share: FineShare(vdisk.fine_share),
        packed_max: vdisk.packed_max.0,
        packed_moves: vdisk.moves,
        to_be_ordered: vdisk.to_be_ordered,
        tier: vdisk.tier_fill.map(|fill| tier_info(pool, vdisk.tier.as_ref(), fill)),
        write_cache_auto: vdisk.cache_choice == CacheChoice::Auto,
        write_cache: vdisk.cache.map(|cache| CacheInfo {
            drains: vdisk.drains,
            ..CacheInfo::new(cache, names_of(pool, cache.disks)).above(vdisk.layout.failures() as u8)
        }),
        read_cache: vdisk.read_cache.map(|cache| read_cache_info(pool, cache)),
        efficiency: layout.efficiency(),
        health: health(vdisk.health),
        failures_left: vdisk.failures_left,
        failures_new: vdisk.failures_new,
        failure: vdisk.failure.clone(),
        packed_use: counted.packed_use(),
        counters: counted,
        exports: Vec::new(),
    }
}

fn counted(counters: &info::VdiskStat) -> VdiskCounters {
    VdiskCounters {
        reads: counters.reads,
        writes: counters.writes,
        flushes: counters.flushes,
        read_bytes: counters.read,
        written_bytes: counters.written,
        whole_stripe_bytes: counters.whole,
        landed_bytes: counters.landed,
        write_caused_read_bytes: counters.read_for_write,
        packed_bytes: counters.packed,
        packed_read_bytes: counters.read_packed,
        packed_parts: counters.packed_parts,
        repacked_bytes: counters.repacked,
        destaged_bytes: counters.destaged,
        destaged_stripes: counters.destaged_stripes,
        ordered_bytes: counters.ordered,
        promoted_bytes: counters.promoted,
        demoted_bytes: counters.demoted,
        fast_read_bytes: counters.read_fast,
        read_cache_bytes: counters.read_kept,
        read_cache_hits: counters.kept_hits,
        read_cache_misses: counters.kept_misses,
    }
}

fn tier_info(pool: &info::PoolInfo, tier: Option<&TierRecord>, fill: TierFill) -> TierInfo {
    let disks = tier.map_or(DiskSet::EMPTY, |tier| tier.disks);
    let pins = tier.map_or(&[][..], |tier| &tier.pins);
    TierInfo {
        size: fill.size,
        used: fill.used,
        disks: names_of(pool, disks),
        layout: tier.map(|tier| Layout::from(tier.layout)),
        drains: fill.drains,
        pins: pins.iter().map(|pin| Piece { offset: pin.start, length: pin.end - pin.start }).collect(),
    }
}

fn read_cache_info(pool: &info::PoolInfo, cache: ShelfInfo) -> ReadCacheInfo {
    let ShelfInfo { size, capacity, disks, held, memory, counters } = cache;
    ReadCacheInfo {
        held: held.0,
        memory,
        filled_bytes: counters.filled,
        again_bytes: counters.again,
        passed_bytes: counters.passed,
        unproven: counters.unproven,
        ..ReadCacheInfo::new(size.0, capacity.0, names_of(pool, disks))
    }
}

/// The names of `disks`.
fn names_of(pool: &info::PoolInfo, disks: DiskSet) -> Vec<String> {
    let named = pool.disks.iter().filter(|disk| disks.contains(disk.no));
    named.map(|disk| disk.name.clone()).collect()
}

fn health(health: info::Health) -> Health {
    match health {
        info::Health::Healthy => Health::Healthy,
        info::Health::Warning => Health::Degraded,
        info::Health::Unhealthy => Health::Failed,
    }
}

/// What a check found, as sentences.
pub fn check_report(open: &OpenPool, repair: bool, report: &check::CheckReport) -> CheckReport {
    let mut problems = report.problems.clone();
    let bad = report.bad_blocks - report.healed_blocks;
    let until =
        |how| if repair { String::new() } else { format!("; they are {how} the others until they are repaired") };
    if bad > 0 {
        problems.push(format!("{bad} blocks are missing, unreadable or wrong{}", until("computed from")));
    }
    let bad = report.bad_pages - report.healed_pages;
    if bad > 0 {
        problems.push(format!("{bad} copies of metadata are unreadable or wrong{}", until("read from")));
    }
    let unproven = |no: &DiskNo| format!("disk {} does not answer: its metadata is not proven", open.disk_name(*no));
    problems.extend(report.silent.iter().map(unproven));
    if report.lost_stripes > 0 {
        problems.push(format!("{} stripes are lost: more failed than their layout survives", report.lost_stripes));
    }
    CheckReport {
        pool: open.pool.name(),
        sound: report.is_sound(),
        problems,
        repairable: if repair { 0 } else { report.curable_blocks + report.bad_pages },
        repaired: report.healed_blocks + report.healed_pages,
        checked: vec![
            "every slab and every stripe is owned once, and what is free is what nobody owns".into(),
            format!("{} stripes, {} with their redundancy, read and proven", report.stripes, report.bytes),
            "every copy of the metadata read and proven".into(),
        ],
    }
}
