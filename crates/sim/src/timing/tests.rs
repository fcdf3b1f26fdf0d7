//! The models against the classes they are named after, and against what the engine's policies rely on.

use super::*;
use crate::rng::Rng;
use std::fmt::Write;

const KIB4: ByteCount = ByteCount::kib(4);

/// Keeps `depth` operations under way for `span`; what completed after `warm_up`, per second of virtual time.
fn per_second(timing: &mut dyn Timing, depth: u64, warm_up: Nanos, span: Nanos, mut op: impl FnMut() -> Op) -> f64 {
    let (mut now, mut id, mut counted) = (Nanos(0), 0, 0u64);
    let mut done = Vec::new();
    while id < depth {
        timing.submit(now, id, op());
        id += 1;
    }
    while let Some(at) = timing.next().filter(|at| *at <= warm_up + span) {
        assert!(at >= now, "time goes forward");
        now = at;
        timing.advance(now, &mut done);
        for _ in done.drain(..) {
            counted += u64::from(now > warm_up);
            timing.submit(now, id, op());
            id += 1;
        }
    }
    counted as f64 * 1e9 / span.0 as f64
}

/// Gives [`per_second`] in MB/s, for operations of `len` bytes one after the other from `from`.
fn sequential(
    timing: &mut dyn Timing,
    depth: u64,
    from: u64,
    len: ByteCount,
    op: fn(DiskOffset, ByteCount) -> Op,
) -> f64 {
    let mut at = from;
    let next = || {
        at += len.0;
        op(DiskOffset(at - len.0), len)
    };
    per_second(timing, depth, Nanos::secs(2), Nanos::secs(4), next) * len.0 as f64 / 1e6
}

fn random(
    timing: &mut dyn Timing,
    depth: u64,
    capacity: ByteCount,
    warm_up: Nanos,
    op: fn(DiskOffset, ByteCount) -> Op,
) -> f64 {
    let mut rng = Rng::new(depth);
    let next = || op(DiskOffset(rng.below(capacity.0 / KIB4.0) * KIB4.0), KIB4);
    per_second(timing, depth, warm_up, Nanos(warm_up.0 / 2), next)
}

/// One line of the table, held against what the class is known for.
fn hold(table: &mut String, class: &str, what: &str, measured: f64, published: std::ops::RangeInclusive<f64>) {
    let (low, high) = (published.start(), published.end());
    let verdict = if published.contains(&measured) { "" } else { "   OUT OF RANGE" };
    writeln!(table, "{class:13} {what:30} {measured:10.1}   [{low} .. {high}]{verdict}").expect("a string grows");
}

#[test]
fn the_models_agree_with_the_drives_they_are_named_after() {
    let mut table = String::new();
    let class = HddClass::HDD_7200_8TB;
    let (name, size) = (class.name, class.capacity);
    let hdd = || Hdd::new(class.clone());
    let inner = size.0 - (20 << 30);
    let mib = ByteCount::mib(1);
    let mut line = |what, measured, range| hold(&mut table, name, what, measured, range);
    line("read MB/s outer", sequential(&mut hdd(), 4, 0, mib, Op::Read), 243.0..=255.0);
    line("read MB/s inner", sequential(&mut hdd(), 4, inner, mib, Op::Read), 110.0..=130.0);
    line("write MB/s outer", sequential(&mut hdd(), 4, 0, mib, Op::Write), 243.0..=255.0);
    line("write MB/s inner", sequential(&mut hdd(), 4, inner, mib, Op::Write), 110.0..=130.0);
    line("read 128 KiB MB/s depth 1", sequential(&mut hdd(), 1, 0, ByteCount::kib(128), Op::Read), 230.0..=255.0);
    let (brief, long) = (Nanos::secs(20), Nanos::secs(60));
    line("random read IOPS depth 1", random(&mut hdd(), 1, size, brief, Op::Read), 75.0..=88.0);
    line("random read IOPS depth 32", random(&mut hdd(), 32, size, brief, Op::Read), 160.0..=250.0);
    line("random write IOPS depth 1", random(&mut hdd(), 1, size, long, Op::Write), 250.0..=550.0);
    line("random write IOPS depth 32", random(&mut hdd(), 32, size, long, Op::Write), 250.0..=550.0);
    let sata = [540.0..=565.0, 515.0..=535.0, 12e3..=14e3, 93e3..=100e3, 33e3..=38e3, 83e3..=90e3];
    ssd_lines(&mut table, SsdClass::SATA_SSD, sata);
    let nvme = [3300.0..=3550.0, 3100.0..=3350.0, 17e3..=21e3, 300e3..=600e3, 55e3..=65e3, 300e3..=550e3];
    ssd_lines(&mut table, SsdClass::NVME_SSD, nvme);
    println!("{table}");
    assert!(!table.contains("OUT OF RANGE"), "\n{table}");
}

