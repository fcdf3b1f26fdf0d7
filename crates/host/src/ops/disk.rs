//! Disks, in pools and beside them: `weft disk`.

use super::measure::DiskMeasure;
use super::pool::PoolShow;
use super::settings::DiskSetTyped;
use super::table::{Rows, Style, Tone, cell, human, pairs};
use super::text::Text;
use super::{Changing, Doer, Weft, absolute, values, verb};
use crate::api::error::{Answer, BadValue};
use crate::api::pool::{DiskCounters, DiskInfo, DiskState, Health, Latency, Usage, Wear};
use crate::api::size::Size;
use crate::measure::wear;
use clap::{Args, Subcommand};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::fmt::Display;
use std::path::{Path, PathBuf};
use utoipa::{IntoParams, ToSchema};

/// `weft disk`.
#[derive(Subcommand, Clone, Debug)]
pub enum Disk {
    /// List the disks that were found
    #[command(after_help = "Examples:\n  weft disk list\n  weft disk list --pool tank")]
    List(DiskList),
    /// Show one disk
    #[command(after_help = "Examples:\n  weft disk show tank/sdb\n  weft disk show /dev/sdb")]
    Show(DiskShow),
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
    #[command(after_help = "Examples:\n  weft disk set tank d3 usage=retired\n  \
        weft disk set tank d3 media=ssd name=fast1 domain=rack2\n  \
        weft disk set tank d3 maintenance=on\n  weft disk set tank d3 power-protected=yes\n\n\
        power-protected=yes: the disk keeps what it has taken when the power fails (capacitors, a battery), so no \
        flush is sent to it. If that is wrong, a power cut takes what was called durable. auto, the default, goes by \
        what the kernel says of its write cache. Files are always flushed.")]
    Set(DiskSetTyped),
    /// Read a disk for a minute to see what it does, and keep that as a class for `weft plan`
    #[command(after_help = "Examples:\n  weft disk measure /dev/sdb\n  \
        weft disk measure /dev/sdb --name red4 --time 5m\n  weft plan --disks 4x4TB:red4\n\n\
        Nothing is written to the disk. One that is in use (a member of an open pool, a mounted file system) is \
        refused; --in-use measures it carefully. A file with holes, or one that memory holds, shows what memory does.")]
    Measure(DiskMeasure),
}

impl Disk {
    /// Does what was typed.
    pub fn run<D: Doer>(self, doer: &mut D) -> D::Done {
        match self {
            Disk::List(operation) => doer.operate(operation),
            Disk::Show(operation) => doer.operate(operation),
            Disk::Add(operation) => doer.operate(operation),
            Disk::Remove(operation) => doer.operate(operation),
            Disk::Replace(operation) => doer.operate(operation),
            Disk::Set(typed) => doer.operate(typed.operation()),
            Disk::Measure(_) => unreachable!("measured without the daemon"),
        }
    }
}

/// What stands for a disk that a person has to say.
const DISK: &str = "DISK";

impl DiskList {
    /// Asks for the disks of `pool`.
    pub fn of(pool: &str) -> DiskList {
        DiskList { pool: Some(pool.into()) }
    }
}

impl DiskShow {
    /// Asks for one disk, by whatever finds it.
    pub fn of(disk: impl Display) -> DiskShow {
        DiskShow { disk: disk.to_string() }
    }
}

impl DiskAdd {
    /// Asks to make a disk that a person has to say a member of `pool`.
    pub fn some(pool: &str) -> DiskAdd {
        DiskAdd { pool: pool.into(), disks: vec![DISK.into()], ..DiskAdd::default() }
    }
}

impl DiskRemove {
    /// Asks to take `disk` out of `pool`.
    pub fn of(pool: &str, disk: &str) -> DiskRemove {
        DiskRemove { pool: pool.into(), disk: disk.into(), ..DiskRemove::default() }
    }
}

impl DiskReplace {
    /// Asks to put a disk that a person has to say in the place of `disk`.
    pub fn some(pool: &str, disk: &str) -> DiskReplace {
        DiskReplace { pool: pool.into(), disk: disk.into(), by: DISK.into(), ..DiskReplace::default() }
    }
}

