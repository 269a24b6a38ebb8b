//! Finishing frames that their sender left to a network card ([`chunk::Offload`]).
//!
//! * [`finish`]: before frames leave by a queue that does not [carry](crate::TxQueue::carries) them.
//! * [`Finished`]: a receive queue whose frames are finished on receipt, for stages that need packets as they are on a
//!   wire.
//! * [`frames`]: the frames that a packet is on the wire, for captures.
//!
//! How a frame is finished is in [`packet::offload`].
//!
//! Threads: a [`Finished`] belongs to the thread of its queue.

use std::collections::VecDeque;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use chunk::{DropReason, Offload, Packet, Pool, reasons};
use packet::offload::{Checksums, Cut, cut, fill_checksum};

use crate::{Losses, QueueStats, RxQueue};

/// Finishes those of `packets` that are not finished and that `carries` does not let pass, in place and in order.
/// Packets that cannot be finished go to `lost`, with the reason.
pub fn finish(
    pool: &mut Pool,
    packets: &mut Vec<Packet>,
    carries: impl Fn(&Packet) -> bool,
    mut lost: impl FnMut(Packet, DropReason),
) {
    let is_ready = |packet: &Packet| packet.offload.is_none() || carries(packet);
    let Some(first) = packets.iter().position(|packet| !is_ready(packet)) else { return };
    let rest: Vec<Packet> = packets.drain(first..).collect();
    for packet in rest {
        if is_ready(&packet) {
            packets.push(packet);
        } else if let Err((packet, reason)) = finish_one(pool, packet, packets, &carries) {
            lost(packet, reason);
        }
    }
}

/// Appends what `packet` is on the wire to `out`; checksums stay open where `carries` lets them.
fn finish_one(
    pool: &mut Pool,
    mut packet: Packet,
    out: &mut Vec<Packet>,
    carries: impl Fn(&Packet) -> bool,
) -> Result<(), (Packet, DropReason)> {
    if packet.offload.segment_bytes().is_none() {
        if !fill_checksum(&mut packet) {
            return Err((packet, reasons::RX_OFFLOAD));
        }
        packet.offload = Offload::NONE;
        out.push(packet);
        return Ok(());
    }
    let first = out.len();
    if !cut(&packet, pool, out, Checksums::Open) {
        let is_known = Cut::new(&packet).is_some();
        return Err((packet, if is_known { reasons::NO_CELLS } else { reasons::RX_OFFLOAD }));
    }
    for segment in &mut out[first..] {
        if !carries(segment) && fill_checksum(segment) {
            segment.offload = Offload::NONE;
        }
    }
    packet.free(pool);
    Ok(())
}

/// Calls `take` with the length of each frame that an unfinished packet is on the wire, and with a function that copies
/// bytes of it from a place on. A packet that nobody can finish is one frame, as it is.
pub fn frames(packet: &Packet, mut take: impl FnMut(usize, &dyn Fn(usize, &mut [u8]))) {
    let Some(cut) = Cut::new(packet).filter(|_| !packet.offload.is_none()) else {
        return take(packet.frame_len(), &|at, out| _ = packet.read_at(at, out));
    };
    for frame in cut {
        let (headers, payload) = (frame.headers(), frame.payload());
        take(frame.frame_len(), &|at, out| {
            let own = headers.get(at..).unwrap_or_default();
            let n = own.len().min(out.len());
            let (front, behind) = out.split_at_mut(n);
            front.copy_from_slice(&own[..n]);
            packet.read_at(payload.start + (at + n).saturating_sub(headers.len()), behind);
        });
    }
}

/// A queue whose packets are finished on receipt.
pub struct Finished {
    inner: Box<dyn RxQueue>,
    /// Received, and not asked for yet.
    waiting: VecDeque<Packet>,
    received: Vec<Packet>,
    lost: u64,
    losses: Arc<Losses>,
}

impl Finished {
    /// The queue with all of its packets finished.
    pub fn new(inner: Box<dyn RxQueue>) -> Self {
        let (waiting, received) = (VecDeque::new(), Vec::new());
        // Whoever reads the losses of the queue in it reads these, too.
        let losses = inner.losses().into_iter().next().unwrap_or_default();
        Self { inner, waiting, received, lost: 0, losses }
    }
}

impl std::fmt::Debug for Finished {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Finished({} waiting)", self.waiting.len())
    }
}

impl RxQueue for Finished {
    fn recv(&mut self, pool: &mut Pool, out: &mut Vec<Packet>, max: usize) -> usize {
        let first = out.len();
        if self.waiting.is_empty() {
            self.inner.recv(pool, out, max);
            if out[first..].iter().all(|packet| packet.offload.is_none()) {
                return out.len() - first;
            }
            self.received.extend(out.drain(first..));
            let mut lost = Vec::new();
            finish(
                pool,
                &mut self.received,
                |_| false,
                |packet, reason| {
                    lost.push((packet, reason));
                },
            );
            for (packet, reason) in lost {
                packet.free(pool);
                self.lost += 1;
                let is_full = reason == reasons::NO_CELLS;
                self.losses.add(if is_full { reasons::RX_NO_CELLS } else { reason }, 1);
            }
            self.waiting.extend(self.received.drain(..));
        }
        let n = max.min(self.waiting.len());
        out.extend(self.waiting.drain(..n));
        out.len() - first
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.inner.fd()
    }

    fn arm(&mut self) -> bool {
        self.waiting.is_empty() && self.inner.arm()
    }

    fn is_finished(&self) -> bool {
        self.waiting.is_empty() && self.inner.is_finished()
    }

    fn peek_time_ns(&mut self) -> Option<u64> {
        self.waiting.front().map(|packet| packet.time_ns).or_else(|| self.inner.peek_time_ns())
    }

    fn progress(&self) -> Option<(u64, u64)> {
        self.inner.progress()
    }

    fn take_error(&mut self) -> Option<String> {
        self.inner.take_error()
    }

    fn release(&mut self, pool: &mut Pool) {
        self.waiting.drain(..).for_each(|packet| packet.free(pool));
        self.inner.release(pool);
    }

    /// Frames as they were received, before they were cut.
    fn stats(&self) -> QueueStats {
        let inner = self.inner.stats();
        QueueStats { dropped: inner.dropped + self.lost, ..inner }
    }

    fn losses(&self) -> Vec<Arc<Losses>> {
        let losses = self.inner.losses();
        if losses.is_empty() { vec![self.losses.clone()] } else { losses }
    }

    fn give_back(&mut self) -> Option<Box<dyn RxQueue>> {
        if !self.waiting.is_empty() {
            return None; // they would be lost
        }
        Some(std::mem::replace(&mut self.inner, Box::new(crate::memory::Script::default())))
    }
}
