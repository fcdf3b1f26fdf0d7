//! Fast tiers: as people write them (`ssd,size=50GiB,resiliency=mirror,columns=2`), as they are shown, and what they
//! would be good for.

use super::error::BadValue;
use super::name::VdiskName;
use super::size::{self, typed};
use super::validate;
use super::vdisk::{Layout, ResiliencyKind};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;
use utoipa::ToSchema;
use weft_engine::units::ByteCount;

/// The disks that a tier lies on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TierMedia {
    /// Solid-state disks.
    Ssd,
    /// All others.
    Hdd,
    /// Those that take data by themselves, whatever they are.
    Any,
}

/// A tier as it is asked for. What is left out is chosen.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TierSpec {
    /// The disks it lies on.
    pub media: TierMedia,
    /// The most bytes of data that may lie in it; none: all that has no place above it.
    pub size: Option<ByteCount>,
    /// What protects the data.
    pub resiliency: Option<ResiliencyKind>,
    /// Copies of a mirror.
    pub copies: Option<u8>,
    /// Disk failures to survive.
    pub failures: Option<u8>,
    /// Columns.
    pub columns: Option<u8>,
    /// Bytes of one stripe on one column; of the lower tier only.
    pub interleave: Option<ByteCount>,
}

/// The fast tier that a virtual disk is to have.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TierChoice {
    /// None.
    Off,
    /// This one.
    Spec(TierSpec),
}

/// Some bytes of a virtual disk.
#[derive(Serialize, Deserialize, ToSchema, Clone, Copy, PartialEq, Eq, Debug)]
pub struct Piece {
    /// The first.
    pub offset: u64,
    /// How many.
    pub length: u64,
}

/// The fast tier that a virtual disk has.
#[derive(Serialize, Deserialize, ToSchema, Clone, PartialEq, Eq, Debug)]
pub struct TierInfo {
    /// The most bytes of data that may lie in it; 0: it is to be none.
    pub size: u64,
    /// Bytes of data that lie in it.
    pub used: u64,
    /// Names of the disks that it may lie on; none: all that take data by themselves.
    pub disks: Vec<String>,
    /// How stripes lie there; none: it is to be none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub layout: Option<Layout>,
    /// Whether it takes nothing now and empties itself: it lacks a disk, lies elsewhere than it is to, or is to be
    /// none.
    pub drains: bool,
    /// What is to lie there, however seldom it is asked for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pins: Vec<Piece>,
}

/// What fast tiers of all sizes would catch of what is asked of a virtual disk, if each held what is sought out most.
#[derive(Serialize, Deserialize, ToSchema, Clone, PartialEq, Debug)]
pub struct TierCurve {
    /// The virtual disk, `POOL/VDISK`.
    #[schema(value_type = String)]
    pub vdisk: VdiskName,
    /// Its size, in bytes.
    pub size: u64,
    /// Bytes of the ranges that are counted.
    pub range: u64,
    /// Requests that were counted; of those of a day of service ago half. One that goes on where another has just ended
    /// is not.
    pub seeks: u64,
    /// Sizes that double, from one range to all that was ever sought out.
    pub curve: Vec<TierPoint>,
}

/// What a fast tier of one size would catch.
#[derive(Serialize, Deserialize, ToSchema, Clone, Copy, PartialEq, Debug)]
pub struct TierPoint {
    /// Its size, in bytes.
    pub bytes: u64,
    /// That, in percent of the virtual disk.
    pub size_percent: f64,
    /// What it would catch, in percent of the requests that were counted.
    pub seeks_percent: f64,
}

/// A tier to type, where another one was not understood.
const EXAMPLE: &str = "ssd,size=50GiB,resiliency=mirror,columns=2";

impl TierSpec {
    /// A tier on these disks, of which nothing else is said.
    pub const fn on(media: TierMedia) -> TierSpec {
        TierSpec { media, size: None, resiliency: None, copies: None, failures: None, columns: None, interleave: None }
    }
}

impl FromStr for TierSpec {
    type Err = BadValue;

    fn from_str(text: &str) -> Result<TierSpec, BadValue> {
        let mut words = text.split(',');
        let media = match words.next() {
            Some("ssd") => TierMedia::Ssd,
            Some("hdd") => TierMedia::Hdd,
            Some("any") => TierMedia::Any,
            _ => return Err(no_tier(text, "it begins with ssd, hdd or any")),
        };
        let mut spec = TierSpec::on(media);
        for word in words {
            let (key, value) = word.split_once('=').ok_or_else(|| no_tier(text, &format!("`{word}` has no `=`")))?;
            let number =
                || value.parse::<u8>().map_err(|_| no_tier(text, &format!("`{value}` is no number for {key}")));
            let bytes = || size::bytes(value).map_err(|_| no_tier(text, &format!("`{value}` is no size")));
            match key {
                "size" => spec.size = Some(bytes()?),
                "interleave" => {
                    spec.interleave = Some(bytes().and_then(|len| validate::interleave(len).map(|()| len))?)
                }
                "columns" => spec.columns = Some(number().and_then(|n| validate::columns(n).map(|()| n))?),
                "copies" => spec.copies = Some(number().and_then(|n| validate::copies(n).map(|()| n))?),
                "failures" => spec.failures = Some(number().and_then(|n| validate::failures(n).map(|()| n))?),
                "resiliency" => {
                    let known = [
                        ("simple", ResiliencyKind::Simple),
                        ("mirror", ResiliencyKind::Mirror),
                        ("parity", ResiliencyKind::Parity),
                    ];
                    let kind = known.iter().find(|(name, _)| *name == value).map(|(_, kind)| *kind);
                    let wrong = || no_tier(text, &format!("`{value}` protects nothing; simple, mirror and parity do"));
                    spec.resiliency = Some(kind.ok_or_else(wrong)?);
                }
                _ => {
                    let why = format!("`{key}` is none of size, resiliency, copies, failures, columns and interleave");
                    return Err(no_tier(text, &why));
                }
            }
        }
        Ok(spec)
    }
}

