//! The exhaustive twin of the storm: on tiny pools, every crash point x every power cut x every tolerated loss of
//! disks.
//!
//! A *crash point* is the number of the last disk operation that happens. A *power cut* decides about every unflushed
//! write; which ones are tried is said in [`cases`]. A *tolerated loss* takes as many disks as the layout survives,
//! those that vanished during the script counted. For each, the pool must open, hold what the oracle allows, and prove
//! sound. For a systematic sample the search goes on: more writes, a flush, a clean crash, another opening, also with a
//! lost disk back with its old content; and a second power cut at every operation of the opening itself.
//!
//! Two reductions leave the result as it is:
//! 1. A crash point whose power cuts are all power cuts of the next one (the operation between them was no end of a
//!    flush) is not tried by itself: the judge only gets stricter about what is on the disks then.
//! 2. The same disk contents are opened once. What was found there is judged again for every crash point that leads to
//!    it.
//! 3. A crash point that another scene has had, with the same disks, the same unflushed writes and the same judge, is
//!    not tried again: scenes that begin alike share their beginning, the opening of the pool first of all.

pub mod cases;
pub mod scene;

use crate::disk::{DiskImage, Fate, SimDisk};
use crate::oracle::Oracle;
use crate::rng::fold;
use crate::sample::part_of;
use cases::{Case, Cut, fates, losses, write_fates};
use scene::{Halt, Machine, Scene, Step, scene_oracle, scripts, shapes};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use weft_engine::units::{SECTOR, VirtualOffset};

/// What to search.
#[derive(Clone, Debug)]
pub struct Options {
    /// Only scenes whose name (`mirror2/rewrite`) contains this.
    pub only: String,
    /// Only this part of them; see [`part_of`].
    pub part: Option<usize>,
    /// All subsets of up to so many unflushed writes; see [`cases`].
    pub full_max: usize,
    /// The search uses the pool on after one in so many distinct disk contents.
    pub use_on: u64,
    /// The search cuts the opening after one in so many distinct disk contents.
    pub cut_again: u64,
    /// Stop after so many openings.
    pub limit: Option<u64>,
}

impl Default for Options {
    /// The set that CI runs.
    fn default() -> Options {
        Options { only: String::new(), part: None, full_max: 9, use_on: 61, cut_again: 3001, limit: None }
    }
}

/// What a search without a failure has tried.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Summary {
    /// Shapes x scripts.
    pub scenes: u64,
    /// Crash points.
    pub crash_points: u64,
    /// Crash points that the next one covers.
    pub covered: u64,
    /// Crash points that were tried in another scene already.
    pub shared: u64,
    /// Crash point x power cut x loss.
    pub cases: u64,
    /// Distinct disk contents among them: pools opened, read, judged and proven.
    pub opened: u64,
    /// Opened pools that were used on, crashed and opened again.
    pub went_on: u64,
    /// Second power cuts during an opening, opened, read, judged and proven.
    pub cut_again: u64,
}

/// A case in which weft broke its promise.
#[derive(Clone, Debug)]
pub struct Failure {
    /// The case.
    pub case: Case,
    /// What was wrong.
    pub what: String,
    /// Pools opened until it was found.
    pub opened: u64,
}

/// Searches. The first failure ends it.
pub fn run(options: &Options) -> Result<Summary, Box<Failure>> {
    run_telling(options, |_, _| ())
}

/// Searches like [`run`]; after each scene, `told` gets its name and what was tried so far.
pub fn run_telling(options: &Options, mut told: impl FnMut(&str, &Summary)) -> Result<Summary, Box<Failure>> {
    let (known, tried) = (BTreeMap::new(), BTreeSet::new());
    let mut search = Search { options: options.clone(), summary: Summary::default(), known, tried, group: None };
    let named = scenes().into_iter().filter(|scene| scene.name().contains(&options.only));
    let mut scenes: Vec<Scene> = part_of(named, options.part).collect();
    // Those that begin alike one after the other.
    scenes.sort_by_key(Scene::group);
    for scene in &scenes {
        search.explore(scene)?;
        told(&scene.name(), &search.summary);
        if search.is_over() {
            break;
        }
    }
    Ok(search.summary)
}

