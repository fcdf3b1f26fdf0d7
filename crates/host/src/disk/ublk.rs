//! The kernel's side of ublk (`linux/ublk_cmd.h`): commands that make and end block devices served by a process, and
//! the queues their requests come through. It is here because nothing outside this module may be `unsafe`.
//!
//! A device is made in steps: [`Control::add`] gives `/dev/ublkcN`; its parameters are set; each queue is served by the
//! one thread that made its [`QueueRing`]; [`Control::start`] then gives the block device `/dev/ublkbN`. Data does not
//! travel with the commands: it is read from `/dev/ublkcN` and written to it at [`data_at`] (`UBLK_F_USER_COPY`).
//!
//! Invariants
//! 1. A control command that carries memory is waited for until the kernel has answered it; one that does not may be
//!    left to itself when it takes too long.
//! 2. Commands of a queue carry no memory, and hold the device's file by themselves.
//! 3. A request's description is read only between its arrival and its commit: the kernel writes it before and after.

use super::alarm::Alarm;
use super::belled::{BelledRing, PLACES};
use io_uring::types::{Fd, SubmitArgs, Timespec};
use io_uring::{IoUring, opcode, squeue};
use rustix::ioctl::opcode::{read, read_write};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use std::ffi::c_void;
use std::fs::{File, OpenOptions};
use std::io;
use std::mem::ManuallyDrop;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::ptr::{NonNull, null_mut};
use std::sync::Arc;
use std::time::{Duration, Instant};
use zerocopy::{FromBytes, Immutable, IntoBytes};

/// The kernel's control device.
pub const CONTROL: &str = "/dev/ublk-control";
/// The most requests of one queue that a ring has places for.
pub(crate) const DEPTH_MAX: u16 = PLACES as u16;
/// What this module cannot do without: commands in the encoding of ioctl (6.4), and data that is copied by the server
/// (6.5).
const FEATURES: u64 = F_CMD_IOCTL_ENCODE | F_USER_COPY;
const F_CMD_IOCTL_ENCODE: u64 = 1 << 6;
const F_USER_COPY: u64 = 1 << 7;

const ADD_DEV: u32 = read_write::<ControlCommand>(b'u', 0x04);
const DEL_DEV: u32 = read_write::<ControlCommand>(b'u', 0x05);
const START_DEV: u32 = read_write::<ControlCommand>(b'u', 0x06);
const STOP_DEV: u32 = read_write::<ControlCommand>(b'u', 0x07);
const SET_PARAMS: u32 = read_write::<ControlCommand>(b'u', 0x08);
const GET_DEV_INFO: u32 = read::<ControlCommand>(b'u', 0x02);
const GET_FEATURES: u32 = read::<ControlCommand>(b'u', 0x13);
const FETCH: u32 = read_write::<QueueCommand>(b'u', 0x20);
const COMMIT_AND_FETCH: u32 = read_write::<QueueCommand>(b'u', 0x21);

/// `UBLKSRV_IO_BUF_OFFSET`, and where queue and tag lie in an offset of `/dev/ublkcN`.
const DATA_OFFSET: u64 = 0x8000_0000;
const DATA_QUEUE_SHIFT: u32 = 41;
const DATA_TAG_SHIFT: u32 = 25;
/// `UBLK_MAX_QUEUE_DEPTH`, by which the descriptions of queues are spaced.
const KERNEL_DEPTH_MAX: usize = 4096;
/// `sizeof(struct ublksrv_io_desc)`.
const DESCRIPTION: usize = 24;

/// The file of [`CONTROL`].
pub(crate) struct Control(File);

/// What a device is (`struct ublksrv_ctrl_dev_info`).
#[derive(Clone, Copy, Default, Debug, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
pub(crate) struct DeviceInfo {
    pub queues: u16,
    pub depth: u16,
    _state: u16,
    _pad0: u16,
    /// The longest request in bytes.
    pub request_max: u32,
    pub number: u32,
    pub server_pid: i32,
    _pad1: u32,
    flags: u64,
    /// The kernel keeps it for whoever made the device.
    pub mark: u64,
    _owner: [u32; 2],
    _reserved: [u64; 2],
}

