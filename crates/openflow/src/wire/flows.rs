//! Flows and packets on the wire.

use super::bytes::{Put, Reader, close};
use super::{Extensions, Unencodable, action, match10, nxm, oxm, ports};
use crate::error::{ErrorCode, Version};
use crate::flow::{ALL_TABLES, ANY_GROUP};
use crate::flow::{
    AggregateStats, FlowCommand, FlowFilter, FlowFlags, FlowMod, FlowRemoved, FlowStats, InReason,
    PacketIn, PacketOut, RemovedReason,
};
use crate::matches::Match;
use crate::port::PortNo;
use crate::{Field, Instruction};

type Write = Result<(), Unencodable>;

pub(super) const NO_BUFFER: u32 = 0xffff_ffff;
/// 1.0's EMERG, where 1.3 has RESET_COUNTS.
const EMERG: u16 = 1 << 2;
/// Flags of 1.3.
const FLAGS: u16 = 0x1f;

pub(super) fn read_buffer(reader: &mut Reader<'_>) -> Result<Option<u32>, ErrorCode> {
    reader.u32().map(|id| (id != NO_BUFFER).then_some(id))
}

pub(super) fn command(number: u16) -> Result<FlowCommand, ErrorCode> {
    Ok(match number {
        0 => FlowCommand::Add,
        1 => FlowCommand::Modify,
        2 => FlowCommand::ModifyStrict,
        3 => FlowCommand::Delete,
        4 => FlowCommand::DeleteStrict,
        _ => return Err(ErrorCode::FlowModCommand),
    })
}

pub(super) const fn command_out(command: FlowCommand) -> u8 {
    match command {
        FlowCommand::Add => 0,
        FlowCommand::Modify => 1,
        FlowCommand::ModifyStrict => 2,
        FlowCommand::Delete => 3,
        FlowCommand::DeleteStrict => 4,
    }
}

pub(super) fn flags(version: Version, bits: u16) -> FlowFlags {
    match version {
        Version::V10 if bits & EMERG != 0 => FlowFlags(bits & !EMERG) | FlowFlags::EMERG,
        _ => FlowFlags(bits),
    }
}

pub(super) fn flags_out(version: Version, flags: FlowFlags) -> u16 {
    let common = flags.without(FlowFlags::EMERG).0;
    match version {
        Version::V10 if flags.contains(FlowFlags::EMERG) => common & 3 | EMERG,
        Version::V10 => common & 3,
        Version::V13 => common,
    }
}

/// Command and table of 1.0: with `FLOW_MOD_TABLE_ID` the table is in the command's first byte; else only an add means the first one.
pub(super) fn command10(bits: u16, extensions: Extensions) -> Result<(FlowCommand, u8), ErrorCode> {
    if extensions.flow_mod_table_id {
        return Ok((command(bits & 0xff)?, (bits >> 8) as u8));
    }
    let command = command(bits)?;
    Ok((command, if command == FlowCommand::Add { 0 } else { ALL_TABLES }))
}

pub(super) fn command10_out(flow: &FlowMod, extensions: Extensions) -> u16 {
    let table = if extensions.flow_mod_table_id { flow.table } else { 0 };
    u16::from(table) << 8 | u16::from(command_out(flow.command))
}

/// The cookie of an add, and the one that other commands give; all ones is none.
pub(super) fn cookies10(command: FlowCommand, cookie: u64) -> (u64, Option<u64>) {
    match command {
        FlowCommand::Add => (cookie, None),
        _ => (0, Some(cookie).filter(|cookie| *cookie != u64::MAX)),
    }
}

pub(super) fn cookie10_out(flow: &FlowMod) -> u64 {
    match flow.command {
        FlowCommand::Add => flow.cookie,
        _ => flow.new_cookie.unwrap_or(u64::MAX),
    }
}

