//! The station table: which address of which VLAN is behind which port.
//!
//! ```text
//!  worker: source unknown, or behind another port ── StationEvent ─▶ bounded channel ─▶ MacTable::learn
//!  worker: source known ─▶ seen[record] = now, if it is not already            │
//!  control, now and then ─▶ MacTable::age: seen[record] long ago? ─▶ removed   ▼
//!                                             MacTable::take_patches ─▶ versions
//! ```
//!
//! A station's record number is its place in an array of times that all versions share. A worker reads its
//! time with each frame and writes it once a second, so that the line stays with all who read it; the
//! station's entry itself is never written by a worker.
//!
//! In a full table a new station takes the place of the oldest one of the port with the most learned stations, see
//! [`shares`](super::shares). A port may have a limit of its own, beyond which its stations are not learned.
//!
//! The times have the resolution of a second: 802.1Q's ageing time is 10 s to 1,000,000 s (§8.8.3).
//!
//! Thread rule: [`MacTable`] belongs to control; [`Seen`] to everybody.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use super::shares::Shares;
use super::tables::{SwitchOptions, SwitchPatch};
use crate::cuckoo::{CuckooBuilder, CuckooKey, Limits};
use crate::{Blob, Patch, TableError};

/// The key of a station: VLAN above, address below, as it stands in the frame.
#[inline(always)]
pub const fn station_key(vlan: u16, mac: [u8; 6]) -> u64 {
    let [a, b, c, d, e, f] = mac;
    (vlan as u64) << 48 | u64::from_be_bytes([0, 0, a, b, c, d, e, f])
}

/// VLAN and address of a key.
pub const fn split_key(key: u64) -> (u16, [u8; 6]) {
    let [_, _, a, b, c, d, e, f] = key.to_be_bytes();
    ((key >> 48) as u16, [a, b, c, d, e, f])
}

/// What the table says of a station.
///
/// ```text
///  63      49   48     47    32 31     0
/// ┌──────────┬────────┬────────┬────────┐
/// │    0     │ static │  port  │ record │    all ones: not known
/// └──────────┴────────┴────────┴────────┘
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Station(pub u64);

impl Station {
    /// No such station.
    pub const NONE: Station = Station(u64::MISS);

    const fn new(port: u16, is_static: bool, record: u32) -> Self {
        Station((is_static as u64) << 48 | (port as u64) << 32 | record as u64)
    }

    /// Whether there is one.
    #[inline(always)]
    pub const fn is_known(self) -> bool {
        self.0 != u64::MISS
    }

    /// Its port.
    #[inline(always)]
    pub const fn port(self) -> u16 {
        (self.0 >> 32) as u16
    }

    /// Whether it was configured: it does not age and does not move.
    #[inline(always)]
    pub const fn is_static(self) -> bool {
        self.0 >> 48 & 1 == 1
    }

    /// Its number in [`Seen`].
    #[inline(always)]
    pub const fn record(self) -> u32 {
        self.0 as u32
    }
}

/// When each station was seen last, in seconds since 1970, wrapping. Shared by all versions. The
/// default keeps none.
#[derive(Debug, Clone, Default)]
pub struct Seen(Arc<[AtomicU32]>);

impl Seen {
    fn new(records: usize) -> Self {
        Self((0..records).map(|_| AtomicU32::new(0)).collect())
    }

    /// A frame of this station came in. Writes once a second; a number out of range is left out.
    #[inline(always)]
    pub fn touch(&self, record: u32, now_s: u32) {
        if let Some(time) = self.0.get(record as usize)
            && time.load(Ordering::Relaxed) != now_s
        {
            time.store(now_s, Ordering::Relaxed);
        }
    }

    /// Starts loading the time of a station.
    #[inline(always)]
    pub fn prefetch(&self, record: u32) {
        if let Some(time) = self.0.get(record as usize) {
            interleave::prefetch(time);
        }
    }

    pub(super) fn get(&self, record: u32) -> u32 {
        self.0.get(record as usize).map_or(0, |time| time.load(Ordering::Relaxed))
    }

