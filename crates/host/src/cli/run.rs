//! What each command does.

mod lab;
mod plan;
mod upkeep;
mod wait;

use super::args::{self, Cli, Command, Disk, Export, ExportTerms, Pool, Vdisk};
use super::exit::Exit;
use super::rates::{Memory, between, since_open};
use super::table::Style;
use super::text::Text;
use super::{Failure, Io, color, manual, usage};
use crate::api::client::Client;
use crate::api::error::{Answer, ApiError, Kind};
use crate::api::export::{ExportAdd, ExportRemove, Place, Protocol, Terms};
use crate::api::job::StartKind;
use crate::api::pool::{ChangeQuery, CheckQuery, PoolCreate, PoolQuery};
use crate::api::vdisk::{ExplainQuery, Provisioning, VdiskCreate, VdiskResize};
use crate::api::watch::{Change, EventQuery, StatQuery, Version};
use crate::api::{API_VERSION, Control};
use crate::daemon::config::{Settings, Surroundings, default_socket};
use crate::daemon::serve::serve;
use crate::harmless;
use crate::mount;
use serde::Serialize;
use std::collections::VecDeque;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How long a follower waits in one question for the next event.
const FOLLOW_MS: u64 = 30_000;

type Ran = Result<Exit, Failure>;

/// Runs one command that was read from `argv`.
pub(super) fn command(cli: &Cli, argv: &[OsString], surroundings: &Surroundings, io: &mut Io) -> Ran {
    let style = Style { color: color(cli.common.color, io.terminal, surroundings), verbose: cli.common.verbose };
    let mut session = Session { cli, argv, surroundings, io, style };
    match &cli.command {
        Command::Serve(serve) => session.serve(serve),
        Command::Completions { shell } => manual::completions(*shell, session.io.out).map(|()| Exit::Done),
        Command::Man { dir: Some(dir), .. } => manual::pages(dir).map(|()| Exit::Done),
        Command::Man { command, .. } => manual::page(command, session.io.out).map(|()| Exit::Done),
        Command::Plan(plan) => session.plan(plan),
        Command::Lab(lab) => session.lab(lab),
        Command::Version => session.version(),
        _ => {
            let client = Client::new(session.socket()?);
            session.ask(&client)
        }
    }
}

struct Session<'a, 'io> {
    cli: &'a Cli,
    argv: &'a [OsString],
    surroundings: &'a Surroundings<'a>,
    io: &'a mut Io<'io>,
    style: Style,
}

