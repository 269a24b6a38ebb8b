//! Which frames are the router's: one rule, whether a capture is read with `-r` or by a port of a live run.

mod common;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

use common::STARTED;
use serde_json::Value;
use testkit::frames::Frame;
use testkit::process::Process;
use testkit::{Scratch, wait_until};

const PORT_MAC: [u8; 6] = [2, 0, 0, 0, 1, 1];
const OTHER_MAC: [u8; 6] = [2, 0, 0, 0, 9, 9];
const HOST_MAC: [u8; 6] = [2, 0, 0, 0, 1, 2];

/// To the port's address, to another station, and both with the tag of the subinterface.
fn frames() -> Vec<Vec<u8>> {
    let to =
        |mac| Frame::new().macs(HOST_MAC, mac).ipv4("10.0.1.2", "10.0.2.2").udp(1, 2, b"payload");
    let (own, other) = (to(PORT_MAC), to(OTHER_MAC));
    vec![own.bytes(), other.bytes(), own.clone().vlan(7).bytes(), other.clone().vlan(7).bytes()]
}

fn capture(path: &Path) {
    let mut bytes = Vec::new();
    for word in [0xa1b2_c3d4u32, 0x0004_0002, 0, 0, 65_535, 1] {
        bytes.extend(word.to_le_bytes());
    }
    for (n, frame) in frames().into_iter().enumerate() {
        for word in [n as u32, 0, frame.len() as u32, frame.len() as u32] {
            bytes.extend(word.to_le_bytes());
        }
        bytes.extend(frame);
    }
    std::fs::write(path, bytes).expect("a capture");
}

/// Forwarded packets, and dropped ones by reason.
type Fates = (u64, BTreeMap<String, u64>);

fn fates(report: &str) -> Fates {
    let report: Value = serde_json::from_str(report).unwrap_or_else(|e| panic!("{e}: {report}"));
    let drops = report["drops"].as_array().expect("drops").iter();
    let drops = drops.map(|row| {
        (
            row["reason"].as_str().expect("a reason").to_owned(),
            row["packets"].as_u64().expect("a number"),
        )
    });
    (report["tx_packets"].as_u64().expect("a number"), drops.collect())
}

fn program() -> Command {
    Command::new(env!("CARGO_BIN_EXE_shadeline"))
}

/// With `-r`: by the same configuration.
fn offline(scratch: &Scratch, config: &Path) -> Fates {
    let mut command = program();
    command.args(["run", "--json"]).arg(config).arg("-r").arg(scratch.join("in.pcap"));
    let output = command.arg("-w").arg(scratch.join("out")).output().expect("the program starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    fates(&String::from_utf8_lossy(&output.stdout))
}

/// In a live run whose port reads the capture.
fn live(scratch: &Scratch, config: &Path) -> Fates {
    let mut command = program();
    command.args(["run", "--json"]).arg(config);
    let mut process = Process::spawn(command);
    process.wait_for("running: ", STARTED);
    let ctl = |words: &[&str]| {
        let mut command = program();
        command.args(["ctl", "--json", "--socket"]).arg(scratch.join("ctl.sock")).args(words);
        let output = command.stderr(Stdio::inherit()).output().expect("the program starts");
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    let mut shown = String::new();
    // All of them have been received, forwarded or dropped.
    let seen = wait_until(STARTED, || {
        shown = ctl(&["show", "interfaces"]);
        let rows: Value = serde_json::from_str(&shown).unwrap_or_default();
        let rows = rows.as_array().or_else(|| rows["rows"].as_array()).cloned().unwrap_or_default();
        let lan = rows.iter().find(|row| row["name"] == "lan");
        lan.is_some_and(|row| row["rx_packets"].as_u64() == Some(frames().len() as u64))
    });
    assert!(seen, "{shown}");
    ctl(&["stop"]);
    let ended = wait_until(STARTED, || !process.is_running());
    let output = process.output();
    assert!(ended, "{output}");
    let from = output.find("\n{\n").map_or(0, |at| at + 1);
    fates(&output[from..])
}

/// Runs both ways with these keys of the port.
fn both(keys: &str) -> Fates {
    let scratch = Scratch::new();
    capture(&scratch.join("in.pcap"));
    let mut text = format!(
        "[system]\nworkers = 1\nsocket = \"{}\"\n[router]\nkernel = false\n",
        scratch.join("ctl.sock").display()
    );
    let (input, output) = (scratch.join("in.pcap"), scratch.join("live.pcapng"));
    let _ = write!(
        text,
        "[port.lan]\nbackend = \"pcap\"\nread = \"{}\"\nmac = \"02:00:00:00:01:01\"\naddresses = [\"10.0.1.1/24\"]\n{keys}\n\
         [port.\"lan.7\"]\nparent = \"lan\"\nvlan = 7\naddresses = [\"10.0.7.1/24\"]\n\
         [port.wan]\nbackend = \"pcap\"\nwrite = \"{}\"\nmac = \"02:00:00:00:02:01\"\naddresses = [\"10.0.2.1/24\"]\n\
         [[neighbour]]\nport = \"wan\"\naddress = \"10.0.2.2\"\nmac = \"02:00:00:00:02:02\"\n",
        input.display(),
        output.display()
    );
    let config = scratch.write("config.toml", &text);
    let [by_option, by_port] = [offline(&scratch, &config), live(&scratch, &config)];
    assert_eq!(by_option, by_port, "{keys}");
    by_option
}

#[test]
fn every_unicast_frame_of_a_capture_is_the_routers() {
    assert_eq!(both(""), (4, BTreeMap::new()));
    assert_eq!(both("promiscuous = true"), (4, BTreeMap::new()));
}

#[test]
fn frames_to_other_stations_are_dropped_where_the_port_is_not_promiscuous() {
    assert_eq!(both("promiscuous = false"), (2, BTreeMap::from([("not_for_us".to_owned(), 2)])));
}
