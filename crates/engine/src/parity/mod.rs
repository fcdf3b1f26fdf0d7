//! Parity arithmetic: one or two parity columns over up to 31 or 30 data columns.
//!
//! Data columns are numbered from 0; P is the column after the last data column, Q the one after P.
//! P = d0 + d1 + ..., Q = d0 + g d1 + g^2 d2 + ... in GF(2^8) with g = 2, polynomial 0x11d (H. Peter Anvin,
//! "The mathematics of RAID-6"; the same code as Linux md, so either can be checked against the other).
//!
//! Everything here is one operation. Over the columns that exist, take two sums: `p` (xor) and `q` (weighted by powers
//! of g). Every parity column and every lost column is `a p + b q` for two constants that depend only on which columns
//! are missing (`Plan`). So one kernel (`fold`) generates and repairs, reads every byte once, keeps both sums
//! in registers and needs no scratch memory.
//!
//! Invariants
//! 1. Every wanted byte is overwritten and depends on nothing it held before.
//! 2. All kernels give the same bytes as the scalar reference, at any length and alignment.
//! 3. A request that cannot be answered (too many columns missing) panics; it never gives wrong bytes.

mod field;
mod fold;
mod kernel;
#[cfg(test)]
mod reference;
#[cfg(test)]
mod tests;
#[cfg(target_arch = "x86_64")]
mod x86;

use crate::limits::{COLUMNS_MAX, PARITY_MAX};
use fold::{Output, Sources};
use kernel::Kernel;

/// The most data columns: a layout has at least one parity column.
const DATA_MAX: usize = COLUMNS_MAX as usize - 1;

/// Computes P, or P and Q, of the data columns. `parity` is overwritten.
///
/// # Panics
/// When the columns differ in length, when there are none, or when data and parity together exceed 32 columns.
pub fn generate(data: &[&[u8]], parity: &mut [&mut [u8]]) {
    generate_with(Kernel::best(), data, parity);
}

/// Computes the `wanted` columns (one or two, of any kind) from the surviving columns `have`.
///
/// `have` may hold just as many columns as needed, which is `data_columns`; more are allowed and used where that is
/// cheaper. Where a layout has a single parity column, Q simply never appears.
///
/// # Panics
/// When `have` does not determine the wanted columns, when a column is named twice or does not exist, or when the
/// columns differ in length.
pub fn reconstruct(data_columns: usize, have: &[(usize, &[u8])], wanted: &mut [(usize, &mut [u8])]) {
    reconstruct_with(Kernel::best(), data_columns, have, wanted);
}

/// The kernel this processor gets: `avx512`, `avx2` or `portable`.
pub fn kernel_name() -> &'static str {
    Kernel::best().name()
}

fn generate_with(kernel: Kernel, data: &[&[u8]], parity: &mut [&mut [u8]]) {
    assert!(!data.is_empty(), "parity of no columns");
    assert!(data.len() + parity.len() <= COLUMNS_MAX as usize, "too many columns");
    let mut columns = [None; DATA_MAX];
    for (column, bytes) in columns.iter_mut().zip(data) {
        *column = Some(*bytes);
    }
    let sources = Sources { data: &columns[..data.len()], p: None, q: None };
    match parity {
        [p] => kernel.fold(&sources, &mut [Output { p: 1, q: 0, bytes: p }]),
        [p, q] => kernel.fold(&sources, &mut [Output { p: 1, q: 0, bytes: p }, Output { p: 0, q: 1, bytes: q }]),
        _ => panic!("{} parity columns; there are 1 or 2", parity.len()),
    }
}

fn reconstruct_with(kernel: Kernel, data_columns: usize, have: &[(usize, &[u8])], wanted: &mut [(usize, &mut [u8])]) {
    assert!((1..=DATA_MAX).contains(&data_columns), "{data_columns} data columns");
    let mut survivors = [None; DATA_MAX + PARITY_MAX as usize];
    let survivors = &mut survivors[..data_columns + PARITY_MAX as usize];
    for &(column, bytes) in have {
        assert!(survivors[column].replace(bytes).is_none(), "column {column} is given twice");
    }
    for (column, _) in wanted.iter() {
        assert!(survivors[*column].is_none(), "column {column} is both given and wanted");
    }
    let (data, parity) = survivors.split_at(data_columns);
    let plan = Plan::choose(data, parity[0].is_some(), parity[1].is_some());
    let sources = Sources { data, p: parity[0].filter(|_| plan.uses_p()), q: parity[1].filter(|_| plan.uses_q()) };
    let weights = |column| plan.weights(column, data_columns);
    match wanted {
        [] => {}
        [(x, a)] => kernel.fold(&sources, &mut [Output::new(weights(*x), a)]),
        [(x, a), (y, b)] => {
            assert!(x != y, "column {x} is wanted twice");
            kernel.fold(&sources, &mut [Output::new(weights(*x), a), Output::new(weights(*y), b)]);
        }
        _ => panic!("{} columns wanted; at most 2 can be", wanted.len()),
    }
}

/// What is missing among the data columns, and which parity columns join the sums. Below, `p` and `q` are the sums over
/// the survivors *including* the parity columns that join; a column that is in a sum twice cancels out, so a sum that
/// its parity column joins equals the same sum over the missing data columns.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Plan {
    /// No data column is missing and no parity column joins: P = p, Q = q.
    Whole,
    /// Data column x is missing, P joins: dx = p. Then Q = q + g^x p.
    OneByP { x: usize },
    /// Data column x is missing, Q joins: g^x dx = q. Then P = p + q / g^x.
    OneByQ { x: usize },
    /// Data columns x and y are missing, both join: dx + dy = p and g^x dx + g^y dy = q.
    Two { x: usize, y: usize },
}

impl Plan {
    fn choose(data: &[Option<&[u8]>], p: bool, q: bool) -> Plan {
        let mut missing = (0..data.len()).filter(|&column| data[column].is_none());
        match (missing.next(), missing.next(), missing.next()) {
            (None, ..) => Plan::Whole,
            (Some(x), None, _) if p => Plan::OneByP { x },
            (Some(x), None, _) if q => Plan::OneByQ { x },
            (Some(x), Some(y), None) if p && q => Plan::Two { x, y },
            _ => panic!("not enough columns survive to reconstruct"),
        }
    }

    fn uses_p(self) -> bool {
        matches!(self, Plan::OneByP { .. } | Plan::Two { .. })
    }

    fn uses_q(self) -> bool {
        matches!(self, Plan::OneByQ { .. } | Plan::Two { .. })
    }

    /// The constants (a, b) with which `column` is a p + b q.
    fn weights(self, column: usize, data_columns: usize) -> (u8, u8) {
        let (is_p, is_q) = (column == data_columns, column == data_columns + 1);
        match self {
            Plan::Whole if is_p => (1, 0),
            Plan::Whole => (0, 1),
            Plan::OneByP { x } if is_q => (field::power(x), 1),
            Plan::OneByP { .. } => (1, 0),
            Plan::OneByQ { x } if is_p => (1, field::inverse(field::power(x))),
            Plan::OneByQ { x } => (0, field::inverse(field::power(x))),
            Plan::Two { x, y } => {
                // Take g^other times the first equation from the second; the other column falls out.
                let other = field::power(if column == x { y } else { x });
                let scale = field::inverse(field::power(x) ^ field::power(y));
                (field::multiply(other, scale), scale)
            }
        }
    }
}
