//! What each command does.

mod dump;
mod lab;
mod load;
mod measure;
mod plan;
mod wait;

use super::args::{self, Cli, Command, Common};
use super::exit::Exit;
use super::rates::{Memory, between, since_open};
use super::{Failure, Io, color, manual, usage};
use crate::api::API_VERSION;
use crate::api::error::{Answer, ApiError, Kind};
use crate::api::job::StartKind;
use crate::api::name::VdiskName;
use crate::api::watch::{Change, Outcome, Version};
use crate::daemon::config::{Settings, Surroundings, default_socket};
use crate::daemon::serve::serve;
use crate::harmless;
use crate::mount;
use crate::ops::disk::Disk;
use crate::ops::job::JobStart;
use crate::ops::pool::Pool;
use crate::ops::table::Style;
use crate::ops::text::Text;
use crate::ops::watch::{EventList, StatShow, VersionShow};
use crate::ops::{Changing, Doer, Harm, Perform, Verb, absolute};
use crate::wire::client::Client;
use serde::Serialize;
use std::collections::VecDeque;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How long a follower waits in one question for the next event.
const FOLLOW_MS: u64 = 30_000;

type Ran = Result<Exit, Failure>;

/// Runs one command that was read from `argv`.
pub(super) fn command(cli: Cli, argv: &[OsString], surroundings: &Surroundings, io: &mut Io) -> Ran {
    let Cli { common, command } = cli;
    let style = Style { color: color(common.color, io.terminal, surroundings), verbose: common.verbose };
    let mut session = Session { cli: &common, argv, surroundings, io, style };
    match command {
        Command::Serve(serve) => session.serve(&serve),
        Command::Completions { shell } => manual::completions(shell, session.io.out).map(|()| Exit::Done),
        Command::Man { dir: Some(dir), .. } => manual::pages(&dir).map(|()| Exit::Done),
        Command::Man { command, .. } => manual::page(&command, session.io.out).map(|()| Exit::Done),
        Command::Disk(Disk::Measure(told)) => session.measure(&told),
        Command::Pool(Pool::Dump(told)) => session.dump(&told),
        Command::Plan(plan) => session.plan(&plan),
        Command::Lab(lab) => session.lab(&lab),
        Command::Version => session.version(),
        command => {
            let client = Client::new(session.socket()?);
            session.ask(&client, command)
        }
    }
}

struct Session<'a, 'io> {
    cli: &'a Common,
    argv: &'a [OsString],
    surroundings: &'a Surroundings<'a>,
    io: &'a mut Io<'io>,
    style: Style,
}

impl Session<'_, '_> {
    /// The commands that the daemon answers.
    fn ask(&mut self, weft: &Client, command: Command) -> Ran {
        let mut asking = Asking { session: self, weft };
        match command {
            Command::Pool(pool) => pool.run(&mut asking),
            Command::Disk(disk) => disk.run(&mut asking),
            Command::Job(job) => job.run(&mut asking),
            Command::Scrub(start) => asking.operate(JobStart { kind: StartKind::Scrub, ..start }),
            Command::Repair(start) => asking.operate(JobStart { kind: StartKind::Repair, ..start }),
            Command::Rebalance(start) => asking.operate(JobStart { kind: StartKind::Rebalance, ..start }),
            Command::Vdisk(vdisk) => vdisk.run(&mut asking),
            Command::Export(export) => export.run(&mut asking),
            Command::Status(status) => asking.operate(status),
            Command::Explain(explain) => asking.operate(explain),
            Command::Tier(tier) => {
                let find = |vdisk: &VdiskName, file: &Path| mount::extents::pieces_of_file(weft, vdisk, file);
                tier.located(find)?.run(&mut asking)
            }
            Command::Mount(told) => {
                let request = mount_request(&told)?;
                let socket = absolute(&self.socket()?)?;
                self.print(&mount::up::mount(weft, &socket, &request)?)
            }
            Command::Unmount { dir, force, keep, changing } => {
                let request = mount::down::Request { dir: absolute(&dir)?, force, keep, dry_run: changing.dry_run };
                let socket = absolute(&self.socket()?)?;
                self.print(&mount::down::unmount(weft, &socket, &request)?)
            }
            Command::Stat { of, memory: true, .. } => self.print(&Memory::of(&weft.perform(&StatShow { of })?)),
            Command::Stat { of, interval, count, .. } => self.stat(weft, of, interval, count),
            Command::Events { pool, follow, count } => self.events(weft, pool, follow, count),
            Command::Serve(_)
            | Command::Completions { .. }
            | Command::Man { .. }
            | Command::Plan(_)
            | Command::Lab(_)
            | Command::Version => {
                unreachable!("answered without the daemon")
            }
        }
    }

