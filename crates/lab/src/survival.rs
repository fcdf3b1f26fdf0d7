//! How likely it is that a pool loses data in a year.
//!
//! The formula: disks fail independently, each at the rate λ; one rebuild at a time brings a disk's data back at the
//! rate μ = 1 / (time to rebuild). The pool has lost data when `failures + 1` disks are gone at once: segments lie on
//! ever other disks, so that in a pool that is well filled every such set of disks holds all slots of some stripe. This
//! is the birth-and-death chain that published reliability models of RAID use (Patterson, Gibson and Katz 1988 give its
//! first approximation); its mean time to absorption is solved exactly here. Not in it: disks of one batch that fail
//! together, fires, people. What one bad block would cost is not in it either: checksums find it and the redundancy
//! that is left decides.

/// Hours in a year.
const YEAR: f64 = 8766.0;

/// What the probability follows from.
#[derive(Clone, Copy, Debug)]
pub struct Risk {
    /// Disks of the pool.
    pub disks: usize,
    /// Failures that the layout survives.
    pub failures: usize,
    /// Disks of a hundred that fail in a year.
    pub percent: f64,
    /// Hours from a failure until its data is whole again.
    pub repair_hours: f64,
}

impl Risk {
    /// The probability of a loss within a year, 0 to 1.
    pub fn per_year(self) -> f64 {
        -f64::exp_m1(-YEAR / self.mean_hours())
    }

    /// Mean hours until a loss, from a pool that is whole.
    pub fn mean_hours(self) -> f64 {
        let fails = -f64::ln_1p(-self.percent / 100.0) / YEAR;
        let repairs = 1.0 / self.repair_hours;
        // `step` is the mean time to go from `gone` disks to `gone + 1`: one failure's time, plus the way back as often
        // as a repair wins.
        let (mut total, mut step) = (0.0, 0.0);
        for gone in 0..=self.failures.min(self.disks - 1) {
            let rate = (self.disks - gone) as f64 * fails;
            step = if gone == 0 { 1.0 / rate } else { (1.0 + repairs * step) / rate };
            total += step;
        }
        total
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weft_sim::rng::Rng;

    /// Lives of a pool, event by event: the mean hours until a loss.
    fn simulated(risk: Risk, lives: u32) -> f64 {
        let (mut rng, mut hours) = (Rng::new(7), 0.0);
        let mut exponential = |rate: f64| -f64::ln((rng.next_u64() >> 11) as f64 / (1u64 << 53) as f64 + 1e-18) / rate;
        let fails = -f64::ln_1p(-risk.percent / 100.0) / YEAR;
        for _ in 0..lives {
            let mut gone = 0;
            while gone <= risk.failures {
                let failure = exponential((risk.disks - gone) as f64 * fails);
                let repair = if gone == 0 { f64::INFINITY } else { exponential(1.0 / risk.repair_hours) };
                hours += failure.min(repair);
                gone = if failure < repair { gone + 1 } else { gone - 1 };
            }
        }
        hours / f64::from(lives)
    }

    #[test]
    fn the_formula_gives_what_simulated_lives_give() {
        for (disks, failures, percent, repair_hours) in
            [(2, 1, 30.0, 200.0), (8, 1, 10.0, 100.0), (6, 2, 40.0, 300.0), (5, 0, 2.0, 1.0)]
        {
            let risk = Risk { disks, failures, percent, repair_hours };
            let (formula, simulated) = (risk.mean_hours(), simulated(risk, 4000));
            assert!((formula / simulated - 1.0).abs() < 0.05, "{risk:?}: {formula} and {simulated}");
        }
    }

    #[test]
    fn more_redundancy_and_quicker_rebuilds_are_safer() {
        let risk = Risk { disks: 8, failures: 1, percent: 1.5, repair_hours: 24.0 };
        assert!(Risk { failures: 2, ..risk }.per_year() < risk.per_year() / 100.0);
        assert!(Risk { repair_hours: 12.0, ..risk }.per_year() < risk.per_year());
        assert!(Risk { disks: 4, ..risk }.per_year() < risk.per_year());
    }
}
