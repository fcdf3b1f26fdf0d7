//! An engine of memory, for tests of everything above it: names, sizes and refusals are real, storage is not.
//! Its labels are real files, so that finding, shuffling and restarting are what they will be.

mod upkeep;

use std::collections::BTreeMap;
use std::fs;
use std::io::Read;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use weft_engine::pool::{Amount, Growth, Instead, Leaving, Refusal, VdiskPlan, Wanted};
use weft_engine::units::ByteCount;
use weft_host::api::error::{Answer, ApiError, Kind};
use weft_host::api::export::{Place, Terms};
use weft_host::api::job::{JobAction, StartKind};
use weft_host::api::name::VdiskName;
use weft_host::api::pool::{CheckReport, DiskInfo, DiskState, Health, Keeping, MemoryBudget, PoolInfo};
use weft_host::api::pool::{PoolSettings, Usage};
use weft_host::api::vdisk::{Layout, Provisioning, VdiskCounters, VdiskInfo};
use weft_host::daemon::backend::{DiskChange, Engine, ExportServer, Label, NewMember, NewPool, OpenHow, Run};
use weft_host::ops::vdisk::Explain;

const MARK: &str = "a label of the fake engine\n";

/// The storage: what outlives a daemon.
#[derive(Default)]
pub struct Storage {
    pools: Mutex<BTreeMap<String, PoolInfo>>,
    /// How often opening a pool still finds its disks claimed.
    pub claimed: AtomicU32,
    /// Jobs stand still until the test lets them go on.
    pub held: AtomicBool,
}

impl Storage {
    /// A virtual disk loses a write for good.
    pub fn lose_a_write(&self, vdisk: &str) {
        let mut pools = self.pools.lock().unwrap();
        let info = pools.values_mut().flat_map(|pool| &mut pool.vdisks).find(|info| info.name.to_string() == vdisk);
        let info = info.expect("it was made");
        (info.failure, info.health) = (Some("disks failed before a write was durable".into()), Health::Failed);
    }
}

/// The engine of one daemon.
pub struct FakeEngine {
    storage: Arc<Storage>,
    open: Mutex<Vec<String>>,
}

/// Remembers what is offered.
#[derive(Default)]
pub struct FakeExports {
    pub offered: Mutex<Vec<(VdiskName, Place)>>,
}

impl FakeEngine {
    pub fn new(storage: Arc<Storage>) -> FakeEngine {
        FakeEngine { storage, open: Mutex::default() }
    }

    fn with<T>(&self, pool: &str, body: impl FnOnce(&mut PoolInfo) -> T) -> Answer<T> {
        if !self.open.lock().unwrap().iter().any(|open| open == pool) {
            return Err(ApiError::new(Kind::NotFound, format!("no pool {pool}")));
        }
        let mut pools = self.storage.pools.lock().unwrap();
        Ok(body(pools.values_mut().find(|info| info.name == pool).expect("open pools are stored")))
    }

    fn if_real<T: Default>(&self, run: Run, pool: &str, body: impl FnOnce(&mut PoolInfo) -> T) -> Answer<T> {
        self.with(pool, |pool| if run == Run::Real { body(pool) } else { T::default() })
    }
}

impl Engine for FakeEngine {
    fn probe(&self, disk: &Path) -> Answer<Option<Label>> {
        let mut text = Vec::new();
        fs::File::open(disk).unwrap().take(4096).read_to_end(&mut text).unwrap();
        let Some(label) = text.strip_prefix(MARK.as_bytes()) else { return Ok(None) };
        let label = String::from_utf8_lossy(label).into_owned();
        let mut words = label.lines();
        let mut word = || words.next().unwrap().to_string();
        Ok(Some(Label { pool_id: word(), pool_name: word(), disk_id: word(), disk_name: word(), whole: true }))
    }

    fn pool_create_judge(&self, name: &str, slab_size: ByteCount, capacities: &[ByteCount]) -> Answer<()> {
        match capacities.iter().any(|capacity| capacity.0 < 4 * slab_size.0) {
            true => Err(ApiError::new(Kind::NotPossible, format!("a disk of pool {name} is too small"))),
            false => Ok(()),
        }
    }

