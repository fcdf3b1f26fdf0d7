//! What people type. The doc comments here are the help texts; the first example of a command is also what its errors
//! offer when nothing nearer would work.

mod export;
mod lab;
mod plan;
mod upkeep;

pub use export::*;
pub use lab::*;
pub use plan::*;
pub use upkeep::*;

use super::values;
use crate::api::mount::{FileSystem, Via};
use crate::api::name::VdiskName;
use crate::api::size::Size;
use crate::api::vdisk::{Operation, ResiliencyKind};
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
    #[arg(long, global = true, value_name = "WHEN", default_value = "auto", value_parser = values::one_of::<When>(), help_heading = "Common options")]
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

/// What every changing command takes.
#[derive(Args, Clone, Copy, Debug)]
pub struct Changing {
    /// Print what would change, and change nothing
    #[arg(long)]
    pub dry_run: bool,
    /// Do not ask before destroying data
    #[arg(long, short)]
    pub yes: bool,
}

/// The commands.
#[derive(Subcommand, Debug)]
pub enum Command {
    /// Run the daemon, in the foreground, until SIGTERM
    #[command(after_help = "Examples:\n  weft serve --disks /srv/disks\n  \
        weft serve --config /etc/weft.toml --state /var/lib/weft --socket /run/weft/weft.sock\n\n\
        The configuration file is TOML with the keys state, socket, disks, degraded, memory and events.hook; flags win over it.")]
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
    Scrub(StartJob),
    /// Rebuild what missing disks held where there is room, without waiting for repair-after
    #[command(after_help = "Examples:\n  weft repair tank\n  weft repair tank --wait")]
    Repair(StartJob),
    /// Move data until all disks are equally full
    #[command(after_help = "Examples:\n  weft rebalance tank\n  weft rebalance tank --wait")]
    Rebalance(StartJob),
    /// Mount a virtual disk as a file system (root)
    #[command(after_help = "Examples:\n  weft mount tank/media /srv/media --format ext4\n  \
        weft mount tank/media /srv/media --persist\n  \
        weft mount tank/media /srv/media --device loop\n\n\
        The virtual disk becomes a block device: with ublk if the kernel has it (modprobe ublk_drv), else with NBD (modprobe nbd, and \
        the package nbd-client), else with FUSE + loop, on any kernel. --device chooses by hand.\n\
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
    Status {
        /// Only this pool
        #[arg(value_parser = values::name)]
        pool: Option<String>,
    },
    /// Rates: MB/s, IOPS, whole stripes, landed data, reads caused by writes, log, slowest disk
    #[command(after_help = "Examples:\n  weft stat\n  weft stat tank/media --interval 1s\n  weft stat --memory\n\n\
        Without --interval: totals and averages since the pool was opened.")]
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
    Explain {
        /// The virtual disk
        #[arg(value_name = "POOL/VDISK", value_parser = values::vdisk)]
        vdisk: VdiskName,
        /// What the request does
        #[arg(value_parser = values::one_of::<Operation>())]
        operation: Operation,
        /// Where it begins
        #[arg(value_parser = values::range)]
        offset: u64,
        /// How long it is
        #[arg(value_parser = values::range)]
        length: u64,
    },
    /// Say what disks would give before they are bought: layouts compared
    #[command(after_help = "Examples:\n  weft plan --disks 4x4TB\n  \
        weft plan --disks 7x4TB,2x8TB --failures 2 --workload media --compare\n  \
        weft plan --disks 5x18TB --exact\n  weft plan --pool tank --grow 2x8TB\n\n\
        Needs neither the daemon nor root, but for --pool. Room is what the engine would allocate; rates are measured on the engine with \
        simulated disks.")]
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
    #[command(
        after_help = "Examples:\n  weft man | man -l -\n  weft man vdisk create | man -l -\n  weft man --dir /usr/local/share/man/man1"
    )]
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
    /// Memory for its heap, 64MiB to 1GiB; below 512MiB, requests under way may take 250MiB more. All of it is locked
    /// as soon as root's daemon carries file systems of this machine [default: a quarter of the machine's and a quarter
    /// of that, at most 1GiB]
    #[arg(long, value_name = "SIZE", value_parser = values::memory)]
    pub memory: Option<Size>,
}

