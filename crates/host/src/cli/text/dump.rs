//! What lies on disks: labels, checkpoint, log and tree.

use crate::ops::table::{Rows, Style, Tone, cell, human};
use crate::ops::text::Text;
use serde::{Serialize, Serializer};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::PathBuf;
use weft_engine::disk_set::DiskSet;
use weft_engine::dump::{CheckpointDump, Described, Dump, Entry, LogDump, Member, PoolDump, Slot, TreeDump};
use weft_engine::format::label::Label;
use weft_engine::store::quorum::Standing;
use weft_engine::units::DiskNo;

/// The slots of a disk, as they are called.
const SLOTS: [&str; 4] = ["head0", "head1", "tail0", "tail1"];
/// Copies and lost pages that are shown unless all are asked for.
const SHOWN: usize = 10;

/// What was found on the disks at these paths.
pub struct Dumped {
    /// Where the disks are, in the order of `told`.
    pub paths: Vec<PathBuf>,
    /// What lies there.
    pub told: Dump,
}

impl Dumped {
    fn path(&self, disk: Option<usize>) -> String {
        disk.and_then(|disk| self.paths.get(disk)).map_or("-".into(), |path| path.display().to_string())
    }
}

impl Text for Dumped {
    fn text(&self, style: Style) -> String {
        let mut text = String::new();
        for pool in &self.told.pools {
            text += &self.pool_text(pool, style);
        }
        let without = |slots: &&(usize, &Vec<Slot>)| !slots.1.iter().any(|slot| matches!(slot, Slot::Label(_)));
        for (disk, slots) in self.told.disks.iter().enumerate().collect::<Vec<_>>().iter().filter(without) {
            let slots: Vec<String> =
                SLOTS.iter().zip(*slots).map(|(at, slot)| format!("{at} {}", slot_text(slot))).collect();
            let slots = if slots.is_empty() { "too small for labels".into() } else { slots.join(", ") };
            text += &format!("{}: no label that counts ({slots})\n", self.path(Some(*disk)));
        }
        text
    }
}

impl Dumped {
    fn pool_text(&self, pool: &PoolDump, style: Style) -> String {
        let (from, label) = &pool.newest;
        let anchor = &label.anchor;
        let mut text = format!("pool {} ({}), slabs of {}\n", label.pool_name, label.pool_id, label.slab_len);
        text += &format!(
            "newest label   epoch {} of opening {}, serial {}, on {}\n",
            label.epoch,
            label.lineage.opened,
            label.serial,
            self.path(Some(*from))
        );
        text += &format!("lineage        {:016x}, after {} openings\n", label.lineage.number(), label.lineage.opened);
        text += &format!("opens          {}\n", opens(pool));
        let mut rows = Rows::new(style, &[">DISK", "PATH", "STANDING", "ROLE", "EPOCHS OF ITS LABELS", "IDENTITY"]);
        for member in &pool.members {
            let (standing, tone) = standing(member);
            rows.row(vec![
                cell(member.no),
                cell(self.path(member.disk)),
                (standing, tone),
                cell(roles(label, member.no)),
                cell(member.disk.map_or("-".into(), |disk| slots(&self.told.disks[disk], label))),
                cell(member.id),
            ]);
        }
        text += &rows.draw();
        text += &checkpoint_text(&pool.checkpoint, label);
        text += &log_text(&pool.log, anchor.log_redo);
        text + &match &pool.tree {
            Some(tree) => tree_text(tree, style.verbose),
            None => "tree           none: the checkpoint holds everything, or was not found\n".into(),
        }
    }
}

fn opens(pool: &PoolDump) -> String {
    let voters = pool.newest.1.membership.voters;
    let there = pool.members.iter().filter(|member| member.standing == Some(Standing::Current));
    let there = there.filter(|member| voters.contains(member.no)).count();
    let of = format!("{there} of {} voters are here and up to date", voters.len());
    match (pool.rival, pool.opens) {
        (Some(rival), _) => format!("no: disk {rival} tells another history, which could be gone on from as well"),
        (None, true) => format!("yes, as far as labels tell: {of}"),
        (None, false) => format!("no: {of}"),
    }
}

fn standing(member: &Member) -> (String, Tone) {
    let (word, tone) = match (member.standing, member.disk) {
        (Some(Standing::Current), _) => ("up to date", Tone::Good),
        (Some(Standing::Behind), _) => ("behind", Tone::Poor),
        (Some(Standing::Diverged), _) => ("another history", Tone::Bad),
        (None, Some(_)) => ("no member", Tone::Bad),
        (None, None) => ("not here", Tone::Poor),
    };
    (if member.put_back { format!("{word}, put back") } else { word.into() }, tone)
}

fn roles(label: &Label, no: DiskNo) -> String {
    let has = |set: DiskSet| set.contains(no);
    let roles = [(has(label.membership.voters), "votes"), (has(label.membership.loggers), "log")];
    let roles: Vec<&str> = roles.iter().filter(|(has, _)| *has).map(|(_, role)| *role).collect();
    if roles.is_empty() { "-".into() } else { roles.join(", ") }
}

