//! Fine units: blocks of a virtual disk that lie in packed stripes, above its table of whole stripes.
//!
//! What small writes left is packed with its like into whole stripes of a table of its own ([`super::packs`]). Which
//! unit lies where is kept here, in memory; the log says it (`PACK` records), and the oldest record that is
//! needed pins the log's tail. A record is written anew before that is in the way of others ([`Map::relist`]).
//!
//! Invariants
//! 1. A unit has one newest place at most. It is given up by what replaces it: another packed stripe, a whole stripe of
//!    the table below, or that its stripe is unmapped.
//! 2. A whole stripe's commit may be withdrawn until it is durable (`store/limbo.rs`). The units that it replaced are
//!    read no more, but kept in the *shadow* of it, and their packed stripes with them, until it is durable for good.
//! 3. A packed stripe of which nothing is alive, or in a shadow, is unmapped like any other stripe: its place is free
//!    when that is durable, and its number may be used again.
//! 4. A record that is written anew says what the log would say without it: what is in the shadow of a commit that the
//!    log has, or will have, keeps the record before it in the log.
//! 5. What all of it takes of memory, and of the log, is known at any time, and what a packed stripe on its way will
//!    take is counted when its number is taken ([`Taken`]).

mod unit;

use super::Map;
use super::dense::{Dense, Entry};
use super::numbers::Numbers;
use super::taken::Taken;
use crate::error::Result;
use crate::fail;
use crate::format::record::{PackRecord, PackRun};
use crate::mutant::{self, Mutant};
use crate::units::{BLOCK, TableNo};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec;
use alloc::vec::Vec;
use core::ops::Range;

pub use unit::Spot;
pub(super) use unit::UNIT_MEMORY;
use unit::{Shade, Unit};

/// Bytes of a unit.
pub const UNIT: u64 = BLOCK;
/// The mark of a shadow whose commit was withdrawn.
const WITHDRAWN: u64 = u64::MAX;
/// Nothing alive, in the list of what a packed stripe holds.
const NONE: u64 = u64::MAX;

/// The fine units of one table.
pub struct Fine {
    /// The table of the packed stripes.
    pub packs: TableNo,
    /// Units in a stripe of the table below.
    per_stripe: u64,
    /// Units that a packed stripe has room for.
    places: u64,
    units: Dense<Unit>,
    packed: BTreeMap<u64, Packed>,
    /// What was replaced, and by which record.
    shadow: Dense<Shade>,
    /// Packed stripes by the record that says what they hold.
    pins: BTreeSet<(u64, u64)>,
    /// Numbers that packed stripes under way have.
    taken: BTreeSet<u64>,
    /// Packed stripes that hold nothing any more, and are mapped.
    emptied: BTreeSet<u64>,
    /// Numbers of packed stripes: in use are those that are packed, taken, or emptied.
    numbers: Numbers,
}

struct Packed {
    record: u64,
    units: Vec<u64>,
    alive: u32,
}

impl Fine {
    pub(super) fn new(packs: TableNo, per_stripe: u64, places: u64) -> Fine {
        Fine {
            packs,
            per_stripe,
            places,
            units: Dense::new(),
            packed: BTreeMap::new(),
            shadow: Dense::new(),
            pins: BTreeSet::new(),
            taken: BTreeSet::new(),
            emptied: BTreeSet::new(),
            numbers: Numbers::default(),
        }
    }

    /// What all of it takes.
    pub fn takes(&self) -> Taken {
        let (stripes, on_way) = (self.packed.len() as u64, self.taken.len() as u64);
        Taken::by(self.places, self.len(), self.shadow.len(), stripes, on_way)
    }

    /// Whether there is nothing of it at all.
    pub(super) fn is_blank(&self) -> bool {
        self.packed.is_empty() && self.taken.is_empty() && self.emptied.is_empty() && self.shadow.is_empty()
    }

