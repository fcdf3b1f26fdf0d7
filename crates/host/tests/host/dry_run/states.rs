//! The states in which everything is asked, each the way to it.

use crate::machine::Machine;
use std::fs::{self, File};
use weft_engine::format::page::PAGE_MAGIC;

const FOUR: &str = "pool create p $D/d1 $D/d2 $D/d3 $D/d4 --create-size 64MiB --slab-size 1MiB";
const PARITY: &str = "vdisk create p/v --size 16MiB --resiliency parity --columns 3 --interleave 16KiB";
const FIXED: &str = "vdisk create p/f --size 12MiB --resiliency mirror --copies 2 --columns 1 --fixed";

/// Name, and the steps: commands, and what begins with `!` (see [`take`]).
pub const STATES: &[(&str, &[&str])] = &[
    ("nothing there", &[]),
    ("one disk", &["pool create p $D/d1 --create-size 64MiB --slab-size 1MiB"]),
    ("an empty pool", &[FOUR]),
    ("virtual disks", &[FOUR, PARITY, FIXED, "!write p/v 4194304"]),
    (
        "a virtual disk of fine stripes",
        &[FOUR, "vdisk create p/s --size 4608 --resiliency simple --columns 1 --interleave 4KiB"],
    ),
    (
        "a virtual disk with a fast tier",
        &[FOUR, PARITY, FIXED, "vdisk set p/v tier=any,size=2MiB", "!write p/v 4194304", "tier pin p/v --range 0,1MiB"],
    ),
    ("an offered virtual disk", &[FOUR, PARITY, FIXED, "export add p/v --nbd unix:$O/s"]),
    ("for reading only", &[FOUR, PARITY, FIXED, "pool export p", "pool import p --read-only"]),
    (
        "for reading only, with a job that was paused",
        &[FOUR, PARITY, FIXED, "!write p/v 8388608", "!pause", "pool export p", "pool import p --read-only"],
    ),
    ("a paused job", &[FOUR, PARITY, FIXED, "!write p/v 8388608", "!pause"]),
    ("a disk missing", &[FOUR, PARITY, FIXED, "!write p/v 4194304", "!stop", "!hide d4", "!start"]),
    ("a disk in maintenance", &[FOUR, PARITY, FIXED, "disk set p d4 maintenance=on"]),
    (
        "three disks that all is on",
        &["pool create p $D/d1 $D/d2 $D/d3 --create-size 64MiB --slab-size 1MiB", PARITY, "!write p/v 8388608"],
    ),
    (
        "disks of all uses",
        &[
            FOUR,
            "disk add p $D/d5 --create-size 64MiB --usage spare",
            "disk set p d1 usage=manual",
            FIXED,
            "vdisk create p/n --size 4MiB --resiliency simple --columns 1 --disks d1 --fixed",
            "disk set p d4 usage=retired",
        ],
    ),
    ("full", &[FOUR, "vdisk create p/f --size 92% --resiliency mirror --columns 2 --fixed"]),
    ("nearly full", &[FOUR, FIXED, "vdisk create p/v --size 90% --resiliency simple --columns 1 --fixed"]),
    (
        "unequal disks",
        &[
            "pool create p $D/d1 $D/d2 $D/d3 --create-size 64MiB --slab-size 4MiB",
            "disk add p $D/d4 --create-size 512MiB",
            FIXED,
            PARITY,
        ],
    ),
    ("a closed pool", &[FOUR, PARITY, FIXED, "pool export p"]),
    ("a closed pool of which a disk is away", &[FOUR, PARITY, "pool export p", "!hide d4"]),
    (
        "a closed pool of which too many disks are away",
        &[FOUR, PARITY, "pool export p", "!hide d2", "!hide d3", "!hide d4"],
    ),
    ("a pool that is waited for", &[FOUR, PARITY, "!stop", "!hide d2", "!hide d3", "!hide d4", "!start"]),
    ("a disk that is there twice", &[FOUR, PARITY, "pool export p", "!copy d1 d9"]),
    (
        "a closed pool whose name is taken",
        &[FOUR, "pool export p", "pool create p $O/x --create-size 64MiB --slab-size 1MiB"],
    ),
    ("a closed pool that is damaged", &[FOUR, PARITY, "pool export p", "!damage"]),
    ("bad blocks", &[FOUR, PARITY, FIXED, "!write p/v 4194304", "!stop", "!rot d2", "!start"]),
    (
        "bad blocks beyond the redundancy",
        &[FOUR, PARITY, FIXED, "!write p/v 4194304", "!stop", "!rot d2", "!hide d3", "!start"],
    ),
    ("things in the way", &[FOUR, PARITY, "!foreign d5", "!empty d6 65536", "!empty d7 67108864"]),
];

/// Blocks of data and of metadata are not any more what was written, and nothing says so.
fn rot(disk: &str) {
    let mut bytes = fs::read(disk).unwrap();
    // What `!write` writes, and its parity, changes from byte to byte and begins anew every 256.
    let is_data = |block: &[u8]| block[..256] == block[256..512] && block[..256].iter().any(|byte| *byte != block[0]);
    let wrong = |(no, block): &(usize, &mut [u8])| no % 5 == 0 && is_data(block) || block.starts_with(&PAGE_MAGIC);
    let rotten = bytes.chunks_mut(4096).enumerate().filter(wrong).map(|(_, block)| block.fill(0x5a)).count();
    assert!(rotten > 20, "{rotten} blocks");
    fs::write(disk, bytes).unwrap();
}

/// A machine that is in the state which `steps` lead to.
pub fn after(steps: &[&str]) -> Machine {
    let mut machine = Machine::new();
    steps.iter().for_each(|step| take(&mut machine, step));
    machine
}

/// Takes one step: a command that must work, or something that happens to the disks.
fn take(machine: &mut Machine, step: &str) {
    match step.split(' ').collect::<Vec<_>>()[..] {
        ["!stop"] => machine.stop(),
        ["!start"] => machine.start(),
        ["!hide", disk] => machine.hide(disk),
        ["!copy", from, to] => drop(fs::copy(machine.disk(from), machine.disk(to)).unwrap()),
        ["!empty", disk, len] => File::create(machine.disk(disk)).unwrap().set_len(len.parse().unwrap()).unwrap(),
        ["!foreign", disk] => {
            fs::write(machine.disk(disk), b"XFSB").unwrap();
            File::options().write(true).open(machine.disk(disk)).unwrap().set_len(64 << 20).unwrap();
        }
        // The configuration, on every disk.
        ["!damage"] => {
            for disk in ["d1", "d2", "d3", "d4"] {
                let file = File::options().write(true).open(machine.disk(disk)).unwrap();
                std::os::unix::fs::FileExt::write_all_at(&file, &[0x5a; 2 << 20], 64 << 10).unwrap();
            }
        }
        ["!rot", disk] => rot(&machine.disk(disk)),
        ["!pause"] => drop(machine.paused(&["scrub", "p"])),
        ["!write", vdisk, len] => machine.write(vdisk, len.parse().unwrap()),
        _ => drop(machine.typed(step)),
    }
}
