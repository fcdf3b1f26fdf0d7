//! Write-back caches: what one would be, and setting it. What it does is in `vdisk/cache.rs`.

use super::Pool;
use crate::disk_set::DiskSet;
use crate::error::Result;
use crate::event::Event;
use crate::exec::LocalBoxFuture;
use crate::fail;
use crate::format::record::{
    Away, CacheChoice, CacheRecord, DiskRecord, Media, PowerProtected, Record, Usage, VdiskRecord,
};
use crate::geometry::{Layout, Resiliency};
use crate::mutant::{self, Mutant};
use crate::segment::{DiskRoom, Map, handed_on};
use crate::units::{BLOCK, ByteCount, DiskNo, Nanos, SegmentNo, VdiskNo};
use crate::vdisk::Vdisk;
use alloc::boxed::Box;
use alloc::rc::Rc;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;

/// The smallest and the largest interleave of a cache: small writes of one moment fill a packed stripe, and a
/// solid-state disk writes it with one request.
const INTERLEAVES: (ByteCount, ByteCount) = (ByteCount::kib(64), ByteCount::mib(1));
/// Packed stripes that a cache has room for, at least.
const STRIPES_MIN: u64 = 2;
/// What a suggested size is a multiple of, where there is as much.
const STEP: ByteCount = ByteCount::mib(64);
/// The most bytes of a cache that nobody asked for.
const SUGGESTED_MAX: ByteCount = ByteCount::gib(8);
/// A cache that empties itself, and has not become emptier for so long, is stuck.
const EMPTIES_WITHIN: Nanos = Nanos::secs(60);

/// A write-back cache that is asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CacheAsk {
    /// The most bytes of data that may lie in it.
    pub size: ByteCount,
    /// The disks that it may lie on; none: those that it lies on already, or every solid-state disk that
    /// takes data.
    pub disks: DiskSet,
    /// Whether it may survive less than what lies below it: where there are too few disks for that, it has as many
    /// copies as there are disks, and what rests in it is lost with them.
    pub may_lose: bool,
}

/// A write-back cache that the pool chooses anew.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CacheTurn {
    /// The name of the virtual disk.
    pub vdisk: String,
    /// What it has.
    pub from: Option<CacheRecord>,
    /// What it gets.
    pub to: Option<CacheRecord>,
    /// The names of the disks of that.
    pub disks: Vec<String>,
}

/// Disks that are other than they are now, to see what comes of it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum DisksThen {
    /// Those of these capacities, media and names join, to be used so.
    Joined(Vec<(ByteCount, Media, String)>, Usage),
    /// One is used so, and is of this medium; `None`: that stays.
    Changed(DiskNo, Option<Usage>, Option<Media>),
}

/// What caches there may be of one virtual disk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CacheRange {
    /// The smallest size.
    pub least: ByteCount,
    /// The largest one: what the disks have room for.
    pub most: ByteCount,
    /// The layout.
    pub layout: Layout,
    /// The disks.
    pub disks: DiskSet,
}

impl Pool {
    /// What caches there may be above stripes of `below`, on `disks` (none: solid-state ones, those that take
    /// nothing by themselves if they are enough), for who has so many segments there. A cache survives what lies below
    /// it, unless it `may_lose`.
    pub fn cache_range(&self, below: Layout, disks: DiskSet, may_lose: bool, segments: u64) -> Result<CacheRange> {
        let map = self.store.map.borrow();
        let layout = cache_layout(below, below.failures() + 1, map.slab)?;
        let (named, needed) = (!disks.is_empty(), layout.slots());
        let disks = match named {
            true => set_of(map.disks_for(disks)),
            false => {
                let kept = self.solid_state(|usage| usage == Usage::ManualSelect);
                let any = self.solid_state(|usage| matches!(usage, Usage::ManualSelect | Usage::AutoSelect));
                if kept.len() >= needed { kept } else { any }
            }
        };
        let have = disks.len();
        let of = if named { "of those named" } else { "of the solid-state disks" };
        let layout = if have >= needed {
            layout
        } else if have > 0 && (may_lose || mutant::active(Mutant::CacheLosesUnasked)) {
            cache_layout(below, have, map.slab)?
        } else if may_lose {
            return fail!(NotPossible, "a write-back cache needs a disk; {of} none takes data");
        } else {
            let fewer = match have {
                0 => "",
                _ => "; a size with `,unsafe` behind it makes do with fewer, and what rests there is lost with them",
            };
            return fail!(
                NotPossible,
                "a write-back cache survives as much as what lies below it, here {below}, and so needs {needed} disks; \
                 {of} {have} take data{fewer}"
            );
        };
        let (least, most) = (layout.data_len() * STRIPES_MIN, map.room_for(layout, segments, disks));
        Ok(CacheRange { least, most, layout, disks })
    }

