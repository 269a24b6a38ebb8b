//! Packets through plan, seal, open and back: what comes out is what went in.

use std::net::IpAddr;

use crypto::esp::{self, Seal};
use crypto::{Authentication, Key, Secret, Suite};
use ipsec::inbound::{self, Found, Wrong, combined, found, inner, transport_back};
use ipsec::outbound::{self, Plan, Refusal, inner_max, packet_max, plan};
use ipsec::{Association, Database, Direction, Dont, Dscp, Mode, Parameters, Udp, words};
use packet::checksum::internet_checksum;
use packet::fragment::Fragmenter6;
use packet::ipv4::Ipv4Header;
use packet::ipv6::Ipv6Header;
use packet::{Decoded, IpProtocol, Kind};
use proptest::prelude::*;

/// Both halves of an association.
fn pair(parameters: &Parameters, suite: Suite) -> (Association, Association) {
    let key = || {
        let of = |len: usize| Secret::new((0..len as u8).collect());
        let (encryption, authentication) =
            (of(suite.encryption_key_len()), of(suite.authentication_key_len()));
        Key::new(suite, &encryption, &authentication).unwrap()
    };
    let of = |direction| {
        let parameters = Parameters { direction, ..parameters.clone() };
        Association::new(parameters, key(), 0).unwrap()
    };
    (of(Direction::Out), of(Direction::In))
}

/// An IP packet with a UDP datagram or other bytes behind extension headers.
#[derive(Debug, Clone)]
struct Inner {
    is_v6: bool,
    class: u8,
    ttl: u8,
    df: bool,
    /// Extension headers of IPv6: hop-by-hop, destination options.
    extensions: (bool, bool),
    len: usize,
}

fn ends(is_v6: bool) -> (IpAddr, IpAddr) {
    match is_v6 {
        false => ([10, 0, 0, 1].into(), [10, 0, 0, 2].into()),
        true => ("fd00::1".parse().unwrap(), "fd00::2".parse().unwrap()),
    }
}

impl Inner {
    fn bytes(&self) -> Vec<u8> {
        let upper: Vec<u8> = (0..self.len).map(|at| at as u8).collect();
        let mut out = vec![0; 40];
        let mut rest = Vec::new();
        let (from, to) = ends(self.is_v6);
        match (from, to) {
            (IpAddr::V4(src), IpAddr::V4(dst)) => {
                out.truncate(20);
                let header = Ipv4Header {
                    traffic_class: self.class,
                    ttl: self.ttl,
                    dont_fragment: self.df,
                    ..Ipv4Header::new(src, dst, IpProtocol(200))
                };
                header.emit(upper.len(), &mut out).unwrap();
            }
            (IpAddr::V6(src), IpAddr::V6(dst)) => {
                let mut next = 200;
                // From the last one to the first one.
                if self.extensions.1 {
                    rest.splice(0..0, [next, 0, 1, 4, 0, 0, 0, 0]);
                    next = 60;
                }
                if self.extensions.0 {
                    rest.splice(0..0, [next, 0, 1, 4, 0, 0, 0, 0]);
                    next = 0;
                }
                let header = Ipv6Header {
                    traffic_class: self.class,
                    flow_label: 5,
                    hop_limit: self.ttl,
                    ..Ipv6Header::new(src, dst, IpProtocol(next))
                };
                header.emit(rest.len() + upper.len(), &mut out).unwrap();
            }
            _ => unreachable!(),
        }
        [out, rest, upper].concat()
    }
}

fn decode(ip: &[u8]) -> Decoded {
    packet::decode::decode_ip(ip, ip.len())
}

/// Seals a packet; the IP packet that comes out.
fn seal(own: &Association, ip: &[u8]) -> Result<Vec<u8>, Refusal> {
    Ok(seal_by(own, ip, plan(own, ip, &decode(ip), usize::MAX)?))
}