impl Session<'_, '_> {
    /// The commands that the daemon answers.
    fn ask(&mut self, weft: &dyn Control) -> Ran {
        match &self.cli.command {
            Command::Pool(pool) => self.pool(weft, pool),
            Command::Disk(Disk::List { pool }) => {
                let query = PoolQuery { pool: pool.clone() };
                self.print(&weft.disk_list(&query)?)
            }
            Command::Disk(Disk::Show { disk }) => {
                let disk =
                    if disk.starts_with('.') { absolute(Path::new(disk))?.display().to_string() } else { disk.clone() };
                self.print(&weft.disk_show(&disk)?)
            }
            Command::Disk(Disk::Add(add)) => self.disk_add(weft, add),
            Command::Disk(Disk::Remove(remove)) => self.disk_remove(weft, remove),
            Command::Disk(Disk::Replace(replace)) => self.disk_replace(weft, replace),
            Command::Disk(Disk::Set(set)) => self.disk_set(weft, set),
            Command::Job(job) => self.job(weft, job),
            Command::Scrub(start) => self.start_job(weft, start, StartKind::Scrub),
            Command::Repair(start) => self.start_job(weft, start, StartKind::Repair),
            Command::Rebalance(start) => self.start_job(weft, start, StartKind::Rebalance),
            Command::Vdisk(vdisk) => self.vdisk(weft, vdisk),
            Command::Export(export) => self.export(weft, export),
            Command::Mount(told) => {
                let request = mount_request(told)?;
                let socket = absolute(&self.socket()?)?;
                self.changed(mount::up::mount(weft, &socket, &request)?)
            }
            Command::Unmount { dir, force, keep, changing } => {
                let dry_run = changing.dry_run;
                let request = mount::down::Request { dir: absolute(dir)?, force: *force, keep: *keep, dry_run };
                let socket = absolute(&self.socket()?)?;
                self.changed(mount::down::unmount(weft, &socket, &request)?)
            }
            Command::Status { pool } => self.print(&weft.status(&PoolQuery { pool: pool.clone() })?),
            Command::Stat { of, memory: true, .. } => {
                self.print(&Memory::of(&weft.stat(&StatQuery { of: of.clone() })?))
            }
            Command::Stat { of, interval, count, .. } => self.stat(weft, of.as_ref(), *interval, *count),
            Command::Explain { vdisk, operation, offset, length } => {
                let query = ExplainQuery { operation: *operation, offset: *offset, length: *length };
                self.print(&weft.explain(vdisk, query)?)
            }
            Command::Events { pool, follow, count } => self.events(weft, pool.as_ref(), *follow, *count),
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

    fn pool(&mut self, weft: &dyn Control, pool: &Pool) -> Ran {
        match pool {
            Pool::Create { pool, disks, create_size, slab_size, force, changing } => {
                let disks = disks.iter().map(|disk| absolute(disk)).collect::<Answer<_>>()?;
                let request = PoolCreate {
                    name: pool.clone(),
                    disks,
                    create_size: *create_size,
                    slab_size: *slab_size,
                    force: *force,
                    dry_run: changing.dry_run,
                };
                self.changed(weft.pool_create(&request)?)
            }
            Pool::List => self.print(&weft.pool_list()?),
            Pool::Show { pool } => self.print(&weft.pool_show(pool)?),
            Pool::Remove { pool, .. } => self.destroy(|how| weft.pool_remove(pool, how)),
            Pool::Check { pool, repair, changing } => {
                let report = weft.pool_check(pool, CheckQuery { repair: *repair, dry_run: changing.dry_run })?;
                self.print(&report)?;
                Ok(if report.sound { Exit::Done } else { Exit::Other })
            }
            Pool::Rename(rename) => self.pool_rename(weft, rename),
            Pool::Set(set) => self.pool_set(weft, set),
            Pool::Import(import) => self.pool_import(weft, import),
            Pool::Export(export) => self.pool_export(weft, export),
        }
    }

    fn vdisk(&mut self, weft: &dyn Control, vdisk: &Vdisk) -> Ran {
        match vdisk {
            Vdisk::Create(create) => {
                let request = create_request(create);
                request.judge()?;
                self.changed(weft.vdisk_create(&request)?)
            }
            Vdisk::List { pool } => self.print(&weft.vdisk_list(&PoolQuery { pool: pool.clone() })?),
            Vdisk::Show { vdisk } => self.print(&weft.vdisk_show(vdisk)?),
            Vdisk::Resize { vdisk, size, changing } => {
                let request = VdiskResize { size: *size, dry_run: changing.dry_run };
                self.changed(weft.vdisk_resize(vdisk, &request)?)
            }
            Vdisk::Rename { vdisk, new, changing } => self.vdisk_rename(weft, vdisk, new, *changing),
            Vdisk::Clear { vdisk, changing } => self.vdisk_clear(weft, vdisk, *changing),
            Vdisk::Remove { vdisk, .. } => self.destroy(|how| weft.vdisk_remove(vdisk, how)),
        }
    }

    fn export(&mut self, weft: &dyn Control, export: &Export) -> Ran {
        match export {
            Export::Add { vdisk, nbd, fuse, ublk, terms, changing } => {
                let here = here()?;
                let nbd = nbd.clone().map(|nbd| nbd.absolute(&here));
                let fuse = fuse.as_deref().map(absolute).transpose()?;
                let ExportTerms { read_only, shared, allow_any, allow, mode, owner } = terms.clone();
                let terms = Terms { read_only, shared, allow_any, allow, mode, owner };
                let place = Place::one_of(nbd, fuse, *ublk).map_err(ApiError::from)?;
                let request = ExportAdd::at(vdisk, place, terms, changing.dry_run);
                self.changed(weft.export_add(&request)?)
            }
            Export::List => self.print(&weft.export_list()?),
            Export::Remove { vdisk, nbd, fuse, ublk, changing } => {
                let here = here()?;
                let over = match (nbd, fuse, ublk) {
                    (Some(_), ..) => Some(Protocol::Nbd),
                    (_, Some(_), _) => Some(Protocol::Fuse),
                    (.., Some(_)) => Some(Protocol::Ublk),
                    (None, None, None) => None,
                };
                let nbd = nbd.clone().flatten().map(|nbd| nbd.absolute(&here));
                let fuse = fuse.as_ref().and_then(Option::as_deref).map(absolute).transpose()?;
                let how = ExportRemove { nbd, fuse, ublk: ublk.flatten(), over, dry_run: changing.dry_run };
                self.changed(weft.export_remove(vdisk, &how)?)
            }
        }
    }

    fn stat(&mut self, weft: &dyn Control, of: Option<&String>, interval: Option<Duration>, count: Option<u64>) -> Ran {
        let query = StatQuery { of: of.cloned() };
        let mut before = weft.stat(&query)?;
        let Some(interval) = interval else { return self.print(&since_open(&before)) };
        for _ in 0..count.unwrap_or(u64::MAX) {
            std::thread::sleep(interval);
            let now = weft.stat(&query)?;
            self.print_one_of_many(&between(&before, &now))?;
            before = now;
        }
        Ok(Exit::Done)
    }

    fn events(&mut self, weft: &dyn Control, pool: Option<&String>, follow: bool, count: Option<u64>) -> Ran {
        let mut query = EventQuery { pool: pool.cloned(), after: 0, wait_ms: 0 };
        if let (Some(count), false) = (count, follow) {
            return self.newest_events(weft, query, count);
        }
        let mut left = count.unwrap_or(u64::MAX);
        loop {
            let page = weft.events(&query)?;
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
    fn newest_events(&mut self, weft: &dyn Control, mut query: EventQuery, count: u64) -> Ran {
        let mut newest = VecDeque::new();
        loop {
            let page = weft.events(&query)?;
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
        if self.cli.common.verbose {
            let client = Client::new(self.socket()?);
            let daemon = match client.version() {
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
            socket: self.cli.common.socket.clone(),
            disks: (!told.disks.is_empty()).then(|| told.disks.clone()),
            degraded: told.degraded.then_some(true),
            memory: told.memory,
            wait: None,
            events: None,
        };
        let file = told.config.as_deref().map(Settings::read).transpose()?.unwrap_or_default();
        let options = flags.resolve(file, self.surroundings)?;
        serve(&options, crate::daemon::parts)?;
        Ok(Exit::Done)
    }

    fn socket(&self) -> Answer<PathBuf> {
        match &self.cli.common.socket {
            Some(socket) => Ok(socket.clone()),
            None => default_socket(self.surroundings),
        }
    }

    /// Does what destroys data, when a person agrees or `--yes` was given.
    fn destroy(&mut self, operation: impl Fn(ChangeQuery) -> Answer<Change>) -> Ran {
        let changing = self.cli.command.changing().expect("it destroys, so it changes");
        let would = operation(ChangeQuery { dry_run: true })?;
        if changing.dry_run {
            return self.changed(would);
        }
        if !changing.yes {
            let subject = &would.subject;
            let harm = format!("removing {subject} destroys what it holds");
            self.agreed(&would, &harm, &format!("Remove {subject}? What it holds is gone for good."), "was kept")?;
        }
        self.changed(operation(ChangeQuery { dry_run: false })?)
    }

    /// Asks a person for what does harm, having said what would change; fails unless the answer is yes.
    fn agreed(&mut self, would: &Change, harm: &str, question: &str, otherwise: &str) -> Result<(), Failure> {
        let Some(ask) = &mut self.io.ask else {
            let message = format!("{harm}; without a terminal only --yes does it");
            return Err(ApiError::new(Kind::InvalidInput, message).hint(usage::again(self.argv, "--yes")).into());
        };
        write!(self.io.err, "{}", harmless::lines(&would.text(self.style)))?;
        if ask(question) {
            return Ok(());
        }
        let message = format!("{} {otherwise}", would.subject);
        Err(ApiError::new(Kind::NotPossible, message).hint(usage::again(self.argv, "--yes")).into())
    }

    /// Prints what changed; quietly, only what would.
    fn changed(&mut self, change: Change) -> Ran {
        if self.cli.common.quiet && !self.cli.common.json && !change.dry_run {
            return Ok(Exit::Done);
        }
        self.print(&change)
    }

    fn print<T: Text + Serialize>(&mut self, answer: &T) -> Ran {
        if self.cli.common.json {
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
        if self.cli.common.json {
            let json = serde_json::to_string(answer).expect("answers have string keys only");
            writeln!(self.io.out, "{}", harmless::json(&json))?;
            self.io.out.flush()?;
            return Ok(Exit::Done);
        }
        self.print(answer)
    }
}

fn create_request(create: &args::VdiskCreate) -> VdiskCreate {
    VdiskCreate {
        name: create.vdisk.clone(),
        size: create.size,
        resiliency: create.resiliency,
        copies: create.copies,
        failures: create.failures,
        columns: create.columns,
        interleave: create.interleave,
        provisioning: if create.fixed { Provisioning::Fixed } else { Provisioning::Thin },
        write_cache: create.write_cache,
        sector: create.sector,
        disks: create.disks.clone(),
        dry_run: create.changing.dry_run,
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

fn here() -> Answer<PathBuf> {
    std::env::current_dir()
        .map_err(|error| ApiError::new(Kind::NotPossible, format!("there is no working directory: {error}")))
}

/// The daemon works in another directory: paths go to it absolute.
fn absolute(path: &Path) -> Answer<PathBuf> {
    std::path::absolute(path)
        .map_err(|error| ApiError::new(Kind::InvalidInput, format!("`{}` is no path: {error}", path.display())))
}
