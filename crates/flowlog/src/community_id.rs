//! Community ID: a hash of a 5-tuple that Suricata, Zeek, Wireshark and others compute in the same way, so that their
//! records of one flow can be joined.
//!
//! Version 1 (Corelight, *Community ID Flow Hashing*, github.com/corelight/community-id-spec):
//!
//! ```text
//! "1:" base64(SHA-1(seed 2B · address 4B or 16B · address · protocol 1B · 0 1B · port 2B · port 2B))
//! ```
//!
//! All numbers are in network order, and the smaller of the two ends (address, then port) comes first, so both directions
//! have one hash. Protocols without ports leave the ports out. ICMP has its type and, as the other port, the type of the
//! answer; a type without answer has its code instead, and the ends keep their order.
//!
//! A function of its arguments. A package exists (`community-id`), but it brings more packages than this has lines.

use std::net::IpAddr;

use sha1::{Digest, Sha1};

use crate::protocol;

/// Length of a Community ID of version 1.
pub const LEN: usize = 2 + 28;

/// Bytes of which it is the hash, at most.
const INPUT_MAX: usize = 2 + 2 * 16 + 2 + 2 * 2;

/// The Community ID of a flow, ASCII. Ports are those of TCP, UDP and SCTP; `icmp` is type and code of a packet from
/// `src` to `dst`, for ICMP and ICMPv6.
pub fn v1(
    seed: u16,
    src: (IpAddr, u16),
    dst: (IpAddr, u16),
    protocol: u8,
    icmp: Option<(u8, u8)>,
) -> [u8; LEN] {
    let (ports, keeps_order) = ports(src.1, dst.1, protocol, icmp);
    let [src_port, dst_port] = ports.unwrap_or_default();
    let (mut first, mut second) = ((src.0, src_port), (dst.0, dst_port));
    if !keeps_order && second < first {
        (first, second) = (second, first);
    }
    let (mut input, mut len) = ([0; INPUT_MAX], 0);
    let mut put = |bytes: &[u8]| {
        input[len..len + bytes.len()].copy_from_slice(bytes);
        len += bytes.len();
    };
    put(&seed.to_be_bytes());
    for (address, _) in [first, second] {
        match address {
            IpAddr::V4(address) => put(&address.octets()),
            IpAddr::V6(address) => put(&address.octets()),
        }
    }
    put(&[protocol, 0]);
    if ports.is_some() {
        put(&first.1.to_be_bytes());
        put(&second.1.to_be_bytes());
    }
    let mut text = [0; LEN];
    text[..2].copy_from_slice(b"1:");
    base64(&Sha1::digest(&input[..len]).into(), &mut text[2..]);
    text
}

/// What stands for the ports, and whether the ends keep their order.
fn ports(src: u16, dst: u16, protocol: u8, icmp: Option<(u8, u8)>) -> (Option<[u16; 2]>, bool) {
    match (protocol, icmp) {
        (protocol::TCP | protocol::UDP | protocol::SCTP, _) => (Some([src, dst]), false),
        (protocol::ICMP | protocol::ICMPV6, Some((kind, code))) => {
            let answer = answer(protocol, kind);
            (Some([kind.into(), answer.unwrap_or(code).into()]), answer.is_none())
        }
        _ => (None, false),
    }
}

/// The type of ICMP or ICMPv6 that answers a type.
fn answer(protocol: u8, kind: u8) -> Option<u8> {
    let pairs = match protocol {
        protocol::ICMP => ICMP_ANSWERS,
        protocol::ICMPV6 => ICMPV6_ANSWERS,
        _ => return None,
    };
    pairs.iter().find_map(|&(a, b)| match kind {
        kind if kind == a => Some(b),
        kind if kind == b => Some(a),
        _ => None,
    })
}

/// Type and code that answer those of the first packet of a flow; the code of all answers is 0.
pub(crate) fn icmp_answer(protocol: u8, icmp: Option<(u8, u8)>) -> Option<(u8, u8)> {
    let (kind, _) = icmp?;
    answer(protocol, kind).map(|answer| (answer, 0))
}

/// Types that answer one another: echo, router advertisement and solicitation, timestamp, information, address mask.
const ICMP_ANSWERS: &[(u8, u8)] = &[(8, 0), (9, 10), (13, 14), (15, 16), (17, 18)];
/// Echo, listener query and report, router and neighbour discovery, node information, home agent discovery.
const ICMPV6_ANSWERS: &[(u8, u8)] =
    &[(128, 129), (130, 131), (133, 134), (135, 136), (139, 140), (144, 145)];

