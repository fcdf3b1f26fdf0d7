//! Fast tiers: which stripes of a virtual disk lie in its fast tier, and how they come and go. Where those places come
//! from is in `segment/tier.rs`.
//!
//! The story
//! 1. What clients fill goes to the fast tier while that has room, and past it where it is full. What is merged, or
//!    comes out of packed stripes, stays in the tier where it lies.
//! 2. When nobody asks for anything, the ranges that are sought out most ([`crate::heat`]), and those that are pinned,
//!    are brought to the fast tier, and others leave it, the coldest first, until an eighth of it is free for what
//!    comes. Beside clients that is done little by little; ranges leave faster the nearer the tier is to being full.
//! 3. To move is to lift ([`super::down`]): into buffers, by way of the read that proves every block, and out as whole
//!    stripes. What clients write meanwhile lies above that.
//!
//! Invariants
//! 1. Every buffer has a claim in the table; one that leaves for the fast tier changes it for a claim there in the step
//!    in which it is sealed, and gets one in the table again if the tier cannot take it after all.
//! 2. What the fast tier lacks of redundancy, or of disks, is no reason for a write to fail, or to wait: it goes to the
//!    table, and what lies in the tier leaves.
//! 3. It comes to an end: a plan is made anew, a minute later at the soonest, only when something was asked for since
//!    the last one, or more lies in the tier than it is to hold at rest.

use super::destage::By;
use super::down::Lift;
use super::order::Ordered;
use super::{Vdisk, add};
use crate::bits::BitSet;
use crate::error::Result;
use crate::log::Room;
use crate::mutant::{self, Mutant};
use crate::segment::allocate::Claim;
use crate::store::budget::Budget;
use crate::stripe::buffer::StripeBuffer;
use crate::stripe::sealed::{Home, Sealed, Tier};
use crate::units::{Nanos, TableNo};
use alloc::collections::BTreeMap;
use alloc::rc::Rc;
use alloc::vec::Vec;
use core::ops::Range;

/// Stripes that are moved at once, at most.
const AT_ONCE: u64 = 256;
/// Pages of the table that are looked through in one step.
const PAGES: usize = 16;
/// A plan is made anew after this, if anything was asked for meanwhile.
const PLANNED_FOR: Nanos = Nanos::secs(60);
/// What a range must have been sought out to be brought to the fast tier, in 256ths of a request.
const WORTH: u32 = 2 * 256;
/// Where the tier comes to rest, and where ranges begin to leave it beside clients, in eighths of its size.
pub(crate) const RESTS_AT: u64 = 7;
/// From this part on nothing is left to the clients, in eighths.
const HURRIES: u64 = 8;

/// What is known of which ranges lie in the fast tier, and what is to move.
#[derive(Default)]
pub(super) struct Tiering {
    /// The table whose ranges they are.
    table: Option<TableNo>,
    /// Bytes of a range.
    range: u64,
    /// Ranges of which some stripes may lie in the fast tier.
    fast: Option<BitSet>,
    /// The next stripe that is to be looked at for that; none: all were.
    unseen: Option<u64>,
    plan: Option<Plan>,
    /// Somebody moves a range just now: the job, or the task.
    moving: bool,
}

/// What is to move.
struct Plan {
    made: Nanos,
    /// How many requests there had been.
    asked: u64,
    /// Ranges that are to come, the hottest last.
    up: Vec<Warm>,
    /// Ranges that may leave, the coldest last.
    down: Vec<Warm>,
}

/// What is to be done next.
enum Next {
    /// This range goes to this tier.
    Move(Warm, Tier),
    /// Something is to come, and there is no room for it yet.
    Waits,
    /// Nothing is left to do.
    Nothing,
}

/// A range, and how hot it is.
#[derive(Clone, Copy)]
struct Warm {
    heat: u32,
    range: u64,
}

/// How a virtual disk's fast tier is filled, in bytes of data.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct TierFill {
    /// What lies there.
    pub used: u64,
    /// That, what is on its way there, and what has left so lately that its place is not free yet.
    pub held: u64,
    /// The most that may.
    pub size: u64,
    /// Whether all of it is to leave: it is to be none, another one, or lacks redundancy.
    pub drains: bool,
}

impl TierFill {
    /// What it comes to rest at.
    fn rests_at(self) -> u64 {
        if self.drains { 0 } else { self.size / 8 * RESTS_AT }
    }

