//! Labels against those of nDPI, on its own captures: also of protocols for which there is no signature.

use std::collections::BTreeMap;

use crate::common::flows;

/// nDPI's names and ours; it writes `protocol.service`.
const NAMES: &[(&str, &str)] = &[
    ("HTTP", "http"),
    ("WebSocket", "http"),
    ("TLS", "tls"),
    ("QUIC", "quic"),
    ("SSH", "ssh"),
    ("SMTP", "smtp"),
    ("FTP_CONTROL", "ftp"),
    ("DNS", "dns"),
    ("MDNS", "mdns"),
    ("IMAP", "imap"),
    ("POP3", "pop3"),
    ("IRC", "irc"),
    ("SIP", "sip"),
    ("RTSP", "rtsp"),
    ("RDP", "rdp"),
    ("SMBv1", "smb"),
    ("SMBv23", "smb"),
    ("BitTorrent", "bittorrent"),
    ("NTP", "ntp"),
    ("DHCP", "dhcp"),
    ("SNMP", "snmp"),
    ("MQTT", "mqtt"),
    ("PostgreSQL", "pgsql"),
    ("MySQL", "mysql"),
    ("WireGuard", "wireguard"),
    ("OpenVPN", "openvpn"),
    ("Modbus", "modbus"),
    ("LDAP", "ldap"),
    ("Telnet", "telnet"),
    ("TFTP", "tftp"),
    ("SSDP", "ssdp"),
];

#[test]
fn flows_of_another_judge() {
    let Some(folder) = testdata::path("restricted/pcap-l7-ndpi") else { return };
    let reasons: BTreeMap<&str, &str> = include_str!("labels-ndpi.tsv")
        .lines()
        .filter(|line| !line.starts_with('#'))
        .filter_map(|line| line.split_once('\t'))
        .collect();
    let (mut known, mut agree) = (0, 0);
    let (mut unexplained, mut seen) = (Vec::new(), Vec::new());
    let mut captures: Vec<_> = std::fs::read_dir(folder.join("pcap"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    captures.sort();
    for capture in captures {
        let name = capture.file_name().unwrap().to_string_lossy().into_owned();
        let report = std::fs::read(folder.join(format!("result/{name}.out"))).unwrap();
        let all = flows(&capture);
        for line in String::from_utf8_lossy(&report).lines() {
            let Some((_, row)) = line.strip_prefix('\t').and_then(|line| line.split_once('\t'))
            else {
                continue;
            };
            let words: Vec<&str> = row.split(' ').collect();
            let [transport @ ("TCP" | "UDP"), source, _, destination, "[proto:", label, ..] =
                words[..]
            else {
                continue;
            };
            let label = label.split(']').next().unwrap().rsplit('/').next().unwrap();
            let text = |(address, port): (std::net::IpAddr, u16)| match address {
                std::net::IpAddr::V4(address) => format!("{address}:{port}"),
                std::net::IpAddr::V6(address) => format!("[{address}]:{port}"),
            };
            let number = if transport == "TCP" { 6 } else { 17 };
            let flow = all.iter().find(|flow| {
                let (a, b) = (text(flow.key.opener), text(flow.key.responder));
                flow.key.protocol == number
                    && ((a == source && b == destination) || (a == destination && b == source))
            });
            let Some(flow) = flow else { continue };
            let answer = flow.answer();
            let found = answer.label().map_or("unknown", |label| label.protocol.name());
            let of = |part: &str| {
                NAMES.iter().find(|(theirs, _)| *theirs == part).map(|(_, ours)| *ours)
            };
            let expected = label.split('.').find_map(of);
            known += usize::from(expected.is_some());
            agree += usize::from(expected == Some(found));
            if expected.unwrap_or("unknown") == found {
                continue;
            }
            let confidence = answer
                .label()
                .map_or("-".to_owned(), |l| format!("{:?}", l.confidence).to_lowercase());
            let row = format!("{name} {label} {found} {confidence}");
            match reasons.contains_key(row.as_str()) {
                true => seen.push(row),
                false => unexplained.push(format!("{row}\t{:?}", flow.key)),
            }
        }
    }
    println!("{agree} of {known} flows agree");
    assert!(unexplained.is_empty(), "{}", unexplained.join("\n"));
    let stale: Vec<_> = reasons.keys().filter(|row| !seen.iter().any(|s| s == *row)).collect();
    assert!(stale.is_empty(), "no longer so: {stale:?}");
    assert!(known >= 60 && agree * 100 >= known * 95);
}
