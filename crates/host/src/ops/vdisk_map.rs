//! Which disks hold a virtual disk: `weft vdisk map`.

use super::table::{Rows, Style, cell, human};
use super::text::Text;
use super::{values, verb};
use crate::api::error::{Answer, ApiError, Kind};
use crate::api::name::VdiskName;
use crate::api::size::typed;
use crate::api::vdisk::{Lies, VdiskMapped};
use crate::ops::line::ToLine;
use clap::Args;
use serde::{Deserialize, Serialize};
use std::ops::Range;
use utoipa::IntoParams;
use weft_engine::units::ByteCount;

/// The most pieces of an answer.
pub const PIECES_MAX: usize = 10_000;

/// Asks which disks hold a virtual disk.
#[derive(Args, Serialize, Deserialize, IntoParams, Clone, PartialEq, Eq, Debug)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct VdiskMap {
    /// Its name
    #[arg(value_name = "POOL/VDISK", value_parser = values::vdisk)]
    #[serde(skip)]
    pub vdisk: VdiskName,
    /// Where to begin, in bytes.
    #[arg(long, value_name = "SIZE", default_value = "0", value_parser = values::byte_count, help = "Where to begin")]
    #[serde(default)]
    pub offset: u64,
    /// How far to look, in bytes; to its end unless said.
    #[arg(long, value_name = "SIZE", value_parser = values::byte_count, help = "How far to look [default: to its end]")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub length: Option<u64>,
}

verb!(VdiskMap: "vdisk map");

impl VdiskMap {
    /// The bytes that are asked for, of a virtual disk of this size.
    pub fn within(&self, size: u64) -> Answer<Range<u64>> {
        let end = self.length.map_or(Some(size), |length| self.offset.checked_add(length));
        match end.filter(|end| self.offset < *end && *end <= size) {
            Some(end) => Ok(self.offset..end),
            None => {
                let asked = self.length.map_or("all".into(), |length| typed(ByteCount(length)));
                let (at, size) = (typed(ByteCount(self.offset)), ByteCount(size));
                let message = format!("{asked} from {at} on is nothing of {}, which has {size}", self.vdisk);
                let all = VdiskMap { offset: 0, length: None, ..self.clone() };
                Err(ApiError::new(Kind::InvalidInput, message).hint(all.line()))
            }
        }
    }
}

impl Text for VdiskMapped {
    fn text(&self, style: Style) -> String {
        let mut rows = Rows::new(style, &[">OFFSET", ">LENGTH", "LIES", "DISKS"]);
        for piece in &self.pieces {
            let mut disks = piece.disks.join(" ");
            if piece.absent > 0 {
                disks = format!("{disks} ({} on no disk)", piece.absent);
            }
            let disks = if disks.is_empty() { "-".into() } else { disks };
            let row = [typed(ByteCount(piece.offset)), human(piece.length), lies(piece.lies).into(), disks];
            rows.row(row.into_iter().map(cell).collect());
        }
        let more = self.next.map(|next| {
            let more = VdiskMap { vdisk: self.vdisk.clone(), offset: next, length: None };
            format!("more: {}\n", more.line())
        });
        rows.draw() + &more.unwrap_or_default()
    }
}

fn lies(lies: Lies) -> &'static str {
    match lies {
        Lies::Nowhere => "nowhere, reads as zeros",
        Lies::Memory => "in memory, and in the log once it is flushed",
        Lies::Stripes => "in stripes",
        Lies::Older => "in stripes of the older layout",
        Lies::Fast => "in the fast tier",
        Lies::Packed => "in packed stripes",
    }
}
