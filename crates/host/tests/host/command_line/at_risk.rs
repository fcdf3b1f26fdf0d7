//! Write-back caches that survive less than what lies below them: refused, typed, shown for as long as they are there.

use super::table;
use crate::machine::Machine;

const UNSAFE: &str = "
weft disk set tank d1 media=hdd
weft disk set tank d2 media=hdd
weft disk set tank d3 media=hdd
weft disk set tank d4 media=hdd
weft vdisk create tank/media --size 1GiB --write-cache 0
weft vdisk set tank/media write-cache=64MiB,unsafe
    exit 3
    says a write-back cache needs a disk; of the solid-state disks none takes data
    try weft disk list --pool tank
weft disk add tank $D/s1 --create-size 512MiB --usage manual
weft disk set tank s1 media=ssd
weft vdisk set tank/media write-cache=64MiB write-cache-disks=s1
    exit 3
    says a size with `,unsafe` behind it makes do with fewer
    try weft disk list --pool tank
weft vdisk set tank/media write-cache=64MiB,safe
    exit 2
    try weft vdisk set tank/media write-cache=8GiB
weft vdisk set tank/media write-cache=64MiB,unsafe --dry-run
    says write cache none -> 64 MiB on s1, simple; unsafe: what rests there is lost with s1
weft vdisk set tank/media write-cache=64MiB,unsafe
    json /outcome \"changed\"
weft vdisk set tank/media write-cache=64MiB,unsafe
    json /outcome \"already-so\"
weft vdisk set tank/media write-cache=1PiB,unsafe
    exit 2
    try weft vdisk set tank/media write-cache=
weft vdisk show tank/media
    json /write_cache/may_lose true
    json /failures_new 0
weft status
    says its write-back cache is unsafe: what rests there, 0 B now, is lost with s1, whatever single parity survives
    says weft vdisk set tank/media write-cache=0
!restart
weft status
    says its write-back cache is unsafe
weft vdisk create tank/more --size 1GiB --write-cache 64MiB,unsafe
    says write cache 64 MiB on s1, simple; unsafe: what rests there is lost with s1
weft vdisk remove tank/more --yes
weft disk add tank $D/s2 --create-size 512MiB --usage manual
weft disk set tank s2 media=ssd
weft status
    says weft vdisk set tank/media write-cache=64MiB
weft vdisk set tank/media write-cache=64MiB
    json /outcome \"changed\"
weft vdisk show tank/media
    says write cache             64 MiB on s1, s2, mirror of 2
    json /failures_new 1
";

#[test]
fn a_cache_that_may_be_lost_is_typed_so_and_told_for_ever() {
    table::play(&mut Machine::with_tank(), UNSAFE);
}