    /// How long clients have the disks for themselves after a step that took `took`.
    pub(crate) fn pause(self, took: Nanos) -> Nanos {
        if self.drains {
            return took;
        }
        let over = (self.used * 8).saturating_sub(self.size * RESTS_AT);
        let under = (self.size * HURRIES).saturating_sub(self.used * 8);
        let most = Nanos(took.0.saturating_mul(16)).min(Nanos::secs(1));
        Nanos((took.0 as u128 * under as u128 / over.max(1) as u128).min(most.0 as u128) as u64)
    }
}

impl Vdisk {
    /// Where stripes of it go that lie in no tier.
    pub(super) fn base(&self) -> Home {
        let map = self.store.map.borrow();
        let table = self.table_of(&map);
        Home { table, layout: map.tables[&table].record.layout }
    }

    /// Checksums of a stripe, at most, wherever it lies.
    pub(super) fn most_sums(&self) -> usize {
        let map = self.store.map.borrow();
        let table = self.table_of(&map);
        let tier = map.tier_wanted(table).map_or(0, |tier| tier.layout.stripe_sums());
        map.tables[&table].record.layout.stripe_sums().max(tier)
    }

    /// How its fast tier is filled, where it has one, or had one that holds something.
    pub fn tier_fill(&self) -> Option<TierFill> {
        if self.removed.get() {
            return None;
        }
        let map = self.store.map.borrow();
        let table = self.table_of(&map);
        let (tier, wanted) = (map.tier_of(table), map.tier_wanted(table));
        if tier.is_none() && wanted.is_none() {
            return None;
        }
        let len = map.tables[&table].record.layout.data_len().0;
        let used = tier.map_or(0, |tier| map.tables[&tier].mapped * len);
        let held = tier.map_or(0, |tier| map.held_in_tier(tier) * len);
        let drains = wanted.is_none() || !map.tier_fits(table) || map.tier_lacks(table);
        Some(TierFill { used, held, size: wanted.map_or(0, |tier| tier.size.0), drains })
    }

    /// The tier that a stripe lies in, where there are two; none also where it lies nowhere.
    pub(super) async fn tier_at(&self, stripe: u64) -> Result<Option<Tier>> {
        if !self.has_tier() {
            return Ok(None);
        }
        let _held = self.load_places(stripe..stripe + 1).await?;
        self.check_there()?;
        Ok(self.tier_now(stripe))
    }

    /// [`Vdisk::tier_at`], where the page that says so is in memory.
    pub(super) fn tier_now(&self, stripe: u64) -> Option<Tier> {
        let map = self.store.map.borrow();
        let place = map.place_of(self.table_of(&map), stripe)?;
        map.tier_of(self.table_of(&map))?;
        Some(if map.is_fast(place) { Tier::Fast } else { Tier::Base })
    }

    fn has_tier(&self) -> bool {
        let map = self.store.map.borrow();
        let table = self.table_of(&map);
        map.tier_of(table).is_some() || map.tier_wanted(table).is_some()
    }

    /// Where a buffer is to leave to that is whole. Synchronous. Changes its claim where that is the fast tier.
    pub(super) fn home_of(&self, buffer: &StripeBuffer) -> Home {
        let base = self.base();
        if buffer.bound == Some(Tier::Base) || buffer.ordered {
            return base;
        }
        let (mut records, mut map) = (Vec::new(), self.store.map.borrow_mut());
        let claimed = map.claim_fast(base.table, &mut records);
        if claimed.is_some() && !mutant::active(Mutant::TierClaimKept) {
            map.unclaim(base.table);
        }
        drop(map);
        self.store.append_all(records);
        claimed.map_or(base, |(table, layout)| Home { table, layout })
    }

    /// Writes stripes to where they go, those of the table first. Those that the fast tier cannot take after all are
    /// written to the table; an error where some have no place there either.
    pub(super) async fn write_by_home(self: &Rc<Self>, run: &[u64], room: Room) -> Result<()> {
        let base = self.base();
        let goes_to = |stripe: &u64| self.in_flight(*stripe).map_or(base, |sealed| sealed.home());
        let (to_base, rest): (Vec<u64>, Vec<u64>) = run.iter().partition(|stripe| goes_to(stripe).table == base.table);
        self.write_home(base, &to_base, room).await?;
        let Some(fast) = rest.first().map(goes_to) else { return Ok(()) };
        let sealed: Vec<_> = rest.iter().filter_map(|stripe| Some((*stripe, self.in_flight(*stripe)?))).collect();
        let Err(error) = self.write_home(fast, &rest, room).await else { return Ok(()) };
        let (sent, left) = self.send_to_base(sealed);
        self.write_home(base, &sent, room).await?;
        if left { Err(error) } else { Ok(()) }
    }

