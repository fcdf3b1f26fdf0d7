//! Destage: a stripe that is still partial is merged with what is on the disks and leaves as a new whole stripe. This is the only place where a write
//! causes a read.

use super::{Vdisk, add};
use crate::error::Result;
use crate::store::join;
use crate::stripe::buffer::StripeBuffer;
use alloc::rc::Rc;
use alloc::vec;
use alloc::vec::Vec;

/// Bytes of the stripes that are destaged at once: enough of them that a disk can put their reads in order, few enough for memory.
const AT_ONCE: u64 = 64 << 20;
/// Partial stripes with more bytes than this together are too many to write them twice, first to the log.
const MANY: u64 = 8 << 20;
/// So many stripes that were written to last may be where streams go on.
const STREAMS: usize = 16;

/// How many stripes of `len` bytes are destaged at once.
pub fn destaged_at_once(len: u64) -> usize {
    (AT_ONCE / len).clamp(4, 64) as usize
}

impl Vdisk {
    /// Destages those of `stripes` that a flush would land at length, where there is much to land: what was written at the edges of large files, for
    /// one. They are on their way when this returns, or as they were.
    pub(super) async fn destage_bulk(self: &Rc<Self>, stripes: &[u64]) {
        let unlanded = |stripe: &u64| {
            let look = |buffer: &mut StripeBuffer| (buffer.unlanded_len() as u64, (buffer.touched, buffer.id));
            let (unlanded, touched) = self.with_filling(*stripe, look)?;
            (unlanded > 0).then_some((touched, *stripe, unlanded))
        };
        let mut partial: Vec<_> = stripes.iter().filter_map(unlanded).collect();
        if partial.iter().map(|(.., unlanded)| unlanded).sum::<u64>() < MANY {
            return;
        }
        partial.sort_unstable();
        partial.truncate(partial.len().saturating_sub(STREAMS));
        let len = self.stripe_len().0;
        let long = partial.into_iter().filter(|(.., unlanded)| *unlanded >= len / 4);
        let mut bulk: Vec<u64> = long.map(|(_, stripe, _)| stripe).collect();
        // As they lie: neighbours here are mostly neighbours on the disks.
        bulk.sort_unstable();
        for some in bulk.chunks(destaged_at_once(len)) {
            // One that cannot be merged is landed, like all others.
            join(some.iter().map(|stripe| self.destage(*stripe))).await;
        }
    }

    /// Completes the gathering buffer of `stripe`, if there is one, and sends it on its way.
    pub async fn destage(self: &Rc<Self>, stripe: u64) -> Result<()> {
        // An older version that flies must be the truth before the merge can read it.
        self.moved.until(|| self.flying(stripe).is_none()).await;
        let Some((id, holes)) = self.with_filling(stripe, |buffer| (buffer.id, buffer.holes())) else { return Ok(()) };
        if let (Some(first), Some(last)) = (holes.first(), holes.last()) {
            let (from, to) = (first.start, last.end);
            let start = stripe * self.layout().data_len().0;
            let mut bytes = vec![0; to - from];
            let read = self.read_below(start + from as u64..start + to as u64, &mut bytes).await?;
            add(&self.counters.read_for_write, read);
            let grown = self.with_filling(stripe, |buffer| {
                // A discard may have ended the buffer meanwhile, and a later write begun another: what was read is not its past.
                let before = buffer.memory();
                if buffer.id == id {
                    buffer.fill(from, &bytes);
                }
                buffer.memory() - before
            });
            self.store.buffered_changed(grown.unwrap_or(0) as i64);
        }
        if !self.forget_blank(stripe).await? {
            self.seal_if_whole(stripe);
        }
        Ok(())
    }

    /// Destages `stripe` and waits until it is committed (not: durable).
    pub async fn destage_and_wait(self: &Rc<Self>, stripe: u64) -> Result<()> {
        self.destage(stripe).await?;
        if let Some(sealed) = self.flying(stripe) {
            self.moved.until(|| !self.flying(stripe).is_some_and(|now| Rc::ptr_eq(&now, &sealed))).await;
        }
        Ok(())
    }

    /// Stripes with a gathering buffer, the longest untouched first.
    pub fn gathering(&self) -> Vec<u64> {
        let stripes = self.stripes.borrow();
        let mut found: Vec<_> = stripes
            .iter()
            .filter_map(|(stripe, gathering)| Some((gathering.filling.as_ref()?.touched, *stripe)))
            .collect();
        found.sort_unstable();
        found.into_iter().map(|(_, stripe)| stripe).collect()
    }
}
