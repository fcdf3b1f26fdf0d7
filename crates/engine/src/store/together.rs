//! Several stripes read together: strips that lie side by side on a disk come with one call.
//!
//! 1. Each stripe has its plan.
//! 2. The reads of all plans are sorted by where they lie; neighbours become one call, across a small gap too where a
//!    head would pass over it anyway.
//! 3. Each stripe is proven from its part of what came. One for which anything failed is read again alone, by the rules
//!    of [`super::execute`].

use super::execute::{Outcome, Target, answer};
use super::lanes::{CHUNK, Reads, Work};
use super::{Store, join, lost};
use crate::error::Result;
use crate::io::{DiskError, IoSlice};
use crate::mutant::{self, Mutant};
use crate::segment::ahead::Fetch;
use crate::stripe::plan::{Plan, Want};
use crate::sync::begin;
use crate::units::{BLOCK, DiskNo, DiskOffset};
use alloc::boxed::Box;
use alloc::collections::BTreeSet;
use alloc::rc::Rc;
use alloc::string::String;
use alloc::vec::Vec;

/// The longest call that is made of several reads.
const CALL_MAX: u64 = 1 << 20;
/// Bytes between two reads that are worth reading where disks seek.
const GAP_MAX: u64 = 64 << 10;

/// What is wanted of one stripe: at most one range of blocks per column. Whoever asks has pinned the stripe.
pub struct Part {
    /// The stripe.
    pub target: Target,
    /// Its blocks.
    pub wants: Vec<Want>,
}

/// One read of one plan, and where on which disk it lies.
struct Single {
    disk: DiskNo,
    at: u64,
    len: u64,
    /// It is given up when it takes too long.
    in_time: bool,
    part: usize,
    read: usize,
}

/// Some of them with one call.
struct Call {
    disk: DiskNo,
    in_time: bool,
    at: u64,
    len: u64,
    singles: Vec<Single>,
}

/// What came of a read.
enum Came {
    Bytes(IoSlice),
    /// The error is about these blocks alone.
    Error(DiskError),
    /// Nothing: alone it may be different.
    Nothing,
}

impl Store {
    /// Reads parts of stripes, each as [`Store::read_stripe`] does; the answers in the same order. `fetch`: ahead of
    /// those who want them, so that others go first.
    pub async fn read_together(&self, parts: &[Part], fetch: Option<&Rc<Fetch>>) -> Vec<Result<Vec<IoSlice>>> {
        let sums = join(parts.iter().map(|part| self.sums_of(&part.target))).await;
        let chunk = fetch.map_or(CHUNK[0], |fetch| fetch.chunk.get());
        let mut work = Vec::new();
        let mut plans = Vec::with_capacity(parts.len());
        for (part, sums) in parts.iter().zip(&sums) {
            let plan = sums.is_ok().then(|| self.plan_read_in(&part.target, &part.wants, &BTreeSet::new(), chunk));
            let plan = plan.flatten();
            if let Some(plan) = &plan {
                self.note_work(part, plan, chunk, &mut work);
            }
            plans.push(plan);
        }
        let mut came: Vec<Vec<Came>> = Vec::with_capacity(parts.len());
        came.extend(plans.iter().map(|plan| plan.iter().flat_map(|plan| &plan.reads).map(|_| Came::Nothing).collect()));
        let by_disk = join(self.calls(parts, &plans).into_iter().map(|calls| self.run_calls(calls, fetch))).await;
        drop(work);
        for (part, read, what) in by_disk.into_iter().flatten() {
            came[part][read] = what;
        }
        let mut answers = Vec::with_capacity(parts.len());
        for (((part, sums), plan), came) in parts.iter().zip(sums).zip(plans).zip(came) {
            answers.push(self.conclude(part, sums, plan, came, fetch).await);
        }
        answers
    }

    async fn conclude(
        &self,
        part: &Part,
        sums: Result<Vec<u32>>,
        plan: Option<Plan>,
        came: Vec<Came>,
        fetch: Option<&Rc<Fetch>>,
    ) -> Result<Vec<IoSlice>> {
        let sums = sums?;
        if fetch.is_some_and(|fetch| fetch.cancelled.get()) {
            return Err(lost(String::from("nobody wants it any more")));
        }
        let Part { target, wants } = part;
        let Some(plan) = plan else { return self.read_alone(target, wants, &sums, false).await };
        let mut reads = Vec::with_capacity(came.len());
        for what in came {
            match what {
                Came::Bytes(slice) => reads.push(Ok(slice)),
                Came::Error(error) => reads.push(Err(error)),
                Came::Nothing => return self.read_alone(target, wants, &sums, false).await,
            }
        }
        match self.prove(target, &plan, &sums, reads) {
            Outcome::Sound(slices) => Ok(answer(target.layout, &plan, wants, slices)),
            _ => self.read_alone(target, wants, &sums, true).await,
        }
    }

