//! The labels of a disk, slot by slot, and how the disks stand to the newest of them.

use crate::format::Id;
use crate::format::label::{DiskPlan, Label};
use crate::io::Disk;
use crate::store::labels::read_slot;
use crate::store::quorum::{self, Standing};
use crate::units::{BLOCK, DiskNo};
use alloc::boxed::Box;
use alloc::rc::Rc;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

/// What one of a disk's four label slots holds.
#[derive(Clone, Debug)]
pub enum Slot {
    /// A label.
    Label(Box<Label>),
    /// A label that this weft does not read, and why.
    Refused(String),
    /// Nothing but zeros.
    Blank,
    /// Something that is no label, or a damaged one.
    Other,
    /// Nobody knows: it cannot be read, and why.
    Unreadable(String),
}

/// A disk of a pool.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Member {
    /// Its number.
    pub no: DiskNo,
    /// Its identity.
    pub id: Id,
    /// Which of the disks that were given it is; none where it was not given.
    pub disk: Option<usize>,
    /// How it stands to the newest label; none where it is not there, or the newest label does not know it.
    pub standing: Option<Standing>,
    /// Whether it was put back from an older copy.
    pub put_back: bool,
}

/// A disk that was looked at.
pub(super) struct Looked {
    pub(super) disk: Rc<dyn Disk>,
    pub(super) slots: Vec<Slot>,
    /// The newest of its labels.
    pub(super) label: Option<Label>,
}

impl Looked {
    /// Reads the four slots.
    pub(super) async fn at(disk: Rc<dyn Disk>) -> Looked {
        let capacity = disk.shape().capacity;
        let mut slots = Vec::new();
        if capacity.0 >= 4 * BLOCK {
            for (at, annex) in DiskPlan::label_slots(capacity).into_iter().zip(DiskPlan::label_annexes(capacity)) {
                slots.push(match read_slot(&*disk, at, annex).await {
                    Ok(block) => Slot::of(&block),
                    Err(error) => Slot::Unreadable(error.to_string()),
                });
            }
        }
        let labels = slots.iter().filter_map(|slot| match slot {
            Slot::Label(label) => Some((**label).clone()),
            _ => None,
        });
        let label = Label::newest_alone(labels.collect()).map(|(label, _)| label);
        Looked { disk, slots, label }
    }
}

impl Slot {
    fn of(block: &[u8]) -> Slot {
        match Label::decode(block) {
            Ok(Some(label)) => Slot::Label(Box::new(label)),
            Ok(None) if block.iter().all(|byte| *byte == 0) => Slot::Blank,
            Ok(None) => Slot::Other,
            Err(error) => Slot::Refused(error.to_string()),
        }
    }
}

/// The disks that `newest` names, then those that carry a label of the pool (`own`) and are none of these: they were
/// removed, or are there twice.
pub(super) fn members(newest: &Label, own: &[(usize, &Label)]) -> Vec<Member> {
    let mut strangers: Vec<(usize, &Label)> = own.to_vec();
    let mut members = Vec::new();
    for no in newest.membership.members.iter() {
        let id = newest.disk_ids[no.0 as usize];
        let at = strangers.iter().position(|(_, label)| (label.disk_no, label.disk_id) == (no, id));
        let found = at.map(|at| strangers.remove(at));
        let standing = found.map(|(_, label)| quorum::standing(newest, label));
        let put_back = found.is_some_and(|(_, label)| quorum::is_put_back(newest, label));
        members.push(Member { no, id, disk: found.map(|(nth, _)| nth), standing, put_back });
    }
    members.extend(strangers.into_iter().map(|(nth, label)| Member {
        no: label.disk_no,
        id: label.disk_id,
        disk: Some(nth),
        standing: None,
        put_back: false,
    }));
    members
}
