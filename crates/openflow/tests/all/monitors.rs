//! Flow monitors: the bytes of Open vSwitch, what is reported, and readers that are slow.

use std::collections::BTreeMap;
use std::time::Duration;

use openflow::agent::{Agent, ChannelId, ChannelKind, Settings};
use openflow::flow::{ALL_TABLES, FlowStats, RemovedReason};
use openflow::message::{Hello, MultipartReply, MultipartRequest};
use openflow::monitor::{FlowEvent, FlowMonitor, FlowUpdate, MonitorFlags};
use openflow::syntax::{FlowText, MatchText};
use openflow::{
    Action, Body, ErrorCode, Field, FlowCommand, FlowMod, Header, Instruction, Match, Message,
    PortNo, Version, decode, encode,
};

use crate::plain::Plain;
use crate::random::{Random, seeds};

const NOW: Duration = Duration::from_secs(1);

/// What Open vSwitch says is read, and written as the same bytes.
#[test]
fn messages_of_open_vswitch() {
    let all = crate::bytes::messages("monitors.txt");
    let flows = crate::bytes::messages("nicira.txt");
    assert_eq!((all.len(), flows.len()), (21, 7));
    for (name, bytes) in all.iter().chain(&flows) {
        let message = decode(bytes).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(encode(&message).as_ref(), Ok(bytes), "{name}: {message:?}");
        let is_other = matches!(message.body, Body::Experimenter(_));
        assert!(!is_other, "{name}: {message:?}");
    }
    let message = |name: &str| {
        let (_, bytes) = all.iter().find(|(own, _)| own == name).unwrap();
        decode(bytes).unwrap()
    };
    let udp = FlowMonitor {
        id: 1,
        flags: MonitorFlags(0x1e),
        out_port: PortNo(1),
        table: 1,
        matches: Match::new().with(Field::EthType, 0x0800_u16).with(Field::IpProto, 17_u8),
    };
    for name in ["of10/request-udp", "of13/request-udp"] {
        let request = MultipartRequest::FlowMonitor(vec![udp.clone()]);
        assert_eq!(message(name).body, Body::MultipartRequest { more: false, request });
    }
    let updates = |name: &str| match message(name).body {
        Body::MultipartReply { reply: MultipartReply::FlowMonitor(updates), .. } => updates,
        other => panic!("{other:?}"),
    };
    // As `ovs-ofctl` prints these bytes.
    let texts: Vec<String> = updates("of10/initial").iter().map(text).collect();
    let expected = [
        "Added mpls,mpls_label=9",
        "Added sctp,dl_src=01:00:00:00:00:00/01:00:00:00:00:00,tp_dst=9",
        "Added ip,in_port=1,dl_vlan_pcp=3,nw_tos=32,nw_ecn=1",
        "Added arp,tun_id=0x9,metadata=0x5/0x7,vlan_tci=0x0000/0x1000,arp_spa=10.0.0.1,arp_op=1,\
         arp_sha=00:11:22:33:44:55",
        "Added icmp6,ipv6_src=fe80::/16,icmp_type=135,nd_target=fe80::1",
        "Added tcp,dl_vlan=5,nw_dst=10.0.0.0/8,tp_dst=80",
    ];
    let words = |text: &str| {
        let mut words: Vec<String> = text.split([',', ' ']).map(str::to_owned).collect();
        words.sort();
        words
    };
    for (text, expected) in texts.iter().zip(expected) {
        assert_eq!(words(text), words(expected));
    }
    assert_eq!(texts.len(), expected.len());
    let errors = [
        ("of10/cancel-unknown", ErrorCode::MonitorUnknown),
        ("of13/cancel-unknown", ErrorCode::MonitorUnknown),
        ("of10/monitor-exists", ErrorCode::MonitorExists),
        ("of10/bad-flags", ErrorCode::MonitorFlags),
    ];
    for (name, code) in errors {
        let Body::Error(error) = message(name).body else { panic!("{name}") };
        assert_eq!(error.code, code, "{name}");
    }
}

fn text(update: &FlowUpdate) -> String {
    match update {
        FlowUpdate::Flow(event, flow) => format!("{event:?} {}", MatchText(&flow.matches)),
        FlowUpdate::Abbreviated { xid } => format!("own {xid}"),
    }
}

