//! `AF_XDP`: the kernel's driver and we share the cells.
//!
//! A small program at the interface's receive path hands every frame to the socket of its queue.
//! Each socket has four rings of addresses in the region of cells, the whole of which is registered
//! with the kernel (UMEM): what PacketShader calls the huge packet buffer.
//!
//! ```text
//!             fill ring      ─ free cells ──→ ┌────────┐ ←── frames to send ─  transmit ring
//!   Rx, pool                                  │ kernel │                                    Tx, pool
//!             receive ring ←─ frames ──────── └────────┘ ─── cells of sent ──→ completion ring
//! ```
//!
//! A frame received here and sent there is never copied by us; the kernel copies it, unless driver
//! and queue can use the cells themselves (zero copy). Every address that comes out of a ring is
//! checked against a ledger of the cells that were put in.
//!
//! Each interface registers the region once, for all its queues (XDP_SHARED_UMEM). Not once for all
//! interfaces: sockets that share a UMEM also share its mode, and one interface without zero copy
//! would take it from the others. Cells pass between interfaces all the same.
//!
//! Frames beyond [`FRAME_BYTES_MAX`] arrive in several cells where the kernel can (6.6 and later);
//! they are copied into a chain.
//!
//! Nothing says which frames their sender has left unfinished. Open checksums are recognised by their value: on veth, and
//! wherever the program runs behind the driver. Frames of several segments are recognised by their length, above the MTU, and
//! dropped ([`reasons::RX_OFFLOAD`](chunk::reasons)): their segments must be no longer than the sender says, for only the
//! sender knows the MTU of the path. With the program in the driver of a veth interface the kernel switches segmentation off
//! at the other end; otherwise the user must.
//!
//! Done with plain `bpf(2)`: the program is six instructions, and detaches when the process ends.
//! See Linux, Documentation/networking/af_xdp.rst.
//!
//! Threads: each half belongs to one thread; the two halves of a socket use different rings.

mod attach;
mod ledger;
mod ring;
mod rx;
mod socket;
mod tx;

use std::io;
use std::sync::Arc;

use chunk::Depot;

use crate::link::{Link, LinkError};

pub use rx::Rx;
pub use tx::Tx;

/// The longest frame that arrives in one cell: the kernel keeps the first 256 bytes.
pub const FRAME_BYTES_MAX: usize = chunk::CELL_BYTES - 256;

/// Where the program is attached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Mode {
    /// In the driver if it can, otherwise behind it.
    #[default]
    Auto,
    /// In the driver (native, `XDP_FLAGS_DRV_MODE`).
    Native,
    /// Behind the driver (generic, `XDP_FLAGS_SKB_MODE`): with every interface, and slower.
    Skb,
}

/// Who copies frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Copy {
    /// Nobody if driver and queue can, otherwise the kernel.
    #[default]
    Auto,
    /// Nobody, or opening fails.
    Zero,
    /// The kernel.
    Kernel,
}

/// How to open the queues of an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Where the program is attached.
    pub mode: Mode,
    /// Who copies frames.
    pub copy: Copy,
    /// Slots of each ring, a power of two. A queue holds up to so many cells for receiving, and as
    /// many for sending.
    pub ring_slots: u32,
    /// Whether the kernel may sleep until it is woken (XDP_USE_NEED_WAKEUP).
    pub need_wakeup: bool,
    /// Whether to ask for frames in several cells.
    pub multi_buffer: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            mode: Mode::Auto,
            copy: Copy::Auto,
            ring_slots: 4096,
            need_wakeup: true,
            multi_buffer: true,
        }
    }
}

/// The queues of one interface, and what the kernel granted.
#[derive(Debug)]
pub struct Opened {
    /// One pair for each receive queue of the interface, in order.
    pub queues: Vec<(Rx, Tx)>,
    /// Where the program is: never [`Mode::Auto`].
    pub mode: Mode,
    /// Whether frames are not copied by the kernel either.
    pub is_zero_copy: bool,
    /// Whether frames may lie in several cells.
    pub is_multi_buffer: bool,
}

/// Opens all receive queues of `interface` over the cells of `depot`'s region.
///
/// All of them, because the interface spreads packets over all: [`Link::set_queues`] changes how many
/// there are.
///
/// # Errors
/// If there is no such interface, the process lacks CAP_NET_ADMIN, CAP_NET_RAW or CAP_BPF, another
/// program is attached, or the kernel cannot do what `options` demands.
pub fn open(interface: &str, depot: &Arc<Depot>, options: &Options) -> Result<Opened, LinkError> {
    let link = Link::open(interface)?;
    let (index, queues) = (link.index()?, link.rx_queues());
    let error = |what| {
        move |source: io::Error| LinkError {
            interface: interface.to_owned(),
            what,
            needs: Some("CAP_NET_ADMIN, CAP_NET_RAW and CAP_BPF"),
            source,
        }
    };
    if !options.ring_slots.is_power_of_two() {
        let text = "the slots of a ring are a power of two";
        let source = io::Error::new(io::ErrorKind::InvalidInput, text);
        return Err(error("opening AF_XDP sockets")(source));
    }
    let attachment = attach::attach(index, queues, options.mode, options.multi_buffer)
        .map_err(error("attaching the XDP program"))?;
    let attachment = Arc::new(attachment);
    let mut pairs: Vec<(Rx, Tx)> = Vec::new();
    let mut first: Option<Arc<socket::Socket>> = None;
    for queue in 0..queues {
        let (socket, rings) =
            socket::open(index, queue, depot, &attachment, first.as_ref(), options)
                .map_err(error("opening an AF_XDP socket"))?;
        attachment.set(queue, socket.fd()).map_err(error("handing a queue to its socket"))?;
        pairs.push(rings.split(Link::open(interface)?, &socket));
        first.get_or_insert(socket);
    }
    let (is_zero_copy, is_multi_buffer) =
        first.map_or((false, false), |s| (s.is_zero_copy, s.is_multi_buffer));
    Ok(Opened { queues: pairs, mode: attachment.mode, is_zero_copy, is_multi_buffer })
}

/// What to do about frames of several segments at an interface.
fn segments_text(interface: &str) -> String {
    format!(
        "{interface}: AF_XDP cannot carry frames of several segments, and drops them (rx_offload): switch segmentation off \
         at the other end of {interface} (`ethtool -K INTERFACE tso off gso off tx-udp-segmentation off`), or use \
         `backend = \"af_packet\"` for {interface}"
    )
}
