//! Flow records that tests share.

use std::net::IpAddr;

use packet::tunnel::{Kind, Path, Tunnel};
use proptest::prelude::*;
use stream::record::{FlowRecord, FlowState, Reason, SideRecord, TcpState};

/// 2017-03-06 06:21:46.789012345 UTC.
pub(crate) const START_NS: u64 = 1_488_781_306_789_012_345;

pub(crate) fn address(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn side(packets: u64, ip_bytes: u64, ttl: (u8, u8), tcp_flags: u16) -> SideRecord {
    let bytes = ip_bytes + 14 * packets;
    SideRecord { packets, bytes, ip_bytes, ttl, tcp_flags, ..Default::default() }
}

/// A closed TCP connection over IPv4, with two VLAN tags and what may go wrong.
pub(crate) fn tcp() -> FlowRecord {
    let mut client = side(10, 1_200, (63, 64), 0x1b);
    client.stream_bytes = 800;
    client.rtt_min_ns = Some(1_234_567);
    let mut server = side(12, 9_000, (57, 57), 0x13);
    (server.retransmissions, server.out_of_order) = (2, 3);
    (server.overlaps, server.conflicts) = (1, 4);
    (server.gaps, server.gap_bytes) = (1, 1_460);
    FlowRecord {
        id: 7,
        client: address("10.1.2.3"),
        server: address("192.0.2.80"),
        client_port: 40_000,
        server_port: 443,
        protocol: 6,
        icmp: None,
        vlans: [100, 20],
        tunnels: Path::NONE,
        port: 3,
        start_ns: START_NS,
        end_ns: START_NS + 2_500_000_000,
        sides: [client, server],
        state: FlowState::Closed,
        reason: Reason::Closed,
        tcp: Some(TcpState::TimeWait),
        handshake_rtt_ns: Some(20_345_678),
        application: None,
        is_alerted: false,
    }
}

/// A UDP exchange over IPv6.
pub(crate) fn udp6() -> FlowRecord {
    FlowRecord {
        id: 8,
        client: address("2001:db8::1"),
        server: address("2001:db8:0:1::53"),
        client_port: 5353,
        server_port: 53,
        protocol: 17,
        icmp: None,
        vlans: [0, 0],
        tunnels: nested(),
        port: 1,
        start_ns: START_NS + 5_000_000,
        end_ns: START_NS + 12_000_000,
        sides: [side(1, 80, (64, 64), 0), side(1, 300, (60, 60), 0)],
        state: FlowState::Established,
        reason: Reason::Timeout,
        tcp: None,
        handshake_rtt_ns: None,
        application: None,
        is_alerted: false,
    }
}

/// An echo over IPv4 with its answer.
pub(crate) fn icmp() -> FlowRecord {
    FlowRecord {
        id: 9,
        client: address("192.168.0.89"),
        server: address("192.168.0.1"),
        client_port: 77,
        server_port: 77,
        protocol: 1,
        icmp: Some((8, 0)),
        vlans: [5, 0],
        reason: Reason::Evicted,
        sides: [side(3, 252, (64, 64), 0), side(3, 252, (255, 255), 0)],
        ..udp6()
    }
}

/// A neighbour solicitation without an answer.
pub(crate) fn icmp6() -> FlowRecord {
    FlowRecord {
        id: 10,
        client: address("fe80::200:86ff:fe05:80da"),
        server: address("fe80::260:97ff:fe07:69ea"),
        client_port: 0,
        server_port: 0,
        protocol: 58,
        icmp: Some((135, 0)),
        state: FlowState::New,
        sides: [side(1, 72, (255, 255), 0), SideRecord::default()],
        ..udp6()
    }
}

/// SCTP over IPv4, still there.
pub(crate) fn sctp() -> FlowRecord {
    FlowRecord {
        id: 11,
        client: address("192.168.170.8"),
        server: address("192.168.170.56"),
        client_port: 7,
        server_port: 80,
        protocol: 132,
        reason: Reason::Active,
        ..udp6()
    }
}

/// A protocol without ports or a name, bypassed.
pub(crate) fn other() -> FlowRecord {
    FlowRecord {
        id: 12,
        client: address("10.1.24.4"),
        server: address("10.1.12.1"),
        client_port: 0,
        server_port: 0,
        protocol: 253,
        state: FlowState::Bypassed,
        reason: Reason::Shutdown,
        ..udp6()
    }
}

pub(crate) fn all() -> Vec<FlowRecord> {
    vec![tcp(), udp6(), icmp(), icmp6(), sctp(), other()]
}

fn any_side() -> impl Strategy<Value = SideRecord> {
    let counts = any::<([u64; 5], [u32; 5])>();
    (counts, any::<(u8, u8)>(), any::<u16>(), any::<Option<u64>>()).prop_map(
        |((long, short), ttl, tcp_flags, rtt_min_ns)| SideRecord {
            packets: long[0],
            bytes: long[1],
            ip_bytes: long[2],
            ttl,
            tcp_flags,
            stream_bytes: long[3],
            retransmissions: short[0],
            out_of_order: short[1],
            overlaps: short[2],
            conflicts: short[3],
            gaps: short[4],
            gap_bytes: long[4],
            rtt_min_ns,
        },
    )
}

/// VXLAN 100, and GRE without a key in it.
fn nested() -> Path {
    let path = Path::NONE.through(Tunnel { kind: Kind::Vxlan, id: 100 }).unwrap();
    path.through(Tunnel { kind: Kind::Gre, id: 0 }).unwrap()
}

/// Any record whose addresses are of one family.
pub(crate) fn any_record() -> impl Strategy<Value = FlowRecord> {
    use FlowState::*;
    let v4 = any::<[[u8; 4]; 2]>().prop_map(|ends| ends.map(IpAddr::from));
    let v6 = any::<[[u8; 16]; 2]>().prop_map(|ends| ends.map(IpAddr::from));
    let states = prop::sample::select(vec![New, Established, Closed, Bypassed]);
    let reasons = prop::sample::select(vec![
        Reason::Active,
        Reason::Timeout,
        Reason::Closed,
        Reason::Evicted,
        Reason::Shutdown,
    ]);
    let tcp = prop::sample::select(vec![
        None,
        Some(TcpState::None),
        Some(TcpState::SynSent),
        Some(TcpState::SynReceived),
        Some(TcpState::Established),
        Some(TcpState::FinWait1),
        Some(TcpState::FinWait2),
        Some(TcpState::CloseWait),
        Some(TcpState::LastAck),
        Some(TcpState::TimeWait),
        Some(TcpState::Closed),
    ]);
    let facts =
        any::<(u64, [u16; 2], u8, Option<(u8, u8)>, [u16; 2], u16, [u64; 2], Option<u64>)>();
    let ends = prop_oneof![v4, v6];
    let tunnels = prop::sample::select(vec![Path::NONE, nested()]);
    (facts, ends, [any_side(), any_side()], states, reasons, tcp, tunnels).prop_map(
        |(facts, [client, server], sides, state, reason, tcp, tunnels)| {
            let (id, [client_port, server_port], protocol, icmp, vlans, port, times, rtt) = facts;
            FlowRecord {
                id,
                client,
                server,
                client_port,
                server_port,
                protocol,
                icmp,
                vlans,
                tunnels,
                port,
                start_ns: times[0],
                end_ns: times[1],
                sides,
                state,
                reason,
                tcp,
                handshake_rtt_ns: rtt,
                application: None,
                is_alerted: false,
            }
        },
    )
}
