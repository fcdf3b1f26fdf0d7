//! The `weft` binary.

use mimalloc::MiMalloc;
use std::process::ExitCode;

/// The daemon maps all of it when it begins, and keeps it: see `daemon/memory.rs`.
#[global_allocator]
static HEAP: MiMalloc = MiMalloc;

fn main() -> ExitCode {
    weft_host::cli::main()
}
