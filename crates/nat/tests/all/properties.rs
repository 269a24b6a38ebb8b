//! Translations of random packets, against full checksums and a plain translator.

use std::collections::HashMap;
use std::sync::Arc;

use nat::cache::Change;
use nat::deterministic::Blocks;
use nat::families::{Either, Plain6, Turn};
use nat::nat64;
use nat::rewrite::{
    Resized, Which, set_acknowledged, set_end, set_end_plain, set_ends, set_quoted,
    set_quoted_number, set_segment,
};
use nat::rules::{Action, Own, Prefix, Rule, Rules};
use nat::translator::{Options, Session, Source, Timeouts, Way};
use nat::tuple::{End, Message, Tuple};
use nat::{Plain, Tcp, Translator, ports};
use packet::IpProtocol;
use packet::checksum::{finish, internet_checksum, partial_sum};
use proptest::prelude::*;
use stream::table::Found;

use crate::families::to_v6;

pub(crate) const LINK: usize = 14;

/// A frame with the ends `of`, right checksums and this payload.
pub(crate) fn frame(of: &Tuple, payload: &[u8], request: bool) -> Vec<u8> {
    let mut l4 = Vec::new();
    match IpProtocol(of.protocol) {
        IpProtocol::TCP => {
            l4.extend(of.src.1.to_be_bytes());
            l4.extend(of.dst.1.to_be_bytes());
            l4.extend([0, 0, 0, 1, 0, 0, 0, 2, 0x50, 0x10, 1, 0, 0, 0, 0, 0]);
        }
        IpProtocol::UDP => {
            l4.extend(of.src.1.to_be_bytes());
            l4.extend(of.dst.1.to_be_bytes());
            l4.extend(((payload.len() + 8) as u16).to_be_bytes());
            l4.extend([0, 0]);
        }
        _ => {
            let kinds = if of.protocol == IpProtocol::ICMP.0 { [0, 8] } else { [129, 128] };
            l4.extend([kinds[usize::from(request)], 0, 0, 0]);
            l4.extend(of.src.1.to_be_bytes());
            l4.extend([0, 9]);
        }
    }
    l4.extend(payload);
    let sum = finish(partial_sum(&l4) + pseudo(of, l4.len()));
    let at = place(of.protocol);
    let sum = if of.protocol == IpProtocol::UDP.0 && sum == 0 { 0xffff } else { sum };
    l4[at..at + 2].copy_from_slice(&sum.to_be_bytes());
    let mut all = vec![2; 12];
    if of.family == 4 {
        all.extend([0x08, 0x00]);
        let mut ip = vec![0x45, 0];
        ip.extend(((l4.len() + 20) as u16).to_be_bytes());
        ip.extend([0, 7, 0, 0, 64, of.protocol, 0, 0]);
        ip.extend((of.src.0[1] as u32).to_be_bytes());
        ip.extend((of.dst.0[1] as u32).to_be_bytes());
        let sum = internet_checksum(&ip);
        ip[10..12].copy_from_slice(&sum.to_be_bytes());
        all.extend(ip);
    } else {
        all.extend([0x86, 0xdd, 0x60, 0, 0, 0]);
        all.extend((l4.len() as u16).to_be_bytes());
        all.extend([of.protocol, 64]);
        for word in [of.src.0[0], of.src.0[1], of.dst.0[0], of.dst.0[1]] {
            all.extend(word.to_be_bytes());
        }
    }
    all.extend(l4);
    all
}

fn place(protocol: u8) -> usize {
    match IpProtocol(protocol) {
        IpProtocol::TCP => 16,
        IpProtocol::UDP => 6,
        _ => 2,
    }
}

pub(crate) fn pseudo(of: &Tuple, len: usize) -> u32 {
    if of.protocol == IpProtocol::ICMP.0 {
        return 0;
    }
    let mut bytes = Vec::new();
    for word in [of.src.0[0], of.src.0[1], of.dst.0[0], of.dst.0[1]] {
        bytes.extend(word.to_be_bytes());
    }
    partial_sum(&bytes) + u32::from(of.protocol) + len as u32
}

fn end(family: u8) -> impl Strategy<Value = End> {
    (any::<u64>(), any::<u64>(), 1u16..).prop_map(move |(high, low, port)| match family {
        4 => ([0, u64::from(low as u32 | 0x0100_0000) & 0x7eff_ffff], port),
        _ => ([high >> 3 | 0x2000_0000_0000_0000, low], port),
    })
}

pub(crate) fn tuple(family: u8) -> impl Strategy<Value = Tuple> {
    let icmp = if family == 4 { 1 } else { 58 };
    (end(family), end(family), prop::sample::select(vec![6u8, 17, icmp])).prop_map(
        move |(src, dst, protocol)| {
            let dst = if protocol == icmp { (dst.0, src.1) } else { dst };
            Tuple { src, dst, protocol, family, message: echo(protocol) }
        },
    )
}

/// A tuple of ICMP is of an echo request.
fn echo(protocol: u8) -> Message {
    Message::of(protocol, if protocol == 58 { 128 } else { 8 }).unwrap_or_default()
}

