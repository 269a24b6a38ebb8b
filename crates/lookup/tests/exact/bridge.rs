//! The station table as control and data path use it together: learning and ageing, at the size that it is made for.

use std::collections::HashMap;

use lookup::bridge::{
    BridgePort, Learned, MacLimits, MacTable, Station, SwitchPatch, SwitchTables, split_key,
    station_key,
};
use lookup::versions::Patchable;
use lookup::{Patch, TableError};

use crate::suite::{Table, Visit};

/// Stations by key; the value is the port.
pub(crate) struct Stations(MacTable);

impl Stations {
    fn port(&self, key: u64) -> Option<u64> {
        let (vlan, mac) = split_key(key);
        Some(self.0.station(vlan, mac)).filter(|station| station.is_known()).map(port)
    }
}

fn port(station: Station) -> u64 {
    match station.is_known() {
        true => u64::from(station.port()),
        false => Stations::MISS,
    }
}

impl Table for Stations {
    type Key = u64;
    type Value = u64;
    type Image = SwitchTables;
    const MISS: u64 = u64::MAX;
    const WHAT: &str = "stations";
    const FORMS: usize = 2;
    const EXTREMES: &[u64] = &[station_key(4094, [255; 6]), station_key(0, [255; 6])];

    /// It chooses its first room and its seed itself.
    fn new(entries: usize, _reserve: usize, _seed: u64) -> (Self, SwitchTables) {
        let (macs, tables) = tables(MacLimits { stations: entries as u32, ageing_s: 0 });
        (Self(macs), tables)
    }
    /// Addresses in one of a few VLANs.
    fn key(number: u64) -> u64 {
        station_key((number % 7) as u16, (number / 7).to_be_bytes()[2..].try_into().unwrap())
    }
    fn value(number: u64) -> u64 {
        number % 1000
    }
    fn insert(
        &mut self,
        key: u64,
        value: u64,
        patches: &mut Vec<SwitchPatch>,
    ) -> Result<Option<u64>, TableError> {
        let (known, (vlan, mac)) = (self.port(key), split_key(key));
        if known.is_none() && self.0.is_full() {
            // A station would give way: the other tables refuse.
            let (used, limit) = (self.0.len() as u32, self.0.limits().stations);
            return Err(TableError::Full { what: Self::WHAT, used, limit });
        }
        let learned = self.0.learn(vlan, mac, value as u16, 5);
        patches.extend(self.0.take_patches(0));
        let expected = match known {
            None => Learned::New,
            Some(port) if port == value => Learned::Known,
            Some(_) => Learned::Moved,
        };
        assert_eq!(learned, expected);
        Ok(known)
    }
    fn remove(&mut self, key: u64, patches: &mut Vec<SwitchPatch>) -> Option<u64> {
        let (known, (vlan, mac)) = (self.port(key), split_key(key));
        assert_eq!(self.0.remove(vlan, mac), known.is_some());
        patches.extend(self.0.take_patches(0));
        known
    }
    fn step(&mut self, lines: usize, patches: &mut Vec<SwitchPatch>) -> bool {
        patches.extend(self.0.take_patches(lines));
        self.0.is_rebuilding()
    }
    fn get(&self, key: u64) -> Option<u64> {
        self.port(key)
    }
    fn len(&self) -> usize {
        self.0.len()
    }
    fn entries(&self) -> HashMap<u64, u64> {
        let entry = |entry: lookup::bridge::MacEntry| {
            (station_key(entry.vlan, entry.mac), u64::from(entry.port))
        };
        self.0.entries(5).map(entry).collect()
    }
    fn is_whole(patch: &SwitchPatch) -> bool {
        matches!(patch, SwitchPatch::Macs(patches)
            if patches.iter().any(|patch| matches!(patch, Patch::Replace(_))))
    }
    fn forms(image: &SwitchTables, visit: Visit<'_, u64, u64>) {
        visit("best", &|keys, out| {
            image.lookup(keys, out);
            out.iter_mut().for_each(|found| *found = port(Station(*found)));
        });
        visit("one", &|keys, out| {
            assert_eq!(keys.len(), out.len());
            keys.iter().zip(out).for_each(|(key, out)| *out = port(image.station(*key)));
        });
    }
}

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

/// Four million sources come; the last million are kept. Half of them are seen again, the others age, and others
/// take their place.
#[test]
fn a_flood_of_four_million_fills_the_table_and_ageing_empties_it() {
    let limits = MacLimits { stations: STATIONS, ageing_s: 300 };
    let (mut macs, mut tables) = tables(limits);
    for number in (0..4 * STATIONS).rev() {
        assert_eq!(macs.learn(1, mac(number), (number % 4) as u16, 1000), Learned::New, "{number}");
        if number % 4096 == 0 {
            macs.take_patches(1 << 14).iter().for_each(|patch| tables.apply(patch));
        }
    }
    publish(&mut macs, &mut tables);
    assert_eq!((macs.len(), macs.stats().evicted), (STATIONS as usize, 3 * u64::from(STATIONS)));
    assert!((0..4).all(|port| macs.learned_on(port) == STATIONS as usize / 4));
    assert!(macs.is_full() && tables.options().replaces && !tables.options().is_full);
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
