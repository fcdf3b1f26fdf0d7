//! CRC32C with the instructions of x86-64.
//!
//! A message is a polynomial over GF(2), its first bit the highest degree; a CRC is its remainder. Both kernels below
//! cut the message in pieces and move pieces to where others are by multiplying with a power of x modulo the polynomial
//! (V. Gopal et al., "Fast CRC Computation for Generic Polynomials Using PCLMULQDQ Instruction", Intel 2009).
//!
//! Bit order: in a register, bit i of a 64-bit word stands for x^(63 - i). The 128-bit carry-less product of two such
//! words, read in the same order, is their product times x; the constants are one power lower to make up for it.

use super::table::times_x;
use core::arch::x86_64::*;

cpufeatures::new!(cpu_sse42, "sse4.2", "pclmulqdq");
cpufeatures::new!(cpu_avx512, "avx512f", "vpclmulqdq", "sse4.2", "pclmulqdq");

/// Whether the processor has the CRC32 instruction and carry-less multiplication.
pub(super) fn has_sse42() -> bool {
    cpu_sse42::get()
}

/// Whether processor and operating system also support AVX-512 and carry-less multiplication in its registers.
pub(super) fn has_avx512() -> bool {
    cpu_avx512::get()
}

/// Bytes per stream. Three streams and two words are 4096 bytes: a block plus its address needs no other loop.
const STREAM: usize = 1360;

/// One CRC32 instruction takes eight bytes, has a latency of three cycles and can start every cycle: three streams.
#[target_feature(enable = "sse4.2,pclmulqdq")]
pub(super) fn advance_sse42(mut state: u32, bytes: &[u8]) -> u32 {
    let (groups, rest) = bytes.as_chunks::<{ 3 * STREAM }>();
    for group in groups {
        let (a, bc) = group.split_at(STREAM);
        let (b, c) = bc.split_at(STREAM);
        let (mut sum_a, mut sum_b, mut sum_c) = (state as u64, 0, 0);
        for ((a, b), c) in a.as_chunks().0.iter().zip(b.as_chunks().0).zip(c.as_chunks().0) {
            sum_a = _mm_crc32_u64(sum_a, u64::from_le_bytes(*a));
            sum_b = _mm_crc32_u64(sum_b, u64::from_le_bytes(*b));
            sum_c = _mm_crc32_u64(sum_c, u64::from_le_bytes(*c));
        }
        state = skip::<{ 2 * STREAM }>(sum_a as u32) ^ skip::<STREAM>(sum_b as u32) ^ sum_c as u32;
    }
    advance_serially(state, rest)
}

/// Four registers of 64 bytes are multiplied onward over the message, then into one, whose sum is taken by CRC32.
#[target_feature(enable = "avx512f,vpclmulqdq,sse4.2,pclmulqdq")]
pub(super) fn advance_avx512(state: u32, bytes: &[u8]) -> u32 {
    let (groups, _) = bytes.as_chunks::<256>();
    let Some((first, groups)) = groups.split_first() else {
        return advance_serially(state, bytes);
    };
    let mut sums = load_group(first);
    sums[0] = _mm512_xor_si512(sums[0], _mm512_zextsi128_si512(_mm_cvtsi32_si128(state as i32)));
    let by_group = move_factors::<256>();
    for group in groups {
        let next = load_group(group);
        for i in 0..4 {
            sums[i] = move_onto(sums[i], by_group, next[i]);
        }
    }
    let by_register = move_factors::<64>();
    let mut sum = sums[0];
    for next in &sums[1..] {
        sum = move_onto(sum, by_register, *next);
    }
    let (_, rest) = bytes.as_chunks::<256>();
    let (registers, rest) = rest.as_chunks::<64>();
    for next in registers {
        sum = move_onto(sum, by_register, load(next));
    }
    let mut last = [0; 64];
    // SAFETY: the array is 64 bytes long, and the store needs no alignment.
    unsafe { _mm512_storeu_si512(last.as_mut_ptr().cast(), sum) };
    advance_serially(advance_serially(0, &last), rest)
}

#[inline]
#[target_feature(enable = "sse4.2")]
fn advance_serially(state: u32, bytes: &[u8]) -> u32 {
    let (words, rest) = bytes.as_chunks::<8>();
    let state = words.iter().fold(state as u64, |state, word| _mm_crc32_u64(state, u64::from_le_bytes(*word)));
    rest.iter().fold(state as u32, |state, byte| _mm_crc32_u8(state, *byte))
}

/// The state after `BYTES` zero bytes.
#[inline]
#[target_feature(enable = "sse4.2,pclmulqdq")]
fn skip<const BYTES: usize>(state: u32) -> u32 {
    // The product of two 32-bit states, read as a 64-bit word, is one power too high, and the CRC32 instruction, which
    // reduces it, multiplies by x^32.
    let factor = const { power_of_x(8 * BYTES - 33) };
    let product = _mm_clmulepi64_si128::<0>(_mm_cvtsi32_si128(state as i32), _mm_cvtsi32_si128(factor as i32));
    _mm_crc32_u64(0, _mm_cvtsi128_si64(product) as u64) as u32
}

/// The factors that move each 128-bit lane `BYTES` bytes onward: for its first (higher) and its second word.
#[inline]
#[target_feature(enable = "avx512f")]
fn move_factors<const BYTES: usize>() -> __m512i {
    let factors = const { [power_of_x(8 * BYTES + 63), power_of_x(8 * BYTES - 1)] };
    // A 32-bit remainder in the bit order of 64-bit words.
    let [first, second] = factors.map(|state| ((state as u64) << 32) as i64);
    _mm512_broadcast_i32x4(_mm_set_epi64x(second, first))
}

/// `sum` moved by `factors`, plus `next`.
#[inline]
#[target_feature(enable = "avx512f,vpclmulqdq")]
fn move_onto(sum: __m512i, factors: __m512i, next: __m512i) -> __m512i {
    let first = _mm512_clmulepi64_epi128::<0x00>(sum, factors);
    let second = _mm512_clmulepi64_epi128::<0x11>(sum, factors);
    const XOR_OF_THREE: i32 = 0x96;
    _mm512_ternarylogic_epi64::<XOR_OF_THREE>(first, second, next)
}

#[inline]
#[target_feature(enable = "avx512f")]
fn load_group(bytes: &[u8; 256]) -> [__m512i; 4] {
    let registers = bytes.as_chunks().0;
    [load(&registers[0]), load(&registers[1]), load(&registers[2]), load(&registers[3])]
}

#[inline]
#[target_feature(enable = "avx512f")]
fn load(bytes: &[u8; 64]) -> __m512i {
    // SAFETY: the reference covers 64 bytes, and the load needs no alignment.
    unsafe { _mm512_loadu_si512(bytes.as_ptr().cast()) }
}

/// x^n modulo the polynomial, as a state.
const fn power_of_x(n: usize) -> u32 {
    let (mut state, mut left) = (1 << 31, n);
    while left > 0 {
        state = times_x(state);
        left -= 1;
    }
    state
}
