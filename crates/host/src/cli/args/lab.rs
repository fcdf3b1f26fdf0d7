//! `weft lab`: published claims, repeated.

use clap::{Args, Subcommand};
use std::path::PathBuf;

/// `weft lab`.
#[derive(Subcommand, Debug)]
pub enum Lab {
    /// List the claims that can be repeated, and the workloads that have names
    #[command(after_help = "Examples:\n  weft lab list")]
    List,
    /// Repeat some claims, or all; or run a workload, on models of arrays and on weft or on something real
    #[command(after_help = "Examples:\n  weft lab run Q8 Q51\n  weft lab run --all\n  \
        weft lab run --on nbd+unix:///tank/media?socket=/run/weft/nbd.sock --workload \"diskspd -b4K -r -o32 -d30\"\n  \
        weft lab run --on /srv/disks/d1 --workload job.fio\n  \
        weft lab run --on /srv/disks/d1 --workload camera --yes\n  weft lab run --workload robocopy\n\n\
        Names of workloads: iometer-32k-65-65, passmark-file-server, robocopy, camera (`weft lab list` says what each \
        does). A workload that writes destroys what is on the target, and does so only with --yes. What has no end \
        and no time of its own runs for 10s.")]
    Run(Which),
    /// Repeat all of them, as a document in Markdown (some minutes)
    #[command(after_help = "Examples:\n  weft lab report\n  weft lab report --plots lab")]
    Report {
        /// Write the pictures that it shows into this directory
        #[arg(long, value_name = "DIR")]
        plots: Option<PathBuf>,
    },
}

/// Which claims.
#[derive(Args, Debug)]
pub struct Which {
    /// Their numbers, such as Q8
    #[arg(value_name = "ID", required_unless_present_any = ["all", "workload"],
        conflicts_with_all = ["all", "workload"])]
    pub claims: Vec<String>,
    /// Every one
    #[arg(long, conflicts_with = "workload")]
    pub all: bool,
    /// Run the workload on this, not on models: an export (nbd+unix:///EXPORT?socket=PATH, nbd://HOST:PORT/EXPORT), a block
    /// device or a file
    #[arg(long, value_name = "TARGET", requires = "workload")]
    pub on: Option<String>,
    /// Run a workload instead: one that has a name, a line of diskspd or SQLIO in one word, or a job file of fio
    #[arg(long, value_name = "NAME|LINE|FILE")]
    pub workload: Option<String>,
    /// Let it write: what is there is lost
    #[arg(long, requires = "on")]
    pub yes: bool,
}
