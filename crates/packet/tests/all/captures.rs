//! Every frame of the shared captures: no panic, and addresses, protocols, ports and tags as
//! etherparse finds them.

use etherparse::{LaxNetSlice, LaxSlicedPacket, TransportSlice};
use packet::{Anomaly, Decoded, IpProtocol, Kind, decode, flow};
use pcap_file::DataLink;
use pcap_file::pcap::PcapReader;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufReader, Read};
use std::net::IpAddr;
use std::path::{Path, PathBuf};

/// What one side says of a frame, as far as both can say it.
#[derive(Debug, PartialEq, Eq, Default)]
struct Summary {
    vlan_ids: Vec<u16>,
    addresses: Option<(IpAddr, IpAddr)>,
    protocol: Option<u8>,
    ports: Option<(u16, u16)>,
    icmp: Option<(u8, u8)>,
}

#[derive(Debug, Default)]
struct Counts {
    files: usize,
    frames: usize,
    ipv4: usize,
    ipv6: usize,
    arp: usize,
    tagged: usize,
    fragments: usize,
    tcp: usize,
    udp: usize,
    icmp: usize,
    longest: usize,
    anomalies: BTreeMap<Anomaly, usize>,
    other_link_types: BTreeMap<String, usize>,
}

#[test]
fn agree_with_the_oracle() {
    let root = testdata::repository();
    let mut counts = Counts::default();
    for folder in ["tests/data", "../shared/data/pcap-mixed", "../shared/data/pcap-tcp"] {
        let mut files = Vec::new();
        collect(&root.join(folder), &mut files);
        files.sort();
        for file in files {
            read(&file, &mut counts);
        }
    }
    println!("{counts:#?}");
    // Frames by tshark's count: 1,122 + 82,582 mixed, 1,504 of Zeek's TCP traces, and Suricata's.
    let is_all = root.join("../shared/data/pcap-mixed").is_dir();
    assert!(counts.frames > if is_all { 1_122 + 82_582 + 1_504 } else { 1_500 });
    let families = counts.ipv4 + counts.ipv6 + counts.arp;
    assert!(families > counts.frames * 9 / 10);
    for found in [counts.ipv6, counts.tagged, counts.fragments, counts.tcp, counts.udp, counts.icmp]
    {
        assert!(found > 0);
    }
}

fn collect(folder: &Path, files: &mut Vec<PathBuf>) {
    let Ok(entries) = std::fs::read_dir(folder) else { return };
    for entry in entries.flatten() {
        let path = entry.path();
        let name = path.to_string_lossy();
        if path.is_dir() {
            collect(&path, files);
        } else if [".pcap", ".trace", ".pcap.gz", ".trace.gz"].iter().any(|end| name.ends_with(end))
        {
            files.push(path);
        }
    }
}

fn read(path: &Path, counts: &mut Counts) {
    let file = BufReader::new(File::open(path).unwrap());
    let stream: Box<dyn Read> = if path.extension().is_some_and(|end| end == "gz") {
        Box::new(flate2::read::GzDecoder::new(file))
    } else {
        Box::new(file)
    };
    let mut reader = match PcapReader::new(stream) {
        Ok(reader) => reader,
        Err(error) => panic!("{}: {error}", path.display()),
    };
    counts.files += 1;
    let data_link = reader.header().datalink;
    if data_link != DataLink::ETHERNET {
        *counts.other_link_types.entry(format!("{data_link:?}")).or_default() += 1;
        return;
    }
    let mut number = 0;
    while let Some(raw) = reader.next_raw_packet() {
        let Ok(raw) = raw else { break };
        number += 1;
        let at = format!("{} frame {number}", path.display());
        check(&raw.data, raw.orig_len as usize, &at, counts);
    }
    assert!(number > 0, "{}", path.display());
}

