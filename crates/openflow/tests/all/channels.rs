//! The agent: the same however its bytes are cut, bounded, right in what it refuses.

use std::time::Duration;

use openflow::agent::{Agent, ChannelId, ChannelKind, Closed, Settings};
use openflow::flow::{FlowFilter, InReason, PacketIn, PacketOut};
use openflow::message::{
    AsyncConfig, BundleAdd, BundleControl, BundleFlags, BundleStep, Hello, MultipartReply,
    MultipartRequest, Role, RoleMessage,
};
use openflow::port::PortReason;
use openflow::table::{Capabilities, SwitchConfig};
use openflow::{
    Action, Body, ErrorCode, Extensions, Field, FlowCommand, FlowMod, Header, Instruction, Match,
    Message, PortNo, Version, decode, encode, encode_with,
};

use crate::plain::{FLOWS_MAX, Plain, port};
use crate::random::{Random, seeds};

const NOW: Duration = Duration::from_secs(1);

/// An agent with its switch, and what comes out as messages.
struct Bench {
    agent: Agent,
    switch: Plain,
}

fn bytes_of(version: Version, xid: u32, body: Body) -> Vec<u8> {
    encode(&Message::new(version, xid, body)).unwrap()
}

fn hello(version: Version) -> Vec<u8> {
    bytes_of(version, 1, Body::Hello(Hello::default()))
}

/// Messages in bytes.
fn messages(mut bytes: &[u8]) -> Vec<Message> {
    let mut all = Vec::new();
    while let Some(header) = Header::read(bytes) {
        let (one, rest) = bytes.split_at(usize::from(header.len));
        all.push(decode(one).unwrap());
        bytes = rest;
    }
    all
}

impl Bench {
    fn new(settings: Settings) -> Self {
        Self { agent: Agent::new(settings), switch: Plain::new() }
    }

    /// A channel of a version after both HELLOs.
    fn open(&mut self, version: Version) -> ChannelId {
        let id = self.agent.open(ChannelKind::Controller, NOW);
        self.give(id, &hello(version));
        assert_eq!(self.agent.version(id), Some(version));
        self.take(id);
        id
    }

    fn give(&mut self, id: ChannelId, bytes: &[u8]) {
        self.agent.receive(id, bytes, &mut self.switch, NOW);
    }

    /// Everything that is sent, until nothing waits.
    fn take(&mut self, id: ChannelId) -> Vec<Message> {
        let mut bytes = Vec::new();
        while !self.agent.outgoing(id).is_empty() {
            bytes.extend_from_slice(self.agent.outgoing(id));
            self.agent.sent(id, self.agent.outgoing(id).len());
            self.give(id, &[]);
        }
        messages(&bytes)
    }

    fn ask(&mut self, id: ChannelId, version: Version, body: Body) -> Vec<Message> {
        self.give(id, &bytes_of(version, 7, body));
        self.take(id)
    }

    /// The error that a request gets.
    fn error(&mut self, id: ChannelId, version: Version, body: Body) -> ErrorCode {
        match &self.ask(id, version, body)[..] {
            [Message { xid: 7, body: Body::Error(error), .. }] => error.code,
            other => panic!("{other:?}"),
        }
    }
}

fn flow(n: u32) -> FlowMod {
    FlowMod {
        matches: Match::new().with(Field::EthType, 0x800_u16).with(Field::Ipv4Dst, n),
        instructions: vec![Instruction::ApplyActions(vec![Action::output(PortNo(2))])],
        ..FlowMod::new(FlowCommand::Add)
    }
}

#[test]
fn any_cut_of_the_stream_gives_the_same() {
    for seed in seeds() {
        let mut random = Random(seed);
        let version = random.version();
        let mut stream = hello(version);
        for _ in 0..60 {
            let mut bytes = encode(&random.message(version)).unwrap();
            // Now and then a broken body.
            if random.below(5) == 0 && bytes.len() > 8 {
                let at = 8 + random.below(bytes.len() - 8);
                bytes[at] = random.next() as u8;
            }
            stream.extend(bytes);
        }
        if random.coin() {
            stream.extend([version.wire(), 2, 0, 7, 0, 0, 0, 0, 1, 2, 3]); // shorter than a header
        }
        let run = |mut cuts: Box<dyn FnMut() -> usize>| {
            let mut bench = Bench::new(Settings::default());
            let id = bench.agent.open(ChannelKind::Controller, NOW);
            let (mut rest, mut out) = (&stream[..], Vec::new());
            while !rest.is_empty() {
                let (head, tail) = rest.split_at(cuts().min(rest.len()));
                rest = tail;
                bench.give(id, head);
                let some = cuts().min(bench.agent.outgoing(id).len());
                out.extend_from_slice(&bench.agent.outgoing(id)[..some]);
                bench.agent.sent(id, some);
            }
            while !bench.agent.outgoing(id).is_empty() {
                out.extend_from_slice(bench.agent.outgoing(id));
                bench.agent.sent(id, usize::MAX);
                bench.give(id, &[]);
            }
            (out, bench.agent.closed(id).cloned(), bench.switch.flows, bench.switch.groups)
        };
        let whole = run(Box::new(|| usize::MAX));
        let byte = run(Box::new(|| 1));
        let mut sizes = Random(seed ^ 1);
        let cut = run(Box::new(move || 1 + sizes.below(200)));
        assert!(whole == byte && whole == cut, "seed {seed}");
    }
}

