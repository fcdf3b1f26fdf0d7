//! The caretaker: while clients work, disks are added, removed, replaced, retired, taken out for maintenance and put
//! back, jobs are begun, paused and ended, all at random. None of it may cost a byte.

use super::classic::Storm;
use crate::disk::{DiskImage, SimDisk};
use crate::rng::Rng;
use crate::world::SimWorld;
use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::rc::Rc;
use weft_engine::error::{ErrorKind, Result};
use weft_engine::format::Id;
use weft_engine::format::label::{DiskPlan, Label};
use weft_engine::format::record::{Media, PowerProtected, SettingsRecord, Usage};
use weft_engine::health::DiskState;
use weft_engine::pool::info::DiskInfo;
use weft_engine::pool::job::{JobInfo, JobKind, JobState, has_ended};
use weft_engine::pool::{DiskChange, NewDisk, Pool};
use weft_engine::units::{BLOCK, ByteCount, DiskNo, JobNo, Nanos};
use weft_engine::world::World;

/// How long a pool of which all disks are there may take until all of them are up to date again.
const HEALS_WITHIN: Nanos = Nanos::secs(60);

/// Why upkeep left something undone.
enum Unsettled {
    /// A repair lacks room.
    NoPlace,
    /// A fault of weft.
    Fault(String),
}

impl Unsettled {
    /// What a repair left, by the code of its end.
    fn left_by(repair: &JobInfo) -> Unsettled {
        match repair.failure {
            Some(ErrorKind::NoSpace) => Unsettled::NoPlace,
            _ => Unsettled::Fault(format!("the repair left something: {repair:?}")),
        }
    }
}

impl From<String> for Unsettled {
    fn from(why: String) -> Unsettled {
        Unsettled::Fault(why)
    }
}

/// What the caretaker knows of the disks: which identity each was last given.
#[derive(Default)]
pub(super) struct Ids {
    ids: RefCell<Vec<Id>>,
    /// How many identities it gave to disks.
    given: Cell<u64>,
    /// What the caretaker did, and was not refused.
    pub(super) acts: Cell<u64>,
    /// Disks that are not the very things any more that they were.
    copies: RefCell<BTreeSet<usize>>,
}

impl Ids {
    /// Begins with those that [`crate::rig::Rig::create`] gives to the first `members` of `disks` disks.
    pub(super) fn new(disks: usize, members: usize) -> Ids {
        let id = |no: usize| if no < members { Id([no as u8 + 1; 16]) } else { Id::default() };
        Ids {
            ids: RefCell::new((0..disks).map(id).collect()),
            acts: Cell::new(0),
            given: Cell::new(0),
            copies: RefCell::default(),
        }
    }

    /// Disk `at` is another thing from now on, with the same content as some copy of it.
    pub(super) fn is_copy(&self, at: usize) {
        self.copies.borrow_mut().insert(at);
    }

    /// Whether this copy of disk `at` carries the identity that the disk has now.
    pub(super) fn is_its_own(&self, at: usize, copy: &DiskImage) -> bool {
        let slots = DiskPlan::label_slots(copy.shape().capacity).into_iter();
        let labels = Label::decode_slots(slots.filter_map(|slot| copy.read(slot, ByteCount(BLOCK)).ok()));
        let newest = Label::newest_alone(labels.unwrap_or_default());
        newest.is_some_and(|(label, _)| label.disk_id == self.ids.borrow()[at])
    }

    /// The number in the pool of disk `at`, if it is a member.
    pub(super) fn member(&self, pool: &Pool, at: usize) -> Option<DiskNo> {
        let id = self.ids.borrow()[at];
        let members = pool.store().members.borrow();
        members.iter().find(|(_, member)| member.id == id).map(|(no, _)| *no)
    }
}

impl Storm {
    /// Lets the caretaker work until the clients are done.
    pub(super) fn start_caretaker(&mut self) {
        if !self.scene.upkeep {
            return;
        }
        let (shared, world) = (self.shared.clone(), self.rig.world.clone());
        let mut care = self.caretaker();
        world.clone().spawn(
            "caretaker",
            Box::pin(async move {
                while shared.clients_left.get() > 0 && shared.failure.borrow().is_none() {
                    let pause = care.rng.below(150_000_000);
                    world.sleep(Nanos(pause)).await;
                    match care.act().await {
                        Ok(()) => care.ids.acts.set(care.ids.acts.get() + 1),
                        Err(error) if error.kind == ErrorKind::Corrupt => {
                            shared.failure.borrow_mut().get_or_insert(format!("upkeep: {error}"));
                        }
                        Err(_) => {}
                    }
                }
            }),
        );
    }

