//! MULTIPART of 1.3, STATS of 1.0: one request, a reply in one or more messages.

use super::bytes::{Put, Reader};
use super::{NICIRA, ONF, Unencodable, flows, groups, monitors, nicira, ports, tables};
use crate::error::{ErrorCode, Version};
use crate::message::{Experimenter, MultipartReply, MultipartRequest};

type Write = Result<(), Unencodable>;

const DESC: u16 = 0;
const FLOW: u16 = 1;
const AGGREGATE: u16 = 2;
const TABLE: u16 = 3;
const PORT_STATS: u16 = 4;
const QUEUE: u16 = 5;
const GROUP: u16 = 6;
const GROUP_DESC: u16 = 7;
const GROUP_FEATURES: u16 = 8;
const METER: u16 = 9;
const METER_CONFIG: u16 = 10;
const METER_FEATURES: u16 = 11;
const TABLE_FEATURES: u16 = 12;
const PORT_DESC: u16 = 13;
const EXPERIMENTER: u16 = 0xffff;

/// The flag of both directions: another message of the same follows.
const MORE: u16 = 1;

fn read_head(reader: &mut Reader<'_>, version: Version) -> Result<(u16, u16), ErrorCode> {
    let (kind, flags) = (reader.u16()?, reader.u16()?);
    if version == Version::V13 {
        reader.skip(4)?;
    }
    // 6 to 13 are of 1.3; Open vSwitch and its tools have PORT_DESC in 1.0, too.
    let is_known = match version {
        Version::V10 => kind <= QUEUE || kind == PORT_DESC || kind == EXPERIMENTER,
        Version::V13 => kind <= PORT_DESC || kind == EXPERIMENTER,
    };
    if is_known { Ok((kind, flags)) } else { Err(ErrorCode::BadRequestMultipart) }
}

fn write_head(out: &mut Vec<u8>, version: Version, kind: u16, flags: u16) -> Write {
    if version == Version::V10 && (GROUP..=TABLE_FEATURES).contains(&kind) {
        return Err(Unencodable::Version);
    }
    out.u16(kind);
    out.u16(flags);
    if version == Version::V13 {
        out.zeros(4);
    }
    Ok(())
}

/// `Experimenter`, whole.
fn read_experimenter(reader: &mut Reader<'_>) -> Result<Experimenter, ErrorCode> {
    Ok(Experimenter { id: reader.u32()?, data: reader.all().to_vec() })
}

/// Types of flow monitors: of Nicira in 1.0, of the ONF in 1.3.
const MONITOR_10: u32 = 2;
const MONITOR_13: u32 = 1870;

/// Types of Nicira's statistics of flows in 1.0.
const NICIRA_FLOW: u32 = 0;
const NICIRA_AGGREGATE: u32 = 1;

/// Whether it is this one of Nicira's parts of 1.0; what it says begins behind its head then.
fn is_nicira(reader: &mut Reader<'_>, version: Version, kind: u32) -> bool {
    let mut ahead = *reader;
    let is_it = version == Version::V10
        && (ahead.u32(), ahead.u32()) == (Ok(NICIRA), Ok(kind))
        && ahead.skip(4).is_ok();
    if is_it {
        *reader = ahead;
    }
    is_it
}

/// # Errors
/// `Version` in 1.3.
fn write_nicira_head(out: &mut Vec<u8>, version: Version, kind: u32) -> Write {
    if version == Version::V13 {
        return Err(Unencodable::Version);
    }
    out.u32(NICIRA);
    out.u32(kind);
    out.zeros(4);
    Ok(())
}

/// Whether an experimenter's part is about flow monitors; they begin behind its head then.
fn is_monitor(reader: &mut Reader<'_>, version: Version) -> bool {
    let mut ahead = *reader;
    let is_it = match (version, ahead.u32(), ahead.u32()) {
        (Version::V10, Ok(NICIRA), Ok(MONITOR_10)) => ahead.skip(4).is_ok(),
        (Version::V13, Ok(ONF), Ok(MONITOR_13)) => true,
        _ => false,
    };
    if is_it {
        *reader = ahead;
    }
    is_it
}

