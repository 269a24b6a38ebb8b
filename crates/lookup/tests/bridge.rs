//! The station table as control and data path use it together, at the size that it is made for.

use lookup::bridge::{
    BridgePort, Learned, MacLimits, MacTable, Station, SwitchTables, station_key,
};
use lookup::versions::{Patchable, versions};

/// As many stations as the table holds.
const STATIONS: u32 = 1 << 20;

fn mac(number: u32) -> [u8; 6] {
    let [a, b, c, d] = number.wrapping_mul(0x9e37_79b1).to_be_bytes();
    [2, (number >> 24) as u8, a, b, c, d]
}

fn tables(limits: MacLimits) -> (MacTable, SwitchTables) {
    let (macs, blob, seen) = MacTable::new(limits).unwrap();
    let ports = (0..4).map(|port| Some(BridgePort::access(format!("p{port}"), 1))).collect();
    (macs, SwitchTables::new(blob, seen, ports))
}

fn publish(macs: &mut MacTable, tables: &mut SwitchTables) {
    loop {
        macs.take_patches(1 << 14).iter().for_each(|patch| tables.apply(patch));
        if !macs.is_rebuilding() {
            return;
        }
    }
}

/// Ten million sources come; the first million are kept. Half of them are seen again, the others age, and others
/// take their place.
#[test]
fn a_flood_of_ten_million_fills_the_table_and_ageing_empties_it() {
    let limits = MacLimits { stations: STATIONS, ageing_s: 300 };
    let (mut macs, mut tables) = tables(limits);
    let mut refused = 0;
    for number in 0..10_000_000u32 {
        match macs.learn(1, mac(number), (number % 4) as u16, 1000) {
            Learned::New => assert!(number < STATIONS, "{number}"),
            Learned::Refused => refused += 1,
            other => panic!("{number}: {other:?}"),
        }
        if number % 4096 == 0 {
            macs.take_patches(1 << 14).iter().for_each(|patch| tables.apply(patch));
        }
    }
    publish(&mut macs, &mut tables);
    assert_eq!((macs.len(), refused), (STATIONS as usize, 10_000_000 - STATIONS));
    assert!(macs.is_full() && tables.options().is_full);
    let keys: Vec<u64> = (0..2 * STATIONS).map(|number| station_key(1, mac(number))).collect();
    let mut found = vec![0; keys.len()];
    tables.lookup(&keys, &mut found);
    for (number, station) in found.iter().enumerate() {
        let station = Station(*station);
        assert_eq!(station.is_known(), number < STATIONS as usize, "{number}");
        if station.is_known() {
            assert_eq!(usize::from(station.port()), number % 4);
        }
    }
    // Every second one is seen 200 s later.
    for station in found.iter().take(STATIONS as usize).step_by(2) {
        tables.seen().touch(Station(*station).record(), 1200);
    }
    let mut aged = 0;
    for slice in 0..32 {
        aged += macs.age(1301 + slice, STATIONS as usize / 32);
        macs.take_patches(1 << 14).iter().for_each(|patch| tables.apply(patch));
    }
    publish(&mut macs, &mut tables);
    assert_eq!((aged, macs.len()), (STATIONS as usize / 2, STATIONS as usize / 2));
    tables.lookup(&keys, &mut found);
    for (number, station) in found.iter().enumerate() {
        let kept = number < STATIONS as usize && number % 2 == 0;
        assert_eq!(Station(*station).is_known(), kept, "{number}");
    }
    // There is room again, and what comes is found.
    for number in 0..STATIONS / 2 {
        let learned = macs.learn(1, mac(20_000_000 + number), 3, 1400);
        assert_eq!(learned, Learned::New, "{number}");
    }
    publish(&mut macs, &mut tables);
    assert!(
        (0..STATIONS / 2).all(|n| tables.station(station_key(1, mac(20_000_000 + n))).port() == 3)
    );
    assert_eq!(macs.age(5000, usize::MAX), STATIONS as usize);
    publish(&mut macs, &mut tables);
    assert!(macs.is_empty() && keys.iter().all(|key| !tables.station(*key).is_known()));
}

/// While control learns, moves and forgets, a reader finds each station that stays, always, where it is.
#[test]
fn lookups_from_another_thread_never_miss_who_stays() {
    let (mut macs, first) = tables(MacLimits { stations: 1 << 16, ageing_s: 0 });
    let (mut writer, reader) = versions(first);
    let stay: Vec<u64> = (0..4096).map(|number| station_key(1, mac(number))).collect();
    for number in 0..4096 {
        macs.learn(1, mac(number), 1, 5);
    }
    writer.publish(macs.take_patches(1 << 14));
    let stop = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        let looker = scope.spawn(|| {
            let (mut rounds, mut out) = (0u64, vec![0; stay.len()]);
            while !stop.load(std::sync::atomic::Ordering::Relaxed) || rounds < 3 {
                reader.pin().lookup(&stay, &mut out);
                assert!(out.iter().all(|station| Station(*station).port() == 1));
                rounds += 1;
            }
            rounds
        });
        for round in 0..200u32 {
            for number in 0..256 {
                macs.learn(1, mac(100_000 + round * 256 + number), 2, 5);
                if round > 100 {
                    macs.remove(1, mac(100_000 + (round - 100) * 256 + number));
                }
            }
            writer.publish(macs.take_patches(256));
        }
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
        assert!(looker.join().unwrap() >= 3);
    });
    let known = (100_000 + 100 * 256..100_000 + 200 * 256).map(|n| station_key(1, mac(n)));
    assert!(known.into_iter().all(|key| writer.current().station(key).port() == 2));
}
