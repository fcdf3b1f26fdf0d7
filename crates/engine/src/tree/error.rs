//! What can go wrong with a tree, as values: the range of keys that is lost is never text.

use super::key::KeyRange;
use super::store::Place;
use crate::error::{Error, ErrorKind};
use alloc::format;
use core::fmt;

/// Why the tree did not do as asked.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum TreeError {
    /// No copy of a page is what it must be. All keys outside of the range that it takes along are as they were.
    Lost(Lost),
    /// The store has no free page.
    Full,
    /// No version has this number.
    NoVersion(u64),
    /// The store failed otherwise; what was to be done was not done, and may be tried again.
    Failed(Error),
    /// The root was written, and the store does not know whether it is durable: the disks may hold this state or the
    /// one before. Reading goes on; only opening again tells which of the two is the truth.
    InDoubt(Error),
}

/// A page that no copy has, and what goes with it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Lost {
    /// In which of the two trees.
    pub tree: Which,
    /// The keys that cannot be answered for.
    pub range: KeyRange,
    /// How far above the leaves the page is.
    pub level: u16,
    /// Where it was looked for.
    pub place: Place,
    /// What was found there.
    pub why: Why,
}

/// The two trees behind one root.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Which {
    /// The entries, of which versions are kept.
    Content,
    /// Versions and dead lists.
    Ledger,
}

/// What is wrong with an image of a page.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Why {
    /// The store could read no copy.
    Unreadable,
    /// It is no page, or its bytes are not those that were written.
    Damaged,
    /// It is a page of another place.
    Misplaced,
    /// It is a page of this place from another time.
    Stale,
    /// It is a page of this place and time, but not the one that its parent names: it comes from another history.
    Foreign,
    /// It belongs to another level or range of keys than the way to it.
    OutOfPlace,
    /// Its inner lengths, offsets or keys contradict each other.
    Malformed,
    /// It was written by a newer weft with features that this one does not know.
    Unknown,
}

/// The tree's result.
pub type Result<T> = core::result::Result<T, TreeError>;

impl fmt::Display for TreeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TreeError::Lost(lost) => lost.fmt(f),
            TreeError::Full => f.write_str("no page of metadata is free"),
            TreeError::NoVersion(number) => write!(f, "there is no version {number}"),
            TreeError::Failed(error) => write!(f, "metadata could not be written or read: {error}"),
            TreeError::InDoubt(error) => {
                write!(
                    f,
                    "whether the newest metadata is durable is not known before the pool is opened again: {error}"
                )
            }
        }
    }
}

impl fmt::Display for Lost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let tree = match self.tree {
            Which::Content => "metadata",
            Which::Ledger => "what is known of versions",
        };
        let KeyRange { first, last } = self.range;
        write!(f, "{tree} from {first:?} to {last:?} is lost with page {} ({})", self.place.0, self.why)
    }
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Why::Unreadable => "no copy can be read",
            Why::Damaged => "its bytes are damaged",
            Why::Misplaced => "a page of another place lies there",
            Why::Stale => "a page of another time lies there",
            Why::Foreign => "a page of another history lies there",
            Why::OutOfPlace => "a page of other keys lies there",
            Why::Malformed => "what lies there contradicts itself",
            Why::Unknown => "a newer weft wrote it, with features that this one does not know",
        })
    }
}

impl core::error::Error for TreeError {}

impl From<TreeError> for Error {
    fn from(error: TreeError) -> Error {
        let kind = match &error {
            TreeError::Lost(Lost { why: Why::Unknown, .. }) => ErrorKind::Corrupt,
            TreeError::Lost(_) => ErrorKind::Lost,
            TreeError::Full => ErrorKind::NoSpace,
            TreeError::NoVersion(_) => ErrorKind::NotFound,
            TreeError::Failed(inner) => inner.kind,
            TreeError::InDoubt(_) => ErrorKind::Closed,
        };
        Error::new(kind, format!("{error}"))
    }
}
