//! One socket: its region, its rings, its queue; and how all of it is given back.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};

use chunk::{CELL_BYTES, Depot};

use super::attach::Attachment;
use super::ledger::Ledger;
use super::ring::{Consumer, Producer};
use super::{Copy, Mode, Options, Rx, Tx};
use crate::link::Link;
use crate::sys;

/// Bytes that may be on their way through the kernel, in copy mode.
const SEND_BUFFER_BYTES: libc::c_int = 8 << 20;

/// Frames that one kick sends in copy mode, from Linux 6.17 on; 32 before.
const SEND_BUDGET: libc::c_int = 256;
const XDP_MAX_TX_SKB_BUDGET: libc::c_int = 9;

/// What the two halves share.
#[derive(Debug)]
pub(super) struct Socket {
    /// Present until dropped.
    fd: Option<OwnedFd>,
    pub(super) is_zero_copy: bool,
    pub(super) is_multi_buffer: bool,
    depot: Arc<Depot>,
    /// The ledgers of halves that are gone.
    ledgers: Mutex<Vec<Ledger>>,
    attachment: Arc<Attachment>,
    queue: u32,
}

/// The rings of a socket that is not yet split.
pub(super) struct Rings {
    fill: Producer<u64>,
    receive: Consumer<libc::xdp_desc>,
    transmit: Producer<libc::xdp_desc>,
    completion: Consumer<u64>,
    slots: u32,
}

impl Rings {
    pub(super) fn split(self, link: Link, socket: &Arc<Socket>) -> (Rx, Tx) {
        let tx = Tx::new(link.name(), self.transmit, self.completion, socket.clone());
        (Rx::new(link, self.fill, self.receive, self.slots, socket.clone()), tx)
    }
}

/// Opens a socket on queue `queue`; it shares the region with `first`, if there is one.
pub(super) fn open(
    interface: u32,
    queue: u32,
    depot: &Arc<Depot>,
    attachment: &Arc<Attachment>,
    first: Option<&Arc<Socket>>,
    options: &Options,
) -> io::Result<(Arc<Socket>, Rings)> {
    let copy = match options.copy {
        // Behind the driver there is nothing to share with it.
        Copy::Auto if attachment.mode == Mode::Skb => libc::XDP_COPY,
        Copy::Auto => 0,
        Copy::Kernel => libc::XDP_COPY,
        Copy::Zero => libc::XDP_ZEROCOPY,
    };
    let wakeup = if options.need_wakeup { libc::XDP_USE_NEED_WAKEUP } else { 0 };
    let multi = if attachment.is_multi_buffer { libc::XDP_USE_SG } else { 0 };
    let tries: &[u16] = match first {
        Some(_) => &[libc::XDP_SHARED_UMEM],
        None => &[copy | wakeup | multi, copy | wakeup],
    };
    let mut result = Err(io::ErrorKind::Unsupported.into());
    for &flags in tries {
        // A socket that failed to bind is not used again.
        result = open_with(interface, queue, depot, first, options.ring_slots, flags);
        if result.is_ok() {
            break;
        }
    }
    let (fd, rings, flags) = result?;
    let granted: libc::xdp_options = sys::getsockopt(&fd, libc::SOL_XDP, libc::XDP_OPTIONS)?;
    let socket = Socket {
        fd: Some(fd),
        is_zero_copy: granted.flags & libc::XDP_OPTIONS_ZEROCOPY != 0,
        is_multi_buffer: first.map_or(flags & libc::XDP_USE_SG != 0, |first| first.is_multi_buffer),
        depot: depot.clone(),
        ledgers: Mutex::default(),
        attachment: attachment.clone(),
        queue,
    };
    Ok((Arc::new(socket), rings))
}

