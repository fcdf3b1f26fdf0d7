//! Virtual disks: making, growing, removing, explaining.

use super::Seen;
use super::export::ending;
use super::tier::{disks_of, tier_ask, tier_words};
use crate::api::cache::{CacheInfo, WriteCache, in_words};
use crate::api::class::Class;
use crate::api::error::{Answer, ApiError, Kind};
use crate::api::name::VdiskName;
use crate::api::pool::{Health, PoolInfo};
use crate::api::read_cache::{self, ReadCache, ReadCacheInfo};
use crate::api::size::{Size, typed};
use crate::api::tier::TierMedia;
use crate::api::validate;
use crate::api::vdisk::{Explanation, Layout, Provisioning, Resiliency, VdiskInfo, VdiskMapped, VdiskPiece};
use crate::api::watch::{Change, Outcome};
use crate::daemon::Daemon;
use crate::daemon::engine::vdisks::{Above, CacheWanted, Planned};
use crate::ops::disk::{DiskAdd, DiskList};
use crate::ops::export::ExportRemove;
use crate::ops::line::ToLine;
use crate::ops::pool::PoolShow;
use crate::ops::vdisk::{
    Explain, VdiskClear, VdiskCreate, VdiskList, VdiskRemove, VdiskRename, VdiskResize, VdiskShow,
};
use crate::ops::vdisk_map::{PIECES_MAX, VdiskMap};
use crate::ops::vdisk_set::VdiskSet;
use crate::ops::watch::StatusShow;
use crate::ops::{Perform, Run};
use weft_engine::disk_set::DiskSet;
use weft_engine::error::{Error, ErrorKind};
use weft_engine::format::record::{CacheChoice, CacheRecord};
use weft_engine::geometry;
use weft_engine::limits;
use weft_engine::pool;
use weft_engine::pool::read_cache::{ReadCacheAsk, ReadCachePlan};
use weft_engine::pool::{Amount, Growth, Protection, Refusal, VdiskPlan, VdiskSpec, Wanted};
use weft_engine::units::{ByteCount, DiskNo};

/// The sector of a virtual disk that asks for none: what every client can use.
const SECTOR_DEFAULT: u16 = 512;

impl Perform<VdiskList> for Daemon {
    fn perform(&self, list: &VdiskList) -> Answer<Vec<VdiskInfo>> {
        let pools = match &list.pool {
            Some(pool) => vec![self.pool(pool)?],
            None => self.pools()?,
        };
        Ok(pools.into_iter().flat_map(|pool| pool.vdisks).collect())
    }
}

impl Perform<VdiskShow> for Daemon {
    fn perform(&self, show: &VdiskShow) -> Answer<VdiskInfo> {
        self.vdisk(&show.vdisk)
    }
}

impl Perform<VdiskCreate> for Daemon {
    fn perform(&self, create: &VdiskCreate) -> Answer<Change> {
        create.validate()?;
        self.change_pool(&create.name.pool, |seen| self.create_vdisk(seen, create))
    }
}

impl Perform<VdiskResize> for Daemon {
    fn perform(&self, resize: &VdiskResize) -> Answer<Change> {
        self.change_pool(&resize.vdisk.pool, |seen| self.resize_vdisk(seen, resize))
    }
}

impl Perform<VdiskRename> for Daemon {
    fn perform(&self, rename: &VdiskRename) -> Answer<Change> {
        self.change_pool(&rename.vdisk.pool, |seen| self.rename_vdisk(seen, rename))
    }
}

impl Perform<VdiskSet> for Daemon {
    fn perform(&self, set: &VdiskSet) -> Answer<Change> {
        self.change_pool(&set.vdisk.pool, |seen| self.set_vdisk(seen, set))
    }
}

impl Perform<VdiskRemove> for Daemon {
    fn perform(&self, remove: &VdiskRemove) -> Answer<Change> {
        self.change_pool(&remove.vdisk.pool, |seen| self.remove_vdisk(seen, remove))
    }
}

impl Perform<VdiskClear> for Daemon {
    fn perform(&self, clear: &VdiskClear) -> Answer<Change> {
        self.change_pool(&clear.vdisk.pool, |seen| self.clear_vdisk(seen, clear))
    }
}

