//! One version of all tables of a switch, as the data path reads it, and the patches that make the next one.

use std::sync::Arc;

use super::mac::{Seen, Station};
use super::ports::{BridgePort, VLAN_MAX};
use super::storm::{FloodKind, StormBuckets, StormLimits};
use crate::cuckoo::{Cuckoo, CuckooKey};
use crate::versions::Patchable;
use crate::{Blob, blob};

/// One version. The default is that of a switch without ports.
#[derive(Clone, Debug, Default)]
pub struct SwitchTables {
    macs: Blob,
    seen: Seen,
    ports: Vec<Option<BridgePort>>,
    /// By VLAN: the ports that frames of it leave by, in order. Made from `ports`.
    egress: Vec<Arc<[Egress]>>,
    storm: Arc<[StormBuckets]>,
    /// By port: whether it has as many stations as it may have.
    full: Vec<bool>,
    options: SwitchOptions,
}

/// A port that frames of a VLAN leave by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Egress {
    /// The port.
    pub port: u16,
    /// Whether with a tag.
    pub tagged: bool,
}

/// What holds for the whole switch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SwitchOptions {
    /// The station table is full of static stations: events of new ones are useless.
    pub is_full: bool,
    /// The station table is full: a new station takes the place of another one.
    pub replaces: bool,
}

/// One change of [`SwitchTables`].
#[derive(Clone, Debug)]
pub enum SwitchPatch {
    /// Changes of the station table.
    Macs(Vec<blob::Patch>),
    /// Sets a port, or takes it away.
    Port(u16, Option<BridgePort>),
    /// Sets the options.
    Options(SwitchOptions),
    /// Whether a port has as many stations as it may have.
    PortFull(u16, bool),
}

/// What a worker saw: a station that is in no table, or is there with another port.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct StationEvent {
    /// Its VLAN.
    pub vlan: u16,
    /// Its address.
    pub mac: [u8; 6],
    /// The port that its frame came in by.
    pub port: u16,
}

impl SwitchTables {
    /// The tables of a switch with these ports, by number, over a station table ([`super::MacTable::new`]).
    pub fn new(macs: Blob, seen: Seen, ports: Vec<Option<BridgePort>>) -> Self {
        let storm = ports.iter().map(|_| StormBuckets::default()).collect();
        let egress = egress(&ports);
        let options = SwitchOptions::default();
        Self { macs, seen, ports, egress, storm, full: Vec::new(), options }
    }

    /// A port.
    #[inline]
    pub fn port(&self, port: u16) -> Option<&BridgePort> {
        self.ports.get(usize::from(port))?.as_ref()
    }

    /// Whether floods of some port are limited.
    pub fn has_storm_control(&self) -> bool {
        self.ports.iter().flatten().any(|port| port.storm != StormLimits::default())
    }

    /// The ports that frames of a VLAN leave by, in order.
    #[inline]
    pub fn egress(&self, vlan: u16) -> &[Egress] {
        self.egress.get(usize::from(vlan)).map_or(&[], |ports| ports)
    }

    /// The station of each key ([`super::station_key`]); [`Station::NONE`] for one that is not known.
    ///
    /// # Panics
    /// When the slices differ in length.
    #[inline]
    pub fn lookup(&self, keys: &[u64], out: &mut [u64]) {
        match self.stations() {
            Some(table) => table.lookup(keys, out),
            None => out.fill(u64::MISS),
        }
    }

    /// The station table, for those who choose a form of lookup themselves.
    #[inline]
    pub fn stations(&self) -> Option<Cuckoo<'_, u64>> {
        Cuckoo::new(&self.macs)
    }

    /// The station of one key: for tests and traces.
    pub fn station(&self, key: u64) -> Station {
        let mut out = [u64::MISS];
        self.lookup(&[key], &mut out);
        Station(out[0])
    }

    /// When the stations of all versions were seen last.
    #[inline]
    pub fn seen(&self) -> &Seen {
        &self.seen
    }

    /// Whether a port has as many stations as it may have: others are not learned there.
    #[inline]
    pub fn is_port_full(&self, port: u16) -> bool {
        self.full.get(usize::from(port)).is_some_and(|is_full| *is_full)
    }

    /// Whether frames of stations that are not known on a port are dropped there.
    #[inline]
    pub fn drops_extra(&self, port: u16) -> bool {
        self.is_port_full(port) && self.port(port).is_some_and(|record| record.drops_extra)
    }

    /// The options.
    #[inline]
    pub fn options(&self) -> &SwitchOptions {
        &self.options
    }

    /// Whether a frame that came in by `port` may be flooded, or storm control says no.
    #[inline]
    pub fn may_flood(&self, port: u16, kind: FloodKind, now_ns: u64) -> bool {
        let limit = self.port(port).and_then(|record| record.storm.of(kind));
        match (limit, self.storm.get(usize::from(port))) {
            (Some(rate), Some(buckets)) => buckets.take(kind, rate, now_ns),
            _ => true,
        }
    }

    /// The bytes of the station table, for devices.
    pub fn blob(&self) -> &Blob {
        &self.macs
    }
}

impl AsRef<SwitchTables> for SwitchTables {
    fn as_ref(&self) -> &SwitchTables {
        self
    }
}

impl Patchable for SwitchTables {
    type Patch = SwitchPatch;

    /// A port's number must be one of those that the switch was made with; others are left out.
    fn apply(&mut self, patch: &SwitchPatch) {
        match patch {
            SwitchPatch::Macs(patches) => self.macs.apply(patches),
            SwitchPatch::Port(port, record) => {
                let at = usize::from(*port);
                if self.ports.len() <= at {
                    self.ports.resize(at + 1, None);
                }
                self.ports[at].clone_from(record);
                self.egress = egress(&self.ports);
            }
            SwitchPatch::Options(options) => self.options = *options,
            SwitchPatch::PortFull(port, is_full) => {
                let at = usize::from(*port);
                if self.full.len() <= at {
                    self.full.resize(at + 1, false);
                }
                self.full[at] = *is_full;
            }
        }
    }
}

/// Who carries which VLAN.
fn egress(ports: &[Option<BridgePort>]) -> Vec<Arc<[Egress]>> {
    let of = |vlan: u16| -> Arc<[Egress]> {
        let ports = (0u16..).zip(ports).filter_map(|(port, record)| {
            Some(Egress { port, tagged: record.as_ref()?.egress(vlan)? })
        });
        ports.collect()
    };
    (0..=VLAN_MAX).map(of).collect()
}
