//! Each line of the fault model, shown.

use super::*;
use crate::timing::{Hdd, HddClass, Latencies, Random};
use crate::world::{Scheduling, Stop};
use weft_engine::sync::join_all;

const SHAPE: DiskShape = DiskShape { capacity: ByteCount::mib(64), physical_sector: 512, rotational: false };
const BLOCK_0: DiskOffset = DiskOffset(0);

fn at(block: u64) -> DiskOffset {
    DiskOffset(block * BLOCK)
}

fn world_and_disk(seed: u64) -> (SimWorld, SimDisk) {
    let world = SimWorld::new(seed, Scheduling::Random);
    let disk = SimDisk::new(&world, SHAPE, Box::new(Random::new(Latencies::default(), world.rng("latencies"))));
    (world, disk)
}

/// `blocks` blocks full of `byte`, but for a number at the head of each, so that they are no repeated word.
fn bytes(byte: u8, blocks: usize) -> IoSlice {
    let mut buf = Buf::zeroed(blocks * BLOCK as usize);
    buf.fill(byte);
    for block in 0..blocks {
        buf[block * BLOCK as usize] = byte ^ 0x80;
    }
    buf.freeze()
}

fn write(world: &SimWorld, disk: &SimDisk, block: u64, byte: u8, blocks: usize) -> Result<(), DiskError> {
    world.block_on(disk.write(at(block), vec![bytes(byte, blocks)])).expect("writes end")
}

fn read(world: &SimWorld, disk: &SimDisk, block: u64) -> Result<u8, DiskError> {
    let buf = world.block_on(disk.read(at(block), Buf::zeroed(BLOCK as usize))).expect("reads end")?;
    Ok(buf[1])
}

fn flush(world: &SimWorld, disk: &SimDisk) -> Result<(), DiskError> {
    world.block_on(disk.flush()).expect("flushes end")
}

/// The second byte of the block on the image.
fn on(image: &DiskImage, block: u64) -> u8 {
    image.read(at(block), ByteCount(BLOCK)).expect("the block is readable")[1]
}

#[test]
fn a_write_is_seen_at_once_and_durable_after_a_flush() {
    let (world, disk) = world_and_disk(1);
    write(&world, &disk, 3, 7, 2).unwrap();
    assert_eq!(read(&world, &disk, 4), Ok(7));
    assert_eq!(on(&disk.image(), 4), 0);
    flush(&world, &disk).unwrap();
    assert_eq!(on(&disk.image(), 4), 7);
    assert_eq!(disk.unflushed(), []);
    let stats = disk.stats();
    assert_eq!((stats.reads, stats.writes, stats.flushes), (1, 1, 1));
    assert_eq!((stats.read_bytes, stats.written_bytes), (ByteCount::kib(4), ByteCount::kib(8)));
}

#[test]
fn a_flush_covers_what_completed_before_it_was_submitted_and_nothing_else() {
    let world = SimWorld::new(1, Scheduling::Random);
    let latencies = Latencies { write: 1000..1001, flush: 5000..5001, grain: 1, straggle: 0.0, ..Latencies::default() };
    let disk = SimDisk::new(&world, SHAPE, Box::new(Random::new(latencies, world.rng("latencies"))));
    write(&world, &disk, 1, 1, 1).unwrap();
    let (flusher, writer) = (disk.clone(), disk.clone());
    let both = vec![flusher.flush(), writer.write(at(2), vec![bytes(2, 1)])];
    world.block_on(join_all(both)).expect("both end");
    assert_eq!((on(&disk.image(), 1), on(&disk.image(), 2)), (1, 0));
    assert_eq!(disk.unflushed().len(), 1);
}

