//! Every test of the simulator but that of the planted bugs, in one program: each program compiles the engine's tasks
//! anew, and thirty of them took longer to build than to run.

mod apart;
mod batches;
mod blink;
mod budgets;
mod cached_writes;
mod change;
mod configuration;
mod copies;
mod dump;
mod exhaustive;
mod fine;
mod flushes;
mod follower;
mod forged;
mod heat;
mod hollow;
mod invariants;
mod lineage;
mod lists;
mod log_moves;
mod mkpool;
mod order;
mod outages;
#[path = "../mutants/mod.rs"]
mod planted;
mod power;
mod quorum;
mod read_ahead;
mod rebuild;
mod removal;
mod review;
mod setting;
mod space;
mod spread;
mod stalls;
mod stories;
mod storm;
mod story;
mod streams;
mod tables;
mod tiers;
mod tree;
mod upkeep;
mod wide;
