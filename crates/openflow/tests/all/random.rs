//! Reproducible numbers, and messages made of them.

use std::time::Duration;

use openflow::flow::{
    AggregateStats, FlowFilter, FlowRemoved, FlowStats, InReason, PacketIn, PacketOut,
    RemovedReason,
};
use openflow::group::{
    Band, BandKind, Bucket, BucketCounters, GroupCapabilities, GroupDesc, GroupFeatures,
    GroupStats, MeterConfig, MeterFeatures, MeterFlags, MeterStats, TableCommand,
};
use openflow::message::{
    AsyncConfig, BundleAdd, BundleControl, BundleFlags, BundleStep, ErrorMessage, Experimenter,
    Hello, MultipartReply, MultipartRequest, Role, RoleMessage,
};
use openflow::monitor::{FlowEvent, FlowMonitor, FlowUpdate, MonitorFlags};
use openflow::port::{
    PortConfig, PortCounters, PortFeatures, PortMod, PortReason, PortState, PortStats, QueueDesc,
    QueueStats,
};
use openflow::table::{
    Capabilities, Description, Features, Fragments, SwitchConfig, TableFeatures, TableStats,
};
use openflow::{
    Action, Body, ErrorCode, Field, FlowCommand, FlowFlags, FlowMod, GroupMod, GroupType,
    Instruction, Match, Message, MeterMod, PortDesc, PortNo, Version,
};

