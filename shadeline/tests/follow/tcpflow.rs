//! The bytes of streams against tcpflow's files.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;
use testkit::Scratch;
use testkit::pcap::{self, Record, write_pcap};

use super::{captures, ok, sha1, streams};

/// Captures in which tcpflow and Shadeline differ by design, and why.
const DIFFERENT: &[(&str, &str)] = &[
    ("tcp-5379/input.pcap", "data on SYN that nobody acknowledged"),
    ("tcp-rst-unacked-stream-", "data on RST, and behind a gap, which tcpflow fills with zeros"),
    (
        "reassembly.pcap",
        "acknowledged bytes that were not seen are a gap, which tcpflow fills with zeros",
    ),
];

/// The bytes that each end sent: addresses and ports from and to, number of bytes, SHA-1, sorted.
type Sent = Vec<(IpAddr, u16, IpAddr, u16, usize, String)>;

/// A capture of Ethernet frames without what is behind their IP packets, which tcpflow takes for payload: padding and checksums.
fn trimmed(path: &Path, scratch: &Scratch) -> PathBuf {
    // Of a pcap file: the link behind magic, version, time zone, accuracy and snap length.
    let head = std::fs::read(path).unwrap();
    let is_ethernet = match head.first_chunk::<24>() {
        Some([0x0a, 0x0d, ..]) => true,
        Some([0xd4 | 0x4d, .., link, 0, 0, 0]) => *link == 1,
        Some([0xa1, .., 0, 0, 0, link]) => *link == 1,
        _ => false,
    };
    if !is_ethernet {
        return path.to_owned();
    }
    let capture = scratch.join("trimmed.pcap");
    let records: Vec<_> = pcap::read(path).into_iter().map(without_trailer).collect();
    write_pcap(&capture, &records);
    capture
}

fn without_trailer(record: Record) -> Record {
    let d = packet::decode(&record.data, record.data.len());
    let end = usize::from(d.l3_offset) + d.ip_total_len as usize;
    let is_longer = d.is_ip() && end < record.data.len();
    let data = if is_longer { record.data[..end].to_vec() } else { record.data };
    Record {
        original_len: if is_longer { end as u32 } else { record.original_len },
        data,
        ..record
    }
}

/// `None`: it does not read packets of that link.
fn by_tcpflow(capture: &Path, folder: &Path) -> Option<Sent> {
    std::fs::create_dir(folder).unwrap();
    let mut command = Command::new("tcpflow");
    // As they are, a file for each end of a connection, however large its holes are.
    command.args(["-q", "-Z", "-m", "2147483647", "-T", "%A_%a_%B_%b_%c"]);
    let output = command.arg("-r").arg(capture).arg("-o").arg(folder).output().unwrap();
    if String::from_utf8_lossy(&output.stderr).contains("unknown datalink type") {
        return None;
    }
    ok(&output);
    let address = |text: &str| -> IpAddr {
        // IPv4 has three digits for each byte.
        let bytes: Vec<u8> = text.split('.').filter_map(|byte| byte.parse().ok()).collect();
        match <[u8; 4]>::try_from(bytes) {
            Ok(bytes) => bytes.into(),
            Err(_) => text.parse().unwrap(),
        }
    };
    let mut all = Sent::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        let [from, from_port, to, to_port, _] = name.split('_').collect::<Vec<_>>()[..] else {
            assert_eq!(name, "report.xml");
            continue;
        };
        let bytes = std::fs::read(&path).unwrap();
        if !bytes.is_empty() {
            let [from_port, to_port] = [from_port, to_port].map(|port| port.parse().unwrap());
            let ends = (address(from), from_port, address(to), to_port);
            all.push((ends.0, ends.1, ends.2, ends.3, bytes.len(), sha1(&bytes)));
        }
    }
    all.sort();
    Some(all)
}

/// By the files of `--bytes`.
fn by_shadeline(capture: &Path, folder: &Path) -> Sent {
    let [capture, folder] = [capture, folder].map(|path| path.display().to_string());
    let text = ok(&streams(&["-r", &capture, "--json", "-k", "none", "--bytes", &folder]));
    let mut all = Sent::new();
    for line in text.lines() {
        let row: Value = serde_json::from_str(line).unwrap();
        let end = |name: &str| {
            let address = row[format!("{name}_ip")].as_str().unwrap().parse().unwrap();
            (address, row[format!("{name}_port")].as_u64().unwrap() as u16)
        };
        for (from, to) in [("client", "server"), ("server", "client")] {
            let Some(file) = row[from]["file"].as_str() else { continue };
            let bytes = std::fs::read(file).unwrap();
            let (src, dst) = (end(from), end(to));
            all.push((src.0, src.1, dst.0, dst.1, bytes.len(), sha1(&bytes)));
        }
    }
    all.sort();
    all
}

#[test]
fn bytes_of_streams_are_those_of_tcpflow() {
    if testkit::require_tool("tcpflow").is_none() {
        return;
    }
    let Some(folder) = testdata::path("pcap-tcp") else { return };
    // By reason: captures that agree all the same. A reason that no capture needs is wrong.
    let mut needed: BTreeMap<&str, bool> =
        DIFFERENT.iter().map(|(name, _)| (*name, false)).collect();
    let (mut agreed, mut wrong) = (0, Vec::new());
    for path in captures(&folder) {
        let scratch = Scratch::new();
        let capture = trimmed(&path, &scratch);
        let Some(theirs) = by_tcpflow(&capture, &scratch.join("tcpflow")) else { continue };
        let own = by_shadeline(&capture, &scratch.join("own"));
        let name = path.to_string_lossy();
        let excuse = DIFFERENT.iter().find(|(part, _)| name.contains(part));
        match (own == theirs, excuse) {
            (true, _) => agreed += own.len(),
            (false, Some((part, _))) => *needed.get_mut(part).unwrap() = true,
            (false, None) => wrong.push(format!("{name}\n  own {own:?}\n  tcpflow {theirs:?}")),
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(agreed > 20, "{agreed}");
    assert!(needed.values().all(|is_needed| *is_needed), "{needed:?}");
}
