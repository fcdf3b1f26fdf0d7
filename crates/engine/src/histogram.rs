//! How long things took: a small log-linear histogram that forgets. Four buckets to every power of two, so a quantile
//! is at most a fifth too high.

use crate::units::Nanos;

/// Values below this many nanoseconds share the first bucket.
const FIRST: u64 = 1 << 12;
const PER_DOUBLING: usize = 4;
const BUCKETS: usize = 26 * PER_DOUBLING;
/// Samples after which the older half is forgotten.
const GENERATION: u32 = 512;

/// The last 512 to 1024 samples.
#[derive(Clone, Debug)]
pub struct Histogram {
    now: [u16; BUCKETS],
    before: [u16; BUCKETS],
    count: u32,
    slowest: Nanos,
}

impl Default for Histogram {
    fn default() -> Histogram {
        Histogram { now: [0; BUCKETS], before: [0; BUCKETS], count: 0, slowest: Nanos(0) }
    }
}

impl Histogram {
    /// Takes note of `span`. `true`: a generation is full, a good moment to look at the quantiles.
    pub fn add(&mut self, span: Nanos) -> bool {
        self.now[bucket(span)] += 1;
        self.slowest = self.slowest.max(span);
        self.count += 1;
        if self.count < GENERATION {
            return false;
        }
        self.before = core::mem::replace(&mut self.now, [0; BUCKETS]);
        self.count = 0;
        true
    }

    /// How many samples there are.
    pub fn len(&self) -> u32 {
        self.now.iter().chain(&self.before).map(|count| *count as u32).sum()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The upper end of the bucket below which `per_mille` thousandths of the samples lie; 0 without samples.
    pub fn quantile(&self, per_mille: u32) -> Nanos {
        let wanted = (self.len() as u64 * per_mille as u64).div_ceil(1000);
        let mut seen = 0;
        for at in 0..BUCKETS {
            seen += self.now[at] as u64 + self.before[at] as u64;
            if seen >= wanted && seen > 0 {
                return upper_end(at);
            }
        }
        Nanos(0)
    }

    /// The slowest of all samples, the forgotten ones included.
    pub fn slowest(&self) -> Nanos {
        self.slowest
    }
}

fn bucket(span: Nanos) -> usize {
    if span.0 < FIRST {
        return 0;
    }
    let power = span.0.ilog2();
    let quarter = (span.0 >> (power - 2) & 3) as usize;
    ((power - FIRST.ilog2()) as usize * PER_DOUBLING + quarter + 1).min(BUCKETS - 1)
}

fn upper_end(bucket: usize) -> Nanos {
    let Some(at) = bucket.checked_sub(1) else { return Nanos(FIRST) };
    let (power, quarter) = (at / PER_DOUBLING, at as u64 % PER_DOUBLING as u64);
    Nanos((FIRST << power) + ((quarter + 1) * (FIRST << power)).div_ceil(PER_DOUBLING as u64))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_value_lies_below_the_end_of_its_bucket_and_not_far(span in FIRST..1u64 << 37) {
            let end = upper_end(bucket(Nanos(span))).0;
            prop_assert!(span < end && end <= span + span / 4 + 1, "{} ends at {}", span, end);
        }
    }

    #[test]
    fn quantiles_follow_the_last_thousand_samples() {
        let mut histogram = Histogram::default();
        assert_eq!(histogram.quantile(500), Nanos(0));
        (0..2000).for_each(|_| _ = histogram.add(Nanos::millis(1)));
        (0..10).for_each(|_| _ = histogram.add(Nanos::millis(100)));
        assert!((Nanos::millis(1)..Nanos(1_300_000)).contains(&histogram.quantile(900)));
        assert!(histogram.quantile(999) > Nanos::millis(90));
        (0..2000).for_each(|_| _ = histogram.add(Nanos::millis(8)));
        assert!(histogram.quantile(10) >= Nanos::millis(8), "the old ones are forgotten");
        assert_eq!(histogram.slowest(), Nanos::millis(100));
    }
}
