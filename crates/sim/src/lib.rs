//! Simulated disks, clock and faults around the unchanged engine.
//!
//! [`world::SimWorld`] is the clock and the scheduler, [`disk::SimDisk`] a disk with a volatile cache and every fault
//! we know of, [`timing`] says how long a disk takes. Everything follows from one seed: the same seed gives the same
//! [`world::SimWorld::trace_hash`].
#![warn(missing_docs)]

pub mod apart;
pub mod blink;
pub mod cached_reads;
pub mod cached_writes;
pub mod capacity;
pub mod disk;
pub mod exhaustive;
pub mod figures;
pub mod fine;
pub mod flushes;
pub mod follower;
pub mod growth;
pub mod held;
pub mod many;
pub mod mixed;
pub mod mkpool;
pub mod oracle;
pub mod pinned;
pub mod quorum;
pub mod random_writes;
pub mod read_ahead;
pub mod rebuild;
pub mod refill;
pub mod removal;
pub mod rig;
pub mod rng;
pub mod sample;
pub mod spread;
pub mod storm;
pub mod stream_reads;
pub mod streams;
pub mod timed;
pub mod timing;
pub mod tree;
pub mod wide;
pub mod work;
pub mod world;
