//! Prepared packets that go round and round: the load of the memory I/O benches.
//!
//! A bench wants packets as fast as the loop under test can take them, each in a cell that is not in
//! the cache, and nothing of its own in the way. So N frames lie ready in N cells ("slots"); a slot
//! goes out, its packet travels through the loop, and [`Recycle`] hands it back instead of freeing
//! it: no copy, no pool. `Packet::mark` names the slot while it is out, counted from 1: packets that
//! the loop makes have mark 0.
//!
//! ```text
//!   slots  │ 0 │ 1 │ 2 │ … │ N-1 │ ──recv──→ loop under test ──send──→ Recycle ─┐
//!            ▲ in order, round and round                                        │
//!            └────────────────────────── ring, emptied at each recv ────────────┘
//! ```
//!
//! A router changes MAC addresses, TTL and checksum, and after some rounds every packet would have
//! expired: the first bytes of each frame are therefore written anew when it goes out. That is part
//! of the load's own cost and the same for the loop under test and the bare one. Bytes that the loop
//! put before a frame, or took away there, are no loss: the frame gets its own length again. A packet
//! that the loop drops is missing when its slot's turn comes; it is made again from the pool.

use chunk::{Packet, Pool};

use crate::{QueueStats, RxQueue, TxQueue};

/// How far ahead of the slot that goes out its successors are brought into the cache.
const PREFETCH_AHEAD: usize = 16;

/// Bytes at the front of a frame that are written anew each time: Ethernet and IPv6 header, or
/// Ethernet, IPv4 and TCP header.
const RESTORE_BYTES: usize = 54;

/// The same of frames that have as many: Ethernet, IPv6 and TCP header.
const RESTORE_BYTES_LONG: usize = 74;

/// Hands out the same packets again and again. See the module.
#[derive(Debug)]
pub struct Replay {
    /// A packet for each slot, or the empty packet while it is out.
    slots: Vec<Packet>,
    /// All frames, each from a multiple of 64.
    bytes: Vec<u8>,
    /// Offset and length in `bytes` of each slot's frame.
    frames: Vec<(usize, usize)>,
    next: usize,
    restore: bool,
    rings: Vec<rtrb::Consumer<Packet>>,
    time_ns: u64,
    stats: QueueStats,
}

impl Replay {
    /// A replay of `frames`, in this order, each in cells of its own from `pool`.
    ///
    /// `restore` says whether the first 54 bytes of a frame, or 74 where there are as many, are written anew each time it
    /// goes out.
    ///
    /// `None` if the pool has too few cells; those that were taken are given back.
    pub fn new<'a>(
        pool: &mut Pool,
        frames: impl IntoIterator<Item = &'a [u8]>,
        restore: bool,
    ) -> Option<Self> {
        let mut replay = Self {
            slots: Vec::new(),
            bytes: Vec::new(),
            frames: Vec::new(),
            next: 0,
            restore,
            rings: Vec::new(),
            time_ns: 0,
            stats: QueueStats::default(),
        };
        for frame in frames {
            let Some(packet) = Packet::copy_from(pool, frame) else {
                replay.free(pool);
                return None;
            };
            replay.slots.push(packet);
            replay.frames.push((replay.bytes.len(), frame.len()));
            replay.bytes.extend_from_slice(frame);
            replay.bytes.resize(replay.bytes.len().next_multiple_of(64), 0);
        }
        Some(replay)
    }

    /// Makes a queue that gives packets back; one for each transmit queue of the loop.
    ///
    /// `capacity` is in packets; what does not fit is freed (and made again), so it should hold
    /// what is sent between two calls of `recv`.
    pub fn recycle(&mut self, capacity: usize) -> Recycle {
        let (producer, consumer) = rtrb::RingBuffer::new(capacity);
        self.rings.push(consumer);
        Recycle { ring: producer, stats: QueueStats::default() }
    }

    /// Sets the time that packets carry from now on.
    pub fn set_time_ns(&mut self, time_ns: u64) {
        self.time_ns = time_ns;
    }

    /// Gives all cells back that are not out.
    pub fn free(mut self, pool: &mut Pool) {
        self.release(pool);
    }

    /// Empties the rings into the slots.
    fn collect(&mut self, pool: &mut Pool) {
        for ring in &mut self.rings {
            let Ok(packets) = ring.read_chunk(ring.slots()) else { continue };
            for packet in packets {
                // A packet that the loop made itself, or a late one whose slot was filled again.
                let free = match self.slots.get_mut((packet.mark as usize).wrapping_sub(1)) {
                    Some(slot) if slot.is_empty() => {
                        *slot = packet;
                        continue;
                    }
                    _ => packet,
                };
                free.free(pool);
            }
        }
    }
}

/// Gives a packet whose front has grown or shrunk a length again; `false` if it cannot be that one packet.
#[inline]
fn resize_front(packet: &mut Packet, len: usize) -> bool {
    let is_one = packet.cells() == 1;
    is_one
        && match len.checked_sub(packet.frame_len()) {
            Some(more) => packet.push_front(more),
            None => packet.pull_front(packet.frame_len() - len),
        }
}

