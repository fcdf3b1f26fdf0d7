//! What the daemon does by itself while its pools are open: gives returning disks back to them, opens pools that were
//! open here when their disks appear, begins the periodic scrubs, puts fast tiers right at the time of day that was
//! said, warns when a pool fills up or a disk has used up its life, and remembers what changed.
//!
//! Invariants
//! 1. Looking costs a look at names, and nothing on the engine's thread, unless something appeared, went or happened,
//!    or a pool is frozen.
//! 2. A scrub that is due is begun once: while one has not ended, none is due. Fast tiers are put right once a day,
//!    one virtual disk after the other, while no other job is under way.
//! 3. A pool that stays near a threshold is warned of once.
//! 4. What appears is looked into, whenever it does: what a look compares with was seen before the last time that
//!    pools were looked for.

use super::backend::Run;
use super::concerns::full;
use super::find::Look;
use super::opening::{Looking, wall_clock};
use super::{Daemon, find, lock};
use crate::api::error::{Answer, ApiError, Kind};
use crate::api::job::{JobInfo, JobKind, StartKind};
use crate::api::name::VdiskName;
use crate::api::pool::{DiskState, PoolInfo};
use jiff::Zoned;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// How often it looks whether something appeared or went.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// How often it looks at the pools themselves: they change by their own jobs, and content can appear on a disk that a
/// pool misses.
const POOLS_EVERY: Duration = Duration::from_secs(5);
/// A pool is below a threshold again when it is so far below it, in percent of its room (invariant 3).
const BELOW: f64 = 2.0;

/// After how long a frozen pool tries disks again that failed and are still there.
const CHANCE_AFTER: Duration = Duration::from_secs(5);
/// How long after that it does so no more: the engine retires a disk that fails for the third time.
const CHANCE_EVERY: Duration = Duration::from_secs(3600);

/// Fast tiers that nobody could put right at their time of day are put right so much later at most: what was missed at
/// night is not made up for by day.
const TIERS_WITHIN: Duration = Duration::from_secs(4 * 3600);

/// Room that a file system must have before disks on it are used again that it had no room for, in bytes.
const ROOM_AGAIN: u64 = 64 << 20;
/// How often such a disk is tried again at most.
const ROOM_EVERY: Duration = Duration::from_secs(5);

/// The thread that does it.
pub(super) struct Keeper {
    stop: Arc<(Mutex<bool>, Condvar)>,
    thread: JoinHandle<()>,
}

/// What it knows from its last looks.
struct Known {
    /// What was at the places where disks may be.
    seen: Seen,
    /// When the pools were looked at.
    pools_at: Instant,
    /// The number of the last event then: a disk that blinks is an event, and its name may be back before it was
    /// missed.
    event: u64,
    /// Whether a pool waits for disks, or somebody still claimed a disk that is back.
    hurry: bool,
    /// How many thresholds each pool, by its identity, had passed.
    full: BTreeMap<String, usize>,
    /// When pools, by their identities, may try disks again that failed.
    chances: BTreeMap<String, Instant>,
    /// When disks, by their identities, were tried again last that had no room below them.
    full_tried: BTreeMap<String, Instant>,
}

/// What is at a place where a disk may be. A file that is being copied grows.
pub(super) type Seen = Vec<(PathBuf, Option<(u64, u64)>, Look)>;

impl Keeper {
    /// Starts it. `seen`: what was there before the daemon looked for pools; whatever appeared since is news.
    pub(super) fn start(daemon: Arc<Daemon>, seen: Seen) -> Answer<Keeper> {
        let stop = Arc::new((Mutex::new(false), Condvar::new()));
        let stopped = stop.clone();
        let keep = move || {
            let pools_at = Instant::now();
            let (full, chances, full_tried) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
            let mut known = Known { seen, pools_at, event: 0, hurry: false, full, chances, full_tried };
            loop {
                let (flag, news) = &*stopped;
                let waited = news.wait_timeout_while(lock(flag), LOOK_EVERY, |stop| !*stop);
                if *waited.unwrap_or_else(PoisonError::into_inner).0 {
                    return;
                }
                daemon.keep(&mut known);
            }
        };
        let thread = thread::Builder::new().name("weft-keeper".into()).spawn(keep);
        let thread = thread.map_err(|error| ApiError::new(Kind::Internal, format!("no thread for pools: {error}")))?;
        Ok(Keeper { stop, thread })
    }