/// Every scene.
pub fn scenes() -> Vec<Scene> {
    let all = shapes().into_iter().flat_map(|shape| scripts().into_iter().map(move |script| Scene { shape, script }));
    all.filter(Scene::fits).collect()
}

/// Runs one case again.
pub fn repeat(case: &Case) -> Result<(), String> {
    let scenes = scenes();
    let scene = scenes.iter().find(|scene| scene.name() == case.scene);
    let scene = scene.ok_or_else(|| format!("there is no scene {:?}", case.scene))?;
    let mut state = State::play(scene, &Machine::base(scene)?, case.cuts[0].at)?;
    for (nth, cut) in case.cuts.iter().enumerate() {
        let images = state.machine.images(&cut.fates);
        if let Some(next) = case.cuts.get(nth + 1) {
            state = state.cut_in_opening(scene, &images, &cut.lost, next.at)?;
            continue;
        }
        let there = state.promise(&cut.lost);
        let found = examine(scene, &images, &there)?;
        let oracle = judge(&state.oracle(), &there, &found)?;
        if case.goes_on {
            go_on(scene, &images, &there, oracle)?;
        }
    }
    Ok(())
}

struct Search {
    options: Options,
    summary: Summary,
    /// What was found in disk contents that were opened already, by their fingerprint.
    known: BTreeMap<u64, Found>,
    /// The crash points that were tried already.
    tried: BTreeSet<u64>,
    /// The scenes for which that holds.
    group: Option<String>,
}

/// What an opened pool holds: the tag of every unit, or no virtual disk.
type Found = Option<Rc<[u64]>>;

/// A crash point.
struct State {
    machine: Machine,
    /// Disks that were lost before the script (or the opening) began, or vanished in it.
    dead: Vec<usize>,
    made: bool,
    /// Lengths of the unflushed writes, by disk.
    unflushed: Vec<Vec<u64>>,
    ended: bool,
}

/// What must hold when disks are opened.
#[derive(Clone)]
struct Promise {
    /// The disks that are not there.
    lost: Vec<usize>,
    /// The disks that may be stale or lost: beyond them and `lost`, every block must be right.
    suspect: BTreeSet<usize>,
    made: bool,
}

impl State {
    /// The script up to disk operation `at`.
    fn play(scene: &Scene, base: &[DiskImage], at: u64) -> Result<State, String> {
        let mut machine = Machine::new(scene, base, scene_oracle(scene));
        if at != u64::MAX {
            machine.rig.world.crash_at(at);
        }
        let played = machine.play();
        State::of(machine, played, Vec::new())
    }

    /// The opening of these disks up to disk operation `at` of it.
    fn cut_in_opening(&self, scene: &Scene, images: &[DiskImage], lost: &[usize], at: u64) -> Result<State, String> {
        let promise = self.promise(lost);
        let mut machine = machine_of(scene, images, &promise, self.oracle());
        machine.made.set(self.made);
        if at != u64::MAX {
            machine.rig.world.crash_at(at);
        }
        let played = machine.perform(&Step::Open);
        State::of(machine, played, promise.suspect.into_iter().collect())
    }

    fn of(mut machine: Machine, played: Result<(), Halt>, mut dead: Vec<usize>) -> Result<State, String> {
        let ended = match played {
            Ok(()) => true,
            Err(Halt::Crashed) => false,
            Err(Halt::Failed(what)) => return Err(what),
        };
        machine.stop();
        dead.extend(machine.dead.borrow().iter());
        let lengths = |disk: &SimDisk| disk.unflushed().iter().map(|write| write.len.0 / SECTOR).collect();
        let unflushed = machine.rig.disks.iter().map(lengths).collect();
        let made = machine.made.get();
        Ok(State { machine, dead, made, unflushed, ended })
    }

    fn oracle(&self) -> Oracle {
        self.machine.oracle.borrow().clone()
    }

    /// Whether every power cut here is one of `next`, too.
    fn is_covered_by(&self, next: &State) -> bool {
        let grown = self.unflushed.iter().zip(&next.unflushed).all(|(before, after)| before.len() <= after.len());
        grown && self.dead == next.dead
    }

