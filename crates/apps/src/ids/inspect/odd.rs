//! Packets that cannot be decoded, and fragments that failed: rules see only what is wrong with them, and each has an event.

use control::config::IdsEvent;
use detect::Event;
use flowlog::eve::{Anomaly, Context, Origin};
use stream::tracker::{Fragments, Input, Reject, Unseen};

use super::Inspector;
use super::hashes::address_hash;
use super::lone::interface;
use crate::flow::anomalies;
use crate::ids::counters::add;
use crate::ids::outputs::To;

/// Where something is odd.
#[derive(Clone, Copy)]
enum At {
    /// In a packet that came in at a port, in a row unless a stage before has dropped it, of so many bytes.
    Packet { port: u16, row: Option<usize>, len: u64, frame_len: u64 },
    /// In fragments: inline, they are held back.
    Fragments,
}

impl Inspector {
    /// A packet that cannot be decoded.
    pub(super) fn undecoded(&mut self, row: Option<usize>, input: &Input<'_>, why: Reject) {
        if let Some(anomaly) = anomalies::of_packet(input, why) {
            let len = input.frame_len.saturating_sub(input.decoded.l3_offset.into()).into();
            let frame_len = input.frame_len.into();
            let at = At::Packet { port: input.port, row, len, frame_len };
            self.odd(&anomaly, at, input.time_ns);
        }
    }

    /// A tunnel in a packet is not looked into.
    pub(super) fn not_looked_into(&mut self, row: usize, input: &Input<'_>, why: Unseen) {
        let len = input.frame_len.saturating_sub(input.decoded.l3_offset.into()).into();
        let (row, frame_len) = (Some(row), input.frame_len.into());
        let at = At::Packet { port: input.port, row, len, frame_len };
        self.odd(&anomalies::of_tunnel(input, why), at, input.time_ns);
    }

    /// What became of fragments; whether a datagram that is whole is dropped.
    pub(super) fn fragments(&mut self, fragments: &Fragments) -> bool {
        let anomaly = anomalies::of_fragments(fragments);
        anomaly.is_some_and(|own| self.odd(&own, At::Fragments, fragments.time_ns))
    }

    /// What is wrong, for rules and as an event; whether a rule drops it.
    fn odd(&mut self, anomaly: &Anomaly, at: At, at_ns: u64) -> bool {
        self.end_step();
        add(&self.parts.counters.undecoded, 1);
        let outputs = self.parts.outputs.clone();
        let in_iface = match at {
            At::Packet { port, .. } => interface(&outputs, Some(port)),
            At::Fragments => "",
        };
        let &Anomaly { kind, flow_id, protocol, src, dst, vlans, .. } = anomaly;
        let name = kind.name(src.0.is_ipv6(), protocol);
        let mut is_dropped = false;
        if let Some(name) = name.strip_prefix("decoder.") {
            let time_ns = at_ns;
            let event = Event { name, source: src, destination: dst, protocol, time_ns };
            let verdict = self.detector.event(&event, &mut self.alerts);
            // Nobody answers what cannot be decoded.
            let len = match at {
                At::Packet { row, len, frame_len, .. } => {
                    let own = row.and_then(|row| self.decide(row, verdict, false));
                    is_dropped = own.is_some();
                    Some((len, frame_len))
                }
                At::Fragments => {
                    is_dropped = self.is_inline() && verdict.drops;
                    None
                }
            };
            let icmp = None;
            let origin = Origin { flow_id, src, dst, protocol, icmp, vlans, in_iface, at_ns };
            self.alone(&origin, is_dropped, len);
        }
        if !outputs.has(IdsEvent::Anomaly) {
            return is_dropped;
        }
        let context = Context { in_iface, at_ns, ..<_>::default() };
        outputs.eve.anomaly(anomaly, context, &mut self.lines.line);
        // Packets between the same ends come to the same worker, in their order.
        self.strays = self.strays.wrapping_add(1);
        let ends = address_hash(anomaly.src.0, anomaly.dst.0);
        self.lines.put(To::Eve, (at_ns, 0, ends, self.strays));
        is_dropped
    }
}
