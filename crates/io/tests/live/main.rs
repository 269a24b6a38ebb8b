//! The queues of live interfaces, over veth pairs in namespaces. One suite for all back ends.

mod fixture;

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use chunk::Packet;
use fixture::{BACKENDS, Backend, Bench, RawSocket, frame, poll, set_up};
use io::{RxQueue, TxQueue};
use testkit::netns::{Netns, veth};

/// Runs `test` for each back end that works here.
fn for_each_backend(purpose: &str, mtu: u32, test: impl Fn(&mut Bench)) {
    if !testkit::require_namespaces() {
        return;
    }
    for backend in BACKENDS {
        if let Some(mut bench) = set_up(purpose, *backend, mtu) {
            println!("{backend:?}");
            test(&mut bench);
            bench.finish();
        }
    }
}

#[test]
fn frames_of_every_length_are_received_in_order() {
    for_each_backend("io-rx", 1500, |bench| {
        for len in 14..=1514 {
            bench.outside.send(&frame(len, len as u8));
            if len % 100 == 0 || len == 1514 {
                bench.receive_until((len - 13) as u64);
            }
        }
        for (i, (time_ns, bytes)) in bench.received.iter().enumerate() {
            assert!(*bytes == frame(i + 14, (i + 14) as u8), "frame of {} bytes", i + 14);
            assert!(bench.backend != Backend::AfPacket || *time_ns > 1_600_000_000_000_000_000);
        }
        let stats = bench.rx.stats();
        assert_eq!((stats.packets, stats.dropped, stats.errors), (1501, 0, 0));
    });
}

#[test]
fn frames_of_every_length_are_sent_in_order() {
    for_each_backend("io-tx", 1500, |bench| {
        let mut len = 14;
        while len <= 1514 {
            let lens: Vec<_> = (len..=1514).take(100).collect();
            let mut packets: Vec<_> = lens.iter().map(|&l| bench.packet(&frame(l, 3))).collect();
            bench.send_all(&mut packets);
            for &l in &lens {
                assert!(bench.outside.recv().as_deref() == Some(&frame(l, 3)), "{l} bytes");
            }
            len += lens.len();
        }
        let stats = bench.tx.stats();
        assert_eq!((stats.packets, stats.dropped, stats.errors), (1501, 0, 0));
    });
}

#[test]
fn vlan_tags_stay_in_the_frame() {
    for_each_backend("io-vlan", 1500, |bench| {
        let tagged = |tags: &[[u8; 4]], len| {
            let plain = frame(len, 9);
            [&plain[..12], &tags.concat(), &plain[12..]].concat()
        };
        let frames: Vec<_> = [60, 61, 1506]
            .iter()
            .flat_map(|&len| {
                [
                    tagged(&[[0x81, 0, 0x20, 7]], len),
                    tagged(&[[0x88, 0xa8, 0, 7]], len),
                    tagged(&[[0x88, 0xa8, 0, 7], [0x81, 0, 0xff, 0xff]], len),
                ]
            })
            .collect();
        for (i, frame) in frames.iter().enumerate() {
            bench.outside.send(frame);
            bench.receive_until(i as u64 + 1);
            assert!(bench.received[i].1 == *frame, "received frame {i}");
            let mut packets = vec![bench.packet(frame)];
            bench.send_all(&mut packets);
            assert!(bench.outside.recv().as_ref() == Some(frame), "sent frame {i}");
        }
    });
}

/// The sender stays a thousand frames ahead at most, so that no stall of the receiver loses any.
#[test]
fn nothing_is_lost_or_overtaken_while_the_rings_have_room() {
    for_each_backend("io-rate", 1500, |bench| {
        const FRAMES: u64 = 50_000;
        let sender = bench.outside.clone();
        let received = AtomicU64::new(0);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let end = Instant::now() + Duration::from_secs(60);
                for i in 0..FRAMES {
                    while i >= received.load(Ordering::Relaxed) + 1000 {
                        assert!(Instant::now() < end, "the receiver has given up");
                        std::thread::sleep(Duration::from_micros(20));
                    }
                    let mut bytes = frame(64, 0);
                    bytes[20..28].copy_from_slice(&i.to_be_bytes());
                    sender.send(&bytes);
                }
            });
            for n in (1..=FRAMES).step_by(100).chain([FRAMES]) {
                bench.receive_until(n);
                received.store(n, Ordering::Relaxed);
            }
        });
        for (i, (_, bytes)) in bench.received.iter().enumerate() {
            assert_eq!(bytes[20..28], (i as u64).to_be_bytes());
        }
        assert_eq!(bench.rx.stats().dropped, 0);
    });
}

