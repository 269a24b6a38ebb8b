//! Nanoseconds per packet of `decode` and the flow hash over frames that stay in cache.
//!
//! `cargo run --release -p packet --example decode_ns`

use packet::ethernet::EthernetHeader;
use packet::ipv4::Ipv4Header;
use packet::ipv6::Ipv6Header;
use packet::udp::UdpHeader;
use packet::{Decoded, EtherType, IpProtocol, MacAddr, decode, decode_into, flow};
use std::hint::black_box;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::time::Instant;

/// 256 frames of 64 bytes are 16 KiB: half of a first-level cache.
const FRAMES: usize = 256;
const ROUNDS: usize = 20_000;
const REPETITIONS: usize = 7;

fn main() {
    let v4 = frames(false, false);
    let v6 = frames(true, false);
    let tagged = frames(false, true);
    for (name, frames) in [("ipv4", &v4), ("ipv6", &v6), ("ipv4, one tag", &tagged)] {
        assert!(frames.iter().all(|f| decode(f, f.len()).anomaly == packet::Anomaly::None));
        let mut burst = vec![Decoded::default(); FRAMES];
        measure(&format!("decode {name}"), frames, |row, frame| {
            decode_into(frame, frame.len(), &mut burst[row]);
        });
        black_box(burst);
    }
    let mut burst = vec![(Decoded::default(), 0); FRAMES];
    measure("decode ipv4, flow hash", &v4, |row, frame| {
        let (d, hash) = &mut burst[row];
        decode_into(frame, frame.len(), d);
        *hash = flow::flow_hash(d);
    });
    black_box(burst);
    measure("flow_hash_of_frame ipv4", &v4, |_, frame| {
        black_box(flow::flow_hash_of_frame(frame));
    });
    measure("flow_hash_of_frame ipv6", &v6, |_, frame| {
        black_box(flow::flow_hash_of_frame(frame));
    });
}

fn measure(name: &str, frames: &[Vec<u8>], mut work: impl FnMut(usize, &[u8])) {
    let mut times: Vec<f64> = (0..REPETITIONS)
        .map(|_| {
            let start = Instant::now();
            for _ in 0..ROUNDS {
                for (row, frame) in black_box(frames).iter().enumerate() {
                    work(row, frame);
                }
            }
            start.elapsed().as_secs_f64() * 1e9 / (ROUNDS * frames.len()) as f64
        })
        .collect();
    times.sort_by(f64::total_cmp);
    println!("{name:28} {:6.2} ns median, {:6.2} best", times[REPETITIONS / 2], times[0]);
}

fn frames(is_v6: bool, tagged: bool) -> Vec<Vec<u8>> {
    (0..FRAMES as u32)
        .map(|n| {
            let mut frame = vec![0; 78];
            let ethertype = if is_v6 { EtherType::IPV6 } else { EtherType::IPV4 };
            let mac = MacAddr([2, 0, 0, 0, 0, 1]);
            let mut ethernet = EthernetHeader::new(mac, mac, ethertype);
            ethernet.tags[0] = tagged.then_some((EtherType::VLAN, 7));
            let l3 = ethernet.emit(&mut frame).unwrap();
            let mixed = n.wrapping_mul(0x9e37_79b9) | 0x0100_0000;
            let l4 = l3
                + if is_v6 {
                    let ip = |n: u32| Ipv6Addr::from(0x2001_0db8u128 << 96 | u128::from(n));
                    let header = Ipv6Header::new(ip(mixed), ip(!mixed), IpProtocol::UDP);
                    header.emit(8, &mut frame[l3..]).unwrap()
                } else {
                    let (src, dst) = (0x0a00_0000 | n, mixed >> 8 | 0x0b00_0000);
                    let header = Ipv4Header::new(
                        Ipv4Addr::from(src),
                        Ipv4Addr::from(dst & 0x5fff_ffff),
                        IpProtocol::UDP,
                    );
                    header.emit(26, &mut frame[l3..]).unwrap()
                };
            let udp = UdpHeader { src_port: mixed as u16, dst_port: 9 };
            udp.emit(None, &mut frame[l4..]).unwrap();
            frame.truncate(if is_v6 || tagged { 78 } else { 64 });
            frame
        })
        .collect()
}