fn write_monitor_head(out: &mut Vec<u8>, version: Version) {
    match version {
        Version::V10 => {
            out.u32(NICIRA);
            out.u32(MONITOR_10);
            out.zeros(4);
        }
        Version::V13 => {
            out.u32(ONF);
            out.u32(MONITOR_13);
        }
    }
}

fn write_experimenter(out: &mut Vec<u8>, experimenter: &Experimenter) {
    out.u32(experimenter.id);
    out.bytes(&experimenter.data);
}

/// Whether another message follows, and what is requested.
pub(super) fn read_request(
    reader: &mut Reader<'_>,
    version: Version,
) -> Result<(bool, MultipartRequest), ErrorCode> {
    let (kind, flags) = read_head(reader, version)?;
    let number = |reader: &mut Reader<'_>| -> Result<u32, ErrorCode> {
        let number = reader.u32()?;
        reader.skip(4)?;
        Ok(number)
    };
    let request = match kind {
        DESC => MultipartRequest::Desc,
        FLOW => MultipartRequest::Flow(flows::read_filter(reader, version)?),
        AGGREGATE => MultipartRequest::Aggregate(flows::read_filter(reader, version)?),
        TABLE => MultipartRequest::Table,
        PORT_STATS => MultipartRequest::PortStats(ports::read_padded(reader, version)?),
        QUEUE => {
            let (port, queue) = ports::read_queue_id(reader, version)?;
            MultipartRequest::Queue { port, queue }
        }
        GROUP => MultipartRequest::Group(number(reader)?),
        GROUP_DESC => MultipartRequest::GroupDesc,
        GROUP_FEATURES => MultipartRequest::GroupFeatures,
        METER => MultipartRequest::Meter(number(reader)?),
        METER_CONFIG => MultipartRequest::MeterConfig(number(reader)?),
        METER_FEATURES => MultipartRequest::MeterFeatures,
        TABLE_FEATURES => {
            MultipartRequest::TableFeatures(list(reader, tables::read_table_features)?)
        }
        PORT_DESC => MultipartRequest::PortDesc,
        _ if is_monitor(reader, version) => {
            MultipartRequest::FlowMonitor(list(reader, |r| monitors::read_request(r, version))?)
        }
        _ if is_nicira(reader, version, NICIRA_FLOW) => {
            MultipartRequest::NiciraFlow(nicira::read_filter(reader)?)
        }
        _ if is_nicira(reader, version, NICIRA_AGGREGATE) => {
            MultipartRequest::NiciraAggregate(nicira::read_filter(reader)?)
        }
        _ => MultipartRequest::Experimenter(read_experimenter(reader)?),
    };
    Ok((flags & MORE != 0, request))
}

