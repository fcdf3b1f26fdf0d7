//! Which disks carry the log, and which vote. Pure: from what is known of the disks that are there and up to date.
//!
//! Invariants
//! 1. There are as many copies of the log as there are disks for them, up to [`LOGGERS_MAX`], whatever the disks are
//!    used for, unless fewer are all on fast disks, and one more would not be. Even then they are [`LOGGERS_MIN`] at
//!    least, and what the layouts need; and the next best disk *follows* (`follow.rs`).
//! 2. A domain that fails takes neither all copies of the log nor the majority of the votes, if any choice has that
//!    property. For the sake of the votes fewer disks vote, but never fewer than [`VOTERS_MIN`] where there are as
//!    many.
//! 3. What is best stays best: of choices that are equally good the one that changes the least is taken.
//! 4. Any majority before a step of the votes shares a disk with any majority after it.

use super::labels::{LOGGERS_MAX, LOGGERS_MIN, VOTERS_MAX};
use crate::disk_set::DiskSet;
use crate::format::record::{Media, Usage};
use crate::units::DiskNo;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;

/// The last rank of disks that a flush need not wait for long.
const FAST: u8 = 1;
/// With so many votes one disk may fail.
pub const VOTERS_MIN: usize = 3;

/// A disk that may carry the log, or vote.
#[derive(Clone, Copy, Debug)]
pub struct Candidate<'a> {
    /// Its number.
    pub no: DiskNo,
    /// What it is used for.
    pub usage: Usage,
    /// What it is made of.
    pub media: Media,
    /// What it fails together with; empty: nothing.
    pub domain: &'a str,
    /// Whether it does so now.
    pub now: bool,
}

