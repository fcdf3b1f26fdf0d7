//! Which power cuts are tried at a crash point, and how a case is written down.
//!
//! With `n` unflushed writes on all disks together:
//! 1. `n` up to the limit: all 2^n subsets of kept writes. Beyond: every subset in which at most two are kept, or at
//!    most two dropped (at most one, once `n` is above [`PAIRS_MAX`]), every prefix in the order of submission, and for
//!    each disk all or nothing.
//! 2. All writes of one disk, or of all, torn at once: only first sectors are written, or only last ones.
//! 3. Each single write torn, everything else kept or everything else dropped: its first and last sector, its first and
//!    last half.

use crate::disk::{Fate, Tear};
use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

/// Above so many writes, pairs are not tried any more.
pub const PAIRS_MAX: usize = 16;

/// One power cut: when, what it took, which disks it took with it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Cut {
    /// The disk operation that was the last; [`u64::MAX`]: after all of them.
    pub at: u64,
    /// For every disk, the fates of its unflushed writes.
    pub fates: Vec<Vec<Fate>>,
    /// The disks that are not there afterwards.
    pub lost: Vec<usize>,
}

/// One case: a scene, a power cut, perhaps another one during the opening that follows, perhaps more writes after it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Case {
    /// Shape and script.
    pub scene: String,
    /// One or two power cuts.
    pub cuts: Vec<Cut>,
    /// Whether the pool was used, crashed and opened once more after the last.
    pub goes_on: bool,
}

/// Every combination of fates to try, for disks with unflushed writes of so many sectors.
pub fn fates(writes: &[Vec<u64>], full_max: usize) -> Vec<Vec<Vec<Fate>>> {
    let n: usize = writes.iter().map(Vec::len).sum();
    let mut flat: Vec<Vec<Fate>> = Vec::new();
    if n <= full_max {
        flat.extend((0..1u64 << n).map(|mask| (0..n).map(|at| kept(mask >> at & 1 == 1)).collect()));
    } else {
        flat.extend(few(n));
        flat.extend((0..=n).map(|end| (0..n).map(|at| kept(at < end)).collect()));
        flat.extend((0..1u64 << writes.len()).map(|mask| {
            let each = writes.iter().enumerate();
            each.flat_map(|(disk, writes)| vec![kept(mask >> disk & 1 == 1); writes.len()]).collect()
        }));
    }
    for tear in [Tear::Head(1), Tear::Tail(1)] {
        let torn = |disks: &dyn Fn(usize) -> bool| {
            let each = writes.iter().enumerate();
            let fate = |disk| if disks(disk) { Fate::Torn(tear) } else { Fate::Kept };
            each.flat_map(|(disk, writes)| vec![fate(disk); writes.len()]).collect::<Vec<_>>()
        };
        flat.push(torn(&|_| true));
        flat.extend((0..writes.len()).map(|only| torn(&|disk| disk == only)));
    }
    let lengths = writes.iter().flatten().enumerate();
    for (at, sectors) in lengths {
        let tears = [Tear::Head(1), Tear::Head(sectors / 2), Tear::Tail(1), Tear::Tail(sectors / 2)];
        for (tear, others) in tears.into_iter().flat_map(|tear| [(tear, Fate::Kept), (tear, Fate::Dropped)]) {
            let mut torn = vec![others; n];
            torn[at] = Fate::Torn(tear);
            flat.push(torn);
        }
    }
    let mut seen = BTreeSet::new();
    let split = flat.into_iter().map(|flat| {
        let mut rest = flat.as_slice();
        let take = |count: &Vec<u64>| {
            let (now, later) = rest.split_at(count.len());
            rest = later;
            now.to_vec()
        };
        writes.iter().map(take).collect::<Vec<_>>()
    });
    split.filter(|fates| seen.insert(write_fates(fates))).collect()
}

/// All sets in which few are kept, or few are dropped.
fn few(n: usize) -> Vec<Vec<Fate>> {
    let mut all = Vec::new();
    for base in [false, true] {
        all.push(vec![kept(base); n]);
        for first in 0..n {
            let mut one = vec![kept(base); n];
            one[first] = kept(!base);
            for second in (first + 1..n).filter(|_| n <= PAIRS_MAX) {
                let mut two = one.clone();
                two[second] = kept(!base);
                all.push(two);
            }
            all.push(one);
        }
    }
    all
}

/// Every set of up to `count` of `disks` disks.
pub fn losses(disks: usize, count: usize) -> Vec<Vec<usize>> {
    let sets = (0u32..1 << disks).filter(|set| set.count_ones() as usize <= count);
    sets.map(|set| (0..disks).filter(|disk| set >> disk & 1 == 1).collect()).collect()
}

fn kept(kept: bool) -> Fate {
    if kept { Fate::Kept } else { Fate::Dropped }
}

