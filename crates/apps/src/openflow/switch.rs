//! What the agent of the protocol sees: ports, tables, flows.

use std::time::Duration;

use flowtable::groups::{BANDS_MAX, GROUPS_MAX, METERS_MAX};
use flowtable::{Flow, FlowControl, Port};
use lookup::fib::Interface;
use openflow::agent::{Change, ChangedPage, FlowChange, FlowPage, Refused, StampedFlow};
use openflow::flow::{AggregateStats, FlowFilter, PacketOut};
use openflow::group::{
    ALL_METERS, GroupCapabilities, GroupDesc, GroupFeatures, GroupStats, MeterConfig,
    MeterFeatures, MeterStats,
};
use openflow::port::{
    PortConfig, PortCounters, PortFeatures, PortMod, PortState, PortStats, QueueDesc, QueueStats,
};
use openflow::table::{Capabilities, Description, Features, TableFeatures, TableStats};
use openflow::{ErrorCode, Field, PortDesc, PortNo, Switch, Version};

use super::queues::{self, Shapes};
use super::stage::PortNumbers;

/// The switch as long as a request takes.
pub(super) struct Facade<'a> {
    pub(super) control: &'a mut FlowControl,
    /// Of ports by number.
    pub(super) records: &'a [Interface],
    pub(super) flows_max: u32,
    /// Queues in front of ports.
    pub(super) shapes: &'a Shapes,
    /// The rules of its tables.
    pub(super) version: Version,
    /// By table: packets looked up, and packets that a flow took.
    pub(super) lookups: Vec<[u64; 2]>,
    /// Packets of PACKET_OUT, checked.
    pub(super) out: &'a mut Vec<PacketOut>,
    /// When it began, nanoseconds since 1970.
    pub(super) since_ns: u64,
    pub(super) datapath_id: u64,
    /// How ports are numbered.
    pub(super) ports: PortNumbers,
    /// What ports have counted: received, sent.
    pub(super) totals: &'a dyn Fn(u16) -> (io::QueueStats, io::QueueStats),
    /// NORMAL is there.
    pub(super) has_switch: bool,
    /// Ports whose configuration has changed: the controllers are told.
    pub(super) changed: &'a mut Vec<PortNo>,
}

fn nanoseconds(now: Duration) -> u64 {
    u64::try_from(now.as_nanos()).unwrap_or(u64::MAX)
}

/// A duration with the precision of Open vSwitch's: milliseconds.
pub(super) fn precise(duration: Duration) -> Duration {
    duration - Duration::from_nanos(u64::from(duration.subsec_nanos() % 1_000_000))
}

/// 16 bits of zero, and the lowest address of a port: the same after each start. Ports that are gone have none.
pub(super) fn datapath_id<'a>(records: impl Iterator<Item = &'a Interface>) -> u64 {
    let macs = records.map(|record| record.mac).filter(|mac| *mac != [0; 6]);
    macs.min().unwrap_or_default().iter().fold(0, |id, byte| id << 8 | u64::from(*byte))
}

fn record(records: &[Interface], ports: PortNumbers, number: PortNo) -> Option<&Interface> {
    records.get(usize::from(ports.port(number)?))
}

/// The port of a PORT_MOD.
fn checked_port(
    control: &FlowControl,
    records: &[Interface],
    ports: PortNumbers,
    change: &PortMod,
) -> Result<Port, ErrorCode> {
    let port = *control.port(change.port).ok_or(ErrorCode::PortModPort)?;
    match record(records, ports, port.number).is_some_and(|record| record.mac != change.hw_addr) {
        true => Err(ErrorCode::PortModHwAddr),
        false => Ok(port),
    }
}

impl Facade<'_> {
    fn change(&mut self, change: &Change, version: Version, now_ns: u64) -> Result<(), ErrorCode> {
        match change {
            Change::Flow(flow) => self.control.flow_mod(flow, version, now_ns),
            Change::Group(group) => self.control.group_mod(group, now_ns),
            Change::Meter(meter) => self.control.meter_mod(meter, now_ns),
            Change::Port(port) => self.port_mod(port),
        }
    }

    fn port_mod(&mut self, change: &PortMod) -> Result<(), ErrorCode> {
        let port = checked_port(self.control, self.records, self.ports, change)?;
        let kept = port.config.without(change.mask);
        let config = kept | PortConfig(change.config.0 & change.mask.0);
        if config != port.config {
            self.control.set_port(port.number, Some(Port { config, ..port }));
            self.changed.push(port.number);
        }
        Ok(())
    }

    fn desc(&self, port: &Port) -> PortDesc {
        let record = record(self.records, self.ports, port.number);
        PortDesc {
            port: port.number,
            hw_addr: record.map_or([0; 6], |record| record.mac),
            name: record.map_or_else(String::new, |record| record.name.clone()),
            config: port.config,
            state: if port.live { PortState::LIVE } else { PortState::LINK_DOWN },
            current: PortFeatures::empty(),
            advertised: PortFeatures::empty(),
            supported: PortFeatures::empty(),
            peer: PortFeatures::empty(),
            current_kbps: 0,
            max_kbps: 0,
        }
    }

    /// The description of a port that there is.
    pub(super) fn port_desc(&self, number: PortNo) -> Option<PortDesc> {
        self.control.port(number).map(|port| self.desc(port))
    }

    fn is_port(&self, port: PortNo) -> bool {
        port == PortNo::ANY || self.control.port(port).is_some()
    }
}