#[test]
fn versions_are_agreed_on() {
    let both = Settings::default();
    let only_13 = Settings { versions: vec![Version::V13], ..Settings::default() };
    let with = |version: u8, bitmap: Option<u32>| {
        let hello = Hello { versions: bitmap.into_iter().collect() };
        encode(&Message { version, xid: 5, body: Body::Hello(hello) }).unwrap()
    };
    let cases = [
        (&both, with(1, None), Some(Version::V10)),
        (&both, with(4, None), Some(Version::V13)),
        (&both, with(4, Some(0x10)), Some(Version::V13)),
        (&both, with(6, Some(0x7e)), Some(Version::V13)),
        (&both, with(6, Some(0x02)), Some(Version::V10)),
        (&both, with(6, None), Some(Version::V13)),
        (&both, with(3, None), None),
        (&both, with(6, Some(0x60)), None),
        (&only_13, with(1, None), None),
        (&only_13, with(6, Some(0x12)), Some(Version::V13)),
    ];
    for (settings, hello, expected) in cases {
        let mut bench = Bench::new(settings.clone());
        let id = bench.agent.open(ChannelKind::Controller, NOW);
        bench.give(id, &hello);
        assert_eq!(bench.agent.version(id), expected, "{hello:?}");
        let sent = bench.take(id);
        assert!(matches!(sent[0].body, Body::Hello(_)));
        if expected.is_none() {
            let Body::Error(error) = &sent[1].body else { panic!("{sent:?}") };
            assert_eq!(error.code, ErrorCode::HelloFailedIncompatible);
            assert!(error.data.starts_with(b"This switch speaks"));
            assert_eq!(bench.agent.closed(id), Some(&Closed::NoCommonVersion));
            assert!(!bench.agent.wants_input(id));
        }
    }
}

#[test]
fn garbage_ends_its_channel_only() {
    let mut bench = Bench::new(Settings::default());
    let good = bench.open(Version::V13);
    let web = bench.agent.open(ChannelKind::Service, NOW);
    bench.give(web, b"GET / HTTP/1.1\r\nHost: switch\r\n\r\n");
    assert_eq!(bench.agent.closed(web), Some(&Closed::NoHello));

    let other = bench.open(Version::V13);
    bench.give(other, &bytes_of(Version::V10, 9, Body::EchoRequest(vec![1; 100])));
    assert_eq!(bench.agent.closed(other), Some(&Closed::Garbage(ErrorCode::BadRequestVersion)));
    let Body::Error(error) = &bench.take(other)[0].body else { panic!() };
    assert_eq!(error.code, ErrorCode::BadRequestVersion);
    assert_eq!(error.data[..8], [1, 2, 0, 108, 0, 0, 0, 9]);
    assert_eq!(error.data.len(), 64);

    let short = bench.open(Version::V10);
    bench.give(short, &[1, 2, 0, 3, 0, 0, 0, 9]);
    assert_eq!(bench.agent.closed(short), Some(&Closed::Garbage(ErrorCode::BadRequestLen)));

    let reply = bench.ask(good, Version::V13, Body::EchoRequest(vec![5]));
    assert_eq!(reply, [Message::new(Version::V13, 7, Body::EchoReply(vec![5]))]);
    // A message of an unknown type, an unknown experimenter, a wrong length: an error each, and the channel goes on.
    bench.give(good, &[4, 99, 0, 8, 0, 0, 0, 1]);
    bench.give(good, &[4, 4, 0, 16, 0, 0, 0, 2, 0, 0x12, 0x34, 0x56, 0, 0, 0, 0]);
    bench.give(good, &[4, 5, 0, 12, 0, 0, 0, 3, 0, 0, 0, 0]);
    // Unknown types of experimenters of which others are known; a port's setting that 1.3 does not have.
    bench.give(good, &[4, 4, 0, 16, 0, 0, 0, 4, 0, 0, 0x23, 0x20, 0, 0, 0x27, 0x0f]);
    bench.give(good, &[4, 4, 0, 16, 0, 0, 0, 5, 0x4f, 0x4e, 0x46, 0, 0, 0, 0x27, 0x0f]);
    let mut port = vec![4, 16, 0, 40, 0, 0, 0, 6, 0, 0, 0, 1];
    port.resize(40, 0);
    (port[28], port[24]) = (0x80, 0x80);
    bench.give(good, &port);
    (port[7], port[28], port[24], port[35]) = (7, 0, 0, 1);
    bench.give(good, &port);
    let codes = bench.take(good).into_iter().map(|m| match m.body {
        Body::Error(error) => (m.xid, error.code),
        other => panic!("{other:?}"),
    });
    let expected = [
        (1, ErrorCode::BadRequestType),
        (2, ErrorCode::BadRequestExperimenter),
        (3, ErrorCode::BadRequestLen),
        (4, ErrorCode::BadRequestExperimenterType),
        (5, ErrorCode::BadRequestExperimenterType),
        (6, ErrorCode::PortModConfig),
        (7, ErrorCode::PortModAdvertise),
    ];
    assert_eq!(codes.collect::<Vec<_>>(), expected);
    // An error is not answered.
    bench.give(good, &[4, 1, 0, 9, 0, 0, 0, 1, 0]);
    assert_eq!(bench.take(good), []);
    assert_eq!(bench.agent.closed(good), None);
}