    /// Solid-state disks that are there and are used so, as bits.
    pub(super) fn solid_state(&self, used: impl Fn(Usage) -> bool) -> DiskSet {
        let map = self.store.map.borrow();
        set_of(
            map.disks
                .values()
                .filter(|disk| disk.healthy && disk.record.media == Media::Ssd && used(disk.record.usage)),
        )
    }

    /// The cache for who leaves its size to the pool, above stripes of `below` on `below_disks` (none: all that take
    /// data): on `disks`; where these are none, on solid-state disks that take nothing by themselves, if the others are
    /// slower.
    pub fn suggest_cache(&self, below: Layout, below_disks: DiskSet, disks: DiskSet) -> Option<CacheAsk> {
        let kept = self.solid_state(|usage| usage == Usage::ManualSelect);
        let slow = self.store.map.borrow().seeks(below_disks);
        if disks.is_empty() && (kept.is_empty() || !slow) {
            return None;
        }
        let disks = if disks.is_empty() { kept } else { disks };
        let range = self.cache_range(below, disks, false, 0).ok()?;
        let size = rounded(ByteCount(range.most.0 / 2)).min(SUGGESTED_MAX);
        (size >= range.least).then_some(CacheAsk { size, disks, may_lose: false })
    }

    /// The caches that the pool is to choose, and that do not suit its disks as they are now: there is none and could
    /// be one, or too few of its disks take data. Disks that are away for a while still count, and a cache that has
    /// enough is left alone, however many more there are.
    pub fn plan_caches(&self) -> Vec<CacheTurn> {
        if self.store.check_changeable().is_err() {
            return Vec::new();
        }
        self.vdisks().iter().filter_map(|vdisk| self.plan_auto_cache(vdisk)).collect()
    }

    fn plan_auto_cache(&self, vdisk: &Vdisk) -> Option<CacheTurn> {
        let VdiskRecord { name, cache: from, cache_choice, .. } =
            self.store.map.borrow().vdisks.get(&vdisk.id()).cloned()?;
        if cache_choice == CacheChoice::Typed || from.is_some_and(|cache| self.has_its_disks(&cache)) {
            return None;
        }
        let ask = self.suggest_cache(vdisk.layout(), vdisk.disks(), DiskSet::EMPTY);
        let to = ask.and_then(|ask| self.plan_cache(vdisk.layout(), &ask).ok());
        let map = self.store.map.borrow();
        let named = map.disks.values().filter(|disk| to.is_some_and(|to| to.disks.contains(disk.record.no)));
        let disks = named.map(|disk| disk.record.name.clone()).collect();
        (from != to).then_some(CacheTurn { vdisk: name, from, to, disks })
    }

    /// Whether as many disks as a cache needs are for data, whether they are there or not.
    fn has_its_disks(&self, cache: &CacheRecord) -> bool {
        let map = self.store.map.borrow();
        let takes = |disk: &&DiskRoom| {
            cache.disks.contains(disk.record.no) && matches!(disk.record.usage, Usage::ManualSelect | Usage::AutoSelect)
        };
        map.disks.values().filter(takes).count() >= cache.layout.slots()
    }

