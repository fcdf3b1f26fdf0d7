//! How long weft waits for disks: `[wait]` of the configuration.

use crate::api::error::{Answer, ApiError, Kind};
use crate::ops::line::Line;
use serde::Deserialize;
use std::time::Duration;
use weft_engine::store::Tuning;
use weft_engine::units::Nanos;

/// `[wait]` of the configuration: times such as `500ms`, `30s`, `5m`.
#[derive(Deserialize, Clone, PartialEq, Eq, Default, Debug)]
#[serde(deny_unknown_fields)]
pub struct WaitSettings {
    /// The read timeout.
    pub read: Option<String>,
    /// The write timeout.
    pub write: Option<String>,
    /// For a frozen pool.
    pub frozen: Option<String>,
}

/// How long weft waits for disks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Waits {
    /// The read timeout: what a disk has not answered by then comes from the others, where there is redundancy.
    read: Nanos,
    /// The write timeout: a disk that takes longer is taken out, where all on it is safe without it.
    write: Nanos,
    /// What clients of a frozen pool wait before they get errors.
    frozen: Nanos,
}

impl Default for Waits {
    fn default() -> Waits {
        let usual = Tuning::default();
        Waits { read: usual.read_timeout, write: usual.write_limit, frozen: usual.freeze_limit }
    }
}

impl WaitSettings {
    /// The times, the usual ones where none was said.
    pub fn resolve(&self) -> Answer<Waits> {
        let usual = Waits::default();
        let of = |name, asked: &Option<String>, usual, least, most| match asked {
            Some(asked) => parse(name, asked, least, most),
            None => Ok(usual),
        };
        Ok(Waits {
            read: of("read", &self.read, usual.read, Nanos::millis(100), Nanos::secs(60))?,
            write: of("write", &self.write, usual.write, Nanos::secs(1), Nanos::secs(3600))?,
            frozen: of("frozen", &self.frozen, usual.frozen, Nanos(0), Nanos::secs(24 * 3600))?,
        })
    }
}

impl Waits {
    /// Tells the engine.
    pub fn apply(self, tuning: Tuning) -> Tuning {
        Tuning { read_timeout: self.read, write_limit: self.write, freeze_limit: self.frozen, ..tuning }
    }
}

fn parse(name: &str, asked: &str, least: Nanos, most: Nanos) -> Answer<Nanos> {
    let span = humantime::parse_duration(asked).ok().and_then(|span| u64::try_from(span.as_nanos()).ok());
    span.map(Nanos).filter(|span| (least..=most).contains(span)).ok_or_else(|| {
        let [least, most] = [least, most].map(|span| humantime::format_duration(Duration::from_nanos(span.0)));
        let message = format!("`{asked}` is no time for wait.{name} of the configuration; {least} to {most} are");
        ApiError::new(Kind::InvalidInput, message).hint(Line::new("serve --help"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_reach_the_engine_and_those_out_of_range_are_refused_with_the_range() {
        let settings =
            WaitSettings { read: Some("250ms".into()), frozen: Some("2m".into()), ..WaitSettings::default() };
        let tuning = settings.resolve().unwrap().apply(Tuning::default());
        assert_eq!((tuning.read_timeout, tuning.freeze_limit), (Nanos::millis(250), Nanos::secs(120)));
        assert_eq!(tuning.write_limit, Tuning::default().write_limit);
        for wrong in ["10ms", "2h", "soon", ""] {
            let settings = WaitSettings { read: Some(wrong.into()), ..WaitSettings::default() };
            let error = settings.resolve().unwrap_err();
            assert!(error.kind == Kind::InvalidInput && error.message.contains("100ms to 1m"), "{error}");
        }
    }
}
