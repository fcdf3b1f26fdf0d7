//! Operations as the command lines that ask for them.

use super::{Changing, Verb};
use crate::api::error::ApiError;
use clap::{Args, Command};
use serde_json::Value;
use std::fmt::Display;
use std::path::Path;

/// An operation that prints itself as people would type it: a hint.
pub trait ToLine {
    /// The command line.
    fn line(&self) -> String;
}

/// Prints what was set: an argument is called like the field that it fills.
impl<V: Verb + Args> ToLine for V {
    fn line(&self) -> String {
        let mut operation = self.clone();
        // How to change it is said by whoever types it.
        operation.changing().into_iter().for_each(|changing| *changing = Changing::default());
        let mut said = serde_json::to_value(&operation).expect("operations have string keys only");
        if let (Value::Object(said), parts) = (&mut said, V::FIELDS.iter().zip(self.words())) {
            said.extend(parts.map(|(name, part)| (name.to_string(), part.into())));
            said.extend(self.beside().into_iter().map(|(name, said)| (name.to_string(), said)));
        }
        let command = V::augment_args(Command::new("weft"));
        let (mut words, mut flags) = (Line::new(self.verb()), Line::default());
        for argument in command.get_arguments() {
            let value = said.get(argument.get_id().as_str()).unwrap_or(&Value::Null);
            match argument.get_long() {
                Some(long) => flags = flags.flag(long, value),
                None => words = each(value).into_iter().fold(words, Line::word),
            }
        }
        words.and(flags).into()
    }
}

impl ApiError {
    /// Offers an operation as the nearest that would work.
    pub fn offer(self, operation: &impl ToLine) -> ApiError {
        self.hint(operation.line())
    }
}

/// A command line that is put together word by word.
#[derive(Clone, Default, Debug)]
pub struct Line(Vec<String>);

impl Line {
    /// The line that begins with `verb`, which may be several words.
    pub fn new(verb: &str) -> Line {
        Line(vec![format!("weft {verb}")])
    }

    /// Adds a word.
    pub fn word(mut self, word: impl Display) -> Line {
        self.0.push(quoted(&word.to_string()));
        self
    }

    /// The line that starts a daemon with these flags, each with its value.
    pub fn serve(flags: &[(&str, &dyn Display)]) -> Line {
        flags.iter().fold(Line::new("serve"), |line, (long, value)| line.word(format!("--{long}")).word(value))
    }

    /// Adds a flag with its value, once for each of several; none where there is no value.
    fn flag(self, long: &str, value: &Value) -> Line {
        match value {
            Value::Bool(true) => self.word(format!("--{long}")),
            Value::Bool(false) => self,
            value => each(value).into_iter().fold(self, |line, value| line.word(format!("--{long}")).word(value)),
        }
    }

    fn and(mut self, other: Line) -> Line {
        self.0.extend(other.0);
        self
    }
}

impl From<Line> for String {
    fn from(line: Line) -> String {
        line.0.join(" ")
    }
}

/// A command of another program that ends with a path.
pub(crate) fn on_path(command: &str, path: &Path) -> String {
    format!("{command} {}", quoted(&path.display().to_string()))
}

/// A word as a shell takes it.
pub(crate) fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_alphanumeric() || "-_./:,=%+@[]".contains(c);
    if !word.is_empty() && word.chars().all(plain) { word.into() } else { format!("'{}'", word.replace('\'', r"'\''")) }
}

