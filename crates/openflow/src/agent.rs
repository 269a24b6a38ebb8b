//! The agent: what a switch says to its controllers.
//!
//! ```text
//!   bytes ──▶ receive ──▶ messages ──▶ Switch        packets, ports, flows that left
//!                            │                                  │
//!   bytes ◀── outgoing ◀─────┴──────────────────────────────────┘
//! ```
//!
//! An [`Agent`] has a channel for each connection. It knows no sockets: bytes are given to [`Agent::receive`] and taken from
//! [`Agent::outgoing`], time is given as the duration since any fixed point. It is a plain state machine: the same bytes
//! at the same times, cut in whatever pieces, give the same bytes.
//!
//! - **Bounds.** A channel whose peer does not read stops being read ([`Agent::wants_input`]); a dump of flows waits, packets
//!   for the controller are dropped and counted. A peer that leaves more than twice [`Settings::out_max`] unread is
//!   disconnected; one with flow monitors, more than 64 MiB.
//! - **Bad input.** A message that cannot be read is answered with its ERROR, and the channel goes on. Where the borders of
//!   messages are lost (a length below eight, another version), the channel ends, and only it.
//! - **Roles** (1.3). One master at most; a new one makes the old one a slave. A slave reads; `generation_id` orders
//!   elections.

mod buffers;
mod bundles;
mod channel;
mod link;
mod monitors;
mod replies;
mod switch;

use std::collections::BTreeMap;
use std::time::Duration;

use self::buffers::Buffers;
use self::bundles::Budget;
pub use self::channel::Closed;
use self::channel::{Channel, Copies, echoed};
pub use self::link::{Connector, FailMode, FailSafe, Forwarding};
pub use self::monitors::{FlowChange, StampedFlow};
pub use self::switch::{Change, ChangedPage, FlowPage, Refused, Switch};
use crate::error::{ErrorCode, Version};
use crate::field::Field;
use crate::flow::{FlowRemoved, InReason, PacketIn, PacketOut, RemovedReason};
use crate::message::{Body, BundleControl, Message, Role, RoleMessage};
use crate::port::{PortDesc, PortNo, PortReason};
use crate::table::{Capabilities, Fragments};
use crate::{Action, wire};

/// How an agent behaves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The versions that it speaks.
    pub versions: Vec<Version>,
    /// A silent peer is probed after this time, and disconnected after another; zero: never.
    pub probe_interval: Duration,
    /// Bytes that wait for a peer; above it the channel is not read.
    pub out_max: usize,
    /// Packets kept for controllers; 0: PACKET_IN carries whole packets.
    pub buffers: usize,
    /// Bytes that messages in bundles take at most, those of all channels together.
    pub bundle_bytes: usize,
    /// PACKET_INs a second for all controllers together; 0: not limited.
    pub packet_in_rate: u32,
    /// PACKET_INs at once.
    pub packet_in_burst: u32,
}

impl Default for Settings {
    /// Both versions, five seconds as Open vSwitch, 1 MiB, 256 packets, 256 MiB of bundles, no limit.
    fn default() -> Self {
        Self {
            versions: vec![Version::V10, Version::V13],
            probe_interval: Duration::from_secs(5),
            out_max: 1 << 20,
            buffers: 256,
            bundle_bytes: 256 << 20,
            packet_in_rate: 0,
            packet_in_burst: 0,
        }
    }
}

/// Who is at the other end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChannelKind {
    /// A controller that the switch connects to.
    Controller,
    /// A tool that connects to the switch. It gets no packets and no news before it asks for them by SET_CONFIG with a
    /// `miss_send_len` other than zero.
    Service,
    /// A tool that connects to the switch and gets copies of what controllers send and get; what it says is not carried out.
    Snoop,
}

impl ChannelKind {
    /// In a word.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Controller => "controller",
            Self::Service => "tool",
            Self::Snoop => "snoop",
        }
    }
}

/// Names a channel of an agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ChannelId(u64);

/// What the agent has counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Messages received.
    pub received: u64,
    /// ERRORs sent.
    pub errors_sent: u64,
    /// ERRORs received.
    pub errors_received: u64,
    /// PACKET_INs sent.
    pub packet_ins: u64,
    /// Packets for controllers dropped (rate).
    pub dropped_rate: u64,
    /// Messages for controllers dropped (slow reader).
    pub dropped_full: u64,
}

