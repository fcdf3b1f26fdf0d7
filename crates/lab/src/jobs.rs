//! Job files of fio, the lines of diskspd and SQLIO, and workloads by name ([`named`]), as jobs.
//!
//! What a job file can say here
//! 1. One job after the other: each but the first has `stonewall`. Its threads (`numjobs`) share one range and one
//!    queue, so that `numjobs` x `iodepth` requests are under way.
//! 2. Requests in order or at random (or partly so), reads, writes or both; `fsync`, `sync`; `rate`.
//! 3. What says how fio asks (`ioengine`, `direct`, ...) is passed over; whatever else would change what is asked, and
//!    is not understood, is an error that names its line.

use crate::command_line::{Line, bytes};
use crate::named;
use crate::volume::Volume;
use crate::workload::{Ask, Trace, at_rate, drive_timed};
use std::rc::Rc;
use weft_engine::units::Nanos;

/// Options that do not change what is asked of a disk.
const PASSED_OVER: [&str; 22] = [
    "ioengine",
    "direct",
    "buffered",
    "group_reporting",
    "thread",
    "filename",
    "directory",
    "invalidate",
    "norandommap",
    "randrepeat",
    "randseed",
    "refill_buffers",
    "buffer_pattern",
    "name",
    "description",
    "log_avg_msec",
    "write_bw_log",
    "write_lat_log",
    "write_iops_log",
    "gtod_reduce",
    "unlink",
    "create_on_open",
];
/// Bytes of one request at most.
pub const LEN_MAX: u64 = 16 << 20;
/// Requests at once, of all threads, at most.
pub const DEPTH_MAX: usize = 1024;
/// How long a job without end, and without a time of its own, is run for.
const SPAN: Nanos = Nanos::secs(10);

/// One thing to do.
#[derive(Clone, PartialEq, Debug)]
pub struct Job {
    /// What it is called.
    pub name: String,
    /// Its requests.
    pub line: Line,
    /// Bytes of the range that it uses, if not all there are.
    pub size: Option<u64>,
    /// Whether it goes on until its time is over, and not only until it has asked for `size` bytes.
    pub endless: bool,
    /// A flush after every so many writes.
    pub fsync: Option<u64>,
    /// Bytes that it asks for in a second, if not as many as it can.
    pub rate: Option<u64>,
    /// Where its requests go.
    pub places: Places,
}

/// Where the requests of a job go.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Places {
    /// To one range, as its line says.
    Range,
    /// To the files of a tree that is copied, so many at once.
    Tree,
    /// To files of cameras, of each the one that it writes now.
    Cameras,
}

impl Job {
    /// Makes a job that asks for all there is, once, as fast as it can.
    pub fn of(name: &str, line: Line) -> Job {
        let name = name.to_string();
        Job { name, line, size: None, endless: false, fsync: None, rate: None, places: Places::Range }
    }

    /// Reads a workload: a name, a line of diskspd or SQLIO, or the text of a job file.
    pub fn read(text: &str) -> Result<Vec<Job>, String> {
        if let Some(named) = named::find(text.trim()) {
            return Ok(named.jobs());
        }
        let tool = text.split_whitespace().next().unwrap_or_default().to_lowercase();
        if tool == "diskspd" || tool == "sqlio" {
            let line: Line = text.trim().parse()?;
            fits(line.len, line.depth as u64).map_err(|why| format!("`{}` {why}", text.trim()))?;
            return Ok(vec![Job { endless: true, ..Job::of(&tool, line) }]);
        }
        Draft::read(text)?.into_iter().map(Draft::job).collect()
    }

    /// Whether a text is a workload by itself, and not the name of a file that holds one.
    pub fn is_told_by(text: &str) -> bool {
        let tool = text.split_whitespace().next().unwrap_or_default().to_lowercase();
        tool == "diskspd" || tool == "sqlio" || named::find(text.trim()).is_some()
    }

    /// Whether it writes.
    pub fn writes(&self) -> bool {
        self.line.writes > 0.0
    }

    /// Tells the bytes that it needs at least.
    pub fn least(&self) -> u64 {
        match self.places {
            Places::Range | Places::Tree => self.line.len,
            Places::Cameras => self.line.len * self.line.depth as u64,
        }
    }

    /// Tells for how long it runs, if not until it has asked for everything.
    pub fn span(&self) -> Option<Nanos> {
        self.line.span.or(self.endless.then_some(SPAN))
    }