fn seal_by(own: &Association, ip: &[u8], plan: Plan) -> Vec<u8> {
    let (kept, rest) = ip.split_at(plan.kept as usize);
    let room = |len: u32| vec![0xee; len as usize];
    let mut out = [kept, &room(plan.front), rest, &room(plan.back)].concat();
    assert_eq!(out.len(), plan.len());
    let number = own.sealer().unwrap().take(1).next().unwrap();
    plan.write_headers(own, &mut out, number.value());
    let mut seals: [Seal<'_>; 1] =
        [number.seal(&mut out, plan.payload_range(), plan.next_header, plan.padding as usize)];
    esp::seal_batch(&mut seals);
    seals[0].result().unwrap();
    outbound::finish(own, &plan, &mut out);
    out
}

/// Opens a packet; the IP packet that was inside.
fn open(own: &Association, ip: &mut [u8]) -> Vec<u8> {
    let d = decode(ip);
    let Found::Esp { at, spi, end, port } = found(ip, &d) else { panic!("{:?}", found(ip, &d)) };
    assert_eq!(spi, own.parameters().spi);
    assert!(inbound::is_encapsulated_right(own, port));
    let mut opens = [own.opener().unwrap().open(&mut ip[at..end])];
    esp::open_batch(&mut opens);
    let opened = opens[0].result().unwrap();
    if inbound::is_tunnel(own) {
        let payload = &mut ip[at + opened.payload.start..at + opened.payload.end];
        let found = inner(own, payload, opened.next_header, d.traffic_class & 3).unwrap();
        return payload[..found.len].to_vec();
    }
    let rest = transport_back(ip, &d, (at, opened.payload), opened.next_header, port.is_some());
    let rest = rest.unwrap();
    let start = rest.kept + rest.gone;
    [&ip[..rest.kept], &ip[start..start + rest.len]].concat()
}

fn inner_packets() -> impl Strategy<Value = Inner> {
    let flags = (any::<bool>(), any::<bool>(), any::<(bool, bool)>());
    (flags, any::<u8>(), 2u8..=255, 8usize..1400).prop_map(
        |((is_v6, df, extensions), class, ttl, len)| Inner {
            is_v6,
            class,
            ttl,
            df,
            extensions,
            len,
        },
    )
}

fn parameters() -> impl Strategy<Value = Parameters> {
    let outer = any::<bool>();
    let dscp = prop_oneof![Just(Dscp::Copy), (0u8..64).prop_map(Dscp::Set)];
    let df = prop::sample::select(vec![Dont::Copy, Dont::Set, Dont::Clear]);
    let udp = prop::option::of(Just(Udp { source: 4500, destination: 4500 }));
    let pad = prop_oneof![Just(0u16), 0u16..1500];
    (outer, any::<[bool; 3]>(), dscp, df, udp, pad).prop_map(
        |(is_v6, flags, dscp, df, udp, pad)| {
            let ends = match is_v6 {
                false => ([192, 0, 2, 1].into(), [198, 51, 100, 1].into()),
                true => ("2001:db8::1".parse().unwrap(), "2001:db8::2".parse().unwrap()),
            };
            let [is_transport, is_extended, ecn] = flags;
            Parameters {
                mode: if is_transport { Mode::Transport } else { Mode::Tunnel },
                is_extended,
                udp,
                pad_to: pad,
                dscp,
                dont_fragment: df,
                ecn,
                ..Parameters::new(Direction::Out, 0x1234, ends, 1)
            }
        },
    )
}

/// The inner packet as a router forwards it.
fn lowered(ip: &[u8]) -> Vec<u8> {
    let mut ip = ip.to_vec();
    match ip[0] >> 4 {
        4 => packet::checksum::ipv4_decrement_ttl(&mut ip),
        _ => packet::ipv6::decrement_hop_limit(&mut ip),
    }
    ip
}

proptest! {
    /// Every suite, family and mode; headers are right, and the outer ones say what they must.
    #[test]
    fn what_is_sealed_is_opened(
        packet in inner_packets(),
        parameters in parameters(),
        suite in prop::sample::select(Suite::all().collect::<Vec<_>>()),
    ) {
        let mut parameters = parameters;
        if parameters.mode == Mode::Transport {
            (parameters.source, parameters.destination) = ends(packet.is_v6);
        }
        let (out, back) = pair(&parameters, suite);
        let ip = packet.bytes();
        let mut sealed = seal(&out, &ip).unwrap();
        let d = decode(&sealed);
        prop_assert_eq!(d.anomaly, packet::Anomaly::None);
        prop_assert_eq!(d.ip_total_len as usize, sealed.len());
        prop_assert_eq!(d.src_ip(), Some(parameters.source));
        prop_assert_eq!(d.dst_ip(), Some(parameters.destination));
        let expected = match parameters.mode {
            Mode::Tunnel => {
                let dscp = match parameters.dscp { Dscp::Copy => packet.class >> 2, Dscp::Set(own) => own };
                let ecn = if parameters.ecn { packet.class & 3 } else { 0 };
                prop_assert_eq!(d.traffic_class, dscp << 2 | ecn);
                prop_assert_eq!(d.ttl, parameters.hop_limit);
                if d.kind == Kind::Ipv4 {
                    let df = match parameters.dont_fragment {
                        Dont::Copy => packet.is_v6 || packet.df,
                        Dont::Set => true,
                        Dont::Clear => false,
                    };
                    prop_assert_eq!(d.has(Decoded::DONT_FRAGMENT), df);
                }
                prop_assert!(sealed.len() >= usize::from(parameters.pad_to));
                lowered(&ip)
            }
            Mode::Transport => {
                prop_assert_eq!(d.traffic_class, packet.class);
                ip.clone()
            }
        };
        if parameters.udp.is_some() && d.kind == Kind::Ipv6 {
            let udp = &sealed[usize::from(d.l4_offset)..];
            let (Some(IpAddr::V6(src)), Some(IpAddr::V6(dst))) = (d.src_ip(), d.dst_ip()) else { panic!() };
            let sum = packet::checksum::pseudo_header_v6(src, dst, IpProtocol::UDP, udp.len() as u32);
            prop_assert_eq!(packet::checksum::finish(sum + packet::checksum::partial_sum(udp)), 0);
        }
        let opened = open(&back, &mut sealed);
        prop_assert_eq!(opened, expected);
    }

    /// What may leave in fragments is the same packet: over IPv4 without DF, over IPv6 behind a fragment header, and its fragments
    /// have all of it.
    #[test]
    fn what_is_divided_is_opened(
        packet in inner_packets(),
        parameters in parameters(),
        suite in prop::sample::select(Suite::all().collect::<Vec<_>>()),
        mtu in 56u16..1500,
    ) {
        let parameters = Parameters { mode: Mode::Tunnel, ..parameters };
        let (out, back) = pair(&parameters, suite);
        let ip = packet.bytes();
        let whole = plan(&out, &ip, &decode(&ip), usize::MAX).unwrap();
        let divided = whole.divided().unwrap();
        prop_assert_eq!(divided.divided(), Ok(divided));
        let mut sealed = seal_by(&out, &ip, divided);
        let d = decode(&sealed);
        prop_assert_eq!(d.anomaly, packet::Anomaly::None);
        prop_assert_eq!(d.ip_total_len as usize, sealed.len());
        if whole.family == 4 {
            prop_assert_eq!(divided.len(), whole.len());
            prop_assert_eq!(d.has(Decoded::DONT_FRAGMENT), parameters.dont_fragment == Dont::Set);
        } else {
            prop_assert_eq!(divided.len(), whole.len() + 8);
            prop_assert!(d.has(Decoded::FRAGMENT_HEADER) && !d.has(Decoded::FRAGMENT));
            let mut payload = Vec::new();
            for own in Fragmenter6::new(&sealed, mtu).unwrap() {
                prop_assert!(own.total_len() <= usize::from(mtu));
                prop_assert_eq!(&own.header()[44..], &[0, 0, 0, 1], "its number, out of a database");
                payload.extend_from_slice(&sealed[own.payload]);
            }
            let protocol = sealed[40];
            sealed.truncate(40);
            sealed[4..6].copy_from_slice(&(payload.len() as u16).to_be_bytes());
            sealed[6] = protocol;
            sealed.extend(payload);
            if parameters.udp.is_some() {
                let d = decode(&sealed);
                let udp = &sealed[usize::from(d.l4_offset)..];
                let (Some(IpAddr::V6(src)), Some(IpAddr::V6(dst))) = (d.src_ip(), d.dst_ip()) else { panic!() };
                let sum = packet::checksum::pseudo_header_v6(src, dst, IpProtocol::UDP, udp.len() as u32);
                prop_assert_eq!(packet::checksum::finish(sum + packet::checksum::partial_sum(udp)), 0);
            }
        }
        prop_assert_eq!(open(&back, &mut sealed), lowered(&ip));
    }

    /// A flipped bit anywhere in ESP, and a packet that is cut, are refused; nothing panics.
    #[test]
    fn what_is_changed_is_refused(
        packet in inner_packets(),
        parameters in parameters(),
        suite in prop::sample::select(Suite::all().collect::<Vec<_>>()),
        (at, bit) in (any::<prop::sample::Index>(), 0u8..8),
        cut in any::<prop::sample::Index>(),
    ) {
        let mut parameters = parameters;
        parameters.mode = Mode::Tunnel;
        let (out, back) = pair(&parameters, suite);
        let sealed = seal(&out, &packet.bytes()).unwrap();
        let d = decode(&sealed);
        let Found::Esp { at: start, end, .. } = found(&sealed, &d) else { panic!() };
        let mut changed = sealed.clone();
        let place = start + 8 + at.index(end - start - 8);
        changed[place] ^= 1 << bit;
        let mut opens = [back.opener().unwrap().open(&mut changed[start..end])];
        esp::open_batch(&mut opens);
        prop_assert_eq!(opens[0].result(), Err(esp::OpenError::Authentication));
        let mut short = sealed[..start + cut.index(end - start)].to_vec();
        let mut opens = [back.opener().unwrap().open(&mut short[start..])];
        esp::open_batch(&mut opens);
        prop_assert!(opens[0].result().is_err());
    }

    /// Whatever the bytes are: there is an answer.
    #[test]
    fn any_bytes_have_an_answer(bytes in prop::collection::vec(any::<u8>(), 0..200), next in any::<u8>(), udp in any::<bool>()) {
        let d = decode(&bytes);
        let _ = found(&bytes, &d);
        let suite = Suite::new(crypto::Encryption::Null, Authentication::HmacSha1_96).unwrap();
        let ends = ([192, 0, 2, 1].into(), [198, 51, 100, 1].into());
        for mode in [Mode::Tunnel, Mode::Transport] {
            let parameters = Parameters { mode, ..Parameters::new(Direction::Out, 0x1234, ends, 1) };
            let (out, back) = pair(&parameters, suite);
            if d.anomaly == packet::Anomaly::None {
                let _ = plan(&out, &bytes, &d, usize::MAX);
            }
            let _ = inner(&back, &mut bytes.clone(), next, 3);
        }
        if d.is_ip() {
            let at = usize::from(d.l4_offset);
            let _ = transport_back(&mut bytes.clone(), &d, (at, 8..20), next, udp);
        }
    }

    /// The longest packet that fits does, and the next longer one does not.
    #[test]
    fn the_longest_packet_is_the_longest(
        parameters in parameters(),
        suite in prop::sample::select(Suite::all().collect::<Vec<_>>()),
        mtu in 600usize..9000,
    ) {
        let parameters = Parameters { mode: Mode::Tunnel, pad_to: 0, ..parameters };
        let (out, _) = pair(&parameters, suite);
        let most = inner_max(&out, mtu);
        let len = |len: usize| {
            let packet =
                Inner { is_v6: false, class: 0, ttl: 9, df: true, extensions: (false, false), len: len - 20 };
            let ip = packet.bytes();
            plan(&out, &ip, &decode(&ip), mtu).unwrap().len()
        };
        prop_assert!(len(most) <= mtu);
        prop_assert!(len(most + 1) > mtu);
        // In transport mode, whatever the packet is that asks.
        let ends = ends(false);
        let parameters = Parameters {
            mode: Mode::Transport,
            source: ends.0,
            destination: ends.1,
            ..out.parameters().clone()
        };
        let (out, _) = pair(&parameters, suite);
        let of = |len: usize| {
            let packet =
                Inner { is_v6: false, class: 0, ttl: 9, df: true, extensions: (false, false), len: len - 20 };
            let ip = packet.bytes();
            plan(&out, &ip, &decode(&ip), mtu).unwrap()
        };
        let most = packet_max(&out, &of(mtu), mtu);
        prop_assert_eq!(packet_max(&out, &of(30), mtu), most);
        prop_assert!(of(most).len() <= mtu && of(most + 1).len() > mtu);
    }

    /// TFC padding goes as far as asked for, or as the way takes, and makes no packet too long for it.
    #[test]
    fn padding_ends_where_the_way_does(
        parameters in parameters(),
        suite in prop::sample::select(Suite::all().collect::<Vec<_>>()),
        (mtu, pad_to) in (600usize..9000, any::<u16>()),
        packet in inner_packets(),
    ) {
        let parameters = Parameters { mode: Mode::Tunnel, pad_to, ..parameters };
        let (out, _) = pair(&parameters, suite);
        let ip = packet.bytes();
        let padded = plan(&out, &ip, &decode(&ip), mtu).unwrap();
        let most = inner_max(&out, mtu);
        let expected = usize::from(pad_to).min(most).saturating_sub(ip.len());
        prop_assert_eq!(padded.padding as usize, expected);
        prop_assert!(padded.len() <= mtu || ip.len() > most);
    }
}

#[test]
fn congestion_marks_are_those_of_the_rfc() {
    // Figure 4 of RFC 6040: rows are inner marks Not-ECT, ECT(0), ECT(1), CE; columns outer ones in that order.
    let marks = [0, 2, 1, 3];
    let expected = [
        [Some(0), Some(0), Some(0), None],
        [Some(2), Some(2), Some(1), Some(3)],
        [Some(1), Some(1), Some(1), Some(3)],
        [Some(3), Some(3), Some(3), Some(3)],
    ];
    for (row, inner) in marks.into_iter().enumerate() {
        for (column, outer) in marks.into_iter().enumerate() {
            assert_eq!(combined(inner, outer), expected[row][column], "{inner} {outer}");
        }
    }
}

/// Marks change in place, and the checksum with them.
#[test]
fn a_mark_keeps_the_checksum_right() {
    let suite = Suite::new(crypto::Encryption::Null, Authentication::HmacSha1_96).unwrap();
    let ends = ([192, 0, 2, 1].into(), [198, 51, 100, 1].into());
    let (_, back) = pair(&Parameters::new(Direction::Out, 0x1234, ends, 1), suite);
    for is_v6 in [false, true] {
        let packet =
            Inner { is_v6, class: 0xba, ttl: 9, df: false, extensions: (false, false), len: 9 };
        let mut ip = packet.bytes();
        inner(&back, &mut ip, if is_v6 { 41 } else { 4 }, 3).unwrap();
        let d = decode(&ip);
        assert_eq!((d.traffic_class, d.anomaly), (0xbb, packet::Anomaly::None));
        if !is_v6 {
            assert_eq!(internet_checksum(&ip[..20]), 0);
            // One that is wrong stays so, and the packet is dropped for it.
            let mut ip = packet.bytes();
            ip[10] ^= 1;
            inner(&back, &mut ip, 4, 3).unwrap();
            assert_eq!(decode(&ip).traffic_class, 0xbb);
            assert_ne!(internet_checksum(&ip[..20]), 0);
        }
    }
}

/// RFC 4303 §2.6: whatever the mode and the family.
#[test]
fn packets_for_their_looks_end_here() {
    let suite = Suite::new(crypto::Encryption::Null, Authentication::HmacSha1_96).unwrap();
    for is_v6 in [false, true] {
        let parameters = Parameters::new(Direction::Out, 0x1234, ends(is_v6), 1);
        let (_, back) = pair(&parameters, suite);
        assert_eq!(inner(&back, &mut [0; 40], 59, 0), Err(Wrong::Dummy));
        let packet =
            Inner { is_v6, class: 0, ttl: 9, df: false, extensions: (false, false), len: 30 };
        let mut ip = packet.bytes();
        let d = decode(&ip);
        let at = usize::from(d.l4_offset);
        assert_eq!(transport_back(&mut ip, &d, (at, 8..20), 59, false), Err(Wrong::Dummy));
    }
}

#[test]
fn messages_on_the_port_of_esp_are_told_apart() {
    let datagram = |port: u16, load: &[u8]| {
        let (IpAddr::V4(src), IpAddr::V4(dst)) = ends(false) else { panic!() };
        let mut out = vec![0; 28];
        Ipv4Header::new(src, dst, IpProtocol::UDP).emit(8 + load.len(), &mut out).unwrap();
        out[20..28].copy_from_slice(
            [1111, port, 8 + load.len() as u16, 0].map(u16::to_be_bytes).as_flattened(),
        );
        [out, load.to_vec()].concat()
    };
    let of = |port, load: &[u8]| {
        let ip = datagram(port, load);
        found(&ip, &decode(&ip))
    };
    assert_eq!(of(4500, &[0xff]), Found::KeepAlive);
    assert_eq!(of(4500, &[0xfe]), Found::Other);
    assert_eq!(of(4500, &[0, 0, 0, 0, 1, 2, 3, 4]), Found::Other, "key agreement");
    assert_eq!(of(4500, &[0, 0, 1, 0, 0, 0]), Found::Short);
    let esp = Found::Esp { at: 28, spi: 256, end: 36, port: Some(1111) };
    assert_eq!(of(4500, &[0, 0, 1, 0, 0, 0, 0, 1]), esp);
    assert_eq!(of(4501, &[0, 0, 1, 0, 0, 0, 0, 1]), Found::Other);
}

/// A peer behind a translator that moves: what is sent follows, once somebody says so.
#[test]
fn a_peer_that_moves_is_noticed() {
    let suite = Suite::new(crypto::Encryption::Null, Authentication::HmacSha1_96).unwrap();
    let ends: (IpAddr, IpAddr) = ([192, 0, 2, 1].into(), [198, 51, 100, 1].into());
    let udp = Some(Udp { source: 4500, destination: 4500 });
    let (out, back) =
        pair(&Parameters { udp, ..Parameters::new(Direction::Out, 0x1234, ends, 1) }, suite);
    let (home, away) = (words(ends.0).1, words([203, 0, 113, 9].into()).1);
    let accept = |number| back.opener().unwrap().accept(number).unwrap();
    accept(10);
    assert_eq!(back.heard_from(10, home, 4500), Some(false), "where it is was not known");
    assert_eq!(back.heard_from(10, home, 4500), None);
    accept(9);
    assert_eq!(back.heard_from(9, away, 30_000), None, "a late packet");
    accept(11);
    assert_eq!(back.heard_from(11, home, 30_000), Some(true));
    assert_eq!((back.heard_from(11, away, 30_000), back.source()), (Some(true), away));

    // Without a window a packet may come again, and says nothing then.
    let own = Parameters { udp, window: 0, ..Parameters::new(Direction::Out, 0x1235, ends, 1) };
    let (_, open) = pair(&own, suite);
    assert_eq!(open.heard_from(1, home, 4500), Some(false));
    assert_eq!(open.heard_from(2, home, 4500), None);
    assert_eq!(open.heard_from(2, away, 30_000), None, "again, from elsewhere");
    assert_eq!(open.heard_from(3, away, 30_000), Some(true));

    let to = |ip: &[u8]| (decode(ip).dst_ip().unwrap(), decode(ip).ports().unwrap().1);
    let extensions = (false, false);
    let inner = Inner { is_v6: false, class: 0, ttl: 9, df: false, extensions, len: 10 };
    assert_eq!(out.peer(), (ends.1, Some(4500)));

    // In a database what sends follows what receives, also what is added later.
    let mut database = Database::new();
    let mut add = |direction, spi, (source, destination), udp| {
        let key = || Key::new(suite, &Secret::none(), &Secret::new(vec![spi as u8; 20])).unwrap();
        let own = Parameters { udp, ..Parameters::new(direction, spi, (source, destination), 1) };
        database.replace(own, key(), 0).unwrap()
    };
    let (there, back) = (ends, (ends.1, ends.0));
    let first = add(Direction::Out, 256, there, udp);
    let old = add(Direction::In, 257, back, udp);
    assert_eq!(first.peer(), (ends.1, Some(4500)));
    assert_eq!(old.heard_from(5, away, 30_000), Some(true));
    let sealed = seal(&first, &inner.bytes()).unwrap();
    assert_eq!(to(&sealed), ([203, 0, 113, 9].into(), 30_000));
    assert_eq!(decode(&sealed).anomaly, packet::Anomaly::None);
    let second = add(Direction::Out, 258, there, udp);
    let new = add(Direction::In, 259, back, udp);
    assert_eq!(to(&seal(&second, &inner.bytes()).unwrap()).1, 30_000);
    assert_eq!(new.heard_from(1, words(ends.1).1, 4500), Some(true));
    assert_eq!(to(&seal(&second, &inner.bytes()).unwrap()), (ends.1, 4500));
    // What the old association says is older.
    assert_eq!(old.heard_from(6, away, 30_000), None);
    assert_eq!(first.peer(), (ends.1, Some(4500)));
    // Another peer is not concerned, and a port that somebody says in the place of one counts.
    let other = add(Direction::Out, 260, (ends.0, [198, 51, 100, 2].into()), udp);
    assert_eq!(new.heard_from(2, away, 30_000), Some(true));
    assert_eq!(other.peer().1, Some(4500));
    let said = Some(Udp { source: 4500, destination: 7777 });
    assert_eq!(add(Direction::Out, 258, there, said).peer(), (ends.1, Some(7777)));
}

/// What was computed over the addresses in front of a translator is right again behind it.
#[test]
fn checksums_follow_the_addresses() {
    let sum = |ip: &[u8], l4: usize, protocol: u8| {
        let (header, segment) = ip.split_at(l4);
        let (len, protocol) = (segment.len(), IpProtocol(protocol));
        let pseudo = match header[0] >> 4 {
            4 => {
                let [src, dst] =
                    [12, 16].map(|at| <[u8; 4]>::try_from(&header[at..at + 4]).unwrap());
                packet::checksum::pseudo_header_v4(src.into(), dst.into(), protocol, len as u16)
            }
            _ => {
                let [src, dst] =
                    [8, 24].map(|at| <[u8; 16]>::try_from(&header[at..at + 16]).unwrap());
                packet::checksum::pseudo_header_v6(src.into(), dst.into(), protocol, len as u32)
            }
        };
        packet::checksum::finish(pseudo + packet::checksum::partial_sum(segment))
    };
    for (first, l4) in [(0x45, 20), (0x60, 40)] {
        for (protocol, at) in [(6, 16), (17, 6), (58, 2)] {
            let mut ip: Vec<u8> = (0..l4 as u8 + 33).collect();
            ip[0] = first;
            let before = ip.clone();
            let (header, segment) = ip.split_at_mut(l4);
            inbound::repair_checksum(header, segment, protocol);
            let is_icmp4 = protocol == 58 && first == 0x45;
            assert!(is_icmp4 || sum(&ip, l4, protocol) == 0, "{first:#x} {protocol}");
            let field = l4 + at;
            assert_eq!((&ip[..field], &ip[field + 2..]), (&before[..field], &before[field + 2..]));
        }
        // None, and too short for one.
        let mut none = vec![first; l4 + 8];
        none[l4 + 6..].fill(0);
        let before = none.clone();
        let (header, segment) = none.split_at_mut(l4);
        inbound::repair_checksum(header, segment, 17);
        (0..8).for_each(|len| inbound::repair_checksum(header, &mut segment[..len], 6));
        (0..l4).for_each(|len| inbound::repair_checksum(&header[..len.min(15)], segment, 6));
        assert_eq!(none, before);
    }
}

/// A packet whose fragment header makes it longer than any is refused.
#[test]
fn the_fragment_header_counts() {
    let suite = Suite::all().next().unwrap();
    let ends = ("2001:db8::1".parse().unwrap(), "2001:db8::2".parse().unwrap());
    let (out, _) = pair(&Parameters::new(Direction::Out, 0x1234, ends, 1), suite);
    let of = |len: usize| {
        let packet =
            Inner { is_v6: false, class: 0, ttl: 9, df: false, extensions: (false, false), len };
        let ip = packet.bytes();
        plan(&out, &ip, &decode(&ip), usize::MAX)
    };
    let longest = (65_000..65_515).rev().find_map(|len| of(len).ok()).unwrap();
    assert!(longest.len() > 65_567);
    assert_eq!(longest.divided(), Err(Refusal::TooLong));
    let shorter = of(longest.payload as usize - 20 - 16).unwrap();
    assert_eq!(shorter.divided().unwrap().len(), shorter.len() + 8);
}

/// Fragments over IPv6 are joined by addresses and identification alone (RFC 8200 §4.5): associations between two addresses have one
/// counter, in UDP or not, and it begins where nobody else can know.
#[test]
fn identifications_over_ipv6_are_those_of_the_ends() {
    let suite = Suite::all().next().unwrap();
    let key = |byte: u8| {
        let of = |len: usize| Secret::new(vec![byte; len]);
        Key::new(suite, &of(suite.encryption_key_len()), &of(suite.authentication_key_len()))
            .unwrap()
    };
    let id = |own: &Association| {
        let ip = Inner {
            is_v6: false,
            class: 0,
            ttl: 9,
            df: false,
            extensions: (false, false),
            len: 40,
        }
        .bytes();
        let plan = plan(own, &ip, &decode(&ip), 1500).unwrap();
        let sealed = seal_by(own, &ip, plan.divided().unwrap());
        u32::from_be_bytes(*sealed[44..].first_chunk().unwrap())
    };
    let ends = ("2001:db8::1".parse().unwrap(), "2001:db8::2".parse().unwrap());
    let of = |spi| Parameters::new(Direction::Out, spi, ends, 1);
    let udp = Some(Udp { source: 4500, destination: 4500 });
    let all = |mut database: Database| {
        let first = database.add(of(0x1001), key(1), 0).unwrap();
        let begin = id(&first);
        let second = database.add(Parameters { udp, ..of(0x1002) }, key(2), 0).unwrap();
        let next = [&second, &first, &second].map(|own| id(own).wrapping_sub(begin));
        assert_eq!(next, [1, 2, 3]);
        let other = "2001:db8::3".parse().unwrap();
        let elsewhere = Parameters { destination: other, ..of(0x1003) };
        let elsewhere = id(&database.add(elsewhere, key(3), 0).unwrap());
        // A counter that is gone does not begin again where it was.
        for spi in [0x1001, 0x1002] {
            database.delete(spi, ends.1).unwrap();
        }
        drop((first, second));
        let again = id(&database.add(of(0x1001), key(4), 0).unwrap());
        [begin, elsewhere, again]
    };
    let seeded = || all(Database::with_seed(7));
    let (own, other, secret) = (seeded(), all(Database::with_seed(8)), all(Database::new()));
    assert_eq!(own, seeded(), "a run is repeatable");
    let far = |a: u32, b: u32| a.wrapping_sub(b).min(b.wrapping_sub(a)) > 1000;
    for (a, b) in [(own[0], own[1]), (own[0], own[2]), (own[0], other[0]), (own[0], secret[0])] {
        assert!(far(a, b), "{a:#x} {b:#x}");
    }
}

/// Receivers join fragments by addresses, protocol and identification (RFC 6864): no two packets that may be fragmented have one, of
/// whichever association between two addresses they are.
#[test]
fn identifications_are_those_of_the_ends() {
    let suite = Suite::all().next().unwrap();
    let key = |byte: u8| {
        let of = |len: usize| Secret::new(vec![byte; len]);
        Key::new(suite, &of(suite.encryption_key_len()), &of(suite.authentication_key_len()))
            .unwrap()
    };
    let id = |own: &Association, df: bool| {
        let packet =
            Inner { is_v6: false, class: 0, ttl: 9, df, extensions: (false, false), len: 40 };
        let packet = packet.bytes();
        let d = packet::decode::decode_ip(&packet, packet.len());
        let plan = plan(own, &packet, &d, 1500).unwrap();
        let number = own.sealer().unwrap().take(1).next().unwrap();
        let room = |len: u32| vec![0; len as usize];
        let mut sealed = [room(plan.front), packet, room(plan.back)].concat();
        plan.write_headers(own, &mut sealed, number.value());
        u16::from_be_bytes([sealed[4], sealed[5]])
    };
    let mut database = Database::new();
    let ends = ([192, 0, 2, 1].into(), [198, 51, 100, 1].into());
    let first_number = 65_534;
    let of = |spi| Parameters { first_number, ..Parameters::new(Direction::Out, spi, ends, 1) };
    let first = database.add(of(0x1001), key(1), 0).unwrap();
    // By itself it counts by its numbers.
    assert_eq!([true, false, true].map(|df| id(&first, df)), [65_534, 65_535, 0]);
    let second = database.add(of(0x1002), key(2), 0).unwrap();
    let elsewhere = Parameters { destination: [198, 51, 100, 2].into(), ..of(0x1003) };
    let elsewhere = database.add(elsewhere, key(3), 0).unwrap();
    let udp = Some(Udp { source: 4500, destination: 4500 });
    let in_udp = database.add(Parameters { udp, ..of(0x1004) }, key(4), 0).unwrap();
    let third = database.add(of(0x1005), key(5), 0).unwrap();
    let all = [&first, &second, &third, &first, &first, &second];
    assert_eq!(all.map(|own| id(own, false)), [1, 2, 3, 4, 5, 6]);
    assert_eq!(id(&second, true), 0, "its third number: nobody fragments it");
    assert_eq!([&elsewhere, &in_udp].map(|own| id(own, false)), [65_534; 2]);
    // One alone again: the counter goes on.
    for spi in [0x1001, 0x1002] {
        database.delete(spi, ends.1).unwrap();
    }
    drop((first, second));
    let again = database.add(of(0x1006), key(6), 0).unwrap();
    assert_eq!([&third, &again].map(|own| id(own, false)), [7, 8]);
}
