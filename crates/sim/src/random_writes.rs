//! Small writes at random with frequent flushes on simulated hard disks, beside models of a mirror and of RAID 5 that
//! write in place on the same disks.

use crate::cached_writes::Flash;
use crate::rng::Rng;
use crate::sample::sample;
use crate::streams::{Bench, CLASS, Case, Shape, USUAL_LOG, pattern};
use crate::timing::{Hdd, HddClass, SsdClass};
use crate::{disk::SimDisk, world::Scheduling, world::SimWorld};
use std::fmt;
use std::rc::Rc;
use weft_engine::disk_set::DiskSet;
use weft_engine::geometry::{Layout, Resiliency};
use weft_engine::io::{Buf, Disk};
use weft_engine::store::{Tuning, join};
use weft_engine::units::{ByteCount, DiskOffset, Nanos, VirtualOffset};
use weft_engine::world::World;

/// How much of a virtual disk `weft serve` lets lie in packed stripes, in thousandths.
pub const SERVED_SHARE: u64 = 100;

const PARITY: Resiliency = Resiliency::Parity { parity: 1 };
/// The size of a cache.
const CACHE: ByteCount = ByteCount::gib(1);

/// The columns of what [`Random`] prints.
pub const HEADING: &str = concat!(
    "                                                                      writes/s  a round, ms     ",
    "reads in order, MB/s\n",
    "row                                                              median  worst      p99 longest   ",
    "before at once rested   rests after s"
);

/// What is to be run.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    /// The virtual disk, as a stream fills it first; the writes go to what it filled.
    pub fill: Case,
    /// Bytes of a write, which begins at a multiple of them.
    pub len: ByteCount,
    /// Writes between two flushes; they are under way together.
    pub per_flush: u64,
    /// For so long.
    pub span: Nanos,
    /// How much of the virtual disk may lie in packed stripes, in thousandths.
    pub fine_share: u64,
    /// Solid-state disks, beside those of the layout, that a write-back cache lies on; 0: there is none.
    pub cached_on: usize,
}

/// What a minute of them was like.
pub struct Random {
    /// Writes per second, second by second.
    pub rates: Vec<u64>,
    /// How long a round took, its writes and its flush, the quickest first.
    rounds: Vec<Nanos>,
    /// Sequential reads, bytes per second: before the writes, right after them, and when the mover had come to rest.
    pub reads: Option<[f64; 3]>,
    /// How long that took.
    pub rested: Nanos,
}

/// Bytes of a write in stories.
pub(crate) const SMALL: ByteCount = ByteCount::kib(4);
/// The longest that a round of so many may take in them.
const LONGEST: [(u64, Nanos); 2] = [(512, Nanos::millis(1_000)), (640, Nanos::millis(1_100))];

/// The seconds in which the log fills: they show nothing of what lasts.
const WARM_UP: usize = 10;
/// The longest that is waited for the mover.
const REST: Nanos = Nanos::secs(1800);
/// Who does nothing for so long has come to rest.
const RESTS_FOR: Nanos = Nanos::secs(30);

impl Random {
    /// Median and worst second after the warm-up.
    pub fn seconds(&self) -> (u64, u64) {
        let mut lasting: Vec<u64> = self.rates.iter().copied().skip(WARM_UP).collect();
        lasting.sort_unstable();
        (lasting[lasting.len() / 2], lasting[0])
    }

    /// Writes per second after the warm-up, on average.
    pub fn lasting(&self) -> f64 {
        let lasting = &self.rates[WARM_UP.min(self.rates.len() - 1)..];
        lasting.iter().sum::<u64>() as f64 / lasting.len() as f64
    }

    /// The time within which 99 of 100 rounds are done, and the longest.
    pub fn round(&self) -> (Nanos, Nanos) {
        (crate::mixed::quantile(&self.rounds, 990), *self.rounds.last().expect("there was one"))
    }
}

impl fmt::Display for Random {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ((median, worst), (p99, longest)) = (self.seconds(), self.round());
        let ms = |time: Nanos| time.0 / 1_000_000;
        write!(f, "{median:>6} {worst:>6}   {:>6} {:>6}", ms(p99), ms(longest))?;
        if let Some([before, at_once, rested]) = self.reads {
            let mb = |rate: f64| rate / 1e6;
            write!(
                f,
                "   {:>5.0} {:>5.0} {:>5.0}   {:>4}",
                mb(before),
                mb(at_once),
                mb(rested),
                self.rested.0 / 1_000_000_000
            )?;
        }
        Ok(())
    }
}

