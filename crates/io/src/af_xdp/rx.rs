//! The receiving half: fill ring and receive ring.

use std::os::fd::BorrowedFd;
use std::sync::Arc;

use chunk::{CELL_BYTES, Offload, Packet, Pool, reasons};
use packet::offload::open_offload;

use super::ledger::Ledger;
use super::ring::{Consumer, Producer};
use super::socket::Socket;
use super::{Mode, segments_text};
use crate::link::Link;
use crate::{Losses, QueueStats, RxQueue, sys};

/// Bytes at the front of a cell where no frame may lie: the link of a chain.
const LINK_BYTES: u64 = 16;

/// How many calls of `recv` may find nothing before the socket is asked for errors and losses.
const EMPTY_CALLS_MAX: u32 = 4096;

/// Cells that the kernel gets from every queue, however few there are.
const SURE_CELLS: u32 = 256;

/// Bytes of a frame above the MTU of its interface.
const ETHERNET_LEN: usize = 14;
const TAG_LEN: usize = 4;

/// The receiving half of a socket.
#[derive(Debug)]
pub struct Rx {
    link: Link,
    fill: Producer<u64>,
    receive: Consumer<libc::xdp_desc>,
    /// Cells that the kernel may still have from us: a ring's worth, in fill and receive ring
    /// together.
    lack: u32,
    slots: u32,
    /// Fill when so many lack: often enough to keep the kernel supplied, seldom enough to touch its
    /// lines rarely.
    fill_batch: u32,
    /// `None` only while it is dropped.
    ledger: Option<Ledger>,
    /// The pieces so far of a frame in several cells.
    pieces: Vec<u8>,
    /// The other end is a host of its own: frames may be unfinished, and longer ones than the MTU always are.
    is_veth: bool,
    /// Whether checksums may be open.
    is_open_possible: bool,
    /// That of the interface, when it was last asked.
    mtu: usize,
    /// It was asked for the frames of this call of `recv`.
    is_mtu_fresh: bool,
    is_cut: bool,
    empty_calls: u32,
    error: Option<String>,
    /// What the kernel said last: ring full, no cell or too long, no cell.
    lost_before: [u64; 3],
    stats: QueueStats,
    losses: Arc<Losses>,
    /// Last: the rings are unmapped before the socket can be closed.
    socket: Arc<Socket>,
}

impl Rx {
    pub(super) fn new(
        link: Link,
        fill: Producer<u64>,
        receive: Consumer<libc::xdp_desc>,
        slots: u32,
        socket: Arc<Socket>,
    ) -> Self {
        let ledger = Ledger::new(socket.depot().region());
        let is_veth = link.driver() == "veth";
        let mut rx = Self {
            is_veth,
            // Behind the driver come frames that the kernel has taken over from any guest or namespace, or has merged.
            is_open_possible: is_veth || socket.mode() == Mode::Skb,
            mtu: link.mtu().unwrap_or(u32::MAX) as usize,
            is_mtu_fresh: true,
            link,
            fill,
            receive,
            lack: slots,
            slots,
            fill_batch: (slots / 8).clamp(1, 64),
            ledger: Some(ledger),
            pieces: Vec::new(),
            is_cut: false,
            empty_calls: 0,
            error: None,
            lost_before: [0; 3],
            stats: QueueStats::default(),
            losses: Arc::default(),
            socket,
        };
        // Frames may come before the first call of `recv`.
        let mut pool = Pool::new(rx.socket.depot().clone(), 64);
        rx.supply(&mut pool);
        rx
    }

    /// Gives the kernel free cells. Many queues with long rings could take all there are, and keep them while nothing comes:
    /// beyond a few, a queue leaves half of all cells to the others.
    fn supply(&mut self, pool: &mut Pool) {
        if self.lack < self.fill_batch {
            return;
        }
        let mut free = self.fill.free(self.lack).min(self.lack);
        let lent = self.slots - self.lack;
        if lent + free > SURE_CELLS {
            let depot = self.socket.depot();
            let half = depot.region().cells() / 2;
            let spare = (depot.available() as u32).saturating_sub(half);
            free = free.min(spare.max(SURE_CELLS.saturating_sub(lent)));
        }
        let Some(ledger) = &mut self.ledger else { return };
        for _ in 0..free {
            let Some(cell) = pool.get() else { break };
            match ledger.lend(cell) {
                Ok(offset) => {
                    self.fill.push(offset);
                    self.lack -= 1;
                }
                Err(cell) => {
                    // A pool of another region: none of its cells will do.
                    pool.put(cell);
                    break;
                }
            }
        }
        self.fill.publish();
    }

