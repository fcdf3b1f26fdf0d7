//! A workload of one's own: how much each figure of a layout counts for its jobs, and what each job would get.
//!
//! The time that one disk of the class would need for a job says how much the job counts. What a layout gives it
//! follows from the layout's figures: transfers in order from its streams, requests at random from how many requests
//! are under way, and whoever waits for each of its writes from the disks' revolutions.

use super::{Facts, LayoutPlan};
use crate::disks::{Class, Raw, random_reads};
use crate::jobs::Job;
use serde::Serialize;
use weft_engine::units::BLOCK;

/// Bytes of a job that says neither a size nor a time.
const SIZE: u64 = 1 << 30;
/// Revolutions that a flush takes on hard disks (`docs/evidence/speed.md`).
const FLUSH: f64 = 3.0;

/// What a job would get.
#[derive(Clone, PartialEq, Serialize, Debug)]
pub struct JobPlan {
    /// What it is called.
    pub name: String,
    /// Its requests per second.
    pub per_second: f64,
    /// Its MB/s.
    pub mb_s: f64,
    /// What that follows from.
    pub reason: String,
}

/// Parts of the time of a workload, 1 together.
#[derive(Clone, Copy, PartialEq, Default, Debug)]
pub(super) struct Shares {
    pub(super) write: f64,
    pub(super) read: f64,
    pub(super) random_write: f64,
    pub(super) random_read: f64,
}

impl Shares {
    /// What the jobs do, where one disk does it.
    pub(super) fn of(jobs: &[Job], raw: Raw) -> Shares {
        let mut shares = Shares::default();
        let mut all = 0.0;
        for job in jobs {
            let time = alone(job, raw);
            let (writes, reads) = (time * job.line.writes, time * (1.0 - job.line.writes));
            let (for_writes, for_reads) = match job.line.random {
                true => (&mut shares.random_write, &mut shares.random_read),
                false => (&mut shares.write, &mut shares.read),
            };
            *for_writes += writes;
            *for_reads += reads;
            all += time;
        }
        [&mut shares.write, &mut shares.read, &mut shares.random_write, &mut shares.random_read]
            .into_iter()
            .for_each(|share| *share /= all);
        shares
    }
}

/// Seconds that one disk needs for a job.
fn alone(job: &Job, raw: Raw) -> f64 {
    if let Some(span) = job.line.span.filter(|_| job.endless) {
        return span.0 as f64 / 1e9;
    }
    let bytes = job.size.unwrap_or(SIZE) as f64;
    let seeks = if job.line.random { bytes / job.line.len as f64 / raw.random_reads } else { 0.0 };
    seeks + bytes / raw.sequential
}

impl Facts<'_> {
    /// What each job of the question would get of a layout.
    pub(super) fn jobs(&self, plan: &LayoutPlan) -> Vec<JobPlan> {
        self.question.jobs.iter().map(|job| self.job(job, plan)).collect()
    }

    fn job(&self, job: &Job, plan: &LayoutPlan) -> JobPlan {
        let (len, writes) = (job.line.len as f64, job.line.writes);
        let (read, mut write) = match job.line.random {
            true => (self.reads_at_random(job, plan), writes_at_random(job, plan)),
            false => (plan.read_mb_s * 1e6 / len, plan.write_mb_s * 1e6 / len),
        };
        let mut reason = match job.line.random {
            true => format!("{} requests at random under way", job.line.depth),
            false => "requests in order".to_string(),
        };
        if let Some(revolution) = revolution(self.class) {
            if job.line.durable {
                write = write.min(job.line.depth as f64 / revolution);
                reason += "; a durable write waits for a revolution of the disks";
            } else if let Some(every) = job.fsync.filter(|_| writes > 0.0) {
                write = 1.0 / (1.0 / write + FLUSH * revolution / every as f64);
                reason += &format!("; each flush waits for {FLUSH:.0} revolutions of the disks");
            }
        }
        let per_second = 1.0 / (part(writes, write) + part(1.0 - writes, read));
        JobPlan { name: job.name.clone(), per_second, mb_s: per_second * len / 1e6, reason }
    }

    /// Reads per second: as many disks work as requests are under way, each with its part of the queue.
    fn reads_at_random(&self, job: &Job, plan: &LayoutPlan) -> f64 {
        let disks = self.question.disks.len();
        let busy = disks.min(job.line.depth);
        let queue = (job.line.depth / busy).clamp(1, 32) as u64;
        let share = plan.random_reads / (self.raw.random_reads * disks as f64);
        let small = busy as f64 * random_reads(&self.class.kind(), queue, 10 * queue.max(8)) * share;
        let rest = job.line.len.saturating_sub(BLOCK) as f64;
        1.0 / (1.0 / small + rest / (plan.read_mb_s * 1e6))
    }
}

/// Writes per second that last: stripes are written anew, as many as a request has of them, one at least.
fn writes_at_random(job: &Job, plan: &LayoutPlan) -> f64 {
    let stripe = plan.layout.data_len().0 as f64;
    let len = job.line.len as f64;
    (plan.random_writes / (len / stripe).max(1.0)).min(plan.write_mb_s * 1e6 / len)
}

/// The time that a part of the requests takes, for one request.
fn part(share: f64, per_second: f64) -> f64 {
    if share == 0.0 { 0.0 } else { share / per_second }
}

/// Seconds of a revolution, where something revolves.
fn revolution(class: Class) -> Option<f64> {
    class.hdd().map(|hdd| hdd.revolution as f64 / 1e9)
}
