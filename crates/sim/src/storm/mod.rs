//! Storms: one seed, one pool, and everything that can happen to it. What can happen depends on the [`Profile`].
//!
//! A failure is repeated by its profile and its seed alone.

mod cached;
mod changed;
mod classic;
mod clients;
mod copied;
mod daemon;
mod damage;
mod dare;
mod forced;
mod grown;
mod many;
mod moves;
mod outage;
mod redundancy;
mod scene;
mod split;
mod tiered;
mod upkeep;

use crate::rng::Rng;
use crate::world::{Scheduling, SimWorld};
use outage::Kind;
use scene::{Beside, Scene};
use std::fmt;
use std::str::FromStr;

/// What befalls the pool.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Profile {
    /// No more disks than the layout survives misbehave, in every way; see [`classic`].
    Classic,
    /// Beside that, disks are put back from copies, used elsewhere, or blank; reads fail once, and power cuts leave
    /// junk; see [`damage`].
    Damage,
    /// Any number of disks vanishes at once and comes back with all it had; see [`outage`].
    Outage,
    /// [`Profile::Outage`], but disks may come back without what their volatile caches held.
    Powerless,
    /// No more disks than the pool survives vanish and come back, with or without their caches; then nothing may lack
    /// its redundancy.
    Flicker,
    /// Disks vanish and come back while slots move.
    Blink,
    /// [`Profile::Powerless`]; and some are back as older copies of themselves first; see [`copied`].
    Copied,
    /// [`Profile::Powerless`]; and a person has a pool opened that its machine refuses to open; see [`forced`].
    Forced,
    /// Two machines open what each sees of the disks; see [`split`].
    Split,
    /// Virtual disks of different layouts are made, grown and removed, in pools that are nearly full; see [`many`].
    Many,
    /// The power goes while checkpoints are taken, every time.
    Torn,
    /// One of the others with budgets that hold a few stripes.
    Tiny,
    /// One of the others, of a virtual disk whose write-back cache comes, changes and goes; see [`cached`].
    Cached,
    /// One of the others, of a virtual disk whose fast tier comes, changes and goes; see [`tiered`].
    Tiered,
    /// One of the others, of a virtual disk that gets other layouts, and a write-back cache now and then; see
    /// [`changed`].
    Changed,
    /// One of the others, on disks of which half have caches that are not volatile, as long as nobody switches them.
    Protected,
    /// One of the others, of a pool whose log lies on disks of its own, and whose stripes are short.
    Journals,
}

/// Every profile.
pub const ALL: [Profile; 17] = [
    Profile::Classic,
    Profile::Damage,
    Profile::Outage,
    Profile::Powerless,
    Profile::Flicker,
    Profile::Blink,
    Profile::Forced,
    Profile::Split,
    Profile::Many,
    Profile::Torn,
    Profile::Tiny,
    Profile::Cached,
    Profile::Tiered,
    Profile::Changed,
    Profile::Protected,
    Profile::Journals,
    Profile::Copied,
];

/// The profiles that a seed chooses among for storms with tiny budgets, and with protected disks.
pub const ENABLED: [Profile; 5] =
    [Profile::Classic, Profile::Outage, Profile::Powerless, Profile::Flicker, Profile::Blink];

/// The profiles that storms with write-back caches, with other layouts, and with journal disks, are of.
const WITH_CHANGES: [Profile; 10] = [
    Profile::Classic,
    Profile::Damage,
    Profile::Outage,
    Profile::Powerless,
    Profile::Flicker,
    Profile::Blink,
    Profile::Forced,
    Profile::Split,
    Profile::Torn,
    Profile::Many,
];

/// The profile of the storm of `seed` that is one with other changes.
fn with_changes(seed: u64, rng: &Rng) -> Profile {
    match WITH_CHANGES[(seed % WITH_CHANGES.len() as u64) as usize] {
        Profile::Outage if rng.fork("copied").chance(0.4) => Profile::Copied,
        other => other,
    }
}

/// What a storm was like.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Summary {
    /// One line for people.
    pub line: String,
    /// Equal for equal runs.
    pub hash: u64,
}

/// Runs the storm of `seed`, whose profile follows from the seed.
pub fn run(seed: u64) -> Result<Summary, String> {
    run_profile(Profile::of_seed(seed), seed)
}