    fn stat(&mut self, weft: &Client, of: Option<String>, interval: Option<Duration>, count: Option<u64>) -> Ran {
        let query = StatShow { of };
        let mut before = weft.perform(&query)?;
        let Some(interval) = interval else { return self.print(&since_open(&before)) };
        for _ in 0..count.unwrap_or(u64::MAX) {
            std::thread::sleep(interval);
            let now = weft.perform(&query)?;
            self.print_one_of_many(&between(&before, &now))?;
            before = now;
        }
        Ok(Exit::Done)
    }

    fn events(&mut self, weft: &Client, pool: Option<String>, follow: bool, count: Option<u64>) -> Ran {
        let mut query = EventList { pool, after: 0, wait_ms: 0 };
        if let (Some(count), false) = (count, follow) {
            return self.newest_events(weft, query, count);
        }
        let mut left = count.unwrap_or(u64::MAX);
        loop {
            let page = weft.perform(&query)?;
            for event in &page.events {
                if left == 0 {
                    return Ok(Exit::Done);
                }
                left -= 1;
                self.print_one_of_many(event)?;
            }
            if left == 0 || !follow && page.events.is_empty() {
                return Ok(Exit::Done);
            }
            query.after = page.next;
            query.wait_ms = if follow { FOLLOW_MS } else { 0 };
        }
    }

    /// Prints the last `count` of all events.
    fn newest_events(&mut self, weft: &Client, mut query: EventList, count: u64) -> Ran {
        let mut newest = VecDeque::new();
        loop {
            let page = weft.perform(&query)?;
            if page.events.is_empty() {
                break;
            }
            newest.extend(page.events);
            let more = newest.len().saturating_sub(count as usize);
            newest.drain(..more);
            query.after = page.next;
        }
        for event in &newest {
            self.print_one_of_many(event)?;
        }
        Ok(Exit::Done)
    }

    fn version(&mut self) -> Ran {
        let own = Version { weft: env!("CARGO_PKG_VERSION").into(), api: API_VERSION.into() };
        if self.cli.verbose {
            let client = Client::new(self.socket()?);
            let daemon = match client.perform(&VersionShow {}) {
                Ok(version) => format!("weft {} (API {})", version.weft, version.api),
                Err(error) => error.message,
            };
            writeln!(self.io.err, "daemon: {daemon}")?;
        }
        self.print(&own)
    }

    fn serve(&mut self, told: &args::Serve) -> Ran {
        let flags = Settings {
            state: told.state.clone(),
            socket: self.cli.socket.clone(),
            disks: (!told.disks.is_empty()).then(|| told.disks.clone()),
            degraded: told.degraded.then_some(true),
            memory: told.memory,
            fine_share: told.fine_share,
            wait: None,
            events: None,
        };
        let file = told.config.as_deref().map(Settings::read).transpose()?.unwrap_or_default();
        let options = flags.resolve(file, self.surroundings)?;
        serve(&options, crate::daemon::parts)?;
        Ok(Exit::Done)
    }