    /// Units that are read from here.
    pub fn len(&self) -> u64 {
        self.units.len()
    }

    /// Whether nothing is read from here.
    pub fn is_empty(&self) -> bool {
        self.units.is_empty()
    }

    /// Packed stripes, those under way included.
    pub fn stripes(&self) -> u64 {
        (self.packed.len() + self.taken.len()) as u64
    }

    /// Units in a stripe of the table below.
    pub fn per_stripe(&self) -> u64 {
        self.per_stripe
    }

    /// Where a unit lies, if it is a fine one.
    pub fn get(&self, unit: u64) -> Option<Spot> {
        self.units.get(unit).map(|unit| unit.spot())
    }

    /// The fine units among `units`, in order.
    pub fn range(&self, units: Range<u64>) -> impl Iterator<Item = (u64, Spot)> + '_ {
        self.units.range(units).map(|unit| (unit.no(), unit.spot()))
    }

    /// The first fine unit from `unit` on.
    pub fn next(&self, unit: u64) -> Option<u64> {
        self.units.range(unit..u64::MAX).next().map(|unit| unit.no())
    }

    /// Packed stripes, from number `from` on and `looks` at most, those that hold least first; and where to go on.
    pub fn emptiest(&self, from: u64, looks: usize) -> (Vec<u64>, u64) {
        let mut found: Vec<(u32, u64)> =
            self.packed.range(from..).take(looks).map(|(stripe, packed)| (packed.alive, *stripe)).collect();
        let next = if found.len() < looks { 0 } else { found.last().map_or(0, |(_, stripe)| stripe + 1) };
        found.sort_unstable();
        (found.into_iter().map(|(_, stripe)| stripe).collect(), next)
    }

    /// The units that are read from a packed stripe.
    pub fn units_in(&self, stripe: u64) -> impl Iterator<Item = u64> + '_ {
        let units = self.packed.get(&stripe).map_or(&[][..], |packed| &packed.units);
        let is_here = move |unit: &u64| self.get(*unit).is_some_and(|spot| spot.stripe == stripe);
        units.iter().copied().filter(|unit| *unit != NONE).filter(is_here)
    }

    /// Whether a stripe has fine units.
    pub fn has(&self, stripe: u64) -> bool {
        self.range(self.units_of(stripe)).next().is_some()
    }

    /// What is in the shadow of these stripes.
    fn shades(&self, stripes: Range<u64>) -> Vec<Shade> {
        let key = |stripe: u64| (self.units_of(stripe).start, Spot { stripe: 0, index: 0 });
        self.shadow.range(key(stripes.start)..key(stripes.end)).collect()
    }

    fn units_of(&self, stripe: u64) -> Range<u64> {
        stripe.saturating_mul(self.per_stripe)..stripe.saturating_add(1).saturating_mul(self.per_stripe)
    }

    /// A number for a packed stripe that is about to be written.
    fn take_number(&mut self) -> u64 {
        let number = self.numbers.take();
        self.taken.insert(number);
        number
    }

    /// Record `seq` says that packed stripe `stripe` holds these units.
    fn pack(&mut self, stripe: u64, seq: u64, runs: &[PackRun]) {
        self.taken.remove(&stripe);
        self.emptied.remove(&stripe);
        self.forget_packed(stripe);
        let mut packed = Packed { record: seq, units: vec![NONE; self.places as usize], alive: 0 };
        let all = runs.iter().flat_map(|run| (0..run.count).map(|nth| (run.unit + nth as u64, run.index + nth)));
        let all: Vec<(u64, u32)> = all.collect();
        for (unit, index) in &all {
            packed.units[*index as usize] = *unit;
            packed.alive += 1;
        }
        self.packed.insert(stripe, packed);
        self.pins.insert((seq, stripe));
        for (unit, index) in all {
            if let Some(before) = self.units.insert(Unit::new(unit, Spot { stripe, index })) {
                self.kill(before.spot());
            }
        }
        if self.packed[&stripe].alive == 0 {
            self.emptied.insert(stripe);
        }
    }

    /// Forgets a packed stripe, and what is alive of it.
    fn forget_packed(&mut self, stripe: u64) {
        let Some(packed) = self.packed.remove(&stripe) else { return };
        self.pins.remove(&(packed.record, stripe));
        for (index, unit) in packed.units.into_iter().enumerate() {
            if self.get(unit) == Some(Spot { stripe, index: index as u32 }) {
                self.units.remove(unit);
            }
        }
    }

    fn kill(&mut self, spot: Spot) {
        let Some(packed) = self.packed.get_mut(&spot.stripe) else { return };
        let unit = &mut packed.units[spot.index as usize];
        if core::mem::replace(unit, NONE) == NONE {
            return;
        }
        packed.alive -= 1;
        let early = mutant::active(Mutant::PackFreedEarly) && packed.alive == 1;
        if packed.alive == 0 || early {
            self.emptied.insert(spot.stripe);
        }
    }

    /// Record `seq` replaces all units of `stripe`; it may be withdrawn yet.
    fn replaced(&mut self, stripe: u64, seq: u64) {
        // What a withdrawn one had replaced is replaced by this one now.
        self.withdrawn(stripe, WITHDRAWN, Some(seq));
        let units: Vec<Unit> = self.units.range(self.units_of(stripe)).collect();
        for unit in units {
            self.units.remove(unit.no());
            self.shadow.insert(Shade::new(unit, seq));
        }
        if mutant::active(Mutant::UnitVoidedEarly) {
            self.settle(u64::MAX);
        }
    }

    /// Record `seq`, which had replaced units of `stripe`, was withdrawn; `next` is the one that took its place, if any
    /// did.
    fn withdrawn(&mut self, stripe: u64, seq: u64, next: Option<u64>) {
        for shade in self.shades(stripe..stripe.saturating_add(1)).into_iter().filter(|shade| shade.seq() == seq) {
            self.shadow.insert(Shade::new(shade.unit, next.unwrap_or(WITHDRAWN)));
        }
    }

    /// What was withdrawn is given up: what was there before is the truth again.
    fn given_up(&mut self, stripe: u64) {
        for shade in self.shades(stripe..stripe.saturating_add(1)).into_iter().filter(|shade| shade.seq() == WITHDRAWN)
        {
            self.shadow.remove(shade.key());
            match self.units.get(shade.unit.no()) {
                Some(_) => self.kill(shade.unit.spot()),
                None => drop(self.units.insert(shade.unit)),
            }
        }
    }

    /// What replaced them is in the log for good: the units of `stripes` are void.
    fn release(&mut self, stripes: Range<u64>) {
        let (first, last) = (self.units_of(stripes.start).start, self.units_of(stripes.end).start);
        let units: Vec<Unit> = self.units.range(first..last).collect();
        for unit in units {
            self.units.remove(unit.no());
            self.kill(unit.spot());
        }
        self.settle_all(self.shades(stripes));
    }

    /// Records below `durable` are the truth.
    fn settle(&mut self, durable: u64) {
        self.settle_all(self.shadow.iter().filter(|shade| shade.seq() < durable).collect());
    }

    fn settle_all(&mut self, shades: Vec<Shade>) {
        for shade in shades {
            self.shadow.remove(shade.key());
            self.kill(shade.unit.spot());
        }
    }

    /// What the record of a packed stripe would say now. None: something of it is in the shadow of a commit that is not
    /// durable yet.
    fn runs(&self, stripe: u64) -> Option<Vec<PackRun>> {
        let packed = self.packed.get(&stripe)?;
        let mut runs: Vec<PackRun> = Vec::new();
        for (index, unit) in packed.units.iter().enumerate().filter(|(_, unit)| **unit != NONE) {
            let (unit, index) = (*unit, index as u32);
            let spot = Spot { stripe, index };
            if self.get(unit) != Some(spot) && self.shadow.get((unit, spot))?.seq() != WITHDRAWN {
                return None;
            }
            add_unit(&mut runs, unit, index);
        }
        Some(runs)
    }
}

