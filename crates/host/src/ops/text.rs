//! The text of every answer, drawn from the value that `--json` prints.

use super::table::Style;
use crate::api::watch::{Change, Outcome};

/// An answer that can be drawn.
pub trait Text {
    /// The answer as text, whole lines.
    fn text(&self, style: Style) -> String;

    /// Whether it only confirms what was done, and is left out where nobody wants to be told.
    fn confirms(&self) -> bool {
        false
    }

    /// Whether what was asked about is as it should be.
    fn is_good(&self) -> bool {
        true
    }

    /// The change that it tells of.
    fn change(&self) -> Option<&Change> {
        None
    }
}

impl Text for Change {
    fn text(&self, _: Style) -> String {
        let would = if self.dry_run && self.outcome != Outcome::AlreadySo { "would be " } else { "" };
        let mut text = match self.outcome {
            Outcome::AlreadySo if self.job.is_some() => format!("{}: nothing to change\n", self.subject),
            Outcome::AlreadySo => format!("{} is so already\n", self.subject),
            outcome => format!("{} {would}{outcome}\n", self.subject),
        };
        for line in &self.changes {
            text += &format!("  {line}\n");
        }
        if let Some(job) = self.job.as_ref().filter(|_| self.outcome == Outcome::Started) {
            text += &format!("  job {job}: `weft job show {job}`\n");
        }
        text
    }

    fn confirms(&self) -> bool {
        !self.dry_run
    }

    fn change(&self) -> Option<&Change> {
        Some(self)
    }
}
