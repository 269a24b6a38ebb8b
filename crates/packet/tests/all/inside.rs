//! What tunnels carry: random packets in random tunnels, built by plain concatenation, are found again, each with its tunnels.

use packet::checksum::Checksums;
use packet::flow::tracked_hash_of_frame;
use packet::tunnel::{DEPTH_MAX, Inner, Kind, Kinds, Path, Tunnel, hash_of_frame, inside};
use packet::{Decoded, decode, ipv4};
use proptest::prelude::*;

/// A header around a packet: what is needed to build it.
#[derive(Clone, Debug)]
struct Layer {
    kind: Kind,
    id: u32,
    /// IPv6 outside?
    is_v6: bool,
    /// Bits that choose among forms: optional fields, Ethernet inside, extensions.
    form: u8,
    hosts: [u8; 2],
}

fn layer() -> impl Strategy<Value = Layer> {
    let kind = prop::sample::select(Kind::ALL.to_vec());
    (kind, any::<u32>(), any::<bool>(), any::<u8>(), any::<[u8; 2]>())
        .prop_map(|(kind, id, is_v6, form, hosts)| Layer { kind, id, is_v6, form, hosts })
}

fn ip(is_v6: bool, protocol: u8, hosts: [u8; 2], payload: &[u8]) -> Vec<u8> {
    let [a, b] = hosts.map(|host| host % 200 + 1);
    if is_v6 {
        let mut header = vec![0x60, 0, 0, 0, 0, 0, protocol, 60];
        header[4..6].copy_from_slice(&(payload.len() as u16).to_be_bytes());
        for host in [a, b] {
            header.extend([0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, host]);
        }
        return [header, payload.to_vec()].concat();
    }
    let mut packet = vec![0x45, 0, 0, 0, 0, 0, 0, 0, 60, protocol, 0, 0, 10, 7, 0, a, 10, 7, 0, b];
    packet[2..4].copy_from_slice(&((20 + payload.len()) as u16).to_be_bytes());
    packet.extend(payload);
    ipv4::fill_checksum(&mut packet[..20]);
    packet
}

fn ethernet(vlan: Option<u8>, packet: &[u8]) -> Vec<u8> {
    let mut frame = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2];
    if let Some(vlan) = vlan {
        frame.extend([0x81, 0, 0, vlan]);
    }
    frame.extend(if packet[0] >> 4 == 4 { [8, 0] } else { [0x86, 0xdd] });
    frame.extend(packet);
    frame
}

fn udp(ports: [u16; 2], payload: &[u8]) -> Vec<u8> {
    let len = (8 + payload.len()) as u16;
    [&ports[0].to_be_bytes()[..], &ports[1].to_be_bytes(), &len.to_be_bytes(), &[0; 2], payload]
        .concat()
}

