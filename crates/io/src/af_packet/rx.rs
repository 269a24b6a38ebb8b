//! The receive ring, TPACKET_V2, and the frames that are too long for it.
//!
//! ```text
//!   ring   │ slot 0 │ slot 1 │ … │            each is the kernel's or ours, by its status word
//!   slot   │ header: status, lengths, tag, time │ address │ offloads │ frame, or its beginning │
//!   socket   whole frames of the slots that hold the beginning only (PACKET_COPY_THRESH), in the same order
//! ```
//!
//! A long frame, of many segments or on a link with a large MTU, is not copied into the ring and from there to its cells,
//! but from the sender's memory to its cells in one go. TPACKET_V3, with frames of any length in blocks, copies twice and
//! hands a block over when it is full or its time is over, up to some milliseconds later: too late for TCP, whose
//! acknowledgements wait as long.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use chunk::{CELL_BYTES, DropReason, HEADROOM_BYTES, Offload, Packet, Pool, reasons};

use super::{Options, bind, error};
use crate::link::{self, LinkError};
use crate::sys::{self, Mapping};
use crate::{Losses, QueueStats, RxQueue, vnet};

/// Bytes of a frame that fit in one cell.
const CELL_CAPACITY: usize = CELL_BYTES - HEADROOM_BYTES;

/// How many calls of `recv` may find nothing before the socket is asked for errors and losses.
const EMPTY_CALLS_MAX: u32 = 4096;

/// Pieces of a long frame: cells of 256 KB, the offload header, and one more at a tag.
const PIECES: usize = (256 << 10) / CELL_CAPACITY + 3;

/// Bytes of the destination and source address of a frame; a tag follows them.
const ADDRESSES_LEN: usize = 12;

const TAG_LEN: usize = 4;

/// The receiving half of a pair of queues.
#[derive(Debug)]
pub struct Rx {
    /// Before the socket: unmapped first.
    ring: Mapping,
    socket: OwnedFd,
    slot_bytes: usize,
    /// The slot that the next frame comes in.
    slot: usize,
    interface: String,
    empty_calls: u32,
    has_warned: bool,
    /// Takes frames that cannot be finished.
    unfinished: bool,
    error: Option<String>,
    stats: QueueStats,
    losses: Arc<Losses>,
}

impl Rx {
    pub(super) fn open(interface: &str, index: u32, options: &Options) -> Result<Self, LinkError> {
        let at = |what| move |source| error(interface, what, source);
        let slots_per_block = options.block_bytes.checked_div(options.slot_bytes).unwrap_or(0);
        let is_even = slots_per_block * options.slot_bytes == options.block_bytes
            && options.block_bytes.is_multiple_of(4096)
            && options.slot_bytes.is_multiple_of(16);
        if slots_per_block == 0 || !is_even {
            let text = "a block is a multiple of 4096 bytes and of its slots, these of 16 bytes";
            return Err(at("the receive ring")(io::Error::new(io::ErrorKind::InvalidInput, text)));
        }
        // Without a protocol it receives nothing before it is bound to its interface.
        let socket = sys::socket(libc::AF_PACKET, libc::SOCK_RAW | libc::SOCK_NONBLOCK, 0)
            .map_err(at("opening a packet socket"))?;
        let packet = |name, value: libc::c_int, what| {
            sys::setsockopt(&socket, libc::SOL_PACKET, name, &value).map_err(at(what))
        };
        let version = libc::tpacket_versions::TPACKET_V2 as libc::c_int;
        packet(libc::PACKET_VERSION, version, "choosing TPACKET_V2")?;
        packet(libc::PACKET_VNET_HDR, 1, "requesting offload headers")?;
        let (ring, blocks) =
            ring(&socket, options, slots_per_block).map_err(at("making the receive ring"))?;
        let is_small = blocks < options.blocks;
        let megabytes = |blocks| (u64::from(blocks) * u64::from(options.block_bytes)) >> 20;
        let small = format!(
            "{interface}: a receive ring of {} MB, for which there was memory, not of {} MB: it holds fewer packets while \
             a worker is busy",
            megabytes(blocks),
            megabytes(options.blocks)
        );
        packet(libc::PACKET_COPY_THRESH, 1, "requesting long frames")?;
        // Above the system's limit with CAP_NET_ADMIN only; without, the limit will do.
        if sys::setsockopt(&socket, libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, &LONG_BYTES).is_err() {
            let _ = sys::setsockopt(&socket, libc::SOL_SOCKET, libc::SO_RCVBUF, &LONG_BYTES);
        }
        if !options.outgoing {
            packet(libc::PACKET_IGNORE_OUTGOING, 1, "excluding outgoing packets")?;
        }
        if options.promiscuous {
            link::receive_all(&socket, index).map_err(at("receiving promiscuously"))?;
        }
        bind(&socket, index, libc::ETH_P_ALL as u16).map_err(at("binding to it"))?;
        Ok(Self {
            ring,
            socket,
            slot_bytes: options.slot_bytes as usize,
            slot: 0,
            interface: interface.to_owned(),
            empty_calls: 0,
            has_warned: false,
            unfinished: options.unfinished,
            error: is_small.then_some(small),
            stats: QueueStats::default(),
            losses: Arc::default(),
        })
    }

