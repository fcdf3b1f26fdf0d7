//! Clients whose requests the thread that does them takes from their sockets itself.

use super::PayloadPool;
use socket2::Socket;
use std::sync::Arc;

/// Bytes that are read from a guest's socket with one call.
pub const GUEST_BYTES: usize = 64 << 10;

/// A connection that lends its input to a volume's thread.
pub trait Guest: Send + Sync {
    /// Where its requests come from.
    fn socket(&self) -> Arc<Socket>;

    /// There may be something to read: takes what there is, up to what fits into `scratch`, [`GUEST_BYTES`] of whatever
    /// was there before; the bytes of writes go to `buffers`. `false`: the guest wants its input back. Never waits, and
    /// never blocks the thread for longer than copying takes.
    fn serve(&self, scratch: &mut [u8], buffers: &Arc<PayloadPool>) -> bool;

    /// The guest has its input back: the end of a [`Visit`].
    fn leave(&self);
}

/// A guest that has lent its input; it has that back when this is dropped.
pub struct Visit(Arc<dyn Guest>);

impl Visit {
    /// `guest` has lent its input.
    pub fn new(guest: Arc<dyn Guest>) -> Visit {
        Visit(guest)
    }

    /// Who it is.
    pub fn guest(&self) -> &dyn Guest {
        &*self.0
    }
}

impl Drop for Visit {
    fn drop(&mut self) {
        self.0.leave();
    }
}
