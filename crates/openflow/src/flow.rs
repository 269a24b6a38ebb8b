//! Flows: changes to tables, what leaves them, statistics.

use std::time::Duration;

use crate::action::{Action, Instruction};
use crate::bits::bits;
use crate::matches::Match;
use crate::port::PortNo;

/// In a command or a filter: all tables (`OFPTT_ALL`).
pub const ALL_TABLES: u8 = 0xff;
/// In a filter: any group.
pub const ANY_GROUP: u32 = 0xffff_ffff;

/// What FLOW_MOD does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FlowCommand {
    /// Adds a flow; one with the same match and priority is replaced, its counters too.
    Add,
    /// Changes instructions of all flows within the match (1.0: adds the flow where there is none).
    Modify,
    /// Changes instructions of the flow with this match and priority (1.0: adds the flow where there is none).
    ModifyStrict,
    /// Removes all flows within the match.
    Delete,
    /// Removes the flow with this match and priority.
    DeleteStrict,
}

bits! {
    /// Flags of a flow.
    FlowFlags: u16 {
        /// FLOW_REMOVED is sent when the flow leaves.
        SEND_FLOW_REM = 1 => "send_flow_rem",
        /// A flow of the same priority that overlaps this one is an error.
        CHECK_OVERLAP = 1 << 1 => "check_overlap",
        /// 1.3: counters start at zero again.
        RESET_COUNTS = 1 << 2 => "reset_counts",
        /// 1.3: packets are not counted.
        NO_PKT_COUNTS = 1 << 3 => "no_packet_counts",
        /// 1.3: bytes are not counted.
        NO_BYT_COUNTS = 1 << 4 => "no_byte_counts",
        /// 1.0: for the time without a controller (on its wire 1 << 2).
        EMERG = 1 << 15 => "emerg",
    }
}

/// FLOW_MOD: a change to the flows of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlowMod {
    /// In add the controller's name for the flow, in modify and delete that of the flows that are meant.
    pub cookie: u64,
    /// In modify and delete: only flows whose cookie under this mask is `cookie`; 0: all. Of 1.0 only with Nicira's extension.
    pub cookie_mask: u64,
    /// Of 1.0, in modify: the cookie that the flows get. `None`: they keep theirs.
    pub new_cookie: Option<u64>,
    /// The table; [`ALL_TABLES`] in delete. Of 1.0 without Nicira's `FLOW_MOD_TABLE_ID`: table 0 in add, otherwise all. With it,
    /// [`ALL_TABLES`] may be in any command; in add it is table 0.
    pub table: u8,
    /// What to do.
    pub command: FlowCommand,
    /// The flow leaves after this many seconds without a packet; 0: never.
    pub idle_timeout: u16,
    /// The flow leaves after this many seconds; 0: never.
    pub hard_timeout: u16,
    /// Of flows that match, the highest priority decides. PacketShader §6.2.3: in 1.0, exact before all others.
    pub priority: u16,
    /// The buffered packet that goes through the new flow.
    pub buffer_id: Option<u32>,
    /// In delete: only flows that send to this port; [`PortNo::ANY`]: all.
    pub out_port: PortNo,
    /// In delete: only flows that use this group; [`ANY_GROUP`]: all.
    pub out_group: u32,
    /// Flags.
    pub flags: FlowFlags,
    /// Which packets.
    pub matches: Match,
    /// What happens to them; in delete empty.
    pub instructions: Vec<Instruction>,
}

impl FlowMod {
    /// A flow-mod of table 0 with the default priority (0x8000) and nothing else set.
    pub fn new(command: FlowCommand) -> Self {
        Self {
            cookie: 0,
            cookie_mask: 0,
            new_cookie: None,
            table: 0,
            command,
            idle_timeout: 0,
            hard_timeout: 0,
            priority: 0x8000,
            buffer_id: None,
            out_port: PortNo::ANY,
            out_group: ANY_GROUP,
            flags: FlowFlags::empty(),
            matches: Match::new(),
            instructions: Vec::new(),
        }
    }
}

