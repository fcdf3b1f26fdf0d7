//! What records state. Each is an absolute fact; see [`super`] for how they are written.

use crate::disk_set::DiskSet;
use crate::format::page::CHUNK_PAGES;
use crate::geometry::Layout;
use crate::units::{Birth, ByteCount, DiskNo, JobNo, SegmentNo, TableNo, VdiskNo};
use alloc::borrow::Cow;
use alloc::rc::Rc;
use alloc::string::String;
use alloc::vec::Vec;
use core::ops::Range;

/// The most tables of one virtual disk's stack.
pub const TABLES_MAX: usize = 8;
/// The longest text of an event, in bytes.
pub const EVENT_TEXT_MAX: usize = 512;
/// The owner of a segment that holds metadata pages.
pub const OWNER_METADATA: TableNo = TableNo(u32::MAX);
pub(in crate::format) const DISK_ABSENT: DiskNo = DiskNo(u16::MAX);

/// One fact.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Record<'a> {
    /// Numbers that were given out already.
    Pool(PoolRecord),
    /// A member.
    Disk(DiskRecord),
    /// A virtual disk exists.
    Vdisk(VdiskRecord),
    /// It does not exist any more.
    VdiskDrop(VdiskNo),
    /// A stripe table exists.
    Table(TableRecord),
    /// It does not exist any more; its chunks went with it.
    TableDrop(TableNo),
    /// A segment exists, here.
    Segment(SegmentRecord),
    /// The tree's root. In checkpoints only.
    Tree(TreeRecord),
    /// It does not exist any more; its slabs are free.
    SegmentDrop(SegmentNo),
    /// A chunk of a stripe table has its pages here.
    Chunk(ChunkRecord),
    /// A stripe is at a new place.
    Commit(CommitRecord<'a>),
    /// A stripe was moved, and is the same as ever: it retires nothing, and what is packed above it stays.
    Move(CommitRecord<'a>),
    /// Stripes are unmapped: they read as what lies below, or zeros.
    Unmap(UnmapRecord),
    /// Data that a flush forced out before its stripe was whole.
    Landed(LandedRecord<'a>),
    /// Units of a virtual disk lie in a packed stripe.
    Pack(PackRecord),
    /// A member is none any more.
    DiskDrop(DiskNo),
    /// What the owner set.
    Settings(SettingsRecord),
    /// A job, as it is now.
    Job(JobRecord),
    /// It is forgotten.
    JobDrop(JobNo),
    /// Something happened that people may want to know of.
    Event(EventRecord),
    /// The read cache of a virtual disk; without slabs: it has none.
    ReadCache(ReadCacheRecord),
}

/// See [`Record::Pool`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PoolRecord {
    /// The next segment's number.
    pub next_segment: SegmentNo,
    /// The next table's number.
    pub next_table: TableNo,
    /// The next virtual disk's number.
    pub next_vdisk: VdiskNo,
    /// The next job's number.
    pub next_job: JobNo,
    /// The number after that of the disk that joined last; 0: not known.
    pub next_disk: DiskNo,
}

/// See [`Record::Disk`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DiskRecord {
    /// Its number in the pool.
    pub no: DiskNo,
    /// [`Media`] as a number.
    pub media: Media,
    /// [`Usage`] as a number.
    pub usage: Usage,
    /// Its slabs.
    pub slabs: u32,
    /// Its size in bytes.
    pub disk_len: ByteCount,
    /// Its name, for people.
    pub name: String,
    /// What may fail with it (an enclosure, a rack); empty: nothing.
    pub domain: String,
    /// What it missed.
    pub away: Away,
    /// Whether a person took it out for a while.
    pub maintenance: bool,
    /// What a retired disk was used for before.
    pub retired_from: Usage,
    /// What a person said of its cache.
    pub power: PowerProtected,
}

/// Whether a disk is behind the others, and what is known of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Away {
    /// It has everything.
    #[default]
    No,
    /// It lacks what [`SegmentRecord::missed`] says, and metadata.
    Tracked,
    /// Nobody wrote down what it lacks.
    Unknown,
}

/// What a disk is made of.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Media {
    /// Not known.
    #[default]
    Unspecified,
    /// It seeks.
    Hdd,
    /// It does not.
    Ssd,
}

