//! Queues that need no kernel: for tests, benches, and the engine's own load.
//!
//! * [`pair`]: what one thread sends, another receives; packets are moved, never copied.
//! * [`Script`] and [`Collect`]: given frames in, frames out, for tests.
//! * [`Replay`] and [`Recycle`]: the same packets round and round, as fast as asked.
//! * [`Sink`]: counts and frees.
//!
//! Threads: each half belongs to one thread; the halves of a pair may be on two.

mod replay;

use std::sync::{Arc, Mutex, PoisonError};

use chunk::{Packet, Pool, reasons};

use crate::{Losses, QueueStats, RxQueue, TxQueue};

pub use replay::{Recycle, Replay};

/// A queue of at most `capacity` packets: what is sent into the first half comes out of the second.
///
/// Packets that still lie in it when both halves are dropped take their cells with them.
pub fn pair(capacity: usize) -> (MemoryTx, MemoryRx) {
    let (producer, consumer) = rtrb::RingBuffer::new(capacity);
    let (tx, rx) = (QueueStats::default(), QueueStats::default());
    (MemoryTx { producer, stats: tx, losses: Arc::default() }, MemoryRx { consumer, stats: rx })
}

/// The sending half of [`pair`].
#[derive(Debug)]
pub struct MemoryTx {
    producer: rtrb::Producer<Packet>,
    stats: QueueStats,
    losses: Arc<Losses>,
}

impl MemoryTx {
    /// Sends one packet; gives it back if the queue is full.
    pub fn push(&mut self, packet: Packet) -> Result<(), Packet> {
        let bytes = packet.frame_len() as u64;
        self.producer.push(packet).map_err(|rtrb::PushError::Full(packet)| packet)?;
        self.stats.count(bytes);
        Ok(())
    }
}

impl TxQueue for MemoryTx {
    fn send(&mut self, pool: &mut Pool, packets: &mut Vec<Packet>) {
        if self.producer.is_abandoned() {
            let lost = packets.len() as u64;
            self.losses.count(&mut self.stats, reasons::TX_PORT_DOWN, lost);
            packets.drain(..).for_each(|packet| packet.free(pool));
            return;
        }
        let n = self.producer.slots().min(packets.len());
        let bytes: usize = packets[..n].iter().map(Packet::frame_len).sum();
        if let Ok(slots) = self.producer.write_chunk_uninit(n) {
            slots.fill_from_iter(packets.drain(..n));
            self.stats.packets += n as u64;
            self.stats.bytes += bytes as u64;
        }
    }

    fn flush(&mut self, _pool: &mut Pool) {}

    fn stats(&self) -> QueueStats {
        self.stats
    }

    fn losses(&self) -> Vec<Arc<Losses>> {
        vec![self.losses.clone()]
    }
}

/// The receiving half of [`pair`]. It is finished when the other half is gone and it is empty.
#[derive(Debug)]
pub struct MemoryRx {
    consumer: rtrb::Consumer<Packet>,
    stats: QueueStats,
}

impl MemoryRx {
    /// Receives one packet.
    pub fn pop(&mut self) -> Option<Packet> {
        let packet = self.consumer.pop().ok()?;
        self.stats.count(packet.frame_len() as u64);
        Some(packet)
    }
}

impl RxQueue for MemoryRx {
    fn recv(&mut self, _pool: &mut Pool, out: &mut Vec<Packet>, max: usize) -> usize {
        let n = self.consumer.slots().min(max);
        let Ok(packets) = self.consumer.read_chunk(n) else { return 0 };
        let first = out.len();
        out.extend(packets);
        self.stats.packets += n as u64;
        self.stats.bytes += out[first..].iter().map(|p| p.frame_len() as u64).sum::<u64>();
        n
    }

    fn is_finished(&self) -> bool {
        // In this order: what was pushed before the other half went is seen by `is_empty`.
        self.consumer.is_abandoned() && self.consumer.is_empty()
    }

    fn release(&mut self, pool: &mut Pool) {
        while let Some(packet) = self.pop() {
            packet.free(pool);
        }
    }

    fn stats(&self) -> QueueStats {
        self.stats
    }
}

/// Receives given frames, copied into cells one after the other, and is finished.
///
/// A frame that finds too few free cells is tried again at the next call.
#[derive(Debug, Default)]
pub struct Script {
    frames: std::vec::IntoIter<(u64, Vec<u8>)>,
    stats: QueueStats,
}

impl Script {
    /// The frames, each with its time in nanoseconds since 1970.
    pub fn new(frames: Vec<(u64, Vec<u8>)>) -> Self {
        Self { frames: frames.into_iter(), stats: QueueStats::default() }
    }

    /// The frames, without times.
    pub fn untimed(frames: impl IntoIterator<Item = Vec<u8>>) -> Self {
        Self::new(frames.into_iter().map(|frame| (0, frame)).collect())
    }
}