    pub(super) fn socket(&self) -> &OwnedFd {
        &self.socket
    }

    /// The status word of the current slot.
    fn status(&self) -> &AtomicU32 {
        let offset =
            self.slot * self.slot_bytes + std::mem::offset_of!(libc::tpacket2_hdr, tp_status);
        // SAFETY: `slot` is below the number of slots, so the word lies in the mapping, aligned;
        // it is shared with the kernel, hence an atomic.
        unsafe { AtomicU32::from_ptr(self.ring.start().as_ptr().add(offset).cast()) }
    }

    fn is_ours(&self) -> bool {
        self.status().load(Ordering::Acquire) & libc::TP_STATUS_USER != 0
    }

    /// The bytes of the current slot; it must be ours.
    fn slot_bytes(&self) -> &[u8] {
        debug_assert!(self.is_ours());
        // SAFETY: the slot lies in the mapping. The kernel gave it to us (`is_ours`, acquired), so
        // it does not write there until `release`, which needs `&mut self`.
        unsafe {
            let start = self.ring.start().as_ptr().add(self.slot * self.slot_bytes);
            std::slice::from_raw_parts(start, self.slot_bytes)
        }
    }

    /// Gives the current slot back to the kernel, and goes to the next one.
    fn release(&mut self) {
        self.status().store(libc::TP_STATUS_KERNEL, Ordering::Release);
        self.slot = (self.slot + 1) % (self.ring.len() / self.slot_bytes);
    }

    /// The packet in the current slot. `Ok(None)` when too few cells are free: it stays there.
    fn take(&self, pool: &mut Pool, is_first: bool) -> Result<Option<Packet>, DropReason> {
        let Some(frame) = frame(self.slot_bytes()) else { return Err(reasons::RX_UNREADABLE) };
        let copied = match frame.is_whole() {
            true => frame.copy(pool),
            false if !frame.is_queued => return Err(reasons::RX_FULL), // no memory left for its rest
            false => self.take_long(pool, &frame)?,
        };
        match copied {
            Some((mut packet, header)) => {
                packet.time_ns = frame.time_ns;
                let is_known = header == [0; vnet::HEADER_LEN]
                    || vnet::read(&header, frame.tag.is_some(), &mut packet);
                if !is_known && !self.unfinished {
                    packet.free(pool);
                    return Err(reasons::RX_OFFLOAD);
                }
                if !is_known {
                    packet.offload = Offload::CHECKSUM;
                }
                Ok(Some(packet))
            }
            // The kernel counts what finds no slot. But a frame that needs more cells than there are must not stay for
            // ever.
            None if is_first && frame.len > CELL_CAPACITY => {
                if frame.is_queued {
                    let _ = self.receive(&mut []);
                }
                Err(reasons::RX_NO_CELLS)
            }
            None => Ok(None),
        }
    }