/// Measures them on a virtual disk that is full.
pub fn on_weft(load: Load) -> Random {
    let (layout, tuning) = (load.fill.layout, Tuning { fine_share: load.fine_share, ..Tuning::default() });
    // Full: what is written finds something everywhere.
    let size = load.fill.per_disk * layout.data_columns() as u64 + ByteCount::mib(1);
    let (slab, disks) = (crate::streams::slab(), layout.slots());
    let bench = Bench::of(&Shape { class: CLASS, disks, layout, size, slab, log: USUAL_LOG, tuning });
    bench.pass(load.fill, 1.0, 1);
    if load.cached_on > 0 {
        Flash { class: SsdClass::SATA_SSD, disks: load.cached_on, protected: false, cache: CACHE }.add_to(&bench);
    }
    let before = bench.read(load.fill);
    let mut random = on_bench(&bench, load);
    let at_once = bench.read(load.fill);
    let (began, vdisk) = (bench.world.now(), bench.vdisk.clone());
    // What the log still holds leaves it first.
    let pool = bench.pool.clone();
    crate::streams::block_on(&bench.world, async move { pool.destage_everything().await });
    let rests = move || vdisk.packed().0 == 0 && !vdisk.is_to_be_ordered();
    // It may rest for the moment, until what it left is free.
    while random.rested.0 == 0 {
        bench.world.run_until(REST, rests.clone());
        let rested = bench.world.now().since(began);
        bench.world.run_until(RESTS_FOR, || false);
        random.rested = if rests() || rested > REST { rested } else { Nanos(0) };
    }
    random.reads = Some([before, at_once, bench.read(load.fill)]);
    bench.world.halt();
    random
}

/// Measures them on a virtual disk that a stream has filled as the load says.
pub fn on_bench(bench: &Bench, load: Load) -> Random {
    let len = load.len.0;
    let blocks = load.fill.per_disk.0 * load.fill.layout.data_columns() as u64 / len;
    let (vdisk, data) = (bench.vdisk.clone(), Rc::new(pattern(7, load.len)));
    measure(&bench.world, load, blocks, move |places| {
        let (vdisk, data) = (vdisk.clone(), data.clone());
        async move {
            let write = |at: &u64| vdisk.write(VirtualOffset(at * len), &data, false);
            join(places.iter().map(write)).await.into_iter().for_each(|written| written.expect("writes work"));
            vdisk.flush().await.expect("flushes work");
        }
    })
}

/// Where clients write anywhere for as long as the mover takes to go over all of the virtual disk, more than once, most
/// of what packed stripes have room for is in use: it leaves no few units in each.
pub fn packed_stripes_are_left_by_all_of_their_units() {
    let (bench, _) = after_small_writes(1024, SERVED_SHARE);
    let layout = bench.vdisk.layout();
    let (units, stripes, _) = bench.vdisk.packed();
    let moved = bench.vdisk.counters.destaged_stripes.get();
    assert!(moved > bench.vdisk.size().0 / layout.data_len().0, "the mover came by once and more: {moved} stripes");
    let places = stripes * (layout.data_len().0 / SMALL.0);
    assert!(units * 5 > places * 3, "{units} units lie in packed stripes that have room for {places}");
    let (packed, repacked) = (bench.vdisk.counters.packed.get(), bench.vdisk.counters.repacked.get());
    assert!(repacked * 100 < packed * 3, "{repacked} bytes of {packed} that were packed had to be brought together");
    bench.world.halt();
}

/// Clients that write anywhere and flush wait for a checkpoint now and then, while the mover has the disks, but never
/// for several, and not for the mover.
pub fn no_flush_waits_for_the_mover_to_let_go_of_the_log() {
    for (per_flush, most) in LONGEST {
        let (bench, random) = after_small_writes(per_flush, SERVED_SHARE / 2);
        let longest = random.round().1;
        assert!(longest < most, "a round of {per_flush} took {} ms", longest.0 / 1_000_000);
        bench.world.halt();
    }
}

/// When the mover has as much to do as clients bring, no second has less than half of what the median second has: it
/// does not hurry until all is down, to rest for seconds then.
pub fn no_second_has_less_than_half_of_the_median() {
    let layout = Layout::new(PARITY, 5, ByteCount::kib(256)).expect("this layout is valid");
    let (bench, random) = small_writes(layout, 32, Nanos::secs(45), (SERVED_SHARE, Tuning::default().buffer_memory));
    let (median, worst) = random.seconds();
    assert!(worst * 2 >= median, "{worst} in the worst second, {median} in most");
    bench.world.halt();
}

