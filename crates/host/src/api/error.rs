//! The error form: what kind, one sentence of what was wrong with the allowed range, one command that would work.

use serde::{Deserialize, Serialize};
use std::fmt;
use utoipa::ToSchema;
use weft_engine::error::ErrorKind;

/// What a caller can act on. The command line's exit codes and the API's HTTP codes are drawn from it.
#[derive(Serialize, Deserialize, ToSchema, Clone, Copy, PartialEq, Eq, Debug)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// The request itself is wrong: a flag, a size, a name.
    InvalidInput,
    /// What was named does not exist.
    NotFound,
    /// The name or the disk is taken already.
    AlreadyExists,
    /// Well-formed, but not possible in the present state.
    NotPossible,
    /// No room.
    NoSpace,
    /// The pool or the virtual disk accepts no writes.
    ReadOnly,
    /// More was lost than the redundancy covers.
    Lost,
    /// Too few disks of the pool are there: it waits for them, and goes on by itself.
    Frozen,
    /// What is on a disk is not what weft wrote, or is of an unknown version.
    Corrupt,
    /// The pool or the daemon is stopping.
    Closed,
    /// The daemon does not answer on its socket.
    Unreachable,
    /// Anything else: a mistake of weft's, or of the system below it.
    Internal,
}

/// An error as the API gives it and the command line prints it.
#[derive(Serialize, Deserialize, ToSchema, Clone, PartialEq, Eq, Debug)]
pub struct ApiError {
    /// What a caller can act on.
    pub kind: Kind,
    /// One sentence: what was wrong, and the allowed range.
    pub message: String,
    /// The nearest command that would work.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
}

/// The result of every operation of the API.
pub type Answer<T> = Result<T, ApiError>;

impl ApiError {
    /// An error of `kind` with the sentence `message` and no command to offer.
    pub fn new(kind: Kind, message: impl Into<String>) -> ApiError {
        ApiError { kind, message: message.into(), hint: None }
    }

    /// Offers `command` as the nearest that would work.
    pub fn hint(mut self, command: impl Into<String>) -> ApiError {
        self.hint = Some(command.into());
        self
    }

    /// Offers `command` unless a command is offered already.
    pub fn or_hint(mut self, command: impl FnOnce() -> String) -> ApiError {
        self.hint.get_or_insert_with(command);
        self
    }
}

impl From<weft_engine::error::Error> for ApiError {
    fn from(error: weft_engine::error::Error) -> ApiError {
        let kind = match error.kind {
            ErrorKind::InvalidInput => Kind::InvalidInput,
            ErrorKind::NotFound => Kind::NotFound,
            ErrorKind::AlreadyExists => Kind::AlreadyExists,
            ErrorKind::NotPossible => Kind::NotPossible,
            ErrorKind::NoSpace => Kind::NoSpace,
            ErrorKind::ReadOnly => Kind::ReadOnly,
            ErrorKind::Lost => Kind::Lost,
            ErrorKind::Corrupt => Kind::Corrupt,
            ErrorKind::Frozen => Kind::Frozen,
            ErrorKind::Closed => Kind::Closed,
        };
        ApiError::new(kind, error.context)
    }
}

impl fmt::Display for ApiError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for ApiError {}

/// A value that its own rule refuses: the sentence, and the nearest value that would pass.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BadValue {
    /// What was wrong, and the allowed range.
    pub message: String,
    /// The nearest value that would be taken, as it would be typed.
    pub nearest: Option<String>,
}

impl BadValue {
    /// A refusal with the nearest value that would be taken.
    pub fn new(message: impl Into<String>, nearest: impl Into<String>) -> BadValue {
        BadValue { message: message.into(), nearest: Some(nearest.into()) }
    }
}

impl fmt::Display for BadValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for BadValue {}

impl From<BadValue> for ApiError {
    fn from(bad: BadValue) -> ApiError {
        ApiError::new(Kind::InvalidInput, bad.message)
    }
}
