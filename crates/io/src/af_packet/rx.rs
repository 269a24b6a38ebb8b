//! The receive ring, TPACKET_V3.
//!
//! ```text
//!   ring  │ block 0 │ block 1 │ … │         each is the kernel's or ours, by its status word
//!   block │ header: status, packets, first │ header, offloads, frame │ header, offloads, frame │ … │
//! ```

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use chunk::{CELL_BYTES, HEADROOM_BYTES, Packet, Pool, reasons};

use super::{Options, bind, error};
use crate::link::{self, LinkError};
use crate::sys::{self, Mapping};
use crate::{Losses, QueueStats, RxQueue, vnet};

/// Bytes of a frame that fit in one cell.
const CELL_CAPACITY: usize = CELL_BYTES - HEADROOM_BYTES;

/// How many calls of `recv` may find nothing before the socket is asked for errors and losses.
const EMPTY_CALLS_MAX: u32 = 4096;

/// The receiving half of a pair of queues.
#[derive(Debug)]
pub struct Rx {
    /// Before the socket: unmapped first.
    ring: Mapping,
    socket: OwnedFd,
    block_bytes: usize,
    /// The block that is read, or that will be the next to come.
    block: usize,
    /// Packets of it that were not yet received; 0 while it is the kernel's.
    left: u32,
    /// Where the next packet's header is in it.
    at: usize,
    interface: String,
    empty_calls: u32,
    error: Option<String>,
    stats: QueueStats,
    losses: Arc<Losses>,
}

impl Rx {
    pub(super) fn open(interface: &str, index: u32, options: &Options) -> Result<Self, LinkError> {
        let at = |what| move |source| error(interface, what, source);
        let page = 4096;
        if !options.block_bytes.is_multiple_of(page) || options.block_bytes == 0 {
            let text = "a block is a multiple of 4096 bytes";
            return Err(at("the receive ring")(io::Error::new(io::ErrorKind::InvalidInput, text)));
        }
        // Without a protocol it receives nothing before it is bound to its interface.
        let socket = sys::socket(libc::AF_PACKET, libc::SOCK_RAW | libc::SOCK_NONBLOCK, 0)
            .map_err(at("opening a packet socket"))?;
        let version = libc::tpacket_versions::TPACKET_V3 as libc::c_int;
        sys::setsockopt(&socket, libc::SOL_PACKET, libc::PACKET_VERSION, &version)
            .map_err(at("choosing TPACKET_V3"))?;
        sys::setsockopt(&socket, libc::SOL_PACKET, libc::PACKET_VNET_HDR, &1)
            .map_err(at("requesting offload headers"))?;
        let request = libc::tpacket_req3 {
            tp_block_size: options.block_bytes,
            tp_block_nr: options.blocks,
            // Frames have no fixed size in version 3; these two must only agree with the blocks.
            tp_frame_size: options.block_bytes.min(page),
            tp_frame_nr: options.block_bytes / options.block_bytes.min(page) * options.blocks,
            tp_retire_blk_tov: options.retire_ms.max(1),
            tp_sizeof_priv: 0,
            tp_feature_req_word: 0,
        };
        sys::setsockopt(&socket, libc::SOL_PACKET, libc::PACKET_RX_RING, &request)
            .map_err(at("making the receive ring"))?;
        let block_bytes = options.block_bytes as usize;
        let ring = Mapping::new(socket.as_raw_fd(), block_bytes * options.blocks as usize, 0)
            .map_err(at("mapping the receive ring"))?;
        sys::setsockopt(&socket, libc::SOL_PACKET, libc::PACKET_IGNORE_OUTGOING, &1)
            .map_err(at("excluding outgoing packets"))?;
        if options.promiscuous {
            link::receive_all(&socket, index).map_err(at("receiving promiscuously"))?;
        }
        bind(&socket, index, libc::ETH_P_ALL as u16).map_err(at("binding to it"))?;
        Ok(Self {
            ring,
            socket,
            block_bytes,
            block: 0,
            left: 0,
            at: 0,
            interface: interface.to_owned(),
            empty_calls: 0,
            error: None,
            stats: QueueStats::default(),
            losses: Arc::default(),
        })
    }

