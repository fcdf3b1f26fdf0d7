//! The pool that is explored: disks with labels and logs, up to two hosts that have it open, and what they do, write by
//! write.

mod opening;

use super::{Event, Mutant, bits, subsets};
use weft_engine::disk_set::DiskSet;
use weft_engine::format::Id;
use weft_engine::format::label::{Anchor, BatchBound, DiskPlan, Label, Membership};
use weft_engine::format::lineage::{LINEAGE_KEPT, Lineage};
use weft_engine::format::record::{Media, Usage};
use weft_engine::limits::DISKS_MAX;
use weft_engine::store::choice::{self, Candidate};
use weft_engine::store::labels::LOGGERS_MAX;
use weft_engine::store::quorum;
use weft_engine::units::{ByteCount, DiskNo, DiskOffset};

/// The most batches of a log.
const BATCHES: usize = 4;
/// The most openings.
const OPENINGS: usize = 14;

/// One batch in a log: the random number of the opening that wrote it, and of the batch before it. With its place that
/// names it. 0: none.
type Batch = (u8, u8);
/// The batches of a log, by number.
type Log = [Batch; BATCHES];

/// A label, as far as it matters here.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct Mark {
    opened: u8,
    numbers: [u8; OPENINGS],
    epoch: u8,
    promised: u8,
    /// The epoch of the last label that was durable on all disks it calls current.
    durable: u8,
    /// The voters of that label.
    durable_voters: u8,
    opened_batch: u8,
    current: u8,
    voters: u8,
    loggers: u8,
}

/// What a disk holds.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct Content {
    label: Option<Mark>,
    log: Log,
}

/// A disk: what it shows, and what is left after a power cut, if that is something else.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct Disk {
    now: Content,
    before: Option<Content>,
}

/// A host that has the pool open. The names are those of the engine's `Labels`.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct Host {
    there: u8,
    current: u8,
    whole: u8,
    mark: Mark,
    /// The last label that was durable on all disks it calls current.
    durable: Mark,
    outdated: bool,
    /// Voters of the label before the newest, until this opening's first label is durable.
    joint: u8,
    /// Voters of labels that were written since the last durable one, and may be durable on some disks or on all.
    attempted: Vec<u8>,
    log: Log,
    batches: u8,
    /// The disks that have the batch which is being written.
    pending: Option<u8>,
}

/// A batch that was acknowledged: its opening's random number, and its place.
type Acknowledged = (u8, u8);

/// Everything.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct World {
    mutant: Option<Mutant>,
    disks: Vec<Disk>,
    hosts: [Option<Host>; 2],
    acknowledged: Vec<Acknowledged>,
    copy: Option<Vec<Content>>,
    /// Disks that were put back from the copy.
    rolled: u8,
    blanked: u8,
    degraded: bool,
}

/// How a write to several disks is cut short.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Cut {
    /// The process ends; these disks have it in their caches.
    Kill {
        /// Which write of the event.
        write: usize,
        /// The disks that have it.
        written: u8,
    },
    /// Some disks go; they have it in their caches, or not at all.
    Lose {
        /// Which write of the event.
        write: usize,
        /// The disks that go.
        lost: u8,
        /// Whether they have it.
        written: bool,
    },
}

/// The hand that carries out an event, write by write.
#[derive(Default)]
pub(super) struct Hand {
    cut: Option<Cut>,
    /// The disks of each write so far.
    writes: Vec<u8>,
    killed: bool,
}

impl Hand {
    pub(super) fn cutting(cut: Cut) -> Hand {
        Hand { cut: Some(cut), ..Hand::default() }
    }

    /// Every way in which what was carried out could be cut short.
    pub(super) fn cuts(&self) -> Vec<Cut> {
        let mut cuts = Vec::new();
        for (write, set) in self.writes.iter().copied().enumerate() {
            cuts.extend(subsets(set).chain([0]).map(|written| Cut::Kill { write, written }));
            for lost in subsets(set) {
                cuts.extend([false, true].map(|written| Cut::Lose { write, lost, written }));
            }
        }
        cuts
    }

