//! Long writes go to the volume in parts, each in memory of its own: what the allocator finds room for again and again.
//!
//! Invariant: the client has one answer, when all parts have theirs; an error of any of them is it.

use super::replies::Ticket;
use crate::export::{Op, Payload, Reply, Volume};
use std::sync::{Arc, Mutex, PoisonError};
use weft_engine::error::ErrorKind;

/// A write of which some parts have no answer yet.
struct Pending {
    left: usize,
    outcome: Result<Reply, ErrorKind>,
    /// Gone with the last answer.
    ticket: Option<Ticket>,
}

/// Queues `parts` to be written one behind the other from `offset` on; `ticket` is answered when all are written.
pub(super) fn write(volume: &dyn Volume, offset: u64, parts: Vec<Payload>, fua: bool, ticket: Ticket) {
    let pending = Pending { left: parts.len(), outcome: Ok(Reply::Done), ticket: Some(ticket) };
    let pending = Arc::new(Mutex::new(pending));
    let mut at = offset;
    for data in parts {
        let (offset, told) = (at, pending.clone());
        at += data.len() as u64;
        volume.queue(Op::Write { offset, data, fua }, Box::new(move |outcome| end(&told, outcome)));
    }
}

fn end(pending: &Mutex<Pending>, outcome: Result<Reply, ErrorKind>) {
    let mut pending = pending.lock().unwrap_or_else(PoisonError::into_inner);
    pending.left -= 1;
    if pending.outcome.is_ok() {
        pending.outcome = outcome;
    }
    if pending.left > 0 {
        return;
    }
    let outcome = std::mem::replace(&mut pending.outcome, Ok(Reply::Done));
    if let Some(ticket) = pending.ticket.take() {
        drop(pending);
        ticket.finish(outcome);
    }
}