    fn socket(&self) -> Answer<PathBuf> {
        match &self.cli.socket {
            Some(socket) => Ok(socket.clone()),
            None => default_socket(self.surroundings),
        }
    }

    /// Asks a person for what does harm, having said what would change; fails unless the answer is yes.
    fn agreed(&mut self, would: &Change, harm: Harm) -> Result<(), Failure> {
        let of = |text: &str| text.replace('%', &would.subject);
        let Some(ask) = &mut self.io.ask else {
            let message = format!("{}; without a terminal only --yes does it", of(harm.what));
            return Err(ApiError::new(Kind::InvalidInput, message).hint(usage::again(self.argv, "--yes")).into());
        };
        write!(self.io.err, "{}", harmless::lines(&would.text(self.style)))?;
        if ask(&of(harm.question)) {
            return Ok(());
        }
        let message = format!("{} {}", would.subject, harm.otherwise);
        Err(ApiError::new(Kind::NotPossible, message).hint(usage::again(self.argv, "--yes")).into())
    }

    /// Prints an answer; quietly, no confirmation.
    fn print<T: Text + Serialize>(&mut self, answer: &T) -> Ran {
        if self.cli.quiet && !self.cli.json && answer.confirms() {
            return Ok(Exit::Done);
        }
        if self.cli.json {
            let json = serde_json::to_string_pretty(answer).expect("answers have string keys only");
            writeln!(self.io.out, "{}", harmless::json(&json))?;
        } else {
            write!(self.io.out, "{}", harmless::lines(&answer.text(self.style)))?;
        }
        self.io.out.flush()?;
        Ok(Exit::Done)
    }

    /// Prints one of many answers; as JSON, one value per line.
    fn print_one_of_many<T: Text + Serialize>(&mut self, answer: &T) -> Ran {
        if self.cli.json {
            let json = serde_json::to_string(answer).expect("answers have string keys only");
            writeln!(self.io.out, "{}", harmless::json(&json))?;
            self.io.out.flush()?;
            return Ok(Exit::Done);
        }
        self.print(answer)
    }
}

/// Asks the daemon what was typed, whatever it was.
struct Asking<'a, 'b, 'io> {
    session: &'a mut Session<'b, 'io>,
    weft: &'a Client,
}

impl Doer for Asking<'_, '_, '_> {
    type Done = Ran;

    fn operate<V: Verb>(&mut self, verb: V) -> Ran {
        let mut verb = verb.typed(self.weft)?;
        let wanted = verb.changing().copied().unwrap_or_default();
        if let Some(harm) = verb.harm().filter(|_| !wanted.dry_run && !wanted.yes) {
            let mut dry = verb.clone();
            dry.changing().into_iter().for_each(|changing| *changing = Changing::DRY);
            let would = self.weft.perform(&dry)?;
            // What is so already harms nobody.
            if let Some(would) = would.change().filter(|would| would.outcome != Outcome::AlreadySo) {
                self.session.agreed(would, harm)?;
            }
        }
        let answer = V::completed(self.weft.perform(&verb)?);
        let job =
            answer.change().filter(|change| verb.waits() && !change.dry_run).and_then(|change| change.job.clone());
        if job.is_none() || !self.session.cli.json {
            self.session.print(&answer)?;
        }
        match job {
            Some(job) => self.session.wait(self.weft, &job),
            None if answer.is_good() => Ok(Exit::Done),
            None => Ok(Exit::Other),
        }
    }
}

fn mount_request(told: &args::Mount) -> Answer<mount::up::Request> {
    Ok(mount::up::Request {
        vdisk: told.vdisk.clone(),
        dir: absolute(&told.dir)?,
        format: told.format,
        mkfs: told.mkfs.iter().flat_map(|words| words.split_whitespace()).map(String::from).collect(),
        force: told.force,
        via: told.device,
        persist: told.persist,
        dry_run: told.changing.dry_run,
    })
}