    pub(super) fn socket(&self) -> &OwnedFd {
        &self.socket
    }

    /// The status word of the current block.
    fn status(&self) -> &AtomicU32 {
        let offset = self.block * self.block_bytes
            + std::mem::offset_of!(libc::tpacket_block_desc, hdr)
            + std::mem::offset_of!(libc::tpacket_hdr_v1, block_status);
        // SAFETY: `block` is below the number of blocks, so the word lies in the mapping, aligned;
        // it is shared with the kernel, hence an atomic.
        unsafe { AtomicU32::from_ptr(self.ring.start().as_ptr().add(offset).cast()) }
    }

    fn is_ours(&self) -> bool {
        self.status().load(Ordering::Acquire) & libc::TP_STATUS_USER != 0
    }

    /// The bytes of the current block; it must be ours.
    fn block_bytes(&self) -> &[u8] {
        debug_assert!(self.left > 0 || self.is_ours());
        // SAFETY: the block lies in the mapping. The kernel gave it to us (`is_ours`, acquired), so
        // it does not write there until `release`, which needs `&mut self`.
        unsafe {
            let start = self.ring.start().as_ptr().add(self.block * self.block_bytes);
            std::slice::from_raw_parts(start, self.block_bytes)
        }
    }

    /// Takes the current block if it is ours; `false` if it is still the kernel's.
    fn take_block(&mut self) -> bool {
        if !self.is_ours() {
            return false;
        }
        const HEADER: usize = std::mem::offset_of!(libc::tpacket_block_desc, hdr);
        let word = |at: usize| u32_at(self.block_bytes(), HEADER + at);
        let packets = word(std::mem::offset_of!(libc::tpacket_hdr_v1, num_pkts));
        let first = word(std::mem::offset_of!(libc::tpacket_hdr_v1, offset_to_first_pkt));
        self.left = packets;
        self.at = first as usize;
        if packets == 0 {
            self.release();
        }
        true
    }

    /// Gives the current block back to the kernel.
    fn release(&mut self) {
        self.left = 0;
        self.status().store(libc::TP_STATUS_KERNEL, Ordering::Release);
        self.block = (self.block + 1) % (self.ring.len() / self.block_bytes);
    }

    /// Goes to the packet after the current one.
    fn skip(&mut self, next: usize) {
        self.left -= 1;
        self.at += next;
        if self.left == 0 {
            self.release();
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
        let stats = sys::getsockopt::<libc::tpacket_stats_v3>(
            &self.socket,
            libc::SOL_PACKET,
            libc::PACKET_STATISTICS,
        );
        // Reading them sets them to zero.
        let lost = stats.map_or(0, |stats| u64::from(stats.tp_drops));
        self.losses.count(&mut self.stats, reasons::RX_FULL, lost);
    }
}

/// What the kernel says of one frame of a block.
struct Frame<'a> {
    bytes: &'a [u8],
    /// Tag protocol and tag, if one was taken out.
    tag: Option<[u8; 4]>,
    /// What is left to do with it.
    offload: &'a [u8; vnet::HEADER_LEN],
    is_cut: bool,
    time_ns: u64,
    /// Bytes from this packet's header to the next.
    next: usize,
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..).and_then(|b| b.first_chunk()).map_or(0, |b| u32::from_ne_bytes(*b))
}

