//! The opening of the pool that is explored: which label counts, whether there are enough disks, and what it owes.

use super::{Acknowledged, BATCHES, Batch, Hand, Host, Log, Mark, World, log_until};
use crate::quorum::{Mutant, bits};
use weft_engine::format::label::Label;
use weft_engine::store::quorum::{self, Standing};
use weft_engine::units::DiskNo;

impl World {
    /// `Pool::open`. `Ok(false)`: it was refused, or did not come to its end.
    pub(super) fn open(&mut self, set: u8, degraded: bool, hand: &mut Hand) -> Result<bool, String> {
        let count = self.disks.len();
        let label = |no: u8| self.disks[no as usize].now.label.map(|mark| (mark, mark.label(no, count)));
        let found: Vec<(u8, Mark, Label)> =
            bits(set).filter_map(|no| label(no).map(|(mark, label)| (no, mark, label))).collect();
        let labels: Vec<&Label> = found.iter().map(|(.., label)| label).collect();
        let newest = match self.mutant {
            Some(Mutant::EpochFirst) => labels.iter().copied().max_by_key(|label| (label.epoch, label.lineage.opened)),
            _ => quorum::newest(labels.iter().copied()),
        };
        let Some(newest) = newest else { return Ok(false) };
        let mark = found.iter().find(|(no, ..)| DiskNo(*no as u16) == newest.disk_no).expect("it is one of them").1;
        if quorum::rival(newest, &labels).is_some() {
            return Ok(false);
        }
        let believes = |label: &Label| quorum::standing(newest, label) == Standing::Current;
        let current = found.iter().filter(|(.., label)| believes(label)).fold(0u8, |set, (no, ..)| set | 1 << no);
        let voters = newest.membership.voters;
        let may = self.may_open(voters.words()[0] as u8, current);
        let there = found.iter().fold(0u8, |set, (no, ..)| set | 1 << no);
        if mark.voters & current == 0 || !may && !degraded || mark.loggers & current == 0 {
            return Ok(false);
        }
        let joint = self.not_durable(&found, newest, &mark);
        let following = found.iter().filter(|(.., label)| newest.lineage.follows(&label.lineage));
        let following = following.fold(0u8, |set, (no, ..)| set | 1 << no);
        if joint != 0 && !self.may_open(joint, following) && !degraded {
            return Ok(false);
        }
        let opening = quorum::next_opening(labels.iter().copied());
        let number = self.unused_number();
        self.degraded |= degraded;
        let mut host = Host {
            there,
            current,
            whole: mark.current,
            mark,
            durable: mark,
            outdated: true,
            joint: if degraded { 0 } else { joint },
            attempted: Vec::new(),
            log: Log::default(),
            batches: 0,
            pending: None,
        };
        if joint == 0 && self.mutant != Some(Mutant::NewestIsDurable) {
            (host.mark.durable, host.mark.durable_voters) = (mark.epoch, mark.voters);
        }
        self.replay(&mut host);
        host.mark.voters &= current;
        host.mark.loggers &= current;
        bits(there).for_each(|no| self.disks[no as usize].before = None);
        let (log, batches) = (host.log, host.batches);
        if degraded {
            // What this history had acknowledged and the disks that are there lack is given up.
            let has = |batch: &Acknowledged| log[batch.1 as usize].0 == batch.0;
            self.acknowledged.retain(|batch| has(batch) || !mark.numbers.contains(&batch.0));
        }
        if !self.begin_opening(&mut host, mark, (opening, number), degraded, hand) {
            return Ok(false);
        }
        self.judge_opening(set, &mark, &log_until(&log, batches))?;
        let place = self.hosts.iter_mut().find(|host| host.is_none()).expect("two hosts at most");
        *place = Some(host);
        Ok(true)
    }

    fn may_open(&self, voters: u8, there: u8) -> bool {
        match self.mutant {
            Some(Mutant::OpenWithHalf) => quorum::may_go_on(super::set_of(voters), super::set_of(there)),
            _ => quorum::may_open(super::set_of(voters), super::set_of(there)),
        }
    }

