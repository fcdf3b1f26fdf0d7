//! Read caches as people write them: `100GiB`, or `0`; and as they are shown.

use super::error::BadValue;
use super::size::{self, typed};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;
use utoipa::ToSchema;
use weft_engine::units::ByteCount;

/// The read cache that a virtual disk is to have: its size; 0 bytes: none.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ReadCache(pub ByteCount);

/// The read cache that a virtual disk has.
#[derive(Serialize, Deserialize, ToSchema, Clone, PartialEq, Eq, Debug)]
pub struct ReadCacheInfo {
    /// The size that was asked for, in bytes.
    pub size: u64,
    /// Bytes of the slabs that it has: less than its size where disks of it have left.
    pub capacity: u64,
    /// Names of the disks that it may lie on.
    pub disks: Vec<String>,
    /// Bytes that lie in it.
    #[serde(default)]
    pub held: u64,
    /// Bytes of memory that its index takes.
    #[serde(default)]
    pub memory: u64,
    /// Bytes that were written to it since the pool was opened.
    #[serde(default)]
    pub filled_bytes: u64,
    /// Those of them that it had before, and that were asked for.
    #[serde(default)]
    pub again_bytes: u64,
    /// Bytes that were to be kept and were not, because its disks were busy.
    #[serde(default)]
    pub passed_bytes: u64,
    /// Pieces of it that were not what the checksums say, and were read from the disks instead.
    #[serde(default)]
    pub unproven: u64,
}

/// A cache, or that there is none, in words.
pub fn in_words(cache: Option<&ReadCacheInfo>) -> String {
    cache.map_or("none".into(), ReadCacheInfo::to_string)
}

impl ReadCacheInfo {
    /// One that holds nothing yet.
    pub fn new(size: u64, capacity: u64, disks: Vec<String>) -> ReadCacheInfo {
        ReadCacheInfo {
            size,
            capacity,
            disks,
            held: 0,
            memory: 0,
            filled_bytes: 0,
            again_bytes: 0,
            passed_bytes: 0,
            unproven: 0,
        }
    }
}

impl fmt::Display for ReadCacheInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} on {}", ByteCount(self.capacity), self.disks.join(", "))?;
        if self.capacity < self.size {
            write!(f, ", of {} that it is to have", ByteCount(self.size))?;
        }
        Ok(())
    }
}

impl FromStr for ReadCache {
    type Err = BadValue;

    fn from_str(text: &str) -> Result<ReadCache, BadValue> {
        size::bytes(text).map(ReadCache).map_err(|_| {
            BadValue::new(format!("`{text}` is no size of a read cache; a number with a unit is, and 0"), "100GiB")
        })
    }
}

impl fmt::Display for ReadCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            ByteCount::ZERO => f.write_str("0"),
            bytes => f.write_str(&typed(bytes)),
        }
    }
}

as_text!(ReadCache);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_read_back_as_they_are_written_and_nonsense_is_refused_with_one_that_would_do() {
        for text in ["0", "64MiB", "8GiB"] {
            assert_eq!(text.parse::<ReadCache>().unwrap().to_string(), text);
        }
        for text in ["", "max", "auto", "10%", "-1", "none"] {
            let nearest = text.parse::<ReadCache>().expect_err(text).nearest.unwrap();
            assert!(nearest.parse::<ReadCache>().is_ok(), "{text}: {nearest}");
        }
    }
}
