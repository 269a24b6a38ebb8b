//! Fragments in any order, overlapping, late or damaged: each comes back once, memory stays within its bounds, and a whole
//! datagram can be read.
//!
//! The first byte chooses the policies. Each record behind it is: time since the last one, which datagram, offset (2), flags,
//! length, and so many bytes of a datagram, or of a frame as it is.
#![no_main]

use libfuzzer_sys::fuzz_target;
use packet::ipv4::Ipv4Header;
use packet::ipv6::Ipv6Header;
use packet::{Anomaly, Decoded, IpProtocol};
use stream::defrag::{Config, Defragmenter, Outcome, Output, Policy, TinyFirst};

const LINK: [u8; 12] = [2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2];

fn frame_of(which: u8, offset: u16, flags: u8, payload: &[u8]) -> Option<Vec<u8>> {
    if flags & 0x80 != 0 {
        return Some(payload.to_vec());
    }
    let (host, id) = (u16::from(which >> 1 & 3), u16::from(which >> 3 & 3));
    let protocol = [IpProtocol::UDP, IpProtocol::TCP, IpProtocol::ICMP, IpProtocol::IPV6_FRAGMENT];
    let protocol = protocol[usize::from(flags >> 1 & 3)];
    let more = flags & 1 != 0;
    let mut frame = LINK.to_vec();
    if which & 1 == 0 {
        let header = Ipv4Header {
            identification: id,
            fragment_offset: offset & 0xfff8,
            more_fragments: more,
            dont_fragment: false,
            ..Ipv4Header::new([10, 0, 0, host as u8 + 1].into(), [10, 0, 1, 1].into(), protocol)
        };
        frame.extend([8, 0]);
        frame.resize(34, 0);
        header.emit(payload.len(), &mut frame[14..])?;
    } else {
        let [src, dst] = [host + 1, 9].map(|last| [0x2001, 0xdb8, 0, 0, 0, 0, 0, last].into());
        let header = Ipv6Header::new(src, dst, IpProtocol::IPV6_FRAGMENT);
        frame.extend([0x86, 0xdd]);
        frame.resize(54, 0);
        header.emit(8 + payload.len(), &mut frame[14..])?;
        frame.extend([protocol.0, 0]);
        frame.extend((offset & 0xfff8 | u16::from(more)).to_be_bytes());
        frame.extend(u32::from(id).to_be_bytes());
    }
    frame.extend_from_slice(payload);
    Some(frame)
}

fuzz_target!(|bytes: &[u8]| {
    let Some((choice, mut rest)) = bytes.split_first() else { return };
    let policies = Policy::ALL;
    let config = Config {
        seed: 1,
        datagrams: 4,
        fragments: 16,
        fragments_per_datagram: 8,
        bytes: 0,
        policy_v4: policies[usize::from(choice & 15) % policies.len()],
        policy_v6: policies[usize::from(choice >> 4) % policies.len()],
        tiny_first: if choice & 128 != 0 { TinyFirst::Drop } else { TinyFirst::Report },
        ..Config::default()
    };
    let mut defragmenter = Defragmenter::new(config);
    let bound = defragmenter.config().bytes;
    let (mut now_ns, mut given) = (0u64, 0u32);
    let mut back: Vec<bool> = Vec::new();
    while let Some((record, behind)) = rest.split_first_chunk::<6>() {
        let [pause, which, high, low, flags, len] = *record;
        let (payload, behind) = behind.split_at(behind.len().min(usize::from(len)));
        rest = behind;
        now_ns += u64::from(pause) * 500_000_000;
        let offset = u16::from_be_bytes([high, low]);
        let Some(frame) = frame_of(which, offset, flags, payload) else { continue };
        let decoded = packet::decode(&frame, frame.len());
        back.push(false);
        let mut out = |output: Output<'_, u32>| take(output, &mut back);
        let passed = defragmenter.push_frame(&decoded, &frame, given, now_ns, &mut out);
        if let Some(token) = passed {
            assert!(!decoded.has(Decoded::FRAGMENT) || !decoded.is_ip());
            back[token as usize] = true;
        }
        given += 1;
        assert!(defragmenter.datagrams() <= 4 && defragmenter.fragments() <= 16);
        assert!(defragmenter.bytes() <= bound);
        let held = back.iter().filter(|back| !**back).count();
        assert_eq!(defragmenter.fragments(), held);
    }
    defragmenter.clear(&mut |output| take(output, &mut back));
    assert!(back.iter().all(|back| *back), "a fragment did not come back");
    let left = (defragmenter.datagrams(), defragmenter.fragments(), defragmenter.bytes());
    assert_eq!(left, (0, 0, 0));
});

fn take(output: Output<'_, u32>, back: &mut [bool]) {
    if let Outcome::Whole { frame, ip_at } = output.outcome {
        let decoded = packet::decode(frame, frame.len());
        assert!(decoded.is_ip() && usize::from(decoded.l3_offset) == ip_at);
        assert!(
            !decoded.has(Decoded::MORE_FRAGMENTS)
                || decoded.anomaly != Anomaly::None
                || decoded.has(Decoded::FRAGMENT_HEADER)
        );
    }
    for token in output.tokens {
        assert!(!std::mem::replace(&mut back[token as usize], true), "a fragment came back twice");
    }
}
