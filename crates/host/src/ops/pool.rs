//! Pools: `weft pool`.

use super::disk::health;
use super::dump::PoolDump;
use super::settings::PoolSetTyped;
use super::table::{Rows, Style, cell, human, pairs, percent};
use super::text::Text;
use super::{Changing, Doer, Harm, Weft, absolute, values, verb};
use crate::api::error::Answer;
use crate::api::pool::{CheckReport, Compaction, Importable, PoolInfo};
use crate::api::size::Size;
use clap::{Args, Subcommand};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::path::PathBuf;
use std::time::{Duration, UNIX_EPOCH};
use utoipa::{IntoParams, ToSchema};

/// `weft pool`.
#[derive(Subcommand, Clone, Debug)]
pub enum Pool {
    /// Make a pool of disks
    #[command(after_help = "Examples:\n  weft pool create tank /dev/sdb /dev/sdc /dev/sdd /dev/sde\n  \
        weft pool create tank d1 d2 d3 d4 --create-size 10GiB")]
    Create(PoolCreate),
    /// List the pools
    #[command(after_help = "Examples:\n  weft pool list")]
    List(PoolList),
    /// Show one pool with its disks and virtual disks
    #[command(after_help = "Examples:\n  weft pool show tank")]
    Show(PoolShow),
    /// Remove a pool with all it holds
    #[command(after_help = "Examples:\n  weft pool remove tank --dry-run\n  weft pool remove tank --yes")]
    Remove(PoolRemove),
    /// Prove that a pool is sound, or say where it is not
    #[command(after_help = "Examples:\n  weft pool check tank\n  weft pool check tank --repair")]
    Check(PoolCheck),
    /// Tell what lies on the disks of a pool: labels, checkpoint, log and tree; without the daemon, and read only
    #[command(after_help = "Examples:\n  weft pool dump tank\n  weft pool dump /dev/sdb /dev/sdc --records\n  \
        weft pool dump tank --key segment/12\n\n\
        For people who have to find out what happened. The disks are opened for reading and claimed by nobody: a \
        daemon may use them meanwhile, and then the parts may be of different moments.")]
    Dump(PoolDump),
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
    Set(PoolSetTyped),
    /// Open a pool that was exported, or that could not be opened; without a name, list them
    #[command(after_help = "Examples:\n  weft pool import tank\n  weft pool import\n  \
        weft pool import tank --read-only --degraded")]
    Import(PoolImportTyped),
    /// Close a pool, until it is imported here or elsewhere
    #[command(after_help = "Examples:\n  weft pool export tank")]
    Export(PoolExport),
}

impl Pool {
    /// Does what was typed.
    pub fn run<D: Doer>(self, doer: &mut D) -> D::Done {
        match self {
            Pool::Create(operation) => doer.operate(operation),
            Pool::List(operation) => doer.operate(operation),
            Pool::Show(operation) => doer.operate(operation),
            Pool::Remove(operation) => doer.operate(operation),
            Pool::Check(operation) => doer.operate(operation),
            Pool::Dump(_) => unreachable!("read without the daemon"),
            Pool::Rename(operation) => doer.operate(operation),
            Pool::Set(typed) => doer.operate(typed.operation()),
            Pool::Import(PoolImportTyped { pool: None, .. }) => doer.operate(PoolImportable {}),
            Pool::Import(PoolImportTyped { pool: Some(pool), read_only, degraded, changing }) => {
                doer.operate(PoolImport { pool, read_only, degraded, changing })
            }
            Pool::Export(operation) => doer.operate(operation),
        }
    }
}

impl PoolShow {
    /// Asks for `pool`.
    pub fn of(pool: &str) -> PoolShow {
        PoolShow { pool: pool.into() }
    }
}

impl PoolCreate {
    /// Asks for the pool `name` of disks that a person has to say.
    pub fn some(name: &str) -> PoolCreate {
        let disks = vec!["DISK...".into()];
        PoolCreate {
            name: name.into(),
            disks,
            create_size: None,
            slab_size: None,
            force: false,
            changing: Changing::default(),
        }
    }
}