    /// Has those of `fast`, which were to be written to the fast tier, that are still in flight written to the table.
    /// Returns them, and whether others are left for which the table has no place.
    fn send_to_base(&self, fast: Vec<(u64, Rc<Sealed>)>) -> (Vec<u64>, bool) {
        let mut sent = Vec::new();
        if self.removed.get() {
            return (sent, true);
        }
        let base = self.base();
        for (stripe, sealed) in fast {
            if !self.in_flight(stripe).is_some_and(|now| Rc::ptr_eq(&now, &sealed)) {
                continue;
            }
            let (mut records, mut map) = (Vec::new(), self.store.map.borrow_mut());
            let claimed = map.claim(base.table, Claim::Overwrite, &mut records);
            if claimed {
                map.unclaim(sealed.home().table);
            }
            drop(map);
            self.store.append_all(records);
            if !claimed {
                return (sent, true);
            }
            sealed.send_to(base);
            sent.push(stripe);
        }
        (sent, false)
    }

    /// Takes note that a stripe was committed to this tier.
    pub(super) fn note_tier(&self, stripe: u64, sealed: &Sealed) {
        let base = self.table();
        let is_fast = sealed.home().table != base;
        let len = self.layout().data_len().0;
        if sealed.relocated {
            add(if is_fast { &self.counters.promoted } else { &self.counters.demoted }, len);
        }
        if is_fast {
            self.note_fast(base, stripe);
        }
    }

    /// Takes note that a stripe lies in the fast tier, or may do.
    pub(crate) fn note_fast(&self, base: TableNo, stripe: u64) {
        let len = self.layout().data_len().0;
        let tiering = &mut *self.tiering.borrow_mut();
        if tiering.table != Some(base) || tiering.range == 0 {
            return;
        }
        let Some(fast) = &mut tiering.fast else { return };
        let ranges = (stripe * len / tiering.range) as usize..((stripe + 1) * len).div_ceil(tiering.range) as usize;
        fast.insert(ranges.start.min(fast.len())..ranges.end.min(fast.len()));
    }

    /// Moves the next range between the tiers, if there is one to move. `asked`: only as long as clients have asked for
    /// no more than that; none: beside them.
    pub(crate) async fn move_between_tiers(self: &Rc<Self>, budget: &Budget, asked: Option<u64>) -> Ordered {
        self.store.map.borrow_mut().see_disks();
        let Some(fill) = self.tier_fill().filter(|_| self.may_move_tiers()) else { return Ordered::Rests };
        let table = self.table();
        if !self.look_through(table).await {
            return Ordered::GoesOn;
        }
        if !self.has_plan(fill) {
            let heat = self.store.heat_of_ranges(self.id, self.size()).await;
            if self.removed.get() || self.table() != table {
                return Ordered::Rests;
            }
            self.make_plan(fill, heat);
        }
        if self.tiering.borrow().moving {
            self.store.pause().await;
            return Ordered::GoesOn;
        }
        let (warm, to) = match self.next_move(fill, asked.is_some()) {
            Next::Move(warm, to) => (warm, to),
            Next::Waits => {
                // What left lately is free once that is durable.
                self.store.log.demand();
                self.store.pause().await;
                return Ordered::GoesOn;
            }
            Next::Nothing => return Ordered::Rests,
        };
        self.tiering.borrow_mut().moving = true;
        let moved = self.move_range(table, warm.range, to, budget, asked).await;
        self.end_move(warm, to, asked);
        if moved == 0 && asked.is_none() {
            self.store.pause().await;
        }
        Ordered::GoesOn
    }

    /// Bytes that the plan is about to move.
    pub(crate) fn tier_bytes_planned(&self) -> u64 {
        let Some(fill) = self.tier_fill() else { return 0 };
        let tiering = self.tiering.borrow();
        let up = tiering.plan.as_ref().map_or(0, |plan| plan.up.len() as u64 * tiering.range);
        up + fill.used.saturating_sub(fill.rests_at())
    }

    fn may_move_tiers(&self) -> bool {
        if self.removed.get() || self.store.is_closing() || self.is_stacked() {
            return false;
        }
        let stuck = self.waits_since().is_some() || self.failure().is_some();
        !stuck && self.store.check_changeable().is_ok()
    }

