//! Packets in, alerts out: tracker, sessions and a detector together, as a worker has them.

use std::collections::HashMap;
use std::net::IpAddr;
use std::ops::Range;
use std::sync::Arc;

use applayer::{Limits, Session, Start};
use automata::Automaton;
use detect::{Alert, Detector, Feed, FlowState, Packet, Ruleset, Sender};
use l7proto::{Ports, Transport};
use packet::{Anomaly, Decoded, tunnel};
use stream::tcp::{End, Segment, SynData, Want};
use stream::tracker::{Identity, Input, Module, OfFlow, Options, Passed, Reject};
use stream::{FlowRecord, Side, Tracker};

/// An alert and whose it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Reported {
    pub(crate) alert: Alert,
    pub(crate) sid: u32,
    pub(crate) source: (IpAddr, u16),
    pub(crate) destination: (IpAddr, u16),
    pub(crate) protocol: u8,
    pub(crate) application: Option<&'static str>,
    /// The packet was in a tunnel.
    pub(crate) is_inner: bool,
    pub(crate) is_dropped: bool,
    /// No packet brought it: the flow ended.
    pub(crate) is_at_end: bool,
}

/// What came out.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Seen {
    pub(crate) reported: Vec<Reported>,
    /// Packets.
    pub(crate) dropped: usize,
    /// Flows.
    pub(crate) passed: usize,
}

/// How packets are looked at.
#[derive(Clone, Debug)]
pub(crate) struct Setup {
    pub(crate) midstream: bool,
    pub(crate) checksums: bool,
    pub(crate) tunnels: tunnel::Kinds,
    pub(crate) by_vlan: bool,
    /// Packets are searched for literals before the tracker sees them.
    pub(crate) ahead: bool,
    /// Packets that carry encrypted streams on are passed over.
    pub(crate) passes: bool,
}

impl Default for Setup {
    fn default() -> Self {
        let tunnels = tunnel::Kinds::all();
        Self {
            midstream: false,
            checksums: true,
            tunnels,
            by_vlan: true,
            ahead: false,
            passes: true,
        }
    }
}

struct Flow {
    state: FlowState,
    session: Option<Session>,
    identity: Identity,
    is_inner: bool,
}

struct Bench {
    detector: Detector,
    limits: Limits,
    flows: HashMap<u64, Flow>,
    /// The flow of the step that is open.
    open: Option<u64>,
    is_end: bool,
    now_ns: u64,
    setup: Setup,
    /// The search ahead, and the addresses of the last frame if nothing is in it.
    literals: Option<Automaton>,
    clean: Range<usize>,
    /// Pieces that were clean.
    spared: usize,
    /// Packets that were passed over.
    passed_over: u64,
    alerts: Vec<Alert>,
    seen: Seen,
}

fn sender(flow: &Identity, side: Side, is_reversed: bool) -> Sender {
    match (side == flow.client) != is_reversed {
        true => Sender::Client,
        false => Sender::Server,
    }
}

impl Bench {
    fn flow(&mut self, identity: &Identity) -> &mut Flow {
        self.flows.entry(identity.id).or_insert_with(|| {
            let transport = match identity.key.protocol {
                6 => Some(Transport::Stream),
                17 => Some(Transport::Datagram),
                _ => None,
            };
            let ports = Ports {
                opener: identity.key.port(identity.client),
                responder: identity.key.port(identity.client.other()),
            };
            let is_midstream = self.setup.midstream;
            let session =
                transport.map(|transport| Session::new(Start { transport, ports, is_midstream }));
            Flow {
                state: FlowState::new(identity.id),
                session,
                identity: *identity,
                is_inner: false,
            }
        })
    }

    /// Both streams are encrypted from where they are on, and no rule asks for what follows.
    fn passes(&mut self, id: u64) -> bool {
        let Some(flow) = self.flows.get_mut(&id) else { return false };
        let Some(session) = flow.session.as_ref() else { return false };
        let is_reversed = session.is_reversed();
        let is_encrypted = Side::BOTH.into_iter().all(|side| {
            let from = session.encrypted_from(direction(&flow.identity, side));
            let sender = sender(&flow.identity, side, is_reversed);
            from.is_some_and(|from| from <= flow.state.stream_bytes(sender))
        });
        is_encrypted && self.detector.may_pass_over(&mut flow.state) == Some(true)
    }

