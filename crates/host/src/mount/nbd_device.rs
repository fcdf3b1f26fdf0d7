//! Devices of the kernel's NBD client, connected to a socket of the daemon.
//!
//! Which device it is stands in a file beside the socket, together with the process that connected it, by which the
//! kernel knows the connection too: so nobody else's device is ever disconnected.
//!
//! There is one connection, and a long time limit for requests. With several the kernel sends a request that takes long
//! again over another one (after 30 seconds where no limit is set): the first, which was only slow, could then
//! overwrite what was written after the second. With one there is nothing to send it over, and it fails. When the
//! daemon dies, what is asked from then on fails at once; what was under way fails when the device is disconnected, or
//! when its time is over.
//!
//! Invariants
//! 1. A device is taken by connecting it: the kernel refuses one that is in use, and then the next is tried.

use super::tools::NBD_CLIENT;
use crate::api::error::{Answer, ApiError, Kind};
use crate::api::name::VdiskName;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// The file beside the socket.
const RECORD: &str = "device";
/// How long a request may take, in seconds: longer than a disk that tries again and again before it gives up.
const TIMEOUT: u32 = 300;
/// How long the kernel may take to let go of a device.
const GONE_WITHIN: Duration = Duration::from_secs(10);

/// A connected device, and the process that the kernel says connected it.
#[derive(PartialEq, Eq, Debug)]
struct Connected {
    device: PathBuf,
    by: String,
}

/// Connects a free device to `vdisk` at `socket`, with sectors of `sector` bytes.
pub(super) fn connect(socket: &Path, vdisk: &VdiskName, sector: u32) -> Answer<PathBuf> {
    let mut refused = None;
    for device in free_devices() {
        let told = [
            ("-name", vdisk.to_string()),
            ("-block-size", sector.to_string()),
            ("-connections", "1".into()),
            ("-timeout", TIMEOUT.to_string()),
        ];
        let mut line = vec!["-unix".as_ref(), socket.as_os_str(), device.as_os_str()];
        line.extend(told.iter().flat_map(|(flag, value)| [flag.as_ref(), value.as_ref() as &std::ffi::OsStr]));
        match NBD_CLIENT.run(line) {
            Ok(_) => {
                return note(socket, &device).inspect_err(|_| {
                    let _ = NBD_CLIENT.run(["-d".as_ref(), device.as_os_str()]);
                });
            }
            // Somebody was faster: invariant 1.
            Err(error) if client(&device).is_some() => refused = Some(error),
            Err(error) => return Err(error),
        }
    }
    Err(refused.unwrap_or_else(|| {
        ApiError::new(Kind::NotPossible, "all NBD devices of this kernel are in use").hint("weft mount --device loop")
    }))
}

/// Disconnects the device that was connected to `socket`, if it still is; its users get errors from now on.
pub(super) fn disconnect(socket: &Path) {
    if let Some(device) = connected_to(socket) {
        let _ = NBD_CLIENT.run(["-d".as_ref(), device.as_os_str()]);
    }
    let _ = fs::remove_file(socket.with_file_name(RECORD));
}

/// The device that is connected to `socket` and was not disconnected since, whether its server lives or not.
pub(super) fn connected_to(socket: &Path) -> Option<PathBuf> {
    let noted = parse(&fs::read_to_string(socket.with_file_name(RECORD)).ok()?)?;
    (client(&noted.device)? == noted.by).then_some(noted.device)
}

/// Waits until a device is free.
pub(super) fn gone(device: &Path) -> Answer<()> {
    let begun = Instant::now();
    while client(device).is_some() {
        if begun.elapsed() > GONE_WITHIN {
            return Err(ApiError::new(Kind::NotPossible, format!("{} is still in use", device.display()))
                .hint(format!("nbd-client -d {}", device.display())));
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok(())
}

fn note(socket: &Path, device: &Path) -> Answer<PathBuf> {
    let failed = |why: String| ApiError::new(Kind::NotPossible, format!("cannot tell of {}: {why}", device.display()));
    let by = client(device).ok_or_else(|| failed("it was disconnected at once".into()))?;
    let text = format!("{} {by}\n", device.display());
    fs::write(socket.with_file_name(RECORD), text).map_err(|error| failed(error.to_string()))?;
    Ok(device.into())
}

fn parse(record: &str) -> Option<Connected> {
    let (device, by) = record.trim_end().split_once(' ')?;
    Some(Connected { device: device.into(), by: by.into() })
}

/// The process that connected a device; none when it is not connected.
fn client(device: &Path) -> Option<String> {
    let pid = fs::read_to_string(Path::new("/sys/block").join(device.file_name()?).join("pid")).ok()?;
    Some(pid.trim().into())
}

/// Devices that nobody uses now, in the order of their numbers.
fn free_devices() -> Vec<PathBuf> {
    let found = fs::read_dir("/sys/block").into_iter().flatten().flatten();
    let number = |name: &str| name.strip_prefix("nbd")?.parse::<u32>().ok();
    let mut numbers: Vec<u32> = found.filter_map(|entry| number(entry.file_name().to_str()?)).collect();
    numbers.sort_unstable();
    let devices = numbers.into_iter().map(|number| PathBuf::from(format!("/dev/nbd{number}")));
    devices.filter(|device| client(device).is_none()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_read_as_it_is_written_and_anything_else_is_none() {
        let connected = Connected { device: "/dev/nbd3".into(), by: "222".into() };
        assert_eq!(parse("/dev/nbd3 222\n"), Some(connected));
        assert_eq!((parse(""), parse("/dev/nbd3")), (None, None));
        let nowhere = tempfile::tempdir().unwrap();
        assert_eq!(connected_to(&nowhere.path().join("socket")), None);
    }
}
