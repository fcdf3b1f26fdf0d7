//! What of a pool needs a person, and the command to type. Pure: from what the pool shows of itself.

use crate::api::job::{JobInfo, JobKind, JobState};
use crate::api::pool::{DiskInfo, DiskState, Health, Latency, PoolInfo};
use crate::api::span;
use crate::api::watch::Attention;
use std::time::Duration;

/// A disk is slow when it makes its requests wait this many times as long as its peers do ...
const SLOW_FACTOR: u64 = 4;
/// ... and at least so long, in nanoseconds ...
const SLOW_MIN: u64 = 20_000_000;
/// ... over this many requests ...
const SLOW_REQUESTS: u64 = 200;
/// ... and there are at least so many peers.
const PEERS_MIN: usize = 2;

/// What of a pool needs a person, the worst first.
pub(super) fn concerns(pool: &PoolInfo) -> Vec<Attention> {
    let mut found = Vec::new();
    for vdisk in pool.vdisks.iter().filter(|vdisk| vdisk.health == Health::Failed) {
        let message = "some of its data cannot be read";
        found.push(concern(format!("vdisk {}", vdisk.name), message, format!("weft pool check {}", pool.name)));
    }
    found.extend(pool.disks.iter().filter_map(|disk| state_of(pool, disk)));
    found.extend(failing_disks(pool));
    found.extend(slow_disks(pool));
    found.extend(pool.jobs.iter().filter_map(|job| job_concern(pool, job)));
    let subject = || format!("pool {}", pool.name);
    if pool.read_only {
        found.push(concern(subject(), "accepts no writes", format!("weft events {}", pool.name)));
    }
    let full = full_percent(pool);
    if full >= f64::from(pool.settings.full[0]) {
        let message = match full >= f64::from(pool.settings.full[2]) {
            true => format!("{full:.0} % full: new data will soon have no room"),
            false => format!("{full:.0} % full"),
        };
        found.push(concern(subject(), message, format!("weft disk add {} DISK", pool.name)));
    }
    if let Some(why) = &pool.unusable_why {
        let message = format!("{} of its disks cannot be used: {why}", human(pool.unusable));
        found.push(concern(subject(), message, format!("weft pool show {}", pool.name)));
    }
    found
}

/// How full a pool is, 0 to 100. What is not there, and what its layouts cannot use, is no room.
pub(super) fn full_percent(pool: &PoolInfo) -> f64 {
    match pool.capacity.saturating_sub(pool.unusable) {
        0 => 0.0,
        usable => pool.allocated as f64 / usable as f64 * 100.0,
    }
}

fn concern(subject: String, message: impl Into<String>, hint: String) -> Attention {
    Attention { subject, message: message.into(), hint: Some(hint) }
}

/// A disk that is not healthy: what becomes of it by itself, or what to do.
fn state_of(pool: &PoolInfo, disk: &DiskInfo) -> Option<Attention> {
    let (pool_name, name) = (&pool.name, &disk.name);
    let last_seen = disk.path.as_ref().map(|path| format!(", last seen as {}", path.display())).unwrap_or_default();
    let show = format!("weft disk show {pool_name}/{name}");
    let running = |kind: JobKind| pool.jobs.iter().find(|job| job.kind == kind && !job.state.is_over());
    let leaving = running(JobKind::Evacuate).filter(|job| job.disk.as_ref() == Some(name));
    let (message, hint) = match disk.state {
        DiskState::Healthy => return None,
        DiskState::Returning => {
            let job = running(JobKind::Repair).map(|job| format!(" (job {})", job.job)).unwrap_or_default();
            (format!("back; what it missed is being brought to it{job}"), show)
        }
        DiskState::Maintenance => (
            "in maintenance: nothing is read from it or written to it".into(),
            format!("weft disk set {pool_name} {name} maintenance=off"),
        ),
        state if leaving.is_some() => {
            let job = leaving.map(|job| job.job.as_str()).unwrap_or_default();
            (format!("{state}{last_seen}; it is leaving the pool (job {job})"), format!("weft job show {job}"))
        }
        state => {
            let told = format!("{state}{last_seen}");
            let redundant = pool.vdisks.iter().all(|vdisk| vdisk.health == Health::Healthy);
            match (running(JobKind::Repair), redundant) {
                (Some(job), _) => (
                    format!("{told}; its data is being rebuilt (job {})", job.job),
                    format!("weft job show {}", job.job),
                ),
                (None, true) => (
                    format!("{told}; all data has its full redundancy without it"),
                    format!("weft disk remove {pool_name} {name}"),
                ),
                (None, false) => (told + &repair_plan(pool), format!("weft disk replace {pool_name} {name} DISK")),
            }
        }
    };
    Some(concern(format!("disk {pool_name}/{name}"), message, hint))
}

