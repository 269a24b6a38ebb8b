//! The attacks: which frames, how fast, or what else is done.

use std::io::Write;
use std::net::{Ipv4Addr, Ipv6Addr, TcpStream};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use testkit::frames::Frame;

use crate::lab::{Lab, METRICS};
use crate::named::interest;

/// An attack.
pub(crate) struct Attack {
    pub(crate) name: &'static str,
    /// `router`, `switch` or `ndn`.
    pub(crate) mode: &'static str,
    /// TOML beside the usual configuration.
    pub(crate) keys: &'static str,
    pub(crate) kind: Kind,
}

pub(crate) enum Kind {
    /// Frames in turn, at this rate or the one that is asked for.
    Frames { pps: Option<u64>, frames: fn(&Target) -> Vec<Vec<u8>> },
    /// The attacker's link goes down and up.
    Flaps,
    /// What a program on the router's own machine does until it is told to end; how many times.
    Local { act: fn(&Lab, &AtomicBool) -> u64 },
}

/// Who is attacked from where.
pub(crate) struct Target {
    /// The program's port.
    pub(crate) router: [u8; 6],
    /// The attacker.
    pub(crate) own: [u8; 6],
    /// Number of the attacker's network: 10.0.N.0/24 and fd00:N::/64, the router at 1.
    pub(crate) net: u8,
}

const fn frames(name: &'static str, frames: fn(&Target) -> Vec<Vec<u8>>) -> Attack {
    Attack { name, mode: "router", keys: "", kind: Kind::Frames { pps: None, frames } }
}

/// All of them.
pub(crate) const ATTACKS: &[Attack] = &[
    Attack {
        kind: Kind::Frames { pps: Some(1_000), frames: router_advertisements },
        ..frames("router-advertisements", router_advertisements)
    },
    frames("arp-requests", arp_requests),
    frames("arp-senders", arp_senders),
    frames("nd-solicitations", solicitations),
    frames("unresolved-neighbours", unresolved),
    frames("echo-requests", echo_requests),
    frames("bgp-syns", bgp_syns),
    frames("own-source", own_source),
    frames("ttl-exceeded", ttl_exceeded),
    frames("ip-options", ip_options),
    frames("fragments", fragments),
    frames("malformed", malformed),
    Attack { kind: Kind::Flaps, ..frames("link-flaps", malformed) },
    Attack {
        kind: Kind::Local { act: metrics_connections },
        ..frames("metrics-connections", malformed)
    },
    Attack { kind: Kind::Local { act: ctl_connections }, ..frames("ctl-connections", malformed) },
    Attack { mode: "switch", keys: SWITCH, ..frames("stations", stations) },
    Attack { mode: "switch", keys: SWITCH, ..frames("unknown-destinations", unknown_destinations) },
    Attack { mode: "switch", keys: SWITCH, ..frames("switch-malformed", malformed) },
    Attack { mode: "ndn", keys: NDN, ..frames("pending-interests", pending_interests) },
    Attack { mode: "ndn", keys: NDN, ..frames("faces-on-demand", faces_on_demand) },
];

impl Attack {
    /// Whether it takes the link of a port down and up.
    pub(crate) fn is_flaps(&self) -> bool {
        matches!(self.kind, Kind::Flaps)
    }
}

/// Tables that an attack of two seconds fills.
const SWITCH: &str = "[switch]\nstations = 4096\n";
const NDN: &str = "[ndn]\npit_entries = 8192\n";

/// The attack of this name.
pub(crate) fn named(name: &str) -> Option<&'static Attack> {
    ATTACKS.iter().find(|attack| attack.name == name)
}

/// A frame between the attacker and the router's port.
fn frame(t: &Target) -> Frame {
    Frame::new().macs(t.own, t.router)
}

/// Ethernet with this type, from the attacker.
fn ethernet(destination: [u8; 6], source: [u8; 6], kind: u16, payload: &[u8]) -> Vec<u8> {
    let mut bytes = [destination, source].concat();
    bytes.extend(kind.to_be_bytes());
    bytes.extend(payload);
    bytes.resize(bytes.len().max(60), 0);
    bytes
}

