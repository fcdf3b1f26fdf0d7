//! Times of day as people write them: `02:00`, or `never`.

use super::error::BadValue;
use std::fmt;
use std::str::FromStr;
use weft_engine::format::record::MINUTES_OF_DAY;

/// When something is begun each day, in minutes after midnight, local time; `None`: never.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Daily(pub Option<u16>);

impl FromStr for Daily {
    type Err = BadValue;

    fn from_str(text: &str) -> Result<Daily, BadValue> {
        if text == "never" {
            return Ok(Daily(None));
        }
        let digits = |text: &str| text.len() == 2 && text.bytes().all(|byte| byte.is_ascii_digit());
        let parts = text.split_once(':').filter(|(hours, minutes)| digits(hours) && digits(minutes));
        let minutes = parts.and_then(|(hours, minutes)| {
            let (hours, minutes): (u16, u16) = (hours.parse().ok()?, minutes.parse().ok()?);
            (minutes < 60).then_some(hours * 60 + minutes)
        });
        match minutes.filter(|minutes| *minutes < MINUTES_OF_DAY) {
            Some(minutes) => Ok(Daily(Some(minutes))),
            None => Err(BadValue::new(format!("`{text}` is no time of day; 00:00 to 23:59 are, and never"), "02:00")),
        }
    }
}

impl fmt::Display for Daily {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            None => f.write_str("never"),
            Some(minutes) => write!(f, "{:02}:{:02}", minutes / 60, minutes % 60),
        }
    }
}

as_text!(Daily);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_of_day_read_back_as_they_are_written() {
        for text in ["never", "00:00", "02:00", "23:59"] {
            assert_eq!(text.parse::<Daily>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn nonsense_is_refused_with_one_that_would_do() {
        for text in ["", "2:00", "24:00", "12:60", "noon", "02:00:00", "-1:00", "+1:00", "02-00", "0²:00"] {
            let nearest = text.parse::<Daily>().expect_err(text).nearest.unwrap();
            assert!(nearest.parse::<Daily>().is_ok(), "{text}: {nearest}");
        }
    }
}