/// Nor does any second have less than a third of it where the log is as long as it usually is: the mover sees what
/// comes in when it gathers, not when it is packed.
pub fn no_second_with_a_usual_log_has_less_than_a_third_of_the_median() {
    let resiliency = Resiliency::Mirror { copies: 2 };
    let layout = Layout::new(resiliency, 2, ByteCount::kib(64)).expect("this layout is valid");
    with_a_usual_log(layout, 32, Nanos::secs(45), |_, _| ());
}

/// Nor where each write is flushed: no disk waits a revolution for each since the heads of others have come too far.
pub fn no_second_of_single_writes_has_less_than_a_third_of_the_median() {
    let layout = Layout::new(PARITY, 5, ByteCount::kib(64)).expect("this layout is valid");
    // The heads are anywhere.
    with_a_usual_log(layout, 1, Nanos::secs(24), |bench, fill| {
        bench.read(fill);
    });
}

fn with_a_usual_log(layout: Layout, per_flush: u64, span: Nanos, before: impl Fn(&Bench, Case)) {
    let fill = Case { layout, request: ByteCount::mib(1), per_disk: ByteCount::gib(1), flush_stripes: None };
    let bench = filled_behind(USUAL_LOG, fill, (SERVED_SHARE, Tuning::default().buffer_memory));
    before(&bench, fill);
    let random = on_bench(&bench, Load { fill, len: SMALL, per_flush, span, fine_share: SERVED_SHARE, cached_on: 0 });
    let (median, worst) = random.seconds();
    assert!(worst * 3 >= median, "{layout}: {worst} in the worst second, {median} in most");
    bench.world.halt();
}

/// While a disk is missing, and there is none in its place, small writes are packed as ever: there are about as many a
/// second as with all disks. What they left is whole when the disk is back.
pub fn small_writes_are_packed_while_a_disk_is_missing() {
    let layouts = [(PARITY, 3), (Resiliency::Parity { parity: 2 }, 4), (Resiliency::Mirror { copies: 2 }, 1)];
    for (resiliency, columns) in layouts {
        let layout = Layout::new(resiliency, columns, ByteCount::kib(256)).expect("this layout is valid");
        let fill = Case { layout, request: ByteCount::mib(1), per_disk: ByteCount::mib(128), flush_stripes: None };
        let sizes = (SERVED_SHARE, Tuning::default().buffer_memory);
        let load = Load { fill, len: SMALL, per_flush: 32, span: Nanos::secs(20), fine_share: sizes.0, cached_on: 0 };
        let whole = filled(fill, sizes);
        let usual = on_bench(&whole, load).lasting();
        whole.world.halt();
        let bench = filled(fill, sizes);
        bench.disks[0].vanish();
        let lasting = on_bench(&bench, load).lasting();
        assert!(lasting > usual * 0.75, "{layout}: {lasting} a second, {usual} with all disks");

        bench.disks[0].return_intact(&mut Rng::new(1));
        let (pool, back) = (bench.pool.clone(), Rc::new(bench.disks[0].clone()));
        crate::streams::block_on(
            &bench.world,
            async move { pool.attach(back).await.expect("it is the one that went") },
        );
        bench.world.run_until(Nanos::secs(600), || bench.pool.unsound_bytes() == ByteCount::ZERO);
        assert_eq!(bench.pool.unsound_bytes(), ByteCount::ZERO, "{layout}: what lacks a disk that is back");
        bench.world.halt();
    }
}

/// In a pool with hardly more room than packed stripes want, what gathers leaves it to them, and they make do with it:
/// small writes are merged no more than where there is room, and no second is left without.
pub fn small_writes_are_packed_in_a_pool_that_is_nearly_full() {
    let layout = Layout::new(PARITY, 5, ByteCount::kib(256)).expect("this layout is valid");
    let (per_disk, slab, log) = (ByteCount::gib(1), ByteCount::mib(64), ByteCount::mib(128));
    let fill = Case { layout, request: ByteCount::mib(1), per_disk, flush_stripes: None };
    let (fine_share, span) = (SERVED_SHARE, Nanos::secs(45));
    // Labels and metadata take about three slabs; of the others, one segment is what the virtual disk goes on with.
    for left in [3, 5] {
        let class = HddClass { capacity: per_disk + log + slab * (left + 4), ..CLASS };
        let size = per_disk * layout.data_columns() as u64 + ByteCount::mib(1);
        let tuning = Tuning { fine_share, ..Tuning::default() };
        let bench = Bench::of(&Shape { class, disks: layout.slots(), layout, size, slab, log, tuning });
        bench.pass(fill, 1.0, 1);
        let segments = bench.pool.store().map.borrow().segments_possible_now(layout, DiskSet::EMPTY);
        assert_eq!(segments, left, "segments that can be made");
        let random = on_bench(&bench, Load { fill, len: SMALL, per_flush: 32, span, fine_share, cached_on: 0 });
        let ((median, worst), lasting) = (random.seconds(), random.lasting());
        assert!(lasting > 600.0, "{left} segments left: {lasting} a second, {worst} to {median}: {:?}", random.rates);
        assert!(worst * 4 > median, "{left} segments left: {worst} in the worst second, {median} in most");
        bench.world.halt();
    }
}