pub(super) fn read_mod(
    reader: &mut Reader<'_>,
    version: Version,
    extensions: Extensions,
) -> Result<FlowMod, ErrorCode> {
    match version {
        Version::V10 => read_mod10(reader, extensions),
        Version::V13 => read_mod13(reader),
    }
}

fn read_mod10(reader: &mut Reader<'_>, extensions: Extensions) -> Result<FlowMod, ErrorCode> {
    let matches = match10::read_match(reader)?;
    let cookie = reader.u64()?;
    let (command, table) = command10(reader.u16()?, extensions)?;
    let (idle_timeout, hard_timeout, priority) = (reader.u16()?, reader.u16()?, reader.u16()?);
    let buffer_id = read_buffer(reader)?;
    let out_port = PortNo::from_v10(reader.u16()?);
    let flag_bits = reader.u16()?;
    if flag_bits & !7 != 0 {
        return Err(ErrorCode::FlowModUnsupported);
    }
    let actions = action::read_actions(Version::V10, Reader::new(reader.all()))?;
    let (cookie, new_cookie) = cookies10(command, cookie);
    Ok(FlowMod {
        cookie,
        cookie_mask: 0,
        new_cookie,
        table,
        command,
        idle_timeout,
        hard_timeout,
        priority,
        buffer_id,
        out_port,
        out_group: ANY_GROUP,
        flags: flags(Version::V10, flag_bits),
        matches,
        instructions: action::v10_instructions(actions),
    })
}

fn read_mod13(reader: &mut Reader<'_>) -> Result<FlowMod, ErrorCode> {
    let (cookie, cookie_mask, table) = (reader.u64()?, reader.u64()?, reader.u8()?);
    let command = command(u16::from(reader.u8()?))?;
    let (idle_timeout, hard_timeout, priority) = (reader.u16()?, reader.u16()?, reader.u16()?);
    let buffer_id = read_buffer(reader)?;
    let (out_port, out_group) = (PortNo(reader.u32()?), reader.u32()?);
    let flag_bits = reader.u16()?;
    if flag_bits & !FLAGS != 0 {
        return Err(ErrorCode::FlowModFlags);
    }
    reader.skip(2)?;
    let matches = oxm::read_match(reader)?;
    let instructions = action::read_instructions(Reader::new(reader.all()))?;
    Ok(FlowMod {
        cookie,
        cookie_mask,
        new_cookie: None,
        table,
        command,
        idle_timeout,
        hard_timeout,
        priority,
        buffer_id,
        out_port,
        out_group,
        flags: flags(Version::V13, flag_bits),
        matches,
        instructions,
    })
}

pub(super) fn write_mod(
    out: &mut Vec<u8>,
    version: Version,
    flow: &FlowMod,
    extensions: Extensions,
) -> Write {
    if version == Version::V10 {
        if flow.cookie_mask != 0 {
            return Err(Unencodable::Version);
        }
        match10::write_match(out, &flow.matches)?;
        out.u64(cookie10_out(flow));
        out.u16(command10_out(flow, extensions));
    } else {
        out.u64(flow.cookie);
        out.u64(flow.cookie_mask);
        out.u8(flow.table);
        out.u8(command_out(flow.command));
    }
    out.u16(flow.idle_timeout);
    out.u16(flow.hard_timeout);
    out.u16(flow.priority);
    out.u32(flow.buffer_id.unwrap_or(NO_BUFFER));
    ports::write_no(out, version, flow.out_port)?;
    if version == Version::V13 {
        out.u32(flow.out_group);
    }
    out.u16(flags_out(version, flow.flags));
    if version == Version::V13 {
        out.zeros(2);
    }
    write_what(out, version, &flow.matches, &flow.instructions)
}

/// Match (1.3) and what happens: the end of FLOW_MOD and of FLOW statistics.
fn write_what(
    out: &mut Vec<u8>,
    version: Version,
    matches: &Match,
    instructions: &[Instruction],
) -> Write {
    match version {
        Version::V10 => {
            let actions = action::v10_actions(instructions)?;
            action::write_actions(out, version, actions, matches)
        }
        Version::V13 => {
            oxm::write_match(out, matches)?;
            action::write_instructions(out, instructions, matches)
        }
    }
}

