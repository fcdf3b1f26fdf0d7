//! Fast tiers: what one would be, setting it, and the task that moves stripes between it and the table. What it does is
//! in `vdisk/tier.rs`.
//!
//! Invariants
//! 1. A fast tier survives at least as many failures as what lies below it.
//! 2. The task rests where there is nothing to move, and comes to an end: no disk is touched until something was asked
//!    for, or has changed.

use super::Pool;
use super::mover::Lull;
use crate::disk_set::DiskSet;
use crate::error::Result;
use crate::exec::LocalBoxFuture;
use crate::fail;
use crate::format::record::{Record, TierRecord};
use crate::geometry::{Layout, Resiliency};
use crate::limits::{INTERLEAVE_MAX, INTERLEAVE_MIN, PINS_MAX};
use crate::mutant::{self, Mutant};
use crate::units::{ByteCount, Nanos};
use crate::vdisk::Vdisk;
use crate::vdisk::order::Ordered;
use crate::vdisk::tier::RESTS_AT;
use alloc::boxed::Box;
use alloc::format;
use alloc::rc::Rc;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use core::ops::Range;

/// The most columns of a tier that nobody gave any.
const COLUMNS: usize = 4;
/// Stripes that a tier has room for, at least.
const STRIPES_MIN: u64 = 8;
/// How long the task rests where nothing can be done.
const RESTS: Nanos = Nanos::secs(1);

/// A fast tier that is asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TierAsk {
    /// The most bytes of data that may lie in it.
    pub size: ByteCount,
    /// The disks that it may lie on; none: those that it lies on already, or every disk that takes data by
    /// itself.
    pub disks: DiskSet,
    /// What is to protect what lies there: as many failures are survived as below, if not given.
    pub resiliency: Option<Resiliency>,
    /// Columns.
    pub columns: Option<u8>,
}

/// Moves stripes between tiers, until the pool stops or fails.
async fn tier_mover(pool: Rc<Pool>) {
    let store = pool.store.clone();
    let mut lull = Lull::begin(&store);
    loop {
        let changed = store.signals.packed.changed();
        if store.stopping.get() || store.is_closing() || store.log.failure().is_some() {
            return;
        }
        store.drop_tiers();
        let tiered: Vec<Rc<Vdisk>> = pool.vdisks().into_iter().filter(|vdisk| vdisk.tier_fill().is_some()).collect();
        if tiered.is_empty() {
            changed.await;
            continue;
        }
        let idle = lull.lasts(&store);
        let mut goes_on = false;
        for vdisk in &tiered {
            let began = store.world.now();
            let asked = idle.then_some(lull.asked);
            goes_on |= vdisk.move_between_tiers(&store.traffic.budgets.merges, asked).await == Ordered::GoesOn;
            if let Some(fill) = vdisk.tier_fill().filter(|_| !idle) {
                store.world.sleep(fill.pause(store.world.now().since(began))).await;
            }
        }
        match goes_on {
            true => store.pause().await,
            false => store.world.sleep(store.tuning.idle_land.min(RESTS)).await,
        }
    }
}

impl Pool {
    /// Has stripes moved between tiers from now on, where any virtual disk has some.
    pub(super) fn start_tier_mover(self: &Rc<Pool>) {
        let any = self.store.map.borrow().any_tier();
        if any && !self.store.read_only && !self.moves_tiers.replace(true) {
            self.store.world.spawn("tier mover", Box::pin(tier_mover(self.clone())));
        }
    }