fn check(frame: &[u8], frame_len: usize, at: &str, counts: &mut Counts) {
    let d = decode(frame, frame_len);
    counts.frames += 1;
    counts.ipv4 += usize::from(d.kind == Kind::Ipv4);
    counts.ipv6 += usize::from(d.kind == Kind::Ipv6);
    counts.arp += usize::from(d.kind == Kind::Arp);
    counts.tagged += usize::from(d.vlan_count > 0);
    counts.fragments += usize::from(d.has(Decoded::FRAGMENT));
    counts.longest = counts.longest.max(frame_len);
    *counts.anomalies.entry(d.anomaly).or_default() += 1;
    // What must hold whoever is right.
    if d.is_ip() && d.anomaly.leaves_lengths_right() {
        assert!(d.l3_end() <= frame_len, "{at}");
        assert_eq!(flow::flow_hash(&d), flow::flow_hash_of_frame(frame), "{at}");
        assert_eq!(flow::host_hash(&d), flow::host_hash_of_frame(frame), "{at}");
        counts.tcp += usize::from(d.protocol == IpProtocol::TCP);
        counts.udp += usize::from(d.protocol == IpProtocol::UDP);
        counts.icmp += usize::from(d.icmp_type_code().is_some());
    }
    for len in 0..frame.len().min(120) {
        let cut = decode(&frame[..len], len);
        assert!(
            cut.anomaly != Anomaly::None || cut.kind == Kind::Arp || cut.l3_end() <= len,
            "{at}"
        );
    }
    // The oracle knows neither checksums nor martians; on all other anomalies it is lax.
    let comparable = d.anomaly.leaves_lengths_right() || d.anomaly == Anomaly::NonIp;
    if !comparable {
        return;
    }
    let (ours, theirs) = (ours(&d, frame), theirs(frame));
    assert_eq!(ours, theirs, "{at}: {d:?}");
}

fn ours(d: &Decoded, frame: &[u8]) -> Summary {
    let has_udp_or_tcp = d.protocol == IpProtocol::TCP || d.protocol == IpProtocol::UDP;
    let mut summary = Summary {
        vlan_ids: d.vlan_id().into_iter().chain(d.inner_vlan_id()).collect(),
        addresses: d.src_ip().zip(d.dst_ip()),
        protocol: d.is_ip().then_some(d.protocol.0),
        ports: d.ports().filter(|_| has_udp_or_tcp),
        icmp: d.icmp_type_code(),
    };
    // etherparse reads no ports of fragments, and none of headers that are cut off.
    let l4 = frame.len().saturating_sub(usize::from(d.l4_offset));
    let l4_min = if d.protocol == IpProtocol::TCP { 20 } else { 8 };
    if d.has(Decoded::FRAGMENT) || d.has(Decoded::L4_TRUNCATED) || l4 < l4_min {
        (summary.ports, summary.icmp) = (None, None);
    }
    summary
}

fn theirs(frame: &[u8]) -> Summary {
    let Ok(sliced) = LaxSlicedPacket::from_ethernet(frame) else { return Summary::default() };
    let mut summary = Summary {
        vlan_ids: sliced.vlan_ids().iter().map(|id| id.value()).collect(),
        ..Summary::default()
    };
    match &sliced.net {
        Some(LaxNetSlice::Ipv4(ip)) => {
            let header = ip.header();
            summary.addresses =
                Some((header.source_addr().into(), header.destination_addr().into()));
            summary.protocol = Some(header.protocol().0);
        }
        Some(LaxNetSlice::Ipv6(ip)) => {
            let header = ip.header();
            summary.addresses =
                Some((header.source_addr().into(), header.destination_addr().into()));
            summary.protocol = Some(ip.payload().ip_number.0);
        }
        _ => {}
    }
    match &sliced.transport {
        Some(TransportSlice::Tcp(tcp)) => {
            summary.ports = Some((tcp.source_port(), tcp.destination_port()));
        }
        Some(TransportSlice::Udp(udp)) => {
            summary.ports = Some((udp.source_port(), udp.destination_port()));
        }
        Some(TransportSlice::Icmpv4(icmp)) => {
            summary.icmp = Some((icmp.type_u8(), icmp.code_u8()));
        }
        Some(TransportSlice::Icmpv6(icmp)) => {
            summary.icmp = Some((icmp.type_u8(), icmp.code_u8()));
        }
        _ => {}
    }
    summary
}