    pub(super) fn caretaker(&mut self) -> Care {
        let rng = self.rng.fork("caretaker");
        self.rng.next_u64();
        Care {
            pool: self.rig.pool(),
            world: self.rig.world.clone(),
            disks: self.rig.disks.clone(),
            ids: self.ids.clone(),
            victims: self.scene.victims.clone(),
            rng,
        }
    }

    /// Missing disks are rebuilt soon, or the storm would be over before.
    pub(super) fn set_policy(&mut self) -> std::result::Result<(), String> {
        let pool = self.rig.pool();
        let settings = SettingsRecord {
            repair_after: *self.rng.pick(&[0, 1, 300, u32::MAX]),
            foreground_share: *self.rng.pick(&[0, 50, 90]),
            ..SettingsRecord::default()
        };
        self.rig.run(async move { pool.set(settings).await }).map_err(|error| format!("settings: {error}"))
    }

    /// Every job ends, and nothing is left undone that could be done. `false`: full redundancy takes more room than
    /// there is.
    pub(super) fn settle(&mut self) -> std::result::Result<bool, String> {
        let pool = self.rig.pool();
        let spread = self.rig.run(async move {
            let numbers: Vec<DiskNo> = pool.info().disks.iter().map(|disk| disk.no).collect();
            for no in numbers {
                let used = DiskChange { usage: Some(Usage::AutoSelect), ..DiskChange::default() };
                match pool.disk_set(no, used).await {
                    // It has just left.
                    Err(error) if error.kind == ErrorKind::NotFound => {}
                    other => other?,
                }
            }
            Result::Ok(())
        });
        spread.map_err(|error| format!("all disks are used again: {error}"))?;
        let mut settled = self.settle_once();
        let mut care = self.caretaker();
        while let (Err(Unsettled::NoPlace), Some(extra)) = (&settled, care.unused()) {
            let added;
            (care, added) = self.rig.run(async move {
                let added = care.add(extra).await;
                (care, added)
            });
            added.map_err(|error| format!("adding a disk: {error}"))?;
            settled = self.settle_once();
        }
        self.judge_spread()?;
        match settled {
            Ok(()) => Ok(true),
            Err(Unsettled::NoPlace) => Ok(false),
            Err(Unsettled::Fault(why)) => Err(why),
        }
    }

    /// There are three copies of the log, where there are disks for them; or as many as the layouts need on fast disks,
    /// and one more that another disk has soon.
    fn judge_copies_of_log(&self, there: &[&DiskInfo], log: u64) -> std::result::Result<(), String> {
        let copies = log.count_ones() as usize;
        if copies == there.len().min(3) {
            return Ok(());
        }
        let pool = self.rig.pool();
        let needed = pool.info().vdisks.iter().map(|vdisk| vdisk.layout.failures() + 1).max().unwrap_or(0).max(2);
        let takes_data = |disk: &DiskInfo| matches!(disk.usage, Usage::AutoSelect | Usage::ManualSelect);
        let is_fast = |disk: &DiskInfo| disk.usage == Usage::Journal || takes_data(disk) && disk.media == Media::Ssd;
        let slow = there.iter().find(|disk| disk.logs && !is_fast(disk));
        if copies < needed || slow.is_some() {
            return Err(format!("the log has {copies} copies, {needed} are needed: {there:?}"));
        }
        let world = self.rig.world.clone();
        let follows = self.rig.run(async move {
            for _ in 0..1000 {
                let (_, head) = pool.store().log.live();
                if pool.store().follower.reached().is_some_and(|(_, until)| until == head) {
                    return true;
                }
                world.sleep(Nanos::millis(10)).await;
            }
            false
        });
        if follows { Ok(()) } else { Err(format!("the log has {copies} copies, and nothing follows: {there:?}")) }
    }

    /// The log and the votes come to be where no domain takes too much of them with it, if there is such a place.
    /// Judged by trying every choice.
    fn judge_spread(&self) -> std::result::Result<(), String> {
        let (pool, world) = (self.rig.pool(), self.rig.world.clone());
        self.rig.run(async move {
            for _ in 0..1000 {
                if pool.store().is_settled() {
                    break;
                }
                world.sleep(Nanos::millis(10)).await;
            }
        });
        let disks: Vec<DiskInfo> = self.rig.pool().info().disks;
        let there: Vec<&DiskInfo> = disks.iter().filter(|disk| self.rig.pool().store().is_current(disk.no)).collect();
        let (log, votes) = (set_of(&there, |disk| disk.logs), set_of(&there, |disk| disk.votes));
        let sets = || 0u64..1 << there.len();
        let bears = |set: u64, enough: &dyn Fn(u32, u32) -> bool| {
            domains(&there).iter().all(|domain| enough((set & !domain).count_ones(), set.count_ones()))
        };
        let some = |left: u32, _: u32| left > 0;
        let majority = |left: u32, of: u32| left * 2 > of;
        self.judge_copies_of_log(&there, log)?;
        if !bears(log, &some) && sets().any(|set| set.count_ones() == log.count_ones() && bears(set, &some)) {
            return Err(format!("one domain takes the whole log with it: {there:?}"));
        }
        let size = |set: u64| (there.len().min(3) as u32..=5).contains(&set.count_ones());
        if !size(votes) || !bears(votes, &majority) && sets().any(|set| size(set) && bears(set, &majority)) {
            return Err(format!("one domain takes the majority of the votes with it: {there:?}"));
        }
        Ok(())
    }

