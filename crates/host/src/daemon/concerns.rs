//! What of a pool needs a person, and the command to type. Pure: from what the pool shows of itself.

mod caches;
mod copies;
pub(super) mod full;
mod states;
mod unread;

use super::lives::WORN;
use crate::api::job::{JobAction, JobInfo, JobKind, JobState, StartKind};
use crate::api::pool::{DiskInfo, DiskState, PoolInfo, Usage};
use crate::api::span;
use crate::api::vdisk::{VdiskInfo, survive};
use crate::api::watch::Attention;
use crate::ops::disk::{DiskAdd, DiskList, DiskRemove, DiskReplace, DiskShow};
use crate::ops::job::{JobShow, JobStart, JobSteer};
use crate::ops::line::ToLine;
use crate::ops::vdisk_change::VdiskChange;
use crate::ops::watch::EventList;
use std::time::Duration;
use weft_engine::units::ByteCount;

/// What of a pool needs a person, the worst first.
pub(super) fn concerns(pool: &PoolInfo) -> Vec<Attention> {
    let mut found = Vec::new();
    if let Some(frozen) = &pool.frozen {
        let message = format!(
            "frozen {frozen}; it is read as far as its disks are there, all else waits, nothing that was flushed is \
            lost, and it goes on by itself when enough of them are back"
        );
        found.push(concern(format!("pool {}", pool.name), message, DiskList::of(&pool.name).line()));
    }
    found.extend(unread::of_pool(pool));
    found.extend(pool.disks.iter().filter_map(|disk| states::told(pool, disk)));
    // A pool that accepts no writes, or waits for its disks, refuses what changes it: that is not offered.
    let offer = |one: Attention| match pool.read_only || pool.frozen.is_some() {
        true => Attention { hint: Some(DiskList::of(&pool.name).line()), ..one },
        false => one,
    };
    found.extend(log_without_journals(pool).map(offer));
    found.extend(short_of_disks(pool).map(offer));
    found.extend(caches::short(pool).map(offer));
    found.extend(caches::unsafe_ones(pool).map(offer));
    found.extend(half_changed(pool).into_iter().map(offer));
    found.extend(failing_disks(pool));
    found.extend(worn_disks(pool).map(offer));
    found.extend(slow_disks(pool).map(offer));
    found.extend(retired_disks(pool).map(offer));
    found.extend(pool.jobs.iter().filter_map(|job| job_concern(pool, job)));
    if pool.read_only && pool.frozen.is_none() {
        found.push(concern(format!("pool {}", pool.name), "accepts no writes", EventList::of(&pool.name).line()));
    }
    found.extend(full::of_pool(pool).map(offer));
    found
}

fn concern(subject: String, message: impl Into<String>, hint: String) -> Attention {
    Attention { subject, message: message.into(), hint: Some(hint) }
}

/// Names of virtual disks, with their pool's.
fn of_pool(pool: &PoolInfo, vdisks: &[String]) -> String {
    vdisks.iter().map(|vdisk| format!("{}/{vdisk}", pool.name)).collect::<Vec<_>>().join(", ")
}

/// Journal disks that are all gone: the log is on other disks, and flushes are as fast as those.
fn log_without_journals(pool: &PoolInfo) -> Option<Attention> {
    let journals = || pool.disks.iter().filter(|disk| disk.usage == Some(Usage::Journal));
    let gone = |disk: &DiskInfo| matches!(disk.state, DiskState::Missing | DiskState::Failed | DiskState::Maintenance);
    if pool.frozen.is_some() || journals().next().is_none() || !journals().all(gone) {
        return None;
    }
    let names = |disks: Vec<&DiskInfo>| disks.iter().map(|disk| disk.name.as_str()).collect::<Vec<_>>().join(", ");
    let message = format!(
        "no journal disk is left ({}): the log moved to {} without a loss, and flushes are as fast as those; it goes \
         back by itself when a journal disk is there",
        names(journals().collect()),
        names(pool.disks.iter().filter(|disk| disk.logs).collect())
    );
    let hint = DiskAdd { usage: Some(Usage::Journal), ..DiskAdd::some(&pool.name) }.line();
    Some(concern(format!("pool {}", pool.name), message, hint))
}

