//! `weft lab`: published claims, repeated.

use clap::{Args, Subcommand};

/// `weft lab`.
#[derive(Subcommand, Debug)]
pub enum Lab {
    /// List the claims that can be repeated
    #[command(after_help = "Examples:\n  weft lab list")]
    List,
    /// Repeat some claims, or all
    #[command(after_help = "Examples:\n  weft lab run Q8 Q51\n  weft lab run --all")]
    Run(Which),
    /// Repeat all of them, as a document in Markdown (some minutes)
    #[command(after_help = "Examples:\n  weft lab report")]
    Report,
}

/// Which claims.
#[derive(Args, Debug)]
pub struct Which {
    /// Their numbers, such as Q8
    #[arg(value_name = "ID", required_unless_present = "all", conflicts_with = "all")]
    pub claims: Vec<String>,
    /// Every one
    #[arg(long)]
    pub all: bool,
}
