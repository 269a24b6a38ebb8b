//! The exporter against a collector that reads messages by RFC 7011.

use std::net::{TcpListener, TcpStream, UdpSocket};
use std::time::{Duration, Instant};

use flowlog::ipfix::{Config, Exporter, Protocol};
use proptest::prelude::*;
use stream::record::{FlowRecord, Reason};
use testkit::wait_until;

use crate::collector::{Record, Session};
use crate::records;

const LONG: Duration = Duration::from_secs(20);

fn config(collector: std::net::SocketAddr, protocol: Protocol) -> Config {
    let (flush, reconnect) = (Duration::from_millis(20), Duration::from_millis(20));
    Config { flush, reconnect, observation_domain: 4242, ..Config::new(collector, protocol) }
}

/// What one side of a flow sent, as the record says it.
fn check(got: &Record, record: &FlowRecord, side: usize) {
    let sent = &record.sides[side];
    let is_v4 = record.client.is_ipv4();
    let mut ends = [(record.client, record.client_port), (record.server, record.server_port)];
    ends.rotate_left(side);
    let (source, destination) = if is_v4 { (8, 12) } else { (27, 28) };
    assert_eq!(got.address(source), Some(ends[0].0));
    assert_eq!(got.address(destination), Some(ends[1].0));
    let number = |element: u16| got.number(element);
    let is_icmp = record.protocol == if is_v4 { 1 } else { 58 };
    match record.icmp.filter(|_| is_icmp) {
        Some((kind, code)) if side == 0 => {
            let element = if is_v4 { 32 } else { 139 };
            assert_eq!(number(element), Some(u64::from(kind) << 8 | u64::from(code)));
        }
        Some(_) => {}
        None if [1, 58].contains(&record.protocol) => {}
        None => {
            assert_eq!(number(7), Some(ends[0].1.into()));
            assert_eq!(number(11), Some(ends[1].1.into()));
        }
    }
    assert_eq!(number(148), Some(record.id));
    assert_eq!(number(4), Some(record.protocol.into()));
    assert_eq!(number(6), Some(sent.tcp_flags.into()));
    assert_eq!(number(10), Some(if side == 0 { record.port.into() } else { 0 }));
    assert_eq!(number(58), Some(record.vlans[0].into()));
    assert_eq!(number(245), Some(record.vlans[1].into()));
    assert_eq!(number(52), Some(sent.ttl.0.into()));
    assert_eq!(number(53), Some(sent.ttl.1.into()));
    assert_eq!(number(1), Some(sent.ip_bytes));
    assert_eq!(number(2), Some(sent.packets));
    assert_eq!(number(152), Some(record.start_ns / 1_000_000));
    assert_eq!(number(153), Some(record.end_ns / 1_000_000));
}

fn sides(record: &FlowRecord) -> impl Iterator<Item = usize> + '_ {
    (0..2).filter(|side| record.sides[*side].packets > 0)
}

fn check_all(got: &[Record], sent: &[FlowRecord]) {
    let expected: Vec<_> = sent.iter().flat_map(|r| sides(r).map(move |s| (r, s))).collect();
    assert_eq!(got.len(), expected.len());
    for (got, (record, side)) in got.iter().zip(expected) {
        check(got, record, side);
    }
}

#[test]
fn over_tcp() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let exporter = Exporter::start(config(listener.local_addr().unwrap(), Protocol::Tcp)).unwrap();
    let sent = records::all();
    for record in sent.iter().cycle().take(sent.len() * 50) {
        // The long flow has no news after its first record.
        if record.reason != Reason::Active {
            assert!(exporter.export(record));
        }
    }
    let (mut stream, _) = listener.accept().unwrap();
    let counters = exporter.close();
    drop(exporter);
    let mut session = Session::default();
    let mut got = Vec::new();
    while let Some(records) = session.read_from(&mut stream).unwrap() {
        got.extend(records);
    }
    let sent: Vec<_> = sent.into_iter().filter(|r| r.reason != Reason::Active).collect();
    let sent: Vec<_> = sent.iter().cycle().take(sent.len() * 50).cloned().collect();
    check_all(&got, &sent);
    assert_eq!((session.template_sets, session.missing, session.unknown_sets), (1, 0, 0));
    assert_eq!(session.domain, 4242);
    assert!(session.longest <= 1400 && session.messages > 20);
    assert_eq!(counters.records, got.len() as u64);
    assert_eq!(counters.messages, session.messages as u64);
    assert_eq!((counters.lost_unreachable, counters.errors), (0, 0));
    let reasons: Vec<_> = got[..9].iter().map(|r| r.number(136).unwrap()).collect();
    assert_eq!(reasons, [3, 3, 1, 1, 5, 5, 1, 4, 4]);
    // The answer to an echo has the type of the answer.
    assert_eq!((got[4].template, got[5].template, got[5].number(32)), (258, 258, Some(0)));
}

