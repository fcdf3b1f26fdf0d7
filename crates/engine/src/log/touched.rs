//! What records say of configuration that stands in the tree.

use crate::format::record::Record;
use crate::units::{SegmentNo, TableNo, VdiskNo};

/// Configuration that stands in the tree, and that a record said something of.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Touched {
    /// A segment.
    Segment(SegmentNo),
    /// A table: it is no more, nor are its chunks.
    Table(TableNo),
    /// A chunk of a table.
    Chunk(TableNo, u32),
    /// A virtual disk: it is no more.
    Vdisk(VdiskNo),
}

impl Touched {
    /// What `record` says something of.
    pub fn by(record: &Record<'_>) -> Option<Touched> {
        match record {
            Record::Segment(segment) => Some(Touched::Segment(segment.id)),
            Record::SegmentDrop(id) => Some(Touched::Segment(*id)),
            Record::TableDrop(id) => Some(Touched::Table(*id)),
            Record::Chunk(chunk) => Some(Touched::Chunk(chunk.table, chunk.chunk)),
            Record::VdiskDrop(id) => Some(Touched::Vdisk(*id)),
            _ => None,
        }
    }
}
