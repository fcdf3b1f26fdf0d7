//! Storms: thousands of changes, reads, checkpoints, versions, crashes and errors in an order that a seed decides.

extern crate std;
use super::super::Wishes;
use super::world::World;
use super::*;

/// How one storm went.
#[derive(Default, Debug)]
pub struct Weather {
    pub checkpoints: u64,
    pub crashes: u64,
    pub height_max: u16,
    pub versions_made: u64,
}

/// A storm of `steps` steps; what was wrong first, if anything.
pub fn storm(seed: u64, steps: u64) -> Judged<Weather> {
    let mut rng = Rng(seed);
    let budget_pages = [14, 24, 400][rng.below(3) as usize];
    let mut world = World::new(seed, budget_pages);
    let mut weather = Weather::default();
    // Every other tree is tall from the beginning.
    if seed.is_multiple_of(2) {
        for key in all_keys() {
            let value = rng.value(36);
            world.tree.put(key, &value);
            world.head.borrow_mut().insert(key, value);
        }
    }
    for _ in 0..steps {
        match rng.below(100) {
            0..60 => world.change(&mut rng),
            60..75 => run(world.read(&mut rng))?,
            75..78 => run(world.read_all(rng.range(), 1 + rng.below(50) as usize))?,
            78..80 => world.tree.forget_pages(),
            80..81 => world.reopen()?,
            _ => checkpoint(&mut world, &mut rng, &mut weather)?,
        }
        world.budget_is_kept()?;
    }
    world.judge()?;
    weather.checkpoints = world.checkpoints.get();
    weather.crashes = world.crashes.get();
    weather.height_max = world.height_max.get();
    Ok(weather)
}

/// One or two checkpoints beside changes and reads, perhaps with a failure on the way; then a look at everything.
fn checkpoint(world: &mut World, rng: &mut Rng, weather: &mut Weather) -> Judged<()> {
    let wishes: Vec<Wishes> = (0..1 + rng.below(2)).map(|_| wish(world, rng)).collect();
    let mut other = Rng(rng.next());
    let steps = other.below(30);
    let in_reach = {
        let mut disk = world.disk.set();
        disk.is_slow = rng.one_in(2);
        let at = disk.operations + rng.below(80);
        match rng.below(8) {
            0..2 => disk.crash_at = Some(at),
            2 => disk.fail_at = Some(at),
            _ => {}
        }
        disk.crash_at.is_some() || disk.fail_at.is_some()
    };
    let mut more = Rng(rng.next());
    let checkpoints = async {
        for (no, wishes) in wishes.into_iter().enumerate() {
            (0..no * 10).for_each(|_| world.change(&mut more));
            let drops = wishes.drop.iter().all(|version| world.state().versions.contains_key(version));
            let kept = wishes.keep;
            if drops && world.checkpoint(wishes).await?.is_some() {
                weather.versions_made += u64::from(kept);
            }
        }
        Ok(())
    };
    let (done, seen) = run_both(checkpoints, world.meanwhile(&mut other, steps));
    world.disk.set().is_slow = false;
    let has_failed = world.tree.state.borrow().in_doubt.is_some() || world.disk.get().is_dead;
    if !has_failed {
        (world.disk.set().crash_at, world.disk.set().fail_at) = (None, None);
    }
    done.and(seen)?;
    if has_failed {
        ensure!(in_reach, "nothing was to fail");
        world.crashes.set(world.crashes.get() + 1);
        world.reopen()?;
    }
    if has_failed || rng.one_in(2) { world.judge() } else { Ok(()) }
}

/// Readers that take their time while the tree is replaced again and again, with very little memory for pages.
pub fn slow_readers(seed: u64) -> Judged<()> {
    let (mut rng, mut other) = (Rng(seed), Rng(!seed));
    let world = World::new(seed, 14);
    (0..400).for_each(|_| world.change(&mut rng));
    run(world.checkpoint(Wishes { keep: true, drop: Vec::new() }))?;
    world.disk.set().is_slow = true;
    let checkpoints = async {
        for _ in 0..30 {
            (0..40).for_each(|_| world.change(&mut rng));
            world.checkpoint(Wishes::default()).await?;
        }
        Judged::Ok(())
    };
    let readers = async {
        for _ in 0..60 {
            world.read(&mut other).await?;
        }
        Judged::Ok(())
    };
    let (done, seen) = run_both(checkpoints, readers);
    done.and(seen)?;
    world.judge()
}

/// What a checkpoint should do beside writing: a few versions are kept at a time, and go in any order.
fn wish(world: &World, rng: &mut Rng) -> Wishes {
    let mut wishes = Wishes { keep: rng.one_in(3), drop: Vec::new() };
    for number in world.state().versions.into_keys() {
        if rng.one_in(5) {
            wishes.drop.insert(rng.below(wishes.drop.len() as u64 + 1) as usize, number);
        }
    }
    wishes
}

#[test]
fn a_storm_of_changes_versions_crashes_and_errors_never_shows_anything_but_what_the_model_has() {
    let mut all = Weather::default();
    for seed in 0..seeds(12) {
        let weather = storm(seed, 1000).unwrap_or_else(|why| panic!("seed {seed}: {why}"));
        all.checkpoints += weather.checkpoints;
        all.crashes += weather.crashes;
        all.versions_made += weather.versions_made;
        all.height_max = all.height_max.max(weather.height_max);
    }
    assert!(all.height_max >= 4, "the trees were deep: {all:?}");
    assert!(all.checkpoints > 1000 && all.crashes > 150 && all.versions_made > 250, "{all:?}");
}

#[test]
fn slow_readers_see_no_place_that_was_given_out_again() {
    for seed in 0..seeds(10) {
        slow_readers(seed).unwrap_or_else(|why| panic!("seed {seed}: {why}"));
    }
}

#[test]
fn a_storm_is_repeated_by_its_seed() {
    let trace = |seed| {
        let weather = storm(seed, 400).unwrap();
        std::format!("{weather:?}")
    };
    assert_eq!(trace(5), trace(5));
}
