//! What was published about Storage Spaces, repeated: what the source says, what a model of Storage Spaces gives, and
//! what weft gives.
//!
//! The claims are numbered as in the collection (STORAGE_SPACES.md section 3), Q1 to Q68. Those about room and
//! alignment are decided by rules ([`arithmetic`]); the others are experiments: one workload on the model
//! ([`crate::spaces`]) and on weft, both on simulated disks in virtual time ([`lab`]). The same program gives the same
//! report, byte for byte, on every machine.

mod ageing;
mod arithmetic;
pub mod lab;
mod report;
mod small;
mod streams;

pub use lab::Lab;
pub use report::{Report, report, row};

use serde::Serialize;

/// A claim that can be repeated.
pub struct Claim {
    /// Its number, `Q2`.
    pub id: &'static str,
    /// What it is about.
    pub about: &'static str,
    /// What the source says.
    pub says: &'static str,
    find: fn(&Lab) -> Found,
}

/// What was found about a claim.
#[derive(Clone, PartialEq, Serialize, Debug)]
pub struct Finding {
    /// The claim's number.
    pub id: &'static str,
    /// What it is about.
    pub about: &'static str,
    /// What the source says.
    pub says: &'static str,
    /// What the model of Storage Spaces gives.
    pub spaces: String,
    /// What weft gives.
    pub weft: String,
    /// How near the model comes to what the source says.
    pub verdict: Verdict,
    /// What was assumed, and what is not known.
    pub note: &'static str,
    /// Bytes per second over time.
    #[serde(skip)]
    pub courses: Vec<Course>,
}

/// How near the model comes.
#[derive(Clone, Copy, PartialEq, Serialize, Debug)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// Decided by arithmetic: whether it is so.
    Exact(bool),
    /// The largest factor between a figure of the source and one of the model.
    Factor(f64),
    /// The source gives an order or a behaviour, no figure: whether the model shows it.
    Order(bool),
}

/// A factor up to which the model counts as near.
pub const NEAR: f64 = 1.5;

impl Verdict {
    /// Whether the model gives what the source says.
    pub fn holds(self) -> bool {
        match self {
            Verdict::Exact(holds) | Verdict::Order(holds) => holds,
            Verdict::Factor(factor) => factor <= NEAR,
        }
    }
}

impl std::fmt::Display for Verdict {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Verdict::Exact(true) => f.write_str("exact"),
            Verdict::Order(true) => f.write_str("yes, in kind"),
            Verdict::Exact(false) | Verdict::Order(false) => f.write_str("**no**"),
            Verdict::Factor(factor) if *factor < 1.005 => f.write_str("yes"),
            Verdict::Factor(factor) if *factor <= NEAR => write!(f, "yes, x{factor:.2}"),
            Verdict::Factor(factor) if *factor < 100.0 => write!(f, "**no**, x{factor:.1}"),
            Verdict::Factor(_) => f.write_str("**no**, x100 and more"),
        }
    }
}

/// Bytes per second in equal spans of time.
#[derive(Clone, PartialEq, Debug)]
pub struct Course {
    /// Whose.
    pub of: String,
    /// In each span.
    pub rates: Vec<f64>,
    /// All of it, in seconds.
    pub seconds: f64,
}

impl Course {
    /// How high a picture of it has to be: its highest rate, and so many times its mean at most, as what disks swallow
    /// at first must not flatten all the rest.
    pub fn top(&self, times: f64) -> f64 {
        let mean = self.rates.iter().sum::<f64>() / self.rates.len() as f64;
        self.rates.iter().fold(1.0, |a: f64, b| a.max(*b)).min(times * mean).max(1.0)
    }
}

struct Found {
    spaces: String,
    weft: String,
    verdict: Verdict,
    note: &'static str,
    courses: Vec<Course>,
}

impl Found {
    fn new(spaces: String, weft: String, verdict: Verdict, note: &'static str) -> Found {
        Found { spaces, weft, verdict, note, courses: Vec::new() }
    }

    fn with(mut self, courses: impl IntoIterator<Item = Course>) -> Found {
        self.courses.extend(courses);
        self
    }
}

/// The factor by which the worst of these is outside of what the source says: lowest, highest, found.
fn factor(figures: &[(f64, f64, f64)]) -> Verdict {
    let one = |(low, high, found): &(f64, f64, f64)| (low / found).max(found / high).max(1.0);
    Verdict::Factor(figures.iter().map(one).fold(1.0, f64::max))
}

impl Claim {
    /// Repeats it.
    pub fn run(&self, lab: &Lab) -> Finding {
        let Found { spaces, weft, verdict, note, courses } = (self.find)(lab);
        let Claim { id, about, says, .. } = *self;
        Finding { id, about, says, spaces, weft, verdict, note, courses }
    }
}

/// Every claim that can be repeated, by number.
pub fn all() -> Vec<&'static Claim> {
    let parts = [arithmetic::CLAIMS, streams::CLAIMS, ageing::CLAIMS, small::CLAIMS];
    let mut all: Vec<&Claim> = parts.into_iter().flatten().collect();
    all.sort_by_key(|claim| number(claim.id));
    all
}

/// The claim of this number, however its letter is written.
pub fn claim(id: &str) -> Option<&'static Claim> {
    all().into_iter().find(|claim| claim.id.eq_ignore_ascii_case(id))
}

/// Claims that cannot be repeated here, and why.
pub const NOT_REPEATED: &[(&str, &str)] = &[
    ("Q49", "a cluster of three nodes: the models have no processors and no network, which are what decides there"),
    ("Q55", "what host adapters and processors bear; neither is modelled"),
    ("Q65", "ReFS with integrity: how it places and records what it writes is not documented well enough for a model"),
    ("Q66", "ReFS with integrity, and the chart with the figures is lost"),
    ("Q68", "the figures were images and are lost"),
];

/// The number in `Q12`.
pub fn number(id: &str) -> u32 {
    id[1..].parse().expect("claims are numbered")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn claims_are_found_by_number_however_it_is_written() {
        assert_eq!(claim("q51").unwrap().id, "Q51");
        assert!(claim("Q49").is_none() && claim("51").is_none());
    }

    #[test]
    fn every_claim_of_the_collection_is_repeated_or_has_a_reason() {
        let mut numbers: Vec<u32> = all().iter().map(|claim| number(claim.id)).collect();
        numbers.extend(NOT_REPEATED.iter().map(|(id, _)| number(id)));
        numbers.sort_unstable();
        assert_eq!(numbers, (1..=68).collect::<Vec<u32>>());
    }

    #[test]
    fn a_factor_is_how_far_outside_the_range_the_worst_figure_is() {
        assert_eq!(factor(&[(20.0, 40.0, 30.0), (100.0, 100.0, 80.0)]), Verdict::Factor(1.25));
        assert_eq!(factor(&[(20.0, 40.0, 80.0)]).to_string(), "**no**, x2.0");
    }
}
