//! Plays stories that are tables: lines that are typed, and what must come of each. They are in `stories.rs`
//! and `wrong.rs`.
//!
//! A line is what a person types; `$D` in it is the directory of disks. What must come of it is indented below:
//!
//! - `exit 3`: its exit code, 0 where nothing is said. One that is not 0 has the error form, with a command to try.
//! - `try weft ...`: that command has this in it; `says ...`: what it prints has this; `all ...`: it prints this line.
//! - `json /a/b 7`: so with `--json` its value has 7 there. A line that changes something has either this or text.
//!
//! A line with `!` happens to the machine: `!restart`, `!stop`, `!start`, `!hide DISK`, `!show DISK`,
//! `!write VDISK LEN`.

use crate::machine::Machine;
use serde_json::Value;

/// What must come of one line.
#[derive(Default)]
struct Row<'a> {
    line: &'a str,
    exit: u8,
    offers: Vec<&'a str>,
    says: Vec<&'a str>,
    all: Option<&'a str>,
    json: Vec<(&'a str, &'a str)>,
}

/// Plays a story.
pub fn play(machine: &mut Machine, story: &str) {
    for row in read(story) {
        match row.line.split(' ').collect::<Vec<_>>()[..] {
            ["!restart"] => machine.restart(),
            ["!stop"] => machine.stop(),
            ["!start"] => machine.start(),
            ["!hide", disk] => machine.hide(disk),
            ["!show", disk] => machine.show(disk),
            ["!write", vdisk, len] => machine.write(vdisk, len.parse().unwrap()),
            _ => row.play(machine),
        }
    }
}

fn read(story: &str) -> Vec<Row<'_>> {
    let mut rows: Vec<Row> = Vec::new();
    for line in story.lines().filter(|line| !line.trim().is_empty()) {
        if !line.starts_with(' ') {
            rows.push(Row { line, ..Row::default() });
            continue;
        }
        let row = rows.last_mut().expect("a story begins with a line that is typed");
        let (what, rest) = line.trim().split_once(' ').unwrap();
        match what {
            "exit" => row.exit = rest.parse().unwrap(),
            "try" => row.offers.push(rest),
            "says" => row.says.push(rest),
            "all" => row.all = Some(rest),
            "json" => row.json.push(rest.split_once(' ').unwrap()),
            _ => panic!("{line}"),
        }
    }
    rows
}

impl Row<'_> {
    fn play(&self, machine: &Machine) {
        let line = self.line;
        let words = machine.words(line);
        let mut words: Vec<&str> = words[1..].iter().map(String::as_str).collect();
        if self.json.is_empty() || !self.says.is_empty() || self.all.is_some() {
            let ran = machine.weft(&words);
            assert_eq!(ran.exit as u8, self.exit, "{line}: {}{}", ran.out, ran.err);
            let told = if self.exit == 0 { &ran.out } else { &ran.err };
            for says in &self.says {
                assert!(told.contains(&machine.place(says)), "{line}: {says}: {told}");
            }
            if let Some(all) = self.all {
                assert_eq!(*told, machine.place(all) + "\n", "{line}");
            }
            if self.exit == 0 {
                assert_eq!(ran.err, "", "{line}");
            } else if !self.offers.is_empty() {
                let offered = ran.offered(&words, ran.exit);
                assert!(self.offers.iter().all(|offer| offered.contains(&machine.place(offer))), "{line}: {offered}");
            }
        }
        if !self.json.is_empty() {
            words.push("--json");
            let ran = machine.weft(&words);
            assert_eq!(ran.exit as u8, self.exit, "{line}: {}{}", ran.out, ran.err);
            let value: Value =
                serde_json::from_str(&ran.out).unwrap_or_else(|error| panic!("{line}: {error}: {ran:?}"));
            for (at, expected) in &self.json {
                let expected: Value = serde_json::from_str(&machine.place(expected)).unwrap();
                assert_eq!(value.pointer(at), Some(&expected), "{line}: {at}: {value:#}");
            }
        }
    }
}