#[test]
fn wrong_matches_have_their_errors() {
    let mut bench = Bench::new(Settings::default());
    let id = bench.open(Version::V13);
    let cases = [
        (Match::new().with(Field::TcpDst, 80_u16), ErrorCode::BadMatchPrereq),
        (
            Match::new().with(Field::EthType, 0x800_u16).with(Field::Ipv6Src, 1_u128),
            ErrorCode::BadMatchPrereq,
        ),
        (
            Match::new().with(Field::VlanVid, 0_u16).with(Field::VlanPcp, 1_u8),
            ErrorCode::BadMatchPrereq,
        ),
        // What a field needs comes before it.
        (
            Match::new().with(Field::Ipv4Dst, 1_u32).with(Field::EthType, 0x800_u16),
            ErrorCode::BadMatchPrereq,
        ),
        (Match::new().with_masked(Field::InPort, 1, 1), ErrorCode::BadMatchMask),
    ];
    for (matches, code) in cases {
        let wrong = FlowMod { matches, ..FlowMod::new(FlowCommand::Add) };
        assert_eq!(bench.error(id, Version::V13, Body::FlowMod(wrong)), code);
    }
    assert!(bench.switch.flows.is_empty());
}

#[test]
fn one_master_and_slaves_that_read() {
    let mut bench = Bench::new(Settings::default());
    let (first, second) = (bench.open(Version::V13), bench.open(Version::V13));
    let role = |role, generation_id| Body::RoleRequest(RoleMessage { role, generation_id });
    bench.ask(first, Version::V13, role(Role::Master, 10));
    assert_eq!(bench.agent.role(first), Some(Role::Master));
    bench.ask(second, Version::V13, role(Role::Master, 11));
    assert_eq!(bench.agent.role(first), Some(Role::Slave));
    assert_eq!(bench.agent.role(second), Some(Role::Master));
    assert_eq!(bench.error(first, Version::V13, role(Role::Master, 10)), ErrorCode::RoleStale);
    assert_eq!(
        bench.error(first, Version::V13, Body::FlowMod(flow(1))),
        ErrorCode::BadRequestIsSlave
    );
    let out = PacketOut { buffer_id: None, in_port: PortNo::ANY, actions: vec![], data: vec![1] };
    assert_eq!(
        bench.error(first, Version::V13, Body::PacketOut(out)),
        ErrorCode::BadRequestIsSlave
    );
    let told = bench.ask(first, Version::V13, role(Role::NoChange, 0));
    let expected = RoleMessage { role: Role::Slave, generation_id: 11 };
    assert_eq!(told[0].body, Body::RoleReply(expected));
    // Old and new by the circular distance.
    bench.ask(second, Version::V13, role(Role::Master, 11 + (1 << 62)));
    assert_eq!(bench.agent.role(second), Some(Role::Master));
    // The slave hears of ports, not of packets.
    bench.agent.port_status(PortReason::Modify, &port(1));
    bench.agent.packet_in(&packet(100), Some(64), NOW);
    let kinds = |all: Vec<Message>| {
        all.iter().map(|m| matches!(m.body, Body::PacketIn(_))).collect::<Vec<_>>()
    };
    assert_eq!(kinds(bench.take(first)), [false]);
    assert_eq!(kinds(bench.take(second)), [false, true]);
    let config = AsyncConfig { packet_in: [0, 2], ..AsyncConfig::default() };
    bench.ask(first, Version::V13, Body::SetAsync(config));
    let told = bench.ask(first, Version::V13, Body::GetAsyncRequest);
    assert_eq!(told[0].body, Body::GetAsyncReply(config));
    bench.agent.packet_in(&packet(100), Some(64), NOW);
    assert_eq!(kinds(bench.take(first)), [true]);
}

fn packet(len: usize) -> PacketIn {
    PacketIn {
        buffer_id: None,
        total_len: len as u16,
        reason: InReason::Action,
        table: 0,
        cookie: 0,
        matches: Match::new().with(Field::InPort, 3_u32),
        data: (0..len).map(|n| n as u8).collect(),
    }
}

