//! Pages: what stands on the disks, and what proves it.
//!
//! A page is a head, then an array of slots in the order of their keys, then (in a leaf) the values. It is written once
//! and never changed.
//!
//! Invariants
//! 1. Whoever refers to a page says its place, its birth (the number of the checkpoint that made it) and its sum, and
//!    knows its level and its keys from the way to it. The page says all five of itself. An image that differs in any
//!    of them is not the page: a write that was lost, misdirected or torn, bytes that rotted, and pages from another
//!    time, place or history are all told apart from it, and from each other.
//! 2. The sum is over the whole page with the sum's own field zero, so that a page proves itself, too: what is found
//!    without its parent can be told from garbage by whoever rebuilds.
//! 3. The keys of a page rise, and lie in the range that the page says it has.
//! 4. A page that decoded is sound: nothing that reads it later can be led outside of it.
//! 5. Pages with an incompatible feature that is not known are refused by name, not taken for damage.

use super::error::Why;
use super::key::{Key, KeyBytes, KeyRange};
use super::mutant::{Mutant, active};
use super::store::Place;
use super::{Spot, Which};
use crate::checksum::{crc32c, crc32c_append};
use crate::format::doc::{Field, layout};
use crate::io::{Buf, IoSlice};
use crate::units::BLOCK;
use alloc::vec::Vec;
use zerocopy::little_endian::{U16, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Marks a page of the tree.
const MAGIC: [u8; 4] = *b"WFTP";
/// Incompatible features that this engine knows: none yet.
const FEATURES_KNOWN: u32 = 0;

/// What proves a page, in its parent's hand.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct PageRef {
    /// Where it lies.
    pub place: Place,
    /// The number of the checkpoint that made it.
    pub birth: u64,
    /// Its sum: CRC32C in the lower half, the upper half for a wider one.
    pub sum: u64,
}

/// The head of a page.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Clone)]
#[repr(C)]
struct Head {
    magic: [u8; 4],
    kind: u16,
    level: u16,
    /// Features that need not be known to read the page.
    compatible: u32,
    /// Features without which the page means something else.
    incompatible: u32,
    sum: u64,
    place: u64,
    birth: u64,
    /// The random number of the opening that wrote it: histories that parted differ in it.
    writer: u64,
    /// Bytes in use, from the start of the page.
    len: u32,
    /// How many slots there are.
    count: u32,
    first: KeyBytes,
    last: KeyBytes,
    pad_0: [u8; 4],
}

/// A slot of a leaf: a key, and where in the page its value lies.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct LeafSlot {
    key: KeyBytes,
    at: U16,
    len: U16,
}

/// A slot of a page above the leaves: a child, and the first of its keys.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct ChildSlot {
    first: KeyBytes,
    place: U64,
    birth: U64,
    sum: U64,
}

const HEAD: usize = size_of::<Head>();
/// Where in a page its sum stands.
pub(super) const SUM_AT: usize = 16;
const LEAF_SLOT: usize = size_of::<LeafSlot>();
const CHILD_SLOT: usize = size_of::<ChildSlot>();
const KIND_LEAF: u16 = 1;
const KIND_INNER: u16 = 2;

const _: () = assert!(HEAD == 112 && LEAF_SLOT == 30 && CHILD_SLOT == 50);
const _: () = assert!(core::mem::offset_of!(Head, sum) == SUM_AT);

/// How large pages are, and what follows from that. One for a whole tree, for good.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Shape {
    page_len: usize,
}

impl Shape {
    /// Pages of `page_len` bytes: 512 bytes to 32 KiB. (Pools use whole blocks; tests like many small pages.)
    ///
    /// # Panics
    /// When `page_len` is not allowed.
    pub fn new(page_len: usize) -> Shape {
        assert!((512..=32 << 10).contains(&page_len), "pages of 512 bytes to 32 KiB, not of {page_len}");
        Shape { page_len }
    }

    /// Bytes of a page in memory and on disks.
    pub fn image_len(&self) -> usize {
        self.page_len.next_multiple_of(BLOCK as usize)
    }

