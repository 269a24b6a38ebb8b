//! Messages to bytes and back.
//!
//! ```text
//!  0         1         2                   4                                     8
//!  ├─────────┼─────────┼───────────────────┼─────────────────────────────────────┼───────────
//!  │ version │  type   │ length, all of it │                 xid                 │ body …
//! ```
//!
//! [`decode`] takes one whole message, [`encode`] makes one. What a peer sends in the usual form comes back byte for byte.
//! Not kept are padding that is not zero, a mask of all bits on an exact field, and in 1.0 the values of fields that the
//! match leaves open.
//!
//! A message that cannot be read gives the error that its sender gets. Lengths are checked before anything is allocated, so
//! a message of n bytes takes memory in proportion to n.

mod action;
mod bytes;
mod flows;
mod groups;
pub(crate) mod match10;
mod monitors;
mod multipart;
mod nicira;
mod nxm;
mod oxm;
mod ports;
mod tables;

use std::fmt;

use self::bytes::{Put, Reader, close};
use crate::error::{EXPERIMENTER, ErrorCode, VENDOR, Version, vendor_type};
use crate::message::{
    AsyncConfig, Body, BundleAdd, BundleControl, BundleFlags, BundleStep, ErrorMessage,
    Experimenter, Hello, Message, Role, RoleMessage,
};
use crate::port::PortReason;

/// Bytes of the header of every message.
pub const HEADER_LEN: usize = 8;

/// The ONF, whose extension 230 brings bundles to 1.3.
pub(crate) const ONF: u32 = 0x4f4e_4600;
const BUNDLE_CONTROL: u32 = 2300;
const BUNDLE_ADD: u32 = 2301;
/// Nicira, whose extension brings flow monitors to 1.0; those of 1.3 are of the ONF.
pub(crate) const NICIRA: u32 = 0x0000_2320;
/// Types of messages about flow monitors: cancel, paused, resumed.
const MONITORS_10: [u32; 3] = [21, 22, 23];
const MONITORS_13: [u32; 3] = [1870, 1871, 1872];
/// Nicira's messages about flows in 1.0.
const SET_FLOW_FORMAT: u32 = 12;
const FLOW_MOD: u32 = 13;
const FLOW_REMOVED: u32 = 14;
const FLOW_MOD_TABLE_ID: u32 = 15;
/// Nicira's messages about PACKET_IN in 1.0.
const SET_PACKET_IN_FORMAT: u32 = 16;
const PACKET_IN: u32 = 17;

/// The type of HELLO in every version.
const HELLO: u8 = 0;

/// Why a message has no bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unencodable {
    /// The version has no such message, field, action or number.
    Version,
    /// It is longer than its length field can say.
    TooLong,
}

impl fmt::Display for Unencodable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Version => "this version of OpenFlow cannot express the message",
            Self::TooLong => "the message is longer than 65535 bytes",
        })
    }
}

impl std::error::Error for Unencodable {}

/// The header of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Its version.
    pub version: u8,
    /// Its type.
    pub kind: u8,
    /// Its length with the header.
    pub len: u16,
    /// Pairs requests and replies.
    pub xid: u32,
}

impl Header {
    /// The header at the start of `bytes`, where they are long enough. The length is not checked.
    pub fn read(bytes: &[u8]) -> Option<Self> {
        let mut r = Reader::new(bytes);
        let (version, kind, len, xid) = (r.u8().ok()?, r.u8().ok()?, r.u16().ok()?, r.u32().ok()?);
        Some(Self { version, kind, len, xid })
    }

    /// It is HELLO, which is read in every version.
    pub const fn is_hello(self) -> bool {
        self.kind == HELLO
    }
}

/// What both ends of a channel have agreed on beyond the version, as far as it changes what bytes mean.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Extensions {
    /// FLOW_MODs of 1.0 name a table ([`Body::SetFlowModTableId`]).
    pub flow_mod_table_id: bool,
}

/// Reads one message; `bytes` is all of it.
///
/// # Errors
/// The error that the sender gets.
pub fn decode(bytes: &[u8]) -> Result<Message, ErrorCode> {
    decode_with(bytes, Extensions::default())
}

