//! Published vectors, a plain reference, and the corner cases of incremental updates.

use packet::checksum::*;
use packet::{IpProtocol, ipv4};
use proptest::prelude::*;
use std::net::{Ipv4Addr, Ipv6Addr};

/// RFC 1071 §4.1, word by word.
fn reference(bytes: &[u8]) -> u16 {
    let mut sum = 0u32;
    for pair in bytes.chunks(2) {
        sum += u32::from(pair[0]) << 8 | u32::from(*pair.get(1).unwrap_or(&0));
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

#[test]
fn published_vectors() {
    // RFC 1071 §3: the sum of these bytes is ddf2.
    let bytes = [0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7];
    assert_eq!(partial_sum(&bytes), 0xddf2);
    assert_eq!(internet_checksum(&bytes), !0xddf2);
    // RFC 1624 §4: HC dd2f, a field goes from 5555 to 3285, and HC' is 0000 (equation 2 of
    // RFC 1141 gave ffff).
    assert_eq!(update_u16(0xdd2f, 0x5555, 0x3285), 0x0000);
}

#[test]
fn edges() {
    assert_eq!(internet_checksum(&[]), 0xffff);
    assert_eq!(internet_checksum(&[0x12]), !0x1200);
    assert_eq!(internet_checksum(&[0xff; 64]), 0);
    for len in 0..200 {
        let bytes: Vec<u8> = (0..len).map(|n| (n * 37 + 200) as u8).collect();
        assert_eq!(internet_checksum(&bytes), reference(&bytes), "length {len}");
    }
    assert_eq!(internet_checksum(&vec![0xff; 1 << 20]), 0);
}

/// Every checksum, with changes that cross both zeros.
#[test]
fn incremental_update_for_every_checksum() {
    let changes = [0u16, 1, 0x00ff, 0x0100, 0x5555, 0x7fff, 0x8000, 0xfeff, 0xff00, 0xfffe, 0xffff];
    for other in 1..=u16::MAX {
        for old in changes {
            for new in changes {
                let words = |field: u16| {
                    let ([a, b], [c, d]) = (other.to_be_bytes(), field.to_be_bytes());
                    [a, b, c, d]
                };
                let updated = update_u16(reference(&words(old)), old, new);
                assert_eq!(updated, reference(&words(new)), "{other:04x} {old:04x} {new:04x}");
            }
        }
    }
}

/// Every TTL and checksum: the decremented header sums up, as the full sum would have it.
#[test]
fn ttl_decrement_for_every_checksum() {
    for id in 0..=u16::MAX {
        let mut header = [0x45, 0, 0, 20, 0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2];
        [header[4], header[5]] = id.to_be_bytes();
        header[8] = (id >> 3) as u8 | 1;
        ipv4::fill_checksum(&mut header);
        let ttl = header[8];
        let mut expected = header;
        expected[8] -= 1;
        ipv4::fill_checksum(&mut expected);
        ipv4_decrement_ttl(&mut header);
        assert_eq!(header, expected, "identification {id}, TTL {ttl}");
    }
    let mut dead = [0x45, 0, 0, 20, 0, 0, 0, 0, 0, 17, 1, 2, 10, 0, 0, 1, 10, 0, 0, 2];
    let before = dead;
    ipv4_decrement_ttl(&mut dead);
    assert_eq!(dead, before);
    ipv4_decrement_ttl(&mut [0x45; 11]);
}

proptest! {
    #[test]
    fn agrees_with_the_naive_sum(bytes in prop::collection::vec(any::<u8>(), 0..3000)) {
        prop_assert_eq!(internet_checksum(&bytes), reference(&bytes));
        prop_assert_eq!(finish(partial_sum(&bytes)), reference(&bytes));
        let (even, rest) = bytes.split_at((bytes.len() / 2) & !1);
        prop_assert_eq!(finish(partial_sum(even) + partial_sum(rest)), reference(&bytes));
    }

    #[test]
    fn updates_of_32_bits(
        mut bytes in prop::collection::vec(any::<u8>(), 20..60),
        at in 0usize..8,
        new: u32,
    ) {
        let at = at * 2;
        let before = internet_checksum(&bytes);
        let old = u32::from_be_bytes(bytes[at..at + 4].try_into().unwrap());
        bytes[at..at + 4].copy_from_slice(&new.to_be_bytes());
        prop_assume!(bytes.iter().any(|byte| *byte != 0));
        prop_assert_eq!(update_u32(before, old, new), internet_checksum(&bytes));
    }

    /// etherparse sums pseudo header and datagram in its own way.
    #[test]
    fn pseudo_headers(
        src: [u8; 4], dst: [u8; 4], src6: [u8; 16], dst6: [u8; 16],
        payload in prop::collection::vec(any::<u8>(), 0..200),
    ) {
        let udp = etherparse::UdpHeader::without_ipv4_checksum(1, 2, payload.len()).unwrap();
        let mut datagram = udp.to_bytes().to_vec();
        datagram.extend_from_slice(&payload);
        let v4 = udp.calc_checksum_ipv4_raw(src, dst, &payload).unwrap();
        let len = datagram.len();
        let (s, d) = (Ipv4Addr::from(src), Ipv4Addr::from(dst));
        let pseudo = pseudo_header_v4(s, d, IpProtocol::UDP, len as u16);
        prop_assert_eq!(finish(pseudo + partial_sum(&datagram)), if v4 == 0xffff { 0 } else { v4 });
        let v6 = udp.calc_checksum_ipv6_raw(src6, dst6, &payload).unwrap();
        let (s, d) = (Ipv6Addr::from(src6), Ipv6Addr::from(dst6));
        let pseudo = pseudo_header_v6(s, d, IpProtocol::UDP, len as u32);
        prop_assert_eq!(finish(pseudo + partial_sum(&datagram)), if v6 == 0xffff { 0 } else { v6 });
        // The same of addresses as words.
        let words = |address: Ipv6Addr| [(address.to_bits() >> 64) as u64, address.to_bits() as u64];
        let pseudo = pseudo_header(words(s), words(d), IpProtocol::UDP, len as u32);
        prop_assert_eq!(finish(pseudo + partial_sum(&datagram)), if v6 == 0xffff { 0 } else { v6 });
        let words = |address: [u8; 4]| [0, u32::from_be_bytes(address).into()];
        let pseudo = pseudo_header(words(src), words(dst), IpProtocol::UDP, len as u32);
        prop_assert_eq!(finish(pseudo + partial_sum(&datagram)), if v4 == 0xffff { 0 } else { v4 });
    }
}