/// What the block layer is told of a device (`struct ublk_params` as far as discarding). Lengths in sectors of 512
/// bytes unless said otherwise; a shift is the exponent of a number of bytes.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, IntoBytes, Immutable)]
#[repr(C)]
pub(crate) struct Params {
    pub len: u32,
    /// [`PARAM_BASIC`] and [`PARAM_DISCARD`].
    pub types: u32,
    /// Bits `ATTR_*`.
    pub attributes: u32,
    pub logical_block_shift: u8,
    pub physical_block_shift: u8,
    pub io_opt_shift: u8,
    pub io_min_shift: u8,
    pub request_max: u32,
    pub chunk: u32,
    pub size: u64,
    pub virt_boundary_mask: u64,
    pub discard_alignment: u32,
    /// In bytes.
    pub discard_granularity: u32,
    pub discard_max: u32,
    pub write_zeroes_max: u32,
    pub discard_segments_max: u16,
    pub _reserved: u16,
    pub _pad: u32,
}

pub(crate) const PARAM_BASIC: u32 = 1 << 0;
pub(crate) const PARAM_DISCARD: u32 = 1 << 1;
pub(crate) const ATTR_READ_ONLY: u32 = 1 << 0;
pub(crate) const ATTR_ROTATIONAL: u32 = 1 << 1;
pub(crate) const ATTR_VOLATILE_CACHE: u32 = 1 << 2;
pub(crate) const ATTR_FUA: u32 = 1 << 3;

/// A request of the block layer (`struct ublksrv_io_desc`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Description {
    /// Bits 0 to 7: one of `OP_*`; above: flags `F_*`.
    pub op_flags: u32,
    /// In sectors of 512 bytes.
    pub sectors: u32,
    /// In sectors of 512 bytes.
    pub start: u64,
}

pub(crate) const OP_READ: u8 = 0;
pub(crate) const OP_WRITE: u8 = 1;
pub(crate) const OP_FLUSH: u8 = 2;
pub(crate) const OP_DISCARD: u8 = 3;
pub(crate) const OP_WRITE_ZEROES: u8 = 5;
/// Answer only when durable.
pub(crate) const F_FUA: u32 = 1 << 13;
/// Zeroes that keep their room.
pub(crate) const F_NOUNMAP: u32 = 1 << 15;

/// `struct ublksrv_ctrl_cmd`.
#[derive(IntoBytes, Immutable)]
#[repr(C)]
struct ControlCommand {
    number: u32,
    queue: u16,
    len: u16,
    address: u64,
    data: u64,
    path_len: u16,
    pad: u16,
    reserved: u32,
}

/// `struct ublksrv_io_cmd`.
#[derive(IntoBytes, Immutable)]
#[repr(C)]
struct QueueCommand {
    queue: u16,
    tag: u16,
    result: i32,
    address: u64,
}

impl Control {
    /// Errors: `NotFound` when the kernel has no ublk, `PermissionDenied` for others than root, `Unsupported` when it
    /// is older than 6.5.
    pub(crate) fn open() -> io::Result<Control> {
        let control = Control(OpenOptions::new().read(true).write(true).open(CONTROL)?);
        let found = control.with_memory(GET_FEATURES, u32::MAX, vec![0; 8]);
        let features = found.ok().and_then(|bytes| bytes.try_into().ok()).map_or(0, u64::from_ne_bytes);
        if features & FEATURES != FEATURES {
            return Err(io::ErrorKind::Unsupported.into());
        }
        Ok(control)
    }

    /// Makes `/dev/ublkcN` for this process. Errors: `AlreadyExists` when there is a device of that number.
    pub(crate) fn add(&self, number: u32, queues: u16, depth: u16, request_max: u32, mark: u64) -> io::Result<()> {
        assert!(depth <= DEPTH_MAX);
        let info = DeviceInfo {
            queues,
            depth,
            request_max,
            number,
            server_pid: std::process::id() as i32,
            flags: FEATURES,
            mark,
            ..DeviceInfo::default()
        };
        self.with_memory(ADD_DEV, number, info.as_bytes().to_vec()).map(drop)
    }

    /// What a device is. Errors: `ENODEV` when there is none.
    pub(crate) fn info(&self, number: u32) -> io::Result<DeviceInfo> {
        let bytes = self.with_memory(GET_DEV_INFO, number, DeviceInfo::default().as_bytes().to_vec())?;
        Ok(DeviceInfo::read_from_bytes(&bytes).expect("as long as it was"))
    }

    /// Says what the block layer is to know; before the device is started.
    pub(crate) fn set_params(&self, number: u32, params: &Params) -> io::Result<()> {
        let params = Params { len: size_of::<Params>() as u32, ..*params };
        self.with_memory(SET_PARAMS, number, params.as_bytes().to_vec()).map(drop)
    }

