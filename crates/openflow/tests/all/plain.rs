//! A switch of plain lists: what the agent is tested over. It forwards nothing; it remembers what it was given.

use std::time::Duration;

use openflow::agent::{Change, ChangedPage, FlowChange, FlowPage, Refused, StampedFlow};
use openflow::flow::{ALL_TABLES, AggregateStats, FlowFilter, FlowStats, PacketOut, RemovedReason};
use openflow::group::{
    ALL_GROUPS, ALL_METERS, BucketCounters, GroupDesc, GroupFeatures, GroupStats, MeterConfig,
    MeterFeatures, MeterStats, TableCommand,
};
use openflow::monitor::FlowEvent;
use openflow::port::{PortConfig, PortCounters, PortState, PortStats, QueueDesc, QueueStats};
use openflow::table::{Capabilities, Description, Features, TableFeatures, TableStats};
use openflow::{
    Action, ErrorCode, Field, FlowCommand, FlowFlags, FlowMod, Instruction, PortDesc, PortNo,
    Switch, Version,
};

pub(crate) const TABLES: u8 = 4;
pub(crate) const FLOWS_MAX: usize = 50_000;

#[derive(Clone, Debug, Default)]
pub(crate) struct Plain {
    pub(crate) flows: Vec<FlowStats>,
    /// Of each flow its place, and the numbers of the changes that added it and of its last one.
    stamps: Vec<[u64; 3]>,
    /// The number of the last change, and the next place.
    sequence: u64,
    next_place: u64,
    /// Changes, where they are wanted.
    changes: Option<Vec<FlowChange>>,
    pub(crate) groups: Vec<GroupDesc>,
    pub(crate) meters: Vec<MeterConfig>,
    pub(crate) ports: Vec<PortDesc>,
    pub(crate) sent: Vec<PacketOut>,
    pub(crate) for_controller: Vec<openflow::flow::PacketIn>,
}

pub(crate) fn port(number: u32) -> PortDesc {
    PortDesc {
        port: PortNo(number),
        hw_addr: [2, 0, 0, 0, 0, number as u8],
        name: format!("eth{number}"),
        config: PortConfig::empty(),
        state: PortState::LIVE,
        current: openflow::port::PortFeatures::GB10_FD,
        advertised: openflow::port::PortFeatures::empty(),
        supported: openflow::port::PortFeatures::empty(),
        peer: openflow::port::PortFeatures::empty(),
        current_kbps: 10_000_000,
        max_kbps: 10_000_000,
    }
}

impl Plain {
    pub(crate) fn new() -> Self {
        Self { ports: (1..=3).map(port).collect(), ..Self::default() }
    }

    fn flow_mod(&mut self, version: Version, flow: &FlowMod) -> Result<(), ErrorCode> {
        if flow.table >= TABLES && flow.table != ALL_TABLES {
            return Err(ErrorCode::FlowModTableId);
        }
        let is_strict =
            matches!(flow.command, FlowCommand::ModifyStrict | FlowCommand::DeleteStrict);
        let takes = |f: &FlowStats| {
            let table = flow.table == ALL_TABLES || flow.table == f.table;
            let cookie = (f.cookie ^ flow.cookie) & flow.cookie_mask == 0;
            let matches = match is_strict {
                true => f.matches == flow.matches && f.priority == flow.priority,
                false => f.matches.is_within(&flow.matches),
            };
            table && cookie && matches && sends(f, flow.out_port)
        };
        match flow.command {
            FlowCommand::Delete | FlowCommand::DeleteStrict => {
                let gone: Vec<bool> = self.flows.iter().map(takes).collect();
                for at in (0..gone.len()).filter(|at| gone[*at]) {
                    self.note(at, FlowEvent::Deleted(RemovedReason::Delete), None);
                }
                let (mut flows, mut stamps) = (gone.iter(), gone.iter());
                self.flows.retain(|_| flows.next() == Some(&false));
                self.stamps.retain(|_| stamps.next() == Some(&false));
                self.sequence += 1;
            }
            FlowCommand::Modify | FlowCommand::ModifyStrict => {
                let mut found = false;
                for at in 0..self.flows.len() {
                    if takes(&self.flows[at]) {
                        let own = &mut self.flows[at].instructions;
                        let before = std::mem::replace(own, flow.instructions.clone());
                        let cookie = flow.new_cookie.filter(|_| version == Version::V10);
                        self.flows[at].cookie = cookie.unwrap_or(self.flows[at].cookie);
                        self.sequence += 1;
                        self.stamps[at][2] = self.sequence;
                        self.note(at, FlowEvent::Modified, Some(before));
                        found = true;
                    }
                }
                if !found && version == Version::V10 && flow.cookie_mask == 0 {
                    self.add(flow)?;
                }
            }
            FlowCommand::Add => self.add(flow)?,
        }
        Ok(())
    }

