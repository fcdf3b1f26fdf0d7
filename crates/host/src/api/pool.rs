//! Pools and their disks, as the API speaks of them.

use super::daily::Daily;
use super::job::JobInfo;
use super::power::PowerProtection;
use super::span::{self, Span};
use super::vdisk::VdiskInfo;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::path::PathBuf;
use utoipa::ToSchema;
use weft_engine::disk_set::DiskSet;
use weft_engine::units::DiskNo;

/// How well something is. In the order of getting worse.
#[derive(Serialize, Deserialize, ToSchema, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[serde(rename_all = "kebab-case")]
pub enum Health {
    /// All redundancy is there.
    Healthy,
    /// Everything can be read and written, with less redundancy than was asked for.
    Degraded,
    /// Can be read, accepts no writes.
    ReadOnly,
    /// Waits for disks: what is written and flushed waits with it.
    Frozen,
    /// Some data cannot be read.
    Failed,
}

/// How a disk of a pool, or one that could become one, is.
#[derive(Serialize, Deserialize, ToSchema, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[serde(rename_all = "kebab-case")]
pub enum DiskState {
    /// A member that works.
    Healthy,
    /// A member that is being brought up to date.
    Returning,
    /// A member whose content is of an older epoch; it is not trusted.
    Stale,
    /// A member that answers with errors.
    Failed,
    /// A member that is not there.
    Missing,
    /// A member that a person took out of use for a while: nothing is read from it or written to it.
    Maintenance,
    /// A member of a pool that is not open.
    Closed,
    /// No member of any pool, and nothing was found on it.
    Available,
    /// No member of any pool; something else is on it.
    Foreign,
}

/// What kind of medium a disk is.
#[derive(Serialize, Deserialize, ToSchema, Clone, Copy, PartialEq, Eq, Debug)]
#[serde(rename_all = "kebab-case")]
pub enum Media {
    /// It seeks.
    Hdd,
    /// It does not seek.
    Ssd,
    /// Not known.
    Unspecified,
}

/// What a disk did since its pool opened.
#[derive(Serialize, Deserialize, ToSchema, Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct DiskCounters {
    /// Reads completed.
    pub reads: u64,
    /// Writes completed.
    pub writes: u64,
    /// Bytes read.
    pub read_bytes: u64,
    /// Bytes written.
    pub written_bytes: u64,
    /// Reads, writes and flushes that failed.
    pub errors: u64,
    /// Time spent waiting for its reads and writes, summed over all of them, in nanoseconds.
    pub busy_nanos: u64,
    /// Bytes of the log among those written.
    #[serde(default)]
    pub log_written_bytes: u64,
    /// Flushes sent to it.
    #[serde(default)]
    pub flushes: u64,
    /// Flushes that were due and left out, for it is power-protected.
    #[serde(default)]
    pub flushes_left_out: u64,
}

/// How long a disk made its last thousand reads and writes wait, in nanoseconds.
#[derive(Serialize, Deserialize, ToSchema, Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Latency {
    /// Half of them waited no longer.
    pub p50_nanos: u64,
    /// 99 in 100 of them waited no longer.
    pub p99_nanos: u64,
    /// The longest wait since its pool opened.
    pub max_nanos: u64,
}

/// Bytes of one kind that a pool holds in memory, and how many it may.
#[derive(Serialize, Deserialize, ToSchema, Clone, PartialEq, Eq, Debug)]
pub struct MemoryBudget {
    /// What it is for.
    pub name: String,
    /// How it is kept to.
    pub keeping: Keeping,
    /// The most bytes; none when there is no limit.
    pub limit: Option<u64>,
    /// Bytes now.
    pub used: u64,
    /// The most bytes since the pool was opened.
    pub peak: u64,
}

