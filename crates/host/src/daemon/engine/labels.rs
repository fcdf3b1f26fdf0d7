//! What a disk's label says, read without claiming the disk: who looks at it must not be in the way of who uses it.

use crate::api::error::{Answer, ApiError, Kind};
use crate::daemon::backend::Label;
use crate::daemon::probe::Ends;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{ErrorKind, Seek, SeekFrom};
use std::ops::Deref;
use std::os::unix::fs::FileExt;
use std::path::Path;
use weft_engine::format::Id;
use weft_engine::format::label::{self, DiskPlan};
use weft_engine::store::quorum;
use weft_engine::units::{BLOCK, ByteCount};

/// The newest sound label of the disk at `path`.
pub fn probe(path: &Path) -> Answer<Option<Label>> {
    let failed = |error: std::io::Error| {
        let kind = if error.kind() == ErrorKind::NotFound { Kind::NotFound } else { Kind::NotPossible };
        ApiError::new(kind, format!("cannot read {}: {error}", path.display()))
    };
    let mut file = File::open(path).map_err(failed)?;
    let capacity = file.seek(SeekFrom::End(0)).map_err(failed)?;
    newest(capacity, |at, len| {
        let mut block = vec![0; len as usize];
        // A slot that cannot be read is one of four.
        file.read_exact_at(&mut block, at).is_ok().then_some(block)
    })
}

/// The newest sound label of a disk whose ends were read.
pub fn of(ends: &Ends) -> Answer<Option<Label>> {
    newest(ends.size(), |at, len| ends.bytes(at, len as usize))
}

/// The newest label of a disk of `capacity` bytes, of the blocks that `read` finds.
fn newest<B: Deref<Target = [u8]>>(
    capacity: u64,
    mut read: impl FnMut(u64, u64) -> Option<B>,
) -> Answer<Option<Label>> {
    if capacity < 4 * BLOCK {
        return Ok(None);
    }
    let annexes = DiskPlan::label_annexes(ByteCount(capacity)).into_iter();
    let slots = DiskPlan::label_slots(ByteCount(capacity)).into_iter().zip(annexes).filter_map(|(at, annex)| {
        let block = read(at.0, BLOCK)?;
        let annex = if label::has_annex(&block) { Some(read(annex.0, label::ANNEX_LEN)?) } else { None };
        Some(label::with_annex(&block, annex.as_deref()))
    });
    Ok(label::Label::newest_alone(label::Label::decode_slots(slots)?).map(|(label, _)| Label {
        whole: label.plan.disk_len.0 <= capacity,
        pool_id: hex(label.pool_id),
        pool_name: label.pool_name.clone(),
        disk_id: hex(label.disk_id),
        // Its name is part of the pool's configuration; the label knows its number.
        disk_name: label.disk_no.to_string(),
        said: Box::new(label),
    }))
}

/// Has all labels of one pool call it what the newest of them does. A disk that is not whole has no say.
pub fn agree(mut found: Vec<&mut Label>) {
    let mut names = BTreeMap::new();
    for id in found.iter().map(|label| label.said.pool_id).collect::<BTreeSet<Id>>() {
        let of_pool = found.iter().filter(|label| label.whole && label.said.pool_id == id).map(|label| &*label.said);
        names.extend(quorum::newest(of_pool).map(|newest| (id, newest.pool_name.clone())));
    }
    for label in &mut found {
        if let Some(name) = names.get(&label.said.pool_id) {
            label.pool_name.clone_from(name);
        }
    }
}

/// An identity as the API writes it: 32 hexadecimal digits.
pub fn hex(id: Id) -> String {
    id.0.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_carries_no_label_is_nobodys() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("disk");
        for len in [0, 1, 3 * BLOCK, 1 << 20] {
            File::create(&path).unwrap().set_len(len).unwrap();
            assert_eq!(probe(&path), Ok(None), "{len} bytes");
        }
        assert_eq!(probe(&dir.path().join("none")).unwrap_err().kind, Kind::NotFound);
    }
}