pub(super) fn read_filter(
    reader: &mut Reader<'_>,
    version: Version,
) -> Result<FlowFilter, ErrorCode> {
    match version {
        Version::V10 => {
            let matches = match10::read_match(reader)?;
            let table = reader.u8()?;
            reader.skip(1)?;
            let out_port = PortNo::from_v10(reader.u16()?);
            Ok(FlowFilter { table, out_port, matches, ..FlowFilter::all() })
        }
        Version::V13 => {
            let table = reader.u8()?;
            reader.skip(3)?;
            let (out_port, out_group) = (PortNo(reader.u32()?), reader.u32()?);
            reader.skip(4)?;
            let (cookie, cookie_mask) = (reader.u64()?, reader.u64()?);
            let matches = oxm::read_match(reader)?;
            Ok(FlowFilter { table, out_port, out_group, cookie, cookie_mask, matches })
        }
    }
}

pub(super) fn write_filter(out: &mut Vec<u8>, version: Version, filter: &FlowFilter) -> Write {
    match version {
        Version::V10 => {
            match10::write_match(out, &filter.matches)?;
            out.u8(filter.table);
            out.u8(0);
            ports::write_no(out, version, filter.out_port)
        }
        Version::V13 => {
            out.u8(filter.table);
            out.zeros(3);
            out.u32(filter.out_port.0);
            out.u32(filter.out_group);
            out.zeros(4);
            out.u64(filter.cookie);
            out.u64(filter.cookie_mask);
            oxm::write_match(out, &filter.matches)
        }
    }
}

pub(super) fn read_stats(
    reader: &mut Reader<'_>,
    version: Version,
) -> Result<FlowStats, ErrorCode> {
    let bad = ErrorCode::BadRequestLen;
    let mut head = *reader;
    let len = usize::from(head.u16()?);
    let mut body = reader.part(len, bad)?;
    body.skip(2)?;
    let table = body.u8()?;
    body.skip(1)?;
    let matches10 = match version {
        Version::V10 => Some(match10::read_match(&mut body)?),
        Version::V13 => None,
    };
    let duration = body.duration()?;
    let (priority, idle_timeout, hard_timeout) = (body.u16()?, body.u16()?, body.u16()?);
    let flag_bits = match version {
        Version::V10 => 0,
        Version::V13 => body.u16()? & FLAGS,
    };
    body.skip(if version == Version::V10 { 6 } else { 4 })?;
    let (cookie, packets, bytes) = (body.u64()?, body.u64()?, body.u64()?);
    let (matches, instructions) = match matches10 {
        Some(matches) => {
            let actions = action::read_actions(version, body)?;
            (matches, action::v10_instructions(actions))
        }
        None => {
            let matches = oxm::read_match(&mut body)?;
            (matches, action::read_instructions(body)?)
        }
    };
    Ok(FlowStats {
        table,
        duration,
        priority,
        idle_timeout,
        hard_timeout,
        flags: FlowFlags(flag_bits),
        cookie,
        packets,
        bytes,
        matches,
        instructions,
    })
}

pub(super) fn write_stats(out: &mut Vec<u8>, version: Version, stats: &FlowStats) -> Write {
    let start = out.len();
    out.u16(0);
    out.u8(stats.table);
    out.u8(0);
    if version == Version::V10 {
        match10::write_match(out, &stats.matches)?;
    }
    out.duration(stats.duration);
    out.u16(stats.priority);
    out.u16(stats.idle_timeout);
    out.u16(stats.hard_timeout);
    match version {
        Version::V10 => out.zeros(6),
        Version::V13 => {
            out.u16(flags_out(version, stats.flags));
            out.zeros(4);
        }
    }
    out.u64(stats.cookie);
    out.u64(stats.packets);
    out.u64(stats.bytes);
    write_what(out, version, &stats.matches, &stats.instructions)?;
    close(out, start, start)
}