/// Whether a disk keeps what it has taken when the power fails, as a person said.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum PowerProtected {
    /// Nothing was said: what the disk tells holds.
    #[default]
    Auto,
    /// It does, whatever it tells.
    Yes,
    /// It does not, whatever it tells.
    No,
}

/// What a disk is used for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Usage {
    /// For data, automatically.
    #[default]
    AutoSelect,
    /// Only where it is named.
    ManualSelect,
    /// A reserve.
    HotSpare,
    /// For the log.
    Journal,
    /// For nothing new.
    Retired,
}

impl Usage {
    /// Whether data and metadata leave a disk that is used so: what else it is for, the log, has room of its own.
    pub fn is_for_no_data(self) -> bool {
        matches!(self, Usage::Journal | Usage::Retired)
    }
}

impl PoolRecord {
    /// Gives out the number of a new table.
    pub fn take_table(&mut self) -> TableNo {
        let id = self.next_table;
        self.next_table = id.next();
        id
    }
}

/// See [`Record::Vdisk`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct VdiskRecord {
    /// Its number; never reused.
    pub id: VdiskNo,
    /// Its name, for people.
    pub name: String,
    /// Its size.
    pub size: ByteCount,
    /// Bytes of its logical sector: 512 or 4096.
    pub sector: u32,
    /// Whether its slabs were reserved when it was made.
    pub fixed: bool,
    /// Its stack of stripe tables, newest first.
    pub tables: Vec<TableNo>,
    /// The share of its size that may lie in packed stripes, in thousandths, where it has one of its own; at most
    /// [`crate::limits::FINE_SHARE_MAX`].
    pub fine_share: Option<u16>,
    /// Its write-back cache.
    pub cache: Option<CacheRecord>,
    /// Who says what that is, also where there is none.
    pub cache_choice: CacheChoice,
    /// Its fast tier.
    pub tier: Option<TierRecord>,
}

/// The fast tier of a virtual disk: places for some of its stripes, with a layout and on disks of their own choice.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TierRecord {
    /// The most bytes of data that may lie in it.
    pub size: ByteCount,
    /// The layout of the stripes that lie there; as many bytes of data each as in the table.
    pub layout: Layout,
    /// The disks that it may lie on; none: every disk that takes data by itself.
    pub disks: DiskSet,
    /// Bytes of the virtual disk that are to lie there whatever their heat, in order, apart; at most
    /// [`crate::limits::PINS_MAX`].
    pub pins: Vec<Range<u64>>,
}

/// Who says what write-back cache a virtual disk has.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum CacheChoice {
    /// The pool: what suits its disks, chosen anew when these change.
    #[default]
    Auto,
    /// The owner, who typed a size or disks, or that there is to be none.
    Typed,
}

/// The write-back cache of a virtual disk: packed stripes that lie on disks of their own choice.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CacheRecord {
    /// The most bytes of data that may lie in it.
    pub size: ByteCount,
    /// The layout of its packed stripes.
    pub layout: Layout,
    /// The disks that it may lie on, at least one.
    pub disks: DiskSet,
}

/// See [`Record::ReadCache`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ReadCacheRecord {
    /// The virtual disk whose it is.
    pub vdisk: VdiskNo,
    /// The size that was asked for. It has fewer slabs where disks of it have left.
    pub size: ByteCount,
    /// The disks that it may lie on, at least one where it has slabs.
    pub disks: DiskSet,
    /// What its index on the disks names it by: no two caches of a pool are born alike.
    pub born: u64,
    /// Its slabs.
    pub runs: Vec<SlabRun>,
}

/// Slabs of one disk, side by side.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SlabRun {
    /// The disk.
    pub disk: DiskNo,
    /// The first slab.
    pub first: u32,
    /// How many; not 0.
    pub count: u32,
}

/// See [`Record::Table`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TableRecord {
    /// Its number; never reused.
    pub id: TableNo,
    /// Its layout.
    pub layout: Layout,
    /// The disks its segments may lie on; none: every disk that takes data by itself.
    pub disks: DiskSet,
    /// The table whose units its stripes hold, where they are packed stripes.
    pub packs: Option<TableNo>,
    /// The table whose stripes lie in its segments, where it is a fast tier: it maps nothing itself.
    pub tier: Option<TableNo>,
}

