//! Which kernel runs: the best one this processor has.
//!
//! Invariant: a [`Kernel`] exists only for instructions this processor has. [`Kernel::available`] is the only maker.

use super::field;
use super::fold::{Output, Sources, Vector, fold};
#[cfg(target_arch = "x86_64")]
use super::x86;

/// A kernel this processor can run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Kernel(Kind);

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    /// AVX-512 with the field instructions: Ice Lake, Zen 4 and later.
    #[cfg(target_arch = "x86_64")]
    Avx512Gfni,
    /// AVX-512 without them: Skylake-X.
    #[cfg(target_arch = "x86_64")]
    Avx512,
    #[cfg(target_arch = "x86_64")]
    Avx2,
    /// Plain integers. The compiler turns them into whatever vectors every processor of the target has (SSE2, NEON).
    Portable,
}

impl Kernel {
    /// The fastest kernel here. Cheap: the answer of `cpuid` is cached.
    pub fn best() -> Kernel {
        Kernel::available().next().expect("the portable kernel is always available")
    }

    /// Every kernel this processor can run, fastest first.
    pub fn available() -> impl Iterator<Item = Kernel> {
        #[cfg(target_arch = "x86_64")]
        let vectors = [
            (Kind::Avx512Gfni, x86::has_avx512_gfni as fn() -> bool),
            (Kind::Avx512, x86::has_avx512),
            (Kind::Avx2, x86::has_avx2),
        ]
        .into_iter()
        .filter_map(|(kind, is_here)| is_here().then_some(kind));
        #[cfg(not(target_arch = "x86_64"))]
        let vectors = core::iter::empty();
        vectors.chain([Kind::Portable]).map(Kernel)
    }

    pub fn name(self) -> &'static str {
        match self.0 {
            #[cfg(target_arch = "x86_64")]
            Kind::Avx512Gfni | Kind::Avx512 => "avx512",
            #[cfg(target_arch = "x86_64")]
            Kind::Avx2 => "avx2",
            Kind::Portable => "portable",
        }
    }

    /// Writes every output.
    pub fn fold(self, sources: &Sources<'_>, outputs: &mut [Output<'_>]) {
        match self.0 {
            // SAFETY: a `Kernel` of this kind exists only where the processor has its instructions.
            #[cfg(target_arch = "x86_64")]
            Kind::Avx512Gfni => unsafe { x86::fold_avx512_gfni(sources, outputs) },
            // SAFETY: as above.
            #[cfg(target_arch = "x86_64")]
            Kind::Avx512 => unsafe { x86::fold_avx512(sources, outputs) },
            // SAFETY: as above.
            #[cfg(target_arch = "x86_64")]
            Kind::Avx2 => unsafe { x86::fold_avx2(sources, outputs) },
            Kind::Portable => fold::<Words>(sources, outputs),
        }
    }
}

const WORDS: usize = 2;

/// Sixteen bytes in two integers.
#[derive(Clone, Copy)]
struct Words([u64; WORDS]);

impl Vector for Words {
    const LEN: usize = WORDS * 8;
    /// For each bit of the factor, all ones or all zeros.
    type Factor = [u64; 8];

    #[inline(always)]
    fn zero() -> Words {
        Words([0; WORDS])
    }

    #[inline(always)]
    fn load(bytes: &[u8]) -> Words {
        let (words, _) = bytes.as_chunks::<8>();
        Words(core::array::from_fn(|i| u64::from_ne_bytes(words[i])))
    }

    #[inline(always)]
    fn store(self, bytes: &mut [u8]) {
        let (words, _) = bytes.as_chunks_mut::<8>();
        for (word, value) in words.iter_mut().zip(self.0) {
            *word = value.to_ne_bytes();
        }
    }

    #[inline(always)]
    fn plus(self, other: Words) -> Words {
        Words(core::array::from_fn(|i| self.0[i] ^ other.0[i]))
    }

    #[inline(always)]
    fn double(self) -> Words {
        const TOP_BITS: u64 = 0x8080_8080_8080_8080;
        Words(self.0.map(|word| {
            let overflow = (word & TOP_BITS) >> 7;
            // The overflowing bytes are 1, the others 0: the product stays within each byte.
            ((word & !TOP_BITS) << 1) ^ (overflow * field::REMAINDER as u64)
        }))
    }

    #[inline(always)]
    fn factor(value: u8) -> [u64; 8] {
        core::array::from_fn(|bit| if value >> bit & 1 != 0 { !0 } else { 0 })
    }

    #[inline(always)]
    fn times(self, factor: [u64; 8]) -> Words {
        let mut product = Words::zero();
        for mask in factor.iter().rev() {
            product = product.double().plus(Words(self.0.map(|word| word & mask)));
        }
        product
    }
}
