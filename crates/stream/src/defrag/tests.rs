//! Cases made by hand; `random` compares with the plain `twin`, `captures` reads other people's packets.

use super::*;
use packet::IpProtocol;
use packet::ipv4::{Ipv4Header, Ipv4View};
use packet::ipv6::{Ipv6Header, Ipv6View};

mod captures;
mod random;
mod twin;

const SECOND: u64 = 1_000_000_000;
const LINK_V4: [u8; 14] = [2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0];
const LINK_V6: [u8; 14] = [2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 0x86, 0xdd];

/// An output, copied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Event {
    key: DatagramKey,
    result: Result<Vec<u8>, Reason>,
    tokens: Vec<u32>,
    notes: Notes,
    has_first: bool,
    start_ns: u64,
}

pub(super) fn event(output: Output<'_, u32>) -> Event {
    let Output { key, outcome, tokens, notes, has_first, start_ns } = output;
    let result = match outcome {
        Outcome::Whole { frame, ip_at } => {
            assert_eq!(ip_at, 14);
            Ok(frame.to_vec())
        }
        Outcome::Failed(reason) => Err(reason),
    };
    Event { key, result, tokens: tokens.collect(), notes, has_first, start_ns }
}

/// A frame with an IPv4 fragment of UDP (or another protocol) from 10.0.0.`host` to 10.0.1.1.
fn frame_v4(host: u8, protocol: u8, id: u16, offset: u16, more: bool, payload: &[u8]) -> Vec<u8> {
    let plain =
        Ipv4Header::new([10, 0, 0, host].into(), [10, 0, 1, 1].into(), IpProtocol(protocol));
    let header =
        Ipv4Header { identification: id, fragment_offset: offset, more_fragments: more, ..plain };
    let mut frame = LINK_V4.to_vec();
    frame.resize(34, 0);
    header.emit(payload.len(), &mut frame[14..]).unwrap();
    frame.extend_from_slice(payload);
    frame
}

/// A frame with an IPv6 fragment, behind `extensions` (with the kind of the first of them).
fn frame_v6(
    id: u32,
    offset: u16,
    more: bool,
    next: u8,
    extensions: (u8, &[u8]),
    payload: &[u8],
) -> Vec<u8> {
    let (first, extensions) = match extensions {
        (_, []) => (44, [].as_slice()),
        extensions => extensions,
    };
    let [src, dst] = [1, 2].map(|last| [0x2001, 0xdb8, 0, 0, 0, 0, 0, last].into());
    let mut frame = LINK_V6.to_vec();
    frame.resize(54, 0);
    Ipv6Header::new(src, dst, IpProtocol(first))
        .emit(extensions.len() + 8 + payload.len(), &mut frame[14..])
        .unwrap();
    frame.extend_from_slice(extensions);
    frame.extend_from_slice(&[next, 0]);
    frame.extend_from_slice(&(offset | u16::from(more)).to_be_bytes());
    frame.extend_from_slice(&id.to_be_bytes());
    frame.extend_from_slice(payload);
    frame
}

/// Gives frames in turn, their places as tokens, a millisecond apart.
fn run(defragmenter: &mut Defragmenter<u32>, frames: &[Vec<u8>]) -> Vec<Event> {
    let mut events = Vec::new();
    for (token, frame) in (0..).zip(frames) {
        let now_ns = u64::from(token) * 1_000_000;
        let decoded = packet::decode(frame, frame.len());
        let mut out = |output: Output<'_, u32>| events.push(event(output));
        assert_eq!(defragmenter.push_frame(&decoded, frame, token, now_ns, &mut out), None);
    }
    events
}

fn defragmenter(config: Config) -> Defragmenter<u32> {
    Defragmenter::new(Config { seed: 7, ..config })
}

/// The payload of the only event, which is a whole datagram of all fragments.
fn whole(events: &[Event], frames: &[Vec<u8>]) -> Vec<u8> {
    let [event] = events else { panic!("{events:?}") };
    assert_eq!(event.tokens, (0..frames.len() as u32).collect::<Vec<_>>());
    let frame = event.result.as_ref().unwrap();
    let decoded = packet::decode(frame, frame.len());
    assert_eq!(decoded.anomaly, packet::Anomaly::None);
    assert!(!decoded.has(Decoded::FRAGMENT) && !decoded.has(Decoded::FRAGMENT_HEADER));
    frame[usize::from(decoded.l4_offset)..].to_vec()
}