/// `K` kept, `-` dropped, `h3`/`t3` the first/last three sectors; disks apart by commas.
pub fn write_fates(fates: &[Vec<Fate>]) -> String {
    let fate = |fate: &Fate| match fate {
        Fate::Kept => "K".into(),
        Fate::Dropped => "-".into(),
        Fate::Torn(Tear::Head(count)) => format!("h{count}"),
        Fate::Torn(Tear::Tail(count)) => format!("t{count}"),
        Fate::Torn(Tear::Each(seed)) => format!("e{seed}"),
        Fate::Ruined(seed) => format!("r{seed}"),
    };
    fates.iter().map(|disk| disk.iter().map(fate).collect::<String>()).collect::<Vec<_>>().join(",")
}

fn read_fates(text: &str) -> Option<Vec<Vec<Fate>>> {
    text.split(',').map(read_disk).collect()
}

fn read_disk(text: &str) -> Option<Vec<Fate>> {
    let mut fates = Vec::new();
    let mut rest = text.chars().peekable();
    while let Some(kind) = rest.next() {
        let mut number = String::new();
        while let Some(digit) = rest.next_if(char::is_ascii_digit) {
            number.push(digit);
        }
        fates.push(match kind {
            'K' => Fate::Kept,
            '-' => Fate::Dropped,
            'h' => Fate::Torn(Tear::Head(number.parse().ok()?)),
            't' => Fate::Torn(Tear::Tail(number.parse().ok()?)),
            'e' => Fate::Torn(Tear::Each(number.parse().ok()?)),
            'r' => Fate::Ruined(number.parse().ok()?),
            _ => return None,
        });
    }
    Some(fates)
}

impl fmt::Display for Cut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lost: Vec<String> = self.lost.iter().map(usize::to_string).collect();
        let at = if self.at == u64::MAX { "end".into() } else { self.at.to_string() };
        write!(f, "{at}:{}:{}", write_fates(&self.fates), lost.join("+"))
    }
}

impl fmt::Display for Case {
    /// One word without spaces: `mirror2/rewrite@57:K-,-h1:1@12:,K:1@go-on`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.scene)?;
        self.cuts.iter().try_for_each(|cut| write!(f, "@{cut}"))?;
        if self.goes_on { f.write_str("@go-on") } else { Ok(()) }
    }
}

impl FromStr for Case {
    type Err = String;

    fn from_str(text: &str) -> Result<Case, String> {
        let mut parts = text.split('@');
        let mut case = Case { scene: parts.next().unwrap_or_default().into(), cuts: Vec::new(), goes_on: false };
        for part in parts {
            if part == "go-on" {
                case.goes_on = true;
                continue;
            }
            case.cuts.push(read_cut(part).ok_or_else(|| format!("{part:?} is no power cut: '57:K-,-h1:1' is one"))?);
        }
        match case.cuts.len() {
            1 | 2 => Ok(case),
            count => Err(format!("a case has one or two power cuts, {text:?} has {count}")),
        }
    }
}

fn read_cut(text: &str) -> Option<Cut> {
    let mut fields = text.split(':');
    let at = match fields.next()? {
        "end" => u64::MAX,
        number => number.parse().ok()?,
    };
    let fates = read_fates(fields.next()?)?;
    let lost =
        fields.next()?.split('+').filter(|no| !no.is_empty()).map(|no| no.parse().ok()).collect::<Option<_>>()?;
    fields.next().is_none().then_some(Cut { at, fates, lost })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_case_reads_back_from_its_line() {
        let case = Case {
            scene: "mirror2/rewrite".into(),
            cuts: vec![
                Cut {
                    at: 57,
                    fates: vec![vec![Fate::Kept, Fate::Dropped], vec![Fate::Torn(Tear::Head(1))]],
                    lost: vec![],
                },
                Cut { at: u64::MAX, fates: vec![vec![], vec![Fate::Torn(Tear::Tail(4))]], lost: vec![0, 1] },
            ],
            goes_on: true,
        };
        assert_eq!(case.to_string(), "mirror2/rewrite@57:K-,h1:@end:,t4:0+1@go-on");
        assert_eq!(case.to_string().parse(), Ok(case));
        assert!("mirror2/rewrite".parse::<Case>().is_err());
        assert!("mirror2/rewrite@5:Kx:".parse::<Case>().is_err());
    }

    #[test]
    fn few_writes_get_every_subset_and_every_write_is_torn() {
        let all = fates(&[vec![8, 8], vec![8]], 3);
        let whole = all.iter().filter(|fates| !write_fates(fates).contains(['h', 't']));
        assert_eq!(whole.count(), 8);
        // One disk has one write only: tearing all of it is tearing that write.
        assert_eq!(all.len(), 8 + 2 * 2 + 3 * 4 * 2);
        let many = fates(&[vec![8; 10], vec![8; 10]], 8);
        assert!(many.len() < 400 && many.len() > 200, "{}", many.len());
    }

    #[test]
    fn losses_are_the_sets_up_to_a_size() {
        assert_eq!(losses(3, 1), [vec![], vec![0], vec![1], vec![2]]);
        assert_eq!(losses(3, 2).len(), 7);
        assert_eq!(losses(1, 0), [Vec::<usize>::new()]);
    }
}