#[test]
fn a_collector_that_goes_and_comes_back_over_tcp() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = listener.local_addr().unwrap();
    let exporter = Exporter::start(config(at, Protocol::Tcp)).unwrap();
    let accept = |listener: &TcpListener| -> TcpStream { listener.accept().unwrap().0 };
    exporter.export(&records::tcp());
    let mut session = Session::default();
    let mut stream = accept(&listener);
    while session.messages < 2 {
        session.read_from(&mut stream).unwrap();
    }
    drop((stream, listener));
    let is_lost = wait_until(LONG, || {
        exporter.export(&records::udp6());
        exporter.counters().lost_unreachable > 0
    });
    assert!(is_lost && exporter.last_error().is_some());
    let listener = TcpListener::bind(at).unwrap();
    let is_back = wait_until(LONG, || {
        exporter.export(&records::icmp());
        exporter.counters().connections == 2
    });
    assert!(is_back);
    exporter.close();
    drop(exporter);
    // A new session: templates first, and sequence numbers from 0.
    let mut session = Session::default();
    let mut stream = accept(&listener);
    let mut records = 0;
    while let Some(got) = session.read_from(&mut stream).unwrap() {
        records += got.len();
    }
    assert!(records > 0);
    assert_eq!((session.template_sets, session.missing, session.unknown_sets), (1, 0, 0));
}

/// It accepts the connection and reads nothing: the caller goes on, and so does the end after its time.
#[test]
fn a_collector_that_stalls_over_tcp() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let config = Config {
        capacity: 1000,
        linger: Duration::from_millis(600),
        ..config(listener.local_addr().unwrap(), Protocol::Tcp)
    };
    let exporter = Exporter::start(config).unwrap();
    let (mut pushed, mut room) = (0, Instant::now());
    // The connection and the queue are full when nothing was taken for a time.
    while room.elapsed() < Duration::from_millis(500) {
        let start = Instant::now();
        if exporter.export(&records::tcp()) {
            (pushed, room) = (pushed + 1, Instant::now());
        } else {
            std::thread::sleep(Duration::from_millis(1));
        }
        assert!(start.elapsed() < Duration::from_secs(5));
    }
    let start = Instant::now();
    let counters = exporter.close();
    assert!(start.elapsed() < Duration::from_secs(5));
    assert!(counters.lost_queue_full > 0 && counters.lost_unreachable > 0, "{counters:?}");
    assert_eq!(counters.records + counters.lost_unreachable, 2 * pushed);
    drop(listener);
}

fn receive(socket: &UdpSocket, session: &mut Session) -> Vec<Record> {
    let mut buffer = [0; 65_536];
    let mut got = Vec::new();
    while let Ok(len) = socket.recv(&mut buffer) {
        got.extend(session.read(&buffer[..len]));
    }
    got
}

#[test]
fn templates_are_sent_again_over_udp() {
    let socket = UdpSocket::bind("[::1]:0").unwrap();
    socket.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
    let config = Config {
        templates_every: 3,
        message_len_max: 512,
        ..config(socket.local_addr().unwrap(), Protocol::Udp)
    };
    let exporter = Exporter::start(config).unwrap();
    let record = FlowRecord { reason: Reason::Timeout, ..records::tcp() };
    for _ in 0..50 {
        exporter.export(&record);
    }
    let counters = exporter.close();
    let mut session = Session::default();
    let got = receive(&socket, &mut session);
    check_all(&got, &vec![record; 50]);
    let data = session.messages - session.template_sets;
    assert_eq!(session.template_sets, data.div_ceil(3));
    assert_eq!((session.missing, session.unknown_sets), (0, 0));
    assert!(session.longest <= 512);
    assert_eq!(counters.records, 100);
}