fn ssd_lines(table: &mut String, class: SsdClass, published: [std::ops::RangeInclusive<f64>; 6]) {
    let (size, second) = (class.capacity, Nanos::secs(1));
    let ssd = || Ssd::new(class.clone());
    let measured = [
        ("read MB/s", sequential(&mut ssd(), 32, 0, ByteCount::kib(128), Op::Read)),
        ("write MB/s", sequential(&mut ssd(), 32, 0, ByteCount::kib(128), Op::Write)),
        ("random read IOPS depth 1", random(&mut ssd(), 1, size, second, Op::Read)),
        ("random read IOPS depth 32", random(&mut ssd(), 32, size, second, Op::Read)),
        ("random write IOPS depth 1", random(&mut ssd(), 1, size, second, Op::Write)),
        ("random write IOPS depth 32", random(&mut ssd(), 32, size, second, Op::Write)),
    ];
    for ((what, measured), published) in measured.into_iter().zip(published) {
        hold(table, class.name, what, measured, published);
    }
}

/// The policies of the engine are judged by streams like these: several strips under way, not quite in order.
#[test]
fn a_hard_disk_writes_a_stream_at_its_media_rate_also_slightly_out_of_order() {
    for len in [ByteCount::kib(64), ByteCount::kib(96), ByteCount::kib(256), ByteCount::mib(1)] {
        for depth in [4, 8, 32] {
            for shuffled in [1, 4, 16] {
                let mut rng = Rng::new(depth);
                let (mut at, mut window) = (0, Vec::new());
                let next = || {
                    while window.len() < shuffled {
                        window.push(at);
                        at += len.0;
                    }
                    let choice = rng.below(window.len() as u64) as usize;
                    Op::Write(DiskOffset(window.swap_remove(choice)), len)
                };
                let mut hdd = Hdd::new(HddClass::HDD_7200_8TB);
                let rate = per_second(&mut hdd, depth, Nanos::secs(2), Nanos::secs(8), next) * len.0 as f64;
                assert!(rate >= 0.97 * 250e6, "{len} x {depth}, {shuffled} apart: {:.1} MB/s", rate / 1e6);
            }
        }
    }
}

#[test]
fn a_hard_disk_reads_a_stream_at_its_media_rate_also_slightly_out_of_order() {
    for len in [ByteCount::kib(64), ByteCount::kib(256), ByteCount::mib(1)] {
        for shuffled in [1, 4] {
            let mut rng = Rng::new(9);
            let (mut at, mut window) = (0, Vec::new());
            let next = || {
                while window.len() < shuffled {
                    window.push(at);
                    at += len.0;
                }
                let choice = rng.below(window.len() as u64) as usize;
                Op::Read(DiskOffset(window.swap_remove(choice)), len)
            };
            let rate = per_second(&mut Hdd::new(HddClass::HDD_7200_8TB), 8, Nanos::secs(1), Nanos::secs(4), next);
            let rate = rate * len.0 as f64;
            assert!(rate >= 0.95 * 250e6, "{len}, {shuffled} apart: {:.1} MB/s", rate / 1e6);
        }
    }
}