/// ICMPv6 with its checksum, hop limit 255.
fn icmpv6(
    t: &Target,
    destination_mac: [u8; 6],
    source: Ipv6Addr,
    destination: Ipv6Addr,
    message: &[u8],
) -> Vec<u8> {
    let mut message = message.to_vec();
    let pseudo = [
        &source.octets()[..],
        &destination.octets(),
        &(message.len() as u32).to_be_bytes(),
        &[0, 0, 0, 58],
    ];
    let mut covered = pseudo.concat();
    covered.extend(&message);
    covered.resize(covered.len().next_multiple_of(2), 0);
    let mut sum: u32 =
        covered.chunks(2).map(|pair| u32::from(pair[0]) << 8 | u32::from(pair[1])).sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    message[2..4].copy_from_slice(&(!(sum as u16)).to_be_bytes());
    let mut packet = vec![0x60, 0, 0, 0];
    packet.extend((message.len() as u16).to_be_bytes());
    packet.extend([58, 255]);
    packet.extend(source.octets());
    packet.extend(destination.octets());
    packet.extend(message);
    ethernet(destination_mac, t.own, 0x86dd, &packet)
}

/// The attacker's link-local address.
const LINK_LOCAL: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 0xbad);

fn net6(net: u8, host: u16) -> Ipv6Addr {
    Ipv6Addr::new(0xfd00, net.into(), 0, 0, 0, 0, 0, host)
}

/// RFC 4861 §4.2 with RFC 4191's routes: a default router of high preference, another port's subnet as on link and for
/// addresses, a part of a static /48, and forty prefixes of its own in each of 2,500.
fn router_advertisements(t: &Target) -> Vec<Vec<u8>> {
    let all_nodes = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);
    let mut frames = Vec::new();
    for number in 0..2500_u16 {
        let mut message = vec![134, 0, 0, 0, 64, 0x08, 0x07, 0x08, 0, 0, 0, 0, 0, 0, 0, 0];
        message.extend([1, 1]);
        message.extend(t.own);
        message.extend([3, 4, 64, 0xc0, 0, 0, 0x0e, 0x10, 0, 0, 0x0e, 0x10, 0, 0, 0, 0]);
        message.extend(net6(1 + (number % 2) as u8, 0).octets());
        let mut route = |length: u8, prefix: Ipv6Addr| {
            message.extend([24, 3, length, 0x08, 0, 0, 0x0e, 0x10]);
            message.extend(prefix.octets());
        };
        route(56, Ipv6Addr::new(0x2001, 0xdb8, 1, number & 0xff00, 0, 0, 0, 0));
        for own in 0..40 {
            route(64, Ipv6Addr::new(0x2001, 0xdb8, 0x100 + number, own, 0, 0, 0, 0));
        }
        frames.push(icmpv6(t, [0x33, 0x33, 0, 0, 0, 1], LINK_LOCAL, all_nodes, &message));
    }
    frames
}

/// ARP (RFC 826): who has `wanted`?
fn arp(own: ([u8; 6], Ipv4Addr), wanted: Ipv4Addr) -> Vec<u8> {
    let mut packet = vec![0, 1, 8, 0, 6, 4, 0, 1];
    packet.extend(own.0);
    packet.extend(own.1.octets());
    packet.extend([0; 6]);
    packet.extend(wanted.octets());
    ethernet([0xff; 6], own.0, 0x0806, &packet)
}

fn arp_requests(t: &Target) -> Vec<Vec<u8>> {
    let [own, router] = [2, 1].map(|host| Ipv4Addr::new(10, 0, t.net, host));
    vec![arp((t.own, own), router)]
}

/// Each from another station and address.
fn arp_senders(t: &Target) -> Vec<Vec<u8>> {
    let one = |n: u16| {
        let [high, low] = n.to_be_bytes();
        let own = ([2, 0x66, 0, 0, high, low], Ipv4Addr::new(10, 0, t.net, 3 + low % 250));
        arp(own, Ipv4Addr::new(10, 0, t.net, 1))
    };
    (0..4096).map(one).collect()
}

fn solicitations(t: &Target) -> Vec<Vec<u8>> {
    let wanted = net6(t.net, 1);
    let group = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 1, 0xff00, 1);
    let one = |host: u16| {
        let mut message = vec![135, 0, 0, 0, 0, 0, 0, 0];
        message.extend(wanted.octets());
        message.extend([1, 1]);
        message.extend(t.own);
        icmpv6(t, [0x33, 0x33, 0xff, 0, 0, 1], net6(t.net, host), group, &message)
    };
    (0x100..0x1100).map(one).collect()
}