/// One slab of one disk.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct SlabAt {
    /// The disk's number.
    pub disk: DiskNo,
    /// The slab's number on it.
    pub slab: u32,
}

/// A run of metadata page pairs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PageRun {
    /// The metadata segment.
    pub segment: SegmentNo,
    /// The first page pair.
    pub first: u32,
    /// How many.
    pub count: u32,
}

/// See [`Record::Segment`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SegmentRecord {
    /// Its number; never reused.
    pub id: SegmentNo,
    /// The table its stripes belong to, or [`OWNER_METADATA`].
    pub owner: TableNo,
    /// The layout of its stripes.
    pub layout: Layout,
    /// Where its checksums are kept; none for metadata segments (`count` 0).
    pub sheet: PageRun,
    /// Whether the checksums of each stripe are followed by the mark of its owner. Segments that were made before
    /// format version 4 have none.
    pub owners: bool,
    /// Its slabs, by slot; `None`: that slot has no disk yet.
    pub slabs: Rc<[Option<SlabAt>]>,
    /// Slots (one bit each) that lack strips of stripes in use: their disk was away when those were written.
    pub missed: u128,
}

impl SegmentRecord {
    /// The disks that it has slabs on.
    pub fn disks(&self) -> DiskSet {
        self.slabs.iter().flatten().map(|at| at.disk).collect()
    }

    /// Checksums that the sheet has for each stripe, with the mark of its owner.
    pub fn sums_each(&self) -> u64 {
        self.layout.stripe_sums() as u64 + u64::from(self.owners)
    }

    /// Which checksums of the sheet are those of `count` stripes from `index` on.
    pub fn sums_range(&self, index: u32, count: u32) -> Range<u64> {
        let first = u64::from(index) * self.sums_each();
        first..first + u64::from(count) * self.sums_each()
    }
}

/// See [`Record::Settings`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SettingsRecord {
    /// Seconds until a missing disk is rebuilt elsewhere; `u32::MAX`: never.
    pub repair_after: u32,
    /// Seconds from the end of a scrub to the next; `u32::MAX`: never.
    pub scrub_every: u32,
    /// When the last scrub ended, in Unix seconds; 0: there was none.
    pub scrubbed: u64,
    /// Percent of the time that jobs leave to clients, 0 to 90.
    pub foreground_share: u8,
    /// Fill levels that are worth a warning, in percent, rising.
    pub full: [u8; 3],
    /// When fast tiers are put right each day, in minutes after midnight where the daemon runs, below
    /// [`MINUTES_OF_DAY`].
    pub tiers_at: Option<u16>,
}

/// Minutes of a day.
pub const MINUTES_OF_DAY: u16 = 24 * 60;

impl Default for SettingsRecord {
    fn default() -> SettingsRecord {
        SettingsRecord {
            repair_after: 5 * 60,
            scrub_every: 28 * 24 * 3600,
            scrubbed: 0,
            foreground_share: 50,
            full: [70, 80, 90],
            tiers_at: None,
        }
    }
}

/// What a job is to do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum JobKind {
    /// Full redundancy for everything again.
    Repair,
    /// Everything that is written is read and proven.
    Scrub,
    /// All disks filled alike, in proportion to their size.
    Rebalance,
    /// Everything leaves one disk.
    Evacuate {
        /// Which.
        disk: DiskNo,
        /// Where to, as far as that goes.
        to: Option<DiskNo>,
        /// Whether it leaves the pool at the end.
        forget: bool,
    },
    /// What lies in older tables of a virtual disk comes into its newest one, which has another layout.
    Reshape(VdiskNo),
    /// What is sought out most of a virtual disk comes to its fast tier, and what is not leaves it.
    Optimize(VdiskNo),
}

/// How far a job is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum JobState {
    /// It has its turn later.
    Waiting,
    /// It is at work.
    Running,
    /// A person stopped it for a while.
    Paused,
    /// It ended.
    Done,
    /// A person ended it.
    Cancelled,
    /// It could not be done.
    Failed,
}

