//! Claims about arrays that were written to before: overwritten, encrypted, emptied, forgotten for weeks.

use super::lab::{BEFORE, Case, Disk, GIB, MIB, OFF, course, gb, mb};
use super::{Claim, Found, Lab, Verdict, factor};
use crate::files::Files;
use crate::page_cache::PageCache;
use crate::volume::Volume;
use crate::workload::{Ask, Trace, drive, extents, in_order};
use std::rc::Rc;
use weft_sim::rng::Rng;

const SILENT: Disk = Disk::Hdd(150);

/// Every claim about used arrays.
pub(super) const CLAIMS: &[Claim] = &[
    Claim { id: "Q10", about: "the right settings, and yet", says: "about 1 GB/s, then 1 MB/s at most", find: burst },
    Claim {
        id: "Q12",
        about: "4 disks: default, aligned, with BitLocker",
        says: "30, about 200, 30 MB/s",
        find: encrypted_four,
    },
    Claim { id: "Q14", about: "5 columns, 16 KiB, aligned: weeks later", says: "500, then 30 MB/s", find: weeks_later },
    Claim {
        id: "Q15",
        about: "reads from the disks while 4 TB are written",
        says: "0.5 to 1 TB read, all the time",
        find: reads_of_writes,
    },
    Claim {
        id: "Q16",
        about: "ReFS, aligned: until the volume is full; after a delete; after a new format",
        says: "fast, slow, fast",
        find: after_a_delete,
    },
    Claim {
        id: "Q23",
        about: "5 columns, aligned: without BitLocker and with it; mirrors",
        says: "fast, slow; mirrors do not care",
        find: encrypted_five,
    },
    Claim {
        id: "Q26",
        about: "4 x 4 TB, 3 columns, 32 KiB, half full: 137 GB, and the same once more",
        says: "400 to 450 MiB/s, later 200 to 250; 20 MiB/s",
        find: the_same_again,
    },
    Claim {
        id: "Q29",
        about: "5 x 4 TB: a copy over the network, weeks later",
        says: "120 MB/s for 5 GB, then few MB/s, or nothing",
        find: knee_of_a_copy,
    },
    Claim {
        id: "Q38",
        about: "5 x 8 TB, aligned, from an NVMe disk; disks of 200 MB/s",
        says: "30 to 700 MB/s by turns",
        find: erratic,
    },
    Claim {
        id: "Q41",
        about: "4 disks in a virtual machine, 3 columns, 32 KiB",
        says: "390, then 65 MB/s",
        find: in_a_vm,
    },
    Claim {
        id: "Q64",
        about: "the first pass over a thin mirror",
        says: "slower than the later ones",
        find: first_pass,
    },
];

/// A copy through memory of the machine, from a source of so many bytes per second.
fn copied(volume: Rc<dyn Volume>, at: u64, bytes: u64, memory: u64, source: u64) -> Trace {
    let cached: Rc<dyn Volume> = Rc::new(PageCache::new(volume, memory, source));
    drive(&cached, in_order(at, bytes, MIB), 1, None, true)
}

/// What is seen most of the time: of all two seconds after so many bytes, and before the last flush, half moved more.
fn typical(trace: &Trace, after: u64) -> f64 {
    let spans = trace.spans((trace.nanos / 2_000_000_000).max(2) as usize);
    let step = trace.nanos as f64 / spans.len() as f64 / 1e9;
    let mut moved = 0.0;
    let mut later: Vec<f64> = spans
        .iter()
        .filter(|rate| {
            moved += **rate * step;
            moved > after as f64 && moved < trace.bytes as f64
        })
        .copied()
        .collect();
    later.sort_by(f64::total_cmp);
    later.get(later.len() / 2).copied().unwrap_or(0.0)
}

