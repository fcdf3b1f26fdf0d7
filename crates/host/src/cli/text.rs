//! The text of every answer, drawn from the value that `--json` prints.

mod lab;
mod plan;
mod upkeep;

pub(super) use lab::{Claims, Findings};
pub(super) use plan::Planned;
pub(super) use upkeep::progress;

use super::rates::{Memory, Rates};
use super::table::{Rows, Style, Tone, cell, human, pairs, percent};
use crate::api::export::{ExportInfo, Network};
use crate::api::pool::{CheckReport, DiskInfo, DiskState, Health, Keeping, PoolInfo};
use crate::api::vdisk::{Explanation, VdiskInfo, survive};
use crate::api::watch::{Change, EventInfo, Outcome, Status, Version};
use std::path::PathBuf;
use std::time::{Duration, UNIX_EPOCH};

/// The last moment that can be written, in milliseconds since 1970 UTC: the end of the year 9999. Later ones are shown
/// as this.
const TIME_MAX: u64 = 253_402_300_799_000;

/// An answer that can be drawn.
pub trait Text {
    /// The answer as text, whole lines.
    fn text(&self, style: Style) -> String;
}

impl Text for Change {
    fn text(&self, _: Style) -> String {
        let would = if self.dry_run && self.outcome != Outcome::AlreadySo { "would be " } else { "" };
        let mut text = match self.outcome {
            Outcome::AlreadySo if self.job.is_some() => format!("{}: nothing to change\n", self.subject),
            Outcome::AlreadySo => format!("{} is so already\n", self.subject),
            outcome => format!("{} {would}{outcome}\n", self.subject),
        };
        for line in &self.changes {
            text += &format!("  {line}\n");
        }
        if let Some(job) = self.job.as_ref().filter(|_| self.outcome == Outcome::Started) {
            text += &format!("  job {job}: `weft job show {job}`\n");
        }
        text
    }
}

impl Text for Version {
    fn text(&self, _: Style) -> String {
        format!("weft {} (API {})\n", self.weft, self.api)
    }
}

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
            ("log", upkeep::log(self)),
        ];
        if let Some(frozen) = &self.frozen {
            shown.insert(3, ("frozen", frozen.to_string()));
        }
        shown.extend(upkeep::settings(self));
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

