//! NDN packets: read back as written, cut and spoilt at every byte, names as text, odd names, and the captures of
//! the specification's own dissector.

use packet::ndn::*;
use packet::udp::UdpView;
use packet::{ipv4, ipv6};
use pcap_file::pcap::PcapReader;
use proptest::prelude::*;

fn any_component() -> impl Strategy<Value = (u32, Vec<u8>)> {
    let kind = prop_oneof![6 => Just(8_u32), 1 => 1..=0xffff_u32, 1 => Just(1), 1 => Just(2)];
    let value = prop_oneof![
        prop::collection::vec(any::<u8>(), 0..20),
        prop::collection::vec(Just(b'.'), 0..6),
        prop::collection::vec(any::<u8>(), 250..300),
    ];
    (kind, value)
}

fn any_name(least: usize) -> impl Strategy<Value = NameBuf> {
    prop::collection::vec(any_component(), least..8).prop_map(|components| {
        let mut name = NameBuf::new();
        components.iter().for_each(|(kind, value)| name.push(*kind, value));
        name
    })
}

fn any_fields() -> impl Strategy<Value = InterestFields> {
    let fields = (
        any::<bool>(),
        any::<bool>(),
        any::<Option<u32>>(),
        prop_oneof![Just(DEFAULT_LIFETIME_MS), any::<u64>(), 0..70_000_u64],
        any::<Option<u8>>(),
    );
    fields.prop_map(|(can_be_prefix, must_be_fresh, nonce, lifetime_ms, hop_limit)| {
        InterestFields { can_be_prefix, must_be_fresh, nonce, lifetime_ms, hop_limit }
    })
}

fn any_link() -> impl Strategy<Value = (Option<Nack>, Vec<u8>, u64, Option<u64>)> {
    let nack = prop_oneof![
        Just(None),
        Just(Some(Nack::None)),
        Just(Some(Nack::Congestion)),
        Just(Some(Nack::Duplicate)),
        Just(Some(Nack::NoRoute)),
        Just(Some(Nack::Other(7))),
    ];
    (nack, prop::collection::vec(any::<u8>(), 0..33), any::<u64>(), any::<Option<u64>>())
}

fn interest(bytes: &[u8]) -> Interest<'_> {
    match Packet::new_checked(bytes).map(|packet| packet.body) {
        Ok(Body::Interest(interest)) => interest,
        other => panic!("{other:?}"),
    }
}

fn data(bytes: &[u8]) -> Data<'_> {
    match Packet::new_checked(bytes).map(|packet| packet.body) {
        Ok(Body::Data(data)) => data,
        other => panic!("{other:?}"),
    }
}

/// Uses every accessor of the packet that `bytes` begin with.
fn touch(packet: &Packet<'_>, bytes: &[u8]) {
    let name = match &packet.body {
        Body::Interest(interest) => {
            if let Some(at) = interest.hop_limit_at() {
                assert_eq!(Some(interest.bytes()[at]), interest.fields().hop_limit);
            }
            let _ = (interest.forwarding_hint(), interest.parameters());
            interest.name()
        }
        Body::Data(data) => {
            let _ = (data.content(), data.signature_info(), data.signature_value());
            data.name()
        }
        Body::Idle => return,
    };
    assert_eq!(first_component(bytes), name.encodings().next());
    assert_eq!(name.components().count(), name.len());
    assert_eq!(name.encodings().map(<[u8]>::len).sum::<usize>(), name.value().len());
    let text = name.to_string();
    assert_eq!(NameBuf::from_uri(text.as_bytes()).unwrap().name().value(), name.value(), "{text}");
}

