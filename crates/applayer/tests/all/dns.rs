//! DNS.

use applayer::{AnomalyKind, Buffer, Data, Dns, DnsData, Limits};
use l7proto::Transport;

use crate::recorder::{Recorder, c, run, s, start, stream};

pub fn query(name: &[u8]) -> Vec<u8> {
    let mut message = b"\x12\x34\x01\0\0\x01\0\0\0\0\0\0".to_vec();
    for label in name.split(|byte| *byte == b'.') {
        message.push(label.len() as u8);
        message.extend(label);
    }
    message.extend(b"\0\0\x01\0\x01");
    message
}

pub fn answer(name: &[u8], records: &[(u16, Vec<u8>)]) -> Vec<u8> {
    let mut message = query(name);
    message[2..4].copy_from_slice(&[0x81, 0x80]);
    message[7] = records.len() as u8;
    for (kind, data) in records {
        message.extend([0xc0, 12]);
        message.extend(kind.to_be_bytes());
        message.extend([0, 1, 0, 0, 0, 60]);
        message.extend((data.len() as u16).to_be_bytes());
        message.extend(data);
    }
    message
}

fn dns(recorder: &Recorder, id: usize) -> &Dns {
    match &recorder.finished[id].data {
        Data::Dns(dns) => dns,
        other => panic!("{other:?}"),
    }
}

fn datagrams(steps: &[crate::recorder::Step]) -> Recorder {
    run(start(Transport::Datagram, 53), &Limits::default(), steps)
}

fn records() -> Vec<(u16, Vec<u8>)> {
    vec![
        (1, vec![192, 0, 2, 1]),
        (28, vec![0x20; 16]),
        (5, b"\x01a\xc0\x0c".to_vec()),
        (15, b"\0\x0a\x02mx\xc0\x0c".to_vec()),
        (16, b"\x02ab\x00".to_vec()),
        (6, [&b"\x01m\0\x01r\0"[..], &[0, 0, 0, 1].repeat(5)].concat()),
        (33, b"\0\x01\0\x02\0\x03\x01s\0".to_vec()),
        (44, b"\x01\x02abc".to_vec()),
        (257, b"\x80\x05issueca".to_vec()),
        (65, b"\0\x01\0\x00\x01\x00\x00".to_vec()),
        (1, vec![1, 2, 3]),
        (12, b"\x40x".to_vec()),
    ]
}

#[test]
fn a_query_and_its_answer() {
    let r = datagrams(&[c(&query(b"www.example")), s(&answer(b"www.example", &records()))]);
    assert_eq!((r.finished.len(), r.anomalies.len()), (2, 0), "{:?}", r.anomalies);
    assert_eq!(r.texts(0, Buffer::DnsQueryName), ["www.example"]);
    assert_eq!(r.texts(1, Buffer::DnsQueriesRrname), ["www.example"]);
    assert_eq!(r.texts(1, Buffer::DnsAnswerName), ["www.example"; 12]);
    let found = dns(&r, 1);
    assert!(found.is_response() && found.id == 0x1234 && !found.is_cut);
    let data: Vec<_> = found.answers.iter().map(|record| record.data.clone()).collect();
    let expected = [
        DnsData::A([192, 0, 2, 1].into()),
        DnsData::Aaaa([0x20; 16].into()),
        DnsData::Name(b"a.www.example".to_vec()),
        DnsData::Mx { preference: 10, name: b"mx.www.example".to_vec() },
        DnsData::Txt(vec![b"ab".to_vec(), vec![]]),
        DnsData::Soa { mname: "m".into(), rname: "r".into(), numbers: [1; 5] },
        DnsData::Srv { priority: 1, weight: 2, port: 3, name: "s".into() },
        DnsData::Sshfp { algorithm: 1, kind: 2, fingerprint: b"abc".to_vec() },
        DnsData::Caa { flags: 128, tag: b"issue".to_vec(), value: b"ca".to_vec() },
        DnsData::Svcb { priority: 1, name: Vec::new(), parameters: vec![0, 1, 0, 0] },
        DnsData::Other(vec![1, 2, 3]),
        DnsData::Other(b"\x40x".to_vec()),
    ];
    assert_eq!(data, expected);
}

