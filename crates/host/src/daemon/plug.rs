//! Where the daemon meets the engine.

use super::Parts;
use super::engine::{HostEngine, HostExports};
use super::events::Journal;
use super::memory;
use crate::api::error::Answer;
use std::sync::Arc;
use weft_engine::store::Tuning;

/// The parts of the daemon that `weft serve` runs: the engine on its own thread, which goes by `tuning`, and the export
/// servers.
pub fn parts(tuning: Tuning) -> Answer<Parts> {
    let journal = Arc::new(Journal::default());
    let engine = HostEngine::start(journal.clone(), tuning)?;
    let exports = HostExports::new(engine.thread(), memory::for_clients(&tuning));
    Ok(Parts { engine: Arc::new(engine), exports: Arc::new(exports), journal })
}
