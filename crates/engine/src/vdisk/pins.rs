//! Pins: what the log holds of stripes that cannot leave it. They cannot be merged, for what lies below them is out of
//! reach, or they can be written nowhere; their bytes move to the log's head for as long as that lasts.
//!
//! Invariants
//! 1. No flush waits for room in the log that nothing can make: it is refused once disks that went have been waited for
//!    as long as clients ever wait.
//! 2. A virtual disk with such stripes has a quarter of the log for them, so that others have room.

use super::Vdisk;
use super::write::RETRY;
use crate::error::{Error, Result};
use crate::log::Room;
use crate::mutant::{self, Mutant};
use crate::store::lost;
use crate::stripe::buffer::StripeBuffer;
use crate::units::Nanos;
use alloc::format;
use alloc::rc::Rc;
use alloc::vec::Vec;

/// The part of the log that a virtual disk may pin, as a divisor.
const PINS_MAX: u64 = 4;

impl Vdisk {
    /// Counts, and remembers, the bytes that the log holds of stripes that cannot leave as things are.
    pub fn count_pins(&self) -> u64 {
        if self.removed.get() && !mutant::active(Mutant::RemovedPins) {
            return 0;
        }
        let aside: Vec<u64> = self.set_aside.borrow().keys().copied().collect();
        let landed = |buffer: &mut StripeBuffer| buffer.landed.count();
        let aside = aside.into_iter().filter(|stripe| self.is_set_aside(*stripe));
        let gathers: u64 = aside.filter_map(|stripe| self.with_filling(stripe, landed)).sum();
        let kept: u64 = self.kept.borrow().values().map(|sealed| sealed.landed.borrow().count()).sum();
        let pins = gathers + kept + self.store.limbo.landed_len(self.table());
        self.pins.set((pins, self.store.signals.changes.get()));
        pins
    }

    /// Reserves room in the log for `len` bytes that land, for a flush that has been landing `since`.
    pub(super) async fn reserve_landing(self: &Rc<Self>, len: u64, since: Nanos) -> Result<()> {
        // What was lost keeps its place in the log: where that is much, there is no room until the virtual disk is
        // cleared.
        let serves = || {
            self.check_there()?;
            self.failure().map_or_else(|| self.check_flows(), Err)
        };
        let mut pressed = false;
        loop {
            serves()?;
            if !self.pins_much() {
                let pinned = || if self.finds_it_pinned(since) { Err(self.pinned()) } else { Ok(()) };
                let refused = || serves().and_then(|()| pinned());
                let reserved = self.store.log.reserve_unless(len, Room::Landing, refused).await;
                if reserved.is_ok() || !self.finds_it_pinned(since) {
                    return reserved;
                }
            }
            // Disks that have just gone may be back in a moment, and what lies there with them. Where others hold the
            // log they may let go of it, too.
            let waits = self.store.awaits_disks() || self.count_pins() == 0 && !self.has_waited(since);
            if pressed && !waits {
                return Err(self.pinned());
            }
            // What is written anew may be what they lacked: they are looked at again.
            self.store.log.pressure.notify();
            self.store.world.sleep(RETRY).await;
            pressed = true;
        }
    }

    /// Whether `len` bytes may land without waiting for room.
    pub(super) fn lands_at_once(&self, len: u64) -> bool {
        !self.pins_much() && self.store.log.has_room(len, Room::Landing)
    }

    /// Whether it pins as much of the log as it may. Some of that may have been written anew since it was counted.
    fn pins_much(&self) -> bool {
        let (most, (pins, counted)) = (self.store.log.fill().1 / PINS_MAX, self.pins.get());
        let much = pins >= most && counted == self.store.signals.changes.get() && !mutant::active(Mutant::PinsTakeAll);
        much && self.count_pins() >= most
    }

    /// Whether a flush that has been landing `since` finds no room. Where some is made all the time, but little, it is
    /// not enough for all that such a flush lands.
    fn finds_it_pinned(&self, since: Nanos) -> bool {
        let considerable = || self.pins.get().0 >= self.store.log.fill().1 / PINS_MAX / 2;
        self.store.is_log_pinned() || considerable() && self.has_waited(since)
    }

    /// Whether it has waited for as long as clients wait for disks; when the pool closes, nobody waits for what is
    /// pinned.
    fn has_waited(&self, since: Nanos) -> bool {
        let store = &self.store;
        store.world.now().since(since) >= store.tuning.freeze_limit
            || store.is_timeout_over(since) && store.is_log_pinned()
    }

    /// Whether clients wait for a flush of a virtual disk that pins nothing.
    pub(crate) fn flushes_without_pins(&self) -> bool {
        self.flushes_waiting.get() > 0 && !self.has_pins()
    }

    /// Whether the log held any when it was looked at last, as things are.
    pub(super) fn has_pins(&self) -> bool {
        let (pins, counted) = self.pins.get();
        pins > 0 && counted == self.store.signals.changes.get()
    }

    fn pinned(&self) -> Error {
        let own = self.pins.get().0;
        lost(format!(
            "there is no room in the log for the flush: it is held by partial stripes that cannot be merged, for what \
             lies below them is out of reach ({own} bytes of them are this virtual disk's)"
        ))
    }
}
