//! `shadeline streams` and the stage `flow` over captures: against tshark and tcpflow, with several workers, and with outputs that fail.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use proptest::prelude::*;
use serde_json::{Value, json};
use sha1::{Digest, Sha1};
use testkit::frames::Frame;
use testkit::pcap::{Record, write_pcap};
use testkit::{Scratch, repository};

#[path = "follow/tcpflow.rs"]
mod tcpflow;

/// Captures in which tshark and Shadeline differ, and why.
const DIFFERENT: &[(&str, &str)] = &[
    ("zeek/timestamp.pcap", "frames that are cut by the snap length"),
    ("bug-2576-04-ips/temp6.pcap", "a tunnel"),
    ("bug-4571-02/ipv6.pcap", "data on SYN that nobody acknowledged"),
    ("bug-4571-03/ipv6_over_ipv6.pcap", "a tunnel"),
    ("bug-4571-04/ipv6_over_ipv4.pcap", "a tunnel"),
    ("bug-4571-06/ipv4_over_ipv6.pcap", "a tunnel"),
    ("bug-5633-gre-02/gre-sample.pcap", "a tunnel"),
    ("bug-6402-01/input.pcap", "a tunnel"),
    ("bug-6875-01/fuzz.pcap", "a damaged capture, which tshark refuses, too"),
    ("detect-bytejump-01/input.pcap", "data on SYN that nobody acknowledged"),
    ("detect-ipopts/input.pcap", "IP options of wrong lengths"),
    ("drop-protocol-change/input.pcap", "tshark follows a fragment without its beginning"),
    ("mac-eve-packet/test.pcap", "tshark follows TCP in ICMP errors"),
    ("tcp-5379/input.pcap", "data on SYN that nobody acknowledged"),
    ("payload-synack.pcap", "data on SYN that nobody acknowledged"),
    ("payload-syn.pcap", "data on SYN that nobody acknowledged"),
    (
        "reassembly.pcap",
        "acknowledged bytes that were not seen are a gap at once; here some come later",
    ),
    ("tcp-rst-unacked-stream-", "data on RST, and behind a gap"),
    ("tcp-rst-vlan.pcap", "the same capture"),
    ("util-action-04/input.pcap", "data on two SYNs that nobody acknowledged"),
    ("util-action-08/input.pcap", "data on two SYNs that nobody acknowledged"),
    ("util-action-12/input.pcap", "data on two SYNs that nobody acknowledged"),
    ("util-action-13/input.pcap", "data on two SYNs that nobody acknowledged"),
    ("ftp/bigtransfer.pcap", "bytes more than a window beyond the last ones of a cut capture"),
    ("ftp-bigtransfer.pcap", "the same capture"),
    ("ldap/missing_krbtgt_ldap_request.pcapng", "a total length of 0, left to the network card"),
    ("modbus/fuzz-1011.pcap", "headers that a fuzzer changed"),
    ("modbus/fuzz-72.pcap", "headers that a fuzzer changed"),
    ("zeek/mixed-vlan-mpls.pcap", "MPLS"),
    ("data/mixed-vlan-mpls.pcap", "MPLS"),
    ("data/gre-ssh.pcap", "a tunnel"),
    ("data/geneve-gre.pcap", "a tunnel"),
];

/// Those in which they agree with `--tunnels all`, and how many connections are in tunnels.
const TUNNELS: &[(&str, usize)] = &[
    ("tests/data/gre-ssh.pcap", 1),
    ("tests/data/geneve-gre.pcap", 1),
    ("tests/data/vxlan-pings.pcap", 0),
    ("ids/suricata-verify/bug-2576-04-ips/temp6.pcap", 1),
];

fn streams(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_shadeline")).arg("streams").args(arguments).output().unwrap()
}

/// What is printed, and everything is well.
fn ok(output: &Output) -> String {
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}: {errors}", output.status);
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn captures(folder: &Path) -> Vec<PathBuf> {
    let mut all = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        let Ok(entries) = std::fs::read_dir(&folder) else { continue };
        for entry in entries {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            if path.is_dir() {
                folders.push(path);
            } else if [".pcap", ".pcapng", ".trace"].iter().any(|end| name.ends_with(end)) {
                all.push(path);
            }
        }
    }
    all.sort();
    all
}

/// In which captures the streams were those of tshark: SHA-1 of the capture, of its streams, and its name, a line each. A run
/// of tshark for each capture takes minutes; so where the streams are still the same, it is not asked again.
/// `UPDATE_STREAMS=1` asks it about all captures, and writes the file anew.
const AGREED: &str = "tests/oracle/streams.txt";

