//! The disks of an open pool: they join, leave, rest, and are given a use. `returning.rs` has those that come back.
//!
//! Invariants
//! 1. A disk joins in two steps: labels that name it, then its record in the log. One that the power cut between them
//!    is no member: at the next opening it has no record, and the next labels do without it. It leaves in the reverse
//!    order.
//! 2. A disk's number is never that of a disk which the map still knows, and is given again only after all others were.

use super::Pool;
use super::create::{NewDisk, give_back, wipe};
use super::leaving::Instead;
use super::plan::check_name;
use crate::disk_set::DiskSet;
use crate::error::Result;
use crate::event::Event;
use crate::exec::LocalBoxFuture;
use crate::fail;
use crate::format::FEATURE_WIDE;
use crate::format::label::DISKS_NARROW;
use crate::format::label::DiskPlan;
use crate::format::record::{Away, DiskRecord, JobKind, Media, PowerProtected, Record, SettingsRecord, Usage};
use crate::limits::DISKS_MAX;
use crate::mutant::{self, Mutant};
use crate::segment::Map;
use crate::store::Member;
use crate::units::{ByteCount, DiskNo, JobNo};
use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec;

/// What is to be different about a disk.
#[derive(Clone, Debug, Default)]
pub struct DiskChange {
    /// What it is used for.
    pub usage: Option<Usage>,
    /// What it is made of.
    pub media: Option<Media>,
    /// What people call it.
    pub name: Option<String>,
    /// What may fail with it; empty: nothing.
    pub domain: Option<String>,
    /// What is said of its cache.
    pub power: Option<PowerProtected>,
}

impl Pool {
    /// Judges a disk of `capacity` bytes that is to join as `name`, and says where its parts would lie. Changes
    /// nothing.
    pub fn plan_disk_add(&self, capacity: ByteCount, name: &str) -> Result<DiskPlan> {
        self.store.check_changeable()?;
        check_name(name)?;
        let map = self.store.map.borrow();
        if map.disks.values().any(|disk| disk.record.name == name) {
            return fail!(AlreadyExists, "a disk named {name} is in the pool already");
        }
        self.plan_growth(1)?;
        let plan = self.plan_of_new(capacity)?;
        let config: usize = map.records().iter().map(|record| record.encoded_len()).sum();
        if config as u64 > plan.blob_len.0 / 8 * 7 {
            return fail!(
                NotPossible,
                "a disk of {capacity} has {} for the pool's configuration, which takes {} already: a larger disk is needed",
                plan.blob_len,
                ByteCount(config as u64)
            );
        }
        Ok(plan)
    }

    /// Judges whether the pool can have so many `more` disks, whatever these are.
    pub fn plan_growth(&self, more: usize) -> Result<()> {
        let map = self.store.map.borrow();
        if map.disks.len() + more > DISKS_MAX {
            return fail!(
                NotPossible,
                "the pool has {} disks already, and no pool has more than {DISKS_MAX}",
                map.disks.len()
            );
        }
        match self.is_wide_with(more) && !self.is_wide() {
            true => self.check_annexes(&map),
            false => Ok(()),
        }
    }

