//! The life of a pool, on the engine's thread: jobs, members, settings.

use crate::api::error::{Answer, ApiError, Kind};

/// What the engine cannot do yet.
pub fn not_yet<T>(what: &str) -> Answer<T> {
    Err(ApiError::new(Kind::NotPossible, format!("this engine has no {what} yet")))
}
