//! Actions and instructions: type, length, content, padded to eight bytes.

use super::bytes::close;
use super::bytes::{Put, Reader};
use super::{Unencodable, oxm};
use crate::action::{Action, Instruction};
use crate::error::{ErrorCode, Version};
use crate::field::{Field, VLAN_PRESENT};
use crate::matches::{FieldMatch, Match};
use crate::port::PortNo;

const EXPERIMENTER: u16 = 0xffff;

/// A list of actions: all of `reader`.
pub(super) fn read_actions(
    version: Version,
    mut reader: Reader<'_>,
) -> Result<Vec<Action>, ErrorCode> {
    let mut actions = Vec::new();
    while !reader.is_empty() {
        let bad = ErrorCode::BadActionLen;
        let mut head = reader;
        let (kind, len) = (head.u16().map_err(|_| bad)?, usize::from(head.u16().map_err(|_| bad)?));
        if len < 8 || !len.is_multiple_of(8) {
            return Err(bad);
        }
        let mut body = reader.part(len, bad)?;
        body.skip(4)?;
        let action = match version {
            Version::V10 => read_v10(kind, len, &mut body),
            Version::V13 => read_v13(kind, len, &mut body),
        };
        // What is too short for its type.
        actions.push(action.map_err(|e| if e == ErrorCode::BadRequestLen { bad } else { e })?);
    }
    Ok(actions)
}

fn expect(len: usize, is: usize) -> Result<(), ErrorCode> {
    if len == is { Ok(()) } else { Err(ErrorCode::BadActionLen) }
}

fn experimenter(body: &mut Reader<'_>) -> Result<Action, ErrorCode> {
    Ok(Action::Experimenter { id: body.u32()?, data: body.all().to_vec() })
}

fn read_v10(kind: u16, len: usize, body: &mut Reader<'_>) -> Result<Action, ErrorCode> {
    if kind == EXPERIMENTER {
        return experimenter(body);
    }
    match kind {
        4 | 5 | 11 => expect(len, 16)?,
        0..=10 => expect(len, 8)?,
        _ => return Err(ErrorCode::BadActionType),
    }
    Ok(match kind {
        0 => Action::Output { port: PortNo::from_v10(body.u16()?), max_len: body.u16()? },
        1 => {
            let vid = body.u16()?;
            if vid > 0xfff {
                return Err(ErrorCode::BadActionArgument);
            }
            Action::SetVlanVid(vid)
        }
        2 => {
            let pcp = body.u8()?;
            if pcp > 7 {
                return Err(ErrorCode::BadActionArgument);
            }
            Action::SetVlanPcp(pcp)
        }
        3 => Action::PopVlan,
        4 => Action::SetField(Field::EthSrc, body.number(6)?),
        5 => Action::SetField(Field::EthDst, body.number(6)?),
        6 => Action::SetField(Field::Ipv4Src, body.number(4)?),
        7 => Action::SetField(Field::Ipv4Dst, body.number(4)?),
        8 => {
            let tos = body.u8()?;
            if tos & 3 != 0 {
                return Err(ErrorCode::BadActionArgument);
            }
            Action::SetField(Field::IpDscp, u128::from(tos >> 2))
        }
        9 => Action::SetTpSrc(body.u16()?),
        10 => Action::SetTpDst(body.u16()?),
        11 => {
            let port = PortNo::from_v10(body.u16()?);
            body.skip(6)?;
            Action::Enqueue { port, queue: body.u32()? }
        }
        _ => return Err(ErrorCode::BadActionType),
    })
}

fn read_v13(kind: u16, len: usize, body: &mut Reader<'_>) -> Result<Action, ErrorCode> {
    match kind {
        EXPERIMENTER => return experimenter(body),
        25 => {
            let set =
                oxm::read_set_field(body).map(|(field, value)| Action::SetField(field, value))?;
            let padding = body.all();
            // Padding up to the next eight bytes and not more.
            return if padding.len() < 8 { Ok(set) } else { Err(ErrorCode::BadActionSetLen) };
        }
        0 => expect(len, 16)?,
        11 | 12 | 15..=24 | 26 | 27 => expect(len, 8)?,
        _ => return Err(ErrorCode::BadActionType),
    }
    Ok(match kind {
        0 => Action::Output { port: PortNo(body.u32()?), max_len: body.u16()? },
        11 => Action::CopyTtlOut,
        12 => Action::CopyTtlIn,
        15 => Action::SetMplsTtl(body.u8()?),
        16 => Action::DecMplsTtl,
        17 => Action::PushVlan(body.u16()?),
        18 => Action::PopVlan,
        19 => Action::PushMpls(body.u16()?),
        20 => Action::PopMpls(body.u16()?),
        21 => Action::SetQueue(body.u32()?),
        22 => Action::Group(body.u32()?),
        23 => Action::SetNwTtl(body.u8()?),
        24 => Action::DecNwTtl,
        26 => Action::PushPbb(body.u16()?),
        27 => Action::PopPbb,
        _ => return Err(ErrorCode::BadActionType),
    })
}

