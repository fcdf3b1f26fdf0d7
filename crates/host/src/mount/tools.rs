//! Programs of other packages.

use crate::api::error::{Answer, ApiError, Kind};
use std::ffi::OsStr;
use std::io;
use std::process::{Command, Output, Stdio};

/// A program, and the Debian package it comes in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Tool {
    /// Its name.
    pub name: &'static str,
    /// The package.
    pub package: &'static str,
}

/// Makes and removes loop devices.
pub const LOSETUP: Tool = Tool { name: "losetup", package: "util-linux" };
/// Connects and disconnects NBD devices.
pub const NBD_CLIENT: Tool = Tool { name: "nbd-client", package: "nbd-client" };
/// Loads parts of the kernel.
pub const MODPROBE: Tool = Tool { name: "modprobe", package: "kmod" };
/// Says what a device holds.
pub const BLKID: Tool = Tool { name: "blkid", package: "util-linux" };
/// Mounts.
pub const MOUNT: Tool = Tool { name: "mount", package: "mount" };
/// Unmounts.
pub const UMOUNT: Tool = Tool { name: "umount", package: "mount" };

/// Says where a file lies on its device.
pub const FILEFRAG: Tool = Tool { name: "filefrag", package: "e2fsprogs" };

impl Tool {
    /// Whether it is installed.
    ///
    /// Errors: which package brings it.
    pub fn installed(&self) -> Answer<()> {
        match self.command().arg("-V").stdout(Stdio::null()).stderr(Stdio::null()).status() {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Err(self.missing()),
            _ => Ok(()),
        }
    }

    /// Runs it to its end, whatever that is.
    pub fn output<A: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = A>) -> Answer<Output> {
        self.command().args(args).stdin(Stdio::null()).output().map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => self.missing(),
            _ => ApiError::new(Kind::NotPossible, format!("cannot run {}: {error}", self.name)),
        })
    }

    /// Runs it; what it printed.
    ///
    /// Errors: what it complained of.
    pub fn run<A: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = A>) -> Answer<String> {
        let args: Vec<A> = args.into_iter().collect();
        let line: Vec<String> = args.iter().map(|arg| arg.as_ref().to_string_lossy().into_owned()).collect();
        let ran = self.output(args)?;
        if ran.status.success() {
            return Ok(String::from_utf8_lossy(&ran.stdout).trim().into());
        }
        // Some tell their whole usage after what was wrong.
        let said = String::from_utf8_lossy(&ran.stderr);
        let said = said.lines().filter(|line| !line.trim().is_empty()).take(3).collect::<Vec<_>>().join("; ");
        let said = if said.is_empty() { ran.status.to_string() } else { said };
        let line = format!("{} {}", self.name, line.join(" "));
        Err(ApiError::new(Kind::NotPossible, format!("`{line}` failed: {said}")))
    }

    /// What the tool says in the language its words are looked for in, found also where only root looks.
    fn command(&self) -> Command {
        let path = std::env::var("PATH").unwrap_or_default();
        let mut command = Command::new(self.name);
        command.env("PATH", format!("{path}:/usr/sbin:/sbin:/usr/bin:/bin")).env("LC_ALL", "C");
        command
    }

    fn missing(&self) -> ApiError {
        ApiError::new(
            Kind::NotPossible,
            format!("{} is not installed; the package {} brings it", self.name, self.package),
        )
        .hint(format!("apt-get install {}", self.package))
    }
}