#[test]
fn a_power_cut_keeps_drops_or_tears_each_write_whatever_becomes_of_the_others() {
    let (world, disk) = world_and_disk(1);
    for block in 0..3 {
        write(&world, &disk, block * 10, 1, 2).unwrap();
    }
    flush(&world, &disk).unwrap();
    for block in 0..3 {
        write(&world, &disk, block * 10, 2, 2).unwrap();
    }
    let image = disk.after_power_cut(&[Fate::Dropped, Fate::Torn(Tear::Head(9)), Fate::Kept]);
    assert_eq!((on(&image, 0), on(&image, 1)), (1, 1), "the earlier is lost");
    assert_eq!((on(&image, 20), on(&image, 21)), (2, 2), "the later survives");
    let torn = image.read(at(10), ByteCount(2 * BLOCK)).unwrap();
    assert!(torn[1..9 * 512].iter().all(|byte| *byte & 0x7f == 2));
    assert!(torn[9 * 512..].iter().all(|byte| *byte & 0x7f == 1));
    let image = disk.after_power_cut(&[Fate::Torn(Tear::Tail(1)), Fate::Kept, Fate::Torn(Tear::Each(5))]);
    let tail = image.read(at(0), ByteCount(2 * BLOCK)).unwrap();
    assert_eq!((tail[15 * 512 - 1], tail[15 * 512]), (1, 2));
    let shreds = image.read(at(20), ByteCount(2 * BLOCK)).unwrap();
    let new = shreds.chunks(512).filter(|sector| sector[1] == 2).count();
    assert!((1..16).contains(&new), "{new} of 16");
    assert_eq!(disk.unflushed().len(), 3, "asking changes nothing");
}

#[test]
fn by_seed_every_outcome_of_a_power_cut_comes_about() {
    let mut outcomes = BTreeSet::new();
    for seed in 0..200 {
        let (world, disk) = world_and_disk(seed);
        write(&world, &disk, 0, 1, 1).unwrap();
        write(&world, &disk, 1, 1, 1).unwrap();
        world.halt();
        disk.power_cut(&mut world.rng("cut"));
        let after = disk.image().read(BLOCK_0, ByteCount(2 * BLOCK)).unwrap();
        assert_eq!(disk.peek(BLOCK_0, ByteCount(2 * BLOCK)).unwrap(), after, "reads see what survived");
        let outcome: Vec<u8> = after
            .chunks(BLOCK as usize)
            .map(|block| match block.chunks(512).filter(|sector| sector[1] == 1).count() {
                0 => b'o',
                8 => b'n',
                _ => b'x',
            })
            .collect();
        outcomes.insert(String::from_utf8(outcome).unwrap());
    }
    assert_eq!(outcomes.into_iter().collect::<Vec<_>>().join(" "), "nn no nx on oo ox xn xo xx");
}

#[test]
fn a_read_overlapping_a_write_under_way_gets_old_or_new_sectors() {
    let mut seen = BTreeSet::new();
    for seed in 0..100 {
        let (world, disk) = world_and_disk(seed);
        write(&world, &disk, 0, 1, 1).unwrap();
        let (reader, writer) = (disk.clone(), disk.clone());
        world.spawn("writer", Box::pin(async move { writer.write(BLOCK_0, vec![bytes(2, 1)]).await.unwrap() }));
        let buf = world.block_on(async move { reader.read(BLOCK_0, Buf::zeroed(4096)).await.unwrap() }).unwrap();
        let new = buf.chunks(512).filter(|sector| sector[1] == 2).count();
        assert!(buf.chunks(512).all(|sector| sector[1] == 2 || sector[1] == 1));
        seen.insert(new.clamp(0, 1) + usize::from(new == 8));
        world.run_until_idle(Nanos::secs(10));
        assert_eq!(read(&world, &disk, 0), Ok(2));
    }
    assert_eq!(seen, BTreeSet::from([0, 1, 2]), "old, mixed and new are all seen");
}

