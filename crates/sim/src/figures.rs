//! `weft-sim streams`, `weft-sim flushes`, `weft-sim rebuild`, `weft-sim capacity`: figures in virtual time, for
//! people.

use crate::random_writes::{Load, SERVED_SHARE, on_mirror_in_place, on_raid5_in_place, on_weft};
use crate::streams::{self, Case};
use crate::{cached_reads, cached_writes, capacity, flushes, mixed, random_writes, rebuild, refill, stream_reads};
use std::process::ExitCode;
use weft_engine::geometry::{Layout, Resiliency};
use weft_engine::units::{ByteCount, Nanos};

/// Bytes that each disk gives to a pass of sequential reads: they are kept in memory, four times. What is read ahead of
/// the end of a pass, for nobody, counts against it: some hundredths of such a short one.
const READ_PER_DISK: ByteCount = ByteCount::mib(128);

/// What virtual disks of class log are written in.
const UNIT: ByteCount = ByteCount::kib(16);

/// How many flushes of each kind are measured.
const FLUSHES: u64 = 1000;

/// How the command is called.
pub const STREAMS_USAGE: &str = "weft-sim streams [--full | --reads [--full | TEXT] | --mixed | --random [TEXT]
                 | --cached]
  streams            sequential writes to every parity layout and interleave, request sizes by turns, beside one raw disk;
                     fails when one is slower than it must be
  streams --full     the same with every request size
  streams --reads    sequential reads of what was written at depth 1, 8 and 32, parity and mirrors, healthy and with one disk gone, beside
                     raw disks; fails when one is slower than it must be (--reads --full: with every interleave;
                     --reads TEXT: layouts with TEXT in their names)
  streams --mixed    a reader beside writers: what each gets of what it gets alone, and how long reads take
  streams --random   small writes with a flush after 1, 32 or 1024, beside a mirror and RAID 5 that write in place, and
                     sequential reads before them, right after them, and when the mover rests (--random TEXT: rows with
                     TEXT in their names)
  streams --cached   4 KiB and 64 KiB reads that seek the same again and again (Zipf 0.99), with and without a cache";

/// Runs `weft-sim streams` with these further arguments.
pub fn streams_command(arguments: &[String]) -> ExitCode {
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [] => return write_streams(false),
        ["--full"] => return write_streams(true),
        ["--reads"] => return read_streams(false, ""),
        ["--reads", "--full"] => return read_streams(true, ""),
        ["--reads", only] => return read_streams(false, only),
        ["--mixed"] => return mixed_streams(),
        ["--random"] => random(""),
        ["--cached"] => cached(),
        ["--random", only] => random(only),
        _ => {
            eprintln!("usage: {STREAMS_USAGE}");
            return ExitCode::from(2);
        }
    }
    ExitCode::SUCCESS
}

/// How the command is called that measures flushes.
pub const FLUSHES_USAGE: &str = "weft-sim flushes [--far | --ssd | --nvme | --power | --cached] [TEXT]
  flushes            how long flushes and writes with FUA take, alone, beside a stream, and beside small writes,
                     in milliseconds and in revolutions of a hard disk; parity of 5 columns, mirror of 2
  flushes --far      the same with data a quarter of the disk away from the log: every seek takes 7 ms
  flushes --ssd      the same on SATA solid-state disks, --nvme on NVMe ones
  flushes --power    4 KiB writes with FUA on disks that are flushed, beside disks that need no flush
  flushes --cached   writes of 4 and 64 KiB, each flushed, to hard disks alone and before a write-back cache
  flushes TEXT       only rows with TEXT in them";

