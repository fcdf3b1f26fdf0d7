//! Checksums: CRC32C (Castagnoli), and the checksum of a block, which knows where the block belongs.
//!
//! The kernels are our own. Of the published crates, `crc32c` needs `std`, and `crc-fast` without `std` chooses at
//! compile time, which would leave a generic build on tables; neither computes many short independent messages side by
//! side, which is what a stripe's blocks are.
//!
//! Invariants
//! 1. All kernels give the same sums as the bitwise reference, at any length and alignment.
//! 2. A block's checksum is never 0: 0 means that none is recorded.
//! 3. The checksum covers the address, so a block found at another place than it was written to does not verify.

mod table;
#[cfg(target_arch = "x86_64")]
mod x86;

use crate::units::{BLOCK, Birth, SegmentNo, TableNo};

const BLOCK_LEN: usize = BLOCK as usize;

/// Where a block belongs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BlockAddress {
    /// The number of the segment.
    pub segment: SegmentNo,
    /// The slot (column x copy) within the segment.
    pub slot: u32,
    /// The 4 KiB block within the slot's slab.
    pub block: u64,
}

/// CRC32C of `bytes`.
pub fn crc32c(bytes: &[u8]) -> u32 {
    crc32c_append(0, bytes)
}

/// CRC32C of what `crc` is the CRC32C of, followed by `bytes`. The CRC32C of nothing is 0.
pub fn crc32c_append(crc: u32, bytes: &[u8]) -> u32 {
    !Kernel::best().advance(!crc, bytes)
}

/// The checksum of one block: CRC32C of its 4096 bytes followed by its address, except that 0 becomes 1.
///
/// # Panics
/// When `block` is not 4096 bytes long.
pub fn block_checksum(at: BlockAddress, block: &[u8]) -> u32 {
    assert_eq!(block.len(), BLOCK_LEN, "a block");
    block_checksum_with(Kernel::best(), at, block)
}

/// The checksums of consecutive blocks, the first of which belongs at `first`.
///
/// # Panics
/// When `data` is not as many whole blocks as `sums` has places.
pub fn block_checksums(first: BlockAddress, data: &[u8], sums: &mut [u32]) {
    let (blocks, rest) = data.as_chunks::<BLOCK_LEN>();
    assert!(rest.is_empty() && blocks.len() == sums.len(), "{} bytes for {} blocks", data.len(), sums.len());
    let kernel = Kernel::best();
    for ((sum, block), no) in sums.iter_mut().zip(blocks).zip(first.block..) {
        *sum = block_checksum_with(kernel, BlockAddress { block: no, ..first }, block);
    }
}

/// The mark of the owner of a stripe: of its table, its number there, and its birth, where it has one. Never 0, as no
/// checksum is.
pub fn owner_mark(table: TableNo, stripe: u64, birth: Birth) -> u32 {
    let whose = crc32c_append(crc32c(&table.0.to_le_bytes()), &stripe.to_le_bytes());
    let mark = if birth == Birth::NONE { whose } else { crc32c_append(whose, &birth.0.to_le_bytes()) };
    mark.max(1)
}

/// The checksums that blocks of zeros have from `first` on.
pub fn zero_checksums(first: BlockAddress) -> impl Iterator<Item = u32> {
    let kernel = Kernel::best();
    let zeros = kernel.advance(!0, &[0; BLOCK_LEN]);
    (first.block..).map(move |block| with_address(kernel, zeros, BlockAddress { block, ..first }))
}

fn block_checksum_with(kernel: Kernel, at: BlockAddress, block: &[u8]) -> u32 {
    with_address(kernel, kernel.advance(!0, block), at)
}

/// `state`: after the bytes of a block.
fn with_address(kernel: Kernel, state: u32, at: BlockAddress) -> u32 {
    let crc = !kernel.advance(state, &at.to_bytes());
    // Two of 2^32 sums share the value 1: nothing is lost that a checksum of 32 bits had.
    crc.max(1)
}

impl BlockAddress {
    fn to_bytes(self) -> [u8; 16] {
        let mut bytes = [0; 16];
        bytes[..4].copy_from_slice(&self.segment.0.to_le_bytes());
        bytes[4..8].copy_from_slice(&self.slot.to_le_bytes());
        bytes[8..].copy_from_slice(&self.block.to_le_bytes());
        bytes
    }
}