impl Layer {
    /// The IP packet around `inner`, which is an IP packet; the tunnel; and how long what it carries is.
    fn around(&self, inner: &[u8]) -> (Vec<u8>, Tunnel, usize) {
        let bit = |n: u8| self.form >> n & 1 == 1;
        let is_v6_inside = inner[0] >> 4 == 6;
        let ethertype: [u8; 2] = if is_v6_inside { [0x86, 0xdd] } else { [8, 0] };
        let framed = ethernet(bit(7).then_some(self.form), inner);
        let vni = self.id >> 8;
        let vni_bytes = (vni << 8).to_be_bytes();
        let session = self.id & 0x3ff;
        let udp_to = |port: u16, header: &[u8], carried: &[u8]| {
            (17, udp([40_000, port], &[header, carried].concat()))
        };
        let (mut id, mut carried) = (0, inner.to_vec());
        let (protocol, payload) = match self.kind {
            Kind::IpInIp => (if is_v6_inside { 41 } else { 4 }, inner.to_vec()),
            Kind::Gre => {
                let with_ethernet = bit(3);
                let mut header = vec![u8::from(bit(0)) << 7, 0];
                header.extend(if with_ethernet { [0x65, 0x58] } else { ethertype });
                if bit(0) {
                    header.extend([0xab; 4]);
                }
                if bit(1) {
                    header[0] |= 0x20;
                    header.extend(self.id.to_be_bytes());
                    id = self.id;
                }
                if bit(2) {
                    header[0] |= 0x10;
                    header.extend([0xcd; 4]);
                }
                if with_ethernet {
                    carried = framed;
                }
                (47, [header, carried.clone()].concat())
            }
            Kind::Erspan => {
                carried = framed;
                let header = match self.form & 3 {
                    0 => vec![0, 0, 0x88, 0xbe],
                    1 => {
                        id = session;
                        let word = (1 << 28 | 77 << 16 | session).to_be_bytes();
                        [&[0x10, 0, 0x88, 0xbe, 0, 0, 0, 9][..], &word, &[0, 0, 0, 5]].concat()
                    }
                    form => {
                        id = session;
                        let word = (2 << 28 | 77 << 16 | session).to_be_bytes();
                        let has_more = form == 3;
                        let last = [0, 9, 0x80, u8::from(has_more)];
                        let more = vec![7; if has_more { 8 } else { 0 }];
                        let base: &[u8] = &[0x10, 0, 0x22, 0xeb, 0, 0, 0, 9];
                        [base, &word, &[1, 2, 3, 4], &last, &more].concat()
                    }
                };
                (47, [header, carried.clone()].concat())
            }
            Kind::Vxlan => {
                id = vni;
                // Bits that are ignored, and the one that says what follows.
                let flags = 0x08 | (self.form & 0xf3);
                let (is_named, with_ethernet) = (self.form & 4 != 0, bit(3));
                let next = if is_named {
                    match (with_ethernet, ethertype) {
                        (true, _) => 3,
                        (false, [8, 0]) => 1,
                        (false, _) => 2,
                    }
                } else {
                    self.form
                };
                if !is_named || with_ethernet {
                    carried = framed;
                }
                let flags = if is_named { flags | 4 } else { flags };
                let header = [&[flags, 0, 0, next][..], &vni_bytes].concat();
                udp_to(4789, &header, &carried)
            }
            Kind::Geneve => {
                id = vni;
                let with_ethernet = bit(3);
                let options = self.form & 7;
                let mut header = vec![options, 0];
                header.extend(if with_ethernet { [0x65, 0x58] } else { ethertype });
                header.extend(vni_bytes);
                header.extend(vec![0xee; 4 * usize::from(options)]);
                if with_ethernet {
                    carried = framed;
                }
                udp_to(6081, &header, &carried)
            }
            Kind::Gtp => {
                id = self.id;
                let mut more = Vec::new();
                let mut flags = 0x30;
                if bit(0) {
                    flags |= 0x04;
                    more.extend([0, 0, 0, 0x85]);
                    more.extend([1, 0x10, 9, if bit(1) { 0x40 } else { 0 }]);
                    if bit(1) {
                        more.extend([2, 1, 2, 3, 4, 5, 6, 0]);
                    }
                } else if bit(2) {
                    flags |= 0x02;
                    more.extend([0, 1, 0, 0]);
                }
                let len = (more.len() + inner.len()) as u16;
                let header = [&[flags, 255][..], &len.to_be_bytes(), &self.id.to_be_bytes(), &more];
                udp_to(2152, &header.concat(), inner)
            }
            Kind::Teredo => {
                let mut header = Vec::new();
                if bit(0) {
                    header.extend([0, 1, 2, 1, 5, 5, 6, 1, 2, 3, 4, 5, 6, 7, 8, 0]);
                }
                if bit(1) {
                    header.extend([0, 0, 1, 2, 3, 4, 5, 6]);
                }
                udp_to(3544, &header, inner)
            }
        };
        let packet = ip(self.is_v6, protocol, self.hosts, &payload);
        (packet, Tunnel { kind: self.kind, id }, carried.len())
    }
}

/// A frame, and for each of its levels, from the outermost on: the tunnel to it and its bytes in the end of the frame.
fn built(layers: &[Layer], inner: &[u8]) -> (Vec<u8>, Vec<(Tunnel, usize)>) {
    let (mut packet, mut levels) = (inner.to_vec(), Vec::new());
    for layer in layers {
        let (around, tunnel, len) = layer.around(&packet);
        (packet, levels) = (around, [&[(tunnel, len)][..], &levels].concat());
    }
    (ethernet(None, &packet), levels)
}

/// Layers that can be: Teredo carries IPv6.
fn layers(innermost_is_v6: bool) -> impl Strategy<Value = Vec<Layer>> {
    prop::collection::vec(layer(), 0..=4).prop_map(move |mut all| {
        let mut is_v6 = innermost_is_v6;
        for layer in &mut all {
            if layer.kind == Kind::Teredo && !is_v6 {
                layer.kind = Kind::Gtp;
            }
            is_v6 = layer.is_v6;
        }
        all
    })
}

