//! Stations come, move, age and are flushed; a flood of sources ends in a counted reason.

use apps::switch::reasons;
use lookup::bridge::{
    BridgePort, Learned, MacLimits, MacTable, Station, SwitchTables, station_key,
};
use lookup::versions::Patchable;

use crate::bench::{Bench, frame, mac, vlans};

fn four_ports() -> Vec<Option<BridgePort>> {
    let trunk = BridgePort::trunk("p3", Some(1), vlans(&[2, 3]));
    let ports = [
        BridgePort::access("p0", 1),
        BridgePort::access("p1", 1),
        BridgePort::access("p2", 2),
        trunk,
    ];
    ports.into_iter().map(Some).collect()
}

fn ports(sent: &crate::bench::Sent) -> Vec<u16> {
    sent.as_ref().map(|sent| sent.iter().map(|(port, _)| *port).collect()).unwrap_or_default()
}

#[test]
fn a_conversation_is_flooded_once() {
    let mut bench = Bench::new(four_ports(), MacLimits::default(), 100);
    let there = frame(mac(2), mac(1), None);
    let back = frame(mac(1), mac(2), None);
    let sent = bench.one(0, &there);
    assert_eq!(ports(&sent), [1, 3], "unknown: to all of its VLAN but its own port");
    assert_eq!(bench.control(), 1);
    assert_eq!(ports(&bench.one(1, &back)), [0], "the first frame showed where the answer goes");
    bench.control();
    assert_eq!(ports(&bench.one(0, &there)), [1]);
    assert_eq!(bench.control(), 0, "both are known");
    assert_eq!(bench.one(1, &frame(mac(2), mac(1), None)), Err(reasons::SAME_PORT));
    // That was a move, too: station 1 is behind port 1 now.
    assert_eq!(bench.control(), 1);
    assert_eq!(bench.one(1, &back), Err(reasons::SAME_PORT));
    assert_eq!(bench.macs.stats().moved, 1);
    // The same address in another VLAN is another station.
    assert_eq!(ports(&bench.one(2, &frame(mac(1), mac(7), None))), [3]);
    assert_eq!((bench.counters.flooded.get(), bench.counters.copies.get()), (2, 1));
    bench.finish();
}

#[test]
fn tags_come_and_go() {
    let mut bench = Bench::new(four_ports(), MacLimits::default(), 100);
    // From an access port to the trunk: tagged with the VLAN; in the native VLAN without.
    let sent = bench.one(2, &frame(mac(9), mac(1), None)).unwrap();
    assert_eq!(sent, [(3, frame(mac(9), mac(1), Some(2)))]);
    // From the trunk to the access port: the tag goes; the priority stays between trunks only.
    let sent = bench.one(3, &frame(mac(9), mac(2), Some(0xe002))).unwrap();
    assert_eq!(sent, [(2, frame(mac(9), mac(2), None))]);
    // A priority tag on an access port becomes the VLAN's tag, with its priority.
    let sent = bench.one(2, &frame(mac(9), mac(1), Some(0xa000))).unwrap();
    assert_eq!(sent, [(3, frame(mac(9), mac(1), Some(0xa002)))]);
    assert_eq!(bench.one(2, &frame(mac(9), mac(1), Some(2))), Err(reasons::VLAN_NOT_ALLOWED));
    assert_eq!(bench.one(3, &frame(mac(9), mac(2), Some(3))), Err(reasons::FLOOD_NOWHERE));
    // A service tag is not a tag of ours: port 3 takes the frame as one of its native VLAN.
    let mut service = frame(mac(9), mac(4), Some(2));
    service[12..14].copy_from_slice(&[0x88, 0xa8]);
    let sent = bench.one(3, &service).unwrap();
    assert_eq!(sent, [(0, service.clone()), (1, service)]);
    bench.finish();
}

#[test]
fn stations_age_unless_they_are_seen() {
    let limits = MacLimits { stations: 100, ageing_s: 10 };
    let mut bench = Bench::new(four_ports(), limits, 100);
    bench.macs.set_static(1, mac(50), 3).unwrap();
    for station in 0..20 {
        let _ = bench.one(0, &frame([0xff; 6], mac(station), None));
    }
    bench.control();
    assert_eq!(bench.macs.len(), 21);
    for _ in 0..12 {
        bench.now_ns += 1_000_000_000;
        for station in 0..5 {
            let _ = bench.one(0, &frame([0xff; 6], mac(station), None));
        }
        bench.macs.age(bench.now_s(), 1000);
        assert_eq!(bench.control(), 0, "no station is new");
    }
    let mut left: Vec<_> = bench.macs.entries(bench.now_s()).map(|entry| entry.mac).collect();
    left.sort_unstable();
    let mut expected: Vec<_> = (0..5).chain([50]).map(mac).collect();
    expected.sort_unstable();
    assert_eq!(left, expected);
    assert!(bench.macs.entries(bench.now_s()).all(|entry| entry.age_s == 0));
    assert_eq!(bench.macs.stats().aged, 15);
    bench.finish();
}