impl PoolCheck {
    /// Asks to check `pool`.
    pub fn of(pool: &str) -> PoolCheck {
        PoolCheck { pool: pool.into(), repair: false, changing: Changing::default() }
    }
}

impl PoolRename {
    /// Asks to call `pool` `name`.
    pub fn to(pool: &str, name: impl Into<String>) -> PoolRename {
        PoolRename { pool: pool.into(), name: name.into(), changing: Changing::default() }
    }
}

impl PoolImport {
    /// Asks to open `pool`.
    pub fn of(pool: &str) -> PoolImport {
        PoolImport { pool: pool.into(), ..PoolImport::default() }
    }
}

impl PoolExport {
    /// Asks to close `pool`.
    pub fn of(pool: &str) -> PoolExport {
        PoolExport { pool: pool.into(), changing: Changing::default() }
    }
}

/// Asks for the pools that are open.
#[derive(Args, Serialize, Deserialize, Clone, Copy, PartialEq, Eq, Debug)]
pub struct PoolList {}

/// Asks for one pool.
#[derive(Args, Serialize, Deserialize, Clone, PartialEq, Eq, Debug)]
pub struct PoolShow {
    /// Its name
    #[arg(value_parser = values::name)]
    #[serde(skip)]
    pub pool: String,
}

/// Asks for a new pool.
#[derive(Args, Serialize, Deserialize, ToSchema, Clone, PartialEq, Debug)]
#[serde(deny_unknown_fields)]
pub struct PoolCreate {
    /// Its name.
    #[arg(id = "pool", value_name = "POOL", value_parser = values::name)]
    pub name: String,
    /// Its disks: block devices or files, as absolute paths.
    #[arg(value_name = "DISK", required = true, help = "Its disks: block devices or files")]
    #[schema(value_type = Vec<String>)]
    pub disks: Vec<PathBuf>,
    /// Make files that are missing, sparse, of this size.
    #[arg(long, value_name = "SIZE", value_parser = values::fixed_size)]
    #[serde(default)]
    #[schema(value_type = Option<String>)]
    pub create_size: Option<Size>,
    /// The unit of allocation on one disk: 1MiB to 1GiB [default: 64MiB; more beyond 64 TiB of disks]
    #[arg(long, value_name = "SIZE", value_parser = values::slab_size)]
    #[serde(default)]
    #[schema(value_type = Option<String>)]
    pub slab_size: Option<Size>,
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

/// Asks to remove a pool with all it holds.
#[derive(Args, Serialize, Deserialize, IntoParams, Clone, PartialEq, Eq, Debug)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct PoolRemove {
    /// Its name
    #[arg(value_parser = values::name)]
    #[serde(skip)]
    pub pool: String,
    /// Only say what would change.
    #[command(flatten)]
    #[serde(default, rename = "dry_run")]
    #[param(value_type = bool)]
    pub changing: Changing,
}

/// Asks to prove that a pool is sound.
#[derive(Args, Serialize, Deserialize, IntoParams, Clone, PartialEq, Eq, Debug)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct PoolCheck {
    /// Its name
    #[arg(value_parser = values::name)]
    #[serde(skip)]
    pub pool: String,
    /// Repair what can be repaired; otherwise nothing is written, and bad blocks are only counted.
    #[arg(long)]
    #[serde(default)]
    pub repair: bool,
    /// With `repair`: only look, and say what would be repaired.
    #[command(flatten)]
    #[serde(default, rename = "dry_run")]
    #[param(value_type = bool)]
    pub changing: Changing,
}

/// Asks for another name.
#[derive(Args, Serialize, Deserialize, ToSchema, Clone, PartialEq, Eq, Debug)]
#[serde(deny_unknown_fields)]
#[schema(as = Rename)]
pub struct PoolRename {
    /// Its name
    #[arg(value_parser = values::name)]
    #[serde(skip)]
    pub pool: String,
    /// The new name.
    #[arg(id = "new", value_name = "NEW", value_parser = values::name, help = "Its new name")]
    pub name: String,
    /// Only say what would change.
    #[command(flatten)]
    #[serde(default, rename = "dry_run")]
    #[schema(value_type = bool)]
    pub changing: Changing,
}