/// The channels of a switch.
#[derive(Debug)]
pub struct Agent {
    settings: Settings,
    channels: BTreeMap<ChannelId, Channel>,
    next_id: u64,
    /// Of the last request for master or slave.
    generation: Option<u64>,
    buffers: Buffers,
    bundles: Budget,
    tokens: Tokens,
    counters: Counters,
}

/// PACKET_INs that may still be sent: a bucket that fills with time.
#[derive(Debug)]
struct Tokens {
    /// In billionths of a PACKET_IN.
    level: u64,
    since: Duration,
}

const BILLION: u64 = 1_000_000_000;

impl Tokens {
    fn take(&mut self, settings: &Settings, now: Duration) -> bool {
        if settings.packet_in_rate == 0 {
            return true;
        }
        let passed = now.saturating_sub(self.since).as_nanos();
        let more = passed.saturating_mul(u128::from(settings.packet_in_rate));
        let full = u64::from(settings.packet_in_burst.max(1)) * BILLION;
        self.level = self.level.saturating_add(u64::try_from(more).unwrap_or(u64::MAX)).min(full);
        self.since = self.since.max(now);
        let has = self.level >= BILLION;
        if has {
            self.level -= BILLION;
        }
        has
    }
}

impl Agent {
    /// An agent without channels.
    pub fn new(settings: Settings) -> Self {
        let tokens = Tokens {
            level: u64::from(settings.packet_in_burst.max(1)) * BILLION,
            since: Duration::ZERO,
        };
        let buffers = Buffers::new(settings.buffers);
        let bundles = Budget::new(settings.bundle_bytes);
        Self {
            settings,
            channels: BTreeMap::new(),
            next_id: 0,
            generation: None,
            buffers,
            bundles,
            tokens,
            counters: Counters::default(),
        }
    }

    /// A connection is there: HELLO waits in [`Agent::outgoing`].
    pub fn open(&mut self, kind: ChannelKind, now: Duration) -> ChannelId {
        let id = ChannelId(self.next_id);
        self.next_id += 1;
        // So that who snoops sees both HELLOs.
        let is_watched = kind == ChannelKind::Controller && self.is_watched();
        let channel = Channel::new(kind, &self.settings, now, self.bundles.clone(), is_watched);
        self.channels.insert(id, channel);
        id
    }

    /// Somebody snoops.
    fn is_watched(&self) -> bool {
        self.channels.values().any(Channel::is_snooping)
    }

    /// The connection is gone.
    pub fn remove(&mut self, id: ChannelId) {
        self.channels.remove(&id);
    }

    /// Bytes came in. Without bytes it goes on with what waited, for example after [`Agent::sent`].
    pub fn receive(&mut self, id: ChannelId, bytes: &[u8], switch: &mut dyn Switch, now: Duration) {
        let Some(channel) = self.channels.get_mut(&id) else { return };
        channel.receive(bytes, now);
        self.work(id, switch, now);
    }

    /// Handles messages as long as there are any and their answers have place.
    fn work(&mut self, id: ChannelId, switch: &mut dyn Switch, now: Duration) {
        loop {
            let Some(channel) = self.channels.get_mut(&id) else { return };
            if channel.is_full(&self.settings) {
                return;
            }
            if let Some(dump) = channel.dump.take() {
                self.dump(id, dump, switch, now);
                continue;
            }
            if channel.monitors.is_behind() {
                if self.pass(id, switch) {
                    continue;
                }
                return;
            }
            let Some((header, bytes)) = channel.next_message(&self.settings) else { return };
            self.counters.received += 1;
            let extensions = channel.extensions;
            match channel.version() {
                None => channel.greet(header, &bytes, &self.settings),
                Some(version) => {
                    let done = wire::decode_with(&bytes, extensions)
                        .and_then(|message| self.handle(id, version, message, &bytes, switch, now));
                    // An ERROR is not answered by another.
                    if let Err(code) = done
                        && header.kind != 1
                    {
                        self.error(id, header.xid, code, &bytes);
                    }
                }
            }
        }
    }

    fn error(&mut self, id: ChannelId, xid: u32, code: ErrorCode, request: &[u8]) {
        if let Some(channel) = self.channels.get_mut(&id) {
            self.counters.errors_sent += 1;
            channel.error(xid, code, request, &self.settings);
        }
    }

