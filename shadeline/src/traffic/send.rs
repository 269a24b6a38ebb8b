//! Sends what a generator makes, at its pace.

use std::time::{Duration, Instant};

use chunk::{Packet, Pool};
use io::generator::Generator;
use io::link::Link;
use io::{RxQueue, TxQueue};
use packet::MacAddr;

use crate::failure::Failure;

/// Below this rate the sender sleeps between packets; above, a sleep would end too late.
const SLEEP_BELOW_PPS: f64 = 5_000.0;

/// The longest sleep, so that an end is noticed.
const SLEEP_MAX: Duration = Duration::from_millis(10);

/// What was sent.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Sent {
    pub(crate) packets: u64,
    /// In memory.
    pub(crate) bytes: u64,
    /// Taken from the generator and lost before the wire.
    pub(crate) dropped: u64,
    pub(crate) seconds: f64,
}

/// Sends until the generator has no more or `stop` says so (asked with the packets so far).
/// `burst` is the most packets of one call of the queue.
pub(crate) fn send(
    generator: &mut Generator,
    tx: &mut dyn TxQueue,
    pool: &mut Pool,
    pps: Option<f64>,
    burst: usize,
    mut stop: impl FnMut(u64) -> bool,
) -> Result<Sent, Failure> {
    let before = tx.stats();
    let pause = pps.filter(|pps| *pps < SLEEP_BELOW_PPS);
    let pause = pause.map(|pps| Duration::from_secs_f64(0.5 / pps).min(SLEEP_MAX));
    let mut packets: Vec<Packet> = Vec::with_capacity(burst);
    let begin = Instant::now();
    let failed = loop {
        if packets.is_empty() {
            if generator.is_finished() && tx.is_drained() {
                break None;
            }
            generator.recv(pool, &mut packets, burst);
        }
        if packets.is_empty() {
            // Without packets since the last flush, this one writes out what is buffered.
            tx.flush(pool);
            pause.map_or_else(std::thread::yield_now, std::thread::sleep);
        } else {
            tx.send(pool, &mut packets);
            tx.flush(pool);
            if !packets.is_empty() {
                // The queue is full; the thread that empties it may need this processor.
                std::thread::yield_now();
            }
        }
        if let Some(error) = tx.take_error() {
            break Some(error);
        }
        if stop(tx.stats().packets - before.packets) {
            break None;
        }
    };
    let seconds = begin.elapsed().as_secs_f64();
    let after = tx.stats();
    // Made, but not sent: as if never made.
    packets.drain(..).for_each(|packet| packet.free(pool));
    match failed {
        Some(error) => Err(Failure::other(error)),
        None => Ok(Sent {
            packets: after.packets - before.packets,
            bytes: after.bytes - before.bytes,
            dropped: after.dropped - before.dropped,
            seconds,
        }),
    }
}

/// The source MAC of frames that leave by `interface`.
pub(crate) fn source_mac(named: Option<MacAddr>, interface: &str) -> Result<MacAddr, Failure> {
    match named {
        Some(mac) => Ok(mac),
        None => {
            Link::open(interface).and_then(|link| link.mac()).map(MacAddr).map_err(Failure::other)
        }
    }
}