/// Asks for the disks that were found.
#[derive(Args, Serialize, Deserialize, IntoParams, Clone, PartialEq, Eq, Default, Debug)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct DiskList {
    /// Only this pool's.
    #[arg(long, value_parser = values::name)]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pool: Option<String>,
}

/// Asks for one disk.
#[derive(Args, Serialize, Deserialize, Clone, PartialEq, Eq, Debug)]
pub struct DiskShow {
    /// Its path, identity, name, or POOL/NAME
    #[serde(skip)]
    pub disk: String,
}

/// Asks to make disks members of a pool.
#[derive(Args, Serialize, Deserialize, ToSchema, Clone, PartialEq, Eq, Default, Debug)]
#[serde(deny_unknown_fields)]
pub struct DiskAdd {
    /// The pool
    #[arg(value_parser = values::name)]
    #[serde(skip)]
    pub pool: String,
    /// The disks: block devices or files, as absolute paths.
    #[arg(value_name = "DISK", required = true, help = "The disks: block devices or files")]
    #[schema(value_type = Vec<String>)]
    pub disks: Vec<PathBuf>,
    /// What for: auto (data), manual (only what asks for it), spare, journal [default: auto]
    #[arg(long, value_parser = values::one_of::<Usage>())]
    #[serde(default)]
    pub usage: Option<Usage>,
    /// Make files that are missing, sparse, of this size.
    #[arg(long, value_name = "SIZE", value_parser = values::fixed_size)]
    #[serde(default)]
    #[schema(value_type = Option<String>)]
    pub create_size: Option<Size>,
    /// Overwrite disks that hold something else.
    #[arg(long)]
    #[serde(default)]
    pub force: bool,
    /// Only say what would change.
    #[command(flatten)]
    #[serde(default, rename = "dry_run")]
    #[schema(value_type = bool)]
    pub changing: Changing,
}

/// Asks to take a disk out of its pool.
#[derive(Args, Serialize, Deserialize, IntoParams, Clone, PartialEq, Eq, Default, Debug)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct DiskRemove {
    /// The pool
    #[arg(value_parser = values::name)]
    #[serde(skip)]
    pub pool: String,
    /// Its name in the pool, identity or path
    #[serde(skip)]
    pub disk: String,
    /// Also where virtual disks would find too few disks for their redundancy.
    #[arg(long)]
    #[serde(default)]
    pub force: bool,
    /// Show the job's progress, and return when it is done
    #[arg(long)]
    #[serde(skip)]
    pub wait: bool,
    /// Only say what would change.
    #[command(flatten)]
    #[serde(default, rename = "dry_run")]
    #[param(value_type = bool)]
    pub changing: Changing,
}

/// Asks to put one disk in the place of another.
#[derive(Args, Serialize, Deserialize, ToSchema, Clone, PartialEq, Eq, Default, Debug)]
#[serde(deny_unknown_fields)]
pub struct DiskReplace {
    /// The pool
    #[arg(value_parser = values::name)]
    #[serde(skip)]
    pub pool: String,
    /// The disk that goes: its name in the pool, identity or path
    #[arg(id = "old", value_name = "OLD")]
    #[serde(skip)]
    pub disk: String,
    /// The new disk: the absolute path of a block device or file, or the name of a disk that the pool has.
    #[arg(
        id = "new",
        value_name = "NEW",
        help = "The disk that comes: a block device or file, or the name of another disk of the pool"
    )]
    pub by: String,
    /// Make the file when it is missing, sparse, of this size.
    #[arg(long, value_name = "SIZE", value_parser = values::fixed_size)]
    #[serde(default)]
    #[schema(value_type = Option<String>)]
    pub create_size: Option<Size>,
    /// Overwrite a disk that holds something else; also where virtual disks would lose redundancy.
    #[arg(long)]
    #[serde(default)]
    pub force: bool,
    /// Show the job's progress, and return when it is done
    #[arg(long)]
    #[serde(skip)]
    pub wait: bool,
    /// Only say what would change.
    #[command(flatten)]
    #[serde(default, rename = "dry_run")]
    #[schema(value_type = bool)]
    pub changing: Changing,
}

verb!(DiskList: "disk list");

