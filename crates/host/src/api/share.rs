//! The share of a virtual disk that may lie in packed stripes, as people write it: `10%`, `0`, or `auto`.

use super::error::BadValue;
use std::fmt;
use std::str::FromStr;
use weft_engine::limits::FINE_SHARE_MAX;

/// How much of a virtual disk may lie in packed stripes, in thousandths of its size; `None`: what holds for all virtual
/// disks of the daemon.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct FineShare(pub Option<u16>);

impl FromStr for FineShare {
    type Err = BadValue;

    fn from_str(text: &str) -> Result<FineShare, BadValue> {
        const MOST: u16 = FINE_SHARE_MAX / 10;
        if text == "auto" {
            return Ok(FineShare(None));
        }
        let percent = if text == "0" { Some(0) } else { text.strip_suffix('%').and_then(|text| text.parse().ok()) };
        match percent {
            Some(percent @ 0..=MOST) => Ok(FineShare(Some(percent * 10))),
            _ => Err(BadValue::new(
                format!("`{text}` is no share of a virtual disk for small writes; 1% to {MOST}% are, 0 and auto"),
                "10%",
            )),
        }
    }
}

impl fmt::Display for FineShare {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            None => f.write_str("auto"),
            Some(0) => f.write_str("0"),
            Some(share) => write!(f, "{}%", share / 10),
        }
    }
}

as_text!(FineShare);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_read_back_as_they_are_written_and_nonsense_is_refused_with_one_that_would_do() {
        for text in ["auto", "0", "1%", "10%", "50%"] {
            assert_eq!(text.parse::<FineShare>().unwrap().to_string(), text);
        }
        for text in ["", "%", "10", "51%", "-1%", "1.5%", "65536%", "Auto", "none"] {
            let nearest = text.parse::<FineShare>().expect_err(text).nearest.unwrap();
            assert!(nearest.parse::<FineShare>().is_ok(), "{text}: {nearest}");
        }
    }
}