    /// Bytes for slots and values in a page.
    pub(super) fn room(&self) -> usize {
        self.page_len - HEAD
    }

    /// The largest value. Six of the largest entries fit a page, without which no fill could be promised.
    pub fn value_max(&self) -> usize {
        self.entry_max() - LEAF_SLOT
    }

    /// Bytes of the largest entry with its slot.
    pub(super) fn entry_max(&self) -> usize {
        self.room() / 6
    }

    /// Bytes of slots and values that every page has at least, but for a tree's top page.
    pub(super) fn fill_min(&self) -> usize {
        self.room() / 4
    }

    /// Bytes of an entry with a value of `len` bytes.
    pub(super) fn leaf_entry(len: usize) -> usize {
        LEAF_SLOT + len
    }

    /// Bytes of an entry for a child.
    pub(super) const fn child_entry() -> usize {
        CHILD_SLOT
    }
}

impl PageRef {
    /// What stands for a page that has no place yet.
    pub(super) const NOWHERE: PageRef = PageRef { place: Place(u64::MAX), birth: u64::MAX, sum: u64::MAX };

    /// Whether `image` is the page that this refers to.
    pub fn proves(&self, shape: &Shape, image: &[u8]) -> core::result::Result<(), Why> {
        let bytes = image.get(..shape.page_len).ok_or(Why::Damaged)?;
        let head = Head::read_from_prefix(bytes).map_err(|_| Why::Damaged)?.0;
        let sum_holds = sum_of(bytes) == head.sum || active(Mutant::ChecksumIgnored);
        if head.magic != MAGIC || !sum_holds {
            return Err(Why::Damaged);
        }
        if head.place != self.place.0 {
            return Err(Why::Misplaced);
        }
        if head.birth != self.birth && !active(Mutant::BirthIgnored) {
            return Err(Why::Stale);
        }
        if head.sum != self.sum && !active(Mutant::ChecksumIgnored) {
            return Err(Why::Foreign);
        }
        if head.incompatible & !FEATURES_KNOWN != 0 {
            return Err(Why::Unknown);
        }
        Ok(())
    }
}

impl PageRef {
    /// The page that `image` says it is, if its sum holds and it says that it belongs to `place`. It proves itself, and
    /// not that it is the newest page of this place: only who refers to it can tell.
    pub fn claimed(shape: &Shape, place: Place, image: &[u8]) -> Option<PageRef> {
        let head = Head::read_from_prefix(image.get(..shape.page_len)?).ok()?.0;
        let claimed = PageRef { place, birth: head.birth, sum: head.sum };
        claimed.proves(shape, image).is_ok().then_some(claimed)
    }
}

/// What stands on the disks, for the test that holds the document against it.
pub(super) fn layouts() -> Vec<(&'static str, Vec<Field>)> {
    alloc::vec![
        layout!(Head { magic kind level compatible incompatible sum place birth writer len count first last pad_0 }),
        layout!(LeafSlot { key at len }),
        layout!(ChildSlot { first place birth sum }),
    ]
}

/// The sum of a page, whatever stands in the field for it.
pub(super) fn sum_of(page: &[u8]) -> u64 {
    let crc = crc32c_append(crc32c(&page[..SUM_AT]), &[0; 8]);
    crc32c_append(crc, &page[SUM_AT + 8..]).into()
}

/// A page that was proven, or has just been made. Shared, and never changed.
pub(super) struct Page {
    /// What proves it.
    pub at: PageRef,
    /// How far above the leaves it is.
    pub level: u16,
    /// The keys it was made for; all of its own are in there.
    pub range: KeyRange,
    /// How many entries it has.
    pub count: usize,
    /// Bytes of its slots and values.
    pub filled: usize,
    /// The bytes, as they are on the disks.
    pub image: IoSlice,
}