/// Writes actions; `matches` is of the flow, and says which ports 1.0's SET_TP_SRC means.
///
/// # Errors
/// `Version` where the version has no such action.
pub(super) fn write_actions(
    out: &mut Vec<u8>,
    version: Version,
    actions: &[Action],
    matches: &Match,
) -> Result<(), Unencodable> {
    actions.iter().try_for_each(|action| {
        let start = out.len();
        match version {
            Version::V10 => write_v10(out, action)?,
            Version::V13 => write_v13(out, action, matches)?,
        }
        out.pad8(start);
        Ok(())
    })
}

fn head(out: &mut Vec<u8>, kind: u16, len: u16) {
    out.u16(kind);
    out.u16(len);
}

fn write_experimenter(out: &mut Vec<u8>, id: u32, data: &[u8]) -> Result<(), Unencodable> {
    let start = out.len();
    head(out, EXPERIMENTER, 0);
    out.u32(id);
    out.bytes(data);
    out.pad8(start);
    close(out, start, start + 2)
}

fn write_v10(out: &mut Vec<u8>, action: &Action) -> Result<(), Unencodable> {
    let port = |port: &PortNo| port.to_v10().ok_or(Unencodable::Version);
    let mut small = |kind: u16, value: u32| {
        head(out, kind, 8);
        out.u32(value);
    };
    match action {
        Action::Output { port: to, max_len } => {
            small(0, u32::from(port(to)?) << 16 | u32::from(*max_len))
        }
        Action::SetVlanVid(vid) => small(1, u32::from(*vid) << 16),
        Action::SetField(Field::VlanVid, value) => small(1, (*value as u32 & 0xfff) << 16),
        Action::SetVlanPcp(pcp) => small(2, u32::from(*pcp) << 24),
        Action::SetField(Field::VlanPcp, value) => small(2, (*value as u32) << 24),
        Action::PopVlan => small(3, 0),
        Action::SetField(Field::Ipv4Src, value) => small(6, *value as u32),
        Action::SetField(Field::Ipv4Dst, value) => small(7, *value as u32),
        Action::SetField(Field::IpDscp, value) => small(8, (*value as u32) << 26),
        Action::SetField(Field::TcpSrc | Field::UdpSrc | Field::SctpSrc, value) => {
            small(9, (*value as u32) << 16)
        }
        Action::SetTpSrc(value) => small(9, u32::from(*value) << 16),
        Action::SetField(Field::TcpDst | Field::UdpDst | Field::SctpDst, value) => {
            small(10, (*value as u32) << 16)
        }
        Action::SetTpDst(value) => small(10, u32::from(*value) << 16),
        Action::SetField(field @ (Field::EthSrc | Field::EthDst), value) => {
            head(out, if *field == Field::EthSrc { 4 } else { 5 }, 16);
            out.number(*value, 6);
            out.zeros(6);
        }
        Action::Enqueue { port: to, queue } => {
            head(out, 11, 16);
            out.u16(port(to)?);
            out.zeros(6);
            out.u32(*queue);
        }
        Action::Experimenter { id, data } => write_experimenter(out, *id, data)?,
        _ => return Err(Unencodable::Version),
    }
    Ok(())
}

fn write_v13(out: &mut Vec<u8>, action: &Action, matches: &Match) -> Result<(), Unencodable> {
    let mut small = |kind: u16, value: u32| {
        head(out, kind, 8);
        out.u32(value);
    };
    let ports = |tcp: Field, udp: Field, sctp: Field| match matches.exact(Field::IpProto) {
        Some(6) => Ok(tcp),
        Some(17) => Ok(udp),
        Some(132) => Ok(sctp),
        _ => Err(Unencodable::Version),
    };
    match action {
        Action::Output { port, max_len } => output(out, *port, *max_len),
        Action::CopyTtlOut => small(11, 0),
        Action::CopyTtlIn => small(12, 0),
        Action::SetMplsTtl(ttl) => small(15, u32::from(*ttl) << 24),
        Action::DecMplsTtl => small(16, 0),
        Action::PushVlan(ethertype) => small(17, u32::from(*ethertype) << 16),
        Action::PopVlan => small(18, 0),
        Action::PushMpls(ethertype) => small(19, u32::from(*ethertype) << 16),
        Action::PopMpls(ethertype) => small(20, u32::from(*ethertype) << 16),
        Action::SetQueue(queue) => small(21, *queue),
        Action::Group(group) => small(22, *group),
        Action::SetNwTtl(ttl) => small(23, u32::from(*ttl) << 24),
        Action::DecNwTtl => small(24, 0),
        Action::PushPbb(ethertype) => small(26, u32::from(*ethertype) << 16),
        Action::PopPbb => small(27, 0),
        Action::Enqueue { port, queue } => {
            small(21, *queue);
            output(out, *port, 0);
        }
        Action::SetField(field, value) => set_field(out, *field, *value)?,
        Action::SetVlanVid(vid) => set_field(out, Field::VlanVid, (vid | VLAN_PRESENT).into())?,
        Action::SetVlanPcp(pcp) => set_field(out, Field::VlanPcp, u128::from(*pcp))?,
        Action::SetTpSrc(port) => {
            let field = ports(Field::TcpSrc, Field::UdpSrc, Field::SctpSrc)?;
            set_field(out, field, u128::from(*port))?;
        }
        Action::SetTpDst(port) => {
            let field = ports(Field::TcpDst, Field::UdpDst, Field::SctpDst)?;
            set_field(out, field, u128::from(*port))?;
        }
        Action::Experimenter { id, data } => write_experimenter(out, *id, data)?,
    }
    Ok(())
}