    fn report(&mut self, id: u64, is_dropped: bool) {
        let flow = &self.flows[&id];
        let (key, client) = (&flow.identity.key, flow.identity.client);
        for alert in self.alerts.drain(..) {
            let is_reversed = flow.session.as_ref().is_some_and(Session::is_reversed);
            let side = match (alert.sender == Sender::Client) != is_reversed {
                true => client,
                false => client.other(),
            };
            self.seen.reported.push(Reported {
                alert,
                sid: self.detector.rules().rule(alert.rule).sid,
                source: (key.address(side), key.port(side)),
                destination: (key.address(side.other()), key.port(side.other())),
                protocol: key.protocol,
                application: flow
                    .session
                    .as_ref()
                    .and_then(Session::protocol)
                    .map(l7proto::Protocol::name),
                is_inner: flow.is_inner,
                is_dropped,
                is_at_end: self.is_end,
            });
        }
    }

    fn finish(&mut self) {
        self.clean = 0..0;
        let Some(id) = self.open.take() else { return };
        let Some(flow) = self.flows.get_mut(&id) else { return };
        let verdict = self.detector.finish(&mut flow.state, &mut self.alerts);
        self.seen.dropped += usize::from(verdict.drops && !self.is_end);
        self.report(id, verdict.drops);
    }

    /// Calls a session, whose results go to the step.
    fn session(&mut self, id: u64, call: impl FnOnce(&mut Session, &Limits, u64, &mut Feed<'_>)) {
        let Some(flow) = self.flows.get_mut(&id) else { return };
        let Some(session) = &mut flow.session else { return };
        let was_reversed = session.is_reversed();
        let mut feed = Feed { detector: &mut self.detector, flow: &mut flow.state };
        call(session, &self.limits, self.now_ns, &mut feed);
        if session.is_reversed() != was_reversed {
            flow.state.reverse();
        }
    }
}

fn addresses(bytes: &[u8]) -> Range<usize> {
    let own = bytes.as_ptr_range();
    own.start.addr()..own.end.addr()
}

fn direction(flow: &Identity, side: Side) -> applayer::Direction {
    match side == flow.client {
        true => applayer::Direction::ToServer,
        false => applayer::Direction::ToClient,
    }
}

/// Of a segment with SYN: whether it has no ACK.
fn syn_of(input: &Input<'_>) -> Option<bool> {
    let d = input.decoded;
    let is_tcp = d.protocol == packet::IpProtocol::TCP;
    let flags = input.frame.get(usize::from(d.l4_offset) + 13).filter(|_| is_tcp)?;
    (flags & 2 != 0).then_some(flags & 16 == 0)
}

impl Module for Bench {
    type State = ();

    fn packet(&mut self, identity: &Identity, (): &mut (), of: &OfFlow<'_>) {
        self.finish();
        (self.now_ns, self.is_end) = (of.input.time_ns, false);
        let (decoded, frame, time_ns) = (of.input.decoded, of.input.frame, of.input.time_ns);
        let is_inner = of.input.tunnels.is_some();
        // Before the first segment was followed, the tracker does not know who opened the connection.
        let mut identity = *identity;
        if let Some(syn) = of.is_first.then(|| syn_of(of.input)).flatten() {
            identity.client = if syn { of.side } else { of.side.other() };
        }
        let identity = &identity;
        let flow = self.flow(identity);
        (flow.is_inner, flow.identity) = (is_inner, *identity);
        let is_reversed = flow.session.as_ref().is_some_and(Session::is_reversed);
        let sender = sender(identity, of.side, is_reversed);
        let flow = self.flows.get_mut(&identity.id).expect("it is there");
        let mut is_clean = false;
        if let Some(literals) = &self.literals {
            is_clean = true;
            literals.scan(literals.start(), frame, 0, |_| is_clean = false);
        }
        self.clean = if is_clean { addresses(frame) } else { 0..0 };
        self.spared += usize::from(is_clean);
        let packet = Packet { decoded, frame, time_ns };
        self.detector.begin_searched(&packet, &mut flow.state, sender, is_clean);
        self.open = Some(identity.id);
        if let Some(bytes) = of.datagram() {
            let direction = direction(identity, of.side);
            self.session(identity.id, |session, limits, now, feed| {
                session.datagram(limits, direction, bytes, now, feed);
            });
        }
    }

    fn closing(&mut self, identity: &Identity) {
        self.finish();
        let now_ns = self.now_ns;
        let Some(flow) = self.flows.get_mut(&identity.id) else { return };
        self.detector.begin_end(&mut flow.state, now_ns);
        self.is_end = true;
        self.open = Some(identity.id);
    }

