//! Sizes as people write them: `64KiB`, `10GiB`, `4TB`, `1.5TiB`, `512`, `max`, `90%`.
//!
//! Decimal and binary units mean what is written: `4TB` is 4 000 000 000 000 bytes, `4TiB` is 4 398 046 511 104. A
//! letter alone (`10G`) is refused, because tools disagree about what it means.

use super::error::BadValue;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;
use std::str::FromStr;
use weft_engine::units::ByteCount;

/// A size that may depend on the room there is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Size {
    /// A number of bytes.
    Bytes(ByteCount),
    /// All the room there is.
    Max,
    /// This share of the room there is, 1 to 100.
    Percent(u8),
}

const UNITS: [(&str, u128); 15] = [
    ("", 1),
    ("B", 1),
    ("KiB", 1 << 10),
    ("MiB", 1 << 20),
    ("GiB", 1 << 30),
    ("TiB", 1 << 40),
    ("PiB", 1 << 50),
    ("EiB", 1 << 60),
    ("kB", 1_000),
    ("KB", 1_000),
    ("MB", 1_000_000),
    ("GB", 1_000_000_000),
    ("TB", 1_000_000_000_000),
    ("PB", 1_000_000_000_000_000),
    ("EB", 1_000_000_000_000_000_000),
];

/// Reads a plain size: a number and a unit. Refuses `max` and shares.
pub fn bytes(text: &str) -> Result<ByteCount, BadValue> {
    match text.parse()? {
        Size::Bytes(bytes) => Ok(bytes),
        Size::Max | Size::Percent(_) => Err(BadValue::new(
            format!("`{text}` is no fixed size; a number with a unit is, such as 64KiB or 4TB"),
            "1GiB",
        )),
    }
}

impl Size {
    /// The bytes this means when there is room for `room`.
    pub fn of(self, room: ByteCount) -> ByteCount {
        match self {
            Size::Bytes(bytes) => bytes,
            Size::Max => room,
            Size::Percent(share) => ByteCount((room.0 as u128 * u128::from(share) / 100) as u64),
        }
    }
}

impl FromStr for Size {
    type Err = BadValue;

    fn from_str(text: &str) -> Result<Size, BadValue> {
        if text == "max" {
            return Ok(Size::Max);
        }
        if let Some(share) = text.strip_suffix('%') {
            return match share.parse::<u8>() {
                Ok(share @ 1..=100) => Ok(Size::Percent(share)),
                _ => Err(BadValue::new(format!("`{text}` is no share of the room; 1% to 100% is"), "90%")),
            };
        }
        plain(text).map(Size::Bytes)
    }
}

fn plain(text: &str) -> Result<ByteCount, BadValue> {
    let number_len = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(number_len);
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let ill_formed = whole.is_empty() || fraction.contains('.') || (fraction.is_empty() && number.contains('.'));
    if ill_formed || whole.len() > 20 || fraction.len() > 15 {
        return Err(not_a_size(text, "10GiB"));
    }
    let Some((_, unit_bytes)) = UNITS.iter().find(|(name, _)| name.eq_ignore_ascii_case(unit)) else {
        return Err(unknown_unit(text, number, unit));
    };
    let whole: u128 = whole.parse().expect("at most 20 digits");
    let fraction_unit = 10u128.pow(fraction.len() as u32);
    let fraction: u128 = if fraction.is_empty() { 0 } else { fraction.parse().expect("at most 15 digits") };
    let scaled = (whole * fraction_unit + fraction) * unit_bytes;
    if !scaled.is_multiple_of(fraction_unit) {
        return Err(BadValue::new(format!("`{text}` is no whole number of bytes"), written(scaled / fraction_unit)));
    }
    match u64::try_from(scaled / fraction_unit) {
        Ok(bytes) => Ok(ByteCount(bytes)),
        Err(_) => Err(BadValue::new(format!("`{text}` is more than the largest size, 16EiB - 1"), "64PiB")),
    }
}

