//! A change of layout with a crash at every disk operation, beside a client that writes, and gives back. After each
//! crash the pool opens and proves sound, and holds what was flushed; what was written and not flushed may be there.

use super::change::{LAYOUTS, ask};
use super::{Story, UNIT, bytes_of};
use crate::disk::{DiskImage, Fate, SimDisk};
use crate::rig::{Rig, TIMEOUT};
use crate::timing::{Latencies, Random};
use crate::world::{Scheduling, SimWorld, Stop};
use std::cell::Cell;
use std::rc::Rc;
use weft_engine::error::Result;
use weft_engine::pool::job::JobState;
use weft_engine::units::{ByteCount, Nanos, VirtualOffset};

/// Units of the virtual disk, and the words of those that are written before, while the layout changes, and not at all.
const UNITS: u64 = 96;
const BEFORE: u64 = 7;
const MEANWHILE: u64 = 8;
/// What is written meanwhile, and what is given back.
const WRITTEN: [u64; 3] = [3, 40, 70];
const GIVEN_BACK: (u64, u64) = (48, 16);
/// Power cuts at each crash point.
const CUTS: u64 = 3;

/// Crashes a change at every disk operation.
pub fn a_crash_at_every_disk_operation_of_a_change_loses_nothing() {
    let mut story = Story::with_disks(2_700, 4, ByteCount::mib(12));
    story.make(LAYOUTS[0], ByteCount(UNITS * UNIT));
    story.write(0, UNITS, BEFORE);
    story.flush();
    story.rig.close().unwrap();
    let base: Vec<DiskImage> = story.rig.disks.iter().map(SimDisk::image).collect();
    for at in 1.. {
        let (mut rig, flushed) = (rig_of(&base), Rc::new(Cell::new(false)));
        let ended = play(&mut rig, at, &flushed);
        for cut in 0..CUTS {
            judge(&rig, flushed.get(), cut).unwrap_or_else(|why| panic!("crash at operation {at}, cut {cut}: {why}"));
        }
        if ended {
            assert!(at > 50, "a change takes some operations");
            return;
        }
    }
}

fn rig_of(images: &[DiskImage]) -> Rig {
    let world = SimWorld::new(1, Scheduling::Fifo);
    let disk = |(no, image): (usize, &DiskImage)| {
        let latencies = Latencies::constant(Nanos(100_000));
        SimDisk::from_image(&world, image, Box::new(Random::new(latencies, world.rng(&format!("timing {no}")))))
    };
    let disks = images.iter().enumerate().map(disk).collect();
    Rig::with_disks(world, disks)
}

/// Plays the story up to operation `at`, after the opening. `true`: to its end.
fn play(rig: &mut Rig, at: u64, flushed: &Rc<Cell<bool>>) -> bool {
    let world = rig.world.clone();
    let mut rng = world.rng("order");
    rig.options.tuning.buffer_memory = 1 << 20;
    let pool = rig.open(&mut rng).unwrap();
    world.crash_at(world.operations() + at);
    let told = flushed.clone();
    let played = world.block_on_within(TIMEOUT, async move {
        let vdisk = pool.vdisk("vdisk").expect("it was made");
        let job = pool.vdisk_change("vdisk", &ask(LAYOUTS[1]), 0).await?.expect("it is not so yet");
        for unit in WRITTEN {
            vdisk.write(VirtualOffset(unit * UNIT), &bytes_of(MEANWHILE, UNIT), false).await?;
        }
        vdisk.write_zeroes(VirtualOffset(GIVEN_BACK.0 * UNIT), GIVEN_BACK.1 * UNIT, false, false).await?;
        vdisk.flush().await?;
        told.set(true);
        assert_eq!(pool.job_wait(job).await?.state, JobState::Done);
        pool.checkpoint().await
    });
    let ended = match played {
        Ok(ended) => ended.map(|()| true).expect("nothing fails"),
        Err(Stop::Crashed) => false,
        Err(stop) => panic!("it never ended ({stop:?}); still there: {:?}", world.tasks()),
    };
    rig.halt();
    ended
}

/// Opens what a power cut leaves: all that was not flushed, nothing of it, or every other write.
fn judge(rig: &Rig, flushed: bool, cut: u64) -> std::result::Result<(), String> {
    let fate = |no: usize| if cut == 0 || cut == 2 && no.is_multiple_of(2) { Fate::Kept } else { Fate::Dropped };
    let image = |disk: &SimDisk| disk.after_power_cut(&(0..disk.unflushed().len()).map(fate).collect::<Vec<Fate>>());
    let images: Vec<DiskImage> = rig.disks.iter().map(image).collect();
    let mut rig = rig_of(&images);
    let mut rng = rig.world.rng("order");
    let pool = rig.open(&mut rng).map_err(|error| format!("it does not open: {error}"))?;
    let looked = pool.clone();
    let looks = async move {
        let report = looked.check(false).await?;
        let mut bytes = vec![0xAA; (UNITS * UNIT) as usize];
        let vdisk = looked.vdisk("vdisk").expect("it was made");
        vdisk.read(VirtualOffset(0), &mut bytes).await?;
        Result::Ok((report, bytes))
    };
    let (report, bytes) = rig.run(looks).map_err(|error| format!("it cannot be read: {error}"))?;
    drop(pool);
    rig.halt();
    if !report.is_sound() {
        return Err(format!("it is not sound: {report:?}"));
    }
    for unit in 0..UNITS {
        let given_back = (GIVEN_BACK.0..GIVEN_BACK.0 + GIVEN_BACK.1).contains(&unit);
        let new = if given_back { 0 } else { MEANWHILE };
        let changes = given_back || WRITTEN.contains(&unit);
        let found = &bytes[(unit * UNIT) as usize..][..UNIT as usize];
        let is = |word: u64| found == bytes_of(word, UNIT);
        let right = if changes { is(new) || !flushed && is(BEFORE) } else { is(BEFORE) };
        if !right {
            return Err(format!("unit {unit} begins with {}, flushed: {flushed}", found[0]));
        }
    }
    Ok(())
}
