//! The states of packets in their flows: the same packets through Linux's conntrack, in namespaces, and through Shadeline.
//!
//! Linux routes the packets one by one and counts them by `ct state` in its forward hook; Shadeline marks them by state. Where
//! both differ, [`DIFFERENCES`] says why.

mod common;

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};

use common::{Live, SOON, config, ping};
use serde_json::Value;
use testkit::frames::Frame;
use testkit::netns::{Netns, Offloads, veth};
use testkit::pcap::{self, Record};
use testkit::{Scratch, wait_until};

use stream::tcp::Want;
use stream::tracker::{Identity, IdleTimeouts, Input, Module, Options, Tracked, Tracker};
use stream::{FlowKey, FlowRecord, Side};

const LAN: &str = "10.0.1.2";
const WAN: &str = "10.0.2.2";
const LAN6: &str = "fd00:1::2";
const WAN6: &str = "fd00:2::2";

/// Label of a packet, its state by Linux and by Shadeline, and the reason.
const DIFFERENCES: &[(&str, &str, &str, &str)] = &[
    ("fragment 1", "none", "new", HELD),
    ("fragment of the answer 1", "none", "established", HELD),
    (
        "fragment out of order 2",
        "none",
        "invalid",
        "a later fragment before the first has no flow: Linux holds it",
    ),
];

/// Packets after which the connection has another state or time-out than by Linux, and the reason.
const TIMEOUT_DIFFERENCES: &[(&str, &str)] = &[
    ("refused", "Linux forgets a connection whose SYN is answered by a reset"),
    ("joined in the middle, answer", JOINED),
    ("too big, about TCP", JOINED),
    ("fragment 1", HELD),
];

const JOINED: &str = "Linux does not take the first acknowledgment of a connection without its beginning for one of its data";

const HELD: &str = "Linux holds fragments, and counts the datagram when it is whole";

/// Names of states, each with the code point that Shadeline marks its packets with.
const STATES: [(&str, u8); 5] =
    [("new", 8), ("established", 16), ("related", 24), ("invalid", 32), ("untracked", 40)];

/// A packet and the side that sends it.
struct Sent {
    label: String,
    from_lan: bool,
    frame: Frame,
}

#[derive(Default)]
struct Script(Vec<Sent>);

impl Script {
    fn put(&mut self, label: &str, from_lan: bool, frame: Frame) {
        self.0.push(Sent { label: label.to_owned(), from_lan, frame });
    }

    /// A packet of IPv4 between the two hosts.
    fn v4(&mut self, label: &str, from_lan: bool, make: impl FnOnce(Frame) -> Frame) {
        let (src, dst) = if from_lan { (LAN, WAN) } else { (WAN, LAN) };
        self.put(label, from_lan, make(Frame::new().ipv4(src, dst)));
    }

    fn v6(&mut self, label: &str, from_lan: bool, make: impl FnOnce(Frame) -> Frame) {
        let (src, dst) = if from_lan { (LAN6, WAN6) } else { (WAN6, LAN6) };
        self.put(label, from_lan, make(Frame::new().ipv6(src, dst)));
    }

    fn udp(&mut self, label: &str, from_lan: bool, ports: (u16, u16)) {
        let (src, dst) = if from_lan { ports } else { (ports.1, ports.0) };
        self.v4(label, from_lan, |frame| frame.udp(src, dst, b"data"));
    }

    fn tcp(&mut self, label: &str, from_lan: bool, segment: Tcp) {
        let (src, dst) = if from_lan { (LAN, WAN) } else { (WAN, LAN) };
        let bytes = segment.bytes(src, dst, from_lan);
        self.v4(label, from_lan, |frame| frame.raw(6, &bytes));
    }

    /// Handshake of a connection of the client port.
    fn handshake(&mut self, port: u16) {
        self.tcp(&format!("{port} syn"), true, Tcp::of(port, 1000, 0, SYN));
        self.tcp(&format!("{port} syn-ack"), false, Tcp::of(port, 5000, 1001, SYN | ACK));
        self.tcp(&format!("{port} ack"), true, Tcp::of(port, 1001, 5001, ACK));
    }

