//! `weft-sim streams`: figures in virtual time, for people.

use crate::random_writes::{Load, on_mirror_in_place, on_parity};
use crate::streams::{self, Case};
use std::process::ExitCode;
use weft_engine::stripe::geometry::{Layout, Resiliency};
use weft_engine::units::{ByteCount, Nanos};

/// How the command is called.
pub const USAGE: &str = "weft-sim streams [--full | --reads | --random]
  streams            sequential writes to every parity layout and interleave, request sizes by turns, beside one raw disk
  streams --full     the same with every request size
  streams --reads    sequential reads, healthy and with one disk gone
  streams --random   4 KiB writes with a flush every 32, beside a mirror that writes in place";

/// Runs `weft-sim streams` with these further arguments.
pub fn command(arguments: &[String]) -> ExitCode {
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [] => write_streams(false),
        ["--full"] => write_streams(true),
        ["--reads"] => read_streams(),
        ["--random"] => random_writes(),
        _ => {
            eprintln!("usage: {USAGE}");
            return ExitCode::from(2);
        }
    }
    ExitCode::SUCCESS
}

fn write_streams(full: bool) {
    println!("{}", streams::HEADING);
    for case in streams::cases(full, ByteCount::mib(128)) {
        println!("{}", streams::run(case));
    }
}

fn read_streams() {
    println!("of data columns x one raw disk's rate:  healthy  one disk gone");
    for interleave in streams::INTERLEAVES {
        for request in streams::REQUESTS {
            let case =
                Case { layout: five_columns(interleave), request, per_disk: ByteCount::mib(256), flush_stripes: None };
            let (healthy, degraded) = streams::read_ratios(case);
            println!("{}, requests of {request}: {healthy:.3} {degraded:.3}", case.layout);
        }
    }
}

fn random_writes() {
    for interleave in streams::INTERLEAVES {
        let layout = five_columns(interleave);
        let fill = Case { layout, request: ByteCount::mib(1), per_disk: ByteCount::gib(1), flush_stripes: None };
        let load = Load { fill, per_flush: 32, span: Nanos::secs(30) };
        println!("{layout}: 4 KiB writes per second, second by second");
        println!("  weft             {:?}", on_parity(load));
        println!("  mirror in place  {:?}", on_mirror_in_place(load, &streams::CLASS));
    }
}

fn five_columns(interleave: ByteCount) -> Layout {
    Layout::new(Resiliency::Parity { parity: 1 }, 5, interleave).expect("this layout is valid")
}
