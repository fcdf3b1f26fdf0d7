//! Spans of time as people write them: `5m`, `4w`, `1h 30m`, or `never`.

use super::error::BadValue;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// After how long something happens by itself, in whole seconds; `None`: never.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Span(pub Option<u64>);

/// The longest span that is not `never`: ten years.
pub const SPAN_MAX: u64 = 10 * 365 * 86_400;

impl FromStr for Span {
    type Err = BadValue;

    fn from_str(text: &str) -> Result<Span, BadValue> {
        if text == "never" {
            return Ok(Span(None));
        }
        match humantime::parse_duration(text) {
            Ok(span) if span.as_secs() <= SPAN_MAX && span.subsec_nanos() == 0 => Ok(Span(Some(span.as_secs()))),
            _ => Err(BadValue::new(
                format!("`{text}` is no span of whole seconds up to ten years; 30s, 5m, 2h, 4w and never are"),
                "5m",
            )),
        }
    }
}

impl fmt::Display for Span {
    /// In the largest unit that divides it, so that it reads as it was typed.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const UNITS: [(u64, &str); 4] = [(7 * 86_400, "w"), (86_400, "d"), (3_600, "h"), (60, "m")];
        match self.0 {
            None => f.write_str("never"),
            Some(seconds) => match UNITS.iter().find(|(unit, _)| seconds > 0 && seconds.is_multiple_of(*unit)) {
                Some((unit, name)) => write!(f, "{}{name}", seconds / unit),
                None => write!(f, "{seconds}s"),
            },
        }
    }
}

as_text!(Span);

/// A time that is left, for people: at most two units.
pub fn left(seconds: u64) -> String {
    let whole = match seconds {
        0..600 => seconds,
        600..86_400 => seconds.div_ceil(60) * 60,
        _ => seconds.div_ceil(3_600) * 3_600,
    };
    humantime::format_duration(Duration::from_secs(whole)).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_read_back_as_they_are_written() {
        for text in ["never", "0s", "59s", "5m", "90m", "2h", "3d", "4w"] {
            assert_eq!(text.parse::<Span>().unwrap().to_string(), text);
        }
        assert_eq!("4weeks".parse::<Span>().unwrap(), Span(Some(4 * 7 * 86_400)));
        assert_eq!("1h 30m".parse::<Span>().unwrap().to_string(), "90m");
    }

    #[test]
    fn nonsense_is_refused_with_a_span_that_would_do() {
        for text in ["", "5", "soon", "-5m", "500ms", "11years", "99999999999999999999w", "Never"] {
            let nearest = text.parse::<Span>().expect_err(text).nearest.unwrap();
            assert!(nearest.parse::<Span>().is_ok(), "{text}: {nearest}");
        }
    }

    #[test]
    fn what_is_left_is_told_in_two_units() {
        assert_eq!(left(45), "45s");
        assert_eq!(left(3_601), "1h 1m");
        assert_eq!(left(90_001), "1day 2h");
    }
}