/// The ring of AF_PACKET holds what comes while its reader is held up: half a second of 1,000 frames a second, and 50 ms
/// of 500,000.
#[test]
fn a_stall_of_the_reader_loses_nothing() {
    if !testkit::require_namespaces() {
        return;
    }
    for (frames, stall) in [(500, Duration::from_millis(500)), (25_000, Duration::ZERO)] {
        for len in [64, 1514] {
            let Some(mut bench) = set_up("io-stall", Backend::AfPacket, 1500) else { return };
            bench.outside.send(&frame(len, 0));
            bench.receive_until(1);
            let begin = Instant::now();
            for i in 1..=frames {
                let mut bytes = frame(len, 0);
                bytes[20..28].copy_from_slice(&(i as u64).to_be_bytes());
                bench.outside.send(&bytes);
                std::thread::sleep((stall * i / frames).saturating_sub(begin.elapsed()));
            }
            bench.receive_until(u64::from(frames) + 1);
            for (i, (_, bytes)) in bench.received.iter().enumerate().skip(1) {
                assert_eq!(bytes[20..28], (i as u64).to_be_bytes());
            }
            bench.arm();
            assert_eq!(bench.rx.stats().dropped, 0, "{frames} frames of {len} bytes");
            bench.finish();
        }
    }
}

#[test]
fn a_worker_that_waits_is_woken() {
    for_each_backend("io-wake", 1500, |bench| {
        for i in 0..5 {
            assert!(bench.arm(), "nothing has come");
            assert!(!poll(bench.rx.fd().unwrap(), Duration::from_millis(30)), "woken for nothing");
            bench.outside.send(&frame(100, i));
            assert!(poll(bench.rx.fd().unwrap(), Duration::from_secs(5)), "not woken");
            assert!(!bench.rx.arm(), "a packet is there");
            bench.receive_until(u64::from(i) + 1);
        }
    });
}

#[test]
fn packets_are_forwarded_from_interface_to_interface_and_no_cell_is_lost() {
    if !testkit::require_namespaces() {
        return;
    }
    for backend in BACKENDS {
        let Some(mut left) = set_up("io-fwd", *backend, 1500) else { continue };
        let Some(mut right) = left.second("io-fwd2") else { continue };
        println!("{backend:?}");
        let mut packets = Vec::new();
        for round in 0..200u64 {
            for i in 0..50 {
                left.outside.send(&frame(60 + (i * 29) % 1400, round as u8));
            }
            let wanted = (round + 1) * 50;
            fixture::until(|| {
                left.rx.recv(&mut left.pool, &mut packets, 64);
                right.tx.send(&mut left.pool, &mut packets);
                right.tx.flush(&mut left.pool);
                right.tx.stats().packets == wanted
            });
            for i in 0..50 {
                let sent = frame(60 + (i * 29) % 1400, round as u8);
                assert!(right.outside.recv() == Some(sent), "round {round}, frame {i}");
            }
        }
        assert!(packets.is_empty());
        left.finish_with(right);
    }
}

#[test]
fn a_frame_that_cannot_be_sent_is_counted_and_the_others_go() {
    for_each_backend("io-big", 1500, |bench| {
        let frames = [frame(60, 1), frame(20_000, 2), frame(61, 3)];
        let mut packets: Vec<_> = frames.iter().map(|f| bench.packet(f)).collect();
        bench.send_all(&mut packets);
        assert_eq!(bench.outside.recv().as_ref(), Some(&frames[0]));
        assert_eq!(bench.outside.recv().as_ref(), Some(&frames[2]));
        let stats = bench.tx.stats();
        assert_eq!((stats.packets, stats.dropped), (2, 1));
    });
}

