//! Rates: the difference of two looks at the counters, or the averages since a pool was opened.

use crate::api::pool::{DiskCounters, Keeping, MemoryBudget};
use crate::api::vdisk::{PackedUse, VdiskCounters};
use crate::api::watch::{DiskStat, PoolStat, Stat};
use crate::ops::table::{Rows, Style, cell, human, percent};
use crate::ops::text::Text;
use serde::Serialize;

/// What pools hold in memory.
#[derive(Serialize, Clone, PartialEq, Eq, Debug)]
pub struct Memory {
    /// The pools.
    pub pools: Vec<PoolMemory>,
    /// What is shared by all pools.
    pub all: Vec<MemoryBudget>,
}

/// What one pool holds in memory.
#[derive(Serialize, Clone, PartialEq, Eq, Debug)]
pub struct PoolMemory {
    /// Its name.
    pub name: String,
    /// Each of its budgets.
    pub budgets: Vec<MemoryBudget>,
}

impl Memory {
    /// The memory of the pools in `stat`.
    pub fn of(stat: &Stat) -> Memory {
        let pool = |pool: &PoolStat| PoolMemory { name: pool.name.clone(), budgets: pool.memory.clone() };
        Memory { pools: stat.pools.iter().map(pool).collect(), all: stat.memory.clone() }
    }
}

/// The rates of pools and virtual disks over one span.
#[derive(Serialize, Clone, PartialEq, Debug)]
pub struct Rates {
    /// Whether the span began when the pools were opened.
    pub since_open: bool,
    /// One row per pool and per virtual disk.
    pub rows: Vec<Row>,
}

/// The rates of one pool or virtual disk. MB are 1 000 000 bytes.
#[derive(Serialize, Clone, PartialEq, Debug)]
pub struct Row {
    /// `POOL` or `POOL/VDISK`.
    pub name: String,
    /// The length of the span, in seconds.
    pub seconds: f64,
    /// What clients read, in MB/s.
    pub read_mb_s: f64,
    /// What clients wrote, in MB/s.
    pub write_mb_s: f64,
    /// Reads of clients per second.
    pub read_iops: f64,
    /// Writes of clients per second.
    pub write_iops: f64,
    /// Share of the bytes leaving the stripe buffers that left as whole stripes, 0 to 100.
    pub whole_stripe_percent: Option<f64>,
    /// Share of the bytes leaving the stripe buffers that a flush forced into the log, 0 to 100.
    pub landed_percent: Option<f64>,
    /// What packed stripes, in the write-back cache where there is one, were good for.
    pub packed_use: PackedUse,
    /// What the mover brought out of them, in MB/s.
    pub destage_mb_s: f64,
    /// Bytes read from disks because of writes.
    pub write_caused_read_bytes: u64,
    /// How full the pool's log is, 0 to 100.
    pub log_fill_percent: f64,
    /// The disk of the pool that made its requests wait longest.
    pub slowest_disk: Option<SlowestDisk>,
    /// The counters over the span.
    pub counters: VdiskCounters,
}

/// The disk that made its requests wait longest.
#[derive(Serialize, Clone, PartialEq, Debug)]
pub struct SlowestDisk {
    /// Its name.
    pub name: String,
    /// The mean wait of its reads and writes, in milliseconds.
    pub mean_ms: f64,
}

/// The averages since the pools of `now` were opened.
pub fn since_open(now: &Stat) -> Rates {
    let rows = now.pools.iter().flat_map(|pool| rows(pool, None, pool.open_nanos)).collect();
    Rates { since_open: true, rows }
}

/// The rates between two looks.
pub fn between(before: &Stat, now: &Stat) -> Rates {
    let nanos = now.at_nanos.saturating_sub(before.at_nanos);
    let rows = now.pools.iter().flat_map(|pool| {
        let earlier = before.pools.iter().find(|earlier| earlier.name == pool.name);
        rows(pool, earlier, nanos)
    });
    Rates { since_open: false, rows: rows.collect() }
}