/// Fragments of whole units of 8 bytes, each filled with a letter: (offset in units, units, letter). The last ends it.
fn lettered(fragments: &[(u16, usize, u8)]) -> Vec<Vec<u8>> {
    let last = fragments.len() - 1;
    let frame = |(at, (offset, units, letter)): (usize, &(u16, usize, u8))| {
        frame_v4(1, 17, 9, offset * 8, at != last, &vec![*letter; units * 8])
    };
    fragments.iter().enumerate().map(frame).collect()
}

fn check_policies(fragments: &[(u16, usize, u8)], expected: &[(Policy, &str)]) {
    let frames = lettered(fragments);
    for (policy, expected) in expected {
        let config = Config { policy_v4: *policy, ..Config::default() };
        let payload = whole(&run(&mut defragmenter(config), &frames), &frames);
        let letters: String = payload.chunks(8).map(|unit| unit[0] as char).collect();
        assert_eq!(letters, *expected, "{}", policy.name());
        assert!(payload.chunks(8).all(|unit| unit.iter().all(|byte| *byte == unit[0])));
    }
}

/// The pattern of Shankar and Paxson (Active Mapping, 2003, figure 2) and what they found of each kind of system. Their
/// fragments leave no gap: unit 3 comes with fragment 4.
#[test]
fn policies_on_the_six_fragments_of_active_mapping() {
    let fragments =
        [(0, 3, b'1'), (4, 2, b'2'), (6, 3, b'3'), (1, 4, b'4'), (6, 3, b'5'), (9, 3, b'6')];
    check_policies(
        &fragments,
        &[
            (Policy::Bsd, "111442333666"),
            (Policy::BsdRight, "144422555666"),
            (Policy::Linux, "111442555666"),
            (Policy::First, "111422333666"),
            (Policy::Last, "144442555666"),
        ],
    );
}

/// The longer pattern of Novak (Target-Based Fragmentation Reassembly, 2005), which distinguishes Windows and Solaris too.
/// Suricata's tests expect the same letters; it has no bsd-right of its own, so that row follows Snort's rules by hand.
#[test]
fn policies_on_the_pattern_of_novak() {
    let fragments = [
        (0, 3, b'A'),
        (4, 2, b'B'),
        (6, 3, b'C'),
        (10, 1, b'D'),
        (13, 2, b'E'),
        (15, 3, b'F'),
        (18, 2, b'G'),
        (20, 2, b'H'),
        (22, 1, b'I'),
        (1, 4, b'J'),
        (6, 3, b'K'),
        (9, 3, b'L'),
        (12, 3, b'M'),
        (16, 1, b'N'),
        (19, 1, b'O'),
        (20, 1, b'P'),
        (22, 2, b'Q'),
    ];
    check_policies(
        &fragments,
        &[
            (Policy::First, "AAAJBBCCCLDLMEEFFFGGHHIQ"),
            (Policy::Last, "AJJJJBKKKLLLMMMFNFGOPHQQ"),
            (Policy::Bsd, "AAAJJBCCCLLLMMMFFFGGHHIQ"),
            (Policy::BsdRight, "AJJJBBKKKLLLMMMFNFGOHHQQ"),
            (Policy::Linux, "AAAJJBKKKLLLMMMFFFGGPHQQ"),
            (Policy::Windows, "AAAJBBCCCLLLMEEFFFGGHHIQ"),
            (Policy::Solaris, "AAAJBBCCCLLLMMMFFFGGHHIQ"),
        ],
    );
}

#[test]
fn policies_have_names() {
    for policy in Policy::ALL {
        assert_eq!(Policy::from_name(policy.name()), Some(policy));
    }
    assert_eq!(Policy::from_name("vista"), None);
    for (number, reason) in Reason::ALL.into_iter().enumerate() {
        assert_eq!(reason as usize, number);
        assert!(!reason.text().is_empty() && !reason.name().is_empty());
    }
}