/// The other one's ends, of the same protocol.
fn with_protocol(of: Tuple, protocol: u8) -> Tuple {
    let is_icmp = matches!(protocol, 1 | 58);
    let dst = if is_icmp { (of.dst.0, of.src.1) } else { of.dst };
    Tuple { protocol, dst, message: echo(protocol), ..of }
}

fn is_same_frame(got: &[u8], want: &[u8]) -> Result<(), TestCaseError> {
    prop_assert_eq!(got.len(), want.len());
    for (at, (got, want)) in got.iter().zip(want).enumerate() {
        prop_assert_eq!(got, want, "byte {}", at);
    }
    Ok(())
}

proptest! {
    /// Incremental checksums are those of the packet made anew, and the way back gives the same bytes.
    #[test]
    fn ends_are_written_there_and_back(
        from in tuple(4), to in tuple(4), payload in prop::collection::vec(any::<u8>(), 0..99),
        is_request: bool,
    ) {
        let to = with_protocol(to, from.protocol);
        let mut bytes = frame(&from, &payload, is_request);
        let before = bytes.clone();
        set_ends(&mut bytes[LINK..], 20, &to);
        // The identifier of an ICMP query is that of its sender, that of an answer its receiver's: here both are one.
        is_same_frame(&bytes, &frame(&to, &payload, is_request))?;
        set_ends(&mut bytes[LINK..], 20, &from);
        is_same_frame(&bytes, &before)?;
    }

    /// What is found without a record is what the record says, whatever was changed of a frame; and what is written
    /// without one is what is written with one.
    #[test]
    fn plain_packets(
        from in tuple(4), to in end(4), payload in prop::collection::vec(any::<u8>(), 0..60), is_source: bool,
        no_checksum: bool, changes in prop::collection::vec((0usize..60, any::<u8>()), 0..3), cut in 0usize..80,
    ) {
        let mut bytes = frame(&from, &payload, true);
        if no_checksum && from.protocol == 17 {
            bytes[LINK + 26..LINK + 28].fill(0);
        }
        for (at, byte) in changes {
            if let Some(place) = bytes.get_mut(LINK + at) {
                *place = byte;
            }
        }
        // The header's checksum is right, so that most frames are.
        bytes[LINK + 10..LINK + 12].fill(0);
        let sum = internet_checksum(&bytes[LINK..LINK + 20]);
        bytes[LINK + 10..LINK + 12].copy_from_slice(&sum.to_be_bytes());
        bytes.truncate(bytes.len().min(cut.max(40) + 34));
        let d = packet::decode(&bytes, bytes.len());
        let l4 = bytes.get(usize::from(d.l4_offset)..).unwrap_or_default();
        let which = if is_source { Which::Source } else { Which::Destination };
        let (mut one, mut two) = (bytes.clone(), bytes.clone());
        let is_plain = set_end_plain(&mut one[LINK..], which, to.0[1] as u32, to.1);
        if d.anomaly == packet::Anomaly::None && d.kind == packet::Kind::Ipv4 {
            if let Some((found, tcp)) = Tuple::plain(&bytes[LINK..]) {
                prop_assert_eq!(Some(found), Tuple::of(&d, l4));
                let segment = if d.protocol == IpProtocol::TCP { Tcp::of(l4) } else { Tcp::default() };
                prop_assert_eq!(tcp, segment);
                prop_assert!(is_plain);
            } else {
                // Nothing that is plain is missed, where all of the fixed header is there.
                let has_ports = matches!(d.protocol, IpProtocol::TCP | IpProtocol::UDP);
                let is_short = bytes.len() < LINK + if d.protocol == IpProtocol::TCP { 40 } else { 28 };
                prop_assert!(!has_ports || is_short || d.ip_header_len > 20 || Tuple::of(&d, l4).is_none());
            }
        }
        if let Some((plain, _)) = Plain::of(&bytes[LINK..]) {
            let mut known = bytes.clone();
            Change::new(plain, which, to.0[1] as u32, to.1).write(&mut known[LINK..], plain);
            is_same_frame(&known, &one)?;
        }
        match is_plain {
            true => {
                let l4 = 20;
                set_end(&mut two[LINK..], l4, bytes[LINK + 9], which, ([0, to.0[1] & 0xffff_ffff], to.1));
                is_same_frame(&one, &two)?;
            }
            false => is_same_frame(&one, &bytes)?,
        }
    }

    /// A quoted packet becomes what it would be by itself, and the error's checksum is right.
    #[test]
    fn quoted_ends_are_written(
        from in tuple(4), to in tuple(4), outer in tuple(4), payload in prop::collection::vec(any::<u8>(), 0..99),
        cut in 28usize..200,
    ) {
        let to = with_protocol(to, from.protocol);
        // Half of TCP's checksum (bytes 36 and 37) is no checksum: what it would become cannot be known from it.
        prop_assume!(cut != 37 || from.protocol != IpProtocol::TCP.0);
        let cut = |frame: Vec<u8>| frame[LINK..].iter().copied().take(cut).collect::<Vec<u8>>();
        let error = |quoted: &[u8]| {
            let mut ip = frame(&outer, &[], true)[LINK..LINK + 20].to_vec();
            ip[9] = 1;
            let mut icmp = vec![11, 0, 0, 0, 0, 0, 0, 0];
            icmp.extend(quoted);
            let sum = internet_checksum(&icmp);
            icmp[2..4].copy_from_slice(&sum.to_be_bytes());
            ip.extend(icmp);
            ip
        };
        let mut bytes = error(&cut(frame(&from, &payload, true)));
        set_quoted(&mut bytes, 20, 20, &to);
        let mut want = cut(frame(&to, &payload, true));
        // Of a checksum that is cut in two there is nothing to update.
        if from.protocol == 6 && want.len() == 37 {
            want[36] = frame(&from, &payload, true)[LINK + 36];
        }
        let want = error(&want);
        is_same_frame(&bytes, &want)?;
    }

    /// Numbers and bytes of a segment, with options of any alignment: checksums are those of the packet made anew.
    #[test]
    fn segments_are_written(
        from in tuple(4), seq: u32, more: u32, (before, after) in (0usize..3, 0usize..6), blocks in 0usize..4,
        edges in prop::collection::vec(any::<u32>(), 8), has_ack: bool,
        (old, new) in (prop::collection::vec(any::<u8>(), 0..60), prop::collection::vec(any::<u8>(), 0..60)), is_resized: bool,
    ) {
        let from = with_protocol(from, 6);
        // The frame with an acknowledgement, blocks and a payload.
        let made = |seq: u32, ack: u32, edges: &[u32], payload: &[u8], flags: u8| {
            let mut options = vec![1; before];
            if blocks > 0 {
                options.extend([5, 2 + 8 * blocks as u8]);
                options.extend(edges[..2 * blocks].iter().flat_map(|edge| edge.to_be_bytes()));
            }
            // An option that nobody knows, and an end behind which anything may be.
            options.extend([0xfe, 2 + after as u8]);
            options.extend(vec![5; after]);
            options.push(0);
            options.resize(options.len().next_multiple_of(4), 5);
            let mut bytes = frame(&from, &[&options, payload].concat(), true);
            let tcp = &mut bytes[LINK + 20..];
            tcp[4..8].copy_from_slice(&seq.to_be_bytes());
            tcp[8..12].copy_from_slice(&ack.to_be_bytes());
            (tcp[12], tcp[13]) = (((20 + options.len()) as u8 / 4) << 4, flags);
            tcp[16..18].fill(0);
            let sum = finish(partial_sum(tcp) + pseudo(&from, tcp.len()));
            tcp[16..18].copy_from_slice(&sum.to_be_bytes());
            (bytes, LINK + 40 + options.len())
        };
        prop_assume!(before + 8 * blocks + after <= 30);
        let flags = if has_ack { 0x11 } else { 0x01 };
        let (mut bytes, _) = made(seq, 7, &edges, &old, flags);
        let mut seen = 0;
        set_acknowledged(&mut bytes[LINK..], 20, |number, is_cumulative| {
            seen += 1;
            number.wrapping_add(if is_cumulative { more } else { 9 })
        });
        prop_assert_eq!(seen, usize::from(has_ack) + 2 * blocks);
        let ack = if has_ack { 7u32.wrapping_add(more) } else { 7 };
        let edges: Vec<u32> = edges.iter().map(|edge| edge.wrapping_add(9)).collect();
        let (whole, at) = made(seq, ack, &edges, &old, flags);
        is_same_frame(&bytes, &whole)?;

        let resized = is_resized.then(|| Resized {
            sums: [&old, &new].map(|own| partial_sum(own)),
            lens: [&old, &new].map(|own| own.len() as u16),
            cleared: 1,
        });
        let (payload, flags) = if is_resized { (&new, flags & !1) } else { (&old, flags) };
        bytes.truncate(at);
        bytes.extend(payload);
        set_segment(&mut bytes[LINK..], 20, seq.wrapping_add(more), resized);
        is_same_frame(&bytes, &made(seq.wrapping_add(more), ack, &edges, payload, flags).0)?;
    }

    /// From IPv6 to IPv4 and back: each time the packet that would be made anew.
    #[test]
    fn headers_of_the_other_family(
        six in tuple(6), four in tuple(4), payload in prop::collection::vec(any::<u8>(), 0..99), is_request: bool,
    ) {
        let protocol = if six.protocol == 58 { 1 } else { six.protocol };
        let four = with_protocol(four, protocol);
        let bytes = frame(&six, &payload, is_request);
        let d = packet::decode(&bytes, bytes.len());
        prop_assume!(d.anomaly == packet::Anomaly::None);
        let mut ip = bytes[LINK..].to_vec();
        let head = nat64::to_v4(&d, &mut ip, &four, 7, false).unwrap();
        let mut got = frame(&four, &[], is_request)[..LINK].to_vec();
        got.extend(head.bytes());
        got.extend(&ip[40..]);
        is_same_frame(&got, &frame(&four, &payload, is_request))?;

        let d = packet::decode(&got, got.len());
        prop_assume!(d.anomaly == packet::Anomaly::None);
        let mut ip = got[LINK..].to_vec();
        let head = to_v6(&d, &mut ip, &six).unwrap();
        let mut back = bytes[..LINK].to_vec();
        back.extend(head.bytes());
        back.extend(&ip[20..]);
        is_same_frame(&back, &bytes)?;
    }

    /// What is known of packets of the other family gives the bytes that translation gives which sums them: headers of any
    /// class, TTL and length, right checksums and wrong ones.
    #[test]
    fn turns_of_known_sessions(
        six in tuple(6), four in tuple(4), payload in prop::collection::vec(any::<u8>(), 0..1300),
        (class, ttl, wrong, identification) in any::<(u8, u8, Option<u16>, u16)>(), dont_fragment: bool,
    ) {
        let six = with_protocol(six, if six.protocol == 58 { 6 } else { six.protocol });
        let four = with_protocol(four, six.protocol);
        for (from, to) in [(six, four), (four, six)] {
            let mut bytes = frame(&from, &payload, true);
            let l4 = LINK + if from.family == 4 { 20 } else { 40 };
            let at = l4 + place(from.protocol);
            if let Some(wrong) = wrong {
                bytes[at..at + 2].copy_from_slice(&wrong.to_be_bytes());
            }
            let ip = &mut bytes[LINK..];
            if from.family == 4 {
                (ip[1], ip[8], ip[6]) = (class, ttl, if dont_fragment { 0x40 } else { 0 });
                ip[10..12].fill(0);
                let sum = internet_checksum(&ip[..20]);
                ip[10..12].copy_from_slice(&sum.to_be_bytes());
            } else {
                (ip[0], ip[1], ip[7]) = (0x60 | class >> 4, class << 4, ttl);
            }
            let d = packet::decode(&bytes, bytes.len());
            prop_assume!(d.anomaly == packet::Anomaly::None);
            let turn = Turn::new(&from, &to).unwrap();
            prop_assert_eq!((turn.to(), turn.is_to_v4()), (to, from.family == 6));
            let ip = &bytes[LINK..];
            let (mut plain, mut known) = (ip.to_vec(), ip.to_vec());
            let is_short = match from.family {
                6 => Plain6::of(ip).map(|own| own.0.tuple()) == Some(from),
                _ => Plain::of(ip).map(|own| own.0.tuple()) == Some(from),
            };
            prop_assert!(is_short || from.family == 6 && ip.len() - 20 > 1260);
            if !is_short || !turn.is_simple(ip) {
                let has_none = from.protocol == 17 && bytes[at..at + 2] == [0, 0];
                prop_assert!(has_none || ip.len() + 20 > 1260);
                continue;
            }
            let head = if from.family == 6 {
                let head = nat64::to_v4(&d, &mut plain, &to, identification, false).unwrap();
                prop_assert_eq!(head.bytes(), turn.to_v4(&mut known, identification).unwrap());
                head
            } else {
                let head = to_v6(&d, &mut plain, &to).unwrap();
                prop_assert_eq!(head.bytes(), turn.to_v6(&mut known).unwrap());
                head
            };
            prop_assert!(!head.may_fragment());
            prop_assert_eq!(&plain[l4 - LINK..], &known[l4 - LINK..]);
        }
    }

    /// Packets of IPv4 that may be fragmented and would be longer than 1,280 bytes get a fragment header with their
    /// identification, others none (RFC 7915 §4); back it is the packet again.
    #[test]
    fn long_packets_towards_ipv6(
        six in tuple(6), four in tuple(4), len in 1100usize..1500, dont_fragment: bool, identification: u16,
    ) {
        let four = with_protocol(four, if six.protocol == 58 { 1 } else { six.protocol });
        let mut bytes = frame(&four, &vec![7; len], true);
        let ip = &mut bytes[LINK..];
        ip[4..6].copy_from_slice(&identification.to_be_bytes());
        ip[6] = if dont_fragment { 0x40 } else { 0 };
        ip[10..12].fill(0);
        let sum = internet_checksum(&ip[..20]);
        ip[10..12].copy_from_slice(&sum.to_be_bytes());
        let d = packet::decode(&bytes, bytes.len());
        prop_assume!(d.anomaly == packet::Anomaly::None);
        let mut ip = bytes[LINK..].to_vec();
        let head = to_v6(&d, &mut ip, &six).unwrap();
        let is_long = ip.len() + 20 > 1280;
        prop_assert_eq!(head.may_fragment(), is_long && !dont_fragment);
        let whole = frame(&six, &vec![7; len], true);
        let mut got = whole[..LINK].to_vec();
        got.extend(head.bytes());
        got.extend(&ip[20..]);
        if !head.may_fragment() {
            return is_same_frame(&got, &whole);
        }
        let header = &got[LINK + 40..LINK + 48];
        prop_assert_eq!(header, [&[six.protocol, 0, 0, 0, 0, 0][..], &identification.to_be_bytes()].concat());
        prop_assert_eq!(usize::from(u16::from_be_bytes([got[LINK + 4], got[LINK + 5]])), got.len() - LINK - 40);
        prop_assert_eq!(got[LINK + 6], 44);
        prop_assert_eq!(&got[LINK + 48..], &whole[LINK + 40..]);
        // What an error quotes of it is found.
        let quoted = Tuple::quoted(&got[LINK..LINK + 80]);
        prop_assert_eq!(quoted.map(|own| own.1), Some(48));
        prop_assert_eq!(quoted.map(|own| own.0), Some(six));
        let d = packet::decode(&got, got.len());
        prop_assert_eq!(d.anomaly, packet::Anomaly::None);
        let mut ip = got[LINK..].to_vec();
        let head = nat64::to_v4(&d, &mut ip, &four, 9, false).unwrap();
        let mut back = bytes[..LINK].to_vec();
        back.extend(head.bytes());
        back.extend(&ip[48..]);
        is_same_frame(&back, &bytes)?;
    }

    /// Nothing panics, whatever the bytes; and what is quoted fits.
    #[test]
    fn bytes_of_any_kind(bytes in prop::collection::vec(any::<u8>(), 0..200), to in tuple(6), four in tuple(4)) {
        let d = packet::decode(&bytes, bytes.len());
        let ip = bytes.get(usize::from(d.l3_offset)..).unwrap_or_default();
        let l4 = bytes.get(usize::from(d.l4_offset)..).unwrap_or_default();
        let _ = (Tuple::of(&d, l4), Tuple::quoted(ip));
        let mut out = [0; 1280];
        for to in [to, four] {
            let _ = nat64::error(&d, ip, std::iter::empty(), &to, to.src.0, &mut out);
            let _ = to_v6(&d, &mut ip.to_vec(), &to);
            let _ = nat64::to_v4(&d, &mut ip.to_vec(), &to, 1, false);
            set_ends(&mut ip.to_vec(), 20, &to);
            set_quoted(&mut ip.to_vec(), 20, 20, &to);
            set_quoted_number(&mut ip.to_vec(), 20, 20, 7);
            set_segment(&mut ip.to_vec(), 20, 7, Some(Resized { sums: [1, 2], lens: [3, 4], cleared: 1 }));
            set_acknowledged(&mut ip.to_vec(), 20, |number, _| number);
        }
    }
}