/// Adds a unit that lies at `index` of a packed stripe to the runs of its record, behind those before it.
pub fn add_unit(runs: &mut Vec<PackRun>, unit: u64, index: u32) {
    match runs.last_mut().filter(|run| run.unit + run.count as u64 == unit && run.index + run.count == index) {
        Some(run) => run.count += 1,
        None => runs.push(PackRun { unit, index, count: 1 }),
    }
}

impl Map {
    /// The fine units of `table`, where it has any.
    pub fn fine(&self, table: TableNo) -> Option<&Fine> {
        self.fine.get(&table)
    }

    /// What all fine units of the pool take.
    pub fn fine_takes(&self) -> Taken {
        self.fine.values().map(Fine::takes).sum()
    }

    /// Whether a stripe of `table` has fine units.
    pub fn has_fine(&self, table: TableNo, stripe: u64) -> bool {
        self.fine.get(&table).is_some_and(|fine| fine.has(stripe))
    }

    /// Whether any of these stripes has fine units.
    pub fn has_fine_in(&self, table: TableNo, stripes: Range<u64>) -> bool {
        let units = |fine: &Fine| fine.units_of(stripes.start).start..fine.units_of(stripes.end).start;
        self.fine.get(&table).is_some_and(|fine| fine.range(units(fine)).next().is_some())
    }