    /// Plans a fast tier above stripes of `below`, which lie on `below_disks`. `segments`: what it has already.
    pub fn plan_tier(&self, below: Layout, below_disks: DiskSet, ask: &TierAsk, segments: u64) -> Result<TierRecord> {
        self.store.check_changeable()?;
        let map = self.store.map.borrow();
        let there = map.disks_for(ask.disks).count();
        let layout = tier_layout(below, ask, there)?;
        if layout.interleave() > map.slab {
            return fail!(
                InvalidInput,
                "a strip of the fast tier would have {}, more than a slab of {}: more columns make it smaller",
                layout.interleave(),
                map.slab
            );
        }
        if there < layout.slots() {
            return fail!(
                NotPossible,
                "a fast tier of {layout} needs {} disks, and {there} of those that it may lie on take data",
                layout.slots()
            );
        }
        if ask.disks.is_empty() && !below_disks.is_empty() {
            return fail!(NotPossible, "a fast tier lies on disks that are named, as what lies below it does");
        }
        let (least, most) = (layout.data_len() * STRIPES_MIN, map.room_for(layout, segments, ask.disks));
        if ask.size < least || ask.size > most {
            return fail!(
                InvalidInput,
                "a fast tier here has {least} to {most}, which is what its disks have room for, not {}",
                ask.size
            );
        }
        Ok(TierRecord { size: ask.size, layout, disks: ask.disks, pins: Vec::new() })
    }

    /// Plans the fast tier of a virtual disk that there is; `None`: it is to have none.
    pub fn plan_vdisk_tier(&self, name: &str, ask: Option<&TierAsk>) -> Result<(Rc<Vdisk>, Option<TierRecord>)> {
        let vdisk = self.plan_vdisk_remove(name)?;
        let Some(ask) = ask else { return Ok((vdisk, None)) };
        let (record, segments) = {
            let map = self.store.map.borrow();
            let record = map.vdisks[&vdisk.id()].clone();
            let tier = map.tier_of(record.tables[0]).and_then(|tier| map.tables.get(&tier));
            (record, tier.map_or(0, |tier| tier.segments.len() as u64))
        };
        if record.fixed {
            return fail!(NotPossible, "a virtual disk with a fast tier is thin, and {name} is fixed");
        }
        if record.tables.len() > 1 {
            return fail!(NotPossible, "{name} is given another layout just now: it can have a fast tier after that");
        }
        let now = record.tier;
        let disks = if ask.disks.is_empty() { now.as_ref().map_or(DiskSet::EMPTY, |now| now.disks) } else { ask.disks };
        // Words that are left out mean what is.
        let same = now.as_ref().filter(|now| now.disks == disks);
        let resiliency = ask.resiliency.or(same.map(|now| now.layout.resiliency()));
        let columns = ask.columns.or(same.map(|now| now.layout.columns() as u8));
        let ask = TierAsk { disks, resiliency, columns, ..*ask };
        let stays = same.map_or(0, |_| segments);
        let planned = self.plan_tier(vdisk.layout(), vdisk.disks(), &ask, stays)?;
        let pins = now.map_or(Vec::new(), |now| now.pins);
        check_pins_fit(&planned, &pins)?;
        Ok((vdisk, Some(TierRecord { pins, ..planned })))
    }