/// The pool's row, then one per virtual disk.
fn rows(now: &PoolStat, before: Option<&PoolStat>, nanos: u64) -> Vec<Row> {
    let seconds = nanos as f64 / 1e9;
    let slowest_disk = slowest(now, before);
    let row = |name: String, counters: VdiskCounters| Row {
        name,
        seconds,
        read_mb_s: per_second(counters.read_bytes, seconds) / 1e6,
        write_mb_s: per_second(counters.written_bytes, seconds) / 1e6,
        read_iops: per_second(counters.reads, seconds),
        write_iops: per_second(counters.writes, seconds),
        whole_stripe_percent: share(counters.whole_stripe_bytes, counters.landed_bytes),
        landed_percent: share(counters.landed_bytes, counters.whole_stripe_bytes),
        packed_use: counters.packed_use(),
        destage_mb_s: per_second(counters.destaged_bytes, seconds) / 1e6,
        write_caused_read_bytes: counters.write_caused_read_bytes,
        log_fill_percent: now.log_fill * 100.0,
        slowest_disk: slowest_disk.clone(),
        counters,
    };
    let vdisks = now.vdisks.iter().map(|vdisk| {
        let earlier = before.and_then(|pool| pool.vdisks.iter().find(|earlier| earlier.name == vdisk.name));
        (format!("{}/{}", now.name, vdisk.name), minus(vdisk.counters, earlier.map(|earlier| earlier.counters)))
    });
    let vdisks: Vec<(String, VdiskCounters)> = vdisks.collect();
    let total = vdisks.iter().fold(VdiskCounters::default(), |total, (_, counters)| plus(total, *counters));
    let mut rows = vec![row(now.name.clone(), total)];
    rows.extend(vdisks.into_iter().map(|(name, counters)| row(name, counters)));
    rows
}

fn slowest(now: &PoolStat, before: Option<&PoolStat>) -> Option<SlowestDisk> {
    let mean = |disk: &DiskStat| {
        let zero = DiskCounters::default();
        let earlier = before.and_then(|pool| pool.disks.iter().find(|earlier| earlier.name == disk.name));
        let earlier = earlier.map_or(zero, |earlier| earlier.counters);
        let requests = (disk.counters.reads + disk.counters.writes).saturating_sub(earlier.reads + earlier.writes);
        let busy = disk.counters.busy_nanos.saturating_sub(earlier.busy_nanos);
        let mean_ms = busy as f64 / 1e6 / requests as f64;
        (requests > 0 && busy > 0).then(|| SlowestDisk { name: disk.name.clone(), mean_ms })
    };
    now.disks.iter().filter_map(mean).max_by(|one, other| one.mean_ms.total_cmp(&other.mean_ms))
}

fn per_second(count: u64, seconds: f64) -> f64 {
    if seconds > 0.0 { count as f64 / seconds } else { 0.0 }
}

fn share(part: u64, rest: u64) -> Option<f64> {
    let all = part as f64 + rest as f64;
    (all > 0.0).then(|| part as f64 / all * 100.0)
}

fn minus(now: VdiskCounters, before: Option<VdiskCounters>) -> VdiskCounters {
    let before = before.unwrap_or_default();
    combine(now, before, u64::saturating_sub)
}

fn plus(one: VdiskCounters, other: VdiskCounters) -> VdiskCounters {
    combine(one, other, u64::saturating_add)
}

