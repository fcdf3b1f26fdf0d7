//! What is typed after `weft disk measure`. No operation: whoever measures reads the disk, without a daemon.

use super::values;
use crate::api::error::BadValue;
use crate::measure::classes;
use clap::Args;
use std::time::Duration;

/// Asks what a disk does.
#[derive(Args, Clone, PartialEq, Eq, Debug)]
pub struct DiskMeasure {
    /// A block device or a file, or a disk that the daemon knows
    pub disk: String,
    /// What to call it in `weft plan --disks 4x4TB:NAME` [default: the name of its device or file]
    #[arg(long, value_name = "NAME", value_parser = classes::name)]
    pub name: Option<String>,
    /// How long it takes
    #[arg(long, value_name = "SPAN", default_value = "1m", value_parser = span)]
    pub time: Duration,
    /// Measure also a disk that is in use, one read at a time, with half of its time at most
    #[arg(long)]
    pub in_use: bool,
}

fn span(text: &str) -> Result<Duration, BadValue> {
    let span = values::span(text)?;
    match (Duration::from_millis(100)..=Duration::from_secs(3600)).contains(&span) {
        true => Ok(span),
        false => Err(BadValue::new(format!("`{text}` is no time to measure for; 100ms to 1h are"), "1m")),
    }
}
