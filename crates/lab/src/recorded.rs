//! Recorded requests (fio's `write_iolog`, version 2 or 3), told as the jobs that would ask for the same.
//!
//! A request that begins where one of the last [`STREAMS`] ended goes on with a stream; all others are at random. Who
//! had how many requests under way is not recorded: one is taken.

use crate::command_line::Line;
use crate::jobs::Job;
use std::collections::VecDeque;

/// Streams that are followed at once.
const STREAMS: usize = 16;

/// What was asked of one kind.
#[derive(Clone, Copy, Default)]
struct Sum {
    requests: u64,
    bytes: u64,
}

/// Whether a text is a recording.
pub fn is_recording(text: &str) -> bool {
    text.starts_with("fio version ")
}

/// Reads a recording.
pub fn jobs(text: &str) -> Result<Vec<Job>, String> {
    let first = text.lines().next().unwrap_or_default();
    let skipped = match first.trim() {
        "fio version 2 iolog" => 0,
        "fio version 3 iolog" => 1,
        _ => return Err(format!("line 1: `{first}` is not understood; recordings of version 2 and 3 are")),
    };
    // Reads, then writes; in order, then at random.
    let mut sums = [[Sum::default(); 2]; 2];
    let (mut ends, mut flushes) = (VecDeque::new(), 0u64);
    for (nth, line) in text.lines().enumerate().skip(1) {
        let wrong = || format!("line {}: `{line}` is not understood; FILE ACTION OFFSET LENGTH is", nth + 1);
        let words: Vec<&str> = line.split_whitespace().skip(skipped).collect();
        let (write, at, len) = match words[..] {
            [] | [_, "add" | "open" | "close"] => continue,
            [_, "sync" | "datasync"] | [_, "sync" | "datasync", _, _] => {
                flushes += 1;
                continue;
            }
            [_, "wait" | "trim", _, _] | [_, "wait", _] => continue,
            [file, action @ ("read" | "write"), at, len] => {
                let number = |text: &str| text.parse::<u64>().map_err(|_| wrong());
                (action == "write", (file, number(at)?), number(len)?)
            }
            _ => return Err(wrong()),
        };
        let random = match ends.iter().position(|end| *end == at) {
            Some(found) => ends.remove(found).is_none(),
            None => true,
        };
        ends.push_back((at.0, at.1.saturating_add(len)));
        if ends.len() > STREAMS {
            ends.pop_front();
        }
        let sum = &mut sums[usize::from(write)][usize::from(random)];
        sum.requests += 1;
        sum.bytes = sum.bytes.saturating_add(len);
    }
    let writes: u64 = sums[1].iter().map(|sum| sum.requests).sum();
    let names = [["reads in order", "reads at random"], ["writes in order", "writes at random"]];
    let mut jobs = Vec::new();
    for (write, random) in [(0, 0), (0, 1), (1, 0), (1, 1)] {
        let Sum { requests, bytes } = sums[write][random];
        if bytes == 0 {
            continue;
        }
        let len = (bytes / requests).next_multiple_of(512);
        let random = random == 1;
        let name = names[write][usize::from(random)];
        let line = Line { writes: write as f64, len, random, ..Line::ONE };
        let fsync = (write == 1 && flushes > 0).then(|| (writes / flushes).max(1));
        jobs.push(Job { size: Some(bytes), fsync, ..Job::of(name, line) });
    }
    if jobs.is_empty() { Err("nothing was read or written in it".into()) } else { Ok(jobs) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_recording_is_told_as_what_it_asks_for() {
        let mut text = String::from("fio version 2 iolog\nf add\nf open\n");
        for nth in 0..100u64 {
            // A stream, and beside it writes here and there, each second one flushed.
            text += &format!("f read {} 65536\nf write {} 4096\n", nth << 16, (nth * 7919 % 1000) << 20);
            text += if nth % 2 == 0 { "f sync 0 0\n" } else { "" };
        }
        let found = jobs(&(text + "f close\n")).unwrap();
        let told: Vec<_> =
            found.iter().map(|job| (&*job.name, job.line.len, job.line.random, job.size, job.fsync)).collect();
        // The first request of a stream follows nothing.
        let wanted = [
            ("reads in order", 65_536, false, Some(99 << 16), None),
            ("reads at random", 65_536, true, Some(1 << 16), None),
            ("writes at random", 4096, true, Some(100 << 12), Some(2)),
        ];
        assert_eq!(told, wanted);
        let timed = "fio version 3 iolog\n0 f add\n0 f open\n12 f write 0 8192\n13 f write 8192 8192\n";
        assert_eq!(jobs(timed).unwrap().len(), 2);
    }

    #[test]
    fn what_is_no_recording_is_named_with_its_line() {
        for (text, wanted) in [
            ("fio version 9 iolog\n", "line 1: `fio version 9 iolog`"),
            ("fio version 2 iolog\nf write 0\n", "line 2: `f write 0`"),
            ("fio version 2 iolog\nf open\nf write x 4096", "line 3: "),
            ("fio version 2 iolog\nf add", "nothing was read or written"),
        ] {
            let error = jobs(text).unwrap_err();
            assert!(error.contains(wanted), "{text}: {error}");
        }
    }
}