#[test]
fn packets_wait_in_buffers() {
    let mut bench = Bench::new(Settings { buffers: 2, ..Settings::default() });
    for version in [Version::V10, Version::V13] {
        let id = bench.open(version);
        bench.agent.packet_in(&packet(200), Some(64), NOW);
        let Body::PacketIn(told) = &bench.take(id)[0].body else { panic!() };
        assert_eq!((told.data.len(), told.total_len), (64, 200));
        let buffer_id = told.buffer_id;
        assert!(buffer_id.is_some());
        let actions = vec![Action::output(PortNo(1))];
        let out = PacketOut { buffer_id, in_port: PortNo::ANY, actions, data: vec![] };
        bench.ask(id, version, Body::PacketOut(out.clone()));
        let sent = bench.switch.sent.pop().unwrap();
        assert_eq!((sent.data, sent.in_port), (packet(200).data, PortNo(3)));
        let again = bench.error(id, version, Body::PacketOut(out));
        assert_eq!(again, ErrorCode::BadRequestBufferUnknown);

        // A flow takes its packet along.
        bench.agent.packet_in(&packet(200), Some(64), NOW);
        let Body::PacketIn(told) = &bench.take(id)[0].body else { panic!() };
        let with_packet = FlowMod { buffer_id: told.buffer_id, ..flow(1) };
        assert_eq!(bench.ask(id, version, Body::FlowMod(with_packet)), []);
        let sent = bench.switch.sent.pop().unwrap();
        assert_eq!(sent.actions, [Action::output(PortNo::TABLE)]);

        // Whole packets are not kept; short ones neither.
        for (len, max) in [(200, 0xffff), (60, 128)] {
            bench.agent.packet_in(&packet(len), Some(max), NOW);
            let Body::PacketIn(told) = &bench.take(id)[0].body else { panic!() };
            assert_eq!((told.buffer_id, told.data.len()), (None, len));
        }
        bench.agent.remove(id);
    }
}

#[test]
fn packets_are_limited_by_rate() {
    let settings = Settings { packet_in_rate: 100, packet_in_burst: 10, ..Settings::default() };
    let mut bench = Bench::new(settings);
    let id = bench.open(Version::V13);
    let mut send = |milliseconds: u64| {
        for _ in 0..50 {
            let now = Duration::from_millis(milliseconds);
            bench.agent.packet_in(&packet(60), None, now);
        }
        bench.take(id).len()
    };
    assert_eq!([send(5000), send(5050), send(5055), send(5060), send(9000)], [10, 5, 0, 1, 10]);
    assert_eq!(bench.agent.counters().dropped_rate, 250 - 26);
}

/// Nicira's form of PACKET_IN in 1.0 says what that of 1.3 says.
#[test]
fn packets_come_in_the_form_that_is_asked_for() {
    let mut bench = Bench::new(Settings::default());
    let id = bench.open(Version::V10);
    let own = PacketIn { table: 3, cookie: 9, ..packet(60) };
    let form = |bench: &mut Bench, format: u32| {
        let told = bench.ask(id, Version::V10, Body::SetPacketInFormat(format));
        bench.agent.packet_in(&own, None, NOW);
        told.into_iter().chain(bench.take(id)).map(|message| message.body).collect::<Vec<_>>()
    };
    let [Body::PacketIn(plain)] = &form(&mut bench, 0)[..] else { panic!() };
    assert_eq!((plain.table, plain.cookie), (0, u64::MAX));
    assert_eq!(form(&mut bench, 1), [Body::NiciraPacketIn(own.clone())]);
    let refused = form(&mut bench, 2);
    let [Body::Error(error), Body::NiciraPacketIn(_)] = &refused[..] else { panic!("{refused:?}") };
    assert_eq!(error.code, ErrorCode::BadRequestEperm);
}

/// Nicira's extension of 1.0: FLOW_MODs name a table, and which cookies they are about.
#[test]
fn flow_mods_of_10_name_tables_and_cookies() {
    let mut bench = Bench::new(Settings::default());
    let id = bench.open(Version::V10);
    let with_tables = Extensions { flow_mod_table_id: true };
    let of = |command: FlowCommand, table: u8, cookie: u64| FlowMod {
        table,
        cookie,
        ..FlowMod::new(command)
    };
    // Not agreed on: no such command.
    let own = Body::NiciraFlowMod(of(FlowCommand::Add, 1, 5));
    let bytes = encode_with(&Message::new(Version::V10, 5, own), with_tables).unwrap();
    bench.give(id, &bytes);
    let [Message { body: Body::Error(error), .. }] = &bench.take(id)[..] else { panic!() };
    assert_eq!((error.code, bench.switch.flows.len()), (ErrorCode::FlowModCommand, 0));
    bench.ask(id, Version::V10, Body::SetFlowModTableId(true));
    let mut give = |own: FlowMod| {
        let message = Message::new(Version::V10, 5, Body::NiciraFlowMod(own));
        bench.give(id, &encode_with(&message, with_tables).unwrap());
        assert_eq!(bench.take(id), []);
        let flows = &bench.switch.flows;
        flows.iter().map(|flow| (flow.table, flow.cookie)).collect::<Vec<_>>()
    };
    assert_eq!(give(of(FlowCommand::Add, 1, 5)), [(1, 5)]);
    assert_eq!(give(of(FlowCommand::Add, 0xff, 6)), [(1, 5), (0, 6)]);
    assert_eq!(give(of(FlowCommand::Add, 2, 0x15)), [(1, 5), (0, 6), (2, 0x15)]);
    let modify = |cookie, cookie_mask, new_cookie| FlowMod {
        cookie_mask,
        new_cookie,
        ..of(FlowCommand::Modify, 0xff, cookie)
    };
    assert_eq!(give(modify(5, 0xf, Some(9))), [(1, 9), (0, 6), (2, 9)]);
    assert_eq!(give(modify(5, 0xf, Some(8))), [(1, 9), (0, 6), (2, 9)], "and adds none");
    assert_eq!(give(modify(9, u64::MAX, None)), [(1, 9), (0, 6), (2, 9)]);
    let delete = |table, cookie_mask| FlowMod { cookie_mask, ..of(FlowCommand::Delete, table, 9) };
    assert_eq!(give(delete(0, u64::MAX)), [(1, 9), (0, 6), (2, 9)]);
    assert_eq!(give(delete(1, u64::MAX)), [(0, 6), (2, 9)]);
    assert_eq!(give(delete(0xff, 1)), [(0, 6)]);
    assert_eq!(give(of(FlowCommand::Delete, 0xff, 0)), []);
    // A new flow has no cookie of others.
    let add = FlowMod { cookie_mask: 1, ..of(FlowCommand::Delete, 0, 1) };
    let mut bytes = encode(&Message::new(Version::V10, 5, Body::NiciraFlowMod(add))).unwrap();
    bytes[25] = 0;
    bench.give(id, &bytes);
    let [Message { body: Body::Error(error), .. }] = &bench.take(id)[..] else { panic!() };
    assert_eq!(error.code, ErrorCode::NxmInvalid);
    bench.ask(id, Version::V10, Body::SetFlowModTableId(false));
    let plain = FlowMod::new(FlowCommand::Add);
    bench.give(id, &bytes_of(Version::V10, 6, Body::FlowMod(plain)));
    assert_eq!(bench.switch.flows.len(), 1);
}

