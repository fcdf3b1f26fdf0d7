//! The protocol of labels, votes and freezing, explored exhaustively: every sequence of events on a pool of one to five
//! disks, up to a depth.
//!
//! What decides is the engine's own code (`store/quorum.rs`, `store/choice.rs`, `format/lineage.rs`); what a disk holds
//! is its label and the batches of its log, and the steps around the decisions are modelled after `pool/open.rs`,
//! `pool/members.rs`, `store/labels.rs`, `store/commit.rs` and `store/log_move.rs` ([`model`]). Any write may be cut
//! short: by the end of the process, with any part of the disks written and not flushed, or by disks that go at that
//! moment.
//!
//! The promises
//! 1. Nothing is acknowledged by an opening that does not know of all that was acknowledged before: two histories never
//!    both acknowledge.
//! 2. An opening has everything that was acknowledged.
//! 3. With all disks back as they were, some opening succeeds, and a frozen pool thaws.
//!
//! What the model demands of a newest label that is not known to be durable (`durable_voters`, `World::not_durable`) is
//! what the engine has to do; [`Mutant::NewestIsDurable`] is a pool that does without.
//!
//! What is excused: `degraded` gives up what the disks that are missing hold, and lets two histories go on; from then
//! on an opening owes what the history of the newest label acknowledged. A disk that was put back from a copy was
//! perhaps the only one to hold a batch; from then on an opening owes what disks hold that are there and were never put
//! back.

mod model;

use model::{Cut, Hand, World};
use std::collections::HashSet;
use std::collections::hash_map::DefaultHasher;
use std::fmt;
use std::hash::{Hash, Hasher};

/// A defect that is planted in the protocol, to see that the search finds it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Mutant {
    /// A pool goes on with any disk that votes.
    GoOnWithOne,
    /// Half of the votes open a pool.
    OpenWithHalf,
    /// An opening begins without having its number promised.
    NoPromise,
    /// Between two labels, the one with the larger epoch is the newest, whichever opening wrote it.
    EpochFirst,
    /// What was written is acknowledged before a label without the lost disks is durable.
    AcknowledgeBeforeVote,
    /// A disk that is back votes and carries the log at once, whatever it missed.
    ReturnIsWhole,
    /// The newest label is taken for durable, although an opening may have been cut short while it wrote it.
    NewestIsDurable,
    /// Half of the last durable label's voters go on, although a label that was cut short may open the pool elsewhere.
    AttemptedForgotten,
}

/// Every mutant.
pub const MUTANTS: [Mutant; 8] = [
    Mutant::GoOnWithOne,
    Mutant::OpenWithHalf,
    Mutant::NoPromise,
    Mutant::EpochFirst,
    Mutant::AcknowledgeBeforeVote,
    Mutant::ReturnIsWhole,
    Mutant::NewestIsDurable,
    Mutant::AttemptedForgotten,
];

/// Which events there are, besides those that always are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// Disks go and come, processes and machines die, two hosts share the disks.
    Split,
    /// Disks are put back from an older copy, too, or are blank.
    Rolled,
    /// A person opens the pool with what is left, too.
    Degraded,
}

/// What is to be explored.
#[derive(Clone, Copy, Debug)]
pub struct Search {
    /// How many disks the pool has.
    pub disks: usize,
    /// The longest sequence.
    pub depth: usize,
    /// The most states.
    pub states: usize,
    /// Which events there are.
    pub kind: Kind,
    /// What is wrong with the protocol.
    pub mutant: Option<Mutant>,
}

/// Something that happens.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Event {
    /// A host opens the pool with these disks.
    Open(u8, bool),
    /// A client of this host has a flush acknowledged, if that is possible.
    Flush(u8),
    /// A host brings disks up to date, writes labels that are outdated, moves log and votes to where they are best.
    Settle(u8),
    /// These disks are lost to a host.
    Vanish(u8, u8),
    /// A host is given a disk back.
    Attach(u8, u8),
    /// The process of a host ends.
    Kill(u8),
    /// The power goes everywhere; what these disks had not flushed is lost.
    PowerCut(u8),
    /// A disk that no host has loses its power, and what it had not flushed.
    Unplug(u8),
    /// A copy of all disks is made.
    Image,
    /// These disks are put back from the copy.
    RollBack(u8),
    /// A disk is replaced by a blank one.
    Blank(u8),
}

