//! Storms that once failed, kept; and the promise that a seed is a storm.

use weft_sim::storm::{Profile, Summary, run_profile};

/// Each of these found a defect of the engine when it was first run. The scenes change with the storm's code, so this
/// is a sample with a history rather than a proof; the defects themselves have their stories in `stories.rs` and
/// `invariants.rs`.
const SEEDS: [u64; 29] = [
    30, 176, 1081, 1133, 1425, 1482, 1877, 2118, 2135, 2228, 2510, 2885, 3197, 3256, 3290, 3854, 30194, 31386, 40116,
    40711, 52158, 10334, 10751, 10834, 12033, 21364, 1500, 1062, 501234,
];

/// Storms of outages that found something; their stories are in `outages.rs`.
const OUTAGES: [(Profile, u64); 25] = [
    (Profile::Outage, 200),
    (Profile::Outage, 309),
    (Profile::Outage, 547),
    (Profile::Powerless, 59),
    (Profile::Powerless, 80),
    (Profile::Powerless, 123),
    (Profile::Powerless, 168),
    (Profile::Powerless, 171),
    (Profile::Powerless, 284),
    (Profile::Powerless, 851),
    (Profile::Powerless, 902),
    (Profile::Flicker, 337),
    (Profile::Flicker, 357),
    (Profile::Flicker, 451),
    (Profile::Flicker, 614),
    (Profile::Blink, 28),
    (Profile::Blink, 59),
    (Profile::Blink, 282),
    (Profile::Blink, 327),
    (Profile::Blink, 455),
    (Profile::Blink, 760),
    (Profile::Blink, 782),
    // A metadata page had moved, and no checkpoint said so yet, when the disks went that it was on before: no opening
    // found it again.
    (Profile::Blink, 2361),
    // A run of stripes of which some were down was written again with newer versions in it, which were on their way
    // already.
    (Profile::Powerless, 1994),
    // A flush waited for room in a log that was full of what was lost with the disks.
    (Profile::Powerless, 5989),
];

fn run(seed: u64) -> Result<Summary, String> {
    run_profile(Profile::Classic, seed)
}

#[test]
fn seeds_that_once_failed_pass() {
    for seed in SEEDS {
        if let Err(why) = run(seed) {
            panic!("weft-sim --profile classic {seed}: {why}");
        }
    }
}

