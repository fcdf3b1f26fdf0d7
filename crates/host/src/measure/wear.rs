//! How much of a disk's life is used, as the disk itself tells: `smartctl` of smartmontools asks it.

use crate::api::pool::Wear;
use serde_json::Value;
use std::env;
use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

/// How long an answer is waited for. A program that waits for a disk that hangs cannot even be killed: it is left
/// behind.
const WAIT_MAX: Duration = Duration::from_secs(5);
/// Bytes of a "data unit": a thousand blocks of 512 (NVM Express Base Specification, SMART / Health Information).
const NVME_UNIT: u64 = 512_000;
/// Hours of a year.
const YEAR: f64 = 8766.0;

/// What the disk at `path` tells. None: it is a file, it tells nothing in time, or who asks has no right to.
pub(crate) fn read(path: &Path) -> Option<Wear> {
    let device = whole_disk(path)?;
    // It is found also where only root looks.
    let path = env::var("PATH").unwrap_or_default();
    let mut asks = Command::new("smartctl");
    asks.env("PATH", format!("{path}:/usr/sbin:/sbin:/usr/bin:/bin"));
    asks.args(["--json", "--all", "--nocheck=standby"]).arg(device).stdin(Stdio::null());
    let (tells, answer) = channel();
    thread::spawn(move || tells.send(asks.output()));
    // Its exit code also tells of what is wrong with the disk: what it printed counts.
    let said = answer.recv_timeout(WAIT_MAX).ok()?.ok()?;
    told(&serde_json::from_slice(&said.stdout).ok()?)
}

/// What `smartctl --json` said.
fn told(said: &Value) -> Option<Wear> {
    let number = |at: &str| said.pointer(at).and_then(Value::as_u64);
    // The first is what smartctl 7.5 says of disks of all kinds.
    let used = ["/endurance_used/current_percent", "/nvme_smart_health_information_log/percentage_used"]
        .into_iter()
        .chain(["/scsi_percentage_used_endurance_indicator"])
        .find_map(number);
    let units = number("/nvme_smart_health_information_log/data_units_written");
    let hours = number("/power_on_time/hours");
    let wear = Wear {
        used_percent: used,
        power_on_hours: hours,
        written_bytes: units.map(|units| units.saturating_mul(NVME_UNIT)),
        celsius: said.pointer("/temperature/current").and_then(Value::as_i64),
        years_left: hours.zip(used).and_then(|(hours, used)| years_left(hours, used)),
    };
    let Wear { used_percent, power_on_hours, written_bytes, celsius, .. } = &wear;
    let tells = used_percent.is_some() || power_on_hours.is_some() || written_bytes.is_some() || celsius.is_some();
    tells.then_some(wear)
}

/// How long the rest lasts if it goes as what is used went. None: nothing is used yet, as far as whole percents tell.
fn years_left(hours: u64, used: u64) -> Option<f64> {
    let left = 100u64.saturating_sub(used) as f64 / used as f64;
    (used > 0).then(|| (hours as f64 / YEAR * left * 10.0).round() / 10.0)
}

/// The device of the whole disk that a device is, or is a part of.
fn whole_disk(path: &Path) -> Option<PathBuf> {
    let found = fs::metadata(path).ok().filter(|found| found.file_type().is_block_device())?;
    let (major, minor) = (rustix::fs::major(found.rdev()), rustix::fs::minor(found.rdev()));
    let entry = fs::canonicalize(format!("/sys/dev/block/{major}:{minor}")).ok()?;
    if !entry.join("partition").exists() {
        return Some(path.into());
    }
    Some(Path::new("/dev").join(entry.parent()?.file_name()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_each_kind_of_disk_tells_is_read() {
        let nvme = json!({
            "power_on_time": { "hours": 8766 },
            "temperature": { "current": 41 },
            "nvme_smart_health_information_log": { "percentage_used": 20, "data_units_written": 2_000_000 },
        });
        let expected = Wear {
            used_percent: Some(20),
            power_on_hours: Some(8766),
            written_bytes: Some(1_024_000_000_000),
            celsius: Some(41),
            years_left: Some(4.0),
        };
        assert_eq!(told(&nvme), Some(expected));
        let used = |said: Value| told(&said).map(|wear| (wear.used_percent, wear.years_left));
        let hours = json!({ "hours": 1000 });
        let sata = json!({ "endurance_used": { "current_percent": 3 }, "power_on_time": hours });
        assert_eq!(used(sata), Some((Some(3), Some(3.7))));
        assert_eq!(used(json!({ "scsi_percentage_used_endurance_indicator": 0 })), Some((Some(0), None)));
        assert_eq!(used(json!({ "power_on_time": hours })), Some((None, None)), "a hard disk does not wear so");
        assert_eq!(years_left(1000, 100), Some(0.0));
        assert_eq!(years_left(1000, 255), Some(0.0), "some count on");
    }

    #[test]
    fn what_tells_nothing_or_nonsense_is_no_wear() {
        for said in [json!({}), json!([]), json!("x"), json!({ "power_on_time": { "hours": -1 } })] {
            assert_eq!(told(&said), None, "{said}");
        }
        let huge = json!({ "nvme_smart_health_information_log": { "data_units_written": u64::MAX } });
        assert_eq!(told(&huge).and_then(|wear| wear.written_bytes), Some(u64::MAX));
    }

    #[test]
    fn a_file_is_not_asked() {
        let file = tempfile::NamedTempFile::new().unwrap();
        assert_eq!((whole_disk(file.path()), read(file.path())), (None, None));
    }
}