struct Bench {
    agent: Agent,
    switch: Plain,
}

fn bytes_of(version: Version, xid: u32, body: Body) -> Vec<u8> {
    encode(&Message::new(version, xid, body)).unwrap()
}

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

    fn open(&mut self, version: Version) -> ChannelId {
        let id = self.agent.open(ChannelKind::Service, NOW);
        self.give(id, &bytes_of(version, 1, Body::Hello(Hello::default())));
        self.take(id);
        id
    }

    fn give(&mut self, id: ChannelId, bytes: &[u8]) {
        self.agent.receive(id, bytes, &mut self.switch, NOW);
    }

    fn take(&mut self, id: ChannelId) -> Vec<Message> {
        let mut bytes = Vec::new();
        while !self.agent.outgoing(id).is_empty() {
            bytes.extend_from_slice(self.agent.outgoing(id));
            self.agent.sent(id, self.agent.outgoing(id).len());
            self.give(id, &[]);
        }
        messages(&bytes)
    }

    fn ask(&mut self, id: ChannelId, version: Version, xid: u32, body: Body) -> Vec<Message> {
        self.give(id, &bytes_of(version, xid, body));
        self.take(id)
    }

    /// What a channel is told, in words: `xid: what`.
    fn told(&mut self, id: ChannelId) -> Vec<String> {
        self.take(id).into_iter().flat_map(said).collect()
    }
}

fn said(message: Message) -> Vec<String> {
    let xid = message.xid;
    match message.body {
        Body::MultipartReply { reply: MultipartReply::FlowMonitor(all), .. } => {
            if all.is_empty() {
                return vec![format!("{xid}: nothing")];
            }
            let line = |update: FlowUpdate| match update {
                FlowUpdate::Flow(event, flow) => {
                    let text = FlowText { flow: &flow, with_stats: false }.to_string();
                    format!("{xid}: {event:?} {text}")
                }
                FlowUpdate::Abbreviated { xid: own } => format!("{xid}: own {own}"),
            };
            all.into_iter().map(line).collect()
        }
        Body::Error(error) => vec![format!("{xid}: {}", error.code)],
        other => vec![format!("{xid}: {other:?}")],
    }
}

fn monitor(id: u32, flags: MonitorFlags) -> FlowMonitor {
    FlowMonitor { id, flags, out_port: PortNo::ANY, table: ALL_TABLES, matches: Match::new() }
}

fn request(monitors: Vec<FlowMonitor>) -> Body {
    let request = MultipartRequest::FlowMonitor(monitors);
    Body::MultipartRequest { more: false, request }
}

fn flow(n: u32, command: FlowCommand, port: u32) -> Body {
    Body::FlowMod(FlowMod {
        matches: Match::new().with(Field::EthType, 0x800_u16).with(Field::Ipv4Dst, n),
        instructions: match command {
            FlowCommand::Delete | FlowCommand::DeleteStrict => Vec::new(),
            _ => vec![Instruction::ApplyActions(vec![Action::output(PortNo(port))])],
        },
        ..FlowMod::new(command)
    })
}