    fn data(
        &mut self,
        identity: &Identity,
        (): &mut (),
        side: Side,
        offset: u64,
        bytes: &[u8],
    ) -> Want {
        let direction = direction(identity, side);
        self.session(identity.id, |session, limits, now, feed| {
            session.data(limits, direction, offset, bytes, now, feed);
        });
        let Some(flow) = self.flows.get_mut(&identity.id) else { return Want::More };
        // The session may have found out that the ends are the other way round.
        let is_reversed = flow.session.as_ref().is_some_and(Session::is_reversed);
        let sender = sender(identity, side, is_reversed);
        let session = flow.session.as_ref();
        let from = session.and_then(|session| session.encrypted_from(direction));
        let clear = from.map_or(bytes.len() as u64, |from| from.saturating_sub(offset));
        let clear = &bytes[..bytes.len().min(clear as usize)];
        let (own, frame) = (addresses(clear), &self.clean);
        let is_clean = frame.start <= own.start && own.end <= frame.end;
        self.detector.data_searched(&mut flow.state, sender, offset, clear, is_clean);
        if from.is_some() {
            self.detector.pass_over(&mut flow.state, sender, offset, bytes.len());
            flow.state.set_encrypted();
        }
        if self.setup.passes && self.passes(identity.id) { Want::PassOver } else { Want::More }
    }

    fn passing(&self) -> u32 {
        1
    }

    fn looks_at(&self, input: &Input<'_>, segment: &Segment<'_>) -> bool {
        self.detector.rules().asks_for(input.decoded, segment)
    }

    fn passed(&mut self, packets: &Passed) {
        self.finish();
        self.now_ns = packets.times_ns.1;
        self.passed_over += packets.packets;
    }

    fn gap(
        &mut self,
        identity: &Identity,
        (): &mut (),
        side: Side,
        offset: u64,
        bytes: u64,
        _: u64,
    ) {
        let Some(flow) = self.flows.get_mut(&identity.id) else { return };
        let is_reversed = flow.session.as_ref().is_some_and(Session::is_reversed);
        let sender = sender(identity, side, is_reversed);
        self.detector.gap(&mut flow.state, sender, offset, bytes);
        let direction = direction(identity, side);
        self.session(identity.id, |session, limits, now, feed| {
            session.gap(limits, direction, offset, bytes, now, feed);
        });
    }

    fn end_of_side(&mut self, identity: &Identity, (): &mut (), side: Side, _: u64, _: End) {
        let Some(flow) = self.flows.get_mut(&identity.id) else { return };
        let is_reversed = flow.session.as_ref().is_some_and(Session::is_reversed);
        let sender = sender(identity, side, is_reversed);
        self.detector.end_of_stream(&mut flow.state, sender);
        let direction = direction(identity, side);
        self.session(identity.id, |session, limits, now, feed| {
            session.end_of_side(limits, direction, now, feed);
        });
    }

    fn rejected(&mut self, _: usize, input: &Input<'_>, why: Reject) {
        self.finish();
        let d = input.decoded;
        let is_right = matches!(
            d.anomaly,
            Anomaly::None | Anomaly::MartianSource | Anomaly::MartianDestination
        );
        // A wrong header of the upper layer leaves the IP packet.
        let is_ip = d.is_ip() && is_right && !d.has(Decoded::FRAGMENT);
        if !is_ip || !matches!(why, Reject::Untracked | Reject::Malformed) {
            return;
        }
        let packet = Packet { decoded: input.decoded, frame: input.frame, time_ns: input.time_ns };
        let verdict = self.detector.lone(&packet, &mut self.alerts);
        for alert in self.alerts.drain(..) {
            let d = input.decoded;
            let ports = d.ports().unwrap_or((0, 0));
            self.seen.reported.push(Reported {
                alert,
                sid: self.detector.rules().rule(alert.rule).sid,
                source: (d.src_ip().expect("IP"), ports.0),
                destination: (d.dst_ip().expect("IP"), ports.1),
                protocol: d.protocol.0,
                application: None,
                is_inner: input.tunnels.is_some(),
                is_dropped: verdict.drops,
                is_at_end: false,
            });
        }
    }