fn combine(one: VdiskCounters, other: VdiskCounters, with: impl Fn(u64, u64) -> u64) -> VdiskCounters {
    VdiskCounters {
        reads: with(one.reads, other.reads),
        writes: with(one.writes, other.writes),
        flushes: with(one.flushes, other.flushes),
        read_bytes: with(one.read_bytes, other.read_bytes),
        written_bytes: with(one.written_bytes, other.written_bytes),
        whole_stripe_bytes: with(one.whole_stripe_bytes, other.whole_stripe_bytes),
        landed_bytes: with(one.landed_bytes, other.landed_bytes),
        write_caused_read_bytes: with(one.write_caused_read_bytes, other.write_caused_read_bytes),
        packed_bytes: with(one.packed_bytes, other.packed_bytes),
        packed_read_bytes: with(one.packed_read_bytes, other.packed_read_bytes),
        packed_parts: with(one.packed_parts, other.packed_parts),
        repacked_bytes: with(one.repacked_bytes, other.repacked_bytes),
        destaged_bytes: with(one.destaged_bytes, other.destaged_bytes),
        destaged_stripes: with(one.destaged_stripes, other.destaged_stripes),
        ordered_bytes: with(one.ordered_bytes, other.ordered_bytes),
        promoted_bytes: with(one.promoted_bytes, other.promoted_bytes),
        demoted_bytes: with(one.demoted_bytes, other.demoted_bytes),
        fast_read_bytes: with(one.fast_read_bytes, other.fast_read_bytes),
        read_cache_bytes: with(one.read_cache_bytes, other.read_cache_bytes),
        read_cache_hits: with(one.read_cache_hits, other.read_cache_hits),
        read_cache_misses: with(one.read_cache_misses, other.read_cache_misses),
    }
}

impl Text for Rates {
    fn text(&self, style: Style) -> String {
        if self.rows.is_empty() {
            return "no pools\n".into();
        }
        // Where nothing is packed there is nothing to say of it.
        let packs = self.rows.iter().any(|row| row.counters.packed_parts + row.counters.destaged_stripes > 0)
            || self.rows.iter().any(|row| row.counters.packed_read_bytes > 0);
        let mut headings = vec![
            "NAME",
            ">READ MB/s",
            ">WRITE MB/s",
            ">READ IOPS",
            ">WRITE IOPS",
            ">WHOLE STRIPES",
            ">LANDED",
            ">READ FOR WRITES",
            ">LOG",
            "SLOWEST DISK",
        ];
        if packs {
            headings.extend([">FROM PACKED", ">TO PACKED", ">DESTAGE MB/s", ">MERGES SAVED"]);
        }
        // Nor is there where there is no read cache.
        let caches = self.rows.iter().any(|row| row.counters.read_cache_percent().is_some());
        if caches {
            headings.push(">READ CACHE");
        }
        let mut rows = Rows::new(style, &headings);
        let share = |share: Option<f64>| share.map_or_else(|| "-".into(), percent);
        for row in &self.rows {
            let slowest = row.slowest_disk.as_ref();
            let mut cells = vec![
                cell(&row.name),
                cell(format!("{:.1}", row.read_mb_s)),
                cell(format!("{:.1}", row.write_mb_s)),
                cell(format!("{:.0}", row.read_iops)),
                cell(format!("{:.0}", row.write_iops)),
                cell(share(row.whole_stripe_percent)),
                cell(share(row.landed_percent)),
                cell(human(row.write_caused_read_bytes)),
                cell(percent(row.log_fill_percent)),
                cell(slowest.map_or_else(|| "-".into(), |disk| format!("{} ({:.1} ms)", disk.name, disk.mean_ms))),
            ];
            if packs {
                cells.extend([
                    cell(share(row.packed_use.read_percent)),
                    cell(share(row.packed_use.write_percent)),
                    cell(format!("{:.1}", row.destage_mb_s)),
                    cell(row.packed_use.merges_saved),
                ]);
            }
            if caches {
                cells.push(cell(share(row.counters.read_cache_percent())));
            }
            rows.row(cells);
        }
        rows.draw()
    }
}