    /// A frame of which the slot has the beginning: from the socket straight into its cells, with room for its tag.
    #[cold]
    fn take_long(
        &self,
        pool: &mut Pool,
        frame: &Frame<'_>,
    ) -> Result<Option<(Packet, [u8; vnet::HEADER_LEN])>, DropReason> {
        let tag_len = frame.tag.map_or(0, |tag| tag.len());
        let Some(mut packet) = Packet::with_len(pool, frame.len + tag_len) else { return Ok(None) };
        if packet.cells() + 2 > PIECES {
            packet.free(pool);
            let _ = self.receive(&mut []);
            return Err(reasons::RX_OVERSIZE);
        }
        let mut header = [0; vnet::HEADER_LEN];
        let empty = libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 };
        let mut pieces = [empty; PIECES];
        pieces[0] = libc::iovec { iov_base: header.as_mut_ptr().cast(), iov_len: header.len() };
        let mut used = 1;
        let mut put = |bytes: &mut [u8]| {
            pieces[used] =
                libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() };
            used += 1;
        };
        let mut is_first = frame.tag.is_some();
        packet.for_each_piece(|bytes| match std::mem::take(&mut is_first) {
            true => {
                let (addresses, behind) = bytes.split_at_mut(ADDRESSES_LEN);
                put(addresses);
                put(&mut behind[TAG_LEN..]);
            }
            false => put(bytes),
        });
        let received = self.receive(&mut pieces[..used]);
        if let Some(tag) = &frame.tag {
            packet.write_at(ADDRESSES_LEN, tag);
        }
        match received {
            Ok(n) if n == header.len() + frame.len => Ok(Some((packet, header))),
            _ => {
                packet.free(pool);
                Err(reasons::RX_UNREADABLE)
            }
        }
    }

    /// Takes the next long frame off the socket; its bytes, and the offload header before them.
    fn receive(&self, pieces: &mut [libc::iovec]) -> io::Result<usize> {
        let mut message = MaybeUninit::<libc::msghdr>::zeroed();
        // SAFETY: zero is a value of every field; the pieces point to memory that is borrowed mutably by the callers for
        // as long as this call lasts, and are as long as they say.
        let n = unsafe {
            let message = message.assume_init_mut();
            message.msg_iov = pieces.as_mut_ptr();
            message.msg_iovlen = pieces.len() as _;
            libc::recvmsg(self.socket.as_raw_fd(), message, libc::MSG_DONTWAIT | libc::MSG_TRUNC)
        };
        usize::try_from(n).map_err(|_| io::Error::last_os_error())
    }

    /// Counts a lost frame, and says once what helps if it was one that cannot be finished here.
    #[cold]
    fn lose(&mut self, reason: DropReason) {
        self.losses.count(&mut self.stats, reason, 1);
        if reason == reasons::RX_OFFLOAD && !std::mem::replace(&mut self.has_warned, true) {
            self.error = Some(format!(
                "{0}: received a frame whose checksum or segmentation was left to a network card and cannot be finished \
                 here (SCTP, segments in an unknown tunnel or of another protocol than TCP and UDP, or datagrams of an odd \
                 size above 32 KB); it was dropped, and more may be: switch that off at the \
                 other end of {0} (`ethtool -K INTERFACE tx off tso off gso off`)",
                self.interface
            ));
        }
    }

    /// Asks the socket for its error and for what was lost since the last time.
    #[cold]
    fn inquire(&mut self) {
        self.empty_calls = 0;
        if let Some(error) = sys::take_socket_error(&self.socket) {
            self.stats.errors += 1;
            self.error = Some(format!("{}: receiving: {error}", self.interface));
        }
        let stats = sys::getsockopt::<libc::tpacket_stats>(
            &self.socket,
            libc::SOL_PACKET,
            libc::PACKET_STATISTICS,
        );
        // Reading them sets them to zero.
        let lost = stats.map_or(0, |stats| u64::from(stats.tp_drops));
        self.losses.count(&mut self.stats, reasons::RX_FULL, lost);
    }
}

/// A receive ring in memory, and its blocks: fewer where there is no memory for all.
fn ring(socket: &OwnedFd, options: &Options, slots_per_block: u32) -> io::Result<(Mapping, u32)> {
    let mut blocks = options.blocks;
    loop {
        let request = libc::tpacket_req {
            tp_block_size: options.block_bytes,
            tp_block_nr: blocks,
            tp_frame_size: options.slot_bytes,
            tp_frame_nr: slots_per_block * blocks,
        };
        let bytes = options.block_bytes as usize * blocks as usize;
        let made = sys::setsockopt(socket, libc::SOL_PACKET, libc::PACKET_RX_RING, &request)
            .and_then(|()| Mapping::new(socket.as_raw_fd(), bytes, 0));
        match made {
            Err(error)
                if error.raw_os_error() == Some(libc::ENOMEM) && blocks > options.blocks_min =>
            {
                // One that was made and found no room in the address space makes way for the smaller one.
                let none = libc::tpacket_req {
                    tp_block_size: 0,
                    tp_block_nr: 0,
                    tp_frame_size: 0,
                    tp_frame_nr: 0,
                };
                sys::setsockopt(socket, libc::SOL_PACKET, libc::PACKET_RX_RING, &none)?;
                blocks = (blocks / 2).max(options.blocks_min);
            }
            made => return made.map(|ring| (ring, blocks)),
        }
    }
}