/// As [`decode`], of a channel with extensions.
///
/// # Errors
/// The error that the sender gets.
pub fn decode_with(bytes: &[u8], extensions: Extensions) -> Result<Message, ErrorCode> {
    let header = Header::read(bytes).ok_or(ErrorCode::BadRequestLen)?;
    if usize::from(header.len) != bytes.len() {
        return Err(ErrorCode::BadRequestLen);
    }
    let mut reader = Reader::new(&bytes[HEADER_LEN..]);
    let body = if header.is_hello() {
        Body::Hello(read_hello(&mut reader))
    } else {
        let version = Version::from_wire(header.version).ok_or(ErrorCode::BadRequestVersion)?;
        read_body(version, header, &mut reader, extensions)?
    };
    // What is behind HELLO's elements is ignored, as its text says.
    match reader.is_empty() || header.is_hello() {
        true => Ok(Message { version: header.version, xid: header.xid, body }),
        false => Err(ErrorCode::BadRequestLen),
    }
}

/// The bytes of a message.
///
/// # Errors
/// Where its version has no such message, or it is too long.
pub fn encode(message: &Message) -> Result<Vec<u8>, Unencodable> {
    encode_with(message, Extensions::default())
}

/// As [`encode`], of a channel with extensions.
///
/// # Errors
/// As [`encode`].
pub fn encode_with(message: &Message, extensions: Extensions) -> Result<Vec<u8>, Unencodable> {
    let mut out = Vec::with_capacity(64);
    write(&mut out, message, extensions)?;
    Ok(out)
}

/// Appends the bytes of a message.
///
/// # Errors
/// As [`encode`]; `out` is as it was.
pub fn encode_into(out: &mut Vec<u8>, message: &Message) -> Result<(), Unencodable> {
    let start = out.len();
    let written = write(out, message, Extensions::default());
    if written.is_err() {
        out.truncate(start);
    }
    written
}

fn write(out: &mut Vec<u8>, message: &Message, extensions: Extensions) -> Result<(), Unencodable> {
    let start = out.len();
    out.u8(message.version);
    out.u8(0);
    out.u16(0);
    out.u32(message.xid);
    let kind = match &message.body {
        Body::Hello(hello) => {
            write_hello(out, hello)?;
            HELLO
        }
        body => {
            let version = Version::from_wire(message.version).ok_or(Unencodable::Version)?;
            write_body(out, version, body, extensions)?;
            kind_of(version, body)?
        }
    };
    out[start + 1] = kind;
    close(out, start, start + 2)
}

/// The bitmap of the first element that is one; whatever else there is has no meaning yet.
fn read_hello(reader: &mut Reader<'_>) -> Hello {
    let mut hello = Hello::default();
    while let (Ok(kind), Ok(len)) = (reader.u16(), reader.u16()) {
        let len = usize::from(len);
        let Some(body) = len.checked_sub(4) else { break };
        let Ok(mut body) = reader.part(body, ErrorCode::BadRequestLen) else { break };
        // The last element may come without its padding.
        let _ = reader.skip(len.next_multiple_of(8) - len);
        while let (1, true, Ok(word)) = (kind, hello.versions.len() < 8, body.u32()) {
            hello.versions.push(word);
        }
    }
    hello
}

fn write_hello(out: &mut Vec<u8>, hello: &Hello) -> Result<(), Unencodable> {
    if hello.versions.is_empty() {
        return Ok(());
    }
    let start = out.len();
    out.u16(1);
    out.u16(0);
    hello.versions.iter().for_each(|word| out.u32(*word));
    close(out, start, start + 2)?;
    out.pad8(start);
    Ok(())
}