#[test]
fn an_interface_that_goes_down_is_reported_once_and_recovers() {
    for_each_backend("io-down", 1500, |bench| {
        bench.inside.ip("link set eth0 down");
        fixture::until(|| {
            bench.arm();
            bench.error().is_some()
        });
        let mut packets = vec![bench.packet(&frame(60, 1)), bench.packet(&frame(60, 2))];
        fixture::until(|| {
            bench.tx.send(&mut bench.pool, &mut packets);
            bench.tx.flush(&mut bench.pool);
            packets.is_empty()
        });
        bench.error();
        for _ in 0..5 {
            bench.arm();
            assert_eq!(bench.error(), None, "reported again");
        }
        bench.inside.ip("link set eth0 up");
        // Frames that were queued while it was down may still leave.
        let before = bench.rx.stats().packets;
        fixture::until(|| {
            bench.outside.try_send(&frame(77, 7));
            bench.receive();
            bench.rx.stats().packets > before
        });
        let mut packets = vec![bench.packet(&frame(99, 9))];
        bench.send_all(&mut packets);
        fixture::until(|| bench.outside.recv().is_some_and(|f| f == frame(99, 9)));
    });
}

#[test]
fn an_interface_that_vanishes_under_load_is_reported_and_no_cell_is_lost() {
    for_each_backend("io-gone", 1500, |bench| {
        let mut packets = Vec::new();
        let mut errors = Vec::new();
        for round in 0..200 {
            if round == 100 {
                bench.inside.ip("link del eth0");
            }
            bench.outside.try_send(&frame(60, round as u8));
            packets
                .extend((0..8).filter_map(|i| Packet::copy_from(&mut bench.pool, &frame(60, i))));
            bench.receive();
            bench.tx.send(&mut bench.pool, &mut packets);
            bench.tx.flush(&mut bench.pool);
            bench.arm();
            errors.extend(bench.error());
        }
        packets.drain(..).for_each(|packet| packet.free(&mut bench.pool));
        assert!((1..=2).contains(&errors.len()), "{errors:?}");
        assert!(errors.iter().all(|e| e.contains("eth0")), "{errors:?}");
    });
}

#[test]
fn fan_out_spreads_flows_and_keeps_each_together() {
    if !testkit::require_namespaces() {
        return;
    }
    let (inside, outside) = (Netns::new("io-fan"), Netns::new("io-fan"));
    veth((&inside, "eth0", fixture::MACS[0]), (&outside, "eth0", fixture::MACS[1]), 1500);
    let options = io::af_packet::Options::default();
    let mut pairs = fixture::within(&inside, || io::af_packet::open("eth0", 2, &options)).unwrap();
    let outside = fixture::within(&outside, || RawSocket::open("eth0"));
    let flows = 64u16;
    for round in 0..4u16 {
        for flow in 0..flows {
            let (a, b) = ("10.0.0.1", "10.0.0.2");
            let frame = testkit::frames::Frame::new();
            // Both directions of a flow.
            let frame = match round % 2 {
                0 => frame.ipv4(a, b).udp(1000 + flow, 53, &[0; 20]),
                _ => frame.ipv4(b, a).udp(53, 1000 + flow, &[0; 20]),
            };
            outside.send(&frame.bytes());
        }
    }
    let mut pool = fixture::pool(4096).1;
    let mut queue_of = std::collections::HashMap::new();
    let mut counts = [0u32; 2];
    let mut out = Vec::new();
    fixture::until(|| {
        for (queue, (rx, _)) in pairs.iter_mut().enumerate() {
            rx.recv(&mut pool, &mut out, 64);
            for packet in out.drain(..) {
                let port =
                    |at: usize| u16::from_be_bytes([packet.data()[at], packet.data()[at + 1]]);
                let flow = port(34).max(port(36));
                if port(12) == 0x0800 {
                    assert_eq!(*queue_of.entry(flow).or_insert(queue), queue, "{flow} is split");
                    counts[queue] += 1;
                }
                packet.free(&mut pool);
            }
        }
        counts[0] + counts[1] == 4 * u32::from(flows)
    });
    assert!(counts[0] > 0 && counts[1] > 0, "all in one queue: {counts:?}");
}

