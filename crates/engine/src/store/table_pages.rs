//! Pages of stripe tables, from the disks into memory.
//!
//! Invariants
//! 1. A page is taken in the version that the checkpoint names, also where a checkpoint that was cut off left a newer
//!    one: a replay changes it as it was when the checkpoint looked at which stripes are in use, and so finds what each
//!    record let go of.
//! 2. Where that image is lost, and a newer one is not, the page is that one, and the space of its table is counted.
//! 3. The next image of such a page goes over the one that is in the way, not over the one that is the truth.

use super::page_place::{above, first_block, slot_of, table_page};
use super::{Store, join};
use crate::format::page::{self, CHUNK_PAGES, PageId};
use crate::format::record::PageRun;
use crate::io::Buf;
use crate::mutant::{self, Mutant};
use crate::units::{BLOCK, TableNo};
use alloc::vec::Vec;

/// A page of a stripe table: table, chunk, page of it.
pub type TablePage = (TableNo, u32, u32);

/// An image of a page, as the newest checkpoint has it or not.
struct Image {
    block: Buf,
    version: u64,
    /// The newest version of which there is an image.
    newest: u64,
}

impl Store {
    /// Reads all pages of the stripe tables. Returns those that no disk has.
    pub async fn read_tables(&self) -> Vec<TablePage> {
        /// Pages that are read at once.
        const GROUP: usize = 64;
        let (mut missing, mut wanted) = (Vec::new(), Vec::new());
        for table in self.map.borrow().tables.values() {
            for (number, chunk) in &table.chunks {
                let pages = chunk.versions.iter().zip(0..CHUNK_PAGES);
                wanted.extend(pages.map(|(named, page)| ((table.record.id, *number, page), chunk.pages, *named)));
            }
        }
        for group in wanted.chunks(GROUP) {
            let reads = group.iter().map(|(page, run, named)| self.read_table_page(*page, *run, *named));
            for ((page, ..), image) in group.iter().zip(join(reads).await) {
                match image {
                    Some(image) => self.take_table_page(*page, image),
                    None => missing.push(*page),
                }
            }
        }
        missing
    }

    fn take_table_page(&self, (table, number, page): TablePage, image: Image) {
        let mut map = self.map.borrow_mut();
        let found = map.tables.get_mut(&table).expect("tables do not go away while a pool is opened");
        found.load_page(number, page, image.version, &image.block[64..]);
        if image.newest > image.version {
            found.is_behind(number, page, above(image.version, image.newest));
            self.pages.outrun.set(true);
        }
    }

    /// Reads a page of which the checkpoint names version `named`. An older image is what a lost write left.
    async fn read_table_page(&self, (table, number, page): TablePage, run: PageRun, named: u64) -> Option<Image> {
        let (id, home) = (table_page(table, number, page), (run, page));
        let (newest, block) = self.read_page(id, home).await.ok().flatten()?;
        let unproven = mutant::active(Mutant::PageVersionsIgnored) || mutant::active(Mutant::StaleDiskTrusted);
        if newest < named && !unproven {
            return None;
        }
        if newest > named && !mutant::active(Mutant::UnnamedPageTaken) {
            match self.read_version(id, home, named).await {
                Some(block) => return Some(Image { block, version: named, newest }),
                None => self.map.borrow_mut().distrust_space(table),
            }
        }
        Some(Image { block, version: newest, newest })
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