/// The type of a message; types of 1.3 from GROUP_MOD on differ from those of 1.0.
fn kind_of(version: Version, body: &Body) -> Result<u8, Unencodable> {
    let both = |v10: u8, v13: u8| match version {
        Version::V10 => Ok(v10),
        Version::V13 => Ok(v13),
    };
    let only_v13 = |v13: u8| match version {
        Version::V10 => Err(Unencodable::Version),
        Version::V13 => Ok(v13),
    };
    match body {
        Body::Hello(_) => Ok(HELLO),
        Body::Error(_) => Ok(1),
        Body::EchoRequest(_) => Ok(2),
        Body::EchoReply(_) => Ok(3),
        Body::Experimenter(_) => Ok(4),
        Body::FeaturesRequest => Ok(5),
        Body::FeaturesReply(_) => Ok(6),
        Body::GetConfigRequest => Ok(7),
        Body::GetConfigReply(_) => Ok(8),
        Body::SetConfig(_) => Ok(9),
        Body::PacketIn(_) => Ok(10),
        Body::FlowRemoved(_) => Ok(11),
        Body::PortStatus(..) => Ok(12),
        Body::PacketOut(_) => Ok(13),
        Body::FlowMod(_) => Ok(14),
        Body::GroupMod(_) => only_v13(15),
        Body::PortMod(_) => both(15, 16),
        Body::TableMod { .. } => only_v13(17),
        Body::MultipartRequest { .. } => both(16, 18),
        Body::MultipartReply { .. } => both(17, 19),
        Body::BarrierRequest => both(18, 20),
        Body::BarrierReply => both(19, 21),
        Body::QueueGetConfigRequest(_) => both(20, 22),
        Body::QueueGetConfigReply(..) => both(21, 23),
        Body::RoleRequest(_) => only_v13(24),
        Body::RoleReply(_) => only_v13(25),
        Body::GetAsyncRequest => only_v13(26),
        Body::GetAsyncReply(_) => only_v13(27),
        Body::SetAsync(_) => only_v13(28),
        Body::MeterMod(_) => only_v13(29),
        Body::BundleControl(_) | Body::BundleAdd(_) => only_v13(4),
        Body::FlowMonitorCancel(_) | Body::FlowMonitorPaused | Body::FlowMonitorResumed => Ok(4),
        Body::SetPacketInFormat(_)
        | Body::NiciraPacketIn(_)
        | Body::SetFlowFormat(_)
        | Body::SetFlowModTableId(_)
        | Body::NiciraFlowMod(_)
        | Body::NiciraFlowRemoved(_) => match version {
            Version::V10 => Ok(4),
            Version::V13 => Err(Unencodable::Version),
        },
    }
}

/// The type of 1.3 of a type of 1.0.
const fn v13_kind(kind: u8) -> Option<u8> {
    match kind {
        0..=14 => Some(kind),
        15 => Some(16),
        16..=21 => Some(kind + 2),
        _ => None,
    }
}

fn read_body(
    version: Version,
    header: Header,
    r: &mut Reader<'_>,
    extensions: Extensions,
) -> Result<Body, ErrorCode> {
    let kind = match version {
        Version::V10 => v13_kind(header.kind),
        Version::V13 => Some(header.kind),
    };
    Ok(match kind.ok_or(ErrorCode::BadRequestType)? {
        1 => Body::Error(read_error(version, r)?),
        2 => Body::EchoRequest(r.all().to_vec()),
        3 => Body::EchoReply(r.all().to_vec()),
        4 => read_experimenter(version, header, r, extensions)?,
        5 => Body::FeaturesRequest,
        6 => Body::FeaturesReply(tables::read_features(r, version)?),
        7 => Body::GetConfigRequest,
        8 => Body::GetConfigReply(tables::read_config(r)?),
        9 => Body::SetConfig(tables::read_config(r)?),
        10 => Body::PacketIn(flows::read_in(r, version)?),
        11 => Body::FlowRemoved(flows::read_removed(r, version)?),
        12 => {
            let reason = match r.u8()? {
                0 => PortReason::Add,
                1 => PortReason::Delete,
                2 => PortReason::Modify,
                _ => return Err(ErrorCode::BadRequestLen),
            };
            r.skip(7)?;
            Body::PortStatus(reason, ports::read_desc(r, version)?)
        }
        13 => Body::PacketOut(flows::read_out(r, version)?),
        14 => Body::FlowMod(flows::read_mod(r, version, extensions)?),
        15 => Body::GroupMod(groups::read_group_mod(r)?),
        16 => Body::PortMod(ports::read_mod(r, version)?),
        17 => {
            let table = r.u8()?;
            r.skip(3)?;
            Body::TableMod { table, config: r.u32()? }
        }
        18 => {
            let (more, request) = multipart::read_request(r, version)?;
            Body::MultipartRequest { more, request }
        }
        19 => {
            let (more, reply) = multipart::read_reply(r, version)?;
            Body::MultipartReply { more, reply }
        }
        20 => Body::BarrierRequest,
        21 => Body::BarrierReply,
        22 => {
            let port = ports::read_no(r, version)?;
            r.skip(if version == Version::V10 { 2 } else { 4 })?;
            Body::QueueGetConfigRequest(port)
        }
        23 => {
            let port = ports::read_padded(r, version)?;
            Body::QueueGetConfigReply(port, ports::read_queues(r, version, port)?)
        }
        24 => Body::RoleRequest(read_role(r)?),
        25 => Body::RoleReply(read_role(r)?),
        26 => Body::GetAsyncRequest,
        27 => Body::GetAsyncReply(read_async(r)?),
        28 => Body::SetAsync(read_async(r)?),
        29 => Body::MeterMod(groups::read_meter_mod(r)?),
        _ => return Err(ErrorCode::BadRequestType),
    })
}