pub(super) fn write_request(
    out: &mut Vec<u8>,
    version: Version,
    more: bool,
    request: &MultipartRequest,
) -> Write {
    let kind = match request {
        MultipartRequest::Desc => DESC,
        MultipartRequest::Flow(_) => FLOW,
        MultipartRequest::Aggregate(_) => AGGREGATE,
        MultipartRequest::Table => TABLE,
        MultipartRequest::PortStats(_) => PORT_STATS,
        MultipartRequest::Queue { .. } => QUEUE,
        MultipartRequest::Group(_) => GROUP,
        MultipartRequest::GroupDesc => GROUP_DESC,
        MultipartRequest::GroupFeatures => GROUP_FEATURES,
        MultipartRequest::Meter(_) => METER,
        MultipartRequest::MeterConfig(_) => METER_CONFIG,
        MultipartRequest::MeterFeatures => METER_FEATURES,
        MultipartRequest::TableFeatures(_) => TABLE_FEATURES,
        MultipartRequest::PortDesc => PORT_DESC,
        MultipartRequest::FlowMonitor(_)
        | MultipartRequest::NiciraFlow(_)
        | MultipartRequest::NiciraAggregate(_)
        | MultipartRequest::Experimenter(_) => EXPERIMENTER,
    };
    write_head(out, version, kind, if more { MORE } else { 0 })?;
    match request {
        MultipartRequest::Flow(filter) | MultipartRequest::Aggregate(filter) => {
            flows::write_filter(out, version, filter)?
        }
        MultipartRequest::PortStats(port) => ports::write_padded(out, version, *port)?,
        MultipartRequest::Queue { port, queue } => {
            ports::write_queue_id(out, version, *port, *queue)?
        }
        MultipartRequest::Group(number)
        | MultipartRequest::Meter(number)
        | MultipartRequest::MeterConfig(number) => {
            out.u32(*number);
            out.zeros(4);
        }
        MultipartRequest::TableFeatures(all) => {
            all.iter().try_for_each(|each| tables::write_table_features(out, each))?
        }
        MultipartRequest::FlowMonitor(all) => {
            write_monitor_head(out, version);
            all.iter().try_for_each(|each| monitors::write_request(out, version, each))?
        }
        MultipartRequest::NiciraFlow(filter) => {
            write_nicira_head(out, version, NICIRA_FLOW)?;
            nicira::write_filter(out, filter)?;
        }
        MultipartRequest::NiciraAggregate(filter) => {
            write_nicira_head(out, version, NICIRA_AGGREGATE)?;
            nicira::write_filter(out, filter)?;
        }
        MultipartRequest::Experimenter(experimenter) => write_experimenter(out, experimenter),
        _ => {}
    }
    Ok(())
}