impl RxQueue for Script {
    fn recv(&mut self, pool: &mut Pool, out: &mut Vec<Packet>, max: usize) -> usize {
        for n in 0..max {
            let Some((time_ns, frame)) = self.frames.as_slice().first() else { return n };
            let Some(mut packet) = Packet::copy_from(pool, frame) else { return n };
            packet.time_ns = *time_ns;
            self.stats.count(frame.len() as u64);
            self.frames.next();
            out.push(packet);
        }
        max
    }

    fn is_finished(&self) -> bool {
        self.frames.as_slice().is_empty()
    }

    fn peek_time_ns(&mut self) -> Option<u64> {
        self.frames.as_slice().first().map(|(time_ns, _)| *time_ns)
    }

    fn stats(&self) -> QueueStats {
        self.stats
    }
}

/// Frames that a [`Collect`] has taken, with their times.
pub type Frames = Arc<Mutex<Vec<(u64, Vec<u8>)>>>;

/// Copies every frame into a list that the test keeps, and frees it.
#[derive(Debug, Default)]
pub struct Collect {
    frames: Frames,
    stats: QueueStats,
}

impl Collect {
    /// An empty list.
    pub fn new() -> Self {
        Self::default()
    }

    /// The list, to be read while or after the queue is used.
    pub fn frames(&self) -> Frames {
        self.frames.clone()
    }
}

impl TxQueue for Collect {
    fn send(&mut self, pool: &mut Pool, packets: &mut Vec<Packet>) {
        let mut frames = self.frames.lock().unwrap_or_else(PoisonError::into_inner);
        for packet in packets.drain(..) {
            let bytes = packet.segments().collect::<Vec<_>>().concat();
            self.stats.count(bytes.len() as u64);
            frames.push((packet.time_ns, bytes));
            packet.free(pool);
        }
    }

    fn flush(&mut self, _pool: &mut Pool) {}

    fn stats(&self) -> QueueStats {
        self.stats
    }
}

/// Counts packets and frees them.
#[derive(Debug, Default)]
pub struct Sink {
    stats: QueueStats,
}

impl Sink {
    /// A sink that has seen nothing.
    pub fn new() -> Self {
        Self::default()
    }
}

impl TxQueue for Sink {
    fn send(&mut self, pool: &mut Pool, packets: &mut Vec<Packet>) {
        for packet in packets.drain(..) {
            self.stats.count(packet.frame_len() as u64);
            packet.free(pool);
        }
    }

    fn flush(&mut self, _pool: &mut Pool) {}

    fn stats(&self) -> QueueStats {
        self.stats
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use chunk::{HugePages, Region};

    #[test]
    fn a_pair_hands_over_in_order_and_keeps_what_does_not_fit() {
        let (_, depot) = Region::new(8, HugePages::Off).unwrap();
        let mut pool = Pool::new(depot.clone(), 2);
        let (mut tx, mut rx) = pair(3);
        let mut packets: Vec<_> =
            (0u8..5).map(|i| Packet::copy_from(&mut pool, &[i; 60]).unwrap()).collect();
        tx.send(&mut pool, &mut packets);
        assert_eq!((packets.len(), tx.stats().packets, tx.stats().bytes), (2, 3, 180));
        let mut out = Vec::new();
        assert_eq!(rx.recv(&mut pool, &mut out, 2), 2);
        tx.send(&mut pool, &mut packets);
        assert!(packets.is_empty() && !rx.is_finished());
        drop(tx);
        assert_eq!(rx.recv(&mut pool, &mut out, 9), 3);
        assert!(rx.is_finished());
        assert_eq!(out.iter().map(|p| p.data()[0]).collect::<Vec<_>>(), [0, 1, 2, 3, 4]);
        let mut sink = Sink::new();
        sink.send(&mut pool, &mut out);
        assert_eq!(sink.stats(), rx.stats());
        drop(pool);
        assert_eq!(depot.available(), 8);
    }

    #[test]
    fn sending_without_a_receiver_frees_and_counts() {
        let (_, depot) = Region::new(8, HugePages::Off).unwrap();
        let mut pool = Pool::new(depot.clone(), 2);
        let (mut tx, rx) = pair(3);
        drop(rx);
        let mut packets = vec![Packet::copy_from(&mut pool, &[0; 60]).unwrap()];
        tx.send(&mut pool, &mut packets);
        assert_eq!((packets.len(), tx.stats().dropped), (0, 1));
        drop(pool);
        assert_eq!(depot.available(), 8);
    }

    #[test]
    fn a_script_waits_for_cells_and_loses_nothing() {
        let (_, depot) = Region::new(2, HugePages::Off).unwrap();
        let mut pool = Pool::new(depot, 1);
        let mut script = Script::new((0..3u64).map(|t| (t, vec![t as u8; 3000])).collect());
        let mut collect = Collect::new();
        let mut out = Vec::new();
        while !script.is_finished() {
            assert_eq!(script.peek_time_ns(), Some(script.stats().packets));
            assert_eq!(script.recv(&mut pool, &mut out, 5), 1, "two cells hold one frame");
            collect.send(&mut pool, &mut out);
        }
        let frames = collect.frames();
        let frames = frames.lock().unwrap();
        assert_eq!(*frames, (0..3u64).map(|t| (t, vec![t as u8; 3000])).collect::<Vec<_>>());
    }
}
