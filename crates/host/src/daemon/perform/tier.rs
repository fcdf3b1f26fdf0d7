//! What fast tiers would be good for, what is pinned to them, and putting them right now.

use super::Seen;
use super::job::already;
use super::vdisk::find_vdisk;
use crate::api::error::{Answer, ApiError, Kind};
use crate::api::job::{JobInfo, JobKind};
use crate::api::pool::{DiskInfo, Media, PoolInfo, Usage};
use crate::api::tier::{TierChoice, TierCurve, TierInfo, TierMedia, TierPoint, TierSpec};
use crate::api::vdisk::{Layout, ResiliencyKind, VdiskInfo};
use crate::api::watch::{Change, Outcome};
use crate::daemon::Daemon;
use crate::daemon::engine::vdisks::an_example;
use crate::daemon::opening::wall_clock;
use crate::ops::disk::DiskList;
use crate::ops::line::ToLine;
use crate::ops::tier::{TierOptimize, TierPin, TierReport};
use crate::ops::vdisk::VdiskShow;
use crate::ops::vdisk_set::VdiskSet;
use crate::ops::{Perform, Run};
use weft_engine::disk_set::DiskSet;
use weft_engine::format::record::TierRecord;
use weft_engine::geometry;
use weft_engine::pool::tier::TierAsk;
use weft_engine::units::{ByteCount, DiskNo};

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
    /// Changes the fast tier of a virtual disk, which was `before`; what there is to say.
    pub(super) fn set_tier(
        &self,
        pool: &PoolInfo,
        before: &VdiskInfo,
        request: &VdiskSet,
        tier: TierChoice,
        run: Run,
    ) -> Answer<Vec<String>> {
        let ask = match tier {
            TierChoice::Off => None,
            TierChoice::Spec(spec) => Some(tier_ask(pool, &spec)?),
        };
        let planned = self.parts.engine.vdisk_set_tier(&request.vdisk, ask, run)?;
        let had = before.tier.as_ref().filter(|tier| tier.layout.is_some());
        let (was, will) = (had.map_or("none".into(), short), tier_words(pool, planned.as_ref()));
        let mut lines = Vec::new();
        if was != will {
            lines.push(format!("fast tier {was} -> {will}"));
            let used = ByteCount(before.tier.as_ref().map_or(0, |tier| tier.used));
            if planned.is_none() && used > ByteCount::ZERO {
                lines.push(format!("{used} that lie there are moved below"));
            }
        }
        Ok(lines)
    }

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
        let (changes, tier) = done.map_err(|error| error.or_hint(|| VdiskShow::of(name).line()))?;
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
        let point = |(bytes, seeks): &(ByteCount, u64)| TierPoint {
            // The last range may reach beyond the end.
            bytes: bytes.0.min(size),
            size_percent: percent(bytes.0.min(size), size),
            seeks_percent: percent(*seeks, found.seeks),
        };
        let curve = found.points.iter().map(point).collect();
        Ok(TierCurve { vdisk: report.vdisk.clone(), size, range: found.range.0, seeks: found.seeks, curve })
    }
}

/// The fast tier that is asked of the engine.
pub(super) fn tier_ask(pool: &PoolInfo, spec: &TierSpec) -> Answer<TierAsk> {
    let copies = spec.copies.or(spec.failures.map(|failures| failures + 1));
    let resiliency = match (spec.resiliency, copies) {
        (None, None) => None,
        (Some(ResiliencyKind::Simple), _) => Some(geometry::Resiliency::Simple),
        (Some(ResiliencyKind::Parity | ResiliencyKind::MirrorParity), _) => {
            Some(geometry::Resiliency::Parity { parity: spec.failures.unwrap_or(1) })
        }
        (Some(ResiliencyKind::Mirror), None) if spec.media == TierMedia::Any => None,
        (_, copies) => Some(geometry::Resiliency::Mirror { copies: copies.unwrap_or(2) }),
    };
    let size = spec.size.unwrap_or(ByteCount::ZERO);
    let disks = disks_of(pool, spec.media)?;
    Ok(TierAsk { size, disks, resiliency, columns: spec.columns })
}

/// The disks of a medium that take data, one bit each; of any: those that take it by themselves.
pub(super) fn disks_of(pool: &PoolInfo, media: TierMedia) -> Answer<DiskSet> {
    let takes = |disk: &&DiskInfo| matches!(disk.usage, Some(Usage::Auto | Usage::Manual));
    let is_of = |disk: &&DiskInfo| match media {
        TierMedia::Any => disk.usage == Some(Usage::Auto),
        TierMedia::Ssd => disk.media == Media::Ssd,
        TierMedia::Hdd => disk.media != Media::Ssd,
    };
    let set =
        |disks: &mut dyn Iterator<Item = &DiskInfo>| disks.filter_map(|disk| disk.no).map(DiskNo).collect::<DiskSet>();
    match set(&mut pool.disks.iter().filter(takes).filter(is_of)) {
        none if none.is_empty() => {
            let (what, word, why) = match media {
                TierMedia::Ssd => {
                    ("solid-state disk", "media=ssd", "says what a disk is where it does not tell itself")
                }
                TierMedia::Hdd => ("hard disk", "media=hdd", "says what a disk is where it does not tell itself"),
                TierMedia::Any => ("disk", "usage=auto", "has one take it by itself"),
            };
            let message = format!(
                "pool {} has no {what} that takes data; `weft disk set {} DISK {word}` {why}",
                pool.name, pool.name
            );
            Err(ApiError::new(Kind::NotPossible, message).offer(&DiskList::of(&pool.name)))
        }
        found => Ok(found),
    }
}

/// A fast tier in words, without what lies there.
pub(super) fn tier_words(pool: &PoolInfo, tier: Option<&TierRecord>) -> String {
    let Some(tier) = tier else { return "none".into() };
    let disks = pool.names_of(tier.disks);
    let (size, layout) = (tier.size.0, Some(Layout::from(tier.layout)));
    short(&TierInfo { size, used: 0, disks, layout, drains: false, pins: Vec::new() })
}

fn short(tier: &TierInfo) -> String {
    let disks = if tier.disks.is_empty() { "all disks".into() } else { tier.disks.join(", ") };
    let layout = tier.layout.map_or(String::new(), |layout| format!(", {layout}"));
    format!("{} on {disks}{layout}", ByteCount(tier.size))
}
