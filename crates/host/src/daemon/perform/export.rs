//! Exports: adding, removing, restoring.

use crate::api::error::{Answer, ApiError, Kind};
use crate::api::export::{Address, ExportInfo, Network, Place, Terms};
use crate::api::name::VdiskName;
use crate::api::pool::PoolInfo;
use crate::api::vdisk::VdiskInfo;
use crate::api::watch::{Change, Outcome};
use crate::daemon::state::ExportRecord;
use crate::daemon::{Daemon, lock, sockets};
use crate::ops::Perform;
use crate::ops::export::{ExportAdd, ExportList, ExportRemove, ExportShow, Offered};
use crate::ops::line::{Line, ToLine, on_path};
use crate::ublk;
use std::fmt;
use std::fs;
use std::os::unix::fs::FileTypeExt;
use std::path::Path;

impl Perform<ExportList> for Daemon {
    fn perform(&self, _: &ExportList) -> Answer<Vec<ExportInfo>> {
        Ok(self.exports())
    }
}

impl Perform<ExportShow> for Daemon {
    fn perform(&self, show: &ExportShow) -> Answer<Offered> {
        let vdisk = &show.vdisk;
        let exports: Vec<ExportInfo> = self.exports().into_iter().filter(|export| export.vdisk == *vdisk).collect();
        // What is offered is remembered while its pool is away.
        if exports.is_empty() {
            self.vdisk(vdisk)?;
        }
        Ok(Offered { vdisk: vdisk.clone(), exports })
    }
}

impl Perform<ExportAdd> for Daemon {
    fn perform(&self, add: &ExportAdd) -> Answer<Change> {
        self.vdisk(&add.vdisk)?;
        self.change(&add.vdisk.pool, || self.add_export(add))
    }
}

impl Perform<ExportRemove> for Daemon {
    fn perform(&self, remove: &ExportRemove) -> Answer<Change> {
        self.change(&remove.vdisk.pool, || self.remove_export(remove))
    }
}

impl Daemon {
    pub(in crate::daemon) fn exports(&self) -> Vec<ExportInfo> {
        let idle = lock(&self.idle);
        let state = lock(&self.state);
        let info = |record: &ExportRecord| {
            let idle = idle.iter().find(|(idle, _)| idle == record).map(|(_, why)| why.to_string());
            let reason = idle.or_else(|| self.ended(record).then(|| ENDED.into()));
            let uri = record.at.uri(&record.vdisk);
            let (nbd, fuse, ublk) = record.at.clone().fields();
            let connections = self.parts.exports.connections(&record.vdisk, &record.at);
            let vdisk = record.vdisk.clone();
            let active = reason.is_none();
            let terms = record.terms.clone();
            ExportInfo { vdisk, nbd, fuse, ublk, terms, connections, active, reason, uri }
        };
        state.exports.iter().map(info).collect()
    }

    fn add_export(&self, request: &ExportAdd) -> Answer<Change> {
        let (vdisk, dry_run) = (&request.vdisk, request.changing.dry_run);
        let at = request.place()?;
        let terms = request.terms();
        let record = ExportRecord { vdisk: vdisk.clone(), at: at.clone(), terms: terms.clone() };
        let before = self.exports_of(vdisk).into_iter().find(|export| export.at == at);
        if let Some(before) = before.filter(|before| *before != record) {
            let how = if before.terms.read_only { "for reading only" } else { "for writing" };
            let message = format!("{vdisk} is offered on {at} already, {how} and on terms that were other than these");
            return Err(ApiError::new(Kind::NotPossible, message).offer(&removal(&before)));
        }
        let known = lock(&self.state).exports.contains(&record);
        let idle = lock(&self.idle).iter().any(|(idle, _)| *idle == record) || known && self.ended(&record);
        let subject = format!("export {vdisk} on {at}");
        let uri = at.uri(vdisk);
        if known && !idle {
            return Ok(Change::new(Outcome::AlreadySo, subject, dry_run).line(uri));
        }
        match &at {
            Place::Nbd(_) if lock(&self.state).exports.iter().any(|export| export.at == at) => {}
            Place::Nbd(address) => socket_free(vdisk, address)?,
            Place::Fuse(dir) => self.directory_free(&record, dir)?,
            Place::Ublk(number) => self.number_free(&record, *number)?,
        }
        validate_terms(request, &at)?;
        self.socket_is_as_asked(&record)?;
        self.one_writer(request, &at)?;
        if !dry_run {
            self.parts.exports.start(vdisk, &at, &terms)?;
            lock(&self.idle).retain(|(idle, _)| *idle != record);
            let remembered = if known { Ok(()) } else { self.remember(|state| state.exports.push(record)) };
            if let Err(error) = remembered {
                let _ = self.parts.exports.stop(vdisk, &at);
                return Err(error);
            }
        }
        let mut change = Change::new(Outcome::Created, subject, dry_run).line(uri);
        change.changes.extend(told(&terms, &at));
        Ok(change)
    }