    fn add(&mut self, flow: &FlowMod) -> Result<(), ErrorCode> {
        let table = if flow.table == ALL_TABLES { 0 } else { flow.table };
        let flow = &FlowMod { table, ..flow.clone() };
        let same = |f: &FlowStats| {
            f.table == flow.table && f.priority == flow.priority && f.matches == flow.matches
        };
        let overlaps = |f: &FlowStats| {
            f.table == flow.table
                && f.priority == flow.priority
                && f.matches.overlaps(&flow.matches)
        };
        if flow.flags.contains(FlowFlags::CHECK_OVERLAP) && self.flows.iter().any(overlaps) {
            return Err(ErrorCode::FlowModOverlap);
        }
        if flow
            .instructions
            .iter()
            .any(|i| matches!(i, Instruction::GotoTable(t) if *t <= flow.table))
        {
            return Err(ErrorCode::BadInstructionTableId);
        }
        let is_small = self.flows.len() < 2000;
        let at = if is_small { self.flows.iter().position(same) } else { None };
        if at.is_none() && self.flows.len() >= FLOWS_MAX {
            return Err(ErrorCode::FlowModTableFull);
        }
        let new = FlowStats {
            table: flow.table,
            duration: Duration::ZERO,
            priority: flow.priority,
            idle_timeout: flow.idle_timeout,
            hard_timeout: flow.hard_timeout,
            flags: flow.flags,
            cookie: flow.new_cookie.unwrap_or(flow.cookie),
            packets: 0,
            bytes: 0,
            matches: flow.matches.clone(),
            instructions: flow.instructions.clone(),
        };
        self.sequence += 1;
        let (at, before) = match at {
            Some(at) => {
                self.stamps[at][2] = self.sequence;
                (at, Some(std::mem::replace(&mut self.flows[at], new).instructions))
            }
            None => {
                self.stamps.push([self.next_place, self.sequence, self.sequence]);
                self.next_place += 1;
                self.flows.push(new);
                (self.flows.len() - 1, None)
            }
        };
        self.note(at, FlowEvent::Added, before);
        Ok(())
    }

    fn stamped(&self, at: usize) -> StampedFlow {
        let [place, added, changed] = self.stamps[at];
        StampedFlow { place, added, changed, flow: self.flows[at].clone() }
    }

    /// A change for those who watch.
    fn note(&mut self, at: usize, event: FlowEvent, before: Option<Vec<Instruction>>) {
        let flow = self.stamped(at);
        if let Some(changes) = &mut self.changes {
            changes.push(FlowChange { event, flow, before });
        }
    }

