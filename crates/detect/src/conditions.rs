//! Conditions that depend on the flow, on hosts, or on what other rules did; and what a match does to these.

use signatures::{BitOperation, Compare, Flow, FlowSide, FlowState as State, FlowintRelation};
use signatures::{ProtocolMode, StreamSide};

use crate::Sender;
use crate::alert::Found;
use crate::flow::{FlowState, Match};
use crate::header::Header;
use crate::rule::{Carried, Compiled, Cond, CounterOperation, Operand, Post, Way};
use crate::tables::HostTables;

/// Does a condition hold?
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    Yes,
    No,
    /// The application is not known yet.
    NotYet,
}

impl From<bool> for Answer {
    fn from(holds: bool) -> Self {
        if holds { Self::Yes } else { Self::No }
    }
}

/// What conditions look at.
pub(crate) struct Scene<'a> {
    pub(crate) flow: &'a FlowState,
    /// The packet of the step.
    pub(crate) header: Option<&'a Header>,
    /// Who sent it.
    pub(crate) sender: Sender,
    pub(crate) tables: &'a HostTables,
    pub(crate) now_ns: u64,
}

impl Scene<'_> {
    /// The way of what matched.
    pub(crate) fn way(&self, of: &Match) -> Option<Way> {
        match of.found {
            Found::Packet | Found::Addresses => self.header.map(crate::flow::way_of_packet),
            Found::Event | Found::Stream | Found::Transaction(_) => self.flow.way_of(of.sender),
        }
    }

    /// All of a rule's header and conditions.
    pub(crate) fn all(&self, rule: &Compiled, of: &Match) -> Answer {
        let Some(way) = self.way(of) else { return Answer::No };
        let carried = self.carried(&rule.carried, &way);
        if carried != Answer::Yes {
            return carried;
        }
        if !rule.ends.hold(&way) {
            return Answer::No;
        }
        let mut worst = Answer::Yes;
        for cond in &rule.conditions {
            match self.one(cond, of, &way) {
                Answer::Yes => {}
                Answer::No => return Answer::No,
                Answer::NotYet => worst = Answer::NotYet,
            }
        }
        worst
    }

    pub(crate) fn carried(&self, carried: &Carried, way: &Way) -> Answer {
        match carried {
            Carried::Any => Answer::Yes,
            Carried::Ipv4 => way.source.is_ipv4().into(),
            Carried::Ipv6 => way.source.is_ipv6().into(),
            Carried::Upper(upper) => (way.protocol == *upper).into(),
            Carried::Icmp => matches!(way.protocol, 1 | 58).into(),
            Carried::Application(name) => match self.application() {
                None => Answer::NotYet,
                Some(own) => is_application(name, own).into(),
            },
        }
    }

    fn application(&self) -> Option<&'static str> {
        let known = self.flow.application.iter().flatten().find(|name| **name != "failed");
        known.or(self.flow.application.iter().flatten().next()).copied()
    }

    pub(crate) fn one(&self, cond: &Cond, of: &Match, way: &Way) -> Answer {
        match cond {
            Cond::Packet(condition) => {
                // Of another packet than the one that brought it, nothing is known any more.
                let header = self.header.filter(|_| self.sender == of.sender);
                header.and_then(|header| header.holds(condition)).unwrap_or(false).into()
            }
            Cond::Flow(flow) => self.flow_holds(flow, of).into(),
            Cond::Reputation(asked) => asked.holds(way).into(),
            Cond::Bits { ids, set } => ids.iter().any(|id| self.flow.has_bit(*id) == *set).into(),
            Cond::Counter { id, relation, operand } => {
                let values = self.flow.counter(*id).zip(self.operand(*operand));
                let holds = values.is_some_and(|(own, other)| match relation {
                    FlowintRelation::Equal => own == other,
                    FlowintRelation::NotEqual => own != other,
                    FlowintRelation::Less => own < other,
                    FlowintRelation::LessOrEqual => own <= other,
                    FlowintRelation::Greater => own > other,
                    FlowintRelation::GreaterOrEqual => own >= other,
                });
                holds.into()
            }
            Cond::CounterIs { id, set } => (self.flow.counter(*id).is_some() == *set).into(),
            Cond::HostBit { id, of, set } => {
                (self.tables.has_bit(*id, *of, way, self.now_ns) == *set).into()
            }
            Cond::StreamSize(side, size) => {
                let [client, server] = self.flow.stream_bytes;
                stream_size_holds(*side, *size, client, server).into()
            }
            Cond::Application { negated, name, mode } => {
                let own = match mode {
                    Some(ProtocolMode::ToServer) => self.flow.application[0],
                    Some(ProtocolMode::ToClient) => self.flow.application[1],
                    _ => self.application(),
                };
                match own {
                    None => Answer::NotYet,
                    Some(own) => (is_application(name, own) != *negated).into(),
                }
            }
        }
    }

    fn operand(&self, operand: Operand) -> Option<u32> {
        match operand {
            Operand::Number(number) => Some(number),
            Operand::Counter(id) => self.flow.counter(id),
        }
    }

    fn flow_holds(&self, flow: &Flow, of: &Match) -> bool {
        let is_stateless = flow.state == Some(State::Stateless) && flow.to.is_none();
        if self.flow.is_none && !is_stateless {
            return false;
        }
        let to = match flow.to {
            None => true,
            Some(FlowSide::Server) => of.sender == Sender::Client,
            Some(FlowSide::Client) => of.sender == Sender::Server,
        };
        // Bytes of streams are those of established connections.
        let is_established = match of.found {
            Found::Packet | Found::Addresses | Found::Event => self.flow.was_established,
            Found::Stream | Found::Transaction(_) => self.flow.is_established(),
        };
        let state = match flow.state {
            None | Some(State::Stateless) => true,
            Some(State::Established) => is_established,
            Some(State::NotEstablished) => !is_established,
        };
        let is_stream = of.found == Found::Stream;
        let stream = flow.stream.is_none_or(|only| only == is_stream);
        let is_fragment = || self.header.is_some_and(|h| h.decoded.has(packet::Decoded::FRAGMENT));
        to && state && stream && flow.fragments.is_none_or(|only| only == is_fragment())
    }
}