proptest! {
    #[test]
    fn an_interest_is_read_back(
        name in any_name(1),
        fields in any_fields(),
        parameters in any::<Option<Vec<u8>>>(),
        (nack, token, mark, sequence) in any_link(),
        padding in 0..9_usize,
    ) {
        let mut bare = Vec::new();
        emit_interest(name.name().value(), &fields, parameters.as_deref(), &mut bare).unwrap();
        let link = LinkHeader { nack, pit_token: &token, congestion_mark: mark, sequence, no_cache: mark % 2 == 1 };
        let mut bytes = Vec::new();
        emit_link(&link, &bare, &mut bytes);
        bytes.resize(bytes.len() + padding, 0);
        let packet = Packet::new_checked(&bytes).unwrap();
        prop_assert_eq!(packet.link, link);
        let read = interest(&bytes);
        prop_assert_eq!(read.name(), name.name());
        prop_assert_eq!(read.fields(), &fields);
        prop_assert_eq!(read.parameters(), parameters.as_deref());
        prop_assert_eq!(read.bytes(), &bare);
        touch(&packet, &bytes);
    }

    #[test]
    fn a_data_packet_is_read_back(
        name in any_name(0),
        freshness in prop_oneof![Just(0_u64), any::<u64>()],
        content in prop::collection::vec(any::<u8>(), 0..600),
    ) {
        let mut bytes = Vec::new();
        emit_data(name.name().value(), freshness, &content, &mut bytes).unwrap();
        let read = data(&bytes);
        prop_assert_eq!(read.name(), name.name());
        prop_assert_eq!((read.freshness_ms(), read.content_type()), (freshness, 0));
        prop_assert_eq!(read.content(), content);
        prop_assert_eq!(read.signature_value(), [0; 32]);
        touch(&Packet::new_checked(&bytes).unwrap(), &bytes);
    }

    /// No prefix of a packet is a packet: the outermost length says how long it is.
    #[test]
    fn a_packet_cut_anywhere_is_refused(name in any_name(1), fields in any_fields(), token in prop::collection::vec(any::<u8>(), 0..9)) {
        let mut bare = Vec::new();
        emit_interest(name.name().value(), &fields, None, &mut bare).unwrap();
        let mut bytes = Vec::new();
        emit_link(&LinkHeader { pit_token: &token, ..LinkHeader::default() }, &bare, &mut bytes);
        for len in 0..bytes.len() {
            let cut = Packet::new_checked(&bytes[..len]);
            prop_assert!(matches!(cut, Err(Malformed::Truncated | Malformed::LengthLies)), "{len}: {cut:?}");
        }
    }

    /// Neither noise nor a packet with bytes changed makes a panic.
    #[test]
    fn noise_is_refused_or_read(
        mut bytes in prop::collection::vec(any::<u8>(), 0..200),
        first in prop_oneof![Just(5_u8), Just(6), Just(80), Just(100)],
    ) {
        if let Some((kind, rest)) = bytes.split_first_mut() {
            *kind = first;
            if let [len, rest @ ..] = rest {
                *len = rest.len().min(252) as u8;
            }
        }
        let _ = first_component(&bytes);
        if let Ok(packet) = Packet::new_checked(&bytes) {
            touch(&packet, &bytes);
        }
    }

    #[test]
    fn a_spoilt_packet_is_refused_or_read(
        name in any_name(1),
        fields in any_fields(),
        spoils in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..5),
    ) {
        let mut bare = Vec::new();
        emit_interest(name.name().value(), &fields, None, &mut bare).unwrap();
        let mut bytes = Vec::new();
        emit_link(&LinkHeader { pit_token: &[1, 2], ..LinkHeader::default() }, &bare, &mut bytes);
        for (at, value) in spoils {
            let at = at.index(bytes.len());
            bytes[at] = value;
        }
        let _ = first_component(&bytes);
        if let Ok(packet) = Packet::new_checked(&bytes) {
            touch(&packet, &bytes);
        }
    }

    #[test]
    fn a_name_is_read_back_from_its_text(name in any_name(0)) {
        let text = name.to_string();
        prop_assert!(text.is_ascii());
        prop_assert_eq!(NameBuf::from_uri(text.as_bytes()).unwrap(), name.clone());
        prop_assert_eq!(NameBuf::from_uri(format!("ndn:{text}/").as_bytes()).is_ok(), text != "/");
    }

    #[test]
    fn prefixes_are_those_of_the_components(a in any_name(0), b in any_name(0), cut in any::<prop::sample::Index>()) {
        let components = |name: &NameBuf| -> Vec<Vec<u8>> {
            name.name().encodings().map(<[u8]>::to_vec).collect()
        };
        prop_assert_eq!(
            a.name().is_prefix_of(&b.name()), components(&b).starts_with(&components(&a)));
        let at = cut.index(a.name().len() + 1);
        let cut: Vec<u8> = components(&a)[..at].concat();
        prop_assert!(Name::new_checked(&cut).unwrap().is_prefix_of(&a.name()));
    }
}

