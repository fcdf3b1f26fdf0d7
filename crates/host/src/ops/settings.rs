//! What can be set: `weft pool set`, `weft disk set` and `weft vdisk set`, whose words are `KEY=VALUE`.

use super::disk::member;
use super::line::{Line, ToLine};
use super::{Changing, Weft, values, verb};
use crate::api::daily::Daily;
use crate::api::error::{Answer, BadValue};
use crate::api::pool::{Media, Usage};
use crate::api::power::PowerSetting;
use crate::api::span::Span;
use crate::api::validate;
use clap::Args;
use serde::{Deserialize, Serialize};
use std::str::FromStr;
use utoipa::ToSchema;
use weft_engine::limits::FOREGROUND_SHARE_MAX;
use weft_engine::pool::plan::are_fill_levels;

/// Asks to change what a pool does by itself. What is left out stays.
#[derive(Serialize, Deserialize, ToSchema, Clone, PartialEq, Eq, Default, Debug)]
#[serde(deny_unknown_fields)]
pub struct PoolSet {
    /// The pool.
    #[serde(skip)]
    pub pool: String,
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
    /// When fast tiers are put right each day, local time: `02:00`, or `never`.
    #[serde(default)]
    #[schema(value_type = Option<String>)]
    pub tier_schedule: Option<Daily>,
    /// Only say what would change.
    #[serde(default, rename = "dry_run")]
    #[schema(value_type = bool)]
    pub changing: Changing,
}

/// Asks to change what a pool knows of one of its disks. What is left out stays.
#[derive(Serialize, Deserialize, ToSchema, Clone, PartialEq, Eq, Default, Debug)]
#[serde(deny_unknown_fields)]
pub struct DiskSet {
    /// The pool.
    #[serde(skip)]
    pub pool: String,
    /// Its name in the pool, identity or path.
    #[serde(skip)]
    pub disk: String,
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
    /// Whether it keeps what it has taken when the power fails, and so needs no flush.
    #[serde(default)]
    pub power_protected: Option<PowerSetting>,
    /// Only say what would change.
    #[serde(default, rename = "dry_run")]
    #[schema(value_type = bool)]
    pub changing: Changing,
}

/// `weft pool set`.
#[derive(Args, Clone, Debug)]
pub struct PoolSetTyped {
    /// Its name
    #[arg(value_parser = values::name)]
    pub pool: String,
    /// repair-after=SPAN|never, scrub-every=SPAN|never, foreground-share=N%, full=N,N,N, tier-schedule=HH:MM|never
    #[arg(value_name = "KEY=VALUE", required = true, value_parser = values::pool_setting)]
    pub settings: Vec<PoolSet>,
    /// How to change it.
    #[command(flatten)]
    pub changing: Changing,
}

/// `weft disk set`.
#[derive(Args, Clone, Debug)]
pub struct DiskSetTyped {
    /// The pool
    #[arg(value_parser = values::name)]
    pub pool: String,
    /// Its name in the pool, identity or path
    pub disk: String,
    /// usage=auto|manual|spare|journal|retired, media=hdd|ssd, name=NAME, domain=NAME, maintenance=on|off,
    /// power-protected=yes|no|auto
    #[arg(value_name = "KEY=VALUE", required = true, value_parser = values::disk_setting)]
    pub settings: Vec<DiskSet>,
    /// How to change it.
    #[command(flatten)]
    pub changing: Changing,
}

impl PoolSetTyped {
    /// All settings together.
    pub fn operation(self) -> PoolSet {
        let asked = PoolSet { pool: self.pool, changing: self.changing, ..PoolSet::default() };
        self.settings.into_iter().fold(asked, PoolSet::and)
    }
}

impl DiskSetTyped {
    /// All settings together.
    pub fn operation(self) -> DiskSet {
        let asked = DiskSet { changing: self.changing, ..DiskSet::of(&self.pool, &self.disk) };
        self.settings.into_iter().fold(asked, DiskSet::and)
    }
}

verb!(PoolSet: "pool set", changing);

verb!(DiskSet: "disk set", changing {
    fn typed(self, _: &impl Weft) -> Answer<DiskSet> {
        Ok(DiskSet { disk: member(&self.disk)?, ..self })
    }
});

impl ToLine for PoolSet {
    fn line(&self) -> String {
        let words = [
            self.repair_after.map(|span| format!("repair-after={span}")),
            self.scrub_every.map(|span| format!("scrub-every={span}")),
            self.foreground_share.map(|share| format!("foreground-share={share}%")),
            self.full.map(|[a, b, c]| format!("full={a},{b},{c}")),
            self.tier_schedule.map(|daily| format!("tier-schedule={daily}")),
        ];
        words.into_iter().flatten().fold(Line::new("pool set").word(&self.pool), Line::word).into()
    }
}

impl ToLine for DiskSet {
    fn line(&self) -> String {
        let words = [
            self.usage.map(|usage| format!("usage={usage}")),
            self.media.map(|media| format!("media={media}")),
            self.name.as_ref().map(|name| format!("name={name}")),
            self.domain.as_ref().map(|domain| format!("domain={domain}")),
            self.maintenance.map(|on| format!("maintenance={}", if on { "on" } else { "off" })),
            self.power_protected.map(|said| format!("power-protected={said}")),
        ];
        let line = Line::new("disk set").word(&self.pool).word(&self.disk);
        words.into_iter().flatten().fold(line, Line::word).into()
    }
}