    /// Names all that its power cuts depend on, within a group of scenes.
    fn fingerprint(&self) -> u64 {
        let disks = self.machine.rig.disks.iter().fold(self.machine.oracle.borrow().fingerprint(), |hash, disk| {
            let unflushed = disk.unflushed();
            let places = unflushed.iter().fold(hash, |hash, write| fold(fold(hash, write.at.0), write.len.0));
            // Each write by itself: some may cover others.
            (0..=unflushed.len()).fold(places, |hash, kept| {
                let fates: Vec<Fate> =
                    (0..unflushed.len()).map(|no| if no < kept { Fate::Kept } else { Fate::Dropped }).collect();
                fold(hash, disk.after_power_cut(&fates).fingerprint())
            })
        });
        let dead = self.dead.iter().fold(fold(disks, self.made as u64), |hash, no| fold(hash, *no as u64));
        self.unflushed.iter().fold(dead, |hash, writes| fold(hash, writes.len() as u64))
    }

    fn promise(&self, lost: &[usize]) -> Promise {
        let suspect = self.dead.iter().chain(lost).copied().collect();
        Promise { lost: lost.to_vec(), suspect, made: self.made }
    }

    /// The losses that are tolerated here.
    fn losses(&self, scene: &Scene) -> Vec<Vec<usize>> {
        let tolerated = |lost: &Vec<usize>| self.promise(lost).suspect.len() <= scene.failures();
        losses(scene.shape.disks, scene.failures()).into_iter().filter(tolerated).collect()
    }
}

impl Search {
    fn is_over(&self) -> bool {
        self.options.limit.is_some_and(|limit| self.summary.opened + self.summary.cut_again >= limit)
    }

    fn failure(&self, scene: &Scene, cuts: Vec<Cut>, goes_on: bool, what: String) -> Box<Failure> {
        let case = Case { scene: scene.name(), cuts, goes_on };
        Box::new(Failure { case, what, opened: self.summary.opened + self.summary.cut_again })
    }

    fn explore(&mut self, scene: &Scene) -> Result<(), Box<Failure>> {
        let unplayable = |at: u64, what: String| {
            let cut = Cut { at, fates: vec![Vec::new(); scene.shape.disks], lost: Vec::new() };
            Box::new(Failure { case: Case { scene: scene.name(), cuts: vec![cut], goes_on: false }, what, opened: 0 })
        };
        self.summary.scenes += 1;
        if self.group.replace(scene.group()) != Some(scene.group()) {
            self.known.clear();
            self.tried.clear();
        }
        let base = Machine::base(scene).map_err(|what| unplayable(0, what))?;
        let mut before: Option<(u64, State)> = None;
        for at in 1.. {
            let state = State::play(scene, &base, at).map_err(|what| unplayable(at, what))?;
            self.summary.crash_points += 1;
            match before {
                Some((_, before)) if before.is_covered_by(&state) => self.summary.covered += 1,
                Some((at, before)) => self.cut(scene, at, &before)?,
                None => {}
            }
            if self.is_over() {
                return Ok(());
            }
            if state.ended {
                return self.cut(scene, at, &state);
            }
            before = Some((at, state));
        }
        Ok(())
    }

    /// Every power cut at one crash point.
    fn cut(&mut self, scene: &Scene, at: u64, state: &State) -> Result<(), Box<Failure>> {
        if !self.tried.insert(state.fingerprint()) {
            self.summary.shared += 1;
            return Ok(());
        }
        let mut images = Images::new(&state.machine);
        for fates in fates(&state.unflushed, self.options.full_max) {
            let (images, prints) = images.after(&fates);
            for lost in state.losses(scene) {
                if self.is_over() {
                    return Ok(());
                }
                let cut = || Cut { at, fates: fates.clone(), lost: lost.clone() };
                let promise = state.promise(&lost);
                self.summary.cases += 1;
                let key = key(&prints, &promise);
                let fresh = !self.known.contains_key(&key);
                if fresh {
                    self.summary.opened += 1;
                    let found = examine(scene, &images, &promise);
                    self.known.insert(key, found.map_err(|what| self.failure(scene, vec![cut()], false, what))?);
                }
                let judged = judge(&state.oracle(), &promise, &self.known[&key]);
                let oracle = judged.map_err(|what| self.failure(scene, vec![cut()], false, what))?;
                let sampled = |one_in: u64| fresh && self.summary.opened % one_in == 1 % one_in;
                let (use_on, again) = (sampled(self.options.use_on), sampled(self.options.cut_again));
                if use_on {
                    self.summary.went_on += 1;
                    go_on(scene, &images, &promise, oracle)
                        .map_err(|what| self.failure(scene, vec![cut()], true, what))?;
                }
                if again {
                    self.cut_again(scene, cut(), state, &images)?;
                }
            }
        }
        Ok(())
    }

