//! What lies on disks, told without the daemon.

use crate::machine::Machine;
use std::fs;
use std::os::unix::fs::FileExt;
use weft_host::cli::exit::Exit;

#[test]
fn what_lies_on_the_disks_of_a_pool_is_told_beside_the_daemon_and_without_it() {
    let mut machine = Machine::with_tank();
    machine.typed("vdisk create tank/media --size 64MiB --fixed");
    let beside = machine.json(&["pool", "dump", "tank"]);
    assert_eq!(beside["pools"][0]["name"], "tank");
    assert_eq!(beside["pools"][0]["members"].as_array().unwrap().len(), 4);
    machine.stop();
    // What was replayed goes to the tree; until then all of it is in the checkpoint.
    machine.start();
    machine.stop();
    let at = machine.disk("d1");
    let dir = machine.path("disks").display().to_string();
    let before = fs::read(&at).unwrap();
    let told = machine.json(&["pool", "dump", "tank", "--disks", &dir, "--records", "--key", "all"]);
    let pool = &told["pools"][0];
    assert_eq!((pool["opens"].as_bool(), pool["members"][3]["standing"].as_str()), (Some(true), Some("current")));
    assert_eq!(pool["newest"]["label"]["members"], serde_json::json!([0, 1, 2, 3]));
    assert!(pool["checkpoint"]["records"].as_array().unwrap().iter().any(|record| record["kind"] == "VDISK"));
    assert!(pool["tree"]["lost"].as_array().unwrap().is_empty());
    assert!(!pool["tree"]["entries"].as_array().unwrap().is_empty());
    // One disk alone, of which a label is damaged.
    fs::File::options().write(true).open(&at).unwrap().write_all_at(&[7; 4096], 0).unwrap();
    let text = machine.done(&["pool", "dump", &at]);
    assert!(text.contains("no: 1 of 4 voters") && text.contains("damaged") && text.contains("not here"), "{text}");
    let mut after = fs::read(&at).unwrap();
    after[..4096].copy_from_slice(&before[..4096]);
    assert!(after == before, "nothing is written");
}

#[test]
fn who_cannot_be_dumped_is_named_and_the_way_to_it() {
    let mut machine = Machine::with_tank();
    machine.stop();
    let dir = machine.path("disks").display().to_string();
    let hint = machine.refused(&["pool", "dump", "pond", "--disks", &dir], Exit::NotFound);
    assert_eq!(hint, "weft pool dump pond --disks DIR_OR_DEVICE");
    machine.refused(&["pool", "dump", "/nowhere/at/all"], Exit::NotFound);
    machine.refused(&["pool", "dump", &dir], Exit::Usage);
    machine.refused(&["pool", "dump", "tank", "--key", "segment/x"], Exit::Usage);
    let blank = machine.path("blank");
    fs::File::create(&blank).unwrap().set_len(1 << 20).unwrap();
    let text = machine.done(&["pool", "dump", &blank.display().to_string()]);
    assert!(text.contains("no label that counts") && text.contains("head0 blank"), "{text}");
}
