//! tshark, whose dissector knows elements that nfdump does not print: TTL, flow identifier, inner VLAN, reason of the end.

use std::net::UdpSocket;
use std::process::Command;
use std::time::Duration;

use flowlog::ipfix::{Config, Exporter, Protocol};
use stream::record::{FlowRecord, Reason};
use testkit::Scratch;
use testkit::frames::Frame;
use testkit::pcap::{Record, write_pcap};

use crate::records;

/// Names of the dissector `cflow` for what every record has.
const FIELDS: [&str; 11] = [
    "cflow.flow_id",
    "cflow.protocol",
    "cflow.tcpflags",
    "cflow.inputint",
    "cflow.vlanid",
    "cflow.dot1q_customer_vlan_id",
    "cflow.ttl_min",
    "cflow.ttl_max",
    "cflow.octets",
    "cflow.packets",
    "cflow.flow_end_reason",
];

/// The values of these fields of what one side of a flow sent.
fn values(record: &FlowRecord, side: usize) -> [u64; 11] {
    let sent = &record.sides[side];
    let reason = match record.reason {
        Reason::Timeout => 1,
        Reason::Active => 2,
        Reason::Closed => 3,
        Reason::Shutdown => 4,
        Reason::Evicted => 5,
    };
    [
        record.id,
        record.protocol.into(),
        sent.tcp_flags.into(),
        if side == 0 { record.port.into() } else { 0 },
        record.vlans[0].into(),
        record.vlans[1].into(),
        sent.ttl.0.into(),
        sent.ttl.1.into(),
        sent.ip_bytes,
        sent.packets,
        reason,
    ]
}

#[test]
fn tshark_dissects_every_record() {
    if testkit::require_tool("tshark").is_none() {
        return;
    }
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
    let config = Config::new(socket.local_addr().unwrap(), Protocol::Udp);
    let exporter = Exporter::start(config).unwrap();
    for record in records::all() {
        exporter.export(&record);
    }
    drop(exporter);
    let mut buffer = [0; 2000];
    let mut frames = Vec::new();
    while let Ok(len) = socket.recv(&mut buffer) {
        let frame = Frame::new().ipv4("10.0.0.1", "10.0.0.2").udp(4739, 4739, &buffer[..len]);
        frames.push(Record::new(records::START_NS, frame.bytes()));
    }
    let scratch = Scratch::new();
    let path = scratch.join("ipfix.pcap");
    write_pcap(&path, &frames);
    let mut command = Command::new("tshark");
    command.args(["-d", "udp.port==4739,cflow", "-T", "fields", "-E", "separator=;", "-r"]);
    command.arg(&path);
    for field in FIELDS {
        command.args(["-e", field]);
    }
    let output = command.output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    // A line is a message, and has the values of all its records for each field.
    let mut got = vec![Vec::new(); FIELDS.len()];
    for line in text.lines() {
        for (got, values) in got.iter_mut().zip(line.split(';')) {
            got.extend(values.split(',').filter(|value| !value.is_empty()).map(number));
        }
    }
    let sides = |record: &FlowRecord| {
        let record = record.clone();
        (0..2)
            .filter(|s| record.sides[*s].packets > 0)
            .map(|s| values(&record, s))
            .collect::<Vec<_>>()
    };
    let expected: Vec<_> = records::all().iter().flat_map(sides).collect();
    for (at, (name, got)) in FIELDS.iter().zip(got).enumerate() {
        let expected: Vec<u64> = expected.iter().map(|values| values[at]).collect();
        assert_eq!(got, expected, "{name}: {text}");
    }
    let malformed = Command::new("tshark")
        .args(["-d", "udp.port==4739,cflow", "-Y", "_ws.malformed || _ws.expert"])
        .arg("-r")
        .arg(&path)
        .output()
        .unwrap();
    assert!(malformed.status.success() && malformed.stdout.is_empty(), "{malformed:?}");
}

fn number(text: &str) -> u64 {
    match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).unwrap(),
        None => text.parse().unwrap(),
    }
}