    /// A second power cut at every operation of the opening that follows the first.
    fn cut_again(
        &mut self,
        scene: &Scene,
        first: Cut,
        state: &State,
        images: &[DiskImage],
    ) -> Result<(), Box<Failure>> {
        let mut before: Option<(u64, State)> = None;
        for at in 1.. {
            let played = state.cut_in_opening(scene, images, &first.lost, at);
            let played = played.map_err(|what| self.failure(scene, vec![first.clone()], false, what))?;
            let ended = played.ended;
            match before {
                Some((_, before)) if before.is_covered_by(&played) => {}
                Some((at, before)) => self.judge_second(scene, &first, at, &before)?,
                None => {}
            }
            if ended {
                return self.judge_second(scene, &first, at, &played);
            }
            before = Some((at, played));
        }
        Ok(())
    }

    fn judge_second(&mut self, scene: &Scene, first: &Cut, at: u64, state: &State) -> Result<(), Box<Failure>> {
        let mut images = Images::new(&state.machine);
        for fates in fates(&state.unflushed, 0) {
            let (images, prints) = images.after(&fates);
            for lost in state.losses(scene) {
                let promise = state.promise(&lost);
                let key = key(&prints, &promise);
                let cuts = || vec![first.clone(), Cut { at, fates: fates.clone(), lost: lost.clone() }];
                if !self.known.contains_key(&key) {
                    self.summary.cut_again += 1;
                    let found = examine(scene, &images, &promise);
                    self.known.insert(key, found.map_err(|what| self.failure(scene, cuts(), false, what))?);
                }
                judge(&state.oracle(), &promise, &self.known[&key])
                    .map_err(|what| self.failure(scene, cuts(), false, what))?;
            }
        }
        Ok(())
    }
}

/// The images of the disks of one crash point, made once per disk and fates.
struct Images<'a> {
    machine: &'a Machine,
    made: BTreeMap<(usize, String), (DiskImage, u64)>,
}

impl Images<'_> {
    fn new(machine: &Machine) -> Images<'_> {
        Images { machine, made: BTreeMap::new() }
    }

    /// The disks after a power cut, and their fingerprints.
    fn after(&mut self, fates: &[Vec<Fate>]) -> (Vec<DiskImage>, Vec<u64>) {
        let each = self.machine.rig.disks.iter().zip(fates).enumerate().map(|(no, (disk, fates))| {
            let made = self.made.entry((no, write_fates(std::slice::from_ref(fates)))).or_insert_with(|| {
                let image = disk.after_power_cut(fates);
                let print = image.fingerprint();
                (image, print)
            });
            made.clone()
        });
        each.unzip()
    }
}

/// Names the contents of the disks that are there, and what is expected of them.
fn key(prints: &[u64], promise: &Promise) -> u64 {
    let there = prints.iter().enumerate().map(|(no, print)| match promise.lost.contains(&no) {
        true => 1,
        false => fold(*print, promise.suspect.contains(&no) as u64),
    });
    there.fold(0, fold)
}

fn machine_of(scene: &Scene, images: &[DiskImage], promise: &Promise, oracle: Oracle) -> Machine {
    let mut machine = Machine::new(scene, images, oracle);
    promise.lost.iter().for_each(|no| machine.rig.disks[*no].vanish());
    // Without a majority the operator has to say so; disks that are back with old content count as lost.
    machine.rig.options.degraded = (images.len() - promise.suspect.len()) * 2 <= images.len();
    machine
}

/// Opens the disks, reads everything and proves it. A panic of the engine is a failure like any other.
fn examine(scene: &Scene, images: &[DiskImage], promise: &Promise) -> Result<Found, String> {
    guarded(|| {
        let mut machine = machine_of(scene, images, promise, scene_oracle(scene));
        open_and_read(&mut machine, scene, promise)
    })
}

