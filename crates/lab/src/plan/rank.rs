//! Which layout is best for what. A score is a weighted sum of logarithms: twice the room counts the same wherever one
//! begins, and a layout is best if no other gains more, in per cent, than it loses.

use super::figures::beside;
use super::own::Shares;
use super::{LayoutPlan, Question, Workload};
use crate::disks::Raw;

/// What speed counts for somebody's own jobs, all of it together: as much as for virtual machines.
const OWN_SPEED: f64 = 5.0;

/// MB/s of a stream from which on several groups of disks count for nothing: what a network of ten gigabits carries.
const ENOUGH: f64 = 1250.0;

/// How much each figure counts.
pub(super) struct Weights {
    usable: f64,
    write: f64,
    read: f64,
    random_read: f64,
    random_write: f64,
    /// For each tenfold of the probability of a loss.
    loss: f64,
}

impl Weights {
    /// What counts for a question about disks whose slowest class does `raw`.
    pub(super) fn of(question: &Question, raw: Raw) -> Weights {
        let (usable, write, read, random_read, random_write, loss) = match question.workload {
            Workload::Media => (4.0, 1.0, 1.0, 0.0, 0.0, 0.15),
            Workload::Backup => (4.0, 2.0, 0.5, 0.0, 0.0, 0.2),
            Workload::Vm => (1.0, 0.5, 0.5, 2.0, 2.0, 0.2),
            Workload::Database => (0.5, 0.2, 0.3, 2.0, 3.0, 0.25),
            Workload::Mixed => (2.0, 1.0, 1.0, 0.7, 0.7, 0.2),
            Workload::Own => {
                let Shares { write, read, random_write, random_read } = Shares::of(&question.jobs, raw);
                let [write, read, random_read, random_write] =
                    [write, read, random_read, random_write].map(|share| OWN_SPEED * share);
                (1.0, write, read, random_read, random_write, 0.2)
            }
        };
        Weights { usable, write, read, random_read, random_write, loss }
    }
}

/// The best first.
pub(super) fn sort(layouts: &mut [LayoutPlan], weights: &Weights) {
    let counts = |rate: f64, plan: &LayoutPlan| rate.min((rate / beside(plan.groups)).max(ENOUGH)).max(1.0);
    let score = |plan: &LayoutPlan| {
        weights.usable * (plan.usable as f64).ln()
            + weights.write * counts(plan.write_mb_s, plan).ln()
            + weights.read * counts(plan.read_mb_s, plan).ln()
            + weights.random_read * plan.random_reads.max(1.0).ln()
            + weights.random_write * plan.random_writes.max(1.0).ln()
            - weights.loss * plan.loss_per_year.max(1e-12).log10()
    };
    layouts.sort_by(|a, b| score(b).total_cmp(&score(a)));
}

/// Drops layouts that are worse in something and better in nothing than another one that survives as many failures.
pub(super) fn drop_dominated(layouts: &mut Vec<LayoutPlan>) {
    let figures = |plan: &LayoutPlan| {
        let after = plan.usable_after_failure.unwrap_or(0) as f64;
        [
            plan.failures as f64,
            plan.usable as f64,
            after,
            plan.write_mb_s,
            plan.read_mb_s,
            plan.random_reads,
            plan.random_writes,
            -plan.loss_per_year,
        ]
    };
    let all: Vec<_> = layouts.iter().map(figures).collect();
    let worse =
        |mine: &[f64; 8], other: &[f64; 8]| mine != other && mine.iter().zip(other).all(|(mine, other)| mine <= other);
    let mut at = 0;
    layouts.retain(|_| {
        at += 1;
        !all.iter().any(|other| worse(&all[at - 1], other))
    });
}
