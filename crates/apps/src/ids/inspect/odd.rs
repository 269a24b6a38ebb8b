//! Packets that cannot be decoded, and fragments that failed: no rule sees them, so each has an event.

use control::config::IdsEvent;
use flowlog::eve::{Anomaly, Context};

use super::Inspector;
use super::hashes::address_hash;
use crate::ids::counters::add;
use crate::ids::outputs::To;

impl Inspector {
    /// Writes the event of one, which came in at the port of this number, where that is known.
    pub(super) fn odd(&mut self, anomaly: &Anomaly, port: Option<u16>, at_ns: u64) {
        self.end_step();
        add(&self.parts.counters.undecoded, 1);
        let outputs = self.parts.outputs.clone();
        if !outputs.has(IdsEvent::Anomaly) {
            return;
        }
        let in_iface = port.and_then(|port| outputs.ports.get(usize::from(port)));
        let in_iface = in_iface.map_or("", String::as_str);
        let context = Context { in_iface, at_ns, is_alerted: false };
        outputs.eve.anomaly(anomaly, context, &mut self.lines.line);
        // Packets between the same ends come to the same worker, in their order.
        self.strays = self.strays.wrapping_add(1);
        let ends = address_hash(anomaly.src.0, anomaly.dst.0);
        self.lines.put(To::Eve, (at_ns, 0, ends, self.strays));
    }
}