/// Virtual disks whose new data gets less redundancy than they ask for, or finds no disks at all.
fn short_of_disks(pool: &PoolInfo) -> impl Iterator<Item = Attention> {
    // One that waits for its disks says so already.
    let short = pool.vdisks.iter().filter(|vdisk| pool.frozen.is_none() && vdisk.is_short_of_disks());
    short.map(|vdisk| {
        let message = format!(
            "less redundancy than it asks for: too few disks take new data, and new writes {}; it takes {} disks to \
            survive {}",
            survive(vdisk.failures_new),
            vdisk.layout.disks_needed(),
            vdisk.layout.resiliency.failures()
        );
        concern(format!("vdisk {}", vdisk.name), message, DiskAdd::some(&pool.name).line())
    })
}

/// When a repair begins by itself.
fn repair_plan(pool: &PoolInfo) -> String {
    match pool.settings.repair_after_seconds {
        None => {
            format!("; nothing is rebuilt by itself, `{}` does it", JobStart::of(&pool.name, StartKind::Repair).line())
        }
        Some(seconds) => format!("; rebuilt where there is room after {}", span::left(seconds)),
    }
}

fn failing_disks(pool: &PoolInfo) -> impl Iterator<Item = Attention> {
    let failing = pool.disks.iter().filter(|disk| disk.state == DiskState::Healthy && disk.counters.errors > 0);
    failing.map(|disk| {
        let message = format!("{} of its reads and writes failed", disk.counters.errors);
        concern(format!("disk {}/{}", pool.name, disk.name), message, EventList::of(&pool.name).line())
    })
}

/// Disks whose life is nearly used, as they tell themselves. One that is away, or to be emptied, needs no word more.
fn worn_disks(pool: &PoolInfo) -> impl Iterator<Item = Attention> {
    let used = |disk: &&DiskInfo| disk.state == DiskState::Healthy && disk.usage != Some(Usage::Retired);
    pool.disks.iter().filter(used).filter_map(|disk| {
        let wear = disk.wear?;
        let used = wear.used_percent.filter(|used| *used >= WORN)?;
        let years = wear.years_left.filter(|years| *years > 0.0);
        let left = years.map(|years| format!(", about {years:.1} years are left at the rate so far"));
        let message = format!("{used} % of its life is used{}; replace it before it fails", left.unwrap_or_default());
        let hint = DiskReplace::some(&pool.name, &disk.name).line();
        Some(concern(format!("disk {}/{}", pool.name, disk.name), message, hint))
    })
}

/// Disks that are much slower than their peers, and what that costs.
fn slow_disks(pool: &PoolInfo) -> impl Iterator<Item = Attention> {
    pool.disks.iter().filter(|disk| disk.slow).map(|disk| {
        let peers = pool.disks.iter().filter(|peer| !peer.slow && peer.media == disk.media);
        let mut waits: Vec<u64> = peers.filter_map(|peer| Some(peer.latency?.p99_nanos)).collect();
        waits.sort_unstable();
        let own = disk
            .latency
            .map(|latency| format!(": 1 in 100 of its requests waits {} or longer", nanos(latency.p99_nanos)));
        let usual = waits.get(waits.len() / 2).map(|usual| format!(", its peers' {}", nanos(*usual)));
        let message = format!(
            "slow{}{}; writes wait for it, reads that wait too long are computed from the others",
            own.unwrap_or_default(),
            usual.unwrap_or_default()
        );
        let hint = DiskReplace::some(&pool.name, &disk.name).line();
        concern(format!("disk {}/{}", pool.name, disk.name), message, hint)
    })
}

/// Disks that take nothing new: what becomes of them.
fn retired_disks(pool: &PoolInfo) -> impl Iterator<Item = Attention> {
    let retired = |disk: &&DiskInfo| disk.state == DiskState::Healthy && disk.usage == Some(Usage::Retired);
    let emptying = |disk: &DiskInfo| {
        let of_disk = |job: &&JobInfo| job.kind == JobKind::Evacuate && job.disk.as_ref() == Some(&disk.name);
        pool.jobs.iter().filter(of_disk).find(|job| !job.state.is_over())
    };
    // Without one of them the next may be needed.
    let can_go = |disk: &&DiskInfo| disk.needed_by.is_empty() && emptying(disk).is_none();
    let first = pool.disks.iter().filter(retired).find(can_go);
    pool.disks.iter().filter(retired).map(move |disk| {
        let (message, hint) = match emptying(disk) {
            Some(job) => (
                format!("retired: what it holds moves to the other disks (job {})", job.job),
                JobShow::of(&job.job).line(),
            ),
            None if !disk.needed_by.is_empty() => (
                format!("retired, but {} finds too few disks without it", of_pool(pool, &disk.needed_by)),
                DiskReplace::some(&pool.name, &disk.name).line(),
            ),
            None if first.is_some_and(|first| first.name != disk.name) => (
                "retired: it takes nothing new; whether it can go is known when the one before it has gone".into(),
                DiskShow::of(format!("{}/{}", pool.name, disk.name)).line(),
            ),
            None => ("retired: it takes nothing new".into(), DiskRemove::of(&pool.name, &disk.name).line()),
        };
        concern(format!("disk {}/{}", pool.name, disk.name), message, hint)
    })
}