/// Storms of other profiles that found something: a pool that was closed while disks went and came waited for ever; and
/// half of the disks went on although a label that was cut short let the other half be opened elsewhere.
const OTHERS: [(Profile, u64); 53] = [
    (Profile::Changed, 260_000_029),
    (Profile::Split, 1442),
    (Profile::Split, 1478),
    (Profile::Split, 1506),
    (Profile::Split, 1554),
    (Profile::Split, 1603),
    (Profile::Split, 364),
    (Profile::Split, 1122),
    (Profile::Split, 1643),
    (Profile::Split, 1678),
    (Profile::Split, 2065),
    // A write looked for memory just when clients began to be refused: nobody woke it.
    (Profile::Split, 5511),
    // Two versions of a stripe were withdrawn one after the other, and what was flushed before both was given away.
    (Profile::Tiny, 5004),
    // Clients of a virtual disk that a crash removed were waited for.
    (Profile::Many, 5448),
    // A checksum page was read amid the log, where it had been before it moved.
    (Profile::Tiny, 30144),
    // A commit was durable, and the daemon killed, before it was on record what a disk had lost of its stripe.
    (Profile::Powerless, 30115),
    (Profile::Tiny, 22017),
    // A flush was acknowledged before what had replaced a withdrawn stripe was durable.
    (Profile::Tiny, 61352),
    (Profile::Tiny, 61526),
    // A page write that was put off was made up for in the slot of the last durable image.
    (Profile::Outage, 60153),
    // Writes waited for memory, and that for a disk that did not come back.
    (Profile::Split, 70619),
    // Stripes that could be written again waited for room in the log, which nobody made while they counted as stuck.
    (Profile::Forced, 138),
    // Disks that came back while the repair before the judgement ran were not waited for.
    (Profile::Damage, 60787),
    (Profile::Damage, 30278),
    // A disk was lost with the second label of an opening, and put back from before the label that it was opened with.
    (Profile::Damage, 1_000_701),
    // A pool was given up amid a write, which looked for other disks for ever, without waiting.
    (Profile::Flicker, 2_100_047),
    // The rest of a block was read, to be packed, while the version before it was in flight.
    (Profile::Flicker, 4_001_209),
    // A copy that was found behind by an opening was left so, because its disk took long to answer.
    (Profile::Many, 4_001_838),
    // The newest label was on one disk only when the power went; that one was put back from before the one before it.
    (Profile::Damage, 5_001_680),
    // A disk had got one label since the copy of it, whatever others got meanwhile; or two, of which others knew one.
    (Profile::Damage, 8_000_492),
    (Profile::Damage, 8_000_432),
    // A copy of what another machine had made of the disk was put back; and a blank one after it.
    (Profile::Damage, 12_001_451),
    (Profile::Damage, 8_001_829),
    // A rebalance sent metadata to a disk that was not up to date, found it elsewhere, and went on for ever.
    (Profile::Damage, 8_001_442),
    // A rebalance moved the last copy of what was not repaired yet to a disk that had just come back, and went again.
    (Profile::Damage, 9_000_465),
    // Told to go on without a disk that had gone on alone, the pool took that for one that only missed something.
    (Profile::Forced, 9_000_936),
    // The pool was closed while it was frozen: stripes that waited for room in the log waited for ever; and where disks
    // came back just then, a batch that had been cut short was missing.
    (Profile::Split, 10_000_372),
    (Profile::Split, 10_000_435),
    // A copy of a page of the tree whose disk was slow to tell counted as sound, and a repair left it as it was.
    (Profile::Damage, 14_000_559),
    // A repair that was under way was past a disk that came then; the storm did not wait for the one after it.
    (Profile::Damage, 15_500_785),
    // A disk that failed as it was given a label was put back from before that: nobody knew that it had it.
    (Profile::Damage, 15_505_664),
    // One read of the last log disk's end failed, which did not last: the pool did not open.
    (Profile::Damage, 26_001_276),
    // A repair waited for its own record, which waited for what the repair was about to bring.
    (Profile::Outage, 4_001_270),
    // What a checkpoint had left that was cut off, of pages that nothing needs, counted as damage.
    (Profile::Blink, 7_000_392),
    // A repairing check left a block as it was, because another slot of its segment had moved.
    (Profile::Classic, 115_000_240),
    // Two of three disks failed at once: the pool was frozen when it was to be closed, at the end of a round and before
    // a calm.
    (Profile::Damage, 110_000_727),
    (Profile::Damage, 114_000_116),
    // Two of three disks failed at once while clients wrote, and those were told that the pool is frozen.
    (Profile::Tiny, 195_002_070),
    // Who waited for a free place was woken again and again while what was moved was still on its way.
    (Profile::Changed, 900_023),
    (Profile::Changed, 900_035),
    (Profile::Changed, 3_001_065),
    // The last copy of metadata moved to a disk that had been lost, and was back, since it was chosen: none was up to
    // date any more.
    (Profile::Tiered, 3_001_165),
    // Metadata was made on the only disk that was there while the pool was frozen, and that was not up to date.
    (Profile::Tiered, 8_002_263),
];

#[test]
fn seeds_of_other_profiles_that_once_failed_pass() {
    for (profile, seed) in OTHERS {
        if let Err(why) = run_profile(profile, seed) {
            panic!("weft-sim --profile {profile} {seed}: {why}");
        }
    }
}

#[test]
fn storms_of_the_profiles_that_no_seed_alone_means_pass() {
    let profiles = [Profile::Split, Profile::Many, Profile::Damage, Profile::Forced, Profile::Torn];
    for (profile, seed) in (1..=12).flat_map(|seed| profiles.map(|of| (of, seed))) {
        if let Err(why) = run_profile(profile, seed) {
            panic!("weft-sim --profile {profile} {seed}: {why}");
        }
    }
}

#[test]
fn storms_of_outages_that_once_failed_pass() {
    for (profile, seed) in OUTAGES {
        if let Err(why) = run_profile(profile, seed) {
            panic!("weft-sim --profile {profile} {seed}: {why}");
        }
    }
}

#[test]
fn the_same_seed_is_the_same_storm() {
    for seed in 1..20 {
        assert_eq!(run(seed), run(seed), "seed {seed}");
    }
}