fn write_body(
    out: &mut Vec<u8>,
    version: Version,
    body: &Body,
    extensions: Extensions,
) -> Result<(), Unencodable> {
    match body {
        Body::Hello(hello) => write_hello(out, hello)?,
        Body::Error(error) => write_error(out, version, error),
        Body::EchoRequest(data) | Body::EchoReply(data) => out.bytes(data),
        Body::Experimenter(experimenter) => {
            out.u32(experimenter.id);
            out.bytes(&experimenter.data);
        }
        Body::FeaturesReply(features) => tables::write_features(out, version, features)?,
        Body::GetConfigReply(config) | Body::SetConfig(config) => {
            tables::write_config(out, *config)
        }
        Body::PacketIn(packet) => flows::write_in(out, version, packet)?,
        Body::FlowRemoved(flow) => flows::write_removed(out, version, flow)?,
        Body::PortStatus(reason, port) => {
            out.u8(match reason {
                PortReason::Add => 0,
                PortReason::Delete => 1,
                PortReason::Modify => 2,
            });
            out.zeros(7);
            ports::write_desc(out, version, port)?;
        }
        Body::PacketOut(packet) => flows::write_out(out, version, packet)?,
        Body::FlowMod(flow) => flows::write_mod(out, version, flow, extensions)?,
        Body::GroupMod(group) => groups::write_group_mod(out, group)?,
        Body::PortMod(port) => ports::write_mod(out, version, port)?,
        Body::TableMod { table, config } => {
            out.u8(*table);
            out.zeros(3);
            out.u32(*config);
        }
        Body::MultipartRequest { more, request } => {
            multipart::write_request(out, version, *more, request)?
        }
        Body::MultipartReply { more, reply } => multipart::write_reply(out, version, *more, reply)?,
        Body::QueueGetConfigRequest(port) => {
            ports::write_no(out, version, *port)?;
            out.zeros(if version == Version::V10 { 2 } else { 4 });
        }
        Body::QueueGetConfigReply(port, queues) => {
            ports::write_padded(out, version, *port)?;
            ports::write_queues(out, version, queues)?;
        }
        Body::RoleRequest(role) | Body::RoleReply(role) => write_role(out, role),
        Body::GetAsyncReply(config) | Body::SetAsync(config) => {
            let all = [config.packet_in, config.port_status, config.flow_removed];
            all.into_iter().flatten().for_each(|mask| out.u32(mask));
        }
        Body::MeterMod(meter) => groups::write_meter_mod(out, meter),
        Body::BundleControl(control) => {
            out.u32(ONF);
            out.u32(BUNDLE_CONTROL);
            out.u32(control.bundle);
            out.u16(control.step as u16);
            out.u16(control.flags.0);
        }
        Body::BundleAdd(add) => {
            out.u32(ONF);
            out.u32(BUNDLE_ADD);
            out.u32(add.bundle);
            out.u16(0);
            out.u16(add.flags.0);
            write(out, &add.message, extensions)?;
        }
        Body::SetFlowFormat(format) => {
            out.u32(NICIRA);
            out.u32(SET_FLOW_FORMAT);
            out.u32(*format);
        }
        Body::NiciraFlowMod(flow) => {
            out.u32(NICIRA);
            out.u32(FLOW_MOD);
            nicira::write_mod(out, flow, extensions)?;
        }
        Body::SetFlowModTableId(is_on) => {
            out.u32(NICIRA);
            out.u32(FLOW_MOD_TABLE_ID);
            out.u8((*is_on).into());
            out.zeros(7);
        }
        Body::NiciraFlowRemoved(flow) => {
            out.u32(NICIRA);
            out.u32(FLOW_REMOVED);
            nicira::write_removed(out, flow)?;
        }
        Body::SetPacketInFormat(format) => {
            out.u32(NICIRA);
            out.u32(SET_PACKET_IN_FORMAT);
            out.u32(*format);
        }
        Body::NiciraPacketIn(packet) => {
            out.u32(NICIRA);
            out.u32(PACKET_IN);
            flows::write_nicira_in(out, packet)?;
        }
        Body::FlowMonitorCancel(monitor) => {
            write_monitors(out, version, 0);
            out.u32(*monitor);
        }
        Body::FlowMonitorPaused => write_monitors(out, version, 1),
        Body::FlowMonitorResumed => write_monitors(out, version, 2),
        Body::FeaturesRequest
        | Body::GetConfigRequest
        | Body::BarrierRequest
        | Body::BarrierReply
        | Body::GetAsyncRequest => {}
    }
    Ok(())
}

