//! What the daemon remembers beside the pools: its exports, where it saw the members of its pools, and which pools a
//! person closed.
//!
//! Invariants
//! 1. The file is replaced whole and durably: after a crash it is the old one or the new one.
//! 2. What it says about disks is a hint where to look. Disks are known by their labels only.
//! 3. It is for the owner of this process only, and what somebody else put in its place is not followed.

use crate::api::error::{Answer, ApiError, BadValue, Kind};
use crate::api::export::{Address, Network, Place, SocketMode, SocketOwner, Terms};
use crate::api::mount::MountInfo;
use crate::api::name::VdiskName;
use crate::ops::line::{Line, on_path, quoted};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

const VERSION: u32 = 1;

/// What is remembered.
#[derive(Serialize, Deserialize, Clone, PartialEq, Eq, Debug)]
#[serde(deny_unknown_fields)]
pub struct State {
    version: u32,
    /// The exports, in the order they were added.
    pub exports: Vec<ExportRecord>,
    /// Members of pools that were made on disks outside the daemon's own places.
    pub disks: Vec<PathBuf>,
    /// The pools that were open here.
    #[serde(default)]
    pub pools: Vec<PoolRecord>,
    /// The mounted virtual disks, in the order they were mounted.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub mounts: Vec<MountInfo>,
}

/// A pool that was open here.
#[derive(Serialize, Deserialize, Clone, PartialEq, Eq, Debug)]
#[serde(deny_unknown_fields)]
pub struct PoolRecord {
    /// Its identity, 32 hexadecimal digits.
    pub id: String,
    /// Its name when it was last open.
    pub name: String,
    /// How a person wants it.
    pub wanted: Wanted,
    /// When it was first open here, in seconds since 1970 UTC.
    pub since: u64,
    /// Its disks when it was last open.
    pub disks: Vec<MemberRecord>,
    /// What its disks are called by their numbers, and what those were that left it: jobs that ended speak of them.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub names: BTreeMap<u16, String>,
}

/// How a person wants a pool.
#[derive(Serialize, Deserialize, Clone, Copy, PartialEq, Eq, Debug)]
#[serde(rename_all = "kebab-case")]
pub enum Wanted {
    /// Open, as any pool that is found.
    Open,
    /// Open, but nothing is written to it.
    ReadOnly,
    /// Open for reading only, although more of its disks are missing than it can be sure without.
    ReadOnlyDegraded,
    /// Not open until it is imported.
    Closed,
}

/// A disk of a pool that was open here.
#[derive(Serialize, Deserialize, Clone, PartialEq, Eq, Debug)]
#[serde(deny_unknown_fields)]
pub struct MemberRecord {
    /// Its identity, 32 hexadecimal digits.
    pub id: String,
    /// Its name within the pool.
    pub name: String,
    /// Where it was last seen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<PathBuf>,
}

/// One export.
#[derive(Serialize, Deserialize, Clone, PartialEq, Eq, Debug)]
#[serde(try_from = "ExportInFile", into = "ExportInFile")]
pub struct ExportRecord {
    /// The virtual disk.
    pub vdisk: VdiskName,
    /// Where it is offered.
    pub at: Place,
    /// How.
    pub terms: Terms,
}

impl ExportRecord {
    /// Whether it is the private export of `mount`.
    pub fn is_of(&self, mount: &MountInfo) -> bool {
        self.vdisk == mount.vdisk && mount.place().is_some_and(|place| place == self.at)
    }
}

/// An export as the file has it: with one of the three places. Files of versions that knew only NBD read the same.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct ExportInFile {
    vdisk: VdiskName,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    nbd: Option<Address>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    fuse: Option<PathBuf>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    ublk: Option<u32>,
    #[serde(default, skip_serializing_if = "is_unset")]
    read_only: bool,
    #[serde(default, skip_serializing_if = "is_unset")]
    shared: bool,
    #[serde(default, skip_serializing_if = "is_unset")]
    allow_any: bool,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    allow: Vec<Network>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    mode: Option<SocketMode>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    owner: Option<SocketOwner>,
}

