//! What a change would come to, or why it cannot be.
//!
//! Invariants
//! 1. Whoever changes something asks here first, and so does whoever only wants to know: nothing else refuses.
//! 2. A plan changes nothing, and holds as long as nothing else changes.

use super::{DiskChange, Pool, VdiskSpec};
use crate::error::{Error, ErrorKind, Result};
use crate::fail;
use crate::format::page::CHUNK_ENTRIES;
use crate::format::record::{
    CacheChoice, JobRecord, JobState, PowerProtected, SettingsRecord, TABLE_LEN, VDISK_LEN, VdiskRecord,
};
use crate::geometry::{Layout, Resiliency};
use crate::io::WriteCache;
use crate::limits::{CHUNKS_MAX, FINE_SHARE_MAX, FOREGROUND_SHARE_MAX, NAME_MAX, UNIT_MAX, VDISK_SIZE_MAX};
use crate::units::{BLOCK, ByteCount, DiskNo, JobNo, VdiskNo};
use crate::vdisk::Vdisk;
use alloc::rc::Rc;
use alloc::string::String;
use core::fmt;

/// A size that may depend on the room there is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Amount {
    /// A number of bytes; whole blocks of 4 KiB hold them.
    Bytes(ByteCount),
    /// A share of the room there is, in percent.
    Share(u8),
}

/// What is to protect the data of a new virtual disk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Protection {
    /// This.
    Given(Resiliency),
    /// What suits the disks there are, and survives so many failures if given.
    Chosen(Option<u8>),
}

/// What a virtual disk makes of writes that are smaller than its stripes.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Class {
    /// They leave packed, and are moved into whole stripes later.
    #[default]
    Auto,
    /// They are merged into whole stripes, which are long.
    Stream,
    /// There are few: stripes are short, and each unit that is written whole goes to the next free place.
    Log {
        /// Bytes of data of a stripe, at most [`crate::limits::UNIT_MAX`]; chosen by [`Layout::in_units`] if not given.
        unit: Option<ByteCount>,
    },
}

impl Class {
    /// That of a virtual disk of this layout. `packs`: what small writes bring may leave packed.
    pub fn of(layout: Layout, packs: bool) -> Class {
        match layout.data_len() {
            unit if unit <= UNIT_MAX => Class::Log { unit: Some(unit) },
            _ if packs => Class::Auto,
            _ => Class::Stream,
        }
    }
}

/// A virtual disk to make, of which some is left to the pool.
#[derive(Clone, Debug)]
pub struct Wanted {
    /// Its size.
    pub size: Amount,
    /// What is to protect it.
    pub protection: Protection,
    /// What it makes of small writes; where they are units, the interleave of `spec` does not count.
    pub class: Class,
    /// All else; `size` and `resiliency` of it do not count.
    pub spec: VdiskSpec,
}

/// What a new virtual disk would be.
#[derive(Clone, Debug)]
pub struct VdiskPlan {
    /// All of it, with nothing left open: making it is carrying out this plan.
    pub spec: VdiskSpec,
    /// How it would lie on the disks.
    pub layout: Layout,
    /// How much data of this layout there is room for.
    pub room: ByteCount,
}

/// What the growth of a virtual disk would be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Growth {
    /// Its size before.
    pub from: ByteCount,
    /// Its size afterwards.
    pub to: ByteCount,
    /// The largest size that there is room for.
    pub room: ByteCount,
}