    /// Has everything repaired. A disk that comes or goes meanwhile may be one that a repair was past already, and a
    /// repair that was under way may have met that before: then one that begins now counts.
    fn settle_once(&self) -> std::result::Result<(), Unsettled> {
        const ROUNDS: usize = 20;
        let pool = self.rig.pool();
        for round in 0..ROUNDS {
            let seen = pool.store().commits.comings_and_goings.get();
            let settled = self.settle_jobs();
            if seen == pool.store().commits.comings_and_goings.get() && (settled.is_ok() || round > 0) {
                return settled;
            }
        }
        Err(Unsettled::Fault(format!("disks came or went in each of {ROUNDS} repairs")))
    }

    /// Asks for a repair, and waits until nothing is left to do.
    fn settle_jobs(&self) -> std::result::Result<(), Unsettled> {
        let pool = self.rig.pool();
        self.rig.run(async move {
            let offline: Vec<DiskNo> = {
                let map = pool.store().map.borrow();
                map.disks.values().filter(|disk| disk.record.maintenance).map(|disk| disk.record.no).collect()
            };
            for no in offline {
                pool.disk_online(no).await.map_err(|error| format!("online: {error}"))?;
            }
            let repair = pool.job_start(JobKind::Repair, 0).await.map_err(|error| format!("repairing: {error}"))?;
            for job in pool.jobs() {
                if job.state == JobState::Paused {
                    let _ = pool.job_resume(job.id).await;
                }
            }
            let repaired = pool.job_wait(repair).await.map_err(|error| format!("repairing: {error}"))?;
            if repaired.state != JobState::Done {
                return Err(Unsettled::left_by(&repaired));
            }
            // A repair that was under way may have been past a disk that came then: the pool sees to that by itself.
            let (began, is_stale) = (pool.store().world.now(), |disk: &DiskInfo| disk.state == DiskState::Stale);
            loop {
                while let Some(job) = pool.jobs().into_iter().find(|job| !has_ended(job.state)) {
                    let ended = pool.job_wait(job.id).await.map_err(|error| format!("waiting for {job:?}: {error}"))?;
                    if ended.kind == JobKind::Repair && ended.state != JobState::Done {
                        return Err(Unsettled::left_by(&ended));
                    }
                }
                let Some(stale) = pool.info().disks.into_iter().find(is_stale) else { break };
                if pool.store().world.now().since(began) > HEALS_WITHIN {
                    let why = format!("disk {} is there and stays out of date: {:?}", stale.no, pool.jobs());
                    return Err(Unsettled::Fault(why));
                }
                pool.store().world.sleep(Nanos::secs(1)).await;
            }
            match pool.unsound_bytes().0 {
                0 => Ok(()),
                _ if pool.jobs().iter().any(|job| job.failure == Some(ErrorKind::NoSpace)) => Err(Unsettled::NoPlace),
                bytes => {
                    let why = format!("{bytes} bytes are still without their redundancy: {:?}", pool.jobs());
                    Err(Unsettled::Fault(why))
                }
            }
        })
    }
}

/// The disks, as bits by their place in the list, for which `is` holds.
fn set_of(disks: &[&DiskInfo], is: impl Fn(&DiskInfo) -> bool) -> u64 {
    disks.iter().enumerate().fold(0, |set, (at, disk)| set | (is(disk) as u64) << at)
}

/// What fails together, as such sets: the disks of one domain, or one disk.
fn domains(disks: &[&DiskInfo]) -> Vec<u64> {
    let of = |disk: &&DiskInfo| {
        let no = disk.no;
        set_of(disks, |other| if disk.domain.is_empty() { other.no == no } else { other.domain == disk.domain })
    };
    disks.iter().map(of).collect()
}

pub(super) struct Care {
    pool: Rc<Pool>,
    world: SimWorld,
    disks: Vec<SimDisk>,
    ids: Rc<Ids>,
    victims: Vec<usize>,
    rng: Rng,
}