/// A priority in Nicira's form of the tag is that of a tag that is there.
#[test]
fn priorities_of_10_need_a_tag() {
    let mut bench = Bench::new(Settings::default());
    let id = bench.open(Version::V10);
    let tagged = Match::new().with_masked(Field::VlanVid, 0x1000, 0x1000);
    let matches = tagged.with(Field::VlanPcp, 7_u8);
    let add = FlowMod { matches, ..FlowMod::new(FlowCommand::Add) };
    let good = encode(&Message::new(Version::V10, 5, Body::NiciraFlowMod(add))).unwrap();
    let field = [0, 0, 9, 4, 0xf0, 0, 0xf0, 0];
    let at = good.windows(8).position(|own| own == field).expect("the tag with its mask") + 4;
    for (tag, count) in [([0xe0, 0, 0xe0, 0], 0), ([0xe0, 0, 0xf0, 0], 0), ([0xf0, 0, 0xf0, 0], 1)]
    {
        let mut bytes = good.clone();
        bytes[at..at + 4].copy_from_slice(&tag);
        bench.give(id, &bytes);
        let answers = bench.take(id);
        assert_eq!(bench.switch.flows.len(), count, "{tag:x?}");
        let Some(Message { body: Body::Error(error), .. }) = answers.first() else { continue };
        assert_eq!((error.code, count), (ErrorCode::BadMatchPrereq, 0), "{tag:x?}");
    }
}

#[test]
fn a_tool_is_not_flooded() {
    let mut bench = Bench::new(Settings::default());
    let id = bench.agent.open(ChannelKind::Service, NOW);
    bench.give(id, &hello(Version::V13));
    bench.take(id);
    bench.agent.packet_in(&packet(60), None, NOW);
    bench.agent.port_status(PortReason::Add, &port(9));
    assert_eq!(bench.take(id), []);
    assert!(!bench.agent.has_controller());
    let config = SwitchConfig { miss_send_len: 32, ..SwitchConfig::default() };
    bench.ask(id, Version::V13, Body::SetConfig(config));
    bench.agent.packet_in(&packet(60), None, NOW);
    let Body::PacketIn(told) = &bench.take(id)[0].body else { panic!() };
    assert_eq!(told.data.len(), 32);
    let told = bench.ask(id, Version::V13, Body::GetConfigRequest);
    assert_eq!(told[0].body, Body::GetConfigReply(config));
}

#[test]
fn a_dump_waits_for_its_reader() {
    let settings = Settings { out_max: 100_000, ..Settings::default() };
    for version in [Version::V10, Version::V13] {
        let mut bench = Bench::new(settings.clone());
        let id = bench.open(version);
        for n in 0..5000 {
            bench.give(id, &bytes_of(version, n, Body::FlowMod(flow(n))));
        }
        let request = MultipartRequest::Flow(FlowFilter::all());
        let request = Body::MultipartRequest { more: false, request };
        bench.give(id, &bytes_of(version, 70, request));
        bench.give(id, &bytes_of(version, 71, Body::BarrierRequest));
        assert!(bench.agent.outgoing(id).len() < 200_000, "{}", bench.agent.outgoing(id).len());
        assert!(!bench.agent.wants_input(id));
        // Packets do not pile up behind it.
        for _ in 0..10_000 {
            bench.agent.packet_in(&packet(1000), None, NOW);
        }
        assert!(bench.agent.outgoing(id).len() < 200_000);
        assert!(bench.agent.counters().dropped_full > 0);
        let all = bench.take(id);
        assert!(bench.agent.wants_input(id));
        assert_eq!(all.last().map(|m| (m.xid, &m.body)), Some((71, &Body::BarrierReply)));
        let parts = all.iter().filter_map(|m| match &m.body {
            Body::MultipartReply { more, reply: MultipartReply::Flow(flows) } => {
                assert_eq!(m.xid, 70);
                Some((*more, flows.len()))
            }
            _ => None,
        });
        let parts: Vec<(bool, usize)> = parts.collect();
        assert_eq!(parts.iter().map(|(_, n)| n).sum::<usize>(), 5000);
        assert!(parts[..parts.len() - 1].iter().all(|(more, _)| *more));
        assert!(!parts[parts.len() - 1].0);
    }
}

