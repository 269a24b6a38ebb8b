//! Finishes the checksum of a frame whose sender left it to its network card.
//!
//! A host that sends over veth with `tx-checksumming` on hands over TCP and UDP packets whose
//! checksum field holds the pseudo-header's sum only. The kernel marks them; no receiver could
//! tell, so the field is filled in before the frame goes anywhere.

const ETHERTYPE_IPV4: u16 = 0x0800;
const ETHERTYPE_IPV6: u16 = 0x86dd;
const PROTOCOL_TCP: u8 = 6;
const PROTOCOL_UDP: u8 = 17;

/// Writes the TCP or UDP checksum of an Ethernet frame with or without VLAN tags. Frames that it
/// does not know how to finish (fragments, other protocols, truncated ones) stay as they are.
pub(super) fn finish(frame: &mut [u8]) {
    if let Some((start, end, protocol, pseudo)) = transport(frame) {
        let at = start + if protocol == PROTOCOL_TCP { 16 } else { 6 };
        if at + 2 > end {
            return;
        }
        frame[at..at + 2].fill(0);
        let mut sum = pseudo;
        for pair in frame[start..end].chunks(2) {
            sum += u64::from(u16::from_be_bytes([pair[0], *pair.get(1).unwrap_or(&0)]));
        }
        while sum > 0xffff {
            sum = (sum & 0xffff) + (sum >> 16);
        }
        let checksum = match !(sum as u16) {
            0 if protocol == PROTOCOL_UDP => 0xffff, // zero would mean "none"
            checksum => checksum,
        };
        frame[at..at + 2].copy_from_slice(&checksum.to_be_bytes());
    }
}

/// Where TCP or UDP begins and ends, which of them it is, and the sum of the pseudo-header.
fn transport(frame: &[u8]) -> Option<(usize, usize, u8, u64)> {
    let u16_at = |at: usize| Some(u16::from_be_bytes(*frame.get(at..)?.first_chunk()?));
    let sum = |bytes: &[u8]| -> u64 {
        bytes.chunks_exact(2).map(|w| u64::from(u16::from_be_bytes([w[0], w[1]]))).sum()
    };
    let mut at = 12;
    while matches!(u16_at(at)?, 0x8100 | 0x88a8) {
        at += 4;
    }
    let ethertype = u16_at(at)?;
    let ip = at + 2;
    let (start, end, protocol, addresses) = match ethertype {
        ETHERTYPE_IPV4 => {
            let header = usize::from(frame.get(ip)? & 15) * 4;
            let fragment = u16_at(ip + 6)? & 0x3fff;
            if header < 20 || fragment != 0 {
                return None;
            }
            let end = ip + usize::from(u16_at(ip + 2)?);
            (ip + header, end, *frame.get(ip + 9)?, frame.get(ip + 12..ip + 20)?)
        }
        ETHERTYPE_IPV6 => {
            let end = ip + 40 + usize::from(u16_at(ip + 4)?);
            let (mut start, mut next) = (ip + 40, *frame.get(ip + 6)?);
            // Hop-by-hop and destination options are all that a sender puts before TCP and UDP.
            while matches!(next, 0 | 60) {
                next = *frame.get(start)?;
                start += 8 + 8 * usize::from(*frame.get(start + 1)?);
            }
            (start, end, next, frame.get(ip + 8..ip + 40)?)
        }
        _ => return None,
    };
    if !matches!(protocol, PROTOCOL_TCP | PROTOCOL_UDP) || start > end || end > frame.len() {
        return None;
    }
    let pseudo = sum(addresses) + u64::from(protocol) + (end - start) as u64;
    Some((start, end, protocol, pseudo))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use testkit::frames::Frame;

    proptest! {
        #[test]
        fn the_checksum_is_the_one_that_etherparse_computes(
            payload in proptest::collection::vec(any::<u8>(), 0..100),
            low in any::<[u8; 2]>(),
            tags in 0usize..3,
            options in any::<bool>(),
            ipv6 in any::<bool>(),
            tcp in any::<bool>(),
            tail in 0usize..3,
        ) {
            let mut frame = (0..tags).fold(Frame::new(), |frame, tag| frame.vlan(tag as u16 + 1));
            frame = match (ipv6, options) {
                (false, false) => frame.ipv4(&format!("10.0.0.{}", low[0]), "198.51.100.7"),
                (false, true) => frame.ipv4("10.0.0.1", "198.51.100.7").ipv4_options(&[1; 8]),
                (true, false) => frame.ipv6(&format!("fd00::{:x}", low[1]), "2001:db8::1"),
                (true, true) => frame.ipv6("fd00::1", "2001:db8::1").extension(60, &[0; 7]),
            };
            frame = if tcp { frame.tcp(1, 2, 3, &payload) } else { frame.udp(4, 5, &payload) };
            let good = frame.bytes();
            let l4 = good.len() - payload.len() - if tcp { 20 } else { 8 };
            let field = l4 + if tcp { 16 } else { 6 };
            let mut broken = good.clone();
            broken[field..field + 2].copy_from_slice(&low);
            broken.resize(good.len() + tail, 0xee); // padding is not part of the packet
            finish(&mut broken);
            prop_assert_eq!(&broken[..good.len()], &good[..]);
        }

        #[test]
        fn other_bytes_stay_and_nothing_panics(
            mut frame in proptest::collection::vec(any::<u8>(), 0..120),
            kind in 0usize..4,
            protocol in prop::sample::select(vec![6u8, 17, 1, 0]),
        ) {
            if let (Some(field), Some(value)) =
                (frame.get_mut(12..15), [[8, 0, 0x45], [0x86, 0xdd, 0x60], [0x81, 0, 0]].get(kind))
            {
                field.copy_from_slice(value);
            }
            for at in [20, 23] {
                frame.get_mut(at).into_iter().for_each(|byte| *byte = protocol);
            }
            let before = frame.clone();
            finish(&mut frame);
            let changed = before.iter().zip(&frame).filter(|(a, b)| a != b).count();
            prop_assert!(changed <= 2 && frame.len() == before.len());
        }
    }

    /// One packet in 65,536: the sum over a payload that makes up for all the rest.
    #[test]
    fn a_checksum_of_zero_is_zero_in_tcp_and_all_ones_in_udp() {
        for (tcp, expected) in [(true, [0, 0]), (false, [0xff, 0xff])] {
            let frame = |payload: [u8; 2]| {
                let frame = Frame::new().ipv4("10.0.0.1", "198.51.100.7");
                let frame =
                    if tcp { frame.tcp(1, 2, 3, &payload) } else { frame.udp(4, 5, &payload) };
                frame.bytes()
            };
            let zero = frame([0, 0]);
            let field = zero.len() - 2 - if tcp { 4 } else { 2 };
            let mut made = frame([zero[field], zero[field + 1]]);
            finish(&mut made);
            assert_eq!(made[field..field + 2], expected, "TCP: {tcp}");
        }
    }

    #[test]
    fn a_fragment_stays_as_it_is() {
        let fragment = Frame::new().ipv4("10.0.0.1", "10.0.0.2").fragment(0, true);
        let mut frame = fragment.raw(17, &[7; 40]).bytes();
        let before = frame.clone();
        finish(&mut frame);
        assert_eq!(frame, before);
    }
}
