//! Packed stripes are read ahead of the mover, whole, for many batches at once.
//!
//! Units are sorted by their addresses before they are packed, a part of a second's worth at a time: so what the mover
//! brings down next lies in a few stripes of each such group. Read for one batch alone, each costs a seek for some
//! units; read for the next ten batches, it costs the same seek once.
//!
//! Invariants
//! 1. What is held fits half of `ahead_memory`, and nothing is read for which all of it has no room.
//! 2. Who could not read ahead far enough to gain anything reads what a batch needs with the batch.
//! 3. What was passed is forgotten with the next window, and all of it when nothing is moved any more. (A place that is
//!    free is forgotten by the map: `segment/ahead.rs`.)

use super::Vdisk;
use super::read::{target_at, wants};
use crate::mutant::{self, Mutant};
use crate::segment::ahead::Fetch;
use crate::segment::fine::{Fine, UNIT};
use crate::store::together::Part;
use crate::stripe::table::Place;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::rc::Rc;
use alloc::vec::Vec;
use core::ops::Range;

/// The part of the memory for what is read ahead that packed stripes may take, as a divisor.
const SHARE: u64 = 2;
/// A window that is not this many batches long is not worth reading.
const BATCHES_MIN: usize = 3;
/// Stripes that are read together: a flush waits for what a disk has been asked for.
const TOGETHER: usize = 32;

/// What was read ahead of a sweep.
#[derive(Default)]
pub(super) struct PackedAhead {
    /// The units whose packed stripes are held, or which it is not worth it for.
    window: Range<u64>,
    held: Vec<Place>,
}

impl Vdisk {
    /// Reads the packed stripes that the sweep comes by next, unless it has those for the units `swept` of the batch,
    /// of `batch` stripes, that is about to be moved.
    pub(super) async fn read_packed_ahead(&self, swept: Range<u64>, batch: usize) {
        let fetch = Rc::new(Fetch::default());
        let Some(parts) = self.plan_packed_ahead(swept, batch, &fetch) else { return };
        for parts in parts.chunks(TOGETHER) {
            let answers = self.store.read_together(parts, None).await;
            self.store.keep_ahead(parts, answers, &fetch);
        }
        fetch.end();
    }

    /// Forgets what was read ahead of the sweep.
    pub(crate) fn forget_packed_ahead(&self) {
        if mutant::active(Mutant::PackedAheadKept) {
            return;
        }
        let PackedAhead { held, .. } = core::mem::take(&mut self.sweep.borrow_mut().ahead);
        let mut map = self.store.map.borrow_mut();
        held.into_iter().for_each(|place| map.ahead.forget(place));
    }

    /// The stripes that are to be read for the next window, pinned. None: nothing is.
    fn plan_packed_ahead(&self, swept: Range<u64>, batch: usize, fetch: &Rc<Fetch>) -> Option<Vec<Part>> {
        let memory = self.store.tuning.ahead_memory;
        let ahead = &mut self.sweep.borrow_mut().ahead;
        let is_ahead = ahead.window.start <= swept.start && swept.end <= ahead.window.end;
        if memory == 0 || is_ahead || self.removed.get() {
            return None;
        }
        let map = &mut *self.store.map.borrow_mut();
        let fine = map.fine(self.table_of(map))?;
        let (packs, len) = (fine.packs, map.tables[&fine.packs].record.layout.data_len().0);
        let next = Next::from(fine, swept.start, (memory / SHARE / len) as usize);
        let is_worth_it =
            next.stripes >= BATCHES_MIN * batch && next.units * UNIT >= next.packed.len() as u64 * len / 4;
        let place_of = |stripe: u64| Some((stripe, map.place_of(packs, stripe)?));
        let wanted: BTreeMap<Place, u64> = match is_worth_it {
            true => next.packed.into_iter().filter_map(place_of).map(|(stripe, place)| (place, stripe)).collect(),
            false => BTreeMap::new(),
        };
        ahead.window = swept.start..if is_worth_it { next.end } else { swept.end };
        ahead.held.drain(..).filter(|place| !wanted.contains_key(place)).for_each(|place| map.ahead.forget(place));
        let mut parts = Vec::new();
        for (place, stripe) in wanted {
            if map.ahead.get(place).is_none() {
                let target = target_at(map, place, (packs, stripe));
                let len = target.layout.data_len().0;
                if map.ahead.memory().0 + len > memory {
                    break;
                }
                map.pin(place);
                map.ahead.expect(place, len, fetch.clone());
                parts.push(Part { wants: wants(target.layout, 0, len as usize), target });
            }
            ahead.held.push(place);
        }
        Some(parts)
    }
}

/// What a sweep comes by next.
struct Next {
    /// Packed stripes.
    packed: BTreeSet<u64>,
    /// Units that they hold of it, and in how many stripes these are.
    units: u64,
    stripes: usize,
    /// The unit with which it ends.
    end: u64,
}

impl Next {
    /// What lies from unit `first` on in up to `most` packed stripes.
    fn from(fine: &Fine, first: u64, most: usize) -> Next {
        let mut next = Next { packed: BTreeSet::new(), units: 0, stripes: 0, end: u64::MAX };
        let mut last = None;
        for (unit, spot) in fine.range(first..u64::MAX) {
            let stripe = unit / fine.per_stripe();
            if next.packed.len() == most && !next.packed.contains(&spot.stripe) {
                next.end = stripe * fine.per_stripe();
                break;
            }
            next.packed.insert(spot.stripe);
            next.units += 1;
            next.stripes += (last != Some(stripe)) as usize;
            last = Some(stripe);
        }
        next
    }
}
