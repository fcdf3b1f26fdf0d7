//! Virtual disks: making, growing, removing, explaining.

use super::Seen;
use super::export::ending;
use crate::api::error::{Answer, ApiError, Kind};
use crate::api::judge;
use crate::api::name::VdiskName;
use crate::api::pool::{DiskState, Health, PoolInfo};
use crate::api::size::{Size, typed};
use crate::api::vdisk::{Explanation, Provisioning, Resiliency, VdiskInfo};
use crate::api::watch::{Change, Outcome};
use crate::daemon::Daemon;
use crate::daemon::backend::{Judged, VdiskSpec};
use crate::ops::Perform;
use crate::ops::disk::{DiskAdd, DiskList};
use crate::ops::export::ExportRemove;
use crate::ops::line::ToLine;
use crate::ops::pool::PoolShow;
use crate::ops::vdisk::{
    Explain, VdiskClear, VdiskCreate, VdiskList, VdiskRemove, VdiskRename, VdiskResize, VdiskShow,
};
use weft_engine::limits;
use weft_engine::units::ByteCount;

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
        create.judge()?;
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

impl Daemon {
    /// One virtual disk of an open pool.
    pub(in crate::daemon) fn vdisk(&self, name: &VdiskName) -> Answer<VdiskInfo> {
        find_vdisk(&self.pool(&name.pool)?, name)
    }

    fn create_vdisk(&self, seen: &Seen, request: &VdiskCreate) -> Answer<Change> {
        let pool = &seen.pool;
        if pool.vdisks.iter().any(|vdisk| vdisk.name == request.name) {
            let message = format!("a virtual disk named {} is there already", request.name);
            let other = VdiskCreate::new(second(&request.name), request.size);
            return Err(ApiError::new(Kind::AlreadyExists, message).offer(&other));
        }
        if request.write_cache.is_some_and(|size| size != Size::Bytes(ByteCount::ZERO)) {
            let message = "a write cache of its own is not offered; flushed data lands in the pool's log";
            let without = VdiskCreate::new(request.name.clone(), request.size);
            return Err(ApiError::new(Kind::NotPossible, message).offer(&without));
        }
        let spec = spec(request, pool)?;
        let judged = self.parts.engine.vdisk_judge(&pool.name, &spec)?;
        let size = new_size(request, &spec, &judged)?;
        if !request.changing.dry_run {
            self.parts.engine.vdisk_create(&pool.name, &spec, size).map_err(|error| {
                let smaller = VdiskCreate::new(request.name.clone(), Size::Max).line();
                if error.kind == Kind::NoSpace { error.or_hint(|| smaller) } else { error }
            })?;
        }
        let layout = judged.layout;
        let survives = match layout.resiliency.failures() {
            0 => "survives no disk failure".into(),
            1 => "survives the failure of any disk".into(),
            n => format!("survives the failure of any {n} disks"),
        };
        let efficiency = layout.efficiency() * 100.0;
        let change = Change::new(Outcome::Created, format!("vdisk {}", request.name), request.changing.dry_run)
            .line(format!("size {size}, {}, sectors of {} bytes", spec.provisioning, spec.sector))
            .line(layout.to_string())
            .line(format!("{survives}; {efficiency:.0} % of the raw space is data"));
        Ok(match size > judged.room {
            true => change.line(beyond(&request.name, judged.room)),
            false => change,
        })
    }

    fn resize_vdisk(&self, seen: &Seen, request: &VdiskResize) -> Answer<Change> {
        let name = &request.vdisk;
        let vdisk = find_vdisk(&seen.pool, name)?;
        let size = match request.size {
            Size::Bytes(bytes) => bytes,
            relative => {
                let room = self.parts.engine.vdisk_size_max(name)?;
                let wanted = relative.of(room).0;
                ByteCount(wanted - wanted % u64::from(vdisk.sector))
            }
        };
        judge::vdisk_size(size, u64::from(vdisk.sector)).map_err(|bad| {
            let size = bad.nearest.as_ref().and_then(|nearest| nearest.parse().ok()).unwrap_or(request.size);
            ApiError::from(bad).offer(&VdiskResize { size, ..request.clone() })
        })?;
        let subject = format!("vdisk {name}");
        if size.0 == vdisk.size {
            return Ok(Change::new(Outcome::AlreadySo, subject, request.changing.dry_run).line(format!("size {size}")));
        }
        if size.0 < vdisk.size {
            let now = ByteCount(vdisk.size);
            return Err(match request.size {
                Size::Bytes(_) => ApiError::new(
                    Kind::NotPossible,
                    format!("{name} is {now} and only grows; {size} would cut data off"),
                )
                .offer(&VdiskCreate::new(second(name), request.size)),
                Size::Max | Size::Percent(_) => ApiError::new(
                    Kind::NoSpace,
                    format!("{name} is {now} already; {} of the room is {size}", request.size),
                )
                .offer(&PoolShow::of(&name.pool)),
            });
        }
        let room = self.parts.engine.vdisk_size_max(name)?;
        if !request.changing.dry_run {
            self.parts.engine.vdisk_resize(name, size)?;
        }
        let change = Change::new(Outcome::Changed, subject, request.changing.dry_run)
            .line(format!("size {} -> {size}", ByteCount(vdisk.size)));
        Ok(match size > room {
            true => change.line(beyond(name, room)),
            false => change,
        })
    }