#[test]
fn names_as_text() {
    let cases: [(&str, &[u8], &str); 12] = [
        ("/", &[], "/"),
        ("ndn:/a/b%20c", &[8, 1, b'a', 8, 3, b'b', b' ', b'c'], "/a/b%20c"),
        ("/a/", &[8, 1, b'a'], "/a"),
        ("/8=x", &[8, 1, b'x'], "/x"),
        ("/54=%01", &[54, 1, 1], "/54=%01"),
        ("/...", &[8, 0], "/..."),
        ("/.....", &[8, 2, b'.', b'.'], "/....."),
        ("/.a", &[8, 2, b'.', b'a'], "/.a"),
        ("/7=...", &[7, 0], "/7=..."),
        ("/sha256digest=00aF", &[1, 2, 0, 0xaf], "/sha256digest=00af"),
        ("/params-sha256=", &[2, 0], "/params-sha256="),
        ("/65535=E", &[253, 255, 255, 1, b'E'], "/65535=E"),
    ];
    for (text, value, canonical) in cases {
        let name = NameBuf::from_uri(text.as_bytes()).unwrap();
        assert_eq!(name.name().value(), value, "{text}");
        assert_eq!(name.to_string(), canonical);
    }
    let wrong = [
        ("", UriError::NoSlash),
        ("a/b", UriError::NoSlash),
        ("http://a", UriError::NoSlash),
        ("//", UriError::Empty),
        ("/a//b", UriError::Empty),
        ("/8=", UriError::Empty),
        ("/.", UriError::Periods),
        ("/a/..", UriError::Periods),
        ("/%2", UriError::Percent),
        ("/%zz", UriError::Percent),
        ("/%+1", UriError::Percent),
        ("/0=a", UriError::Type),
        ("/65536=a", UriError::Type),
        ("/08=a", UriError::Type),
        ("/+8=a", UriError::Type),
        ("/page=a", UriError::Type),
        ("/sha256digest=0", UriError::Digest),
        ("/params-sha256=xy", UriError::Digest),
    ];
    for (text, error) in wrong {
        assert_eq!(NameBuf::from_uri(text.as_bytes()), Err(error), "{text}");
    }
}

/// An element, however long its value.
fn element(kind: u32, value: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    emit_tlv(kind, value, &mut out);
    out
}