/// Runs `weft-sim flushes` with these further arguments.
pub fn flushes_command(arguments: &[String]) -> ExitCode {
    let (medium, only) = match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [] => (flushes::Medium::Hdd, ""),
        ["--far"] => (flushes::Medium::HddFar, ""),
        ["--far", only] => (flushes::Medium::HddFar, only),
        ["--ssd"] => (flushes::Medium::SataSsd, ""),
        ["--ssd", only] => (flushes::Medium::SataSsd, only),
        ["--nvme"] => (flushes::Medium::NvmeSsd, ""),
        ["--nvme", only] => (flushes::Medium::NvmeSsd, only),
        ["--power"] => {
            println!("{}", flushes::POWER_HEADING);
            let rows = flushes::power_cases().into_iter().map(|pair| pair.map(flushes::run));
            rows.for_each(|row| println!("{}", flushes::power_row(&row)));
            return ExitCode::SUCCESS;
        }
        ["--cached"] => {
            println!("{}", cached_writes::HEADING);
            cached_writes::alone().iter().for_each(|outcome| println!("{outcome}"));
            cached_writes::rows().into_iter().for_each(|row| println!("{}", cached_writes::run(row)));
            return ExitCode::SUCCESS;
        }
        [only] if !only.starts_with('-') => (flushes::Medium::Hdd, only),
        _ => {
            eprintln!("usage: {FLUSHES_USAGE}");
            return ExitCode::from(2);
        }
    };
    println!("{}", flushes::HEADING);
    let cases = flushes::cases(medium, FLUSHES).into_iter();
    cases.filter(|case| case.to_string().contains(only)).for_each(|case| println!("{}", flushes::run(case)));
    ExitCode::SUCCESS
}

/// How the other command is called.
pub const REBUILD_USAGE: &str = "weft-sim rebuild [--clients | --little]
  rebuild            one of 6, 12 and 24 disks is lost and rebuilt, 4+1 columns, beside a classic rebuild onto one spare
  rebuild --clients  the same while clients read
  rebuild --little   a pool of disks of 1 TB that holds 1 GiB: what a rebuild reads and writes";

/// Runs `weft-sim rebuild` with these further arguments.
pub fn rebuild_command(arguments: &[String]) -> ExitCode {
    println!("{}", rebuild::HEADING);
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [] => rebuild::by_disks(ByteCount::gib(2), None).for_each(|case| println!("{}", rebuild::run(case))),
        ["--clients"] => {
            let clients = rebuild::Clients { depth: 8, request: ByteCount::mib(1), share: 50 };
            let cases = rebuild::by_disks(ByteCount::gib(2), Some(clients));
            cases.for_each(|case| println!("{}", rebuild::run(case)));
        }
        ["--little"] => println!("{}", rebuild::run(rebuild::little(ByteCount::gib(1)))),
        _ => {
            eprintln!("usage: {REBUILD_USAGE}");
            return ExitCode::from(2);
        }
    }
    ExitCode::SUCCESS
}

/// Runs `weft-sim refill`: a file system that is filled, emptied and filled again, and one that ages; with an argument,
/// only on layouts with that in their names.
pub fn refill_command(arguments: &[String]) -> ExitCode {
    println!("{}", refill::HEADING);
    let layouts = [(3, 1), (4, 1), (5, 1), (7, 1), (7, 2)].map(|(columns, parity)| {
        Layout::new(Resiliency::Parity { parity }, columns, ByteCount::kib(256)).expect("these layouts are valid")
    });
    let only = arguments.first().map_or("", String::as_str);
    for layout in layouts.into_iter().filter(|layout| layout.to_string().contains(only)) {
        for fine_share in [0, SERVED_SHARE] {
            let case = refill::Case { layout, size: ByteCount::gib(3), refills: 3, ages: 6, fine_share };
            println!("{}", refill::run(case));
        }
    }
    ExitCode::SUCCESS
}

/// Runs `weft-sim capacity`: how much of disks of 500 GB to 4 TB each layout can use.
pub fn capacity_command() -> ExitCode {
    println!("disks of {:?} GB\n{}", capacity::MIXED_GB, capacity::HEADING);
    for layout in capacity::layouts() {
        println!("{}", capacity::run(layout));
    }
    ExitCode::SUCCESS
}