    /// Returns when it does nothing any more.
    pub(super) fn stop(self) {
        *lock(&self.stop.0) = true;
        self.stop.1.notify_all();
        let _ = self.thread.join();
    }
}

impl Daemon {
    /// What is at the places where disks may be now.
    pub(super) fn seen(&self) -> Seen {
        self.scanned()
            .into_iter()
            .map(|path| {
                let (identity, look) = (find::identity(&path), find::look(&path));
                (path, identity, look)
            })
            .collect()
    }

    fn keep(&self, known: &mut Known) {
        let seen = self.seen();
        if known.seen != seen {
            known.seen = seen;
            known.hurry |= self.rescan(Instant::now(), Looking::Around);
        }
        let event = self.parts.journal.newest();
        if known.pools_at.elapsed() < POOLS_EVERY && known.event == event && !known.hurry {
            return;
        }
        (known.pools_at, known.event) = (Instant::now(), event);
        let _alone = lock(&self.changing);
        let Ok(pools) = self.parts.engine.pools() else { return };
        self.note_open(&pools);
        let missing = pools.iter().flat_map(|pool| &pool.disks).any(|disk| disk.state == DiskState::Missing);
        let waiting = !lock(&self.unopened).is_empty();
        let mut claimed = false;
        if missing || waiting {
            claimed = self.look_around(Instant::now(), Looking::Again);
        }
        known.hurry = claimed || pools.iter().any(|pool| pool.frozen.is_some());
        self.try_failed(&pools, &mut known.chances);
        self.try_full(&pools, &mut known.full_tried);
        self.begin_scrubs(&pools);
        self.put_tiers_right(&pools);
        self.warn_of_full(&pools, &mut known.full);
        self.lives.ask(&pools, &self.parts.journal);
    }

    /// Tries disks once more that failed and are still there, where their pool waits for disks: what failed may have
    /// been the bus.
    fn try_failed(&self, pools: &[PoolInfo], chances: &mut BTreeMap<String, Instant>) {
        let now = Instant::now();
        for pool in pools.iter().filter(|pool| pool.frozen.is_some()) {
            let failed: Vec<_> = pool.disks.iter().filter(|disk| disk.state == DiskState::Failed).collect();
            if failed.is_empty() || *chances.entry(pool.id.clone()).or_insert(now + CHANCE_AFTER) > now {
                continue;
            }
            chances.insert(pool.id.clone(), now + CHANCE_EVERY);
            for disk in failed {
                if self.try_again(pool, disk).is_ok() {
                    let text = format!("disk {} is given another chance: the pool waits for it", disk.name);
                    self.parts.journal.note(Some(&pool.name), text);
                }
            }
        }
    }

    /// Uses disks again that were taken out because the file system of their file was full, when it has room. What a
    /// volume below a block device has nobody can tell: that is tried now and then.
    fn try_full(&self, pools: &[PoolInfo], tried: &mut BTreeMap<String, Instant>) {
        for pool in pools {
            for disk in pool.disks.iter().filter(|disk| disk.out_of_room) {
                let (Some(id), Some(path)) = (&disk.id, &disk.path) else { continue };
                let every = match find::look(path) {
                    Look::File(_) if find::room_below(path).is_some_and(|free| free >= ROOM_AGAIN) => ROOM_EVERY,
                    Look::Block => ROOM_EVERY * 12,
                    _ => continue,
                };
                if tried.get(id).is_some_and(|last| last.elapsed() < every) {
                    continue;
                }
                tried.insert(id.clone(), Instant::now());
                if self.try_again(pool, disk).is_ok() {
                    let text = format!("disk {} has room below it again and is used again", disk.name);
                    self.parts.journal.note(Some(&pool.name), text);
                }
            }
        }
    }

