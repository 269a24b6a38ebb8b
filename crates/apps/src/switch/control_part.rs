//! The switch's part of the control plane: ports, and the stations behind them.
//!
//! ```text
//!  bridge_out ─ StationEvent ─▶ event ┐
//!  time ──────────────────────▶ tick  ├─▶ take_patches
//!  links, file, `ctl clear` ──▶ flush ┘
//! ```
//!
//! Over captures stations are learned frame by frame, before the pipeline sees the frame
//! ([`controlplane::ahead`]). A frame that a stage before `bridge` stops causes no event, as in a live run.

use std::ops::Range;
use std::sync::Arc;
use std::sync::mpsc::SyncSender;
use std::time::Duration;

use chunk::Packet;
use control::api::ErrorKind;
use control::config::{Bridging, Config, ExtraStations, Station as Configured};
use control::metrics::Metrics;
use controlplane::interfaces::mac_text;
use controlplane::{
    Ahead, Built, Call, ControlPart, Environment, Interfaces, Outcome, OverPart, PartId, Refusal,
    Rows, Section, Setup, Source, Tables, TablesPatch, WorkerSetup, events,
};
use engine::{Counter, Stage};
use lookup::bridge::{
    BridgePort, Learned, MacLimits, MacTable, PortMode, Seen, StationEvent, SwitchPatch,
    SwitchTables,
};
use serde::Serialize;
use serde_json::{Map, Value};

use super::commands::ClearMacs;
use super::ingress::source_of;
use super::rows::{MacRow, SwitchTotals};
use super::{SwitchCounters, SwitchPart, SwitchPipeline, Waiting};
use crate::ports::PortNames;

/// Lines that a table that is built aside grows by at each publish: some milliseconds.
const BUILD_LINES: usize = 1 << 14;

/// Stations that are looked at for their age at once: some milliseconds.
const AGE_RECORDS: usize = 1 << 16;

/// The switch as control sees it.
struct SwitchControl {
    macs: MacTable,
    /// By number, as they are published.
    ports: Vec<BridgePort>,
    /// By number: whether packets of the port enter a pipeline with a switch.
    is_own: Vec<bool>,
    changed: Vec<SwitchPatch>,
    /// Static stations: VLAN, address, port.
    fixed: Vec<(u16, [u8; 6], u16)>,
    ageing: Duration,
    /// When ageing last had a turn, seconds since 1970.
    aged_s: u32,
    interfaces: Interfaces,
    part: PartId<SwitchPart>,
    events: Option<SyncSender<StationEvent>>,
    waiting: Arc<Waiting>,
    source: Option<Source>,
    /// By worker.
    counters: Vec<Arc<SwitchCounters>>,
    /// What was counted when counters were cleared.
    base: SwitchTotals,
    /// Over captures: the second of the frame that was looked at last,
    ahead_s: u32,
    /// whether it is of a station that there was no room for, and how many there were.
    is_refused: bool,
    refused: u64,
}

/// What a switch knows at the end of a run, and what it did.
#[derive(Debug, Serialize)]
struct StationTotals {
    /// Stations known, static ones among them, and room for them.
    stations: u64,
    stations_max: u64,
    learned: u64,
    moved: u64,
    aged: u64,
    /// Stations that gave way to others.
    evicted: u64,
    /// Frames of stations that were not learned: the port had its maximum, or the table was full of static ones.
    refused_packets: u64,
    /// Frames that went to all ports of their VLAN, and the copies made of them beside the frames themselves.
    flooded_packets: u64,
    copies: u64,
    copies_lost: u64,
}

/// Starts it: ports and static stations of the configuration. Live, workers note when stations were seen.
pub(super) fn start(
    setup: &Setup<'_>,
    tables: &mut Tables,
) -> Result<Box<dyn ControlPart>, String> {
    let Setup { config, interfaces, is_live, .. } = *setup;
    let (macs, blob, seen) = MacTable::new(limits(config)).map_err(|error| error.to_string())?;
    let numbers = 0..interfaces.count() as u16;
    let ports: Vec<_> = numbers.clone().map(|number| port(config, interfaces, number)).collect();
    let is_own: Vec<bool> = numbers.map(|number| is_own(config, interfaces, number)).collect();
    let record = |(port, is_own): (&BridgePort, &bool)| is_own.then(|| port.clone());
    let records = ports.iter().zip(&is_own).map(record).collect();
    let seen = if is_live { seen } else { Seen::default() };
    let (events, source) = is_live.then(events).unzip();
    let mut switch = SwitchControl {
        macs,
        ports,
        is_own,
        changed: Vec::new(),
        fixed: Vec::new(),
        ageing: config.switch.ageing,
        aged_s: 0,
        interfaces: interfaces.clone(),
        part: tables.add::<SwitchPart>(SwitchTables::new(blob, seen, records)),
        events,
        waiting: Arc::default(),
        source,
        counters: Vec::new(),
        base: SwitchTotals::default(),
        ahead_s: 0,
        is_refused: false,
        refused: 0,
    };
    (0..interfaces.count() as u16).for_each(|number| switch.limit(number));
    switch.fix(config);
    Ok(Box::new(switch))
}

