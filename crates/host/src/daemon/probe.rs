//! What is on a disk already: file systems, partition tables, volume managers, other people's RAID.
//!
//! [`identify`] is a pure function over the first MiB and the last MiB of a disk. It answers "what would be lost", so
//! it errs towards finding too much: what nobody knows is [`unknown`] data, and only what is blank holds nothing.
//! Between the two, all that a file has is looked at (holes hold nothing), up to 16 MiB; of more, and of block devices,
//! that much at 64 places, and where each piece of a file begins. Weft's own labels are the engine's to read; a disk
//! that it gives back is blank there, and discarded in between.

use rustix::fs::{SeekFrom as Seeking, seek};
use rustix::io::Errno;
use std::fs::File;
use std::io::{self, Seek, SeekFrom};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::Path;
use weft_engine::units::ByteCount;

/// How much of the beginning, and of the end, is looked at.
const WINDOW: u64 = 1 << 20;
/// Between them it is looked at so many places, of so many bytes. Places are few, for a disk seeks to each.
const PLACES: u64 = 64;
/// See [`PLACES`].
const PLACE: u64 = 256 << 10;
/// A file in more pieces than these is looked at as if it had no holes behind them.
const EXTENTS_MAX: usize = 4096;
/// How many characters of a text are shown.
const WORDS_MAX: usize = 40;

/// Files that are no disks, by how they begin.
const CONTENTS: [(usize, &[u8], &str); 14] = [
    (257, b"ustar", "a tar archive"),
    (0, b"\x1f\x8b", "a gzip file"),
    (0, b"\xfd7zXZ\0", "an xz file"),
    (0, b"\x28\xb5\x2f\xfd", "a zstd file"),
    (0, b"BZh", "a bzip2 file"),
    (0, b"PK\x03\x04", "a zip archive"),
    (0, b"7z\xbc\xaf\x27\x1c", "a 7z archive"),
    (0, b"SQLite format 3\0", "an SQLite database"),
    (0, b"%PDF-", "a PDF document"),
    (0, b"\x7fELF", "a program"),
    (0, b"\x89PNG", "a picture"),
    (0, b"\xff\xd8\xff", "a picture"),
    (0, b"KDMV", "a VMDK image"),
    (0, b"vhdxfile", "a VHDX image"),
];

/// Both ends of a disk, read once.
pub struct Ends {
    file: File,
    size: u64,
    head: Vec<u8>,
    tail: Vec<u8>,
}

/// What is on the disk or file at `path`, in the order of being found; empty when it is blank.
pub fn look(path: &Path) -> io::Result<Vec<String>> {
    Ends::read(path)?.look()
}

impl Ends {
    /// Reads the ends of the disk or file at `path`.
    pub fn read(path: &Path) -> io::Result<Ends> {
        let mut file = File::open(path)?;
        let size = file.seek(SeekFrom::End(0))?;
        let window = WINDOW.min(size);
        let mut head = vec![0; window as usize];
        let mut tail = vec![0; window as usize];
        file.read_exact_at(&mut head, 0)?;
        file.read_exact_at(&mut tail, size - window)?;
        Ok(Ends { file, size, head, tail })
    }

    /// How long the disk is.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// The bytes at `at`, when they lie in one of the ends.
    pub fn bytes(&self, at: u64, len: usize) -> Option<&[u8]> {
        Disk { head: &self.head, tail: &self.tail, size: self.size }.bytes(at, len)
    }

    /// What is on the disk, in the order of being found; empty when it is blank.
    pub fn look(&self) -> io::Result<Vec<String>> {
        let Ends { file, size, head, tail } = self;
        let known = identify(head, tail, *size);
        if !known.is_empty() {
            return Ok(known);
        }
        if let Some(what) = unknown(head, tail) {
            return Ok(vec![what]);
        }
        let blank = head.first().copied().unwrap_or_default();
        let window = head.len() as u64;
        Ok(between(file, window..size.saturating_sub(window).max(window), blank)?.into_iter().collect())
    }
}