    fn pool_create(&self, new: &NewPool) -> Answer<()> {
        let id = format!("{:032x}", self.storage.pools.lock().unwrap().len() + 1);
        let mut disks = Vec::new();
        for (no, member) in new.members.iter().enumerate() {
            let disk_id = format!("{id}{no}");
            let capacity = fs::metadata(&member.path).unwrap().len();
            if capacity < 4 * new.slab_size.0 {
                return Err(ApiError::new(Kind::NotPossible, format!("{} is too small", member.path.display())));
            }
            write_label(&member.path, &id, &new.name, &disk_id, &member.name);
            disks.push(disk(&new.name, no as u16, disk_id, member, capacity));
        }
        let capacity = disks.iter().map(|disk| disk.capacity).sum();
        let pool = PoolInfo {
            name: new.name.clone(),
            id: id.clone(),
            health: Health::Healthy,
            read_only: false,
            slab_size: new.slab_size.0,
            capacity,
            allocated: 0,
            used: 0,
            free: capacity,
            promised: 0,
            unusable: 0,
            unusable_why: None,
            settings: PoolSettings {
                repair_after_seconds: Some(300),
                scrub_every_seconds: Some(28 * 86_400),
                scrubbed: None,
                foreground_share: 50,
                full: [70, 80, 90],
            },
            frozen: None,
            log_fill: 0.0,
            memory: [(Keeping::Enforced, Some(256 << 20)), (Keeping::Counted, None)]
                .map(|(keeping, limit)| MemoryBudget {
                    name: "stripe buffers".into(),
                    keeping,
                    limit,
                    used: 1 << 20,
                    peak: 2 << 20,
                })
                .into(),
            open_nanos: 1_000_000_000,
            disks,
            vdisks: Vec::new(),
            jobs: Vec::new(),
        };
        self.storage.pools.lock().unwrap().insert(id, pool);
        self.open.lock().unwrap().push(new.name.clone());
        Ok(())
    }

    fn pool_open(&self, members: &[PathBuf], how: OpenHow) -> Answer<()> {
        let claimed = |left: u32| left.checked_sub(1);
        if self.storage.claimed.fetch_update(Ordering::Relaxed, Ordering::Relaxed, claimed).is_ok() {
            return Err(ApiError::new(Kind::AlreadyExists, format!("{} is in use", members[0].display())));
        }
        let labels: Vec<(PathBuf, Label)> =
            members.iter().map(|path| (path.clone(), self.probe(path).unwrap().unwrap())).collect();
        let mut pools = self.storage.pools.lock().unwrap();
        let pool = pools.get_mut(&labels[0].1.pool_id).expect("labelled pools are stored");
        if members.len() * 2 <= pool.disks.len() && !how.degraded {
            return Err(ApiError::new(Kind::NotPossible, "a majority of its disks is needed"));
        }
        if how.run == Run::Dry {
            return Ok(());
        }
        pool.read_only = how.read_only;
        for disk in &mut pool.disks {
            let found = labels.iter().find(|(_, label)| Some(&label.disk_id) == disk.id.as_ref());
            disk.path = found.map(|(path, _)| path.clone());
            disk.state = if found.is_some() { DiskState::Healthy } else { DiskState::Missing };
        }
        let all = pool.disks.iter().all(|disk| disk.state == DiskState::Healthy);
        pool.health = if all { Health::Healthy } else { Health::Degraded };
        self.open.lock().unwrap().push(pool.name.clone());
        Ok(())
    }

    fn pool_close(&self, pool: &str) -> Answer<()> {
        self.open.lock().unwrap().retain(|open| open != pool);
        Ok(())
    }

    fn pool_remove(&self, pool: &str, run: Run) -> Answer<()> {
        if run == Run::Dry {
            return Ok(());
        }
        let disks = self.with(pool, |pool| pool.disks.clone())?;
        for path in disks.into_iter().filter_map(|disk| disk.path) {
            let file = fs::File::options().write(true).open(&path).unwrap();
            std::os::unix::fs::FileExt::write_all_at(&file, &[0; 4096], 0).unwrap();
        }
        self.storage.pools.lock().unwrap().retain(|_, info| info.name != pool);
        self.pool_close(pool)
    }