    /// Makes `/dev/ublkbN`, and reads its partition table through the queues. Errors: `TimedOut`.
    pub(crate) fn start(&self, number: u32, timeout: Duration) -> io::Result<()> {
        self.command(START_DEV, number, (0, 0), u64::from(std::process::id()), Some(timeout)).map(drop)
    }

    /// Ends `/dev/ublkbN`: a file system on it is told, requests under way are answered by the queues, which then end.
    /// Errors: `TimedOut`; it goes on.
    pub(crate) fn stop(&self, number: u32, timeout: Duration) -> io::Result<()> {
        self.command(STOP_DEV, number, (0, 0), 0, Some(timeout)).map(drop)
    }

    /// Stops the device if need be, and removes it; its number is free when nobody has it open any more.
    /// Errors: `TimedOut` when that takes longer; it goes all the same.
    pub(crate) fn delete(&self, number: u32, timeout: Duration) -> io::Result<()> {
        self.command(DEL_DEV, number, (0, 0), 0, Some(timeout)).map(drop)
    }

    /// A command that reads or fills memory.
    fn with_memory(&self, op: u32, number: u32, memory: Vec<u8>) -> io::Result<Vec<u8>> {
        // Should waiting panic, the memory stays.
        let mut memory = ManuallyDrop::new(memory);
        let place = (memory.as_mut_ptr() as u64, memory.len() as u16);
        // Invariant 1: no limit, so this returns only when the kernel has answered.
        let answered = self.command(op, number, place, 0, None);
        let memory = ManuallyDrop::into_inner(memory);
        answered.map(|_| memory)
    }

    /// Each command has a ring of its own: ending that takes back a command which is not answered in time.
    fn command(
        &self,
        op: u32,
        number: u32,
        (address, len): (u64, u16),
        data: u64,
        timeout: Option<Duration>,
    ) -> io::Result<i32> {
        let command = ControlCommand { number, queue: u16::MAX, len, address, data, path_len: 0, pad: 0, reserved: 0 };
        let mut bytes = [0; 80];
        bytes[..size_of::<ControlCommand>()].copy_from_slice(command.as_bytes());
        let mut ring = IoUring::<squeue::Entry128>::builder().build(2)?;
        let entry = opcode::UringCmd80::new(Fd(self.0.as_raw_fd()), op).cmd(bytes).build();
        // SAFETY: the kernel holds the file; memory is only pointed to without `timeout`, and then this waits for the
        // answer: invariant 1.
        unsafe { ring.submission().push(&entry) }.expect("the ring is empty");
        let deadline = timeout.map(|timeout| Instant::now() + timeout);
        loop {
            if let Some(answer) = ring.completion().next() {
                let result = answer.result();
                return if result < 0 { Err(io::Error::from_raw_os_error(-result)) } else { Ok(result) };
            }
            let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
            let entered = match left {
                Some(Duration::ZERO) => return Err(io::ErrorKind::TimedOut.into()),
                Some(left) => ring.submitter().submit_with_args(1, &SubmitArgs::new().timespec(&Timespec::from(left))),
                None => ring.submit_and_wait(1),
            };
            match entered.map_err(|why| why.raw_os_error()) {
                Ok(_) | Err(Some(libc::ETIME | libc::EINTR | libc::EBUSY | libc::EAGAIN)) => {}
                // The command may be in the kernel, and its memory with it.
                Err(errno) => panic!("io_uring_enter failed with error {errno:?}"),
            }
        }
    }
}

/// The character device of a device, of which this process is the server. It can be open only once.
pub(crate) fn open_device(number: u32) -> io::Result<File> {
    OpenOptions::new().read(true).write(true).open(format!("/dev/ublkc{number}"))
}

/// The block device of that number.
pub fn block_device(number: u32) -> PathBuf {
    format!("/dev/ublkb{number}").into()
}

/// The numbers of all devices there are.
pub(crate) fn numbers() -> Vec<u32> {
    let found = std::fs::read_dir(Path::new("/sys/class/ublk-char")).into_iter().flatten().flatten();
    found.filter_map(|entry| entry.file_name().to_str()?.strip_prefix("ublkc")?.parse().ok()).collect()
}

/// Where in `/dev/ublkcN` the data of a request lies.
pub(crate) fn data_at(queue: u16, tag: u16) -> u64 {
    DATA_OFFSET + (u64::from(queue) << DATA_QUEUE_SHIFT) + (u64::from(tag) << DATA_TAG_SHIFT)
}