#[test]
fn a_hard_disk_swallows_bursts_with_gaps_as_long_as_the_media_keep_up_on_average() {
    // 16 MiB at once, out of order, every 70 ms: 240 MB/s of a disk of 250.
    let (mut hdd, mut rng, mut done) = (Hdd::new(HddClass::HDD_7200_8TB), Rng::new(2), Vec::new());
    let (len, burst) = (ByteCount::kib(128), 128);
    let mut now = Nanos(0);
    for round in 0..200 {
        let mut strips: Vec<u64> = (0..burst).collect();
        while !strips.is_empty() {
            let strip = round * burst + strips.swap_remove(rng.below(strips.len() as u64) as usize);
            hdd.submit(now, strip, Op::Write(DiskOffset(strip * len.0), len));
        }
        let until = now + Nanos::millis(70);
        while let Some(at) = hdd.next().filter(|at| *at <= until) {
            hdd.advance(at, &mut done);
        }
        now = until;
    }
    assert_eq!(done.len() as u64, 200 * burst, "it fell behind");
    hdd.submit(now, u64::MAX, Op::Flush);
    while done.last() != Some(&u64::MAX) {
        now = hdd.next().expect("the flush ends");
        hdd.advance(now, &mut done);
    }
    assert!(now < Nanos::millis(200 * 70 + 150), "the backlog is short: {now:?}");
}

#[test]
fn a_stream_flushed_once_a_second_keeps_nearly_all_of_its_rate() {
    let mut hdd = Hdd::new(HddClass::HDD_7200_8TB);
    let (mut at, mut ops, len) = (0, 0u64, ByteCount::kib(256));
    let next = || {
        ops += 1;
        if ops.is_multiple_of(1000) {
            return Op::Flush;
        }
        at += len.0;
        Op::Write(DiskOffset(at), len)
    };
    let rate = per_second(&mut hdd, 8, Nanos::secs(2), Nanos::secs(20), next) * len.0 as f64;
    assert!(rate >= 0.95 * 250e6, "{:.1} MB/s", rate / 1e6);
}

#[test]
fn a_flush_waits_for_everything_written_before_it() {
    let mut hdd = Hdd::new(HddClass::HDD_7200_8TB);
    let mut done = Vec::new();
    for id in 0..32 {
        hdd.submit(Nanos(0), id, Op::Write(DiskOffset(id * 100_000_000_000), KIB4));
    }
    hdd.submit(Nanos(0), 32, Op::Flush);
    while done.len() < 32 {
        let at = hdd.next().expect("writes complete");
        hdd.advance(at, &mut done);
        assert!(at < Nanos::millis(5), "writes complete in the cache, not at {at:?}");
    }
    let mut ended = Nanos(0);
    while done.len() < 33 {
        ended = hdd.next().expect("the flush ends");
        hdd.advance(ended, &mut done);
    }
    assert_eq!(done.pop(), Some(32));
    // 32 places over the whole stroke: each costs a seek and some rotation.
    assert!(ended > Nanos::millis(100) && ended < Nanos::millis(600), "{ended:?}");
    let mut ssd = Ssd::new(SsdClass::NVME_SSD);
    ssd.submit(Nanos(0), 1, Op::Write(DiskOffset(0), ByteCount::mib(33)));
    ssd.submit(Nanos(0), 2, Op::Flush);
    done.clear();
    ssd.advance(Nanos::millis(10), &mut done);
    assert_eq!(done, []);
    ssd.advance(Nanos::millis(12), &mut done);
    assert_eq!(done, [1, 2]);
}