/// A virtual disk is removed while the mover is at work on it, or on another one before it.
pub fn a_virtual_disk_may_go_while_the_mover_is_at_work() {
    let layout = Layout::new(PARITY, 5, ByteCount::kib(64)).expect("this layout is valid");
    for nth in sample(0..12) {
        let fill = Case { layout, request: ByteCount::mib(1), per_disk: ByteCount::mib(64), flush_stripes: None };
        let (bench, _) = filled_and_written(fill, 256, Nanos::secs(4), (SERVED_SHARE, 64 << 20));
        assert!(bench.vdisk.counters.destaged_stripes.get() > 0, "the mover is at work");
        let pool = bench.pool.clone();
        crate::streams::block_on(&bench.world, async move {
            let spec = crate::streams::thin("other", layout, ByteCount::mib(16));
            pool.vdisk_create(&spec).await.expect("there is room");
        });
        bench.world.run_until(Nanos::millis(nth * 9), || false);
        for name in ["other", "vdisk"] {
            let pool = bench.pool.clone();
            crate::streams::block_on(&bench.world, async move { pool.vdisk_remove(name).await.expect("it may go") });
            bench.world.run_until(Nanos::secs(1), || false);
        }
        bench.world.halt();
    }
}

/// The memory for what is read ahead of the mover comes back when it rests, though there is much that it could move.
pub fn what_is_read_ahead_of_the_mover_is_forgotten_when_it_rests() {
    let (bench, _) = after_small_writes(1024, SERVED_SHARE);
    let held = |bench: &Bench| {
        bench.pool.store().memory().iter().find(|one| one.name == "read ahead").expect("it is there").used
    };
    let (vdisk, world) = (bench.vdisk.clone(), bench.world.clone());
    crate::streams::block_on(&bench.world, async move {
        // Somebody is there all the time, so that it moves only what it must.
        for _ in 0..300 {
            vdisk.read(VirtualOffset(0), &mut [0; 4096]).await.expect("reads work");
            world.sleep(Nanos::millis(100)).await;
        }
    });
    assert!(bench.vdisk.packed().1 > 0, "there is much left");
    assert_eq!(held(&bench), 0, "bytes read ahead, and nobody wants them");
    bench.world.halt();
}

/// A virtual disk of single parity that is full, of which such a share (in thousandths) may lie in packed stripes,
/// after 30 s of small writes anywhere, with a flush after so many.
fn after_small_writes(per_flush: u64, share: u64) -> (Bench, Random) {
    let layout = Layout::new(PARITY, 5, ByteCount::kib(64)).expect("this layout is valid");
    small_writes(layout, per_flush, Nanos::secs(30), (share, 64 << 20))
}

/// A virtual disk that is full, after small writes anywhere for `span`. `sizes`: the share of it that may lie in packed
/// stripes, in thousandths, and bytes of stripe buffers.
fn small_writes(layout: Layout, per_flush: u64, span: Nanos, sizes: (u64, u64)) -> (Bench, Random) {
    let fill = Case { layout, request: ByteCount::mib(1), per_disk: ByteCount::mib(256), flush_stripes: None };
    filled_and_written(fill, per_flush, span, sizes)
}

/// [`small_writes`] on a virtual disk that a stream has filled so.
fn filled_and_written(fill: Case, per_flush: u64, span: Nanos, sizes: (u64, u64)) -> (Bench, Random) {
    let bench = filled(fill, sizes);
    let random = on_bench(&bench, Load { fill, len: SMALL, per_flush, span, fine_share: sizes.0, cached_on: 0 });
    (bench, random)
}

