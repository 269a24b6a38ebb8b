//! Messages of both versions.

use crate::error::{ErrorCode, Version};
use crate::flow::{
    AggregateStats, FlowFilter, FlowMod, FlowRemoved, FlowStats, PacketIn, PacketOut,
};
use crate::group::{
    GroupDesc, GroupFeatures, GroupMod, GroupStats, MeterConfig, MeterFeatures, MeterMod,
    MeterStats,
};
use crate::monitor::{FlowMonitor, FlowUpdate};
use crate::port::{PortDesc, PortMod, PortNo, PortReason, PortStats, QueueDesc, QueueStats};
use crate::table::{Description, Features, SwitchConfig, TableFeatures, TableStats};

/// A message of a version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// The version that it is in. HELLO carries the highest of its sender.
    pub version: u8,
    /// Pairs requests and replies.
    pub xid: u32,
    /// What it says.
    pub body: Body,
}

impl Message {
    /// A message of a version.
    pub const fn new(version: Version, xid: u32, body: Body) -> Self {
        Self { version: version.wire(), xid, body }
    }
}

/// What a message says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Body {
    /// The first message of both sides.
    Hello(Hello),
    /// A message was refused.
    Error(ErrorMessage),
    /// Are you there?
    EchoRequest(Vec<u8>),
    /// Yes; the same bytes.
    EchoReply(Vec<u8>),
    /// Of an experimenter (1.0: vendor) that this crate does not know.
    Experimenter(Experimenter),
    /// What can the switch do?
    FeaturesRequest,
    /// This.
    FeaturesReply(Features),
    /// How is the switch configured?
    GetConfigRequest,
    /// So.
    GetConfigReply(SwitchConfig),
    /// Configure the switch.
    SetConfig(SwitchConfig),
    /// A packet for the controller.
    PacketIn(PacketIn),
    /// A flow left.
    FlowRemoved(FlowRemoved),
    /// A port came, left or changed.
    PortStatus(PortReason, PortDesc),
    /// A packet from the controller.
    PacketOut(PacketOut),
    /// A change to flows.
    FlowMod(FlowMod),
    /// A change to groups.
    GroupMod(GroupMod),
    /// A change to a port.
    PortMod(PortMod),
    /// A change to a table (1.3; deprecated bits).
    TableMod {
        /// The table, or all.
        table: u8,
        /// New bits.
        config: u32,
    },
    /// Statistics and descriptions are requested; `more`: another message of the same request follows.
    MultipartRequest {
        /// Another message follows.
        more: bool,
        /// What is requested.
        request: MultipartRequest,
    },
    /// Statistics and descriptions; `more`: another message of the same reply follows.
    MultipartReply {
        /// Another message follows.
        more: bool,
        /// What it carries.
        reply: MultipartReply,
    },
    /// Finish all before.
    BarrierRequest,
    /// Done.
    BarrierReply,
    /// Which queues does a port have?
    QueueGetConfigRequest(PortNo),
    /// These.
    QueueGetConfigReply(PortNo, Vec<QueueDesc>),
    /// The controller takes a role.
    RoleRequest(RoleMessage),
    /// It has this role.
    RoleReply(RoleMessage),
    /// Which messages does the controller get unrequested?
    GetAsyncRequest,
    /// These.
    GetAsyncReply(AsyncConfig),
    /// From now on these.
    SetAsync(AsyncConfig),
    /// A change to meters.
    MeterMod(MeterMod),
    /// Opens, closes, commits or discards a bundle (ONF extension 230).
    BundleControl(BundleControl),
    /// Adds a message to a bundle (ONF extension 230).
    BundleAdd(BundleAdd),
    /// The controller wants flows in another form (Nicira's extension of 1.0): 0, that of 1.0; 2, with matches of NXM.
    SetFlowFormat(u32),
    /// From now on FLOW_MODs name a table, in the first byte of their command (Nicira's extension of 1.0).
    SetFlowModTableId(bool),
    /// FLOW_MOD with a match of NXM (Nicira's extension of 1.0).
    NiciraFlowMod(FlowMod),
    /// FLOW_REMOVED with a match of NXM (Nicira's extension of 1.0).
    NiciraFlowRemoved(FlowRemoved),
    /// The controller wants PACKET_IN in another form (Nicira's extension of 1.0): 0, that of 1.0; 1, [`Body::NiciraPacketIn`].
    SetPacketInFormat(u32),
    /// A packet for the controller with table, cookie and what 1.3 says of it (Nicira's extension of 1.0).
    NiciraPacketIn(PacketIn),
    /// Ends the flow monitor of this number (Nicira's extension; ONF extension 187).
    FlowMonitorCancel(u32),
    /// From here on flow monitors do not report new and changed flows: the controller reads too slowly.
    FlowMonitorPaused,
    /// They do again, and what they left out has been reported.
    FlowMonitorResumed,
}

/// HELLO.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Hello {
    /// The version bitmap: bit `n` of word `n / 32` is version `n`; empty: no bitmap, as in 1.0.
    pub versions: Vec<u32>,
}

/// ERROR.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ErrorMessage {
    /// Why.
    pub code: ErrorCode,
    /// What was refused: at least its first 64 bytes; of HELLO_FAILED a text.
    pub data: Vec<u8>,
}

