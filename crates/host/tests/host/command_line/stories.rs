//! What is typed, and what must come of it: see `table.rs`.

pub const COME_AND_GO: &str = "
weft pool create tank $D/d1 $D/d2 $D/d3 $D/d4 --create-size 1GiB
weft vdisk create tank/media --size 1GiB
    says vdisk tank/media created
    says single parity, 4 columns, 64KiB interleave
weft vdisk show tank/media
    json /size 1073741824
weft vdisk list
    json /0/name \"tank/media\"
weft pool show tank
    json /disks/3/name \"d4\"
weft pool list
    says healthy
weft vdisk resize tank/media 2GiB
weft vdisk resize tank/media 2GiB
    json /outcome \"already-so\"
weft vdisk resize tank/media max
weft vdisk resize tank/media 50%
    exit 5
    try weft pool show tank
weft vdisk remove tank/media --yes
weft vdisk show tank/media
    exit 4
    try weft
weft pool remove tank --yes
weft pool list
    all no pools
weft disk list
    json /0/state \"available\"
    json /3/state \"available\"
";

pub const DRY_POOL: &str = "
weft pool create tank $D/d1 --create-size 1GiB --dry-run
    says pool tank would be created
weft pool list
    all no pools
";

pub const DRY: &str = "
weft pool create tank $D/d1 $D/d2 $D/d3 $D/d4 --create-size 1GiB
weft vdisk create tank/media --size 90% --dry-run
    json /dry_run true
    json /outcome \"created\"
weft vdisk list
    all no virtual disks
weft vdisk create tank/media --size 1GiB
weft export add tank/media --nbd tcp:localhost:10809 --dry-run
weft export list
    all no exports
weft vdisk resize tank/media 2GiB --dry-run
weft vdisk remove tank/media --dry-run
weft pool remove tank --dry-run
weft vdisk show tank/media
    json /size 1073741824
";

pub const INTERLEAVE: &str = "
weft vdisk create tank/v --size 1GiB --interleave 24KiB
weft vdisk show tank/v
    json /layout/interleave 24576
";

/// What shows something, with a part of its text and of its value.
pub const SHOWN: &str = "
weft vdisk create tank/media --size 1GiB
weft version
    json /api \"v1\"
weft status
    says tank
    json /health \"healthy\"
weft stat
    says tank/media
    json /rows/0/name \"tank\"
weft pool list
    says healthy
    json /0/name \"tank\"
weft pool show tank
    says d4
    json /disks/0/name \"d1\"
weft pool check tank
    says is sound
    json /sound true
weft disk list
    says d3
    json /2/name \"d3\"
weft disk show tank/d1
    says healthy
    json /capacity 1073741824
weft vdisk list tank
    says tank/media
    json /0/size 1073741824
weft vdisk show tank/media
    says single parity, 4 columns, 64KiB interleave
    json /layout/columns 4
weft export list
    all no exports
    json  []
weft explain tank/media read 0 4KiB
    says zeros
    json /vdisk \"tank/media\"
";

pub const TOLD: &str = "
weft stat tank/media
    json /rows/1/name \"tank/media\"
weft stat --memory
    json /pools/0/budgets/0/keeping \"enforced\"
    json /all/0/used 0
    says not enforced, only counted
    says (all)
weft explain tank/media write 64KiB 4KiB
    says part of a stripe
";

pub const NO_JOBS: &str = "
weft job list
    all no jobs
weft scrub tank --dry-run
    says scrub of pool tank would be started
weft job list
    all no jobs
";

/// While job JOB, which scrubs, is paused; the number of the next one is NEXT.
pub const PAUSED_JOB: &str = "
weft scrub tank
    json /outcome \"already-so\"
    json /job \"JOB\"
weft scrub tank
    says job JOB is paused
weft job resume ID --dry-run
weft job cancel ID --dry-run
weft job show ID
    json /state \"paused\"
weft job pause JOB
    json /outcome \"already-so\"
weft status
    says ! job JOB: scrub is paused
    says try: weft job resume JOB
    json /jobs/0/job \"JOB\"