fn job_concern(pool: &PoolInfo, job: &JobInfo) -> Option<Attention> {
    let subject = format!("job {}", job.job);
    let note = if job.note.is_empty() { String::new() } else { format!(": {}", job.note) };
    let same = |other: &&JobInfo| other.kind == job.kind && (&other.disk, &other.vdisk) == (&job.disk, &job.vdisk);
    let newest = pool.jobs.iter().filter(same).all(|other| other.id <= job.id);
    match job.state {
        JobState::Paused => {
            Some(concern(subject, format!("{} is paused", job.name), JobSteer::of(&job.job, JobAction::Resume).line()))
        }
        JobState::Failed if newest && !is_moot(pool, job) => {
            Some(concern(subject, format!("{} failed{note}", job.name), JobShow::of(&job.job).line()))
        }
        _ => None,
    }
}

/// Whether a job has failed that nobody wants any more: to empty a disk that is used again, or gone.
fn is_moot(pool: &PoolInfo, job: &JobInfo) -> bool {
    let leaves = |disk: &DiskInfo| Some(&disk.name) == job.disk.as_ref() && disk.usage == Some(Usage::Retired);
    job.kind == JobKind::Evacuate && !pool.disks.iter().any(leaves)
}

/// Virtual disks that lie in two layouts, and no job brings all of it into one.
fn half_changed(pool: &PoolInfo) -> Vec<Attention> {
    let moves = |vdisk: &VdiskInfo| {
        let ours = |job: &&JobInfo| job.kind == JobKind::Reshape && job.vdisk.as_ref() == Some(&vdisk.name.vdisk);
        pool.jobs.iter().filter(ours).any(|job| !job.state.is_over())
    };
    let told = |vdisk: &VdiskInfo| {
        let older = vdisk.older.first().filter(|_| !moves(vdisk))?;
        let message = format!("{} of it still lie in {}, and are not moved", ByteCount(older.used), older.layout);
        Some(concern(format!("vdisk {}", vdisk.name), message, VdiskChange::of(&vdisk.name).line()))
    };
    pool.vdisks.iter().filter_map(told).collect()
}

