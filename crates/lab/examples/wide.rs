//! Prints what one stream writes and reads where a pool has more disks than a stripe, in virtual time.

use weft_lab::claims::lab::{Case, Disk, GIB, MIB};
use weft_lab::workload::{Ask, drive, in_order};

/// Disks of the pools.
const DISKS: [usize; 5] = [4, 8, 12, 16, 32];
/// Bytes that the stream writes.
const BYTES: u64 = 16 * GIB;
/// Disks of the pools with mirrors of one column, and bytes that the stream writes there.
const NARROW: ([usize; 2], u64) = ([8, 24], 6 * GIB);

fn main() {
    for disks in DISKS {
        let parity = Case::parity(Disk::Hdd(150), disks, 4, 1, 256);
        for case in [parity, mirror(disks, 2)] {
            show(case, BYTES);
        }
    }
    let (all, bytes) = NARROW;
    all.into_iter().for_each(|disks| show(mirror(disks, 1), bytes));
}

fn mirror(disks: usize, columns: u64) -> Case {
    Case { disks, ..Case::plain(Disk::Hdd(150), 2, columns) }
}

fn show(case: Case, bytes: u64) {
    let volume = case.weft();
    let written = drive(&volume, in_order(0, bytes, MIB), 8, None, true);
    let read = drive(&volume, (0..bytes / MIB).map(|nth| Ask::Read(nth * MIB, MIB)), 16, None, false);
    let [writes, reads] = [written, read].map(|trace| trace.rate() / 1e6);
    println!("{} disks, {}: writes {writes:.0} MB/s, reads {reads:.0} MB/s", case.disks, case.layout());
}
