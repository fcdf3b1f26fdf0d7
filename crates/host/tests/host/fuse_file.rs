//! A virtual disk as a file: the real binary, the kernel's FUSE, and what people do with files. Where this user cannot
//! mount, the stories are skipped, loudly.

use rustix::fs::{FallocateFlags, SeekFrom, fallocate, seek};
use serde_json::Value;
use std::fs::{self, File};
use std::io::{Read, Write};
use std::ops::{Deref, DerefMut};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::process::Command;

const MIB: u64 = 1 << 20;
const SIZE: u64 = 96 * MIB;

/// A machine that offers `p/v` as the file `mnt/v`.
struct Machine(crate::machine::Machine);

impl Machine {
    /// None where FUSE cannot be used.
    fn with_file() -> Option<Machine> {
        let root = rustix::process::geteuid().is_root();
        if !root && Command::new("fusermount3").arg("-V").output().is_err() {
            eprintln!("SKIPPED: NOT INSTALLED: fusermount3 (package fuse3)");
            return None;
        }
        if File::options().read(true).write(true).open("/dev/fuse").is_err() {
            eprintln!("SKIPPED: no /dev/fuse for this user");
            return None;
        }
        let machine = Machine(crate::machine::Machine::with_vdisk());
        fs::create_dir(machine.path("mnt")).unwrap();
        machine.done(&["export", "add", "p/v", "--fuse", &machine.mnt()]);
        Some(machine)
    }

    fn mnt(&self) -> String {
        self.path("mnt").display().to_string()
    }

    fn open(&self) -> File {
        File::options().read(true).write(true).open(self.path("mnt/v")).unwrap()
    }