    fn exports_of(&self, vdisk: &VdiskName) -> Vec<ExportRecord> {
        lock(&self.state).exports.iter().filter(|export| export.vdisk == *vdisk).cloned().collect()
    }

    /// Refuses a second use that writes. Who writes beside a file system destroys it, so one that is mounted can only
    /// be read by others; elsewhere clients may know of each other, and a person says so.
    fn one_writer(&self, request: &ExportAdd, at: &Place) -> Answer<()> {
        let ExportAdd { vdisk, read_only, shared, for_mount, .. } = request;
        if *read_only {
            return Ok(());
        }
        let mounts: Vec<_> = self.mounts().into_iter().filter(|mount| mount.vdisk == *vdisk).collect();
        let mut others = self.exports_of(vdisk);
        others.retain(|other| other.at != *at && !other.terms.read_only);
        others.retain(|other| !mounts.iter().any(|mount| other.is_of(mount)));
        let other = others.first();
        let read = || ExportAdd { read_only: true, ..plain(vdisk, at) }.line();
        if *for_mount {
            let Some(other) = other else { return Ok(()) };
            let message = format!(
                "{vdisk} is offered on {}, where clients write to it; a file system mounted beside them would be \
                 destroyed",
                other.at
            );
            return Err(ApiError::new(Kind::NotPossible, message).offer(&removal(other)));
        }
        if let Some(mount) = mounts.first() {
            let message = format!(
                "{vdisk} is mounted on {}; whoever writes beside its file system destroys it, and with --read-only it \
                 can be read",
                mount.dir.display()
            );
            return Err(ApiError::new(Kind::NotPossible, message).hint(read()));
        }
        match other.filter(|_| !shared) {
            None => Ok(()),
            Some(other) => {
                let message = format!(
                    "{vdisk} is offered on {} already, and two that write destroy each other's data; others can read \
                     it with --read-only, and --shared is for cluster file systems",
                    other.at
                );
                Err(ApiError::new(Kind::NotPossible, message).hint(read()))
            }
        }
    }

    /// Refuses another mode or owner for a socket that other exports have, too.
    fn socket_is_as_asked(&self, record: &ExportRecord) -> Answer<()> {
        let state = lock(&self.state);
        let other = state.exports.iter().find(|other| other.at == record.at && other.vdisk != record.vdisk);
        let same = |other: &&ExportRecord| {
            let of = |record: &ExportRecord| {
                let Terms { mode, owner, allow_any, allow, .. } = record.terms.clone();
                (mode, owner, allow_any, allow)
            };
            of(other) == of(record)
        };
        match other.filter(|other| !same(other)) {
            None => Ok(()),
            Some(other) => {
                let message = format!(
                    "{} is the address of {}, too, with another mode, owner or circle of clients; all of one address \
                     have the same",
                    record.at, other.vdisk
                );
                Err(ApiError::new(Kind::NotPossible, message).offer(&removal(other)))
            }
        }
    }