impl Perform<Explain> for Daemon {
    fn perform(&self, explain: &Explain) -> Answer<Explanation> {
        let Explain { vdisk: name, operation, offset, length } = explain.clone();
        let vdisk = self.vdisk(&name)?;
        let sector = u64::from(vdisk.sector);
        let aligned = offset.is_multiple_of(sector) && length.is_multiple_of(sector);
        let inside = offset.checked_add(length).is_some_and(|end| end <= vdisk.size);
        if !aligned || !inside || length == 0 || length > limits::REQUEST_MAX.0 {
            let message = format!(
                "{operation} of {} at {} is no request to {name}; it takes whole sectors of {sector} bytes, 1 sector \
                 to {}, within its {}",
                typed(ByteCount(length)),
                typed(ByteCount(offset)),
                typed(limits::REQUEST_MAX),
                ByteCount(vdisk.size)
            );
            let hint = Explain { offset: 0, length: vdisk.size.min(64 << 10), ..explain.clone() }.line();
            return Err(ApiError::new(Kind::InvalidInput, message).hint(hint));
        }
        let plan = self.parts.engine.explain(explain)?;
        let (failures_left, failures_new) = (vdisk.failures_left, vdisk.failures_new);
        Ok(Explanation { vdisk: name, operation, offset, length, plan, failures_left, failures_new })
    }
}

impl Perform<VdiskMap> for Daemon {
    fn perform(&self, map: &VdiskMap) -> Answer<VdiskMapped> {
        let vdisk = self.vdisk(&map.vdisk)?;
        let range = map.within(vdisk.size)?;
        let (mut pieces, mut at) = (Vec::<VdiskPiece>::new(), range.start);
        while at < range.end && pieces.len() < PIECES_MAX {
            let found = self.parts.engine.vdisk_map(&map.vdisk, at..range.end)?;
            if found.is_empty() {
                break;
            }
            for piece in found {
                at = piece.offset + piece.length;
                match pieces.last_mut().filter(|last| last.goes_on_as(&piece)) {
                    Some(last) => last.length += piece.length,
                    None => pieces.push(piece),
                }
            }
        }
        Ok(VdiskMapped { vdisk: map.vdisk.clone(), pieces, next: (at < range.end).then_some(at) })
    }
}

impl Daemon {
    /// One virtual disk of an open pool.
    pub(in crate::daemon) fn vdisk(&self, name: &VdiskName) -> Answer<VdiskInfo> {
        find_vdisk(&self.pool(&name.pool)?, name)
    }

    fn create_vdisk(&self, seen: &Seen, request: &VdiskCreate) -> Answer<Change> {
        let pool = &seen.pool;
        if pool.vdisks.iter().any(|vdisk| vdisk.name == request.name) {
            let message = format!("a virtual disk named {} is there already", request.name);
            let other = VdiskCreate { name: second(&request.name), ..request.clone() };
            return Err(ApiError::new(Kind::AlreadyExists, message).offer(&other));
        }
        let (below, fast) = request.apart()?;
        let request = &below;
        let mut wanted = wanted(request, pool)?;
        let mut tier = fast.map(|(fast, _)| tier_ask(pool, &fast)).transpose()?;
        if let (Some((_, media)), Some(tier)) = (fast, &mut tier) {
            let below = if wanted.spec.disks.is_empty() { disks_of(pool, media)? } else { wanted.spec.disks };
            // Disks that are added later are theirs, too, where they lie on all that take data by themselves.
            let all = disks_of(pool, TierMedia::Any).unwrap_or_default();
            wanted.spec.disks = if below == all { DiskSet::EMPTY } else { below };
            tier.disks = if tier.disks == below { wanted.spec.disks } else { tier.disks };
        }
        let disks = disks_named(pool, &request.write_cache_disks)?;
        let unasked = if wanted.class == pool::Class::Stream { WriteCache::Off } else { WriteCache::Auto };
        let cache = CacheWanted { cache: request.write_cache.unwrap_or(unasked), disks };
        let reads = request.read_cache.filter(|reads| reads.0 > ByteCount::ZERO);
        let disks = disks_named(pool, &request.read_cache_disks)?;
        let reads = reads.map(|reads| ReadCacheAsk { size: reads.0, disks });
        let planned =
            self.parts.engine.vdisk_create(&pool.name, &wanted, Above { cache, tier, reads }, request.changing.run());
        let without = || VdiskCreate::new(request.name.clone(), request.size).line();
        let planned = planned.map_err(|error| error.or_hint(without))?;
        let Planned { plan, cache: planned, tier, reads } =
            planned.map_err(|refusal| cannot_create(request, refusal))?;
        let VdiskPlan { spec, layout, room } = plan;
        let class = request.class.map(|_| Class::from(pool::Class::of(layout, wanted.class != pool::Class::Stream)));
        let (size, layout) = (spec.size, Layout::from(layout));
        let failures = layout.resiliency.failures();
        let survives = match failures {
            0 => "survives no disk failure".into(),
            1 => "survives the failure of any disk".into(),
            n => format!("survives the failure of any {n} disks"),
        };
        let efficiency = layout.efficiency() * 100.0;
        let change = Change::new(Outcome::Created, format!("vdisk {}", request.name), request.changing.dry_run)
            .line(format!("size {size}, {}, sectors of {} bytes", request.provisioning, spec.sector))
            .line(layout.to_string())
            .line(format!("{survives}; {efficiency:.0} % of the raw space is data"));
        let more = [
            class.map(|class| format!("class {}", class.words(layout))),
            planned
                .map(|planned| format!("write cache {}", cache_words(pool, Some(planned), cache.choice(), failures))),
            tier.map(|tier| format!("fast tier {}", tier_words(pool, Some(&tier)))),
            reads.map(|reads| format!("read cache {}", read_cache_info(pool, reads))),
            (size > room).then(|| beyond(&request.name, room)),
        ];
        Ok(more.into_iter().flatten().fold(change, Change::line))
    }

