//! The limit of errors over captures that several workers go through.
//!
//! A bucket for each worker would give another answer for each number of workers. So the stages make
//! every error, and the engine's merger, which has all packets in order, asks the gate whether it
//! leaves. The answer is that of one worker: the same attempts at the same times in the same order.

use std::sync::Arc;

use chunk::Packet;
use engine::{Gate, MARK_DEFERRED};

use super::counters::RouterCounters;
use super::errors::Limit;

/// The packet leaves with tags of the interface in the mark's low half.
const TAGGED: u32 = 1 << 16;

/// The mark of an error; `tagged` is the interface with whose tags it leaves.
pub(crate) fn mark(tagged: Option<u16>) -> u32 {
    MARK_DEFERRED | tagged.map_or(0, |interface| TAGGED | u32::from(interface))
}

/// What stands for an error that is due and cannot be made: it spends its token.
pub(crate) fn nothing(time_ns: u64) -> Packet {
    let mut packet = Packet::empty();
    packet.time_ns = time_ns;
    packet.mark = MARK_DEFERRED;
    packet
}

/// A token bucket for the errors of all workers.
pub struct ErrorGate {
    limit: Limit,
    rate: u32,
    burst: u32,
    counters: Arc<RouterCounters>,
}

impl ErrorGate {
    /// So many errors a second, `burst` of them at once; it counts what it admits and withholds.
    /// Nobody else may write to `counters`.
    pub fn new(rate: u32, burst: u32, counters: Arc<RouterCounters>) -> Self {
        Self { limit: Limit::new(), rate, burst, counters }
    }
}

impl Gate for ErrorGate {
    fn admits(&mut self, packet: &Packet) -> bool {
        let is_granted = self.limit.take_of(self.rate, self.burst, packet.time_ns);
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
        (frame.time_ns, frame.mark) = (start, mark(Some(3)));
        assert!(gate.admits(&frame));
        assert!(gate.admits(&nothing(start)), "nothing takes a token, too");
        assert!(!gate.admits(&frame));
        assert!(!gate.admits(&nothing(start + 99_999_999)));
        (frame.time_ns, frame.mark) = (start + 100_000_000, mark(None));
        assert!(gate.admits(&frame));
        assert_eq!(counters.icmp_errors_sent.get(), 2);
        assert_eq!(counters.icmp_errors_withheld.get(), 2);
        let tagged = counters.tagged(3).unwrap();
        assert_eq!((tagged.tx_packets.get(), tagged.tx_bytes.get()), (1, 70));
        assert_eq!(counters.tagged(0).unwrap().tx_packets.get(), 0);
        frame.free(&mut pool);
    }
}