/// A message of an experimenter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Experimenter {
    /// Who.
    pub id: u32,
    /// What follows, whole; 1.3 begins with a type of four bytes.
    pub data: Vec<u8>,
}

impl Experimenter {
    /// What it is refused with where it is no message that is known: the code for its type where others of its experimenter are.
    pub const fn refusal(&self) -> ErrorCode {
        match self.id {
            crate::wire::NICIRA | crate::wire::ONF => ErrorCode::BadRequestExperimenterType,
            _ => ErrorCode::BadRequestExperimenter,
        }
    }
}

/// What is requested by MULTIPART_REQUEST (1.0: STATS_REQUEST).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MultipartRequest {
    /// About the switch.
    Desc,
    /// Flows one by one.
    Flow(FlowFilter),
    /// Flows together.
    Aggregate(FlowFilter),
    /// Tables.
    Table,
    /// A port's counters; [`PortNo::ANY`]: of all.
    PortStats(PortNo),
    /// A queue's counters.
    Queue {
        /// The port; [`PortNo::ANY`]: all.
        port: PortNo,
        /// The queue; all ones: all.
        queue: u32,
    },
    /// A group's counters; [`crate::group::ALL_GROUPS`]: of all.
    Group(u32),
    /// Groups and their buckets.
    GroupDesc,
    /// What groups can do.
    GroupFeatures,
    /// A meter's counters; [`crate::group::ALL_METERS`]: of all.
    Meter(u32),
    /// Meters and their bands.
    MeterConfig(u32),
    /// What meters can do.
    MeterFeatures,
    /// What tables can do; not empty: the tables as the controller wants them.
    TableFeatures(Vec<TableFeatures>),
    /// Ports.
    PortDesc,
    /// Changes of flows from now on (Nicira's extension; ONF extension 187).
    FlowMonitor(Vec<FlowMonitor>),
    /// Flows one by one, with matches of NXM (Nicira's extension of 1.0).
    NiciraFlow(FlowFilter),
    /// Flows together, of a match of NXM (Nicira's extension of 1.0).
    NiciraAggregate(FlowFilter),
    /// Of an experimenter.
    Experimenter(Experimenter),
}

/// What MULTIPART_REPLY (1.0: STATS_REPLY) carries.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // as in the request
pub enum MultipartReply {
    Desc(Description),
    Flow(Vec<FlowStats>),
    Aggregate(AggregateStats),
    Table(Vec<TableStats>),
    PortStats(Vec<PortStats>),
    Queue(Vec<QueueStats>),
    Group(Vec<GroupStats>),
    GroupDesc(Vec<GroupDesc>),
    GroupFeatures(GroupFeatures),
    Meter(Vec<MeterStats>),
    MeterConfig(Vec<MeterConfig>),
    MeterFeatures(MeterFeatures),
    TableFeatures(Vec<TableFeatures>),
    PortDesc(Vec<PortDesc>),
    FlowMonitor(Vec<FlowUpdate>),
    NiciraFlow(Vec<FlowStats>),
    NiciraAggregate(AggregateStats),
    Experimenter(Experimenter),
}

/// What a controller may do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Role {
    /// Only in a request: which role do I have?
    NoChange,
    /// Everything, beside others.
    #[default]
    Equal,
    /// Everything; all other masters become slaves.
    Master,
    /// Only reads.
    Slave,
}

/// ROLE_REQUEST and ROLE_REPLY.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RoleMessage {
    /// The role.
    pub role: Role,
    /// Orders elections: a request of master or slave with an older one is refused.
    pub generation_id: u64,
}

/// Which messages a controller gets unrequested: bit `n` is reason `n`. The first mask is for equal and master, the
/// second for slave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AsyncConfig {
    /// PACKET_IN: no match, action, invalid TTL.
    pub packet_in: [u32; 2],
    /// PORT_STATUS: add, delete, modify.
    pub port_status: [u32; 2],
    /// FLOW_REMOVED: idle timeout, hard timeout, delete, group delete.
    pub flow_removed: [u32; 2],
}

impl Default for AsyncConfig {
    /// A slave gets PORT_STATUS only; others everything but INVALID_TTL (1.3, section 6.3.4, and Open vSwitch).
    fn default() -> Self {
        Self { packet_in: [3, 0], port_status: [7, 7], flow_removed: [15, 0] }
    }
}

/// What BUNDLE_CONTROL does or answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs)] // the specification's names
pub enum BundleStep {
    OpenRequest,
    OpenReply,
    CloseRequest,
    CloseReply,
    CommitRequest,
    CommitReply,
    DiscardRequest,
    DiscardReply,
}

crate::bits::bits! {
    /// Flags of a bundle.
    BundleFlags: u16 {
        /// All of it or nothing.
        ATOMIC = 1 => "atomic",
        /// In the order in which messages were added.
        ORDERED = 1 << 1 => "ordered",
    }
}

/// BUNDLE_CONTROL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BundleControl {
    /// The bundle.
    pub bundle: u32,
    /// What to do, or what was done.
    pub step: BundleStep,
    /// Its flags.
    pub flags: BundleFlags,
}

/// BUNDLE_ADD_MESSAGE.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BundleAdd {
    /// The bundle.
    pub bundle: u32,
    /// Its flags.
    pub flags: BundleFlags,
    /// The message, with the same `xid`.
    pub message: Box<Message>,
}
