//! One daemon per socket and per state directory, and the socket itself.
//!
//! Invariants
//! 1. Whoever holds the lock beside the socket owns the socket: a socket that is there when the lock is taken is stale.
//! 2. A lock file is never removed: another daemon may be waiting on it.
//! 3. Only the owner of this process can open a lock file, or hold its lock: others would keep a daemon from starting.

use crate::api::error::{Answer, ApiError, Kind};
use crate::ops::line::{Line, ToLine};
use crate::ops::watch::StatusShow;
use rustix::fs::{FlockOperation, Mode, OFlags, flock};
use std::ffi::OsString;
use std::fs::{self, File, Permissions};
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt, PermissionsExt};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

/// A lock, held until it is dropped or the process ends.
pub struct Lock {
    file: File,
}

impl Drop for Lock {
    /// Ends the lock. To close the file is not enough: until a process that was started meanwhile has become another
    /// program, it has the file, too, and with it the lock.
    fn drop(&mut self) {
        let _ = flock(&self.file, FlockOperation::NonBlockingUnlock);
    }
}

/// The listening socket, removed when it is dropped.
pub struct Socket {
    path: PathBuf,
    _lock: Lock,
}

impl Lock {
    /// Takes the lock at `path`, writing our process number into it.
    pub fn take(path: &Path, what: &str) -> Answer<Lock> {
        let mut options = File::options();
        options.read(true).write(true).create(true).truncate(false).mode(0o600);
        options.custom_flags(OFlags::NOFOLLOW.bits() as i32);
        let open = options.open(path).and_then(|file| {
            // Earlier versions made it readable for all.
            file.set_permissions(Permissions::from_mode(0o600))?;
            Ok(file)
        });
        let mut file = open.map_err(|error| failed("open the lock", path, &error))?;
        if flock(&file, FlockOperation::NonBlockingLockExclusive).is_err() {
            let mut holder = String::new();
            let _ = file.read_to_string(&mut holder);
            let holder = match holder.trim() {
                "" => "another weft daemon".into(),
                pid => format!("another weft daemon (process {pid})"),
            };
            return Err(ApiError::new(Kind::NotPossible, format!("{holder} uses {what}")));
        }
        let write =
            file.set_len(0).and_then(|()| file.rewind()).and_then(|()| writeln!(file, "{}", std::process::id()));
        write.map_err(|error| failed("write the lock", path, &error))?;
        Ok(Lock { file })
    }
}

impl Socket {
    /// Listens on `path`, for the owner of this process only.
    pub fn listen(path: &Path) -> Answer<(Socket, UnixListener)> {
        if let Some(dir) = path.parent() {
            fs::create_dir_all(dir).map_err(|error| failed("make the directory of", path, &error))?;
        }
        let mut lock_path = OsString::from(path);
        lock_path.push(".lock");
        let lock = Lock::take(Path::new(&lock_path), &format!("the socket {}", path.display()))
            .map_err(|error| error.hint(format!("{} --socket {}", StatusShow::default().line(), path.display())))?;
        remove_stale(path)?;
        let listener = with_private_umask(|| UnixListener::bind(path));
        let listener = listener.map_err(|error| failed("listen on", path, &error))?;
        Ok((Socket { path: path.into(), _lock: lock }, listener))
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}

fn remove_stale(path: &Path) -> Answer<()> {
    match fs::symlink_metadata(path) {
        Ok(meta) if meta.file_type().is_socket() => {
            fs::remove_file(path).map_err(|error| failed("remove the stale socket", path, &error))
        }
        Ok(_) => Err(ApiError::new(Kind::NotPossible, format!("{} is there and is no socket", path.display()))
            .hint(Line::serve(&[("socket", &format!("{}.sock", path.display()))]))),
        Err(_) => Ok(()),
    }
}

/// The umask is the process's: called before the daemon makes any other file.
fn with_private_umask<T>(body: impl FnOnce() -> T) -> T {
    let before = rustix::process::umask(Mode::RWXG | Mode::RWXO);
    let result = body();
    rustix::process::umask(before);
    result
}

fn failed(what: &str, path: &Path, error: &io::Error) -> ApiError {
    ApiError::new(Kind::NotPossible, format!("cannot {what} {}: {error}", path.display()))
        .hint(Line::serve(&[("socket", &"PATH"), ("state", &"DIR")]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_daemon_on_the_socket_is_refused_and_a_stale_socket_is_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("run/weft.sock");
        let (first, listener) = Socket::listen(&path).unwrap();
        let Err(error) = Socket::listen(&path) else { panic!("two daemons on one socket") };
        assert_eq!(error.kind, Kind::NotPossible);
        assert!(error.message.contains(&std::process::id().to_string()), "{error}");
        for file in [path.clone(), dir.path().join("run/weft.sock.lock")] {
            assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o077, 0, "{file:?}");
        }
        drop((first, listener));
        assert!(!path.exists());

        drop(UnixListener::bind(&path).unwrap());
        assert!(path.exists(), "a crashed daemon leaves its socket");
        assert!(Socket::listen(&path).is_ok());
    }

    #[test]
    fn a_lock_ends_although_a_process_that_is_being_started_has_its_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("lock");
        let lock = Lock::take(&path, "what is locked").unwrap();
        let inherited = lock.file.try_clone().unwrap();
        assert!(Lock::take(&path, "what is locked").is_err());
        drop(lock);
        assert!(Lock::take(&path, "what is locked").is_ok());
        drop(inherited);
    }

    #[test]
    fn what_is_no_socket_is_never_removed() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("precious");
        fs::write(&path, "data").unwrap();
        assert!(Socket::listen(&path).is_err());
        assert_eq!(fs::read(&path).unwrap(), b"data");
    }
}