#[test]
fn each_fault_has_its_name() {
    use Malformed::*;
    let name = element(7, &element(8, b"a"));
    let packet = |parts: &[&[u8]]| element(5, &parts.concat());
    let link = |parts: &[&[u8]]| element(100, &parts.concat());
    let good = packet(&[&name, &[10, 4, 0, 0, 0, 1]]);
    let fragment = element(80, &good);
    let cases: Vec<(&str, Vec<u8>, Malformed)> = vec![
        ("nothing", vec![], Truncated),
        ("a type alone", vec![5], Truncated),
        ("a type cut off", vec![253, 1], Truncated),
        ("a length cut off", vec![5, 254, 0, 0], Truncated),
        ("a length beyond", vec![5, 9, 0], LengthLies),
        ("a length of 2^64 - 1", [vec![5, 255], vec![255; 8]].concat(), LengthLies),
        ("a length in three bytes that fits one", vec![5, 253, 0, 9], NotShortest),
        (
            "a length in nine bytes that fits five",
            [vec![5, 255], vec![0, 0, 0, 0, 255, 0, 0, 0]].concat(),
            NotShortest,
        ),
        ("type 0", vec![0, 0], BadType),
        (
            "a type above 32 bits",
            [vec![255], vec![0, 0, 0, 1, 0, 0, 0, 0], vec![0]].concat(),
            BadType,
        ),
        ("another packet", vec![9, 0], UnknownPacket(9)),
        ("no name", packet(&[&[10, 4, 0, 0, 0, 1]]), NoName),
        ("an empty Interest", packet(&[]), NoName),
        ("an empty name", packet(&[&[7, 0]]), EmptyName),
        ("a component that lies", packet(&[&[7, 3, 8, 9, 1]]), LengthLies),
        (
            "a component of type 65536",
            packet(&[&element(7, &element(65_536, b""))]),
            BadComponent(65_536),
        ),
        ("a nonce of three bytes", packet(&[&name, &[10, 3, 0, 0, 0]]), BadLength(10)),
        ("a hop limit of two bytes", packet(&[&name, &[34, 2, 0, 0]]), BadLength(34)),
        ("a flag with a value", packet(&[&name, &[33, 1, 0]]), BadLength(33)),
        ("a lifetime of three bytes", packet(&[&name, &[12, 3, 0, 0, 0]]), BadLength(12)),
        ("an unknown critical element", packet(&[&name, &[31, 0]]), Critical(31)),
        ("an unknown odd element", packet(&[&name, &[253, 1, 1, 0]]), Critical(257)),
        ("a name again", packet(&[&name, &name]), Critical(7)),
        (
            "a nonce behind the lifetime",
            packet(&[&name, &[12, 1, 9], &[10, 4, 0, 0, 0, 1]]),
            Critical(10),
        ),
        ("the last element lies", packet(&[&name, &[240, 9]]), LengthLies),
        (
            "two packets in a fragment",
            link(&[&element(80, &[good.clone(), good.clone()].concat())]),
            TrailingBytes,
        ),
        ("a fragment of several", link(&[&[83, 1, 2], &fragment]), Fragment),
        ("a later fragment", link(&[&[82, 1, 1], &[83, 1, 2], &fragment]), Fragment),
        (
            "a link packet in a link packet",
            link(&[&element(80, &link(&[&fragment]))]),
            UnknownPacket(100),
        ),
        ("two fragments", link(&[&fragment, &fragment]), Critical(80)),
        ("a token of none", link(&[&[98, 0], &fragment]), BadLength(98)),
        ("a token of 33", link(&[&element(98, &[0; 33]), &fragment]), BadLength(98)),
        ("a nack about nothing", link(&[&element(800, &[])]), NackOfNothing),
        (
            "a nack of data",
            link(&[&element(800, &[]), &element(80, &element(6, &name))]),
            NackOfData,
        ),
        ("an unknown link field", link(&[&[85, 0], &fragment]), Critical(85)),
        (
            "an unknown link field of the range, even",
            link(&[&element(804, &[]), &fragment]),
            Critical(804),
        ),
        ("beyond the range", link(&[&element(961, &[]), &fragment]), Critical(961)),
        (
            "longer than any packet",
            element(6, &[name.clone(), element(21, &[0; 9000])].concat()),
            TooLong,
        ),
        (
            "too long in a fragment",
            link(&[&element(80, &element(5, &[name.clone(), element(36, &[0; 9000])].concat()))]),
            TooLong,
        ),
    ];
    for (what, bytes, expected) in cases {
        assert_eq!(Packet::new_checked(&bytes).err(), Some(expected), "{what}");
    }
    for (what, bytes) in [
        ("a skipped element", packet(&[&name, &[240, 1, 9], &[10, 4, 0, 0, 0, 1], &[32, 0]])),
        ("an element out of place that may be skipped", packet(&[&name, &[36, 0], &[34, 1, 3]])),
        ("a skipped link field", link(&[&element(805, &[1]), &fragment])),
        ("one fragment of one", link(&[&[82, 1, 0], &[83, 1, 1], &fragment])),
    ] {
        assert_eq!(interest(&bytes).name().to_string(), "/a", "{what}");
    }
    assert!(matches!(Packet::new_checked(&link(&[])).unwrap().body, Body::Idle));
}

