//! Tables of real routers turned into flows (`../shared/data/openflow`: Stanford's backbone, Internet2): the switch sends what a
//! plain walk over the tables says, and Open vSwitch, with the same flows, the same bytes.

mod router;
mod tables;

use flowtable::Settings;
use openflow::message::Body;
use openflow::{Field, Version};
use packet::IpProtocol;
use packet::checksum::{finish, internet_checksum, partial_sum, pseudo_header_v4};

use self::router::{Packet, Router, Sent};
use crate::ovs::{Frames, Ovs, clear, pass, with_switch};
use crate::random::{Random, fresh};
use crate::world::World;

/// Packets of each router that both switches get.
const PACKETS: usize = 120;

const STANFORD: [&str; 7] = ["bbra", "bbrb", "boza", "goza", "poza", "roza", "yoza"];
const INTERNET2: [&str; 5] = ["atla", "chic", "kans", "losa", "seat"];

fn frame(packet: &Packet) -> Vec<u8> {
    let mut upper = Vec::new();
    let at = match packet.protocol {
        6 | 17 => {
            upper.extend(packet.src_port.to_be_bytes());
            upper.extend(packet.dst_port.to_be_bytes());
            match packet.protocol {
                6 => upper.extend([0, 0, 0, 1, 0, 0, 0, 0, 0x50, 0x10, 1, 0, 0, 0, 0, 0]),
                _ => upper.extend([0, 8, 0, 0]),
            }
            if packet.protocol == 6 { 16 } else { 6 }
        }
        _ => {
            upper.extend([8, 0, 0, 0, 0, 1, 0, 1]);
            2
        }
    };
    let protocol = IpProtocol(packet.protocol);
    let pseudo = match packet.protocol {
        1 => 0,
        _ => pseudo_header_v4(packet.src.into(), packet.dst.into(), protocol, upper.len() as u16),
    };
    let sum = finish(pseudo + partial_sum(&upper)).to_be_bytes();
    upper[at..at + 2].copy_from_slice(&sum);
    let mut out = vec![2, 0, 0, 0, 0, 0xfe, 2, 0, 0, 0, 0, 1];
    if let Some(vlan) = packet.vlan {
        out.extend([0x81, 0]);
        out.extend(vlan.to_be_bytes());
    }
    out.extend([8, 0]);
    let start = out.len();
    out.extend([0x45, 0, 0, 20 + upper.len() as u8, 0, 7, 0x40, 0, 64, packet.protocol, 0, 0]);
    out.extend(packet.src.to_be_bytes());
    out.extend(packet.dst.to_be_bytes());
    let sum = internet_checksum(&out[start..]).to_be_bytes();
    out[start + 10..start + 12].copy_from_slice(&sum);
    out.extend(upper);
    out.resize(out.len().max(60), 0);
    out
}

/// Packets for the routes, with what the lines of lists look at.
fn packets(random: &mut Random, router: &Router, count: usize) -> Vec<Packet> {
    let routes: Vec<_> = router.routes.keys().copied().collect();
    let rules: Vec<_> = router.lists.values().flatten().collect();
    let mut vlans: Vec<_> = router.interfaces.iter().map(|own| own.vlan).collect();
    // Half of them by interfaces with lists.
    let with_list = |own: &&router::Interface| own.list_in.is_some();
    let lists: Vec<_> = router.interfaces.iter().filter(with_list).map(|own| own.vlan).collect();
    vlans.push(None);
    let mut one = || {
        let (prefix, len) = random.of(&routes);
        let address = |random: &mut Random, (value, mask): router::Masked| {
            value | random.next() as u32 & !mask
        };
        let with_list = !lists.is_empty() && random.one_in(2);
        let mut packet = Packet {
            vlan: random.of(if with_list { &lists } else { &vlans }),
            src: random.next() as u32,
            dst: address(random, (prefix, router::mask(len))),
            protocol: random.of(&[6, 17, 1]),
            src_port: random.of(&[22, 80, 1025]),
            dst_port: random.of(&[22, 25, 80, 135, 137, 445, 1434, 40000]),
        };
        if !rules.is_empty() && !random.one_in(4) {
            let rule = random.of(&rules);
            packet.src = address(random, rule.src);
            packet.protocol = rule.protocol.unwrap_or(packet.protocol);
            if random.one_in(2) {
                packet.dst = address(random, rule.dst);
            }
            if !rule.dst_ports.is_empty() {
                packet.dst_port = random.of(&rule.dst_ports);
            }
            if !rule.src_ports.is_empty() {
                packet.src_port = random.of(&rule.src_ports);
            }
        }
        if packet.protocol == 1 {
            (packet.src_port, packet.dst_port) = (0, 0);
        }
        packet
    };
    (0..count).map(|_| one()).collect()
}

