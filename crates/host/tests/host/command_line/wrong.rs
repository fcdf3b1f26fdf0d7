//! What is wrong to type, and what is offered instead: see `table.rs`.

/// What is wrong to ask for in a pool `tank` of four disks with `tank/media`, about pools and virtual disks.
pub const COMMANDS: &str = "
weft vdisk create tank/v --size 10G
    exit 2
    try weft vdisk create tank/v --size 10GiB
weft vdisk create tank/v --size=10G
    exit 2
    try weft vdisk create tank/v --size=10GiB
weft vdisk create tank/v
    exit 2
    try weft vdisk create --help
weft vdisk create v --size 1GiB
    exit 2
    try weft vdisk create v/media --size 1GiB
weft vdisk create tank/v --size 1GiB --interleave 5KiB
    exit 2
    try weft vdisk create tank/v --size 1GiB --interleave 8KiB
weft vdisk create tank/v --size 1GiB --columns 33
    exit 2
    try weft vdisk create tank/v --size 1GiB --columns 32
weft vdisk create tank/v --size 1GiB --columns 300
    exit 2
    try weft vdisk create tank/v --size 1GiB --columns 32
weft vdisk create tank/v --size 1GiB --copies 4
    exit 2
    try weft vdisk create tank/v --size 1GiB --copies 3
weft vdisk create tank/v --size 1GiB --failures 3
    exit 2
    try weft vdisk create tank/v --size 1GiB --failures 2
weft vdisk create tank/v --size 1GiB --sector 1024
    exit 2
    try weft vdisk create tank/v --size 1GiB --sector 512
weft vdisk create tank/v --size 1GiB --resiliency raid5
    exit 2
    try weft vdisk create tank/v --size 1GiB --resiliency simple
weft vdisk create tank/v --size 1GiB --resilency parity
    exit 2
    try weft vdisk create tank/v --size 1GiB --resiliency parity
weft vdisk create tank/v --size 1GiB --thin --fixed
    exit 2
    try weft vdisk create tank/v --size 1GiB --fixed
weft vdisk create tank/v --size 1GiB --resiliency parity --columns 2
    exit 2
    try weft vdisk create tank/v --size 1GiB --resiliency parity --failures 1 --columns 3
weft vdisk create tank/v --size 1GiB --resiliency parity --columns 5
    exit 3
    try weft vdisk create tank/v --size 1GiB --resiliency parity --failures 1 --columns 4
weft vdisk create tank/v --size 1GiB --write-cache 1PiB
    exit 2
    try weft vdisk create tank/v --size 1GiB
weft vdisk create tank/v --size 1GiB --write-cache some
    exit 2
    try weft vdisk create tank/v --size 1GiB --write-cache 8GiB
weft vdisk create tank/v --size 1GiB --write-cache 1GiB --write-cache-disks d7
    exit 4
    try weft disk list --pool tank
weft vdisk create tank/v --size 1GiB --disks d1,d7
    exit 4
    try weft disk list --pool tank
weft vdisk create tank/v --size 1GiB --disks d1,d2 --resiliency parity
    exit 3
    try weft vdisk create tank/v --size 1GiB --resiliency mirror --copies 2
weft vdisk create tank/media --size 1GiB
    exit 3
    try weft vdisk create tank/media2 --size 1GiB
weft vdisk create tank/media --size 1GiB --resiliency mirror --copies 2
    exit 3
    try weft vdisk create tank/media2 --size 1GiB --resiliency mirror --copies 2
weft vdisk create tank/v --size 9TiB --fixed
    exit 5
    try weft vdisk create tank/v --size max --fixed
weft vdisk create tank/v --size 9TiB --fixed --resiliency mirror --copies 2
    exit 5
    try weft vdisk create tank/v --size max --resiliency mirror --copies 2 --fixed
weft vdisk create pond/v --size 1GiB
    exit 4
    try weft pool show tank
weft vdisk resize tank/media 1MiB
    exit 3
    try weft vdisk create tank/media2 --size 1MiB
weft vdisk resize tank/media 1000000001
    exit 2
    try weft vdisk resize tank/media 976563KiB
weft vdisk show tank/x
    exit 4
    try weft vdisk show tank/media
weft vdisk remove tank/x --yes
    exit 4
    try weft vdisk show tank/media
weft pool create tank $D/d9
    exit 3
    try weft pool create tank2
weft pool create pond $D/d9
    exit 4
    try --create-size 10GiB
weft pool create pond $D/d1 $D/d1
    exit 2
    try weft pool create pond
weft pool create pond $D/d1
    exit 3
    try weft pool show tank
weft pool create pond $D/d9 --slab-size 3GiB
    exit 2
    try --slab-size 1GiB
weft pool create p/q $D/d9
    exit 2
    try weft pool create p-q
weft pool create pond
    exit 2
    try weft pool create --help
weft pool show pond
    exit 4
    try weft pool show tank
weft pool lst
    exit 2
    try weft pool list
weft pool
    exit 2
    try weft pool --help
weft quux
    exit 2
    try weft --help
weft
    exit 2
    try weft --help
weft frobnicate
    exit 2
    try weft --help
weft check tank
    exit 2
    try weft pool check tank
weft vdisk resize tank/media --size 3GiB
    exit 2
    try weft vdisk resize tank/media 3GiB
weft vdisk resize tank/media --size=3GiB
    exit 2
    try weft vdisk resize tank/media 3GiB
weft vdisk resize tank/media
    exit 2
    try weft vdisk resize --help
weft pool list --state x
    exit 2
    try weft pool list
