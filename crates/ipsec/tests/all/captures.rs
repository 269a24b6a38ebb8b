//! Packets of others: what tcpdump's captures are, and the sample packet of RFC 3602.

use ipsec::inbound::{Found, Rest, found, transport_back};

/// Frames of a classic capture, little-endian.
fn frames(file: &[u8]) -> Vec<&[u8]> {
    let (mut frames, mut rest) = (Vec::new(), &file[24..]);
    while let Some((record, behind)) = rest.split_first_chunk::<16>() {
        let len = u32::from_le_bytes(record[8..12].try_into().unwrap()) as usize;
        let (frame, behind) = behind.split_at(len);
        frames.push(frame);
        rest = behind;
    }
    frames
}

/// tcpdump prints index, number and length of each packet; these are where it says.
#[test]
fn esp_is_found_where_tcpdump_finds_it() {
    for (name, lines) in
        [("02-sunrise-sunset-esp.pcap", "esp0.out"), ("espudp1.pcap", "espudp1.out")]
    {
        let Some(file) = testdata::bytes(&format!("crypto/tcpdump-esp/{name}")) else { return };
        let Some(lines) = testdata::bytes(&format!("crypto/tcpdump-esp/{lines}")) else { return };
        let lines = String::from_utf8(lines).unwrap();
        let frames = frames(&file);
        assert_eq!(frames.len(), lines.lines().count());
        for (frame, line) in frames.iter().zip(lines.lines()) {
            let d = packet::decode(frame, frame.len());
            let Found::Esp { at, end, spi, port } = found(frame, &d) else { panic!("{line}") };
            assert_eq!(port, line.contains("UDP-encap").then_some(4500));
            let number = u32::from_be_bytes(frame[at + 4..at + 8].try_into().unwrap());
            let text = format!("ESP(spi={spi:#010x},seq={number:#x}), length {}", end - at);
            assert!(line.contains(&text), "{line}\n{text}");
        }
    }
}

/// RFC 3602 §4, case 5: an ICMP message in transport mode. Its header comes back as it was, byte for byte.
#[test]
fn the_header_of_the_sample_packet_comes_back() {
    let Some(file) = testdata::bytes("crypto/rfc3602-case5-esp-transport.txt") else { return };
    let file = String::from_utf8(file).unwrap();
    let field = |name: &str| {
        let line = file.lines().find(|line| line.split(" =").next().map(str::trim) == Some(name));
        let digits = line.and_then(|line| line.split("= ").nth(1)).unwrap().trim();
        crypto::Secret::from_hex(digits).unwrap().expose().to_vec()
    };
    let [header, spi, number, iv, data, pad, pad_len, next] =
        ["new_ip", "spi", "seq", "iv", "orig_data", "pad", "pad_len", "next_hdr"].map(field);
    // As it is when the cipher is done, of which the crate `crypto` has the test.
    let mut ip = [header, spi, number, iv, data.clone(), pad, pad_len, next.clone()].concat();
    let d = packet::decode::decode_ip(&ip, ip.len());
    assert_eq!(d.anomaly, packet::Anomaly::None);
    let esp = Found::Esp { at: 20, spi: 0x4321, end: ip.len(), port: None };
    assert_eq!(found(&ip, &d), esp);
    let payload = 24..24 + data.len();
    let rest = transport_back(&mut ip, &d, (20, payload), next[0], false).unwrap();
    assert_eq!(rest, Rest { kept: 20, gone: 24, len: data.len() });
    assert_eq!(ip[..20], field("orig_ip"));
    assert_eq!(ip[44..44 + data.len()], data);
}