    /// Tells the disks' lanes what is about to be read.
    fn note_work<'a>(&'a self, part: &Part, plan: &Plan, chunk: u64, work: &mut Vec<Work<'a>>) {
        for read in &plan.reads {
            if let Some((at, block)) = part.target.locate(read.slot, read.blocks.start) {
                let (offset, len) = (self.slab_offset(at, block).0, read.blocks.len() as u64 * BLOCK);
                work.push(self.traffic.lanes.plan(at.disk, offset, len, chunk));
            }
        }
    }

    /// The calls for some plans, those of each disk together.
    fn calls(&self, parts: &[Part], plans: &[Option<Plan>]) -> Vec<Vec<Call>> {
        let mut singles = Vec::new();
        for (nth, (part, plan)) in parts.iter().zip(plans).enumerate() {
            let Some(plan) = plan else { continue };
            let in_time = self.may_do_without(&part.target, plan);
            for (read, wanted) in plan.reads.iter().enumerate() {
                let Some((at, block)) = part.target.locate(wanted.slot, wanted.blocks.start) else { continue };
                let (offset, len) = (self.slab_offset(at, block).0, wanted.blocks.len() as u64 * BLOCK);
                singles.push(Single { disk: at.disk, at: offset, len, in_time, part: nth, read });
            }
        }
        singles.sort_unstable_by_key(|single| (single.disk, single.at, single.part, single.read));
        let mut disks: Vec<Vec<Call>> = Vec::new();
        for single in singles {
            let fresh = disks.last().is_none_or(|calls| calls[0].disk != single.disk);
            if fresh {
                disks.push(Vec::new());
            }
            let calls = disks.last_mut().expect("it was just made");
            let gap_max = if self.is_rotational(single.disk) { GAP_MAX } else { 0 };
            match calls.last_mut().filter(|call| call.takes(&single, gap_max)) {
                Some(call) => {
                    call.len = call.len.max(single.at + single.len - call.at);
                    call.singles.push(single);
                }
                None => calls.push(Call {
                    disk: single.disk,
                    in_time: single.in_time,
                    at: single.at,
                    len: single.len,
                    singles: alloc::vec![single],
                }),
            }
        }
        disks
    }

    /// Runs the calls to one disk, all at once, when it is their turn.
    async fn run_calls(&self, calls: Vec<Call>, fetch: Option<&Rc<Fetch>>) -> Vec<(usize, usize, Came)> {
        let disk = calls[0].disk;
        let last = &calls[calls.len() - 1];
        let (range, bytes) = (calls[0].at..last.at + last.len, calls.iter().map(|call| call.len).sum());
        let reads = Reads { disk, seeks: self.is_rotational(disk) && !self.is_stalled(disk), range, bytes };
        let pass = match fetch {
            None => self.traffic.lanes.wanted(reads).await,
            Some(fetch) => self.traffic.lanes.ahead(reads, fetch).await,
        };
        if fetch.is_some_and(|fetch| fetch.cancelled.get()) {
            return Vec::new();
        }
        let stalls = || self.is_stalled(disk) && !mutant::active(Mutant::StallsAreQueuedFor);
        // Others have found out meanwhile: what can be had without it is.
        if pass.waited() && stalls() && calls.iter().all(|call| call.in_time) {
            return Vec::new();
        }
        let calls = join(calls.into_iter().map(|call| self.run_call(call)));
        let came = if pass.is_ordered() {
            let mut calls = Box::pin(calls);
            let came = begin(calls.as_mut()).await;
            pass.begun();
            match came {
                Some(came) => came,
                None => calls.await,
            }
        } else {
            calls.await
        };
        if stalls() {
            pass.let_all_go();
        }
        if fetch.is_none_or(|fetch| fetch.urgent.get()) {
            self.read_ended(disk);
        }
        came.into_iter().flatten().collect()
    }

    async fn run_call(&self, call: Call) -> Vec<(usize, usize, Came)> {
        let (at, len) = (DiskOffset(call.at), call.len as usize);
        let read = match call.in_time {
            true => self.disk_read_in_time(call.disk, at, len).await,
            false => self.disk_read(call.disk, at, len).await.map(Some),
        };
        let alone = call.singles.len() == 1;
        let whole = read.map(|read| read.map(|buf| buf.freeze()));
        let cut = |single: Single| {
            let came = match &whole {
                Ok(Some(slice)) => {
                    let from = (single.at - call.at) as usize;
                    Came::Bytes(slice.slice(from..from + single.len as usize))
                }
                Err(error) if alone => Came::Error(*error),
                _ => Came::Nothing,
            };
            (single.part, single.read, came)
        };
        call.singles.into_iter().map(cut).collect()
    }
}

impl Call {
    fn takes(&self, single: &Single, gap_max: u64) -> bool {
        let end = self.at + self.len;
        let near = single.at <= end + gap_max;
        near && self.in_time == single.in_time && single.at + single.len - self.at <= CALL_MAX
    }
}