/// How a budget of memory is kept to.
#[derive(Serialize, Deserialize, ToSchema, Clone, Copy, PartialEq, Eq, Debug)]
#[serde(rename_all = "kebab-case")]
pub enum Keeping {
    /// Whoever wants more waits.
    Enforced,
    /// What is over it is dropped, or written away, soon.
    Trimmed,
    /// It is not enforced, only counted.
    Counted,
}

/// One disk.
#[derive(Serialize, Deserialize, ToSchema, Clone, PartialEq, Debug)]
pub struct DiskInfo {
    /// Its name within its pool; else the name of its file or device.
    pub name: String,
    /// The pool it is a member of.
    pub pool: Option<String>,
    /// Its number within its pool, never reused.
    pub no: Option<u16>,
    /// Its identity, 32 hexadecimal digits.
    pub id: Option<String>,
    /// Where it was found.
    #[schema(value_type = Option<String>)]
    pub path: Option<PathBuf>,
    /// What is there in its place while it is missing: another file with its label, or the disk without what was
    /// written to it last. An older copy of it, perhaps, that is not taken for it.
    #[serde(default)]
    #[schema(value_type = Option<String>)]
    pub copy_at: Option<PathBuf>,
    /// Why it cannot be opened where it was last, while it is missing and something is there that may be it.
    #[serde(default)]
    pub hindrance: Option<String>,
    /// Its size, in bytes.
    pub capacity: u64,
    /// Bytes of it that slabs and metadata occupy.
    pub allocated: u64,
    /// How it is.
    pub state: DiskState,
    /// What it is.
    pub media: Media,
    /// What it is used for; none when it is of no pool, or of none that is open.
    pub usage: Option<Usage>,
    /// What it fails together with: an enclosure, a rack.
    pub domain: Option<String>,
    /// Whether it is much slower than its peers.
    pub slow: bool,
    /// Whether a copy of its pool's log is on it.
    pub logs: bool,
    /// Whether it gets the log a moment later than those that carry it: nobody waits for it, and it carries the log if
    /// all of those are lost at once.
    #[serde(default)]
    pub log_follows: bool,
    /// Its room for the log, in bytes.
    #[serde(default)]
    pub log_bytes: u64,
    /// Whether it votes: its pool opens when a majority of those that do is there.
    pub votes: bool,
    /// Whether it is flushed; none when it is of no pool, or of none that is open.
    #[serde(default)]
    pub power_protected: Option<PowerProtection>,
    /// How long its reads and writes waited; none when there were none.
    pub latency: Option<Latency>,
    /// What else was found on it: a file system, a partition table, another pool.
    pub holds: Option<String>,
    /// What it did since the pool opened.
    pub counters: DiskCounters,
    /// Whether it was taken out because the file system of its file is full; it is used again by itself when that has
    /// room.
    #[serde(default)]
    pub out_of_room: bool,
    /// The virtual disks that would find too few disks for their layouts if it left; told of disks that take nothing
    /// new.
    #[serde(default)]
    pub needed_by: Vec<String>,
    /// How much of its life is used. The daemon asks solid-state disks once an hour, `weft disk show` asks each; none
    /// where a disk tells nothing, who asks is not root, or `smartctl` is missing.
    #[serde(default)]
    pub wear: Option<Wear>,
}

/// What a disk tells of its own life, since it was made.
#[derive(Serialize, Deserialize, ToSchema, Clone, Copy, PartialEq, Default, Debug)]
pub struct Wear {
    /// How much of what its maker expects it to endure is used, in percent; some count beyond 100.
    pub used_percent: Option<u64>,
    /// Hours that it was powered.
    pub power_on_hours: Option<u64>,
    /// Bytes that were written to it.
    pub written_bytes: Option<u64>,
    /// Its temperature now, in degrees Celsius.
    pub celsius: Option<i64>,
    /// Years that are left if it is used as it was until now; none before one percent is used.
    pub years_left: Option<f64>,
}