fn open_and_read(machine: &mut Machine, scene: &Scene, promise: &Promise) -> Result<Found, String> {
    let told = |halt| match halt {
        Halt::Failed(what) => what,
        Halt::Crashed => "a crash nobody asked for".into(),
    };
    machine.perform(&Step::Open).map_err(told)?;
    let pool = machine.rig.pool();
    let proof = pool.clone();
    let report = machine.drive(async move { proof.check(false).await }).map_err(told)?;
    let report = report.map_err(|error| format!("the pool cannot be proven: {error}"))?;
    if !report.problems.is_empty() || report.lost_stripes > 0 {
        return Err(format!("the pool is not sound: {report:?}"));
    }
    if promise.suspect.is_empty() && report.bad_blocks > 0 {
        return Err(format!("every disk is there, and blocks are bad: {report:?}"));
    }
    let Some(vdisk) = pool.vdisk("vdisk") else { return Ok(None) };
    let mut bytes = vec![0xAA; scene.size() as usize];
    let read = machine.drive(async move { vdisk.read(VirtualOffset(0), &mut bytes).await.map(|()| bytes) });
    let bytes = read.map_err(told)?.map_err(|error| format!("it cannot be read: {error}"))?;
    let unit = scene.script.sector as usize;
    let mut tags = Vec::new();
    for (no, bytes) in bytes.chunks_exact(unit).enumerate() {
        if bytes.chunks_exact(8).any(|word| word != &bytes[..8]) {
            return Err(format!("unit {no} is torn"));
        }
        tags.push(u64::from_le_bytes(bytes[..8].try_into().expect("eight bytes")));
    }
    Ok(Some(tags.into()))
}

/// Asks the judge whether what was found may be there. Returns the judge who has seen it.
fn judge(oracle: &Oracle, promise: &Promise, found: &Found) -> Result<Oracle, String> {
    let mut oracle = oracle.clone();
    match found {
        None if promise.made => Err("the virtual disk is gone".into()),
        None => Ok(oracle),
        Some(tags) => {
            for (no, tag) in tags.iter().enumerate() {
                oracle.judge_after_crash(no, &oracle.bytes(*tag, 1))?;
            }
            Ok(oracle)
        }
    }
}

/// Uses the pool, crashes it after a flush, and opens it again: with every tolerated loss, lost disks back included.
fn go_on(scene: &Scene, images: &[DiskImage], promise: &Promise, oracle: Oracle) -> Result<(), String> {
    if !promise.made {
        return Ok(());
    }
    guarded(|| {
        let mut machine = machine_of(scene, images, promise, oracle.clone());
        machine.use_new_tags();
        let stripe = scene.stripe();
        let sector = scene.script.sector as u64;
        let steps = [
            Step::Open,
            Step::Write(stripe, sector, false),
            Step::Flush,
            Step::Write(0, stripe, false),
            Step::Write(2 * stripe - sector, 2 * sector, false),
            Step::Flush,
        ];
        let played = steps.iter().try_for_each(|step| machine.perform(step));
        let state = State::of(machine, played, promise.suspect.iter().copied().collect())?;
        for fates in [Fate::Dropped, Fate::Kept] {
            let fates: Vec<Vec<Fate>> = state.unflushed.iter().map(|writes| vec![fates; writes.len()]).collect();
            let images = state.machine.images(&fates);
            for lost in state.losses(scene) {
                let promise = state.promise(&lost);
                let found = examine(scene, &images, &promise);
                found
                    .and_then(|found| judge(&state.oracle(), &promise, &found))
                    .map_err(|what| format!("after going on, with {lost:?} lost: {what}"))?;
            }
        }
        Ok(())
    })
}

/// A panic as a failure.
fn guarded<T>(run: impl FnOnce() -> Result<T, String>) -> Result<T, String> {
    catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().cloned();
        let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| text.to_string()));
        Err(format!("the engine stopped itself: {}", text.unwrap_or_default()))
    })
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} scenes, {} crash points ({} covered by the next, {} tried before), {} cases in {} distinct disk contents, {} used on, {} second cuts: all sound",
            self.scenes,
            self.crash_points,
            self.covered,
            self.shared,
            self.cases,
            self.opened,
            self.went_on,
            self.cut_again
        )
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}\nrepeat with: weft-sim --exhaustive --case '{}'", self.what, self.case)
    }
}
