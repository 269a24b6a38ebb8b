//! A rule, compiled.

use std::collections::HashMap;
use std::net::IpAddr;

use signatures::{
    BitOperation, Buffer, Compare, Condition, EndSide, Flow, FlowintRelation, Intervals,
    StreamSide, Transform, XbitsTrack,
};

use crate::Sender;
use crate::checks::{Number, Op};
use crate::solve::View;
use crate::tables::Counted;

/// An inspection: checks of one buffer.
#[derive(Debug)]
pub(crate) struct Part {
    pub(crate) rule: u32,
    /// The number of its rule's header.
    pub(crate) header: u32,
    /// Its bit among the parts of its rule.
    pub(crate) bit: u32,
    pub(crate) buffer: Buffer,
    pub(crate) transforms: Box<[Transform]>,
    pub(crate) ops: Box<[Op]>,
    /// Each of them as rules write it, for explanations.
    pub(crate) texts: Box<[Box<str>]>,
    pub(crate) when: When,
    /// Some of them are on sets that rules write: they are asked once the rest of the rule holds.
    pub(crate) defers: bool,
    /// A buffer of fewer bytes does not fulfil it.
    pub(crate) least: usize,
    /// Who sends what it is looked for in.
    pub(crate) senders: [bool; 2],
    /// It holds of a buffer that is not there.
    pub(crate) absent: bool,
    /// Its rule may drop or pass packets.
    pub(crate) decides: bool,
    /// It is evaluated where a literal is found.
    pub(crate) has_literal: bool,
    /// It is evaluated once the key of its rule was found, where that is possible.
    pub(crate) is_lazy: bool,
}

impl Part {
    /// Whether the sets that rules write have what its checks ask for.
    pub(crate) fn asks(&self, bytes: &[u8]) -> bool {
        self.ops.iter().all(|op| op.asks(bytes))
    }

    /// Writes what its checks write; false if that fails, so that they do not hold.
    pub(crate) fn write(&self, bytes: &[u8]) -> bool {
        self.ops.iter().all(|op| match op {
            Op::Dataset { set, ask } => ask.write(set, bytes),
            _ => true,
        })
    }

    /// Whether there are as many bytes as it needs.
    pub(crate) fn fits(&self, view: View<'_>) -> bool {
        view.base > 0 || view.bytes.len() >= self.least
    }
}

/// So many bytes a buffer needs for checks: those of its contents at fixed places.
pub(crate) fn least(ops: &[Op]) -> usize {
    let of = |op: &Op| match op {
        Op::Literal(own) if !own.negated => {
            let offset = match own.offset {
                Some(Number::Fixed(offset)) if !own.is_relative() => offset.clamp(0, 1 << 16),
                _ => 0,
            };
            offset as usize + own.bytes.len()
        }
        _ => 0,
    };
    ops.iter().map(of).max().unwrap_or(0)
}

/// When checks of a buffer that grows are evaluated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum When {
    /// At any time: what holds of its beginning holds of more.
    Always,
    /// Once as much is there as is kept, or all of it.
    Full,
    /// Once all of it is there.
    Whole,
}

impl When {
    pub(crate) fn of(ops: &[Op]) -> Self {
        let of = |op: &Op| match op {
            _ if op.is_monotone() => Self::Always,
            Op::Literal(literal) if !literal.ends => Self::Full,
            Op::Pattern { pattern, .. } if !pattern.looks_at_end => Self::Full,
            _ => Self::Whole,
        };
        ops.iter().map(of).max().unwrap_or(Self::Always)
    }
}

/// What a rule is matched against.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Addresses and ports: once for each direction of a flow.
    Addresses,
    /// Packets.
    Packet,
    /// Packets that cannot be decoded, and what is odd in streams and sessions.
    Event,
    /// Bytes of streams of TCP; packets of other protocols.
    Stream,
    /// The application of a flow: once for each direction.
    Application,
    /// Buffers of transactions.
    Transaction,
}

/// What an event rule is on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Event {
    /// One of [`EVENTS`](crate::EVENTS) or [`STREAM_EVENTS`](crate::STREAM_EVENTS).
    Named(&'static str),
    /// Something odd in what an application says.
    Application(applayer::AnomalyKind),
}

/// The protocol of a header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Carried {
    Any,
    Ipv4,
    Ipv6,
    /// By number.
    Upper(u8),
    Icmp,
    /// An application, by Suricata's name.
    Application(&'static str),
}

/// A counter's operand.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Operand {
    Number(u32),
    Counter(u32),
}

/// A condition, with numbers for names.
#[derive(Clone, Debug)]
pub(crate) enum Cond {
    /// On the packet alone.
    Packet(Condition),
    Flow(Flow),
    /// One of the bits is set (or one is not).
    Bits {
        ids: Box<[u32]>,
        set: bool,
    },
    Counter {
        id: u32,
        relation: FlowintRelation,
        operand: Operand,
    },
    CounterIs {
        id: u32,
        set: bool,
    },
    HostBit {
        id: u32,
        of: BitOf,
        set: bool,
    },
    StreamSize(StreamSide, Compare),
    Reputation(Box<crate::reputation::Asked>),
    Application {
        negated: bool,
        name: String,
        mode: Option<signatures::ProtocolMode>,
    },
}

/// Whose bit it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BitOf {
    Source,
    Destination,
    Both,
    Pair,
}