/// Why a virtual disk cannot be made, or grow.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Refusal {
    /// The pool says so, whatever the virtual disk: it takes no changes, or a value is never valid.
    Pool(Error),
    /// The name is taken.
    Taken(String),
    /// No virtual disk is called so.
    Unknown(String),
    /// The layout needs more disks than take data.
    TooFewDisks {
        /// The layout.
        layout: Layout,
        /// The disks that take data, of those named if some are.
        there: usize,
        /// Whether disks are named.
        named: bool,
    },
    /// The layout allows no such size.
    TooLarge {
        /// The layout.
        layout: Layout,
        /// The largest size it allows.
        most: ByteCount,
    },
    /// What is reserved must be there now.
    NoRoom {
        /// The layout.
        layout: Layout,
        /// What is asked for; none for a share of nothing.
        size: Option<ByteCount>,
        /// What there is room for.
        room: ByteCount,
    },
    /// It would be smaller than it is.
    Shrinks {
        /// Its size now.
        now: ByteCount,
        /// What is asked for.
        asked: ByteCount,
    },
}

impl Refusal {
    /// What a caller can act on.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Refusal::Pool(error) => error.kind,
            Refusal::Taken(_) => ErrorKind::AlreadyExists,
            Refusal::Unknown(_) => ErrorKind::NotFound,
            Refusal::TooFewDisks { .. } | Refusal::Shrinks { .. } => ErrorKind::NotPossible,
            Refusal::TooLarge { .. } => ErrorKind::InvalidInput,
            Refusal::NoRoom { .. } => ErrorKind::NoSpace,
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refusal::Pool(error) => write!(f, "{error}"),
            Refusal::Taken(name) => write!(f, "a virtual disk named {name} is there already"),
            Refusal::Unknown(name) => write!(f, "there is no virtual disk named {name}"),
            Refusal::TooFewDisks { layout, there, named } => {
                let of = if *named { "of those named there are" } else { "the pool has" };
                write!(f, "{layout} needs {} disks; {of} {there} that take data", layout.slots())
            }
            Refusal::TooLarge { layout, most } => {
                write!(f, "{layout} allows disks of up to {most}; a larger interleave allows more")
            }
            Refusal::NoRoom { layout, size: Some(size), room } => {
                write!(f, "the pool has room for {room} of {layout}, not for {size}")
            }
            Refusal::NoRoom { layout, size: None, .. } => write!(f, "the pool has no room for {layout}"),
            Refusal::Shrinks { now, asked } => {
                write!(f, "it is {now} and only grows; {asked} would cut data off")
            }
        }
    }
}

impl From<Error> for Refusal {
    fn from(error: Error) -> Refusal {
        Refusal::Pool(error)
    }
}

impl From<Refusal> for Error {
    fn from(refusal: Refusal) -> Error {
        match refusal {
            Refusal::Pool(error) => error,
            other => Error::new(other.kind(), alloc::format!("{other}")),
        }
    }
}

type Planned<T> = core::result::Result<T, Refusal>;

impl Pool {
    /// Plans a virtual disk of which some is left to the pool.
    pub fn plan_wanted(&self, wanted: &Wanted) -> Planned<VdiskPlan> {
        self.store.check_changeable()?;
        let there = self.store.map.borrow().disks_for(wanted.spec.disks).count();
        let resiliency = match wanted.protection {
            Protection::Given(resiliency) => resiliency,
            Protection::Chosen(failures) => Resiliency::chosen(there, failures),
        };
        let mut spec = wanted.spec.clone();
        if let Class::Log { unit } = wanted.class {
            let rotational = self.store.map.borrow().seeks(spec.disks);
            let layout = Layout::in_units(resiliency, there, rotational, spec.columns, unit)?;
            (spec.columns, spec.interleave) = (Some(layout.columns() as u8), Some(layout.interleave()));
        }
        // How much a share is, only the layout says.
        let smallest = ByteCount(BLOCK);
        let size = if let Amount::Bytes(size) = wanted.size { size } else { smallest };
        let fixed = spec.fixed && matches!(wanted.size, Amount::Bytes(_));
        let mut plan = self.plan_vdisk(&VdiskSpec { size, resiliency, fixed, ..spec.clone() })?;
        if let Amount::Share(percent) = wanted.size {
            let layout = plan.layout;
            let room = self.store.map.borrow().room_for(layout, 0, spec.disks);
            let size = share(room, percent);
            if size == ByteCount::ZERO {
                return Err(Refusal::NoRoom { layout, size: None, room });
            }
            plan = self.plan_vdisk(&VdiskSpec { size, fixed: spec.fixed, ..plan.spec })?;
        }
        Ok(plan)
    }

