//! Flows in Nicira's extension of OpenFlow 1.0: FLOW_MOD, FLOW_REMOVED and statistics with a match of NXM, so with IPv6 and masks of any
//! field that has them in 1.3 (`nicira-ext.h` of Open vSwitch). Actions are those of 1.0.

use super::bytes::{Put, Reader, close};
use super::flows::{
    NO_BUFFER, command10, command10_out, cookie10_out, cookies10, flags, flags_out, read_buffer,
};
use super::{Extensions, Unencodable, action, nxm, ports};
use crate::error::{ErrorCode, Version};
use crate::flow::{
    ANY_GROUP, FlowCommand, FlowFilter, FlowFlags, FlowMod, FlowRemoved, FlowStats, RemovedReason,
};
use crate::matches::Match;
use crate::port::PortNo;
use nxm::Cookie;

type Write = Result<(), Unencodable>;

/// The fields of a match of `len` bytes, behind which its padding is.
fn fields<'a>(reader: &mut Reader<'a>, len: u16) -> Result<Reader<'a>, ErrorCode> {
    let (len, bad) = (usize::from(len), ErrorCode::BadMatchLen);
    let fields = reader.part(len, bad)?;
    reader.skip(len.next_multiple_of(8) - len).map_err(|_| bad)?;
    Ok(fields)
}

fn read_match(reader: &mut Reader<'_>, len: u16) -> Result<Match, ErrorCode> {
    nxm::read_match(fields(reader, len)?)
}

/// Writes a match, and its length into the field at `at`.
fn write_match(out: &mut Vec<u8>, matches: &Match, at: usize) -> Write {
    write_with_cookie(out, matches, Cookie::default(), at)
}

/// The same with a cookie.
fn write_with_cookie(out: &mut Vec<u8>, matches: &Match, cookie: Cookie, at: usize) -> Write {
    let start = out.len();
    nxm::write_match(out, matches)?;
    nxm::write_cookie(out, cookie);
    close(out, start, at)?;
    out.pad8(start);
    Ok(())
}

/// The length of the match, which is written later.
fn place(out: &mut Vec<u8>) -> usize {
    out.u16(0);
    out.len() - 2
}