impl Text for Memory {
    fn text(&self, style: Style) -> String {
        let mut rows = Rows::new(style, &["POOL", "MEMORY FOR", ">LIMIT", ">NOW", ">PEAK", "LIMIT IS"]);
        let of_pools =
            self.pools.iter().flat_map(|pool| pool.budgets.iter().map(|budget| (pool.name.as_str(), budget)));
        for (pool, budget) in of_pools.chain(self.all.iter().map(|budget| ("(all)", budget))) {
            let keeping = match budget.keeping {
                Keeping::Enforced => "enforced: who wants more waits",
                Keeping::Trimmed => "kept to by trimming",
                Keeping::Counted => "not enforced, only counted",
            };
            rows.row(vec![
                cell(pool),
                cell(&budget.name),
                cell(budget.limit.map_or_else(|| "-".into(), human)),
                cell(human(budget.used)),
                cell(human(budget.peak)),
                cell(keeping),
            ]);
        }
        rows.draw()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::watch::VdiskStat;

    fn look(at_nanos: u64, scale: u64) -> Stat {
        let counters = VdiskCounters {
            writes: 10 * scale,
            written_bytes: 4_000_000 * scale,
            whole_stripe_bytes: 3_000_000 * scale,
            landed_bytes: 1_000_000 * scale,
            ..VdiskCounters::default()
        };
        let disk = |name: &str, busy_nanos| DiskStat {
            name: name.into(),
            counters: DiskCounters { writes: 5 * scale, busy_nanos: busy_nanos * scale, ..DiskCounters::default() },
        };
        let vdisk = |name: &str| VdiskStat { name: name.into(), counters };
        let pool = PoolStat {
            name: "tank".into(),
            open_nanos: at_nanos,
            log_fill: 0.25,
            vdisks: vec![vdisk("a"), vdisk("b")],
            disks: vec![disk("d1", 10_000_000), disk("d2", 40_000_000)],
            memory: Vec::new(),
        };
        Stat { at_nanos, pools: vec![pool], memory: Vec::new() }
    }

    #[test]
    fn rates_are_differences_over_the_span_and_a_pool_is_the_sum_of_its_disks() {
        let rates = between(&look(1_000_000_000, 1), &look(3_000_000_000, 3));
        assert_eq!(rates.rows.iter().map(|row| row.name.as_str()).collect::<Vec<_>>(), ["tank", "tank/a", "tank/b"]);
        let (pool, vdisk) = (&rates.rows[0], &rates.rows[1]);
        assert_eq!((vdisk.seconds, vdisk.write_mb_s, vdisk.write_iops), (2.0, 4.0, 10.0));
        assert_eq!((pool.write_mb_s, pool.write_iops), (8.0, 20.0));
        assert_eq!((vdisk.whole_stripe_percent, vdisk.landed_percent), (Some(75.0), Some(25.0)));
        assert_eq!(pool.slowest_disk, Some(SlowestDisk { name: "d2".into(), mean_ms: 8.0 }));
        assert_eq!(pool.log_fill_percent, 25.0);
    }

    #[test]
    fn what_packed_stripes_were_good_for_is_told_where_there_were_some() {
        let mut before = look(1_000_000_000, 1);
        assert!(!since_open(&before).text(Style::default()).contains("MERGES SAVED"));
        let mut now = look(3_000_000_000, 1);
        let counters = |stat: &mut Stat, scale: u64| {
            let counters = &mut stat.pools[0].vdisks[0].counters;
            counters.read_bytes = 4_000_000 * scale;
            counters.packed_read_bytes = 1_000_000 * scale;
            counters.packed_bytes = 1_000_000 * scale;
            counters.whole_stripe_bytes = 3_000_000 * scale;
            counters.packed_parts = 100 * scale;
            counters.destaged_bytes = 500_000 * scale;
            counters.destaged_stripes = 30 * scale;
        };
        counters(&mut before, 1);
        counters(&mut now, 3);
        let rates = between(&before, &now);
        let row = &rates.rows[1];
        let use_now = PackedUse { read_percent: Some(25.0), write_percent: Some(25.0), merges_saved: 140 };
        assert_eq!((row.packed_use, row.destage_mb_s), (use_now, 0.5));
        assert!(rates.text(Style::default()).contains("MERGES SAVED"));
    }

    #[test]
    fn nothing_done_is_no_share_and_no_slowest_disk() {
        let rates = between(&look(1, 1), &look(1, 1));
        assert_eq!((rates.rows[0].whole_stripe_percent, rates.rows[0].write_mb_s), (None, 0.0));
        assert_eq!(rates.rows[0].slowest_disk, None);
    }
}
