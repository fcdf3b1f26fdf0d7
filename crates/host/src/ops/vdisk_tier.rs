//! The tiers of a virtual disk that is to be made.

use super::vdisk::VdiskCreate;
use crate::api::error::Answer;
use crate::api::size::Size;
use crate::api::tier::{TierMedia, TierSpec};
use crate::api::vdisk::ResiliencyKind;
use weft_engine::units::ByteCount;

/// A fast tier, and one below it, to type where others were not understood.
const EXAMPLE: (TierSpec, TierSpec) =
    (TierSpec { size: Some(ByteCount::gib(50)), ..TierSpec::on(TierMedia::Ssd) }, TierSpec::on(TierMedia::Hdd));

impl VdiskCreate {
    /// What is asked for below the fast tier, and that one, if there is to be one.
    pub fn apart(&self) -> Answer<(VdiskCreate, Option<(TierSpec, TierMedia)>)> {
        if self.resiliency == Some(ResiliencyKind::MirrorParity) {
            if !self.tier.is_empty() {
                let instead = VdiskCreate { resiliency: Some(ResiliencyKind::MirrorParity), ..self.plain() };
                return Err(
                    self.wrong("mirror-parity is a mirror in front of parity by itself: leave --tier out", instead)
                );
            }
            let below = VdiskCreate { resiliency: Some(ResiliencyKind::Parity), ..self.clone() };
            let fast = TierSpec { resiliency: Some(ResiliencyKind::Mirror), ..TierSpec::on(TierMedia::Any) };
            return Ok((below, Some((fast, TierMedia::Any))));
        }
        let (fast, low) = match self.tier[..] {
            [] => return Ok((self.clone(), None)),
            [fast @ TierSpec { size: Some(_), .. }, low @ TierSpec { size: None, .. }]
            | [low @ TierSpec { size: None, .. }, fast @ TierSpec { size: Some(_), .. }] => (fast, low),
            _ => {
                let message = "--tier is given twice: the fast one with its size, and the one below without";
                return Err(self.wrong(message, VdiskCreate { tier: vec![EXAMPLE.0, EXAMPLE.1], ..self.plain() }));
            }
        };
        let beside = self.resiliency.is_some() || self.columns.is_some() || self.copies.is_some();
        if beside || self.failures.is_some() || self.interleave.is_some() || fast.interleave.is_some() {
            let message = "with --tier each tier says its own resiliency and columns, the lower one its interleave; \
                           the fast one has as many bytes in each stripe";
            return Err(self.wrong(message, VdiskCreate { tier: vec![EXAMPLE.0, EXAMPLE.1], ..self.plain() }));
        }
        let below = VdiskCreate {
            tier: Vec::new(),
            resiliency: low.resiliency,
            copies: low.copies,
            failures: low.failures,
            columns: low.columns,
            interleave: low.interleave.map(Size::Bytes),
            ..self.clone()
        };
        Ok((below, Some((fast, low.media))))
    }
}
