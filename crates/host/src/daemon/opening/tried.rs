//! What a pool was tried with that did not open: whether another try can come to anything else.

use super::{Found, find};
use std::path::PathBuf;
use std::time::{Duration, Instant, SystemTime};
use weft_engine::format::label::Label;

/// After how long a pool is tried again although nothing about its disks seems to be another than it was: what lies
/// between the labels can be put right in its place.
const AGAIN_AFTER: Duration = Duration::from_secs(30);
/// A try may take so much of the time at most, as a divisor.
const SHARE: u32 = 20;
/// How long nothing was written to a file that is taken to be as it shall be: one that is being copied in its place is
/// not to be opened half-way.
const SETTLED: Duration = Duration::from_secs(2);

/// The disks that a pool was tried with; none: it was not.
#[derive(Clone, Default, Debug)]
pub(super) struct Tried {
    /// By path.
    disks: Vec<Stance>,
    /// When; none: it is not tried again because of the time.
    at: Option<Instant>,
    /// How long that took.
    took: Duration,
}

/// What is seen of a disk without claiming it.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Stance {
    path: PathBuf,
    said: Label,
    /// When a file was written to last.
    written: Option<SystemTime>,
    hindrance: Option<String>,
}

impl Tried {
    /// Notes the disks that a pool was tried with just now.
    pub(super) fn with(members: &[Found]) -> Tried {
        Tried { disks: stances(members), at: Some(Instant::now()), took: Duration::ZERO }
    }

    /// Notes how long that took, and whether it ended by a mistake of weft's own: each of those costs memory, and what
    /// made it is on the disks.
    pub(super) fn took(&mut self, took: Duration, mistake: bool) {
        self.took = took;
        if mistake {
            self.at = None;
        }
    }

    /// Whether it was tried with the disks at these paths, which are in order.
    pub(super) fn was_with(&self, paths: &[PathBuf]) -> bool {
        self.disks.iter().map(|disk| &disk.path).eq(paths)
    }

    /// Whether one of the disks could not be opened.
    pub(super) fn is_hindered(&self) -> bool {
        self.disks.iter().any(|disk| disk.hindrance.is_some())
    }

    /// Whether a try with these disks, as they are now, can come to anything else.
    pub(super) fn is_worth_another(&self, members: &[Found]) -> bool {
        let now = stances(members);
        let same_places = now.iter().map(|disk| &disk.path).eq(self.disks.iter().map(|disk| &disk.path));
        // A clock that was set back makes nothing wait.
        let just_now = |at: SystemTime| at.elapsed().is_ok_and(|since| since < SETTLED);
        let is_old = || self.at.is_some_and(|at| at.elapsed() >= AGAIN_AFTER.max(self.took * SHARE));
        match same_places {
            false => true,
            true if now.iter().filter_map(|disk| disk.written).any(just_now) => false,
            true => now != self.disks || is_old(),
        }
    }
}

/// What is seen of the disks now, by path.
fn stances(members: &[Found]) -> Vec<Stance> {
    let seen = |(path, label): &Found| Stance {
        path: path.clone(),
        said: (*label.said).clone(),
        written: find::written(path),
        hindrance: find::hindrance(path),
    };
    let mut stances: Vec<Stance> = members.iter().map(seen).collect();
    stances.sort_by(|one, other| one.path.cmp(&other.path));
    stances
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_did_not_open_is_tried_again_now_and_then_and_takes_little_of_the_time() {
        let tried = |ago: u64, took: u64| {
            let at = Instant::now().checked_sub(Duration::from_secs(ago));
            Tried { at, took: Duration::from_secs(took), ..Tried::with(&[]) }
        };
        assert!(!tried(29, 1).is_worth_another(&[]));
        assert!(tried(30, 1).is_worth_another(&[]));
        assert!(!tried(99, 5).is_worth_another(&[]));
        assert!(tried(100, 5).is_worth_another(&[]));
        let mut mistaken = tried(100, 0);
        mistaken.took(Duration::from_secs(1), true);
        assert!(!mistaken.is_worth_another(&[]));
    }
}