    /// Copies what controllers have sent and got since the last call for channels that snoop. A copy that has no place is lost.
    pub fn snoop(&mut self) {
        let is_watched = self.is_watched();
        let mut all = Copies::default();
        for own in self.channels.values_mut().filter(|c| c.kind == ChannelKind::Controller) {
            let copies = std::mem::replace(&mut own.copies, is_watched.then(Copies::default));
            copies.into_iter().for_each(|copies| all.append(copies));
        }
        for own in self.channels.values_mut().filter(|c| c.is_snooping()) {
            let before = own.lost;
            own.copy(&all, &self.settings);
            self.counters.dropped_full += own.lost - before;
        }
    }

    /// What waits to be sent.
    pub fn outgoing(&self, id: ChannelId) -> &[u8] {
        self.channels.get(&id).map_or(&[], Channel::outgoing)
    }

    /// So many bytes of [`Agent::outgoing`] have been sent. [`Agent::receive`] goes on with what waited for it.
    pub fn sent(&mut self, id: ChannelId, len: usize) {
        if let Some(channel) = self.channels.get_mut(&id) {
            channel.sent(len);
        }
    }

    /// The connection is to be read: not closed, and its peer reads what it gets.
    pub fn wants_input(&self, id: ChannelId) -> bool {
        self.channels.get(&id).is_some_and(|channel| {
            let is_behind = channel.dump.is_some() || channel.monitors.is_behind();
            channel.closed().is_none() && !is_behind && !channel.is_full(&self.settings)
        })
    }

    /// Why the channel ended; the connection is to be closed when [`Agent::outgoing`] has been sent.
    pub fn closed(&self, id: ChannelId) -> Option<&Closed> {
        self.channels.get(&id).and_then(Channel::closed)
    }

    /// The version of a channel, when HELLO has come.
    pub fn version(&self, id: ChannelId) -> Option<Version> {
        self.channels.get(&id).and_then(Channel::version)
    }

    /// Who is at the other end of a channel.
    pub fn kind(&self, id: ChannelId) -> Option<ChannelKind> {
        self.channels.get(&id).map(|channel| channel.kind)
    }

    /// The role of the controller.
    pub fn role(&self, id: ChannelId) -> Option<Role> {
        self.channels.get(&id).map(|channel| channel.role)
    }

    /// A controller (not a tool) is there and has said HELLO.
    pub fn has_controller(&self) -> bool {
        let is_there = |c: &Channel| c.kind == ChannelKind::Controller && c.version().is_some();
        self.channels.values().any(is_there)
    }

    /// Messages received and sent by a channel.
    pub fn messages(&self, id: ChannelId) -> [u64; 2] {
        self.channels.get(&id).map_or([0; 2], |channel| channel.messages)
    }

    /// Messages that a channel did not get because its peer reads too slowly.
    pub fn lost(&self, id: ChannelId) -> u64 {
        self.channels.get(&id).map_or(0, |channel| channel.lost)
    }

    /// Some channel gets packets.
    pub fn wants_packets(&self) -> bool {
        self.channels
            .values()
            .any(|c| (0..3).any(|reason| c.wants(c.asynchronous.packet_in, reason)))
    }

    /// After which silence peers are probed; zero: never.
    pub fn probe_interval(&self) -> Duration {
        self.settings.probe_interval
    }

    /// What has been counted.
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// Time has passed: probes, ends of silent channels.
    pub fn tick(&mut self, now: Duration) {
        self.channels.values_mut().for_each(|channel| channel.tick(&self.settings, now));
    }

    /// When [`Agent::tick`] has something to do.
    pub fn deadline(&self) -> Option<Duration> {
        self.channels.values().filter_map(|channel| channel.deadline(&self.settings)).min()
    }

