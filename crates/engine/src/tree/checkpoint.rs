//! The checkpoint: what is in memory becomes pages, and a new root becomes the truth.
//!
//! In this order, and at each step the root before is whole on the disks:
//!
//! 1. **Freeze**: the layer of changes becomes the batch of this checkpoint. What changes from now on goes to a new
//!    layer above it; readers look into both.
//! 2. **Drop** the versions that are to go: the ledger tells which places nobody reaches without them.
//! 3. **Merge** the batch into the content, from the leaves up. What the content gives up is freed or dead.
//! 4. **Note** the dead, and the version if this state is kept, in the ledger: a merge, too.
//! 5. **Write** all pages that were made (some were written while others were made), then flush.
//! 6. **Publish** the root: it is the truth, and what it frees is free, in one step.
//! 7. **Install**: readers who come now use the new root; the batch is let go.
//!
//! Invariants
//! 1. One checkpoint at a time. Its pages are at places that were free, and have its number as their birth. A number is
//!    used once: a checkpoint that failed leaves its number, and its pages are nobody's.
//! 2. The root is published only when all that it refers to is durable.
//! 3. A checkpoint that fails before it publishes changes nothing: its places are given back, its batch goes back below
//!    what has changed since.
//! 4. Who publishes roots himself, along with what else he has to publish, prepares (1 to 5), makes the root the truth,
//!    and then has it installed (6 and 7); or cancels, if no root was written, which is 3.
//! 5. While it is not known whether a root was published, nothing is written: both are whole, and stay so.
//! 6. Changes that could not be merged stay in memory, and are told.

use super::changes::{Changes, Touch};
use super::edit::{Made, Merge};
use super::error::{Lost, Result, TreeError, Which};
use super::key::KeyRange;
use super::mutant::{Mutant, active};
use super::page::{Page, PageRef};
use super::store::{PageStore, Place, Root};
use super::version::{Versions, bury, note_version};
use super::{State, Tree};
use crate::error::Error;
use crate::sync::{TurnGuard, join_all};
use alloc::rc::Rc;
use alloc::vec::Vec;

/// How many pages are written at once.
const WRITES: usize = 64;

/// What a checkpoint does beside writing what changed.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Wishes {
    /// Keep the state it writes as a version. Its number is the checkpoint's.
    pub keep: bool,
    /// Versions to drop, by number.
    pub drop: Vec<u64>,
}

/// What a checkpoint did.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Outcome {
    /// The number of the root that is the truth now.
    pub number: u64,
    /// Pages that were written.
    pub written: u64,
    /// Places that were freed.
    pub freed: u64,
    /// Pages of the head that became several.
    pub splits: u64,
    /// Pages of the head that became one with a neighbour.
    pub joins: u64,
    /// Pages that no copy has, below which changes could not be written: those stay in memory.
    pub stuck: Vec<Lost>,
    /// Pages that no copy has, and that are not needed any more: the places of what was below them are not known.
    pub leaked: Vec<Lost>,
}

/// A checkpoint whose pages are durable, and whose root is not the truth yet. No other one runs meanwhile.
#[must_use = "it is published, cancelled or left in doubt"]
pub struct Prepared<'a> {
    batch: Rc<Changes>,
    work: Work,
    early: Option<crate::error::Result<()>>,
    _turn: TurnGuard<'a>,
}

impl Prepared<'_> {
    /// What is to be the truth.
    pub fn root(&self) -> Root {
        self.work.root
    }

    /// The places that are free with it.
    pub fn freed(&self) -> &[Place] {
        &self.work.freed
    }

    /// Whether changes of keys of `range` could not be merged, and are not in what is to be the truth.
    pub fn is_stuck(&self, range: KeyRange) -> bool {
        let stuck = self.work.content_stuck.iter().filter_map(|lost| lost.range.common(&range));
        stuck.into_iter().any(|common| self.batch.touch(common) != Touch::Nothing)
    }
}

/// A checkpoint on its way.
#[derive(Default)]
struct Work {
    root: Root,
    versions: Versions,
    ledger: Changes,
    content_stuck: Vec<Lost>,
    ledger_stuck: Vec<Lost>,
    born: Vec<Place>,
    freed: Vec<Place>,
    outcome: Outcome,
}