pub(crate) const OUTSIDE: u32 = 0xcb00_7101;

/// 64:ff9b::/96.
pub(crate) const PREFIX: Prefix =
    Prefix { family: 6, address: [0x0064_ff9b_0000_0000, 0], len: 96 };

pub(crate) fn rules(
    action: Action,
    ports: std::ops::RangeInclusive<u16>,
    workers: usize,
) -> Arc<Rules> {
    let rule =
        Rule { number: 3, outside: vec![1], sources: Vec::new(), protocol: None, ports, action };
    let own = Own::new(4);
    own.set(1, Some(OUTSIDE));
    Arc::new(Rules::new(vec![rule], workers, Arc::new(own)))
}

pub(crate) fn options() -> Options {
    Options {
        sessions: 64,
        bindings_per_host: 9,
        filter_by_remote: true,
        timeouts: Timeouts { udp: 30, ..Timeouts::default() },
        ftp_ports: &[],
        seed: 5,
    }
}

/// How far the number of a reset may be from the last acknowledgment of its receiver: the first two count, however late the
/// acknowledgment is that is known.
pub(crate) const OFFSETS: [u32; 5] = [0, 40_000, 0u32.wrapping_sub(1 << 16), 1 << 17, 1 << 31];

/// The step of a packet as the stage takes it: by the cache, then by the table.
pub(crate) fn cached_step(
    translator: &mut Translator,
    of: &Tuple,
    tcp: Tcp,
    now_s: u32,
) -> Option<(Tuple, Way)> {
    let Some(plain) = Either::of_tuple(of) else { return table_step(translator, of, tcp, now_s) };
    if let Either::V4(plain) = plain {
        let place = translator.places().of(plain);
        let known = translator.known(place, plain, tcp, now_s);
        let known = known.or_else(|| translator.known_beside(place, plain, tcp, now_s));
        if let Some(change) = known {
            translator.counts_mut().packets += 1;
            let end = ([0, change.address.into()], change.port);
            return Some(match change.which {
                Which::Source => (Tuple { src: end, ..*of }, Way::Forward),
                Which::Destination => (Tuple { dst: end, ..*of }, Way::Back),
            });
        }
    }
    let keys = translator.keys();
    let turn = match &plain {
        _ if !keys.is_on() => None,
        Either::V4(plain) => translator.turn4(keys.of4(*plain), *plain, tcp, now_s),
        Either::V6(plain) => translator.turn6(keys.of6(plain), plain, tcp, now_s),
    };
    if let Some(turn) = turn.copied() {
        translator.counts_mut().packets += 1;
        let way = if of.family == 6 { Way::Forward } else { Way::Back };
        return Some((turn.to(), way));
    }
    let (key, side) = of.key();
    let mut found = [Found::NONE];
    translator.find(&[key], now_s, &mut found);
    translator.step_plain(found[0].slot()?, side, of, tcp, now_s)
}