impl Switch for Facade<'_> {
    fn features(&self) -> Features {
        let mut statistics =
            Capabilities::FLOW_STATS | Capabilities::TABLE_STATS | Capabilities::PORT_STATS;
        let has_queues = self.shapes.iter().any(Option::is_some);
        if has_queues {
            statistics |= Capabilities::QUEUE_STATS;
        }
        Features {
            datapath_id: self.datapath_id,
            tables: self.control.settings().tables,
            capabilities: match self.version {
                Version::V10 => statistics | Capabilities::ARP_MATCH_IP,
                Version::V13 => statistics | Capabilities::GROUP_STATS,
            },
            // OUTPUT to SET_TP_DST of 1.0; ENQUEUE needs queues.
            actions: if has_queues { 0xfff } else { 0x7ff },
            ..Features::default()
        }
    }

    fn description(&self) -> Description {
        Description {
            manufacturer: "Shadeline".to_owned(),
            hardware: std::env::consts::ARCH.to_owned(),
            software: env!("CARGO_PKG_VERSION").to_owned(),
            ..Description::default()
        }
    }

    fn ports(&self) -> Vec<PortDesc> {
        self.control.ports().map(|port| self.desc(port)).collect()
    }

    fn apply(
        &mut self,
        version: Version,
        changes: &[Change],
        now: Duration,
    ) -> Result<(), Refused> {
        let now_ns = nanoseconds(now);
        if let [only] = changes {
            return self.change(only, version, now_ns).map_err(|code| Refused { index: 0, code });
        }
        // Ports are not undone: they are checked with the others, and changed when nothing can fail any more.
        let (records, ports) = (self.records, self.ports);
        self.control.all_or_nothing(|control| {
            for (index, change) in changes.iter().enumerate() {
                let done = match change {
                    Change::Flow(flow) => control.flow_mod(flow, version, now_ns),
                    Change::Group(group) => control.group_mod(group, now_ns),
                    Change::Meter(meter) => control.meter_mod(meter, now_ns),
                    Change::Port(port) => checked_port(control, records, ports, port).map(|_| ()),
                };
                done.map_err(|code| Refused { index, code })?;
            }
            Ok(())
        })?;
        for (index, change) in changes.iter().enumerate() {
            if let Change::Port(port) = change {
                self.port_mod(port).map_err(|code| Refused { index, code })?;
            }
        }
        Ok(())
    }

    fn packet_out(&mut self, _: Version, packet: &PacketOut) -> Result<(), ErrorCode> {
        self.control.check_packet_out(&packet.actions)?;
        // The switch that NORMAL is takes packets as received by a port.
        if self.control.sends_to_normal(&packet.actions)
            && !(self.has_switch && self.control.port(packet.in_port).is_some())
        {
            return Err(ErrorCode::BadActionOutPort);
        }
        if packet.data.len() < 14 {
            return Err(ErrorCode::BadRequestPacket);
        }
        self.out.push(packet.clone());
        Ok(())
    }

    fn flows(
        &self,
        version: Version,
        filter: &FlowFilter,
        from: u64,
        limit: usize,
        now: Duration,
    ) -> Result<FlowPage, ErrorCode> {
        let from = usize::try_from(from).unwrap_or(usize::MAX);
        let (mut flows, next) =
            self.control.flow_page(filter, version, nanoseconds(now), from, limit)?;
        flows.iter_mut().for_each(|flow| flow.duration = precise(flow.duration));
        Ok(FlowPage { flows, next: next.map(|next| next as u64) })
    }

    fn watch_flows(&mut self, is_wanted: bool) {
        self.control.watch(is_wanted);
    }

    fn flow_sequence(&self) -> u64 {
        self.control.sequence()
    }

    fn flow_changes(&mut self, each: &mut dyn FnMut(FlowChange)) {
        for change in self.control.take_changes() {
            let before = change.before.map(|before| before.instructions.clone());
            each(FlowChange { event: change.event, flow: stamped(&change.flow), before });
        }
    }

    fn changed_flows(&self, since: u64, from: u64, limit: usize) -> ChangedPage {
        let from = usize::try_from(from).unwrap_or(usize::MAX);
        let (flows, next) = self.control.changed(since, from, limit);
        let flows = flows.iter().map(|flow| stamped(flow)).collect();
        ChangedPage { flows, next: next.map(|next| next as u64) }
    }

    fn aggregate(
        &self,
        version: Version,
        filter: &FlowFilter,
    ) -> Result<AggregateStats, ErrorCode> {
        self.control.aggregate(filter, version)
    }

    fn tables(&self) -> Vec<TableStats> {
        let mut active = vec![0; self.lookups.len()];
        for own in self.control.tables() {
            active[usize::from(own.table)] = own.flows as u32;
        }
        let tables = active.into_iter().zip(&self.lookups).enumerate();
        let stats = |(table, (active, lookups)): (usize, (u32, &[u64; 2]))| TableStats {
            table: table as u8,
            name: format!("table{table}"),
            wildcards: 0x3f_ffff,
            max_flows: self.flows_max,
            active,
            lookups: lookups[0],
            matched: lookups[1],
        };
        tables.map(stats).collect()
    }

    fn table_features(&self) -> Vec<TableFeatures> {
        let tables = self.control.settings().tables;
        (0..tables).map(|t| TableFeatures::full(t, tables, self.flows_max, &Field::ALL)).collect()
    }

    /// What the queues of ports count. What a network interface alone knows (frame errors, overruns, CRCs, collisions) is not
    /// counted here.
    fn port_stats(&self, port: PortNo, now: Duration) -> Result<Vec<PortStats>, ErrorCode> {
        if !self.is_port(port) {
            return Err(ErrorCode::BadRequestPort);
        }
        let none = u64::MAX;
        let duration = precise(now.saturating_sub(Duration::from_nanos(self.since_ns)));
        let ports = self.control.ports().filter(|own| port == PortNo::ANY || own.number == port);
        let stats = |own: &Port| {
            let (rx, tx) = self.ports.port(own.number).map(self.totals).unwrap_or_default();
            let counters = PortCounters {
                rx_packets: rx.packets,
                tx_packets: tx.packets,
                rx_bytes: rx.bytes,
                tx_bytes: tx.bytes,
                rx_dropped: rx.dropped,
                tx_dropped: tx.dropped,
                rx_errors: rx.errors,
                tx_errors: tx.errors,
                rx_frame_errors: none,
                rx_over_errors: none,
                rx_crc_errors: none,
                collisions: none,
            };
            PortStats { port: own.number, counters, duration }
        };
        Ok(ports.map(stats).collect())
    }

    fn queue_stats(
        &self,
        port: PortNo,
        queue: u32,
        now: Duration,
    ) -> Result<Vec<QueueStats>, ErrorCode> {
        if !self.is_port(port) {
            return Err(ErrorCode::QueueOpPort);
        }
        let duration = Duration::from_nanos(nanoseconds(now).saturating_sub(self.since_ns));
        queues::stats(self.shapes, self.ports, (port, queue), duration)
    }

    fn queues(&self, port: PortNo) -> Result<Vec<QueueDesc>, ErrorCode> {
        match self.is_port(port) {
            true => Ok(queues::descriptions(self.shapes, self.ports, port)),
            false => Err(ErrorCode::QueueOpPort),
        }
    }

    fn group_stats(&self, group: u32, now: Duration) -> Vec<GroupStats> {
        let mut all = self.control.group_stats(group, nanoseconds(now));
        all.iter_mut().for_each(|group| group.duration = precise(group.duration));
        all
    }

    fn groups(&self) -> Vec<GroupDesc> {
        self.control.group_descs()
    }

    fn group_features(&self) -> GroupFeatures {
        let actions = openflow::action::ActionKind::ALL
            .iter()
            .fold(0, |all, (kind, _)| all | 1_u32 << kind.0);
        GroupFeatures {
            types: 0xf,
            capabilities: GroupCapabilities::SELECT_WEIGHT
                | GroupCapabilities::SELECT_LIVENESS
                | GroupCapabilities::CHAINING
                | GroupCapabilities::CHAINING_CHECKS,
            max_groups: [GROUPS_MAX as u32; 4],
            actions: [actions; 4],
        }
    }

    fn meter_stats(&self, meter: u32, now: Duration) -> Result<Vec<MeterStats>, ErrorCode> {
        let mut all = self.control.meter_stats(meter, nanoseconds(now));
        all.iter_mut().for_each(|meter| meter.duration = precise(meter.duration));
        known_meter(meter, all)
    }

    fn meters(&self, meter: u32) -> Result<Vec<MeterConfig>, ErrorCode> {
        known_meter(meter, self.control.meter_configs(meter))
    }

    fn meter_features(&self) -> MeterFeatures {
        MeterFeatures {
            max_meters: METERS_MAX as u32,
            band_types: 1 << 1 | 1 << 2,
            capabilities: 0xf,
            max_bands: BANDS_MAX as u8,
            max_color: 0,
        }
    }
}

/// A flow for monitors, which say nothing of its counters.
fn stamped(flow: &Flow) -> StampedFlow {
    StampedFlow {
        place: flow.id.into(),
        added: flow.added,
        changed: flow.changed,
        flow: flow.stats(),
    }
}

fn known_meter<T>(meter: u32, all: Vec<T>) -> Result<Vec<T>, ErrorCode> {
    match all.is_empty() && meter != ALL_METERS {
        true => Err(ErrorCode::MeterModUnknownMeter),
        false => Ok(all),
    }
}