#[test]
fn a_reader_that_never_reads_is_disconnected() {
    let mut bench = Bench::new(Settings { out_max: 10_000, ..Settings::default() });
    let (slow, fast) = (bench.open(Version::V13), bench.open(Version::V13));
    for _ in 0..1000 {
        bench.agent.port_status(PortReason::Modify, &port(1));
        bench.take(fast);
    }
    assert_eq!(bench.agent.closed(slow), Some(&Closed::SlowReader));
    assert_eq!(bench.agent.closed(fast), None);
    assert!(bench.agent.outgoing(slow).len() < 21_000);
}

#[test]
fn a_silent_peer_is_probed_and_disconnected() {
    let mut bench = Bench::new(Settings::default());
    let id = bench.open(Version::V13);
    let at = |ms: u64| NOW + Duration::from_millis(ms);
    assert_eq!(bench.agent.deadline(), Some(at(5000)));
    bench.agent.tick(at(4999));
    assert_eq!(bench.take(id), []);
    bench.agent.tick(at(5000));
    assert_eq!(bench.take(id)[0].body, Body::EchoRequest(vec![]));
    bench.agent.tick(at(9999));
    assert_eq!((bench.take(id), bench.agent.closed(id)), (vec![], None));
    bench.agent.tick(at(10_000));
    assert_eq!(bench.agent.closed(id), Some(&Closed::Silent));
    assert_eq!(bench.agent.deadline(), None);
}

#[test]
fn a_peer_that_reads_a_long_dump_slowly_is_alive() {
    let mut bench = Bench::new(Settings { out_max: 10_000, ..Settings::default() });
    let id = bench.open(Version::V13);
    for n in 0..FLOWS_MAX as u32 {
        bench.ask(id, Version::V13, Body::FlowMod(flow(n)));
    }
    let request = MultipartRequest::Flow(FlowFilter::all());
    let body = Body::MultipartRequest { more: false, request };
    bench.give(id, &bytes_of(Version::V13, 7, body));
    let (mut now, mut flows, mut bytes) = (NOW, 0, Vec::new());
    while !bench.agent.outgoing(id).is_empty() {
        let is_read = bench.agent.wants_input(id);
        let piece = bench.agent.outgoing(id).len().min(if is_read { usize::MAX } else { 2000 });
        bytes.extend_from_slice(&bench.agent.outgoing(id)[..piece]);
        bench.agent.sent(id, piece);
        now += Duration::from_secs(1);
        bench.agent.receive(id, &[], &mut bench.switch, now);
        bench.agent.tick(now);
        assert_eq!(bench.agent.closed(id), None, "after {} bytes", bytes.len());
        // The answers to probes come when all of the dump has been read.
        if bench.agent.wants_input(id) {
            let answer = bytes_of(Version::V13, 0, Body::EchoReply(vec![]));
            bench.agent.receive(id, &answer, &mut bench.switch, now);
        }
    }
    for message in messages(&bytes) {
        if let Body::MultipartReply { reply: MultipartReply::Flow(all), .. } = message.body {
            flows += all.len();
        }
    }
    assert_eq!(flows, FLOWS_MAX);
    // One that takes nothing more is not.
    bench.agent.tick(now + Duration::from_secs(5));
    bench.agent.tick(now + Duration::from_secs(10));
    assert_eq!(bench.agent.closed(id), Some(&Closed::Silent));
}

#[test]
fn last_words_do_not_wait_for_ever() {
    let mut bench = Bench::new(Settings::default());
    let id = bench.open(Version::V13);
    bench.give(id, &[4, 2, 0, 4, 0, 0, 0, 7]); // shorter than a header
    let garbage = Closed::Garbage(ErrorCode::BadRequestLen);
    assert_eq!(bench.agent.closed(id), Some(&garbage));
    bench.agent.tick(NOW + Duration::from_secs(9));
    assert_eq!(bench.agent.closed(id), Some(&garbage));
    assert_eq!(bench.agent.deadline(), Some(NOW + Duration::from_secs(10)));
    bench.agent.tick(NOW + Duration::from_secs(10));
    assert_eq!(bench.agent.closed(id), Some(&Closed::Silent), "the connection is to be closed");
    assert_eq!(bench.agent.deadline(), None);
}

#[test]
fn features_of_1_0_know_no_groups_and_queues_no_port_of_all() {
    let mut bench = Bench::new(Settings::default());
    for version in [Version::V10, Version::V13] {
        let id = bench.open(version);
        let told = bench.ask(id, version, Body::FeaturesRequest);
        let [Message { body: Body::FeaturesReply(features), .. }] = &told[..] else {
            panic!("{told:?}")
        };
        let has_groups = features.capabilities.contains(Capabilities::GROUP_STATS);
        assert_eq!(has_groups, version == Version::V13, "the bit is 1.0's spanning tree");
        let port = if version == Version::V10 { PortNo::ALL } else { PortNo::ANY };
        let request = MultipartRequest::Queue { port, queue: u32::MAX };
        let told = bench.ask(id, version, Body::MultipartRequest { more: false, request });
        let reply = MultipartReply::Queue(vec![]);
        assert_eq!(told[0].body, Body::MultipartReply { more: false, reply });
    }
}

