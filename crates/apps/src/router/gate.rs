//! The limit of errors over captures that several workers go through.
//!
//! A bucket for each worker would give another answer for each number of workers. So the stages make
//! every error, and the engine's merger, which has all packets in order, asks the gate whether it
//! leaves. The answer is that of one worker: the same attempts at the same times in the same order.

use std::sync::Arc;

use chunk::Packet;
use engine::{Gate, MARK_DEFERRED};

use super::counters::RouterCounters;
use super::errors::Limits;

/// The packet leaves with tags of the interface in the mark's low half.
const TAGGED: u32 = 1 << 16;

/// Above that: the port by which its cause came in.
const PORT_SHIFT: u32 = 17;

/// The highest number of a port in a mark; it stands for all above.
pub(super) const PORT_MAX: u16 = (1 << 13) - 1;

/// The mark of an error about a packet that came in by `port`; `tagged` is the interface with whose tags it leaves.
pub(crate) fn mark(port: u16, tagged: Option<u16>) -> u32 {
    let tags = tagged.map_or(0, |interface| TAGGED | u32::from(interface));
    MARK_DEFERRED | u32::from(port.min(PORT_MAX)) << PORT_SHIFT | tags
}

/// What stands for an error that is due and cannot be made: it spends its token.
pub(crate) fn nothing(time_ns: u64, port: u16) -> Packet {
    let mut packet = Packet::empty();
    packet.time_ns = time_ns;
    packet.mark = mark(port, None);
    packet
}

/// A token bucket for each port, for the errors of all workers.
pub struct ErrorGate {
    limits: Limits,
    rate: u32,
    burst: u32,
    counters: Arc<RouterCounters>,
}

impl ErrorGate {
    /// So many errors a second about packets of one port, `burst` of them at once; it counts what it admits and withholds.
    /// Nobody else may write to `counters`.
    pub fn new(rate: u32, burst: u32, counters: Arc<RouterCounters>) -> Self {
        Self { limits: Limits::new(), rate, burst, counters }
    }
}

impl Gate for ErrorGate {
    fn admits(&mut self, packet: &Packet) -> bool {
        let port = (packet.mark >> PORT_SHIFT) as u16 & PORT_MAX;
        let is_granted = self.limits.take(port, self.rate, self.burst, packet.time_ns);
        if !is_granted {
            self.counters.icmp_errors_withheld.add(1);
        } else if !packet.is_empty() {
            self.counters.icmp_errors_sent.add(1);
            if packet.mark & TAGGED != 0 {
                self.counters.count_tagged_tx(packet.mark as u16, packet.frame_len());
            }
        }
        is_granted
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use chunk::{HugePages, Pool, Region};

    #[test]
    fn it_counts_what_leaves_and_what_does_not() {
        let (_, depot) = Region::new(64, HugePages::Off).unwrap();
        let mut pool = Pool::new(depot, 8);
        let counters = Arc::new(RouterCounters::new(4));
        let mut gate = ErrorGate::new(10, 2, counters.clone());
        let start = 1_700_000_000_000_000_000;
        let mut frame = Packet::copy_from(&mut pool, &[0; 70]).unwrap();
        (frame.time_ns, frame.mark) = (start, mark(9, Some(3)));
        assert!(gate.admits(&frame));
        assert!(gate.admits(&nothing(start, 9)), "nothing takes a token, too");
        assert!(!gate.admits(&frame));
        assert!(!gate.admits(&nothing(start + 99_999_999, 9)));
        for port in [0, PORT_MAX - 1, chunk::PORT_NONE] {
            assert!(gate.admits(&nothing(start, port)), "{port} has a bucket of its own");
        }
        (frame.time_ns, frame.mark) = (start + 100_000_000, mark(9, None));
        assert!(gate.admits(&frame));
        assert_eq!(counters.icmp_errors_sent.get(), 2);
        assert_eq!(counters.icmp_errors_withheld.get(), 2);
        let tagged = counters.tagged(3).unwrap();
        assert_eq!((tagged.tx_packets.get(), tagged.tx_bytes.get()), (1, 70));
        assert_eq!(counters.tagged(0).unwrap().tx_packets.get(), 0);
        frame.free(&mut pool);
    }
}