    /// Gives a virtual disk this fast tier from now on. What lies elsewhere leaves by itself.
    pub fn vdisk_set_tier<'a>(
        self: &'a Rc<Pool>,
        name: &'a str,
        ask: Option<&'a TierAsk>,
    ) -> LocalBoxFuture<'a, Result<()>> {
        Box::pin(async move {
            let (_, planned) = self.plan_vdisk_tier(name, ask)?;
            if planned.is_some() {
                self.store.announce_tiers().await?;
            }
            // Meanwhile the disks may have changed, and the virtual disk may be gone.
            let (vdisk, tier) = self.plan_vdisk_tier(name, ask)?;
            self.put_tier(&vdisk, tier).await
        })
    }

    /// What is pinned to the fast tier of a virtual disk once these bytes are, or are no more.
    pub fn plan_pins(&self, name: &str, pieces: &[Range<u64>], pinned: bool) -> Result<(Rc<Vdisk>, TierRecord)> {
        let vdisk = self.plan_vdisk_remove(name)?;
        let Some(tier) = self.store.map.borrow().vdisks[&vdisk.id()].tier.clone() else {
            return fail!(NotPossible, "{name} has no fast tier");
        };
        let size = vdisk.size().0;
        if let Some(bytes) = pieces.iter().find(|bytes| bytes.is_empty() || bytes.end > size) {
            return fail!(
                InvalidInput,
                "bytes {} to {} are no part of {name}, which has {size}",
                bytes.start,
                bytes.end
            );
        }
        let pins = pieces.iter().fold(tier.pins.clone(), |pins, bytes| with_bytes(&pins, bytes, pinned));
        if pins.len() > PINS_MAX {
            return fail!(
                NotPossible,
                "{name} would have {} pinned pieces, and no virtual disk has more than {PINS_MAX}",
                pins.len()
            );
        }
        check_pins_fit(&tier, &pins)?;
        Ok((vdisk, TierRecord { pins, ..tier }))
    }

    /// Pins bytes of a virtual disk to its fast tier, or lets go of them.
    pub fn vdisk_pin<'a>(
        self: &'a Rc<Pool>,
        name: &'a str,
        pieces: &'a [Range<u64>],
        pinned: bool,
    ) -> LocalBoxFuture<'a, Result<()>> {
        Box::pin(async move {
            let (vdisk, tier) = self.plan_pins(name, pieces, pinned)?;
            self.put_tier(&vdisk, Some(tier)).await
        })
    }

    async fn put_tier(self: &Rc<Pool>, vdisk: &Rc<Vdisk>, tier: Option<TierRecord>) -> Result<()> {
        let record = {
            let mut map = self.store.map.borrow_mut();
            let record = map.vdisks.get_mut(&vdisk.id()).expect("an open virtual disk has its record");
            record.tier = tier;
            record.clone()
        };
        self.store.append_all(vec![Record::Vdisk(record)]);
        vdisk.forget_tier_plan();
        self.start_tier_mover();
        self.store.signals.packed.notify();
        // It may need more copies of the log than there are.
        self.store.move_log().await?;
        self.store.make_durable(self.store.log.seq()).await
    }
}

/// The layout of a fast tier above stripes of `below`, on `there` disks: as many bytes of data in each.
fn tier_layout(below: Layout, ask: &TierAsk, there: usize) -> Result<Layout> {
    let resiliency = ask.resiliency.unwrap_or(match below.failures() {
        0 => Resiliency::Simple,
        failures => Resiliency::Mirror { copies: failures as u8 + 1 },
    });
    if matches!(resiliency, Resiliency::Parity { .. }) {
        return fail!(InvalidInput, "a fast tier is simple or a mirror, not {resiliency}");
    }
    if (resiliency.failures() as usize) < below.failures() {
        return fail!(
            NotPossible,
            "what lies below survives {} failures, and a fast tier of {resiliency} survives {}: it would be less \
             redundant than what it protects",
            below.failures(),
            resiliency.failures()
        );
    }
    let (len, copies) = (below.data_len(), resiliency.copies() as usize);
    let strip = |columns: u8| ByteCount(len.0 / columns as u64);
    let fits =
        |columns: &u8| len.is_multiple_of(*columns as u64 * INTERLEAVE_MIN.0) && strip(*columns) <= INTERLEAVE_MAX;
    let possible: Vec<u8> = (1..=crate::limits::COLUMNS_MAX).filter(fits).collect();
    let columns = match ask.columns {
        Some(columns) if !possible.contains(&columns) => {
            let words: Vec<String> = possible.iter().map(|columns| format!("{columns}")).collect();
            return fail!(
                InvalidInput,
                "{columns} columns of a fast tier do not divide the {len} of data of a stripe of {below}: {} do",
                words.join(", ")
            );
        }
        Some(columns) => columns,
        None => {
            let most = (there / copies).clamp(1, COLUMNS);
            let best = possible.iter().rev().find(|columns| **columns as usize <= most).or(possible.first());
            match best {
                Some(columns) => *columns,
                None => return fail!(NotPossible, "no fast tier has stripes of {len} of data, as {below} has"),
            }
        }
    };
    Layout::new(resiliency, columns, strip(columns))
}