/// A policy of one datagram goes before that of the configuration.
#[test]
fn a_fragment_brings_the_policy_of_its_target() {
    for (policy, expected) in [(None, *b"aabb"), (Some(Policy::First), *b"aaab")] {
        let mut defragmenter =
            defragmenter(Config { policy_v4: Policy::Last, ..Config::default() });
        let frames = lettered(&[(0, 3, b'a'), (2, 2, b'b')]);
        let mut letters = Vec::new();
        for (token, frame) in (0..).zip(&frames) {
            let decoded = packet::decode(frame, frame.len());
            let fragment = Fragment::from_frame(&decoded, frame).unwrap().unwrap();
            let fragment = Fragment { policy, ..fragment };
            defragmenter.push(&fragment, token, 0, &mut |output| {
                let frame = event(output).result.unwrap();
                letters.extend(frame[34..].chunks(8).map(|unit| unit[0]));
            });
        }
        assert_eq!(letters, expected);
    }
}

#[test]
fn ipv4_headers_are_those_of_the_first_fragment() {
    // Router alert is copied into all fragments; the marking of the second one has congestion experienced.
    let header = |offset, more, traffic_class, options: &'static [u8]| Ipv4Header {
        traffic_class,
        identification: 77,
        dont_fragment: true,
        fragment_offset: offset,
        more_fragments: more,
        ttl: 9,
        options,
        ..Ipv4Header::new([10, 0, 0, 1].into(), [10, 0, 1, 1].into(), IpProtocol::UDP)
    };
    let frame = |header: Ipv4Header<'_>, payload: &[u8]| {
        let mut frame = LINK_V4.to_vec();
        frame.resize(14 + header.len(), 0);
        header.emit(payload.len(), &mut frame[14..]).unwrap();
        frame.extend_from_slice(payload);
        frame.extend_from_slice(&[0xee; 5]); // padding
        frame
    };
    let frames = [
        frame(header(16, false, 0x2b, &[148, 4, 0, 0]), &[2; 5]),
        frame(header(0, true, 0x2a, &[148, 4, 0, 0, 7, 3, 4, 0]), &[1; 16]),
    ];
    let mut expected = frame(header(0, false, 0x2b, &[148, 4, 0, 0, 7, 3, 4, 0]), &[1; 21]);
    expected.truncate(expected.len() - 5);
    expected[14 + 28 + 16..].fill(2);
    let events = run(&mut defragmenter(Config::default()), &frames);
    assert_eq!(events[0].result, Ok(expected.clone()));
    assert_eq!(events[0].tokens, [0, 1]);
    assert!(Ipv4View::new_checked(&expected[14..]).unwrap().is_checksum_correct());
}

#[test]
fn ipv6_loses_its_fragment_header() {
    // Hop-by-hop options in front: their next header is patched. UDP behind.
    let options = [44, 0, 1, 4, 0, 0, 0, 0];
    for extensions in [&[][..], &options] {
        let frames = [
            frame_v6(5, 0, true, 17, (0, extensions), &[1; 16]),
            frame_v6(5, 16, false, 17, (0, extensions), &[2; 3]),
        ];
        let events = run(&mut defragmenter(Config::default()), &frames);
        assert_eq!(whole(&events, &frames), [[1; 16].as_slice(), &[2; 3]].concat());
        let frame = events[0].result.as_ref().unwrap();
        let view = Ipv6View::new_checked(&frame[14..]).unwrap();
        assert_eq!(usize::from(view.payload_len()), extensions.len() + 19);
        assert_eq!(view.upper_layer().unwrap().0, IpProtocol::UDP);
        assert_eq!(view.extensions().count(), extensions.len() / 8);
    }
}

/// RFC 6946 §4: an atomic fragment is whole, and does not touch fragments with the same identification.
#[test]
fn atomic_fragments_are_independent() {
    let frames = [
        frame_v6(5, 0, true, 17, (0, &[]), &[1; 16]),
        frame_v6(5, 0, false, 17, (0, &[]), &[9; 11]),
        frame_v6(5, 16, false, 17, (0, &[]), &[2; 3]),
        frame_v6(6, 0, false, 59, (0, &[]), &[]),
    ];
    let mut defragmenter = defragmenter(Config::default());
    let events = run(&mut defragmenter, &frames);
    let tokens: Vec<_> = events.iter().map(|event| event.tokens.as_slice()).collect();
    assert_eq!(tokens, [&[1][..], &[0, 2], &[3]]);
    assert_eq!(events[0].result.as_ref().unwrap()[54..], [9; 11]);
    assert_eq!(events[1].result.as_ref().unwrap().len(), 54 + 19);
    assert_eq!(events[2].result.as_ref().unwrap().len(), 54);
    assert_eq!((defragmenter.stats().whole, defragmenter.stats().atomic), (3, 2));
}

