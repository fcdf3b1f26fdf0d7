//! CRC32C by tables, eight bytes at a time, for processors without better.

/// The polynomial x^32 + 0x1edc6f41, lowest degree in the highest bit.
pub(super) const POLYNOMIAL: u32 = 0x82f6_3b78;

/// `TABLES[n][byte]`: what `byte` adds to the state when `n` more bytes follow it.
static TABLES: [[u32; 256]; 8] = tables();

/// The state of the sum after `bytes`.
pub(super) fn advance(mut state: u32, bytes: &[u8]) -> u32 {
    let (words, rest) = bytes.as_chunks::<8>();
    for word in words {
        let value = u64::from_le_bytes(*word) ^ state as u64;
        state = (0..8).fold(0, |sum, i| sum ^ TABLES[7 - i][(value >> (8 * i)) as u8 as usize]);
    }
    rest.iter().fold(state, |state, byte| TABLES[0][(state as u8 ^ byte) as usize] ^ state >> 8)
}

const fn tables() -> [[u32; 256]; 8] {
    let mut tables = [[0; 256]; 8];
    let mut byte = 0;
    while byte < 256 {
        let (mut state, mut n) = (byte as u32, 0);
        while n < 8 {
            let mut bit = 0;
            while bit < 8 {
                state = times_x(state);
                bit += 1;
            }
            tables[n][byte] = state;
            n += 1;
        }
        byte += 1;
    }
    tables
}

/// A state times x, modulo the polynomial.
pub(super) const fn times_x(state: u32) -> u32 {
    state >> 1 ^ if state & 1 != 0 { POLYNOMIAL } else { 0 }
}
