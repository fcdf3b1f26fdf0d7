//! The tree, from its root down: which pages are lost, which copies are bad, what it holds.

use super::words::{described, kind_of};
use super::{Places, Wanted};
use crate::error::{Error, ErrorKind};
use crate::format::record::{ROOT_LEN, SlabAt};
use crate::io::{Buf, IoSlice};
use crate::store::meta::room::block_of;
use crate::store::meta::shape;
use crate::store::quorum::Standing;
use crate::tree::{At, KeyRange, Lost, Opening, PageRef, PageStore, Place, Root, StoreFuture, Tree, TreeError, Why};
use crate::units::{BLOCK, DiskNo, SegmentNo};
use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::rc::Rc;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

/// Bytes of memory for pages while the tree is walked.
const BUDGET: usize = 16 << 20;
/// Entries that are read at once.
const BATCH: usize = 1024;

/// The tree of a pool.
#[derive(Clone, Debug, Default)]
pub struct TreeDump {
    /// The number of its root.
    pub number: u64,
    /// Pages that are reached from the root.
    pub pages: u64,
    /// Entries by what they are.
    pub kinds: BTreeMap<&'static str, u64>,
    /// Pages of which no copy is what it must be, with the keys that are lost with each.
    pub lost: Vec<Lost>,
    /// Copies on disks that are up to date which are not what they must be.
    pub bad: Vec<BadCopy>,
    /// The entries that were wanted.
    pub entries: Vec<Entry>,
    /// Why not all of it could be read.
    pub wrong: Option<String>,
}

/// A copy of a page that is not what it must be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BadCopy {
    /// The page's place.
    pub place: Place,
    /// The disk.
    pub disk: DiskNo,
    /// What is wrong.
    pub why: Why,
}

/// An entry of the tree.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Entry {
    /// Its key: kind, major, middle, minor.
    pub key: (u16, u64, u64, u64),
    /// What it is.
    pub kind: &'static str,
    /// Its value, as a sentence where it has a meaning by itself, else as hexadecimal digits.
    pub value: String,
}

/// The disks as a store of pages that is only read.
struct Pages {
    shared: Rc<Shared>,
}

struct Shared {
    places: Places,
    homes: BTreeMap<SegmentNo, Vec<SlabAt>>,
}

/// Walks the tree of `root`, whose pages lie in the metadata segments with these `homes`.
pub(super) async fn dump(
    root: &[u8; ROOT_LEN],
    places: Places,
    homes: BTreeMap<SegmentNo, Vec<SlabAt>>,
    wanted: &Wanted,
) -> TreeDump {
    let Some(root) = Root::from_bytes(root).filter(|root| root.number < u64::MAX) else {
        return TreeDump { wrong: Some("its root contradicts itself".into()), ..TreeDump::default() };
    };
    let shared = Rc::new(Shared { places, homes });
    let opening = Opening { shape: shape(), budget: BUDGET, first: 0, writer: 0 };
    let tree = Tree::open(Pages { shared: shared.clone() }, root, opening);
    let mut told = TreeDump { number: root.number, ..TreeDump::default() };
    if let Err(error) = walk(&tree, &shared, wanted, &mut told).await {
        told.wrong = Some(error.to_string());
    }
    told
}

async fn walk(tree: &Tree<Pages>, shared: &Shared, wanted: &Wanted, told: &mut TreeDump) -> Result<(), TreeError> {
    let reached = tree.reached().await?;
    told.pages = reached.len() as u64;
    told.lost = tree.lost().await?;
    for want in reached.values() {
        for at in shared.homes_of(want.place) {
            if let Some(why) = shared.bad_copy(*at, *want).await {
                told.bad.push(BadCopy { place: want.place, disk: at.disk, why });
            }
        }
    }
    // A page that no copy has is lost, and not also bad wherever it was looked for.
    told.bad.retain(|bad| told.lost.iter().all(|lost| lost.place != bad.place));
    let mut rest = Some(KeyRange::ALL);
    while let Some(range) = rest {
        let from = match tree.scan(At::Head, range, BATCH).await {
            Ok(scanned) => {
                for (key, value) in &scanned.entries {
                    *told.kinds.entry(kind_of(*key)).or_default() += 1;
                    if wanted.keys.is_some_and(|keys| keys.contains(*key)) {
                        let parts = (key.kind, key.major, key.middle, key.minor);
                        told.entries.push(Entry { key: parts, kind: kind_of(*key), value: described(*key, value) });
                    }
                }
                scanned.next
            }
            Err(TreeError::Lost(lost)) => lost.range.last.next(),
            Err(error) => return Err(error),
        };
        rest = from.filter(|from| *from <= range.last).map(|from| KeyRange::new(from, range.last));
    }
    Ok(())
}

impl Shared {
    fn homes_of(&self, place: Place) -> &[SlabAt] {
        self.homes.get(&block_of(place).0).map_or(&[], Vec::as_slice)
    }

    async fn read(&self, at: SlabAt, place: Place) -> Option<Buf> {
        let (on, offset) = self.places.locate(at, block_of(place).1)?;
        on.read(offset, BLOCK).await
    }

    /// What is wrong with a copy on a disk that is up to date.
    async fn bad_copy(&self, at: SlabAt, want: PageRef) -> Option<Why> {
        let current = self.places.by_no.get(&at.disk).is_some_and(|place| place.standing == Standing::Current);
        if !current {
            return None;
        }
        match self.read(at, want.place).await {
            Some(image) => want.proves(&shape(), &image).err(),
            None => Some(Why::Unreadable),
        }
    }
}

impl PageStore for Pages {
    fn read(&self, want: PageRef) -> StoreFuture<Buf> {
        let shared = self.shared.clone();
        Box::pin(async move {
            for at in shared.homes_of(want.place) {
                match shared.read(*at, want.place).await {
                    Some(image) if want.proves(&shape(), &image).is_ok() => return Ok(image),
                    _ => {}
                }
            }
            Err(Error::new(ErrorKind::Lost, "no disk that is there has it"))
        })
    }

    fn write(&self, _: Place, _: IoSlice) -> StoreFuture<()> {
        Box::pin(async { Err(read_only()) })
    }

    fn flush(&self) -> StoreFuture<()> {
        Box::pin(async { Err(read_only()) })
    }

    fn allocate(&self) -> Option<Place> {
        None
    }

    fn abandon(&self, _: &[Place]) {}

    fn publish(&self, _: Root, _: Vec<Place>) -> StoreFuture<()> {
        Box::pin(async { Err(read_only()) })
    }

    fn reuse(&self, _: u64) {}

    fn allocated(&self) -> BTreeSet<Place> {
        BTreeSet::new()
    }
}

fn read_only() -> Error {
    Error::new(ErrorKind::NotPossible, "what is dumped is only read")
}
