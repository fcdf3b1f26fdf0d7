//! Planted bugs: rules of the tree that a test breaks to see that the model test notices. Outside of this crate's own
//! tests [`active`] is a constant `false`. They are not in [`crate::mutant`], for the storm does not reach the tree
//! before the pool stands on it; then they move there.

/// One broken rule.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Mutant {
    /// The root is the truth before the pages below it are durable.
    RootBeforePages,
    /// What a checkpoint replaces is free at once.
    ReusedBeforeSuccessor,
    /// Readers of an older root do not keep its places.
    ReadersForgotten,
    /// A page that is not durable yet may leave the cache.
    DirtyEvicted,
    /// Some pages that a version holds on to are in no dead list.
    DeadListForgets,
    /// Pages that died are free although a version reaches them.
    VersionsForgotten,
    /// When a version goes, all that died since goes with it.
    DropTakesTooMuch,
    /// A key that changed while its older change was written is taken for written.
    CheckpointSkipsChanged,
    /// Changes below a page that cannot be read are taken for written.
    StuckForgotten,
    /// What is read is not compared with its checksum.
    ChecksumIgnored,
    /// What is read may be of another time.
    BirthIgnored,
    /// What a checkpoint writes is not read while it does.
    FrozenUnread,
    /// Pages are written, but not flushed, before the root is the truth.
    FlushForgotten,
    /// Less than full pages are left alone.
    ThinPagesStay,
    /// Whole subtrees are dropped, and only their top page is freed.
    SubtreesLeak,
    /// A put into a range that is being deleted is deleted, too.
    ClearTakesLaterPuts,
    /// The places of a checkpoint that failed stay taken.
    FailedCheckpointLeaks,
    /// Keys before the first child of a page, where others went, lead to no child.
    GapsForgotten,
    /// A page that is brought before it is needed may be of another time.
    BroughtBelieved,
}

/// Every mutant.
#[cfg(test)]
pub(super) const ALL: [Mutant; 19] = [
    Mutant::RootBeforePages,
    Mutant::ReusedBeforeSuccessor,
    Mutant::ReadersForgotten,
    Mutant::DirtyEvicted,
    Mutant::DeadListForgets,
    Mutant::VersionsForgotten,
    Mutant::DropTakesTooMuch,
    Mutant::CheckpointSkipsChanged,
    Mutant::StuckForgotten,
    Mutant::ChecksumIgnored,
    Mutant::BirthIgnored,
    Mutant::FrozenUnread,
    Mutant::FlushForgotten,
    Mutant::ThinPagesStay,
    Mutant::SubtreesLeak,
    Mutant::ClearTakesLaterPuts,
    Mutant::FailedCheckpointLeaks,
    Mutant::GapsForgotten,
    Mutant::BroughtBelieved,
];

#[cfg(test)]
pub(super) use switch::{active, set};

/// Whether `mutant` is planted: never.
#[cfg(not(test))]
pub(super) const fn active(_: Mutant) -> bool {
    false
}

#[cfg(test)]
mod switch {
    extern crate std;
    use super::Mutant;
    use core::cell::Cell;

    // Tests run side by side: what one of them breaks is broken for itself.
    std::thread_local!(static ACTIVE: Cell<Option<Mutant>> = const { Cell::new(None) });

    /// Breaks one rule, or none, for this thread from now on.
    pub(in super::super) fn set(mutant: Option<Mutant>) {
        ACTIVE.set(mutant);
    }

    /// Whether `mutant` is what this thread is told to be.
    pub(in super::super) fn active(mutant: Mutant) -> bool {
        ACTIVE.get() == Some(mutant)
    }
}
