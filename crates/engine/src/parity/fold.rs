//! The one loop over bytes of columns, written once for every kind of vector register.
//!
//! The loop goes down the columns first: a few registers' worth of one position is summed over all columns before the
//! next position is touched. So each byte is read from memory once, both sums stay in registers, and nothing has to be
//! kept in a cache between columns. Q is summed by Horner's rule from the last column to the first:
//! q = (..(d2 g + d1) g + d0), which needs only doubling.
//!
//! Everything a register passes through is a plain loop in an `#[inline(always)]` function, no closure: an instruction
//! is inlined only into a function that enables it, and a closure (or `array::map`) is compiled first, without. That
//! was measured: `array::map` made repair twenty times slower.

/// The columns to be summed, all of one length. A missing data column counts as zeros.
pub(super) struct Sources<'a> {
    pub data: &'a [Option<&'a [u8]>],
    /// Joins the sum p.
    pub p: Option<&'a [u8]>,
    /// Joins the sum q.
    pub q: Option<&'a [u8]>,
}

/// A column to be written: `p` times the sum p + `q` times the sum q.
pub(super) struct Output<'a> {
    pub p: u8,
    pub q: u8,
    pub bytes: &'a mut [u8],
}

/// A register of bytes, each an element of GF(2^8).
///
/// The methods of an implementation may only be called on a processor that has its instructions, below a function that
/// enables them (else they are slow). [`super::kernel::Kernel`] is the only door to both.
pub(super) trait Vector: Copy {
    /// Bytes per register, at most 64.
    const LEN: usize;
    /// A constant factor, prepared.
    type Factor: Copy;

    fn zero() -> Self;
    /// Loads the first `LEN` bytes; there must be as many.
    fn load(bytes: &[u8]) -> Self;
    /// Stores to the first `LEN` bytes; there must be as many.
    fn store(self, bytes: &mut [u8]);
    fn plus(self, other: Self) -> Self;
    /// Times the generator.
    fn double(self) -> Self;
    fn factor(value: u8) -> Self::Factor;
    fn times(self, factor: Self::Factor) -> Self;
}

impl<'a> Output<'a> {
    pub fn new((p, q): (u8, u8), bytes: &'a mut [u8]) -> Output<'a> {
        Output { p, q, bytes }
    }
}

impl Sources<'_> {
    /// Asserts that all columns and outputs have one length, and gives it.
    pub fn len(&self, outputs: &[Output<'_>]) -> usize {
        let len = outputs.first().map_or(0, |output| output.bytes.len());
        let columns = self.data.iter().chain([&self.p, &self.q]).flatten();
        assert!(columns.clone().all(|column| column.len() == len), "columns differ in length");
        assert!(outputs.iter().all(|output| output.bytes.len() == len), "columns differ in length");
        len
    }
}

/// Registers per sum and step. Four independent chains hide the latency of doubling; 2 sums x 4 still fit 16 registers.
const WIDE: usize = 4;

/// Writes every output, with registers of kind `V`.
#[inline(always)]
pub(super) fn fold<V: Vector>(sources: &Sources<'_>, outputs: &mut [Output<'_>]) {
    let needs_p = outputs.iter().any(|output| output.p != 0);
    let needs_q = outputs.iter().any(|output| output.q != 0);
    // A sum nobody needs is not computed: plain XOR is three times as fast as P and Q.
    match (needs_p, needs_q) {
        (_, false) => fold_sums::<V, true, false>(sources, outputs),
        (false, true) => fold_sums::<V, false, true>(sources, outputs),
        (true, true) => fold_sums::<V, true, true>(sources, outputs),
    }
}

