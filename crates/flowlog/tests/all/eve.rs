//! Lines of EVE JSON: a golden file, and any record.

use std::process::{Command, Stdio};

use flowlog::eve::{Anomaly, AnomalyKind, Context, Eve, Range};
use proptest::prelude::*;
use serde_json::Value;
use stream::FlowRecord;

use crate::records::{self, START_NS, address, any_record};

fn context(in_iface: &str) -> Context<'_> {
    Context { in_iface, at_ns: START_NS + 60_000_000_000, ..<_>::default() }
}

fn anomaly(kind: AnomalyKind) -> Anomaly {
    Anomaly {
        kind,
        flow_id: (kind.layer() == "stream").then_some(7),
        protocol: 6,
        src: (address("192.0.2.80"), 443),
        dst: (address("10.1.2.3"), 40_000),
        vlans: [100, 20],
        range: (kind == AnomalyKind::Gap).then_some(Range { offset: 4_380, bytes: 1_460 }),
    }
}

fn lines() -> Vec<u8> {
    let eve = Eve { community_id_seed: Some(0) };
    let mut out = Vec::new();
    for record in records::all() {
        eve.flow(&record, context("eth0"), &mut out);
        eve.netflow(&record, context("eth0"), &mut out);
    }
    use AnomalyKind::*;
    for kind in [Conflict, Gap, Checksum, ResetOutOfWindow] {
        eve.anomaly(&anomaly(kind), context("eth0"), &mut out);
    }
    let alerted = FlowRecord { is_alerted: true, ..records::tcp() };
    let context = Context { in_iface: "we\"ird\\\n\u{1}é", at_ns: 0, ..<_>::default() };
    Eve::default().flow(&alerted, context, &mut out);
    out
}

/// The lines of the golden file. Names and their order were compared with Suricata's `src/output-json-flow.c` and
/// `src/output-json-netflow.c` by hand. `BLESS=1` writes it anew.
#[test]
fn golden() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/all/data/eve.ndjson");
    let lines = lines();
    if std::env::var_os("BLESS").is_some() {
        std::fs::write(path, &lines).unwrap();
    }
    let golden = std::fs::read_to_string(path).unwrap();
    let ours = String::from_utf8(lines).unwrap();
    assert_eq!(ours.lines().count(), golden.lines().count());
    for (ours, golden) in ours.lines().zip(golden.lines()) {
        assert_eq!(ours, golden);
        let value: Value = serde_json::from_str(ours).unwrap();
        assert!(value["timestamp"].is_string() && value["event_type"].is_string());
    }
}

/// Values that a reader of Suricata's lines looks for.
#[test]
fn fields() {
    let mut out = Vec::new();
    let eve = Eve { community_id_seed: Some(0) };
    eve.flow(&records::tcp(), context("eth0"), &mut out);
    let flow: Value = serde_json::from_slice(&out).unwrap();
    assert_eq!(flow["timestamp"], "2017-03-06T06:22:46.789012+0000");
    assert_eq!((&flow["vlan"][0], &flow["vlan"][1]), (&100.into(), &20.into()));
    assert_eq!((&flow["src_ip"], &flow["dest_port"]), (&"10.1.2.3".into(), &443.into()));
    assert_eq!(flow["flow"]["bytes_toclient"], 9_000 + 14 * 12);
    assert_eq!((&flow["flow"]["age"], &flow["flow"]["state"]), (&3.into(), &"closed".into()));
    assert_eq!(flow["tcp"]["tcp_flags_tc"], "13");
    assert_eq!((&flow["tcp"]["fin"], flow["tcp"].get("rst")), (&true.into(), None));
    out.clear();
    eve.netflow(&records::icmp6(), context(""), &mut out);
    let netflow: Value = serde_json::from_slice(&out).unwrap();
    assert_eq!((&netflow["proto"], &netflow["icmp_type"]), (&"IPv6-ICMP".into(), &135.into()));
    assert_eq!(netflow["community_id"], "1:dGHyGvjMfljg6Bppwm3bg0LO8TY=");
    assert_eq!((netflow.get("in_iface"), netflow.get("src_port")), (None, None));
    assert_eq!(netflow["netflow"]["min_ttl"], 255);
}

/// jq is another parser.
#[test]
fn jq_reads_every_line() {
    if testkit::require_tool("jq").is_none() {
        return;
    }
    let scratch = testkit::Scratch::new();
    let path = scratch.join("eve.json");
    std::fs::write(&path, lines()).unwrap();
    let output = Command::new("jq")
        .args(["-r", ".event_type"])
        .arg(&path)
        .stderr(Stdio::inherit())
        .output()
        .unwrap();
    assert!(output.status.success());
    let types = String::from_utf8(output.stdout).unwrap();
    let count = |event_type: &str| types.lines().filter(|line| *line == event_type).count();
    assert_eq!((count("flow"), count("netflow"), count("anomaly")), (7, 11, 4));
}

proptest! {
    #[test]
    fn any_record_is_one_line(
        record in any_record(),
        name in any::<String>(),
        at_ns: u64,
        community_id_seed: Option<u16>,
    ) {
        let eve = Eve { community_id_seed };
        let context = Context { in_iface: &name, at_ns, ..<_>::default() };
        let mut out = Vec::new();
        eve.flow(&record, context, &mut out);
        let text = std::str::from_utf8(&out).unwrap();
        prop_assert_eq!(text.matches('\n').count(), 1);
        let line: Value = serde_json::from_str(text).unwrap();
        prop_assert_eq!(line["flow_id"].as_u64(), Some(record.id));
        prop_assert_eq!(line["src_ip"].as_str().unwrap().parse(), Ok(record.client));
        prop_assert_eq!(line["in_iface"].as_str().unwrap_or(""), &name);
        prop_assert_eq!(line["flow"]["pkts_toserver"].as_u64(), Some(record.sides[0].packets));
        prop_assert_eq!(line["community_id"].is_string(), community_id_seed.is_some());
        out.clear();
        eve.netflow(&record, context, &mut out);
        let sent = record.sides.iter().filter(|side| side.packets > 0).count();
        prop_assert_eq!(out.iter().filter(|byte| **byte == b'\n').count(), sent);
        for line in std::str::from_utf8(&out).unwrap().lines() {
            serde_json::from_str::<Value>(line).unwrap();
        }
    }
}

/// IPv6 addresses have the text of RFC 5952 §4: no zeros in front, small letters, `::` for the longest run of zeros, the first
/// of several, and not for a single one; §5: IPv4 addresses inside in their own form.
#[test]
fn ipv6_addresses_have_their_canonical_text() {
    for (written, expected) in [
        ("2001:0DB8:0000:0000:0001:0000:0000:0001", "2001:db8::1:0:0:1"),
        ("2001:db8:0:1:1:1:1:1", "2001:db8:0:1:1:1:1:1"),
        ("2001:0:0:1:0:0:0:1", "2001:0:0:1::1"),
        ("0:0:0:0:0:0:0:0", "::"),
        ("0:0:0:0:0:ffff:c000:0201", "::ffff:192.0.2.1"),
    ] {
        let own = Anomaly { src: (address(written), 1), ..anomaly(AnomalyKind::Truncated) };
        let mut line = Vec::new();
        Eve::default().anomaly(&own, context("eth0"), &mut line);
        let value: Value = serde_json::from_slice(&line).unwrap();
        assert_eq!(value["src_ip"], expected);
    }
}
