//! Frames that control sends by the data path: ARP requests and neighbour solicitations.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use chunk::{Depot, Packet, Pool};
use io::memory::{MemoryRx, MemoryTx, pair};
use io::{QueueStats, RxQueue};
use rustix::event::{EventfdFlags, eventfd};

/// Frames that may wait at a time; more are lost, and asked for again by their timers.
const CAPACITY: usize = 1024;

/// Control's end.
pub struct Injector {
    tx: MemoryTx,
    pool: Pool,
    event: Arc<OwnedFd>,
}

/// The worker's end: a receive queue whose packets carry their ports.
pub struct Injected {
    rx: MemoryRx,
    event: Arc<OwnedFd>,
}

/// Both ends of a new queue.
pub fn injector(depot: Arc<Depot>) -> std::io::Result<(Injector, Injected)> {
    let event = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
    let (tx, rx) = pair(CAPACITY);
    let pool = Pool::new(depot, 64);
    Ok((Injector { tx, pool, event: event.clone() }, Injected { rx, event }))
}

impl Injector {
    /// Sends `frame`, tags and all, out of physical port `port`.
    pub fn send(&mut self, port: u16, frame: &[u8]) {
        self.put(port, frame, engine::MARK_FROM_HOST);
    }

    /// Lets the pipeline of `port` take `frame` with a mark.
    pub fn put(&mut self, port: u16, frame: &[u8], mark: u32) {
        let Some(mut packet) = Packet::copy_from(&mut self.pool, frame) else { return };
        (packet.port, packet.mark) = (port, mark);
        match self.tx.push(packet) {
            Ok(()) => {
                let _ = rustix::io::write(&self.event, &1u64.to_ne_bytes());
            }
            Err(packet) => packet.free(&mut self.pool),
        }
    }
}

impl RxQueue for Injected {
    fn recv(&mut self, pool: &mut Pool, out: &mut Vec<Packet>, max: usize) -> usize {
        self.rx.recv(pool, out, max)
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.event.as_fd())
    }

    fn arm(&mut self) -> bool {
        let mut count = [0; 8];
        // Nothing to read means nothing was sent since the last time.
        rustix::io::read(&self.event, &mut count).is_err()
    }

    fn stats(&self) -> QueueStats {
        self.rx.stats()
    }
}