/// Names of 10,000 components and of one that is 8 KB long; a packet is no longer than 8,800 bytes.
#[test]
fn odd_names() {
    let many = element(8, b"").repeat(10_000);
    assert_eq!(Name::new_checked(&many).unwrap().len(), 10_000);
    let mut out = Vec::new();
    assert_eq!(emit_interest(&many, &InterestFields::default(), None, &mut out), None);
    assert!(out.is_empty());
    assert_eq!(
        Packet::new_checked(&element(5, &element(7, &many))).err(),
        Some(Malformed::TooLong)
    );
    let fits = element(8, b"").repeat(4_390);
    emit_interest(&fits, &InterestFields::default(), None, &mut out).unwrap();
    assert_eq!(interest(&out).name().len(), 4_390);
    let huge = element(8, &[7; 8192]);
    out.clear();
    emit_interest(&huge, &InterestFields::default(), None, &mut out).unwrap();
    assert_eq!(interest(&out).name().components().next().unwrap().value.len(), 8192);
}

#[test]
fn data_satisfies_its_interest_alone() {
    let name = |text: &str| NameBuf::from_uri(text.as_bytes()).unwrap();
    for (asked, prefix, given, satisfied) in [
        ("/a/b", false, "/a/b", true),
        ("/a/b", false, "/a/b/c", false),
        ("/a/b", true, "/a/b/c", true),
        ("/a/b", true, "/a/b", true),
        ("/a/b", true, "/a/bc", false),
        ("/a/b", true, "/a", false),
    ] {
        let mut bytes = Vec::new();
        let fields = InterestFields { can_be_prefix: prefix, ..InterestFields::default() };
        emit_interest(name(asked).name().value(), &fields, None, &mut bytes).unwrap();
        assert_eq!(
            interest(&bytes).is_satisfied_by(&name(given).name()),
            satisfied,
            "{asked} {given}"
        );
    }
}

/// The frames of a capture, or none where it is not there.
fn frames(file: &str) -> Option<Vec<Vec<u8>>> {
    let path = testdata::path("restricted/ndn-pcap")?.join(file);
    let mut reader = PcapReader::new(std::fs::File::open(path).unwrap()).unwrap();
    let mut frames = Vec::new();
    while let Some(packet) = reader.next_raw_packet() {
        frames.push(packet.unwrap().data.into_owned());
    }
    Some(frames)
}

/// Kind and name, as the dissector shows them.
fn shown(bytes: &[u8]) -> String {
    match Packet::new_checked(bytes) {
        Ok(Packet { link: LinkHeader { nack: Some(_), .. }, body: Body::Interest(i) }) => {
            format!("Nack {}", i.name())
        }
        Ok(Packet { body: Body::Interest(i), .. }) => format!("Interest {}", i.name()),
        Ok(Packet { body: Body::Data(d), .. }) => format!("Data {}", d.name()),
        Ok(Packet { body: Body::Idle, .. }) => "Idle".into(),
        Err(error) => format!("{error:?}"),
    }
}

#[test]
fn captured_ethernet() {
    let Some(frames) = frames("dissect-wireshark/ethernet.pcap") else { return };
    assert_eq!(frames[5][..6], MULTICAST_MAC.0);
    assert_eq!(frames[5][12..14], ETHERTYPE.0.to_be_bytes());
    assert_eq!(shown(&frames[5][14..]), "Interest /hello/world/%21");
}

