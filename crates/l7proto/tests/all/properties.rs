//! Random flows: cuts change nothing, and no bytes are harmful.

use l7proto::http1::{Field, Head, Progress, Span};
use l7proto::lines::Lines;
use l7proto::tls::{HelloReader, Ja4Transport};
use l7proto::{Answer, Confidence, Direction, Identifier, Ports, Protocol, Transport, dns};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::Index;

/// What flows begin with: both sides of many protocols, and what is nearly one of them.
const BEGINNINGS: &[&[u8]] = &[
    b"GET /index.html HTTP/1.1\r\nHost: a\r\n\r\n",
    b"HTTP/1.1 200 OK\r\nServer: b\r\n\r\n",
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    b"QUERY http://example.com/ HTTP/1.1\r\n",
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03aaaaaaaaaaaaaaaa",
    b"\x16\x03\x03\x00\x7a\x02\x00\x00\x76\x03\x03bbbbbbbbbbbbbbbb",
    b"\x15\x03\x03\x00\x02\x02\x28",
    b"\x80\x2e\x01\x00\x02\x00\x15\x00\x00\x00\x10\x01\x00\x80",
    b"SSH-2.0-OpenSSH_9.6\r\n",
    b"SSH-1.99-x\n",
    b"220 mail.example.com ESMTP\r\n",
    b"EHLO example.com\r\n",
    b"USER anonymous\r\n",
    b"QUIT\r\n",
    b"AUTH TLS\r\n",
    b"+OK ready\r\n",
    b"CAPA\r\n",
    b"* OK IMAP4rev1 ready\r\n",
    b"a001 CAPABILITY\r\n",
    b":irc.example.net 001 n :x\r\n",
    b"NICK n\r\n",
    b"<?xml version='1.0'?><stream:stream",
    b"*1\r\n$4\r\nPING\r\n",
    b"+PONG\r\n",
    b"REGISTER sip:a SIP/2.0\r\n",
    b"OPTIONS rtsp://a RTSP/1.0\r\n",
    b"RTSP/1.0 200 OK\r\n",
    b"\x13BitTorrent protocol\0\0\0\0\0\0\0\0",
    b"RFB 003.008\n",
    b"\x4a\0\0\0\x0a8.0.36\0\x08\0\0\0",
    b"\0\0\0\x4c\0\x03\0\0user\0zeek\0",
    b"\0\0\0\x08\x04\xd2\x16\x2f",
    b"R\0\0\0\x17\0\0\0\x0a",
    b"\x03\0\0\x13\x0e\xe0\0\0\0\0\0\x01\0\x08\0\x0b\0\0\0",
    b"\x03\0\0\x0b\x06\xd0\0\0\0\0\0",
    b"\0\0\0\x85\xffSMBr\0\0\0\0",
    b"\x10\x0c\0\x04MQTT\x04\x02\0\x3c\0\0",
    b"\x20\x02\0\0",
    b"\x30\x0c\x02\x01\x01\x60\x07\x02\x01\x03\x04\0\x80\0",
    b"\x30\x0c\x02\x01\x01\x61\x07\x0a\x01\0\x04\0\x04\0",
    b"\0\x01\0\0\0\x06\x01\x03\0\0\0\x01",
    b"\0\x1d\xaa\xbb\x01\0\0\x01\0\0\0\0\0\0\x07example\x03com\0\0\x01\0\x01",
    b"\0\x2d\xaa\xbb\x81\x80\0\x01\0\x01\0\0\0\0\x07example\x03com\0\0\x01\0\x01",
    b"\0\0\0\0\0\0\0\x1d\xaa\xbb\x01\0\0\x01\0\0\0\0\0\0\x07example\x03com\0\0\x01\0\x01",
    b"\0\0\0\0\0\0\0\0\0\x05aaaaaaaaaaaaaaaaaaaa",
    b"\0\x2a\x38aaaaaaaa",
    b"\0\x36\x40bbbbbbbb",
    b"\xff\xfd\x18\xff\xfd\x20",
    b"\0\x01\0\0\x21\x12\xa4\x42aaaaaaaaaaaa",
];

fn config() -> ProptestConfig {
    let mut config = ProptestConfig::with_cases(512);
    config.failure_persistence = None;
    config
}