/// RFC 5722 and RFC 8200 §4.5: an overlap discards all, also what comes later; an exact duplicate is none.
#[test]
fn overlaps_discard_an_ipv6_datagram() {
    let fragment =
        |offset, more, byte, len| frame_v6(5, offset, more, 17, (0, &[]), &vec![byte; len]);
    let frames = [
        fragment(0, true, 1, 16),
        fragment(0, true, 1, 16),
        fragment(8, true, 1, 16),
        fragment(24, false, 3, 4),
        fragment(16, true, 3, 8),
    ];
    let mut defragmenter = defragmenter(Config::default());
    let events = run(&mut defragmenter, &frames);
    let tokens: Vec<_> = events.iter().map(|event| event.tokens.as_slice()).collect();
    assert_eq!(tokens, [&[0, 1, 2][..], &[3], &[4]]);
    assert!(events.iter().all(|event| event.result == Err(Reason::Overlap)));
    assert_eq!(events[0].notes, Notes { duplicates: 1, overlaps: 1, ..Notes::default() });
    // Only the record is left, until the time-out.
    assert_eq!(
        (defragmenter.datagrams(), defragmenter.fragments(), defragmenter.bytes()),
        (1, 0, 0)
    );
    assert_eq!(defragmenter.next_timeout_ns(), Some(60 * SECOND));
    defragmenter.expire(60 * SECOND, &mut |output| panic!("{output:?}"));
    assert_eq!((defragmenter.datagrams(), defragmenter.next_timeout_ns()), (0, None));
    // Without the overlap it is whole.
    let frames = [&frames[..2], &[fragment(16, false, 3, 4)]].concat();
    let payload = whole(&run(&mut defragmenter, &frames), &frames);
    assert_eq!(payload.len(), 20);
}

/// The first event's reason and tokens, for IPv4 fragments (offset, more, length) of one datagram.
fn failure(config: Config, fragments: &[(u16, bool, usize)]) -> (Reason, Vec<u32>) {
    let frame = |(offset, more, len): &(u16, bool, usize)| {
        frame_v4(1, 17, 9, *offset, *more, &vec![0; *len])
    };
    let frames: Vec<_> = fragments.iter().map(frame).collect();
    let events = run(&mut defragmenter(config), &frames);
    (events[0].result.clone().unwrap_err(), events[0].tokens.clone())
}

#[test]
fn each_error_has_its_reason() {
    let config = Config { fragments_per_datagram: 3, ..Config::default() };
    let cases = [
        (&[(0, true, 8), (16, true, 7)][..], Reason::Misaligned, &[1][..]),
        (&[(0, true, 8), (8, true, 0)], Reason::ZeroLength, &[1]),
        (&[(65_528, false, 8)], Reason::TooLong, &[0]),
        (&[(65_520, false, 8)], Reason::TooLong, &[0]), // with the header
        (&[(0, true, 8), (16, false, 4), (16, false, 5)], Reason::TwoEnds, &[0, 1, 2]),
        (&[(16, false, 5), (16, false, 4)], Reason::TwoEnds, &[0, 1]),
        (&[(16, false, 8), (8, false, 8)], Reason::TwoEnds, &[0, 1]),
        (&[(16, false, 4), (24, true, 8)], Reason::BeyondEnd, &[0, 1]),
        (&[(24, true, 8), (16, false, 4)], Reason::BeyondEnd, &[0, 1]),
        (
            &[(0, true, 8), (16, true, 8), (32, true, 8), (8, true, 8)],
            Reason::TooMany,
            &[0, 1, 2, 3],
        ),
    ];
    for (fragments, reason, tokens) in cases {
        assert_eq!(failure(config, fragments), (reason, tokens.to_vec()), "{fragments:?}");
    }
}

/// The end is known to be too far only when the options of the first fragment are.
#[test]
fn options_can_make_a_packet_too_long() {
    let mut frames = vec![frame_v4(1, 17, 9, 8, true, &[0; 32_768])];
    frames.push(frame_v4(1, 17, 9, 32_776, false, &vec![0; 65_535 - 20 - 32_776]));
    let header = Ipv4Header {
        identification: 9,
        more_fragments: true,
        options: &[148, 4, 0, 0],
        ..Ipv4Header::new([10, 0, 0, 1].into(), [10, 0, 1, 1].into(), IpProtocol::UDP)
    };
    let mut first = LINK_V4.to_vec();
    first.resize(38 + 8, 0);
    header.emit(8, &mut first[14..]).unwrap();
    frames.push(first);
    let events = run(&mut defragmenter(Config::default()), &frames);
    assert_eq!((&events[0].result, events.len()), (&Err(Reason::TooLong), 1));
    assert_eq!(events[0].tokens, [0, 1, 2]);
    // Four bytes fewer are the most.
    frames[2] = frame_v4(1, 17, 9, 0, true, &[0; 8]);
    let events = run(&mut defragmenter(Config::default()), &frames);
    assert_eq!(whole(&events, &frames).len(), 65_515);
}

