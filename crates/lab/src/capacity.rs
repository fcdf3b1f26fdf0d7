//! Room, counted as a pool of these disks would count it: the engine divides the disks, and its allocator's own formula
//! says how much of a layout fits. What `weft vdisk create --size max` gives in a new pool is this number.

use crate::disks::PlannedDisk;
use weft_engine::disk_set::DiskSet;
use weft_engine::error::Result;
use weft_engine::format::Id;
use weft_engine::geometry::Layout;
use weft_engine::limits::default_slab;
use weft_engine::pool::PoolOptions;
use weft_engine::pool::create::plan_pool;
use weft_engine::pool::room::{Room, unusable};
use weft_engine::segment::Map;
use weft_engine::units::ByteCount;
use weft_sim::capacity::empty_map;

/// A new pool, as far as room is concerned.
pub struct Space {
    map: Map,
}

impl Space {
    /// The space of a new pool of `disks`; the engine's own error for disks that it would refuse.
    pub fn new(disks: &[PlannedDisk]) -> Result<Space> {
        let sizes: Vec<ByteCount> = disks.iter().map(|disk| ByteCount(disk.size)).collect();
        let slab = default_slab(&sizes);
        let options = PoolOptions { id: Id::default(), name: "plan".into(), slab, log_len: None };
        Ok(Space { map: empty_map(&plan_pool(&sizes, &options)?, slab) })
    }

    /// User bytes that one virtual disk of `layout` can have.
    pub fn room(&self, layout: Layout) -> ByteCount {
        self.map.room_for(layout, 0, DiskSet::EMPTY)
    }

    /// Bytes that `layout` cannot use because disks are unequal, and a sentence about them; empty if there are none.
    pub fn stranded(&self, layout: Layout) -> (ByteCount, String) {
        let room = |disk: &weft_engine::segment::DiskRoom| Room {
            name: disk.record.name.clone(),
            free: self.map.slab * disk.free.count() as u64,
        };
        unusable(layout, &self.map.disks.values().map(room).collect::<Vec<_>>(), self.map.slab)
    }
}
