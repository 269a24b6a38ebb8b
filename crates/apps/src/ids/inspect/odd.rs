//! Packets that cannot be decoded, and fragments that failed: rules see only what is wrong with them, and each has an event.

use control::config::IdsEvent;
use detect::Event;
use flowlog::eve::{Anomaly, Context, Origin};

use super::Inspector;
use super::hashes::address_hash;
use crate::ids::counters::add;
use crate::ids::outputs::To;

impl Inspector {
    /// What is wrong with one, for rules and as an event; it came in at the port of this number, where that is known.
    pub(super) fn odd(&mut self, anomaly: &Anomaly, port: Option<u16>, at_ns: u64) {
        self.end_step();
        add(&self.parts.counters.undecoded, 1);
        let outputs = self.parts.outputs.clone();
        let in_iface = port.and_then(|port| outputs.ports.get(usize::from(port)));
        let in_iface = in_iface.map_or("", String::as_str);
        let &Anomaly { kind, flow_id, protocol, src, dst, vlans, .. } = anomaly;
        let name = kind.name(src.0.is_ipv6(), protocol);
        if let Some(name) = name.strip_prefix("decoder.") {
            let time_ns = at_ns;
            let event = Event { name, source: src, destination: dst, protocol, time_ns };
            // The row of its packet is not known: it is not dropped.
            let _ = self.detector.event(&event, &mut self.alerts);
            let icmp = None;
            let origin = Origin { flow_id, src, dst, protocol, icmp, vlans, in_iface, at_ns };
            self.alone(&origin, None);
        }
        if !outputs.has(IdsEvent::Anomaly) {
            return;
        }
        let context = Context { in_iface, at_ns, is_alerted: false };
        outputs.eve.anomaly(anomaly, context, &mut self.lines.line);
        // Packets between the same ends come to the same worker, in their order.
        self.strays = self.strays.wrapping_add(1);
        let ends = address_hash(anomaly.src.0, anomaly.dst.0);
        self.lines.put(To::Eve, (at_ns, 0, ends, self.strays));
    }
}
