//! Whether a disk keeps what it has taken when the power fails, as the API speaks of it.

use serde::{Deserialize, Serialize};
use std::fmt;
use utoipa::ToSchema;

/// Whether a disk is power-protected, as a person says.
#[derive(Serialize, Deserialize, ToSchema, Clone, Copy, PartialEq, Eq, Default, Debug)]
#[serde(rename_all = "kebab-case")]
pub enum PowerSetting {
    /// What the kernel says of its write cache holds.
    #[default]
    Auto,
    /// It is, whatever the kernel says: no flush is sent to it.
    Yes,
    /// It is not, whatever the kernel says.
    No,
}

/// What becomes of a disk's write cache when the power fails, as far as weft can know.
#[derive(Serialize, Deserialize, ToSchema, Clone, Copy, PartialEq, Eq, Default, Debug)]
#[serde(rename_all = "kebab-case")]
pub enum WriteCache {
    /// Nobody knows.
    #[default]
    Unknown,
    /// It may be lost: the kernel calls it "write back".
    Volatile,
    /// Nothing of it is lost: the kernel calls it "write through".
    NonVolatile,
    /// What was written may lie in this machine's memory: the disk is a file, or is reached through the page cache.
    Host,
}

/// Whether a disk is power-protected, and so is not flushed.
#[derive(Serialize, Deserialize, ToSchema, Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct PowerProtection {
    /// What a person said.
    pub said: PowerSetting,
    /// What is known of its write cache.
    pub write_cache: WriteCache,
    /// What follows: whether no flush is sent to it.
    pub protected: bool,
}

impl PowerProtection {
    /// Why it counts as what it counts as.
    pub fn why(self) -> &'static str {
        match (self.write_cache, self.said) {
            (WriteCache::Host, _) => "a file, or reached through the page cache, is always flushed",
            (WriteCache::Volatile, PowerSetting::Yes) => {
                "as was said, though the kernel says that its cache is volatile"
            }
            (WriteCache::NonVolatile, PowerSetting::No) => {
                "as was said, though the kernel says that its cache is not volatile"
            }
            (_, PowerSetting::Yes | PowerSetting::No) => "as was said",
            (WriteCache::NonVolatile, PowerSetting::Auto) => "the kernel says that its cache is not volatile",
            (WriteCache::Volatile, PowerSetting::Auto) => "the kernel says that its cache is volatile",
            (WriteCache::Unknown, PowerSetting::Auto) => "nothing is known of its cache",
        }
    }
}

impl fmt::Display for PowerSetting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            PowerSetting::Auto => "auto",
            PowerSetting::Yes => "yes",
            PowerSetting::No => "no",
        })
    }
}

impl fmt::Display for PowerProtection {
    /// `no (auto): the kernel says that its cache is volatile`
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let protected = if self.protected { "yes" } else { "no" };
        write!(f, "{protected} ({}): {}", self.said, self.why())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_in_effect_is_told_with_what_was_said_and_why() {
        let told = |said, write_cache, protected| PowerProtection { said, write_cache, protected }.to_string();
        assert_eq!(
            told(PowerSetting::Auto, WriteCache::NonVolatile, true),
            "yes (auto): the kernel says that its cache is not volatile"
        );
        assert_eq!(
            told(PowerSetting::Yes, WriteCache::Host, false),
            "no (yes): a file, or reached through the page cache, is always flushed"
        );
    }
}