    /// What it asks of the first bytes of something that has `room`; none, if that is less than the least.
    pub fn asks(&self, room: u64) -> Option<Box<dyn Iterator<Item = Ask> + Send>> {
        let range = self.size.unwrap_or(room).min(room);
        if range < self.least() {
            return None;
        }
        let requests: Box<dyn Iterator<Item = Ask> + Send> = match (self.places, self.endless) {
            (Places::Tree, _) => Box::new(named::tree(range, self.line)),
            (Places::Cameras, _) => Box::new(named::cameras(range, self.line)),
            (Places::Range, true) => Box::new(self.line.requests(range)),
            (Places::Range, false) => Box::new(self.line.requests(range).take((range / self.line.len) as usize)),
        };
        let Some(every) = self.fsync else { return Some(requests) };
        let mut writes = 0u64;
        Some(Box::new(requests.flat_map(move |ask| {
            writes += u64::from(!matches!(ask, Ask::Read(..)));
            let flush = matches!(ask, Ask::Write(..)) && writes.is_multiple_of(every);
            std::iter::once(ask).chain(flush.then_some(Ask::Flush))
        })))
    }

    /// Tells what it asks, and when each is due, from its beginning on.
    pub fn timed(&self, room: u64) -> Option<Box<dyn Iterator<Item = (Nanos, Ask)> + Send>> {
        Some(Box::new(at_rate(self.asks(room)?, self.rate)))
    }

    /// Runs it on the first bytes of a volume that has `room`; a job with an end ends with a flush. None if
    /// it does not fit.
    pub fn run(&self, volume: &Rc<dyn Volume>, room: u64) -> Option<Trace> {
        Some(drive_timed(volume, self.timed(room)?, self.line.depth, self.span(), !self.endless))
    }
}

/// A job as far as it has been read.
#[derive(Clone)]
struct Draft {
    name: String,
    at: usize,
    line: Line,
    rw: Option<(bool, bool, bool)>,
    write_part: f64,
    threads: u64,
    depth: u64,
    size: Option<u64>,
    endless: bool,
    fsync: Option<u64>,
    rate: Option<u64>,
    after: bool,
}

impl Draft {
    fn new(name: &str, at: usize) -> Draft {
        let (name, line) = (name.to_string(), Line::ONE);
        let (rw, write_part, threads, depth, size, fsync, rate) = (None, 0.5, 1, 1, None, None, None);
        let (endless, after) = (false, false);
        Draft { name, at, line, rw, write_part, threads, depth, size, endless, fsync, rate, after }
    }

    fn read(text: &str) -> Result<Vec<Draft>, String> {
        let (mut global, mut jobs): (Draft, Vec<Draft>) = (Draft::new("global", 0), Vec::new());
        let mut inside = None;
        for (nth, line) in text.lines().enumerate() {
            let at = nth + 1;
            let line = line.split([';', '#']).next().unwrap_or_default().trim();
            if line.is_empty() {
                continue;
            }
            if let Some(name) = line.strip_prefix('[') {
                let name = name.strip_suffix(']').filter(|name| !name.is_empty());
                let name = name.ok_or_else(|| format!("line {at}: `{line}` names no job; [NAME] does"))?;
                inside = Some(name == "global");
                if name != "global" {
                    jobs.push(Draft { name: name.into(), at, ..global.clone() });
                }
                continue;
            }
            let draft = match inside {
                Some(true) => &mut global,
                Some(false) => jobs.last_mut().expect("a job was begun"),
                None => return Err(format!("line {at}: `{line}` stands before the first [JOB]")),
            };
            let (key, value) = line.split_once('=').map_or((line, ""), |(key, value)| (key.trim(), value.trim()));
            draft.set(key, value).map_err(|why| format!("line {at}: {why}"))?;
        }
        if jobs.is_empty() {
            return Err(format!(
                "there is no job in it: it is neither a job file of fio nor a line of diskspd or SQLIO, nor one of {}",
                named::names()
            ));
        }
        match jobs.iter().skip(1).find(|job| !job.after) {
            Some(job) => Err(format!(
                "line {}: job `{}` would run beside the one before it; jobs run one after the other here: add \
                 `stonewall`",
                job.at, job.name
            )),
            None => Ok(jobs),
        }
    }