#[test]
fn tiny_first_fragments_are_reported_or_dropped() {
    let mut extended = vec![6, 0, 0, 0, 0, 0, 0, 0];
    extended.resize(24, 0); // destination options, then 16 of 20 bytes of TCP
    let cases = [
        (vec![frame_v4(1, 6, 9, 0, true, &[0; 8]), frame_v4(1, 6, 9, 8, false, &[0; 12])], true),
        (vec![frame_v4(1, 6, 9, 0, true, &[0; 16]), frame_v4(1, 6, 9, 16, false, &[0; 4])], false),
        (vec![frame_v4(1, 17, 9, 0, true, &[0; 8]), frame_v4(1, 17, 9, 8, false, &[0; 4])], false),
        (
            vec![
                frame_v6(9, 0, true, 60, (0, &[]), &extended),
                frame_v6(9, 24, false, 60, (0, &[]), &[0; 8]),
            ],
            true,
        ),
        (
            vec![
                frame_v6(9, 0, true, 60, (0, &[]), &[&extended[..], &[0; 8]].concat()),
                frame_v6(9, 32, false, 60, (0, &[]), &[0; 8]),
            ],
            false,
        ),
    ];
    for (frames, is_tiny) in cases {
        let mut reporter = defragmenter(Config::default());
        let events = run(&mut reporter, &frames);
        whole(&events, &frames);
        assert_eq!(events[0].notes.tiny_first, is_tiny);
        assert_eq!(reporter.stats().tiny_first, u64::from(is_tiny));
        let drop = Config { tiny_first: TinyFirst::Drop, ..Config::default() };
        let events = run(&mut defragmenter(drop), &frames);
        assert_eq!(events[0].result.as_ref().err() == Some(&Reason::TinyFirst), is_tiny);
        assert_eq!(events.iter().map(|event| event.tokens.len()).sum::<usize>(), 2);
    }
}

#[test]
fn time_outs_differ_by_family() {
    let mut defragmenter = defragmenter(Config::default());
    let mut events = Vec::new();
    let mut out = |output: Output<'_, u32>| events.push(event(output));
    let frames =
        [frame_v6(5, 8, true, 17, (0, &[]), &[1; 16]), frame_v4(1, 17, 9, 0, true, &[1; 16])];
    for (token, frame) in (0..).zip(&frames) {
        let decoded = packet::decode(frame, frame.len());
        defragmenter.push_frame(&decoded, frame, token, u64::from(token), &mut out);
    }
    assert_eq!(defragmenter.next_timeout_ns(), Some(30 * SECOND + 1));
    defragmenter.expire(30 * SECOND, &mut out);
    // Time that goes back is no time at all.
    defragmenter.expire(0, &mut out);
    // A fragment that comes too late begins a new datagram, whose time starts anew.
    let late = frame_v4(1, 17, 9, 16, false, &[1; 16]);
    let decoded = packet::decode(&late, late.len());
    defragmenter.push_frame(&decoded, &late, 2, 30 * SECOND + 1, &mut out);
    defragmenter.expire(60 * SECOND, &mut out);
    defragmenter.clear(&mut out);
    let brief: Vec<_> = events
        .iter()
        .map(|event| (event.result.clone().unwrap_err(), event.tokens[0], event.has_first))
        .collect();
    assert_eq!(
        brief,
        [(Reason::Timeout, 1, true), (Reason::Timeout, 0, false), (Reason::Shutdown, 2, false)]
    );
    assert_eq!(events[2].start_ns, 30 * SECOND + 1);
    assert_eq!(
        (defragmenter.datagrams(), defragmenter.fragments(), defragmenter.bytes()),
        (0, 0, 0)
    );
}