    /// A number for a packed stripe of `table` that is about to be written.
    pub fn take_pack(&mut self, table: TableNo) -> u64 {
        self.fine.get_mut(&table).expect("it packs").take_number()
    }

    /// Gives the number of a packed stripe back that was not written.
    pub fn untake_pack(&mut self, table: TableNo, number: u64) {
        if let Some(fine) = self.fine.get_mut(&table)
            && fine.taken.remove(&number)
        {
            fine.numbers.give(number);
        }
    }

    /// Record `seq` says what a packed stripe holds.
    pub fn pack(&mut self, record: &PackRecord, seq: u64) -> Result<()> {
        let Some(of) = self.tables.get(&record.table).and_then(|table| table.record.packs) else { return Ok(()) };
        self.make_fine();
        // A table that is no more has no units.
        let Some(fine) = self.fine.get_mut(&of) else { return Ok(()) };
        let fits = |run: &PackRun| run.count > 0 && (run.index + run.count) as u64 <= fine.places;
        if !record.runs.iter().all(fits) {
            return fail!(Corrupt, "a packed stripe holds more than it has room for");
        }
        fine.pack(record.stripe, seq, &record.runs);
        self.fine_peak = self.fine_peak.max(self.fine_takes().memory);
        Ok(())
    }

    /// Record `seq` replaces the fine units of a stripe; it may be withdrawn yet.
    pub fn fine_replaced(&mut self, table: TableNo, stripe: u64, seq: u64) {
        if let Some(fine) = self.fine.get_mut(&table) {
            fine.replaced(stripe, seq);
        }
    }

    /// Record `seq` was withdrawn; `next` is the record of a newer version of the stripe, if there is one.
    pub fn fine_withdrawn(&mut self, table: TableNo, stripe: u64, seq: u64, next: Option<u64>) {
        if let Some(fine) = self.fine.get_mut(&table) {
            fine.withdrawn(stripe, seq, next);
        }
    }

    /// What was withdrawn of a stripe is given up.
    pub fn fine_given_up(&mut self, table: TableNo, stripe: u64) {
        if let Some(fine) = self.fine.get_mut(&table) {
            fine.given_up(stripe);
        }
    }

