//! Flow monitors on the wire: Nicira's extension of 1.0, and extension 187 of the ONF for 1.3.
//!
//! ```text
//!  request  1.0  id 4 · flags 2 · port 2 · length of the match 2 · table 1 · 0 … 5 · match (NXM), padded to 8
//!           1.3  id 4 · flags 2 · length of the match 2 · port 4 · table 1 · 0 … 3 · match (OXM), padded to 8
//!  update        length 2 · event 2 · reason 2 · priority 2 · idle 2 · hard 2 · length of the match 2 · table 1 · 0 · cookie 8 ·
//!                match, padded to 8 · actions (1.0) or instructions
//!                length 2 = 8 · event 2 = 3 · xid 4
//! ```
//!
//! In 1.3 a match has its type and length before it, as Open vSwitch writes it; one without, as the extension's text has it, is read too.

use super::bytes::{Put, Reader, close, len16};
use super::{Unencodable, action, nxm, oxm, ports};
use crate::error::{ErrorCode, Version};
use crate::flow::{FlowFlags, FlowStats, RemovedReason};
use crate::matches::Match;
use crate::monitor::{FlowEvent, FlowMonitor, FlowUpdate, MonitorFlags};
use crate::port::PortNo;

type Write = Result<(), Unencodable>;

const ABBREVIATED: u16 = 3;

/// A match whose length `len` has said before.
fn read_match(reader: &mut Reader<'_>, version: Version, len: usize) -> Result<Match, ErrorCode> {
    let bad = ErrorCode::BadMatchLen;
    match version {
        Version::V10 => {
            let fields = reader.part(len, bad)?;
            reader.skip(len.next_multiple_of(8) - len).map_err(|_| bad)?;
            nxm::read_match(fields)
        }
        Version::V13 => {
            let mut own = reader.part(len.next_multiple_of(8), bad)?;
            let mut ahead = own;
            // Type and length as in other messages; the extension's own form is without them.
            let is_whole = ahead.u16() == Ok(1) && ahead.u16().map(usize::from) == Ok(len);
            match is_whole {
                true => oxm::read_match(&mut own),
                false => oxm::read_fields(own.part(len, bad)?),
            }
        }
    }
}

/// Writes a match; its length without padding into the field at `at`.
fn write_match(out: &mut Vec<u8>, version: Version, matches: &Match, at: usize) -> Write {
    let start = out.len();
    match version {
        Version::V10 => {
            nxm::write_match(out, matches)?;
            close(out, start, at)?;
            out.pad8(start);
        }
        Version::V13 => {
            oxm::write_match(out, matches)?;
            let len = u16::from_be_bytes([out[start + 2], out[start + 3]]);
            out.set_u16(at, len);
        }
    }
    Ok(())
}

pub(super) fn read_request(
    reader: &mut Reader<'_>,
    version: Version,
) -> Result<FlowMonitor, ErrorCode> {
    let (id, flags) = (reader.u32()?, MonitorFlags(reader.u16()?));
    let (out_port, len) = match version {
        Version::V10 => (PortNo::from_v10(reader.u16()?), reader.u16()?),
        Version::V13 => {
            let len = reader.u16()?;
            (PortNo(reader.u32()?), len)
        }
    };
    let table = reader.u8()?;
    reader.skip(if version == Version::V10 { 5 } else { 3 })?;
    if flags.without(MonitorFlags::ALL) != MonitorFlags::empty()
        || flags.without(MonitorFlags::EVENTS) == flags
    {
        return Err(ErrorCode::MonitorFlags);
    }
    let matches = read_match(reader, version, len.into())?;
    Ok(FlowMonitor { id, flags, out_port, table, matches })
}

