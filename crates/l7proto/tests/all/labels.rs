//! Labels of real flows, against those that tshark 4.0.17 gave them.

use std::collections::BTreeMap;

use crate::common::{Piece, flows, identify};
use l7proto::{Answer, Confidence, Identifier, Label, Transport};

const FOLDER: &str = "pcap-l7/zeek";

/// tshark's word for a protocol and ours; words for what no signature is for are not here.
const NAMES: &[(&str, &str)] = &[
    ("http", "http"),
    ("tls", "tls"),
    ("dtls", "dtls"),
    ("ssh", "ssh"),
    ("smtp", "smtp"),
    ("ftp", "ftp"),
    ("dns", "dns"),
    ("mdns", "mdns"),
    ("imap", "imap"),
    ("pop", "pop3"),
    ("irc", "irc"),
    ("xmpp", "xmpp"),
    ("sip", "sip"),
    ("cotp,tpkt", "rdp"),
    ("rdpudp", "rdpudp"),
    ("ntp", "ntp"),
    ("dhcp", "dhcp"),
    ("snmp", "snmp"),
    ("resp", "redis"),
    ("pgsql", "pgsql"),
    ("mysql", "mysql"),
    ("mbtcp", "modbus"),
    ("ldap", "ldap"),
    ("vnc", "rfb"),
];

/// What is kept of tshark's label: that of the plain protocol where the flow turns to TLS later.
fn ours(label: &str) -> Option<&'static str> {
    let plain = match label {
        "cotp,tpkt" => label,
        "tls,xmpp" => "xmpp",
        _ => label.split(',').next()?,
    };
    NAMES.iter().find(|(name, _)| *name == plain).map(|(_, ours)| *ours)
}

#[test]
fn flows_of_known_protocols() {
    let Some(folder) = testdata::path(FOLDER) else { return };
    let labels = std::fs::read_to_string(folder.join("labels-tshark.tsv")).unwrap();
    let differing = include_str!("labels-differing.tsv");
    let reasons: BTreeMap<&str, &str> = differing
        .lines()
        .filter(|l| !l.starts_with('#'))
        .filter_map(|l| l.split_once('\t'))
        .collect();
    let mut captures = BTreeMap::new();
    let (mut known, mut agree) = (0, 0);
    let (mut unexplained, mut seen) = (Vec::new(), Vec::new());
    for line in labels.lines().skip(1) {
        let columns: Vec<&str> = line.split('\t').collect();
        let [capture, protocol, source, sport, destination, dport, label, _] = columns[..] else {
            panic!("{line}");
        };
        let all = captures.entry(capture).or_insert_with(|| flows(&folder.join(capture)));
        let matches = |address: (std::net::IpAddr, u16), host: &str, port: &str| {
            address.0 == host.parse::<std::net::IpAddr>().unwrap() && address.1.to_string() == port
        };
        let number = if protocol == "tcp" { 6 } else { 17 };
        let flow = all.iter().find(|flow| {
            let (a, b) = (flow.key.opener, flow.key.responder);
            flow.key.protocol == number
                && (matches(a, source, sport) && matches(b, destination, dport)
                    || matches(b, source, sport) && matches(a, destination, dport))
        });
        let Some(flow) = flow else { panic!("{capture}: no flow {line}") };
        let answer = flow.answer();
        let found = answer.label().map_or("unknown", |label| label.protocol.name());
        let expected = ours(label);
        known += usize::from(expected.is_some());
        agree += usize::from(expected == Some(found));
        if expected.unwrap_or("unknown") == found {
            continue;
        }
        let confidence =
            answer.label().map_or("-".to_owned(), |l| format!("{:?}", l.confidence).to_lowercase());
        let row = format!("{capture} {protocol} {sport} {dport} {label} {found} {confidence}");
        match reasons.get(row.as_str()) {
            Some(_) => seen.push(row),
            None => unexplained.push(format!("{row}\t{answer:?}")),
        }
    }
    println!("{agree} of {known} flows agree");
    assert!(unexplained.is_empty(), "{}", unexplained.join("\n"));
    let stale: Vec<_> = reasons.keys().filter(|row| !seen.iter().any(|s| s == *row)).collect();
    assert!(stale.is_empty(), "no longer so: {stale:?}");
    assert!(agree * 100 >= known * 95, "{agree} of {known}");
    assert!(known > 350);
}

/// How soon: packets with payload until a settled label, over all flows that get one.
#[test]
fn labels_come_early() {
    let Some(folder) = testdata::path(FOLDER) else { return };
    let labels = std::fs::read_to_string(folder.join("labels-tshark.tsv")).unwrap();
    let mut counts = Vec::new();
    let captures: std::collections::BTreeSet<&str> =
        labels.lines().skip(1).filter_map(|line| line.split('\t').next()).collect();
    for capture in captures {
        for flow in flows(&folder.join(capture)) {
            let mut identifier = Identifier::new(flow.key.transport());
            let settled = flow.pieces.iter().position(|(direction, bytes)| {
                matches!(identifier.feed(*direction, bytes, flow.key.ports()), Answer::Known(_))
            });
            counts.extend(settled.map(|number| number + 1));
        }
    }
    counts.sort_unstable();
    let (median, p90) = (counts[counts.len() / 2], counts[counts.len() * 9 / 10]);
    println!(
        "packets until settled: median {median}, nine of ten flows {p90}, {} flows",
        counts.len()
    );
    assert!(median <= 2 && p90 <= 3);
}

