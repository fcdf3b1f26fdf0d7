//! Fast tiers: `weft tier`.

use super::table::{Rows, Style, cell, human};
use super::text::Text;
use super::{Doer, values, verb};
use crate::api::name::VdiskName;
use crate::api::tier::TierCurve;
use clap::{Args, Subcommand};
use serde::{Deserialize, Serialize};

/// The longest bar of the plot.
const BAR: f64 = 40.0;

/// `weft tier`.
#[derive(Subcommand, Clone, Debug)]
pub enum Tier {
    /// Show how much of what is asked of a virtual disk fast tiers of all sizes would catch
    #[command(after_help = "Examples:\n  weft tier report tank/vm\n  weft tier report tank/vm --json\n\n\
        Counted are requests that a hard disk seeks for: one that goes on where another has just ended is not. Half of \
        what was counted is forgotten in a day of service; what is left survives restarts of the daemon.")]
    Report(TierReport),
}

impl Tier {
    /// Does what was typed.
    pub fn run<D: Doer>(self, doer: &mut D) -> D::Done {
        match self {
            Tier::Report(operation) => doer.operate(operation),
        }
    }
}

/// Asks what fast tiers would catch.
#[derive(Args, Serialize, Deserialize, Clone, PartialEq, Eq, Debug)]
pub struct TierReport {
    /// The virtual disk
    #[arg(value_name = "POOL/VDISK", value_parser = values::vdisk)]
    #[serde(skip)]
    pub vdisk: VdiskName,
}

verb!(TierReport: "tier report");

impl Text for TierCurve {
    fn text(&self, style: Style) -> String {
        if self.curve.is_empty() {
            return format!(
                "{}: nothing was sought out yet. What goes on where another request has just ended is not counted.\n",
                self.vdisk
            );
        }
        let mut rows = Rows::new(style, &[">FAST TIER", ">OF THE DISK", ">CATCHES", ""]);
        for point in &self.curve {
            rows.row(vec![
                cell(human(point.bytes)),
                cell(format!("{:.2}%", point.size_percent)),
                cell(format!("{:.1}%", point.seeks_percent)),
                cell("#".repeat((point.seeks_percent / 100.0 * BAR).round() as usize)),
            ]);
        }
        format!(
            "{}: {} requests counted, in ranges of {}; half is forgotten in a day\n\n{}",
            self.vdisk,
            self.seeks,
            human(self.range),
            rows.draw()
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::tier::TierPoint;

    #[test]
    fn a_curve_is_a_table_and_a_plot() {
        let point = |bytes, size_percent, seeks_percent| TierPoint { bytes, size_percent, seeks_percent };
        let (vdisk, size) = ("tank/vm".parse().unwrap(), 1 << 40);
        let mut curve = TierCurve { vdisk, size, range: 4 << 20, seeks: 1200, curve: Vec::new() };
        assert!(curve.text(Style::default()).contains("nothing was sought out yet"));
        curve.curve = vec![point(4 << 20, 0.0004, 50.0), point(8 << 20, 0.0008, 100.0)];
        let text = curve.text(Style::default());
        assert!(text.contains("1200 requests"), "{text}");
        let bars: Vec<usize> = text.lines().skip(3).map(|line| line.matches('#').count()).collect();
        assert_eq!(bars, [20, 40], "{text}");
    }
}