fn output(out: &mut Vec<u8>, port: PortNo, max_len: u16) {
    head(out, 0, 16);
    out.u32(port.0);
    out.u16(max_len);
    out.zeros(6);
}

fn set_field(out: &mut Vec<u8>, field: Field, value: u128) -> Result<(), Unencodable> {
    let start = out.len();
    head(out, 25, 0);
    oxm::write_field(out, &FieldMatch { field, value: value & field.full(), mask: field.full() });
    out.pad8(start);
    close(out, start, start + 2)
}

/// A list of instructions: all of `reader`; each type at most once.
pub(super) fn read_instructions(mut reader: Reader<'_>) -> Result<Vec<Instruction>, ErrorCode> {
    let bad = ErrorCode::BadInstructionLen;
    let mut instructions: Vec<Instruction> = Vec::new();
    let mut seen = 0_u32;
    while !reader.is_empty() {
        let mut head = reader;
        let (kind, len) = (head.u16().map_err(|_| bad)?, usize::from(head.u16().map_err(|_| bad)?));
        if len < 8 || !len.is_multiple_of(8) {
            return Err(bad);
        }
        let mut body = reader.part(len, bad)?;
        body.skip(4)?;
        let fixed = match kind {
            1 | 5 | 6 => Some(8),
            2 => Some(24),
            _ => None,
        };
        if fixed.is_some_and(|fixed| fixed != len) {
            return Err(bad);
        }
        if kind < 32 {
            if seen >> kind & 1 != 0 {
                return Err(ErrorCode::BadInstructionDup);
            }
            seen |= 1 << kind;
        }
        instructions.push(match kind {
            1 => Instruction::GotoTable(body.u8()?),
            2 => {
                body.skip(4)?;
                Instruction::WriteMetadata { value: body.u64()?, mask: body.u64()? }
            }
            3 | 4 => {
                body.skip(4)?;
                let actions = read_actions(Version::V13, body)?;
                match kind {
                    3 => Instruction::WriteActions(actions),
                    _ => Instruction::ApplyActions(actions),
                }
            }
            5 => Instruction::ClearActions,
            6 => Instruction::Meter(body.u32()?),
            EXPERIMENTER => {
                Instruction::Experimenter { id: body.u32()?, data: body.all().to_vec() }
            }
            _ => return Err(ErrorCode::BadInstructionUnknown),
        });
    }
    Ok(instructions)
}

pub(super) fn write_instructions(
    out: &mut Vec<u8>,
    instructions: &[Instruction],
    matches: &Match,
) -> Result<(), Unencodable> {
    for instruction in instructions {
        let start = out.len();
        let lists = |out: &mut Vec<u8>, kind, actions: &[Action]| {
            head(out, kind, 0);
            out.zeros(4);
            write_actions(out, Version::V13, actions, matches)
        };
        match instruction {
            Instruction::GotoTable(table) => {
                head(out, 1, 0);
                out.u8(*table);
                out.zeros(3);
            }
            Instruction::WriteMetadata { value, mask } => {
                head(out, 2, 0);
                out.zeros(4);
                out.u64(*value);
                out.u64(*mask);
            }
            Instruction::WriteActions(actions) => lists(out, 3, actions)?,
            Instruction::ApplyActions(actions) => lists(out, 4, actions)?,
            Instruction::ClearActions => {
                head(out, 5, 0);
                out.zeros(4);
            }
            Instruction::Meter(meter) => {
                head(out, 6, 0);
                out.u32(*meter);
            }
            Instruction::Experimenter { id, data } => {
                head(out, EXPERIMENTER, 0);
                out.u32(*id);
                out.bytes(data);
                out.pad8(start);
            }
        }
        close(out, start, start + 2)?;
    }
    Ok(())
}

/// The actions of a flow of 1.0.
///
/// # Errors
/// `Version` where the flow has more than one list of actions to apply.
pub(super) fn v10_actions(instructions: &[Instruction]) -> Result<&[Action], Unencodable> {
    match instructions {
        [] => Ok(&[]),
        [Instruction::ApplyActions(actions)] => Ok(actions),
        _ => Err(Unencodable::Version),
    }
}

pub(super) fn v10_instructions(actions: Vec<Action>) -> Vec<Instruction> {
    if actions.is_empty() { Vec::new() } else { vec![Instruction::ApplyActions(actions)] }
}
