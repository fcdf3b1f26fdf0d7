//! Optimize: what is sought out most of a virtual disk comes to its fast tier now, and what is not leaves it, beside
//! clients. The tiers' own task does the same when nobody asks for anything (`vdisk/tier.rs`).

use super::super::Pool;
use super::{Halt, Ticket};
use crate::units::{ByteCount, VdiskNo};
use crate::vdisk::Vdisk;
use crate::vdisk::order::Ordered;
use alloc::format;
use alloc::rc::Rc;
use alloc::string::String;

impl Pool {
    /// Carries a fresh plan out. What there is to say in the end.
    pub(super) async fn optimize(&self, id: VdiskNo, ticket: &Ticket) -> core::result::Result<String, Halt> {
        let vdisk = || -> Option<Rc<Vdisk>> { self.vdisks.borrow().get(&id).cloned() };
        let moved = |vdisk: &Vdisk| (vdisk.counters.promoted.get(), vdisk.counters.demoted.get());
        let began = vdisk().map_or((0, 0), |vdisk| moved(&vdisk));
        vdisk().iter().for_each(|vdisk| vdisk.forget_tier_plan());
        loop {
            let Some(vdisk) = vdisk() else { return Ok("the virtual disk was removed".into()) };
            let before = moved(&vdisk);
            let outcome = vdisk.move_between_tiers(&self.store.traffic.budgets.merges, None).await;
            let now = moved(&vdisk);
            ticket.expect(vdisk.tier_bytes_planned());
            ticket.step(&self.store, now.0 + now.1 - before.0 - before.1).await?;
            if outcome == Ordered::Rests {
                let (up, down) = (ByteCount(now.0 - began.0), ByteCount(now.1 - began.1));
                return Ok(format!("{up} came to the fast tier, {down} left it"));
            }
        }
    }
}
