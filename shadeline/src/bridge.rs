//! What control does for a switch: ports, and the stations behind them.
//!
//! ```text
//!  bridge_out ─ StationEvent ─▶ Bridge::learn ┐
//!  time ──────────────────────▶ Bridge::age   ├─▶ Bridge::take_patches ─▶ Plane::publish
//!  links, file, `ctl clear` ──▶ flush, apply  ┘
//! ```
//!
//! Threads: the steward's; over captures, the receive queue's ([`offline`]).

pub(crate) mod offline;

use std::time::Duration;

use control::api::{MacRow, SwitchTotals};
use control::config::{Config, Station as Configured};
use lookup::bridge::{
    BridgePort, Learned, MacLimits, MacTable, PortMode, Seen, Station, StationEvent, SwitchPatch,
    SwitchTables,
};

use crate::failure::Failure;
use crate::wiring::{self, Interfaces};

/// Lines that a table that is built aside grows by at each publish: some milliseconds.
const BUILD_LINES: usize = 1 << 14;

/// Stations that are looked at for their age at once: some milliseconds.
const AGE_RECORDS: usize = 1 << 16;

/// The switch as control sees it.
pub(crate) struct Bridge {
    macs: MacTable,
    /// By number, as they are published.
    ports: Vec<BridgePort>,
    changed: Vec<SwitchPatch>,
    /// Static stations: VLAN, address, port.
    fixed: Vec<(u16, [u8; 6], u16)>,
    ageing: Duration,
    /// When ageing last had a turn, seconds since 1970.
    aged_s: u32,
}

impl Bridge {
    /// The switch of a configuration, and the first version of its tables. `shared` has the workers note when
    /// stations were seen.
    ///
    /// # Errors
    /// No memory.
    pub(crate) fn new(
        config: &Config,
        interfaces: &Interfaces,
        shared: bool,
    ) -> Result<(Self, SwitchTables), Failure> {
        let (macs, blob, seen) = MacTable::new(limits(config)).map_err(Failure::other)?;
        let ports: Vec<_> = (0..interfaces.physical() as u16)
            .map(|number| port(config, interfaces, number))
            .collect();
        let records = ports.iter().cloned().map(Some).collect();
        let seen = if shared { seen } else { Seen::default() };
        let tables = SwitchTables::new(blob, seen, records);
        let mut bridge = Self {
            macs,
            ports,
            changed: Vec::new(),
            fixed: Vec::new(),
            ageing: config.switch.ageing,
            aged_s: 0,
        };
        bridge.fix(config, interfaces);
        Ok((bridge, tables))
    }

    /// A worker saw a station.
    pub(crate) fn learn(&mut self, event: StationEvent, now_s: u32) -> Learned {
        self.macs.learn(event.vlan, event.mac, event.port, now_s)
    }

    /// A port's link came or went. Its stations go with it: they may come back elsewhere.
    pub(crate) fn link(&mut self, number: u16, up: bool) {
        let Some(port) = self.ports.get_mut(usize::from(number)) else { return };
        if port.up != up {
            port.up = up;
            self.changed.push(SwitchPatch::Port(number, Some(port.clone())));
            if !up {
                self.macs.flush_port(number);
            }
        }
    }

    /// Applies what differs in a configuration with the same ports.
    pub(crate) fn apply(&mut self, config: &Config, interfaces: &Interfaces) {
        for number in 0..self.ports.len() as u16 {
            let before = &self.ports[usize::from(number)];
            let port = BridgePort { up: before.up, ..port(config, interfaces, number) };
            if port == *before {
                continue;
            }
            if port.mode != before.mode {
                self.macs.flush_port(number);
            }
            self.changed.push(SwitchPatch::Port(number, Some(port.clone())));
            self.ports[usize::from(number)] = port;
        }
        self.fix(config, interfaces);
        self.ageing = config.switch.ageing;
        let limits = MacLimits { stations: self.macs.limits().stations, ..limits(config) };
        // As many stations as there were: what there is room for is told at the start.
        if let Err(error) = self.macs.set_limits(limits) {
            tracing::error!("ageing stays as it was: {error}");
        }
    }

