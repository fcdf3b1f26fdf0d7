//! Forced: a machine refuses to open a pool, for too few of its disks are there, or none of the newest; and a person
//! tells it to, with `--degraded`. The others come back later, with a history of their own.
//!
//! The rules, beside those of [`super::outage`]:
//! 1. Told to, it opens, or says why not.
//! 2. What is read then was written there once, in whole units, or is an error. It is the truth from then on.
//! 3. From then on everything holds as ever: nothing of what the others went on with comes to light, and what is
//!    flushed stays. The disks that went on from there open the pool again, if need be without the others.
//! 4. The others catch up when they are attached, and the pool becomes well by itself.

use super::outage::{Kind, Outages};
use crate::rig::TIMEOUT;
use std::collections::BTreeSet;
use std::rc::Rc;
use weft_engine::error::Result as Answer;
use weft_engine::pool::Pool;

impl Outages {
    /// A person, sometimes, has the pool opened with the disks that are there. Says whether it is open.
    pub(super) fn force(&mut self) -> Result<bool, String> {
        if self.sky.kind != Kind::Forced || self.side.is_some() || !self.rng.chance(0.6) {
            return Ok(false);
        }
        let options = self.rig.options;
        self.rig.options.degraded = true;
        let opened = self.try_to_open();
        self.rig.options = options;
        let Ok(pool) = opened? else {
            self.is_refused();
            return Ok(false);
        };
        self.rig.pool = Some(pool.clone());
        self.go_back()?;
        self.forced += 1;
        self.sky.lossy.set(true);
        self.side = Some(BTreeSet::new());
        self.note_side();
        self.opened(pool);
        Ok(true)
    }

    fn try_to_open(&mut self) -> Result<Answer<Rc<Pool>>, String> {
        let opening = self.rig.opening(&mut self.rng);
        let opened = self.rig.world.block_on_within(TIMEOUT, opening);
        opened.map_err(|stop| format!("opening hangs ({stop:?}): {:?}", self.rig.world.tasks()))
    }

    /// What is there is the truth from now on, if it was written there once.
    fn go_back(&mut self) -> Result<(), String> {
        let seen = self.read_all()?;
        let unit = self.scene.sector as u64;
        let mut oracle = self.shared.oracle.borrow_mut();
        for (range, _) in &seen.lost {
            oracle.inherit((range.start / unit) as usize..range.end.div_ceil(unit) as usize);
        }
        for (at, bytes) in &seen.pieces {
            oracle.judge_gone_back((at / unit) as usize, bytes).map_err(|why| format!("opened by force: {why}"))?;
        }
        Ok(())
    }

    /// The disks whose labels say that they took part in all that was called durable since a person opened the pool.
    pub(super) fn note_side(&mut self) {
        let Some(side) = &mut self.side else { return };
        let pool = self.rig.pool();
        side.extend(pool.store().labels.durable.get().current.iter().map(|no| no.0 as usize));
    }

    /// After a crash the disks that come and go are any; but those that go on from what a person opened stay.
    pub(super) fn scatter(&mut self) {
        if self.side.is_some() {
            return;
        }
        for at in 0..self.rig.disks.len() {
            let disk = self.rig.disks[at].clone();
            match (disk.is_gone(), self.rng.chance(0.5)) {
                (true, true) => {
                    self.strain.begin();
                    self.sky.give_back(&disk, &mut self.rng, &self.strain);
                }
                (false, true) => disk.vanish(),
                _ => {}
            }
        }
    }

    /// Opens the pool again with the disks that went on from what a person opened; if the others are in the way,
    /// without them. `false`: no person did.
    pub(super) fn open_side(&mut self) -> Result<bool, String> {
        let Some(side) = self.side.clone() else { return Ok(false) };
        for at in &side {
            let disk = self.rig.disks[*at].clone();
            if disk.is_gone() {
                self.sky.give_back(&disk, &mut self.rng, &self.strain);
            }
        }
        self.strain.begin();
        for others in [true, false] {
            if !others {
                let away = (0..self.rig.disks.len()).filter(|at| !side.contains(at));
                away.filter(|at| !self.rig.disks[*at].is_gone()).for_each(|at| self.rig.disks[at].vanish());
            }
            match self.try_to_open()? {
                Ok(pool) => {
                    self.opened(pool);
                    return Ok(true);
                }
                Err(error) if !others => return Err(format!("disks {side:?} went on, and do not open: {error}")),
                Err(_) => self.is_refused(),
            }
        }
        Ok(false)
    }
}