pub(super) fn read_mod(
    reader: &mut Reader<'_>,
    extensions: Extensions,
) -> Result<FlowMod, ErrorCode> {
    let cookie = reader.u64()?;
    let (command, table) = command10(reader.u16()?, extensions)?;
    let (idle_timeout, hard_timeout, priority) = (reader.u16()?, reader.u16()?, reader.u16()?);
    let buffer_id = read_buffer(reader)?;
    let out_port = PortNo::from_v10(reader.u16()?);
    let (flag_bits, len) = (reader.u16()?, reader.u16()?);
    if flag_bits & !7 != 0 {
        return Err(ErrorCode::FlowModUnsupported);
    }
    reader.skip(6)?;
    let (matches, of) = nxm::read_with_cookie(fields(reader, len)?)?;
    if command == FlowCommand::Add && of.mask != 0 {
        return Err(ErrorCode::NxmInvalid);
    }
    let actions = action::read_actions(Version::V10, Reader::new(reader.all()))?;
    let (cookie, new_cookie) = cookies10(command, cookie);
    Ok(FlowMod {
        cookie: if command == FlowCommand::Add { cookie } else { of.value },
        cookie_mask: of.mask,
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

pub(super) fn write_mod(out: &mut Vec<u8>, flow: &FlowMod, extensions: Extensions) -> Write {
    out.u64(cookie10_out(flow));
    out.u16(command10_out(flow, extensions));
    out.u16(flow.idle_timeout);
    out.u16(flow.hard_timeout);
    out.u16(flow.priority);
    out.u32(flow.buffer_id.unwrap_or(NO_BUFFER));
    ports::write_no(out, Version::V10, flow.out_port)?;
    out.u16(flags_out(Version::V10, flow.flags));
    let at = place(out);
    out.zeros(6);
    let of = match flow.command {
        FlowCommand::Add => Cookie::default(),
        _ => Cookie { value: flow.cookie, mask: flow.cookie_mask },
    };
    write_with_cookie(out, &flow.matches, of, at)?;
    let actions = action::v10_actions(&flow.instructions)?;
    action::write_actions(out, Version::V10, actions, &flow.matches)
}

pub(super) fn read_filter(reader: &mut Reader<'_>) -> Result<FlowFilter, ErrorCode> {
    let out_port = PortNo::from_v10(reader.u16()?);
    let (len, table) = (reader.u16()?, reader.u8()?);
    reader.skip(3)?;
    let (matches, of) = nxm::read_with_cookie(fields(reader, len)?)?;
    let (cookie, cookie_mask) = (of.value, of.mask);
    Ok(FlowFilter { table, out_port, cookie, cookie_mask, matches, ..FlowFilter::all() })
}

pub(super) fn write_filter(out: &mut Vec<u8>, filter: &FlowFilter) -> Write {
    ports::write_no(out, Version::V10, filter.out_port)?;
    let at = place(out);
    out.u8(filter.table);
    out.zeros(3);
    let of = Cookie { value: filter.cookie, mask: filter.cookie_mask };
    write_with_cookie(out, &filter.matches, of, at)
}

/// How long ago the flow was used and changed is not said, and not kept.
pub(super) fn read_stats(reader: &mut Reader<'_>) -> Result<FlowStats, ErrorCode> {
    let mut head = *reader;
    let len = usize::from(head.u16()?);
    let mut body = reader.part(len, ErrorCode::BadRequestLen)?;
    body.skip(2)?;
    let table = body.u8()?;
    body.skip(1)?;
    let duration = body.duration()?;
    let (priority, idle_timeout, hard_timeout) = (body.u16()?, body.u16()?, body.u16()?);
    let match_len = body.u16()?;
    body.skip(4)?;
    let (cookie, packets, bytes) = (body.u64()?, body.u64()?, body.u64()?);
    let matches = read_match(&mut body, match_len)?;
    let instructions = action::v10_instructions(action::read_actions(Version::V10, body)?);
    Ok(FlowStats {
        table,
        duration,
        priority,
        idle_timeout,
        hard_timeout,
        flags: FlowFlags::empty(),
        cookie,
        packets,
        bytes,
        matches,
        instructions,
    })
}

pub(super) fn write_stats(out: &mut Vec<u8>, stats: &FlowStats) -> Write {
    let start = out.len();
    out.u16(0);
    out.u8(stats.table);
    out.u8(0);
    out.duration(stats.duration);
    out.u16(stats.priority);
    out.u16(stats.idle_timeout);
    out.u16(stats.hard_timeout);
    let at = place(out);
    out.zeros(4);
    out.u64(stats.cookie);
    out.u64(stats.packets);
    out.u64(stats.bytes);
    write_match(out, &stats.matches, at)?;
    let actions = action::v10_actions(&stats.instructions)?;
    action::write_actions(out, Version::V10, actions, &stats.matches)?;
    close(out, start, start)
}

/// The table is one more than its number; zero where it is not known.
pub(super) fn read_removed(reader: &mut Reader<'_>) -> Result<FlowRemoved, ErrorCode> {
    let (cookie, priority) = (reader.u64()?, reader.u16()?);
    let reason = match reader.u8()? {
        0 => RemovedReason::IdleTimeout,
        1 => RemovedReason::HardTimeout,
        2 => RemovedReason::Delete,
        3 => RemovedReason::GroupDelete,
        _ => return Err(ErrorCode::BadRequestLen),
    };
    let table = reader.u8()?.saturating_sub(1);
    let (duration, idle_timeout, len) = (reader.duration()?, reader.u16()?, reader.u16()?);
    let (packets, bytes) = (reader.u64()?, reader.u64()?);
    let matches = read_match(reader, len)?;
    Ok(FlowRemoved {
        cookie,
        priority,
        reason,
        table,
        duration,
        idle_timeout,
        hard_timeout: 0,
        packets,
        bytes,
        matches,
    })
}

pub(super) fn write_removed(out: &mut Vec<u8>, flow: &FlowRemoved) -> Write {
    out.u64(flow.cookie);
    out.u16(flow.priority);
    out.u8(match flow.reason {
        RemovedReason::IdleTimeout => 0,
        RemovedReason::HardTimeout => 1,
        RemovedReason::Delete => 2,
        RemovedReason::GroupDelete => 3,
    });
    out.u8(flow.table.saturating_add(1));
    out.duration(flow.duration);
    out.u16(flow.idle_timeout);
    let at = place(out);
    out.u64(flow.packets);
    out.u64(flow.bytes);
    write_match(out, &flow.matches, at)
}
