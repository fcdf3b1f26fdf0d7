//! The exit codes: a contract with scripts.

use crate::api::error::Kind;

/// How a command ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Exit {
    /// Done, or already so.
    Done = 0,
    /// Anything that no other code names.
    Other = 1,
    /// The command line is wrong.
    Usage = 2,
    /// Not possible as asked.
    NotPossible = 3,
    /// What was named does not exist.
    NotFound = 4,
    /// No space.
    NoSpace = 5,
    /// Redundancy lost, data unavailable.
    Lost = 6,
    /// The daemon cannot be reached.
    Unreachable = 7,
}

impl From<Kind> for Exit {
    fn from(kind: Kind) -> Exit {
        match kind {
            Kind::InvalidInput => Exit::Usage,
            Kind::AlreadyExists | Kind::NotPossible | Kind::ReadOnly => Exit::NotPossible,
            Kind::NotFound => Exit::NotFound,
            Kind::NoSpace => Exit::NoSpace,
            Kind::Lost | Kind::Frozen | Kind::Corrupt => Exit::Lost,
            Kind::Unreachable => Exit::Unreachable,
            Kind::Closed | Kind::Internal => Exit::Other,
        }
    }
}