/// A kernel this processor can run. [`Kernel::available`] is the only maker.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Kernel(Kind);

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    /// Carry-less multiplication in 64-byte registers: Ice Lake, Zen 4 and later.
    #[cfg(target_arch = "x86_64")]
    Avx512,
    /// The CRC32 instruction, three streams at once: every x86-64 since 2011.
    #[cfg(target_arch = "x86_64")]
    Sse42,
    Table,
}

impl Kernel {
    fn best() -> Kernel {
        Kernel::available().next().expect("the table kernel is always available")
    }

    /// Every kernel this processor can run, fastest first.
    fn available() -> impl Iterator<Item = Kernel> {
        #[cfg(target_arch = "x86_64")]
        let instructions = [(Kind::Avx512, x86::has_avx512 as fn() -> bool), (Kind::Sse42, x86::has_sse42)]
            .into_iter()
            .filter_map(|(kind, is_here)| is_here().then_some(kind));
        #[cfg(not(target_arch = "x86_64"))]
        let instructions = core::iter::empty();
        instructions.chain([Kind::Table]).map(Kernel)
    }

    /// The state of the sum after `bytes`. A state is the bitwise complement of a CRC32C.
    fn advance(self, state: u32, bytes: &[u8]) -> u32 {
        match self.0 {
            // SAFETY: a `Kernel` of this kind exists only where the processor has its instructions.
            #[cfg(target_arch = "x86_64")]
            Kind::Avx512 => unsafe { x86::advance_avx512(state, bytes) },
            // SAFETY: as above.
            #[cfg(target_arch = "x86_64")]
            Kind::Sse42 => unsafe { x86::advance_sse42(state, bytes) },
            Kind::Table => table::advance(state, bytes),
        }
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use proptest::prelude::*;
    use std::vec;
    use std::vec::Vec;

    /// The definition, bit by bit.
    fn reference(state: u32, bytes: &[u8]) -> u32 {
        let bits = bytes.iter().flat_map(|byte| (0..8).map(move |bit| (byte >> bit & 1) as u32));
        bits.fold(state, |state, bit| {
            let shifted = state >> 1;
            if (state ^ bit) & 1 == 1 { shifted ^ 0x82f6_3b78 } else { shifted }
        })
    }

    #[test]
    fn known_vectors_of_rfc_3720() {
        let ascending: Vec<u8> = (0..32).collect();
        for kernel in Kernel::available() {
            let crc = |bytes: &[u8]| !kernel.advance(!0, bytes);
            assert_eq!(crc(b"123456789"), 0xe306_9283, "{kernel:?}");
            assert_eq!(crc(&[0; 32]), 0x8a91_36aa);
            assert_eq!(crc(&[0xff; 32]), 0x62a8_ab43);
            assert_eq!(crc(&ascending), 0x46dd_794e);
        }
        assert_eq!(crc32c(b"123456789"), 0xe306_9283);
        assert_eq!(crc32c(b""), 0);
    }

    #[test]
    fn kernels_equal_the_reference_at_every_length() {
        let bytes: Vec<u8> = (0..5000u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
        let expected: Vec<u32> = core::iter::once(0x1234_5678)
            .chain(bytes.iter().scan(0x1234_5678, |state, byte| {
                *state = reference(*state, &[*byte]);
                Some(*state)
            }))
            .collect();
        for kernel in Kernel::available() {
            for len in 0..=bytes.len() {
                assert_eq!(kernel.advance(0x1234_5678, &bytes[..len]), expected[len], "{kernel:?} {len}");
            }
        }
    }

    #[test]
    fn a_block_checksum_covers_the_data_and_then_the_address_in_little_endian() {
        let block = vec![0x5a; BLOCK_LEN];
        let at = BlockAddress { segment: SegmentNo(0x0102_0304), slot: 0x0506_0708, block: 0x090a_0b0c_0d0e_0f10 };
        let message = [&block[..], &[4, 3, 2, 1, 8, 7, 6, 5, 16, 15, 14, 13, 12, 11, 10, 9]].concat();
        assert_eq!(block_checksum(at, &block), !reference(!0, &message));
    }

    #[test]
    fn a_block_at_another_address_does_not_verify() {
        let block = vec![7; BLOCK_LEN];
        let at = BlockAddress { segment: SegmentNo(3), slot: 5, block: 1 << 40 };
        let sum = block_checksum(at, &block);
        for bit in 0..32 {
            assert_ne!(sum, block_checksum(BlockAddress { segment: SegmentNo(at.segment.0 ^ 1 << bit), ..at }, &block));
            assert_ne!(sum, block_checksum(BlockAddress { slot: at.slot ^ 1 << bit, ..at }, &block));
        }
        for bit in 0..64 {
            assert_ne!(sum, block_checksum(BlockAddress { block: at.block ^ 1 << bit, ..at }, &block));
        }
    }

    #[test]
    fn blocks_of_zeros_have_the_checksums_of_zeros() {
        let first = BlockAddress { segment: SegmentNo(7), slot: 2, block: u32::MAX.into() };
        let mut sums = [0; 3];
        block_checksums(first, &vec![0; 3 * BLOCK_LEN], &mut sums);
        assert!(zero_checksums(first).take(3).eq(sums));
    }

    /// The block's last four bytes are chosen so that the sum of block and address is 0.
    #[test]
    fn a_checksum_that_would_be_zero_is_one() {
        let at = BlockAddress { segment: SegmentNo(1), slot: 2, block: 3 };
        let mut block = vec![0x11; BLOCK_LEN];
        // Undo the address, bit by bit, from the state whose complement is 0.
        let mut state = !0u32;
        for byte in at.to_bytes().iter().rev() {
            for bit in (0..8).rev() {
                let out = state >> 31;
                state = (if out == 1 { state ^ 0x82f6_3b78 } else { state }) << 1 | out ^ (byte >> bit & 1) as u32;
            }
        }
        // Four bytes xored into the state are shifted out as a whole: undo them with zero bytes for what they must be.
        for _ in 0..32 {
            let out = state >> 31;
            state = (if out == 1 { state ^ 0x82f6_3b78 } else { state }) << 1 | out;
        }
        let before = reference(!0, &block[..BLOCK_LEN - 4]);
        block[BLOCK_LEN - 4..].copy_from_slice(&(state ^ before).to_le_bytes());
        assert_eq!(!reference(!0, &[&block[..], &at.to_bytes()].concat()), 0, "the test's own arithmetic");
        for kernel in Kernel::available() {
            assert_eq!(block_checksum_with(kernel, at, &block), 1);
        }
    }

    #[test]
    fn consecutive_blocks_count_up_from_the_first_address() {
        let data: Vec<u8> = (0..7 * BLOCK_LEN).map(|i| (i / 3) as u8).collect();
        let first = BlockAddress { segment: SegmentNo(9), slot: 1, block: 100 };
        let mut sums = [0; 7];
        block_checksums(first, &data, &mut sums);
        for (i, block) in data.chunks(BLOCK_LEN).enumerate() {
            assert_eq!(sums[i], block_checksum(BlockAddress { block: 100 + i as u64, ..first }, block));
        }
    }

    #[test]
    #[should_panic(expected = "for 2 blocks")]
    fn a_partial_block_is_refused() {
        block_checksums(BlockAddress { segment: SegmentNo(0), slot: 0, block: 0 }, &[0; 5000], &mut [0; 2]);
    }

    proptest! {
        #[test]
        fn kernels_equal_the_reference_at_any_alignment_and_split(
            bytes in proptest::collection::vec(any::<u8>(), 0..10_000),
            from in any::<prop::sample::Index>(),
            split in any::<prop::sample::Index>(),
            state: u32,
        ) {
            let bytes = &bytes[from.index(bytes.len() + 1)..];
            let (head, tail) = bytes.split_at(split.index(bytes.len() + 1));
            let expected = reference(state, bytes);
            for kernel in Kernel::available() {
                prop_assert_eq!(kernel.advance(state, bytes), expected);
                prop_assert_eq!(kernel.advance(kernel.advance(state, head), tail), expected);
            }
            prop_assert_eq!(crc32c_append(crc32c(head), tail), crc32c(bytes));
        }
    }
}
