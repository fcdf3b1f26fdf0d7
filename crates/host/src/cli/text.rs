//! The text of what needs no daemon.

mod dump;
mod lab;
mod load;
mod measure;
mod plan;

pub(super) use dump::Dumped;
pub(super) use lab::{Beside, Claims, Findings};
pub(super) use load::Outcomes;
pub(super) use measure::Measurement;
pub(super) use plan::Planned;