fn sha1(bytes: &[u8]) -> String {
    Sha1::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A number for the streams of a capture: the ends of each, and the bytes that they sent.
fn digest(json_lines: &str) -> String {
    let stream = |line: &str| {
        let row: Value = serde_json::from_str(line).unwrap();
        let mut ends = ["client", "server"].map(|end| {
            let (ip, port) = (&row[format!("{end}_ip")], &row[format!("{end}_port")]);
            format!("{ip} {port} {} {}", row[end]["bytes"], row[end]["sha1"])
        });
        ends.sort();
        ends.join(" ")
    };
    let mut all: Vec<_> = json_lines.lines().map(stream).collect();
    all.sort();
    sha1(all.join("\n").as_bytes())
}

/// What tshark finds otherwise, if anything.
fn judged_by_tshark(path: &Path, json_lines: &[u8]) -> Option<String> {
    let oracle = repository().join("tests/oracle/streams.py");
    let mut command = Command::new("python3");
    command.arg(&oracle).arg(path).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut judge = command.spawn().unwrap();
    judge.stdin.take().unwrap().write_all(json_lines).unwrap();
    let said = judge.wait_with_output().unwrap();
    (!said.status.success()).then(|| String::from_utf8_lossy(&said.stdout).into_owned())
}

/// Every capture of a folder that tshark reads: the same connections with the same bytes. Lines for [`AGREED`].
fn agrees_with_tshark(folder: &Path, agreed: &str) -> Vec<String> {
    let (mut lines, mut wrong) = (Vec::new(), Vec::new());
    for path in captures(folder) {
        let text = path.to_string_lossy();
        if DIFFERENT.iter().any(|(name, _)| text.contains(name)) {
            continue;
        }
        let own = streams(&["-r", &text, "--json", "-k", "none"]);
        let errors = String::from_utf8_lossy(&own.stderr).into_owned();
        // Of links that are not Ethernet, and of captures that are cut.
        if !own.status.success() {
            assert!(errors.starts_with("error: ") && errors.lines().count() <= 2, "{errors}");
            continue;
        }
        let streams = digest(&String::from_utf8_lossy(&own.stdout));
        let name = path.strip_prefix(folder.parent().unwrap()).unwrap().display();
        let line = format!("{} {streams} {name}", sha1(&std::fs::read(&path).unwrap()));
        if !agreed.lines().any(|known| known.starts_with(&line[..81])) {
            wrong.extend(judged_by_tshark(&path, &own.stdout));
        }
        lines.push(line);
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    lines
}

/// tshark itself is asked each time.
#[test]
fn streams_of_small_captures_are_those_of_tshark() {
    if testkit::require_tool("tshark").is_some() {
        assert!(!agrees_with_tshark(&repository().join("tests/data"), "").is_empty());
    }
}

#[test]
fn streams_of_all_captures_are_those_of_tshark() {
    if testkit::require_tool("tshark").is_none() {
        return;
    }
    let path = repository().join(AGREED);
    let is_new = std::env::var_os("UPDATE_STREAMS").is_some();
    let agreed = if is_new { String::new() } else { std::fs::read_to_string(&path).unwrap() };
    let folders = ["pcap-tcp", "pcap-mixed", "pcap-l7", "ids"].map(testdata::path);
    let lines: Vec<_> =
        folders.iter().flatten().flat_map(|own| agrees_with_tshark(own, &agreed)).collect();
    if is_new {
        std::fs::write(&path, lines.join("\n") + "\n").unwrap();
    }
}

/// tshark looks into all tunnels.
#[test]
fn streams_in_tunnels_are_those_of_tshark() {
    if testkit::require_tool("tshark").is_none() {
        return;
    }
    for (name, connections) in TUNNELS {
        let path = match name.strip_prefix("ids/") {
            Some(rest) => testdata::path("ids").map(|folder| folder.join(rest)),
            None => Some(repository().join(name)),
        };
        let Some(path) = path else { continue };
        let text = path.to_string_lossy();
        let own = streams(&["-r", &text, "--tunnels", "all", "--json", "-k", "none"]);
        let lines = ok(&own);
        assert_eq!(judged_by_tshark(&path, &own.stdout), None);
        assert_eq!(
            lines.lines().filter(|line| line.contains("\"tunnels\":[")).count(),
            *connections
        );
    }
    // Pings: their addresses and the VNI, by packet.
    let path = repository().join("tests/data/vxlan-pings.pcap");
    let mut command = Command::new("tshark");
    command.arg("-r").arg(&path).args(["-Y", "vxlan && icmp.type == 8", "-T", "fields"]);
    command.args(["-e", "vxlan.vni", "-e", "ip.src", "-e", "ip.dst"]);
    let judged = ok(&command.output().unwrap());
    let (events, report) = monitored(&path, "tunnels = [\"vxlan\"]\n");
    let pings: Vec<_> = events.iter().filter(|event| event["proto"] == "ICMP").collect();
    let [ping] = pings[..] else { panic!("{events:?}") };
    let inner = |field: &str| field.rsplit(',').next().unwrap_or_default().to_owned();
    for line in judged.lines() {
        let fields: Vec<_> = line.split('\t').map(inner).collect();
        assert_eq!(fields[0], ping["tunnels"][0]["id"].to_string());
        assert_eq!((&fields[1], &fields[2]), (&text(&ping["src_ip"]), &text(&ping["dest_ip"])));
    }
    let packets = ping["flow"]["pkts_toserver"].as_u64().unwrap() as usize;
    assert_eq!(
        (packets, ping["tunnels"][0]["type"].as_str()),
        (judged.lines().count(), Some("vxlan"))
    );
    assert_eq!(report["flow"]["tunnels"]["packets"], 8);
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

/// The events of a monitor over a capture, with these settings of `[flow]`, and its report.
fn monitored(capture: &Path, flow: &str) -> (Vec<Value>, Value) {
    let scratch = Scratch::new();
    let events = scratch.join("eve.json");
    let config = format!(
        "mode = \"monitor\"\n[port.tap]\ninterface = \"tap\"\n[flow]\nevents = \"{}\"\n{flow}",
        events.display()
    );
    let config = scratch.write("monitor.toml", &config);
    let mut command = Command::new(env!("CARGO_BIN_EXE_shadeline"));
    command.arg("run").arg(config).arg("-r").arg(capture).arg("--json");
    let report = serde_json::from_str(&ok(&command.output().unwrap())).unwrap();
    let text = std::fs::read_to_string(events).unwrap();
    (text.lines().map(|line| serde_json::from_str(line).unwrap()).collect(), report)
}

/// The IP packet of a frame in a tunnel of this number, between two hosts of the way; `back`: of the other direction.
fn in_tunnel(number: usize, inner: &[u8], back: bool, [a, b]: [u8; 2]) -> Vec<u8> {
    let outer = || Frame::new().ipv4(&format!("10.250.0.{a}"), &format!("10.250.1.{b}"));
    let (ethertype, packet) = (&inner[12..14], &inner[14..]);
    let is_v6 = packet[0] >> 4 == 6;
    let gre = |key: u8| {
        outer().raw(47, &[&[0x20, 0][..], ethertype, &[0, 0, 0, key], packet].concat()).bytes()
    };
    let vxlan = |vni: u8| {
        let header = [8, 0, 0, 0, 0, 0, vni, 0];
        outer().udp(u16::from(a) << 8 | 9, 4789, &[&header[..], inner].concat()).bytes()
    };
    match number {
        0 => inner.to_vec(),
        1 => gre(7),
        2 => gre(8),
        3 => vxlan(7),
        4 => vxlan(8),
        5 => {
            let header = [1, 0, 0x65, 0x58, 0, 0, 7, 0, 1, 1, 0x80, 0];
            outer().udp(5, 6081, &[&header[..], inner].concat()).bytes()
        }
        6 => {
            let len = (packet.len() as u16).to_be_bytes();
            let header = [0x30, 255, len[0], len[1], 0, 0, 1, u8::from(back)];
            outer().udp(2152, 2152, &[&header[..], packet].concat()).bytes()
        }
        7 => outer().raw(if is_v6 { 41 } else { 4 }, packet).bytes(),
        8 => in_tunnel(3, &gre(7), back, [b, a]),
        _ => in_tunnel(7, &in_tunnel(6, inner, back, [a, b]), back, [b, a]),
    }
}

/// What rows say of a tunnel with that number.
fn named(number: usize, first_is_back: bool) -> Value {
    let teid = 256 + u32::from(first_is_back);
    match number {
        0 => Value::Null,
        1 | 2 => json!([{"type": "gre", "id": number + 6}]),
        3 | 4 => json!([{"type": "vxlan", "id": number + 4}]),
        5 => json!([{"type": "geneve", "id": 7}]),
        6 => json!([{"type": "gtp-u", "id": teid}]),
        7 => json!([{"type": "ipip"}]),
        8 => json!([{"type": "vxlan", "id": 7}, {"type": "gre", "id": 7}]),
        _ => json!([{"type": "ipip"}, {"type": "gtp-u", "id": teid}]),
    }
}

/// A connection in a tunnel: its frames without that, in both directions.
#[derive(Clone, Debug)]
struct Wrapped {
    tunnel: usize,
    is_v6: bool,
    /// By frame: whether the server sent it, its bytes, and whether it comes in two fragments.
    sent: Vec<(bool, Vec<u8>, bool)>,
}

impl Wrapped {
    fn frames(&self) -> Vec<(bool, Vec<u8>)> {
        let mut next = [1_000_u32, 5_000];
        let mut frames = Vec::new();
        for (back, bytes, is_cut) in &self.sent {
            let ends = if self.is_v6 {
                ["2001:db8::1", "2001:db8::2"]
            } else {
                ["192.168.0.1", "192.168.0.2"]
            };
            let [from, to] = if *back { [1, 0] } else { [0, 1] };
            let ports = [40_000, 80];
            let base = match self.is_v6 {
                true => Frame::new().ipv6(ends[from], ends[to]),
                false => Frame::new().ipv4(ends[from], ends[to]),
            };
            let whole = base.clone().tcp(ports[from], ports[to], next[from], bytes).bytes();
            next[from] += bytes.len() as u32;
            if *is_cut && !self.is_v6 {
                let (first, second) = whole[34..].split_at(16);
                let base = base.identification(next[from] as u16);
                frames.push((*back, base.clone().raw(6, second).fragment(2, false).bytes()));
                frames.push((*back, base.raw(6, first).fragment(0, true).bytes()));
            } else {
                frames.push((*back, whole));
            }
        }
        frames
    }
}

fn wrapped(tunnel: usize) -> impl Strategy<Value = Wrapped> {
    let bytes = prop::collection::vec(any::<u8>(), 1..60);
    let sent = prop::collection::vec((any::<bool>(), bytes, prop::bool::weighted(0.2)), 1..12);
    (any::<bool>(), sent).prop_map(move |(is_v6, sent)| Wrapped { tunnel, is_v6, sent })
}

fn rows(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]

    /// The same addresses and ports in ten tunnels, and without one: each has the streams that it has by itself. The way
    /// outside changes from packet to packet, and any number of workers prints the same.
    #[test]
    fn streams_in_tunnels_are_those_without(
        all in (0..10).map(wrapped).collect::<Vec<_>>(),
        hosts in prop::collection::vec(any::<[u8; 2]>(), 1..40),
    ) {
        let scratch = Scratch::new();
        let mut packets = Vec::new();
        let mut expected = Vec::new();
        for own in &all {
            let plain: Vec<_> = own.frames().into_iter().enumerate().map(|(at, (back, frame))| {
                let time_ns = 1_000_000_000_000 + (at * 10 + own.tunnel) as u64 * 1_000_000;
                let way = hosts[(at * 10 + own.tunnel) % hosts.len()];
                let inside = in_tunnel(own.tunnel, &frame, back, way);
                packets.push(Record::new(time_ns, inside));
                Record::new(time_ns, frame)
            }).collect();
            let path = scratch.join("plain.pcap");
            write_pcap(&path, &plain);
            let text = ok(&streams(&["-r", path.to_str().unwrap(), "--json"]));
            let first_is_back = own.frames()[0].0;
            for mut row in rows(&text) {
                if own.tunnel != 0 {
                    row["tunnels"] = named(own.tunnel, first_is_back);
                }
                expected.push(row.to_string());
            }
        }
        prop_assert!(!expected.is_empty());
        packets.sort_by_key(|packet| packet.time_ns);
        let path = scratch.join("tunnels.pcap");
        write_pcap(&path, &packets);
        let asked = ["-r", path.to_str().unwrap(), "--tunnels", "all", "--json"];
        let one = ok(&streams(&asked));
        let mut found: Vec<_> = rows(&one).iter().map(Value::to_string).collect();
        found.sort();
        expected.sort();
        prop_assert_eq!(found, expected);
        for workers in ["2", "4"] {
            let more = ok(&streams(&[&asked[..], &["--workers", workers]].concat()));
            prop_assert_eq!(&more, &one);
        }
    }
}

/// What is not looked into is counted, and a flow of what is outside.
#[test]
fn tunnels_in_fragments_and_too_many_tunnels() {
    let scratch = Scratch::new();
    let inner = Frame::new().ipv4("192.168.0.1", "192.168.0.2").udp(7, 8, &[1; 40]).bytes();
    let around = |number| in_tunnel(number, &inner, false, [1, 2]);
    let whole = around(7);
    let outer = || Frame::new().ipv4("10.250.0.1", "10.250.1.2").identification(9);
    let (first, second) = whole[34..].split_at(24);
    let deep = in_tunnel(
        7,
        &in_tunnel(8, &in_tunnel(7, &around(1), false, [3, 4]), false, [5, 6]),
        false,
        [7, 8],
    );
    let frames = [
        outer().raw(4, first).fragment(0, true).bytes(),
        outer().raw(4, second).fragment(3, false).bytes(),
        deep,
        around(3),
    ];
    let records =
        frames.into_iter().zip(1..).map(|(frame, at)| Record::new(at * 1_000_000_000, frame));
    let path = scratch.join("in.pcap");
    write_pcap(&path, &records.collect::<Vec<_>>());
    let (events, report) = monitored(&path, "tunnels = [\"all\"]\n");
    let counts = &report["flow"]["tunnels"];
    assert_eq!(*counts, json!({"packets": 2, "too_deep": 1, "in_fragments": 1}));
    let (flows, anomalies): (Vec<_>, Vec<_>) =
        events.iter().partition(|event| event["event_type"] == "flow");
    let of = |event: &&Value| {
        (text(&event["proto"]), text(&event["src_ip"]), event["tunnels"].to_string())
    };
    let mut flows: Vec<_> = flows.iter().map(of).collect();
    flows.sort();
    let named = |event: &&Value| (text(&event["anomaly"]["event"]), text(&event["src_ip"]));
    let mut anomalies: Vec<_> = anomalies.iter().map(named).collect();
    anomalies.sort();
    let expected = [
        ("decoder.ip.tunnel_in_fragments", "10.250.0.1"),
        ("decoder.too_many_layers", "10.250.0.3"),
    ];
    assert_eq!(anomalies, expected.map(|(event, src)| (event.to_owned(), src.to_owned())));
    let three = "[{\"id\":7,\"type\":\"vxlan\"},{\"id\":7,\"type\":\"gre\"}]";
    let expected = [
        ("IPv4", "10.250.0.1", "null".to_owned()),
        ("IPv4", "10.250.0.3", format!("[{{\"type\":\"ipip\"}},{}", &three[1..])),
        ("UDP", "192.168.0.1", "[{\"id\":7,\"type\":\"vxlan\"}]".to_owned()),
    ];
    assert_eq!(flows, expected.map(|(proto, src, path)| (proto.to_owned(), src.to_owned(), path)));
    // Without the option a tunnel is a flow.
    let (events, report) = monitored(&path, "");
    assert!(events.iter().all(|event| event.get("tunnels").is_none()), "{events:?}");
    assert_eq!(report["flow"].get("tunnels"), None);
}

/// Any number of workers prints the same, line by line.
#[test]
fn workers_print_the_same() {
    let data = repository().join("tests/data");
    let capture = |name: &str| data.join(name).display().to_string();
    for name in ["var-services-std-ports.pcap", "reassembly.pcap", "smtp.pcap", "tcp-async.pcap"] {
        let path = capture(name);
        let one = ok(&streams(&["-r", &path, "--json"]));
        assert!(one.lines().count() > 0, "{name}");
        for workers in ["2", "4"] {
            let more = ok(&streams(&["-r", &path, "--json", "--workers", workers]));
            assert!(one == more, "{name}, {workers} workers");
        }
    }
}

/// Files have the bytes whose hashes are printed.
#[test]
fn bytes_are_in_files() {
    let scratch = Scratch::new();
    let folder = scratch.join("bytes");
    let capture = repository().join("tests/data/web.pcap").display().to_string();
    for _ in 0..2 {
        let text = ok(&streams(&[
            "-r",
            &capture,
            "--json",
            "-k",
            "none",
            "--bytes",
            &folder.display().to_string(),
        ]));
        let mut files = 0;
        for line in text.lines() {
            let row: Value = serde_json::from_str(line).unwrap();
            for end in ["client", "server"] {
                let own = &row[end];
                let Some(path) = own["file"].as_str() else {
                    assert_eq!(own["bytes"], 0);
                    continue;
                };
                let bytes = std::fs::read(path).unwrap();
                assert_eq!(bytes.len() as u64, own["bytes"].as_u64().unwrap());
                assert_eq!(own["sha1"], sha1(&bytes).as_str());
                files += 1;
            }
        }
        assert!(files > 1, "{text}");
        assert_eq!(
            std::fs::read_dir(&folder).unwrap().count(),
            files,
            "a second run replaces them"
        );
    }
}

/// With `by_vlan`, connections of other VLANs with the same ends and time have files of their own.
#[test]
fn bytes_of_vlans_are_in_files_of_their_own() {
    let scratch = Scratch::new();
    let base = || Frame::new().ipv4("192.168.0.1", "192.168.0.2");
    let frame = |vlans: &[u16], text: &[u8]| {
        let tagged = vlans.iter().fold(base(), |frame, id| frame.vlan(*id));
        Record::new(1_000_000_000, tagged.tcp(40_000, 80, 1000, text).bytes())
    };
    let frames =
        [frame(&[], b"none"), frame(&[5], b"five"), frame(&[6], b"six"), frame(&[5, 6], b"both")];
    let path = scratch.join("in.pcap");
    write_pcap(&path, &frames);
    let config =
        scratch.write("c.toml", "mode = \"monitor\"\n[port.tap]\n[flow]\nby_vlan = true\n");
    let folder = scratch.join("bytes");
    let arguments = [&path, Path::new("--bytes"), &folder, Path::new("--config"), &config];
    let arguments = arguments.map(|own: &Path| own.to_str().unwrap());
    let text = ok(&streams(&[&["--json", "-r"], &arguments[..]].concat()));
    assert_eq!(text.lines().count(), 4);
    let entries = std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path());
    let mut found: Vec<_> = entries
        .map(|path| {
            let name = path.file_name().unwrap().to_str().unwrap().to_owned();
            let (_, vlans) = name.split_once(".80").unwrap();
            (vlans.to_owned(), std::fs::read_to_string(&path).unwrap())
        })
        .collect();
    found.sort();
    let expected = [("", "none"), ("-vlan5", "five"), ("-vlan5.6", "both"), ("-vlan6", "six")];
    assert_eq!(found, expected.map(|(name, text)| (name.to_owned(), text.to_owned())));
}

/// Rows and hashes are printed also if the bytes cannot be written, as on a full disk.
#[test]
fn rows_do_not_need_files() {
    let scratch = Scratch::new();
    let folder = scratch.join("bytes");
    let capture = repository().join("tests/data/web.pcap").display().to_string();
    let arguments = ["-r", &capture, "--json", "-k", "none"];
    let plain = rows(&ok(&streams(&arguments)));
    let bytes = ["--bytes", folder.to_str().unwrap()];
    let whole = ok(&streams(&[&arguments[..], &bytes].concat()));
    // A folder is in the place of the first file.
    let whole = rows(&whole);
    let sides = whole.iter().flat_map(|row| [&row["client"], &row["server"]]);
    let file = sides.map(|own| &own["file"]).find_map(Value::as_str).unwrap();
    std::fs::remove_file(file).unwrap();
    std::fs::create_dir(file).unwrap();
    let output = streams(&[&arguments[..], &bytes].concat());
    assert_eq!(output.status.code(), Some(1));
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(errors.contains(file), "{errors}");
    let mut found = rows(&String::from_utf8_lossy(&output.stdout));
    for row in &mut found {
        for end in ["client", "server"] {
            if let Some(path) = row[end].as_object_mut().unwrap().remove("file") {
                let bytes = std::fs::read(text(&path)).unwrap();
                assert_eq!(
                    row[end]["sha1"],
                    sha1(&bytes).as_str(),
                    "a file that is named is whole"
                );
            }
        }
    }
    assert_eq!(found, plain);
    let table = streams(&[&["-r", &capture, "-k", "none"][..], &bytes].concat());
    assert!(String::from_utf8_lossy(&table.stdout).contains("connection"));
}

/// The last line, without the time.
fn summary(output: &Output) -> String {
    let text = String::from_utf8_lossy(&output.stdout);
    text.lines().last().and_then(|last| last.split(';').next()).unwrap_or_default().to_string()
}

#[test]
fn inputs_and_outputs_that_fail() {
    let capture = repository().join("tests/data/web.pcap").display().to_string();
    let says = |output: Output, status: i32, text: &str| {
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(status), "{errors}");
        assert!(errors.contains(text), "{errors}");
        assert!(!errors.contains("panicked"), "{errors}");
    };
    says(streams(&["-r", "/nonexistent.pcap"]), 1, "No such file");
    says(streams(&["-r", &capture, "--filter", "tcp prot 80"]), 2, "column");
    says(streams(&["-r", &capture, "--workers", "0"]), 2, "workers");
    says(streams(&[]), 2, "--read");
    says(streams(&["-r", &capture, "--duration", "5s"]), 2, "--duration");
    says(streams(&["-r", &capture, "--bytes", "/proc/none"]), 1, "/proc/none");
    says(streams(&["-r", &capture, "--bytes", &capture]), 1, "expected a folder, found a file");
    let capture = repository().join("tests/data/smtp.pcap").display().to_string();
    let mut command = Command::new(env!("CARGO_BIN_EXE_shadeline"));
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    command.args(["streams", "--json", "-r", &capture]).stdout(full);
    says(command.output().unwrap(), 1, "No space left");
    // A capture taken on the sender, which left its checksums to the card.
    let unfilled = repository().join("tests/data/reassembly.pcap").display().to_string();
    says(streams(&["-r", &unfilled]), 0, "warning: 10 packets have a wrong checksum and were not");
    // Without the first warning; some of its frames have no whole header.
    let forgiven = streams(&["-r", &unfilled, "-k", "none"]);
    assert!(!String::from_utf8_lossy(&forgiven.stderr).contains("checksum"));
    says(forgiven, 0, "warning: 5 packets are malformed or truncated by the capture's snap length");
    // A capture whose addresses were replaced, but not the checksums of its IPv4 headers.
    let scratch = Scratch::new();
    let changed: Vec<_> = testkit::pcap::read(Path::new(&capture))
        .into_iter()
        .map(|mut own| {
            own.data[25] ^= 1; // the last byte of the checksum
            own
        })
        .collect();
    write_pcap(&scratch.join("changed.pcap"), &changed);
    let found = scratch.join("changed.pcap").display().to_string();
    let warning = format!("warning: {} packets have a wrong checksum and were not", changed.len());
    let refused = streams(&["-r", &found]);
    assert!(!String::from_utf8_lossy(&refused.stderr).contains("malformed"));
    says(refused, 0, &warning);
    let forgiven = streams(&["-r", &found, "-k", "none"]);
    let all = streams(&["-r", &capture]);
    assert_eq!(summary(&forgiven), summary(&all));
    assert!(summary(&all).starts_with("6 connections in 125 packets"));
    says(forgiven, 0, "");
    // Frames that are cut within their headers, and more connections than there is room for.
    let cut: Vec<_> = testkit::pcap::read(Path::new(&capture))
        .into_iter()
        .map(|own| Record { data: own.data[..own.data.len().min(40)].to_vec(), ..own })
        .collect();
    let count = cut.len();
    write_pcap(&scratch.join("cut.pcap"), &cut);
    let cut = scratch.join("cut.pcap").display().to_string();
    says(
        streams(&["-r", &cut]),
        0,
        &format!(
            "warning: {count} packets are malformed or truncated by the capture's snap length"
        ),
    );
    let small =
        "mode = \"monitor\"\n[port.a]\ninterface = \"a\"\n[flow]\nflows = 16\nhalf_open = 16\n";
    let small = scratch.write("small.toml", small).display().to_string();
    let many = repository().join("tests/data").display().to_string();
    says(
        streams(&["-r", &many, "-k", "none", "--config", &small]),
        0,
        "packets are of flows for which the table had no room",
    );
    // A folder with captures that are none: the others are read, and the end says that something was wrong.
    let folder = Scratch::new();
    std::fs::copy(&capture, folder.join("b.pcap")).unwrap();
    folder.write("a.pcap", "");
    folder.write("c.pcap", "no capture at all, but bytes");
    let whole = folder.path().display().to_string();
    let output = streams(&["-r", &whole]);
    let rows = |output: &Output| {
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        text.rsplit_once(';').map(|(rows, _seconds)| rows.to_owned())
    };
    assert_eq!(rows(&output), rows(&streams(&["-r", &capture])));
    assert!(rows(&output).is_some_and(|rows| rows.contains("connections")));
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(errors.contains("a.pcap: ") && errors.contains("c.pcap: "), "{errors}");
    says(output, 1, "a.pcap: ");
    std::fs::remove_file(folder.join("b.pcap")).unwrap();
    says(streams(&["-r", &whole]), 1, "a.pcap: ");
    // Standard output is for one thing: records, with the table on standard error, or rows.
    says(
        streams(&["-r", &capture, "--json", "--parquet", "-"]),
        2,
        "standard output gets the rows",
    );
    let records = streams(&["-r", &capture, "--parquet", "-"]);
    assert!(records.stdout.starts_with(b"PAR1") && records.stdout.ends_with(b"PAR1"));
    says(records, 0, " packets; ");
    let both = scratch.write(
        "both.toml",
        "mode = \"monitor\"\n[port.a]\ninterface = \"a\"\n[flow]\nevents = \"-\"\nparquet = \"-\"\n",
    );
    says(streams(&["-r", &capture, "--config", both.to_str().unwrap()]), 2, "only one output");
    // Standard input, and a filter that leaves one connection.
    let all = ok(&streams(&["-r", &capture, "--json"]));
    let first: Value = serde_json::from_str(all.lines().next().unwrap()).unwrap();
    let filter = format!("tcp port {}", first["client_port"]);
    let mut command = Command::new(env!("CARGO_BIN_EXE_shadeline"));
    command.args(["streams", "--json", "-r", "-", "--filter", &filter]);
    let own = command.stdin(std::fs::File::open(&capture).unwrap()).output().unwrap();
    assert_eq!(ok(&own).lines().collect::<Vec<_>>(), [all.lines().next().unwrap()]);
}

