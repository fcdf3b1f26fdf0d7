//! `weft vdisk set`.

use super::line::{Line, ToLine};
use super::settings::{key_and_value, with_key};
use super::{Changing, values, verb};
use crate::api::cache::WriteCache;
use crate::api::error::BadValue;
use crate::api::name::VdiskName;
use crate::api::read_cache::ReadCache;
use crate::api::share::FineShare;
use crate::api::tier::TierChoice;
use clap::Args;
use serde::{Deserialize, Serialize};
use std::str::FromStr;
use utoipa::ToSchema;

/// Asks to change what a virtual disk does. What is left out stays as it is.
#[derive(Serialize, Deserialize, ToSchema, Clone, PartialEq, Eq, Debug)]
#[serde(deny_unknown_fields)]
pub struct VdiskSet {
    /// Its name
    #[serde(skip)]
    pub vdisk: VdiskName,
    /// How much of it may lie in packed stripes: `1%` to `50%`, `0`, or `auto`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub fine_share: Option<FineShare>,
    /// Its write-back cache: how many bytes (`,unsafe` behind them: it may survive less than what lies below it), `0`
    /// for none, or `auto`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub write_cache: Option<WriteCache>,
    /// The disks that it lies on, by name; none: those that it lies on, or what suits the pool.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub write_cache_disks: Vec<String>,
    /// Its fast tier, as it is typed (`ssd,size=50GiB,columns=2`), or `0` for none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub tier: Option<TierChoice>,
    /// Its read cache: how many bytes, `0` for none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub read_cache: Option<ReadCache>,
    /// The disks that it lies on, by name; none: those that it lies on, or solid-state ones.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub read_cache_disks: Vec<String>,
    /// Only say what would change.
    #[serde(default, rename = "dry_run")]
    #[schema(value_type = bool)]
    pub changing: Changing,
}

/// `weft vdisk set`.
#[derive(Args, Clone, Debug)]
pub struct VdiskSetTyped {
    /// Its name
    #[arg(value_name = "POOL/VDISK", value_parser = values::vdisk)]
    pub vdisk: VdiskName,
    /// write-cache=SIZE[,unsafe]|auto|0, write-cache-disks=D,D,..., read-cache=SIZE|0, read-cache-disks=D,D,...,
    /// fine-share=1%..50%|0|auto,
    /// tier=ssd|hdd|any,size=SIZE[,resiliency=...,copies=N,columns=N]|0
    #[arg(value_name = "KEY=VALUE", required = true, value_parser = values::vdisk_setting)]
    pub settings: Vec<Setting>,
    /// How to change it.
    #[command(flatten)]
    pub changing: Changing,
}

/// One `KEY=VALUE` of it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Setting {
    /// `fine-share=`
    FineShare(FineShare),
    /// `write-cache=`
    WriteCache(WriteCache),
    /// `write-cache-disks=`
    WriteCacheDisks(Vec<String>),
    /// `tier=`
    Tier(TierChoice),
    /// `read-cache=`
    ReadCache(ReadCache),
    /// `read-cache-disks=`
    ReadCacheDisks(Vec<String>),
}

verb!(VdiskSet: "vdisk set", changing);

impl VdiskSetTyped {
    /// All settings together; of two of a kind the last one holds.
    pub fn operation(self) -> VdiskSet {
        let asked = VdiskSet { changing: self.changing, ..VdiskSet::of(&self.vdisk) };
        self.settings.into_iter().fold(asked, |asked, setting| match setting {
            Setting::FineShare(share) => VdiskSet { fine_share: Some(share), ..asked },
            Setting::WriteCache(cache) => VdiskSet { write_cache: Some(cache), ..asked },
            Setting::WriteCacheDisks(disks) => VdiskSet { write_cache_disks: disks, ..asked },
            Setting::Tier(tier) => VdiskSet { tier: Some(tier), ..asked },
            Setting::ReadCache(cache) => VdiskSet { read_cache: Some(cache), ..asked },
            Setting::ReadCacheDisks(disks) => VdiskSet { read_cache_disks: disks, ..asked },
        })
    }
}

impl VdiskSet {
    /// Changes nothing yet.
    pub fn of(vdisk: &VdiskName) -> VdiskSet {
        VdiskSet {
            vdisk: vdisk.clone(),
            fine_share: None,
            write_cache: None,
            write_cache_disks: Vec::new(),
            tier: None,
            read_cache: None,
            read_cache_disks: Vec::new(),
            changing: Changing::default(),
        }
    }

    /// Asks for this write-back cache.
    pub fn cache(vdisk: &VdiskName, cache: WriteCache) -> VdiskSet {
        VdiskSet { write_cache: Some(cache), ..VdiskSet::of(vdisk) }
    }

    /// Asks for this read cache.
    pub fn read_cache(vdisk: &VdiskName, cache: ReadCache) -> VdiskSet {
        VdiskSet { read_cache: Some(cache), ..VdiskSet::of(vdisk) }
    }
}

impl ToLine for VdiskSet {
    fn line(&self) -> String {
        let named = |disks: &[String]| (!disks.is_empty()).then(|| disks.join(","));
        let words = [
            self.write_cache.map(|cache| format!("write-cache={cache}")),
            named(&self.write_cache_disks).map(|disks| format!("write-cache-disks={disks}")),
            self.read_cache.map(|cache| format!("read-cache={cache}")),
            named(&self.read_cache_disks).map(|disks| format!("read-cache-disks={disks}")),
            self.fine_share.map(|share| format!("fine-share={share}")),
            self.tier.map(|tier| format!("tier={tier}")),
        ];
        words.into_iter().flatten().fold(Line::new("vdisk set").word(&self.vdisk), Line::word).into()
    }
}

impl FromStr for Setting {
    type Err = BadValue;

    fn from_str(text: &str) -> Result<Setting, BadValue> {
        const KEYS: [(&str, &str); 6] = [
            ("write-cache", "8GiB"),
            ("write-cache-disks", "s1,s2"),
            ("read-cache", "100GiB"),
            ("read-cache-disks", "s1,s2"),
            ("fine-share", "10%"),
            ("tier", "ssd,size=50GiB,columns=2"),
        ];
        let (key, value) = key_and_value(text, &KEYS)?;
        let known = match key {
            "write-cache" => value.parse().map(Setting::WriteCache),
            "fine-share" => value.parse().map(Setting::FineShare),
            "tier" => value.parse().map(Setting::Tier),
            "read-cache" => value.parse().map(Setting::ReadCache),
            "read-cache-disks" => disks(value).map(Setting::ReadCacheDisks),
            _ => disks(value).map(Setting::WriteCacheDisks),
        };
        known.map_err(|bad| with_key(key, bad))
    }
}

fn disks(text: &str) -> Result<Vec<String>, BadValue> {
    let names: Vec<String> = text.split(',').map(String::from).collect();
    match names.iter().any(String::is_empty) {
        true => {
            Err(BadValue::new(format!("`{text}` is no list of disks; names with commas between them are"), "s1,s2"))
        }
        false => Ok(names),
    }
}