    fn resize_vdisk(&self, seen: &Seen, request: &VdiskResize) -> Answer<Change> {
        let name = &request.vdisk;
        let vdisk = find_vdisk(&seen.pool, name)?;
        if let Size::Bytes(size) = request.size {
            validate::vdisk_size(size, u64::from(vdisk.sector)).map_err(|bad| {
                let size = bad.nearest.as_ref().and_then(|nearest| nearest.parse().ok()).unwrap_or(request.size);
                ApiError::from(bad).offer(&VdiskResize { size, ..request.clone() })
            })?;
        }
        let planned = self.parts.engine.vdisk_resize(name, amount(request.size), request.changing.run())?;
        let Growth { from, to, room } = planned.map_err(|refusal| cannot_grow(request, refusal))?;
        let subject = format!("vdisk {name}");
        if to == from {
            return Ok(Change::new(Outcome::AlreadySo, subject, request.changing.dry_run).line(format!("size {to}")));
        }
        let change =
            Change::new(Outcome::Changed, subject, request.changing.dry_run).line(format!("size {from} -> {to}"));
        Ok(match to > room {
            true => change.line(beyond(name, room)),
            false => change,
        })
    }

    fn rename_vdisk(&self, seen: &Seen, request: &VdiskRename) -> Answer<Change> {
        let name = &request.vdisk;
        find_vdisk(&seen.pool, name)?;
        super::validate_name(&request.name, |nearest| VdiskRename::to(name, nearest).line())?;
        let pool = seen.writable()?;
        let (subject, dry_run) = (format!("vdisk {name}"), request.changing.dry_run);
        if request.name == name.vdisk {
            return Ok(Change::new(Outcome::AlreadySo, subject, dry_run));
        }
        let new = VdiskName { pool: name.pool.clone(), vdisk: request.name.clone() };
        if pool.vdisks.iter().any(|other| other.name == new) {
            let message = format!("a virtual disk named {new} is there already");
            let hint = VdiskRename::to(name, format!("{}2", request.name)).line();
            return Err(ApiError::new(Kind::AlreadyExists, message).hint(hint));
        }
        if let Some(vdisk) = pool.vdisks.iter().find(|vdisk| vdisk.name == *name && !vdisk.exports.is_empty()) {
            let message = format!("{name} is offered on {}; its clients know it by its name", vdisk.exports.join(", "));
            return Err(ApiError::new(Kind::NotPossible, message).offer(&ExportRemove::all(name)));
        }
        self.parts.engine.vdisk_rename(name, &request.name, request.changing.run())?;
        Ok(Change::new(Outcome::Changed, subject, dry_run).line(format!("name {name} -> {new}")))
    }

