//! Write-back caches as people write them: `8GiB`, `8GiB,unsafe`, `0`, or `auto`; and as they are shown.

use super::error::BadValue;
use super::size::{self, typed};
use super::vdisk::Layout;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;
use utoipa::ToSchema;
use weft_engine::format::record::CacheRecord;
use weft_engine::units::ByteCount;

/// The write-back cache that a virtual disk is to have.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum WriteCache {
    /// What suits the pool: one where it has solid-state disks that take nothing by themselves, in front of others.
    #[default]
    Auto,
    /// None.
    Off,
    /// One with room for so many bytes of data.
    Bytes(ByteCount),
    /// One with room for so many that may survive less than what lies below it.
    Unsafe(ByteCount),
}

/// What stands behind the size of a cache that may survive less than what lies below it.
const UNSAFE: &str = ",unsafe";

/// The write-back cache that a virtual disk has.
#[derive(Serialize, Deserialize, ToSchema, Clone, PartialEq, Eq, Debug)]
pub struct CacheInfo {
    /// The most bytes of data that may lie in it.
    pub size: u64,
    /// Names of the disks that it may lie on.
    pub disks: Vec<String>,
    /// How it lies on them.
    pub layout: Layout,
    /// Whether it takes nothing now and empties itself: it lacks a disk, or lies elsewhere than it is to.
    pub drains: bool,
    /// Whether it survives less than what lies below it (`,unsafe`): what rests there is lost with its disks.
    #[serde(default)]
    pub may_lose: bool,
}

/// A cache, or that there is none, in words; `auto` stands before it where the pool chooses.
pub fn in_words(cache: Option<&CacheInfo>, auto: bool) -> String {
    let cache = cache.map_or("none".into(), CacheInfo::to_string);
    if auto { format!("auto: {cache}") } else { cache }
}

impl FromStr for WriteCache {
    type Err = BadValue;

    fn from_str(text: &str) -> Result<WriteCache, BadValue> {
        match text {
            "auto" => Ok(WriteCache::Auto),
            text => {
                let (size, is_unsafe) = text.strip_suffix(UNSAFE).map_or((text, false), |size| (size, true));
                match (size::bytes(size), is_unsafe) {
                    (Ok(ByteCount::ZERO), false) => Ok(WriteCache::Off),
                    (Ok(bytes), false) => Ok(WriteCache::Bytes(bytes)),
                    (Ok(bytes), true) if bytes > ByteCount::ZERO => Ok(WriteCache::Unsafe(bytes)),
                    _ => Err(BadValue::new(
                        format!(
                            "`{text}` is no size of a write-back cache; a number with a unit is, the same with \
                             `{UNSAFE}` behind it, 0 and auto"
                        ),
                        "8GiB",
                    )),
                }
            }
        }
    }
}

impl CacheInfo {
    /// A cache that takes what comes, on disks of these names.
    pub fn new(cache: CacheRecord, disks: Vec<String>) -> CacheInfo {
        CacheInfo { size: cache.size.0, disks, layout: Layout::from(cache.layout), drains: false, may_lose: false }
    }

    /// Compares it with the table below, which survives so many failures.
    pub fn above(self, failures: u8) -> CacheInfo {
        CacheInfo { may_lose: self.layout.resiliency.failures() < failures, ..self }
    }

    /// The disks that it may lie on, or that there is none any more, in words.
    pub fn disks_named(&self) -> String {
        if self.disks.is_empty() { "none".into() } else { self.disks.join(", ") }
    }

    /// How few of its disks take what rests there along, in words.
    pub fn lost_with(&self) -> String {
        match (self.layout.resiliency.failures(), self.disks.as_slice()) {
            (0, [disk]) => disk.clone(),
            (failures, disks) => format!("{} of {}", failures + 1, disks.join(", ")),
        }
    }
}

impl fmt::Display for WriteCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            WriteCache::Auto => f.write_str("auto"),
            WriteCache::Off => f.write_str("0"),
            WriteCache::Bytes(bytes) => f.write_str(&typed(*bytes)),
            WriteCache::Unsafe(bytes) => write!(f, "{}{UNSAFE}", typed(*bytes)),
        }
    }
}

impl fmt::Display for CacheInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} on {}, {}", ByteCount(self.size), self.disks_named(), self.layout.resiliency)?;
        if self.may_lose && !self.disks.is_empty() {
            write!(f, "; unsafe: what rests there is lost with {}", self.lost_with())?;
        }
        if self.drains { f.write_str("; it takes nothing now, and empties itself") } else { Ok(()) }
    }
}

as_text!(WriteCache);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn caches_read_back_as_they_are_written_and_nonsense_is_refused_with_one_that_would_do() {
        for text in ["auto", "0", "64MiB", "8GiB", "8GiB,unsafe"] {
            assert_eq!(text.parse::<WriteCache>().unwrap().to_string(), text);
        }
        for text in ["", "max", "10%", "-1", "Auto", "none", "unsafe", "auto,unsafe", "0,unsafe", "8GiB,safe", "8GiB,"]
        {
            let nearest = text.parse::<WriteCache>().expect_err(text).nearest.unwrap();
            assert!(nearest.parse::<WriteCache>().is_ok(), "{text}: {nearest}");
        }
    }
}