fn open_with(
    interface: u32,
    queue: u32,
    depot: &Arc<Depot>,
    first: Option<&Arc<Socket>>,
    slots: u32,
    flags: u16,
) -> io::Result<(OwnedFd, Rings, u16)> {
    let region = depot.region();
    let fd = sys::socket(libc::AF_XDP, libc::SOCK_RAW, 0)?;
    if first.is_none() {
        let mut umem: libc::xdp_umem_reg = sys::zeroed();
        umem.addr = region.base().as_ptr() as u64;
        umem.len = region.bytes() as u64;
        umem.chunk_size = CELL_BYTES as u32;
        sys::setsockopt(&fd, libc::SOL_XDP, libc::XDP_UMEM_REG, &umem)?;
    }
    for ring in [
        libc::XDP_UMEM_FILL_RING,
        libc::XDP_UMEM_COMPLETION_RING,
        libc::XDP_RX_RING,
        libc::XDP_TX_RING,
    ] {
        sys::setsockopt(&fd, libc::SOL_XDP, ring, &slots)?;
    }
    let offsets: libc::xdp_mmap_offsets =
        sys::getsockopt(&fd, libc::SOL_XDP, libc::XDP_MMAP_OFFSETS)?;
    let raw = fd.as_raw_fd();
    let (fill, completion) =
        (libc::XDP_UMEM_PGOFF_FILL_RING as i64, libc::XDP_UMEM_PGOFF_COMPLETION_RING as i64);
    let rings = Rings {
        fill: Producer::new(raw, fill, &offsets.fr, slots)?,
        receive: Consumer::new(raw, libc::XDP_PGOFF_RX_RING, &offsets.rx, slots)?,
        transmit: Producer::new(raw, libc::XDP_PGOFF_TX_RING, &offsets.tx, slots)?,
        completion: Consumer::new(raw, completion, &offsets.cr, slots)?,
        slots,
    };
    // Wishes: the kernel may be older, or its limits lower.
    let _ = sys::setsockopt(&fd, libc::SOL_XDP, XDP_MAX_TX_SKB_BUDGET, &SEND_BUDGET);
    if sys::setsockopt(&fd, libc::SOL_SOCKET, libc::SO_SNDBUFFORCE, &SEND_BUFFER_BYTES).is_err() {
        let _ = sys::setsockopt(&fd, libc::SOL_SOCKET, libc::SO_SNDBUF, &SEND_BUFFER_BYTES);
    }
    let address = libc::sockaddr_xdp {
        sxdp_family: libc::AF_XDP as u16,
        sxdp_flags: flags,
        sxdp_ifindex: interface,
        sxdp_queue_id: queue,
        sxdp_shared_umem_fd: first.map_or(0, |first| first.fd().as_raw_fd() as u32),
    };
    // SAFETY: the address is a `sockaddr_xdp` of the length that is given.
    sys::check(unsafe {
        libc::bind(raw, std::ptr::from_ref(&address).cast(), size_of::<libc::sockaddr_xdp>() as u32)
    })?;
    Ok((fd, rings, flags))
}

impl Socket {
    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        // `fd` is taken in `drop` only.
        self.fd.as_ref().expect("open until dropped").as_fd()
    }

    /// Where the program of its interface is.
    pub(super) fn mode(&self) -> Mode {
        self.attachment.mode
    }

    /// Whether nobody has met a frame of several segments at this interface before.
    pub(super) fn is_first_of_segments(&self) -> bool {
        !self.attachment.has_met_segments.swap(true, Ordering::Relaxed)
    }

    pub(super) fn depot(&self) -> &Arc<Depot> {
        &self.depot
    }

    /// Lets the kernel look at the transmit ring.
    pub(super) fn kick_transmit(&self) -> io::Result<()> {
        // SAFETY: nothing is sent from memory here; the frames are in the ring.
        let sent = unsafe {
            libc::sendto(
                self.fd().as_raw_fd(),
                std::ptr::null(),
                0,
                libc::MSG_DONTWAIT,
                std::ptr::null(),
                0,
            )
        };
        if sent < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }

    /// Lets the kernel look at the fill ring. Its error says that the interface is down or gone: the
    /// socket's own error comes only in the second case.
    pub(super) fn kick_receive(&self) -> io::Result<()> {
        // SAFETY: a buffer of no bytes; the frames are in the ring.
        let received = unsafe {
            libc::recvfrom(
                self.fd().as_raw_fd(),
                std::ptr::null_mut(),
                0,
                libc::MSG_DONTWAIT,
                std::ptr::null_mut(),
                std::ptr::null_mut(),
            )
        };
        if received < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }

    /// Keeps the ledger of a half that goes until the kernel has let go of the cells.
    pub(super) fn leave(&self, ledger: Ledger) {
        self.ledgers.lock().unwrap_or_else(PoisonError::into_inner).push(ledger);
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        // Closing alone does not do: a child process that was just forked may hold the socket open.
        let is_cut_off = self.attachment.clear(self.queue).is_ok();
        self.fd = None;
        if self.is_zero_copy || !is_cut_off {
            // A driver gives its cells up some time later, and does not say when: they stay lost, at
            // most two rings of them.
            return;
        }
        let ledgers = self.ledgers.get_mut().unwrap_or_else(PoisonError::into_inner);
        for ledger in ledgers.drain(..) {
            // SAFETY: in copy mode cells are touched only by the receive path, from which the queue
            // has been cut off and which has been waited for, and in our own calls to send, of which
            // there are none any more. (A frame that was sent and is still on its way may be read
            // once more, if the driver takes pages instead of copies: it may then carry another
            // frame's bytes, as any frame cut off at the end may.)
            unsafe { ledger.take_all_back(&self.depot) };
        }
    }
}