/// The words of one value: none, one, or those of a list.
fn each(value: &Value) -> Vec<String> {
    match value {
        Value::Null => Vec::new(),
        Value::Array(several) => several.iter().flat_map(each).collect(),
        Value::String(text) => vec![text.clone()],
        other => vec![other.to_string()],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::export::{Place, Terms};
    use crate::api::job::{JobAction, StartKind};
    use crate::api::size::Size;
    use crate::api::vdisk::{Provisioning, Resiliency};
    use crate::cli::args::Cli;
    use crate::ops::disk::{DiskAdd, DiskRemove, DiskReplace};
    use crate::ops::export::{ExportAdd, ExportRemove};
    use crate::ops::job::{JobStart, JobSteer};
    use crate::ops::pool::{PoolCreate, PoolImport, PoolRename};
    use crate::ops::settings::{DiskSet, PoolSet};
    use crate::ops::vdisk::{VdiskCreate, VdiskRename};
    use clap::Parser;

    #[test]
    fn an_operation_prints_the_command_that_asks_for_it() {
        let media = "tank/media".parse().unwrap();
        let create = VdiskCreate::new(media, Size::Percent(90)).with(Resiliency::Parity { parity: 2 });
        let fixed = VdiskCreate { columns: Some(6), provisioning: Provisioning::Fixed, ..create };
        let vdisk = &fixed.name;
        let some = PoolCreate { force: true, slab_size: Some(Size::Max), ..PoolCreate::some("tank") };
        let set: DiskSet = "maintenance=off".parse().unwrap();
        let set = DiskSet::of("tank", "d1").and(set);
        let at = |place: &str| ExportAdd::at(vdisk, Place::Nbd(place.parse().unwrap()), Terms::default());
        let lines = [
            (
                fixed.line(),
                "weft vdisk create tank/media --size 90% --resiliency parity --failures 2 --columns 6 --fixed",
            ),
            (VdiskRename::to(vdisk, "films").line(), "weft vdisk rename tank/media films"),
            (some.line(), "weft pool create tank DISK... --slab-size max --force"),
            (PoolRename::to("tank", "pond").line(), "weft pool rename tank pond"),
            (PoolImport { degraded: true, ..PoolImport::of("tank") }.line(), "weft pool import tank --degraded"),
            (PoolSet::of("tank").and("full=60,70,80".parse().unwrap()).line(), "weft pool set tank full=60,70,80"),
            (DiskAdd::some("tank").line(), "weft disk add tank DISK"),
            (DiskRemove { force: true, ..DiskRemove::of("tank", "d1") }.line(), "weft disk remove tank d1 --force"),
            (DiskReplace::some("tank", "d1").line(), "weft disk replace tank d1 DISK"),
            (set.line(), "weft disk set tank d1 maintenance=off"),
            (JobStart::of("tank", StartKind::Repair).line(), "weft repair tank"),
            (JobSteer::of("tank/3", JobAction::Resume).line(), "weft job resume tank/3"),
            (at("tcp:[::1]:1").line(), "weft export add tank/media --nbd tcp:[::1]:1"),
            (ExportRemove::at(vdisk, Place::Ublk(3)).line(), "weft export remove tank/media --ublk 3"),
        ];
        for (line, expected) in lines {
            assert_eq!(line, expected);
        }
        let parsed = Cli::try_parse_from(fixed.line().split(' ')).unwrap();
        assert!(format!("{:?}", parsed.command).contains("columns: Some(6)"), "{parsed:?}");
    }

    #[test]
    fn a_line_that_starts_a_daemon_is_understood_and_quotes_its_paths() {
        let line: String = Line::serve(&[("socket", &"/run/my weft.sock"), ("memory", &"256MiB")]).into();
        assert_eq!(line, "weft serve --socket '/run/my weft.sock' --memory 256MiB");
        for flag in ["state", "socket", "disks", "memory", "fine-share"] {
            let line: String = Line::serve(&[(flag, &if flag == "fine-share" { "10%" } else { "256MiB" })]).into();
            assert!(Cli::try_parse_from(line.split(' ')).is_ok(), "{line}");
        }
    }

    #[test]
    fn what_a_shell_would_take_apart_is_quoted_and_a_dry_run_is_not_offered_again() {
        let disks = vec!["/srv/my disks/it's".into()];
        let add = DiskAdd { disks, changing: Changing::DRY, ..DiskAdd::some("tank") };
        assert_eq!(add.line(), r"weft disk add tank '/srv/my disks/it'\''s'");
    }
}