/// Packets and bytes by sender and receiver, of TCP.
type Sent = BTreeMap<[String; 4], (u64, u64)>;

fn sent(events: &[Value]) -> Sent {
    let mut all = Sent::new();
    for event in events.iter().filter(|own| own["event_type"] == "flow" && own["proto"] == "TCP") {
        let [src, dst] = ["src", "dest"].map(|end| {
            [text(&event[format!("{end}_ip")]), event[format!("{end}_port")].to_string()]
        });
        for (way, [a, b]) in [("server", [&src, &dst]), ("client", [&dst, &src])] {
            let ends = [a[0].clone(), a[1].clone(), b[0].clone(), b[1].clone()];
            let count = |what: &str| event["flow"][format!("{what}_to{way}")].as_u64().unwrap();
            let own = all.entry(ends).or_default();
            *own = (own.0 + count("pkts"), own.1 + count("bytes"));
        }
    }
    all.retain(|_, own| own.0 > 0);
    all
}

fn sent_by_tshark(capture: &Path) -> Sent {
    let mut command = Command::new("tshark");
    command.arg("-r").arg(capture).args(["-Y", "tcp && !icmp", "-T", "fields"]);
    command.args(["-E", "separator=,"]);
    for field in ["ip.src", "tcp.srcport", "ip.dst", "tcp.dstport", "frame.len"] {
        command.args(["-e", field]);
    }
    let mut all = Sent::new();
    for line in ok(&command.output().unwrap()).lines() {
        let fields: Vec<String> = line.split(',').map(str::to_owned).collect();
        let [a, b, c, d, bytes] = fields.try_into().unwrap();
        let own = all.entry([a, b, c, d]).or_default();
        *own = (own.0 + 1, own.1 + bytes.parse::<u64>().unwrap());
    }
    all
}