    /// Finds out which ranges have stripes in the fast tier, a few pages of the table at once. Says whether all of them
    /// were looked at.
    async fn look_through(&self, table: TableNo) -> bool {
        let range = self.store.heat_range(self.id, self.size()).0;
        let ranges = self.size().0.div_ceil(range) as usize;
        {
            let tiering = &mut *self.tiering.borrow_mut();
            let known = tiering.fast.as_ref().is_some_and(|fast| fast.len() == ranges);
            if tiering.table != Some(table) || tiering.range != range || !known {
                let fast = Some(BitSet::empty(ranges));
                let moving = tiering.moving;
                *tiering = Tiering { table: Some(table), range, fast, unseen: Some(0), moving, ..Tiering::default() };
            }
        }
        let len = self.layout().data_len().0;
        for _ in 0..PAGES {
            let Some(from) = self.tiering.borrow().unseen else { return true };
            let Some(page) = self.store.next_page(table, from) else {
                self.tiering.borrow_mut().unseen = None;
                return true;
            };
            let held = self.store.load_table(table, page.clone()).await;
            if self.removed.get() || self.table() != table {
                return false;
            }
            let (map, tiering) = (self.store.map.borrow(), &mut *self.tiering.borrow_mut());
            tiering.unseen = Some(page.end);
            let Some(fast) = tiering.fast.as_mut().filter(|_| held.is_ok()) else { continue };
            for (stripe, _) in map.tables[&table].mapped_in(page).filter(|(_, place)| map.is_fast(*place)) {
                let touched = (stripe * len / range) as usize..((stripe + 1) * len).div_ceil(range) as usize;
                fast.insert(touched.start.min(ranges)..touched.end.min(ranges));
            }
        }
        false
    }

    /// Whether the plan holds that there is.
    fn has_plan(&self, fill: TierFill) -> bool {
        let tiering = self.tiering.borrow();
        let Some(plan) = &tiering.plan else { return false };
        let is_old = self.store.world.now().since(plan.made) >= PLANNED_FOR;
        let news = self.store.traffic.requests.get() != plan.asked;
        let short = fill.used > fill.rests_at() && plan.down.is_empty();
        !(is_old && (news || short))
    }

    /// Has a plan made anew: pins, or the tier, have changed.
    pub(crate) fn forget_tier_plan(&self) {
        self.tiering.borrow_mut().plan = None;
    }

    fn make_plan(&self, fill: TierFill, mut heat: Vec<(u32, u64)>) {
        let pins = self.store.map.borrow().tier_wanted(self.table()).map_or(Vec::new(), |tier| tier.pins.clone());
        let shares = self.tier_shares_disks();
        let tiering = &mut *self.tiering.borrow_mut();
        let (range, Some(fast)) = (tiering.range, &tiering.fast) else { return };
        let heats: BTreeMap<u64, u32> = heat.iter().map(|(heat, range)| (*range, *heat)).collect();
        let pinned = |nth: u64| pins.iter().any(|pin| pin.start < (nth + 1) * range && nth * range < pin.end);
        let mut left = fill.rests_at() / range;
        let mut wanted: BTreeMap<u64, u32> = BTreeMap::new();
        if !fill.drains {
            for pin in &pins {
                (pin.start / range..pin.end.div_ceil(range)).for_each(|nth| {
                    wanted.insert(nth, u32::MAX);
                });
            }
            left = left.saturating_sub(wanted.len() as u64);
            heat.sort_unstable_by(|a, b| b.cmp(a));
            // On the same disks nothing is faster to read.
            let hot = heat.iter().filter(|(heat, nth)| *heat >= WORTH && !pinned(*nth) && !shares);
            wanted.extend(hot.take(left as usize).map(|(heat, nth)| (*nth, *heat)));
        }
        let mut up: Vec<Warm> = wanted.iter().map(|(range, heat)| Warm { heat: *heat, range: *range }).collect();
        let some = fast.runs(0..fast.len(), true).into_iter().flatten();
        let cold = some.map(|nth| nth as u64).filter(|nth| !wanted.contains_key(nth));
        let mut down: Vec<Warm> =
            cold.map(|range| Warm { heat: heats.get(&range).copied().unwrap_or(0), range }).collect();
        up.sort_unstable_by_key(|warm| warm.heat);
        down.sort_unstable_by_key(|warm| core::cmp::Reverse((warm.heat, warm.range)));
        let (made, asked) = (self.store.world.now(), self.store.traffic.requests.get());
        tiering.plan = Some(Plan { made, asked, up, down });
    }

