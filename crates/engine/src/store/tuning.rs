//! What may be tuned: memory, times, and how much is done at once.

use crate::limits::BATCH_MAX;
use crate::units::Nanos;

/// What may be tuned; the defaults suit a server with some memory to spare.
#[derive(Clone, Copy, Debug)]
pub struct Tuning {
    /// Bytes of stripe buffers before writers wait.
    pub buffer_memory: u64,
    /// Bytes of checksum pages kept in memory.
    pub sheet_memory: u64,
    /// The longest a commit waits for company when nobody asks for it.
    pub commit_interval: Nanos,
    /// Stripe bytes per disk after which a commit is asked for: about what a hard disk takes in the commit interval.
    pub commit_bytes: u64,
    /// Data that lies in buffers only is landed after this long without writes.
    pub idle_land: Nanos,
    /// How long a slab is free before its disk is told that it need not be kept.
    pub discard_rest: Nanos,
    /// Bytes that are read ahead of clients who read in order, before they want them; 0: none.
    pub ahead_memory: u64,
    /// Bytes that a disk which seeks is given to write before those who read there have a turn.
    pub turn_bytes: u64,
    /// How long such a turn of the readers is.
    pub turn_time: Nanos,
    /// Bytes that such a disk is given to write between two commits while clients wait for flushes.
    pub flush_turn_bytes: u64,
    /// Stripe writes under way at once, per virtual disk.
    pub runs_in_flight: usize,
    /// Bytes per column written with one call.
    pub run_bytes: u64,
    /// A read that takes longer is answered from other disks, where there is redundancy.
    pub read_timeout: Nanos,
    /// The write timeout: a disk that takes longer for a write or a flush is taken out, where everything on it is safe
    /// without it.
    pub write_limit: Nanos,
    /// A disk that has shown so many bad blocks since the pool was opened, each counted anew once it was healed, is
    /// retired.
    pub bad_blocks_max: u64,
    /// A disk that has so often failed a write or a flush since the pool was opened is retired.
    pub failures_max: u64,
    /// How long clients wait for disks without which nothing can be written, or what they ask for not be read.
    pub freeze_limit: Nanos,
    /// Whether jobs begin by themselves: what is missing is rebuilt, what is back is brought up to date.
    pub auto_jobs: bool,
    /// About the most bytes that slots which move at once hold in memory.
    pub move_memory: u64,
    /// Bytes of reads of clients under way before others wait, and of writes.
    pub request_memory: u64,
    /// Bytes of pages of stripe tables kept in memory.
    pub table_memory: u64,
    /// How much of a virtual disk may lie in packed stripes, in thousandths of its size; 0: nothing is packed.
    pub fine_share: u64,
    /// How much of one on disks that do not seek may, if that is more and the pool has ample room: there what lies
    /// packed is read nearly as fast as what lies in order, and the more there is of it, the less it costs to put a
    /// stripe in order, for each unit.
    pub fine_share_flash: u64,
    /// Bytes of what says where units lie in packed stripes: where that is full, they are no more.
    pub fine_memory: u64,
    /// Bytes of what says where blocks lie in a read cache, for each: where that is full, the oldest are no more.
    pub shelf_memory: u64,
    /// The most bytes of a batch of the log, whole blocks: the end of the log is looked for within that. 0: an eighth
    /// of the log, and labels say nothing, as an older weft has it.
    pub batch_bytes: u64,
}

impl Default for Tuning {
    fn default() -> Tuning {
        Tuning {
            buffer_memory: 256 << 20,
            sheet_memory: 64 << 20,
            commit_interval: Nanos::secs(1),
            commit_bytes: 256 << 20,
            idle_land: Nanos::secs(5),
            discard_rest: Nanos::secs(10),
            ahead_memory: 128 << 20,
            turn_bytes: 32 << 20,
            turn_time: Nanos::millis(125),
            flush_turn_bytes: 8 << 20,
            runs_in_flight: 8,
            run_bytes: 1 << 20,
            read_timeout: Nanos::secs(1),
            write_limit: Nanos::secs(30),
            bad_blocks_max: 256,
            failures_max: 3,
            freeze_limit: Nanos::secs(30),
            auto_jobs: true,
            move_memory: 512 << 20,
            request_memory: 256 << 20,
            table_memory: 1 << 30,
            fine_share: 0,
            fine_share_flash: 0,
            fine_memory: 64 << 20,
            shelf_memory: 128 << 20,
            batch_bytes: BATCH_MAX.0,
        }
    }
}