#[inline(always)]
fn fold_sums<V: Vector, const P: bool, const Q: bool>(sources: &Sources<'_>, outputs: &mut [Output<'_>]) {
    let len = sources.len(outputs);
    let mut scales = [(Scale::Absent, Scale::Absent); 2];
    for (scale, output) in scales.iter_mut().zip(outputs.iter()) {
        *scale = (Scale::<V>::new(output.p), Scale::new(output.q));
    }
    let (wide, mut at) = (WIDE * V::LEN, 0);
    while at + wide <= len {
        fold_range::<V, P, Q, WIDE>(sources, outputs, &scales, at, at + wide);
        at += wide;
    }
    while at < len {
        let end = len.min(at + V::LEN);
        fold_range::<V, P, Q, 1>(sources, outputs, &scales, at, end);
        at = end;
    }
}

/// Writes the outputs from `at` to `end`, which is at most `N` registers further.
#[inline(always)]
fn fold_range<V: Vector, const P: bool, const Q: bool, const N: usize>(
    sources: &Sources<'_>,
    outputs: &mut [Output<'_>],
    scales: &[(Scale<V>, Scale<V>); 2],
    at: usize,
    end: usize,
) {
    let (mut p, mut q) = ([V::zero(); N], [V::zero(); N]);
    for column in sources.data.iter().rev() {
        if Q {
            for value in &mut q {
                *value = value.double();
            }
        }
        if let Some(column) = column {
            let bytes = load::<V, N>(&column[at..end]);
            if P {
                p = plus(p, bytes);
            }
            if Q {
                q = plus(q, bytes);
            }
        }
    }
    if let (true, Some(column)) = (P, sources.p) {
        p = plus(p, load(&column[at..end]));
    }
    if let (true, Some(column)) = (Q, sources.q) {
        q = plus(q, load(&column[at..end]));
    }
    for (output, (p_scale, q_scale)) in outputs.iter_mut().zip(scales) {
        store(plus(p_scale.apply(p), q_scale.apply(q)), &mut output.bytes[at..end]);
    }
}

/// How a sum enters an output. Most factors are 0 or 1 and cost nothing.
#[derive(Clone, Copy)]
enum Scale<V: Vector> {
    Absent,
    Plain,
    Times(V::Factor),
}

impl<V: Vector> Scale<V> {
    #[inline(always)]
    fn new(factor: u8) -> Scale<V> {
        match factor {
            0 => Scale::Absent,
            1 => Scale::Plain,
            _ => Scale::Times(V::factor(factor)),
        }
    }

    #[inline(always)]
    fn apply<const N: usize>(&self, mut values: [V; N]) -> [V; N] {
        match *self {
            Scale::Absent => values = [V::zero(); N],
            Scale::Plain => {}
            Scale::Times(factor) => {
                for value in &mut values {
                    *value = value.times(factor);
                }
            }
        }
        values
    }
}

#[inline(always)]
fn plus<V: Vector, const N: usize>(mut a: [V; N], b: [V; N]) -> [V; N] {
    for i in 0..N {
        a[i] = a[i].plus(b[i]);
    }
    a
}

/// Loads at most `N` registers; what the bytes do not fill is zero.
#[inline(always)]
fn load<V: Vector, const N: usize>(bytes: &[u8]) -> [V; N] {
    let mut values = [V::zero(); N];
    for (i, value) in values.iter_mut().enumerate() {
        let bytes = &bytes[i * V::LEN..];
        *value = if bytes.len() >= V::LEN {
            V::load(bytes)
        } else {
            let mut padded = [0; 64];
            padded[..bytes.len()].copy_from_slice(bytes);
            V::load(&padded)
        };
    }
    values
}

/// Stores as much of the registers as the bytes can take.
#[inline(always)]
fn store<V: Vector, const N: usize>(values: [V; N], bytes: &mut [u8]) {
    for (i, value) in values.iter().enumerate() {
        let bytes = &mut bytes[i * V::LEN..];
        if bytes.len() >= V::LEN {
            value.store(bytes);
        } else {
            let mut padded = [0; 64];
            value.store(&mut padded);
            bytes.copy_from_slice(&padded[..bytes.len()]);
        }
    }
}
