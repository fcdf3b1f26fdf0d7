//! Stories as tables: lines that are typed, and what must come of each.
//!
//! A line is what a person types; `$D` in it is the directory of disks. What must come of it is indented below it:
//!
//! - `exit 3`: its exit code, 0 where nothing is said. One that is not 0 has the error form, with a command to try.
//! - `try weft ...`: that command has this in it; `says ...`: what it prints has this in it; `all ...`: it is this line.
//! - `json /a/b 7`: so with `--json` its value has 7 there. A line that changes something has either this or text.
//!
//! A line with `!` happens to the machine: `!restart`, `!stop`, `!start`, `!hide DISK`, `!show DISK`, `!write VDISK LEN`.

use super::Machine;
use serde_json::Value;

/// What must come of one line.
#[derive(Default)]
struct Row<'a> {
    line: &'a str,
    exit: u8,
    offers: Vec<&'a str>,
    says: Vec<&'a str>,
    all: Option<&'a str>,
    json: Vec<(&'a str, &'a str)>,
}

/// Plays a story.
pub fn play(machine: &mut Machine, story: &str) {
    for row in read(story) {
        match row.line.split(' ').collect::<Vec<_>>()[..] {
            ["!restart"] => machine.restart(),
            ["!stop"] => machine.stop(),
            ["!start"] => machine.start(),
            ["!hide", disk] => machine.hide(disk),
            ["!show", disk] => machine.show(disk),
            ["!write", vdisk, len] => machine.write(vdisk, len.parse().unwrap()),
            _ => row.play(machine),
        }
    }
}

fn read(story: &str) -> Vec<Row<'_>> {
    let mut rows: Vec<Row> = Vec::new();
    for line in story.lines().filter(|line| !line.trim().is_empty()) {
        if !line.starts_with(' ') {
            rows.push(Row { line, ..Row::default() });
            continue;
        }
        let row = rows.last_mut().expect("a story begins with a line that is typed");
        let (what, rest) = line.trim().split_once(' ').unwrap();
        match what {
            "exit" => row.exit = rest.parse().unwrap(),
            "try" => row.offers.push(rest),
            "says" => row.says.push(rest),
            "all" => row.all = Some(rest),
            "json" => row.json.push(rest.split_once(' ').unwrap()),
            _ => panic!("{line}"),
        }
    }
    rows
}

impl Row<'_> {
    fn play(&self, machine: &Machine) {
        let line = self.line;
        let words = machine.words(line);
        let mut words: Vec<&str> = words[1..].iter().map(String::as_str).collect();
        if self.json.is_empty() || !self.says.is_empty() || self.all.is_some() {
            let ran = machine.weft(&words);
            assert_eq!(ran.exit as u8, self.exit, "{line}: {}{}", ran.out, ran.err);
            let told = if self.exit == 0 { &ran.out } else { &ran.err };
            for says in &self.says {
                assert!(told.contains(&machine.place(says)), "{line}: {says}: {told}");
            }
            if let Some(all) = self.all {
                assert_eq!(*told, machine.place(all) + "\n", "{line}");
            }
            if self.exit == 0 {
                assert_eq!(ran.err, "", "{line}");
            } else if !self.offers.is_empty() {
                let offered = ran.offered(&words, ran.exit);
                assert!(self.offers.iter().all(|offer| offered.contains(&machine.place(offer))), "{line}: {offered}");
            }
        }
        if !self.json.is_empty() {
            words.push("--json");
            let ran = machine.weft(&words);
            assert_eq!(ran.exit as u8, self.exit, "{line}: {}{}", ran.out, ran.err);
            let value: Value =
                serde_json::from_str(&ran.out).unwrap_or_else(|error| panic!("{line}: {error}: {ran:?}"));
            for (at, expected) in &self.json {
                let expected: Value = serde_json::from_str(&machine.place(expected)).unwrap();
                assert_eq!(value.pointer(at), Some(&expected), "{line}: {at}: {value:#}");
            }
        }
    }
}

/// What is wrong to ask for in a pool `tank` of four disks with `tank/media`, about pools and virtual disks.
pub const WRONG: &str = "
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
weft vdisk create tank/v --size 1GiB --write-cache 1GiB
    exit 3
    try weft vdisk create tank/v --size 1GiB
weft vdisk create tank/v --size 1GiB --disks d1,d7
    exit 4
    try weft disk list --pool tank
weft vdisk create tank/v --size 1GiB --disks d1,d2 --resiliency parity
    exit 3
    try weft vdisk create tank/v --size 1GiB --resiliency mirror --copies 2
weft vdisk create tank/media --size 1GiB
    exit 3
    try weft vdisk create tank/media2 --size 1GiB
weft vdisk create tank/v --size 9TiB --fixed
    exit 5
    try weft vdisk create tank/v --size max --fixed
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
pub const WRONG_UPKEEP: &str = "
weft job
    exit 2
    try weft job --help
weft job show
    exit 2
    try weft job show tank/3
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
