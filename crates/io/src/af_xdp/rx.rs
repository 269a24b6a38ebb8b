//! The receiving half: fill ring and receive ring.

use std::os::fd::BorrowedFd;
use std::sync::Arc;

use chunk::{CELL_BYTES, Packet, Pool, reasons};
use packet::offload::open_offload;

use super::ledger::Ledger;
use super::ring::{Consumer, Producer};
use super::socket::Socket;
use crate::link::Link;
use crate::{Losses, QueueStats, RxQueue, sys};

/// Bytes at the front of a cell where no frame may lie: the link of a chain.
const LINK_BYTES: u64 = 16;

/// How many calls of `recv` may find nothing before the socket is asked for errors and losses.
const EMPTY_CALLS_MAX: u32 = 4096;

/// The receiving half of a socket.
#[derive(Debug)]
pub struct Rx {
    interface: String,
    fill: Producer<u64>,
    receive: Consumer<libc::xdp_desc>,
    /// Cells that the kernel may still have from us: a ring's worth, in fill and receive ring
    /// together.
    lack: u32,
    /// Fill when so many lack: often enough to keep the kernel supplied, seldom enough to touch its
    /// lines rarely.
    fill_batch: u32,
    /// `None` only while it is dropped.
    ledger: Option<Ledger>,
    /// The pieces so far of a frame in several cells.
    pieces: Vec<u8>,
    /// The other end is a host of its own, which leaves checksums open.
    is_veth: bool,
    has_warned: bool,
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
        link: &Link,
        fill: Producer<u64>,
        receive: Consumer<libc::xdp_desc>,
        slots: u32,
        socket: Arc<Socket>,
    ) -> Self {
        let ledger = Ledger::new(socket.depot().region());
        let mut rx = Self {
            interface: link.name().to_owned(),
            is_veth: link.driver() == "veth",
            has_warned: false,
            fill,
            receive,
            lack: slots,
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

    /// Gives the kernel free cells.
    fn supply(&mut self, pool: &mut Pool) {
        if self.lack < self.fill_batch {
            return;
        }
        let free = self.fill.free(self.lack).min(self.lack);
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
            return Some(packet);
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
        whole
    }

    /// Asks the socket for its error and for what was lost so far.
    #[cold]
    fn inquire(&mut self) {
        self.empty_calls = 0;
        match self.socket.kick_receive() {
            Err(error) if sys::is_gone(&error) => {
                if !std::mem::replace(&mut self.is_cut, true) {
                    self.stats.errors += 1;
                    self.error = Some(format!("{}: receiving: {error}", self.interface));
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
                self.losses.count(&mut self.stats, reasons::RX_OFFLOAD, long);
                if !std::mem::replace(&mut self.has_warned, true) {
                    self.error = Some(format!(
                        "{0}: AF_XDP does not receive frames of several segments, and {long} were lost: switch \
                         segmentation off at the other end of {0} (`ethtool -K INTERFACE tso off gso off`), or use \
                         `backend = \"af_packet\"`",
                        self.interface
                    ));
                }
            } else {
                self.losses.count(&mut self.stats, reasons::RX_OVERSIZE, long);
            }
        }
    }
}

impl RxQueue for Rx {
    fn recv(&mut self, pool: &mut Pool, out: &mut Vec<Packet>, max: usize) -> usize {
        let first = out.len();
        let n = (self.receive.available() as usize).min(max);
        for _ in 0..n {
            let desc = self.receive.pop();
            if let Some(mut packet) = self.packet(desc, pool) {
                if self.is_veth {
                    packet.offload = open_offload(&packet);
                }
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