    /// What [`Pool::plan_caches`] would say if the disks were other than they are. Changes nothing.
    pub fn plan_caches_then(&self, then: &DisksThen) -> Vec<CacheTurn> {
        let before = self.store.map.borrow().disks.clone();
        match then {
            DisksThen::Joined(disks, usage) => disks.iter().for_each(|disk| self.imagine_disk(disk, *usage)),
            DisksThen::Changed(no, usage, media) => {
                if let Some(disk) = self.store.map.borrow_mut().disks.get_mut(no) {
                    disk.record.usage = usage.unwrap_or(disk.record.usage);
                    disk.record.media = media.unwrap_or(disk.record.media);
                }
            }
        }
        let planned = self.plan_caches();
        self.store.map.borrow_mut().disks = before;
        planned
    }

    fn imagine_disk(&self, (capacity, media, name): &(ByteCount, Media, String), usage: Usage) {
        let Ok(plan) = self.plan_disk_add(*capacity, name) else { return };
        let no = self.unused_disk_no();
        let record = DiskRecord {
            no,
            media: *media,
            usage,
            slabs: plan.slabs,
            disk_len: plan.disk_len,
            name: name.clone(),
            domain: String::new(),
            away: Away::No,
            maintenance: false,
            retired_from: Usage::AutoSelect,
            power: PowerProtected::Auto,
        };
        let room = DiskRoom::empty(record);
        self.store.map.borrow_mut().disks.insert(no, room);
    }

