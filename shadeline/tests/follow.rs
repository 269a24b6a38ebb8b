//! `shadeline streams` and the stage `flow` over captures: against tshark, with several workers, and with outputs that fail.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::Value;
use sha1::{Digest, Sha1};
use testkit::{Scratch, repository};

/// Captures in which tshark and Shadeline differ, and why.
const DIFFERENT: &[(&str, &str)] = &[
    ("zeek/timestamp.pcap", "frames that are cut by the snap length"),
    ("bug-2576-04-ips/temp6.pcap", "PPPoE"),
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
    assert_eq!(streams(&["-r", &unfilled, "-k", "none"]).stderr, b"");
    // Standard output is for one thing: records, with the table on standard error, or rows.
    says(
        streams(&["-r", &capture, "--json", "--parquet", "-"]),
        2,
        "standard output gets the rows",
    );
    let records = streams(&["-r", &capture, "--parquet", "-"]);
    assert!(records.stdout.starts_with(b"PAR1") && records.stdout.ends_with(b"PAR1"));
    says(records, 0, " packets; ");
    let scratch = Scratch::new();
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
