//! The plain twin: a `HashMap` of flows, and time-outs that are looked at when a packet comes and at the end.

use std::collections::HashMap;

use packet::tcp::TcpView;

use super::super::*;
use super::Ended;
use super::scene::{Packet, Scene};
use crate::record::TcpState;
use crate::tcp::{Connection, Conntrack, End, Segment, Sink, Want};

/// What the twin knows of a flow that ended.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Essence {
    start_ns: u64,
    key: FlowKey,
    end_ns: u64,
    ended_ns: u64,
    client: Side,
    /// Packets, bytes and bytes of IP of both sides.
    sides: [[u64; 3]; 2],
    state: String,
    reason: String,
}

impl Essence {
    /// What a tracker said.
    pub(super) fn of(ended: &Ended) -> Self {
        let record = &ended.record;
        let [client, server] = record.sides.map(|side| [side.packets, side.bytes, side.ip_bytes]);
        Self {
            start_ns: record.start_ns,
            key: ended.key(),
            end_ns: record.end_ns,
            ended_ns: ended.time_ns,
            client: ended.client,
            sides: if ended.client == Side::A { [client, server] } else { [server, client] },
            state: format!("{:?}", record.state),
            reason: format!("{:?}", record.reason),
        }
    }
}

/// By protocol, state of TCP, whether data waits for an acknowledgment, and whether both ends have sent packets: as the sysctls
/// of Linux's conntrack have it.
pub(super) fn timeout_of(
    timeouts: &IdleTimeouts,
    protocol: u8,
    connection: &Connection,
    is_answered: bool,
) -> u64 {
    let own = match (protocol, connection.conntrack()) {
        (6, Conntrack::SynSent) => timeouts.tcp_syn_sent,
        (6, Conntrack::SynRecv) => timeouts.tcp_syn_recv,
        (6, Conntrack::Established) => timeouts.tcp_established,
        (6, Conntrack::FinWait) => timeouts.tcp_fin_wait,
        (6, Conntrack::CloseWait) => timeouts.tcp_close_wait,
        (6, Conntrack::LastAck) => timeouts.tcp_last_ack,
        (6, Conntrack::TimeWait) => timeouts.tcp_time_wait,
        (6, Conntrack::Close) => timeouts.tcp_close,
        (17, _) if is_answered => timeouts.udp_stream,
        (17, _) => timeouts.udp,
        (1, _) => timeouts.icmp,
        (58, _) => timeouts.icmpv6,
        _ => timeouts.generic,
    };
    match protocol == 6 && connection.is_unacknowledged() {
        true => own.min(timeouts.tcp_unacknowledged),
        false => own,
    }
}

/// Counts a packet, its bytes and those of IP.
fn count(side: &mut [u64; 3], packet: &Packet) {
    let decoded = packet::decode(&packet.bytes, packet.bytes.len());
    side[0] += packet.frames.0;
    side[1] += packet.frames.1;
    side[2] += packet.bytes.len() as u64 - u64::from(decoded.l3_offset);
}

/// The key of a flow as a record has it.
pub(super) fn of_record(key: &FlowKey) -> FlowKey {
    let [a, b] = Side::BOTH.map(|side| (key.addresses[side.index()], key.port(side)));
    FlowKey::new(a, b, key.protocol, key.family, 0).0
}

struct Flow {
    start_ns: u64,
    end_ns: u64,
    first: Side,
    sides: [[u64; 3]; 2],
    connection: Connection,
    state: FlowState,
}

impl Flow {
    fn new(packet: &Packet) -> Self {
        Self {
            start_ns: packet.time_ns,
            end_ns: packet.time_ns,
            first: packet.side,
            sides: [[0; 3]; 2],
            connection: Connection::for_key(&packet.key, packet.side),
            state: FlowState::New,
        }
    }

    fn timeout_ns(&self, timeouts: &IdleTimeouts, key: &FlowKey) -> u64 {
        let is_answered = self.sides.iter().all(|side| side[0] > 0);
        timeout_of(timeouts, key.protocol, &self.connection, is_answered)
    }
}

/// Nobody listens.
struct Deaf;

impl Sink for Deaf {
    fn data(&mut self, _: Side, _: u64, _: &[u8]) -> Want {
        Want::More
    }
    fn gap(&mut self, _: Side, _: u64, _: u64) {}
    fn end(&mut self, _: Side, _: u64, _: End) {}
}