verb!(DiskShow: "disk show" {
    fn typed(self, _: &impl Weft) -> Answer<DiskShow> {
        Ok(DiskShow { disk: if self.disk.is_empty() { self.disk } else { member(&self.disk)? } })
    }

    fn completed(disk: DiskInfo) -> DiskInfo {
        DiskInfo { wear: disk.path.as_deref().and_then(wear::read).or(disk.wear), ..disk }
    }
});

verb!(DiskAdd: "disk add", changing {
    fn typed(self, _: &impl Weft) -> Answer<DiskAdd> {
        let disks = self.disks.iter().map(|disk| absolute(disk)).collect::<Answer<_>>()?;
        Ok(DiskAdd { disks, ..self })
    }
});

verb!(DiskRemove: "disk remove", changing {
    fn typed(self, _: &impl Weft) -> Answer<DiskRemove> {
        Ok(DiskRemove { disk: member(&self.disk)?, ..self })
    }

    fn waits(&self) -> bool {
        self.wait
    }
});

verb!(DiskReplace: "disk replace", changing {
    /// What is no name of a disk of the pool is a path.
    fn typed(self, weft: &impl Weft) -> Answer<DiskReplace> {
        let pool = weft.perform(&PoolShow { pool: self.pool.clone() })?;
        let of_pool = pool.disks.iter().any(|disk| disk.name == self.by);
        let by = if of_pool { self.by } else { absolute(Path::new(&self.by))?.display().to_string() };
        Ok(DiskReplace { by, disk: member(&self.disk)?, ..self })
    }

    fn beside(&self) -> Vec<(&'static str, Value)> {
        vec![("old", self.disk.as_str().into()), ("new", self.by.as_str().into())]
    }

    fn waits(&self) -> bool {
        self.wait
    }
});

/// A disk as the daemon looks for it: what begins like a path is one, whatever the working directory.
pub(super) fn member(disk: &str) -> Answer<String> {
    if disk.is_empty() {
        return Err(BadValue::new("a disk has a name, an identity or a path", "d1").into());
    }
    Ok(if disk.starts_with('.') { absolute(Path::new(disk))?.display().to_string() } else { disk.into() })
}

impl Text for Vec<DiskInfo> {
    fn text(&self, style: Style) -> String {
        if self.is_empty() {
            return "no disks\n".into();
        }
        let mut headings =
            vec!["DISK", "POOL", "STATE", "USAGE", "MEDIA", ">SIZE", ">ALLOCATED", ">ERRORS", "PATH", "HOLDS"];
        if style.verbose {
            headings.push("POWER-PROTECTED");
            headings.push("IDENTITY");
        }
        let mut rows = Rows::new(style, &headings);
        for disk in self {
            let mut row = vec![
                cell(&disk.name),
                cell(disk.pool.as_deref().unwrap_or("-")),
                state_of_disk(disk),
                cell(disk.usage.map_or_else(|| "-".into(), |usage| usage.to_string())),
                cell(disk.media),
                cell(human(disk.capacity)),
                cell(human(disk.allocated)),
                cell(disk.counters.errors),
                cell(path(&disk.path)),
                cell(disk.holds.as_deref().unwrap_or("")),
            ];
            if style.verbose {
                let protected = disk.power_protected.map(|power| if power.protected { "yes" } else { "no" });
                row.push(cell(protected.unwrap_or("-")));
                row.push(cell(disk.id.as_deref().unwrap_or("-")));
            }
            rows.row(row);
        }
        rows.draw()
    }
}

impl Text for DiskInfo {
    fn text(&self, _: Style) -> String {
        let counters = &self.counters;
        let mut shown = vec![
            ("disk", self.name.clone()),
            ("pool", self.pool.clone().unwrap_or_else(|| "-".into())),
            ("identity", self.id.clone().unwrap_or_else(|| "-".into())),
            ("path", path(&self.path)),
            ("state", state_of_disk(self).0),
            ("media", self.media.to_string()),
            ("holds", self.holds.clone().unwrap_or_else(|| "-".into())),
            ("size", human(self.capacity)),
            ("allocated", human(self.allocated)),
            ("reads", format!("{} ({})", counters.reads, human(counters.read_bytes))),
            ("writes", format!("{} ({})", counters.writes, human(counters.written_bytes))),
            ("flushes", flushes(counters)),
            ("errors", counters.errors.to_string()),
        ];
        shown.extend(self.hindrance.as_ref().map(|why| ("not opened", why.clone())));
        shown.extend(self.copy_at.as_ref().map(|there| ("not used", there.display().to_string())));
        shown.extend(self.wear.as_ref().map(|wear| ("wear", wear_of_disk(wear))));
        if self.usage.is_some() {
            shown.extend(use_of_disk(self));
        }
        pairs(&shown)
    }
}

