//! A tree beside its model: each does what the other does, and whatever is read is compared.

extern crate std;
use super::super::{At, KeyRange, Outcome, Result as TreeResult, Tree, TreeError, Wishes};
use super::disk::{Disk, pause};
use super::*;
use std::cell::{Cell, RefCell};
use std::format;

/// Both.
pub struct World {
    pub disk: Disk,
    pub tree: Tree<Disk>,
    pub budget_pages: usize,
    openings: u64,
    /// The newest state.
    pub head: RefCell<Model>,
    /// What each root that may be durable has: the last one, and those that are on their way.
    pub roots: RefCell<BTreeMap<u64, State>>,
    pub checkpoints: Cell<u64>,
    pub crashes: Cell<u64>,
    pub height_max: Cell<u16>,
}

/// What a root should have.
#[derive(Clone, Default)]
pub struct State {
    pub head: Model,
    pub versions: BTreeMap<u64, Model>,
}

impl World {
    pub fn new(seed: u64, budget_pages: usize) -> World {
        World::of(Disk::new(TINY, seed), State::default(), 1, budget_pages)
    }

    /// A world in which `disk` has `state`.
    pub fn of(disk: Disk, state: State, openings: u64, budget_pages: usize) -> World {
        let tree = open(&disk, TINY, openings, budget_pages);
        let number = tree.root().number;
        World {
            disk,
            tree,
            budget_pages,
            openings,
            head: RefCell::new(state.head.clone()),
            roots: RefCell::new([(number, state)].into()),
            checkpoints: Cell::default(),
            crashes: Cell::default(),
            height_max: Cell::default(),
        }
    }

    /// What the root that is the truth should have.
    pub fn state(&self) -> State {
        self.roots.borrow()[&self.tree.root().number].clone()
    }

    /// One change, of both.
    pub fn change(&self, rng: &mut Rng) {
        let mut head = self.head.borrow_mut();
        let key = rng.key();
        match rng.below(100) {
            0..3 => {
                let range = rng.range();
                self.tree.clear(range);
                head.retain(|key, _| !range.contains(*key));
            }
            3..25 => {
                self.tree.delete(key);
                head.remove(&key);
            }
            _ => {
                let value = rng.value(Shape::new(TINY).value_max());
                self.tree.put(key, &value);
                head.insert(key, value);
            }
        }
    }

    /// Reads something, and compares. While the disk has no power, errors are in order.
    pub async fn read(&self, rng: &mut Rng) -> Judged<()> {
        let numbers: Vec<u64> = self.state().versions.keys().copied().collect();
        let version = (!numbers.is_empty() && rng.one_in(3)).then(|| numbers[rng.below(numbers.len() as u64) as usize]);
        let Some(number) = version else { return self.read_head(rng).await };
        let model = self.state().versions[&number].clone();
        let range = rng.range();
        let answer = self.tree.scan(At::Version(number), range, usize::MAX).await;
        let Some(scanned) = self.allowed(answer, number)? else { return Ok(()) };
        ensure!(same(&model, range, &scanned.entries), "version {number} is not as it was in {range:?}");
        Ok(())
    }

    /// Reads a key, or a range, of the head. Changes may come meanwhile, so what is compared is a key.
    async fn read_head(&self, rng: &mut Rng) -> Judged<()> {
        let key = rng.key();
        let expected = self.head.borrow().get(&key).cloned();
        let answer = self.tree.get(At::Head, key).await;
        let Some(value) = self.allowed(answer, 0)? else { return Ok(()) };
        ensure!(value.as_deref() == expected.as_deref(), "{key:?} is {value:?}, not {expected:?}");
        Ok(())
    }

    /// Reads all of the head, `limit` entries at a time, while nothing changes.
    pub async fn read_all(&self, range: KeyRange, limit: usize) -> Judged<()> {
        let mut rest = Some(range);
        let mut entries = Vec::new();
        while let Some(range) = rest {
            let scanned = self.tree.scan(At::Head, range, limit).await.map_err(|error| format!("{error}"))?;
            ensure!(scanned.entries.len() <= limit, "{} entries of {limit}", scanned.entries.len());
            entries.extend(scanned.entries);
            rest = scanned.next.map(|next| KeyRange::new(next, range.last));
        }
        ensure!(same(&self.head.borrow(), range, &entries), "the head is not as it should be in {range:?}");
        Ok(())
    }

    /// An answer, none if there need not be one, or what is wrong. (A version may go while it is read.)
    fn allowed<T>(&self, answer: TreeResult<T>, version: u64) -> Judged<Option<T>> {
        match answer {
            Ok(value) => Ok(Some(value)),
            Err(TreeError::Failed(_)) if self.disk.get().is_dead => Ok(None),
            Err(TreeError::NoVersion(number)) if number == version => Ok(None),
            Err(error) => Err(format!("reading: {error}")),
        }
    }

