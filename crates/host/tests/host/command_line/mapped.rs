//! Which disks hold what: `weft vdisk map`.

use super::table;
use crate::machine::Machine;

const MAPPED: &str = "
weft vdisk create tank/media --size 1GiB --columns 4 --interleave 64KiB --write-cache 0
weft vdisk map tank/media
    says nowhere, reads as zeros
    json /pieces/0/length 1073741824
!write tank/media 6291456
!restart
weft vdisk map tank/media
    says in stripes
    json /pieces/0/lies \"stripes\"
    json /pieces/0/length 6291456
    json /pieces/0/disks [\"d1\",\"d2\",\"d3\",\"d4\"]
    json /pieces/1/lies \"nowhere\"
    json /next null
weft vdisk map tank/media --offset 4MiB --length 4MiB
    json /pieces/0/length 2097152
    json /pieces/1/offset 6291456
    json /pieces/1/length 2097152
weft vdisk map tank/media --offset 1GiB
    exit 2
    says is nothing of tank/media, which has 1 GiB
    try weft vdisk map tank/media
weft vdisk map tank/media --length 2GiB
    exit 2
    try weft vdisk map tank/media
weft vdisk map tank/nothing
    exit 4
";

#[test]
fn which_disks_hold_a_virtual_disk_is_told_piece_by_piece() {
    table::play(&mut Machine::with_tank(), MAPPED);
}