/// An event, and how one of its writes was cut short.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Step {
    event: Event,
    cut: Option<Cut>,
}

/// What a search found.
#[derive(Clone, Debug, Default)]
pub struct Found {
    /// Different states.
    pub states: usize,
    /// Steps tried.
    pub steps: usize,
    /// The longest sequence of which all were explored.
    pub depth: usize,
    /// The shortest sequence that breaks a promise, and which one.
    pub broken: Option<(Vec<Step>, String)>,
}

impl fmt::Display for Found {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "depth {}, {} states, {} steps", self.depth, self.states, self.steps)?;
        let Some((steps, why)) = &self.broken else { return Ok(()) };
        write!(f, "\n  broken: {why}")?;
        steps.iter().try_for_each(|step| write!(f, "\n    {step}"))
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let disks = |set: u8| bits(set).map(|no| no.to_string()).collect::<Vec<_>>().join(" ");
        match self.event {
            Event::Open(set, false) => write!(f, "open with {}", disks(set))?,
            Event::Open(set, true) => write!(f, "open degraded with {}", disks(set))?,
            Event::Flush(host) => write!(f, "flush on host {host}")?,
            Event::Settle(host) => write!(f, "settle on host {host}")?,
            Event::Vanish(host, set) => write!(f, "host {host} loses {}", disks(set))?,
            Event::Attach(host, no) => write!(f, "host {host} gets {no} back")?,
            Event::Kill(host) => write!(f, "the process of host {host} ends")?,
            Event::PowerCut(set) => write!(f, "power cut; [{}] lose their caches", disks(set))?,
            Event::Unplug(no) => write!(f, "disk {no} loses its power and its cache")?,
            Event::Image => write!(f, "all disks are copied")?,
            Event::RollBack(set) => write!(f, "{} are put back from the copy", disks(set))?,
            Event::Blank(no) => write!(f, "disk {no} is blank")?,
        }
        match self.cut {
            Some(Cut::Kill { write, written }) => {
                write!(f, ", killed in write {write}; [{}] have it in their caches", disks(written))
            }
            Some(Cut::Lose { write, lost, written }) => {
                let have = if written { "have" } else { "do not have" };
                write!(f, ", {} go in write {write} and {have} it in their caches", disks(lost))
            }
            None => Ok(()),
        }
    }
}

/// Explores, the shortest sequences first. Stops at the first promise that is broken.
pub fn explore(search: Search) -> Found {
    let mut found = Found::default();
    let start = World::new(search.disks, search.mutant);
    let mut seen = HashSet::from([print_of(&start)]);
    // Where each state was first reached from, and by what.
    let mut origins: Vec<(u32, Step)> = vec![(0, Step { event: Event::Image, cut: None })];
    let mut frontier = vec![(0u32, start)];
    for depth in 1..=search.depth {
        let mut next = Vec::new();
        for (origin, world) in &frontier {
            for event in events(world, search.kind) {
                let mut hand = Hand::default();
                let mut after = vec![(None, world.after(event, &mut hand))];
                for cut in hand.cuts() {
                    after.push((Some(cut), world.after(event, &mut Hand::cutting(cut))));
                }
                found.steps += after.len();
                for (cut, outcome) in after {
                    let step = Step { event, cut };
                    let judged = match outcome {
                        Ok(world) if !seen.insert(print_of(&world)) => continue,
                        Ok(world) => world.judge_stuck().map(|()| world),
                        Err(why) => Err(why),
                    };
                    match judged {
                        Ok(world) => {
                            origins.push((*origin, step));
                            next.push((origins.len() as u32 - 1, world));
                        }
                        Err(why) => {
                            found.broken = Some((path(&origins, *origin, step), why));
                            found.states = seen.len();
                            return found;
                        }
                    }
                }
            }
            if seen.len() > search.states {
                found.states = seen.len();
                return found;
            }
        }
        found.depth = depth;
        frontier = next;
    }
    found.states = seen.len();
    found
}

