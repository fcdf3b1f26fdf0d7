//! The text of what needs no daemon.

mod lab;
mod plan;

pub(super) use lab::{Claims, Findings};
pub(super) use plan::Planned;