    fn remove_export(&self, how: &ExportRemove) -> Answer<Change> {
        let (vdisk, dry_run) = (&how.vdisk, how.changing.dry_run);
        let leaves = |record: &ExportRecord| record.vdisk == *vdisk && how.takes(&record.at);
        let leaving: Vec<ExportRecord> =
            lock(&self.state).exports.iter().filter(|record| leaves(record)).cloned().collect();
        if leaving.is_empty() {
            let at = Place::one_of(how.nbd.clone(), how.fuse.clone(), how.ublk);
            let at = at.map(|at| format!(" on {at}")).unwrap_or_default();
            return Err(ApiError::new(Kind::NotFound, format!("{vdisk} is not offered{at}")).offer(&ExportList {}));
        }
        let mounts = self.mounts();
        if let Some(mount) = mounts.iter().find(|mount| leaving.iter().any(|record| record.is_of(mount))) {
            let dir = mount.dir.display();
            let message = format!("{vdisk} is mounted on {dir}; its file system would lose it");
            return Err(ApiError::new(Kind::NotPossible, message).hint(Line::new("unmount").word(dir)));
        }
        let mut change = Change::new(Outcome::Removed, format!("export {vdisk}"), dry_run);
        for record in &leaving {
            change = change.line(record.at.to_string());
        }
        if dry_run {
            return Ok(change);
        }
        self.remember(|state| state.exports.retain(|record| !leaving.contains(record)))?;
        for record in &leaving {
            let idle = lock(&self.idle).iter().any(|(idle, _)| idle == record);
            if !idle {
                self.parts.exports.stop(&record.vdisk, &record.at)?;
            }
        }
        lock(&self.idle).retain(|(idle, _)| !leaving.contains(idle));
        Ok(change)
    }

    /// Serves every remembered export that is not served yet and can be: of these pools, which are open (the daemon's
    /// invariant 3).
    pub(in crate::daemon) fn restore_exports(&self, pools: &[PoolInfo]) {
        let mut exports = lock(&self.state).exports.clone();
        let first_time = !std::mem::replace(&mut *lock(&self.restored), true);
        let idle_before = lock(&self.idle).clone();
        exports.retain(|export| first_time || idle_before.iter().any(|(idle, _)| idle == export));
        let mut idle = Vec::new();
        for export in exports {
            // Who uses its old device has its number. `weft mount` ends that first, and then asks for it.
            if matches!(export.at, Place::Ublk(_)) && self.is_of_lost_mount(&export) {
                idle.push((export, Idle::LostMount));
                continue;
            }
            let pool = pools.iter().find(|pool| pool.name == export.vdisk.pool);
            let started = match pool.map(|pool| pool.vdisks.iter().any(|vdisk| vdisk.name == export.vdisk)) {
                Some(true) => self.parts.exports.start(&export.vdisk, &export.at, &export.terms).map_err(Idle::Refused),
                Some(false) => Err(Idle::NoVdisk(export.vdisk.clone())),
                None => Err(Idle::NoPool(export.vdisk.pool.clone())),
            };
            if let Err(why) = started {
                let known = idle_before.iter().any(|(idle, before)| *idle == export && before.is_like(&why));
                if !known {
                    let text = format!("{} is not offered on {}: {why}", export.vdisk, export.at);
                    self.parts.journal.warn(Some(&export.vdisk.pool), text);
                }
                idle.push((export, why));
            }
        }
        *lock(&self.idle) = idle;
    }

    pub(in crate::daemon) fn stop_exports(&self) {
        for export in self.exports().into_iter().filter(|export| export.active) {
            let Some(at) = export.place() else { continue };
            if let Err(error) = self.parts.exports.stop(&export.vdisk, &at) {
                self.parts.journal.warn(Some(&export.vdisk.pool), error.message);
            }
        }
    }

    /// Whether an export waits for its mount, whose device was lost.
    pub(in crate::daemon) fn waits_for_its_mount(&self, export: &ExportInfo) -> bool {
        matches!(self.why_idle(export), Some(Idle::LostMount))
    }

    /// Whether an export will be offered in a moment: its pool, one of those that are `open`, was just opened.
    pub(in crate::daemon) fn is_about_to_be_offered(&self, export: &ExportInfo, open: &[PoolInfo]) -> bool {
        matches!(self.why_idle(export), Some(Idle::NoPool(name)) if open.iter().any(|pool| pool.name == name))
    }

    fn why_idle(&self, export: &ExportInfo) -> Option<Idle> {
        let at = export.place();
        let is_it = |record: &ExportRecord| record.vdisk == export.vdisk && Some(&record.at) == at.as_ref();
        lock(&self.idle).iter().find(|(record, _)| is_it(record)).map(|(_, why)| why.clone())
    }

    /// Whether somebody else ended an export that was started.
    fn ended(&self, record: &ExportRecord) -> bool {
        !self.parts.exports.serves(&record.vdisk, &record.at)
    }