    /// Adds a disk. Whatever it held is lost. It is a durable member when this returns; new segments use it from then
    /// on if `usage` says so.
    pub fn disk_add(&self, new: NewDisk, usage: Usage) -> LocalBoxFuture<'_, Result<DiskNo>> {
        Box::pin(async move {
            let _turn = self.joining.take().await;
            let capacity = new.disk.shape().capacity;
            let plan = self.plan_disk_add(capacity, &new.name)?;
            wipe(&new.disk, &plan).await?;
            let no = self.unused_disk_no();
            if self.is_wide_with(1) {
                self.store.announce_wide().await?;
            }
            // There is no metadata on it, and none that it lacks: it is current.
            let member = Member::new(new.id, plan, Some(new.disk), true);
            self.store.members.borrow_mut().insert(no, member);
            // Twice: both its label slots must be whole.
            for _ in 0..2 {
                self.store.labels.outdated.set(true);
                self.store.write_labels().await?;
            }
            if !self.store.has_disk(no) {
                self.store.members.borrow_mut().remove(&no);
                return fail!(NotPossible, "the new disk failed while it was labelled");
            }
            let record = DiskRecord {
                no,
                media: new.media,
                usage,
                slabs: plan.slabs,
                disk_len: plan.disk_len,
                name: new.name,
                domain: String::new(),
                away: Away::No,
                maintenance: false,
                retired_from: Usage::AutoSelect,
                power: PowerProtected::Auto,
            };
            let next = {
                let mut map = self.store.map.borrow_mut();
                map.add_disk(record.clone(), plan.blob_len);
                map.notes.next.next_disk = no.next();
                map.notes.next
            };
            self.store.append_all(vec![Record::Pool(next), Record::Disk(record)]);
            self.store.make_durable(self.store.log.seq()).await?;
            self.store.world.emit(Event::DiskAdded { disk: no });
            self.store.changed();
            self.store.signals.room.notify();
            self.store.log.pressure.notify();
            Ok(no)
        })
    }

    /// Where the parts of the next disk that joins lie, if it has `capacity` bytes.
    pub(super) fn plan_of_new(&self, capacity: ByteCount) -> Result<DiskPlan> {
        let log_len = self.store.members.borrow().values().next().map(|member| member.plan.log_len);
        let plan = if self.is_wide_with(1) { DiskPlan::wide } else { DiskPlan::new };
        plan(capacity, self.store.slab, log_len)
    }

    /// Whether labels have annexes.
    fn is_wide(&self) -> bool {
        self.store.labels.features.get() & FEATURE_WIDE != 0
    }

    /// Whether they have once so many `more` disks are in the pool.
    fn is_wide_with(&self, more: usize) -> bool {
        self.is_wide() || self.unused_among(DISKS_NARROW).count() < more
    }

    /// Refuses more than [`DISKS_NARROW`] disks where one of those that are there has no room for annexes: its last
    /// slab ends too near to its end.
    fn check_annexes(&self, map: &Map) -> Result<()> {
        let members = self.store.members.borrow();
        let slab = self.store.slab;
        let name = |no: &DiskNo| map.disks.get(no).map_or(String::new(), |disk| disk.record.name.clone());
        let more = alloc::format!("for more than {DISKS_NARROW} disks each needs a longer label");
        if let Some((no, _)) = members.iter().find(|(_, member)| member.disk.is_none()) {
            return fail!(NotPossible, "{more}: disk {} is missing; put it back, or remove it first", name(no));
        }
        let unchecked = mutant::active(Mutant::AnnexRoomUnchecked);
        match members.iter().find(|(_, member)| !member.plan.has_room_for_annexes(slab) && !unchecked) {
            Some((no, _)) => {
                fail!(
                    NotPossible,
                    "{more}: disk {} has no room for it; remove it, and add one of another size",
                    name(no)
                )
            }
            None => Ok(()),
        }
    }

    /// The number of a disk that joins.
    pub(super) fn unused_disk_no(&self) -> DiskNo {
        // Labels have annexes only where numbers do not suffice without.
        let narrow = if self.is_wide() { None } else { self.unused_among(DISKS_NARROW).next() };
        narrow.or_else(|| self.unused_among(DISKS_MAX).next()).expect("there are fewer than that")
    }

    /// Those of the first `count` numbers that no disk has, the next one first.
    fn unused_among(&self, count: usize) -> impl Iterator<Item = DiskNo> {
        let members = self.store.members.borrow();
        let map = self.store.map.borrow();
        let used: DiskSet = members.keys().chain(map.disks.keys()).copied().collect();
        let (next, count) = (map.next_disk(), count as u16);
        (0..count).map(move |nth| DiskNo((next.0 + nth) % count)).filter(move |no| !used.contains(*no))
    }

    /// Empties disk `no` and takes it out of the pool; `to` takes its place as far as that goes. Returns the job that
    /// does it. What virtual disks lose by that, [`Pool::plan_disk_remove`] says: who types the command is asked, not
    /// the pool.
    pub fn disk_remove(&self, no: DiskNo, to: Option<DiskNo>, at: u64) -> LocalBoxFuture<'_, Result<JobNo>> {
        Box::pin(async move {
            self.plan_disk_remove(no, to.map_or(Instead::Nothing, Instead::Member))?;
            // One step: the disk must not be found retired, and be emptied for that reason only.
            let record = self.store.map.borrow_mut().change_disk(no, |disk| disk.usage = Usage::Retired);
            self.store.append_changes(record);
            let named = to.map(|to| self.store.map.borrow_mut().hand_on(no, to));
            self.store.append_all(named.unwrap_or_default());
            let job = self.begin_job(JobKind::Evacuate { disk: no, to, forget: true }, at);
            self.store.changed();
            self.store.make_durable(self.store.log.seq()).await?;
            Ok(job)
        })
    }

    /// Changes what is known of a disk, and what it is used for.
    pub fn disk_set(&self, no: DiskNo, change: DiskChange) -> LocalBoxFuture<'_, Result<()>> {
        Box::pin(async move {
            self.plan_disk_set(no, &change)?;
            let power = self.store.power_of(no);
            let record = self.store.map.borrow_mut().change_disk(no, |disk| {
                disk.usage = change.usage.unwrap_or(disk.usage);
                disk.media = change.media.unwrap_or(disk.media);
                disk.name = change.name.unwrap_or_else(|| disk.name.clone());
                disk.domain = change.domain.unwrap_or_else(|| disk.domain.clone());
                disk.power = change.power.unwrap_or(disk.power);
            });
            self.store.append_changes(record);
            self.store.power_changed(no, power);
            self.store.changed();
            self.store.make_durable(self.store.log.seq()).await
        })
    }

    /// Takes a disk out for maintenance: nothing is read from it or written to it until [`Pool::disk_online`]. Refused
    /// where data would be out of reach.
    pub fn disk_offline(&self, no: DiskNo) -> LocalBoxFuture<'_, Result<()>> {
        Box::pin(async move {
            self.plan_disk_offline(no)?;
            let record = self.store.map.borrow_mut().change_disk(no, |disk| disk.maintenance = true);
            self.store.append_changes(record);
            self.store.make_durable(self.store.log.seq()).await?;
            let parked = self.store.members.borrow().get(&no).and_then(|member| member.disk.clone());
            self.store.do_without(no, Event::DiskInMaintenance { disk: no });
            if let Some(member) = self.store.members.borrow_mut().get_mut(&no) {
                member.parked = parked;
            }
            self.store.make_durable(self.store.log.seq()).await
        })
    }

    /// Refuses whatever [`Pool::disk_offline`] would refuse. Changes nothing.
    pub fn plan_disk_offline(&self, no: DiskNo) -> Result<()> {
        self.store.check_changeable()?;
        if !self.store.has_disk(no) {
            return fail!(NotPossible, "disk {no} is not there");
        }
        if !self.store.data_is_safe_without(no) {
            return fail!(
                NotPossible,
                "without disk {no} data would be out of reach: something else is missing or not repaired yet; see 'weft status'"
            );
        }
        if self.store.loggers().iter().all(|logger| *logger == no) {
            return fail!(NotPossible, "disk {no} is the only one that carries the log");
        }
        Ok(())
    }

    /// Ends the maintenance of a disk: it is brought up to date.
    pub fn disk_online(&self, no: DiskNo) -> LocalBoxFuture<'_, Result<()>> {
        Box::pin(async move {
            self.plan_disk_online(no)?;
            let parked = self.store.members.borrow_mut().get_mut(&no).and_then(|member| member.parked.take());
            match parked {
                Some(disk) => drop(self.attach(disk).await?),
                None => self.end_maintenance(no),
            }
            self.store.changed();
            // Where it lacks others, too, nothing is durable before it goes on; the disk is in use all the same.
            if self.store.frozen().is_some() {
                return Ok(());
            }
            self.store.make_durable(self.store.log.seq()).await
        })
    }

    pub(super) fn end_maintenance(&self, no: DiskNo) {
        let record = self.store.map.borrow_mut().change_disk(no, |disk| disk.maintenance = false);
        self.store.append_changes(record);
    }

    /// What the owner set.
    pub fn settings(&self) -> SettingsRecord {
        self.store.map.borrow().notes.settings
    }

    /// Sets it anew.
    pub fn set(&self, settings: SettingsRecord) -> LocalBoxFuture<'_, Result<()>> {
        Box::pin(async move {
            self.plan_set(&settings)?;
            self.store.map.borrow_mut().notes.settings = settings;
            self.store.append_all(vec![Record::Settings(settings)]);
            self.store.changed();
            self.store.make_durable(self.store.log.seq()).await
        })
    }

    /// Gives the pool another name.
    pub fn rename<'a>(&'a self, name: &'a str) -> LocalBoxFuture<'a, Result<()>> {
        Box::pin(async move {
            self.plan_rename(name)?;
            *self.store.labels.pool_name.borrow_mut() = name.into();
            // Twice: the other slot of a disk must not go on telling the old one.
            for _ in 0..2 {
                self.store.labels.outdated.set(true);
                self.store.write_labels().await?;
            }
            Ok(())
        })
    }

    /// Gives a virtual disk another name.
    pub fn vdisk_rename<'a>(&'a self, old: &'a str, new: &'a str) -> LocalBoxFuture<'a, Result<()>> {
        Box::pin(async move {
            let vdisk = self.plan_vdisk_rename(old, new)?;
            let record = {
                let mut map = self.store.map.borrow_mut();
                let record = map.vdisks.get_mut(&vdisk.id()).expect("an open virtual disk has its record");
                record.name = new.into();
                record.clone()
            };
            self.store.append_all(vec![Record::Vdisk(record)]);
            self.store.make_durable(self.store.log.seq()).await
        })
    }

    /// Lets this share of a virtual disk lie in packed stripes, in thousandths of its size; `None`: what holds for all.
    pub fn vdisk_set_fine_share<'a>(&'a self, name: &'a str, share: Option<u16>) -> LocalBoxFuture<'a, Result<()>> {
        Box::pin(async move {
            let vdisk = self.plan_fine_share(name, share)?;
            let record = {
                let mut map = self.store.map.borrow_mut();
                let record = map.vdisks.get_mut(&vdisk.id()).expect("an open virtual disk has its record");
                record.fine_share = share;
                record.clone()
            };
            self.store.append_all(vec![Record::Vdisk(record)]);
            self.store.make_durable(self.store.log.seq()).await
        })
    }

    /// Takes an empty disk out of the pool, and its labels off it.
    pub(super) async fn forget_disk(&self, no: DiskNo) -> Result<()> {
        let _turn = self.joining.take().await;
        let renamed = {
            let mut map = self.store.map.borrow_mut();
            let empty = map.disks.get(&no).is_some_and(|disk| disk.free.is_full());
            if !empty {
                return fail!(NotPossible, "disk {no} is not empty yet");
            }
            map.disks.remove(&no);
            map.forget_named(no)
        };
        self.store.append_all(renamed);
        self.store.append_all(vec![Record::DiskDrop(no)]);
        self.store.make_durable(self.store.log.seq()).await?;
        // Without its record it is chosen for nothing any more: others carry the log and vote before it is gone.
        self.settle_metadata().await?;
        // Nor is it just brought a part of the log.
        drop(self.store.labels.moving.take().await);
        let left = self.store.members.borrow_mut().remove(&no);
        self.store.labels.strike(no);
        self.checkpoint().await?;
        self.store.world.emit(Event::DiskRemoved { disk: no });
        self.store.changed();
        let Some(member) = left else { return Ok(()) };
        if let Some(disk) = member.disk {
            // If it fails at that, nobody minds: it is no member any more, and its labels are old.
            let _ = give_back(&disk, &member.plan).await;
        }
        Ok(())
    }
}
