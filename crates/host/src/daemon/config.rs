//! Where the daemon keeps and finds things: flags first, then the configuration file, then the defaults.

mod waits;

pub use waits::{WaitSettings, Waits};

use crate::api::error::{Answer, ApiError, Kind};
use crate::api::size::Size;
use crate::api::validate;
use crate::ops::line::Line;
use serde::Deserialize;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use weft_engine::units::ByteCount;

/// Where this process runs, as far as the defaults depend on it.
pub struct Surroundings<'a> {
    /// Whether it is the superuser's.
    pub root: bool,
    /// Its environment.
    pub var: &'a dyn Fn(&str) -> Option<OsString>,
}

/// What `weft serve` was told. The configuration file has the same words.
#[derive(Deserialize, Clone, PartialEq, Eq, Default, Debug)]
#[serde(deny_unknown_fields)]
pub struct Settings {
    /// The state directory.
    pub state: Option<PathBuf>,
    /// The control socket.
    pub socket: Option<PathBuf>,
    /// Where to look for disks: directories, files, block devices.
    pub disks: Option<Vec<PathBuf>>,
    /// Open pools that lack a majority of their metadata copies, too.
    pub degraded: Option<bool>,
    /// Memory for its heap.
    pub memory: Option<Size>,
    /// How much of a virtual disk may lie in packed stripes.
    #[serde(rename = "fine-share")]
    pub fine_share: Option<Size>,
    /// How long to wait for disks.
    pub wait: Option<WaitSettings>,
    /// What to do about events.
    pub events: Option<EventSettings>,
}

/// What to do about events.
#[derive(Deserialize, Clone, PartialEq, Eq, Default, Debug)]
#[serde(deny_unknown_fields)]
pub struct EventSettings {
    /// A program that is run for each event, with the event as JSON on its standard input.
    pub hook: Option<PathBuf>,
}

/// What `weft serve` goes by. All paths are absolute.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Options {
    /// The state directory.
    pub state: PathBuf,
    /// The control socket.
    pub socket: PathBuf,
    /// Where to look for disks; all block devices when `None`.
    pub places: Option<Vec<PathBuf>>,
    /// Open pools that lack a majority of their metadata copies, too: what is left may be old.
    pub degraded: bool,
    /// Bytes of its heap; as many as the machine can spare when `None`.
    pub memory: Option<u64>,
    /// How much of a virtual disk may lie in packed stripes, in thousandths of its size; 0: nothing is packed. By what
    /// its disks are when `None`.
    pub fine_share: Option<u64>,
    /// How long to wait for disks.
    pub waits: Waits,
    /// A program that is run for each event.
    pub hook: Option<PathBuf>,
}

impl Settings {
    /// Reads a configuration file.
    pub fn read(path: &Path) -> Answer<Settings> {
        let refused =
            |kind, why: String| {
                ApiError::new(kind, format!("cannot use the configuration {}: {why}", path.display()))
                    .hint(Line::serve(&[("state", &"DIR"), ("socket", &"PATH"), ("disks", &"DIR")]))
            };
        let text = std::fs::read_to_string(path).map_err(|error| match error.kind() {
            std::io::ErrorKind::NotFound => refused(Kind::NotFound, error.to_string()),
            _ => refused(Kind::NotPossible, error.to_string()),
        })?;
        toml::from_str(&text).map_err(|error| {
            let why = error.message().replace('\n', " ");
            refused(
                Kind::InvalidInput,
                format!(
                    "{why}; it knows `state`, `socket`, `disks`, `degraded`, `memory`, `fine-share`, `wait.read`, \
                `wait.write`, `wait.frozen` and `events.hook`"
                ),
            )
        })
    }

    /// What to go by, with `file` and then the defaults for what was not said.
    pub fn resolve(self, file: Settings, surroundings: &Surroundings) -> Answer<Options> {
        let absolute = |path: PathBuf| {
            std::path::absolute(&path)
                .map_err(|error| ApiError::new(Kind::InvalidInput, format!("`{}` is no path: {error}", path.display())))
        };
        let state = match self.state.or(file.state) {
            Some(state) => state,
            None => default_state(surroundings)?,
        };
        let socket = match self.socket.or(file.socket) {
            Some(socket) => socket,
            None => default_socket(surroundings)?,
        };
        let places = self.disks.or(file.disks);
        let hook = self.events.or(file.events).and_then(|events| events.hook);
        Ok(Options {
            state: absolute(state)?,
            socket: absolute(socket)?,
            places: places.map(|places| places.into_iter().map(absolute).collect()).transpose()?,
            degraded: self.degraded.or(file.degraded).unwrap_or(false),
            waits: self.wait.or(file.wait).unwrap_or_default().resolve()?,
            hook: hook.map(absolute).transpose()?,
            memory: self.memory.or(file.memory).map(memory).transpose()?,
            fine_share: self.fine_share.or(file.fine_share).map(fine_share).transpose()?,
        })
    }
}