    /// Writes to the disks `set` of a host and makes it durable. Returns the disks that have it.
    fn write(&mut self, disks: &mut [Disk], host: &mut Host, set: u8, change: impl Fn(u8, &mut Content)) -> u8 {
        if self.killed {
            return 0;
        }
        self.writes.push(set);
        let at = self.writes.len() - 1;
        let (written, lost) = match self.cut {
            Some(Cut::Kill { write, written }) if write == at => {
                self.killed = true;
                (written, 0)
            }
            Some(Cut::Lose { write, lost, written }) if write == at => {
                (set & !lost | if written { lost } else { 0 }, lost)
            }
            _ => (set, 0),
        };
        for no in bits(written) {
            let disk = &mut disks[no as usize];
            let before = disk.before.unwrap_or(disk.now);
            change(no, &mut disk.now);
            let durable = !self.killed && lost >> no & 1 == 0;
            disk.before = if durable { None } else { Some(before) };
        }
        host.lose(lost);
        if self.killed { 0 } else { set & !lost }
    }
}

impl Mark {
    fn founded(disks: usize) -> Mark {
        let all = (1 << disks) - 1;
        let candidates = candidates(all, 0);
        let (voters, loggers) =
            (bits_of(choice::voters(&candidates)), bits_of(choice::loggers(&candidates, LOGGERS_MAX)));
        Mark {
            opened: 0,
            numbers: [0; OPENINGS],
            epoch: 1,
            promised: 0,
            durable: 1,
            durable_voters: voters,
            opened_batch: 0,
            current: all,
            voters,
            loggers,
        }
    }

    fn lineage(&self) -> Lineage {
        let mut numbers = [0; LINEAGE_KEPT];
        numbers.iter_mut().zip(self.numbers).for_each(|(to, number)| *to = number as u64);
        Lineage { opened: self.opened as u64, numbers }
    }

    fn opened_as(&mut self, opened: u64, number: u8) {
        assert!((opened as usize) < OPENINGS, "the model has no room for so many openings");
        let lineage = self.lineage().opened_as(opened, number as u64);
        self.opened = opened as u8;
        self.numbers.iter_mut().zip(lineage.numbers).for_each(|(to, number)| *to = number as u8);
    }

    /// Whether this history goes on from that batch.
    fn knows(&self, (lineage, number): &Acknowledged) -> bool {
        self.numbers[0] == *lineage || self.numbers.contains(lineage) && *number < self.opened_batch
    }

    /// Gives a label in the engine's type.
    fn label(&self, no: u8, disks: usize) -> Label {
        Label {
            pool_id: Id::default(),
            pool_name: String::new(),
            features: 0,
            disk_id: Id([no; 16]),
            disk_no: DiskNo(no as u16),
            serial: 0,
            epoch: self.epoch as u64,
            durable_epoch: self.durable as u64,
            durable_voters: set_of(self.durable_voters),
            seen_epochs: Box::new([0; DISKS_MAX]),
            lineage: self.lineage(),
            promised: self.promised as u64,
            opened_batch: self.opened_batch as u64,
            batch_bound: BatchBound::default(),
            slab_len: ByteCount(0),
            plan: DiskPlan {
                disk_len: ByteCount(0),
                blob_at: DiskOffset(0),
                blob_len: ByteCount(0),
                log_at: DiskOffset(0),
                log_len: ByteCount(0),
                data_at: DiskOffset(0),
                slabs: 0,
            },
            membership: Membership {
                members: (0..disks as u16).map(DiskNo).collect(),
                current: set_of(self.current),
                voters: set_of(self.voters),
                loggers: set_of(self.loggers),
            },
            anchor: Anchor::default(),
            disk_ids: Box::new([Id::default(); DISKS_MAX]),
        }
    }
}