/// To addresses of the bystander's subnets that nobody has.
fn unresolved(t: &Target) -> Vec<Vec<u8>> {
    let source = [format!("10.0.{}.2", t.net), format!("fd00:{}::2", t.net)];
    let v4 = (3..250)
        .map(|host| frame(t).ipv4(&source[0], &format!("10.0.2.{host}")).udp(1, 2, b"").bytes());
    let v6 = (3..4000)
        .map(|host| frame(t).ipv6(&source[1], &format!("fd00:2::{host:x}")).udp(1, 2, b"").bytes());
    v4.chain(v6).collect()
}

fn echo_requests(t: &Target) -> Vec<Vec<u8>> {
    let n = t.net;
    vec![
        frame(t)
            .ipv4(&format!("10.0.{n}.2"), &format!("10.0.{n}.1"))
            .echo_request(1, 1, &[0; 56])
            .bytes(),
        frame(t)
            .ipv6(&format!("fd00:{n}::2"), &format!("fd00:{n}::1"))
            .echo_request(1, 1, &[0; 56])
            .bytes(),
    ]
}

/// To the port of BGP, from many: they look like what a routing daemon needs.
fn bgp_syns(t: &Target) -> Vec<Vec<u8>> {
    let n = t.net;
    let one = |port: u16| {
        let (own, router) = (format!("10.0.{n}.2"), format!("10.0.{n}.1"));
        frame(t).ipv4(&own, &router).tcp(1024 + port, 179, u32::from(port), b"").bytes()
    };
    (0..4096).map(one).collect()
}

/// With the router's own addresses as source.
fn own_source(t: &Target) -> Vec<Vec<u8>> {
    let mut frames = Vec::new();
    for net in 1..=3 {
        frames
            .push(frame(t).ipv4(&format!("10.0.{net}.1"), "198.19.7.7").udp(1, 2, b"own").bytes());
        frames.push(
            frame(t).ipv6(&format!("fd00:{net}::1"), "2001:2:0:2::7").udp(1, 2, b"own").bytes(),
        );
    }
    frames
}

fn ttl_exceeded(t: &Target) -> Vec<Vec<u8>> {
    let one = |host: u8| {
        frame(t)
            .ipv4(&format!("10.0.{}.2", t.net), &format!("198.19.1.{host}"))
            .ttl(1)
            .udp(1, 2, b"")
            .bytes()
    };
    (0..=255).map(one).collect()
}

/// Loose source routes and record routes: what Linux would do slowly.
fn ip_options(t: &Target) -> Vec<Vec<u8>> {
    let own = format!("10.0.{}.2", t.net);
    let options: [&[u8]; 3] =
        [&[131, 7, 4, 10, 0, 2, 2, 0], &[7, 7, 4, 0, 0, 0, 0, 0], &[148, 4, 0, 0]];
    options
        .map(|o| frame(t).ipv4(&own, "198.19.2.2").ipv4_options(o).udp(1, 2, b"").bytes())
        .to_vec()
}

/// First and middle fragments whose others never come, through the router and to it.
fn fragments(t: &Target) -> Vec<Vec<u8>> {
    let own = format!("10.0.{}.2", t.net);
    let one = |id: u16| {
        let to = if id.is_multiple_of(2) {
            "198.19.3.3".to_owned()
        } else {
            format!("10.0.{}.1", t.net)
        };
        let offset = if id.is_multiple_of(3) { 185 } else { 0 };
        frame(t)
            .ipv4(&own, &to)
            .identification(id)
            .fragment(offset, true)
            .udp(1, 2, &[7; 64])
            .bytes()
    };
    (0..4096).map(one).collect()
}

