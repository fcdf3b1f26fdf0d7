//! The planner: (layout, what can be used, what is wanted) -> which blocks to read and what to compute from them. Pure.
//!
//! The cases of a read, in the order the code takes them:
//! 1. A wanted strip can be read: read it (from the preferred copy, where there are several).
//! 2. A wanted strip cannot be read and there is parity: read the same blocks of as many other columns as there are
//!    data columns, data columns first, and compute it. Several such strips share one set of reads over the union of
//!    their blocks.
//! 3. Neither: the range is lost.
//!
//! Invariants
//! 1. A plan never reads a slot that `usable` denies for those blocks.
//! 2. A plan reads each slot at most once.

use crate::geometry::Layout;
use alloc::vec::Vec;
use core::fmt;
use core::ops::Range;

/// Blocks of one column's strip that somebody wants.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Want {
    /// The column: data first, then P, then Q.
    pub column: usize,
    /// 4 KiB blocks within the strip.
    pub blocks: Range<usize>,
}

/// One read of a plan.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SlotRead {
    /// Where.
    pub slot: usize,
    /// The column that lies there.
    pub column: usize,
    /// 4 KiB blocks within the strip.
    pub blocks: Range<usize>,
}

/// What to do to get the wanted blocks.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Plan {
    /// Blocks to read.
    pub reads: Vec<SlotRead>,
    /// Columns to compute from the reads, all over the blocks `over`.
    pub compute: Vec<usize>,
    /// The blocks that are computed.
    pub over: Range<usize>,
}

/// Plans to get `wants` (at most one per column) of the stripe with `index`. `usable` says whether blocks of a slot may
/// be read; `cost` ranks copies (lowest wins). `None`: the wanted data is lost.
pub fn read(
    layout: Layout,
    index: u32,
    wants: &[Want],
    usable: impl Fn(usize, &Range<usize>) -> bool,
    cost: impl Fn(usize) -> u64,
) -> Option<Plan> {
    let source = |column: usize, blocks: &Range<usize>| {
        let slots = (0..layout.copies()).map(|copy| layout.slot(index, column, copy));
        slots.filter(|slot| usable(*slot, blocks)).min_by_key(|slot| cost(*slot))
    };
    let mut plan = Plan::default();
    let mut missing = Vec::new();
    for want in wants {
        match source(want.column, &want.blocks) {
            Some(slot) => {
                plan.reads.push(SlotRead { slot, column: want.column, blocks: want.blocks.clone() });
            }
            None => missing.push(want),
        }
    }
    if missing.is_empty() {
        return Some(plan);
    }
    let over = missing.iter().map(|want| want.blocks.clone()).reduce(union).expect("something is missing");
    if layout.parity() == 0 {
        return None;
    }
    let mut survivors = 0;
    for column in 0..layout.columns() {
        if survivors == layout.data_columns() || missing.iter().any(|want| want.column == column) {
            continue;
        }
        let known = plan.reads.iter().position(|read| read.column == column);
        let blocks = known.map_or(over.clone(), |at| union(plan.reads[at].blocks.clone(), over.clone()));
        let Some(slot) = source(column, &blocks) else { continue };
        match known {
            Some(at) => plan.reads[at].blocks = blocks,
            None => plan.reads.push(SlotRead { slot, column, blocks }),
        }
        survivors += 1;
    }
    plan.compute = missing.iter().map(|want| want.column).collect();
    plan.over = over;
    (survivors == layout.data_columns()).then_some(plan)
}

fn union(a: Range<usize>, b: Range<usize>) -> Range<usize> {
    a.start.min(b.start)..a.end.max(b.end)
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for read in &self.reads {
            writeln!(f, "read    column {:<2} slot {:<2} blocks {:?}", read.column, read.slot, read.blocks)?;
        }
        for column in &self.compute {
            writeln!(f, "compute column {column:<2}         blocks {:?} from the others", self.over)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::geometry::Resiliency;
    use crate::units::ByteCount;
    use alloc::vec;

    /// Every layout up to 6 columns x every set of unusable slots x every wanted column: the plan exists exactly when
    /// the redundancy covers the loss, reads only usable slots, and reads enough.
    #[test]
    fn a_plan_exists_exactly_when_the_redundancy_covers_the_loss() {
        for resiliency in [
            Resiliency::Simple,
            Resiliency::Mirror { copies: 2 },
            Resiliency::Mirror { copies: 3 },
            Resiliency::Parity { parity: 1 },
            Resiliency::Parity { parity: 2 },
        ] {
            for columns in resiliency.columns_min()..=6 {
                let layout = Layout::new(resiliency, columns, ByteCount::kib(16)).unwrap();
                for lost in 0u32..1 << layout.slots().min(12) {
                    for column in 0..layout.columns() {
                        check(layout, lost, column);
                    }
                }
            }
        }
    }

    fn check(layout: Layout, lost: u32, column: usize) {
        let index = 3;
        let usable = |slot: usize, _: &Range<usize>| lost >> slot & 1 == 0;
        let plan = read(layout, index, &[Want { column, blocks: 1..3 }], usable, |slot| slot as u64);
        let direct = (0..layout.copies()).any(|copy| usable(layout.slot(index, column, copy), &(0..1)));
        let survivors = (0..layout.slots()).filter(|slot| usable(*slot, &(0..1))).count();
        let computed = layout.parity() > 0 && survivors >= layout.data_columns();
        assert_eq!(plan.is_some(), direct || computed, "{layout} lost {lost:b} column {column}");
        let Some(plan) = plan else { return };
        assert!(plan.reads.iter().all(|read| usable(read.slot, &read.blocks)));
        assert!(plan.reads.iter().all(|read| layout.column(index, read.slot) == read.column));
        if direct {
            assert_eq!((plan.reads.len(), plan.compute.len()), (1, 0));
        } else {
            assert_eq!(plan.reads.len(), layout.data_columns());
            assert_eq!(plan.compute, vec![column]);
        }
    }

    #[test]
    fn a_missing_column_widens_the_reads_of_its_neighbours_and_reads_each_once() {
        let layout = Layout::new(Resiliency::Parity { parity: 1 }, 4, ByteCount::kib(64)).unwrap();
        let wants =
            [Want { column: 0, blocks: 12..16 }, Want { column: 1, blocks: 0..16 }, Want { column: 2, blocks: 0..2 }];
        let plan = read(layout, 0, &wants, |slot, _| slot != 1, |_| 0).unwrap();
        assert_eq!(plan.compute, vec![1]);
        assert_eq!(plan.reads.len(), 3);
        assert!(plan.reads.iter().all(|read| read.blocks == (0..16)));
    }

    #[test]
    fn of_two_copies_the_cheaper_is_read() {
        let layout = Layout::new(Resiliency::Mirror { copies: 2 }, 1, ByteCount::kib(64)).unwrap();
        let plan = read(layout, 0, &[Want { column: 0, blocks: 0..1 }], |_, _| true, |slot| 9 - slot as u64).unwrap();
        assert_eq!(plan.reads[0].slot, 1);
    }
}
