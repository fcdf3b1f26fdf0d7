//! Telling the service manager how we are (the `sd_notify` protocol: one datagram to the socket it named).

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

/// The variable that names the service manager's socket.
pub const NOTIFY_SOCKET: &str = "NOTIFY_SOCKET";

/// Sends `state`, such as `READY=1`, to `socket`. Without one there is nobody to tell.
pub fn notify(socket: Option<OsString>, state: &str) -> io::Result<()> {
    let Some(socket) = socket else { return Ok(()) };
    UnixDatagram::unbound()?.send_to_addr(state.as_bytes(), &address(&socket)?)?;
    Ok(())
}

/// A path, or with a leading `@` a name in the abstract namespace.
fn address(socket: &OsStr) -> io::Result<SocketAddr> {
    match socket.as_bytes() {
        [b'@', name @ ..] => SocketAddr::from_abstract_name(name),
        _ => SocketAddr::from_pathname(socket),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_service_manager_is_told_on_a_path_and_on_an_abstract_name() {
        let dir = tempfile::tempdir().unwrap();
        let abstract_name = format!("@weft-notify-test-{}", std::process::id());
        for socket in [dir.path().join("notify").into_os_string(), abstract_name.into()] {
            let manager = UnixDatagram::bind_addr(&address(&socket).unwrap()).unwrap();
            notify(Some(socket), "READY=1").unwrap();
            let mut text = [0; 64];
            let len = manager.recv(&mut text).unwrap();
            assert_eq!(&text[..len], b"READY=1");
        }
        notify(None, "READY=1").unwrap();
    }
}
