//! Claims about small requests: random writes, write-through, caches on solid-state disks.

use super::lab::{Case, Disk, GIB, MIB, OFF, mb};
use super::{Claim, Found, Lab, Verdict, factor};
use crate::command_line::Line;
use crate::jobs::Job;
use crate::spaces::cache::Style;
use crate::spaces::{Space, Spec};
use crate::volume::{Flash, Volume};
use crate::workload::{Ask, Trace, at_random, drive, in_order};
use std::rc::Rc;
use weft_engine::units::Nanos;
use weft_sim::rng::Rng;

const SILENT: Disk = Disk::Hdd(150);

/// Every claim about small requests.
pub(super) const CLAIMS: &[Claim] = &[
    Claim {
        id: "Q17",
        about: "10 SAS disks, dual parity, 10 columns, 16 KiB: reads in order; writes",
        says: "4000; \"1 Mbps\" (units as reported)",
        find: ten_disks,
    },
    Claim {
        id: "Q18",
        about: "`diskspd -w100 -b4K -r -F8 -o32 -Sh`, 2 GB: one disk, dual parity of 10, simple of 10",
        says: "2.5, 1.5, 26 MiB/s",
        find: diskspd,
    },
    Claim {
        id: "Q39",
        about: "the disks' write caches off, an aligned copy",
        says: "5 to 6 MB/s",
        find: without_disk_cache,
    },
    Claim {
        id: "Q57",
        about: "`SQLIO -kW -s30 -frandom -b64 -t1 -o1`: cache of 5 GB on 2 SSDs; 8 disks of 10,000 rpm without",
        says: "2259 and 197 per second, 11.4 times",
        find: sqlio,
    },
    Claim {
        id: "Q61",
        about: "one SSD, 4 KiB writes, 32 at once: raw; default cache; cache of 50 GB",
        says: "170, 2, 160 MB/s",
        find: one_ssd,
    },
    Claim {
        id: "Q62",
        about: "8 SSDs and 16 disks, mirrors of 4 columns, cache of 5 GB: random writes",
        says: "0.5 to 2 MB/s",
        find: random_behind_cache,
    },
    Claim {
        id: "Q63",
        about: "a file server's load on 500 MB, 5400 rpm: mirror beside parity",
        says: "the mirror does 70 % more",
        find: file_server,
    },
    Claim {
        id: "Q67",
        about: "writes of 512 bytes to logical sectors of 4 KiB, beside sectors of 512",
        says: "about 1/4 of the rate, 8 times the latency",
        find: small_sectors,
    },
];

fn ten_disks(_: &Lab) -> Found {
    let run = |volume: Rc<dyn Volume>, over: u64| {
        drive(&volume, in_order(0, over, MIB), 4, None, true);
        let read = drive(&volume, (0..over / MIB).map(|nth| Ask::Read(nth * MIB, MIB)), 16, None, false);
        let write = drive(&volume, at_random(2, over, 4096, Ask::WriteThrough), 1, Some(Nanos::secs(20)), false);
        (read.rate(), write.rate())
    };
    let case = Case::parity(SILENT, 10, 10, 2, 16);
    let (model, ours) = (run(case.space(), 8 * GIB), run(case.weft(), 2 * GIB));
    let words = |(read, write): (f64, f64)| {
        format!("{}; random, one at a time, durable: {}; {:.0} times", mb(read), mb(write), read / write)
    };
    let note = "What was run is not stated; small random writes, one at a time, are assumed. Compared is what no unit \
                changes: whether reads are a thousand times writes and more (4000 in the source). As megabits, which \
                \"Mbps\" says, its figures are 500 and 0.13 MB/s: reads of the model are more than twice that. As \
                megabytes 4000 are more than ten such disks read.";
    Found::new(words(model), words(ours), Verdict::Order(model.0 > 1000.0 * model.1), note)
}

/// Fills the file, then runs the line on it.
fn line(volume: &Rc<dyn Volume>, text: &str, file: u64, seconds: u64) -> Trace {
    let line: Line = text.parse().expect("the claims' lines are understood");
    drive(volume, in_order(0, file, MIB), 4, None, true);
    line.run(volume, file, Some(line.span.unwrap_or(Nanos::secs(seconds))))
}

fn diskspd(lab: &Lab) -> Found {
    let command = "diskspd -w100 -b4K -r -F8 -o32 -Sh";
    let cases = [Case::plain(SILENT, 1, 1), Case::parity(SILENT, 10, 10, 2, 16), Case::plain(SILENT, 1, 10)];
    let run = |of: &dyn Fn(Case) -> Rc<dyn Volume>, seconds| {
        cases.iter().map(|case| line(&of(*case), command, 2 * GIB, seconds)).collect()
    };
    let model = lab.once("Q18 spaces", || run(&Case::space, 30));
    let ours = lab.once("Q18 weft", || run(&Case::weft, 30));
    let rates = |of: &[Trace]| -> [f64; 3] { std::array::from_fn(|nth| of[nth].rate() / MIB as f64) };
    let words = |of: &[Trace]| rates(of).map(|rate| format!("{rate:.1}")).join(", ") + " MiB/s";
    let [one, dual, ten] = rates(&model);
    let figures = [(2.5, 2.5, one), (1.5, 1.5, dual), (26.0, 26.0, ten)];
    let note = "Durable writes are write-through commands, which a disk sorts; 32 fit into its queue.";
    Found::new(words(&model), words(&ours), factor(&figures), note)
}

