//! What there is to watch: status, counters, events.

use super::disk::health;
use super::line::{Line, ToLine};
use super::table::{Rows, Style, Tone, cell, human, percent};
use super::text::Text;
use super::{values, verb};
use crate::api::watch::{EventInfo, Status, Version};
use clap::Args;
use serde::{Deserialize, Serialize};
use std::time::{Duration, UNIX_EPOCH};
use utoipa::IntoParams;

/// The last moment that can be written, in milliseconds since 1970 UTC: the end of the year 9999. Later ones are shown
/// as this.
const TIME_MAX: u64 = 253_402_300_799_000;

/// Asks who answers.
#[derive(Serialize, Deserialize, Clone, Copy, PartialEq, Eq, Debug)]
pub struct VersionShow {}

/// Asks how everything is, and what needs a person.
#[derive(Args, Serialize, Deserialize, IntoParams, Clone, PartialEq, Eq, Default, Debug)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct StatusShow {
    /// Only this pool.
    #[arg(value_parser = values::name)]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pool: Option<String>,
}

impl StatusShow {
    /// Asks how `pool` is.
    pub fn of(pool: &str) -> StatusShow {
        StatusShow { pool: Some(pool.into()) }
    }
}

impl EventList {
    /// Asks what happened to `pool`.
    pub fn of(pool: &str) -> EventList {
        EventList { pool: Some(pool.into()), ..EventList::default() }
    }
}

impl ToLine for EventList {
    fn line(&self) -> String {
        self.pool.iter().fold(Line::new("events"), Line::word).into()
    }
}

/// Asks for all counters at this moment.
#[derive(Serialize, Deserialize, IntoParams, Clone, PartialEq, Eq, Default, Debug)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct StatShow {
    /// A pool, or `POOL/VDISK`; everything unless said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub of: Option<String>,
}

/// Asks what happened.
#[derive(Serialize, Deserialize, IntoParams, Clone, PartialEq, Eq, Default, Debug)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct EventList {
    /// Only of this pool.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pool: Option<String>,
    /// Only events after this number.
    #[serde(default)]
    pub after: u64,
    /// When there are none, wait so long for one, in milliseconds; at most 30000.
    #[serde(default)]
    pub wait_ms: u64,
}

verb!(StatusShow: "status");

impl Text for Version {
    fn text(&self, _: Style) -> String {
        format!("weft {} (API {})\n", self.weft, self.api)
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

impl Text for EventInfo {
    fn text(&self, _: Style) -> String {
        let at = humantime::format_rfc3339_seconds(UNIX_EPOCH + Duration::from_millis(self.at_ms.min(TIME_MAX)));
        let mark = if self.warning { "! " } else { "" };
        let pool = self.pool.as_ref().map(|pool| format!("{pool}: ")).unwrap_or_default();
        format!("{at}  {mark}{pool}{}\n", self.text)
    }
}
