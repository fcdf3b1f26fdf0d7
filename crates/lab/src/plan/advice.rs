//! What to buy beside the disks: memory, and disks for the log. The sizes are what the engine and the daemon take, not
//! rules of thumb.

use super::{Advice, Facts, LayoutPlan, decimal};
use weft_engine::segment::taken::Taken;
use weft_engine::store::Tuning;
use weft_engine::stripe::table::{PAGE_MEMORY, Table};
use weft_engine::units::BLOCK;

/// The part of a virtual disk that `weft serve` lets lie in packed stripes, as a divisor.
const FINE_SHARE: u64 = 10;
/// The part of a machine's memory that stripe tables may have, as a divisor (`crates/host/src/daemon/memory.rs`).
const TABLES_OF_ALL: u64 = 8;
/// The least memory of a machine with which everything else has all that it makes use of: five sixteenths of it are a
/// gigabyte.
const MACHINE_MIN: u64 = 4_000_000_000;
/// The longest log there is by itself; a small disk has a thirty-second of its size.
const LOG_MAX: u64 = 1 << 30;

impl Facts<'_> {
    /// What to buy beside the disks for this layout.
    pub(super) fn advice(&self, plan: &LayoutPlan) -> Vec<Advice> {
        let mut advice = vec![memory(plan)];
        advice.extend(self.journal());
        advice.push(Advice {
            about: "cache",
            bytes: None,
            words: "Cache: none has to be sized. Writes are gathered in memory and in the log until stripes are \
                    whole, or leave packed. What a write-back cache on solid-state disks adds (`weft vdisk create \
                    --write-cache`) is not in these figures."
                .into(),
        });
        advice
    }

    /// Disks for the log, where all disks have arms.
    fn journal(&self) -> Option<Advice> {
        let disks = &self.question.disks;
        let revolution = self.class.hdd()?.revolution as f64 / 1e6;
        let log = disks.iter().map(|disk| disk.size / 32).min()?.min(LOG_MAX);
        let has_flash = disks.iter().any(|disk| !disk.class.rotational());
        let how = match has_flash {
            true => "the solid-state disks among these serve best as that: usage=journal".to_string(),
            false => "`weft disk add POOL DISK --usage journal`".to_string(),
        };
        Some(Advice {
            about: "journal",
            bytes: Some(log),
            words: format!(
                "Journal: of use where many small writes are flushed (databases, virtual machines): a flush then waits \
                 for a solid-state disk, and not for {revolution:.1} ms and more of an arm. Two of them, so that one \
                 may fail; the log takes {} of each, so the smallest that are sold will do; {how}.",
                decimal(log)
            ),
        })
    }
}

/// Memory for the map of a full pool, beside what the engine takes for requests.
fn memory(plan: &LayoutPlan) -> Advice {
    let stripes = plan.usable / plan.layout.data_len().0;
    let tables = u64::from(Table::pages_of(&(0..stripes)).end) * PAGE_MEMORY;
    let machine = (tables * TABLES_OF_ALL).max(MACHINE_MIN).next_multiple_of(1_000_000_000);
    Advice {
        about: "memory",
        bytes: Some(machine),
        words: format!(
            "Memory: the map of a full pool takes {}, and what is under way up to 1.1 GB: a machine with {} has room \
             for both beside itself; with less, parts of the map are read when they are needed.",
            decimal(tables),
            decimal(machine)
        ),
    }
}

/// Bytes that may be written to at random while what is written lies packed.
pub(super) fn packed_working_set(plan: &LayoutPlan) -> u64 {
    let per_stripe = plan.layout.data_len().0 / BLOCK;
    let stripes = Tuning::default().fine_memory / Taken::by_stripe(per_stripe).memory;
    (stripes * plan.layout.data_len().0 * FINE_SHARE).min(plan.usable)
}
