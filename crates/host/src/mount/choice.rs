//! Which kind of block device a virtual disk becomes: the best that the kernel has, or the one a person chose.

use super::tools::{LOSETUP, MODPROBE, NBD_CLIENT};
use crate::api::error::{Answer, ApiError, Kind};
use crate::api::mount::Via;
use crate::ublk;
use std::path::Path;

/// A kind, and why it is that one.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Choice {
    pub via: Via,
    /// In words for people.
    pub why: String,
    /// Whether a person chose it.
    pub by_hand: bool,
}

/// What can be used here, the best first: one kind when a person `asked` for it.
///
/// Errors: that kind is not to be had, and what would bring it.
pub(super) fn choices(asked: Option<Via>) -> Answer<Vec<Choice>> {
    if let Some(via) = asked {
        available(via)?;
        return Ok(vec![Choice { via, why: format!("{}, as asked", what(via)), by_hand: true }]);
    }
    Ok(in_order(available))
}

/// All kinds that are `available`, each with why no better one is used.
fn in_order(available: impl Fn(Via) -> Answer<()>) -> Vec<Choice> {
    let mut lacking = Vec::new();
    let mut found = Vec::new();
    for via in Via::ALL {
        match available(via) {
            Err(error) if via != Via::Loop => lacking.push(error.message),
            // Where there are no loop devices either, making one says so best.
            _ => {
                let why = [&[what(via).to_string()], lacking.as_slice()].concat().join("; ");
                found.push(Choice { via, why, by_hand: false });
            }
        }
    }
    found
}

/// Loads the kernel's part of it, where that is a module which nothing else loads.
pub(super) fn load(via: Via) -> Answer<()> {
    match module(via) {
        Some((module, device)) if !Path::new(device).exists() => MODPROBE.run([module]).map(drop),
        _ => Ok(()),
    }
}

/// Whether the kernel has it, and the programs are there that it takes.
fn available(via: Via) -> Answer<()> {
    if let Some((module, device)) = module(via) {
        let loadable = || MODPROBE.output(["--dry-run", "--quiet", module]).is_ok_and(|ran| ran.status.success());
        if !Path::new(device).exists() && !loadable() {
            let message = format!("this kernel has no {via}: there is no {device}");
            return Err(ApiError::new(Kind::NotPossible, message).hint(format!("modprobe {module}")));
        }
    }
    match via {
        Via::Ublk => Ok(()),
        Via::Nbd => NBD_CLIENT.installed(),
        Via::Loop => LOSETUP.installed(),
    }
}

/// The module that brings it, and the device by which it is seen to be there.
fn module(via: Via) -> Option<(&'static str, &'static str)> {
    match via {
        Via::Ublk => Some(("ublk_drv", ublk::CONTROL)),
        Via::Nbd => Some(("nbd", "/dev/nbd0")),
        Via::Loop => None,
    }
}

fn what(via: Via) -> &'static str {
    match via {
        Via::Ublk => "ublk: the daemon is the driver of the device",
        Via::Nbd => "NBD: the kernel is a client of the daemon",
        Via::Loop => "FUSE + loop with direct I/O",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lacks(lacking: &[Via]) -> Vec<(Via, String)> {
        let available = |via| match lacking.contains(&via) {
            true => Err(ApiError::new(Kind::NotPossible, format!("no {via}"))),
            false => Ok(()),
        };
        in_order(available).into_iter().map(|choice| (choice.via, choice.why)).collect()
    }

    #[test]
    fn the_best_that_is_there_is_taken_and_the_reason_names_what_better_ones_lack() {
        let all = lacks(&[]);
        assert_eq!(all.iter().map(|(via, _)| *via).collect::<Vec<_>>(), Via::ALL);
        assert_eq!(all[0].1, "ublk: the daemon is the driver of the device");
        assert_eq!(lacks(&[Via::Ublk])[0], (Via::Nbd, "NBD: the kernel is a client of the daemon; no ublk".into()));
        let loops = lacks(&[Via::Ublk, Via::Nbd, Via::Loop]);
        assert_eq!(loops, [(Via::Loop, "FUSE + loop with direct I/O; no ublk; no NBD".into())]);
    }
}