/// A beginning, sometimes cut short or with a byte changed, or anything at all.
fn piece() -> impl Strategy<Value = Vec<u8>> {
    let beginning = || prop::sample::select(BEGINNINGS);
    prop_oneof![
        6 => beginning().prop_map(<[u8]>::to_vec),
        2 => (beginning(), any::<Index>()).prop_map(|(bytes, at)| bytes[..=at.index(bytes.len())].to_vec()),
        2 => (beginning(), any::<Index>(), any::<u8>()).prop_map(|(bytes, at, byte)| {
            let mut bytes = bytes.to_vec();
            let at = at.index(bytes.len());
            bytes[at] = byte;
            bytes
        }),
        1 => vec(any::<u8>(), 1..40),
    ]
}

fn pieces() -> impl Strategy<Value = Vec<(Direction, Vec<u8>)>> {
    let direction = prop::sample::select(&[Direction::Opener, Direction::Responder]);
    vec((direction, piece()), 1..6)
}

fn ports() -> impl Strategy<Value = Ports> {
    let port = || prop::sample::select(&[21_u16, 25, 53, 80, 110, 443, 502, 6379, 40_000, 50_000]);
    (port(), port()).prop_map(|(opener, responder)| Ports { opener, responder })
}

fn identify(transport: Transport, pieces: &[(Direction, Vec<u8>)], ports: Ports) -> [Answer; 2] {
    let mut identifier = Identifier::new(transport);
    for (direction, bytes) in pieces {
        identifier.feed(*direction, bytes, ports);
    }
    let open = identifier.answer();
    [open, identifier.finish(ports)]
}

fn cut(pieces: &[(Direction, Vec<u8>)], sizes: &[usize]) -> Vec<(Direction, Vec<u8>)> {
    let mut sizes = sizes.iter().cycle();
    let mut out = Vec::new();
    for (direction, bytes) in pieces {
        let mut rest = &bytes[..];
        while !rest.is_empty() {
            let (segment, behind) = rest.split_at((*sizes.next().unwrap()).min(rest.len()));
            out.push((*direction, segment.to_vec()));
            rest = behind;
        }
    }
    out
}

const REQUEST: &str = "POST /a%20b?c=d HTTP/1.1\r\nHost: www.example.com\r\nUser-Agent: x/1 (y)\r\nContent-Type: text/html\
    \r\n\tfolded\r\nX: y\r\n\r\nbody";

