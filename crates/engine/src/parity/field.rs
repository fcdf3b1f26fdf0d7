//! The field GF(2^8) of the parity columns: polynomial 0x11d, generator 2.
//!
//! Addition is xor. These few scalar operations only prepare constants; bytes of columns are multiplied by the kernels.

/// What remains of x^8 in the field: x^4 + x^3 + x^2 + 1.
pub(super) const REMAINDER: u8 = 0x1d;

/// `a` times the generator.
pub(super) const fn double(a: u8) -> u8 {
    (a << 1) ^ if a & 0x80 != 0 { REMAINDER } else { 0 }
}

/// `a` times `b`.
pub(super) const fn multiply(a: u8, b: u8) -> u8 {
    let (mut sum, mut shifted, mut bits) = (0, a, b);
    while bits != 0 {
        if bits & 1 != 0 {
            sum ^= shifted;
        }
        shifted = double(shifted);
        bits >>= 1;
    }
    sum
}

/// The generator to the power `n`.
pub(super) const fn power(n: usize) -> u8 {
    let (mut value, mut left) = (1, n % 255);
    while left > 0 {
        value = double(value);
        left -= 1;
    }
    value
}

/// The number that gives 1 when multiplied by `a`. Zero has none.
pub(super) const fn inverse(a: u8) -> u8 {
    assert!(a != 0, "zero has no inverse");
    // The multiplicative group has 255 members, so a^255 = 1 and a^254 = 1/a; 254 is seven ones and a zero in binary.
    let (mut result, mut square, mut round) = (1, a, 0);
    while round < 7 {
        square = multiply(square, square);
        result = multiply(result, square);
        round += 1;
    }
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_generator_runs_through_every_nonzero_byte() {
        let mut seen = [false; 256];
        for n in 0..255 {
            assert!(!core::mem::replace(&mut seen[power(n) as usize], true), "2^{n} repeats");
        }
        assert!(!seen[0]);
        assert_eq!(power(255), 1);
        assert_eq!(power(8), 0x1d);
    }

    #[test]
    fn multiplication_adds_exponents_and_distributes() {
        for n in 0..255 {
            for m in 0..255 {
                assert_eq!(multiply(power(n), power(m)), power(n + m));
            }
        }
        for a in 0..=255u8 {
            for b in 0..=255u8 {
                assert_eq!(multiply(a, b ^ 0x5a), multiply(a, b) ^ multiply(a, 0x5a));
            }
        }
    }

    #[test]
    fn every_nonzero_byte_has_an_inverse() {
        for a in 1..=255 {
            assert_eq!(multiply(a, inverse(a)), 1);
        }
    }
}
