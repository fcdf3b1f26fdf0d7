//! How much of unequal disks the layouts can use: what the engine's allocator takes, beside what is possible at all. No
//! disk contents: only the map of the pool.

use std::fmt;
use weft_engine::disk_set::DiskSet;
use weft_engine::format::label::DiskPlan;
use weft_engine::format::record::{Away, CacheChoice, DiskRecord, Media, PowerProtected, Usage, VdiskRecord};
use weft_engine::geometry::{Layout, Resiliency};
use weft_engine::pool::room::{Room, unusable};
use weft_engine::segment::Map;
use weft_engine::segment::allocate::Claim;
use weft_engine::units::{ByteCount, DiskNo, TableNo, VdiskNo};

/// Eight disks from 500 GB to 4 TB.
pub const MIXED_GB: [u64; 8] = [500, 500, 1000, 1000, 2000, 2000, 3000, 4000];
/// Large, so that there are not too many of them to count one by one.
const SLAB: ByteCount = ByteCount::mib(256);
const INTERLEAVE: ByteCount = ByteCount::kib(256);

/// One layout on [`MIXED_GB`].
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The layout.
    pub layout: Layout,
    /// User bytes that fit if disks consisted of nothing but slabs as small as one likes.
    pub possible: f64,
    /// User bytes that the engine says it can allocate.
    pub promised: f64,
    /// User bytes of the segments that it did allocate, one by one, until there was no room.
    pub allocated: f64,
    /// What the engine says about the rest.
    pub sentence: String,
}

/// Parity and mirrors of every width.
pub fn layouts() -> Vec<Layout> {
    let layout = |resiliency, columns| Layout::new(resiliency, columns, INTERLEAVE).expect("these layouts are valid");
    let parity = (3..=8).map(|columns| layout(Resiliency::Parity { parity: 1 }, columns));
    let two = (1..=4).map(|columns| layout(Resiliency::Mirror { copies: 2 }, columns));
    let three = (1..=2).map(|columns| layout(Resiliency::Mirror { copies: 3 }, columns));
    parity.chain(two).chain(three).collect()
}

/// Fills the disks with one layout.
pub fn run(layout: Layout) -> Outcome {
    let (mut map, table) = map_of(layout, 1000, SLAB);
    let room = |disk: &weft_engine::segment::DiskRoom| Room {
        name: disk.record.name.clone(),
        free: SLAB * disk.free.count() as u64,
    };
    let (_, sentence) = unusable(layout, &map.disks.values().map(room).collect::<Vec<_>>(), SLAB);
    let per_segment = (layout.segment_stripes(SLAB) as u64 * layout.data_len().0) as f64;
    let promised = map.segments_possible(layout, DiskSet::EMPTY) as f64 * per_segment;
    let mut allocated = 0.0;
    // The allocator goes on with absent slots where the layout bears that: those hold data, but not as safely as was
    // asked for.
    while let Ok(id) = map.new_segment(table, &mut Vec::new()) {
        if map.segments[&id].record.slabs.iter().any(|at| at.is_none()) {
            break;
        }
        allocated += per_segment;
    }
    Outcome { layout, possible: possible(layout), promised, allocated, sentence }
}

/// A stream fills unequal disks, with as many segments at once as there are disks for: it gets what was
/// promised, but for metadata, as if it filled one segment after the other. Panics otherwise.
pub fn a_stream_fills_unequal_disks() {
    let slab = ByteCount::mib(64);
    for layout in layouts() {
        let (mut map, table) = map_of(layout, 20, slab);
        let most = map.segments_possible(layout, DiskSet::EMPTY) * layout.segment_stripes(slab) as u64;
        map.tables.get_mut(&table).expect("it was just made").fixed = false;
        let mut stripes = 0;
        loop {
            let claimed = (0..256).take_while(|_| map.claim(table, Claim::Overwrite, &mut Vec::new())).count() as u32;
            if claimed == 0 {
                break;
            }
            let (place, count) = map.take_stripes(table, claimed, &mut Vec::new()).expect("they were claimed");
            map.end_write(place, count);
            (count..claimed).for_each(|_| map.unclaim(table));
            stripes += count as u64;
        }
        assert!(stripes * 100 >= most * 98, "{layout}: {stripes} of {most} stripes");
    }
}

/// The most user bytes that any way of placing could get: with `s` bytes per slot, no disk gives more than `s`; so `s`
/// is possible only if the sizes, each counted up to `s`, add up to `slots * s`. That sum bends at the sizes only, so
/// between two of them it is a line.
fn possible(layout: Layout) -> f64 {
    let slots = layout.slots() as f64;
    let mut sizes = MIXED_GB.map(|gb| gb as f64 * 1e9);
    sizes.sort_by(f64::total_cmp);
    // If the `full` smallest disks are used whole and the others up to `s`: small sizes + others * s = slots * s.
    let mut best = 0.0f64;
    for full in 0..=sizes.len() {
        let (small, others) = (sizes[..full].iter().sum::<f64>(), (sizes.len() - full) as f64);
        let ceiling = sizes.get(full).copied().unwrap_or(f64::INFINITY);
        let most = if others >= slots { ceiling } else { (small / (slots - others)).min(ceiling) };
        let holds = sizes.iter().map(|size| size.min(most)).sum::<f64>() >= slots * most * (1.0 - 1e-12);
        if most.is_finite() && holds {
            best = best.max(most);
        }
    }
    best * layout.data_columns() as f64
}

/// A pool of empty disks, with a fixed table of `layout`: `mb` of each for every GB that it has in [`MIXED_GB`].
fn map_of(layout: Layout, mb: u64, slab: ByteCount) -> (Map, TableNo) {
    let plan = |gb| DiskPlan::new(ByteCount(gb * mb * 1_000_000), slab, Some(ByteCount::gib(1)));
    let plans = MIXED_GB.map(|gb| plan(gb).expect("the disk is large enough"));
    let mut map = empty_map(&plans, slab);
    let (name, size) = (String::from("vdisk"), ByteCount::gib(1));
    let vdisk = VdiskRecord {
        id: VdiskNo(0),
        name,
        size,
        sector: 4096,
        fixed: true,
        tables: Vec::new(),
        fine_share: None,
        cache: None,
        tier: None,
        cache_choice: CacheChoice::Auto,
    };
    let (id, _) = map.new_vdisk(vdisk, layout, DiskSet::EMPTY);
    let table = map.vdisks[&id].tables[0];
    (map, table)
}

/// The map of a new pool of hard disks that are divided so.
pub fn empty_map(plans: &[DiskPlan], slab: ByteCount) -> Map {
    let mut map = Map::new(slab);
    for (no, plan) in plans.iter().enumerate() {
        let record = DiskRecord {
            no: DiskNo(no as u16),
            media: Media::Hdd,
            usage: Usage::AutoSelect,
            slabs: plan.slabs,
            disk_len: plan.disk_len,
            name: format!("d{no}"),
            domain: String::new(),
            away: Away::No,
            maintenance: false,
            retired_from: Usage::AutoSelect,
            power: PowerProtected::Auto,
        };
        map.add_disk(record, plan.blob_len);
    }
    map
}

/// The heading of a table of [`Outcome`]s.
pub const HEADING: &str = "layout                                   possible  allocated   share  what is left over";

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:38} {:7.3} TB {:7.3} TB", self.layout.to_string(), self.possible / 1e12, self.allocated / 1e12)?;
        write!(f, " {:6.2} %  {}", self.allocated / self.possible * 100.0, self.sentence)
    }
}
