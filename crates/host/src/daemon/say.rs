//! What the daemon says to whoever started it.

use crate::harmless;
use std::io::Write;

/// A line on stderr. Where nobody takes it (a full disk, a pipe that was closed) it is lost, and the daemon goes on.
pub(crate) fn say(words: &str) {
    let _ = writeln!(std::io::stderr().lock(), "weft: {}", harmless::line(words));
}