fn any_kinds() -> impl Strategy<Value = Kinds> {
    any::<u8>().prop_map(|bits| {
        let asked = Kind::ALL.into_iter().filter(|kind| bits >> *kind as u8 & 1 == 1);
        asked.fold(Kinds::NONE, |all, kind| all.with(kind, None))
    })
}

fn has(kinds: &Kinds, kind: Kind) -> bool {
    kinds.elements().any(|own| own == kind.name())
}

/// TCP or UDP between two hosts, in one of both directions.
fn inner(is_v6: bool, is_tcp: bool, hosts: [u8; 2], back: bool) -> Vec<u8> {
    let (mut hosts, mut ports) = (hosts, [40_000_u16, 80]);
    if back {
        hosts.reverse();
        ports.reverse();
    }
    let mut l4 = udp(ports, b"inside");
    if is_tcp {
        l4 = [&l4[..4], &[0, 0, 0, 1, 0, 0, 0, 1, 0x50, 0x10, 1, 0, 0, 0, 0, 0]].concat();
    }
    ip(is_v6, if is_tcp { 6 } else { 17 }, hosts, &l4)
}

fn found(frame: &[u8], asked: &Kinds) -> Option<Inner> {
    inside(frame, &decode(frame, frame.len()), asked, Checksums::Verify)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2048))]

    #[test]
    fn the_innermost_packet_is_found(
        (is_v6, layers) in any::<bool>().prop_flat_map(|v6| (Just(v6), layers(v6))),
        is_tcp: bool,
        hosts: [u8; 2],
        asked in prop_oneof![Just(Kinds::all()), any_kinds()],
    ) {
        let packet = inner(is_v6, is_tcp, hosts, false);
        let (frame, levels) = built(&layers, &packet);
        prop_assert_eq!(decode(&frame, frame.len()).l3_end(), frame.len());
        let seen = levels.iter().take_while(|(tunnel, _)| has(&asked, tunnel.kind)).count();
        let depth = seen.min(DEPTH_MAX);
        let through = levels[..depth].iter();
        let path = through.fold(Path::NONE, |path, (tunnel, _)| path.through(*tunnel).unwrap());
        let inner = found(&frame, &asked);
        let Some((_, len)) = levels[..depth].last() else {
            prop_assert_eq!(inner, None);
            return Ok(());
        };
        let Some(inner) = inner else { panic!("{levels:?}") };
        let tunnels: Vec<_> = inner.path.iter().collect();
        prop_assert_eq!(&tunnels, &path.iter().collect::<Vec<_>>());
        prop_assert_eq!(inner.path.is_too_deep(), seen > DEPTH_MAX);
        prop_assert_eq!(inner.at, frame.len() - len);
        // The twin: the packet by itself, in a frame of its own.
        let alone = &frame[inner.at..];
        let is_framed = alone[0] == 2;
        let (of, shift) = match is_framed {
            true => (alone.to_vec(), 0),
            false => (ethernet(None, alone), 14),
        };
        let expected = decode(&of, of.len());
        let d = &inner.decoded;
        let what = |d: &Decoded| {
            (d.src, d.dst, d.protocol, d.l4_word, d.flags, d.kind, d.ttl, d.ip_total_len, d.anomaly)
        };
        prop_assert_eq!(what(d), what(&expected));
        prop_assert_eq!(d.l3_offset + shift, expected.l3_offset);
        prop_assert_eq!(d.l4_offset + shift, expected.l4_offset);
        if is_framed {
            prop_assert_eq!(*d, expected);
        }
    }

    /// Both directions meet, through whatever tunnels each goes, and meet what is in no tunnel.
    #[test]
    fn both_directions_meet(
        (is_v6, there, back) in any::<bool>()
            .prop_flat_map(|v6| (Just(v6), layers(v6), layers(v6))),
        is_tcp: bool,
        hosts: [u8; 2],
    ) {
        let asked = Kinds::all();
        let plain = tracked_hash_of_frame(&ethernet(None, &inner(is_v6, is_tcp, hosts, false)));
        for (layers, is_back) in [(there, false), (back, true)] {
            let layers = &layers[..layers.len().min(DEPTH_MAX)];
            let frame = built(layers, &inner(is_v6, is_tcp, hosts, is_back)).0;
            prop_assert_eq!(hash_of_frame(&frame, &asked), plain);
            // Without tunnels that are asked for it is the other hash.
            prop_assert_eq!(hash_of_frame(&frame, &Kinds::NONE), tracked_hash_of_frame(&frame));
        }
    }

    /// Any bytes may be wrong, and any may be missing; what is found is in the frame, and goes where the stage looks for it.
    #[test]
    fn damage_does_no_harm(
        (is_v6, layers) in any::<bool>().prop_flat_map(|v6| (Just(v6), layers(v6))),
        pokes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..5),
        cut in any::<prop::sample::Index>(),
        is_cut: bool,
        ignores: bool,
    ) {
        let mut frame = built(&layers, &inner(is_v6, true, [1, 2], false)).0;
        for (at, value) in &pokes {
            let at = at.index(frame.len());
            frame[at] = *value;
        }
        let whole = frame.len();
        if is_cut {
            frame.truncate(cut.index(whole));
        }
        let asked = Kinds::all();
        let mut outer = decode(&frame, whole);
        if ignores {
            packet::decode::ignore_checksum(&mut outer);
        }
        let checksums = if ignores { Checksums::Ignore } else { Checksums::Verify };
        let hash = hash_of_frame(&frame, &asked);
        let Some(inner) = inside(&frame, &outer, &asked, checksums) else { return Ok(()) };
        prop_assert!(inner.at <= frame.len() && inner.decoded.is_ip() && !inner.path.is_empty());
        if inner.decoded.anomaly != packet::Anomaly::BadChecksum {
            let l3 = &frame[inner.at + usize::from(inner.decoded.l3_offset)..];
            let alone = ethernet(None, l3);
            prop_assert_eq!(hash, tracked_hash_of_frame(&alone));
        }
    }
}