    fn ended(&mut self, record: &FlowRecord, _: Side, (): &mut (), _: u64) {
        self.finish();
        let now_ns = self.now_ns;
        let Some(flow) = self.flows.get_mut(&record.id) else { return };
        self.detector.begin_end(&mut flow.state, now_ns);
        self.is_end = true;
        self.open = Some(record.id);
        self.session(record.id, |session, limits, now, feed| session.finish(limits, now, feed));
        self.finish();
        let flow = self.flows.remove(&record.id);
        self.seen.passed += usize::from(flow.is_some_and(|flow| flow.state.is_passed()));
    }
}

/// Whether the host that captured left checksums to its card: one of ten segments is wrong, as Suricata finds it out.
pub(crate) fn has_wrong_checksums(frames: &[(u64, Vec<u8>)]) -> bool {
    let (mut right, mut wrong) = (0, 0);
    for (time_ns, frame) in frames.iter().take(1_000) {
        let decoded = packet::decode(frame, frame.len());
        if decoded.protocol != packet::IpProtocol::TCP || !decoded.is_ip() {
            continue;
        }
        let input = Input {
            decoded: &decoded,
            frame,
            frame_len: frame.len() as u32,
            time_ns: *time_ns,
            port: 0,
            checksums: true,
            tunnels: None,
            segment: None,
        };
        match stream::tracker::checked_segment(&input) {
            Err(Reject::Checksum) => wrong += 1,
            _ => right += 1,
        }
    }
    wrong * 9 >= right && wrong > 0
}

/// Frames of Ethernet and their times, through all of it.
pub(crate) fn run(rules: Arc<Ruleset>, frames: &[(u64, Vec<u8>)], setup: &Setup) -> Seen {
    run_counting(rules, frames, setup).0
}

/// The same, and how many packets were clean.
pub(crate) fn run_counting(
    rules: Arc<Ruleset>,
    frames: &[(u64, Vec<u8>)],
    setup: &Setup,
) -> (Seen, usize) {
    let (seen, spared, _) = run_counting_all(rules, frames, setup);
    (seen, spared)
}

/// And how many were passed over.
pub(crate) fn run_counting_all(
    rules: Arc<Ruleset>,
    frames: &[(u64, Vec<u8>)],
    setup: &Setup,
) -> (Seen, usize, u64) {
    let literals = setup.ahead.then(|| rules.literals().expect("small tables")).flatten();
    let bench = Bench {
        detector: Detector::new(rules),
        limits: Limits::default(),
        flows: HashMap::new(),
        open: None,
        is_end: false,
        now_ns: 0,
        setup: setup.clone(),
        literals,
        clean: 0..0,
        spared: 0,
        passed_over: 0,
        alerts: Vec::new(),
        seen: Seen::default(),
    };
    let mut options = Options {
        flows: 4096,
        half_open: 4096,
        tunnels: setup.tunnels,
        by_vlan: setup.by_vlan,
        ..Options::default()
    };
    options.tcp.buffer_bytes = 4 << 20;
    options.tcp.midstream = setup.midstream;
    options.tcp.syn_data = SynData::Ignore;
    let mut tracker = Tracker::new(options, bench).expect("memory");
    let mut last_ns = 0;
    for (time_ns, frame) in frames {
        last_ns = *time_ns;
        let mut decoded = packet::decode(frame, frame.len());
        if !setup.checksums {
            packet::decode::ignore_checksum(&mut decoded);
        }
        let mut give = |decoded: &Decoded, frame: &[u8], tunnels: Option<&tunnel::Path>| {
            let input = Input {
                decoded,
                frame,
                frame_len: frame.len() as u32,
                time_ns: *time_ns,
                port: 0,
                checksums: setup.checksums,
                tunnels,
                segment: None,
            };
            tracker.packets(1, |_| input, |_, _| ());
            tracker.module().finish();
        };
        give(&decoded, frame, None);
        let checksums = match setup.checksums {
            true => packet::checksum::Checksums::Verify,
            false => packet::checksum::Checksums::Ignore,
        };
        // One kind of tunnel after the other, so that what is between the outermost and the innermost packet is seen too.
        let (mut outer, mut rest, mut depth) = (decoded, &frame[..], 0);
        while depth < tunnel::DEPTH_MAX {
            let inner = tunnel::Kind::ALL.into_iter().find_map(|kind| {
                let asked = tunnel::Kinds::NONE.with(kind, None);
                tunnel::inside(rest, &outer, &asked, checksums)
            });
            let Some(inner) = inner else { break };
            rest = &rest[inner.at..];
            (outer, depth) = (inner.decoded, depth + 1);
            give(&inner.decoded, rest, Some(&inner.path));
        }
    }
    tracker.finish(last_ns);
    tracker.module().finish();
    let bench = tracker.module();
    (std::mem::take(&mut bench.seen), bench.spared, bench.passed_over)
}