/// A virtual disk that a stream has filled, in a pool whose log is short. `sizes`: see [`small_writes`].
pub(crate) fn filled(fill: Case, sizes: (u64, u64)) -> Bench {
    filled_behind(ByteCount::mib(32), fill, sizes)
}

/// A virtual disk that a stream has filled, in a pool with such a log. `sizes`: see [`small_writes`].
pub(crate) fn filled_behind(log: ByteCount, fill: Case, (fine_share, buffer_memory): (u64, u64)) -> Bench {
    let layout = fill.layout;
    let size = fill.per_disk * layout.data_columns() as u64 + ByteCount::mib(1);
    let slab = crate::streams::slab();
    let tuning = Tuning { fine_share, buffer_memory, ..Tuning::default() };
    let bench = Bench::of(&Shape { class: CLASS, disks: layout.slots(), layout, size, slab, log, tuning });
    bench.pass(fill, 1.0, 1);
    bench
}

/// Measures the writes on as many disks in place, with as many bytes in use: each to two of them.
pub fn on_mirror_in_place(load: Load, class: &HddClass) -> Random {
    in_place(load, class, move |block, disks| {
        let copy = |nth: u64| (((block * 2 + nth) % disks) as usize, DiskOffset(block * 2 / disks * load.len.0));
        (copy(0), copy(1), false)
    })
}

/// Measures the writes on as many disks in place, as RAID 5 does them: data and parity are read, and written.
pub fn on_raid5_in_place(load: Load, class: &HddClass) -> Random {
    in_place(load, class, move |block, disks| {
        let (row, column) = (block / (disks - 1), block % (disks - 1));
        let (parity, at) = (row % disks, DiskOffset(row * load.len.0));
        ((((parity + 1 + column) % disks) as usize, at), (parity as usize, at), true)
    })
}

/// Where a block lies on a disk.
type At = (usize, DiskOffset);

/// Measures writes to two disks each; `places` says where, and whether they are read before.
fn in_place(load: Load, class: &HddClass, places: impl Fn(u64, u64) -> (At, At, bool) + Copy + 'static) -> Random {
    let world = SimWorld::new(1, Scheduling::Fifo);
    let disk = |nth| SimDisk::new(&world, class.shape(class.capacity), Box::new(Hdd::among(class.clone(), nth)));
    let disks: Rc<Vec<SimDisk>> = Rc::new((0..load.fill.layout.slots()).map(disk).collect());
    let len = load.len.0;
    let blocks = load.fill.per_disk.0 * load.fill.layout.data_columns() as u64 / len;
    let slice = Buf::copy_of(&pattern(7, load.len)).freeze();
    let random = measure(&world, load, blocks, move |chosen| {
        let (disks, slice) = (disks.clone(), slice.clone());
        async move {
            let write = async |block: u64| {
                let (one, other, reads) = places(block, disks.len() as u64);
                if reads {
                    let read = |(disk, at): At| disks[disk].read(at, Buf::zeroed(len as usize));
                    join([one, other].into_iter().map(read))
                        .await
                        .into_iter()
                        .for_each(|read| drop(read.expect("reads work")));
                }
                let write = |(disk, at): At| disks[disk].write(at, vec![slice.clone()]);
                join([one, other].into_iter().map(write)).await.into_iter().for_each(|done| done.expect("writes work"));
            };
            join(chosen.iter().map(|block| write(*block))).await;
            join(disks.iter().map(|disk| disk.flush())).await.into_iter().for_each(|done| done.expect("flushes work"));
        }
    });
    world.halt();
    random
}

/// Calls `round` with random places for `load.span`.
fn measure<F: Future<Output = ()> + 'static>(
    world: &SimWorld,
    load: Load,
    blocks: u64,
    round: impl Fn(Vec<u64>) -> F + 'static,
) -> Random {
    let host = world.clone();
    let random = world.block_on(async move {
        let (mut rng, start) = (Rng::new(3), host.now());
        let rates = vec![0; (load.span.0 / 1_000_000_000) as usize];
        let mut random = Random { rates, rounds: Vec::new(), reads: None, rested: Nanos(0) };
        loop {
            let began = host.now();
            round((0..load.per_flush).map(|_| rng.below(blocks)).collect()).await;
            random.rounds.push(host.now().since(began));
            let second = (host.now().since(start).0 / 1_000_000_000) as usize;
            match random.rates.get_mut(second) {
                Some(rate) => *rate += load.per_flush,
                None => {
                    random.rounds.sort_unstable();
                    return random;
                }
            }
        }
    });
    random.expect("it ends")
}
