//! The scene of a storm: layout, disks, budgets and faults, all of it from the seed.

use crate::disk::FaultPlan;
use crate::rng::Rng;
use weft_engine::geometry::{Layout, Resiliency};
use weft_engine::store::Tuning;
use weft_engine::store::labels::VOTERS_MAX;
use weft_engine::units::{ByteCount, Nanos};

/// Disks that carry the log and nothing else, where there are such: as many as it has copies.
pub(super) const JOURNALS: usize = 3;

/// What changes about virtual disks while they are used.
#[derive(Clone, Copy, Default)]
pub(super) struct Beside {
    /// A write-back cache comes, changes and goes.
    pub(super) cached: bool,
    /// Some of these caches survive less than what lies below them. Then there are no victims: nothing may be lost.
    pub(super) risky: bool,
    /// Disks that its layout does not need carry the log and nothing else.
    pub(super) journals: bool,
    /// It gets other layouts.
    pub(super) changed: bool,
    /// A fast tier comes, changes and goes.
    pub(super) tiered: bool,
}

/// The scene of one storm, all of it from the seed.
pub(super) struct Scene {
    pub(super) layout: Layout,
    pub(super) sector: u32,
    pub(super) fixed: bool,
    pub(super) disks: usize,
    pub(super) capacity: ByteCount,
    pub(super) size: ByteCount,
    pub(super) tuning: Tuning,
    pub(super) victims: Vec<usize>,
    pub(super) faults: FaultPlan,
    pub(super) rounds: u64,
    pub(super) ops: u64,
    pub(super) clients: u64,
    /// Disks that are in no pool at first.
    pub(super) extras: usize,
    /// Whether disks and jobs are meddled with.
    pub(super) upkeep: bool,
    /// What changes about the virtual disk while it is used.
    pub(super) beside: Beside,
}

impl Scene {
    /// Chooses no more disks than the layout survives, or none.
    pub(super) fn victims(layout: Layout, disks: usize, rng: &mut Rng) -> Vec<usize> {
        let count = if rng.chance(0.7) { layout.failures() } else { 0 };
        let mut victims: Vec<usize> = Vec::new();
        while victims.len() < count {
            let victim = rng.below(disks as u64) as usize;
            if !victims.contains(&victim) {
                victims.push(victim);
            }
        }
        victims
    }

    fn tuning(rng: &mut Rng) -> Tuning {
        Tuning {
            buffer_memory: *rng.pick(&[64 << 10, 512 << 10, 8 << 20]),
            sheet_memory: *rng.pick(&[16 << 10, 256 << 10, 8 << 20]),
            commit_interval: Nanos::millis(*rng.pick(&[1, 50, 1000])),
            commit_bytes: *rng.pick(&[64 << 10, 1 << 20, 256 << 20]),
            idle_land: Nanos::millis(*rng.pick(&[20, 5000])),
            discard_rest: Nanos::millis(*rng.fork("discard rest").pick(&[0, 0, 20, 10_000])),
            ahead_memory: *rng.fork("read ahead").pick(&[0, 64 << 10, 1 << 20, 8 << 20]),
            turn_bytes: *rng.fork("turn bytes").pick(&[4 << 10, 64 << 10, 1 << 20]),
            flush_turn_bytes: *rng.fork("flush turn").pick(&[4 << 10, 64 << 10, u64::MAX, u64::MAX]),
            turn_time: Nanos::millis(*rng.fork("turn time").pick(&[1, 20, 150])),
            runs_in_flight: 1 + rng.below(8) as usize,
            run_bytes: *rng.pick(&[4 << 10, 64 << 10, 1 << 20]),
            read_timeout: Nanos::millis(*rng.pick(&[5, 200, 1000])),
            write_limit: Nanos::millis(*rng.fork("write timeout").pick(&[1000, 30_000])),
            bad_blocks_max: *rng.pick(&[5, 256, u64::MAX]),
            failures_max: *rng.pick(&[1, 3, u64::MAX]),
            freeze_limit: Nanos::secs(30),
            auto_jobs: true,
            // Groups of a few stripes: more can happen between them.
            move_memory: 1 << 20,
            request_memory: Tuning::default().request_memory,
            table_memory: *rng.fork("stripe tables").pick(&[4 << 10, 16 << 10, 1 << 30]),
            fine_share: *rng.fork("fine share").pick(&[0, 0, 100, 500]),
            fine_share_flash: *rng.fork("fine share on flash").pick(&[0, 250]),
            fine_memory: *rng.fork("fine memory").pick(&[8 << 10, 64 << 10, 64 << 20]),
            shelf_memory: *rng.fork("shelf memory").pick(&[4 << 10, 64 << 10, 64 << 20]),
            batch_bytes: *rng.fork("log batch").pick(&[0, 16 << 10, 64 << 10, 16 << 20]),
        }
    }