/// The state of a disk, with a word more when it works and is slow.
fn state_of_disk(disk: &DiskInfo) -> (String, Tone) {
    match disk.slow {
        true => (format!("{}, slow", disk.state), Tone::Poor),
        false => (disk.state.to_string(), disk_tone(disk.state)),
    }
}

/// Whether the log is here, its room, and what it has written: the wear that flushes cost the disk.
fn log_of_disk(disk: &DiskInfo) -> String {
    let written = match disk.counters.log_written_bytes {
        0 => String::new(),
        written => format!(", {} written since the pool was opened", human(written)),
    };
    match disk.logs {
        true => format!("a copy of it is here, {}{written}", human(disk.log_bytes)),
        false if disk.log_follows => format!("one more copy is here a moment later, nobody waits for it{written}"),
        false => format!("-{written}"),
    }
}

/// What a disk tells of its life.
fn wear_of_disk(wear: &Wear) -> String {
    let used = wear.used_percent.map(|used| format!("{used} % used"));
    let years = wear.years_left.map(|years| format!("about {years:.1} years left at the rate so far"));
    let written = wear.written_bytes.map(|bytes| format!("{} written in its life", human(bytes)));
    let hours = wear.power_on_hours.map(|hours| format!("powered for {hours} hours"));
    let celsius = wear.celsius.map(|degrees| format!("{degrees} °C"));
    [used, years, written, hours, celsius].into_iter().flatten().collect::<Vec<_>>().join(", ")
}

/// Flushes that were sent, and how many more would have been.
fn flushes(counters: &DiskCounters) -> String {
    match counters.flushes_left_out {
        0 => counters.flushes.to_string(),
        left_out => format!("{} ({left_out} left out)", counters.flushes),
    }
}

/// What a disk is used for, and how it answers.
fn use_of_disk(disk: &DiskInfo) -> Vec<(&'static str, String)> {
    let or_none = |text: Option<String>| text.unwrap_or_else(|| "-".into());
    let latency = disk.latency.map(|latency| {
        let Latency { p50_nanos, p99_nanos, max_nanos } = latency;
        let ms = |nanos: u64| format!("{:.1} ms", nanos as f64 / 1e6);
        format!("half within {}, 99 % within {}, longest {}", ms(p50_nanos), ms(p99_nanos), ms(max_nanos))
    });
    vec![
        ("usage", or_none(disk.usage.map(|usage| usage.to_string()))),
        ("domain", or_none(disk.domain.clone())),
        ("latency", or_none(latency)),
        ("log", log_of_disk(disk)),
        ("vote", if disk.votes { "yes".into() } else { "-".into() }),
        ("power-protected", or_none(disk.power_protected.map(|power| power.to_string()))),
    ]
}

fn disk_tone(state: DiskState) -> Tone {
    match state {
        DiskState::Healthy => Tone::Good,
        DiskState::Returning | DiskState::Maintenance => Tone::Poor,
        DiskState::Stale | DiskState::Failed | DiskState::Missing => Tone::Bad,
        DiskState::Closed | DiskState::Available | DiskState::Foreign => Tone::Plain,
    }
}

fn path(path: &Option<PathBuf>) -> String {
    path.as_ref().map_or_else(|| "-".into(), |path| path.display().to_string())
}

pub(super) fn health(health: Health) -> (String, Tone) {
    let tone = match health {
        Health::Healthy => Tone::Good,
        Health::Degraded | Health::ReadOnly => Tone::Poor,
        Health::Frozen | Health::Failed => Tone::Bad,
    };
    (health.to_string(), tone)
}
