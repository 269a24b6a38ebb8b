//! Packets whose checksums are not verified: they fare as with the right ones, and a wrong one is forwarded as wrong as it
//! came.

use apps::router::PipelineOptions;
use apps::router::reference::Fate;
use packet::checksum::partial_sum;
use packet::{Anomaly, Decoded, IpProtocol, Kind, decode};
use proptest::prelude::*;

use crate::bench::{Bench, Input};
use crate::random::{Random, input, reference};
use crate::scenario::{fib, frame, two_ports, unlimited};
use crate::twin::outcome;

/// Where the IPv4 header of a frame begins, and its bytes.
fn header(frame: &[u8]) -> Option<(usize, &[u8])> {
    let d = decode(frame, frame.len());
    let at = usize::from(d.l3_offset);
    let bytes = frame.get(at..at + usize::from(d.ip_header_len));
    bytes.filter(|bytes| d.kind == Kind::Ipv4 && bytes.len() >= 20).map(|bytes| (at, bytes))
}

/// How far the sum of a header is from that of a right one.
fn fault(frame: &[u8]) -> u32 {
    header(frame).map_or(0, |(_, bytes)| partial_sum(bytes) % 0xffff)
}

/// A frame without its IPv4 checksum, and of an ICMP error without that of the quoted packet and what depends on it.
fn blank(frame: &[u8]) -> Vec<u8> {
    let mut blank = frame.to_vec();
    if let Some((at, bytes)) = header(frame) {
        let l4 = at + bytes.len();
        blank[at + 10..at + 12].fill(0);
        let is_icmp = bytes[9] == IpProtocol::ICMP.0;
        if is_icmp && blank.get(l4).is_some_and(|kind| matches!(kind, 3 | 5 | 11 | 12)) {
            for from in [l4 + 2, l4 + 8 + 10] {
                blank.iter_mut().skip(from).take(2).for_each(|byte| *byte = 0);
            }
        }
    }
    blank
}

/// Makes the header checksum of a sound frame wrong; `false` where it is none, or where the router looks at other checksums
/// in it.
fn spoil(random: &mut Random, input: &mut Input) -> bool {
    let d = decode(&input.frame, input.frame.len());
    let is_sound = d.kind == Kind::Ipv4
        && d.anomaly != Anomaly::BadChecksum
        && d.anomaly.leaves_lengths_right();
    let is_echo = d.protocol == IpProtocol::ICMP && !d.has(Decoded::FRAGMENT);
    let echo = || input.frame.get(usize::from(d.l4_offset)..d.l3_end());
    if input.from_host || !is_sound || (is_echo && echo().is_none_or(|m| partial_sum(m) != 0xffff))
    {
        return false;
    }
    let at = usize::from(d.l3_offset) + 10;
    let checksum = u32::from(u16::from_be_bytes([input.frame[at], input.frame[at + 1]]));
    let wrong = (checksum + 1 + random.below(0xfffe) as u32) % 0xffff;
    input.frame[at..at + 2].copy_from_slice(&(wrong as u16).to_be_bytes());
    true
}

proptest! {
    #![proptest_config(ProptestConfig { max_shrink_iters: 0, ..ProptestConfig::default() })]

    #[test]
    fn a_wrong_checksum_that_is_ignored_changes_nothing(seed: u64) {
        let mut random = Random(seed);
        let reference = reference(&mut random);
        let fib = fib(&reference);
        let mut bench = Bench::new(&PipelineOptions::default());
        let sound: Vec<Input> = (0..1 + random.below(80)).map(|_| input(&mut random)).collect();
        let mut spoilt = sound.clone();
        for input in &mut spoilt {
            input.ignores_checksums = spoil(&mut random, input);
        }
        let seen = bench.run(&fib, &spoilt);
        for ((sound, spoilt), seen) in sound.iter().zip(&spoilt).zip(&seen) {
            let expected = reference.outcomes(sound.port, &sound.frame, sound.from_host);
            let found = outcome(seen);
            let without = |outcome: &apps::router::reference::Outcome| {
                let mut outcome = outcome.clone();
                match &mut outcome.fate {
                    Fate::Forward(_, frame) | Fate::Host(_, frame) => *frame = blank(frame),
                    Fate::Drop(_) | Fate::Held | Fate::Fragmented => {}
                }
                outcome.emitted.iter_mut().for_each(|(_, frame)| *frame = blank(frame));
                outcome
            };
            prop_assert!(
                expected.iter().any(|expected| without(expected) == without(&found)),
                "{:02x?}\nrouter: {:02x?}\nexpected: {:02x?}", spoilt.frame, found, expected
            );
            // RFC 1624: the update keeps the fault. What the router makes itself has none.
            if let Fate::Forward(_, frame) = &found.fate {
                prop_assert_eq!(fault(frame), fault(&spoilt.frame), "{:02x?}", frame);
            }
            for (_, frame) in &found.emitted {
                prop_assert_eq!(fault(frame), 0, "{:02x?}", frame);
            }
        }
        bench.now_ns += reference.options.neighbour_wait_ns;
        bench.tick(&fib);
        bench.finish();
    }
}

/// What the router answers: echo requests and neighbour solicitations.
#[test]
fn answers() {
    let reference = two_ports(unlimited());
    let fib = fib(&reference);
    let mut bench = Bench::new(&PipelineOptions::default());
    let solicitation = [
        &[135, 0, 0x12, 0x34, 0, 0, 0, 0][..],
        &"fd00:1::1".parse::<std::net::Ipv6Addr>().unwrap().octets(),
        &[1, 1, 2, 0, 0, 0, 0, 9],
    ]
    .concat();
    let mut echo4 = frame().ipv4("10.0.1.2", "10.0.1.1").echo_request(1, 2, &[0; 8]).bytes();
    let mut echo6 = frame().ipv6("fd00:1::2", "fd00:1::1").echo_request(1, 2, &[0; 8]).bytes();
    echo4[36] ^= 1;
    echo6[56] ^= 1;
    let nd = frame().ipv6("fd00:1::2", "fd00:1::1").ttl(255).raw(58, &solicitation).bytes();
    for frame in [echo4, echo6, nd] {
        let verified = Input::new(0, frame);
        let ignored = Input { ignores_checksums: true, ..verified.clone() };
        let seen = bench.run(&fib, &[verified, ignored]);
        assert!(seen[0].emitted.is_empty(), "{:?}", seen[0]);
        assert_eq!(seen[1].emitted.len(), 1, "{:?}", seen[1]);
    }
    bench.finish();
}