    /// Budgets of a few stripes, or of less than one.
    pub(super) fn shrink(&mut self, rng: &mut Rng) {
        let raw = self.layout.raw_len().0;
        self.tuning.buffer_memory = *rng.pick(&[4096, raw, raw * 2]);
        self.tuning.request_memory = *rng.fork("requests").pick(&[4096, 64 << 10, 1 << 20]);
        self.tuning.sheet_memory = *rng.pick(&[4096, 16 << 10]);
        self.tuning.table_memory = *rng.fork("stripe tables").pick(&[0, 4096, 12 << 10]);
        self.tuning.move_memory = *rng.pick(&[4096, raw]);
        self.tuning.ahead_memory = *rng.fork("read ahead").pick(&[0, raw, raw * 8]);
        self.tuning.runs_in_flight = 1;
        self.tuning.run_bytes = 4096;
        self.tuning.commit_bytes = 4096;
    }

    /// Enough disks for the log alone, and stripes that clients often write whole.
    pub(super) fn set_log_apart(&mut self, rng: &mut Rng) {
        let resiliency = self.layout.resiliency();
        let interleave = *rng.pick(&[ByteCount::kib(4), ByteCount::kib(8)]);
        self.layout = Layout::new(resiliency, resiliency.columns_min(), interleave).expect("scenes are valid");
        self.disks = self.layout.slots() + JOURNALS + rng.below(4) as usize;
        self.victims.retain(|victim| *victim < self.disks);
        self.faults.stall = self.faults.stall.max(if rng.chance(0.5) { 0.05 } else { 0.0 });
        self.beside = Beside { journals: true, cached: rng.chance(0.2), ..Beside::default() };
    }

    /// Draws a scene of the classic storm.
    pub(super) fn new(rng: &mut Rng) -> Scene {
        let resiliency = *rng.pick(&[
            Resiliency::Simple,
            Resiliency::Mirror { copies: 2 },
            Resiliency::Mirror { copies: 3 },
            Resiliency::Parity { parity: 1 },
            Resiliency::Parity { parity: 1 },
            Resiliency::Parity { parity: 2 },
        ]);
        let columns = resiliency.columns_min() + rng.below(3) as u8;
        let interleave = *rng.pick(&[
            ByteCount::kib(4),
            ByteCount::kib(8),
            ByteCount::kib(12),
            ByteCount::kib(24),
            ByteCount::kib(64),
        ]);
        let layout = Layout::new(resiliency, columns, interleave).expect("scenes are valid");
        let disks = layout.slots() + rng.below(3) as usize;
        let victims = Scene::victims(layout, disks, rng);
        let often = |rng: &mut Rng, most: f64| if rng.chance(0.5) { most * rng.below(100) as f64 / 100.0 } else { 0.0 };
        let mut faults = FaultPlan {
            latent: often(rng, 0.02),
            rot: often(rng, 0.02),
            misdirect: often(rng, 0.01),
            lose: often(rng, 0.01),
            write_error: if rng.chance(0.2) { 0.002 } else { 0.0 },
            flush_error: if rng.chance(0.2) { 0.002 } else { 0.0 },
            stall: often(rng, 0.01),
            stall_max: Nanos::secs(5),
            ..FaultPlan::default()
        };
        let tuning = Scene::tuning(rng);
        if victims.len() * 2 > disks.min(VOTERS_MAX) {
            // Most voters, lost at one time, freeze a pool, and nobody attaches disks here that were too slow.
            faults.stall_max = Nanos(tuning.write_limit.0 / 2).min(faults.stall_max);
        }
        let fixed = rng.chance(0.25);
        let upkeep = rng.chance(0.5);
        Scene {
            layout,
            sector: *rng.pick(&[512, 4096]),
            fixed,
            disks,
            capacity: ByteCount::mib(*rng.pick(&[9, 12, 20])),
            size: ByteCount::kib(if fixed { 512 } else { 512 + rng.below(5) * 1024 }),
            tuning,
            victims,
            faults,
            rounds: 2 + rng.below(4),
            ops: 40 + rng.below(200),
            clients: 1 + rng.below(6),
            extras: if upkeep { 1 + rng.below(3) as usize } else { 0 },
            upkeep,
            beside: Beside::default(),
        }
    }
}