/// splitmix64.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let x = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let x = (x ^ x >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^ x >> 31
    }

    pub(crate) fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound as u64) as usize
    }

    pub(crate) fn coin(&mut self) -> bool {
        self.below(2) == 0
    }

    pub(crate) fn of<T: Clone>(&mut self, all: &[T]) -> T {
        all[self.below(all.len())].clone()
    }

    pub(crate) fn bytes(&mut self, max: usize) -> Vec<u8> {
        (0..self.below(max + 1)).map(|_| self.next() as u8).collect()
    }

    fn u32(&mut self) -> u32 {
        self.next() as u32
    }

    fn u16(&mut self) -> u16 {
        self.next() as u16
    }

    fn u8(&mut self) -> u8 {
        self.next() as u8
    }

    fn many<T>(&mut self, max: usize, make: impl Fn(&mut Self) -> T) -> Vec<T> {
        (0..self.below(max + 1)).map(|_| make(self)).collect()
    }

    fn duration(&mut self) -> Duration {
        Duration::new(u64::from(self.u32()), self.u32() % 1_000_000_000)
    }

    fn text(&mut self, max: usize) -> String {
        (0..self.below(max + 1)).map(|_| (b'a' + self.u8() % 26) as char).collect()
    }

    pub(crate) fn version(&mut self) -> Version {
        self.of(&[Version::V10, Version::V13])
    }

    fn port(&mut self, version: Version) -> PortNo {
        match (version, self.below(3)) {
            (_, 0) => self.of(PortNo::NAMES).0,
            (Version::V10, _) => PortNo::from_v10(self.u16()),
            (Version::V13, _) => PortNo(self.u32()),
        }
    }

    /// A value of a field.
    pub(crate) fn value(&mut self, field: Field) -> u128 {
        (u128::from(self.next()) << 64 | u128::from(self.next())) & field.full()
    }

    /// A match that the version can express, with all that its fields need.
    pub(crate) fn matches(&mut self, version: Version) -> Match {
        let fields: &[Field] = match version {
            Version::V13 => &Field::ALL,
            Version::V10 => &[
                Field::InPort,
                Field::EthSrc,
                Field::EthDst,
                Field::VlanVid,
                Field::EthType,
                Field::IpDscp,
                Field::Ipv4Src,
                Field::Ipv4Dst,
                Field::TcpSrc,
                Field::UdpDst,
                Field::Icmpv4Type,
                Field::ArpSpa,
            ],
        };
        let mut matches = Match::new();
        for _ in 0..self.below(5) {
            let field = self.of(fields);
            let mut new = matches.clone();
            self.need(&mut new, field, version);
            let value = match (version, field) {
                (Version::V10, Field::InPort) => u128::from(self.port(version).0),
                (Version::V10, Field::VlanVid) if self.coin() => 0,
                (Version::V10, Field::VlanVid) => 0x1000 | u128::from(self.u16() & 0xffe),
                _ => self.value(field),
            };
            if new.get(field).is_none() {
                let mask = match (version, field.is_maskable() && self.coin()) {
                    (_, false) => field.full(),
                    (Version::V13, true) => self.value(field) | 1,
                    (Version::V10, true) if field.bits() == 32 => {
                        u128::from(u32::MAX << self.below(32))
                    }
                    (Version::V10, true) => field.full(),
                };
                new.set(field, value, mask);
            }
            if new.check().is_ok() {
                matches = new;
            }
        }
        matches
    }

    fn need(&mut self, matches: &mut Match, field: Field, version: Version) {
        for need in field.needs() {
            if matches.get(need.field).is_some() {
                continue;
            }
            self.need(matches, need.field, version);
            let mut values = need.values.to_vec();
            if version == Version::V10 {
                values.retain(|v| *v != 0x86dd);
            }
            match values[..] {
                [] if need.field == Field::VlanVid => matches.set(Field::VlanVid, 0x1005, 0x1fff),
                [] => matches.set(need.field, 7, need.field.full()),
                _ => matches.set(need.field, self.of(&values), need.field.full()),
            }
        }
    }

    pub(crate) fn action(&mut self, version: Version) -> Action {
        if version == Version::V10 {
            return match self.below(9) {
                0 => Action::SetVlanVid(self.u16() & 0xfff),
                1 => Action::SetVlanPcp(self.u8() & 7),
                2 => Action::PopVlan,
                3 => {
                    let all = [
                        Field::EthSrc,
                        Field::EthDst,
                        Field::Ipv4Src,
                        Field::Ipv4Dst,
                        Field::IpDscp,
                    ];
                    let field = self.of(&all);
                    Action::SetField(field, self.value(field))
                }
                4 => Action::SetTpSrc(self.u16()),
                5 => Action::SetTpDst(self.u16()),
                6 => Action::Enqueue { port: self.port(version), queue: self.u32() },
                7 => Action::Experimenter { id: self.u32(), data: vec![self.u8(); 8] },
                _ => Action::Output { port: self.port(version), max_len: self.u16() },
            };
        }
        match self.below(17) {
            0 => Action::CopyTtlOut,
            1 => Action::CopyTtlIn,
            2 => Action::SetMplsTtl(self.u8()),
            3 => Action::DecMplsTtl,
            4 => Action::PushVlan(self.of(&[0x8100, 0x88a8])),
            5 => Action::PopVlan,
            6 => Action::PushMpls(self.of(&[0x8847, 0x8848])),
            7 => Action::PopMpls(self.u16()),
            8 => Action::PushPbb(0x88e7),
            9 => Action::PopPbb,
            10 => Action::SetQueue(self.u32()),
            11 => Action::Group(self.u32()),
            12 => Action::SetNwTtl(self.u8()),
            13 => Action::DecNwTtl,
            14 => {
                let all: Vec<Field> = Field::ALL.into_iter().filter(|f| f.is_settable()).collect();
                let field = self.of(&all);
                Action::SetField(field, self.value(field))
            }
            15 => Action::Experimenter { id: self.u32(), data: vec![self.u8(); 8] },
            _ => Action::Output { port: self.port(version), max_len: self.u16() },
        }
    }

    fn actions(&mut self, version: Version) -> Vec<Action> {
        self.many(4, |r| r.action(version))
    }

    pub(crate) fn instructions(&mut self, version: Version) -> Vec<Instruction> {
        if version == Version::V10 {
            let actions = self.actions(version);
            return if actions.is_empty() {
                vec![]
            } else {
                vec![Instruction::ApplyActions(actions)]
            };
        }
        let mut all = vec![
            Instruction::Meter(self.u32()),
            Instruction::ApplyActions(self.actions(version)),
            Instruction::ClearActions,
            Instruction::WriteActions(self.actions(version)),
            Instruction::WriteMetadata { value: self.next(), mask: self.next() },
            Instruction::GotoTable(self.u8()),
        ];
        all.retain(|_| self.coin());
        all
    }

    pub(crate) fn flow_mod(&mut self, version: Version) -> FlowMod {
        use FlowCommand::{Add, Delete, DeleteStrict, Modify, ModifyStrict};
        let is_v10 = version == Version::V10;
        let command = self.of(&[Add, Modify, ModifyStrict, Delete, DeleteStrict]);
        let is_new = is_v10 && command != Add;
        FlowMod {
            cookie: if is_new { 0 } else { self.next() },
            cookie_mask: if is_v10 { 0 } else { self.next() },
            new_cookie: (is_new && self.coin()).then(|| self.next() >> 1),
            table: match (is_v10, command) {
                (true, Add) => 0,
                (true, _) => 0xff,
                (false, _) => self.u8(),
            },
            command,
            idle_timeout: self.u16(),
            hard_timeout: self.u16(),
            priority: self.u16(),
            buffer_id: self.coin().then(|| self.u32() >> 1),
            out_port: self.port(version),
            out_group: if is_v10 { u32::MAX } else { self.u32() },
            flags: FlowFlags(self.u16() & if is_v10 { 3 } else { 0x1f }),
            matches: self.matches(version),
            instructions: self.instructions(version),
        }
    }

    fn bucket(&mut self) -> Bucket {
        Bucket {
            weight: self.u16(),
            watch_port: self.port(Version::V13),
            watch_group: self.u32(),
            actions: self.actions(Version::V13),
        }
    }

    fn band(&mut self) -> Band {
        let kind = match self.below(3) {
            0 => BandKind::DscpRemark { prec_level: self.u8() },
            1 => BandKind::Experimenter { id: self.u32() },
            _ => BandKind::Drop,
        };
        Band { kind, rate: self.u32(), burst: self.u32() }
    }

    fn group_type(&mut self) -> GroupType {
        self.of(&[GroupType::All, GroupType::Select, GroupType::Indirect, GroupType::FastFailover])
    }

    fn command(&mut self) -> TableCommand {
        self.of(&[TableCommand::Add, TableCommand::Modify, TableCommand::Delete])
    }

    fn port_desc(&mut self, version: Version) -> PortDesc {
        let is_v10 = version == Version::V10;
        let mut features = || match is_v10 {
            true => PortFeatures(self.u32() & 0xf87f),
            false => PortFeatures(self.u32()),
        };
        let (current, advertised, supported, peer) =
            (features(), features(), features(), features());
        PortDesc {
            port: self.port(version),
            hw_addr: [self.u8(); 6],
            name: self.text(15),
            config: PortConfig(self.u32()),
            state: PortState(self.u32()),
            current,
            advertised,
            supported,
            peer,
            current_kbps: if is_v10 { 0 } else { self.u32() },
            max_kbps: if is_v10 { 0 } else { self.u32() },
        }
    }

    fn filter(&mut self, version: Version) -> FlowFilter {
        let all = FlowFilter {
            table: self.u8(),
            out_port: self.port(version),
            matches: self.matches(version),
            ..FlowFilter::all()
        };
        match version {
            Version::V10 => all,
            Version::V13 => FlowFilter {
                out_group: self.u32(),
                cookie: self.next(),
                cookie_mask: self.next(),
                ..all
            },
        }
    }

    fn request(&mut self, version: Version) -> MultipartRequest {
        match self.below(if version == Version::V10 { 9 } else { 16 }) {
            0 => MultipartRequest::Desc,
            1 => MultipartRequest::Flow(self.filter(version)),
            2 => MultipartRequest::Aggregate(self.filter(version)),
            3 => MultipartRequest::Table,
            4 => MultipartRequest::PortStats(self.port(version)),
            5 => MultipartRequest::Queue { port: self.port(version), queue: self.u32() },
            6 => {
                MultipartRequest::Experimenter(Experimenter { id: self.u32(), data: self.bytes(9) })
            }
            7 => MultipartRequest::PortDesc,
            8 => MultipartRequest::FlowMonitor(self.many(3, |r| FlowMonitor {
                id: r.u32(),
                flags: MonitorFlags(r.u16() & 0x30 | (1 + r.u16() % 15)),
                out_port: r.port(version),
                table: r.u8(),
                matches: r.monitored(version),
            })),
            15 => MultipartRequest::Group(self.u32()),
            9 => MultipartRequest::GroupDesc,
            10 => MultipartRequest::GroupFeatures,
            11 => MultipartRequest::Meter(self.u32()),
            12 => MultipartRequest::MeterConfig(self.u32()),
            13 => MultipartRequest::MeterFeatures,
            _ => MultipartRequest::TableFeatures(self.many(2, Self::table_features)),
        }
    }

    fn table_features(&mut self) -> TableFeatures {
        let mut features = TableFeatures::full(self.u8(), self.u8(), self.u32(), &Field::ALL);
        features.properties.retain(|_| self.coin());
        features
    }

    pub(crate) fn flow_stats(&mut self, version: Version) -> FlowStats {
        FlowStats {
            table: self.u8(),
            duration: self.duration(),
            priority: self.u16(),
            idle_timeout: self.u16(),
            hard_timeout: self.u16(),
            flags: FlowFlags(if version == Version::V10 { 0 } else { self.u16() & 31 }),
            cookie: self.next(),
            packets: self.next(),
            bytes: self.next(),
            matches: self.matches(version),
            instructions: self.instructions(version),
        }
    }

    fn counters(&mut self) -> Vec<BucketCounters> {
        self.many(3, |r| BucketCounters { packets: r.next(), bytes: r.next() })
    }

    fn reply(&mut self, version: Version) -> MultipartReply {
        let is_v10 = version == Version::V10;
        match self.below(if is_v10 { 8 } else { 15 }) {
            0 => MultipartReply::Desc(Description {
                manufacturer: self.text(255),
                hardware: self.text(30),
                software: self.text(30),
                serial: self.text(31),
                datapath: self.text(30),
            }),
            1 => MultipartReply::Flow(self.many(3, |r| r.flow_stats(version))),
            2 => MultipartReply::Aggregate(AggregateStats {
                packets: self.next(),
                bytes: self.next(),
                flows: self.u32(),
            }),
            3 => MultipartReply::Table(self.many(3, |r| TableStats {
                table: r.u8(),
                name: if is_v10 { r.text(31) } else { String::new() },
                wildcards: if is_v10 { r.u32() } else { 0 },
                max_flows: if is_v10 { r.u32() } else { 0 },
                active: r.u32(),
                lookups: r.next(),
                matched: r.next(),
            })),
            4 => MultipartReply::PortStats(self.many(3, |r| PortStats {
                port: r.port(version),
                counters: PortCounters {
                    rx_packets: r.next(),
                    tx_errors: r.next(),
                    collisions: r.next(),
                    ..PortCounters::default()
                },
                duration: if is_v10 { Duration::ZERO } else { r.duration() },
            })),
            5 => MultipartReply::Queue(self.many(3, |r| QueueStats {
                port: r.port(version),
                queue: r.u32(),
                tx_bytes: r.next(),
                tx_packets: r.next(),
                tx_errors: r.next(),
                duration: if is_v10 { Duration::ZERO } else { r.duration() },
            })),
            6 => MultipartReply::Experimenter(Experimenter { id: self.u32(), data: self.bytes(9) }),
            7 => MultipartReply::PortDesc(self.many(3, |r| r.port_desc(version))),
            8 => MultipartReply::Group(self.many(3, |r| GroupStats {
                group: r.u32(),
                references: r.u32(),
                packets: r.next(),
                bytes: r.next(),
                duration: r.duration(),
                buckets: r.counters(),
            })),
            9 => MultipartReply::GroupDesc(self.many(3, |r| GroupDesc {
                kind: r.group_type(),
                group: r.u32(),
                buckets: r.many(3, Self::bucket),
            })),
            10 => MultipartReply::GroupFeatures(GroupFeatures {
                types: self.u32(),
                capabilities: GroupCapabilities(self.u32()),
                max_groups: [self.u32(); 4],
                actions: [self.u32(); 4],
            }),
            11 => MultipartReply::Meter(self.many(3, |r| MeterStats {
                meter: r.u32(),
                flows: r.u32(),
                packets: r.next(),
                bytes: r.next(),
                duration: r.duration(),
                bands: r.counters(),
            })),
            12 => MultipartReply::MeterConfig(self.many(3, |r| MeterConfig {
                flags: MeterFlags(r.u16()),
                meter: r.u32(),
                bands: r.many(3, Self::band),
            })),
            13 => MultipartReply::MeterFeatures(MeterFeatures {
                max_meters: self.u32(),
                band_types: self.u32(),
                capabilities: self.u32(),
                max_bands: self.u8(),
                max_color: self.u8(),
            }),
            _ => MultipartReply::TableFeatures(self.many(2, Self::table_features)),
        }
    }

    fn asynchronous(&mut self) -> AsyncConfig {
        AsyncConfig {
            packet_in: [self.u32(), self.u32()],
            port_status: [self.u32(), self.u32()],
            flow_removed: [self.u32(), self.u32()],
        }
    }

    fn role(&mut self) -> RoleMessage {
        let role = self.of(&[Role::NoChange, Role::Equal, Role::Master, Role::Slave]);
        RoleMessage { role, generation_id: self.next() }
    }

    fn group_mod(&mut self) -> GroupMod {
        GroupMod {
            command: self.command(),
            kind: self.group_type(),
            group: self.u32(),
            buckets: self.many(3, Self::bucket),
        }
    }

    /// A message that only 1.3 has.
    /// A match of a flow monitor: in 1.0 with all fields, but ports that have a number there.
    fn monitored(&mut self, version: Version) -> Match {
        if version == Version::V13 || self.coin() {
            return self.matches(version);
        }
        let all = std::iter::repeat_with(|| self.matches(Version::V13));
        let mut all = all.filter(|matches| matches.get(Field::InPort).is_none());
        all.next().unwrap_or_default()
    }

    /// Flows in Nicira's extension of 1.0.
    fn nicira(&mut self) -> Body {
        let (version, matches) = (Version::V10, self.monitored(Version::V10));
        let reply = |reply| Body::MultipartReply { more: false, reply };
        let request = |request| Body::MultipartRequest { more: false, request };
        match self.below(6) {
            0 if self.coin() => Body::SetFlowModTableId(self.coin()),
            0 | 1 => {
                let mut flow = FlowMod { matches, ..self.flow_mod(version) };
                if flow.command != FlowCommand::Add && self.coin() {
                    flow.cookie_mask = self.of(&[u64::MAX, 0xff, 1 << 63]);
                    flow.cookie = self.next() & flow.cookie_mask;
                }
                Body::NiciraFlowMod(flow)
            }
            2 => {
                let mut filter = FlowFilter { matches, ..self.filter(version) };
                if self.coin() {
                    filter.cookie_mask = self.of(&[u64::MAX, 0xff, 1 << 63]);
                    filter.cookie = self.next() & filter.cookie_mask;
                }
                let all = [
                    MultipartRequest::NiciraFlow(filter.clone()),
                    MultipartRequest::NiciraAggregate(filter),
                ];
                request(self.of(&all))
            }
            3 => {
                let stats =
                    AggregateStats { packets: self.next(), bytes: self.next(), flows: self.u32() };
                reply(MultipartReply::NiciraAggregate(stats))
            }
            4 => {
                use RemovedReason::{Delete, GroupDelete, HardTimeout, IdleTimeout};
                Body::NiciraFlowRemoved(FlowRemoved {
                    cookie: self.next(),
                    priority: self.u16(),
                    reason: self.of(&[IdleTimeout, HardTimeout, Delete, GroupDelete]),
                    table: self.u8() & 0x7f,
                    duration: self.duration(),
                    idle_timeout: self.u16(),
                    hard_timeout: 0,
                    packets: self.next(),
                    bytes: self.next(),
                    matches,
                })
            }
            _ => reply(MultipartReply::NiciraFlow(self.many(3, |r| FlowStats {
                table: r.u8(),
                duration: r.duration(),
                priority: r.u16(),
                idle_timeout: r.u16(),
                hard_timeout: r.u16(),
                flags: FlowFlags::empty(),
                cookie: r.next(),
                packets: r.next(),
                bytes: r.next(),
                matches: r.monitored(version),
                instructions: r.instructions(version),
            }))),
        }
    }

    fn update(&mut self, version: Version) -> FlowUpdate {
        use RemovedReason::{Delete, GroupDelete, HardTimeout, IdleTimeout};
        let reason = self.of(&[IdleTimeout, HardTimeout, Delete, GroupDelete]);
        let event = [FlowEvent::Added, FlowEvent::Modified, FlowEvent::Deleted(reason)];
        if self.below(4) == 0 {
            return FlowUpdate::Abbreviated { xid: self.u32() };
        }
        let flow = FlowStats {
            table: self.u8(),
            duration: Duration::ZERO,
            priority: self.u16(),
            idle_timeout: self.u16(),
            hard_timeout: self.u16(),
            flags: FlowFlags::empty(),
            cookie: self.next(),
            packets: 0,
            bytes: 0,
            matches: self.monitored(version),
            instructions: self.instructions(version),
        };
        FlowUpdate::Flow(self.of(&event), flow)
    }

    fn body13(&mut self, xid: u32) -> Body {
        match self.below(9) {
            0 => Body::GroupMod(self.group_mod()),
            1 => Body::TableMod { table: self.u8(), config: self.u32() },
            2 => Body::RoleRequest(self.role()),
            3 => Body::RoleReply(self.role()),
            4 => Body::GetAsyncReply(self.asynchronous()),
            5 => Body::SetAsync(self.asynchronous()),
            6 => Body::MeterMod(MeterMod {
                command: self.command(),
                flags: MeterFlags(self.u16()),
                meter: self.u32(),
                bands: self.many(3, Self::band),
            }),
            7 => {
                use BundleStep::{CloseRequest, CommitReply, DiscardReply, OpenRequest};
                Body::BundleControl(BundleControl {
                    bundle: self.u32(),
                    step: self.of(&[OpenRequest, CloseRequest, CommitReply, DiscardReply]),
                    flags: BundleFlags(self.u16() & 3),
                })
            }
            _ => {
                let body = Body::FlowMod(self.flow_mod(Version::V13));
                let message = Box::new(Message::new(Version::V13, xid, body));
                let flags = BundleFlags(self.u16() & 3);
                Body::BundleAdd(BundleAdd { bundle: self.u32(), flags, message })
            }
        }
    }

    /// A message of a version, of any type.
    pub(crate) fn message(&mut self, version: Version) -> Message {
        let xid = self.u32();
        let is_v10 = version == Version::V10;
        let body = match self.below(if is_v10 { 26 } else { 35 }) {
            0 => Body::Hello(Hello { versions: if is_v10 { vec![] } else { vec![0x12] } }),
            1 => {
                // The names that the version has.
                let code = self.of(ErrorCode::ALL);
                let (kind, number) = code.wire(version);
                let code = ErrorCode::from_wire(version, kind, number);
                Body::Error(ErrorMessage { code, data: self.bytes(64) })
            }
            2 => Body::EchoRequest(self.bytes(20)),
            3 => Body::EchoReply(self.bytes(20)),
            4 => Body::Experimenter(Experimenter { id: self.u32() | 1, data: self.bytes(20) }),
            5 => Body::FeaturesRequest,
            6 => Body::FeaturesReply(Features {
                datapath_id: self.next(),
                buffers: self.u32(),
                tables: self.u8(),
                auxiliary_id: if is_v10 { 0 } else { self.u8() },
                capabilities: Capabilities(self.u32()),
                actions: self.u32(),
                ports: if is_v10 { self.many(3, |r| r.port_desc(version)) } else { vec![] },
            }),
            7 => Body::GetConfigRequest,
            8 | 9 => {
                let fragments =
                    self.of(&[Fragments::Normal, Fragments::Drop, Fragments::Reassemble]);
                let config = SwitchConfig { fragments, miss_send_len: self.u16() };
                if self.coin() { Body::SetConfig(config) } else { Body::GetConfigReply(config) }
            }
            10 => Body::PacketIn(PacketIn {
                buffer_id: self.coin().then(|| self.u32() >> 1),
                total_len: self.u16(),
                reason: self.of(&[InReason::NoMatch, InReason::Action]),
                table: if is_v10 { 0 } else { self.u8() },
                cookie: if is_v10 { u64::MAX } else { self.next() },
                matches: match version {
                    Version::V10 => Match::new().with(Field::InPort, self.port(version).0),
                    Version::V13 => self.matches(version),
                },
                data: self.bytes(100),
            }),
            11 => {
                use RemovedReason::{Delete, HardTimeout, IdleTimeout};
                Body::FlowRemoved(FlowRemoved {
                    cookie: self.next(),
                    priority: self.u16(),
                    reason: self.of(&[IdleTimeout, HardTimeout, Delete]),
                    table: if is_v10 { 0 } else { self.u8() },
                    duration: self.duration(),
                    idle_timeout: self.u16(),
                    hard_timeout: if is_v10 { 0 } else { self.u16() },
                    packets: self.next(),
                    bytes: self.next(),
                    matches: self.matches(version),
                })
            }
            12 => {
                let reason = self.of(&[PortReason::Add, PortReason::Delete, PortReason::Modify]);
                Body::PortStatus(reason, self.port_desc(version))
            }
            13 => Body::PacketOut(PacketOut {
                buffer_id: self.coin().then(|| self.u32() >> 1),
                in_port: self.port(version),
                actions: self.actions(version),
                data: self.bytes(100),
            }),
            14 | 15 => Body::FlowMod(self.flow_mod(version)),
            16 => Body::PortMod(PortMod {
                port: self.port(version),
                hw_addr: [self.u8(); 6],
                config: PortConfig(self.u32()),
                mask: PortConfig(self.u32()),
                advertise: PortFeatures(self.u32() & 0xf87f),
            }),
            17 | 18 => {
                let more = self.coin();
                Body::MultipartRequest { more, request: self.request(version) }
            }
            19 | 20 => {
                let more = self.coin();
                Body::MultipartReply { more, reply: self.reply(version) }
            }
            21 => self.of(&[Body::BarrierRequest, Body::BarrierReply, Body::FeaturesRequest]),
            22 => {
                let port = self.port(version);
                if self.coin() {
                    return Message::new(version, xid, Body::QueueGetConfigRequest(port));
                }
                let queues = self.many(3, |r| QueueDesc {
                    port: if is_v10 { port } else { r.port(version) },
                    queue: r.u32(),
                    min_rate: r.coin().then(|| r.u16()),
                    max_rate: r.coin().then(|| r.u16()),
                    others: Vec::new(),
                });
                Body::QueueGetConfigReply(port, queues)
            }
            23 => Body::FlowMonitorCancel(self.u32()),
            24 if is_v10 && self.below(6) == 0 => {
                let format = self.u32();
                self.of(&[Body::SetPacketInFormat(format), Body::SetFlowFormat(format)])
            }
            24 if is_v10 && self.coin() => self.nicira(),
            24 if is_v10 && self.coin() => Body::NiciraPacketIn(PacketIn {
                buffer_id: self.coin().then(|| self.u32() >> 1),
                total_len: self.u16(),
                reason: self.of(&[InReason::NoMatch, InReason::Action, InReason::InvalidTtl]),
                table: self.u8(),
                cookie: self.next(),
                matches: self.monitored(version),
                data: self.bytes(100),
            }),
            24 => self.of(&[Body::FlowMonitorPaused, Body::FlowMonitorResumed]),
            25 => {
                let reply = MultipartReply::FlowMonitor(self.many(3, |r| r.update(version)));
                Body::MultipartReply { more: self.coin(), reply }
            }
            _ => self.body13(xid),
        };
        Message::new(version, xid, body)
    }
}

/// A few fixed seeds, and fifty fresh ones; a failure names its own.
pub(crate) fn seeds() -> impl Iterator<Item = u64> {
    let time = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    let first = time.as_nanos() as u64;
    (0..20).chain((0..50).map(move |n| first.wrapping_add(n << 32)))
}