    /// A packet for the controllers; `data` is all of it. `max_len` is that of its OUTPUT; `None`: no flow took it, and
    /// each controller's `miss_send_len` counts.
    pub fn packet_in(&mut self, packet: &PacketIn, max_len: Option<u16>, now: Duration) {
        let reason = match packet.reason {
            InReason::NoMatch => 0,
            InReason::Action => 1,
            InReason::InvalidTtl => 2,
        };
        let wants = |c: &Channel| c.wants(c.asynchronous.packet_in, reason);
        if !self.channels.values().any(wants) {
            return;
        }
        if !self.tokens.take(&self.settings, now) {
            self.counters.dropped_rate += 1;
            return;
        }
        let in_port = packet.matches.exact(Field::InPort).unwrap_or(0) as u32;
        // One place in the ring for all controllers: the first answer releases the packet.
        let mut kept = None;
        for channel in self.channels.values_mut().filter(|c| wants(c)) {
            if channel.is_full(&self.settings) {
                self.counters.dropped_full += 1;
                channel.lost += 1;
                continue;
            }
            let len = usize::from(max_len.unwrap_or(channel.config.miss_send_len));
            let mut own = packet.clone();
            if len < own.data.len() && len != usize::from(crate::action::NO_BUFFER) {
                if kept.is_none() {
                    kept = self.buffers.keep(in_port, &packet.data);
                }
                own.buffer_id = kept;
                if kept.is_some() {
                    own.data.truncate(len);
                }
            }
            let body = match channel.is_nicira {
                true => Body::NiciraPacketIn(own),
                false => Body::PacketIn(own),
            };
            if channel.send(0, body).is_ok() {
                self.counters.packet_ins += 1;
            }
        }
    }

    /// A port came, left or changed.
    pub fn port_status(&mut self, reason: PortReason, port: &PortDesc) {
        let bit = match reason {
            PortReason::Add => 0,
            PortReason::Delete => 1,
            PortReason::Modify => 2,
        };
        self.news(bit, |c| c.asynchronous.port_status, |_| Body::PortStatus(reason, port.clone()));
    }

    /// A flow left. Only those with [`crate::FlowFlags::SEND_FLOW_REM`] are reported; the caller filters by its flags.
    pub fn flow_removed(&mut self, flow: &FlowRemoved) {
        let bit = match flow.reason {
            RemovedReason::IdleTimeout => 0,
            RemovedReason::HardTimeout => 1,
            RemovedReason::Delete => 2,
            RemovedReason::GroupDelete => 3,
        };
        let body = |channel: &Channel| match channel.has_nicira_flows {
            true => Body::NiciraFlowRemoved(flow.clone()),
            false => Body::FlowRemoved(flow.clone()),
        };
        self.news(bit, |c| c.asynchronous.flow_removed, body);
    }

    fn news(
        &mut self,
        bit: u32,
        masks: impl Fn(&Channel) -> [u32; 2],
        body: impl Fn(&Channel) -> Body,
    ) {
        for channel in self.channels.values_mut() {
            if !channel.wants(masks(channel), bit) {
                continue;
            }
            // News that are lost cannot be requested again: the channel ends instead, and the controller asks anew.
            let out_max = channel.unread_max(&self.settings);
            if channel.outgoing().len() >= out_max {
                self.counters.dropped_full += 1;
                channel.close(Closed::SlowReader);
                continue;
            }
            // What 1.0 cannot express is not sent.
            let body = body(channel);
            let _ = channel.send(0, body);
        }
    }