#[test]
fn messages_of_a_stream() {
    let framed = |message: &[u8]| [&(message.len() as u16).to_be_bytes()[..], message].concat();
    let queries = [framed(&query(b"a.example")), framed(&query(b"b.example"))].concat();
    let r = stream(53, &[c(&queries), s(&framed(&answer(b"a.example", &records())))]);
    assert_eq!(r.finished.len(), 3);
    assert_eq!(r.text(1, Buffer::DnsQueryName).as_deref(), Some("b.example"));
}

/// Messages of no bytes are odd, and what follows them is read.
#[test]
fn lengths_of_zero() {
    let message = query(b"a.example");
    let framed = [&(message.len() as u16).to_be_bytes()[..], &message].concat();
    for zeros in [2, 6, 100] {
        let r = stream(53, &[c(&[&vec![0; zeros][..], &framed].concat())]);
        assert_eq!(r.text(0, Buffer::DnsQueryName).as_deref(), Some("a.example"), "{zeros}");
        assert_eq!(r.kinds(), [applayer::AnomalyKind::DnsMalformed], "{zeros}");
    }
}

#[test]
fn broken_messages() {
    let first = c(&query(b"www.example"));
    let mut looped = query(b"www.example");
    looped[12..14].copy_from_slice(&[0xc0, 12]);
    let mut many = answer(b"www.example", &records());
    many[6..8].copy_from_slice(&[0xff, 0xff]);
    let mut flags = query(b"x");
    flags[2] = 0x38;
    flags[3] = 0x40;
    let cases = [
        (vec![0; 5], AnomalyKind::DnsMalformed),
        (looped, AnomalyKind::DnsMalformed),
        (many, AnomalyKind::DnsMalformed),
        (answer(b"x", &[]), AnomalyKind::DnsNotRequest),
        (flags.clone(), AnomalyKind::DnsOpcode),
        (flags, AnomalyKind::DnsZFlag),
    ];
    for (message, kind) in cases {
        let r = datagrams(&[first.clone(), c(&message)]);
        assert!(r.has(kind), "{kind:?}: {:?}", r.anomalies);
    }
    let limits = Limits { records: 4, ..Limits::default() };
    let steps = [first, s(&answer(b"www.example", &records()))];
    let r = run(start(Transport::Datagram, 53), &limits, &steps);
    assert_eq!((dns(&r, 1).answers.len(), dns(&r, 1).is_cut, r.anomalies.len()), (3, true, 0));
}

/// What a server answers is seen, whatever the header says, and the flow goes on.
#[test]
fn odd_first_messages() {
    let with = |at: usize, value: &[u8]| {
        let mut message = query(b"www.example");
        message[at..at + value.len()].copy_from_slice(value);
        message
    };
    let cases = [
        ("the reserved bit", with(2, &[0x01, 0x40]), AnomalyKind::DnsZFlag),
        ("an operation that does not exist", with(2, &[0x39, 0]), AnomalyKind::DnsOpcode),
        ("answers that are not there", with(6, &[0, 9]), AnomalyKind::DnsMalformed),
        ("questions that are not there", with(4, &[0xff, 0xff]), AnomalyKind::DnsMalformed),
    ];
    for (what, first, kind) in cases {
        let framed = |message: &[u8]| [&(message.len() as u16).to_be_bytes()[..], message].concat();
        let next = query(b"next.example");
        let reply = answer(b"next.example", &[(1, vec![192, 0, 2, 1])]);
        let runs = [
            datagrams(&[c(&first), c(&next), s(&reply)]),
            stream(53, &[c(&framed(&first)), c(&framed(&next)), s(&framed(&reply))]),
        ];
        for r in runs {
            assert!(r.has(kind), "{what}: {:?}", r.anomalies);
            assert_eq!(r.text(0, Buffer::DnsQueryName).as_deref(), Some("www.example"), "{what}");
            assert_eq!(r.text(1, Buffer::DnsQueryName).as_deref(), Some("next.example"), "{what}");
            assert_eq!(r.finished.len(), 3, "{what}");
        }
        // On another port, it is anything.
        let r = run(start(Transport::Datagram, 4000), &Limits::default(), &[c(&first)]);
        assert_eq!(r.protocols, [None], "{what}");
    }
    let junk = datagrams(&[c(&[0xa5; 40])]);
    assert_eq!(junk.protocols, [None]);
}
