//! The scalar twin: parity by definition, one byte at a time, sharing nothing with the kernels but the numbering of
//! columns. Reconstruction solves the linear equations by elimination, without cases.

extern crate std;
use std::vec;
use std::vec::Vec;

/// P and Q of the data columns.
pub(super) fn parity(data: &[Vec<u8>]) -> [Vec<u8>; 2] {
    let len = data[0].len();
    [0, 1].map(|which| {
        (0..len)
            .map(|at| {
                data.iter()
                    .enumerate()
                    .fold(0, |sum, (i, d)| sum ^ times(row(data.len(), data.len() + which)[i], d[at]))
            })
            .collect()
    })
}

/// The `wanted` columns out of exactly `data_columns` survivors.
pub(super) fn reconstruct(data_columns: usize, have: &[(usize, &[u8])], wanted: &[usize]) -> Vec<Vec<u8>> {
    assert_eq!(have.len(), data_columns);
    // Each survivor is one equation: its row of coefficients, and its bytes.
    let mut rows: Vec<(Vec<u8>, Vec<u8>)> =
        have.iter().map(|(column, bytes)| (row(data_columns, *column), bytes.to_vec())).collect();
    for i in 0..data_columns {
        let pivot = (i..data_columns).find(|&r| rows[r].0[i] != 0).expect("independent equations");
        rows.swap(i, pivot);
        let scale = (1..=255).find(|&c| times(c, rows[i].0[i]) == 1).expect("a field");
        let pivot = (scaled(&rows[i].0, scale), scaled(&rows[i].1, scale));
        for (r, row) in rows.iter_mut().enumerate() {
            let factor = row.0[i];
            if r == i {
                *row = pivot.clone();
            } else if factor != 0 {
                subtract(&mut row.0, &scaled(&pivot.0, factor));
                subtract(&mut row.1, &scaled(&pivot.1, factor));
            }
        }
    }
    let data: Vec<Vec<u8>> = rows.into_iter().map(|(_, bytes)| bytes).collect();
    let [p, q] = parity(&data);
    let all = [data, vec![p, q]].concat();
    wanted.iter().map(|&column| all[column].clone()).collect()
}

/// What a column is of the data columns: a unit vector, all ones (P), or the powers of 2 (Q).
fn row(data_columns: usize, column: usize) -> Vec<u8> {
    (0..data_columns)
        .map(|i| match column {
            c if c == data_columns => 1,
            c if c == data_columns + 1 => (0..i).fold(1, |power, _| times(power, 2)),
            c => (c == i) as u8,
        })
        .collect()
}

/// Polynomial product, then long division by x^8 + x^4 + x^3 + x^2 + 1.
pub(super) fn times(a: u8, b: u8) -> u8 {
    let mut product = (0..8).filter(|bit| b >> bit & 1 == 1).fold(0u16, |sum, bit| sum ^ (a as u16) << bit);
    for degree in (8..15).rev() {
        if product >> degree & 1 == 1 {
            product ^= 0x11d << (degree - 8);
        }
    }
    product as u8
}

fn scaled(bytes: &[u8], factor: u8) -> Vec<u8> {
    bytes.iter().map(|&byte| times(byte, factor)).collect()
}

fn subtract(from: &mut [u8], bytes: &[u8]) {
    for (a, b) in from.iter_mut().zip(bytes) {
        *a ^= b;
    }
}
