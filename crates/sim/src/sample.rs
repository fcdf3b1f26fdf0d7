//! Samples: what `make test` tries of many cases that are alike, as all of them take too long on a small machine. Each
//! commit tries one of three parts; `make test ALL=1` tries all.

use std::sync::LazyLock;

/// One case in this many is tried.
const ONE_IN: usize = 3;

static PART: LazyLock<Option<usize>> = LazyLock::new(|| part_named("WEFT_SAMPLE"));

/// Those of `cases` that are tried, as `WEFT_SAMPLE` says: at least one where there are [`ONE_IN`].
pub fn sample<C: IntoIterator>(cases: C) -> impl Iterator<Item = C::Item> {
    part_of(cases, *PART)
}

/// The number of a part in a variable of the environment. None, where that is not set or empty: all are tried.
pub fn part_named(variable: &str) -> Option<usize> {
    let part = std::env::var(variable).ok().filter(|part| !part.is_empty())?;
    Some(part.parse().unwrap_or_else(|_| panic!("{variable} is the number of a part, not {part:?}")))
}

/// Those of `cases` that are in a part.
pub fn part_of<C: IntoIterator>(cases: C, part: Option<usize>) -> impl Iterator<Item = C::Item> {
    // One of each three in a row, and another one of the next: what is chosen by `nth % 3` comes in each part.
    let is_tried = move |nth: usize| part.is_none_or(|part| (nth + nth / ONE_IN) % ONE_IN == part % ONE_IN);
    cases.into_iter().enumerate().filter(move |(nth, _)| is_tried(*nth)).map(|(_, case)| case)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_parts_are_all_and_none_is_tried_twice() {
        let mut tried: Vec<u64> = (7..10).flat_map(|part| part_of(0..20, Some(part))).collect();
        tried.sort_unstable();
        assert_eq!(tried, Vec::from_iter(0..20));
        assert_eq!(part_of(0..20, None).count(), 20);
    }
}
