//! Flow monitors: a controller hears of changes of flows. Nicira's extension of 1.0, and extension 187 of the ONF for 1.3, as Open
//! vSwitch has them (`ovs-ofctl monitor SWITCH watch:`).

use crate::action::{Action, Instruction};
use crate::bits::bits;
use crate::flow::{ALL_TABLES, FlowStats, RemovedReason};
use crate::matches::Match;
use crate::port::PortNo;

bits! {
    /// What a flow monitor is about.
    MonitorFlags: u16 {
        /// The flows that are there when it begins.
        INITIAL = 1 => "initial",
        /// New flows.
        ADD = 1 << 1 => "add",
        /// Flows that leave.
        DELETE = 1 << 2 => "delete",
        /// Flows that change.
        MODIFY = 1 << 3 => "modify",
        /// With what happens to packets.
        ACTIONS = 1 << 4 => "actions",
        /// Changes by the same connection whole; without it their `xid` alone.
        OWN = 1 << 5 => "own",
    }
}

impl MonitorFlags {
    /// One of these must be there.
    pub const EVENTS: Self = Self(0xf);
    /// All that there are.
    pub const ALL: Self = Self(0x3f);
}

/// A request for changes of some flows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlowMonitor {
    /// The controller's name for it.
    pub id: u32,
    /// What it is about.
    pub flags: MonitorFlags,
    /// Only flows that send to this port; [`PortNo::ANY`]: all.
    pub out_port: PortNo,
    /// The table, or [`ALL_TABLES`].
    pub table: u8,
    /// Only flows within this match.
    pub matches: Match,
}

impl FlowMonitor {
    /// A flow of this table and match, with these instructions before or now, is one of its flows.
    pub fn takes(&self, flow: &FlowStats, before: Option<&[Instruction]>) -> bool {
        let is_sent = |instructions: &[Instruction]| sends_to(instructions, self.out_port);
        (self.table == ALL_TABLES || self.table == flow.table)
            && (self.out_port == PortNo::ANY
                || is_sent(&flow.instructions)
                || before.is_some_and(is_sent))
            && flow.matches.is_within(&self.matches)
    }
}

fn sends_to(instructions: &[Instruction], wanted: PortNo) -> bool {
    let to_port = |action: &Action| match action {
        Action::Output { port, .. } | Action::Enqueue { port, .. } => *port == wanted,
        _ => false,
    };
    instructions.iter().any(|instruction| match instruction {
        Instruction::ApplyActions(actions) | Instruction::WriteActions(actions) => {
            actions.iter().any(to_port)
        }
        _ => false,
    })
}

/// What happened to a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FlowEvent {
    /// It was added, in place of one with the same match and priority too, or is there when the monitor begins.
    Added,
    /// It left.
    Deleted(RemovedReason),
    /// Its instructions or its cookie changed.
    Modified,
}

impl FlowEvent {
    /// The flag of a monitor that wants it.
    pub const fn flag(self) -> MonitorFlags {
        match self {
            Self::Added => MonitorFlags::ADD,
            Self::Deleted(_) => MonitorFlags::DELETE,
            Self::Modified => MonitorFlags::MODIFY,
        }
    }
}

/// What a monitor reports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FlowUpdate {
    /// A change. Of the flow its duration, counters and flags are not sent; its instructions only where they are asked for.
    Flow(FlowEvent, FlowStats),
    /// A request of the same connection changed flows.
    Abbreviated {
        /// Of the request.
        xid: u32,
    },
}