/// Bytes of long frames that may wait at the socket, with the kernel's own for each.
const LONG_BYTES: libc::c_int = 32 << 20;

/// What a slot says of a frame.
struct Frame<'a> {
    /// What of it is in the slot.
    bytes: &'a [u8],
    /// Bytes of all of it.
    len: usize,
    /// Tag protocol and tag, if one was taken out.
    tag: Option<[u8; TAG_LEN]>,
    /// What is left to do with it.
    offload: &'a [u8; vnet::HEADER_LEN],
    /// Whether all of it waits at the socket.
    is_queued: bool,
    time_ns: u64,
}

/// The frame of a slot; `None` if its header contradicts itself.
#[inline]
fn frame(slot: &[u8]) -> Option<Frame<'_>> {
    use libc::{TP_STATUS_COPY, TP_STATUS_VLAN_TPID_VALID, TP_STATUS_VLAN_VALID};
    let header = slot.get(..size_of::<libc::tpacket2_hdr>())?;
    // SAFETY: the slice is as long as the structure, of which any bytes are a value.
    let header: libc::tpacket2_hdr =
        unsafe { header.as_ptr().cast::<libc::tpacket2_hdr>().read_unaligned() };
    let start = usize::from(header.tp_mac);
    let bytes = slot.get(start..)?.get(..header.tp_snaplen as usize)?;
    let offload = slot.get(..start)?.last_chunk()?;
    let tag = (header.tp_status & TP_STATUS_VLAN_VALID != 0).then(|| {
        let known = header.tp_status & TP_STATUS_VLAN_TPID_VALID != 0;
        let protocol = if known { header.tp_vlan_tpid } else { 0x8100 };
        let [a, b] = protocol.to_be_bytes();
        let [c, d] = header.tp_vlan_tci.to_be_bytes();
        [a, b, c, d]
    });
    Some(Frame {
        bytes,
        len: header.tp_len as usize,
        tag: tag.filter(|_| bytes.len() >= ADDRESSES_LEN),
        offload,
        is_queued: header.tp_status & TP_STATUS_COPY != 0,
        time_ns: u64::from(header.tp_sec) * 1_000_000_000 + u64::from(header.tp_nsec),
    })
}

impl Frame<'_> {
    fn is_whole(&self) -> bool {
        self.bytes.len() == self.len
    }

    /// A packet of the frame with its tag back in, and its offload header. `None` when too few cells are free.
    #[inline]
    fn copy(&self, pool: &mut Pool) -> Option<(Packet, [u8; vnet::HEADER_LEN])> {
        let len = self.bytes.len() + self.tag.map_or(0, |tag| tag.len());
        if len > CELL_CAPACITY {
            let (addresses, rest) = self.bytes.split_at_checked(ADDRESSES_LEN)?;
            let tag = self.tag.as_ref().map_or(&[][..], |tag| tag);
            return Some((Packet::copy_of(pool, &[addresses, tag, rest])?, *self.offload));
        }
        let mut cell = pool.get()?;
        let to = &mut cell.bytes_mut()[HEADROOM_BYTES..][..len];
        match &self.tag {
            None => to.copy_from_slice(self.bytes),
            Some(tag) => {
                let (addresses, rest) = self.bytes.split_at(ADDRESSES_LEN);
                to[..ADDRESSES_LEN].copy_from_slice(addresses);
                to[ADDRESSES_LEN..ADDRESSES_LEN + TAG_LEN].copy_from_slice(tag);
                to[ADDRESSES_LEN + TAG_LEN..].copy_from_slice(rest);
            }
        }
        Some((Packet::from_cell(cell, HEADROOM_BYTES, len), *self.offload))
    }
}

impl RxQueue for Rx {
    fn recv(&mut self, pool: &mut Pool, out: &mut Vec<Packet>, max: usize) -> usize {
        let first = out.len();
        while out.len() - first < max && self.is_ours() {
            match self.take(pool, out.len() == first) {
                Ok(Some(packet)) => {
                    self.stats.count(packet.frame_len() as u64);
                    out.push(packet);
                }
                Ok(None) => break,
                Err(reason) => self.lose(reason),
            }
            self.release();
        }
        let n = out.len() - first;
        if n == 0 {
            self.empty_calls += 1;
            if self.empty_calls >= EMPTY_CALLS_MAX {
                self.inquire();
            }
        }
        n
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.socket.as_fd())
    }

    fn arm(&mut self) -> bool {
        self.inquire();
        !self.is_ours()
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