impl<S: PageStore> Tree<S> {
    /// Writes what changed before this call, and makes it the truth.
    pub async fn checkpoint(&self, wishes: Wishes) -> Result<Outcome> {
        match self.prepare(wishes).await? {
            None => Ok(Outcome { number: self.root().number, ..Outcome::default() }),
            Some(prepared) => self.publish(prepared).await,
        }
    }

    /// Steps 1 to 5: what changed before this call is durable in pages, and what is to be the truth is told. None if
    /// nothing changed. Must be published, cancelled or left in doubt.
    pub async fn prepare(&self, wishes: Wishes) -> Result<Option<Prepared<'_>>> {
        let turn = self.turn.take().await;
        let (number, batch) = {
            let mut state = self.state.borrow_mut();
            if let Some(error) = &state.in_doubt {
                return Err(TreeError::InDoubt(error.clone()));
            }
            if state.active.is_empty() && state.owed.is_empty() && wishes == Wishes::default() {
                return Ok(None);
            }
            state.freeze()
        };
        let written_before = self.written.get();
        let mut work = Work { root: Root { number, ..self.root() }, ..Work::default() };
        if let Err(error) = self.build(&wishes, &batch, &mut work).await {
            self.undo(batch, &work.born);
            return Err(error);
        }
        let early = active(Mutant::RootBeforePages);
        let early = if early { Some(self.store.publish(work.root, work.freed.clone()).await) } else { None };
        if let Err(error) = self.write_out().await {
            self.undo(batch, &work.born);
            return Err(error);
        }
        work.outcome.written = self.written.get() - written_before;
        Ok(Some(Prepared { batch, work, early, _turn: turn }))
    }

    /// Prepares a root that has nothing: no entry and no version; what changed before this call goes, too. It needs no
    /// place, and reads no page.
    pub async fn prepare_empty(&self) -> Result<Prepared<'_>> {
        let turn = self.turn.take().await;
        if let Some(error) = &self.state.borrow().in_doubt {
            return Err(TreeError::InDoubt(error.clone()));
        }
        let (number, batch) = self.state.borrow_mut().freeze();
        let freed = self.store.allocated().into_iter().collect();
        let work = Work { root: Root { number, ..Root::default() }, freed, ..Work::default() };
        Ok(Prepared { batch, work, early: None, _turn: turn })
    }

    /// Steps 6 and 7.
    pub async fn publish(&self, prepared: Prepared<'_>) -> Result<Outcome> {
        let published = match &prepared.early {
            Some(published) => published.clone(),
            None => self.store.publish(prepared.work.root, prepared.work.freed.clone()).await,
        };
        match published {
            Ok(()) => Ok(self.install(prepared.batch, prepared.work)),
            Err(error) => Err(self.doubt(prepared, error)),
        }
    }

    /// Gives up what was prepared: nobody was told of its root, and nobody ever will be.
    pub fn cancel(&self, prepared: Prepared<'_>) {
        self.undo(prepared.batch, &prepared.work.born);
    }

    /// Leaves what was prepared as it is: whether its root is the truth is not known, because of `error`.
    pub fn doubt(&self, prepared: Prepared<'_>, error: Error) -> TreeError {
        drop(prepared);
        self.state.borrow_mut().in_doubt = Some(error.clone());
        TreeError::InDoubt(error)
    }

    /// Steps 2 to 4.
    async fn build(&self, wishes: &Wishes, batch: &Changes, work: &mut Work) -> Result<()> {
        let number = work.root.number;
        self.read_versions().await?;
        work.versions = self.versions.borrow().clone().expect("it was just read");
        work.ledger = self.state.borrow().owed.clone();
        for version in &wishes.drop {
            self.drop_version(*version, &mut work.versions, &mut work.ledger, &mut work.freed).await?;
        }
        let (content, made) = Merge::new(self, Which::Content, number, batch).run(work.root.content).await;
        for page in work.take_note(Which::Content, made) {
            bury(page, number, &work.versions, &mut work.ledger, &mut work.freed);
        }
        work.root.content = content?;
        if wishes.keep {
            note_version(&mut work.ledger, number, work.root.content);
            work.versions.insert(number, work.root.content);
        }
        let (ledger, made) = Merge::new(self, Which::Ledger, number, &work.ledger).run(work.root.ledger).await;
        let died = work.take_note(Which::Ledger, made);
        work.freed.extend(died.iter().map(|page| page.place));
        work.root.ledger = ledger?;
        // Versions are made and dropped whole, or not at all.
        let whole = work.ledger_stuck.first().or(work.content_stuck.first().filter(|_| wishes.keep));
        match whole.filter(|_| *wishes != Wishes::default()) {
            Some(lost) => Err(TreeError::Lost(*lost)),
            None => Ok(()),
        }
    }

    /// Step 5: writes every page that is not durable yet, and flushes.
    pub(super) async fn write_out(&self) -> Result<()> {
        let pages = self.cache.borrow().dirty_pages();
        for some in pages.chunks(WRITES) {
            let write = |page: &Rc<Page>| self.store.write(page.at.place, page.image.clone());
            for written in join_all(some.iter().map(write).collect()).await {
                written.map_err(TreeError::Failed)?;
            }
        }
        self.written.set(self.written.get() + pages.len() as u64);
        if !pages.is_empty() && !active(Mutant::FlushForgotten) {
            self.store.flush().await.map_err(TreeError::Failed)?;
        }
        self.cache.borrow_mut().settle(&pages);
        Ok(())
    }

    /// Step 7.
    fn install(&self, batch: Rc<Changes>, work: Work) -> Outcome {
        let Work { root, versions, ledger, content_stuck, ledger_stuck, freed, mut outcome, .. } = work;
        {
            let mut state = self.state.borrow_mut();
            state.root = root;
            state.frozen = None;
            state.owed = ledger.within(&ranges(&ledger_stuck));
            let newer = core::mem::take(&mut state.active);
            if !content_stuck.is_empty() && !active(Mutant::StuckForgotten) {
                state.active = batch.within(&ranges(&content_stuck));
            }
            if !active(Mutant::CheckpointSkipsChanged) {
                state.active.absorb(newer);
            }
        }
        *self.versions.borrow_mut() = Some(versions);
        for place in &freed {
            self.cache.borrow_mut().remove(*place);
        }
        self.release();
        outcome.number = root.number;
        outcome.freed = freed.len() as u64;
        outcome.stuck = content_stuck.into_iter().chain(ledger_stuck).collect();
        outcome
    }

    /// Invariant 3.
    fn undo(&self, batch: Rc<Changes>, born: &[Place]) {
        for place in born {
            self.cache.borrow_mut().remove(*place);
        }
        if !active(Mutant::FailedCheckpointLeaks) {
            self.store.abandon(born);
        }
        let mut state = self.state.borrow_mut();
        state.frozen = None;
        let newer = core::mem::replace(&mut state.active, Rc::unwrap_or_clone(batch));
        state.active.absorb(newer);
    }
}

impl State {
    /// Step 1: the number of a new checkpoint, and its batch.
    fn freeze(&mut self) -> (u64, Rc<Changes>) {
        let batch = Rc::new(core::mem::take(&mut self.active));
        self.frozen = Some(batch.clone());
        let number = self.next;
        self.next += 1;
        (number, batch)
    }
}

impl Work {
    /// Takes over what a merge did; the pages that died are the caller's.
    fn take_note(&mut self, which: Which, made: Made) -> Vec<PageRef> {
        let Made { born, died, stuck, leaked, splits, joins } = made;
        self.born.extend(born);
        self.outcome.leaked.extend(leaked);
        match which {
            Which::Content => {
                self.content_stuck = stuck;
                self.outcome.splits = splits;
                self.outcome.joins = joins;
            }
            Which::Ledger => self.ledger_stuck = stuck,
        }
        died
    }
}

fn ranges(lost: &[Lost]) -> Vec<KeyRange> {
    lost.iter().map(|lost| lost.range).collect()
}