/// `weft pool`.
#[derive(Subcommand, Debug)]
pub enum Pool {
    /// Make a pool of disks
    #[command(after_help = "Examples:\n  weft pool create tank /dev/sdb /dev/sdc /dev/sdd /dev/sde\n  \
        weft pool create tank d1 d2 d3 d4 --create-size 10GiB")]
    Create {
        /// Its name
        #[arg(value_parser = values::name)]
        pool: String,
        /// Its disks: block devices or files
        #[arg(value_name = "DISK", required = true)]
        disks: Vec<PathBuf>,
        /// Make files that are missing, sparse, of this size
        #[arg(long, value_name = "SIZE", value_parser = values::fixed_size)]
        create_size: Option<Size>,
        /// The unit of allocation on one disk: 1MiB to 1GiB [default: 64MiB]
        #[arg(long, value_name = "SIZE", value_parser = values::slab_size)]
        slab_size: Option<Size>,
        /// Overwrite disks that hold something else
        #[arg(long)]
        force: bool,
        /// How to change it.
        #[command(flatten)]
        changing: Changing,
    },
    /// List the pools
    #[command(after_help = "Examples:\n  weft pool list")]
    List,
    /// Show one pool with its disks and virtual disks
    #[command(after_help = "Examples:\n  weft pool show tank")]
    Show {
        /// Its name
        #[arg(value_parser = values::name)]
        pool: String,
    },
    /// Remove a pool with all it holds
    #[command(after_help = "Examples:\n  weft pool remove tank --dry-run\n  weft pool remove tank --yes")]
    Remove {
        /// Its name
        #[arg(value_parser = values::name)]
        pool: String,
        /// How to change it.
        #[command(flatten)]
        changing: Changing,
    },
    /// Prove that a pool is sound, or say where it is not
    #[command(after_help = "Examples:\n  weft pool check tank\n  weft pool check tank --repair")]
    Check {
        /// Its name
        #[arg(value_parser = values::name)]
        pool: String,
        /// Repair what can be repaired; otherwise nothing is written
        #[arg(long)]
        repair: bool,
        /// How to change it.
        #[command(flatten)]
        changing: Changing,
    },
    /// Give a pool another name
    #[command(after_help = "Examples:\n  weft pool rename tank pond")]
    Rename(PoolRename),
    /// Change what a pool does by itself
    #[command(after_help = "Examples:\n  weft pool set tank repair-after=5m\n  \
        weft pool set tank scrub-every=4w foreground-share=50% full=70,80,90\n\n\
        repair-after: how long a disk may be missing before its data is rebuilt elsewhere.\n\
        scrub-every: the time from one scrub to the next. Both may be `never`.\n\
        foreground-share: the share of the disks' time that is kept for clients while jobs run.\n\
        full: how full the pool is when people are told, in percent.")]
    Set(PoolSettings),
    /// Open a pool that was exported, or that could not be opened; without a name, list them
    #[command(after_help = "Examples:\n  weft pool import tank\n  weft pool import\n  \
        weft pool import tank --read-only --degraded")]
    Import(PoolImport),
    /// Close a pool, until it is imported here or elsewhere
    #[command(after_help = "Examples:\n  weft pool export tank")]
    Export(PoolExport),
}

