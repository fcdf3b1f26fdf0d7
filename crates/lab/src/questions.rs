//! The questions about layouts that owners of Storage Spaces asked in public, put to the planner: the table of
//! `docs/guide/planning.md`.

use crate::disks::{Class, PlannedDisk};
use crate::plan::{Question, Workload, decimal, plan};
use std::fmt::Write;

const TB: u64 = 1_000_000_000_000;
const GB: u64 = 1_000_000_000;

/// A question as it was asked.
pub struct Asked {
    /// In words.
    pub words: &'static str,
    /// For the planner.
    pub question: Question,
}

/// All of them.
pub fn asked() -> Vec<Asked> {
    let of = |groups: &[(usize, u64, Class)]| -> Vec<PlannedDisk> {
        let disk =
            |(count, size, class): &(usize, u64, Class)| vec![PlannedDisk { size: *size, class: *class }; *count];
        groups.iter().flat_map(disk).collect()
    };
    let hdd = |count, size| of(&[(count, size, Class::Hdd7200)]);
    let mixed = [500, 500, 1000, 1000, 2000, 2000, 3000, 4000].map(|gb| (1, gb * GB, Class::Hdd7200));
    let ask = |words, disks, failures, workload| Asked {
        words,
        question: Question {
            disks,
            grow: Vec::new(),
            failures,
            workload,
            jobs: Vec::new(),
            exact: false,
            failures_percent: None,
            replace_hours: 72.0,
        },
    };
    vec![
        ask("seven disks of 4 TB for films", hdd(7, 4 * TB), 1, Workload::Media),
        ask("a case with four bays", hdd(4, 4 * TB), 1, Workload::Media),
        ask("eight disks of every size that were left over", of(&mixed), 1, Workload::Media),
        ask("ten disks that survive two failures", hdd(10, 8 * TB), 2, Workload::Media),
        ask("five disks of 18 TB for backups", hdd(5, 18 * TB), 1, Workload::Backup),
        ask(
            "two SSDs and eight hard disks",
            of(&[(2, 500 * GB, Class::Ssd), (8, 4 * TB, Class::Hdd7200)]),
            1,
            Workload::Mixed,
        ),
        ask("twenty-four SSDs for virtual machines", of(&[(24, 960 * GB, Class::Ssd)]), 1, Workload::Vm),
        ask("a database on eight disks", hdd(8, 2 * TB), 1, Workload::Database),
        ask(
            "the SQL server of Q56, data: 24 disks of 10,000 rpm",
            of(&[(24, 600 * GB, Class::Hdd10k)]),
            1,
            Workload::Database,
        ),
        ask(
            "the SQL server of Q56, log: 8 disks of 15,000 rpm",
            of(&[(8, 146 * GB, Class::Hdd15k)]),
            1,
            Workload::Backup,
        ),
        ask("the SQL server of Q56, backups: 16 disks of 1 TB", hdd(16, TB), 1, Workload::Backup),
        ask("two disks", hdd(2, 4 * TB), 1, Workload::Mixed),
        ask(
            "three disks, one of them larger",
            of(&[(2, 4 * TB, Class::Hdd7200), (1, 8 * TB, Class::Hdd7200)]),
            1,
            Workload::Media,
        ),
    ]
}

/// The answers, as a table in Markdown.
pub fn table() -> String {
    let mut table = String::from(
        "| asked | disks | first choice | usable | of raw | write, read MB/s | second choice |\n|---|---|---|---|---|---|---|\n",
    );
    for Asked { words, question } in asked() {
        let answer = plan(&question).expect("the questions have answers");
        let first = &answer.best[0].layout;
        let second = answer
            .best
            .get(1)
            .map_or("none".into(), |choice| format!("{} ({})", choice.layout.name, decimal(choice.layout.usable)));
        writeln!(
            table,
            "| {words} | {} | {} | {} | {:.0} % | {:.0}, {:.0} | {second} |",
            answer.described,
            first.name,
            decimal(first.usable),
            first.efficiency * 100.0,
            first.write_mb_s,
            first.read_mb_s
        )
        .expect("writing to a string works");
    }
    table
}