impl Page {
    /// The page that `want` refers to, if `image` is that.
    pub fn decode(shape: &Shape, want: PageRef, image: IoSlice) -> core::result::Result<Page, Why> {
        want.proves(shape, &image)?;
        let head = Head::read_from_prefix(&image).map_err(|_| Why::Malformed)?.0;
        let (first, last) = (Key::from(head.first), Key::from(head.last));
        let kind = if head.level == 0 { KIND_LEAF } else { KIND_INNER };
        let (len, count) = (head.len as usize, head.count as usize);
        let slots = count.checked_mul(if head.level == 0 { LEAF_SLOT } else { CHILD_SLOT });
        let slots_fit = slots.is_some_and(|slots| slots <= len.saturating_sub(HEAD));
        if head.kind != kind || first > last || count == 0 || !slots_fit || !(HEAD..=shape.page_len).contains(&len) {
            return Err(Why::Malformed);
        }
        let range = KeyRange { first, last };
        let page = Page { at: want, level: head.level, range, count, filled: len - HEAD, image };
        if page.is_sound(len) { Ok(page) } else { Err(Why::Malformed) }
    }

    /// Invariant 3, and that values follow each other from the last slot to the end of what is used.
    fn is_sound(&self, len: usize) -> bool {
        let keys = (0..self.count).map(|no| self.key(no));
        let rising = keys.clone().zip(keys.clone().skip(1)).all(|(one, next)| one < next);
        let inside = self.range.contains(self.key(0)) && self.range.contains(self.key(self.count - 1));
        let begins = self.level == 0 || self.key(0) == self.range.first;
        let mut end = HEAD + self.count * if self.level == 0 { LEAF_SLOT } else { CHILD_SLOT };
        for no in 0..if self.level == 0 { self.count } else { 0 } {
            let slot = self.leaf_slot(no);
            if usize::from(slot.at.get()) != end {
                return false;
            }
            end += usize::from(slot.len.get());
        }
        rising && inside && begins && end == len
    }

    /// Whether this is a page for `spot`: its level is that of the way to it, and its keys are among those.
    pub fn fits(&self, spot: &Spot) -> bool {
        self.level == spot.level && spot.range.covers(&self.range)
    }

    /// The key of entry `no`: of a value, or the first key of a child.
    pub fn key(&self, no: usize) -> Key {
        if self.level == 0 { self.leaf_slot(no).key.into() } else { self.child_slot(no).first.into() }
    }

    /// The value of entry `no`. Leaves only.
    pub fn value(&self, no: usize) -> &[u8] {
        let slot = self.leaf_slot(no);
        &self.image[usize::from(slot.at.get())..][..usize::from(slot.len.get())]
    }

    /// What proves child `no`. Pages above the leaves only.
    pub fn child(&self, no: usize) -> PageRef {
        let slot = self.child_slot(no);
        PageRef { place: Place(slot.place.get()), birth: slot.birth.get(), sum: slot.sum.get() }
    }

    /// Child `no`, and the keys that lead to it when those in `range` lead here: every key leads to one child.
    pub fn spot(&self, tree: Which, no: usize, range: KeyRange) -> Spot {
        let first = if no == 0 { range.first } else { self.key(no) };
        let next = (no + 1 < self.count).then(|| self.key(no + 1));
        let last = next.map_or(range.last, |next| next.prior().expect("keys rise"));
        Spot { tree, page: self.child(no), level: self.level - 1, range: KeyRange { first, last } }
    }

    /// The child that `key` leads to.
    pub fn spot_of(&self, tree: Which, key: Key, range: KeyRange) -> Spot {
        let behind = self.first_from(key.next());
        self.spot(tree, behind.saturating_sub(1), range)
    }

    /// The number of the entry with this key.
    pub fn find(&self, key: Key) -> Option<usize> {
        let no = self.first_from(Some(key));
        (no < self.count && self.key(no) == key).then_some(no)
    }

