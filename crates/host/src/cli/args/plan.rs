//! `weft plan`: what disks would give before they are bought.

use crate::api::error::BadValue;
use crate::ops::plan::Disks;
use crate::ops::{plan, values};
use clap::Args;
use std::path::PathBuf;
use weft_lab::jobs::Job;
use weft_lab::plan::Workload;

/// `weft plan`.
#[derive(Args, Debug)]
pub struct Plan {
    /// The disks: [Nx]SIZE[:CLASS], several with commas; CLASS is hdd (7200 rpm), 5400, 10k, 15k, smr, ssd, nvme,
    /// or one that was measured
    #[arg(long, value_name = "DISKS", value_parser = plan::disks, required_unless_present = "pool")]
    pub disks: Option<Disks>,
    /// The disks of this pool instead, as if they were empty
    #[arg(long, value_name = "POOL", value_parser = values::name, conflicts_with = "disks")]
    pub pool: Option<String>,
    /// What disks are for which --disks gives no class
    #[arg(long, value_name = "CLASS", default_value = "hdd")]
    pub media: String,
    /// How many disks may fail without a loss
    #[arg(long, value_name = "N", default_value = "1", value_parser = values::failures_or_none)]
    pub failures: u8,
    /// What the virtual disk is for
    /// (media, vm, database, backup, mixed), a name that `weft lab list` has, a line of diskspd, or a file: a job file
    /// of fio, what its write_iolog recorded, or such a line
    #[arg(long, value_name = "WORKLOAD|FILE", default_value = "mixed", value_parser = workload)]
    pub workload: For,
    /// Disks that will be added later, as in --disks [default: four more of the commonest]
    #[arg(long, value_name = "DISKS", value_parser = plan::disks)]
    pub grow: Option<Disks>,
    /// List every layout that makes sense, not only the best
    #[arg(long)]
    pub compare: bool,
    /// Simulate the best layouts now, on disks of this class: half a minute, or two
    #[arg(long)]
    pub exact: bool,
    /// How many of a hundred disks fail in a year [default: 1.5 for hard disks, 1 for solid-state disks]
    #[arg(long, value_name = "PERCENT", value_parser = plan::percent)]
    pub disk_failures: Option<f64>,
    /// Days until a failed disk is replaced, where the pool has no room to rebuild it
    #[arg(long, value_name = "DAYS", default_value = "3", value_parser = plan::days)]
    pub replace_after: f64,
    /// Also draw room and rate against the number of disks, as SVG, into this file
    #[arg(long, alias = "picture", value_name = "FILE")]
    pub svg: Option<PathBuf>,
    /// Also write all of it as a page, with the picture, into this file
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
}

/// What the virtual disk is for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum For {
    /// What people call it.
    Kind(Workload),
    /// What a file describes.
    File(PathBuf),
    /// A workload that has a name, or a line of diskspd.
    Told(String),
}

fn workload(text: &str) -> Result<For, BadValue> {
    match plan::kind(text) {
        Err(_) if Job::is_told_by(text) => Ok(For::Told(text.into())),
        Err(_) if PathBuf::from(text).is_file() => Ok(For::File(text.into())),
        kind => kind.map(For::Kind),
    }
}