    fn pools(&self) -> Answer<Vec<PoolInfo>> {
        self.work();
        let open = self.open.lock().unwrap();
        Ok(self.storage.pools.lock().unwrap().values().filter(|pool| open.contains(&pool.name)).cloned().collect())
    }

    fn pool_check(&self, pool: &str, repair: bool) -> Answer<CheckReport> {
        self.with(pool, |pool| {
            let missing = pool.disks.iter().filter(|disk| disk.state != DiskState::Healthy);
            let problems: Vec<String> = missing.map(|disk| format!("disk {} is missing", disk.name)).collect();
            let sound = problems.is_empty() || repair;
            let repaired = if repair { problems.len() as u64 } else { 0 };
            CheckReport { pool: pool.name.clone(), sound, problems, repaired, checked: vec!["labels".into()] }
        })
    }

    fn pool_rename(&self, pool: &str, name: &str, run: Run) -> Answer<()> {
        if run == Run::Real { self.rename(pool, name) } else { Ok(()) }
    }

    fn pool_set(&self, pool: &str, settings: &PoolSettings, run: Run) -> Answer<()> {
        self.if_real(run, pool, |pool| pool.settings = *settings)
    }

    fn job_start(&self, pool: &str, kind: StartKind, now: u64, run: Run) -> Answer<Option<u32>> {
        if run == Run::Dry {
            return Ok(None);
        }
        self.with(pool, |pool| Some(upkeep::start(pool, kind.into(), &kind_name(kind), None, now)))
    }

    fn job_steer(&self, pool: &str, id: u32, action: JobAction, run: Run) -> Answer<()> {
        self.if_real(run, pool, |pool| upkeep::steer(pool, id, action))
    }

    fn disk_add_judge(&self, _: &str, capacity: ByteCount, name: &str) -> Answer<()> {
        match capacity.0 < 256 << 20 {
            true => Err(ApiError::new(Kind::NotPossible, format!("disk {name} has only {capacity}"))),
            false => Ok(()),
        }
    }

    fn disk_add(&self, pool: &str, member: &NewMember, usage: Usage) -> Answer<u16> {
        self.with(pool, |pool| upkeep::add(pool, member, usage))
    }

    fn disk_remove_judge(&self, pool: &str, disk: u16, instead: Instead) -> Answer<Leaving> {
        self.with(pool, |pool| upkeep::judge_removal(pool, disk, instead))?
    }

    fn disk_remove(&self, pool: &str, disk: u16, to: Option<u16>, now: u64) -> Answer<u32> {
        self.with(pool, |pool| upkeep::remove(pool, disk, to, now))
    }

    fn disk_set(&self, pool: &str, disk: u16, change: &DiskChange, run: Run) -> Answer<()> {
        self.if_real(run, pool, |pool| upkeep::set(pool, disk, change))
    }

    fn disk_offline(&self, pool: &str, disk: u16, run: Run) -> Answer<()> {
        self.with(pool, |pool| match run {
            Run::Dry => upkeep::judge_offline(pool),
            Run::Real => upkeep::offline(pool, disk),
        })?
    }

    fn disk_online(&self, pool: &str, disk: u16, run: Run) -> Answer<()> {
        self.if_real(run, pool, |pool| upkeep::online(pool, disk))
    }

    fn disk_attach(&self, pool: &str, path: &Path) -> Answer<u16> {
        let label = self.probe(path)?.ok_or_else(|| ApiError::new(Kind::NotFound, "no label"))?;
        self.with(pool, |pool| upkeep::attach(pool, &label, path))?
    }

    fn vdisk_create(&self, pool: &str, wanted: &Wanted, run: Run) -> Answer<Result<VdiskPlan, Refusal>> {
        self.with(pool, |pool| {
            let planned = upkeep::plan_vdisk(pool, wanted);
            if let (Ok(plan), Run::Real) = (&planned, run) {
                pool.vdisks.push(vdisk(pool, plan));
            }
            planned
        })
    }

    fn vdisk_resize(&self, name: &VdiskName, size: Amount, run: Run) -> Answer<Result<Growth, Refusal>> {
        self.with(&name.pool, |pool| {
            let room = ByteCount(pool.free);
            let vdisk = pool.vdisks.iter_mut().find(|info| info.name == *name).unwrap();
            let (from, to) = (ByteCount(vdisk.size), upkeep::bytes(size, room));
            if to < from {
                return Err(Refusal::Shrinks { now: from, asked: to });
            }
            if run == Run::Real {
                vdisk.size = to.0;
            }
            Ok(Growth { from, to, room })
        })
    }

