//! Conditions on numbers of transactions: codes of DNS, versions of TLS, sizes of files.

use std::sync::Arc;

use applayer::{Direction, Limits, Session, Start};
use detect::{Detector, Feed, FlowState, Options, Packet, Ruleset, Sender};
use l7proto::{Ports, Transport};
use signatures::{Loader, Variables};

use crate::packets::datagram;

/// Message by message: who sends it, and its bytes. The rules that match, sorted.
fn matched(rules: &str, transport: Transport, messages: &[(Sender, &[u8])]) -> Vec<u32> {
    let variables = Variables::with_defaults([], []).expect("defaults");
    let mut loader = Loader::new(variables.clone());
    loader.read("rules", rules.as_bytes()).expect("memory");
    let set = loader.finish();
    assert!(set.problems.is_empty(), "{:?}", set.problems);
    let (rules, refused) = Ruleset::compile(&set, &variables, &Options::default());
    assert!(refused.is_empty(), "{refused:?}");
    let (mut detector, mut flow) = (Detector::new(Arc::new(rules)), FlowState::new(1));
    let ports = Ports { opener: 4000, responder: 53 };
    let mut session = Session::new(Start { transport, ports, is_midstream: false });
    let (limits, mut alerts, mut sids) = (Limits::default(), Vec::new(), Vec::new());
    let mut offsets = [0; 2];
    let last = (Sender::Client, &b""[..]);
    for (at, (sender, bytes)) in messages.iter().copied().chain([last]).enumerate() {
        let ends = [([10, 0, 0, 1], 4000), ([10, 0, 0, 2], 53)];
        let (from, to, direction) = match sender {
            Sender::Client => (ends[0], ends[1], Direction::ToServer),
            Sender::Server => (ends[1], ends[0], Direction::ToClient),
        };
        let frame = datagram(from, to, 64, b"");
        let decoded = packet::decode(&frame, frame.len());
        let packet = Packet { decoded: &decoded, frame: &frame, time_ns: 1 };
        detector.begin(&packet, &mut flow, sender);
        let mut feed = Feed { detector: &mut detector, flow: &mut flow };
        let offset = &mut offsets[direction as usize];
        let _ = match transport {
            _ if at == messages.len() => {
                session.finish(&limits, 1, &mut feed);
                continue;
            }
            Transport::Datagram => session.datagram(&limits, direction, bytes, 1, &mut feed),
            Transport::Stream => session.data(&limits, direction, *offset, bytes, 1, &mut feed),
        };
        *offset += bytes.len() as u64;
        detector.finish(&mut flow, &mut alerts);
        let own = detector.rules();
        sids.extend(alerts.drain(..).map(|alert| own.rule(alert.rule).sid));
    }
    sids.sort_unstable();
    sids.dedup();
    sids
}

/// Rules with one of these conditions each, by sid from 1.
fn rules(protocol: &str, conditions: &[&str]) -> String {
    let rule = |(at, condition): (usize, &&str)| {
        format!("alert {protocol} any any -> any any ({condition}; sid:{};)\n", at + 1)
    };
    conditions.iter().enumerate().map(rule).collect()
}

#[test]
fn codes_of_dns() {
    let conditions = [
        "dns.rcode:3",
        "dns.rcode:0; dns.query; content:\"a.test\"",
        "dns.rcode:1-3",
        "dns.rcode:1-5; flow:to_client",
        "dns.opcode:0",
        "dns.opcode:!0",
        "dns.opcode:4; dns.rcode:3",
        "dns.rcode:>3",
    ];
    let message = |flags: u16| {
        let head = [0, 7, (flags >> 8) as u8, flags as u8, 0, 1, 0, 0, 0, 0, 0, 0];
        [&head[..], b"\x01a\x04test\x00\x00\x01\x00\x01"].concat()
    };
    let of = |answer: u16| {
        let (ask, answer) = (message(0x0100), message(answer));
        let messages = [(Sender::Client, &ask[..]), (Sender::Server, &answer[..])];
        matched(&rules("dns", &conditions), Transport::Datagram, &messages)
    };
    // A range has neither of its ends, as in Suricata.
    assert_eq!(of(0x8183), [1, 2, 4, 5]);
    assert_eq!(of(0x8180), [2, 5]);
    assert_eq!(of(0xa183), [1, 2, 4, 5, 6, 7]);
    assert_eq!(of(0x8182), [2, 3, 4, 5]);
    assert_eq!(of(0x8185), [2, 5, 8]);
}

#[test]
fn types_of_records() {
    let conditions = [
        "dns.rrtype:28",
        "dns.rrtype:5; flow:to_client",
        "dns.rrtype:1; flow:to_client",
        "dns.rrtype:1; flow:to_server",
        "dns.rrtype:>28",
    ];
    let question = b"\x01a\x04test\x00\x00\x1c\x00\x01";
    let ask = [&[0, 7, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0][..], question].concat();
    let head = [0, 7, 0x81, 0x80, 0, 1, 0, 2, 0, 0, 0, 0];
    let alias = b"\xc0\x0c\x00\x05\x00\x01\x00\x00\x00\x01\x00\x02\xc0\x0c";
    let address = b"\xc0\x0c\x00\x01\x00\x01\x00\x00\x00\x01\x00\x04\x0a\x00\x00\x01";
    let answer = [&head[..], question, alias, address].concat();
    let messages = [(Sender::Client, &ask[..]), (Sender::Server, &answer[..])];
    let found = matched(&rules("dns", &conditions), Transport::Datagram, &messages);
    assert_eq!(found, [1, 2, 3]);
}

#[test]
fn versions_of_tls() {
    let conditions = [
        "tls.version:1.2",
        "tls.version:!1.2",
        "tls.version:1.0,1.1; flow:to_client",
        "ssl_version:sslv3",
        "tls.version:!1.0,!1.1; flow:to_client",
    ];
    let record = |kind: u8, version: u16, rest: &[u8]| {
        let body = [&version.to_be_bytes()[..], &[7; 32], &[0], rest].concat();
        let len = body.len() as u16;
        let record = (len + 4).to_be_bytes();
        [&[22, 3, 1, record[0], record[1], kind, 0], &len.to_be_bytes()[..], &body].concat()
    };
    let of = |client: u16, server: u16| {
        let hello = record(1, client, &[0, 2, 0, 0x2f, 1, 0]);
        let answer = record(2, server, &[0, 0x2f, 0]);
        let messages = [(Sender::Client, &hello[..]), (Sender::Server, &answer[..])];
        matched(&rules("tls", &conditions), Transport::Stream, &messages)
    };
    assert_eq!(of(0x0303, 0x0303), [1, 5]);
    assert_eq!(of(0x0303, 0x0302), [1, 2, 3]);
    assert_eq!(of(0x0300, 0x0300), [2, 4, 5]);
}

#[test]
fn sizes_of_files() {
    let conditions = [
        "filesize:5",
        "filesize:>4",
        "filesize:<6; file.data; content:\"ell\"",
        "filesize:>4; filesize:<9",
        "filesize:>5",
        "filesize:!5",
    ];
    let ask = b"GET /a HTTP/1.1\r\nHost: a\r\n\r\n";
    let of = |answer: &[u8]| {
        let messages = [(Sender::Client, &ask[..]), (Sender::Server, answer)];
        matched(&rules("http", &conditions), Transport::Stream, &messages)
    };
    assert_eq!(of(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"), [1, 2, 3, 4]);
    assert_eq!(of(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhello hel"), [2, 5, 6]);
}