/// Fourteen ways of being wrong.
fn malformed(t: &Target) -> Vec<Vec<u8>> {
    let own = format!("10.0.{}.2", t.net);
    let good = frame(t).ipv4(&own, "198.19.4.4").udp(1, 2, &[1; 32]).bytes();
    let good6 =
        frame(t).ipv6(&format!("fd00:{}::2", t.net), "2001:2:0:2::4").udp(1, 2, &[1; 32]).bytes();
    let change = |frame: &[u8], at: usize, bytes: &[u8]| {
        let mut frame = frame.to_vec();
        frame[at..at + bytes.len()].copy_from_slice(bytes);
        frame
    };
    let mut frames = vec![
        good[..14].to_vec(),
        good[..20].to_vec(),
        change(&good, 14, &[0x44]),
        change(&good, 14, &[0x4f]),
        change(&good, 14, &[0x55]),
        change(&good, 16, &[0xff, 0xff]),
        change(&good, 16, &[0, 19]),
        change(&good, 24, &[0xde, 0xad]),
        change(&good, 20, &[0x1f, 0xff]),
        change(&good6, 18, &[0xff, 0xff]),
        good6[..40].to_vec(),
        change(&good6, 20, &[0]),
        ethernet(t.router, t.own, 0x8100, &[]),
        ethernet(t.router, t.own, 0x0806, &[0, 1, 8, 0, 255, 255, 0, 1]),
        ethernet(t.router, t.own, 0x8847, &[0xff; 40]),
        ethernet(t.router, t.own, 0x8864, &[0x11, 0, 0, 1, 0xff, 0xff, 0, 0x21]),
        frame(t).ipv4(&own, "198.19.4.4").raw(6, &[0xff; 13]).bytes(),
        // A chain of extension headers of the longest kind.
        frame(t)
            .ipv6("fd00:3::2", "2001:2:0:2::4")
            .extension(0, &[255; 7])
            .extension(60, &[255; 7])
            .bytes(),
    ];
    // And noise, the same each time.
    let mut state = 1_u64;
    for _ in 0..256 {
        let mut noise = [t.router, t.own].concat();
        for _ in 0..30 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            noise.extend(&state.to_be_bytes()[..4]);
        }
        frames.push(noise);
    }
    frames
}

/// Frames of 65,536 stations, to everybody.
fn stations(_: &Target) -> Vec<Vec<u8>> {
    let one = |n: u16| {
        let [high, low] = n.to_be_bytes();
        ethernet([0xff; 6], [2, 0x77, 0, 0, high, low], 0x88b5, &[])
    };
    (0..u16::MAX).map(one).collect()
}

/// Frames to stations that nobody knows: they are flooded.
fn unknown_destinations(t: &Target) -> Vec<Vec<u8>> {
    let one = |n: u16| {
        let [high, low] = n.to_be_bytes();
        ethernet([2, 0x78, 0, 0, high, low], t.own, 0x88b5, &[])
    };
    (0..4096).map(one).collect()
}

/// Interests that nobody answers and that live for a minute.
fn pending_interests(t: &Target) -> Vec<Vec<u8>> {
    let (own, router) = (format!("10.0.{}.2", t.net), format!("10.0.{}.1", t.net));
    let one = |n| interest("flood", n, Duration::from_secs(60));
    (0..60_000).map(|n| frame(t).ipv4(&own, &router).udp(7000, 6363, &one(n)).bytes()).collect()
}

/// Each from another port: a face for each.
fn faces_on_demand(t: &Target) -> Vec<Vec<u8>> {
    let (own, router) = (format!("10.0.{}.2", t.net), format!("10.0.{}.1", t.net));
    let one = |n: u16| interest("flood", n.into(), Duration::from_secs(1));
    (1024..50_000).map(|n| frame(t).ipv4(&own, &router).udp(n, 6363, &one(n)).bytes()).collect()
}

/// A thousand connections to the metrics that never complete a request.
fn metrics_connections(_: &Lab, ended: &AtomicBool) -> u64 {
    let connect = || {
        let stream =
            TcpStream::connect_timeout(&METRICS.parse().ok()?, Duration::from_secs(1)).ok()?;
        (&stream).write_all(b"GET /metrics HTTP/1.1\r\nHost: x").ok()?;
        Some(stream)
    };
    hold(1_000, connect, ended)
}

/// Connections to the control socket that never ask.
fn ctl_connections(lab: &Lab, ended: &AtomicBool) -> u64 {
    let path = lab.scratch.join("ctl.sock");
    hold(64, || UnixStream::connect(&path).ok(), ended)
}

/// Opens connections, again where one was closed, and keeps them until the end; how many were made.
fn hold<T>(count: usize, connect: impl Fn() -> Option<T>, ended: &AtomicBool) -> u64 {
    let (mut held, mut made) = (std::collections::VecDeque::new(), 0);
    while !ended.load(Ordering::Relaxed) {
        match connect() {
            Some(stream) => {
                held.push_back(stream);
                made += 1;
            }
            None => std::thread::sleep(Duration::from_millis(10)),
        }
        if held.len() > count {
            held.pop_front();
            std::thread::sleep(Duration::from_millis(1));
        }
    }
    made
}