impl Text for Vec<DiskInfo> {
    fn text(&self, style: Style) -> String {
        if self.is_empty() {
            return "no disks\n".into();
        }
        let mut headings =
            vec!["DISK", "POOL", "STATE", "USAGE", "MEDIA", ">SIZE", ">ALLOCATED", ">ERRORS", "PATH", "HOLDS"];
        if style.verbose {
            headings.push("IDENTITY");
        }
        let mut rows = Rows::new(style, &headings);
        for disk in self {
            let mut row = vec![
                cell(&disk.name),
                cell(disk.pool.as_deref().unwrap_or("-")),
                upkeep::state_of_disk(disk),
                cell(disk.usage.map_or_else(|| "-".into(), |usage| usage.to_string())),
                cell(disk.media),
                cell(human(disk.capacity)),
                cell(human(disk.allocated)),
                cell(disk.counters.errors),
                cell(path(&disk.path)),
                cell(disk.holds.as_deref().unwrap_or("")),
            ];
            if style.verbose {
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
            ("state", upkeep::state_of_disk(self).0),
            ("media", self.media.to_string()),
            ("holds", self.holds.clone().unwrap_or_else(|| "-".into())),
            ("size", human(self.capacity)),
            ("allocated", human(self.allocated)),
            ("reads", format!("{} ({})", counters.reads, human(counters.read_bytes))),
            ("writes", format!("{} ({})", counters.writes, human(counters.written_bytes))),
            ("errors", counters.errors.to_string()),
        ];
        if self.usage.is_some() {
            shown.extend(upkeep::use_of_disk(self));
        }
        pairs(&shown)
    }
}

impl Text for Vec<VdiskInfo> {
    fn text(&self, style: Style) -> String {
        if self.is_empty() {
            return "no virtual disks\n".into();
        }
        let mut headings = vec!["VDISK", "HEALTH", ">SIZE", ">DATA", ">ON DISK", "LAYOUT", ">EFFICIENCY", "EXPORTS"];
        if style.verbose {
            headings.extend(["ROOM", ">SECTOR"]);
        }
        let mut rows = Rows::new(style, &headings);
        for vdisk in self {
            let mut row = vec![
                cell(&vdisk.name),
                health(vdisk.health),
                cell(human(vdisk.size)),
                cell(human(vdisk.used)),
                cell(human(vdisk.footprint)),
                cell(vdisk.layout),
                cell(percent(vdisk.efficiency * 100.0)),
                cell(vdisk.exports.join(" ")),
            ];
            if style.verbose {
                row.extend([cell(vdisk.provisioning), cell(vdisk.sector)]);
            }
            rows.row(row);
        }
        rows.draw()
    }
}

impl Text for VdiskInfo {
    fn text(&self, _: Style) -> String {
        let counters = &self.counters;
        let exports = if self.exports.is_empty() { "-".into() } else { self.exports.join(" ") };
        pairs(&[
            ("vdisk", self.name.to_string()),
            ("health", self.health.to_string()),
            ("size", format!("{}, {}", human(self.size), self.provisioning)),
            ("sector", format!("{} bytes", self.sector)),
            ("layout", self.layout.to_string()),
            ("stripe", format!("{} of data", human(self.layout.stripe_data_len()))),
            (
                "survives",
                match self.layout.resiliency.failures() {
                    1 => "1 disk failure when all its disks are there".into(),
                    n => format!("{n} disk failures when all its disks are there"),
                },
            ),
            (
                "what is written",
                match self.health {
                    Health::Failed => "is not all there".into(),
                    _ => format!("can {} now", survive(Some(self.failures_left))),
                },
            ),
            ("new writes", survive(self.failures_new)),
            ("efficiency", percent(self.efficiency * 100.0)),
            ("data", human(self.used)),
            ("on disk", human(self.footprint)),
            ("exports", exports),
            ("read", format!("{} in {} reads", human(counters.read_bytes), counters.reads)),
            ("written", format!("{} in {} writes", human(counters.written_bytes), counters.writes)),
            ("flushes", counters.flushes.to_string()),
            ("whole stripes", human(counters.whole_stripe_bytes)),
            ("landed", human(counters.landed_bytes)),
            ("reads caused by writes", human(counters.write_caused_read_bytes)),
        ])
    }
}

impl Text for Vec<ExportInfo> {
    fn text(&self, style: Style) -> String {
        if self.is_empty() {
            return "no exports\n".into();
        }
        let mut rows = Rows::new(style, &["VDISK", "STATE", "ACCESS", "AT", "CLIENTS", "URI"]);
        for export in self {
            let state = match &export.reason {
                None => ("active".into(), Tone::Good),
                Some(reason) => (format!("idle: {reason}"), Tone::Bad),
            };
            let at = export.place().map_or_else(|| "-".into(), |at| at.to_string());
            let access = match (export.terms.read_only, export.terms.shared) {
                (true, _) => "read",
                (false, true) => "write, shared",
                (false, false) => "write",
            };
            let clients: Vec<String> = export.terms.allow.iter().map(Network::to_string).collect();
            let clients = match (clients.is_empty(), export.terms.allow_any) {
                (false, _) => clients.join(" "),
                (true, true) => "any".into(),
                (true, false) => "this machine".into(),
            };
            rows.row(vec![cell(&export.vdisk), state, cell(access), cell(at), cell(clients), cell(&export.uri)]);
        }
        rows.draw()
    }
}

impl Text for Status {
    fn text(&self, style: Style) -> String {
        let mut text = match self.pools.len() {
            0 => "no pools\n".into(),
            _ => status_pools(self, style),
        };
        text += &status_vdisks(self, style);
        if !self.jobs.is_empty() {
            text += "\n";
            text += &self.jobs.text(style);
        }
        if !self.reached.is_empty() {
            text += "\nother machines, without a password or encryption:\n";
        }
        for line in &self.reached {
            text += &format!("  {line}\n");
        }
        text += "\n";
        if self.attention.is_empty() {
            text += "nothing needs you\n";
        }
        for attention in &self.attention {
            text += &format!("! {}: {}\n", attention.subject, attention.message);
            if let Some(hint) = &attention.hint {
                text += &format!("  try: {hint}\n");
            }
        }
        text
    }
}

fn status_pools(status: &Status, style: Style) -> String {
    let mut rows =
        Rows::new(style, &["POOL", "HEALTH", ">ALLOCATED", ">OF", ">SHARE", ">DISKS", ">VDISKS", ">EXPORTS", "LOG ON"]);
    for pool in &status.pools {
        let disks = match pool.disks_healthy == pool.disks {
            true => cell(pool.disks),
            false => (format!("{} of {}", pool.disks_healthy, pool.disks), Tone::Poor),
        };
        rows.row(vec![
            cell(&pool.name),
            health(pool.health),
            cell(human(pool.allocated)),
            cell(human(pool.capacity)),
            cell(percent(pool.full_percent)),
            disks,
            cell(pool.vdisks),
            cell(pool.exports),
            cell(pool.log_disks.join(" ")),
        ]);
    }
    rows.draw()
}

/// How many disks can still fail, for each virtual disk.
fn status_vdisks(status: &Status, style: Style) -> String {
    let vdisks: Vec<_> =
        status.pools.iter().flat_map(|pool| pool.redundancy.iter().map(move |vdisk| (pool, vdisk))).collect();
    if vdisks.is_empty() {
        return String::new();
    }
    let mut rows = Rows::new(style, &["VDISK", "HEALTH", ">SURVIVES", ">NOW", ">NEW WRITES"]);
    for (pool, vdisk) in vdisks {
        let of = |failures: Option<u32>| {
            let tone = if failures.is_some_and(|left| left >= vdisk.failures) { Tone::Plain } else { Tone::Poor };
            (failures.map_or_else(|| "none".into(), |failures| failures.to_string()), tone)
        };
        rows.row(vec![
            cell(format!("{}/{}", pool.name, vdisk.name)),
            health(vdisk.health),
            cell(vdisk.failures),
            of(Some(vdisk.failures_left)),
            of(vdisk.failures_new),
        ]);
    }
    format!("\n{}", rows.draw())
}

impl Text for Rates {
    fn text(&self, style: Style) -> String {
        if self.rows.is_empty() {
            return "no pools\n".into();
        }
        let headings = [
            "NAME",
            ">READ MB/s",
            ">WRITE MB/s",
            ">READ IOPS",
            ">WRITE IOPS",
            ">WHOLE STRIPES",
            ">LANDED",
            ">READ FOR WRITES",
            ">LOG",
            "SLOWEST DISK",
        ];
        let mut rows = Rows::new(style, &headings);
        let share = |share: Option<f64>| share.map_or_else(|| "-".into(), percent);
        for row in &self.rows {
            let slowest = row.slowest_disk.as_ref();
            rows.row(vec![
                cell(&row.name),
                cell(format!("{:.1}", row.read_mb_s)),
                cell(format!("{:.1}", row.write_mb_s)),
                cell(format!("{:.0}", row.read_iops)),
                cell(format!("{:.0}", row.write_iops)),
                cell(share(row.whole_stripe_percent)),
                cell(share(row.landed_percent)),
                cell(human(row.write_caused_read_bytes)),
                cell(percent(row.log_fill_percent)),
                cell(slowest.map_or_else(|| "-".into(), |disk| format!("{} ({:.1} ms)", disk.name, disk.mean_ms))),
            ]);
        }
        rows.draw()
    }
}

impl Text for Memory {
    fn text(&self, style: Style) -> String {
        let mut rows = Rows::new(style, &["POOL", "MEMORY FOR", ">LIMIT", ">NOW", ">PEAK", "LIMIT IS"]);
        let of_pools =
            self.pools.iter().flat_map(|pool| pool.budgets.iter().map(|budget| (pool.name.as_str(), budget)));
        for (pool, budget) in of_pools.chain(self.all.iter().map(|budget| ("(all)", budget))) {
            let keeping = match budget.keeping {
                Keeping::Enforced => "enforced: who wants more waits",
                Keeping::Trimmed => "kept to by trimming",
                Keeping::Counted => "not enforced, only counted",
            };
            rows.row(vec![
                cell(pool),
                cell(&budget.name),
                cell(budget.limit.map_or_else(|| "-".into(), human)),
                cell(human(budget.used)),
                cell(human(budget.peak)),
                cell(keeping),
            ]);
        }
        rows.draw()
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
        let repaired = if self.repaired > 0 { format!(", {} repaired", self.repaired) } else { String::new() };
        text + &match (self.sound, self.problems.is_empty()) {
            (true, true) => format!("pool {} is sound\n", self.pool),
            (true, false) => format!("pool {} is sound again: {found}{repaired}\n", self.pool),
            (false, _) => format!("pool {} is not sound: {found}{repaired}\n", self.pool),
        }
    }
}

impl Text for Explanation {
    fn text(&self, _: Style) -> String {
        let mut text = format!("{} of {} at {} of {}\n", self.operation, human(self.length), self.offset, self.vdisk);
        for line in &self.plan {
            text += &format!("  {line}\n");
        }
        let (left, new) = (survive(Some(self.failures_left)), survive(self.failures_new));
        text + &format!("  redundancy now: what is written can {left}, new writes {new}\n")
    }
}

impl Text for EventInfo {
    fn text(&self, _: Style) -> String {
        let at = humantime::format_rfc3339_seconds(UNIX_EPOCH + Duration::from_millis(self.at_ms.min(TIME_MAX)));
        let mark = if self.warning { "! " } else { "" };
        let pool = self.pool.as_ref().map(|pool| format!("{pool}: ")).unwrap_or_default();
        format!("{at}  {mark}{pool}{}\n", self.text)
    }
}

fn health(health: Health) -> (String, Tone) {
    let tone = match health {
        Health::Healthy => Tone::Good,
        Health::Degraded | Health::ReadOnly => Tone::Poor,
        Health::Frozen | Health::Failed => Tone::Bad,
    };
    (health.to_string(), tone)
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