    fn set(&self, record: u32, now_s: u32) {
        if let Some(time) = self.0.get(record as usize) {
            time.store(now_s, Ordering::Relaxed);
        }
    }
}

/// How much the table holds, and for how long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MacLimits {
    /// Stations, static ones among them.
    pub stations: u32,
    /// Seconds after which a station that was not seen is forgotten; 0 keeps all.
    pub ageing_s: u32,
}

impl Default for MacLimits {
    /// A million stations, five minutes (IEEE 802.1Q table 8-6).
    fn default() -> Self {
        Self { stations: 1 << 20, ageing_s: 300 }
    }
}

/// What came of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Learned {
    /// A station more.
    New,
    /// It is behind another port now.
    Moved,
    /// It was known so.
    Known,
    /// It is configured, and stays where it is.
    Static,
    /// Its port has as many stations as it may have, or the table is full of static ones.
    Refused,
}

/// Counters since the start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct MacStats {
    /// Stations learned.
    pub learned: u64,
    /// Stations that changed their port.
    pub moved: u64,
    /// Stations forgotten because they were not seen.
    pub aged: u64,
    /// Stations taken away by a flush or by command.
    pub flushed: u64,
    /// Stations that gave way to new ones in a full table, or to a smaller limit of their port.
    pub evicted: u64,
    /// Stations for which there was no room.
    pub refused: u64,
}

/// A station, for people.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MacEntry {
    /// Its VLAN.
    pub vlan: u16,
    /// Its address.
    pub mac: [u8; 6],
    /// Its port.
    pub port: u16,
    /// Whether it was configured.
    pub is_static: bool,
    /// Seconds since it was seen; 0 for a static one.
    pub age_s: u32,
}

/// The stations, as control changes them.
#[derive(Debug)]
pub struct MacTable {
    index: CuckooBuilder<u64>,
    /// By record: the key of the station, [`FREE`] for none.
    records: Vec<u64>,
    free: Vec<u32>,
    shares: Shares,
    seen: Seen,
    limits: MacLimits,
    /// The record at which ageing goes on.
    cursor: usize,
    stats: MacStats,
    patches: Vec<Patch>,
    /// What the data side knows.
    published: SwitchOptions,
}

/// No key: its VLAN would be 65,535.
const FREE: u64 = u64::MAX;

/// Stations that a table has room for at first.
const FIRST_STATIONS: usize = 4096;

impl MacTable {
    /// An empty table, and the data side's first version of it for [`super::SwitchTables::new`].
    ///
    /// # Errors
    /// The system gives no memory.
    pub fn new(limits: MacLimits) -> Result<(Self, Blob, Seen), TableError> {
        let entries = limits.stations as usize;
        let reserve = entries.min(FIRST_STATIONS);
        let (index, blob) = CuckooBuilder::new(Limits { entries, reserve })?;
        let seen = Seen::new(entries);
        let table = Self {
            index,
            records: Vec::new(),
            free: Vec::new(),
            shares: Shares::default(),
            seen: seen.clone(),
            limits,
            cursor: 0,
            stats: MacStats::default(),
            patches: Vec::new(),
            published: SwitchOptions::default(),
        };
        Ok((table, blob, seen))
    }

    /// A frame of this station came in by `port`.
    pub fn learn(&mut self, vlan: u16, mac: [u8; 6], port: u16, now_s: u32) -> Learned {
        let key = station_key(vlan, mac);
        let known = self.index.get(&key).map(Station);
        match known {
            Some(station) if station.is_static() => return Learned::Static,
            Some(station) if station.port() == port => {
                self.seen.set(station.record(), now_s);
                return Learned::Known;
            }
            _ => {}
        }
        if self.shares.is_at_limit(port) {
            self.stats.refused += 1;
            return Learned::Refused;
        }
        match self.put(key, port, false, now_s) {
            Ok(()) if known.is_some() => {
                self.stats.moved += 1;
                Learned::Moved
            }
            Ok(()) => {
                self.stats.learned += 1;
                Learned::New
            }
            Err(_) => {
                self.stats.refused += 1;
                Learned::Refused
            }
        }
    }