    /// Plans a virtual disk.
    pub fn plan_vdisk(&self, spec: &VdiskSpec) -> Planned<VdiskPlan> {
        self.store.check_changeable()?;
        check_name(&spec.name)?;
        if self.vdisk(&spec.name).is_some() {
            return Err(Refusal::Taken(spec.name.clone()));
        }
        if ![512, 4096].contains(&spec.sector) {
            fail!(InvalidInput, "a sector has 512 or 4096 bytes, not {}", spec.sector)?;
        }
        let size = check_size(spec.size)?;
        let layout = self.plan_layout(spec)?;
        check_fits_tables(layout, size)?;
        let room = self.store.map.borrow().room_for(layout, 0, spec.disks);
        self.store.map.borrow().check_config_room((VDISK_LEN + TABLE_LEN) as u64)?;
        if spec.fixed {
            let map = self.store.map.borrow();
            if segments_for(layout, size, map.slab) > map.segments_reservable(layout, spec.disks) {
                return Err(Refusal::NoRoom { layout, size: Some(size), room });
            }
        }
        let resiliency = layout.resiliency();
        let (columns, interleave) = (Some(layout.columns() as u8), Some(layout.interleave()));
        let spec = VdiskSpec { size, resiliency, columns, interleave, ..spec.clone() };
        Ok(VdiskPlan { spec, layout, room })
    }

    fn plan_layout(&self, spec: &VdiskSpec) -> Planned<Layout> {
        let map = self.store.map.borrow();
        let there = map.disks_for(spec.disks).count();
        let default = Layout::default_for(spec.resiliency, there, map.seeks(spec.disks))?;
        let columns = spec.columns.unwrap_or(default.columns() as u8);
        let layout = Layout::new(spec.resiliency, columns, spec.interleave.unwrap_or(default.interleave()))?;
        if layout.slots() > there {
            return Err(Refusal::TooFewDisks { layout, there, named: !spec.disks.is_empty() });
        }
        if layout.interleave() > map.slab {
            let (interleave, slab) = (layout.interleave(), map.slab);
            fail!(InvalidInput, "the interleave {interleave} is larger than the pool's slabs of {slab}")?;
        }
        Ok(layout)
    }

    /// Plans the growth of a virtual disk. A share is one of all it could have.
    pub fn plan_vdisk_resize(&self, name: &str, size: Amount) -> Planned<Growth> {
        self.store.check_changeable()?;
        let Some(vdisk) = self.vdisk(name) else { return Err(Refusal::Unknown(name.into())) };
        let (from, layout, disks) = (vdisk.size(), vdisk.layout(), vdisk.disks());
        let (fixed, have) = {
            let map = self.store.map.borrow();
            let record = &map.vdisks[&vdisk.id()];
            (record.fixed, map.tables[&record.tables[0]].segments.len() as u64)
        };
        let room = self.store.map.borrow().room_for(layout, have, disks).max(from);
        let to = match size {
            Amount::Bytes(size) => check_size(size)?,
            Amount::Share(percent) => share(room, percent),
        };
        if to < from {
            return Err(Refusal::Shrinks { now: from, asked: to });
        }
        check_fits_tables(layout, to)?;
        if fixed && to > from {
            let map = self.store.map.borrow();
            map.check_config_room(0)?;
            let needed = segments_for(layout, to, map.slab).saturating_sub(have);
            if needed > map.segments_reservable(layout, disks) {
                return Err(Refusal::NoRoom { layout, size: Some(to), room });
            }
        }
        Ok(Growth { from, to, room })
    }