/// Writes the first `N` bytes; `false`, and nothing written, where there are fewer. A copy of constant length is a few vector
/// moves; a slice's is a call.
#[inline]
fn restore<const N: usize>(data: &mut [u8], frame: &[u8]) -> bool {
    match (data.first_chunk_mut::<N>(), frame.first_chunk::<N>()) {
        (Some(to), Some(from)) => {
            *to = *from;
            true
        }
        _ => false,
    }
}

impl RxQueue for Replay {
    fn recv(&mut self, pool: &mut Pool, out: &mut Vec<Packet>, max: usize) -> usize {
        self.collect(pool);
        let max = max.min(self.slots.len());
        for n in 0..max {
            let slot = self.next;
            let (start, len) = self.frames[slot];
            let frame = &self.bytes[start..start + len];
            let mut packet = std::mem::replace(&mut self.slots[slot], Packet::empty());
            let has_len =
                packet.frame_len() == len || self.restore && resize_front(&mut packet, len);
            if packet.is_empty() || !has_len {
                packet.free(pool);
                match Packet::copy_from(pool, frame) {
                    Some(copy) => packet = copy,
                    None => return n,
                }
            } else if self.restore {
                let data = packet.data_mut();
                let is_restored = restore::<RESTORE_BYTES_LONG>(data, frame)
                    || restore::<RESTORE_BYTES>(data, frame);
                if !is_restored {
                    let n = data.len().min(RESTORE_BYTES);
                    data[..n].copy_from_slice(&frame[..n]);
                }
            }
            packet.mark = slot as u32 + 1;
            packet.time_ns = self.time_ns;
            self.stats.count(len as u64);
            out.push(packet);
            self.next = if slot + 1 == self.slots.len() { 0 } else { slot + 1 };
            if let Some(ahead) = self.slots.get(self.next + PREFETCH_AHEAD) {
                ahead.prefetch();
            }
        }
        max
    }

    fn release(&mut self, pool: &mut Pool) {
        self.collect(pool);
        self.slots.drain(..).for_each(|packet| packet.free(pool));
    }

    fn stats(&self) -> QueueStats {
        self.stats
    }
}

/// Gives packets back to their [`Replay`].
#[derive(Debug)]
pub struct Recycle {
    ring: rtrb::Producer<Packet>,
    stats: QueueStats,
}

impl TxQueue for Recycle {
    fn send(&mut self, pool: &mut Pool, packets: &mut Vec<Packet>) {
        let n = self.ring.slots().min(packets.len());
        self.stats.packets += packets.len() as u64;
        self.stats.bytes += packets.iter().map(|p| p.frame_len() as u64).sum::<u64>();
        if let Ok(slots) = self.ring.write_chunk_uninit(n) {
            slots.fill_from_iter(packets.drain(..n));
        }
        packets.drain(..).for_each(|packet| packet.free(pool));
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

    fn frames() -> Vec<Vec<u8>> {
        (0..100u8).map(|i| vec![i; if i == 7 { 3000 } else { 20 + usize::from(i) }]).collect()
    }

    #[test]
    fn every_round_hands_out_the_same_frames_whatever_the_loop_does() {
        let (_, depot) = Region::new(110, HugePages::Off).unwrap();
        let mut pool = Pool::new(depot.clone(), 4);
        let frames = frames();
        let mut replay =
            Replay::new(&mut pool, frames.iter().map(Vec::as_slice), true).expect("enough cells");
        let mut tx = [replay.recycle(16), replay.recycle(16)];
        let mut out = Vec::new();
        for n in 0..1000 {
            assert_eq!(replay.recv(&mut pool, &mut out, 1), 1);
            let mut packet = out.pop().unwrap();
            assert_eq!(packet.segments().collect::<Vec<_>>().concat(), frames[n % 100]);
            let data = packet.data_mut();
            let rewritten = data.len().min(RESTORE_BYTES);
            data[..rewritten].fill(0xee);
            // Another header, as between families.
            match n % 5 {
                1 if packet.cells() == 1 => assert!(packet.pull_front(20)),
                2 if packet.cells() == 1 => {
                    assert!(packet.push_front(20));
                    packet.data_mut()[..20].fill(0xdd);
                }
                _ => {}
            }
            match n % 7 {
                0 => packet.free(&mut pool), // dropped
                1 => {
                    packet.mark = 0; // made by the loop
                    tx[0].send(&mut pool, &mut vec![packet]);
                }
                i => tx[i % 2].send(&mut pool, &mut vec![packet]),
            }
        }
        assert_eq!(replay.stats().packets, 1000);
        replay.free(&mut pool);
        drop(pool);
        assert_eq!(depot.available(), 110);
    }

    #[test]
    fn too_few_cells_are_refused_and_given_back() {
        let (_, depot) = Region::new(50, HugePages::Off).unwrap();
        let mut pool = Pool::new(depot.clone(), 4);
        assert!(Replay::new(&mut pool, frames().iter().map(Vec::as_slice), true).is_none());
        drop(pool);
        assert_eq!(depot.available(), 50);
    }
}
