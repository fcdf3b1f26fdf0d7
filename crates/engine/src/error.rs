//! Errors: a small matchable *kind*, a *context* for people, and nothing that was not known where it happened.
//!
//! The caller is wrong: rejected at the gate. The world failed: re-planned, or the lost range reported.
//! We are wrong: an assertion stops the process. Front ends translate [`ErrorKind`] in one table each side
//! (`host`'s errno table); nothing matches on the text.

use alloc::string::String;
use core::fmt;

/// What a caller can act on.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
pub enum ErrorKind {
    /// The request itself is wrong: range, alignment, a name, a size.
    InvalidInput,
    /// What was named does not exist.
    NotFound,
    /// The name or the disk is taken already.
    AlreadyExists,
    /// The request is well-formed, but not possible in the present state.
    NotPossible,
    /// No room in the pool (or in its metadata).
    NoSpace,
    /// The virtual disk or the pool accepts no writes.
    ReadOnly,
    /// More was lost than the redundancy covers: the answer is an error, never wrong data.
    Lost,
    /// What was read from a disk is not what weft wrote, or is of an unknown version.
    Corrupt,
    /// Too few disks are there for now; it goes on by itself when enough of them are back.
    Frozen,
    /// The pool is stopping or was stopped by an earlier failure.
    Closed,
}

/// An error of the engine.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Error {
    /// What a caller can act on.
    pub kind: ErrorKind,
    /// A sentence for people: what was wrong, the allowed range, what would work.
    pub context: String,
}

/// The engine's result.
pub type Result<T> = core::result::Result<T, Error>;

impl Error {
    /// An error of `kind` with the sentence `context`.
    pub fn new(kind: ErrorKind, context: impl Into<String>) -> Error {
        Error { kind, context: context.into() }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.context)
    }
}

impl core::error::Error for Error {}

/// Shorthand: `fail!(NotFound, "no vdisk named {name}")` is an `Err`.
#[macro_export]
macro_rules! fail {
    ($kind:ident, $($text:tt)*) => {
        Err($crate::error::Error::new($crate::error::ErrorKind::$kind, $crate::alloc::format!($($text)*)))
    };
}