impl Host {
    /// `Store::disk_lost`.
    fn lose(&mut self, lost: u8) {
        if lost != 0 {
            self.there &= !lost;
            self.current &= !lost;
            self.mark.voters &= !lost;
            self.mark.loggers &= !lost;
            self.outdated = true;
        }
    }

    fn loggers(&self) -> u8 {
        self.mark.loggers & self.current
    }

    /// `Store::too_little`.
    fn is_frozen(&self, mutant: Option<Mutant>) -> bool {
        let (voters, current) = (set_of(self.durable.voters), set_of(self.current));
        let may = match mutant {
            Some(Mutant::GoOnWithOne) => !(voters & current).is_empty(),
            _ => quorum::may_go_on(voters, current),
        };
        let joint = self.joint == 0 || quorum::may_open(set_of(self.joint), set_of(self.there));
        let beyond = |voters: &u8| *voters != 0 && !quorum::may_go_on(set_of(*voters), set_of(self.there));
        let beyond = self.attempted.iter().any(beyond) && mutant != Some(Mutant::AttemptedForgotten);
        !may || !joint || beyond || self.loggers() == 0
    }
}

/// The set of eight disks at most whose bits these are.
fn set_of(bits: u8) -> DiskSet {
    DiskSet::from_words(&[bits.into()])
}

/// The bits of such a set.
fn bits_of(set: DiskSet) -> u8 {
    set.words()[0] as u8
}

/// The disks that may carry the log and vote. `now`: those that do.
fn candidates(set: u8, now: u8) -> Vec<Candidate<'static>> {
    let candidate = |no: u8| Candidate {
        no: DiskNo(no as u16),
        usage: Usage::AutoSelect,
        media: Media::Ssd,
        domain: "",
        now: now >> no & 1 == 1,
    };
    bits(set).map(candidate).collect()
}

/// What is left of a log from the first batch on that is another one, or none.
fn log_until(log: &Log, batches: u8) -> Log {
    let mut left = Log::default();
    left[..batches as usize].copy_from_slice(&log[..batches as usize]);
    left
}

impl World {
    pub(super) fn new(disks: usize, mutant: Option<Mutant>) -> World {
        let content = Content { label: Some(Mark::founded(disks)), log: Log::default() };
        World {
            mutant,
            disks: vec![Disk { now: content, before: None }; disks],
            hosts: [None, None],
            acknowledged: Vec::new(),
            copy: None,
            rolled: 0,
            blanked: 0,
            degraded: false,
        }
    }

    /// The disks that no host has.
    pub(super) fn shelf(&self) -> u8 {
        let held = self.hosts.iter().flatten().fold(0, |set, host| set | host.there);
        ((1 << self.disks.len()) - 1) as u8 & !held
    }

    /// The disks of a host that has the pool open.
    pub(super) fn attached(&self, host: u8) -> Option<u8> {
        self.hosts[host as usize].as_ref().map(|host| host.there)
    }

    /// The disks with something in their caches.
    pub(super) fn volatile(&self) -> u8 {
        let all = self.disks.iter().enumerate();
        all.filter(|(_, disk)| disk.before.is_some()).fold(0, |set, (no, _)| set | 1 << no)
    }

    pub(super) fn is_copied(&self) -> bool {
        self.copy.is_some()
    }

    pub(super) fn is_rolled(&self) -> bool {
        self.rolled != 0
    }

    pub(super) fn is_blanked(&self) -> bool {
        self.blanked != 0
    }

    pub(super) fn is_never_degraded(&self) -> bool {
        !self.degraded
    }

