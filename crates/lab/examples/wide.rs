//! Prints what one stream writes and reads where a pool has more disks than a stripe, in virtual time.

use weft_lab::claims::lab::{Case, Disk, GIB, MIB};
use weft_lab::workload::{Ask, drive, in_order};

/// Disks of the pools.
const DISKS: [usize; 5] = [4, 8, 12, 16, 32];
/// Bytes that the stream writes.
const BYTES: u64 = 16 * GIB;

fn main() {
    for disks in DISKS {
        let parity = Case::parity(Disk::Hdd(150), disks, 4, 1, 256);
        let mirror = Case { disks, ..Case::plain(Disk::Hdd(150), 2, 2) };
        for case in [parity, mirror] {
            let volume = case.weft();
            let written = drive(&volume, in_order(0, BYTES, MIB), 8, None, true);
            let read = drive(&volume, (0..BYTES / MIB).map(|nth| Ask::Read(nth * MIB, MIB)), 16, None, false);
            let [writes, reads] = [written, read].map(|trace| trace.rate() / 1e6);
            println!("{disks} disks, {}: writes {writes:.0} MB/s, reads {reads:.0} MB/s", case.layout());
        }
    }
}