proptest! {
    #![proptest_config(config())]

    #[test]
    fn cuts_change_no_label(pieces in pieces(), ports in ports(), sizes in vec(1_usize..30, 1..6)) {
        let whole = identify(Transport::Stream, &pieces, ports);
        prop_assert_eq!(identify(Transport::Stream, &cut(&pieces, &sizes), ports), whole);
        prop_assert_eq!(identify(Transport::Stream, &cut(&pieces, &[1]), ports), whole);
    }

    #[test]
    fn settled_answers_stay(pieces in pieces(), ports in ports(), is_stream in any::<bool>()) {
        let transport = if is_stream { Transport::Stream } else { Transport::Datagram };
        let mut identifier = Identifier::new(transport);
        let mut settled = None;
        for (direction, bytes) in pieces.iter().cycle().take(40_000) {
            let answer = identifier.feed(*direction, bytes, ports);
            prop_assert_eq!(settled.unwrap_or(answer), answer);
            settled = answer.is_settled().then_some(answer);
        }
        // Bounded: no flow stays open.
        prop_assert!(settled.is_some());
    }

    /// Sides in the wrong order: the same protocol.
    #[test]
    fn either_side_may_be_the_opener(pieces in pieces()) {
        let turned: Vec<_> = pieces
            .iter()
            .map(|(direction, bytes)| match direction {
                Direction::Opener => (Direction::Responder, bytes.clone()),
                Direction::Responder => (Direction::Opener, bytes.clone()),
            })
            .collect();
        let ports = Ports { opener: 40_000, responder: 50_000 };
        let [whole, turned] = [pieces, turned].map(|pieces| identify(Transport::Stream, &pieces, ports)[1]);
        prop_assert_eq!(whole, turned);
    }

    #[test]
    fn cuts_change_no_field_of_http(sizes in vec(1_usize..40, 1..6), len in 0..=REQUEST.len()) {
        let stream = &REQUEST.as_bytes()[..len];
        let fields = |head: &Head| {
            let all = [Field::Host, Field::UserAgent, Field::ContentType, Field::Server];
            (head.method(), head.target(), head.version(), head.fields(), all.map(|field| head.field(field)))
        };
        let mut whole = Head::new();
        let done = whole.feed(stream);
        let mut head = Head::new();
        let mut fed = 0;
        let mut last = Progress::More;
        for (_, segment) in cut(&[(Direction::Opener, stream.to_vec())], &sizes) {
            last = head.feed(&segment);
            if let Progress::Done(len) = last {
                last = Progress::Done(fed + len);
                break;
            }
            fed += segment.len();
        }
        prop_assert_eq!(last, done);
        prop_assert_eq!(fields(&head), fields(&whole));
        prop_assert_eq!(done == Progress::More, len < REQUEST.len() - 4);
        if len > 100 {
            let host = head.field(Field::Host).unwrap_or_default();
            prop_assert_eq!(host, Span { start: 32, len: 15 });
            prop_assert_eq!(host.of(stream), b"www.example.com");
        }
    }

    #[test]
    fn no_bytes_are_harmful(bytes in vec(any::<u8>(), 0..400), ports in ports(), sizes in vec(1_usize..60, 1..4)) {
        let mut datagram = Identifier::new(Transport::Datagram);
        datagram.feed(Direction::Opener, &bytes, ports);
        let mut head = Head::new();
        let mut reader = HelloReader::default();
        let mut lines = Lines::default();
        for (_, segment) in cut(&[(Direction::Opener, bytes.clone())], &sizes) {
            head.feed(&segment);
            reader.feed(&segment);
            lines.feed(&segment, |_, _| ());
        }
        let hello = [&[1, 0, (bytes.len() >> 8) as u8, bytes.len() as u8][..], &bytes].concat();
        if let Some(hello) = l7proto::tls::ClientHello::parse(&hello) {
            let _ = (hello.ja3(), hello.ja4(Ja4Transport::Tcp), hello.server_name(), hello.alpn().count());
        }
    }

    /// DNS of a few bytes that matter, so that pointers, counts and lengths meet.
    #[test]
    fn dns_never_loops(mut bytes in vec(prop::sample::select(&[0_u8, 1, 2, 3, 12, 14, 20, 63, 64, 0xc0, 0xff]), 12..300)) {
        for count in [4, 6, 8, 10] {
            bytes[count] = 0;
        }
        let message = dns::Message::parse(&bytes).unwrap();
        let mut buffer = [0; 4 * dns::NAME_MAX];
        let mut names = message.questions().map(|q| q.name).chain(message.records().map(|r| r.name));
        let names = names.by_ref().filter(|name| {
            let labels = name.labels().count();
            assert!(labels <= 128);
            name.write(&mut buffer).is_some()
        });
        let many = names.count();
        prop_assert!(message.end().is_none_or(|end| end <= bytes.len()));
        prop_assert!(many <= bytes.len());
    }
}

fn label(
    transport: Transport,
    pieces: &[(Direction, &[u8])],
    ports: Ports,
) -> Option<(Protocol, Confidence)> {
    let pieces: Vec<_> =
        pieces.iter().map(|(direction, bytes)| (*direction, bytes.to_vec())).collect();
    let label = identify(transport, &pieces, ports)[1].label();
    label.map(|label| (label.protocol, label.confidence))
}

