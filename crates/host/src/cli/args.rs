//! What people type. The doc comments here are the help texts.

mod lab;
mod plan;

pub use lab::*;
pub use plan::*;

use crate::api::mount::{FileSystem, Via};
use crate::api::name::VdiskName;
use crate::api::size::Size;
use crate::ops::disk::Disk;
use crate::ops::export::Export;
use crate::ops::job::{Job, JobStart};
use crate::ops::pool::Pool;
use crate::ops::tier::Tier;
use crate::ops::vdisk::{Explain, Vdisk};
use crate::ops::watch::StatusShow;
use crate::ops::{Changing, values};
use clap::{Args, Parser, Subcommand, ValueEnum};
use std::path::PathBuf;
use std::time::Duration;

/// Pools disks into fast, resilient virtual disks.
#[derive(Parser, Debug)]
#[command(name = "weft", version, disable_help_subcommand = true, infer_long_args = false)]
#[command(after_help = "Examples:\n  weft pool create tank /srv/d1 /srv/d2 /srv/d3 /srv/d4 --create-size 10GiB\n  \
    weft vdisk create tank/media --size 20GiB --resiliency parity\n  \
    weft export add tank/media --nbd unix:/run/weft/nbd.sock\n  weft status\n\n\
    Exit codes: 0 done (also: already so), 2 usage, 3 not possible as asked, 4 not found, 5 no space,\n\
    6 redundancy lost or data unavailable, 7 daemon not reachable, 1 anything else.")]
pub struct Cli {
    /// What every command takes.
    #[command(flatten)]
    pub common: Common,
    /// The command.
    #[command(subcommand)]
    pub command: Command,
}

/// What every command takes.
#[derive(Args, Debug)]
pub struct Common {
    /// Print the answer as JSON
    #[arg(long, global = true, help_heading = "Common options")]
    pub json: bool,
    /// Print no confirmations
    #[arg(long, short, global = true, conflicts_with = "verbose", help_heading = "Common options")]
    pub quiet: bool,
    /// Print more
    #[arg(long, short, global = true, help_heading = "Common options")]
    pub verbose: bool,
    /// Colour the output
    #[arg(long, global = true, value_name = "WHEN", default_value = "auto", value_parser = values::one_of::<When>())]
    #[arg(help_heading = "Common options")]
    pub color: When,
    /// The daemon's control socket [default: WEFT_SOCKET, else /run/weft/weft.sock for root, else
    /// $XDG_RUNTIME_DIR/weft.sock]
    #[arg(long, global = true, value_name = "PATH", help_heading = "Common options")]
    pub socket: Option<PathBuf>,
}

/// When to colour the output.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub enum When {
    /// On a terminal.
    Auto,
    /// Always.
    Always,
    /// Never.
    Never,
}

