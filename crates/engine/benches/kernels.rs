//! The byte kernels beside `memcpy`, in one run: `cargo bench -p weft-engine --bench kernels`.
//!
//! Every line moves the same kind of stripe: strips of 64 KiB, everything warm in the caches of one core. GB/s count
//! the data bytes of a stripe (for reconstruction: the bytes read from survivors). Read the ratios; machines and
//! neighbours differ. The rounds of all lines are interleaved, and the best round of each counts.

use std::hint::black_box;
use std::time::{Duration, Instant};
use weft_engine::checksum::{BlockAddress, block_checksums, crc32c};
use weft_engine::parity::{generate, kernel_name, reconstruct};
use weft_engine::units::SegmentNo;

const STRIP: usize = 64 << 10;
const ROUNDS: usize = 40;
const ROUND: Duration = Duration::from_millis(10);

struct Line<'a> {
    name: &'static str,
    bytes: usize,
    work: Box<dyn FnMut() + 'a>,
    best: f64,
}

fn main() {
    let strips: Vec<Vec<u8>> = (0..12).map(|i| pattern(i, STRIP)).collect();
    let views: Vec<&[u8]> = strips.iter().map(|strip| &strip[..]).collect();
    let mut lines = lines(&views);
    for _ in 0..ROUNDS {
        for line in &mut lines {
            line.best = line.best.max(round(line));
        }
    }
    let memcpy = lines[0].best;
    println!("parity kernel: {}; strips of {} KiB, one core, warm", kernel_name(), STRIP >> 10);
    println!("{:<44} {:>8} {:>10}", "", "GB/s", "x memcpy");
    for line in &lines {
        println!("{:<44} {:>8.1} {:>10.2}", line.name, line.best, line.best / memcpy);
    }
}

fn lines<'a>(strips: &'a [&'a [u8]]) -> Vec<Line<'a>> {
    let line = |name, bytes, work| Line { name, bytes, work, best: 0.0 };
    let [mut a, mut b, mut c, mut d] = [(); 4].map(|_| vec![0; STRIP]);
    let [mut e, mut f, mut g, mut h] = [(); 4].map(|_| vec![0; STRIP]);
    let mut sums = vec![0; STRIP / 4096];
    let at = BlockAddress { segment: SegmentNo(1), slot: 2, block: 3 };
    let have = |columns: &[usize]| columns.iter().map(|&column| (column, strips[column])).collect::<Vec<_>>();
    let (without_p, without_pq) = (have(&[0, 2, 3, 4]), have(&[0, 1, 2, 3, 4, 5, 6, 7]));
    let (one, two) = (have(&[0, 2, 3, 4, 5, 6, 7, 9]), have(&[0, 2, 3, 4, 6, 7, 8, 9]));
    vec![
        line("memcpy", STRIP, Box::new(move || black_box(&mut a).copy_from_slice(black_box(strips[0])))),
        line("xor 4+1", 4 * STRIP, Box::new(move || generate(black_box(&strips[..4]), &mut [&mut b]))),
        line("p+q 8+2", 8 * STRIP, Box::new(move || generate(black_box(&strips[..8]), &mut [&mut c, &mut d]))),
        line(
            "reconstruct 4+1: a data column, by p",
            4 * STRIP,
            Box::new(move || reconstruct(4, black_box(&without_p), &mut [(1, &mut e)])),
        ),
        line(
            "reconstruct 8+2: a data column, by q",
            8 * STRIP,
            Box::new(move || reconstruct(8, black_box(&one), &mut [(1, &mut f)])),
        ),
        line(
            "reconstruct 8+2: two data columns",
            8 * STRIP,
            Box::new(move || reconstruct(8, black_box(&two), &mut [(1, &mut g), (5, &mut h)])),
        ),
        line("reconstruct 8+2: p and q", 8 * STRIP, {
            let [mut p, mut q] = [(); 2].map(|_| vec![0; STRIP]);
            Box::new(move || reconstruct(8, black_box(&without_pq), &mut [(8, &mut p), (9, &mut q)]))
        }),
        line(
            "checksums of 4 KiB blocks",
            STRIP,
            Box::new(move || block_checksums(at, black_box(strips[0]), black_box(&mut sums))),
        ),
        line(
            "crc32c of 64 bytes",
            64,
            Box::new(|| {
                black_box(crc32c(black_box(&strips[0][..64])));
            }),
        ),
    ]
}

/// GB/s over one round.
fn round(line: &mut Line<'_>) -> f64 {
    let batch = (STRIP / line.bytes).max(1);
    let (start, mut times) = (Instant::now(), 0);
    loop {
        for _ in 0..batch {
            (line.work)();
        }
        times += batch;
        let spent = start.elapsed();
        if spent >= ROUND {
            return (times * line.bytes) as f64 / spent.as_nanos() as f64;
        }
    }
}

fn pattern(seed: usize, len: usize) -> Vec<u8> {
    (0..len).map(|i| (((i + 1) * (2 * seed + 3) * 0x9e37) >> 7) as u8).collect()
}