fn unknown_unit(text: &str, number: &str, unit: &str) -> BadValue {
    let mut letters = unit.chars();
    match (letters.next(), letters.next()) {
        (Some(letter), None) if "kmgtpe".contains(letter.to_ascii_lowercase()) => {
            let letter = letter.to_ascii_uppercase();
            BadValue::new(
                format!("`{text}` may mean two sizes; say {letter}iB (powers of 1024) or {letter}B (powers of 1000)"),
                format!("{number}{letter}iB"),
            )
        }
        _ => not_a_size(text, &format!("{number}GiB")),
    }
}

fn not_a_size(text: &str, nearest: &str) -> BadValue {
    BadValue::new(
        format!("`{text}` is no size; sizes are a number and B, KiB, MiB, GiB, TiB, PiB, kB, MB, GB, TB or PB"),
        nearest,
    )
}

/// `bytes` as it would be typed: the largest binary unit that divides it.
fn written(bytes: u128) -> String {
    let unit = UNITS[1..8].iter().rev().find(|(_, unit)| bytes > 0 && bytes.is_multiple_of(*unit));
    match unit {
        Some((name, unit)) if *unit > 1 => format!("{}{name}", bytes / unit),
        _ => bytes.to_string(),
    }
}

/// `bytes` as it would be typed and read back exactly: `64KiB`, `10GiB`, `513`.
pub fn typed(bytes: ByteCount) -> String {
    written(u128::from(bytes.0))
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Size::Bytes(bytes) => f.write_str(&typed(*bytes)),
            Size::Max => f.write_str("max"),
            Size::Percent(share) => write!(f, "{share}%"),
        }
    }
}

impl Serialize for Size {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Size {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Size, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Written {
            Bytes(u64),
            Text(String),
        }
        match Written::deserialize(deserializer)? {
            Written::Bytes(bytes) => Ok(Size::Bytes(ByteCount(bytes))),
            Written::Text(text) => text.parse().map_err(serde::de::Error::custom),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> u64 {
        bytes(text).unwrap().0
    }

    #[test]
    fn binary_and_decimal_units_mean_what_is_written() {
        assert_eq!(read("512"), 512);
        assert_eq!(read("64KiB"), 65_536);
        assert_eq!(read("10GiB"), 10 << 30);
        assert_eq!(read("4TB"), 4_000_000_000_000);
        assert_eq!(read("4tib"), 4 << 40);
        assert_eq!(read("1.5GiB"), 3 << 29);
        assert_eq!(read("0.5kB"), 500);
        assert_eq!(read("0"), 0);
    }

    #[test]
    fn shares_and_max_depend_on_the_room() {
        assert_eq!("max".parse::<Size>().unwrap().of(ByteCount(77)), ByteCount(77));
        assert_eq!("90%".parse::<Size>().unwrap().of(ByteCount(u64::MAX)).0, (u64::MAX as u128 * 9 / 10) as u64);
        assert!(bytes("max").is_err());
    }

    #[test]
    fn nonsense_is_refused_with_a_value_that_would_be_taken() {
        for text in
            ["", "GiB", "10XB", "-1", "1..5GiB", "1.GiB", "10 GiB", "0%", "101%", "17EiB", "1.3B", "10G", "1e9", "²KiB"]
        {
            let bad = text.parse::<Size>().expect_err(text);
            let nearest = bad.nearest.expect("a nearest value");
            assert!(nearest.parse::<Size>().is_ok(), "{text}: {nearest}");
        }
        assert_eq!("10G".parse::<Size>().unwrap_err().nearest.as_deref(), Some("10GiB"));
    }

    #[test]
    fn a_typed_size_reads_back_as_the_same_bytes() {
        for bytes in [0, 1, 513, 4096, 65_536, 3 << 29, 10 << 30, u64::MAX] {
            assert_eq!(read(&typed(ByteCount(bytes))), bytes);
        }
        assert_eq!(typed(ByteCount::kib(64)), "64KiB");
    }
}
