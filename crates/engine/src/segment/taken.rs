//! What fine units take of memory and of the log.

use super::fine::UNIT_MEMORY;
use core::iter::Sum;

/// Bytes of memory for a packed stripe, beside the list of its units.
const STRIPE_MEMORY: u64 = 192;
/// Bytes of memory for each place in a packed stripe.
const PLACE_MEMORY: u64 = 8;
/// Bytes in the log for a unit that lies alone, and for a record without any.
const RUN_LEN: u64 = 16;
const RECORD_LEN: u64 = 64;

/// What fine units take.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Taken {
    /// Bytes of memory.
    pub memory: u64,
    /// Bytes of records that are needed in the log, at most.
    pub log: u64,
}

impl Taken {
    /// What a packed stripe takes that is full.
    pub fn by_stripe(per_stripe: u64) -> Taken {
        let memory = STRIPE_MEMORY + per_stripe * (PLACE_MEMORY + UNIT_MEMORY);
        Taken { memory, log: RECORD_LEN + per_stripe * RUN_LEN }
    }

    /// What so many units and packed stripes take, those in shadows and on their way included.
    pub fn by(per_stripe: u64, units: u64, shadowed: u64, stripes: u64, on_way: u64) -> Taken {
        let each = Taken::by_stripe(per_stripe);
        let lists = (STRIPE_MEMORY + per_stripe * PLACE_MEMORY) * stripes;
        Taken {
            memory: (units + shadowed) * UNIT_MEMORY + lists + on_way * each.memory,
            log: (units + shadowed) * RUN_LEN + stripes * RECORD_LEN + on_way * each.log,
        }
    }
}

impl Sum for Taken {
    fn sum<I: Iterator<Item = Taken>>(all: I) -> Taken {
        all.fold(Taken::default(), |all, one| Taken { memory: all.memory + one.memory, log: all.log + one.log })
    }
}