/// The commands.
#[derive(Subcommand, Debug)]
pub enum Command {
    /// Run the daemon, in the foreground, until SIGTERM
    #[command(after_help = "Examples:\n  weft serve --disks /srv/disks\n  \
        weft serve --config /etc/weft.toml --state /var/lib/weft --socket /run/weft/weft.sock\n\n\
        The configuration file is TOML with the keys state, socket, disks, degraded, memory and events.hook; flags \
        win over it.")]
    Serve(Serve),
    /// Make, show, change, check, move and remove pools
    #[command(subcommand)]
    Pool(Pool),
    /// Show, add, replace and remove disks
    #[command(subcommand)]
    Disk(Disk),
    /// Make, show, grow, rename, clear and remove virtual disks
    #[command(subcommand)]
    Vdisk(Vdisk),
    /// Offer virtual disks to clients
    #[command(subcommand)]
    Export(Export),
    /// Show and steer long jobs
    #[command(subcommand)]
    Job(Job),
    /// Read and prove everything that is written, and repair what is wrong
    #[command(after_help = "Examples:\n  weft scrub tank\n  weft scrub tank --wait")]
    Scrub(JobStart),
    /// Rebuild what missing disks held where there is room, without waiting for repair-after
    #[command(after_help = "Examples:\n  weft repair tank\n  weft repair tank --wait")]
    Repair(JobStart),
    /// Move data until all disks are equally full
    #[command(after_help = "Examples:\n  weft rebalance tank\n  weft rebalance tank --wait")]
    Rebalance(JobStart),
    /// Mount a virtual disk as a file system (root)
    #[command(after_help = "Examples:\n  weft mount tank/media /srv/media --format ext4\n  \
        weft mount tank/media /srv/media --persist\n  \
        weft mount tank/media /srv/media --device loop\n\n\
        The virtual disk becomes a block device: with ublk if the kernel has it (modprobe ublk_drv), else with NBD \
        (modprobe nbd, and the package nbd-client), else with FUSE + loop, on any kernel. --device chooses by hand.\n\
        mkfs is told the stripes; the file system is mounted so that deletes give their space back.")]
    Mount(Mount),
    /// Unmount a virtual disk (root)
    #[command(after_help = "Examples:\n  weft unmount /srv/media\n  weft unmount /srv/media --force")]
    Unmount {
        /// The directory
        dir: PathBuf,
        /// Also when processes use it: their files get errors
        #[arg(long)]
        force: bool,
        /// Let the daemon mount it again when it starts.
        #[arg(long, hide = true)]
        keep: bool,
        /// How to change it.
        #[command(flatten)]
        changing: Changing,
    },
    /// One screen: health, jobs, what needs a person
    #[command(after_help = "Examples:\n  weft status\n  weft status tank")]
    Status(StatusShow),
    /// Rates: MB/s, IOPS, whole stripes, landed data, reads caused by writes, log, slowest disk
    #[command(after_help = "Examples:\n  weft stat\n  weft stat tank/media --interval 1s\n  weft stat --memory\n\n\
        Without --interval: totals and averages since the pool was opened.\n\n\
        Where small writes rest in packed stripes, in the write-back cache if there is one: FROM PACKED is the share \
        of what clients read that lay there, TO PACKED that of what left partial (the rest left in whole stripes), \
        DESTAGE what the mover brings into whole stripes, MERGES SAVED how many fewer stripes were merged than partial \
        ones went there.")]
    Stat {
        /// A pool, or POOL/VDISK; everything unless given
        #[arg(value_name = "POOL[/VDISK]", value_parser = values::pool_or_vdisk)]
        of: Option<String>,
        /// Print the rates of every such span, until interrupted
        #[arg(long, value_name = "SPAN", value_parser = values::span)]
        interval: Option<Duration>,
        /// With --interval: stop after so many
        #[arg(long, value_name = "N", requires = "interval")]
        count: Option<u64>,
        /// What pools hold in memory instead: every budget, its limit, and how it is kept to
        #[arg(long, conflicts_with = "interval")]
        memory: bool,
    },
    /// Print the plan for one request
    #[command(
        after_help = "Examples:\n  weft explain tank/media write 0 1MiB\n  weft explain tank/media read 3GiB 64KiB"
    )]
    Explain(Explain),
    /// Say what a fast tier would be good for, pin to it, put it right
    #[command(subcommand)]
    Tier(Tier),
    /// Say what disks would give before they are bought: layouts compared
    #[command(after_help = "Examples:\n  weft plan --disks 4x4TB\n  \
        weft plan --disks 7x4TB,2x8TB --failures 2 --workload media --compare\n  \
        weft plan --disks 5x18TB --exact\n  weft plan --pool tank --grow 2x8TB\n\n\
        Needs neither the daemon nor root, but for --pool. Room is what the engine would allocate; rates are measured \
        on the engine with simulated disks.")]
    Plan(Plan),
    /// Repeat what was published about Storage Spaces: the source, its rules, weft
    #[command(subcommand)]
    Lab(Lab),
    /// What happened
    #[command(after_help = "Examples:\n  weft events\n  weft events tank --follow")]
    Events {
        /// Only this pool's
        #[arg(value_parser = values::name)]
        pool: Option<String>,
        /// Wait for more, until interrupted
        #[arg(long, short)]
        follow: bool,
        /// Only the newest so many; with --follow: stop after so many
        #[arg(long, value_name = "N")]
        count: Option<u64>,
    },
    /// Print the completions for a shell
    #[command(after_help = "Examples:\n  weft completions bash > /etc/bash_completion.d/weft")]
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
    /// Print the manual page of weft or of one of its commands
    #[command(after_help = "Examples:\n  weft man | man -l -\n  weft man vdisk create | man -l -\n  weft man --dir \
        /usr/local/share/man/man1")]
    Man {
        /// The command; weft itself unless given
        #[arg(value_name = "COMMAND")]
        command: Vec<String>,
        /// Write all pages into this directory instead
        #[arg(long, value_name = "DIR", conflicts_with = "command")]
        dir: Option<PathBuf>,
    },
    /// Print the version; with --verbose the daemon's too
    #[command(after_help = "Examples:\n  weft version")]
    Version,
}