/// The four slots of a disk in few words: the epochs, and what is no label of this pool.
fn slots(slots: &[Slot], of: &Label) -> String {
    let word = |slot: &Slot| match slot {
        Slot::Label(label) if label.pool_id == of.pool_id => label.epoch.to_string(),
        slot => slot_text(slot),
    };
    slots.iter().map(word).collect::<Vec<_>>().join(" ")
}

fn slot_text(slot: &Slot) -> String {
    match slot {
        Slot::Label(label) => format!("a label of pool {}, epoch {}", label.pool_name, label.epoch),
        Slot::Refused(why) => format!("refused ({why})"),
        Slot::Blank => "blank".into(),
        Slot::Other => "damaged".into(),
        Slot::Unreadable(why) => format!("unreadable ({why})"),
    }
}

fn checkpoint_text(told: &CheckpointDump, label: &Label) -> String {
    let anchor = &label.anchor;
    let mut text = format!(
        "checkpoint     {}, {}, whole on disks {}",
        anchor.checkpoint_no,
        human(anchor.checkpoint_len),
        set(told.sound)
    );
    if !told.harmed.is_empty() {
        text += &format!("; harmed on disks {}", set(told.harmed));
    }
    text.push('\n');
    text + &wrong(&told.wrong) + &kinds(&told.kinds) + &records(&told.records)
}

fn log_text(told: &LogDump, redo: u64) -> String {
    let (first, count) = told.batches;
    let mut text = format!(
        "log            {count} batches from {first} on, {}, on disks {}; all records count from position {redo} on\n",
        human(told.positions.1 - told.positions.0),
        set(told.on),
    );
    for lacking in &told.lacking {
        text += &format!("  disk {} lacks {} batches, the first is {}\n", lacking.disk, lacking.count, lacking.first);
    }
    if told.torn {
        text += "  a batch was begun after the last one, and not finished\n";
    }
    if told.landed > 0 {
        text += &format!("  {} of landed data\n", human(told.landed));
    }
    text + &wrong(&told.wrong) + &kinds(&told.kinds) + &records(&told.records)
}

fn tree_text(told: &TreeDump, verbose: bool) -> String {
    let mut text = format!("tree           root {}, {} pages", told.number, told.pages);
    text += if told.lost.is_empty() && told.bad.is_empty() { ", every copy is right\n" } else { "\n" };
    let shown = if verbose { usize::MAX } else { SHOWN };
    for lost in told.lost.iter().take(shown) {
        text += &format!("  {lost}\n");
    }
    for bad in told.bad.iter().take(shown) {
        text += &format!("  disk {} has a bad copy of page {}: {}\n", bad.disk, bad.place.0, bad.why);
    }
    let more = told.lost.len().saturating_sub(shown) + told.bad.len().saturating_sub(shown);
    if more > 0 {
        text += &format!("  and {more} more; --verbose lists them\n");
    }
    text += &wrong(&told.wrong);
    text += &kinds(&told.kinds);
    for Entry { key: (kind, major, middle, minor), kind: what, value } in &told.entries {
        text += &format!("  {kind}/{major}/{middle}/{minor}  {what}  {value}\n");
    }
    text
}

fn wrong(wrong: &Option<String>) -> String {
    wrong.as_ref().map_or(String::new(), |wrong| format!("  cannot be read on: {wrong}\n"))
}

fn kinds(kinds: &BTreeMap<&'static str, u64>) -> String {
    let kinds: Vec<String> = kinds.iter().map(|(kind, count)| format!("{count} {kind}")).collect();
    if kinds.is_empty() { String::new() } else { format!("  {}\n", kinds.join(", ")) }
}

fn records(records: &[Described]) -> String {
    let line = |record: &Described| match record.seq {
        Some(seq) => format!("  {seq}  {}  {}\n", record.kind, record.text),
        None => format!("  {}  {}\n", record.kind, record.text),
    };
    records.iter().map(line).collect()
}

/// Numbers of disks.
fn set(disks: DiskSet) -> String {
    let numbers: Vec<String> = numbers(disks).iter().map(u16::to_string).collect();
    if numbers.is_empty() { "none".into() } else { numbers.join(" ") }
}

fn numbers(disks: DiskSet) -> Vec<u16> {
    disks.iter().map(|no| no.0).collect()
}

impl Serialize for Dumped {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let disks = self.paths.iter().zip(&self.told.disks);
        let disks: Vec<Value> = disks
            .map(|(path, slots)| json!({ "path": path, "slots": slots.iter().map(slot_json).collect::<Vec<_>>() }))
            .collect();
        let pools: Vec<Value> = self.told.pools.iter().map(|pool| self.pool_json(pool)).collect();
        json!({ "disks": disks, "pools": pools }).serialize(serializer)
    }
}

