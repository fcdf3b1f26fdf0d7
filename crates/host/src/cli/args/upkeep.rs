//! The commands of a pool's life after it was made: jobs, members, settings.

use super::Changing;
use crate::api::size::Size;
use crate::api::upkeep::{DiskSet, PoolSet, Usage};
use crate::cli::values;
use clap::{Args, Subcommand};
use std::path::PathBuf;

/// `weft job`.
#[derive(Subcommand, Debug)]
pub enum Job {
    /// List the jobs that run, wait or are paused, and the last ones that ended
    #[command(after_help = "Examples:\n  weft job list\n  weft job list tank")]
    List {
        /// Only this pool's
        #[arg(value_parser = values::name)]
        pool: Option<String>,
    },
    /// Show one job
    #[command(after_help = "Examples:\n  weft job show tank/3\n  weft job show 3")]
    Show {
        /// POOL/N, or N where only one pool has it
        #[arg(value_name = "ID", value_parser = values::job)]
        job: String,
    },
    /// Pause a job: it keeps what it did
    #[command(after_help = "Examples:\n  weft job pause tank/3")]
    Pause(OneJob),
    /// Let a paused job go on
    #[command(after_help = "Examples:\n  weft job resume tank/3")]
    Resume(OneJob),
    /// End a job; what it did stays as it is
    #[command(after_help = "Examples:\n  weft job cancel tank/3")]
    Cancel(OneJob),
}

/// A job to steer.
#[derive(Args, Debug)]
pub struct OneJob {
    /// POOL/N, or N where only one pool has it
    #[arg(value_name = "ID", value_parser = values::job)]
    pub job: String,
    /// How to change it.
    #[command(flatten)]
    pub changing: Changing,
}

/// `weft scrub`, `weft repair`, `weft rebalance`.
#[derive(Args, Debug)]
pub struct StartJob {
    /// The pool
    #[arg(value_parser = values::name)]
    pub pool: String,
    /// Show the job's progress, and return when it is done
    #[arg(long)]
    pub wait: bool,
    /// How to change it.
    #[command(flatten)]
    pub changing: Changing,
}

/// `weft pool rename`.
#[derive(Args, Debug)]
pub struct PoolRename {
    /// Its name
    #[arg(value_parser = values::name)]
    pub pool: String,
    /// Its new name
    #[arg(value_parser = values::name)]
    pub new: String,
    /// How to change it.
    #[command(flatten)]
    pub changing: Changing,
}

/// `weft pool set`.
#[derive(Args, Debug)]
pub struct PoolSettings {
    /// Its name
    #[arg(value_parser = values::name)]
    pub pool: String,
    /// repair-after=SPAN|never, scrub-every=SPAN|never, foreground-share=N%, full=N,N,N
    #[arg(value_name = "KEY=VALUE", required = true, value_parser = values::pool_setting)]
    pub settings: Vec<PoolSet>,
    /// How to change it.
    #[command(flatten)]
    pub changing: Changing,
}

/// `weft pool import`.
#[derive(Args, Debug)]
pub struct PoolImport {
    /// Its name or identity; unless given, the pools that could be imported are listed
    pub pool: Option<String>,
    /// Write nothing to it, also after a restart
    #[arg(long, requires = "pool")]
    pub read_only: bool,
    /// Open it although it lacks a majority of its metadata copies. What is left may be older than what is missing
    #[arg(long, requires = "pool")]
    pub degraded: bool,
    /// How to change it.
    #[command(flatten)]
    pub changing: Changing,
}

/// `weft pool export`.
#[derive(Args, Debug)]
pub struct PoolExport {
    /// Its name
    #[arg(value_parser = values::name)]
    pub pool: String,
    /// How to change it.
    #[command(flatten)]
    pub changing: Changing,
}

/// `weft disk add`.
#[derive(Args, Debug)]
pub struct DiskAdd {
    /// The pool
    #[arg(value_parser = values::name)]
    pub pool: String,
    /// The disks: block devices or files
    #[arg(value_name = "DISK", required = true)]
    pub disks: Vec<PathBuf>,
    /// What for: auto (data), manual (only what asks for it), spare, journal [default: auto]
    #[arg(long, value_parser = values::one_of::<Usage>())]
    pub usage: Option<Usage>,
    /// Make files that are missing, sparse, of this size
    #[arg(long, value_name = "SIZE", value_parser = values::fixed_size)]
    pub create_size: Option<Size>,
    /// Overwrite disks that hold something else
    #[arg(long)]
    pub force: bool,
    /// How to change it.
    #[command(flatten)]
    pub changing: Changing,
}

/// `weft disk remove`.
#[derive(Args, Debug)]
pub struct DiskRemove {
    /// The pool
    #[arg(value_parser = values::name)]
    pub pool: String,
    /// Its name in the pool, identity or path
    pub disk: String,
    /// Also where virtual disks would find too few disks for their redundancy
    #[arg(long)]
    pub force: bool,
    /// Show the job's progress, and return when it is done
    #[arg(long)]
    pub wait: bool,
    /// How to change it.
    #[command(flatten)]
    pub changing: Changing,
}

/// `weft disk replace`.
#[derive(Args, Debug)]
pub struct DiskReplace {
    /// The pool
    #[arg(value_parser = values::name)]
    pub pool: String,
    /// The disk that goes: its name in the pool, identity or path
    pub old: String,
    /// The disk that comes: a block device or file, or the name of another disk of the pool
    pub new: String,
    /// Make the file when it is missing, sparse, of this size
    #[arg(long, value_name = "SIZE", value_parser = values::fixed_size)]
    pub create_size: Option<Size>,
    /// Overwrite a disk that holds something else; also where virtual disks would lose redundancy
    #[arg(long)]
    pub force: bool,
    /// Show the job's progress, and return when it is done
    #[arg(long)]
    pub wait: bool,
    /// How to change it.
    #[command(flatten)]
    pub changing: Changing,
}

/// `weft disk set`.
#[derive(Args, Debug)]
pub struct DiskSettings {
    /// The pool
    #[arg(value_parser = values::name)]
    pub pool: String,
    /// Its name in the pool, identity or path
    pub disk: String,
    /// usage=auto|manual|spare|journal|retired, media=hdd|ssd, name=NAME, domain=NAME, maintenance=on|off
    #[arg(value_name = "KEY=VALUE", required = true, value_parser = values::disk_setting)]
    pub settings: Vec<DiskSet>,
    /// How to change it.
    #[command(flatten)]
    pub changing: Changing,
}