    /// Refuses the number of a block device that there is already, or where the kernel has none.
    fn number_free(&self, record: &ExportRecord, number: u32) -> Answer<()> {
        let next = || {
            let taken = ublk::numbers();
            (0..).find(|number| !taken.contains(number)).unwrap_or_default()
        };
        let hint = |error: ApiError| match error.kind {
            Kind::AlreadyExists => error.hint(plain(&record.vdisk, &Place::Ublk(next())).line()),
            _ => error.hint("modprobe ublk_drv"),
        };
        let state = lock(&self.state);
        if let Some(other) = state.exports.iter().find(|other| other.at == record.at && *other != record) {
            let message = format!("{} is ublk device {number} already", other.vdisk);
            return Err(hint(ApiError::new(Kind::AlreadyExists, message)));
        }
        drop(state);
        ublk::server::validate(number).map_err(|error| hint(error.into()))
    }

    /// Refuses a directory that another export has, or that cannot be one of this daemon's mounts.
    fn directory_free(&self, record: &ExportRecord, dir: &Path) -> Answer<()> {
        let (vdisk, shown) = (&record.vdisk, dir.display());
        let fuse = |dir: String| plain(vdisk, &Place::Fuse(dir.into()));
        if !dir.is_absolute() {
            return Err(ApiError::new(Kind::InvalidInput, format!("{shown} is no absolute path"))
                .offer(&fuse(format!("/run/weft/{}", vdisk.vdisk))));
        }
        let state = lock(&self.state);
        let other = state.exports.iter().find(|other| other.at == record.at && *other != record);
        if let Some(other) = other {
            return Err(ApiError::new(Kind::NotPossible, format!("{shown} holds {} already", other.vdisk))
                .offer(&fuse(format!("{shown}-{}", vdisk.vdisk))));
        }
        drop(state);
        crate::fuse::server::validate(dir).map_err(ApiError::from).map_err(|error| match error.kind {
            Kind::NotFound => error.hint(on_path("mkdir -p", dir)),
            _ => error.offer(&fuse(format!("{shown}/{}", vdisk.vdisk))),
        })
    }
}

/// Refuses what makes no sense for the address, and an address that other machines reach unless that is asked for by
/// name.
fn validate_terms(request: &ExportAdd, at: &Place) -> Answer<()> {
    let refused = |kind, message: String, hint| Err(ApiError::new(kind, message).hint(hint));
    let add = |at: &Place| plain(&request.vdisk, at).line();
    let socket = matches!(at, Place::Nbd(Address::Unix(_)));
    for (said, flag) in [(request.mode.is_some(), "--mode"), (request.owner.is_some(), "--owner")] {
        if said && !socket {
            return refused(Kind::InvalidInput, format!("{flag} is for unix sockets; {at} is none"), add(at));
        }
    }
    if let Some(owner) = &request.owner {
        sockets::numbers(owner).map_err(|error| error.hint(add(at)))?;
    }
    if !request.allow.is_empty() && !matches!(at, Place::Nbd(Address::Tcp { .. })) {
        return refused(
            Kind::InvalidInput,
            format!("--allow is for TCP; {at} is reached by this machine alone"),
            add(at),
        );
    }
    if !request.allow.is_empty() && request.allow_any {
        let message = "--allow lets some machines in, and --allow-any all of them; only one of them can be meant";
        return refused(
            Kind::InvalidInput,
            message.into(),
            ExportAdd { allow_any: true, ..plain(&request.vdisk, at) }.line(),
        );
    }
    match at {
        Place::Nbd(address @ Address::Tcp { port, .. })
            if !address.is_local() && !request.allow_any && request.allow.is_empty() =>
        {
            let local = Place::Nbd(Address::Tcp { host: "127.0.0.1".into(), port: *port });
            let message = format!(
                "{address} can be reached from other machines, and NBD asks nobody who he is and hides nothing: \
                 --allow ADDR[/LEN] offers {} to those it names, \
                 --allow-any to all of them; through an SSH tunnel this machine's own address is enough",
                request.vdisk
            );
            refused(Kind::NotPossible, message, add(&local))
        }
        _ => Ok(()),
    }
}