fn is_unset(flag: &bool) -> bool {
    !flag
}

impl TryFrom<ExportInFile> for ExportRecord {
    type Error = BadValue;

    fn try_from(file: ExportInFile) -> Result<ExportRecord, BadValue> {
        let ExportInFile { vdisk, nbd, fuse, ublk, read_only, shared, allow_any, allow, mode, owner } = file;
        let terms = Terms { read_only, shared, allow_any, allow, mode, owner };
        Ok(ExportRecord { vdisk, at: Place::one_of(nbd, fuse, ublk)?, terms })
    }
}

impl From<ExportRecord> for ExportInFile {
    fn from(record: ExportRecord) -> ExportInFile {
        let (nbd, fuse, ublk) = record.at.fields();
        let Terms { read_only, shared, allow_any, allow, mode, owner } = record.terms;
        ExportInFile { vdisk: record.vdisk, nbd, fuse, ublk, read_only, shared, allow_any, allow, mode, owner }
    }
}

/// The directory the state lives in.
pub struct StateDir {
    dir: PathBuf,
}

impl Default for State {
    fn default() -> State {
        State { version: VERSION, exports: Vec::new(), disks: Vec::new(), pools: Vec::new(), mounts: Vec::new() }
    }
}

impl StateDir {
    /// Opens `dir`, making it when it is missing.
    pub fn open(dir: &Path) -> Answer<StateDir> {
        let made = fs::DirBuilder::new().recursive(true).mode(0o700).create(dir);
        made.map_err(|error| failed("make the state directory", dir, &error))?;
        Ok(StateDir { dir: dir.into() })
    }

    /// The directory.
    pub fn path(&self) -> &Path {
        &self.dir
    }

    /// What was saved last; nothing when nothing was.
    pub fn load(&self) -> Answer<State> {
        let path = self.file();
        let bytes = match fs::read(&path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(State::default()),
            Err(error) => return Err(failed("read", &path, &error)),
        };
        let state: State = serde_json::from_slice(&bytes).map_err(|error| unusable(&path, &error.to_string()))?;
        if state.version != VERSION {
            return Err(unusable(&path, &format!("version {}; this weft reads {VERSION}", state.version)));
        }
        Ok(state)
    }

    /// Saves `state` (invariant 1).
    pub fn save(&self, state: &State) -> Answer<()> {
        let (path, fresh) = (self.file(), self.dir.join("state.json.new"));
        let text = serde_json::to_vec_pretty(state).expect("the state has string keys only");
        let write = || {
            // One that a crash left, or a link that leads elsewhere, is not written into.
            match fs::remove_file(&fresh) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
            let mut file = File::options().write(true).create_new(true).mode(0o600).open(&fresh)?;
            file.write_all(&text)?;
            file.sync_all()?;
            fs::rename(&fresh, &path)?;
            File::open(&self.dir)?.sync_all()
        };
        write().map_err(|error| failed("save", &path, &error))
    }

    fn file(&self) -> PathBuf {
        self.dir.join("state.json")
    }
}

fn failed(what: &str, path: &Path, error: &io::Error) -> ApiError {
    let kind = match error.kind() {
        io::ErrorKind::PermissionDenied => Kind::NotPossible,
        io::ErrorKind::StorageFull => Kind::NoSpace,
        _ => Kind::Internal,
    };
    ApiError::new(kind, format!("cannot {what} {}: {error}", path.display())).hint(Line::serve(&[("state", &"DIR")]))
}

