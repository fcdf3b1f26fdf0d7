//! What follows from the mechanisms, and that it no longer does without them.

use super::cache::SLOTS;
use super::*;
use crate::workload::{Ask, Trace, at_random, drive, in_order};
use weft_engine::units::{ByteCount, Nanos};
use weft_sim::timing::{HddClass, SsdClass};

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;
/// Off every border.
const OFF: u64 = 20 << 10;

fn disks(count: usize) -> Vec<Kind> {
    let class = HddClass { outer_rate: 150_000_000, inner_rate: 75_000_000, ..HddClass::HDD_7200_8TB };
    vec![Kind::Hdd(HddClass { write_cache: ByteCount::mib(48), ..class }); count]
}

/// Single parity on as many disks.
fn parity(columns: u64, interleave_kib: u64) -> Spec {
    let shape = Shape { columns, parity: 1, copies: 1, interleave: interleave_kib << 10 };
    Spec::on(disks(columns as usize), shape)
}

fn made(spec: &Spec) -> Rc<dyn Volume> {
    Rc::new(Space::new(spec))
}

/// A copy: one request of 1 MiB at a time.
fn copy(volume: &Rc<dyn Volume>, at: u64, bytes: u64) -> Trace {
    drive(volume, in_order(at, bytes, MIB), 1, None, true)
}

fn without(spec: &Spec, out: impl Fn(&mut Mechanisms)) -> Spec {
    let mut spec = spec.clone();
    out(&mut spec.mechanisms);
    spec
}

#[test]
fn new_whole_stripes_go_past_the_cache_at_the_disks_rate_and_nothing_is_read() {
    let spec = parity(3, 32);
    let new = copy(&made(&spec), 0, 3 * GIB);
    assert!(new.rate() > 0.95 * 300e6, "{}", new.rate());
    assert_eq!((new.disk_read, new.knee()), (0, None));
    // Three bytes for two, and slots.
    assert!((1.50..1.52).contains(&(new.disk_written as f64 / new.bytes as f64)));
    let cached = copy(&made(&without(&spec, |mechanisms| mechanisms.bypass = false)), 0, 3 * GIB);
    assert!(cached.rate() < 0.5 * new.rate() && cached.disk_read > cached.bytes / 2, "{}", cached.rate());
}

#[test]
fn the_knee_is_where_the_cache_ends_whatever_its_size() {
    for size in [512 * MIB, GIB, 2 * GIB] {
        let spec = parity(4, 256);
        let cache = Some((size, spec.data.clone()));
        let volume = made(&Spec { cache, ..spec });
        // Requests of 4 MiB: the log has slots for more than the cache holds.
        let trace = drive(&volume, in_order(OFF, size + size / 2, 4 * MIB), 1, None, true);
        let knee = trace.knee().expect("there is one") as f64 / size as f64;
        assert!((0.95..1.05).contains(&knee), "{size}: {knee}");
        assert!(trace.rate_until(size - 64 * MIB) > 250e6);
        assert!(trace.rate_after(size - 64 * MIB) < 100e6);
    }
}

#[test]
fn small_requests_wrap_the_log_long_before_the_cache_is_full() {
    let volume = made(&parity(5, 16));
    let asks = || (0..SLOTS as u64 * 3 / 2).map(|nth| Ask::Write(nth * MIB + OFF, 4096));
    let trace = drive(&volume, asks(), 1, None, false);
    // One stripe for each slot of the log is destaged, whole, and a record made twice; the others still lie in the
    // cache. Each was written there twice, with a slot.
    let stripes = (trace.disk_written - SLOTS as u64 * 3 / 2 * (16 << 10)) / (88 << 10);
    assert!((SLOTS as u64 - 2..SLOTS as u64 + 8).contains(&stripes), "{stripes}");
    // Requests that come together share slots.
    let volume = made(&parity(5, 16));
    let grouped = drive(&volume, asks(), 64, None, false);
    assert!(grouped.disk_written < trace.disk_written / 3 && grouped.nanos < trace.nanos / 10);
}

#[test]
fn what_was_written_once_is_slow_for_ever_because_it_is_never_rewritten_in_place() {
    let spec = parity(5, 16);
    let volume = made(&spec);
    let [new, used] = [0, 0].map(|at| copy(&volume, at, 3 * GIB));
    assert!(used.rate() < new.rate() / 4.0, "{} {}", new.rate(), used.rate());
    let in_place = made(&without(&spec, |mechanisms| mechanisms.consistent = false));
    copy(&in_place, 0, 3 * GIB);
    assert!(copy(&in_place, 0, 3 * GIB).rate() > 0.95 * new.rate());
}

