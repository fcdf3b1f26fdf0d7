//! Scrub: every strip in use, parity included, and every copy of the metadata is read and proven; what is wrong is
//! rewritten. Goes on after a restart with the segment it had come to.

use super::super::Pool;
use super::super::moves::PAGES_AT_ONCE;
use super::{Halt, Ticket};
use crate::error::ErrorKind;
use crate::format::record::{JobState, OWNER_METADATA};
use crate::store::execute::Target;
use crate::store::proof::Proof;
use crate::store::{Store, join};
use crate::stripe::table::Place;
use crate::units::{DiskNo, SegmentNo};
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

/// Raw bytes that are read at once.
const AT_ONCE: u64 = 32 << 20;

impl Pool {
    /// Reads and proves everything in use, and rewrites what is wrong. What there is to say in the end.
    pub(super) async fn scrub(&self, ticket: &Ticket) -> core::result::Result<String, Halt> {
        let before = bad_blocks(&self.store);
        ticket.expect(self.bytes_from(SegmentNo(ticket.cursor.get())));
        while let Some(segment) = self.next_segment(SegmentNo(ticket.cursor.get())) {
            self.prove_segment(segment, ticket).await?;
            ticket.cursor.set(segment.next().0);
            self.save(ticket, JobState::Running);
        }
        // What counts as healed must stay so when the power goes.
        self.store.flush_all(self.store.unflushed()).await;
        self.note_scrubbed();
        let (bad, healed) = (ticket.bad.get(), ticket.healed.get());
        if bad == 0 {
            return Ok("everything is as it was written".into());
        }
        let by_disk: Vec<String> = bad_blocks(&self.store)
            .into_iter()
            .filter_map(|(no, (name, count))| {
                let count = count - before.get(&no).map_or(0, |(_, before)| *before).min(count);
                (count > 0).then(|| format!("{name}: {count}"))
            })
            .collect();
        let found = format!("{bad} bad blocks, {healed} of them rewritten ({})", by_disk.join(", "));
        if healed < bad { super::stuck(ErrorKind::Lost, found) } else { Ok(found) }
    }

    async fn prove_segment(&self, segment: SegmentNo, ticket: &Ticket) -> core::result::Result<(), Halt> {
        let Some((metadata, raw)) = ({
            let map = self.store.map.borrow();
            map.segments
                .get(&segment)
                .map(|found| (found.record.owner == OWNER_METADATA, found.record.layout.raw_len().0))
        }) else {
            return Ok(());
        };
        if metadata {
            // When a page was written anew, the other slot of each copy may still be damaged.
            if self.prove_metadata(segment, ticket).await? {
                self.checkpoint().await?;
                self.prove_metadata(segment, ticket).await?;
            }
            return Ok(());
        }
        let at_once = (AT_ONCE / raw).clamp(1, 64) as usize;
        let mut next = 0;
        loop {
            let group: Vec<u32> = {
                let map = self.store.map.borrow();
                let Some(found) = map.segments.get(&segment) else { return Ok(()) };
                (next..found.free.len() as u32).filter(|index| found.in_use(*index)).take(at_once).collect()
            };
            let Some(last) = group.last() else { return Ok(()) };
            next = last + 1;
            for (bad, healed) in join(group.iter().map(|index| self.prove(Place::at(segment, *index)))).await {
                ticket.bad.set(ticket.bad.get() + bad);
                ticket.healed.set(ticket.healed.get() + healed);
            }
            ticket.step(&self.store, raw * group.len() as u64).await?;
        }
    }

    /// Proves the pages of a metadata segment. Says whether some are to be written anew from memory.
    async fn prove_metadata(&self, segment: SegmentNo, ticket: &Ticket) -> core::result::Result<bool, Halt> {
        let mut dirty = false;
        for group in self.pages_of(segment).chunks(PAGES_AT_ONCE) {
            // Copies on disks that do not answer are no finding of a scrub.
            let (proofs, _) = self.prove_group(group, true).await;
            dirty |= proofs.iter().any(|(_, proof)| matches!(proof, Ok(Proof::Behind { .. })));
            ticket.step(&self.store, 0).await?;
        }
        for blocks in self.store.tree_blocks_in(segment).chunks(PAGES_AT_ONCE) {
            // What cannot be told now is told by a check, and by who needs it.
            dirty |= self.prove_tree_group(segment, blocks, true).await.is_ok_and(|proof| !proof.lost.is_empty());
            ticket.step(&self.store, 0).await?;
        }
        Ok(dirty)
    }

    /// Bad and healed blocks of one stripe; none if it is gone meanwhile. Strips whose disk is away are no finding of a
    /// scrub.
    async fn prove(&self, place: Place) -> (u64, u64) {
        {
            let mut map = self.store.map.borrow_mut();
            if !map.segments.get(&place.segment).is_some_and(|found| found.in_use(place.index)) {
                return (0, 0);
            }
            map.pin(place);
        }
        let proven = match Target::new(&self.store, place) {
            Some(target) => {
                let proven = self.store.prove_stripe(&target).await;
                proven.map_or((0, 0), |proven| (proven.bad(), proven.healed))
            }
            None => (0, 0),
        };
        let records = self.store.map.borrow_mut().unpin(place);
        self.store.append_all(records);
        proven
    }

    fn next_segment(&self, from: SegmentNo) -> Option<SegmentNo> {
        self.store.map.borrow().segments.range(from..).next().map(|(id, _)| *id)
    }

    /// Raw bytes in use in the segments from `from` on.
    fn bytes_from(&self, from: SegmentNo) -> u64 {
        let map = self.store.map.borrow();
        let data = map.segments.range(from..).filter(|(_, found)| found.record.owner != OWNER_METADATA);
        data.map(|(_, found)| (found.free.len() - found.free.count()) as u64 * found.record.layout.raw_len().0).sum()
    }

    fn note_scrubbed(&self) {
        let now = self.unix_now();
        if now == 0 {
            return;
        }
        let settings = {
            let mut map = self.store.map.borrow_mut();
            map.notes.settings.scrubbed = now;
            map.notes.settings
        };
        self.store.append_all(alloc::vec![crate::format::record::Record::Settings(settings)]);
    }
}

/// Bad blocks that each disk has shown since the pool was opened: number -> (name, count).
fn bad_blocks(store: &Store) -> BTreeMap<DiskNo, (String, u64)> {
    let members = store.members.borrow();
    let map = store.map.borrow();
    let name = |no: &DiskNo| map.disks.get(no).map_or_else(|| no.to_string(), |disk| disk.record.name.clone());
    members.iter().map(|(no, member)| (*no, (name(no), member.counters.bad_blocks))).collect()
}