#[test]
fn a_table_mod_names_a_table_that_there_is() {
    let mut bench = Bench::new(Settings::default());
    let id = bench.open(Version::V13);
    for (table, config, wanted) in [
        (0, 0, None),
        (0xff, 0, None),
        (0, 3, Some(ErrorCode::TableModConfig)),
        (0xfe, 0, Some(ErrorCode::TableModTable)),
    ] {
        let told = bench.ask(id, Version::V13, Body::TableMod { table, config });
        let codes = told.iter().map(|own| match &own.body {
            Body::Error(error) => error.code,
            other => panic!("{other:?}"),
        });
        assert_eq!(codes.collect::<Vec<_>>(), wanted.into_iter().collect::<Vec<_>>());
    }
}

#[test]
fn an_unknown_action_is_named_before_its_length() {
    for (version, kind) in [(Version::V10, 12), (Version::V13, 99), (Version::V13, 13)] {
        let body = Body::PacketOut(PacketOut {
            buffer_id: None,
            in_port: PortNo::ANY,
            actions: vec![Action::output(PortNo(1))],
            data: vec![0; 60],
        });
        let mut bytes = bytes_of(version, 7, body);
        let at = if version == Version::V10 { 16 } else { 24 };
        bytes[at..at + 2].copy_from_slice(&u16::to_be_bytes(kind));
        assert_eq!(decode(&bytes), Err(ErrorCode::BadActionType));
    }
}

#[test]
fn a_bundle_is_all_or_nothing() {
    let mut bench = Bench::new(Settings::default());
    let id = bench.open(Version::V13);
    let flags = BundleFlags::ATOMIC | BundleFlags::ORDERED;
    let step = |step| Body::BundleControl(BundleControl { bundle: 1, step, flags });
    let add = |n: u32, flow: FlowMod| {
        let message = Box::new(Message::new(Version::V13, n, Body::FlowMod(flow)));
        bytes_of(Version::V13, n, Body::BundleAdd(BundleAdd { bundle: 1, flags, message }))
    };
    for is_wrong in [true, false] {
        bench.ask(id, Version::V13, step(BundleStep::OpenRequest));
        (0..10).for_each(|n| bench.give(id, &add(100 + n, flow(n))));
        if is_wrong {
            let loops = FlowMod { instructions: vec![Instruction::GotoTable(0)], ..flow(99) };
            bench.give(id, &add(110, loops));
        }
        assert_eq!(bench.switch.flows.len(), 0);
        let closed = bench.ask(id, Version::V13, step(BundleStep::CloseRequest));
        assert_eq!(closed[0].body, step(BundleStep::CloseReply));
        let committed = bench.ask(id, Version::V13, step(BundleStep::CommitRequest));
        if is_wrong {
            let codes: Vec<_> = committed
                .iter()
                .map(|m| match &m.body {
                    Body::Error(error) => (m.xid, error.code),
                    other => panic!("{other:?}"),
                })
                .collect();
            let expected =
                [(110, ErrorCode::BadInstructionTableId), (7, ErrorCode::BundleMsgFailed)];
            assert_eq!(codes, expected);
            assert_eq!(bench.switch.flows.len(), 0);
        } else {
            assert_eq!(committed[0].body, step(BundleStep::CommitReply));
            assert_eq!(bench.switch.flows.len(), 10);
        }
    }
    let again = bench.error(id, Version::V13, step(BundleStep::CommitRequest));
    assert_eq!(again, ErrorCode::BundleId);
}

#[test]
fn a_full_table_loses_nothing() {
    let mut bench = Bench::new(Settings::default());
    let id = bench.open(Version::V13);
    for n in 0..FLOWS_MAX as u32 + 100 {
        bench.give(id, &bytes_of(Version::V13, n, Body::FlowMod(flow(n))));
    }
    let errors = bench.take(id);
    assert_eq!(errors.len(), 100);
    let full =
        |m: &Message| matches!(&m.body, Body::Error(e) if e.code == ErrorCode::FlowModTableFull);
    assert!(errors.iter().all(full));
    assert_eq!(bench.switch.flows.len(), FLOWS_MAX);
}

/// Bundles of all channels share one budget, which they give back when they end.
#[test]
fn bundles_have_a_bound_together() {
    let settings = Settings { bundle_bytes: 10_000, ..Settings::default() };
    let mut bench = Bench::new(settings);
    let flags = BundleFlags::ATOMIC;
    let add = |bundle| {
        let flow = FlowMod::new(FlowCommand::Add);
        let message = Box::new(Message::new(Version::V13, 7, Body::FlowMod(flow)));
        Body::BundleAdd(BundleAdd { bundle, flags, message })
    };
    let fill = |bench: &mut Bench, id, bundle| {
        let taken = (0..1000).take_while(|_| bench.ask(id, Version::V13, add(bundle)).is_empty());
        taken.count()
    };
    let (first, second) = (bench.open(Version::V13), bench.open(Version::V13));
    let many = fill(&mut bench, first, 1);
    assert!((5..100).contains(&many), "{many}");
    assert_eq!(fill(&mut bench, second, 1), 0);
    assert_eq!(bench.error(second, Version::V13, add(2)), ErrorCode::BundleMsgTooMany);
    // A bundle that is discarded, and a channel that ends, leave their place to others.
    let discard = BundleControl { bundle: 1, step: BundleStep::DiscardRequest, flags };
    bench.ask(first, Version::V13, Body::BundleControl(discard));
    assert_eq!(fill(&mut bench, second, 1), many);
    bench.agent.remove(second);
    assert_eq!(fill(&mut bench, first, 1), many);
}