pub(super) fn read_aggregate(reader: &mut Reader<'_>) -> Result<AggregateStats, ErrorCode> {
    let stats =
        AggregateStats { packets: reader.u64()?, bytes: reader.u64()?, flows: reader.u32()? };
    reader.skip(4)?;
    Ok(stats)
}

pub(super) fn write_aggregate(out: &mut Vec<u8>, stats: &AggregateStats) {
    out.u64(stats.packets);
    out.u64(stats.bytes);
    out.u32(stats.flows);
    out.zeros(4);
}

pub(super) fn read_removed(
    reader: &mut Reader<'_>,
    version: Version,
) -> Result<FlowRemoved, ErrorCode> {
    let matches10 = match version {
        Version::V10 => Some(match10::read_match(reader)?),
        Version::V13 => None,
    };
    let (cookie, priority) = (reader.u64()?, reader.u16()?);
    let reason = match reader.u8()? {
        0 => RemovedReason::IdleTimeout,
        1 => RemovedReason::HardTimeout,
        2 => RemovedReason::Delete,
        3 if version == Version::V13 => RemovedReason::GroupDelete,
        _ => return Err(ErrorCode::BadRequestLen),
    };
    // 1.0 has padding here.
    let table = reader.u8()?;
    let (duration, idle_timeout) = (reader.duration()?, reader.u16()?);
    let hard_timeout = reader.u16()?;
    let (packets, bytes) = (reader.u64()?, reader.u64()?);
    let is_v10 = matches10.is_some();
    let matches = match matches10 {
        Some(matches) => matches,
        None => oxm::read_match(reader)?,
    };
    Ok(FlowRemoved {
        cookie,
        priority,
        reason,
        table: if is_v10 { 0 } else { table },
        duration,
        idle_timeout,
        hard_timeout: if is_v10 { 0 } else { hard_timeout },
        packets,
        bytes,
        matches,
    })
}

pub(super) fn write_removed(out: &mut Vec<u8>, version: Version, flow: &FlowRemoved) -> Write {
    let is_v10 = version == Version::V10;
    if is_v10 {
        match10::write_match(out, &flow.matches)?;
    }
    out.u64(flow.cookie);
    out.u16(flow.priority);
    out.u8(match flow.reason {
        RemovedReason::IdleTimeout => 0,
        RemovedReason::HardTimeout => 1,
        RemovedReason::Delete => 2,
        RemovedReason::GroupDelete if is_v10 => 2,
        RemovedReason::GroupDelete => 3,
    });
    out.u8(if is_v10 { 0 } else { flow.table });
    out.duration(flow.duration);
    out.u16(flow.idle_timeout);
    out.u16(if is_v10 { 0 } else { flow.hard_timeout });
    out.u64(flow.packets);
    out.u64(flow.bytes);
    if !is_v10 {
        oxm::write_match(out, &flow.matches)?;
    }
    Ok(())
}

pub(super) fn read_in(reader: &mut Reader<'_>, version: Version) -> Result<PacketIn, ErrorCode> {
    let (buffer_id, total_len) = (read_buffer(reader)?, reader.u16()?);
    let in_port = match version {
        Version::V10 => PortNo::from_v10(reader.u16()?),
        Version::V13 => PortNo::ANY,
    };
    let reason = match reader.u8()? {
        0 => InReason::NoMatch,
        1 => InReason::Action,
        2 if version == Version::V13 => InReason::InvalidTtl,
        _ => return Err(ErrorCode::BadRequestLen),
    };
    let table = reader.u8()?;
    let (table, cookie, matches) = match version {
        Version::V10 => (0, u64::MAX, Match::new().with(Field::InPort, in_port.0)),
        Version::V13 => {
            let cookie = reader.u64()?;
            let matches = oxm::read_match(reader)?;
            reader.skip(2)?;
            (table, cookie, matches)
        }
    };
    let data = reader.all().to_vec();
    Ok(PacketIn { buffer_id, total_len, reason, table, cookie, matches, data })
}

