//! What the tracker makes of a packet.

use crate::record::FlowRecord;
use crate::table::{Handle, Slot};
use crate::tcp::Conntrack;

/// The state of a packet, by the names and the rules of Linux's `ct state`.
///
/// The numbers are chosen for rules: those of common sets differ in few bits from all others, so that a value under a mask
/// says which states are meant.
///
/// ```text
///  000 untracked   001 invalid   100 new   110 established   111 related
///  11x established, related      1xx these and new           0xx neither
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum PacketState {
    /// Not IP, or neighbour discovery and the like (RFC 4861, RFC 3810), which have no flow.
    #[default]
    Untracked = 0b000,
    /// Of no flow: its headers are wrong, or no host would take it in the state of its flow.
    Invalid = 0b001,
    /// It opens a flow, or comes from the end that opened one which has no answer yet.
    New = 0b100,
    /// Of a flow that both ends have sent packets of, or the first answer.
    Established = 0b110,
    /// An ICMP error about a packet of a flow, or the first packet of a flow that another one announced.
    Related = 0b111,
}

impl PacketState {
    /// All, in the order of their numbers.
    pub const ALL: [PacketState; 5] =
        [Self::Untracked, Self::Invalid, Self::New, Self::Established, Self::Related];

    /// The state of a number; the numbers of none are untracked.
    #[inline]
    pub const fn of_bits(bits: u8) -> Self {
        match bits {
            0b001 => Self::Invalid,
            0b100 => Self::New,
            0b110 => Self::Established,
            0b111 => Self::Related,
            _ => Self::Untracked,
        }
    }

    /// Its name, as nftables writes it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Untracked => "untracked",
            Self::Invalid => "invalid",
            Self::New => "new",
            Self::Established => "established",
            Self::Related => "related",
        }
    }
}

/// What the tracker makes of a packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tracked {
    /// Its state.
    pub state: PacketState,
    /// Its sender is not the end that opened the flow.
    pub is_reply: bool,
    /// The place of its flow, of an ICMP error that of the flow which it is about. Valid until the next batch or sweep.
    pub slot: Option<Slot>,
    /// It opens this flow, or announces another one for it: that counts once [`Tracker::decide`](super::Tracker::decide) says
    /// that it got through.
    pub opens: Option<Handle>,
    /// Number of its flow. 0: it has none, is an ICMP error, or opens a flow that is not decided yet.
    pub number: u64,
    /// The table has no place for its flow.
    pub is_refused: bool,
}

impl Tracked {
    /// A packet of no flow.
    pub const INVALID: Tracked = Tracked::of(PacketState::Invalid);

    /// A packet of a flow for which there is no place.
    pub const REFUSED: Tracked = Tracked { is_refused: true, ..Tracked::INVALID };

    /// A packet in a state that needs no flow.
    pub const fn of(state: PacketState) -> Self {
        Tracked { state, is_reply: false, slot: None, opens: None, number: 0, is_refused: false }
    }
}

/// A flow, with what a firewall knows of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TrackedFlow {
    /// What is reported of it.
    pub record: FlowRecord,
    /// State of TCP, by the names of Linux's conntrack; `None` for other protocols.
    pub conntrack: Option<Conntrack>,
    /// The first packet came from the client of the record.
    pub is_original_client: bool,
    /// Idle time-out of its state, in nanoseconds.
    pub timeout_ns: u64,
    /// ICMP errors about it.
    pub errors: u32,
    /// Number of the flow that announced it.
    pub announced_by: Option<u64>,
    /// Its first packet got through.
    pub is_confirmed: bool,
}