    fn change(&mut self, version: Version, change: &Change) -> Result<(), ErrorCode> {
        match change {
            Change::Flow(flow) => self.flow_mod(version, flow),
            Change::Group(group) => {
                let at = self.groups.iter().position(|g| g.group == group.group);
                let desc = GroupDesc {
                    kind: group.kind,
                    group: group.group,
                    buckets: group.buckets.clone(),
                };
                match (group.command, at) {
                    (TableCommand::Add, Some(_)) => return Err(ErrorCode::GroupModExists),
                    (TableCommand::Add, None) => self.groups.push(desc),
                    (TableCommand::Modify, Some(at)) => self.groups[at] = desc,
                    (TableCommand::Modify, None) => return Err(ErrorCode::GroupModUnknown),
                    (TableCommand::Delete, _) if group.group == ALL_GROUPS => self.groups.clear(),
                    (TableCommand::Delete, _) => self.groups.retain(|g| g.group != group.group),
                }
                Ok(())
            }
            Change::Meter(meter) => {
                let at = self.meters.iter().position(|m| m.meter == meter.meter);
                let (flags, number, bands) = (meter.flags, meter.meter, meter.bands.clone());
                let config = MeterConfig { flags, meter: number, bands };
                match (meter.command, at) {
                    (TableCommand::Add, Some(_)) => return Err(ErrorCode::MeterModExists),
                    (TableCommand::Add, None) => self.meters.push(config),
                    (TableCommand::Modify, Some(at)) => self.meters[at] = config,
                    (TableCommand::Modify, None) => return Err(ErrorCode::MeterModUnknownMeter),
                    (TableCommand::Delete, _) if number == ALL_METERS => self.meters.clear(),
                    (TableCommand::Delete, _) => self.meters.retain(|m| m.meter != number),
                }
                Ok(())
            }
            Change::Port(change) => {
                let port = self.ports.iter_mut().find(|p| p.port == change.port);
                let port = port.ok_or(ErrorCode::PortModPort)?;
                if port.hw_addr != change.hw_addr {
                    return Err(ErrorCode::PortModHwAddr);
                }
                let kept = port.config.without(change.mask);
                port.config = kept | PortConfig(change.config.0 & change.mask.0);
                Ok(())
            }
        }
    }

    fn within(&self, filter: &FlowFilter) -> impl Iterator<Item = &FlowStats> {
        self.flows.iter().filter(|f| {
            (filter.table == ALL_TABLES || filter.table == f.table)
                && (f.cookie ^ filter.cookie) & filter.cookie_mask == 0
                && f.matches.is_within(&filter.matches)
                && sends(f, filter.out_port)
        })
    }
}

fn sends(flow: &FlowStats, port: PortNo) -> bool {
    port == PortNo::ANY
        || flow.instructions.iter().any(|i| match i {
            Instruction::ApplyActions(a) | Instruction::WriteActions(a) => {
                a.iter().any(|a| matches!(a, Action::Output { port: to, .. } if *to == port))
            }
            _ => false,
        })
}

impl Switch for Plain {
    fn features(&self) -> Features {
        Features {
            datapath_id: 0x0000_0200_0000_0001,
            tables: TABLES,
            capabilities: Capabilities::FLOW_STATS
                | Capabilities::TABLE_STATS
                | Capabilities::GROUP_STATS
                | Capabilities::PORT_STATS
                | Capabilities::QUEUE_STATS,
            actions: 0xfff,
            ..Features::default()
        }
    }

    fn description(&self) -> Description {
        Description { manufacturer: "Shadeline".into(), serial: "1".into(), ..Default::default() }
    }

    fn ports(&self) -> Vec<PortDesc> {
        self.ports.clone()
    }

    fn apply(&mut self, version: Version, changes: &[Change], _: Duration) -> Result<(), Refused> {
        // A copy only where there is something to go back to.
        let before = (changes.len() > 1).then(|| self.clone());
        for (index, change) in changes.iter().enumerate() {
            if let Err(code) = self.change(version, change) {
                if let Some(before) = before {
                    *self = before;
                }
                return Err(Refused { index, code });
            }
        }
        Ok(())
    }

    fn packet_out(&mut self, _: Version, packet: &PacketOut) -> Result<(), ErrorCode> {
        self.sent.push(packet.clone());
        Ok(())
    }

    fn flows(
        &self,
        _: Version,
        filter: &FlowFilter,
        from: u64,
        limit: usize,
        _: Duration,
    ) -> Result<FlowPage, ErrorCode> {
        let all: Vec<_> =
            self.within(filter).skip(from as usize).take(limit + 1).cloned().collect();
        let next = (all.len() > limit).then_some(from + limit as u64);
        Ok(FlowPage { flows: all.into_iter().take(limit).collect(), next })
    }

    fn watch_flows(&mut self, is_wanted: bool) {
        match is_wanted {
            true if self.changes.is_none() => self.changes = Some(Vec::new()),
            true => {}
            false => self.changes = None,
        }
    }

    fn flow_sequence(&self) -> u64 {
        self.sequence
    }