/// `weft disk`.
#[derive(Subcommand, Debug)]
pub enum Disk {
    /// List the disks that were found
    #[command(after_help = "Examples:\n  weft disk list\n  weft disk list --pool tank")]
    List {
        /// Only this pool's
        #[arg(long, value_parser = values::name)]
        pool: Option<String>,
    },
    /// Show one disk
    #[command(after_help = "Examples:\n  weft disk show tank/sdb\n  weft disk show /dev/sdb")]
    Show {
        /// Its path, identity, name, or POOL/NAME
        disk: String,
    },
    /// Make disks members of a pool
    #[command(after_help = "Examples:\n  weft disk add tank /dev/sdf\n  weft disk add tank /dev/sdg --usage spare\n  \
        weft disk add tank d5 --create-size 10GiB")]
    Add(DiskAdd),
    /// Take a disk out of its pool, when everything that is on it was moved to the others
    #[command(after_help = "Examples:\n  weft disk remove tank d3\n  weft disk remove tank d3 --wait")]
    Remove(DiskRemove),
    /// Put one disk in the place of another
    #[command(
        after_help = "Examples:\n  weft disk replace tank d3 /dev/sdh\n  weft disk replace tank d3 /dev/sdh --wait"
    )]
    Replace(DiskReplace),
    /// Change what a pool knows of a disk
    #[command(
        after_help = "Examples:\n  weft disk set tank d3 usage=retired\n  weft disk set tank d3 media=ssd name=fast1 domain=rack2\n  \
        weft disk set tank d3 maintenance=on"
    )]
    Set(DiskSettings),
}

/// `weft vdisk`.
#[derive(Subcommand, Debug)]
pub enum Vdisk {
    /// Make a virtual disk
    #[command(after_help = "Examples:\n  weft vdisk create tank/media --size 20GiB\n  \
        weft vdisk create tank/media --size 90% --resiliency parity --failures 2 --columns 6\n  \
        weft vdisk create tank/vm --size 100GiB --resiliency mirror --copies 2 --fixed\n\n\
        Unless said: simple on 1 disk, mirror on 2, parity on 3 to 7, parity that survives 2 failures from 8 on.")]
    Create(VdiskCreate),
    /// List the virtual disks
    #[command(after_help = "Examples:\n  weft vdisk list")]
    List {
        /// Only this pool's
        #[arg(value_parser = values::name)]
        pool: Option<String>,
    },
    /// Show one virtual disk
    #[command(after_help = "Examples:\n  weft vdisk show tank/media")]
    Show {
        /// Its name
        #[arg(value_name = "POOL/VDISK", value_parser = values::vdisk)]
        vdisk: VdiskName,
    },
    /// Grow a virtual disk
    #[command(after_help = "Examples:\n  weft vdisk resize tank/media 2TiB\n  weft vdisk resize tank/media max")]
    Resize {
        /// Its name
        #[arg(value_name = "POOL/VDISK", value_parser = values::vdisk)]
        vdisk: VdiskName,
        /// Its new size
        #[arg(value_parser = values::size)]
        size: Size,
        /// How to change it.
        #[command(flatten)]
        changing: Changing,
    },
    /// Give a virtual disk another name
    #[command(after_help = "Examples:\n  weft vdisk rename tank/media films")]
    Rename {
        /// Its name
        #[arg(value_name = "POOL/VDISK", value_parser = values::vdisk)]
        vdisk: VdiskName,
        /// Its new name within the pool
        #[arg(value_name = "NEW", value_parser = values::pool_or_vdisk)]
        new: String,
        /// How to change it.
        #[command(flatten)]
        changing: Changing,
    },
    /// Let a virtual disk serve again that lost writes; says what is given up
    #[command(
        after_help = "Examples:\n  weft vdisk clear tank/media --dry-run\n  weft vdisk clear tank/media --yes\n\n\
        A virtual disk fails when more disks went than its layout survives before a write was durable: from then on its flushes fail, and what was lost\n\
        is an error to read. Cleared, it takes requests again. What was flushed is there; where a write that was not flushed is given up, what was there before\n\
        is read again: check the file system on it before you trust it."
    )]
    Clear {
        /// Its name
        #[arg(value_name = "POOL/VDISK", value_parser = values::vdisk)]
        vdisk: VdiskName,
        /// How to change it.
        #[command(flatten)]
        changing: Changing,
    },
    /// Remove a virtual disk with all it holds
    #[command(after_help = "Examples:\n  weft vdisk remove tank/media --dry-run\n  weft vdisk remove tank/media --yes")]
    Remove {
        /// Its name
        #[arg(value_name = "POOL/VDISK", value_parser = values::vdisk)]
        vdisk: VdiskName,
        /// How to change it.
        #[command(flatten)]
        changing: Changing,
    },
}