#[test]
fn captured_packets_of_version_3() {
    let Some(frames) = frames("dissect-wireshark/packet03.pcap") else { return };
    let bytes: Vec<&[u8]> = frames.iter().map(|frame| &frame[14..]).collect();
    let first = interest(bytes[0]);
    let expected = InterestFields {
        can_be_prefix: true,
        must_be_fresh: true,
        nonce: Some(0x4acb_1e4c),
        lifetime_ms: 0x76a1,
        hop_limit: Some(214),
    };
    assert_eq!(first.fields(), &expected);
    assert_eq!(first.parameters(), Some(&[0xc0, 0xc1, 0xc2, 0xc3][..]));
    assert!(!first.forwarding_hint().is_empty());
    assert_eq!(
        shown(bytes[1]),
        "Interest /params-sha256=41/7=B/C/252=D/256=E/65535=E/sha256digest=\
         ee357c5791dcaa4494d9b301047b875d8833caa76dada3e95837bbc3eaf7b300"
    );
    assert_eq!(shown(bytes[2]), "Data /");
}

#[test]
fn captured_link_packets() {
    let Some(frames) = frames("dissect-wireshark/ndnlpv2.pcap") else { return };
    let bytes: Vec<&[u8]> = frames.iter().map(|frame| &frame[14..]).collect();
    let all: Vec<String> = bytes.iter().map(|bytes| shown(bytes)).collect();
    let mut expected = vec!["Critical(85)", "Fragment", "Fragment", "Fragment"];
    expected.extend(["Nack /A"; 5]);
    expected.extend(["Interest /A", "Data /", "Idle"]);
    assert_eq!(all, expected);
    let nacks: Vec<_> =
        bytes[4..9].iter().map(|b| Packet::new_checked(b).unwrap().link.nack.unwrap()).collect();
    let others = [Nack::Other(1), Nack::None];
    assert_eq!(
        nacks,
        [[Nack::Congestion, Nack::Duplicate, Nack::NoRoute].as_slice(), &others].concat()
    );
    let link = |at: usize| Packet::new_checked(bytes[at]).unwrap().link;
    assert_eq!(link(9).pit_token, 15_047_039_637_272_254_167_u64.to_be_bytes());
    assert_eq!(link(10).congestion_mark, 1);
    // The two fields of the first packet that are to be ignored, and one that is not.
    for (kind, ignored) in [(805, true), (807, true), (804, false), (806, false)] {
        let fields = [element(kind, &[]), element(80, &element(5, &[7, 3, 8, 1, b'A']))].concat();
        let read = shown(&element(100, &fields));
        assert_eq!(read == "Interest /A", ignored, "{kind}: {read}");
    }
}

#[test]
fn captured_ppp() {
    let Some(frames) = frames("dissect-wireshark/ppp.pcap") else { return };
    let shown: Vec<String> = frames.iter().map(|frame| shown(&frame[4..])).collect();
    let of = |number: &str| {
        let (interest, data) =
            (format!("Interest /prefix/%FE%{number}"), format!("Data /prefix/%FE%{number}"));
        [interest.clone(), interest, data.clone(), data]
    };
    assert_eq!(shown, [of("00"), of("01")].concat());
}

/// The datagram of a UDP packet to or from NDN's port, fragments put together.
fn datagrams(packets: impl Iterator<Item = Vec<u8>>) -> Vec<Vec<u8>> {
    let (mut whole, mut pieces) = (Vec::new(), Vec::new());
    for packet in packets {
        let (payload, more, offset) = match packet[0] >> 4 {
            4 => {
                let view = ipv4::Ipv4View::new_checked(&packet).unwrap();
                let fragment = u16::from_be_bytes([packet[6], packet[7]]);
                let protocol = packet[9];
                assert_eq!(protocol, 17);
                (view.payload().to_vec(), fragment & 0x2000 != 0, fragment & 0x1fff)
            }
            _ => {
                let view = ipv6::Ipv6View::new_checked(&packet).unwrap();
                (view.payload().to_vec(), false, 0)
            }
        };
        assert_eq!(usize::from(offset) * 8, pieces.len());
        pieces.extend(payload);
        if !more {
            whole.push(std::mem::take(&mut pieces));
        }
    }
    whole
        .iter()
        .map(|datagram| {
            let udp = UdpView::new_checked(datagram).unwrap();
            assert!(udp.src_port() == UDP_PORT || udp.dst_port() == UDP_PORT);
            udp.payload().to_vec()
        })
        .collect()
}