/// Every stream cut at every place of its first bytes, and into single bytes: the same answer.
#[test]
fn cuts_change_nothing() {
    let Some(folder) = testdata::path(FOLDER) else { return };
    let labels = std::fs::read_to_string(folder.join("labels-tshark.tsv")).unwrap();
    let captures: std::collections::BTreeSet<&str> =
        labels.lines().skip(1).filter_map(|line| line.split('\t').next()).collect();
    let mut cuts = 0;
    for capture in captures {
        for flow in flows(&folder.join(capture)) {
            if flow.key.transport() == Transport::Datagram {
                continue;
            }
            let ports = flow.key.ports();
            let pieces: Vec<Piece> = flow.pieces.iter().take(8).cloned().collect();
            let whole = identify(Transport::Stream, &pieces, ports);
            for (number, (direction, bytes)) in pieces.iter().enumerate() {
                for at in 1..bytes.len().min(64) {
                    let mut cut = pieces.clone();
                    cut[number] = (*direction, bytes[..at].to_vec());
                    cut.insert(number + 1, (*direction, bytes[at..].to_vec()));
                    assert_eq!(
                        identify(Transport::Stream, &cut, ports),
                        whole,
                        "{capture} {:?}",
                        flow.key
                    );
                    cuts += 1;
                }
            }
            let single: Vec<Piece> =
                pieces.iter().flat_map(|(d, bytes)| bytes.iter().map(|b| (*d, vec![*b]))).collect();
            assert_eq!(
                identify(Transport::Stream, &single, ports),
                whole,
                "{capture} {:?}",
                flow.key
            );
        }
    }
    assert!(cuts > 10_000, "{cuts}");
}

/// Beginnings that are nearly another protocol's: the label and how sure it is.
#[test]
fn near_misses() {
    let datagram = Transport::Datagram;
    let stream = Transport::Stream;
    let time = |start: &[u8], fill: u8| [start, &vec![fill; 48 - start.len()]].concat();
    let netbios =
        [&b"\0\x09\x01\x10\0\x01\0\0\0\0\0\0\x20CK"[..], &[b'A'; 30], b"\0\0\x21\0\x01"].concat();
    let query =
        |flags: &[u8]| [&b"\0\x09"[..], flags, b"\0\x01\0\0\0\0\0\0\x01a\0\0\x01\0\x01"].concat();
    let framed = |message: Vec<u8>| [&[0, message.len() as u8][..], &message].concat();
    type Label = Option<(&'static str, Confidence)>;
    let cases: Vec<(&str, Transport, u16, Vec<u8>, Label)> = vec![
        ("a name of NetBIOS", datagram, 137, netbios, None),
        ("DNS", datagram, 53, query(b"\x01\0"), Some(("dns", Confidence::High))),
        ("DNS, bit Z", datagram, 53, query(b"\x01\x40"), Some(("dns", Confidence::Medium))),
        ("DNS, bit Z, elsewhere", datagram, 4000, query(b"\x01\x40"), None),
        ("DNS, bit Z", stream, 53, framed(query(b"\x01\x40")), Some(("dns", Confidence::Medium))),
        ("DNS, bit Z, elsewhere", stream, 4000, framed(query(b"\x01\x40")), None),
        ("a client's time", datagram, 123, time(&[0x23], 0), Some(("ntp", Confidence::High))),
        ("chance", datagram, 123, time(&[0x23, 1, 0x8a], 0xa5), Some(("ntp", Confidence::Medium))),
        ("memcached", stream, 11211, b"get a\r\n".to_vec(), None),
        (
            "small letters",
            stream,
            80,
            b"get /a HTTP/1.1\r\n".to_vec(),
            Some(("http", Confidence::Medium)),
        ),
        ("a tab", stream, 80, b"GET\t/a HTTP/1.1\r\n".to_vec(), Some(("http", Confidence::Medium))),
        (
            "blanks",
            stream,
            80,
            b" \t GET  /a HTTP/1.1\r\n".to_vec(),
            Some(("http", Confidence::Medium)),
        ),
    ];
    for (what, transport, responder, bytes, expected) in cases {
        let ports = l7proto::Ports { opener: 50_000, responder };
        let mut identifier = Identifier::new(transport);
        identifier.feed(l7proto::Direction::Opener, &bytes, ports);
        let label = identifier.finish(ports).label();
        let label = label.filter(|label| label.found_by != l7proto::FoundBy::Port);
        let found = label.map(|label| (label.protocol.name(), label.confidence));
        assert_eq!(found, expected, "{what}");
    }
}

/// A label that is sure is never one that tshark contradicts.
#[test]
fn a_sure_label_has_no_reason_to_be_excused() {
    let sure: Vec<&str> = include_str!("labels-differing.tsv")
        .lines()
        .filter(|line| !line.starts_with('#'))
        .filter(|line| line.split('\t').next().is_some_and(|row| row.ends_with(" high")))
        .filter(|line| {
            !line.contains("tshark is wrong") && !line.contains("tshark does not decode")
        })
        .collect();
    assert!(sure.is_empty(), "{sure:?}");
    let label = Label {
        protocol: l7proto::Protocol::Ssh,
        found_by: l7proto::FoundBy::Pattern,
        confidence: Confidence::High,
    };
    assert_eq!(Answer::Known(label).label(), Some(label));
}
