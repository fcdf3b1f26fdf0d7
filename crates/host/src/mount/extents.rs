//! Where a file lies on the virtual disk that carries its file system.

use super::tools::FILEFRAG;
use crate::api::error::{Answer, ApiError, Kind};
use crate::api::name::VdiskName;
use crate::api::tier::Piece;
use crate::ops::Perform;
use crate::ops::mount::MountList;
use crate::ops::tier::TierPin;
use crate::wire::client::Client;
use std::path::Path;

/// Where the bytes of a file lie on the virtual disk that carries its file system.
///
/// Errors: it is no file of one that `weft mount` has mounted, or has no blocks yet.
pub fn pieces_of_file(weft: &Client, vdisk: &VdiskName, file: &Path) -> Answer<Vec<Piece>> {
    let known =
        file.canonicalize().map_err(|error| ApiError::new(Kind::NotFound, format!("{}: {error}", file.display())))?;
    let mounts = weft.perform(&MountList {})?;
    let carrier =
        mounts.iter().filter(|mount| known.starts_with(&mount.dir)).max_by_key(|mount| mount.dir.as_os_str().len());
    if carrier.is_none_or(|mount| mount.vdisk != *vdisk) {
        let message = format!(
            "{} is no file of a file system that {vdisk} carries, and `weft mount` has mounted",
            known.display()
        );
        return Err(
            ApiError::new(Kind::NotPossible, message).offer(&TierPin::of(vdisk, Piece { offset: 0, length: 1 << 30 }))
        );
    }
    let told = FILEFRAG.run([Path::new("-b512"), Path::new("-v"), &known])?;
    let pieces = pieces_in(&told);
    match pieces.is_empty() {
        true => Err(ApiError::new(Kind::NotPossible, format!("{} has no blocks on the disk yet", known.display()))),
        false => Ok(pieces),
    }
}

/// The pieces in what `filefrag -b512 -v` prints: a line for each extent, in sectors of 512 bytes,
/// `0: 0.. 8191: 34816.. 43007: 8192: flags`. What lies behind each other is one piece; what has no place of its own
/// yet is none.
fn pieces_in(told: &str) -> Vec<Piece> {
    let mut pieces: Vec<Piece> = Vec::new();
    for line in told.lines() {
        let fields: Vec<&str> = line.split(':').map(str::trim).collect();
        let [number, _, physical, len, rest @ ..] = &fields[..] else { continue };
        let flags = rest.join(":");
        if number.parse::<u64>().is_err()
            || ["inline", "delalloc", "unknown_loc"].iter().any(|flag| flags.contains(flag))
        {
            continue;
        }
        let first = physical.split("..").next().and_then(|first| first.trim().parse::<u64>().ok());
        let (Some(first), Ok(len)) = (first, len.parse::<u64>()) else { continue };
        let piece = Piece { offset: first * 512, length: len * 512 };
        match pieces.last_mut().filter(|last| last.offset + last.length == piece.offset) {
            Some(last) => last.length += piece.length,
            None => pieces.push(piece),
        }
    }
    pieces.sort_unstable_by_key(|piece| piece.offset);
    pieces
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_extents_of_a_file_are_pieces() {
        let told = "Filesystem type is: ef53\nFile size of /mnt/f is 12582912 (24576 blocks of 512 bytes)\n \
            ext:     logical_offset:        physical_offset: length:   expected: flags:\n   \
            0:        0..    8191:      34816..     43007:   8192:\n   \
            1:     8192..   16383:      43008..     51199:   8192:\n   \
            2:    16384..   24575:       2048..     10239:   8192:      51200: last,eof\n\
            /mnt/f: 2 extents found\n";
        let piece = |offset: u64, length: u64| Piece { offset: offset * 512, length: length * 512 };
        assert_eq!(pieces_in(told), [piece(2048, 8192), piece(34816, 16384)]);
        assert_eq!(
            pieces_in("   0:        0..       0:          0..         0:      8:             last,inline,eof"),
            []
        );
    }
}