/// When a repair begins by itself.
fn repair_plan(pool: &PoolInfo) -> String {
    match pool.settings.repair_after_seconds {
        None => format!("; nothing is rebuilt by itself, `weft repair {}` does it", pool.name),
        Some(seconds) => format!("; rebuilt where there is room after {}", span::left(seconds)),
    }
}

fn failing_disks(pool: &PoolInfo) -> impl Iterator<Item = Attention> {
    let failing = pool.disks.iter().filter(|disk| disk.state == DiskState::Healthy && disk.counters.errors > 0);
    failing.map(|disk| {
        let message = format!("{} of its reads and writes failed", disk.counters.errors);
        concern(format!("disk {}/{}", pool.name, disk.name), message, format!("weft events {}", pool.name))
    })
}

/// Disks that are outliers against their peers, and what that costs.
fn slow_disks(pool: &PoolInfo) -> impl Iterator<Item = Attention> {
    pool.disks.iter().filter_map(|disk| {
        let own = timed(disk)?;
        let mut peers: Vec<u64> = pool
            .disks
            .iter()
            .filter(|peer| peer.name != disk.name && peer.media == disk.media)
            .filter_map(|peer| timed(peer).map(|latency| latency.p99_nanos))
            .collect();
        peers.sort_unstable();
        let usual = (peers.len() >= PEERS_MIN).then(|| peers[peers.len() / 2])?;
        if own.p99_nanos < SLOW_MIN || own.p99_nanos < usual.saturating_mul(SLOW_FACTOR) {
            return None;
        }
        let message = format!(
            "slow: 1 in 100 of its requests waits {} or longer, its peers' {}; whatever needs it waits with it",
            nanos(own.p99_nanos),
            nanos(usual)
        );
        let hint = format!("weft disk replace {} {} DISK", pool.name, disk.name);
        Some(concern(format!("disk {}/{}", pool.name, disk.name), message, hint))
    })
}

/// How long a disk's requests wait, when it works and there were enough to tell.
fn timed(disk: &DiskInfo) -> Option<Latency> {
    let enough = disk.counters.reads + disk.counters.writes >= SLOW_REQUESTS;
    disk.latency.filter(|_| enough && disk.state == DiskState::Healthy)
}

fn job_concern(pool: &PoolInfo, job: &JobInfo) -> Option<Attention> {
    let subject = format!("job {}", job.job);
    let note = if job.note.is_empty() { String::new() } else { format!(": {}", job.note) };
    let same = |other: &&JobInfo| other.kind == job.kind && other.disk == job.disk;
    let newest = pool.jobs.iter().filter(same).all(|other| other.id <= job.id);
    match job.state {
        JobState::Paused => {
            Some(concern(subject, format!("{} is paused", job.name), format!("weft job resume {}", job.job)))
        }
        JobState::Failed if newest => {
            Some(concern(subject, format!("{} failed{note}", job.name), format!("weft job show {}", job.job)))
        }
        _ => None,
    }
}

fn human(bytes: u64) -> String {
    weft_engine::units::ByteCount(bytes).to_string()
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