weft job cancel ID
weft job resume ID
    exit 3
    try weft
weft job cancel ID
    json /outcome \"already-so\"
";

pub const SETTINGS: &str = "
weft pool show tank
    says repair-after      5m
    says scrub-every       4w
    says foreground-share  50%
    says full              70,80,90
    says tier-schedule     never
weft pool set tank tier-schedule=02:00
    json /changes/0 \"tier-schedule never -> 02:00\"
weft pool set tank repair-after=never full=10,20,30 --dry-run
    says   repair-after 5m -> never
weft pool show tank
    json /settings/repair_after_seconds 300
weft pool set tank repair-after=never full=10,20,30
weft pool set tank repair-after=never full=10,20,30
    json /outcome \"already-so\"
weft pool show tank
    json /settings/repair_after_seconds null
";

pub const SHARED: &str = "
weft vdisk create tank/media --size 1GiB
weft vdisk show tank/media
    json /fine_share \"auto\"
weft vdisk set tank/media fine-share=5% --dry-run
weft vdisk show tank/media
    json /fine_share \"auto\"
weft vdisk set tank/media fine-share=5%
    json /changes/0 \"fine share auto -> 5%\"
weft vdisk set tank/media fine-share=5%
    json /outcome \"already-so\"
weft vdisk set tank/media fine-share=0
weft vdisk show tank/media
    json /packed_max 0
!restart
weft vdisk show tank/media
    json /fine_share \"0\"
weft vdisk set tank/media fine-share=auto
weft vdisk show tank/media
    json /fine_share \"auto\"
weft vdisk set tank/media fine-share=51%
    exit 2
    try weft vdisk set tank/media fine-share=10%
weft vdisk set tank/media write-back=1GiB
    exit 2
    try weft vdisk set tank/media write-cache=8GiB
weft vdisk set tank/nothing fine-share=5%
    exit 4
    try weft vdisk show tank/media
";

pub const CACHED: &str = "
weft disk set tank d1 media=hdd
weft disk set tank d2 media=hdd
weft disk set tank d3 media=hdd
weft disk set tank d4 media=hdd
weft vdisk create tank/media --size 1GiB --write-cache 0
weft vdisk show tank/media
    says write cache             none
weft vdisk create tank/chosen --size 1GiB
weft vdisk show tank/chosen
    says write cache             auto: none
weft vdisk set tank/media write-cache=64MiB
    exit 3
    try weft disk list --pool tank
weft disk add tank $D/s1 $D/s2 --create-size 512MiB --usage manual
weft disk set tank s1 media=ssd
weft disk set tank s2 media=ssd
weft vdisk show tank/chosen
    says write cache             auto: 128 MiB on s1, s2, mirror of 2
weft vdisk show tank/chosen
    json /write_cache_auto true
weft vdisk set tank/media write-cache=64MiB --dry-run
    says write cache none -> 64 MiB on s1, s2, mirror of 2
weft vdisk show tank/media
    says write cache             none
weft vdisk set tank/media write-cache=64MiB
    json /changes/0 \"write cache none -> 64 MiB on s1, s2, mirror of 2\"
weft vdisk set tank/media write-cache=64MiB
    json /outcome \"already-so\"
weft vdisk show tank/media
    json /write_cache/disks/1 \"s2\"
    json /write_cache/drains false
!restart
weft vdisk show tank/media
    says write cache             64 MiB on s1, s2, mirror of 2
weft vdisk set tank/media write-cache-disks=s1
    exit 3
    try weft disk list --pool tank
weft vdisk set tank/media write-cache=1PiB
    exit 2
    try weft vdisk set tank/media write-cache=
weft vdisk create tank/vm --size 1GiB
    says write cache auto: 128 MiB on s1, s2, mirror of 2
weft vdisk create tank/plain --size 1GiB --write-cache 0
weft vdisk show tank/plain
    says write cache             none
weft vdisk set tank/media write-cache=0
    says write cache 64 MiB on s1, s2, mirror of 2 -> none
weft vdisk show tank/media
    says write cache             none
