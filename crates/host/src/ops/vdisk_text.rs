//! Virtual disks, and the plans of requests, as text.

use super::disk::health;
use super::table::{Rows, Style, cell, human, pairs, percent};
use super::text::Text;
use crate::api::cache::in_words;
use crate::api::pool::Health;
use crate::api::read_cache;
use crate::api::vdisk::{Explanation, OlderTable, PackedUse, VdiskCounters, VdiskInfo, survive};

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
        let older = |older: &OlderTable| format!("{} still lie in {}", human(older.used), older.layout);
        let older: Vec<String> = self.older.iter().map(older).collect();
        let changes = if older.is_empty() { "no".into() } else { format!("yes: {}", older.join("; ")) };
        pairs(&[
            ("vdisk", self.name.to_string()),
            ("health", self.health.to_string()),
            ("size", format!("{}, {}", human(self.size), self.provisioning)),
            ("sector", format!("{} bytes", self.sector)),
            ("layout", self.layout.to_string()),
            ("layout changes", changes),
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
            ("write cache", in_words(self.write_cache.as_ref(), self.write_cache_auto)),
            ("fast tier", self.tier.as_ref().map_or("none".into(), |tier| tier.to_string())),
            ("class", self.class.words(self.layout)),
            ("small writes", small_writes(self)),
            ("read cache", read_cache(self)),
            ("exports", exports),
            ("read", format!("{} in {} reads", human(counters.read_bytes), counters.reads)),
            ("written", format!("{} in {} writes", human(counters.written_bytes), counters.writes)),
            ("flushes", counters.flushes.to_string()),
            ("whole stripes", human(counters.whole_stripe_bytes)),
            ("landed", human(counters.landed_bytes)),
            ("packed", packed(counters)),
            ("destaged", destaged(counters)),
            ("put in order", in_order(self)),
            ("moved between tiers", between_tiers(counters)),
            ("reads caused by writes", human(counters.write_caused_read_bytes)),
        ])
    }
}

/// The read cache, what lies in it, and what it was good for.
fn read_cache(vdisk: &VdiskInfo) -> String {
    let words = read_cache::in_words(vdisk.read_cache.as_ref());
    let Some(cache) = &vdisk.read_cache else { return words };
    let hits = vdisk.counters.read_cache_percent();
    let hits = hits.map_or(String::new(), |hits| format!("; {} of what was sought out was there", percent(hits)));
    format!("{words}; {} lie there{hits}", human(cache.held))
}

/// What went to packed stripes and was read there, with its share of what left, and of what was read.
fn packed(counters: &VdiskCounters) -> String {
    let PackedUse { read_percent, write_percent, .. } = counters.packed_use();
    let share =
        |share: Option<f64>, of: &str| share.map_or(String::new(), |share| format!(" ({} of {of})", percent(share)));
    let again = match counters.repacked_bytes {
        0 => String::new(),
        bytes => format!("; {} packed again, denser", human(bytes)),
    };
    format!(
        "{}{}, {} read from there{}{again}",
        human(counters.packed_bytes),
        share(write_percent, "what left, the rest in whole stripes"),
        human(counters.packed_read_bytes),
        share(read_percent, "reads")
    )
}

/// What was moved to the fast tier and out of it, and what was read there.
fn between_tiers(counters: &VdiskCounters) -> String {
    let (up, down, read) = (counters.promoted_bytes, counters.demoted_bytes, counters.fast_read_bytes);
    let share = match counters.read_bytes {
        0 => String::new(),
        all => format!(" ({} of reads)", percent(read as f64 * 100.0 / all as f64)),
    };
    format!("{} up, {} down; {} read from the fast one{share}", human(up), human(down), human(read))
}

/// What the mover brought out of packed stripes.
fn destaged(counters: &VdiskCounters) -> String {
    let (stripes, saved) = (counters.destaged_stripes, counters.packed_use().merges_saved);
    format!("{} into {stripes} stripes; {saved} merges saved so far", human(counters.destaged_bytes))
}

/// What was moved beside its neighbours, for disks that seek.
fn in_order(vdisk: &VdiskInfo) -> String {
    let left = match vdisk.to_be_ordered {
        true => "; what may lie out of order is looked at when the pool is idle",
        false => "",
    };
    format!("{}{left}", human(vdisk.counters.ordered_bytes))
}

/// What becomes of small writes.
fn small_writes(vdisk: &VdiskInfo) -> String {
    let where_to = if vdisk.write_cache.is_some() { "in the cache" } else { "packed" };
    let drains = vdisk.write_cache.as_ref().is_some_and(|cache| cache.drains);
    match (vdisk.packed, if drains { 0 } else { vdisk.packed_max }) {
        (0, 0) => "are merged with what is on the disks".into(),
        (0, most) => format!("rest {where_to}, up to {}; none are there now", human(most)),
        (packed, 0) => format!("{} rest {where_to}, and are moved into whole stripes", human(packed)),
        (packed, most) => {
            let when = if vdisk.packed_moves { "now" } else { "when the pool is idle" };
            let (packed, most) = (human(packed), human(most));
            format!("{packed} rest {where_to}, of at most {most}; the mover brings them into whole stripes {when}")
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