impl Care {
    async fn act(&mut self) -> Result<()> {
        let at = self.rng.below(self.disks.len() as u64) as usize;
        let pool = self.pool.clone();
        let no = self.ids.member(&pool, at);
        match (self.rng.below(14), no) {
            (0..=2, None) => self.add(at).await.map(|_| ()),
            (0, Some(no)) => pool.disk_remove(no, None, 0).await.map(|_| ()),
            (1, Some(no)) => match self.unused() {
                Some(new) => {
                    let to = self.add(new).await?;
                    pool.disk_remove(no, Some(to), 0).await.map(|_| ())
                }
                None => Ok(()),
            },
            (2, Some(no)) => {
                let usages = [Usage::Retired, Usage::AutoSelect, Usage::AutoSelect, Usage::HotSpare, Usage::Journal];
                let usage = *self.rng.pick(&usages);
                pool.disk_set(no, DiskChange { usage: Some(usage), ..DiskChange::default() }).await
            }
            // One that is put to rest while the other victims vanish must leave half of the votes.
            (3, Some(no)) if self.victims.contains(&at) && self.victims.len() * 2 <= pool.store().voters().len() => {
                pool.disk_offline(no).await?;
                let pause = self.rng.below(300_000_000);
                self.world.sleep(Nanos(pause)).await;
                pool.disk_online(no).await
            }
            (4..=6, Some(no)) => match !pool.store().has_disk(no) && !self.disks[at].is_gone() {
                true if self.ids.copies.borrow().contains(&at) => {
                    pool.attach_copy(Rc::new(self.disks[at].clone())).await.map(|_| ())
                }
                true => pool.attach(Rc::new(self.disks[at].clone())).await.map(|_| ()),
                false => Ok(()),
            },
            (7, _) => pool.job_start(JobKind::Scrub, 0).await.map(|_| ()),
            (8, _) => pool.job_start(JobKind::Rebalance, 0).await.map(|_| ()),
            (9, _) => pool.job_start(JobKind::Repair, 0).await.map(|_| ()),
            (10, Some(no)) => {
                let power = self.power_for(at);
                let domain = (*self.rng.pick(&["", "a", "b", "c"])).into();
                pool.disk_set(no, DiskChange { domain: Some(domain), power, ..DiskChange::default() }).await
            }
            (11, Some(no)) => {
                let usage = *self.rng.pick(&[Usage::Journal, Usage::AutoSelect]);
                let media = Some(*self.rng.pick(&[Media::Ssd, Media::Hdd]));
                pool.disk_set(no, DiskChange { usage: Some(usage), media, ..DiskChange::default() }).await
            }
            _ => self.meddle().await,
        }
    }

    /// A job is paused, resumed or ended.
    async fn meddle(&mut self) -> Result<()> {
        let jobs: Vec<JobNo> =
            self.pool.jobs().into_iter().filter(|job| !has_ended(job.state)).map(|job| job.id).collect();
        if jobs.is_empty() {
            return Ok(());
        }
        let job = *self.rng.pick(&jobs);
        match self.rng.below(4) {
            0 => self.pool.job_pause(job).await,
            1 => self.pool.job_cancel(job).await,
            _ => self.pool.job_resume(job).await,
        }
    }

    /// What is said of the cache of a disk; before that the cache may be switched on or off. One of which a person once
    /// said that it is not volatile stays so: whatever says so again, an older record perhaps, does not lie.
    fn power_for(&self, at: usize) -> Option<PowerProtected> {
        if !self.world.protects() {
            return None;
        }
        let (disk, mut rng) = (&self.disks[at], self.rng.fork("power"));
        let switched = at % 2 == 1;
        if switched && rng.chance(0.3) {
            disk.protect(!disk.is_protected());
        }
        match switched || !disk.is_protected() {
            true => Some(*rng.pick(&[PowerProtected::Auto, PowerProtected::No])),
            false => Some(*rng.pick(&[PowerProtected::Auto, PowerProtected::Yes, PowerProtected::No])),
        }
    }

    /// A disk that is there and in no pool.
    fn unused(&mut self) -> Option<usize> {
        let fits = |at: &usize| self.ids.member(&self.pool, *at).is_none() && !self.disks[*at].is_gone();
        let unused: Vec<usize> = (0..self.disks.len()).filter(fits).collect();
        (!unused.is_empty()).then(|| *self.rng.pick(&unused))
    }

    pub(super) async fn add(&mut self, at: usize) -> Result<DiskNo> {
        let mut id = [0xAD; 16];
        id[..8].copy_from_slice(&self.ids.given.replace(self.ids.given.get() + 1).to_le_bytes());
        let new = NewDisk {
            disk: Rc::new(self.disks[at].clone()),
            id: Id(id),
            name: format!("n{}", self.ids.given.get()),
            media: Media::Ssd,
        };
        self.ids.ids.borrow_mut()[at] = Id(id);
        let usage = *self.rng.pick(&[Usage::AutoSelect, Usage::AutoSelect, Usage::HotSpare, Usage::Journal]);
        self.pool.disk_add(new, usage).await
    }
}