fn burst(lab: &Lab) -> Found {
    let case = Case::parity(SILENT, 5, 5, 1, 16);
    let run = |make: &dyn Fn(Case) -> Rc<dyn Volume>, gib: u64| {
        let volume = make(case);
        drive(&volume, in_order(0, gib * GIB, MIB), 1, None, true);
        vec![copied(volume, 0, gib * GIB, GIB, 1_000_000_000)]
    };
    let model = lab.once("Q10 spaces", || run(&Case::space, 6));
    let ours = lab.once("Q10 weft", || run(&Case::weft, 3));
    let words = |trace: &Trace| {
        let (seen, all) = (typical(trace, 2 * GIB), trace.rate());
        format!("{}, then most of the time {}; {} over all", mb(trace.rate_until(BEFORE)), mb(seen), mb(all))
    };
    let figures = [(1e9, 1e9, model[0].rate_until(BEFORE)), (0.0, 1e6, typical(&model[0], 2 * GIB))];
    let note = "A used array behind 1 GiB of memory, from a source of 1 GB/s: assumed. What a person sees is compared: \
                the median of all two seconds after the burst. While the cache is emptied nothing moves, and that is \
                most of the time; the average is far more than the source says.";
    Found::new(words(&model[0]), words(&ours[0]), factor(&figures), note)
        .with([course("Storage Spaces, model", &model[0]), course("weft", &ours[0])])
}

/// Every sector is written once, as by encryption of a volume in use; then a copy to it.
fn encrypted(volume: Rc<dyn Volume>, gib: u64) -> Vec<Trace> {
    let sectors = (0..gib * 1024).flat_map(|nth| [Ask::Read(nth * MIB, MIB), Ask::Write(nth * MIB, MIB)]);
    let pass = drive(&volume, sectors, 1, None, true);
    vec![pass, drive(&volume, in_order(0, gib * GIB, MIB), 1, None, true)]
}

fn encrypted_four(lab: &Lab) -> Found {
    let (default, better) = (Case::parity(SILENT, 4, 4, 1, 256), Case::parity(SILENT, 4, 3, 1, 32));
    let model = lab.once("Q12 spaces", || encrypted(better.space(), 8));
    let ours = lab.once("Q12 weft", || encrypted(better.weft(), 2));
    let shifted = lab.spaces(better, OFF, 8)[0].rate_after(GIB);
    let rates =
        [lab.spaces(default, OFF, 8)[0].rate_after(GIB), lab.spaces(better, 0, 8)[0].rate(), model[1].rate_after(GIB)];
    let weft = [lab.weft(default)[0].rate(), lab.weft(better)[0].rate(), ours[1].rate()];
    let words = |of: [f64; 3]| of.map(|rate| format!("{:.0}", rate / 1e6)).join(", ") + " MB/s";
    let spaces = format!("{} (requests shifted by 20 KiB on a new space: {})", words(rates), mb(shifted));
    let figures = [(30e6, 30e6, rates[0]), (200e6, 200e6, rates[1]), (30e6, 30e6, rates[2])];
    let note = "What BitLocker does to requests is not known. Either way leads to the cache: all stripes consistent \
                because every sector was written, or requests off the stripes. The aligned rate of the source may be \
                its disks' or the source's of the copy.";
    Found::new(spaces, words(weft), factor(&figures), note)
}

fn encrypted_five(lab: &Lab) -> Found {
    let case = Case::parity(SILENT, 5, 5, 1, 16);
    let (model, ours) =
        (lab.once("Q23 spaces", || encrypted(case.space(), 8)), lab.once("Q23 weft", || encrypted(case.weft(), 2)));
    let mirror = lab.once("Q23 mirror", || encrypted(Case::plain(SILENT, 2, 2).space(), 4));
    let plain = lab.spaces(Case::plain(SILENT, 2, 2), 0, 4)[0].rate();
    let (off, on) = (lab.spaces(case, 0, 8)[0].rate(), model[1].rate_after(GIB));
    let unmoved = mirror[1].rate() / plain;
    let spaces = format!("{}, {}; a mirror keeps {:.0} %", mb(off), mb(on), unmoved * 100.0);
    let weft = format!("{}, {}", mb(lab.weft(case)[0].rate()), mb(ours[1].rate()));
    let verdict = Verdict::Order(on < off / 4.0 && unmoved > 0.9);
    Found::new(spaces, weft, verdict, "Every sector written once, as in Q12.")
}