pub(super) fn write_in(out: &mut Vec<u8>, version: Version, packet: &PacketIn) -> Write {
    out.u32(packet.buffer_id.unwrap_or(NO_BUFFER));
    out.u16(packet.total_len);
    let is_v10 = version == Version::V10;
    if is_v10 {
        let port = packet.matches.exact(Field::InPort).unwrap_or(u128::from(PortNo::ANY.0));
        ports::write_no(out, version, PortNo(port as u32))?;
    }
    out.u8(match packet.reason {
        InReason::NoMatch => 0,
        InReason::Action => 1,
        InReason::InvalidTtl if is_v10 => 1,
        InReason::InvalidTtl => 2,
    });
    out.u8(if is_v10 { 0 } else { packet.table });
    if !is_v10 {
        out.u64(packet.cookie);
        oxm::write_match(out, &packet.matches)?;
        out.zeros(2);
    }
    out.bytes(&packet.data);
    Ok(())
}

/// NXT_PACKET_IN: what 1.3 says of a packet, in 1.0.
pub(super) fn read_nicira_in(reader: &mut Reader<'_>) -> Result<PacketIn, ErrorCode> {
    let (buffer_id, total_len) = (read_buffer(reader)?, reader.u16()?);
    let reason = match reader.u8()? {
        0 => InReason::NoMatch,
        1 => InReason::Action,
        2 => InReason::InvalidTtl,
        _ => return Err(ErrorCode::BadRequestLen),
    };
    let (table, cookie, len) = (reader.u8()?, reader.u64()?, usize::from(reader.u16()?));
    reader.skip(6)?;
    let fields = reader.part(len, ErrorCode::BadMatchLen)?;
    reader.skip(len.next_multiple_of(8) - len + 2)?;
    let matches = nxm::read_match(fields)?;
    let data = reader.all().to_vec();
    Ok(PacketIn { buffer_id, total_len, reason, table, cookie, matches, data })
}

pub(super) fn write_nicira_in(out: &mut Vec<u8>, packet: &PacketIn) -> Write {
    out.u32(packet.buffer_id.unwrap_or(NO_BUFFER));
    out.u16(packet.total_len);
    out.u8(match packet.reason {
        InReason::NoMatch => 0,
        InReason::Action => 1,
        InReason::InvalidTtl => 2,
    });
    out.u8(packet.table);
    out.u64(packet.cookie);
    let at = out.len();
    out.u16(0);
    out.zeros(6);
    let start = out.len();
    nxm::write_match(out, &packet.matches)?;
    close(out, start, at)?;
    out.pad8(start);
    out.zeros(2);
    out.bytes(&packet.data);
    Ok(())
}

pub(super) fn read_out(reader: &mut Reader<'_>, version: Version) -> Result<PacketOut, ErrorCode> {
    let buffer_id = read_buffer(reader)?;
    let in_port = ports::read_no(reader, version)?;
    let len = usize::from(reader.u16()?);
    if version == Version::V13 {
        reader.skip(6)?;
    }
    let actions = reader.part(len, ErrorCode::BadRequestLen)?;
    let actions = action::read_actions(version, actions)?;
    Ok(PacketOut { buffer_id, in_port, actions, data: reader.all().to_vec() })
}

pub(super) fn write_out(out: &mut Vec<u8>, version: Version, packet: &PacketOut) -> Write {
    out.u32(packet.buffer_id.unwrap_or(NO_BUFFER));
    ports::write_no(out, version, packet.in_port)?;
    let at = out.len();
    out.u16(0);
    if version == Version::V13 {
        out.zeros(6);
    }
    let start = out.len();
    action::write_actions(out, version, &packet.actions, &Match::new())?;
    close(out, start, at)?;
    out.bytes(&packet.data);
    Ok(())
}
