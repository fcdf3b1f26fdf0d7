//! Every kernel this machine has, against the scalar twin.

extern crate std;
use super::kernel::Kernel;
use super::{Plan, generate, generate_with, reconstruct, reconstruct_with, reference};
use proptest::prelude::*;
use std::vec;
use std::vec::Vec;

/// Long enough for every kernel's main loop, single registers and a partial one.
const LEN: usize = 4 * 64 + 64 + 3;

#[test]
fn the_best_kernel_comes_first_and_the_portable_one_last() {
    let kernels: Vec<Kernel> = Kernel::available().collect();
    assert_eq!(kernels[0], Kernel::best());
    assert_eq!(kernels[0].name(), super::kernel_name());
    assert_eq!(kernels.last().map(|k| k.name()), Some("portable"));
    #[cfg(target_arch = "x86_64")]
    assert_eq!(kernels.iter().any(|k| k.name() == "avx2"), std::is_x86_feature_detected!("avx2"));
}

#[test]
fn known_vectors() {
    // Worked by hand: P = 1 ^ 2 ^ 0x80; Q = 1 + 2*2 + 4*0x80, and 4 * 0x80 = x^9 = x * 0x1d = 0x3a.
    let (mut p, mut q) = ([0xff; 1], [0xff; 1]);
    generate(&[&[0x01], &[0x02], &[0x80]], &mut [&mut p, &mut q]);
    assert_eq!((p, q), ([0x83], [0x3f]));
}

#[test]
fn one_data_column_is_its_own_parity() {
    let data = column(7, 100);
    let (mut p, mut q) = (vec![0; 100], vec![1; 100]);
    generate(&[&data], &mut [&mut p, &mut q]);
    assert_eq!((&p, &q), (&data, &data));
}

/// Data columns 1..=30, every set of at most two lost columns, every choice of wanted ones among them.
#[test]
fn every_loss_of_up_to_two_columns_is_undone() {
    for kernel in Kernel::available() {
        for data_columns in 1..=30 {
            let all = stripe(kernel, data_columns, 2, LEN);
            for x in 0..all.len() {
                check(kernel, data_columns, &all, &[x], &[x]);
                for y in (0..all.len()).filter(|&y| y != x) {
                    check(kernel, data_columns, &all, &[x, y], &[x, y]);
                    check(kernel, data_columns, &all, &[x, y], &[x]);
                }
            }
        }
    }
}

#[test]
fn every_single_loss_of_single_parity_is_undone() {
    for kernel in Kernel::available() {
        for data_columns in 1..=31 {
            let all = stripe(kernel, data_columns, 1, LEN);
            for x in 0..all.len() {
                check(kernel, data_columns, &all, &[x], &[x]);
            }
        }
    }
}

/// The elimination of the reference knows no cases, so it would not share a mistake in ours.
#[test]
fn the_reference_agrees_on_every_minimal_set_of_survivors() {
    for data_columns in 1..=7 {
        let all = stripe(Kernel::best(), data_columns, 2, 33);
        for x in 0..all.len() {
            for y in 0..x {
                let have = without(&all, &[x, y]);
                let expected = reference::reconstruct(data_columns, &have, &[x, y]);
                assert_eq!(expected, [all[x].clone(), all[y].clone()]);
            }
        }
    }
}

#[test]
fn parity_is_linear_and_doubling_moves_a_column_up() {
    for kernel in Kernel::available() {
        let (a, b) = (stripe(kernel, 9, 2, 333), stripe_of(kernel, (0..9).map(|i| column(i + 90, 333)).collect(), 2));
        let sum: Vec<Vec<u8>> = (0..9).map(|i| a[i].iter().zip(&b[i]).map(|(x, y)| x ^ y).collect()).collect();
        let sum = stripe_of(kernel, sum, 2);
        for parity in 9..11 {
            assert!((0..333).all(|at| sum[parity][at] == a[parity][at] ^ b[parity][at]));
        }
        let mut shifted = vec![vec![0; 333]];
        shifted.extend_from_slice(&a[..9]);
        let shifted = stripe_of(kernel, shifted, 2);
        assert_eq!(shifted[10], a[9]);
        assert!((0..333).all(|at| shifted[11][at] == reference::times(2, a[10][at])));
    }
}

#[test]
fn empty_columns_are_allowed() {
    generate(&[&[], &[]], &mut [&mut [], &mut []]);
    reconstruct(2, &[(1, &[]), (2, &[])], &mut [(0, &mut [])]);
}

#[test]
#[should_panic(expected = "not enough columns survive")]
fn two_lost_columns_with_one_parity_are_refused() {
    reconstruct(3, &[(0, &[1]), (3, &[1])], &mut [(1, &mut [0])]);
}

#[test]
#[should_panic(expected = "not enough columns survive")]
fn three_lost_columns_are_refused() {
    reconstruct(3, &[(3, &[1]), (4, &[1])], &mut [(1, &mut [0])]);
}

#[test]
#[should_panic(expected = "differ in length")]
fn columns_of_different_lengths_are_refused() {
    generate(&[&[1, 2], &[1]], &mut [&mut [0, 0]]);
}