#[test]
fn a_write_through_is_answered_on_the_medium_and_many_are_sorted() {
    let size = HddClass::HDD_7200_8TB.capacity;
    let rate = |depth, op| random(&mut Hdd::new(HddClass::HDD_7200_8TB), depth, size, Nanos::secs(20), op);
    // Reads take as long, but for the settling before a write.
    let (alone, read) = (rate(1, Op::WriteThrough), rate(1, Op::Read));
    assert!(alone < read && alone > 0.9 * read, "{alone} beside {read}");
    let together = rate(32, Op::WriteThrough);
    assert!(together > 1.8 * alone && together < 250.0, "{together} beside {alone}");
    // On a solid-state disk it takes its flush, and does not keep the others waiting.
    let (ssd, size) = (|| Ssd::new(SsdClass::SATA_SSD), SsdClass::SATA_SSD.capacity);
    let alone = random(&mut ssd(), 1, size, Nanos::secs(1), Op::WriteThrough);
    assert!((900.0..1000.0).contains(&alone), "{alone}");
    assert!(random(&mut ssd(), 32, size, Nanos::secs(1), Op::WriteThrough) > 20.0 * alone);
}

#[test]
fn no_read_starves_beside_a_nearer_crowd() {
    let mut hdd = Hdd::new(HddClass::HDD_7200_8TB);
    let mut rng = Rng::new(1);
    let mut done = Vec::new();
    let far = 1_000_000;
    let mut near = |hdd: &mut Hdd, now, id| {
        hdd.submit(now, id, Op::Read(DiskOffset(rng.below(1 << 18) * KIB4.0), KIB4));
    };
    for id in 0..31 {
        near(&mut hdd, Nanos(0), id);
    }
    hdd.submit(Nanos(0), far, Op::Read(DiskOffset(7_000_000_000_000 / 4096 * 4096), KIB4));
    let mut id = 31;
    loop {
        let now = hdd.next().expect("reads complete");
        assert!(now < Nanos::secs(1), "it starved");
        hdd.advance(now, &mut done);
        for ended in done.drain(..) {
            if ended == far {
                return;
            }
            near(&mut hdd, now, id);
            id += 1;
        }
    }
}

#[test]
fn reads_and_a_stream_of_writes_share_the_arm() {
    let mut hdd = Hdd::new(HddClass::HDD_7200_8TB);
    let mut rng = Rng::new(1);
    let (mut at, mut ops, mut written, mut read) = (0, 0u64, 0u64, 0u64);
    let mib = ByteCount::mib(1);
    let next = || {
        ops += 1;
        if ops.is_multiple_of(8) {
            read += 1;
            return Op::Read(DiskOffset(rng.below(1 << 30) * KIB4.0), KIB4);
        }
        written += mib.0;
        at += mib.0;
        Op::Write(DiskOffset(at), mib)
    };
    per_second(&mut hdd, 16, Nanos::secs(2), Nanos::secs(8), next);
    assert!(written / 10 > 60_000_000, "{} MB/s beside the reads", written / 10_000_000);
    assert!(read / 10 > 8, "{} reads a second beside the stream", read / 10);
}

#[test]
fn the_same_submissions_give_the_same_completions() {
    let run = || {
        let mut rng = Rng::new(4);
        let mut hdd = Hdd::new(HddClass::HDD_7200_8TB);
        let mut order = Vec::new();
        let mut submitted = 0;
        while let Some(now) = hdd.next().or((submitted == 0).then_some(Nanos(0))) {
            hdd.advance(now, &mut order);
            while submitted < 500.min(order.len() + 32) {
                let at = DiskOffset(rng.below(1 << 30) * 4096);
                let op = *rng.pick(&[Op::Read(at, KIB4), Op::Write(at, KIB4), Op::Flush]);
                hdd.submit(now, submitted as u64, op);
                submitted += 1;
            }
        }
        order
    };
    let order = run();
    assert_eq!(order.len(), 500, "everything completes");
    assert_eq!(order, run());
}