/// What lies in `range`, which is blank, as far as it is looked at, where it holds nothing but this byte.
fn between(file: &File, range: Range<u64>, blank: u8) -> io::Result<Option<String>> {
    let extents = extents(file, range)?;
    let bytes: u64 = extents.iter().map(|extent| extent.end - extent.start).sum();
    let every = bytes.div_ceil(PLACES).max(PLACE);
    let few = extents.len() as u64 <= PLACES;
    let mut place = vec![0; PLACE as usize];
    // How far into the next extent the next place lies.
    let mut ahead = 0;
    for extent in extents {
        let mut at = extent.start + if few { 0 } else { ahead };
        while at < extent.end {
            let seen = &mut place[..PLACE.min(extent.end - at) as usize];
            file.read_exact_at(seen, at)?;
            if let Some(first) = seen.iter().position(|byte| *byte != blank) {
                let what = words(&seen[first..])
                    .map_or("data of an unknown kind".into(), |words| format!("text (\"{words}\")"));
                return Ok(Some(format!("{what}, {} from its beginning", ByteCount(at + first as u64))));
            }
            at += every;
        }
        ahead = at.saturating_sub(extent.end);
    }
    Ok(None)
}

/// The parts of `range` that are no holes; all of it where that cannot be told.
fn extents(file: &File, range: Range<u64>) -> io::Result<Vec<Range<u64>>> {
    let mut extents = Vec::new();
    let mut at = range.start;
    while at < range.end {
        let begin = match seek(file, Seeking::Data(at)) {
            Ok(begin) => begin,
            Err(Errno::NXIO) => break,
            Err(_) => at,
        };
        let end = match seek(file, Seeking::Hole(begin)) {
            Ok(end) if extents.len() < EXTENTS_MAX => end.min(range.end),
            _ => range.end,
        };
        if begin >= end {
            break;
        }
        extents.push(begin..end);
        at = end;
    }
    Ok(extents)
}

/// Zeroes what [`identify`] looks at, durably.
pub fn wipe(path: &Path) -> io::Result<()> {
    let mut file = File::options().read(true).write(true).open(path)?;
    let size = file.seek(SeekFrom::End(0))?;
    let zeros = vec![0; WINDOW.min(size) as usize];
    file.write_all_at(&zeros, 0)?;
    file.write_all_at(&zeros, size - zeros.len() as u64)?;
    file.sync_all()
}

/// What holds something, although it is none of what disks hold; `None`: it is blank, all zeros or all ones.
fn unknown(head: &[u8], tail: &[u8]) -> Option<String> {
    let blank = |byte: u8| head.iter().chain(tail).all(|other| *other == byte);
    if blank(0) || blank(0xff) {
        return None;
    }
    let known = CONTENTS.iter().find(|(at, magic, _)| head.get(*at..).is_some_and(|rest| rest.starts_with(magic)));
    if let Some((_, _, what)) = known {
        return Some((*what).into());
    }
    Some(words(head).map_or_else(|| "data of an unknown kind".into(), |words| format!("text (\"{words}\")")))
}

/// The first words of what begins like text.
fn words(head: &[u8]) -> Option<String> {
    let head = &head[..head.len().min(512)];
    let text = match std::str::from_utf8(head) {
        Ok(text) => text,
        // A character lies across the end of what is looked at.
        Err(error) if error.error_len().is_none() => std::str::from_utf8(&head[..error.valid_up_to()]).ok()?,
        Err(_) => return None,
    };
    let text = text.trim_end_matches('\0');
    let is_text = |c: char| !c.is_control() || matches!(c, '\n' | '\r' | '\t');
    if text.is_empty() || !text.chars().all(is_text) {
        return None;
    }
    let first = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let shown: String = first.chars().take(WORDS_MAX).collect();
    Some(if shown.len() < first.len() { shown + "..." } else { shown })
}