/// A wait for people: milliseconds, or whole units above a second.
fn nanos(nanos: u64) -> String {
    let wait = Duration::from_nanos(nanos);
    if wait < Duration::from_secs(1) {
        format!("{:.1} ms", wait.as_secs_f64() * 1e3)
    } else {
        format!("{:.1} s", wait.as_secs_f64())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::cache::CacheInfo;
    use crate::api::pool::Health;
    use crate::api::pool::PoolSettings;
    use crate::api::pool::{DiskCounters, Frozen, Latency, Media, Wear};
    use crate::api::vdisk::{Layout, OlderTable, Resiliency};

    const MS: u64 = 1_000_000;

    pub(super) fn disk(name: &str, p99_ms: u64) -> DiskInfo {
        DiskInfo {
            name: name.into(),
            pool: Some("tank".into()),
            no: Some(0),
            id: Some(name.into()),
            capacity: 100,
            media: Media::Hdd,
            usage: Some(Usage::Auto),
            latency: Some(Latency { p50_nanos: MS, p99_nanos: p99_ms * MS, max_nanos: 900 * MS }),
            counters: DiskCounters { reads: 150, writes: 150, ..DiskCounters::default() },
            ..DiskInfo::stranger(DiskState::Healthy)
        }
    }

    pub(super) fn pool(disks: Vec<DiskInfo>) -> PoolInfo {
        let layout = Layout { resiliency: Resiliency::Parity { parity: 1 }, columns: 4, interleave: 65_536 };
        let vdisk = VdiskInfo::sample("tank/media", layout);
        PoolInfo {
            name: "tank".into(),
            id: "1".into(),
            health: Health::Healthy,
            read_only: false,
            slab_size: 1,
            capacity: 400,
            allocated: 100,
            used: 0,
            free: 300,
            promised: 0,
            unusable: 0,
            unusable_why: None,
            settings: PoolSettings {
                repair_after_seconds: Some(300),
                scrub_every_seconds: None,
                scrubbed: None,
                foreground_share: 50,
                full: [70, 80, 90],
                tier_schedule: Default::default(),
            },
            frozen: None,
            log_fill: 0.0,
            compaction: Default::default(),
            memory: Vec::new(),
            open_nanos: 0,
            disks,
            vdisks: vec![vdisk],
            jobs: Vec::new(),
        }
    }

    fn job(kind: JobKind, disk: Option<&str>, state: JobState) -> JobInfo {
        JobInfo {
            job: "tank/7".into(),
            pool: "tank".into(),
            id: 7,
            name: kind.to_string(),
            kind,
            disk: disk.map(Into::into),
            vdisk: None,
            state,
            done: 0,
            total: 1,
            rate: 0,
            left_seconds: None,
            began: 0,
            note: "why".into(),
        }
    }

    pub(super) fn told(pool: &PoolInfo) -> Vec<String> {
        let line = |one: Attention| format!("{}: {} | {}", one.subject, one.message, one.hint.unwrap());
        concerns(pool).into_iter().map(line).collect()
    }

    #[test]
    fn a_disk_that_is_an_outlier_among_its_peers_is_named_with_the_effect() {
        let mut tank = pool(vec![disk("d0", 10), disk("d1", 12), disk("d2", 1200), disk("d3", 12)]);
        assert!(told(&tank).is_empty(), "the engine decides");
        tank.disks[2].slow = true;
        let expected = "disk tank/d2: slow: 1 in 100 of its requests waits 1.2 s or longer, its peers' 12.0 ms; \
        writes wait for it, reads that wait too long are computed from the others | weft disk replace tank d2 DISK";
        assert_eq!(told(&tank), [expected]);
        tank.disks.iter_mut().for_each(|disk| disk.latency = None);
        assert!(told(&tank)[0].starts_with("disk tank/d2: slow; writes wait"));
    }

    #[test]
    fn the_emptying_of_a_disk_that_is_used_again_is_no_concern() {
        let mut tank = pool(vec![DiskInfo { usage: Some(Usage::Retired), ..disk("d1", 10) }]);
        tank.jobs = vec![job(JobKind::Evacuate, Some("d1"), JobState::Failed)];
        assert!(
            told(&tank).iter().any(|line| line.ends_with("failed: why | weft job show tank/7")),
            "{:?}",
            told(&tank)
        );
        tank.disks[0].usage = Some(Usage::Auto);
        assert!(told(&tank).is_empty());
    }

    #[test]
    fn a_disk_whose_life_is_nearly_used_is_to_be_replaced() {
        let worn = |used| {
            let wear = Some(Wear { used_percent: Some(used), years_left: Some(0.4), ..Wear::default() });
            told(&pool(vec![DiskInfo { wear, ..disk("d0", 10) }]))
        };
        assert!(worn(89).is_empty());
        let expected = "disk tank/d0: 91 % of its life is used, about 0.4 years are left at the rate so far; replace \
        it before it fails | weft disk replace tank d0 DISK";
        assert_eq!(worn(91), [expected]);
        let wear = Some(Wear { used_percent: Some(104), years_left: Some(0.0), ..Wear::default() });
        let mut tank = pool(vec![DiskInfo { wear, ..disk("d0", 10) }]);
        assert!(told(&tank)[0].contains("104 % of its life is used; replace it"), "{:?}", told(&tank));
        tank.disks[0].state = DiskState::Missing;
        assert!(!told(&tank).iter().any(|line| line.contains("of its life")), "{:?}", told(&tank));
    }

    #[test]
    fn a_pool_without_its_journal_disks_says_where_the_log_went() {
        let journal = |name, state| DiskInfo { state, usage: Some(Usage::Journal), ..disk(name, 1) };
        let log = DiskInfo { logs: true, ..disk("d1", 1) };
        let told_of = |journals: Vec<DiskInfo>| {
            let disks = journals.into_iter().chain([log.clone()]).collect();
            told(&pool(disks)).into_iter().filter(|line| line.contains("no journal disk is left")).collect::<Vec<_>>()
        };
        let gone = told_of(vec![journal("j1", DiskState::Missing), journal("j2", DiskState::Failed)]);
        assert_eq!(gone.len(), 1, "{gone:?}");
        assert!(gone[0].contains("(j1, j2): the log moved to d1"), "{gone:?}");
        assert!(gone[0].ends_with("weft disk add tank DISK --usage journal"), "{gone:?}");
        assert!(told_of(vec![journal("j1", DiskState::Missing), journal("j2", DiskState::Healthy)]).is_empty());
        assert!(told_of(Vec::new()).is_empty(), "a pool that has none misses none");
    }

    #[test]
    fn a_retired_disk_is_told_with_the_job_that_empties_it() {
        let mut tank = pool(vec![disk("d0", 1), disk("d1", 1)]);
        tank.disks[1].usage = Some(Usage::Retired);
        assert_eq!(told(&tank), ["disk tank/d1: retired: it takes nothing new | weft disk remove tank d1"]);
        tank.jobs = vec![job(JobKind::Evacuate, Some("d1"), JobState::Running)];
        assert!(told(&tank)[0].ends_with("moves to the other disks (job tank/7) | weft job show tank/7"));
        // Two of them may be more than can go.
        tank.jobs.clear();
        tank.disks[0].usage = Some(Usage::Retired);
        let told = told(&tank);
        assert!(told[0].ends_with("| weft disk remove tank d0") && told[1].ends_with("| weft disk show tank/d1"));
    }

    #[test]
    fn a_disk_that_is_away_is_told_with_what_becomes_of_it() {
        let mut tank = pool(vec![disk("d0", 1), disk("d1", 1)]);
        tank.disks[1].state = DiskState::Missing;
        tank.disks[1].path = Some("/srv/d1".into());
        let away = "disk tank/d1: missing, last seen as /srv/d1";
        let redundant = format!("{away}; all data has its full redundancy without it | weft disk remove tank d1");
        assert_eq!(told(&tank), [redundant]);
        tank.vdisks[0].health = Health::Degraded;
        assert_eq!(
            told(&tank),
            [format!("{away}; rebuilt where there is room after 5m | weft disk replace tank d1 DISK")]
        );
        tank.disks[1].copy_at = Some("/srv/d2".into());
        assert!(told(&tank)[0].starts_with("disk tank/d1: missing; /srv/d2 is not the disk as it was"));
        (tank.disks[1].copy_at, tank.settings.repair_after_seconds) = (None, None);
        let never = "nothing is rebuilt by itself, `weft repair tank` does it";
        assert_eq!(told(&tank), [format!("{away}; {never} | weft disk replace tank d1 DISK")]);
        tank.jobs = vec![job(JobKind::Repair, None, JobState::Running)];
        assert_eq!(told(&tank), [format!("{away}; its data is being rebuilt (job tank/7) | weft job show tank/7")]);
        tank.jobs.clear();
        tank.disks[1].state = DiskState::Failed;
        assert_eq!(
            told(&tank),
            [format!(
                "disk tank/d1: failed, last seen as /srv/d1: it answered with errors and was taken out; {never}; it \
                can be given another chance | weft disk set tank d1 maintenance=off"
            )]
        );
        // It has failed again and again.
        tank.disks[1].usage = Some(Usage::Retired);
        assert!(told(&tank)[0].ends_with("| weft disk replace tank d1 DISK"));
        (tank.disks[1].state, tank.disks[1].usage) = (DiskState::Missing, Some(Usage::Auto));
        tank.jobs = vec![job(JobKind::Evacuate, Some("d1"), JobState::Running)];
        assert_eq!(told(&tank), [format!("{away}; it is leaving the pool (job tank/7) | weft job show tank/7")]);
        tank.disks[1].state = DiskState::Maintenance;
        assert!(told(&tank)[0].ends_with("| weft disk set tank d1 maintenance=off"));
        tank.disks[1].state = DiskState::Returning;
        assert!(told(&tank)[0].starts_with("disk tank/d1: back; what it missed"));
    }

    #[test]
    fn a_frozen_pool_says_what_it_waits_for_and_offers_nothing_that_it_would_refuse() {
        let mut tank = pool(vec![disk("d0", 1), disk("d1", 1), disk("d2", 1)]);
        for away in &mut tank.disks[1..] {
            away.state = DiskState::Missing;
        }
        (tank.read_only, tank.vdisks[0].health) = (true, Health::Failed);
        tank.frozen = Some(Frozen { reason: "why".into(), seconds: 12, missing: vec!["d1".into(), "d2".into()] });
        let list = "weft disk list --pool tank";
        let expected = [
            format!(
                "pool tank: frozen for 12s: why; it is read as far as its disks are there, all else waits, nothing \
                that was flushed is lost, and it goes on by itself when enough of them are back | {list}"
            ),
            format!("vdisk tank/media: some of its data cannot be read without d1, d2 | {list}"),
            "disk tank/d1: missing; the pool waits for it | weft disk show tank/d1".into(),
            "disk tank/d2: missing; the pool waits for it | weft disk show tank/d2".into(),
        ];
        assert_eq!(told(&tank), expected);
    }

    #[test]
    fn a_cache_with_too_few_disks_is_told() {
        let mut pool = pool(vec![disk("d1", 5)]);
        let layout = Layout { resiliency: Resiliency::Mirror { copies: 2 }, columns: 1, interleave: 65_536 };
        let disks = vec!["s1".into(), "s2".into()];
        pool.vdisks[0].write_cache = Some(CacheInfo { size: 1 << 30, disks, layout, drains: true, may_lose: false });
        assert!(told(&pool).is_empty());
        pool.vdisks[0].write_cache.as_mut().unwrap().disks.pop();
        let told = told(&pool);
        assert!(told[0].contains("needs 2 disks and has s1"), "{told:?}");
        assert_eq!(concerns(&pool)[0].hint.as_deref(), Some("weft vdisk set tank/media write-cache=0"));
    }

    #[test]
    fn an_unsafe_cache_is_told_for_ever_and_a_safe_one_is_offered_where_it_can_be() {
        let mut tank = pool(vec![disk("s1", 5)]);
        (tank.disks[0].media, tank.disks[0].usage) = (Media::Ssd, Some(Usage::Manual));
        let layout = Layout { resiliency: Resiliency::Simple, columns: 1, interleave: 65_536 };
        let disks = vec!["s1".into()];
        let cache = CacheInfo { size: 1 << 30, disks, layout, drains: false, may_lose: true };
        let vdisk = &mut tank.vdisks[0];
        (vdisk.write_cache, vdisk.packed, vdisk.failures_new) = (Some(cache), 3 << 20, Some(0));
        let told_of = |hint: &str| {
            format!(
                "vdisk tank/media: its write-back cache is unsafe: what rests there, 3 MiB now, is lost with s1, \
                 whatever single parity survives | weft vdisk set tank/media {hint}"
            )
        };
        assert_eq!(told(&tank), [told_of("write-cache=0")]);
        tank.disks.push(DiskInfo { name: "s2".into(), ..tank.disks[0].clone() });
        assert_eq!(told(&tank), [told_of("write-cache=1GiB")]);
        tank.vdisks[0].write_cache.as_mut().unwrap().disks.clear();
        let told = told(&tank);
        assert!(told.len() == 1 && told[0].contains("needs 1 disk and has none: it takes nothing"), "{told:?}");
    }

    #[test]
    fn jobs_and_full_pools_are_told() {
        let mut tank = pool(vec![disk("d0", 1)]);
        tank.jobs = vec![job(JobKind::Rebalance, None, JobState::Failed)];
        assert_eq!(told(&tank), ["job tank/7: rebalance failed: why | weft job show tank/7"]);
        tank.jobs.push(JobInfo { id: 8, state: JobState::Done, ..job(JobKind::Rebalance, None, JobState::Done) });
        assert!(told(&tank).is_empty(), "it was done since");
        tank.jobs = vec![job(JobKind::Scrub, None, JobState::Paused)];
        assert_eq!(told(&tank), ["job tank/7: scrub is paused | weft job resume tank/7"]);
        tank.jobs.clear();
        tank.vdisks[0].older = vec![OlderTable { layout: tank.vdisks[0].layout, used: 4096 }];
        let half = told(&tank);
        assert!(half[0].contains("4 KiB of it still lie in") && half[0].ends_with("| weft vdisk change tank/media"));
        let job = job(JobKind::Reshape, None, JobState::Running);
        tank.jobs = vec![JobInfo { vdisk: Some("media".into()), ..job }];
        assert!(told(&tank).is_empty(), "it is moved");
        tank.jobs.clear();
        tank.vdisks[0].older.clear();
        for (allocated, says) in [
            (399, Some(full::NO_ROOM)),
            (279, None),
            (280, Some("70 % full")),
            (360, Some("90 % full: new data will soon")),
        ] {
            (tank.allocated, tank.free) = (allocated, 400 - allocated);
            let told = told(&tank);
            assert_eq!(told.first().map(|one| one.contains(says.unwrap_or("none"))), says.map(|_| true), "{told:?}");
        }
        (tank.allocated, tank.unusable) = (210, 100);
        assert_eq!(told(&tank).len(), 1, "70 % of what can be used");
    }
}