fn weeks_later(lab: &Lab) -> Found {
    let case = Case::parity(SILENT, 5, 5, 1, 16);
    // A quarter of the disks is in use.
    let (model, ours) = (lab.behind(case, 3600, 8), lab.weft(case));
    let rates = [model[0].rate(), model[1].rate_after(GIB)];
    let words = |of: [f64; 2]| format!("{}, then {}", mb(of[0]), mb(of[1]));
    let note = "Weeks later means here: the file system uses places again. How far in the data lie is assumed, a \
                quarter of the disks.";
    Found::new(
        words(rates),
        words([ours[0].rate(), ours[1].rate()]),
        factor(&[(500e6, 500e6, rates[0]), (30e6, 30e6, rates[1])]),
        note,
    )
    .with([
        course("Storage Spaces, new, then again", &model[0].clone().then(model[1].clone())),
        course("weft, the same", &ours[0].clone().then(ours[1].clone())),
    ])
}

fn reads_of_writes(lab: &Lab) -> Found {
    let case = Case::parity(SILENT, 5, 5, 1, 16);
    let (model, ours) = (lab.spaces(case, 0, 8), lab.weft(case));
    let small = lab.once("Q15", || {
        let volume = case.space();
        drive(&volume, in_order(0, 4 * GIB, MIB), 1, None, true);
        let files = (0..2048).map(|nth| Ask::Write(nth * 2 * MIB + OFF, 100 << 10));
        vec![drive(&volume, files, 1, None, true)]
    });
    let share = |trace: &Trace| 4.0 * trace.disk_read as f64 / trace.bytes as f64;
    let (new, used) = (share(&model[0]), share(&model[1]));
    let spaces = format!(
        "{new:.2} TB in new places, {used:.2} TB in used ones, {:.2} TB with small files in used ones",
        share(&small[0])
    );
    let weft = format!("{:.2} and {:.2} TB", share(&ours[0]), share(&ours[1]));
    let note = "What is read back from the cache, and the rest of stripes cached in part. A mixture of one part used \
                and four to seven parts new gives the figures of the source; which it was is not known.";
    Found::new(spaces, weft, Verdict::Order(new < 0.5 && used > 1.0), note).with([
        course("Storage Spaces, new places, then used ones", &model[0].clone().then(model[1].clone())),
        course("small files in used places", &small[0]),
        course("weft, new places, then used ones", &ours[0].clone().then(ours[1].clone())),
    ])
}

/// Files until the volume is full; three are deleted and three written; then a new format and three again.
fn age(volume: Rc<dyn Volume>, gib: u64, file: u64) -> Vec<Trace> {
    let (mut files, mut rng) = (Files::new(0..gib * GIB, 64 << 10), Rng::new(5));
    let mut count = 0;
    let mut places = Vec::new();
    while files.free_bytes() > 2 * file {
        places.extend(files.create(file + rng.below(file)));
        count += 1;
    }
    let fill = drive(&volume, extents(places, MIB), 1, None, true);
    let forget = |extents: Vec<std::ops::Range<u64>>| {
        let asks = extents.into_iter().map(|range| Ask::Forget(range.start, range.end - range.start));
        drive(&volume, asks, 1, None, true);
    };
    let mut freed = 0;
    for nth in [count / 4, count / 2, count / 4 * 3 - 2] {
        let extents = files.delete(nth);
        freed += extents.iter().map(|range| range.end - range.start).sum::<u64>();
        forget(extents);
    }
    let again = drive(&volume, extents(files.create(freed), MIB), 1, None, true);
    let everything = 0..gib * GIB;
    forget(vec![everything]);
    let mut files = Files::new(0..gib * GIB, 64 << 10);
    let fresh = drive(&volume, extents(files.create(freed), MIB), 1, None, true);
    vec![fill, again, fresh]
}

