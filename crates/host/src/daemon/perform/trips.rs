//! How often an operation waits for the engine's thread: one look at what there is, one question whether it can be, and
//! one trip for each thing that it does, however many disks it is about.

use crate::api::job::StartKind;
use crate::api::name::VdiskName;
use crate::api::pool::Usage;
use crate::api::size::Size;
use crate::daemon::config::Options;
use crate::daemon::engine::TRIPS;
use crate::daemon::{self, Daemon, Running};
use crate::ops::disk::{DiskAdd, DiskReplace};
use crate::ops::job::JobStart;
use crate::ops::pool::{PoolCreate, PoolExport, PoolImport, PoolList, PoolRemove, PoolRename};
use crate::ops::settings::{DiskSet, PoolSet};
use crate::ops::vdisk::{VdiskCreate, VdiskRemove, VdiskRename, VdiskResize, VdiskShow};
use crate::ops::{Changing, Operation, Perform};
use std::path::PathBuf;
use tempfile::TempDir;
use weft_engine::store::Tuning;
use weft_engine::units::ByteCount;

const SLAB: Option<Size> = Some(Size::Bytes(ByteCount::mib(1)));
const FILES: Option<Size> = Some(Size::Bytes(ByteCount::mib(64)));

struct Machine {
    dir: TempDir,
    running: Running,
}

impl Machine {
    fn new() -> Machine {
        let dir = tempfile::tempdir().unwrap();
        let options = Options {
            state: dir.path().join("state"),
            socket: dir.path().join("weft.sock"),
            places: Some(Vec::new()),
            degraded: false,
            memory: None,
            fine_share: Some(0),
            waits: Default::default(),
            hook: None,
        };
        let running = daemon::start(&options, daemon::parts(Tuning::default()).unwrap()).unwrap();
        Machine { dir, running }
    }

    fn disks(&self, names: &[&str]) -> Vec<PathBuf> {
        names.iter().map(|name| self.dir.path().join(name)).collect()
    }

    /// How often an operation that works waits for the engine.
    fn trips<O: Operation>(&self, operation: &O) -> usize
    where
        Daemon: Perform<O>,
    {
        let before = TRIPS.get();
        self.running.daemon.perform(operation).map(drop).unwrap();
        TRIPS.get() - before
    }
}

#[test]
fn an_operation_takes_one_look_asks_once_whether_it_can_be_and_makes_one_trip_for_each_thing_it_does() {
    let machine = Machine::new();
    let pool = || "p".to_string();
    let disks = machine.disks(&["d1", "d2", "d3"]);
    let create = PoolCreate { disks, create_size: FILES, slab_size: SLAB, ..PoolCreate::some("p") };
    let add = DiskAdd { pool: pool(), disks: machine.disks(&["d4", "d5"]), create_size: FILES, ..DiskAdd::default() };
    let by = machine.disks(&["d6"])[0].display().to_string();
    let replace = DiskReplace { pool: pool(), disk: "d2".into(), by, create_size: FILES, ..DiskReplace::default() };
    let set = DiskSet { pool: pool(), disk: "d5".into(), ..DiskSet::default() };
    let set = DiskSet { usage: Some(Usage::Journal), name: Some("e5".into()), maintenance: Some(true), ..set };
    let rename = PoolRename { pool: pool(), name: "q".into(), changing: Changing::default() };
    let dry = Changing::DRY;
    assert_eq!(machine.trips(&PoolCreate { changing: dry, ..create.clone() }), 1, "a look");
    assert_eq!(machine.trips(&create), 2, "a look, and a pool");
    assert_eq!(machine.trips(&DiskAdd { changing: dry, ..add.clone() }), 2, "a look, and a question for all disks");
    assert_eq!(machine.trips(&add), 4, "a look, a question, and two disks");
    assert_eq!(machine.trips(&DiskReplace { changing: dry, ..replace.clone() }), 2, "a look, and a question");
    assert_eq!(machine.trips(&replace), 4, "a look, a question, a disk, and a job");
    assert_eq!(machine.trips(&DiskSet { changing: dry, ..set.clone() }), 2, "a look, and a question");
    assert_eq!(machine.trips(&set), 3, "a look, a question, and all of the change");
    assert_eq!(machine.trips(&rename), 2, "a look, and a name");
    machine.running.stop().unwrap();
}

#[test]
fn what_lives_on_the_disks_takes_one_look_and_one_trip() {
    let machine = Machine::new();
    let pool = || "p".to_string();
    let vdisk = |name: &str| VdiskName { pool: "p".into(), vdisk: name.into() };
    let size = |mib| Size::Bytes(ByteCount::mib(mib));
    let disks = machine.disks(&["d1", "d2", "d3"]);
    machine.trips(&PoolCreate { disks, create_size: FILES, slab_size: SLAB, ..PoolCreate::some("p") });
    assert_eq!(machine.trips(&PoolList {}), 1, "a look");
    let create = VdiskCreate::new(vdisk("v"), size(4));
    assert_eq!(machine.trips(&VdiskCreate { changing: Changing::DRY, ..create.clone() }), 2, "a look, and a plan");
    assert_eq!(machine.trips(&create), 2, "a look, and a virtual disk");
    assert_eq!(machine.trips(&VdiskShow { vdisk: vdisk("v") }), 1, "a look");
    let resize = VdiskResize { vdisk: vdisk("v"), size: size(8), changing: Changing::default() };
    assert_eq!(machine.trips(&resize), 2, "a look, and a size");
    assert_eq!(machine.trips(&VdiskRename::to(&vdisk("v"), "w")), 2, "a look, and a name");
    let set = PoolSet { pool: pool(), foreground_share: Some(20), ..PoolSet::default() };
    assert_eq!(machine.trips(&set), 2, "a look, and the settings");
    assert_eq!(machine.trips(&JobStart::of("p", StartKind::Scrub)), 2, "a look, and a job");
    let remove = VdiskRemove { vdisk: vdisk("w"), changing: Changing::default() };
    assert_eq!(machine.trips(&remove), 2, "a look, and the removal");
    let export = PoolExport::of("p");
    assert_eq!(machine.trips(&export), 4, "two looks, the closing, and a look for what can be imported");
    assert_eq!(machine.trips(&PoolImport::of("p")), 5, "two looks, the opening, names, and a look at the pool");
    let remove = PoolRemove { pool: pool(), changing: Changing::default() };
    assert_eq!(machine.trips(&remove), 2, "a look, and the removal");
    machine.running.stop().unwrap();
}