    /// The number of the first entry whose key is not before `key`; behind all entries for no key.
    pub fn first_from(&self, key: Option<Key>) -> usize {
        let Some(key) = key else { return self.count };
        let (mut low, mut high) = (0, self.count);
        while low < high {
            let middle = (low + high) / 2;
            if self.key(middle) < key {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        low
    }

    fn leaf_slot(&self, no: usize) -> LeafSlot {
        debug_assert!(no < self.count && self.level == 0);
        LeafSlot::read_from_prefix(&self.image[HEAD + no * LEAF_SLOT..]).expect("a sound page").0
    }

    fn child_slot(&self, no: usize) -> ChildSlot {
        debug_assert!(no < self.count && self.level > 0);
        ChildSlot::read_from_prefix(&self.image[HEAD + no * CHILD_SLOT..]).expect("a sound page").0
    }
}

/// Who makes a page, where, when and for which keys.
#[derive(Clone, Copy)]
pub(super) struct Making {
    pub place: Place,
    pub birth: u64,
    pub writer: u64,
    pub level: u16,
    pub range: KeyRange,
}

/// A leaf of these entries, in the order of their keys.
pub(super) fn leaf<'a>(shape: &Shape, making: Making, entries: impl ExactSizeIterator<Item = (Key, &'a [u8])>) -> Page {
    let count = entries.len();
    let mut image = Buf::zeroed(shape.image_len());
    let mut end = HEAD + count * LEAF_SLOT;
    for (no, (key, value)) in entries.enumerate() {
        let slot = LeafSlot { key: key.into(), at: (end as u16).into(), len: (value.len() as u16).into() };
        image[HEAD + no * LEAF_SLOT..][..LEAF_SLOT].copy_from_slice(slot.as_bytes());
        image[end..end + value.len()].copy_from_slice(value);
        end += value.len();
    }
    sealed(shape, making, image, count, end)
}

/// A page above the leaves: the children, each with its first key, in their order.
pub(super) fn inner(shape: &Shape, making: Making, entries: impl ExactSizeIterator<Item = (Key, PageRef)>) -> Page {
    let count = entries.len();
    let mut image = Buf::zeroed(shape.image_len());
    for (no, (first, PageRef { place, birth, sum })) in entries.enumerate() {
        let slot = ChildSlot { first: first.into(), place: place.0.into(), birth: birth.into(), sum: sum.into() };
        image[HEAD + no * CHILD_SLOT..][..CHILD_SLOT].copy_from_slice(slot.as_bytes());
    }
    sealed(shape, making, image, count, HEAD + count * CHILD_SLOT)
}