/// What a disk of `size` bytes that begins with `head` and ends with `tail` holds.
pub fn identify(head: &[u8], tail: &[u8], size: u64) -> Vec<String> {
    let disk = Disk { head, tail, size };
    let mut found: Vec<String> = SIGNATURES
        .iter()
        .filter(|signature| disk.has(signature.at, signature.bytes))
        .map(|signature| with_label(signature.what, signature.label.and_then(|label| disk.text(label))))
        .collect();
    let others = [ext(&disk), swap(&disk), lvm(&disk), md(&disk), zfs(&disk), partition_table(&disk)];
    for what in others.into_iter().flatten() {
        found.push(what);
    }
    found.dedup();
    found
}

struct Disk<'a> {
    head: &'a [u8],
    tail: &'a [u8],
    size: u64,
}

/// Bytes at a fixed place, and where the name that people gave it is.
struct Signature {
    what: &'static str,
    at: u64,
    bytes: &'static [u8],
    label: Option<(u64, usize)>,
}

const fn signature(what: &'static str, at: u64, bytes: &'static [u8], label: Option<(u64, usize)>) -> Signature {
    Signature { what, at, bytes, label }
}

const SIGNATURES: [Signature; 22] = [
    signature("an XFS file system", 0, b"XFSB", Some((108, 12))),
    signature("a Btrfs file system", 0x10040, b"_BHRfS_M", Some((0x1012b, 256))),
    signature("an NTFS file system", 3, b"NTFS    ", None),
    signature("a ReFS file system", 0, b"\0\0\0ReFS\0", None),
    signature("a BitLocker volume", 3, b"-FVE-FS-", None),
    signature("an exFAT file system", 3, b"EXFAT   ", None),
    signature("a FAT file system", 82, b"FAT32   ", Some((71, 11))),
    signature("a FAT file system", 54, b"FAT16   ", Some((43, 11))),
    signature("a FAT file system", 54, b"FAT12   ", Some((43, 11))),
    signature("a LUKS volume", 0, b"LUKS\xba\xbe", None),
    signature("an F2FS file system", 1024, &0xf2f5_2010_u32.to_le_bytes(), None),
    signature("an EROFS file system", 1024, &0xe0f5_e1e2_u32.to_le_bytes(), None),
    signature("a SquashFS file system", 0, b"hsqs", None),
    signature("an ISO 9660 file system", 32_769, b"CD001", Some((32_808, 32))),
    signature("a UDF file system", 32_769, b"BEA01", None),
    signature("a ReiserFS file system", 65_588, b"ReIsEr", None),
    signature("a JFS file system", 32_768, b"JFS1", None),
    signature("an APFS container", 32, b"NXSB", None),
    signature("a bcache device", 4120, b"\xc6\x85\x73\xf6\x4e\x1a\x45\xca\x82\x65\xf5\x7f\x48\xba\x6d\x81", None),
    signature(
        "a bcachefs file system",
        4120,
        b"\xc6\x85\x73\xf6\x66\xce\x90\xa9\xd9\x6a\x60\xcf\x80\x3d\xf7\xef",
        None,
    ),
    signature("a Ceph OSD", 0, b"bluestore block device", None),
    signature("a qcow2 image", 0, b"QFI\xfb", None),
];

