//! The few system calls that the queues share, each wrapped once.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::ptr::NonNull;

use chunk::{DropReason, reasons};
use libc::{c_int, c_void};

/// The result of a system call that says -1 when it fails.
pub(crate) fn check(result: c_int) -> io::Result<c_int> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

/// A socket that is closed at `exec` and when dropped.
pub(crate) fn socket(domain: c_int, kind: c_int, protocol: c_int) -> io::Result<OwnedFd> {
    // SAFETY: takes no pointers.
    let fd = check(unsafe { libc::socket(domain, kind | libc::SOCK_CLOEXEC, protocol) })?;
    // SAFETY: the kernel just gave us this descriptor, and it has no other user.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Types of which any bytes are a value, and which have no padding: what the kernel reads and writes.
///
/// # Safety
/// Just that.
pub(crate) unsafe trait Plain: Copy {}

// SAFETY: integers.
unsafe impl Plain for c_int {}
// SAFETY: as above.
unsafe impl Plain for u32 {}
// SAFETY: as above.
unsafe impl Plain for u64 {}

macro_rules! plain {
    ($($type:ty),* $(,)?) => {$(
        // SAFETY: a C structure of integers, made for being copied to and from the kernel; padding
        // it has none, or it is zeroed at its making (`zeroed`).
        unsafe impl Plain for $type {}
    )*};
}

plain!(
    libc::packet_mreq,
    libc::tpacket_req,
    libc::tpacket_stats,
    libc::xdp_umem_reg,
    libc::xdp_mmap_offsets,
    libc::xdp_statistics,
    libc::xdp_options,
);

/// All bytes zero.
pub(crate) fn zeroed<T: Plain>() -> T {
    // SAFETY: any bytes are a `T`.
    unsafe { std::mem::zeroed() }
}

pub(crate) fn setsockopt<T: Plain>(
    fd: &impl AsRawFd,
    level: c_int,
    name: c_int,
    value: &T,
) -> io::Result<()> {
    let (value, len) = (std::ptr::from_ref(value).cast::<c_void>(), size_of::<T>() as u32);
    // SAFETY: `value` is readable for `len` bytes.
    check(unsafe { libc::setsockopt(fd.as_raw_fd(), level, name, value, len) }).map(drop)
}

pub(crate) fn getsockopt<T: Plain>(fd: &impl AsRawFd, level: c_int, name: c_int) -> io::Result<T> {
    let mut value: T = zeroed();
    let mut len = size_of::<T>() as u32;
    let to = std::ptr::from_mut(&mut value).cast::<c_void>();
    // SAFETY: `to` is writable for `len` bytes, and whatever is written there is a `T`.
    check(unsafe { libc::getsockopt(fd.as_raw_fd(), level, name, to, &mut len) })?;
    Ok(value)
}

/// The error that waits at a socket, taken away.
pub(crate) fn take_socket_error(fd: &impl AsRawFd) -> Option<io::Error> {
    match getsockopt::<c_int>(fd, libc::SOL_SOCKET, libc::SO_ERROR) {
        Ok(0) => None,
        Ok(code) => Some(io::Error::from_raw_os_error(code)),
        Err(error) => Some(error),
    }
}

/// Whether an error says that the interface is down or gone.
pub(crate) fn is_gone(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ENETDOWN | libc::ENXIO | libc::ENODEV | libc::EBADFD))
}

/// The reason of a packet that the kernel refused with an error of its own.
pub(crate) fn refusal(error: &io::Error) -> DropReason {
    match error.raw_os_error() {
        _ if is_gone(error) => reasons::TX_PORT_DOWN,
        Some(libc::EMSGSIZE) => reasons::TX_OVERSIZE,
        _ => reasons::TX_FAILED,
    }
}

/// Whether an error says to try again later.
pub(crate) fn is_busy(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(libc::EAGAIN | libc::ENOBUFS | libc::EINTR | libc::EBUSY | libc::ENOMEM)
    )
}

/// Memory shared with the kernel through a descriptor; unmapped when dropped.
#[derive(Debug)]
pub(crate) struct Mapping {
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: a mapping belongs to the process; nothing of it is tied to a thread. Those who read and
// write it say how they share it.
unsafe impl Send for Mapping {}
// SAFETY: as above; `&Mapping` only gives its address.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps `len` bytes of `fd` from `offset`, to read and write.
    pub(crate) fn new(fd: RawFd, len: usize, offset: i64) -> io::Result<Self> {
        let (protection, flags) =
            (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED | libc::MAP_POPULATE);
        // SAFETY: a new mapping at an address of the kernel's choice aliases nothing.
        let start = unsafe { libc::mmap(std::ptr::null_mut(), len, protection, flags, fd, offset) };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let start = NonNull::new(start.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self { start, len })
    }

    /// Its address, page-aligned.
    pub(crate) fn start(&self) -> NonNull<u8> {
        self.start
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: this mapping was made in `new`; a holder of its address holds `self` as well.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.len) };
    }
}