/// What a port sends must not come back as received: a switch would learn from it and flood it again.
#[test]
fn no_queue_receives_what_its_interface_sends() {
    if !testkit::require_namespaces() {
        return;
    }
    for queues in [1, 3] {
        let (inside, outside) = (Netns::new("io-echo"), Netns::new("io-echo"));
        veth((&inside, "eth0", fixture::MACS[0]), (&outside, "eth0", fixture::MACS[1]), 1500);
        let options = io::af_packet::Options::default();
        let mut pairs =
            fixture::within(&inside, || io::af_packet::open("eth0", queues, &options)).unwrap();
        let outside = fixture::within(&outside, || RawSocket::open("eth0"));
        let mut pool = fixture::pool(4096).1;
        for (_, tx) in &mut pairs {
            let sent = frame(60, 1);
            let mut packets = vec![Packet::copy_from(&mut pool, &sent).unwrap()];
            fixture::until(|| {
                tx.send(&mut pool, &mut packets);
                tx.flush(&mut pool);
                packets.is_empty() && tx.is_drained()
            });
            // The kernel shows a frame to the sockets of the interface before it sends it.
            assert_eq!(outside.recv().as_ref(), Some(&sent));
        }
        let answer = frame(61, 2);
        outside.send(&answer);
        let mut received = Vec::new();
        let mut out = Vec::new();
        fixture::until(|| {
            for (rx, _) in &mut pairs {
                rx.recv(&mut pool, &mut out, 64);
            }
            for packet in out.drain(..) {
                let bytes = packet.data().to_vec();
                packet.free(&mut pool);
                received.extend((bytes[12..14] == [0x88, 0xb5]).then_some(bytes));
            }
            received.contains(&answer)
        });
        assert_eq!(received, [answer], "{queues} queues");
    }
}

#[test]
fn an_unfinished_checksum_is_finished() {
    for_each_backend("io-csum", 1500, |bench| {
        let outside = bench.outside_netns();
        outside.run("ethtool -K eth0 tx on");
        outside.address("eth0", "10.9.0.2/24");
        outside.ip("neigh add 10.9.0.1 lladdr 02:00:00:00:00:01 dev eth0");
        let socket =
            fixture::within(outside, || std::net::UdpSocket::bind("10.9.0.2:4000")).unwrap();
        socket.send_to(b"not yet summed up", "10.9.0.1:5000").unwrap();
        let mut seen = None;
        fixture::until(|| {
            bench.receive();
            seen = bench.received.drain(..).map(|(_, f)| f).find(|f| f.ends_with(b"summed up"));
            seen.is_some()
        });
        let frame = seen.unwrap();
        // The sum over pseudo-header and datagram, checksum included, is all ones.
        let datagram = &frame[34..];
        let pseudo = [&frame[26..34], &[0, 17], &(datagram.len() as u16).to_be_bytes()].concat();
        let mut all = [&pseudo, datagram].concat();
        all.resize(all.len().next_multiple_of(2), 0);
        let sum: u32 = all.chunks(2).map(|w| u32::from(w[0]) << 8 | u32::from(w[1])).sum();
        assert_eq!((sum & 0xffff) + (sum >> 16), 0xffff);
    });
}

/// What the kernel leaves open inside a tunnel arrives with its place, and is finished.
#[test]
fn an_unfinished_checksum_in_a_tunnel_is_finished() {
    for_each_backend("io-vxlan", 1500, |bench| {
        let outside = bench.outside_netns();
        outside.run("ethtool -K eth0 tx on");
        outside.address("eth0", "10.9.0.2/24");
        outside.ip("neigh add 10.9.0.1 lladdr 02:00:00:00:00:01 dev eth0");
        let of = "type vxlan id 7 dstport 4789 dev eth0 local 10.9.0.2 remote 10.9.0.1";
        outside.ip(&format!("link add vx {of}"));
        outside.address("vx", "172.16.0.2/24");
        outside.ip("neigh add 172.16.0.1 lladdr 02:00:00:00:00:07 dev vx");
        // The first packet of a connection that nobody accepts.
        fixture::within(outside, || {
            let at = std::net::SocketAddr::from(([172, 16, 0, 1], 5000));
            let _ = std::net::TcpStream::connect_timeout(&at, Duration::from_millis(50));
        });
        let mut seen = None;
        fixture::until(|| {
            bench.receive();
            let is_syn = |f: &Vec<u8>| f.len() > 100 && f[36..38] == [0x12, 0xb5] && f[73] == 6;
            seen = bench.received.drain(..).map(|(_, f)| f).find(is_syn);
            seen.is_some()
        });
        let frame = seen.unwrap();
        for (ip, l4, protocol) in [(14, 34, 17), (64, 84, 6)] {
            let rest = &frame[l4..];
            let len = (rest.len() as u16).to_be_bytes();
            let mut all = [&frame[ip + 12..ip + 20], &[0, protocol], &len, rest].concat();
            all.resize(all.len().next_multiple_of(2), 0);
            let sum: u32 = all.chunks(2).map(|w| u32::from(w[0]) << 8 | u32::from(w[1])).sum();
            assert_eq!((sum & 0xffff) + (sum >> 16), 0xffff, "protocol {protocol}");
        }
    });
}