/// The head of a message about flow monitors.
fn write_monitors(out: &mut Vec<u8>, version: Version, which: usize) {
    let (id, kinds) = match version {
        Version::V10 => (NICIRA, MONITORS_10),
        Version::V13 => (ONF, MONITORS_13),
    };
    out.u32(id);
    out.u32(kinds[which]);
}

/// Whose error a named one is.
const fn owner(code: ErrorCode) -> u32 {
    match code {
        ErrorCode::MonitorExists | ErrorCode::MonitorFlags | ErrorCode::MonitorUnknown => NICIRA,
        _ => ONF,
    }
}

fn read_error(version: Version, r: &mut Reader<'_>) -> Result<ErrorMessage, ErrorCode> {
    let (kind, code) = (r.u16()?, r.u16()?);
    let other = ErrorCode::Other { kind, code };
    let mut ahead = *r;
    let named = match kind {
        EXPERIMENTER => {
            let named = ErrorCode::from_wire(version, kind, code);
            (ahead.u32() == Ok(owner(named))).then_some(named)
        }
        // The vendor's own kind and code are behind its number.
        VENDOR if version == Version::V10 => {
            let is_nicira = code == 0 && ahead.u32() == Ok(NICIRA);
            let (own, code) = (ahead.u16(), ahead.u16());
            let code = code.ok().filter(|code| is_nicira && own == Ok(vendor_type(*code)));
            code.map(|code| ErrorCode::from_wire(version, kind, code))
        }
        _ => {
            return Ok(ErrorMessage {
                code: ErrorCode::from_wire(version, kind, code),
                data: r.all().to_vec(),
            });
        }
    };
    match named.filter(|named| !matches!(named, ErrorCode::Other { .. })) {
        Some(named) => {
            *r = ahead;
            Ok(ErrorMessage { code: named, data: r.all().to_vec() })
        }
        None => Ok(ErrorMessage { code: other, data: r.all().to_vec() }),
    }
}

fn write_error(out: &mut Vec<u8>, version: Version, error: &ErrorMessage) {
    let (kind, code) = error.code.wire(version);
    let is_named = !matches!(error.code, ErrorCode::Other { .. });
    out.u16(kind);
    match kind {
        EXPERIMENTER if is_named => {
            out.u16(code);
            out.u32(owner(error.code));
        }
        VENDOR if is_named => {
            out.u16(0);
            out.u32(NICIRA);
            out.u16(vendor_type(code));
            out.u16(code);
        }
        _ => out.u16(code),
    }
    out.bytes(&error.data);
}

