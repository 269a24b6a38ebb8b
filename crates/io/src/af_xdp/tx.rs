//! The sending half: transmit ring and completion ring.

use std::os::fd::BorrowedFd;
use std::sync::Arc;

use chunk::{CELL_BYTES, Cell, HEADROOM_BYTES, Packet, Pool, reasons};

use super::ledger::Ledger;
use super::ring::{Consumer, Producer};
use super::socket::Socket;
use crate::{Losses, QueueStats, TxQueue, sys};

/// Bytes of a frame that fit in one cell when it is copied.
const CELL_CAPACITY: usize = CELL_BYTES - HEADROOM_BYTES;

/// The most cells of one frame that the kernel takes (MAX_SKB_FRAGS is 17 at least).
const PIECES_MAX: usize = 17;

/// How often one `flush` kicks at most: in copy mode a kick sends a few dozen frames.
const KICKS_MAX: u32 = 64;

/// The sending half of a socket.
#[derive(Debug)]
pub struct Tx {
    interface: String,
    transmit: Producer<libc::xdp_desc>,
    completion: Consumer<u64>,
    /// `None` only while it is dropped.
    ledger: Option<Ledger>,
    /// Cells that the kernel has.
    in_flight: usize,
    /// The cells of a frame that is copied.
    copies: Vec<Cell>,
    is_gone: bool,
    error: Option<String>,
    stats: QueueStats,
    losses: Arc<Losses>,
    /// Last: the rings are unmapped before the socket can be closed.
    socket: Arc<Socket>,
}

impl Tx {
    pub(super) fn new(
        interface: &str,
        transmit: Producer<libc::xdp_desc>,
        completion: Consumer<u64>,
        socket: Arc<Socket>,
    ) -> Self {
        Self {
            interface: interface.to_owned(),
            transmit,
            completion,
            ledger: Some(Ledger::new(socket.depot().region())),
            in_flight: 0,
            copies: Vec::with_capacity(PIECES_MAX),
            is_gone: false,
            error: None,
            stats: QueueStats::default(),
            losses: Arc::default(),
            socket,
        }
    }

    /// Takes back the cells of frames that have left.
    fn collect(&mut self, pool: &mut Pool) {
        let Some(ledger) = &mut self.ledger else { return };
        for _ in 0..self.completion.available() {
            let offset = self.completion.pop();
            // SAFETY: what the kernel puts in the completion ring it is done with.
            match unsafe { ledger.take_back(offset) } {
                Some(cell) => {
                    self.in_flight -= 1;
                    pool.put(cell);
                }
                None => self.stats.errors += 1,
            }
        }
        self.completion.release();
    }

    /// Puts one piece of a frame in the ring, in which there is room.
    fn push(&mut self, cell: Cell, off: usize, len: usize, goes_on: bool) -> Result<(), Cell> {
        let Some(ledger) = &mut self.ledger else { return Err(cell) };
        let offset = ledger.lend(cell)?;
        let options = if goes_on { libc::XDP_PKT_CONTD } else { 0 };
        self.transmit.push(libc::xdp_desc { addr: offset + off as u64, len: len as u32, options });
        self.in_flight += 1;
        Ok(())
    }