/// RFC 4648 §4, of the 20 bytes of SHA-1: 27 letters and one `=`.
fn base64(bytes: &[u8; 20], text: &mut [u8]) {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    for (group, letters) in bytes.chunks(3).zip(text.chunks_mut(4)) {
        let byte = |at: usize| u32::from(group.get(at).copied().unwrap_or(0));
        let bits = byte(0) << 16 | byte(1) << 8 | byte(2);
        for (at, letter) in letters.iter_mut().enumerate() {
            *letter = match at > group.len() {
                true => b'=',
                false => LETTERS[(bits >> (18 - 6 * at)) as usize & 63],
            };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(seed: u16, src: (&str, u16), dst: (&str, u16), protocol: u8) -> String {
        let (from, to) = (src.0.parse().unwrap(), dst.0.parse().unwrap());
        let is_icmp = matches!(protocol, protocol::ICMP | protocol::ICMPV6);
        let icmp = is_icmp.then_some((src.1 as u8, dst.1 as u8));
        let text = v1(seed, (from, src.1), (to, dst.1), protocol, icmp);
        String::from_utf8(text.to_vec()).unwrap()
    }

    /// Facts of the reference implementation (github.com/corelight/pycommunityid, tests): with the seeds 0 and 1. ICMP
    /// has its type and code in the place of the ports.
    #[test]
    fn reference_vectors() {
        let cases: &[(&str, u16, &str, u16, u8, &str, &str)] = &[
            (
                "192.168.0.89",
                8,
                "192.168.0.1",
                0,
                1,
                "X0snYXpgwiv9TZtqg64sgzUn6Dk=",
                "03g6IloqVBdcZlPyX8r0hgoE7kA=",
            ),
            (
                "192.168.0.1",
                0,
                "192.168.0.89",
                8,
                1,
                "X0snYXpgwiv9TZtqg64sgzUn6Dk=",
                "03g6IloqVBdcZlPyX8r0hgoE7kA=",
            ),
            (
                "192.168.0.89",
                20,
                "192.168.0.1",
                0,
                1,
                "3o2RFccXzUgjl7zDpqmY7yJi8rI=",
                "lCXHHxavE1Vq3oX9NH5ladQg02o=",
            ),
            (
                "192.168.0.89",
                20,
                "192.168.0.1",
                1,
                1,
                "tz/fHIDUHs19NkixVVoOZywde+I=",
                "Ie3wmFyxiEyikbsbcO03d2nh+PM=",
            ),
            (
                "192.168.0.1",
                0,
                "192.168.0.89",
                20,
                1,
                "X0snYXpgwiv9TZtqg64sgzUn6Dk=",
                "03g6IloqVBdcZlPyX8r0hgoE7kA=",
            ),
            (
                "fe80::200:86ff:fe05:80da",
                135,
                "fe80::260:97ff:fe07:69ea",
                0,
                58,
                "dGHyGvjMfljg6Bppwm3bg0LO8TY=",
                "kHa1FhMYIT6Ym2Vm2AOtoOARDzY=",
            ),
            (
                "fe80::260:97ff:fe07:69ea",
                136,
                "fe80::200:86ff:fe05:80da",
                0,
                58,
                "dGHyGvjMfljg6Bppwm3bg0LO8TY=",
                "kHa1FhMYIT6Ym2Vm2AOtoOARDzY=",
            ),
            (
                "3ffe:507:0:1:260:97ff:fe07:69ea",
                3,
                "3ffe:507:0:1:200:86ff:fe05:80da",
                0,
                58,
                "NdobDX8PQNJbAyfkWxhtL2Pqp5w=",
                "OlOWx9psIbBFi7lOCw/4MhlKR9M=",
            ),
            (
                "3ffe:507:0:1:200:86ff:fe05:80da",
                3,
                "3ffe:507:0:1:260:97ff:fe07:69ea",
                0,
                58,
                "/OGBt9BN1ofenrmSPWYicpij2Vc=",
                "Ij4ZxnC87/MXzhOjvH2vHu7LRmE=",
            ),
            (
                "192.168.170.8",
                7,
                "192.168.170.56",
                80,
                132,
                "jQgCxbku+pNGw8WPbEc/TS/uTpQ=",
                "Y1/0jQg6e+I3ZwZZ9LP65DNbTXU=",
            ),
            (
                "192.168.170.56",
                80,
                "192.168.170.8",
                7,
                132,
                "jQgCxbku+pNGw8WPbEc/TS/uTpQ=",
                "Y1/0jQg6e+I3ZwZZ9LP65DNbTXU=",
            ),
            (
                "128.232.110.120",
                34855,
                "66.35.250.204",
                80,
                6,
                "LQU9qZlK+B5F3KDmev6m5PMibrg=",
                "3V71V58M3Ksw/yuFALMcW0LAHvc=",
            ),
            (
                "66.35.250.204",
                80,
                "128.232.110.120",
                34855,
                6,
                "LQU9qZlK+B5F3KDmev6m5PMibrg=",
                "3V71V58M3Ksw/yuFALMcW0LAHvc=",
            ),
            (
                "10.0.0.1",
                10,
                "10.0.0.2",
                11569,
                6,
                "SXBGMX1lBOwhhoDrZynfROxnhnM=",
                "HmBRGR+fUyXF4t8WEtal7Y0gEAo=",
            ),
            (
                "192.168.1.52",
                54585,
                "8.8.8.8",
                53,
                17,
                "d/FP5EW3wiY1vCndhwleRRKHowQ=",
                "Q9We8WO3piVF8yEQBNJF4uiSVrI=",
            ),
            (
                "10.1.24.4",
                0,
                "10.1.12.1",
                0,
                46,
                "/nQI4Rh/TtY3mf0R2gJFBkVlgS4=",
                "BK3BVW3U2eemuwVQVN3zd/GULno=",
            ),
            (
                "10.1.12.1",
                0,
                "10.1.24.4",
                0,
                46,
                "/nQI4Rh/TtY3mf0R2gJFBkVlgS4=",
                "BK3BVW3U2eemuwVQVN3zd/GULno=",
            ),
        ];
        for &(src, sport, dst, dport, protocol, seed_0, seed_1) in cases {
            let of = |seed| id(seed, (src, sport), (dst, dport), protocol);
            assert_eq!(of(0), format!("1:{seed_0}"), "{src} {sport} {dst} {dport} {protocol}");
            assert_eq!(of(1), format!("1:{seed_1}"), "{src} {sport} {dst} {dport} {protocol}");
        }
    }
}