    fn rename_vdisk(&self, seen: &Seen, request: &VdiskRename) -> Answer<Change> {
        let name = &request.vdisk;
        find_vdisk(&seen.pool, name)?;
        super::judge_name(&request.name, |nearest| VdiskRename::to(name, nearest).line())?;
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
        if !dry_run {
            self.parts.engine.vdisk_rename(name, &request.name)?;
        }
        Ok(Change::new(Outcome::Changed, subject, dry_run).line(format!("name {name} -> {new}")))
    }

    fn remove_vdisk(&self, seen: &Seen, request: &VdiskRemove) -> Answer<Change> {
        let (name, dry_run) = (&request.vdisk, request.changing.dry_run);
        let vdisk = find_vdisk(&seen.pool, name)?;
        if !vdisk.exports.is_empty() {
            let message = format!("{name} is offered on {}; its clients would lose it", vdisk.exports.join(", "));
            return Err(ApiError::new(Kind::NotPossible, message).hint(ending(&vdisk)));
        }
        if !dry_run {
            self.parts.engine.vdisk_remove(name)?;
        }
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
        let given_up = self.parts.engine.vdisk_clear(name, dry_run)?;
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

fn find_vdisk(pool: &PoolInfo, name: &VdiskName) -> Answer<VdiskInfo> {
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

/// What is asked of the engine, with enough disks for it.
fn spec(request: &VdiskCreate, pool: &PoolInfo) -> Answer<VdiskSpec> {
    let mut usable = Vec::new();
    for wanted in &request.disks {
        let Some(disk) = pool.disks.iter().find(|disk| disk.name == *wanted) else {
            let names: Vec<&str> = pool.disks.iter().map(|disk| disk.name.as_str()).collect();
            let message = format!("pool {} has no disk {wanted}; it has {}", pool.name, names.join(", "));
            return Err(ApiError::new(Kind::NotFound, message).offer(&DiskList::of(&pool.name)));
        };
        if !usable.contains(&disk) {
            usable.push(disk);
        }
    }
    if usable.is_empty() {
        usable.extend(&pool.disks);
    }
    usable.retain(|disk| matches!(disk.state, DiskState::Healthy | DiskState::Returning));
    let resiliency = request.resiliency_for(usable.len())?;
    enough_disks(request, resiliency, usable.len(), &pool.name)?;
    let numbers = usable.iter().filter_map(|disk| disk.no);
    Ok(VdiskSpec {
        name: request.name.vdisk.clone(),
        resiliency,
        columns: request.columns,
        interleave: request.interleave_bytes()?,
        provisioning: request.provisioning,
        sector: request.sector.unwrap_or(SECTOR_DEFAULT),
        disks: if request.disks.is_empty() { Vec::new() } else { numbers.collect() },
    })
}

fn enough_disks(request: &VdiskCreate, resiliency: Resiliency, usable: usize, pool: &str) -> Answer<()> {
    let per_column = usize::from(resiliency.disks_per_column());
    let columns = usize::from(request.columns.unwrap_or(resiliency.columns_min()));
    let needed = columns * per_column;
    if needed <= usable {
        return Ok(());
    }
    let of_them = if request.disks.is_empty() { format!("pool {pool} has") } else { "of those named there are".into() };
    let message = format!("{resiliency} with {columns} columns needs {needed} disks; {of_them} {usable} that work");
    let create = VdiskCreate::new(request.name.clone(), request.size);
    let columns_that_fit = usable / per_column;
    let hint = if usable == 0 {
        DiskList::of(pool).line()
    } else if columns_that_fit >= usize::from(resiliency.columns_min()) {
        let columns = Some(columns_that_fit as u8);
        VdiskCreate { columns, ..create.with(resiliency) }.line()
    } else {
        create.with(Resiliency::default_for(usable)).line()
    };
    Err(ApiError::new(Kind::NotPossible, message).hint(hint))
}

/// The size in bytes; what must be there now is there.
fn new_size(request: &VdiskCreate, spec: &VdiskSpec, judged: &Judged) -> Answer<ByteCount> {
    let wanted = request.size.of(judged.room);
    let size = match request.size {
        Size::Bytes(_) => wanted,
        Size::Max | Size::Percent(_) => ByteCount(wanted.0 - wanted.0 % u64::from(spec.sector).max(4096)),
    };
    let create = |size: Size| VdiskCreate::new(request.name.clone(), size);
    let no_room = |message: String, hint: String| Err(ApiError::new(Kind::NoSpace, message).hint(hint));
    if size == ByteCount::ZERO {
        return no_room(
            format!("pool {} has no room for {}", request.name.pool, judged.layout),
            PoolShow::of(&request.name.pool).line(),
        );
    }
    if spec.provisioning == Provisioning::Fixed && size > judged.room {
        let room = judged.room;
        return no_room(
            format!("pool {} has room for {room} of {}, not for {size}", request.name.pool, judged.layout),
            if room == ByteCount::ZERO {
                VdiskCreate { thin: true, ..create(request.size) }.line()
            } else {
                VdiskCreate { provisioning: Provisioning::Fixed, ..create(Size::Max) }.line()
            },
        );
    }
    Ok(size)
}