    /// A checkpoint, of both. None if the disk failed.
    pub async fn checkpoint(&self, wishes: Wishes) -> Judged<Option<Outcome>> {
        let number = self.tree.state.borrow().next;
        let mut state = State { head: self.head.borrow().clone(), versions: self.state().versions };
        for version in &wishes.drop {
            state.versions.remove(version);
        }
        if wishes.keep {
            state.versions.insert(number, state.head.clone());
        }
        self.roots.borrow_mut().insert(number, state);
        match self.tree.checkpoint(wishes).await {
            Ok(outcome) => {
                ensure!(outcome.stuck.is_empty() && outcome.leaked.is_empty(), "nothing is damaged: {outcome:?}");
                self.checkpoints.set(self.checkpoints.get() + 1);
                let height = self.tree.root().content.map_or(0, |top| top.level + 1);
                self.height_max.set(self.height_max.get().max(height));
                Ok(Some(outcome))
            }
            Err(TreeError::Failed(_)) => {
                // It may be tried again, but not under this number. (Whoever has no power knows nothing.)
                if !self.disk.get().is_dead {
                    self.roots.borrow_mut().remove(&number);
                }
                Ok(None)
            }
            Err(TreeError::InDoubt(_)) => Ok(None),
            Err(error) => Err(format!("checkpoint: {error}")),
        }
    }

    /// Takes the newest state for that of the root that is the truth: for who made one without [`World::checkpoint`].
    pub fn note_root(&self, before: &State) {
        let state = State { head: self.head.borrow().clone(), versions: before.versions.clone() };
        self.roots.borrow_mut().insert(self.tree.root().number, state);
    }

    /// Changes and reads while something else is going on.
    pub async fn meanwhile(&self, rng: &mut Rng, steps: u64) -> Judged<()> {
        for _ in 0..steps {
            pause(rng.below(6)).await;
            if rng.one_in(2) {
                self.change(rng);
            } else {
                self.read(rng).await?;
            }
            self.budget_is_kept()?;
        }
        Ok(())
    }

    pub fn budget_is_kept(&self) -> Judged<()> {
        let (used, budget) = (self.tree.cached(), self.budget_pages * (4096 + 256));
        ensure!(used <= budget, "{used} bytes of pages with a budget of {budget}");
        Ok(())
    }

    /// Opens the tree again, after the power went or in peace: what was not in a checkpoint is gone.
    pub fn reopen(&mut self) -> Judged<()> {
        self.disk.reboot();
        self.openings += 1;
        self.tree = open(&self.disk, TINY, self.openings, self.budget_pages);
        let number = self.tree.root().number;
        let state = self.roots.borrow().get(&number).cloned();
        let Some(state) = state else { return Err(format!("nobody made root {number}")) };
        *self.head.borrow_mut() = state.head.clone();
        *self.roots.borrow_mut() = [(number, state)].into();
        Ok(())
    }

    /// Compares all that is in pages, and their places, with what should be there.
    pub fn judge(&self) -> Judged<()> {
        let state = self.state();
        let report = run(self.tree.verify()).map_err(|error| format!("verify: {error}"))?;
        ensure!(report.findings.is_empty(), "{:?}", report.findings);
        ensure!(report.entries == state.head.len() as u64, "{} entries, not {}", report.entries, state.head.len());
        let versions = run(self.tree.versions()).map_err(|error| format!("versions: {error}"))?;
        ensure!(versions.iter().eq(state.versions.keys()), "versions {versions:?}");
        ensure!(!state.versions.is_empty() || report.dead == 0, "{} dead pages without a version", report.dead);
        for (number, model) in &state.versions {
            let scanned = run(self.tree.scan(At::Version(*number), KeyRange::ALL, usize::MAX));
            let scanned = scanned.map_err(|error| format!("version {number}: {error}"))?;
            ensure!(same(model, KeyRange::ALL, &scanned.entries), "version {number} is not as it was");
        }
        run(self.read_all(KeyRange::ALL, usize::MAX))?;
        self.budget_is_kept()
    }
}

/// Whether these are the entries of `model` in `range`.
pub fn same(model: &Model, range: KeyRange, entries: &[(Key, super::super::Value)]) -> bool {
    let expected = model.range(range.first..=range.last);
    expected.map(|(key, value)| (*key, &value[..])).eq(entries.iter().map(|(key, value)| (*key, &value[..])))
}