fn after_a_delete(lab: &Lab) -> Found {
    let case = Case::parity(SILENT, 5, 5, 1, 16);
    let model = lab.once("Q16 spaces", || age(case.space(), 100, 900 * MIB));
    let ours = lab.once("Q16 weft", || age(case.weft(), 3, 128 * MIB));
    let words = |of: &[Trace]| {
        of.iter().map(|trace| format!("{:.0}", trace.rate() / 1e6)).collect::<Vec<_>>().join(", ") + " MB/s"
    };
    let rates: Vec<f64> = model.iter().map(Trace::rate).collect();
    let holds = rates[0] > 4.0 * rates[1] && rates[2] > 4.0 * rates[1];
    let all = |of: &[Trace]| of[1].clone().then(of[2].clone());
    let note = "100 GiB, thin, files of 0.9 to 1.8 GB; on weft 3 GiB, files of 128 to 256 MiB. A file does not fill a \
                row of slabs, so TRIM gives back what it covers wholly only; a new format gives back everything. On a \
                fixed space the model stays slow after a new format, too.";
    Found::new(words(&model), words(&ours), Verdict::Order(holds), note).with([
        course("Storage Spaces, after the delete, after the format", &all(&model)),
        course("weft, the same", &all(&ours)),
    ])
}

fn the_same_again(lab: &Lab) -> Found {
    let case = Case::parity(Disk::Hdd(210), 4, 3, 1, 32);
    let model = lab.behind(case, 2058, 32);
    let ours = lab.weft(case);
    let mib = MIB as f64;
    let [new, again] = [model[0].rate(), model[1].rate_after(GIB)];
    let words = |new: f64, again: f64| format!("{:.0} MiB/s; again {:.0} MiB/s", new / mib, again / mib);
    let note = "Disks of 200 MiB/s as in Q25, 2.21 TB in front of it; 32 GiB are enough for the rates. The memory of \
                the machine is left out; that the second half was slower is not explained.";
    let figures = [(400.0 * mib, 450.0 * mib, new), (20.0 * mib, 20.0 * mib, again)];
    let part = lab.behind(case, 2058, 8);
    Found::new(words(new, again), words(ours[0].rate(), ours[1].rate()), factor(&figures), note).with([
        course("Storage Spaces, 8 GiB, then again", &part[0].clone().then(part[1].clone())),
        course("weft, 1 GiB, then again", &ours[0].clone().then(ours[1].clone())),
    ])
}

fn knee_of_a_copy(lab: &Lab) -> Found {
    let case = Case::parity(SILENT, 5, 5, 1, 16);
    let wire = 120_000_000;
    let run = |memory: u64| {
        let volume = case.space_behind(4600);
        drive(&volume, in_order(0, 10 * GIB, MIB), 1, None, true);
        vec![copied(volume, 0, 10 * GIB, memory, wire)]
    };
    let bare = lab.once("Q29 bare", || run(8 * MIB));
    let behind = lab.once("Q29 behind", || run(4 * GIB));
    let ours = lab.once("Q29 weft", || {
        let volume = case.weft();
        drive(&volume, in_order(OFF, 3 * GIB, MIB), 1, None, true);
        vec![copied(volume, OFF, 3 * GIB, 8 * MIB, wire)]
    });
    let knee = |trace: &Trace| trace.knee().map_or("no knee".into(), |at| format!("knee at {}", gb(at)));
    let seen = typical(&behind[0], 6 * GIB);
    let spaces = format!(
        "{}, {}, then most of the time {} ({} on average); without memory in front {}, then {}",
        mb(behind[0].rate_until(4 * GIB)),
        knee(&behind[0]),
        mb(seen),
        mb(behind[0].rate_after(6 * GIB)),
        knee(&bare[0]),
        mb(bare[0].rate_after(GIB + GIB / 2)),
    );
    let weft = format!("{}, {}", mb(ours[0].rate()), knee(&ours[0]));
    let found = behind[0].knee().unwrap_or(u64::MAX) as f64;
    let note = "The knee of the cache alone is at 1 GiB; the machine's memory in front of it moves the knee by its own \
                size. How much there was is not stated: 4 GiB, half of a machine of 8 GiB, are assumed. What a person \
                sees is compared (the median of all two seconds), as the source says \"few MB/s or a stall\".";
    let figures = [(120e6, 120e6, behind[0].rate_until(4 * GIB)), (5e9, 5e9, found), (0.0, 9e6, seen)];
    Found::new(spaces, weft, factor(&figures), note).with([
        course("Storage Spaces, model", &bare[0]),
        course("behind 4 GiB of memory", &behind[0]),
        course("weft", &ours[0]),
    ])
}