/// Do the conditions on the packet alone hold? Others are not asked. What is found in a packet is not tried again later.
pub(crate) fn of_packet_hold(rule: &Compiled, header: &Header) -> bool {
    rule.conditions.iter().all(|cond| match cond {
        Cond::Packet(condition) => header.holds(condition).unwrap_or(false),
        _ => true,
    })
}

/// Is what a rule calls `rule` what a flow speaks?
pub(crate) fn is_application(rule: &str, own: &str) -> bool {
    match rule {
        "http" => matches!(own, "http" | "http2"),
        "http1" => own == "http",
        "dns" => matches!(own, "dns" | "doh2"),
        "ssl" => own == "tls",
        rule => rule == own,
    }
}

fn stream_size_holds(side: StreamSide, size: Compare, client: u64, server: u64) -> bool {
    match side {
        StreamSide::Client => size.holds(client),
        StreamSide::Server => size.holds(server),
        StreamSide::Both => size.holds(client) && size.holds(server),
        StreamSide::Either => size.holds(client) || size.holds(server),
    }
}

/// What a match does.
pub(crate) fn apply(
    posts: &[Post],
    flow: &mut FlowState,
    tables: &HostTables,
    way: &Way,
    now_ns: u64,
) {
    for post in posts {
        match post {
            Post::Bits { ids, operation } => {
                for id in ids {
                    let set = match operation {
                        BitOperation::Set => true,
                        BitOperation::Toggle => !flow.has_bit(*id),
                        _ => false,
                    };
                    flow.set_bit(*id, set);
                }
            }
            Post::Counter { id, operation, operand } => {
                let operand = match operand {
                    Operand::Number(number) => Some(*number),
                    Operand::Counter(other) => flow.counter(*other),
                };
                let Some(operand) = operand else { continue };
                let own = flow.counter(*id);
                let value = match operation {
                    CounterOperation::Set => operand,
                    // A counter that is not there begins at 0.
                    CounterOperation::Add => own.unwrap_or(0).wrapping_add(operand),
                    CounterOperation::Subtract => own.unwrap_or(0).wrapping_sub(operand),
                };
                flow.set_counter(*id, value);
            }
            Post::HostBit { id, of, operation, expire_s } => {
                let set = match operation {
                    BitOperation::Set => true,
                    BitOperation::Toggle => !tables.has_bit(*id, *of, way, now_ns),
                    _ => false,
                };
                let until = now_ns.saturating_add(u64::from(*expire_s) * 1_000_000_000);
                tables.set_bit(*id, *of, way, set.then_some(until), now_ns);
            }
        }
    }
}