/// Captures that were cut by a snap length have the flows of the whole ones, and the conversations that tshark finds; what was not
/// captured is a gap.
#[test]
fn a_cut_capture_has_the_flows_of_the_whole_one() {
    let scratch = Scratch::new();
    for name in ["smtp.pcap", "http-proxy.pcap", "http-putty-upload.pcap", "wikipedia.pcap"] {
        let whole = repository().join("tests/data").join(name);
        let records = testkit::pcap::read(&whole);
        let cut = scratch.join(name);
        let of = |len: usize| {
            records.iter().map(move |own| Record {
                data: own.data[..own.data.len().min(len)].to_vec(),
                ..own.clone()
            })
        };
        write_pcap(&cut, &of(96).collect::<Vec<_>>());
        let [(events, report), (events_of_cut, report_of_cut)] =
            [&whole, &cut].map(|capture| monitored(capture, ""));
        let expected = sent(&events);
        assert!(!expected.is_empty(), "{name}");
        assert_eq!(sent(&events_of_cut), expected, "{name}");
        if testkit::require_tool("tshark").is_some() {
            assert_eq!(sent_by_tshark(&cut), expected, "{name}");
        }
        // Headers of IPv4 and TCP are there.
        let long = records.iter().filter(|own| own.data.len() > 96).count();
        assert!(long > 0, "{name}");
        assert_eq!(report_of_cut["flow"]["cut"], long, "{name}");
        assert_eq!(report["flow"]["cut"], Value::Null, "{name}");
        assert_eq!(report_of_cut["flow"]["malformed"], report["flow"]["malformed"], "{name}");
        // The same connections, and the bytes that are there.
        let rows = |capture: &Path| {
            let own = streams(&["-r", capture.to_str().unwrap(), "--json"]);
            let rows = ok(&own);
            let rows: Vec<Value> =
                rows.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
            (rows, String::from_utf8_lossy(&own.stderr).into_owned())
        };
        let (expected, _) = rows(&whole);
        let (found, said) = rows(&cut);
        assert!(said.contains(&format!("warning: {long} packets are cut by")), "{said}");
        assert_eq!(found.len(), expected.len(), "{name}");
        let mut missing = 0;
        for (mut found, mut expected) in found.into_iter().zip(expected) {
            for end in ["client", "server"] {
                let number = |row: &Value, what: &str| row[end][what].as_u64().unwrap();
                let all = |row: &Value| number(row, "bytes") + number(row, "gap_bytes");
                assert_eq!(all(&found), all(&expected), "{name}: {found}");
                missing += number(&found, "gap_bytes");
                for what in ["bytes", "gaps", "gap_bytes", "sha1"] {
                    (found[end][what], expected[end][what]) = (Value::Null, Value::Null);
                }
            }
            assert_eq!(found, expected, "{name}");
        }
        let payload = |own: &Record| {
            let (ip, end) =
                (14, 14 + usize::from(u16::from_be_bytes([own.data[16], own.data[17]])));
            let tcp = ip + 4 * usize::from(own.data[ip] & 15);
            end.saturating_sub((tcp + 4 * usize::from(own.data[tcp + 12] >> 4)).max(96))
        };
        let is_tcp = |own: &&Record| own.data[12..14] == [8, 0] && own.data[23] == 6;
        let most: usize = records.iter().filter(is_tcp).map(payload).sum();
        assert!(missing > 0 && missing <= most as u64, "{name}: {missing} of {most}");
        // Frames that were sent so short are wrong, as ever.
        let short: Vec<_> =
            of(96).map(|own| Record { original_len: own.data.len() as u32, ..own }).collect();
        write_pcap(&cut, &short);
        let (_, report) = monitored(&cut, "");
        assert_eq!(report["flow"]["cut"], Value::Null, "{name}");
        assert!(report["flow"]["malformed"].as_u64().unwrap() >= long as u64, "{name}");
    }
}

