//! `weft lab`: published claims, repeated.

use clap::{Args, Subcommand};
use std::path::PathBuf;

/// `weft lab`.
#[derive(Subcommand, Debug)]
pub enum Lab {
    /// List the claims that can be repeated
    #[command(after_help = "Examples:\n  weft lab list")]
    List,
    /// Repeat some claims, or all; or run a workload on something real
    #[command(after_help = "Examples:\n  weft lab run Q8 Q51\n  weft lab run --all\n  \
        weft lab run --on nbd+unix:///tank/media?socket=/run/weft/nbd.sock --workload \"diskspd -b4K -r -o32 -d30\"\n  \
        weft lab run --on /srv/disks/d1 --workload job.fio\n\n\
        A workload that writes destroys what is there, and does so only with --yes. A line without a time of its own \
        runs for 10s.")]
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
    #[arg(value_name = "ID", required_unless_present_any = ["all", "on"], conflicts_with_all = ["all", "on"])]
    pub claims: Vec<String>,
    /// Every one
    #[arg(long, conflicts_with = "on")]
    pub all: bool,
    /// Run a workload on this instead: an export (nbd+unix:///EXPORT?socket=PATH, nbd://HOST:PORT/EXPORT), a block
    /// device or a file
    #[arg(long, value_name = "TARGET", requires = "workload")]
    pub on: Option<String>,
    /// A job file of fio, or a line of diskspd or SQLIO in one word
    #[arg(long, value_name = "FILE_OR_LINE", requires = "on")]
    pub workload: Option<String>,
    /// Let it write: what is there is lost
    #[arg(long, requires = "on")]
    pub yes: bool,
}