fn no_tier(text: &str, why: &str) -> BadValue {
    BadValue::new(format!("`{text}` is no tier: {why}"), EXAMPLE)
}

impl fmt::Display for TierSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.media {
            TierMedia::Ssd => "ssd",
            TierMedia::Hdd => "hdd",
            TierMedia::Any => "any",
        })?;
        let kind = self.resiliency.map(|kind| match kind {
            ResiliencyKind::Simple => "simple",
            ResiliencyKind::Mirror => "mirror",
            ResiliencyKind::Parity | ResiliencyKind::MirrorParity => "parity",
        });
        let words = [
            self.size.map(|size| format!("size={}", typed(size))),
            kind.map(|kind| format!("resiliency={kind}")),
            self.copies.map(|copies| format!("copies={copies}")),
            self.failures.map(|failures| format!("failures={failures}")),
            self.columns.map(|columns| format!("columns={columns}")),
            self.interleave.map(|interleave| format!("interleave={}", typed(interleave))),
        ];
        words.into_iter().flatten().try_for_each(|word| write!(f, ",{word}"))
    }
}

impl FromStr for TierChoice {
    type Err = BadValue;

    fn from_str(text: &str) -> Result<TierChoice, BadValue> {
        match text {
            "0" | "none" => Ok(TierChoice::Off),
            text => match text.parse::<TierSpec>()? {
                TierSpec { size: None, .. } => Err(no_tier(text, "it says no size")),
                spec => Ok(TierChoice::Spec(spec)),
            },
        }
    }
}

impl fmt::Display for TierChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TierChoice::Off => f.write_str("0"),
            TierChoice::Spec(spec) => spec.fmt(f),
        }
    }
}

impl FromStr for Piece {
    type Err = BadValue;

    fn from_str(text: &str) -> Result<Piece, BadValue> {
        let read = |text: &str| if text == "0" { Some(0) } else { size::bytes(text).ok().map(|bytes| bytes.0) };
        let found = text.split_once(',').and_then(|(offset, length)| Some((read(offset)?, read(length)?)));
        match found {
            Some((offset, length)) if length > 0 => Ok(Piece { offset, length }),
            _ => Err(BadValue::new(format!("`{text}` is no range; OFFSET,LENGTH is one"), "0,1GiB")),
        }
    }
}

impl fmt::Display for Piece {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{},{}", typed(ByteCount(self.offset)), typed(ByteCount(self.length)))
    }
}

impl fmt::Display for TierInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(layout) = self.layout else {
            return write!(f, "none; {} that still lie there are moved", ByteCount(self.used));
        };
        let disks = if self.disks.is_empty() { "all disks".into() } else { self.disks.join(", ") };
        write!(f, "{} on {disks}, {layout}; {} lie there", ByteCount(self.size), ByteCount(self.used))?;
        let pinned: u64 = self.pins.iter().map(|pin| pin.length).sum();
        if pinned > 0 {
            write!(f, ", {} are pinned", ByteCount(pinned))?;
        }
        if self.drains { f.write_str("; it takes nothing now, and empties itself") } else { Ok(()) }
    }
}

as_text!(TierSpec);
as_text!(TierChoice);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tiers_read_back_as_they_are_written_and_nonsense_is_refused_with_one_that_would_do() {
        for text in
            [EXAMPLE, "hdd,resiliency=parity,columns=7", "any", "ssd,size=4TiB", "hdd,failures=2,interleave=64KiB"]
        {
            assert_eq!(text.parse::<TierSpec>().unwrap().to_string(), text);
        }
        for text in ["", "nvme", "ssd,50GiB", "ssd,size=x", "ssd,columns=99", "ssd,resiliency=raid", "ssd,unit=4KiB"] {
            let nearest = text.parse::<TierSpec>().expect_err(text).nearest.unwrap();
            assert!(text.is_empty() || !nearest.is_empty(), "{text}: {nearest}");
        }
        assert_eq!("0".parse::<TierChoice>(), Ok(TierChoice::Off));
        assert!("ssd".parse::<TierChoice>().is_err(), "it says no size");
        assert_eq!("0,1GiB".parse::<Piece>(), Ok(Piece { offset: 0, length: 1 << 30 }));
        for text in ["1GiB", "0,0", "x,1GiB"] {
            assert!(text.parse::<Piece>().is_err(), "{text}");
        }
    }
}