    /// What is there after `event`; an error says which promise is broken.
    pub(super) fn after(&self, event: Event, hand: &mut Hand) -> Result<World, String> {
        let mut world = self.clone();
        match event {
            Event::Open(set, degraded) => drop(world.open(set, degraded, hand)?),
            Event::Flush(host) => world.with_host(host, hand, World::flush)?,
            Event::Settle(host) => world.with_host(host, hand, |world, host, hand| {
                world.settle(host, hand);
                Ok(())
            })?,
            Event::Vanish(host, set) => world.with_host(host, hand, |_, host, _| {
                host.lose(set);
                Ok(())
            })?,
            Event::Attach(host, no) => world.with_host(host, hand, |world, host, _| {
                world.attach(host, no);
                Ok(())
            })?,
            Event::Kill(host) => world.hosts[host as usize] = None,
            Event::PowerCut(set) => {
                world.hosts = [None, None];
                // What a cache did not lose it has written.
                bits(self.volatile()).for_each(|no| world.power_off(no, set >> no & 1 == 1));
            }
            Event::Unplug(no) => world.power_off(no, true),
            Event::Image => world.copy = Some(world.disks.iter().map(|disk| disk.now).collect()),
            Event::RollBack(set) => {
                for no in bits(set) {
                    let now = world.copy.as_ref().expect("it was made")[no as usize];
                    if world.disks[no as usize] != (Disk { now, before: None }) {
                        world.disks[no as usize] = Disk { now, before: None };
                        world.rolled |= 1 << no;
                    }
                }
            }
            Event::Blank(no) => {
                let now = Content { label: None, log: Log::default() };
                world.disks[no as usize] = Disk { now, before: None };
                world.blanked |= 1 << no;
            }
        }
        Ok(world)
    }

    fn power_off(&mut self, no: u8, loses: bool) {
        let disk = &mut self.disks[no as usize];
        let before = disk.before.take();
        if let Some(before) = before.filter(|_| loses) {
            disk.now = before;
        }
    }

    fn with_host(
        &mut self,
        no: u8,
        hand: &mut Hand,
        work: impl FnOnce(&mut World, &mut Host, &mut Hand) -> Result<(), String>,
    ) -> Result<(), String> {
        let mut host = self.hosts[no as usize].take().expect("it has the pool open");
        work(self, &mut host, hand)?;
        if !hand.killed {
            self.hosts[no as usize] = Some(host);
        }
        Ok(())
    }

    /// `Store::write_labels`. `false`: it waits, for the pool is frozen, or was killed.
    fn write_labels(&mut self, host: &mut Host, hand: &mut Hand) -> bool {
        while host.outdated {
            if host.is_frozen(self.mutant) {
                return false;
            }
            host.outdated = false;
            host.mark.epoch += 1;
            host.mark.current = host.current;
            host.mark.voters &= host.current;
            host.mark.loggers &= host.current;
            let mark = host.mark;
            if !host.attempted.contains(&mark.voters) {
                host.attempted.push(mark.voters);
            }
            hand.write(&mut self.disks, host, host.there, |_, content| content.label = Some(mark));
            if hand.killed {
                return false;
            }
            if !host.outdated {
                host.durable = mark;
                host.mark.durable = mark.epoch;
                host.mark.durable_voters = mark.voters;
                host.joint = 0;
                host.attempted.clear();
                host.whole = mark.current;
            }
        }
        true
    }

    /// `Store::write_batch`, and a client that waits for it.
    fn flush(&mut self, host: &mut Host, hand: &mut Hand) -> Result<(), String> {
        if host.is_frozen(self.mutant) || host.batches as usize == BATCHES {
            return Ok(());
        }
        let early = self.mutant == Some(Mutant::AcknowledgeBeforeVote);
        if host.pending.is_none() && !early && !self.write_labels(host, hand) {
            return Ok(());
        }
        let number = host.batches as usize;
        let batch = (host.mark.numbers[0], if number == 0 { 0 } else { host.log[number - 1].0 });
        let mut have = host.pending.unwrap_or(0);
        loop {
            host.pending = Some(have);
            if host.is_frozen(self.mutant) {
                return Ok(());
            }
            let lacking = host.loggers() & !have;
            have |= hand.write(&mut self.disks, host, lacking, |_, content| content.log[number] = batch);
            if hand.killed || !early && !self.write_labels(host, hand) {
                host.pending = Some(have);
                return Ok(());
            }
            let loggers = host.loggers();
            if !host.is_frozen(self.mutant) && loggers != 0 && loggers & !have == 0 {
                break;
            }
        }
        host.pending = None;
        host.log[number] = batch;
        host.batches += 1;
        self.acknowledge(host, (batch.0, number as u8))
    }

