//! Packets from one family to the other: datagrams in pieces, ICMP errors.

use nat::nat64;
use nat::tuple::Tuple;
use packet::Decoded;
use packet::checksum::{finish, internet_checksum, partial_sum};
use proptest::prelude::*;

use crate::properties::{LINK, frame, pseudo, tuple};

/// As the stage does it with a packet in one piece.
pub(crate) fn to_v6(d: &Decoded, ip: &mut [u8], to: &Tuple) -> Option<nat64::Head> {
    let l4 = usize::from(d.l4_offset.saturating_sub(d.l3_offset));
    let l4 = ip.get(l4..).unwrap_or_default();
    let sum = nat64::datagram_sum(d, l4, std::iter::empty());
    nat64::to_v6(d, ip, to, sum)
}

fn udp(of: Tuple) -> Tuple {
    Tuple { protocol: 17, message: nat::tuple::Message::NONE, ..of }
}

/// An IP packet of an ICMP error from `src` to `dst` with this message, whose checksum is right.
fn error(of: &Tuple, message: &[u8]) -> Vec<u8> {
    let mut ip = if of.family == 4 {
        let mut ip = vec![0x45, 0];
        ip.extend(((message.len() + 20) as u16).to_be_bytes());
        ip.extend([0, 7, 0, 0, 64, of.protocol, 0, 0]);
        ip.extend((of.src.0[1] as u32).to_be_bytes());
        ip.extend((of.dst.0[1] as u32).to_be_bytes());
        let sum = internet_checksum(&ip);
        ip[10..12].copy_from_slice(&sum.to_be_bytes());
        ip
    } else {
        let mut ip = vec![0x60, 0, 0, 0];
        ip.extend((message.len() as u16).to_be_bytes());
        ip.extend([of.protocol, 64]);
        for word in [of.src.0[0], of.src.0[1], of.dst.0[0], of.dst.0[1]] {
            ip.extend(word.to_be_bytes());
        }
        ip
    };
    let at = ip.len();
    ip.extend(message);
    let sum = residue(of, message);
    ip[at + 2..at + 4].copy_from_slice(&(!sum).to_be_bytes());
    ip
}

/// What a message sums up to with its pseudo header; all ones if its checksum is right.
fn residue(of: &Tuple, message: &[u8]) -> u16 {
    !finish(partial_sum(message) + pseudo(of, message.len()))
}