impl PoolInfo {
    /// The names of `disks`.
    pub fn names_of(&self, disks: DiskSet) -> Vec<String> {
        let named = self.disks.iter().filter(|disk| disk.no.is_some_and(|no| disks.contains(DiskNo(no))));
        named.map(|disk| disk.name.clone()).collect()
    }
}

impl DiskInfo {
    /// A disk of which no more is known than its state.
    pub fn stranger(state: DiskState) -> DiskInfo {
        DiskInfo {
            name: String::new(),
            pool: None,
            no: None,
            id: None,
            path: None,
            capacity: 0,
            allocated: 0,
            state,
            media: Media::Unspecified,
            usage: None,
            domain: None,
            slow: false,
            logs: false,
            log_follows: false,
            log_bytes: 0,
            votes: false,
            power_protected: None,
            latency: None,
            holds: None,
            counters: DiskCounters::default(),
            out_of_room: false,
            needed_by: Vec::new(),
            copy_at: None,
            hindrance: None,
            wear: None,
        }
    }
}

/// One pool.
#[derive(Serialize, Deserialize, ToSchema, Clone, PartialEq, Debug)]
pub struct PoolInfo {
    /// Its name.
    pub name: String,
    /// Its identity, 32 hexadecimal digits.
    pub id: String,
    /// The worst of its disks' and virtual disks' health, and of its own.
    pub health: Health,
    /// Whether it was opened for reading only.
    pub read_only: bool,
    /// What it waits for, when too few of its disks are there to write anything. It goes on by itself.
    #[serde(default)]
    pub frozen: Option<Frozen>,
    /// Its unit of allocation on one disk, in bytes.
    pub slab_size: u64,
    /// The size of its disks, in bytes.
    pub capacity: u64,
    /// Bytes of its disks that slabs and metadata occupy.
    pub allocated: u64,
    /// Bytes of client data it holds.
    pub used: u64,
    /// Bytes of its disks that nothing occupies.
    pub free: u64,
    /// Bytes of its disks that its virtual disks may still take as they are written, by their sizes.
    #[serde(default)]
    pub promised: u64,
    /// Free bytes that its layouts cannot use, because they lie on too few disks.
    pub unusable: u64,
    /// Why not, and what would help.
    pub unusable_why: Option<String>,
    /// What it does by itself.
    pub settings: PoolSettings,
    /// How full its log is, 0 to 1.
    pub log_fill: f64,
    /// What it has moved to make room.
    #[serde(default)]
    pub compaction: Compaction,
    /// What it holds in memory, budget by budget.
    #[serde(default)]
    pub memory: Vec<MemoryBudget>,
    /// Nanoseconds since it was opened.
    pub open_nanos: u64,
    /// Its disks, by number.
    pub disks: Vec<DiskInfo>,
    /// Its virtual disks, by name.
    pub vdisks: Vec<VdiskInfo>,
    /// Its jobs: those that run, wait or are paused, then the last ones that ended.
    pub jobs: Vec<JobInfo>,
}

/// Data that a pool moves out of segments that are mostly free, where somebody lacks slabs; since it was opened.
#[derive(Serialize, Deserialize, ToSchema, Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Compaction {
    /// Whether it does so now.
    pub running: bool,
    /// Segments that were emptied and given back.
    pub segments: u64,
    /// Bytes that were moved out of them.
    pub bytes: u64,
}

/// A pool that waits for disks.
#[derive(Serialize, Deserialize, ToSchema, Clone, PartialEq, Eq, Debug)]
pub struct Frozen {
    /// Why it writes nothing.
    pub reason: String,
    /// For how long, in seconds.
    pub seconds: u64,
    /// The disks that are not there, by name.
    pub missing: Vec<String>,
}

/// What a disk of a pool is used for.
#[derive(Serialize, Deserialize, ToSchema, clap::ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
#[serde(rename_all = "kebab-case")]
pub enum Usage {
    /// For data, as the pool sees fit.
    Auto,
    /// Only for what asks for this disk by name.
    Manual,
    /// For nothing, until another disk is lost.
    Spare,
    /// For the log, and for no data.
    Journal,
    /// For nothing new.
    Retired,
}