/// The same by the table alone.
pub(crate) fn table_step(
    translator: &mut Translator,
    of: &Tuple,
    tcp: Tcp,
    now_s: u32,
) -> Option<(Tuple, Way)> {
    let (key, side) = of.key();
    let mut found = [Found::NONE];
    translator.find(&[key], now_s, &mut found);
    translator.step(found[0].slot()?, side, tcp)
}

/// All sessions as they are shown.
pub(crate) fn all_sessions(translator: &Translator, now_s: u32) -> Vec<Session> {
    let mut all = Vec::new();
    assert_eq!(translator.visit(0, usize::MAX / 2, now_s, &mut |own| all.push(own)), None);
    all
}

proptest! {
    /// What is known without the table is what a translator says that looks everything up: ends, refusals, ICMP errors, sessions
    /// with their idle times, ports in use and counts, whatever happens in between.
    #[test]
    fn the_cache_says_what_the_table_says(
        steps in prop::collection::vec(
            (
                (0u8..48, 0u8..4), (0u8..3, 0u16..6, 0u8..4), prop::sample::select(vec![1u8, 6, 6, 17, 17]),
                (
                    // Most segments leave the state of their connection as it is; FIN, SYN, RST and ACK.
                    prop::sample::select(vec![0x10u8, 0x10, 0x10, 0x10, 0x10, 0x10, 0x02, 0x12, 0x11, 0x04, 0x04, 0x14]),
                    // How much it acknowledges; how far a reset is from what its receiver has acknowledged.
                    0u32..100_000, prop::sample::select(OFFSETS.to_vec()),
                ),
                prop::sample::select(vec![0u32, 0, 0, 1, 1, 2, 4, 7, 16]),
            ),
            1..600,
        ),
        (sessions, narrow) in (prop::sample::select(vec![2usize, 3, 4, 8, 40]), 1u16..24),
        // Few flows meet often, in lines of the cache that are as few as their sessions.
        (hosts, ports, remotes) in prop::sample::select(vec![(1u8, 1u16, 2u8), (1, 3, 2), (2, 2, 2), (3, 6, 4)]),
        filter_by_remote: bool,
        // From IPv6 to IPv4.
        turns: bool,
    ) {
        let timeouts = Timeouts { tcp_established: 90, tcp_transitory: 20, udp: 30, icmp: 15, other: 25 };
        let options = Options { sessions, filter_by_remote, timeouts, ..options() };
        let sets = [vec![OUTSIDE], vec![OUTSIDE, OUTSIDE + 1]].map(|to| {
            let action = if turns { Action::Nat64 { prefix: PREFIX, to } } else { Action::Source(to) };
            rules(action, 5000..=5000 + narrow, 1)
        });
        // Other rules, which have nothing of the sessions there are.
        let none = Arc::new(Rules::new(Vec::new(), 1, Arc::new(Own::new(4))));
        let [mut own, mut plain] =
            [(); 2].map(|()| Translator::new(options, sets[0].clone()).unwrap());
        let mut now_s = 100;
        // Ends of a session that is or was there, by those of its first packet.
        let mut made: HashMap<Tuple, Tuple> = HashMap::new();
        // What its ends have acknowledged, by its first packet and whether it is the other end.
        let mut acked: HashMap<(Tuple, bool), u32> = HashMap::new();
        for ((what, choice), (host, port, remote), protocol, (flags, growth, offset), pause) in steps {
            now_s += pause;
            let (host, port, remote) = (host % hosts, port % ports, remote % remotes);
            let src = ([0, 0xc0a8_0100 + u64::from(host)], 5000 + port);
            let remote_port = if protocol == 1 { src.1 } else { 53 };
            let dst = ([0, 0x0808_0800 + u64::from(remote)], remote_port);
            let original = match turns {
                false => Tuple { src, dst, protocol, family: 4, ..Tuple::default() },
                true => {
                    let six = |end: End| (nat64::embed(&PREFIX, end.0[1] as u32), end.1);
                    let protocol = if protocol == 1 { 58 } else { protocol };
                    Tuple { src: six(src), dst: six(dst), protocol, family: 6, ..Tuple::default() }
                }
            };
            let translated = made.get(&original).copied();
            match what {
                0 => {
                    let pieces = 1 + usize::from(choice) * 7;
                    for translator in [&mut own, &mut plain] {
                        while !translator.sweep(pieces, now_s) {}
                    }
                }
                1 => {
                    let other = if choice == 0 { &none } else { &sets[usize::from(choice & 1)] };
                    prop_assert_eq!(own.set_rules(other.clone()), plain.set_rules(other.clone()));
                }
                2 => {
                    let is_it = |known: &nat::translator::Known| known.tuple.dst == dst;
                    prop_assert_eq!(own.forget(is_it), plain.forget(is_it));
                }
                // The ends that a quoted packet had, there and back.
                3 | 4 => {
                    let quoted = translated.unwrap_or(original);
                    prop_assert_eq!(own.restore(&quoted), plain.restore(&quoted));
                    let quoted = original.reversed();
                    prop_assert_eq!(own.restore(&quoted), plain.restore(&quoted));
                }
                _ => {
                    let is_back = what % 2 == 1;
                    let of = if is_back { translated.unwrap_or(original).reversed() } else { original };
                    let [by, to] = [is_back, !is_back]
                        .map(|is_back| acked.get(&(original, is_back)).copied().unwrap_or(0xffff_8000));
                    let tcp = match flags {
                        _ if protocol != 6 => Tcp::default(),
                        0x02 => Tcp { sequence: 7, ..Tcp::with(flags) },
                        0x04 | 0x14 => {
                            Tcp { flags, sequence: to.wrapping_add(offset), acknowledgment: offset.wrapping_add(8) }
                        }
                        _ => Tcp { flags, sequence: 0, acknowledgment: by.wrapping_add(growth) },
                    };
                    // Some packets are not plain.
                    let known = match choice {
                        0 => table_step(&mut own, &of, tcp, now_s),
                        _ => cached_step(&mut own, &of, tcp, now_s),
                    };
                    prop_assert_eq!(known, table_step(&mut plain, &of, tcp, now_s));
                    let mut is_known = known.is_some();
                    let rule = own.rules().all.first().map(|rule| rule.number);
                    if let (None, false, Some(rule)) = (known, is_back, rule) {
                        let [one, other] = [&mut own, &mut plain]
                            .map(|translator| translator.begin_by(&of, dst, 4, Source::Rule(rule, 1), (tcp, now_s)));
                        prop_assert_eq!(one, other);
                        is_known = one.is_ok();
                        made.extend(one.ok().map(|one| (original, one)));
                    }
                    if is_known && flags & 0x14 == 0x10 {
                        acked.insert((original, is_back), tcp.acknowledgment);
                    }
                    prop_assert_eq!(own.inward(&of), plain.inward(&of));
                }
            }
            prop_assert_eq!(all_sessions(&own, now_s), all_sessions(&plain, now_s));
            prop_assert_eq!(own.pools().collect::<Vec<_>>(), plain.pools().collect::<Vec<_>>());
            prop_assert_eq!((own.len(), own.counts()), (plain.len(), plain.counts()));
        }
    }

    /// Whatever the number of workers, a packet and its answer have one hash.
    #[test]
    fn both_directions_meet(workers in 1usize..20, original in tuple(4), deterministic: bool) {
        let host = 0x0a00_0000 | original.src.0[1] as u32 & 0xfff;
        let original = Tuple { src: ([0, host.into()], original.src.1), ..original };
        prop_assume!((original.dst.0[1] as u32).wrapping_sub(OUTSIDE) >= 64);
        let action = match deterministic {
            false => Action::Masquerade,
            true => Action::Deterministic {
                inside: Prefix::v4(0x0a00_0000, 20),
                blocks: Blocks::new((0x0a00_0000, 1 << 12), (OUTSIDE, 64), &(1024..=u16::MAX)).unwrap(),
            },
        };
        let rules = rules(action, 1024..=u16::MAX, workers);
        let mut own = Translator::new(options(), rules.clone()).unwrap();
        let made = own.begin(&original, original.dst, 4, Source::Rule(3, 1), 1).unwrap();
        let out = frame(&original, &[], true);
        let back = frame(&made.reversed(), &[], false);
        prop_assert_eq!(rules.frame_hash(&out), rules.frame_hash(&back));
        // And an error about it.
        let mut error = frame(&made.reversed(), &[], true)[..LINK + 20].to_vec();
        error[LINK + 9] = 1;
        error.extend([11, 0, 0, 0, 0, 0, 0, 0]);
        error.extend(&frame(&made, &[], true)[LINK..]);
        let len = (error.len() - LINK) as u16;
        error[LINK + 2..LINK + 4].copy_from_slice(&len.to_be_bytes());
        error[LINK + 10..LINK + 12].fill(0);
        let sum = internet_checksum(&error[LINK..LINK + 20]);
        error[LINK + 10..LINK + 12].copy_from_slice(&sum.to_be_bytes());
        prop_assert_eq!(rules.frame_hash(&out), rules.frame_hash(&error));
        // Workers are hit as classes are: the hash of class c leads to place c.
        for class in 0..rules.classes {
            let place = (u64::from(rules.hash_of(class)) * u64::from(rules.classes)) >> 32;
            prop_assert_eq!(place, u64::from(class));
        }
        prop_assert!(rules.classes <= ports::CLASSES_MAX);
    }
}