weft disk set tank s2 usage=spare --dry-run
    says tank/chosen: write cache auto: 128 MiB on s1, s2, mirror of 2 -> none
weft vdisk show tank/chosen
    says write cache             auto: 128 MiB on s1, s2, mirror of 2
weft disk set tank s2 usage=spare
    says tank/chosen: write cache auto: 128 MiB on s1, s2, mirror of 2 -> none
weft vdisk show tank/chosen
    says write cache             auto: none
weft events tank
    says the write-back cache of chosen is chosen anew (auto): 128 MiB on disk s1 and disk s2
weft vdisk set tank/media write-cache=auto write-cache-disks=s1
    exit 3
    try weft disk list --pool tank
weft disk add tank $D/s3 $D/s4 --create-size 512MiB --usage manual
weft disk set tank s3 media=ssd
weft disk set tank s4 media=ssd
weft vdisk show tank/chosen
    json /write_cache/disks/1 \"s3\"
weft vdisk show tank/media
    says write cache             none
";

pub const READ_CACHED: &str = "
weft disk set tank d1 media=hdd
weft disk set tank d2 media=hdd
weft disk set tank d3 media=hdd
weft disk set tank d4 media=hdd
weft vdisk create tank/media --size 64MiB
weft vdisk show tank/media
    says read cache              none
weft vdisk set tank/media read-cache=64MiB
    exit 3
    try weft disk list --pool tank
weft vdisk set tank/media read-cache-disks=d1
    exit 2
    try weft vdisk set tank/media read-cache=100GiB read-cache-disks=d1
weft disk add tank $D/s1 $D/s2 --create-size 512MiB --usage manual
weft disk set tank s1 media=ssd
weft disk set tank s2 media=ssd
weft vdisk set tank/media read-cache=128MiB --dry-run
    says read cache none -> 128 MiB on s1, s2
weft vdisk show tank/media
    says read cache              none
weft vdisk set tank/media read-cache=128MiB
    json /changes/0 \"read cache none -> 128 MiB on s1, s2\"
weft vdisk set tank/media read-cache=128MiB
    json /outcome \"already-so\"
weft vdisk show tank/media
    json /read_cache/capacity 134217728
    json /read_cache/disks/1 \"s2\"
!restart
weft vdisk show tank/media
    says read cache              128 MiB on s1, s2; 0 B lie there
weft stat --memory
    says read caches
weft vdisk set tank/media read-cache-disks=s1
    says read cache 128 MiB on s1, s2 -> 128 MiB on s1
weft vdisk set tank/media read-cache=1PiB
    exit 2
    try weft vdisk set tank/media read-cache=
weft vdisk set tank/media read-cache=some
    exit 2
    try weft vdisk set tank/media read-cache=100GiB
weft vdisk create tank/vm --size 64MiB --read-cache 64MiB --read-cache-disks s2 --dry-run
    says read cache 64 MiB on s2
weft vdisk create tank/vm --size 64MiB --read-cache 64MiB --read-cache-disks s2
    says read cache 64 MiB on s2
weft disk set tank s2 usage=retired
weft vdisk set tank/vm read-cache=0
weft vdisk show tank/vm
    says read cache              none
weft vdisk set tank/media read-cache=0
    says read cache 128 MiB on s1 -> none
weft vdisk show tank/media
    says read cache              none
weft pool check tank
    json /sound true
";

pub const JOURNAL: &str = "
weft vdisk create tank/m --size 64MiB --resiliency mirror --columns 1
!write tank/m 196608
weft disk set tank d1 usage=journal --dry-run
    says it carries the log and nothing else
    says on it move to the other disks; `weft job list tank` shows how far that is
weft disk show tank/d1
    json /usage \"auto\"
weft disk set tank d1 usage=journal
    says on it move to the other disks
weft disk show tank/d1
    json /usage \"journal\"
weft disk set tank d1 usage=auto
weft vdisk create tank/wide --size 64MiB --resiliency parity --columns 4
weft disk set tank d2 usage=journal --dry-run
    exit 3
    says disk d2 cannot be a journal
    try weft disk add tank