/// Host 1 floods; the datagram of host 2, though older than all, becomes whole.
#[test]
fn a_flood_evicts_its_own_datagrams() {
    let bounds = [
        Config { datagrams: 4, ..Config::default() },
        Config { fragments: 128, ..Config::default() },
        Config { bytes: 33 * 2048, ..Config::default() },
    ];
    for config in bounds {
        let mut frames = vec![frame_v4(2, 17, 9, 0, true, &[1; 16])];
        frames.extend((0..1000).map(|id| frame_v4(1, 17, id, 0, true, &[3; 64])));
        frames.push(frame_v4(2, 17, 9, 16, false, &[1; 16]));
        let mut defragmenter = defragmenter(config);
        let events = run(&mut defragmenter, &frames);
        let (last, evicted) = events.split_last().unwrap();
        assert_eq!(last.tokens, [0, 1001]);
        assert!(evicted.iter().all(|event| event.result == Err(Reason::Evicted)));
        let tokens: Vec<u32> = evicted.iter().map(|event| event.tokens[0]).collect();
        assert_eq!(tokens, (1..=evicted.len() as u32).collect::<Vec<_>>());
        assert!(evicted.len() > 500);
    }
}

/// With forged addresses each pair has one datagram: the oldest of all gives way.
#[test]
fn a_flood_of_many_addresses_evicts_the_oldest() {
    let frames: Vec<_> = (0..20).map(|host| frame_v4(host, 17, 9, 0, true, &[1; 16])).collect();
    let mut defragmenter = defragmenter(Config { datagrams: 8, ..Config::default() });
    let events = run(&mut defragmenter, &frames);
    let tokens: Vec<u32> = events.iter().map(|event| event.tokens[0]).collect();
    assert_eq!(tokens, (0..12).collect::<Vec<_>>());
    assert_eq!(defragmenter.stats().failed[Reason::Evicted as usize], 12);
}

#[test]
fn what_is_not_a_good_fragment_comes_back() {
    let mut defragmenter = defragmenter(Config::default());
    let frame = frame_v4(1, 17, 9, 0, false, &[1; 16]);
    let decoded = packet::decode(&frame, frame.len());
    let mut out = |output: Output<'_, u32>| panic!("{output:?}");
    assert_eq!(defragmenter.push_frame(&decoded, &frame, 3, 0, &mut out), Some(3));
    // A wrong checksum; a frame of which only a part is there.
    let mut broken = frame_v4(1, 17, 9, 0, true, &[1; 16]);
    broken[24] ^= 1;
    let cut = frame_v4(1, 17, 9, 8, false, &[1; 16]);
    let mut events = Vec::new();
    for (frame, len) in [(&broken[..], broken.len()), (&cut[..40], cut.len())] {
        let decoded = packet::decode(frame, len);
        let mut out = |output: Output<'_, u32>| events.push(event(output));
        assert_eq!(defragmenter.push_frame(&decoded, frame, 3, 0, &mut out), None);
    }
    assert!(events.iter().all(|event| event.result == Err(Reason::Malformed)));
    assert_eq!((events.len(), defragmenter.datagrams()), (2, 0));
    // A header that does not fit its place.
    let good = frame_v4(1, 17, 9, 0, true, &[1; 16]);
    let decoded = packet::decode(&good, good.len());
    let fragment = Fragment::from_frame(&decoded, &good).unwrap().unwrap();
    let long = [0x45; HEADER_ROOM + 1];
    for (header, ip_at) in
        [(&good[..30], 14), (&good[..34], 15), (&good[..34], 99), (&long[..], HEADER_ROOM - 19)]
    {
        let mut reason = None;
        let fragment = Fragment { header, ip_at, ..fragment };
        defragmenter.push(&fragment, 1, 0, &mut |output| reason = event(output).result.err());
        assert_eq!(reason, Some(Reason::BadHeader));
    }
}

/// VLANs are worlds of their own.
#[test]
fn the_scope_separates() {
    let tagged =
        |vlan: u8, frame: Vec<u8>| [&frame[..12], &[0x81, 0, 0, vlan], &frame[12..]].concat();
    let first = frame_v4(1, 17, 9, 0, true, &[1; 16]);
    let last = frame_v4(1, 17, 9, 16, false, &[1; 16]);
    let mut defragmenter = defragmenter(Config::default());
    assert_eq!(run(&mut defragmenter, &[tagged(1, first), tagged(2, last)]), []);
    assert_eq!(defragmenter.datagrams(), 2);
}