impl SwitchControl {
    /// Applies what differs in a configuration: ports come, go, and change.
    fn apply_config(&mut self, config: &Config, interfaces: &Interfaces) {
        self.interfaces = interfaces.clone();
        for number in 0..interfaces.count() as u16 {
            let at = usize::from(number);
            let fresh = port(config, interfaces, number);
            if self.ports.len() <= at {
                self.ports.push(fresh.clone());
                self.is_own.push(false);
            }
            let before = &self.ports[at];
            let port = BridgePort { up: before.up, ..fresh };
            let is_own = is_own(config, interfaces, number);
            if port == *before && is_own == self.is_own[at] {
                continue;
            }
            if port.mode != before.mode || !is_own {
                self.macs.flush_port(number);
            }
            self.changed.push(SwitchPatch::Port(number, is_own.then(|| port.clone())));
            self.ports[at] = port;
            self.is_own[at] = is_own;
            self.limit(number);
        }
        self.fix(config);
        self.ageing = config.switch.ageing;
        let limits = MacLimits { stations: self.macs.limits().stations, ..limits(config) };
        // As many stations as there were: the table has its size from the start.
        if let Err(error) = self.macs.set_limits(limits) {
            tracing::error!("ageing time unchanged: {error}");
        }
    }

    /// Limits the stations of a port as it is configured.
    fn limit(&mut self, number: u16) {
        let at = usize::from(number);
        let limit = self.ports[at].stations.filter(|_| self.is_own[at]);
        self.macs.set_port_limit(number, limit);
    }

    /// Makes the static stations those of the configuration.
    fn fix(&mut self, config: &Config) {
        let fixed: Vec<_> = config.stations.iter().filter_map(|s| self.station(s)).collect();
        for (vlan, mac, _) in self.fixed.iter().filter(|old| !fixed.contains(old)) {
            self.macs.remove(*vlan, *mac);
        }
        for (vlan, mac, port) in &fixed {
            // The configuration was checked to have room for them.
            if let Err(error) = self.macs.set_static(*vlan, *mac, *port) {
                tracing::warn!("station {} left out: {error}", mac_text(*mac));
            }
        }
        self.fixed = fixed;
    }

    fn station(&self, station: &Configured) -> Option<(u16, [u8; 6], u16)> {
        let port = self.interfaces.number(&station.port)?;
        let untagged = match self.ports.get(usize::from(port))?.mode {
            PortMode::Access(vlan) => Some(vlan),
            PortMode::Trunk { native, .. } => native,
        };
        Some((station.vlan.or(untagged)?, station.mac.0, port))
    }

    /// Forgets stations that were not seen for a while. Every station has its turn about every eighth of the
    /// ageing time, a share of them at each call.
    fn age(&mut self, now_s: u32) {
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
        // A record may be behind many free ones, so a small table is looked at as a whole.
        self.macs.age(now_s, records.max(4096))
    }

    /// Forgets learned stations: of a port, of a VLAN, or all; how many.
    fn forget(&mut self, port: Option<u16>, vlan: Option<u16>) -> usize {
        match (port, vlan) {
            (None, None) => self.macs.flush_all(),
            (Some(port), None) => self.macs.flush_port(port),
            (None, Some(vlan)) => self.macs.flush_vlan(vlan),
            (Some(port), Some(vlan)) => self.macs.flush_port_vlan(port, vlan),
        }
    }