/// `weft vdisk create`.
#[derive(Args, Debug)]
pub struct VdiskCreate {
    /// Its name
    #[arg(value_name = "POOL/VDISK", value_parser = values::vdisk)]
    pub vdisk: VdiskName,
    /// Its size: 20GiB, 4TB, max, 90%
    #[arg(long, value_parser = values::size)]
    pub size: Size,
    /// What protects the data
    #[arg(long, value_parser = values::one_of::<ResiliencyKind>())]
    pub resiliency: Option<ResiliencyKind>,
    /// Copies of a mirror: 2 or 3
    #[arg(long, value_name = "N", value_parser = values::copies)]
    pub copies: Option<u8>,
    /// Disk failures to survive: 1 or 2
    #[arg(long, value_name = "N", value_parser = values::failures)]
    pub failures: Option<u8>,
    /// Columns, parity columns counted, copies not: 1 to 32
    #[arg(long, value_name = "N", value_parser = values::columns)]
    pub columns: Option<u8>,
    /// Bytes of one stripe on one column: any multiple of 4KiB up to 4MiB
    #[arg(long, value_name = "SIZE", value_parser = values::interleave)]
    pub interleave: Option<Size>,
    /// Take room as it is written (the default)
    #[arg(long, conflicts_with = "fixed")]
    pub thin: bool,
    /// Reserve all room now
    #[arg(long)]
    pub fixed: bool,
    /// A write cache of its own
    #[arg(long, value_name = "SIZE", value_parser = values::fixed_size)]
    pub write_cache: Option<Size>,
    /// The sector clients see: 512 or 4096 [default: 512]
    #[arg(long, value_name = "BYTES", value_parser = values::sector)]
    pub sector: Option<u16>,
    /// Only these disks of the pool
    #[arg(long, value_name = "D,D,...", value_delimiter = ',')]
    pub disks: Vec<String>,
    /// How to change it.
    #[command(flatten)]
    pub changing: Changing,
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

impl Command {
    /// Whether the command changes something and was told only to say what.
    pub fn changing(&self) -> Option<Changing> {
        match self {
            Command::Pool(
                Pool::Create { changing, .. }
                | Pool::Remove { changing, .. }
                | Pool::Check { changing, .. }
                | Pool::Rename(PoolRename { changing, .. })
                | Pool::Set(PoolSettings { changing, .. })
                | Pool::Import(PoolImport { changing, .. })
                | Pool::Export(PoolExport { changing, .. }),
            )
            | Command::Disk(
                Disk::Add(DiskAdd { changing, .. })
                | Disk::Remove(DiskRemove { changing, .. })
                | Disk::Replace(DiskReplace { changing, .. })
                | Disk::Set(DiskSettings { changing, .. }),
            )
            | Command::Job(
                Job::Pause(OneJob { changing, .. })
                | Job::Resume(OneJob { changing, .. })
                | Job::Cancel(OneJob { changing, .. }),
            )
            | Command::Scrub(StartJob { changing, .. })
            | Command::Repair(StartJob { changing, .. })
            | Command::Rebalance(StartJob { changing, .. })
            | Command::Vdisk(
                Vdisk::Create(VdiskCreate { changing, .. })
                | Vdisk::Resize { changing, .. }
                | Vdisk::Rename { changing, .. }
                | Vdisk::Clear { changing, .. }
                | Vdisk::Remove { changing, .. },
            )
            | Command::Export(Export::Add { changing, .. } | Export::Remove { changing, .. })
            | Command::Mount(Mount { changing, .. })
            | Command::Unmount { changing, .. } => Some(*changing),
            _ => None,
        }
    }
}
