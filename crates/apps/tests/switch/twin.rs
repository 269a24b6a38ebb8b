//! Random frames on random ports through the pipeline and through the plain switch: the same bytes on the same
//! ports, the same reasons, and the same events, while stations are learned.

use apps::switch::reference::Reference;
use lookup::bridge::{BridgePort, MacLimits, PortMode, StationEvent};
use proptest::prelude::*;

use crate::bench::{Bench, frame, mac, vlans};

struct Random(u64);

impl Random {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        chunk::hash::fmix64(self.0) % n
    }
}

fn port(random: &mut Random, number: usize) -> Option<BridgePort> {
    let vlan = |random: &mut Random| [1, 1, 2, 3, 4094][random.below(5) as usize];
    let set = |random: &mut Random| {
        let all = [1, 2, 3, 4094];
        vlans(&all.into_iter().filter(|_| random.below(3) > 0).collect::<Vec<_>>())
    };
    let native = match random.below(2) {
        0 => None,
        _ => Some(vlan(random)),
    };
    let mode = match random.below(5) {
        0 | 1 => PortMode::Access(vlan(random)),
        _ => PortMode::Trunk { native, allowed: set(random) },
    };
    let (up, learning) = (random.below(10) > 0, random.below(10) > 0);
    let stations = (random.below(4) == 0).then(|| random.below(4) as u32);
    let access = BridgePort::access(format!("p{number}"), 1);
    let drops_extra = random.below(2) == 0;
    let record = BridgePort { up, learning, mode, stations, drops_extra, ..access };
    (random.below(12) > 0).then_some(record)
}

fn random_frame(random: &mut Random) -> Vec<u8> {
    let address = |random: &mut Random| match random.below(24) {
        0 => [0; 6],
        1 => [0xff; 6],
        2 => [0x01, 0x80, 0xc2, 0, 0, random.below(20) as u8],
        3 => [0x01, 0, 0x5e, 0, 0, random.below(4) as u8],
        _ => mac(random.below(12)),
    };
    let id = [0, 1, 1, 2, 3, 4094, 4095, 700][random.below(8) as usize];
    let tag = (random.below(5) < 3).then(|| (random.below(16) as u16) << 12 | id);
    let dst = address(random);
    // Bad sources are for the tests, not for most of the frames.
    let src = if random.below(8) == 0 { address(random) } else { mac(random.below(12)) };
    let mut bytes = frame(dst, src, tag);
    match random.below(20) {
        0 => bytes.truncate(random.below(20) as usize),
        1 => bytes.truncate(14 + random.below(6) as usize),
        2 => bytes[13] = random.below(256) as u8,
        3 => bytes.extend(vec![7; random.below(3000) as usize]), // chains of cells too
        _ => {}
    }
    bytes
}

proptest! {
    #![proptest_config(ProptestConfig { max_shrink_iters: 0, ..ProptestConfig::default() })]

    #[test]
    fn the_switch_does_what_the_plain_switch_does(seed: u64) {
        let mut random = Random(seed);
        let ports: Vec<_> = (0..2 + random.below(7) as usize).map(|n| port(&mut random, n)).collect();
        let stations = [3, 30, 1000][random.below(3) as usize];
        let limits = MacLimits { stations, ageing_s: 300 };
        let mut bench = Bench::new(ports.clone(), limits, 10_000);
        let mut reference = Reference { ports, room: stations as usize, ..Reference::default() };
        if random.below(2) == 0 {
            let (vlan, port) = (1, random.below(4) as u16);
            bench.macs.set_static(vlan, mac(5), port).unwrap();
            reference.stations.insert((vlan, mac(5)), (port, true));
            bench.publish();
        }
        bench.publish();
        for _ in 0..6 {
            let inputs: Vec<(u16, Vec<u8>)> = (0..random.below(80))
                .map(|_| (random.below(10) as u16, random_frame(&mut random)))
                .collect();
            let seen = bench.run(&inputs);
            let mut wanted: Vec<StationEvent> = Vec::new();
            for ((port, bytes), seen) in inputs.iter().zip(seen) {
                let expected = reference.outcome(*port, bytes, bench.now_s());
                prop_assert_eq!(&seen, &expected.sent, "port {} {:02x?}\n{:?}", port, bytes, reference);
                wanted.extend(expected.event.filter(|event| !wanted.contains(event)));
            }
            // The same events in the same order. Where two events share a slot of the table of recent events, one
            // may come again.
            let events = bench.take_events();
            let mut first: Vec<StationEvent> = Vec::new();
            for event in &events {
                if !first.contains(event) {
                    first.push(*event);
                }
            }
            prop_assert_eq!(&first, &wanted);
            prop_assert!(events.len() <= 2 * wanted.len(), "{} events for {}", events.len(), wanted.len());
            let now_s = bench.now_s();
            for event in events {
                let learned = bench.macs.learn(event.vlan, event.mac, event.port, now_s);
                prop_assert_eq!(learned, reference.learn(event, now_s));
            }
            bench.publish();
            // A port changes; what was learned there stays, and must misdirect nothing.
            if random.below(3) == 0 && !reference.ports.is_empty() {
                let number = random.below(reference.ports.len() as u64) as usize;
                let record = port(&mut random, number);
                bench.set_port(number as u16, record.clone());
                reference.ports[number] = record;
                reference.shed(number as u16);
            }
            let mut kept: Vec<_> = bench.macs.entries(now_s).map(|entry| (entry.vlan, entry.mac, entry.port)).collect();
            let mut wanted: Vec<_> = reference.stations.iter().map(|(key, to)| (key.0, key.1, to.0)).collect();
            kept.sort_unstable();
            wanted.sort_unstable();
            prop_assert_eq!(kept, wanted);
            bench.now_ns += 1_000_000_000;
        }
        bench.finish();
    }
}
