//! nfdump, an independent collector: nfcapd takes what is exported, nfdump prints it, and both agree field by field.

use std::net::UdpSocket;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use flowlog::ipfix::{Config, Exporter, Protocol};
use serde_json::Value;
use stream::record::FlowRecord;
use testkit::process::{Process, Stop};
use testkit::{Scratch, wait_until};

use crate::records;

const LONG: Duration = Duration::from_secs(20);

/// A collector on loopback, and its port.
fn nfcapd(folder: &Path, address: &str) -> (Process, u16) {
    let socket = UdpSocket::bind((address, 0)).unwrap();
    let port = socket.local_addr().unwrap().port();
    drop(socket);
    let mut command = Command::new("nfcapd");
    let family = if address.contains(':') { "-6" } else { "-4" };
    command.args([family, "-b", address, "-p", &port.to_string(), "-t", "3600", "-w"]);
    command.arg(folder);
    let process = Process::spawn(command);
    // Its socket is in the table of the kernel.
    let entry = format!(":{port:04X} ");
    let is_bound = wait_until(LONG, || {
        ["/proc/net/udp", "/proc/net/udp6"]
            .iter()
            .any(|table| std::fs::read_to_string(table).is_ok_and(|text| text.contains(&entry)))
    });
    assert!(is_bound, "{}", process.output());
    (process, port)
}

/// What nfdump prints of a folder, in the order of receipt.
fn nfdump(folder: &Path, format: &str) -> String {
    let output = Command::new("nfdump").args(["-o", format, "-R"]).arg(folder).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// Milliseconds as nfdump writes them, in the time zone of the test.
fn time(ns: u64) -> String {
    let (seconds, ms) = (ns / 1_000_000_000, ns / 1_000_000 % 1000);
    let output = Command::new("date")
        .args(["-d", &format!("@{seconds}"), "+%Y-%m-%dT%H:%M:%S"])
        .output()
        .unwrap();
    format!("{}.{ms:03}", String::from_utf8(output.stdout).unwrap().trim())
}

fn check(got: &Value, record: &FlowRecord, side: usize) {
    let sent = &record.sides[side];
    let mut ends = [(record.client, record.client_port), (record.server, record.server_port)];
    ends.rotate_left(side);
    let family = if record.client.is_ipv4() { 4 } else { 6 };
    let key = |name: &str| format!("{name}{family}_addr");
    assert_eq!(got[key("src")], ends[0].0.to_string(), "{got}");
    assert_eq!(got[key("dst")], ends[1].0.to_string(), "{got}");
    let number = |name: &str| got[name].as_u64();
    assert_eq!(number("proto"), Some(record.protocol.into()), "{got}");
    match record.icmp {
        Some((kind, code)) => {
            // The answer to an echo has the type 0.
            let kind = if side == 0 { kind } else { 0 };
            assert_eq!(number("icmp_type"), Some(kind.into()), "{got}");
            assert_eq!(number("icmp_code"), Some(code.into()), "{got}");
        }
        None => {
            assert_eq!(number("src_port"), Some(ends[0].1.into()), "{got}");
            assert_eq!(number("dst_port"), Some(ends[1].1.into()), "{got}");
        }
    }
    assert_eq!(number("in_packets"), Some(sent.packets), "{got}");
    assert_eq!(number("in_bytes"), Some(sent.ip_bytes), "{got}");
    assert_eq!(got["first"], time(record.start_ns), "{got}");
    assert_eq!(got["last"], time(record.end_ns), "{got}");
    let port = if side == 0 { record.port.into() } else { 0 };
    assert_eq!(number("input_snmp"), Some(port), "{got}");
    // Fields of a group are left out where all of them are 0.
    assert_eq!(number("src_vlan").unwrap_or(0), u64::from(record.vlans[0]), "{got}");
    if record.protocol == 6 {
        let flags = got["tcp_flags"].as_str().unwrap();
        let letters = "CEUAPRSF";
        for (at, letter) in letters.chars().enumerate() {
            let is_set = sent.tcp_flags & (0x80 >> at) != 0;
            assert_eq!(flags.contains(letter), is_set, "{letter}: {got}");
        }
    }
}

fn run(address: &str) {
    if testkit::require_tool("nfcapd").is_none() || testkit::require_tool("nfdump").is_none() {
        return;
    }
    let scratch = Scratch::new();
    let (mut collector, port) = nfcapd(scratch.path(), address);
    let at = (address.parse::<std::net::IpAddr>().unwrap(), port).into();
    let exporter = Exporter::start(Config::new(at, Protocol::Udp)).unwrap();
    let sent = records::all();
    for record in &sent {
        exporter.export(record);
    }
    let counters = exporter.close();
    assert_eq!((counters.records, counters.errors), (11, 0));
    // What is on its way is read before the collector ends.
    std::thread::sleep(Duration::from_millis(500));
    let (_, log) = collector.stop(Stop::Terminate, LONG);
    let got: Vec<Value> = serde_json::from_str(&nfdump(scratch.path(), "json")).unwrap();
    let expected: Vec<_> = sent
        .iter()
        .flat_map(|r| (0..2).filter(|s| r.sides[*s].packets > 0).map(move |s| (r, s)))
        .collect();
    assert_eq!(got.len(), expected.len(), "{log}");
    for (got, (record, side)) in got.iter().zip(expected) {
        check(got, record, side);
    }
    assert!(log.contains("Sequence Errors: 0, Bad Packets: 0"), "{log}");
    // Only the raw form has these.
    let raw = nfdump(scratch.path(), "raw");
    let reasons = raw.lines().filter_map(|line| line.trim().strip_prefix("end reason"));
    let reasons =
        reasons.map(|line| line.trim_start_matches([' ', '=']).split(' ').next().unwrap());
    let reasons: Vec<_> = reasons.collect();
    let expected = ["0x03", "0x03", "0x01", "0x01", "0x05", "0x05", "0x01", "0x02", "0x02"];
    assert_eq!(reasons[..9], expected, "{raw}");
}

#[test]
fn nfdump_reads_the_same_over_ipv4() {
    run("127.0.0.1");
}

#[test]
fn nfdump_reads_the_same_over_ipv6() {
    run("::1");
}