/// How an export is offered, one line each; nothing where nothing was asked for.
fn told(terms: &Terms, at: &Place) -> Vec<String> {
    let mut lines = Vec::new();
    if terms.read_only {
        lines.push("clients can only read".to_string());
    }
    if terms.shared {
        lines.push(
            "beside other uses that write: only for clients that know of each other, as cluster file systems do".into(),
        );
    }
    lines.extend(reach(terms, at).map(|(who, how)| format!("{who} can {how} it, without a password or encryption")));
    lines.extend(terms.mode.map(|mode| format!("the socket's mode is {mode}")));
    lines.extend(terms.owner.as_ref().map(|owner| format!("the socket belongs to {owner}")));
    lines
}

/// Which other machines reach it, and what they can do; `None` where none do.
pub(in crate::daemon) fn reach(terms: &Terms, at: &Place) -> Option<(String, &'static str)> {
    let Place::Nbd(address) = at else { return None };
    let how = if terms.read_only { "read" } else { "read and write" };
    if !terms.allow.is_empty() {
        let who: Vec<String> = terms.allow.iter().map(Network::to_string).collect();
        return Some((who.join(", "), how));
    }
    (!address.is_local()).then(|| ("any machine that reaches the address".into(), how))
}

/// Asks for `vdisk` at `at`, on no terms.
fn plain(vdisk: &VdiskName, at: &Place) -> ExportAdd {
    ExportAdd::at(vdisk, at.clone(), Terms::default())
}

/// Asks to end what `record` says.
fn removal(record: &ExportRecord) -> ExportRemove {
    ExportRemove::at(&record.vdisk, record.at.clone())
}

/// The command that ends the first use of a virtual disk.
pub(in crate::daemon) fn ending(vdisk: &VdiskInfo) -> String {
    match vdisk.exports.iter().find_map(|export| export.strip_prefix("mount:")) {
        Some(dir) => Line::new("unmount").word(dir).into(),
        None => ExportRemove::all(&vdisk.name).line(),
    }
}

/// Why an export that is remembered is not served.
#[derive(Clone)]
pub(in crate::daemon) enum Idle {
    /// Its mount waits for a person, or for the end of the daemon's start.
    LostMount,
    /// Its pool is not open.
    NoPool(String),
    /// Its virtual disk is not there.
    NoVdisk(VdiskName),
    /// It was refused.
    Refused(ApiError),
}

impl Idle {
    /// Whether people who were told the one know of the other.
    fn is_like(&self, other: &Idle) -> bool {
        match (self, other) {
            (Idle::Refused(one), Idle::Refused(other)) => one.kind == other.kind,
            _ => std::mem::discriminant(self) == std::mem::discriminant(other),
        }
    }
}

impl fmt::Display for Idle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Idle::LostMount => {
                f.write_str("the daemon before was killed, and its device went with it; `weft mount` makes it again")
            }
            Idle::NoPool(pool) => write!(f, "pool {pool} is not open"),
            Idle::NoVdisk(vdisk) => write!(f, "there is no virtual disk {vdisk}"),
            Idle::Refused(error) => f.write_str(&error.message),
        }
    }
}

/// Why an export that was started is not served.
const ENDED: &str = "somebody ended it; adding it again makes it again";

/// Refuses a unix socket's path where something else is, or where nothing can be.
fn socket_free(vdisk: &VdiskName, nbd: &Address) -> Answer<()> {
    let Address::Unix(path) = nbd else { return Ok(()) };
    let unix = |path: String| plain(vdisk, &Place::Nbd(Address::Unix(path.into())));
    let shown = path.display();
    if !path.is_absolute() {
        return Err(ApiError::new(Kind::InvalidInput, format!("{shown} is no absolute path"))
            .offer(&unix("/run/weft/nbd.sock".into())));
    }
    if !path.parent().is_some_and(std::path::Path::is_dir) {
        let dir = path.parent().unwrap_or(path);
        return Err(ApiError::new(Kind::NotFound, format!("no directory {} for the socket {shown}", dir.display()))
            .hint(on_path("mkdir -p", dir)));
    }
    match fs::symlink_metadata(path) {
        Ok(meta) if !meta.file_type().is_socket() => {
            Err(ApiError::new(Kind::NotPossible, format!("{shown} is there and is no socket"))
                .offer(&unix(format!("{shown}.sock"))))
        }
        _ => Ok(()),
    }
}
