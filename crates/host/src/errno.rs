//! The one table from the engine's error kinds to what the outside understands: NBD error values, `errno` numbers
//! (FUSE) and exit codes of the command line.

use weft_engine::error::ErrorKind;

/// What one [`ErrorKind`] is called outside.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Names {
    /// The NBD error value; only values the protocol defines.
    pub nbd: u32,
    /// The Linux `errno`, for FUSE and whatever else speaks it.
    pub errno: i32,
    /// The exit code of the command line.
    pub exit: u8,
}

/// The names of `kind`.
pub const fn names(kind: ErrorKind) -> Names {
    match kind {
        ErrorKind::InvalidInput => Names { nbd: NBD_EINVAL, errno: libc::EINVAL, exit: 2 },
        ErrorKind::NotFound => Names { nbd: NBD_EINVAL, errno: libc::ENOENT, exit: 4 },
        ErrorKind::AlreadyExists => Names { nbd: NBD_EINVAL, errno: libc::EEXIST, exit: 3 },
        // NBD reserves its ENOTSUP for fast zeroing; there the server answers it by itself.
        ErrorKind::NotPossible => Names { nbd: NBD_EIO, errno: libc::EOPNOTSUPP, exit: 3 },
        ErrorKind::NoSpace => Names { nbd: NBD_ENOSPC, errno: libc::ENOSPC, exit: 5 },
        ErrorKind::ReadOnly => Names { nbd: NBD_EPERM, errno: libc::EROFS, exit: 3 },
        ErrorKind::Lost => Names { nbd: NBD_EIO, errno: libc::EIO, exit: 6 },
        ErrorKind::Frozen => Names { nbd: NBD_EIO, errno: libc::EIO, exit: 6 },
        ErrorKind::Corrupt => Names { nbd: NBD_EIO, errno: libc::EIO, exit: 6 },
        ErrorKind::Closed => Names { nbd: NBD_ESHUTDOWN, errno: libc::ESHUTDOWN, exit: 1 },
    }
}

/// NBD: the export takes no writes.
pub const NBD_EPERM: u32 = 1;
/// NBD: the world failed.
pub const NBD_EIO: u32 = 5;
/// NBD: the request is wrong.
pub const NBD_EINVAL: u32 = 22;
/// NBD: no room, or a write beyond the end.
pub const NBD_ENOSPC: u32 = 28;
/// NBD: zeroing would not be faster than writing zeroes.
pub const NBD_ENOTSUP: u32 = 95;
/// NBD: the server is stopping.
pub const NBD_ESHUTDOWN: u32 = 108;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_has_an_nbd_value_of_the_protocol_and_an_exit_code_that_is_not_success() {
        use ErrorKind::*;
        let defined = [NBD_EPERM, NBD_EIO, NBD_EINVAL, NBD_ENOSPC, NBD_ENOTSUP, NBD_ESHUTDOWN];
        for kind in
            [InvalidInput, NotFound, AlreadyExists, NotPossible, NoSpace, ReadOnly, Lost, Corrupt, Frozen, Closed]
        {
            let names = names(kind);
            assert!(defined.contains(&names.nbd), "{kind:?}");
            assert!(names.errno > 0 && (1..=7).contains(&names.exit), "{kind:?}");
        }
    }
}