/// The frame whose header is at `at`; `None` if that does not lie within the block.
fn frame(block: &[u8], at: usize) -> Option<Frame<'_>> {
    use libc::{TP_STATUS_VLAN_TPID_VALID, TP_STATUS_VLAN_VALID};
    let header = block.get(at..)?.get(..size_of::<libc::tpacket3_hdr>())?;
    // SAFETY: the slice is as long as the structure, of which any bytes are a value.
    let header: libc::tpacket3_hdr =
        unsafe { header.as_ptr().cast::<libc::tpacket3_hdr>().read_unaligned() };
    let start = at + usize::from(header.tp_mac);
    let bytes = block.get(start..)?.get(..header.tp_snaplen as usize)?;
    let offload = block.get(..start)?.last_chunk()?;
    let tag = (header.tp_status & TP_STATUS_VLAN_VALID != 0).then(|| {
        let known = header.tp_status & TP_STATUS_VLAN_TPID_VALID != 0;
        let protocol = if known { header.hv1.tp_vlan_tpid } else { 0x8100 };
        let [a, b] = protocol.to_be_bytes();
        let [c, d] = (header.hv1.tp_vlan_tci as u16).to_be_bytes();
        [a, b, c, d]
    });
    Some(Frame {
        bytes,
        tag: tag.filter(|_| bytes.len() >= 12),
        offload,
        is_cut: header.tp_snaplen < header.tp_len,
        time_ns: u64::from(header.tp_sec) * 1_000_000_000 + u64::from(header.tp_nsec),
        next: header.tp_next_offset as usize,
    })
}

impl RxQueue for Rx {
    fn recv(&mut self, pool: &mut Pool, out: &mut Vec<Packet>, max: usize) -> usize {
        let first = out.len();
        while out.len() - first < max {
            if self.left == 0 && !self.take_block() {
                break;
            }
            if self.left == 0 {
                continue; // an empty block
            }
            let Some(frame) = frame(self.block_bytes(), self.at) else {
                self.stats.errors += 1;
                let lost = u64::from(self.left);
                self.losses.count(&mut self.stats, reasons::RX_UNREADABLE, lost);
                self.release();
                continue;
            };
            let (next, time_ns) = (frame.next, frame.time_ns);
            let packet = match frame.is_cut {
                true => Err(reasons::RX_OVERSIZE),
                false => match frame.copy(pool) {
                    Some((packet, true)) => Ok(packet),
                    Some((packet, false)) => {
                        packet.free(pool);
                        Err(reasons::RX_OFFLOAD)
                    }
                    // The frame stays in the ring, and the kernel counts what finds no room; but one that needs more
                    // cells than there are must not stay for ever.
                    None if out.len() > first || frame.bytes.len() <= CELL_CAPACITY => break,
                    None => Err(reasons::RX_NO_CELLS),
                },
            };
            match packet {
                Ok(mut packet) => {
                    packet.time_ns = time_ns;
                    self.stats.count(packet.frame_len() as u64);
                    out.push(packet);
                }
                Err(reason) => self.losses.count(&mut self.stats, reason, 1),
            }
            self.skip(next);
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
        self.left == 0 && !self.is_ours()
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

impl Frame<'_> {
    /// A packet of the frame with its tag back in, and whether anybody here can finish it. `None` when too few cells
    /// are free.
    #[inline]
    fn copy(&self, pool: &mut Pool) -> Option<(Packet, bool)> {
        let len = self.bytes.len() + self.tag.map_or(0, |tag| tag.len());
        let mut packet = if len <= CELL_CAPACITY {
            let mut cell = pool.get()?;
            let to = &mut cell.bytes_mut()[HEADROOM_BYTES..][..len];
            match &self.tag {
                None => to.copy_from_slice(self.bytes),
                Some(tag) => {
                    let (macs, rest) = self.bytes.split_at(12);
                    to[..12].copy_from_slice(macs);
                    to[12..16].copy_from_slice(tag);
                    to[16..].copy_from_slice(rest);
                }
            }
            Packet::from_cell(cell, HEADROOM_BYTES, len)
        } else {
            match &self.tag {
                None => Packet::copy_from(pool, self.bytes)?,
                Some(tag) => {
                    let (macs, rest) = self.bytes.split_at(12);
                    Packet::copy_of(pool, &[macs, tag, rest])?
                }
            }
        };
        let is_known = *self.offload == [0; vnet::HEADER_LEN]
            || vnet::read(self.offload, self.tag.is_some(), &mut packet);
        Some((packet, is_known))
    }
}