/// Events over captures: one line a flow, the same with four workers, and flows that end by their time-outs in order.
#[test]
fn events_are_in_order() {
    let scratch = Scratch::new();
    let capture = repository().join("tests/data/var-services-std-ports.pcap");
    let run = |workers: usize| {
        let events = scratch.join(&format!("eve{workers}.json"));
        let config = format!(
            "mode = \"monitor\"\n[system]\nworkers = {workers}\n[port.tap]\ninterface = \"tap\"\n\
             [flow]\nudp = \"1s\"\nudp_stream = \"1s\"\n\
             tcp_time_wait = \"2s\"\ntcp_close = \"2s\"\nevents = \"{}\"\n",
            events.display()
        );
        let config = scratch.write(&format!("{workers}.toml"), &config);
        let mut command = Command::new(env!("CARGO_BIN_EXE_shadeline"));
        command.arg("run").arg(config).arg("-r").arg(&capture).arg("--json");
        let report: Value = serde_json::from_str(&ok(&command.output().unwrap())).unwrap();
        let text = std::fs::read_to_string(events).unwrap();
        (report, text)
    };
    let (report, text) = run(1);
    assert_eq!(run(4).1, text);
    let (mut times, mut reasons) = (Vec::new(), BTreeMap::new());
    for line in text.lines() {
        let event: Value = serde_json::from_str(line).unwrap();
        assert_eq!(event["in_iface"], "tap");
        times.push(event["timestamp"].as_str().unwrap().to_owned());
        *reasons.entry(event["flow"]["reason"].as_str().unwrap().to_owned()).or_insert(0) += 1;
    }
    assert_eq!(times.len() as u64, report["flow"]["started"].as_u64().unwrap());
    assert!(reasons["timeout"] > 0 && reasons["shutdown"] > 0, "{reasons:?}");
    // Those that the end of the run ended are the last ones, by their own ends.
    let by_time = times.len() - reasons["shutdown"];
    assert!(times[..by_time].is_sorted(), "{times:?}");
}

