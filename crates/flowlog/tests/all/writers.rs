//! Records and events by the bytes of an input, and what is written of them: the fuzz targets `eve` and `ipfix`.
//!
//! Each byte chooses something; behind the end of the input all are zero.

use std::collections::HashMap;
use std::net::IpAddr;

use applayer::{
    Direction, File, Limits, Piece, Progress, Session as Application, Sink, Start, Transaction,
};
use flowlog::eve::{
    Alert, Anomaly, AnomalyKind, ApplicationAnomaly, AssociationEvent, Context, Decision, Drop,
    Dropped, Eve, Origin, Protocols, Range,
};
use l7proto::{Ports, Transport};
use packet::tunnel::{Kind, Path, Tunnel};
use serde_json::Value;
use stream::record::{FlowRecord, FlowState, Reason, SideRecord, TcpState};

use crate::collector::Session;

/// Records of one input at most.
const RECORDS_MAX: usize = 200;

struct Input<'a>(&'a [u8]);

impl Input<'_> {
    fn byte(&mut self) -> u8 {
        let Some((first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        *first
    }

    /// Small in most cases: its first byte chooses how many follow.
    fn number(&mut self) -> u64 {
        let bytes = self.byte() % 9;
        (0..bytes).fold(0, |value, _| value << 8 | u64::from(self.byte()))
    }

    fn is(&mut self) -> bool {
        self.byte() & 1 == 1
    }

    fn of<T: Copy>(&mut self, all: &[T]) -> T {
        all[usize::from(self.byte()) % all.len()]
    }

    fn option<T>(&mut self, value: impl FnOnce(&mut Self) -> T) -> Option<T> {
        self.is().then(|| value(self))
    }

    fn bytes(&mut self) -> Vec<u8> {
        let len = usize::from(self.byte()).min(self.0.len());
        let (bytes, rest) = self.0.split_at(len);
        self.0 = rest;
        bytes.to_vec()
    }

    fn text(&mut self) -> String {
        String::from_utf8_lossy(&self.bytes()).into_owned()
    }

    fn address(&mut self, is_v6: bool) -> IpAddr {
        let bits = u128::from(self.number()) << 64 | u128::from(self.number());
        if is_v6 { IpAddr::V6(bits.into()) } else { IpAddr::V4((bits as u32).into()) }
    }

    fn side(&mut self) -> SideRecord {
        SideRecord {
            packets: self.number(),
            bytes: self.number(),
            ip_bytes: self.number(),
            ttl: (self.byte(), self.byte()),
            tcp_flags: self.number() as u16,
            stream_bytes: self.number(),
            retransmissions: self.number() as u32,
            out_of_order: self.number() as u32,
            overlaps: self.number() as u32,
            conflicts: self.number() as u32,
            gaps: self.number() as u32,
            gap_bytes: self.number(),
            rtt_min_ns: self.option(Self::number),
        }
    }

    fn tunnels(&mut self) -> Path {
        let mut path = Path::NONE;
        for _ in 0..self.byte() % 4 {
            let (kind, id) = (self.of(&[Kind::Gre, Kind::Vxlan, Kind::Geneve]), self.number());
            path = path.through(Tunnel { kind, id: id as u32 }).unwrap_or(path);
        }
        path
    }

    fn record(&mut self) -> FlowRecord {
        use TcpState::{Closed, Established, FinWait1, SynSent, TimeWait};
        let is_v6 = self.is();
        FlowRecord {
            id: self.number(),
            client: self.address(is_v6),
            server: self.address(is_v6),
            client_port: self.number() as u16,
            server_port: self.number() as u16,
            protocol: self.of(&[6, 17, 1, 58, 132, 50, 253, 0]),
            icmp: self.option(|own| (own.byte(), own.byte())),
            vlans: [self.number() as u16, self.number() as u16],
            tunnels: self.tunnels(),
            port: self.number() as u16,
            start_ns: self.number(),
            end_ns: self.number(),
            sides: [self.side(), self.side()],
            state: self.of(&[
                FlowState::New,
                FlowState::Established,
                FlowState::Closed,
                FlowState::Bypassed,
            ]),
            reason: self.of(&[
                Reason::Active,
                Reason::Timeout,
                Reason::Closed,
                Reason::Evicted,
                Reason::Shutdown,
            ]),
            tcp: self.option(|own| own.of(&[SynSent, Established, FinWait1, TimeWait, Closed])),
            handshake_rtt_ns: self.option(Self::number),
            application: self.of(&[None, Some("tls"), Some("http"), Some("failed")]),
            is_alerted: self.is(),
        }
    }
}

/// What an application session says.
#[derive(Default)]
struct Said {
    transactions: Vec<Transaction>,
    files: Vec<File>,
}

impl Sink for Said {
    fn piece(&mut self, _: &Piece<'_>) {}

    fn transaction(&mut self, transaction: &Transaction, progress: Progress) {
        if progress == Progress::Finished {
            self.transactions.push(transaction.clone());
        }
    }

    fn file(&mut self, file: &File) {
        self.files.push(file.clone());
    }

    fn anomaly(&mut self, _: &applayer::Anomaly) {}
}

/// Transactions and files of bytes that both ends send in turn.
fn said(input: &mut Input<'_>) -> Said {
    let responder = input.of(&[80, 25, 21, 22, 53, 443]);
    let ports = Ports { opener: 50_000, responder };
    let transport = input.of(&[Transport::Stream, Transport::Datagram]);
    let start = Start { transport, ports, is_midstream: input.is() };
    let (mut said, mut session) = (Said::default(), Application::new(start));
    let (limits, mut offsets) = (Limits::default(), [0; 2]);
    for _ in 0..input.byte() % 16 {
        let direction = input.of(&[Direction::ToServer, Direction::ToClient]);
        let (bytes, offset) = (input.bytes(), &mut offsets[direction as usize]);
        match transport {
            Transport::Datagram => session.datagram(&limits, direction, &bytes, 1, &mut said),
            Transport::Stream => session.data(&limits, direction, *offset, &bytes, 1, &mut said),
        };
        *offset += bytes.len() as u64;
    }
    session.finish(&limits, 1, &mut said);
    said
}

/// Writes events of an input. Each is one line, an object of JSON with time and type, and says of names and numbers what it was
/// given.
///
/// # Panics
/// It is not.
pub(crate) fn eve(bytes: &[u8]) {
    let mut input = Input(bytes);
    let eve = Eve { community_id_seed: input.option(|own| own.number() as u16) };
    let (interface, msg) = (input.text(), input.text());
    while !input.0.is_empty() {
        let kind = input.byte() % 7;
        let record = input.record();
        let at_ns = input.number();
        let context = Context { in_iface: &interface, at_ns, ..<_>::default() };
        let origin = Origin {
            flow_id: input.option(|_| record.id),
            src: (record.client, record.client_port),
            dst: (record.server, record.server_port),
            protocol: record.protocol,
            icmp: record.icmp,
            vlans: record.vlans,
            in_iface: &interface,
            at_ns,
        };
        let mut out = Vec::new();
        match kind {
            0 => eve.flow(&record, context, &mut out),
            1 => eve.netflow(&record, context, &mut out),
            2 => {
                use AnomalyKind::{Checksum, Conflict, Gap, ResetOutOfWindow};
                let anomaly = Anomaly {
                    kind: input.of(&[Conflict, Gap, Checksum, ResetOutOfWindow]),
                    flow_id: origin.flow_id,
                    protocol: record.protocol,
                    src: origin.src,
                    dst: origin.dst,
                    vlans: record.vlans,
                    range: input.option(|own| Range { offset: own.number(), bytes: own.number() }),
                };
                eve.anomaly(&anomaly, context, &mut out);
            }
            3 => {
                let anomaly = ApplicationAnomaly {
                    event: &msg,
                    layer: "proto_parser",
                    application: record.application,
                    transaction_id: input.option(Input::number),
                };
                eve.application_anomaly(&origin, &anomaly, &mut out);
            }
            4 => {
                let association = AssociationEvent {
                    event: "up",
                    is_out: input.is(),
                    spi: input.option(|own| own.number() as u32),
                    reqid: input.option(|own| own.number() as u32),
                    number: input.option(|own| own.number() as u32),
                    source: record.client,
                    destination: record.server,
                    counts: input.option(|own| (own.number(), own.number())),
                    moved: input.option(|_| origin.dst),
                    at_ns,
                };
                eve.association(&association, &mut out);
            }
            _ => {
                let said = said(&mut input);
                let (metadata, category) = ([(input.text(), input.text())], input.text());
                let alert = Alert {
                    decision: input.of(&[Decision::Allowed, Decision::Blocked]),
                    gid: input.number() as u32,
                    sid: input.number() as u32,
                    rev: input.number() as u32,
                    msg: &msg,
                    category: &category,
                    priority: input.byte(),
                    metadata: &metadata[..usize::from(input.is())],
                    to_server: input.option(Input::is),
                    application: record.application,
                    protocols: Protocols {
                        to_server: input.is().then_some("http"),
                        original: input.is().then_some("smtp"),
                        ..<_>::default()
                    },
                    transaction_id: input.option(Input::number),
                    transaction: said.transactions.first(),
                    files: &said.files,
                };
                eve.alert(&origin, &alert, &mut out);
                let dropped = Drop {
                    len: input.number(),
                    why: match input.byte() % 4 {
                        0 => Dropped::Rule(alert),
                        1 => Dropped::Flow,
                        2 => Dropped::Stream,
                        _ => Dropped::Limit,
                    },
                    to_server: alert.to_server,
                };
                eve.dropped(&origin, &dropped, &mut out);
                for transaction in &said.transactions {
                    eve.transaction(&origin, transaction, &mut out);
                }
                for file in &said.files {
                    let transaction = said.transactions.iter().find(|_| input.is());
                    eve.file(&origin, record.application, transaction, file, &mut out);
                }
            }
        }
        check_lines(&out, &interface, &msg, &record);
    }
}

fn check_lines(out: &[u8], interface: &str, msg: &str, record: &FlowRecord) {
    assert!(out.is_empty() || out.ends_with(b"\n"));
    for line in out.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
        let event: Value = serde_json::from_slice(line)
            .unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(line)));
        assert!(event["timestamp"].is_string(), "{event}");
        let kind = event["event_type"].as_str().expect("a type");
        let is_named = kind != "ipsec" && !interface.is_empty();
        assert_eq!(event.get("in_iface").and_then(Value::as_str), is_named.then_some(interface));
        if let Some(flow) = event.get("flow_id") {
            assert_eq!(flow.as_u64(), Some(record.id));
        }
        if kind == "alert" {
            assert_eq!(event["alert"]["signature"], msg);
        }
        if kind == "flow" {
            assert_eq!(event["flow"]["pkts_toserver"].as_u64(), Some(record.sides[0].packets));
            assert_eq!(event["flow"]["bytes_toclient"].as_u64(), Some(record.sides[1].bytes));
        }
    }
}