/// Of a batch in which one frame is not what its offload says, that one is lost and no other.
#[test]
fn a_frame_that_cannot_be_sent_takes_no_other_with_it() {
    if !testkit::require_namespaces() {
        return;
    }
    let Some(mut bench) = set_up("io-bad", Backend::AfPacket, 1500) else { return };
    let frames: Vec<_> = (0..4).map(|i| frame(60 + i, 1)).collect();
    let mut packets: Vec<_> = frames.iter().map(|bytes| bench.packet(bytes)).collect();
    packets[2].offload = chunk::Offload::CHECKSUM; // of neither TCP nor UDP
    bench.send_all(&mut packets);
    for i in [0, 1, 3] {
        assert!(bench.outside.recv().as_ref() == Some(&frames[i]), "frame {i}");
    }
    let stats = bench.tx.stats();
    assert_eq!((stats.packets, stats.dropped), (3, 1));
    bench.finish();
}

#[test]
fn jumbo_frames_pass_in_both_directions() {
    for_each_backend("io-jumbo", 9000, |bench| {
        for (i, len) in [1792, 1793, 1856, 1857, 2048, 4096, 9014].into_iter().enumerate() {
            bench.outside.send(&frame(len, 5));
            bench.receive_until(i as u64 + 1);
            assert!(bench.received[i].1 == frame(len, 5), "received {len} bytes");
            let mut packets = vec![bench.packet(&frame(len, 6)), bench.packet(&frame(60, 7))];
            bench.send_all(&mut packets);
            assert!(bench.outside.recv() == Some(frame(len, 6)), "sent {len} bytes");
            assert!(bench.outside.recv() == Some(frame(60, 7)));
        }
    });
}

/// What is longer than the MTU was taken for several segments at first.
#[test]
fn an_mtu_that_is_raised_is_followed() {
    for_each_backend("io-raise", 1500, |bench| {
        for (i, mtu) in [1500, 3000, 9000].into_iter().enumerate() {
            let netns = [&bench.inside, bench.outside_netns()];
            netns.iter().for_each(|netns| _ = netns.ip(&format!("link set eth0 mtu {mtu}")));
            let frame = frame(mtu + 14, 5);
            bench.outside.send(&frame);
            bench.receive_until(i as u64 + 1);
            assert!(bench.received[i].1 == frame, "received {} bytes", frame.len());
        }
    });
}

#[test]
fn the_longest_frames_pass_through_af_packet() {
    if !testkit::require_namespaces() {
        return;
    }
    let Some(mut bench) = set_up("io-long", Backend::AfPacket, 65_000) else { return };
    for (i, len) in [16_450, 65_014].into_iter().enumerate() {
        bench.outside.send(&frame(len, 5));
        bench.receive_until(i as u64 + 1);
        assert!(bench.received[i].1 == frame(len, 5), "received {len} bytes");
        let mut packets = vec![bench.packet(&frame(len, 6))];
        bench.send_all(&mut packets);
        assert!(bench.outside.recv() == Some(frame(len, 6)), "sent {len} bytes");
    }
    bench.finish();
}