/// Events of packets without a flow that came at the same time, between different hosts, are in one order for any number of workers.
#[test]
fn events_of_one_time_are_in_one_order() {
    let scratch = Scratch::new();
    let records: Vec<_> = (0..60u16)
        .map(|number| {
            let (src, dst) =
                (format!("10.0.0.{}", number % 7 + 1), format!("10.0.9.{}", number % 5 + 1));
            let mut frame = Frame::new().ipv4(&src, &dst).udp(1000 + number, 53, b"x").bytes();
            frame[24] ^= 1; // the checksum of IPv4
            Record::new(1_000_000_000, frame)
        })
        .collect();
    let capture = scratch.join("same.pcap");
    write_pcap(&capture, &records);
    let run = |workers: usize| {
        let config = format!(
            "mode = \"monitor\"\n[system]\nworkers = {workers}\n[port.tap]\n[flow]\nevents = \"-\"\n"
        );
        let config = scratch.write(&format!("{workers}.toml"), &config);
        let mut command = Command::new(env!("CARGO_BIN_EXE_shadeline"));
        ok(&command.arg("run").arg(config).arg("-r").arg(&capture).output().unwrap())
    };
    let one = run(1);
    assert_eq!(one.lines().count(), records.len());
    (2..5).for_each(|workers| assert_eq!(run(workers), one, "{workers} workers"));
}
