//! Transmit: one `sendmmsg` for a batch of frames, from their cells.
//!
//! A mapped transmit ring (TPACKET_V2) was measured beside it over veth and is no faster: 1.6 to 2.3
//! against 1.8 to 2.1 million frames a second, 60 and 1514 bytes alike. It would cost a copy of each
//! frame into the ring.
//!
//! There are two sockets. One goes past the queueing discipline (PACKET_QDISC_BYPASS) and takes whole frames alone, for
//! on that way the kernel drops frames whose checksum or segmentation the card does not do. The other one does them, by a
//! header in front of each frame, and takes over for good with the first frame that needs that; so frames stay in order,
//! and a queue whose senders finish their frames does not pay for it. A full queue or socket buffer says ENOBUFS or
//! EAGAIN; the packets stay with the caller then.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use chunk::{Packet, Pool};

use super::{bind, error};
use crate::link::{Link, LinkError};
use crate::{Losses, QueueStats, TxQueue, sys, vnet};

/// Frames of one call.
const BATCH: usize = 64;

/// Pieces of one call: cells, and a header for each frame.
const PIECES: usize = 512;

/// Bytes of a link header without tags.
const ETHERNET_LEN: usize = 14;

/// Bytes that may wait in the socket: what the receiving end of a veth pair has not yet taken
/// counts, too.
const SEND_BUFFER_BYTES: libc::c_int = 8 << 20;

/// The sending half of a pair of queues.
#[derive(Debug)]
pub struct Tx {
    /// For whole frames, until one needs the other.
    plain: Option<OwnedFd>,
    socket: OwnedFd,
    link: Link,
    /// That of the interface, when segments were last sent.
    mtu: usize,
    sends_segments: bool,
    is_gone: bool,
    error: Option<String>,
    stats: QueueStats,
    losses: Arc<Losses>,
}

impl Tx {
    pub(super) fn open(interface: &str, index: u32) -> Result<Self, LinkError> {
        let at = |what| move |source| error(interface, what, source);
        let open = || -> Result<OwnedFd, LinkError> {
            let socket = sys::socket(libc::AF_PACKET, libc::SOCK_RAW | libc::SOCK_NONBLOCK, 0)
                .map_err(at("opening a packet socket"))?;
            // Above the system's limit with CAP_NET_ADMIN only; without, the limit will do.
            let (level, bytes) = (libc::SOL_SOCKET, &SEND_BUFFER_BYTES);
            if sys::setsockopt(&socket, level, libc::SO_SNDBUFFORCE, bytes).is_err() {
                let _ = sys::setsockopt(&socket, level, libc::SO_SNDBUF, bytes);
            }
            Ok(socket)
        };
        let (plain, socket) = (open()?, open()?);
        sys::setsockopt(&plain, libc::SOL_PACKET, libc::PACKET_QDISC_BYPASS, &1)
            .map_err(at("bypassing the queueing discipline"))?;
        sys::setsockopt(&socket, libc::SOL_PACKET, libc::PACKET_VNET_HDR, &1)
            .map_err(at("requesting offload headers"))?;
        let link = Link::open(interface)?;
        let mtu = link.mtu()? as usize;
        // Bound without a protocol they receive nothing.
        for socket in [&plain, &socket] {
            bind(socket, index, 0).map_err(at("binding to it"))?;
        }
        Ok(Self {
            plain: Some(plain),
            socket,
            link,
            mtu,
            sends_segments: false,
            is_gone: false,
            error: None,
            stats: QueueStats::default(),
            losses: Arc::default(),
        })
    }

