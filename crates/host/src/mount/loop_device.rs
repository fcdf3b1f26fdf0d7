//! Loop devices.

use super::tools::LOSETUP;
use crate::api::error::{Answer, ApiError, Kind};
use crate::ops::line::on_path;
use serde::Deserialize;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How long a loop device may take to go with its file system; the kernel does the last of it in the background.
const GONE_WITHIN: Duration = Duration::from_secs(10);

/// A new loop device on `file`, past the page cache, with sectors of `sector` bytes.
pub(super) fn attach(file: &Path, sector: u32) -> Answer<PathBuf> {
    let sector = sector.to_string();
    let args = ["--find", "--show", "--direct-io=on", "--sector-size", &sector].map(std::ffi::OsStr::new);
    let device = LOSETUP.run(args.into_iter().chain([file.as_os_str()])).map_err(|error| match error.hint {
        None if !Path::new("/dev/loop-control").exists() => {
            ApiError::new(Kind::NotPossible, "this kernel has no loop devices: there is no /dev/loop-control")
                .hint("modprobe loop")
        }
        _ => error,
    })?;
    Ok(device.into())
}

/// Takes a loop device away, now or as soon as nobody uses it.
pub(super) fn detach(device: &Path) -> Answer<()> {
    LOSETUP.run([Path::new("--detach"), device]).map(drop)
}

/// Waits until a loop device is free.
pub(super) fn gone(device: &Path) -> Answer<()> {
    let begun = Instant::now();
    while backing(device).is_some() {
        if begun.elapsed() > GONE_WITHIN {
            return Err(ApiError::new(Kind::NotPossible, format!("{} is still in use", device.display()))
                .hint(on_path("losetup --detach", device)));
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok(())
}

/// Whether `device` is on `file` as it is served now. One whose file was served by a daemon that is gone is not.
pub(super) fn is_backed_by(device: &Path, file: &Path) -> bool {
    let Ok(file_now) = fs::metadata(file) else { return false };
    let asked = ["--list", "--json", "--output", "NAME,BACK-FILE,BACK-MAJ:MIN"].map(Path::new);
    let listed = LOSETUP.run(asked.into_iter().chain([device])).unwrap_or_default();
    let listed = serde_json::from_str(&listed).unwrap_or(Listed { loopdevices: Vec::new() });
    let (major, minor) = (rustix::fs::major(file_now.dev()), rustix::fs::minor(file_now.dev()));
    let number = format!("{major}:{minor}");
    listed.loopdevices.first().is_some_and(|found| {
        // The kernel answers with no number when it cannot ask the file.
        found.back_file.as_deref() == Some(file) && found.number.as_ref().is_some_and(|found| found.trim() == number)
    })
}

/// The file behind a loop device, as the kernel calls it; none when it is free.
pub(super) fn backing(device: &Path) -> Option<String> {
    let name = device.file_name()?;
    fs::read_to_string(Path::new("/sys/block").join(name).join("loop/backing_file")).ok()
}

#[derive(Deserialize)]
struct Listed {
    loopdevices: Vec<ListedDevice>,
}

#[derive(Deserialize)]
struct ListedDevice {
    #[serde(rename = "back-file")]
    back_file: Option<PathBuf>,
    #[serde(rename = "back-maj:min")]
    number: Option<String>,
}
