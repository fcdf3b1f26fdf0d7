//! Disks that cannot be opened, and pools that wait for such: a disk is missed as if it were gone, said to be there,
//! and taken back by itself; a pool that did not open opens when its disks are as they were.

use crate::machine::Machine;
use rustix::fs::{IFlags, ioctl_getflags, ioctl_setflags};
use std::fs::{self, File, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::time::{Duration, Instant};
use weft_host::cli::exit::Exit;

/// Files of disks that cannot be opened for writing, for as long as this is there.
struct Sealed(Vec<String>);

impl Sealed {
    /// `None`, loudly, where a file cannot be kept from root.
    fn disks(machine: &Machine, disks: &[&str]) -> Option<Sealed> {
        let sealed = Sealed(disks.iter().map(|disk| machine.disk(disk)).collect());
        let done: io::Result<()> = sealed.0.iter().try_for_each(|path| seal(path, true));
        done.inspect_err(|error| eprintln!("SKIPPED: no file can be sealed here: {error}")).ok()?;
        Some(sealed)
    }
}

impl Drop for Sealed {
    fn drop(&mut self) {
        self.0.iter().for_each(|path| drop(seal(path, false)));
    }
}

fn seal(path: &str, sealed: bool) -> io::Result<()> {
    if !rustix::process::geteuid().is_root() {
        return fs::set_permissions(path, Permissions::from_mode(if sealed { 0o444 } else { 0o644 }));
    }
    let file = File::open(path)?;
    let mut flags = ioctl_getflags(&file)?;
    flags.set(IFlags::IMMUTABLE, sealed);
    Ok(ioctl_setflags(&file, flags)?)
}

/// A pool `p` with this many disks and a virtual disk.
fn pool_of(disks: usize) -> Machine {
    let machine = Machine::new();
    let paths: Vec<String> = (0..disks).map(|n| format!("$D/d{n}")).collect();
    machine.typed(&format!("pool create p {} --create-size 64MiB --slab-size 1MiB", paths.join(" ")));
    machine.typed("vdisk create p/v --resiliency parity --columns 4 --size 32MiB --interleave 16KiB");
    machine.write("p/v", 98_304);
    machine
}

fn is_open(machine: &Machine) -> bool {
    !machine.json(&["pool", "list"]).as_array().unwrap().is_empty()
}

/// What `weft status` says of `subject`: the message, and the command that it offers.
fn told_of(machine: &Machine, subject: &str) -> (String, String) {
    let status = machine.json(&["status"]);
    let told = status["attention"].as_array().unwrap().iter().find(|one| one["subject"] == subject);
    let told = told.unwrap_or_else(|| panic!("nothing of {subject}: {status}"));
    (told["message"].as_str().unwrap().into(), told["hint"].as_str().unwrap().into())
}

fn until_whole(machine: &Machine) {
    machine.until(&["status"], |status| status["health"] == "healthy" && status["jobs"].as_array().unwrap().is_empty());
    assert_eq!(machine.json(&["pool", "check", "p"])["sound"], true);
}

#[test]
fn a_disk_that_cannot_be_opened_does_not_keep_its_pool_closed() {
    let mut machine = pool_of(5);
    machine.stop();
    let Some(sealed) = Sealed::disks(&machine, &["d1"]) else { return };
    machine.start();
    assert!(is_open(&machine), "{}", machine.done(&["status"]));
    assert_eq!(machine.json(&["disk", "show", "p/d1"])["state"], "missing");
    let (message, hint) = told_of(&machine, "disk p/d1");
    assert!(message.starts_with(&format!("missing: {} cannot be opened: ", machine.disk("d1"))), "{message}");
    assert_eq!(hint, "weft disk show p/d1");
    assert!(machine.done(&["disk", "show", "p/d1"]).contains("not opened"));
    let events = machine.done(&["events", "p"]);
    assert!(events.contains("opened without a disk that cannot be had: cannot open"), "{events}");
    machine.write("p/v", 49_152);
    drop(sealed);
    until_whole(&machine);
}

#[test]
fn a_pool_opens_by_itself_when_its_disks_can_be_opened_again() {
    let mut machine = pool_of(5);
    machine.stop();
    let Some(sealed) = Sealed::disks(&machine, &["d0", "d2", "d4"]) else { return };
    machine.start();
    assert!(!is_open(&machine));
    let (message, _) = told_of(&machine, "pool p");
    for disk in ["d0", "d2", "d4"] {
        assert!(message.contains(&format!("cannot open {}: ", machine.disk(disk))), "{message}");
    }
    assert!(message.ends_with("it opens by itself when enough of its disks can be opened"), "{message}");
    drop(sealed);
    machine.until(&["pool", "list"], |pools| pools.as_array().unwrap().len() == 1);
    until_whole(&machine);
    assert_eq!(machine.done(&["events", "p"]).matches("not opened").count(), 1);
}

#[test]
fn a_pool_opens_by_itself_when_its_disks_are_put_right_in_their_place() {
    let mut machine = pool_of(4);
    machine.stop();
    let disks = ["d0", "d1", "d2"];
    let read = |disk: &&str| fs::read(machine.disk(disk)).unwrap();
    let old: Vec<Vec<u8>> = disks.iter().map(read).collect();
    machine.start();
    machine.write("p/v", 81_920);
    machine.restart();
    machine.stop();
    let read = |disk: &&str| fs::read(machine.disk(disk)).unwrap();
    let right: Vec<Vec<u8>> = disks.iter().map(read).collect();
    let put = |machine: &Machine, bytes: &[Vec<u8>]| {
        for (disk, bytes) in disks.iter().zip(bytes) {
            File::options().write(true).open(machine.disk(disk)).unwrap().write_all(bytes).unwrap();
        }
    };
    put(&machine, &old);
    machine.start();
    assert!(!is_open(&machine));
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(6) {
        assert!(!is_open(&machine));
        std::thread::sleep(Duration::from_millis(200));
    }
    assert_eq!(machine.done(&["events", "p"]).matches("not opened").count(), 1);
    put(&machine, &right);
    machine.until(&["pool", "list"], |pools| pools.as_array().unwrap().len() == 1);
    until_whole(&machine);
}

#[test]
fn a_disk_in_maintenance_is_given_back_to_a_pool_that_is_frozen() {
    let machine = pool_of(5);
    machine.done(&["disk", "set", "p", "d2", "maintenance=on"]);
    machine.write("p/v", 61_440);
    ["d0", "d1", "d3"].iter().for_each(|disk| machine.hide(disk));
    machine.until(&["pool", "show", "p"], |pool| !pool["frozen"].is_null());
    let (_, hint) = told_of(&machine, "disk p/d2");
    assert_eq!(hint, "weft disk set p d2 maintenance=off");
    machine.typed("disk set p d2 maintenance=off --dry-run");
    // Whoever waited for the disks that are away would be refused in the end.
    machine.typed("disk set p d2 maintenance=off");
    assert_ne!(machine.json(&["disk", "show", "p/d2"])["state"], "maintenance");
    // What else would change it is refused as ever.
    machine.refused(&["disk", "set", "p", "d2", "usage=retired"], Exit::Lost);
    ["d0", "d1", "d3"].iter().for_each(|disk| machine.show(disk));
    until_whole(&machine);
}

#[test]
fn what_lies_in_the_place_of_a_disk_and_is_none_is_not_waited_for() {
    let machine = pool_of(5);
    machine.hide("d3");
    let place = machine.disk("d3");
    let pipe = |place: &String| {
        let mode = rustix::fs::Mode::from_raw_mode(0o600);
        rustix::fs::mknodat(rustix::fs::CWD, place.as_str(), rustix::fs::FileType::Fifo, mode, 0).unwrap();
    };
    for (kind, hindered) in [("loop", true), ("pipe", false), ("dangling", false), ("text", false)] {
        match kind {
            // A name that leads into a loop may lead to it again.
            "loop" => symlink(&place, &place).unwrap(),
            "pipe" => pipe(&place),
            "dangling" => symlink("nowhere", &place).unwrap(),
            _ => fs::write(&place, "some text").unwrap(),
        }
        let disk = machine.until(&["disk", "show", "p/d3"], |disk| disk["state"] == "missing");
        assert_eq!(!disk["hindrance"].is_null(), hindered, "{disk}");
        machine.done(&["status"]);
        fs::remove_file(&place).unwrap();
        machine.show("d3");
        until_whole(&machine);
        machine.hide("d3");
    }
}

#[test]
fn a_name_that_leads_into_a_loop_is_no_disk_that_is_there() {
    let machine = pool_of(5);
    let (place, loops) = (machine.disk("d3"), machine.disk("loop"));
    machine.hide("d3");
    symlink(machine.path("away").join("d3"), &place).unwrap();
    until_whole(&machine);
    // The loop is there at once: no look finds no name at all.
    symlink(&place, &loops).unwrap();
    fs::rename(&loops, &place).unwrap();
    machine.until(&["disk", "show", "p/d3"], |disk| disk["state"] == "missing");
    fs::remove_file(&place).unwrap();
    machine.show("d3");
    until_whole(&machine);
}