/// `weft serve`.
#[derive(Args, Debug)]
pub struct Serve {
    /// The configuration file
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Where exports are remembered [default: /var/lib/weft for root, else $XDG_STATE_HOME/weft]
    #[arg(long, value_name = "DIR")]
    pub state: Option<PathBuf>,
    /// Where to look for disks: a device, a file, or a directory, which means the files in it [default: all block
    /// devices]
    #[arg(long, value_name = "DIR_OR_DEVICE", num_args = 1..)]
    pub disks: Vec<PathBuf>,
    /// Open pools that lack a majority of their metadata copies, too. What is left of them may be older than what was
    /// lost
    #[arg(long)]
    pub degraded: bool,
    /// Memory for its heap, 64MiB to 4GiB; below 512MiB, requests under way may take 250MiB more. What is more than
    /// 1GiB, half of the machine's at most, is for where small writes lie, in large caches above all. All of it is
    /// locked as soon as root's daemon carries file systems of this machine [default: a quarter of the machine's and a
    /// quarter of that, at most 1GiB]
    #[arg(long, value_name = "SIZE", value_parser = values::memory)]
    pub memory: Option<Size>,
    /// How much of a virtual disk may lie in packed stripes, 1% to 50%: small writes leave the log side by side, and
    /// nothing is read because of them. With 0 they are merged with what is on the disks, and what is packed is brought
    /// into whole stripes; an older weft refuses a pool until that is done [default: 10%]
    #[arg(long, value_name = "SHARE")]
    pub fine_share: Option<Size>,
}

/// `weft mount`.
#[derive(Args, Debug)]
pub struct Mount {
    /// The virtual disk
    #[arg(value_name = "POOL/VDISK", value_parser = values::vdisk)]
    pub vdisk: VdiskName,
    /// Where to mount it: an empty directory
    pub dir: PathBuf,
    /// Make this file system first; refused when the virtual disk holds anything
    #[arg(long, value_name = "FS", value_parser = values::one_of::<FileSystem>())]
    pub format: Option<FileSystem>,
    /// Make the file system whatever the virtual disk holds
    #[arg(long, requires = "format")]
    pub force: bool,
    /// What else mkfs is told, in one word: --mkfs='-L media'
    #[arg(long, value_name = "WORDS", requires = "format", allow_hyphen_values = true)]
    pub mkfs: Option<String>,
    /// The kind of block device; unless said, the best there is
    #[arg(long, value_name = "KIND", value_parser = values::one_of::<Via>())]
    pub device: Option<Via>,
    /// Mount it again whenever the daemon starts
    #[arg(long)]
    pub persist: bool,
    /// How to change it.
    #[command(flatten)]
    pub changing: Changing,
}
