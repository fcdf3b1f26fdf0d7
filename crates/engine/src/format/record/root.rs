//! The root of the tree as a record of a checkpoint, and which of its places that root takes and frees.

use super::*;
use crate::units::SegmentNo;

pub(super) fn len(tree: &TreeRecord) -> usize {
    size_of::<TreeBody>() + tree.changes.len() * size_of::<PageChangeBody>()
}

pub(super) fn encode(tree: &TreeRecord, out: &mut Vec<u8>) {
    let (changes, space) = (tree.changes.len() as u32, u32::from(tree.space));
    out.extend_from_slice(TreeBody { root: tree.root, changes, space }.as_bytes());
    for PageChange { segment, first, count, taken } in &tree.changes {
        let body = PageChangeBody { segment: segment.0, first: *first, count: *count, taken: u32::from(*taken) };
        out.extend_from_slice(body.as_bytes());
    }
}

pub(super) fn decode(body: &[u8]) -> Result<TreeRecord> {
    let (tree, mut rest) = take::<TreeBody>(body)?;
    let mut changes = Vec::new();
    for _ in 0..tree.changes {
        let (change, after) = take::<PageChangeBody>(rest)?;
        rest = after;
        let PageChangeBody { segment, first, count, taken } = change;
        changes.push(PageChange { segment: SegmentNo(segment), first, count, taken: taken != 0 });
    }
    Ok(TreeRecord { root: tree.root, changes, space: tree.space == 1 })
}
