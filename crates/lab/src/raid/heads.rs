//! The stripe cache of an array that writes in place: rows of one block from every column, with what is valid of each
//! in memory and what waits to be written.
//!
//! Invariants
//! 1. There are never more rows than the cache has room for. One goes when another needs its place: the one that was
//!    used longest ago, of those that nobody waits for and nobody works on.
//! 2. What is valid of a row is what was read or written since it came.

use std::collections::BTreeMap;
use std::rc::Rc;

/// Bytes of a row on one disk.
pub const BLOCK: u64 = 4096;

/// A row of blocks, numbered along the disks.
pub type RowNo = u64;

/// A set of columns: the data of the stripe in their order, then its parity.
pub type Columns = u64;

/// What is known of a row.
struct Head<T> {
    valid: Columns,
    /// What clients want written that nobody works on yet.
    wanted: Columns,
    clients: Vec<Rc<T>>,
    busy: bool,
    used: u64,
}

/// The cache. `T` is what waits for a row.
pub struct Heads<T> {
    room: usize,
    data: u32,
    parity: u32,
    heads: BTreeMap<RowNo, Head<T>>,
    clock: u64,
}

impl<T> Heads<T> {
    /// An empty cache for so many rows of an array with so many columns of data and of parity.
    pub fn new(room: usize, data: u64, parity: u64) -> Heads<T> {
        Heads { room, data: data as u32, parity: parity as u32, heads: BTreeMap::new(), clock: 0 }
    }

    /// Notes that a client wants columns of a row written; not if there is no place for the row now.
    pub fn want(&mut self, row: RowNo, columns: Columns, client: &Rc<T>) -> bool {
        if !self.heads.contains_key(&row) && !self.make_room() {
            return false;
        }
        self.clock += 1;
        let fresh = || Head { valid: 0, wanted: 0, clients: Vec::new(), busy: false, used: 0 };
        let head = self.heads.entry(row).or_insert_with(fresh);
        head.wanted |= columns;
        head.clients.push(client.clone());
        head.used = self.clock;
        true
    }

    /// Rows that wait and that nobody works on.
    pub fn waiting(&self) -> Vec<RowNo> {
        self.heads.iter().filter(|(_, head)| head.wanted != 0 && !head.busy).map(|(row, _)| *row).collect()
    }

    /// What has to be read before what is wanted of a row can be written: what is overwritten and the parity, or the
    /// rest of the row, whichever is less; the rest when both are the same.
    pub fn missing(&self, row: RowNo) -> Columns {
        let head = &self.heads[&row];
        let (data, parity) = ((1 << self.data) - 1, ((1 << self.parity) - 1) << self.data);
        let modify = (head.wanted | parity) & !head.valid;
        let reconstruct = data & !head.wanted & !head.valid;
        if modify.count_ones() < reconstruct.count_ones() { modify } else { reconstruct }
    }

    /// Begins to work on a row.
    pub fn begin(&mut self, row: RowNo) {
        self.head(row).busy = true;
    }

    /// Notes that columns of a row were read.
    pub fn was_read(&mut self, row: RowNo, columns: Columns) {
        self.head(row).valid |= columns;
    }

    /// Takes what is wanted of a row to write it, parity included, and who waits for it.
    pub fn take(&mut self, row: RowNo) -> (Columns, Vec<Rc<T>>) {
        let parity = ((1 << self.parity) - 1) << self.data;
        let head = self.head(row);
        let columns = std::mem::take(&mut head.wanted) | parity;
        head.valid |= columns;
        (columns, std::mem::take(&mut head.clients))
    }

    /// Ends work on a row.
    pub fn end(&mut self, row: RowNo) {
        self.clock += 1;
        let clock = self.clock;
        let head = self.head(row);
        (head.busy, head.used) = (false, clock);
    }

    fn head(&mut self, row: RowNo) -> &mut Head<T> {
        self.heads.get_mut(&row).expect("rows that somebody waits for stay")
    }

    fn make_room(&mut self) -> bool {
        if self.heads.len() < self.room {
            return true;
        }
        let idle = self.heads.iter().filter(|(_, head)| !head.busy && head.wanted == 0);
        let Some(oldest) = idle.min_by_key(|(_, head)| head.used).map(|(row, _)| *row) else { return false };
        self.heads.remove(&oldest);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lesser_way_is_taken_and_what_is_in_memory_is_not_read() {
        let (mut heads, client) = (Heads::new(2, 4, 1), Rc::new(()));
        assert!(heads.want(0, 0b0001, &client));
        assert_eq!(heads.missing(0), 0b10001, "one of four: what is overwritten, and the parity");
        assert!(heads.want(0, 0b0010, &client));
        assert_eq!(heads.missing(0), 0b01100, "two of four: the two others");
        heads.was_read(0, 0b01100);
        assert_eq!(heads.missing(0), 0);
        assert_eq!((heads.take(0).0, heads.waiting().len()), (0b10011, 0));
        assert!(heads.want(0, 0b0100, &client));
        assert_eq!(heads.missing(0), 0, "all of it was read or written before");
        let mut dual: Heads<()> = Heads::new(2, 4, 2);
        assert!(dual.want(0, 0b0001, &client));
        assert_eq!(dual.missing(0), 0b1110, "three either way: the rest");
    }

    #[test]
    fn the_row_that_was_used_longest_ago_goes_and_none_that_somebody_waits_for() {
        let (mut heads, client) = (Heads::new(2, 4, 1), Rc::new(()));
        assert!(heads.want(1, 1, &client) && heads.want(2, 1, &client) && !heads.want(3, 1, &client));
        heads.begin(1);
        heads.take(1);
        assert!(!heads.want(3, 1, &client), "one is worked on, one waits");
        heads.end(1);
        assert!(heads.want(3, 1, &client) && heads.heads.keys().eq([&2, &3]));
    }
}