impl Dumped {
    fn pool_json(&self, pool: &PoolDump) -> Value {
        let (from, label) = &pool.newest;
        let members = pool.members.iter().map(|member| {
            json!({
                "no": member.no.0,
                "id": member.id.to_string(),
                "path": member.disk.and_then(|disk| self.paths.get(disk)),
                "standing": member.standing.map(|standing| match standing {
                    Standing::Current => "current",
                    Standing::Behind => "behind",
                    Standing::Diverged => "diverged",
                }),
                "put_back": member.put_back,
            })
        });
        json!({
            "id": label.pool_id.to_string(),
            "name": label.pool_name,
            "newest": { "path": self.paths.get(*from), "label": label_json(label) },
            "opens": pool.opens && pool.rival.is_none(),
            "rival": pool.rival.map(|no| no.0),
            "members": members.collect::<Vec<_>>(),
            "checkpoint": {
                "sound": numbers(pool.checkpoint.sound),
                "harmed": numbers(pool.checkpoint.harmed),
                "kinds": pool.checkpoint.kinds,
                "records": records_json(&pool.checkpoint.records),
                "wrong": pool.checkpoint.wrong,
            },
            "log": log_json(&pool.log),
            "tree": pool.tree.as_ref().map(tree_json),
        })
    }
}

fn slot_json(slot: &Slot) -> Value {
    match slot {
        Slot::Label(label) => json!({ "state": "label", "label": label_json(label) }),
        Slot::Refused(why) => json!({ "state": "refused", "why": why }),
        Slot::Blank => json!({ "state": "blank" }),
        Slot::Other => json!({ "state": "damaged" }),
        Slot::Unreadable(why) => json!({ "state": "unreadable", "why": why }),
    }
}

fn label_json(label: &Label) -> Value {
    let known = |numbers: &[u64]| numbers.iter().take_while(|number| **number != 0).count();
    let lineage: Vec<String> =
        label.lineage.numbers[..known(&label.lineage.numbers)].iter().map(|number| format!("{number:016x}")).collect();
    let anchor = &label.anchor;
    json!({
        "pool_id": label.pool_id.to_string(),
        "pool_name": label.pool_name,
        "disk_id": label.disk_id.to_string(),
        "disk_no": label.disk_no.0,
        "serial": label.serial,
        "epoch": label.epoch,
        "durable_epoch": label.durable_epoch,
        "durable_voters": numbers(label.durable_voters),
        "opened": label.lineage.opened,
        "lineage": lineage,
        "promised": label.promised,
        "opened_batch": label.opened_batch,
        "batch_max": label.batch_bound.most,
        "batch_max_from": label.batch_bound.from,
        "slab_len": label.slab_len.0,
        "disk_len": label.plan.disk_len.0,
        "blob_at": label.plan.blob_at.0,
        "blob_len": label.plan.blob_len.0,
        "log_at": label.plan.log_at.0,
        "log_len": label.plan.log_len.0,
        "data_at": label.plan.data_at.0,
        "slabs": label.plan.slabs,
        "members": numbers(label.membership.members),
        "current": numbers(label.membership.current),
        "voters": numbers(label.membership.voters),
        "loggers": numbers(label.membership.loggers),
        "checkpoint_no": anchor.checkpoint_no,
        "checkpoint_len": anchor.checkpoint_len,
        "log_tail": anchor.log_tail,
        "log_tail_batch": anchor.log_tail_batch,
        "log_redo": anchor.log_redo,
        "log_seq": anchor.log_seq,
    })
}

fn log_json(log: &LogDump) -> Value {
    let lacking = log.lacking.iter();
    let lacking = lacking.map(|found| json!({ "disk": found.disk.0, "first": found.first, "count": found.count }));
    json!({
        "on": numbers(log.on),
        "first_batch": log.batches.0,
        "batches": log.batches.1,
        "position": log.positions.0,
        "end": log.positions.1,
        "first_seq": log.seqs.0,
        "next_seq": log.seqs.1,
        "kinds": log.kinds,
        "landed_bytes": log.landed,
        "lacking": lacking.collect::<Vec<_>>(),
        "torn": log.torn,
        "records": records_json(&log.records),
        "wrong": log.wrong,
    })
}

fn tree_json(tree: &TreeDump) -> Value {
    let lost = tree.lost.iter().map(|lost| {
        json!({
            "place": lost.place.0,
            "level": lost.level,
            "first": format!("{:?}", lost.range.first),
            "last": format!("{:?}", lost.range.last),
            "why": lost.why.to_string(),
        })
    });
    let bad = tree.bad.iter();
    let bad = bad.map(|bad| json!({ "place": bad.place.0, "disk": bad.disk.0, "why": bad.why.to_string() }));
    let entries = tree.entries.iter().map(|Entry { key: (kind, major, middle, minor), kind: what, value }| {
        json!({ "key": format!("{kind}/{major}/{middle}/{minor}"), "kind": what, "value": value })
    });
    json!({
        "root": tree.number,
        "pages": tree.pages,
        "kinds": tree.kinds,
        "lost": lost.collect::<Vec<_>>(),
        "bad": bad.collect::<Vec<_>>(),
        "entries": entries.collect::<Vec<_>>(),
        "wrong": tree.wrong,
    })
}

fn records_json(records: &[Described]) -> Vec<Value> {
    let one = |record: &Described| json!({ "seq": record.seq, "kind": record.kind, "text": record.text });
    records.iter().map(one).collect()
}
