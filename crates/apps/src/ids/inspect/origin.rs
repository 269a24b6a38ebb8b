//! What the lines of a flow begin with, and their order.

use detect::Sender;
use flowlog::eve::Origin;

use super::OfFlowKept;
use crate::flow::order::Key;
use crate::ids::outputs::Outputs;

impl OfFlowKept {
    pub(super) fn interface<'a>(&self, outputs: &'a Outputs) -> &'a str {
        outputs.ports.get(usize::from(self.port)).map_or("", String::as_str)
    }

    /// The next place among the lines of the flow.
    pub(super) fn key(&mut self, time_ns: u64) -> Key {
        self.lines += 1;
        (time_ns, self.identity.start_ns, self.identity.id, self.lines)
    }

    pub(super) fn origin<'a>(
        &self,
        outputs: &'a Outputs,
        sender: Sender,
        at_ns: u64,
    ) -> Origin<'a> {
        self.origin_of(outputs, sender, at_ns, self.is_reversed())
    }

    pub(super) fn origin_of<'a>(
        &self,
        outputs: &'a Outputs,
        sender: Sender,
        at_ns: u64,
        is_reversed: bool,
    ) -> Origin<'a> {
        let key = &self.identity.key;
        let client = self.identity.client;
        let side = match (sender == Sender::Client) != is_reversed {
            true => client,
            false => client.other(),
        };
        Origin {
            flow_id: Some(self.identity.id),
            src: (key.address(side), key.port(side)),
            dst: (key.address(side.other()), key.port(side.other())),
            protocol: key.protocol,
            icmp: self.icmp,
            vlans: self.vlans,
            in_iface: self.interface(outputs),
            at_ns,
        }
    }
}