weft disk set tank d2 usage=journal
    exit 3
    says add another disk for data first
    try weft disk add tank
weft disk show tank/d2
    json /usage \"auto\"
";

pub const RENAMED: &str = "
weft vdisk create tank/media --size 1GiB
weft vdisk create tank/vm --size 1GiB
weft vdisk rename tank/media vm
    exit 3
    try weft vdisk rename tank/media vm2
weft vdisk rename tank/media pond/films
    exit 2
    try weft
weft vdisk rename tank/media films --dry-run
weft vdisk rename tank/media tank/films
weft vdisk show tank/films
weft export add tank/films --nbd unix:$O/s
weft vdisk rename tank/films x
    exit 3
    try weft
weft pool rename tank pond
    exit 3
    try weft
weft export remove tank/films
weft pool rename tank pond --dry-run
weft pool show tank
weft pool rename tank pond
!restart
weft vdisk show pond/films
weft pool show tank
    exit 4
    try weft
";

pub const KNOWN: &str = "
weft disk set tank d1 usage=auto
    json /outcome \"already-so\"
weft disk set tank d1 usage=retired --dry-run
    json /dry_run true
weft disk show tank/d1
    json /usage \"auto\"
    json /power_protected/said \"auto\"
    json /power_protected/write_cache \"host\"
    json /power_protected/protected false
    says power-protected  no (auto): a file, or reached through the page cache, is always flushed
    says log              a copy of it is here,
weft disk set tank d1 power-protected=yes
    exit 3
    says only block devices that are reached directly can be power-protected
    try weft disk show tank/d1
weft disk set tank d1 power-protected=yes --dry-run
    exit 3
    try weft disk show tank/d1
weft disk set tank d1 power-protected=no --dry-run
    json /changes/0 \"power-protected auto -> no\"
weft disk show tank/d1
    json /power_protected/said \"auto\"
weft disk set tank d1 power-protected=no
weft disk set tank d1 power-protected=no
    json /outcome \"already-so\"
!restart
weft disk show tank/d1
    json /power_protected/said \"no\"
weft disk set tank d1 power-protected=auto
    json /changes/0 \"power-protected no -> auto\"
weft disk set tank d1 power-protected=maybe
    exit 2
    try weft disk set tank d1 power-protected=auto
";

pub const MAINTENANCE: &str = "
weft disk show tank/old
    json /usage \"retired\"
    json /media \"ssd\"
    json /domain \"rack2\"
weft disk set tank old name=d2
    exit 3
    try weft
weft vdisk create tank/media --size 1GiB
!write tank/media 196608
weft disk set tank d2 maintenance=on
weft status
    says ! disk tank/d2: in maintenance
    says try: weft disk set tank d2 maintenance=off
weft disk set tank d3 maintenance=on
    exit 3
    try weft
weft disk set tank d2 maintenance=off
";

pub const EXPORTED: &str = "
weft vdisk create tank/media --size 1GiB
weft export add tank/media --nbd unix:$O/s
weft pool export tank
    exit 3
    try weft export remove tank/media
weft export remove tank/media
weft pool export tank --dry-run
weft pool show tank
weft pool export tank
    says pool tank closed
";

/// A person wanted it so.
pub const STAYS_CLOSED: &str = "
weft pool show tank
    exit 3
    try weft pool import tank
weft status
    json /attention []
weft disk show d1
    json /state \"closed\"
!restart
";

pub const IMPORTED: &str = "
weft pool import tank --dry-run
    says pool tank would be opened
weft pool import tank --read-only
weft pool import tank --read-only
    json /outcome \"already-so\"
!restart
weft pool show tank
    json /read_only true
weft scrub tank
    exit 3
    try weft status tank
weft pool import tank
    exit 3
    try weft pool export tank
weft pool export tank
weft pool import tank
weft pool show tank
    json /read_only false
weft pool import
    all no pools to import: those that were found are open
";

pub const ASKED_TWICE: &str = "
!stop
!hide d2
!hide d3
!hide d4
!start
weft pool import tank --degraded
    exit 2
    try weft pool import tank --degraded --yes