/// Which flows FLOW and AGGREGATE statistics are about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlowFilter {
    /// The table, or [`ALL_TABLES`].
    pub table: u8,
    /// Only flows that send to this port; [`PortNo::ANY`]: all.
    pub out_port: PortNo,
    /// Only flows that use this group; [`ANY_GROUP`]: all (1.3).
    pub out_group: u32,
    /// Only flows whose cookie under `cookie_mask` is this (1.3, and Nicira's extension of 1.0).
    pub cookie: u64,
    /// The bits of the cookie that count; 0: all flows.
    pub cookie_mask: u64,
    /// Only flows within this match.
    pub matches: Match,
}

impl FlowFilter {
    /// Every flow of every table.
    pub fn all() -> Self {
        Self {
            table: ALL_TABLES,
            out_port: PortNo::ANY,
            out_group: ANY_GROUP,
            cookie: 0,
            cookie_mask: 0,
            matches: Match::new(),
        }
    }
}

/// FLOW statistics of one flow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlowStats {
    /// Its table.
    pub table: u8,
    /// For how long it has been there.
    pub duration: Duration,
    /// Its priority.
    pub priority: u16,
    /// Seconds without a packet until it leaves; 0: never.
    pub idle_timeout: u16,
    /// Seconds until it leaves; 0: never.
    pub hard_timeout: u16,
    /// Its flags (1.3).
    pub flags: FlowFlags,
    /// Its cookie.
    pub cookie: u64,
    /// Packets.
    pub packets: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Which packets.
    pub matches: Match,
    /// What happens to them.
    pub instructions: Vec<Instruction>,
}

/// AGGREGATE statistics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AggregateStats {
    /// Packets of all flows.
    pub packets: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Flows.
    pub flows: u32,
}

/// Why a flow left.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RemovedReason {
    /// No packet for the idle timeout.
    IdleTimeout,
    /// The hard timeout.
    HardTimeout,
    /// A FLOW_MOD.
    Delete,
    /// 1.3: its group was removed.
    GroupDelete,
}

/// FLOW_REMOVED: a flow left its table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlowRemoved {
    /// Its cookie.
    pub cookie: u64,
    /// Its priority.
    pub priority: u16,
    /// Why it left.
    pub reason: RemovedReason,
    /// Its table (1.3).
    pub table: u8,
    /// For how long it was there.
    pub duration: Duration,
    /// Its idle timeout, in seconds.
    pub idle_timeout: u16,
    /// Its hard timeout, in seconds (1.3).
    pub hard_timeout: u16,
    /// Packets.
    pub packets: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Which packets it took.
    pub matches: Match,
}

/// Why a packet goes to the controller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum InReason {
    /// No flow matched (1.3: the table-miss flow sent it).
    NoMatch,
    /// An OUTPUT to the controller.
    Action,
    /// Its TTL ended (1.3).
    InvalidTtl,
}

/// PACKET_IN: a packet for the controller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PacketIn {
    /// The switch keeps the packet under this number.
    pub buffer_id: Option<u32>,
    /// Length of the packet; `data` may be shorter.
    pub total_len: u16,
    /// Why it is sent.
    pub reason: InReason,
    /// The table of the flow (1.3).
    pub table: u8,
    /// The cookie of the flow (1.3); all ones: none.
    pub cookie: u64,
    /// Port of entry, metadata and tunnel; of 1.0 only [`crate::Field::InPort`].
    pub matches: Match,
    /// The packet from its Ethernet header on.
    pub data: Vec<u8>,
}

/// PACKET_OUT: a packet from the controller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PacketOut {
    /// The packet that the switch keeps; `None`: it is in `data`.
    pub buffer_id: Option<u32>,
    /// As if it came in by this port; [`PortNo::CONTROLLER`] or [`PortNo::ANY`]: by none.
    pub in_port: PortNo,
    /// What happens to it.
    pub actions: Vec<Action>,
    /// The packet from its Ethernet header on.
    pub data: Vec<u8>,
}