/// What a queue's thread is told.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum News {
    /// There is a request of this tag.
    Request(u16),
    /// No request of this tag comes any more.
    Ended(u16),
}

/// One queue of a device; lives on the thread that made it.
pub(crate) struct QueueRing {
    ring: BelledRing,
    device: Arc<File>,
    queue: u16,
    depth: u16,
    descriptions: NonNull<c_void>,
    mapped: usize,
}

impl QueueRing {
    /// The queue of a device with `depth` tags, whose thread `alarm` wakes.
    pub(crate) fn new(device: Arc<File>, queue: u16, depth: u16, alarm: Arc<Alarm>) -> io::Result<QueueRing> {
        let page = rustix::param::page_size();
        let mapped = (usize::from(depth) * DESCRIPTION).next_multiple_of(page);
        let at = usize::from(queue) * (KERNEL_DEPTH_MAX * DESCRIPTION).next_multiple_of(page);
        // SAFETY: a new mapping, which nothing else refers to.
        let descriptions = unsafe { mmap(null_mut(), mapped, ProtFlags::READ, MapFlags::SHARED, &*device, at as u64) }?;
        let descriptions = NonNull::new(descriptions).expect("a mapping is never at 0");
        let unmapped = |why| {
            // SAFETY: mapped just now, and not handed on.
            let _ = unsafe { munmap(descriptions.as_ptr(), mapped) };
            why
        };
        let ring = BelledRing::new(alarm).map_err(unmapped)?;
        Ok(QueueRing { ring, device, queue, depth, descriptions, mapped })
    }

    /// Asks for the first request of a tag.
    pub(crate) fn fetch(&mut self, tag: u16) {
        self.push(FETCH, tag, -1);
    }

    /// Answers the request of a tag (bytes read or written, or a negative `errno`), and asks for the next.
    pub(crate) fn commit(&mut self, tag: u16, result: i32) {
        self.push(COMMIT_AND_FETCH, tag, result);
    }

    fn push(&mut self, op: u32, tag: u16, result: i32) {
        let command = QueueCommand { queue: self.queue, tag, result, address: 0 };
        let bytes = command.as_bytes().try_into().expect("16 bytes");
        let entry = opcode::UringCmd16::new(Fd(self.device.as_raw_fd()), op).cmd(bytes).build();
        // SAFETY: the kernel takes the file with the entry, which a turn submits before this ring is dropped; there is
        // no memory: invariant 2. A tag has one command at a time.
        unsafe { self.ring.push(&entry.user_data(u64::from(tag))) };
    }

    /// Submits, and takes in what has come; sleeps at most `wait` while there is nothing and `quiet` says so too.
    pub(crate) fn turn(&mut self, wait: Duration, quiet: impl Fn() -> bool) -> Vec<News> {
        let seen = self.ring.turn(Some(wait), quiet).into_iter();
        seen.map(|(tag, result)| if result == 0 { News::Request(tag as u16) } else { News::Ended(tag as u16) })
            .collect()
    }

    /// The request that has come with a tag.
    pub(crate) fn description(&self, tag: u16) -> Description {
        assert!(tag < self.depth);
        let at = self.descriptions.as_ptr().cast::<u8>().cast_const();
        // SAFETY: inside the mapping, since `tag` is below `depth`, and aligned, since the mapping is and a description
        // is 24 bytes. The kernel does not write it now (invariant 3), and it is read as volatile in any case.
        unsafe {
            let at = at.add(usize::from(tag) * DESCRIPTION);
            Description {
                op_flags: at.cast::<u32>().read_volatile(),
                sectors: at.add(4).cast::<u32>().read_volatile(),
                start: at.add(8).cast::<u64>().read_volatile(),
            }
        }
    }
}

impl Drop for QueueRing {
    fn drop(&mut self) {
        // SAFETY: this mapping is this queue's own, and no reference into it was handed out.
        let _ = unsafe { munmap(self.descriptions.as_ptr(), self.mapped) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn structures_and_commands_are_those_of_the_kernels_header() {
        assert_eq!((size_of::<ControlCommand>(), size_of::<QueueCommand>()), (32, 16));
        assert_eq!((size_of::<DeviceInfo>(), size_of::<Params>()), (64, 64));
        assert_eq!((ADD_DEV, GET_FEATURES), (0xc020_7504, 0x8020_7513));
        assert_eq!((FETCH, COMMIT_AND_FETCH), (0xc010_7520, 0xc010_7521));
        assert_eq!(data_at(1, 3), 0x8000_0000 + (1 << 41) + (3 << 25));
    }
}
