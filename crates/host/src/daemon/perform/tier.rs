//! What fast tiers would be good for, what is pinned to them, and putting them right now.

use super::Seen;
use super::job::already;
use super::vdisk::find_vdisk;
use crate::api::error::{Answer, ApiError, Kind};
use crate::api::job::{JobInfo, JobKind};
use crate::api::tier::{TierCurve, TierPoint};
use crate::api::watch::{Change, Outcome};
use crate::daemon::Daemon;
use crate::daemon::engine::vdisks::an_example;
use crate::daemon::opening::wall_clock;
use crate::ops::Perform;
use crate::ops::tier::{TierOptimize, TierPin, TierReport};
use crate::ops::vdisk::VdiskShow;
use crate::ops::vdisk_set::VdiskSet;
use weft_engine::units::ByteCount;

impl Perform<TierPin> for Daemon {
    fn perform(&self, pin: &TierPin) -> Answer<Change> {
        self.change_pool(&pin.vdisk.pool, |seen| self.pin_to_tier(seen, pin))
    }
}

impl Perform<TierOptimize> for Daemon {
    fn perform(&self, optimize: &TierOptimize) -> Answer<Change> {
        self.change_pool(&optimize.vdisk.pool, |seen| self.optimize_tiers(seen, optimize))
    }
}

impl Daemon {
    fn pin_to_tier(&self, seen: &Seen, request: &TierPin) -> Answer<Change> {
        let (name, dry_run) = (&request.vdisk, request.changing.dry_run);
        let vdisk = find_vdisk(&seen.pool, name)?;
        seen.writable()?;
        if vdisk.tier.as_ref().is_none_or(|tier| tier.layout.is_none()) {
            let message = format!("{name} has no fast tier");
            let nearest = VdiskSet { tier: Some(an_example()), ..VdiskSet::of(name) };
            return Err(ApiError::new(Kind::NotPossible, message).offer(&nearest));
        }
        let pieces = request.pieces.iter().map(|piece| piece.offset..piece.offset.saturating_add(piece.length));
        let (run, pinned) = (request.changing.run(), request.pinned);
        let done = self.parts.engine.tier_pin(name, pieces.collect(), pinned, run);
        let (changes, tier) =
            done.map_err(|error| error.or_hint(|| crate::ops::line::ToLine::line(&VdiskShow::of(name))))?;
        let all: u64 = tier.pins.iter().map(|pin| pin.end - pin.start).sum();
        let outcome = if changes { Outcome::Changed } else { Outcome::AlreadySo };
        let now = format!("{} of it are pinned to its fast tier of {}", ByteCount(all), tier.size);
        Ok(Change::new(outcome, format!("vdisk {name}"), dry_run).line(now))
    }

    fn optimize_tiers(&self, seen: &Seen, request: &TierOptimize) -> Answer<Change> {
        let (name, dry_run) = (&request.vdisk, request.changing.dry_run);
        find_vdisk(&seen.pool, name)?;
        let pool = seen.writable()?;
        let ours = |job: &&JobInfo| {
            job.kind == JobKind::Optimize && job.vdisk.as_ref() == Some(&name.vdisk) && !job.state.is_over()
        };
        let subject = format!("tiers of vdisk {name}");
        if let Some(job) = pool.jobs.iter().find(ours) {
            return Ok(already(job, subject, dry_run));
        }
        let id = self.parts.engine.tier_optimize(name, wall_clock(), request.changing.run())?;
        let change = Change::new(Outcome::Started, subject, dry_run)
            .line("what is sought out most, and what is pinned, comes to the fast tier; what is not leaves it");
        Ok(match id {
            Some(id) => change.job(format!("{}/{id}", name.pool)),
            None => change,
        })
    }
}

impl Perform<TierReport> for Daemon {
    fn perform(&self, report: &TierReport) -> Answer<TierCurve> {
        let size = self.vdisk(&report.vdisk)?.size;
        let found = self.parts.engine.tier_report(&report.vdisk)?;
        let percent = |part: u64, of: u64| part as f64 * 100.0 / of.max(1) as f64;
        let point = |(bytes, seeks): &(weft_engine::units::ByteCount, u64)| TierPoint {
            // The last range may reach beyond the end.
            bytes: bytes.0.min(size),
            size_percent: percent(bytes.0.min(size), size),
            seeks_percent: percent(*seeks, found.seeks),
        };
        let curve = found.points.iter().map(point).collect();
        Ok(TierCurve { vdisk: report.vdisk.clone(), size, range: found.range.0, seeks: found.seeks, curve })
    }
}
