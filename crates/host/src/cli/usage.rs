//! Wrong command lines, in the error form: one sentence with the allowed range, one command that would work.

use super::args::Cli;
use crate::api::error::{ApiError, BadValue, Kind};
use crate::api::export::{Address, Place, Terms};
use crate::api::name::VdiskName;
use crate::ops::export::ExportAdd;
use crate::ops::line::{ToLine, quoted};
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Command, CommandFactory, Parser};
use std::error::Error as _;
use std::ffi::OsString;

/// What was wrong with `argv` (the program's name first), and what would work.
pub fn explain(error: &clap::Error, argv: &[OsString]) -> ApiError {
    let typed = Typed::new(argv);
    let text = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => Some(text.clone()),
        Some(ContextValue::Strings(texts)) => texts.first().cloned(),
        _ => None,
    };
    let argument = text(ContextKind::InvalidArg).unwrap_or_default();
    let value = text(ContextKind::InvalidValue).unwrap_or_default();
    let (message, hint) = match error.kind() {
        ErrorKind::ValueValidation => match error.source().and_then(|source| source.downcast_ref::<BadValue>()) {
            Some(bad) => {
                let nearest = || bad.nearest.as_ref().and_then(|nearest| typed.with(&value, nearest));
                (bad.message.clone(), typed.in_two(&value).or_else(nearest))
            }
            None => (format!("`{value}` is no {argument}"), None),
        },
        ErrorKind::InvalidValue if value.is_empty() => (format!("{argument} lacks its value"), None),
        ErrorKind::InvalidValue => {
            let valid = all(error, ContextKind::ValidValue);
            let nearest = text(ContextKind::SuggestedValue).or_else(|| valid.first().cloned());
            let hint = nearest.and_then(|nearest| typed.with(&value, &nearest));
            (format!("`{value}` is no {argument}; {} are", valid.join(", ")), hint)
        }
        ErrorKind::InvalidSubcommand => {
            let given = text(ContextKind::InvalidSubcommand).unwrap_or_default();
            let nearest = text(ContextKind::SuggestedSubcommand);
            let valid: Vec<&str> = typed.command().get_subcommands().map(Command::get_name).collect();
            let message = format!("there is no `{}`; there are {}", typed.path_to(&given), valid.join(", "));
            let nearest = nearest.and_then(|nearest| typed.replaced(&given, &nearest)).filter(|words| is_right(words));
            let nearest = nearest.map(|words| typed.line(&words));
            (message, nearest.or_else(|| typed.below_a_noun(&given)))
        }
        ErrorKind::UnknownArgument => {
            let nearest = text(ContextKind::SuggestedArg).and_then(|nearest| typed.with(&argument, &nearest));
            let hint = nearest.or_else(|| typed.without_flag(&argument));
            (format!("`{}` takes no `{argument}`", typed.path()), hint)
        }
        ErrorKind::MissingRequiredArgument => {
            let missing = all(error, ContextKind::InvalidArg);
            (format!("`{}` also needs {}", typed.path(), missing.join(" and ")), typed.export())
        }
        ErrorKind::MissingSubcommand | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            let valid: Vec<&str> = typed.command().get_subcommands().map(Command::get_name).collect();
            (format!("`{}` does nothing alone; it takes {}", typed.path(), valid.join(", ")), None)
        }
        ErrorKind::ArgumentConflict => {
            let prior = all(error, ContextKind::PriorArg);
            (format!("{argument} and {} exclude each other", prior.join(", ")), typed.without(&argument))
        }
        _ => (first_line(error), None),
    };
    ApiError::new(Kind::InvalidInput, message).hint(hint.unwrap_or_else(|| typed.help()))
}

/// The nearest command when an error names none: the help of the command that was typed.
pub fn help(argv: &[OsString]) -> String {
    Typed::new(argv).help()
}

/// `argv` as it would be typed again, with `more`.
pub fn again(argv: &[OsString], more: &str) -> String {
    let typed = Typed::new(argv);
    format!("{} {more}", typed.line(&typed.argv))
}

/// A command line that was typed.
struct Typed {
    /// Without the program's name.
    argv: Vec<String>,
    /// `weft`, then the subcommands.
    path: Vec<String>,
    root: Command,
}

impl Typed {
    fn new(argv: &[OsString]) -> Typed {
        let root = Cli::command();
        let argv: Vec<String> = argv.iter().skip(1).map(|arg| arg.to_string_lossy().into_owned()).collect();
        let mut path = vec!["weft".to_string()];
        let mut command = &root;
        for word in &argv {
            if let Some(sub) = command.find_subcommand(word) {
                command = sub;
                path.push(sub.get_name().into());
            }
        }
        Typed { argv, path, root }
    }

