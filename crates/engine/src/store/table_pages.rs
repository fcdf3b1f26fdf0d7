//! Pages of stripe tables in memory: a cache under a budget. A page is read from the disks when it is first needed, and
//! dropped when others are, the longest unasked for first.
//!
//! Invariants
//! 1. A page that somebody holds stays in memory. One that changed stays until a checkpoint names its image
//!    (`stripe/table.rs`, invariant 4), so no more are dirty than half of the budget before one is due.
//! 2. A page that no copy has, in the version that was written last or a newer one, is an error for its stripes, and
//!    none that is older is believed.
//! 3. A replay takes a page in just the version that the checkpoint names, also where a checkpoint that was cut off
//!    left a newer one: it changes it as it was when the checkpoint looked at which stripes are in use, and so finds
//!    what each record let go of. Where that image is lost, and a newer one is not, the page is that one, and the space
//!    of its table is counted.
//! 4. The next image of such a page goes over the one that is in the way, not over the one that is the truth.
//! 5. Tables of packed stripes, which are small, stay in memory whole: whoever reads a unit needs no page for that.

use super::page_place::{above, first_block, slot_of, table_page};
use super::pages::Held;
use super::{Store, join};
use crate::error::Result;
use crate::exec::LocalBoxFuture;
use crate::fail;
use crate::format::page::{self, CHUNK_PAGES, PageId};
use crate::format::record::PageRun;
use crate::io::Buf;
use crate::mutant::{self, Mutant};
use crate::stripe::table::{PAGE_MEMORY, Place, Table};
use crate::units::{BLOCK, TableNo};
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::cell::{Cell, RefCell};
use core::ops::Range;

/// Pages that are read at once.
const GROUP: usize = 64;
/// Bytes of dirty pages for which no checkpoint is taken, however little memory they have.
const DIRTY_MIN: u64 = 64 << 10;

/// What a page is loaded for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum For {
    /// A replay, which changes it (invariant 3).
    Replay,
    /// An opening, which counts what it maps, or keeps it; what that says is proven when all is counted.
    Count,
    /// Requests.
    Use,
    /// Whoever only looks: copies that lack it are left so.
    Look,
}

/// Which pages of stripe tables are needed.
#[derive(Default)]
pub struct TablePages {
    /// Those that somebody holds, by a number that each who does has.
    held: RefCell<BTreeMap<u64, (TableNo, Range<u32>)>>,
    holds: Cell<u64>,
    peak: Cell<u64>,
    /// How many were read from the disks.
    pub loads: Cell<u64>,
}

/// Pages of a stripe table that stay in memory while this lives.
pub struct HeldTable<'a> {
    pages: &'a TablePages,
    number: u64,
}

impl Drop for HeldTable<'_> {
    fn drop(&mut self) {
        self.pages.held.borrow_mut().remove(&self.number);
    }
}

impl TablePages {
    fn hold(&self, table: TableNo, pages: Range<u32>) -> HeldTable<'_> {
        self.holds.set(self.holds.get() + 1);
        self.held.borrow_mut().insert(self.holds.get(), (table, pages));
        HeldTable { pages: self, number: self.holds.get() }
    }
}

/// An image of a page, as the newest checkpoint has it or not.
struct Image {
    block: Buf,
    version: u64,
    /// The newest version of which there is an image.
    newest: u64,
}