/// See [`Record::Job`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct JobRecord {
    /// Its number; never reused.
    pub id: JobNo,
    /// What it does.
    pub kind: JobKind,
    /// How far it is.
    pub state: JobState,
    /// When it was begun, in Unix seconds.
    pub began: u64,
    /// Bytes done.
    pub done: u64,
    /// About how many there are in all.
    pub total: u64,
    /// The segment it goes on with (a scrub).
    pub cursor: u32,
    /// Bad blocks found.
    pub bad: u64,
    /// Bad blocks that were rewritten from redundancy.
    pub healed: u64,
}

/// Bytes of the tree's root.
pub const ROOT_LEN: usize = 72;

/// See [`Record::Tree`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TreeRecord {
    /// The root, as the tree writes it.
    pub root: [u8; ROOT_LEN],
    /// Which places it takes, and which ones it frees, beside those of the root before it.
    pub changes: Vec<PageChange>,
    /// Whether it says of each segment which stripes are in use.
    pub space: bool,
}

/// Places of pages of the tree, side by side, that one root takes or frees.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PageChange {
    /// The metadata segment.
    pub segment: SegmentNo,
    /// The first block, counted from the beginning of its slabs.
    pub first: u32,
    /// How many blocks.
    pub count: u32,
    /// Whether they are taken, not freed.
    pub taken: bool,
}

/// See [`Record::Chunk`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ChunkRecord {
    /// The table.
    pub table: TableNo,
    /// The chunk's number within it.
    pub chunk: u32,
    /// Its pages.
    pub pages: PageRun,
    /// The version that each page's image has at least: an older one is what a lost write left behind.
    pub versions: [u32; CHUNK_PAGES as usize],
}

/// See [`Record::Commit`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CommitRecord<'a> {
    /// The table.
    pub table: TableNo,
    /// The virtual stripe.
    pub stripe: u64,
    /// The segment it is in now.
    pub segment: SegmentNo,
    /// Its index there.
    pub index: u32,
    /// Which version of the stripe it is.
    pub birth: Birth,
    /// Landed records of this stripe with a lower sequence number are part of it.
    pub retires: u64,
    /// The checksums of all its blocks, slot after slot.
    pub sums: Cow<'a, [u32]>,
}

/// See [`Record::Unmap`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct UnmapRecord {
    /// The table.
    pub table: TableNo,
    /// The first virtual stripe.
    pub first: u64,
    /// How many.
    pub count: u64,
    /// Landed records of these stripes with a lower sequence number are void.
    pub retires: u64,
    /// They are zeros from now on, whatever older tables of the stack have there; else these tell.
    pub zero: bool,
}

/// See [`Record::Pack`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PackRecord {
    /// The table of the packed stripe.
    pub table: TableNo,
    /// The packed stripe.
    pub stripe: u64,
    /// Landed records with a lower sequence number are void in the stripes of the virtual disk that these units are of.
    pub retires: u64,
    /// What it holds that is alive.
    pub runs: Vec<PackRun>,
}

/// Units of 4 KiB that lie beside each other, on the virtual disk and in the packed stripe.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PackRun {
    /// The first unit of the virtual disk.
    pub unit: u64,
    /// Where it lies in the packed stripe, in units.
    pub index: u32,
    /// How many.
    pub count: u32,
}

/// See [`Record::Landed`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LandedRecord<'a> {
    /// The virtual disk.
    pub vdisk: VdiskNo,
    /// Where on it, in bytes.
    pub offset: u64,
    /// The bytes: whole sectors.
    pub data: Cow<'a, [u8]>,
}

/// See [`Record::Event`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct EventRecord {
    /// Its number within the pool; they rise by one.
    pub no: u64,
    /// When, in milliseconds since 1970 UTC.
    pub at_ms: u64,
    /// The low bits of the number it had where it was first told ([`EventRecord::told_as`]); 0: not known. With the
    /// moment it says which event this is.
    pub told: u32,
    /// Whether a person should look.
    pub warning: bool,
    /// What happened: [`EVENT_TEXT_MAX`] bytes at most.
    pub text: String,
}

impl EventRecord {
    /// What a record keeps of the number that an event had where it was first told.
    pub const fn told_as(number: u64) -> u32 {
        (number & 0xFF_FFFF) as u32
    }
}