#[test]
fn an_unreadable_block_is_readable_again_when_rewritten_unless_a_power_cut_takes_the_rewrite() {
    let (world, disk) = world_and_disk(1);
    write(&world, &disk, 0, 1, 3).unwrap();
    flush(&world, &disk).unwrap();
    disk.spoil(at(1));
    assert_eq!(read(&world, &disk, 1), Err(DiskError::Media));
    assert_eq!(read(&world, &disk, 2), Ok(1), "its neighbours can be read");
    assert_eq!(disk.harmed(), [(at(1), Harm::Unreadable)]);
    write(&world, &disk, 1, 2, 1).unwrap();
    assert_eq!(read(&world, &disk, 1), Ok(2));
    assert_eq!(disk.harm(at(1)), None);
    assert_eq!(disk.harmed(), [(at(1), Harm::Unreadable)], "the rewrite is not durable");
    let torn = disk.after_power_cut(&[Fate::Torn(Tear::Head(4))]);
    assert_eq!(torn.read(at(1), ByteCount(BLOCK)), Err(DiskError::Media));
    world.halt();
    disk.power_cut_with(&[Fate::Dropped]);
    assert_eq!(read(&world, &disk, 1), Err(DiskError::Media));
    write(&world, &disk, 1, 2, 1).unwrap();
    flush(&world, &disk).unwrap();
    assert_eq!(disk.harmed(), []);
}

#[test]
fn rot_changes_a_block_silently_and_a_cached_write_hides_it() {
    let (world, disk) = world_and_disk(1);
    write(&world, &disk, 0, 1, 2).unwrap();
    flush(&world, &disk).unwrap();
    let before = disk.peek(at(1), ByteCount(BLOCK)).unwrap();
    disk.rot(at(1));
    let after = disk.peek(at(1), ByteCount(BLOCK)).unwrap();
    assert_eq!(before.iter().zip(&after).filter(|(a, b)| a != b).count(), 1);
    assert_eq!(disk.harm(at(1)), Some(Harm::Rotten));
    write(&world, &disk, 0, 2, 1).unwrap();
    disk.rot(at(0));
    assert_eq!(disk.harm(at(0)), None);
    assert_eq!(disk.after_power_cut(&[Fate::Dropped]).harmed(), [(at(0), Harm::Rotten), (at(1), Harm::Rotten)]);
    assert_eq!(disk.after_power_cut(&[Fate::Kept]).harmed(), [(at(1), Harm::Rotten)]);
}

#[test]
fn a_misdirected_write_harms_two_places_and_a_lost_one_harms_one() {
    let (world, disk) = world_and_disk(1);
    write(&world, &disk, 0, 1, 8).unwrap();
    flush(&world, &disk).unwrap();
    disk.fault_next_write(WriteFault::Misdirect(at(6)));
    disk.fault_next_write(WriteFault::Lose);
    write(&world, &disk, 1, 2, 1).unwrap();
    write(&world, &disk, 3, 2, 1).unwrap();
    let expected = [(at(1), Harm::Missed), (at(3), Harm::Missed), (at(6), Harm::Overwritten)];
    for flushed in [false, true] {
        assert_eq!(disk.harmed(), expected, "flushed: {flushed}");
        let found: Vec<_> = (0..8).map(|block| read(&world, &disk, block).unwrap()).collect();
        assert_eq!(found, [1, 1, 1, 1, 1, 1, 2, 1]);
        flush(&world, &disk).unwrap();
    }
    assert_eq!(on(&disk.image(), 6), 2);
    for block in [1, 3, 6] {
        write(&world, &disk, block, 5, 1).unwrap();
    }
    flush(&world, &disk).unwrap();
    assert_eq!(disk.harmed(), [], "rewriting heals");
}

#[test]
fn a_misdirected_write_that_the_power_tears_within_a_block_is_told_where_it_landed() {
    let (world, disk) = world_and_disk(1);
    write(&world, &disk, 0, 1, 8).unwrap();
    flush(&world, &disk).unwrap();
    disk.fault_next_write(WriteFault::Misdirect(at(6)));
    write(&world, &disk, 1, 2, 1).unwrap();
    let torn = disk.after_power_cut(&[Fate::Torn(Tear::Head(3))]);
    assert_eq!(torn.harmed(), [(at(1), Harm::Missed), (at(6), Harm::Overwritten)]);
}