    fn acknowledge(&mut self, host: &Host, batch: Acknowledged) -> Result<(), String> {
        let unknown = self.acknowledged.iter().find(|(lineage, number)| host.log[*number as usize].0 != *lineage);
        match unknown {
            Some(_) if self.rolled == 0 && !self.degraded => Err("two histories both acknowledge".into()),
            _ => {
                self.acknowledged.push(batch);
                self.acknowledged.sort_unstable();
                Ok(())
            }
        }
    }

    /// Brings disks up to date, and log and votes to where they are best: repair, `Store::move_log` and a checkpoint.
    fn settle(&mut self, host: &mut Host, hand: &mut Hand) {
        if host.is_frozen(self.mutant) {
            return;
        }
        if host.there != host.current {
            host.current = host.there;
            host.outdated = true;
        }
        // Whoever writes a batch has its turn first.
        if !self.write_labels(host, hand) || host.pending.is_some() {
            return;
        }
        let have = host.loggers();
        let want = bits_of(choice::loggers(&candidates(host.current, have), LOGGERS_MAX));
        if have != want && have != 0 {
            let log = log_until(&host.log, host.batches);
            let copied = hand.write(&mut self.disks, host, want & !have, |_, content| content.log = log);
            let carrying = host.loggers() | copied;
            let next = bits_of(choice::loggers(&candidates(host.current & carrying, have), LOGGERS_MAX));
            if !hand.killed && next != 0 && next != host.loggers() {
                host.mark.loggers = next;
                host.outdated = true;
            }
            if hand.killed || !self.write_labels(host, hand) {
                return;
            }
        }
        let now = host.mark.voters & host.current;
        let next = bits_of(choice::next_voters(set_of(now), choice::voters(&candidates(host.current, now))));
        if next != now {
            host.whole &= host.current;
            host.mark.voters = next;
            host.outdated = true;
            self.write_labels(host, hand);
        }
    }

    /// `Pool::attach`. Says whether the disk was taken.
    fn attach(&mut self, host: &mut Host, no: u8) -> bool {
        let Some(mark) = self.disks[no as usize].now.label else { return false };
        let (lineage, own) = (host.mark.lineage(), mark.lineage());
        if own.follows(&lineage) && (own.opened > lineage.opened || mark.promised > host.mark.promised) {
            return false;
        }
        let whole = own == lineage && mark.epoch >= host.mark.durable && host.whole >> no & 1 == 1
            || self.mutant == Some(Mutant::ReturnIsWhole);
        let durable = (host.durable.voters, host.durable.loggers);
        host.there |= 1 << no;
        if whole {
            host.current |= 1 << no;
            let back = if self.mutant == Some(Mutant::ReturnIsWhole) { (1 << no, 1 << no) } else { durable };
            host.mark.voters |= back.0 & 1 << no;
            host.mark.loggers |= back.1 & 1 << no;
        }
        host.outdated = true;
        true
    }

    /// Promise 3.
    pub(super) fn judge_stuck(&self) -> Result<(), String> {
        if self.rolled != 0 || self.blanked != 0 || self.degraded {
            return Ok(());
        }
        let mut restarted = self.clone();
        restarted.hosts = [None, None];
        let all = restarted.shelf();
        if !restarted.open(all, false, &mut Hand::default()).map_err(|why| format!("opened with all disks: {why}"))? {
            return Err("it does not open with all its disks".into());
        }
        for no in (0..2).filter(|no| self.hosts[1 - no].is_none()) {
            let mut world = self.clone();
            let Some(mut host) = world.hosts[no].take() else { continue };
            let all_taken = bits(self.shelf()).all(|disk| world.attach(&mut host, disk));
            if all_taken && host.is_frozen(self.mutant) {
                return Err("it is frozen with all its disks".into());
            }
        }
        Ok(())
    }
}