    fn set(&mut self, key: &str, value: &str) -> Result<(), String> {
        let number = |least: u64, most: u64| {
            let number = value.parse().ok().filter(|number| (least..=most).contains(number));
            number.ok_or_else(|| format!("`{key}={value}` has no number from {least} to {most}"))
        };
        let size = || match bytes(&value.to_uppercase().replace("IB", "").replace("B", "")) {
            Some(0) | None => Err(format!("`{key}={value}` has no size, such as 4k or 1g")),
            Some(size) => Ok(size),
        };
        let yes = match value {
            "" | "1" => Ok(true),
            "0" => Ok(false),
            _ => Err(format!("`{key}={value}` is neither 0 nor 1")),
        };
        match key {
            "rw" | "readwrite" => self.rw = Some(direction(value)?),
            "bs" | "blocksize" => self.line.len = size()?,
            "iodepth" => self.depth = number(1, DEPTH_MAX as u64)?,
            "numjobs" => self.threads = number(1, DEPTH_MAX as u64)?,
            "size" | "filesize" => self.size = Some(size()?),
            "runtime" => self.line.span = Some(Nanos::secs(seconds(value)?)),
            "time_based" => self.endless = yes?,
            "fsync" | "fdatasync" => self.fsync = Some(number(0, 1 << 32)?).filter(|every| *every > 0),
            "rate" => self.rate = Some(size()?),
            "percentage_random" => self.line.follows = 1.0 - number(0, 100)? as f64 / 100.0,
            "sync" => self.line.durable = yes?,
            "rwmixwrite" => self.write_part = number(0, 100)? as f64 / 100.0,
            "rwmixread" => self.write_part = 1.0 - number(0, 100)? as f64 / 100.0,
            "stonewall" | "wait_for_previous" => self.after = yes?,
            _ if PASSED_OVER.contains(&key) => {}
            _ => return Err(format!("`{key}` is not understood")),
        }
        Ok(())
    }

    fn job(self) -> Result<Job, String> {
        let Draft { name, at, mut line, rw, write_part, threads, depth, size, endless, fsync, rate, .. } = self;
        let wrong = |why: String| Err(format!("line {at}: job `{name}` {why}"));
        let Some((reads, writes, random)) = rw else { return wrong("does not say rw=".into()) };
        if let Err(why) = fits(line.len, threads * depth) {
            return wrong(why);
        }
        if endless && line.span.is_none() {
            return wrong("is time_based and has no runtime=".into());
        }
        line.writes = if reads && writes { write_part } else { f64::from(u8::from(writes)) };
        (line.random, line.depth) = (random, (threads * depth) as usize);
        let rate = rate.map(|each| each.saturating_mul(threads));
        Ok(Job { size, endless, fsync, rate, ..Job::of(&name, line) })
    }
}

/// Refuses requests of odd sizes, and too many of them.
fn fits(len: u64, depth: u64) -> Result<(), String> {
    if !(1..=DEPTH_MAX as u64).contains(&depth) {
        return Err(format!("has {depth} requests at once; 1 to {DEPTH_MAX} are possible"));
    }
    if len == 0 || !len.is_multiple_of(512) || len > LEN_MAX {
        return Err(format!("asks for {len} bytes at once; whole sectors of 512 up to 16 MiB are possible"));
    }
    Ok(())
}

/// Whether a job reads, whether it writes, whether at random.
fn direction(value: &str) -> Result<(bool, bool, bool), String> {
    Ok(match value {
        "read" => (true, false, false),
        "write" => (false, true, false),
        "rw" | "readwrite" => (true, true, false),
        "randread" => (true, false, true),
        "randwrite" => (false, true, true),
        "randrw" => (true, true, true),
        _ => {
            return Err(format!("`rw={value}` is not understood; read, write, rw, randread, randwrite and randrw are"));
        }
    })
}