impl Store {
    /// Brings what `table` says of these stripes into memory, and keeps it there. An error: no disk has it.
    pub async fn load_table(&self, table: TableNo, stripes: Range<u64>) -> Result<HeldTable<'_>> {
        self.load_pages(table, stripes, For::Use).await
    }

    /// Brings into memory what changes when `stripes` are committed to consecutive places from `place` on: what their
    /// table says of them, and the pages with the checksums there.
    pub async fn load_for_commit(
        &self,
        table: TableNo,
        stripes: &[u64],
        place: Place,
    ) -> Result<(Vec<HeldTable<'_>>, Held<'_>)> {
        let mut held = Vec::new();
        let mut pages = 0..0;
        for stripe in stripes {
            let page = Table::pages_of(&(*stripe..*stripe + 1));
            if core::mem::replace(&mut pages, page.clone()) != page {
                held.push(self.load_table(table, *stripe..*stripe + 1).await?);
            }
        }
        Ok((held, self.load_sums_at(place, stripes.len()).await?))
    }

    /// Brings all of a table into memory.
    pub(super) async fn load_whole_table(&self, table: TableNo) -> Result<()> {
        let mut from = 0;
        while let Some(stripes) = self.next_page(table, from) {
            from = stripes.end;
            self.load_pages(table, stripes, For::Count).await?;
        }
        Ok(())
    }

    /// Brings all of a table into memory, and keeps it there, whatever the budget is.
    pub async fn hold_whole_table(&self, table: TableNo) -> Result<HeldTable<'_>> {
        let held = self.tables.hold(table, 0..u32::MAX);
        let mut from = 0;
        while let Some(stripes) = self.next_page(table, from) {
            from = stripes.end;
            self.load_pages(table, stripes, For::Use).await?;
        }
        Ok(held)
    }

    /// The stripes of `table` from `from` on that share the first page that there is.
    pub fn next_page(&self, table: TableNo, from: u64) -> Option<Range<u64>> {
        self.map.borrow().tables.get(&table)?.next_page(from)
    }

    /// The first stripe of `table` from `from` on that is mapped, pinned where it lies.
    pub async fn pin_next(&self, table: TableNo, mut from: u64, what_for: For) -> Result<Option<(u64, Place)>> {
        while let Some(stripes) = self.next_page(table, from) {
            let _held = self.load_pages(table, stripes.clone(), what_for).await?;
            let mut map = self.map.borrow_mut();
            let found = map.tables.get(&table).and_then(|table| table.mapped_in(stripes.clone()).next());
            if let Some((_, place)) = found {
                map.pin(place);
                return Ok(found);
            }
            from = stripes.end;
        }
        Ok(None)
    }

    /// Does what [`Store::load_table`] does, also while a pool is being opened.
    pub async fn load_pages(&self, table: TableNo, stripes: Range<u64>, what_for: For) -> Result<HeldTable<'_>> {
        let pages = Table::pages_of(&stripes);
        let held = self.tables.hold(table, pages.clone());
        loop {
            let absent = self.map.borrow_mut().absent_pages(table, pages.clone(), GROUP);
            if absent.is_empty() {
                return Ok(held);
            }
            self.shrink_tables(absent.len() as u64);
            let loads = absent.into_iter().map(|page| self.load_table_page(table, page, what_for));
            join(loads).await.into_iter().collect::<Result<()>>()?;
        }
    }

    fn load_table_page(&self, table: TableNo, page: u32, what_for: For) -> LocalBoxFuture<'_, Result<()>> {
        Box::pin(async move {
            let (number, within) = (page / CHUNK_PAGES, page % CHUNK_PAGES);
            loop {
                let Some((run, named)) = self.map.borrow().absent_page(table, page) else { return Ok(()) };
                let image = self.read_table_page(table, (number, within), run, (named, what_for)).await;
                let mut map = self.map.borrow_mut();
                let named_now = map.absent_page(table, page);
                if named_now.is_none() {
                    // Somebody else was faster, or the table is no more.
                    return Ok(());
                }
                if named_now != Some((run, named)) {
                    continue;
                }
                let Some(image) = image else {
                    return fail!(
                        Lost,
                        "page {within} of chunk {number} of stripe table {table} cannot be read from any disk"
                    );
                };
                let found = map.tables.get_mut(&table).expect("it has the page");
                found.load_page(number, within, image.version, &image.block[64..]);
                if image.newest > image.version {
                    found.is_behind(number, within, above(image.version, image.newest));
                    self.pages.outrun.set(true);
                }
                if matches!(what_for, For::Use | For::Look) {
                    map.prove_page(table, page)?;
                }
                self.tables.loads.set(self.tables.loads.get() + 1);
                self.tables.peak.set(self.tables.peak.get().max(map.table_pages().0));
                return Ok(());
            }
        })
    }

    /// Reads a page of which a checkpoint names version `named`. An older image is what a lost write left.
    async fn read_table_page(
        &self,
        table: TableNo,
        (number, page): (u32, u32),
        run: PageRun,
        (named, what_for): (u64, For),
    ) -> Option<Image> {
        let (id, home) = (table_page(table, number, page), (run, page));
        let heals = what_for != For::Look || mutant::active(Mutant::CheckHeals);
        let careless = [Mutant::PageVersionsIgnored, Mutant::StaleDiskTrusted, Mutant::OldTablePageBelieved];
        let unproven = careless.into_iter().any(mutant::active);
        // Where the copies that come in time are older, the others are waited for.
        let least = if unproven || mutant::active(Mutant::TablePageInTime) { 0 } else { named };
        let (newest, block) = self.read_page_and(id, home, least, heals).await.ok().flatten()?;
        if newest < named && !unproven {
            return None;
        }
        if what_for == For::Replay && newest > named && !mutant::active(Mutant::UnnamedPageTaken) {
            match self.read_version(id, home, named).await {
                Some(block) => return Some(Image { block, version: named, newest }),
                None => self.map.borrow_mut().distrust_space(table),
            }
        }
        Some(Image { block, version: newest, newest })
    }

    /// Drops pages that nobody holds and that did not change, until there is room for `wanted` more.
    fn shrink_tables(&self, wanted: u64) {
        let max = self.tuning.table_memory / PAGE_MEMORY;
        let mut map = self.map.borrow_mut();
        let loaded = map.table_pages().0;
        if loaded + wanted <= max {
            return;
        }
        let held = self.tables.held.borrow();
        let is_held =
            |table: TableNo, page: u32| held.values().any(|(of, pages)| *of == table && pages.contains(&page));
        let stacked = map.stacked();
        let whole = |table: &&Table| table.record.packs.is_none() && !stacked.contains(&table.record.id);
        let pages = map.tables.values().filter(whole).flat_map(|table| {
            let id = table.record.id;
            table.loaded().map(move |(asked, page)| (asked, id, page))
        });
        let mut pages: Vec<(u64, TableNo, u32)> = pages.filter(|(_, table, page)| !is_held(*table, *page)).collect();
        pages.sort_unstable();
        // An eighth more than needed, so that this is not done for every page.
        let mut excess = loaded + wanted - max + max / 8;
        for (_, table, page) in pages {
            let gone = map.tables.get_mut(&table).is_some_and(|table| table.unload_page(page));
            excess -= gone as u64;
            if excess == 0 {
                break;
            }
        }
    }

    /// Drops pages that are too many, as far as they are clean.
    pub(super) fn trim_tables(&self) {
        self.shrink_tables(0);
    }

    /// Whether so much of the memory for stripe tables is dirty that a checkpoint is due.
    pub fn has_too_many_dirty_tables(&self) -> bool {
        self.map.borrow().table_pages().1 * PAGE_MEMORY > (self.tuning.table_memory / 2).max(DIRTY_MIN)
    }

    /// Bytes of pages of stripe tables in memory: now, and at most so far.
    pub fn table_memory(&self) -> (u64, u64) {
        let now = self.map.borrow().table_pages().0;
        (now * PAGE_MEMORY, self.tables.peak.get().max(now) * PAGE_MEMORY)
    }

    /// The image of just this version of a page, from any current disk.
    async fn read_version(&self, id: PageId, home: (PageRun, u32), version: u64) -> Option<Buf> {
        let block = first_block(home) + slot_of(version);
        for at in self.page_copies(home.0.segment, true) {
            let Ok(image) = self.disk_read(at.disk, self.slab_offset(at, block), BLOCK as usize).await else {
                continue;
            };
            let lineage = self.labels.lineage.borrow();
            if page::decode(self.id, &lineage, id, &image) == Some(version) {
                return Some(image);
            }
        }
        None
    }
}