#[test]
fn a_failed_write_leaves_any_mixture_and_a_failed_flush_makes_nothing_durable() {
    let (world, disk) = world_and_disk(1);
    write(&world, &disk, 0, 1, 4).unwrap();
    disk.fail_next_flush(DiskError::Os(5));
    assert_eq!(flush(&world, &disk), Err(DiskError::Os(5)));
    assert_eq!(on(&disk.image(), 0), 0);
    flush(&world, &disk).unwrap();
    assert_eq!(on(&disk.image(), 0), 1);
    disk.fault_next_write(WriteFault::Error(DiskError::Media));
    assert_eq!(write(&world, &disk, 0, 2, 4), Err(DiskError::Media));
    let sectors = disk.peek(BLOCK_0, ByteCount(4 * BLOCK)).unwrap();
    assert!(sectors.chunks(512).all(|sector| sector[1] == 1 || sector[1] == 2));
    assert_eq!(disk.harmed().len(), 4);
    assert!(disk.harmed().iter().all(|(_, harm)| *harm == Harm::Mixed));
}

#[test]
fn a_stalled_disk_answers_after_the_stall() {
    let (world, disk) = world_and_disk(1);
    disk.stall(Nanos::secs(5));
    write(&world, &disk, 0, 1, 1).unwrap();
    assert_eq!(world.now(), Nanos::secs(5));
    write(&world, &disk, 0, 2, 1).unwrap();
    assert!(world.now() < Nanos::secs(6));
    let (staller, inside) = (disk.clone(), world.clone());
    world.spawn(
        "staller",
        Box::pin(async move {
            inside.sleep(Nanos(50_000)).await;
            staller.stall(Nanos::secs(7));
        }),
    );
    write(&world, &disk, 0, 3, 1).unwrap();
    assert!(world.now() > Nanos::secs(12), "what is under way is caught by the stall, too");
}

#[test]
fn a_disk_that_vanishes_answers_gone_and_comes_back_with_what_it_had() {
    let (world, disk) = world_and_disk(1);
    write(&world, &disk, 0, 1, 1).unwrap();
    flush(&world, &disk).unwrap();
    write(&world, &disk, 0, 2, 1).unwrap();
    let (under_way, killer, inside) = (disk.clone(), disk.clone(), world.clone());
    world.spawn(
        "killer",
        Box::pin(async move {
            inside.sleep(Nanos(50_000)).await;
            killer.vanish();
        }),
    );
    let outcome = world.block_on(under_way.write(at(1), vec![bytes(3, 1)]));
    assert_eq!(outcome, Some(Err(DiskError::Gone)));
    assert_eq!(read(&world, &disk, 0), Err(DiskError::Gone));
    assert_eq!(flush(&world, &disk), Err(DiskError::Gone));
    assert_eq!(disk.unflushed().iter().map(|write| write.completed).collect::<Vec<_>>(), [true, false]);
    disk.come_back(&mut Rng::new(1));
    assert!(!disk.is_gone() && disk.unflushed().is_empty());
    let found = disk.peek(BLOCK_0, ByteCount(BLOCK)).unwrap();
    assert!(found.chunks(512).all(|sector| sector[1] == 1 || sector[1] == 2));
    write(&world, &disk, 0, 4, 1).unwrap();
    assert_eq!(read(&world, &disk, 0), Ok(4));
}

#[test]
fn a_discarded_block_has_old_bytes_zeros_or_junk() {
    let (world, disk) = world_and_disk(1);
    write(&world, &disk, 0, 1, 64).unwrap();
    flush(&world, &disk).unwrap();
    world.block_on(disk.discard(BLOCK_0, ByteCount(64 * BLOCK))).unwrap().unwrap();
    assert!(disk.unflushed()[0].discard);
    let kinds: BTreeSet<u8> = (0..64).map(|block| disk.peek(at(block), ByteCount(BLOCK)).unwrap()[1].min(2)).collect();
    assert_eq!(kinds, BTreeSet::from([0, 1, 2]));
    assert_eq!(on(&disk.image(), 63), 1, "it is as volatile as a write");
}

