//! Classes: what virtual disks are written for, made, shown and refused.

use super::table;
use crate::machine::Machine;

/// What virtual disks are written for.
const CLASSES: &str = "
weft disk list --pool tank
weft vdisk create tank/db --size 256MiB --class log --unit 16KiB --dry-run
    says class log: a stripe is one unit of 16KiB
weft vdisk create tank/db --size 256MiB --class log --unit 16KiB
    says single parity, 3 columns, 8KiB interleave
weft vdisk show tank/db
    says class                   log: a stripe is one unit of 16KiB
    json /class \"log\"
    json /layout/interleave 8192
!write tank/db 1048576
weft vdisk show tank/db
    json /counters/write_caused_read_bytes 0
    json /counters/packed_bytes 0
weft vdisk create tank/vm --size 256MiB --class log --resiliency mirror
    says class log: a stripe is one unit of
weft vdisk create tank/films --size 256MiB --class stream
    says class stream: what is smaller than a stripe of
weft vdisk show tank/films
    json /class \"stream\"
    json /fine_share \"0\"
    json /write_cache_auto false
!restart
weft vdisk show tank/films
    json /class \"stream\"
weft vdisk set tank/films fine-share=auto
weft vdisk create tank/other --size 256MiB --class auto
    says class auto
weft vdisk create tank/both --size 256MiB --class log --unit 16KiB --tier any,size=16MiB --tier any,resiliency=parity
    says class log: a stripe is one unit of 16KiB
    says fast tier 16 MiB on
weft vdisk create tank/more --size 256MiB --unit 16KiB
    exit 2
    try weft vdisk create tank/more --size 256MiB --class log --unit 16KiB
weft vdisk create tank/more --size 256MiB --class log --unit 6KiB
    exit 2
    says multiples of 4KiB from 4KiB to 64KiB are
weft vdisk create tank/more --size 256MiB --class log --unit 16KiB --columns 4
    exit 2
    says they divide multiples of 12 KiB up to 60 KiB
    try weft vdisk create tank/more --size 256MiB --class log
weft vdisk create tank/more --size 256MiB --class stream --write-cache 8MiB
    exit 2
    try weft vdisk create tank/more --size 256MiB --class auto --write-cache 8MiB
weft vdisk create tank/more --size 256MiB --class log --interleave 16KiB
    exit 2
    says takes --unit
weft vdisk create tank/more --size 256MiB --class database
    exit 2
";

#[test]
fn virtual_disks_are_made_for_what_they_are_written_with() {
    table::play(&mut Machine::with_tank(), CLASSES);
}