/// Asks to close a pool, until it is imported.
#[derive(Args, Serialize, Deserialize, IntoParams, Clone, PartialEq, Eq, Debug)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct PoolExport {
    /// Its name
    #[arg(value_parser = values::name)]
    #[serde(skip)]
    pub pool: String,
    /// Only say what would change.
    #[command(flatten)]
    #[serde(default, rename = "dry_run")]
    #[param(value_type = bool)]
    pub changing: Changing,
}

/// Asks for the pools that were found and are not open.
#[derive(Args, Serialize, Deserialize, Clone, Copy, PartialEq, Eq, Debug)]
pub struct PoolImportable {}

/// Asks to open a pool that was found and is not open.
#[derive(Args, Serialize, Deserialize, ToSchema, Clone, PartialEq, Eq, Default, Debug)]
#[serde(deny_unknown_fields)]
pub struct PoolImport {
    /// Its name, or its identity where two have the same name.
    pub pool: String,
    /// Write nothing to it.
    #[arg(long)]
    #[serde(default)]
    pub read_only: bool,
    /// Open it although more of its disks are missing than it can be sure without.
    #[arg(long)]
    #[serde(default)]
    pub degraded: bool,
    /// Only say what would change.
    #[command(flatten)]
    #[serde(default, rename = "dry_run")]
    #[schema(value_type = bool)]
    pub changing: Changing,
}

/// `weft pool import`: two operations, with a name and without.
#[derive(Args, Clone, Debug)]
pub struct PoolImportTyped {
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

verb!(PoolList: "pool list");

verb!(PoolShow: "pool show");

verb!(PoolCreate: "pool create", changing {
    fn typed(self, _: &impl Weft) -> Answer<PoolCreate> {
        let disks = self.disks.iter().map(|disk| absolute(disk)).collect::<Answer<_>>()?;
        Ok(PoolCreate { disks, ..self })
    }

    fn beside(&self) -> Vec<(&'static str, Value)> {
        vec![("pool", self.name.as_str().into())]
    }
});

verb!(PoolRemove: "pool remove", changing {
    fn harm(&self) -> Option<Harm> {
        Some(Harm::REMOVAL)
    }
});

verb!(PoolCheck: "pool check", changing);

verb!(PoolRename: "pool rename", changing {
    fn beside(&self) -> Vec<(&'static str, Value)> {
        vec![("new", self.name.as_str().into())]
    }
});

verb!(PoolExport: "pool export", changing);

verb!(PoolImportable: "pool import");

verb!(PoolImport: "pool import", changing {
    /// What is written then may count for nothing when the others are back, and what they hold, too.
    fn harm(&self) -> Option<Harm> {
        (self.degraded && !self.read_only).then_some(Harm {
            what: "writing to % without most of its disks gives up what only those know",
            question: "Write to % without the disks that are missing? What only they know is given up.",
            otherwise: "was left closed",
        })
    }
});

impl Text for Vec<PoolInfo> {
    fn text(&self, style: Style) -> String {
        if self.is_empty() {
            return "no pools\n".into();
        }
        let mut rows =
            Rows::new(style, &["POOL", "HEALTH", ">SIZE", ">ALLOCATED", ">FREE", ">DATA", ">DISKS", ">VDISKS"]);
        for pool in self {
            rows.row(vec![
                cell(&pool.name),
                health(pool.health),
                cell(human(pool.capacity)),
                cell(human(pool.allocated)),
                cell(human(pool.free)),
                cell(human(pool.used)),
                cell(pool.disks.len()),
                cell(pool.vdisks.len()),
            ]);
        }
        rows.draw()
    }
}

impl Text for PoolInfo {
    fn text(&self, style: Style) -> String {
        let read_only = if self.read_only { ", read-only" } else { "" };
        let mut shown = vec![
            ("pool", self.name.clone()),
            ("identity", self.id.clone()),
            ("health", format!("{}{read_only}", self.health)),
            ("size", human(self.capacity)),
            ("allocated", human(self.allocated)),
            ("free", human(self.free)),
            ("data", human(self.used)),
            ("slab size", human(self.slab_size)),
            ("log", log(self)),
        ];
        if let Some(frozen) = &self.frozen {
            shown.insert(3, ("frozen", frozen.to_string()));
        }
        if self.compaction != Compaction::default() {
            shown.push(("compaction", compaction(self.compaction)));
        }
        shown.extend(settings(self));
        let mut text = pairs(&shown);
        text += "\n";
        text += &self.disks.text(style);
        if !self.vdisks.is_empty() {
            text += "\n";
            text += &self.vdisks.text(style);
        }
        if !self.jobs.is_empty() {
            text += "\n";
            text += &self.jobs.text(style);
        }
        text
    }
}

impl Text for CheckReport {
    fn text(&self, style: Style) -> String {
        let mut text = String::new();
        if style.verbose {
            for line in &self.checked {
                text += &format!("  {line}\n");
            }
        }
        for problem in &self.problems {
            text += &format!("! {problem}\n");
        }
        let found = match self.problems.len() {
            1 => "1 problem".into(),
            n => format!("{n} problems"),
        };
        let cured = match (self.repaired, self.repairable) {
            (0, 0) => String::new(),
            (0, n) => format!(", of which a repair puts {n} blocks and copies right"),
            (n, _) => format!(", {n} blocks and copies repaired"),
        };
        text + &match (self.sound, self.repaired) {
            (true, 0) => format!("pool {} is sound\n", self.pool),
            (true, n) => format!("pool {} is sound again: {n} blocks and copies repaired\n", self.pool),
            (false, _) => format!("pool {} is not sound: {found}{cured}\n", self.pool),
        }
    }

