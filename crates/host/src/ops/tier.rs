//! Fast tiers: `weft tier`.

use super::table::{Rows, Style, cell, human};
use super::text::Text;
use super::{Changing, Doer, Verb, values, verb};
use crate::api::error::Answer;
use crate::api::name::VdiskName;
use crate::api::tier::{Piece, TierCurve};
use clap::{Args, Subcommand};
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use utoipa::ToSchema;

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
    /// Have pieces of a virtual disk lie in its fast tier, however seldom they are asked for
    #[command(after_help = "Examples:\n  weft tier pin tank/vm --range 0,1GiB\n  \
        weft tier pin tank/vm --file /mnt/vm/database\n\n\
        A file is pinned as it lies now: what it grows by, or has elsewhere later, is not. Its file system must be one \
        that `weft mount` has mounted.")]
    Pin(TierPin),
    /// Let pieces of a virtual disk leave its fast tier again
    #[command(after_help = "Examples:\n  weft tier unpin tank/vm --range 0,1GiB\n  \
        weft tier unpin tank/vm --file /mnt/vm/database")]
    Unpin(TierPin),
    /// Bring what is sought out most to the fast tier now, beside clients; else that is done when the pool is idle
    #[command(after_help = "Examples:\n  weft tier optimize tank/vm\n  weft tier optimize tank/vm --wait")]
    Optimize(TierOptimize),
}

impl Tier {
    /// Says where the bytes of a file lie that was named, as `find` tells it.
    pub fn located(self, find: impl Fn(&VdiskName, &Path) -> Answer<Vec<Piece>>) -> Answer<Tier> {
        let locate = |mut pin: TierPin| -> Answer<TierPin> {
            if let Some(file) = pin.file.take() {
                pin.pieces = find(&pin.vdisk, &file)?;
            }
            Ok(pin)
        };
        Ok(match self {
            Tier::Pin(pin) => Tier::Pin(locate(pin)?),
            Tier::Unpin(pin) => Tier::Unpin(locate(pin)?),
            other => other,
        })
    }

    /// Does what was typed.
    pub fn run<D: Doer>(self, doer: &mut D) -> D::Done {
        match self {
            Tier::Report(operation) => doer.operate(operation),
            Tier::Pin(operation) => doer.operate(TierPin { pinned: true, ..operation }),
            Tier::Unpin(operation) => doer.operate(TierPin { pinned: false, ..operation }),
            Tier::Optimize(operation) => doer.operate(operation),
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

/// Asks to pin pieces of a virtual disk to its fast tier, or to let go of them.
#[derive(Args, Serialize, Deserialize, ToSchema, Clone, PartialEq, Eq, Debug)]
#[serde(deny_unknown_fields)]
#[group(id = "what", required = true, multiple = false, args = ["pieces", "file"])]
pub struct TierPin {
    /// The virtual disk
    #[arg(value_name = "POOL/VDISK", value_parser = values::vdisk)]
    #[serde(skip)]
    pub vdisk: VdiskName,
    /// Bytes of it: OFFSET,LENGTH
    #[arg(long = "range", value_name = "OFF,LEN", value_parser = values::piece)]
    pub pieces: Vec<Piece>,
    /// The bytes of this file, on a file system that it carries
    #[arg(long, value_name = "PATH")]
    #[serde(skip)]
    pub file: Option<PathBuf>,
    /// Whether they are to be pinned.
    #[arg(skip)]
    pub pinned: bool,
    /// Only say what would change.
    #[command(flatten)]
    #[serde(default, rename = "dry_run")]
    #[schema(value_type = bool)]
    pub changing: Changing,
}

/// Asks for the tiers to be put right now.
#[derive(Args, Serialize, Deserialize, ToSchema, Clone, PartialEq, Eq, Debug)]
#[serde(deny_unknown_fields)]
pub struct TierOptimize {
    /// The virtual disk
    #[arg(value_name = "POOL/VDISK", value_parser = values::vdisk)]
    #[serde(skip)]
    pub vdisk: VdiskName,
    /// Show the job's progress, and return when it is done
    #[arg(long)]
    #[serde(skip)]
    pub wait: bool,
    /// Only say what would change.
    #[command(flatten)]
    #[serde(default, rename = "dry_run")]
    #[schema(value_type = bool)]
    pub changing: Changing,
}

verb!(TierReport: "tier report");

verb!(TierOptimize: "tier optimize", changing {
    fn waits(&self) -> bool {
        self.wait
    }
});

impl Verb for TierPin {
    fn verb(&self) -> &'static str {
        if self.pinned { "tier pin" } else { "tier unpin" }
    }

    fn changing(&mut self) -> Option<&mut Changing> {
        Some(&mut self.changing)
    }
}

impl TierPin {
    /// Asks to pin this piece.
    pub fn of(vdisk: &VdiskName, piece: Piece) -> TierPin {
        let (pieces, changing) = (vec![piece], Changing::default());
        TierPin { vdisk: vdisk.clone(), pieces, file: None, pinned: true, changing }
    }
}

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