/// RFC 7915 §4.2 and §5.2.
#[test]
fn icmp_errors_of_the_rfc() {
    assert_eq!(nat64::icmp_to_v6(3, 4, 1400), Some((2, 0, 1420)));
    assert_eq!(nat64::icmp_to_v6(3, 4, 0), Some((2, 0, 1280)));
    assert_eq!(nat64::icmp_to_v6(3, 1, 0), Some((1, 0, 0)));
    assert_eq!(nat64::icmp_to_v6(3, 2, 0), Some((4, 1, 6)));
    assert_eq!(nat64::icmp_to_v6(3, 3, 0), Some((1, 4, 0)));
    assert_eq!(nat64::icmp_to_v6(3, 13, 0), Some((1, 1, 0)));
    assert_eq!(nat64::icmp_to_v6(3, 14, 0), None);
    assert_eq!(nat64::icmp_to_v6(11, 1, 0), Some((3, 1, 0)));
    assert_eq!(nat64::icmp_to_v6(12, 0, 9 << 24), Some((4, 0, 6)));
    assert_eq!(nat64::icmp_to_v6(12, 1, 0), None);
    assert_eq!(nat64::icmp_to_v6(5, 0, 0), None);
    assert_eq!(nat64::icmp_to_v4(1, 0, 0), Some((3, 1, 0)));
    assert_eq!(nat64::icmp_to_v4(1, 1, 0), Some((3, 10, 0)));
    assert_eq!(nat64::icmp_to_v4(1, 4, 0), Some((3, 3, 0)));
    assert_eq!(nat64::icmp_to_v4(2, 0, 1500), Some((3, 4, 1480)));
    assert_eq!(nat64::icmp_to_v4(3, 0, 0), Some((11, 0, 0)));
    assert_eq!(nat64::icmp_to_v4(4, 0, 6), Some((12, 0, 9 << 24)));
    assert_eq!(nat64::icmp_to_v4(4, 1, 6), Some((3, 2, 0)));
    assert_eq!(nat64::icmp_to_v4(4, 2, 0), None);
}