    fn is_good(&self) -> bool {
        self.sound
    }
}

impl Text for Vec<Importable> {
    fn text(&self, style: Style) -> String {
        if self.is_empty() {
            return "no pools to import: those that were found are open\n".into();
        }
        let mut rows = Rows::new(style, &["POOL", "IDENTITY", ">DISKS", "NOT FOUND", "WHY IT IS NOT OPEN"]);
        for pool in self {
            let missing = if pool.missing.is_empty() { "-".into() } else { pool.missing.join(",") };
            rows.row(vec![cell(&pool.name), cell(&pool.id), cell(pool.disks.len()), cell(missing), cell(&pool.reason)]);
        }
        rows.draw()
    }
}

/// How full the log is, and where it is.
fn log(pool: &PoolInfo) -> String {
    let disks: Vec<&str> = pool.disks.iter().filter(|disk| disk.logs).map(|disk| disk.name.as_str()).collect();
    let on = if disks.is_empty() { String::new() } else { format!(", on {}", disks.join(", ")) };
    let follows = pool.disks.iter().find(|disk| disk.log_follows);
    let follows = follows.map_or_else(String::new, |disk| format!(", and a moment later on {}", disk.name));
    format!("{} full{on}{follows}", percent(pool.log_fill * 100.0))
}

/// What was moved to make room.
fn compaction(done: Compaction) -> String {
    let now = if done.running { "makes room now; " } else { "" };
    let segments = if done.segments == 1 { "segment" } else { "segments" };
    format!("{now}{} {segments} emptied since it was opened, {} moved", done.segments, human(done.bytes))
}

/// What a pool does by itself, and what of it cannot be used.
fn settings(pool: &PoolInfo) -> Vec<(&'static str, String)> {
    let mut lines: Vec<(&'static str, String)> = pool.settings.shown().into_iter().collect();
    let scrubbed = pool.settings.scrubbed.map_or_else(
        || "never".into(),
        |at| humantime::format_rfc3339_seconds(UNIX_EPOCH + Duration::from_secs(at.min(u32::MAX.into()))).to_string(),
    );
    lines.push(("last scrub", scrubbed));
    let room = pool.free.saturating_sub(pool.unusable);
    if pool.promised > room {
        let told = format!(
            "{} to virtual disks, {} more than there is room for",
            human(pool.promised),
            human(pool.promised - room)
        );
        lines.push(("promised", told));
    }
    if pool.unusable > 0 {
        let why = pool.unusable_why.as_ref().map(|why| format!(": {why}")).unwrap_or_default();
        lines.push(("not usable", format!("{}{why}", human(pool.unusable))));
    }
    lines
}