fn read_experimenter(
    version: Version,
    header: Header,
    r: &mut Reader<'_>,
    extensions: Extensions,
) -> Result<Body, ErrorCode> {
    let id = r.u32()?;
    let mut body = *r;
    let kind = match (version, id) {
        (Version::V13, ONF) => body.u32()?,
        (Version::V10, NICIRA) => return read_nicira(r, extensions),
        _ => 0,
    };
    match kind {
        1870 => {
            *r = body;
            Ok(Body::FlowMonitorCancel(r.u32()?))
        }
        1871 => {
            *r = body;
            Ok(Body::FlowMonitorPaused)
        }
        1872 => {
            *r = body;
            Ok(Body::FlowMonitorResumed)
        }
        BUNDLE_CONTROL => {
            *r = body;
            let bundle = r.u32()?;
            let step = match r.u16()? {
                0 => BundleStep::OpenRequest,
                1 => BundleStep::OpenReply,
                2 => BundleStep::CloseRequest,
                3 => BundleStep::CloseReply,
                4 => BundleStep::CommitRequest,
                5 => BundleStep::CommitReply,
                6 => BundleStep::DiscardRequest,
                7 => BundleStep::DiscardReply,
                _ => return Err(ErrorCode::BundleType),
            };
            Ok(Body::BundleControl(BundleControl { bundle, step, flags: BundleFlags(r.u16()?) }))
        }
        BUNDLE_ADD => {
            *r = body;
            let bundle = r.u32()?;
            r.skip(2)?;
            let flags = BundleFlags(r.u16()?);
            let inner = Header::read(r.all_ahead()).ok_or(ErrorCode::BundleMsgLen)?;
            if inner.xid != header.xid {
                return Err(ErrorCode::BundleMsgXid);
            }
            // Only changes are added: no bundle in a bundle.
            let is_change = inner.version == version.wire() && matches!(inner.kind, 14..=16);
            if !is_change {
                return Err(ErrorCode::BundleMsgUnsupported);
            }
            let bytes = r.take(usize::from(inner.len)).map_err(|_| ErrorCode::BundleMsgLen)?;
            // Properties may follow; there are none that this crate knows.
            r.all();
            let message = Box::new(decode(bytes)?);
            Ok(Body::BundleAdd(BundleAdd { bundle, flags, message }))
        }
        _ => Ok(Body::Experimenter(Experimenter { id, data: r.all().to_vec() })),
    }
}

/// A message of Nicira's extension of 1.0.
fn read_nicira(r: &mut Reader<'_>, extensions: Extensions) -> Result<Body, ErrorCode> {
    let mut body = *r;
    let kind = body.u32().unwrap_or(0);
    let known = SET_FLOW_FORMAT..=FLOW_MOD_TABLE_ID;
    let others = [SET_PACKET_IN_FORMAT, PACKET_IN, 21, 22, 23];
    if !known.contains(&kind) && !others.contains(&kind) {
        return Ok(Body::Experimenter(Experimenter { id: NICIRA, data: r.all().to_vec() }));
    }
    *r = body;
    Ok(match kind {
        SET_FLOW_FORMAT => Body::SetFlowFormat(r.u32()?),
        FLOW_MOD => Body::NiciraFlowMod(nicira::read_mod(r, extensions)?),
        FLOW_REMOVED => Body::NiciraFlowRemoved(nicira::read_removed(r)?),
        FLOW_MOD_TABLE_ID => {
            let is_on = r.u8()? != 0;
            r.skip(7)?;
            Body::SetFlowModTableId(is_on)
        }
        SET_PACKET_IN_FORMAT => Body::SetPacketInFormat(r.u32()?),
        PACKET_IN => Body::NiciraPacketIn(flows::read_nicira_in(r)?),
        21 => Body::FlowMonitorCancel(r.u32()?),
        22 => Body::FlowMonitorPaused,
        _ => Body::FlowMonitorResumed,
    })
}

fn read_role(r: &mut Reader<'_>) -> Result<RoleMessage, ErrorCode> {
    let role = match r.u32()? {
        0 => Role::NoChange,
        1 => Role::Equal,
        2 => Role::Master,
        3 => Role::Slave,
        _ => return Err(ErrorCode::RoleBad),
    };
    r.skip(4)?;
    Ok(RoleMessage { role, generation_id: r.u64()? })
}

fn write_role(out: &mut Vec<u8>, role: &RoleMessage) {
    out.u32(match role.role {
        Role::NoChange => 0,
        Role::Equal => 1,
        Role::Master => 2,
        Role::Slave => 3,
    });
    out.zeros(4);
    out.u64(role.generation_id);
}

fn read_async(r: &mut Reader<'_>) -> Result<AsyncConfig, ErrorCode> {
    let mut two = || Ok::<_, ErrorCode>([r.u32()?, r.u32()?]);
    Ok(AsyncConfig { packet_in: two()?, port_status: two()?, flow_removed: two()? })
}
