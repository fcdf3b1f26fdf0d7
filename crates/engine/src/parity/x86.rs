//! The vector registers of x86-64.
//!
//! Intrinsics, because multiplication needs instructions the compiler does not find by itself: a shuffle as a table of
//! half-byte products, and GFNI's bit matrix. With GFNI doubling is one instruction instead of three, which makes P and
//! Q of 8 + 2 columns 1.4 times as fast as AVX-512 alone (`benches/kernels.rs`).
//!
//! Safety, for the whole file: the methods of the vectors are reached only through the `fold_*` functions below, whose
//! callers must know that the processor has the instructions named there. Loads and stores are unaligned and go through
//! array references, so their bounds are checked.

use super::field;
use super::fold::{Output, Sources, Vector, fold};
use core::arch::x86_64::*;

cpufeatures::new!(cpu_avx2, "avx2");
cpufeatures::new!(cpu_avx512, "avx512f", "avx512bw");
cpufeatures::new!(cpu_avx512_gfni, "avx512f", "avx512bw", "gfni");

/// Whether processor and operating system support AVX2.
pub(super) fn has_avx2() -> bool {
    cpu_avx2::get()
}

/// Whether processor and operating system support AVX-512 F and BW.
pub(super) fn has_avx512() -> bool {
    cpu_avx512::get()
}

/// Whether they also support GFNI.
pub(super) fn has_avx512_gfni() -> bool {
    cpu_avx512_gfni::get()
}

#[target_feature(enable = "avx2")]
pub(super) fn fold_avx2(sources: &Sources<'_>, outputs: &mut [Output<'_>]) {
    fold::<Avx2>(sources, outputs);
}

#[target_feature(enable = "avx512f,avx512bw")]
pub(super) fn fold_avx512(sources: &Sources<'_>, outputs: &mut [Output<'_>]) {
    fold::<Avx512>(sources, outputs);
}

#[target_feature(enable = "avx512f,avx512bw,gfni")]
pub(super) fn fold_avx512_gfni(sources: &Sources<'_>, outputs: &mut [Output<'_>]) {
    fold::<Avx512Gfni>(sources, outputs);
}

/// Products of a factor with every low and with every high half of a byte: two table look-ups multiply.
#[derive(Clone, Copy)]
struct HalfProducts {
    low: [u8; 16],
    high: [u8; 16],
}

impl HalfProducts {
    fn new(factor: u8) -> HalfProducts {
        HalfProducts {
            low: core::array::from_fn(|half| field::multiply(factor, half as u8)),
            high: core::array::from_fn(|half| field::multiply(factor, (half as u8) << 4)),
        }
    }
}

#[derive(Clone, Copy)]
struct Avx2(__m256i);

impl Vector for Avx2 {
    const LEN: usize = 32;
    type Factor = (__m256i, __m256i);

    #[inline(always)]
    fn zero() -> Self {
        // SAFETY: AVX2 is here, see the head of the file.
        Avx2(unsafe { _mm256_setzero_si256() })
    }

    #[inline(always)]
    fn load(bytes: &[u8]) -> Self {
        let bytes: &[u8; 32] = bytes.first_chunk().expect("a register's worth of bytes");
        // SAFETY: AVX2 is here; the reference covers 32 bytes.
        Avx2(unsafe { _mm256_loadu_si256(bytes.as_ptr().cast()) })
    }

    #[inline(always)]
    fn store(self, bytes: &mut [u8]) {
        let bytes: &mut [u8; 32] = bytes.first_chunk_mut().expect("a register's worth of bytes");
        // SAFETY: AVX2 is here; the reference covers 32 bytes.
        unsafe { _mm256_storeu_si256(bytes.as_mut_ptr().cast(), self.0) }
    }

    #[inline(always)]
    fn plus(self, other: Self) -> Self {
        // SAFETY: AVX2 is here.
        Avx2(unsafe { _mm256_xor_si256(self.0, other.0) })
    }

    #[inline(always)]
    fn double(self) -> Self {
        // SAFETY: AVX2 is here.
        Avx2(unsafe {
            let overflow = _mm256_cmpgt_epi8(_mm256_setzero_si256(), self.0);
            let remainder = _mm256_and_si256(overflow, _mm256_set1_epi8(field::REMAINDER as i8));
            _mm256_xor_si256(_mm256_add_epi8(self.0, self.0), remainder)
        })
    }

    #[inline(always)]
    fn factor(value: u8) -> Self::Factor {
        let products = HalfProducts::new(value);
        // SAFETY: AVX2 is here; the arrays are 16 bytes each.
        unsafe {
            let low = _mm_loadu_si128(products.low.as_ptr().cast());
            let high = _mm_loadu_si128(products.high.as_ptr().cast());
            (_mm256_broadcastsi128_si256(low), _mm256_broadcastsi128_si256(high))
        }
    }

    #[inline(always)]
    fn times(self, (low, high): Self::Factor) -> Self {
        // SAFETY: AVX2 is here.
        Avx2(unsafe {
            let half = _mm256_set1_epi8(0x0f);
            let of_low = _mm256_shuffle_epi8(low, _mm256_and_si256(self.0, half));
            let of_high = _mm256_shuffle_epi8(high, _mm256_and_si256(_mm256_srli_epi16::<4>(self.0), half));
            _mm256_xor_si256(of_low, of_high)
        })
    }
}