impl PoolSet {
    /// Whether every value is within its range.
    pub fn validate(&self) -> Result<(), BadValue> {
        self.foreground_share.map_or(Ok(()), foreground_share)?;
        self.full.map_or(Ok(()), full)
    }

    /// Whether nothing is asked for.
    pub fn is_empty(&self) -> bool {
        *self == PoolSet { pool: self.pool.clone(), changing: self.changing, ..PoolSet::default() }
    }

    /// Adds what `other` asks for.
    pub fn and(self, other: PoolSet) -> PoolSet {
        PoolSet {
            repair_after: other.repair_after.or(self.repair_after),
            scrub_every: other.scrub_every.or(self.scrub_every),
            foreground_share: other.foreground_share.or(self.foreground_share),
            full: other.full.or(self.full),
            tier_schedule: other.tier_schedule.or(self.tier_schedule),
            ..self
        }
    }
}

impl PoolSet {
    /// Changes nothing yet.
    pub fn of(pool: &str) -> PoolSet {
        PoolSet { pool: pool.into(), ..PoolSet::default() }
    }
}

impl DiskSet {
    /// Changes nothing yet.
    pub fn of(pool: &str, disk: &str) -> DiskSet {
        DiskSet { pool: pool.into(), disk: disk.into(), ..DiskSet::default() }
    }

    /// Asks to use a disk again that was in maintenance, or that failed.
    pub fn back(pool: &str, disk: &str) -> DiskSet {
        DiskSet { maintenance: Some(false), ..DiskSet::of(pool, disk) }
    }

    /// Whether every value is within its range.
    pub fn validate(&self) -> Result<(), BadValue> {
        self.name.as_deref().map_or(Ok(()), validate::name)?;
        match self.domain.as_deref() {
            None | Some("") => Ok(()),
            Some(domain) => validate::name(domain),
        }
    }

    /// Whether nothing is asked for.
    pub fn is_empty(&self) -> bool {
        *self == DiskSet { changing: self.changing, ..DiskSet::of(&self.pool, &self.disk) }
    }

    /// Adds what `other` asks for.
    pub fn and(self, other: DiskSet) -> DiskSet {
        DiskSet {
            usage: other.usage.or(self.usage),
            media: other.media.or(self.media),
            name: other.name.or(self.name),
            domain: other.domain.or(self.domain),
            maintenance: other.maintenance.or(self.maintenance),
            power_protected: other.power_protected.or(self.power_protected),
            ..self
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
    if are_fill_levels(shares) {
        return Ok(());
    }
    let [a, b, c] = shares;
    Err(BadValue::new(format!("{a},{b},{c} is no list of three rising shares from 1 to 99 percent"), "70,80,90"))
}

/// One `KEY=VALUE` of `weft pool set`.
impl FromStr for PoolSet {
    type Err = BadValue;

    fn from_str(text: &str) -> Result<PoolSet, BadValue> {
        const KEYS: [(&str, &str); 5] = [
            ("repair-after", "5m"),
            ("scrub-every", "4w"),
            ("foreground-share", "50%"),
            ("full", "70,80,90"),
            ("tier-schedule", "02:00"),
        ];
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
            "tier-schedule" => value.parse().map(|daily| set.tier_schedule = Some(daily)),
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
        const KEYS: [(&str, &str); 6] = [
            ("usage", "auto"),
            ("media", "hdd"),
            ("name", "d1"),
            ("domain", "rack1"),
            ("maintenance", "on"),
            ("power-protected", "auto"),
        ];
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
            "power-protected" => {
                let words = [("auto", PowerSetting::Auto), ("yes", PowerSetting::Yes), ("no", PowerSetting::No)];
                one_of(value, &words).map(|said| set.power_protected = Some(said))
            }
            "maintenance" => one_of(value, &[("on", true), ("off", false)]).map(|on| set.maintenance = Some(on)),
            "name" => {
                set.name = Some(value.into());
                set.validate()
            }
            _ => {
                set.domain = Some(value.into());
                set.validate()
            }
        };
        known.map(|()| set).map_err(|bad| with_key(key, bad))
    }
}

pub(super) fn key_and_value<'a>(
    text: &'a str,
    keys: &[(&'static str, &str)],
) -> Result<(&'static str, &'a str), BadValue> {
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

pub(super) fn with_key(key: &str, bad: BadValue) -> BadValue {
    BadValue {
        message: format!("{key}: {}", bad.message),
        nearest: bad.nearest.map(|nearest| format!("{key}={nearest}")),
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
        assert!(set.validate().is_ok() && !set.is_empty() && PoolSet::default().is_empty());
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
        let disk = [
            "",
            "usage",
            "usage=hot",
            "media=tape",
            "name=a/b",
            "name=",
            "domain=a b",
            "maintenance=1",
            "power-protected=maybe",
            "power",
            "size=1",
        ];
        for text in disk {
            let nearest = text.parse::<DiskSet>().expect_err(text).nearest.unwrap();
            assert!(nearest.parse::<DiskSet>().is_ok(), "{text}: {nearest}");
        }
    }
}
