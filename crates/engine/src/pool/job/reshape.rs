//! Reshape: what lies in older tables of a virtual disk comes into its newest one, until that is the only one. How it
//! rises is in `vdisk/rise.rs`; this file says when, and when it is stuck.

use super::super::Pool;
use super::{Halt, Ticket, stuck};
use crate::error::{ErrorKind, Result};
use crate::units::{Nanos, VdiskNo};
use crate::vdisk::Vdisk;
use crate::vdisk::destage::By;
use crate::vdisk::rise::Risen;
use alloc::format;
use alloc::rc::Rc;
use alloc::string::String;

/// How long it rests where nothing can be done.
const RESTS: Nanos = Nanos::millis(500);
/// How long it waits for the last readers of an older table.
const LOOKS: Nanos = Nanos::millis(20);
/// How often in a row nothing may come of it, while all disks are there, before it is stuck.
const IN_VAIN_MAX: u32 = 10;

/// How a reshape gets on.
#[derive(Default)]
struct Way {
    /// What lay in older tables when the last sweep ended.
    left: Option<u64>,
    in_vain: u32,
}

impl Pool {
    /// Brings up what lies in older tables. What there is to say in the end.
    pub(super) async fn reshape(&self, id: VdiskNo, ticket: &Ticket) -> core::result::Result<String, Halt> {
        let mut way = Way::default();
        loop {
            let vdisk: Option<Rc<Vdisk>> = self.vdisks.borrow().get(&id).cloned();
            let Some(vdisk) = vdisk else { return Ok("the virtual disk was removed".into()) };
            let left = vdisk.bytes_in_older();
            ticket.expect(left);
            if !vdisk.is_stacked() {
                return Ok(format!("all of it lies in {}", vdisk.layout()));
            }
            let risen = if left == 0 { self.end_older(&vdisk).await } else { self.rise(&vdisk, &mut way).await };
            match risen {
                Ok(bytes) => ticket.step(&self.store, bytes).await?,
                // Another turn finds that out.
                Err(_) if vdisk.is_removed() => {}
                Err(_) if self.store.is_closing() || self.store.stopping.get() => return Err(Halt::Yield),
                Err(error) if error.kind == ErrorKind::Frozen => {
                    ticket.step(&self.store, 0).await?;
                    self.store.world.sleep(RESTS).await;
                }
                Err(error) => return stuck(error.kind, error.context),
            }
        }
    }

    /// Waits for what keeps the older tables, which hold nothing: the log, and who reads what was there.
    async fn end_older(&self, vdisk: &Vdisk) -> Result<u64> {
        self.store.make_logged(self.store.log.seq()).await?;
        vdisk.drop_older();
        if vdisk.is_stacked() {
            self.store.world.sleep(LOOKS).await;
        }
        Ok(0)
    }

    /// Has the next stripes rise. Returns the bytes that have left older tables, or why nothing more will.
    async fn rise(&self, vdisk: &Rc<Vdisk>, way: &mut Way) -> Result<u64> {
        if vdisk.waits_since().is_some() {
            self.store.world.sleep(RESTS).await;
            return Ok(0);
        }
        match vdisk.rise(&self.store.traffic.budgets.merges).await? {
            Risen::Bytes(bytes) => {
                way.in_vain = if bytes > 0 { 0 } else { way.in_vain };
                Ok(bytes)
            }
            Risen::End(unlifted) => {
                let left = vdisk.bytes_in_older();
                if way.left.replace(left) == Some(left) {
                    way.in_vain += 1;
                    self.store.world.sleep(RESTS).await;
                }
                let is_stuck = way.in_vain >= IN_VAIN_MAX && unlifted > 0 && !vdisk.is_removed();
                match is_stuck && !self.store.misses_disks() {
                    true => Err(vdisk.cannot_rise(unlifted)),
                    false => Ok(0),
                }
            }
            Risen::NoRoom => {
                let bytes = vdisk.let_go(0..u64::MAX).await?;
                self.store.make_logged(self.store.log.seq()).await?;
                // What clients wrote above older tables has left holes all over these.
                let packed = vdisk.move_down(&self.store.traffic.budgets.merges, By::Anybody).await;
                let comes = self.store.slabs_come(vdisk.table()).await || packed > 0;
                way.in_vain = if bytes > 0 || comes { 0 } else { way.in_vain + 1 };
                if comes {
                    return Ok(bytes);
                }
                // It may have been removed meanwhile: another turn finds that out.
                if way.in_vain >= IN_VAIN_MAX && !vdisk.is_removed() {
                    return Err(vdisk.no_room_to_rise());
                }
                self.store.world.sleep(RESTS).await;
                Ok(bytes)
            }
        }
    }
}