/// Runs the storm of `seed` of this profile.
pub fn run_profile(profile: Profile, seed: u64) -> Result<Summary, String> {
    let world = SimWorld::new(seed, Scheduling::Random);
    let mut rng = world.rng("storm");
    let mut scene = Scene::new(&mut rng);
    let profile = match profile {
        Profile::Tiny => {
            scene.shrink(&mut rng);
            Profile::of_seed(seed)
        }
        Profile::Cached => {
            scene.beside.cached = true;
            if rng.fork("tiny").chance(0.25) {
                scene.shrink(&mut rng);
            }
            let of = with_changes(seed, &rng);
            if of == Profile::Classic && rng.fork("risky").chance(0.4) {
                scene.beside.risky = true;
                scene.victims.clear();
            }
            of
        }
        Profile::Tiered => {
            scene.fixed = false;
            scene.beside = Beside { tiered: true, cached: rng.fork("cached").chance(0.2), ..Beside::default() };
            if rng.fork("tiny").chance(0.25) {
                scene.shrink(&mut rng);
            }
            with_changes(seed, &rng)
        }
        Profile::Changed => {
            scene.beside = Beside { changed: true, cached: rng.fork("cached").chance(0.2), ..Beside::default() };
            if rng.fork("tiny").chance(0.25) {
                scene.shrink(&mut rng);
            }
            with_changes(seed, &rng)
        }
        Profile::Journals => {
            scene.set_log_apart(&mut rng.fork("journals"));
            match with_changes(seed, &rng) {
                // Its virtual disks need all disks.
                Profile::Many => Profile::Classic,
                other => other,
            }
        }
        Profile::Protected => {
            world.protect(0.5);
            Profile::of_seed(seed)
        }
        other => other,
    };
    match profile {
        Profile::Classic => classic::run(&world, rng, scene, false),
        Profile::Damage => classic::run(&world, rng, scene, true),
        Profile::Outage => outage::run(&world, rng, scene, Kind::Any),
        Profile::Powerless => outage::run(&world, rng, scene, Kind::Powerless),
        Profile::Flicker => outage::run(&world, rng, scene, Kind::Flicker),
        Profile::Blink => outage::run(&world, rng, scene, Kind::Blink),
        Profile::Copied => outage::run(&world, rng, scene, Kind::Copied),
        Profile::Forced => outage::run(&world, rng, scene, Kind::Forced),
        Profile::Torn => outage::run(&world, rng, scene, Kind::Torn),
        Profile::Split => split::run(&world, rng, scene),
        Profile::Many => many::run(&world, rng, scene),
        Profile::Tiny
        | Profile::Cached
        | Profile::Tiered
        | Profile::Changed
        | Profile::Protected
        | Profile::Journals => {
            unreachable!("another one was chosen")
        }
    }
}

/// The first of `seeds` whose storm fails with this mutant and passes without it, and what it said.
#[cfg(feature = "mutants")]
pub fn hunt(
    mutant: weft_engine::mutant::Mutant,
    profile: Profile,
    seeds: std::ops::Range<u64>,
) -> Option<(u64, String)> {
    let run = |seed: u64| {
        let storm = std::panic::AssertUnwindSafe(|| run_profile(profile, seed).map(|_| ()));
        let panicked = |cause: Box<dyn std::any::Any + Send>| {
            let text = cause.downcast_ref::<String>().cloned();
            text.or_else(|| cause.downcast_ref::<&str>().map(|text| String::from(*text))).unwrap_or_default()
        };
        std::panic::catch_unwind(storm).unwrap_or_else(|cause| Err(format!("it panicked: {}", panicked(cause))))
    };
    for seed in seeds {
        weft_engine::mutant::set(Some(mutant));
        let with = run(seed);
        weft_engine::mutant::set(None);
        if let Err(why) = with
            && run(seed).is_ok()
        {
            return Some((seed, why));
        }
    }
    None
}

impl Profile {
    /// The one that a seed alone means on the command line: each in turn.
    pub fn any(seed: u64) -> Profile {
        ALL[(seed % ALL.len() as u64) as usize]
    }

    /// The one of the fewest kinds of trouble that a seed means: what else a storm has is laid over these.
    pub fn of_seed(seed: u64) -> Profile {
        ENABLED[(seed % ENABLED.len() as u64) as usize]
    }

    /// What it is called on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Profile::Classic => "classic",
            Profile::Damage => "damage",
            Profile::Outage => "outage",
            Profile::Powerless => "powerless",
            Profile::Flicker => "flicker",
            Profile::Blink => "blink",
            Profile::Forced => "forced",
            Profile::Split => "split",
            Profile::Many => "many",
            Profile::Torn => "torn",
            Profile::Tiny => "tiny",
            Profile::Cached => "cached",
            Profile::Tiered => "tiered",
            Profile::Changed => "changed",
            Profile::Protected => "protected",
            Profile::Journals => "journals",
            Profile::Copied => "copied",
        }
    }
}

impl fmt::Display for Profile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Profile {
    type Err = String;

    fn from_str(name: &str) -> Result<Profile, String> {
        let names: Vec<&str> = ALL.iter().map(|profile| profile.name()).collect();
        let found = ALL.into_iter().find(|profile| profile.name() == name);
        found.ok_or_else(|| format!("{name} is no profile; there are {}", names.join(", ")))
    }
}

impl Summary {
    /// How a storm in `world` ended.
    fn of(world: &SimWorld, line: String, result: Result<(), String>) -> Result<Summary, String> {
        match result {
            Ok(()) => Ok(Summary { line, hash: world.trace_hash() }),
            Err(why) => Err(format!("{why}\n  scene: {line}")),
        }
    }
}