#[test]
fn captured_udp() {
    let Some(frames4) = frames("dissect-wireshark/ipv4-udp-fragmented.pcap") else { return };
    let packets = datagrams(frames4.into_iter().map(|frame| frame[14..].to_vec()));
    let all: Vec<String> = packets.iter().map(|packet| shown(packet)).collect();
    assert_eq!(all.len(), 5);
    assert_eq!(
        all[0],
        "Interest /ndn/broadcast/ndnrtc-chatrooms/\
         2366d310b15ba97a62c8734d4a760174f78d14446be3d70a54ee80d3ed19c83b"
    );
    for at in [1, 2, 4] {
        assert!(all[at].starts_with("Interest /"), "{}", all[at]);
    }
    assert_eq!(all[3], "Data /example/testApp/1/testApp/%FD%00%00%01O%23E%07%ED");

    let Some(frames6) = frames("dump/linux-sll-udp6.pcap") else { return };
    let packets = datagrams(frames6.into_iter().map(|frame| frame[16..].to_vec()));
    let kinds: Vec<String> = packets.iter().map(|packet| shown(packet)[..4].to_string()).collect();
    assert_eq!(kinds, ["Inte", "Data", "Inte"]);
}

/// What TCP carries from one port, segments in order.
fn stream(packets: impl Iterator<Item = Vec<u8>>, from: impl Fn(u16, u16) -> bool) -> Vec<u8> {
    let mut stream = Vec::new();
    for packet in packets.filter(|packet| packet[9] == 6) {
        let view = ipv4::Ipv4View::new_checked(&packet).unwrap();
        let segment = view.payload();
        let port = |at: usize| u16::from_be_bytes([segment[at], segment[at + 1]]);
        if from(port(0), port(2)) {
            stream.extend_from_slice(&segment[usize::from(segment[12] >> 4) * 4..]);
        }
    }
    stream
}

/// All packets of a stream.
fn packets_of(mut stream: &[u8]) -> Vec<String> {
    let mut all = Vec::new();
    while let Ok((element, rest)) = read_tlv(stream) {
        all.push(shown(element.encoded));
        stream = rest;
    }
    assert!(stream.is_empty(), "{} bytes are left", stream.len());
    all
}

#[test]
fn captured_tcp() {
    let Some(frames4) = frames("dissect-wireshark/ipv4-tcp-segmented.pcap") else { return };
    let packets = || frames4.iter().map(|frame| frame[14..].to_vec());
    let data = packets_of(&stream(packets(), |from, _| from == UDP_PORT));
    let asked = packets_of(&stream(packets(), |from, to| from != UDP_PORT && to == UDP_PORT));
    assert_eq!(asked, ["Interest /example/testApp/4"]);
    assert_eq!(data.len(), 1);
    assert!(data[0].starts_with("Data /example/testApp/4"), "{}", data[0]);

    let Some(linux) = frames("dump/linux-sll-tcp4.pcap") else { return };
    let packets = || linux.iter().map(|frame| frame[16..].to_vec());
    let asked = packets_of(&stream(packets(), |_, to| to == UDP_PORT));
    let answered = packets_of(&stream(packets(), |from, _| from == UDP_PORT));
    assert!(asked[0].starts_with("Interest /ndn/edu/arizona/"), "{asked:?}");
    assert!(answered[0].starts_with("Data /ndn/edu/arizona/"), "{answered:?}");
}

/// A segment whose first bytes are the middle of a packet: lengths there mean nothing.
#[test]
fn captured_lengths_that_lie() {
    let Some(frames) = frames("dump/invalid-tlv-length.pcap") else { return };
    let segment = &frames[0][14 + 20..];
    let payload = &segment[usize::from(segment[12] >> 4) * 4..];
    assert!(Packet::new_checked(payload).is_err());
}
