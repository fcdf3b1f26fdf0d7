//! Damage to pages of the tree: rot, what cannot be read, pages of other places, of other times and of another history,
//! on all copies but one, and on all.

use super::*;
use weft_engine::error::ErrorKind;

/// What befalls a copy.
const KINDS: [&str; 6] = ["rotten", "unreadable", "swapped", "rolled back", "lost", "of another history"];

/// What was done, and seen.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tally {
    /// Pages that were damaged on all copies but one.
    pub covered: u64,
    /// Pages that were damaged on all copies.
    pub beyond: u64,
    /// Pools that did not open, for what they say of themselves is lost.
    pub closed: u64,
    /// Lookups that said that their key is lost.
    pub refused: u64,
    /// Lookups that were right.
    pub right: u64,
}

/// A pool, what is in it, where its pages are, and what other images its disks might have.
struct Scene {
    images: Vec<DiskImage>,
    head: Model,
    pages: Vec<(Place, Vec<(usize, DiskOffset)>)>,
    /// Its disks before its last checkpoints.
    older: Vec<Vec<DiskImage>>,
    /// Its disks as another machine went on with them.
    other: Vec<DiskImage>,
}

impl Scene {
    fn new(seed: u64) -> Scene {
        let mut rig = new_rig(seed, Scheduling::Random);
        let mut rng = Rng::new(seed).fork("scene");
        let (mut expected, mut older) = (Expected::default(), Vec::new());
        let mut forked = None;
        for no in 0..4u64 {
            expected = Scene::go_on(&mut rig, &mut rng, expected, 120);
            let images: Vec<DiskImage> = rig.disks.iter().map(SimDisk::image).collect();
            if no == 2 {
                let mut fork = rig_of(&images, seed ^ 77, Scheduling::Random);
                let copy = Expected { head: expected.head.clone(), ..Expected::default() };
                Scene::go_on(&mut fork, &mut rng.fork("fork"), copy, 120);
                forked = Some(fork.disks.iter().map(SimDisk::image).collect());
            }
            older.push(images);
        }
        let images = older.pop().expect("there are several");
        let mut again = rig_of(&images, seed, Scheduling::Random);
        let pool = again.open(&mut rng).expect("it opens");
        let pages = copies(&pool);
        drop(pool);
        again.halt();
        Scene { images, head: expected.head, pages, older, other: forked.expect("it was made") }
    }

    /// One opening with a few checkpoints.
    fn go_on(rig: &mut Rig, rng: &mut Rng, expected: Expected, changes: usize) -> Expected {
        let pool = rig.open(rng).expect("it opens");
        let (shared, place) = (Rc::new(RefCell::new(expected)), pool);
        let (mut rng, copy) = (rng.fork(&format!("{}", rng.clone().next_u64())), shared.clone());
        rig.run(async move {
            for _ in 0..2 {
                (0..changes).for_each(|_| copy.borrow_mut().change(place.store(), Change::draw(&mut rng)));
                place.checkpoint().await.expect("nothing fails");
            }
        });
        rig.close().expect("nothing fails");
        std::mem::take(&mut shared.borrow_mut())
    }

    /// Damages one copy.
    fn harm(&self, images: &mut [DiskImage], page: usize, copy: usize, rng: &mut Rng) {
        let (disk, at) = self.pages[page].1[copy];
        let now = self.images[disk].read(at, PAGE).expect("it can be read");
        let mut with = match *rng.pick(&KINDS) {
            "unreadable" => return images[disk].spoil(at),
            "rotten" => {
                let mut bytes = now.clone();
                bytes[rng.below(BLOCK) as usize] ^= 1 << rng.below(8);
                bytes
            }
            "swapped" => {
                let (_, others) = rng.pick(&self.pages);
                let (disk, at) = *rng.pick(others);
                self.images[disk].read(at, PAGE).expect("it can be read")
            }
            "rolled back" => rng.pick(&self.older)[disk].read(at, PAGE).expect("it can be read"),
            "of another history" => self.other[disk].read(at, PAGE).expect("it can be read"),
            _ => vec![0; BLOCK as usize],
        };
        if with == now {
            // It was the same then.
            with.reverse();
        }
        images[disk].overwrite(at, &with);
    }
}