#[test]
fn templates_are_sent_again_after_a_time() {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
    let config = Config {
        templates_interval: Duration::ZERO,
        ..config(socket.local_addr().unwrap(), Protocol::Udp)
    };
    let exporter = Exporter::start(config).unwrap();
    for messages in 1..4 {
        exporter.export(&records::udp6());
        assert!(wait_until(LONG, || exporter.counters().records == 2 * messages));
    }
    drop(exporter);
    let mut session = Session::default();
    assert_eq!(receive(&socket, &mut session).len(), 6);
    assert_eq!((session.template_sets, session.messages), (3, 6));
}

/// Nobody listens: the host says so, records are lost, the caller goes on; and then a collector is there.
#[test]
fn a_collector_that_comes_late_over_udp() {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let at = socket.local_addr().unwrap();
    drop(socket);
    let exporter = Exporter::start(config(at, Protocol::Udp)).unwrap();
    let is_refused = wait_until(LONG, || {
        exporter.export(&records::udp6());
        exporter.counters().errors > 1
    });
    assert!(is_refused, "{:?}", exporter.counters());
    let socket = UdpSocket::bind(at).unwrap();
    socket.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
    let records = exporter.counters().records;
    let is_sent = wait_until(LONG, || {
        exporter.export(&records::tcp());
        exporter.counters().records > records + 4
    });
    assert!(is_sent);
    drop(exporter);
    let mut session = Session::default();
    let got = receive(&socket, &mut session);
    assert!(got.len() >= 2 && session.template_sets >= 1);
    // The first messages may have been on their way when the collector came.
    assert!(got.iter().any(|record| record.number(148) == Some(7)));
}

#[test]
fn long_flows_are_exported_as_deltas() {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
    let exporter = Exporter::start(config(socket.local_addr().unwrap(), Protocol::Udp)).unwrap();
    let mut record = FlowRecord { reason: Reason::Active, ..records::tcp() };
    for _ in 0..3 {
        exporter.export(&record);
        record.sides[0].packets += 5;
        record.sides[0].ip_bytes += 500;
        record.end_ns += 60_000_000_000;
    }
    record.reason = Reason::Timeout;
    exporter.export(&record);
    exporter.close();
    let got = receive(&socket, &mut Session::default());
    let value = |element: u16| got.iter().map(|r| r.number(element).unwrap()).collect::<Vec<_>>();
    assert_eq!(value(2), [10, 12, 5, 5, 5]);
    assert_eq!(value(1), [1_200, 9_000, 500, 500, 500]);
    assert_eq!(value(136), [2, 2, 2, 2, 1]);
    // A record starts where the last one ended.
    let (starts, ends) = (value(152), value(153));
    assert_eq!(starts[2..], ends[1..4]);
}

#[test]
fn a_full_queue_refuses_records() {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let config = Config { capacity: 0, ..config(socket.local_addr().unwrap(), Protocol::Udp) };
    let exporter = Exporter::start(config.clone()).unwrap();
    assert!(!exporter.export(&records::tcp()));
    assert_eq!(exporter.close().lost_queue_full, 1);
    assert!(Exporter::start(Config { message_len_max: 511, ..config.clone() }).is_err());
    assert!(Exporter::start(Config { message_len_max: 65_536, ..config }).is_err());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]
    /// Whatever a flow is, the collector reads the same.
    #[test]
    fn any_records(
        records in prop::collection::vec(records::any_record(), 1..60),
        message_len_max in 512_usize..4_000,
    ) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let config = Config {
            message_len_max,
            ..config(listener.local_addr().unwrap(), Protocol::Tcp)
        };
        let exporter = Exporter::start(config).unwrap();
        let mut sent = records;
        for (id, record) in sent.iter_mut().enumerate() {
            record.id = id as u64;
            record.sides[0].packets = record.sides[0].packets.max(1);
            exporter.export(record);
        }
        let (mut stream, _) = listener.accept().unwrap();
        exporter.close();
        drop(exporter);
        let mut session = Session::default();
        let mut got = Vec::new();
        while let Some(records) = session.read_from(&mut stream).unwrap() {
            got.extend(records);
        }
        check_all(&got, &sent);
        prop_assert!(session.longest <= message_len_max);
        prop_assert_eq!((session.missing, session.unknown_sets), (0, 0));
    }
}
