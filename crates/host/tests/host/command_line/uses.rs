//! Who may use a virtual disk beside whom.

use crate::machine::Machine;
use std::net::TcpListener;
use weft_host::api::error::Kind;
use weft_host::api::export::Place;
use weft_host::api::mount::{MountInfo, Via};
use weft_host::cli::exit::Exit;
use weft_host::ops::Perform;
use weft_host::ops::export::ExportAdd;
use weft_host::wire::client::Client;

fn with_media() -> (Machine, [String; 2]) {
    let machine = Machine::with_tank();
    machine.done(&["vdisk", "create", "tank/media", "--size", "1GiB"]);
    let at = |name: &str| format!("unix:{}", machine.path(name).display());
    let addresses = [at("a.sock"), at("b.sock")];
    (machine, addresses)
}

/// What `weft mount` asks for, and tells when it has mounted.
fn mount(machine: &Machine) -> (Client, ExportAdd, MountInfo) {
    let vdisk = "tank/media".parse().unwrap();
    let socket = machine.path("private");
    let place = Place::Nbd(format!("unix:{}", socket.display()).parse().unwrap());
    let info = MountInfo {
        vdisk,
        dir: "/srv/media".into(),
        device: "/dev/nbd0".into(),
        export: socket,
        via: Via::Nbd,
        by_hand: false,
        filesystem: "ext4".into(),
        persist: false,
    };
    (Client::new(machine.path("weft.sock")), ExportAdd::for_mount(&info.vdisk, place), info)
}

#[test]
fn a_mounted_virtual_disk_can_only_be_read_by_others() {
    let (mut machine, [a, _]) = with_media();
    let (client, export, info) = mount(&machine);
    client.perform(&export).unwrap();
    client.perform(&info).unwrap();
    let add = ["export", "add", "tank/media", "--nbd", &a];
    let read = format!("weft export add tank/media --nbd {a} --read-only");
    for more in [None, Some("--shared"), Some("--dry-run")] {
        let line: Vec<&str> = add.into_iter().chain(more).collect();
        assert_eq!(machine.refused(&line, Exit::NotPossible), read, "{more:?}");
    }
    machine.done(&[&add[..], &["--read-only"]].concat());
    machine.restart();
    let exports = machine.json(&["export", "list"]);
    assert_eq!(exports.as_array().unwrap().len(), 1, "its own went with what is mounted no more: {exports}");
    assert_eq!(exports[0]["read_only"], true);
}

#[test]
fn what_clients_write_to_is_not_mounted_beside_them() {
    let (machine, [a, b]) = with_media();
    let (client, export, _) = mount(&machine);
    machine.done(&["export", "add", "tank/media", "--nbd", &a]);
    let error = client.perform(&export).unwrap_err();
    assert_eq!((error.kind, error.hint), (Kind::NotPossible, Some(format!("weft export remove tank/media --nbd {a}"))));
    machine.done(&["export", "remove", "tank/media"]);
    machine.done(&["export", "add", "tank/media", "--nbd", &b, "--read-only"]);
    client.perform(&export).unwrap();
}

#[test]
fn a_second_use_that_writes_is_shared_or_refused() {
    let (machine, [a, b]) = with_media();
    machine.done(&["export", "add", "tank/media", "--nbd", &a]);
    let add = ["export", "add", "tank/media", "--nbd", &b];
    assert_eq!(machine.refused(&add, Exit::NotPossible), format!("weft export add tank/media --nbd {b} --read-only"));
    machine.done(&[&add[..], &["--shared"]].concat());
    assert!(machine.done(&["export", "list"]).contains("write, shared"));
    assert_eq!(machine.json(&[&add[..], &["--shared"]].concat())["outcome"], "already-so");
    // On other terms it is another export.
    assert!(machine.refused(&add, Exit::NotPossible).starts_with("weft export remove tank/media --nbd"));
}

#[test]
fn what_other_machines_reach_is_asked_for_by_name_and_told() {
    let (machine, _) = with_media();
    let add = ["export", "add", "tank/media", "--nbd", "tcp:[::]:10809"];
    assert_eq!(machine.refused(&add, Exit::NotPossible), "weft export add tank/media --nbd tcp:127.0.0.1:10809");
    let free = TcpListener::bind("0.0.0.0:0").unwrap().local_addr().unwrap();
    machine.typed(&format!("export add tank/media --nbd tcp:{free} --allow-any"));
    let told = machine.done(&["status"]);
    assert!(told.contains(&format!("any machine that reaches tcp:{free} can read and write it")), "{told}");
}

#[test]
fn where_one_virtual_disk_is_offered_is_shown_by_itself() {
    let (mut machine, [a, b]) = with_media();
    machine.done(&["vdisk", "create", "tank/other", "--size", "1GiB"]);
    assert_eq!(machine.done(&["export", "show", "tank/media"]), "tank/media is not offered\n");
    assert_eq!(machine.json(&["export", "show", "tank/media"])["exports"].as_array().unwrap().len(), 0);
    assert_eq!(machine.refused(&["export", "show", "tank/none"], Exit::NotFound), "weft vdisk list");
    machine.done(&["export", "add", "tank/media", "--nbd", &a, "--read-only"]);
    machine.done(&["export", "add", "tank/other", "--nbd", &b]);
    let told = machine.done(&["export", "show", "tank/media"]);
    assert!(told.contains(&format!("at           {a}\n")), "{told}");
    assert!(told.contains("access       read\n") && !told.contains("tank/other"), "{told}");
    let shown = machine.json(&["export", "show", "tank/media"]);
    assert_eq!((&shown["vdisk"], &shown["exports"][0]["nbd"]), (&"tank/media".into(), &a.into()));
    machine.restart();
    assert_eq!(machine.json(&["export", "show", "tank/other"])["exports"][0]["active"], true);
}