    /// The fine units of these stripes are void: their stripes were unmapped.
    pub fn fine_released(&mut self, table: TableNo, stripes: Range<u64>) {
        if let Some(fine) = self.fine.get_mut(&table) {
            fine.release(stripes);
        }
    }

    /// Records below `durable` are the truth.
    pub fn settle_fine(&mut self, durable: u64) {
        self.fine.values_mut().for_each(|fine| fine.settle(durable));
    }

    /// A packed stripe that holds nothing any more: its table, and its number.
    pub fn take_emptied(&mut self) -> Option<(TableNo, u64)> {
        let fine = self.fine.values_mut().find(|fine| !fine.emptied.is_empty())?;
        let stripe = fine.emptied.pop_first()?;
        fine.forget_packed(stripe);
        fine.numbers.give(stripe);
        Some((fine.packs, stripe))
    }

    /// Table `packs` is no more.
    pub(super) fn forget_packs(&mut self, packs: TableNo) {
        self.fine.retain(|_, fine| fine.packs != packs);
    }

    /// Packed stripes were unmapped.
    pub fn pack_unmapped(&mut self, table: TableNo, first: u64, count: u64) {
        let Some(of) = self.tables.get(&table).and_then(|table| table.record.packs) else { return };
        let Some(fine) = self.fine.get_mut(&of) else { return };
        let range = first..first.saturating_add(count);
        let gone: Vec<u64> = fine.packed.range(range).map(|(stripe, _)| *stripe).collect();
        gone.into_iter().for_each(|stripe| fine.forget_packed(stripe));
    }

    /// The oldest record that says what a packed stripe holds.
    pub fn oldest_pack(&self) -> Option<u64> {
        let oldest = |fine: &Fine| fine.pins.first().map(|(seq, _)| *seq);
        self.fine.values().filter_map(oldest).min().filter(|_| !mutant::active(Mutant::TailPassesPacks))
    }

    /// The packed stripes whose records, below `bound`, can be written anew, each with its table, its number, and that
    /// record; and how many more cannot be yet, as something of them is in a shadow.
    pub fn stale_packs(&self, bound: u64) -> (Vec<(TableNo, u64, PackRecord)>, usize) {
        let (mut found, mut shaded) = (Vec::new(), 0);
        for (table, fine) in &self.fine {
            for (_, stripe) in fine.pins.range(..(bound, 0)) {
                let Some(runs) = fine.runs(*stripe) else {
                    shaded += 1;
                    continue;
                };
                found.push((*table, *stripe, PackRecord { table: fine.packs, stripe: *stripe, retires: 0, runs }));
            }
        }
        (found, shaded)
    }

    /// The record of a packed stripe was written anew: it is `seq` now.
    pub fn relisted(&mut self, table: TableNo, stripe: u64, seq: u64) {
        let Some(fine) = self.fine.get_mut(&table) else { return };
        let Some(packed) = fine.packed.get_mut(&stripe) else { return };
        fine.pins.remove(&(packed.record, stripe));
        packed.record = seq;
        fine.pins.insert((seq, stripe));
    }