    /// Tells people when a pool passes a threshold. `told`: how many each is known to have passed.
    fn warn_of_full(&self, pools: &[PoolInfo], told: &mut BTreeMap<String, usize>) {
        told.retain(|id, _| pools.iter().any(|pool| pool.id == *id));
        for pool in pools {
            let percent = full::percent(pool);
            let before = told.get(&pool.id).copied().unwrap_or(0);
            let now = thresholds_passed(percent, &pool.settings.full, before);
            told.insert(pool.id.clone(), now);
            if now > before {
                let threshold = pool.settings.full[now - 1];
                let text = format!("pool {} is {percent:.0} % full, above {threshold} %", pool.name);
                self.parts.journal.warn(Some(&pool.name), text);
            } else if now < before {
                self.parts
                    .journal
                    .note(Some(&pool.name), format!("pool {} is only {percent:.0} % full again", pool.name));
            }
        }
    }

    fn begin_scrubs(&self, pools: &[PoolInfo]) {
        let now = wall_clock();
        for pool in pools {
            let since = lock(&self.state).pools.iter().find(|record| record.id == pool.id).map(|record| record.since);
            if !scrub_is_due(pool, since.unwrap_or(now), now) {
                continue;
            }
            if let Err(error) = self.parts.engine.job_start(&pool.name, StartKind::Scrub, now, Run::Real) {
                let text = format!("the scrub that is due was not begun: {}", error.message);
                let mut told = lock(&self.refused);
                if told.insert(PathBuf::from(&pool.name), text.clone()).as_ref() != Some(&text) {
                    self.parts.journal.warn(Some(&pool.name), text);
                }
            }
        }
    }
}

impl Daemon {
    /// Begins the jobs that put fast tiers right at a time of day.
    fn put_tiers_right(&self, pools: &[PoolInfo]) {
        let now = Zoned::now();
        for pool in pools {
            let Some(vdisk) = pool.settings.tier_schedule.0.and_then(|minutes| {
                let due = last_time(minutes, &now)?;
                tiers_are_due(pool, due, u64::try_from(now.timestamp().as_second()).ok()?)
            }) else {
                continue;
            };
            if let Err(error) = self.parts.engine.tier_optimize(vdisk, wall_clock(), Run::Real) {
                let text = format!("the tiers of {vdisk} were not put right: {}", error.message);
                let mut told = lock(&self.refused);
                if told.insert(PathBuf::from(vdisk.to_string()), text.clone()).as_ref() != Some(&text) {
                    self.parts.journal.warn(Some(&pool.name), text);
                }
            }
        }
    }
}

/// When it was so many minutes after midnight last, in seconds since 1970 UTC. A time that a change of clocks leaves
/// out counts as the next one that there is.
fn last_time(minutes: u16, now: &Zoned) -> Option<u64> {
    let time = jiff::civil::time((minutes / 60) as i8, (minutes % 60) as i8, 0, 0);
    let on = |date: jiff::civil::Date| date.to_datetime(time).to_zoned(now.time_zone().clone()).ok();
    let today = on(now.date()).filter(|at| at <= now);
    let last = today.or_else(|| on(now.date().yesterday().ok()?))?;
    u64::try_from(last.timestamp().as_second()).ok()
}

/// The next virtual disk whose tiers are to be put right: the time was `due`, and it is `now`, in seconds since 1970
/// UTC (invariant 2).
fn tiers_are_due(pool: &PoolInfo, due: u64, now: u64) -> Option<&VdiskName> {
    let late = now.saturating_sub(due) >= TIERS_WITHIN.as_secs();
    if late || pool.read_only || pool.frozen.is_some() || pool.jobs.iter().any(|job| !job.state.is_over()) {
        return None;
    }
    let tiered = pool.vdisks.iter().filter(|vdisk| vdisk.tier.is_some()).map(|vdisk| &vdisk.name);
    let is_done = |name: &VdiskName| {
        let of_it = |job: &&JobInfo| job.kind == JobKind::Optimize && job.vdisk.as_ref() == Some(&name.vdisk);
        pool.jobs.iter().filter(of_it).any(|job| job.began >= due)
    };
    tiered.into_iter().find(|name| !is_done(name))
}

