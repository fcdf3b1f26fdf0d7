//! `weft plan`: what disks would give before they are bought.

use crate::api::error::BadValue;
use crate::api::size;
use crate::ops::values;
use clap::Args;
use std::collections::BTreeMap;
use std::path::PathBuf;
use weft_engine::limits::DISKS_MAX;
use weft_lab::disks::{Class, PlannedDisk};
use weft_lab::plan::Workload;

/// `weft plan`.
#[derive(Args, Debug)]
pub struct Plan {
    /// The disks: [Nx]SIZE[:CLASS], several with commas; CLASS is hdd (7200 rpm), 5400, 10k, 15k, smr, ssd, nvme,
    /// or one that was measured
    #[arg(long, value_name = "DISKS", value_parser = disks, required_unless_present = "pool")]
    pub disks: Option<Disks>,
    /// The disks of this pool instead, as if they were empty
    #[arg(long, value_name = "POOL", value_parser = values::name, conflicts_with = "disks")]
    pub pool: Option<String>,
    /// What disks are for which --disks gives no class
    #[arg(long, value_name = "CLASS", default_value = "hdd")]
    pub media: String,
    /// How many disks may fail without a loss
    #[arg(long, value_name = "N", default_value = "1", value_parser = values::failures_or_none)]
    pub failures: u8,
    /// What the virtual disk is for
    /// (media, vm, database, backup, mixed), or a file: a job file of fio, what its write_iolog recorded, or a line of
    /// diskspd
    #[arg(long, value_name = "WORKLOAD|FILE", default_value = "mixed", value_parser = workload)]
    pub workload: For,
    /// Disks that will be added later, as in --disks [default: four more of the commonest]
    #[arg(long, value_name = "DISKS", value_parser = disks)]
    pub grow: Option<Disks>,
    /// List every layout that makes sense, not only the best
    #[arg(long)]
    pub compare: bool,
    /// Simulate the best layouts now, on hard disks of this class: some seconds to a minute
    #[arg(long)]
    pub exact: bool,
    /// How many of a hundred disks fail in a year [default: 1.5 for hard disks, 1 for solid-state disks]
    #[arg(long, value_name = "PERCENT", value_parser = percent)]
    pub disk_failures: Option<f64>,
    /// Days until a failed disk is replaced, where the pool has no room to rebuild it
    #[arg(long, value_name = "DAYS", default_value = "3", value_parser = days)]
    pub replace_after: f64,
    /// Also draw room and rate against the number of disks, as SVG, into this file
    #[arg(long, alias = "picture", value_name = "FILE")]
    pub svg: Option<PathBuf>,
}

/// Disks of which some have no class yet.
#[derive(Clone, PartialEq, Debug)]
pub struct Disks(Vec<(u64, Option<String>)>);

/// What the virtual disk is for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum For {
    /// What people call it.
    Kind(Workload),
    /// What a file describes.
    File(PathBuf),
}

impl Disks {
    /// The disks, those without a class being of this one; the others of what `find` finds under its word.
    pub fn of<E>(&self, media: Class, find: impl Fn(&str) -> Result<Class, E>) -> Result<Vec<PlannedDisk>, E> {
        // A class is found once: each time it would be another one.
        let mut found: BTreeMap<&str, Class> = BTreeMap::new();
        let mut disks = Vec::new();
        for (size, word) in &self.0 {
            let class = match word.as_deref() {
                None => media,
                Some(word) if found.contains_key(word) => found[word],
                Some(word) => *found.entry(word).or_insert(find(word)?),
            };
            disks.push(PlannedDisk { size: *size, class });
        }
        Ok(disks)
    }
}

fn workload(text: &str) -> Result<For, BadValue> {
    let kinds = [
        ("media", Workload::Media),
        ("vm", Workload::Vm),
        ("database", Workload::Database),
        ("backup", Workload::Backup),
        ("mixed", Workload::Mixed),
    ];
    match kinds.into_iter().find(|(word, _)| *word == text) {
        Some((_, kind)) => Ok(For::Kind(kind)),
        None if PathBuf::from(text).is_file() => Ok(For::File(text.into())),
        None => {
            let words = kinds.map(|(word, _)| word).join(", ");
            Err(BadValue::new(format!("`{text}` is none of {words}, and no file"), "mixed"))
        }
    }
}

fn disks(text: &str) -> Result<Disks, BadValue> {
    let mut all = Vec::new();
    for group in text.split(',') {
        let wrong = || {
            let message = format!("`{group}` is no group of disks; [Nx]SIZE[:CLASS] is, such as 7x4TB or 2x500GB:ssd");
            BadValue::new(message, "4x4TB")
        };
        let (sizes, class) = match group.split_once(':') {
            Some((_, "")) => return Err(wrong()),
            Some((sizes, word)) => (sizes, Some(word.to_string())),
            None => (group, None),
        };
        let (count, size) = match sizes.split_once(['x', 'X']) {
            Some((count, size)) => (count.parse::<usize>().map_err(|_| wrong())?, size),
            None => (1, sizes),
        };
        let size = size::bytes(size).map_err(|_| wrong())?.0;
        if count == 0 || all.len() + count.min(DISKS_MAX + 1) > DISKS_MAX {
            let message = format!("`{text}` is {} disks; a pool has 1 to {DISKS_MAX}", all.len() + count);
            return Err(BadValue::new(message, format!("{DISKS_MAX}x4TB")));
        }
        all.extend(std::iter::repeat_n((size, class.clone()), count));
    }
    Ok(Disks(all))
}

fn percent(text: &str) -> Result<f64, BadValue> {
    within(text, 0.01, 90.0, "share of disks that fail in a year; 0.01 to 90 (per cent) are", "1.5")
}

fn days(text: &str) -> Result<f64, BadValue> {
    within(text, 0.0, 365.0, "number of days; 0 to 365 are", "3")
}

fn within(text: &str, least: f64, most: f64, what: &str, nearest: &str) -> Result<f64, BadValue> {
    let number = text.parse::<f64>().ok().filter(|number| (least..=most).contains(number));
    number.ok_or_else(|| BadValue::new(format!("`{text}` is no {what}"), nearest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_of_disks_are_read_as_a_buyer_writes_them() {
        let read = disks("2x4TB,500GB:ssd,1X8TiB:5400").unwrap().of(Class::Hdd7200, str::parse).unwrap();
        let sizes: Vec<u64> = read.iter().map(|disk| disk.size).collect();
        assert_eq!(sizes, [4_000_000_000_000, 4_000_000_000_000, 500_000_000_000, 8 << 40]);
        assert_eq!(read[0].class, Class::Hdd7200);
        assert_eq!((read[2].class, read[3].class), (Class::Ssd, Class::Hdd5400));
        for wrong in ["", "4x", "x4TB", "0x4TB", "4TB:", "65x1TB", "99999999999x1TB", "4x4T", "4x-1TB", "1TB,,1TB"] {
            assert!(disks(wrong).is_err(), "{wrong}");
        }
        let tape = disks("4TB:tape").unwrap().of(Class::Hdd7200, str::parse::<Class>);
        assert!(tape.unwrap_err().contains("`tape` is no class"));
    }
}