    fn vdisk_rename(&self, vdisk: &VdiskName, name: &str, run: Run) -> Answer<()> {
        self.if_real(run, &vdisk.pool, |pool| {
            pool.vdisks.iter_mut().find(|info| info.name == *vdisk).unwrap().name.vdisk = name.into();
        })
    }

    fn vdisk_remove(&self, vdisk: &VdiskName, run: Run) -> Answer<()> {
        self.if_real(run, &vdisk.pool, |pool| pool.vdisks.retain(|info| info.name != *vdisk))
    }

    fn vdisk_clear(&self, vdisk: &VdiskName, run: Run) -> Answer<Vec<Range<u64>>> {
        self.with(&vdisk.pool, |pool| {
            let info = pool.vdisks.iter_mut().find(|info| info.name == *vdisk).unwrap();
            if run == Run::Real {
                (info.failure, info.health) = (None, Health::Healthy);
            }
            std::iter::once(0..65_536).collect()
        })
    }

    fn explain(&self, request: &Explain) -> Answer<Vec<String>> {
        Ok(vec![format!("{} {} bytes of {} from column 0", request.operation, request.length, request.vdisk)])
    }
}

fn vdisk(pool: &PoolInfo, plan: &VdiskPlan) -> VdiskInfo {
    let layout = Layout::from(plan.layout);
    VdiskInfo {
        name: VdiskName { pool: pool.name.clone(), vdisk: plan.spec.name.clone() },
        size: plan.spec.size.0,
        layout,
        provisioning: if plan.spec.fixed { Provisioning::Fixed } else { Provisioning::Thin },
        sector: plan.spec.sector as u16,
        used: 0,
        footprint: 0,
        efficiency: layout.efficiency(),
        health: pool.health,
        failures_left: u32::from(layout.resiliency.failures()),
        failures_new: Some(u32::from(layout.resiliency.failures())),
        failure: None,
        counters: VdiskCounters { writes: 4, whole_stripe_bytes: 300, landed_bytes: 100, ..Default::default() },
        exports: Vec::new(),
    }
}

fn kind_name(kind: StartKind) -> String {
    weft_host::api::job::JobKind::from(kind).to_string()
}

fn write_label(path: &Path, pool_id: &str, pool: &str, disk_id: &str, disk: &str) {
    let mut bytes = format!("{MARK}{pool_id}\n{pool}\n{disk_id}\n{disk}\n").into_bytes();
    bytes.resize(4096, 0);
    let file = fs::File::options().write(true).open(path).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&file, &bytes, 0).unwrap();
}

fn disk(pool: &str, no: u16, id: String, member: &NewMember, capacity: u64) -> DiskInfo {
    DiskInfo {
        name: member.name.clone(),
        pool: Some(pool.into()),
        no: Some(no),
        id: Some(id),
        path: Some(member.path.clone()),
        capacity,
        usage: Some(Usage::Auto),
        logs: no < 3,
        votes: no < 5,
        ..DiskInfo::stranger(DiskState::Healthy)
    }
}

impl ExportServer for FakeExports {
    fn memory(&self) -> Vec<MemoryBudget> {
        let name = "requests of NBD clients".into();
        vec![MemoryBudget { name, keeping: Keeping::Enforced, limit: Some(1 << 20), used: 4096, peak: 8192 }]
    }

    fn start(&self, vdisk: &VdiskName, at: &Place, _: &Terms) -> Answer<()> {
        self.offered.lock().unwrap().push((vdisk.clone(), at.clone()));
        Ok(())
    }

    fn stop(&self, vdisk: &VdiskName, at: &Place) -> Answer<()> {
        self.offered.lock().unwrap().retain(|offered| *offered != (vdisk.clone(), at.clone()));
        Ok(())
    }

    fn serves(&self, vdisk: &VdiskName, at: &Place) -> bool {
        self.offered.lock().unwrap().contains(&(vdisk.clone(), at.clone()))
    }
}