fn unusable(path: &Path, why: &str) -> ApiError {
    let shown = path.display();
    let aside = format!("{} && weft serve", quoted(&format!("{shown}.bad")));
    ApiError::new(Kind::Corrupt, format!("{shown} is not as weft wrote it: {why}"))
        .hint(format!("{} {aside}", on_path("mv", path)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state() -> State {
        let at = |at| ExportRecord { vdisk: "tank/media".parse().unwrap(), at, terms: Terms::default() };
        let (mode, owner) = ("660".parse().ok(), ":disk".parse().ok());
        let allow = vec!["10.0.0.0/8".parse().unwrap(), "::1".parse().unwrap()];
        let terms = Terms { read_only: true, shared: true, allow_any: true, allow, mode, owner };
        let exports = vec![
            at(Place::Nbd("unix:/run/nbd".parse().unwrap())),
            ExportRecord { terms, ..at(Place::Fuse("/srv/fuse".into())) },
            at(Place::Ublk(3)),
        ];
        let member = MemberRecord { id: "1d".into(), name: "d1".into(), path: Some("/srv/d1".into()) };
        let pool = PoolRecord {
            id: "1".into(),
            name: "tank".into(),
            wanted: Wanted::Closed,
            since: 7,
            disks: vec![member],
            names: BTreeMap::from([(3, "gone".into())]),
        };
        State { exports, disks: vec!["/srv/d1".into()], pools: vec![pool], ..State::default() }
    }

    #[test]
    fn what_was_saved_is_loaded() {
        let dir = tempfile::tempdir().unwrap();
        let state_dir = StateDir::open(&dir.path().join("deep/state")).unwrap();
        assert_eq!(state_dir.load().unwrap(), State::default());
        state_dir.save(&state()).unwrap();
        assert_eq!(state_dir.load().unwrap(), state());
    }

    #[test]
    fn what_an_older_weft_saved_is_loaded() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("state.json"), "{\"version\":1,\"exports\":[],\"disks\":[\"/srv/d1\"]}").unwrap();
        let state = StateDir::open(dir.path()).unwrap().load().unwrap();
        assert_eq!((state.disks, state.pools), (vec![PathBuf::from("/srv/d1")], Vec::new()));
    }

    #[test]
    fn a_file_of_a_version_that_knew_only_nbd_is_read_and_an_export_without_a_place_is_not() {
        let old = r#"{"version":1,"exports":[{"vdisk":"tank/media","nbd":"unix:/run/nbd"}],"disks":[]}"#;
        let read: State = serde_json::from_str(old).unwrap();
        assert_eq!(read.exports, state().exports[..1]);
        assert_eq!(serde_json::to_string(&read.exports[0]).unwrap(), r#"{"vdisk":"tank/media","nbd":"unix:/run/nbd"}"#);
        assert!(serde_json::from_str::<State>(&old.replace(r#","nbd":"unix:/run/nbd""#, "")).is_err());
    }

    #[test]
    fn what_is_saved_is_for_the_owner_only_and_a_link_in_its_place_leads_nowhere() {
        use std::os::unix::fs::{PermissionsExt, symlink};
        let dir = tempfile::tempdir().unwrap();
        let state_dir = StateDir::open(&dir.path().join("state")).unwrap();
        let precious = dir.path().join("precious");
        fs::write(&precious, "data").unwrap();
        symlink(&precious, state_dir.path().join("state.json.new")).unwrap();
        state_dir.save(&state()).unwrap();
        assert_eq!(fs::read(&precious).unwrap(), b"data");
        for path in [state_dir.path().to_path_buf(), state_dir.path().join("state.json")] {
            assert_eq!(fs::symlink_metadata(&path).unwrap().permissions().mode() & 0o077, 0, "{path:?}");
        }
    }

    #[test]
    fn a_half_written_successor_is_ignored() {
        let dir = tempfile::tempdir().unwrap();
        let state_dir = StateDir::open(dir.path()).unwrap();
        state_dir.save(&state()).unwrap();
        fs::write(dir.path().join("state.json.new"), b"{\"vers").unwrap();
        assert_eq!(state_dir.load().unwrap(), state());
    }

    #[test]
    fn a_damaged_state_is_refused_by_name() {
        let dir = tempfile::tempdir().unwrap();
        let state_dir = StateDir::open(dir.path()).unwrap();
        for text in ["{", "{\"version\":2,\"exports\":[],\"disks\":[]}", ""] {
            fs::write(dir.path().join("state.json"), text).unwrap();
            let error = state_dir.load().unwrap_err();
            assert_eq!(error.kind, Kind::Corrupt);
            assert!(error.message.contains("state.json"), "{error}");
        }
    }
}