    /// Chooses the caches anew that [`Pool::plan_caches`] finds, and tells of each. What lies elsewhere leaves by
    /// itself.
    pub fn review_caches(&self) -> LocalBoxFuture<'_, Result<Vec<CacheTurn>>> {
        Box::pin(async move {
            let mut turned = Vec::new();
            for vdisk in self.vdisks() {
                let Some(turn) = self.plan_auto_cache(&vdisk).filter(|_| self.store.check_changeable().is_ok()) else {
                    continue;
                };
                let ask = turn.to.map(|CacheRecord { size, disks, .. }| CacheAsk { size, disks, may_lose: false });
                self.vdisk_set_cache(&turn.vdisk, ask.as_ref(), CacheChoice::Auto).await?;
                let CacheTurn { vdisk, from, to, .. } = turn.clone();
                self.store.world.emit(Event::CacheChosen { vdisk, from, to });
                turned.push(turn);
            }
            Ok(turned)
        })
    }

    /// Plans a write-back cache above stripes of `below`.
    pub fn plan_cache(&self, below: Layout, ask: &CacheAsk) -> Result<CacheRecord> {
        self.plan_cache_with(below, ask, 0)
    }

    fn plan_cache_with(&self, below: Layout, ask: &CacheAsk, segments: u64) -> Result<CacheRecord> {
        self.store.check_changeable()?;
        let CacheRange { least, most, layout, disks } = self.cache_range(below, ask.disks, ask.may_lose, segments)?;
        if ask.size < least || ask.size > most {
            return fail!(
                InvalidInput,
                "a write-back cache here has {least} to {most}, which is what its disks have room for, not {}",
                ask.size
            );
        }
        Ok(CacheRecord { size: ask.size, layout, disks })
    }

    /// Plans the write-back cache of a virtual disk that there is; `None`: it is to have none.
    pub fn plan_vdisk_cache(&self, name: &str, ask: Option<&CacheAsk>) -> Result<(Rc<Vdisk>, Option<CacheRecord>)> {
        let vdisk = self.plan_vdisk_remove(name)?;
        let now = vdisk.cache();
        let Some(ask) = ask else { return Ok((vdisk, None)) };
        // What a cache lies on that may lose is too little for one that may not.
        let now = now.filter(|now| ask.may_lose || now.layout.failures() >= vdisk.layout().failures());
        let disks = if ask.disks.is_empty() { now.map_or(DiskSet::EMPTY, |now| now.disks) } else { ask.disks };
        // What lies elsewhere makes no room here.
        let stays = now.is_some_and(|now| now.disks == disks);
        let have = if stays { vdisk.segments_of_cache() } else { 0 };
        let cache = self.plan_cache_with(vdisk.layout(), &CacheAsk { disks, ..*ask }, have)?;
        Ok((vdisk, Some(cache)))
    }

    /// The virtual disks whose caches would have too few disks if disk `no` were none of the pool's, and `come` took
    /// data. They empty themselves then.
    pub(super) fn caches_without(map: &Map, no: DiskNo, come: Option<DiskNo>) -> Vec<VdiskNo> {
        let is_short = |cache: &CacheRecord| {
            let disks = come.map_or(cache.disks, |come| handed_on(cache.disks, no, come));
            let left = map.places_for(disks, cache.layout.slots(), Some(no), come);
            cache.disks.contains(no) && left < cache.layout.slots()
        };
        let short = map.vdisks.values().filter(|vdisk| vdisk.cache.as_ref().is_some_and(is_short));
        short.map(|vdisk| vdisk.id).collect()
    }

    /// Whether a segment is of a cache that empties itself: what lies there leaves without another home for it. `seen`:
    /// how much there was when it last had become less, and when that was.
    pub(super) fn empties_itself(&self, segment: SegmentNo, seen: &mut (u64, Nanos)) -> bool {
        let of = |vdisk: &Rc<Vdisk>| vdisk.drains() && vdisk.has_packed_in(segment);
        let Some(vdisk) = self.vdisks().into_iter().find(of) else { return false };
        let (units, stripes, _) = vdisk.packed();
        let (now, left) = (self.store.world.now(), units + stripes);
        if seen.0 != left {
            *seen = (left, now);
        }
        now.since(seen.1) < EMPTIES_WITHIN
    }

    /// Gives a virtual disk this write-back cache from now on, which is whose `choice`. What lies elsewhere leaves by
    /// itself.
    pub fn vdisk_set_cache<'a>(
        &'a self,
        name: &'a str,
        ask: Option<&'a CacheAsk>,
        choice: CacheChoice,
    ) -> LocalBoxFuture<'a, Result<()>> {
        Box::pin(async move {
            let (_, planned) = self.plan_vdisk_cache(name, ask)?;
            if planned.is_some() && !mutant::active(Mutant::CacheBitUnannounced) {
                self.store.announce_caches().await?;
            }
            // Meanwhile the disks may have changed, and the virtual disk may be gone.
            let (vdisk, cache) = self.plan_vdisk_cache(name, ask)?;
            let record = {
                let mut map = self.store.map.borrow_mut();
                let record = map.vdisks.get_mut(&vdisk.id()).expect("an open virtual disk has its record");
                (record.cache, record.cache_choice) = (cache, choice);
                record.clone()
            };
            self.store.append_all(vec![Record::Vdisk(record)]);
            self.store.signals.packed.notify();
            self.store.make_durable(self.store.log.seq()).await
        })
    }
}

/// The layout of a cache above stripes of `below` that has so many copies: one column.
fn cache_layout(below: Layout, copies: usize, slab: ByteCount) -> Result<Layout> {
    let resiliency = match copies {
        0 | 1 => Resiliency::Simple,
        copies => Resiliency::Mirror { copies: copies as u8 },
    };
    let interleave = below.data_len().max(INTERLEAVES.0).min(INTERLEAVES.1).min(slab);
    Layout::new(resiliency, 1, interleave)
}

/// Rounds a size down to one for people.
pub fn rounded(size: ByteCount) -> ByteCount {
    let unit = if size < STEP { BLOCK } else { STEP.0 };
    ByteCount(size.0 / unit * unit)
}

/// The numbers of these disks, as bits.
pub(super) fn set_of<'a>(disks: impl Iterator<Item = &'a DiskRoom>) -> DiskSet {
    disks.map(|disk| disk.record.no).collect()
}