    /// Makes the static stations those of the configuration.
    fn fix(&mut self, config: &Config, interfaces: &Interfaces) {
        let fixed: Vec<_> =
            config.stations.iter().filter_map(|s| self.station(s, interfaces)).collect();
        for (vlan, mac, _) in self.fixed.iter().filter(|old| !fixed.contains(old)) {
            self.macs.remove(*vlan, *mac);
        }
        for (vlan, mac, port) in &fixed {
            // The configuration was checked to have room for them.
            if let Err(error) = self.macs.set_static(*vlan, *mac, *port) {
                tracing::warn!("station {} left out: {error}", wiring::mac_text(*mac));
            }
        }
        self.fixed = fixed;
    }

    fn station(
        &self,
        station: &Configured,
        interfaces: &Interfaces,
    ) -> Option<(u16, [u8; 6], u16)> {
        let port = interfaces.number(&station.port)?;
        let untagged = match self.ports.get(usize::from(port))?.mode {
            PortMode::Access(vlan) => Some(vlan),
            PortMode::Trunk { native, .. } => native,
        };
        Some((station.vlan.or(untagged)?, station.mac.0, port))
    }

    /// Forgets stations that were not seen for a while. Every station has its turn about every eighth of the
    /// ageing time, a share of them at each call.
    pub(crate) fn age(&mut self, now_s: u32) {
        let passed = now_s.saturating_sub(self.aged_s) as usize;
        if passed > 0 {
            let round_s = (self.ageing.as_secs() / 8).clamp(1, 30) as usize;
            let records =
                (self.macs.len() + 1).saturating_mul(passed.min(round_s)).div_ceil(round_s);
            self.age_some(now_s, records.min(AGE_RECORDS));
            self.aged_s = now_s;
        }
    }

    fn age_some(&mut self, now_s: u32, records: usize) -> usize {
        // A record may stand behind many free ones, so a small table is looked at as a whole.
        self.macs.age(now_s, records.max(4096))
    }

    /// What is to be published.
    pub(crate) fn take_patches(&mut self) -> Vec<SwitchPatch> {
        let mut patches = std::mem::take(&mut self.changed);
        patches.extend(self.macs.take_patches(BUILD_LINES));
        patches
    }

    /// Whether the next call of [`Bridge::take_patches`] has something to do at once.
    pub(crate) fn is_busy(&self) -> bool {
        self.macs.is_rebuilding()
    }

    /// Forgets learned stations: of a port, of a VLAN, or all; how many.
    pub(crate) fn clear(&mut self, port: Option<u16>, vlan: Option<u16>) -> usize {
        match (port, vlan) {
            (None, None) => self.macs.flush_all(),
            (Some(port), None) => self.macs.flush_port(port),
            (None, Some(vlan)) => self.macs.flush_vlan(vlan),
            (Some(port), Some(vlan)) => self.macs.flush_port_vlan(port, vlan),
        }
    }

    /// All stations, by VLAN and address.
    pub(crate) fn rows(&self, interfaces: &Interfaces, now_s: u32) -> Vec<MacRow> {
        let mut entries: Vec<_> = self.macs.entries(now_s).collect();
        entries.sort_unstable_by_key(|entry| (entry.vlan, entry.mac));
        let row = |entry: lookup::bridge::MacEntry| MacRow {
            vlan: entry.vlan,
            mac: wiring::mac_text(entry.mac),
            port: interfaces.name(entry.port).to_owned(),
            is_static: entry.is_static,
            age_s: (!entry.is_static).then_some(entry.age_s),
        };
        entries.into_iter().map(row).collect()
    }

    /// Counts since the start; those of the stages are left at 0.
    pub(crate) fn totals(&self) -> SwitchTotals {
        let stats = self.macs.stats();
        SwitchTotals {
            stations: self.macs.len() as u64,
            stations_max: self.macs.limits().stations.into(),
            learned: stats.learned,
            moved: stats.moved,
            aged: stats.aged,
            flushed: stats.flushed,
            refused: stats.refused,
            ..SwitchTotals::default()
        }
    }

    fn known(&self, vlan: u16, mac: [u8; 6]) -> Station {
        self.macs.station(vlan, mac)
    }
}

fn limits(config: &Config) -> MacLimits {
    let ageing_s = config.switch.ageing.as_secs().min(u64::from(u32::MAX)) as u32;
    MacLimits { stations: config.switch.stations, ageing_s }
}

/// A port as configured, up.
fn port(config: &Config, interfaces: &Interfaces, number: u16) -> BridgePort {
    let name = interfaces.name(number);
    let access = BridgePort::access(name, 1);
    match config.port(name) {
        Some(port) => {
            let control::config::Bridging { mode, learning, storm } = port.bridging.clone();
            BridgePort { mode, learning, storm, ..access }
        }
        None => access,
    }
}