    fn path(&self) -> String {
        self.path.join(" ")
    }

    fn path_to(&self, word: &str) -> String {
        format!("{} {word}", self.path())
    }

    fn command(&self) -> &Command {
        let mut command = &self.root;
        for name in &self.path[1..] {
            command = command.find_subcommand(name).expect("the path was found in this tree");
        }
        command
    }

    /// The line with `new` in the place of `old`, when that is there.
    fn with(&self, old: &str, new: &str) -> Option<String> {
        self.replaced(old, new).map(|words| self.line(&words))
    }

    /// Replaces `old` in the words of the line, when it is there.
    fn replaced(&self, old: &str, new: &str) -> Option<Vec<String>> {
        let mut replaced = false;
        let words: Vec<String> = self
            .argv
            .iter()
            .map(|word| match word.split_once('=') {
                _ if replaced => word.clone(),
                _ if word == old => {
                    replaced = true;
                    new.into()
                }
                Some((flag, value)) if value == old => {
                    replaced = true;
                    format!("{flag}={new}")
                }
                _ => word.clone(),
            })
            .collect();
        replaced.then_some(words)
    }

    /// The line with `POOL/DISK`, as tables name disks, as the two words that commands about disks take, where it is
    /// right then.
    fn in_two(&self, value: &str) -> Option<String> {
        let (pool, disk) = value.split_once('/').filter(|_| self.path.get(1).is_some_and(|noun| noun == "disk"))?;
        let at = self.argv.iter().position(|word| word == value)?;
        let mut words = self.argv.clone();
        words.splice(at..=at, [pool.to_string(), disk.to_string()]);
        is_right(&words).then(|| self.line(&words))
    }

    /// Leaves a flag that takes no value out of the line.
    fn without(&self, argument: &str) -> Option<String> {
        let rest: Vec<String> = self.argv.iter().filter(|word| *word != argument).cloned().collect();
        (rest.len() < self.argv.len()).then(|| self.line(&rest))
    }

    /// Leaves an unknown flag out of the line, and with it its value where that is no argument by itself; none where
    /// that is wrong, too.
    fn without_flag(&self, flag: &str) -> Option<String> {
        let at = self.argv.iter().position(|word| word.split('=').next() == Some(flag))?;
        let value = self.argv[at].split_once('=').map(|(_, value)| value.to_string());
        let line = |value: Option<String>, from: usize| {
            let rest = self.argv[from.min(self.argv.len())..].iter().cloned();
            self.argv[..at].iter().cloned().chain(value).chain(rest).collect::<Vec<String>>()
        };
        let tried = [line(value, at + 1), line(None, at + 1), line(None, at + 2)];
        tried.into_iter().find(|words| is_right(words)).map(|words| self.line(&words))
    }

    /// The line with the noun that has the verb `given`, where there is one with which it is right.
    fn below_a_noun(&self, given: &str) -> Option<String> {
        let nouns = self.root.get_subcommands().filter(|noun| noun.find_subcommand(given).is_some());
        let below = |noun: &Command| -> Vec<String> {
            std::iter::once(noun.get_name().to_string()).chain(self.argv.iter().cloned()).collect()
        };
        let words = nouns.map(below).find(|words| self.path.len() == 1 && is_right(words))?;
        Some(self.line(&words))
    }

    fn line(&self, words: &[String]) -> String {
        std::iter::once("weft".to_string()).chain(words.iter().map(|word| quoted(word))).collect::<Vec<_>>().join(" ")
    }

    /// The help of the command: an example would be about what nobody typed.
    fn help(&self) -> String {
        format!("{} --help", self.path())
    }

    /// The export of the virtual disk that was typed, where it was not said where: on a socket of its own.
    fn export(&self) -> Option<String> {
        let vdisk: VdiskName = self.argv.iter().skip(self.path.len() - 1).find_map(|word| word.parse().ok())?;
        let place = Place::Nbd(Address::Unix("/run/weft/nbd.sock".into()));
        (self.path[1..] == ["export", "add"]).then(|| ExportAdd::at(&vdisk, place, Terms::default()).line())
    }
}

/// Whether these words after the program's name are understood.
fn is_right(words: &[String]) -> bool {
    Cli::try_parse_from(std::iter::once("weft").chain(words.iter().map(String::as_str))).is_ok()
}

fn all(error: &clap::Error, kind: ContextKind) -> Vec<String> {
    match error.get(kind) {
        Some(ContextValue::Strings(texts)) => texts.clone(),
        Some(ContextValue::String(text)) => vec![text.clone()],
        _ => Vec::new(),
    }
}

fn first_line(error: &clap::Error) -> String {
    let text = error.to_string();
    let line = text.lines().next().unwrap_or_default();
    line.strip_prefix("error: ").unwrap_or(line).into()
}
