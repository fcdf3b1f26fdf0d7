//! What fast tiers would be good for.

use crate::api::error::Answer;
use crate::api::tier::{TierCurve, TierPoint};
use crate::daemon::Daemon;
use crate::ops::Perform;
use crate::ops::tier::TierReport;

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