pub(super) fn write_request(out: &mut Vec<u8>, version: Version, monitor: &FlowMonitor) -> Write {
    out.u32(monitor.id);
    out.u16(monitor.flags.0);
    let at = match version {
        Version::V10 => {
            ports::write_no(out, version, monitor.out_port)?;
            let at = out.len();
            out.u16(0);
            at
        }
        Version::V13 => {
            let at = out.len();
            out.u16(0);
            out.u32(monitor.out_port.0);
            at
        }
    };
    out.u8(monitor.table);
    out.zeros(if version == Version::V10 { 5 } else { 3 });
    write_match(out, version, &monitor.matches, at)
}

pub(super) fn read_update(
    reader: &mut Reader<'_>,
    version: Version,
) -> Result<FlowUpdate, ErrorCode> {
    let bad = ErrorCode::BadRequestLen;
    let mut head = *reader;
    let (len, event) = (usize::from(head.u16()?), head.u16()?);
    let mut body = reader.part(len, bad)?;
    body.skip(4)?;
    if event == ABBREVIATED {
        let xid = body.u32()?;
        return if body.is_empty() { Ok(FlowUpdate::Abbreviated { xid }) } else { Err(bad) };
    }
    let reason = body.u16()?;
    let event = match (event, reason) {
        (0, _) => FlowEvent::Added,
        (1, 0) => FlowEvent::Deleted(RemovedReason::IdleTimeout),
        (1, 1) => FlowEvent::Deleted(RemovedReason::HardTimeout),
        (1, 2) => FlowEvent::Deleted(RemovedReason::Delete),
        (1, 3) => FlowEvent::Deleted(RemovedReason::GroupDelete),
        (2, _) => FlowEvent::Modified,
        _ => return Err(bad),
    };
    let (priority, idle_timeout, hard_timeout) = (body.u16()?, body.u16()?, body.u16()?);
    let (match_len, table) = (body.u16()?, body.u8()?);
    body.skip(1)?;
    let cookie = body.u64()?;
    let matches = read_match(&mut body, version, match_len.into())?;
    let instructions = match version {
        Version::V10 => action::v10_instructions(action::read_actions(version, body)?),
        Version::V13 => action::read_instructions(body)?,
    };
    let flow = FlowStats {
        table,
        duration: std::time::Duration::ZERO,
        priority,
        idle_timeout,
        hard_timeout,
        flags: FlowFlags::empty(),
        cookie,
        packets: 0,
        bytes: 0,
        matches,
        instructions,
    };
    Ok(FlowUpdate::Flow(event, flow))
}

pub(super) fn write_update(out: &mut Vec<u8>, version: Version, update: &FlowUpdate) -> Write {
    let start = out.len();
    let (event, flow) = match update {
        FlowUpdate::Abbreviated { xid } => {
            out.u16(8);
            out.u16(ABBREVIATED);
            out.u32(*xid);
            return Ok(());
        }
        FlowUpdate::Flow(event, flow) => (event, flow),
    };
    let (event, reason) = match event {
        FlowEvent::Added => (0, 0),
        FlowEvent::Deleted(RemovedReason::IdleTimeout) => (1, 0),
        FlowEvent::Deleted(RemovedReason::HardTimeout) => (1, 1),
        FlowEvent::Deleted(RemovedReason::Delete) => (1, 2),
        FlowEvent::Deleted(RemovedReason::GroupDelete) => (1, 3),
        FlowEvent::Modified => (2, 0),
    };
    out.u16(0);
    out.u16(event);
    out.u16(reason);
    out.u16(flow.priority);
    out.u16(flow.idle_timeout);
    out.u16(flow.hard_timeout);
    let at = out.len();
    out.u16(0);
    out.u8(flow.table);
    out.zeros(1);
    out.u64(flow.cookie);
    write_match(out, version, &flow.matches, at)?;
    match version {
        Version::V10 => {
            let actions = action::v10_actions(&flow.instructions)?;
            action::write_actions(out, version, actions, &flow.matches)?;
        }
        Version::V13 => action::write_instructions(out, &flow.instructions, &flow.matches)?,
    }
    let len = len16(out, start)?;
    out.set_u16(start, len);
    Ok(())
}