#[test]
fn changes_are_reported() {
    use FlowCommand::{Add, Delete, Modify};
    for version in [Version::V10, Version::V13] {
        let mut bench = Bench::new(Settings::default());
        let (watcher, other) = (bench.open(version), bench.open(Version::V13));
        bench.ask(other, Version::V13, 2, flow(1, Add, 1));
        // All of it, and of those to port 2 their end alone.
        let all = monitor(1, MonitorFlags::ALL.without(MonitorFlags::OWN));
        let mut to_2 = monitor(2, MonitorFlags::DELETE);
        to_2.out_port = PortNo(2);
        bench.give(watcher, &bytes_of(version, 5, request(vec![all.clone(), to_2.clone()])));
        assert_eq!(bench.told(watcher), ["5: Added ip,nw_dst=0.0.0.1 actions=output:1"]);
        let steps: [(FlowCommand, u32, u32, &[&str]); 5] = [
            (Add, 2, 2, &["0: Added ip,nw_dst=0.0.0.2 actions=output:2"]),
            (Modify, 1, 3, &["0: Modified ip,nw_dst=0.0.0.1 actions=output:3"]),
            (Add, 1, 1, &["0: Added ip,nw_dst=0.0.0.1 actions=output:1"]),
            (Delete, 1, 0, &["0: Deleted(Delete) ip,nw_dst=0.0.0.1 actions=output:1"]),
            (Delete, 1, 0, &[]),
        ];
        for (command, n, port, expected) in steps {
            bench.ask(other, Version::V13, 3, flow(n, command, port));
            assert_eq!(bench.told(watcher), expected, "{version}");
        }
        // Its own changes are said in short.
        let told = bench.ask(watcher, version, 9, flow(3, Add, 1));
        assert_eq!(told.into_iter().flat_map(said).collect::<Vec<_>>(), ["0: own 9"]);
        // Numbers and flags that cannot be.
        let again =
            bench.ask(watcher, version, 6, request(vec![monitor(7, MonitorFlags::ADD), all]));
        assert_eq!(said(again[0].clone()), ["6: OFPMOFC_MONITOR_EXISTS"]);
        let flags = monitor(7, MonitorFlags::ACTIONS);
        let refused = bench.ask(watcher, version, 6, request(vec![flags]));
        assert_eq!(said(refused[0].clone()), ["6: OFPMOFC_BAD_FLAGS"]);
        // The second monitor alone: no actions, and only what leaves for port 2.
        assert!(bench.ask(watcher, version, 6, Body::FlowMonitorCancel(1)).is_empty());
        let unknown = bench.ask(watcher, version, 6, Body::FlowMonitorCancel(1));
        assert_eq!(said(unknown[0].clone()), ["6: OFPMOFC_UNKNOWN_MONITOR"]);
        bench.ask(other, Version::V13, 3, Body::FlowMod(FlowMod::new(Delete)));
        assert_eq!(bench.told(watcher), ["0: Deleted(Delete) ip,nw_dst=0.0.0.2 actions=drop"]);
        assert!(bench.ask(watcher, version, 6, Body::FlowMonitorCancel(2)).is_empty());
        assert!(!bench.agent.has_monitors());
        let told = bench.ask(watcher, version, 8, request(vec![monitor(1, MonitorFlags::INITIAL)]));
        assert_eq!(told.into_iter().flat_map(said).collect::<Vec<_>>(), ["8: nothing"]);
    }
}

/// What 1.0 cannot express is left out, and the rest is there.
#[test]
fn a_monitor_of_1_0_sees_what_it_can() {
    let mut bench = Bench::new(Settings::default());
    let (watcher, other) = (bench.open(Version::V10), bench.open(Version::V13));
    let add = |n: u32, instructions: Vec<Instruction>| {
        let flow = FlowMod {
            matches: Match::new().with(Field::EthType, 0x86dd_u16).with(Field::Ipv6Dst, n),
            instructions,
            ..FlowMod::new(FlowCommand::Add)
        };
        Body::FlowMod(flow)
    };
    bench.ask(other, Version::V13, 2, add(1, vec![Instruction::GotoTable(1)]));
    bench.ask(other, Version::V13, 2, add(2, Vec::new()));
    let all = monitor(1, MonitorFlags::ALL);
    let told = bench.ask(watcher, Version::V10, 8, request(vec![all]));
    let told: Vec<String> = told.into_iter().flat_map(said).collect();
    assert_eq!(told, ["8: Added ipv6,ipv6_dst=::2 actions=drop"]);
    bench.ask(other, Version::V13, 2, Body::FlowMod(FlowMod::new(FlowCommand::Delete)));
    assert_eq!(bench.told(watcher), ["0: Deleted(Delete) ipv6,ipv6_dst=::2 actions=drop"]);
}