    /// The voters of the last label that is known to be durable, if the newest is not. 0: it is, for every disk that it
    /// calls current has it.
    fn not_durable(&self, found: &[(u8, Mark, Label)], newest: &Label, mark: &Mark) -> u8 {
        let has = |no: u8| {
            found
                .iter()
                .any(|(other, own, label)| *other == no && label.lineage == newest.lineage && own.epoch >= mark.epoch)
        };
        match bits(mark.current).all(has) || self.mutant == Some(Mutant::NewestIsDurable) {
            true => 0,
            false => mark.durable_voters,
        }
    }

    /// `Pool::begin_opening`. Says whether it came to its end.
    fn begin_opening(
        &mut self,
        host: &mut Host,
        newest: Mark,
        (opening, number): (u64, u8),
        degraded: bool,
        hand: &mut Hand,
    ) -> bool {
        if self.mutant != Some(Mutant::NoPromise) {
            let promised = hand.write(&mut self.disks, host, host.there, |_, content| {
                content.label = content.label.map(|own| Mark { promised: opening as u8, ..own });
            });
            if hand.killed || !(self.may_open(newest.voters, promised & host.current) || degraded && promised != 0) {
                return false;
            }
            host.mark.promised = opening as u8;
        }
        host.mark.opened_as(opening, number);
        host.mark.opened_batch = host.batches;
        if degraded {
            host.durable.voters &= host.current;
        }
        for _ in 0..2 {
            host.outdated = true;
            if !self.write_labels(host, hand) {
                return false;
            }
        }
        true
    }

    /// `Store::replay`: what any disk with the log has counts, and the others get it.
    fn replay(&mut self, host: &mut Host) {
        let mark = host.mark;
        for number in 0..BATCHES {
            let chain = if number == 0 { 0 } else { host.log[number - 1].0 };
            let counts = |batch: &Batch| {
                let left_behind = number >= mark.opened_batch as usize && batch.0 != mark.numbers[0];
                batch.0 != 0 && batch.1 == chain && !left_behind
            };
            let copies = bits(host.loggers()).map(|no| self.disks[no as usize].now.log[number]);
            let Some(batch) = copies.into_iter().find(counts) else { break };
            host.log[number] = batch;
            host.batches = number as u8 + 1;
            for no in bits(host.loggers()) {
                let disk = &mut self.disks[no as usize];
                if disk.now.log[number] != batch {
                    disk.now.log[number] = batch;
                    disk.before = None;
                }
            }
        }
    }

    /// Promise 2, for an opening from label `newest` that found `log`.
    fn judge_opening(&mut self, set: u8, newest: &Mark, log: &Log) -> Result<(), String> {
        let has = |(lineage, number): &Acknowledged| log[*number as usize].0 == *lineage;
        let intact = set & !self.rolled;
        let owed = |batch: &&Acknowledged| {
            let held = |no: u8| self.disks[no as usize].now.log[batch.1 as usize].0 == batch.0;
            (self.rolled == 0 || bits(intact).any(held)) && (!self.degraded || newest.knows(batch))
        };
        if let Some(lost) = self.acknowledged.iter().filter(owed).find(|batch| !has(batch)) {
            return Err(format!("batch {} of opening {} was acknowledged, and is not there", lost.1, lost.0));
        }
        if self.rolled != 0 {
            self.acknowledged.retain(has);
        }
        Ok(())
    }

    /// A random number that nobody knows.
    fn unused_number(&self) -> u8 {
        let mut known = 0u64;
        let contents = self.disks.iter().flat_map(|disk| [Some(disk.now), disk.before]).flatten();
        let copies = self.copy.iter().flatten().copied();
        for content in contents.chain(copies) {
            content.label.iter().flat_map(|mark| mark.numbers).for_each(|number| known |= 1 << number);
            content.log.iter().for_each(|(number, chain)| known |= 1 << number | 1 << chain);
        }
        for host in self.hosts.iter().flatten() {
            host.mark.numbers.iter().for_each(|number| known |= 1 << number);
        }
        self.acknowledged.iter().for_each(|(number, _)| known |= 1 << number);
        (1..64).find(|number| known >> number & 1 == 0).expect("there are fewer openings")
    }
}