    fn set_vdisk(&self, seen: &Seen, request: &VdiskSet) -> Answer<Change> {
        let before = find_vdisk(&seen.pool, &request.vdisk)?;
        seen.writable()?;
        // Where one of several settings is refused, none is changed.
        let mut lines = self.set_each(&seen.pool, &before, request, Run::Dry)?;
        if let Run::Real = request.changing.run() {
            lines = self.set_each(&seen.pool, &before, request, Run::Real)?;
        }
        let outcome = if lines.is_empty() { Outcome::AlreadySo } else { Outcome::Changed };
        let change = Change::new(outcome, format!("vdisk {}", request.vdisk), request.changing.dry_run);
        Ok(lines.into_iter().fold(change, Change::line))
    }

    /// Changes each setting of a virtual disk that is asked for. What is other then, in words.
    fn set_each(&self, pool: &PoolInfo, before: &VdiskInfo, request: &VdiskSet, run: Run) -> Answer<Vec<String>> {
        let (name, packed, mut lines) = (&request.vdisk, ByteCount(before.packed), Vec::new());
        if request.write_cache.is_some() || !request.write_cache_disks.is_empty() {
            let disks = disks_named(pool, &request.write_cache_disks)?;
            let size = before.write_cache.as_ref().map(|cache| WriteCache::Bytes(ByteCount(cache.size)));
            let cache = request.write_cache.or(size).unwrap_or_default();
            let wanted = CacheWanted { cache, disks };
            let planned = self.parts.engine.vdisk_set_cache(name, wanted, run)?;
            let had = before.write_cache.is_some();
            let was = words(before.write_cache.clone(), before.write_cache_auto);
            let will = cache_words(pool, planned, wanted.choice(), before.layout.resiliency.failures());
            if was != will {
                lines.push(format!("write cache {was} -> {will}"));
            }
            if planned.is_none() && had && packed > ByteCount::ZERO && was != will {
                lines.push(format!("{packed} that rest in it are moved into whole stripes"));
            }
        }
        if let Some(tier) = request.tier {
            lines.extend(self.set_tier(pool, before, request, tier, run)?);
        }
        if request.read_cache.is_some() || !request.read_cache_disks.is_empty() {
            lines.extend(self.set_read_cache(pool, before, request, run)?);
        }
        if let Some(share) = request.fine_share.filter(|share| *share != before.fine_share) {
            self.parts.engine.vdisk_set_fine_share(name, share, run)?;
            lines.push(format!("fine share {} -> {share}", before.fine_share));
            if share.0 == Some(0) && packed > ByteCount::ZERO {
                lines.push(format!("{packed} that lie packed are moved into whole stripes"));
            }
        }
        Ok(lines)
    }

    /// Changes the read cache of a virtual disk. What is other then, in words.
    fn set_read_cache(
        &self,
        pool: &PoolInfo,
        before: &VdiskInfo,
        request: &VdiskSet,
        run: Run,
    ) -> Answer<Option<String>> {
        let had = before.read_cache.as_ref();
        let size = request.read_cache.map(|cache| cache.0).or(had.map(|cache| ByteCount(cache.size)));
        let Some(size) = size else {
            let message = format!("{} has no read cache: say how large it is to be", before.name);
            let asked = VdiskSet { read_cache: Some(ReadCache(ByteCount::gib(100))), ..request.clone() };
            return Err(ApiError::new(Kind::InvalidInput, message).offer(&asked));
        };
        let disks = disks_named(pool, &request.read_cache_disks)?;
        let ask = (size > ByteCount::ZERO).then_some(ReadCacheAsk { size, disks });
        let planned = self.parts.engine.vdisk_set_read_cache(&request.vdisk, ask, run)?;
        let will = planned.map(|planned| read_cache_info(pool, planned));
        let (was, will) = (read_cache::in_words(had), read_cache::in_words(will.as_ref()));
        Ok((was != will).then(|| format!("read cache {was} -> {will}")))
    }

    fn remove_vdisk(&self, seen: &Seen, request: &VdiskRemove) -> Answer<Change> {
        let (name, dry_run) = (&request.vdisk, request.changing.dry_run);
        let vdisk = find_vdisk(&seen.pool, name)?;
        if !vdisk.exports.is_empty() {
            let message = format!("{name} is offered on {}; its clients would lose it", vdisk.exports.join(", "));
            return Err(ApiError::new(Kind::NotPossible, message).hint(ending(&vdisk)));
        }
        let removed = self.parts.engine.vdisk_remove(name, request.changing.run());
        removed.map_err(|error| error.or_hint(|| StatusShow::of(&name.pool).line()))?;
        let (size, used) = (ByteCount(vdisk.size), ByteCount(vdisk.used));
        let freed = ByteCount(vdisk.footprint);
        Ok(Change::new(Outcome::Removed, format!("vdisk {name}"), dry_run)
            .line(format!("size {size}, {used} of data"))
            .line(format!("{freed} of the pool are free again")))
    }