    fn is_mounted(&self) -> bool {
        fs::read_to_string("/proc/self/mountinfo").unwrap().contains(&self.mnt())
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

impl Drop for Machine {
    fn drop(&mut self) {
        self.end();
        // A mount whose daemon is gone would keep the directory from being removed.
        if self.is_mounted() {
            let tool = if rustix::process::geteuid().is_root() { ["umount", "-l"] } else { ["fusermount3", "-uz"] };
            let _ = Command::new(tool[0]).arg(tool[1]).arg(self.path("mnt")).output();
        }
    }
}

/// Bytes that no two places share.
fn bytes(len: u64) -> Vec<u8> {
    (0..len / 8).flat_map(|n| n.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes()).collect()
}

#[test]
fn a_virtual_disk_is_a_file_that_is_read_and_written_at_any_byte_and_gives_holes_back() {
    let Some(machine) = Machine::with_file() else { return };
    let attributes = fs::metadata(machine.path("mnt/v")).unwrap();
    assert_eq!((attributes.len(), attributes.mode() & 0o777), (SIZE, 0o600));
    let names: Vec<_> = fs::read_dir(machine.path("mnt")).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names, ["v"]);

    // What `cp` does: O_TRUNC, which changes no size.
    let data = bytes(20 * MIB);
    let mut file = File::options().write(true).truncate(true).open(machine.path("mnt/v")).unwrap();
    file.write_all(&data).unwrap();
    drop(file);
    let file = machine.open();
    file.write_all_at(b"across", 4 * MIB - 3).unwrap();
    let mut read = vec![0; data.len()];
    file.read_exact_at(&mut read, 0).unwrap();
    let at = 4 * MIB as usize - 3;
    assert_eq!(&read[at..at + 6], b"across");
    assert!(read[..at] == data[..at] && read[at + 6..] == data[at + 6..]);
    assert_eq!(file.metadata().unwrap().len(), SIZE);
    assert!(file.set_len(5).is_err());
    assert_eq!(file.read_at(&mut read, SIZE).unwrap(), 0);
    assert!(file.write_at(&[1], SIZE).is_err());

    let used = || machine.json(&["vdisk", "show", "p/v"])["used"].as_u64().unwrap();
    file.sync_all().unwrap();
    let before = used();
    assert!(before >= 19 * MIB, "{before}");
    let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    fallocate(&file, punch, 1000, 16 * MIB).unwrap();
    fallocate(&file, FallocateFlags::ZERO_RANGE, 18 * MIB + 1, 3).unwrap();
    file.sync_all().unwrap();
    assert!(used() + 15 * MIB < before, "{} of {before}", used());
    file.read_exact_at(&mut read, 0).unwrap();
    assert_eq!(read[..1000], data[..1000]);
    assert!(read[1000..1000 + 16 * MIB as usize].iter().all(|byte| *byte == 0));
    assert_eq!(read[18 * MIB as usize..][..5], [data[18 * MIB as usize], 0, 0, 0, data[18 * MIB as usize + 4]]);
    let hole = seek(&file, SeekFrom::Hole(0)).unwrap();
    assert!((1000..MIB).contains(&hole), "{hole}");
    let data_again = seek(&file, SeekFrom::Data(hole)).unwrap();
    assert!((15 * MIB..17 * MIB).contains(&data_again), "{data_again}");
}

#[test]
fn what_fsync_promised_is_there_after_a_kill_and_the_dead_mount_is_cleared() {
    let Some(mut machine) = Machine::with_file() else { return };
    let data = bytes(3 * MIB);
    let file = machine.open();
    file.write_all_at(&data, 777).unwrap();
    file.sync_data().unwrap();
    // O_DSYNC promises the same for each write.
    let each = File::options().write(true).custom_flags(0o10000).open(machine.path("mnt/v")).unwrap();
    each.write_all_at(b"one by one", 9 * MIB).unwrap();
    machine.crash();
    assert!(file.write_at(&[1], 0).is_err(), "an error, not a wait");
    assert!(fs::metadata(machine.path("mnt")).is_err());
    machine.start();
    assert_eq!(machine.json(&["export", "list"])[0]["active"], Value::Bool(true));
    let mut file = machine.open();
    let mut read = vec![0; data.len()];
    file.read_exact_at(&mut read, 777).unwrap();
    assert!(read == data);
    file.read_exact_at(&mut read[..10], 9 * MIB).unwrap();
    assert_eq!(&read[..10], b"one by one");
    assert_eq!(file.read_to_end(&mut Vec::new()).unwrap() as u64, SIZE);
    drop(file);
    machine.stop();
    assert!(!machine.is_mounted());
}

#[test]
fn a_file_in_use_does_not_keep_a_daemon_from_stopping_nor_an_export_from_going() {
    let Some(mut machine) = Machine::with_file() else { return };
    let file = machine.open();
    machine.done(&["export", "remove", "p/v", "--fuse"]);
    assert!(!machine.is_mounted());
    assert!(file.read_at(&mut [0; 512], 0).is_err());
    machine.done(&["export", "add", "p/v", "--fuse", &machine.mnt()]);
    let file = machine.open();
    machine.stop();
    assert!(!machine.is_mounted());
    assert!(file.read_at(&mut [0; 512], 0).is_err());
}

#[test]
fn a_directory_that_cannot_be_mounted_on_is_refused_and_an_unmounted_one_is_said_to_be() {
    let Some(machine) = Machine::with_file() else { return };
    let (mnt, full) = (machine.mnt(), machine.path("disks").display().to_string());
    let missing = machine.path("nowhere").display().to_string();
    machine.done(&["vdisk", "create", "p/w", "--size", "16MiB"]);
    for dry in [&["--dry-run"][..], &[]] {
        let add = |dir: &str| machine.weft(&[&["export", "add", "p/w", "--fuse", dir], dry].concat()).err;
        assert!(add(&mnt).contains("holds p/v already"));
        assert!(add(&full).contains("is not empty"));
        assert!(add(&missing).contains(&format!("try: mkdir -p {missing}")));
    }
    let both = machine.weft(&["export", "add", "p/w", "--fuse", &missing, "--nbd", "tcp:h:1"]);
    assert!(both.err.contains("exclude"));
    let add = ["export", "add", "p/v", "--fuse", &mnt];
    assert_eq!(machine.json(&add)["outcome"], "already-so");
    let tool = if rustix::process::geteuid().is_root() { ["umount", "-v"] } else { ["fusermount3", "-u"] };
    assert!(Command::new(tool[0]).arg(tool[1]).arg(&mnt).output().unwrap().status.success());
    // The daemon learns of it in a moment.
    while machine.json(&["export", "list"])[0]["active"] == Value::Bool(true) {
        std::thread::yield_now();
    }
    assert_eq!(machine.json(&add)["outcome"], "created");
    assert!(machine.is_mounted());
}
