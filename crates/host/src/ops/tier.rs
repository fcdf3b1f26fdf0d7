//! Fast tiers: `weft tier`.

use super::mount::MountList;
use super::table::{Rows, Style, cell, human};
use super::text::Text;
use super::{Changing, Doer, Verb, Weft, values, verb};
use crate::api::error::{Answer, ApiError, Kind};
use crate::api::name::VdiskName;
use crate::api::tier::{Piece, TierCurve};
use crate::mount::tools::FILEFRAG;
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

    fn typed(mut self, weft: &impl Weft) -> Answer<TierPin> {
        if let Some(file) = self.file.take() {
            self.pieces = pieces_of_file(&self.vdisk, &file, weft)?;
        }
        Ok(self)
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

/// Where the bytes of a file lie on the virtual disk that carries its file system.
fn pieces_of_file(vdisk: &VdiskName, file: &Path, weft: &impl Weft) -> Answer<Vec<Piece>> {
    let known =
        file.canonicalize().map_err(|error| ApiError::new(Kind::NotFound, format!("{}: {error}", file.display())))?;
    let mounts = weft.perform(&MountList {})?;
    let carrier =
        mounts.iter().filter(|mount| known.starts_with(&mount.dir)).max_by_key(|mount| mount.dir.as_os_str().len());
    if carrier.is_none_or(|mount| mount.vdisk != *vdisk) {
        let message = format!(
            "{} is no file of a file system that {vdisk} carries, and `weft mount` has mounted",
            known.display()
        );
        return Err(
            ApiError::new(Kind::NotPossible, message).offer(&TierPin::of(vdisk, Piece { offset: 0, length: 1 << 30 }))
        );
    }
    let told = FILEFRAG.run([Path::new("-b512"), Path::new("-v"), &known])?;
    let pieces = pieces_in(&told);
    match pieces.is_empty() {
        true => Err(ApiError::new(Kind::NotPossible, format!("{} has no blocks on the disk yet", known.display()))),
        false => Ok(pieces),
    }
}

/// The pieces in what `filefrag -b512 -v` prints: a line for each extent, in sectors of 512 bytes,
/// `0: 0.. 8191: 34816.. 43007: 8192: flags`. What lies behind each other is one piece; what has no place of its own yet
/// is none.
fn pieces_in(told: &str) -> Vec<Piece> {
    let mut pieces: Vec<Piece> = Vec::new();
    for line in told.lines() {
        let fields: Vec<&str> = line.split(':').map(str::trim).collect();
        let [number, _, physical, len, rest @ ..] = &fields[..] else { continue };
        let flags = rest.join(":");
        if number.parse::<u64>().is_err()
            || ["inline", "delalloc", "unknown_loc"].iter().any(|flag| flags.contains(flag))
        {
            continue;
        }
        let first = physical.split("..").next().and_then(|first| first.trim().parse::<u64>().ok());
        let (Some(first), Ok(len)) = (first, len.parse::<u64>()) else { continue };
        let piece = Piece { offset: first * 512, length: len * 512 };
        match pieces.last_mut().filter(|last| last.offset + last.length == piece.offset) {
            Some(last) => last.length += piece.length,
            None => pieces.push(piece),
        }
    }
    pieces.sort_unstable_by_key(|piece| piece.offset);
    pieces
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
    fn the_extents_of_a_file_are_pieces() {
        let told = "Filesystem type is: ef53\nFile size of /mnt/f is 12582912 (24576 blocks of 512 bytes)\n \
            ext:     logical_offset:        physical_offset: length:   expected: flags:\n   \
            0:        0..    8191:      34816..     43007:   8192:\n   \
            1:     8192..   16383:      43008..     51199:   8192:\n   \
            2:    16384..   24575:       2048..     10239:   8192:      51200: last,eof\n\
            /mnt/f: 2 extents found\n";
        let piece = |offset: u64, length: u64| Piece { offset: offset * 512, length: length * 512 };
        assert_eq!(pieces_in(told), [piece(2048, 8192), piece(34816, 16384)]);
        assert_eq!(
            pieces_in("   0:        0..       0:          0..         0:      8:             last,inline,eof"),
            []
        );
    }

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
