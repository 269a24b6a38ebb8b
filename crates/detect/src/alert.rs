//! What comes out of a detector.

use signatures::Action;

use crate::Sender;

/// A match that is to be reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Alert {
    /// The rule, by its number in the [`Ruleset`](crate::Ruleset).
    pub rule: u32,
    /// What is done: the rule's action, or that of a rate filter.
    pub action: Action,
    /// What matched.
    pub found: Found,
    /// Who sent the packet at which it was found.
    pub sender: Sender,
    /// When, in nanoseconds since 1970: the time of that packet.
    pub time_ns: u64,
}

/// What of a packet or flow matched.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Found {
    /// Headers or payload of a packet.
    Packet,
    /// Addresses alone: of the first packet of a direction.
    Addresses,
    /// What is wrong with a packet that cannot be decoded, or with fragments.
    Event,
    /// Bytes of a stream.
    Stream,
    /// A transaction, by its number within the flow.
    Transaction(u64),
}

/// What is to be done with a packet and its flow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Verdict {
    /// The packet is dropped.
    pub drops: bool,
    /// All that follows of the flow is dropped.
    pub drops_flow: bool,
    /// The flow is no longer inspected.
    pub passes_flow: bool,
    /// An error goes to the source.
    pub rejects_source: bool,
    /// An error goes to the destination.
    pub rejects_destination: bool,
}
