//! The real binary, its real engine and real NBD clients: stories of a user with small disks. Clients that are not
//! installed skip their story, loudly.

use crate::machine::worked;
use serde_json::Value;
use std::fs;
use std::ops::{Deref, DerefMut};
use std::path::Path;
use std::process::{Command, Stdio};

/// A machine that offers `p/v` on a unix socket.
struct Machine(crate::machine::Machine);

impl Machine {
    fn with_export() -> Machine {
        let machine = Machine(crate::machine::Machine::with_vdisk());
        machine.offer("p/v");
        machine
    }

    fn offer(&self, vdisk: &str) {
        self.done(&["export", "add", vdisk, "--nbd", &format!("unix:{}", self.path("nbd.sock").display())]);
    }

    fn uri(&self, vdisk: &str) -> String {
        format!("nbd+unix:///{vdisk}?socket={}", self.path("nbd.sock").display())
    }

    /// Writes `bytes` through NBD from the disk's start on, and flushes.
    fn copy_in(&self, bytes: &[u8]) {
        let file = self.path("in");
        fs::write(&file, bytes).unwrap();
        worked(self.copy(&file).output().unwrap(), "nbdcopy in");
    }

    fn copy(&self, file: &Path) -> Command {
        let mut copy = Command::new("nbdcopy");
        copy.arg("--flush").arg(file).arg(self.uri("p/v")).stderr(Stdio::piped());
        copy
    }

    /// Reads the first `len` bytes through NBD.
    fn copy_out(&self, len: usize) -> Vec<u8> {
        let file = self.path("out");
        let _ = fs::remove_file(&file);
        worked(Command::new("nbdcopy").arg(self.uri("p/v")).arg(&file).output().unwrap(), "nbdcopy out");
        let mut bytes = fs::read(&file).unwrap();
        bytes.truncate(len);
        bytes
    }

    /// Lets qemu-io carry out its commands; it compares the patterns it reads.
    fn qemu_io(&self, vdisk: &str, commands: &[&str]) {
        let mut qemu = Command::new("qemu-io");
        qemu.args(["-f", "raw"]);
        qemu.args(commands.iter().flat_map(|command| ["-c", command]));
        let said = worked(qemu.arg(self.uri(vdisk)).output().unwrap(), "qemu-io");
        assert!(!said.contains("failed"), "{said}");
    }
}

impl Deref for Machine {
    type Target = crate::machine::Machine;

    fn deref(&self) -> &crate::machine::Machine {
        &self.0
    }
}

impl DerefMut for Machine {
    fn deref_mut(&mut self) -> &mut crate::machine::Machine {
        &mut self.0
    }
}

/// Whether all of `tools` are installed; says so when not.
fn installed(tools: &[&str]) -> bool {
    let missing = tools.iter().find(|tool| Command::new(tool).arg("--version").output().is_err());
    missing.inspect(|tool| eprintln!("SKIPPED: NOT INSTALLED: {tool}")).is_none()
}

/// Bytes that no two places share.
fn bytes(len: usize, seed: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(2) + 1;
    let word = || {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (state >> 32) as u32
    };
    std::iter::repeat_with(word).flat_map(u32::to_le_bytes).take(len).collect()
}

#[test]
fn what_was_flushed_outlives_a_crash_a_lost_disk_and_a_clean_stop() {
    if !installed(&["nbdcopy"]) {
        return;
    }
    let mut machine = Machine::with_export();
    // Neither whole stripes nor whole blocks.
    let mut data = bytes(20_000_256, 1);
    machine.copy_in(&data);
    machine.crash();
    machine.start();
    assert!(machine.copy_out(data.len()) == data, "after a crash");

    fs::remove_file(machine.disk("d2")).unwrap();
    machine.until(&["disk", "show", "p/d2"], |disk| disk["state"] == "missing");
    assert_eq!(machine.json(&["status"])["health"], "degraded");
    assert!(machine.copy_out(data.len()) == data, "with a disk missing");
    data[..3_000_320].copy_from_slice(&bytes(3_000_320, 2));
    machine.copy_in(&data[..3_000_320]);
    machine.stop();
    assert!(!machine.path("nbd.sock").exists(), "a stopped server takes its socket away");
    machine.start();
    assert!(machine.copy_out(data.len()) == data, "after a clean stop");
    let events = machine.done(&["events", "p"]);
    assert!(events.contains("disk d2 lost"), "{events}");
}