    /// Whether [`MacTable::learn`] would add a station, or move one.
    pub fn would_learn(&self, vlan: u16, mac: [u8; 6], port: u16) -> bool {
        let known = self.station(vlan, mac);
        let is_new = match known.is_known() {
            true => known.port() != port && !known.is_static(),
            false => self.has_room(),
        };
        is_new && !self.shares.is_at_limit(port)
    }

    /// Limits the learned stations of a port. If it has more, the oldest are removed; how many.
    pub fn set_port_limit(&mut self, port: u16, limit: Option<u32>) -> usize {
        self.shares.set_limit(port, limit);
        let mut gone = 0;
        while self.shares.is_over_limit(port) && self.evict(port) {
            gone += 1;
        }
        gone
    }

    /// What is known of a station.
    pub fn station(&self, vlan: u16, mac: [u8; 6]) -> Station {
        self.index.get(&station_key(vlan, mac)).map_or(Station::NONE, Station)
    }

    /// Configures a station; what was learned of it gives way, and in a full table a learned one.
    ///
    /// # Errors
    /// The table is full of static stations.
    pub fn set_static(&mut self, vlan: u16, mac: [u8; 6], port: u16) -> Result<(), TableError> {
        self.put(station_key(vlan, mac), port, true, 0)
    }

    fn put(&mut self, key: u64, port: u16, is_static: bool, now_s: u32) -> Result<(), TableError> {
        let known = self.index.get(&key).map(|station| Station(station).record());
        if known.is_none()
            && self.is_full()
            && let Some(largest) = self.shares.largest(port)
        {
            self.evict(largest);
        }
        let record = match known.or_else(|| self.free.last().copied()) {
            Some(record) => record,
            None if self.records.len() < self.limits.stations as usize => self.records.len() as u32,
            None => {
                let limit = self.limits.stations;
                return Err(TableError::Full { what: "stations", used: limit, limit });
            }
        };
        let station = Station::new(port, is_static, record);
        self.index.insert(key, station.0, &mut self.patches)?;
        if known.is_none() && self.free.pop().is_none() {
            self.records.push(FREE);
        }
        self.records[record as usize] = key;
        self.seen.set(record, now_s);
        self.shares.take(record);
        if !is_static {
            self.shares.push(record, port, now_s);
        }
        Ok(())
    }

    /// Removes the station of a port that gives way to another one; `false` if it has no learned station.
    fn evict(&mut self, port: u16) -> bool {
        let Some(record) = self.shares.oldest(port, &self.seen) else { return false };
        let gone = self.forget(self.records[record as usize]);
        self.stats.evicted += u64::from(gone);
        gone
    }

    /// Takes a station away; `false` if there was none.
    pub fn remove(&mut self, vlan: u16, mac: [u8; 6]) -> bool {
        let found = self.forget(station_key(vlan, mac));
        self.stats.flushed += u64::from(found);
        found
    }

    fn forget(&mut self, key: u64) -> bool {
        let Some(station) = self.index.remove(&key, &mut self.patches) else { return false };
        let record = Station(station).record();
        self.records[record as usize] = FREE;
        self.shares.take(record);
        self.free.push(record);
        true
    }

    /// Forgets the learned stations of a VLAN; how many.
    pub fn flush_vlan(&mut self, vlan: u16) -> usize {
        self.flush(|key, _| split_key(key).0 == vlan)
    }

    /// Forgets the learned stations of a port: it is down, or in other VLANs now; how many.
    pub fn flush_port(&mut self, port: u16) -> usize {
        self.flush(|_, station| station.port() == port)
    }

    /// Forgets the learned stations of one VLAN of a port; how many.
    pub fn flush_port_vlan(&mut self, port: u16, vlan: u16) -> usize {
        self.flush(|key, station| station.port() == port && split_key(key).0 == vlan)
    }

    /// Forgets all learned stations; how many.
    pub fn flush_all(&mut self) -> usize {
        self.flush(|_, _| true)
    }

