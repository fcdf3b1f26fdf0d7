//! Stories of stripes that are copied to lie in a better place, and lost there before they were durable.

use super::change::{LAYOUTS, ask};
use super::{PARITY, Story, UNIT, bytes_of};
use crate::sample::sample;
use std::collections::BTreeMap;
use weft_engine::geometry::Resiliency;
use weft_engine::pool::change::ChangeAsk;
use weft_engine::units::{ByteCount, Nanos};
use weft_engine::world::World;

/// What copies stripes.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Copies {
    /// They get another layout.
    Rise,
    /// They are put in order.
    Order,
    /// Their units come down from packed stripes.
    Down,
    /// They leave a fast tier.
    Tier,
}

const ALL: [Copies; 4] = [Copies::Rise, Copies::Order, Copies::Down, Copies::Tier];

impl Story {
    /// A full virtual disk, all of it durable, of which stripes are about to be copied.
    fn that_copies(seed: u64, copies: Copies) -> Story {
        let resiliency = if (seed / 4).is_multiple_of(2) { PARITY } else { Resiliency::Mirror { copies: 2 } };
        match copies {
            Copies::Rise => {
                let mut story = Story::of(seed, LAYOUTS[seed as usize % 3], false);
                story.fill(1);
                story.change(ask(LAYOUTS[(seed as usize + 1) % 3]));
                story
            }
            Copies::Order => {
                let mut story = Story::that_seeks(seed, resiliency, ByteCount::mib(4));
                story.fill_anyhow(10_000);
                story
            }
            Copies::Down => {
                let mut story = Story::new(seed, resiliency);
                story.fill(1);
                story.scatter(60, 1000);
                story.flush();
                story.destage();
                story.flush();
                story.spawn_move_down();
                story
            }
            Copies::Tier => {
                let mut story = Story::tiered(seed, resiliency, ByteCount::mib(4));
                story.set_tier(ByteCount::mib(3));
                story.fill(1);
                story.set_tier(ByteCount::ZERO);
                story
            }
        }
    }

    fn withdrawals(&self) -> u64 {
        self.rig.pool().store().limbo.withdrawals()
    }

    fn spawn_move_down(&self) {
        let pool = self.rig.pool();
        self.rig.world.spawn("mover", Box::pin(async move { while pool.move_everything_down().await > 0 {} }));
    }

    fn run_for(&self, time: Nanos) {
        self.rig.world.run_until(time, || false);
    }

    /// Lets time pass until there are copies that are not durable, and a moment more.
    fn until_copied(&mut self) {
        let pool = self.rig.pool();
        let is_copied = || {
            let (store, map) = (pool.store(), pool.store().map.borrow());
            map.tables.keys().any(|table| !store.limbo.unsettled(*table).is_empty())
        };
        self.rig.world.run_until(Nanos::secs(2), is_copied);
        let moment = Nanos(self.rng.below(4_000_000));
        self.run_for(moment);
    }

    /// All disks lose what their caches held, and are back.
    fn blink(&mut self) {
        self.lose_caches();
        self.come_back();
        self.run_for(Nanos::secs(20));
    }

    /// Compares every unit with all words that it may be of.
    fn prove_any(&self, words: &BTreeMap<u64, Vec<u64>>) {
        let bytes = self.bytes();
        for (unit, words) in words {
            let found = &bytes[(unit * UNIT) as usize..][..UNIT as usize];
            assert!(words.iter().any(|word| found == bytes_of(*word, UNIT)), "unit {unit} is of none of {words:?}");
        }
    }
}

/// Nobody writes anything while stripes are copied, and the caches of all disks are lost: what they were copied from is
/// there, so nothing is lost, and nobody has to give anything up.
pub fn a_copy_that_is_lost_costs_nothing() {
    let mut lost = [0; ALL.len()];
    for seed in sample(0..48) {
        let copies = ALL[seed as usize % ALL.len()];
        let mut story = Story::that_copies(2_700 + seed, copies);
        let before = story.withdrawals();
        for _ in 0..4 {
            story.until_copied();
            story.blink();
            let failure = story.vdisk().failure();
            assert!(failure.is_none(), "seed {seed}, {copies:?}: {failure:?}");
            story.prove_bytes();
            if copies == Copies::Down {
                story.spawn_move_down();
            }
        }
        lost[copies as usize] += story.withdrawals() - before;
        story.flush();
        match copies {
            Copies::Rise => {
                let job = story.change(ChangeAsk::default());
                story.until_changed(job);
            }
            Copies::Order => assert!(story.rest()),
            Copies::Down => while story.move_down() > 0 {},
            Copies::Tier => story.until_left(0),
        }
        story.prove();
        story.crash();
        story.prove();
    }
    assert!(lost.iter().all(|lost| *lost > 0), "{lost:?}: of each kind some are lost");
}

/// Clients write whole stripes and parts of some, before they are copied and while they are: what they wrote is lost
/// with the caches of all disks, and their flush says so, or it is there.
pub fn what_clients_wrote_into_a_copy_is_never_lost_in_silence() {
    let mut told = 0;
    for seed in sample(0..96) {
        let copies = ALL[seed as usize % ALL.len()];
        let mut story = Story::that_copies(2_800 + seed, copies);
        let mut words: BTreeMap<u64, Vec<u64>> = story.words.iter().map(|(unit, word)| (*unit, vec![*word])).collect();
        // One write, or two: where one is lost as writes are, the flush fails, and nobody sees what became of copies.
        for round in 0..1 + seed / 4 % 2 {
            let moment = Nanos(story.rng.below(3_000_000));
            story.run_for(moment);
            let (per, units) = (story.per_stripe(), story.units());
            let first = story.rng.below(units / per) * per;
            let idle = matches!(copies, Copies::Order | Copies::Tier);
            let part = if idle { per } else { 1 };
            let (count, word) = (part.min(units - first), 70_000 + round);
            story.write(first, count, word);
            (first..first + count).for_each(|unit| words.entry(unit).or_default().push(word));
            // Those are copied only when nobody has asked for anything for a while.
            let most = if idle { 1_000_000_000 } else { 30_000_000 };
            let time = Nanos(story.rng.below(most));
            story.run_for(time);
        }
        story.blink();
        let vdisk = story.vdisk();
        let flushed = story.rig.run(async move { vdisk.flush().await });
        if flushed.is_ok() {
            story.prove();
        } else {
            told += 1;
            story.clear();
            story.prove_any(&words);
        }
    }
    println!("told of {told}");
    assert!(told > 0, "some writes are lost");
}