#[test]
fn a_disk_that_vanishes_while_clients_write_costs_them_nothing() {
    if !installed(&["nbdcopy"]) {
        return;
    }
    let machine = Machine::with_export();
    let data = bytes(80_000_000, 3);
    fs::write(machine.path("in"), &data).unwrap();
    let copy = machine.copy(&machine.path("in")).spawn().unwrap();
    machine.until(&["vdisk", "show", "p/v"], |vdisk| vdisk["counters"]["written_bytes"].as_u64() > Some(1 << 20));
    fs::remove_file(machine.disk("d1")).unwrap();
    worked(copy.wait_with_output().unwrap(), "nbdcopy in");
    machine.until(&["disk", "show", "p/d1"], |disk| disk["state"] == "missing");
    assert!(machine.copy_out(data.len()) == data);
    assert_eq!(machine.json(&["vdisk", "show", "p/v"])["size"], 96 << 20);
}

#[test]
fn several_virtual_disks_share_an_address_and_zeroes_take_no_room() {
    if !installed(&["qemu-io", "nbdcopy"]) {
        return;
    }
    let machine = Machine::with_export();
    machine.done(&["vdisk", "create", "p/m", "--size", "8MiB", "--resiliency", "mirror", "--sector", "4096"]);
    machine.offer("p/m");
    machine.qemu_io("p/v", &["write -P 5 512 1536", "write -P 6 1M 4M", "flush"]);
    machine.qemu_io("p/m", &["write -P 7 0 8M", "flush", "read -P 7 0 8M"]);
    machine.qemu_io("p/v", &["read -P 0 0 512", "read -P 5 512 1536", "read -P 6 1M 4M"]);
    let used = machine.json(&["vdisk", "show", "p/v"])["used"].as_u64().unwrap();
    // Whole stripes of 48 KiB; what is at their edges waits in memory and in the log.
    assert!(used > (4 << 20) - 2 * (48 << 10));
    machine.qemu_io("p/v", &["write -z -u 0 8M", "flush", "read -P 0 0 8M"]);
    assert_eq!(machine.json(&["vdisk", "show", "p/v"])["used"], 0);

    machine.done(&["vdisk", "resize", "p/m", "16MiB"]);
    machine.qemu_io("p/m", &["read -P 7 0 8M", "read -P 0 8M 8M", "write -P 8 15M 1M"]);
    machine.done(&["export", "remove", "p/v"]);
    let gone = Command::new("qemu-io").args(["-f", "raw", "-c", "read 0 512", &machine.uri("p/v")]).output().unwrap();
    assert!(!gone.status.success());
    machine.qemu_io("p/m", &["read -P 8 15M 1M"]);

    let plan = machine.done(&["explain", "p/m", "write", "0", "4KiB"]);
    assert!(plan.contains("part of a stripe"), "{plan}");
    let report = machine.json(&["pool", "check", "p"]);
    assert_eq!((report["sound"].as_bool(), report["problems"].as_array().map(Vec::len)), (Some(true), Some(0)));
    machine.done(&["export", "remove", "p/m"]);
    machine.done(&["pool", "remove", "p", "--yes"]);
    let disks = machine.json(&["disk", "list"]);
    let states: Vec<&Value> = disks.as_array().unwrap().iter().map(|disk| &disk["state"]).collect();
    assert_eq!(states, ["available"; 4]);
}
