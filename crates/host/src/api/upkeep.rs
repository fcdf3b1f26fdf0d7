//! The life of a pool after it was made: its settings, its members coming and going, its leaving and coming back.

use super::error::BadValue;
use super::judge;
use super::pool::Media;
use super::size::Size;
use super::span::Span;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use utoipa::{IntoParams, ToSchema};

/// The most of the disks' time that can be kept for clients while jobs run, in percent.
pub const FOREGROUND_SHARE_MAX: u8 = 90;

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
}

/// Asks to change what a pool does by itself. What is left out stays.
#[derive(Serialize, Deserialize, ToSchema, Clone, Copy, PartialEq, Eq, Default, Debug)]
#[serde(deny_unknown_fields)]
pub struct PoolSet {
    /// How long a disk may be missing before its data is rebuilt elsewhere, or `never`.
    #[serde(default)]
    #[schema(value_type = Option<String>)]
    pub repair_after: Option<Span>,
    /// The time from one scrub to the next, or `never`.
    #[serde(default)]
    #[schema(value_type = Option<String>)]
    pub scrub_every: Option<Span>,
    /// The share of the disks' time that is kept for clients while jobs run: 0 to 90 percent.
    #[serde(default)]
    pub foreground_share: Option<u8>,
    /// How full the pool is when people are told: three rising shares, 1 to 99 percent.
    #[serde(default)]
    pub full: Option<[u8; 3]>,
    /// Only say what would change.
    #[serde(default)]
    pub dry_run: bool,
}

/// Asks for another name.
#[derive(Serialize, Deserialize, ToSchema, Clone, PartialEq, Eq, Debug)]
#[serde(deny_unknown_fields)]
pub struct Rename {
    /// The new name.
    pub name: String,
    /// Only say what would change.
    #[serde(default)]
    pub dry_run: bool,
}

/// Asks to open a pool that was found and is not open.
#[derive(Serialize, Deserialize, ToSchema, Clone, PartialEq, Eq, Debug)]
#[serde(deny_unknown_fields)]
pub struct PoolImport {
    /// Its name, or its identity where two have the same name.
    pub pool: String,
    /// Write nothing to it.
    #[serde(default)]
    pub read_only: bool,
    /// Open it although more of its disks are missing than it can be sure without.
    #[serde(default)]
    pub degraded: bool,
    /// Only say what would change.
    #[serde(default)]
    pub dry_run: bool,
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

/// Asks to make disks members of a pool.
#[derive(Serialize, Deserialize, ToSchema, Clone, PartialEq, Eq, Debug)]
#[serde(deny_unknown_fields)]
pub struct DiskAdd {
    /// The disks: block devices or files, as absolute paths.
    #[schema(value_type = Vec<String>)]
    pub disks: Vec<PathBuf>,
    /// What for; for data unless said.
    #[serde(default)]
    pub usage: Option<Usage>,
    /// Make files that are missing, sparse, of this size.
    #[serde(default)]
    #[schema(value_type = Option<String>)]
    pub create_size: Option<Size>,
    /// Take disks that hold something else.
    #[serde(default)]
    pub force: bool,
    /// Only say what would change.
    #[serde(default)]
    pub dry_run: bool,
}

/// How to take a disk out of its pool.
#[derive(Serialize, Deserialize, IntoParams, ToSchema, Clone, Copy, PartialEq, Eq, Default, Debug)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct DiskRemove {
    /// Also where virtual disks would lose redundancy.
    #[serde(default)]
    pub force: bool,
    /// Only say what would change.
    #[serde(default)]
    pub dry_run: bool,
}

/// Asks to put one disk in the place of another.
#[derive(Serialize, Deserialize, ToSchema, Clone, PartialEq, Eq, Debug)]
#[serde(deny_unknown_fields)]
pub struct DiskReplace {
    /// The new disk: the absolute path of a block device or file, or the name of a disk that the pool has.
    pub by: String,
    /// Make the file when it is missing, sparse, of this size.
    #[serde(default)]
    #[schema(value_type = Option<String>)]
    pub create_size: Option<Size>,
    /// Take a disk that holds something else; also where virtual disks would lose redundancy.
    #[serde(default)]
    pub force: bool,
    /// Only say what would change.
    #[serde(default)]
    pub dry_run: bool,
}

/// Asks to change what a pool knows of one of its disks. What is left out stays.
#[derive(Serialize, Deserialize, ToSchema, Clone, PartialEq, Eq, Default, Debug)]
#[serde(deny_unknown_fields)]
pub struct DiskSet {
    /// What it is used for.
    #[serde(default)]
    pub usage: Option<Usage>,
    /// What kind of medium it is.
    #[serde(default)]
    pub media: Option<Media>,
    /// Its name within the pool.
    #[serde(default)]
    pub name: Option<String>,
    /// What it fails together with: an enclosure, a rack; empty for nothing.
    #[serde(default)]
    pub domain: Option<String>,
    /// Whether nothing is read from it or written to it, so that it can be worked on. `false` also gives a disk that
    /// failed another chance.
    #[serde(default)]
    pub maintenance: Option<bool>,
    /// Only say what would change.
    #[serde(default)]
    pub dry_run: bool,
}