    /// A move has ended. One that gave way to a client goes on later.
    fn end_move(&self, warm: Warm, to: Tier, asked: Option<u64>) {
        let gave_way = asked.is_some_and(|asked| self.is_asked(asked));
        let tiering = &mut *self.tiering.borrow_mut();
        tiering.moving = false;
        if let Some(plan) = tiering.plan.as_mut().filter(|_| gave_way) {
            if to == Tier::Fast { plan.up.push(warm) } else { plan.down.push(warm) }
        }
    }

    /// What is to move next.
    fn next_move(&self, fill: TierFill, idle: bool) -> Next {
        let shares = self.tier_shares_disks();
        let tiering = &mut *self.tiering.borrow_mut();
        let range = tiering.range;
        let Some(plan) = tiering.plan.as_mut() else { return Next::Nothing };
        if (fill.used > fill.rests_at() || idle && shares)
            && let Some(cold) = plan.down.pop()
        {
            return Next::Move(cold, Tier::Base);
        }
        let Some(hot) = plan.up.last().copied().filter(|_| !fill.drains) else { return Next::Nothing };
        if fill.used + range <= fill.rests_at() {
            if fill.held + range > fill.size {
                return Next::Waits;
            }
            plan.up.pop();
            return Next::Move(hot, Tier::Fast);
        }
        // One that is much colder makes room for it.
        match plan.down.pop_if(|cold| cold.heat < hot.heat / 5 * 4) {
            Some(cold) => Next::Move(cold, Tier::Base),
            None => Next::Nothing,
        }
    }

    /// Whether the fast tier is no faster to read: it lies where its table does.
    fn tier_shares_disks(&self) -> bool {
        let map = self.store.map.borrow();
        let table = self.table_of(&map);
        let own = map.tables[&table].record.disks;
        map.tier_wanted(table).is_some_and(|tier| tier.disks.is_empty() || !own.is_empty() && tier.disks.is_subset(own))
    }

    /// Moves what does not lie in `to` of a range. Says how many stripes went.
    async fn move_range(
        self: &Rc<Self>,
        table: TableNo,
        range: u64,
        to: Tier,
        budget: &Budget,
        asked: Option<u64>,
    ) -> usize {
        let (each, len) = (self.tiering.borrow().range, self.layout().data_len().0);
        let end = ((range + 1) * each).min(self.size().0);
        let stripes = range * each / len..end.div_ceil(len);
        let most = (budget.limit() / 2 / self.cost_of_lift()).clamp(1, AT_ONCE);
        let (mut from, mut moved) = (stripes.start, 0);
        self.packing.set(self.packing.get() + 1);
        while from < stripes.end && !self.removed.get() && !self.store.is_closing() {
            let now = from..(from + most).min(stripes.end);
            from = now.end;
            let Some(elsewhere) = self.elsewhere(table, now, to).await else { break };
            if elsewhere.is_empty() {
                continue;
            }
            let _lease = budget.take(elsewhere.len() as u64 * self.cost_of_lift()).await;
            moved += self.lift(&elsewhere, By::Anybody, Lift::Tier { to, asked }).await;
            if asked.is_some_and(|asked| self.is_asked(asked)) {
                break;
            }
        }
        self.end_range(table, range, stripes, to).await;
        self.end_packing();
        moved
    }

    /// The stripes of a range that do not lie in `tier`, and lie somewhere.
    async fn elsewhere(&self, table: TableNo, stripes: Range<u64>, tier: Tier) -> Option<Vec<u64>> {
        let _held = self.store.load_table(table, stripes.clone()).await.ok()?;
        if self.removed.get() || self.table() != table {
            return None;
        }
        let map = self.store.map.borrow();
        let found = map.tables[&table].mapped_in(stripes);
        let found = found.filter(|(_, place)| map.is_fast(*place) != (tier == Tier::Fast));
        Some(found.map(|(stripe, _)| stripe).collect())
    }

    /// Takes note of what is left of a range in the fast tier after it was moved.
    async fn end_range(&self, table: TableNo, range: u64, stripes: Range<u64>, to: Tier) {
        if to == Tier::Fast {
            return;
        }
        if self.elsewhere(table, stripes, Tier::Base).await.is_some_and(|left| left.is_empty()) {
            let tiering = &mut *self.tiering.borrow_mut();
            let is_same = tiering.table == Some(table);
            if let Some(fast) = tiering.fast.as_mut().filter(|fast| is_same && (range as usize) < fast.len()) {
                fast.remove(range as usize..range as usize + 1);
            }
        }
    }
}
