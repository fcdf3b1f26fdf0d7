//! Classes of disks that were measured: one file of JSON each, in `classes` of the state directory.
//!
//! Invariant: a file is whole or not there, and a word that names a class of ours names no file.

use crate::api::error::{Answer, ApiError, BadValue, Kind};
use crate::api::validate;
use serde::{Deserialize, Serialize};
use std::io;
use std::path::{Path, PathBuf};
use weft_lab::disks::Class;
use weft_lab::measured::{Figures, Measured};

/// Where the classes lie.
pub struct Classes {
    dir: PathBuf,
}

/// What a file holds.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Kept {
    figures: Figures,
}

impl Classes {
    /// Those of this state directory.
    pub fn of(state: &Path) -> Classes {
        Classes { dir: state.join("classes") }
    }

    /// Keeps figures under a name, in the place of what was kept under it.
    pub fn keep(&self, name: &str, figures: &Figures) -> Answer<PathBuf> {
        let path = self.path(name);
        let json = serde_json::to_string_pretty(&Kept { figures: figures.clone() }).expect("figures have names");
        let half = self.dir.join(format!(".{name}.new"));
        let write = std::fs::create_dir_all(&self.dir)
            .and_then(|()| std::fs::write(&half, json + "\n"))
            .and_then(|()| std::fs::rename(&half, &path));
        write.map_err(|error| {
            let _ = std::fs::remove_file(&half);
            ApiError::new(Kind::NotPossible, format!("{} cannot be written: {error}", path.display()))
                .hint("weft disk measure DISK --json")
        })?;
        Ok(path)
    }

    /// A class of ours, or one that was measured.
    pub fn find(&self, name: &str) -> Answer<Class> {
        let unknown = match name.parse() {
            Ok(class) => return Ok(class),
            Err(unknown) => unknown,
        };
        let path = self.path(name);
        let text = std::fs::read_to_string(&path).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => {
                let message = format!("{unknown}; {}", self.measured());
                ApiError::new(Kind::InvalidInput, message).hint(format!("weft disk measure DISK --name {name}"))
            }
            _ => ApiError::new(Kind::NotPossible, format!("{} cannot be read: {error}", path.display())),
        })?;
        let wrong = |why: String| {
            ApiError::new(Kind::NotPossible, format!("{} is damaged: {why}", path.display()))
                .hint(format!("weft disk measure DISK --name {name}"))
        };
        let kept: Kept = serde_json::from_str(&text).map_err(|error| wrong(error.to_string()))?;
        Measured::fit(name, kept.figures).map(Measured::class).map_err(wrong)
    }

    /// What was measured, in words.
    fn measured(&self) -> String {
        let files = std::fs::read_dir(&self.dir).into_iter().flatten().flatten();
        let mut names: Vec<String> =
            files.filter_map(|file| Some(file.file_name().to_str()?.strip_suffix(".json")?.to_string())).collect();
        names.sort_unstable();
        match names.is_empty() {
            true => "no disk was measured".into(),
            false => format!("measured were {}", names.join(", ")),
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.join(format!("{name}.json"))
    }
}

/// A name that a measured class can have: as names of disks are, and no word that names a class of ours.
pub fn name(text: &str) -> Result<String, BadValue> {
    validate::name(text)?;
    match text.parse::<Class>() {
        Ok(_) => Err(BadValue::new(format!("`{text}` names a class already"), format!("my-{text}"))),
        Err(_) => Ok(text.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weft_lab::measured::{Random, Stream};

    fn figures() -> Figures {
        let random = Random { per_second: 80.0, mean: 12_500_000, p99: 20_000_000 };
        let streams = vec![Stream { at: 0, rate: 200e6 }, Stream { at: 4_000_000_000_000, rate: 100e6 }];
        Figures { size: 4_000_787_030_016, rotational: true, streams, alone: random, together: Some(random) }
    }

    #[test]
    fn what_is_kept_is_found_under_its_name_and_replaced_by_the_next() {
        let dir = tempfile::tempdir().unwrap();
        let classes = Classes::of(dir.path());
        assert!(classes.find("sdb").unwrap_err().message.contains("no disk was measured"));
        classes.keep("sdb", &figures()).unwrap();
        let Class::Measured(found) = classes.find("sdb").unwrap() else { panic!("it was measured") };
        assert_eq!((found.name(), found.figures()), ("sdb", &figures()));
        classes.keep("sdb", &Figures { size: 1 << 40, ..figures() }).unwrap();
        let Class::Measured(found) = classes.find("sdb").unwrap() else { panic!("it was measured") };
        assert_eq!(found.figures().size, 1 << 40);
        assert!(classes.find("sdc").unwrap_err().message.contains("measured were sdb"));
        assert_eq!(classes.find("nvme").unwrap(), Class::Nvme);
    }

    #[test]
    fn a_damaged_file_is_told_and_never_a_class() {
        let dir = tempfile::tempdir().unwrap();
        let classes = Classes::of(dir.path());
        let path = classes.keep("sdb", &figures()).unwrap();
        for damage in ["", "{}", "{\"figures\": {\"size\": 1}}"] {
            std::fs::write(&path, damage).unwrap();
            assert!(classes.find("sdb").unwrap_err().message.contains("is damaged"), "{damage}");
        }
    }

    #[test]
    fn names_are_those_of_disks_and_of_no_class() {
        assert_eq!(name("sdb").unwrap(), "sdb");
        for wrong in ["", "../x", "a/b", "hdd", "10k", "nvme"] {
            assert!(name(wrong).is_err(), "{wrong}");
        }
    }
}