impl<'a> Disk<'a> {
    /// The bytes at `at`, when they lie in one of the two windows.
    fn bytes(&self, at: u64, len: usize) -> Option<&'a [u8]> {
        let tail_start = self.size.saturating_sub(self.tail.len() as u64);
        let part = |window: &'_ [u8], start: u64| {
            let start = usize::try_from(at.checked_sub(start)?).ok()?;
            window.get(start..start.checked_add(len)?).map(|_| start)
        };
        if let Some(start) = part(self.head, 0) {
            return Some(&self.head[start..start + len]);
        }
        part(self.tail, tail_start).map(|start| &self.tail[start..start + len])
    }

    fn has(&self, at: u64, expected: &[u8]) -> bool {
        self.bytes(at, expected.len()) == Some(expected)
    }

    fn u32_le(&self, at: u64) -> Option<u32> {
        self.bytes(at, 4).map(|bytes| u32::from_le_bytes(bytes.try_into().expect("four bytes")))
    }

    fn text(&self, (at, len): (u64, usize)) -> Option<String> {
        let bytes = self.bytes(at, len)?;
        let text = bytes.split(|byte| *byte == 0).next()?.trim_ascii();
        let text: String = String::from_utf8_lossy(text).chars().filter(|c| !c.is_control()).collect();
        (!text.is_empty() && text != "NO NAME").then_some(text)
    }
}

fn with_label(what: &str, label: Option<String>) -> String {
    match label {
        Some(label) => format!("{what} (\"{label}\")"),
        None => what.into(),
    }
}

/// ext2, ext3, ext4: told apart by their feature words.
fn ext(disk: &Disk) -> Option<String> {
    const SUPER: u64 = 1024;
    if !disk.has(SUPER + 0x38, &[0x53, 0xef]) {
        return None;
    }
    let (compatible, incompatible, read_only) =
        (disk.u32_le(SUPER + 0x5c)?, disk.u32_le(SUPER + 0x60)?, disk.u32_le(SUPER + 0x64)?);
    const HAS_JOURNAL: u32 = 0x4;
    const JOURNAL_DEVICE: u32 = 0x8;
    const EXT4_INCOMPATIBLE: u32 = !0x1f;
    const EXT4_READ_ONLY: u32 = !0x7;
    let what = if incompatible & JOURNAL_DEVICE != 0 {
        "an ext journal"
    } else if incompatible & EXT4_INCOMPATIBLE != 0 || read_only & EXT4_READ_ONLY != 0 {
        "an ext4 file system"
    } else if compatible & HAS_JOURNAL != 0 {
        "an ext3 file system"
    } else {
        "an ext2 file system"
    };
    Some(with_label(what, disk.text((SUPER + 0x78, 16))))
}

/// The mark ends the first page, whatever the page size was.
fn swap(disk: &Disk) -> Option<String> {
    let pages = [4096, 8192, 16_384, 32_768, 65_536];
    let marked = |page: &u64| disk.has(page - 10, b"SWAPSPACE2") || disk.has(page - 10, b"SWAP-SPACE");
    pages.iter().any(marked).then(|| with_label("swap space", disk.text((1052, 16))))
}

/// The label is in one of the first four sectors.
fn lvm(disk: &Disk) -> Option<String> {
    let labelled = |sector: &u64| disk.has(sector * 512, b"LABELONE") && disk.has(sector * 512 + 24, b"LVM2 001");
    (0..4).any(|sector| labelled(&sector)).then(|| "an LVM2 physical volume".into())
}

/// Linux software RAID: superblock 1.1 at the start, 1.2 at 4 KiB, 1.0 near the end, 0.90 in the last whole 64 KiB but
/// one; and the firmware RAID that announces itself at the end.
fn md(disk: &Disk) -> Option<String> {
    const MAGIC: [u8; 4] = 0xa92b_4efc_u32.to_le_bytes();
    const MAGIC_BIG: [u8; 4] = 0xa92b_4efc_u32.to_be_bytes();
    if disk.has(0, &MAGIC) || disk.has(4096, &MAGIC) {
        let base = if disk.has(0, &MAGIC) { 0 } else { 4096 };
        return Some(with_label("a member of a Linux RAID", disk.text((base + 32, 32))));
    }
    let sectors = disk.size / 512;
    let version_1_0 = sectors.checked_sub(16).map(|sector| (sector & !7) * 512);
    if let Some(base) = version_1_0.filter(|base| disk.has(*base, &MAGIC)) {
        return Some(with_label("a member of a Linux RAID", disk.text((base + 32, 32))));
    }
    let version_0_90 = (disk.size & !0xffff).checked_sub(0x1_0000);
    if version_0_90.is_some_and(|base| disk.has(base, &MAGIC) || disk.has(base, &MAGIC_BIG)) {
        return Some("a member of a Linux RAID".into());
    }
    let firmware = disk.size.checked_sub(1024).is_some_and(|at| disk.has(at, b"Intel Raid ISM Cfg Sig. "));
    firmware.then(|| "a member of an Intel firmware RAID".into())
}