pub(super) struct Twin {
    flows: HashMap<FlowKey, Flow>,
    timeouts: IdleTimeouts,
    reassembler: Reassembler,
    ended: Vec<Essence>,
}

impl Twin {
    /// The flows of a scene.
    pub(super) fn run(scene: &Scene, timeouts: IdleTimeouts) -> Vec<Essence> {
        let reassembler = Reassembler::new(tcp::Options::default());
        let mut twin = Self { flows: HashMap::new(), timeouts, reassembler, ended: Vec::new() };
        scene.packets.iter().for_each(|packet| twin.packet(packet));
        for (key, flow) in std::mem::take(&mut twin.flows) {
            let reason = match twin.is_idle(&key, &flow, scene.latest_ns()) {
                true => Reason::Timeout,
                false => Reason::Shutdown,
            };
            twin.end(key, flow, reason, scene.latest_ns());
        }
        twin.ended.sort();
        twin.ended
    }

    fn is_idle(&self, key: &FlowKey, flow: &Flow, now_ns: u64) -> bool {
        now_ns - flow.end_ns > flow.timeout_ns(&self.timeouts, key)
    }

    /// `now_ns`: when it ends, unless by its time-out.
    fn end(&mut self, key: FlowKey, mut flow: Flow, reason: Reason, now_ns: u64) {
        let timeout_ns = flow.timeout_ns(&self.timeouts, &key);
        self.reassembler.close(&mut flow.connection, &mut Deaf);
        let is_closed = flow.state == FlowState::Closed;
        let is_tcp = key.protocol == 6;
        self.ended.push(Essence {
            start_ns: flow.start_ns,
            key: of_record(&key),
            end_ns: flow.end_ns,
            ended_ns: match reason {
                Reason::Timeout => flow.end_ns.saturating_add(timeout_ns),
                _ => now_ns,
            },
            client: if is_tcp { flow.connection.client() } else { flow.first },
            sides: flow.sides,
            state: format!("{:?}", flow.state),
            reason: format!("{:?}", if is_closed { Reason::Closed } else { reason }),
        });
    }

    /// Whether a packet is an ICMP error about a flow that is there: it is no packet of that.
    fn error(&self, packet: &Packet) -> bool {
        let Some((key, side, sequence)) = packet.about else { return false };
        let Some(flow) = self.flows.get(&key) else { return false };
        let has_sent = sequence.is_none_or(|own| flow.connection.may_have_sent(side, own));
        has_sent && !self.is_idle(&key, flow, packet.time_ns)
    }

    fn packet(&mut self, packet: &Packet) {
        if self.error(packet) {
            return;
        }
        let (key, at) = (packet.key, packet.side.index());
        let mut flow = match self.flows.remove(&key) {
            Some(flow) if self.is_idle(&key, &flow, packet.time_ns) => {
                self.end(key, flow, Reason::Timeout, packet.time_ns);
                Flow::new(packet)
            }
            Some(flow) => flow,
            None => Flow::new(packet),
        };
        let decoded = packet::decode(&packet.bytes, packet.bytes.len());
        if key.protocol == 6 {
            let upper = &packet.bytes[usize::from(decoded.l4_offset)..];
            let segment = Segment::from(&TcpView::new_checked(upper).unwrap());
            let reassembler = &mut self.reassembler;
            let time_ns = packet.time_ns;
            let mut give = |flow: &mut Flow| {
                let connection = &mut flow.connection;
                reassembler.segment(connection, packet.side, &segment, time_ns, &mut Deaf)
            };
            if give(&mut flow) == tcp::Outcome::Restart {
                let mut next = Flow::new(packet);
                next.connection.begin_again(&flow.connection.again(&segment));
                let _ = give(&mut next);
                self.end(key, std::mem::replace(&mut flow, next), Reason::Closed, packet.time_ns);
            }
        }
        flow.end_ns = packet.time_ns;
        count(&mut flow.sides[at], packet);
        let is_answered = flow.sides.iter().all(|side| side[0] > 0);
        flow.state = match (key.protocol, flow.connection.state()) {
            (6, TcpState::None | TcpState::SynSent | TcpState::SynReceived) => FlowState::New,
            (6, TcpState::TimeWait | TcpState::Closed) => FlowState::Closed,
            (6, _) => FlowState::Established,
            _ if is_answered => FlowState::Established,
            _ => FlowState::New,
        };
        self.flows.insert(key, flow);
    }
}