    /// One message of an open channel.
    fn handle(
        &mut self,
        id: ChannelId,
        version: Version,
        message: Message,
        bytes: &[u8],
        switch: &mut dyn Switch,
        now: Duration,
    ) -> Result<(), ErrorCode> {
        let Some(channel) = self.channels.get_mut(&id) else { return Ok(()) };
        let xid = message.xid;
        if channel.role == Role::Slave && is_change(&message.body) {
            return Err(ErrorCode::BadRequestIsSlave);
        }
        if channel.kind == ChannelKind::Snoop && !matches!(message.body, Body::EchoRequest(_)) {
            return Ok(());
        }
        let reply = match message.body {
            Body::Hello(_) | Body::EchoReply(_) => return Ok(()),
            Body::Error(_) => {
                self.counters.errors_received += 1;
                return Ok(());
            }
            Body::EchoRequest(data) => Body::EchoReply(data),
            Body::FeaturesRequest => {
                let mut features = switch.features();
                features.buffers = u32::try_from(self.buffers.len()).unwrap_or(u32::MAX);
                if version == Version::V10 {
                    // The bit of groups is that of a spanning tree there.
                    features.capabilities =
                        features.capabilities.without(Capabilities::GROUP_STATS);
                    features.ports = switch.ports();
                    // A port that 1.0 has no number for is not shown.
                    features.ports.retain(|port| port.port.to_v10().is_some());
                } else {
                    features.actions = 0;
                }
                Body::FeaturesReply(features)
            }
            Body::GetConfigRequest => Body::GetConfigReply(channel.config),
            Body::SetConfig(config) => {
                if config.fragments != Fragments::Normal {
                    return Err(ErrorCode::SwitchConfigFlags);
                }
                channel.config = config;
                channel.is_configured |= config.miss_send_len > 0;
                return Ok(());
            }
            Body::BarrierRequest => Body::BarrierReply,
            Body::RoleRequest(request) => Body::RoleReply(self.role_request(id, request)?),
            Body::GetAsyncRequest => Body::GetAsyncReply(channel.asynchronous),
            Body::SetAsync(config) => {
                channel.asynchronous = config;
                return Ok(());
            }
            Body::PacketOut(packet) => return self.packet_out(version, packet, switch),
            Body::FlowMod(flow) | Body::NiciraFlowMod(flow) => {
                let buffer = flow.buffer_id.filter(|_| {
                    use crate::FlowCommand::{Add, Modify, ModifyStrict};
                    matches!(flow.command, Add | Modify | ModifyStrict)
                });
                self.apply((id, xid), switch, version, Change::Flow(flow), now)?;
                return match buffer {
                    Some(buffer) => self.release(version, buffer, switch),
                    None => Ok(()),
                };
            }
            Body::GroupMod(group) => {
                return self.apply((id, xid), switch, version, Change::Group(group), now);
            }
            Body::MeterMod(meter) => {
                return self.apply((id, xid), switch, version, Change::Meter(meter), now);
            }
            Body::PortMod(port) => {
                port.check(version)?;
                return self.apply((id, xid), switch, version, Change::Port(port), now);
            }
            Body::SetFlowFormat(format @ (0 | 2)) => {
                channel.has_nicira_flows = format == 2;
                return Ok(());
            }
            Body::SetFlowModTableId(is_on) => {
                channel.extensions.flow_mod_table_id = is_on;
                return Ok(());
            }
            Body::SetPacketInFormat(format @ (0 | 1)) => {
                channel.is_nicira = format == 1;
                return Ok(());
            }
            // A form that there is not.
            Body::SetFlowFormat(_) | Body::SetPacketInFormat(_) => {
                return Err(ErrorCode::BadRequestEperm);
            }
            Body::FlowMonitorCancel(monitor) => return self.cancel_monitor(id, monitor),
            Body::TableMod { table, config } => return switch.table_mod(table, config),
            Body::QueueGetConfigRequest(port) => {
                Body::QueueGetConfigReply(port, switch.queues(port)?)
            }
            Body::MultipartRequest { more: true, .. } => {
                return Err(ErrorCode::BadRequestMultipartOverflow);
            }
            Body::MultipartRequest { more: false, request } => {
                return self.multipart(id, version, xid, request, switch, now);
            }
            Body::BundleControl(control) => {
                let (step, commit) = channel.bundles.control(&control)?;
                if let Some(commit) = commit {
                    if let Err(refused) = switch.apply(version, &commit.changes, now) {
                        // The request that failed is named first, the bundle then.
                        if let Some((xid, head)) = commit.requests.get(refused.index) {
                            self.error(id, *xid, refused.code, head);
                        }
                        return Err(ErrorCode::BundleMsgFailed);
                    }
                    self.changed(switch, Some((id, xid)));
                }
                Body::BundleControl(BundleControl { step, ..control })
            }
            Body::BundleAdd(add) => return channel.bundles.add(add, bytes),
            Body::Experimenter(own) => return Err(own.refusal()),
            // What only a switch sends.
            Body::NiciraPacketIn(_)
            | Body::NiciraFlowRemoved(_)
            | Body::FlowMonitorPaused
            | Body::FlowMonitorResumed
            | Body::FeaturesReply(_)
            | Body::GetConfigReply(_)
            | Body::PacketIn(_)
            | Body::FlowRemoved(_)
            | Body::PortStatus(..)
            | Body::MultipartReply { .. }
            | Body::BarrierReply
            | Body::QueueGetConfigReply(..)
            | Body::RoleReply(_)
            | Body::GetAsyncReply(_) => return Err(ErrorCode::BadRequestType),
        };
        match self.channels.get_mut(&id).map(|channel| channel.send(xid, reply)) {
            Some(Err(_)) => Err(ErrorCode::BadRequestMultipartOverflow),
            _ => Ok(()),
        }
    }