/// Damages every page of a pool on all copies but one, which one is drawn: everything is there, and every copy is put
/// right.
pub fn all_but_one(seed: u64, rounds: u64) -> Result<Tally, String> {
    let scene = Scene::new(seed);
    let mut rng = Rng::new(seed).fork("all but one");
    let mut tally = Tally::default();
    for round in 0..rounds {
        let mut images = scene.images.clone();
        for page in 0..scene.pages.len() {
            let copies = scene.pages[page].1.len();
            let spared = rng.below(copies as u64) as usize;
            (0..copies).filter(|copy| *copy != spared).for_each(|copy| scene.harm(&mut images, page, copy, &mut rng));
            tally.covered += 1;
        }
        let (mut rig, head) = (rig_of(&images, round, Scheduling::Random), scene.head.clone());
        let opened = rig.open(&mut rng).map_err(|error| format!("round {round}: it does not open: {error}"))?;
        let judged = rig.run(async move {
            let found = entries(&opened).await?;
            let report = opened.check(true).await.map_err(|error| format!("checking: {error}"))?;
            match (found == head, report.problems.is_empty()) {
                (true, true) => Ok(()),
                (false, _) => Err("it has other entries".into()),
                _ => Err(format!("{:?}", report.problems)),
            }
        });
        let judged = judged.and_then(|()| {
            let wrong = scene.pages.iter().flat_map(|(_, copies)| copies).find(|(disk, at)| {
                let should = scene.images[*disk].read(*at, PAGE).expect("it can be read");
                rig.disks[*disk].peek(*at, PAGE).ok() != Some(should)
            });
            wrong.map_or(Ok(()), |copy| Err(format!("{copy:?} was not put right")))
        });
        rig.halt();
        judged.map_err(|why| format!("round {round}: {why}"))?;
    }
    Ok(tally)
}

/// Damages some pages of a pool on all copies: what is answered is right, or an error whose keys are those that were
/// asked for; a pool opens, unless its configuration is lost, takes checkpoints, and gives out no page that is
/// somebody's.
pub fn all(seed: u64, rounds: u64) -> Result<Tally, String> {
    let scene = Scene::new(seed);
    let mut rng = Rng::new(seed).fork("all");
    let mut tally = Tally::default();
    for round in 0..rounds {
        let mut images = scene.images.clone();
        for _ in 0..=rng.below(3) {
            let page = rng.below(scene.pages.len() as u64) as usize;
            (0..scene.pages[page].1.len()).for_each(|copy| scene.harm(&mut images, page, copy, &mut rng));
            tally.beyond += 1;
        }
        let (mut rig, head) = (rig_of(&images, round, Scheduling::Random), scene.head.clone());
        let opened = match rig.open(&mut rng) {
            Err(error) if error.kind == ErrorKind::Lost => {
                // The configuration was in it, or may have been.
                tally.closed += 1;
                rig.halt();
                continue;
            }
            opened => opened.map_err(|error| format!("round {round}: it does not open: {error}"))?,
        };
        let mut luck = rng.fork("luck");
        rng.next_u64();
        let judged = rig.run(async move { beyond(&opened, head, &mut luck).await });
        rig.halt();
        let (refused, right) = judged.map_err(|why| format!("round {round}: {why}"))?;
        tally.refused += refused;
        tally.right += right;
    }
    Ok(tally)
}

/// Reads all, changes some, takes checkpoints, reads all.
async fn beyond(pool: &Rc<Pool>, mut head: Model, rng: &mut Rng) -> Result<(u64, u64), String> {
    let mut lost = Vec::new();
    let mut counts = ask_all(pool, &head, &mut lost).await?;
    if counts.0 == 0 {
        // It may have been the page of another kind of keys.
        lost.clear();
    }
    for _ in 0..3 {
        for _ in 0..40 {
            // A range that is cleared may heal what is lost, and says nothing then.
            let change = Change::draw(rng);
            let (Change::Put(key, _) | Change::Delete(key)) = &change else { continue };
            match &change {
                Change::Put(key, value) => pool.store().tree().put(*key, value),
                _ => pool.store().tree().delete(*key),
            }
            lost.retain(|lost| lost != key);
            change.apply(&mut head);
        }
        pool.checkpoint().await.map_err(|error| format!("a checkpoint: {error}"))?;
        pool.store().tree().forget_pages();
    }
    let known: Model =
        head.iter().filter(|(key, _)| !lost.contains(key)).map(|(key, value)| (*key, value.clone())).collect();
    let mut none = Vec::new();
    let (refused, right) = ask_all(pool, &known, &mut none).await?;
    if let Some(key) = none.first() {
        return Err(format!("{key:?} is lost only now"));
    }
    counts.0 += refused;
    counts.1 += right;
    Ok(counts)
}

/// Asks for every key of `head`: how many are lost, and how many right.
async fn ask_all(pool: &Rc<Pool>, head: &Model, lost: &mut Vec<Key>) -> Result<(u64, u64), String> {
    let (mut refused, mut right) = (0, 0);
    for (key, value) in head {
        match pool.store().tree().get(At::Head, *key).await {
            Ok(Some(found)) if found[..] == value[..] => right += 1,
            Ok(found) => return Err(format!("{key:?} is {found:?}")),
            Err(weft_engine::tree::TreeError::Lost(found)) if found.range.contains(*key) => {
                lost.push(*key);
                refused += 1;
            }
            Err(error) => return Err(format!("{key:?}: {error}")),
        }
    }
    Ok((refused, right))
}