weft disk show nowhere
    exit 4
    try weft disk list
weft export add tank/media --nbd tcp:host
    exit 2
    try weft export add tank/media --nbd tcp:host:10809
weft export add tank/media
    exit 2
    try weft export add tank/media --nbd unix:/run/weft/nbd.sock
weft export add tank/x --nbd tcp:host:1
    exit 4
    try weft vdisk show tank/media
weft export remove tank/media
    exit 4
    try weft export list
weft explain tank/media read 2GiB 4KiB
    exit 2
    try weft explain tank/media read 0 65536
weft explain tank/media erase 0 4KiB
    exit 2
    try weft explain tank/media read 0 4KiB
weft stat tank/x
    exit 4
    try weft vdisk show tank/media
weft stat --interval soon
    exit 2
    try weft stat --interval 1s
weft events pond
    exit 4
    try weft pool show tank
weft status --color purple
    exit 2
    try weft status --color auto
weft man vdisk frob
    exit 4
    try weft man vdisk
weft completions tcsh
    exit 2
    try weft completions zsh
";

/// Wrong things to ask for about jobs, members and settings.
pub const UPKEEP: &str = "
weft job
    exit 2
    try weft job --help
weft job show
    exit 2
    try weft job show --help
weft job show x
    exit 2
    try weft job show 1
weft job show tank/x
    exit 2
    try weft job show tank/1
weft job show 7
    exit 4
    try weft job list
weft job pause tank/7
    exit 4
    try weft job list
weft job cancel pond/1
    exit 4
    try weft pool show tank
weft job list pond
    exit 4
    try weft pool show tank
weft scrub
    exit 2
    try weft scrub --help
weft scrub pond
    exit 4
    try weft pool show tank
weft repair pond
    exit 4
    try weft pool show tank
weft rebalance tank/media
    exit 2
    try weft rebalance tank-media
weft pool set tank
    exit 2
    try weft pool set --help
weft pool set tank repair-after=soon
    exit 2
    try weft pool set tank repair-after=5m
weft pool set tank scrub-every=1s
    exit 2
    try weft pool set tank scrub-every=1h
weft pool set tank foreground-share=99%
    exit 2
    try weft pool set tank foreground-share=90%
weft pool set tank full=90,80,70
    exit 2
    try weft pool set tank full=70,80,90
weft pool set tank repair=5m
    exit 2
    try weft pool set tank repair-after=5m
weft pool set pond repair-after=5m
    exit 4
    try weft pool show tank
weft pool rename tank
    exit 2
    try weft pool rename --help
weft pool rename tank a~b
    exit 2
    try weft pool rename tank a-b
weft pool rename pond lake
    exit 4
    try weft pool show tank
weft pool import pond
    exit 4
    try weft pool import
weft pool import --read-only
    exit 2
    try weft pool import --help
weft pool export
    exit 2
    try weft pool export --help
weft pool export pond
    exit 4
    try weft pool show tank
weft vdisk rename tank/x y
    exit 4
    try weft vdisk show tank/media
weft vdisk rename tank/media a@b
    exit 2
    try weft vdisk rename tank/media a-b
weft disk add tank
    exit 2
    try weft disk add --help
weft disk add tank $D/d9
    exit 4
    try --create-size 10GiB
weft disk add tank $D/d1
    exit 3
    try weft pool show tank
weft disk add tank $D/d9 $D/d9 --create-size 1GiB
    exit 2
    try weft disk add tank
weft disk add tank $D/d9 --create-size 1MiB
    exit 2
    try weft disk add --help
weft disk add tank $D/d9 --create-size 1G
    exit 2
    try --create-size 1GiB
weft disk add tank $D/d9 --usage hot
    exit 2
    try --usage auto
weft disk add tank $D/d9 --usage retired --create-size 1GiB
    exit 2
    try weft disk add
weft disk add pond $D/d9
    exit 4
    try weft pool show tank
weft disk remove tank
    exit 2
    try weft disk remove --help
weft disk remove tank d9
    exit 4
    try weft disk list --pool tank
weft disk remove tank d1
    exit 3
    try weft vdisk create tank/media-2 --size 1GiB
weft disk remove tank/d1
    exit 2
    try weft disk remove tank d1
weft disk set tank/d1 media=hdd
    exit 2
    try weft disk set tank d1 media=hdd
weft disk remove tank tank/d9
    exit 4
    try weft disk list --pool tank
weft disk remove pond d1
    exit 4
    try weft pool show tank
weft disk replace tank d1
    exit 2
    try weft disk replace --help
weft disk replace tank d9 $D/d9
    exit 4
    try weft disk list --pool tank
weft disk replace tank d1 $D/d9
    exit 4
    try --create-size 10GiB
weft disk replace tank d1 d1
    exit 3
    try weft disk replace tank d1 DISK
weft disk replace tank d1 $D/d1
    exit 3
    try weft
weft disk set tank d1
    exit 2
    try weft disk set --help
weft disk set tank d1 usage=hot
    exit 2
    try weft disk set tank d1 usage=auto
weft disk set tank d1 media=tape
    exit 2
    try weft disk set tank d1 media=hdd
weft disk set tank d1 name=a/b
    exit 2
    try weft disk set tank d1 name=a-b
weft disk set tank d1 name=d2
    exit 3
    try weft disk set tank d1 name=d22
weft disk set tank d1 maintenance=yes
    exit 2
    try weft disk set tank d1 maintenance=on
weft disk set tank d9 usage=auto
    exit 4
    try weft disk list --pool tank
";
