//! `AF_PACKET`: works with every interface, and receives fastest on veth.
//!
//! * [`Rx`]: the kernel copies frames into a ring of slots that is mapped into the process
//!   (TPACKET_V2); we copy each frame into a cell and put its VLAN tag back (the kernel takes tags out of
//!   frames). Frames longer than a slot are copied by the kernel straight into their cells.
//! * [`Tx`]: a batch of frames in one `sendmmsg`, straight from their cells.
//!
//! Both with PACKET_VNET_HDR: frames whose checksum or segmentation their sender left to a card are received as they
//! are, marked (`Packet::offload`), and sent as they are where the interface finishes them. A host behind a veth pair
//! sends TCP so, in frames of up to 64 KB.
//!
//! Several queues on one interface share its packets by a symmetric hash of the flow
//! (PACKET_FANOUT). The kernel's own stack still sees every frame: the interface is closed to it by
//! other means.
//!
//! A receive ring has a slot for each frame, whatever its length, and holds what comes while its reader is held up. With
//! the defaults of [`Options`] that is 50 MB an interface:
//!
//! ```text
//!  queues  slots each  memory each  holds at 1,000 frames/s  at 500,000 frames/s, spread evenly
//!  1       25,600      50 MB        25 s                     51 ms
//!  4        6,400      12.5 MB      25 s                     51 ms
//!  7 up     4,096       8 MB        28 s and more            57 ms and more
//! ```
//!
//! The memory is the kernel's, is not swapped, and counts as resident. Where there is none left, the ring is smaller, which
//! [`Rx`] reports as an error of its queue.
//!
//! See Linux, Documentation/networking/packet_mmap.rst.
//!
//! Threads: each half belongs to one thread. The halves share nothing but the interface.

mod rx;
mod tx;

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

use crate::link::{Link, LinkError};
use crate::sys;

pub use rx::Rx;
pub use tx::Tx;

/// How to open the queues of an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Bytes of a block of the receive ring: a multiple of the page size and of `slot_bytes`.
    pub block_bytes: u32,
    /// Blocks of the receive rings of all queues together.
    pub blocks: u32,
    /// Blocks of each of them at least.
    pub blocks_min: u32,
    /// Bytes of a slot of the ring: a frame, and 96 bytes about it. Longer frames take a system call each.
    pub slot_bytes: u32,
    /// Whether to receive frames for other stations too.
    pub promiscuous: bool,
    /// Whether to receive what the interface sends, too: for those who only look.
    pub outgoing: bool,
    /// Whether frames that cannot be finished here come, too, with their checksum open: for those who only look.
    pub unfinished: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            block_bytes: 256 << 10,
            blocks: 200,
            blocks_min: 32,
            slot_bytes: 2048,
            promiscuous: true,
            outgoing: false,
            unfinished: false,
        }
    }
}

impl Options {
    /// Those of one of so many queues.
    fn of_queues(self, queues: usize) -> Self {
        let share = self.blocks.div_ceil(queues.max(1) as u32);
        Self { blocks: share.max(self.blocks_min), ..self }
    }
}

/// Opens `queues` pairs of queues on `interface`; each pair is for one worker.
///
/// # Errors
/// If there is no such interface, the process lacks CAP_NET_RAW, or memory for the rings.
pub fn open(interface: &str, queues: usize, options: &Options) -> Result<Vec<(Rx, Tx)>, LinkError> {
    let link = Link::open(interface)?;
    let index = link.index()?;
    let mut pairs: Vec<(Rx, Tx)> = Vec::with_capacity(queues);
    let mut fanout = None;
    let options = options.of_queues(queues);
    for _ in 0..queues {
        let rx = Rx::open(interface, index, &options)?;
        if queues > 1 {
            let id = join_fanout(rx.socket(), fanout)
                .map_err(|source| error(interface, "joining the fan-out group", source))?;
            fanout = Some(id);
        }
        pairs.push((rx, Tx::open(interface, index)?));
    }
    Ok(pairs)
}

/// Opens a queue that receives what an interface receives and sends, and takes nothing from its host. On the loopback
/// interface, which receives all that it sends, a packet comes once.
///
/// # Errors
/// As of [`open`].
pub fn listen(interface: &str) -> Result<Rx, LinkError> {
    let link = Link::open(interface)?;
    let outgoing = !link.is_loopback()?;
    let options = Options { outgoing, unfinished: true, ..Options::default() };
    Rx::open(interface, link.index()?, &options)
}

/// Makes a fan-out group, or joins group `id`; returns its id.
fn join_fanout(socket: &OwnedFd, id: Option<u32>) -> io::Result<u32> {
    // A group receives for its sockets, and what they ignore is its own affair: without the flag, frames that the
    // interface sends come back as received ones.
    const HASH: u32 = (libc::PACKET_FANOUT_HASH | libc::PACKET_FANOUT_FLAG_IGNORE_OUTGOING) << 16;
    match id {
        Some(id) => {
            sys::setsockopt(socket, libc::SOL_PACKET, libc::PACKET_FANOUT, &(id | HASH))?;
            Ok(id)
        }
        None => {
            // The kernel chooses an id that is unused in the namespace.
            let unique = HASH | libc::PACKET_FANOUT_FLAG_UNIQUEID << 16;
            sys::setsockopt(socket, libc::SOL_PACKET, libc::PACKET_FANOUT, &unique)?;
            let id: u32 = sys::getsockopt(socket, libc::SOL_PACKET, libc::PACKET_FANOUT)?;
            Ok(id & 0xffff)
        }
    }
}

fn error(interface: &str, what: &'static str, source: io::Error) -> LinkError {
    LinkError { interface: interface.to_owned(), what, needs: Some("CAP_NET_RAW"), source }
}

/// Binds `socket` to the interface: with a protocol, it receives.
fn bind(socket: &OwnedFd, index: u32, protocol: u16) -> io::Result<()> {
    let address = libc::sockaddr_ll {
        sll_family: libc::AF_PACKET as u16,
        sll_protocol: protocol.to_be(),
        sll_ifindex: index as i32,
        sll_hatype: 0,
        sll_pkttype: 0,
        sll_halen: 0,
        sll_addr: [0; 8],
    };
    // SAFETY: the address is a `sockaddr_ll` of the length that is given.
    sys::check(unsafe {
        libc::bind(
            socket.as_raw_fd(),
            std::ptr::from_ref(&address).cast(),
            size_of::<libc::sockaddr_ll>() as u32,
        )
    })
    .map(drop)
}
