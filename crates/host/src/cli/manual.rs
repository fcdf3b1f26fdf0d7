//! Completions and manual pages, made from the same description as `--help`.

use super::Failure;
use super::args::Cli;
use crate::api::error::{ApiError, Kind};
use crate::ops::line::on_path;
use clap::CommandFactory;
use std::io::Write;
use std::path::Path;

pub(super) fn completions(shell: clap_complete::Shell, out: &mut dyn Write) -> Result<(), Failure> {
    // The generator expects a writer that cannot fail: it gets memory.
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "weft", &mut script);
    out.write_all(&script)?;
    Ok(())
}

/// The page of weft, or of the command that `words` name.
pub(super) fn page(words: &[String], out: &mut dyn Write) -> Result<(), Failure> {
    let mut root = Cli::command();
    root.build();
    let mut command = &root;
    for (n, word) in words.iter().enumerate() {
        command = command.find_subcommand(word).ok_or_else(|| {
            let known = ["weft"].into_iter().chain(words[..n].iter().map(String::as_str)).collect::<Vec<_>>().join(" ");
            let subs: Vec<&str> = command.get_subcommands().map(clap::Command::get_name).collect();
            let message = match subs.is_empty() {
                true => format!("`{known}` has no commands"),
                false => format!("`{known}` has no command `{word}`; it has {}", subs.join(", ")),
            };
            let hint = format!("weft man {}", words[..n].join(" "));
            ApiError::new(Kind::NotFound, message).hint(hint.trim())
        })?;
    }
    let mut page = Vec::new();
    clap_mangen::Man::new(command.clone()).render(&mut page)?;
    out.write_all(&page)?;
    Ok(())
}

/// All pages, into `dir`.
pub(super) fn pages(dir: &Path) -> Result<(), Failure> {
    clap_mangen::generate_to(Cli::command(), dir).map_err(|error| {
        ApiError::new(Kind::NotPossible, format!("cannot write the pages into {}: {error}", dir.display()))
            .hint(on_path("mkdir -p", dir))
    })?;
    Ok(())
}