#[test]
fn every_queue_of_an_interface_gets_a_socket_over_the_same_cells() {
    if !testkit::require_namespaces() {
        return;
    }
    let (inside, outside) = (Netns::new("io-multi"), Netns::new("io-multi"));
    for netns in [&inside, &outside] {
        netns.sysctl("net.ipv6.conf.default.disable_ipv6", "1");
    }
    let (a, b) = (inside.name(), outside.name());
    inside.run(&format!(
        "ip link add name eth0 numrxqueues 2 numtxqueues 2 type veth \
         peer name eth0 numrxqueues 2 numtxqueues 2 netns {b}"
    ));
    for netns in [&inside, &outside] {
        netns.run("ethtool -K eth0 tx off gso off gro off");
        netns.ip("link set eth0 up");
    }
    fixture::within(&inside, || io::link::Link::open("eth0").unwrap().set_queues(2)).unwrap();
    fixture::within(&outside, || io::link::Link::open("eth0").unwrap().set_queues(2)).unwrap();
    let (depot, mut pool) = fixture::pool(16_384);
    let options = io::af_xdp::Options { ring_slots: 1024, ..io::af_xdp::Options::default() };
    // Half of few cells stay for others, but for some that each queue has.
    let (few, _) = fixture::pool(1200);
    let opened = fixture::within(&inside, || io::af_xdp::open("eth0", &few, &options)).expect(a);
    assert_eq!((opened.queues.len(), few.available()), (2, 1200 / 2 - 256));
    drop(opened);
    assert_eq!(few.available(), 1200);
    let opened = fixture::within(&inside, || io::af_xdp::open("eth0", &depot, &options)).expect(a);
    let mut queues = opened.queues;
    assert_eq!(queues.len(), 2);
    let error = fixture::within(&inside, || io::af_xdp::open("eth0", &depot, &options));
    let error = error.unwrap_err().to_string();
    assert!(error.ends_with("another XDP program is attached to it"), "{error}");

    // The other end's queue decides ours; past the queueing discipline it follows the processor.
    let raw = fixture::within(&outside, || RawSocket::open("eth0"));
    let packet = io::af_packet::Options::default();
    let mut sender =
        fixture::within(&outside, || io::af_packet::open("eth0", 1, &packet)).unwrap().remove(0).1;
    let (mut out, mut counts, mut seen) = (Vec::new(), [0, 0], [false; 100]);
    for i in 0..100u8 {
        pin(usize::from(i % 2));
        let bytes = frame(60 + usize::from(i), i);
        let mut packets = vec![Packet::copy_from(&mut pool, &bytes).unwrap()];
        sender.send(&mut pool, &mut packets);
    }
    fixture::until(|| {
        for (queue, (rx, tx)) in queues.iter_mut().enumerate() {
            rx.recv(&mut pool, &mut out, 64);
            counts[queue] += out.len();
            out.iter().for_each(|packet| seen[packet.frame_len() - 60] = true);
            tx.send(&mut pool, &mut out);
            tx.flush(&mut pool);
        }
        seen.iter().all(|&seen| seen) && queues.iter().all(|(_, tx)| tx.is_drained())
    });
    let mut back = [false; 100];
    for _ in 0..100 {
        back[raw.recv().unwrap().len() - 60] = true;
    }
    assert!(back.iter().all(|&back| back));
    let processors = std::thread::available_parallelism().map_or(1, |n| n.get());
    assert!(processors == 1 || counts == [50, 50], "{counts:?}");
    // One half of one socket goes first, the others later: the cells come back in the end.
    let (rx, tx) = queues.remove(0);
    drop(tx);
    drop((queues, pool));
    drop(rx);
    assert_eq!(depot.available(), 16_384);
}

fn pin(processor: usize) {
    // SAFETY: a zeroed set of processors, of the size that is given. Fails where there is only one,
    // and no harm is done.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(processor, &mut set);
        libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &set);
    }
}