#[derive(Clone, Copy)]
struct Avx512(__m512i);

impl Vector for Avx512 {
    const LEN: usize = 64;
    type Factor = (__m512i, __m512i);

    #[inline(always)]
    fn zero() -> Self {
        // SAFETY: AVX-512 is here, see the head of the file.
        Avx512(unsafe { _mm512_setzero_si512() })
    }

    #[inline(always)]
    fn load(bytes: &[u8]) -> Self {
        let bytes: &[u8; 64] = bytes.first_chunk().expect("a register's worth of bytes");
        // SAFETY: AVX-512 is here; the reference covers 64 bytes.
        Avx512(unsafe { _mm512_loadu_si512(bytes.as_ptr().cast()) })
    }

    #[inline(always)]
    fn store(self, bytes: &mut [u8]) {
        let bytes: &mut [u8; 64] = bytes.first_chunk_mut().expect("a register's worth of bytes");
        // SAFETY: AVX-512 is here; the reference covers 64 bytes.
        unsafe { _mm512_storeu_si512(bytes.as_mut_ptr().cast(), self.0) }
    }

    #[inline(always)]
    fn plus(self, other: Self) -> Self {
        // SAFETY: AVX-512 is here.
        Avx512(unsafe { _mm512_xor_si512(self.0, other.0) })
    }

    #[inline(always)]
    fn double(self) -> Self {
        // SAFETY: AVX-512 F and BW are here.
        Avx512(unsafe {
            let overflow = _mm512_movepi8_mask(self.0);
            let remainder = _mm512_maskz_set1_epi8(overflow, field::REMAINDER as i8);
            _mm512_xor_si512(_mm512_add_epi8(self.0, self.0), remainder)
        })
    }

    #[inline(always)]
    fn factor(value: u8) -> Self::Factor {
        let products = HalfProducts::new(value);
        // SAFETY: AVX-512 is here; the arrays are 16 bytes each.
        unsafe {
            let low = _mm_loadu_si128(products.low.as_ptr().cast());
            let high = _mm_loadu_si128(products.high.as_ptr().cast());
            (_mm512_broadcast_i32x4(low), _mm512_broadcast_i32x4(high))
        }
    }

    #[inline(always)]
    fn times(self, (low, high): Self::Factor) -> Self {
        // SAFETY: AVX-512 F and BW are here.
        Avx512(unsafe {
            let half = _mm512_set1_epi8(0x0f);
            let of_low = _mm512_shuffle_epi8(low, _mm512_and_si512(self.0, half));
            let of_high = _mm512_shuffle_epi8(high, _mm512_and_si512(_mm512_srli_epi16::<4>(self.0), half));
            _mm512_xor_si512(of_low, of_high)
        })
    }
}

/// [`Avx512`] with one difference: multiplication is one instruction: a bit matrix times each byte. (GFNI's own
/// multiplication cannot serve: its polynomial is 0x11b.)
#[derive(Clone, Copy)]
struct Avx512Gfni(Avx512);

impl Vector for Avx512Gfni {
    const LEN: usize = 64;
    type Factor = __m512i;

    #[inline(always)]
    fn zero() -> Self {
        Avx512Gfni(Avx512::zero())
    }

    #[inline(always)]
    fn load(bytes: &[u8]) -> Self {
        Avx512Gfni(Avx512::load(bytes))
    }

    #[inline(always)]
    fn store(self, bytes: &mut [u8]) {
        self.0.store(bytes);
    }

    #[inline(always)]
    fn plus(self, other: Self) -> Self {
        Avx512Gfni(self.0.plus(other.0))
    }

    #[inline(always)]
    fn double(self) -> Self {
        const DOUBLE: u64 = bit_matrix(2);
        // SAFETY: AVX-512 is here.
        self.times(unsafe { _mm512_set1_epi64(DOUBLE as i64) })
    }

    #[inline(always)]
    fn factor(value: u8) -> Self::Factor {
        // SAFETY: AVX-512 is here.
        unsafe { _mm512_set1_epi64(bit_matrix(value) as i64) }
    }

    #[inline(always)]
    fn times(self, factor: Self::Factor) -> Self {
        // SAFETY: AVX-512 and GFNI are here.
        Avx512Gfni(Avx512(unsafe { _mm512_gf2p8affine_epi64_epi8::<0>(self.0.0, factor) }))
    }
}

/// Multiplication by `factor` as the bit matrix of `gf2p8affineqb`: byte 7 - i holds, at bit j, whether bit j of the
/// operand contributes to bit i of the product.
const fn bit_matrix(factor: u8) -> u64 {
    let (mut matrix, mut j, mut column) = (0, 0, factor);
    while j < 8 {
        let mut i = 0;
        while i < 8 {
            matrix |= ((column as u64 >> i) & 1) << (8 * (7 - i) + j);
            i += 1;
        }
        column = field::double(column);
        j += 1;
    }
    matrix
}