    /// Carries out one change, and reports what has become of flows.
    fn apply(
        &mut self,
        cause: (ChannelId, u32),
        switch: &mut dyn Switch,
        version: Version,
        change: Change,
        now: Duration,
    ) -> Result<(), ErrorCode> {
        switch.apply(version, &[change], now).map_err(|refused| refused.code)?;
        self.changed(switch, Some(cause));
        Ok(())
    }

    fn role_request(
        &mut self,
        id: ChannelId,
        request: RoleMessage,
    ) -> Result<RoleMessage, ErrorCode> {
        if matches!(request.role, Role::Master | Role::Slave) {
            // Newer by the circular distance (1.3, section 6.3.6).
            let is_stale = |last: u64| (request.generation_id.wrapping_sub(last) as i64) < 0;
            if self.generation.is_some_and(is_stale) {
                return Err(ErrorCode::RoleStale);
            }
            self.generation = Some(request.generation_id);
        }
        if request.role == Role::Master {
            let masters = self.channels.values_mut().filter(|c| c.role == Role::Master);
            masters.for_each(|c| c.role = Role::Slave);
        }
        let Some(channel) = self.channels.get_mut(&id) else { return Ok(request) };
        if request.role != Role::NoChange {
            channel.role = request.role;
        }
        let generation_id = self.generation.unwrap_or(u64::MAX);
        Ok(RoleMessage { role: channel.role, generation_id })
    }

    fn packet_out(
        &mut self,
        version: Version,
        mut packet: PacketOut,
        switch: &mut dyn Switch,
    ) -> Result<(), ErrorCode> {
        // Where a packet cannot have come from; as Open vSwitch, which takes 0.
        let others = [PortNo(0), PortNo::LOCAL, PortNo::CONTROLLER, PortNo::ANY];
        if !packet.in_port.is_ordinary() && !others.contains(&packet.in_port) {
            return Err(ErrorCode::BadRequestPort);
        }
        if let Some(buffer) = packet.buffer_id.take() {
            let kept = self.buffers.take(buffer).ok_or(ErrorCode::BadRequestBufferUnknown)?;
            packet.data = kept.data;
            if !packet.in_port.is_ordinary() {
                packet.in_port = PortNo(kept.in_port);
            }
        }
        switch.packet_out(version, &packet)
    }

    /// The packet that a FLOW_MOD names goes through the tables.
    fn release(
        &mut self,
        version: Version,
        buffer: u32,
        switch: &mut dyn Switch,
    ) -> Result<(), ErrorCode> {
        let kept = self.buffers.take(buffer).ok_or(ErrorCode::BadRequestBufferUnknown)?;
        let packet = PacketOut {
            buffer_id: None,
            in_port: PortNo(kept.in_port),
            actions: vec![Action::output(PortNo::TABLE)],
            data: kept.data,
        };
        switch.packet_out(version, &packet)
    }
}

/// What a slave may not do (1.3, section 6.3.4).
fn is_change(body: &Body) -> bool {
    match body {
        Body::PacketOut(_)
        | Body::FlowMod(_)
        | Body::NiciraFlowMod(_)
        | Body::GroupMod(_)
        | Body::MeterMod(_)
        | Body::PortMod(_)
        | Body::TableMod { .. }
        | Body::BundleControl(_)
        | Body::BundleAdd(_) => true,
        Body::MultipartRequest { request, .. } => {
            matches!(request, crate::message::MultipartRequest::TableFeatures(all) if !all.is_empty())
        }
        _ => false,
    }
}

impl Channel {
    /// It gets copies of what controllers send and get.
    fn is_snooping(&self) -> bool {
        self.kind == ChannelKind::Snoop && self.version().is_some()
    }

    /// The channel gets messages of this reason unrequested.
    fn wants(&self, masks: [u32; 2], reason: u32) -> bool {
        let mask = masks[usize::from(self.role == Role::Slave)];
        self.version().is_some() && self.is_configured && mask >> reason & 1 != 0
    }
}