fn erratic(lab: &Lab) -> Found {
    let case = Case::parity(Disk::Hdd(200), 5, 5, 1, 16);
    let run = |make: &dyn Fn(Case) -> Rc<dyn Volume>, files: u64, gap: u64| {
        let volume = make(case);
        // Every second place was used before, by files of that size.
        let used = (0..files).map(|nth| nth * 2 * gap..(nth * 2 + 1) * gap).collect();
        drive(&volume, extents(used, MIB), 1, None, true);
        vec![drive(&volume, in_order(0, files * 2 * gap, MIB), 1, None, true)]
    };
    let model = lab.once("Q38 spaces", || run(&Case::space, 4, GIB));
    let ours = lab.once("Q38 weft", || run(&Case::weft, 2, 512 * MIB));
    let range = |trace: &Trace| {
        let spans = trace.spans((trace.nanos / 2_000_000_000).max(2) as usize);
        let inner = &spans[..spans.len() - 1];
        (inner.iter().fold(f64::MAX, |a, b| b.min(a)), inner.iter().fold(0.0, |a: f64, b| a.max(*b)))
    };
    let words = |(low, high): (f64, f64)| format!("{:.0} to {}", low / 1e6, mb(high));
    let (low, high) = range(&model[0]);
    let note = "Every second gigabyte goes to a place that was used before: assumed. Rates over two seconds.";
    Found::new(words((low, high)), words(range(&ours[0])), Verdict::Order(low < 40e6 && high > 450e6), note)
        .with([course("Storage Spaces, model", &model[0]), course("weft", &ours[0])])
}

fn in_a_vm(lab: &Lab) -> Found {
    let case = Case::parity(SILENT, 4, 3, 1, 32);
    let (model, ours) = (lab.spaces(case, 0, 8), lab.weft(case));
    let rates = [model[0].rate(), model[1].rate_after(GIB)];
    let words = |of: [f64; 2]| format!("{}, then {}", mb(of[0]), mb(of[1]));
    let figures = [(390e6, 390e6, rates[0]), (65e6, 65e6, rates[1])];
    let note = "New places, then used ones; the virtual machine's own layers are left out.";
    Found::new(words(rates), words([ours[0].rate(), ours[1].rate()]), factor(&figures), note)
}

fn first_pass(lab: &Lab) -> Found {
    let case = Case::plain(Disk::Red, 2, 1);
    let (model, ours) = (lab.spaces(case, OFF, 4), lab.weft(case));
    let ratio = |of: &[Trace]| of[0].rate() / of[1].rate();
    let words = |of: &[Trace]| format!("{:.3} of the second", ratio(of));
    let note = "One update of the pool's database for each row, and one of the dirty-region log, are all that is \
                known to be different; the source gives no figure.";
    Found::new(words(&model), words(&ours), Verdict::Order(ratio(&model) < 0.995), note)
}