/// Packets that only look like tunnels, and those of forms that are not looked into.
#[test]
fn what_is_no_tunnel() {
    let packet = inner(false, true, [1, 2], false);
    let asked = Kinds::all();
    let of = |protocol: u8, payload: &[u8]| ethernet(None, &ip(false, protocol, [9, 8], payload));
    let gre = |header: &[u8]| of(47, &[header, &packet].concat());
    assert!(found(&gre(&[0, 0, 8, 0]), &asked).is_some());
    for (header, why) in [
        (&[0x40, 0, 8, 0, 0, 0, 0, 0][..], "a source route"),
        (&[0x20, 1, 0x88, 0x0b, 0, 0, 0, 0], "PPTP"),
        (&[0, 0, 0x86, 0xdd], "IPv4 where it says IPv6"),
        (&[0, 0, 0x88, 0x47], "MPLS"),
        (&[0x10, 0, 0x88, 0xbe, 0, 0, 0, 1, 0x70, 0, 0, 0, 0, 0, 0, 0], "ERSPAN of no version"),
    ] {
        assert_eq!(found(&gre(header), &asked), None, "{why}");
    }
    let to = |port: u16, header: &[u8]| of(17, &udp([7, port], &[header, &packet].concat()));
    assert!(found(&to(2152, &[0x30, 255, 0, packet.len() as u8, 0, 0, 0, 1]), &asked).is_some());
    for (port, header, why) in [
        (2152, &[0x30, 254, 0, packet.len() as u8, 0, 0, 0, 1][..], "an end marker"),
        (2152, &[0x20, 255, 0, packet.len() as u8, 0, 0, 0, 1], "GTP'"),
        (
            2152,
            &[0x34, 255, 0, 8 + packet.len() as u8, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 0],
            "an extension of length 0",
        ),
        (6081, &[0, 0x80, 8, 0, 0, 0, 1, 0], "a control packet"),
        (6081, &[0x40, 0, 8, 0, 0, 0, 1, 0], "another version"),
        (4789, &[0xf7, 0, 0, 1, 0, 0, 1, 0], "VXLAN without an identifier"),
        (4789, &[0x0c, 0, 0, 4, 0, 0, 1, 0], "a network service header in VXLAN"),
        (3544, &[], "IPv4 in Teredo"),
        (4790, &[8, 0, 0, 0, 0, 0, 1, 0], "another port"),
    ] {
        assert_eq!(found(&to(port, header), &asked), None, "{why}");
    }
    // A later fragment, and the first one.
    for (field, more) in [(1, 0), (0, 0x20)] {
        let mut fragment = of(4, &packet);
        assert!(found(&fragment, &asked).is_some());
        (fragment[20], fragment[21]) = (more, field);
        ipv4::fill_checksum(&mut fragment[14..34]);
        assert_eq!(found(&fragment, &asked), None);
    }
    // An inner length beyond the end of the tunnel, though the frame has the bytes.
    let mut longer = of(4, &packet);
    longer[16..18].copy_from_slice(&(20 + packet.len() as u16 - 1).to_be_bytes());
    ipv4::fill_checksum(&mut longer[14..34]);
    assert_eq!(found(&longer, &asked), None);
}