impl PoolSet {
    /// Whether every value is within its range.
    pub fn judge(&self) -> Result<(), BadValue> {
        self.foreground_share.map_or(Ok(()), foreground_share)?;
        self.full.map_or(Ok(()), full)
    }

    /// Whether nothing is asked for.
    pub fn is_empty(&self) -> bool {
        *self == PoolSet { dry_run: self.dry_run, ..PoolSet::default() }
    }

    /// Adds what `other` asks for.
    pub fn and(self, other: PoolSet) -> PoolSet {
        PoolSet {
            repair_after: other.repair_after.or(self.repair_after),
            scrub_every: other.scrub_every.or(self.scrub_every),
            foreground_share: other.foreground_share.or(self.foreground_share),
            full: other.full.or(self.full),
            dry_run: self.dry_run || other.dry_run,
        }
    }
}

impl DiskSet {
    /// Whether every value is within its range.
    pub fn judge(&self) -> Result<(), BadValue> {
        self.name.as_deref().map_or(Ok(()), judge::name)?;
        match self.domain.as_deref() {
            None | Some("") => Ok(()),
            Some(domain) => judge::name(domain),
        }
    }

    /// Whether nothing is asked for.
    pub fn is_empty(&self) -> bool {
        *self == DiskSet { dry_run: self.dry_run, ..DiskSet::default() }
    }

    /// Adds what `other` asks for.
    pub fn and(self, other: DiskSet) -> DiskSet {
        DiskSet {
            usage: other.usage.or(self.usage),
            media: other.media.or(self.media),
            name: other.name.or(self.name),
            domain: other.domain.or(self.domain),
            maintenance: other.maintenance.or(self.maintenance),
            dry_run: self.dry_run || other.dry_run,
        }
    }
}

/// A share of the disks' time for clients.
fn foreground_share(share: u8) -> Result<(), BadValue> {
    if share <= FOREGROUND_SHARE_MAX {
        return Ok(());
    }
    let message =
        format!("a foreground-share of {share}% leaves jobs no time; 0% to {FOREGROUND_SHARE_MAX}% are taken");
    Err(BadValue::new(message, format!("{FOREGROUND_SHARE_MAX}%")))
}

/// How full a pool is when people are told.
fn full(shares: [u8; 3]) -> Result<(), BadValue> {
    if shares[0] >= 1 && shares[2] <= 99 && shares.is_sorted_by(|a, b| a < b) {
        return Ok(());
    }
    let [a, b, c] = shares;
    Err(BadValue::new(format!("{a},{b},{c} is no list of three rising shares from 1 to 99 percent"), "70,80,90"))
}

/// One `KEY=VALUE` of `weft pool set`.
impl FromStr for PoolSet {
    type Err = BadValue;

    fn from_str(text: &str) -> Result<PoolSet, BadValue> {
        const KEYS: [(&str, &str); 4] =
            [("repair-after", "5m"), ("scrub-every", "4w"), ("foreground-share", "50%"), ("full", "70,80,90")];
        let (key, value) = key_and_value(text, &KEYS)?;
        let percent = |text: &str| text.strip_suffix('%').unwrap_or(text).parse::<u8>();
        let mut set = PoolSet::default();
        let read = match key {
            "repair-after" => value.parse().map(|span| set.repair_after = Some(span)),
            "scrub-every" => match value.parse::<Span>() {
                Ok(Span(Some(seconds))) if seconds < 3_600 => {
                    Err(BadValue::new(format!("a scrub every {value} would never end; 1h or more, or never"), "1h"))
                }
                Ok(span) => {
                    set.scrub_every = Some(span);
                    Ok(())
                }
                Err(bad) => Err(BadValue::new(bad.message, "4w")),
            },
            "foreground-share" => match percent(value) {
                Ok(share) => foreground_share(share).map(|()| set.foreground_share = Some(share)),
                Err(_) => {
                    Err(BadValue::new(format!("`{value}` is no share; 0% to {FOREGROUND_SHARE_MAX}% are"), "50%"))
                }
            },
            _ => {
                let shares: Option<Vec<u8>> = value.split(',').map(|share| percent(share.trim()).ok()).collect();
                match shares.and_then(|shares| <[u8; 3]>::try_from(shares).ok()) {
                    Some(shares) => full(shares).map(|()| set.full = Some(shares)),
                    None => Err(BadValue::new(format!("`{value}` is no list of three shares"), "70,80,90")),
                }
            }
        };
        read.map(|()| set).map_err(|bad: BadValue| with_key(key, bad))
    }
}