    /// The packet of one descriptor; `None` if it is not whole, or makes no sense.
    fn packet(&mut self, desc: libc::xdp_desc, pool: &mut Pool) -> Option<Packet> {
        let (off, len) = (desc.addr % CELL_BYTES as u64, u64::from(desc.len));
        let is_within = off >= LINK_BYTES && off + len <= CELL_BYTES as u64;
        // SAFETY: what the kernel puts in the receive ring it is done with.
        let cell = self.ledger.as_mut().and_then(|ledger| unsafe { ledger.take_back(desc.addr) });
        let Some(cell) = cell else {
            self.stats.errors += 1;
            self.losses.count(&mut self.stats, reasons::RX_UNREADABLE, 1);
            return None;
        };
        self.lack += 1;
        if !is_within {
            pool.put(cell);
            self.stats.errors += 1;
            self.losses.count(&mut self.stats, reasons::RX_UNREADABLE, 1);
            return None;
        }
        let packet = Packet::from_cell(cell, off as usize, len as usize);
        let goes_on = desc.options & libc::XDP_PKT_CONTD != 0;
        if !goes_on && self.pieces.is_empty() {
            return self.judged(packet, pool);
        }
        self.pieces.extend_from_slice(packet.data());
        packet.free(pool);
        if goes_on {
            return None;
        }
        let whole = Packet::copy_from(pool, &self.pieces);
        self.pieces.clear();
        if whole.is_none() {
            self.losses.count(&mut self.stats, reasons::RX_NO_CELLS, 1);
        }
        whole.and_then(|packet| self.judged(packet, pool))
    }

    /// The packet with what its sender left open; `None` for one of several segments, for nothing says how long they are
    /// to be.
    fn judged(&mut self, mut packet: Packet, pool: &mut Pool) -> Option<Packet> {
        let offload = if self.is_open_possible { open_offload(&packet) } else { Offload::NONE };
        let is_open = !offload.is_none();
        if (self.is_veth || is_open) && self.is_of_segments(&packet, is_open) {
            packet.free(pool);
            self.lose_segments(1);
            return None;
        }
        packet.offload = offload;
        Some(packet)
    }

    /// Whether a frame is too long to have come over the interface as one.
    fn is_of_segments(&mut self, packet: &Packet, is_open: bool) -> bool {
        let frame_len = packet.frame_len();
        if frame_len <= ETHERNET_LEN + self.mtu {
            return false;
        }
        if !std::mem::replace(&mut self.is_mtu_fresh, true) {
            // It may have been raised since.
            self.mtu = self.link.mtu().map_or(self.mtu, |mtu| mtu as usize);
        }
        // The kernel takes frames with a tag more than the MTU allows, and some cards longer ones, but these come with a
        // checksum.
        let tags = if is_open { usize::from(packet::offload::tags(packet.data())) } else { 2 };
        frame_len > ETHERNET_LEN + tags * TAG_LEN + self.mtu
    }

    /// Counts frames of several segments, and says what to do, once for the interface.
    #[cold]
    fn lose_segments(&mut self, frames: u64) {
        self.losses.count(&mut self.stats, reasons::RX_OFFLOAD, frames);
        if self.socket.is_first_of_segments() {
            self.error = Some(segments_text(self.link.name()));
        }
    }

    /// Asks the socket for its error and for what was lost so far.
    #[cold]
    fn inquire(&mut self) {
        self.empty_calls = 0;
        match self.socket.kick_receive() {
            Err(error) if sys::is_gone(&error) => {
                if !std::mem::replace(&mut self.is_cut, true) {
                    self.stats.errors += 1;
                    self.error = Some(format!("{}: receiving: {error}", self.link.name()));
                }
            }
            _ => self.is_cut = false,
        }
        // What waits there would wake the worker for ever, and says no more than the above.
        sys::take_socket_error(&self.socket.fd());
        let statistics = sys::getsockopt::<libc::xdp_statistics>(
            &self.socket.fd(),
            libc::SOL_XDP,
            libc::XDP_STATISTICS,
        );
        if let Ok(statistics) = statistics {
            let now = [
                statistics.rx_ring_full,
                statistics.rx_dropped,
                statistics.rx_fill_ring_empty_descs,
            ];
            let before = std::mem::replace(&mut self.lost_before, now);
            let [full, dropped, unfilled] =
                std::array::from_fn(|i| now[i].saturating_sub(before[i]));
            // A frame that found no cell is in both; a driver may also fail to find cells
            // without losing a frame.
            let no_cells = dropped.min(unfilled);
            self.losses.count(&mut self.stats, reasons::RX_FULL, full);
            self.losses.count(&mut self.stats, reasons::RX_NO_CELLS, no_cells);
            let long = dropped - no_cells;
            if long > 0 && self.is_veth {
                self.lose_segments(long);
            } else {
                self.losses.count(&mut self.stats, reasons::RX_OVERSIZE, long);
            }
        }
    }
}

impl RxQueue for Rx {
    fn recv(&mut self, pool: &mut Pool, out: &mut Vec<Packet>, max: usize) -> usize {
        let first = out.len();
        self.is_mtu_fresh = false;
        let n = (self.receive.available() as usize).min(max);
        for _ in 0..n {
            let desc = self.receive.pop();
            if let Some(packet) = self.packet(desc, pool) {
                self.stats.count(packet.frame_len() as u64);
                out.push(packet);
            }
        }
        self.receive.release();
        self.supply(pool);
        if n == 0 {
            self.empty_calls += 1;
            if self.empty_calls >= EMPTY_CALLS_MAX {
                self.inquire();
            } else if self.fill.needs_wakeup() {
                // Whether that went well is asked now and then, above.
                let _ = self.socket.kick_receive();
            }
        }
        out.len() - first
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.socket.fd())
    }

    fn arm(&mut self) -> bool {
        self.inquire(); // kicks as well
        self.receive.available() == 0
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

impl Drop for Rx {
    fn drop(&mut self) {
        self.ledger.take().into_iter().for_each(|ledger| self.socket.leave(ledger));
    }
}