/// What a pool does by itself, and when.
#[derive(Serialize, Deserialize, ToSchema, Clone, Copy, PartialEq, Eq, Debug)]
pub struct PoolSettings {
    /// Seconds that a disk may be missing before its data is rebuilt elsewhere; none: it never is by itself.
    pub repair_after_seconds: Option<u64>,
    /// Seconds from one scrub to the next; none: none is begun by itself.
    pub scrub_every_seconds: Option<u64>,
    /// When the last scrub ended, in seconds since 1970 UTC.
    pub scrubbed: Option<u64>,
    /// The share of the disks' time that is kept for clients while jobs run, in percent.
    pub foreground_share: u8,
    /// How full the pool is when people are told: three rising shares, in percent.
    pub full: [u8; 3],
    /// When fast tiers are put right each day, local time: `02:00`, or `never`.
    #[serde(default)]
    #[schema(value_type = String)]
    pub tier_schedule: Daily,
}

/// A pool that was found and is not open.
#[derive(Serialize, Deserialize, ToSchema, Clone, PartialEq, Eq, Debug)]
pub struct Importable {
    /// Its name.
    pub name: String,
    /// Its identity, 32 hexadecimal digits.
    pub id: String,
    /// Where its disks were found.
    #[schema(value_type = Vec<String>)]
    pub disks: Vec<PathBuf>,
    /// The names of disks it had when it was last open, and which were not found.
    pub missing: Vec<String>,
    /// Why it is not open.
    pub reason: String,
}

/// What a check of a pool found.
#[derive(Serialize, Deserialize, ToSchema, Clone, PartialEq, Eq, Default, Debug)]
pub struct CheckReport {
    /// The pool's name.
    pub pool: String,
    /// Whether nothing is wrong (any more).
    pub sound: bool,
    /// What is wrong, one sentence each.
    pub problems: Vec<String>,
    /// How many blocks, and pages of metadata, a repair would put right: they can be had from the others.
    pub repairable: u64,
    /// How many were put right.
    pub repaired: u64,
    /// What was looked at, one line each.
    pub checked: Vec<String>,
}

impl fmt::Display for Health {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Health::Healthy => "healthy",
            Health::Degraded => "degraded",
            Health::ReadOnly => "read-only",
            Health::Frozen => "frozen",
            Health::Failed => "failed",
        })
    }
}

impl fmt::Display for Frozen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "for {}: {}", span::left(self.seconds), self.reason)
    }
}

impl fmt::Display for DiskState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            DiskState::Healthy => "healthy",
            DiskState::Returning => "returning",
            DiskState::Stale => "stale",
            DiskState::Failed => "failed",
            DiskState::Missing => "missing",
            DiskState::Maintenance => "maintenance",
            DiskState::Closed => "closed",
            DiskState::Available => "available",
            DiskState::Foreign => "foreign",
        })
    }
}

impl fmt::Display for Media {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Media::Hdd => "hdd",
            Media::Ssd => "ssd",
            Media::Unspecified => "-",
        })
    }
}

impl PoolSettings {
    /// The settings as `weft pool set` takes them.
    pub fn shown(&self) -> [(&'static str, String); 5] {
        let [a, b, c] = self.full;
        [
            ("repair-after", Span(self.repair_after_seconds).to_string()),
            ("scrub-every", Span(self.scrub_every_seconds).to_string()),
            ("foreground-share", format!("{}%", self.foreground_share)),
            ("full", format!("{a},{b},{c}")),
            ("tier-schedule", self.tier_schedule.to_string()),
        ]
    }
}

impl fmt::Display for Usage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Usage::Auto => "auto",
            Usage::Manual => "manual",
            Usage::Spare => "spare",
            Usage::Journal => "journal",
            Usage::Retired => "retired",
        })
    }
}