    fn flush(&mut self, which: impl Fn(u64, Station) -> bool) -> usize {
        let entries = self.index.iter().map(|(key, station)| (key, Station(station)));
        let learned =
            entries.filter(|(key, station)| !station.is_static() && which(*key, *station));
        let keys: Vec<u64> = learned.map(|(key, _)| key).collect();
        let gone = keys.into_iter().filter(|key| self.forget(*key)).count();
        self.stats.flushed += gone as u64;
        gone
    }

    /// Looks at the next `records` stations and forgets those that were not seen for the ageing time; how
    /// many. Call it so that the whole table has its turn several times in that time.
    pub fn age(&mut self, now_s: u32, records: usize) -> usize {
        if self.limits.ageing_s == 0 || self.records.is_empty() {
            return 0;
        }
        let mut gone = 0;
        for _ in 0..records.min(self.records.len()) {
            self.cursor = if self.cursor + 1 < self.records.len() { self.cursor + 1 } else { 0 };
            let key = self.records[self.cursor];
            // Workers' time may be a little ahead of control's.
            let age = now_s.wrapping_sub(self.seen.get(self.cursor as u32)) as i32;
            if key == FREE || age < 0 || age as u32 <= self.limits.ageing_s {
                continue;
            }
            let is_static =
                self.index.get(&key).is_some_and(|station| Station(station).is_static());
            gone += usize::from(!is_static && self.forget(key));
        }
        self.stats.aged += gone as u64;
        gone
    }

    /// Changes the limits. Fewer stations than there are: they stay until they age or give way. More than at the start:
    /// the times of stations have their room, so this is refused.
    ///
    /// # Errors
    /// More stations than at the start.
    pub fn set_limits(&mut self, limits: MacLimits) -> Result<(), TableError> {
        let capacity = self.seen.0.len();
        if limits.stations as usize > capacity {
            let limit = u32::try_from(capacity).unwrap_or(u32::MAX);
            return Err(TableError::Full { what: "stations", used: limits.stations, limit });
        }
        self.limits = limits;
        Ok(())
    }

    /// What is to be published: all changes since the last call. Goes on with a table that is built aside,
    /// by `lines` lines.
    pub fn take_patches(&mut self, lines: usize) -> Vec<SwitchPatch> {
        // Without memory for another table the one that serves goes on.
        let _ = self.index.step(lines, &mut self.patches);
        let mut patches = Vec::new();
        if !self.patches.is_empty() {
            patches.push(SwitchPatch::Macs(std::mem::take(&mut self.patches)));
        }
        let options = SwitchOptions { is_full: !self.has_room(), replaces: self.is_full() };
        if options != self.published {
            self.published = options;
            patches.push(SwitchPatch::Options(options));
        }
        let full = self.shares.changed();
        patches.extend(full.map(|(port, is_full)| SwitchPatch::PortFull(port, is_full)));
        patches
    }

    /// Whether a table is built aside, so that [`MacTable::take_patches`] has more to do.
    pub fn is_rebuilding(&self) -> bool {
        self.index.is_rebuilding()
    }

    /// Whether a new station needs the place of another one.
    pub fn is_full(&self) -> bool {
        self.len() >= self.limits.stations as usize
    }

    /// Whether a new station finds a place: a free one, or that of a learned one.
    fn has_room(&self) -> bool {
        !self.is_full() || self.shares.len() > 0
    }

    /// Learned stations of a port.
    pub fn learned_on(&self, port: u16) -> usize {
        self.shares.count(port) as usize
    }

    /// Stations.
    pub fn len(&self) -> usize {
        self.index.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.index.is_empty()
    }

    /// What the table may hold.
    pub fn limits(&self) -> MacLimits {
        self.limits
    }

    /// Counters.
    pub fn stats(&self) -> MacStats {
        self.stats
    }

    /// All stations, in no order.
    pub fn entries(&self, now_s: u32) -> impl Iterator<Item = MacEntry> {
        self.index.iter().map(move |(key, station)| {
            let ((vlan, mac), station) = (split_key(key), Station(station));
            let age = now_s.wrapping_sub(self.seen.get(station.record())) as i32;
            let age_s = if station.is_static() { 0 } else { age.max(0) as u32 };
            MacEntry { vlan, mac, port: station.port(), is_static: station.is_static(), age_s }
        })
    }
}