impl From<XbitsTrack> for BitOf {
    fn from(track: XbitsTrack) -> Self {
        match track {
            XbitsTrack::Source => Self::Source,
            XbitsTrack::Destination => Self::Destination,
            XbitsTrack::Pair | XbitsTrack::Transaction => Self::Pair,
        }
    }
}

impl From<Option<EndSide>> for BitOf {
    fn from(side: Option<EndSide>) -> Self {
        match side {
            None | Some(EndSide::Source) => Self::Source,
            Some(EndSide::Destination) => Self::Destination,
            Some(EndSide::Both) => Self::Both,
        }
    }
}

/// What is done after a match.
#[derive(Clone, Debug)]
pub(crate) enum Post {
    Bits { ids: Box<[u32]>, operation: BitOperation },
    Counter { id: u32, operation: CounterOperation, operand: Operand },
    HostBit { id: u32, of: BitOf, operation: BitOperation, expire_s: u32 },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CounterOperation {
    Set,
    Add,
    Subtract,
}

/// Ranges of ports, sorted, both ends included; none is any.
pub(crate) type PortRanges = Option<Box<[(u16, u16)]>>;

/// Addresses and ports of a header; none is any.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Ends {
    pub(crate) source: Option<Box<Intervals>>,
    pub(crate) destination: Option<Box<Intervals>>,
    pub(crate) source_ports: PortRanges,
    pub(crate) destination_ports: PortRanges,
    /// Either way.
    pub(crate) both: bool,
}

/// The ends of a packet's way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Way {
    pub(crate) source: IpAddr,
    pub(crate) destination: IpAddr,
    pub(crate) source_port: u16,
    pub(crate) destination_port: u16,
    pub(crate) protocol: u8,
}

impl Way {
    pub(crate) fn back(self) -> Self {
        Self {
            source: self.destination,
            destination: self.source,
            source_port: self.destination_port,
            destination_port: self.source_port,
            protocol: self.protocol,
        }
    }
}

impl Ends {
    pub(crate) fn hold(&self, way: &Way) -> bool {
        self.hold_forward(way) || self.both && self.hold_forward(&way.back())
    }

    fn hold_forward(&self, way: &Way) -> bool {
        let address = |list: &Option<Box<Intervals>>, address| {
            list.as_ref().is_none_or(|list| list.has_address(address))
        };
        let has_ports = matches!(way.protocol, 6 | 17 | 132);
        let port = |list: &PortRanges, port: u16| {
            let Some(list) = list else { return true };
            let is_in = |(first, last): &(u16, u16)| *first <= port && port <= *last;
            has_ports
                && match list.len() {
                    0..8 => list.iter().any(is_in),
                    _ => {
                        let above = list.partition_point(|(first, _)| *first <= port);
                        above > 0 && is_in(&list[above - 1])
                    }
                }
        };
        port(&self.destination_ports, way.destination_port)
            && port(&self.source_ports, way.source_port)
            && address(&self.source, way.source)
            && address(&self.destination, way.destination)
    }
}

/// A rule.
#[derive(Debug)]
pub(crate) struct Compiled {
    pub(crate) kind: Kind,
    /// Of addresses, ports, or an application alone: its action applies to the flow, whatever it is matched against.
    pub(crate) is_of_flow: bool,
    pub(crate) carried: Carried,
    pub(crate) ends: Ends,
    pub(crate) conditions: Box<[Cond]>,
    /// The header and each condition as rules write them, for explanations.
    pub(crate) header: Box<str>,
    pub(crate) texts: Box<[Box<str>]>,
    pub(crate) posts: Box<[Post]>,
    /// Numbers of its parts, by bit.
    pub(crate) parts: Box<[u32]>,
    /// Bits of parts that are in payload; those of transactions; those of headers of packets.
    pub(crate) payload: u32,
    pub(crate) buffers: u32,
    pub(crate) headers: u32,
    /// The bit of the part of transactions that is looked for first; none: each is looked for by itself.
    pub(crate) key: u32,
    /// All of its parts are in what one side sends: it matches once for each.
    pub(crate) is_of_side: bool,
    /// Packets of TCP are inspected, not streams.
    pub(crate) needs_packet: bool,
    /// Besides streams of TCP, payloads of their packets are inspected.
    pub(crate) in_packets: bool,
    /// What is wrong with a packet or a stream that it is about.
    pub(crate) event: Option<Event>,
    pub(crate) noalert: bool,
    /// Thresholds and the like, in order.
    pub(crate) counted: Box<[Counted]>,
}

impl Compiled {
    /// What tells matches in a transaction apart, and the parts that were found for them: as in Suricata, a rule matches once
    /// for each direction that has all it asks for.
    pub(crate) fn once(&self, number: u32, sender: Sender) -> u64 {
        u64::from(number) << 1 | u64::from(self.is_of_side && sender == Sender::Server)
    }

    /// Whether something of this sender counts for what was found of the other one.
    pub(crate) fn counts(&self, sender: Sender, other: Sender) -> bool {
        !self.is_of_side || sender == other
    }
}

/// Numbers of names that flows and hosts remember.
#[derive(Clone, Debug, Default)]
pub(crate) struct Registry {
    numbers: HashMap<(char, String), u32>,
}

impl Registry {
    /// `kind` distinguishes bits of flows, counters, bits of hosts.
    pub(crate) fn number(&mut self, kind: char, name: &str) -> u32 {
        let next = self.numbers.len() as u32;
        *self.numbers.entry((kind, name.to_owned())).or_insert(next)
    }
}