    /// An ICMP error of IPv4 about `cause`, a packet from the LAN or from the WAN, sent by `router` to `to`.
    fn error(
        &mut self,
        label: &str,
        from_lan: bool,
        ends: (&str, &str),
        kind: [u8; 2],
        cause: &[u8],
    ) {
        let quoted = &cause[14..cause.len().min(14 + 28)];
        let mut message = [&[kind[0], kind[1], 0, 0, 0, 0, 0, 0], quoted].concat();
        let sum = !checksum(&message, 0);
        message[2..4].copy_from_slice(&sum.to_be_bytes());
        self.put(label, from_lan, Frame::new().ipv4(ends.0, ends.1).raw(1, &message));
    }
}

const FIN: u8 = 1;
const SYN: u8 = 2;
const RST: u8 = 4;
const ACK: u8 = 16;

/// A segment of a connection between port 80 and `port` of the LAN.
struct Tcp {
    port: u16,
    sequence: u32,
    acknowledgment: u32,
    flags: u8,
    len: usize,
}

impl Tcp {
    fn of(port: u16, sequence: u32, acknowledgment: u32, flags: u8) -> Self {
        Self { port, sequence, acknowledgment, flags, len: 0 }
    }

    fn with(self, len: usize) -> Self {
        Self { len, ..self }
    }

    fn bytes(&self, src: &str, dst: &str, from_lan: bool) -> Vec<u8> {
        let ports = if from_lan { [self.port, 80] } else { [80, self.port] };
        let mut bytes = Vec::new();
        ports.iter().for_each(|port| bytes.extend(port.to_be_bytes()));
        bytes.extend(self.sequence.to_be_bytes());
        bytes.extend(self.acknowledgment.to_be_bytes());
        bytes.extend([5 << 4, self.flags]);
        bytes.extend(8192_u16.to_be_bytes());
        bytes.extend([0; 4]);
        bytes.extend(vec![b'x'; self.len]);
        let address = |text: &str| text.parse::<std::net::Ipv4Addr>().unwrap().octets();
        let pseudo = [&address(src)[..], &address(dst), &[0, 6]].concat();
        let sum = u32::from(checksum(&pseudo, bytes.len() as u32));
        let sum = !checksum(&bytes, sum);
        bytes[16..18].copy_from_slice(&sum.to_be_bytes());
        bytes
    }
}