/// Who hears of changes knows the flows, however slowly it reads: random changes, random pieces.
#[test]
fn a_slow_reader_is_paused_and_knows_all_in_the_end() {
    let (mut pauses, mut resumed) = (0, 0);
    for seed in seeds() {
        let mut random = Random(seed);
        let out_max = 200 + random.below(4000);
        let mut bench = Bench::new(Settings { out_max, ..Settings::default() });
        let (watcher, other) = (bench.open(Version::V13), bench.open(Version::V13));
        let change = |bench: &mut Bench, random: &mut Random| {
            use FlowCommand::{Add, Delete, Modify};
            let command = random.of(&[Add, Add, Add, Add, Modify, Delete]);
            let body = match random.below(60) {
                0 => Body::FlowMod(FlowMod::new(Delete)),
                1 => flow(0, command, 1),
                _ => flow(random.below(400) as u32, command, random.below(9) as u32 + 1),
            };
            bench.ask(other, Version::V13, 3, body);
        };
        let before = random.below(500);
        (0..before).for_each(|_| change(&mut bench, &mut random));
        let all = monitor(1, MonitorFlags::ALL);
        bench.give(watcher, &bytes_of(Version::V13, 5, request(vec![all])));
        let mut client = Client::default();
        let mut rest = Vec::new();
        for _ in 0..600 {
            change(&mut bench, &mut random);
            if random.below(4) == 0 {
                let some = random.below(2 * out_max).min(bench.agent.outgoing(watcher).len());
                rest.extend_from_slice(&bench.agent.outgoing(watcher)[..some]);
                bench.agent.sent(watcher, some);
                bench.give(watcher, &[]);
                client.read(&mut rest, seed);
            }
        }
        while !bench.agent.outgoing(watcher).is_empty() {
            rest.extend_from_slice(bench.agent.outgoing(watcher));
            bench.agent.sent(watcher, usize::MAX);
            bench.give(watcher, &[]);
        }
        client.read(&mut rest, seed);
        assert!(!client.is_paused && bench.agent.closed(watcher).is_none(), "seed {seed}");
        assert!(bench.agent.wants_input(watcher), "seed {seed}: it is live");
        let known: Vec<&FlowStats> = client.flows.values().collect();
        let mut there: Vec<&FlowStats> = bench.switch.flows.iter().collect();
        there.sort_by_key(|flow| key(flow));
        assert_eq!(known, there, "seed {seed}");
        (pauses, resumed) = (pauses + client.pauses, resumed + client.resumed);
    }
    assert!(pauses > 20 && pauses == resumed, "{pauses} pauses, {resumed} ends of them");
}

fn key(flow: &FlowStats) -> (u8, u16, String) {
    (flow.table, flow.priority, MatchText(&flow.matches).to_string())
}

/// Who follows updates.
#[derive(Default)]
struct Client {
    flows: BTreeMap<(u8, u16, String), FlowStats>,
    is_paused: bool,
    pauses: usize,
    resumed: usize,
}

impl Client {
    /// Whole messages of what has come.
    fn read(&mut self, bytes: &mut Vec<u8>, seed: u64) {
        while let Some(header) = Header::read(bytes)
            && bytes.len() >= usize::from(header.len)
        {
            let rest = bytes.split_off(header.len.into());
            let message = decode(&std::mem::replace(bytes, rest)).unwrap();
            match message.body {
                Body::MultipartReply { reply: MultipartReply::FlowMonitor(all), .. } => {
                    all.into_iter().for_each(|update| self.update(update, seed));
                }
                Body::FlowMonitorPaused => {
                    assert!(!self.is_paused, "seed {seed}");
                    (self.is_paused, self.pauses) = (true, self.pauses + 1);
                }
                Body::FlowMonitorResumed => {
                    assert!(self.is_paused, "seed {seed}");
                    (self.is_paused, self.resumed) = (false, self.resumed + 1);
                }
                other => panic!("seed {seed}: {other:?}"),
            }
        }
    }

    fn update(&mut self, update: FlowUpdate, seed: u64) {
        let FlowUpdate::Flow(event, flow) = update else { panic!("seed {seed}: {update:?}") };
        let key = key(&flow);
        match event {
            FlowEvent::Added => {
                self.flows.insert(key, flow);
            }
            FlowEvent::Modified => {
                let old = self.flows.insert(key, flow);
                assert!(old.is_some(), "seed {seed}: a flow changed that it does not know");
            }
            FlowEvent::Deleted(reason) => {
                assert_eq!(reason, RemovedReason::Delete);
                let old = self.flows.remove(&key);
                assert!(old.is_some(), "seed {seed}: a flow left that it does not know");
            }
        }
    }
}