    /// Finds the virtual disk that would be removed.
    pub fn plan_vdisk_remove(&self, name: &str) -> Result<Rc<Vdisk>> {
        self.store.check_changeable()?;
        match self.vdisk(name) {
            Some(vdisk) => Ok(vdisk),
            None => Err(Refusal::Unknown(name.into()).into()),
        }
    }

    /// Finds the virtual disk that would be called `new`.
    pub fn plan_vdisk_rename(&self, old: &str, new: &str) -> Result<Rc<Vdisk>> {
        let vdisk = self.plan_vdisk_remove(old)?;
        check_name(new)?;
        if self.vdisk(new).is_some() {
            return Err(Refusal::Taken(new.into()).into());
        }
        Ok(vdisk)
    }

    /// Finds the virtual disk that would have this fine share, in thousandths of its size.
    pub fn plan_fine_share(&self, name: &str, share: Option<u16>) -> Result<Rc<Vdisk>> {
        let vdisk = self.plan_vdisk_remove(name)?;
        if let Some(share) = share.filter(|share| *share > FINE_SHARE_MAX) {
            return fail!(InvalidInput, "{share} thousandths are no fine share; 0 to {FINE_SHARE_MAX} are");
        }
        Ok(vdisk)
    }

    /// Refuses whatever [`Pool::rename`] would refuse.
    pub fn plan_rename(&self, name: &str) -> Result<()> {
        self.store.check_changeable()?;
        check_name(name)
    }

    /// Refuses a pool whose disks cannot be given back.
    pub fn plan_remove(&self) -> Result<()> {
        match self.store.read_only {
            true => fail!(ReadOnly, "the pool was opened read-only: its disks cannot be written, to give them back"),
            false => Ok(()),
        }
    }

    /// Refuses whatever [`Pool::set`] would refuse.
    pub fn plan_set(&self, settings: &SettingsRecord) -> Result<()> {
        self.store.check_changeable()?;
        if settings.foreground_share > FOREGROUND_SHARE_MAX {
            let share = settings.foreground_share;
            return fail!(InvalidInput, "jobs leave clients 0 to {FOREGROUND_SHARE_MAX} percent, not {share}");
        }
        if !are_fill_levels(settings.full) {
            let full = settings.full;
            return fail!(InvalidInput, "three rising fill levels of 1 to 99 percent are wanted, not {full:?}");
        }
        Ok(())
    }

    /// Refuses whatever [`Pool::disk_set`] would refuse.
    pub fn plan_disk_set(&self, no: DiskNo, change: &DiskChange) -> Result<()> {
        self.store.check_changeable()?;
        let map = self.store.map.borrow();
        if !map.disks.contains_key(&no) {
            return fail!(NotFound, "there is no disk {no}");
        }
        if let Some(name) = &change.name {
            check_name(name)?;
            if map.disks.values().any(|disk| disk.record.no != no && disk.record.name == *name) {
                return fail!(AlreadyExists, "a disk named {name} is in the pool already");
            }
        }
        change.domain.as_deref().filter(|domain| !domain.is_empty()).map_or(Ok(()), check_name)?;
        drop(map);
        if change.power == Some(PowerProtected::Yes) && self.store.power_of(no).cache == WriteCache::Host {
            return fail!(
                NotPossible,
                "disk {no} is a file, or is reached through the page cache: what it has taken lies in this machine's \
                 memory, and its size and extents with it, until it is flushed; only block devices that are reached \
                 directly can be power-protected"
            );
        }
        Ok(())
    }

    /// Refuses whatever [`Pool::disk_online`] would refuse without a look at the disk.
    pub fn plan_disk_online(&self, no: DiskNo) -> Result<()> {
        self.store.check_writable()?;
        match self.store.map.borrow().disks.get(&no).is_some_and(|disk| disk.record.maintenance) {
            true => Ok(()),
            false => fail!(NotPossible, "disk {no} is not in maintenance"),
        }
    }