/// The sum of RFC 1071, not inverted.
fn checksum(bytes: &[u8], start: u32) -> u16 {
    let words = bytes
        .chunks(2)
        .map(|word| u32::from(word[0]) << 8 | word.get(1).map_or(0, |b| u32::from(*b)));
    let mut sum = words.sum::<u32>() + start;
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

fn script() -> Script {
    let mut all = Script::default();
    all.udp("udp first", true, (4000, 53));
    all.udp("udp again", true, (4000, 53));
    all.udp("udp answer", false, (4000, 53));
    all.udp("udp after the answer", true, (4000, 53));
    all.udp("udp from outside", false, (4001, 53));
    all.udp("udp answer from inside", true, (4001, 53));
    all.v4("echo request", true, |f| f.echo_request(7, 1, b"ping"));
    all.v4("echo reply", false, |f| f.echo_reply(7, 1, b"ping"));
    all.v4("echo request again", true, |f| f.echo_request(7, 2, b"ping"));
    all.v4("echo request of the other end, same identifier", false, |f| {
        f.echo_request(7, 1, b"ping")
    });
    all.v4("echo reply to nothing", false, |f| f.echo_reply(9, 1, b"ping"));
    all.v4("another protocol", true, |f| f.raw(253, b"12345678"));
    all.v4("another protocol, answer", false, |f| f.raw(253, b"12345678"));

    all.handshake(1001);
    all.tcp("data", true, Tcp::of(1001, 1001, 5001, ACK).with(100));
    all.tcp("acknowledgment", false, Tcp::of(1001, 5001, 1101, ACK));
    all.tcp("data again", true, Tcp::of(1001, 1001, 5001, ACK).with(100));
    all.tcp("data far beyond the window", true, Tcp::of(1001, 2_001_001, 5001, ACK).with(100));
    all.tcp(
        "data far before the window",
        true,
        Tcp::of(1001, 1001u32.wrapping_sub(2_000_000), 5001, ACK).with(100),
    );
    all.tcp("acknowledgment of nothing sent", false, Tcp::of(1001, 5001, 2_001_101, ACK));
    all.tcp("reset out of the window", false, Tcp::of(1001, 2_005_001, 1101, RST | ACK));
    all.tcp("data goes on", true, Tcp::of(1001, 1101, 5001, ACK).with(10));
    all.tcp("fin", true, Tcp::of(1001, 1111, 5001, FIN | ACK));
    all.tcp("ack of fin", false, Tcp::of(1001, 5001, 1112, ACK));
    all.tcp("data of the server after it", false, Tcp::of(1001, 5001, 1112, ACK).with(20));
    all.tcp("fin of the server", false, Tcp::of(1001, 5021, 1112, FIN | ACK));
    all.tcp("last ack", true, Tcp::of(1001, 1112, 5022, ACK));
    all.tcp("the same ports again", true, Tcp::of(1001, 900_000, 0, SYN));
    all.tcp("the same ports again, answer", false, Tcp::of(1001, 800_000, 900_001, SYN | ACK));

    all.handshake(1002);
    all.tcp("reset of the server", false, Tcp::of(1002, 5001, 1001, RST | ACK));

    all.tcp("syn alone", true, Tcp::of(1003, 1000, 0, SYN));
    all.tcp("syn again", true, Tcp::of(1003, 1000, 0, SYN));
    all.tcp("refused", false, Tcp::of(1003, 0, 1001, RST | ACK));
    all.tcp("syn-ack first", false, Tcp::of(1004, 1000, 77, SYN | ACK));
    all.tcp("reset first", true, Tcp::of(1005, 1000, 0, RST));
    all.tcp("fin first", true, Tcp::of(1006, 1000, 77, FIN | ACK));
    all.tcp("joined in the middle", true, Tcp::of(1007, 1000, 77, ACK).with(5));
    all.tcp("joined in the middle, answer", false, Tcp::of(1007, 77, 1005, ACK));
    all.tcp("no flags", true, Tcp::of(1008, 1000, 0, 0));
    all.tcp("syn and fin", true, Tcp::of(1009, 1000, 0, SYN | FIN));

    let udp = Frame::new().ipv4(LAN, WAN).udp(4000, 53, b"data").bytes();
    all.error("unreachable, of the host", false, (WAN, LAN), [3, 3], &udp);
    all.error("time exceeded, of a router", false, ("10.0.2.9", LAN), [11, 0], &udp);
    all.error("to another host", false, (WAN, "10.0.1.3"), [3, 3], &udp);
    let unknown = Frame::new().ipv4(LAN, WAN).udp(4999, 53, b"data").bytes();
    all.error("about nothing", false, (WAN, LAN), [3, 3], &unknown);
    let back = Frame::new().ipv4(WAN, LAN).udp(53, 4000, b"data").bytes();
    all.error("about an answer", true, (LAN, WAN), [3, 3], &back);
    let segment = Tcp::of(1007, 1000, 77, ACK).with(5).bytes(LAN, WAN, true);
    let segment = Frame::new().ipv4(LAN, WAN).raw(6, &segment).bytes();
    all.error("too big, about TCP", false, ("10.0.2.9", LAN), [3, 4], &segment);

    // A datagram of two fragments, its answer, and one whose later fragment comes first.
    let whole = |from_lan: bool| {
        let (src, dst) = if from_lan { (LAN, WAN) } else { (WAN, LAN) };
        let ports = if from_lan { (4002, 53) } else { (53, 4002) };
        let frame = Frame::new().ipv4(src, dst).udp(ports.0, ports.1, &[b'f'; 40]).bytes();
        frame[34..].to_vec()
    };
    for (label, from_lan, id, places) in [
        ("fragment", true, 1, [0, 1]),
        ("fragment of the answer", false, 2, [0, 1]),
        ("fragment out of order", true, 3, [1, 0]),
    ] {
        let bytes = whole(from_lan);
        for place in places {
            let part = if place == 0 { &bytes[..24] } else { &bytes[24..] };
            let label = format!("{label} {}", place + 1);
            all.v4(&label, from_lan, |frame| {
                let (offset, more) = if place == 0 { (0, true) } else { (3, false) };
                frame.identification(id).raw(17, part).fragment(offset, more)
            });
        }
    }

    all.v6("udp over IPv6", true, |f| f.udp(4000, 53, b"data"));
    all.v6("udp over IPv6, answer", false, |f| f.udp(53, 4000, b"data"));
    all.v6("echo request over IPv6", true, |f| f.echo_request(7, 1, b"ping"));
    all.v6("echo reply over IPv6", false, |f| f.echo_reply(7, 1, b"ping"));
    all.v6("echo reply to nothing over IPv6", false, |f| f.echo_reply(8, 1, b"ping"));
    all
}

/// Sends each frame by its interface, and prints which of nft's counters counted it, and what conntrack knows then.
const SENDER: &str = r#"
import json, socket, subprocess, sys, time
router, script = sys.argv[1], sys.argv[2]
sockets = {}
for name in ('lan0', 'wan0'):
    sockets[name] = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
    sockets[name].bind((name, 0))
def counts():
    out = subprocess.run(['ip', 'netns', 'exec', router, 'nft', '-j', 'list', 'counters'], capture_output=True, check=True)
    found = [own['counter'] for own in json.loads(out.stdout)['nftables'] if 'counter' in own]
    return {own['name']: own['packets'] for own in found}
def connections():
    out = subprocess.run(['ip', 'netns', 'exec', router, 'cat', '/proc/net/nf_conntrack'], capture_output=True, check=True)
    return out.stdout.decode().splitlines()
before = counts()
for line in open(script):
    name, frame = line.split()
    sockets[name].send(bytes.fromhex(frame))
    state, until = 'none', time.monotonic() + 1
    while state == 'none' and time.monotonic() < until:
        now = counts()
        state = next((own for own in now if now[own] != before[own]), 'none')
        before = now
    print(json.dumps([state.removeprefix('c_'), connections()]))
"#;

/// Time-outs of Linux's conntrack, by the ends of the names of its sysctls, in seconds: so far apart that a few seconds that pass
/// make no difference.
const TIMEOUTS: [(&str, u64); 14] = [
    ("tcp_timeout_syn_sent", 600),
    ("tcp_timeout_syn_recv", 630),
    ("tcp_timeout_established", 2000),
    ("tcp_timeout_fin_wait", 660),
    ("tcp_timeout_close_wait", 690),
    ("tcp_timeout_last_ack", 720),
    ("tcp_timeout_time_wait", 750),
    ("tcp_timeout_close", 780),
    ("tcp_timeout_unacknowledged", 1000),
    ("udp_timeout", 810),
    ("udp_timeout_stream", 840),
    ("icmp_timeout", 870),
    ("icmpv6_timeout", 900),
    ("generic_timeout", 930),
];

/// What Linux made of a packet: its state, and the lines of `/proc/net/nf_conntrack` after it.
type ByLinux = (String, Vec<String>);

/// States and connections by Linux.
fn by_linux(script: &Script, scratch: &Scratch) -> Vec<ByLinux> {
    let (router, hosts) = (Netns::new("ct-router"), Netns::new("ct-hosts"));
    veth((&router, "lan", "02:00:00:00:00:01"), (&hosts, "lan0", "02:00:00:00:00:11"), 1500);
    veth((&router, "wan", "02:00:00:00:00:02"), (&hosts, "wan0", "02:00:00:00:00:12"), 1500);
    for (name, value) in [
        ("net.ipv4.ip_forward", "1"),
        ("net.ipv6.conf.all.forwarding", "1"),
        ("net.ipv4.conf.all.rp_filter", "0"),
    ] {
        router.sysctl(name, value);
    }
    for (interface, v4, v6) in
        [("lan", "10.0.1.1/24", "fd00:1::1/64"), ("wan", "10.0.2.1/24", "fd00:2::1/64")]
    {
        router.address(interface, v4);
        router.ip(&format!("-6 addr add {v6} dev {interface} nodad"));
        router.sysctl(&format!("net.ipv4.conf.{interface}.rp_filter"), "0");
    }
    for (interface, mac, addresses) in [
        ("lan", "02:00:00:00:00:11", [LAN, "10.0.1.3", LAN6]),
        ("wan", "02:00:00:00:00:12", [WAN, "10.0.2.9", WAN6]),
    ] {
        for address in addresses {
            router
                .ip(&format!("neigh replace {address} lladdr {mac} dev {interface} nud permanent"));
        }
    }
    let names = STATES.map(|(name, _)| name);
    let counters: String = names.map(|name| format!("counter c_{name} {{}}\n")).concat();
    let rules: String =
        names.map(|name| format!("ct state {name} counter name c_{name}\n")).concat();
    let rules = format!(
        "table inet t {{\n{counters}chain f {{ type filter hook forward priority 0; policy accept;\n{rules}}}\n}}\n"
    );
    let rules = scratch.write("rules.nft", &rules);
    router.run(&format!("nft -f {}", rules.display()));
    for (name, seconds) in TIMEOUTS {
        router.sysctl(&format!("net.netfilter.nf_conntrack_{name}"), &seconds.to_string());
    }
    // Another reason for a shorter time, which Shadeline does not have.
    router.sysctl("net.netfilter.nf_conntrack_tcp_timeout_max_retrans", "100000");
    let mut lines = String::new();
    for Sent { from_lan, frame, .. } in &script.0 {
        let (interface, mac) = if *from_lan { ("lan0", 1) } else { ("wan0", 2) };
        let frame = frame.clone().macs([2, 0, 0, 0, 0, 0x10 + mac], [2, 0, 0, 0, 0, mac]);
        let hex: String = frame.padded(60).iter().map(|byte| format!("{byte:02x}")).collect();
        lines += &format!("{interface} {hex}\n");
    }
    let (sender, lines) = (scratch.write("send.py", SENDER), scratch.write("frames.txt", &lines));
    let line = format!("python3 {} {} {}", sender.display(), router.name(), lines.display());
    hosts.run(&line).lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
}

/// What Linux knows of the connection of a packet: state of TCP, and the time-out that is left, rounded up to one of
/// [`TIMEOUTS`]. A line is `ipv4 2 tcp 6 431999 ESTABLISHED src=… dst=… sport=… dport=… …`.
fn connection_by_linux(lines: &[String], key: &FlowKey) -> Option<(String, u64)> {
    let of_line = |line: &String| {
        let words: Vec<_> = line.split_whitespace().collect();
        let of = |name: &str| words.iter().find_map(|word| word.strip_prefix(name));
        let address = |text: &str| -> Option<[u64; 2]> {
            Some(match text.parse().ok()? {
                std::net::IpAddr::V4(own) => [0, u64::from(own.to_bits())],
                std::net::IpAddr::V6(own) => [(own.to_bits() >> 64) as u64, own.to_bits() as u64],
            })
        };
        let port = |name: &str| of(name).or(of("id=")).map_or(Some(0), |text| text.parse().ok());
        let src = (address(of("src=")?)?, port("sport=")?);
        let dst = (address(of("dst=")?)?, port("dport=")?);
        let family = if words[0] == "ipv6" { 6 } else { 4 };
        let (own, _) = FlowKey::new(src, dst, words[3].parse().ok()?, family, 0);
        let left: u64 = words[4].parse().ok()?;
        let state = if words[3] == "6" { words[5] } else { "" };
        (own == FlowKey { scope: 0, ..*key }).then(|| (state.to_owned(), left))
    };
    let (state, left) = lines.iter().find_map(of_line)?;
    let whole = TIMEOUTS.iter().find(|(_, seconds)| (*seconds - 20..=*seconds).contains(&left));
    Some((state, whole.map_or(left, |(_, seconds)| *seconds)))
}

/// What Shadeline knows of the connection of each packet, right after it; `None` for a packet of none.
fn connections_by_shadeline(script: &Script) -> Vec<(FlowKey, Option<(String, u64)>)> {
    let of = |name: &str| {
        let (_, seconds) = TIMEOUTS.iter().find(|own| own.0 == name).unwrap();
        seconds * 1_000_000_000
    };
    let tcp = |name: &str| of(&format!("tcp_timeout_{name}"));
    let timeouts = IdleTimeouts {
        tcp_syn_sent: tcp("syn_sent"),
        tcp_syn_recv: tcp("syn_recv"),
        tcp_established: tcp("established"),
        tcp_fin_wait: tcp("fin_wait"),
        tcp_close_wait: tcp("close_wait"),
        tcp_last_ack: tcp("last_ack"),
        tcp_time_wait: tcp("time_wait"),
        tcp_close: tcp("close"),
        tcp_unacknowledged: tcp("unacknowledged"),
        udp: of("udp_timeout"),
        udp_stream: of("udp_timeout_stream"),
        icmp: of("icmp_timeout"),
        icmpv6: of("icmpv6_timeout"),
        generic: of("generic_timeout"),
    };
    let options =
        Options { flows: 256, half_open: 256, timeouts, confirms: true, ..Options::default() };
    let mut tracker = Tracker::new(options, Silent).unwrap();
    let mut all = Vec::new();
    for (at, sent) in script.0.iter().enumerate() {
        let frame = sent.frame.padded(60);
        let decoded = packet::decode(&frame, frame.len());
        let input = |_: usize| Input {
            decoded: &decoded,
            frame: &frame,
            frame_len: frame.len() as u32,
            time_ns: 1_700_000_000_000_000_000 + at as u64 * 1_000_000,
            port: 0,
            checksums: true,
            tunnels: None,
            segment: None,
        };
        let mut tracked = Tracked::default();
        assert_eq!(tracker.packets(1, input, |_, own| tracked = own), 1);
        tracked.opens.into_iter().for_each(|flow| tracker.decide(flow, true));
        let slot = tracked.slot.map(|slot| slot.0);
        let key = slot.map(|slot| tracker.key(stream::table::Slot(slot)).unwrap());
        let mut known = None;
        if let Some(slot) = slot {
            tracker.visit_connections(slot, 1, &mut |flow| {
                let state = flow.conntrack.map_or("", |state| state.name());
                known = Some((state.to_owned(), flow.timeout_ns / 1_000_000_000));
            });
        }
        all.push((key.unwrap_or_default(), known));
    }
    all
}

/// Nobody listens.
struct Silent;

impl Module for Silent {
    type State = ();

    fn data(&mut self, _: &Identity, (): &mut (), _: Side, _: u64, _: &[u8]) -> Want {
        Want::More
    }

    fn ended(&mut self, _: &FlowRecord, _: Side, (): &mut (), _: u64) {}
}

const CONFIG: &str = r#"
mode = "wire"
[system]
workers = WORKERS
[port.lan]
[port.wan]
[flow]
[firewall]
default = "drop"
"#;

/// The states by Shadeline.
fn by_shadeline(script: &Script, scratch: &Scratch, workers: usize) -> Vec<String> {
    let mut config = CONFIG.replace("WORKERS", &workers.to_string());
    for (name, dscp) in STATES {
        config += &format!(
            "[[rule]]\nname = \"{name}\"\nstate = \"{name}\"\naction = \"mark {dscp}, accept\"\n"
        );
    }
    let config = scratch.write("states.toml", &config);
    let time_ns = |at: usize| 1_700_000_000_000_000_000 + at as u64 * 1_000_000;
    for (name, is_lan) in [("lan", true), ("wan", false)] {
        let own = script.0.iter().enumerate().filter(|(_, sent)| sent.from_lan == is_lan);
        let records = own.map(|(at, sent)| Record::new(time_ns(at), sent.frame.padded(60)));
        pcap::write_pcap(&scratch.join(&format!("{name}.pcap")), &records.collect::<Vec<_>>());
    }
    let out = scratch.join(&format!("out{workers}"));
    let done = Command::new(env!("CARGO_BIN_EXE_shadeline"))
        .arg("run")
        .arg(config)
        .args(["-r", &format!("lan={}", scratch.join("lan.pcap").display())])
        .args(["-r", &format!("wan={}", scratch.join("wan.pcap").display())])
        .arg("-w")
        .arg(&out)
        .output()
        .unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    let mut by_time: BTreeMap<u64, u8> = BTreeMap::new();
    for name in ["lan", "wan"] {
        for record in pcap::read(&out.join(format!("{name}.pcapng"))) {
            let class = match record.data[14] >> 4 {
                4 => record.data[15],
                _ => record.data[14] << 4 | record.data[15] >> 4,
            };
            by_time.insert(record.time_ns, class >> 2);
        }
    }
    let name = |dscp: u8| STATES.iter().find(|own| own.1 == dscp).map(|own| own.0.to_owned());
    let of = |at: usize| by_time.get(&time_ns(at)).and_then(|dscp| name(*dscp));
    (0..script.0.len()).map(|at| of(at).unwrap_or_else(|| "none".to_owned())).collect()
}

#[test]
fn states_are_those_of_linux() {
    if !testkit::require_namespaces()
        || testkit::require_tool("nft").is_none()
        || testkit::require_tool("python3").is_none()
    {
        return;
    }
    let (script, scratch) = (script(), Scratch::new());
    let by_linux = by_linux(&script, &scratch);
    let linux: Vec<_> = by_linux.iter().map(|(state, _)| state.clone()).collect();
    assert_eq!(linux.len(), script.0.len());
    let own = by_shadeline(&script, &scratch, 1);
    let mut wrong = Vec::new();
    for (at, sent) in script.0.iter().enumerate() {
        let known = DIFFERENCES.iter().find(|known| known.0 == sent.label);
        let expected = known.map_or((linux[at].as_str(), linux[at].as_str()), |own| (own.1, own.2));
        if (linux[at].as_str(), own[at].as_str()) != expected {
            wrong.push(format!("{}: Linux {}, here {}", sent.label, linux[at], own[at]));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    for (name, _) in STATES.iter().take(4) {
        assert!(own.iter().any(|state| state == name), "no packet is {name}");
    }
    assert_eq!(by_shadeline(&script, &scratch, 4), own, "with four workers");

    // The state of each connection after each of its packets, and its time-out.
    let mut wrong = Vec::new();
    let mut states = std::collections::BTreeSet::new();
    let known = connections_by_shadeline(&script);
    for ((sent, (_, lines)), (key, own)) in script.0.iter().zip(&by_linux).zip(&known) {
        let Some(own) = own else { continue };
        let linux = connection_by_linux(lines, key);
        // Linux takes a UDP flow for a stream when it is two seconds old.
        let is_young = key.protocol == 17 && own.1 == 840 && linux == Some((String::new(), 810));
        let is_known = TIMEOUT_DIFFERENCES.iter().any(|(label, _)| *label == sent.label);
        if is_known == (is_young || linux.as_ref() == Some(own)) {
            wrong.push(format!("{}: Linux {linux:?}, here {own:?}", sent.label));
        }
        states.insert(own.1);
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert_eq!(states.len(), TIMEOUTS.len(), "{states:?}");
}

/// A router whose inside opens connections and whose outside answers.
#[test]
fn the_inside_opens_connections_and_the_outside_answers() {
    if testkit::require_tool("python3").is_none() {
        return;
    }
    let rules = "[flow]\n[firewall]\ndefault = \"drop\"\n\
                 [[rule]]\nname = \"known\"\nstate = \"established,related\"\naction = \"accept\"\n\
                 [[rule]]\nname = \"inside\"\nin = \"left\"\nstate = \"new\"\naction = \"accept\"\n";
    let text = |scratch: &Scratch| config(scratch, "af_packet", rules);
    let Some(live) = Live::of("states", text, (1500, 1500), Offloads::Off) else { return };
    let (left, right) = (&live.net.left, &live.net.right);
    assert!(wait_until(SOON, || ping(left, "10.0.2.2", 1) == 1));
    assert_eq!(ping(right, "10.0.1.2", 1), 0, "the outside opens nothing");
    let server = live.scratch.write(
        "server.py",
        "import socket\n\
         s = socket.create_server(('10.0.2.2', 7007)); c, _ = s.accept()\n\
         while c.recv(65536): c.sendall(b'y')\n",
    );
    let client = live.scratch.write(
        "client.py",
        "import socket, sys\n\
         s = socket.create_connection(('10.0.2.2', 7007), 5)\n\
         for line in sys.stdin:\n\
         \x20   s.sendall(b'x'); assert s.recv(1) == b'y'; print('ok', flush=True)\n",
    );
    let server = right.spawn(&format!("python3 {}", server.display()));
    std::thread::sleep(std::time::Duration::from_millis(500));
    let mut command = left.command("python3");
    command.arg(client).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut client = command.spawn().unwrap();
    let mut said = BufReader::new(client.stdout.take().unwrap());
    let mut exchange = || {
        client.stdin.as_mut().unwrap().write_all(b"\n").unwrap();
        let mut line = String::new();
        said.read_line(&mut line).unwrap();
        assert_eq!(line, "ok\n");
    };
    exchange();
    let shown = || -> Value {
        let text = live.ctl("show connections --port 7007 --json");
        serde_json::from_str(&text).expect("JSON")
    };
    let row = &shown()[0];
    let is = |key: &str, value: Value| assert_eq!(row[key], value, "{row}");
    is("state", "ESTABLISHED".into());
    is("dst", "10.0.2.2:7007".into());
    is("confirmed", true.into());
    assert!(row["timeout_s"].as_f64().is_some_and(|left| left > 100.0), "{row}");
    // A reload of the rules keeps the connection: it is not new, and nothing new may pass any more.
    let path = live.scratch.join("shadeline.toml");
    let file = std::fs::read_dir(live.scratch.path()).unwrap().filter_map(Result::ok);
    let path = file
        .map(|own| own.path())
        .find(|own| own.extension().is_some_and(|e| e == "toml"))
        .unwrap_or(path);
    let text = std::fs::read_to_string(&path).unwrap();
    std::fs::write(
        &path,
        text.replace("in = \"left\"\nstate = \"new\"", "in = \"left\"\nstate = \"untracked\""),
    )
    .unwrap();
    live.ctl("reload");
    exchange();
    assert_eq!(ping(left, "10.0.2.2", 1), 0, "nothing new");
    assert_eq!(shown()[0]["state"], "ESTABLISHED");
    assert!(live.ctl("show connections --proto icmp --state SYN_SENT").contains("no connections"));
    let metrics = live.ctl("show runtime --json");
    let runtime: Value = serde_json::from_str(&metrics).expect("JSON");
    assert!(runtime["flow"]["states"]["established"].as_u64().is_some_and(|n| n > 4), "{runtime}");
    drop(server);
    let _ = client.kill();
    let _ = client.wait();
}