    /// All stations, by VLAN and address.
    fn rows(&self, now_s: u32) -> Vec<MacRow> {
        let mut entries: Vec<_> = self.macs.entries(now_s).collect();
        entries.sort_unstable_by_key(|entry| (entry.vlan, entry.mac));
        let row = |entry: lookup::bridge::MacEntry| MacRow {
            vlan: entry.vlan,
            mac: mac_text(entry.mac),
            port: self.interfaces.name(entry.port).to_owned(),
            is_static: entry.is_static,
            age_s: (!entry.is_static).then_some(entry.age_s),
        };
        entries.into_iter().map(row).collect()
    }

    /// What it knows and did since the start.
    fn since_start(&self) -> SwitchTotals {
        let stats = self.macs.stats();
        let sum = |counter: fn(&SwitchCounters) -> &Counter| {
            self.counters.iter().map(|worker| counter(worker).get()).sum::<u64>()
        };
        SwitchTotals {
            stations: self.macs.len() as u64,
            stations_max: self.macs.limits().stations.into(),
            learned: stats.learned,
            moved: stats.moved,
            aged: stats.aged,
            flushed: stats.flushed,
            evicted: stats.evicted,
            refused: stats.refused,
            table_full: sum(|c| &c.table_full),
            port_full: sum(|c| &c.port_full),
            events_lost: sum(|c| &c.events_lost),
            flooded: sum(|c| &c.flooded),
            copies: sum(|c| &c.copies),
            copies_lost: sum(|c| &c.copies_lost),
        }
    }

    /// The same since the counters were cleared.
    fn totals(&self) -> SwitchTotals {
        let (now, then) = (self.since_start(), self.base);
        SwitchTotals {
            learned: now.learned - then.learned,
            moved: now.moved - then.moved,
            aged: now.aged - then.aged,
            flushed: now.flushed - then.flushed,
            evicted: now.evicted - then.evicted,
            refused: now.refused - then.refused,
            table_full: now.table_full - then.table_full,
            port_full: now.port_full - then.port_full,
            events_lost: now.events_lost - then.events_lost,
            flooded: now.flooded - then.flooded,
            copies: now.copies - then.copies,
            copies_lost: now.copies_lost - then.copies_lost,
            ..now
        }
    }
}

impl ControlPart for SwitchControl {
    fn stage(&mut self, kind: &str, worker: &WorkerSetup<'_>) -> Option<Box<dyn Stage<Tables>>> {
        while self.counters.len() <= worker.worker {
            self.counters.push(Arc::default());
        }
        let options = SwitchPipeline {
            events: self.events.clone(),
            waiting: self.waiting.clone(),
            learns_ahead: worker.packet_time,
            with_headers: worker.pipeline.has(crate::firewall::STAGE),
            with_records: crate::records::are_shared(&worker.pipeline.kinds),
            first_region: self.part.regions().start,
            counters: self.counters[worker.worker].clone(),
            names: PortNames::of(worker.interfaces),
        };
        let stage = super::stage::<SwitchTables>(kind, &options)?;
        Some(OverPart::boxed(stage, self.part))
    }

    fn sources(&mut self) -> Vec<Source> {
        self.source.take().into_iter().collect()
    }

    fn regions(&self) -> Range<usize> {
        self.part.regions()
    }

    fn take_patches(&mut self) -> Option<TablesPatch> {
        let mut patches = std::mem::take(&mut self.changed);
        patches.extend(self.macs.take_patches(BUILD_LINES));
        (!patches.is_empty()).then(|| self.part.patch(patches))
    }

    fn is_busy(&self) -> bool {
        self.macs.is_rebuilding()
    }

    fn tick(&mut self, env: &mut Environment<'_>) {
        self.age(env.now_s());
    }

    fn event(&mut self, event: Built, env: &mut Environment<'_>) {
        if let Ok(event) = event.downcast::<StationEvent>() {
            self.waiting.end(event.port);
            self.macs.learn(event.vlan, event.mac, event.port, env.now_s());
        }
    }

    /// A port's stations go with its link: they may come back elsewhere.
    fn link(&mut self, number: u16, is_up: bool) {
        let Some(port) = self.ports.get_mut(usize::from(number)) else { return };
        if port.up != is_up && self.is_own[usize::from(number)] {
            port.up = is_up;
            self.changed.push(SwitchPatch::Port(number, Some(port.clone())));
            if !is_up {
                self.macs.flush_port(number);
            }
        }
    }

    fn call(&mut self, mut call: Call<'_>, env: &mut Environment<'_>) -> Result<Outcome, Refusal> {
        let ClearMacs { port, vlan } = call.read()?;
        let port = port.map(|name| env.number(&name)).transpose()?;
        Ok(Outcome::Done(match self.forget(port, vlan) {
            1 => "1 station removed".to_owned(),
            n => format!("{n} stations removed"),
        }))
    }