/// The disks that are to carry the log: journal disks first, then solid-state disks, then others, hot spares and
/// retired disks last; of equals those of different domains. `needed`: the copies that the layouts need, by the
/// failures that they survive.
pub fn loggers(candidates: &[Candidate<'_>], needed: usize) -> DiskSet {
    let most = LOGGERS_MAX.min(candidates.len());
    let choose = |count: usize| pick(candidates, count, count.saturating_sub(1), log_rank);
    let is_fast =
        |set: &DiskSet| candidates.iter().filter(|disk| set.contains(disk.no)).all(|disk| log_rank(disk) <= FAST);
    let fewest = needed.max(LOGGERS_MIN).min(most);
    (fewest..=most).rev().map(choose).find(is_fast).unwrap_or_else(|| choose(most))
}

/// The disk that is to follow the disks `loggers`, which carry the log; none where those are as many as can be.
pub fn follower(candidates: &[Candidate<'_>], loggers: DiskSet) -> Option<DiskNo> {
    if loggers.len() >= LOGGERS_MAX {
        return None;
    }
    let (carrying, free): (Vec<&Candidate<'_>>, Vec<&Candidate<'_>>) =
        candidates.iter().partition(|disk| loggers.contains(disk.no));
    let beside = |disk: &Candidate<'_>| {
        carrying.iter().filter(|other| !disk.domain.is_empty() && other.domain == disk.domain).count()
    };
    free.into_iter().min_by_key(|disk| (log_rank(disk), beside(disk), !disk.now, disk.no)).map(|disk| disk.no)
}

/// How good a disk is for the log: the lower the better.
fn log_rank(disk: &Candidate<'_>) -> u8 {
    match (disk.usage, disk.media) {
        (Usage::Journal, _) => 0,
        (Usage::AutoSelect | Usage::ManualSelect, Media::Ssd) => FAST,
        (Usage::AutoSelect | Usage::ManualSelect, _) => 2,
        (Usage::HotSpare, _) => 3,
        (Usage::Retired, _) => 4,
    }
}

/// The disks that are to vote: of as many domains as can be, retired ones last.
pub fn voters(candidates: &[Candidate<'_>]) -> DiskSet {
    let (least, most) = (VOTERS_MIN.min(candidates.len()), VOTERS_MAX.min(candidates.len()));
    let mut domains: BTreeMap<&str, usize> = BTreeMap::new();
    let alone = candidates.iter().filter(|disk| disk.domain.is_empty()).count();
    candidates
        .iter()
        .filter(|disk| !disk.domain.is_empty())
        .for_each(|disk| *domains.entry(disk.domain).or_default() += 1);
    // A domain with no more votes than this leaves a majority to the others.
    let bearable = |count: usize| count.saturating_sub(1) / 2;
    let possible = |count: &usize| {
        let most = bearable(*count);
        alone * most.min(1) + domains.values().map(|disks| most.min(*disks)).sum::<usize>() >= *count
    };
    let rank = |disk: &Candidate<'_>| (disk.usage == Usage::Retired) as u8;
    match (least..=most).rev().find(possible) {
        Some(count) => pick(candidates, count, bearable(count), rank),
        None => pick(candidates, most, usize::MAX, rank),
    }
}

/// The next step on the way from the votes `have` to the votes `want` (invariant 4): first one more, then one fewer.
pub fn next_voters(have: DiskSet, want: DiskSet) -> DiskSet {
    match (want - have).iter().next() {
        Some(missing) => have.with(missing),
        None => (have - want).iter().next().map_or(have, |more| have.without(more)),
    }
}

/// Takes `count` disks, one after the other: at most `bearable` of one domain as long as that goes, of the lowest rank,
/// of the domain with the fewest taken, those that do it now before others.
fn pick(candidates: &[Candidate<'_>], count: usize, bearable: usize, rank: impl Fn(&Candidate<'_>) -> u8) -> DiskSet {
    let mut taken: Vec<&Candidate<'_>> = Vec::new();
    while taken.len() < count {
        let good = |disk: &&Candidate<'_>| {
            let beside = taken.iter().filter(|other| !disk.domain.is_empty() && other.domain == disk.domain).count();
            (beside >= bearable.max(1), rank(disk), beside, !disk.now, disk.no)
        };
        let free = candidates.iter().filter(|disk| taken.iter().all(|other| other.no != disk.no));
        let Some(best) = free.min_by_key(good) else { break };
        taken.push(best);
    }
    taken.iter().map(|disk| disk.no).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const NAMES: [&str; 5] = ["", "a", "b", "c", "d"];
    const USAGES: [Usage; 5] =
        [Usage::AutoSelect, Usage::ManualSelect, Usage::HotSpare, Usage::Journal, Usage::Retired];
    const MEDIA: [Media; 3] = [Media::Unspecified, Media::Hdd, Media::Ssd];

    fn disk(no: DiskNo, usage: Usage, media: Media, domain: &'static str) -> Candidate<'static> {
        Candidate { no, usage, media, domain, now: false }
    }

    fn hdds(count: u16) -> Vec<Candidate<'static>> {
        (0..count).map(|no| disk(DiskNo(no), Usage::AutoSelect, Media::Hdd, "")).collect()
    }

    fn bits(set: DiskSet) -> u64 {
        set.words()[0]
    }

    fn loggers(disks: &[Candidate<'_>], needed: usize) -> u64 {
        bits(super::loggers(disks, needed))
    }

    fn voters(disks: &[Candidate<'_>]) -> u64 {
        bits(super::voters(disks))
    }

    fn follower(disks: &[Candidate<'_>], loggers: u64) -> Option<DiskNo> {
        super::follower(disks, DiskSet::from_words(&[loggers]))
    }

    fn next_voters(have: u64, want: u64) -> u64 {
        bits(super::next_voters(DiskSet::from_words(&[have]), DiskSet::from_words(&[want])))
    }

    fn three(disks: &[Candidate<'_>]) -> u64 {
        loggers(disks, 3)
    }

    #[test]
    fn two_fast_disks_carry_the_log_alone_where_no_layout_needs_more_and_the_next_best_follows() {
        let mut disks = hdds(6);
        assert_eq!((loggers(&disks, 2), follower(&disks, 0b111)), (0b111, None));
        disks[4].media = Media::Ssd;
        assert_eq!(loggers(&disks, 2), 0b1_0011, "one alone is too few");
        disks[5].usage = Usage::Journal;
        assert_eq!((loggers(&disks, 2), loggers(&disks, 3)), (0b11_0000, 0b11_0001));
        assert_eq!(follower(&disks, 0b11_0000), Some(DiskNo(0)));
        disks[2].now = true;
        assert_eq!(follower(&disks, 0b11_0000), Some(DiskNo(2)), "the one that follows goes on");
        disks[3].media = Media::Ssd;
        assert_eq!(loggers(&disks, 2), 0b11_1000, "more of them are better");
        (disks[3].media, disks[4].domain, disks[5].domain) = (Media::Hdd, "a", "a");
        disks[0].domain = "b";
        assert_eq!(loggers(&disks, 2).count_ones(), 3, "not both in what fails together");
    }

    fn now(mut disks: Vec<Candidate<'static>>, set: u64) -> Vec<Candidate<'static>> {
        disks.iter_mut().for_each(|disk| disk.now = set >> disk.no.0 & 1 == 1);
        disks
    }

    #[test]
    fn equal_disks_keep_what_they_have_and_the_first_come_first() {
        assert_eq!((three(&hdds(8)), voters(&hdds(8))), (0b111, 0b11111));
        assert_eq!((three(&hdds(2)), voters(&hdds(2))), (0b11, 0b11));
        assert_eq!((three(&hdds(1)), voters(&hdds(1))), (1, 1));
        assert_eq!((three(&[]), voters(&[])), (0, 0));
        let kept = now(hdds(8), 0b1101_1000);
        assert_eq!((three(&kept), voters(&kept)), (0b0101_1000, 0b1101_1001));
    }

    #[test]
    fn the_log_goes_to_journal_disks_then_to_solid_state_and_never_has_fewer_copies() {
        let mut disks = now(hdds(6), 0b111);
        disks[5].usage = Usage::Journal;
        assert_eq!(three(&disks), 0b10_0011);
        disks[4].media = Media::Ssd;
        assert_eq!(three(&disks), 0b11_0001);
        disks[3].usage = Usage::Journal;
        disks[2].usage = Usage::Journal;
        assert_eq!(three(&disks), 0b10_1100);
        disks[1].usage = Usage::Journal;
        assert_eq!(three(&disks).count_ones(), 3);
        assert_eq!(three(&disks) & 0b100, 0b100, "the one that has it keeps it");
    }

    #[test]
    fn spares_and_retired_disks_carry_the_log_only_where_there_is_nothing_else() {
        let mut disks = now(hdds(5), 0b111);
        disks[0].usage = Usage::Retired;
        disks[1].usage = Usage::HotSpare;
        assert_eq!(three(&disks), 0b1_1100);
        disks[2].usage = Usage::Retired;
        assert_eq!(three(&disks), 0b1_1010);
        assert_eq!(voters(&disks), 0b1_1111);
    }

    #[test]
    fn journal_disks_of_one_domain_do_not_get_all_copies() {
        let mut disks = hdds(5);
        disks.iter_mut().for_each(|disk| disk.domain = if disk.no < DiskNo(3) { "a" } else { "b" });
        (0..3).for_each(|no| disks[no].usage = Usage::Journal);
        assert_eq!(three(&disks), 0b1011);
    }

    #[test]
    fn fewer_disks_vote_where_a_domain_would_have_too_many() {
        let with = |domains: &[&'static str]| -> Vec<Candidate<'static>> {
            let all = domains.iter().enumerate();
            all.map(|(no, domain)| disk(DiskNo(no as u16), Usage::AutoSelect, Media::Hdd, domain)).collect()
        };
        assert_eq!(voters(&with(&["a", "a", "b", "b", "c", "c"])), 0b1_1111);
        assert_eq!(voters(&with(&["a", "a", "a", "b", "c"])), 0b1_1001, "with five votes, a has three of them");
        assert_eq!(voters(&with(&["a", "a", "b", "b"])), 0b1111, "one of two domains always has half of the votes");
        assert_eq!(voters(&with(&["a", "a", "", ""])), 0b1101);
    }

    fn any_disks() -> impl Strategy<Value = Vec<Candidate<'static>>> {
        let one = (0..5usize, 0..3usize, 0..5usize, any::<bool>());
        prop::collection::vec(one, 0..9).prop_map(|disks| {
            let disks = disks.into_iter().enumerate();
            disks
                .map(|(no, (usage, media, domain, now))| Candidate {
                    now,
                    ..disk(DiskNo(no as u16), USAGES[usage], MEDIA[media], NAMES[domain])
                })
                .collect()
        })
    }

    fn members<'a>(disks: &'a [Candidate<'static>], set: u64) -> impl Iterator<Item = &'a Candidate<'static>> + Clone {
        disks.iter().filter(move |disk| set >> disk.no.0 & 1 == 1)
    }

    /// How many disks of the set each domain has, the most first.
    fn by_domain(disks: &[Candidate<'static>], set: u64) -> Vec<usize> {
        let alone = members(disks, set).filter(|disk| disk.domain.is_empty()).map(|_| 1);
        let count = |name: &&str| members(disks, set).filter(|disk| disk.domain == *name).count();
        let mut counts: Vec<usize> = alone.chain(NAMES[1..].iter().map(count)).collect();
        counts.sort_unstable_by(|a, b| b.cmp(a));
        counts
    }

    /// How good a set is for the log; less is better. Written down on its own, not as it is found.
    fn log_cost(disks: &[Candidate<'static>], set: u64) -> (bool, Vec<u8>, usize, usize) {
        let worth = |disk: &Candidate<'_>| match disk.usage {
            Usage::Journal => 0,
            Usage::Retired => 9,
            Usage::HotSpare => 8,
            _ if disk.media == Media::Ssd => 1,
            _ => 2,
        };
        let mut worths: Vec<u8> = members(disks, set).map(worth).collect();
        worths.sort_unstable();
        let domains = by_domain(disks, set);
        let together = set.count_ones() > 1 && domains[0] == set.count_ones() as usize;
        let moved = members(disks, set).filter(|disk| !disk.now).count();
        (together, worths, domains.iter().map(|count| count * count).sum(), moved)
    }

    /// What a set of voters costs, the most important first.
    fn vote_cost(disks: &[Candidate<'static>], set: u64) -> (bool, usize, usize, usize, usize) {
        let domains = by_domain(disks, set);
        let votes = set.count_ones() as usize;
        let lost = (votes - domains.first().copied().unwrap_or(0)) * 2 <= votes;
        let retired = members(disks, set).filter(|disk| disk.usage == Usage::Retired).count();
        let moved = members(disks, set).filter(|disk| !disk.now).count();
        (lost, VOTERS_MAX - votes, retired, domains.iter().map(|count| count * count).sum(), moved)
    }

    proptest! {
        #[test]
        fn no_choice_is_better(disks in any_disks()) {
            let sets = || 0u64..1 << disks.len();
            let size = |set: &u64, least: usize, most: usize| {
                (least.min(disks.len())..=most.min(disks.len())).contains(&(set.count_ones() as usize))
            };
            let log = sets().filter(|set| size(set, LOGGERS_MAX, LOGGERS_MAX)).map(|set| log_cost(&disks, set)).min();
            prop_assert_eq!(Some(log_cost(&disks, three(&disks))), log);
            prop_assert!(size(&three(&disks), LOGGERS_MAX, LOGGERS_MAX));
            if !disks.is_empty() {
                let votes = sets().filter(|set| size(set, VOTERS_MIN, VOTERS_MAX)).map(|set| vote_cost(&disks, set));
                prop_assert_eq!(Some(vote_cost(&disks, voters(&disks))), votes.min());
            }
            prop_assert!(size(&voters(&disks), VOTERS_MIN, VOTERS_MAX));
        }

        #[test]
        fn what_was_chosen_is_chosen_again(disks in any_disks(), needed in 1usize..4) {
            let (log, votes) = (loggers(&disks, needed), voters(&disks));
            prop_assert_eq!(loggers(&now(disks.clone(), log), needed), log);
            prop_assert_eq!(voters(&now(disks.clone(), votes)), votes);
        }

        #[test]
        fn fewer_copies_are_on_fast_disks_and_enough_and_one_follows(disks in any_disks(), needed in 1usize..4) {
            let log = loggers(&disks, needed);
            let copies = log.count_ones() as usize;
            let follows = follower(&disks, log);
            if copies < LOGGERS_MAX.min(disks.len()) {
                prop_assert!(copies >= needed && copies >= LOGGERS_MIN);
                prop_assert!(members(&disks, log).all(|disk| log_rank(disk) <= FAST));
                prop_assert!(follows.is_some_and(|no| log >> no.0 & 1 == 0));
            } else {
                prop_assert_eq!((log, follows), (three(&disks), None));
            }
        }

        #[test]
        fn steps_end_and_majorities_of_neighbours_meet(have in 0u64..256, want in 0u64..256) {
            let mut votes = have;
            let mut steps = 0;
            while votes != want {
                let next = next_voters(votes, want);
                for before in 0..256u64 {
                    for after in 0..256u64 {
                        let rules = |set: u64, of: u64| set & !of == 0 && set.count_ones() * 2 > of.count_ones();
                        prop_assert!(!rules(before, votes) || !rules(after, next) || before & after != 0 || votes == 0);
                    }
                }
                votes = next;
                steps += 1;
                prop_assert!(steps <= 16);
            }
        }
    }
}