/// The page of these slots and values, with its head and its sum.
fn sealed(shape: &Shape, making: Making, mut image: Buf, count: usize, len: usize) -> Page {
    let Making { place, birth, writer, level, range } = making;
    assert!(len <= shape.page_len && count > 0, "{count} entries of {len} bytes");
    let head = Head {
        magic: MAGIC,
        kind: if level == 0 { KIND_LEAF } else { KIND_INNER },
        level,
        compatible: 0,
        incompatible: 0,
        sum: 0,
        place: place.0,
        birth,
        writer,
        len: len as u32,
        count: count as u32,
        first: range.first.into(),
        last: range.last.into(),
        pad_0: [0; 4],
    };
    image[..HEAD].copy_from_slice(head.as_bytes());
    let sum = sum_of(&image[..shape.page_len]);
    image[SUM_AT..SUM_AT + 8].copy_from_slice(&sum.to_le_bytes());
    let page =
        Page { at: PageRef { place, birth, sum }, level, range, count, filled: len - HEAD, image: image.freeze() };
    assert!(page.is_sound(len), "a page that could not be read again");
    page
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;

    const SHAPE: Shape = Shape { page_len: 512 };

    fn key(n: u64) -> Key {
        Key::new(1, 2, n, 3)
    }

    fn sample() -> Page {
        let range = KeyRange::new(key(0), key(99));
        let making = Making { place: Place(77), birth: 5, writer: 8, level: 0, range };
        leaf(&SHAPE, making, [(key(10), &b"ten"[..]), (key(20), b""), (key(30), b"thirty")].into_iter())
    }

    fn decoded(want: PageRef, bytes: &[u8]) -> core::result::Result<Page, Why> {
        Page::decode(&SHAPE, want, Buf::copy_of(bytes).freeze())
    }

    #[test]
    fn a_page_comes_back_from_its_bytes() {
        let page = sample();
        let back = decoded(page.at, &page.image).unwrap();
        let entries: Vec<_> = (0..back.count).map(|no| (back.key(no), back.value(no))).collect();
        assert_eq!(entries, [(key(10), &b"ten"[..]), (key(20), b""), (key(30), b"thirty")]);
        assert_eq!((back.level, back.range, back.filled), (0, page.range, 3 * 30 + 9));
        assert_eq!((back.find(key(20)), back.find(key(21)), back.first_from(Some(key(21)))), (Some(1), None, 2));
    }

    #[test]
    fn what_lies_in_the_place_of_a_page_is_named() {
        let page = sample();
        let why = |want: PageRef| decoded(want, &page.image).err();
        assert_eq!(why(page.at), None);
        assert_eq!(why(PageRef { place: Place(78), ..page.at }), Some(Why::Misplaced));
        assert_eq!(why(PageRef { birth: 6, ..page.at }), Some(Why::Stale));
        assert_eq!(why(PageRef { sum: page.at.sum ^ 1, ..page.at }), Some(Why::Foreign));
        assert_eq!(decoded(page.at, &[0; 4096]).err(), Some(Why::Damaged));
    }

    #[test]
    fn any_bit_that_flips_is_found() {
        let page = sample();
        for bit in 0..512 * 8 {
            let mut bytes = page.image.to_vec();
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert!(decoded(page.at, &bytes).is_err(), "bit {bit}");
        }
    }

    /// Whoever forges a page may make its sum hold. Then its parent's sum does not, or it is refused, or it can be read
    /// without a panic.
    #[test]
    fn a_forged_page_never_panics() {
        let page = sample();
        let mut read = 0;
        for at in (0..HEAD + 3 * LEAF_SLOT).filter(|at| !(SUM_AT..SUM_AT + 8).contains(at)) {
            for value in [0, 1, 0x7f, 0xff] {
                let mut bytes = page.image.to_vec();
                bytes[at] = value;
                let sum = sum_of(&bytes[..512]);
                bytes[SUM_AT..SUM_AT + 8].copy_from_slice(&sum.to_le_bytes());
                let Ok(page) = decoded(PageRef { sum, ..page.at }, &bytes) else { continue };
                read += (0..page.count).map(|no| page.value(no).len()).sum::<usize>();
            }
        }
        assert!(read > 0, "some changes are to keys");
    }

    #[test]
    fn a_page_with_a_feature_that_is_not_known_is_refused_by_name_unless_it_may_be_ignored() {
        let page = sample();
        for (at, expected) in [(8, None), (12, Some(Why::Unknown))] {
            let mut bytes = page.image.to_vec();
            bytes[at] = 1;
            let sum = sum_of(&bytes[..512]);
            bytes[SUM_AT..SUM_AT + 8].copy_from_slice(&sum.to_le_bytes());
            assert_eq!(decoded(PageRef { sum, ..page.at }, &bytes).err(), expected);
        }
    }

    #[test]
    fn every_key_leads_to_one_child() {
        let range = KeyRange::new(key(0), key(99));
        let making = Making { place: Place(1), birth: 5, writer: 8, level: 1, range };
        let child = |n| PageRef { place: Place(n), birth: 4, sum: n };
        let page = inner(&SHAPE, making, [(key(0), child(7)), (key(40), child(8)), (key(60), child(9))].into_iter());
        let spots: Vec<Spot> = (0..3).map(|no| page.spot(Which::Content, no, range)).collect();
        for n in 0..100 {
            let spot = page.spot_of(Which::Content, key(n), range);
            assert_eq!(spot.page.place.0, 7 + u64::from(n >= 40) + u64::from(n >= 60));
            assert_eq!(spots.iter().filter(|spot| spot.range.contains(key(n))).count(), 1);
            assert!(spot.range.contains(key(n)));
        }
    }
}