    /// After a replay: every packed stripe that holds something is mapped; what is mapped and holds nothing is emptied.
    pub(super) fn prove_fine(&mut self) -> Result<()> {
        let tables: Vec<TableNo> = self.fine.keys().copied().collect();
        for of in tables {
            let fine = &self.fine[&of];
            let there = self.tables.get(&of).is_some_and(|table| table.record.packs.is_none());
            let Some(table) = self.tables.get(&fine.packs).filter(|_| there) else {
                self.fine.remove(&of);
                continue;
            };
            let unmapped = |(stripe, packed): (&u64, &Packed)| packed.alive > 0 && table.get(*stripe).is_none();
            if fine.packed.iter().any(unmapped) {
                return fail!(Corrupt, "a packed stripe of table {of} holds units and is nowhere");
            }
            let mapped: BTreeSet<u64> = table.mapped_in(0..u64::MAX).map(|(stripe, _)| stripe).collect();
            let fine = self.fine.get_mut(&of).expect("looked up before");
            fine.packed.retain(|stripe, packed| packed.alive > 0 || mapped.contains(stripe));
            let Fine { packed, pins, .. } = fine;
            pins.retain(|(_, stripe)| packed.contains_key(stripe));
            let holds = |stripe: &u64| fine.packed.get(stripe).is_some_and(|packed| packed.alive > 0);
            fine.emptied = mapped.iter().copied().filter(|stripe| !holds(stripe)).collect();
            let in_use: BTreeSet<u64> = fine.packed.keys().chain(&fine.emptied).copied().collect();
            fine.numbers = Numbers::but(in_use.into_iter());
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(unit: u64, index: u32, count: u32) -> PackRun {
        PackRun { unit, index, count }
    }

    /// Fine units 0..4 and 16..18, in packed stripe 0 of 16 units each.
    fn fine() -> Fine {
        let mut fine = Fine::new(TableNo(9), 16, 16);
        assert_eq!(fine.take_number(), 0);
        fine.pack(0, 5, &[run(0, 0, 4), run(16, 4, 2)]);
        fine
    }

    #[test]
    fn a_unit_is_where_it_was_packed_last_and_an_empty_stripe_is_let_go_of() {
        let mut fine = fine();
        assert_eq!(fine.take_number(), 1);
        fine.pack(1, 8, &[run(0, 0, 4), run(16, 8, 1)]);
        assert_eq!(fine.get(16), Some(Spot { stripe: 1, index: 8 }));
        assert_eq!(fine.get(17), Some(Spot { stripe: 0, index: 5 }));
        assert_eq!((fine.emptied.len(), fine.pins.first()), (0, Some(&(5, 0))));
        fine.release(1..2);
        assert_eq!((fine.emptied.clone(), fine.len()), (BTreeSet::from([0]), 4));
        assert_eq!(fine.take_number(), 2, "a number is free when its stripe is unmapped");
        fine.pack(0, 11, &[]);
        assert_eq!(fine.emptied, BTreeSet::from([0]));
    }

    #[test]
    fn what_a_whole_stripe_replaces_is_kept_until_that_is_durable() {
        let mut fine = fine();
        fine.replaced(0, 7);
        assert_eq!((fine.get(0), fine.runs(0)), (None, None));
        fine.settle(7);
        assert_eq!(fine.packed[&0].alive, 6);
        fine.settle(8);
        assert_eq!((fine.packed[&0].alive, fine.runs(0)), (2, Some(vec![run(16, 4, 2)])));
        fine.replaced(1, 9);
        fine.settle(10);
        assert_eq!(fine.emptied, BTreeSet::from([0]));
    }

    #[test]
    fn what_was_withdrawn_and_given_up_leaves_the_units_that_it_had_replaced() {
        let mut fine = fine();
        fine.replaced(0, 7);
        fine.withdrawn(0, 7, None);
        fine.settle(100);
        assert_eq!((fine.get(0), fine.runs(0)), (None, Some(vec![run(0, 0, 4), run(16, 4, 2)])));
        fine.given_up(0);
        assert_eq!(fine.get(3), Some(Spot { stripe: 0, index: 3 }));
        // Committed anew, it replaces them again.
        fine.replaced(0, 120);
        fine.withdrawn(0, 120, None);
        fine.replaced(0, 130);
        fine.settle(131);
        assert_eq!(fine.packed[&0].alive, 2);
    }

    #[test]
    fn a_newer_version_keeps_what_one_that_was_withdrawn_before_it_had_replaced() {
        let mut fine = fine();
        fine.replaced(0, 7);
        fine.withdrawn(0, 7, Some(9));
        fine.settle(9);
        assert_eq!(fine.packed[&0].alive, 6);
        fine.settle(10);
        assert_eq!(fine.packed[&0].alive, 2);
    }
}
