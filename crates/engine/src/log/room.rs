//! How much of the log whoever appends to it may have in use.

/// How full the log may be for a producer to go on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Room {
    /// Landed data waits above half.
    Landing,
    /// Commits wait above five eighths.
    Commit,
    /// Commits that retire landed data wait above six eighths: they are what makes room.
    Destage,
    /// Landed data that moves to the head stays below seven eighths.
    Moving,
}

impl Room {
    /// The most bytes of a ring that may be in use.
    pub(super) fn limit(self, ring: u64) -> u64 {
        match self {
            Room::Landing => ring / 2,
            Room::Commit => ring / 8 * 5,
            Room::Destage => ring / 8 * 6,
            Room::Moving => ring / 8 * 7,
        }
    }
}