fn memory(asked: Size) -> Answer<u64> {
    match asked {
        Size::Bytes(bytes) => Ok(validate::memory(bytes).map(|()| bytes.0)?),
        share => {
            Err(ApiError::new(Kind::InvalidInput, format!("`{share}` is no amount of memory; 64MiB and more are"))
                .hint(Line::serve(&[("memory", &"256MiB")])))
        }
    }
}

impl Options {
    /// What may lie in packed stripes of a virtual disk that has no share of its own, and of one on disks that do not
    /// seek, in thousandths.
    pub fn fine_shares(&self) -> (u64, u64) {
        self.fine_share.map_or((FINE_SHARE, FINE_SHARE_FLASH), |share| (share, share))
    }
}

/// What may lie in packed stripes of a virtual disk unless somebody says otherwise, in thousandths.
const FINE_SHARE: u64 = 100;
/// What may on disks that do not seek, where there is ample room.
const FINE_SHARE_FLASH: u64 = 250;

/// Thousandths.
fn fine_share(asked: Size) -> Answer<u64> {
    match asked {
        Size::Percent(share @ 1..=50) => Ok(u64::from(share) * 10),
        Size::Bytes(ByteCount::ZERO) => Ok(0),
        other => {
            let what = format!("`{other}` is no share of a virtual disk for small writes; 1% to 50% are, and 0");
            Err(ApiError::new(Kind::InvalidInput, what).hint(Line::serve(&[("fine-share", &"10%")])))
        }
    }
}

/// The control socket when none was said: `WEFT_SOCKET`, else by who we are.
pub fn default_socket(surroundings: &Surroundings) -> Answer<PathBuf> {
    let var = |name| (surroundings.var)(name).filter(|value| !value.is_empty());
    if let Some(socket) = var("WEFT_SOCKET") {
        return Ok(socket.into());
    }
    if surroundings.root {
        return Ok("/run/weft/weft.sock".into());
    }
    match var("XDG_RUNTIME_DIR") {
        Some(dir) => Ok(Path::new(&dir).join("weft.sock")),
        None => Err(ApiError::new(Kind::InvalidInput, "no socket was named, and XDG_RUNTIME_DIR is not set")
            .hint("WEFT_SOCKET=PATH weft status")),
    }
}