#[test]
#[should_panic(expected = "given twice")]
fn a_column_given_twice_is_refused() {
    reconstruct(2, &[(1, &[1]), (1, &[1])], &mut [(0, &mut [0])]);
}

#[test]
fn a_lone_loss_with_p_at_hand_costs_only_xor() {
    let data = [Some(&[1u8][..]), None];
    assert_eq!(Plan::choose(&data, true, true), Plan::OneByP { x: 1 });
    assert_eq!(Plan::OneByP { x: 1 }.weights(1, 2), (1, 0));
}

proptest! {
    #[test]
    fn kernels_equal_the_reference_at_any_length_and_alignment(
        bytes in proptest::collection::vec(any::<u8>(), 2500..2600),
        data_columns in 1usize..=12,
        len in 0usize..900,
        shifts in proptest::collection::vec(0usize..70, 14),
        lost in any::<[prop::sample::Index; 2]>(),
    ) {
        // The columns overlap in memory, each begins anywhere.
        let views: Vec<&[u8]> = (0..data_columns).map(|i| &bytes[i * 97 + shifts[i]..][..len]).collect();
        let data: Vec<Vec<u8>> = views.iter().map(|view| view.to_vec()).collect();
        let expected = reference::parity(&data);
        for kernel in Kernel::available() {
            let (mut p, mut q) = (vec![0xa5; len + 70], vec![0x5a; len + 70]);
            let (p_at, q_at) = (shifts[12], shifts[13]);
            generate_with(kernel, &views, &mut [&mut p[p_at..p_at + len], &mut q[q_at..q_at + len]]);
            prop_assert_eq!(&p[p_at..p_at + len], &expected[0][..]);
            prop_assert_eq!(&q[q_at..q_at + len], &expected[1][..]);
            // Nothing beside the outputs was touched.
            prop_assert!(p[..p_at].iter().chain(&p[p_at + len..]).all(|&byte| byte == 0xa5));
            prop_assert!(q[..q_at].iter().chain(&q[q_at + len..]).all(|&byte| byte == 0x5a));

            let all = [data.clone(), expected.to_vec()].concat();
            let (x, y) = (lost[0].index(all.len()), lost[1].index(all.len()));
            if x != y {
                let have = without(&all, &[x, y]);
                let by_reference = reference::reconstruct(data_columns, &have, &[x, y]);
                let (a, b) = (&mut p[p_at..p_at + len], &mut q[q_at..q_at + len]);
                reconstruct_with(kernel, data_columns, &have, &mut [(x, &mut *a), (y, &mut *b)]);
                prop_assert_eq!(&by_reference[0][..], a);
                prop_assert_eq!(&by_reference[1][..], b);
            }
        }
    }
}

/// Loses `lost`, wants `wanted` of them back, from all survivors and from each smallest sufficient set of them.
fn check(kernel: Kernel, data_columns: usize, all: &[Vec<u8>], lost: &[usize], wanted: &[usize]) {
    let survivors = without(all, lost);
    for spare in 0..survivors.len().max(1) {
        let mut have = survivors.clone();
        if have.len() > data_columns {
            have.remove(spare);
        }
        let mut out: Vec<Vec<u8>> = wanted.iter().map(|_| vec![0xee; all[0].len()]).collect();
        let mut want: Vec<(usize, &mut [u8])> =
            wanted.iter().copied().zip(out.iter_mut().map(|bytes| &mut bytes[..])).collect();
        reconstruct_with(kernel, data_columns, &have, &mut want);
        for (column, bytes) in wanted.iter().zip(&out) {
            assert_eq!(bytes, &all[*column], "{kernel:?}: {data_columns} data columns, lost {lost:?}, spare {spare}");
        }
        if survivors.len() == data_columns {
            break;
        }
    }
    let mut out = vec![0xee; all[0].len()];
    reconstruct_with(kernel, data_columns, &survivors, &mut [(wanted[0], &mut out)]);
    assert_eq!(out, all[wanted[0]]);
}

fn without<'a>(all: &'a [Vec<u8>], lost: &[usize]) -> Vec<(usize, &'a [u8])> {
    let here = all.iter().enumerate().filter(|(column, _)| !lost.contains(column));
    here.map(|(column, bytes)| (column, &bytes[..])).collect()
}

fn stripe(kernel: Kernel, data_columns: usize, parity: usize, len: usize) -> Vec<Vec<u8>> {
    stripe_of(kernel, (0..data_columns).map(|i| column(i, len)).collect(), parity)
}

fn stripe_of(kernel: Kernel, data: Vec<Vec<u8>>, parity: usize) -> Vec<Vec<u8>> {
    let views: Vec<&[u8]> = data.iter().map(|column| &column[..]).collect();
    let mut out = vec![vec![0xee; data[0].len()]; parity];
    let mut into: Vec<&mut [u8]> = out.iter_mut().map(|column| &mut column[..]).collect();
    generate_with(kernel, &views, &mut into);
    for (which, column) in out.iter().enumerate() {
        assert_eq!(column, &reference::parity(&data)[which], "{kernel:?}");
    }
    [data, out].concat()
}

/// Bytes without a pattern the code could share.
fn column(seed: usize, len: usize) -> Vec<u8> {
    let mut state = (seed as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 32) as u8
    };
    (0..len).map(|_| next()).collect()
}