/// `30`, `30s`, `2m`.
fn seconds(value: &str) -> Result<u64, String> {
    let (number, unit) = match value.strip_suffix(['s', 'm', 'h']) {
        Some(number) => (
            number,
            if value.ends_with('s') {
                1
            } else if value.ends_with('m') {
                60
            } else {
                3600
            },
        ),
        None => (value, 1),
    };
    let seconds = number.parse::<u64>().ok().filter(|number| (1..=86_400).contains(number));
    seconds.map(|number| number * unit).ok_or_else(|| format!("`runtime={value}` is no time, such as 30 or 2m"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = "; two jobs\n[global]\nioengine=libaio\ndirect=1\nbs=64k\nsize=1g\n\n[fill]\nrw=write # in \
                        order\nfsync=16\n\n[small]\nstonewall\nrw=randrw\nrwmixread=70\nbs=4K\niodepth=8\nnumjobs=4\n\
                        runtime=2m\ntime_based\n";

    #[test]
    fn a_job_file_is_read_as_fio_reads_it() {
        let jobs = Job::read(FILE).unwrap();
        let fill = Line { writes: 1.0, len: 65_536, ..Line::ONE };
        let wanted = Job { size: Some(1 << 30), fsync: Some(16), ..Job::of("fill", fill) };
        assert_eq!(jobs[0], wanted);
        let Job { line, endless, .. } = &jobs[1];
        assert!((line.writes - 0.3).abs() < 1e-9 && line.random && *endless && jobs[1].writes());
        assert_eq!((line.len, line.depth, line.span), (4096, 32, Some(Nanos::secs(120))));
        let diskspd = Job::read("diskspd -w100 -b4K -r -F8 -o32 -Sh").unwrap();
        assert_eq!((diskspd[0].line.depth, diskspd[0].endless), (256, true));
    }

    #[test]
    fn a_job_asks_for_so_many_bytes_in_a_second_and_goes_on_where_it_was_as_often_as_it_says() {
        let text = "[a]\nrw=randread\nbs=1m\nrate=2m\nnumjobs=2\npercentage_random=25\nsize=1g";
        let job = Job::read(text).unwrap().remove(0);
        assert_eq!((job.rate, job.line.follows), (Some(4 << 20), 0.75));
        let due: Vec<u64> = job.timed(1 << 40).unwrap().map(|(due, _)| due.0).take(9).collect();
        assert_eq!((due[0], due[1], due[8]), (0, 250_000_000, 2_000_000_000));
        let asks: Vec<Ask> = job.asks(1 << 40).unwrap().collect();
        let follows = |pair: &[Ask]| matches!(pair, [Ask::Read(a, _), Ask::Read(b, _)] if a + (1 << 20) == *b);
        let following = asks.windows(2).filter(|pair| follows(pair)).count();
        assert!((700..830).contains(&following), "{following} of 1024");
    }

    #[test]
    fn a_job_asks_for_its_size_and_flushes_as_often_as_it_says() {
        let jobs = Job::read(FILE).unwrap();
        let asks: Vec<Ask> = jobs[0].asks(1 << 40).unwrap().collect();
        assert_eq!(asks.iter().filter(|ask| matches!(ask, Ask::Write(..))).count(), 16 << 10);
        assert_eq!(asks.iter().filter(|ask| **ask == Ask::Flush).count(), 1 << 10);
        assert_eq!(
            (asks[15], asks[16], asks[17]),
            (Ask::Write(15 << 16, 1 << 16), Ask::Flush, Ask::Write(1 << 20, 1 << 16))
        );
        // What is smaller than the size is used as it is.
        assert_eq!(jobs[0].asks(1 << 20).unwrap().count(), 17);
        assert!(jobs[0].asks(1 << 12).is_none());
        let mixed: Vec<Ask> = jobs[1].asks(1 << 40).unwrap().take(1000).collect();
        let reads = mixed.iter().filter(|ask| matches!(ask, Ask::Read(..))).count();
        assert!((600..800).contains(&reads), "{reads}");
    }

    #[test]
    fn what_is_not_understood_is_named_with_its_line() {
        for (text, wanted) in [
            ("[a]\nrw=write\nbs=4q", "line 3: `bs=4q` has no size"),
            ("[a]\nrw=trim", "line 2: `rw=trim` is not understood"),
            ("[a]\nbs=4k", "line 1: job `a` does not say rw="),
            ("rw=read", "line 1: `rw=read` stands before"),
            ("[a\nrw=read", "line 1: `[a` names no job"),
            ("[a]\nrw=read\nverify=crc32c", "line 3: `verify` is not understood"),
            ("[a]\nrw=read\n[b]\nrw=read", "line 3: job `b` would run beside"),
            ("[a]\nrw=read\niodepth=0", "line 3: `iodepth=0` has no number from 1 to 1024"),
            ("[a]\nrw=read\niodepth=512\nnumjobs=3", "1536 requests at once"),
            ("[a]\nrw=read\ntime_based", "has no runtime="),
            ("[a]\nrw=read\nbs=1000", "whole sectors"),
            ("[a]\nrw=read\nruntime=soon", "`runtime=soon` is no time"),
            ("", "there is no job in it"),
            ("diskspd -w100 -b0K -o4", "asks for 0 bytes"),
            ("diskspd -w100 -b4K -o4000", "4000 requests at once"),
            ("diskspd -w100 -b4K -Q", "`-Q`"),
        ] {
            let error = Job::read(text).unwrap_err();
            assert!(error.contains(wanted), "{text}: {error}");
        }
    }
}