/// How many of the thresholds, in percent, a pool has passed that had passed `before` of them when last looked at.
fn thresholds_passed(percent: f64, thresholds: &[u8; 3], before: usize) -> usize {
    let passed = |(n, threshold): (usize, &u8)| percent >= f64::from(*threshold) - if n < before { BELOW } else { 0.0 };
    thresholds.iter().enumerate().take_while(|threshold| passed(*threshold)).count()
}

/// Whether the periodic scrub of a pool is due (invariant 2). A pool that was never scrubbed counts from `since`, when
/// it was first open here. All in seconds since 1970 UTC; a clock that was set back makes nothing due.
fn scrub_is_due(pool: &PoolInfo, since: u64, now: u64) -> bool {
    let Some(every) = pool.settings.scrub_every_seconds else { return false };
    let ran = pool.jobs.iter().filter(|job| job.kind == JobKind::Scrub);
    let under_way = ran.clone().any(|job| !job.state.is_over());
    // One that failed or was cancelled is not begun again at once.
    let last = ran.map(|job| job.began).chain(pool.settings.scrubbed).max().unwrap_or(since);
    !pool.read_only && !under_way && now.saturating_sub(last) >= every
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::job::{JobInfo, JobState};
    use crate::api::pool::Health;
    use crate::api::pool::PoolSettings;
    use crate::api::tier::TierInfo;
    use crate::api::vdisk::{Layout, Resiliency, VdiskInfo};
    use jiff::civil::DateTime;
    use jiff::tz::TimeZone;

    fn pool(every: Option<u64>, scrubbed: Option<u64>) -> PoolInfo {
        let settings = PoolSettings {
            repair_after_seconds: Some(300),
            scrub_every_seconds: every,
            scrubbed,
            foreground_share: 50,
            full: [70, 80, 90],
            tier_schedule: Default::default(),
        };
        PoolInfo {
            name: "tank".into(),
            id: "1".into(),
            health: Health::Healthy,
            read_only: false,
            slab_size: 1,
            capacity: 0,
            allocated: 0,
            used: 0,
            free: 0,
            promised: 0,
            unusable: 0,
            unusable_why: None,
            settings,
            frozen: None,
            log_fill: 0.0,
            compaction: Default::default(),
            memory: Vec::new(),
            open_nanos: 0,
            disks: Vec::new(),
            vdisks: Vec::new(),
            jobs: Vec::new(),
        }
    }

    #[test]
    fn thresholds_are_passed_upwards_at_once_and_downwards_with_some_room() {
        let mut passed = 0;
        let mut seen = Vec::new();
        for percent in [69.9, 70.0, 69.0, 68.1, 67.9, 95.0, 88.5, 79.0, 10.0] {
            passed = thresholds_passed(percent, &[70, 80, 90], passed);
            seen.push(passed);
        }
        assert_eq!(seen, [0, 1, 1, 1, 0, 3, 3, 2, 0]);
    }

    fn tiered(name: &str, has_tier: bool) -> VdiskInfo {
        let layout = Layout { resiliency: Resiliency::Simple, columns: 1, interleave: 65_536 };
        let tier = TierInfo { size: 1, used: 0, disks: Vec::new(), layout: None, drains: false, pins: Vec::new() };
        let vdisk = VdiskInfo::sample(&format!("tank/{name}"), layout);
        VdiskInfo { tier: has_tier.then_some(tier), ..vdisk }
    }

    fn optimized(vdisk: &str, state: JobState, began: u64) -> JobInfo {
        JobInfo { kind: JobKind::Optimize, vdisk: Some(vdisk.into()), ..scrub(state, began) }
    }

    fn scrub(state: JobState, began: u64) -> JobInfo {
        JobInfo {
            job: "tank/1".into(),
            pool: "tank".into(),
            id: 1,
            name: "scrub".into(),
            kind: JobKind::Scrub,
            disk: None,
            vdisk: None,
            state,
            done: 0,
            total: 0,
            rate: 0,
            left_seconds: None,
            began,
            note: String::new(),
        }
    }

    #[test]
    fn a_scrub_is_due_by_the_wall_clock_and_begun_once() {
        assert!(!scrub_is_due(&pool(Some(100), None), 1_000, 1_099));
        assert!(scrub_is_due(&pool(Some(100), None), 1_000, 1_100));
        assert!(!scrub_is_due(&pool(Some(100), Some(1_050)), 1_000, 1_100));
        assert!(scrub_is_due(&pool(Some(100), Some(1_050)), 1_000, 1_150));
        assert!(!scrub_is_due(&pool(None, None), 0, u64::MAX));
        assert!(!scrub_is_due(&pool(Some(100), Some(9_000)), 1_000, 1_150), "the clock was set back");
        for (state, due) in [(JobState::Paused, false), (JobState::Running, false), (JobState::Failed, true)] {
            let pool = PoolInfo { jobs: vec![scrub(state, 1_000)], ..pool(Some(100), Some(500)) };
            assert_eq!(scrub_is_due(&pool, 0, 1_100), due, "{state}");
        }
        let failed = PoolInfo { jobs: vec![scrub(JobState::Failed, 1_050)], ..pool(Some(100), None) };
        assert!(!scrub_is_due(&failed, 0, 1_100));
        assert!(!scrub_is_due(&PoolInfo { read_only: true, ..pool(Some(100), None) }, 0, 1_100));
    }

    #[test]
    fn tiers_are_put_right_once_a_day_one_after_the_other_and_soon_after_their_time() {
        let middle_europe = TimeZone::posix("CET-1CEST,M3.5.0,M10.5.0/3").unwrap();
        let at = |text: &str| text.parse::<DateTime>().unwrap().to_zoned(middle_europe.clone()).unwrap();
        let last = |minutes, now: &str| last_time(minutes, &at(now));
        let due = at("2026-03-28T02:30:00").timestamp().as_second() as u64;
        assert_eq!(last(150, "2026-03-28T02:30:00"), Some(due));
        assert_eq!(last(150, "2026-03-29T01:59:00"), Some(due));
        // That night has no 02:30.
        assert_eq!(last(150, "2026-03-29T03:40:00"), Some(due + 24 * 3600));
        let mut tank = pool(None, None);
        assert_eq!(tiers_are_due(&tank, due, due + 5), None, "it has none");
        tank.vdisks = ["a", "b", "plain"].map(|name| tiered(name, name != "plain")).into();
        let next = |tank: &PoolInfo, now| tiers_are_due(tank, due, now).map(|name| name.vdisk.clone());
        assert_eq!(next(&tank, due + 5).as_deref(), Some("a"));
        assert_eq!(next(&tank, due + 4 * 3600), None, "too late");
        tank.jobs = vec![optimized("a", JobState::Done, due - 10)];
        assert_eq!(next(&tank, due + 5).as_deref(), Some("a"), "that was for the day before");
        tank.jobs[0] = optimized("a", JobState::Running, due + 5);
        assert_eq!(next(&tank, due + 10), None, "one job at a time");
        tank.jobs[0].state = JobState::Failed;
        assert_eq!(next(&tank, due + 15).as_deref(), Some("b"), "also after one that failed");
        tank.jobs.push(optimized("b", JobState::Done, due + 15));
        assert_eq!(next(&tank, due + 20), None);
        tank.jobs.clear();
        tank.read_only = true;
        assert_eq!(next(&tank, due + 5), None);
    }
}