/// MTUs in errors, as the headers differ: RFC 7915 §4.2 and §5.2. A router before RFC 1191 says none.
#[test]
fn mtus_of_errors() {
    let six = Tuple {
        src: ([0x2001_0db8_0000_0000, 1], 700),
        dst: ([0x0064_ff9b_0000_0000, 0x0808_0808], 53),
        protocol: 17,
        family: 6,
        ..Tuple::default()
    };
    let four = Tuple {
        src: ([0, u64::from(OUTSIDE)], 700),
        dst: ([0, 0x0808_0808], 53),
        protocol: 17,
        family: 4,
        ..Tuple::default()
    };
    let mtu = |quoted: &[u8], to: &Tuple, mtu: u32| {
        let outer = if to.family == 6 { four.reversed() } else { six.reversed() };
        let kind: [u8; 2] = if to.family == 6 { [3, 4] } else { [2, 0] };
        let outer = Tuple { protocol: if to.family == 6 { 1 } else { 58 }, ..outer };
        let mut bytes = frame(&outer, quoted, true);
        let l4 = if outer.family == 4 { LINK + 20 } else { LINK + 40 };
        // Type and code instead of an echo; its identifier and number are the MTU's place.
        bytes[l4..l4 + 2].copy_from_slice(&kind);
        bytes[l4 + 4..l4 + 8].copy_from_slice(&mtu.to_be_bytes());
        bytes[l4 + 2..l4 + 4].fill(0);
        let sum = finish(partial_sum(&bytes[l4..]) + pseudo(&outer, bytes.len() - l4));
        bytes[l4 + 2..l4 + 4].copy_from_slice(&sum.to_be_bytes());
        let d = packet::decode(&bytes, bytes.len());
        let mut out = [0; 1280];
        let len =
            nat64::error(&d, &bytes[LINK..], std::iter::empty(), to, to.dst.0, &mut out).unwrap();
        let l4 = if to.family == 4 { 20 } else { 40 };
        let protocol = if to.family == 4 { 1 } else { 58 };
        let sum =
            partial_sum(&out[l4..len]) + pseudo(&Tuple { protocol, ..to.reversed() }, len - l4);
        assert_eq!(finish(sum), 0, "the checksum of the error");
        u32::from_be_bytes(out[l4 + 4..l4 + 8].try_into().unwrap())
    };
    let quoted4 = &frame(&four, &[0; 1472], true)[LINK..LINK + 60];
    assert_eq!(mtu(quoted4, &six, 1400), 1420);
    assert_eq!(mtu(quoted4, &six, 700), 1280, "as IPv6 has at least");
    assert_eq!(mtu(quoted4, &six, 0), 1512, "of 1,500 bytes, the plateau below is 1,492");
    let quoted6 = &frame(&six, &[0; 1452], true)[LINK..LINK + 80];
    assert_eq!(mtu(quoted6, &four, 1400), 1380);
    let mut in_fragments = quoted6.to_vec();
    in_fragments[6] = 44;
    in_fragments.splice(40..40, [17, 0, 0, 1, 0, 0, 0, 9]);
    assert_eq!(mtu(&in_fragments, &four, 1400), 1372, "without the fragment header");
}