/// Four labels of 256 KiB, two at each end; the upper half of each is a ring of uberblocks.
fn zfs(disk: &Disk) -> Option<String> {
    const LABEL: u64 = 256 << 10;
    const MAGIC: [u8; 8] = 0x00ba_b10c_u64.to_le_bytes();
    const MAGIC_BIG: [u8; 8] = 0x00ba_b10c_u64.to_be_bytes();
    let aligned = disk.size / LABEL * LABEL;
    let labels = [Some(0), Some(LABEL), aligned.checked_sub(2 * LABEL), aligned.checked_sub(LABEL)];
    let holds = |label: u64| {
        (LABEL / 2..LABEL).step_by(1024).any(|at| disk.has(label + at, &MAGIC) || disk.has(label + at, &MAGIC_BIG))
    };
    labels.into_iter().flatten().any(holds).then(|| "a member of a ZFS pool".into())
}

/// GPT, at either end and either sector size; else an MBR that describes at least one partition.
fn partition_table(disk: &Disk) -> Option<String> {
    let backups = [512, 4096].map(|sector| disk.size.checked_sub(sector));
    let places = [Some(512), Some(4096), backups[0], backups[1]];
    if places.into_iter().flatten().any(|at| disk.has(at, b"EFI PART")) {
        return Some("a GPT partition table".into());
    }
    if !disk.has(510, &[0x55, 0xaa]) {
        return None;
    }
    let entries = disk.bytes(446, 64)?.chunks_exact(16);
    let valid = |entry: &[u8]| entry[0] & 0x7f == 0;
    let used = |entry: &[u8]| entry[4] != 0 && entry[12..16] != [0; 4];
    let (all_valid, any_used) = (entries.clone().all(valid), entries.clone().any(used));
    (all_valid && any_used).then(|| "an MBR partition table".into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    /// A disk of zeros with `marks` written on it.
    fn found(size: u64, marks: &[(u64, &[u8])]) -> Vec<String> {
        let mut bytes = vec![0u8; size as usize];
        for (at, mark) in marks {
            bytes[*at as usize..*at as usize + mark.len()].copy_from_slice(mark);
        }
        let window = bytes.len().min(WINDOW as usize);
        identify(&bytes[..window], &bytes[bytes.len() - window..], size)
    }

    const MIB: u64 = 1 << 20;

    #[test]
    fn an_empty_disk_of_any_size_holds_nothing() {
        for size in [0, 1, 511, 512, 4096, 65_536, 65_537, MIB - 1, MIB, 3 * MIB + 512] {
            assert!(found(size, &[]).is_empty(), "{size}");
        }
    }

    #[test]
    fn what_is_not_blank_holds_something_and_is_told_as_well_as_can_be() {
        let said = |head: &[u8]| unknown(head, &[0; 512]);
        assert_eq!((said(&[0; 4096]), unknown(&[0xff; 4096], &[0xff; 512])), (None, None));
        assert_eq!(unknown(&[0; 4096], &[0, 1]).unwrap(), "data of an unknown kind");
        assert_eq!(said(&[1, 2, 200, 9]).unwrap(), "data of an unknown kind");
        assert_eq!(said("Dear diary,\n\ttoday".as_bytes()).unwrap(), "text (\"Dear diary, today\")");
        let long = "grün ".repeat(400);
        assert_eq!(said(long.as_bytes()).unwrap(), format!("text (\"{}...\")", "grün ".repeat(8)));
        assert_eq!(said(b"\x1b[2Jx").unwrap(), "data of an unknown kind");
        assert_eq!(said(b"\x1f\x8b\x08more").unwrap(), "a gzip file");
        let mut tar = [0; 1024];
        tar[..4].copy_from_slice(b"file");
        tar[257..262].copy_from_slice(b"ustar");
        assert_eq!(said(&tar).unwrap(), "a tar archive");
    }

    #[test]
    fn random_bytes_hold_nothing_and_are_no_trouble() {
        let mut seed = 1u64;
        let bytes: Vec<u8> = std::iter::repeat_with(|| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (seed >> 56) as u8
        })
        .take(2 * MIB as usize)
        .collect();
        assert!(identify(&bytes[..MIB as usize], &bytes[MIB as usize..], 2 * MIB).is_empty());
    }

    #[test]
    fn every_signature_of_the_table_is_found_at_its_place_only() {
        for signature in &SIGNATURES {
            let size = 4 * MIB;
            let at_its_place = found(size, &[(signature.at, signature.bytes)]);
            assert!(at_its_place.iter().any(|what| what.starts_with(signature.what)), "{}", signature.what);
            let elsewhere = found(size, &[(signature.at + 2 * MIB, signature.bytes)]);
            assert!(elsewhere.is_empty(), "{}: {elsewhere:?}", signature.what);
        }
    }

    #[test]
    fn ext_versions_are_told_apart_by_their_features() {
        let with = |compatible: u32, incompatible: u32, read_only: u32| {
            let (compatible, incompatible, read_only) =
                (compatible.to_le_bytes(), incompatible.to_le_bytes(), read_only.to_le_bytes());
            let marks: [(u64, &[u8]); 5] = [
                (1080, &[0x53, 0xef]),
                (1116, &compatible),
                (1120, &incompatible),
                (1124, &read_only),
                (1144, b"media"),
            ];
            found(4 * MIB, &marks).remove(0)
        };
        assert_eq!(with(0, 0x2, 0x1), "an ext2 file system (\"media\")");
        assert_eq!(with(0x4, 0x2, 0x1), "an ext3 file system (\"media\")");
        assert_eq!(with(0x4, 0x242, 0x1), "an ext4 file system (\"media\")");
        assert_eq!(with(0x4, 0x2, 0x400), "an ext4 file system (\"media\")");
        assert_eq!(with(0, 0x8, 0), "an ext journal (\"media\")");
    }

    #[test]
    fn volume_managers_are_found_at_both_ends() {
        let size = 5 * MIB + 3 * 4096;
        let md = 0xa92b_4efc_u32.to_le_bytes();
        let md_1_0 = ((size / 512 - 16) & !7) * 512;
        let md_0_90 = (size & !0xffff) - 0x1_0000;
        for at in [0, 4096, md_1_0, md_0_90] {
            assert_eq!(found(size, &[(at, &md)]), ["a member of a Linux RAID"], "{at}");
        }
        assert_eq!(found(size, &[(512, b"LABELONE"), (536, b"LVM2 001")]), ["an LVM2 physical volume"]);
        assert!(found(size, &[(512, b"LABELONE")]).is_empty());
        let uberblock = 0x00ba_b10c_u64.to_le_bytes();
        let last_label = size / (256 << 10) * (256 << 10) - (256 << 10);
        for at in [128 << 10, (256 << 10) + (130 << 10), last_label + (255 << 10)] {
            assert_eq!(found(size, &[(at, &uberblock)]), ["a member of a ZFS pool"], "{at}");
        }
    }

    #[test]
    fn partition_tables_are_found_and_a_bare_boot_mark_is_none() {
        let size = 3 * MIB;
        for at in [512, 4096, size - 512, size - 4096] {
            assert_eq!(found(size, &[(at, b"EFI PART")]), ["a GPT partition table"], "{at}");
        }
        assert!(found(size, &[(510, &[0x55, 0xaa])]).is_empty());
        let entry = [0x80, 0, 1, 0, 0x83, 0, 0, 0, 0, 8, 0, 0, 0, 16, 0, 0];
        assert_eq!(found(size, &[(510, &[0x55, 0xaa]), (446, &entry)]), ["an MBR partition table"]);
    }

    #[test]
    fn swap_is_found_for_every_page_size() {
        for page in [4096u64, 65_536] {
            assert_eq!(found(MIB, &[(page - 10, b"SWAPSPACE2")]), ["swap space"], "{page}");
        }
    }

    #[test]
    fn a_wiped_disk_holds_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("disk");
        let mut bytes = vec![1u8; 3 * MIB as usize];
        bytes[..4].copy_from_slice(b"XFSB");
        std::fs::write(&path, &bytes).unwrap();
        assert_eq!(look(&path).unwrap(), ["an XFS file system"]);
        wipe(&path).unwrap();
        assert_eq!(look(&path).unwrap(), ["data of an unknown kind, 1 MiB from its beginning"]);
        assert_eq!(std::fs::read(&path).unwrap()[MIB as usize], 1, "the middle is left alone");
    }

    #[test]
    fn what_lies_in_the_middle_alone_is_found_and_zeros_are_blank_however_many_were_written() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("disk");
        let file = File::create(&path).unwrap();
        file.set_len(10 << 30).unwrap();
        assert!(look(&path).unwrap().is_empty(), "a hole is looked at without being read");
        file.write_all_at(&vec![0; 20 * MIB as usize], 40 * MIB).unwrap();
        assert!(look(&path).unwrap().is_empty());
        file.write_all_at(b"Dear diary,\nnobody reads this", 5 << 30).unwrap();
        // There is more than is read whole, and the words are in a piece of the file that is theirs.
        assert_eq!(look(&path).unwrap(), ["text (\"Dear diary, nobody reads this\"), 5 GiB from its beginning"]);
        file.set_len(0).unwrap();
        file.set_len(10 << 30).unwrap();
        // More than is read whole: places in all of it are.
        file.write_all_at(&[7; MIB as usize], 3 << 30).unwrap();
        file.write_all_at(&vec![0; 40 * MIB as usize], 6 << 30).unwrap();
        assert_eq!(look(&path).unwrap(), ["data of an unknown kind, 3 GiB from its beginning"]);
    }

    /// Where the tools are, what they make must be found; where they are not, the crafted bytes above stand for them.
    #[test]
    fn what_real_tools_make_is_found() {
        let tools: [(&str, &[&str], &str); 8] = [
            ("mkfs.ext4", &["-q", "-F", "-L", "media"], "an ext4 file system (\"media\")"),
            ("mkfs.ext3", &["-q", "-F"], "an ext3 file system"),
            ("mkfs.ext2", &["-q", "-F"], "an ext2 file system"),
            ("mkfs.xfs", &["-q", "-f"], "an XFS file system"),
            ("mkfs.btrfs", &["-q", "-f"], "a Btrfs file system"),
            ("mkfs.vfat", &[], "a FAT file system"),
            ("mkfs.ntfs", &["-Q", "-F", "-q"], "an NTFS file system"),
            ("mkswap", &[], "swap space"),
        ];
        let dir = tempfile::tempdir().unwrap();
        for (tool, flags, what) in tools {
            let path = dir.path().join(tool);
            File::create(&path).unwrap().set_len(512 * MIB).unwrap();
            let made = ["", "/sbin/", "/usr/sbin/"].iter().any(|dir| {
                let run = Command::new(format!("{dir}{tool}")).args(flags).arg(&path).output();
                run.is_ok_and(|output| output.status.success())
            });
            if made {
                let found = look(&path).unwrap();
                assert!(found.iter().any(|found| found == what), "{tool}: {found:?}");
            } else {
                eprintln!("{tool} is not here");
            }
        }
    }
}