/// What a frame that was sent says of its way.
fn sent(frames: &Frames) -> Vec<Sent> {
    let mut out = Vec::new();
    for (at, frames) in frames.iter().enumerate() {
        for frame in frames {
            let mac = frame[..6].iter().fold(0, |mac, byte| mac << 8 | u64::from(*byte));
            let tci = u16::from_be_bytes([frame[14], frame[15]]);
            out.push((at as u32 + 1, mac, (frame[12..14] == [0x81, 0]).then_some(tci)));
        }
    }
    out
}

/// Flows of routers into both; how many frames left.
fn run(names: &[&str], of: fn(&str) -> Option<Router>) -> Option<usize> {
    let routers: Vec<_> =
        names.iter().map(|name| Some((*name, of(name)?))).collect::<Option<_>>()?;
    let mut ovs = Ovs::start(Version::V13);
    let (seed, mut total) = (fresh(), 0);
    for (name, router) in routers {
        let mut random = Random(seed);
        let mut world = World::new(Settings::of_13(3), "auto");
        let flows = router.flows();
        for flow in &flows {
            let done = world.control.flow_mod(flow, Version::V13, 1);
            done.unwrap_or_else(|error| panic!("{name}: {error}: {flow:?}"));
        }
        assert_eq!(world.control.len(), flows.len(), "no two of them are the same");
        world.publish();
        let packets = packets(&mut random, &router, 10 * PACKETS);
        let mut left = 0;
        for packet in &packets {
            let ours = sent(&pass(&mut world, &[frame(packet)]));
            let wanted: Vec<Sent> = router.forward(packet).into_iter().collect();
            assert_eq!(ours, wanted, "{name}, seed {seed}: {packet:?}");
            left += ours.len();
        }
        println!(
            "{name}: {} routes, {} lines of lists and {} left out, {} flows; {left} of {} packets leave",
            router.routes.len(),
            router.lists.values().map(Vec::len).sum::<usize>(),
            router.left_out,
            flows.len(),
            packets.len()
        );
        assert!(left > packets.len() / 10, "{name}: {left}");
        total += left;
        let Some(ovs) = &mut ovs else { continue };
        with_switch(ovs, Version::V13, |ovs| {
            clear(ovs, Version::V13)?;
            ovs.requests(flows.iter().cloned().map(Body::FlowMod))?;
            for packet in &packets[..PACKETS] {
                let frames = [frame(packet)];
                let (ours, theirs) = (pass(&mut world, &frames), ovs.pass(&frames)?);
                if ours != theirs {
                    let trace = ovs.trace(&frames[0])?;
                    panic!("{name}, seed {seed}: {packet:?}\n{ours:02x?}\n{theirs:02x?}\n{trace}");
                }
            }
            Ok(())
        });
    }
    Some(total)
}

#[test]
fn routers_of_stanford_as_flows() {
    run(&STANFORD, tables::stanford);
}

#[test]
fn routers_of_internet2_as_flows() {
    run(&INTERNET2, tables::internet2);
}

/// The lists of a router without routes: every line of them, alone.
#[test]
fn lines_of_lists_are_what_they_say() {
    let text = "access-list 7 deny   10.1.0.0 0.0.16.255\naccess-list 7 permit any\n\
                ip access-list extended out\n permit tcp any range 20 21 host 10.0.0.1 eq www log\n deny   ip any any\n\
                interface Vlan12\n ip access-group 7 in\n ip access-group out out\n";
    let router = tables::of_text(text, "10.0.0.0/8 10.0.0.2 Vlan12\n");
    let packet = |src, src_port| Packet {
        vlan: Some(12),
        src,
        dst: 0x0a00_0001,
        protocol: 6,
        src_port,
        dst_port: 80,
    };
    let way = Some((2, 0x0200_0a00_0002, Some(12)));
    assert_eq!(router.forward(&packet(0x0a02_0003, 20)), way);
    assert_eq!(router.forward(&packet(0x0a02_0003, 22)), None, "the port");
    assert_eq!(router.forward(&packet(0x0a01_10ff, 21)), None, "the list at the entry");
    let flows = router.flows();
    let of_table = |table: u8| flows.iter().filter(|flow| flow.table == table).count();
    assert_eq!([of_table(0), of_table(1), of_table(2)], [5, 2, 5]);
    let port = flows.iter().filter(|flow| flow.matches.exact(Field::TcpSrc).is_some()).count();
    assert_eq!(port, 2, "one for each port of a range");
}