weft pool import tank --degraded --dry-run
    says would be opened
weft pool list
    all no pools
weft pool import tank --degraded --yes
weft pool show tank
    json /read_only false
";

pub const TIERED: &str = "
weft vdisk set tank/media tier=ssd,size=64MiB
    exit 4
weft vdisk create tank/media --size 1GiB --tier ssd,size=64MiB --tier hdd
    exit 3
    says media=hdd
weft disk set tank d1 media=hdd
weft disk set tank d2 media=hdd
weft disk set tank d3 media=hdd
weft disk set tank d4 media=hdd
weft vdisk create tank/media --size 1GiB --tier ssd,size=64MiB --tier hdd
    exit 3
    try weft disk list --pool tank
    says media=ssd
weft disk add tank $D/s1 $D/s2 --create-size 512MiB --usage manual
weft disk set tank s1 media=ssd
weft disk set tank s2 media=ssd
weft vdisk create tank/media --size 1GiB --tier ssd,size=64MiB --tier hdd,resiliency=parity,columns=4 --dry-run
    says fast tier 64 MiB on s1, s2, mirror of 2, 1 column, 768KiB interleave
weft vdisk create tank/media --size 1GiB --tier ssd,size=64MiB --tier hdd,resiliency=parity,columns=4 --write-cache 0
    says single parity, 4 columns, 256KiB interleave
weft vdisk show tank/media
    says fast tier               64 MiB on s1, s2, mirror of 2, 1 column, 768KiB interleave; 0 B lie there
weft vdisk create tank/other --size 1GiB --tier ssd,size=64MiB
    exit 2
    says --tier is given twice
weft vdisk create tank/other --size 1GiB --tier ssd,size=64MiB,columns=5 --tier hdd,resiliency=parity,columns=4
    exit 2
    says do not divide the 768 KiB of data of a stripe
weft vdisk create tank/other --size 1GiB --tier ssd,size=64MiB,resiliency=simple --tier hdd,resiliency=parity
    exit 3
    says less redundant
weft vdisk create tank/other --size 1GiB --tier nvme,size=64MiB --tier hdd
    exit 2
    says begins with ssd, hdd or any
!write tank/media 25165824
weft vdisk show tank/media
    json /tier/drains false
    json /tier/disks/1 \"s2\"
    json /tier/used 25165824
weft tier pin tank/media --range 0,16MiB --dry-run
    says 16 MiB of it are pinned to its fast tier of 64 MiB
weft tier pin tank/media --range 0,16MiB
weft tier pin tank/media --range 0,16MiB
    json /outcome \"already-so\"
weft vdisk show tank/media
    json /tier/pins/0/length 16777216
weft tier pin tank/media --range 0,1TiB
    exit 2
    try weft vdisk show tank/media
weft tier pin tank/media --range 0,60MiB
    exit 3
    says 56 MiB at rest
weft tier unpin tank/media --range 0,8MiB
    says 8 MiB of it are pinned
weft tier optimize tank/media --dry-run
weft tier optimize tank/media --wait --quiet
weft job list tank
    says optimize the tiers of media
weft explain tank/media read 0 65536
    says fast tier, stripe
weft vdisk change tank/media --columns 3
    exit 3
    try weft vdisk set tank/media tier=0
!restart
weft vdisk show tank/media
    json /tier/pins/0/offset 8388608
weft vdisk set tank/media tier=ssd,size=128MiB read-cache=900GiB
    exit 2
    says a read cache here has
weft vdisk show tank/media
    json /tier/size 67108864
weft vdisk set tank/media tier=ssd,size=128MiB
    says fast tier 64 MiB on s1, s2, mirror of 2, 1 column, 768KiB interleave -> 128 MiB on s1, s2
weft vdisk set tank/media tier=0
    says that lie there are moved below
weft tier pin tank/media --range 0,1MiB
    exit 3
    try weft vdisk set tank/media tier=ssd,size=8GiB
weft vdisk create tank/both --size 256MiB --resiliency mirror-parity --dry-run
    says fast tier 31.5 MiB on all disks, mirror of 2
";
