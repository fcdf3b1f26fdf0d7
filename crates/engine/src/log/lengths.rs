//! How long what is appended to the log may be, and is.

use super::Log;
use crate::units::BLOCK;

impl Log {
    /// The most bytes that producers may append at once: longer data leaves as whole stripes instead.
    pub fn record_max(&self) -> u64 {
        self.state.borrow().ring / 8
    }

    /// The most bytes of landed data in one record: little is left over where a round of the ring ends.
    pub fn piece(&self) -> usize {
        let state = self.state.borrow();
        let most = if state.batch_max > 0 { (state.ring / 32).min(state.batch_max / 4) } else { state.ring / 32 };
        (most / BLOCK * BLOCK).max(BLOCK) as usize
    }

    /// Bytes of the pending records below `bound`.
    pub fn len_below(&self, bound: u64) -> u64 {
        let state = self.state.borrow();
        let count = bound.saturating_sub(state.durable) as usize;
        state.pending.iter().take(count).map(|record| record.len() as u64).sum()
    }
}
