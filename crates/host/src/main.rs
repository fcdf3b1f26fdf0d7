//! The `weft` binary.

use std::process::ExitCode;

fn main() -> ExitCode {
    weft_host::cli::main()
}