    /// Sends packets from the front of `packets`, at most a batch; returns how many it sent.
    fn send_batch(&mut self, packets: &[Packet]) -> io::Result<usize> {
        if packets.iter().take(BATCH).any(|packet| !packet.offload.is_none()) {
            self.plain = None;
        }
        let (socket, has_headers) = match &self.plain {
            Some(plain) => (plain, false),
            None => (&self.socket, true),
        };
        let mut pieces = [const { MaybeUninit::<libc::iovec>::uninit() }; PIECES];
        let mut messages = [const { MaybeUninit::<libc::mmsghdr>::uninit() }; BATCH];
        let mut headers = [[0; vnet::HEADER_LEN]; BATCH];
        let pieces = pieces.as_mut_ptr().cast::<libc::iovec>();
        let (mut n, mut used) = (0, 0);
        for (packet, header) in packets.iter().zip(&mut headers) {
            if used + packet.cells() + 1 > PIECES {
                break;
            }
            let first = used;
            if has_headers {
                *header = match vnet::write(packet) {
                    Some(made) => made,
                    // Those before it leave first: an error is about the first one.
                    None if n > 0 => break,
                    None => return Err(io::ErrorKind::InvalidInput.into()),
                };
                let (iov_base, iov_len) = (header.as_mut_ptr().cast(), header.len());
                let piece = libc::iovec { iov_base, iov_len };
                // SAFETY: `used` is below `PIECES`, as for the cells below.
                unsafe { pieces.add(used).write(piece) };
                used += 1;
            }
            for segment in packet.segments() {
                let piece = libc::iovec {
                    iov_base: segment.as_ptr().cast_mut().cast(),
                    iov_len: segment.len(),
                };
                // SAFETY: a packet has as many segments as cells; they and the header fit, so `used` is below
                // `PIECES`.
                unsafe { pieces.add(used).write(piece) };
                used += 1;
            }
            // SAFETY: zero is a value of every field.
            let mut message: libc::mmsghdr = unsafe { std::mem::zeroed() };
            message.msg_hdr.msg_iov = pieces.wrapping_add(first);
            message.msg_hdr.msg_iovlen = (used - first) as _;
            messages[n].write(message);
            n += 1;
        }
        if n == 0 {
            return Err(io::Error::from_raw_os_error(libc::EMSGSIZE));
        }
        // SAFETY: the first `n` messages are written, each with its pieces, which point into `headers` and into cells
        // that `packets` holds; the kernel reads them during the call, and writes nothing but the
        // messages' lengths.
        let sent = unsafe {
            libc::sendmmsg(
                socket.as_raw_fd(),
                messages.as_mut_ptr().cast(),
                n as libc::c_uint,
                libc::MSG_DONTWAIT,
            )
        };
        sys::check(sent).map(|sent| sent as usize)
    }

    /// Counts what was sent and gives its cells back.
    fn sent(&mut self, pool: &mut Pool, packets: std::vec::Drain<'_, Packet>) {
        for packet in packets {
            self.sends_segments |= packet.offload.segment_bytes().is_some();
            self.stats.count(packet.frame_len() as u64);
            packet.free(pool);
        }
    }
}

impl TxQueue for Tx {
    fn send(&mut self, pool: &mut Pool, packets: &mut Vec<Packet>) {
        let mut done = 0;
        while done < packets.len() {
            match self.send_batch(&packets[done..]) {
                Ok(n) => {
                    self.is_gone = false;
                    done += n;
                }
                Err(error) if sys::is_busy(&error) => break,
                Err(error) => {
                    // What the first packet met; those before it have left.
                    self.sent(pool, packets.drain(..done));
                    done = 0;
                    let lost = if sys::is_gone(&error) { packets.len() } else { 1 };
                    self.losses.count(&mut self.stats, sys::refusal(&error), lost as u64);
                    packets.drain(..lost).for_each(|packet| packet.free(pool));
                    if error.raw_os_error() != Some(libc::EMSGSIZE) {
                        self.stats.errors += 1;
                    }
                    if sys::is_gone(&error) && !std::mem::replace(&mut self.is_gone, true) {
                        self.error = Some(format!("{}: sending: {error}", self.link.name()));
                    }
                }
            }
        }
        self.sent(pool, packets.drain(..done));
    }

    fn carries(&self, packet: &Packet) -> bool {
        let Some(header) = vnet::write(packet) else { return false };
        // The kernel looks at the length of whole frames only: nobody would count segments that are too long.
        let tags = 4 * usize::from(packet::offload::tags(packet.data()));
        header[1] == 0 || packet::offload::wire_len(packet) <= ETHERNET_LEN + tags + self.mtu
    }

    fn flush(&mut self, _pool: &mut Pool) {
        if std::mem::take(&mut self.sends_segments)
            && let Ok(mtu) = self.link.mtu()
        {
            self.mtu = mtu as usize;
        }
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.socket.as_fd())
    }

    fn take_error(&mut self) -> Option<String> {
        self.error.take()
    }

    fn stats(&self) -> QueueStats {
        self.stats
    }

    fn losses(&self) -> Vec<Arc<Losses>> {
        vec![self.losses.clone()]
    }
}
