//! Randomness that repeats: everything random in the simulator is drawn from one seed through streams of this kind.
//!
//! Invariants
//! 1. The same seed gives the same numbers on every machine.
//! 2. A fork depends on the seed of its parent and on its label only, never on how much was drawn from the parent, so
//!    that one more draw in one place does not change what happens in all others.

use std::ops::Range;

/// A stream of pseudo-random numbers (xoshiro256**, seeded by splitmix64).
#[derive(Clone, Debug)]
pub struct Rng {
    seed: u64,
    state: [u64; 4],
}

impl Rng {
    /// The stream of `seed`.
    pub fn new(seed: u64) -> Rng {
        let mut at = seed;
        let state = std::array::from_fn(|_| {
            at = at.wrapping_add(0x9e37_79b9_7f4a_7c15);
            mix(at)
        });
        Rng { seed, state }
    }

    /// An independent stream named `label`: always the same one for the same parent seed and label.
    pub fn fork(&self, label: &str) -> Rng {
        let named = label.bytes().fold(self.seed ^ 0xcbf2_9ce4_8422_2325, |hash, byte| fold(hash, byte.into()));
        Rng::new(named)
    }

    /// The next 64 bits.
    pub fn next_u64(&mut self) -> u64 {
        let state = &mut self.state;
        let drawn = state[1].wrapping_mul(5).rotate_left(7).wrapping_mul(9);
        let shifted = state[1] << 17;
        state[2] ^= state[0];
        state[3] ^= state[1];
        state[1] ^= state[2];
        state[0] ^= state[3];
        state[2] ^= shifted;
        state[3] = state[3].rotate_left(45);
        drawn
    }

    /// A number below `n`, all equally likely (to within 2^-64); `n` must not be 0.
    pub fn below(&mut self, n: u64) -> u64 {
        assert!(n > 0, "nothing is below zero");
        ((u128::from(self.next_u64()) * u128::from(n)) >> 64) as u64
    }

    /// A number of `range`, which must not be empty.
    pub fn range(&mut self, range: Range<u64>) -> u64 {
        range.start + self.below(range.end - range.start)
    }

    /// True with probability `p` (0: never, 1: always). Draws nothing at 0 and at 1, so that a fault that is switched
    /// off leaves the stream alone.
    pub fn chance(&mut self, p: f64) -> bool {
        if p <= 0.0 || p >= 1.0 {
            return p >= 1.0;
        }
        ((self.next_u64() >> 11) as f64) * (1.0 / (1u64 << 53) as f64) < p
    }

    /// One of `choices`, which must not be empty.
    pub fn pick<'a, T>(&mut self, choices: &'a [T]) -> &'a T {
        &choices[self.below(choices.len() as u64) as usize]
    }
}

/// Takes `value` into a running hash.
pub(crate) fn fold(hash: u64, value: u64) -> u64 {
    mix(hash.rotate_left(5) ^ value)
}

/// A bijection of 64 bits in which every bit of the input moves every bit of the output.
pub(crate) fn mix(value: u64) -> u64 {
    let value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fork_does_not_depend_on_what_was_drawn_from_its_parent() {
        let mut parent = Rng::new(7);
        let early = parent.fork("disk 1").next_u64();
        parent.next_u64();
        assert_eq!(early, parent.fork("disk 1").next_u64());
        assert_ne!(early, parent.fork("disk 2").next_u64());
        assert_ne!(early, Rng::new(8).fork("disk 1").next_u64());
    }

    #[test]
    fn numbers_below_n_are_spread_evenly() {
        let mut rng = Rng::new(1);
        let mut counts = [0u32; 10];
        for _ in 0..100_000 {
            counts[rng.below(10) as usize] += 1;
        }
        assert!(counts.iter().all(|count| (9_500..10_500).contains(count)), "{counts:?}");
        let hits = (0..100_000).filter(|_| rng.chance(0.25)).count();
        assert!((24_500..25_500).contains(&hits), "{hits}");
    }

    #[test]
    fn certain_and_impossible_chances_draw_nothing() {
        let mut rng = Rng::new(3);
        let mut twin = rng.clone();
        assert!(rng.chance(1.0) && !rng.chance(0.0));
        assert_eq!(rng.next_u64(), twin.next_u64());
    }
}