/// One `KEY=VALUE` of `weft disk set`.
impl FromStr for DiskSet {
    type Err = BadValue;

    fn from_str(text: &str) -> Result<DiskSet, BadValue> {
        const KEYS: [(&str, &str); 5] =
            [("usage", "auto"), ("media", "hdd"), ("name", "d1"), ("domain", "rack1"), ("maintenance", "on")];
        let (key, value) = key_and_value(text, &KEYS)?;
        let mut set = DiskSet::default();
        let known = match key {
            "usage" => one_of(
                value,
                &[
                    ("auto", Usage::Auto),
                    ("manual", Usage::Manual),
                    ("spare", Usage::Spare),
                    ("journal", Usage::Journal),
                    ("retired", Usage::Retired),
                ],
            )
            .map(|usage| set.usage = Some(usage)),
            "media" => one_of(value, &[("hdd", Media::Hdd), ("ssd", Media::Ssd)]).map(|media| set.media = Some(media)),
            "maintenance" => one_of(value, &[("on", true), ("off", false)]).map(|on| set.maintenance = Some(on)),
            "name" => {
                set.name = Some(value.into());
                set.judge()
            }
            _ => {
                set.domain = Some(value.into());
                set.judge()
            }
        };
        known.map(|()| set).map_err(|bad| with_key(key, bad))
    }
}

fn key_and_value<'a>(text: &'a str, keys: &[(&'static str, &str)]) -> Result<(&'static str, &'a str), BadValue> {
    let (key, value) = text.split_once('=').unwrap_or((text, ""));
    if let Some((known, example)) = keys.iter().find(|(known, _)| *known == key) {
        if text.contains('=') {
            return Ok((known, value));
        }
        return Err(BadValue::new(format!("`{text}` says no value"), format!("{known}={example}")));
    }
    let names: Vec<&str> = keys.iter().map(|(known, _)| *known).collect();
    let near = keys.iter().find(|(known, _)| known.starts_with(key) || key.starts_with(known)).unwrap_or(&keys[0]);
    Err(BadValue::new(
        format!("`{text}` sets nothing; {} can be set", names.join(", ")),
        format!("{}={}", near.0, near.1),
    ))
}

fn one_of<T: Copy>(value: &str, words: &[(&str, T)]) -> Result<T, BadValue> {
    let found = words.iter().find(|(word, _)| *word == value).map(|(_, meant)| *meant);
    found.ok_or_else(|| {
        let known: Vec<&str> = words.iter().map(|(word, _)| *word).collect();
        BadValue::new(format!("`{value}` is none of {}", known.join(", ")), words[0].0)
    })
}

fn with_key(key: &str, bad: BadValue) -> BadValue {
    BadValue {
        message: format!("{key}: {}", bad.message),
        nearest: bad.nearest.map(|nearest| format!("{key}={nearest}")),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_read_as_they_are_shown() {
        let set: PoolSet = "repair-after=never".parse().unwrap();
        assert_eq!(set.repair_after, Some(Span(None)));
        let set = set.and("full=60, 70%,80".parse().unwrap()).and("foreground-share=90%".parse().unwrap());
        assert_eq!((set.full, set.foreground_share, set.scrub_every), (Some([60, 70, 80]), Some(90), None));
        assert!(set.judge().is_ok() && !set.is_empty() && PoolSet::default().is_empty());
        let set: DiskSet = "usage=retired".parse().unwrap();
        assert_eq!(set.and("domain=".parse().unwrap()).domain.as_deref(), Some(""));
    }

    #[test]
    fn wrong_settings_are_refused_with_one_that_would_do() {
        let pool = [
            "",
            "repair",
            "repair-after",
            "repair-after=",
            "repair-after=soon",
            "scrub-every=5s",
            "scrub-every=x",
            "foreground-share=91",
            "foreground-share=-1",
            "foreground-share=",
            "full=70",
            "full=70,70,90",
            "full=0,1,2",
            "full=70,80,100",
            "full=a,b,c",
            "colour=red",
        ];
        for text in pool {
            let nearest = text.parse::<PoolSet>().expect_err(text).nearest.unwrap();
            assert!(nearest.parse::<PoolSet>().is_ok(), "{text}: {nearest}");
        }
        let disk =
            ["", "usage", "usage=hot", "media=tape", "name=a/b", "name=", "domain=a b", "maintenance=1", "size=1"];
        for text in disk {
            let nearest = text.parse::<DiskSet>().expect_err(text).nearest.unwrap();
            assert!(nearest.parse::<DiskSet>().is_ok(), "{text}: {nearest}");
        }
    }
}