    fn clear_vdisk(&self, seen: &Seen, request: &VdiskClear) -> Answer<Change> {
        let (name, dry_run) = (&request.vdisk, request.changing.dry_run);
        let vdisk = find_vdisk(&seen.pool, name)?;
        let subject = format!("vdisk {name}");
        let Some(failure) = vdisk.failure else {
            let waits = vdisk.health == Health::Failed;
            if waits {
                let message =
                    format!("{name} lost no writes; it waits for disks that are away, and serves when they are back");
                let hint = DiskList::of(&name.pool).line();
                return Err(ApiError::new(Kind::NotPossible, message).hint(hint));
            }
            return Ok(Change::new(Outcome::AlreadySo, subject, dry_run));
        };
        let given_up = self.parts.engine.vdisk_clear(name, request.changing.run())?;
        let mut change = Change::new(Outcome::Changed, subject, dry_run)
            .line(format!("it takes requests again; it had stopped because: {failure}"));
        if given_up.is_empty() {
            change = change.line("nothing is given up: what was flushed is still there, and is written now");
        }
        for range in &given_up {
            change = change.line(format!(
                "given up: what was written last to bytes {} to {} and was not flushed; what was there before is read \
                 there again",
                range.start, range.end
            ));
        }
        Ok(change)
    }
}

/// Another name, for one that is taken.
fn second(name: &VdiskName) -> VdiskName {
    VdiskName { pool: name.pool.clone(), vdisk: format!("{}2", name.vdisk) }
}

/// What a size means that is larger than what would fit.
fn beyond(name: &VdiskName, room: ByteCount) -> String {
    format!(
        "that is more than the pool has room for, which is {room}: writes beyond it fail; `{}` makes more before that",
        DiskAdd::some(&name.pool).line()
    )
}

pub(super) fn find_vdisk(pool: &PoolInfo, name: &VdiskName) -> Answer<VdiskInfo> {
    let known: Vec<VdiskName> = pool.vdisks.iter().map(|vdisk| vdisk.name.clone()).collect();
    if let Some(vdisk) = pool.vdisks.iter().find(|vdisk| vdisk.name == *name) {
        return Ok(vdisk.clone());
    }
    let (message, hint) = match known.as_slice() {
        [] => (
            format!("no virtual disk {name}; pool {} has none", pool.name),
            VdiskCreate::new(name.clone(), Size::Bytes(ByteCount::gib(1))).line(),
        ),
        [only] => (format!("no virtual disk {name}; there is {only}"), VdiskShow::of(only).line()),
        several => {
            let several: Vec<String> = several.iter().map(VdiskName::to_string).collect();
            (format!("no virtual disk {name}; there are {}", several.join(", ")), VdiskList::default().line())
        }
    };
    Err(ApiError::new(Kind::NotFound, message).hint(hint))
}

/// What is asked of the engine.
fn wanted(request: &VdiskCreate, pool: &PoolInfo) -> Answer<Wanted> {
    let disks = disks_named(pool, &request.disks)?;
    let given = request.resiliency_asked()?.map(geometry::Resiliency::from);
    Ok(Wanted {
        size: amount(request.size),
        protection: given.map_or(Protection::Chosen(request.failures), Protection::Given),
        class: request.class_asked()?,
        spec: VdiskSpec {
            name: request.name.vdisk.clone(),
            size: ByteCount::ZERO,
            resiliency: given.unwrap_or(geometry::Resiliency::Simple),
            columns: request.columns,
            interleave: request.interleave_bytes()?,
            fixed: request.provisioning == Provisioning::Fixed,
            sector: u32::from(request.sector.unwrap_or(SECTOR_DEFAULT)),
            disks,
        },
    })
}

