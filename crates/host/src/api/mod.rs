//! What operations speak of and answer with. An answer is one value: what `--json` prints, what the text is drawn from,
//! what goes over the socket. The operations themselves are in `ops`.

pub mod cache;
pub mod error;
pub mod export;
pub mod job;
pub mod mount;
pub mod name;
pub mod plan;
pub mod pool;
pub mod power;
pub mod read_cache;
pub mod share;
pub mod size;
pub mod span;
pub mod tier;
pub mod validate;
pub mod vdisk;
pub mod watch;

/// The version of this API, the first part of every path but the document's own.
pub const API_VERSION: &str = "v1";
