//! A crash, and an error, at every single operation of a checkpoint.

extern crate std;
use super::super::Wishes;
use super::world::{State, World};
use super::*;

/// A disk with some history: versions, dead pages, free places in between; and what should be on it.
pub fn history(seed: u64, checkpoints: u64) -> Judged<(Disk, State)> {
    let mut rng = Rng(seed);
    let world = World::new(seed, 400);
    for no in 0..checkpoints {
        let changes = if no == 0 { 900 } else { 20 + rng.below(60) };
        (0..changes).for_each(|_| world.change(&mut rng));
        let versions: Vec<u64> = world.state().versions.into_keys().collect();
        let drop = if versions.len() > 3 { [versions[rng.below(4) as usize]].into() } else { Vec::new() };
        run(world.checkpoint(Wishes { keep: rng.one_in(2), drop }))?;
    }
    world.judge()?;
    Ok((world.disk.copy(), world.state()))
}

/// What happens to the `operation`th operation of a checkpoint.
#[derive(Clone, Copy)]
enum Mishap {
    None,
    Crash,
    Error,
}

/// A checkpoint with some changes, a version made and one dropped, and a mishap; gives the world after it, not opened
/// again.
fn checkpoint(disk: &Disk, state: &State, seed: u64, operation: u64, mishap: Mishap) -> Judged<World> {
    let mut rng = Rng(seed);
    let world = World::of(disk.copy(), state.clone(), 2, 24);
    (0..25).for_each(|_| world.change(&mut rng));
    let drop = state.versions.keys().take(1).copied().collect();
    {
        let mut disk = world.disk.set();
        let at = Some(disk.operations + operation);
        match mishap {
            Mishap::None => {}
            Mishap::Crash => disk.crash_at = at,
            Mishap::Error => disk.fail_at = at,
        }
    }
    let done = run(world.checkpoint(Wishes { keep: true, drop }))?;
    ensure!(done.is_some() == matches!(mishap, Mishap::None), "operation {operation} decides");
    Ok(world)
}

#[test]
fn a_crash_at_any_operation_of_a_checkpoint_leaves_the_root_before_or_the_new_one_whole() {
    let (mut scenes, mut new) = (0, 0);
    for seed in 0..4 {
        let (disk, state) = history(seed, 12).unwrap();
        let calm = checkpoint(&disk, &state, seed, 0, Mishap::None).unwrap();
        let operations = calm.disk.get().operations - disk.get().operations;
        for operation in 0..operations {
            for variant in 0..3 {
                let mut world = checkpoint(&disk, &state, seed, operation, Mishap::Crash).unwrap();
                world.disk.set().reseed(seed ^ variant << 32 ^ operation);
                world.reopen().unwrap_or_else(|why| panic!("seed {seed}, operation {operation}: {why}"));
                world.judge().unwrap_or_else(|why| panic!("seed {seed}, operation {operation}: {why}"));
                let is_new = world.tree.root().number != disk.get().root.number;
                assert!(!is_new || operation == operations - 1, "only the last operation makes a root");
                (scenes, new) = (scenes + 1, new + u64::from(is_new));
            }
        }
    }
    assert!(scenes > 300 && new > 0, "{scenes} scenes, {new} with the new root");
}

#[test]
fn an_error_at_any_operation_of_a_checkpoint_changes_nothing_and_the_next_one_makes_up_for_it() {
    for seed in 0..2 {
        let (disk, state) = history(seed, 8).unwrap();
        let calm = checkpoint(&disk, &state, seed, 0, Mishap::None).unwrap();
        let operations = calm.disk.get().operations - disk.get().operations;
        for operation in 0..operations {
            let world = checkpoint(&disk, &state, seed, operation, Mishap::Error).unwrap();
            run(world.read_all(KeyRange::ALL, usize::MAX)).unwrap();
            let again = run(world.checkpoint(Wishes { keep: true, drop: Vec::new() })).unwrap();
            // Whether the root was written is not known after the last one: nothing is written any more.
            assert_eq!(again.is_some(), operation < operations - 1, "operation {operation} of {operations}");
            if again.is_some() {
                world.judge().unwrap_or_else(|why| panic!("seed {seed}, operation {operation}: {why}"));
            }
        }
    }
}

#[test]
fn a_store_without_a_free_page_refuses_the_checkpoint_and_nothing_is_lost_or_leaked() {
    let world = World::new(3, 50);
    let mut rng = Rng(3);
    (0..400).for_each(|_| world.change(&mut rng));
    run(world.checkpoint(Wishes::default())).unwrap();
    let taken = world.disk.get().pages.len() as u64;
    world.disk.set().capacity = taken + 3;
    (0..400).for_each(|_| world.change(&mut rng));
    assert_eq!(run(world.tree.checkpoint(Wishes::default())), Err(super::super::TreeError::Full));
    run(world.read_all(KeyRange::ALL, 10)).unwrap();
    world.disk.set().capacity = u64::MAX;
    assert!(run(world.checkpoint(Wishes::default())).unwrap().is_some());
    world.judge().unwrap();
}