/// All of `reader`.
fn list<T>(
    reader: &mut Reader<'_>,
    read: impl Fn(&mut Reader<'_>) -> Result<T, ErrorCode>,
) -> Result<Vec<T>, ErrorCode> {
    let mut all = Vec::new();
    while !reader.is_empty() {
        all.push(read(reader)?);
    }
    Ok(all)
}

/// Whether another message follows, and what this one carries.
pub(super) fn read_reply(
    reader: &mut Reader<'_>,
    version: Version,
) -> Result<(bool, MultipartReply), ErrorCode> {
    let (kind, flags) = read_head(reader, version)?;
    let r = reader;
    let reply = match kind {
        DESC => MultipartReply::Desc(tables::read_desc(r)?),
        FLOW => MultipartReply::Flow(list(r, |r| flows::read_stats(r, version))?),
        AGGREGATE => MultipartReply::Aggregate(flows::read_aggregate(r)?),
        TABLE => MultipartReply::Table(list(r, |r| tables::read_stats(r, version))?),
        PORT_STATS => MultipartReply::PortStats(list(r, |r| ports::read_stats(r, version))?),
        QUEUE => MultipartReply::Queue(list(r, |r| ports::read_queue_stats(r, version))?),
        GROUP => MultipartReply::Group(list(r, groups::read_group_stats)?),
        GROUP_DESC => MultipartReply::GroupDesc(list(r, groups::read_group_desc)?),
        GROUP_FEATURES => MultipartReply::GroupFeatures(groups::read_group_features(r)?),
        METER => MultipartReply::Meter(list(r, groups::read_meter_stats)?),
        METER_CONFIG => MultipartReply::MeterConfig(list(r, groups::read_meter_config)?),
        METER_FEATURES => MultipartReply::MeterFeatures(groups::read_meter_features(r)?),
        TABLE_FEATURES => MultipartReply::TableFeatures(list(r, tables::read_table_features)?),
        PORT_DESC => MultipartReply::PortDesc(list(r, |r| ports::read_desc(r, version))?),
        _ if is_monitor(r, version) => {
            MultipartReply::FlowMonitor(list(r, |r| monitors::read_update(r, version))?)
        }
        _ if is_nicira(r, version, NICIRA_FLOW) => {
            MultipartReply::NiciraFlow(list(r, nicira::read_stats)?)
        }
        _ if is_nicira(r, version, NICIRA_AGGREGATE) => {
            MultipartReply::NiciraAggregate(flows::read_aggregate(r)?)
        }
        _ => MultipartReply::Experimenter(read_experimenter(r)?),
    };
    Ok((flags & MORE != 0, reply))
}

pub(super) fn write_reply(
    out: &mut Vec<u8>,
    version: Version,
    more: bool,
    reply: &MultipartReply,
) -> Write {
    let kind = match reply {
        MultipartReply::Desc(_) => DESC,
        MultipartReply::Flow(_) => FLOW,
        MultipartReply::Aggregate(_) => AGGREGATE,
        MultipartReply::Table(_) => TABLE,
        MultipartReply::PortStats(_) => PORT_STATS,
        MultipartReply::Queue(_) => QUEUE,
        MultipartReply::Group(_) => GROUP,
        MultipartReply::GroupDesc(_) => GROUP_DESC,
        MultipartReply::GroupFeatures(_) => GROUP_FEATURES,
        MultipartReply::Meter(_) => METER,
        MultipartReply::MeterConfig(_) => METER_CONFIG,
        MultipartReply::MeterFeatures(_) => METER_FEATURES,
        MultipartReply::TableFeatures(_) => TABLE_FEATURES,
        MultipartReply::PortDesc(_) => PORT_DESC,
        MultipartReply::FlowMonitor(_)
        | MultipartReply::NiciraFlow(_)
        | MultipartReply::NiciraAggregate(_)
        | MultipartReply::Experimenter(_) => EXPERIMENTER,
    };
    write_head(out, version, kind, if more { MORE } else { 0 })?;
    match reply {
        MultipartReply::Desc(desc) => tables::write_desc(out, desc),
        MultipartReply::Flow(all) => {
            all.iter().try_for_each(|s| flows::write_stats(out, version, s))?
        }
        MultipartReply::Aggregate(stats) => flows::write_aggregate(out, stats),
        MultipartReply::Table(all) => all.iter().for_each(|s| tables::write_stats(out, version, s)),
        MultipartReply::PortStats(all) => {
            all.iter().try_for_each(|s| ports::write_stats(out, version, s))?
        }
        MultipartReply::Queue(all) => {
            all.iter().try_for_each(|s| ports::write_queue_stats(out, version, s))?
        }
        MultipartReply::Group(all) => {
            all.iter().try_for_each(|s| groups::write_group_stats(out, s))?
        }
        MultipartReply::GroupDesc(all) => {
            all.iter().try_for_each(|s| groups::write_group_desc(out, s))?
        }
        MultipartReply::GroupFeatures(features) => groups::write_group_features(out, features),
        MultipartReply::Meter(all) => {
            all.iter().try_for_each(|s| groups::write_meter_stats(out, s))?
        }
        MultipartReply::MeterConfig(all) => {
            all.iter().try_for_each(|s| groups::write_meter_config(out, s))?
        }
        MultipartReply::MeterFeatures(features) => groups::write_meter_features(out, features),
        MultipartReply::TableFeatures(all) => {
            all.iter().try_for_each(|s| tables::write_table_features(out, s))?
        }
        MultipartReply::PortDesc(all) => {
            all.iter().try_for_each(|s| ports::write_desc(out, version, s))?
        }
        MultipartReply::FlowMonitor(all) => {
            write_monitor_head(out, version);
            all.iter().try_for_each(|update| monitors::write_update(out, version, update))?
        }
        MultipartReply::NiciraFlow(all) => {
            write_nicira_head(out, version, NICIRA_FLOW)?;
            all.iter().try_for_each(|stats| nicira::write_stats(out, stats))?
        }
        MultipartReply::NiciraAggregate(stats) => {
            write_nicira_head(out, version, NICIRA_AGGREGATE)?;
            flows::write_aggregate(out, stats);
        }
        MultipartReply::Experimenter(experimenter) => write_experimenter(out, experimenter),
    }
    Ok(())
}