/// Pieces, ports, the label at the end.
type Case<'a> = (&'a [(Direction, &'a [u8])], Ports, Option<(Protocol, Confidence)>);

/// Protocols of streams of which no capture is at hand, and how sides confirm and contradict each other.
#[test]
fn pairs_of_sides() {
    use Confidence::*;
    use Direction::{Opener as C, Responder as S};
    use Protocol::*;
    let none = Ports { opener: 40_000, responder: 50_000 };
    let at = |responder| Ports { opener: 40_000, responder };
    let find = |part: &[u8]| {
        *BEGINNINGS.iter().find(|b| b.windows(part.len()).any(|w| w == part)).unwrap()
    };
    let (get, banner) = (find(b"GET /index"), find(b"SSH-2.0"));
    let cases: &[Case<'_>] = &[
        (&[(C, get)], none, Some((Http1, Medium))),
        (&[(C, get), (S, find(b"HTTP/1.1 200"))], none, Some((Http1, High))),
        (&[(C, get), (S, b"no head, only a page of HTTP/0.9")], none, Some((Http1, Low))),
        (&[(C, get), (S, banner)], none, Some((Ssh, High))),
        (&[(C, find(b"PRI *"))], none, Some((Http2, High))),
        (&[(S, find(b"220 mail"))], none, Some((Smtp, Medium))),
        (&[(S, find(b"220 mail"))], at(21), Some((Ftp, Medium))),
        (&[(S, find(b"220 mail")), (C, find(b"USER an"))], at(25), Some((Ftp, High))),
        (&[(S, find(b"220 mail")), (C, find(b"QUIT"))], none, Some((Smtp, Medium))),
        (&[(S, find(b"220 mail")), (C, find(b"QUIT"))], at(21), Some((Ftp, Medium))),
        (&[(S, find(b"+OK ready")), (C, find(b"USER an"))], none, Some((Pop3, High))),
        (&[(S, find(b"220 mail")), (C, find(b"EHLO"))], at(21), Some((Smtp, High))),
        (&[(S, find(b"* OK")), (C, find(b"a001"))], none, Some((Imap, High))),
        (&[(C, find(b"NICK")), (S, find(b":irc"))], none, Some((Irc, High))),
        (&[(C, find(b"$4\r\nPING")), (S, find(b"+PONG"))], none, Some((Redis, High))),
        (&[(C, b"hello world\r\n")], none, None),
        (&[(C, b"hello world, how are you\r\n"), (S, b"fine\r\n")], at(6379), None),
        (&[(C, b"select * from x;\r\n")], none, None),
        (&[(C, b"set phasers to stun\r\n")], none, None),
        (&[(C, b"ping\r\n")], none, None),
        (&[(C, b"ping\r\n"), (S, b"+PONG\r\n")], none, Some((Redis, High))),
        (&[(C, b"ping\r\n")], at(6379), Some((Redis, Medium))),
        (&[(C, b"\x16\x03\x09\x02\0\x01\0\x01\xfc\x03\x03")], none, Some((Tls, Medium))),
        (&[(C, b"\x16\x03\x01\xff\xff\x01\0\x01\xfc\x03\x03")], none, Some((Tls, Medium))),
        (&[(C, b"\0\0\0\x1d\x12\x34\x01\0\0\x01\0\0\0\0\0\0\x03www")], none, Some((Dns, Medium))),
        (&[(C, &[0; 40])], at(53), Some((Dns, Medium))),
        (&[(C, &[0; 40])], none, None),
        (&[(C, find(b"REGISTER sip"))], none, Some((Sip, High))),
        (&[(C, find(b"OPTIONS rtsp"))], none, Some((Rtsp, High))),
        (&[(C, find(b"BitTorrent"))], none, Some((BitTorrent, High))),
        (&[(C, find(b"SMBr"))], none, Some((Smb, High))),
        (&[(C, find(b"MQTT"))], none, Some((Mqtt, High))),
        (&[(C, find(b"\x38aaaa")), (S, find(b"\x40bbbb"))], none, Some((OpenVpn, High))),
        (&[(C, find(b"\xff\xfd\x18")), (S, find(b"\xff\xfd\x18"))], none, Some((Telnet, High))),
        (&[(C, find(b"\x21\x12\xa4\x42"))], none, Some((Stun, High))),
        (&[(C, find(b"\x2a\x38aaaa")), (S, b"zzz")], none, None),
        (&[(C, find(b"\x2a\x38aaaa"))], at(1194), Some((OpenVpn, Medium))),
        (&[(C, b"\x16\x03")], at(443), Some((Tls, Low))),
        (&[(C, b"\x16\x03")], none, None),
        (&[(C, b"zzzz"), (S, b"yyyy")], at(443), None),
        (&[], at(443), None),
    ];
    for (pieces, ports, expected) in cases {
        assert_eq!(label(Transport::Stream, pieces, *ports), *expected, "{pieces:?}");
    }
}

/// Protocols of datagrams of which no capture is at hand.
#[test]
fn datagrams() {
    use Confidence::*;
    use Direction::{Opener as C, Responder as S};
    use Protocol::*;
    let none = Ports { opener: 40_000, responder: 50_000 };
    let at = |responder| Ports { opener: 40_000, responder };
    let with = |start: &[u8], len: usize| [start, &vec![0x55; len - start.len()]].concat();
    let wireguard = [with(&[1, 0, 0, 0], 148), with(&[2, 0, 0, 0], 92), with(&[4, 0, 0, 0], 96)];
    let openvpn = [with(&[0x38], 42), with(&[0x40], 54)];
    let utp = [with(&[0x41, 0], 20), with(&[0x21, 0], 20)];
    let stun = [&[0, 1, 0, 0, 0x21, 0x12, 0xa4, 0x42][..], &[7; 12]].concat();
    let radius = [&[1, 9, 0, 26][..], &[3; 16], &[1, 6], b"zeek"].concat();
    let negotiation = [&[0x80, 0, 0, 0, 0, 1, 9, 1, 8][..], &[0, 0, 0, 1]].concat();
    let cases: &[Case<'_>] = &[
        (&[(C, &wireguard[0])], none, Some((WireGuard, High))),
        (&[(S, &wireguard[1])], none, Some((WireGuard, High))),
        (&[(C, &wireguard[2])], at(51820), Some((WireGuard, Medium))),
        (&[(C, &openvpn[0])], none, Some((OpenVpn, Low))),
        (&[(C, &openvpn[0])], at(1194), Some((OpenVpn, Medium))),
        (&[(C, &openvpn[0]), (S, &openvpn[1])], none, Some((OpenVpn, Medium))),
        (&[(C, &openvpn[0][..40])], none, None),
        (&[(C, b"\0\x03\0\x01data"), (S, b"\0\x04\0\x01")], none, Some((Tftp, Medium))),
        (&[(C, b"BT-SEARCH * HTTP/1.1\r\nHost: x\r\n\r\n")], none, Some((BitTorrent, High))),
        (&[(C, &utp[0]), (S, &utp[1])], none, Some((Utp, Medium))),
        (&[(C, &stun)], none, Some((Stun, High))),
        (&[(C, &radius)], at(1812), Some((Radius, Medium))),
        (&[(C, &radius[..25])], none, None),
        (&[(C, &negotiation)], none, Some((Quic, Low))),
        (&[(C, b"d1:ad2:id20:aaaaaaaaaaaaaaaaaaaae1:q4:ping")], none, Some((BitTorrentDht, High))),
        (&[(C, b"M-SEARCH * HTTP/1.1\r\nHOST: x\r\n\r\n")], none, Some((Ssdp, High))),
        (&[(C, b"\0\x01boot.img\0octet\0")], none, Some((Tftp, High))),
        (&[(C, b"SIP/2.0 200 OK\r\n\r\n")], none, Some((Sip, High))),
        (&[(C, &[0x77; 30])], at(53), Some((Dns, Low))),
        (&[(C, &[0x77; 30])], none, None),
    ];
    for (pieces, ports, expected) in cases {
        assert_eq!(label(Transport::Datagram, pieces, *ports), *expected, "{pieces:?}");
    }
}

/// Neither identifying a flow nor reading a head or a line allocates.
#[test]
fn nothing_is_allocated() {
    let ports = Ports { opener: 40_000, responder: 80 };
    let round = || {
        for beginning in BEGINNINGS {
            for transport in [Transport::Stream, Transport::Datagram] {
                let mut identifier = Identifier::new(transport);
                identifier.feed(Direction::Opener, beginning, ports);
                identifier.feed(Direction::Responder, beginning, ports);
                std::hint::black_box(identifier.finish(ports));
            }
            let mut head = Head::new();
            std::hint::black_box(head.feed(beginning));
            let mut lines = Lines::default();
            lines.feed(beginning, |line, _| {
                std::hint::black_box(line.len());
            });
        }
    };
    round();
    let counted = allocation_counter::measure(round);
    assert_eq!(counted.count_total, 0);
    let control = allocation_counter::measure(|| drop(std::hint::black_box(vec![0_u8; 100])));
    assert_eq!(control.count_total, 1);
}
