//! What matters of a file system to the array below it: where the bytes of files lie. Room is given in clusters, from
//! where the last file ended on, then from the start again; what is deleted is trimmed.

use crate::spaces::ranges::Ranges;
use std::ops::Range;

/// A file system without names.
pub struct Files {
    cluster: u64,
    free: Ranges,
    free_bytes: u64,
    cursor: u64,
    files: Vec<Vec<Range<u64>>>,
}

impl Files {
    /// An empty one on these bytes, with clusters of so many.
    pub fn new(bytes: Range<u64>, cluster: u64) -> Files {
        let mut free = Ranges::default();
        free.insert(bytes.clone());
        Files { cluster, free, free_bytes: bytes.end - bytes.start, cursor: bytes.start, files: Vec::new() }
    }

    /// Bytes that are free.
    pub fn free_bytes(&self) -> u64 {
        self.free_bytes
    }

    /// Makes a file of `len` bytes: where it lies.
    pub fn create(&mut self, len: u64) -> Vec<Range<u64>> {
        let mut left = len.next_multiple_of(self.cluster);
        assert!(left <= self.free_bytes, "there is no room for a file of {len} bytes");
        self.free_bytes -= left;
        let mut extents = Vec::new();
        while left > 0 {
            let room = self.free.first_from(self.cursor).expect("there is room for it");
            let take = room.start..room.end.min(room.start + left);
            self.free.remove(take.clone());
            left -= take.end - take.start;
            self.cursor = take.end;
            extents.push(take);
        }
        self.files.push(extents.clone());
        extents
    }

    /// Deletes the `nth` of the files there are: where it lay.
    pub fn delete(&mut self, nth: usize) -> Vec<Range<u64>> {
        let extents = self.files.remove(nth);
        for extent in &extents {
            self.free.insert(extent.clone());
            self.free_bytes += extent.end - extent.start;
        }
        extents
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_take_whole_clusters_next_to_each_other_and_room_is_used_again() {
        let mut files = Files::new(0..1 << 20, 64 << 10);
        let (first, second) = (0..128 << 10, 128 << 10..192 << 10);
        assert_eq!(files.create(100_000), [first]);
        assert_eq!(files.create(1), [second]);
        files.create(768 << 10);
        assert_eq!(files.free_bytes(), 64 << 10);
        files.delete(0);
        assert_eq!(files.create(192 << 10), [960 << 10..1 << 20, 0..128 << 10]);
        assert_eq!(files.free_bytes(), 0);
    }
}