/// Where a daemon remembers things, unless it is told.
pub fn default_state(surroundings: &Surroundings) -> Answer<PathBuf> {
    let var = |name| (surroundings.var)(name).filter(|value| !value.is_empty());
    if surroundings.root {
        return Ok("/var/lib/weft".into());
    }
    if let Some(dir) = var("XDG_STATE_HOME") {
        return Ok(Path::new(&dir).join("weft"));
    }
    match var("HOME") {
        Some(home) => Ok(Path::new(&home).join(".local/state/weft")),
        None => Err(ApiError::new(Kind::InvalidInput, "no state directory was named, and HOME is not set")
            .hint(Line::serve(&[("state", &"DIR")]))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn surroundings<'a>(root: bool, var: &'a dyn Fn(&str) -> Option<OsString>) -> Surroundings<'a> {
        Surroundings { root, var }
    }

    #[test]
    fn defaults_depend_on_who_serves() {
        let nothing = |_: &str| None;
        let root = Settings::default().resolve(Settings::default(), &surroundings(true, &nothing)).unwrap();
        assert_eq!(root.state, Path::new("/var/lib/weft"));
        assert_eq!(root.socket, Path::new("/run/weft/weft.sock"));
        let user = |name: &str| match name {
            "XDG_RUNTIME_DIR" => Some("/run/user/7".into()),
            "HOME" => Some("/home/u".into()),
            _ => None,
        };
        let user = Settings::default().resolve(Settings::default(), &surroundings(false, &user)).unwrap();
        assert_eq!(user.state, Path::new("/home/u/.local/state/weft"));
        assert_eq!(user.socket, Path::new("/run/user/7/weft.sock"));
        assert!(Settings::default().resolve(Settings::default(), &surroundings(false, &nothing)).is_err());
    }

    #[test]
    fn flags_win_over_the_file_and_the_file_over_the_environment() {
        let var = |name: &str| (name == "WEFT_SOCKET").then(|| "/env.sock".into());
        let file =
            || Settings { socket: Some("/file.sock".into()), disks: Some(vec!["/srv".into()]), ..Settings::default() };
        let flags = Settings { socket: Some("/flag.sock".into()), ..Settings::default() };
        let options = flags.resolve(file(), &surroundings(true, &var)).unwrap();
        assert_eq!((options.socket, options.places), ("/flag.sock".into(), Some(vec!["/srv".into()])));
        let options = Settings::default().resolve(file(), &surroundings(true, &var)).unwrap();
        assert_eq!(options.socket, Path::new("/file.sock"));
        let options = Settings::default().resolve(Settings::default(), &surroundings(true, &var)).unwrap();
        assert_eq!(options.socket, Path::new("/env.sock"));
    }

    #[test]
    fn the_sample_has_every_word_that_is_known_with_the_values_that_hold_unless_said() {
        let sample = include_str!("../../../../dist/weft.toml");
        let said = |line: &str| {
            let line = line.strip_prefix("# ").unwrap_or(line);
            line.split_once(" = ").filter(|(word, _)| !word.contains(' ')).map(|_| line.to_string())
        };
        let settings: Settings =
            toml::from_str(&sample.lines().filter_map(said).collect::<Vec<_>>().join("\n")).unwrap();
        // Whoever adds a word is told here.
        let Settings { state, socket, disks, degraded, memory, fine_share, wait, events } = settings;
        assert_eq!(state.as_deref(), Some(Path::new("/var/lib/weft")));
        assert_eq!(socket.as_deref(), Some(Path::new("/run/weft/weft.sock")));
        assert!(disks.is_some() && degraded == Some(false) && memory.is_some());
        assert_eq!(fine_share.map(super::fine_share), Some(Ok(FINE_SHARE)));
        let wait = wait.unwrap();
        assert!(wait.read.is_some() && wait.write.is_some() && wait.frozen.is_some());
        assert_eq!(wait.resolve().unwrap(), Waits::default());
        assert!(events.is_some_and(|events| events.hook.is_some()));
    }

    #[test]
    fn a_share_for_small_writes_is_a_percentage_up_to_half() {
        for (text, thousandths) in [("0", Some(0)), ("1%", Some(10)), ("50%", Some(500)), ("51%", None), ("1GiB", None)]
        {
            let share: Size = text.parse().unwrap();
            assert_eq!(fine_share(share).ok(), thousandths, "{text}");
        }
        let resolve = |fine_share: Option<&str>| {
            let settings = Settings { fine_share: fine_share.map(|text| text.parse().unwrap()), ..Settings::default() };
            settings.resolve(Settings::default(), &surroundings(true, &|_| None)).unwrap()
        };
        assert_eq!(resolve(None).fine_shares(), (FINE_SHARE, FINE_SHARE_FLASH));
        assert_eq!(resolve(Some("10%")).fine_shares(), (100, 100), "what was said holds for all");
    }

    #[test]
    fn an_unknown_word_in_the_file_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("weft.toml");
        std::fs::write(&path, "disks = [\"/srv\"]\nsokcet = \"/x\"\n").unwrap();
        let error = Settings::read(&path).unwrap_err();
        assert_eq!(error.kind, Kind::InvalidInput);
        assert!(error.message.contains("sokcet"), "{error}");
        std::fs::write(&path, "disks = [\"/srv\"]\n").unwrap();
        assert_eq!(Settings::read(&path).unwrap().disks, Some(vec!["/srv".into()]));
        std::fs::write(&path, "memory = \"200MiB\"\n").unwrap();
        let memory = |settings: Settings| settings.resolve(Settings::default(), &surroundings(true, &|_| None));
        assert_eq!(memory(Settings::read(&path).unwrap()).unwrap().memory, Some(200 << 20));
        for (wrong, nearest) in [("1MiB", "64MiB"), ("10%", "64MiB"), ("100000001", "64MiB")] {
            std::fs::write(&path, format!("memory = \"{wrong}\"\n")).unwrap();
            let error = memory(Settings::read(&path).unwrap()).unwrap_err();
            assert!(error.kind == Kind::InvalidInput && error.message.contains(nearest), "{error}");
        }
        std::fs::write(&path, "disks = [\"/srv\"]\n[events]\nhook = \"/usr/bin/tell\"\n").unwrap();
        let events = Settings::read(&path).unwrap().events;
        assert_eq!(events, Some(EventSettings { hook: Some("/usr/bin/tell".into()) }));
    }
}