#[test]
fn flushes_take_what_they_name() {
    let (mut macs, blob, seen) = MacTable::new(MacLimits::default()).unwrap();
    let mut tables = SwitchTables::new(blob, seen, four_ports());
    for i in 0..3000 {
        assert_eq!(macs.learn(1 + (i % 3) as u16, mac(i), (i % 4) as u16, 5), Learned::New);
    }
    macs.set_static(2, mac(7777), 1).unwrap();
    assert_eq!(macs.learn(2, mac(7777), 0, 5), Learned::Static);
    assert_eq!(macs.flush_vlan(2), 1000);
    assert_eq!(macs.flush_port(1), 500);
    assert_eq!(macs.len(), 1501);
    assert!(macs.remove(1, mac(0)) && !macs.remove(1, mac(0)));
    while {
        macs.take_patches(100).iter().for_each(|patch| tables.apply(patch));
        macs.is_rebuilding()
    } {}
    for i in 0..3000u64 {
        let station = tables.station(station_key(1 + (i % 3) as u16, mac(i)));
        let stays = i % 3 != 1 && i % 4 != 1 && i != 0;
        assert_eq!(station.is_known().then(|| station.port()), stays.then_some((i % 4) as u16));
    }
    assert!(tables.station(station_key(2, mac(7777))).is_static());
    assert_eq!(tables.station(station_key(2, mac(1))), Station::NONE);
    assert_eq!(macs.flush_all(), 1499);
    assert_eq!(macs.stats().flushed, 3000);
}

/// A million sources on one port: they replace each other, and the stations of other ports stay.
#[test]
fn a_mac_flood_takes_no_place_of_another_port() {
    let limits = MacLimits { stations: 20_000, ageing_s: 300 };
    let mut bench = Bench::new(four_ports(), limits, 1024);
    for station in 0..10 {
        let _ = bench.one(1, &frame([0xff; 6], mac((1 << 39) | station), None));
    }
    bench.control();
    let sources = 1_000_000u64;
    // Control itself is flooded with as many, workers with a part of them.
    let now_s = bench.now_s();
    for source in 0..sources {
        assert_eq!(bench.macs.learn(1, mac(source), 0, now_s), Learned::New, "{source}");
    }
    assert_eq!(bench.macs.stats().evicted, sources - 20_000 + 10);
    assert_eq!((bench.macs.learned_on(0), bench.macs.learned_on(1)), (19_990, 10));
    while {
        bench.publish();
        bench.macs.is_rebuilding()
    } {}
    for part in 0..50u64 {
        let inputs: Vec<(u16, Vec<u8>)> = (0..256)
            .map(|i| (0, frame(mac((1 << 39) | (i % 10)), mac(sources + part * 256 + i), None)))
            .collect();
        for sent in bench.run(&inputs) {
            assert_eq!(ports(&sent), [1], "stations that were learned are served");
        }
    }
    // Few of them only replace others of their port.
    assert_eq!(bench.control(), 1000);
    assert_eq!(bench.counters.table_full.get(), 50 * 256 - 1000);
    // A station of another port finds a place, and what is sent to it goes to it alone.
    let newcomer = mac(1 << 38);
    let _ = bench.one(2, &frame([0xff; 6], newcomer, None));
    let _ = bench.one(1, &frame([0xff; 6], newcomer, None));
    assert_eq!(bench.control(), 2);
    assert_eq!(ports(&bench.one(3, &frame(newcomer, mac(1 << 37), None))), [1]);
    assert_eq!((bench.macs.learned_on(0), bench.macs.len()), (19_988, 20_000));
    bench.finish();
}

/// A table full of static stations takes no others.
#[test]
fn static_stations_stay() {
    let limits = MacLimits { stations: 16, ageing_s: 300 };
    let mut bench = Bench::new(four_ports(), limits, 100);
    let _ = bench.one(0, &frame([0xff; 6], mac(100), None));
    bench.control();
    for station in 0..16 {
        bench.macs.set_static(1, mac(station), 1).unwrap();
    }
    bench.publish();
    assert!(!bench.macs.station(1, mac(100)).is_known(), "a learned one gives way");
    assert!(bench.macs.set_static(1, mac(16), 1).is_err());
    assert_eq!(bench.macs.learn(1, mac(100), 0, bench.now_s()), Learned::Refused);
    let _ = bench.one(0, &frame([0xff; 6], mac(100), None));
    assert_eq!(bench.control(), 0, "events are useless");
    assert_eq!(bench.counters.table_full.get(), 1);
    bench.finish();
}