/// Who snoops gets what controllers send and get, from then on; what it says itself is not carried out.
#[test]
fn a_snoop_gets_copies() {
    let mut bench = Bench::new(Settings::default());
    let controller = bench.open(Version::V13);
    bench.ask(controller, Version::V13, Body::BarrierRequest);
    let snoop = bench.agent.open(ChannelKind::Snoop, NOW);
    bench.give(snoop, &hello(Version::V10));
    bench.take(snoop);
    assert!(bench.take(snoop).is_empty(), "nothing from before");
    bench.agent.snoop();
    let tool = bench.agent.open(ChannelKind::Service, NOW);
    for id in [controller, tool] {
        bench.give(id, &hello(Version::V13));
        bench.give(id, &bytes_of(Version::V13, 7, Body::FlowMod(flow(1))));
        bench.give(id, &bytes_of(Version::V13, 8, Body::BarrierRequest));
    }
    bench.agent.snoop();
    let copies: Vec<_> = bench.take(snoop).into_iter().map(|m| (m.xid, m.body)).collect();
    let of_flow = (7, Body::FlowMod(flow(1)));
    let barrier = [(8, Body::BarrierRequest), (8, Body::BarrierReply)];
    assert_eq!(copies[copies.len() - 3..], [&[of_flow][..], &barrier].concat());
    assert!(copies.len() <= 4, "{copies:?}");
    // Neither a flow nor an error.
    bench.give(snoop, &bytes_of(Version::V10, 9, Body::FlowMod(flow(2))));
    assert!(bench.take(snoop).is_empty());
    assert_eq!(bench.ask(snoop, Version::V10, Body::EchoRequest(vec![1])).len(), 1);
    // It is not probed, and the controller is.
    let later = NOW + Settings::default().probe_interval * 3;
    bench.agent.tick(later);
    bench.agent.tick(later * 2);
    assert!(bench.agent.closed(controller).is_some() && bench.agent.closed(snoop).is_none());
    // A reader that is slow loses copies, and the rest is whole.
    let controller = bench.open(Version::V13);
    for _ in 0..2 * Settings::default().out_max / 8 {
        bench.agent.snoop();
        bench.ask(controller, Version::V13, Body::BarrierRequest);
        if bench.agent.counters().dropped_full > 0 {
            break;
        }
    }
    assert!(bench.agent.counters().dropped_full > 0);
    assert!(bench.agent.lost(snoop) > 0 && bench.agent.lost(controller) == 0);
    assert!(bench.take(snoop).len() > 100);
    // What had no place before it was copied is lost to it, too.
    bench.agent.snoop();
    bench.take(snoop);
    let before = bench.agent.lost(snoop);
    for _ in 0..20 {
        bench.ask(controller, Version::V13, Body::EchoRequest(vec![0; 60_000]));
    }
    bench.agent.snoop();
    let lost = bench.agent.lost(snoop) - before;
    assert_eq!(lost + bench.take(snoop).len() as u64, 40, "requests and replies, copied or lost");
    assert!((20..30).contains(&lost), "{lost}");
}

/// Who snoops before a controller comes sees both HELLOs.
#[test]
fn a_snoop_sees_the_first_messages() {
    let mut bench = Bench::new(Settings::default());
    let snoop = bench.agent.open(ChannelKind::Snoop, NOW);
    bench.give(snoop, &hello(Version::V13));
    bench.take(snoop);
    bench.open(Version::V13);
    bench.agent.snoop();
    let copies = bench.take(snoop);
    let hellos = copies.iter().filter(|m| matches!(m.body, Body::Hello(_))).count();
    assert_eq!((hellos, copies.len()), (2, 2), "{copies:?}");
}

#[test]
fn a_packet_comes_from_where_one_can() {
    let mut bench = Bench::new(Settings::default());
    for version in [Version::V10, Version::V13] {
        let id = bench.open(version);
        let out = |in_port| {
            Body::PacketOut(PacketOut {
                buffer_id: None,
                in_port,
                actions: vec![Action::output(PortNo(2))],
                data: vec![0; 60],
            })
        };
        for port in [PortNo::TABLE, PortNo::IN_PORT, PortNo::ALL, PortNo::FLOOD, PortNo::NORMAL] {
            // 1.0 has Nicira's name for it.
            let expected = ErrorCode::BadRequestPort;
            assert_eq!(bench.error(id, version, out(port)), expected, "{port:?}");
        }
        for port in [PortNo(0), PortNo(1), PortNo::LOCAL, PortNo::CONTROLLER, PortNo::ANY] {
            assert!(bench.ask(id, version, out(port)).is_empty(), "{port:?}");
        }
    }
}
