//! What a pool is called that is found on disks which do not agree: what the newest label says that can be true, to
//! whoever asks.

use crate::machine::Machine;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use weft_engine::format::label::Label;

/// The names of the pools that could be imported, and of the pools that `disk list` tells of.
fn names(machine: &Machine) -> (Vec<String>, Vec<String>) {
    let all = |line: &[&str], key: &str| -> Vec<String> {
        let found = machine.json(line);
        found.as_array().unwrap().iter().filter_map(|one| one[key].as_str().map(String::from)).collect()
    };
    (all(&["pool", "import"], "name"), all(&["disk", "list"], "pool"))
}

#[test]
fn a_pool_that_was_renamed_while_a_disk_was_away_is_found_by_its_new_name() {
    let mut machine = Machine::new();
    machine.typed("pool create old $D/d1 $D/d2 $D/d3 --create-size 64MiB --slab-size 1MiB");
    machine.stop();
    machine.hide("d1");
    machine.start();
    machine.typed("pool rename old new");
    machine.typed("pool export new");
    machine.show("d1");
    assert_eq!(names(&machine), (vec!["new".into()], vec!["new".into(); 3]));
    machine.typed("pool import new");
}

#[test]
fn a_label_whose_counters_cannot_be_is_not_the_newest() {
    let machine = Machine::new();
    machine.typed("pool create p $D/d1 --create-size 64MiB --slab-size 1MiB");
    machine.typed("pool export p");
    let slot = &fs::read(machine.disk("d1")).unwrap()[..4096];
    let label = Label::decode(slot).unwrap().unwrap();
    let forged = Label { pool_name: "forged".into(), serial: 1 << 61, ..label };
    File::options().write(true).open(machine.disk("d1")).unwrap().write_all_at(&forged.encode().0, 0).unwrap();
    assert_eq!(names(&machine), (vec!["p".into()], vec!["p".into()]));
    machine.typed("pool import p");
}