/// Writes IPFIX messages of an input. A collector that knows RFC 7011 alone reads of each flow what came since its last record.
///
/// # Panics
/// It does not.
pub(crate) fn ipfix(bytes: &[u8]) {
    let mut input = Input(bytes);
    let (len_max, domain) = (512 + input.number() as usize % 4_000, input.number() as u32);
    let mut records = Vec::new();
    while !input.0.is_empty() && records.len() < RECORDS_MAX {
        records.push(input.record());
    }
    // What came since the last record of a flow that goes on.
    let mut before: HashMap<u64, [(u64, u64); 2]> = HashMap::new();
    let mut expected = Vec::new();
    for record in &records {
        let totals = record.sides.map(|side| (side.packets, side.ip_bytes));
        let is_end = record.reason != Reason::Active;
        let last = match is_end {
            true => before.remove(&record.id),
            false => before.insert(record.id, totals),
        };
        let last = last.unwrap_or_default();
        let since = |side: usize| {
            let (now, last) = (totals[side], last[side]);
            (now.0.saturating_sub(last.0), now.1.saturating_sub(last.1))
        };
        let (client, server) = (since(0), since(1));
        if client.0 > 0 {
            expected.push((record.id, client, record.client, record.server));
        }
        if server.0 > 0 {
            expected.push((record.id, server, record.server, record.client));
        }
    }
    let mut session = Session::default();
    let mut got = Vec::new();
    for message in flowlog::ipfix::messages(&records, RECORDS_MAX, len_max, domain) {
        got.extend(session.read(&message));
    }
    assert!(session.longest <= len_max && session.domain == domain);
    assert_eq!((session.missing, session.unknown_sets, session.template_sets), (0, 0, 1));
    assert_eq!(got.len(), expected.len());
    for (got, (id, (packets, bytes), from, to)) in got.iter().zip(expected) {
        let [source, destination] = if from.is_ipv4() { [8, 12] } else { [27, 28] };
        assert_eq!(
            (got.number(148), got.number(2), got.number(1)),
            (Some(id), Some(packets), Some(bytes))
        );
        assert_eq!((got.address(source), got.address(destination)), (Some(from), Some(to)));
    }
}
