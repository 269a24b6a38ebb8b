//! Fragments in a capture that others made (`tests/data/SOURCES.md`). What is expected was read off tshark 4.0.17; the UDP
//! checksum of the sender covers all bytes.

use super::*;
use packet::checksum::{finish, partial_sum, pseudo_header_v6};
use std::path::Path;

/// The frames of a little-endian pcap with times in microseconds, each with its time in nanoseconds.
fn read_pcap(name: &str) -> Vec<(u64, Vec<u8>)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/data");
    let bytes = std::fs::read(folder.join(name)).unwrap();
    assert_eq!(bytes[..4], [0xd4, 0xc3, 0xb2, 0xa1]);
    let mut rest = &bytes[24..];
    let mut frames = Vec::new();
    while let Some((header, behind)) = rest.split_first_chunk::<16>() {
        let (fields, _) = header.as_chunks::<4>();
        let [seconds, micros, len, original_len] =
            [0, 1, 2, 3].map(|field| u32::from_le_bytes(fields[field]));
        assert_eq!(len, original_len);
        let (frame, behind) = behind.split_at(len as usize);
        frames.push((u64::from(seconds) * SECOND + u64::from(micros) * 1000, frame.to_vec()));
        rest = behind;
    }
    frames
}

#[test]
fn fragmented_dns_over_ipv6() {
    let frames = read_pcap("ipv6-fragmented-dns.pcap");
    let mut defragmenter = defragmenter(Config::default());
    let (mut events, mut others) = (Vec::new(), Vec::new());
    for (token, (now_ns, frame)) in (1..).zip(&frames) {
        let decoded = packet::decode(frame, frame.len());
        let mut out = |output: Output<'_, u32>| events.push(event(output));
        others.extend(defragmenter.push_frame(&decoded, frame, token, *now_ns, &mut out));
    }
    assert_eq!(others, [1, 2, 3, 5]);
    // Frame 4 is the last fragment of another datagram, whose other fragments are not in the capture.
    defragmenter.clear(&mut |output| events.push(event(output)));
    assert_eq!(
        (events[1].result.clone(), &events[1].tokens[..]),
        (Err(Reason::Shutdown), &[4][..])
    );
    assert_eq!((events[1].key.identification, events[1].has_first), (1, false));
    assert_eq!((events[0].key.identification, &events[0].tokens[..]), (2, &[6, 7, 8][..]));
    let frame = events[0].result.as_ref().unwrap();
    let decoded = packet::decode(frame, frame.len());
    assert_eq!(decoded.anomaly, packet::Anomaly::None);
    assert_eq!(decoded.ports().map(|ports| ports.0), Some(53));
    let view = Ipv6View::new_checked(&frame[14..]).unwrap();
    let (protocol, udp) = view.upper_layer().unwrap();
    assert_eq!((protocol, udp.len()), (IpProtocol::UDP, 3238));
    let pseudo = pseudo_header_v6(view.src(), view.dst(), protocol, udp.len() as u32);
    assert_eq!(finish(pseudo + partial_sum(udp)), 0);
}