fn without_disk_cache(lab: &Lab) -> Found {
    let run = |disk, depth| {
        let case = Case::parity(disk, 5, 5, 1, 16);
        drive(&case.space(), in_order(0, GIB, MIB), depth, None, true).rate()
    };
    let model = run(Disk::Uncached, 1);
    let small =
        drive(&Case::parity(Disk::Uncached, 5, 5, 1, 16).space(), in_order(0, GIB / 4, 64 << 10), 1, None, true);
    let ours = lab.once("Q39", || {
        let case = Case::parity(Disk::Uncached, 5, 5, 1, 16);
        vec![drive(&case.weft(), in_order(OFF, GIB, MIB), 1, None, true)]
    });
    let spaces = format!("{} with requests of 1 MiB, {} of 64 KiB", mb(model), mb(small.rate()));
    let note = "Five disks assumed. Each request waits for its data and for its slot; which requests reached the \
                space is not stated.";
    Found::new(spaces, mb(ours[0].rate()), factor(&[(5e6, 6e6, model)]), note)
}

fn sqlio(_: &Lab) -> Found {
    let command = "SQLIO -kW -s30 -frandom -b64 -t1 -o1";
    let disks: Vec<_> = [Disk::Fast10k.times(8), Disk::SasSsd.times(2)].concat();
    let mirror = |columns| Case::plain(Disk::Fast10k, 2, columns).spec();
    let cached =
        Spec { disks, data: vec![8, 9], cache: Some((5 * GIB, vec![8, 9])), style: Style::Levels, ..mirror(1) };
    let run = |volume: Rc<dyn Volume>, file| line(&volume, command, file, 30).per_second();
    let model = [run(Rc::new(Space::new(&cached)), 8 * GIB), run(Rc::new(Space::new(&mirror(4))), 8 * GIB)];
    let case = Case::plain(Disk::Fast10k, 2, 4);
    let behind = case.weft_behind(Disk::SasSsd, 2, Flash::Cache(5 * GIB));
    let ours = [run(behind, 4 * GIB), run(case.weft(), 4 * GIB)];
    let ratio = model[0] / model[1];
    let spaces = format!("{:.0} and {:.0} per second, {ratio:.1} times", model[0], model[1]);
    let figures = [(2259.0, 2259.0, model[0]), (197.0, 198.0, model[1]), (11.4, 11.5, ratio)];
    let note = "The volume has 50 GB of its SSDs as a tier, where new data are taken to go. SSDs on shared SAS are \
                taken to keep what they have taken over a power cut. With those of the other claims, whose flush \
                takes 1 ms, the first figure would be far lower. Weft sends such disks no flush. Behind SSDs weft's \
                log has 1 GiB, as pools of such disks have it; here without them, and in other rows, 128 MiB.";
    let weft = format!("{:.0} and {:.0} per second, {:.1} times", ours[0], ours[1], ours[0] / ours[1]);
    Found::new(spaces, weft, factor(&figures), note)
}

fn one_ssd(_: &Lab) -> Found {
    let simple = Case::plain(Disk::M4, 1, 1);
    // The second half: what an empty cache takes at first is over then.
    let run = |volume: Rc<dyn Volume>| {
        drive(&volume, at_random(1, 16 * GIB, 4096, Ask::Write), 32, Some(Nanos::secs(14)), false).spans(2)[1]
    };
    let with = |size: u64| -> Rc<dyn Volume> {
        let cache = Some((size, vec![0]));
        Rc::new(Space::new(&Spec { cache, style: Style::Levels, ..simple.spec() }))
    };
    let model = [run(simple.space()), run(with(GIB)), run(with(50 * GIB))];
    // Interleaves: what weft chooses on solid-state disks, and stripes of one block each (class log).
    let ours = [(64, 8, 14), (4, 2, 8)].map(|(interleave, gib, seconds)| {
        let volume = Case { interleave, ..simple }.weft();
        drive(&volume, in_order(0, gib * GIB, MIB), 4, None, true);
        drive(&volume, at_random(1, gib * GIB, 4096, Ask::Write), 32, Some(Nanos::secs(seconds)), false).spans(2)
    });
    let weft = format!(
        "{:.0}, then {:.0} MB/s; with `--class log --unit 4KiB` {:.0}, then {:.0} MB/s",
        ours[0][0] / 1e6,
        ours[0][1] / 1e6,
        ours[1][0] / 1e6,
        ours[1][1] / 1e6
    );
    let words = format!("{:.0}, {:.1}, {:.0} MB/s", model[0] / 1e6, model[1] / 1e6, model[2] / 1e6);
    let figures = [(170e6, 170e6, model[0]), (2e6, 2e6, model[1]), (160e6, 160e6, model[2])];
    let note = "What the SSD does raw is from the source. Chunks are 256 KiB, so that 1 GiB holds 4096 of them \
                however little each has; then a write waits until one was destaged, with a flush of 1 ms and a \
                record, both inferred. 50 GB are not full yet. On weft 8 GiB are full before, and 2 with short \
                stripes.";
    Found::new(words, weft, factor(&figures), note)
}