    /// Refuses whatever [`Pool::job_start`] would refuse.
    pub fn plan_job_start(&self) -> Result<()> {
        self.store.check_changeable()
    }

    /// Finds the job that is to be paused, cancelled or waiting again: refused if it has ended otherwise.
    pub fn plan_job_steer(&self, id: JobNo, to: JobState) -> Result<JobRecord> {
        self.store.check_writable()?;
        let Some(record) = self.store.map.borrow().notes.jobs.get(&id).cloned() else {
            return fail!(NotFound, "there is no job {id}");
        };
        let ended = matches!(record.state, JobState::Done | JobState::Cancelled | JobState::Failed);
        match ended && record.state != to {
            true => fail!(NotPossible, "job {id} has ended ({:?}); start it again", record.state),
            false => Ok(record),
        }
    }
}

impl VdiskPlan {
    /// The record of it, without its number.
    pub(super) fn record(&self) -> VdiskRecord {
        let VdiskSpec { name, size, sector, fixed, .. } = self.spec.clone();
        VdiskRecord {
            id: VdiskNo(0),
            name,
            size,
            sector,
            fixed,
            tables: alloc::vec::Vec::new(),
            fine_share: None,
            cache: None,
            tier: None,
            cache_choice: CacheChoice::Auto,
        }
    }
}

/// Segments that hold `size` bytes, with one to spare so that overwriting never waits for more than a commit.
pub(super) fn segments_for(layout: Layout, size: ByteCount, slab: ByteCount) -> u64 {
    let stripes = size.0.div_ceil(layout.data_len().0);
    stripes.div_ceil(layout.segment_stripes(slab) as u64) + 1
}

/// Whole blocks of a share of `room`.
fn share(room: ByteCount, percent: u8) -> ByteCount {
    let share = (u128::from(room.0) * u128::from(percent) / 100) as u64;
    ByteCount((share - share % BLOCK).min(VDISK_SIZE_MAX.0))
}

fn check_size(size: ByteCount) -> Result<ByteCount> {
    let size = ByteCount(size.0.saturating_add(BLOCK - 1) / BLOCK * BLOCK);
    if size == ByteCount::ZERO || size > VDISK_SIZE_MAX {
        return fail!(InvalidInput, "a virtual disk has 4 KiB to {VDISK_SIZE_MAX}, not {} bytes", size.0);
    }
    Ok(size)
}

/// Refuses a size whose stripes cannot all be numbered.
pub(super) fn check_fits_tables(layout: Layout, size: ByteCount) -> Planned<()> {
    if size.0 / layout.data_len().0 / CHUNK_ENTRIES < u64::from(CHUNKS_MAX) {
        return Ok(());
    }
    let most = ByteCount(u64::from(CHUNKS_MAX) * CHUNK_ENTRIES * layout.data_len().0);
    Err(Refusal::TooLarge { layout, most })
}

/// Refuses names that could not be typed or stored.
pub fn check_name(name: &str) -> Result<()> {
    match is_new_name(name) {
        true => Ok(()),
        false => fail!(
            InvalidInput,
            "`{name}` is no name; names are 1 to {NAME_MAX} bytes of letters, digits, `.`, `_`, `-` and `+`, \
             beginning with a letter or a digit"
        ),
    }
}

/// Whether something can be given this name: 1 to 48 bytes of letters, digits, `.`, `_`, `-` and `+`, beginning with a
/// letter or a digit. What stands on disks may be called otherwise.
pub fn is_new_name(name: &str) -> bool {
    let fits = |c: char| c.is_alphanumeric() || "._-+".contains(c);
    let begins = name.chars().next().is_some_and(char::is_alphanumeric);
    begins && name.len() <= NAME_MAX && name.chars().all(fits)
}

/// Whether these can be the levels at which people are told how full a pool is, in percent.
pub fn are_fill_levels(full: [u8; 3]) -> bool {
    full[0] >= 1 && full[2] <= 99 && full.is_sorted_by(|a, b| a < b)
}