    fn table(&self, call: Call<'_>, env: &Environment<'_>) -> Result<Rows, Refusal> {
        match call.name {
            "macs" => Ok(Rows::of("macs", call.as_text, self.rows(env.now_s()))),
            name => Err(Refusal::new(ErrorKind::Internal, format!("no table `{name}`"))),
        }
    }

    fn commit(&mut self, _old: &Config, _started: &Config, env: &mut Environment<'_>) -> String {
        self.apply_config(env.config, env.interfaces);
        String::new()
    }

    fn clear(&mut self) {
        self.base = self.since_start();
    }

    fn runtime(&self) -> (Map<String, Value>, Vec<[String; 2]>) {
        let totals = self.totals();
        let mut fields = Map::new();
        fields.insert("switch".into(), serde_json::to_value(totals).unwrap_or_default());
        (fields, totals.lines())
    }

    fn metrics(&self, out: &mut Metrics) {
        self.totals().metrics(out);
    }

    fn report(&self) -> Vec<Section> {
        if self.events.is_some() {
            return Vec::new(); // live, `ctl` and the metrics have it
        }
        let now = self.since_start();
        let totals = StationTotals {
            stations: now.stations,
            stations_max: now.stations_max,
            learned: now.learned,
            moved: now.moved,
            aged: now.aged,
            evicted: now.evicted,
            refused_packets: self.refused,
            flooded_packets: now.flooded,
            copies: now.copies,
            copies_lost: now.copies_lost,
        };
        let n = control::api::table::thousands;
        let t = &totals;
        let text = format!(
            "{} of {} stations: {} learned, {} moved, {} aged, {} replaced\n\
             {} packets flooded, {} copies, {} copies lost; {} packets from stations that did not fit\n",
            n(t.stations),
            n(t.stations_max),
            n(t.learned),
            n(t.moved),
            n(t.aged),
            n(t.evicted),
            n(t.flooded_packets),
            n(t.copies),
            n(t.copies_lost),
            n(t.refused_packets)
        );
        vec![Section::new("switch", &totals, text)]
    }

    fn learns_ahead(&self) -> bool {
        true
    }

    fn ahead(&mut self, packet: &Packet, is_first: bool, tables: &Tables, passes: bool) -> Ahead {
        self.is_refused = false;
        let (begins, none) = (Ahead { begins: true, changed: false }, Ahead::default());
        let now_s = (packet.time_ns / 1_000_000_000) as u32;
        let mut changed = false;
        if now_s != self.ahead_s {
            if !is_first {
                return begins;
            }
            self.ahead_s = now_s;
            changed |= self.age_some(now_s, usize::MAX) > 0;
        }
        let source = source_of(packet.data(), packet.port, tables.part(self.part));
        let Some((vlan, mac)) = source.filter(|_| passes) else {
            return Ahead { changed, ..none };
        };
        let tells = self.macs.would_learn(vlan, mac, packet.port);
        if tells && !is_first {
            return begins;
        }
        self.is_refused = self.macs.learn(vlan, mac, packet.port, now_s) == Learned::Refused;
        Ahead { changed: changed | tells, ..none }
    }

    fn went_on(&mut self) {
        self.refused += u64::from(std::mem::take(&mut self.is_refused));
    }
}

fn limits(config: &Config) -> MacLimits {
    let ageing_s = config.switch.ageing.as_secs().min(u64::from(u32::MAX)) as u32;
    MacLimits { stations: config.switch.stations, ageing_s }
}

/// A port as configured, up.
/// Whether a port's packets enter a pipeline of a switch.
fn is_own(config: &Config, interfaces: &Interfaces, number: u16) -> bool {
    let name = interfaces.name(number);
    interfaces.is_port(number) && config.pipeline_of(name).uses("switch")
}

fn port(config: &Config, interfaces: &Interfaces, number: u16) -> BridgePort {
    let name = interfaces.name(number);
    let access = BridgePort::access(name, 1);
    match config.port(name) {
        Some(port) => {
            let Bridging { mode, learning, stations, extra_stations, storm } =
                port.bridging.clone();
            let drops_extra = extra_stations == ExtraStations::Drop;
            BridgePort { mode, learning, stations, drops_extra, storm, ..access }
        }
        None => access,
    }
}
