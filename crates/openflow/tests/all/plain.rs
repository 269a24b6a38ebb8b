//! A switch of plain lists: what the agent is tested over. It forwards nothing; it remembers what it was given.

use std::time::Duration;

use openflow::agent::{Change, FlowPage, Refused};
use openflow::flow::{ALL_TABLES, AggregateStats, FlowFilter, FlowStats, PacketOut};
use openflow::group::{
    ALL_GROUPS, ALL_METERS, BucketCounters, GroupDesc, GroupFeatures, GroupStats, MeterConfig,
    MeterFeatures, MeterStats, TableCommand,
};
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
            FlowCommand::Delete | FlowCommand::DeleteStrict => self.flows.retain(|f| !takes(f)),
            FlowCommand::Modify | FlowCommand::ModifyStrict => {
                let mut found = false;
                for f in self.flows.iter_mut().filter(|f| takes(f)) {
                    f.instructions.clone_from(&flow.instructions);
                    found = true;
                }
                if !found && version == Version::V10 {
                    self.add(flow)?;
                }
            }
            FlowCommand::Add => self.add(flow)?,
        }
        Ok(())
    }

    fn add(&mut self, flow: &FlowMod) -> Result<(), ErrorCode> {
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
        if self.flows.len() < 2000 {
            self.flows.retain(|f| !same(f));
        }
        if self.flows.len() >= FLOWS_MAX {
            return Err(ErrorCode::FlowModTableFull);
        }
        self.flows.push(FlowStats {
            table: flow.table,
            duration: Duration::ZERO,
            priority: flow.priority,
            idle_timeout: flow.idle_timeout,
            hard_timeout: flow.hard_timeout,
            flags: flow.flags,
            cookie: flow.cookie,
            packets: 0,
            bytes: 0,
            matches: flow.matches.clone(),
            instructions: flow.instructions.clone(),
        });
        Ok(())
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
