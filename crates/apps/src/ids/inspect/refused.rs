//! Packets that rules of a firewall behind the inspector dropped.

use control::config::IdsEvent;

use super::Inspector;
use super::hashes::address_hash;
use crate::firewall::refused::Refused;
use crate::ids::outputs::To;

impl Inspector {
    /// Whether events are written of such packets.
    pub(super) fn asks_for_refused(&self) -> bool {
        self.parts.outputs.has(IdsEvent::Drop)
    }

    /// Writes the event of one.
    pub(super) fn refused(&mut self, packet: &Refused, flow: Option<u64>) {
        if !self.asks_for_refused() {
            return;
        }
        let outputs = self.parts.outputs.clone();
        let ends = packet.write(&outputs.eve, &outputs.ports, flow, &mut self.lines.line);
        let Some((src, dst)) = ends else { return };
        // Packets between the same ends come to the same worker, in their order.
        self.strays = self.strays.wrapping_add(1);
        self.lines.put(To::Eve, (packet.time_ns, 0, address_hash(src, dst), self.strays));
    }
}