fn random_behind_cache(_: &Lab) -> Found {
    let case = Case::plain(SILENT, 2, 4);
    let disks: Vec<_> = [SILENT.times(16), Disk::SasSsd.times(8)].concat();
    let cache = Some((5 * GIB, (16..24).collect()));
    let spec = Spec { disks, data: (0..16).collect(), cache, style: Style::Levels, ..case.spec() };
    let volume: Rc<dyn Volume> = Rc::new(Space::new(&spec));
    let load = |volume: &Rc<dyn Volume>, over, seconds| {
        drive(volume, at_random(1, over, 4096, Ask::WriteThrough), 32, Some(Nanos::secs(seconds)), false)
    };
    let model = load(&volume, 200 * GIB, 20);
    let case = Case { disks: 16, ..case };
    let alone = load(&case.weft(), 60 * GIB, 10);
    let ours = load(&case.weft_behind(Disk::SasSsd, 8, Flash::Cache(5 * GIB)), 60 * GIB, 80);
    let last = *model.spans(4).last().expect("there are four");
    let words = format!("{} at first, {} after 15 s", mb(model.spans(30)[0]), mb(last));
    let note = "4 KiB, 32 at once, durable, over 200 GiB: assumed. Chunks are whole stripes (1 MiB), so that 5 GB \
                hold 5000 of them: the cache is full soon, and what lasts is what the hard disks take.";
    let spans = ours.spans(4);
    let weft =
        format!("{} at first, {} after 60 s; {} on the 16 disks alone", mb(spans[0]), mb(spans[3]), mb(alone.rate()));
    Found::new(words, weft, factor(&[(0.5e6, 2e6, last)]), note)
}

fn file_server(_: &Lab) -> Found {
    let job = &Job::read("passmark-file-server").expect("it is a name")[0];
    let run = |volume: Rc<dyn Volume>| {
        drive(&volume, in_order(0, 500 * MIB, MIB), 1, None, true);
        job.run(&volume, 500 * MIB).expect("it fits").rate()
    };
    let cases = [Case::plain(Disk::Red, 2, 2), Case::parity(Disk::Red, 4, 4, 1, 256)];
    let model = cases.map(|case| run(case.space()));
    let ours = cases.map(|case| run(case.weft()));
    let words = |of: [f64; 2]| format!("{} beside {}, {:.2} times", mb(of[0]), mb(of[1]), of[0] / of[1]);
    let note = "Four disks; 80 % reads, 16 KiB, two at once: assumed. That parity suffers more when both run \
                together is not repeated: the model has one space to a pool.";
    Found::new(words(model), words(ours), factor(&[(1.7, 1.7, model[0] / model[1])]), note)
}

/// Writes smaller than a sector: each is read, changed and written.
fn read_and_write(seed: u64, over: u64) -> impl Iterator<Item = Ask> + 'static {
    let mut rng = Rng::new(seed);
    let mut second = None;
    std::iter::repeat_with(move || match second.take() {
        Some(at) => Ask::WriteThrough(at, 4096),
        None => {
            let at = rng.below(over >> 12) << 12;
            second = Some(at);
            Ask::Read(at, 4096)
        }
    })
}

fn small_sectors(_: &Lab) -> Found {
    let case = Case::plain(SILENT, 1, 1);
    let run = |volume: &Rc<dyn Volume>, asks: Box<dyn Iterator<Item = Ask>>, seconds| {
        drive(volume, in_order(0, GIB, MIB), 4, None, true);
        drive(volume, asks, 1, Some(Nanos::secs(seconds)), false).per_second()
    };
    let one = run(&case.space(), Box::new(at_random(1, GIB, 512, Ask::WriteThrough)), 30);
    // Each is two requests.
    let two = run(&case.space(), Box::new(read_and_write(1, GIB)), 30) / 2.0;
    let small = |sector, len| {
        let volume: Rc<dyn Volume> = case.weft_with(sector);
        run(&volume, Box::new(at_random(1, GIB, len, Ask::WriteThrough)), 10)
    };
    let ours = small(512, 512) / small(512, 4096);
    let spaces = format!("1/{:.1} of the rate, {:.1} times the latency", one / two, one / two);
    let note = "Random, durable, one at a time, on one disk. The drive's own emulation, which reads once more when \
                it is not aligned, is not modelled.";
    let weft = format!("{ours:.2} of the rate of writes of 4 KiB");
    Found::new(spaces, weft, factor(&[(4.0, 4.0, one / two), (8.0, 8.0, one / two)]), note)
}