/// Three writers and a flusher on two disks; ends after a while.
fn busy(world: &SimWorld, disks: &[SimDisk]) {
    for writer in 0..3 {
        let (disks, mut rng) = (disks.to_vec(), world.rng(&format!("writer {writer}")));
        let task = async move {
            for _ in 0..20 {
                let block = rng.below(100);
                let disk = rng.pick(&disks).clone();
                let _ = disk.write(at(block), vec![bytes(rng.below(256) as u8, 2)]).await;
                let _ = disk.read(at(block), Buf::zeroed(8192)).await;
                if rng.chance(0.3) {
                    let _ = disk.flush().await;
                }
            }
        };
        world.spawn("writer", Box::pin(task));
    }
}

#[test]
fn the_same_seed_gives_the_same_run_and_another_seed_another() {
    let run = |seed| {
        let world = SimWorld::new(seed, Scheduling::Random);
        let make = |no| Box::new(Random::new(Latencies::default(), world.rng(&format!("latencies {no}"))));
        let disks: Vec<SimDisk> = (0..2).map(|no| SimDisk::new(&world, SHAPE, make(no))).collect();
        let plan = FaultPlan {
            latent: 0.1,
            rot: 0.1,
            misdirect: 0.1,
            lose: 0.1,
            write_error: 0.1,
            flush_error: 0.1,
            stall: 0.02,
            stall_max: Nanos::secs(3),
            transient: 0.1,
            ruin: 0.1,
        };
        disks[0].set_plan(plan);
        busy(&world, &disks);
        assert_eq!(world.run_until_idle(Nanos::secs(1000)), Stop::Idle);
        world.halt();
        disks[0].power_cut(&mut world.rng("cut"));
        let content = disks[0].image().content;
        let readable = (0..110).map(|block| {
            let mut bytes = [0; BLOCK as usize];
            content.read(at(block), &mut bytes).map(|()| bytes.to_vec())
        });
        (world.trace_hash(), world.now(), disks[0].harmed(), readable.collect::<Vec<_>>())
    };
    let (first, again, other) = (run(11), run(11), run(12));
    assert!(first == again, "a run does not repeat");
    assert_ne!(first.0, other.0);
    assert!(first.2.len() > 5 && first.2.iter().any(|(_, harm)| *harm == Harm::Overwritten), "{:?}", first.2);
}

#[test]
fn a_crash_point_is_the_last_thing_that_happens() {
    let mut unfinished = BTreeSet::new();
    let total = {
        let (world, disk) = world_and_disk(5);
        busy(&world, &[disk]);
        world.run_until_idle(Nanos::secs(1000));
        world.operations()
    };
    assert!(total > 120, "{total}");
    for point in 1..=total {
        let (world, disk) = world_and_disk(5);
        busy(&world, std::slice::from_ref(&disk));
        world.crash_at(point);
        assert_eq!(world.run_until_idle(Nanos::secs(1000)), Stop::Crashed);
        assert_eq!(world.operations(), point);
        let before = disk.unflushed();
        assert_eq!(world.step(), Some(Stop::Crashed), "nothing goes on");
        world.halt();
        assert_eq!(disk.unflushed(), before, "what was under way hangs in the air");
        unfinished.insert(before.iter().filter(|write| !write.completed).count());
        disk.power_cut(&mut world.rng("cut"));
        assert_eq!(disk.unflushed(), []);
        assert_eq!(write(&world, &disk, 0, 1, 1), Ok(()), "life goes on");
    }
    assert!(unfinished.contains(&0) && unfinished.contains(&3), "{unfinished:?}");
}