/// These pins with `bytes`, or without them.
fn with_bytes(pins: &[Range<u64>], bytes: &Range<u64>, pinned: bool) -> Vec<Range<u64>> {
    let mut found: Vec<Range<u64>> = Vec::new();
    for pin in pins {
        found.extend([pin.start..pin.end.min(bytes.start), pin.start.max(bytes.end)..pin.end]);
    }
    found.extend(pinned.then(|| bytes.clone()));
    found.retain(|pin| !pin.is_empty());
    found.sort_unstable_by_key(|pin| pin.start);
    let mut joined: Vec<Range<u64>> = Vec::new();
    for pin in found {
        match joined.last_mut().filter(|last| last.end == pin.start) {
            Some(last) => last.end = pin.end,
            None => joined.push(pin),
        }
    }
    joined
}

/// Refuses to pin more than the tier holds at rest.
fn check_pins_fit(tier: &TierRecord, pins: &[Range<u64>]) -> Result<()> {
    let pinned: u64 = pins.iter().map(|pin| pin.end - pin.start).sum();
    let most = tier.size.0 / 8 * RESTS_AT;
    if pinned > most && !mutant::active(Mutant::TierSizeIgnored) {
        return fail!(
            NotPossible,
            "{} would be pinned to a fast tier of {}, which holds {} at rest: a larger tier, or fewer pins, are \
             possible",
            ByteCount(pinned),
            tier.size,
            ByteCount(most)
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parity(columns: u8, interleave: u64) -> Layout {
        Layout::new(Resiliency::Parity { parity: 1 }, columns, ByteCount::kib(interleave)).unwrap()
    }

    fn ask(columns: Option<u8>, resiliency: Option<Resiliency>) -> TierAsk {
        TierAsk { size: ByteCount::gib(1), disks: DiskSet::from_words(&[0b1111]), resiliency, columns }
    }

    #[test]
    fn a_stripe_has_as_many_bytes_of_data_in_every_tier() {
        for (below, columns, there, expected) in [
            (parity(7, 64), Some(2), 4, (2, 192)),
            (parity(7, 64), None, 4, (2, 192)),
            (parity(5, 256), None, 8, (4, 256)),
            (parity(4, 4), Some(3), 6, (3, 4)),
            (parity(6, 64), None, 2, (1, 320)),
        ] {
            let layout = tier_layout(below, &ask(columns, None), there).unwrap();
            assert_eq!((layout.columns(), layout.interleave()), (expected.0, ByteCount::kib(expected.1)));
            assert_eq!((layout.data_len(), layout.failures()), (below.data_len(), 1));
        }
    }

    #[test]
    fn a_tier_that_protects_less_or_divides_nothing_is_refused_with_what_is_possible() {
        let refused = |below, ask: &TierAsk| tier_layout(below, ask, 8).unwrap_err().context;
        let less = refused(parity(5, 64), &ask(None, Some(Resiliency::Simple)));
        assert!(less.contains("less redundant"), "{less}");
        let uneven = refused(parity(5, 4), &ask(Some(3), None));
        assert!(uneven.ends_with("1, 2, 4 do"), "{uneven}");
        let parity = refused(parity(5, 64), &ask(None, Some(Resiliency::Parity { parity: 1 })));
        assert!(parity.contains("simple or a mirror"), "{parity}");
    }

    #[test]
    fn pins_are_joined_and_cut() {
        let pins = with_bytes(&[0..10, 20..30], &(10..20), true);
        assert_eq!((pins.len(), pins[0].clone()), (1, 0..30));
        assert_eq!(with_bytes(&pins, &(5..25), false), [0..5, 25..30]);
        assert_eq!(with_bytes(&pins, &(0..40), false), []);
    }
}