proptest! {
    /// RFC 7915 §4.5: a datagram without a checksum gets the right one, in however many pieces its packet is.
    #[test]
    fn datagrams_without_a_checksum(
        four in tuple(4), six in tuple(6), payload in prop::collection::vec(any::<u8>(), 0..4000),
        cuts in prop::collection::vec(18usize..4000, 0..4), is_cut_off: bool,
    ) {
        let (four, six) = (udp(four), udp(six));
        let mut bytes = frame(&four, &payload, true);
        bytes[LINK + 26..LINK + 28].fill(0);
        let d = packet::decode(&bytes, bytes.len());
        let l4 = &bytes[LINK + 20..];
        let mut cuts: Vec<usize> = cuts.into_iter().filter(|cut| *cut < l4.len()).collect();
        cuts.sort_unstable();
        let ends = cuts.iter().copied().chain([l4.len()]);
        let mut pieces: Vec<&[u8]> =
            [0].iter().chain(&cuts).zip(ends).map(|(from, to)| &l4[*from..to]).collect();
        let sum = nat64::datagram_sum(&d, pieces[0], pieces[1..].iter().copied());
        let mut ip = bytes[LINK..LINK + 20 + pieces[0].len()].to_vec();
        prop_assert!(nat64::to_v6(&d, &mut ip, &six, sum).is_some());
        let whole = frame(&six, &payload, true);
        let got = [&ip[20..], &pieces[1..].concat()].concat();
        prop_assert_eq!(&got, &whole[LINK + 40..]);
        // A part is missing.
        if is_cut_off && pieces.len() > 1 {
            pieces.pop();
            prop_assert_eq!(nat64::datagram_sum(&d, pieces[0], pieces[1..].iter().copied()), None);
        }
    }

    /// Errors with extensions (RFC 4884), with the padding and the length of their family, and with wrong checksums.
    #[test]
    fn errors_with_extensions(
        six in tuple(6), four in tuple(4), outer in (tuple(6), tuple(4)), payload in prop::collection::vec(any::<u8>(), 0..900),
        quoted_len in 8usize..900, extensions in prop::collection::vec(any::<u8>(), 0..700), wrong in any::<Option<u16>>(),
        is_from_six: bool, is_exceeded: bool,
    ) {
        let (six, four) = (udp(six), udp(four));
        let (from, sent, by) = if is_from_six { (six, four, outer.0) } else { (four, six, outer.1) };
        let by = Tuple { protocol: if is_from_six { 58 } else { 1 }, ..by };
        let head = |of: &Tuple| if of.family == 4 { 20 } else { 40 };
        let unit = |of: &Tuple| if of.family == 4 { 4 } else { 8 };
        // The quoted packet, and how much of it.
        let packet = frame(&from, &payload, true)[LINK..].to_vec();
        let mut quoted = packet[..packet.len().min(head(&from) + quoted_len)].to_vec();
        let quoted_len = quoted.len() - head(&from);
        quoted.resize(quoted.len().next_multiple_of(unit(&from)).max(128), 0);
        let is_extended = extensions.len() >= 4;
        let (kind, to_kind) = match (is_from_six, is_exceeded) {
            (true, true) => (3, 11),
            (true, false) => (1, 3),
            (false, true) => (11, 3),
            (false, false) => (3, 1),
        };
        let mut message = vec![kind, 0, 0, 0, 0, 0, 0, 0];
        let length_at = |of: &Tuple| if of.family == 4 { 5 } else { 4 };
        message[length_at(&from)] = (quoted.len() / unit(&from)) as u8;
        message.extend(&quoted);
        message.extend(&extensions);
        let mut ip = error(&by, &message);
        if let Some(wrong) = wrong {
            ip[head(&from) + 2..head(&from) + 4].copy_from_slice(&wrong.to_be_bytes());
        }
        let before = residue(&by, &ip[head(&from)..]);
        let mut bytes = frame(&by, &[], true)[..LINK].to_vec();
        bytes.extend(&ip);
        let d = packet::decode(&bytes, bytes.len());
        prop_assume!(d.anomaly == packet::Anomaly::None);

        // Its packet may be in two pieces.
        let (first, rest) = ip.split_at(ip.len() - extensions.len().min(9));
        let (first, rest) = if extensions.is_empty() || is_extended { (&ip[..], &[][..]) } else { (first, rest) };
        let mut out = [0; 1280];
        let pieces = std::iter::once(rest).filter(|own| !own.is_empty());
        let got = nat64::error(&d, first, pieces, &sent, sent.dst.0, &mut out);
        let got = &out[..got.unwrap()];
        let max = if sent.family == 4 { 576 } else { 1280 };
        prop_assert!(got.len() <= max);

        let protocol = if sent.family == 4 { 1 } else { 58 };
        let to = Tuple { src: (sent.dst.0, 0), dst: (sent.src.0, 0), protocol, ..sent };
        let message = &got[head(&sent)..];
        prop_assert_eq!(message[0], to_kind);
        // 0xffff and 0 are one number.
        prop_assert_eq!(residue(&to, message) % 0xffff, before % 0xffff);
        let expected = &frame(&sent, &payload, true)[LINK..];
        let room = max - head(&sent) - 8;
        let keeps = is_extended && extensions.len() + 128 <= room;
        let length = usize::from(message[length_at(&sent)]) * unit(&sent);
        let body = &message[8..];
        prop_assert_eq!(length > 0, keeps);
        let quoted_part = if keeps { &body[..length] } else { body };
        if keeps {
            prop_assert!(length >= 128);
            prop_assert_eq!(&body[length..], &extensions[..]);
        }
        // Of what came with the error; the rest is padding, or there was no room.
        let came = (head(&sent) + quoted_len).min(expected.len());
        let place = if keeps { (room - extensions.len()) / unit(&sent) * unit(&sent) } else { room };
        let place = if keeps { place.min(255 * unit(&sent)) } else { place };
        let len = came.min(place);
        let mut wanted = expected[..len].to_vec();
        if keeps {
            wanted.resize(len.next_multiple_of(unit(&sent)).max(128), 0);
        }
        // The header's identification and checksum are not kept.
        let skip = head(&sent);
        prop_assert_eq!(&quoted_part[skip..wanted.len()], &wanted[skip..]);
    }
}