#[test]
fn a_killed_engine_keeps_every_completed_write() {
    let mut fates = BTreeSet::new();
    for seed in 0..60 {
        let (world, disk) = world_and_disk(seed);
        write(&world, &disk, 0, 1, 1).unwrap();
        let late = disk.clone();
        world.spawn("late", Box::pin(async move { late.write(at(1), vec![bytes(2, 1)]).await.unwrap() }));
        assert_eq!(world.step(), None);
        world.halt();
        disk.survive_kill(&mut world.rng("kill"));
        assert_eq!(read(&world, &disk, 0), Ok(1));
        let late = disk.peek(at(1), ByteCount(BLOCK)).unwrap();
        fates.insert(late.chunks(512).filter(|sector| sector[1] == 2).count().min(1));
    }
    assert_eq!(fates, BTreeSet::from([0, 1]));
}

#[test]
fn planned_faults_happen_only_where_the_guard_allows() {
    let (world, disk) = world_and_disk(1);
    disk.set_plan(FaultPlan { latent: 1.0, lose: 1.0, ..FaultPlan::default() });
    let watched = disk.clone();
    disk.set_guard(Rc::new(move |fault| match fault {
        Fault::Latent(at) => at.0 >= 8 * BLOCK && watched.harmed().len() < 2,
        _ => false,
    }));
    write(&world, &disk, 0, 1, 16).unwrap();
    for block in 0..16 {
        let _ = read(&world, &disk, block);
    }
    assert_eq!(disk.harmed(), [(at(8), Harm::Unreadable), (at(9), Harm::Unreadable)]);
    assert_eq!(read(&world, &disk, 0), Ok(1));
}

#[test]
fn an_image_moves_to_another_world_and_shares_its_blocks() {
    let (world, disk) = world_and_disk(1);
    write(&world, &disk, 0, 1, 4).unwrap();
    flush(&world, &disk).unwrap();
    let mut image = disk.image();
    let copy = image.clone();
    image.overwrite(at(2), &[9; BLOCK as usize]);
    image.spoil(at(3));
    let (other, _) = world_and_disk(2);
    let twin = SimDisk::from_image(&other, &image, Box::new(Random::new(Latencies::default(), other.rng("twin"))));
    assert_eq!((read(&other, &twin, 1), read(&other, &twin, 2)), (Ok(1), Ok(9)));
    assert_eq!(read(&other, &twin, 3), Err(DiskError::Media));
    assert_eq!((on(&copy, 2), read(&world, &disk, 3)), (1, Ok(1)), "neither the copy nor the disk changed");
}

#[test]
fn a_timing_disk_carries_gibibytes_of_one_word_blocks_in_little_time() {
    let world = SimWorld::new(1, Scheduling::Fifo);
    let class = HddClass::HDD_7200_8TB;
    let disk = SimDisk::new(&world, class.shape(ByteCount::gib(8)), Box::new(Hdd::new(class)));
    let mut buf = Buf::zeroed(1 << 20);
    buf.chunks_exact_mut(8).for_each(|word| word.copy_from_slice(b"weftweft"));
    let (slice, total) = (buf.freeze(), 2 << 10);
    for lane in 0..8 {
        let (disk, slice) = (disk.clone(), slice.clone());
        let task = async move {
            for mib in (lane..total).step_by(8) {
                disk.write(DiskOffset(mib << 20), vec![slice.clone()]).await.unwrap();
            }
            disk.flush().await.unwrap();
        };
        world.spawn("lane", Box::pin(task));
    }
    drop(slice);
    assert_eq!(world.run_until_idle(Nanos::secs(60)), Stop::Idle);
    let rate = (total << 20) as f64 / (world.now().0 as f64 / 1e9);
    assert!(rate > 0.97 * 250e6, "{:.1} MB/s", rate / 1e6);
    assert_eq!(&disk.image().read(DiskOffset(1 << 30), ByteCount(BLOCK)).unwrap()[..8], b"weftweft");
}