/// A port with a limit learns so many stations; what others send is forwarded or dropped.
#[test]
fn a_port_has_its_own_limit() {
    for drops_extra in [false, true] {
        let mut all = four_ports();
        let limited = BridgePort { stations: Some(2), drops_extra, ..BridgePort::access("p0", 1) };
        all[0] = Some(limited.clone());
        let mut bench = Bench::new(all, MacLimits::default(), 100);
        bench.macs.set_static(1, mac(50), 0).unwrap();
        bench.macs.set_static(1, mac(51), 1).unwrap();
        for station in [1, 2, 3, 4] {
            let _ = bench.one(0, &frame(mac(51), mac(station), None));
            bench.control();
        }
        assert_eq!(bench.macs.learned_on(0), 2, "static stations do not count");
        let from = |station| frame(mac(51), mac(station), None);
        for (station, is_extra) in [(1, false), (2, false), (50, false), (3, true), (51, true)] {
            let sent = bench.one(0, &from(station));
            match is_extra && drops_extra {
                true => assert_eq!(sent, Err(reasons::STATION_LIMIT), "{station}"),
                false => assert_eq!(ports(&sent), [1], "{station}"),
            }
        }
        // A station of another port does not move here.
        let _ = bench.one(1, &frame(mac(50), mac(9), None));
        bench.control();
        let _ = bench.one(0, &from(9));
        assert_eq!(bench.control(), 0);
        assert_eq!(bench.macs.station(1, mac(9)).port(), 1);
        // A station that goes makes room for another one.
        assert!(bench.macs.remove(1, mac(1)));
        bench.publish();
        assert_eq!(ports(&bench.one(0, &from(3))), [1]);
        assert_eq!(bench.control(), 1);
        assert!(bench.macs.station(1, mac(3)).is_known());
        // With a smaller limit the oldest go.
        bench.set_port(0, Some(BridgePort { stations: Some(1), ..limited }));
        assert!(
            !bench.macs.station(1, mac(2)).is_known() && bench.macs.station(1, mac(3)).is_known()
        );
        bench.finish();
    }
}

/// Workers that send more than the channel holds lose events, which are counted, and repeat them later.
#[test]
fn a_full_channel_loses_nothing_for_good() {
    let mut bench = Bench::new(four_ports(), MacLimits::default(), 16);
    let inputs: Vec<(u16, Vec<u8>)> =
        (0..200).map(|i| (0, frame([0xff; 6], mac(i), None))).collect();
    let mut rounds = 0;
    while bench.macs.len() < 200 {
        bench.run(&inputs);
        bench.control();
        bench.now_ns += 200_000_000;
        rounds += 1;
        assert!(rounds < 20);
    }
    assert!(bench.counters.events_lost.get() > 0);
    bench.finish();
}

/// A million stations are learned, seen or not, and aged.
#[test]
fn soak_of_a_million_stations() {
    let limits = MacLimits { stations: 1 << 20, ageing_s: 60 };
    let (mut macs, blob, seen) = MacTable::new(limits).unwrap();
    let mut tables = SwitchTables::new(blob, seen, four_ports());
    let mut now_s = 1_000_000;
    for i in 0..1_000_000 {
        assert_eq!(macs.learn(1, mac(i), (i % 4) as u16, now_s), Learned::New);
        if i % 1024 == 0 {
            macs.take_patches(4096).iter().for_each(|patch| tables.apply(patch));
        }
    }
    while {
        macs.take_patches(1 << 16).iter().for_each(|patch| tables.apply(patch));
        macs.is_rebuilding()
    } {}
    let keys: Vec<u64> = (0..1_000_000).map(|i| station_key(1, mac(i))).collect();
    let mut found = vec![0; keys.len()];
    for (keys, found) in keys.chunks(256).zip(found.chunks_mut(256)) {
        tables.lookup(keys, found);
    }
    now_s += 61;
    for (i, station) in found.iter().enumerate() {
        assert!(Station(*station).is_known() && Station(*station).port() == (i % 4) as u16);
        // Every tenth is seen in time.
        if i % 10 == 0 {
            tables.seen().touch(Station(*station).record(), now_s);
        }
    }
    let gone: usize = (0..12).map(|_| macs.age(now_s, 100_000)).sum();
    assert_eq!((gone, macs.len()), (900_000, 100_000));
    macs.take_patches(1 << 20).iter().for_each(|patch| tables.apply(patch));
    for (i, key) in keys.iter().enumerate() {
        assert_eq!(tables.station(*key).is_known(), i % 10 == 0);
    }
}