/// The disks of these names.
fn disks_named(pool: &PoolInfo, names: &[String]) -> Answer<DiskSet> {
    let mut disks = DiskSet::EMPTY;
    for wanted in names {
        let Some(disk) = pool.disks.iter().find(|disk| disk.name == *wanted) else {
            let names: Vec<&str> = pool.disks.iter().map(|disk| disk.name.as_str()).collect();
            let message = format!("pool {} has no disk {wanted}; it has {}", pool.name, names.join(", "));
            return Err(ApiError::new(Kind::NotFound, message).offer(&DiskList::of(&pool.name)));
        };
        disks.extend(disk.no.map(DiskNo));
    }
    Ok(disks)
}

/// A read cache as it is planned.
fn read_cache_info(pool: &PoolInfo, plan: ReadCachePlan) -> ReadCacheInfo {
    ReadCacheInfo::new(plan.size.0, plan.capacity.0, pool.names_of(plan.disks))
}

/// A write-back cache in words, above what survives so many failures.
fn cache_words(pool: &PoolInfo, cache: Option<CacheRecord>, choice: CacheChoice, failures: u8) -> String {
    let cache = cache.map(|cache| CacheInfo::new(cache, pool.names_of(cache.disks)).above(failures));
    words(cache, choice == CacheChoice::Auto)
}

fn words(cache: Option<CacheInfo>, auto: bool) -> String {
    in_words(cache.map(|cache| CacheInfo { drains: false, ..cache }).as_ref(), auto)
}

fn amount(size: Size) -> Amount {
    match size {
        Size::Bytes(bytes) => Amount::Bytes(bytes),
        Size::Max => Amount::Share(100),
        Size::Percent(share) => Amount::Share(share),
    }
}

/// Why a virtual disk cannot be made, with what can.
fn cannot_create(request: &VdiskCreate, refusal: Refusal) -> ApiError {
    let pool = request.name.pool.as_str();
    let create = |size: Size| VdiskCreate::new(request.name.clone(), size);
    let hint = match &refusal {
        Refusal::Taken(_) => VdiskCreate { name: second(&request.name), ..request.clone() }.line(),
        Refusal::TooFewDisks { there: 0, .. } => DiskList::of(pool).line(),
        Refusal::TooFewDisks { layout, there, .. } => {
            let resiliency = Layout::from(*layout).resiliency;
            let columns = (there / usize::from(resiliency.disks_per_column())) as u8;
            let (create, narrower) = (create(request.size), columns >= resiliency.columns_min());
            match narrower {
                true => VdiskCreate { columns: Some(columns), ..create.with(resiliency) }.line(),
                false => create.with(Resiliency::default_for(*there)).line(),
            }
        }
        Refusal::TooLarge { most, .. } => VdiskCreate { size: Size::Bytes(*most), ..request.clone() }.line(),
        Refusal::NoRoom { size: None, .. } => PoolShow::of(pool).line(),
        Refusal::NoRoom { room: ByteCount::ZERO, .. } => {
            VdiskCreate { thin: true, fixed: false, provisioning: Provisioning::Thin, ..request.clone() }.line()
        }
        Refusal::NoRoom { .. } => VdiskCreate { size: Size::Max, ..request.clone() }.line(),
        Refusal::Pool(error) if error.kind == ErrorKind::InvalidInput => {
            VdiskCreate { class: request.class, ..create(request.size) }.line()
        }
        _ => StatusShow::of(pool).line(),
    };
    ApiError::from(Error::from(refusal)).hint(hint)
}

/// Why a virtual disk cannot grow, with what can be done.
fn cannot_grow(request: &VdiskResize, refusal: Refusal) -> ApiError {
    let name = &request.vdisk;
    let hint = match (&refusal, request.size) {
        (Refusal::Shrinks { .. }, Size::Bytes(_)) => VdiskCreate::new(second(name), request.size).line(),
        (Refusal::Shrinks { now, asked }, share) => {
            let message = format!("{name} is {now} already; {share} of the room is {asked}");
            return ApiError::new(Kind::NoSpace, message).offer(&PoolShow::of(&name.pool));
        }
        (Refusal::TooLarge { most, .. }, _) => VdiskResize { size: Size::Bytes(*most), ..request.clone() }.line(),
        (Refusal::NoRoom { .. }, _) => VdiskResize { size: Size::Max, ..request.clone() }.line(),
        _ => StatusShow::of(&name.pool).line(),
    };
    ApiError::from(Error::from(refusal)).hint(hint)
}