#[test]
fn a_tap_interface_carries_frames_both_ways_and_goes_with_its_queues() {
    if !testkit::require_namespaces() {
        return;
    }
    let netns = Netns::new("io-tap");
    netns.sysctl("net.ipv6.conf.default.disable_ipv6", "1");
    let (depot, mut pool) = fixture::pool(200);
    let options = io::tap::Options {
        name: "sl%d".to_owned(),
        mac: Some([2, 0, 0, 0, 0, 7]),
        mtu: Some(9000),
        is_down: false,
    };
    let mut tap = fixture::within(&netns, || io::tap::Tap::open(&options)).unwrap();
    let taken = io::tap::Options { name: tap.name.clone(), ..options.clone() };
    let error = fixture::within(&netns, || io::tap::Tap::open(&taken)).unwrap_err();
    // The test's thread is in the namespace, its process is not: who holds it cannot be seen.
    let text = error.to_string();
    assert_eq!(text, "sl0: making the interface: an interface of this name exists");
    let shown = netns.run("ip link show sl0");
    assert!(shown.contains("02:00:00:00:00:07") && shown.contains("mtu 9000"), "{shown}");
    let raw = fixture::within(&netns, || RawSocket::open("sl0"));
    let mut tx = tap.tx();
    let mut out = Vec::new();
    for (i, len) in [14, 60, 1514, 1856, 1857, 3000, 9014].into_iter().enumerate() {
        raw.send(&frame(len, 1));
        assert!(poll(tap.rx.fd().unwrap(), Duration::from_secs(5)));
        fixture::until(|| tap.rx.recv(&mut pool, &mut out, 8) == 1);
        let bytes = out[0].segments().collect::<Vec<_>>().concat();
        assert!(bytes == frame(len, 1), "{len} bytes from the kernel");
        tx.send(&mut pool, &mut out);
        assert!(raw.recv() == Some(frame(len, 1)), "{len} bytes to the kernel");
        assert_eq!((tap.rx.stats().packets, tx.stats().packets), (i as u64 + 1, i as u64 + 1));
    }
    netns.ip("link set sl0 down");
    let mut packets: Vec<_> =
        (0..3).map(|i| Packet::copy_from(&mut pool, &frame(60, i)).unwrap()).collect();
    tx.send(&mut pool, &mut packets);
    assert!(packets.is_empty() && tx.stats().dropped == 3);
    assert!(tx.take_error().is_some_and(|e| e.starts_with("sl0: writing: ")));
    assert_eq!(tx.take_error(), None);
    netns.ip("link set sl0 up");
    packets.push(Packet::copy_from(&mut pool, &frame(61, 1)).unwrap());
    tx.send(&mut pool, &mut packets);
    assert_eq!(raw.recv(), Some(frame(61, 1)));
    drop((tap, tx));
    // A process that another test just started may hold it open for a moment.
    fixture::until(|| !netns.try_run("ip link show sl0").status.success());

    let down = io::tap::Options { is_down: true, ..options };
    let mut tap = fixture::within(&netns, || io::tap::Tap::open(&down)).unwrap();
    assert!(!netns.run("ip link show sl0").contains(",UP"));
    fixture::within(&netns, || tap.set_up()).unwrap();
    assert!(netns.run("ip link show sl0").contains(",UP"));
    netns.ip("link del sl0");
    fixture::until(|| {
        tap.rx.recv(&mut pool, &mut out, 8);
        tap.rx.take_error().is_some()
    });
    assert!(tap.rx.fd().is_none() && tap.rx.take_error().is_none());
    assert!(out.is_empty());
    drop(pool);
    assert_eq!(depot.available(), 200);
}

#[test]
fn link_helpers_read_and_change_an_interface() {
    if !testkit::require_namespaces() {
        return;
    }
    let (inside, outside) = (Netns::new("io-link"), Netns::new("io-link"));
    veth((&inside, "eth0", fixture::MACS[0]), (&outside, "eth0", fixture::MACS[1]), 1500);
    let link = fixture::within(&inside, || io::link::Link::open("eth0")).unwrap();
    assert_eq!(link.mac().unwrap(), [2, 0, 0, 0, 0, 1]);
    link.set_mac([2, 0, 0, 0, 9, 9]).unwrap();
    link.set_mtu(1400).unwrap();
    assert_eq!((link.mac().unwrap(), link.mtu().unwrap()), ([2, 0, 0, 0, 9, 9], 1400));
    assert!(link.set_mtu(7).unwrap_err().to_string().starts_with("eth0: setting the MTU: "));
    assert!(link.is_up().unwrap() && link.is_running().unwrap());
    // The other end's state shows at once, not when the kernel gets round to `IFF_RUNNING`.
    outside.ip("link set eth0 down");
    assert!(link.is_up().unwrap() && !link.is_running().unwrap());
    outside.ip("link set eth0 up");
    assert!(link.is_running().unwrap());
    link.set_up(false).unwrap();
    assert!(!link.is_up().unwrap() && !link.is_running().unwrap());
    link.set_up(true).unwrap();

    let before = link.channels();
    let error = link.set_queues(1000).unwrap_err();
    assert!(
        error.to_string().contains("setting the number of queues: 1000 of at most "),
        "{error}"
    );
    assert_eq!(error.source.raw_os_error(), None, "refused without asking the kernel");
    link.set_queues(1).unwrap();
    link.set_channels(before).unwrap();
    assert_eq!(link.channels(), before);
}
