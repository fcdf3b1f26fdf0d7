//! `weft-sim work`: the same requests again and again, for whoever counts the instructions of a request.
//!
//! The disks take no real time and virtual time is exact, so that a build does the same work each time, to within what
//! hash seeds and addresses change. What making and filling the pool costs, and what a request does, are told apart by
//! running two numbers of requests (`scripts/instructions`).

use crate::flushes::{self, Medium};
use crate::rng::Rng;
use crate::streams::{block_on, pattern, stream_at};
use std::cell::RefCell;
use std::process::ExitCode;
use std::rc::Rc;
use weft_engine::geometry::{Layout, Resiliency};
use weft_engine::store::Tuning;
use weft_engine::units::{ByteCount, VirtualOffset};

/// Bytes that are filled, and then read and written.
const FILLED: u64 = 16 << 20;
/// Requests at once.
const DEPTH: u64 = 32;

/// How the command is called.
pub const USAGE: &str = "weft-sim work read|write|stream N
  read, write        N requests of 4 KiB, anywhere, 32 at once
  stream             N requests of 1 MiB, in order, 32 at once";

/// What is done again and again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    Read,
    Write,
    Stream,
}

/// Runs `weft-sim work` with these further arguments.
pub fn command(arguments: &[String]) -> ExitCode {
    let kind = match arguments.first().map(String::as_str) {
        Some("read") => Kind::Read,
        Some("write") => Kind::Write,
        Some("stream") => Kind::Stream,
        _ => return usage(),
    };
    let [_, count] = arguments else { return usage() };
    let Ok(count) = count.parse() else { return usage() };
    run(kind, count);
    ExitCode::SUCCESS
}

fn usage() -> ExitCode {
    eprintln!("usage: {USAGE}");
    ExitCode::from(2)
}

fn run(kind: Kind, count: u64) {
    let layout = Layout::new(Resiliency::Parity { parity: 1 }, 4, ByteCount::kib(256)).expect("the layout is valid");
    let bench = flushes::bench(Medium::NvmeSsd, layout, Tuning::default());
    let step = if kind == Kind::Stream { 1 << 20 } else { 4096 };
    let (data, rng) = (Rc::new(pattern(7, ByteCount(1 << 20))), Rc::new(RefCell::new(Rng::new(5))));
    let (host, vdisk) = (bench.world.clone(), bench.vdisk.clone());
    block_on(&bench.world, async move {
        let (filler, fill) = (vdisk.clone(), data.clone());
        let one = move |at: u64| {
            let (vdisk, data) = (filler.clone(), fill.clone());
            async move { vdisk.write(VirtualOffset(at), &data, false).await.expect("a sound pool takes writes") }
        };
        stream_at(&host, 0..FILLED, 1 << 20, 8, one).await;
        vdisk.flush().await.expect("a sound pool flushes");
        let one = move |nth: u64| {
            let (vdisk, data) = (vdisk.clone(), data.clone());
            let at = match kind {
                Kind::Stream => nth % FILLED,
                _ => rng.borrow_mut().below(FILLED / step) * step,
            };
            let at = VirtualOffset(at);
            async move {
                match kind {
                    Kind::Read => vdisk.read(at, &mut vec![0; step as usize]).await.expect("what was written is there"),
                    _ => vdisk.write(at, &data[..step as usize], false).await.expect("a sound pool takes writes"),
                }
            }
        };
        stream_at(&host, 0..count * step, step, DEPTH, one).await;
    });
    bench.world.halt();
}