#[test]
fn only_a_trim_of_a_whole_row_makes_places_new_again() {
    let spec = parity(5, 16);
    let row = spec.shape.row();
    let rate_after = |spec: &Spec, trimmed: u64| {
        let volume = made(spec);
        copy(&volume, 0, 2 * row);
        drive(&volume, [Ask::Forget(0, trimmed)].into_iter(), 1, None, false);
        copy(&volume, 0, row).rate()
    };
    assert!(rate_after(&spec, 2 * row) > 500e6);
    assert!(rate_after(&spec, row - (1 << 16)) < 150e6);
    assert!(rate_after(&without(&spec, |mechanisms| mechanisms.trim = false), 2 * row) < 150e6);
    assert!(rate_after(&Spec { thin: false, size: 4 * row, ..spec }, 2 * row) < 150e6);
}

#[test]
fn writes_alone_read_from_the_disks_once_stripes_are_cached_in_part() {
    let spec = parity(5, 16);
    let run = |spec: &Spec| {
        let volume = made(spec);
        copy(&volume, 0, GIB);
        drive(&volume, at_random(1, GIB, 4096, Ask::Write), 16, Some(Nanos::secs(60)), false)
    };
    let (all, incomplete) = (run(&spec), run(&without(&spec, |mechanisms| mechanisms.completes = false)));
    assert!(all.disk_read > 2 * all.bytes, "{} {}", all.disk_read, all.bytes);
    assert!(incomplete.disk_read < all.disk_read / 4);
}

#[test]
fn the_ends_of_a_request_alone_go_to_the_cache_under_the_other_reading() {
    let spec = parity(5, 16);
    let volume = made(&without(&spec, |mechanisms| mechanisms.split = true));
    let split = copy(&volume, OFF, 2 * GIB);
    let whole = copy(&made(&spec), OFF, 2 * GIB);
    assert!(split.rate() > 1.1 * whole.rate(), "{} {}", split.rate(), whole.rate());
}

#[test]
fn mirrors_do_not_care_what_was_written_before_nor_where_requests_begin() {
    let shape = Shape { columns: 2, parity: 0, copies: 2, interleave: 256 << 10 };
    let volume = made(&Spec::on(disks(4), shape));
    for at in [0, 0, OFF] {
        let rate = copy(&volume, at, GIB).rate();
        assert!(rate > 0.9 * 300e6, "{rate}");
    }
}

#[test]
fn a_cache_on_ssds_takes_small_durable_writes_and_lets_long_ones_pass() {
    let shape = Shape { columns: 1, parity: 0, copies: 2, interleave: 256 << 10 };
    let plain = Spec::on(disks(2), shape);
    let all = [disks(2), vec![Kind::Ssd(SsdClass::SATA_SSD); 2]].concat();
    let cache = Some((GIB, vec![2, 3]));
    let cached = Spec { disks: all, cache, style: Style::Levels, ..plain.clone() };
    let small = |spec| {
        let asks = at_random(1, 8 * GIB, 64 << 10, Ask::WriteThrough);
        drive(&made(spec), asks, 1, Some(Nanos::secs(5)), false).per_second()
    };
    let (with, without) = (small(&cached), small(&plain));
    assert!(with > 1.5 * without, "{with} {without}");
    let long = copy(&made(&cached), 0, GIB).rate();
    assert!((140e6..152e6).contains(&long), "{long}");
}

#[test]
fn what_is_cached_is_read_from_the_cache_and_the_rest_from_its_place() {
    let volume = made(&parity(5, 16));
    copy(&volume, 0, 64 * MIB);
    drive(&volume, [Ask::Write(4096, 4096)].into_iter(), 1, None, false);
    let read = drive(&volume, [Ask::Read(0, 64 << 10)].into_iter(), 1, None, false);
    assert_eq!(read.disk_read, 64 << 10);
}

#[test]
fn the_same_workload_gives_the_same_trace() {
    let run = || {
        let volume = made(&parity(4, 256));
        drive(&volume, at_random(9, GIB, 64 << 10, Ask::WriteThrough), 8, Some(Nanos::secs(20)), true)
    };
    let (one, two) = (run(), run());
    assert_eq!((one.points, one.disk_read, one.disk_written), (two.points, two.disk_read, two.disk_written));
}

#[test]
fn each_slot_that_is_destaged_is_recorded_before_its_room_is_used_again() {
    let run = |flushes| {
        let spec = Spec { style: Style::Wraps(Unit::Slot, flushes), ..parity(5, 16) };
        drive(&made(&spec), (0..SLOTS as u64 + 8).map(|nth| Ask::Write(nth * MIB + OFF, 4096)), 1, None, false)
    };
    let (each, last) = (run(Flushes::Each), run(Flushes::Last));
    // A record has 4 KiB, and two copies.
    let records = (each.disk_written - last.disk_written) / 8192;
    assert!((SLOTS as u64 - 4..=SLOTS as u64).contains(&records), "{records}");
    assert!(each.nanos > last.nanos + SLOTS as u64 * 5_000_000, "each waits for the medium");
}

#[test]
fn slots_of_requests_that_went_past_the_cache_are_freed_at_once() {
    let volume = made(&parity(5, 16));
    let trace = copy(&volume, 0, 3 * GIB);
    assert!(trace.rate() > 500e6, "{}", trace.rate());
}