fn path(origins: &[(u32, Step)], mut at: u32, last: Step) -> Vec<Step> {
    let mut steps = vec![last];
    while at != 0 {
        steps.push(origins[at as usize].1);
        at = origins[at as usize].0;
    }
    steps.reverse();
    steps
}

fn print_of(world: &World) -> u64 {
    let mut hasher = DefaultHasher::new();
    world.hash(&mut hasher);
    hasher.finish()
}

/// What may happen next.
fn events(world: &World, kind: Kind) -> Vec<Event> {
    let mut events = Vec::new();
    let shelf = world.shelf();
    let hosts: Vec<(u8, u8)> = (0..2).filter_map(|host| world.attached(host).map(|set| (host, set))).collect();
    if hosts.len() < 2 {
        events.extend(subsets(shelf).map(|set| Event::Open(set, false)));
        if kind == Kind::Degraded && world.is_never_degraded() {
            events.extend(subsets(shelf).map(|set| Event::Open(set, true)));
        }
    }
    for (host, set) in hosts {
        events.extend([Event::Flush(host), Event::Settle(host), Event::Kill(host)]);
        events.extend(subsets(set).map(|set| Event::Vanish(host, set)));
        events.extend(bits(shelf).map(|no| Event::Attach(host, no)));
    }
    events.extend(subsets(world.volatile()).chain([0]).map(Event::PowerCut));
    events.extend(bits(world.volatile() & shelf).map(Event::Unplug));
    if kind == Kind::Rolled {
        match world.is_copied() {
            false => events.push(Event::Image),
            true if world.is_rolled() => {}
            true => events.extend(subsets(shelf).map(Event::RollBack)),
        }
        if !world.is_blanked() {
            events.extend(bits(shelf).map(Event::Blank));
        }
    }
    events
}

/// The numbers of the bits that are set.
fn bits(set: u8) -> impl Iterator<Item = u8> {
    (0..8).filter(move |no| set >> no & 1 == 1)
}

/// The subsets that are not empty.
fn subsets(set: u8) -> impl Iterator<Item = u8> {
    (1..=set).filter(move |part| part & !set == 0)
}

/// `weft-sim --quorum [DEPTH]`: the protocol for pools of one to five disks, `extra` steps deeper than CI goes, and
/// every mutant. Says what was found.
pub fn command(extra: usize, states: usize) -> bool {
    let mut sound = true;
    for search in searches(extra, states) {
        let found = explore(search);
        println!("{} disks, {:?}: {found}", search.disks, search.kind);
        sound &= found.broken.is_none();
    }
    for mutant in MUTANTS {
        let found = find_mutant(mutant);
        println!("{mutant:?}: {}", found.as_ref().map_or("NOT FOUND".into(), Found::to_string));
        sound &= found.is_some();
    }
    sound
}

/// The searches that make up the whole, `extra` steps deeper than CI goes.
pub fn searches(extra: usize, states: usize) -> Vec<Search> {
    let depths = [(Kind::Split, [7, 5, 3, 2, 1]), (Kind::Rolled, [6, 4, 3, 2, 1]), (Kind::Degraded, [6, 4, 2, 1, 1])];
    let mut searches = Vec::new();
    for (kind, depths) in depths {
        for (nth, depth) in depths.into_iter().enumerate() {
            searches.push(Search { disks: nth + 1, depth: depth + extra, states, kind, mutant: None });
        }
    }
    searches
}

/// The shortest sequence that finds a mutant, with as few disks as will do.
pub fn find_mutant(mutant: Mutant) -> Option<Found> {
    let kinds = [Kind::Split, Kind::Rolled];
    let scopes = [(2, 4, 250_000), (3, 3, 250_000), (2, 5, 250_000), (3, 4, 250_000), (2, 6, 2_000_000)];
    let mut searches = scopes.into_iter().flat_map(|scope| kinds.map(|kind| (scope, kind)));
    searches.find_map(|((disks, depth, states), kind)| {
        let found = explore(Search { disks, depth, states, kind, mutant: Some(mutant) });
        found.broken.is_some().then_some(found)
    })
}