    fn flow_changes(&mut self, each: &mut dyn FnMut(FlowChange)) {
        let changes = self.changes.as_mut().map(std::mem::take).unwrap_or_default();
        changes.into_iter().for_each(each);
    }

    fn changed_flows(&self, since: u64, from: u64, limit: usize) -> ChangedPage {
        let is_it = |at: &usize| self.stamps[*at][0] >= from && self.stamps[*at][2] > since;
        let mut all = (0..self.flows.len()).filter(is_it);
        let flows = all.by_ref().take(limit).map(|at| self.stamped(at)).collect();
        ChangedPage { flows, next: all.next().map(|at| self.stamps[at][0]) }
    }

    fn aggregate(&self, _: Version, filter: &FlowFilter) -> Result<AggregateStats, ErrorCode> {
        let flows = self.within(filter).count() as u32;
        Ok(AggregateStats { packets: 0, bytes: 0, flows })
    }

    fn tables(&self) -> Vec<TableStats> {
        let stats = |table: u8| TableStats {
            table,
            name: format!("table{table}"),
            wildcards: 0x3f_ffff,
            max_flows: FLOWS_MAX as u32,
            active: self.flows.iter().filter(|f| f.table == table).count() as u32,
            lookups: 0,
            matched: 0,
        };
        (0..TABLES).map(stats).collect()
    }

    fn table_features(&self) -> Vec<TableFeatures> {
        (0..TABLES).map(|t| TableFeatures::full(t, TABLES, FLOWS_MAX as u32, &Field::ALL)).collect()
    }

    fn port_stats(&self, port: PortNo, now: Duration) -> Result<Vec<PortStats>, ErrorCode> {
        let all: Vec<PortStats> = self
            .ports
            .iter()
            .filter(|p| port == PortNo::ANY || p.port == port)
            .map(|p| PortStats { port: p.port, counters: PortCounters::default(), duration: now })
            .collect();
        if all.is_empty() { Err(ErrorCode::BadRequestPort) } else { Ok(all) }
    }

    fn queue_stats(&self, port: PortNo, _: u32, _: Duration) -> Result<Vec<QueueStats>, ErrorCode> {
        self.queues(port).map(|_| Vec::new())
    }

    fn queues(&self, port: PortNo) -> Result<Vec<QueueDesc>, ErrorCode> {
        match port == PortNo::ANY || self.ports.iter().any(|p| p.port == port) {
            true => Ok(Vec::new()),
            false => Err(ErrorCode::QueueOpPort),
        }
    }

    fn group_stats(&self, group: u32, now: Duration) -> Vec<GroupStats> {
        let all = self.groups.iter().filter(|g| group == ALL_GROUPS || g.group == group);
        all.map(|g| GroupStats {
            group: g.group,
            references: 0,
            packets: 0,
            bytes: 0,
            duration: now,
            buckets: vec![BucketCounters::default(); g.buckets.len()],
        })
        .collect()
    }

    fn groups(&self) -> Vec<GroupDesc> {
        self.groups.clone()
    }

    fn group_features(&self) -> GroupFeatures {
        GroupFeatures { types: 15, max_groups: [100; 4], actions: [1; 4], ..Default::default() }
    }

    fn meter_stats(&self, meter: u32, now: Duration) -> Result<Vec<MeterStats>, ErrorCode> {
        let all = self.meters(meter)?.into_iter();
        Ok(all
            .map(|m| MeterStats {
                meter: m.meter,
                flows: 0,
                packets: 0,
                bytes: 0,
                duration: now,
                bands: vec![BucketCounters::default(); m.bands.len()],
            })
            .collect())
    }

    fn meters(&self, meter: u32) -> Result<Vec<MeterConfig>, ErrorCode> {
        let all = self.meters.iter().filter(|m| meter == ALL_METERS || m.meter == meter);
        let all: Vec<MeterConfig> = all.cloned().collect();
        match all.is_empty() && meter != ALL_METERS {
            true => Err(ErrorCode::MeterModUnknownMeter),
            false => Ok(all),
        }
    }

    fn meter_features(&self) -> MeterFeatures {
        MeterFeatures {
            max_meters: 100,
            band_types: 6,
            capabilities: 15,
            max_bands: 4,
            max_color: 0,
        }
    }
}
