//! Optimize: what is sought out most of a virtual disk comes to its fast tier now, and what is not leaves it, beside
//! clients. The tiers' own task does the same when nobody asks for anything (`vdisk/tier.rs`).

use super::super::Pool;
use super::{Halt, Ticket};
use crate::units::VdiskNo;
use crate::vdisk::Vdisk;
use crate::vdisk::order::Ordered;
use alloc::format;
use alloc::rc::Rc;
use alloc::string::String;

impl Pool {
    /// Carries a fresh plan out. What there is to say in the end.
    pub(super) async fn optimize(&self, id: VdiskNo, ticket: &Ticket) -> core::result::Result<String, Halt> {
        let mut begun = false;
        let (mut up, mut down) = (0, 0);
        loop {
            let vdisk: Option<Rc<Vdisk>> = self.vdisks.borrow().get(&id).cloned();
            let Some(vdisk) = vdisk else { return Ok("the virtual disk was removed".into()) };
            if !core::mem::replace(&mut begun, true) {
                vdisk.forget_tier_plan();
                (up, down) = (vdisk.counters.promoted.get(), vdisk.counters.demoted.get());
            }
            let before = vdisk.counters.promoted.get() + vdisk.counters.demoted.get();
            let moved = vdisk.move_between_tiers(&self.store.traffic.budgets.merges, None).await;
            let bytes = vdisk.counters.promoted.get() + vdisk.counters.demoted.get() - before;
            ticket.expect(vdisk.tier_bytes_planned());
            ticket.step(&self.store, bytes).await?;
            if moved == Ordered::Rests {
                let (up, down) = (vdisk.counters.promoted.get() - up, vdisk.counters.demoted.get() - down);
                return Ok(format!(
                    "{} came to the fast tier, {} left it",
                    crate::units::ByteCount(up),
                    crate::units::ByteCount(down)
                ));
            }
        }
    }
}