    /// Sends a frame of several cells or of another region, by copying. Gives it back if there is no
    /// room for it now.
    fn send_copied(&mut self, pool: &mut Pool, packet: Packet) -> Result<(), Packet> {
        let len = packet.frame_len();
        let pieces = len.div_ceil(CELL_CAPACITY).max(1);
        let is_region = std::ptr::eq(pool.region(), self.socket.depot().region());
        if (pieces > 1 && !self.socket.is_multi_buffer) || pieces > PIECES_MAX || !is_region {
            let reason = if is_region { reasons::TX_OVERSIZE } else { reasons::TX_FAILED };
            self.losses.count(&mut self.stats, reason, 1);
            packet.free(pool);
            return Ok(());
        }
        if (self.transmit.free(pieces as u32) as usize) < pieces {
            return Err(packet);
        }
        let mut cells = std::mem::take(&mut self.copies);
        cells.extend((0..pieces).map_while(|_| pool.get()));
        if cells.len() < pieces {
            cells.drain(..).for_each(|cell| pool.put(cell));
            self.copies = cells;
            return Err(packet);
        }
        let mut from = packet.segments();
        let mut rest: &[u8] = &[];
        for (i, mut cell) in cells.drain(..).enumerate() {
            let piece = (len - i * CELL_CAPACITY).min(CELL_CAPACITY);
            let mut to = &mut cell.bytes_mut()[HEADROOM_BYTES..][..piece];
            while !to.is_empty() {
                if rest.is_empty() {
                    match from.next() {
                        Some(segment) => rest = segment,
                        None => break,
                    }
                }
                let n = rest.len().min(to.len());
                let (now, later) = to.split_at_mut(n);
                now.copy_from_slice(&rest[..n]);
                (to, rest) = (later, &rest[n..]);
            }
            if let Err(cell) = self.push(cell, HEADROOM_BYTES, piece, i + 1 < pieces) {
                pool.put(cell); // not of the region, which was ruled out above
            }
        }
        self.copies = cells;
        packet.free(pool);
        Ok(())
    }

    /// Lets the kernel send, until it has taken everything or takes no more.
    fn kick(&mut self) {
        for _ in 0..KICKS_MAX {
            let waiting = self.transmit.waiting();
            if waiting == 0 || !self.transmit.needs_wakeup() {
                break;
            }
            match self.socket.kick_transmit() {
                Ok(()) => self.is_gone = false,
                // The driver refused one frame (too long, or its own ring is full), and it is gone.
                Err(error) if error.raw_os_error() == Some(libc::EBUSY) => {
                    self.losses.count(&mut self.stats, reasons::TX_FAILED, 1);
                    self.stats.packets -= 1;
                }
                Err(error) if sys::is_busy(&error) => self.is_gone = false,
                Err(error) => {
                    self.stats.errors += 1;
                    if !std::mem::replace(&mut self.is_gone, true) {
                        self.error = Some(format!("{}: sending: {error}", self.interface));
                    }
                    break;
                }
            }
            if self.transmit.waiting() == waiting {
                break;
            }
        }
    }
}

impl TxQueue for Tx {
    fn send(&mut self, pool: &mut Pool, packets: &mut Vec<Packet>) {
        if self.is_gone {
            self.kick(); // those that wait show whether it has come back
        }
        if self.is_gone && self.transmit.waiting() > 0 {
            let lost = packets.len() as u64;
            self.losses.count(&mut self.stats, reasons::TX_PORT_DOWN, lost);
            packets.drain(..).for_each(|packet| packet.free(pool));
            return;
        }
        let mut free = self.transmit.free(packets.len() as u32) as usize;
        if free < packets.len() {
            self.transmit.publish();
            self.kick();
            self.collect(pool);
            free = self.transmit.free(packets.len() as u32) as usize;
        }
        let mut back = None;
        let mut done = 0;
        for packet in packets.iter_mut().take(free) {
            if self.transmit.free(1) == 0 {
                break; // frames in several pieces took more than one slot each
            }
            let packet = std::mem::replace(packet, Packet::empty());
            let bytes = packet.frame_len() as u64;
            let dropped = self.stats.dropped;
            let sent = match packet.into_cell() {
                Ok((cell, off, len)) => self
                    .push(cell, off, len, false)
                    .or_else(|cell| self.send_copied(pool, Packet::from_cell(cell, off, len))),
                Err(packet) => self.send_copied(pool, packet),
            };
            if let Err(packet) = sent {
                back = Some(packet);
                break;
            }
            if self.stats.dropped == dropped {
                self.stats.count(bytes);
            }
            done += 1;
        }
        self.transmit.publish();
        if let Some(packet) = back {
            packets[done] = packet;
        }
        packets.drain(..done);
    }

    fn flush(&mut self, pool: &mut Pool) {
        self.kick();
        self.collect(pool);
    }

    fn is_drained(&self) -> bool {
        self.in_flight == 0 || self.is_gone
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.socket.fd())
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

impl Drop for Tx {
    fn drop(&mut self) {
        self.ledger.take().into_iter().for_each(|ledger| self.socket.leave(ledger));
    }
}
