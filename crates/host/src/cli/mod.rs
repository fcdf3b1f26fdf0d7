//! The command line: reads it, validates it, asks the daemon, prints the answer.
//!
//! Invariants
//! 1. Everything that can be validated without the daemon is validated before anything is touched.
//! 2. stdout carries the answer only; everything else goes to stderr.
//! 3. Every failure ends in one line of what was wrong, one line of what to try, and the exit code of its kind.

pub mod args;
pub mod exit;
mod manual;
pub mod rates;
mod run;
mod text;
mod usage;

use crate::api::error::ApiError;
use crate::daemon::config::Surroundings;
use crate::harmless;
use args::{Cli, When};
use clap::{CommandFactory, FromArgMatches};
use exit::Exit;
use std::ffi::OsString;
use std::io::{self, BufRead, IsTerminal, Write};
use std::process::ExitCode;

/// Where a command's words go and come from.
pub struct Io<'a> {
    /// The answer.
    pub out: &'a mut dyn Write,
    /// Words for people.
    pub err: &'a mut dyn Write,
    /// Asks a person a question to be answered with yes or no; `None` when there is no person.
    pub ask: Option<&'a mut dyn FnMut(&str) -> bool>,
    /// Whether the answer goes to a terminal.
    pub terminal: bool,
    /// Whether words for people go to a terminal, where progress is drawn as a bar.
    pub progress: bool,
}

/// The `weft` binary.
pub fn main() -> ExitCode {
    let argv: Vec<OsString> = std::env::args_os().collect();
    let surroundings = Surroundings { root: rustix::process::geteuid().is_root(), var: &|name| std::env::var_os(name) };
    let person = io::stdin().is_terminal() && io::stderr().is_terminal();
    let mut ask = ask_on_terminal;
    let mut io = Io {
        out: &mut io::stdout().lock(),
        err: &mut io::stderr(),
        ask: person.then_some(&mut ask as &mut dyn FnMut(&str) -> bool),
        terminal: io::stdout().is_terminal(),
        progress: io::stderr().is_terminal(),
    };
    let exit = run(&argv, &surroundings, &mut io);
    ExitCode::from(exit as u8)
}

/// Runs one command line, the program's name first.
pub fn run(argv: &[OsString], surroundings: &Surroundings, io: &mut Io) -> Exit {
    match Cli::command().try_get_matches_from(argv).and_then(|matches| Cli::from_arg_matches(&matches)) {
        Ok(cli) => match run::command(cli, argv, surroundings, io) {
            Ok(exit) => exit,
            Err(failure) => fail(failure, argv, io),
        },
        Err(error) if !error.use_stderr() => {
            let color = color_wanted(argv, io.terminal);
            let text = if color { error.render().ansi().to_string() } else { error.render().to_string() };
            match write!(io.out, "{text}") {
                Ok(()) => Exit::Done,
                Err(error) => fail(error.into(), argv, io),
            }
        }
        Err(error) => fail(usage::explain(&error, argv).into(), argv, io),
    }
}

/// Why a command did not end well.
pub(crate) enum Failure {
    /// What was asked failed.
    Api(ApiError),
    /// The answer could not be printed.
    Print(io::Error),
}

impl From<ApiError> for Failure {
    fn from(error: ApiError) -> Failure {
        Failure::Api(error)
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Failure {
        Failure::Print(error)
    }
}

/// Invariant 3. Nobody is left to read what standard error does not take.
fn fail(failure: Failure, argv: &[OsString], io: &mut Io) -> Exit {
    match failure {
        Failure::Api(error) => {
            let hint = error.hint.clone().unwrap_or_else(|| usage::help(argv));
            let message = error.message.replace('\n', " ");
            let _ = writeln!(io.err, "weft: {}\ntry: {}", harmless::line(&message), harmless::line(&hint));
            error.kind.into()
        }
        // Whoever read the answer has read enough.
        Failure::Print(error) if error.kind() == io::ErrorKind::BrokenPipe => Exit::Done,
        Failure::Print(error) => {
            let _ = writeln!(io.err, "weft: cannot print the answer: {error}\ntry: weft status");
            Exit::Other
        }
    }
}

/// `--color` as typed, for what is printed before the command line is understood.
fn color_wanted(argv: &[OsString], terminal: bool) -> bool {
    let words: Vec<&str> = argv.iter().filter_map(|word| word.to_str()).collect();
    let given = |when: &str| {
        words.contains(&format!("--color={when}").as_str()) || words.windows(2).any(|pair| pair == ["--color", when])
    };
    given("always") || terminal && !given("never")
}

fn color(when: When, terminal: bool, surroundings: &Surroundings) -> bool {
    match when {
        When::Always => true,
        When::Never => false,
        When::Auto => terminal && (surroundings.var)("NO_COLOR").is_none_or(|value| value.is_empty()),
    }
}

fn ask_on_terminal(question: &str) -> bool {
    // Who does not see the question does not answer it.
    if write!(io::stderr(), "{} [y/N] ", harmless::line(question)).is_err() {
        return false;
    }
    let mut answer = String::new();
    let read = io::stdin().lock().read_line(&mut answer);
    read.is_ok() && matches!(answer.trim().to_ascii_lowercase().as_str(), "y" | "yes")
}