fn write_streams(full: bool) -> ExitCode {
    println!("{}", streams::HEADING);
    let (mut passed, mut failed) = (0, 0);
    for case in streams::cases(full, ByteCount::mib(128)) {
        let outcome = streams::run(case);
        println!("{outcome}");
        let complaints = outcome.complaints(Some(streams::LEAST));
        complaints.iter().for_each(|what| println!("FAILED: {what}"));
        if complaints.is_empty() { passed += 1 } else { failed += 1 }
    }
    println!("{passed} passed, {failed} failed");
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn read_streams(full: bool, only: &str) -> ExitCode {
    println!(
        "of what all disks give that are there: {} of each, of mirrors twice as much\n{}",
        READ_PER_DISK,
        stream_reads::HEADING
    );
    let (mut passed, mut failed) = (0, 0);
    let interleaves = if full { &streams::INTERLEAVES[..] } else { &streams::INTERLEAVES[3..] };
    let cases = stream_reads::cases(interleaves, READ_PER_DISK);
    for case in cases.into_iter().filter(|case| case.layout.to_string().contains(only)) {
        let outcome = stream_reads::run(case);
        println!("{outcome}");
        let complaints = outcome.complaints();
        complaints.iter().for_each(|what| println!("FAILED: {what}"));
        if complaints.is_empty() { passed += 1 } else { failed += 1 }
    }
    println!("{passed} passed, {failed} failed");
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn mixed_streams() -> ExitCode {
    println!("{}", mixed::HEADING);
    let (mut passed, mut failed) = (0, 0);
    for mix in mixed::mixes() {
        let outcome = mixed::run(&mix);
        println!("{outcome}");
        let complaints = outcome.complaints();
        complaints.iter().for_each(|what| println!("FAILED: {what}"));
        if complaints.is_empty() { passed += 1 } else { failed += 1 }
    }
    println!("{passed} passed, {failed} failed");
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn random(only: &str) {
    println!("{}", random_writes::HEADING);
    let row = |load: Load, kind: &str, run: &dyn Fn(Load) -> random_writes::Random| {
        let name = format!("{}, flush after {}, {kind}", load.fill.layout, load.per_flush);
        if name.contains(only) {
            println!("{name:<64} {}", run(load));
        }
    };
    let parity = streams::INTERLEAVES.map(five_columns);
    let mirror = Layout::new(Resiliency::Mirror { copies: 2 }, 2, ByteCount::kib(64)).expect("this layout is valid");
    for layout in parity.into_iter().chain([mirror]) {
        for per_flush in [1, 32, 1024] {
            let fill = Case { layout, request: ByteCount::mib(1), per_disk: ByteCount::gib(1), flush_stripes: None };
            let len = ByteCount::kib(4);
            let load = Load { fill, len, per_flush, span: Nanos::secs(60), fine_share: 0, cached_on: 0 };
            row(load, "merged", &on_weft);
            row(Load { fine_share: SERVED_SHARE, ..load }, "packed, 10 %", &on_weft);
            row(Load { cached_on: 2, ..load }, "cache on 2 SSDs", &on_weft);
            row(Load { cached_on: 3, ..load }, "cache on 3 SSDs", &on_weft);
            // In place nothing depends on the interleave.
            if layout == parity[0] {
                row(load, "RAID 5 in place", &|load| on_raid5_in_place(load, &streams::CLASS));
                row(load, "mirror in place", &|load| on_mirror_in_place(load, &streams::CLASS));
            }
        }
    }
    for per_flush in [1, 32, 1024] {
        let of = |layout: Layout| {
            let (request, per_disk) = (ByteCount::mib(1), ByteCount::gib(1));
            let fill = Case { layout, request, per_disk, flush_stripes: None };
            let (len, span) = (UNIT, Nanos::secs(60));
            Load { fill, len, per_flush, span, fine_share: SERVED_SHARE, cached_on: 0 }
        };
        let long = five_columns(ByteCount::kib(64));
        let units = Layout::in_units(long.resiliency(), 5, true, None, Some(UNIT)).expect("this layout is valid");
        row(of(long), "16 KiB, packed, 10 %", &on_weft);
        row(of(units), "16 KiB, class log", &on_weft);
        row(of(long), "16 KiB, RAID 5 in place", &|load| on_raid5_in_place(load, &streams::CLASS));
        row(of(long), "16 KiB, mirror in place", &|load| on_mirror_in_place(load, &streams::CLASS));
        row(Load { len: ByteCount::kib(4), ..of(units) }, "4 KiB, class log of 16 KiB", &on_weft);
    }
}

fn cached() {
    println!("{}", cached_reads::HEADING);
    cached_reads::loads().for_each(|load| println!("{}", cached_reads::run(load)));
}

fn five_columns(interleave: ByteCount) -> Layout {
    Layout::new(Resiliency::Parity { parity: 1 }, 5, interleave).expect("this layout is valid")
}
