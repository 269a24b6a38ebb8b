//! Packet queues: where frames come from and where they go.
//!
//! One pair of traits, [`RxQueue`] and [`TxQueue`], and behind it memory, generator and sink,
//! capture files, `AF_PACKET`, `AF_XDP` and TAP. A queue belongs to one worker (PacketShader §4.4:
//! queues and their counters are never shared between cores); its counters are read by others.
//!
//! Threads: a queue is used by the thread that owns it, and may be moved to another one before.

pub mod af_packet;
pub mod af_xdp;
pub mod capture;
pub mod fault;
pub mod generator;
pub mod link;
mod losses;
pub mod memory;
pub mod offload;
mod random;
mod sys;
pub mod tap;
mod vnet;

use std::os::fd::BorrowedFd;
use std::sync::Arc;

use chunk::{Packet, Pool};

pub use losses::{LOSS_REASONS, Losses, lost};

/// Where frames come from.
pub trait RxQueue: Send {
    /// Appends at most `max` packets to `out`, in order of arrival, without waiting; returns how
    /// many. Sets each packet's `time_ns` if the source has a time. Frames that must be left (no
    /// free cell, longer than all cells) are counted, never half delivered. Frames that their sender left unfinished say
    /// so (`Packet::offload`).
    fn recv(&mut self, pool: &mut Pool, out: &mut Vec<Packet>, max: usize) -> usize;

    /// The descriptor that becomes readable when packets are there, for a worker that blocks.
    /// `None` for a queue that is never empty for long or says nothing.
    fn fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    /// Called before blocking on [`RxQueue::fd`]: arms the wake-up. `false` if packets have come in
    /// meanwhile and the worker must not block.
    fn arm(&mut self) -> bool {
        true
    }

    /// Whether no packet will ever come again: the end of a capture, a finished generator.
    fn is_finished(&self) -> bool {
        false
    }

    /// When the next packet was received, in nanoseconds since 1970, if the source knows it ahead:
    /// so that several captures can be merged by time. `None` when it does not or has no more.
    fn peek_time_ns(&mut self) -> Option<u64> {
        None
    }

    /// Bytes read and bytes in all, of a source that ends.
    fn progress(&self) -> Option<(u64, u64)> {
        None
    }

    /// Why the queue failed, once: the interface vanished, the capture is corrupt. The queue gives
    /// no packets then, and may recover.
    fn take_error(&mut self) -> Option<String> {
        None
    }

    /// Gives every cell that it still holds back to `pool`: the end of its use.
    fn release(&mut self, _pool: &mut Pool) {}

    /// What was received so far.
    fn stats(&self) -> QueueStats;

    /// Why packets were lost, to be kept and read by others; empty for a queue that loses none.
    fn losses(&self) -> Vec<Arc<Losses>> {
        Vec::new()
    }

    /// The queue in one that an engine has put round it ([`offload::Finished`]), which is of no use afterwards; `None`
    /// for all others.
    fn give_back(&mut self) -> Option<Box<dyn RxQueue>> {
        None
    }
}

/// Where frames go.
pub trait TxQueue: Send {
    /// Takes packets from the front of `packets` and sends or queues them; those that do not fit
    /// stay. Sent packets' cells go back to `pool`, at once or when the kernel is done with them.
    /// Packets that can never be sent (too long, port gone) are taken, freed and counted.
    fn send(&mut self, pool: &mut Pool, packets: &mut Vec<Packet>);

    /// Whether `packet`, which its sender left unfinished (`Packet::offload`), may be sent as it is: the kernel or the
    /// card finishes it. Other packets are finished before they are sent here ([`offload::finish`]).
    fn carries(&self, _packet: &Packet) -> bool {
        false
    }

    /// Makes sure that what was taken leaves (a kick of the kernel), and collects cells of frames
    /// that have left. Called once after the sends of a turn.
    fn flush(&mut self, pool: &mut Pool);

    /// Whether everything that was taken has left.
    fn is_drained(&self) -> bool {
        true
    }

    /// The descriptor that becomes writable when there is room again.
    fn fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    /// Why the queue failed, once.
    fn take_error(&mut self) -> Option<String> {
        None
    }

    /// What was sent so far.
    fn stats(&self) -> QueueStats;

    /// Why packets were lost, to be kept and read by others; empty for a queue that loses none.
    fn losses(&self) -> Vec<Arc<Losses>> {
        Vec::new()
    }
}

/// Counters of one queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QueueStats {
    /// Packets received or sent.
    pub packets: u64,
    /// Their bytes, without preamble, frame check sequence and gap.
    pub bytes: u64,
    /// Packets lost: full rings, no cell, too long. [`Losses`] says which.
    pub dropped: u64,
    /// Failed calls and broken descriptors.
    pub errors: u64,
}

impl std::ops::AddAssign for QueueStats {
    fn add_assign(&mut self, other: Self) {
        self.packets += other.packets;
        self.bytes += other.bytes;
        self.dropped += other.dropped;
        self.errors += other.errors;
    }
}

impl QueueStats {
    /// Counts one packet of `bytes`.
    #[inline]
    fn count(&mut self, bytes: u64) {
        self.packets += 1;
        self.bytes += bytes;
    }
}
