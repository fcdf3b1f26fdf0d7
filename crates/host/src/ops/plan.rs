//! What is asked of the planner: as it is typed after `weft plan`, and as it goes over the socket.

use super::pool::PoolShow;
use super::{Perform, values};
use crate::api::error::{Answer, ApiError, BadValue, Kind};
use crate::api::pool::Media;
use crate::api::size;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use utoipa::IntoParams;
use weft_engine::error::ErrorKind;
use weft_engine::limits::DISKS_MAX;
use weft_lab::disks::{Class, PlannedDisk};
use weft_lab::jobs::Job;
use weft_lab::plan::{self, Question, Workload};

/// Asks which layout to choose for disks that need not exist, or for those of a pool. Classes that were measured are
/// known to the command line only.
#[derive(Serialize, Deserialize, IntoParams, Clone, PartialEq, Default, Debug)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct PlanAsk {
    /// The disks: `[Nx]SIZE[:CLASS]`, several with commas; this, or a pool.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disks: Option<String>,
    /// The disks of this pool instead, as if they were empty.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pool: Option<String>,
    /// What disks are for which `disks` gives no class; `hdd` unless said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub media: Option<String>,
    /// How many disks may fail without a loss: 0, 1 or 2; 1 unless said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failures: Option<u8>,
    /// What the virtual disk is for: `media`, `vm`, `database`, `backup` or `mixed`, which holds unless said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workload: Option<String>,
    /// What it is for instead: a workload by its name, a line of diskspd, or a job file of fio, as text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub jobs: Option<String>,
    /// Disks that will be added later, written as `disks` are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grow: Option<String>,
    /// Whether the best layouts are simulated now, which takes a minute or two.
    #[serde(default)]
    pub exact: bool,
    /// How many of a hundred disks fail in a year, 0.01 to 90.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disk_failures: Option<f64>,
    /// Days until a failed disk is replaced, 0 to 365; 3 unless said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replace_after: Option<f64>,
}

impl PlanAsk {
    /// The question in the planner's words. `weft` knows the disks of a pool.
    pub fn question(&self, weft: &impl Perform<PoolShow>) -> Answer<Question> {
        let find = |word: &str| word.parse::<Class>().map_err(|why| BadValue::new(why, "hdd"));
        let media = find(self.media.as_deref().unwrap_or("hdd"))?;
        let disks = match (&self.disks, &self.pool) {
            (Some(text), None) => disks(text)?.of(media, find)?,
            (None, Some(pool)) => members(weft, pool, media)?,
            _ => return Err(ApiError::new(Kind::InvalidInput, "either disks or a pool are asked about")),
        };
        let (workload, jobs) = match (&self.workload, &self.jobs) {
            (None, Some(text)) => {
                (Workload::Own, Job::read(text).map_err(|why| ApiError::new(Kind::InvalidInput, why))?)
            }
            (word, None) => (kind(word.as_deref().unwrap_or("mixed"))?, Vec::new()),
            _ => return Err(ApiError::new(Kind::InvalidInput, "either a workload or jobs are asked about")),
        };
        let number = |text: Option<f64>, read: fn(&str) -> Result<f64, BadValue>| {
            text.map(|number| read(&number.to_string())).transpose()
        };
        Ok(Question {
            disks,
            grow: self.grow.as_ref().map_or(Ok(Vec::new()), |text| disks_of(text, media))?,
            failures: values::failures_or_none(&self.failures.unwrap_or(1).to_string())?,
            workload,
            jobs,
            exact: self.exact,
            failures_percent: number(self.disk_failures, percent)?,
            replace_hours: number(self.replace_after, days)?.unwrap_or(3.0) * 24.0,
        })
    }
}

/// Asks the planner.
pub fn answer(question: &Question) -> Answer<plan::Answer> {
    plan::plan(question).map_err(|error| {
        let kind = match error.kind {
            ErrorKind::NoSpace => Kind::NoSpace,
            ErrorKind::InvalidInput => Kind::InvalidInput,
            _ => Kind::NotPossible,
        };
        ApiError::new(kind, error.to_string()).hint("weft plan --disks 4x4TB --failures 1")
    })
}

/// The disks of an open pool. A pool knows of a disk whether it is solid-state; `media` says which hard disks the
/// others are.
pub fn members(weft: &impl Perform<PoolShow>, pool: &str, media: Class) -> Answer<Vec<PlannedDisk>> {
    let class = |of: &Media| match of {
        Media::Ssd => Class::Ssd,
        _ if media.rotational() => media,
        _ => Class::Hdd7200,
    };
    let pool = weft.perform(&PoolShow { pool: pool.into() })?;
    Ok(pool.disks.iter().map(|disk| PlannedDisk { size: disk.capacity, class: class(&disk.media) }).collect())
}

/// Disks of which some have no class yet.
#[derive(Clone, PartialEq, Debug)]
pub struct Disks(Vec<(u64, Option<String>)>);

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

/// What people call a workload.
pub fn kind(text: &str) -> Result<Workload, BadValue> {
    let kinds = [
        ("media", Workload::Media),
        ("vm", Workload::Vm),
        ("database", Workload::Database),
        ("backup", Workload::Backup),
        ("mixed", Workload::Mixed),
    ];
    let found = kinds.into_iter().find(|(word, _)| *word == text).map(|(_, kind)| kind);
    found.ok_or_else(|| {
        let words = kinds.map(|(word, _)| word).join(", ");
        let named = weft_lab::named::names();
        BadValue::new(format!("`{text}` is none of {words}, {named}, and no file"), "mixed")
    })
}

/// Groups of disks, as a buyer writes them.
pub fn disks(text: &str) -> Result<Disks, BadValue> {
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

fn disks_of(text: &str, media: Class) -> Answer<Vec<PlannedDisk>> {
    Ok(disks(text)?.of(media, |word: &str| word.parse::<Class>().map_err(|why| BadValue::new(why, "hdd")))?)
}

/// How many of a hundred disks fail in a year.
pub fn percent(text: &str) -> Result<f64, BadValue> {
    within(text, 0.01, 90.0, "share of disks that fail in a year; 0.01 to 90 (per cent) are", "1.5")
}

/// Days until a disk is replaced.
pub fn days(text: &str) -> Result<f64, BadValue> {
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
        for wrong in ["", "4x", "x4TB", "0x4TB", "4TB:", "257x1TB", "99999999999x1TB", "4x4T", "4x-1TB", "1TB,,1TB"] {
            assert!(disks(wrong).is_err(), "{wrong}");
        }
        let tape = disks("4TB:tape").unwrap().of(Class::Hdd7200, str::parse::<Class>);
        assert!(tape.unwrap_err().contains("`tape` is no class"));
    }
}
